"""Hidden options: what each does, where it ends, and which is on over time."""

from __future__ import annotations

from inference.plots.options import plot_option_occupancy, plot_option_switches, plot_policy_tables
from inference.report.page import equations, note, paragraph, picture, table
from inference.report.sections import Section, Subject, estimates, fitted, middle, shape_text
from inference.structures.options.continuous import ContinuousOptionsStructure
from inference.structures.options.structure import OptionsStructure

__all__: list[str] = []

EQUATIONS = (
    "a<sub>t</sub> ~ low-level policy of option o<sub>t</sub> in state s<sub>t</sub>",
    "o<sub>t+1</sub> ~ high-level policy of option o<sub>t</sub> in the new state s<sub>t+1</sub>",
)


@fitted.register(OptionsStructure)
@fitted.register(ContinuousOptionsStructure)
def _(structure: OptionsStructure | ContinuousOptionsStructure, subject: Subject) -> str:
    text = equations(*EQUATIONS)
    rows = [[name, shape_text(value.shape)] for name, value in subject.fit.params.items()]
    return text + table(("parameter", "size"), rows)


@middle.register
def _(structure: OptionsStructure, subject: Subject) -> list[Section]:
    text = picture(lambda: plot_policy_tables(subject.fit), "what every option does")
    text += picture(lambda: plot_option_switches(subject.fit), "where options are kept and where they end")
    return [("policies", "Policies", text), ("time", "Options over time", _times(subject)), estimates(subject)]


@middle.register
def _(structure: ContinuousOptionsStructure, subject: Subject) -> list[Section]:
    names = subject.fit.item_names[:-1]
    text = picture(lambda: plot_policy_tables(subject.fit, names), "what every option does")
    return [("policies", "Policies", text), ("time", "Options over time", _times(subject)), estimates(subject)]


def _times(subject: Subject) -> str:
    fit, data = subject.fit, subject.data
    if data is None:
        return note("Needs the data.")
    text = picture(lambda: plot_option_occupancy(fit, data, sequence=0), "options over the first sequence")
    if fit.num_rows > 1:
        text += picture(lambda: plot_option_occupancy(fit, data), "share of every option over time")
        text += paragraph(f"First the first sequence, then the average over all {fit.num_rows:,}.")
    return text
