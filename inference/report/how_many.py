"""Answers of order selection: number and distribution of components, with every figure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from inference.fitting.repr import rows_in_words
from inference.plots.components import plot_discrepancies
from inference.report.answers import Answer, answer_of, heading
from inference.report.page import number, picture, write_page
from inference.report.parts import Bullets, Finding, Note, Paragraph, Part, Section, Table, Verdict
from inference.report.words import entry, finding, say, verdict_of
from inference.selection.order_selection.detectability import CLEAR, MISFIT
from inference.selection.order_selection.result import (
    STEEPER,
    HowMany,
    HowManyGroups,
    HowManyOptions,
)
from ppl_models.descriptions.row_distributions import FREEDOM
from ppl_models.parts.repr import counted, listed

if TYPE_CHECKING:
    from inference.acdc.criterion import AcdcResult


@answer_of.register
def how_many_answer(answer: HowMany, *more: Finding | None) -> Answer:
    """Return the answer on a number: words, pictures, figures of every distribution.

    Args:
        answer: of :func:`inference.selection.select_components`.
        more: findings of other questions
            on the same numbers.
    """
    groups = _groups(answer) if isinstance(answer, HowManyGroups) else ()
    least = "at least " if answer.status == "grid too short" and not answer.is_at_start else ""
    number, rows = f"{least}{answer.num_components}", rows_in_words(answer.fit)
    return Answer(
        f"How many {answer.counts}s? {number}, for {rows}",
        how_many_verdict(answer, *more),
        more=[
            Section("distributions", "Distributions and numbers", _figures(answer)),
            Section("groups", "Groups and overlap", groups),
        ],
    )


def write_how_many_report(
    answer: HowMany, path: str | Path, result: AcdcResult | None = None
) -> Path:
    """Write the page: one file, pictures inside, every text escaped.

    Args:
        answer: of :func:`inference.selection.select_components`.
        path: the file, replaced if it exists.
        result: discrepancies of the chosen fit's components, by
            :func:`inference.acdc.criterion.acdc`.
    """
    page, noun = how_many_answer(answer), answer.noun
    if result is not None:
        k = answer.fit.model.num_components  # type: ignore[attr-defined]
        drawn = picture(
            lambda: plot_discrepancies(result, k, noun, answer.unit),
            f"misfit of each {noun} beside exact noise",
        )
        note = Note(say("how_many.noise", Noun=noun.capitalize()))
        noise = Section("components", f"Noise of each {noun}", [drawn, note])
        page = replace(page, more=[*page.more, noise])
    return write_page(page, path)


def how_many_verdict(answer: HowMany, *more: Finding | None) -> Verdict:
    """Return the number, how sure it is, and whether its distribution holds.

    Args:
        answer: of :func:`inference.selection.select_components`.
        more: findings of other questions
            on the same numbers.
    """
    distributions = list(dict.fromkeys(distribution for distribution, _ in answer.fits))
    sizes = sorted({size for _, size in answer.fits})
    last = answer.counted(sizes[-1])
    values = {
        "noun": answer.noun,
        "rows": rows_in_words(answer.fit),
        "range": last if len(sizes) == 1 else f"{sizes[0]} to {last}",
        "of": ", and of which distribution",
        "from": f" ({listed(distributions)})",
    }
    is_beaten = isinstance(answer, HowManyOptions) and answer.is_beaten  # one answer says it all
    if isinstance(answer, HowManyOptions):
        values |= {"of": "", "from": ""}
    findings = [
        finding("how_many.asked.all", **values),
        *([] if is_beaten else [_how_sure(answer, sizes), _on_distribution(answer)]),
        *_on_climb(answer),
        *(_on_options(answer) if isinstance(answer, HowManyOptions) else ()),
        *more,
        finding("how_many.unseen.all", words=answer.unseen),
    ]
    return verdict_of(
        findings, nothing=say("how_many.next"), answer=answer.sentences[0], about="number"
    )


def _how_sure(answer: HowMany, sizes: list[int]) -> Finding:
    low, high = answer.interval
    kind = {"confident": "confident", "unsure": "unsure", "grid too short": "short"}.get(
        answer.status
    )
    return finding(
        f"how_many.sure.{'between' if kind == 'unsure' and low < high else kind or 'misfit'}",
        penalties=answer.penalties,
        reasons="; ".join(answer.reasons),
        low=low,
        high=answer.counted(high),
        edge=answer.edge,
        first=1 if answer.is_at_start else sizes[0],
        further=2 * sizes[-1],
        unit=answer.unit,
        noun=answer.noun,
    )


def _on_distribution(answer: HowMany) -> Finding:
    if answer.contradicted:
        is_groups = isinstance(answer, HowManyGroups)
        kind = "groups" if is_groups else "contradicted"
        kind = "options" if isinstance(answer, HowManyOptions) else kind
    else:
        kind = "untested" if answer.detectable_variance == float("inf") else "fine"
        kind = "off" if answer.misfit > MISFIT else kind
    words = answer.sentences[1]
    return finding(f"how_many.holds.{kind}", words=words, unit=answer.unit, noun=answer.noun)


def _on_climb(answer: HowMany) -> list[Finding]:
    climb = answer.climb
    if climb is None:
        return []
    first = climb.start.model.num_components  # type: ignore[attr-defined]
    agrees = climb.num_components == answer.num_components and not climb.at_end
    return [
        finding(
            "how_many.noise_gain.all",
            mark="good" if agrees else "care",
            tables=counted(len(climb.tables), "table"),
            start=answer.counted(first),
            noun=answer.noun,
            gain=climb.null_gain,
            first=first,
            steeper=STEEPER,
            end=climb.num_components,
            edge=", the largest number compared" if climb.at_end else "",
        )
    ]


def _on_options(answer: HowManyOptions) -> Iterator[Finding]:
    number = sum(map(len, answer.distinct_options))
    if number > 1:
        alike = [
            listed([str(o) for o in group]) for group in answer.distinct_options if len(group) > 1
        ]
        groups = "; ".join(f"options {names}" for names in alike)
        kind = "alike" if alike else "all"
        yield finding(f"how_many.distinct.{kind}", groups=groups, number=number)
    if answer.held_out is not None:
        mark = "good" if answer.held_out == number else ""
        held = answer.counted(answer.held_out)
        yield finding("how_many.held_out.all", mark=mark, number=held)
    if answer.memory:
        costs = [
            f"the last {name} {abs(more):,.0f} {'less' if more < 0 else 'more'}"
            for name, more in answer.memory.items()
        ]
        best = int(answer.table["bic"].idxmin()[1])
        least = min(answer.memory.values())
        kind = "better" if answer.is_beaten else "worse" if least > CLEAR else "close"
        values = {"number": answer.counted(best), "costs": listed(costs)}
        yield finding(f"how_many.memory.{kind}", **values)


def _figures(answer: HowMany) -> Iterator[Part]:
    frame, words = answer.table.reset_index(), entry("columns.how_many")
    shown = [name for name in words if name in frame]
    digits = {"gain_in_edges": 2, "num_parameters": 0}
    rows = [
        [
            str(row["distribution"]),
            str(row["num_components"]),
            *(
                "" if math.isnan(row[name]) else number(float(row[name]), digits.get(name, 1))
                for name in shown
            ),
            "chosen" if row["chosen"] else "",
        ]
        for _, row in frame.iterrows()
    ]
    titles = [heading(name) if name != "num_parameters" else "parameters" for name in shown]
    yield picture(answer.plot, "penalised likelihood of every distribution and number")
    yield Table(("distribution", "K", *titles, ""), rows)
    yield Bullets([f"{title}: {words[name]}." for title, name in zip(titles, shown, strict=True)])
    if "Student t" in set(frame["distribution"]):
        yield Note(say("how_many.student", most=f"{FREEDOM[1]:.0f}"))


def _groups(answer: HowManyGroups) -> list[Part]:
    groups, noun = answer.groups, answer.noun
    if groups.num_fitted == 1:
        return []
    lines = [
        f"group {i}: {noun}{'' if len(group) == 1 else 's'} {', '.join(str(k) for k in group)}"
        for i, group in enumerate(groups.separated)
    ]
    words = say(
        "how_many.overlap",
        noun=noun,
        Noun=noun.capitalize(),
        unit=answer.unit,
        fitted=answer.counted(groups.num_fitted),
        separated=counted(groups.num_separated, "group"),
        clear=groups.num_clear,
    )
    is_plain = all(len(group) == 1 for group in groups.separated)
    return [Paragraph(words), *([] if is_plain else [Bullets(lines)])]
