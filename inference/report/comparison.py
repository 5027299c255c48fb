"""Answer of a comparison of fits: who wins, how sure that is, and the numbers explained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inference.comparison import LEAST_GAP, Comparison
from inference.report.answers import Answer, answer_of
from inference.report.page import cell, picture, write_page
from inference.report.parts import (
    Bullets,
    Finding,
    Heading,
    Note,
    Part,
    Section,
    Table,
    Verdict,
)
from inference.report.words import entry, finding, say, verdict_of
from ppl_models.parts.repr import counted, listed


@answer_of.register
def _(comparison: Comparison) -> Answer:
    notes: list[Part] = [Note(f"{text[0].upper()}{text[1:]}.") for text in comparison.warnings]
    drawn = picture(comparison.plot, say("comparison.picture"))
    more = [
        Section("picture", "Side by side", [drawn]),
        Section("table", "Numbers", _tables(comparison)),
        Section("care", "What is not comparable", notes),
    ]
    title = f"{len(comparison.names)} fits compared"
    return Answer(title, comparison_verdict(comparison), more=more)


def write_comparison_report(comparison: Comparison, path: str | Path) -> Path:
    """Write the page: one file, the picture inside, every text escaped.

    Args:
        comparison: of :func:`inference.comparison.compare`.
        path: the file, replaced if it exists.
    """
    return write_page(answer_of(comparison), path)


def comparison_verdict(comparison: Comparison) -> Verdict:
    """Return who wins, how sure that is, and whether the winner can be believed by itself."""
    ways = dict.fromkeys(record["how"] for _, record in comparison.ranked)
    without = say("comparison.without", ways=" and ".join(ways)) if ways else ""
    fits = counted(len(comparison.names), "fit")
    unranked = _names(comparison, lambda record: record["how"] == "none")
    left_out = say("comparison.left_out", names=listed(unranked)) if unranked else ""
    return verdict_of(
        [
            finding("comparison.asked.all", fits=fits, without=without),
            _how_sure(comparison),
            _on_the_fits(comparison),
            _on_misfit(comparison),
            finding("comparison.unseen.all", left_out=left_out),
        ],
        nothing=say("comparison.next"),
        answer=comparison.winner,
        about="comparison",
    )


def in_words(comparison: Comparison) -> list[str]:
    """Return the first of the ranking, how sure that is, and what a rank does not say."""
    misfit = _on_misfit(comparison)
    return [comparison.winner, *([] if misfit is None else [misfit.answer])]


def _names(comparison: Comparison, holds: Any) -> list[str]:
    pairs = zip(comparison.names, comparison.records, strict=True)
    return [name for name, record in pairs if holds(record)]


def _how_sure(comparison: Comparison) -> Finding:
    """Return whether chance, shaky rows, or two ways of predicting could have made the rank."""
    ranked, near = comparison.ranked, listed([name for name, _ in comparison.close])
    if len(ranked) < 2:
        return finding("comparison.sure.none")
    shaky = listed([name for name, record in ranked if record["bad_rows"] > 0])
    ways = len({record["how"] for _, record in ranked}) > 1
    doubts = [key for key, holds in (("near", near), ("shaky", shaky), ("ways", ways)) if holds]
    keys = doubts if near else ["none", *doubts]
    words = [
        say(f"comparison.doubt_{key}", near=near, shaky=shaky, least=LEAST_GAP) for key in keys
    ]
    steps = " ".join(say(f"comparison.step_{key}") for key in doubts)
    kind = "doubts" if doubts else "clear"
    return finding(f"comparison.sure.{kind}", words=" ".join(words), steps=steps)


def _on_the_fits(comparison: Comparison) -> Finding:
    restless = _names(comparison, lambda record: not record["converged"])
    words = [f"Not converged: {listed(restless)}." if restless else "All fits converged."]
    found = {
        kind: _names(comparison, lambda record, kind=kind: _determined(record) == kind)
        for kind in ("open", "hardly", "undecided")
    }
    words += [say(f"comparison.{kind}", names=listed(own)) for kind, own in found.items() if own]
    step = say("comparison.again", restless=listed(restless)) if restless else ""
    mark = "" if found["undecided"] else "good"
    mark = "care" if restless or found["open"] or found["hardly"] else mark
    mark = "bad" if comparison.names[0] in restless else mark
    return finding("comparison.fits.all", mark=mark, words=" ".join(words), step=step)


def _determined(record: dict[str, Any]) -> str:
    """Identifiability of a fit's estimates, as the name of the sentence on it."""
    kinds = {"not identified": "open", "nearly open": "hardly", "local": "yes"}
    kinds |= dict.fromkeys(("strict", "generic"), "yes")
    return kinds.get(record["identifiability"], "undecided")


def _on_misfit(comparison: Comparison) -> Finding | None:
    off = _names(comparison, lambda record: record["misfitting"] > 0)
    if not off:
        return None
    step = say("comparison.misfit_step") if comparison.names[0] in off else ""
    words = say("comparison.misfit", names=listed(off))
    return finding("comparison.noise.all", words=words, step=step)


def _tables(comparison: Comparison) -> Iterator[Part]:
    """Yield the numbers by what they are about, each column explained below its table."""
    for title, columns in entry("comparison.tables").items():
        shown = {
            key: words
            for key, words in columns.items()
            if any(_is_known(record[key]) for record in comparison.records)
        }
        rows = [
            [name, *(cell(record[key]) for key in shown)]
            for name, record in zip(comparison.names, comparison.records, strict=True)
        ]
        yield Heading(title)
        yield Table(["fit", *(heading for heading, _ in shown.values())], rows)
        yield Bullets([f"{heading}: {meaning}." for heading, meaning in shown.values()])


def _is_known(value: Any) -> bool:
    return not (isinstance(value, float) and math.isnan(value))
