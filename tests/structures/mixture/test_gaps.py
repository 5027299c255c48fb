"""Multivariate normal components of rows with gaps: estimates in closed form, moments by
quadrature, and what is said of the gaps.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from inference import EM, fit
from inference.base.component_distributions.dispatch import distribution_of
from inference.bootstrap import bootstrap
from ppl_models import Mixture, MultivariateNormal

F64 = torch.float64


def test_one_component_of_monotone_gaps_has_its_closed_form() -> None:
    """The second column is regressed on the first where both are there, and that distribution
    carried over to all rows (Anderson 1957, doi:10.1080/01621459.1957.10501379).
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2)) @ np.array([[2.0, 1.5], [0.0, 1.0]]) + [3.0, -1.0]
    gone = rng.random(120) < 0.5
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(b=np.where(gone, np.nan, x[:, 1]))
    found = fit(
        Mixture(1, MultivariateNormal(1e-12), 2),
        frame,
        EM(tolerance=1e-15, parameter_tolerance=1e-9),
    )
    both = x[~gone]
    slope = np.cov(both.T, bias=True)[0, 1] / both[:, 0].var()
    left = (both[:, 1] - both[:, 1].mean() - slope * (both[:, 0] - both[:, 0].mean())).var()
    mean = [x[:, 0].mean(), both[:, 1].mean() + slope * (x[:, 0].mean() - both[:, 0].mean())]
    covariance = np.array(
        [
            [x[:, 0].var(), slope * x[:, 0].var()],
            [slope * x[:, 0].var(), left + slope**2 * x[:, 0].var()],
        ]
    )
    np.testing.assert_allclose(found.params["means"][0], mean, rtol=1e-6)
    np.testing.assert_allclose(
        torch.linalg.inv(found.params["precisions"][0]), covariance, rtol=1e-5
    )
    filled = found.fill_missing(frame)
    np.testing.assert_allclose(
        filled["b"][gone], mean[1] + slope * (x[gone, 0] - mean[0]), rtol=1e-5
    )
    assert np.isfinite(found.summary(frame)["error"].to_numpy()).all()
    both_gone = pd.DataFrame({"a": [np.nan, 1.0], "b": [np.nan, 2.0]})
    np.testing.assert_allclose(
        found.log_likelihood_rows(both_gone),
        [0.0, stats.multivariate_normal(mean, covariance).logpdf([1.0, 2.0])],
        atol=1e-4,
    )


def test_expected_moments_are_integrals_over_the_gaps() -> None:
    about = Mixture(2, MultivariateNormal(), 2).components()
    distribution = distribution_of(about)
    params = {
        "means": torch.tensor([[[0.0, 1.0], [2.0, -1.0]]], dtype=F64),
        "precisions": torch.tensor(
            [[[[1.0, 0.6], [0.6, 2.0]], [[1.5, -0.7], [-0.7, 0.8]]]], dtype=F64
        ),
    }
    row = torch.tensor([[0.7, torch.nan]], dtype=F64)
    centre = torch.tensor([0.3, 0.2], dtype=F64)
    share = torch.tensor([[[0.3, 0.7]]], dtype=F64)
    found = distribution.statistics(row, share, centre, params)
    grid = np.linspace(-12.0, 12.0, 4001)
    for k in range(2):
        density = stats.multivariate_normal(
            params["means"][0, k], np.linalg.inv(params["precisions"][0, k])
        ).pdf(np.c_[np.full(4001, 0.7), grid])
        weight = density / density.sum()
        moved = np.c_[np.full(4001, 0.7), grid] - centre.numpy()
        np.testing.assert_allclose(
            found.sums[0, k], float(share[0, 0, k]) * weight @ moved, atol=1e-9
        )
        np.testing.assert_allclose(
            found.squares[0, k],
            float(share[0, 0, k]) * (moved * weight[:, None]).T @ moved,
            atol=1e-9,
        )
        assert float(distribution.log_densities(params, row)[0, 0, k]) == pytest.approx(
            np.log(density.sum() * (grid[1] - grid[0])), abs=1e-9
        )
    sets = torch.stack(
        [torch.tensor([[0.7, torch.nan]], dtype=F64), torch.tensor([[torch.nan, 0.2]], dtype=F64)]
    )  # a data set for each restart
    two = {name: value.expand(2, *value.shape[1:]) for name, value in params.items()}
    each = distribution.statistics(sets, share.expand(2, 1, 2), centre.expand(2, 1, 2), two)
    torch.testing.assert_close(each.squares[0], found.squares[0])
    torch.testing.assert_close(
        distribution.log_densities(two, sets)[0], distribution.log_densities(params, row)[0]
    )


def test_groups_with_gaps_are_found_and_resampled() -> None:
    rng = np.random.default_rng(3)
    second = rng.random(400) < 0.4
    x = rng.normal(size=(400, 3)) @ np.array(
        [[1.0, 0.8, 0.0], [0.0, 0.6, 0.5], [0.0, 0.0, 1.0]]
    ) + np.where(second[:, None], [4.0, 0.0, 3.0], 0.0)
    table = np.where((rng.random(x.shape) < 0.25) & (np.arange(3) != 1), np.nan, x)
    found = fit(Mixture(2, MultivariateNormal(), 3), table, EM(), num_restarts=2)
    assert (found.predict(table) == second).mean() > 0.93
    np.testing.assert_allclose(found.params["means"][1], [4.0, 0.0, 3.0], atol=0.4)
    drawn = bootstrap(found, table, num_replicates=2)
    assert np.isfinite(drawn.summary()["error"].to_numpy()).all()
