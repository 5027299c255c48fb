"""What replicates the published encoders: starts told the truth, and the spectral ratio."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from papers.deep_discrete_encoder import RAISED, generic_design, published_ratio, truth_assisted
from papers.studies.encoders import first_not_rejected, selected
from torch import Tensor

from ppl_models import Poisson
from ppl_models.datasets.deep_discrete_encoder import strict_design


@pytest.mark.parametrize("design", [strict_design, generic_design])
def test_an_assisted_start_undoes_any_order_of_latents(
    design: Callable[[int], dict[str, Tensor]],
) -> None:
    truth = design(2)
    first, second = torch.tensor([4, 2, 0, 5, 1, 3]), torch.tensor([1, 0])
    moved = {
        "loadings_1": truth["loadings_1"][:, first],
        "intercepts_1": truth["intercepts_1"],
        "loadings_2": truth["loadings_2"][first][:, second],
        "intercepts_2": truth["intercepts_2"][first],
        "proportions": torch.tensor([0.3, 0.6], dtype=torch.float64)[second],
    }
    back = truth_assisted(moved, truth)
    for name in ("loadings_1", "intercepts_1", "loadings_2", "intercepts_2"):
        torch.testing.assert_close(back[name], truth[name])
    assert back["proportions"].tolist() == [0.3, 0.6]


def test_main_loadings_alone_are_raised() -> None:
    truth = strict_design(2)
    weak = {name: 0.5 * value for name, value in truth.items()}
    found = truth_assisted(weak, truth)["loadings_1"]
    main = truth["loadings_1"] == 4
    assert (found[main] == RAISED).all()
    torch.testing.assert_close(found[~main], 0.5 * truth["loadings_1"][~main])


def test_the_published_ratio_of_counts() -> None:
    rng = np.random.default_rng(0)
    latents = rng.random((3000, 3)) < 0.5
    rate = np.exp(2.0 * np.repeat(latents, 5, 1))
    counts = torch.from_numpy(rng.poisson(rate).astype(float))
    assert published_ratio(counts, Poisson(), [1, 2, 3, 4, 5]) == 3


def test_the_ratios_of_a_study_are_named() -> None:
    found = [
        selected("Bernoulli", "strict", 1, 4000, [name], seed=0)
        for name in ("published", "spectral")
    ]
    assert found == [{"published": 0}, {"spectral": 0}]


def test_likelihood_ratios_of_a_study_are_those_published() -> None:
    """The quantile of chi-square at .99 with 21 degrees of freedom is 38.93."""
    grid = [4, 5, 6, 7]
    assert first_not_rejected(grid, [0.0, 40.0, 59.0, 90.0], 21) == 5  # 2 x 19 = 38
    assert first_not_rejected(grid, [0.0, 40.0, 59.6, 79.0], 21) == 6  # 2 x 19.6 = 39.2, then 38.8
    assert first_not_rejected(grid, [0.0, 40.0, 80.0, 120.0], 21) == 7
    assert first_not_rejected(grid, [0.0, -1.0, 80.0, 120.0], 21) == 4
