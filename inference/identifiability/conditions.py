r"""Conditions A, B and C for the identifiability of a layer of binary latents.

A layer has a graph G, bool (J, K): child j depends on latent k.

* **A**: every latent has two *exclusive* children, rows of G equal to a unit vector.
* **B**: for any two configurations :math:`a \ne a'` some child outside those 2 K has :math:`W_j a
  \ne W_j a'`; with R the loadings of these children, no :math:`\delta \in \{-1, 0, 1\}^K \setminus
  \{0\}` has :math:`R \delta = 0`.
* **C**: after reordering rows :math:`G = [G'; G''; G''']` with unit diagonals in the square G', G''
  and no zero column in G'''. In words: every latent has two children that *represent* it, 2 K
  different ones, and a child among the rest that *covers* it.

A and B give strict identification, C generic identification.

Source: S. Lee and Y. Gu (2025), arXiv:2501.01414, Theorems 1 and 2. The measurement of
:math:`\min_\delta \|R\delta\|_\infty` and the integer program are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ppl_models.parts.repr import shows_briefly

MAX_ENUMERATED = 10  # 3^10 differences of configurations are looked at one by one
RELATIVE_ZERO = 1e-9  # of the largest loading
SOLVER_ZERO = 1e-6  # the same, where a bound comes from the integer programming solver
# of one branch-and-bound search; a count, so that answers do not depend on the clock
MAX_NODES = 500
CHUNK = 2**22


@dataclass(frozen=True)
class Separation:
    r"""Condition B, decided: the least :math:`\|R (a - a')\|_\infty` of two configurations.

    Args:
        holds: whether it is positive; None where neither could be proved.
        margin: a lower bound on it, in units of the predictor.
        is_exact: whether it is the least value and not only a bound.
        pair: two configurations at the smallest distance found.
        distance: their distance.
    """

    holds: bool | None
    margin: float
    is_exact: bool
    pair: tuple[tuple[int, ...], tuple[int, ...]]
    distance: float

    @property
    def difference(self) -> np.ndarray:
        """The difference of the pair, (K,) in {-1, 0, 1}."""
        return np.subtract(*self.pair)


def configurations(num_latents: int) -> np.ndarray:
    """All configurations of binary latents in lexicographic order, 0/1 (2^K, K)."""
    return (np.arange(2**num_latents)[:, None] >> np.arange(num_latents - 1, -1, -1)) & 1


# ---------------------------------------------------------------- condition A


def exclusive_children(graph: np.ndarray) -> list[np.ndarray]:
    """For each latent the children that depend on it alone."""
    alone = graph.sum(1) == 1
    return [np.flatnonzero(alone & graph[:, k]) for k in range(graph.shape[1])]


def rest_of(graph: np.ndarray, loadings: np.ndarray | None) -> np.ndarray:
    """Children left for condition B once each latent has spent two exclusive ones.

    Which two does not matter for B, and the largest loading is kept, for the margin.
    """
    spent: list[int] = []
    for k, children in enumerate(exclusive_children(graph)):
        if loadings is not None:
            children = children[np.argsort(np.abs(loadings[children, k]), kind="stable")]
        spent += children[:2].tolist()
    return np.setdiff1d(np.arange(len(graph)), spent)


# ---------------------------------------------------------------- condition B


def undetermined(graph: np.ndarray) -> np.ndarray:
    r"""Latents whose difference :math:`R \delta = 0` does not force to zero.

    Whatever the nonzero loadings are.

    A row with one latent left forces it to zero; repeat. If none is left, B holds for every value
    of the loadings.

    Args:
        graph: (num_rows, K), of the rows of R.
    """
    left = np.ones(graph.shape[1], dtype=bool)
    while left.any():
        single = graph[(graph & left).sum(1) == 1] & left
        if not single.any():
            break
        left &= ~single.any(0)
    return np.flatnonzero(left)


def separate(rows: np.ndarray, with_margin: bool = True) -> Separation:
    r"""Decide condition B for the loadings R of the children left over.

    Args:
        rows: R, (num_rows, K).
        with_margin: whether the least distance is wanted even where B is known to hold.
    """
    num_latents = rows.shape[1]
    zero = RELATIVE_ZERO * max(float(np.abs(rows).max(initial=0.0)), np.finfo(float).tiny)
    graph = np.abs(rows) > zero
    left = undetermined(graph)
    proved = len(left) == 0
    if not proved:
        used = rows[:, left]
        proved = len(used) >= len(left) and float(np.linalg.svd(used, compute_uv=False)[-1]) > zero
    if proved and not with_margin:
        return Separation(True, 0.0, False, ((0,) * num_latents, (0,) * num_latents), float("nan"))
    if num_latents <= MAX_ENUMERATED:
        lower, delta = _least_by_enumeration(rows)
    else:
        lower, delta = _least_by_programming(rows)
        zero = max(zero, SOLVER_ZERO * float(np.abs(rows).max(initial=0.0)))
    distance = float(np.abs(rows @ delta).max(initial=0.0))
    lower = min(lower, distance)
    is_exact = distance - lower <= zero
    holds: bool | None = None
    if proved or lower > zero:
        holds = True
    elif distance <= zero:
        holds, lower, distance, is_exact = False, 0.0, 0.0, True
    first, second = (tuple(int(v) for v in part) for part in (delta > 0, delta < 0))
    return Separation(holds, distance if is_exact else lower, is_exact, (first, second), distance)


def _least_by_enumeration(rows: np.ndarray) -> tuple[float, np.ndarray]:
    """Least distance and its difference, over differences up to their sign."""
    num_latents = rows.shape[1]
    powers = 3 ** np.arange(num_latents)
    # base-3 digits minus one; the middle code, all zeros, is left out
    codes = np.arange((3**num_latents - 1) // 2)
    best, best_delta = float("inf"), np.zeros(num_latents)
    step = max(1, CHUNK // max(1, len(rows)))
    for start in range(0, len(codes), step):
        deltas = (codes[start : start + step, None] // powers) % 3 - 1
        distances = np.abs(deltas @ rows.T).max(1, initial=0.0)
        place = int(distances.argmin())
        if distances[place] < best:
            best, best_delta = float(distances[place]), -deltas[place].astype(float)
    return best, best_delta


def _least_by_programming(rows: np.ndarray) -> tuple[float, np.ndarray]:
    """Lower bound on the least distance, and the best difference found.

    They are equal unless a search was cut off.

    For each k, the differences with entry k equal to 1 and zeros before it: a linear program bounds
    them from below, and only where that bound does not settle it is the integer program solved.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    num_latents = rows.shape[1]
    units = np.eye(num_latents)
    pairs = [
        units[k] + s * units[m]
        for k in range(num_latents)
        for m in range(k + 1, num_latents)
        for s in (1, -1)
    ]
    starts = np.stack([*units, *pairs])
    distances = np.abs(starts @ rows.T).max(1, initial=0.0)
    best, best_delta = float(distances.min()), starts[distances.argmin()]
    lower = best
    column = np.ones((len(rows), 1))
    constraint = LinearConstraint(np.block([[rows, -column], [rows, column]]), *_sides(len(rows)))
    cost = np.append(np.zeros(num_latents), 1.0)
    integral = np.append(np.ones(num_latents), 0)
    for k in range(num_latents):
        low, high = np.append(-np.ones(num_latents), 0.0), np.append(np.ones(num_latents), np.inf)
        low[:k], high[:k], low[k] = 0.0, 0.0, 1.0
        relaxed = milp(cost, bounds=Bounds(low, high), constraints=constraint)
        bound = float(relaxed.fun) if relaxed.status == 0 else 0.0
        if bound < best:
            options = {"node_limit": MAX_NODES, "mip_rel_gap": 0.0}
            found = milp(
                cost,
                integrality=integral,
                bounds=Bounds(low, high),
                constraints=constraint,
                options=options,
            )
            if found.x is not None:
                delta = np.round(found.x[:num_latents])
                distance = float(np.abs(rows @ delta).max(initial=0.0))
                if distance < best:
                    best, best_delta = distance, delta
            if found.status == 0:
                bound = float(found.fun)
            elif found.mip_dual_bound is not None:
                bound = max(bound, float(found.mip_dual_bound))
        lower = min(lower, bound)
    return max(lower, 0.0), best_delta


def _sides(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Two-sided bounds of R delta - t <= 0 and R delta + t >= 0."""
    infinite, zero = np.full(num_rows, np.inf), np.zeros(num_rows)
    return np.concatenate([-infinite, zero]), np.concatenate([zero, infinite])


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
    r"""Decide condition C exactly: a proof, or the fewest children that would make it hold.

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
    """Largest entry that, added to a graph where C fails, makes it hold; None if none does.

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
    """Integer program of :func:`cover`, or with ``size`` of :func:`best_gain`.

    None if infeasible.

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
    twice = matrix(num_latents, (latents, y, 1.0), (each, v + each, 1.0))
    once = matrix(num_children, (children, y, 1.0))
    covering = ((taken, takes, -1.0), (each, u + each, 1.0), (gain_latents, c + gains, 1.0))
    spare = matrix(num_latents, (each, u + each, 1.0), (each, np.full(num_latents, s), -1.0))
    constraints = [
        LinearConstraint(twice, 2, 2),
        LinearConstraint(once, -np.inf, 1),
        LinearConstraint(matrix(num_latents, *covering), 1 - graph.sum(0), np.inf),
        LinearConstraint(spare, -np.inf, 0),
    ]
    high, cost = np.ones(c + num_c), np.zeros(c + num_c)
    if size is None:
        high[v:u] = 2
        cost[v:u], cost[u:s], cost[s] = 1.0, 1.0 / (2 * num_latents + 1), 1.0
    else:
        high[v:c] = 0
        cost[:num_y] = -size[children, latents] * is_new
        cost[c:] = -size[gain_children, gain_latents]
        zeros = np.zeros(num_c, dtype=int)
        single = matrix(1, (zeros, y[is_new], 1.0), (zeros, c + gains, 1.0))
        # a child that represents covers nothing
        same, other = np.nonzero(gain_children[:, None] == children)
        either = matrix(num_c, (same, other, 1.0), (gains, c + gains, 1.0))
        constraints += [LinearConstraint(rows, -np.inf, 1) for rows in (single, either)]
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
    """Sets of latents with too few children, the smallest first, none within another.

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
    """Network source -> latents (capacities) -> children (no limit) -> sink (1)."""
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
