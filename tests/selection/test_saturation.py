"""The number of components by saturation: the rule row by row, the bound, and words for every
outcome.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from inference import TrainClassifiers
from inference.selection import Discriminator, saturation
from inference.selection.discriminator import TotalCorrelation
from inference.selection.joint_rank import JointRank
from inference.selection.saturation import Saturation, choose_components
from ppl_models import Dense, InClassNet, Mixture
from ppl_models.datasets import simulate_checkerboard

QUICK = Discriminator(hidden=(16,), num_folds=2, max_epochs=3)


def test_the_rule_of_one_standard_error():
    rng = np.random.default_rng(0)
    common = torch.as_tensor(rng.normal(size=400))  # rows differ much, sizes little
    costs = [
        torch.zeros(400).double(),
        common - 1.0,
        common - 1.1 + 0.01 * torch.as_tensor(rng.normal(size=400)),
        common - 1.1,
    ]
    chosen, behind, errors = choose_components((1, 2, 3, 4), costs)
    assert chosen in (3, 4)
    assert behind[1] == pytest.approx(0.1, abs=0.01)
    for k in range(4):
        difference = (costs[k] - costs[int(np.argmin([c.mean() for c in costs]))]).numpy()
        assert errors[k] == pytest.approx(difference.std(ddof=1) / 20)
    # sizes within the error of each other: the smallest wins
    equal = [common, common + torch.as_tensor(rng.normal(size=400)), common + 0.5]
    assert choose_components((2, 3, 4), equal)[0] == 2


def test_a_checkerboard_has_two_components():
    sample = simulate_checkerboard(1200, seed=2)
    method = TrainClassifiers(max_epochs=12, batch_size=200)
    found = saturation(
        lambda c: InClassNet((1, 1), c, networks=Dense((64, 64))),
        sample.data,
        (3, 2),
        method,
        2,
        bound=QUICK,
    )
    assert found.chosen == 2
    assert found.sizes == (1, 2, 3)
    assert found.costs[0] == 0.0
    assert found.costs[1] == pytest.approx(-math.log(2), abs=0.1)
    assert found.num_held_out == 240
    order = torch.randperm(1200, generator=torch.Generator().manual_seed(0))[:240]
    by_hand = -found.fits[2].log_likelihood_rows(sample.data[order.numpy()])
    assert found.costs[1] == pytest.approx(float(by_hand.mean()))
    assert found.limit is not None
    assert found.limit.number == 2
    assert found.is_saturated is None
    assert "the bound says nothing" in found.text()  # three epochs make a weak discriminator
    assert found.table.loc[2, "chosen"]
    ax = found.plot()
    assert [int(tick) for tick in ax.get_xticks()] == [1, 2, 3]
    assert "minus the total correlation (found so far)" in [
        text.get_text() for text in ax.get_legend().get_texts()
    ]
    ax.figure.canvas.draw()


def made(
    costs: tuple[float, ...], chosen: int, bound: float | None, limit: int | None = None
) -> Saturation:
    sizes = tuple(range(1, len(costs) + 1))
    found = (
        None if bound is None else TotalCorrelation(bound, 0.01, bound, 0.01, None, None, 1000, 2)
    )
    return Saturation(
        chosen,
        sizes,
        costs,
        (0.01,) * len(costs),
        tuple(cost - min(costs) for cost in costs),
        (0.001,) * len(costs),
        found,
        200,
        limit=None if limit is None else JointRank(limit, 0.95, pd.DataFrame(), False),
    )


def test_words():
    assert "stays 0.2000 above what the data allow" in made((0.0, -0.3, -0.3), 2, 0.5).text()
    assert "more components cannot help" in made((0.0, -0.5, -0.5), 2, 0.5).text()
    assert "try more" in made((0.0, -0.2, -0.5), 3, 0.5).text()
    assert "Nothing shows that the variates depend" in made((0.0, 0.01), 1, None).text()
    assert made((0.0, 0.01), 1, None).is_saturated is None
    shown = made((0.0, -0.3, -0.3, -0.3), 3, None, limit=3)
    assert "2 components: the smallest number" in shown.text()
    assert "show at least 3 components" in shown.text()
    assert "3 is chosen" in shown.text()
    assert not shown.is_short
    assert made((0.0, -0.3, -0.3), 3, None, limit=5).is_short
    assert "show at least" not in made((0.0, -0.3, -0.3), 2, None, limit=2).text()


def test_refusals():
    data = simulate_checkerboard(60, seed=0).data

    def family(size: int) -> InClassNet:
        return InClassNet((1, 1), size)

    with pytest.raises(ValueError, match="independent classifiers"):
        saturation(lambda size: Mixture(size, num_items=2), data)
    gap = np.where(np.arange(120).reshape(60, 2) == 3, np.nan, data)
    with pytest.raises(ValueError, match="missing or infinite"):
        saturation(lambda size: InClassNet((1, 1), size, weights="free"), gap)
    for grid, settings, message in (
        ((1, 2), {}, "numbers of components from 2"),
        ((2, 2), {}, "distinct numbers"),
        ((2,), {"held_out": 1.0}, "held_out must lie in"),
        ((2,), {"bound": "yes"}, "bound must be True, False or a Discriminator"),
        ((30,), {}, "at least 60 rows were expected besides"),
    ):
        with pytest.raises(ValueError, match=message):
            saturation(family, data, grid, **settings)
