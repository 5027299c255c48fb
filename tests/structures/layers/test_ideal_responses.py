"""Latents from ideal answers."""

from __future__ import annotations

import itertools

import torch
from support.measured_items import encoder
from zoo.rows_measurement import LONG

from inference.structures.layers.spectral import ideal_latents
from ppl_models import Bernoulli, ExpDINA, ExpGDM, Normal

F64 = torch.float64


def test_the_ideal_answers_give_the_latents() -> None:
    """Without noise the nearest ideal answers are the row's own, and missing answers do not hurt
    where others tell.
    """
    configurations = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=F64)
    for bottom, answers in (
        (
            ExpDINA(),
            torch.stack(
                [configurations[:, [k for k in range(3) if row[k]]].prod(1) for row in LONG], 1
            ),
        ),
        (
            ExpGDM(),
            torch.stack(
                [configurations[:, [k for k in range(3) if row[k]]].mean(1) for row in LONG], 1
            ),
        ),
    ):
        layer = encoder(
            LONG, bottom, Bernoulli() if isinstance(bottom, ExpDINA) else Normal()
        ).layers()[0]
        data = answers.repeat(5, 1)
        data[::4, 1] = torch.nan
        found = ideal_latents(layer, data, torch.Generator().manual_seed(0))
        assert found is not None
        assert torch.equal(found, configurations.repeat(5, 1))
