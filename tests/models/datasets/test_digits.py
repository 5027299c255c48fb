"""The digits of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from ppl_models.datasets import load_digits


def test_digits_of_scikit_learn():
    digits = load_digits()
    assert digits.items.shape == (1797, 64)
    assert digits.items.dtype == np.float64
    assert set(np.unique(digits.items)) == {0.0, 1.0}
    assert digits.image_shape == (8, 8)
    assert digits.item_names[:2] == ("r0c0", "r0c1")
    assert digits.item_names[3 * 8 + 4] == "r3c4"
    assert sorted(set(digits.labels)) == list(range(10))
    from sklearn.datasets import load_digits as original

    grey = original().images
    assert np.array_equal(digits.items.reshape(-1, 8, 8), grey >= 8)
    assert np.array_equal(load_digits(threshold=16).items.reshape(-1, 8, 8), grey == 16)


@pytest.mark.parametrize("threshold", [0, -1, 17, float("nan")])
def test_digits_refuse_a_threshold_that_makes_all_pixels_equal(threshold):
    with pytest.raises(ValueError, match=r"threshold must lie in \(0, 16\]"):
        load_digits(threshold)
