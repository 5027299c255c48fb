"""EM steps of a program as replays of their tensor operations.

A user's program is traced once for each half and not once an evaluation: what is left is a list of
tensor operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from inference.programs.chains import ChainFactors
from inference.programs.conjugate import ClosedForm, closed_form, flat_posteriors
from inference.programs.curvature import Colouring, Derivatives, Gradient, climb
from inference.programs.elimination import FactorPosteriors, posteriors_of
from inference.programs.global_state import quiet
from inference.programs.program import Params, Program
from inference.programs.replay import recorded
from inference.programs.restarts import inner_points
from inference.programs.sufficient_rows import SufficientRows, sufficient_rows
from ppl_models.data.tables import first_tensor

Shapes = dict[str, torch.Size]
Sums = Callable[
    [Callable[[Program], dict[str, Tensor]]], dict[str, Tensor]
]  # of what a function makes of the program of some rows, over all rows

MOST_COORDINATES = 256  # of one restart whose second derivatives are taken
MOST_DENSE = 64  # of one restart whose second derivatives are all taken at once
ONE_STEP = 20  # L-BFGS iterations asked for, up to which Newton steps that gained are enough
MOST_NEWTON = 10  # evaluations of Newton's method, after which L-BFGS goes on
MOST_MARGINAL = 100  # likewise, of a log-posterior, which no E-step changes
AT_TOP = 1e-12  # of a coordinate, from a maximum climbed to before, within which there is no climb
# of a coordinate that is a logarithm or log-odds in one step: far out nothing bends, and there is
# no way back
REACH = 2.0
STEP, JUMP = 1e-9, 1e-3  # from nought, and of the gradient across it, which no curvature gives
AGAIN = [0, *(4**k for k in range(16))]  # M-steps before which few rows are compared with all
# products of the matrix of second derivatives with a vector, each as dear as two evaluations
MOST_COLOURS = 12


class Expectation:
    """Posteriors of factors, and maximisers of the expected complete-data log-posterior.

    Restarts run as one batch where the program broadcasts, else one after the other.

    Args:
        program: with its data.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._replays: dict[tuple[str, int], Callable[[Tensor], tuple[Tensor, ...]]] = {}
        self._factors: dict[int, Shapes] = {}
        self._few: SufficientRows | None = None
        self._closed: ClosedForm | None = None
        self._num_steps = 0  # M-steps so far
        self._tops: list[Tensor] = []  # maxima (P,) of the log-posterior that were climbed to

    def posteriors(self, params: Params) -> FactorPosteriors:
        """Posteriors of factors, log-likelihood and log-prior at parameters (R, ...)."""
        parts = [self._posteriors(part) for part in self._parts(params)]
        weights = (
            {name: torch.cat([part.weights[name] for part in parts]) for name in parts[0].weights}
            if len(parts) > 1
            else parts[0].weights
        )
        return FactorPosteriors(
            weights,
            torch.cat([p.log_marginal for p in parts]),
            torch.cat([p.log_prior for p in parts]),
        )

    def maximise(self, posteriors: FactorPosteriors, params: Params, num_steps: int) -> Params:
        """Maximise in closed form, by Newton's method or L-BFGS; one that does not gain stays.

        Newton steps that gain without arriving are an M-step of generalised EM, whose posteriors
        change before the next one anyway; where more than ``ONE_STEP`` steps are asked for, L-BFGS
        goes on.

        Where continuous latents are integrated, the log-posterior itself, which is as dear as its
        bound and takes few steps where a variance near zero asks hundreds of EM.
        """
        parts = self._parts(params)
        if self.program.integrated:
            new = [self._maximise_marginal(part, num_steps) for part in parts]
            return {name: torch.cat([part[name] for part in new]) for name in params}
        self._look_for_few_rows(params)
        closed: Params = {}
        done = None
        if self._closed is not None:
            weights = self._statistics(posteriors.weights)
            count = len(next(iter(params.values())))
            flat = flat_posteriors(self.program, weights, count)
            closed, done = self._closed.maximise(flat, params)
            if bool(done.all()):
                return closed
        new = [
            self._maximise(self._weights(posteriors, r, len(parts)), part, num_steps)
            for r, part in enumerate(parts)
        ]
        every = {name: torch.cat([part[name] for part in new]) for name in params}
        return (
            every
            if done is None
            else {
                name: torch.where(done.reshape(-1, *[1] * (value.dim() - 1)), closed[name], value)
                for name, value in every.items()
            }
        )

    # ---------------------------------------------------------------- restarts

    def _parts(self, params: Params) -> list[Params]:
        """Batches of restarts: all at once, or one by one with a leading dim of one."""
        count = len(next(iter(params.values())))
        if count == 1 or self.program.broadcasts():
            return [params]
        return [{name: value[r : r + 1] for name, value in params.items()} for r in range(count)]

    def _weights(self, posteriors: FactorPosteriors, part: int, num_parts: int) -> Params:
        return (
            posteriors.weights
            if num_parts == 1
            else {name: value[part : part + 1] for name, value in posteriors.weights.items()}
        )

    def _look_for_few_rows(self, params: Params) -> None:
        """Find rows that stand for all and closed forms; compare before some of the M-steps."""
        count, self._num_steps = self._num_steps, self._num_steps + 1
        if count == 0:
            self._few = sufficient_rows(self.program)
            self._closed = closed_form(self._in_m_step)
        if count not in AGAIN:
            return
        with quiet():
            if self._closed is not None and not self._closed.agrees(
                self.program, self._few, params, seed=2 + count
            ):
                self._closed = None
            if self._closed is not None or self._few is None:
                return
            if not self._few.saves or not self._few.agrees(self.program, params, seed=2 + count):
                self._few = None
                self._replays.clear()

    def _statistics(self, weights: Params) -> Params:
        return weights if self._few is None else self._few.statistics(weights)

    @property
    def _in_m_step(self) -> Program:
        return self.program if self._few is None else self._few.program

    # ---------------------------------------------------------------- one part

    def _posteriors(self, params: Params) -> FactorPosteriors:
        free = self.program.unconstrained(params)
        shapes, count = _shapes(free), len(next(iter(free.values())))
        point = _vector(free)

        def evaluate(values: Tensor) -> tuple[Tensor, ...]:
            constrained = self.program.constrained(_split(values, shapes))
            if self.program.chain is None:
                posteriors = self.program.factor_posteriors(constrained)
                parts, totals = posteriors.weights, [posteriors.log_marginal, posteriors.log_prior]
            else:  # how its sum over paths is taken depends on values
                factors = self.program.chain.factors(constrained, True)
                parts, totals = factors.terms, [factors.log_prior]
            self._factors[count] = _shapes(parts)
            nothing = (
                0.0 * values.sum()
            )  # an output that depends on no parameter is one that depends by nought
            return tuple(value + nothing for value in (*parts.values(), *totals))

        with torch.no_grad():
            outputs = [
                value.detach() for value in self._replayed("E", count, evaluate, point)(point)
            ]
        parts = dict(zip(self._factors[count], outputs, strict=False))
        if self.program.chain is not None:
            return posteriors_of(
                ChainFactors(self.program.chain, parts, outputs[-1], True, self.program.row_weights)
            )
        return FactorPosteriors(parts, outputs[-2], outputs[-1])

    def _maximise(self, weights: Params, params: Params, num_steps: int) -> Params:
        free = {name: value.detach() for name, value in self.program.unconstrained(params).items()}
        count = len(next(iter(free.values())))
        weights = self._statistics(weights)
        objective = _Objective(self._in_m_step, _shapes(free), _shapes(weights), count)
        start, fixed, colouring = objective.rows(free), _vector(weights), self._colouring
        first = self._replayed("M", count, objective.first, objective.point(start, fixed))

        def gradient(at: Tensor) -> tuple[Tensor, Tensor]:
            value, slope = first(objective.point(at, fixed))
            return value, slope

        derivatives = None
        if colouring is not None:
            second = self._replayed(
                "M with curvature",
                count,
                objective.second(colouring.seeds),
                objective.point(start, fixed),
            )

            def derivatives(at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                value, slope, products = second(objective.point(at, fixed))
                return value, slope, colouring.matrix(products)

        return self._climbed(objective, params, start, gradient, derivatives, num_steps, colouring)

    def _maximise_marginal(self, params: Params, num_steps: int) -> Params:
        """Maximise the log-posterior, latents summed out, at parameters (R, ...)."""
        free = {name: value.detach() for name, value in self.program.unconstrained(params).items()}
        count = len(next(iter(free.values())))
        objective = _LogPosterior(self.program, _shapes(free), {}, count)
        start = objective.rows(free)
        if self._tops and bool(
            (torch.cdist(start, torch.stack(self._tops), p=torch.inf).amin(1) <= AT_TOP).all()
        ):
            return params
        replay = self._replayed("log-posterior", count, objective.first, start.ravel())

        def gradient(at: Tensor) -> tuple[Tensor, Tensor]:
            value, slope = replay(at.ravel())
            return value, slope

        derivatives, every, size = None, None, start.shape[1]
        if size <= MOST_DENSE:
            reach = objective.rows(
                {
                    name: torch.full_like(value, torch.inf if params[name].equal(value) else REACH)
                    for name, value in free.items()
                }
            )
            places = torch.arange(size, device=start.device)
            pattern = torch.ones(size, size, dtype=torch.bool, device=start.device)
            every = Colouring(pattern, places, reach[0])
            second = objective.second(every.seeds)  # so seldom that to record it is dearer

            def derivatives(at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                value, slope, products = second(at.ravel())
                return value, slope, every.matrix(products)

        effort = {"most": MOST_MARGINAL, "refresh": size, "share": 0.0}
        return self._climbed(
            objective, params, start, gradient, derivatives, num_steps, every, effort
        )

    def _climbed(
        self,
        objective: _Objective,
        params: Params,
        start: Tensor,
        gradient: Gradient,
        derivatives: Derivatives | None,
        num_steps: int,
        colouring: Colouring | None,
        effort: Mapping[str, Any] = MappingProxyType({"most": MOST_NEWTON}),
    ) -> Params:
        """Maximiser of the objective, by its derivatives at any point (R, P)."""
        end, is_done = start, False
        if derivatives is not None:
            assert colouring is not None
            end, arrived = climb(gradient, derivatives, start, colouring.reach, **effort)
            has_gained = (end != start).any(1)
            is_done = bool((arrived | (has_gained & (num_steps <= ONE_STEP))).all())
            if self.program.integrated:
                self._tops += end[arrived].unbind()
        if not is_done:
            end = _by_gradient(
                gradient,
                end,
                objective.rows(unit_steps(self.program, objective.split(end))),
                num_steps,
            )
        moved = (end != start).any(1)
        new = self.program.constrained(objective.split(end))
        return {
            name: torch.where(moved.reshape((-1,) + (1,) * (value.dim() - 1)), value, params[name])
            for name, value in new.items()
        }

    @cached_property
    def _colouring(self) -> Colouring | None:
        """Sparsity of the second derivatives, seen at two points; None if many, kinked or known."""
        if self.program.fixed is not None:  # the objective is flat along what is known
            return None
        with quiet():
            points = inner_points(self.program)
            free = {
                name: value.detach() for name, value in self.program.unconstrained(points).items()
            }
            size = sum(value[0].numel() for value in free.values())
            if not 0 < size <= MOST_COORDINATES:
                return None
            try:
                generator = torch.Generator().manual_seed(0)
                weights = {  # posteriors that no symmetry of the program holds for
                    name: (
                        value
                        * (
                            0.5
                            + torch.rand(value.shape, generator=generator, dtype=torch.float64).to(
                                value
                            )
                        )
                    )
                    for name, value in self.program.factor_posteriors(points).weights.items()
                }
                weights = self._statistics(weights)
                objective = _Objective(self._in_m_step, _shapes(free), _shapes(weights), 2)
                if objective.has_kink(_vector(weights)):
                    return None
                every = torch.eye(size, dtype=torch.long, device=next(iter(free.values())).device)
                *_, products = objective.second(every)(
                    objective.point(objective.rows(free), _vector(weights))
                )
            except (RuntimeError, NotImplementedError):  # an operation without second derivatives
                return None
        if not bool(products.isfinite().all()):
            return None
        reach = {
            name: torch.full_like(value, torch.inf if points[name].equal(value) else REACH)
            for name, value in free.items()
        }
        colouring = Colouring.of(products.movedim(0, -1), objective.rows(reach)[0])
        return colouring if len(colouring.seeds) <= MOST_COLOURS else None

    def _replayed(
        self, half: str, count: int, evaluate: Callable[[Tensor], tuple[Tensor, ...]], point: Tensor
    ) -> Callable[[Tensor], tuple[Tensor, ...]]:
        if (half, count) not in self._replays:
            self._replays[half, count] = recorded(evaluate, point)
        return self._replays[half, count]


class SummedExpectation(Expectation):
    r"""Expectation of rows in blocks: bound, gradient and curvature summed over rows.

    .. math::

        Q(\theta' \mid \theta) = \sum_b \Big[ E_\theta \log p(x_b, z_b \mid \theta') + \frac{n_b}{N}
        \log p(\theta') \Big]

    Every block works out its posteriors at :math:`\theta` anew at every point, for they are as many
    as its rows. Which second derivatives there are is seen on the rows of ``program``.

    Args:
        program: with a sample of the rows; summed: adds up over all rows; num_rows: N.
        agreed: the point of the first of several processes, in each of them.
    """

    def __init__(
        self, program: Program, summed: Sums, num_rows: int, agreed: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__(program)
        self.summed, self.num_rows, self.agreed = summed, num_rows, agreed

    def log_likelihood(self, params: Params) -> Tensor:
        """Log-likelihood of all rows, at parameters (R, ...), (R,)."""

        def of_rows(program: Program) -> dict[str, Tensor]:
            with torch.no_grad():
                return {"value": program.log_marginal(params)}

        return self.summed(of_rows)["value"]

    def improve(self, params: Params, num_steps: int) -> Params:
        """Parameters (R, ...) after an EM step by :meth:`maximise`."""
        new = [self._improved(part, num_steps) for part in self._parts(params)]
        return {name: torch.cat([part[name] for part in new]) for name in params}

    def _improved(self, params: Params, num_steps: int) -> Params:
        free = {name: value.detach() for name, value in self.program.unconstrained(params).items()}
        count, colouring = len(next(iter(free.values()))), self._colouring
        objective = _Objective(self.program, _shapes(free), {}, count)

        def at_all(
            at: Tensor, ask: Callable[[_Objective, Tensor], tuple[Tensor, ...]]
        ) -> tuple[Tensor, ...]:
            at = self.agreed(at)

            def of_rows(program: Program) -> dict[str, Tensor]:
                weights = program.factor_posteriors(params).weights
                part = replace(
                    objective,
                    program=program,
                    factors=_shapes(weights),
                    prior_share=len(first_tensor(program.args[0])) / self.num_rows,
                )
                values = ask(part, part.point(at, _vector(weights)))
                return {str(number): value for number, value in enumerate(values)}

            return tuple(self.summed(of_rows).values())

        def gradient(at: Tensor) -> tuple[Tensor, Tensor]:
            value, slope = at_all(at, lambda part, point: part.first(point))
            return value, slope

        derivatives = None
        if colouring is not None:

            def derivatives(at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                value, slope, products = at_all(
                    at, lambda part, point: part.second(colouring.seeds)(point)
                )
                return value, slope, colouring.matrix(products)

        return self._climbed(
            objective, params, objective.rows(free), gradient, derivatives, num_steps, colouring
        )


@dataclass(frozen=True, eq=False)
class _Objective:
    """Expected complete-data log-posterior as a function of coordinates (R, P).

    Args:
        program: whose.
        shapes: of the free coordinates of every site, (R, ...); factors: of the posteriors.
        count: R.
        prior_share: how much of the log-prior belongs to these rows.
    """

    program: Program
    shapes: Shapes
    factors: Shapes
    count: int
    prior_share: float = 1.0

    def rows(self, values: Params) -> Tensor:
        """Free coordinates of every restart side by side, (R, P)."""
        return torch.cat([value.detach().reshape(self.count, -1) for value in values.values()], 1)

    def split(self, rows: Tensor) -> Params:
        """Split rows into coordinates by site, the inverse of :meth:`rows`."""
        pieces = rows.split([shape.numel() // self.count for shape in self.shapes.values()], 1)
        return {
            name: piece.reshape(shape)
            for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }

    def point(self, rows: Tensor, fixed: Tensor) -> Tensor:
        """Vector of the points of all restarts."""
        return torch.cat([rows.ravel(), fixed])

    def first(self, point: Tensor) -> tuple[Tensor, ...]:
        """Value (R,) and gradient (R, P)."""
        with torch.enable_grad():
            leaf, value = self._value(point)
            (slope,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), slope

    def second(self, seeds: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
        """Value, gradient, and second derivatives times each of the seeds (C, P), (C, R, P)."""

        def evaluate(point: Tensor) -> tuple[Tensor, ...]:
            with torch.enable_grad():
                leaf, value = self._value(point)
                (slope,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
                nothing = (
                    0.0 * leaf.sum()
                )  # a gradient that depends on nothing has derivatives of nought
                pushes = [((slope * seed).sum() + nothing) for seed in seeds.to(slope.dtype)]
                products = [
                    torch.autograd.grad(push, leaf, retain_graph=True)[0] for push in pushes
                ]
            return value.detach(), slope.detach(), torch.stack(products)

        return evaluate

    def _value(self, point: Tensor) -> tuple[Tensor, Tensor]:
        num_fixed = sum(shape.numel() for shape in self.factors.values())
        free, fixed = point[: len(point) - num_fixed], point[len(point) - num_fixed :]
        leaf = free.detach().reshape(self.count, -1).requires_grad_()
        nothing = torch.zeros(self.count, dtype=point.dtype, device=point.device)
        posteriors = FactorPosteriors(_split(fixed, self.factors), nothing, nothing)
        return leaf, self.program.expected_log_joint(
            self.program.constrained(self.split(leaf)), posteriors, self.prior_share
        )

    def has_kink(self, fixed: Tensor) -> bool:
        """Tell whether the gradient jumps where a coordinate changes its sign."""
        size = sum(shape.numel() for shape in self.shapes.values()) // self.count
        jumps = []
        for step in (STEP, STEP / 10):
            side = torch.full((self.count, size), step, dtype=fixed.dtype, device=fixed.device)
            (_, above), (_, below) = (self.first(self.point(x, fixed)) for x in (side, -side))
            jumps.append((above - below).abs())
        return bool(((jumps[1] > JUMP) & (jumps[1] > 0.5 * jumps[0])).any())


class _LogPosterior(_Objective):
    """Log-posterior of the parameters, latents summed out, as a function of coordinates (R, P)."""

    def _value(self, point: Tensor) -> tuple[Tensor, Tensor]:
        leaf = point.detach().reshape(self.count, -1).requires_grad_()
        params = self.program.constrained(self.split(leaf))
        return leaf, self.program.log_marginal(params) + self.program.log_prior(params)


def _by_gradient(
    gradient: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, unit: Tensor, num_steps: int
) -> Tensor:
    """L-BFGS of all restarts (R, P) together; one that does not gain stays where it was."""
    step = torch.zeros_like(start).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [step],
        max_iter=num_steps,
        tolerance_grad=1e-9,
        tolerance_change=1e-11,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        with torch.no_grad():
            value, slope = gradient(start + unit * step)
            step.grad = -(unit * slope)
        return -float(value.sum())

    before, _ = gradient(start)
    optimizer.step(closure)
    with torch.no_grad():
        end = start + unit * step
        return torch.where((gradient(end)[0] >= before).unsqueeze(1), end, start)


def _shapes(values: Mapping[str, Tensor]) -> Shapes:
    return {name: value.shape for name, value in values.items()}


def _vector(values: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([value.detach().reshape(-1) for value in values.values()])


def _split(vector: Tensor, shapes: Shapes) -> Params:
    pieces: Sequence[Tensor] = vector.split([shape.numel() for shape in shapes.values()])
    return {
        name: piece.reshape(shape)
        for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }


def unit_steps(program: Program, free: Params) -> Params:
    """Unit steps that move a parameter by about one, also on a wide interval."""
    leaves = {name: value.clone().requires_grad_() for name, value in free.items()}
    total = sum((value.sum() for value in program.constrained(leaves).values()), torch.zeros(()))
    grads = torch.autograd.grad(total, list(leaves.values()))
    return {
        name: grad.abs().clamp(min=1.0).reciprocal()
        for name, grad in zip(leaves, grads, strict=True)
    }
