r"""Quadrature in EM: nodes for continuous latents of rows, as many as keep estimates in place.

At an estimate with so many nodes, let g be the gradient of the log-posterior by about twice as
many, centred at that estimate, less its own, and I the observed information. The estimate by the
finer nodes lies about :math:`I^{-1} g` away, and no entry of it further than

.. math:: \delta = \sqrt{g^\top I^{-1} g}

of its standard errors. Where that is more than is asked for, nodes are centred at the posterior of
every row, EM goes on from the estimate, and from the second time on with about twice as many nodes.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.base.optima import rank_restarts
from inference.base.outcome import EstimateWarning, Outcome
from inference.base.progress import Progress
from inference.base.structure import Structure, sampled_sites
from inference.programs.curvature import data_chunks, minus_hessian
from inference.programs.parameters import FAR
from inference.programs.program import Params, Program
from inference.programs.quadrature import (
    Quadrature,
    integrated,
    quadrature_for,
    quadrature_of,
)
from ppl_models.parts.repr import listed

if TYPE_CHECKING:
    from inference.base.structure import Problem
    from inference.engines.em import EM

logger = logging.getLogger(__name__)

FIRST_NODES = {1: 11, 2: 7}  # in each dim, by the number of dims of a row
MOST_NODES = {1: 95, 2: 31}
MOST_OPTIMA = 2  # of the first nodes, that are refined
MOST_COORDINATES = 400  # whose second derivatives are worked out
FLAT = 1e-9  # of the largest curvature: along less than that nothing moves


def with_nodes(problem: Problem, must: bool) -> Problem:
    """Problem whose continuous latents of rows are nodes of quadrature, where that can be.

    Args:
        problem: of a program of the user; must: whether there is no other engine to go to.

    Raises:
        ValueError: where it must and cannot be, saying why.

    Warns:
        EstimateWarning: where its shapes alone are in the way, so that all latents are drawn.
    """
    if problem.rows is not None or not sampled_sites(
        problem.structure, problem.program_of_one_row()
    ):
        return problem
    program = problem.program()
    names = sampled_sites(problem.structure, program)
    if not names or program.first_trace is None:
        return problem
    try:
        rule = quadrature_for(
            program.first_trace.nodes, {name: program.site(name) for name in names}, FIRST_NODES
        )
    except ValueError as error:
        if must:
            raise
        logger.info("continuous latents of the rows are drawn, for %s", error)
        return problem
    new = _ruled(problem, rule)
    try:
        new.program().check_enumerable()
    except ValueError as error:
        if must:
            raise
        warnings.warn(
            f"NUTS() draws the continuous latents of the rows, {listed(names)}, which quadrature,"
            f" a matter of seconds, cannot sum over as they stand: {error}",
            EstimateWarning,
            stacklevel=4,
        )
        return problem
    return new


def refined(problem: Problem, outcome: Outcome, method: EM, progress: Progress) -> Outcome:
    """Outcome with nodes enough that its estimate stays where it is, of the best two optima.

    Args:
        problem: that the engine solved, its continuous latents nodes; outcome: what it found.
        method: the engine; progress: of the fit.

    Warns:
        EstimateWarning: where the most nodes there are do not suffice.
    """
    rule = quadrature_of(problem.model)
    if rule is None or not outcome.params or problem.rows is not None:
        return outcome
    optimum = rank_restarts(problem, outcome.params, outcome.objective).optimum
    starts = [
        int((optimum == k).nonzero()[0]) for k in range(min(MOST_OPTIMA, int(optimum.max()) + 1))
    ] or [int(outcome.objective.nan_to_num(-math.inf).argmax())]
    counts = outcome.replicates
    counts = torch.ones_like(optimum) if counts is None else counts
    tried = outcome.num_tried or (len(optimum) if len(optimum) > 1 else None)
    found = []
    for r in starts:
        new, own = _refined(problem, _only(outcome, r), rule, method, progress)
        reached = counts[optimum == optimum[r]].sum().reshape(1)
        model = integrated(problem.model, own)
        found.append(
            (
                own,
                dataclasses.replace(new, model=model, num_tried=tried, replicates=reached),
            )
        )
    rule, best = max(found, key=lambda pair: float(pair[1].objective))
    if rule.error > method.integration_error and not progress.stopped:
        warnings.warn(
            f"integrals over {', '.join(rule.dims)} by {rule.num_nodes} nodes: twice as many would "
            f"move an estimate by up to {rule.error:.2g} of its standard error, more than "
            f"integration_error={method.integration_error:g}: NUTS() draws them instead",
            EstimateWarning,
            stacklevel=3,
        )
    return best


def _refined(
    problem: Problem, outcome: Outcome, rule: Quadrature, method: EM, progress: Progress
) -> tuple[Outcome, Quadrature]:
    """Outcome of one start, and its rule with its errors."""
    most, is_first = MOST_NODES[sum(rule.dims.values())], True
    while True:
        params = {name: value[0] for name, value in outcome.params.items()}
        finer = dataclasses.replace(rule, num_nodes=2 * rule.num_nodes + 1, at=params)
        error, nats = _errors(problem, finer, params)
        rule = dataclasses.replace(rule, error=error, log_likelihood_error=nats)
        logger.info(
            "%d nodes, %s: %.2g standard errors, %.2g nats from %d nodes",
            rule.num_nodes,
            "the same in all rows" if rule.at is None else "centred in each row",
            rule.error,
            rule.log_likelihood_error,
            finer.num_nodes,
        )
        enough = rule.error <= method.integration_error or finer.num_nodes > most
        if enough or progress.stopped:
            return outcome, rule
        rule = rule if is_first else finer
        rule, is_first = dataclasses.replace(rule, at=params), False
        problem = dataclasses.replace(_ruled(problem, rule), start_given=True)
        start = {name: value[None] for name, value in params.items()}
        outcome = method.run(problem, start, progress, None)


def _only(outcome: Outcome, r: int) -> Outcome:
    """Outcome of one restart."""
    return dataclasses.replace(
        outcome,
        params={name: value[r : r + 1] for name, value in outcome.params.items()},
        **{
            name: getattr(outcome, name)[r : r + 1]
            for name in ("objective", "log_likelihood", "converged", "num_iterations")
        },
        history=outcome.history[:, r : r + 1],
        history_log_likelihood=outcome.history_log_likelihood[:, r : r + 1],
        objective_left=None
        if outcome.objective_left is None
        else outcome.objective_left[r : r + 1],
        fate=None if outcome.fate is None else outcome.fate[r : r + 1],
    )


def _ruled(problem: Problem, rule: Quadrature) -> Problem:
    model = integrated(problem.model, rule)
    structure = Structure(model)
    return dataclasses.replace(
        problem, model=model, structure=structure, cache={}, trial_results={}
    )


def _errors(problem: Problem, finer: Quadrature, params: Params) -> tuple[float, float]:
    """Distance of estimates from those of finer nodes, in standard errors, and in nats."""
    params = {name: value.double() for name, value in params.items()}
    ours, theirs = (
        next(data_chunks(model, problem.data)).weighed(problem.weights)
        for model in (problem.model, integrated(problem.model, finer))
    )
    inner = {
        name: value if value.equal(params[name]) else value.nan_to_num().clamp(-FAR, FAR)
        for name, value in ours.unconstrained(params).items()
    }
    free = torch.cat([value.reshape(-1) for value in inner.values()]).detach()

    def log_posterior(program: Program) -> Callable[[Tensor], Tensor]:
        def of(at: Tensor) -> Tensor:
            parts = at.split([value.numel() for value in inner.values()])
            values = program.constrained(
                {
                    name: part.reshape(value.shape)
                    for (name, value), part in zip(inner.items(), parts, strict=True)
                }
            )
            return program.log_marginal(values) + program.log_prior(values)

        return of

    at = free.clone().requires_grad_()
    with torch.enable_grad():
        difference = log_posterior(theirs)(at) - log_posterior(ours)(at)
    nats = float(difference.detach())
    (gap,) = torch.autograd.grad(difference, at)
    if len(free) > MOST_COORDINATES:  # no more than what could be gained
        return math.sqrt(2 * abs(nats)), nats
    values, turns = torch.linalg.eigh(minus_hessian(log_posterior(ours), free))
    bent = values > FLAT * values.abs().max()
    steps = (turns[:, bent].mT @ gap).square() / values[bent]
    return float(steps.sum().sqrt()), nats
