"""A number of components with what may be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from inference.base.drawing import ask, draw
from inference.fitting.result import Fit
from inference.selection.order_selection.bootstrap_climb import Climb
from inference.selection.order_selection.detectability import MISFIT
from ppl_models.parts.repr import counted, told, told_html

if TYPE_CHECKING:
    import pandas as pd


Word = Literal["confident", "unsure", "law wrong at every K", "grid too short"]


@dataclass(frozen=True, eq=False, repr=False)
class HowMany:
    """The answer of :func:`select_components`.

    Args:
        num_components: the number; with the word "grid too short", at least this many.
        law: name of the chosen law.
        word: "confident", "unsure", "law wrong at every K" (components and patches are counted
            together), "grid too short".
        interval: the numbers that the strict and the lenient penalty choose.
        reasons: a sentence for each condition of confidence that fails.
        misfit: largest misfit of a component's noise at the lenient choice, in standard deviations
            of exact noise; from 3 on the law is contradicted.
        held_out: number of components that left-out cells choose, by the first law; None where it
            was not needed.
        rows: one dict for each law and number: log-likelihood, penalties, gain in noise edges.
        fits: by law and number.
        unseen: what could not have been seen, in a sentence.
        smallest_seen: share of the rows -> least share of their counts that a component must hold
            to be counted.
        detectable_variance: of the noise of the component that the fewest rows use, from which the
            law would be called contradicted.
        climb: where a climb by tables drawn from the strict choice stopped; None where none was
            asked for, or the strict choice is the largest number.
    """

    num_components: int
    law: str
    word: Word
    interval: tuple[int, int]
    reasons: tuple[str, ...]
    misfit: float
    held_out: int | None
    rows: tuple[Mapping[str, Any], ...]
    fits: Mapping[tuple[str, int], Fit]
    unseen: str
    smallest_seen: Mapping[float, float]
    detectable_variance: float
    climb: Climb | None
    penalties: ClassVar[str] = "a strict and a lenient penalty"
    noun: ClassVar[str] = "component"
    unit: ClassVar[str] = "row"

    def counted(self, number: int) -> str:
        """So many components, in words."""
        return counted(number, self.noun)

    @property
    def fit(self) -> Fit:
        """The chosen fit."""
        return self.fits[self.law, self.num_components]

    @property
    def edge(self) -> str:
        """Which penalty takes the largest number compared, with the word "grid too short"."""
        low, high = self.interval
        return f"the lenient penalty takes {high}, the largest number compared" + (
            f", where the strict one takes {low}" if low < high else ""
        )

    @property
    def contradicted(self) -> bool:
        """Whether the data contradict the law."""
        return self.word == "law wrong at every K"

    @property
    def sentences(self) -> tuple[str, str, str]:
        """The number and how sure it is; the law, and whether the data contradict it; what could
        not have been seen.
        """
        return self._number(), self._law(), self.unseen

    @property
    def verdict(self) -> str:
        """The three sentences."""
        return " ".join(self.sentences)

    def _number(self) -> str:
        low, high = self.interval
        if self.word == "confident":
            return (
                f"{self.counted(self.num_components)} (confident, of {self.noun}s above the size"
                " stated)."
            )
        if self.word == "grid too short":
            return f"At least {self.counted(self.num_components)}: {self.edge}, so compare more."
        if self.word == "law wrong at every K":
            return (
                f"{self.counted(self.num_components)} by cells left out of the fits, which is a"
                " guess: no law that was offered fits at any number."
            )
        why = "; ".join(self.reasons)
        if low == high:
            return f"{self.counted(self.num_components)} (unsure: {why})."
        return (
            f"Between {low} and {high} {self.noun}s, {self.num_components} at best (unsure: {why})."
        )

    def _law(self) -> str:
        size = (
            f"the noise of its {self.noun}s differs from the law's by {self.misfit:.1f} standard"
            " deviations at most"
        )
        if self.word == "grid too short" and self.misfit > MISFIT:
            return (
                f"At the largest number {size}, so that more {self.noun}s or another law are"
                " needed."
            )
        if self.contradicted:
            return f"The {self.law} law is contradicted: {size}, and 3 would be much."
        seen = (
            f"noise of a variance of {self.detectable_variance:.2f} instead of 1 would have been"
            " seen"
        )
        if self.detectable_variance == float("inf"):
            return (
                f"Whether the {self.law} law holds could not be tested, for too few {self.unit}s"
                f" use a {self.noun}."
            )
        return f"The {self.law} law is not contradicted ({size}; {seen})."

    @property
    def table(self) -> pd.DataFrame:
        """One row a law and number."""
        import pandas as pd

        return pd.DataFrame(list(self.rows)).set_index(["law", "num_components"])

    def plot(self) -> Any:
        """The strict penalised likelihood of every law, and the gain of each further component in
        noise edges.
        """
        return draw("plot_how_many", self)

    def report(self, path: str | Path) -> Path:
        """One page in HTML, the verdict first; see :func:`inference.report.write_how_many_report`.

        The file is replaced if it exists.
        """
        page: Path = ask("report", "write_how_many_report", self, path)
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
            f"How many: {self.num_components} ({self.word}), {self.law}; by {self.penalties}"
            f" {low if low == high else f'{low} to {high}'}{climbed}"
        )
