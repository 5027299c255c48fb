"""Stacked noisy-OR layers: one layer is the noisy-OR network, the distribution of a draw, a fit,
bad input.

The laws: zoo/test_laws.py.
"""

from __future__ import annotations

import itertools
import warnings

import pyro
import pytest
import torch

from inference import EM, fit
from inference.programs.program import Program
from ppl_models import DeepNoisyOr, NoisyOr

F64 = torch.float64


def two_layers() -> dict[str, torch.Tensor]:
    failure = torch.full((4, 12), 0.999, dtype=F64)
    for i in range(4):
        failure[i, 3 * i : 3 * i + 3] = 0.1
    return {
        "prior": torch.tensor([0.4, 0.3], dtype=F64),
        "failure_2": torch.tensor([[0.1, 0.1, 0.95, 0.95], [0.95, 0.95, 0.1, 0.1]], dtype=F64),
        "leak_2": torch.full((4,), 0.1, dtype=F64),
        "failure_1": failure,
        "leak_1": torch.full((12,), 0.02, dtype=F64),
    }


def drawn(num_rows: int, seed: int) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return pyro.poutine.condition(DeepNoisyOr(12, (4, 2)), two_layers())(None, num_rows)


def test_one_layer_is_the_noisy_or_network() -> None:
    generator = torch.Generator().manual_seed(0)
    prior, failure, leak = (
        torch.rand(1, *s, generator=generator, dtype=F64) for s in ((3,), (3, 5), (5,))
    )
    data = (torch.rand(20, 5, generator=generator, dtype=F64) < 0.5).to(F64)
    data[0, 1] = torch.nan
    one = Program(NoisyOr(5, 3), data).log_marginal_rows(
        {"prior": prior[0], "failure": failure[0], "leak": leak[0]}
    )
    deep = Program(DeepNoisyOr(5, (3,)), data).log_marginal_rows(
        {"prior": prior[0], "failure_1": failure[0], "leak_1": leak[0]}
    )
    torch.testing.assert_close(deep, one, rtol=1e-12, atol=1e-12)


def test_negative_moments_of_a_draw() -> None:
    """P(every item of a set is zero) in closed form given the top, summed over the top's
    settings.
    """
    truth, rows = two_layers(), drawn(60_000, seed=1)
    for chosen in ([0], [0, 1], [0, 5], [2, 8, 11]):
        expected = 0.0
        for top in itertools.product((0.0, 1.0), repeat=2):
            bits = torch.tensor(top, dtype=F64)
            chance = torch.where(bits > 0, truth["prior"], 1 - truth["prior"]).prod()
            off = (1 - truth["leak_2"]) * (truth["failure_2"] ** bits.unsqueeze(-1)).prod(0)
            silent = off + (1 - off) * truth["failure_1"][:, chosen].prod(-1)
            expected += float(chance * silent.prod() * (1 - truth["leak_1"][chosen]).prod())
        seen = float((rows[:, chosen] == 0).all(-1).double().mean())
        assert abs(seen - expected) < 5 * (expected * (1 - expected) / 60_000) ** 0.5


def test_a_fit_explains_the_data_as_well_as_the_truth() -> None:
    truth = two_layers()
    truth = {
        "prior": truth["prior"][:1],
        "failure_2": truth["failure_2"][:1, :2],
        "leak_2": truth["leak_2"][:2],
        "failure_1": truth["failure_1"][:2, :6],
        "leak_1": truth["leak_1"][:6],
    }
    data, model = (
        drawn(600, seed=2)[:, :6],
        DeepNoisyOr(6, (2, 1)),
    )  # latents of the other branch hardly touch an item here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps from the truth are enough
        result = fit(model, data, EM(max_iterations=5), init=truth)
    at_truth = float(Program(model, data).log_marginal(truth))
    assert at_truth < result.log_likelihood < at_truth + 30  # 23 parameters: about 12 above
    means = result.posterior_latents(data)
    assert means["causes_1"].shape == (600, 2)
    assert means["causes_2"].shape == (600, 1)
    marked = data[:, :3].sum(-1) == 3
    assert float(means["causes_1"][marked, 0].min()) > 0.9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DeepNoisyOr(0, (2,)), "num_items must be a positive integer"),
        (lambda: DeepNoisyOr(4, ()), "latent_sizes must be a tuple"),
        (lambda: DeepNoisyOr(4, 3), "latent_sizes must be a tuple"),
        (lambda: DeepNoisyOr(4, (3, 0)), "latent_sizes must be a positive integer"),
        (lambda: DeepNoisyOr(4, (3,), (0.0, 1.0)), "two positive numbers"),
        (lambda: DeepNoisyOr(4, (3,))(), "give data, or num_rows"),
        (lambda: fit(DeepNoisyOr(2, (1,)), [[0.0, 2.0], [1.0, 0.0]]), "column '1'"),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
