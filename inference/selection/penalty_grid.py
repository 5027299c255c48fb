r"""A grid of penalties as one batched EM: G penalties times R starts are G R restarts of one program.

The E-step does not know the penalty, and in the M-step a constant is one number a restart, so the grid rides on the leading
dim that restarts have anyway. What differs between restarts besides parameters (the number of the grid point; in the refit
that follows, the graph) travels among the parameters as an entry that no step changes, so that finished restarts drop out
with what belongs to them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.base.outcome import ConvergenceWarning
from inference.base.progress import NoProgress
from inference.base.structure import Problem
from inference.engines.em import EM, EMState
from inference.fitting.fit import assemble
from inference.fitting.problem import problem_of
from inference.fitting.result import Fit
from inference.programs.alone import isolated, listening, quiet
from inference.programs.program import Program
from inference.structures.layers.em_steps import LayeredSteps, TowerStatistics
from inference.structures.layers.glm import Params
from inference.structures.layers.structure import LayeredStructure
from ppl_models.parts.penalties import Penalty, stacked, taken

__all__ = ["GridSteps", "fit_penalty_grid", "refit_penalty_grid"]

POINT, GRAPH = "grid point", "graph of "  # entries beside the parameters


@dataclass(frozen=True)
class GridSteps:
    """The two halves of EM where restarts differ in penalty or graph.

    Args:
        base: steps of the model without a penalty.
        offsets: (G,), what makes minus the penalty a log-density, for each grid point.
        penalty: the penalties stacked into one, or None.
    """

    base: LayeredSteps
    offsets: Tensor
    penalty: Penalty | None

    def e_step(self, params: Params) -> tuple[TowerStatistics, Tensor, Tensor]:
        statistics, log_likelihood, log_prior = self.base.e_step(_without_entries(params))
        index = params[POINT].long()
        log_prior = log_prior + self.offsets.to(log_prior)[index]
        if self.penalty is not None:
            own = taken(self.penalty, index)
            for layer in self.base.layers:
                log_prior = log_prior - own(params[layer.loadings]).sum((-2, -1))
        return statistics, log_likelihood, log_prior

    def m_step(self, statistics: TowerStatistics, params: Params) -> Params:
        own = None if self.penalty is None else taken(self.penalty, params[POINT].long())
        layers = []
        for layer in self.base.layers:
            graph = params.get(GRAPH + layer.loadings)
            layers.append(replace(layer, penalty=own, graph=layer.graph if graph is None else graph.bool()))
        new = replace(self.base, layers=tuple(layers)).m_step(statistics, _without_entries(params))
        return {name: new.get(name, value) for name, value in params.items()}

    def on(self, data: Tensor) -> GridSteps:
        return replace(self, base=self.base.on(data))

    def relax(self) -> GridSteps | None:
        return None if self.penalty is None else replace(self, penalty=self.penalty.convex())


def fit_penalty_grid(
    model: Any, data: Any, penalties: Sequence[Penalty], method: EM, num_restarts: int = 1, seed: int = 0
) -> list[Fit] | None:
    """Fits of a model under each penalty, all from the same starts; None for a model this does not apply to.

    Args:
        model: with layers and a field ``penalty``.
        data: its rows.
        penalties: of one kind.
        method: the engine.
        num_restarts: starts of each.
        seed: of the starts.
    """
    models = [replace(model, penalty=penalty) for penalty in penalties]
    problem = problem_of(replace(model, penalty=None), data, seed)
    base = method.accelerate and _base_steps(problem, method)
    if not base:
        return None
    start = problem.structure.start(problem, "spectral", num_restarts)
    if start is None:
        return None
    repeated = {name: torch.cat([value] * len(models)) for name, value in start.items()}
    penalty = stacked(penalties, start[base.layers[0].loadings])
    offsets = _log_priors(models, problem, start) - _log_priors([problem.model], problem, start)
    cost = [sum(float(p(start[x.loadings][:1]).sum()) for x in base.layers) for p in penalties]
    steps = GridSteps(base, offsets + torch.tensor(cost, dtype=offsets.dtype), penalty)
    return _run(steps, repeated, models, data, method, seed, start_given=False)


def refit_penalty_grid(models: Sequence[Any], data: Any, starts: Sequence[Params], method: EM, seed: int = 0) -> list[Fit] | None:
    """Fits of one model restricted to several graphs, each from its own start; None where this does not apply.

    Args:
        models: without penalties, of equal sizes, each with a graph in every layer.
        data: their rows.
        starts: parameters of each, zero off its graph.
        method: the engine.
        seed: recorded in the fits.
    """
    if not hasattr(models[0], "graphs"):
        return None
    problem = problem_of(replace(models[0], graphs=None), data, seed)
    base = method.accelerate and _base_steps(problem, method)
    if not base:
        return None
    repeated = {name: torch.stack([start[name] for start in starts]) for name in starts[0]}
    for d, layer in enumerate(base.layers):
        graphs = [own.layers()[d].graph for own in models]
        repeated[GRAPH + layer.loadings] = torch.stack(graphs).to(repeated[layer.loadings])
    first = {name: value[:1] for name, value in repeated.items() if not name.startswith(GRAPH)}
    priors = [_log_priors([own], problem, {n: v.unsqueeze(0) for n, v in s.items()}) for own, s in zip(models, starts, strict=True)]
    plain = [_log_priors([problem.model], problem, {n: v.unsqueeze(0) for n, v in s.items()}) for s in starts]
    offsets = torch.cat(priors) - torch.cat(plain)
    return _run(GridSteps(base, offsets.to(first[base.layers[0].loadings]), None), repeated, models, data, method, seed, True)


def _run(
    steps: GridSteps, start: Params, models: Sequence[Any], data: Any, method: EM, seed: int, start_given: bool
) -> list[Fit]:
    """One climb of all restarts, taken apart into one fit a model."""
    began = time.monotonic()
    each = len(next(iter(start.values()))) // len(models)
    like = start[steps.base.layers[0].loadings]
    point = torch.arange(len(models), device=like.device).repeat_interleave(each).to(like)
    with isolated(seed), quiet(ConvergenceWarning):  # said for each fit below
        state = method.climb(steps, start | {POINT: point}, start_given, NoProgress())
    seconds = (time.monotonic() - began) / len(models)
    return [_fit_of(state, g, each, own, data, method, seed, seconds) for g, own in enumerate(models)]


def _fit_of(
    state: EMState, point: int, each: int, model: Any, data: Any, method: EM, seed: int, seconds: float
) -> Fit:
    part = slice(point * each, (point + 1) * each)
    num_iterations = state.num_iterations[part]
    length = int(num_iterations.max())
    with listening() as caught:
        problem = problem_of(model, data, seed, start_given=True)
        own = replace(
            state,
            params={name: value[part] for name, value in _without_entries(state.params).items()},
            objective=state.objective[part],
            log_likelihood=state.log_likelihood[part],
            history=state.history[:length, part],
            history_log_likelihood=state.history_log_likelihood[:length, part],
            converged=state.converged[part],
            num_iterations=num_iterations,
        )
        if not own.converged.all():
            unfinished = int((~own.converged).sum())
            text = f"{unfinished} of {each} restarts did not converge in {method.max_iterations} iterations"
            warnings.warn(f"{model.penalty!r}: {text}: raise max_iterations, or loosen tolerance", ConvergenceWarning, stacklevel=2)
        result = assemble(problem, method, own.outcome(), seconds)
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=5)
    return replace(result, warnings=tuple(dict.fromkeys(str(warning.message) for warning in caught)))


def _base_steps(problem: Problem, method: EM) -> LayeredSteps | None:
    if not isinstance(problem.structure, LayeredStructure):
        return None
    steps = problem.structure.steps(problem, method.chunk_elements, method.num_inner)
    return steps if isinstance(steps, LayeredSteps) else None


def _log_priors(models: Sequence[Any], problem: Problem, start: Params) -> Tensor:
    """Log-prior of the first start under each model, (G,)."""
    row = problem.data[:1]
    first = {name: value[:1] for name, value in start.items()}
    with torch.no_grad():
        return torch.cat([Program(model, row).log_prior(first) for model in models])


def _without_entries(params: Params) -> Params:
    return {name: value for name, value in params.items() if name != POINT and not name.startswith(GRAPH)}
