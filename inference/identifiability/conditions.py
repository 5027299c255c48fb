r"""Conditions A and B, under which a layer of binary latents is strictly identified, on plain
arrays.

A layer has a graph G, bool (J, K): child j depends on latent k.

* **A**: every latent has two *exclusive* children, rows of G equal to a unit vector.
* **B**: for any two configurations :math:`a \ne a'` some child outside those 2 K has :math:`W_j a
  \ne W_j a'`; with R the loadings of these children, no :math:`\delta \in \{-1, 0, 1\}^K \setminus
  \{0\}` has :math:`R \delta = 0`.

Source: S. Lee and Y. Gu (2025), arXiv:2501.01414, Theorem 1. The measurement of :math:`\min_\delta
\|R\delta\|_\infty` is ours. Condition C is in :mod:`inference.identifiability.coverage`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MAX_ENUMERATED = 10  # 3^10 differences of configurations are looked at one by one
RELATIVE_ZERO = 1e-9  # of the largest loading
SOLVER_ZERO = 1e-6  # the same, where a bound comes from the integer programming solver
# of one branch-and-bound search; a count, so that answers do not depend on the clock
MAX_NODES = 500
CHUNK = 2**22


@dataclass(frozen=True)
class Separation:
    r"""Condition B, decided: the least :math:`\|R (a - a')\|_\infty` over two different
    configurations.

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


# ---------------------------------------------------------------- condition A


def exclusive_children(graph: np.ndarray) -> list[np.ndarray]:
    """For each latent the children that depend on it alone."""
    alone = graph.sum(1) == 1
    return [np.flatnonzero(alone & graph[:, k]) for k in range(graph.shape[1])]


def rest_of(graph: np.ndarray, loadings: np.ndarray | None) -> np.ndarray:
    """The children left for condition B once each latent has spent two exclusive ones (as many as
    it has, if fewer).

    Which two does not matter for B, and the largest loading is kept, for the margin.
    """
    spent: list[int] = []
    for k, children in enumerate(exclusive_children(graph)):
        order = (
            children
            if loadings is None
            else children[np.argsort(np.abs(loadings[children, k]), kind="stable")]
        )
        spent += order[:2].tolist()
    return np.setdiff1d(np.arange(len(graph)), spent)


# ---------------------------------------------------------------- condition B


def undetermined(graph: np.ndarray) -> np.ndarray:
    r"""Latents whose difference is not forced to zero by :math:`R \delta = 0`, whatever the nonzero
    loadings are.

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
    """The least distance and its difference, over half of all differences (the other half has
    opposite signs).
    """
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
    """A lower bound on the least distance, and the best difference found; equal unless a search was
    cut off.

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
