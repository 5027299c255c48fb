r"""Binary items with attributes additive or multiplicative on the probability scale.

With weights :math:`e^{b}, e^{W_1}, \dots, e^{W_q}, 1` that share out the whole chance, the additive
model (ACDM) is

.. math::

    P(x = 1 \mid a) = \frac{e^{b} + \sum_k a_k e^{W_k}}{e^{b} + \sum_k e^{W_k} + 1} = g + \sum_k
    \delta_k a_k,
    \qquad g, \delta_k \ge 0, \; g + \sum_k \delta_k \le 1,

and the reduced reparameterised unified model (R-RUM), with a factor :math:`r_k = \sigma(-W_k)` for
each attribute that is lacking,

.. math:: P(x = 1 \mid a) = \sigma(b) \prod_k r_k^{1 - a_k}.

So every value of (b, W) is a proper item, and no attribute lowers a chance. Both are handed on as
log-odds: with :math:`u = e^b + \sum a_k e^{W_k}`, :math:`v = 1 + \sum (1 - a_k) e^{W_k}` and
:math:`t = -\log P`,

.. math:: \eta = \log u - \log v, \qquad \eta = -\log(e^t - 1),

and as coefficients of all products of the item's attributes, in which any function of 0/1
attributes is linear.

Their weak prior is the one of Jeffreys for a table of counts, on what the chance is made of: the
shares :math:`(g, \delta_1, \dots, \delta_q, 1 - g - \sum_k \delta_k) \sim \mathrm{Dirichlet}(c,
\dots, c)`, and :math:`\pi, r_k \sim \mathrm{Beta}(c, c)`, all with c = 1/2. On the scale of (b, W),
where the estimate is the mode,

.. math:: \log p = c \sum_m \log s_m(b, W) + \text{const} \quad \text{(ACDM, s the shares)}, \qquad
    \log p = c \{ \log \sigma(b) \sigma(-b) + \sum_k \log \sigma(W_k) \sigma(-W_k) \} + \text{const}
    \quad \text{(R-RUM)},

half a row in each cell: shares and factors stay away from 0 and 1, where data would let them run to
infinity. The log-odds of a Beta(1/2, 1/2) chance have a standard deviation of :math:`\pi`, about
that of the normal prior of other items.

Source: J. de la Torre (2011), doi:10.1007/s11336-011-9207-7 (ACDM); S. M. Hartz (2002), and L. V.
DiBello, L. A. Roussos and W. Stout (2007), doi:10.1016/S0169-7161(06)26031-0 (R-RUM); D. Firth
(1993), doi:10.1093/biomet/80.1.27 (what such a prior does to an estimate). The parameterisation is
ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pyro.distributions import Normal, TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from ppl_models.parts.distributions import (
    OnGraph,
    ProductEffects,
    binary_configurations,
    broadcast_shapes,
    softplus,
)
from ppl_models.parts.measurement import ExpGDM

CONCENTRATION = 0.5  # of the weak prior of shares and factors
Subset = tuple[int, ...]


@dataclass(frozen=True)
class ACDM:
    """Additive cognitive diagnosis model (identity link), for Bernoulli items.

    Each attribute adds a share that is not negative to the chance of a right answer.
    """

    disjunctive = False
    curve = "acdm"

    def subsets(self, attributes: Subset) -> list[Subset] | None:
        return ExpGDM().subsets(attributes)


@dataclass(frozen=True)
class RRUM:
    """Reduced reparametrised unified model (log link), for Bernoulli items.

    Each attribute that is lacking multiplies the chance of a right answer by a factor below 1.
    """

    disjunctive = False
    curve = "rrum"

    def subsets(self, attributes: Subset) -> list[Subset] | None:
        return ExpGDM().subsets(attributes)


@dataclass(frozen=True, eq=False)
class CurvedItems:
    """Group of items with one curve and the same attributes.

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
        """Profiles of the attributes, (2^q, q)."""
        return binary_configurations(len(self.singles))

    @property
    def design(self) -> Tensor:
        """Design matrix: one and the products at each profile, (2^q, 2^q)."""
        members = self.products.double()
        inside = (self.profiles @ members.mT > members.sum(-1) - 0.5).double()
        return torch.nn.functional.pad(inside, (1, 0), value=1.0)

    def own(self, intercepts: Tensor, loadings: Tensor) -> Tensor:
        """Parameters (b, W) of the items, (..., n, 1 + q), of (..., J) and (..., J, T)."""
        return torch.cat(
            [
                intercepts[..., self.items, None],
                loadings[..., self.items.unsqueeze(-1), self.singles],
            ],
            -1,
        )

    def log_odds(self, x: Tensor) -> Tensor:
        """Log-odds at each profile, (..., 2^q), from (b, W) (..., 1 + q)."""
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
        """Coefficients of one and of the products, (..., 2^q), of (b, W) (..., 1 + q)."""
        return self.log_odds(x) @ torch.linalg.inv(self.design).mT.to(x)

    def log_prior_of_loadings(self, w: Tensor) -> Tensor:
        """Log-density of W (..., q), by its shares or its factors."""
        c, size = w.new_tensor(CONCENTRATION), w.shape[-1]
        if self.curve == "rrum":
            return (-c * (softplus(w) + softplus(-w))).sum(-1) - size * (
                2 * torch.lgamma(c) - torch.lgamma(2 * c)
            )
        cells = size + 1
        return (
            c * w.sum(-1)
            - c * cells * _log_whole(w)
            - cells * torch.lgamma(c)
            + torch.lgamma(cells * c)
        )

    def log_prior_of_intercepts(self, b: Tensor, w: Tensor) -> Tensor:
        """Log-density of b (...,) given W (..., q)."""
        first, second, level = self._intercept(w)
        constant = torch.lgamma(first) + torch.lgamma(second) - torch.lgamma(first + second)
        return -first * softplus(level - b) - second * softplus(b - level) - constant

    def log_prior(self, x: Tensor) -> Tensor:
        """Log-density of (b, W), (...,) of (..., 1 + q)."""
        return self.log_prior_of_loadings(x[..., 1:]) + self.log_prior_of_intercepts(
            x[..., 0], x[..., 1:]
        )

    def prior_step(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient of the prior (..., 1 + q), and minus its Hessian, positive definite."""
        if self.curve == "rrum":
            chance = torch.sigmoid(x)
            return CONCENTRATION * (1 - 2 * chance), torch.diag_embed(
                2 * CONCENTRATION * chance * (1 - chance)
            )
        cells = x.shape[-1] + 1
        shares = torch.nn.functional.pad(x, (0, 1)).softmax(-1)[..., :-1]
        information = torch.diag_embed(shares) - shares.unsqueeze(-1) * shares.unsqueeze(-2)
        return CONCENTRATION * (1 - cells * shares), CONCENTRATION * cells * information

    def draw_loadings(self, shape: torch.Size, like: Tensor) -> Tensor:
        """Draw W of all items from their prior, (*shape, n, q)."""
        shape = torch.Size([*shape, len(self.items), len(self.singles)])
        c = like.new_tensor(CONCENTRATION)
        if self.curve == "rrum":
            return _log_ratio(c, c, shape)
        logs = (
            torch._standard_gamma(c.expand([*shape[:-1], shape[-1] + 1]))
            .clamp(min=torch.finfo(c.dtype).tiny)
            .log()
        )
        return logs[..., :-1] - logs[..., -1:]

    def draw_intercepts(self, w: Tensor) -> Tensor:
        """Draw b from its prior given W (..., q), (...,)."""
        first, second, level = self._intercept(w)
        return level + _log_ratio(first, second, w.shape[:-1])

    def _intercept(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Beta parameters of the chance with log-odds b less a level, and the level (...,)."""
        c = w.new_tensor(CONCENTRATION)
        if self.curve == "rrum":
            return c, c, torch.zeros_like(w[..., 0])
        return c, c * (w.shape[-1] + 1), _log_whole(w)


def _log_whole(w: Tensor) -> Tensor:
    """log(1 + sum_k e^W_k), (...,)."""
    return torch.nn.functional.pad(w, (0, 1)).logsumexp(-1)


def _log_ratio(first: Tensor, second: Tensor, shape: torch.Size) -> Tensor:
    """Log-odds of Beta chances."""
    tiny = torch.finfo(first.dtype).tiny
    return (
        torch._standard_gamma(first.expand(shape)).clamp(min=tiny).log()
        - torch._standard_gamma(second.expand(shape)).clamp(min=tiny).log()
    )


class CurvedLoadings(TorchDistribution):
    """Weak prior of the loadings (J, T): of products, and of items with curves.

    Args:
        graph: bool (J, T), True where an entry is free.
        spread, scales, constant: of :class:`~ppl_models.parts.distributions.ProductEffects`.
        curved: groups of items with a curve.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        graph: Tensor,
        spread: Tensor,
        scales: Tensor,
        curved: tuple[CurvedItems, ...],
        batch_shape: torch.Size = torch.Size(),
        constant: Tensor | None = None,
    ) -> None:
        self.graph, self.curved = graph, curved
        plain = graph.clone()
        for group in curved:
            plain[group.items] = False
        self.products = ProductEffects(plain, spread, scales, batch_shape, constant)
        super().__init__(batch_shape, graph.shape, validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: object = None) -> CurvedLoadings:
        return CurvedLoadings(
            self.graph,
            self.products.spread,
            self.products.scales,
            self.curved,
            torch.Size(batch_shape),
            self.products.constant,
        )

    @property
    def support(self) -> constraints.Constraint:
        return OnGraph(constraints.real, self.graph)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        out = self.products.rsample(sample_shape)
        for group in self.curved:
            out[..., group.items.unsqueeze(-1), group.singles] = group.draw_loadings(
                out.shape[:-2], out
            )
        return out

    def log_prob(self, value: Tensor) -> Tensor:
        total = self.products.log_prob(value * self.products.graph)
        for group in self.curved:
            total = total + group.log_prior_of_loadings(
                value[..., group.items.unsqueeze(-1), group.singles]
            ).sum(-1)
        return total.expand(broadcast_shapes(total.shape, self.batch_shape))


class CurvedIntercepts(TorchDistribution):
    """Weak prior of the intercepts (J,) of a layer given its loadings.

    Args:
        normal: that of items without a curve, batch shape (..., J).
        loadings: (..., J, T).
        curved: groups of items with a curve.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.real_vector

    def __init__(
        self,
        normal: Normal,
        loadings: Tensor,
        curved: tuple[CurvedItems, ...],
        batch_shape: torch.Size | None = None,
    ) -> None:
        self.normal, self.loadings, self.curved = normal, loadings, curved
        super().__init__(
            normal.batch_shape[:-1] if batch_shape is None else batch_shape,
            normal.batch_shape[-1:],
            validate_args=False,
        )

    def expand(self, batch_shape: torch.Size, _instance: object = None) -> CurvedIntercepts:
        return CurvedIntercepts(self.normal, self.loadings, self.curved, torch.Size(batch_shape))

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape
        out = self.normal.expand([*self.batch_shape, *self.event_shape]).sample(
            torch.Size(sample_shape)
        )
        for group in self.curved:
            own = self._of(group)
            out[..., group.items] = group.draw_intercepts(own.expand([*shape, *own.shape[-2:]]))
        return out

    def log_prob(self, value: Tensor) -> Tensor:
        each = self.normal.log_prob(value)
        for group in self.curved:
            own = group.log_prior_of_intercepts(value[..., group.items], self._of(group))
            each = each.index_copy(
                -1, group.items.to(each.device), own.expand([*each.shape[:-1], len(group.items)])
            )
        total = each.sum(-1)
        return total.expand(broadcast_shapes(total.shape, self.batch_shape))

    def _of(self, group: CurvedItems) -> Tensor:
        return self.loadings[..., group.items.unsqueeze(-1), group.singles]
