"""A number of components of a mixture, the groups that they make, and what may be said of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from inference.base.drawing import draw
from inference.fitting.result import Fit
from inference.selection.order_selection.answer import HowMany
from inference.selection.order_selection.detectability import MISFIT
from inference.selection.order_selection.groups import Groups


@dataclass(frozen=True, eq=False, repr=False)
class HowManyGroups(HowMany):
    """The answer of :func:`inference.selection.select_components` for a mixture.

    The number counts components with the words "confident" and "unsure"; with "law wrong at every
    K" and "grid too short" it counts separated groups of rows.

    Args:
        groups: of the fit of the smallest BIC.
    """

    groups: Groups

    @property
    def fit(self) -> Fit:
        """The fit of the smallest BIC, whose components are the groups' where the number counts
        groups.
        """
        return self.fits[self.law, self.groups.num_fitted]

    @property
    def edge(self) -> str:
        low, high = self.interval
        lenient = f", where a lenient penalty takes {low}" if low < high else ""
        largest = f"{self.groups.num_fitted}, the largest number of {self.noun}s compared"
        return f"{largest}, has the smallest BIC{lenient}"

    def _number(self) -> str:
        k, fitted = self.num_components, self.groups.num_fitted
        if self.word == "confident":
            return f"{self.counted(k)} (confident, if the data come from one of the laws offered)."
        if self.word == "unsure":
            low, high = self.interval
            span = (
                self.counted(k)
                if low == high
                else f"Between {low} and {high} {self.noun}s, {k} at best"
            )
            return f"{span} (unsure: {'; '.join(self.reasons)})."
        groups = f"{k} separated group{'' if k == 1 else 's'} of {self.unit}s"
        if self.word == "grid too short":
            return f"At least {groups}: {self.edge}, so compare more."
        patches = (
            f"the {self.noun} fitted is a patch of it"
            if fitted == 1
            else f"the {fitted} {self.noun}s fitted are patches of them"
        )
        return (
            f"{groups[0].upper()}{groups[1:]}, not {self.noun}s: no law that was offered fits at"
            f" any number, so that {patches}."
        )

    def plot(self) -> Any:
        """BIC of every law over the number, entropies as components are merged, and how far
        components overlap.
        """
        return draw("plot_how_many_groups", self)


@dataclass(frozen=True, eq=False, repr=False)
class HowManyStates(HowManyGroups):
    """The answer of :func:`inference.selection.select_components` for a hidden Markov model, whose
    components are states and whose rows are steps.

    ``detectable_variance`` is NaN, for it is not known here.
    """

    noun: ClassVar[str] = "state"
    unit: ClassVar[str] = "step"

    def _law(self) -> str:
        size = (
            f"the noise of its states differs from the model's by {self.misfit:.1f} standard"
            " deviations at most"
        )
        judged = "the rows of a state, their independence within a visit, and how long visits last"
        if self.word == "grid too short" and self.misfit > MISFIT:
            return f"At the largest number {size}, so that more states or another law are needed."
        if self.contradicted:
            return (
                f"The {self.law} hidden Markov model is contradicted: {size}, and 3 would be much."
                f" Judged are {judged}."
            )
        return (
            f"The {self.law} hidden Markov model is not contradicted ({size}). Judged are {judged}."
        )
