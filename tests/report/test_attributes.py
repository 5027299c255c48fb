"""The page of an attribute model: its sections, what they say of doubtful attributes and reversed
items, and pages without data.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import inference.uncertainty
from inference import EM, fit
from inference.causal import discover_attributes
from inference.inspection import item_curves, profile_shares
from inference.report import write_report
from inference.report.causal import causal_parts, causal_record, causal_verdict
from inference.report.page import html_of
from ppl_models import AttributeGroups, HigherOrder, Independent, LatentAttributeModel
from ppl_models.datasets import causal_attributes, mastery_test

pytestmark = pytest.mark.usefixtures("unpainted", "few_refits")


def text_of(path: Path) -> str:
    return re.sub(
        r"\s+",
        " ",
        re.sub(r"<[^>]+>", " ", re.sub(r'src="[^"]*"', "", path.read_text(encoding="utf-8"))),
    )


def test_the_page_of_a_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One information matrix serves the whole page; before, it was worked out six times."""
    asked: list[str] = []
    real = inference.uncertainty.derivatives
    monkeypatch.setattr(
        inference.uncertainty, "derivatives", lambda *args: asked.append(args[3]) or real(*args)
    )
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(800, seed=2)
    names = ["add", "carry", "borrow"]
    frame = pd.DataFrame(
        design.model.q_matrix, columns=names, index=[f"task {j}" for j in range(12)]
    )
    rules = tuple("acdm" if j == 6 else "dina" for j in range(12))
    model = LatentAttributeModel(frame, items=rules, root=HigherOrder())
    table = pd.DataFrame(items.numpy(), columns=frame.index)
    result = fit(model, table, EM(tolerance=1e-6))
    text = text_of(write_report(result, table, tmp_path))
    assert sorted(asked) == ["hessian", "scores"]
    for words in (
        "has or lacks 3 attributes (add, carry, borrow)",
        "expected share of rows classified correctly",
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
    shares = profile_shares(result, table)
    assert f"add 7 {shares.mastery[0]:.3f} ({shares.mastery_errors[0]:.3f})" in text
    curves = item_curves(result, table).table.loc["task 0"]
    ends = " ".join(f"{row.expected:.3f} ({row.standard_error:.3f})" for row in curves.itertuples())
    assert f"task 0 add one attribute {ends}" in text
    verdict = text[text.index("What was fitted?") : text.index("What to do next")]
    for words in (
        "Did the fit converge? Yes.",
        "Do the answers determine the model? Yes",
        "Does the model fit?",
        "by BIC it is not worth them",
    ):
        assert words in verdict, words
    assert "Not looked for: the attributes of this fit follow a structured distribution" in text


@pytest.mark.parametrize("with_data", [True, False])
def test_other_responses(tmp_path: Path, with_data: bool) -> None:
    design = causal_attributes("tree")
    items, _ = design.draw(300, seed=1, missing=0.1)
    result = fit(
        LatentAttributeModel(design.model.q_matrix, design.model.response, root=Independent()),
        items,
        EM(tolerance=1e-5),
    )
    text = text_of(write_report(result, items if with_data else None, tmp_path))
    assert (
        "M2 was not computed" in text
        if with_data
        else "How surely rows are classified needs the data" in text
    )
    assert "16 most common of 32" in text


def test_a_doubtful_attribute_and_a_fall_are_named(tmp_path: Path) -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(800, seed=2)
    params = {name: value.clone() for name, value in design.params.items()}
    asks = torch.tensor(design.model.q_matrix)[:, 0] == 1
    # nothing tells whether a row has the first attribute, and those who have it do a little worse
    params["loadings"][asks] /= -8
    result = replace(fit(design.model, items, EM(tolerance=1e-6)), params=params)
    text = text_of(write_report(result, items, tmp_path))
    assert "Do not report single rows on attribute 0" in text
    assert "Items whose expected answer falls when an attribute is added" in text
    assert "not reproduced well" in text


def page_of(
    model: LatentAttributeModel, items: torch.Tensor, folder: Path, method: EM | None = None
) -> str:
    result = fit(model, items, EM(tolerance=1e-6) if method is None else method)
    return text_of(write_report(result, items, folder))


@pytest.mark.filterwarnings(
    "ignore::inference.ConvergenceWarning", "ignore::inference.StartsWarning"
)
def test_the_verdict_on_fits_that_fail(tmp_path: Path) -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(600, seed=2)
    matrix = torch.tensor(design.model.q_matrix)
    unfinished = page_of(design.model, items, tmp_path, EM(max_iterations=3))
    assert "Did the fit converge? No, it stopped after 3 iterations" in unfinished
    assert "Let the fit run on" in unfinished
    wrong = matrix.clone()
    wrong[3] = torch.tensor([0, 0, 1])  # asks for the first attribute alone
    misfit = page_of(LatentAttributeModel(wrong, items="dina"), items, tmp_path)
    assert "Does the model fit? Not well" in misfit
    assert "items misfit:" in misfit
    assert "Find what the model misses" in misfit
    assert "Does the Q-matrix hold? The answers clearly contradict" in misfit
    assert "Compare the rows of the Q-matrix" in misfit
    alone = page_of(LatentAttributeModel(matrix, items="dina", root=Independent()), items, tmp_path)
    assert "A free table of profiles would raise the log-likelihood by about" in alone
    assert "Fit again with root=Saturated()" in alone


def test_a_q_matrix_that_tells_profiles_not_apart(tmp_path: Path) -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(400, seed=2)
    matrix = torch.tensor(design.model.q_matrix)
    matrix[:, 1] = matrix[:, 0] = matrix[:, :2].amax(
        1
    )  # nobody can see a difference between these two
    text = page_of(LatentAttributeModel(matrix, items="dina"), items, tmp_path)
    assert (
        "Do the answers determine the model? No: different parameters give the same data. No item"
        " distinguishes some profiles" in text
    )
    assert "No graph is drawn" in text
    assert all(
        float(error) < 0.5 for error in re.findall(r"0\.\d{3} \((\d+\.\d{3})\)", text)
    )  # not what a flat direction makes of it
    assert "Give every attribute items that ask for it alone" in text
    assert "The answers do not determine attribute 0, attribute 1, so that these figures" in text
    assert text.count("no: not determined by the answers") == 2


def test_a_graph_in_words() -> None:
    design = causal_attributes("collider")
    items, _ = design.draw(2000, seed=4)
    own_fit = fit(design.model, items, EM(tolerance=1e-6))
    found = discover_attributes(own_fit, items, num_draws=60, confidence=0.8)
    text = re.sub(r"<[^>]+>", " ", re.sub(r'src="[^"]*"', "", html_of(causal_parts(found))))
    assert "dependence given the other causes, nats (80 %)" in text
    record = causal_record(found)
    assert record["determined"] is True
    assert {frozenset((edge["from"], edge["to"])) for edge in record["edges"]} == {
        frozenset(pair) for pair in (("A1", "A2"), ("A3", "A5"), ("A4", "A5"))
    }
    assert [edge["directed"] for edge in record["edges"]] == [False, True, True]
    assert "3 pairs of attributes are joined directly" in text
    own = causal_verdict(found)
    assert own.headline.startswith("3 pairs of attributes are joined directly")
    assert ("no single graph" in " ".join(own.steps)) == (own.mark == "care")
    if own.mark == "care":  # and it says why
        assert "Nothing that was looked at" not in own.findings[1].answer
    assert any("conjecture" in step for step in own.steps)
    lost = causal_verdict(replace(found, rows=replace(found.rows, num_rows=0.0)))
    assert lost.headline == "Do not build on this graph yet: 1 answer below says why."
    assert "No graph is drawn" in lost.findings[1].answer
    assert "A1 — A2" in text
    names = found.causal.graph.names
    ends = [(names.index(one), names.index("A5")) for one in ("A3", "A4")]
    firm = [f"{names[i]} → {names[j]}" for i, j in ends if not found.disputed[i, j]]
    assert firm
    assert f"Firm directions: {'; '.join(firm)}" in text
    assert "The graph against the answers themselves" in text


def test_a_vanishing_dependence_is_said_instead_of_drawn() -> None:
    design = causal_attributes("unfaithful")
    items, _ = design.draw(2000, seed=4)
    found = discover_attributes(fit(design.model, items, EM(tolerance=1e-6)), items, num_draws=60)
    text = re.sub(r"<[^>]+>", " ", html_of(causal_parts(found)))
    assert "No direction is firm" in text
    assert "near-broken faithfulness" in text
    assert causal_verdict(found).mark == "care"
    assert not any(edge["direction_firm"] for edge in causal_record(found)["edges"])


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_several_groups(tmp_path: Path) -> None:
    design = mastery_test(9, 3, seed=1)
    items, attributes = design.draw(400, seed=2)
    late = (attributes[:, 0].numpy() > 0) ^ (np.arange(400) % 5 == 0)
    items[late & (np.arange(400) % 3 > 0), 4] = 0  # two in three of these cannot read it
    table = pd.DataFrame(items.numpy(), columns=[f"task {j}" for j in range(9)]).assign(
        group=np.where(late, "late", "early")
    )
    named = pd.DataFrame(
        design.model.q_matrix, columns=["add", "carry", "borrow"], index=table.columns[:-1]
    )
    model = AttributeGroups(
        LatentAttributeModel(named, items="dina", root=Independent()), groups=("early", "late")
    )
    found = fit(model, table, EM(tolerance=1e-5), num_restarts=1)
    text = text_of(write_report(found, table, tmp_path))
    for words in (
        (
            f"2 groups, early ({int((~late).sum())} rows), late ({int(late.sum())} rows), answered"
            " 9 items that require 3 attributes (add, carry, borrow)"
        ),
        "The groups differ in their profiles of attributes (likelihood ratio",
        "Shares that have an attribute differ for add",
        "task 4",
        "Then give task 4, the clearest, parameters of its own in each group",
        "p (likelihood ratio)",
        "whole profile",
        "Posterior predictive check",
    ):
        assert words in text, words
