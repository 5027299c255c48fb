"""Answer on a number of components by ACDC and its rivals, in words and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from inference.acdc.choice import taken_beyond
from inference.acdc.criterion import MISFIT
from inference.fitting.repr import rows_in_words
from inference.plots.components import (
    plot_choice,
    plot_discrepancies,
    plot_return,
    plot_scree,
    plot_signatures,
)
from inference.report.answers import Answer
from inference.report.how_many import how_many_answer
from inference.report.page import number, picture, write_page
from inference.report.parts import Finding, Note, Paragraph, Part, Section, Table, Verdict
from inference.report.words import entry, finding, say, verdict_of
from inference.selection.reproducibility import RETURNS
from ppl_models.parts.repr import counted

if TYPE_CHECKING:
    import pandas as pd

    from inference.acdc.criterion import AcdcResult, Choice
    from inference.fitting.result import Fit
    from inference.selection.factorization_criteria import ParallelAnalysis
    from inference.selection.order_selection.result import HowMany
    from inference.selection.reproducibility import Reproducibility


NOT_LOOKED_AT = Note("Not looked at.")


def why(
    result: AcdcResult,
    chosen: int,
    halves: Reproducibility | None = None,
    answer: HowMany | None = None,
) -> list[str]:
    """Return the choice in sentences.

    Args:
        result: of :func:`inference.acdc.criterion.acdc`.
        chosen: number of components.
        halves: which components return from half of the rows.
        answer: that chose, if another rule did.
    """
    choice = result.select()
    words = [f"{chosen} components." if answer is None else _beside(choice, chosen)]
    if answer is None and chosen != choice.num_components:
        words.append(say("components.other", k=choice.num_components))
    others = sorted(set(result.sensitivity().values()))
    key = "sensitive" if len(others) > 1 else "insensitive"
    values = {"share": f"{100 * result.min_share:g}%", "others": ", ".join(map(str, others))}
    words += [_rule(result, choice), say(f"components.{key}", **values)]
    words += [_fewer(result, chosen), _more(result, chosen), _noise(result, chosen, answer)]
    words += [] if halves is None else _returning(halves, chosen)
    return [sentence for sentence in words if sentence]


def _beside(choice: Choice, chosen: int) -> str:
    """Return how clear steps of the noise go with another rule's number."""
    k = choice.num_components
    if k == chosen and choice.finished:
        return say("components.same")
    leads = say(f"components.leads{'' if k != chosen else '_nowhere'}", k=k, chosen=chosen)
    return say("components.beside", leads=leads)


def _rule(result: AcdcResult, choice: Choice) -> str:
    k, share = choice.num_components, result.shares.get(choice.num_components, 0.0)
    left = number(result.left[k], 3)
    if share <= result.min_share:
        key = "no_step_finished" if choice.finished else "no_step_open"
        no_step = say("components.no_step", share=f"{100 * result.min_share:g}%")
        if choice.rival is not None:
            return say("components.no_step_weak", no_step=no_step, k=k, rival=choice.rival)
        return say(f"components.{key}", no_step=no_step, k=k, left=left)
    words, largest = say("components.last_step", k=k, share=share, left=left), max(result.raw)
    is_open = not choice.finished and k != largest
    return words + (say("components.last_step_open", largest=largest) if is_open else "")


def _fewer(result: AcdcResult, chosen: int) -> str:
    below = [k for k in result.raw if k < chosen]
    if chosen == 1:
        return ""
    if not below:
        return say("components.smallest")
    k = max(below)
    worst = int(np.argmax(result.component_discrepancy[k]))
    value, sd = float(result.component_discrepancy[k][worst]), result.null_sd[k][worst]
    times = say("components.times", times=number(value / sd, 1)) if sd > 0 else ""
    return say("components.fewer", k=k, worst=worst, value=number(value, 3), times=times)


def _more(result: AcdcResult, chosen: int) -> str:
    above = [k for k in result.raw if k > chosen]
    if not above:
        return say("components.largest")
    k = min(above)
    share = result.shares[k]
    key = "little" if share <= result.min_share else "smaller"
    rest = say(f"components.more_{'none' if share == 0 else key}", share=share)
    return say("components.more", k=k, left=number(result.left[k], 3), rest=rest)


def _misfitting(result: AcdcResult, chosen: int) -> np.ndarray:
    """Return components whose noise is farther off than exact noise is, (K,)."""
    excess = result.raw[chosen] - result.null_mean[chosen]
    off: np.ndarray = excess > MISFIT * result.null_sd[chosen]
    return off


def _named(which: np.ndarray) -> str:
    """Return components by their numbers; which: (K,) of bool."""
    numbers = ", ".join(str(i) for i in np.flatnonzero(which))
    return f"component{'' if which.sum() == 1 else 's'} {numbers}"


def _noise(result: AcdcResult, chosen: int, answer: HowMany | None = None) -> str:
    misfitting = _misfitting(result, chosen)
    values = {"k": chosen, "misfit": MISFIT}
    if not misfitting.any():
        return say("components.exact", **values)
    off = say("components.off", names=_named(misfitting), **values)
    best, share = taken_beyond(result.left, chosen)
    if share <= result.min_share:
        return f"{off}. {_what_that_shows(result, answer)}"
    wide = sorted(
        (s for s in result.segments[:-1] if s.num_components > chosen), key=lambda s: -s.width
    )[:3]
    cutoffs = ", ".join(
        f"K = {s.num_components} from {number(s.start, 2)} to {number(s.end, 2)}"
        for s in sorted(wide, key=lambda s: s.start)
    )
    return say("components.patches", off=off, best=best, share=share, cutoffs=cutoffs)


def _what_that_shows(result: AcdcResult, answer: HowMany | None) -> str:
    if result.refitted:
        return say("components.refitted")
    misfit = "" if answer is None else number(answer.misfit, 1)
    key = "held_alone" if answer is None else "held_answer"
    return say("components.held") + say(f"components.{key}", misfit=misfit)


def _disagreement(choices: pd.DataFrame) -> str:
    """Return which numbers the criteria choose, where they are not one."""
    by_number: dict[int, list[str]] = {}
    for name, row in choices.iterrows():
        by_number.setdefault(int(row["chosen"]), []).append(str(name))
    shares = "; ".join(f"K = {k}: {', '.join(names)}" for k, names in sorted(by_number.items()))
    return say(f"components.{'agree' if len(by_number) < 2 else 'disagree'}", shares=shares)


def _returning(halves: Reproducibility, chosen: int) -> list[str]:
    if chosen not in halves.errors:
        return [say("components.no_halves", k=chosen)]
    error = halves.by_component[chosen]
    lost, largest = error >= RETURNS, number(error.max(), 3)
    words = [say("components.halves", k=chosen, error=largest, worst=int(error.argmax()))]
    if lost.any():
        do, it = ("does", "it") if lost.sum() == 1 else ("do", "them")
        words.append(say("components.lost", Names=_named(lost).capitalize(), do=do, it=it))
    return words


def selection_verdict(
    result: AcdcResult, chosen: int, choices: pd.DataFrame, *more: Finding | None
) -> Verdict:
    """Return the number, how sure it is, what the noise says, and what was not visible.

    Args:
        result: of :func:`inference.acdc.criterion.acdc`.
        chosen: number of components.
        choices: of :func:`inference.selection.compare_criteria`.
        more: findings of other
            questions on the same number.
    """
    mark = "care" if result.refitted and _misfitting(result, chosen).any() else ""
    findings = [
        finding("components.asked.all", sizes=", ".join(map(str, sorted(result.raw)))),
        _sureness(result, chosen, choices),
        finding("components.noise.all", mark=mark, words=_noise(result, chosen)),
        *more,
        finding("components.unseen.all"),
    ]
    answer = f"{counted(chosen, 'component')}."
    return verdict_of(findings, nothing=say("components.next"), answer=answer, about="number")


def _sureness(result: AcdcResult, chosen: int, choices: pd.DataFrame) -> Finding:
    """Return whether the number stands alone, or rests on the rule, its cutoff or the grid."""
    choice, largest = result.select(), max(result.raw)
    rivals = ", ".join(map(str, sorted({int(k) for k in choices["chosen"]} - {chosen})))
    doubts = [
        ("largest", chosen == largest),
        ("acdc", chosen != choice.num_components),
        (
            "step" if choice.rival is None else "weak",
            chosen == choice.num_components and not choice.finished,
        ),
        ("share", len(set(result.sensitivity().values())) > 1),
        ("rivals", bool(rivals)),
    ]
    words = " ".join(
        say(
            f"components.doubt_{key}",
            k=choice.num_components,
            rivals=rivals,
            rival=choice.rival,
        )
        for key, holds in doubts
        if holds
    )
    steps = [f"Compare more, up to {2 * chosen}."] if chosen == largest else []
    steps += [say("components.step_rivals")] if rivals else []
    return finding(
        "components.number.all",
        mark="care" if words else "good",
        words=words or say("components.sure"),
        steps=" ".join(steps),
    )


def _return_finding(halves: Reproducibility, chosen: int) -> Finding:
    kind = "fine" if chosen in halves.errors else "unknown"
    lost = kind == "fine" and bool((halves.by_component[chosen] >= RETURNS).any())
    words = " ".join(_returning(halves, chosen))
    return finding(f"components.return.{'lost' if lost else kind}", words=words)


def write_selection_report(
    fits: Mapping[int, Fit],
    result: AcdcResult,
    table: pd.DataFrame,
    path: str | Path,
    *,
    chosen: int | None = None,
    channels: Sequence[str] | None = None,
    analysis: ParallelAnalysis | None = None,
    halves: Reproducibility | None = None,
    answer: HowMany | None = None,
) -> Path:
    """Write the page: one file, pictures inside, every text escaped.

    Args:
        fits: number of components -> fit.
        result: of :func:`inference.acdc.criterion.acdc`.
        table: of :func:`inference.selection.factorization_criteria.compare_criteria`.
        path: the file, replaced if it exists.
        chosen: the number to explain, that of ``result`` if None.
        channels: names of the columns.
        analysis: eigenvalues beside those of shuffled columns.
        halves: components that return from half of the rows.
        answer: of :func:`inference.selection.select_components`, if that chose; its sentences come
            first.

    Raises:
        ValueError: for a number that was not compared.
    """
    k = result.chosen if chosen is None else chosen
    if k not in result.raw or k not in fits:
        raise ValueError(
            f"write_selection_report: chosen must be one of {sorted(set(result.raw) & set(fits))},"
            f" got {k!r}"
        )
    best = fits[k]
    names = list(channels) if channels is not None else list(best.item_names)
    returning = None if halves is None else _return_finding(halves, k)
    if answer is None:
        page = Answer("", selection_verdict(result, k, table, returning))
    else:
        page = how_many_answer(answer, returning)
    misfit = picture(lambda: plot_discrepancies(result, k), "misfit of each component")
    steps = picture(lambda: plot_choice(result), "clear steps, and loss against the cutoff")
    question = say(f"components.question{'' if answer is None else '_beside'}", k=k)
    sections = [
        *page.more,
        Section("why", question, map(Paragraph, why(result, k, halves, answer))),
        Section("steps", "What every number leaves", [steps, Note(say("components.steps_note"))]),
        Section("components", "Misfit of each component", [misfit, *_misfit(result, k, names)]),
        Section("halves", "Components that return", _halves(halves)),
        Section("signatures", "Signatures", _signatures(best, names)),
        Section("scree", "Eigenvalues", [_scree(analysis)]),
        Section("rivals", "What other criteria say", _rivals(table)),
        Section("settings", "Settings", [_settings(best, result)]),
    ]
    title = f"How many components? {k}, for {rows_in_words(best)}"
    return write_page(replace(page, title=title, more=sections), path)


def _misfit(result: AcdcResult, k: int, names: Sequence[str]) -> Iterator[Part]:
    rows = []
    for i in range(k):
        excess, sd = float(result.raw[k][i] - result.null_mean[k][i]), result.null_sd[k][i]
        deviations = number(excess / sd, 1) if sd > 0 else "-"
        rows.append([str(i), f"{result.num_used[k][i]:g}", number(excess, 3), deviations])
    exact = ("divergence less that of exact noise", "in its standard deviations")
    yield Table(("component", "rows that use it", *exact), rows)
    columns = result.by_column[k]
    if columns is not None and columns.shape[1] > 1:
        worst = int(np.argmax(result.component_discrepancy[k]))
        top = ", ".join(str(names[j]) for j in np.argsort(-columns[worst])[:5])
        yield Note(f"Component {worst} is farthest off; most of all in {top}.")


def _halves(halves: Reproducibility | None) -> list[Part]:
    if halves is None:
        return [NOT_LOOKED_AT]
    drawn = picture(lambda: plot_return(halves), "error of components fitted to halves")
    return [drawn, Note(say("components.halves_note"))]


def _signatures(fit: Fit, names: Sequence[str]) -> Iterator[Part]:
    values = fit.params["signatures"]
    labels = [f"component {i}" for i in range(len(values))]
    yield picture(lambda: plot_signatures(values, names, labels), "signatures over the columns")
    if fit.local is not None:
        activities = fit.local["activities"].abs()
        share = (activities.sum(0) / activities.sum()).tolist()
        largest = (activities.max(0).values / activities.sum(0)).tolist()
        rows = [
            [label, f"{100 * s:.1f} %", f"{100 * m:.0f} %"]
            for label, s, m in zip(labels, share, largest, strict=True)
        ]
        yield Table(("", "share of all activity", "of it in one row"), rows)


def _scree(analysis: ParallelAnalysis | None) -> Part:
    if analysis is None:
        return NOT_LOOKED_AT
    return picture(lambda: plot_scree(analysis), "eigenvalues beside those of shuffled columns")


def _rivals(choices: pd.DataFrame) -> Iterator[Part]:
    meanings, sizes = entry("components.rivals"), [c for c in choices.columns if str(c).isdigit()]
    lines = [(str(name), int(row["chosen"]), row) for name, row in choices.iterrows()]
    largest = max(map(int, sizes))
    at_end = [
        name
        for name, chosen, row in lines
        if chosen == largest and row[sizes].notna().any()  # parallel analysis compares no numbers
    ]
    yield Paragraph(_disagreement(choices))
    rows = [[name, str(chosen), meanings.get(name, "")] for name, chosen, _ in lines]
    yield Table(("criterion", "K", "what it is"), rows)
    if at_end:
        yield Note(f"{', '.join(at_end)}: the largest number compared, so no answer.")


def _settings(fit: Fit, result: AcdcResult) -> Table:
    rows = [
        ["model", repr(fit.model)],
        ["engine", repr(fit.method)],
        ["starts of each fit", str(len(fit.restarts.objective))],
        ["seed", str(fit.seed)],
        ["discrepancy", result.convention],
        ["numbers compared", ", ".join(map(str, sorted(result.raw)))],
    ]
    return Table((), rows)
