"""Why this K? One self-contained page on a number of components: the choice in words, its pictures,
and what rivals say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from inference.report.how_many import how_many_sections
from inference.report.page import number, picture, write_page
from inference.report.parts import Finding, Note, Paragraph, Part, Section, Table, Verdict
from inference.report.verdicts import verdict_of
from inference.selection.reproducibility import RETURNS
from ppl_models.parts.repr import counted

if TYPE_CHECKING:
    import pandas as pd

    from inference.acdc.criterion import AcdcResult, Choice
    from inference.fitting.result import Fit
    from inference.selection.factorization_criteria import ParallelAnalysis
    from inference.selection.order_selection.result import HowMany
    from inference.selection.reproducibility import Reproducibility


MEANING = {
    "BIC (thesis)": (
        "counts one parameter a component, so it adds components as long as the fit gains at all"
    ),
    "BIC, log N": "counts every signature and activity, with rows as the sample size",
    "BIC, log NJ": "counts every signature and activity, with cells as the sample size",
    "AIC": "as BIC with a weaker price of a parameter, aims at prediction",
    "parallel analysis": (
        "factors whose eigenvalue exceeds that of shuffled columns; sees no components that go"
        " together"
    ),
    "ACDC": "components whose own noise looks as the model says",
}


def why(
    result: AcdcResult,
    chosen: int,
    halves: Reproducibility | None = None,
    answer: HowMany | None = None,
) -> list[str]:
    """The choice in sentences.

    Args:
        result: of :func:`inference.acdc.criterion.acdc`.
        chosen: number of components; halves: which components return from half of the rows.
        answer: that chose, if another rule did.
    """
    choice = result.select()
    words = [f"{chosen} components."] if answer is None else [_beside(choice, chosen)]
    if answer is None and chosen != choice.num_components:
        words.append(f"Another criterion chose; ACDC itself would take {choice.num_components}.")
    words.append(_rule(result, choice))
    others = sorted(set(result.sensitivity().values()))
    words.append(
        f"Asking that a step take away a fifth less or more than {result.min_share:.0%} gives K ="
        f" {', '.join(map(str, others))}."
        if len(others) > 1
        else (
            f"Asking that a step take away a fifth less or more than {result.min_share:.0%} changes"
            " nothing."
        )
    )
    words.append(_fewer(result, chosen))
    words.append(_more(result, chosen))
    words.append(_own(result, chosen, answer))
    if halves is not None:
        words += _returning(halves, chosen)
    return [sentence for sentence in words if sentence]


def _beside(choice: Choice, chosen: int) -> str:
    """How clear steps of the noise go with another rule's number."""
    own = (
        "By itself the noise of the components (ACDC), which knows of no other law and of no price"
        " of a component,"
    )
    if choice.num_components == chosen and choice.finished:
        return f"{own} leads to the same number."
    told = (
        f"leads to {choice.num_components} and not to {chosen}"
        if choice.num_components != chosen
        else f"makes no clear step that ends at {chosen}"
    )
    return (
        f"{own} {told}. The verdict above is to be preferred: it compares what several laws gain by"
        " a component with what noise alone would give, where ACDC asks only how large the step of"
        " the misfit is, and large is a matter of taste."
    )


def _rule(result: AcdcResult, choice: Choice) -> str:
    k, left = choice.num_components, number(result.left[choice.num_components], 3)
    if result.shares.get(k, 0.0) <= result.min_share:
        clear = (
            f"No component takes away more than {result.min_share:.0%} of the discrepancy that the"
            " ones before it leave"
        )
        return (
            f"{clear}, and K = {k} leaves next to none."
            if choice.finished
            else (
                f"{clear}; K = {k} is merely the smallest number compared and "
                f"leaves {left} nats. Take this choice with care."
            )
        )
    words = (
        f"The last clear step leads to K = {k}: its component takes away {result.shares[k]:.0%} of"
        f" the discrepancy that the ones before it leave; {left} nats stay."
    )
    largest = max(result.raw)
    if choice.finished or k == largest:
        return words
    return (
        f"{words} The step to K = {largest}, the largest number compared, is clear as well: try"
        " larger ones."
    )


def _fewer(result: AcdcResult, chosen: int) -> str:
    below = [k for k in result.raw if k < chosen]
    if chosen == 1:
        return ""
    if not below:
        return "It is the smallest number compared: try smaller ones."
    k = max(below)
    worst = int(np.argmax(result.component_discrepancy[k]))
    value, sd = result.component_discrepancy[k][worst], result.null_sd[k][worst]
    times = f", {number(value / sd, 1)} standard deviations of exact noise" if sd > 0 else ""
    return (
        f"Why not fewer: with K = {k}, the noise of component {worst} is {number(float(value), 3)}"
        f" nats from its law{times}."
    )


def _more(result: AcdcResult, chosen: int) -> str:
    above = [k for k in result.raw if k > chosen]
    if not above:
        return "It is the largest number compared: try larger ones."
    k = min(above)
    share, words = (
        result.shares[k],
        f"Why not more: K = {k} leaves {number(result.left[k], 3)} nats",
    )
    if share == 0:
        return f"{words}, no less than a smaller number."
    why = (
        "too little for a clear step"
        if share <= result.min_share
        else "a smaller step than the one before"
    )
    return f"{words}, {share:.0%} less than the best smaller number: {why}."


def _misfitting(result: AcdcResult, chosen: int) -> np.ndarray:
    """Components whose noise is farther from its law than exact noise is, (K,)."""
    off: np.ndarray = (result.raw[chosen] - result.null_mean[chosen]) > MISFIT * result.null_sd[
        chosen
    ]
    return off


def _named(which: np.ndarray) -> str:
    """Components by their numbers; which: (K,) of bool."""
    return (
        f"component{'' if which.sum() == 1 else 's'}"
        f" {', '.join(str(i) for i in np.flatnonzero(which))}"
    )


def _own(result: AcdcResult, chosen: int, answer: HowMany | None = None) -> str:
    off = _misfitting(result, chosen)
    if not off.any():
        return (
            f"With K = {chosen}, no component's noise can be told from its law by {MISFIT:g}"
            " standard deviations. That is no test of whether a component is missing: with too few"
            " of them, a flexible law can leave noise that looks as it should."
        )
    words = (
        f"With K = {chosen}, the noise of {_named(off)} is farther from its law than exact noise"
        f" is, by more than {MISFIT:g} standard deviations"
    )
    best, share = taken_beyond(result.left, chosen)
    if share <= result.min_share:
        return f"{words}. {_what_that_shows(result, answer)}"
    wide = sorted(
        (s for s in result.segments[:-1] if s.num_components > chosen), key=lambda s: -s.width
    )[:3]
    cutoffs = ", ".join(
        f"K = {s.num_components} from {number(s.start, 2)} to {number(s.end, 2)}"
        for s in sorted(wide, key=lambda s: s.start)
    )
    return (
        f"{words}. Further components, up to K = {best}, take away {share:.0%} of it, none of them"
        " by a step that stands out: they may be patches of a law that is not right, or real"
        " components found one by one, and discrepancies cannot tell these apart. The misfit that"
        f" you are ready to live with, in nats, decides then (rho): {cutoffs}."
    )


def _what_that_shows(result: AcdcResult, answer: HowMany | None) -> str:
    if result.refitted:
        return (
            "Exact noise was that of fits to data drawn from this one, so it contradicts this law"
            " with this number of components; whether another law holds or a component is missing"
            " was not tested here."
        )
    words = (
        "Exact noise was drawn with the estimates held as known. Estimates follow their data, which"
        " alone makes noise too regular, the more so the fewer columns there are for each"
        " component: a right law can look like this."
    )
    if answer is not None:
        return (
            f"{words} The figure of the verdict, {number(answer.misfit, 1)}, was taken from fits to"
            " tables drawn from the fit, which allow for that; it is the one to go by."
        )
    return (
        f"{words} acdc(..., calibrate=Bootstrap(refit=True)) tells the two apart, and until then"
        " nothing is said of the law."
    )


def _disagreement(choices: pd.DataFrame) -> str:
    """Which numbers the criteria choose, where they are not one."""
    by_number: dict[int, list[str]] = {}
    for name, row in choices.iterrows():
        by_number.setdefault(int(row["chosen"]), []).append(str(name))
    if len(by_number) < 2:
        return (
            "All of these choose the same number. They were computed on the same fits, so that is"
            " one answer and not several."
        )
    shares = "; ".join(f"K = {k}: {', '.join(names)}" for k, names in sorted(by_number.items()))
    return (
        f"The criteria disagree ({shares}). They ask different things: information criteria which"
        " number the likelihood pays for if the law is right, ACDC where the noise of the"
        " components begins to look as the law says. None of them was tested against the others"
        " here; look at the components that come and go between these numbers, or compare held-out"
        " cells."
    )


def _returning(halves: Reproducibility, chosen: int) -> list[str]:
    if chosen not in halves.errors:
        return [
            f"Whether the components of K = {chosen} come back from half of the rows was not "
            "looked at: a half has fewer rows than components."
        ]
    error = halves.by_component[chosen]
    lost = error >= RETURNS
    words = [
        f"Fitted to halves of the rows, the components of K = {chosen} come back with cosine errors"
        f" up to {number(error.max(), 3)} (component {int(error.argmax())})."
    ]
    if lost.any():
        named, one = _named(lost), lost.sum() == 1
        words.append(
            f"{named[0].upper()}{named[1:]} {'does' if one else 'do'} not come back from most"
            f" halves: few rows hold {'it' if one else 'them'} up, rare but real or not."
        )
    return words


def selection_verdict(
    result: AcdcResult, chosen: int, choices: pd.DataFrame, *more: Finding | None
) -> Verdict:
    """What was asked, the number, how sure it is, what the noise says, and what could not have been
    seen.

    Args:
        result: of :func:`inference.acdc.criterion.acdc`; chosen: number of components.
        choices: of :func:`inference.selection.compare_criteria`; more: findings of other
            questions on the same number.
    """
    sizes = sorted(result.raw)
    unseen = (
        "Components that always go together look like one, and one that few rows hold looks like"
        " noise. Other laws of the noise were not compared; inference.selection.select_components"
        " does that."
    )
    findings = [
        Finding(
            "",
            "What was asked?",
            f"How many components does the table hold? Compared were {', '.join(map(str, sizes))}.",
        ),
        _sureness(result, chosen, choices),
        Finding(
            "care" if result.refitted and _misfitting(result, chosen).any() else "",
            "Does the noise of the components look as the model says?",
            _own(result, chosen),
        ),
        *more,
        Finding("", "What could not have been seen?", unseen),
    ]
    step = (
        "Look at the signatures below, and at the page of the chosen fit, before you build on this"
        " number."
    )
    return verdict_of(
        findings, nothing=step, answer=f"{counted(chosen, 'component')}.", about="number"
    )


def _sureness(result: AcdcResult, chosen: int, choices: pd.DataFrame) -> Finding:
    """Whether the number stands alone, or rests on the rule, its cutoff, or the end of the grid."""
    choice, sizes = result.select(), sorted(result.raw)
    rivals = sorted({int(k) for k in choices["chosen"]} - {chosen})
    doubts, steps = [], []
    if chosen == sizes[-1]:
        doubts.append("It is the largest number compared.")
        steps.append(f"Compare more, up to {2 * chosen}.")
    if chosen != choice.num_components:
        doubts.append(
            f"The last clear step of the discrepancies (ACDC) leads to {choice.num_components}."
        )
    elif not choice.finished:
        doubts.append("There is no clear step, or one at the largest number compared.")
    if len(set(result.sensitivity().values())) > 1:
        doubts.append(
            "A clear step that is asked for a little more or less strictly leads to other numbers."
        )
    if rivals:
        doubts.append(f"Other criteria choose {', '.join(map(str, rivals))}.")
        steps.append(
            "Look at the components that come and go between these numbers, and report what holds"
            " in all of them."
        )
    return Finding(
        "care" if doubts else "good",
        "How sure is the number?",
        " ".join(doubts) or "All criteria choose it, and so do stricter and milder ones.",
        " ".join(steps),
    )


def _return_finding(halves: Reproducibility, chosen: int) -> Finding:
    lost = chosen in halves.errors and bool((halves.by_component[chosen] >= RETURNS).any())
    step = (
        "Do not interpret components that do not come back from halves of the rows." if lost else ""
    )
    mark = "care" if lost else "good" if chosen in halves.errors else ""
    return Finding(
        mark,
        "Do the components come back from half of the rows?",
        " ".join(_returning(halves, chosen)),
        step,
    )


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
    """Write the page: one file, pictures inside, nothing fetched from elsewhere, every text
    escaped.

    Args:
        fits: number of components -> fit; result: of :func:`inference.acdc.criterion.acdc`.
        table: of :func:`inference.selection.factorization_criteria.compare_criteria`.
        path: the file, replaced if it exists.
        chosen: the number to explain, that of ``result`` if None.
        channels: names of the columns; analysis: eigenvalues beside those of shuffled columns;
            halves: what returns.
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
    best, file = fits[k], Path(path)
    names = list(channels) if channels is not None else list(best.item_names)
    question = (
        f"Why K = {k}?"
        if answer is None
        else f"Why K = {k}? What the noise of the components says beside it"
    )
    misfit = picture(lambda: plot_discrepancies(result, k), "misfit of each component")
    returning = None if halves is None else _return_finding(halves, k)
    own = (
        [Section("verdict", "Verdict", [selection_verdict(result, k, table, returning)])]
        if answer is None
        else how_many_sections(answer, returning)
    )
    sections = [
        *own,
        Section("why", question, map(Paragraph, why(result, k, halves, answer))),
        Section(
            "steps",
            "What every number leaves",
            [
                picture(lambda: plot_choice(result), "clear steps, and loss against the cutoff"),
                _STEPS,
            ],
        ),
        Section("components", "Misfit of each component", [misfit, *_misfit(result, k, names)]),
        Section("halves", "Components that return", _halves(halves)),
        Section("signatures", "Signatures", _signatures(best, names)),
        Section("scree", "Eigenvalues", [_scree(analysis)]),
        Section("rivals", "What other criteria say", _rivals(table)),
        Section("settings", "Settings", [_settings(best, result)]),
    ]
    return write_page(file, f"How many components? {k}, for {rows_in_words(best)}", sections)


NOT_LOOKED_AT = Note("Not looked at.")
_STEPS = Note(
    "Left: how far the noise of all components of one K is from its law, added up; what cannot be"
    " told from exact noise counts as that noise's upper 5 % point. A component that stands for"
    " something real takes away most of what is left, one that patches another's law takes little."
    " Right: the same where a misfit up to the cutoff is allowed to every component; the shaded"
    " range is where the chosen K is best, to its right fewer components do, at the price of a"
    " larger misfit."
)


def _misfit(result: AcdcResult, k: int, names: Sequence[str]) -> Iterator[Part]:
    rows = []
    for i in range(k):
        excess, sd = result.raw[k][i] - result.null_mean[k][i], result.null_sd[k][i]
        rows.append(
            [
                str(i),
                f"{result.num_used[k][i]:g}",
                number(float(excess), 3),
                number(float(excess / sd), 1) if sd > 0 else "-",
            ]
        )
    yield Table(
        (
            "component",
            "rows that use it",
            "divergence less that of exact noise",
            "in its standard deviations",
        ),
        rows,
    )
    columns = result.by_column[k]
    if columns is not None and columns.shape[1] > 1:
        worst = int(np.argmax(result.component_discrepancy[k]))
        top = ", ".join(str(names[j]) for j in np.argsort(-columns[worst])[:5])
        yield Note(f"Component {worst} is farthest off; most of all in {top}.")


def _halves(halves: Reproducibility | None) -> list[Part]:
    if halves is None:
        return [NOT_LOOKED_AT]
    text = (
        "Rows are halved at random and each half is fitted anew. A component that follows one row,"
        " or one of several equally good splits, does not come back."
    )
    return [
        picture(lambda: plot_return(halves), "error of components fitted to halves"),
        Note(text),
    ]


def _signatures(fit: Fit, names: Sequence[str]) -> Iterator[Part]:
    activities = fit.local["activities"].abs() if fit.local is not None else None
    values = fit.params["signatures"]
    labels = [f"component {i}" for i in range(len(values))]
    yield picture(lambda: plot_signatures(values, names, labels), "signatures over the columns")
    if activities is not None:
        share = (activities.sum(0) / activities.sum()).tolist()
        largest = (activities.max(0).values / activities.sum(0)).tolist()
        rows = [
            [label, f"{100 * s:.1f} %", f"{100 * m:.0f} %"]
            for label, s, m in zip(labels, share, largest, strict=True)
        ]
        yield Table(("", "share of all activity", "of it in one row"), rows)


def _scree(analysis: ParallelAnalysis | None) -> Part:
    return (
        NOT_LOOKED_AT
        if analysis is None
        else picture(lambda: plot_scree(analysis), "eigenvalues beside those of shuffled columns")
    )


def _rivals(choices: pd.DataFrame) -> Iterator[Part]:
    rows = [
        [str(name), f"{int(row['chosen'])}", MEANING.get(str(name), "")]
        for name, row in choices.iterrows()
    ]
    sizes = [c for c in choices.columns if str(c).isdigit()]
    largest = max(map(int, sizes))
    at_end = [
        str(name)
        for name, row in choices.iterrows()
        if int(row["chosen"]) == largest and row[sizes].notna().any()
    ]  # parallel analysis compares no numbers
    yield Paragraph(_disagreement(choices))
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
