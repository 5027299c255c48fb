"""Small graphs: of items and latents, with condition C by brute force; of causes among attributes,
with their tables.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from inference.causal import dag_of_edges
from inference.causal.tables import dag_table

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
