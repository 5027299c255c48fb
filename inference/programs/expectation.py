"""Both halves of an EM step of a program, as replays of their tensor operations; see :mod:`inference.programs.replay`.

A user's program is traced once for each half and not once an evaluation: what is left is a list of tensor operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from inference.programs.elimination import FactorPosteriors
from inference.programs.program import Params, Program
from inference.programs.replay import recorded

__all__ = ["Expectation", "unit_steps"]

Shapes = dict[str, torch.Size]


class Expectation:
    """Posteriors of a program's factors, and the parameters that maximise the expected complete-data log-posterior under them.

    Restarts run as one batch where the program broadcasts, else one after the other.

    Args:
        program: with its data.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._replays: dict[tuple[str, int], Callable[[Tensor], tuple[Tensor, ...]]] = {}
        self._factors: dict[int, Shapes] = {}

    def posteriors(self, params: Params) -> FactorPosteriors:
        """Posterior of every factor, log-likelihood and log-prior at parameters (R, ...), a list's worth of restarts stacked."""
        parts = [self._posteriors(part) for part in self._parts(params)]
        weights = {name: torch.cat([part.weights[name] for part in parts]) for name in parts[0].weights} if len(parts) > 1 else parts[0].weights
        return FactorPosteriors(weights, torch.cat([p.log_marginal for p in parts]), torch.cat([p.log_prior for p in parts]))

    def maximise(self, posteriors: FactorPosteriors, params: Params, num_steps: int) -> Params:
        """L-BFGS on the unconstrained parameters; a restart that does not gain keeps its parameters."""
        parts = self._parts(params)
        new = [self._maximise(self._weights(posteriors, r, len(parts)), part, num_steps) for r, part in enumerate(parts)]
        return {name: torch.cat([part[name] for part in new]) for name in params}

    # ---------------------------------------------------------------- restarts

    def _parts(self, params: Params) -> list[Params]:
        """What runs at once: everything, or restart by restart, each with a leading dim of one."""
        count = len(next(iter(params.values())))
        if count == 1 or self.program.broadcasts():
            return [params]
        return [{name: value[r : r + 1] for name, value in params.items()} for r in range(count)]

    def _weights(self, posteriors: FactorPosteriors, part: int, num_parts: int) -> Params:
        return posteriors.weights if num_parts == 1 else {name: value[part : part + 1] for name, value in posteriors.weights.items()}

    # ---------------------------------------------------------------- one part

    def _posteriors(self, params: Params) -> FactorPosteriors:
        free = self.program.unconstrained(params)
        shapes, count = _shapes(free), len(next(iter(free.values())))
        point = _vector(free)

        def evaluate(values: Tensor) -> tuple[Tensor, ...]:
            found = self.program.factor_posteriors(self.program.constrained(_split(values, shapes)))
            self._factors[count] = _shapes(found.weights)
            nothing = 0.0 * values.sum()  # an output that depends on no parameter is one that depends by nought
            return tuple(value + nothing for value in (*found.weights.values(), found.log_marginal, found.log_prior))

        *weights, log_marginal, log_prior = (value.detach() for value in self._replayed("E", count, evaluate, point)(point))
        return FactorPosteriors(dict(zip(self._factors[count], weights, strict=True)), log_marginal, log_prior)

    def _maximise(self, weights: Params, params: Params, num_steps: int) -> Params:
        free = {name: value.detach() for name, value in self.program.unconstrained(params).items()}
        shapes, factors, count = _shapes(free), _shapes(weights), len(next(iter(free.values())))
        start, fixed = _vector(free), _vector(weights)
        unit = _vector(unit_steps(self.program, free))

        def evaluate(values: Tensor) -> tuple[Tensor, ...]:
            with torch.enable_grad():
                leaf = values[: len(start)].detach().requires_grad_()
                own = self.program.constrained(_split(leaf, shapes))
                nothing = torch.zeros(count, dtype=start.dtype, device=start.device)
                posteriors = FactorPosteriors(_split(values[len(start) :], factors), nothing, nothing)
                value = self.program.expected_log_joint(own, posteriors)
                (slope,) = torch.autograd.grad(value.sum(), leaf)
            return value.detach(), slope

        replay = self._replayed("M", count, evaluate, torch.cat([start, fixed]))
        step = torch.zeros_like(start).requires_grad_()
        optimizer = torch.optim.LBFGS([step], max_iter=num_steps, tolerance_grad=1e-9, tolerance_change=1e-11, line_search_fn="strong_wolfe")

        def closure() -> float:
            with torch.no_grad():
                value, slope = replay(torch.cat([start + unit * step, fixed]))
                step.grad = -(unit * slope)
            return -float(value.sum())

        before, _ = replay(torch.cat([start, fixed]))
        optimizer.step(closure)
        with torch.no_grad():
            end = start + unit * step
            better = replay(torch.cat([end, fixed]))[0] >= before
            new = self.program.constrained(_split(end, shapes))
            return {name: torch.where(better.reshape((-1,) + (1,) * (value.dim() - 1)), value, params[name]) for name, value in new.items()}

    def _replayed(self, half: str, count: int, evaluate: Callable[[Tensor], tuple[Tensor, ...]], point: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
        if (half, count) not in self._replays:
            self._replays[half, count] = recorded(evaluate, point)
        return self._replays[half, count]


def _shapes(values: Mapping[str, Tensor]) -> Shapes:
    return {name: value.shape for name, value in values.items()}


def _vector(values: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([value.detach().reshape(-1) for value in values.values()])


def _split(vector: Tensor, shapes: Shapes) -> Params:
    pieces: Sequence[Tensor] = vector.split([shape.numel() for shape in shapes.values()])
    return {name: piece.reshape(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def unit_steps(program: Program, free: Params) -> Params:
    """Steps that move a parameter by at most about one: on a wide interval the free scale is hundreds of units long."""
    leaves = {name: value.clone().requires_grad_() for name, value in free.items()}
    total = sum((value.sum() for value in program.constrained(leaves).values()), torch.zeros(()))
    grads = torch.autograd.grad(total, list(leaves.values()))
    return {name: grad.abs().clamp(min=1.0).reciprocal() for name, grad in zip(leaves, grads, strict=True)}


