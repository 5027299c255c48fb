r"""Noisy-OR description: independent causes of binary items, and stable functions.

With weight :math:`\eta \ge 0`, an item is zero with probability :math:`e^{-\eta}`; its log-odds of
being one are :math:`\log(e^\eta - 1)`, so it is a Bernoulli item with that logit and log-partition
:math:`\eta`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

PROBABILITY_LIMIT = 1e-6  # estimates lie in [1e-6, 1 - 1e-6]
MAX_CAUSES = 16  # that are summed over: 65,536 configurations
FAR = 37.0  # e^-37 is lost beside 1 in double precision
# inside the program, so that a parameter on the edge of its support has a finite log-density
FLOOR = 1e-12


@dataclass(frozen=True)
class IndependentCauses:
    """One layer of binary causes above binary items, joined by noisy ORs.

    Args:
        prior: name of the site with P(cause = 1), shape (num_causes,).
        failure: name of the site with P(a cause that is on fails to switch an item on), shape
            (num_causes, num_items).
        leak: name of the site with P(item = 1 | all causes off), shape (num_items,).
        latent: name of the binary latent site; items: name of the observed site.
        num_causes, num_items: the two sizes.
        prior_concentration, failure_concentration, leak_concentration: Beta priors (a, b) of the
            three.
        spared: name of the site with P(a cause that is on lets an item that is switched on stay
            on), shape (num_causes, num_items), with the prior of failures; None where no cause
            inhibits.
    """

    prior: str
    failure: str
    leak: str
    latent: str
    items: str
    num_causes: int
    num_items: int
    prior_concentration: tuple[float, float]
    failure_concentration: tuple[float, float]
    leak_concentration: tuple[float, float]
    spared: str | None = None


def log1mexp(x: Tensor) -> Tensor:
    """Stable log(1 - e^-x) for x > 0, with finite gradients in both branches."""
    small = x < math.log(2)
    near = torch.where(small, x, 1.0)
    far = torch.where(small, 1.0, x)
    return torch.where(small, (-torch.expm1(-near)).log(), torch.log1p(-(-far).exp()))


def log_expm1(x: Tensor) -> Tensor:
    """Stable log(e^x - 1) for x > 0, with finite gradients."""
    return torch.expm1(x.clamp(max=FAR)).log() + (x - FAR).clamp(min=0.0)


def inhibited(eta: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
    r"""Weight and logit of items that stay on with probability e^-zeta once they are on.

    With :math:`P(x = 1) = (1 - e^{-\eta}) e^{-\zeta}` these are :math:`-\log P(x = 0)` and the
    log-odds; without inhibition :math:`\eta` and :math:`\log(e^\eta - 1)`.
    """
    fires = log1mexp(eta)
    blocks = log1mexp(zeta.clamp(min=torch.finfo(zeta.dtype).tiny))
    weight = -torch.logaddexp(-eta, fires + blocks)
    return weight, fires - zeta + weight


def weight_of_failure(failure: Tensor) -> Tensor:
    """Weight -log f of a failure, at least zero."""
    return -failure.clamp(FLOOR, 1.0).log()


def weight_of_leak(leak: Tensor) -> Tensor:
    """Weight -log(1 - l) of a leak, above zero."""
    return -torch.log1p(-leak.clamp(FLOOR, 1 - FLOOR))
