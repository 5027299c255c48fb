"""Penalties along a path, thresholds and refits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from papers.deep_discrete_encoder import generic_design
from scipy.special import comb
from support.designed_items import BOUND, data_of

from inference import EM, fit
from inference.alignment import align
from inference.base.structure import num_possible_free
from inference.metrics import graph_accuracy, mean_squared_error
from inference.programs.program import Program
from inference.selection import ebic, penalty_path
from inference.selection.sparsity import graphs_of, polish
from inference.structures.registry import structure_of
from ppl_models import Bernoulli, DeepDiscreteEncoder, Normal, Poisson, TruncatedLasso
from ppl_models.datasets import strict_design

pytestmark = [
    pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::inference.BoundWarning"),
]


@pytest.mark.filterwarnings(
    "ignore:this model holds that its"
)  # the latents of these data depend on each other
def test_ebic_is_its_formula():
    x = data_of(Poisson(), 200)
    graph = np.kron(np.eye(6), np.ones((3, 1))).astype(int).tolist()
    model = DeepDiscreteEncoder(18, (6,), Poisson(), graphs=(graph,), bound=BOUND)
    result = fit(model, x, EM(max_iterations=5))
    assert num_possible_free(structure_of(model), result.params) == 6 + 18 + 18
    params = dict(result.params)
    params["loadings_1"] = params["loadings_1"].clone()
    params["loadings_1"][:6] = 0.0
    sparse = type(result)(**{**result.__dict__, "params": params})
    expected = (
        -2 * result.log_likelihood
        + 36 * math.log(200)
        + 2 * 0.5 * math.log(comb(18, 12, exact=True))
    )
    assert ebic(sparse, 0.5) == pytest.approx(expected, rel=1e-12)
    assert ebic(sparse, 0.0) == pytest.approx(sparse.bic, rel=1e-12)


def test_polishing_keeps_the_graph_and_removes_the_bias():
    truth, errors = strict_design(2, Normal()), []
    for seed in range(3):
        x = data_of(Normal(), 500, seed=seed)
        penalty = TruncatedLasso(40.0, 3.0)  # heavy: it shrinks what it keeps
        model = DeepDiscreteEncoder(18, (6, 2), Normal(), penalty, bound=BOUND)
        start = {name: value.clone() for name, value in truth.items()}
        shrunk = fit(model, x, EM(), init=start)
        polished = polish(shrunk, x, threshold=0.3)
        graphs = graphs_of(shrunk, 0.3)
        for graph, layer in zip(graphs, polished.model.layers(), strict=True):
            assert torch.equal(layer.graph, graph)
            assert (polished.params[layer.loadings][~graph] == 0).all()
        assert polished.log_likelihood >= shrunk.log_likelihood - 1e-6 or not all(
            (shrunk.params[layer.loadings][~graph] == 0).all()
            for graph, layer in zip(graphs, model.layers(), strict=True)
        )
        errors.append(
            [mean_squared_error(align(r, truth).params, truth) for r in (shrunk, polished)]
        )
    before, after = np.mean(errors, 0)
    assert after < before


def test_a_latent_without_an_edge_keeps_one():
    x = data_of(Normal(), 300)
    model = DeepDiscreteEncoder(18, (6, 2), Normal(), TruncatedLasso(2.0, 0.2), bound=BOUND)
    result = fit(model, x, EM(max_iterations=20))
    polished = polish(result, x, threshold=3.9)
    assert all(layer.graph.any(0).all() for layer in polished.model.layers())


def test_a_path_finds_the_graph_among_useless_penalties():
    truth, x = strict_design(2, Poisson()), data_of(Poisson(), 600)
    model = DeepDiscreteEncoder(18, (6, 2), Poisson(), bound=BOUND)
    grid = [TruncatedLasso(1e-3, 1e-4), TruncatedLasso.bic(600), TruncatedLasso(60.0, 2.5)]
    path = penalty_path(model, x, grid, EM(max_iterations=100))
    assert path.penalty == grid[1]
    assert path.best is path.fits[1]
    aligned = align(
        path.penalised[1], truth
    ).params  # the polished model's graph is given: its labels stay
    assert graph_accuracy(aligned, truth, model.layers(), path.penalty.threshold) > 0.97
    assert list(path.table["chosen"]) == [False, True, False]
    assert path.scores[1] == min(path.scores)


def test_the_data_choose_between_a_weak_and_a_strong_penalty():
    """A dense graph and few rows want the weak one: the strong one empties true edges."""
    truth, gains = generic_design(2, Bernoulli()), []
    for seed in range(2):
        model = DeepDiscreteEncoder(18, (6, 2), bound=5.0)
        x = Program(model, None, 500).simulate(truth, seed)["items"]
        path = penalty_path(model, x, TruncatedLasso.candidates(500), EM(max_iterations=150))
        accuracy = [
            graph_accuracy(align(own, truth).params, truth, model.layers(), penalty.threshold)
            for own, penalty in zip(path.penalised, path.penalties, strict=True)
        ]
        gains.append(accuracy[path.chosen] - accuracy[1])
    assert min(gains) >= 0
    assert max(gains) > 0


@pytest.mark.parametrize("num_rows", [100, 1000, 10000])
def test_the_bic_penalty_costs_what_bic_asks(num_rows):
    penalty = TruncatedLasso.bic(num_rows)
    beyond = torch.tensor([penalty.threshold * 1.01, 5.0], dtype=torch.float64)
    assert torch.allclose(
        2 * penalty(beyond), torch.full((2,), math.log(num_rows), dtype=torch.float64)
    )
    assert penalty.threshold == pytest.approx(TruncatedLasso.for_rows(num_rows).threshold)
