"""A cutoff of ACDC from labelled data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from papers.labelled_cutoff import LabelledSet, calibrate_rho

from inference.acdc import KNN, acdc
from inference.acdc.choice import Segment
from inference.selection import fit_grid
from ppl_models import Mixture, Normal


@pytest.fixture(scope="module")
def labelled():
    sets = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, 1200)
        # skewed groups: the mixture of normals with more components fits better, the labels know of
        # two
        x = (
            rng.gamma(1.0, 1.0, 1200) * np.where(labels == 0, -1, 1) + np.where(labels == 0, -3, 3)
        )[:, None]
        sets.append(
            LabelledSet(fit_grid(lambda k: Mixture(k, Normal()), x, (1, 2, 3), 2), x, labels)
        )
    return sets


def judge(fits, data, seed):
    return acdc(fits, data, discrepancy=KNN(), seed=seed)


def test_a_cutoff_from_labels(labelled):
    found = calibrate_rho(labelled, labelled[0].data, criterion=judge)
    assert found.low <= found.rho <= found.high
    assert found.score == pytest.approx(found.scores.max())
    for one in labelled:
        assert found.select(judge(one.fits, one.data, 0)).num_components == 2
    # on a grid: nowhere a better mean score
    results = [judge(one.fits, one.data, 0) for one in labelled]
    sizes = calibrate_rho(
        labelled, labelled[0].data, criterion=judge, score=lambda fit, one: fit.model.num_components
    )
    top = max(
        np.mean([r.select(rho=rho).num_components for r in results])
        for rho in np.linspace(0, found.high + 1, 500)
    )
    assert sizes.score == pytest.approx(top)
    with pytest.raises(ValueError, match="the cutoff holds for"):
        found.select(acdc(labelled[0].fits, labelled[0].data))


def test_equally_good_cutoffs_give_their_midpoint(labelled):
    one = labelled[0]
    found = calibrate_rho(
        [one],
        one.data,
        criterion=judge,
        score=lambda fit, one: float(fit.model.num_components == 1),
    )
    segments = judge(one.fits, one.data, 0).segments
    last = segments[-1]
    assert isinstance(last, Segment)
    assert last.num_components == 1
    assert (found.low, found.high) == (last.start, last.end)
    assert found.rho == pytest.approx((last.start + last.end) / 2)


def test_bad_input(labelled):
    one = labelled[0]
    cases = [
        (lambda: calibrate_rho([], np.ones((3, 2))), "at least one labelled data set"),
        (
            lambda: calibrate_rho([one], np.ones((3, 2))),
            "labelled set 0 must have the 2 columns of the data",
        ),
        (
            lambda: calibrate_rho([replace(one, labels=one.labels[:-1])], one.data),
            "labels of shape",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
