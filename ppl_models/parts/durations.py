r"""Duration distributions of semi-Markov states: how many steps a visit to a state lasts.

A visit to state k lasts :math:`D \in \{1, 2, \ldots\}` steps with chance :math:`d_k(n) = P(D =
n)`; :math:`S_k(n) = P(D \ge n)` is the chance that it has not ended before its n-th step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import pyro
import torch
from pyro.distributions import Dirichlet
from torch import Tensor

from ppl_models.parts.distributions import Dispersions, Flat, log_rising
from ppl_models.parts.validation import check_size, plain_fields

MEANS = (1.0001, 1e5)  # interval of mean durations, in steps
SIZES = (1e-2, 1e4)  # interval of negative binomial sizes
CANCELLED = 1e-12  # tails below it are not taken as one minus the rest
NEVER = -1e30  # logarithm of what is impossible; sums of it stay finite

Params = Mapping[str, Tensor]


class DurationTables(NamedTuple):
    r"""Logs of :math:`d_k(n)` and :math:`S_k(n)`, n = 1, ..., D, each (\*batch, K, D)."""

    durations: Tensor
    survival: Tensor


def log_tails(logs: Tensor) -> Tensor:
    r"""Logs of sums from each entry on, :math:`\log \sum_{m \ge n} e^{l_m}`, along the last dim.

    Sums of pairs, of fours and so on; second derivatives of ``logcumsumexp`` are not finite where
    entries lie far apart.
    """
    reach = 1
    while reach < logs.shape[-1]:
        later = torch.nn.functional.pad(logs[..., reach:], (0, reach), value=NEVER)
        logs, reach = torch.stack([logs, later]).logsumexp(0), 2 * reach
    return logs


@dataclass(frozen=True)
class Durations(ABC):
    """Duration distribution of every state; a base to inherit from.

    Args:
        max_duration: most steps of a visit, m; the distribution is that of visits of at most m
            steps, and a step of the sequence takes K m operations. None for no limit: a step takes
            as many operations as steps lie before it, times K.
    """

    max_duration: int | None = None
    title: ClassVar[str]  # in tables and sentences
    equation: ClassVar[str]  # of the steps D of a visit to state k
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {"mean_durations": ("state",)}

    def __post_init__(self) -> None:
        plain_fields(self)
        if self.max_duration is not None:
            self._check_most()

    def _check_most(self) -> None:
        check_size(
            type(self).__name__,
            "max_duration",
            self.max_duration,
            2,
            "an integer of at least 2 (steps), or None",
        )

    def priors(self, num_states: int, zero: Tensor, concentration: float) -> dict[str, Any]:
        """Prior distributions of the parameters, by site; of mean durations by default."""
        ends = (zero + end for end in MEANS)
        return {"mean_durations": Flat(*ends).expand([num_states]).to_event(1)}

    def draw(self, num_states: int, zero: Tensor, concentration: float) -> dict[str, Tensor]:
        r"""Sample sites of the parameters, (\*batch, K, ...)."""
        priors = self.priors(num_states, zero, concentration)
        return {name: pyro.sample(name, prior) for name, prior in priors.items()}

    @abstractmethod
    def log_density(self, params: Params, steps: Tensor) -> Tensor:
        r"""Log of :math:`d_k(n)` without the limit, (\*batch, K, N), of steps n (N,)."""

    def first(self, means: Tensor, like: Params) -> dict[str, Tensor]:
        r"""Starting parameters of visits of these mean lengths, (\*batch, K)."""
        return {"mean_durations": means.clamp(*MEANS)}

    def num_free(self, num_states: int) -> int:
        """Number of free parameters."""
        return num_states * len(self.site_dims)

    def own(self, params: Params) -> dict[str, Tensor]:
        """Parameters of the durations alone."""
        return {name: params[name] for name in self.site_dims}

    def tables(self, params: Params, num_steps: int) -> DurationTables:
        r"""Logs of chances of all durations up to D.

        Args:
            params: parameters, (\*batch, K, ...).
            num_steps: D where there is no limit; the last entry of d is then P(D steps or more),
                for a sequence of D steps never tells these apart. With a limit m, D = m.
        """
        num = self.max_duration or num_steps
        like = next(iter(self.own(params).values()))
        steps = torch.arange(1, num + 1, dtype=like.dtype, device=like.device)
        logs = self.log_density(params, steps)
        if self.max_duration is not None:
            logs = logs - logs.logsumexp(-1, keepdim=True)
        elif num == 1:
            logs = torch.zeros_like(logs)
        else:
            before, last = logs[..., :-1].logsumexp(-1), logs[..., -1]
            clear = before < -CANCELLED
            rest = torch.where(clear, before, torch.full_like(before, -1.0))
            # far out, chances fall by a nearly constant ratio
            ratio = (self.log_density(params, steps[-1:] + 1)[..., 0] - last).exp()
            far = last - (1 - ratio).clamp(min=CANCELLED).log()
            tail = torch.where(clear, (-torch.expm1(rest)).log(), far)
            logs = torch.cat([logs[..., :-1], tail.unsqueeze(-1)], -1)
        logs = logs.clamp(min=NEVER)
        return DurationTables(logs, log_tails(logs))

    def left_out(self, params: Params) -> Tensor:
        r"""Chance of more steps than the limit, before it is left out, (\*batch, K)."""
        if self.max_duration is None:
            return torch.zeros_like(params["mean_durations"])
        like = next(iter(self.own(params).values()))
        steps = torch.arange(1, self.max_duration + 1, dtype=like.dtype, device=like.device)
        return (1 - self.log_density(params, steps).exp().sum(-1)).clamp(min=0.0)

    def means(self, params: Params) -> Tensor:
        r"""Mean number of steps of a visit, (\*batch, K)."""
        if self.max_duration is None:
            return params["mean_durations"]
        chances = self.tables(params, self.max_duration).durations.exp()
        steps = torch.arange(1, self.max_duration + 1, dtype=chances.dtype, device=chances.device)
        return chances @ steps


@dataclass(frozen=True)
class GeometricDurations(Durations):
    r"""Geometric durations, :math:`d(n) = (1 - 1/\mu)^{n-1} / \mu`: a plain hidden Markov chain.

    Site: ``mean_durations`` :math:`\mu` (K,), in steps. The chance to stay is :math:`1 - 1 / \mu`.

    Args:
        max_duration: most steps of a visit; None for no limit, and the cost of a plain chain.

    Raises:
        ValueError: for a limit that is no integer of at least 2.
    """

    title = "geometric"
    equation = "D | k ~ Geometric(1 / mean_durations_{k})"

    def log_density(self, params: Params, steps: Tensor) -> Tensor:
        end = params["mean_durations"].unsqueeze(-1).reciprocal()
        return (steps - 1) * torch.log1p(-end) + end.log()


@dataclass(frozen=True)
class PoissonDurations(Durations):
    r"""Poisson durations, shifted by one: :math:`D - 1 \sim \operatorname{Poisson}(\mu - 1)`.

    Site: ``mean_durations`` :math:`\mu` (K,), in steps.

    Args:
        max_duration: most steps of a visit, the others left out of the distribution (then
            :math:`\mu` is the mean before that); None for no limit.

    Raises:
        ValueError: for a limit that is no integer of at least 2.
    """

    title = "Poisson"
    equation = "D - 1 | k ~ Poisson(mean_durations_{k} - 1)"

    def log_density(self, params: Params, steps: Tensor) -> Tensor:
        rate = params["mean_durations"].unsqueeze(-1) - 1
        return (steps - 1) * rate.log() - rate - torch.lgamma(steps)


@dataclass(frozen=True)
class NegativeBinomialDurations(Durations):
    r"""Negative binomial durations, shifted by one.

    .. math:: D - 1 \sim \operatorname{NB}(\mu - 1, r), \qquad \operatorname{Var} D = (\mu - 1)
        \{1 + (\mu - 1) / r\},

    geometric where the size r is 1, and nearly Poisson where it is large.

    Sites: ``mean_durations`` :math:`\mu` (K,), in steps; ``duration_sizes`` r (K,).

    Args:
        max_duration: most steps of a visit, the others left out of the distribution (then
            :math:`\mu` is the mean before that); None for no limit.

    Raises:
        ValueError: for a limit that is no integer of at least 2.
    """

    title = "negative binomial"
    equation = "D - 1 | k ~ NegativeBinomial(mean_durations_{k} - 1, duration_sizes_{k})"
    site_dims = {"mean_durations": ("state",), "duration_sizes": ("state",)}

    def priors(self, num_states: int, zero: Tensor, concentration: float) -> dict[str, Any]:
        is_size = torch.ones(num_states, dtype=torch.bool, device=zero.device)
        sizes = Dispersions(is_size, zero + SIZES[0], zero + SIZES[1])
        return super().priors(num_states, zero, concentration) | {"duration_sizes": sizes}

    def log_density(self, params: Params, steps: Tensor) -> Tensor:
        mean = params["mean_durations"].unsqueeze(-1) - 1
        size, more = params["duration_sizes"].unsqueeze(-1), steps - 1
        return (
            log_rising(size, more)
            - torch.lgamma(steps)
            - size * torch.log1p(mean / size)
            + more * (mean.log() - (mean + size).log())
        )

    def first(self, means: Tensor, like: Params) -> dict[str, Tensor]:
        own = {"mean_durations": means.clamp(*MEANS)}
        return own | {"duration_sizes": torch.ones_like(means)}


@dataclass(frozen=True)
class FreeDurations(Durations):
    r"""Free durations: every number of steps up to m has a chance of its own.

    Site: ``duration_chances`` d (K, m), Dirichlet(concentration) of the model, a priori.

    Args:
        max_duration: m, most steps of a visit.

    Raises:
        ValueError: for m that is no integer of at least 2.
    """

    title = "free"
    equation = "D | k ~ Categorical(duration_chances_{k})"
    site_dims = {"duration_chances": ("state", "duration")}

    def __post_init__(self) -> None:
        plain_fields(self)
        self._check_most()

    def _check_most(self) -> None:
        check_size(
            "FreeDurations", "max_duration", self.max_duration, 2, "an integer of at least 2, steps"
        )

    def priors(self, num_states: int, zero: Tensor, concentration: float) -> dict[str, Any]:
        assert self.max_duration is not None
        prior = (zero + concentration).expand(num_states, self.max_duration)
        return {"duration_chances": Dirichlet(prior).to_event(1)}

    def log_density(self, params: Params, steps: Tensor) -> Tensor:
        chances = params["duration_chances"]
        possible = chances > 0
        return torch.where(possible, torch.where(possible, chances, 1.0).log(), NEVER)

    def first(self, means: Tensor, like: Params) -> dict[str, Tensor]:
        num = like["duration_chances"].shape[-1]
        steps = torch.arange(num, dtype=means.dtype, device=means.device)
        stay = 1 - 1 / means.clamp(*MEANS).unsqueeze(-1)
        chances = stay**steps
        return {
            "duration_chances": 0.5 * chances / chances.sum(-1, keepdim=True) + 0.5 / num,
        }

    def num_free(self, num_states: int) -> int:
        assert self.max_duration is not None
        return num_states * (self.max_duration - 1)
