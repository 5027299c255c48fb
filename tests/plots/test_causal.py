"""Pictures of graphs of causes: what is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch
from support.small_graphs import REFERENCES, structure

from inference.causal import cpdag_of, dag_of_edges, discover, edge_probabilities, pc
from inference.plots.causal import plot_causal_graph


def edges(ax: object) -> list[FancyArrowPatch]:
    return [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]  # type: ignore[attr-defined]


def has_head(patch: FancyArrowPatch) -> bool:
    return "CurveFilledB" in type(patch.get_arrowstyle()).__name__


def test_arrows_lines_and_names() -> None:
    graph = cpdag_of(
        dag_of_edges(4, [(0, 2), (1, 2)]),
        names=("first", "second", "a name that is much too long", "$x$"),
    )
    ax = graph.plot()
    assert len(edges(ax)) == 2
    assert all(has_head(patch) for patch in edges(ax))
    texts = [text.get_text() for text in ax.texts]
    assert texts[:2] == ["first", "second"]
    assert texts[2] == "a name that is\nmuch too long"
    assert ax.get_legend() is None
    line = plot_causal_graph(cpdag_of(dag_of_edges(2, [(0, 1)])))
    assert [has_head(patch) for patch in edges(line)] == [False]


def test_stronger_edges_are_wider() -> None:
    graph = cpdag_of(dag_of_edges(3, [(0, 1), (1, 2)]))
    weights = np.zeros((3, 3))
    weights[0, 1] = weights[1, 0] = 0.1
    weights[1, 2] = weights[2, 1] = 0.4
    weak, strong = edges(plot_causal_graph(graph, weights))
    assert weak.get_linewidth() < strong.get_linewidth()


def test_open_directions_are_dashed_and_doubtful_edges_dotted() -> None:
    _, table = structure("2", REFERENCES["counter_example"]["change"])
    report = discover(table, 1e5)
    ax = report.plot()
    drawn = edges(ax)
    assert not any(has_head(patch) for patch in drawn)
    assert sorted(patch.get_linestyle() for patch in drawn) == sorted(["-", "--", ":"])
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {
        "direction left open",
        "may not be there",
    }
    ax.figure.canvas.draw()  # every artist can be drawn


def test_other_records_have_pictures() -> None:
    _, table = structure("3")
    assert len(edges(pc(table, 5000).plot())) == 4
    assert len(edges(edge_probabilities(table[None], 2000).plot())) == 4


def test_wrong_shapes() -> None:
    graph = cpdag_of(dag_of_edges(2, [(0, 1)]))
    with pytest.raises(ValueError, match=r"weights must have shape \(2, 2\), got \(3, 3\)"):
        plot_causal_graph(graph, weights=np.zeros((3, 3)))
