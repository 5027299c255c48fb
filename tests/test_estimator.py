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
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from inference import EM, ConvergenceWarning, Laplace, OnlineEM, ZooEstimator, fit
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
DENSE = "check_sample_weight_equivalence_on_dense_data"
WEIGHTED = {
    DENSE: "starts are drawn from the rows there are, and one iteration does not forget them;"
    " see test_weights_are_repeated_rows"
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
SPARSE = dict.fromkeys(
    ("check_estimator_sparse_matrix", "check_estimator_sparse_array"),
    "fitted and predicted; the check then asks for the tags of a classifier",
) | {DENSE.replace("dense", "sparse"): WEIGHTED[DENSE]}
SPARSE_WEIGHTS = {DENSE.replace("dense", "sparse"): "the model takes no weights"}
COMPLETE = {"check_estimators_pickle": "the model wants complete rows"}
CHECKED: dict[str, tuple[Any, dict[str, str]]] = {  # model, and the checks that it fails
    "program": (lambda: two_clouds, {}),
    "normals": (lambda: Mixture(2, Normal()), WEIGHTED | SPARSE),
    "full normals": (lambda: Mixture(2, MultivariateNormal()), WEIGHTED | SPARSE),
    "encoder": (
        lambda: DeepDiscreteEncoder(latent_sizes=(2,), response=Normal(), penalty=None),
        WEIGHTED | SPARSE,
    ),
    "factor analysis": (lambda: FactorAnalysis(num_components=1), UNWEIGHTED | SPARSE_WEIGHTS),
    "factorization": (
        lambda: GaussianFactorization(num_components=1),
        UNWEIGHTED | SPARSE_WEIGHTS | COMPLETE,
    ),
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
    about_weights = UNWEIGHTED.keys() | SPARSE_WEIGHTS.keys()
    own = [result for result in results if result["check_name"] not in about_weights]
    assert len(own) >= 46
    assert sum(result["status"] == "failed" for result in own) <= 2


@quietly
def test_weights_are_repeated_rows() -> None:
    data, times = clouds(30), np.random.default_rng(3).integers(0, 4, 30)
    weighted = ZooEstimator(mixture(), EM(), num_restarts=3).fit(data, sample_weight=times)
    repeated = ZooEstimator(mixture(), EM(), num_restarts=3).fit(np.repeat(data, times, axis=0))
    first, second = (np.sort(each.predict_proba(data), axis=1) for each in (weighted, repeated))
    np.testing.assert_allclose(first, second, atol=1e-6)
    for name in ("aic", "bic"):
        of_rows = getattr(repeated, name)(np.repeat(data, times, axis=0))
        assert getattr(weighted, name)(data, times) == pytest.approx(of_rows, abs=1e-4)
        with pytest.raises(ValueError, match=f"{name}: sample_weight was expected"):
            getattr(weighted, name)(data)
        for wrong in (-1.0, np.nan):
            with pytest.raises(ValueError, match=f"{name}: sample_weight: finite .* in row 0"):
                getattr(weighted, name)(data, np.r_[wrong, np.asarray(times)[1:]])
        with pytest.raises(ValueError, match="one number for each of the 30 rows"):
            getattr(weighted, name)(data, times[1:])
        shuffled = pd.Series(times, index=np.arange(30)[::-1])
        with pytest.raises(ValueError, match=f"{name}: sample_weight: the index of the rows"):
            getattr(weighted, name)(pd.DataFrame(data), shuffled)


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
    of_sparse, of_dense = (sparse.score_samples(x) for x in (csr_matrix(counts), counts))
    np.testing.assert_allclose(of_sparse, of_dense, atol=1e-6)
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
        "tied",
        "on_iteration",
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


@quietly
def test_rows_in_batches() -> None:
    rng = np.random.default_rng(4)
    kinds = rng.random(3000) < 0.3
    data = rng.normal(size=(3000, 3)) + 3 * kinds[:, None] + 50
    batches = np.array_split(data, 15)
    online = ZooEstimator(Mixture(2, Normal()), num_restarts=3)
    for batch in batches:
        assert online.partial_fit(batch) is online
    whole, first = (ZooEstimator(Mixture(2, Normal())).fit(rows) for rows in (data, batches[0]))
    assert online.fit_.num_rows == 3000
    assert online.n_features_in_ == 3
    lost = [whole.score(data) - own.score(data) for own in (online, first)]
    assert 0 < lost[0] < lost[1] / 5  # the later batches have taught
    assert online.fit_.log_likelihood / 3000 == pytest.approx(online.score(batches[-1]), abs=1e-9)
    assert online.bic(data) == pytest.approx(
        13 * np.log(3000) - 2 * float(online.score_samples(data).sum())
    )
    again = pickle.loads(pickle.dumps(online))  # noqa: S301
    for own in (online, again):
        own.partial_fit(batches[3], sample_weight=np.ones(200))
    assert torch.equal(again.fit_.params["predictors"], online.fit_.params["predictors"])
    assert not hasattr(online.fit(batches[0]), "_continued")  # fit begins anew


def test_batches_count_rows_by_their_weights() -> None:
    """The likelihood was scaled by rows, and the BIC beside it by their weights."""
    first, second = clouds(100)[:60], clouds(100)[60:]
    own = ZooEstimator(mixture(), num_restarts=2).partial_fit(first)
    weights = np.where(np.arange(40) < 10, 3.0, 6.0)
    own.partial_fit(second, sample_weight=weights)
    assert own.fit_.num_observations == 60 + weights.sum()
    batch = weights @ own.score_samples(second)
    assert own.fit_.log_likelihood == pytest.approx(batch * (60 + weights.sum()) / weights.sum())
    assert torch.equal(
        own.fit_.row_weights, torch.cat([torch.ones(60).double(), torch.from_numpy(weights)])
    )
    with pytest.raises(ValueError, match="bic: sample_weight was expected"):
        own.bic(clouds(100))


@quietly
def test_batches_leave_no_draws_of_the_first() -> None:
    """Draws of the first batch stayed beside the estimates of all, in summaries and ArviZ."""
    own = ZooEstimator(mixture(), Laplace(num_draws=120), num_restarts=2).partial_fit(clouds(60))
    assert own.fit_.draws is not None
    own.partial_fit(clouds(100)[60:])
    assert own.fit_.draws is None
    assert own.fit_.sample_stats is None
    assert own.fit_.to_arviz()["posterior"].attrs["point_estimate"] == 1


def test_a_batch_is_one_step_of_stepwise_em() -> None:
    data, other = clouds(60), clouds(100)[60:]
    own = ZooEstimator(mixture(), EM(start=OnlineEM(rate=0.7)), num_restarts=2)
    theta = own.partial_fit(data).fit_.params
    own.partial_fit(other)

    def sums(rows: np.ndarray) -> list[Any]:
        x, log = torch.as_tensor(rows)[:, None], theta["weights"].log()
        density = dist.Normal(theta["predictors"], theta["dispersion"].sqrt())
        chance = (density.log_prob(x).sum(-1) + log).softmax(-1)
        return [chance.sum(0), chance.T @ x[:, 0], chance.T @ x[:, 0].square()]

    rate = 3**-0.7
    counts, first, _ = (
        (1 - rate) * a * 100 / 60 + rate * b * 100 / 40
        for a, b in zip(sums(data), sums(other), strict=True)
    )
    weights = (counts + 0.001) / (counts + 0.001).sum()  # concentration 1.001
    torch.testing.assert_close(own.fit_.params["weights"], weights)
    torch.testing.assert_close(own.fit_.params["predictors"], first / counts[:, None])


@quietly
def test_no_grid_chooses_components_by_rows_that_they_are_fitted_to() -> None:
    """Left-out rows got activities of their own: of four numbers the largest was chosen."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(1.0, 30.0, (60, 2)) @ rng.dirichlet(np.ones(8), 2)).astype(float)
    estimator = ZooEstimator(PoissonFactorization(8, 2), num_restarts=1)
    grid = {"model": [PoissonFactorization(8, k) for k in (1, 2, 3, 4)]}
    assert not hasattr(estimator, "score")
    with pytest.raises(TypeError, match="'score' method"):
        GridSearchCV(estimator, grid, cv=3).fit(counts)
    assert hasattr(ZooEstimator(FactorAnalysis(num_components=1)), "score")


def test_models_without_sums_take_no_batches() -> None:
    assert not hasattr(ZooEstimator(two_clouds), "partial_fit")
    assert not hasattr(ZooEstimator(GaussianFactorization(num_components=1)), "partial_fit")
    assert hasattr(ZooEstimator(FactorAnalysis(num_components=1)), "partial_fit")
    with pytest.raises(ValueError, match="partial_fit: semi_supervised=False"):
        ZooEstimator(mixture(), semi_supervised=True).partial_fit(clouds(), [0] * 80)


@quietly
def test_weights_are_routed_to_every_step() -> None:
    data, weights = clouds(), np.repeat([0.0, 1.0, 2.0, 1.0], 20)
    with config_context(enable_metadata_routing=True):
        estimator = ZooEstimator(mixture(), EM(), num_restarts=2).set_fit_request(
            sample_weight=True
        )
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), estimator)
        routed = pipeline.fit(data, sample_weight=weights)[-1]
        scaled = StandardScaler().fit_transform(data)
        by_hand = ZooEstimator(mixture(), EM(), num_restarts=2).fit(scaled, sample_weight=weights)
        assert routed.fit_.log_likelihood == by_hand.fit_.log_likelihood
        grid = GridSearchCV(estimator, {"model__num_components": [1, 2]}, cv=2)
        grid.fit(data, sample_weight=weights)
        best = grid.best_estimator_.fit_
        assert torch.equal(best.row_weights, torch.as_tensor(weights))
        with pytest.raises(UnsetMetadataPassedError):
            GridSearchCV(ZooEstimator(mixture()), {}, cv=2).fit(data, sample_weight=weights)


@quietly
def test_a_grid_over_widths() -> None:
    rng = np.random.default_rng(5)
    data = np.column_stack([clouds(), rng.normal(size=(80, 3))])
    pipeline = make_pipeline(PCA(), ZooEstimator(Mixture(2, Normal()), EM(), num_restarts=2))
    grid = GridSearchCV(pipeline, {"pca__n_components": [1, 2, 4]}, cv=2, error_score="raise")
    grid.fit(data)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()
    widths = {setting["pca__n_components"] for setting in grid.cv_results_["params"]}
    assert widths == {1, 2, 4}
    assert grid.best_estimator_[-1].n_features_in_ in widths
    with pytest.raises(ValueError, match="2"):  # a model of two columns stays one
        make_pipeline(PCA(3), ZooEstimator(mixture(), EM())).fit(data)
