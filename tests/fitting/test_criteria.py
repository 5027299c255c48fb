"""Information criteria against published numbers and formulas by hand."""

from __future__ import annotations

import dataclasses
import math
import warnings

import numpy as np
import pytest

from inference import EM, fit
from ppl_models import Bernoulli, DeepDiscreteEncoder, Mixture, OptionsHMM, PoissonFactorization

# carcinoma, 118 rows of 7 items (Linzer and Lewis 2011, doi:10.18637/jss.v042.i10, log-likelihoods
# and AIC, BIC of 3 classes); 2, 3 and 4 classes
CARCINOMA = {2: (-317.25684, 15), 3: (-293.70498, 23), 4: (-289.28585, 31)}
SABIC = {2: 658.66, 3: 624.43, 4: 628.46}
BIC = {3: 697.1357, 4: 726.46}
CAIC = {2: 721.07, 3: 720.14}


@pytest.fixture(scope="module")
def classes():
    rng = np.random.default_rng(0)
    skilled = rng.random((118, 1)) < 0.5
    return (rng.random((118, 7)) < np.where(skilled, 0.85, 0.2)).astype(float)


@pytest.fixture(scope="module")
def fitted(classes):
    return fit(
        Mixture(num_components=2, component=Bernoulli(), num_items=7), classes, EM(), num_restarts=2
    )


@pytest.mark.parametrize("size", CARCINOMA)
def test_published_criteria(fitted, size) -> None:
    value, count = CARCINOMA[size]
    published = dataclasses.replace(fitted, log_likelihood=value, num_free=count)
    assert published.sabic == pytest.approx(SABIC[size], abs=0.006)
    if size in BIC:
        assert published.bic == pytest.approx(BIC[size], abs=0.006)
    if size in CAIC:
        assert published.caic == pytest.approx(CAIC[size], abs=0.006)
    if size == 3:
        assert published.aic == pytest.approx(633.41, abs=0.005)
    assert published.aicc == pytest.approx(
        published.aic + 2 * count * (count + 1) / (118 - count - 1)
    )


def test_criteria_of_classes(fitted, classes) -> None:
    """ICL and entropy R2 by a loop over rows and classes."""
    chances = fitted.posterior_latents(classes)["assignments"].numpy()
    entropy = -sum(p * math.log(p) for row in chances for p in row if p > 0)
    assert fitted.icl(classes) == pytest.approx(fitted.bic + 2 * entropy)
    assert fitted.entropy_r2(classes) == pytest.approx(1 - entropy / (118 * math.log(2)))
    assert 0 < fitted.entropy_r2(classes) < 1


@pytest.mark.parametrize("error", [0.0, 0.1])
def test_labels_take_entropy_out_of_icl(fitted, classes, error) -> None:
    """BIC of a fit with labels is of both, so its entropy is of what labels leave unknown."""
    told = np.where(np.arange(118) % 2, fitted.predict(classes), -1)
    result = fit(fitted.model, classes, labels=told, label_error=error)
    chances = result.posterior_latents(classes)["assignments"].numpy()
    right = 1 - error
    for i in np.flatnonzero(told >= 0):
        chances[i] *= np.where(np.arange(2) == told[i], right, 1 - right)
    chances /= chances.sum(1, keepdims=True)
    entropy = -sum(p * math.log(p) for row in chances for p in row if p > 0)
    assert result.icl(classes) == pytest.approx(result.bic + 2 * entropy)


def test_one_class_or_none_has_no_entropy(fitted, classes) -> None:
    with pytest.raises(ValueError, match="the 118 rows of the fit were expected, got 10"):
        fitted.icl(classes[:10])
    one = fit(Mixture(num_components=1, component=Bernoulli(), num_items=7), classes, EM())
    encoder = fit(
        DeepDiscreteEncoder(7, (2,), penalty=None),
        classes,
        EM(tolerance=1e-5, parameter_tolerance=0.1),
    )
    parts = fit(PoissonFactorization(7, 2), classes + 1)
    for result in (one, encoder, parts):
        for ask in (result.icl, result.entropy_r2):
            with pytest.raises(ValueError, match="defined for one latent of several values a row"):
                ask(classes)


def test_what_is_undefined_is_refused_in_a_sentence(fitted) -> None:
    few = dataclasses.replace(fitted, num_observations=16, num_free=15)
    with pytest.raises(
        ValueError,
        match=(
            "aicc: at least two rows more than free parameters were expected, got 16 rows and 15"
            " parameters"
        ),
    ):
        _ = few.aicc
    rng = np.random.default_rng(1)
    walks = {"state": rng.integers(0, 2, (5, 20)), "action": rng.integers(0, 2, (5, 20))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = fit(OptionsHMM(2, 2, 2), walks, EM(max_iterations=5))
    assert options.caic == options.bic + options.num_parameters
    with pytest.raises(ValueError, match="sabic: .* different numbers of steps"):
        _ = options.sabic
