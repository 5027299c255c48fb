r"""Guides for noisy-OR networks, for Pyro's own ``SVI``, and gradient estimators for their binary
latents.

Both guides put a point on prior, failure and leak, and a product of Bernoulli distributions on the
latents of a row: a logistic recognition network :math:`q(h \mid x) = \prod_i
\mathrm{Bernoulli}(h_i; \sigma(b_i + (x - \bar x) \cdot v_i))` (Buhai et al. 2020,
arXiv:1907.00030), or one logit a row and latent (mean field).

The estimators give the gradient of the evidence lower bound with respect to the guide's logits
:math:`\phi`, from draws. All are unbiased. With :math:`r(h) = \log p(x, h) - \log q(h)`:

- score function: :math:`(r - c)\, (h - \sigma(\phi))`, with c a centre that does not depend on the
  draw;
- leave-one-out (Kool, van Hoof and Welling 2019): K draws, each centred by the mean of the others;
- DisARM (Dong, Mnih and Tucker 2020, arXiv:2006.10680): one antithetic pair;
- local expectations (Titsias and Lazaro-Gredilla 2015): :math:`\sigma'(\phi_i) (\Delta_i -
  \phi_i)`, with :math:`\Delta_i` the log-odds of latent i given the others, from one draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from ppl_models.descriptions.noisy_or import IndependentCauses, log1mexp
from ppl_models.parts.distributions import BinaryVector

LogRatio = Callable[[Tensor], Tensor]


class _CauseGuide(nn.Module):
    """A point on the parameters; subclasses give the latents' logits.

    Called with the arguments of the model.
    """

    def __init__(self, causes: IndependentCauses, seed: int) -> None:
        super().__init__()
        self.causes = causes
        self.generator = torch.Generator().manual_seed(seed)
        # large priors, large failures, small leaks: 0.88 to 0.98, and 0.02 to 0.12
        self.prior_logits = nn.Parameter(self._uniform(2, 4, causes.num_causes))
        self.failure_logits = nn.Parameter(self._uniform(2, 4, causes.num_causes, causes.num_items))
        self.leak_logits = nn.Parameter(-self._uniform(2, 4, causes.num_items))

    def _uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(
            *shape, generator=self.generator, dtype=torch.float64
        )

    def params(self) -> dict[str, Tensor]:
        """The point estimate, by site name."""
        logits = (self.prior_logits, self.failure_logits, self.leak_logits)
        names = (self.causes.prior, self.causes.failure, self.causes.leak)
        return {name: value.sigmoid() for name, value in zip(names, logits, strict=True)}

    def logits(self, data: Tensor) -> Tensor:
        """Log-odds of the latents of each row, (N, m)."""
        raise NotImplementedError(f"{type(self).__name__} does not define logits")

    def forward(self, data: Tensor, num_rows: int | None = None) -> None:
        pyro.module("guide", self)
        for name, value in self.params().items():
            pyro.sample(name, dist.Delta(value, event_dim=value.dim()))
        with pyro.plate("units", num_rows or len(data), subsample_size=len(data)):
            pyro.sample(self.causes.latent, BinaryVector(self.logits(data)))


class RecognitionGuide(_CauseGuide):
    """Logistic recognition network; a missing entry counts as the mean.

    Args:
        causes: what the model's ``causes()`` returns.
        means: (J,), mean of each item over the training rows.
        seed: of the start: weights and biases uniform on (-0.1, 0.1).
    """

    means: Tensor

    def __init__(self, causes: IndependentCauses, means: Tensor, seed: int = 0) -> None:
        super().__init__(causes, seed)
        if tuple(means.shape) != (causes.num_items,):
            raise ValueError(
                f"RecognitionGuide: means must have shape ({causes.num_items},), got"
                f" {tuple(means.shape)}"
            )
        self.register_buffer("means", means.to(torch.float64))
        self.weights = nn.Parameter(self._uniform(-0.1, 0.1, causes.num_items, causes.num_causes))
        self.biases = nn.Parameter(self._uniform(-0.1, 0.1, causes.num_causes))

    def logits(self, data: Tensor) -> Tensor:
        return (data - self.means).nan_to_num(nan=0.0) @ self.weights + self.biases


class MeanFieldGuide(_CauseGuide):
    """One logit a row and latent; for all rows at once, in the order given.

    Args:
        causes: what the model's ``causes()`` returns.
        num_rows: N; seed: of the start, probabilities uniform on (0.2, 0.8).
    """

    def __init__(self, causes: IndependentCauses, num_rows: int, seed: int = 0) -> None:
        super().__init__(causes, seed)
        self.row_logits = nn.Parameter(self._uniform(0.2, 0.8, num_rows, causes.num_causes).logit())

    def logits(self, data: Tensor) -> Tensor:
        if len(data) != len(self.row_logits):
            raise ValueError(
                f"MeanFieldGuide: {len(self.row_logits)} rows were expected, got {len(data)}"
            )
        return self.row_logits


# ---------------------------------------------------------------- gradient estimators


@dataclass(frozen=True)
class RunningScale:
    """Running mean and variance of the learning signal, as in the paper: the current batch is
    counted before it is used.

    That makes a gradient centred by it slightly biased, by a share of about (1 - decay) / rows.
    """

    centre: float | None = None
    variance: float = 1.0
    decay: float = 0.8

    def updated(self, signal: Tensor) -> RunningScale:
        """With one more batch, (B,)."""
        mean, variance = float(signal.mean()), float(signal.var())
        if self.centre is None:
            return replace(self, centre=mean, variance=variance)
        keep = self.decay
        return replace(
            self,
            centre=keep * self.centre + (1 - keep) * mean,
            variance=keep * self.variance + (1 - keep) * variance,
        )

    def __call__(self, signal: Tensor) -> Tensor:
        """(signal - centre) / max(1, standard deviation)."""
        return (signal - (self.centre or 0.0)) / max(1.0, self.variance**0.5)


class InputBaseline(nn.Module):
    """A network that predicts the learning signal of a row from the row: J to 100 hidden units,
    tanh, to 1.

    It does not depend on the draw, so ``score_function(..., scale=lambda r: r - baseline(data))``
    stays unbiased (Mnih and Gregor 2014, arXiv:1402.0030).

    Args:
        num_items: J.
        means: (J,), mean of each item over the training rows.
        seed: of the start, uniform as torch starts linear layers; num_hidden: of the hidden layer.

    Raises:
        ValueError: for means of another shape.
    """

    means: Tensor

    def __init__(self, num_items: int, means: Tensor, seed: int = 0, num_hidden: int = 100) -> None:
        super().__init__()
        if tuple(means.shape) != (num_items,):
            raise ValueError(
                f"InputBaseline: means must have shape ({num_items},), got {tuple(means.shape)}"
            )
        self.register_buffer("means", means.to(torch.float64))
        generator = torch.Generator().manual_seed(seed)

        def uniform(bound: float, *shape: int) -> nn.Parameter:
            return nn.Parameter(
                bound * (2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1)
            )

        self.inner = uniform(num_items**-0.5, num_items, num_hidden)
        self.inner_bias = uniform(num_items**-0.5, num_hidden)
        self.outer = uniform(num_hidden**-0.5, num_hidden)
        self.outer_bias = uniform(num_hidden**-0.5, 1)

    def forward(self, data: Tensor) -> Tensor:
        """Predicted signals, (B,); a missing entry counts as the mean."""
        hidden = ((data - self.means).nan_to_num(nan=0.0) @ self.inner + self.inner_bias).tanh()
        return hidden @ self.outer + self.outer_bias

    def descend(self, data: Tensor, signal: Tensor, rate: float) -> float:
        """One step of plain gradient descent on the mean squared error, which is returned as it was
        before.
        """
        with torch.enable_grad():
            loss = (signal.detach() - self(data)).square().mean()
            gradients = torch.autograd.grad(loss, list(self.parameters()))
        with torch.no_grad():
            for weights, gradient in zip(self.parameters(), gradients, strict=True):
                weights.sub_(rate * gradient)
        return float(loss.detach())


def _draw(logits: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
    uniform = torch.rand(num_draws, *logits.shape, generator=generator, dtype=logits.dtype)
    return (uniform < logits.sigmoid()).to(logits)


def _signal(log_joint: LogRatio, logits: Tensor, latents: Tensor) -> Tensor:
    log_guide = (latents * logits - nn.functional.softplus(logits)).sum(-1)
    return log_joint(latents) - log_guide


def score_function(
    log_joint: LogRatio,
    logits: Tensor,
    generator: torch.Generator,
    scale: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """One draw a row, (B, m).

    Args:
        log_joint: latents (..., B, m) -> log p(x, h), (..., B).
        logits: (B, m).
        scale: applied to the learning signal (B,), such as a :class:`RunningScale`; it should not
            depend on the draw.
    """
    latents = _draw(logits, 1, generator)[0]
    signal = _signal(log_joint, logits, latents)
    signal = signal if scale is None else scale(signal)
    return signal.unsqueeze(-1) * (latents - logits.sigmoid())


def leave_one_out(
    log_joint: LogRatio, logits: Tensor, generator: torch.Generator, num_draws: int = 4
) -> Tensor:
    """``num_draws`` draws a row, each centred by the mean of the others, (B, m)."""
    if num_draws < 2:
        raise ValueError(f"leave_one_out: num_draws must be at least 2, got {num_draws}")
    latents = _draw(logits, num_draws, generator)
    signal = _signal(log_joint, logits, latents)
    centred = (signal - signal.mean(0)).unsqueeze(-1)
    return (centred * (latents - logits.sigmoid())).sum(0) / (num_draws - 1)


def disarm(log_joint: LogRatio, logits: Tensor, generator: torch.Generator) -> Tensor:
    """One antithetic pair of draws a row, (B, m)."""
    uniform = torch.rand(logits.shape, generator=generator, dtype=logits.dtype)
    off = (-logits).sigmoid()
    one, other = (uniform > off).to(logits), (1 - uniform > off).to(logits)
    difference = _signal(log_joint, logits, one) - _signal(log_joint, logits, other)
    sign = 1 - 2 * other
    return 0.5 * difference.unsqueeze(-1) * sign * (one != other) * logits.abs().sigmoid()


def local_expectations(log_odds: LogRatio, logits: Tensor, generator: torch.Generator) -> Tensor:
    """One draw a row, every latent summed over both its values, (B, m).

    Args:
        log_odds: latents (B, m) -> log-odds of each latent given the others and the row, (B, m);
            see :func:`flip_log_odds`.
    """
    latents = _draw(logits, 1, generator)[0]
    chance = logits.sigmoid()
    return chance * (1 - chance) * (log_odds(latents) - logits)


def flip_log_odds(
    latents: Tensor, data: Tensor, prior: Tensor, weights: Tensor, leak_weights: Tensor
) -> Tensor:
    r"""log p(h_i = 1 | others, x) - log p(h_i = 0 | others, x) of a noisy-OR network for every
    latent, (B, m).

    Args:
        latents: (B, m); data: (B, J) of 0, 1 and NaN.
        prior: (m,); weights: -log failure (m, J); leak_weights: -log(1 - leak) (J,), positive.
    """
    ones, zeros = (data == 1).to(weights), (data == 0).to(weights)
    total = latents @ weights + leak_weights  # (B, J)
    # clamped: taking a weight off what it was added to may leave less than the leak
    # (B, m, J)
    without = torch.maximum(total.unsqueeze(1) - latents.unsqueeze(-1) * weights, leak_weights)
    gain = log1mexp(without + weights) - log1mexp(without)
    return prior.logit() - zeros @ weights.mT + (gain * ones.unsqueeze(1)).sum(-1)
