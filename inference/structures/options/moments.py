r"""Options from moments: both policies of an options HMM from counts of three successive steps,
without a likelihood.

With :math:`s_1` the past, :math:`(s_2, a_2)` the middle and :math:`(s_3, a_3)` the future of a
window,

.. math::
    K_s &= P(S_1, S_2 = s, A_2) = X_s L_s \\
    P(S_1, S_2 = s, A_2 = a, S_3 = s', A_3) / \Phi_{a s s'} &= X_s \, \mathrm{diag}(L_{s \cdot a})
    \, H_{s'} L_{s'}

where :math:`X_s` (S, O) is the joint law of past state and option. Divided by the environment, the
windows with middle state s share one pair of factors over all actions, and an eigenvalue problem a
state yields :math:`L_s` (:func:`state_by_state`); the options of different states are then matched
through the :math:`H_{s'}` they imply.
:func:`inference.structures.options.moments_joint.all_states_at_once` solves one eigenvalue problem
for all states instead. Both give exact answers from exact moments; at the same number of steps they
are many times less accurate than maximum likelihood: a start for EM, not an estimate to report.
:func:`inference.structures.options.moments_refined.refine_moments` takes three quarters of that
error away.

Source: Nguyen, Li, Lai, Paschalidis and Huggins, *Beyond Predictive Accuracy* (thesis), chapter 2;
the diagonalisation goes back to Hsu, Kakade and Zhang (2012), doi:10.1016/j.jcss.2011.12.025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inference.structures.options.moment_counts import OptionMoments
from ppl_models.parts.repr import shows_briefly

RANK_TOLERANCE = 1e-9  # of the largest singular value
NUM_DIRECTIONS = 50  # random combinations of the actions' operators that are tried
REFINING = 500  # iterations that go into a start
START_MIX = 0.01  # share of the uniform law in a start: EM never leaves an exact zero


class MomentWarning(UserWarning):
    """Moments could not give a start, or carry little information about the answer."""


@shows_briefly
@dataclass(frozen=True, eq=False)
class MomentDiagnostics:
    """What the assumptions look like in the data; states that are never visited have NaN.

    Args:
        singular_low, singular_high, singular_pairs: (S,), the smallest of the O leading singular
            values of ``low[s]`` (options differ in their actions), ``high[s]``, and K (options
            differ in their past).
        information: square root of the number of windows times the smallest of ``singular_pairs``;
            below about 0.6 the estimate is no better than equal probabilities, from about 2 it is
            decent.
        windows_needed: windows for an information of 2.
        unsupported: share of visited (state, next state) pairs that some action, taken there, never
            led to.
        smallest_gap: between eigenvalues that tell options (or options and states) apart.
        num_complex: eigenvalues with an imaginary part; only sampling noise makes them.
        matching: residual of the matching across states, relative; 0 for a perfect match.
        moved: largest distance a row moved to become a probability.
        drift: see :class:`OptionMoments`.
    """

    singular_low: np.ndarray
    singular_high: np.ndarray
    singular_pairs: np.ndarray
    information: float
    windows_needed: float
    unsupported: float
    smallest_gap: float
    num_complex: int
    matching: float
    moved: float
    drift: float


@shows_briefly
@dataclass(frozen=True, eq=False)
class MomentEstimate:
    """Estimates by moments, in one order of the options for all states.

    Args:
        low: (S, O, A); high: (S, O, O), [new state, old option, new option]; rows are
            probabilities.
        diagnostics: whether to believe them.
    """

    low: np.ndarray
    high: np.ndarray
    diagnostics: MomentDiagnostics


def check_ranks(moments: OptionMoments, num_options: int) -> np.ndarray:
    """The O-th singular value of K for every state, NaN where never visited.

    Raises:
        ValueError: naming the number that failed, and what to do instead.
    """
    remedy = "start at random instead (init='random', several restarts)"
    for name, size in (("num_actions", moments.num_actions), ("num_states", moments.num_states)):
        if size < num_options:
            raise ValueError(
                f"moments: num_options = {num_options} exceeds {name} = {size}, and the moments"
                f" lack rank: {remedy}"
            )
    pairs, visits = moments.pairs, moments.visits
    values = np.full(moments.num_states, np.nan)
    lacking = []
    for s in np.flatnonzero(visits > 0):
        singular = np.linalg.svd(pairs[s], compute_uv=False)
        values[s] = singular[num_options - 1]
        if values[s] <= RANK_TOLERANCE * singular[0]:
            lacking.append(
                f"{s} (singular values {', '.join(f'{v:.2g}' for v in singular[:num_options])})"
            )
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise ValueError(
            f"moments: P(past state, action) has rank below num_options = {num_options} in state"
            f" {'; '.join(lacking[:3])}{more}: {remedy}"
        )
    return values


def project_rows(rows: np.ndarray) -> np.ndarray:
    """The nearest probabilities (Euclidean) to every row, (..., n)."""
    size = rows.shape[-1]
    descending = -np.sort(-rows, axis=-1)
    excess = (descending.cumsum(-1) - 1) / np.arange(1, size + 1)
    count = (descending > excess).sum(-1, keepdims=True)
    return np.maximum(rows - np.take_along_axis(excess, count - 1, -1), 0.0)


def joint_eigenvectors(operators: np.ndarray, seed: int) -> tuple[np.ndarray, float, int]:
    """Eigenvectors shared by ``operators`` (A, n, n): of the combination with a real spectrum and
    the widest smallest gap.

    Returns:
        The vectors (n, n), the gap, and how many eigenvalues of that combination are complex.
    """
    num_actions, size = operators.shape[:2]
    generator = np.random.default_rng(seed)
    directions = generator.normal(size=(NUM_DIRECTIONS, num_actions))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    if num_actions == 2:  # the operators sum to the identity: there is one useful direction
        directions = np.array([[1.0, -1.0]]) / np.sqrt(2)
    best = (np.eye(size), -np.inf, size + 1)
    for direction in directions:
        values, vectors = np.linalg.eig(np.tensordot(direction, operators, 1))
        apart = np.abs(values[:, None] - values[None])[~np.eye(size, dtype=bool)]
        gap = float(apart.min()) if size > 1 else 1.0
        num_complex = int((np.abs(values.imag) > 1e-12).sum())
        if (-num_complex, gap) > (-best[2], best[1]):
            best = _real_vectors(values, vectors), gap, num_complex
    return best


def _real_vectors(values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """A conjugate pair of complex vectors gives its real and its imaginary part, which span the
    same plane.
    """
    out = vectors.real.copy()
    for i in np.flatnonzero(values.imag < 0):
        out[:, i] = vectors[:, i].imag
    return out


def diagonals(operators: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """(n, A): what each operator does to each shared eigenvector."""
    inverse = np.linalg.pinv(vectors)
    return np.stack(
        [np.einsum("ij,ji->i", inverse, operator @ vectors) for operator in operators], -1
    )


def state_by_state(moments: OptionMoments, num_options: int, seed: int = 0) -> MomentEstimate:
    """Policies from one small eigenvalue problem a state, options matched across states along a
    spanning tree.

    Args:
        moments: counted, or exact.
        num_options: O, at most the number of actions and of states.
        seed: of the directions in which actions are combined.

    Raises:
        ValueError: if the moments lack rank, or there is no next state that every action taken in a
            state can lead to; naming the state and the numbers.
    """
    singular_pairs = check_ranks(moments, num_options)
    s_all, a_all, o = moments.num_states, moments.num_actions, num_options
    visited = np.flatnonzero(moments.visits > 0)
    low = np.full((s_all, o, a_all), 1.0 / a_all)
    gap, num_complex, moved = np.inf, 0, 0.0
    for s in visited.tolist():
        taken = np.flatnonzero(moments.environment[:, s].sum(-1) > 0)
        operators, values = _operators(moments, s, taken, o)
        vectors, own_gap, own_complex = joint_eigenvectors(operators, seed)
        raw = np.zeros((o, a_all))
        raw[:, taken] = diagonals(operators, vectors)
        low[s] = project_rows(raw)
        gap, num_complex = min(gap, own_gap), num_complex + own_complex
        moved = max(moved, float(np.abs(raw - low[s]).max()))
    implied, weight = _implied_high(moments, low, visited)
    orders, residual = _match(implied, weight, moments.visits, visited)
    high = np.full((s_all, o, o), 1.0 / o)
    for t in visited.tolist():
        sources = [t] if weight[t, t] > 0 else [s for s in visited.tolist() if weight[s, t] > 0]
        if not sources:
            continue
        shares = np.array([weight[s, t] for s in sources]) / sum(weight[s, t] for s in sources)
        seen = np.stack([implied[s, t][orders[s]][:, orders[t]] for s in sources])
        raw = np.tensordot(shares, seen, 1)
        high[t] = project_rows(raw)
        moved = max(moved, float(np.abs(raw - high[t]).max()))
    for s in visited.tolist():
        low[s] = low[s][orders[s]]
    return MomentEstimate(
        low, high, diagnose(moments, low, high, singular_pairs, gap, num_complex, residual, moved)
    )


def _operators(
    moments: OptionMoments, s: int, taken: np.ndarray, num_options: int
) -> tuple[np.ndarray, np.ndarray]:
    """(taken actions, O, O), similar to the diagonal matrices of ``low[s, :, a]``."""
    environment = moments.environment[taken, s]  # (actions, next)
    shared = np.flatnonzero((environment > 0).all(0))
    if not len(shared):
        raise ValueError(
            "there is no next state that each of the actions"
            f" {', '.join(map(str, taken.tolist()))}, taken in state {s}, can lead to, so that"
            " three steps show the action itself, and not what the option adds to it"
        )
    weight = 1.0 / (1.0 / environment[:, shared]).sum(0)
    blocks = moments.windows[taken, s][:, :, shared]  # (actions, past, next, next action)
    blocks = blocks * (weight / environment[:, shared])[:, None, :, None]
    flat = blocks.reshape(len(taken), moments.num_states, -1)
    left, values, right = np.linalg.svd(flat.sum(0), full_matrices=False)
    if values[num_options - 1] <= RANK_TOLERANCE * values[0]:
        raise ValueError(
            f"moments: windows about state {s} have rank below num_options = {num_options}: start"
            " at random instead"
        )
    left, right = left[:, :num_options], right[:num_options]
    return (left.T @ flat @ right.T) / values[:num_options, None], values


def _implied_high(
    moments: OptionMoments, low: np.ndarray, visited: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """high[s'] as seen from state s, (S, S, O, O), rows in the options' order of s, columns in that
    of s'; and weights (S, S), zero where s does not lead to s'.
    """
    s_all, o = moments.num_states, low.shape[1]
    implied, weight = np.zeros((s_all, s_all, o, o)), np.zeros((s_all, s_all))
    inverse = {s: np.linalg.pinv(low[s]) for s in visited}
    pairs = moments.pairs
    for s in visited:
        past = pairs[s] @ inverse[s]  # (S, O)
        for t in visited:
            reach = moments.environment[:, s, t] > 0
            reached = low[s][:, reach].sum(1)  # P(an action that can lead there | option)
            if not reach.any() or reached.min() <= 1e-6:
                continue
            block = (
                moments.windows[reach, s, :, t] / moments.environment[reach, s, t][:, None, None]
            ).sum(0)
            implied[s, t] = np.linalg.pinv(past * reached) @ block @ inverse[t]
            weight[s, t] = moments.windows[:, s, :, t].sum()
    return implied, weight


def _match(
    implied: np.ndarray, weight: np.ndarray, visits: np.ndarray, visited: np.ndarray
) -> tuple[dict[int, np.ndarray], float]:
    """The order of every state's options that agrees with the others', and the relative
    residual.
    """
    from scipy.optimize import linear_sum_assignment

    o = implied.shape[-1]
    root = int(visited[visits[visited].argmax()])
    orders, residual, total = {root: np.arange(o)}, 0.0, 0.0
    shared = np.sqrt(weight[:, None] * weight[None])  # (s, r, successor)
    while len(orders) < len(visited):
        done = list(orders)
        rest = [int(s) for s in visited if int(s) not in orders]
        strength = shared[np.ix_(rest, done)].sum(-1)
        i, j = np.unravel_index(strength.argmax(), strength.shape)
        s, r = rest[i], done[j]
        if strength[i, j] <= 0:
            raise ValueError(
                f"moments: state {s} shares no next state with the others, so its options cannot be"
                " matched to theirs"
            )
        cost = np.zeros((o, o))  # option of r against option of s
        for t in np.flatnonzero(shared[s, r] > 0):
            seen = implied[r, t][orders[r]]
            cost += shared[s, r, t] * ((seen[:, None] - implied[s, t][None]) ** 2).sum(-1)
            total += shared[s, r, t] * (seen**2).sum()
        rows, columns = linear_sum_assignment(cost)
        residual += float(cost[rows, columns].sum())
        orders[s] = columns[rows.argsort()]
    return orders, residual / total if total > 0 else 0.0


def smallest_singular(moments: OptionMoments, policy: np.ndarray) -> np.ndarray:
    """(S,), the smallest of the O leading singular values of a policy (S, O, n); NaN in states
    never visited.
    """
    values: np.ndarray = np.where(
        moments.visits > 0, np.linalg.svd(policy, compute_uv=False)[:, policy.shape[1] - 1], np.nan
    )
    return values


def diagnose(
    moments: OptionMoments,
    low: np.ndarray,
    high: np.ndarray,
    singular_pairs: np.ndarray,
    gap: float,
    num_complex: int,
    matching: float,
    moved: float,
) -> MomentDiagnostics:
    """The numbers behind the assumptions."""
    information = float(np.sqrt(moments.num_windows) * np.nanmin(singular_pairs))
    taken = moments.environment.sum(-1) > 0  # (A, S)
    reached = (moments.environment > 0).any(0)  # (S, S)
    blocked = (taken[:, :, None] & (moments.environment == 0)).any(0) & reached
    return MomentDiagnostics(
        singular_low=smallest_singular(moments, low),
        singular_high=smallest_singular(moments, high),
        singular_pairs=singular_pairs,
        information=information,
        windows_needed=float(moments.num_windows * (2.0 / max(information, 1e-12)) ** 2),
        unsupported=float(blocked.sum() / max(1, reached.sum())),
        smallest_gap=gap,
        num_complex=num_complex,
        matching=matching,
        moved=moved,
        drift=moments.drift,
    )
