"""Hidden options: what each does, where it ends, and which is on over time."""

from __future__ import annotations

from collections.abc import Iterator

from inference.plots.options import plot_option_occupancy, plot_option_switches, plot_policy_tables
from inference.report.page import picture
from inference.report.parts import Equations, Paragraph, Part, Section
from inference.report.sections import NEEDS_DATA, Subject, estimates, fitted, middle, sizes
from inference.structures.options.continuous import ContinuousOptionsStructure
from inference.structures.options.structure import OptionsStructure

__all__: list[str] = []

EQUATIONS = (
    "a_{t} ~ low-level policy of option o_{t} in state s_{t}",
    "o_{t+1} ~ high-level policy of option o_{t} in the new state s_{t+1}",
)


@fitted.register(OptionsStructure)
@fitted.register(ContinuousOptionsStructure)
def _(structure: OptionsStructure | ContinuousOptionsStructure, subject: Subject) -> list[Part]:
    return [Equations(EQUATIONS), sizes(subject, "parameter")]


@middle.register
def _(structure: OptionsStructure, subject: Subject) -> list[Section]:
    pictures = [
        picture(lambda: plot_policy_tables(subject.fit), "what every option does"),
        picture(lambda: plot_option_switches(subject.fit), "where options are kept and where they end"),
    ]
    return [Section("policies", "Policies", pictures), Section("time", "Options over time", _times(subject)), estimates(subject)]


@middle.register
def _(structure: ContinuousOptionsStructure, subject: Subject) -> list[Section]:
    names = subject.fit.item_names[:-1]
    drawn = picture(lambda: plot_policy_tables(subject.fit, names), "what every option does")
    return [Section("policies", "Policies", [drawn]), Section("time", "Options over time", _times(subject)), estimates(subject)]


def _times(subject: Subject) -> Iterator[Part]:
    fit, data = subject.fit, subject.data
    if data is None:
        yield NEEDS_DATA
        return
    yield picture(lambda: plot_option_occupancy(fit, data, sequence=0), "options over the first sequence")
    if fit.num_rows > 1:
        yield picture(lambda: plot_option_occupancy(fit, data), "share of every option over time")
        yield Paragraph(f"First the first sequence, then the average over all {fit.num_rows:,}.")
