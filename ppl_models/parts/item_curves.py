r"""Items of right and wrong answers whose attributes add up, or multiply, on the scale of the chance itself.

With weights :math:`e^{b}, e^{W_1}, \dots, e^{W_q}, 1` that share out the whole chance, the additive model (ACDM) is

.. math:: P(x = 1 \mid a) = \frac{e^{b} + \sum_k a_k e^{W_k}}{e^{b} + \sum_k e^{W_k} + 1} = g + \sum_k \delta_k a_k,
    \qquad g, \delta_k \ge 0, \; g + \sum_k \delta_k \le 1,

and the reduced reparameterised unified model (R-RUM), with a factor :math:`r_k = \sigma(-W_k)` for each attribute that is lacking,

.. math:: P(x = 1 \mid a) = \sigma(b) \prod_k r_k^{1 - a_k}.

So every value of (b, W) is a proper item, and no attribute lowers a chance. Both are handed on as log-odds: with :math:`u = e^b + \sum a_k
e^{W_k}`, :math:`v = 1 + \sum (1 - a_k) e^{W_k}` and :math:`t = -\log P`,

.. math:: \eta = \log u - \log v, \qquad \eta = -\log(e^t - 1),

and as coefficients of all products of the item's attributes, in which any function of 0/1 attributes is linear.

Source: J. de la Torre (2011), doi:10.1007/s11336-011-9207-7 (ACDM); S. M. Hartz (2002), and L. V. DiBello, L. A. Roussos and W. Stout
(2007), doi:10.1016/S0169-7161(06)26031-0 (R-RUM). The parameterisation is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ppl_models.parts.distributions import binary_configurations, softplus
from ppl_models.parts.measurement import ExpGDM

__all__ = ["ACDM", "RRUM", "CurvedItems"]

Subset = tuple[int, ...]


@dataclass(frozen=True)
class ACDM:
    """Attributes add to the chance of a right answer, each by a share that is not negative (identity link); Bernoulli items only."""

    disjunctive = False
    curve = "acdm"

    def subsets(self, attributes: Subset) -> list[Subset] | None:
        return ExpGDM().subsets(attributes)


@dataclass(frozen=True)
class RRUM:
    """Each attribute that is lacking multiplies the chance of a right answer by a factor below 1 (log link); Bernoulli items only."""

    disjunctive = False
    curve = "rrum"

    def subsets(self, attributes: Subset) -> list[Subset] | None:
        return ExpGDM().subsets(attributes)


@dataclass(frozen=True, eq=False)
class CurvedItems:
    """Items with one curve and the same attributes.

    Args:
        curve: "acdm" or "rrum".
        items: their numbers, long (n,).
        singles: columns of the loadings that hold W, long (q,), in the order of the attributes.
        columns: columns of all products of the attributes, long (2^q - 1,).
        products: bool (2^q - 1, q), the attributes in each.
    """

    curve: str
    items: Tensor
    singles: Tensor
    columns: Tensor
    products: Tensor

    @property
    def profiles(self) -> Tensor:
        """Of the attributes, (2^q, q)."""
        return binary_configurations(len(self.singles))

    @property
    def design(self) -> Tensor:
        """One and the products at each profile, (2^q, 2^q)."""
        members = self.products.double()
        inside = (self.profiles @ members.mT > members.sum(-1) - 0.5).double()
        return torch.nn.functional.pad(inside, (1, 0), value=1.0)

    def own(self, intercepts: Tensor, loadings: Tensor) -> Tensor:
        """(b, W) of the items, (..., n, 1 + q), out of intercepts (..., J) and loadings (..., J, T)."""
        return torch.cat([intercepts[..., self.items, None], loadings[..., self.items.unsqueeze(-1), self.singles]], -1)

    def log_odds(self, x: Tensor) -> Tensor:
        """At each profile, (..., 2^q), of (b, W) (..., 1 + q)."""
        b, w, has = x[..., :1], x[..., 1:], self.profiles.to(x)
        if self.curve == "acdm":
            weights = w.exp()
            return (b.exp() + weights @ has.mT).log() - (1 + weights @ (1 - has).mT).log()
        t = softplus(-b) + softplus(w) @ (1 - has).mT
        return -(t + (-torch.expm1(-t)).log())

    def slopes(self, x: Tensor) -> Tensor:
        """Derivatives of the log-odds by (b, W), (..., 2^q, 1 + q)."""
        b, w, has = x[..., :1], x[..., 1:], self.profiles.to(x)
        if self.curve == "acdm":
            weights = w.exp()
            u, v = b.exp() + weights @ has.mT, 1 + weights @ (1 - has).mT
            by_w = weights.unsqueeze(-2) * (has / u.unsqueeze(-1) - (1 - has) / v.unsqueeze(-1))
            return torch.cat([(b.exp() / u).unsqueeze(-1), by_w], -1)
        t = softplus(-b) + softplus(w) @ (1 - has).mT
        by_t = torch.expm1(-t).reciprocal().unsqueeze(-1)
        by_b = -torch.sigmoid(-b).unsqueeze(-1).expand(*t.shape, 1)
        return by_t * torch.cat([by_b, (1 - has) * torch.sigmoid(w).unsqueeze(-2)], -1)

    def coefficients(self, x: Tensor) -> Tensor:
        """Of one and of the products, (..., 2^q), of (b, W) (..., 1 + q)."""
        return self.log_odds(x) @ torch.linalg.inv(self.design).mT.to(x)
