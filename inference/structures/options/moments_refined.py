r"""Options from moments, second step: the policies under which the counted windows of three steps
are most probable.

An eigenvalue problem takes all cells of the table of windows for equally well known, and divides by
some of them. Read as a likelihood the same table says more. With :math:`\pi_{xso}` the joint law of
past state, middle state and option, which is free, a window has probability

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

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from inference.structures.options.moment_counts import OptionMoments
from inference.structures.options.moments import START_MIX, MomentEstimate, smallest_singular
from ppl_models.parts.validation import check_size

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


# iterations at the beginning in which the law of past and option alone is found: the start knows
# nothing of it
SETTLING = 100
TOLERANCE = 1e-3  # log-units of all windows together that an iteration must gain


def refine_moments(
    moments: OptionMoments, estimate: MomentEstimate, max_iterations: int = 2000
) -> MomentEstimate:
    """Both policies by maximum composite likelihood of windows of three steps, from an estimate by
    eigenvalues.

    Args:
        moments: counted, or exact.
        estimate: from :func:`inference.structures.options.moments.state_by_state` or
            :func:`inference.structures.options.moments_joint.all_states_at_once`.
        max_iterations: of EM.

    Returns:
        Policies in the same order of the options; the diagnostics are those of ``estimate``, but
        for the singular values of the policies.

    Raises:
        ValueError: if the sizes of ``estimate`` are not those of ``moments``, or ``max_iterations``
            is not positive.
    """
    s, a = moments.num_states, moments.num_actions
    if estimate.low.shape[::2] != (s, a) or estimate.high.shape[0] != s:
        raise ValueError(
            f"refine_moments: policies of {s} states and {a} actions were expected, got low of"
            f" shape {estimate.low.shape}"
        )
    check_size("refine_moments", "max_iterations", max_iterations)
    o = estimate.low.shape[1]
    low, high = (
        np.maximum(part, START_MIX / part.shape[-1]) for part in (estimate.low, estimate.high)
    )
    low, high = (
        part / part.sum(-1, keepdims=True) for part in (low, high)
    )  # EM never leaves an exact zero
    a2, s2, s1, s3, a3 = np.nonzero(moments.windows)
    weight = moments.windows[a2, s2, s1, s3, a3]
    pair, middle, ahead = s1 * s + s2, s2 * a + a2, s3 * a + a3
    to_pair, to_middle, to_ahead = (
        _adder(code, size) for code, size in ((pair, s * s), (middle, s * a), (ahead, s * a))
    )
    law = np.repeat((to_pair @ weight)[:, None] / o, o, 1)  # pi, (past and middle state, option)
    last = -np.inf
    for iteration in range(SETTLING + max_iterations):
        begins = law[pair] * low.transpose(0, 2, 1).reshape(s * a, o)[middle]  # (windows, option)
        goes_on = (high @ low).transpose(0, 2, 1).reshape(s * a, o)[ahead]
        total = (begins * goes_on).sum(1)
        objective = float(weight @ np.log(total)) * moments.num_windows
        if iteration > SETTLING and objective - last < TOLERANCE:
            break
        last = objective
        share = begins * (weight / total)[:, None]
        both = share * goes_on
        law = to_pair @ both
        if iteration >= SETTLING:
            later = (to_ahead @ share).reshape(s, a, o)  # [next state, next action, option before]
            acted = (to_middle @ both).reshape(s, a, o).transpose(0, 2, 1) + low * np.einsum(
                "tco,top->tpc", later, high
            )
            low, high = _rows(acted, low), _rows(high * np.einsum("tco,tpc->top", later, low), high)
    of_low, of_high = smallest_singular(moments, low), smallest_singular(moments, high)
    return MomentEstimate(
        low, high, replace(estimate.diagnostics, singular_low=of_low, singular_high=of_high)
    )


def _adder(codes: np.ndarray, size: int) -> csr_matrix:
    """(size, windows): adds up what belongs to one code."""
    from scipy.sparse import csr_matrix

    return csr_matrix(
        (np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(size, len(codes))
    )


def _rows(counts: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Counts as probabilities; rows without any stay."""
    total = counts.sum(-1, keepdims=True)
    out: np.ndarray = np.where(total > 0, counts / np.where(total > 0, total, 1.0), before)
    return out
