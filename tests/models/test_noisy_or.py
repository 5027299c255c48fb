"""Settings of noisy-OR networks."""

from __future__ import annotations

import math

import pytest

from ppl_models import NoisyOr


@pytest.mark.parametrize("concentration", [(1.0,), (0.0, 1.0), (1.0, math.inf), "ab", 3.0])
def test_concentrations_are_checked(concentration: object) -> None:
    with pytest.raises(ValueError, match="leak_concentration must be two positive numbers"):
        NoisyOr(3, 2, leak_concentration=concentration)
