"""Sentences that strangers found to deny what stands elsewhere on the same page."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from support.own_programs import tight
from support.pages import words_of

from inference import EM, Fit, fit
from inference.estimates import estimates_of
from inference.plots.layers import plot_loadings
from inference.report.fit import _answer
from inference.report.sections import Local, Subject
from inference.report.verdicts import on_convergence
from inference.report.words import entry, finding, verdict_of
from ppl_models import (
    AttributeGroups,
    Bernoulli,
    Blocks,
    ContinuousOptionsHMM,
    DeepDiscreteEncoder,
    DeepNoisyOr,
    FactorAnalysis,
    HiddenMarkov,
    LatentAttributeModel,
    Normal,
    Poisson,
    SparseCoding,
    Unmixing,
)


@pytest.fixture(autouse=True)
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Painting takes most of a page's time, and says nothing."""
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)


def quiet(model: Any, data: Any, *method: Any, **settings: Any) -> Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(model, data, *method, seed=0, **settings)


def page(found: Fit, data: Any) -> str:
    """All that is written on the page of a fit."""
    sections = _answer(Subject(found, data, None, None)).sections
    return "\n".join(w for own in sections for part in own.parts for w in words_of(part))


@functools.cache
def symptoms() -> tuple[Fit, pd.DataFrame]:
    """Three latents of four yes-no items each, and the graph that a fit finds."""
    rng = np.random.default_rng(0)
    bits = (rng.random((400, 3)) < 0.5).repeat(4, 1)
    answers = (rng.random((400, 12)) < np.where(bits, 0.8, 0.2)).astype(float)
    data = pd.DataFrame(answers, columns=[f"symptom {j}" for j in range(12)])
    return quiet(DeepDiscreteEncoder(12, (3,), Bernoulli()), data), data


def test_latents_of_upper_layers_lack_children_and_no_items() -> None:
    rng = np.random.default_rng(1)
    bits = (rng.random((300, 2)) < 0.5).repeat(3, 1)
    data = (rng.random((300, 6)) < np.where(bits, 0.9, 0.1)).astype(float)
    graph = np.eye(2, dtype=int).repeat(3, 0).tolist()
    model = DeepDiscreteEncoder(6, (2, 1), Bernoulli(), graphs=(graph, None))
    words = page(quiet(model, data), data)
    assert "Layer 1, items given latents_1 (6 items, 2 latents): strict." in words
    assert "which items would settle it" not in words
    assert "or the latents of the layer below, that depend on it" in words


def test_an_edge_of_next_to_nothing_is_none_anywhere() -> None:
    found, data = symptoms()
    assert "tied to nothing below" not in page(found, data)
    idle = found.params | {"loadings_1": found.params["loadings_1"] * torch.tensor([1.0, 1, 3e-6])}
    faint = replace(found, params=idle)
    words = page(faint, data)
    assert "latents_1[2] is tied to nothing below (no loading over 0.05)" in words
    assert "determines every parameter" not in words
    pale = replace(found, params=found.params | {"loadings_1": found.params["loadings_1"] * 3e-6})
    assert plot_loadings(pale).images[0].norm.vmax == pytest.approx(0.5)


def test_fits_of_one_ebic_are_all_named() -> None:
    found, data = symptoms()
    assert found.choice is not None
    best = found.choice.ebic[found.choice.best]
    tied = int((found.choice.ebic - best < 1e-6).sum())
    assert tied == 2
    words = page(found, data)
    assert "was kept (2 of the fits below have it, and the one marked went on)" in words
    assert words.count("\nas good") == 1
    alone = replace(found.choice, ebic=found.choice.ebic + torch.arange(2.0) * 5)
    words = page(replace(found, choice=alone), data)
    assert "was kept. From there" in words
    assert "as good" not in words


def test_priors_and_graphs_of_a_diagnosis_are_as_its_tables_say() -> None:
    rng = np.random.default_rng(2)
    matrix = np.vstack([np.eye(2, dtype=int)] * 3 + [np.ones((1, 2), int)])
    has = (rng.random((400, 2)) < 0.5)[:, None] >= matrix
    data = (rng.random((400, 7)) < np.where(has.all(-1), 0.97, 0.03)).astype(float)
    found = quiet(LatentAttributeModel(matrix.tolist(), items="dina"), data)
    words = page(found, data)
    assert float(found.params["loadings"].abs().max()) > 4.0
    assert "at most" not in next(line for line in words.split("\n") if line.startswith("normal: "))
    assert "No two attributes are joined" in words
    assert "graph above" not in words
    assert "no edges (the answer above)" in words


@functools.cache
def scales(num: int, rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(rows, 1)) + 0.6 * rng.normal(size=(rows, num))
    return pd.DataFrame(table, columns=[f"scale {j}" for j in range(num)])


def test_a_heywood_case_is_an_answer_of_the_verdict_that_asks_for_no_more_factors() -> None:
    data = scales(5).assign(again=lambda own: own["scale 0"] + 1e-3 * own["scale 1"])
    found = quiet(FactorAnalysis(6, 2), data)
    answer = _answer(Subject(found, data, None, None)).verdict
    (noise,) = [own for own in answer.findings if own.question == "Is there noise in every column?"]
    assert noise.mark == "bad"
    assert "Heywood" in noise.answer
    assert "scale 0" in noise.answer or "again" in noise.answer
    assert entry("predictive.parts.remedies")["correlation_more"] not in answer.steps
    assert any(step.startswith("Fit fewer factors") for step in answer.steps)


def test_the_share_that_factors_explain_does_not_depend_on_units() -> None:
    """The variance of all columns together is that of the one with the largest unit."""
    said = []
    for data in (scales(5), scales(5) * [1000, 1, 1, 1, 0.01]):
        words = page(quiet(FactorAnalysis(5, 1), data), data)
        said.append(words.split("The factor explains ")[1][:45])
        assert "of a column's variance on average" in said[-1]
    assert said[0] == said[1]


def test_one_factor_is_determined_up_to_its_sign() -> None:
    words = page(quiet(FactorAnalysis(5, 1), scales(5)), scales(5))
    assert "rotation" not in words
    assert (
        words.count("Yes, but for the sign of the factor: 5 of 5 columns share at least 1 %") == 2
    )
    two = page(quiet(FactorAnalysis(2, 1), scales(2)), scales(2))
    assert "That is not shown: only 2 of 2 columns" in two
    assert "rotation" in page(quiet(FactorAnalysis(5, 2), scales(5)), scales(5))


def test_steps_that_ask_for_fewer_have_none_that_asks_for_more_beside_them() -> None:
    remedy = entry("predictive.parts.remedies")["correlation_more"]
    misfit = finding("fit.prediction.misfit", at="", words="", step=remedy)
    assert verdict_of([misfit]).steps == (remedy,)
    idle = finding("layers.edges.loose", words="")
    steps = verdict_of([idle, misfit]).steps
    assert remedy not in steps
    assert any(step.startswith("Look at the pairs") for step in steps)


def test_what_converged_is_moved_by_its_prior_and_not_short_of_an_optimum() -> None:
    data = 5 + torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = quiet(tight, data)
    assert found.converged
    assert "converge" not in estimates_of(found, data).note
    assert "the prior moves the estimate" in estimates_of(found, data).note


def test_labels_name_states_and_estimates_have_their_known_names() -> None:
    rng = np.random.default_rng(4)
    states = np.cumsum(rng.random((8, 30)) < 0.2, 1) % 2
    data = np.stack(
        [
            rng.normal(size=states.shape) + 3 * states,
            rng.poisson(np.where(states, 6, 1)),
            rng.random(states.shape) < np.where(states, 0.8, 0.2),
        ],
        -1,
    ).astype(float)
    model = HiddenMarkov(2, Blocks((Normal(), 1), (Poisson(), 1), (Bernoulli(), 1)))
    labels = np.where(np.arange(8)[:, None] < 3, states, -1)
    words = page(quiet(model, data, labels={"states": labels}), data)
    assert "3 of 8 sequences labelled" in words
    assert "States have the numbers of the labels" in words
    assert "carry no meaning" not in words
    assert "\nmean\n2 × 1\n" in words
    assert "\nprobability\n2 × 1\n" in words
    assert "predictors" not in words
    assert "dispersion" not in words
    assert "their numbers carry no meaning" in page(quiet(model, data), data)


def test_rows_fewer_than_numbers_determine_nothing() -> None:
    rng = np.random.default_rng(5)
    data = (rng.random((12, 8)) < 0.5).astype(float)
    words = page(
        quiet(HiddenMarkov(4, Bernoulli(), 8), data[None], EM(max_iterations=5)), data[None]
    )
    assert "rows determine all" not in words


def test_a_dictionary_whose_residuals_contradict_it_is_not_compared_with_the_data() -> None:
    rng = np.random.default_rng(6)
    codes = rng.gamma(3.0, size=(100, 3)) * (rng.random((100, 3)) < 0.4)
    data = codes @ rng.random((3, 6)) + 0.3 * rng.normal(size=(100, 6))
    words = page(quiet(SparseCoding(6, 3, 2, noise=1e-3), data), data)
    assert "the residuals are far from the noise that was stated" in words
    assert "No misfit found here" not in words
    fine = quiet(SparseCoding(6, 3, 2), data)
    assert "simulated from the fit" in page(fine, data)


def test_entries_of_latents_states_and_attributes_have_the_names_of_the_tables() -> None:
    """A sequence of numbers, as in loadings_2[2, 1], says nothing of what depends on what."""
    rng = np.random.default_rng(0)
    top = (rng.random((300, 1)) < 0.5) * np.ones((1, 4))
    below = (rng.random((300, 4)) < np.where(top > 0, 0.85, 0.15)).repeat(3, 1)
    data = pd.DataFrame(below + 0.3 * rng.normal(size=below.shape)).add_prefix("m")
    found = quiet(DeepDiscreteEncoder(latent_sizes=(4, 1)), data)
    words = page(found, data)
    assert "loadings_2[latents_1[0], latents_2[0]]" in words
    assert "loadings_2[0, 0]" not in words
    steps = pd.DataFrame({"sequence": 0, "time": np.arange(200), "x": rng.normal(size=200)})
    steps["x"] += 4.0 * (np.arange(200) // 20 % 2)
    words = page(quiet(HiddenMarkov(2, Normal()), steps), steps)
    assert "transitions[state 0, state 1]" in words
    answers = pd.DataFrame((below[:, :9] * 0.7 + 0.15 > rng.random((300, 9))).astype(int))
    answers = answers.add_prefix("i")
    found = quiet(LatentAttributeModel(None, items="additive", num_attributes=3), answers)
    words = page(found, answers)
    assert "attribute 0]" in words
    assert "loadings[i0, 0]" not in words


def test_policies_along_continuous_states_name_features_and_actions() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(240, 2))
    action = (rng.random(240) < 1 / (1 + np.exp(-3 * x[:, 0]))).astype(float)
    data = pd.DataFrame(
        {"sequence": np.arange(240) // 24, "x": x[:, 0], "speed": x[:, 1], "action": action}
    )
    data["time"] = np.arange(240) % 24
    found = quiet(ContinuousOptionsHMM(2, 2, 2), data)
    assert str(found).partition("latents")[2].partition("\n")[0].split() == ["options"]
    assert "low_weights[0, action 1, speed]" in found.summary().index
    words = page(found, data)
    assert "low_weights[option 0, action 1, x]" in words
    assert "high_weights[option 1, other option, speed]" in words


def test_entries_of_groups_are_counted_without_the_column_of_groups() -> None:
    rng = np.random.default_rng(2)
    q_matrix = pd.DataFrame([[1, 0], [0, 1]] * 3, [f"i{j}" for j in range(6)], ["a", "b"])
    skills = rng.random((200, 2)) < 0.5
    right = (skills[:, [0, 1] * 3] * 0.7 + 0.15) > rng.random((200, 6))
    answers = pd.DataFrame(right.astype(float), columns=q_matrix.index)
    answers.iloc[::10, 0] = np.nan
    answers["group"] = np.where(rng.random(200) < 0.5, "east", "west")
    model = AttributeGroups(LatentAttributeModel(q_matrix, items="dina"))
    assert "20 of 1,200 entries are missing" in page(quiet(model, answers), answers)


def test_a_dictionary_that_one_start_alone_found_is_to_be_read_with_care() -> None:
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(6, 9))
    codes = np.zeros((150, 9))
    for row in codes:
        row[rng.choice(9, 2, replace=False)] = 1 + rng.random(2)
    data = codes @ columns.T + 0.02 * rng.normal(size=(150, 6))
    found = quiet(SparseCoding(num_columns=9, sparsity=2), data, num_restarts=2)
    for gap, mark in ((0.5, "good"), (30.0, "care")):
        ends = found.objective - torch.tensor([0.0, gap], dtype=torch.float64)
        other = replace(found, restarts=replace(found.restarts, objective=ends))
        answer = on_convergence(Subject(other, data, None, None))
        assert answer.mark == mark
        assert ("reached by one start alone" in answer.answer) == (mark == "care")


def test_rows_worth_less_than_one_profile_draw_no_graph() -> None:
    """Failed before: num_rows must be a number of at least 1, got 0.9999999999999997."""
    rng = np.random.default_rng(4)
    q_matrix = [[1, 0], [0, 1], [1, 1]] * 4
    answers = (rng.random((10, 12)) < 0.5).astype(float)
    words = page(quiet(LatentAttributeModel(q_matrix, items="dina"), answers), answers)
    assert "num_rows" not in words
    assert "No graph is drawn" in words


def test_latents_have_one_name_and_reasons_are_the_right_ones() -> None:
    """Failed before: causes_2 was latents_2 among the estimates, and 250 rows were too few for an
    integral that has no scores.
    """
    rng = np.random.default_rng(0)
    causes = (rng.random((300, 1)) < 0.4) & (rng.random((300, 3)) < 0.85)
    data = pd.DataFrame(causes.repeat(3, 1) & (rng.random((300, 9)) < 0.9)).add_prefix("s") * 1.0
    words = page(quiet(DeepNoisyOr(latent_sizes=(3, 1)), data, EM(max_iterations=50)), data)
    assert "failure_2[causes_2[0], causes_1[0]]" in words
    assert "latents_" not in words
    spectra = rng.dirichlet([1.0] * 3, 60) @ rng.random((3, 30)) + 0.02 * rng.normal(size=(60, 30))
    words = page(quiet(Unmixing(num_components=3), pd.DataFrame(spectra)), pd.DataFrame(spectra))
    assert "too few" not in words
    assert "not worked out for models of this kind" in words


def test_rows_that_leave_more_open_than_the_weakest_direction_say_so() -> None:
    """Failed before: two sections named different entries as the ones that are open."""
    flat = Local(5, 0, 5, 5, True, (), "singular along b", faint=("a",))
    assert "These rows leave more open" in flat.text()
    assert "changes with all" not in flat.text()
    assert "changes with all" in replace(flat, faint=()).text()
