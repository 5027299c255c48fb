"""Classifiers and densities that a fit implies, against the formulas of the paper written out."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, Fit, TrainClassifiers, fit
from inference.estimates import estimates_of
from inference.identifiability import check_identifiability
from inference.inspection import read_classifiers
from inference.inspection.classifiers import variate_names
from ppl_models import Dense, InClassNet, Mixture


def rows_of_two(rows: int = 120) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.normal(size=(rows, 3)) + 2.5 * rng.integers(0, 2, (rows, 1))


def fitted(model: InClassNet, rows: np.ndarray | pd.DataFrame) -> Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(model, rows, TrainClassifiers(batch_size=40, max_epochs=5, patience=None))


def test_estimates_have_the_weights_of_all_equally_good_mixtures() -> None:
    """Two variates, two components: the ends of theorem 1; three variates have none."""
    rows = rows_of_two(400)
    two = fitted(InClassNet((1, 1), 2, networks=Dense((6,))), rows[:, :2])
    low, high = check_identifiability(two, data=rows[:, :2]).possible_weights
    table = estimates_of(two, rows[:, :2])
    first, second = table.of("weights")
    assert (first.low, first.high) == pytest.approx((low, high))
    assert (second.low, second.high) == pytest.approx((1 - high, 1 - low))
    assert "theorem 1" in table.note
    three = fitted(InClassNet((1, 1, 1), 2, networks=Dense((6,))), rows)
    assert np.isnan([own.low for own in estimates_of(three, rows).of("weights")]).all()


def test_variates_of_one_column_have_its_name() -> None:
    rows = pd.DataFrame(rows_of_two()[:, :2], columns=["height", "weight"])
    named = fitted(InClassNet((1, 1), 2, networks=Dense((6,))), rows)
    assert variate_names(named) == ("height", "weight")
    assert variate_names(fitted(InClassNet((1, 1), 2, networks=Dense((6,))), rows.to_numpy())) == (
        "1",
        "2",
    )
    assert variate_names(
        fitted(InClassNet((("weight",), ("height",)), 2, networks=Dense((6,))), rows)
    ) == ("weight", "height")


def test_classifiers_densities_and_their_agreement() -> None:
    rows = rows_of_two()
    result = fitted(InClassNet((2, 1), 2, networks=Dense((6,))), rows)
    found = read_classifiers(result, rows)
    beta = result.model.log_scores(torch.from_numpy(rows), result.params).exp().numpy()  # type: ignore[attr-defined]
    phi, w = beta.mean(1), result.params["weights"].numpy()
    np.testing.assert_allclose(result.params["pseudo_weights"], phi, atol=1e-10)
    for v in range(2):
        scaled = w / phi[v] * beta[v]
        np.testing.assert_allclose(found.marginal_ratio[v], scaled.sum(1), rtol=1e-9)
        np.testing.assert_allclose(
            found.variates[v], scaled / scaled.sum(1, keepdims=True), rtol=1e-9
        )
        np.testing.assert_allclose(found.row_weights[v], beta[v] / phi[v] / len(rows), rtol=1e-9)
    product = w * (beta / phi[:, None]).prod(0)
    np.testing.assert_allclose(found.rows, product / product.sum(1, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(found.rows, result.posterior_latents(rows)["components"], rtol=1e-9)
    np.testing.assert_allclose(found.row_weights.sum(1), 1.0, rtol=1e-9)
    assert float(found.inconsistency.max()) < 0.2 < 1 + found.largest_inconsistency


def test_missing_variates_say_nothing() -> None:
    rows = rows_of_two()
    rows[:10, 2] = np.nan
    found = read_classifiers(
        fitted(InClassNet((2, 1), 2, networks=Dense((6,)), weights="free"), rows), rows
    )
    assert found.variates[1, :10].isnan().all()
    assert (found.row_weights[1, :10] == 0).all()
    torch.testing.assert_close(found.rows[:10], found.variates[0, :10])
    np.testing.assert_allclose(found.row_weights.sum(1), 1.0, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_what_is_refused() -> None:
    rows = rows_of_two(30)
    with pytest.raises(
        ValueError, match="independent classifiers .InClassNet. were expected, got Mixture"
    ):
        read_classifiers(fit(Mixture(2, num_items=3), rows, EM(max_iterations=2)), rows)
