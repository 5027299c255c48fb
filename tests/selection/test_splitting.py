"""Data splitting: error rates of edges and intervals after the choice of a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import false_discovery_control, norm
from split_edges import attribute_table, encoder_truth, network_truth

from inference import fit
from inference.causal import BackgroundKnowledge
from inference.causal.tables import profiles
from inference.inspection.noisy_or import trim
from inference.programs import simulate
from inference.selection import polish, split_inference
from inference.selection.splitting import SplitEdge, _adjusted, _uncertainty, _wald_edges
from inference.uncertainty import standard_errors
from ppl_models import Bernoulli, DeepDiscreteEncoder, LatentAttributeModel, NoisyOr, Normal


def rows_of_encoder(num_rows: int = 600, seed: int = 0) -> torch.Tensor:
    truth = encoder_truth(seed, 1.5, 3.0, False)
    return simulate(DeepDiscreteEncoder(15, (3,), penalty=None), truth, seed, None, num_rows)[
        "items"
    ]


@pytest.mark.parametrize("dependent", [False, True])
def test_adjusted_values_are_those_of_scipy(dependent: bool) -> None:
    values = np.random.default_rng(0).random(30) ** 3
    edges = tuple(SplitEdge("w", "j", "k", 1.0, 0.0, 2.0, p) for p in values)
    found = _adjusted(edges, 0.2, dependent)
    theirs = false_discovery_control(values, method="by" if dependent else "bh")
    np.testing.assert_allclose([edge.adjusted for edge in found], theirs)
    assert [edge.kept for edge in found] == (theirs <= 0.2).tolist()


def test_no_edge_is_an_answer() -> None:
    assert _adjusted((), 0.1, False) == ()


def test_edges_of_an_encoder_are_tested_on_the_other_half() -> None:
    """The halves are disjoint, the graph is of the first, the estimates and tests of the second."""
    data = rows_of_encoder()
    found = split_inference(DeepDiscreteEncoder(15, (3,)), data, seed=1)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(1))
    first, second = data[order[:300].sort().values], data[order[300:].sort().values]
    alone = fit(DeepDiscreteEncoder(15, (3,)), first, seed=1)
    torch.testing.assert_close(found.first.params["loadings_1"], alone.params["loadings_1"])
    refit = polish(alone, second)
    errors = standard_errors(refit, second, hold_bounds=True)
    low, high = errors.intervals()["loadings_1"]
    assert len(found.edges) == int(refit.graphs["loadings_1"].sum())
    for edge in found.edges:
        at = int(edge.child), int(edge.parent.split()[-1])
        value, error = refit.params["loadings_1"][at], errors.standard_errors["loadings_1"][at]
        assert edge.value == pytest.approx(float(value))
        assert (edge.low, edge.high) == pytest.approx((float(low[at]), float(high[at])))
        assert edge.p_value == pytest.approx(2 * norm.sf(abs(float(value / error))), rel=1e-5)
    truth = encoder_truth(0, 1.5, 3.0, False)["loadings_1"] != 0
    assert len(found.kept) >= 0.8 * int(truth.sum())


def test_a_false_edge_has_a_uniform_value() -> None:
    """Wald's test on a graph with one false edge: the p-values of that edge over data sets."""
    truth = encoder_truth(3, 1.5, 3.0, False)
    graph = truth["loadings_1"] != 0
    graph[0, 1] = True  # item 0 is of latent 0 alone
    model = DeepDiscreteEncoder(15, (3,), penalty=None).restricted([graph.int().tolist()])
    values = []
    for seed in range(12):
        data = simulate(model, truth, seed, None, 800)["items"]
        refit = fit(model, data, init=truth, num_restarts=1)
        error = standard_errors(refit, data, hold_bounds=True).standard_errors["loadings_1"][0, 1]
        values.append(float(refit.params["loadings_1"][0, 1] / error))
    assert np.abs(np.mean(values)) < 3 / 12**0.5
    assert 0.4 < np.std(values) < 1.7


def test_an_edge_that_the_second_half_has_next_to_none_of_is_tested() -> None:
    """Without the largest p-values those of false edges are no longer uniform."""
    truth = encoder_truth(3, 1.5, 3.0, False)
    graph = truth["loadings_1"] != 0
    graph[0, 1] = True  # item 0 is of latent 0 alone
    model = DeepDiscreteEncoder(15, (3,), penalty=None).restricted([graph.int().tolist()])
    data = simulate(model, truth, 8, None, 800)["items"]
    refit = fit(model, data, init=truth, num_restarts=1)
    items = tuple(f"item {j}" for j in range(15))
    edges = list(_wald_edges(refit, {"loadings_1": graph}, data, items, 0.95))
    assert len(edges) == int(graph.sum())
    (edge,) = (own for own in edges if (own.child, own.parent[-1]) == ("item 0", "1"))
    assert abs(edge.value) < 0.05
    assert edge.p_value > 0.8


def test_p_values_of_normal_items_are_those_of_their_intervals() -> None:
    """At one minus the p-value an interval ends at zero, by Student's t of few rows."""
    truth = encoder_truth(3, 1.5, 3.0, True)
    graph = truth["loadings_1"] != 0
    graph[0, 1] = True  # item 0 is of latent 0 alone
    model = DeepDiscreteEncoder(15, (3,), Normal(), penalty=None).restricted([graph.int().tolist()])
    data = simulate(model, truth, 0, None, 30)["items"]
    refit = fit(model, data, init=truth, num_restarts=1)
    items = tuple(map(str, range(15)))

    def edge_at(level: float) -> SplitEdge:
        edges = _wald_edges(refit, {"loadings_1": graph}, data, items, level)
        return next(edge for edge in edges if (edge.child, edge.parent[-1]) == ("0", "1"))

    p_value = edge_at(0.95).p_value
    edge = edge_at(1 - p_value)
    assert 0.01 < p_value < 1
    assert min(abs(edge.low), abs(edge.high)) < 1e-6 * abs(edge.value)


def test_edges_of_a_network_are_those_that_the_first_half_chose() -> None:
    """No other edge is fitted to the second half, nor one left out that it has none of; also where
    the second half has the causes in another order.
    """
    turned = 0
    for seed in range(4):
        data = simulate(NoisyOr(12, 3), network_truth(seed), 100, None, 600)["items"]
        found = split_inference(NoisyOr(12, 3), data)
        graph = trim(found.first).graphs["failure"] > 0
        tested = torch.zeros_like(graph)
        for edge in found.edges:
            tested[int(edge.child), int(edge.parent[-1])] = True
        assert bool((found.second.params["failure"].mT[~tested] == 1).all())
        assert sorted(map(tuple, tested.mT.tolist())) == sorted(map(tuple, graph.mT.tolist()))
        turned += not torch.equal(tested, graph)
    assert turned


def test_what_half_of_the_rows_does_not_determine_is_not_tested() -> None:
    """A latent of one item has no loading that data determine."""
    truth = encoder_truth(0, 1.5, 3.0, False)
    graph = truth["loadings_1"] != 0
    graph[:, 2] = False
    graph[0, 2] = True
    model = DeepDiscreteEncoder(15, (3,), penalty=None).restricted([graph.int().tolist()])
    refit = fit(model, rows_of_encoder(), num_restarts=1)
    _, unknown = _uncertainty(refit, rows_of_encoder())
    assert "loadings_1[0,2]" in unknown
    assert "loadings_1[5,1]" not in unknown


@pytest.mark.parametrize("kind", ["attributes", "network"])
def test_other_graphs_of_items(kind: str) -> None:
    model: Any
    if kind == "attributes":
        model, data = LatentAttributeModel(num_attributes=3), rows_of_encoder()
        true = int((encoder_truth(0, 1.5, 3.0, False)["loadings_1"] != 0).sum())
    else:
        truth = network_truth(0)
        model, data = NoisyOr(12, 3), simulate(NoisyOr(12, 3), truth, 0, None, 1500)["items"]
        true = int((truth["failure"] < 1).sum())
    found = split_inference(model, data)
    assert 0.8 * true <= len(found.kept) <= 1.25 * true
    assert all(0 <= edge.p_value <= edge.adjusted <= 1 for edge in found.edges)


def test_a_graph_among_attributes(tmp_path: Path) -> None:
    dag, table = attribute_table(0)
    rng = np.random.default_rng(0)
    q_matrix = np.tile(np.eye(5, dtype=int), (3, 1))
    bits = profiles(5)[rng.choice(32, 3000, p=table)]
    answers = (rng.random((3000, 15)) < np.where(bits @ q_matrix.T == 1, 0.9, 0.1)).astype(float)
    model = LatentAttributeModel(q_matrix, items="dina")
    told = BackgroundKnowledge(tiers=((0, 1, 2, 3), (4,)))
    found = split_inference(model, answers, knowledge=told)
    assert found.graph is not None
    joined = {frozenset((f"A{i + 1}", f"A{j + 1}")) for i, j in np.argwhere(dag)}
    kept = {frozenset((edge.child, edge.parent)) for edge in found.kept}
    assert len(kept & joined) >= len(joined) - 1
    assert len(kept - joined) <= 1
    assert found.plot() is not None
    page = found.report(tmp_path / "edges.html").read_text(encoding="utf-8")
    assert found.headline in page
    assert "Edges of the chosen graph" in page


def test_answer_in_words_table_and_picture() -> None:
    found = split_inference(DeepDiscreteEncoder(15, (3,)), rows_of_encoder(), 0.2, dependent=True)
    assert "at most 20%" in found.headline
    assert "Benjamini-Yekutieli" in found.text()
    assert found.table["p_value"].is_monotonic_increasing
    assert len(found.table) == len(found.edges)
    assert int(found.table["kept"].sum()) == len(found.kept)
    titles = [ax.get_title() for ax in found.plot().axes if ax.get_title()]
    assert titles[0].startswith("loadings_1, kept")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": 0.0}, "target must lie in"),
        ({"target": 1.2}, "target must lie in"),
        ({"share": 1.0}, "share must lie in"),
        ({"level": 0}, "level must lie in"),
        ({"dependent": 1}, "dependent"),
        ({"knowledge": BackgroundKnowledge()}, "knowledge is of causal graphs"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    data = rows_of_encoder(60)
    with pytest.raises(ValueError, match=message):
        split_inference(DeepDiscreteEncoder(15, (3,)), data, **settings)


def test_too_few_rows_and_given_graphs_are_refused() -> None:
    data = rows_of_encoder(30)
    with pytest.raises(ValueError, match="at least 20 rows in each half were expected, got 15"):
        split_inference(DeepDiscreteEncoder(15, (3,)), data)
    graph = np.tile(np.eye(3, dtype=int), (5, 1))
    given = DeepDiscreteEncoder(15, (3,), Bernoulli(), graphs=(graph.tolist(),))
    with pytest.raises(ValueError, match="a model whose graph is estimated was expected"):
        split_inference(given, rows_of_encoder(60))
