"""Why this K? The page of a rule that chooses law and number together: the verdict, what it rests
on, and the figures of every law.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from inference.fitting.repr import rows_in_words
from inference.plots.components import plot_discrepancies
from inference.report.page import number, picture, write_page
from inference.report.parts import Bullets, Finding, Note, Paragraph, Part, Section, Table, Verdict
from inference.report.verdicts import listed, verdict_of
from inference.selection.order_selection.bootstrap_climb import STEEPER
from inference.selection.order_selection.detectability import MISFIT
from inference.selection.order_selection.result import HowManyGroups, HowManyOptions
from ppl_models.parts.repr import counted

if TYPE_CHECKING:
    from inference.acdc.criterion import AcdcResult
    from inference.selection.order_selection.result import HowMany


COLUMNS = {
    "log_likelihood": (
        "log-likelihood",
        "grows with every component, so it chooses nothing by itself",
    ),
    "strict": (
        "strict",
        "deviance with a penalty that hardly ever counts a component too many; smaller is better",
    ),
    "bic": (
        "BIC",
        (
            "the strict penalty: deviance and, for each parameter, the log "
            "of the number of rows or steps that it is read from; smaller "
            "is better"
        ),
    ),
    "lenient": (
        "lenient",
        (
            "deviance with a weaker penalty, that hardly ever misses a "
            "component that can be seen; smaller is better"
        ),
    ),
    "held_out": (
        "held out",
        (
            "mean log-likelihood of the actions of a sequence left out of "
            "the fit, given its states; larger is better"
        ),
    ),
    "gain_in_edges": (
        "gain, noise edges",
        (
            "what the last component gains, in units of the most that noise "
            "alone would give; real ones gain more than 4/3"
        ),
    ),
    "icl": (
        "ICL",
        (
            "as BIC, with a price for components that overlap: it counts "
            "groups that are apart; smaller is better"
        ),
    ),
    "num_parameters": ("parameters", "free numbers of the fit"),
}
MARKS = {
    "confident": "good",
    "unsure": "care",
    "misfit": "bad",
    "grid too short": "bad",
}


def how_many_sections(answer: HowMany, *more: Finding | None) -> list[Section]:
    """The answer in words, its pictures, and the figures of every law and number.

    Args:
        answer: of :func:`inference.selection.select_components`; more: findings of other questions
            on the same numbers.
    """
    return [
        Section("verdict", "Verdict", [how_many_verdict(answer, *more)]),
        Section("laws", "Laws and numbers", _laws(answer)),
        Section(
            "groups",
            "Groups and overlap",
            _groups(answer) if isinstance(answer, HowManyGroups) else (),
        ),
    ]


def write_how_many_report(
    answer: HowMany, path: str | Path, result: AcdcResult | None = None
) -> Path:
    """Write the page: one file, pictures inside, nothing fetched from elsewhere, every text
    escaped.

    Args:
        answer: of :func:`inference.selection.select_components`.
        path: the file, replaced if it exists.
        result: discrepancies of the chosen fit's components, by
            :func:`inference.acdc.criterion.acdc`.
    """
    sections = how_many_sections(answer)
    if result is not None:
        k = answer.fit.model.num_components  # type: ignore[attr-defined]
        drawn = picture(
            lambda: plot_discrepancies(result, k, answer.noun, answer.unit),
            f"misfit of each {answer.noun} beside exact noise",
        )
        sections.append(
            Section(
                "components",
                f"Noise of each {answer.noun}",
                [
                    drawn,
                    Note(
                        f"A {answer.noun} far above its band has noise that its law does not know."
                    ),
                ],
            )
        )
    return write_page(
        Path(path),
        f"How many {answer.noun}s? {answer.num_components}, for {rows_in_words(answer.fit)}",
        sections,
    )


def how_many_verdict(answer: HowMany, *more: Finding | None) -> Verdict:
    """What was asked, the number, how sure it is, whether its law holds, and what could not have
    been seen.

    Args:
        answer: of :func:`inference.selection.select_components`; more: findings of other questions
            on the same numbers.
    """
    laws, sizes = (
        list(dict.fromkeys(law for law, _ in answer.fits)),
        sorted({size for _, size in answer.fits}),
    )
    of_law = (
        ("", "")
        if isinstance(answer, HowManyOptions)
        else (", and of which law", f" of {listed(laws)} law")
    )
    asked = (
        f"How many {answer.noun}s make the {rows_in_words(answer.fit)}{of_law[0]}? Compared were"
        f" {_range(answer, sizes)}{of_law[1]}."
    )
    findings = [
        Finding("", "What was asked?", asked),
        _how_sure(answer, sizes),
        _on_law(answer),
        *_on_climb(answer),
        *(_on_options(answer) if isinstance(answer, HowManyOptions) else ()),
        *more,
        Finding("", "What could not have been seen?", answer.unseen),
    ]
    step = (
        "Read the page of the chosen fit before you build on it: answer.fit.report(path, data), or"
        " ppl-models fit with the number chosen."
    )
    return verdict_of(findings, nothing=step, answer=answer.sentences[0], about="number")


def _range(answer: HowMany, sizes: list[int]) -> str:
    return (
        answer.counted(sizes[0])
        if len(sizes) == 1
        else f"{sizes[0]} to {answer.counted(sizes[-1])}"
    )


def _how_sure(answer: HowMany, sizes: list[int]) -> Finding:
    low, high = answer.interval
    if answer.word == "confident":
        words, step = (
            f"Confident: {answer.penalties} choose the same number, and no check raised a doubt.",
            "",
        )
    elif answer.word == "unsure":
        words = f"Unsure: {'; '.join(answer.reasons)}."
        step = (
            f"Fit {low} and {answer.counted(high)}, and report what holds in both."
            if low < high
            else f"Report the number with its doubt: {'; '.join(answer.reasons)}."
        )
    elif answer.word == "grid too short":
        words, step = (
            f"Not answered yet: {answer.edge}.",
            f"Compare more: from {sizes[0]} to {2 * sizes[-1]}.",
        )
    else:
        words, step = (
            (
                f"A guess: every law offered is contradicted by the {answer.unit}s, so its"
                f" {answer.noun}s are partly patches of that law."
            ),
            "",
        )
    return Finding(MARKS[answer.word], "How sure is the number?", words, step)


def _on_law(answer: HowMany) -> Finding:
    question, words = "Does the law hold?", answer.sentences[1]
    if answer.contradicted and isinstance(answer, HowManyOptions):
        step = (
            "Do not interpret single options; put what the past says (the last action, the steps"
            " since a change) into the state, and compare again."
        )
        return Finding("bad", question, words, step)
    if answer.contradicted:
        of_groups = isinstance(answer, HowManyGroups)
        step = (
            f"Speak of groups of {answer.unit}s and not of {answer.noun}s, and "
            if of_groups
            else f"Do not interpret single {answer.noun}s, and "
        )
        return Finding(
            "bad",
            question,
            words,
            f"{step}offer other laws, if you know of one that is nearer to how the data came about"
            " (laws=...).",
        )
    is_off = answer.misfit > MISFIT
    return Finding(
        "care" if is_off else "" if answer.detectable_variance == float("inf") else "good",
        question,
        words,
    )


def _on_climb(answer: HowMany) -> list[Finding]:
    climb = answer.climb
    if climb is None:
        return []
    start = climb.start.model.num_components  # type: ignore[attr-defined]
    told = (
        f"In {counted(len(climb.tables), 'table')} drawn from {answer.counted(start)} and fitted"
        f" again, a {answer.noun} more gains {climb.null_gain:,.0f} in deviance on average."
        f" Climbing from {start} while the data gain {STEEPER:g} times that stops at"
        f" {climb.num_components}"
    )
    words = f"{told}{', the largest number compared' if climb.at_end else ''}."
    agrees = climb.num_components == answer.num_components and not climb.at_end
    return [Finding("good" if agrees else "care", "What would noise alone gain?", words)]


def _on_options(answer: HowManyOptions) -> Iterator[Finding]:
    number = sum(map(len, answer.distinct_options))
    if number > 1:
        groups = "; ".join(
            f"options {listed([str(o) for o in group])}"
            for group in answer.distinct_options
            if len(group) > 1
        )
        words = (
            f"The data do not tell the policies apart of: {groups}."
            if groups
            else f"All {number} options act differently."
        )
        yield Finding("care" if groups else "good", "Do the options act differently?", words)
    if answer.held_out is not None:
        words = (
            "Actions of sequences that the fits had not seen are foretold best by"
            f" {answer.counted(answer.held_out)}."
        )
        yield Finding(
            "good" if answer.held_out == number else "",
            "Which number foretells sequences left out?",
            words,
        )
    if answer.memory:
        told = listed(
            [
                f"the last {name} {abs(more):,.0f} {'less' if more < 0 else 'more'}"
                for name, more in answer.memory.items()
            ]
        )
        words = (
            "In BIC, a single policy that looks at what was before costs beside"
            f" {answer.counted(number)}: with {told}."
        )
        yield Finding(
            "bad" if min(answer.memory.values()) < 0 else "good",
            "Would memory do without options?",
            words,
        )


def _laws(answer: HowMany) -> Iterator[Part]:
    frame = answer.table.reset_index()
    shown = [name for name in COLUMNS if name in frame]
    rows = [
        [
            str(row["law"]),
            str(row["num_components"]),
            *(
                ""
                if math.isnan(row[name])
                else number(
                    float(row[name]),
                    2 if name == "gain_in_edges" else 0 if name == "num_parameters" else 1,
                )
                for name in shown
            ),
            "chosen" if row["chosen"] else "",
        ]
        for _, row in frame.iterrows()
    ]
    yield picture(answer.plot, "penalised likelihood of every law and number")
    yield Table(("law", "K", *(COLUMNS[name][0] for name in shown), ""), rows)
    yield Bullets(
        [f"{heading}: {meaning}." for heading, meaning in (COLUMNS[name] for name in shown)]
    )


def _groups(answer: HowManyGroups) -> list[Part]:
    groups = answer.groups
    lines = [
        f"group {i}: {answer.noun}{'' if len(group) == 1 else 's'}"
        f" {', '.join(str(k) for k in group)}"
        for i, group in enumerate(groups.separated)
    ]
    words = (
        f"{answer.noun.capitalize()}s overlap where {answer.unit}s of one may be taken for"
        f" another's. If two are one group as soon as that happens to 5 % of the {answer.unit}s of"
        f" one, the {answer.counted(groups.num_fitted)} make"
        f" {counted(groups.num_separated, 'group')}; if as soon as it happens to 10 %,"
        f" {groups.num_clear}."
    )
    return [Paragraph(words), Bullets(lines)]
