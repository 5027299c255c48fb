r"""Extrapolated steps of EM, tried at once and kept if the objective rises.

EM is a map M whose fixed points are wanted. On a scale z on which its steps are nearly linear
(:mod:`inference.engines.natural_scale`) two ways of looking ahead are used, each restart on its
own:

- far from the optimum, squared extrapolation (Varadhan and Roland 2008, scheme S3): from
  :math:`z_0`, with :math:`r = z_1 - z_0` and :math:`v = z_2 - z_1 - r` of two steps, :math:`z_0 + 2
  a r + a^2 v` at :math:`a = \max(1, |r|_w / |v|_w)`, steps weighed by the information of one
  observation;
- near it, where 30 rounds gained less than a nat, Anderson's mixing of the last ten differences
  (Walker and Ni 2011), restarted where it fails.

A point that is extrapolated is kept if the objective has not fallen by it (Anderson's: if it rose
by half of what a step of EM would gain, or mixing would be drawn to saddles); else shorter steps
are tried, then the plain step, and after the k-th failure in a row :math:`2^k - 2` of these. So the
objective never falls, and what an M-step sets to zero or puts on a bound stays there until an
M-step moves it. (One exception is left: a point beyond a bound that M-steps keep and that none has
come to before may be kept, and its image is then lower than it.)

Sources: R. Varadhan and C. Roland (2008), doi:10.1111/j.1467-9469.2007.00585.x; H. F. Walker and P.
Ni (2011), doi:10.1137/10078356X; N. C. Henderson and R. Varadhan (2019),
doi:10.1080/10618600.2019.1594835.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import cast

import torch
from torch import Tensor

from inference.engines.natural_scale import NaturalScale, restart_wise
from inference.programs.program import Params

PLAIN, SQUARED, MIXED = 0, 1, 2  # kinds of points
LEAD = 10  # plain steps first
ORDER = 10  # differences that are mixed
# rounds of squared extrapolation between two looks, and nats gained over them below which mixing
# begins
SPAN, SLOW = (
    30,
    1.0,
)
RETRIES = {SQUARED: 2, MIXED: 1}
MOST_FAILURES = 5  # after which the plain steps between two trials are no longer doubled
SHARE = 0.5  # of the gain of a plain step that a mixed one must reach
RANK = 1e-10  # of the largest eigenvalue below which differences are dependent
RECENT = 15  # rounds over which a gain is looked at
TRIALS = 5  # of which the longest tells how slow EM is
# coordinates of trials are multiples of it, so that differences in the last digits, as between a
# batch and a run alone, are not extrapolated
GRAIN = 2.0**-20
COARSE = 16  # grains: of shorter steps it is not known how far they lead
MOST_NUMBERS = 2**25  # that the differences may hold
ROUNDING = 1e-9  # of a coordinate that was not to be moved


@dataclass(frozen=True)
class Course:
    """State of the extrapolation of running restarts, (A, ...).

    Args:
        kind: of the point that is evaluated next.
        mixing: whether Anderson's mixing has begun, bool.
        second: whether the next accepted point is the second of a squared extrapolation, bool.
        waiting: plain steps until the next trial; failures: in a row; retries: of the running
            trial; rounds: since the last look.
        length: a; mark: objective at the last look; gain: of a plain step, for each unit of its
            squared length.
        value: objective at the last accepted point; recent: the same after the last rounds, (A,
            RECENT).
        first, at, image, trial: coordinates of the first point of a squared extrapolation, the last
            accepted point, its image under M, and the last trial, (A, P).
        still: coordinates in which the last two images are the same: on a bound, or done, (A, P)
            bool.
        reaches: how many plain steps the last trials took at once, (A, TRIALS), 0 where there were
            fewer.
        points, steps: differences between accepted points, and of image - point between them, (A,
            m, P), zero where there are fewer.
    """

    kind: Tensor
    mixing: Tensor
    second: Tensor
    waiting: Tensor
    failures: Tensor
    retries: Tensor
    rounds: Tensor
    length: Tensor
    mark: Tensor
    gain: Tensor
    value: Tensor
    recent: Tensor
    first: Tensor
    at: Tensor
    image: Tensor
    trial: Tensor
    still: Tensor
    reaches: Tensor
    points: Tensor
    steps: Tensor

    def kept(self, mask: Tensor) -> Course:
        """Select some of the restarts."""
        return (
            self
            if bool(mask.all())
            else Course(**{own.name: getattr(self, own.name)[mask] for own in fields(self)})
        )

    def without_trials(self) -> Course:
        """Course without trial points: images of the last accepted points come next."""
        return replace(
            self,
            kind=torch.zeros_like(self.kind),
            second=self.second & (self.kind == PLAIN),
            retries=torch.zeros_like(self.retries),
        )

    @property
    def flat(self) -> Tensor:
        """Gain over the last rounds, (A,); infinite before there were so many."""
        return self.recent[:, -1] - self.recent[:, 0]

    @property
    def left(self) -> Tensor:
        """Estimated gain of plain steps from the last accepted point on, (A,).

        In the slowest direction a step goes :math:`1 - q = 1 / A` of the way, A the longest reach
        of the last trials, and gains the share :math:`1 - q^2` of what is left; so after a gain of
        d there is :math:`d q^2 / (1 - q^2) = d (A - 1)^2 / (2 A - 1)`.
        """
        reach = self.reaches.amax(1)
        left = self.gain * _squared(self.image - self.at) * (reach - 1).square() / (2 * reach - 1)
        return torch.where(reach > 0, left, torch.nan)


class Extrapolation:
    """Extrapolation of EM: settings and rules of trial points.

    Args:
        scale: of the model.
        mixes: whether Anderson's mixing follows.
    """

    def __init__(self, scale: NaturalScale, mixes: bool = True) -> None:
        self.scale, self.mixes = scale, mixes

    def begin(self, params: Params) -> Course:
        """Initial state before the first step, from (R, ...)."""
        num, size = len(next(iter(params.values()))), self.scale.size
        order = min(ORDER, size // 2, MOST_NUMBERS // max(1, 2 * num * size)) if self.mixes else 0
        count, number = torch.zeros(num, dtype=torch.long), torch.zeros(num, dtype=torch.float64)
        wide, deep = (
            torch.zeros(num, size, dtype=torch.float64),
            torch.zeros(num, order, size, dtype=torch.float64),
        )
        nothing = torch.full((num,), -torch.inf, dtype=torch.float64)
        recent = torch.full((num, RECENT), -torch.inf, dtype=torch.float64)
        at = self.scale.of(params).cpu()
        return Course(
            kind=count,
            mixing=count.bool(),
            second=count.bool(),
            waiting=count + LEAD,
            failures=count,
            retries=count,
            rounds=count,
            length=number,
            mark=nothing,
            gain=number,
            value=nothing,
            recent=recent,
            first=wide,
            at=at,
            image=at,
            trial=wide,
            still=wide.bool(),
            points=deep,
            steps=deep,
            reaches=torch.zeros(num, TRIALS, dtype=torch.float64),
        )

    def accepts(self, course: Course, objective: Tensor) -> Tensor:
        """Mask of accepted points by their objective, bool (A,)."""
        needed = course.value + torch.where(
            course.kind == MIXED, SHARE * course.gain * _squared(course.image - course.at), 0.0
        )
        return (course.kind == PLAIN) | (objective.isfinite() & (objective >= needed))

    def within(self, course: Course, accepted: Tensor, point: Params, image: Params) -> Tensor:
        """Accepted points (A,) inside their bounds, by the way back of the M-step."""
        if not bool((accepted & (course.kind != PLAIN)).any()):
            return accepted
        at, new = self.scale.of(point).cpu(), self.scale.of(image).cpu()
        beyond = (new == course.image) & ((at - new).abs() > ROUNDING)
        return accepted & ((course.kind == PLAIN) | ~beyond.any(1))

    def advance(
        self,
        course: Course,
        accepted: Tensor,
        objective: Tensor,
        point: Params,
        image: Params,
        safe: Params,
    ) -> tuple[Course, Params, Params]:
        """Advance to the next points to evaluate.

        Args:
            course: so far; accepted: by :meth:`accepts` and :meth:`within`.
            objective: at ``point``, (A,); ``image``: of it under M, not read where it was not
                accepted.
            safe: the image of the last accepted point.

        Returns:
            The new course, the next point, and the image of the last accepted point.
        """
        after = (
            self._taken(course, accepted, objective, point, image, safe)
            if bool(accepted.any())
            else course
        )
        after = replace(
            after,
            recent=torch.cat([course.recent[:, 1:], after.value.unsqueeze(1)], 1),
            rounds=course.rounds + 1,
        )
        if not bool(accepted.all()):
            after = self._refused(after, ~accepted)
        safe = _where(accepted, image, safe)
        after = self._next(after, accepted)
        tried = after.kind != PLAIN
        if not bool(tried.any()):
            return after, safe, safe
        trial = self.scale.near(
            (after.trial / GRAIN).round() * GRAIN, after.image, after.kind == SQUARED
        )
        trial = torch.where(after.still, after.image, trial)
        tried = tried & trial.isfinite().all(1)
        after = replace(after, trial=trial, kind=torch.where(tried, after.kind, PLAIN))
        after = replace(after, reaches=_reaches(after, tried & accepted))
        like = next(iter(safe.values()))
        ahead = self.scale.back(
            torch.where(tried.unsqueeze(1), trial, after.image).to(like.device),
            safe,
            after.image.to(like.device),
        )
        return after, _where(tried, ahead, safe), safe

    def _taken(
        self,
        course: Course,
        accepted: Tensor,
        objective: Tensor,
        point: Params,
        image: Params,
        safe: Params,
    ) -> Course:
        """Update the state by accepted points: the differences are kept."""
        plain = course.kind == PLAIN
        at = (
            course.image
            if bool(plain.all()) and bool(course.value.isfinite().all())
            else self.scale.of(point).cpu()
        )
        new = self.scale.of(image).cpu()
        old_step, step = course.image - course.at, new - at
        started = course.value.isfinite()
        gained = torch.where(
            accepted & plain & started,
            (objective - course.value) / _squared(old_step).clamp(min=1e-300),
            course.gain,
        ).clamp(min=0.0)
        points, steps = course.points, course.steps
        if points.shape[1] and bool(course.mixing.any()):
            same = (self.scale.zeros(image) == self.scale.zeros(safe)).all(1).cpu()
            pushed = (accepted & course.mixing & same)[:, None, None]
            emptied = (accepted & ~same)[:, None, None]
            points = torch.where(
                pushed, torch.cat([points[:, 1:], (at - course.at).unsqueeze(1)], 1), points
            ).masked_fill(emptied, 0.0)
            steps = torch.where(
                pushed, torch.cat([steps[:, 1:], (step - old_step).unsqueeze(1)], 1), steps
            ).masked_fill(emptied, 0.0)
        rows = accepted.unsqueeze(1)
        return replace(
            course,
            at=torch.where(rows, at, course.at),
            image=torch.where(rows, new, course.image),
            gain=torch.where(accepted, gained, course.gain),
            value=torch.where(accepted, objective, course.value),
            mark=torch.where(accepted & ~started, objective, course.mark),
            failures=torch.where(accepted & ~plain, 0, course.failures),
            still=torch.where(rows, new == course.image, course.still),
            points=points,
            steps=steps,
        )

    def _refused(self, course: Course, refused: Tensor) -> Course:
        """Update the state by refused points: a shorter step, or a plain one and a pause."""
        mixed = course.kind == MIXED
        again = refused & (course.retries < torch.where(mixed, RETRIES[MIXED], RETRIES[SQUARED]))
        given_up = refused & ~again
        failures = torch.where(given_up, course.failures + 1, course.failures)
        back = given_up & mixed & (failures >= 2)  # to squared extrapolation
        pause = 2 ** failures.clamp(max=MOST_FAILURES) - 2
        shorter = torch.where(course.length > 8, course.length / 4, (course.length + 1) / 2)
        emptied = (given_up & mixed)[:, None, None]
        return replace(
            course,
            kind=torch.where(given_up, PLAIN, course.kind),
            retries=torch.where(again, course.retries + 1, 0),
            failures=failures,
            waiting=torch.where(given_up, pause, course.waiting),
            second=course.second & ~given_up,
            mixing=course.mixing & ~back,
            rounds=torch.where(back, 0, course.rounds),
            mark=torch.where(back, course.value, course.mark),
            length=torch.where(again & ~mixed, shorter, course.length),
            trial=torch.where(
                (again & mixed).unsqueeze(1),
                course.image + (course.trial - course.image) / 4,
                course.trial,
            ),
            points=course.points.masked_fill(emptied, 0.0),
            steps=course.steps.masked_fill(emptied, 0.0),
        )

    def _next(self, course: Course, accepted: Tensor) -> Course:
        """Next points after accepted ones; trials that go on are written anew."""
        rest = accepted & (course.waiting > 0)
        looked = accepted & ~course.mixing & (course.kind == PLAIN) & (course.rounds >= SPAN)
        begun = looked & (course.value - course.mark < SLOW) & bool(course.points.shape[1])
        squared = accepted & ~rest & ~course.mixing & ~begun
        first, second = squared & ~course.second, squared & course.second
        mixing = course.mixing | begun
        mixed = accepted & ~rest & course.mixing & (course.steps[:, -1:] != 0).flatten(1).any(1)
        kind = torch.where(accepted, PLAIN, course.kind)
        start = torch.where(first.unsqueeze(1), course.at, course.first)

        length, trial = course.length, course.trial
        going = second | (~accepted & (kind == SQUARED))
        if bool(going.any()):
            r = course.at - start
            v = course.image - course.at - r
            weights = self.scale.weights(course.at)
            ratio = (
                (_squared(weights * r) / _squared(weights * v).clamp(min=1e-300))
                .sqrt()
                .clamp(1.0, 1e6)
            )
            length = torch.where(second, ratio, length)
            a = length.unsqueeze(1)
            trial = torch.where(going.unsqueeze(1), start + 2 * a * r + a.square() * v, trial)
        if bool(mixed.any()):
            trial = torch.where(mixed.unsqueeze(1), self._mixed(course), trial)
        kind = torch.where(second, SQUARED, torch.where(mixed, MIXED, kind))
        return replace(
            course,
            kind=kind,
            mixing=mixing,
            second=torch.where(accepted, first, course.second),
            waiting=torch.where(rest, course.waiting - 1, course.waiting),
            retries=torch.where(accepted, 0, course.retries),
            rounds=torch.where(looked, 0, course.rounds),
            mark=torch.where(looked, course.value, course.mark),
            length=length,
            first=start,
            trial=trial,
        )

    def _mixed(self, course: Course) -> Tensor:
        """Anderson-mixed point of every restart, (A, P)."""
        step = course.image - course.at
        size = course.steps.norm(dim=2, keepdim=True).clamp(min=1e-300)
        unit = course.steps / size  # (A, m, P)
        values, vectors = torch.linalg.eigh((unit @ unit.mT).nan_to_num())
        inverse = torch.where(values > RANK * values[:, -1:], values.reciprocal(), 0.0)
        shares = (vectors * inverse.unsqueeze(1)) @ (
            vectors.mT @ (unit @ step.unsqueeze(2))
        )  # (A, m, 1)
        return cast(
            Tensor,
            course.image - ((course.points + course.steps) / size).mT.matmul(shares).squeeze(2),
        )


def _reaches(course: Course, tried: Tensor) -> Tensor:
    """Update the reaches by the trials just made, short steps left out for rounding."""
    step = _squared(course.image - course.at)
    reach = (_squared(course.trial - course.at) / step.clamp(min=GRAIN**2)).sqrt().clamp(min=1.0)
    told = tried & (step > (COARSE * GRAIN) ** 2)
    return torch.where(
        told.unsqueeze(1), torch.cat([course.reaches[:, 1:], reach.unsqueeze(1)], 1), course.reaches
    )


def _squared(z: Tensor) -> Tensor:
    return z.square().sum(1)


def _where(mask: Tensor, chosen: Params, other: Mapping[str, Tensor]) -> Params:
    """Select restarts of ``chosen`` where the mask holds, of ``other`` elsewhere."""
    if bool(mask.all()):
        return dict(chosen)
    out = {}
    for name, value in other.items():
        out[name] = torch.where(
            restart_wise(mask.to(value.device), value), chosen[name].to(value.dtype), value
        )
    return out
