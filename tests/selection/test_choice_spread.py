"""Repeated choices, and a cutoff from labelled data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.counts import counts, factory

from inference.acdc import KNN, acdc
from inference.acdc.choice import Segment
from inference.report.components import why
from inference.selection import fit_grid, repeat_choice, reproducibility
from inference.selection.choice_spread import ChoiceSpread, LabelledSet, calibrate_rho
from ppl_models import Mixture, Normal


@pytest.mark.slow
def test_repeated_choices():
    x = counts(1)
    spread = repeat_choice(factory, x, (1, 2, 3), 2, num_restarts=3, threshold=0.2)
    assert spread.chosen == 3
    assert spread.shares == {3: 1.0}
    assert len(spread.table) == 2
    assert spread.fits[3].num_rows == 80
    low, high = spread.loss_band(1, np.array([0.0, 1.0]))
    mean = np.mean([r.loss(1, np.array([0.0, 1.0])) for r in spread.results], 0)
    assert ((low <= mean) & (mean <= high)).all()
    rows = repeat_choice(factory, x, (2, 3), 2, num_restarts=2, resample=True)
    assert not np.array_equal(rows.results[0].raw[2], spread.results[0].raw[2])


def test_a_tie_of_choices_goes_to_the_smaller():
    assert ChoiceSpread((4, 3, 4, 3, 7), (), 0, {}).chosen == 3


def test_among_is_the_choice_without_the_others():
    x = counts(5)
    fits = fit_grid(factory, x, (1, 2, 3), num_restarts=3)
    result = acdc(fits, x)
    part = result.among([1, 2])
    alone = acdc({k: fits[k] for k in (1, 2)}, x)
    assert part.chosen == alone.chosen
    assert set(part.raw) == {1, 2}
    assert max(s.num_components for s in part.segments) == 2
    with pytest.raises(ValueError, match="among: some of"):
        result.among([5])


def test_the_default_choice_is_the_last_clear_step():
    x = counts(5)
    result = acdc(fit_grid(factory, x, (1, 2, 3, 4), num_restarts=2), x)
    assert result.shares[3] > 0.5 > result.shares[4]
    assert result.chosen == 3
    assert result.select().finished
    words = " ".join(why(result, 3))
    assert f"takes away {result.shares[3]:.0%}" in words
    assert "changes nothing" in words


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
    x = counts(3)
    fits = fit_grid(factory, x, (2,), num_restarts=1)
    one = labelled[0]
    cases = [
        (lambda: reproducibility({}, x), "non-empty mapping"),
        (lambda: reproducibility(fits, x[:40]), "was fitted to 80 rows"),
        (lambda: reproducibility(fits, x, num_pairs=0), "num_pairs must be a positive integer"),
        (lambda: reproducibility(one.fits, one.data), "a factorization was expected, got Mixture"),
        (lambda: reproducibility(fits, x, num_pairs=1).numbers(0.0), "threshold must lie"),
        (lambda: repeat_choice(factory, x, (2,), 1), "num_seeds must be an integer of at least 2"),
        (lambda: repeat_choice(factory, x, (2,), 2, resample=1), "resample must be True or False"),
        (lambda: calibrate_rho([], x), "at least one labelled data set"),
        (
            lambda: calibrate_rho([one], np.ones((3, 2))),
            "labelled set 0 must have the 2 columns of the data",
        ),
        (
            lambda: calibrate_rho([replace(one, labels=one.labels[:-1])], one.data),
            "labels of shape",
        ),
        (lambda: ChoiceSpread((1,), (), 0, {}).loss_band(1, 0.0), "no repetition compared"),
        (lambda: ChoiceSpread((1,), (), 0, {}).loss_band(1, 0.0, 1.0), "level must lie"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
