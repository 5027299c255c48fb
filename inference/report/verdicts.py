"""Questions of a verdict that do not depend on the kind of model, and how questions become the head of a page."""

from __future__ import annotations

from collections.abc import Sequence

from inference.report.page import bullets, finding, heading
from inference.report.sections import Subject

__all__ = ["Answer", "listed", "on_convergence", "on_information", "written"]

MOST_LISTED = 6

Answer = tuple[str, str]  # HTML of a finding, and what to do about it ("" for nothing)


def written(answers: Sequence[Answer], nothing: str) -> str:
    """Findings, and what to do next: ``nothing`` where none of them asks for anything."""
    steps = [step for _, step in answers if step]
    return "".join(text for text, _ in answers) + heading("What to do next") + bullets(steps or [nothing])


def listed(names: Sequence[str]) -> str:
    """Names, the first few of many."""
    return ", ".join(names[:MOST_LISTED]) + (f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else "")


def on_convergence(subject: Subject) -> Answer:
    """Did the fit converge, and did other starts end there too?"""
    fit, question = subject.fit, "Did the fit converge?"
    words = fit.restarts.text()
    if not fit.converged:
        step = "Let the fit run on before anything is read from it: more iterations (EM(max_iterations=...)), or more starts."
        return finding("bad", question, f"No, it stopped after {fit.num_iterations:,} iterations. {words}"), step
    if fit.restarts.faults:
        step = "Read nothing from this fit yet: fit fewer components, or more starts, and look for equal values in the columns named."
        return finding("bad", question, f"It ended where no estimate should end. {words}"), step
    alone = fit.restarts.optimum is not None and fit.restarts.num_ended > 1 and fit.restarts.num_reached == 1
    step = "Fit again with more starts (num_restarts=20 or more): only one start reached the best optimum, so a better one may exist." if alone else ""
    return finding("care" if alone else "good", question, f"Yes. {words}"), step


def on_information(subject: Subject) -> Answer:
    """Do the data determine the parameters, as far as the information at the estimate says?"""
    question, found = "Do the data determine the estimates?", subject.identifiability
    record = {} if found is None or isinstance(found, str) else found.to_dict()  # type: ignore[attr-defined]
    if "is_full_rank" not in record:
        return finding("", question, "That was not decided: there are too few rows for so many parameters, or the rows cannot be judged one by one."), ""
    if record["is_full_rank"]:
        return finding("good", question, "Yes, near this estimate: no small change of it leaves the law of the data as it is."), ""
    named = listed(list(record["null_directions"][0]["coefficients"]))
    words = f"No: some estimates can be changed together without any change of the law of the data ({named})."
    return finding("bad", question, words), "Fit fewer components, or leave out columns, until the data determine the estimates; read no single one of them before."
