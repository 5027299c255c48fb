r"""Monotone items: coefficients that no attribute lowers, and a prior confined to them.

An item's predictor rises along every edge of the lattice of its own attributes' profiles,

.. math::

    \eta_j(\alpha + e_k) \ge \eta_j(\alpha) \quad \text{for all } \alpha_k = 0, \qquad \text{that
    is, } A_j W_j \ge 0 .

Where each coefficient belongs to a feature of its own (additive, conjunctive and disjunctive items)
that is :math:`W_j \ge 0`. A saturated item has :math:`\eta_S = \sum_{T \subseteq S} W_T` for the
profile of exactly the attributes S; its unconstrained coordinates are u with

.. math:: \eta_\emptyset = 0, \qquad \eta_S = \max_{k \in S} \eta_{S \setminus k} + e^{u_S},

a map of all of :math:`\mathbb{R}^{2^q - 1}` onto the inside of the cone, triangular in the order of
the sizes of S, so its log-determinant is :math:`\sum_S u_S`. The same holds where a hierarchy
leaves some of the subsets only, those that hold what their members need: S then rises above the
largest of them inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, biject_to, constraints, transform_to, transforms

from ppl_models.parts.distributions import binary_configurations

SLACK = 1e-8  # of a step that falls by rounding alone
LEAST = 1e-12  # of a step, where its logarithm is taken
MAX_DRAWS = 2000  # before a draw is given up for a flat item


def rises(values: Tensor) -> Tensor:
    """Constraint matrix A, (E, P): changes of the design as one attribute comes in.

    design (2^q, P), over all profiles in lexicographic order; only the distinct changes.
    """
    size = values.shape[0].bit_length() - 1
    table = values.reshape(*(2,) * size, -1)
    steps = torch.cat(
        [
            (table.select(k, 1) - table.select(k, 0)).reshape(-1, values.shape[-1])
            for k in range(size)
        ]
    )
    return torch.unique(steps[(steps != 0).any(-1)], dim=0)


@dataclass(frozen=True, eq=False)
class MonotoneItems:
    """Group of monotone items with the same features of the same attributes.

    Args:
        items: their numbers, long (n,).
        columns: those of the loadings that they use, long (m,), by size.
        steps: A, (E, m).
        below: for each column of a saturated item, the columns (by place among these) of the
            largest subsets inside its own, () where there are none; None
            where every coefficient is nonnegative by itself.
        design: the predictors of the subsets above that of none, of the coefficients, (m, m).
    """

    items: Tensor
    columns: Tensor
    steps: Tensor
    below: tuple[tuple[int, ...], ...] | None
    design: Tensor

    def free(self, loadings: Tensor) -> Tensor:
        """Free coordinates (..., n, m) of coefficients of the same shape."""
        if self.below is None:
            return loadings.clamp(min=LEAST).log()
        levels = (loadings @ self.design.mT.to(loadings)).unbind(-1)
        gaps = [
            level - self._floor(levels, lower)
            for level, lower in zip(levels, self.below, strict=True)
        ]
        return torch.stack(gaps, -1).clamp(min=LEAST).log()

    def loadings(self, free: Tensor) -> Tensor:
        """Coefficients (..., n, m) of unconstrained coordinates."""
        gaps = free.exp()
        if self.below is None:
            return gaps
        levels: list[Tensor] = []
        for gap, lower in zip(gaps.unbind(-1), self.below, strict=True):
            levels.append(gap + self._floor(levels, lower))
        return torch.stack(levels, -1) @ torch.linalg.inv(self.design).mT.to(free)

    @staticmethod
    def _floor(levels: Sequence[Tensor], lower: tuple[int, ...]) -> Tensor:
        """Highest predictor of the largest subsets inside."""
        return torch.stack([levels[t] for t in lower]).amax(0) if lower else torch.zeros(())


def monotone_items(
    terms: Tensor, uses: Tensor, disjunctive: Tensor | None, left_out: Tensor, owner: str
) -> tuple[MonotoneItems, ...]:
    """Groups of monotone items of a layer, but for those that are ``left_out``.

    Args:
        terms: bool (T, K); uses: bool (J, T); disjunctive: bool (T,) or None; left_out: bool (J,).
        owner: the beginning of the message.
    """
    groups: dict[tuple[bool, ...], list[int]] = {}
    for j, row in enumerate(uses.tolist()):
        if not left_out[j]:
            groups.setdefault(tuple(row), []).append(j)
    out = []
    for row, items in groups.items():
        columns = torch.tensor(row).nonzero().ravel()
        own = terms[columns]
        asked = own.any(0)
        if disjunctive is None:
            either = torch.zeros(len(columns), dtype=torch.bool)
        else:
            either = disjunctive[columns]
        members = own[:, asked].double()
        profiles = binary_configurations(int(asked.sum()))
        needed = torch.where(either, 1.0, members.sum(-1))
        values = (profiles @ members.mT > needed - 0.5).double()
        steps = rises(values)
        below, design = None, torch.eye(len(columns), dtype=torch.float64)
        if bool(((steps != 0).sum(-1) > 1).any()):
            codes = {tuple(row) for row in own.tolist()}
            unions = own.unsqueeze(1) | own
            is_whole = len(columns) == len(profiles) - 1 or codes >= set(
                map(tuple, unions.flatten(0, 1).tolist())
            )
            if bool(either.any()) or not is_whole:
                raise ValueError(
                    f"{owner}item {items[0]} has some interactions of its attributes and not all; "
                    "'additive', 'dina', 'dino' or 'gdm' was expected"
                )
            # of each subset the subsets inside it
            design = (members @ members.mT == members.sum(-1)).double()
            less = design - torch.eye(len(design), dtype=torch.float64)
            below = tuple(
                tuple(row.nonzero().ravel().tolist()) for row in (less > 0) & (less @ less == 0)
            )
        out.append(MonotoneItems(torch.tensor(items), columns, steps, below, design))
    return tuple(out)


class Rising(constraints.Constraint):
    """Constraint of matrices: zero off the graph, and no attribute lowers an item."""

    event_dim = 2
    is_discrete = False

    def __init__(self, graph: Tensor, groups: tuple[MonotoneItems, ...]) -> None:
        self.base, self.graph, self.groups = constraints.real, graph, groups
        super().__init__()

    def __repr__(self) -> str:
        return "matrices by which no attribute lowers an item, with 0 where the graph has no edge"

    def check(self, value: Tensor) -> Tensor:
        fine = (value[..., ~self.graph] == 0).all(-1)
        for group in self.groups:
            steps = value[..., group.items.unsqueeze(-1), group.columns] @ group.steps.mT.to(value)
            fine = fine & (steps >= -SLACK).flatten(-2).all(-1)
        return fine


class _Rise(transforms.Transform):
    """Transform of free entries as a vector to a monotone matrix."""

    bijective = True
    domain = constraints.real_vector
    codomain = constraints.independent(constraints.real, 2)

    def __init__(self, constraint: Rising) -> None:
        super().__init__()
        self.graph, self.groups = constraint.graph, constraint.groups

    def _call(self, x: Tensor) -> Tensor:
        free = x.new_zeros(x.shape[:-1] + self.graph.shape)
        free[..., self.graph] = x
        out = free.clone()
        for group in self.groups:
            out[..., group.items.unsqueeze(-1), group.columns] = group.loadings(
                free[..., group.items.unsqueeze(-1), group.columns]
            )
        return out

    def _inverse(self, y: Tensor) -> Tensor:
        free = y.clone()
        for group in self.groups:
            free[..., group.items.unsqueeze(-1), group.columns] = group.free(
                y[..., group.items.unsqueeze(-1), group.columns]
            )
        return free[..., self.graph]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        free = x.new_zeros(x.shape[:-1] + self.graph.shape)
        free[..., self.graph] = x
        own = [
            free[..., group.items.unsqueeze(-1), group.columns].sum((-2, -1))
            for group in self.groups
        ]
        return torch.stack(own).sum(0) if own else x.new_zeros(x.shape[:-1])

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-1] + self.graph.shape

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-2] + torch.Size([int(self.graph.sum())])


@biject_to.register(Rising)
@transform_to.register(Rising)
def _rise(constraint: Rising) -> transforms.Transform:
    return _Rise(constraint)


class MonotoneLoadings(TorchDistribution):
    """Prior of loadings (J, T) confined to monotone items.

    The density is that of ``base``, up to a constant.

    Args:
        base: the prior without the constraint.
        graph: bool (J, T), True where an entry is free.
        groups: the items that are confined.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self, base: TorchDistribution, graph: Tensor, groups: tuple[MonotoneItems, ...]
    ) -> None:
        self.base, self.graph, self.groups = base, graph, groups
        super().__init__(base.batch_shape, graph.shape, validate_args=False)

    def expand(
        self, batch_shape: torch.Size, _instance: Distribution | None = None
    ) -> MonotoneLoadings:
        return MonotoneLoadings(self.base.expand(batch_shape), self.graph, self.groups)

    @property
    def support(self) -> constraints.Constraint:
        return Rising(self.graph, self.groups)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Draw by rejection, item by item."""
        out = self.base.sample(torch.Size(sample_shape))
        for group in self.groups:
            place = (..., group.items.unsqueeze(-1), group.columns)
            own = out[place]
            for _ in range(MAX_DRAWS):
                falls = (own @ group.steps.mT.to(own) < 0).any(-1, keepdim=True)
                if not falls.any():
                    break
                own = torch.where(falls, self.base.sample(torch.Size(sample_shape))[place], own)
            falls = (own @ group.steps.mT.to(own) < 0).any(-1, keepdim=True)
            out[place] = own.masked_fill(falls, 0.0)
        return out

    def log_prob(self, value: Tensor) -> Tensor:
        inside: Tensor = self.support.check(value)
        return torch.where(inside, self.base.log_prob(value), -torch.inf)
