r"""Closed forms of M-steps, recognised by their numbers.

The expected complete-data log-posterior is linear in the posteriors of the factors, and where its
parameters fall apart into blocks of which each enters by few functions,

.. math:: Q(\theta) = \sum_B \sum_i s_{Bi} h_i(\theta_B) + \mathrm{const} , \qquad
    s = C \omega + c_0 ,

with :math:`\omega` the posteriors and :math:`c_0` of the prior, an M-step needs the sums s alone.
Three kinds of blocks have a maximum in closed form, or one of a single unknown:

- a probability vector with counts, :math:`\sum_k s_k \log \pi_k` (Dirichlet and Categorical, Beta
  and Bernoulli as two of them), whose maximum is :math:`\pi_k = s_k / \sum_l s_l`;
- a positive number (or a real one, as its logarithm u), :math:`q(u) = s_1 u + s_2 u^2 + \sum_{k \in
  \{\pm 1, \pm 2\}} s_k e^{ku}` (Gamma and Poisson, scales and rates, log-normal and other priors);
- real numbers x, alone or with one positive number :math:`e^u`, as weighted least squares,

  .. math:: Q = b^\top x + \tfrac12 x^\top A x + e^{\kappa u} (c^\top x + \tfrac12 x^\top B x) +
      q(u) , \qquad \kappa \in \{\pm 1, \pm 2\} ,

  whose maximum over x is that of a linear system and over u Newton's of one unknown.

Which block a parameter belongs to is seen in the second derivatives, and C by least squares in
gradients at random parameters. Nothing is read off the program: at further parameters, which took
no part, the gradient of the sums must be that of the program with all rows, and it is compared
again near the parameters of later M-steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import biject_to, constraints

from inference.programs.global_state import quiet
from inference.programs.program import Params, Program
from inference.programs.restarts import at, inner_points
from inference.programs.sufficient_rows import SufficientRows, around, bound_and_gradient

MOST_COORDINATES = 256
MOST_POSTERIORS = 2**9  # entries of those of a program whose gradients are taken one by one
MOST_REALS = 8  # of one block
Array = npt.NDArray[np.float64]
POWERS = np.array([-2, -1, 1, 2])  # of a positive number
MOMENTS = np.stack([POWERS**0, POWERS, POWERS**2], 1)
SPARE = 4  # points that take no part in the least squares
NEAR = 1e-8  # relative agreement of gradients, coordinate by coordinate
AGREED = 1e-7  # that of all rows
NONE = 1e-10  # of a function's largest share in a gradient, below which it has none
MET = 1e-10  # of the geometric mean of two second derivatives, above which coordinates meet
FAR = 2.0  # units around the middle in which gradients are taken
REACH, MOST_STEPS, ARRIVED = 2.0, 40, 1e-6  # of Newton's method of one unknown
LEAST_EIGENVALUE = 1e-12  # of a matrix scaled to unit diagonal
LOST = 1e-6  # of sums without a mean taken off, which leave this much of their digits
LEAST = 1e-15  # a probability without counts, which takes nothing from the others


@dataclass(frozen=True)
class _Unit:
    """Coordinate of a parameter, or a probability vector.

    Args:
        kind: "real", "positive" or "shares".
        free: its unconstrained coordinates; values: its entries among all parameters.
        lower, width: of an interval, whose shares are those below and above a value.
    """

    kind: str
    free: tuple[int, ...]
    values: tuple[int, ...]
    lower: float = 0.0
    width: float = 1.0


@dataclass(frozen=True, eq=False)
class _Group:
    """Blocks of one kind.

    Args:
        kind: "shares" or "least squares"; of the latter, ``reals`` numbers and maybe, at the end, a
            logarithm, of a positive number where ``is_log``; ``power``: kappa.
        free, values: indices of coordinates and entries, (n, c).
        intervals: (n, 2), the lower end and width of values with two shares; None for vectors.
        chosen: which functions have a part.
    """

    kind: str
    reals: int
    has_log: bool
    is_log: bool
    power: int
    free: Tensor
    values: npt.NDArray[np.int64]
    intervals: Array | None
    chosen: tuple[int, ...] = ()

    def functions(self, free: Tensor) -> Tensor:
        """Functions h of unconstrained coordinates (c,), all of the kind, (q,)."""
        if self.kind == "shares":
            if self.intervals is not None:
                return torch.nn.functional.logsigmoid(torch.stack([free[0], -free[0]]))
            return torch.log(biject_to(constraints.simplex)(free))
        x, parts = free[: self.reals], []
        if self.has_log:
            u = free[-1]
            parts += [u.unsqueeze(0), u.square().unsqueeze(0)]
            parts += [(int(power) * u).exp().unsqueeze(0) for power in POWERS]
        if self.reals:
            row, column = torch.triu_indices(self.reals, self.reals)
            double = torch.where(row == column, 0.5, 1.0).to(free)
            moments = torch.cat([x, x[row] * x[column] * double])
            parts.append(moments)
            if self.has_log:
                parts.append((self.power * u).exp() * moments)
        return torch.cat(parts)

    def slopes(self, free: Tensor) -> Tensor:
        """Gradients of the chosen functions at points (S, P), (n, S, c, q)."""
        jacobian = torch.func.vmap(torch.func.vmap(torch.func.jacrev(self.functions)))
        out: Tensor = jacobian(free[:, self.free]).permute(1, 0, 3, 2)  # from (S, n, q, c)
        return out[..., list(self.chosen)] if self.chosen else out

    @property
    def num_functions(self) -> int:
        """Number q of functions of the kind."""
        if self.kind == "shares":
            return 2 if self.intervals is not None else self.values.shape[1]
        moments = self.reals * (self.reals + 3) // 2
        return (2 + len(POWERS)) * self.has_log + moments * (1 + self.has_log)

    def maximum(self, sums: Array, values: Array) -> Array:
        """Maximum from the sums (R, n, q) and values so far (R, n, c); NaN where there is none."""
        whole = sums
        if len(self.chosen) < self.num_functions:
            whole = np.zeros((*sums.shape[:2], self.num_functions))
            whole[..., list(self.chosen)] = sums
        if self.kind == "shares":
            return self._shares(whole)
        size, reals = self.reals * (self.reals + 3) // 2, self.reals
        start = (2 + len(POWERS)) * self.has_log
        apart = _quadratic(whole[..., start : start + size], reals)
        if not self.has_log:
            return _solved(*apart)
        log = np.log(values[..., -1]) if self.is_log else values[..., -1]
        along = _quadratic(whole[..., start + size :], reals) if reals else apart
        x, log = _climbed(whole[..., :start], apart, along, self.power, log)
        return np.concatenate([x, (np.exp(log) if self.is_log else log)[..., None]], -1)

    def _shares(self, counts: Array) -> Array:
        total = counts.sum(-1, keepdims=True)
        inside = (counts >= -1e-12 * total).all(-1, keepdims=True) & (total > 0)
        shares: Array = np.where(inside, np.maximum(counts / total, LEAST), np.nan)
        if self.intervals is None:
            return np.asarray(shares / shares.sum(-1, keepdims=True))
        below = np.minimum(shares[..., :1], 1 - np.finfo(float).eps)
        lower, width = np.split(self.intervals, 2, 1)
        return np.asarray(lower + width * below)


Quadratic = tuple[Array, Array]  # b (R, n, d) and A (R, n, d, d)


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """M-step of a program in closed form.

    Args:
        groups: all blocks.
        matrix, constant: C (sums, posteriors) and c_0 (sums,), group by group and block by block.
        shapes: of the sites, in the order of the values.
    """

    groups: tuple[_Group, ...]
    matrix: Array
    constant: Array
    shapes: dict[str, torch.Size]

    def maximise(self, posteriors: Tensor, params: Params) -> tuple[Params, Tensor]:
        """Maximiser at posteriors (R, m) and parameters (R, ...); of which restarts, (R,)."""
        count = len(posteriors)
        old = torch.cat([params[name].reshape(count, -1) for name in self.shapes], 1).cpu().numpy()
        new = np.empty_like(old)
        with np.errstate(all="ignore"):  # where there is no maximum
            for group, sums in self._sums(posteriors.cpu().numpy()):
                new[:, group.values] = group.maximum(sums, old[:, group.values])
        found = torch.from_numpy(new).to(posteriors.device)
        pieces = found.split([shape.numel() for shape in self.shapes.values()], 1)
        return {
            name: piece.reshape(count, *shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }, found.isfinite().all(1)

    def agrees(
        self, program: Program, few: SufficientRows | None, params: Params, seed: int
    ) -> bool:
        """Tell whether the gradient is that of all rows, at two points near the first restart.

        Args:
            program: with all rows; few: those that stand for them; None for all.
            params: (R, ...); seed: of the points.
        """
        first = {name: params[name][:1] for name in self.shapes}
        weights = program.factor_posteriors(at(first, 0)).weights
        points = around(program, first, 2, seed)
        free = torch.cat(
            [value.reshape(2, -1) for value in program.unconstrained(points).values()], 1
        )
        slopes = torch.stack(
            [bound_and_gradient(program, weights, at(points, k))[1] for k in (0, 1)]
        )
        weights = weights if few is None else few.statistics(weights)
        sums = torch.cat([value.reshape(-1) for value in weights.values()])
        off = (self.gradient(sums, free) - slopes).abs().amax(0)
        return bool((off <= AGREED * slopes.abs().amax(0)).all())

    def gradient(self, posteriors: Tensor, free: Tensor) -> Tensor:
        """Gradient at points (S, P) under one set of posteriors (m,)."""
        out = torch.zeros_like(free)
        for group, sums in self._sums(posteriors.unsqueeze(0).cpu().numpy()):
            weights = torch.from_numpy(sums[0]).to(free)[:, None, :, None]
            out[:, group.free] = (group.slopes(free) @ weights).squeeze(-1).movedim(0, 1)
        return out

    def _sums(self, posteriors: Array) -> Iterator[tuple[_Group, Array]]:
        """Groups with their sums (R, n, q)."""
        sums, begin = posteriors @ self.matrix.T + self.constant, 0
        for group in self.groups:
            size = len(group.free), len(group.chosen)
            yield group, sums[:, begin : begin + math.prod(size)].reshape(-1, *size)
            begin += math.prod(size)


# ---------------------------------------------------------------- maxima


def _quadratic(sums: Array, size: int) -> Quadratic:
    """Vector b and symmetric matrix A from the sums of their functions."""
    linear, rest = sums[..., :size], sums[..., size:]
    if size < 2:
        return linear, rest[..., None]
    row, column = np.triu_indices(size)
    matrix = np.zeros((*sums.shape[:-1], size, size))
    matrix[..., row, column] = matrix[..., column, row] = rest
    return linear, matrix


def _solved(linear: Array, matrix: Array) -> Array:
    """Maximum of b'x + x'Ax/2, (R, n, d); NaN where there is none."""
    if linear.shape[-1] == 1:
        bend = matrix[..., 0]
        return np.where(bend < 0, linear / -bend, np.nan)
    size = np.sqrt(np.abs(np.diagonal(matrix, axis1=-2, axis2=-1)))
    scaled = matrix / (size[..., None] * size[..., None, :])
    good = np.isfinite(scaled).all((-2, -1))
    scaled = np.where(good[..., None, None], scaled, -np.eye(scaled.shape[-1]))
    good &= np.linalg.eigvalsh(scaled)[..., -1] < -LEAST_EIGENVALUE
    scaled = np.where(good[..., None, None], scaled, -np.eye(scaled.shape[-1]))
    x = np.linalg.solve(scaled, -(linear / size)[..., None])[..., 0] / size
    return np.where(good[..., None], x, np.nan)


def _times(matrix: Array, x: Array) -> Array:
    return matrix[..., 0] * x if x.shape[-1] == 1 else (matrix @ x[..., None])[..., 0]


def _climbed(
    scale: Array, apart: Quadratic, along: Quadratic, power: int, log: Array
) -> tuple[Array, Array]:
    """Maximum over x and the logarithm u, by Newton's method of u, x solved for.

    Args:
        scale: sums of the functions of u alone, (R, n, 6); apart, along: quadratics of x that
            count once and e^(power u) times; log: u so far, (R, n).

    Returns:
        Both, NaN where there is no maximum or sums cancel.
    """
    level, bend, some = scale[..., 0], 2 * scale[..., 1], along[0].shape[-1] > 0

    def solved(u: Array) -> tuple[Array, Array, Array, Array]:
        """Vector and matrix of x at u, their solution, and e^(power u)."""
        times = np.exp(power * u)[..., None]
        linear, matrix = apart[0] + times * along[0], apart[1] + times[..., None] * along[1]
        return linear, matrix, _solved(linear, matrix), times

    def profile(u: Array) -> tuple[Array, Array, Array]:
        """Value, and two derivatives."""
        terms = scale[..., 2:] * np.exp(POWERS * u[..., None])
        sums = terms @ MOMENTS
        straight = bend * u
        value = sums[..., 0] + (level + straight / 2) * u
        first, second = sums[..., 1] + level + straight, sums[..., 2] + bend
        if some:
            linear, matrix, x, times = solved(u)
            cross = power * times * (along[0] + _times(along[1], x))
            pulled = (cross * x + power * times * along[0] * x).sum(-1) / 2
            value = value + (linear * x).sum(-1) / 2
            first = first + pulled
            second = second + power * pulled + (cross * _solved(cross, matrix)).sum(-1)
        return value, first, second

    value, first, second = profile(log)
    straight = level + bend * log
    ratio = -straight / (first - straight)  # of s_1 u + s e^(ku), the maximum is one step off
    step = np.log(ratio) * (first - straight) / (second - bend)
    step = np.where(np.isfinite(step), step, _newton(first, second))
    for _ in range(MOST_STEPS):
        if not (np.abs(step) > ARRIVED).any():  # of the next one the size is that squared
            break
        trial, first, second = profile(log + step)
        better = trial >= value - 1e-14 * np.abs(value)
        log = np.where(better, log + step, log)
        value = np.where(better, trial, value)
        step = np.where(better, _newton(first, second), step / 4)
    log = np.where(np.abs(step) <= ARRIVED, log + step, np.nan)
    raw = np.abs(scale[..., 2:] * np.exp(POWERS * log[..., None])).sum(-1)
    kept = raw * LOST <= np.abs(level + bend * log) + np.minimum(raw, 1.0)
    return solved(log)[2] if some else along[0], np.where(kept, log, np.nan)


def _newton(first: Array, second: Array) -> Array:
    """Newton step upwards, no longer than a reach."""
    step = np.where(second < 0, -first / second, REACH * np.sign(first))
    return np.minimum(np.maximum(step, -REACH), REACH)


# ---------------------------------------------------------------- recognition


def closed_form(program: Program) -> ClosedForm | None:
    """Closed form of a program's M-step, or None for one that has none.

    Args:
        program: with few rows, whose M-step is that of all rows.
    """
    if program.is_own or program.fixed is not None or program.names("local"):
        return None
    try:
        with quiet():
            return _found(program)
    except Exception:  # noqa: BLE001 (whatever a program does with batches of points that it does not expect)
        return None


def flat_posteriors(program: Program, weights: Params, count: int) -> Tensor:
    """Posteriors of the factors of each restart in a row, (R, m)."""
    together = count > 1 and program.chain is None and program.broadcasts()
    return torch.cat([_rows(program, value, count, together) for value in weights.values()], 1)


def _rows(program: Program, term: Tensor, count: int, together: bool) -> Tensor:
    """Entries of a factor restart by restart, (R, entries); ``together`` on the left of plates."""
    if not together:
        return term.reshape(count, -1)
    dim = term.dim() - 1 - program.max_plate_nesting
    if dim < 0 or term.shape[dim] != count:  # a factor without parameters
        return term.reshape(1, -1).expand(count, -1)
    return term.movedim(dim, 0).reshape(count, -1)


def _found(program: Program) -> ClosedForm | None:
    inner = inner_points(program)
    shapes = {name: value.shape[1:] for name, value in inner.items()}
    free = {name: value[:1] for name, value in program.unconstrained(inner).items()}
    units = _units(program, free, shapes)
    start = torch.cat([value.reshape(-1) for value in free.values()])
    if units is None or start.dtype != torch.float64 or len(start) > MOST_COORDINATES:
        return None
    splits = {name: value.shape[1:] for name, value in free.items()}
    blocks = _blocks(units, _meetings(program, splits, _points(start, 2, seed=0)))
    if blocks is None:
        return None
    groups = _groups(blocks, start.device)
    most = max(2 * group.num_functions / group.free.shape[1] for group in groups)
    points = _points(start, math.ceil(max(8.0, most)) + SPARE, seed=1)
    jacobian = _jacobian(program, splits, points)  # (S, m + 1, P)
    if jacobian is None:
        return None
    chosen, rows = [], []
    for group in groups:
        targets = jacobian[:, :, group.free].permute(2, 0, 3, 1)  # (n, S, c, m + 1)
        fitted = next(
            (found for one in _alternatives(group) if (found := _fitted(one, points, targets))),
            None,
        )
        if fitted is None:
            return None
        chosen.append(fitted[0])
        rows.append(fitted[1].flatten(0, 1))
    coefficients = torch.cat(rows).detach().cpu().numpy()
    return ClosedForm(tuple(chosen), coefficients[:, :-1], coefficients[:, -1], shapes)


def _units(program: Program, free: Params, shapes: dict[str, torch.Size]) -> list[_Unit] | None:
    """Coordinates and probability vectors of all sites; None for another kind of site."""
    units: list[_Unit] = []
    begin, place = 0, 0
    for name, value in free.items():
        support: Any = program.site(name).support
        while isinstance(support, constraints.independent):
            support = support.base_constraint
        size, entries = value.numel(), shapes[name].numel()
        if support is constraints.simplex:
            length = shapes[name][-1]
            units += [
                _Unit(
                    "shares",
                    tuple(range(begin + row * (length - 1), begin + (row + 1) * (length - 1))),
                    tuple(range(place + row * length, place + (row + 1) * length)),
                )
                for row in range(entries // length)
            ]
        elif size != entries:
            return None
        else:
            aside = torch.linspace(-1.5, 1.5, size, dtype=value.dtype, device=value.device)
            aside = aside.reshape(value.shape)
            there = program.constrained({name: aside})[name]
            lower, upper = (getattr(support, f"{end}_bound", None) for end in ("lower", "upper"))
            kinds = {"real": aside, "positive": aside.exp()}
            bounds = (0.0, 1.0)
            if isinstance(lower, float | int) and isinstance(upper, float | int):
                bounds = (float(lower), float(upper) - float(lower))
                kinds = {"shares": bounds[0] + bounds[1] * aside.sigmoid()}
            kind = next((k for k, v in kinds.items() if torch.allclose(v, there, rtol=1e-12)), None)
            if kind is None:
                return None
            units += [_Unit(kind, (begin + k,), (place + k,), *bounds) for k in range(size)]
        begin, place = begin + size, place + entries
    return units


def _points(start: Tensor, count: int, seed: int) -> Tensor:
    """Points (S, P) around a start."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand((count, len(start)), generator=generator, dtype=torch.float64)
    return start + FAR * (2 * noise - 1).to(start)


def _outputs(program: Program, splits: dict[str, torch.Size], points: Tensor) -> Tensor:
    """Log-densities of all factors, and at the end the log-prior, at points (S, P), (S, m + 1)."""
    pieces = points.split([shape.numel() for shape in splits.values()], 1)
    params = program.constrained(
        {
            name: piece.reshape(-1, *shape)
            for (name, shape), piece in zip(splits.items(), pieces, strict=True)
        }
    )
    if program.chain is None and not program.broadcasts():
        every = [
            _outputs_of(program, {name: value[k] for name, value in params.items()}, 1, False)
            for k in range(len(points))
        ]
        return torch.cat(every)
    return _outputs_of(program, params, len(points), program.chain is None)


def _outputs_of(program: Program, params: Params, count: int, together: bool) -> Tensor:
    factors = program._factors(params)
    nothing = {name: torch.zeros_like(term) for name, term in factors.terms.items()}
    prior = factors.expected_prior(nothing).expand(count).reshape(count, 1)
    terms = [_rows(program, term, count, together) for term in factors.terms.values()]
    return torch.cat([*terms, prior], 1)


def _meetings(program: Program, splits: dict[str, torch.Size], points: Tensor) -> Tensor:
    """Coordinates whose second derivative is not zero under random posteriors, bool (P, P)."""
    generator = torch.Generator().manual_seed(2)
    with torch.enable_grad():
        leaf = points.clone().requires_grad_()
        outputs = _outputs(program, splits, leaf)
        weights = torch.rand(outputs.shape, generator=generator, dtype=torch.float64) + 0.5
        (slope,) = torch.autograd.grad(
            (outputs * weights.to(outputs)).sum(), leaf, create_graph=True
        )
        slope = slope + 0.0 * leaf.sum()
        seeds = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
        (bends,) = torch.autograd.grad(
            slope, leaf, seeds.unsqueeze(1).expand(-1, *points.shape), is_grads_batched=True
        )
    bends = bends.movedim(1, 0).abs()  # (S, P, P)
    scale = bends.diagonal(dim1=-2, dim2=-1).sqrt()
    met = bends > MET * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    return met.any(0) | met.any(0).mT


def _jacobian(program: Program, splits: dict[str, torch.Size], points: Tensor) -> Tensor | None:
    """Gradients of all factors and the log-prior at points (S, P), (S, m + 1, P)."""
    with torch.enable_grad():
        leaf = points.clone().requires_grad_()
        outputs = _outputs(program, splits, leaf) + 0.0 * leaf.sum()
        size = outputs.shape[1]
        if size > MOST_POSTERIORS or not bool(outputs.isfinite().all()):
            return None
        seeds = torch.eye(size, dtype=points.dtype, device=points.device)
        (slopes,) = torch.autograd.grad(
            outputs, leaf, seeds.unsqueeze(1).expand(-1, *outputs.shape), is_grads_batched=True
        )
    return slopes.movedim(1, 0) if bool(slopes.isfinite().all()) else None


def _blocks(units: list[_Unit], met: Tensor) -> list[list[_Unit]] | None:
    """Units that meet, directly or by others; None for blocks of another kind."""
    owner = torch.zeros(len(met), dtype=torch.long)
    for number, unit in enumerate(units):
        owner[list(unit.free)] = number
    blocks = list(range(len(units)))
    for i, j in met.cpu().nonzero().tolist():
        one, other = blocks[owner[i]], blocks[owner[j]]
        if one != other:
            blocks = [one if block == other else block for block in blocks]
    out = [
        sorted(
            (unit for unit, block in zip(units, blocks, strict=True) if block == number),
            key=lambda unit: unit.kind == "positive",
        )
        for number in dict.fromkeys(blocks)
    ]
    for block in out:
        kinds = [unit.kind for unit in block]
        if "shares" in kinds and len(block) > 1:
            return None
        if kinds.count("positive") > 1 or kinds.count("real") > MOST_REALS:
            return None
    return out


def _groups(blocks: list[list[_Unit]], device: torch.device) -> list[_Group]:
    """Blocks of one kind together."""
    kinds: dict[tuple[Any, ...], list[list[_Unit]]] = {}
    for block in blocks:
        first = block[0]
        is_interval = first.kind == "shares" and len(first.values) == 1
        kinds.setdefault(
            (*(unit.kind for unit in block), is_interval, len(first.values)), []
        ).append(block)
    out = []
    for (*names, is_interval, _), members in kinds.items():
        intervals = np.array([[block[0].lower, block[0].width] for block in members])
        free, values = (
            torch.tensor([sum((getattr(unit, name) for unit in block), ()) for block in members])
            for name in ("free", "values")
        )
        is_log = names[-1] == "positive"
        has_log = is_log or names == ["real"]
        out.append(
            _Group(
                "shares" if names[0] == "shares" else "least squares",
                len(names) - has_log,
                has_log,
                is_log,
                int(POWERS[0]),
                free.to(device),
                values.numpy(),
                intervals if is_interval else None,
            )
        )
    return out


def _alternatives(group: _Group) -> Iterator[_Group]:
    """The group by each power of the positive number that weighs squares."""
    yield group
    if group.has_log and group.reals:
        for power in POWERS[1:]:
            yield replace(group, power=int(power))


def _fitted(group: _Group, points: Tensor, targets: Tensor) -> tuple[_Group, Tensor] | None:
    """Group with its chosen functions, and their coefficients (n, q, m + 1); None without a fit.

    Args:
        targets: gradients of all factors and the log-prior, (n, S, c, m + 1).
    """
    used = len(points) - SPARE
    everything = group.slopes(points)
    chosen = torch.arange(everything.shape[-1])
    coefficients = everything.new_zeros(0)
    for _ in range(3):
        slopes = everything[..., chosen]
        size = slopes[:, :used].abs().amax((0, 1, 2))
        design = (slopes[:, :used] / size).flatten(1, 2)
        coefficients = torch.linalg.pinv(design) @ targets[:, :used].flatten(1, 2)
        most = (
            coefficients.abs()
            .amax(1, keepdim=True)
            .clamp(min=1e-4 * float(coefficients.abs().max()))
        )
        small = coefficients.abs() <= NONE * most
        coefficients = torch.where(small, 0.0, coefficients / size.unsqueeze(-1))
        kept = ~small.all(2).all(0)
        if bool(kept.all()):
            break
        chosen = chosen[kept]
    if coefficients.shape[1] != len(chosen):
        return None
    off = (everything[..., chosen] @ coefficients.unsqueeze(1) - targets).abs().amax((1, 3))
    if not bool((off <= NEAR * targets.abs().amax((1, 3))).all()):
        return None
    return replace(group, chosen=tuple(chosen.tolist())), coefficients
