r"""Moments of options models: policies from counts of three successive steps.

With :math:`s_1` the past, :math:`(s_2, a_2)` the middle and :math:`(s_3, a_3)` the future of a
window,

.. math::
    K_s &= P(S_1, S_2 = s, A_2) = X_s L_s \\
    P(S_1, S_2 = s, A_2 = a, S_3 = s', A_3) / \Phi_{a s s'} &= X_s \, \mathrm{diag}(L_{s \cdot a})
    \, H_{s'} L_{s'}

where :math:`X_s` (S, O) is the joint distribution of past state and option. Divided by the
environment, the windows with middle state s share one pair of factors over all actions, and an
eigenvalue problem a state yields :math:`L_s` (:func:`state_by_state`); the options of different
states are then matched through the :math:`H_{s'}` they imply. The answer is exact from exact
moments; at the same number of steps it is many times less accurate than maximum likelihood: a start
for EM, not an estimate to report. :func:`refine_moments` takes three quarters of that error away.
The source's route, one eigenvalue problem for all states, is less accurate still; it stands in
``benchmarks/papers/joint_moments.py``.

Source: Nguyen, Li, Lai, Paschalidis and Huggins, *Beyond Predictive Accuracy* (thesis), chapter 2;
the diagonalisation goes back to Hsu, Kakade and Zhang (2012), doi:10.1016/j.jcss.2011.12.025.

An eigenvalue problem takes all cells of the table of windows for equally well known, and divides by
some of them. Read as a likelihood the same table says more. With :math:`\pi_{xso}` the joint
distribution of past state, middle state and option, which is free, a window has probability

.. math::
    P(s_1 = x, s_2 = s, a_2 = a, s_3 = t, a_3 = c)
    = \sum_{o p} \pi_{xso} L_{soa} \Phi_{ast} H_{top} L_{tpc}

and :math:`\pi`, L and H that make the counts most probable are found by EM; an iteration costs as
much as the table has filled cells, whatever the number of steps. Windows overlap, so the product of
their probabilities is not the likelihood of the sequence but a composite of it (Varin, Reid and
Firth 2011, *Statistica Sinica* 21: 5-42), whose maximum is consistent all the same. EM needs a
start: the eigenvalue problem gives it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ppl_models.data.sequences import slices
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_size

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


MAX_ENTRIES = 2**27  # of the table of windows: A^2 S^3 numbers


@dataclass(frozen=True, eq=False)
class OptionMoments:
    """Moments: frequencies of windows of three steps, pooled, within sequences.

    Args:
        windows: (A, S, P, S, A), P(a2, s2, past, s3, a3): [action, middle state, past, next state,
            next action]; the past is a state, P = S, or a state and its action, P = S A.
        environment: (A, S, S), P(next state | action, state); zero rows where the action was never
            seen there.
        num_windows: how many.
        drift: distance of the state pairs in the first and second halves of the sequences, as a
            root mean square of z-scores; about 1 where the process is stationary.
    """

    windows: np.ndarray
    environment: np.ndarray
    num_windows: int
    drift: float = float("nan")

    @property
    def pairs(self) -> np.ndarray:
        """Pair frequencies K, (S, P, A): P(past, s2, a2) as [s2, past, a2]."""
        return self.windows.sum((3, 4)).transpose(1, 2, 0)

    @property
    def visits(self) -> np.ndarray:
        """Visit frequencies P(s2), (S,)."""
        return self.windows.sum((0, 2, 3, 4))

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return self.windows.shape[1]

    @property
    def num_actions(self) -> int:
        """Number of actions, A."""
        return self.windows.shape[0]


def count_moments(
    chunks: Tensor | Iterable[Tensor],
    num_states: int,
    num_actions: int,
    continued: bool = False,
    *,
    lag: int = 1,
    past_actions: bool = False,
) -> OptionMoments:
    """Count moments in one pass over data that need not fit into memory.

    The identities of this module hold for any past: whatever lies before the middle of a window
    touches the future through the option alone. The action of the step before says much of its
    option; states further back say little more (``benchmarks/options_lags.py``).

    Args:
        chunks: packed sequences (B, T, 2), or an iterable of them.
        num_states: S.
        num_actions: A.
        continued: the chunks are pieces in time of the same B sequences (else every chunk holds
            whole sequences).
        lag: steps from the past to the middle of a window.
        past_actions: take the action into the past, beside the state.
    """
    s, a = num_states, num_actions
    check_size("moments", "lag", lag)
    num_past = s * a if past_actions else s
    if a * a * s * s * num_past > MAX_ENTRIES:
        raise ValueError(
            f"moments: a table of {'num_actions^3' if past_actions else 'num_actions^2'}"
            f" num_states^3 = {a * a * s * s * num_past} numbers is too large; code fewer states"
        )
    shape = (a, s, num_past, s, a)
    windows, moves, halves = np.zeros(shape).ravel(), np.zeros(a * s * s), np.zeros(2 * s * s)
    tail: np.ndarray | None = None
    for chunk in [chunks] if isinstance(chunks, Tensor) else chunks:
        new = chunk.detach().cpu().numpy()
        table = new if tail is None else np.concatenate([tail, new], 1)
        # pairs that lie in the tail alone were counted; windows are longer than it
        old = 0 if tail is None else tail.shape[1]
        flat, width = table.reshape(-1, 2), table.shape[1]
        middle = ((table[..., 0] >= 0).sum(1) - 1) / 2  # (B,)
        for part in slices(len(flat)):
            row, step = np.divmod(np.arange(part.start, part.stop), width)
            (s1, a1), (after, _), (s2, a2), (s3, a3) = (
                _following(flat, part, step + k < width, k) for k in (0, 1, lag, lag + 1)
            )
            pair = (s1 >= 0) & (after >= 0) & (step >= old - 1)
            _add(moves, ((a1 * s + s1) * s + after)[pair & (a1 >= 0)])
            _add(halves, (((step >= middle[row]) * s + s1) * s + after)[pair])
            known = (s1 >= 0) & (s2 >= 0) & (s3 >= 0) & (a2 >= 0) & (a3 >= 0)
            past = s1
            if past_actions:
                past, known = s1 * a + a1, known & (a1 >= 0)
            _add(windows, ((((a2 * s + s2) * num_past + past) * s + s3) * a + a3)[known])
        tail = table[:, -(lag + 1) :] if continued else None
    total = int(windows.sum())
    if total == 0:
        raise ValueError(
            "moments: windows of three successive steps with known actions were expected, got none"
            if lag == 1
            else f"moments: windows of {lag + 2} steps with known actions were expected, got none"
        )
    led = moves.reshape(a, s, s)
    visits = led.sum(-1, keepdims=True)
    environment = np.divide(led, visits, out=np.zeros_like(led), where=visits > 0)
    drift = float("nan") if continued else _drift(halves.reshape(2, s, s))
    return OptionMoments((windows / total).reshape(shape), environment, total, drift)


def _following(
    flat: np.ndarray, part: slice, inside: np.ndarray, ahead: int
) -> tuple[np.ndarray, np.ndarray]:
    """State and action some steps ahead of flattened sequences, -1 after the row's end."""
    found = flat[part.start + ahead : part.stop + ahead]
    found = np.concatenate([found, np.full((part.stop - part.start - len(found), 2), -1)])
    state, action = np.where(inside[:, None], found, -1).T
    return state, action


def _add(counts: np.ndarray, codes: np.ndarray) -> None:
    """Add counts of codes in place; the table may be much longer than the codes."""
    if len(counts) <= 4 * len(codes):
        counts += np.bincount(codes, minlength=len(counts))
    else:
        found, times = np.unique(codes, return_counts=True)
        counts[found] += times


def _drift(halves: np.ndarray) -> float:
    sizes = halves.sum((1, 2))
    if not sizes.all():
        return float("nan")
    shares = halves / sizes[:, None, None]
    pooled = halves.sum(0) / sizes.sum()
    variance = pooled * (1 - pooled) * (1 / sizes).sum()
    seen = variance > 0
    if seen.any():
        return float(np.sqrt(((shares[0] - shares[1])[seen] ** 2 / variance[seen]).mean()))
    return 0.0


RANK_TOLERANCE = 1e-9  # of the largest singular value
NUM_DIRECTIONS = 50  # random combinations of the actions' operators that are tried
REFINING = 500  # iterations that go into a start
START_MIX = 0.01  # share of the uniform distribution in a start: EM never leaves an exact zero


class MomentWarning(UserWarning):
    """Warning: moments give no start, or carry little information."""


@shows_briefly
@dataclass(frozen=True, eq=False)
class MomentDiagnostics:
    """Diagnostics of the assumptions; states that are never visited have NaN.

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
        past: (P, S, O), joint distribution of past, middle state and option; None where the
            estimate has none.
    """

    low: np.ndarray
    high: np.ndarray
    diagnostics: MomentDiagnostics
    past: np.ndarray | None = None


def check_ranks(moments: OptionMoments, num_options: int) -> np.ndarray:
    """The O-th singular value of K for every state, NaN where never visited."""
    remedy = "start at random instead (init='random', several restarts)"
    past = moments.windows.shape[2]
    name_past = "num_states" if past == moments.num_states else "the number of pasts"
    for name, size in (("num_actions", moments.num_actions), (name_past, past)):
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
    """Project rows to the nearest probabilities (Euclidean), (..., n)."""
    size = rows.shape[-1]
    descending = -np.sort(-rows, axis=-1)
    excess = (descending.cumsum(-1) - 1) / np.arange(1, size + 1)
    count = (descending > excess).sum(-1, keepdims=True)
    return np.maximum(rows - np.take_along_axis(excess, count - 1, -1), 0.0)


def joint_eigenvectors(operators: np.ndarray, seed: int) -> tuple[np.ndarray, float, int]:
    """Eigenvectors shared by ``operators`` (A, n, n).

    Of the combination with a real spectrum and the widest smallest gap.

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
    """Real and imaginary parts in place of a conjugate pair, which span the same plane."""
    out = vectors.real.copy()
    for i in np.flatnonzero(values.imag < 0):
        out[:, i] = vectors[:, i].imag
    return out


def diagonals(operators: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Diagonal of each operator in the shared eigenvectors, (n, A)."""
    inverse = np.linalg.pinv(vectors)
    return np.stack(
        [np.einsum("ij,ji->i", inverse, operator @ vectors) for operator in operators], -1
    )


def state_by_state(moments: OptionMoments, num_options: int, seed: int = 0) -> MomentEstimate:
    """Policies by one eigenvalue problem a state, matched along a spanning tree.

    Args:
        num_options: O, at most the number of actions and of states.
        seed: of the directions in which actions are combined.
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
    """Operators (taken actions, O, O), similar to the diagonals of ``low[s, :, a]``."""
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
    flat = blocks.reshape(len(taken), moments.windows.shape[2], -1)
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
    """Policies high[s'] seen from state s, (S, S, O, O), and weights (S, S).

    Rows in the options' order of s, columns in that of s'; weights are zero where s does not lead
    to s'.
    """
    s_all, o = moments.num_states, low.shape[1]
    implied, weight = np.zeros((s_all, s_all, o, o)), np.zeros((s_all, s_all))
    inverse = {s: np.linalg.pinv(low[s]) for s in visited}
    pairs = moments.pairs
    for s in visited:
        past = pairs[s] @ inverse[s]  # (P, O)
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
    """Order of every state's options that agrees with the others', and the residual."""
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
    """Smallest of the O leading singular values of a policy (S, O, n), (S,), or NaN."""
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
    """Diagnostics of the assumptions from their figures."""
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


# first iterations, in which the distribution of past and option alone is found: the start knows
# nothing of it
SETTLING = 100
TOLERANCE = 1e-3  # enough for a start


def refine_moments(
    moments: OptionMoments,
    estimate: MomentEstimate,
    max_iterations: int = 2000,
    tolerance: float = TOLERANCE,
) -> MomentEstimate:
    """Composite-likelihood estimate of policies from windows of three steps.

    Args:
        estimate: from :func:`state_by_state`.
        max_iterations: of EM.
        tolerance: log-units of all windows together that an iteration must gain; for errors of the
            estimate 1e-6, for EM is slow and the default ends short of the maximum.

    Returns:
        Policies in the same order of the options; the diagnostics are those of ``estimate``, but
        for the singular values of the policies.
    """
    s, a = moments.num_states, moments.num_actions
    if estimate.low.shape[::2] != (s, a) or estimate.high.shape[0] != s:
        raise ValueError(
            f"refine_moments: policies of {s} states and {a} actions were expected, got low of"
            f" shape {estimate.low.shape}"
        )
    check_size("refine_moments", "max_iterations", max_iterations)
    o, num_past = estimate.low.shape[1], moments.windows.shape[2]
    low, high = (
        np.maximum(part, START_MIX / part.shape[-1]) for part in (estimate.low, estimate.high)
    )
    # EM never leaves an exact zero
    low, high = (part / part.sum(-1, keepdims=True) for part in (low, high))
    a2, s2, s1, s3, a3 = np.nonzero(moments.windows)
    weight = moments.windows[a2, s2, s1, s3, a3]
    pair, middle, ahead = s1 * s + s2, s2 * a + a2, s3 * a + a3
    to_pair, to_middle, to_ahead = (
        _adder(code, size) for code, size in ((pair, num_past * s), (middle, s * a), (ahead, s * a))
    )
    # pi, (past and middle state, option)
    pair_shares = np.repeat((to_pair @ weight)[:, None] / o, o, 1)
    last = -np.inf
    for iteration in range(SETTLING + max_iterations):
        # (windows, option)
        begins = pair_shares[pair] * low.transpose(0, 2, 1).reshape(s * a, o)[middle]
        goes_on = (high @ low).transpose(0, 2, 1).reshape(s * a, o)[ahead]
        total = (begins * goes_on).sum(1)
        objective = float(weight @ np.log(total)) * moments.num_windows
        if iteration > SETTLING and objective - last < tolerance:
            break
        last = objective
        share = begins * (weight / total)[:, None]
        both = share * goes_on
        pair_shares = to_pair @ both
        if iteration >= SETTLING:
            later = (to_ahead @ share).reshape(s, a, o)  # [next state, next action, option before]
            acted = (to_middle @ both).reshape(s, a, o).transpose(0, 2, 1) + low * np.einsum(
                "tco,top->tpc", later, high
            )
            low, high = _rows(acted, low), _rows(high * np.einsum("tco,tpc->top", later, low), high)
    of_low, of_high = smallest_singular(moments, low), smallest_singular(moments, high)
    return MomentEstimate(
        low,
        high,
        replace(estimate.diagnostics, singular_low=of_low, singular_high=of_high),
        pair_shares.reshape(num_past, s, o),
    )


def _adder(codes: np.ndarray, size: int) -> csr_matrix:
    """Sparse matrix (size, windows) that adds up the windows of each code."""
    from scipy.sparse import csr_matrix

    return csr_matrix(
        (np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(size, len(codes))
    )


def _rows(counts: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Normalise counts to probabilities; rows without any stay."""
    total = counts.sum(-1, keepdims=True)
    out: np.ndarray = np.where(total > 0, counts / np.where(total > 0, total, 1.0), before)
    return out
