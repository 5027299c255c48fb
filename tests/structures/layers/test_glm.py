"""The M-step of a generalised-linear layer against general optimisers, and its guards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize

from inference.structures.layers.glm import LayerStatistics, maximise_layer, maximise_rows
from ppl_models import SCAD, Bernoulli, DeepDiscreteEncoder, Normal, Poisson, TruncatedLasso
from ppl_models.parts.distributions import binary_configurations

FAMILIES = [Bernoulli(), Poisson(), Normal()]


def problem(family, seed, num_children=4, num_latents=3, by_item=False):
    """Expected statistics that data of this family can have."""
    generator = torch.Generator().manual_seed(seed)
    design = torch.nn.functional.pad(binary_configurations(num_latents), (1, 0), value=1.0)
    shape = (1, num_children if by_item else 1, len(design))
    counts = 5 + 40 * torch.rand(shape, generator=generator, dtype=torch.float64)
    truth = torch.randn(1, num_children, num_latents + 1, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(
        1, num_children, len(design), generator=generator, dtype=torch.float64
    )
    cross = (counts * family.mean(truth @ design.mT + noise)) @ design
    return cross, counts, design


def objective(family, cross, counts, design, beta, penalty=None, scale=1.0):
    value = scale * (
        (beta * cross).sum(-1) - (counts * family.log_partition(beta @ design.mT)).sum(-1)
    )
    return value if penalty is None else value - penalty(beta[..., 1:]).sum(-1)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("by_item", [False, True])
def test_unpenalised_rows_agree_with_a_general_optimiser(family, by_item):
    for seed in range(3):
        cross, counts, design = problem(family, seed, by_item=by_item)
        beta = maximise_rows(family, cross, counts, design, torch.zeros_like(cross), num_steps=50)
        for j in range(cross.shape[1]):
            own = counts[:, j if by_item else 0]

            def loss(b, target=cross[0, j], own=own, design=design):
                b = torch.from_numpy(b).requires_grad_()
                value = -objective(family, target, own[0], design, b)
                value.backward()
                return value.item(), b.grad.numpy()

            best = minimize(
                loss, np.zeros(design.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9}
            )
            assert np.allclose(beta[0, j], best.x, atol=1e-5)
            assert objective(family, cross[0, j], own[0], design, beta[0, j]) >= -best.fun - 1e-8


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    family=st.sampled_from(FAMILIES),
    slope=st.floats(0.1, 60),
    threshold=st.floats(0.05, 2),
    scad=st.booleans(),
    bound=st.floats(0.5, 5),
)
def test_no_step_lowers_the_penalised_objective_or_leaves_the_box(
    seed, family, slope, threshold, scad, bound
):
    cross, counts, design = problem(family, seed)
    penalty = TruncatedLasso(slope, threshold)
    penalty = SCAD.matching(penalty) if scad else penalty
    generator = torch.Generator().manual_seed(seed + 1)
    start = (2 * torch.rand(cross.shape, generator=generator, dtype=torch.float64) - 1) * bound
    start[..., 1:] *= (
        torch.rand(cross[..., 1:].shape, generator=generator) < 0.7
    )  # some loadings start at zero
    new = maximise_rows(
        family, cross, counts, design, start, penalty=penalty, bound=bound, num_steps=2
    )
    before = objective(family, cross, counts, design, start, penalty)
    after = objective(family, cross, counts, design, new, penalty)
    assert (after >= before - 1e-9 * (1 + before.abs())).all()
    assert (new.abs() <= bound).all()


def test_a_strong_penalty_empties_the_graph_and_frees_the_intercept():
    cross, counts, design = problem(Bernoulli(), 0)
    new = maximise_rows(
        Bernoulli(),
        cross,
        counts,
        design,
        torch.zeros_like(cross),
        penalty=TruncatedLasso(1e4, 50.0),
        num_steps=40,
    )
    assert (new[..., 1:] == 0).all()
    share = cross[..., 0] / counts.sum(-1)
    assert torch.allclose(torch.sigmoid(new[..., 0]), share, atol=1e-8)


def test_a_graph_is_respected_and_its_rest_is_optimal():
    cross, counts, design = problem(Poisson(), 1)
    free = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]]).bool()
    new = maximise_rows(
        Poisson(), cross, counts, design, torch.zeros_like(cross), free=free, num_steps=60
    )
    assert (new[0, :, 1:][~free] == 0).all()
    slope = cross - (counts * (new @ design.mT).exp()) @ design
    allowed = torch.nn.functional.pad(free, (1, 0), value=True)
    assert slope[0][allowed].abs().max() < 1e-5 * counts.sum()


def test_the_box_holds_the_optimum_where_data_separate():
    """All counts of ones sit where the latent is on: the likelihood has no maximum, the box gives
    one on its face.
    """
    design = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    counts = torch.tensor([[[30.0, 20.0]]], dtype=torch.float64)
    cross = torch.tensor(
        [[[15.0, 15.0]]], dtype=torch.float64
    )  # no ones where it is off, 15 of 20 where it is on
    new = maximise_rows(
        Bernoulli(),
        cross,
        counts,
        design,
        torch.zeros(1, 1, 2, dtype=torch.float64),
        bound=6.0,
        num_steps=100,
    )
    assert new[0, 0, 1] == 6.0
    off, on = torch.sigmoid(new[0, 0, 0]), torch.sigmoid(new.sum())
    assert 30 * off + 20 * on == pytest.approx(
        15.0, abs=1e-6
    )  # the intercept is still at its own maximum


def test_a_normal_layer_is_least_squares_with_its_residual_variance():
    generator = torch.Generator().manual_seed(0)
    model = DeepDiscreteEncoder(5, (2,), Normal())
    latents = (torch.rand(300, 2, generator=generator) < 0.5).double()
    x = torch.randn(300, 5, generator=generator, dtype=torch.float64) + latents @ torch.ones(
        2, 5, dtype=torch.float64
    )
    rows, index = torch.unique(latents, dim=0, return_inverse=True)
    design = torch.nn.functional.pad(latents, (1, 0), value=1.0)
    stats = LayerStatistics(
        rows, torch.bincount(index).double()[None], (x.mT @ design)[None], x.square().sum(0)
    )
    start = {
        "loadings_1": torch.zeros(1, 5, 2, dtype=torch.float64),
        "intercepts_1": torch.zeros(1, 5, dtype=torch.float64),
        "dispersion": torch.ones(1, 5, dtype=torch.float64),
    }
    new = maximise_layer(model.layers()[0], stats, start)
    solution = torch.linalg.lstsq(design, x).solution
    residual = (x - design @ solution).square().mean(0)
    assert torch.allclose(new["loadings_1"][0], solution[1:].mT, atol=1e-6)
    assert torch.allclose(new["intercepts_1"][0], solution[0], atol=1e-6)
    assert torch.allclose(new["dispersion"][0], residual, atol=1e-8)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("scale", [0.01, 0.2, 5.0])
def test_the_scale_weighs_data_against_penalty(family, scale):
    """max of s Q - p is max of Q - p / s; a variance of 100 makes a penalty a hundred times as
    strong.
    """
    for seed in range(3):
        cross, counts, design = problem(family, seed)
        start, scales = torch.full_like(cross, 0.3), cross.new_full(cross.shape[:-1], scale)
        scaled = maximise_rows(
            family, cross, counts, design, start, TruncatedLasso(2.0, 0.4), scales, num_steps=30
        )
        plain = maximise_rows(
            family, cross, counts, design, start, TruncatedLasso(2.0 / scale, 0.4), num_steps=30
        )
        assert torch.allclose(scaled, plain, atol=1e-6)
        better = objective(family, cross, counts, design, scaled, TruncatedLasso(2.0, 0.4), scale)
        assert (
            better
            >= objective(family, cross, counts, design, start, TruncatedLasso(2.0, 0.4), scale)
        ).all()
