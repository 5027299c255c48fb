"""Statistics of drawn latents: slope, curvature, size, fixed points, mini-batches."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.small_encoders import CATEGORIES, RESPONSES, example, name_of

from inference import SAEM
from inference.fitting.problem import problem_of
from inference.structures.layers.draw_steps import LayeredDraws
from inference.structures.layers.gibbs import LayeredGibbs
from inference.structures.layers.glm import LayerStatistics, maximise_layer, own_places
from ppl_models import (
    Bernoulli,
    Categorical,
    Independent,
    LatentAttributeModel,
    Normal,
    Ordinal,
    Poisson,
    TruncatedLasso,
)

F64 = torch.float64


@pytest.mark.parametrize(
    "response", [Bernoulli(), pytest.param(Poisson(), marks=pytest.mark.slow)], ids=name_of
)
def test_curvature_of_some_rows_does_not_move_the_fixed_point(response):
    model, params, data = example(response, num_rows=200, missing=False)
    gibbs = LayeredGibbs.build(model, data)
    state = gibbs.begin(params, torch.Generator().manual_seed(1))
    ends = []
    for max_rows in (200, 50):
        steps, now = LayeredDraws(gibbs, max_rows=max_rows), params
        assert steps.stride == 200 // max_rows
        for _ in range(200):
            now = steps.maximise(steps.statistics(now, state, state), now)
        ends.append(now)
    for name in ("loadings_1", "intercepts_1", "loadings_2", "intercepts_2"):
        assert torch.allclose(ends[0][name], ends[1][name], atol=1e-6)


@pytest.mark.parametrize(
    "response",
    [pytest.param(CATEGORIES, marks=pytest.mark.slow), Ordinal(3), Categorical(3)],
    ids=name_of,
)
def test_expansions_of_categories_end_at_the_maximiser(response):
    """Of one draw, whose latents stay: the steps of averages and those of EM have one fixed point,
    thresholds too.
    """
    model, params, data = example(response, num_rows=120)
    steps = LayeredDraws(LayeredGibbs.build(model, data), max_rows=60)
    state = steps.gibbs.begin(params, torch.Generator().manual_seed(1))
    now = exact = params
    for _ in range(80):
        now = steps.maximise(steps.statistics(now, state, state), now)
    for _ in range(40):
        exact = steps.maximise_draw(exact, state, state)
    for name in params:
        assert torch.allclose(now[name], exact[name], atol=1e-5), name


def test_rare_counts_do_not_throw_an_estimate_away():
    """A Newton step from log mean -10 to a count of one would be e^10 long."""
    model, params, data = example(Poisson(), num_rows=60, missing=False)
    params["intercepts_1"][:], params["loadings_1"][:] = -10.0, 0.1
    steps = LayeredDraws(LayeredGibbs.build(model, data))
    state = steps.gibbs.begin(params, torch.Generator().manual_seed(1))
    now = params
    for _ in range(40):
        new = steps.maximise(steps.statistics(now, state, state), now)
        assert (new["intercepts_1"] - now["intercepts_1"]).abs().max() <= 1 + 1e-9
        assert (steps.log_joint(new, state) > steps.log_joint(now, state) - 1e-6).all()
        now = new


@pytest.mark.parametrize("response", RESPONSES, ids=name_of)
def test_the_expansion_has_the_slope_and_curvature_of_the_density(response):
    model, params, data = example(response)
    steps = LayeredDraws(LayeredGibbs.build(model, data))
    state = steps.gibbs.begin(params, torch.Generator().manual_seed(1))
    statistics = steps.statistics(params, state, state)
    assert torch.allclose(
        steps.log_joint(params, state), steps.gibbs.log_joint_rows(params, state).sum(-1)
    )
    layer = model.layers()[0]
    scale = response.scale(params.get("dispersion"), 9)
    scale = torch.ones(1, 9, dtype=F64) if scale is None else scale

    def density(beta):
        moved = params | {layer.intercepts: beta[None, :, 0], layer.loadings: beta[None, :, 1:]}
        return steps.gibbs.log_joint_rows(moved, state).sum()

    beta = torch.cat([params[layer.intercepts][0, :, None], params[layer.loadings][0]], -1)
    slope = torch.autograd.functional.jacobian(density, beta)
    curvature = torch.autograd.functional.hessian(density, beta)
    linear, hessian = (
        statistics["loadings_1/linear"][0],
        statistics["loadings_1/hessian"][0].expand(9, 4, 4),
    )
    assert torch.allclose(
        scale[0, :, None] * (linear - (hessian @ beta[..., None])[..., 0]), slope, atol=1e-8
    )
    for j in range(9):
        assert torch.allclose(-curvature[j, :, j], scale[0, j] * hessian[j], atol=1e-8)


def test_normal_items_are_maximised_in_one_step():
    """There the expansion is the density itself: averaged statistics give the maximiser that EM
    would give.
    """
    model, params, data = example(Normal(), num_rows=60, missing=False)
    steps = LayeredDraws(LayeredGibbs.build(model, data))
    state = steps.gibbs.begin(params, torch.Generator().manual_seed(1))
    new = steps.maximise(steps.statistics(params, state, state), params)
    drawn = steps.maximise_draw(params, state, state)
    for name in ("loadings_1", "intercepts_1", "dispersion"):
        assert torch.allclose(new[name], drawn[name], atol=1e-8)
    parents = state["latents_1"][0].mT
    cross = (data.mT @ torch.nn.functional.pad(parents, (1, 0), value=1.0)).unsqueeze(0)
    stats = LayerStatistics(parents, torch.ones(1, 60, dtype=F64), cross, data.square().sum(0))
    exact = maximise_layer(model.layers()[0], stats, params)
    assert torch.allclose(new["loadings_1"], exact["loadings_1"], atol=1e-8)


@pytest.mark.parametrize("penalty", [None, TruncatedLasso(2.0, 0.5)], ids=["none", "tlp"])
def test_statistics_keep_their_size(penalty):
    model, params, data = example(Bernoulli(), num_rows=50)
    model = replace(model, penalty=penalty)
    sizes = {}
    for iterations in (5, 40):
        problem = problem_of(model, data, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            method = SAEM(num_burn_in=1, num_relaxed=0, max_iterations=iterations, tolerance=1e-12)
            steps, generator = method.steps(problem), torch.Generator().manual_seed(0)
            state, averages = steps.gibbs.begin(params, generator), None
            for _ in range(iterations):
                state, chances = steps.gibbs.sweep(params, state, generator)
                averages = steps.average(averages, steps.statistics(params, state, chances), 0.1)
        sizes[iterations] = {name: tuple(value.shape) for name, value in averages.items()}
    assert sizes[5] == sizes[40]


def test_a_mini_batch_is_an_unbiased_sample():
    model, params, data = example(Poisson(), num_rows=40)
    steps = LayeredDraws(LayeredGibbs.build(model, data))
    state = steps.gibbs.begin(params, torch.Generator().manual_seed(1))
    whole = steps.statistics(params, state, state)
    parts = []
    for start in range(0, 40, 8):
        index = torch.arange(start, start + 8)
        own = {name: value[..., index] for name, value in state.items()}
        parts.append(steps.rows(index).statistics(params, own, own))
    for name, value in whole.items():
        mean = sum(part[name] for part in parts) / 5
        # the linear part holds H beta, which is linear in the rows too
        assert torch.allclose(mean, value, atol=1e-9), name


@pytest.mark.parametrize(
    ("rule", "response"),
    [("dina", Bernoulli()), ("saturated", Poisson()), ("additive", Normal())],
)
def test_own_coefficients_of_items_are_those_among_all(
    monkeypatch: pytest.MonkeyPatch, rule: str, response: Any
) -> None:
    """Statistics of the few coefficients that each item has give the estimates of the whole."""
    rng = np.random.default_rng(0)
    pairs = np.eye(8, dtype=int) + np.roll(np.eye(8, dtype=int), 1, 1)
    q_matrix = np.concatenate([np.eye(8, dtype=int), np.eye(8, dtype=int), pairs])
    rows = rng.integers(0, 2, (200, len(q_matrix))).astype(float)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    model = LatentAttributeModel(q_matrix, response, rule, Independent())
    problem = problem_of(model, rows, 0)
    steps, generator = SAEM().steps(problem), torch.Generator().manual_seed(0)
    params = problem.structure.start(problem, "random", 2)
    latents, chances = steps.gibbs.sweep(params, steps.gibbs.begin(params, generator), generator)

    def maximised() -> dict[str, torch.Tensor]:
        return steps.maximise(steps.statistics(params, latents, chances), params)

    assert own_places(model.layers()[0]) is not None
    few = maximised()
    monkeypatch.setattr("inference.structures.layers.draw_steps.own_places", lambda layer: None)
    for name, value in maximised().items():
        torch.testing.assert_close(few[name], value, rtol=1e-4, atol=1e-4)
