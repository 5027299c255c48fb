"""The estimates under names, for pandas and xarray."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyro
import pyro.distributions as dist
import pytest
import torch
from zoo.table import every_row, quick_fit

from inference import EM, Fit, fit
from inference.fitting.columns import variables_of, with_names
from ppl_models import DeepDiscreteEncoder, HiddenMarkov, Mixture, MultivariateNormal


@every_row
def test_every_number_stands_under_its_names(row) -> None:
    result = quick_fit(row)
    data, frames = result.to_xarray(), result.frames
    everything = result.params | (result.local or {})
    known = {v.name for variables in variables_of(result).values() for v in variables}
    assert set(data.data_vars) == set(frames) == set(everything) | known
    for site, value in everything.items():
        np.testing.assert_array_equal(data[site].values, value.numpy())
        frame = frames[site]
        assert isinstance(frame, pd.Series if value.dim() < 2 else pd.DataFrame)
        np.testing.assert_array_equal(frame.to_numpy().ravel(), value.numpy().ravel())
        declared = getattr(row.model, "site_dims", {}).get(site)
        if declared is not None:
            assert data[site].dims[-len(declared) :] == tuple(declared)


def test_names_of_items_and_latents() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame((rng.random((80, 4)) < 0.5).astype(float), columns=list("wxyz"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(DeepDiscreteEncoder(4, (2,), penalty=None), data, EM(max_iterations=3))
    loadings = result.frames["loadings_1"]
    assert list(loadings.index) == list("wxyz")
    assert (loadings.index.name, loadings.columns.name) == ("item", "latent_1")
    assert loadings.loc["y", 1] == float(result.params["loadings_1"][2, 1])
    named = result.to_xarray({"latent_1": ["stroke", "loop"]})
    assert float(named["loadings_1"].sel(item="x", latent_1="loop")) == float(
        result.params["loadings_1"][1, 1]
    )
    assert named.attrs["num_rows"] == 80
    with pytest.raises(ValueError, match="must hold 2 names, got 1"):
        result.to_xarray({"latent_1": ["stroke"]})


def test_entries_by_number_get_their_names_in_a_text() -> None:
    data = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["x", "y"])
    one = fit(Mixture(1, num_items=2), data, EM())
    assert (
        with_names(one, "predictors[0,1], other[0], weights[7] and weights[0]")
        == "mean[0, y], other[0], weights[7] and weights[0]"
    )
    assert with_names(one, "predictors[0,1]", {"component": ["all"]}) == "mean[all, y]"


def test_three_dims_and_none() -> None:
    rng = np.random.default_rng(1)
    data = pd.DataFrame(
        rng.normal(size=(60, 2)) + 8 * rng.integers(0, 2, (60, 1)), columns=["x", "y"]
    )
    result = fit(
        Mixture(num_components=2, component=MultivariateNormal(), num_items=2),
        data,
        EM(),
        num_restarts=2,
    )
    precisions = result.frames["precisions"]
    assert precisions.index.names == ["component", "item"]
    assert precisions.loc[(1, "y")].to_numpy() == pytest.approx(
        result.params["precisions"][1, 1].numpy()
    )

    def mean_of(data):
        mean = pyro.sample("mean", dist.Normal(0.0, 10.0))
        with pyro.plate("rows", len(data)):
            pyro.sample("y", dist.Normal(mean, 1.0), obs=data)

    one = fit(mean_of, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), EM())
    assert one.frames["mean"].item() == float(one.params["mean"])


def test_names_of_rows_and_sequences_stay_with_a_fit(tmp_path) -> None:
    """Failed before: a column of names was refused, and the animal of a step was an item of it."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 60)
    table = pd.DataFrame(rng.normal(4.0 * group[:, None], 1, (60, 2)), columns=["x", "y"])
    named = table.copy()
    named.insert(0, "X", range(1, 61))
    result, plain = fit(Mixture(2), named), fit(Mixture(2), table)
    assert result.log_likelihood == plain.log_likelihood
    assert "60 rows of 2 columns (named by 'X')" in repr(result)
    result.save(tmp_path / "fit")
    rows = Fit.load(tmp_path / "fit").posterior_frame(named)
    # under the index of the data: under 1, 2, ... a row would be put beside the one before it
    pd.testing.assert_index_equal(rows.index, named.index)
    assert rows["X"].tolist() == list(range(1, 61))
    pd.testing.assert_frame_equal(rows.drop(columns="X"), plain.posterior_frame(table))
    pd.testing.assert_frame_equal(result.posterior_frame(table), plain.posterior_frame(table))
    of_polars = result.posterior_frame(pl.from_pandas(named))
    assert of_polars["X"].to_list() == list(range(1, 61))
    steps = table.assign(animal=["a"] * 30 + ["b"] * 30)
    chain = fit(HiddenMarkov(2), steps, EM())
    assert "2 sequences, 60 time points in all (sequence by 'animal')" in repr(chain)
    asked = fit(HiddenMarkov(2), steps.rename(columns={"animal": "sequence"}), chain.method)
    pd.testing.assert_frame_equal(
        chain.posterior_frame(steps),
        asked.posterior_frame(steps.rename(columns={"animal": "sequence"})),
    )
