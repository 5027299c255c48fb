"""What is held against what where labels or known parameters were given: p(x), or p(x, labels)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.known_data import ANSWERS, GROUP, NUMBERS

from inference import EM, NUTS, compare, fit
from inference.loo import cross_validate, loo
from ppl_models import Bernoulli, Mixture, Normal

NAN = math.nan
LABELS = np.where(np.arange(200) < 60, GROUP, -1)
SHORT = NUTS(num_chains=2, warmup_steps=150, num_samples=150)


def test_cross_validation_holds_what_the_fit_held() -> None:
    known = {"predictors": [[0.0, 0.0], [NAN, NAN]], "dispersion": [[NAN, NAN], [2.0, 2.0]]}
    ties = {"predictors": [[0, 1], [-1, -1]]}
    found = fit(Mixture(2, Normal()), NUMBERS, EM(), fixed=known, tied=ties)
    own = cross_validate(found, NUMBERS, num_folds=2, seed=0)
    halves = np.array_split(np.random.default_rng(0).permutation(200), 2)
    rows = np.zeros(200)
    for half in halves:
        others = np.setdiff1d(np.arange(200), half)
        again = fit(Mixture(2, Normal()), NUMBERS[others], EM(), init=found, fixed=known, tied=ties)
        rows[half] = again.log_likelihood_rows(NUMBERS[half]).numpy()
    np.testing.assert_allclose(own.rows, rows, atol=1e-5)
    free = cross_validate(fit(Mixture(2, Normal()), NUMBERS, EM()), NUMBERS, num_folds=2, seed=0)
    assert abs(free.elpd - own.elpd) > 0.1


def test_labelled_rows_are_predicted_without_their_labels() -> None:
    found = fit(Mixture(2, Bernoulli()), ANSWERS, EM(), labels=LABELS, label_error=0.05)
    own = cross_validate(found, ANSWERS, num_folds=2, seed=0)
    halves = np.array_split(np.random.default_rng(0).permutation(200), 2)
    for half in halves:
        others = np.setdiff1d(np.arange(200), half)
        again = fit(
            Mixture(2, Bernoulli()), ANSWERS[others], EM(), init=found, labels=LABELS[others],
            label_error=0.05,
        )  # fmt: skip
        np.testing.assert_allclose(
            own.rows[half], again.log_likelihood_rows(ANSWERS[half]).numpy(), atol=1e-5
        )


@pytest.mark.filterwarnings("ignore:R-hat", "ignore:loo")
def test_leaving_a_row_out_of_draws_keeps_known_values_and_refuses_labels() -> None:
    known = {"weights": [0.6, 0.4]}
    drawn = fit(Mixture(2, Bernoulli()), ANSWERS, SHORT, fixed=known)
    left_out = loo(drawn, ANSWERS)
    refits = cross_validate(
        fit(Mixture(2, Bernoulli()), ANSWERS, EM(), fixed=known), ANSWERS, num_folds=10
    )
    assert left_out.elpd == pytest.approx(refits.elpd, abs=3.0)
    told = fit(Mixture(2, Bernoulli()), ANSWERS, SHORT, labels=LABELS)
    with pytest.raises(ValueError, match="loo: a fit without labels was expected.*cross_validate"):
        loo(told, ANSWERS)


def test_a_comparison_names_the_density_of_labelled_fits() -> None:
    told = fit(Mixture(2, Bernoulli()), ANSWERS, EM(), labels=LABELS)
    plain = fit(Mixture(2, Bernoulli()), ANSWERS, EM(), num_restarts=3)
    with pytest.warns(UserWarning, match=r"\['told'\] are of data and labels, log p\(x, labels\)"):
        table = compare({"told": told, "plain": plain}, ANSWERS, num_folds=2).table
    assert table["likelihood"].to_dict() == {"told": "of data and labels", "plain": "marginal"}
    rows = float(told.log_likelihood_rows(ANSWERS).sum())
    assert table.loc["told", "log_likelihood"] == told.log_likelihood < rows
    means = told.posterior_latents(ANSWERS[:60])
    chances = next(iter(means.values()))[torch.arange(60), torch.as_tensor(GROUP[:60])]
    assert told.log_likelihood - rows == pytest.approx(float(chances.log().sum()), abs=1e-6)
