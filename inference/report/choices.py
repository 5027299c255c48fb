"""Answers on sizes, penalties, tests of groups, items and classes, and rows of a Q-matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass

import numpy as np

from inference.base.outcome import PenaltyChoice
from inference.inspection.q_validation import QValidation
from inference.relations.outcomes import ClassOutcomes
from inference.relations.regression import ClassRegression
from inference.report import how_many as how_many  # registers its record
from inference.report.answers import Answer, answer_of
from inference.report.parts import Finding
from inference.report.words import entry, finding, say, verdict_of
from inference.selection.attribute_groups import DifferentialItems, GroupComparison, ItemScores
from inference.selection.dimension import Selection
from inference.selection.layers import LayerSizes
from inference.selection.likelihood_ratio import RatioTest
from inference.selection.lower_limit import MISFIT_LEVEL, LowerLimit
from inference.selection.saturation import Saturation
from inference.selection.sparsity import Path
from inference.selection.splitting import SplitInference
from ppl_models.parts.repr import counted, listed
from ppl_models.parts.validation import is_integer

CLEAR = 10.0  # of an information criterion: strong evidence
LIKELY = 0.05  # level of tests
LEAST_SEPARATED = 0.6  # entropy R2
MOST_MISSED = 0.1  # share of replicates


@answer_of.register
def _(record: Selection) -> Answer:
    frame = record.table
    if "ebic" in frame and "bic" in frame and (frame["ebic"] == frame["bic"]).all():
        frame = frame.drop(columns="ebic")  # models without a graph to count
    title, table = f"How many? {record.chosen}", ("Numbers", frame)
    if record.answer is not None:
        own = answer_of(record.answer)
        return Answer(title, own.verdict, more=own.more, tables={table[0]: (table[1], "")})
    criterion = entry("criteria").get(record.score, record.score)
    sizes = ", ".join(map(str, record.sizes))
    verdict = verdict_of(
        [
            finding("size.asked.all", sizes=sizes, criterion=criterion),
            _on_size(record),
            _on_fits(record),
            finding("size.unseen.all"),
        ],
        nothing=say("size.nothing_fitted" if record.fits else "size.nothing_unfitted"),
        answer=f"{_chosen(record)}, by {criterion.split(',')[0].split(';')[0]}.",
        about="choice",
    )
    return Answer(title, verdict, record.plot, {table[0]: (table[1], "sizes")})


def _chosen(record: Selection) -> str:
    """Return the size in words: the setting in which the models that were compared differ."""
    models = () if record.study is None else record.study.models
    if record.study is not None and is_dataclass(models[0]):
        model = models[record.study.sizes.index(record.chosen)]
        varied = [
            name
            for name in (setting.name for setting in fields(model))
            if len({repr(getattr(other, name)) for other in models}) > 1
        ]
        if len(varied) == 1:
            value = getattr(model, varied[0])
            words = varied[0].removeprefix("num_").replace("_", " ")
            if is_integer(value):
                return counted(value, words.removesuffix("s"), words)
            if isinstance(value, tuple):
                return f"{words.capitalize()} {listed([str(each) for each in value])}"
    return f"Size {record.chosen}"


def _on_size(record: Selection) -> Finding:
    doubts = [] if record.rise is not None else list(record.sentences)
    steps = ["Choose the number by EBIC as well."] if doubts else []
    ends = {record.sizes[-1]: "largest", record.sizes[0]: "smallest"}
    if len(record.sizes) == 1:
        doubts.append("It is the only size compared.")
        steps.append("Compare several sizes.")
    elif record.chosen in ends and not (is_integer(record.chosen) and record.chosen == 1):
        doubts.append(say("size.edge", end=ends[record.chosen]))
        steps.append("Compare a wider range of sizes.")
    tried = () if record.study is None else record.study.sizes
    left_out = [str(size) for size in tried if size not in record.sizes]
    if left_out:
        doubts.append(say("size.left_out", left_out=listed(left_out)))
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
            doubts.append(say("size.close", near=listed(near), clear=CLEAR))
        others = {
            name.upper(): record.sizes[column.index(min(column))]
            for name, column in chances.items()
            if name not in (record.score, "aic")  # AIC takes more as a rule
        }
        other = [
            f"{name} would take {size}" for name, size in others.items() if size != record.chosen
        ]
        doubts += [f"{' and '.join(other)}."] if other else []
        steps += ["Report what holds in all of these sizes."] if near or other else []
    if doubts:
        words = " ".join(dict.fromkeys(steps))
        return finding("size.sure.doubts", doubts=" ".join(doubts), steps=words)
    return finding(
        "size.sure.clear" if record.score in chances else "size.sure.chance", clear=CLEAR
    )


def _on_fits(record: Selection) -> Finding | None:
    if not record.fits:
        return None
    if not record.best.converged:
        return finding("size.fits.restless")
    missed = record.table.get("optimum_missed", {})
    names = [str(size) for size, is_missed in missed.items() if is_missed]
    if not names and record.rise is not None:
        return finding("size.fits.risen", words=" ".join(record.sentences))
    return finding("size.fits.missed" if names else "size.fits.fine", missed=listed(names))


@answer_of.register
def _(record: Saturation) -> Answer:
    at_end = record.is_short
    steps = ["Try more components than the largest number compared."] if at_end else []
    steps += ["Try larger networks or more starts."] if record.is_saturated is False else []
    bound = say("saturation.unbounded" if record.bound is None else "saturation.bounded")
    size, rows = counted(record.chosen, "component"), counted(record.num_held_out, "held-out row")
    first, last = record.sizes[0], record.sizes[-1]
    mark, text = "care" if steps else "good", record.text()
    verdict = verdict_of(
        [
            finding("saturation.asked.all", first=first, last=last, rows=rows, bound=bound),
            finding("saturation.sure.all", mark=mark, text=text, steps=" ".join(steps)),
            finding("saturation.unseen.all"),
        ],
        nothing=say("saturation.nothing"),
        answer=f"At least {size}."
        if at_end
        else f"{size}: more do not predict held-out rows better."
        if record.chosen == record.by_cost
        else f"{size}, by the rank of the joint distributions of the variates.",
        about="number",
    )
    tables = {"Numbers": (record.table.reset_index(), "saturation")}
    return Answer(f"How many components? {record.chosen}", verdict, record.plot, tables)


@answer_of.register
def _(record: LayerSizes) -> Answer:
    kind = "doubts" if record.doubts else "clear"
    verdict = verdict_of(
        [
            finding("layer_sizes.asked.all"),
            finding(f"layer_sizes.sure.{kind}", doubts=" ".join(record.doubts)),
            finding("layer_sizes.unseen.all"),
        ],
        nothing=say("layer_sizes.nothing", sizes=str(record.chosen)),
        answer=record.headline,
        about="choice",
    )
    tables = {"Sizes that were tried": (record.table.reset_index(), "layer_sizes")}
    return Answer(f"How many layers? {len(record.chosen)}", verdict, tables=tables)


@answer_of.register
def _(record: SplitInference) -> Answer:
    bound, intervals, *unseen = record.sentences
    verdict = verdict_of(
        [
            finding("splitting.asked.all"),
            finding("splitting.sure.all", bound=bound, intervals=intervals),
            finding("splitting.unseen.all", unseen=" ".join(unseen)),
        ],
        nothing=say("splitting.nothing"),
        answer=record.headline,
        about="choice",
    )
    tables = {"Edges of the chosen graph": (record.table, "splitting")}
    return Answer("Which edges are there?", verdict, record.plot, tables)


@answer_of.register
def _(record: QValidation) -> Answer:
    clear = [change.item for change in record.changes if change.gain > CLEAR]
    items = counted(len(record.items), "item")
    kind, step = ("clear", say("q_matrix.step", clear=listed(clear))) if clear else ("none", "")
    asked = {"items": items, "attributes": counted(len(record.attributes), "attribute")}
    rounds = counted(record.num_rounds, "round")
    verdict = verdict_of(
        [
            finding("q_matrix.asked.all", **asked),
            finding(f"q_matrix.suggested.{kind}", text=_sentences(record.text()), step=step),
            None if record.settled else finding("q_matrix.settled.no", rounds=rounds),
            finding("q_matrix.unseen.all"),
        ],
        nothing="Keep the Q-matrix.",
        answer=say(f"q_matrix.against_{kind}", count=len(clear), items=len(record.items)),
        about="matrix",
    )
    drawn = record.plot if record.changes else None
    tables = {"Numbers": (record.table.reset_index(), "q_matrix")}
    return Answer("Does the Q-matrix hold?", verdict, drawn, tables)


def _sentences(text: str) -> str:
    """Return a text whose list stands on indented lines as one paragraph."""
    first, *others = text.split("\n")
    items = [part.strip() for part in others if part.startswith("  ")]
    rest = [part for part in others if not part.startswith("  ")]
    return " ".join([first, *([f"{'; '.join(items)}."] if items else []), *rest])


@answer_of.register
def _(record: Path) -> Answer:
    near = sum(
        i != record.chosen and value - min(record.scores) < CLEAR
        for i, value in enumerate(record.scores)
    )
    words = ("grid", "inside the grid", " of the grid")
    chosen = f"{record.penalty}, by EBIC."
    return _penalty(record, "path", record.chosen, near, words, chosen)


@answer_of.register
def _(record: PenaltyChoice) -> Answer:
    best_by_penalty: dict[int, float] = {}
    for penalty, score in zip(record.penalty.tolist(), record.ebic.tolist(), strict=True):
        best_by_penalty[penalty] = min(score, best_by_penalty.get(penalty, score))
    place = int(record.penalty[record.best])
    near = sum(
        other != place and score - best_by_penalty[place] < CLEAR
        for other, score in best_by_penalty.items()
    )
    words = ("penalties that were tried", "among the penalties that were tried", "")
    return _penalty(record, "fit", place, near, words, f"{record.chosen}, by EBIC.")


def _penalty(
    record: Path | PenaltyChoice,
    kind: str,
    place: int,
    near: int,
    grid: tuple[str, str, str],
    answer: str,
) -> Answer:
    """Return the answer of a penalty at a place of its grid, with others that fit as well.

    Args:
        record: of the choice.
        kind: of its sentences.
        place: of the penalty.
        near: number of penalties near it.
        grid: name of the grid, inside of it, and part of it, in words.
        answer: in a sentence.
    """
    size, (name, inside, part) = len(record.penalties), grid
    at_end = size > 1 and place in (0, size - 1)
    many = counted(near, "other penalty", "other penalties")
    words = say("penalty.at_end" if at_end else "penalty.inside", grid=name, inside=inside)
    words += say("penalty.near" if near else "penalty.alone", many=many, of=part, clear=CLEAR)
    verdict = verdict_of(
        [
            finding(f"penalty.asked.{kind}", many=counted(size, "penalty", "penalties")),
            finding(f"penalty.sure.{kind if at_end else 'inside'}", words=words),
            finding(f"penalty.unseen.{kind}"),
        ],
        nothing=say(f"penalty.next_{kind}"),
        answer=answer,
        about="choice",
    )
    return Answer("How sparse a graph?", verdict, tables={"Numbers": (record.table, "")})


@answer_of.register
def _(record: GroupComparison) -> Answer:
    sizes = ", ".join(
        f"{group} ({size:,} rows)"
        for group, size in zip(record.groups, record.sizes.tolist(), strict=True)
    )
    better = "distributions of their own" if record.bic_gain > 0 else "one distribution for all"
    agrees = (record.bic_gain > 0) == record.differs
    words = say("groups.prefers", better=better, gain=abs(record.bic_gain))
    words += "." if agrees else say("groups.small")
    finite = np.isfinite(record.errors).all(0)
    unknown = [name for name, known in zip(record.attributes, finite, strict=True) if not known]
    sentences = " ".join(record.sentences)
    verdict = verdict_of(
        [
            finding("groups.asked.all", sizes=sizes),
            finding("groups.differ.all", sentences=sentences) if sentences else None,
            finding(f"groups.sure.{'agrees' if agrees else 'against'}", words=words),
            finding("groups.determined.no", names=listed(unknown)) if unknown else None,
            finding("groups.unseen.all"),
        ],
        say("groups.next"),
        answer=record.headline,
        about="comparison",
    )
    tables = {"Numbers": (record.table.reset_index(), "groups")}
    return Answer("Do the groups differ?", verdict, record.plot, tables)


@answer_of.register(ItemScores)
@answer_of.register(DifferentialItems)
def _(record: ItemScores | DifferentialItems) -> Answer:
    finite = np.isfinite(record.p_value)
    untested = [name for name, known in zip(record.items, finite, strict=True) if not known]
    some, size = len(record.different), len(record.items)
    kind = "some" if some else "none"
    step = say("items.step", first=record.different[0]) if some else ""
    words = " ".join((record.headline, *record.sentences))
    count, s = counted(some, "item"), "s" * (some == 1)
    verdict = verdict_of(
        [
            finding("items.asked.all", items=counted(size, "item")),
            finding(f"items.differ.{kind}", words=words, step=step),
            finding("items.tested.no", names=listed(untested)) if untested else None,
            finding("items.unseen.all"),
        ],
        nothing="Go on with the items as they are.",
        answer=say(f"items.count_{kind}", items=count, all=size, s=s),
        about="test",
    )
    is_scores = isinstance(record, ItemScores)
    tables = {"Numbers": (record.table.reset_index(), "items" if is_scores else "differential")}
    drawn = record.plot if isinstance(record, ItemScores) else None
    return Answer("Do items mean the same in all groups?", verdict, drawn, tables)


@answer_of.register
def _(record: RatioTest) -> Answer:
    drawn = counted(len(record.null), "data set")
    missed = record.num_negative > MOST_MISSED * len(record.null)
    step = say("ratio.larger" if record.p_value < LIKELY else "ratio.smaller")
    verdict = verdict_of(
        [
            finding("ratio.asked.all"),
            finding("ratio.found.all", text=record.text()),
            finding(f"ratio.sure.{'open' if record.is_open else 'clear'}", drawn=drawn),
            finding("ratio.fits.missed") if missed else None,
            finding("ratio.unseen.all"),
        ],
        nothing="" if record.is_open else step,
        answer=record.headline,
        about="test",
    )
    return Answer(
        "Is the larger size needed?", verdict, tables={"Numbers": (record.table, "ratio")}
    )


@answer_of.register
def _(record: LowerLimit) -> Answer:
    noun, last = record.noun, record.tests[-1]
    tests = " ".join(record.test_sentences)
    if record.is_at_end:
        sure = finding("limit.sure.end", number=record.number)
    elif record.is_at_start:
        sure = finding("limit.sure.start", number=last.at_most)
    elif record.power_sentence:
        sure = finding("limit.sure.power", power=record.power_sentence)
    else:
        sure = finding("limit.sure.unknown")
    fits = "bad" if last.p_misfit <= MISFIT_LEVEL else "good"
    verdict = verdict_of(
        [
            finding("limit.asked.all", noun=noun, error=f"{100 * (1 - record.level):g}%"),
            finding("limit.found.all", text=tests),
            sure,
            finding(f"limit.misfit.{fits}", noun=noun, p=f"{last.p_misfit:.2g}"),
            finding("limit.unseen.all", noun=noun),
        ],
        nothing="" if record.is_at_start else say("limit.next", noun=noun),
        answer=record.headline,
        about="number",
    )
    title = f"How many {noun}s? {'No limit' if record.is_at_start else f'At least {record.number}'}"
    return Answer(title, verdict, record.plot, {"Tests": (record.table, "limit")})


def _on_classes(record: ClassRegression | ClassOutcomes) -> Sequence[Finding | None]:
    """Return how well the classes are separated, and whether that was corrected for."""
    r2 = record.entropy_r2
    kind = "badly" if r2 < LEAST_SEPARATED else "well"
    separated = None if np.isnan(r2) else finding(f"classes.separated.{kind}", r2=r2)
    return [separated, finding("classes.corrected.no") if record.method == "none" else None]


@answer_of.register
def _(record: ClassRegression) -> Answer:
    caption, *odds = record.sentences
    rows = counted(record.num_rows, "row")
    verdict = verdict_of(
        [
            finding("classes.asked.regression", rows=rows, caption=caption),
            finding("classes.much.all", words=" ".join(odds)) if odds else None,
            *_on_classes(record),
            finding("classes.unseen.regression"),
        ],
        nothing=say("classes.next_regression"),
        answer=record.headline,
        about="regression",
    )
    tables = {"Numbers": (record.table.reset_index(), "regression")}
    return Answer("What do the classes depend on?", verdict, tables=tables)


@answer_of.register
def _(record: ClassOutcomes) -> Answer:
    caption, *apart = record.sentences
    verdict = verdict_of(
        [
            finding("classes.asked.outcome", outcome=record.outcome, caption=caption),
            finding("classes.which.all", words=" ".join(apart)) if apart else None,
            *_on_classes(record),
            finding("classes.unseen.outcome"),
        ],
        nothing=say("classes.next_outcome"),
        answer=record.headline,
        about="comparison",
    )
    pairs = record.pairs().rename_axis("classes").reset_index()
    tables = {
        "Numbers": (record.table.reset_index(), "outcome"),
        "Pairs of classes": (pairs, "pairs"),
    }
    return Answer(f"Do the classes differ in {record.outcome}?", verdict, tables=tables)
