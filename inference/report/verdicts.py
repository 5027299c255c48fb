"""Questions of a verdict that do not depend on the kind of model, and how findings become the head of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inference.report.parts import Finding, Verdict
from inference.report.sections import Subject, determined

__all__ = ["listed", "on_convergence", "on_information", "verdict_of"]

MOST_LISTED = 8


def verdict_of(asked: Iterable[Finding | None], *always: str, nothing: str = "") -> Verdict:
    """Findings, and what to do next.

    Args:
        asked: None for a question that does not arise.
        always: steps that follow those of the findings; nothing: the step where there is no other.
    """
    findings = tuple(found for found in asked if found is not None)
    return Verdict(findings, tuple(found.step for found in findings if found.step) + always or (nothing,))


def listed(names: Sequence[str]) -> str:
    """Names, the first few of many."""
    return ", ".join(names[:MOST_LISTED]) + (f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else "")


def on_convergence(subject: Subject) -> Finding:
    """Did the fit converge, and did other starts end there too?"""
    fit, question = subject.fit, "Did the fit converge?"
    words = fit.restarts.text()
    if not fit.converged:
        step = "Let the fit run on before anything is read from it: more iterations (EM(max_iterations=...)), or more starts."
        return Finding("bad", question, f"No, it stopped after {fit.num_iterations:,} iterations. {words}", step)
    if fit.restarts.faults:
        step = "Read nothing from this fit yet: fit fewer components, or more starts, and look for equal values in the columns named."
        return Finding("bad", question, f"It ended where no estimate should end. {words}", step)
    alone = fit.restarts.optimum is not None and fit.restarts.num_ended > 1 and fit.restarts.num_reached == 1
    step = "Fit again with more starts (num_restarts=20 or more): only one start reached the best optimum, so a better one may exist." if alone else ""
    return Finding("care" if alone else "good", question, f"Yes. {words}", step)


def on_information(subject: Subject) -> Finding:
    """Do the data determine the parameters, as far as the information at the estimate says?"""
    question, found = "Do the data determine the estimates?", subject.once(determined)
    record = {} if found is None or isinstance(found, str) else found.to_dict()  # type: ignore[attr-defined]
    if "is_full_rank" not in record:
        return Finding("", question, "That was not decided: the rows of the fit are missing here, or too few for so many parameters, or cannot be judged one by one.")
    if record["is_full_rank"]:
        return Finding("good", question, "Yes, near this estimate: no small change of it leaves the law of the data as it is.")
    if "why" in record:
        return Finding("bad", question, f"No. {record['why']}", f"{record['remedy']} Read no single one of these estimates before.")
    named = listed(list(record["null_directions"][0]["coefficients"]))
    words = f"No: some estimates can be changed together without any change of the law of the data ({named})."
    return Finding("bad", question, words, "Fit fewer components, or leave out columns, until the data determine the estimates; read no single one of them before.")
