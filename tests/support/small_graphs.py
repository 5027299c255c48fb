"""Small random graphs, a counter-example, and condition C by brute force."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

COUNTER_EXAMPLE = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], dtype=bool)
graphs = st.integers(1, 3).flatmap(
    lambda k: st.integers(2 * k, 2 * k + 2).flatmap(lambda j: arrays(bool, (j, k), elements=st.booleans()))
)


def c_by_brute_force(graph: np.ndarray) -> bool:
    """Whether two different children for each latent can be chosen that leave every latent one more."""

    def search(k: int, used: frozenset[int]) -> bool:
        if k == graph.shape[1]:
            rest = [j for j in range(len(graph)) if j not in used]
            return bool(graph[rest].any(0).all())
        free = [j for j in range(len(graph)) if graph[j, k] and j not in used]
        return any(search(k + 1, used | set(pair)) for pair in itertools.combinations(free, 2))

    return search(0, frozenset())
