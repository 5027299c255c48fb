r"""Options from moments by one eigenvalue problem for all states (the route of the source), and the
recovery of its order.

Divided by the environment and multiplied by a full-rank matrix :math:`\Psi` over (state, next
state), the windows of :mod:`inference.structures.options.moments` become :math:`\hat M_a = X
\Lambda_a (\Psi \otimes I) H L`, with :math:`\Lambda_a` diagonal over (state, option). The operators
:math:`(\hat M V)^+ \hat M_a V` share eigenvectors, whose eigenvalues are the entries of ``low``;
they come in any order, and block s of the eigenvector of (state j, option o) is :math:`\Gamma_{sj}
x_{so}` up to scale, :math:`\Gamma = \Psi^{-1}`: that tells which is which.

Less accurate than :func:`inference.structures.options.moments.state_by_state` at equal data, as all
states and options compete in one spectrum; kept as the published method.
"""

from __future__ import annotations

import itertools

import numpy as np

from inference.structures.options.moments import (
    RANK_TOLERANCE,
    MomentEstimate,
    OptionMoments,
    check_ranks,
    diagnose,
    diagonals,
    joint_eigenvectors,
    project_rows,
)

FEW_COLUMNS, FEW_STATES = 8, 6  # up to here groupings and permutations are all tried
NUM_STARTS = 20  # of the searches beyond
NUM_ROUNDS = 30


def all_states_at_once(
    moments: OptionMoments, num_options: int, coupling: float = 0.05, seed: int = 0
) -> MomentEstimate:
    r"""Both policies, with :math:`\Psi = I + c 11^T`, zero where some action taken in a state never
    led to the next.

    Args:
        moments: counted, or exact; every state visited and every action taken in every state.
        num_options: O, at most the number of actions and of states.
        coupling: c, positive; it moves the error several fold (small is better on the four-state
            chain).
        seed: of random directions and searches.

    Raises:
        ValueError: if the moments or :math:`\Psi` lack rank, a state is never visited, or the
            coupling is not positive.
    """
    if not coupling > 0:
        raise ValueError(f"all_states_at_once: coupling must be positive, got {coupling!r}")
    singular_pairs = check_ranks(moments, num_options)
    s, a, o = moments.num_states, moments.num_actions, num_options
    if np.isnan(singular_pairs).any() or not (moments.environment.sum(-1) > 0).all():
        raise ValueError(
            "all_states_at_once: every action taken in every state was expected; use state_by_state"
        )
    psi = (np.eye(s) + coupling) * (moments.environment > 0).all(0)
    singular = np.linalg.svd(psi, compute_uv=False)
    if singular[-1] <= RANK_TOLERANCE * singular[0]:
        raise ValueError(
            "all_states_at_once: the matrix of (state, next state) pairs that all actions share"
            f" has rank below {s} (smallest singular value {singular[-1]:.2g}); use state_by_state"
        )
    ratio = np.divide(
        psi,
        moments.environment,
        out=np.zeros_like(moments.environment),
        where=moments.environment > 0,
    )
    # [action, middle, past, next, next action]
    blocks = moments.windows * ratio[:, :, None, :, None]
    surrogate = blocks.reshape(a, s * s, s * a)
    basis = np.zeros((s * a, s * o))
    for j in range(s):
        basis[j * a : (j + 1) * a, j * o : (j + 1) * o] = np.linalg.svd(moments.pairs[j])[2][:o].T
    reduced = surrogate @ basis
    operators = np.linalg.pinv(reduced.sum(0)) @ reduced  # (A, SO, SO)
    vectors, gap, num_complex = joint_eigenvectors(operators, seed)
    low, residual = _ordered(vectors, diagonals(operators, vectors), np.linalg.inv(psi), o, seed)
    raw_low, low = low, project_rows(low)
    high = np.zeros((s, o, o))
    weight = psi / (psi**2).sum(0)  # (s, s'), sums to one against psi
    whole = blocks.sum(0)  # [middle, past, next, next action]
    inverse = np.linalg.pinv(low)
    past = np.stack([low[j] @ _low_rank_inverse(moments.pairs[j], o) for j in range(s)])
    for t in range(s):
        high[t] = sum(weight[j, t] * past[j] @ whole[j, :, t] @ inverse[t] for j in range(s))
    raw_high, high = high, project_rows(high)
    moved = max(float(np.abs(raw_low - low).max()), float(np.abs(raw_high - high).max()))
    return MomentEstimate(
        low, high, diagnose(moments, low, high, singular_pairs, gap, num_complex, residual, moved)
    )


def _low_rank_inverse(matrix: np.ndarray, rank: int) -> np.ndarray:
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return (right[:rank].T / values[:rank]) @ left[:, :rank].T


def _ordered(
    vectors: np.ndarray, values: np.ndarray, gamma: np.ndarray, num_options: int, seed: int
) -> tuple[np.ndarray, float]:
    """Rows of ``values`` (SO, A) put into their places (S, O, A), and the mean relative residual of
    the fit.
    """
    s = len(gamma)
    blocks = vectors.reshape(s, num_options, -1)  # [block, within, column]
    norms = np.linalg.norm(blocks, axis=1)
    blocks = blocks / np.linalg.norm(norms, axis=0)
    low, total = np.empty((s, num_options, values.shape[1])), 0.0
    for o, columns in enumerate(_groups(blocks, num_options, seed)):
        reduced = np.stack([_leading_row(block) for block in blocks[:, :, columns]])  # (S, S)
        order, residual = _which_state(reduced, gamma, seed)
        total += residual
        for column, state in zip(columns, order, strict=True):
            low[state, o] = values[column]
    return low, total / num_options


def _leading_row(block: np.ndarray) -> np.ndarray:
    _, singular, right = np.linalg.svd(block, full_matrices=False)
    return singular[0] * right[0]


def _groups(blocks: np.ndarray, num_options: int, seed: int) -> list[list[int]]:
    """Columns of one option, which are collinear within every block; every group has as many as
    there are states.
    """
    from scipy.optimize import linear_sum_assignment

    num_states, _, count = blocks.shape
    norms = np.linalg.norm(blocks, axis=1)
    unit = np.where(norms[:, None] > 1e-8, blocks / np.maximum(norms, 1e-300)[:, None], 0.0)
    used = (norms > 1e-8).astype(float)
    together = np.einsum("bi,bj->ij", used, used)
    cosine = np.einsum("bki,bkj->bij", unit, unit) ** 2
    distance = 1 - cosine.sum(0) / np.maximum(together, 1)
    if count <= FEW_COLUMNS:
        return min(
            _partitions(list(range(count)), num_states),
            key=lambda groups: _within(distance, groups),
        )
    generator = np.random.default_rng(seed)
    best: list[list[int]] = []
    for _ in range(NUM_STARTS):
        centres = generator.choice(count, num_options, replace=False)
        cost = distance[:, centres]
        groups: list[list[int]] = []
        for _ in range(NUM_ROUNDS):
            _, slots = linear_sum_assignment(np.repeat(cost, num_states, axis=1))
            new = [np.flatnonzero(slots // num_states == o).tolist() for o in range(num_options)]
            if new == groups:
                break
            groups = new
            cost = np.empty((count, num_options))
            for o, columns in enumerate(groups):
                leading = np.linalg.svd(unit[:, :, columns])[0][:, :, 0]  # (blocks, O)
                cost[:, o] = 1 - (np.einsum("bk,bki->bi", leading, unit) ** 2).sum(0) / np.maximum(
                    used.sum(0), 1
                )
        if not best or _within(distance, groups) < _within(distance, best):
            best = groups
    return best


def _partitions(items: list[int], size: int) -> list[list[list[int]]]:
    """All ways to cut a list into groups of one size."""
    if not items:
        return [[]]
    out = []
    for others in itertools.combinations(items[1:], size - 1):
        rest = [item for item in items[1:] if item not in others]
        out += [[[items[0], *others], *tail] for tail in _partitions(rest, size)]
    return out


def _within(distance: np.ndarray, groups: list[list[int]]) -> float:
    return sum(float(distance[np.ix_(group, group)].sum()) for group in groups)


def _which_state(reduced: np.ndarray, gamma: np.ndarray, seed: int) -> tuple[np.ndarray, float]:
    """The state of every column: ``reduced`` is ``gamma`` with its columns in that order, rows and
    columns scaled.
    """
    s = len(gamma)
    if s <= FEW_STATES:
        orders = np.array(list(itertools.permutations(range(s))))
    else:
        orders = np.stack([_search(reduced, gamma, seed + i) for i in range(NUM_STARTS)])
    residuals = _scaled_residual(reduced, gamma[:, orders].transpose(1, 0, 2))[0]
    best = int(residuals.argmin())
    return orders[best], float(residuals[best])


def _scaled_residual(reduced: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How badly x_i candidate_ij c_j fits ``reduced``, relative, (P,), by alternating least
    squares; and x (P, S).
    """
    safe = np.abs(candidates) > 1e-10 * np.abs(candidates).max()
    ratio = np.where(safe, reduced / np.where(safe, candidates, 1.0), 0.0)
    x = np.linalg.svd(ratio * candidates**2)[0][..., 0]  # (P, S)
    for _ in range(NUM_ROUNDS):
        scaled = x[..., None] * candidates
        c = (scaled * reduced).sum(-2) / np.maximum((scaled**2).sum(-2), 1e-300)
        scaled = candidates * c[:, None, :]
        x = (scaled * reduced).sum(-1) / np.maximum((scaled**2).sum(-1), 1e-300)
    error = ((reduced - x[..., None] * candidates * c[:, None, :]) ** 2).sum((-2, -1))
    return error / (reduced**2).sum(), x


def _search(reduced: np.ndarray, gamma: np.ndarray, seed: int) -> np.ndarray:
    """Alternate the scale of the rows and the assignment of the columns."""
    from scipy.optimize import linear_sum_assignment

    generator = np.random.default_rng(seed)
    order = generator.permutation(len(gamma))
    for _ in range(NUM_ROUNDS):
        x = _scaled_residual(reduced, gamma[:, order][None])[1][0]
        left = reduced / np.where(np.abs(x) > 1e-12, x, 1.0)[:, None]
        left = left / np.linalg.norm(left, axis=0)
        right = gamma / np.linalg.norm(gamma, axis=0)
        _, new = linear_sum_assignment(1 - (left.T @ right) ** 2)
        if (new == order).all():
            break
        order = new
    return order
