r"""Negative binomial sizes that maximise the expected log-density given the predictors.

With expected rows :math:`n_c` and sums :math:`S_c` of the counts in configuration c, means
:math:`\mu_c` and the counts x themselves,

.. math::

    Q(s) = \sum_i \{\log\Gamma(x_i + s) - \log\Gamma(s)\} + \sum_c \{ n_c\, s \log s - (S_c + s\,
    n_c) \log(s + \mu_c) \} + \log p(s),

which Newton steps in :math:`t = \log s` climb,

.. math::

    \frac{dQ}{dt} = s \Big[ \sum_i \{\psi(x_i + s) - \psi(s)\} + \sum_c \Big\{ n_c \Big(1 +
    \log\frac{s}{s + \mu_c}\Big) - \frac{S_c + s\, n_c}{s + \mu_c} \Big\} \Big]
    - \frac{t}{9},

each halved until Q does not fall. The first sum knows nothing of the latents: it is over the
distinct counts of an item. Where draws are averaged the slope of a draw, and the sum of its squared
terms, are averaged in the place of Q.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ppl_models.parts.ascent import MAX_LOG_STEP, climb_logarithms
from ppl_models.parts.distributions import LOG_SIZE_SCALE, log_size_density

LIMITS = (1e-4, 1e5)  # of an estimated size, inside the interval of its prior
NUM_STEPS = 8
MISSING = -1.0  # stands for a count that is not there


def maximise_sizes(
    x: Tensor, weight: Tensor, sums: Tensor, counts: Tensor, eta: Tensor, size: Tensor
) -> Tensor:
    """Maximise sizes (R, J); Q does not fall.

    Args:
        x: values that the counts take; weight: expected rows with each; both (J, V) or (R, J, V).
        sums: S, (R, J, C); counts: n, (R, J or 1, C).
        eta: log of the means, (R, J, C).
        size: start, (R, J).

    In double precision, for differences of functions of large sizes are small.
    """
    like = size
    x, weight, sums, counts, eta, size = (v.double() for v in (x, weight, sums, counts, eta, size))

    def objective(t: Tensor) -> Tensor:
        s = t.exp().unsqueeze(-1)
        rows = (weight * (torch.lgamma(x + s) - torch.lgamma(s))).sum(-1)
        log_both = torch.logaddexp(t.unsqueeze(-1), eta)
        return (
            rows
            + (counts * s * t.unsqueeze(-1) - (sums + s * counts) * log_both).sum(-1)
            + log_size_density(t)
        )

    def derivatives(t: Tensor) -> tuple[Tensor, Tensor]:
        s = t.exp().unsqueeze(-1)
        both = s + eta.exp()
        slope = (weight * (torch.digamma(x + s) - torch.digamma(s))).sum(-1)
        slope = slope + (counts * (1 + (s / both).log()) - (sums + s * counts) / both).sum(-1)
        bend = (weight * (torch.polygamma(1, x + s) - torch.polygamma(1, s))).sum(-1)
        bend = bend + (counts * (1 / s - 2 / both) + (sums + s * counts) / both.square()).sum(-1)
        s = s.squeeze(-1)
        return (
            s * slope - t / LOG_SIZE_SCALE**2,
            s * slope + s.square() * bend - 1 / LOG_SIZE_SCALE**2,
        )

    return climb_logarithms(size, objective, derivatives, LIMITS, NUM_STEPS).to(like)


def tally(values: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct values and counts, ([R], J, V), of items ([R], J, N), -1 where missing."""
    flat = values.reshape(-1, values.shape[-1])
    tables = [row[row != MISSING].unique(return_counts=True) for row in flat]
    width = max(len(own) for own, _ in tables)
    pad = [torch.nn.functional.pad(own, (0, width - len(own))) for own, _ in tables]
    often = [
        torch.nn.functional.pad(number.to(values), (0, width - len(number))) for _, number in tables
    ]
    shape = (*values.shape[:-1], width)
    return torch.stack(pad).reshape(shape), torch.stack(often).reshape(shape)


def weighted_tally(values: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct values (V,) of an item (N,), -1 missing, and shares of each, (R, K, V)."""
    seen = values != MISSING
    found, place = values[seen].unique(return_inverse=True)
    return found, shares.new_zeros(*shares.shape[:-1], len(found)).index_add_(
        -1, place, shares[..., seen]
    )


def size_slopes(x: Tensor, mask: Tensor | None, eta: Tensor, size: Tensor) -> Tensor:
    """Slope of the log-density by log s, and the rows' sum of squared slopes, (2, R, J).

    Args:
        x: (J, n), 0 where missing; mask: (J, n) 0/1 or None; eta: (R, J, n); size: (R, J).
    """
    s = size.double().unsqueeze(-1)
    both = s + eta.exp()
    each = s * (torch.digamma(x + s) - torch.digamma(s) + 1 + (s / both).log() - (x + s) / both)
    each = each if mask is None else each * mask
    return torch.stack([each.sum(-1), each.square().sum(-1)]).to(size)


def averaged_sizes(linear: Tensor, squares: Tensor, size: Tensor) -> Tensor:
    """Sizes (R, J) with zero slope, from averaged linear and squared slopes.

    The averages are of ``slope + squares * log s`` and of ``squares``.
    """
    t = size.log()
    target = linear / (squares + 1 / LOG_SIZE_SCALE**2)
    return (t + (target - t).clamp(-MAX_LOG_STEP, MAX_LOG_STEP)).exp().clamp(*LIMITS)
