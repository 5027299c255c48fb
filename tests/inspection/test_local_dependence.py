"""Residuals of pairs against enumeration of all answers; two items that copy each other are
found.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import norm

from inference import EM, Fit, fit
from inference.inspection import local_dependence
from inference.programs.program import Program
from inference.uncertainty import standard_errors
from ppl_models import DeepDiscreteEncoder, LatentAttributeModel, Normal
from ppl_models.datasets import causal_attributes, mastery_test

F64 = torch.float64
PATTERNS = np.array(list(itertools.product((0, 1), repeat=8)), dtype=float)


def test_pairs_by_enumeration(small: tuple[Fit, torch.Tensor]) -> None:
    result, items = small
    found, errors, x = (
        local_dependence(result, items),
        standard_errors(result, items),
        items.numpy(),
    )

    def distribution(free: torch.Tensor) -> np.ndarray:
        return (
            Program(result.model, torch.tensor(PATTERNS))
            .log_marginal_rows(errors.coordinates.params(free))
            .exp()
            .detach()
            .numpy()
        )

    def covariances(p: np.ndarray) -> np.ndarray:
        centred = PATTERNS - p @ PATTERNS
        return (centred.T * p) @ centred

    steps = 1e-5 * torch.eye(len(errors.estimate), dtype=F64)
    slopes = np.stack(
        [
            (
                covariances(distribution(errors.estimate + step))
                - covariances(distribution(errors.estimate - step))
            )
            / 2e-5
            for step in steps
        ],
        -1,
    )
    p = distribution(errors.estimate)
    implied = covariances(p)
    mean = p @ PATTERNS
    for c, (j, k) in enumerate(itertools.combinations(range(8), 2)):
        assert tuple(found.pairs[c]) == (j, k)
        product = (PATTERNS[:, j] - mean[j]) * (PATTERNS[:, k] - mean[k])
        whole = p @ product**2 - (p @ product) ** 2
        left = whole - len(x) * slopes[j, k] @ errors.covariance.numpy() @ slopes[j, k]
        residual = ((x[:, j] - mean[j]) * (x[:, k] - mean[k])).mean() - implied[j, k]
        if left > 0.05 * whole:
            assert found.z[c] == pytest.approx(residual * np.sqrt(len(x) / left), rel=1e-4)
            assert found.p_value[c] == pytest.approx(2 * norm.sf(abs(found.z[c])))
        else:
            assert np.isnan(found.z[c])
        gap = np.corrcoef(x[:, j], x[:, k])[0, 1] - implied[j, k] / np.sqrt(
            implied[j, j] * implied[k, k]
        )
        assert found.residual_correlation[c] == pytest.approx(gap)
        x2 = 0.0
        for a, b in itertools.product((0, 1), repeat=2):
            expected = p[(PATTERNS[:, j] == a) & (PATTERNS[:, k] == b)].sum()
            x2 += len(x) * (((x[:, j] == a) & (x[:, k] == b)).mean() - expected) ** 2 / expected
        assert found.x2[c] == pytest.approx(x2)
    assert (~np.isnan(found.z)).sum() >= 20
    posterior = Program(result.model, items).latent_marginals(result.params)["attributes"]
    profiles = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=F64)
    residuals = (
        items - posterior @ result.model.expected_responses(result.params, profiles)
    ).numpy()
    assert np.allclose(found.q3, np.corrcoef(residuals.T)[np.triu_indices(8, 1)])
    assert found.q3_bias == pytest.approx(-1 / 7)
    assert np.allclose(found.matrix[np.triu_indices(8, 1)], found.residual_correlation)


def test_a_copied_item_is_found() -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(1000, seed=2, missing=0.05)
    copied = torch.rand(1000, generator=torch.Generator().manual_seed(3)) < 0.4
    items[copied, 11] = items[copied, 8]
    found = local_dependence(fit(design.model, items, EM(tolerance=1e-8)), items)
    assert found.dependent[0] == ("8", "11")
    line = found.table.loc[("8", "11")]
    assert line["residual_correlation"] > 0.1
    assert line["q3_centred"] == found.table["q3_centred"].max()
    assert "8 and 11" in found.text()
    assert (found.num_rows < 1000).all()


def test_an_item_that_all_answer_alike_correlates_with_nobody() -> None:
    """Its residuals are those of the rows' chances alone, whose correlations say nothing of it."""
    items = torch.as_tensor(np.random.default_rng(0).integers(0, 2, (300, 5)), dtype=F64)
    items[:, 4] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the constant column
        result = fit(LatentAttributeModel(((1,),) * 5), items, EM(tolerance=1e-8))
        found = local_dependence(result, items)
    constant = (found.pairs == 4).any(1)
    assert np.isnan(found.q3[constant]).all()
    assert np.isnan(found.residual_correlation[constant]).all()
    assert np.isfinite(found.q3[~constant]).all()
    assert found.table["q3_centred"].notna().sum() == 6


def test_continuous_items() -> None:
    design = causal_attributes("tree")
    items, _ = design.draw(1000, seed=1)
    result = fit(design.model, items, EM(tolerance=1e-8), num_restarts=1)
    found = local_dependence(result, items)
    assert np.isnan(found.x2).all()
    assert abs(np.mean(found.p_value < 0.05) - 0.05) < 0.05
    items[:, 3] += 0.7 * (items[:, 17] - items[:, 17].mean())
    assert ("3", "17") in local_dependence(
        fit(design.model, items, EM(tolerance=1e-8), num_restarts=1), items
    ).dependent


def test_bad_input(small: tuple[Fit, torch.Tensor]) -> None:
    result, items = small
    gone = items.clone()
    gone[:400, 2] = torch.nan
    gone[400:, 4] = torch.nan
    with pytest.raises(ValueError, match="items '2' and '4' were not answered by the same rows"):
        local_dependence(result, gone)
    x = torch.randn(40, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    other = fit(DeepDiscreteEncoder(4, (1,), Normal()), x, EM(max_iterations=200), num_restarts=1)
    with pytest.raises(ValueError, match="LatentAttributeModel was expected"):
        local_dependence(other, x)
