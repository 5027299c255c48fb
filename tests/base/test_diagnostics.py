"""Diagnostics of draws."""

from __future__ import annotations

import numpy as np

from inference.base.diagnostics import psis


def test_weights_of_ratios_that_do_not_differ_are_equal():
    ratios = np.zeros((2, 200))
    ratios[1] = np.linspace(0.0, 3.0, 200)
    log_weights, k_hat = psis(ratios)
    np.testing.assert_allclose(log_weights[0], -np.log(200))
    np.testing.assert_allclose(np.exp(log_weights).sum(1), 1.0)
    assert log_weights[1, -1] > log_weights[1, 0]  # a larger ratio weighs more
    assert k_hat[0] == 0.0
