"""Graphs of attributes as boolean matrices: DAGs, and CPDAGs of equivalence classes.

In a matrix g of shape (K, K), ``g[i, j]`` alone is an arrow i -> j, and ``g[i, j]`` with ``g[j,
i]`` a line i - j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from inference.base.drawing import draw
from inference.causal.pdags import (
    Pdag,
    class_of,
    extension_of,
    masks_of_columns,
    matrix_of_columns,
    order_of,
)
from ppl_models.descriptions.attribute_distribution import cycle_of
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import is_integer

if TYPE_CHECKING:
    import networkx as nx

MOST_NODES = 1000


@shows_briefly
@dataclass(frozen=True, eq=False)
class Cpdag:
    """Graph of an equivalence class of DAGs: arrows where all agree, else lines.

    Of a CPDAG that is all DAGs of the class; where edges are known, those that agree with them.

    Args:
        matrix: bool (K, K); ``[i, j]`` alone is an arrow i -> j, with ``[j, i]`` a line.
        names: of the attributes.
    """

    matrix: np.ndarray
    names: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Cpdag)
            and self.names == other.names
            and np.array_equal(self.matrix, other.matrix)
        )

    def __hash__(self) -> int:
        return hash((self.names, self.matrix.tobytes()))

    @property
    def arrows(self) -> tuple[tuple[int, int], ...]:
        """(from, to), ascending."""
        return tuple((int(i), int(j)) for i, j in np.argwhere(self.matrix & ~self.matrix.T))

    @property
    def lines(self) -> tuple[tuple[int, int], ...]:
        """(smaller, larger), ascending."""
        return tuple((int(i), int(j)) for i, j in np.argwhere(self.matrix & self.matrix.T) if i < j)

    @property
    def v_structures(self) -> tuple[tuple[int, int, int], ...]:
        """(i, j, k) with i -> j <- k, i < k not adjacent."""
        return v_structures(self.matrix)

    def dag(self) -> np.ndarray:
        """One DAG of the class, bool (K, K)."""
        return consistent_extension(self.matrix)

    def dag_edges(self) -> tuple[tuple[int, int], ...]:
        """Edges (cause, effect) of one DAG of the class, for ``root=Dag(edges)`` of a model."""
        return tuple((int(i), int(j)) for i, j in np.argwhere(self.dag()))

    def to_networkx(self) -> nx.DiGraph:
        """Graph on the names, as a NetworkX ``DiGraph``: a line is an arc each way.

        Each arc has the attribute ``directed``, False on both arcs of a line.
        """
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(self.names)
        for i, j in np.argwhere(self.matrix):
            graph.add_edge(self.names[i], self.names[j], directed=not self.matrix[j, i])
        return graph

    def plot(self, ax: Any = None) -> Any:
        """The graph as a picture; see :func:`inference.plots.causal.plot_causal_graph`."""
        return draw("plot_causal_graph", self, ax=ax)

    def text(self, open_lines: np.ndarray | None = None) -> str:
        """Edges, one a line; ``open_lines``, bool (K, K), are said to be left open."""
        edges = [f"{self.names[i]} → {self.names[j]}" for i, j in self.arrows]
        for i, j in self.lines:
            is_open = open_lines is not None and bool(open_lines[i, j])
            edges.append(
                f"{self.names[i]} — {self.names[j]}"
                + (" (the direction is left open)" if is_open else "")
            )
        return "\n".join(edges) if edges else "no edges"


def as_names(owner: str, names: Sequence[str] | None, num_attributes: int) -> tuple[str, ...]:
    """Names of K attributes, A1, A2, ... by default; a ValueError for invalid ones."""
    if names is None:
        return tuple(f"A{k + 1}" for k in range(num_attributes))
    entries = _entries(names)
    found = tuple(map(str, entries or ()))
    unnamed = any(entry is None or entry != entry for entry in entries or ())  # NaN is not itself
    if unnamed or len(found) != num_attributes or len(set(found)) != num_attributes:
        raise ValueError(
            f"{owner}: names must be {num_attributes} different names, got"
            f" {names if entries is None else found}"
        )
    return found


def _entries(value: Any) -> tuple[Any, ...] | None:
    """Entries of a list, array or other collection; None for text or a scalar."""
    try:
        return None if isinstance(value, str | bytes) else tuple(value)
    except TypeError:  # also of an array without dims
        return None


def real_numbers(owner: str, values: Any, name: str) -> np.ndarray:
    """Array of real numbers from what can be read as one; else a ValueError."""
    try:
        array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
        raise ValueError(
            f"{owner}: {name} must be an array of numbers, got {type(values).__name__} ({error})"
        ) from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{owner}: {name} must hold real numbers, got dtype {array.dtype}")
    return array


def check_graph_matrix(owner: str, graph: Any, name: str = "graph") -> np.ndarray:
    """A graph as a boolean matrix (K, K), else a ValueError that says what came."""
    matrix = real_numbers(owner, graph.matrix if isinstance(graph, Cpdag) else graph, name)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"{owner}: {name} must be a square matrix, got shape {matrix.shape}")
    if len(matrix) > MOST_NODES:
        raise ValueError(
            f"{owner}: {name} may have at most {MOST_NODES} attributes, got {len(matrix)}"
        )
    if not ((matrix == 0) | (matrix == 1)).all():
        raise ValueError(f"{owner}: {name} must hold only 0 and 1")
    if matrix.diagonal().any():
        raise ValueError(
            f"{owner}: {name} joins attribute {int(np.flatnonzero(matrix.diagonal())[0])} to itself"
        )
    return matrix.astype(bool)


def check_dag(
    owner: str, dag: Any, name: str = "dag", names: Sequence[str] | None = None
) -> np.ndarray:
    """A DAG as a boolean matrix (K, K).

    Raises:
        ValueError: as :func:`check_graph_matrix`, and where arrows run in a circle, which the
            message names.
    """
    matrix = check_graph_matrix(owner, dag, name)
    parents = masks_of_columns(matrix)
    if order_of(parents) is None:
        shown = [
            str(k) if names is None else str(names[k])
            for k in cycle_of((int(i), int(j)) for i, j in np.argwhere(matrix))
        ]
        raise ValueError(f"{owner}: {name} must have no circle of arrows, got {' -> '.join(shown)}")
    return matrix


def pdag_of(matrix: np.ndarray) -> Pdag:
    """Sets of parents and neighbours from a boolean matrix."""
    return Pdag(masks_of_columns(matrix & ~matrix.T), masks_of_columns(matrix & matrix.T))


def dag_of_edges(num_attributes: int, edges: Sequence[tuple[int, int]]) -> np.ndarray:
    """The boolean matrix (K, K) of a DAG with the given arrows (from, to).

    Args:
        num_attributes: K.
        edges: pairs (from, to), numbers from 0.

    Raises:
        ValueError: for an arrow to or from what is no attribute, or a circle.
    """
    if not is_integer(num_attributes) or num_attributes > MOST_NODES:
        raise ValueError(
            f"dag_of_edges: num_attributes must be an integer from 1 to {MOST_NODES}, got"
            f" {num_attributes!r}"
        )
    matrix = np.zeros((num_attributes, num_attributes), dtype=bool)
    for pair in (edges,) if (pairs := _entries(edges)) is None else pairs:
        ends = _entries(pair)
        if (
            ends is None
            or len(ends) != 2
            or not all(is_integer(k, least=0) and k < num_attributes for k in ends)
        ):
            raise ValueError(
                f"dag_of_edges: edges must join attributes 0 to {num_attributes - 1}, got {pair!r}"
            )
        i, j = ends
        matrix[i, j] = True
    return check_dag("dag_of_edges", matrix, "edges")


def topological_order(dag: Any) -> tuple[int, ...]:
    """Attributes so that causes come before effects, smaller numbers first where they may."""
    order = order_of(masks_of_columns(check_dag("topological_order", dag)))
    return tuple(order or ())


def cpdag_of(dag: Any, names: Sequence[str] | None = None) -> Cpdag:
    """The CPDAG of a DAG (Chickering 2002, JMLR 3): v-structures, then Meek's rules.

    Args:
        dag: 0/1 or bool (K, K), ``[i, j]`` for i -> j.
        names: of the attributes.

    Raises:
        ValueError: for a matrix that is no DAG; a circle is named.
    """
    matrix = check_dag("cpdag_of", dag, names=names)
    return Cpdag(
        class_of(masks_of_columns(matrix)).matrix, as_names("cpdag_of", names, len(matrix))
    )


def consistent_extension(graph: Any) -> np.ndarray:
    """DAG with the skeleton, arrows and v-structures of a graph, bool (K, K).

    The algorithm of Dor and Tarsi (1992).

    Raises:
        ValueError: where there is none.
    """
    matrix = check_graph_matrix("consistent_extension", graph)
    parents = extension_of(pdag_of(matrix))
    if parents is None:
        raise ValueError(
            "consistent_extension: no DAG has the skeleton, the arrows and the v-structures of this"
            " graph"
        )
    return matrix_of_columns(parents)


def v_structures(graph: Any) -> tuple[tuple[int, int, int], ...]:
    """(i, j, k) with i -> j <- k, i < k not adjacent, ascending."""
    matrix = check_graph_matrix("v_structures", graph)
    arrows, joined = matrix & ~matrix.T, matrix | matrix.T
    found = []
    for j in range(len(matrix)):
        into = np.flatnonzero(arrows[:, j])
        found += [(int(i), j, int(k)) for i in into for k in into if i < k and not joined[i, k]]
    return tuple(sorted(found))


def _matrices(owner: str, names: tuple[str, str], *graphs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Matrices of two graphs, the second in the order of the first where both name the same."""
    one, two = (
        check_graph_matrix(owner, own, name) for own, name in zip(graphs, names, strict=True)
    )
    if one.shape != two.shape:
        raise ValueError(
            f"{owner}: two graphs on the same attributes were expected, got {len(one)} and"
            f" {len(two)}"
        )
    if all(isinstance(own, Cpdag) for own in graphs):
        first, second = (own.names for own in graphs)
        if first != second and set(first) == set(second):
            order = [second.index(name) for name in first]
            two = two[np.ix_(order, order)]
    return one, two


def shd(first: Any, second: Any) -> int:
    """Structural Hamming distance: pairs whose mark (none, line, either arrow) differs.

    Of two CPDAGs it does not depend on the members of the classes; of two DAGs every turned arrow
    counts once.
    """
    one, two = _matrices("shd", ("first", "second"), first, second)
    differs = (one != two) | (one != two).T
    return int(np.triu(differs, 1).sum())


@dataclass(frozen=True)
class GraphComparison:
    """Comparison of a graph with the true one.

    Args:
        exact: whether it is the true one.
        shd: pairs whose mark differs.
        precision: share of the edges found that are true ones, whatever their direction; NaN where
            none is found.
        recall: share of the true edges that are found; NaN where there are none.
        orientation_errors: common edges whose mark differs.
    """

    exact: bool
    shd: int
    precision: float
    recall: float
    orientation_errors: int


def compare_graphs(found: Any, truth: Any) -> GraphComparison:
    """Compare two CPDAGs (or two graphs of the same kind), bool (K, K) or :class:`Cpdag`.

    Two with the same names in different orders are compared by these, others by place.

    Args:
        found: the estimated graph.
        truth: the reference.
    """
    one, two = _matrices("compare_graphs", ("found", "truth"), found, truth)
    distance = shd(one, two)
    ours, theirs = np.triu(one | one.T), np.triu(two | two.T)
    common = ours & theirs
    wrong = common & ((one != two) | (one != two).T)
    num_found, num_true, num_common = int(ours.sum()), int(theirs.sum()), int(common.sum())
    return GraphComparison(
        distance == 0,
        distance,
        num_common / num_found if num_found else float("nan"),
        num_common / num_true if num_true else float("nan"),
        int(wrong.sum()),
    )
