"""Small graphs: of items and latents, with condition C by brute force; of causes among attributes,
with their tables.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from inference.causal import BDeu, dag_of_edges
from inference.causal.graphs import check_graph_matrix, pdag_of, v_structures
from inference.causal.pdags import masks_of_columns, meek_closure
from inference.causal.scores import Score, SetScores
from inference.causal.tables import Marginals, as_table, dag_table

COUNTER_EXAMPLE = np.array(
    [[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], dtype=bool
)
graphs = st.integers(1, 3).flatmap(
    lambda k: st.integers(2 * k, 2 * k + 2).flatmap(
        lambda j: arrays(bool, (j, k), elements=st.booleans())
    )
)


def c_by_brute_force(graph: np.ndarray) -> bool:
    """Whether two different children for each latent can be chosen that leave every latent one
    more.
    """

    def search(k: int, used: frozenset[int]) -> bool:
        if k == graph.shape[1]:
            rest = [j for j in range(len(graph)) if j not in used]
            return bool(graph[rest].any(0).all())
        free = [j for j in range(len(graph)) if graph[j, k] and j not in used]
        return any(search(k + 1, used | set(pair)) for pair in itertools.combinations(free, 2))

    return search(0, frozenset())


REFERENCES = json.loads(
    (Path(__file__).parent.parent / "references" / "latent_attributes.json").read_text(
        encoding="utf-8"
    )
)
STRUCTURES = ("1", "2", "3")


def structure(name: str, changes: dict[str, float] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The DAG and the table of one of the three structures, with other conditional probabilities
    where wished.
    """
    record = REFERENCES["structures"][name]
    dag = dag_of_edges(5, [(i - 1, j - 1) for i, j in record["edges"]])
    probabilities: list[np.ndarray] = [
        np.full((2,) * int(dag[:, k].sum()), np.nan) for k in range(5)
    ]
    for k, chance in record["root"].items():
        probabilities[int(k) - 1] = np.array(chance)
    for label, chance in {**record["conditional"], **(changes or {})}.items():
        child, given = label.split("|")
        values = [int(part.split("=")[1]) for part in given.split(",")]  # parents ascending
        probabilities[int(child) - 1][tuple(values)] = chance
    return dag, dag_table(dag, probabilities)


def random_dag(num_attributes: int, rng: np.random.Generator, density: float = 0.5) -> np.ndarray:
    """Arrows between random pairs, along a random order."""
    upper = np.triu(rng.random((num_attributes, num_attributes)) < density, 1)
    order = rng.permutation(num_attributes)
    dag = np.zeros_like(upper)
    dag[np.ix_(order, order)] = upper
    return dag


def random_table(
    dag: np.ndarray, rng: np.random.Generator, low: float = 0.1, high: float = 0.9
) -> np.ndarray:
    """A table with random conditional probabilities; almost surely faithful."""
    return dag_table(
        dag, [rng.uniform(low, high, (2,) * int(dag[:, k].sum())) for k in range(len(dag))]
    )


# ---------------------------------------------------------------- oracles


def meek(graph: Any) -> np.ndarray:
    """All arrows that Meek's four rules (1995) force, bool (K, K)."""
    return meek_closure(pdag_of(check_graph_matrix("meek", graph))).matrix


def markov_equivalent(one: np.ndarray, two: np.ndarray) -> bool:
    """Equivalence of two DAGs: same skeleton and v-structures (Verma and Pearl 1990)."""
    return np.array_equal(one | one.T, two | two.T) and v_structures(one) == v_structures(two)


def d_separated(dag: np.ndarray, first: int, second: int, given: Sequence[int] = ()) -> bool:
    """No path joins two attributes given some others, as NetworkX says."""
    return bool(nx.is_d_separator(nx.DiGraph(dag), {first}, {second}, {*given}))


def score_of(dag: Any, table: Any, num_rows: float, score: Score | None = None) -> float:
    """The score of a DAG on a table at a number of rows."""
    flat = np.asarray(table, dtype=float).reshape(-1)
    scores = SetScores(as_table("score_of", flat), num_rows, score or BDeu())
    return scores.total(masks_of_columns(np.asarray(dag, dtype=bool)))


def mutual_information(table: Any, first: int, second: int, given: Sequence[int] = ()) -> float:
    """I(first; second | given) of a table, nats."""
    mask = sum(1 << k for k in given)
    return Marginals(as_table("mutual_information", table)).information(first, second, mask)
