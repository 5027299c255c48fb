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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.engines.natural_scale import NaturalScale, restart_wise
from inference.programs.program import Params

Array = NDArray[Any]

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
    """Course of the extrapolation of running restarts, (A, ...), in NumPy: arrays are small.

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

    kind: Array
    mixing: Array
    second: Array
    waiting: Array
    failures: Array
    retries: Array
    rounds: Array
    length: Array
    mark: Array
    gain: Array
    value: Array
    recent: Array
    first: Array
    at: Array
    image: Array
    trial: Array
    still: Array
    reaches: Array
    points: Array
    steps: Array

    @classmethod
    def of(cls, parts: Mapping[str, Any]) -> Course:
        """Course of the fields of another one, arrays or, from a file, tensors."""
        if isinstance(parts["kind"], Tensor):
            return cls(**{name: part.numpy() for name, part in parts.items()})
        return cls(**parts)

    def kept(self, mask: Array) -> Course:
        """Some of the restarts."""
        return (
            self
            if all_of(mask)
            else Course(**{part.name: getattr(self, part.name)[mask] for part in fields(self)})
        )

    def without_trials(self) -> Course:
        """Course without trial points: images of the last accepted points come next."""
        return replace(
            self,
            kind=np.zeros_like(self.kind),
            second=self.second & (self.kind == PLAIN),
            retries=np.zeros_like(self.retries),
        )

    @property
    def flat(self) -> Array:
        """Gain over the last rounds, (A,); infinite before there were so many."""
        return np.asarray(self.recent[:, -1] - self.recent[:, 0])

    @property
    def left(self) -> Array:
        r"""Gain that plain steps would still make from the last accepted point, (A,), roughly.

        In the slowest direction a step goes :math:`1 - q = 1 / A` of the way, A the longest reach
        of the last trials, and gains the share :math:`1 - q^2` of what is left; so after a gain of
        d there is :math:`d q^2 / (1 - q^2) = d (A - 1)^2 / (2 A - 1)`.
        """
        reach = self.reaches.max(1)
        left = self.gain * _squared(self.image - self.at) * (reach - 1) ** 2 / (2 * reach - 1)
        return np.where(reach > 0, left, np.nan)


class Extrapolation:
    """Looks ahead of EM.

    Args:
        scale: of the model.
        mixes: whether Anderson's mixing follows.
    """

    def __init__(self, scale: NaturalScale, mixes: bool = True) -> None:
        self.scale, self.mixes = scale, mixes

    def begin(self, params: Params) -> Course:
        """Before the first step, from (R, ...)."""
        num, size = len(next(iter(params.values()))), self.scale.size
        order = min(ORDER, size // 2, MOST_NUMBERS // max(1, 2 * num * size)) if self.mixes else 0
        count, number = np.zeros(num, dtype=np.int64), np.zeros(num)
        wide, deep = np.zeros((num, size)), np.zeros((num, order, size))
        nothing = np.full(num, -np.inf)
        at = self.scale.of(params)
        return Course(
            kind=count,
            mixing=count.astype(bool),
            second=count.astype(bool),
            waiting=count + LEAD,
            failures=count,
            retries=count,
            rounds=count,
            length=number,
            mark=nothing,
            gain=number,
            value=nothing,
            recent=np.full((num, RECENT), -np.inf),
            first=wide,
            at=at,
            image=at,
            trial=wide,
            still=wide.astype(bool),
            points=deep,
            steps=deep,
            reaches=np.zeros((num, TRIALS)),
        )

    def accepts(self, course: Course, objective: Array) -> Array:
        """Accepted points, given their objective, bool (A,)."""
        plain = course.kind == PLAIN
        if all_of(plain):
            return np.asarray(plain)
        needed = course.value.copy()
        mixed = course.kind == MIXED
        if any_of(mixed):
            needed[mixed] += (SHARE * course.gain * _squared(course.image - course.at))[mixed]
        return np.asarray(plain | (np.isfinite(objective) & (objective >= needed)))

    def seen(
        self, course: Course, accepted: Array, point: Params, image: Params
    ) -> tuple[Array, Array, Array]:
        """Accepted points (A,) inside their bounds, and coordinates of points and images, (A, P).

        A point is inside where the M-step does not bring it back to the last image.
        """
        plain = course.kind == PLAIN
        new = self.scale.of(image) if any_of(accepted) else course.image
        if all_of(plain | ~accepted) and all_of(np.isfinite(course.value)):
            return accepted, course.image, new
        at = self.scale.of(point)
        if any_of(accepted & ~plain):
            beyond = (new == course.image) & (np.abs(at - new) > ROUNDING)
            accepted = accepted & (plain | ~beyond.any(1))
        return accepted, at, new

    def advance(
        self,
        course: Course,
        accepted: Array,
        objective: Array,
        at: Array,
        new: Array,
        image: Params,
        safe: Params,
    ) -> tuple[Course, Params, Params]:
        """Advance to the next points to evaluate.

        Args:
            course: so far; accepted, at, new: by :meth:`accepts` and :meth:`seen`.
            objective: at the points, (A,); ``image``: of them under M, not read where they were not
                accepted.
            safe: the image of the last accepted point.

        Returns:
            The new course, the next point, and the image of the last accepted point.
        """
        state = dict(vars(course))
        everyone = all_of(accepted)
        if any_of(accepted):
            self._take(state, course, accepted, objective, at, new, image, safe)
        state["recent"] = np.concatenate([course.recent[:, 1:], state["value"][:, None]], 1)
        state["rounds"] = course.rounds + 1
        if not everyone:
            _refuse(state, ~accepted)
        safe = _where(accepted, image, safe)
        self._next(state, accepted)
        tried = state["kind"] != PLAIN
        if not any_of(tried):
            return Course(**state), safe, safe
        trial = self.scale.near(
            np.round(state["trial"] / GRAIN) * GRAIN, state["image"], state["kind"] == SQUARED
        )
        trial = np.where(state["still"], state["image"], trial)
        tried &= np.isfinite(trial).all(1)
        state["trial"], state["kind"] = trial, np.where(tried, state["kind"], PLAIN)
        state["reaches"] = _reaches(state, tried & accepted)
        at_image = state["image"]
        z = trial if all_of(tried) else np.where(tried[:, None], trial, at_image)
        ahead = self.scale.back(z, safe, at_image)
        return Course(**state), _where(tried, ahead, safe), safe

    def _take(
        self,
        state: dict[str, Array],
        course: Course,
        accepted: Array,
        objective: Array,
        at: Array,
        new: Array,
        image: Params,
        safe: Params,
    ) -> None:
        """Points that are kept: the differences are noted."""
        plain, started = course.kind == PLAIN, np.isfinite(course.value)
        old_step, step = course.image - course.at, new - at
        gained = course.gain
        told = accepted & plain & started
        if any_of(told):
            rise = np.where(told, objective - course.value, 0.0)
            gained = np.where(told, rise / np.maximum(_squared(old_step), 1e-300), gained)
        gained = np.maximum(gained, 0.0)
        if course.points.shape[1] and any_of(course.mixing):
            same = (self.scale.zeros(image) == self.scale.zeros(safe)).all(1)
            pushed, emptied = accepted & course.mixing & same, accepted & ~same
            for name, difference in (("points", at - course.at), ("steps", step - old_step)):
                before = state[name]
                table = before.copy()
                table[pushed, :-1] = before[pushed, 1:]
                table[pushed, -1] = difference[pushed]
                table[emptied] = 0.0
                state[name] = table
        still = new == course.image
        if all_of(accepted):
            state.update(at=at, image=new, gain=gained, value=objective, still=still)
            state["mark"] = (
                course.mark if all_of(started) else np.where(started, course.mark, objective)
            )
            state["failures"] = course.failures if all_of(plain) else course.failures * plain
            return
        rows = accepted[:, None]
        state.update(
            at=np.where(rows, at, course.at),
            image=np.where(rows, new, course.image),
            gain=np.where(accepted, gained, course.gain),
            value=np.where(accepted, objective, course.value),
            mark=np.where(accepted & ~started, objective, course.mark),
            failures=np.where(accepted & ~plain, 0, course.failures),
            still=np.where(rows, still, course.still),
        )

    def _next(self, state: dict[str, Array], accepted: Array) -> None:
        """The next point after one that was kept; trials that go on are written anew."""
        kind, second, mixing = state["kind"], state["second"], state["mixing"]
        rest = accepted & (state["waiting"] > 0)
        looked = accepted & ~mixing & (kind == PLAIN) & (state["rounds"] >= SPAN)
        if any_of(looked):
            begun = looked & (state["value"] - state["mark"] < SLOW)
            begun &= bool(state["points"].shape[1])
            state["rounds"] = np.where(looked, 0, state["rounds"])
            state["mark"] = np.where(looked, state["value"], state["mark"])
            state["mixing"] = mixing | begun
        else:
            begun = looked
        squared = accepted & ~rest & ~mixing & ~begun
        first, second = squared & ~second, squared & second
        kind = np.where(accepted, PLAIN, kind)
        if any_of(first):
            state["first"] = np.where(first[:, None], state["at"], state["first"])
        going = second | (~accepted & (kind == SQUARED))
        if any_of(going):
            r = state["at"] - state["first"]
            v = state["image"] - state["at"] - r
            weights = self.scale.weights(state["at"])
            ratio = np.sqrt(_squared(weights * r) / np.maximum(_squared(weights * v), 1e-300)).clip(
                1.0, 1e6
            )
            state["length"] = length = np.where(second, ratio, state["length"])
            a = length[:, None]
            state["trial"] = np.where(
                going[:, None], state["first"] + 2 * a * r + a**2 * v, state["trial"]
            )
        if any_of(mixing) or any_of(begun):
            ready = (state["steps"][:, -1] != 0).any(1)
            mixed = accepted & ~rest & state["mixing"] & ready
            if any_of(mixed):
                state["trial"] = np.where(mixed[:, None], _mixed(state), state["trial"])
                kind = np.where(mixed, MIXED, kind)
        state["kind"] = np.where(second, SQUARED, kind) if any_of(second) else kind
        state["second"] = np.where(accepted, first, state["second"])
        if any_of(rest):
            state["waiting"] = state["waiting"] - rest
        if any_of(state["retries"] != 0):
            state["retries"] = np.where(accepted, 0, state["retries"])


def _refuse(state: dict[str, Array], refused: Array) -> None:
    """Points that are not kept: a shorter step, or the plain one and a pause."""
    mixed = state["kind"] == MIXED
    again = refused & (state["retries"] < np.where(mixed, RETRIES[MIXED], RETRIES[SQUARED]))
    given_up = refused & ~again
    failures = state["failures"] + given_up
    back = given_up & mixed & (failures >= 2)  # to squared extrapolation
    pause = 2 ** np.minimum(failures, MOST_FAILURES) - 2
    length = state["length"]
    shorter = np.where(length > 8, length / 4, (length + 1) / 2)
    emptied = given_up & mixed
    if any_of(emptied):
        for name in ("points", "steps"):
            state[name] = np.where(emptied[:, None, None], 0.0, state[name])
    half = (again & mixed)[:, None]
    state.update(
        kind=np.where(given_up, PLAIN, state["kind"]),
        retries=np.where(again, state["retries"] + 1, 0),
        failures=failures,
        waiting=np.where(given_up, pause, state["waiting"]),
        second=state["second"] & ~given_up,
        mixing=state["mixing"] & ~back,
        rounds=np.where(back, 0, state["rounds"]),
        mark=np.where(back, state["value"], state["mark"]),
        length=np.where(again & ~mixed, shorter, length),
        trial=np.where(
            half, state["image"] + (state["trial"] - state["image"]) / 4, state["trial"]
        ),
    )


def _mixed(state: dict[str, Array]) -> Array:
    """Anderson's point of every restart, (A, P)."""
    step = state["image"] - state["at"]
    steps = state["steps"]
    size = np.maximum(np.sqrt(np.einsum("amp,amp->am", steps, steps)), 1e-300)[..., None]
    unit = steps / size  # (A, m, P)
    gram = unit @ unit.swapaxes(1, 2)
    values, vectors = np.linalg.eigh(np.nan_to_num(gram))
    with np.errstate(divide="ignore"):
        inverse = np.where(values > RANK * values[:, -1:], 1 / values, 0.0)
    target = vectors.swapaxes(1, 2) @ (unit @ step[..., None])
    shares = (vectors * inverse[:, None]) @ target  # (A, m, 1)
    moved = ((state["points"] + steps) / size).swapaxes(1, 2) @ shares
    return np.asarray(state["image"] - moved[..., 0])


def _reaches(state: dict[str, Array], tried: Array) -> Array:
    """Reaches with those of the trials just made, short steps left out for rounding."""
    if not any_of(tried):
        return state["reaches"]
    step = _squared(state["image"] - state["at"])
    told = tried & (step > (COARSE * GRAIN) ** 2)
    if not any_of(told):
        return state["reaches"]
    reach = np.sqrt(_squared(state["trial"] - state["at"]) / np.maximum(step, GRAIN**2))
    pushed = np.concatenate([state["reaches"][:, 1:], np.maximum(reach, 1.0)[:, None]], 1)
    return np.where(told[:, None], pushed, state["reaches"])


def any_of(mask: Array) -> bool:
    """Tell whether a mask of a few restarts is true somewhere, faster than NumPy's reduction."""
    return True in mask.tolist()


def all_of(mask: Array) -> bool:
    """Tell whether a mask of a few restarts is true everywhere."""
    return False not in mask.tolist()


def _squared(z: Array) -> Array:
    return np.asarray(np.einsum("ap,ap->a", z, z))


def _where(mask: Array, chosen: Params, other: Mapping[str, Tensor]) -> Params:
    """Restarts of ``chosen`` where the mask says so, of ``other`` elsewhere."""
    if all_of(mask):
        return dict(chosen)
    if not any_of(mask):
        return dict(other)
    truth = torch.from_numpy(mask)
    return {
        name: torch.where(
            restart_wise(truth.to(value.device), value), chosen[name].to(value.dtype), value
        )
        for name, value in other.items()
    }
