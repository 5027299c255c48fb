"""Sparse coding as a program: the distribution of its codes, and a draw."""

from __future__ import annotations

import math

import pyro
import pytest
import torch
from scipy import stats

from ppl_models import SparseCoding
from ppl_models.sparse_coding import SparseCodes

F64 = torch.float64


def test_the_distribution_of_codes() -> None:
    """Draws have k entries, every support is as likely as the others, and the density integrates to
    one.
    """
    distribution = SparseCodes(4, 2, torch.tensor(3.0, dtype=F64))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        draws = distribution.expand([6000]).sample()
    assert bool(((draws != 0).sum(-1) == 2).all())
    _, counts = torch.unique(draws != 0, dim=0, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts.numpy()).pvalue > 1e-6
    assert stats.kstest(draws[draws != 0].numpy() / 3, "uniform").pvalue > 1e-6
    volume = 6 * 3.0**2  # six squares of side 3
    assert float(distribution.log_prob(draws[0])) == pytest.approx(-math.log(volume))
    bad = torch.tensor(
        [[1.0, 1.0, 1.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.0]], dtype=F64
    )
    assert bool((distribution.log_prob(bad) == -torch.inf).all())
    assert distribution.expand([2, 3]).sample().shape == (2, 3, 4)


def test_a_draw_of_the_program() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        trace = pyro.poutine.trace(SparseCoding(5, 6, 2, noise=0.1, bound=2.0)).get_trace(None, 7)
    assert {
        name: tuple(trace.nodes[name]["value"].shape) for name in ("dictionary", "codes", "items")
    } == {
        "dictionary": (5, 6),
        "codes": (7, 6),
        "items": (7, 5),
    }
    residual = (
        trace.nodes["items"]["value"]
        - trace.nodes["codes"]["value"] @ trace.nodes["dictionary"]["value"].T
    )
    assert 0.03 < float(residual.std()) < 0.3
