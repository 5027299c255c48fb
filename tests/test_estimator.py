"""The estimator of scikit-learn: its own checks, and what users do with it."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from inference import EM, ConvergenceWarning, ZooEstimator, fit
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    LatentAttributeModel,
    Mixture,
    Normal,
    PoissonFactorization,
)

quietly = pytest.mark.filterwarnings(
    "ignore::inference.ConvergenceWarning", "ignore::inference.StartsWarning"
)
EXCEPTIONS: dict[str, str] = {}  # of scikit-learn's checks: none


def two_clouds(data: Any) -> None:
    """Takes any number of columns, as scikit-learn's checks ask."""
    size = data.shape[-1]
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2)))
    means = pyro.sample("means", dist.Normal(0.0, 10.0).expand([2, size]).to_event(2))
    with pyro.plate("rows", len(data), dim=-2):
        group = pyro.sample("group", dist.Categorical(weights).expand([len(data), 1]))
        with pyro.plate("columns", size, dim=-1):
            pyro.sample("x", dist.Normal(means[group, torch.arange(size)], 1.0), obs=data)


def clouds(num_rows: int = 80) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(num_rows, 2)) + 6 * rng.integers(0, 2, (num_rows, 1))


def mixture(size: int = 2) -> Mixture:
    return Mixture(num_components=size, component=Normal(), num_items=2)


@pytest.mark.parametrize("model", [two_clouds, Mixture(2, Normal())], ids=["program", "mixture"])
def test_scikit_learn_s_own_checks(model: Any) -> None:
    """Failed before for a mixture: its width was to be given, and the checks have several."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            ZooEstimator(model, EM(max_iterations=1), num_restarts=1), on_fail=None, on_skip=None
        )
    failed = {
        result["check_name"]: repr(result["exception"])
        for result in results
        if result["status"] == "failed"
    }
    assert failed.keys() == EXCEPTIONS.keys(), failed
    assert sum(result["status"] == "passed" for result in results) > 40


def test_answers_are_those_of_the_fit() -> None:
    data = clouds()
    own = fit(mixture(), data, EM(), num_restarts=2, seed=3)
    estimator = ZooEstimator(mixture(), EM(), num_restarts=2, seed=3).fit(data)
    assert estimator.fit_.log_likelihood == own.log_likelihood
    np.testing.assert_array_equal(estimator.predict(data), own.predict(data))
    np.testing.assert_array_equal(estimator.predict_proba(data), own.predict_proba(data))
    np.testing.assert_array_equal(estimator.transform(data), own.predict_proba(data))
    np.testing.assert_array_equal(
        estimator.score_samples(data), own.log_likelihood_rows(data).numpy()
    )
    assert estimator.score(data) == pytest.approx(own.log_likelihood / len(data))
    assert list(estimator.get_feature_names_out()) == ["P(assignments=0)", "P(assignments=1)"]
    again = pickle.loads(pickle.dumps(estimator))  # noqa: S301
    np.testing.assert_array_equal(again.predict(data), own.predict(data))


def test_settings_of_the_model_by_two_underscores() -> None:
    estimator = ZooEstimator(mixture(), EM(max_iterations=7))
    assert estimator.get_params()["model__num_components"] == 2
    assert estimator.get_params(deep=False).keys() == {
        "model",
        "method",
        "init",
        "num_restarts",
        "seed",
        "site",
    }
    estimator.set_params(model__num_components=3, method__max_iterations=9, seed=5)
    assert (estimator.model.num_components, estimator.method.max_iterations, estimator.seed) == (
        3,
        9,
        5,
    )
    estimator.set_params(model=mixture(4), model__num_components=2)
    assert estimator.model.num_components == 2
    copy = clone(estimator)
    assert copy is not estimator
    assert copy.get_params() == estimator.get_params()
    with pytest.raises(ValueError, match="'model__size' is no setting of this estimator"):
        estimator.set_params(model__size=3)
    with pytest.raises(ValueError, match="num_components must be a positive integer, got 0"):
        estimator.set_params(model__num_components=0)
    with pytest.raises(ValueError, match="'method__tolerance' is no setting"):
        ZooEstimator(mixture()).set_params(method__tolerance=1e-3)


@quietly
def test_a_grid_finds_the_number_of_classes() -> None:
    data, folds = clouds(), np.array_split(np.arange(80), 2)
    estimator = ZooEstimator(mixture(), EM(), num_restarts=2)
    grid = GridSearchCV(estimator, {"model__num_components": [1, 2]}, cv=2, refit=False).fit(data)
    assert grid.best_params_ == {"model__num_components": 2}  # groups six standard deviations apart
    by_hand = [
        fit(mixture(), np.delete(data, rows, 0), EM(), num_restarts=2).score(data[rows])
        for rows in folds
    ]
    np.testing.assert_allclose(
        [grid.cv_results_[f"split{i}_test_score"][1] for i in range(2)], by_hand
    )


@quietly
def test_latents_as_features_of_a_pipeline() -> None:
    data = clouds()
    frame = pd.DataFrame(data, columns=["x", "y"])
    label = (data[:, 0] > 3).astype(int)
    pipeline = make_pipeline(
        StandardScaler(), ZooEstimator(mixture(), EM(), num_restarts=2), LogisticRegression()
    )
    assert pipeline.fit(frame, label).score(frame, label) > 0.95
    estimator = ZooEstimator(mixture(), EM(), num_restarts=2).set_output(transform="pandas")
    out = estimator.fit_transform(frame)
    assert list(out.columns) == ["P(assignments=0)", "P(assignments=1)"]
    assert list(estimator.feature_names_in_) == ["x", "y"]
    with pytest.raises(ValueError, match="[Ff]eature names"):
        estimator.predict(frame[["y", "x"]])


@quietly
def test_several_latents_and_amounts() -> None:
    rng = np.random.default_rng(1)
    answers = (rng.random((60, 6)) < 0.5).astype(float)
    deep = ZooEstimator(
        DeepDiscreteEncoder(6, (2, 1), Bernoulli(), penalty=None), EM(max_iterations=3)
    ).fit(answers)
    assert deep.transform(answers).shape == (60, 3)
    with pytest.raises(ValueError, match="several latents"):
        deep.predict(answers)
    assert deep.set_params(site="latents_1").predict(answers).shape == (60, 2)
    counts = rng.poisson(4, (40, 5)).astype(float)
    amounts = ZooEstimator(PoissonFactorization(5, 2)).fit(counts)
    np.testing.assert_allclose(
        amounts.transform(counts), amounts.fit_.local["activities"].numpy(), rtol=1e-2, atol=1e-2
    )
    assert list(amounts.get_feature_names_out()) == ["activities[0]", "activities[1]"]
    with pytest.raises(ValueError, match="no discrete latents"):
        amounts.predict(counts)


@quietly
def test_missing_entries_and_frames_of_other_libraries() -> None:
    polars = pytest.importorskip("polars")
    rng = np.random.default_rng(2)
    q = [[1, 0], [0, 1], [1, 0], [0, 1]]
    answers = (rng.random((50, 4)) < 0.5).astype(float)
    answers[3, 1] = np.nan
    frames = [
        pd.DataFrame(answers, columns=list("abcd")),
        polars.DataFrame(answers, schema=list("abcd")),
    ]
    found = [
        ZooEstimator(LatentAttributeModel(q), EM(max_iterations=3)).fit(frame).predict(frame)
        for frame in (answers, *frames)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_warnings_are_those_of_a_fit() -> None:
    with pytest.warns(ConvergenceWarning):
        ZooEstimator(mixture(), EM(max_iterations=1)).fit(clouds())
