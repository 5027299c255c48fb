"""Settings of noisy-OR networks, and what they are in other words."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from inference import EM, fit
from ppl_models import Dag, LatentAttributeModel, NoisyOr


@pytest.mark.parametrize("concentration", [(1.0,), (0.0, 1.0), (1.0, math.inf), "ab", 3.0])
def test_concentrations_are_checked(concentration: object) -> None:
    with pytest.raises(ValueError, match="leak_concentration must be two positive numbers"):
        NoisyOr(3, 2, leak_concentration=concentration)


@pytest.mark.filterwarnings("ignore")  # rows of noise, three iterations: any parameters do
def test_reversed_items_make_a_graph_over_causes_a_reduced_rum() -> None:
    """1 - x of a noisy-OR whose causes lie on a graph is a reduced RUM of attributes 1 - z."""
    edges = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1], [0, 0, 1]])
    rows = torch.from_numpy((np.random.default_rng(3).random((300, 7)) < 0.4).astype(float))
    model = LatentAttributeModel(edges, items="rrum", root=Dag(((0, 1),)))
    result = fit(model, 1 - rows, EM(max_iterations=3), init="random", seed=0)
    causes = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
    zero = model.expected_responses(result.params, 1 - causes)  # P(x = 0 | z), (8, 7)
    leak, failure = 1 - zero[0], zero[[4, 2, 1]] / zero[0]
    assert bool((failure[:, 4:6] <= 1 + 1e-12).all())  # one attribute alone may have any sign
    torch.testing.assert_close(zero, (1 - leak) * (causes @ failure.log()).exp())
    first, with_it, without, third = (1 - result.params["conditionals"]).tolist()
    total = torch.zeros(len(rows), dtype=torch.float64)
    for z, chance in zip(causes.tolist(), zero, strict=True):
        second = with_it if z[0] else without
        prior = np.prod(
            [p if bit else 1 - p for p, bit in zip((first, second, third), z, strict=True)]
        )
        total += prior * torch.where(rows == 1, 1 - chance, chance).prod(1)
    assert float(total.log().sum()) == pytest.approx(result.log_likelihood, abs=1e-8)
