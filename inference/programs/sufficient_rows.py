r"""Sufficient statistics of a program's rows, recognised by their numbers.

Where the log-density of a row is a sum of few functions of the row, as in an exponential family,

.. math:: \log f(x_n \mid c, \theta) = \sum_j T_j(x_n) \, \eta_j(c, \theta) ,

the log-densities of all rows at many parameters are a matrix of low rank r. Its rows are then sums
of r of them (an interpolative decomposition: Cheng, Gimbutas, Martinsson and Rokhlin 2005,
doi:10.1137/030602678), at all parameters and not at these alone,

.. math:: \log f(x_n \mid c, \theta) = \sum_{j=1}^r a_{nj} \log f(x_{i_j} \mid c, \theta) , \qquad
    \sum_n w_{nc} \log f(x_n \mid c, \theta) = \sum_j \Big( \sum_n w_{nc} a_{nj} \Big)
    \log f(x_{i_j} \mid c, \theta) ,

so that the bound of an M-step is that of r rows whose weights are the sufficient statistics: three
rows of a Normal, two of a Poisson, however many there are. That the decomposition holds is not read
off the program but tried, as in :mod:`inference.programs.chains`: at parameters that took no part
in it the bound and its gradient must be those of all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.programs.elimination import FactorPosteriors
from inference.programs.global_state import quiet
from inference.programs.program import Params, Program
from inference.programs.restarts import at, inner_points
from ppl_models.data.tables import first_tensor, map_tensors, row_data

LEAST_TRIED = 2**9  # entries of the log-densities
MANY_ENTRIES = 2**16  # with fewer the few rows cost Newton's method more than they save
MOST_RANK = 64  # of rows that stand for all
SHARE = 8  # rows for each of them, at least
NUM_POINTS = (8, 24)  # parameters at which rows are compared, the more where the fewer say nothing
MOST_ENTRIES = 2**24  # of the log-densities of all rows at all of them
SAMPLED = 2048  # rows among which those that stand for all are looked for
# of the first pivot: those that are none, and between them and the others a gap, for those of an
# analytic function that is no such sum (a logistic regression) become smaller without end
NONE, LEAST = 1e-12, 1e-8
NEAR = 1e-7  # relative agreement of gradients
FAR = 3.0  # units around the middle in which it is tried


@dataclass(frozen=True, eq=False)
class SufficientRows:
    """A program with the few rows that stand for all.

    Args:
        program: with these rows.
        statistics: makes of posteriors of the factors of all rows those of these.
        entries: of the log-densities of all rows.
    """

    program: Program
    statistics: Callable[[Params], Params]
    entries: int = 0

    @property
    def saves(self) -> bool:
        """Tell whether Newton's method is faster on these rows."""
        return self.entries >= MANY_ENTRIES

    def agrees(self, program: Program, params: Params, seed: int, width: float = 1.0) -> bool:
        """Tell whether the bound and its gradient are those of all rows, at two points.

        Args:
            program: with all rows; params: (R, ...), near the first of which the points are.
            seed: of the points; width: how far they are, in units of the unconstrained scale.
        """
        weights = program.factor_posteriors(at(params, 0)).weights
        points = around(program, params, 2, seed, width)
        whole = [bound_and_gradient(program, weights, at(points, k)) for k in (0, 1)]
        weights = self.statistics(weights)
        few = [bound_and_gradient(self.program, weights, at(points, k)) for k in (0, 1)]
        rise, slopes = (whole[1][0] - whole[0][0], torch.stack([slope for _, slope in whole]))
        wrong = (few[1][0] - few[0][0] - rise).abs()
        off = (torch.stack([slope for _, slope in few]) - slopes).abs().max()
        return bool(wrong <= NEAR * rise.abs().clamp(min=1.0)) and bool(
            off <= NEAR * slopes.abs().max()
        )


def sufficient_rows(program: Program) -> SufficientRows | None:
    """Few rows that stand for all of a program, or None where they are not enough.

    Args:
        program: with all rows.
    """
    if program.is_own or program.names("local") or len(program.args) != 1:
        return None
    try:
        with quiet():
            with torch.no_grad():
                inner = inner_points(program)
                points = around(program, inner, NUM_POINTS[-1], seed=0)
                factors = [program._factors(at(points, 0))]
                entries = sum(term.numel() for term in factors[0].terms.values())
                if entries < LEAST_TRIED or NUM_POINTS[-1] * entries > MOST_ENTRIES:
                    return None
                find, found = _of_table if program.chain is None else _of_chain, None
                for count in NUM_POINTS:
                    factors += [program._factors(at(points, k)) for k in range(len(factors), count)]
                    found = find(program, factors)
                    if found is not None:
                        break
            if found is None or not found.agrees(program, inner, 1, FAR):
                return None
            return replace(found, entries=entries)
    except Exception:  # noqa: BLE001 (whatever a program does with few rows that it does not expect)
        return None


def bound_and_gradient(program: Program, weights: Params, point: Params) -> tuple[Tensor, Tensor]:
    """Expected complete-data log-posterior at a point, and its gradient, unconstrained."""
    free = {
        name: value.detach().clone().requires_grad_()
        for name, value in program.unconstrained(point).items()
    }
    posteriors = FactorPosteriors(weights, torch.zeros(()), torch.zeros(()))
    with torch.enable_grad():
        value = program.expected_log_joint(program.constrained(free), posteriors)
        slopes = torch.autograd.grad(value.sum(), list(free.values()), allow_unused=True)
    gone = (
        torch.zeros_like(v) if g is None else g for g, v in zip(slopes, free.values(), strict=True)
    )
    return value.detach().sum(), torch.cat([slope.reshape(-1) for slope in gone])


def around(program: Program, params: Params, count: int, seed: int, width: float = 1.0) -> Params:
    """Parameters about as many units from those of the first restart, unconstrained."""
    generator = torch.Generator().manual_seed(seed)
    free = program.unconstrained({name: value[:1] for name, value in params.items()})
    moved = {
        name: value
        + width
        * torch.randn((count, *value.shape[1:]), generator=generator, dtype=torch.float64).to(value)
        for name, value in free.items()
    }
    return program.constrained(moved)


def _of_table(program: Program, factors: list[Any]) -> SufficientRows | None:
    """Rows of a table in one plate."""
    data = program.args[0]
    num_rows = program.num_rows
    if not row_data(data) or len(first_tensor(data)) != num_rows or len(program.row_plates) != 1:
        return None
    (plate,) = program.row_plates
    first = factors[0]
    symbol = first.trace.plate_to_symbol[plate]
    dim = first.trace.symbol_to_dim[symbol]
    columns = [
        term.movedim(dim, 0).reshape(num_rows, -1)
        for one in factors
        for term in one.terms.values()
        if _has(term, dim, num_rows)
    ]
    found = _skeleton(torch.cat(columns, 1)) if columns else None
    if found is None:
        return None
    rows, shares = found

    def statistics(weights: Params) -> Params:
        return {
            name: (value.movedim(dim, -1) @ shares).movedim(-1, dim)
            if _has(value, dim, num_rows)
            else value
            for name, value in weights.items()
        }

    return SufficientRows(program.with_data(map_tensors(lambda x: x[rows], data)), statistics)


def _has(term: Tensor, dim: int, size: int) -> bool:
    return term.dim() >= -dim and term.shape[dim] == size


def _of_chain(program: Program, factors: list[Any]) -> SufficientRows | None:
    """First steps and pairs of neighbouring steps of a hidden chain."""
    chain = program.chain
    assert chain is not None
    axis, num_rows = 1 - chain.layout.time, chain.num_rows
    densities = torch.cat([one.terms["densities"] for one in factors])  # (points, N, T, K)
    begin = torch.cat([torch.cat([one.terms["first"] for one in factors]), densities[:, :, 0]])
    pairs = _skeleton(densities[:, :, 1:].movedim(0, 2).flatten(0, 1).flatten(1))
    firsts = _skeleton(begin.movedim(0, 1).flatten(1), few=True)
    if pairs is None or firsts is None:
        return None
    size = max(len(pairs[0]), len(firsts[0]))
    (rows_1, shares_1), (rows_2, shares_2) = _padded(firsts, size), _padded(pairs, size)
    small = replace(
        chain,
        first=chain.first.with_data(_chosen(chain.first.args[0], rows_1, axis, num_rows)),
        pairs=chain.pairs.with_data(_chosen(chain.pairs.args[0], rows_2, axis, len(shares_2))),
        num_rows=size,
        num_steps=2,
    )
    few = program.with_data(*program.args)
    few._chains = [small]

    def statistics(weights: Params) -> Params:
        seen = weights["densities"]
        return {
            "first": (weights["first"].mT @ shares_1).mT,
            "moves": weights["moves"],
            "densities": torch.stack(
                [(seen[:, :, 0].mT @ shares_1).mT, (seen[:, :, 1:].flatten(1, 2).mT @ shares_2).mT],
                2,
            ),
        }

    return SufficientRows(few, statistics)


def _chosen(data: Any, rows: Tensor, axis: int, size: int) -> Any:
    """Data of some of the sequences of a chain's parts."""

    def change(x: Tensor) -> Tensor:
        for dim in (axis, 0, 1):
            if x.dim() > dim and x.shape[dim] == size:
                return x.index_select(dim, rows)
        return x

    return map_tensors(change, data)


def _padded(found: tuple[Tensor, Tensor], size: int) -> tuple[Tensor, Tensor]:
    """Rows repeated, with no share, up to a number of them."""
    rows, shares = found
    more = size - len(rows)
    return (
        torch.cat([rows, rows[:1].expand(more)]),
        torch.cat([shares, shares.new_zeros(len(shares), more)], 1),
    )


def _skeleton(table: Tensor, few: bool = False) -> tuple[Tensor, Tensor] | None:
    """Few rows (r,) of a table (N, C), and the shares (N, r) by which all are sums of them.

    Args:
        table: of rows; few: whether its rows may be as few as those that stand for them.
    """
    from scipy.linalg import qr

    size = len(table)
    if not bool(table.isfinite().all()):
        return None
    scaled = table.double() / table.double().abs().amax(0).clamp(min=1e-300)
    sample = torch.randperm(size, generator=torch.Generator().manual_seed(0))[:SAMPLED]
    far = scaled.abs().sum(1).topk(min(size, SAMPLED // 8)).indices
    sample = torch.cat([sample, far]).unique()
    _, upper, order = qr(scaled[sample].mT.numpy(), mode="economic", pivoting=True)
    pivots = torch.from_numpy(upper.diagonal().copy()).abs()
    rank = int((pivots > NONE * pivots[0]).sum())
    if float(pivots[rank - 1]) < LEAST * float(pivots[0]):
        return None
    if rank > min(MOST_RANK, table.shape[1] // 2) or (rank * SHARE > size and not few):
        return None
    rows = sample[torch.from_numpy(order[:rank].copy()).long()]
    basis, triangle = torch.linalg.qr(scaled[rows].mT)
    shares = torch.linalg.solve_triangular(triangle, (scaled @ basis).mT, upper=True).mT
    return rows, shares.to(table)
