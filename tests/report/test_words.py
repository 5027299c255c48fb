"""The catalogue of words: every sentence is used, and every placeholder is given where it is."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter

import inference.report
from inference.report.kinds.mixture import _percents
from inference.report.words import _catalogue, finding, percent, say

FOLDER = Path(inference.report.__file__).parent
SENTENCES = ("say", "finding")
LOOKED_UP = re.compile(
    r"(headings|criteria|conditions|columns\.|[\w.]+\.(tables|rivals|parts|meanings|scales))"
)


def keys(table: dict, before: str = "") -> dict[str, object]:
    """Every entry by its dotted key."""
    found: dict[str, object] = {}
    for name, value in table.items():
        inside = keys(value, f"{before}{name}.") if isinstance(value, dict) else None
        found |= {f"{before}{name}": value} if inside is None else inside
    return found


def calls() -> list[tuple[str, set[str], bool, str]]:
    """Pattern of the key, names of the values, whether others may come by ``**``, and the place."""
    found = []
    for file in sorted(FOLDER.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in SENTENCES:
                continue
            named = {word.arg for word in node.keywords if word.arg}
            is_open = any(word.arg is None for word in node.keywords)
            for pattern in patterns(node.args[0]):
                found.append((pattern, named, is_open, f"{file.name}:{node.lineno}"))
    return found


def patterns(node: ast.expr) -> list[str]:
    """Regular expressions of the keys that an expression may have."""
    if isinstance(node, ast.Constant):
        return [re.escape(str(node.value))]
    if isinstance(node, ast.IfExp):
        return [*patterns(node.body), *patterns(node.orelse)]
    if isinstance(node, ast.JoinedStr):
        out = [""]
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            texts = patterns(inner) if isinstance(inner, ast.IfExp | ast.Constant) else [r"[^.]*"]
            out = [before + text for before in out for text in texts]
        return out
    return [r"[^.]*"]


def placeholders(value: object) -> set[str]:
    texts = value if isinstance(value, list) else [value]
    return {name for text in texts for _, name, _, _ in Formatter().parse(str(text)) if name}


EVERY = keys(_catalogue())


def test_every_sentence_is_used_with_its_placeholders() -> None:
    every_call = calls()
    for key, value in EVERY.items():
        if not LOOKED_UP.match(key) and not key.endswith(".question"):
            uses = [call for call in every_call if re.fullmatch(call[0], key)]
            assert any(is_open or placeholders(value) <= named for _, named, is_open, _ in uses), (
                key
            )


def test_every_call_finds_a_sentence_and_gives_its_placeholders() -> None:
    for pattern, named, is_open, place in calls():
        found = [key for key in EVERY if re.fullmatch(pattern, key)]
        assert found, (place, pattern)
        if len(found) == 1 and not is_open:
            assert placeholders(EVERY[found[0]]) <= named, place


def test_findings_have_a_question_and_a_mark() -> None:
    for key, value in EVERY.items():
        if isinstance(value, list) and not LOOKED_UP.match(key):
            assert f"{key.rpartition('.')[0]}.question" in EVERY, key
            assert value[0] in ("", "good", "care", "bad", "{mark}"), key
            assert len(value) in (2, 3), key


def test_a_sentence_is_filled_in() -> None:
    assert say("size.left_out", left_out="3").startswith("Size 3 was left out")
    found = finding("q_matrix.settled.no", rounds="{2}")  # braces of a value are left alone
    assert (found.mark, found.question) == ("care", "Did the suggestions settle?")
    assert "after {2}." in found.answer
    assert percent(0.256) == "26 %"


def test_no_share_below_one_is_said_to_be_all():
    """Beside a group of 0.4 % the other one was said to be 100 % of the rows."""
    assert _percents([0.996, 0.004]) == "more than 99 % and 0.4 %"
    assert _percents([0.6, 0.4]) == "60 % and 40 %"
