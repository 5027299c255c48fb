"""A number of hidden options, and what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from inference.fitting.result import Fit
from inference.selection.order_selection.answer import HowMany
from inference.selection.order_selection.detectability import MISFIT


@dataclass(frozen=True, eq=False, repr=False)
class HowManyOptions(HowMany):
    """The answer of :func:`inference.selection.select_components` for hidden options, whose rows
    are steps.

    The number is that of the lenient penalty; with the word "law wrong at every K" it counts
    options that act differently. ``held_out`` is the number by which actions of sequences left out
    of the fits are foretold best, None where there are fewer than six sequences. ``interval``
    reaches to the number that Akaike's criterion chooses, if it is larger. ``detectable_variance``
    is NaN, for it is not known here.

    Args:
        unlike: options of the lenient choice, those together that act alike as far as the data
            show.
        memory: what a policy that looks at the "action" or the "state" a step before would cost in
            BIC more than the best number of options; empty where actions are missing.
    """

    unlike: tuple[tuple[int, ...], ...]
    memory: Mapping[str, float]
    penalties: ClassVar[str] = "three penalties"
    noun: ClassVar[str] = "option"
    unit: ClassVar[str] = "step"

    @property
    def fit(self) -> Fit:
        """The fit of the lenient choice."""
        return self.fits[self.law, sum(map(len, self.unlike))]

    def _number(self) -> str:
        low, high = self.interval
        if self.word == "confident":
            return (
                f"{self.counted(self.num_components)} (confident, if what was done before matters"
                " through the option alone)."
            )
        if self.word == "law wrong at every K":
            return (
                f"{self.counted(self.num_components)} that act differently, which is a guess:"
                " hidden options are contradicted at the best number,"
                f" {sum(map(len, self.unlike))}."
            )
        if self.word == "unsure":
            span = (
                self.counted(self.num_components)
                if low == high
                else f"Between {low} and {high} {self.noun}s, {self.num_components} at best"
            )
            return f"{span} (unsure: {'; '.join(self.reasons)})."
        return super()._number()

    def _law(self) -> str:
        size = (
            f"the noise of its options differs from the model's by {self.misfit:.1f} standard"
            " deviations at most"
        )
        judged = (
            "the actions of an option, their dependence on what was done before, and how long"
            " visits last"
        )
        better = [name for name, more in self.memory.items() if more < 0]
        if better:
            name = min(better, key=lambda one: self.memory[one])
            return (
                f"Hidden options are contradicted: one policy that looks at the {name} of the step"
                f" before is better by {-self.memory[name]:.0f} in BIC than any number of them."
            )
        if self.word == "grid too short" and self.misfit > MISFIT:
            return f"At the largest number {size}, so that more options or another law are needed."
        if self.contradicted:
            return (
                f"Hidden options are contradicted: {size}, and 3 would be much. Judged are"
                f" {judged}."
            )
        if self.detectable_variance == math.inf:
            return (
                "Whether options switch as the model says could not be tested, for too few steps"
                " use an option."
            )
        return f"Hidden options are not contradicted ({size}). Judged are {judged}."
