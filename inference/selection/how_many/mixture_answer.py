"""A number of components of a mixture, the groups that they make, and what may be said of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inference.base.drawing import draw
from inference.fitting.result import Fit
from inference.selection.how_many.answer import HowMany, components_text
from inference.selection.how_many.groups import Groups

__all__ = ["HowManyGroups"]


@dataclass(frozen=True, eq=False, repr=False)
class HowManyGroups(HowMany):
    """The answer of :func:`inference.selection.select_components` for a mixture.

    The number counts components with the words "confident" and "unsure"; with "law wrong at every K" and "grid too short" it counts separated groups of rows.

    Args:
        groups: of the fit of the smallest BIC.
    """

    groups: Groups

    @property
    def fit(self) -> Fit:
        """The fit of the smallest BIC, whose components are the groups' where the number counts groups."""
        return self.fits[self.law, self.groups.num_fitted]

    def _number(self) -> str:
        k, fitted = self.num_components, self.groups.num_fitted
        if self.word == "confident":
            return f"{components_text(k)} (confident, if the data come from one of the laws offered)."
        if self.word == "unsure":
            low, high = self.interval
            span = components_text(k) if low == high else f"Between {low} and {high} components, {k} at best"
            return f"{span} (unsure: {'; '.join(self.reasons)})."
        groups = f"{k} separated group{'' if k == 1 else 's'} of rows"
        if self.word == "grid too short":
            return f"At least {groups}: {fitted}, the largest number of components compared, was still chosen, so compare more."
        return f"{groups[0].upper()}{groups[1:]}, not components: no law that was offered fits at any number, and {fitted} components are patches of them."

    def plot(self) -> Any:
        """BIC of every law over the number, entropies as components are merged, and how far components overlap."""
        return draw("plot_how_many_groups", self)
