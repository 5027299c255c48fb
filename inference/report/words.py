"""Sentences of pages by key, from ``templates/words.toml``, their placeholders filled in."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from inference.report.parts import Finding, Verdict

FEWER = re.compile(
    r"\b(fewer|without) (latents|factors|components|groups|values|columns of the dictionary)", re.I
)  # what a step asks for


@functools.cache
def _catalogue() -> dict[str, Any]:
    file = Path(__file__).parent / "templates" / "words.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def entry(key: str) -> Any:
    """Return what the catalogue has under a dotted key: a sentence, a finding or a table."""
    return functools.reduce(lambda table, part: table[part], key.split("."), _catalogue())


def say(key: str, **values: Any) -> str:
    """Return the sentence under a key, with ``values`` in its placeholders."""
    return str(entry(key)).format(**values)


def finding(key: str, **values: Any) -> Finding:
    """Return the finding under a key: ``[mark, answer, step]`` and its table's question.

    Args:
        key: dotted.
        values: of the placeholders.
    """
    mark, answer, *step = (text.format(**values) for text in entry(key))
    return Finding(mark, say(f"{key.rpartition('.')[0]}.question", **values), answer, *step)


def verdict_of(
    asked: Iterable[Finding | None],
    *always: str,
    nothing: str = "",
    answer: str = "",
    about: str = "fit",
) -> Verdict:
    """Return findings, and what to do next.

    Args:
        asked: None for a question that does not arise.
        always: steps that follow those of the findings.
        nothing: the step where there is no other.
        answer: in one sentence.
        about: what is judged.
    """
    findings = tuple(found for found in asked if found is not None)
    steps = [step for step in (*(found.step for found in findings), *always) if step]
    if any(FEWER.search(step) for step in steps):  # then none asks for one more
        remedies, beside = (
            entry("predictive.parts.remedies"),
            entry("predictive.parts.beside_fewer"),
        )
        instead = {remedies[what]: words for what, words in beside.items()}
        steps = [instead.get(step, step) for step in steps]
    own = tuple(dict.fromkeys(steps)) or tuple(filter(None, (nothing,)))
    return Verdict(findings, own, answer, about)


def percent(share: float) -> str:
    """Return a share in whole per cent, of which no other than 0 and 1 is 0 or 100."""
    text = f"{100 * share:.0f} %"
    ends = {"0 %": "less than 1 %"} if share > 0 else {}
    return (ends | ({"100 %": "more than 99 %"} if share < 1 else {})).get(text, text)
