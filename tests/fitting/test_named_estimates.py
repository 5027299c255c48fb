"""Estimates under the names that users know: probabilities, rates, means, variances."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, Fit, Laplace, fit
from ppl_models import (
    Bernoulli,
    Blocks,
    HiddenMarkov,
    Mixture,
    MultivariateNormal,
    NegativeBinomial,
    Normal,
    Ordinal,
    Poisson,
)

BLOCKS = Blocks((Bernoulli(), 2), (Normal(), 1), (Poisson(), 1))


def rows(num: int = 120, seed: int = 0) -> pd.DataFrame:
    """Two groups that differ in answers, a measurement and a count."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=num)
    return pd.DataFrame(
        {
            "yes": rng.random(num) < np.where(group, 0.8, 0.2),
            "no": rng.random(num) < np.where(group, 0.3, 0.7),
            "size": rng.normal(3.0 * group, 1.0),
            "count": rng.poisson(np.where(group, 2.0, 6.0)),
        }
    ).astype(float)


@pytest.fixture(scope="module")
def mixed() -> Fit:
    return fit(Mixture(2, BLOCKS, 4), rows(), EM(), num_restarts=4)


def test_each_item_stands_under_the_name_of_its_kind(mixed: Fit) -> None:
    predictors, frames = mixed.params["predictors"], mixed.frames
    probability, rate = torch.sigmoid(predictors[:, :2]), predictors[:, 3:].exp()
    assert list(frames["probability"].columns) == ["yes", "no"]
    np.testing.assert_array_equal(frames["probability"].to_numpy(), probability.numpy())
    assert list(frames["mean"].columns) == ["size"]
    np.testing.assert_array_equal(frames["mean"].to_numpy(), predictors[:, 2:3].numpy())
    assert list(frames["rate"].columns) == ["count"]
    np.testing.assert_array_equal(frames["rate"].to_numpy(), rate.numpy())
    np.testing.assert_array_equal(frames["variance"].to_numpy(), mixed.params["dispersion"].numpy())


def test_the_summary_has_errors_by_the_slope_and_intervals_by_the_ends(mixed: Fit) -> None:
    table, data = mixed.summary(rows()), rows()
    assert not [name for name in table.index if "predictors" in name or "dispersion" in name]
    from inference.uncertainty import standard_errors

    found = standard_errors(mixed, data, hold_bounds=True)
    low, high = found.intervals(0.95)["predictors"]
    p = torch.sigmoid(mixed.params["predictors"])[0, 1]
    line = table.loc["probability[0, no]"]
    error = float(p * (1 - p) * found.standard_errors["predictors"][0, 1])
    assert line["estimate"] == pytest.approx(float(p), rel=1e-12)
    assert line["error"] == pytest.approx(error, rel=1e-9)
    assert line["low"] == pytest.approx(float(torch.sigmoid(low[0, 1])), rel=1e-9)
    assert line["high"] == pytest.approx(float(torch.sigmoid(high[0, 1])), rel=1e-9)
    assert "rate[component, rate_item]" in table.attrs["entries"]


def test_draws_are_transformed_one_by_one() -> None:
    rng = np.random.default_rng(2)
    group = rng.integers(2, size=200)
    x = pd.DataFrame(
        (rng.random((200, 4)) < np.where(group[:, None], 0.85, 0.15)).astype(float),
        columns=list("abcd"),
    )
    drawn = fit(Mixture(2, Bernoulli(), 4), x, Laplace(num_draws=100))
    assert drawn.draws is not None
    values = torch.sigmoid(drawn.draws["predictors"])
    line = drawn.summary().loc["probability[1, a]"]
    assert line["estimate"] == pytest.approx(float(values[..., 1, 0].mean()), rel=1e-12)
    posterior = drawn.to_arviz(x)["posterior"]
    np.testing.assert_array_equal(posterior["probability"].values, values.numpy())
    assert posterior["probability"].dims == ("chain", "draw", "component", "item")


def test_covariances_are_in_frames_and_arviz() -> None:
    x = rows()[["size", "count"]]
    result = fit(Mixture(2, MultivariateNormal(), 2), x, EM(), num_restarts=3)
    covariance = torch.linalg.inv(result.params["precisions"])
    np.testing.assert_array_equal(
        result.frames["covariance"].to_numpy().reshape(2, 2, 2), covariance.numpy()
    )
    assert result.to_arviz(x)["posterior"]["covariance"].shape == (1, 1, 2, 2, 2)
    names = list(result.summary().index)
    assert "mean[0, size]" in names
    assert sum(name.startswith("precisions[0, size") for name in names) == 2


def test_states_have_the_names_too_and_what_has_no_name_keeps_its_own() -> None:
    rng = np.random.default_rng(1)
    counts = rng.negative_binomial(3, 0.4, (4, 30, 1)).astype(float)
    states = fit(HiddenMarkov(2, NegativeBinomial(), 1), counts, EM(), num_restarts=2)
    assert {"rate[0, 0]", "size[1, 0]"} <= set(states.summary().index)
    group = rng.integers(2, size=200)
    x = np.c_[rng.binomial(2, 0.3 + 0.4 * group), rng.normal(3.0 * group)]
    model = Mixture(2, Blocks((Ordinal(3, link="cumulative"), 1), (Normal(), 1)), 2)
    mixed = fit(model, x, EM(), num_restarts=2)
    assert {"predictors[0, 0]", "mean[0, 1]"} <= set(mixed.summary().index)
