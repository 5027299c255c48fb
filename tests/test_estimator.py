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
from scipy.sparse import csr_matrix
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
    FactorAnalysis,
    GaussianFactorization,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    Normal,
    Poisson,
    PoissonFactorization,
)

quietly = pytest.mark.filterwarnings(
    "ignore::inference.ConvergenceWarning", "ignore::inference.StartsWarning"
)
WEIGHTED = {
    "check_sample_weight_equivalence_on_dense_data": "starts are drawn from the rows there are,"
    " and one iteration does not forget them; see test_weights_are_repeated_rows"
}
UNWEIGHTED = dict.fromkeys(
    (
        *WEIGHTED,
        "check_sample_weights_pandas_series",
        "check_sample_weights_not_an_array",
        "check_sample_weights_list",
        "check_all_zero_sample_weights_error",
        "check_sample_weights_shape",
        "check_sample_weights_not_overwritten",
    ),
    "the model takes no weights",
)
TAG = {"check_estimator_sparse_tag": "sparse tables are fitted, though not by every model"}
SPARSE = TAG | dict.fromkeys(
    ("check_estimator_sparse_matrix", "check_estimator_sparse_array"),
    "fitted and predicted; the check then asks for the tags of a classifier",
)
TWO_COLUMNS = {"check_fit2d_1feature": "the model wants two columns, and the refusal says so"}
COMPLETE = {"check_estimators_pickle": "the model wants complete rows"}
CHECKED: dict[str, tuple[Any, dict[str, str]]] = {  # model, and the checks that it fails
    "program": (lambda: two_clouds, UNWEIGHTED),
    "normals": (lambda: Mixture(2, Normal()), WEIGHTED | SPARSE),
    "full normals": (lambda: Mixture(2, MultivariateNormal()), WEIGHTED | SPARSE),
    "encoder": (
        lambda: DeepDiscreteEncoder(latent_sizes=(2,), response=Normal(), penalty=None),
        WEIGHTED | TWO_COLUMNS | SPARSE,
    ),
    "factor analysis": (lambda: FactorAnalysis(num_components=1), UNWEIGHTED | TWO_COLUMNS | TAG),
    "factorization": (lambda: GaussianFactorization(num_components=1), UNWEIGHTED | COMPLETE | TAG),
}


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


@pytest.mark.parametrize("name", CHECKED)
def test_scikit_learn_s_own_checks(name: str) -> None:
    make, exceptions = CHECKED[name]
    method = None if "factor" in name else EM(max_iterations=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            ZooEstimator(make(), method, num_restarts=1), on_fail=None, on_skip=None
        )
    failed = {
        result["check_name"]: repr(result["exception"])
        for result in results
        if result["status"] == "failed"
    }
    assert failed.keys() == exceptions.keys(), failed
    own = [result for result in results if result["check_name"] not in UNWEIGHTED]
    assert sum(result["status"] == "passed" for result in own) >= 41


@quietly
def test_weights_are_repeated_rows() -> None:
    data, times = clouds(30), np.random.default_rng(3).integers(0, 4, 30)
    weighted = ZooEstimator(mixture(), EM(), num_restarts=3).fit(data, sample_weight=times)
    repeated = ZooEstimator(mixture(), EM(), num_restarts=3).fit(np.repeat(data, times, axis=0))
    first, second = (np.sort(each.predict_proba(data), axis=1) for each in (weighted, repeated))
    np.testing.assert_allclose(first, second, atol=1e-6)


@quietly
def test_methods_of_gaussian_mixture() -> None:
    data = clouds()
    estimator = ZooEstimator(mixture(), EM(), num_restarts=2)
    classes = estimator.fit_predict(data)
    np.testing.assert_array_equal(classes, estimator.predict(data))
    assert estimator.bic(data) == pytest.approx(estimator.fit_.bic, abs=1e-9)
    assert estimator.aic(data) == pytest.approx(estimator.fit_.aic, abs=1e-9)
    half = estimator.score(data[:40]) * 40
    assert estimator.aic(data[:40]) == pytest.approx(2 * estimator.fit_.num_parameters - 2 * half)
    rows, labels = estimator.sample(500)
    assert rows.shape == (500, 2)
    assert np.mean(estimator.predict(rows) == labels) > 0.98
    np.testing.assert_array_equal(estimator.sample(500)[0], rows)
    drawing = ZooEstimator(
        mixture(), EM(), num_restarts=2, random_state=np.random.RandomState(0)
    ).fit(data)
    assert not np.array_equal(drawing.sample(5)[0], drawing.sample(5)[0])
    assert isinstance(drawing.fit_.seed, int)


@quietly
def test_sparse_counts() -> None:
    counts = np.random.default_rng(1).poisson(1.0, (40, 6)).astype(float)
    dense = ZooEstimator(PoissonFactorization(num_components=2)).fit(counts)
    sparse = ZooEstimator(PoissonFactorization(num_components=2)).fit(csr_matrix(counts))
    assert sparse.score(csr_matrix(counts)) == pytest.approx(sparse.score(counts), abs=1e-6)
    assert not hasattr(dense, "predict")
    plain = ZooEstimator(Mixture(2, Poisson()), EM(), num_restarts=2).fit(counts)
    blocks = ZooEstimator(Mixture(2, Poisson()), EM(), num_restarts=2).fit(csr_matrix(counts))
    assert blocks.score(counts) == pytest.approx(plain.score(counts), abs=0.02)


def test_answers_are_those_of_the_fit() -> None:
    data = clouds()
    own = fit(mixture(), data, EM(), num_restarts=2, seed=3)
    estimator = ZooEstimator(mixture(), EM(), num_restarts=2, random_state=3).fit(data)
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
        "random_state",
        "site",
        "semi_supervised",
        "label_error",
        "fixed",
    }
    estimator.set_params(model__num_components=3, method__max_iterations=9, random_state=5)
    assert estimator.model.num_components == 3
    assert (estimator.method.max_iterations, estimator.random_state) == (9, 5)
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
    assert not hasattr(amounts, "predict")


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
