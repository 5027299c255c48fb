"""Sections of a fit's page, which a kind of description may say better.

A kind registers with ``functools.singledispatch`` on its structure, in a file of
:mod:`inference.report.kinds`; those are found there by themselves.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from inference.base.streaming.row_blocks import RowBlocks
from inference.base.structure import Structure
from inference.estimates import Estimate, EstimateTable, estimates_of
from inference.fitting.columns import Names, dims_of, labels_of, variables_of, with_names
from inference.fitting.result import Fit
from inference.identifiability.fisher import InformationReport
from inference.identifiability.of_fit import identifiability_of, information_of_distribution
from inference.identifiability.scores import coordinates_of
from inference.plots.estimates import plot_estimates
from inference.plots.fit import plot_check
from inference.predictive import PredictiveCheck, predictive_checks
from inference.programs.data import checked
from inference.programs.posterior_predictive import stems
from inference.programs.program import Program
from inference.report.page import picture
from inference.report.parts import Details, Note, Paragraph, Part, Section, Table
from inference.report.predictive_words import column_names, departures_in_words
from inference.report.words import say
from ppl_models.data.tables import checks_data, first_tensor
from ppl_models.parts.repr import counted, few_digits, listed, shows_briefly

MOST_ALONG = 8  # entries of a direction that are named
MOST_ENTRIES, MOST_OPENED = 40, 400  # of one site, that are listed; where a click opens them
SYMMETRIC = "precisions"  # site of symmetric matrices, whose pairs of entries are listed once
NUMBERED = {name: f"{name} {{}}" for name in ("state", "option", "action", "attribute")}  # dims
NEEDS_DATA = Note("Needs the data.")
NEEDS_ALL = "they need all rows of the fit, and this page has some of them"


T = TypeVar("T")


class HasText(Protocol):
    """A report of another check that can say itself in words."""

    def text(self) -> str:
        """Return the report in words."""
        ...


@runtime_checkable
class HasRecord(Protocol):
    """A report that can also say itself in plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        ...


@shows_briefly
@dataclass(frozen=True, eq=False)
class Subject:
    """Subject of a page: the fit, its data and names.

    Args:
        fit: the fit.
        data: the rows it was fitted to, a sample of them, or None.
        image_shape: (height, width) where the items are pixels, row by row.
        names: names of the entries by dim.
        identifiability: the verdict, where one was given.
        found: answers that several sections share, by the function that gives them.
        blocks: all rows of the fit, where they come in blocks and ``data`` is a sample of them.
        tell: functions that are told what is being worked out, in words.
        choice: record of the choice of the number that the fit has, where one was made.
        reference: signatures to match those of the fit with, (columns, signatures).
    """

    fit: Fit
    data: Any
    image_shape: tuple[int, int] | None
    names: Names | None
    identifiability: str | HasText | None = None
    found: dict[Callable[[Subject], Any], Any] = field(default_factory=dict)
    blocks: RowBlocks | None = None
    choice: Any = None
    reference: Any = None
    tell: list[Callable[[str], None]] = field(default_factory=list)

    def number_step(self, step: str) -> tuple[str, ...]:
        """A step that asks for the right number; none where the number was chosen."""
        return () if self.choice is not None else (step,)

    def once(self, ask: Callable[[Subject], T]) -> T:
        """The answer of a function of this page, worked out when it is first asked for."""
        if ask not in self.found:
            for say_it in self.tell:
                say_it((ask.__doc__ or "").partition(".")[0].partition(";")[0])
            self.found[ask] = ask(self)
        answer: T = self.found[ask]
        return answer

    @functools.cached_property
    def program(self) -> Program | None:
        """The program on one row of a table, or on all of the data; None without data."""
        if self.data is None:
            return None
        tensors, _ = checked(self.fit.model, self.data)
        is_table = checks_data(self.fit.model) and not isinstance(tensors, dict)
        return Program(self.fit.model, tensors[:1] if is_table else tensors)

    @functools.cached_property
    def num_sampled(self) -> int | None:
        """Number of rows of ``data``, where these are fewer than the fit's; else None."""
        if self.data is None or not checks_data(self.fit.model):
            return None
        found = len(first_tensor(checked(self.fit.model, self.data)[0]))
        return found if found < self.fit.num_rows else None

    @functools.cached_property
    def entry_names(self) -> Names:
        """Names by dim, with those of states, options, attributes and latents that have none.

        Such as ``transitions[state 0, state 1]``, and ``loadings_2[latents_1[2], latents_2[0]]``,
        as the tables of edges have them.
        """
        found = dict(self.names or {})
        dims = getattr(self.fit.model, "site_dims", {})
        sites = {dims[site]: site for site in self.fit.latents or () if site in dims}
        for site, value in self.fit.params.items():
            for dim, size in zip(dims_of(self.fit, site, value.shape), value.shape, strict=True):
                form = re.sub(r"^latent_\d+$", f"{sites.get((dim,), dim)}[{{}}]", dim)
                form = NUMBERED.get(dim.removeprefix("next_"), form)
                labels = map(str, labels_of(self.fit, dim, size, found))
                if form != dim and list(labels) == list(map(str, range(size))):
                    found[dim] = [form.format(k) for k in range(size)]
        return found

    @functools.cached_property
    def estimates(self) -> EstimateTable:
        """The table of estimates, worked out once, from all rows of the fit or none."""
        is_part = self.num_sampled is not None and self.blocks is None
        data = None if is_part else self.data if self.blocks is None else self.blocks
        found = estimates_of(self.fit, data, names=self.entry_names, named=True)
        note = NEEDS_ALL if is_part and found.note else found.note
        rows = dict[Any, Estimate]()
        for own in found.rows:
            pair = (*own.entry[:-2], *sorted(own.entry[-2:]))
            rows.setdefault(pair if own.site == SYMMETRIC else own, own)
        note = with_names(self.fit, note, self.entry_names)
        return replace(found, note=note, rows=tuple(rows.values()))


@dataclass(frozen=True)
class Local:
    """Local information on the free numbers near the estimate.

    Args:
        num_written: free parameters, as the fit counts them.
        num_held: of these as many lie on the end of their range; they are held there, and not
            judged.
        num_judged: directions of the others.
        rank: number of these directions in which the distribution of the data changes; None where
            that was not worked out.
        is_flat: whether the likelihood of the rows does not fall in every direction.
        entries: what takes part in a direction that the distribution does not change with.
        note: why there are no standard errors, in words; "" where there are.
        faint: what takes part in a direction that the rows hardly determine.
    """

    num_written: int
    num_held: int
    num_judged: int
    rank: int | None
    is_flat: bool
    entries: tuple[str, ...]
    note: str
    faint: tuple[str, ...] = ()

    @property
    def num_open(self) -> int:
        """Directions that no rows tell, as far as they were counted."""
        return 0 if self.rank is None else self.num_judged - self.rank

    @property
    def is_whole(self) -> bool:
        """Full-rank information: the rows determine all free numbers, none hardly or on a bound."""
        return (
            not (self.num_open or self.num_held or self.is_flat or self.note or self.faint)
            and self.rank is not None
        )

    def text(self) -> str:
        """Local information in sentences."""
        size, held = counted(self.num_judged, "free parameter"), ""
        if self.num_held:
            size += f" inside {'its' if self.num_judged == 1 else 'their'} range"
            its, is_ = ("its", "is") if self.num_held == 1 else ("theirs", "are")
            of = f"{self.num_held:,} of {self.num_written:,}"
            held = f" The other {of} {is_} held on the end of {its}."
        if self.num_open:
            along = f" ({', '.join(self.entries[:MOST_ALONG])})" if self.entries else ""
            return say("fit.local_rank", rank=self.rank, size=size, along=along, held=held)
        if self.is_flat and self.faint:
            return f"{say('fit.rows_open_too', note=self.note)}{held}"
        if self.is_flat:
            changes = "" if self.rank is None else say("fit.changes_with_all", size=size)
            of = "them" if changes else size
            return f"{changes}These rows leave some of {of} open: {self.note}.{held}"
        if self.note:
            changes = say("fit.changes_with_all", size=size)
            return f"{changes}{say('fit.not_shown', note=self.note)}{held}"
        hardly = f", {listed(self.faint)} hardly" if self.faint else ""
        every = "the" if self.num_judged == 1 else "all"
        if self.num_judged > self.num_written:
            size = "free parameters"  # more than the fit counts, as a note says
        return f"Near this estimate the rows determine {every} {size}{hardly}.{held}"


def locally(subject: Subject) -> Local | None:
    """Count the free numbers that the data determine near the estimate; None if unknown."""
    fit, found, report = subject.fit, subject.estimates, subject.once(determined)
    if fit.draws is not None or subject.data is None or fit.structure.local_sites:
        return None
    information = getattr(report, "information", report)
    if not isinstance(information, InformationReport):
        if not found.source and not found.is_flat:
            return None
        record = report.to_dict() if isinstance(report, HasRecord) else dict[str, Any]()
        is_sure = record.get("verdict") in {"strict", "generic"} or record.get("identified") is True
        information = (
            None if found.source and is_sure else information_of_distribution(fit, subject.data)
        )
    coordinates = coordinates_of(fit, subject.data)
    num_judged = len(coordinates.without(coordinates.at_bound()).names)
    rank, entries = (num_judged if found.source else None), tuple[str, ...]()
    faint = tuple[str, ...]()
    if information is not None:
        rank, null = information.rank, information.null_directions
        entries = null[0].names if null else ()
        faint = information.weakest.names if information.is_faint and information.weakest else ()
    held = max(0, fit.num_parameters - num_judged)
    return Local(
        fit.num_parameters, held, num_judged, rank, found.is_flat, entries, found.note, faint
    )


def determined(subject: Subject) -> str | HasText | None:
    """Return the identifiability of the estimates; None where nothing can be said."""
    return (
        subject.identifiability
        if subject.identifiability is not None
        else identifiability_of(subject.fit, subject.data)
    )


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as text."""
    return " × ".join(map(str, shape)) or "1"


def parameters(subject: Subject, meanings: Mapping[str, str]) -> Table:
    """The parameters of a fit: name, size, and what each means where that is known."""
    rows = [
        [each.name, shape_text([*map(len, each.labels)]), meanings.get(each.name, "")]
        for variables in variables_of(subject.fit, subject.names).values()
        for each in variables
    ]
    return Table(("parameter", "size", "meaning"), rows)


def sizes(subject: Subject) -> Table:
    """The estimates of a fit and their sizes, those of the rows too."""
    fit = subject.fit
    rows = [[name, shape_text(value.shape)] for name, value in fit.params.items()]
    rows += [
        [f"{name}, of the rows", shape_text(value.shape)]
        for name, value in (fit.local or {}).items()
    ]
    return Table(("estimate", "size"), rows)


def settings(record: Any) -> str:
    """A record of settings with its numbers cut to four digits."""
    return re.sub(r"\d+\.\d{5,}", lambda digits: f"{float(digits[0]):.4g}", repr(record))


# -------------------------------------------------------------------- what kinds may say better


@functools.singledispatch
def fitted(structure: Structure, subject: Subject) -> Iterable[Part]:
    """Yield the model in equations and tables; here site by site."""
    fit, program = subject.fit, subject.program
    if program is None:
        rows = [[name, shape_text(value.shape)] for name, value in fit.params.items()]
        return [Table(("parameter", "size"), rows)]
    rows = []
    for stem, members in stems(program.sites).items():
        site = program.site(members[0])
        role = {
            "parameter": "parameter",
            "local": "continuous latent of the rows",
            "observed": "observed",
        }.get(site.kind, "")
        role = "factor" if site.distribution == "Unit" else role
        if site.kind == "latent":
            bits = site.shape[-1] if site.distribution == "BinaryVector" else 0
            values = f"latent, {site.num_values:,} values" if site.num_values else "latent"
            role = f"latent, {counted(bits, 'bit')}" if bits else values
        is_integrated = site.name in program.integrated
        if is_integrated:
            role = f"continuous latent of the rows, integrated by {site.num_values} nodes"
        many = f"{len(members)} of them, such as {members[0]}" if len(members) > 1 else stem
        own = fit.params[site.name].shape if site.name in fit.params else site.shape
        is_row = bool(program.row_plates & set(site.plates))
        size = shape_text(own)
        if is_row:
            num = math.prod(site.shape) // site.shape[0] if site.kind == "observed" else 1
            size = f"{num} a row" if num > 1 else "one a row"
        shape = "of normal numbers" if is_integrated else site.distribution
        rows.append([many, role, shape, size])
    return [Table(("site", "what it is", "distribution", "size"), rows)]


@functools.singledispatch
def identified(structure: Structure, subject: Subject) -> str | HasText | None:
    """The verdict on identifiability; None where nothing can be said."""
    return subject.once(determined)


@functools.singledispatch
def warned(structure: Structure, subject: Subject) -> list[str]:
    """Warnings of the fit, with names in place of numbers."""
    return [with_names(subject.fit, text, subject.entry_names) for text in subject.fit.warnings]


def text_of(found: str | HasText) -> str:
    """A report in words."""
    return found if isinstance(found, str) else found.text()


@functools.singledispatch
def explained(structure: Structure, subject: Subject) -> Iterable[Part]:
    """Glossary of the conditions named in the section on identifiability."""
    return ()


@functools.singledispatch
def middle(structure: Structure, subject: Subject) -> Iterable[Section]:
    """The sections between the warnings and the latents: what the estimates say."""
    return [estimates(subject)]


@functools.singledispatch
def predictive(structure: Structure, subject: Subject) -> Iterable[Part]:
    """Yield simulated data beside the data, and departures in words."""
    if subject.data is None:
        yield NEEDS_DATA
        return
    checks, alt = subject.once(checks_of), "data simulated from the fit beside the data"
    for name, check in checks.items():
        title = name if len(checks) > 1 else ""
        yield picture(
            functools.partial(plot_check, check, name=title), f"{title}: {alt}" if title else alt
        )
        words = departures_in_words(check, column_names(subject.fit, check), name)
        if check.departures() or not title:
            yield Paragraph(f"Of {title}: {words}" if title else words)


# -------------------------------------------------------------------- what every kind can use


def checks_of(subject: Subject) -> dict[str, PredictiveCheck]:
    """Data drawn from the fit beside the data, by what is observed; needs the data."""
    return predictive_checks(subject.fit, subject.data)


def has_bounds(found: EstimateTable) -> bool:
    """Test if some estimates lie on a bound, where they are held."""
    return bool(found.source) and any(
        np.isnan(row.low) and row.value != 0 and row.error != 0 for row in found.rows
    )


def estimates(subject: Subject) -> Section:
    """Return the section of estimates: tables, and a forest picture."""
    return Section("estimates", "Estimates", _estimates(subject))


def _estimates(subject: Subject) -> Iterator[Part]:
    found = subject.estimates
    level = f"{100 * found.level:g} %"
    yield Paragraph(
        f"{level} intervals, by {found.source}."
        if found.source
        else f"Without intervals: {found.note}."
    )
    listed_rows = tuple(row for row in found.rows if not row.is_held)
    if has_bounds(replace(found, rows=listed_rows)):
        yield Paragraph(say("fit.bounds_note"))
    if any(row.low > 0 and row.value < 2 * row.error for row in listed_rows):
        yield Paragraph(say("fit.near_note"))
    if found.source and any(np.isnan(row.error) and row.low < row.high for row in listed_rows):
        yield Paragraph(say("fit.skewed_note"))
    local = subject.once(locally)
    if found.source and local is not None and local.num_open:
        yield Paragraph(say("fit.open_entries_note"))
    if found.source:
        yield picture(
            lambda: plot_estimates(found), "estimates and their intervals, a panel a site"
        )
    head = (
        ("estimate", "value", "error", f"{level} from", "to")
        if found.source
        else ("estimate", "value")
    )
    rows, opened = list[list[str]](), list[Part]()
    for site in found.sites:
        every = found.of(site)
        is_held = [own.is_held and bool(found.source or not own.value) for own in every]
        held = [round(own.value) for own, is_on in zip(every, is_held, strict=True) if is_on]
        entries = [own for own, is_on in zip(every, is_held, strict=True) if not is_on]
        shown = [(e.value, e.error, e.low, e.high) for e in entries[:MOST_OPENED]]
        numbers = np.array(shown).reshape(-1, 4)
        columns = [few_digits(column, numbers[:, 1]) for column in numbers.T[: len(head) - 1]]
        lines = [
            [entry.name, *texts]
            for entry, *texts in zip(entries[:MOST_OPENED], *columns, strict=True)
        ]
        rows += lines[:MOST_ENTRIES]
        if len(entries) > MOST_ENTRIES:
            opened.append(Details(f"The others of {site}", [Table(head, lines[MOST_ENTRIES:])]))
            values = np.array([entry.value for entry in entries[MOST_ENTRIES:]])
            ends = few_digits(np.array([values.min(), values.max()]))
            rest = f"... and {len(values):,} more of {site}, from {ends[0]} to {ends[1]}"
            rows.append([rest, *[""] * (len(head) - 1)])
        for end in (0, 1):
            if count := held.count(end):
                rest = say("fit.held", many=count, site=site, value=end)
                rows.append([rest, *[""] * (len(head) - 1)])
    yield Table(head, rows)
    yield from opened


def cut(table: Table, most: int, which: str = "first") -> Iterator[Part]:
    """A table of at most so many lines, and how many there are."""
    yield replace(table, rows=table.rows[:most])
    if len(table.rows) > most:
        yield Note(f"The {which} {most} of {len(table.rows):,} are shown.")


# -------------------------------------------------------------------- what may be refused


@dataclass(frozen=True)
class Refused:
    """Why something was not worked out."""

    reason: str


def tried(ask: Callable[[], T]) -> T | Refused:
    """Return an answer, or why it was refused."""
    try:
        return ask()
    except (ValueError, RuntimeError) as reason:  # RuntimeError: an operation of the program
        words = re.sub(r"^(\w+: )+", "", str(reason))  # without second derivatives
        words = re.sub(r"^[a-z]+(_[a-z]+)+ (?=needs )", "it ", words)
        return Refused(words.rstrip("."))


def without_rows(subject: Subject) -> Refused | None:
    """Why what needs all rows of the fit is not worked out; None where they are there."""
    if subject.data is None:
        return Refused("that needs the data")
    is_part = subject.num_sampled is not None
    return Refused(NEEDS_ALL.replace("they need", "it needs")) if is_part else None


def of_rows(subject: Subject, ask: Callable[[Fit, Any], T]) -> T | Refused:
    """Return the answer to a question about the fit and all of its rows."""
    without = without_rows(subject)
    found = tried(lambda: ask(subject.fit, subject.data)) if without is None else without
    if isinstance(found, Refused):
        return Refused(with_names(subject.fit, found.reason, subject.entry_names))
    return found


def told(
    subject: Subject,
    ask: Callable[[Subject], T | Refused],
    tell: Callable[[Subject, T], Iterable[Part]],
    words: str = "Not computed: {reason}.",
) -> Iterable[Part]:
    """Parts that tell the answer to a question, or why there is none."""
    found = subject.once(ask)
    if isinstance(found, Refused):
        return [Note(words.format(reason=found.reason))]
    return tell(subject, found)
