"""Densities whose constants are worked out once."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Dirichlet, Distribution, Uniform

from inference.programs.sites import density_of
from ppl_models.parts.probability_tables import DirichletTables


@pytest.mark.parametrize(
    "fn",
    [
        Dirichlet(torch.full((32,), 1.0).double(), validate_args=True),  # small samples are common
        Dirichlet(torch.tensor([0.3, 0.01, 5.0]).double(), validate_args=True),
        DirichletTables(torch.tensor([0.5, 2.0, 1.0, 1.0, 3.0]).double(), (2, 3)),
        Uniform(torch.zeros(3).double(), torch.full((3,), 2.0).double()),
    ],
)
def test_a_known_density_is_that_of_the_distribution(fn: Distribution) -> None:
    state = torch.random.get_rng_state()
    density = density_of(fn)
    assert torch.equal(torch.random.get_rng_state(), state)
    values = fn.sample(torch.Size([7])).clamp(min=1e-300)
    expected = fn.log_prob(values).reshape(7, -1).sum(1)
    torch.testing.assert_close(density(values), expected, rtol=1e-10, atol=1e-10)
