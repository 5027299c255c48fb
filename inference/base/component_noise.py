r"""Posterior draws of a component's noise, which ACDC compares with its distribution.

A component acts on a row through noise of a known distribution. Given the data, draws of that noise
from its posterior, pooled over the rows that use the component, follow that same distribution if
the model is right. All noise here is on the scale of independent standard normals,
:math:`\Phi^{-1}` of the (randomised) probability integral transform: both tails keep their
resolution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

USED = 1.0  # expected counts from which a component counts as used by a row
LEAST_VISITS = 50  # to which the steps of a state that is nearly always on are shared out


@dataclass(frozen=True, eq=False)
class Cells:
    """Discrete table of cells for the plug-in discrepancy.

    Args:
        weights: expected rows of each component in each distinct row pattern, (K, V).
        log_probabilities: log-probability of each pattern under each component, (K, V).
        distribution: of a row under each component, batch shape (K,).
    """

    weights: Tensor
    log_probabilities: Tensor
    distribution: Distribution


@dataclass(frozen=True, eq=False)
class NoiseDraws:
    """Draws of the noise of K components.

    Args:
        scores: normal scores, (M, N, K, D); NaN where a row that uses the component has no noise in
            that column; the column's divergence then counts by the noises there are to one use, so
            that all are in nats a use.
        used: whether the row uses the component, (M, N, K).
        shares: each component's share of the data, (K,), summing to 1.
        cells: the discrete table, where rows are discrete and few; else None.
        visits: how often each component came into use, (M, K), where one use goes on over many
            rows; None where every row is a use of its own.
    """

    scores: np.ndarray
    used: np.ndarray
    shares: np.ndarray
    cells: Cells | None = None
    visits: np.ndarray | None = None

    @property
    def is_partial(self) -> bool:
        """Tell whether columns have different numbers of noises to one use."""
        return self.visits is not None or bool(np.isnan(self.scores[self.used]).any())

    @property
    def uses(self) -> np.ndarray:
        """Number of uses of each component, (M, K)."""
        uses: np.ndarray = self.used.sum(1) if self.visits is None else self.visits
        return uses


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """Numpy generator seeded by a torch generator."""
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))


def duration_noise(
    stay: np.ndarray, lengths: np.ndarray, paths: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Transform visit lengths under the chances of staying; cut visits are completed by the model.

    Args:
        stay: the chance of going on into step t, (B, T, K), or by the steps of the visit before
            the last, too, (B, T, K, D); lengths: of sequences, (B,).
        paths: states of steps, 0 after the end, (M, B, T).

    Returns:
        (M, B, T), uniform if the model is right, at the last step of every visit; NaN elsewhere.
    """
    out = np.full(paths.shape, np.nan)
    rows = np.arange(paths.shape[1])
    lasting = np.ones(paths.shape[:2])  # P(the visit lasts until here)
    age = np.zeros(paths.shape[:2], dtype=int)
    for t in range(1, paths.shape[2] + 1):
        now = paths[:, :, t - 1]
        goes_on = t < lengths  # (B,)
        column = min(t, paths.shape[2] - 1)
        # past the end of a sequence the steps count on
        by_age = () if stay.ndim == 3 else (np.minimum(age, stay.shape[-1] - 1),)
        chances = stay[rows, column, now, *by_age]
        on = np.where(goes_on, chances, 0.0)
        over = (t == lengths) | (goes_on & (paths[:, :, column] != now))
        chance = 1 - lasting + rng.random(lasting.shape) * lasting * (1 - on)
        out[:, :, t - 1] = np.where(over, chance, np.nan)
        lasting, age = np.where(over, 1.0, lasting * on), np.where(over, 0, age + 1)
    return out


def poisson_split(counts: np.ndarray, rates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Split counts multinomially by the components' rates, by conditional binomials.

    Args:
        counts: (N, J); rates: (N, K, J), not negative.

    Returns:
        (N, K, J), summing to ``counts`` over K.
    """
    out = np.zeros(rates.shape)
    left = counts.astype(np.int64)
    # rate of this component and of those after it
    tail = np.cumsum(rates[:, ::-1], axis=1)[:, ::-1]
    num = rates.shape[1]
    for k in range(num - 1):
        chance = np.divide(
            rates[:, k], tail[:, k], out=np.full(left.shape, 1.0 / (num - k)), where=tail[:, k] > 0
        )
        draw = rng.binomial(left, np.clip(chance, 0.0, 1.0))
        out[:, k] = draw
        left = left - draw
    out[:, num - 1] = left
    return out


def poisson_scores(y: np.ndarray, rate: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Normal scores of the randomised probability integral transform of counts.

    Above the mean the upper tail is used, so that a far count gets a large score and not an
    infinite one.
    """
    from scipy.special import pdtr, pdtrc

    rate = np.maximum(rate, 0.0)
    return _scores(y, pdtr, pdtrc, (rate,), rng)


def negative_binomial_scores(
    y: np.ndarray, mean: np.ndarray, size: float | np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Randomised normal scores of counts of variance mean + mean squared / size."""
    from scipy.special import betainc

    mean = np.maximum(mean, 0.0)

    def at_most(k: np.ndarray, mean: np.ndarray, size: np.ndarray) -> np.ndarray:
        probability: np.ndarray = betainc(size, k + 1, 1 - mean / (mean + size))
        return probability

    def above(k: np.ndarray, mean: np.ndarray, size: np.ndarray) -> np.ndarray:
        probability: np.ndarray = betainc(k + 1, size, mean / (mean + size))
        return probability

    return _scores(y, at_most, above, (mean, np.broadcast_to(size, mean.shape)), rng)


Tail = Callable[..., np.ndarray]


def _scores(
    y: np.ndarray,
    at_most: Tail,
    above: Tail,
    tail_params: tuple[np.ndarray, ...],
    rng: np.random.Generator,
) -> np.ndarray:
    """Normal scores of counts, each by the tail that it lies in."""
    from scipy.special import ndtri

    u, tiny = (
        rng.random(y.shape),
        1e-300 * (1 + rng.random(y.shape)),
    )  # beyond: ranked at random, not tied
    out, upper = np.empty(y.shape), y > tail_params[0]
    for inside, tail, sign in ((~upper, at_most, 1.0), (upper, above, -1.0)):
        count, params = y[inside], [param[inside] for param in tail_params]
        here, before = tail(count, *params), tail(np.maximum(count - 1, 0), *params)
        before = np.where(count > 0, before, 0.5 - 0.5 * sign)
        low, high = (before, here) if sign > 0 else (here, before)
        out[inside] = sign * ndtri(
            np.maximum(low + u[inside] * np.maximum(high - low, 0.0), tiny[inside])
        )
    return out


def gaussian_split(
    residual: Tensor, scales: Tensor, generator: torch.Generator, num_draws: int
) -> Tensor:
    r"""Noise of each component given their sum, in units of its own scale.

    With shares :math:`v_k = \sigma_k^2 / \sum \sigma^2`, :math:`y_k - \mu_k = v_k r + (e_k - v_k
    \sum_j e_j)`, :math:`e_k \sim N(0, \sigma_k^2)`: the conditional distribution of independent
    normals given their sum, in one shot.

    Args:
        residual: r, (N, D).
        scales: standard deviations, (K, D) or by row (N, K, D or 1).

    Returns:
        (M, N, K, D).
    """
    shape = (num_draws, len(residual), scales.shape[-2], residual.shape[-1])
    noise = scales * torch.randn(shape, generator=generator, dtype=torch.float64).to(residual)
    share = scales.square() / scales.square().sum(-2, keepdim=True)
    return (share * (residual.unsqueeze(-2) - noise.sum(-2, keepdim=True)) + noise) / scales
