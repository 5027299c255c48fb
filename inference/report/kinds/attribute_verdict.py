"""The verdict on a fit of an attribute model, question by question, and what to do next; it stands
first on the page.
"""

from __future__ import annotations

import math

import numpy as np

from inference.fitting.columns import checked_as_fitted
from inference.inspection.item_fit import LocalDependence
from inference.report.attribute_findings import (
    Refused,
    absolute,
    attributes_of,
    classified,
    clear_falls,
    dependence,
    fit_of_items,
    freed,
    graph,
    is_free,
    q_validation,
    structure_of_page,
    undetermined,
)
from inference.report.causal import verdict_in_words
from inference.report.parts import Finding, Verdict
from inference.report.sections import Subject
from inference.report.verdicts import beside_rows, on_convergence, record_of, verdict
from inference.report.words import entry, listed, verdict_of
from inference.structures.layers.attributes import AttributeStructure
from ppl_models.parts.repr import counted

LEAST_EXPECTED = 0.8  # share of rows classified rightly, below which an attribute is flagged
CLEAR_GAIN = 10.0  # fall of BIC that is called clear
GOOD_RMSEA, FAIR_RMSEA, GOOD_SRMSR = 0.03, 0.045, 0.05


@verdict.register
def _(structure: AttributeStructure, subject: Subject) -> Verdict:
    questions = (
        _on_model,
        on_convergence,
        _on_identifiability,
        _on_fit,
        _on_items,
        _on_q,
        _on_law,
        _on_classification,
        _on_graph,
    )
    nothing = (
        "Nothing stands in the way: report attributes and profiles with the shares of rows that are"
        " expected to be classified rightly."
    )
    return verdict_of((ask(subject) for ask in questions), nothing=nothing)


def _on_model(subject: Subject) -> Finding | None:
    layer, names = structure_of_page(subject).layers[0], attributes_of(subject)
    rules = [
        rule
        for rule in dict.fromkeys(structure_of_page(subject).rule_names())
        if rule != "one attribute"
    ]
    shown = f"; items that ask for several are {' or '.join(rules)}" if rules else ""
    missing = "" if subject.data is None else _missing(subject)
    return Finding(
        "",
        "What was fitted?",
        (
            f"{counted(subject.fit.num_rows, 'row')}, "
            f"{counted(layer.num_items, 'item')} and "
            f"{counted(len(names), 'attribute')} "
            f"({listed(names)}){shown}{missing}."
        ),
    )


def _missing(subject: Subject) -> str:
    table = checked_as_fitted(subject.fit, subject.data)[0][
        :, : structure_of_page(subject).layers[0].num_items
    ]
    gone = int(table.isnan().sum())
    return (
        f"; {gone:,} of {table.numel():,} answers are missing and leave the likelihood"
        if gone
        else ""
    )


def _on_identifiability(subject: Subject) -> Finding | None:
    record = record_of(subject)
    said = record.get("verdict")
    if said not in entry("conditions"):
        return Finding("", "Do the answers determine the model?", "That was not decided.")
    mark, words, theory = entry("conditions")[said]
    question = "Do the answers determine the model?"
    if said in ("strict", "generic"):
        return beside_rows(subject, Finding(mark, question, words), theory)
    reasons = " ".join(record.get("reasons", ())[:2])
    alike, more = record.get("alike"), ""
    if alike:
        more = (
            " No item tells some profiles apart, so shares of single profiles, and who has which of"
            " them, rest on the start and not on the data."
        )
    step = (
        "Give every attribute items that ask for it alone (the section on identifiability names"
        " them), or join attributes; until then read no single profile."
    )
    more = f"{more} {reasons}".rstrip()
    return beside_rows(
        subject, Finding("bad" if alike else mark, question, words + more, step), theory + more
    )


def _on_fit(subject: Subject) -> Finding | None:
    found = subject.once(absolute)
    pairs = subject.once(dependence)
    more = f" {_on_pairs(pairs)}" if isinstance(pairs, LocalDependence) else ""
    question = "Does the model fit?"
    if isinstance(found, Refused) or not math.isfinite(found.m2):
        if isinstance(pairs, Refused):
            step = (
                "Write the page again with the data of the fit: fit.report(path, data)."
                if subject.data is None
                else ""
            )
            return Finding(
                "",
                question,
                "That could not be worked out here; the section on absolute fit says why.",
                step,
            )
        step = (
            "Look at the pairs of items that share more than the attributes explain."
            if pairs.dependent
            else ""
        )
        return Finding("care" if pairs.dependent else "good", question, more.strip(), step)
    low, high = found.rmsea2_interval
    numbers = (
        f"RMSEA2 {found.rmsea2:.3f} ({low:.3f} to {high:.3f}), SRMSR {found.srmsr:.3f}, M2 p ="
        f" {found.p_value:.2g}"
    )
    if found.rmsea2 < GOOD_RMSEA and found.srmsr < GOOD_SRMSR:
        return Finding("good", question, f"Well, by the usual marks: {numbers}.{more}")
    fair = found.rmsea2 < FAIR_RMSEA and found.srmsr < GOOD_SRMSR
    step = (
        "Find what the model misses before the profiles are used: items that misfit, entries of the"
        " Q-matrix, another rule (saturated items fit best)."
    )
    return Finding(
        "care" if fair else "bad",
        question,
        f"{'Fairly' if fair else 'Not well'}: {numbers}.{more}",
        step,
    )


def _on_pairs(pairs: LocalDependence) -> str:
    if not pairs.dependent:
        return "No pair of items shares more than the attributes explain."
    one, other = pairs.dependent[0]
    return (
        f"{len(pairs.dependent)} of {len(pairs.pairs):,} pairs of items share more or less than the"
        f" attributes explain, most of all {one} with {other}."
    )


def _on_items(subject: Subject) -> Finding | None:
    found, fallen = subject.once(fit_of_items), clear_falls(subject)
    if isinstance(found, Refused) and not fallen:
        return None
    off = () if isinstance(found, Refused) else found.misfitting
    words = []
    if off:
        words.append(
            f"{len(off)} of {subject.fit.structure.layers[0].num_items} items are not answered as"
            f" the model says: {listed(off)}."
        )
    elif not isinstance(found, Refused):
        words.append(
            "None is answered otherwise than the model says, as far as these rows can tell."
        )
    if fallen:
        words.append(
            f"On {listed(fallen)} those who have one attribute more are expected to do clearly"
            " worse."
        )
    which = list(dict.fromkeys([*off, *fallen]))
    many = len(which) > subject.fit.structure.layers[0].num_items / 3
    step = (
        "So many items misfit that the Q-matrix, the rule or the law of the answers is the likelier"
        " cause than single items: try other ones and compare."
        if many
        else (
            f"Look at {listed(which)}: wording and key, and their rows of the Q-matrix."
            if which
            else ""
        )
    )
    return Finding("care" if which else "good", "Do the items work?", " ".join(words), step)


def _on_q(subject: Subject) -> Finding | None:
    found = subject.once(q_validation)
    if isinstance(found, Refused):
        return None
    clear = [
        change.item
        for change in sorted(found.changes, key=lambda change: -change.gain)
        if change.gain > CLEAR_GAIN
    ]
    if not clear:
        return Finding(
            "good", "Does the Q-matrix hold?", "The answers speak clearly against no row of it."
        )
    words = (
        f"The answers speak clearly against {len(clear)} of {len(found.items)} rows of it:"
        f" {listed(clear)}."
    )
    step = (
        "Hold the rows of the Q-matrix that the answers speak against (section Q-matrix) against"
        " the wording of their items."
    )
    return Finding("care", "Does the Q-matrix hold?", words, step)


def _on_law(subject: Subject) -> Finding | None:
    fit, structure = subject.fit, structure_of_page(subject)
    question = "Does the law of the attributes fit?"
    size = structure.layers[0].num_parents
    if is_free(subject):
        if 2.0**size <= fit.num_rows / 2:
            return None
        step = (
            "Compare with root=HigherOrder() or another law of fewer numbers (smaller BIC is"
            " better): a free table is too large for so few rows."
        )
        return Finding(
            "care",
            question,
            f"It is a free table of {2**size:,} profiles, for {counted(fit.num_rows, 'row')}.",
            step,
        )
    found = subject.once(freed)
    if found is None:
        return None
    worth = 2 * found.gain - found.more * math.log(fit.num_rows)
    words = (
        f"A free table of profiles would raise the log-likelihood by about {found.gain:.0f} nats,"
        f" the items held, for {found.more:,} {'number' if found.more == 1 else 'numbers'} more"
    )
    if worth <= 0:
        return Finding("good", question, f"{words}: by BIC it is not worth them.")
    return Finding(
        "care",
        question,
        f"{words}, and by BIC it is worth them.",
        "Fit again with root=Saturated() (--root saturated) and compare.",
    )


def _on_classification(subject: Subject) -> Finding | None:
    found = subject.once(classified)
    if isinstance(found, Refused):
        return None
    names = attributes_of(subject)
    worst = int(np.argmin(found.attribute_accuracy))
    words = (
        f"The whole profile of a row is expected to be right for {100 * found.accuracy:.0f} % of"
        f" the rows; single attributes for {100 * found.attribute_accuracy[worst]:.0f} %"
        f" ({names[worst]}) to {100 * found.attribute_accuracy.max():.0f} %."
    )
    unknown = subject.once(undetermined)
    if unknown:
        words += (
            f" The answers do not determine {listed(unknown)}, so that these figures say nothing"
            " there."
        )
    doubtful = [
        name
        for name, share in zip(names, found.attribute_accuracy, strict=True)
        if share < LEAST_EXPECTED or name in unknown
    ]
    if not doubtful:
        return Finding(
            "good",
            "How surely are rows classified?",
            f"{words} That supposes that the model is right.",
        )
    low = [name for name in doubtful if name not in unknown]
    words += f" Below four in five: {', '.join(low)}." if low else ""
    step = (
        f"Do not report single rows on {', '.join(doubtful)}; more items that ask for it alone"
        " would help most."
    )
    return Finding("care", "How surely are rows classified?", words, step)


def _on_graph(subject: Subject) -> Finding | None:
    found = subject.once(graph)
    if isinstance(found, Refused):
        return None
    return Finding(
        "" if found.determined else "care",
        "What may cause what?",
        " ".join(verdict_in_words(found)[:3]),
    )
