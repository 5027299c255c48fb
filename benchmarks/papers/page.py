"""The page of the papers, drawn from the store: tables in the papers' layout, and figures.

Every published cell shows the published number, ours by the paper's protocol and by the plain call,
with runs and verdict. Cells that were not run are grey and say what running them takes, or which
file they want. Nothing here is typed in by hand.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.cells import (
    AT_OR_BETTER,
    NOT_COMPARABLE,
    NOT_RUN,
    PROTOCOLS,
    UNDECIDED,
    WITHIN,
    WORSE,
    Cell,
    Estimate,
    Setting,
    Study,
    Table,
    cells_of,
    published_error,
    verdict,
)
from papers.run import cost, estimated
from papers.store import Record, Store, by_setting, current
from papers.studies import STUDIES

MARKS = {AT_OR_BETTER: "+", WITHIN: "=", WORSE: "−", NOT_COMPARABLE: "·", UNDECIDED: "1"}
SAYS = {"paper": "by the paper's protocol", "ours": "by the plain call"}
GREY = '<span style="color: #888">{}</span>'
PICTURES = "pictures/papers"


@dataclass(frozen=True)
class Shown:
    """A cell by one protocol: our estimate, the verdict, how many of its records are old, and the
    seconds of the processor until the published number of runs.
    """

    cell: Cell
    protocol: str
    ours: Estimate | None
    verdict: str
    old: int
    seconds_left: float


def shown(table: Table, records: Mapping[str, list[Record]]) -> Iterator[Shown]:
    """Every cell of a table by every protocol that it has."""
    for cell in table.cells:
        for protocol, setting in cell.settings.items():
            own = current(records, setting)
            ours = estimated(own, cell.number_of(protocol), cell.summary)
            old = len(records.get(setting.key, ())) - len(own)
            said = verdict(cell, ours, protocol)
            yield Shown(cell, protocol, ours, said, old, left(setting, own))


def left(setting: Setting, own: dict[int, Record]) -> float:
    """Seconds of the processor until the published number of runs is reached."""
    return max(0, -(-setting.replicates // setting.runs) - len(own)) * cost(setting, own)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def number(value: float | None, digits: int) -> str:
    """A number with its digits, a dash where the paper prints none."""
    return "–" if value is None else f"{value:.{digits}f}"


def text(own: Shown) -> str:
    """Our entry of a cell."""
    setting = own.cell.settings[own.protocol]
    if own.ours is None:
        want = f"wants {setting.file}, " if setting.file else ""
        again = ", old records" if own.old else ""
        return GREY.format(f"{want}{duration(own.seconds_left)}{again}")
    spread = f" ± {own.ours.error:.{own.cell.digits}f}" if math.isfinite(own.ours.error) else ""
    value = number(own.ours.value, own.cell.digits)
    return f"{value}{spread} ({own.ours.runs}) **{MARKS[own.verdict]}**"


def grid(table: Table, entries: Sequence[Shown]) -> str:
    """The table in Markdown: rows and columns of the paper, each column by protocol."""
    by_place = {(own.cell.row, own.cell.column, own.protocol): own for own in entries}
    cells = {(cell.row, cell.column): cell for cell in table.cells}
    rows = list(dict.fromkeys(cell.row for cell in table.cells))
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    protocols = [name for name in PROTOCOLS if any(own.protocol == name for own in entries)]
    heads = [""]
    for column in columns:
        heads += [f"{column}: published", *(f"{name}" for name in protocols)]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        line = [row]
        for column in columns:
            cell = cells.get((row, column))
            line.append("" if cell is None else number(cell.published, cell.digits))
            for name in protocols:
                own = by_place.get((row, column, name))
                line.append("" if own is None else text(own))
        lines.append(line)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def remarks(entries: Sequence[Shown]) -> list[str]:
    """Why cells of a table are not comparable, and what is known of those that are worse."""
    places: dict[str, list[str]] = {}
    for own in entries:
        worse = own.cell.note if own.verdict == WORSE else ""
        doubt = own.cell.doubt_of(own.protocol)
        why = f"Not comparable, {doubt}" if doubt else worse
        if why:
            places.setdefault(why, []).append(f"{own.cell.row}, {own.cell.column}")
    return [f"- {why}: {'; '.join(dict.fromkeys(cells))}." for why, cells in places.items()]


def share(part: int, whole: int) -> str:
    """A count with its percentage."""
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "0"


def summary(
    all_shown: Sequence[tuple[Study, Table, Shown]], num_published: int, total_left: float
) -> list[str]:
    """The counts at the top: cells run, at or better, worse, and the list of the worse."""
    lines = [
        "## Where it stands",
        "",
        f"| {num_published} published cells | can be run | run | at or better |"
        " within two standard errors | worse | not comparable | not run |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for protocol in PROTOCOLS:
        own = [
            one
            for *_, one in all_shown
            if one.protocol == protocol and one.cell.published is not None
        ]
        counts = Counter(one.verdict for one in own)
        run = len(own) - counts[NOT_RUN]
        entries = [
            SAYS[protocol],
            share(len(own), num_published),
            share(run, num_published),
            *(share(counts[name], run) for name in (AT_OR_BETTER, WITHIN, WORSE)),
            str(counts[NOT_COMPARABLE]),
            str(num_published - run),
        ]
        lines.append("| " + " | ".join(entries) + " |")
    lines += [
        "",
        f"All cells to the published number of replicates: {duration(total_left)} more of one"
        " processor. In tables: published, ours ± standard error (runs), and **+** at or better,"
        " **=** within two standard errors of the difference, **−** worse, **·** not comparable,"
        " **1** a single run; grey cells say what running them takes.",
        "",
    ]
    worse = [entry for entry in all_shown if entry[2].verdict == WORSE]
    if worse:
        lines += [
            "### Worse than published",
            "",
            "| paper | table | cell | protocol | published | ours | standard errors apart |",
            "|---|---|---|---|---|---|---|",
        ]
    for study, table, own in worse:
        cell, ours = own.cell, own.ours
        if ours is None or cell.published is None:
            continue
        spread = math.hypot(ours.error, published_error(cell, ours))
        entries = [
            study.name.replace("_", " "),
            table.name,
            f"{cell.row}, {cell.column}",
            own.protocol,
            number(cell.published, cell.digits),
            f"{number(ours.value, cell.digits)} ({ours.runs})",
            f"{(ours.value - cell.published) / spread:+.1f}",
        ]
        lines.append("| " + " | ".join(entries) + " |")
    return [*lines, ""]


def page(store: Store | None = None, studies: Sequence[Study] = STUDIES) -> str:
    """What follows the page's own words: summary, tables, figures."""
    store = Store() if store is None else store
    body: list[str] = []
    all_shown: list[tuple[Study, Table, Shown]] = []
    total_left = 0.0
    for study in studies:
        records = by_setting(store.records(study.name))
        total_left += sum(
            left(setting, current(records, setting)) for setting in study.settings().values()
        )
        body += [f"## {study.title}", "", study.protocol, ""]
        for table in study.tables:
            entries = list(shown(table, records))
            all_shown += [(study, table, own) for own in entries]
            body += [f"### {table.name}: {table.caption}", "", grid(table, entries), ""]
            body += [*remarks(entries), ""]
            body += [GREY.format(table.missing), ""] if table.missing else []
            if table.axes is not None and any(own.ours is not None for own in entries):
                name = picture_name(study, table)
                body += [f"![{table.name}]({PICTURES}/{name})", "", f"*{table.axes.see}*", ""]
    num = sum(cell.published is not None for *_, cell in cells_of(studies))
    return "\n".join(["", *summary(all_shown, num, total_left), *body, ""])


def picture_name(study: Study, table: Table) -> str:
    """The file of a table's figure."""
    kept = "".join(letter if letter.isalnum() else "_" for letter in table.name)
    return f"{study.name}_{kept}.svg"


def draw(folder: Path, store: Store | None = None, studies: Sequence[Study] = STUDIES) -> None:
    """Every figure whose data are in the store, into the folder."""
    store = Store() if store is None else store
    for study in studies:
        records = by_setting(store.records(study.name))
        for table in study.tables:
            entries = [own for own in shown(table, records) if own.ours is not None]
            if table.axes is not None and entries:
                folder.mkdir(parents=True, exist_ok=True)
                _draw(table, entries, folder / picture_name(study, table))


def _draw(table: Table, entries: Sequence[Shown], path: Path) -> None:
    """Ours with two standard errors as lines by protocol, the published numbers as crosses."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    axes = table.axes
    if axes is None:
        return
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    ax: Any = figure.subplots()
    rows = list(dict.fromkeys(cell.row for cell in table.cells))
    for place, row in enumerate(rows):
        color = f"C{place}"
        given = [cell for cell in table.cells if cell.row == row and cell.published is not None]
        if given:
            ax.plot(
                [float(cell.column) for cell in given],
                [cell.published for cell in given],
                "x:",
                color=color,
                alpha=0.7,
                label=f"{row}, published",
            )
        for protocol, style in zip(PROTOCOLS, ("o-", "s--"), strict=True):
            own = [one for one in entries if (one.cell.row, one.protocol) == (row, protocol)]
            points = sorted((float(one.cell.column), one.ours) for one in own if one.ours)
            if points:
                errors = [e.error if math.isfinite(e.error) else 0.0 for _, e in points]
                ax.errorbar(
                    [x for x, _ in points],
                    [e.value for _, e in points],
                    [2 * error for error in errors],
                    fmt=style,
                    color=color,
                    markersize=4,
                    label=f"{row}, {protocol}",
                )
    if axes.log_x:
        ax.set_xscale("log")
    if axes.log_y:
        ax.set_yscale("log")
    ax.set(xlabel=axes.x, ylabel=axes.y, title=f"{table.name}: {axes.y}")
    ax.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    with mpl.rc_context({"svg.hashsalt": "papers"}):
        figure.savefig(path, metadata={"Date": None})
