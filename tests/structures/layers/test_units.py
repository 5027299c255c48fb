"""Encoders of normal items in any units of their columns."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from inference import EM, Fit, fit
from inference.selection import select
from inference.structures.layers.units import noise_units
from ppl_models import Blocks, DeepDiscreteEncoder, Normal, Poisson

NUM_ROWS = 1000
WIDTHS = 10.0 ** np.random.default_rng(1).uniform(-1.5, 1.5, 18)  # of columns in mixed units


def rows(seed: int = 0) -> np.ndarray:
    """Two latents above six, three items of each, noise of one."""
    rng = np.random.default_rng(seed)
    above = (rng.random((NUM_ROWS, 2)) < 0.5).astype(float)
    upper = np.repeat(4 * np.eye(2), 3, 0)
    upper[2, 1] = 2
    bits = (rng.random((NUM_ROWS, 6)) < 1 / (1 + np.exp(2 - above @ upper.T))).astype(float)
    lower = np.repeat(2.5 * np.eye(6), 3, 0)
    lower[[2, 5, 8, 11, 14], [1, 2, 3, 4, 5]] = 2
    return bits @ lower.T + rng.normal(size=(NUM_ROWS, 18))


@pytest.fixture(scope="module")
def plain() -> Fit:
    return fit(DeepDiscreteEncoder(18, (6, 2), Normal()), rows())


@pytest.mark.parametrize("widths", [100.0, WIDTHS], ids=["one unit", "mixed units"])
def test_the_plain_fit_is_the_same(plain: Fit, widths: float | np.ndarray) -> None:
    """Failed before: at a tenth all loadings were penalised away, and in mixed units starts by
    singular values ended 800 nats lower.
    """
    found = fit(DeepDiscreteEncoder(18, (6, 2), Normal()), 50 + rows() * widths)
    every = np.broadcast_to(np.asarray(widths), 18)
    volume = NUM_ROWS * float(np.log(every).sum())
    assert found.log_likelihood + volume == pytest.approx(plain.log_likelihood, abs=1e-3)
    again = float(found.log_likelihood_rows(50 + rows() * widths).sum())
    assert found.log_likelihood == pytest.approx(again, abs=1e-6)
    scaled = found.params["loadings_1"] / torch.from_numpy(every.copy()).unsqueeze(-1)
    torch.testing.assert_close(  # latents may be in another order
        scaled.sort(-1).values, plain.params["loadings_1"].sort(-1).values, atol=1e-3, rtol=1e-3
    )
    assert found.choice is not None
    assert plain.choice is not None
    ends = found.choice.final_ebic, plain.choice.final_ebic
    assert ends[0] - 2 * volume == pytest.approx(ends[1], abs=0.01)
    assert found.choice.final_ebic == pytest.approx(
        -2 * found.log_likelihood + plain.choice.final_ebic + 2 * plain.log_likelihood, abs=0.01
    )
    assert math.isfinite(found.objective)


def test_starts_without_a_penalty_are_those_of_one_unit() -> None:
    model = DeepDiscreteEncoder(18, (6, 2), Normal(), penalty=None)
    own = fit(model, rows(2), EM(max_iterations=400), init="spectral", num_restarts=1)
    other = fit(model, rows(2) * WIDTHS, EM(max_iterations=400), init="spectral", num_restarts=1)
    volume = NUM_ROWS * float(np.log(WIDTHS).sum())
    assert other.log_likelihood + volume == pytest.approx(own.log_likelihood, abs=0.05)


def test_sizes_are_chosen_alike() -> None:
    """Failed before: (5, 2), confident, where columns were in mixed units."""
    bits = (np.random.default_rng(1).random((800, 3)) < 0.5).astype(float)
    lower = np.repeat(3 * np.eye(3), 4, 0)
    lower[[3, 7, 11], [1, 2, 0]] = 3
    items = bits @ lower.T + np.random.default_rng(2).normal(size=(800, 12))
    model = DeepDiscreteEncoder(12, (2,), Normal())
    found = select(model, items * WIDTHS[:12] + 80)
    assert found.chosen == select(model, items).chosen == (3,)


def test_units_are_those_of_the_noise() -> None:
    layer = DeepDiscreteEncoder(18, (6, 2), Normal()).layers()[0]
    centres, units = noise_units(layer, torch.from_numpy(rows()))
    assert bool((units == 1).all())
    assert bool((centres == 0).all())
    _, units = noise_units(layer, torch.from_numpy(rows() * 16))
    assert bool((units == 16).all())
    few = torch.from_numpy(rows()[:20])  # too few rows for correlations
    assert bool(noise_units(layer, few)[1].isfinite().all())
    mixed = DeepDiscreteEncoder(4, (1,), Blocks((Normal(), 2), (Poisson(), 2))).layers()[0]
    table = torch.from_numpy(np.random.default_rng(0).normal(40, 8, (200, 4)))
    centres, units = noise_units(mixed, table)
    assert units.tolist() == [8, 8, 1, 1]
    assert centres[2:].tolist() == [0, 0]
