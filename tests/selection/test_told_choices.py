"""Choices in a session and in a notebook."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from inference import EM, compare, fit
from inference.selection import select_dimension
from ppl_models import Mixture, Normal
from ppl_models.parts.repr import told, told_html


def test_a_headline_then_words_then_the_table() -> None:
    table = pd.DataFrame({"score": [1.23456, 2.0], "size": [1, 20000]})
    lines = told("Choice of 2", ["One. " * 40, "Two."], table).splitlines()
    assert lines[0] == "Choice of 2"
    assert max(map(len, lines[1:])) <= 100
    assert "  Two." in lines
    assert lines[-2].split() == ["0", "1.23", "1"]


def test_a_notebook_escapes_every_text() -> None:
    page = told_html("<b>2</b>", ["a < b"], pd.DataFrame({"<i>": ["<u>"]}))
    assert all(wrong not in page for wrong in ("<b>2", "a < b", "<i>", "<u>"))
    assert "a &lt; b" in page


def test_a_selection_says_what_was_chosen_and_shows_its_table(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    clouds = np.concatenate([generator.normal(-4, 1, (40, 1)), generator.normal(4, 1, (40, 1))])
    chosen = select_dimension(
        lambda k: Mixture(k, Normal()), clouds, (1, 2), "bic", method=EM(), num_restarts=1
    )
    lines = repr(chosen).splitlines()
    assert lines[0] == "Selection of 2 from 1, 2 by InformationCriterion(name='bic')"
    assert "log_likelihood" in lines[1]
    assert "<table" in chosen._repr_html_()  # noqa: SLF001
    page = chosen.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Verdict" in page


def test_a_comparison_says_who_wins() -> None:
    clouds = np.random.default_rng(0).normal(size=(40, 1))
    compared = compare(
        {"one": fit(Mixture(1, Normal()), clouds), "again": fit(Mixture(1, Normal()), clouds)},
        clouds,
    )
    lines = repr(compared).splitlines()
    assert lines[0] == "Comparison of 2 fits"
    assert compared.winner in " ".join(line.strip() for line in lines)
    assert "too close to call" in compared.winner
    assert "<table" in compared._repr_html_()  # noqa: SLF001
