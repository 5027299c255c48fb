"""Repeated choices."""

from __future__ import annotations

import numpy as np
import pytest
from support.counts import counts, factory

from inference import fit
from inference.acdc import acdc
from inference.report.components import why
from inference.selection import fit_grid, repeat_choice, reproducibility
from inference.selection.reproducibility import ChoiceSpread
from ppl_models import Mixture, Normal


@pytest.mark.slow
def test_repeated_choices():
    x = counts(1)
    spread = repeat_choice(factory, x, (1, 2, 3), 2, num_restarts=3, threshold=0.2)
    assert spread.chosen == 3
    assert spread.shares == {3: 1.0}
    assert len(spread.table) == 2
    assert spread.fits[3].num_rows == 80
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
    assert "the choice is the same" in words


def test_bad_input():
    x = counts(3)
    fits = fit_grid(factory, x, (2,), num_restarts=1)
    line = np.arange(60.0)[:, None]
    mixtures = {1: fit(Mixture(1, Normal()), line)}
    cases = [
        (lambda: reproducibility(mixtures, line), "a factorization was expected, got Mixture"),
        (lambda: reproducibility({}, x), "non-empty mapping"),
        (lambda: reproducibility(fits, x[:40]), "was fitted to 80 rows"),
        (lambda: reproducibility(fits, x, num_pairs=0), "num_pairs must be a positive integer"),
        (lambda: reproducibility(fits, x, num_pairs=1).numbers(0.0), "threshold must lie"),
        (lambda: repeat_choice(factory, x, (2,), 1), "num_seeds must be an integer of at least 2"),
        (lambda: repeat_choice(factory, x, (2,), 2, resample=1), "resample must be True or False"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
