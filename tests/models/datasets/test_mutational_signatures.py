"""Simulated mutations against the published sets, where they are at hand."""

from __future__ import annotations

import pytest

from ppl_models.datasets import load_breast, simulate_mutations


@pytest.mark.data("mutational_signatures.npz")
@pytest.mark.parametrize(
    ("variant", "dispersion"),
    [
        ("well_specified", 0.988),
        ("contaminated", 1.428),
        ("overdispersed", 2.004),
        ("perturbed", 1.979),
    ],
)
def test_published_sets_and_our_generators_agree(variant, dispersion):
    data = load_breast(variant)
    assert data.counts.shape == (214, 96)
    mean = data.activities @ data.signatures
    assert ((data.counts - mean) ** 2 / mean).mean() == pytest.approx(dispersion, abs=2e-3)
    ours = simulate_mutations(data.signatures, data.activities, variant, seed=5)
    assert ((ours - mean) ** 2 / mean).mean() == pytest.approx(dispersion, rel=0.12)
    assert load_breast().counts.sum() == 1515569
