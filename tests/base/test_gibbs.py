"""Sweeps of any program of bits, and the latents that are none."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch

from inference import EM, SAEM, fit
from inference.programs.program import Program
from ppl_models import OptionsHMM
from ppl_models.parts.distributions import BinaryVector

F64 = torch.float64


def causes(data, num_rows=None):
    """Two hidden causes, one of them a plain coin: no layers are described."""
    chance = pyro.sample("chance", dist.Beta(torch.ones(2, dtype=F64), 1.0).to_event(1))
    effect = pyro.sample("effect", dist.Normal(torch.zeros(4, 3, dtype=F64), 3.0).to_event(2))
    with pyro.plate("rows", num_rows or len(data)):
        pair = pyro.sample("pair", BinaryVector(torch.logit(chance)))
        coin = pyro.sample("coin", dist.Bernoulli(torch.tensor(0.5, dtype=F64)))
        mean = effect[..., 0, :] + (pair.unsqueeze(-2) @ effect[..., 1:3, :]).squeeze(-2)
        mean = mean + coin.unsqueeze(-1) * effect[..., 3, :]
        return pyro.sample("x", dist.Normal(mean, 1.0).to_event(1), obs=data)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_any_program_of_bits_is_fitted():
    truth = {
        "chance": torch.tensor([0.4, 0.6], dtype=F64),
        "effect": torch.tensor([[0.0, 0, 0], [4, 0, 1], [0, 4, 1], [1, 1, 4]], dtype=F64),
    }
    data = Program(causes, None, 150).simulate(truth, 0)["x"]
    exact = fit(causes, data, EM(), init=truth)
    ours = fit(causes, data, SAEM(num_burn_in=5, max_iterations=30), init=truth)
    assert ours.objective == pytest.approx(exact.objective, abs=1.0)


def three_groups(data):
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(3, dtype=F64)))
    with pyro.plate("rows", len(data)):
        group = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(group.to(F64), 1.0), obs=data)


def shifts(data):
    center = pyro.sample("center", dist.Normal(torch.zeros((), dtype=F64), 1.0))
    with pyro.plate("rows", len(data)):
        shift = pyro.sample("shift", dist.Normal(center, 1.0))
        pyro.sample("x", dist.Normal(shift, 1.0), obs=data)


def test_latents_that_are_not_bits_are_named():
    with pytest.raises(ValueError, match="'group'.*bits"):
        fit(three_groups, torch.zeros(5, dtype=F64), SAEM())
    with pytest.raises(ValueError, match="cannot integrate 'shift'"):
        fit(shifts, torch.zeros(5, dtype=F64), SAEM())
    walks = {
        "state": torch.zeros(2, 5).long(),
        "action": torch.zeros(2, 5).long(),
        "length": torch.tensor([5, 5]),
    }
    with pytest.raises(ValueError, match="no latent site to sample.*trajectories"):
        fit(OptionsHMM(3, 2, 2), walks, SAEM())
