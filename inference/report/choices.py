"""What pages of choices say: a size by one criterion, components of classifiers, a law of
attributes, a penalty, rows of a Q-matrix; the verdict first.

A record of another kind registers with :func:`choice`, as those below and in ``differences.py`` do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from inference.base.outcome import PenaltyChoice
from inference.inspection.q_validation import QValidation
from inference.report.how_many import how_many_sections
from inference.report.parts import Finding, Section, Verdict
from inference.report.verdicts import listed, verdict_of
from inference.selection.attribute_laws import RootComparison
from inference.selection.dimension import Selection
from inference.selection.saturation import Saturation
from inference.selection.sparsity import Path
from ppl_models.parts.repr import counted
from ppl_models.parts.validation import is_integer

if TYPE_CHECKING:
    import pandas as pd


CLEAR = 10.0  # of an information criterion: strong evidence
LIKELY = 0.05  # level of tests
CRITERIA = {
    "ebic": "the extended BIC, which also counts how many graphs there are of a size",
    "bic": "BIC",
    "aic": "AIC, which aims at prediction and takes too many rather than too few",
    "p_value": "likelihood-ratio tests of each size against the next, from the smallest up",
    "held_out": "the log-likelihood of rows that no fit has seen",
    "ratio": "the largest gap between singular values of the data; nothing was fitted",
    "left": "clear steps of the components' noise (ACDC)",
    "lenient": "laws and numbers together",
    "singular_value": "singular values",
}
COLUMNS = {
    "log_likelihood": "grows with every size, so it chooses nothing by itself",
    "num_parameters": "free numbers of the fit",
    "seconds": "that the fit took",
    "ebic": (
        "deviance with a price for each parameter and for how many "
        "graphs there are of a size; smaller is better"
    ),
    "bic": "deviance with a price for each parameter; smaller is better",
    "aic": "the same with a lower price, which takes too many rather than too few",
    "held_out": "log-likelihood of a row that no fit has seen; larger is better",
    "p_value": "of the test of this size against the next",
    "optimum_missed": "yes where a smaller size, which this one contains, has a larger likelihood",
}
OF_SATURATION = {
    "components": "their number",
    "held_out_cost": (
        "what a row that no fit has seen costs, in nats, beside 0 for "
        "variates that have nothing in common; smaller is better"
    ),
    "standard_error": "of the cost, by the held-out rows",
    "behind_best": "by how many nats a row the cost is above the smallest",
    "behind_error": "its standard error, row by row",
}
OF_Q_MATRIX = {
    "given": "attributes that the item asks for by your Q-matrix",
    "suggested": "by the answers",
    "changed": "whether the two differ",
    "pvaf_given": (
        "share of the variance of the item's expected answers that the "
        "given attributes account for (PVAF); near 1, none is lacking"
    ),
    "pvaf_suggested": "the same of the suggested attributes",
    "gain": "by how much BIC falls with the suggestion; above 10 is strong evidence",
    "stability": (
        "share of the replicates that agree with the suggestion in its least certain entry"
    ),
}
BEYOND = (
    "Sizes and models that were not compared, and whether the chosen one is right: its own report"
    " looks at that."
)


@dataclass(frozen=True)
class Choice:
    """What a page of a choice is made of: its title, sections with the verdict first, the record's
    table, and its picture where it has one.

    Columns of the table have their ``meanings`` in words; ``others`` are further tables, each with
    a title and the meanings of its columns.
    """

    title: str
    verdict: Verdict
    table: pd.DataFrame
    draw: Callable[[], Any] | None = None
    more: Sequence[Section] = ()
    meanings: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[tuple[str, pd.DataFrame, Mapping[str, str]]] = ()


@functools.singledispatch
def choice(record: Any) -> Choice:
    """What the page of a record says."""
    kinds = ", ".join(kind.__name__ for kind in choice.registry if kind is not object)
    raise ValueError(
        f"write_choice_report: a record of a choice was expected ({kinds}), got"
        f" {type(record).__name__}"
    )


@choice.register
def _(record: Selection) -> Choice:
    if record.answer is not None:
        first, *more = how_many_sections(record.answer)
        verdict = next(part for part in first.parts if isinstance(part, Verdict))
        return Choice(f"How many? {record.chosen}", verdict, record.table, None, more)
    asked = (
        f"Which of the sizes {', '.join(map(str, record.sizes))}? Decided by"
        f" {CRITERIA.get(record.score, record.score)}."
    )
    findings = [
        Finding("", "What was asked?", asked),
        _on_size(record),
        _on_fits(record),
        Finding("", "What could not have been seen?", BEYOND),
    ]
    answer = (
        f"{_chosen(record)}, by"
        f" {CRITERIA.get(record.score, record.score).split(',')[0].split(';')[0]}."
    )
    nothing = (
        "Read the report of the chosen fit before you build on it."
        if record.fits
        else "Fit the chosen size, and read its report."
    )
    verdict = verdict_of(findings, nothing=nothing, answer=answer, about="choice")
    return Choice(
        f"How many? {record.chosen}", verdict, record.table, record.plot, meanings=COLUMNS
    )


def _chosen(record: Selection) -> str:
    """The size in words: the setting in which the models that were compared differ."""
    if record.study is not None:
        models = record.study.models
        model = models[record.study.sizes.index(record.chosen)]
        settings = [setting.name for setting in fields(model)] if is_dataclass(model) else []
        varied = [
            name for name in settings if len({repr(getattr(one, name)) for one in models}) > 1
        ]
        if len(varied) == 1:
            value, words = (
                getattr(model, varied[0]),
                varied[0].removeprefix("num_").replace("_", " "),
            )
            if is_integer(value):
                return counted(value, words.removesuffix("s"), words)
            if isinstance(value, tuple):
                return f"{words.capitalize()} {listed([str(each) for each in value])}"
    return f"Size {record.chosen}"


def _on_size(record: Selection) -> Finding:
    doubts, steps = (
        list(record.sentences),
        ["Choose the number by EBIC as well."] if record.sentences else [],
    )
    if len(record.sizes) == 1:
        doubts.append("It is the only size compared.")
        steps.append("Compare several sizes.")
    elif record.chosen in (record.sizes[0], record.sizes[-1]) and not (
        is_integer(record.chosen) and record.chosen == 1
    ):
        doubts.append(
            f"It is the {'smallest' if record.chosen == record.sizes[0] else 'largest'} size"
            " compared, so that the best may lie beyond."
        )
        steps.append("Compare a wider range of sizes.")
    left_out = (
        []
        if record.study is None
        else [str(size) for size in record.study.sizes if size not in record.sizes]
    )
    if left_out:
        doubts.append(
            f"Size {listed(left_out)} was left out, for the rows that were fitted are too few for "
            "it."
        )
    chances = {
        name: record.columns[name] for name in ("ebic", "bic", "aic") if name in record.columns
    }
    if record.score in chances:
        values = chances[record.score]
        near = [
            str(size)
            for size, value in zip(record.sizes, values, strict=True)
            if size != record.chosen and value - min(values) < CLEAR
        ]
        if near:
            doubts.append(
                f"Too close to call against {listed(near)}: a difference of less than {CLEAR:g} is"
                " no strong evidence."
            )
        others = {
            name.upper(): record.sizes[own.index(min(own))]
            for name, own in chances.items()
            if name not in (record.score, "aic")
        }  # AIC takes more as a rule
        other = [
            f"{name} would take {size}" for name, size in others.items() if size != record.chosen
        ]
        if other:
            doubts.append(f"{' and '.join(other)}.")
        steps += ["Report what holds in all of these sizes."] if near or other else []
    question = "How sure is the size?"
    if doubts:
        return Finding("care", question, " ".join(doubts), " ".join(dict.fromkeys(steps)))
    if record.score in chances:
        return Finding(
            "good",
            question,
            f"It lies inside the range compared, and every other size is at least {CLEAR:g}"
            " behind.",
        )
    return Finding(
        "",
        question,
        "It lies inside the range compared; how much of the figures is chance was not looked at.",
    )


def _on_fits(record: Selection) -> Finding | None:
    if not record.fits:
        return None
    table, question = record.table, "Can the fits be compared?"
    missed = (
        [str(size) for size, own in table["optimum_missed"].items() if own]
        if "optimum_missed" in table
        else []
    )
    if not record.best.converged:
        return Finding(
            "bad",
            question,
            "The fit of the chosen size did not converge, so that its figures may still change.",
            "Let the fits run on (more iterations), and choose again.",
        )
    if missed:
        words = (
            f"Size {listed(missed)} stays below the likelihood of a smaller size that it contains,"
            " so its best fit was missed."
        )
        return Finding("care", question, words, "Choose again with more starts (num_restarts=...).")
    return Finding("good", question, "Yes: the fit of the chosen size converged.")


@choice.register
def _(record: Saturation) -> Choice:
    at_end = record.chosen == record.sizes[-1] and len(record.sizes) > 1
    is_open = at_end or record.is_saturated is False
    bound = (
        "A discriminator bounds what any mixture could reach."
        if record.bound is not None
        else "No bound on what any mixture could reach was worked out."
    )
    asked = (
        f"How many components, {record.sizes[0]} to {record.sizes[-1]}, predict"
        f" {counted(record.num_held_out, 'held-out row')} as well as more would? {bound}"
    )
    steps = ["Try more components than the largest number compared."] if at_end else []
    steps += ["Try larger networks or more starts."] if record.is_saturated is False else []
    unseen = (
        "A continuous latent looks like ever more components; and components that differ in no"
        " variate alone cannot be told apart."
    )
    findings = [
        Finding("", "What was asked?", asked),
        Finding(
            "care" if is_open else "good", "How sure is the number?", record.text(), " ".join(steps)
        ),
        Finding("", "What could not have been seen?", unseen),
    ]
    answer = (
        f"{counted(record.chosen, 'component')}: more do not predict held-out rows better."
        if not at_end
        else f"At least {counted(record.chosen, 'component')}."
    )
    step = "Fit the chosen number to all rows, and read its report."
    return Choice(
        f"How many components? {record.chosen}",
        verdict_of(findings, nothing=step, answer=answer, about="number"),
        record.table.reset_index(),
        record.plot,
        meanings=OF_SATURATION,
    )


@choice.register
def _(record: QValidation) -> Choice:
    clear = [change.item for change in record.changes if change.gain > CLEAR]
    asked = (
        f"Do the answers speak against rows of the Q-matrix of {counted(len(record.items), 'item')}"
        f" and {counted(len(record.attributes), 'attribute')}?"
    )
    answer = (
        f"The answers speak clearly against {len(clear)} of {len(record.items)} rows of the"
        " Q-matrix."
        if clear
        else "The answers speak clearly against no row of the Q-matrix."
    )
    step = (
        f"Hold the suggested rows of {listed(clear)} against the wording of these items; change a"
        " row only if it makes sense for its item."
        if clear
        else ""
    )
    unseen = (
        "Attributes that no item of the matrix names, and whether a change makes sense: the answers"
        " know nothing of the wording."
    )
    findings = [
        Finding("", "What was asked?", asked),
        Finding(
            "care" if clear else "good",
            "What do the answers suggest?",
            _sentences(record.text()),
            step,
        ),
        None
        if record.settled
        else Finding(
            "care",
            "Did the suggestions settle?",
            f"No, they still changed after {counted(record.num_rounds, 'round')}.",
            "Take the suggestions with care, or allow more rounds (max_rounds).",
        ),
        Finding("", "What could not have been seen?", unseen),
    ]
    drawn = record.plot if record.changes else None
    return Choice(
        "Does the Q-matrix hold?",
        verdict_of(findings, nothing="Keep the Q-matrix.", answer=answer, about="matrix"),
        record.table.reset_index(),
        drawn,
        meanings=OF_Q_MATRIX,
    )


def _sentences(text: str) -> str:
    """A text whose list stands on indented lines, as one paragraph."""
    first, *others = text.split("\n")
    items, rest = (
        [part.strip() for part in others if part.startswith("  ")],
        [part for part in others if not part.startswith("  ")],
    )
    return " ".join([first, *([f"{'; '.join(items)}."] if items else []), *rest])


@choice.register
def _(record: RootComparison) -> Choice:
    best, bic = record.best, {name: one.bic for name, one in record.fits.items()}
    near = [name for name in bic if name != best and bic[name] - bic[best] < CLEAR]
    against = [test for test in record.tests if test.small == best and test.p_value < LIKELY]
    doubts = [f"BIC is within {CLEAR:g} for {listed(near)}."] if near else []
    doubts += [
        f"A test rejects it against the {test.large} law (p = {test.p_value:.2g}), which BIC does"
        " not find worth its numbers."
        for test in against
    ]
    restless = [name for name, one in record.fits.items() if not one.converged]
    findings = [
        Finding(
            "",
            "What was asked?",
            f"Which law of the attributes: {listed(list(record.fits))}? Items are the same in all.",
        ),
        Finding(
            "care" if doubts else "good",
            "How sure is that?",
            " ".join([*doubts, record.text()]),
            "Report what holds under each law that is close." if doubts else "",
        ),
        (
            Finding(
                "care",
                "Can the fits be compared?",
                f"Not fully; not converged: {listed(restless)}.",
                "Let these fits run on, and compare again.",
            )
            if restless
            else None
        ),
        Finding(
            "",
            "What could not have been seen?",
            "Laws that were not compared, and an error in the items or the Q-matrix, which any law"
            " of the attributes takes over.",
        ),
    ]
    verdict = verdict_of(
        findings,
        nothing=f"Go on with the {best} law.",
        answer=f"The {best} law, by BIC.",
        about="choice",
    )
    return Choice("Which law of the attributes?", verdict, record.table.reset_index())


@choice.register
def _(record: Path) -> Choice:
    at_end = len(record.penalties) > 1 and record.chosen in (0, len(record.penalties) - 1)
    near = sum(
        i != record.chosen and value - min(record.scores) < CLEAR
        for i, value in enumerate(record.scores)
    )
    words = (
        "It lies at an end of the grid, so that a better one may lie beyond. "
        if at_end
        else "It lies inside the grid. "
    )
    words += (
        f"{counted(near, 'other penalty', 'other penalties')} of the grid within {CLEAR:g} of its"
        " EBIC."
        if near
        else "No other penalty comes near."
    )
    findings = [
        Finding(
            "",
            "What was asked?",
            f"Which of {counted(len(record.penalties), 'penalty', 'penalties')} gives the graph of"
            " the smallest EBIC, once thresholded and fitted anew?",
        ),
        Finding(
            "care" if at_end else "good",
            "How sure is that?",
            words,
            "Widen the grid of penalties." if at_end else "",
        ),
        Finding(
            "",
            "What could not have been seen?",
            "Edges too weak for any penalty of the grid to keep; intervals of the chosen fit take"
            " its graph as known.",
        ),
    ]
    verdict = verdict_of(
        findings,
        nothing="Read the report of the chosen fit before you build on its graph.",
        answer=f"{record.penalty}, by EBIC.",
        about="choice",
    )
    return Choice("How sparse a graph?", verdict, record.table)


@choice.register
def _(record: PenaltyChoice) -> Choice:
    scores = record.ebic.tolist()
    own, by_penalty = (
        int(record.penalty[record.best]),
        {
            int(which): min(
                scores[i] for i, each in enumerate(record.penalty.tolist()) if each == which
            )
            for which in record.penalty.unique()
        },
    )
    at_end = len(record.penalties) > 1 and own in (0, len(record.penalties) - 1)
    near = sum(
        which != own and value - by_penalty[own] < CLEAR for which, value in by_penalty.items()
    )
    words = (
        "It lies at an end of the penalties that were tried, so that a better one may lie beyond. "
        if at_end
        else "It lies among the penalties that were tried. "
    )
    words += (
        f"{counted(near, 'other penalty', 'other penalties')} within {CLEAR:g} of its EBIC."
        if near
        else "No other penalty comes near."
    )
    asked = (
        f"Which of {counted(len(record.penalties), 'penalty', 'penalties')} leaves the graph of the"
        " smallest EBIC, once the model is fitted on it without shrinkage?"
    )
    findings = [
        Finding("", "What was asked?", asked),
        Finding(
            "care" if at_end else "good",
            "How sure is that?",
            words,
            "Try penalties beyond that end: ChoosePenalty(penalties=...)." if at_end else "",
        ),
        Finding(
            "",
            "What could not have been seen?",
            "Edges too weak for any of the penalties to keep; intervals of the chosen fit take its"
            " graph as known.",
        ),
    ]
    nothing = (
        "Read the report of the fit before you build on its graph: edges were added and taken away"
        " after this choice as long as EBIC fell."
    )
    return Choice(
        "How sparse a graph?",
        verdict_of(findings, nothing=nothing, answer=f"{record.chosen}, by EBIC.", about="choice"),
        record.table,
    )
