r"""Poisson factorization by the non-zero cells of a table.

Of an empty cell the likelihood knows the mean alone, and :math:`\sum_j \mu_{nj} = \sum_k z_{nk}
\sum_j \phi_{kj}`, so that

.. math::

    \log p(x \mid z, \phi) = \sum_{x_{nj} > 0} x_{nj} \log \mu_{nj} - \sum_n \sum_k z_{nk} \sum_j
    \phi_{kj} + \text{const.}

and no table (N, J) is ever made. Given the signatures the rows are K-dimensional concave problems
with z >= 0, and given the activities the columns are: :func:`climbed` moves either half by a Newton
step, whose Hessian :math:`\sum_j x_{nj} \phi_{kj} \phi_{lj} / \mu_{nj}^2` costs one sparse product,
and falls back to the EM update in rows (columns) that it does not better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from inference.structures.factorization.newton import ROUNDING, SHARES, Corner, newton
from inference.structures.factorization.updates import FLOOR, Counts
from ppl_models.data.sparse import SparseTable
from ppl_models.descriptions.components import FactorizationDescription

CELLS_AT_ONCE = 2**16  # of a block of rows: beyond, they leave the processor's cache
NUMBERS_AT_ONCE = 2**19  # of the Hessians of its rows


@dataclass(frozen=True, eq=False)
class SparseCounts(Counts):
    """EM updates of a Poisson factorization from non-zero cells; see :class:`Counts`.

    Args:
        x: (N, J) by its non-zero cells; mask: None, for nothing is missing.
    """

    x: Any  # a SparseTable

    @classmethod
    def of(cls, data: Any, about: FactorizationDescription) -> Self:
        """For a sparse table."""
        shape, rate = about.activity_prior or (1.0, 0.0)
        return cls(data, None, about.concentration, shape, rate)

    def at(self, index: Tensor) -> Self:
        return type(self)(self.x[index], None, self.concentration, self.shape, self.rate)

    @cached_property
    def parts(self) -> list[tuple[slice, Self]]:
        """The table by blocks of rows, whose cells share its memory."""
        return [
            (place, type(self)(x, *self._rest)) for place, x in blocks_of(self.x, CELLS_AT_ONCE)
        ]

    @property
    def _rest(self) -> tuple[None, float, float, float]:
        return None, self.concentration, self.shape, self.rate

    def row_means(self) -> Tensor:
        return (self.x.row_sums(self.x.values) / self.x.num_columns).unsqueeze(-1)

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        pulls = [_by_rows(self.x, self._ratio(*pair), pair[1].mT) for pair in _pairs(z, phi)]
        return (z * torch.stack(pulls) + (self.shape - 1)) / (1 + self.rate)

    def pulls(self, z: Tensor, phi: Tensor) -> dict[str, Tensor]:
        found = [_by_columns(self.x, self._ratio(*pair), pair[0]).mT for pair in _pairs(z, phi)]
        return {"pulls": torch.stack(found)}

    def values(self, z: Tensor, phi: Tensor) -> Tensor:
        logs = [
            self.x.row_sums(means(self.x, *p).log_().mul_(self.x.values)) for p in _pairs(z, phi)
        ]
        total = torch.stack(logs) - (z @ phi.sum(-1, keepdim=True)).squeeze(-1)
        if self.shape > 1 or self.rate > 0:
            total = total + ((self.shape - 1) * z.clamp(min=1e-300).log() - self.rate * z).sum(-1)
        return total

    def log_likelihood_rows(self, z: Tensor, phi: Tensor) -> Tensor:
        if z.dim() == 2:
            return self.log_likelihood_rows(z.unsqueeze(0), phi.unsqueeze(0))[0]
        return super().log_likelihood_rows(z, phi)

    def log_factorials(self) -> Tensor:
        found: Tensor = self.x.row_sums(torch.lgamma(self.x.values + 1))
        return found

    def _ratio(self, z: Tensor, phi: Tensor) -> Tensor:
        """Ratio x / mu of the cells, (C,)."""
        return self.x.values / means(self.x, z, phi)


def blocks_of(x: SparseTable, num_cells: int) -> list[tuple[slice, SparseTable]]:
    """Places and blocks of consecutive rows of about so many cells."""
    ends = torch.searchsorted(x.offsets, torch.arange(0, int(x.offsets[-1]), num_cells))
    marks = sorted({0, *ends.clamp(max=len(x)).tolist(), len(x)})
    places = [slice(a, b) for a, b in zip(marks, marks[1:], strict=False)]
    return [(place, x[place]) for place in places]


def means(x: SparseTable, z: Tensor, phi: Tensor) -> Tensor:
    """Means of the non-zero cells, (C,), of z (N, K) and phi (K, J)."""
    weight = phi.mT.contiguous()
    # the derivative of an embedding's sums by the weights of their terms: torch's fastest product
    # of rows of two matrices, cell by cell
    dots: Tensor = torch.ops.aten._embedding_bag_per_sample_weights_backward(
        z.contiguous(), weight, x.columns, x.offsets[:-1].to(torch.int32), x.rows, 0
    )
    return dots.clamp_(min=FLOOR)


def _pairs(z: Tensor, phi: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return iter(zip(z, phi, strict=True))


def _by_rows(x: SparseTable, values: Tensor, factor: Tensor) -> Tensor:
    """Product of the table with these cells and ``factor`` (J, P), (N, P)."""
    found: Any = x.with_values(values) @ factor.contiguous().numpy()
    return torch.from_numpy(found)


def _by_columns(x: SparseTable, values: Tensor, factor: Tensor) -> Tensor:
    """Product of the transposed table with these cells and ``factor`` (N, P), (J, P)."""
    found: Any = x.with_values(values).T @ factor.contiguous().numpy()
    return torch.from_numpy(found)


def climbed(
    counts: SparseCounts, z: Tensor, phi: Tensor, num_rounds: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Rounds of Newton steps of the activities (N, K), then of the signatures (K, J).

    No round lowers the log-likelihood; signatures end on the simplex.

    Returns:
        z, phi, and the log-likelihood up to a constant, ().
    """
    corner, x = Corner(phi.shape[0]), counts.x
    size = max(
        1, min(CELLS_AT_ONCE, NUMBERS_AT_ONCE // phi.shape[0] ** 2 * len(x.values) // len(x))
    )
    blocks = blocks_of(x, size)
    places = [slice(int(x.offsets[p.start]), int(x.offsets[p.stop])) for p, _ in blocks]
    mu, z = means(x, z, phi), z.clone()
    value = z.new_zeros(())
    for _ in range(num_rounds):
        sums, weight = _ColumnSums(x.num_columns, corner, z), phi.mT.contiguous()
        squares = corner.of(weight.mT).mT
        for (rows, part), cells in zip(blocks, places, strict=True):
            z[rows], mu[cells] = _better_rows(part, z[rows], weight, squares, mu[cells], corner)
            sums.add(part, z[rows], mu[cells])
        phi, value = _better_columns(counts, z, phi, mu, sums, blocks, places)
        total = phi.sum(-1, keepdim=True)
        alive = total > 0  # a component that no row uses stays as it is
        phi = torch.where(alive, phi / total.clamp(min=1e-300), phi)
        z *= torch.where(alive, total, 1.0).mT
    return z, phi, value


def _better_rows(
    x: SparseTable, z: Tensor, weight: Tensor, squares: Tensor, mu: Tensor, corner: Corner
) -> tuple[Tensor, Tensor]:
    """Activities (n, K) of some rows after a Newton step, and the means of their cells.

    Args:
        x: the rows; z: their activities, (n, K); mu: the means of their cells.
        weight: signatures by columns, (J, K); squares: their products by twos.
    """
    phi, total = weight.mT, weight.sum(0)
    ratio = x.values / mu
    pull = _by_rows(x, ratio, weight)
    bend = _by_rows(x, ratio.div_(mu), squares).mT.contiguous()
    slope = (pull - total).mT.contiguous()
    new = newton(z.mT.contiguous(), slope, corner.whole(bend)).mT.contiguous()
    mean = means(x, new, phi)
    before, after = (
        x.row_sums(m.log().mul_(x.values)) - a @ total for m, a in ((mu, z), (mean, new))
    )
    worse = ~(after >= before - ROUNDING * before.abs())  # True of NaN
    if bool(worse.any()):
        cells, some = torch.repeat_interleave(worse, x.sizes), x[worse]
        new[worse], mean[cells] = _shortened(some, z[worse], new[worse], pull[worse], phi)
    return new, mean


def _shortened(
    x: SparseTable, z: Tensor, far: Tensor, pull: Tensor, phi: Tensor
) -> tuple[Tensor, Tensor]:
    """Shorter steps towards ``far`` (n, K), the EM update where none gains, and the means."""
    total = phi.sum(-1)
    new = z * pull / total.clamp(min=1e-300)
    mean = means(x, new, phi)
    value = x.row_sums(mean.log().mul_(x.values)) - new @ total
    for share in SHARES:
        trial = torch.lerp(z, far, share)
        near = means(x, trial, phi)
        reached = x.row_sums(near.log().mul_(x.values)) - trial @ total
        better = reached > value
        new = torch.where(better.unsqueeze(-1), trial, new)
        mean = torch.where(torch.repeat_interleave(better, x.sizes), near, mean)
        value = torch.where(better, reached, value)
    return new, mean


class _ColumnSums:
    """Sums over rows from which the signatures move: pulls, Hessians and values of the columns."""

    def __init__(self, num_columns: int, corner: Corner, like: Tensor) -> None:
        self.corner = corner
        self.pull = like.new_zeros(num_columns, corner.size)
        self.bend = like.new_zeros(num_columns, corner.num)
        self.logs = like.new_zeros(num_columns)

    def add(self, x: SparseTable, z: Tensor, mu: Tensor) -> None:
        """Take in some rows with the means of their cells."""
        ratio = x.values / mu
        self.pull += _by_columns(x, ratio, z)
        self.bend += _by_columns(x, ratio.div_(mu), self.corner.of(z.mT).mT)
        self.logs += x.column_sums(mu.log().mul_(x.values))


def _better_columns(
    counts: SparseCounts,
    z: Tensor,
    phi: Tensor,
    mu: Tensor,
    sums: _ColumnSums,
    blocks: list[tuple[slice, SparseTable]],
    places: list[slice],
) -> tuple[Tensor, Tensor]:
    """Signatures after a Newton step, their sums free; ``mu`` becomes the means of the cells."""
    old, total = phi.mT.contiguous(), z.sum(0)
    slope = (sums.pull - total).mT.contiguous()
    new = newton(phi, slope, sums.corner.whole(sums.bend.mT.contiguous())).mT.contiguous()

    def logs(signatures: Tensor, chosen: Tensor | None = None) -> Tensor:
        found = torch.zeros_like(sums.logs)
        for (rows, x), cells in zip(blocks, places, strict=True):
            if chosen is None:
                mu[cells] = means(x, z[rows], signatures.mT)
            else:
                own = chosen[x.columns.long()]
                near = z[rows][x.rows[own].long()] * signatures[x.columns[own].long()]
                mu[cells] = mu[cells].masked_scatter(own, near.sum(-1).clamp_(min=FLOOR))
            found += x.column_sums(mu[cells].log().mul_(x.values))
        return found

    before, found = sums.logs - old @ total, logs(new)
    after = found - new @ total
    worse = ~(after >= before - ROUNDING * before.abs())  # True of NaN
    if bool(worse.any()):
        update = old * sums.pull / total.clamp(min=1e-300)
        new = torch.where(worse.unsqueeze(-1), update, new)
        found = logs(new, worse)
        after = found - new @ total
    return new.mT.contiguous(), after.sum()


def solved(counts: SparseCounts, phi: Tensor, num_steps: int, tolerance: float) -> Tensor:
    """Activities (N, K) for given signatures (K, J), by Newton steps to convergence."""
    corner, weight, found = Corner(phi.shape[0]), phi.mT.contiguous(), []
    squares = corner.of(weight.mT).mT
    for _, x in blocks_of(counts.x, CELLS_AT_ONCE):
        sums = x.row_sums(x.values)
        z = (sums / len(phi)).unsqueeze(-1).expand(-1, len(phi)).contiguous()
        out, running = z.clone(), torch.arange(len(z))
        mu, last = means(x, z, phi), torch.full_like(sums, -torch.inf)
        for _ in range(num_steps):
            z, mu = _better_rows(x, z, weight, squares, mu, corner)
            value = x.row_sums(mu.log().mul_(x.values)) - z @ phi.sum(-1)
            out[running] = z
            going = (value - last).abs() > tolerance * value.abs().clamp(min=1.0)
            if not bool(going.any()):
                break
            cells = torch.repeat_interleave(going, x.sizes)
            x, running, z = x[going], running[going], z[going]
            mu, last = mu[cells], value[going]
        found.append(out)
    return torch.cat(found)
