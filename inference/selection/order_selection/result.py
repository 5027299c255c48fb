"""Result of an order selection: the number of components, its status, and the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from inference.base.drawing import ask, draw
from inference.base.frames import pd
from inference.fitting.result import Fit
from inference.selection.order_selection.detectability import CLEAR, MISFIT
from inference.selection.order_selection.groups import Groups
from ppl_models.parts.repr import counted, shows_briefly, told, told_html
from ppl_models.parts.surface import Renamed

STEEPER = 1.4  # times the mean gain of a superfluous component, from which one is counted

Status = Literal["confident", "unsure", "misfit", "grid too short"]


@shows_briefly
@dataclass(frozen=True, eq=False)
class Climb:
    """A bootstrap climb from one number of components to another.

    Args:
        num_components: where it stopped.
        start: the fit that the tables were drawn from.
        null_gains: what a component more gained in deviance in each table, (B,).
        tables: (N, J) each, missing where the data are.
        fits: to the tables, of as many components as the start.
        at_end: whether the grid ended first.
    """

    num_components: int
    start: Fit
    null_gains: np.ndarray
    tables: tuple[Tensor, ...]
    fits: tuple[Fit, ...]
    at_end: bool

    @property
    def null_gain(self) -> float:
        """Mean of the null gains."""
        return float(self.null_gains.mean())


@dataclass(frozen=True, eq=False, repr=False)
class HowMany:
    """The number of components of a table, by :func:`inference.selection.select_components`.

    Args:
        num_components: the number; with the status "grid too short", at least this many.
        distribution: name of the chosen distribution.
        status: "confident"; "unsure"; "misfit", where the data contradict every distribution
            offered, so that components and patches are counted together; "grid too short".
        interval: the numbers that the strict and the lenient penalty choose.
        reasons: a sentence for each condition of confidence that fails.
        misfit: largest misfit of a component's noise at the choice, in standard deviations of exact
            noise; from 3 on the distribution is contradicted.
        rows: one dict for each distribution and number: log-likelihood and penalised deviances.
        fits: by distribution and number.
        unseen: components that the data could not show, in a sentence.
        detectable_variance: of the noise of the component that the fewest rows use, from which the
            distribution would be called contradicted; NaN where it is not known.
        evidence: what else the rule of this kind of model read, by name.
    """

    num_components: int
    distribution: str
    status: Status
    interval: tuple[int, int]
    reasons: tuple[str, ...]
    misfit: float
    rows: tuple[Mapping[str, Any], ...]
    fits: Mapping[tuple[str, int], Fit]
    unseen: str
    detectable_variance: float
    evidence: Mapping[str, Any]
    penalties: ClassVar[str] = "a strict and a lenient penalty"
    noun: ClassVar[str] = "component"
    unit: ClassVar[str] = "row"
    proviso: ClassVar[str] = "of components above the size stated"
    owner: ClassVar[str] = "distribution"
    judged: ClassVar[str] = ""
    deciding: ClassVar[tuple[str, ...]] = ("strict", "lenient", "gain_in_edges")
    score: ClassVar[str] = "lenient"  # of them, the one that chooses
    law = Renamed("distribution")

    def counted(self, number: int) -> str:
        """Return so many components, in words."""
        return counted(number, self.noun)

    @property
    def counts(self) -> str:
        """Noun of what the number counts."""
        return self.noun

    @property
    def chosen(self) -> int:
        """The number, as every answer to "how many?" calls it."""
        return self.num_components

    @property
    def word(self) -> Status:
        """The status."""
        return self.status

    @property
    def fit(self) -> Fit:
        """The chosen fit."""
        return self.fits[self.distribution, self.num_components]

    @property
    def climb(self) -> Climb | None:
        """Bootstrap climb from the strict choice.

        None where none was asked for, or the strict choice is the largest number.
        """
        return self.evidence.get("climb")

    @property
    def held_out(self) -> int | None:
        """The number that cells or sequences left out of the fits choose; None without them."""
        return self.evidence.get("held_out")

    @property
    def smallest_seen(self) -> Mapping[float, float]:
        """Share of the rows -> least share of their counts of a component that is counted."""
        return self.evidence.get("smallest_seen", {})

    @property
    def edge(self) -> str:
        """The penalty that takes the largest number compared, in words."""
        low, high = self.interval
        return f"the lenient penalty takes {high}, the largest number compared" + (
            f", where the strict one takes {low}" if low < high else ""
        )

    @property
    def is_at_start(self) -> bool:
        """The number is the smallest of those compared, and above one."""
        smallest = min(size for _, size in self.fits)
        return self.counts == self.noun and self.num_components == smallest > 1

    @property
    def contradicted(self) -> bool:
        """Contradiction of every distribution by the data."""
        return self.status == "misfit"

    @property
    def sentences(self) -> tuple[str, str, str]:
        """The number, the distribution's misfit, and what could not have been seen."""
        return self._number(), self._distribution(), self.unseen

    @property
    def verdict(self) -> str:
        """The three sentences."""
        return " ".join(self.sentences)

    def _number(self) -> str:
        low, high = self.interval
        number = self.counted(self.num_components)
        if self.status == "confident":
            return f"{number} (confident, {self.proviso})."
        if self.status == "grid too short":
            if self.is_at_start:
                return (
                    f"{number} or more, or fewer: {self.edge}, and smaller numbers were not"
                    " compared, so compare more and fewer."
                )
            return f"At least {self._number_in_grid()}: {self.edge}, so compare more."
        if self.status == "misfit":
            return self._number_of_misfit()
        span = number
        if low < high:
            span = f"Between {low} and {high} {self.noun}s, {self.num_components} at best"
        return f"{span} (unsure: {'; '.join(self.reasons)})."

    def _number_in_grid(self) -> str:
        return self.counted(self.num_components)

    def _number_of_misfit(self) -> str:
        return (
            f"{self.counted(self.num_components)} by cells left out of the fits, which is a guess:"
            " no distribution offered fits at any number."
        )

    @property
    def _subject(self) -> str:
        return f"The {self.distribution} distribution is"

    @property
    def _untested(self) -> str:
        return (
            f"The fit of the {self.distribution} distribution could not be tested, for too few"
            f" {self.unit}s use a {self.noun}."
        )

    def _distribution(self) -> str:
        size = (
            f"the noise of its {self.noun}s differs from the {self.owner}'s by {self.misfit:.1f}"
            " standard deviations at most"
        )
        judged = f" Judged are {self.judged}." if self.judged else ""
        if self.status == "grid too short" and self.misfit > MISFIT:
            return (
                f"At the largest number {size}, so that more {self.noun}s or another"
                " distribution are needed."
            )
        if self.contradicted:
            return f"{self._subject} contradicted: {size}, and 3 would be much.{judged}"
        if self.detectable_variance == math.inf and self._untested:
            return self._untested
        if math.isfinite(self.detectable_variance):
            size += (
                f"; noise of a variance of {self.detectable_variance:.2f} instead of 1 would have"
                " been seen"
            )
        return f"{self._subject} not contradicted ({size}).{judged}"

    @property
    def table(self) -> pd.DataFrame:
        """One row a distribution and number."""
        return pd.DataFrame(list(self.rows)).set_index(["distribution", "num_components"])

    def plot(self) -> Any:
        """Draw the strict penalised deviance and the gain of each further component."""
        return draw("plot_how_many", self)

    def report(self, path: str | Path) -> Path:
        """Write one HTML page, replacing the file if it exists.

        See :func:`inference.report.how_many.write_how_many_report`.
        """
        page: Path = ask("report.how_many", "write_how_many_report", self, path)
        return page

    def __repr__(self) -> str:
        return told(self._headline, self.sentences)

    def _repr_html_(self) -> str:
        return told_html(self._headline, self.sentences, self.table)

    @property
    def _headline(self) -> str:
        low, high = self.interval
        climbed = (
            "" if self.climb is None else f", by a bootstrap climb {self.climb.num_components}"
        )
        return (
            f"How many: {self.num_components} ({self.status}), {self.distribution};"
            f" by {self.penalties} {low if low == high else f'{low} to {high}'}{climbed}"
        )


class HowManyGroups(HowMany):
    """The number of components of a mixture, and the groups of rows that they make.

    The number counts components with the status "confident" or "unsure", and separated groups of
    rows with "misfit" or "grid too short".
    """

    proviso: ClassVar[str] = "if the data come from one of the distributions offered"
    deciding: ClassVar[tuple[str, ...]] = ("bic", "lenient", "icl")
    score: ClassVar[str] = "bic"

    @property
    def groups(self) -> Groups:
        """The groups of the fit of the smallest BIC."""
        groups: Groups = self.evidence["groups"]
        return groups

    @property
    def fit(self) -> Fit:
        """The fit of the smallest BIC, whose components make the groups."""
        return self.fits[self.distribution, self.groups.num_fitted]

    @property
    def edge(self) -> str:
        """The largest number compared has the smallest BIC, in words."""
        low, high = self.interval
        lenient = f", where a lenient penalty takes {low}" if low < high else ""
        largest = f"{self.groups.num_fitted}, the largest number of {self.noun}s compared"
        return f"{largest}, has the smallest BIC{lenient}"

    @property
    def counts(self) -> str:
        """Noun of what the number counts: components, or separated groups of them."""
        is_groups = self.status in ("misfit", "grid too short")
        return "separated group" if is_groups else self.noun

    def _number_in_grid(self) -> str:
        return f"{counted(self.num_components, self.counts)} of {self.unit}s"

    def _number_of_misfit(self) -> str:
        fitted = self.groups.num_fitted
        patches = (
            f"the {self.noun} fitted is a patch of it"
            if fitted == 1
            else f"the {fitted} {self.noun}s fitted are patches of them"
        )
        return (
            f"{self._number_in_grid()}, not {self.noun}s: no distribution offered fits at any"
            f" number, so that {patches}."
        )

    def plot(self) -> Any:
        """Draw BIC over the number, the entropy of merged components, and their overlap."""
        return draw("plot_how_many_groups", self)


class HowManyStates(HowManyGroups):
    """The number of states of a hidden Markov model, whose rows are steps.

    ``detectable_variance`` is NaN, for it is not known here.
    """

    noun: ClassVar[str] = "state"
    unit: ClassVar[str] = "step"
    owner: ClassVar[str] = "model"
    judged: ClassVar[str] = (
        "the rows of a state, their independence within a visit, and how long visits last"
    )
    _untested: ClassVar[str] = ""

    @property
    def _subject(self) -> str:
        return f"The {self.distribution} hidden Markov model is"


class HowManyOptions(HowMany):
    """The number of hidden options, whose rows are steps: that of the lenient penalty.

    With the status "misfit" it counts options that act differently. ``held_out`` is the number with
    the largest held-out log-likelihood of the actions, None where there are fewer than six
    sequences. ``interval`` reaches to the number that Akaike's criterion chooses, if it is larger.
    ``detectable_variance`` is NaN, for it is not known here.
    """

    penalties: ClassVar[str] = "three penalties"
    noun: ClassVar[str] = "option"
    unit: ClassVar[str] = "step"
    proviso: ClassVar[str] = "if what was done before matters through the option alone"
    owner: ClassVar[str] = "model"
    judged: ClassVar[str] = (
        "the actions of an option, their dependence on what was done before, and how long visits"
        " last"
    )
    deciding: ClassVar[tuple[str, ...]] = ("bic", "lenient", "held_out")
    _subject: ClassVar[str] = "Hidden options are"
    _untested: ClassVar[str] = (
        "Whether options switch as the model says could not be tested, for too few steps use an"
        " option."
    )

    @property
    def distinct_options(self) -> tuple[tuple[int, ...], ...]:
        """Options of the lenient choice; those that act alike, as far as data show, together."""
        options: Sequence[Sequence[int]] = self.evidence["distinct_options"]
        return tuple(map(tuple, options))

    @property
    def memory(self) -> Mapping[str, float]:
        """BIC above the best number of options of policies that look at the step before.

        By what they look at, "action" or "state"; empty where actions are missing.
        """
        memory: Mapping[str, float] = self.evidence["memory"]
        return memory

    @property
    def fit(self) -> Fit:
        """The fit of the lenient choice."""
        return self.fits[self.distribution, sum(map(len, self.distinct_options))]

    @property
    def is_beaten(self) -> bool:
        """Policy with memory, without options, of a BIC clearly below any number of options."""
        return min(self.memory.values(), default=0.0) < -CLEAR

    def _number_of_misfit(self) -> str:
        reason = "the noise of its options is not that of the model"
        if self.is_beaten:
            name = min(self.memory, key=lambda name: self.memory[name])
            reason = (
                f"one policy that looks at the {name} of the step before has a lower BIC than any"
                f" number of options (by {-self.memory[name]:,.0f})"
            )
        number = sum(map(len, self.distinct_options))
        return f"Best number tried: {number}. Do not trust it: {reason}."

    def _distribution(self) -> str:
        if self.is_beaten:
            return "Options may only make up for what such a policy says with fewer parameters."
        return super()._distribution()
