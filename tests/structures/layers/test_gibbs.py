"""Sweeps over layers against those of the program, and against exact posteriors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.measured_items import random_params, simulated
from support.small_encoders import CATEGORIES, MIXED, RESPONSES, example, name_of
from zoo.rows_measurement import Q

from inference.base.gibbs import GenericGibbs, Scan
from inference.programs.program import Program
from inference.structures.layers.gibbs import LayeredGibbs
from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    DeepDiscreteEncoder,
    ExpDINA,
    ExpGDM,
    Normal,
    Ordinal,
)

F64 = torch.float64


def samplers(model, data):
    return LayeredGibbs.build(model, data), GenericGibbs(Program(model, data))


@pytest.mark.parametrize(
    "response", [*RESPONSES, CATEGORIES, Ordinal(4), Categorical(3)], ids=name_of
)
@pytest.mark.parametrize("sizes", [(3,), (3, 1), (4, 2, 1)], ids=str)
@pytest.mark.parametrize("flags", [{}, {"synchronous": True}, {"power": 0.3}], ids=str)
def test_layers_and_program_draw_the_same(response, sizes, flags):
    model, params, data = example(response, sizes=sizes)
    layered, generic = samplers(model, data)
    state = layered.begin(params, torch.Generator().manual_seed(1))
    if "power" in flags:
        base = {name: torch.randn(value.shape, dtype=F64) for name, value in state.items()}
        flags = flags | {"base": base}
    ours = layered.sweep(params, state, torch.Generator().manual_seed(2), Scan(**flags))
    theirs = generic.sweep(params, state, torch.Generator().manual_seed(2), Scan(**flags))
    for name in state:
        assert torch.allclose(ours[1][name], theirs[1][name], atol=1e-6)
        assert torch.equal(ours[0][name], theirs[0][name])
    assert torch.allclose(
        layered.log_joint_rows(params, state),
        generic.log_joint_rows(params, state),
        rtol=1e-12,
        atol=1e-10,
    )


@pytest.mark.parametrize("response", [Bernoulli(), MIXED, CATEGORIES], ids=name_of)
def test_a_conditional_is_a_ratio_of_joints(response):
    model, params, data = example(response)
    layered, generic = samplers(model, data)
    state = layered.begin(params, torch.Generator().manual_seed(3))
    _, chances = layered.sweep(
        params, state, torch.Generator().manual_seed(4), Scan(synchronous=True)
    )
    one = {name: value[0] for name, value in params.items()}
    for name in state:
        for k in range(state[name].shape[1]):
            joints = []
            for bit in (0.0, 1.0):
                changed = state[name].clone()
                changed[:, k] = bit
                shaped = generic.shaped(state | {name: changed})
                joints.append(
                    Program(model, data).log_joint_rows(one, {n: v[0] for n, v in shaped.items()})
                )
            assert torch.allclose(
                chances[name][0, k], torch.sigmoid(joints[1] - joints[0]), atol=1e-6
            )


def test_sequential_draws_have_the_posterior_and_synchronous_ones_do_not():
    """Two latents that the data only tells to differ: drawn at the same time they never learn of
    each other.
    """
    model = DeepDiscreteEncoder(2, (2,), Normal())
    params = {
        "loadings_1": torch.tensor([[[2.0, 2.0], [0.5, 0.0]]], dtype=F64),
        "intercepts_1": torch.zeros(1, 2, dtype=F64),
        "proportions": torch.full((1, 2), 0.5, dtype=F64),
        "dispersion": torch.full((1, 2), 1.0, dtype=F64),
    }
    data = torch.tensor([[2.0, 0.4]], dtype=F64).repeat(400, 1)
    program = Program(model, data)
    exact = program.latent_marginals({k: v[0] for k, v in params.items()})["latents_1"][
        0
    ]  # 00, 01, 10, 11
    layered, _ = samplers(model, data)
    found = {}
    for synchronous in (False, True):
        generator, state = (
            torch.Generator().manual_seed(5),
            layered.begin(params, torch.Generator().manual_seed(6)),
        )
        total = torch.zeros(4, dtype=F64)
        for sweep in range(220):
            state, _ = layered.sweep(params, state, generator, Scan(synchronous))
            code = (2 * state["latents_1"][0, 0] + state["latents_1"][0, 1]).long()
            total += torch.bincount(code, minlength=4) * (sweep >= 20)
        found[synchronous] = total / total.sum()
    assert (found[False] - exact).abs().max() < 0.02
    assert (found[True] - exact).abs().max() > 0.1


def test_sweeps_skip_children_without_an_edge_and_find_the_same():
    model, params, data = example(Bernoulli(), sizes=(4, 2))
    params["loadings_1"][:, ::2, 1] = 0.0
    params["loadings_1"][:, 3:, 2] = 0.0
    layered, generic = samplers(model, data)
    state = layered.begin(params, torch.Generator().manual_seed(1))
    ours = layered.sweep(params, state, torch.Generator().manual_seed(2))
    theirs = generic.sweep(params, state, torch.Generator().manual_seed(2))
    assert all(torch.allclose(ours[1][name], theirs[1][name], atol=1e-6) for name in state)


# ---------------------------------------------------------------- products of attributes


@pytest.mark.parametrize("bottom", [ExpDINA(), ExpGDM()], ids=repr)
@pytest.mark.parametrize("first", [Bernoulli(), Ordinal(4), Categorical(3)], ids=name_of)
def test_gibbs_draws_with_the_programs_own_odds(bottom: Any, first: Any) -> None:
    blocks = Blocks((first, 2), (Normal(), 3))
    model = DeepDiscreteEncoder(5, (3,), blocks, graphs=(Q,), bottom=bottom)
    params = random_params(model) | {"dispersion": torch.tensor([0.5, 1.0, 2.0], dtype=F64)}
    data = simulated(model, params, 25)
    data[0, 0] = data[3, 4] = torch.nan
    batch = {name: value.unsqueeze(0) for name, value in params.items()}
    fast, slow = LayeredGibbs.build(model, data), GenericGibbs(Program(model, data))
    generator = torch.Generator().manual_seed(0)
    latents = slow.begin(batch, generator)
    for seed in (1, 2):
        one = fast.sweep(batch, latents, torch.Generator().manual_seed(seed))
        two = slow.sweep(batch, latents, torch.Generator().manual_seed(seed))
        torch.testing.assert_close(one[1]["latents_1"], two[1]["latents_1"], rtol=1e-9, atol=1e-9)
        assert torch.equal(one[0]["latents_1"], two[0]["latents_1"])
