r"""Number of components by accumulated discrepancies: the last clear step.

A discrepancy below the value :math:`s_k` that exact noise exceeds once in twenty times cannot be
told from zero (1.645 standard deviations of exact noise; its mean is subtracted already), so what K
components leave unexplained is

.. math:: L(K) = \sum_{k \le K} \max(D_k, s_k) .

Discrepancies have no natural unit, so steps are measured by the *share* of what is left that they
take away. A step is clear if it takes more than half. Where K components each misfit a little,
patching one of them with a further component takes away its own discrepancy and leaves the others':
less than half, unless it was most of all. Steps of patching follow each other with falling shares,
for the first patches mend most. So of an unbroken run of clear steps the steepest counts, and of
several runs, which structure on several scales makes, the last; but a run that is steepest at the
largest number compared is unfinished, and gives way to an earlier one. Where the model is right,
:math:`D_k` falls to :math:`s_k` at the true number, a step as steep as the rows allow, and grows
with K beyond it: no further step is clear.

What the rule cannot know: one group whose distribution is wrong looks just like two groups that lie
close, and when nearly all of several misfits are patched, the last patch takes most of what is
left. Where that is well above exact noise, a cutoff decides, the misfit that one is ready to live
with (``select(rho=...)``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

MIN_SHARE = 0.5  # of what is left, that a clear step takes away
# standard deviations of exact noise: its upper 5 % point, below which a discrepancy cannot be told
# from zero
FLOOR = 1.645


@dataclass(frozen=True)
class Choice:
    """A number of components, and how it was come by.

    Args:
        num_components: K.
        segment: the widest interval of cutoffs on which it is best; None if there is none.
        finished: whether the rule came to its end within the numbers compared: for clear steps,
            that there is one (or nothing left to explain at the smallest K) and the last run of
            them is over; for a width, that the segment is as wide; for a cutoff, that half and
            twice as large a one choose the same. It says nothing of whether K is the right number:
            on exactly Poisson tables a third of the finished choices were wrong.
        rule: what chose, in words.
        rival: a larger number whose fit has a clearly smaller BIC although no component of this one
            misfits, so that the likelihood mends nothing that the noise shows: then the
            discrepancies are too weak to choose (few counts a cell hide a lack), and the choice
            is not finished. None where there is no such number.
    """

    num_components: int
    segment: Segment | None
    finished: bool
    rule: str
    rival: int | None = None

    @property
    def verdict(self) -> str:
        """The number, the rule that chose it, and how far that goes, in a sentence or two."""
        components = (
            f"{self.num_components} component{'' if self.num_components == 1 else 's'} by"
            f" {self.rule}"
        )
        if self.rival is not None:
            return (
                f"{components}: unsure, for no component of it misfits, so that the noise says"
                f" nothing against it, and BIC is clearly smaller at {self.rival};"
                " inference.selection.at_least tests the numbers between."
            )
        if not self.finished:
            return (
                f"{components}, which does not come to its end within the numbers compared: take it"
                " with care, or compare more."
            )
        return (
            f"{components}. Whether that number is right the rule cannot say;"
            " inference.selection.select_components asks the likelihood and says how sure it is."
        )

    def __str__(self) -> str:
        return self.verdict


def discrepancy_left(
    discrepancies: Mapping[int, np.ndarray],
    null_sd: Mapping[int, np.ndarray],
    weights: Mapping[int, np.ndarray],
) -> dict[int, float]:
    """Return L(K) for every K, or the weighted sum.

    Args:
        discrepancies: K -> (K,), null mean subtracted.
        weights: K -> (K,).
        null_sd: K -> (K,). Where it is not known, for a component that too few rows use, the
            largest of that K stands in, or of any where that K has none; none is known without
            calibration.
    """
    known = {k: sd[np.isfinite(sd)] for k, sd in null_sd.items()}
    left, any_known = {}, np.concatenate(list(known.values()))
    for k in sorted(discrepancies):
        largest = (known[k] if len(known[k]) else any_known).max(initial=0.0)
        floor = FLOOR * np.where(np.isfinite(null_sd[k]), null_sd[k], largest)
        left[k] = float((weights[k] * np.maximum(discrepancies[k], np.maximum(floor, 1e-12))).sum())
    return left


def shares_taken(left: Mapping[int, float]) -> dict[int, float]:
    """Return the share of what is left that each component beyond the smallest number takes.

    Zero where a smaller number leaves less.

    Compared with the smaller number that leaves least, so that a poor fit on the way makes no step;
    where that lies several components back, each of them takes the same share.
    """
    sizes = sorted(left)
    best, shares = sizes[0], {}
    for k in sizes[1:]:
        shares[k] = max(0.0, 1 - (left[k] / left[best]) ** (1 / (k - best)))
        best = k if left[k] < left[best] else best
    return shares


def clear_step(
    shares: Mapping[int, float], min_share: float = MIN_SHARE
) -> tuple[int | None, bool]:
    """Return the steepest step of the last run of clear steps, and whether it is finished.

    None where no step is clear.

    An unfinished run, steepest at the largest number, is passed over if there is an earlier one.
    """
    runs: list[int] = []  # the steepest of each
    going = False
    for k in sorted(shares):
        if shares[k] <= min_share:
            going = False
        elif not going:
            runs.append(k)
            going = True
        elif shares[k] > shares[runs[-1]]:
            runs[-1] = k
    finished = not runs or runs[-1] < max(shares)
    if not finished and len(runs) > 1:
        runs.pop()
    return (runs[-1] if runs else None), finished


def taken_beyond(left: Mapping[int, float], chosen: int) -> tuple[int, float]:
    """Return the larger number that leaves least, and the share of ``chosen`` that it takes.

    (chosen, 0) if none does.

    Much, where no step was clear, is a slow descent: patches of a wrong distribution and real
    components of which none stands out look alike.
    """
    best = min((k for k in left if k >= chosen), key=lambda k: (left[k], k))
    return best, 1 - left[best] / left[chosen]


def select_segment(segments: tuple[Segment, ...], width: float) -> Choice:
    """Return the first segment from zero upward that is as wide, else the widest.

    The last is unbounded and tells nothing.
    """
    rule = f"the first interval of cutoffs at least {width:g} nats wide"
    for segment in segments[:-1]:
        if segment.width >= width:
            return Choice(segment.num_components, segment, True, rule)
    if len(segments) == 1:
        return Choice(segments[0].num_components, segments[0], True, rule)
    widest = max(segments[:-1], key=lambda s: s.width)
    return Choice(
        widest.num_components,
        widest,
        False,
        "the widest interval of cutoffs, none being as wide as asked",
    )


@dataclass(frozen=True)
class Segment:
    """An interval of cutoffs on which one number of components is best.

    Args:
        start, end: of the interval; num_components: the best on it.
    """

    start: float
    end: float
    num_components: int

    @property
    def width(self) -> float:
        """Length of the interval."""
        return self.end - self.start


def loss(
    discrepancies: np.ndarray, weights: np.ndarray, penalty: float, rho: float | np.ndarray
) -> np.ndarray:
    """R at one or several cutoffs, with the penalty of every component."""
    excess = np.maximum(0.0, discrepancies[:, None] - np.atleast_1d(rho))
    value: np.ndarray = (weights[:, None] * excess).sum(0) + penalty * len(discrepancies)
    return value


def best_segments(
    discrepancies: Mapping[int, np.ndarray], weights: Mapping[int, np.ndarray], penalty: float
) -> tuple[Segment, ...]:
    """Return the lower envelope of the loss over K; where several tie, the smallest K.

    On [0, largest discrepancy + 1].

    Args:
        discrepancies: K -> (K,), not negative.
        weights: K -> (K,).
        penalty: lambda, added for every component.
    """
    sizes = sorted(discrepancies)
    knots = np.concatenate([discrepancies[k] for k in sizes])
    end = float(knots.max(initial=0.0)) + 1.0
    points = np.unique(np.concatenate([[0.0, end], knots[(knots > 0) & (knots < end)]]))
    segments: list[Segment] = []
    for left, right in zip(points[:-1], points[1:], strict=True):
        middle = (left + right) / 2
        slopes = np.array([-(weights[k] * (discrepancies[k] > middle)).sum() for k in sizes])
        values = np.array(
            [float(loss(discrepancies[k], weights[k], penalty, middle)[0]) for k in sizes]
        )
        values = values + slopes * (left - middle)  # at the left end
        at = left
        while at < right:
            now = values + slopes * (at - left)
            tied = np.flatnonzero(now <= now.min() + 1e-12 * (1 + abs(now.min())))
            # just right of here; argmin takes the smallest K among equals
            best = int(tied[np.argmin(slopes[tied])])
            gain = slopes[best] - slopes  # how fast the others come down on the best
            wait = np.where(
                gain > 1e-15, (now - now[best]) / np.where(gain > 1e-15, gain, 1.0), np.inf
            )
            wait[wait <= 1e-14 * (1 + at)] = np.inf
            until = min(float(right), float(at) + float(wait.min()))
            if segments and segments[-1].num_components == sizes[best]:
                segments[-1] = Segment(segments[-1].start, until, sizes[best])
            else:
                segments.append(Segment(float(at), until, sizes[best]))
            at = until
    return tuple(segments)
