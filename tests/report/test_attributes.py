"""The page of an attribute model: its sections, what they say of doubtful attributes and reversed items, and pages without data."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from inference import EM, fit
from inference.report import write_report
from ppl_models import HigherOrder, Independent, LatentAttributeModel
from ppl_models.datasets import causal_attributes, mastery_test


def text_of(path: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r'src="[^"]*"', "", path.read_text(encoding="utf-8"))))


def test_the_page_of_a_test(tmp_path: Path) -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(800, seed=2)
    names = ["add", "carry", "borrow"]
    frame = pd.DataFrame(design.model.q_matrix, columns=names, index=[f"task {j}" for j in range(12)])
    rules = tuple("acdm" if j == 6 else "dina" for j in range(12))
    model = LatentAttributeModel(frame, items=rules, root=HigherOrder())
    table = pd.DataFrame(items.numpy(), columns=frame.index)
    result = fit(model, table, EM(tolerance=1e-6))
    text = text_of(write_report(result, table, tmp_path))
    for words in (
        "has or lacks 3 attributes (add, carry, borrow)",
        "expected share of rows classified rightly",
        "attributes that a row has",
        "Correlations of the attributes",
        "with all of it",
        "RMSEA2",
        "reproduced well by the usual marks",
        "task 11",
        "Otherwise for task 6: each attribute adds to the chance of a right answer",
        "θ ~ N(0, 1)",
    ):
        assert words in text, words
    chances = model.root_law().marginals(result.params)
    assert f"{float(chances[0]):.3f}" in text


@pytest.mark.parametrize("with_data", [True, False])
def test_other_responses(tmp_path: Path, with_data: bool) -> None:
    design = causal_attributes("tree")
    items, _ = design.draw(300, seed=1, missing=0.1)
    result = fit(LatentAttributeModel(design.model.q_matrix, design.model.response, root=Independent()), items, EM(tolerance=1e-5))
    text = text_of(write_report(result, items if with_data else None, tmp_path))
    assert "M2 is not worked out" in text if with_data else "How surely rows are classified needs the data" in text
    assert "16 most common of 32" in text


def test_a_doubtful_attribute_and_a_fall_are_named(tmp_path: Path) -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(800, seed=2)
    params = {name: value.clone() for name, value in design.params.items()}
    asks = torch.tensor(design.model.q_matrix)[:, 0] == 1
    params["loadings"][asks] /= -8  # nothing tells whether a row has the first attribute, and those who have it do a little worse
    result = replace(fit(design.model, items, EM(tolerance=1e-6)), params=params)
    text = text_of(write_report(result, items, tmp_path))
    assert "Do not report single rows on 0" in text
    assert "Where an attribute more lowers what is expected of an item" in text
    assert "not reproduced well" in text
