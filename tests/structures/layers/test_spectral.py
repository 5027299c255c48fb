"""Spectral starts: exact without noise, blind to the truth, and good enough for EM to recover
designs.
"""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from support.designed_items import data_of as designed

import inference.structures.layers.spectral
from inference import EM, StartsWarning, fit
from inference.alignment import align
from inference.metrics import empty_graph_accuracy, graph_accuracy
from inference.programs.program import Program
from inference.structures.layers.spectral import (
    layer_factors,
    leading_values,
    missing_gap,
    random_start,
    spectral_start,
    varimax,
)
from ppl_models import Bernoulli, DeepDiscreteEncoder, Normal, Poisson, TruncatedLasso
from ppl_models.datasets import strict_design

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning"
)  # a few layers separate at these sizes
FAMILIES = [Bernoulli(), Poisson(), Normal()]


def data(response, num_rows, seed, top=2):
    model = DeepDiscreteEncoder(
        9 * top, (3 * top, top), response, penalty=TruncatedLasso.for_rows(num_rows), bound=5.0
    )
    truth = strict_design(top, response)
    draw = Program(model, None, num_rows).simulate(truth, seed)
    return model, truth, draw


def test_without_noise_latents_and_graph_are_exact():
    generator = torch.Generator().manual_seed(0)
    truth = strict_design(2, Normal())
    loadings = truth["loadings_1"].abs()
    for _ in range(3):
        latents = (torch.rand(400, 6, generator=generator) < 0.5).double()
        x = truth["intercepts_1"] + latents @ loadings.mT
        found = layer_factors(x, 6, Normal(), cut=2.5)
        agreement = (
            found.latents.mT @ latents + (1 - found.latents).mT @ (1 - latents)
        ) / 400  # (6, 6)
        order = agreement.argmax(0)
        assert sorted(order.tolist()) == list(range(6))
        assert (agreement.amax(0) == 1).all()


@pytest.mark.parametrize("response", FAMILIES, ids=lambda r: type(r).__name__)
def test_a_start_depends_on_the_data_alone(response):
    """Renaming the truth's latents renames nothing in the data: the rows a truth makes are the
    rows, and so is the start.

    Renaming the items renames the start's items."""
    model, _, draw = data(response, 500, 0)
    x = draw["items"]
    start = spectral_start(model.layers(), model.root_layer(), x)
    again = spectral_start(model.layers(), model.root_layer(), x)
    assert all(torch.equal(start[k], again[k]) for k in start)
    order = torch.randperm(18, generator=torch.Generator().manual_seed(1))
    renamed = spectral_start(model.layers(), model.root_layer(), x[:, order])
    ours, theirs = start["loadings_1"][0][order], renamed["loadings_1"][0]
    gram_ours, gram_theirs = (
        ours @ ours.mT,
        theirs @ theirs.mT,
    )  # free of the order and nearly of the signs of latents
    assert (gram_ours - gram_theirs).abs().mean() < 0.25 * gram_ours.abs().mean()


def test_no_function_that_fits_takes_a_truth():
    for module in (
        inference.structures.layers.spectral,
        inspect.getmodule(EM),
        inspect.getmodule(fit),
    ):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            words = set(inspect.signature(function).parameters)
            assert not words & {"truth", "true_params", "reference"}, name


def test_varimax_is_a_rotation_that_raises_its_criterion():
    def criterion(loadings, scale):
        squares = (loadings / scale).square()
        return (squares.square().mean(0) - squares.mean(0).square()).sum()

    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(20, 4, generator=generator, dtype=torch.float64)
        rotated = varimax(x)
        scale = x.norm(dim=1, keepdim=True)
        assert torch.allclose(rotated @ rotated.mT, x @ x.mT, atol=1e-10)
        best = criterion(rotated, scale)
        for _ in range(20):
            turn = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64)).Q
            assert best >= criterion(x @ turn, scale) - 1e-10


def test_missing_entries_cost_little():
    model, truth, draw = data(Normal(), 800, 0)
    x = draw["items"].clone()
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.15] = math.nan
    result = fit(model, x, EM(tolerance=1e-6, parameter_tolerance=1e-2))
    assert (
        graph_accuracy(align(result, truth).params, truth, model.layers(), model.penalty.threshold)
        > 0.97
    )


def test_restarts_begin_apart_and_the_first_is_the_plain_one():
    model, _, draw = data(Bernoulli(), 300, 0)
    one = spectral_start(model.layers(), model.root_layer(), draw["items"], 1, seed=3)
    three = spectral_start(model.layers(), model.root_layer(), draw["items"], 3, seed=3)
    for name, value in one.items():
        assert torch.equal(value[0], three[name][0])
    assert all((three["loadings_1"][r] - one["loadings_1"][0]).abs().max() > 1e-3 for r in (1, 2))


@pytest.mark.parametrize("build", [spectral_start, random_start])
def test_starts_lie_inside_the_prior_and_keep_a_graph(build):
    truth = strict_design(2, Normal())
    graphs = tuple((truth[f"loadings_{d}"] != 0).int().numpy() for d in (1, 2))
    model = DeepDiscreteEncoder(18, (6, 2), Normal(), graphs=graphs)
    x = Program(DeepDiscreteEncoder(18, (6, 2), Normal()), None, 400).simulate(truth, 0)["items"]
    start = build(model.layers(), model.root_layer(), x, 2, seed=0)
    assert torch.isfinite(Program(model, x).log_prior(start)).all()
    for d in (1, 2):
        assert (start[f"loadings_{d}"][:, truth[f"loadings_{d}"] == 0] == 0).all()


def test_a_given_graph_is_fitted_in_its_own_order():
    """With the graph given, latents come out under the graph's own names, up to the graph's
    symmetries.
    """
    truth = strict_design(2, Normal())
    graphs = tuple((truth[f"loadings_{d}"] != 0).int().numpy() for d in (1, 2))
    model = DeepDiscreteEncoder(18, (6, 2), Normal(), graphs=graphs, bound=5.0)
    for seed in range(3):
        x = Program(model, None, 1500).simulate(truth, seed)["items"]
        result = fit(model, x, EM(tolerance=1e-6, parameter_tolerance=1e-2))
        assert (result.params["loadings_1"] - truth["loadings_1"]).abs().max() < 1.0


@pytest.mark.parametrize(
    "response",
    [Poisson(), pytest.param(Normal(), marks=pytest.mark.slow)],
    ids=lambda r: type(r).__name__,
)
def test_designs_are_recovered(response):
    """Ten seeds of the strict design, N = 1,000: mean graph accuracy at least 0.98, far above an
    empty graph's 0.73.
    """
    scores = []
    for seed in range(10):
        model, truth, draw = data(response, 1000, seed)
        result = fit(model, draw["items"], EM(tolerance=1e-6, parameter_tolerance=1e-2), seed=seed)
        aligned = align(result, truth).params
        scores.append(graph_accuracy(aligned, truth, model.layers(), model.penalty.threshold))
    assert sum(scores) / len(scores) >= 0.98
    assert empty_graph_accuracy(truth, model.layers()) < 0.75


# ---------------------------------------------------------------- the gap in the singular values


@pytest.mark.parametrize(
    "response", [Normal(), Poisson(), Bernoulli()], ids=lambda r: type(r).__name__
)
def test_a_clear_gap_is_passed_over_and_a_missing_one_is_said(response):
    """Six latents behind eighteen items: the values fall after the sixth, and not after the fifth
    or the eighth.
    """
    for seed in range(3):
        data = designed(response, 1000, seed=seed)
        said = {}
        for size in (5, 6, 8):
            layer = DeepDiscreteEncoder(18, (size, 2), response).layers()[0]
            said[size] = missing_gap(leading_values(layer, data, size + 6, size + 1, 0), size)
        assert said[6] is None
        assert said[8] is not None
        assert "no gap after 8 latents (numbers 7 to 11:" in said[8]
        assert said[5] is None or "no gap after 5 latents" in said[5]


def test_the_words_name_the_largest_step_and_need_enough_values():
    values = torch.tensor([9.0, 8.9, 4.0, 3.9, 3.85, 3.75, 3.7, 3.6, 3.55, 3.5])
    assert missing_gap(values, 2) is None
    assert "the largest step is after 2" in str(missing_gap(values, 3))
    assert missing_gap(values, 6) is None  # three values behind tell nothing
    assert missing_gap(torch.tensor([5.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]), 2) is None


def test_a_fit_from_a_start_without_a_gap_warns():
    data = designed(Normal(), 600)
    with pytest.warns(
        StartsWarning, match="no gap after 8 latents .* compare sizes with select_dimension"
    ):
        fit(
            DeepDiscreteEncoder(18, (8, 2), Normal()),
            data,
            EM(max_iterations=2, tolerance=1.0, parameter_tolerance=100.0),
        )
