"""Published fits of other packages, on their data: log-likelihoods, parameters, the model chosen.

Where a package stops before its optimum, ours is the higher, and within what its rule leaves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch

from inference import EM, Fit, fit
from inference.causal import BIC, BDeu, ExactSearch
from inference.causal.scores import SetScores
from ppl_models import Mixture, MultivariateNormal


def reference(name: str) -> Any:
    path = Path(__file__).parent.parent / "references" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


# ---------------------------------------------------------------- mclust

MCLUST = reference("mclust")
COLUMNS = {"faithful": ["eruptions", "waiting"], "diabetes": ["fpg", "glucose", "insulin"]}


def normals(data: str, family: str, size: int) -> Fit:
    rows = pd.DataFrame({name: MCLUST[data][name] for name in COLUMNS[data]})
    return fit(Mixture(size, MultivariateNormal(covariance=family)), rows)


@pytest.mark.parametrize("data", COLUMNS)
def test_the_fit_that_mclust_prints(data: str) -> None:
    told = MCLUST[data]
    own = normals(data, *told["chosen"])
    assert own.num_parameters == told["num_parameters"]
    # mclust's EM stops at a relative change of 1e-5
    assert -0.001 < own.log_likelihood - told["log_likelihood"] < 0.03
    assert -0.06 < own.bic - told["bic"] < 0.001
    if "means" in told:
        torch.testing.assert_close(
            own.params["means"], torch.tensor(told["means"]).double(), rtol=0.01, atol=0.0
        )
        torch.testing.assert_close(
            own.params["weights"], torch.tensor(told["weights"]).double(), rtol=0.0, atol=0.01
        )


def test_the_model_that_mclust_chooses_for_faithful() -> None:
    chosen = normals("faithful", "EEE", 3).bic
    others = [("EEE", 2), ("EEE", 4), ("VVV", 2), ("VVV", 3), ("VVE", 2)]
    assert chosen < min(normals("faithful", *other).bic for other in others)


def test_the_models_that_mclust_ranks_for_diabetes() -> None:
    told = MCLUST["diabetes"]["best_bic"]
    own = {
        name: normals("diabetes", name.split(",")[0], int(name.split(",")[1])).bic for name in told
    }
    assert min(own, key=own.__getitem__) == min(told, key=told.__getitem__) == "VVV,3"
    for name, value in own.items():  # of several optima mclust's starts found some
        assert value < told[name] + 0.001
    assert own["VVV,3"] == pytest.approx(told["VVV,3"], abs=0.03)


# ---------------------------------------------------------------- flexmix

NPREG = reference("flexmix")
X, Y, COUNTS = (np.asarray(NPREG[name], dtype=float) for name in ("x", "yn", "yp"))


def curves(x: Any, y: Any) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2)))
    b = pyro.sample("b", dist.Uniform(-1000.0, 1000.0).expand([2, 3]).to_event(2))
    spread = pyro.sample("spread", dist.Uniform(0.01, 100.0).expand([2]).to_event(1))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("group", dist.Categorical(weights))
        z = z if y.ndim == 1 else z[..., None]
        mean = b[z, 0] + b[z, 1] * x + b[z, 2] * x**2
        pyro.sample("y", dist.Normal(mean, spread[z]).to_event(y.ndim - 1), obs=y)


def counts(x: Any, y: Any) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2)))
    b = pyro.sample("b", dist.Uniform(-100.0, 100.0).expand([2, 2]).to_event(2))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("y", dist.Poisson((b[z, 0] + b[z, 1] * x).exp()), obs=y)


def test_curves_of_flexmix() -> None:
    told = NPREG["normal"]
    own = fit(curves, (X, Y), EM(), num_restarts=6)
    assert own.num_parameters == told["num_parameters"]
    assert 0 < own.log_likelihood - told["log_likelihood"] < 0.02  # its sigma is not the likeliest
    assert own.bic == pytest.approx(told["bic"], abs=0.04)
    order = own.params["b"][:, 1].argsort()  # the line first
    for found, name, close in (
        (own.params["b"], "coefficients", 0.006),
        (own.params["weights"], "weights", 0.001),
        (own.params["spread"] * (200 / 197) ** 0.5, "sigma", 0.006),  # 200 rows, 3 coefficients
    ):
        torch.testing.assert_close(
            found[order], torch.tensor(told[name]).double(), rtol=0.0, atol=close
        )
    clusters = np.argsort(order.numpy())[own.predict((X, Y))]
    table = np.zeros((2, 2), dtype=int)
    np.add.at(table, (np.asarray(NPREG["class"]) - 1, clusters), 1)
    assert table.tolist() == told["clusters"]


def test_counts_of_flexmix() -> None:
    told = NPREG["poisson"]
    own = fit(counts, (X, COUNTS))
    assert own.num_parameters == told["num_parameters"]
    assert 0 < own.log_likelihood - told["log_likelihood"] < 0.005
    assert own.bic == pytest.approx(told["bic"], abs=0.01)
    assert sorted(own.params["weights"].tolist()) == pytest.approx(told["weights"][::-1], abs=0.01)


def test_persons_of_flexmix() -> None:
    told = NPREG["grouped"]
    order = np.argsort(NPREG["id2"], kind="stable")
    persons = tuple(values[order].reshape(50, 4) for values in (X, Y))
    own = fit(curves, persons)
    assert 0 < own.log_likelihood - told["log_likelihood"] < 0.02
    assert own.params["weights"].tolist() == pytest.approx(told["weights"], abs=1e-6)
    assert own.aic == pytest.approx(
        2 * told["num_parameters"] - 2 * told["log_likelihood"], abs=0.1
    )


# ---------------------------------------------------------------- ltm, girth, mirt

ITEMS = reference("item_response")


def answers_of(name: str) -> np.ndarray:
    patterns = ITEMS[name]["patterns"]
    rows = np.array([[float(entry) for entry in pattern] for pattern in patterns])
    return np.repeat(rows, list(patterns.values()), axis=0)


def binary_items(answers: Any, num_slopes: int = 1) -> None:
    easiness = pyro.sample("easiness", dist.Uniform(-20.0, 20.0).expand([5]).to_event(1))
    slope = pyro.sample("slope", dist.Uniform(0.0, 20.0).expand([num_slopes]).to_event(1))
    with pyro.plate("persons", len(answers)):
        ability = pyro.sample("ability", dist.Normal(0.0, 1.0))
        logits = easiness + slope * ability[..., None]
        pyro.sample("answers", dist.Bernoulli(logits=logits).to_event(1), obs=answers)


def graded_items(answers: Any, num_slopes: int = 1) -> None:
    slope = pyro.sample("slope", dist.Uniform(0.0, 20.0).expand([num_slopes]).to_event(1))
    first = pyro.sample("first", dist.Uniform(-20.0, 20.0).expand([4, 1]).to_event(2))
    gaps = pyro.sample("gaps", dist.Uniform(0.0, 20.0).expand([4, 2]).to_event(2))
    cuts = torch.cat([first, first + gaps.cumsum(-1)], -1)
    with pyro.plate("persons", len(answers)):
        ability = pyro.sample("ability", dist.Normal(0.0, 1.0))
        predictor = slope * ability[..., None]
        predictor, _ = torch.broadcast_tensors(predictor, answers)
        pyro.sample("answers", dist.OrderedLogistic(predictor, cuts).to_event(1), obs=answers)


@pytest.mark.parametrize(("name", "num_slopes"), [("one_pl", 1), ("two_pl", 5)])
def test_slopes_and_difficulties_of_girth(name: str, num_slopes: int) -> None:
    told = ITEMS["lsat"][name]
    own = fit(binary_items, answers_of("lsat"), args=(num_slopes,))
    assert own.log_likelihood == pytest.approx(told["log_likelihood"], abs=0.001)
    slope = own.params["slope"].numpy()
    np.testing.assert_allclose(slope, np.atleast_1d(told["slope"]), rtol=0.002)
    np.testing.assert_allclose(
        -own.params["easiness"].numpy() / slope, told["difficulty"], rtol=0.002
    )


def test_graded_items_of_mirt() -> None:
    told, answers = ITEMS["science"], answers_of("science")  # 11 nodes miss .0055 nats
    equal = fit(graded_items, answers)
    assert equal.num_parameters == told["equal_slopes"]["num_parameters"]
    assert equal.log_likelihood == pytest.approx(told["equal_slopes"]["log_likelihood"], abs=0.006)
    assert equal.bic == pytest.approx(told["equal_slopes"]["bic"], abs=0.012)
    assert float(equal.params["slope"]) == pytest.approx(told["equal_slopes"]["slope"], abs=0.003)
    first, gaps = equal.params["first"], equal.params["gaps"]
    cuts = torch.cat([first, first + gaps.cumsum(-1)], -1)
    np.testing.assert_allclose(-cuts.numpy(), told["equal_slopes"]["intercepts"], atol=0.006)
    own = fit(graded_items, answers, args=(4,))
    assert own.num_parameters == told["graded"]["num_parameters"]
    assert own.log_likelihood == pytest.approx(told["graded"]["log_likelihood"], abs=0.006)
    slope = own.params["slope"].numpy() / 1.702  # mirt's loadings are on the scale of the probit
    np.testing.assert_allclose(
        slope / np.sqrt(1 + slope**2), told["graded"]["loadings"], atol=0.003
    )


# ---------------------------------------------------------------- pgmpy

PGMPY = reference("pgmpy")["cases"]


@pytest.mark.parametrize("case", PGMPY, ids=lambda case: f"seed {case['seed']}")
@pytest.mark.parametrize("rule", ["bic", "bdeu"])
def test_scores_and_best_graph_of_pgmpy(case: Any, rule: str) -> None:
    score = BIC() if rule == "bic" else BDeu(equivalent_sample_size=10.0)
    table = np.asarray(case["counts"], dtype=float).reshape((2,) * 4).transpose().ravel()
    own = SetScores(table / table.sum(), table.sum(), score)
    for family, value in case["local"][rule].items():
        attribute, parents = map(int, family.split(","))
        assert own.local(attribute, parents) == pytest.approx(value, abs=2e-6)
    found = ExactSearch().best(table / table.sum(), table.sum(), score)
    assert found.score == pytest.approx(case["best"][rule]["score"], abs=1e-6)
