"""Mixtures whose components depend on covariates: the fit against a numerical maximum, names of the
components, separation, weights, refusals.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from inference import EM, Fit, fit
from inference.base.outcome import EstimateWarning
from inference.base.structure import split_start
from inference.fitting.problem import problem_of
from inference.identifiability import identifiability_of
from inference.relations import class_coefficients
from inference.structures.mixture.steps import renamed_coefficients
from inference.uncertainty import check_information, standard_errors
from ppl_models import Bernoulli, Covariates, Mixture, MultivariateNormal, Normal
from ppl_models.descriptions.covariates import ClassCoefficients
from ppl_models.descriptions.logit import maximise_coefficients

F64 = torch.float64
ANSWERS = ["lies", "copies", "steals", "cheats"]
FLAT = Covariates(("age", "sex"), ((), ("female", "male")), scale=1e4)


def students(num_rows: int, seed: int) -> pd.DataFrame:
    """Answers of two classes; the older are rather of the second, men rather of the first."""
    rng = np.random.default_rng(seed)
    age, sex = rng.normal(30.0, 8.0, num_rows), rng.integers(0, 2, num_rows)
    second = rng.random(num_rows) < expit(-3.0 + 0.1 * age - 0.8 * sex)
    chances = np.where(second[:, None], [0.8, 0.7, 0.85, 0.6], [0.2, 0.15, 0.1, 0.25])
    frame = pd.DataFrame((rng.random((num_rows, 4)) < chances).astype(float), columns=ANSWERS)
    frame.insert(1, "sex", np.where(sex == 1, "male", "female"))
    frame["age"] = age
    return frame


def minus_log_likelihood(free: np.ndarray, items: np.ndarray, terms: np.ndarray) -> float:
    """Two classes, written down once more: three coefficients, and log-odds of the answers class by
    class.
    """
    eta = free[3:].reshape(2, -1)
    own = items @ eta.T - np.log1p(np.exp(eta)).sum(1)
    odds = np.stack([np.zeros(len(items)), terms @ free[:3]], 1)
    return -float(logsumexp(own + odds - logsumexp(odds, 1, keepdims=True), axis=1).sum())


@pytest.fixture(scope="module")
def example() -> tuple[pd.DataFrame, Fit]:
    frame = students(400, 1)
    return frame, fit(
        Mixture(2, Bernoulli(), 4, covariates=FLAT),
        frame,
        EM(tolerance=1e-13, parameter_tolerance=1e-9),
        num_restarts=3,
    )


def test_the_fit_is_the_maximum_and_its_errors_are_those_of_the_curvature(
    example: tuple[pd.DataFrame, Fit],
) -> None:
    frame, found = example
    items, terms = (
        frame[ANSWERS].to_numpy(),
        np.c_[np.ones(len(frame)), frame["age"], frame["sex"] == "male"],
    )
    start = np.r_[found.params["coefficients"].ravel(), found.params["predictors"].ravel()]
    best = minimize(
        minus_log_likelihood,
        start + 0.05 * np.cos(np.arange(11)),
        (items, terms),
        "BFGS",
        options={"gtol": 1e-6},
    )
    assert found.log_likelihood == pytest.approx(-best.fun, abs=1e-5)
    np.testing.assert_allclose(start, best.x, atol=2e-3)
    step, eye = 1e-3, np.eye(11)

    def value(at: np.ndarray) -> float:
        return minus_log_likelihood(at, items, terms)

    size = 1 / np.r_[1.0, 30.0, 1.0, np.ones(8)]  # of a step, term by term
    curve = np.empty((11, 11))
    for i in range(11):
        for j in range(11):
            one, other = step * size[i] * eye[i], step * size[j] * eye[j]
            parts = (
                value(start + one + other)
                - value(start + one - other)
                - value(start - one + other)
                + value(start - one - other)
            )
            curve[i, j] = parts / (4 * step**2 * size[i] * size[j])
    errors = np.sqrt(np.diag(np.linalg.inv(curve)))
    own = standard_errors(found, frame).standard_errors
    np.testing.assert_allclose(
        np.r_[own["coefficients"].ravel(), own["predictors"].ravel()], errors, rtol=1e-3
    )


def test_the_zero_of_a_covariate_changes_no_error(example: tuple[pd.DataFrame, Fit]) -> None:
    """Years of birth are "hardly identified" no more, nor are seconds left without errors."""
    frame, found = example
    own = class_coefficients(found, frame)
    plain = standard_errors(found, frame).intervals()["coefficients"]
    for shift in (2000.0, 1.7e9):
        moved = frame.assign(age=frame["age"] + shift)
        again = fit(Mixture(2, Bernoulli(), 4, covariates=FLAT), moved, found.method)
        other = class_coefficients(again, moved)
        assert abs(other.coefficients[0, 1]) == pytest.approx(abs(own.coefficients[0, 1]), rel=1e-3)
        back = np.eye(3)
        back[0, 1] = shift  # intercepts at the old zero
        grain = 1e-15 * shift**2 * own.covariance[1, 1]  # of the sums that bring it back
        np.testing.assert_allclose(
            back @ other.covariance @ back.T, own.covariance, rtol=2e-3, atol=grain
        )
        low, high = standard_errors(again, moved).intervals()["coefficients"]
        width = float(plain[1][0, 1] - plain[0][0, 1])
        assert float(high[0, 1] - low[0, 1]) == pytest.approx(width, rel=2e-3)
        assert check_information(again, moved).rank == 11  # of rows drawn at these covariates
        report = identifiability_of(again, moved)
        assert "hardly" not in report.text()
        assert "full rank, 11 of 11" in report.text()


def test_names_reach_the_summary_arviz_and_predictions_of_other_columns(
    example: tuple[pd.DataFrame, Fit],
) -> None:
    frame, found = example
    table = found.summary(frame)
    assert list(table.index[:3]) == [
        "coefficients[1, intercept]",
        "coefficients[1, age]",
        "coefficients[1, sex=male]",
    ]
    assert np.isfinite(table["error"].to_numpy()).all()
    assert "probability[0, lies]" in table.index
    assert list(found.to_arviz(frame)["posterior"]["coefficients"].coords["term"].values) == [
        "intercept",
        "age",
        "sex=male",
    ]
    other = frame[["age", "cheats", "sex", "steals", "copies", "lies"]]
    assert np.array_equal(found.predict_proba(other), found.predict_proba(frame))
    assert found.num_parameters == 3 + 8
    drawn = found.structure.simulate_like(
        found.params, found.model.check_data(frame[[*ANSWERS, "age", "sex"]])[0], 3
    )["items"]
    assert drawn.shape == (400, 6)
    assert torch.equal(drawn[:, 4], torch.tensor(frame["age"].to_numpy()))
    with pytest.raises(ValueError, match="covariates, which nothing draws"):
        found.simulate(5)


def test_rows_like_given_ones_are_independent_given_their_class() -> None:
    """As many items as classes: drawn with the numbers of the class, pairs were .08 off."""
    frame = students(4000, 3)[["lies", "copies", "steals", "age", "sex"]]
    model = Mixture(
        3, Bernoulli(), 3, covariates=Covariates.from_frame(frame[["age", "sex"]], scale=1e4)
    )
    structure = problem_of(model, frame, 0).structure
    chances = 0.2 + 0.6 * np.eye(3)
    params = {
        "coefficients": torch.zeros(2, 3, dtype=F64),
        "predictors": torch.tensor(np.log(chances / (1 - chances))),
    }
    drawn = structure.simulate_like(params, model.check_data(frame)[0], 0)["items"].numpy()
    for one, other in ((0, 1), (0, 2), (1, 2)):
        both = (chances[:, one] * chances[:, other]).mean()
        error = np.sqrt(both * (1 - both) / len(drawn))
        assert abs((drawn[:, one] * drawn[:, other]).mean() - both) < 4.5 * error


def test_a_unit_of_a_covariate_changes_nothing_else() -> None:
    frame = students(200, 2)
    model = Mixture(2, Bernoulli(), 4, covariates=Covariates.from_frame(frame[["age", "sex"]]))
    one, other = (
        fit(model, frame.assign(age=age), EM(), num_restarts=2)
        for age in (frame["age"], 1990 + frame["age"] / 100)
    )
    assert other.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-7)
    torch.testing.assert_close(
        other.params["coefficients"][:, 1] / 100,
        one.params["coefficients"][:, 1],
        rtol=1e-5,
        atol=1e-7,
    )
    torch.testing.assert_close(
        other.params["predictors"], one.params["predictors"], rtol=1e-5, atol=1e-5
    )


def test_the_distribution_of_coefficients_is_the_same_under_every_reference() -> None:
    known = Covariates(("a", "b"), (), 2.0, ((3.0, 0.5), (-1.0, 4.0)))
    distribution = ClassCoefficients(known, 4, torch.zeros((), dtype=F64))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        value = distribution.rsample((4000,))
    other = renamed_coefficients(value, torch.tensor([2, 0, 3, 1]))
    torch.testing.assert_close(distribution.log_prob(other), distribution.log_prob(value))
    scaled = known.standardised(value)
    torch.testing.assert_close(known.plain(scaled), value)
    assert (
        scaled.std(0).sub(2.0).abs().max() < 0.15
    )  # the scale is that of a difference between two components
    by_hand = torch.distributions.MultivariateNormal(
        torch.zeros(3, dtype=F64), 2.0 * (torch.eye(3, dtype=F64) + 1)
    )  # s^2 / 2 = 2
    total = sum(by_hand.log_prob(scaled[:5, :, q]) for q in range(3)) + 3 * math.log(0.5 * 4.0)
    torch.testing.assert_close(distribution.log_prob(value[:5]), total)


@pytest.mark.parametrize("size", [0.0, 3.0, 30.0])
def test_newton_never_falls_and_ends_at_the_maximum(size: float) -> None:
    generator = torch.Generator().manual_seed(int(size))
    known = Covariates(("a", "b"), scale=5.0)
    rows = torch.randn(40, 2, generator=generator, dtype=F64)
    share = torch.rand(2, 40, 3, generator=generator, dtype=F64).pow(6)
    share = share / share.sum(-1, keepdim=True)
    often = torch.rand(40, generator=generator, dtype=F64) * 4
    design = torch.cat([torch.ones(40, 1, dtype=F64), rows], 1)
    cross = (share * often.unsqueeze(-1))[..., 1:].mT @ design
    distribution = ClassCoefficients(known, 3, torch.zeros((), dtype=F64))

    def objective(beta: torch.Tensor) -> torch.Tensor:
        logits = torch.cat([torch.zeros(2, 40, 1, dtype=F64), design @ beta.mT], -1).log_softmax(-1)
        return (share * often.unsqueeze(-1) * logits).sum((-2, -1)) + distribution.log_prob(beta)

    beta = size * torch.randn(2, 2, 3, generator=generator, dtype=F64)
    new = maximise_coefficients(known, cross, rows, often, beta)
    assert bool((objective(new) >= objective(beta) - 1e-10).all())
    leaf = new.clone().requires_grad_()
    assert float(torch.autograd.grad(objective(leaf).sum(), leaf)[0].abs().max()) < 1e-5


def test_separation_is_finite_and_named() -> None:
    rng = np.random.default_rng(3)
    group = rng.integers(0, 2, 300)
    frame = pd.DataFrame(
        {
            "x": rng.normal(6.0 * group, 1.0),
            "y": rng.normal(6.0 * group, 1.0),
            "camp": group,
            "age": rng.normal(size=300),
        }
    )
    with pytest.warns(
        EstimateWarning,
        match=r"hardly bound the coefficients of camp \(component 1 against 0: .*prior",
    ):
        found = fit(
            Mixture(2, Normal(), 2, covariates=("camp", "age")), frame, EM(), num_restarts=2
        )
    assert 5 < float(found.params["coefficients"][0, 1].abs()) < 100


def test_weights_are_repeated_rows_and_equal_rows_are_merged() -> None:
    frame = students(60, 4).assign(age=lambda table: table["age"].round(-1))
    often = np.arange(60) % 3
    model, method = Mixture(2, Bernoulli(), 4, covariates=FLAT), EM(max_iterations=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = fit(model, frame.loc[frame.index.repeat(often)], method)
        one = fit(model, frame, method, init=start, weights=often)
        two = fit(model, frame.loc[frame.index.repeat(often)], method, init=start)
    assert one.log_likelihood == pytest.approx(two.log_likelihood, abs=1e-9)
    torch.testing.assert_close(one.params["coefficients"], two.params["coefficients"])
    torch.testing.assert_close(one.params["predictors"], two.params["predictors"])


def test_distributions_of_whole_rows_one_component_and_a_split_start() -> None:
    rng = np.random.default_rng(5)
    age = rng.normal(size=300)
    second = rng.random(300) < expit(1.5 * age)
    frame = pd.DataFrame(
        rng.normal(size=(300, 2)) + 5 * second[:, None], columns=["x", "y"]
    ).assign(age=age)
    model = Mixture(2, MultivariateNormal(), 2, covariates="age")
    one = fit(replace(model, num_components=1), frame)
    assert set(one.params) == {"weights", "means", "precisions"}
    problem = problem_of(model, frame, 0)
    start = split_start(problem.structure, problem, one.params)
    assert start is not None
    found = fit(model, frame, EM(), init={name: value[0] for name, value in start.items()})
    assert found.log_likelihood > one.log_likelihood + 100
    assert abs(abs(float(found.params["coefficients"][0, 1])) - 1.5) < 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.assign(age=t["age"].where(t.index != 3)),
            r"covariate 'age' is missing in row 3 \(1 of 40",
        ),
        (
            lambda t: t.assign(sex=t["sex"].where(t.index != 2)),
            "covariate 'sex' is missing in row 2",
        ),
        (lambda t: t.assign(age=1.0), "age is the same in all rows"),
        (lambda t: t.assign(sex="female"), "no row has sex=male"),
        (lambda t: t.assign(age=2.0 * (t["sex"] == "male") + 1), "sex=male follows from age"),
        (lambda t: t.assign(sex="other"), "level 'other' is unknown"),
        (lambda t: t.drop(columns="sex"), "the covariates 'sex' were expected"),
        (lambda t: t.to_numpy()[:, 2:], "4 items and behind them the covariates 'age', 'sex'"),
    ],
)
def test_what_no_covariate_can_be_is_refused(change: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(Mixture(2, Bernoulli(), 4, covariates=FLAT), change(students(40, 6)))


def test_texts_among_covariates_are_coded_as_from_a_frame() -> None:
    table = students(300, 6)
    named, coded = (
        fit(Mixture(2, Bernoulli(), 4, covariates=known), table, seed=0)
        for known in (("age", "sex"), Covariates.from_frame(table[["age", "sex"]]))
    )
    assert named.log_likelihood == coded.log_likelihood
    torch.testing.assert_close(named.params["coefficients"], coded.params["coefficients"])


def test_settings_of_covariates_are_checked() -> None:
    with pytest.raises(ValueError, match="covariates must be names of columns"):
        Mixture(2, covariates=3)  # type: ignore[arg-type]
    for wrong in (
        {"names": ()},
        {"names": ("a", "a")},
        {"names": ("a",), "levels": (("x",),)},
        {"names": ("a",), "scale": 0.0},
    ):
        with pytest.raises(ValueError, match="Covariates: "):
            Covariates(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="holds 'm' alone"):
        Covariates.from_frame(pd.DataFrame({"sex": ["m", "m"]}))
