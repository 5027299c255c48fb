"""A page from its parts: what the templates make of texts, invisible marks, equations and empty
sections.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest

import inference.report
from inference.report.page import html_of, write_page
from inference.report.parts import (
    Details,
    Equations,
    Finding,
    Note,
    Paragraph,
    Picture,
    Section,
    Table,
    Verbatim,
    Verdict,
    Warned,
)

TURNED = "pass\u202eliaf\u202c"  # shown as "passfail" by a page that keeps the mark
MARKS = [
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    0x61C,
    0x200E,
    0x200F,
    0x0,
    0x1B,
    0x85,
    0xD800,
]


@pytest.mark.parametrize("code", MARKS, ids=hex)
def test_invisible_marks_are_written_out(code: int) -> None:
    shown = html_of([Paragraph(f"a{chr(code)}b")])
    assert f"a[U+{code:04X}]b" in shown
    assert chr(code) not in shown


def test_every_part_writes_them_out_and_escapes_the_rest(tmp_path: Path) -> None:
    text = f"{TURNED} <b> & שלום"
    parts = [
        Note(text),
        Equations((text, f"x_{{{text}}}")),
        Finding("bad", text, text),
        Verdict((Finding("", text, text),), (text,)),
        Warned([text]),
        Table([text], [[text]]),
        Verbatim(text),
        Details(text, [Paragraph(text)]),
    ]
    sections = [Section("all", text, parts), Section("none", "left out", ())]
    answer = SimpleNamespace(title=text, sections=sections)
    page = write_page(answer, tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.search("[\u202a-\u202e]", page)
    assert (
        page.count("pass[U+202E]liaf[U+202C] &lt;b&gt; &amp; שלום")
        == 2 + 2 + 1 + 2 + 2 + 3 + 1 + 2 + 1 + 2
    )  # title and heading, link and section, ...
    assert "left out" not in page


def test_indices_of_equations() -> None:
    shown = html_of([Equations(("Π_{k: a_{k} = 1} β^{(i)}", "low_weights {a, b}"))])
    assert "Π<sub>k: a</sub><sub><sub>k</sub></sub><sub> = 1</sub> β<sup>(i)</sup></p>" in shown
    assert "low_weights {a, b}" in shown


def test_what_is_laid_out_lies_in_the_templates() -> None:
    """No tag stands in a Python file; and the templates are found as a wheel holds them."""
    folder = Path(inference.report.__file__).parent
    for file in folder.rglob("*.py"):
        assert not re.search(
            r"</?(p|h\d|ul|li|t[dhr]|table|div|su[bp]|pre|figure|img|section)\b[^_]",
            file.read_text(encoding="utf-8"),
        ), file
    assert {
        path.name for path in resources.files("inference.report").joinpath("templates").iterdir()
    } == {"page.html", "page.css", "parts.html", "words.toml"}


def test_options_are_kept_on_one_line_and_escaped() -> None:
    words = "use --choose 1..6, or a--b, or ---, or <--free-items>"
    shown = html_of([Note(words), Warned([words]), Finding("good", "Why?", words)])
    assert shown.count('<span class="option">--choose</span> 1..6') == 3
    assert shown.count('&lt;<span class="option">--free-items</span>&gt;') == 3
    assert shown.count('class="option"') == 6


def test_what_is_wider_or_longer_than_a_screen_says_so() -> None:
    pictures = [Picture("a picture", "", width) for width in (500, 700, 1300)]
    assert [own.classes for own in pictures] == ["", "broad", "broader"]
    assert "--least: 845px" in html_of(pictures)
    numbers = [["item", "0.123 (0.456)", "0.123 (0.456)", "0.123 (0.456)"]] * 30
    long = Table(("name", "guessing", "slipping", "difference"), numbers)
    assert 'class="wide long broad" data-lines="30"' in html_of([long])
    small = Table(("a", "b"), [["0", "1"]] * 20)
    assert 'class="wide"' in html_of([small])
    assert not Table((), []).is_broad
