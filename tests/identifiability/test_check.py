"""Known verdicts of whole models, repairs that repair, what is missing in words, bad input."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from papers.deep_discrete_encoder import deep_design, generic_design
from support.small_graphs import COUNTER_EXAMPLE, c_by_brute_force, graphs

from inference.identifiability import check_graph, check_identifiability
from inference.identifiability.conditions import cover, hall_violators
from ppl_models import DeepDiscreteEncoder
from ppl_models.datasets.deep_discrete_encoder import strict_design
from ppl_models.parts.penalties import TruncatedLasso


def check(params: dict[str, torch.Tensor], sizes: tuple[int, ...], **how: object):
    model = DeepDiscreteEncoder(sizes[0], sizes[1:])
    return check_identifiability(params, layers=model.layers(), root=model.root_layer(), **how)


# ---------------------------------------------------------------- known answers


@pytest.mark.parametrize("top_size", [1, 2, 3, 6, 10])
def test_the_strict_design_is_strict_at_every_size(top_size: int) -> None:
    report = check(strict_design(top_size), (9 * top_size, 3 * top_size, top_size))
    assert report.verdict == "strict"
    for layer in report.layers:
        assert layer.decision.a_holds
        assert layer.decision.b_holds
        assert layer.decision.coverage.certificate is not None  # A and B imply C
        assert not layer.violations
        assert not layer.repairs
        assert layer.decision.separation.is_exact
        k = len(layer.parent_names)
        assert layer.decision.separation.margin == pytest.approx(4.0 if k == 1 else 8 / 3)


@pytest.mark.parametrize("top_size", [2, 3, 6, 10])
def test_the_generic_design_satisfies_c_with_exclusive_children_at_the_ends_only(
    top_size: int,
) -> None:
    report = check(generic_design(top_size), (9 * top_size, 3 * top_size, top_size))
    assert report.verdict == "generic"
    for layer in report.layers:
        counts = [len(children) for children in layer.decision.exclusive]
        assert counts == [1, *[0] * (len(counts) - 2), 1]
        assert layer.decision.coverage.certificate is not None


def test_deep_designs() -> None:
    report = check(deep_design(3), (54, 18, 6, 2))
    assert [layer.verdict for layer in report.layers] == ["strict"] * 3


def test_the_seven_by_three_counter_example() -> None:
    for size in (1, 2, 3):
        for chosen in itertools.combinations(range(3), size):
            assert COUNTER_EXAMPLE[:, list(chosen)].any(1).sum() >= 2 * size + 1
    assert hall_violators(COUNTER_EXAMPLE) == ()
    coverage = cover(COUNTER_EXAMPLE)
    assert coverage.certificate is None
    assert not c_by_brute_force(COUNTER_EXAMPLE)
    assert len(coverage.new_children) == coverage.num_missing == 1
    report = check_graph(COUNTER_EXAMPLE)
    assert report.verdict == "not established"
    assert "cannot be found for all at once" in report.text()


def test_a_content_by_process_matrix() -> None:
    """Every item has one of four content and one of three process skills: rank 6, no exclusive
    item, yet C holds.
    """
    rows = [(c, 4 + p) for c in range(4) for p in range(3) for _ in range(2)]
    graph = np.zeros((len(rows), 7), dtype=int)
    for j, (content, process) in enumerate(rows):
        graph[j, [content, process]] = 1
    assert np.linalg.matrix_rank(graph) == 6
    names = ["Number", "Algebra", "Geometry", "Data", "Knowing", "Applying", "Reasoning"]
    report = check_graph(graph, parent_names=names)
    assert report.verdict == "generic"
    assert "Geometry has no exclusive items, needs 2" in report.missing
    assert [repair.target for repair in report.repairs] == ["strict"]
    # 14 exclusive items give A; the sums of content and of process skills still cancel, so one more
    assert len(report.repairs[0].new_children) == 15


# ---------------------------------------------------------------- against brute force


@settings(max_examples=60, deadline=None)
@given(graph=graphs, seed=st.integers(0, 2**31))
def test_repairs_repair(graph: np.ndarray, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for loadings in (None, generator.normal(size=graph.shape) * graph):
        report = check_graph(graph, loadings)
        for repair in report.repairs:
            new = np.zeros((len(repair.new_children), graph.shape[1]))
            for row, latents in zip(new, repair.new_children, strict=True):
                row[list(latents)] = 1
            wider = np.concatenate([graph, new])
            values = (
                None
                if loadings is None
                else np.concatenate([loadings, generator.uniform(1, 2, new.shape) * new])
            )
            assert check_graph(wider, values).verdict in (repair.target, "strict")


# ---------------------------------------------------------------- conditions one by one


def test_b_can_fail_on_the_values_and_hold_on_others() -> None:
    graph = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [1, 1]])
    equal = check_graph(graph, graph * 2.0)
    assert equal.verdict == "generic"
    assert equal.decision.a_holds
    assert equal.decision.b_holds is False
    assert set(equal.decision.separation.pair) == {(1, 0), (0, 1)}
    assert "do not distinguish configurations" in equal.text()
    unequal = graph * 2.0
    unequal[4, 1] = 1.5
    report = check_graph(graph, unequal)
    assert report.verdict == "strict"
    assert report.decision.separation.margin == pytest.approx(0.5)
    assert check_graph(graph).verdict == "generic"  # the values decide
    assert check_graph(graph).decision.b_holds is None


def test_a_graph_can_settle_b_for_all_values() -> None:
    graph = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [1, 0], [1, 1]])
    assert (
        check_graph(graph).verdict == "strict"
    )  # row 4 gives the first latent, then row 5 the second
    two_each = np.repeat(np.eye(2), 2, axis=0)
    report = check_graph(two_each)
    assert report.verdict == "not established"
    assert report.decision.b_holds is False
    assert "together" not in report.text()
    assert report.missing == (
        "latents[0] has 2 items (items[0] and items[1]), needs at least 3",
        "latents[1] has 2 items (items[2] and items[3]), needs at least 3",
    )


def test_conjunctive_and_saturated_bottoms() -> None:
    two, three = np.repeat(np.eye(2), 2, axis=0), np.repeat(np.eye(2), 3, axis=0)
    both = np.ones((1, 2))
    assert check_graph(three, bottom="dina").verdict == "strict"
    assert check_graph(np.concatenate([three, both]), bottom="dina").verdict == "strict"
    dina = check_graph(np.concatenate([two, both, both]), bottom="dina")
    assert dina.verdict == "not established"
    assert dina.missing[0] == "latents[0] has 2 exclusive items (items[0] and items[1]), needs 3"
    assert dina.repairs[0].new_children == ((0,), (1,))
    assert check_graph(three, bottom="gdm").verdict == "strict"
    graph = np.concatenate([two, both])
    assert check_graph(graph, bottom="gdm").verdict == "generic"
    assert check_graph(two, bottom="gdm").decision.b_holds is False
    codes = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    table = codes @ graph.T * 2.0
    assert (
        check_graph(graph, bottom="gdm", predictors=table).verdict == "generic"
    )  # 01 and 10 give the same sum
    assert set(check_graph(graph, bottom="gdm", predictors=table).decision.separation.pair) == {
        (0, 1),
        (1, 0),
    }
    table[3, 4], table[2, 4] = 7.0, 2.5  # an interaction and unequal main effects
    strict = check_graph(graph, bottom="gdm", predictors=table)
    assert strict.verdict == "strict"
    assert strict.decision.separation.margin == pytest.approx(0.5)


# ---------------------------------------------------------------- fits, names, violations,
# threshold


def test_a_fit_brings_its_layers_names_and_threshold() -> None:
    params = strict_design(2)
    params["loadings_1"] = params["loadings_1"] + 0.1 * (params["loadings_1"] == 0)
    model = DeepDiscreteEncoder(18, (6, 2), penalty=TruncatedLasso(1.0, 0.3))
    names = tuple(f"word_{j}" for j in range(18))
    fit = SimpleNamespace(model=model, params=params, item_names=names)
    report = check_identifiability(
        fit, latent_names={"latents_1": [f"topic {k}" for k in range(6)]}
    )
    assert report.verdict == "strict"
    assert report.thresholds == (0.3, 0.3)
    assert report.layers[0].child_names == names
    assert report.layers[1].child_names[0] == "topic 0"
    # an entry of 0.1 on an exclusive child would take one of two away
    gap = report.layers[0].largest_gap
    assert gap.loading == pytest.approx(0.1)
    assert gap.verdict == "generic"
    assert report.layers[0].smallest_edge.verdict == "generic"
    assert "loadings of at least 0.3" in report.text()
    assert (
        f"with an edge from {report.layers[0].parent_names[gap.latent]} to word_{gap.child}"
        in report.text()
    )
    assert check_identifiability(fit, threshold=0.05).layers[0].verdict != "strict"
    numbered = SimpleNamespace(model=model, params=params, item_names=tuple(map(str, range(18))))
    assert check_identifiability(numbered).layers[0].child_names[3] == "items[3]"


def test_a_given_graph_is_the_graph() -> None:
    graph = tuple(tuple(int(v) for v in row) for row in np.repeat(np.eye(2, dtype=int), 3, axis=0))
    model = DeepDiscreteEncoder(6, (2,), graphs=(graph,), penalty=TruncatedLasso(1.0, 0.3))
    params = {
        "loadings_1": 0.1 * torch.tensor(graph, dtype=torch.float64),
        "proportions": torch.full((2,), 0.5),
    }
    fit = SimpleNamespace(model=model, params=params, item_names=())
    report = check_identifiability(fit)
    assert report.verdict == "strict"  # small loadings on given edges are edges
    assert report.thresholds == (0.0,)
    assert check_identifiability(fit, bottom="dina").verdict == "strict"
    assert check_identifiability(fit, threshold=0.3).verdict == "not established"


def test_violations_of_assumption_1() -> None:
    params = strict_design(2)
    params["proportions"] = torch.tensor([0.5, 1e-6], dtype=torch.float64)
    report = check(params, (18, 6, 2))
    assert [layer.verdict for layer in report.layers] == ["strict", "not established"]
    assert report.verdict == "not established"
    assert "the proportion of latents_2[1] is 1e-06" in report.text()

    params = strict_design(2)
    params["loadings_1"][:, 0] *= -1
    report = check(params, (18, 6, 2))
    assert report.verdict == "strict"  # a matter of labels
    (violation,) = report.layers[0].violations
    assert (violation.kind, violation.latents, violation.value) == (
        "column sum not positive",
        (0,),
        pytest.approx(-32 / 3),
    )

    params = strict_design(2)
    params["loadings_1"][:, 1] = -params["loadings_1"][:, 0]
    params["loadings_1"][:, 2] = 0
    report = check(params, (18, 6, 2))
    kinds = {(v.kind, v.latents) for v in report.layers[0].violations}
    assert {("equal columns", (0, 1)), ("empty column", (2,))} <= kinds
    assert report.layers[0].verdict == "not established"
    assert "no item depends on latents_1[2]" in report.text()
    assert "latents_1[2] has no items, needs at least 3" in report.text()


def test_the_words_name_what_is_missing() -> None:
    graph = np.array([[1, 0], [1, 1], [1, 1], [0, 1], [0, 1]])
    loadings = graph * np.array([[2.0], [1.0], [3.0], [2.0], [2.0]]) * [1.0, 1.5]
    report = check_graph(
        graph, loadings, child_names=list("abcde"), parent_names=["Algebra", "Geometry"]
    )
    assert report.verdict == "generic"
    assert report.missing == ("Algebra has 1 exclusive item (a), needs 2",)
    assert (
        "To make it strict: add 1 item (the fewest that do): 1 on Algebra alone." in report.text()
    )
    few = check_graph(graph[:4], child_names=list("abcd"), parent_names=["Algebra", "Geometry"])
    assert few.verdict == "not established"
    assert (
        "Algebra and Geometry together have 4 items (a, b, c and d), need at least 5" in few.missing
    )


@pytest.mark.parametrize("params", [strict_design(2), generic_design(2)])
def test_the_record_is_json_and_says_the_same(params: dict[str, torch.Tensor]) -> None:
    report = check(params, (18, 6, 2))
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert record["verdict"] == report.verdict
    assert record["text"] == report.text()
    assert [layer["verdict"] for layer in record["layers"]] == [
        layer.verdict for layer in report.layers
    ]
    assert record["layers"][0]["exclusive"] == [
        list(children) for children in report.layers[0].decision.exclusive
    ]
    assert record["layers"][0]["coverage"]["certificate"]["first"]


def test_bad_input_is_refused_by_name() -> None:
    params = strict_design(2)
    with pytest.raises(ValueError, match="layers must be given"):
        check_identifiability(params)
    with pytest.raises(ValueError, match="a fit or a dict of parameters was expected, got int"):
        check_identifiability(3)
    with pytest.raises(ValueError, match="threshold must not be negative, got -1"):
        check(params, (18, 6, 2), threshold=-1.0)
    with pytest.raises(ValueError, match=r"loadings_1 must have shape \(18, 6\), got \(1, 18, 6\)"):
        check(params | {"loadings_1": params["loadings_1"][None]}, (18, 6, 2))
    with pytest.raises(ValueError, match="loadings_2 must be finite"):
        check(params | {"loadings_2": params["loadings_2"] / 0}, (18, 6, 2))
    with pytest.raises(ValueError, match="params must hold 'proportions'"):
        check({k: v for k, v in params.items() if k != "proportions"}, (18, 6, 2))
    with pytest.raises(ValueError, match="names of items: 18 were expected, got 2"):
        check(params, (18, 6, 2), item_names=["a", "b"])
    with pytest.raises(ValueError, match="latent_names is by"):
        check(params, (18, 6, 2), latent_names={"topics": []})
    with pytest.raises(ValueError, match="bottom must be"):
        check(params, (18, 6, 2), bottom="noisy")
    with pytest.raises(ValueError, match="must have its graph given"):
        check(params, (18, 6, 2), bottom="dina")
    with pytest.raises(ValueError, match="graph must be a matrix"):
        check_graph([[0, 2], [1, 1]])
    with pytest.raises(ValueError, match="graph must be a matrix"):
        check_graph(np.zeros((0, 2)))
    several = [np.ones((5, 2)), np.ones((3, 2)), torch.ones(5, 1)]
    with pytest.raises(
        ValueError,
        match=(
            r"check_graph: graph must be a matrix \(J, K\) of 0 and 1, got 3 arrays of shapes \(5, "
            r"2\), \(3, 2\), \(5, 1\): ask for one"
        ),
    ):
        check_graph(several)  # numpy's "inhomogeneous shape" before
    for nonsense in ("abc", [[1, 0], [1]], [[1, object()], [1, 0]], [[1, 1j], [1, 0]]):
        with pytest.raises(
            ValueError, match=r"check_graph: graph must be a matrix \(J, K\) of 0 and 1, got"
        ):
            check_graph(nonsense)
        with pytest.raises(ValueError, match=r"loadings must have shape \(2, 2\), got"):
            check_graph([[1, 0], [1, 1]], loadings=nonsense)
    with pytest.raises(ValueError, match=r"loadings\[0, 0\] is 0 on an edge"):
        check_graph([[1, 0], [1, 1]], loadings=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="loadings must have shape"):
        check_graph([[1, 0], [1, 1]], loadings=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="judged by its graph"):
        check_graph([[1, 0], [1, 1]], loadings=np.ones((2, 2)), bottom="dina")
    with pytest.raises(ValueError, match="predictors must have shape"):
        check_graph([[1, 0], [1, 1]], bottom="gdm", predictors=np.ones((2, 2)))
    with pytest.raises(ValueError, match="predictors are for a 'gdm' layer"):
        check_graph([[1, 0], [1, 1]], predictors=np.ones((4, 2)))
