"""Encoders whose deepest latents depend on covariates: the fit against a numerical maximum, names,
flips, separation, draws, refusals.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from inference import EM, SAEM, Fit, fit
from inference.base.outcome import EstimateWarning
from inference.fitting.problem import problem_of
from inference.inspection import item_fit, validate_q
from inference.plots import plot_latent_graph
from inference.programs.program import Program
from inference.structures.layers import em_steps
from inference.structures.layers.align import align_layers, relabel
from inference.structures.layers.em_steps import LayeredSteps
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    Covariates,
    DeepDiscreteEncoder,
    ExpDINA,
    ExpGDM,
    Independent,
    LatentAttributeModel,
    Normal,
    Ordinal,
)
from ppl_models.descriptions.covariate_root import CovariateRoot
from ppl_models.descriptions.covariates import LatentCoefficients

F64 = torch.float64
ITEMS = [f"q{j}" for j in range(8)]
TRUTH = np.array([[-3.0, 0.1, -0.8], [0.5, -0.03, 1.2]])
FLAT = Covariates(("age", "sex"), ((), ("female", "male")), scale=1e4)
SHARP = EM(tolerance=1e-13, parameter_tolerance=1e-9)


def pupils(num_rows: int, seed: int, names: list[str] = ITEMS) -> pd.DataFrame:
    """Answers that rest on two skills; the older rather have the first, men the second.

    The covariates stand among the items.
    """
    rng = np.random.default_rng(seed)
    age, sex = rng.normal(30.0, 8.0, num_rows), rng.integers(0, 2, num_rows)
    skills = rng.random((num_rows, 2)) < expit(np.c_[np.ones(num_rows), age, sex] @ TRUTH.T)
    asked = np.arange(len(names)) * 2 // len(names)
    frame = pd.DataFrame(
        (rng.random((num_rows, len(names))) < expit(4.0 * skills[:, asked] - 2.0)).astype(float),
        columns=names,
    )
    frame.insert(1, "sex", np.where(sex == 1, "male", "female"))
    frame["age"] = age
    return frame


def model_of(names: list[str] = ITEMS, **settings: Any) -> DeepDiscreteEncoder:
    graph = tuple((int(2 * j < len(names)), int(2 * j >= len(names))) for j in range(len(names)))
    return DeepDiscreteEncoder(
        len(names), (2,), penalty=None, covariates=FLAT, graphs=(graph,), **settings
    )


@pytest.fixture(scope="module")
def example() -> tuple[pd.DataFrame, Fit]:
    frame = pupils(400, 1)
    return frame, fit(model_of(bound=40.0), frame, SHARP)


def minus_log_likelihood(free: np.ndarray, items: np.ndarray, terms: np.ndarray) -> float:
    """Written down once more, a configuration at a time: six coefficients, and slope and intercept
    of each item, which depends on one skill.
    """
    odds, slopes, levels = terms @ free[:6].reshape(2, 3).T, free[6:14], free[14:]
    total = []
    for bits in itertools.product((0, 1), repeat=2):
        eta = levels + slopes * np.repeat(bits, 4)
        total.append(
            (items @ eta - np.log1p(np.exp(eta)).sum())
            + odds @ np.array(bits)
            - np.logaddexp(0, odds).sum(1)
        )
    return -float(logsumexp(total, axis=0).sum())


def test_the_fit_is_the_maximum_and_its_errors_are_those_of_the_curvature(
    example: tuple[pd.DataFrame, Fit],
) -> None:
    frame, found = example
    items, terms = (
        frame[ITEMS].to_numpy(),
        np.c_[np.ones(len(frame)), frame["age"], frame["sex"] == "male"],
    )
    slopes = found.params["loadings_1"].sum(-1)
    start = torch.cat(
        [found.params["coefficients"].ravel(), slopes, found.params["intercepts_1"]]
    ).numpy()
    unit = np.r_[np.tile([1.0, 1 / 30, 1.0], 2), np.ones(16)]  # of a step

    def value(at: np.ndarray) -> float:
        return minus_log_likelihood(at * unit, items, terms)

    best = minimize(
        value, start / unit + 0.02 * np.cos(np.arange(22)), method="BFGS", options={"gtol": 1e-4}
    )
    assert found.log_likelihood == pytest.approx(-best.fun, abs=1e-5)
    np.testing.assert_allclose(start / unit, best.x, atol=5e-3)
    step, eye, at = 1e-3, np.eye(22), start / unit
    curve = np.empty((22, 22))
    for i, j in itertools.combinations_with_replacement(range(22), 2):
        one, other = step * eye[i], step * eye[j]
        curve[i, j] = curve[j, i] = (
            value(at + one + other)
            - value(at + one - other)
            - value(at - one + other)
            + value(at - one - other)
        ) / (4 * step**2)
    errors = unit * np.sqrt(np.diag(np.linalg.inv(curve)))
    own = standard_errors(found, frame).standard_errors["coefficients"]
    np.testing.assert_allclose(own.ravel(), errors[:6], rtol=1e-3)


def test_names_reach_the_summary_arviz_files_and_predictions_of_other_columns(
    example: tuple[pd.DataFrame, Fit], tmp_path: Path
) -> None:
    frame, found = example
    drawn = {text.get_text() for text in plot_latent_graph(example[1]).texts}
    assert set(ITEMS) <= drawn
    table = found.summary(frame)
    assert {
        "coefficients[0, intercept]",
        "coefficients[1, age]",
        "coefficients[1, sex=male]",
        "loadings_1[q7, 1]",
    } <= set(table.index)
    assert np.isfinite(
        table.loc["coefficients[1, age]"].to_numpy(dtype=object)[:4].astype(float)
    ).all()
    posterior = found.to_arviz(frame)["posterior"]["coefficients"]
    assert posterior.dims[-2:] == ("latent_1", "term")
    assert list(posterior.coords["term"].values) == ["intercept", "age", "sex=male"]
    found.save(tmp_path / "one")
    again = Fit.load(tmp_path / "one")
    other = frame[[*reversed(ITEMS), "age", "sex"]]
    assert torch.equal(
        again.posterior_latents(other)["latents_1"], found.posterior_latents(frame)["latents_1"]
    )
    assert torch.equal(again.log_likelihood_rows(other), found.log_likelihood_rows(frame))
    assert found.num_parameters == 6 + 16
    gaps = frame.assign(q3=frame["q3"].where(frame.index != 2))
    filled = found.fill_missing(gaps)
    assert filled.loc[2, "q3"] == float(found.reconstruct(gaps)[2, 3])
    assert filled.drop(index=2).equals(gaps.drop(index=2))
    drawn = found.structure.simulate_like(found.params, frame[[*ITEMS, "age", "sex"]], 3)
    assert drawn is not None
    assert torch.equal(drawn["items"][:, 8], torch.tensor(frame["age"].to_numpy()))
    with pytest.raises(ValueError, match="covariates, which nothing draws"):
        found.simulate(5)
    with pytest.raises(ValueError, match="no one distribution for all rows"):
        found.structure.root.distribution(found.params)


def test_rows_like_given_ones_depend_on_their_covariates_as_the_model_says() -> None:
    frame = pupils(4000, 2)
    model, truth = (
        model_of(),
        {
            "coefficients": torch.tensor(TRUTH),
            "intercepts_1": torch.full((8,), -20.0),
            "loadings_1": torch.zeros(8, 2),
        },
    )
    truth["loadings_1"][:4, 0] = truth["loadings_1"][4:, 1] = 40.0  # an item says what the skill is
    structure = problem_of(model, frame, 0).structure
    drawn = structure.simulate_like(
        {name: value.double() for name, value in truth.items()}, frame, 4
    )["items"]
    chances = expit(np.c_[np.ones(4000), frame["age"], frame["sex"] == "male"] @ TRUTH.T)
    for skill, item in ((0, 0), (1, 7)):
        off = drawn[:, item].numpy() - chances[:, skill]
        for weight in (np.ones(4000), frame["age"] / 30, frame["sex"] == "male"):
            assert abs((off * weight).sum()) < 4 * np.sqrt(
                (chances[:, skill] * (1 - chances[:, skill]) * weight**2).sum()
            )


def test_a_flip_of_a_latent_negates_its_coefficients(example: tuple[pd.DataFrame, Fit]) -> None:
    frame, found = example
    layers, root = found.structure.layers, found.structure.root
    order, flips = torch.tensor([1, 0]), torch.tensor([True, False])
    free = [replace(layers[0], graph=None)]
    other = relabel(found.params, free, root, {"latents_1": order}, {"latents_1": flips})
    torch.testing.assert_close(
        other["coefficients"],
        torch.stack([-found.params["coefficients"][1], found.params["coefficients"][0]]),
    )
    program = Program(
        replace(found.model, graphs=None, bound=200.0), found.model.check_data(frame)[0]
    )
    torch.testing.assert_close(program.log_marginal(other), program.log_marginal(found.params))
    assert torch.equal(
        align_layers(other, found.params, free, root).params["coefficients"],
        found.params["coefficients"],
    )
    distribution = LatentCoefficients(FLAT, 2, torch.zeros((), dtype=F64))
    torch.testing.assert_close(
        distribution.log_prob(other["coefficients"]),
        distribution.log_prob(found.params["coefficients"]),
    )


def test_the_distribution_of_coefficients_is_normal_where_terms_are_in_their_widths() -> None:
    known = Covariates(("a", "b"), (), 2.0, ((3.0, 0.5), (-1.0, 4.0)))
    distribution = LatentCoefficients(known, 3, torch.zeros((), dtype=F64))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        value = distribution.rsample((4000,))
    scaled = known.standardised(value)
    assert scaled.std(0).sub(2.0).abs().max() < 0.15
    by_hand = torch.distributions.Normal(0.0, 2.0).log_prob(scaled).sum((-2, -1)) + 3 * np.log(
        0.5 * 4.0
    )
    torch.testing.assert_close(distribution.log_prob(value), by_hand)


def test_values_of_covariates_in_parts_give_the_same_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"q{j}" for j in range(6)]
    frame = pupils(60, 3, names).round({"age": -1})
    frame.loc[3, "q0"] = np.nan
    mixed = DeepDiscreteEncoder(
        6, (3, 2), response=Blocks((Bernoulli(), 4), (Normal(), 2)), penalty=None, covariates=FLAT
    )
    problem = problem_of(mixed, frame, 0, weights=np.arange(60) % 4 + 0.5)
    start = problem.structure.start(problem, "spectral", 2)
    found = []
    for elements in (2**21, 48, 1):  # all values at once, three at a time, and one
        monkeypatch.setattr(em_steps, "GROUP_ELEMENTS", elements)
        steps = LayeredSteps.build(problem.model, problem.data, 64, weights=problem.weights)
        assert steps is not None
        statistics, *values = steps.e_step(start)
        found.append(
            (
                statistics.root,
                statistics.layers["loadings_1"].cross,
                statistics.layers["loadings_2"].counts,
                *values,
                *steps.m_step(statistics, start).values(),
            )
        )
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            torch.testing.assert_close(one, two)


@pytest.mark.parametrize("batch_rows", [None, 200])
def test_draws_end_where_sums_do(example: tuple[pd.DataFrame, Fit], batch_rows: int | None) -> None:
    frame, exact = example
    sampled = fit(exact.model, frame, SAEM(batch_rows=batch_rows, tolerance=0.02), seed=1)
    assert sampled.log_likelihood == pytest.approx(exact.log_likelihood, abs=1.5)
    errors = standard_errors(exact, frame).standard_errors["coefficients"]
    assert (
        float(
            ((sampled.params["coefficients"] - exact.params["coefficients"]) / errors).abs().max()
        )
        < 1.0
    )


def test_the_statistic_of_batches_is_on_average_that_of_all_rows() -> None:
    generator = torch.Generator().manual_seed(1)
    columns = torch.stack(
        [torch.randn(60, generator=generator, dtype=F64), (torch.arange(60) % 2).double()], 1
    )
    root = CovariateRoot("coefficients", "a", 2, FLAT).of_rows(columns)
    chances = torch.rand(1, 2, 60, generator=generator, dtype=F64)
    params = {"coefficients": torch.randn(1, 2, 3, generator=generator, dtype=F64)}
    parts = [
        root.part(part).drawn(chances[..., part], chances[..., part], 3.0, params)
        for part in torch.arange(60).split(20)
    ]
    torch.testing.assert_close(
        torch.stack(parts).mean(0), root.drawn(chances, chances, 1.0, params)
    )


def test_standard_errors_cover_known_coefficients() -> None:
    """Not bias, and not errors of another size; the large study is a benchmark."""
    off = []
    for seed in range(6):
        frame = pupils(300, 100 + seed)
        found = fit(model_of(), frame, EM())
        off.append(
            (found.params["coefficients"] - torch.tensor(TRUTH))
            / standard_errors(found, frame).standard_errors["coefficients"]
        )
    every = torch.stack(off)
    assert 0.45 < float(every.square().mean()) < 1.9
    assert float(every.mean(0).abs().max()) < 4 / 6**0.5


def test_separation_is_finite_and_named() -> None:
    frame = pupils(300, 5)
    frame["camp"] = (frame[ITEMS[:4]].sum(axis=1) > 2).astype(float)
    model = replace(model_of(), covariates=("camp", "age"))
    with pytest.warns(
        EstimateWarning,
        match=r"hardly bound the coefficients of camp \(latent 0 of the deepest layer: .*prior",
    ):
        found = fit(model, frame.drop(columns="sex"), EM())
    assert 3 < float(found.params["coefficients"][0, 1].abs()) < 100


def test_a_unit_of_a_covariate_changes_nothing_else() -> None:
    frame = pupils(200, 6)
    model = replace(model_of(), covariates=Covariates.from_frame(frame[["age", "sex"]]))
    one, other = (
        fit(model, frame.assign(age=age), EM()) for age in (frame["age"], 1990 + frame["age"] / 100)
    )
    assert other.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-7)
    torch.testing.assert_close(
        other.params["coefficients"][:, 1] / 100,
        one.params["coefficients"][:, 1],
        rtol=1e-5,
        atol=1e-7,
    )
    torch.testing.assert_close(
        other.params["loadings_1"], one.params["loadings_1"], rtol=1e-5, atol=1e-5
    )


def test_an_open_penalty_finds_the_graph_beside_covariates() -> None:
    data = pupils(400, 7)
    found = fit(DeepDiscreteEncoder(8, (2,), covariates=FLAT), data)
    graph = found.graphs["loadings_1"]
    assert sorted(graph.T.tolist()) == [[0] * 4 + [1] * 4, [1] * 4 + [0] * 4]
    assert found.params["coefficients"].shape == (2, 3)
    assert found.model.covariates.names == FLAT.names  # and not those of the standardised problem
    assert found.model.covariates.levels == FLAT.levels
    program = Program(found.model, found.model.check_data(data)[0])
    assert float(
        program.log_marginal(found.params) + program.log_prior(found.params)
    ) == pytest.approx(found.objective, abs=1e-6)
    assert "sex=male" in found.summary(data).to_string()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.assign(age=t["age"].where(t.index != 3)),
            r"covariate 'age' is missing in row 3 \(1 of 40",
        ),
        (lambda t: t.assign(age=1.0), "age is the same in all rows"),
        (lambda t: t.assign(age=2.0 * (t["sex"] == "male") + 1), "sex=male follows from age"),
        (lambda t: t.assign(sex="other"), "level 'other' is unknown"),
        (lambda t: t.drop(columns="sex"), "the covariates 'sex' were expected"),
        (lambda t: t[ITEMS].to_numpy(), "8 items and behind them the covariates 'age', 'sex'"),
    ],
)
def test_what_no_covariate_can_be_is_refused(change: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(model_of(), change(pupils(40, 8)))


@pytest.mark.parametrize("bottom", [ExpDINA(), ExpGDM()], ids=repr)
def test_skills_of_a_q_matrix_depend_on_covariates(bottom: Any) -> None:
    rng, frame = np.random.default_rng(3), pupils(600, 9)
    q_matrix = np.array([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1], [1, 1], [1, 0], [0, 1]])
    chances = expit(np.c_[np.ones(600), frame["age"], frame["sex"] == "male"] @ TRUTH.T)
    ideal = ((rng.random((600, 2)) < chances)[:, None, :] >= q_matrix).all(-1)
    frame[ITEMS] = (rng.random(ideal.shape) < np.where(ideal, 0.9, 0.15)).astype(float)
    found = fit(
        DeepDiscreteEncoder(8, (2,), graphs=(q_matrix,), bottom=bottom, covariates=FLAT),
        frame,
        EM(),
    )
    errors = standard_errors(found, frame).standard_errors["coefficients"]
    assert float(((found.params["coefficients"] - torch.tensor(TRUTH)) / errors).abs().max()) < 3.5


def test_settings_of_covariates_are_checked() -> None:
    with pytest.raises(
        ValueError, match="DeepDiscreteEncoder: covariates must be names of columns"
    ):
        DeepDiscreteEncoder(4, (2,), covariates=3)  # type: ignore[arg-type]
    for arguments, words in (
        ({}, r"root=Independent\(\) was expected, got Saturated"),
        (
            {"q_matrix": None, "num_items": 4, "num_attributes": 2, "root": Independent()},
            "covariates need the q_matrix",
        ),
        ({"covariates": 3}, "LatentAttributeModel: covariates must be names of columns"),
    ):
        with pytest.raises(ValueError, match=words):
            LatentAttributeModel(
                **({"q_matrix": [[1, 0], [0, 1]], "covariates": "age"} | arguments)
            )  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_attribute_model_is_the_encoder_of_its_q_matrix(tmp_path: Path) -> None:
    """Covariates and categories: the same likelihood, the same fit, and attributes with names on
    the page.
    """
    rng, frame = np.random.default_rng(4), pupils(300, 9)
    q_matrix = pd.DataFrame(
        [[1, 0], [0, 1], [1, 1], [1, 0], [0, 1], [1, 1], [1, 0], [0, 1]],
        index=ITEMS,
        columns=["add", "borrow"],
    )
    chances = expit(np.c_[np.ones(300), frame["age"], frame["sex"] == "male"] @ TRUTH.T)
    has = (rng.random((300, 2)) < chances).astype(float)
    eta = 1.5 * (has @ q_matrix.to_numpy().T / q_matrix.to_numpy().sum(1) * 2 - 1)
    frame[ITEMS] = (eta[..., None] + rng.logistic(size=(300, 8, 1)) > np.array([-1.0, 1.0])).sum(-1)
    response = Blocks((Ordinal(3), 5), (Categorical(3), 3))
    encoder = fit(
        DeepDiscreteEncoder(
            8, (2,), response=response, graphs=(q_matrix.to_numpy(),), covariates=FLAT
        ),
        frame,
        EM(),
    )
    model = LatentAttributeModel(q_matrix, response, root=Independent(), covariates=FLAT)
    found = fit(model, frame[[*frame.columns[::-1]]], EM())  # columns are found by name
    assert found.log_likelihood == pytest.approx(encoder.log_likelihood, abs=1e-4)
    np.testing.assert_allclose(
        found.params["coefficients"], encoder.params["coefficients"], atol=2e-3
    )
    np.testing.assert_allclose(found.params["loadings"], encoder.params["loadings_1"], atol=2e-3)
    assert "coefficients[add, age]" in found.summary(frame).index
    page = found.report(tmp_path / "page.html", frame).read_text(encoding="utf-8")
    for words in (
        "Who has which attribute",
        "chance to have it, covariates at their means",
        "in no order",
        "chance with none of its attributes",
    ):
        assert words in page
    chances = model.category_chances(found.params, torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    assert list(chances) == list(range(8))
    codes = torch.arange(3.0, dtype=torch.float64)
    torch.testing.assert_close(
        torch.stack([chances[j] @ codes for j in range(5)], -1),
        model.expected_responses(found.params, torch.tensor([[0.0, 0.0], [1.0, 1.0]]))[:, :5],
    )
    assert bool(model.expected_responses(found.params, torch.zeros(1, 2))[:, 5:].isnan().all())
    drawn = found.structure.simulate_like(found.params, frame, 1)
    assert drawn is not None
    assert drawn["items"].shape == (300, 10)
    assert found.reconstruct(frame).shape == (300, 10)
    torch.testing.assert_close(
        found.reconstruct(frame)[:, -2].double(), torch.tensor(frame["age"].to_numpy())
    )
    gaps = frame.assign(q6=frame["q6"].where(frame.index != 2))
    assert found.fill_missing(gaps).loc[2, "q6"] == float(found.reconstruct(gaps)[2, 6])
    for ask in (item_fit, validate_q):
        with pytest.raises(ValueError, match=f"{ask.__name__}: items that are right or wrong"):
            ask(found, frame)
    plain = fit(
        LatentAttributeModel(q_matrix, items="dina", root=Independent(), covariates=FLAT),
        frame.assign(**(frame[ITEMS] > 1).astype(float)),
        EM(),
    )
    with pytest.raises(
        ValueError,
        match=(
            "item_fit: one distribution of the attributes for all rows was expected, and here it"
        ),
    ):
        item_fit(plain, frame.assign(**(frame[ITEMS] > 1).astype(float)))
