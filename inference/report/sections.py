"""Sections of a fit's page that a kind of description may say better: what every program gets, and where a kind registers its own.

A kind registers with ``functools.singledispatch`` on its structure, in a file of :mod:`inference.report.kinds`; those are
found there by themselves.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from inference.base.structure import Structure
from inference.estimates import EstimateTable, estimates_of
from inference.fitting.draws import latents_of_draws
from inference.fitting.names import Names, dims_of, labels_of
from inference.fitting.result import Fit
from inference.fitting.showing import rows_in_words
from inference.identifiability.of_fit import identifiability_of
from inference.plots.estimates import plot_estimates
from inference.plots.fit import plot_check
from inference.predictive import predictive_checks
from inference.programs.data import checked, checks_data
from inference.programs.program import Program
from inference.programs.replicates import present, stems
from inference.report.page import number, picture
from inference.report.parts import Note, Paragraph, Part, Section, Table, Verdict
from ppl_models.parts.showing import shows_briefly

__all__ = [
    "NEEDS_DATA",
    "HasText",
    "Subject",
    "cut_table",
    "determined",
    "estimates",
    "fitted",
    "identified",
    "latents",
    "middle",
    "parameters",
    "predictive",
    "settings",
    "shape_text",
    "sizes",
    "verdict",
]

MOST_ENTRIES = 40  # of one site, that are listed one by one
MOST_LINES = 60  # of a table of latents
NEEDS_DATA = Note("Needs the data.")


T = TypeVar("T")


class HasText(Protocol):
    """A report of another check that can say itself in words."""

    def text(self) -> str: ...


@shows_briefly
@dataclass(frozen=True, eq=False)
class Subject:
    """What a page is about.

    Args:
        fit: the fit; data: the rows it was fitted to, or None.
        image_shape: (height, width) where the items are pixels, row by row.
        names: names of the entries by dim.
        identifiability: the verdict, where one was given.
        found: answers that several sections share, by the function that gives them.
    """

    fit: Fit
    data: Any
    image_shape: tuple[int, int] | None
    names: Names | None
    identifiability: str | HasText | None = None
    found: dict[Callable[[Subject], Any], Any] = field(default_factory=dict)

    def once(self, ask: Callable[[Subject], T]) -> T:
        """The answer of a function of this page, worked out when it is first asked for."""
        if ask not in self.found:
            self.found[ask] = ask(self)
        answer: T = self.found[ask]
        return answer

    @functools.cached_property
    def program(self) -> Program | None:
        """The program on one row of a table, or on all of the data; None without data."""
        if self.data is None:
            return None
        tensors, _ = checked(self.fit.model, self.data)
        return Program(self.fit.model, tensors[:1] if checks_data(self.fit.model) and not isinstance(tensors, dict) else tensors)

    @functools.cached_property
    def estimates(self) -> EstimateTable:
        """The table of estimates, worked out once."""
        return estimates_of(self.fit, self.data, names=self.names)


def determined(subject: Subject) -> str | HasText | None:
    """Whether the data determine the estimates: as the caller says, else worked out here; None where nothing can be said."""
    return subject.identifiability if subject.identifiability is not None else identifiability_of(subject.fit, subject.data)


def shape_text(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "1"


def parameters(subject: Subject, meanings: Mapping[str, str]) -> Table:
    """The parameters of a fit: name, size, and what each means where that is known."""
    rows = [[name, shape_text(value.shape), meanings.get(name, "")] for name, value in subject.fit.params.items()]
    return Table(("parameter", "size", "meaning"), rows)


def sizes(subject: Subject, head: str = "estimate") -> Table:
    """The estimates of a fit and their sizes, those of the rows too."""
    fit = subject.fit
    rows = [[name, shape_text(value.shape)] for name, value in fit.params.items()]
    rows += [[f"{name}, of the rows", shape_text(value.shape)] for name, value in (fit.local or {}).items()]
    return Table((head, "size"), rows)


def settings(record: Any) -> str:
    """A record of settings with its numbers cut to four digits."""
    return re.sub(r"\d+\.\d{5,}", lambda digits: f"{float(digits[0]):.4g}", repr(record))


# -------------------------------------------------------------------- what kinds may say better


@functools.singledispatch
def fitted(structure: Structure, subject: Subject) -> Iterable[Part]:
    """The model in equations and tables, after the line that says what was fitted to how much; here site by site."""
    fit, program = subject.fit, subject.program
    if program is None:
        return [Table(("parameter", "size"), [[name, shape_text(value.shape)] for name, value in fit.params.items()])]
    rows = []
    for stem, members in stems(program.sites).items():
        site = program.site(members[0])
        role = {"parameter": "parameter", "local": "continuous latent of the rows", "observed": "observed"}.get(site.kind, "")
        role = "factor" if site.law == "Unit" else role
        if site.kind == "latent":
            bits = site.shape[-1] if site.law == "BinaryVector" else 0
            role = f"latent, {bits} bits" if bits else f"latent, {site.num_values:,} values" if site.num_values else "latent"
        many = f"{len(members)} of them, such as {members[0]}" if len(members) > 1 else stem
        own = fit.params[site.name].shape if site.name in fit.params else site.shape
        size = "one a row" if site.plates else shape_text(own)
        rows.append([many, role, site.law, size])
    return [Table(("site", "what it is", "law", "size"), rows)]


@functools.singledispatch
def verdict(structure: Structure, subject: Subject) -> Verdict | None:
    """What to make of the fit, before anything else; None leaves it to the sections."""
    return None


@functools.singledispatch
def identified(structure: Structure, subject: Subject) -> str | HasText | None:
    """The verdict on identifiability; None where nothing can be said."""
    return subject.once(determined)


@functools.singledispatch
def middle(structure: Structure, subject: Subject) -> Iterable[Section]:
    """The sections between the warnings and the latents: what the estimates say."""
    return [estimates(subject)]


@functools.singledispatch
def predictive(structure: Structure, subject: Subject) -> Iterable[Part]:
    """Data simulated from the fit beside the data: everything the program observes."""
    if subject.data is None:
        return [NEEDS_DATA]
    alt = "data simulated from the fit beside the data"
    checks = predictive_checks(subject.fit, subject.data)
    single = len(checks) == 1
    return [
        picture(functools.partial(plot_check, check, name="" if single else name), alt if single else f"{name}: {alt}") for name, check in checks.items()
    ]


# -------------------------------------------------------------------- what every kind can use


def estimates(subject: Subject) -> Section:
    """Every estimate by its name, with intervals where there are any, as tables and as a forest picture."""
    return Section("estimates", "Estimates", _estimates(subject))


def _estimates(subject: Subject) -> Iterator[Part]:
    found = subject.estimates
    level = f"{100 * found.level:g} %"
    yield Paragraph(f"With {level} intervals from {found.source}." if found.source else f"Without intervals: {found.note}.")
    if found.source and any(np.isnan(row.low) for row in found.rows):
        yield Paragraph("Entries without an interval lie on a bound and are held there; the intervals of the others are given these.")
    head = ("estimate", "value", "error", f"{level} from", "to") if found.source else ("estimate", "value")
    rows = []
    for site in found.sites:
        every = found.of(site)
        entries = tuple(entry for entry in every if not (entry.value == 0 and found.source and np.isnan(entry.low)))
        for entry in entries[:MOST_ENTRIES]:
            numbers = (entry.value, entry.error, entry.low, entry.high) if found.source else (entry.value,)
            rows.append([entry.name, *(f"{value + 0.0:.4g}" if np.isfinite(value) else "" for value in numbers)])
        if len(entries) > MOST_ENTRIES:
            values = np.array([entry.value for entry in entries])
            size = shape_text(subject.fit.params[site].shape)
            rest = f"... and {len(entries) - MOST_ENTRIES:,} more of {site} ({size}), from {values.min():.4g} to {values.max():.4g}"
            rows.append([rest, *[""] * (len(head) - 1)])
        if len(entries) < len(every):
            rows.append([f"... {len(every) - len(entries):,} others of {site} are zero, and are held there", *[""] * (len(head) - 1)])
    yield Table(head, rows)
    yield picture(lambda: plot_estimates(found), "estimates and their intervals, a panel a site")


def latents(subject: Subject) -> Iterator[Part]:
    """How the latents are used: shares, and how sure the data make them; nothing for a model without any."""
    fit, data = subject.fit, subject.data
    if data is None:
        yield NEEDS_DATA
        return
    continuous = {*fit.structure.local_sites, *fit.structure.integrated_sites}
    continuous |= set(subject.program.names("local")) if subject.program is not None else set()
    drawn = fit.local_draws or {}
    if drawn:  # averaged over the draws of parameters and continuous latents together
        means = latents_of_draws(fit, {name: value.flatten(0, 1) for name, value in ((fit.draws or {}) | drawn).items()}, data)
    else:
        means = fit.posterior_latents(data)
    posterior = {site: value.detach().cpu().numpy() for site, value in means.items() if site not in continuous}
    bits, values = [], []
    own = [site for site in subject.program.sites if site.name in posterior] if subject.program is not None else []
    groups = stems(own) | {name: [name] for name in posterior if name not in {site.name for site in own}}
    for stem, members in groups.items():
        on = np.concatenate([_counted(subject, name, posterior[name]) for name in members])
        site = f"{stem} ({len(members)} of them)" if len(members) > 1 else stem
        dim = dims_of(fit, members[0], posterior[members[0]].shape[1:])[-1] if posterior[members[0]].ndim > 1 else members[0]
        labels = [str(label) for label in labels_of(fit, dim, on.shape[1], subject.names)]
        if on.shape[1] > 1 and len(on) and np.allclose(on.sum(-1), 1.0, atol=1e-4):
            values += _values_of(site, labels, on)
        elif len(on):
            bits += _bits_of(site, labels, on)
    if bits or values:
        yield Paragraph(f"Over the {rows_in_words(fit)} given.")
    head = ("site", "latent", "share of rows on", "mean posterior entropy (bits)", "share of rows unsure (0.1 to 0.9)")
    for heading, rows in ((head, bits), (("site", "value", "share", "most probable in", "mean probability where it is"), values)):
        if rows:
            yield from cut_table(heading, rows, MOST_LINES)
    for site, value in drawn.items():
        flat = value.flatten(0, 1).double()
        low, high, spread = float(flat.mean(0).min()), float(flat.mean(0).max()), float(flat.std(0).mean())
        yield Paragraph(
            f"{site} is a continuous latent of the rows, drawn with the parameters: its posterior means run from {number(low, 3)} to "
            f"{number(high, 3)}, and its posterior standard deviation is {number(spread, 3)} on average."
        )


def cut_table(head: Sequence[str], rows: Sequence[Sequence[str]], most: int, which: str = "first") -> Iterator[Part]:
    """A table of at most so many lines, and how many there are."""
    yield Table(head, rows[:most])
    if len(rows) > most:
        yield Note(f"The {which} {most} of {len(rows):,} are shown.")


def _counted(subject: Subject, name: str, posterior: np.ndarray) -> np.ndarray:
    """Posteriors one a line, (n, K), without what a mask hides or lies after the end of a sequence."""
    lines = posterior.reshape(-1, posterior.shape[-1])
    if subject.program is None or name not in {site.name for site in subject.program.sites}:
        return lines[lines.sum(-1) > 0] if posterior.ndim > 2 else lines
    if subject.fit.structure.about is not None:  # described latents are hidden by no mask
        return lines
    shown = present(subject.program, subject.fit.params, name)
    seen = shown.reshape(-1).numpy() if shown.numel() == len(lines) else shown.expand(posterior.shape[:-1]).numpy().ravel()
    return lines[seen] if len(seen) == len(lines) else lines


def _bits_of(site: str, labels: Sequence[str], on: np.ndarray) -> list[list[str]]:
    entropy = -(on * np.log2(np.clip(on, 1e-300, 1.0)) + (1.0 - on) * np.log2(np.clip(1.0 - on, 1e-300, 1.0)))
    unsure = (on > 0.1) & (on < 0.9)
    columns = [part.mean(0) for part in (on, entropy, unsure)]
    return [[site, label, *(number(float(column[k]), 3) for column in columns)] for k, label in enumerate(labels)]


def _values_of(site: str, labels: Sequence[str], on: np.ndarray) -> list[list[str]]:
    """Lines of a latent with several values, of which each row has one."""
    winner = on.argmax(-1)
    rows = []
    for k, label in enumerate(labels):
        own = on[winner == k, k]
        sure = number(float(own.mean()), 3) if len(own) else "in no row"
        rows.append([site, label, number(float(on[:, k].mean()), 3), number(len(own) / len(on), 3), sure])
    return rows
