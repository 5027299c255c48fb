"""Questions of a verdict that do not depend on the kind of model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from inference.base.diagnostics import ess_of_draws, rhat_of_draws
from inference.base.structure import Structure
from inference.fitting.columns import with_names
from inference.fitting.record import ONE_START
from inference.fitting.repr import rows_in_words
from inference.fitting.result import Fit
from inference.identifiability.of_fit import ROWS_EACH
from inference.inspection.classification import ClassAccuracy
from inference.predictive import LEAST_ROWS
from inference.report.latent_use import (
    LatentUse,
    certainty,
    classified_in_words,
    latent_use,
    shared_values,
)
from inference.report.parts import Finding, Verdict
from inference.report.predictive_words import column_names, departures_in_words, remedy_of
from inference.report.sections import (
    HasRecord,
    Subject,
    checks_of,
    determined,
    has_bounds,
    locally,
    warned,
)
from inference.report.words import entry, finding, percent, say, verdict_of
from ppl_models.parts.repr import counted, listed

LIMITS = (
    "max_iterations",
    "max_sweeps",
    "max_epochs",
    "num_steps",
    "num_draws",
    "num_samples",
)  # of engines
RARE = 0.01  # share of rows below which a latent is hardly ever on
SAME = 0.95  # correlation of the chances of two latents that say the same
MOST_COMPARED = 60  # latents whose chances are compared
LEAST_RIGHT = (
    0.8  # chance of the most probable value, below which single rows are not to be reported
)
MOST_SHARED = 6  # latents that all rows have in common, named in the verdict
MOST_UNSURE = 0.5  # share of rows in which a latent may be unsure
MOST_RHAT = 1.05  # of draws that are nearly settled
ONE_OPTIMUM = 1.0  # nats within which starts have ended at optima that are as good
NEAR = 0.1  # standard errors to the optimum, within which an estimate is as good as there


@functools.singledispatch
def verdict(structure: Structure, subject: Subject) -> Verdict:
    """Verdict on the fit; refined by kinds of description."""
    fit, asked = subject.fit, (on_convergence, on_determination, on_latents, on_prediction)
    words = (
        f"{rows_in_words(fit)}, by the program {fit.model_name} with"
        f" {counted(fit.num_parameters, 'free parameter')}."
    )
    step = say("fit.comparison_step")
    return verdict_of([what_was_fitted(words), *(ask(subject) for ask in asked)], step)


def what_was_fitted(words: str) -> Finding:
    """Return the finding that names model and rows."""
    return finding("fit.what_was_fitted.all", words=words)


def on_convergence(subject: Subject) -> Finding:
    """Did the fit converge, and did other starts end there too?"""
    fit, restarts, longer = subject.fit, subject.fit.restarts, _longer(subject)
    if not fit.converged and fit.draws is not None:
        value = "; ".join(warned(fit.structure, subject)[:2]) or "the draws have not settled"
        kind = "unsettled" if is_nearly_settled(fit) else "refused"
        return finding(f"fit.convergence.{kind}", value=value, longer=longer)
    rest, near = distance_in_words(subject)
    word = f"{rest} " if rest else ""
    values: dict[str, Any] = {"words": restarts.text(), "rest": rest, "word": word}
    values["iterations"] = counted(fit.num_iterations, "iteration")
    if len(restarts.objective) == 1 and fit.draws is None:
        values["words"] = values["words"] or ONE_START
    elif not word and not values["words"]:
        of = "the best of several starts" if len(restarts.objective) > 1 else "one start"
        values["word"] = say("fit.one_run", iterations=values["iterations"], of=of)
    if not fit.converged:
        kind = "nearly" if near else "stopped"
        return finding(f"fit.convergence.{kind}", longer=longer, **values)
    if restarts.faults:
        return finding("fit.convergence.degenerate", **values)
    alone = restarts.optimum is not None and restarts.num_ended > 1 and restarts.num_reached == 1
    gap = _gap_of_best(fit)
    if gap > ONE_OPTIMUM:
        alone, num = True, len(restarts.objective)
        values["word"] = f"{values['word'].rstrip()} ".lstrip()
        values["words"] = say("fit.best_alone", num=counted(num, "start"), gap=f"{gap:,.4g}")
    step = say("fit.starts_step", num=restarts.num_next) if alone else ""
    if rest and not near:
        engine = type(fit.method).__name__
        smaller = say("fit.smaller_tolerance", engine=engine)
        step = smaller if hasattr(fit.method, "tolerance") else step
        return finding("fit.convergence.doubtful", step=step, **values)
    if restarts.is_ambiguous:
        return finding("fit.convergence.ambiguous", **values)
    return finding("fit.convergence.all", mark="care" if alone else "good", step=step, **values)


def _gap_of_best(fit: Fit) -> float:
    """Nats from the best start to the next, of engines that do not compare optima themselves."""
    ends = np.sort(np.asarray(fit.restarts.objective, dtype=np.float64))[::-1]
    ends = ends[np.isfinite(ends)]
    is_compared = fit.restarts.optimum is not None or fit.objective_name.endswith("per row")
    return 0.0 if is_compared or len(ends) < 2 else float(ends[0] - ends[1])


def is_nearly_settled(fit: Fit) -> bool:
    """Tell whether chains that have not converged are near to it: a small R-hat, one warning."""
    return fit.draws is not None and len(fit.warnings) == 1 and worst_draws(fit)[0] <= MOST_RHAT


def worst_draws(fit: Fit) -> tuple[float, float]:
    """R-hat and effective sample size of the least settled parameters; infinite without draws."""
    draws = {
        name: x for name, x in (fit.draws or {}).items() if name not in fit.structure.local_sites
    }
    if not draws:
        return np.inf, np.inf
    rhats = [float(x.nan_to_num(nan=0.0).max()) for x in rhat_of_draws(draws).values()]
    sizes = [float(x.nan_to_num(nan=np.inf).min()) for x in ess_of_draws(draws).values()]
    return max(rhats, default=np.inf), min(sizes, default=np.inf)


def distance_in_words(subject: Subject) -> tuple[str, bool]:
    """Return how far the optimum is in words, and whether that is near."""
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
        off = " off its bound" if has_bounds(subject.estimates) else ""
        return say("fit.distance_near", off=off, max=max(farthest, 0.001)), True
    values = {"entry": with_names(fit, name, subject.entry_names), "farthest": farthest}
    return say("fit.distance_far", objective=rest.objective, **values), False


def _longer(subject: Subject) -> str:
    method = subject.fit.method
    own = {field.name for field in dataclasses.fields(method)}
    limit = next((name for name in LIMITS if name in own), "")
    what = "more draws" if limit in ("num_draws", "num_samples") else "more iterations"
    return f"{what} ({type(method).__name__}({limit}=...))" if limit else what


def record_of(subject: Subject) -> dict[str, Any]:
    """Return the record of identifiability as plain values; empty where unknown."""
    found = subject.once(determined)
    return found.to_dict() if isinstance(found, HasRecord) else {}


def why_undecided(subject: Subject) -> str:
    """Reason why nothing is said of what the data determine, in words."""
    fit = subject.fit
    if subject.data is None:
        return say("fit.no_rows")
    if fit.structure.local_sites:
        return say("fit.of_rows", sites=listed(list(fit.structure.local_sites)))
    seen, size = fit.num_observations or fit.num_rows, fit.num_parameters
    can_tell = fit.structure.why_no_standard_errors(fit.params) is None
    if can_tell and seen < ROWS_EACH * size:
        return say("fit.few_rows", seen=seen, size=size)
    return say("fit.not_looked_at")


def on_determination(subject: Subject) -> Finding:
    """Return whether the data determine the parameters, by theorems, rank or errors."""
    record, local, held = record_of(subject), subject.once(locally), ""
    if local is not None and local.num_held:
        its, is_ = ("its", "is") if local.num_held == 1 else ("their", "are")
        num = counted(local.num_held, "number")
        held = f" {num} on the end of {its} range {is_} held there."
    if record.get("verdict") in entry("conditions"):
        mark, words, theory = entry("conditions")[record["verdict"]]
        words += say("fit.unnamed") if "layers" in record and mark == "good" else ""
        step = "" if mark == "good" else _settling(record)
        found = finding("fit.determination.all", mark=mark, words=words, step=step)
        return beside_rows(subject, found, theory)
    if "is_full_rank" not in record:
        if local is not None and (local.num_open or local.is_flat):
            return beside_rows(subject, finding("fit.determination.no_finding"), "")
        if local is not None:
            return finding("fit.determination.standard_errors", held=held)
        if subject.fit.draws is not None:
            return finding("fit.determination.draws")
        return finding("fit.determination.unknown", reason=why_undecided(subject))
    if not record["is_full_rank"] and "why" in record:
        return finding("fit.determination.refused", record=record["why"], record_2=record["remedy"])
    if not record["is_full_rank"]:
        named = _named(subject, record["null_directions"][0]["coefficients"])
        words = say("fit.directions_open", named=named)
        return finding("fit.determination.undetermined", words=words)
    information = record.get("information", record)
    if information.get("is_faint"):
        coefficients = information["weakest"]["coefficients"]
        words = say("fit.directions_weak", subject=_named(subject, coefficients))
        if subject.data is not None and subject.estimates.is_flat:
            note = with_names(subject.fit, subject.estimates.note, subject.entry_names)
            words += f" {say('fit.rows_open_too', note=note)}"
        return finding("fit.determination.open_entries", words=words)
    if subject.data is not None and subject.estimates.is_flat:
        words = say("fit.directions_unsure", note=subject.estimates.note)
        return finding("fit.determination.flat", words=words)
    found = finding("fit.determination.local", held=held)
    return _of_few_rows(subject, found, say("fit.large_sample"))


def _settling(record: dict[str, Any]) -> str:
    """Step that a verdict of theorems asks for, by what layers that fall short have below them."""
    layers = enumerate(record.get("layers", ()))
    short = [d for d, layer in layers if layer["verdict"] not in ("strict", "generic")]
    return say(f"fit.{'latents_step' if any(short) else 'identifiability_step'}")


def beside_rows(subject: Subject, finding: Finding, theory: str) -> Finding:
    """Return theorems on a model beside the evidence of the rows near the estimate.

    Args:
        subject: of the page.
        finding: by the theorems alone.
        theory: what it says where the rows leave the estimate open.
    """
    local, fit = subject.once(locally), subject.fit
    if local is None:
        return _of_few_rows(subject, finding, theory)
    if finding.mark == "bad" and (local.num_open or local.is_flat):
        words = with_names(fit, local.text(), subject.entry_names)
        return Finding("bad", finding.question, f"{finding.answer} {words}", finding.step)
    if local.num_open:
        words = f"No. {with_names(subject.fit, local.text(), subject.entry_names)} {theory}"
        step = say("fit.undetermined_step")
        return Finding("bad", finding.question, words.strip(), finding.step or step)
    if local.is_flat:
        note = with_names(fit, local.note, subject.entry_names)
        words, step = f"Not at this estimate: {note}. {theory}", say("fit.no_interval")
        return Finding("care", finding.question, words.strip(), finding.step or step)
    if finding.mark == "good":
        return finding
    near = f"{with_names(fit, local.text(), subject.entry_names)} {say('fit.elsewhere')}"
    return Finding(finding.mark, finding.question, f"{finding.answer} {near}", finding.step)


def _of_few_rows(subject: Subject, finding: Finding, theory: str) -> Finding:
    """Return a finding on the model, taken back where rows are fewer than the free numbers."""
    fit = subject.fit
    seen, size = fit.num_observations or fit.num_rows, fit.num_parameters
    is_read = subject.data is not None and subject.estimates.source
    if finding.mark != "good" or seen >= size or fit.draws is not None or is_read:
        return finding
    words = say("fit.rows_too_few", seen=seen, size=size, theory=theory)
    return Finding("care", finding.question, words, say("fit.more_rows"))


def _named(subject: Subject, entries: Iterable[str]) -> str:
    return listed([with_names(subject.fit, entry, subject.entry_names) for entry in entries])


def on_latents(subject: Subject) -> Finding | None:
    """Use of each latent, and how well the data determine its values."""
    uses = subject.once(latent_use) if subject.data is not None else []
    shared = subject.once(shared_values) if subject.data is not None else []
    if not uses and not shared:
        return None
    found = subject.once(certainty) if len(uses) == 1 and uses[0].is_choice else None
    parts = [_on_values(use, found) if use.is_choice else _on_bits(use) for use in uses]
    steps = list(dict.fromkeys(step for _, step in parts if step))
    mark = "bad" if found is not None and found.worthless else "care" if steps else "good"
    step = " ".join(steps)
    words = " ".join([*(said for said, _ in parts), *_on_shared(shared)])
    return finding("fit.latents.all", mark=mark, words=words, step=step)


def _on_shared(shared: Sequence[tuple[str, np.ndarray]]) -> list[str]:
    """Latents that all rows have in common: the most probable value of each."""
    values = [
        f"{name} is {chances.argmax()} (probability {min(chances.max(), 0.999):.3g})"
        for name, chances in shared[:MOST_SHARED]
    ]
    more = len(shared) - len(values)
    and_more = f"; {more:,} more are in the section on latents" if more else ""
    return [say("fit.shared_latents", values=listed(values), more=and_more)] if values else []


def _on_bits(use: LatentUse) -> tuple[str, str]:
    """Latents that are on or off: words, and a step where there is something to do."""
    shares, unsure, names = use.shares, use.unsure, [f"{use.site}[{label}]" for label in use.labels]
    idle = [name for name, on in zip(names, shares, strict=True) if not RARE <= on <= 1 - RARE]
    twins = _twins(use, names)
    vague = [name for name, share in zip(names, unsure, strict=True) if share > MOST_UNSURE]
    on = " to ".join(dict.fromkeys([percent(shares.min()), percent(shares.max())]))
    values = {"mean": percent(unsure.mean()), "right": percent(abs(use.on - 0.5).mean() + 0.5)}
    words = [say("fit.latent_shares", site=use.site, on=on, unit=use.unit, **values)]
    words += [f"On in almost none or almost all of them: {listed(idle)}."] if idle else []
    words += [f"Nearly always on and off together: {listed(twins)}."] if twins else []
    words += [f"Unsure in most {use.unit}s: {listed(vague)}."] if vague else []
    step = f"Do not report single {use.unit}s on {listed(vague)}." if vague else ""
    return " ".join(words), say("fit.fewer_latents") if idle or twins else step


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
    words = say("fit.accuracy", site=use.site, sure=percent(sure), unit=use.unit)
    if found is not None:
        sure, words = found.accuracy, f"{use.site}: {classified_in_words(found, use.unit)}"
    words += f" No {use.unit} most probably has the value {listed(empty)}." if empty else ""
    if found is not None and found.worthless:
        return words, say("fit.categories_step", site=use.site, unit=use.unit)
    if empty:
        return words, f"Fit fewer values of {use.site}: some are nowhere the most probable."
    is_unsure = sure < LEAST_RIGHT
    return words, say("fit.classification_step", unit=use.unit, site=use.site) if is_unsure else ""


def on_prediction(subject: Subject) -> Finding:
    """Are data drawn from the fit like the data?"""
    if subject.fit.row_weights is not None:
        return finding("fit.prediction.weighted")
    if subject.data is None:
        return finding("fit.prediction.unknown")
    checks = subject.once(checks_of)
    found = {name: check.departures() for name, check in checks.items()}
    off = next((name for name, own in found.items() if own), None)
    name = max(checks, key=lambda name: len(checks[name].observed)) if off is None else off
    check = checks[name]
    words = departures_in_words(check, column_names(subject.fit, check), name)
    if off is not None:
        at, step = f"Of {off}: " if len(checks) > 1 else "", remedy_of(found[off], check, off)
        return finding("fit.prediction.misfit", at=at, words=words, step=step)
    mark = "good" if len(checks[name].observed) >= LEAST_ROWS else ""
    sites = subject.fit.structure.local_sites
    if sites:
        mark, words = "", words + say("predictive.local_rows", sites=listed(list(sites)))
    return finding("fit.prediction.all", mark=mark, words=words)
