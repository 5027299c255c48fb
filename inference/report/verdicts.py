"""Questions of a verdict that do not depend on the kind of model, and how findings become the head
of a page.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from inference.base.structure import Structure
from inference.fitting.names import with_names
from inference.fitting.repr import rows_in_words
from inference.inspection.classification import ClassAccuracy
from inference.predictive import LEAST_ROWS
from inference.report.latent_use import LatentUse, certainty, classified_in_words, latent_use
from inference.report.parts import Finding, Verdict
from inference.report.predictive_words import column_names, departures_in_words, remedy_of
from inference.report.sections import HasRecord, Subject, checks_of, determined, locally
from inference.report.words import entry, listed, verdict_of
from ppl_models.parts.repr import counted

LIMITS = (
    "max_iterations",
    "max_sweeps",
    "max_epochs",
    "num_steps",
    "num_draws",
)  # of engines: what lets them run on
RARE = 0.01  # share of rows below which a latent is hardly ever on
SAME = 0.95  # correlation of the chances of two latents that say the same
MOST_COMPARED = 60  # latents whose chances are compared
LEAST_RIGHT = (
    0.8  # chance of the most probable value, below which single rows are not to be reported
)
MOST_UNSURE = 0.5  # share of rows in which a latent may be unsure
NEAR = 0.1  # standard errors to the optimum, within which an estimate is as good as there
# eigenvalue of the information, scaled so that 1 is not confounded, below which a direction is
# hardly determined
FAINT = 1e-6


@functools.singledispatch
def verdict(structure: Structure, subject: Subject) -> Verdict:
    """What to make of the fit, before anything else; a kind of description says it better."""
    fit, asked = subject.fit, (on_convergence, on_determination, on_latents, on_prediction)
    words = (
        f"{rows_in_words(fit)}, by the program {fit.model_name} with"
        f" {counted(fit.num_parameters, 'free number')}."
    )
    step = (
        "Compare with what else might hold: fit other programs, or other sizes of this one, to the"
        " same data (inference.compare)."
    )
    return verdict_of([what_was_fitted(words), *(ask(subject) for ask in asked)], step)


def what_was_fitted(words: str) -> Finding:
    return Finding("", "What was fitted?", words)


def on_convergence(subject: Subject) -> Finding:
    """Did the fit converge, and did other starts end there too?"""
    fit, question = subject.fit, "Did the fit converge?"
    words = fit.restarts.text()
    if not fit.converged and fit.draws is not None:
        step = f"Read nothing from these draws yet: {_longer(subject)}."
        return Finding(
            "bad",
            question,
            f"No: {'; '.join(fit.warnings[:2]) or 'the draws have not settled'}.",
            step,
        )
    rest, near = _rest_in_words(subject)
    if not fit.converged and near:
        return Finding(
            "care",
            question,
            f"Nearly. It stopped after {fit.num_iterations:,} iterations. {rest} {words}",
            "",
        )
    if not fit.converged:
        step = (
            f"Let the fit run on before anything is read from it: {_longer(subject)}, or more"
            " starts."
        )
        return Finding(
            "bad",
            question,
            f"No, it stopped after {fit.num_iterations:,} iterations."
            f" {f'{rest} ' if rest else ''}{words}",
            step,
        )
    if fit.restarts.faults:
        step = (
            "Read nothing from this fit yet: fit fewer components, or more starts, and look for"
            " equal values in the columns named."
        )
        return Finding("bad", question, f"It ended where no estimate should end. {words}", step)
    alone = (
        fit.restarts.optimum is not None
        and fit.restarts.num_ended > 1
        and fit.restarts.num_reached == 1
    )
    step = (
        "Fit again with more starts (num_restarts=20 or more): only one start reached the best"
        " optimum, so a better one may exist."
        if alone
        else ""
    )
    if rest and not near:
        step = (
            "Fit again with a smaller tolerance, such as"
            f" {type(fit.method).__name__}(tolerance=1e-12)."
            if hasattr(fit.method, "tolerance")
            else step
        )
        return Finding("care", question, f"It came to rest. {rest} {words}", step)
    if fit.restarts.is_ambiguous:
        step = (
            "Compare the estimates of the starts (fit.restarts.params) before you interpret them:"
            " two of them fit equally well and differ by more than names."
        )
        return Finding(
            "care",
            question,
            f"Yes, but not to one answer. {f'{rest} ' if rest else ''}{words}",
            step,
        )
    return Finding(
        "care" if alone else "good", question, f"Yes. {f'{rest} ' if rest else ''}{words}", step
    )


def _rest_in_words(subject: Subject) -> tuple[str, bool]:
    """How far the optimum is, as slope and curvature tell, and whether that is near; nothing where
    they do not.
    """
    fit = subject.fit
    if (
        subject.data is None
        or fit.draws is not None
        or not fit.objective_name.startswith("log-posterior")
    ):
        return "", False
    rest = subject.estimates.to_optimum
    if rest is None:
        return "", False
    farthest, name = rest.largest
    if farthest < NEAR:
        return (
            (
                f"Slope and curvature say that no estimate is more than {max(farthest, 0.001):.1g}"
                " standard errors away from the optimum."
            ),
            True,
        )
    entry = with_names(fit, name, subject.names)
    return (
        (
            f"Slope and curvature say that the optimum is {rest.objective:.2g} nats higher, and"
            f" {entry} {farthest:.2g} standard errors away from it."
        ),
        False,
    )


def _longer(subject: Subject) -> str:
    method = subject.fit.method
    own = {field.name for field in dataclasses.fields(method)}
    limit = next((name for name in LIMITS if name in own), "")
    return f"more iterations ({type(method).__name__}({limit}=...))" if limit else "more iterations"


def record_of(subject: Subject) -> dict[str, Any]:
    """What was found of identifiability, as plain values; empty where nothing can be said or it
    came as a text.
    """
    found = subject.once(determined)
    return found.to_dict() if isinstance(found, HasRecord) else {}


def on_determination(subject: Subject) -> Finding:
    """Do the data determine the parameters: by the theorems of the kind, else by the information at
    the estimate, else by the standard errors of the page.
    """
    question, record = "Do the data determine the estimates?", record_of(subject)
    local = subject.once(locally)
    held = (
        ""
        if local is None or not local.num_held
        else (
            f" {counted(local.num_held, 'number')} on the end of"
            f" {'its' if local.num_held == 1 else 'their'} range"
            f" {'is' if local.num_held == 1 else 'are'} held there."
        )
    )
    if record.get("verdict") in entry("conditions"):
        mark, words, theory = entry("conditions")[record["verdict"]]
        step = (
            ""
            if mark == "good"
            else (
                "Do not interpret single latents before that is settled; the section on"
                " identifiability says which items would settle it."
            )
        )
        return beside_rows(subject, Finding(mark, question, words, step), theory)
    if "is_full_rank" not in record:
        if local is not None and (local.num_open or local.is_flat):
            return beside_rows(subject, Finding("", question, ""), "")
        if local is not None:
            return Finding(
                "good",
                question,
                "Yes, near this estimate: every change of it lowers the likelihood, so that every"
                f" free number has a standard error.{held}",
            )
        if subject.fit.draws is not None:
            return Finding(
                "",
                question,
                "Posterior draws say that themselves: what the data leave open has wide intervals"
                " below, or draws that mix badly.",
            )
        return Finding(
            "",
            question,
            "That was not decided: the rows of the fit are missing here, or too few for so many"
            " parameters, or cannot be judged one by one.",
        )
    if not record["is_full_rank"] and "why" in record:
        return Finding(
            "bad",
            question,
            f"No. {record['why']}",
            f"{record['remedy']} Read no single one of these estimates before.",
        )
    if not record["is_full_rank"]:
        named = _named(subject, record["null_directions"][0]["coefficients"])
        words = (
            "No: some estimates can be changed together without any change of the law of the data"
            f" ({named})."
        )
        return Finding(
            "bad",
            question,
            words,
            "Fit fewer components, or leave out columns, until the data determine the estimates;"
            " read no single one of them before.",
        )
    weakest = record.get("information", record).get("weakest")
    if weakest is not None and weakest["eigenvalue"] < FAINT:
        words = (
            "Hardly: the law of the data is all but the same if these change together:"
            f" {_named(subject, weakest['coefficients'])}."
        )
        return Finding(
            "care",
            question,
            words,
            "Do not interpret these numbers one by one; more rows, fewer latents, or priors that"
            " say more would settle them.",
        )
    if subject.data is not None and subject.estimates.is_flat:
        words = (
            "Perhaps not: the law of the data changes with every estimate, but"
            f" {subject.estimates.note}."
        )
        return Finding(
            "care",
            question,
            words,
            "Read no single number without an interval; let the fit run on, or ask for less.",
        )
    return Finding(
        "good",
        question,
        "Yes, near this estimate: no small change of it leaves the law of the data as it"
        f" is.{held}",
    )


def beside_rows(subject: Subject, finding: Finding, theory: str) -> Finding:
    """What theorems say of a model, beside what the rows of the fit say near the estimate, so that
    neither denies the other.

    Args:
        finding: by the theorems alone; theory: what it says where the rows leave the estimate open.
    """
    local, fit = subject.once(locally), subject.fit
    seen, size = fit.num_observations or fit.num_rows, fit.num_parameters
    if local is None and finding.mark == "good" and seen < size and fit.draws is None:
        words = (
            f"Whether these rows do is not shown: they are fewer ({seen:,.0f}) than the free"
            f" numbers ({size:,}). {theory}"
        )
        return Finding(
            "care",
            finding.question,
            words,
            "Take more rows, or a model of fewer numbers, before single estimates are read.",
        )
    if local is None:
        return finding
    if finding.mark == "bad" and (local.num_open or local.is_flat):
        words = with_names(fit, local.text(), subject.names)
        return Finding("bad", finding.question, f"{finding.answer} {words}", finding.step)
    if local.num_open:
        words = f"No. {with_names(subject.fit, local.text(), subject.names)} {theory}"
        step = (
            "Read no single one of these estimates. Fit fewer latents, or add columns or rows,"
            " until the data determine them."
        )
        return Finding("bad", finding.question, words.strip(), finding.step or step)
    if local.is_flat:
        step = "Read no single number without an interval; let the fit run on, or ask for less."
        words = (
            f"Not at this estimate: {with_names(subject.fit, local.note, subject.names)}. {theory}"
        )
        return Finding("care", finding.question, words.strip(), finding.step or step)
    if finding.mark == "good":
        return finding
    near = (
        f"{with_names(fit, local.text(), subject.names)} Other solutions, if there are any, are"
        " elsewhere."
    )
    return Finding(finding.mark, finding.question, f"{finding.answer} {near}", finding.step)


def _named(subject: Subject, entries: Iterable[str]) -> str:
    return listed([with_names(subject.fit, entry, subject.names) for entry in entries])


def on_latents(subject: Subject) -> Finding | None:
    """Is each latent of use, and how surely do the data tell its values?"""
    uses = subject.once(latent_use) if subject.data is not None else []
    if not uses:
        return None
    found = subject.once(certainty) if len(uses) == 1 and uses[0].is_choice else None
    parts = [_on_values(use, found) if use.is_choice else _on_bits(use) for use in uses]
    steps = list(dict.fromkeys(step for _, step in parts if step))
    mark = "bad" if found is not None and found.worthless else "care" if steps else "good"
    return Finding(
        mark, "Are the latents of use?", " ".join(words for words, _ in parts), " ".join(steps)
    )


def _on_bits(use: LatentUse) -> tuple[str, str]:
    """Latents that are on or off: words, and a step where there is something to do."""
    shares, unsure, names = use.shares, use.unsure, [f"{use.site}[{label}]" for label in use.labels]
    idle = [
        name for name, share in zip(names, shares, strict=True) if not RARE <= share <= 1 - RARE
    ]
    twins = _twins(use, names)
    vague = [name for name, share in zip(names, unsure, strict=True) if share > MOST_UNSURE]
    on = " to ".join(dict.fromkeys([_percent(shares.min()), _percent(shares.max())]))
    words = [
        f"{use.site}: on in {on} of the {use.unit}s; in {_percent(unsure.mean())} of them, on"
        " average, the data do not tell whether."
    ]
    words += [f"On in almost none or almost all of them: {listed(idle)}."] if idle else []
    words += [f"Nearly always on and off together: {listed(twins)}."] if twins else []
    words += [f"In most of them that is open for {listed(vague)}."] if vague else []
    step = (
        "Fit fewer latents: some hardly ever change, or say what another one says."
        if idle or twins
        else ""
    )
    return " ".join(words), step or (
        f"Do not report single {use.unit}s on {listed(vague)}." if vague else ""
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _twins(use: LatentUse, names: Sequence[str]) -> list[str]:
    varying = np.flatnonzero(use.on.std(0) > 0.05)[:MOST_COMPARED]
    if len(varying) < 2:
        return []
    together = np.corrcoef(use.on[:, varying].T)
    return [
        f"{names[varying[i]]} and {names[varying[j]]}"
        for i, j in zip(*np.triu_indices(len(varying), 1), strict=True)
        if together[i, j] > SAME
    ]


def _on_values(use: LatentUse, found: ClassAccuracy | None) -> tuple[str, str]:
    """A latent with several values, of which each row has one."""
    sure, most = float(use.on.max(-1).mean()), use.on.argmax(-1)
    empty = [label for k, label in enumerate(use.labels) if not (most == k).any()]
    words = (
        f"{use.site}: {_percent(sure)} of the {use.unit}s are expected to be classified correctly,"
        " if the model is right and its estimates are the truth."
    )
    if found is not None:
        sure, words = found.accuracy, f"{use.site}: {classified_in_words(found, use.unit)}"
    words += f" No {use.unit} most probably has the value {listed(empty)}." if empty else ""
    if found is not None and found.worthless:
        return (
            words,
            (
                f"Fit fewer values of {use.site}, or more {use.unit}s; do not report single"
                f" {use.unit}s."
            ),
        )
    if empty:
        return words, f"Fit fewer values of {use.site}: some are nowhere the most probable."
    return (
        words,
        (
            f"Do not report single {use.unit}s; work with the chances of all values of {use.site}"
            " (fit.posterior_latents(data))."
            if sure < LEAST_RIGHT
            else ""
        ),
    )


def on_prediction(subject: Subject) -> Finding:
    """Are data drawn from the fit like the data?"""
    question = "Does the model describe the data?"
    if subject.fit.row_weights is not None:
        return Finding("", question, "That is not worked out for weighted rows.")
    if subject.data is None:
        return Finding(
            "",
            question,
            "That was not looked at: it needs the data.",
            "Write the page again with the data of the fit: fit.report(path, data).",
        )
    checks = subject.once(checks_of)
    found = {name: check.departures() for name, check in checks.items()}
    off = next((name for name, own in found.items() if own), None)
    if off is not None:
        at = f"Of {off}: " if len(checks) > 1 else ""
        return Finding(
            "care",
            question,
            "Not in everything."
            f" {at}{departures_in_words(checks[off], column_names(subject.fit, checks[off]))}",
            remedy_of(found[off]),
        )
    name = max(checks, key=lambda name: len(checks[name].observed))
    words = departures_in_words(checks[name], column_names(subject.fit, checks[name]))
    return Finding("good" if len(checks[name].observed) >= LEAST_ROWS else "", question, words)
