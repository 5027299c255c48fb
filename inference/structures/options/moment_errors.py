r"""Sampling errors of moment estimates: the delta method for pooled windows.

The composite log-likelihood of windows w with counts :math:`n_w` and probabilities
:math:`p_w(\theta, \pi)`, :math:`\theta` the policies in free coordinates and :math:`\pi` the joint
distribution of past, state and option, has its maximum where the scores vanish. As one window's
probabilities are right, the curvature is :math:`I = \sum_w n_w u_w u_w^\top` with
:math:`u_w = \partial \log p_w`; as windows overlap, the variance of the scores is not I and is
taken from blocks b of successive steps, :math:`J = \sum_b g_b g_b^\top`. With :math:`\pi`
eliminated (its part of I has a block of O x O for each past and state, taking counts as Poisson),

.. math:: \mathrm{cov}(\hat\theta) = \tilde I^{-1} \tilde J \tilde I^{-1} ,

and the delta method carries it to the entries (Varin, Reid and Firth 2011, *Statistica Sinica* 21:
5-42; Newey and West 1987, doi:10.2307/1913610, for blocks). Intervals are symmetric in the logits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from inference.structures.options.moments import MomentEstimate, OptionMoments, count_moments
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_number, check_size

CLEAR = 2.0  # standard errors of a contrast below which an assumption nearly fails
DRIFT = 2.0  # root mean square of z-scores
SMALLEST = 1e-6  # of probabilities: below it one is held, as on its bound


@shows_briefly
@dataclass(frozen=True, eq=False)
class MomentErrors:
    """Covariance of the policies estimated by moments.

    Args:
        estimate: of all windows together.
        covariance: of the entries of ``low``, then those of ``high``, flattened.
        num_blocks: blocks of steps that it was found from.
    """

    estimate: MomentEstimate
    covariance: np.ndarray
    num_blocks: int

    @property
    def standard_errors(self) -> tuple[np.ndarray, np.ndarray]:
        """Standard errors of ``low`` (S, O, A) and ``high`` (S, O, O)."""
        low, high = self.estimate.low, self.estimate.high
        errors = np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))
        return errors[: low.size].reshape(low.shape), errors[low.size :].reshape(high.shape)

    def intervals(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Intervals of ``low`` (S, O, A, 2) and ``high`` (S, O, O, 2)."""
        from scipy.stats import t

        check_number("intervals", "level", level, "lie in (0, 1)", above=0, below=1)
        times = float(t.ppf((1 + level) / 2, self.num_blocks - 1))
        parts = (self.estimate.low, self.estimate.high)
        found = []
        for part, error in zip(parts, self.standard_errors, strict=True):
            inside = np.clip(part, SMALLEST, 1 - SMALLEST)
            logit = np.log(inside / (1 - inside))
            reach = np.minimum(times * error / (inside * (1 - inside)), 50.0)
            found.append(1 / (1 + np.exp(-np.stack([logit - reach, logit + reach], -1))))
        return found[0], found[1]

    @property
    def contrasts(self) -> np.ndarray:
        """Contrasts of the options' policies in every state, (S, 2, 2).

        The smallest singular value of ``low[s]`` and of ``high[s]``, and its standard error.
        """
        low, high = self.estimate.low, self.estimate.high
        found, place = np.full((len(low), 2, 2), np.nan), 0
        for i, part in enumerate((low, high)):
            for s, rows in enumerate(part):
                left, values, right = np.linalg.svd(rows, full_matrices=False)
                slope = np.outer(left[:, -1], right[-1]).ravel()
                own = slice(place, place + rows.size)
                variance = float(slope @ self.covariance[own, own] @ slope)
                found[s, i] = values[-1], math.sqrt(max(variance, 0.0))
                place += rows.size
        return found

    @property
    def advice(self) -> tuple[str, ...]:
        """Assumptions of the moments that nearly fail, and what to record more, in sentences."""
        diagnostics, words = self.estimate.diagnostics, []
        unseen = np.flatnonzero(np.isnan(diagnostics.singular_pairs))
        if len(unseen):
            states = ", ".join(map(str, unseen.tolist()))
            words.append(f"State {states} is never the middle of three steps: record visits to it.")
        remedies = (
            "options act alike in state {s}",
            "the option after a move to state {s} hardly depends on the one before",
        )
        for i, remedy in enumerate(remedies):
            for s, (value, error) in enumerate(self.contrasts[:, i]):
                if s not in unseen and value < CLEAR * error:
                    times = (CLEAR * error / max(value, error / 2)) ** 2
                    kind = "finer actions, or " if i == 0 else ""
                    words.append(
                        f"As far as the data tell, {remedy.format(s=s)} (contrast {value:.2g},"
                        f" standard error {error:.2g}): record {kind}about {times:.1f} times as"
                        " many visits to it."
                    )
        if diagnostics.unsupported > 0:
            words.append(
                f"{diagnostics.unsupported:.0%} of the moves seen between states were never made by"
                " some action taken there: record that action there more often, or join states."
            )
        if diagnostics.drift > DRIFT:
            words.append(
                "State pairs of the first and second halves differ"
                f" {diagnostics.drift:.1f} times as much as chance would make them: record, or fit,"
                " the periods apart."
            )
        return tuple(words)


def blocks_of_moments(
    data: Tensor,
    num_states: int,
    num_actions: int,
    num_blocks: int = 50,
    *,
    lag: int = 1,
    past_actions: bool = False,
) -> list[OptionMoments]:
    """Count moments of groups of sequences, or of pieces in time where sequences are few.

    Args:
        data: packed sequences, (B, T, 2); num_states, num_actions: S and A.
        num_blocks: groups of sequences, or pieces of each of fewer sequences.
        lag, past_actions: as of :func:`count_moments`.
    """
    check_size("moment_errors", "num_blocks", num_blocks, 2, "an integer of 2 or more")
    num = len(data)
    if num >= num_blocks:
        edges = np.linspace(0, num, num_blocks + 1).astype(int)
        parts = [data[i:j] for i, j in zip(edges, edges[1:], strict=False)]
    else:
        pieces = math.ceil(num_blocks / num)
        edges = np.linspace(0, data.shape[1], pieces + 1).astype(int)
        parts = [data[:, i:j] for i, j in zip(edges, edges[1:], strict=False)]
    shared = {"lag": lag, "past_actions": past_actions}
    return [
        count_moments(part, num_states, num_actions, **shared)  # type: ignore[arg-type]
        for part in parts
        if bool(((part[:, lag + 1 :, 1] >= 0) & (part[:, : -lag - 1, 0] >= 0)).any())
    ]


def pooled(blocks: Sequence[OptionMoments], environment: np.ndarray) -> OptionMoments:
    """Return the moments of all blocks together."""
    total = sum(block.num_windows for block in blocks)
    windows = sum(block.num_windows * block.windows for block in blocks) / total
    return OptionMoments(np.asarray(windows), environment, total)


def moment_errors(blocks: Sequence[OptionMoments], estimate: MomentEstimate) -> MomentErrors:
    """Covariance of an estimate of :func:`refine_moments` from blocks of its windows.

    Args:
        blocks: of :func:`blocks_of_moments`, at least two.
        estimate: the maximum for all of them, closely (``tolerance=1e-6``).

    Raises:
        ValueError: for fewer than two blocks, or an estimate that was not refined.
    """
    if len(blocks) < 2 or estimate.past is None:
        raise ValueError(
            "moment_errors: two blocks or more and an estimate of refine_moments were expected, got"
            f" {len(blocks)} blocks"
        )
    low, high, past = estimate.low, estimate.high, estimate.past
    s_all, o, a_all = low.shape
    counts = np.stack([block.num_windows * block.windows for block in blocks])
    a2, s2, x, s3, a3 = np.nonzero(counts.sum(0))
    n = counts[:, a2, s2, x, s3, a3]  # (blocks, windows)
    total = n.sum(0)
    begins, acts = past[x, s2], low[s2, :, a2]  # (windows, O)
    ahead = np.einsum("wop,wp->wo", high[s3], low[s3, :, a3])
    p = (begins * acts * ahead).sum(1)
    weight = begins * acts
    rows = np.arange(len(p))
    by_low = np.zeros((len(p), s_all, o, a_all))
    by_low[rows, s2, :, a2] += begins * ahead
    by_low[rows, s3, :, a3] += np.einsum("wo,wop->wp", weight, high[s3])
    by_high = np.zeros((len(p), s_all, o, o))
    by_high[rows, s3] += weight[:, :, None] * low[s3, :, a3][:, None, :]
    free = [_free(part) for part in (low, high)]
    jacobian = np.zeros((low.size + high.size, sum(part.shape[1] for part in free)))
    jacobian[: low.size, : free[0].shape[1]] = free[0]
    jacobian[low.size :, free[0].shape[1] :] = free[1]
    scores = np.concatenate([by_low.reshape(len(p), -1), by_high.reshape(len(p), -1)], 1)
    scores = scores @ jacobian / p[:, None]
    nuisance = acts * ahead / p[:, None]  # (windows, O), by the past's distribution
    information = scores.T @ (total[:, None] * scores)
    gradients = n @ scores  # (blocks, free)
    sizes = n.sum(1)
    pair = x * s_all + s2
    for each in np.unique(pair):
        own = np.flatnonzero(pair == each)
        inside = past.reshape(-1, o)[each] > SMALLEST
        v = nuisance[own][:, inside]
        cross = scores[own].T @ (total[own, None] * v)
        solved = cross @ np.linalg.pinv(v.T @ (total[own, None] * v))
        information -= solved @ cross.T
        gradients -= (n[:, own] @ v - sizes[:, None]) @ solved.T
    gradients -= sizes[:, None] / sizes.sum() * gradients.sum(0)
    spread = gradients.T @ gradients * len(blocks) / (len(blocks) - 1)
    inverse = jacobian @ np.linalg.pinv(information, hermitian=True)
    return MomentErrors(estimate, inverse @ spread @ inverse.T, len(blocks))


def _free(rows: np.ndarray) -> np.ndarray:
    """Derivatives of the entries of rows of probabilities by free coordinates.

    A row's last coordinate that is not held balances the others.
    """
    flat = rows.reshape(-1, rows.shape[-1])
    columns = []
    for i, row in enumerate(flat):
        inside = np.flatnonzero(row > SMALLEST)
        for j in inside[:-1]:
            column = np.zeros(flat.shape)
            column[i, j], column[i, inside[-1]] = 1.0, -1.0
            columns.append(column.ravel())
    return np.stack(columns, 1) if columns else np.zeros((rows.size, 0))
