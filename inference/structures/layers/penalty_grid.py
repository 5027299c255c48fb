"""Grid of penalties as one batched EM: G penalties times R starts are G R restarts.

The E-step does not know the penalty, and in the M-step a constant is one number a restart, so the
grid rides on the leading dim that restarts have anyway. What differs between restarts besides
parameters (the number of the grid point; in the refit that follows, the graph) travels among the
parameters as an entry that no step changes, so that finished restarts drop out with what belongs to
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.base.checkpoint import Checkpoint
from inference.base.outcome import ConvergenceWarning
from inference.base.progress import Progress
from inference.base.steps import EStep, Steps
from inference.base.structure import Problem
from inference.engines.em import EM, EMState
from inference.programs.global_state import isolated, quiet
from inference.programs.program import Program
from inference.structures.layers.em_steps import LayeredSteps, TowerStatistics
from inference.structures.layers.glm import Params
from ppl_models.parts.penalties import Penalty, stacked, taken

POINT, GRAPH = "grid point", "graph of "  # entries beside the parameters


@dataclass(frozen=True)
class GridSteps(Steps[TowerStatistics]):
    """EM steps where restarts differ in penalty or graph.

    Args:
        base: steps of the model without a penalty.
        offsets: (G,), what makes minus the penalty a log-density, for each grid point.
        penalty: the penalties stacked into one, or None.
    """

    base: LayeredSteps
    offsets: Tensor
    penalty: Penalty | None

    def e_step(self, params: Params) -> EStep[TowerStatistics]:
        """E-step of the base, with each grid point's penalty in the log-prior."""
        statistics, log_likelihood, log_prior = self.base.e_step(without_entries(params))
        index = params[POINT].long()
        log_prior = log_prior + self.offsets.to(log_prior)[index]
        if self.penalty is not None:
            own = taken(self.penalty, index)
            for layer in self.base.layers:
                log_prior = log_prior - own(params[layer.loadings]).sum((-2, -1))
        return EStep(statistics, log_likelihood, log_prior)

    def m_step(self, statistics: TowerStatistics, params: Params) -> Params:
        """M-step with the penalty and the graph of each restart."""
        own = None if self.penalty is None else taken(self.penalty, params[POINT].long())
        layers = []
        for layer in self.base.layers:
            graph = params.get(GRAPH + layer.loadings)
            layers.append(
                replace(layer, penalty=own, graph=layer.graph if graph is None else graph.bool())
            )
        new = replace(self.base, layers=tuple(layers)).m_step(statistics, without_entries(params))
        return {name: new.get(name, value) for name, value in params.items()}

    def on(self, data: Tensor, weights: Tensor | None = None) -> GridSteps:
        self.refuse_weights(weights)
        return replace(self, base=self.base.on(data))

    def relax(self) -> GridSteps | None:
        """Steps under the convex penalty, or None without one."""
        return None if self.penalty is None else replace(self, penalty=self.penalty.convex())


def climb_penalties(
    problem: Problem,
    models: Sequence[Any],
    start: Params,
    method: EM,
    progress: Progress,
    store: Checkpoint | None = None,
) -> EMState | None:
    """EM under each penalty, all from the same starts.

    Restarts g R to (g + 1) R of the state are those of model g.

    ``problem``: of the model without a penalty; ``models``: the model under penalties of one kind;
    ``start``: (R, ...); ``method``: the engine; ``progress``: where it says how far it is;
    ``store``: where it keeps the run.

    Returns:
        None for a model without accelerated steps.
    """
    base = _base_steps(problem, method)
    if base is None:
        return None
    penalties = [own.penalty for own in models]
    repeated = {name: torch.cat([value] * len(models)) for name, value in start.items()}
    penalty = stacked(penalties, start[base.layers[0].loadings])
    offsets = _log_priors(models, problem, start) - _log_priors([problem.model], problem, start)
    cost = [sum(float(p(start[x.loadings][:1]).sum()) for x in base.layers) for p in penalties]
    steps = GridSteps(base, offsets + torch.tensor(cost, dtype=offsets.dtype), penalty)
    return _climb(
        steps, problem, repeated, len(models), method, problem.start_given, progress, store
    )


def climb_graphs(
    problem: Problem,
    models: Sequence[Any],
    starts: Sequence[Params],
    method: EM,
    progress: Progress,
    store: Checkpoint | None = None,
) -> EMState | None:
    """EM on each of several graphs; restart g of the state is that of model g.

    ``problem``: of the model without penalty or graph; ``models``: the model restricted to a graph
    in every layer; ``starts``: parameters of each without leading dims, zero off its graph;
    ``method``, ``progress``, ``store``: see :func:`climb_penalties`.

    Returns:
        None for a model without accelerated steps.
    """
    base = _base_steps(problem, method)
    if base is None:
        return None
    repeated = {name: torch.stack([start[name] for start in starts]) for name in starts[0]}
    for d, layer in enumerate(base.layers):
        graphs = [own.layers()[d].graph for own in models]
        repeated[GRAPH + layer.loadings] = torch.stack(graphs).to(repeated[layer.loadings])
    rows = [{n: v.unsqueeze(0) for n, v in s.items()} for s in starts]
    priors = [_log_priors([own], problem, row) for own, row in zip(models, rows, strict=True)]
    plain = [_log_priors([problem.model], problem, row) for row in rows]
    offsets = (torch.cat(priors) - torch.cat(plain)).to(repeated[base.layers[0].loadings])
    return _climb(
        GridSteps(base, offsets, None),
        problem,
        repeated,
        len(models),
        method,
        True,
        progress,
        store,
    )


def _climb(
    steps: GridSteps,
    problem: Problem,
    start: Params,
    num_points: int,
    method: EM,
    start_given: bool,
    progress: Progress,
    store: Checkpoint | None,
) -> EMState:
    each = len(next(iter(start.values()))) // num_points
    like = start[steps.base.layers[0].loadings]
    point = torch.arange(num_points, device=like.device).repeat_interleave(each).to(like)
    with isolated(), quiet(ConvergenceWarning):  # said by who takes the state apart
        return method.climb(
            steps, start | {POINT: point}, start_given, progress, store, problem.supports
        )


def part_of(state: EMState, point: int, each: int) -> EMState:
    """State of the restarts of one grid point, with parameters alone."""
    part = slice(point * each, (point + 1) * each)
    num_iterations = state.num_iterations[part]
    length = int(num_iterations.max())
    return replace(
        state,
        params={name: value[part] for name, value in without_entries(state.params).items()},
        objective=state.objective[part],
        log_likelihood=state.log_likelihood[part],
        history=state.history[:length, part],
        history_log_likelihood=state.history_log_likelihood[:length, part],
        converged=state.converged[part],
        num_iterations=num_iterations,
    )


def unfinished_text(state: EMState, method: EM) -> str | None:
    """Warning about restarts that did not converge, None where all did."""
    unfinished = int((~state.converged).sum())
    if not unfinished:
        return None
    text = (
        f"{unfinished} of {len(state.converged)} restarts did not converge in"
        f" {method.max_iterations} iterations"
    )
    return f"{text}: raise max_iterations, or loosen tolerance"


def _base_steps(problem: Problem, method: EM) -> LayeredSteps | None:
    if not method.accelerate:
        return None
    steps = problem.structure.steps(
        problem, method.elements_at_once(problem.data), method.num_inner
    )
    return steps if isinstance(steps, LayeredSteps) else None


def _log_priors(models: Sequence[Any], problem: Problem, start: Params) -> Tensor:
    """Log-prior of the first start under each model, (G,)."""
    row = problem.data[:1]
    first = {name: value[:1] for name, value in start.items()}
    with torch.no_grad():
        return torch.cat([Program(model, row).log_prior(first) for model in models])


def without_entries(params: Params) -> Params:
    """Parameters without the entries of the grid."""
    return {
        name: value
        for name, value in params.items()
        if name != POINT and not name.startswith(GRAPH)
    }
