"""A fit as an ArviZ object: what is in it, under which names, and that files keep it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import arviz
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray
from support.fitted_examples import (
    NAMES,
    bernoulli_table,
    blocks_fit,
    encoder_fit,
    mixture_fit,
    with_draws,
)

from inference import NUTS, fit as fit_to
from inference.base.outcome import ConvergenceWarning
from inference.fitting import export
from inference.predictive import predictive_check

# 0.23 can be told that it is 1, for a DataTree is xarray's; 1.x has no InferenceData to play 0.23
# with
LINES = (
    ["0.23.4", *(["1.0.0"] if hasattr(xarray, "DataTree") else [])]
    if arviz.__version__.startswith("0")
    else [arviz.__version__]
)
BOTH_LINES = pytest.mark.parametrize("version", LINES)


def groups_of(idata: object) -> set[str]:
    return (
        set(idata.groups())
        if hasattr(idata, "groups") and callable(idata.groups)
        else set(idata.children)
    )


def dataset(idata: object, group: str) -> object:
    return idata[group].to_dataset() if hasattr(idata[group], "to_dataset") else idata[group]


def test_groups_dims_and_coords_of_a_point_fit() -> None:
    fit, table = encoder_fit(), bernoulli_table()
    idata = fit.to_arviz(table)
    assert groups_of(idata) == {
        "posterior",
        "log_prior",
        "observed_data",
        "posterior_predictive",
        "latent_posterior",
    }
    assert idata.posterior["loadings_1"].dims == ("chain", "draw", "item", "latent_1")
    assert idata.posterior["loadings_2"].dims == ("chain", "draw", "latent_1", "latent_2")
    assert idata.posterior["proportions"].dims == ("chain", "draw", "latent_2")
    assert idata.log_prior["log_prior"].dims == ("chain", "draw")
    assert idata.observed_data["items"].dims == ("unit", "item")
    assert idata.posterior_predictive["items"].dims == ("chain", "draw", "unit", "item")
    assert idata.latent_posterior["latents_1"].dims == ("unit", "latent_1")
    assert tuple(idata.posterior["item"].values) == NAMES
    np.testing.assert_array_equal(idata.observed_data["unit"].values, table.index)
    assert idata.posterior.sizes["chain"] == idata.posterior.sizes["draw"] == 1


def test_values_are_those_of_the_fit() -> None:
    fit, table = encoder_fit(), bernoulli_table()
    idata = fit.to_arviz(table)
    for name, value in fit.params.items():
        np.testing.assert_array_equal(idata.posterior[name].values[0, 0], value.numpy())
    one = idata.posterior["loadings_1"].sel(item="writes", latent_1=2, chain=0, draw=0)
    assert float(one) == float(fit.params["loadings_1"][1, 2])
    rows = with_draws(fit, 1, 2).to_arviz(table).log_likelihood["items"]
    assert rows.dims == ("chain", "draw", "unit")
    np.testing.assert_array_equal(idata.observed_data["items"].values, table.to_numpy())
    for site, value in fit.posterior_latents(table).items():
        np.testing.assert_allclose(idata.latent_posterior[site].values, value.numpy(), rtol=1e-12)


def test_a_point_fit_says_that_it_is_one_draw() -> None:
    idata = encoder_fit().to_arviz()
    assert idata.posterior.attrs["point_estimate"] == 1
    assert "one draw" in idata.posterior.attrs["note"]
    assert idata.posterior.attrs["inference_library"] == "ppl-models"
    assert idata.posterior.attrs["objective_name"] == encoder_fit().objective_name
    with pytest.raises(ValueError, match="rhat: .*one draw.*restarts"):
        export.rhat(idata)
    table = export.summary(idata)
    assert list(table.columns) == ["value"]
    fit = encoder_fit()
    assert len(table) == sum(value.numel() for value in fit.params.values())
    assert table.loc["loadings_1[writes, 2]", "value"] == float(fit.params["loadings_1"][1, 2])
    assert table.loc["proportions[1]", "value"] == float(fit.params["proportions"][1])


def test_without_data_only_the_posterior_and_simulated_rows() -> None:
    fit = encoder_fit()
    idata = fit.to_arviz()
    assert groups_of(idata) == {"posterior", "posterior_predictive"}
    assert idata.posterior_predictive["items"].shape == (1, 1, fit.num_rows, 8)
    assert groups_of(export.to_arviz(fit, num_predictive=0)) == {"posterior"}


def test_simulated_rows_follow_the_seed() -> None:
    fit, table = encoder_fit(), bernoulli_table()
    first, again, other = (
        export.to_arviz(fit, table, num_predictive=3, seed=seed)
        .posterior_predictive["items"]
        .values
        for seed in (5, 5, 6)
    )
    assert first.shape == (1, 3, 60, 8)
    assert set(np.unique(first)) == {0.0, 1.0}
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (first[0, 0] != first[0, 1]).any()
    np.testing.assert_array_equal(first[0, 1], other[0, 0])  # seeds 5, 6, 7 and 6, 7, 8


def test_names_of_latents_and_dispersed_items_and_the_given_graph() -> None:
    fit, table = blocks_fit()
    idata = export.to_arviz(fit, table, names={"latent_1": ["speed", "care"]})
    assert list(idata.posterior["latent_1"].values) == ["speed", "care"]
    assert list(idata.latent_posterior["latent_1"].values) == ["speed", "care"]
    assert idata.posterior["dispersion"].dims == ("chain", "draw", "dispersed_item")
    assert list(idata.posterior["dispersed_item"].values) == ["x", "y", "z"]
    graph = idata.constant_data["graph_of_loadings_1"]
    assert graph.dims == ("item", "latent_1")
    np.testing.assert_array_equal(graph.values, np.asarray(fit.model.graphs[0]))


def test_a_users_program_gets_dims_of_its_own() -> None:
    fit, data = mixture_fit()
    idata = fit.to_arviz(data)
    assert idata.posterior["weights"].dims == ("chain", "draw", "weights_dim_0")
    assert idata.posterior["chance"].dims == ("chain", "draw", "chance_dim_0", "chance_dim_1")
    assert idata.posterior["chance"].shape == (1, 1, 3, 4)
    np.testing.assert_array_equal(idata.observed_data["answers"].values, data.numpy())
    drawn = idata.posterior_predictive["answers"].values
    assert drawn.shape == (1, 1, *data.shape)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    np.testing.assert_allclose(idata.latent_posterior["group"].values.sum(-1), 1.0)


def test_a_program_of_named_tensors_keeps_their_names() -> None:
    fit, data = mixture_fit()
    program = fit.model

    def wrapped(table: dict[str, torch.Tensor]) -> None:
        program(table["answers"])

    wrapped_fit = dataclasses.replace(fit, model=wrapped)
    idata = export.to_arviz(wrapped_fit, {"answers": data, "length": torch.full((30,), 4)})
    assert idata.observed_data["answers"].dims == ("unit", "answers_dim_0")
    assert idata.observed_data["length"].dims == ("unit",)


def test_draws_are_exported_draw_by_draw() -> None:
    table = bernoulli_table()
    fit = with_draws(encoder_fit())
    assert fit.draws is not None
    idata = export.to_arviz(fit, table, num_predictive=2)
    assert idata.posterior.attrs["point_estimate"] == 0
    assert idata.posterior["loadings_1"].shape == (2, 6, 8, 3)
    one = dataclasses.replace(fit, params={name: value[1, 4] for name, value in fit.draws.items()})
    np.testing.assert_allclose(
        idata.log_likelihood["items"].values[1, 4], one.log_likelihood_rows(table).numpy()
    )
    assert idata.posterior_predictive["items"].shape == (2, 2, 60, 8)
    np.testing.assert_array_equal(idata.posterior_predictive["draw"].values, [0, 5])
    every = [
        dataclasses.replace(fit, params={name: value[c, d] for name, value in fit.draws.items()})
        for c in range(2)
        for d in range(6)
    ]
    mean = np.mean([draw.posterior_latents(table)["latents_1"].numpy() for draw in every], axis=0)
    np.testing.assert_allclose(idata.latent_posterior["latents_1"].values, mean, rtol=1e-10)


@pytest.mark.filterwarnings(
    "ignore:Estimated shape parameter"
)  # the draws are no posterior, and loo notices
def test_arviz_reads_the_draws() -> None:
    idata = export.to_arviz(with_draws(encoder_fit(), 4, 25), bernoulli_table(), num_predictive=0)
    values = export.rhat(idata)
    assert values["loadings_1"].dims == ("item", "latent_1")
    assert (values["loadings_1"] < 1.2).all()  # independent draws about one point
    table = export.summary(idata)
    assert "loadings_1[writes, 2]" in table.index
    assert "r_hat" in table.columns
    loo = arviz.loo(idata, pointwise=True)
    assert loo.n_data_points == 60
    assert np.isfinite(
        loo.elpd_loo if hasattr(loo, "elpd_loo") else loo.elpd
    )  # ArviZ 1 calls it elpd


@BOTH_LINES
@pytest.mark.parametrize("draws", [False, True])
def test_files_keep_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, draws: bool
) -> None:
    monkeypatch.setattr(arviz, "__version__", version)
    fit = with_draws(encoder_fit()) if draws else encoder_fit()
    idata = export.to_arviz(fit, bernoulli_table(), num_predictive=1)
    assert type(idata).__name__ == ("InferenceData" if version.startswith("0") else "DataTree")
    file = export.save_netcdf(idata, tmp_path / "fit.nc")
    loaded = export.load_netcdf(file)
    assert type(loaded) is type(idata)
    assert groups_of(loaded) == groups_of(idata)
    for group in groups_of(idata):
        assert dataset(loaded, group).identical(dataset(idata, group)), group
    assert np.isnan(loaded["observed_data"]["items"].values).sum() == 3
    export.save_netcdf(loaded, file)  # the file is not held open
    if not draws:
        with pytest.raises(ValueError, match="one draw"):
            export.rhat(loaded)
        assert len(export.summary(loaded)) == len(export.summary(idata))


def test_bad_input_is_refused(tmp_path: Path) -> None:
    fit, table = encoder_fit(), bernoulli_table()
    with pytest.raises(ValueError, match="'i' is missing"):
        export.to_arviz(fit, table.iloc[:, :7])
    with pytest.raises(ValueError, match="num_predictive must be a non-negative integer, got -1"):
        export.to_arviz(fit, num_predictive=-1)
    with pytest.raises(ValueError, match=r"names\['latent_1'\] must hold 3 names, got 2"):
        export.to_arviz(fit, names={"latent_1": ["one", "two"]})
    with pytest.raises(ValueError, match="a file in an existing folder"):
        export.save_netcdf(fit.to_arviz(), tmp_path)
    with pytest.raises(ValueError, match="a file in an existing folder"):
        export.save_netcdf(fit.to_arviz(), tmp_path / "no" / "fit.nc")
    with pytest.raises(ValueError, match="no file"):
        export.load_netcdf(tmp_path / "missing.nc")
    text = tmp_path / "text.nc"
    text.write_text("not netCDF")
    with pytest.raises(ValueError, match="not a netCDF-4 file"):
        export.load_netcdf(text)


def test_a_model_whose_dims_do_not_fit_is_refused() -> None:
    fit, _ = mixture_fit()

    class Wrong:
        site_dims = {"chance": ("item",)}

        def __call__(self, data: torch.Tensor) -> None: ...

    with pytest.raises(ValueError, match=r"site_dims\['chance'\] must name 2 dims"):
        export.to_arviz(dataclasses.replace(fit, model=Wrong()))


def test_simulated_rows_vary_as_the_drawn_latents_of_the_rows_do() -> None:
    def program(x: torch.Tensor) -> None:
        centre = pyro.sample("centre", dist.Normal(0.0, 5.0))
        with pyro.plate("rows", len(x)):
            own = pyro.sample("own", dist.Normal(0.0, 1.0))
            pyro.sample("x", dist.Normal(centre + own, 1.0), obs=x)

    x = torch.randn(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.warns(ConvergenceWarning):
        found = fit_to(program, x, NUTS(num_samples=4, warmup_steps=20, num_chains=2))
    far = 30.0 * torch.tensor([-1.0, 1.0, 1.0, -1.0]).double()  # whose mean is 0
    found = dataclasses.replace(
        found,
        draws={"centre": torch.zeros(2, 4).double()},
        local_draws={"own": far.reshape(4, 1).expand(2, 4, 40)},
        local={"own": torch.zeros(40).double()},
    )
    drawn = found.to_arviz(x, 4).posterior_predictive["x"].values  # (2, 4, 40)
    np.testing.assert_allclose(drawn.mean(-1), far.expand(2, 4), atol=1.0)
    means = predictive_check(found, x, 8).simulated.mean((1, 2))
    np.testing.assert_allclose(means, far.repeat(2), atol=1.0)
