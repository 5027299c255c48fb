"""Kernel EM: equal to sums over rows, an objective that never falls, and truth recovered."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from papers import kernels
from papers.kernels import KernelEM, kernel_em

from ppl_models.datasets import simulate_checkerboard, simulate_two_gaussians

F64 = torch.float64


def by_hand(data, posterior, bandwidths, rounds):
    """npEM by double loops over rows, with no grid."""
    num_rows, num_variates = data.shape
    size = posterior.shape[1]
    for _ in range(rounds):
        weights = posterior.mean(0)
        joint = np.tile(weights, (num_rows, 1))
        for v in range(num_variates):
            for n in range(num_rows):
                for i in range(size):
                    total = 0.0
                    for m in range(num_rows):
                        z = (data[n, v] - data[m, v]) / bandwidths[v]
                        total += (
                            posterior[m, i]
                            * math.exp(-0.5 * z * z)
                            / (bandwidths[v] * math.sqrt(2 * math.pi))
                        )
                    joint[n, i] *= total / (num_rows * weights[i])
        posterior = joint / joint.sum(1, keepdims=True)
    return weights, posterior, np.log(joint.sum(1)).mean()


def test_npem_equals_sums_over_rows(monkeypatch):
    """Whole numbers lie on nodes of the grid: what differs is the kernel beyond four bandwidths,
    6e-5 of its mass.
    """
    rng = np.random.default_rng(0)
    data = np.column_stack([rng.integers(0, 9, 14), rng.integers(0, 9, 14)]).astype(float)
    data[0], data[1] = 0.0, 8.0  # both ends, so that the grid runs from -4 to 12
    start = rng.dirichlet(np.ones(3), 14)
    monkeypatch.setattr(kernels, "_starts", lambda *args: torch.tensor(start.T[None]))
    found = kernel_em(
        data,
        3,
        KernelEM(
            bandwidths=(1.0, 1.0), grid_size=16 * 8 + 1, max_rounds=6, tolerance=0.0, num_restarts=1
        ),
    )
    weights, posterior, objective = by_hand(data, start, (1.0, 1.0), 6)
    order = np.argsort(-weights, kind="stable")
    assert found.weights.numpy() == pytest.approx(weights[order], abs=2e-4)
    assert found.posterior(data).numpy() == pytest.approx(posterior[:, order], abs=5e-4)
    assert float(found.trace[-1]) == pytest.approx(objective, abs=1e-3)
    assert not found.converged


@pytest.mark.parametrize("seed", range(3))
def test_the_smoothed_objective_never_falls(seed):
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((300, 3)) * [1.0, 5.0, 0.1] + rng.integers(0, 3, (300, 1))
    for size in (1, 2, 4):
        found = kernel_em(
            data, size, KernelEM(smoothed=True, max_rounds=80, tolerance=0.0, num_restarts=4), seed
        )
        assert float(found.trace.diff().min()) > -1e-11


def test_the_smoothed_objective_is_what_it_says():
    """Its value from the returned densities: the kernel applied to their logarithms, row by row."""
    data = simulate_two_gaussians(60, seed=4).data
    found = kernel_em(data, 2, KernelEM(smoothed=True, max_rounds=40, num_restarts=2))
    total = 0.0
    for row in data:
        joint = found.weights.clone()
        for v, x in enumerate(row):
            nodes, h = found.nodes(v), found.bandwidths[v, 0]
            place = float((x - nodes[0]) / found.steps[v])
            left = int(place)
            smooth = torch.zeros_like(nodes)
            for node, share in (
                (left, left + 1 - place),
                (left + 1, place - left),
            ):  # a row lies between two nodes
                kernel = torch.exp(-0.5 * ((nodes - nodes[node]) / h) ** 2)
                smooth = smooth + share * kernel / kernel.sum()
            joint = joint * torch.exp(found.densities[v].log() @ smooth)
        total += math.log(float(joint.sum())) / len(data)
    assert float(found.trace[-1]) == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize(
    "method",
    [KernelEM(), KernelEM(smoothed=True), KernelEM(by_component=True, num_restarts=2)],
    ids=["npem", "smoothed", "adaptive"],
)
def test_truth_comes_back(method):
    board = simulate_checkerboard(2000, seed=1)
    found = kernel_em(board.data, 2, method)
    labels = found.posterior(board.data).argmax(1).numpy()
    assert max((labels == board.components).mean(), (labels != board.components).mean()) > 0.99
    assert found.converged
    normals = simulate_two_gaussians(4000, seed=2)
    found = kernel_em(normals.data, 2, method)
    assert float(found.weights[0]) == pytest.approx(0.6, abs=0.05)
    assert found.weights.sum() == pytest.approx(1.0)
    ratio = found.log_ratio(simulate_two_gaussians(4000, seed=3).data)
    assert float(ratio.mean()) == pytest.approx(normals.truth.total_correlation(), abs=0.012)
    x = torch.linspace(-4, 4, 9, dtype=F64)
    mass = (found.density(0, found.nodes(0)) * found.steps[0]).sum(0)
    assert mass.tolist() == pytest.approx([1.0, 1.0], abs=1e-3)
    exact = normals.truth.classifiers(0, x.numpy())[:, ::-1]
    assert np.abs(found.classifiers(0, x).numpy() - exact).mean() < 0.08


def test_rows_far_from_all_others_keep_a_finite_ratio():
    data = simulate_two_gaussians(300, seed=1).data
    found = kernel_em(data, 2)
    near = found.log_ratio(np.array([[0.5, -1.0]]))
    far = found.log_ratio(np.array([[0.5, 1e6], [-1e6, 1e6]]))
    assert far.isfinite().all()
    assert far.abs().max() < 1e-9  # nothing is known of either variate, or of one: independence
    density = [found.density(v, torch.tensor([x], dtype=F64))[0] for v, x in enumerate((0.5, -1.0))]
    direct = (found.weights * density[0] * density[1]).sum() / (
        (found.weights @ density[0]) * (found.weights @ density[1])
    )
    assert near.item() == pytest.approx(float(direct.log()))


def test_one_component_is_independence():
    data = simulate_two_gaussians(300, seed=1).data
    found = kernel_em(data, 1)
    assert found.weights.tolist() == [1.0]
    assert found.log_ratio(data).abs().max() < 1e-10
    assert torch.equal(found.posterior(data), torch.ones(300, 1, dtype=F64))


def test_silverman():
    rng = np.random.default_rng(0)
    x = rng.normal(2, 3, 5000)
    iqr = np.subtract(*np.quantile(x, [0.75, 0.25], method="inverted_cdf"))
    assert kernels.silverman(torch.tensor(x)) == pytest.approx(
        0.9 * min(x.std(), iqr / 1.349) * 5000**-0.2, rel=1e-3
    )
    double = kernels.silverman(torch.tensor(x), torch.full((5000,), 2.0, dtype=F64))
    assert double == pytest.approx(kernels.silverman(torch.tensor(x)) * 2**-0.2)


def test_refusals():
    data = np.random.default_rng(0).normal(size=(20, 2))
    for changed, size, method, message in (
        (data[:, :1], 2, None, "at least two variates"),
        (np.where(np.arange(40).reshape(20, 2) == 3, np.nan, data), 2, None, "needs complete rows"),
        (np.column_stack([data[:, 0], np.ones(20)]), 2, None, "holds one value only"),
        (data[:2], 3, None, "at least 3 rows"),
        (data, 0, None, "num_components must be"),
        (data, 2, KernelEM(bandwidths=(1.0,)), "2 bandwidths were expected"),
        (data, 2, "npem", "method must be"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel_em(changed, size, method)
    for settings, message in (
        ({"grid_size": 5}, "grid_size"),
        ({"bandwidths": (0.0,)}, "be positive"),
        ({"by_component": True, "smoothed": True}, "by_component needs npEM"),
        ({"bandwidths": 1.0}, "one positive number a variate"),
    ):
        with pytest.raises(ValueError, match=message):
            KernelEM(**settings)
    with pytest.raises(ValueError, match="2 columns were expected"):
        kernel_em(data, 2, KernelEM(max_rounds=3)).posterior(np.zeros((4, 3)))
