r"""Condition C, under which a layer of binary latents is generically identified, decided exactly;
on plain arrays.

A layer has a graph G, bool (J, K): child j depends on latent k. C says that after reordering rows
:math:`G = [G'; G''; G''']` with unit diagonals in the square G', G'' and no zero column in G'''. In
words: every latent has two children that *represent* it, 2 K different ones, and a child among the
rest that *covers* it.

Source: S. Lee and Y. Gu (2025), arXiv:2501.01414, Theorem 2. The integer program is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ppl_models.parts.repr import shows_briefly

INFEASIBLE = 2  # status of scipy's milp


@dataclass(frozen=True)
class Certificate:
    """Rows that prove condition C.

    Args:
        first, second: the two children that represent each latent (rows of G' and G'').
        covering: for each latent a further child among the rest that depends on it.
    """

    first: tuple[int, ...]
    second: tuple[int, ...]
    covering: tuple[int, ...]


@shows_briefly
@dataclass(frozen=True)
class Coverage:
    """Condition C, decided.

    Args:
        certificate: the proof that it holds; None if it fails.
        new_children: the fewest children that must be added to make it hold, and for each the
            latents it must depend on (it may depend on more); empty if C holds.
        uncovered: latents that no spare child depends on, in the best choice of representatives.
        unrepresented: latents with fewer than two representatives there.
        num_missing: the fewest missing pieces (representatives and coverings) of any choice.
    """

    certificate: Certificate | None
    new_children: tuple[tuple[int, ...], ...]
    uncovered: tuple[int, ...]
    unrepresented: tuple[int, ...]
    num_missing: int


@dataclass(frozen=True)
class HallViolator:
    """A set of latents with too few children: T with fewer than ``2 |T| + 1``.

    It proves that C fails.
    """

    latents: tuple[int, ...]
    children: tuple[int, ...]

    @property
    def needed(self) -> int:
        """``2 |T| + 1``."""
        return 2 * len(self.latents) + 1


def cover(graph: np.ndarray) -> Coverage:
    r"""Decide condition C exactly, with a proof, or with the fewest children that would make it
    hold.

    Three disjoint children for every latent prove it (a matching); otherwise an integer program
    over the edges,

    .. math::
        \min \sum_k v_k + s + \epsilon \sum_k u_k : \quad
        \sum_j y_{jk} + v_k = 2, \quad \sum_k y_{jk} \le 1, \quad y_{jk} \le G_{jk}, \quad
        \sum_j G_{jk} (1 - \sum_l y_{jl}) + u_k \ge 1, \quad u_k \le s

    with :math:`y_{jk} = 1` where child j represents latent k. C holds if and only if the minimum is
    0; else :math:`v_k` new children must represent latent k and, if s = 1, one more must cover the
    latents with :math:`u_k = 1`.

    Args:
        graph: bool (J, K).
    """
    matched = _three_each(graph)
    if matched is not None:
        return Coverage(Certificate(*(tuple(rows) for rows in matched.T.tolist())), (), (), (), 0)
    solution = _solve(graph, np.zeros_like(graph), None)
    if solution is None:
        raise RuntimeError(
            "the integer program of condition C has no solution, though it always should"
        )
    y, missing, uncovered = solution.represents, solution.missing, solution.uncovered
    if missing.sum() + uncovered.sum() == 0:
        first, second = (tuple(int(np.flatnonzero(column)[i]) for column in y.T) for i in (0, 1))
        spare = graph & (y.sum(1) == 0)[:, None]
        covering = tuple(int(np.flatnonzero(column)[0]) for column in spare.T)
        return Coverage(Certificate(first, second, covering), (), (), (), 0)
    latents = range(graph.shape[1])
    lone = tuple(k for k in latents if uncovered[k])
    new = [(k,) for k in latents for _ in range(missing[k])] + ([lone] if lone else [])
    unrepresented = tuple(k for k in latents if missing[k])
    return Coverage(None, tuple(new), lone, unrepresented, int(missing.sum() + uncovered.sum()))


def best_gain(graph: np.ndarray, size: np.ndarray) -> tuple[int, int] | None:
    """The entry of largest size that, added to a graph where C fails, makes it hold; None if no
    single one does.

    Args:
        graph: bool (J, K).
        size: (J, K), not negative; entries of size zero are not on offer, nor are edges.
    """
    candidates = ~graph & (size > 0)
    if not candidates.any():
        return None
    solution = _solve(graph, candidates, size)
    if solution is None:
        return None
    child, latent = np.argwhere((solution.represents & candidates) | solution.covers)[0]
    return int(child), int(latent)


@dataclass(frozen=True)
class _Solution:
    """y (J, K) bool, v (K,), u (K,), and the new entries used as coverings (J, K) bool."""

    represents: np.ndarray
    missing: np.ndarray
    uncovered: np.ndarray
    covers: np.ndarray


def _solve(graph: np.ndarray, candidates: np.ndarray, size: np.ndarray | None) -> _Solution | None:
    """The integer program of :func:`cover`, or with ``size`` that of :func:`best_gain`; None if
    infeasible.

    For the gain, one candidate entry may represent (more y) or cover (c), nothing may be missing,
    and the size of the entry is maximised.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    num_children, num_latents = graph.shape
    children, latents = np.nonzero(graph | candidates)
    is_new = candidates[children, latents]
    gain_children, gain_latents = np.nonzero(candidates)
    num_y, num_c = len(children), len(gain_children)
    v, u, s = num_y, num_y + num_latents, num_y + 2 * num_latents
    c = s + 1
    y, each, gains = np.arange(num_y), np.arange(num_latents), np.arange(num_c)

    def matrix(num_rows: int, *entries: tuple[np.ndarray, np.ndarray, float]) -> csr_array:
        row, column = (np.concatenate([np.asarray(entry[i]) for entry in entries]) for i in (0, 1))
        value = np.concatenate([np.full(len(entry[0]), entry[2]) for entry in entries])
        return csr_array((value, (row, column)), shape=(num_rows, c + num_c))

    # y of child j takes j away from every latent l with an edge to j
    taken, takes = np.nonzero(graph[children].T)
    constraints = [
        LinearConstraint(matrix(num_latents, (latents, y, 1.0), (each, v + each, 1.0)), 2, 2),
        LinearConstraint(matrix(num_children, (children, y, 1.0)), -np.inf, 1),
        LinearConstraint(
            matrix(
                num_latents,
                (taken, takes, -1.0),
                (each, u + each, 1.0),
                (gain_latents, c + gains, 1.0),
            ),
            1 - graph.sum(0),
            np.inf,
        ),
        LinearConstraint(
            matrix(num_latents, (each, u + each, 1.0), (each, np.full(num_latents, s), -1.0)),
            -np.inf,
            0,
        ),
    ]
    high, cost = np.ones(c + num_c), np.zeros(c + num_c)
    if size is None:
        high[v:u] = 2
        cost[v:u], cost[u:s], cost[s] = 1.0, 1.0 / (2 * num_latents + 1), 1.0
    else:
        high[v:c] = 0
        cost[:num_y], cost[c:] = (
            -size[children, latents] * is_new,
            -size[gain_children, gain_latents],
        )
        zeros = np.zeros(num_c, dtype=int)
        constraints.append(
            LinearConstraint(
                matrix(1, (zeros, y[is_new], 1.0), (zeros, c + gains, 1.0)), -np.inf, 1
            )
        )
        # a child that represents covers nothing
        same, other = np.nonzero(gain_children[:, None] == children)
        constraints.append(
            LinearConstraint(matrix(num_c, (same, other, 1.0), (gains, c + gains, 1.0)), -np.inf, 1)
        )
    solution = milp(
        cost,
        integrality=np.ones(c + num_c),
        bounds=Bounds(0, high),
        constraints=constraints,
        options={"mip_rel_gap": 0.0},
    )
    if solution.status == INFEASIBLE:
        return None
    if solution.x is None:
        raise RuntimeError(f"the integer program of condition C was not solved: {solution.message}")
    x = np.round(solution.x).astype(int)
    represents, covers = np.zeros(graph.shape, dtype=bool), np.zeros(graph.shape, dtype=bool)
    represents[children, latents] = x[:num_y] > 0
    covers[gain_children, gain_latents] = x[c:] > 0
    return _Solution(represents, x[v:u], x[u:s], covers)


def _three_each(graph: np.ndarray) -> np.ndarray | None:
    """Three children for every latent, all different, (K, 3); None if there are none."""
    num_children, num_latents = graph.shape
    if num_children < 3 * num_latents:
        return None
    flow = _flow(_network(graph, np.full(num_latents, 3)))
    if flow.flow_value < 3 * num_latents:
        return None
    block = flow.flow[
        1 : 1 + num_latents, 1 + num_latents : 1 + num_latents + num_children
    ].toarray()
    return np.stack([np.flatnonzero(row > 0) for row in block])


def hall_violators(graph: np.ndarray) -> tuple[HallViolator, ...]:
    """Sets of latents with too few children, the smallest first, none of them containing another.

    For every latent k a minimum cut finds the T containing k with the least ``|N(T)| - 2 |T|``. An
    empty answer does not prove condition C.
    """
    from scipy.sparse.csgraph import breadth_first_order

    num_children, num_latents = graph.shape
    found: set[tuple[int, ...]] = set()
    for k in range(num_latents):
        capacities = np.full(num_latents, 2)
        capacities[k] = num_children + 2 * num_latents  # k is in the set
        network = _network(graph, capacities)
        residual = network - _flow(network).flow
        residual.eliminate_zeros()
        reached = breadth_first_order(residual, 0, return_predecessors=False)
        latents = tuple(sorted(int(i) - 1 for i in reached if 1 <= i <= num_latents))
        if len(_children_of(graph, latents)) < 2 * len(latents) + 1:
            found.add(latents)
    smallest = [chosen for chosen in found if not any(set(other) < set(chosen) for other in found)]
    smallest.sort(key=lambda chosen: (len(chosen), chosen))
    return tuple(HallViolator(chosen, _children_of(graph, chosen)) for chosen in smallest)


def _children_of(graph: np.ndarray, latents: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(graph[:, list(latents)].sum(1) > 0).tolist())


def _network(graph: np.ndarray, capacities: np.ndarray) -> Any:
    """source -> latents (capacities) -> children (no limit) -> sink (1)."""
    from scipy.sparse import csr_array

    num_children, num_latents = graph.shape
    children, latents = np.nonzero(graph)
    size = num_latents + num_children + 2
    start = np.concatenate(
        [np.zeros(num_latents, int), 1 + latents, 1 + num_latents + np.arange(num_children)]
    )
    end = np.concatenate(
        [1 + np.arange(num_latents), 1 + num_latents + children, np.full(num_children, size - 1)]
    )
    unlimited = np.full(len(children), int(capacities.sum()) + 1)
    capacity = np.concatenate([capacities, unlimited, np.ones(num_children, int)]).astype(np.int32)
    # older scipy's flows take no others
    return csr_array((capacity, (start.astype(np.int32), end.astype(np.int32))), shape=(size, size))


def _flow(network: Any) -> Any:
    from scipy.sparse.csgraph import maximum_flow

    return maximum_flow(network, 0, network.shape[0] - 1)
