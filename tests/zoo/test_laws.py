"""One table of small models; every law that holds for any of them is asked of all of them.

To add a family, add one :class:`Row` to ``ZOO``: its program, a truth, the shapes of its sites and
its log-likelihood written down by hand. Laws of described layers (accelerated steps, alignment)
apply where the model describes layers.
"""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import TraceEnum_ELBO, config_enumerate
from scipy import stats
from support.brute_force import brute_force, enumerated_parents, plain_trace
from torch import Tensor
from torch.distributions import biject_to, constraints
from zoo.row import F64, Params, Row
from zoo.table import (
    LAYERED,
    NUM_RESTARTS,
    NUM_ROWS,
    UNPENALISED,
    ZOO,
    at,
    close,
    data_of,
    every_row,
    every_row_but_swept,
    layered_rows,
    near,
    params_of,
    program_of,
    quick_fit,
    rows_of_quick_fit,
    rows_that_draw,
    rows_without_local,
    simulated,
    truth_by_hand,
)

from inference import EM, Fit, fit
from inference.alignment import align
from inference.base.progress import NoProgress
from inference.base.steps import GenericSteps, Steps, summed_statistics
from inference.base.structure import (
    Capability,
    Problem,
    Structure,
    latent_posteriors,
    marginal_rows,
)
from inference.fitting import export
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from inference.structures.layers.em_steps import LayeredSteps
from inference.structures.mixture.structure import MixtureStructure
from inference.structures.registry import structure_of
from ppl_models import Ridge
from ppl_models.descriptions.layers import RootLayer

# ---------------------------------------------------------------- deep discrete encoders


# ---------------------------------------------------------------- plain Pyro programs


# ---------------------------------------------------------------- cases


# ---------------------------------------------------------------- laws of the density


@rows_that_draw
def test_a_prior_draw_has_the_declared_shapes(row: Row) -> None:
    trace = plain_trace(row.model, {}, None, 7)
    samples = {
        name: node
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and name != "rows"
    }
    assert set(samples) - {"units"} == set(row.event_shapes)
    for name, shape in row.event_shapes.items():
        value = samples[name]["value"]
        is_global = name in row.truth
        assert value.shape == (torch.Size(shape) if is_global else torch.Size((7, *shape))), name
        assert value.dtype == F64 or not value.is_floating_point(), name
        if is_global:
            assert bool(samples[name]["fn"].support.check(value).all()), name
    draws = program_of(row).draw_prior(2, seed=0)
    assert {name: value.shape for name, value in draws.items()} == {
        name: (2, *value.shape) for name, value in row.truth.items()
    }


@every_row
def test_enumeration_equals_brute_force(row: Row) -> None:
    rows = program_of(row).log_marginal_rows(params_of(row))
    total = program_of(row).log_marginal(params_of(row))
    for restart in range(NUM_RESTARTS):
        expected = truth_by_hand(row, restart).log_marginal
        close(rows[restart], expected)
        close(total[restart], expected.sum())


@every_row
def test_the_likelihood_is_the_one_written_by_hand(row: Row) -> None:
    params = {name: value.numpy() for name, value in at(params_of(row), 0).items()}
    expected = row.log_likelihood(params, data_of(row).numpy())
    close(program_of(row).log_marginal_rows(at(params_of(row), 0)), expected)


@every_row
def test_log_joint_is_that_of_a_plain_trace(row: Row) -> None:
    params = params_of(row)
    latents: dict[str, list[Tensor]] = {}
    expected = []
    for restart in range(NUM_RESTARTS):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(restart)
            trace = pyro.poutine.trace(
                pyro.poutine.condition(row.model, at(params, restart))
            ).get_trace(data_of(row))
        expected.append(trace.log_prob_sum())
        for name in program_of(row).names("latent"):
            latents.setdefault(name, []).append(trace.nodes[name]["value"])
    stacked = {name: torch.stack(values) for name, values in latents.items()}
    close(program_of(row).log_joint(params, stacked), torch.stack(expected))
    close(program_of(row).log_joint(at(params, 1), at(stacked, 1)), expected[1])


@every_row
def test_log_marginal_is_the_loss_of_pyro(row: Row) -> None:
    params = at(params_of(row), 0)
    conditioned = config_enumerate(pyro.poutine.condition(row.model, params), default="parallel")
    loss = TraceEnum_ELBO(max_plate_nesting=1, strict_enumeration_warning=False).loss(
        conditioned, lambda *args: None, data_of(row)
    )
    program = program_of(row)
    close(program.log_marginal(params) + program.log_prior(params), -loss)


@every_row
def test_a_batch_of_restarts_is_each_of_them(row: Row) -> None:
    program, params = program_of(row), params_of(row)
    posteriors = program.factor_posteriors(params)
    moved = params | near(row, NUM_RESTARTS, seed=4)
    expected_density = program.expected_complete_log_density(moved, posteriors)
    marginals = program.latent_marginals(params)
    for restart in range(NUM_RESTARTS):
        one = at(params, restart)
        close(program.log_marginal_rows(params)[restart], program.log_marginal_rows(one))
        close(program.log_prior(params)[restart], program.log_prior(one))
        close(posteriors.log_marginal[restart], program.log_marginal(one))
        close(posteriors.log_prior[restart], program.log_prior(one))
        alone = program.factor_posteriors(one)
        close(
            expected_density[restart],
            program.expected_complete_log_density(at(moved, restart), alone),
        )
        for name, weight in alone.weights.items():
            batch = posteriors.weights[name]
            close(
                batch.select(-2, restart).flatten() if batch.dim() > 1 else batch, weight.flatten()
            )
        for name, value in program.latent_marginals(one).items():
            close(marginals[name][restart], value)


# ---------------------------------------------------------------- laws of the posterior


@every_row
def test_factor_posteriors_equal_brute_force(row: Row) -> None:
    program, params, by_hand = program_of(row), at(params_of(row), 0), truth_by_hand(row, 0)
    posteriors = program.factor_posteriors(params)
    parents = enumerated_parents(row.model, params, 1, data_of(row))
    assert set(posteriors.weights) == set(
        program.names("latent") + program.names("local") + program.names("observed")
    )
    for name, weight in posteriors.weights.items():
        dims = sorted(parents.get(name, {}))  # the leftmost first; continuous latents have none
        expected = by_hand.marginal(*(parents[name][dim] for dim in dims))  # (V, ..., N)
        has_rows = weight.dim() > 0 and weight.shape[-1] == NUM_ROWS
        assert has_rows or name not in program.names("observed")
        if has_rows:
            found = weight.reshape(expected.shape)
            close(found.flatten(0, -2).sum(0) if dims else found, torch.ones(NUM_ROWS, dtype=F64))
        else:  # a factor that is the same for all rows: summed over them
            expected = expected.sum(-1)
            found = weight.reshape(expected.shape)
            close(found.sum(), float(NUM_ROWS))
        close(found, expected)


@every_row
def test_latent_marginals_means_and_modes_equal_brute_force(row: Row) -> None:
    program, params, by_hand = program_of(row), at(params_of(row), 0), truth_by_hand(row, 0)
    marginals, means, modes = (
        program.latent_marginals(params),
        program.latent_means(params),
        program.latent_modes(params),
    )
    values, structure = program.latent_values(params), structure_of(row.model)
    closed = latent_posteriors(structure, program, params)
    if isinstance(structure, MixtureStructure):
        close(marginal_rows(structure, program, params), program.log_marginal_rows(params))
    assert set(marginals) == set(by_hand.values)
    for name, value in by_hand.values.items():
        close(values[name], value)
        expected = by_hand.marginal(name).mT
        close(marginals[name], expected)
        close(marginals[name].sum(-1), torch.ones(NUM_ROWS, dtype=F64))
        close(means[name], expected @ value if value.dim() > 1 else expected)
        if isinstance(structure, MixtureStructure):
            close(closed[name], means[name])
        if program.is_own:
            close(modes[name], value[expected.argmax(-1)])
    if not program.is_own:  # all latents together; exchangeable ones have several maxima
        taken = [
            (value[by_hand.index[name][:, 0]][:, None] == modes[name]).reshape(
                *by_hand.log_joint.shape, -1
            )
            for name, value in by_hand.values.items()
        ]
        is_mode = torch.cat(taken, -1).all(-1)
        reached = by_hand.log_joint.masked_fill(~is_mode, -torch.inf).amax(0)
        close(reached, by_hand.log_joint.amax(0))


@every_row
def test_fishers_identity(row: Row) -> None:
    """The gradient of the log-marginal is that of the expected complete-data log-density, by two
    routes.
    """
    program, data = program_of(row), data_of(row)
    leaves = {name: value.clone().requires_grad_() for name, value in at(params_of(row), 0).items()}
    names = list(leaves)
    posteriors = program.factor_posteriors(at(params_of(row), 0))

    def gradient(value: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(value, [leaves[name] for name in names]))

    marginal = gradient(program.log_marginal(leaves))
    expected = gradient(program.expected_complete_log_density(leaves, posteriors))
    weights = truth_by_hand(row, 0).posterior
    complete = gradient((weights * brute_force(row.model, leaves, data).log_joint).sum())
    assert max(float(g.abs().max()) for g in marginal) > 1e-2  # the law is not about zeros
    for name, one, two, three in zip(names, marginal, expected, complete, strict=True):
        torch.testing.assert_close(
            one, two, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}"
        )
        torch.testing.assert_close(
            one, three, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}"
        )


@every_row
def test_expected_complete_log_density_elsewhere(row: Row) -> None:
    """At parameters other than those of the posterior: the function the M-step climbs."""
    program = program_of(row)
    posteriors = program.factor_posteriors(at(params_of(row), 0))
    expected = (truth_by_hand(row, 0).posterior * truth_by_hand(row, 1).log_joint).sum()
    close(program.expected_complete_log_density(at(params_of(row), 1), posteriors), expected)


REPEATS = 400  # independent draws of every row's latents


@every_row
def test_exact_draws_of_latents_follow_the_posterior(row: Row) -> None:
    """Joint draws of all latents of a row against the posterior of its configurations, by z-scores
    over three seeds.
    """
    params, by_hand = at(params_of(row), 0), truth_by_hand(row, 0)
    kept = data_of(row)[:3]
    program = Program(row.model, kept.repeat(REPEATS, *(1,) * (kept.dim() - 1)))
    params = params | {
        name: params[name][:3].repeat(REPEATS, *(1,) * (params[name].dim() - 1))
        for name in row.local
    }
    counts = torch.zeros(len(by_hand.log_joint), 3)
    for seed in range(3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            draws = program.sample_latents(params, 1)
        agrees = torch.ones(len(by_hand.log_joint), 3 * REPEATS, dtype=torch.bool)
        for name, value in draws.items():
            visited = by_hand.values[name][by_hand.index[name][:, 0]]  # (C, *event)
            same = visited[:, None] == value[0]
            agrees &= same if same.dim() == 2 else same.all(-1)
        assert bool((agrees.sum(0) == 1).all())
        counts += agrees.reshape(-1, REPEATS, 3).sum(1)
    expected = 3 * REPEATS * by_hand.posterior[:, :3]
    likely = expected > 10  # a normal score means something
    rest = (expected * ~likely).sum(0), (counts * ~likely).sum(0)
    score = (counts - expected) / (expected * (1 - expected / (3 * REPEATS))).clamp(
        min=1e-12
    ).sqrt()
    assert int(likely.sum()) >= 3
    assert float(score[likely].abs().max()) < 6.0
    assert bool((rest[1] <= rest[0] + 6 * rest[0].sqrt() + 12).all())


# ---------------------------------------------------------------- laws of the fit


@functools.cache
def recorded_steps(row: Row) -> tuple[Problem, GenericSteps]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant column, a fit that has not converged
        problem = problem_of(row.model, data_of(row), 0)
        steps = EM(accelerate=False).steps(problem)
    assert isinstance(steps, GenericSteps)
    return problem, steps


def generic_steps(row: Row, num_steps: int) -> tuple[Problem, GenericSteps]:
    """EM steps of the program alone, with so many inner ones; all laws replay one recording of it,
    which is dear.
    """
    problem, steps = recorded_steps(row)
    mine = replace(steps, num_steps=num_steps)
    vars(mine)["_halves"] = steps._halves
    return problem, mine


def objectives(row: Row, problem: Problem, steps: Steps, num_iterations: int) -> Tensor:
    """The objective of every restart at every iteration, from scattered starts, (iterations, R)."""
    params = near(row, NUM_RESTARTS, seed=6, size=1.0)
    statistics, log_likelihood, log_prior = steps.e_step(params)
    out = [log_likelihood + log_prior]
    for _ in range(num_iterations):
        params = steps.m_step(statistics, params)
        statistics, log_likelihood, log_prior = steps.e_step(params)
        out.append(log_likelihood + log_prior)
    close(log_likelihood, problem.program().log_marginal(params))
    close(log_prior, problem.program().log_prior(params))
    return torch.stack(out)


def assert_rising(history: Tensor) -> None:
    slack = 1e-10 * (1 + history[:-1].abs())
    assert bool((history[1:] >= history[:-1] - slack).all()), history.diff(dim=0)
    assert bool((history[-1] > history[0] + 1e-3).all())


@layered_rows
def test_accelerated_em_never_loses(row: Row) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant column
        problem = problem_of(row.model, data_of(row), 0)
        steps = EM().steps(problem)
    assert isinstance(steps, LayeredSteps)
    assert_rising(objectives(row, problem, steps, 12))


@rows_without_local
def test_generic_em_never_loses(row: Row) -> None:
    # any number of inner steps keeps the promise; more only cost time
    assert_rising(objectives(row, *generic_steps(row, num_steps=5), 2))


@pytest.mark.parametrize("accelerate", [True, False])
def test_a_fit_reports_the_objective_of_every_iteration(accelerate: bool) -> None:
    """The loop itself, to convergence of its report: trace, restarts and final values belong
    together.
    """
    row = next(row for row in ZOO if row.name == "encoder-truncated-lasso")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = problem_of(row.model, data_of(row), 0, start_given=True)
        method = EM(accelerate=accelerate, max_iterations=40 if accelerate else 2)
        state = method.run(problem, near(row, 2, seed=6, size=1.0), NoProgress(), None)
    assert_rising(
        torch.cat([state.history.nan_to_num(nan=-math.inf).cummax(0).values, state.objective[None]])
    )
    last = program_of(row).log_marginal(state.params) + program_of(row).log_prior(state.params)
    close(state.objective, last)
    close(state.log_likelihood, program_of(row).log_marginal(state.params))


def layer_statistics_by_hand(row: Row, restart: int) -> dict[str, dict[str, Tensor]]:
    """The statistics of every layer from the joint posterior of all latents, row by row."""
    by_hand, (data, given) = (
        truth_by_hand(row, restart),
        data_of(row).tensor_split([row.model.layers()[0].num_items], 1),
    )
    out = {}
    for depth, layer in enumerate(row.model.layers()):
        parent = by_hand.values[layer.parent]  # (C, K)
        columns = [parent[:, i] for i in range(parent.shape[1])]
        if layer.terms is not None:
            kinds = (
                [False] * len(layer.terms)
                if layer.disjunctive is None
                else layer.disjunctive.tolist()
            )
            pairs = zip(layer.terms, kinds, strict=True)
            columns = [
                (parent[:, own].sum(1) > 0).to(F64) if is_any else parent[:, own].prod(1)
                for own, is_any in pairs
            ]
        design = torch.stack([torch.ones(len(parent), dtype=F64), *columns], 1)
        if depth == 0:
            posterior = by_hand.marginal(layer.parent)  # (C, N)
            seen = (~data.isnan()).to(F64)
            statistic = torch.cat(
                [
                    family.statistic(data[:, c])
                    for family, c, _ in layer.response.blocks(data.shape[1])
                ],
                1,
            )
            statistic = statistic.masked_fill(layer.response.spread(data.isnan()), 0.0)
            counts = (posterior @ seen).mT if row.missing else posterior.sum(1)
            cross = statistic.mT @ posterior.mT @ design
            out[layer.loadings] = {
                "counts": counts,
                "cross": cross,
                "squares": statistic.square().sum(0),
            }
        else:
            pair = by_hand.marginal(layer.child, layer.parent).sum(-1)  # (children's values, C)
            cross = (pair.mT @ by_hand.values[layer.child]).mT @ design
            out[layer.loadings] = {"counts": pair.sum(0), "cross": cross}
    root = row.model.root_layer()
    top = by_hand.marginal(root.latent).sum(-1)
    if type(root) is RootLayer:
        out[root.latent] = {
            "root": torch.cat([top.sum().unsqueeze(0), top @ by_hand.values[root.latent]])
        }
    elif given.shape[
        1
    ]:  # expected latents times the standardised terms of their row, which are a number and 0 or 1
        (age, age_width), (share, share_width) = root.covariates.units
        terms = torch.stack(
            [
                torch.ones(len(given), dtype=F64),
                (given[:, 0] - age) / age_width,
                (given[:, 1] - share) / share_width,
            ]
        )
        expected = by_hand.marginal(root.latent).mT @ by_hand.values[root.latent]
        out[root.latent] = {"root": (expected.mT @ terms.mT).ravel()}
    else:  # the same statistic of the profiles themselves; tests of the root know it by hand
        params = {name: value[None] for name, value in at(params_of(row), restart).items()}
        out[root.latent] = {
            "root": root.expected(by_hand.values[root.latent], top[None], params)[0]
        }
    return out


@layered_rows
def test_accelerated_e_step_equals_brute_force(row: Row) -> None:
    steps = LayeredSteps.build(row.model, data_of(row), chunk_elements=64)  # several chunks
    assert steps is not None
    statistics, log_likelihood, log_prior = steps.e_step(params_of(row))
    posteriors = program_of(row).factor_posteriors(params_of(row))
    close(log_likelihood, posteriors.log_marginal)
    close(log_prior, posteriors.log_prior)
    for restart in range(NUM_RESTARTS):
        by_hand = layer_statistics_by_hand(row, restart)
        root = by_hand.pop(row.model.root_layer().latent)
        close(statistics.root[restart], root["root"])
        assert set(by_hand) == set(statistics.layers)
        for name, expected in by_hand.items():
            found = statistics.layers[name]
            close(found.counts[restart], expected["counts"])
            close(found.cross[restart], expected["cross"])
            if found.squares is not None:
                close(found.squares, expected["squares"])


@pytest.mark.parametrize("row", UNPENALISED, ids=lambda row: row.name)
def test_accelerated_m_step_is_the_optimum(row: Row) -> None:
    """Newton's fixed point is a stationary point of the objective that the generic M-step climbs,
    and no lower.
    """
    problem, generic_half = generic_steps(row, num_steps=10)
    program = problem.program()
    steps = LayeredSteps.build(problem.model, problem.data, num_newton=20)
    assert steps is not None
    start = params_of(row)
    statistics, posteriors = steps.e_step(start)[0], program.factor_posteriors(start)
    best = start
    for _ in range(
        3 if row.model.layers()[0].response.is_canonical else 20
    ):  # sizes follow one step behind
        best = steps.m_step(statistics, best)

    def objective(params: Params) -> Tensor:
        return program.expected_complete_log_density(params, posteriors) + program.log_prior(params)

    reached, highest = objective(generic_half.m_step(posteriors, start)), objective(best)
    assert bool(((objective(start) < reached) & (reached <= highest + 1e-7)).all())
    leaves = {name: value.clone().requires_grad_() for name, value in best.items()}
    layers = {layer.loadings: layer for layer in row.model.layers()}
    for name, slope in zip(
        leaves, torch.autograd.grad(objective(leaves).sum(), list(leaves.values())), strict=True
    ):
        free = torch.ones(best[name].shape[1:], dtype=torch.bool)
        if program.site(name).support is constraints.simplex:
            slope = slope - slope.mean(-1, keepdim=True)  # along the simplex
        if name in layers and layers[name].graph is not None:
            free = layers[name].graph
        inside = free & (best[name][0].abs() < 0.999 * row.model.layers()[0].bound)
        if name == "thresholds":  # a category that no row has leaves one on its limit
            inside &= best[name][0] > 1.001 * program.site(name).support.base_constraint.lower_bound
        assert bool(inside.any()), name
        assert float(slope[0][inside].abs().max()) < 1e-5, name
        assert bool((best[name][0][~free] == 0).all()), name


@pytest.mark.parametrize(
    "row", [row for row in LAYERED if row not in UNPENALISED], ids=lambda row: row.name
)
def test_accelerated_m_step_is_a_penalised_optimum(row: Row) -> None:
    """No single loading can be moved a little, or to zero, with a gain: the kinks of the penalty
    are respected.
    """
    program = program_of(row)
    steps = LayeredSteps.build(row.model, data_of(row), num_newton=20)
    assert steps is not None
    start = {name: value[:1] for name, value in params_of(row).items()}
    statistics, posteriors = steps.e_step(start)[0], program.factor_posteriors(start)
    best = start
    for _ in range(
        10
    ):  # the dispersion, which weighs data against penalty, follows one step behind
        best = steps.m_step(statistics, best)
    zeros = 0
    for layer in row.model.layers():
        at_best = best[layer.loadings]
        zeros += int((at_best == 0).sum())
        moved = []
        for index in range(at_best[0].numel()):
            for value in (at_best.flatten()[index] + 1e-3, at_best.flatten()[index] - 1e-3, 0.0):
                other = at_best[0].flatten().clone()
                other[index] = value
                moved.append(other.reshape(at_best[0].shape))
        batch = {
            name: value.expand(1 + len(moved), *value.shape[1:]) for name, value in best.items()
        }
        batch[layer.loadings] = torch.cat([at_best, torch.stack(moved)])
        many = {
            name: value.repeat_interleave(1 + len(moved), -2)
            for name, value in posteriors.weights.items()
        }
        expected = program.expected_complete_log_density(
            batch, replace(posteriors, weights=many)
        ) + program.log_prior(batch)
        assert bool((expected[1:] <= expected[0] + 1e-7).all()), layer.loadings
    assert zeros > 0 or isinstance(steps.layers[0].penalty, Ridge)  # the penalty bites


@pytest.mark.parametrize(
    "name",
    [
        "encoder-Poisson-2-missing",
        "encoder-confirmatory",
        "dina-Poisson-2-missing",
        "gdm-Normal-missing",
    ],
)
def test_both_m_steps_reach_one_optimum(name: str) -> None:
    """The generic gradient route, given time, finds the same parameters."""
    row = next(row for row in ZOO if row.name == name)
    steps, program = LayeredSteps.build(row.model, data_of(row), num_newton=50), program_of(row)
    assert steps is not None
    start = {name: value[:1] for name, value in params_of(row).items()}
    fast = steps.m_step(steps.e_step(start)[0], start)
    slow, posteriors, generic = start, program.factor_posteriors(start), GenericSteps(program, 60)
    for _ in range(3):
        slow = generic.m_step(posteriors, slow)
    for site in fast:
        torch.testing.assert_close(fast[site], slow[site], rtol=1e-4, atol=1e-4)
    values = [
        program.expected_complete_log_density(params, posteriors).sum() for params in (fast, slow)
    ]
    close(values[0], values[1], 1e-6)


def numbers_of(statistics: Any) -> dict[str, Tensor]:
    """Every tensor of a record of statistics, by its path."""
    if isinstance(statistics, Tensor) or statistics is None:
        return {} if statistics is None else {"": statistics}
    parts = statistics if isinstance(statistics, dict) else vars(statistics)
    return {
        f"{name}/{path}": value
        for name, part in parts.items()
        for path, value in numbers_of(part).items()
    }


ACCELERATED = tuple(
    row for row in ZOO if type(structure_of(row.model)).steps is not Structure.steps
)


@pytest.mark.parametrize("row", ACCELERATED, ids=lambda row: row.name)
def test_statistics_are_sums_over_rows(row: Row) -> None:
    """Split at random places, the rows' statistics and log-likelihoods add up, and so the M-step is
    that of all rows.
    """
    data, params = data_of(row), near(row, NUM_RESTARTS, seed=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant column
        problem = problem_of(row.model, data, 0, start_given=True)
    steps = EM().steps(problem)
    assert not isinstance(steps, GenericSteps)
    whole, log_likelihood, _ = steps.e_step(params)
    moved = steps.m_step(whole, params)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        num_cuts = int(torch.randint(1, NUM_ROWS, (1,), generator=generator))
        cuts = (1 + torch.randperm(NUM_ROWS - 1, generator=generator)[:num_cuts]).sort().values
        added, total = summed_statistics(steps, params, data.tensor_split(cuts))
        close(total, log_likelihood, 1e-9)
        found, expected = numbers_of(added), numbers_of(whole)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            close(found[name], value, 1e-9)
        for name, value in steps.m_step(added, params).items():
            close(value, moved[name], 1e-9)


@pytest.mark.parametrize(
    "row",
    [row for row in ZOO if Capability.WEIGHTS in structure_of(row.model).capabilities],
    ids=lambda row: row.name,
)
def test_whole_weights_are_repeated_rows(row: Row) -> None:
    """Units, floors, both halves of EM, what is degenerate, and the sample size."""
    rows = data_of(row)
    weights = torch.arange(len(rows)) % 3  # a weight of zero leaves a row out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weighted, repeated = (
            problem_of(row.model, rows, 0, weights=weights),
            problem_of(row.model, rows.repeat_interleave(weights, 0), 0),
        )
    ours, theirs = EM().steps(weighted), EM().steps(repeated)
    params = near(row, NUM_RESTARTS, seed=6, size=0.3)
    params = weighted.structure.complete_start(weighted, params)
    found, expected = ours.e_step(params), theirs.e_step(params)
    for one, other in zip(found[1:], expected[1:], strict=True):
        close(one, other)
    for name, value in ours.m_step(found[0], params).items():
        close(value, theirs.m_step(expected[0], params)[name], 1e-8)
    assert weighted.structure.degenerate(weighted, params) == repeated.structure.degenerate(
        repeated, params
    )
    assert weighted.structure.num_observations(weighted) == repeated.structure.num_observations(
        repeated
    )


@every_row
def test_a_saved_fit_is_the_same_fit(row: Row, tmp_path: Path) -> None:
    result = quick_fit(row)
    result.save(tmp_path / "fit")
    is_ours = type(row.model).__module__.startswith("ppl_models")
    loaded = Fit.load(tmp_path / "fit") if is_ours else Fit.load(tmp_path / "fit", model=row.model)
    assert loaded.model == row.model
    if is_dataclass(row.model):
        for field in fields(row.model):  # units too, which do not count in a comparison
            assert getattr(loaded.model, field.name) == getattr(result.model, field.name)
    for field in fields(Fit):
        old, new = getattr(result, field.name), getattr(loaded, field.name)
        if field.name in ("trace", "restarts"):
            old, new = vars(old), vars(new)
        assert_same(old, new)
    again, before = loaded.log_likelihood_rows(data_of(row)), rows_of_quick_fit(row)[0]
    if result.local is None:
        assert torch.equal(again, before)
    else:  # of activities even the same call differs in last bits, by where its numbers lie
        torch.testing.assert_close(again, before, rtol=1e-13, atol=1e-13)


def assert_same(old: Any, new: Any) -> None:
    """Equal bit for bit, through dicts."""
    if isinstance(old, dict):
        assert old.keys() == new.keys()
        for key, value in old.items():
            assert_same(value, new[key])
    elif isinstance(old, Tensor):
        assert old.dtype == new.dtype
        assert torch.equal(old.nan_to_num(nan=1e300), new.nan_to_num(nan=1e300))
    else:
        assert old == new or (isinstance(old, float) and math.isnan(old) and math.isnan(new))


def assert_exported(row: Row, idata: Any) -> None:
    result, data = quick_fit(row), data_of(row)
    posteriors = rows_of_quick_fit(row)[1]
    for name, value in result.params.items():
        assert np.array_equal(idata["posterior"][name].values[0, 0], value.numpy()), name
        assert idata["posterior"][name].dims[:2] == ("chain", "draw")
    assert not hasattr(idata, "log_likelihood")  # of one draw, of which az.loo makes nothing
    if result.objective_name == "log-posterior" and not row.local:
        prior = result.objective - result.log_likelihood
        assert float(idata["log_prior"]["log_prior"][0, 0]) == pytest.approx(prior, abs=1e-6)
    (observed,) = idata["observed_data"].data_vars.values()
    assert np.array_equal(observed.values, data.numpy(), equal_nan=True)
    for name, value in posteriors.items():
        assert np.array_equal(idata["latent_posterior"][name].values, value.numpy()), name
    predicted = idata["posterior_predictive"].data_vars
    observed_sites = set(row.event_shapes) - set(row.truth) - set(posteriors) - set(row.local)
    assert {name: values.shape[2:] for name, values in predicted.items()} == {
        name: (NUM_ROWS, *row.event_shapes[name]) for name in observed_sites
    }


@every_row_but_swept
def test_arviz_keeps_the_numbers(row: Row, tmp_path: Path) -> None:
    idata = export.to_arviz(quick_fit(row), data_of(row))
    assert_exported(row, idata)
    if "Blocks" in row.name or row not in LAYERED:  # a file takes a third of a second
        assert_exported(row, export.load_netcdf(export.save_netcdf(idata, tmp_path / "fit.nc")))


# ---------------------------------------------------------------- recovery


@pytest.mark.parametrize("seed", [7, 8])
@pytest.mark.parametrize(
    "row", [row for row in ZOO if row.recovery_rows is not None], ids=lambda row: row.name
)
def test_the_truth_is_found(row: Row, seed: int) -> None:
    r"""After alignment, :math:`(\hat\theta - \theta)^T I (\hat\theta - \theta)` is chi-square, with
    I observed.
    """
    assert row.recovery_rows is not None
    data = simulated(row, row.recovery_rows, seed)
    result = fit(row.model, data, method=EM(tolerance=1e-7, parameter_tolerance=1e-3))
    if row.relabel is None:
        aligned = align(result, row.truth).params
    else:
        aligned = row.relabel(result, row.truth)
    program = Program(row.model, data)
    close(program.log_marginal(aligned), result.log_likelihood, 1e-9)  # other labels, the same law
    supports = {name: biject_to(program.site(name).support) for name in row.truth}
    sizes = {name: supports[name].inv(value).shape for name, value in row.truth.items()}

    def flat(params: Params) -> Tensor:
        return torch.cat([supports[name].inv(params[name]).flatten() for name in row.truth])

    def log_likelihood(vector: Tensor) -> Tensor:
        pieces = vector.split([size.numel() for size in sizes.values()])
        free = {
            name: piece.reshape(size)
            for (name, size), piece in zip(sizes.items(), pieces, strict=True)
        }
        return program.log_marginal({name: supports[name](value) for name, value in free.items()})

    estimate, truth = flat(aligned), flat(row.truth)
    information = -torch.autograd.functional.hessian(log_likelihood, estimate)
    assert float(torch.linalg.eigvalsh(information).min()) > 0  # a maximum
    distance = float((estimate - truth) @ information @ (estimate - truth))
    ratio = 2 * (result.log_likelihood - float(program.log_marginal(row.truth)))
    limit = stats.chi2.isf(1e-6, len(truth))
    assert 0 <= ratio < limit
    assert distance < limit
