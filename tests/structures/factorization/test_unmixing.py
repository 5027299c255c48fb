"""Unmixing: densities and moments by brute force, least squares against other solvers, endmembers
of scenes without pure rows, noise of the components, how many, bad input.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from inference import EM, ConvergenceWarning, EstimateWarning, Fit, fit
from inference.acdc import acdc
from inference.base.structure import component_noise
from inference.fitting.problem import problem_of
from inference.metrics import soft_adjusted_rand_index
from inference.selection import fit_grid
from inference.structures.factorization.unmixing import (
    likeliest_simplex,
    nonnegative,
    posterior,
    pure_rows,
    truncated,
)
from inference.structures.registry import structure_of
from ppl_models import Unmixing

F64 = torch.float64


def scene(
    num_rows: int, seed: int, decibels: float = 20.0, num: int = 4, columns: int = 40
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Rows, endmembers, abundances of which none exceeds .8, and the noise."""
    rng, bands = np.random.default_rng(seed), np.linspace(0, 1, columns)
    centre, width = rng.random((num, 3, 1)), rng.uniform(0.05, 0.25, (num, 3, 1))
    spectra = 0.05 + np.exp(-(((bands - centre) / width) ** 2)).sum(1)
    shares = rng.dirichlet(np.ones(num), 8 * num_rows)
    shares = shares[shares.max(1) < 0.8][:num_rows]
    x = shares @ spectra
    noise = math.sqrt((x**2).mean() / 10 ** (decibels / 10))
    return x + noise * rng.normal(size=x.shape), spectra, shares, noise


def angles(found: torch.Tensor, truth: np.ndarray) -> np.ndarray:
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (found.numpy(), truth)]
    apart = np.degrees(np.arccos(np.clip(unit[0] @ unit[1].T, -1, 1)))
    return np.asarray(apart[optimize.linear_sum_assignment(apart)])


# ---------------------------------------------------------------- densities and moments


@pytest.mark.parametrize("noise", [0.1, 0.4, 2.0])
def test_density_and_moments_are_those_of_a_grid(noise: float) -> None:
    rng = np.random.default_rng(0)
    phi, scale = 3 * rng.random((3, 5)), noise
    x = rng.dirichlet(np.ones(3), 12) @ phi + scale * rng.normal(size=(12, 5))
    middle = (np.arange(900) + 0.5) / 900
    first, second = (part.ravel() for part in np.meshgrid(middle, middle))
    shares = np.stack([first, second, 1 - first - second], -1)[first + second < 1]
    logs = np.array([stats.norm.logpdf(row, shares @ phi, scale).sum(-1) for row in x])
    peak = logs.max(1, keepdims=True)
    weights = np.exp(logs - peak)
    value = peak[:, 0] + np.log(weights.mean(1))
    weights /= weights.sum(1, keepdims=True)
    mean = weights @ shares
    second_moment = np.einsum("ng,gk,gl->nkl", weights, shares, shares)
    params = {"endmembers": torch.tensor(phi)[None], "scales": torch.tensor([[scale]], dtype=F64)}
    found = posterior(Unmixing(5, 3).unmixing(), params, torch.tensor(x))
    np.testing.assert_allclose(found.log_likelihood[0].numpy(), value, atol=0.1)
    np.testing.assert_allclose(found.mean[0].numpy(), mean, atol=0.015)
    own = found.covariance[0] + found.mean[0].unsqueeze(-1) * found.mean[0].unsqueeze(-2)
    np.testing.assert_allclose(own.numpy(), second_moment, atol=0.015)
    np.testing.assert_allclose(found.mean[0].sum(-1).numpy(), 1.0, rtol=1e-9)


def test_rows_far_outside_stay_finite() -> None:
    phi = torch.tensor(np.random.default_rng(1).random((1, 4, 6)))
    for size in (1e2, 1e5):
        x = size * torch.tensor(np.random.default_rng(2).normal(size=(20, 6)))
        params = {"endmembers": phi, "scales": torch.full((1, 1), 0.01, dtype=F64)}
        for noise in ("independent", "correlated"):
            found = posterior(Unmixing(6, 4, noise).unmixing(), params, x)  # type: ignore[arg-type]
            assert bool(found.log_likelihood.isfinite().all())
            assert bool((found.mean > -1e-6).all())
            assert bool((found.mean.sum(-1) - 1).abs().max() < 1e-6)


def test_a_normal_that_lies_inside_is_left_alone() -> None:
    covariance = 1e-6 * (torch.eye(3, dtype=F64) - 1 / 3)
    centre = torch.full((1, 5, 3), 1 / 3, dtype=F64)
    mean, spread, log_inside = truncated(centre, covariance[None, None])
    torch.testing.assert_close(mean, centre)
    torch.testing.assert_close(spread, covariance.expand(1, 5, 3, 3))
    torch.testing.assert_close(log_inside, torch.zeros(1, 5, dtype=F64))


def test_least_squares_are_those_of_other_solvers() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 2, 5, 9):
        design = rng.normal(size=(20, size)) @ np.diag(10.0 ** rng.uniform(-1, 1, size))
        rows = rng.normal(size=(40, 20))
        gram, cross = torch.tensor(design.T @ design)[None], torch.tensor(rows @ design)[None]
        found = nonnegative(gram, cross)[0].numpy()
        expected = np.array([optimize.nnls(design, row)[0] for row in rows])
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
        heavy = 1e6 * np.ones((1, size))
        shares = nonnegative(gram, cross, shares=True)[0].numpy()
        expected = np.array(
            [optimize.nnls(np.vstack([design, heavy]), np.append(row, 1e6))[0] for row in rows]
        )
        np.testing.assert_allclose(shares, expected, atol=1e-4)
        np.testing.assert_allclose(shares.sum(1), 1.0)


def test_vertices_are_the_pure_rows_where_there_are_some() -> None:
    rng = np.random.default_rng(4)
    phi = rng.random((4, 12))
    x = np.vstack([rng.dirichlet(np.ones(4), 200) @ phi, phi])
    for seed in range(3):
        found = pure_rows(torch.tensor(x), 4, torch.Generator().manual_seed(seed))
        assert angles(found, phi).max() < 1e-4


# ---------------------------------------------------------------- fits


def test_endmembers_of_rows_of_which_none_is_pure() -> None:
    """Three seeds: endmembers, scale, and abundances nearly as good as with the true spectra."""
    for seed in range(3):
        x, spectra, shares, noise = scene(1200, seed)
        found = fit(Unmixing(num_components=4), x, seed=seed)
        apart = angles(found.params["endmembers"], spectra)
        start = pure_rows(torch.tensor(x), 4, torch.Generator().manual_seed(0))
        assert apart.mean() < 1.5 < 3 * 1.5 < angles(start, spectra).mean()
        assert float(found.params["scales"][0]) == pytest.approx(noise, rel=0.02)
        abundances = found.posterior_latents(x)["abundances"]
        assert bool((abundances >= 0).all())
        torch.testing.assert_close(abundances.sum(-1), torch.ones(1200, dtype=F64))
        assert found.converged
        assert len(found.trace.objective) < 300
        course = found.trace.objective
        assert bool((course.diff() > -1e-6 * course[1:].abs()).all())


def test_the_start_is_the_likeliest_simplex_where_noise_is_small() -> None:
    """From vertices alone EM is not there after a thousand steps (its objective is far below)."""
    for seed in range(2):
        x, spectra, _, _ = scene(1200, seed, 40.0)
        rows = torch.from_numpy(x)
        vertices = pure_rows(rows, 4, torch.Generator().manual_seed(0))
        start = likeliest_simplex(rows, vertices)
        assert angles(start, spectra).mean() < 0.3 < 3 < angles(vertices, spectra).mean()
        found = fit(Unmixing(num_components=4), x, seed=seed)
        assert found.converged
        assert len(found.trace.objective) < 50
        plain = {"endmembers": vertices.clamp(min=0), "scales": found.params["scales"]}
        with pytest.warns(ConvergenceWarning):
            slow = fit(Unmixing(num_components=4), x, EM(max_iterations=60), init=plain, seed=seed)
        assert found.log_likelihood > slow.log_likelihood + 20
        assert angles(found.params["endmembers"], spectra).mean() < 0.3


def test_the_likeliest_simplex_is_the_best_near_it() -> None:
    """Its objective, written out by the rows' shares, falls in every direction."""
    x, _, _, _ = scene(800, 0, 25.0)
    rows = torch.from_numpy(x)
    best = likeliest_simplex(rows, pure_rows(rows, 4, torch.Generator().manual_seed(0))).numpy()
    centred = x - x.mean(0)
    values, turn = np.linalg.eigh(centred.T @ centred / len(x))
    plane, noise = turn[:, -3:], math.sqrt(values[:-3].mean())
    scores = np.column_stack([np.ones(len(x)), centred @ plane])

    def objective(vertices: np.ndarray) -> float:
        whole = np.column_stack([np.ones(4), (vertices - x.mean(0)) @ plane])
        inverse = np.linalg.inv(whole)
        spread = noise * np.linalg.norm(inverse[1:], axis=0)
        inside = stats.norm.logcdf(scores @ inverse / spread).sum()
        return float(inside - len(x) * np.linalg.slogdet(whole)[1])

    top, rng = objective(best), np.random.default_rng(0)
    for _ in range(40):
        step = 0.05 * rng.normal(size=(4, 3)) @ plane.T
        assert objective(best + step) < top


def test_rows_without_noise_keep_their_vertices() -> None:
    x, _, _, _ = scene(300, 0, math.inf)
    rows = torch.from_numpy(x)
    vertices = pure_rows(rows, 4, torch.Generator().manual_seed(0))
    found = likeliest_simplex(rows, vertices)
    assert bool(found.isfinite().all())


def test_correlated_noise_climbs_and_keeps_its_scale() -> None:
    x, spectra, _, _ = scene(800, 1, 30.0)
    model = Unmixing(num_components=4, noise="correlated")
    found = fit(model, x)
    course = found.trace.objective
    assert bool((course.diff() > -1e-9 * course[1:].abs()).all())
    widths = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
    assert float(found.params["scales"][0]) == pytest.approx(math.sqrt(widths[3]), rel=1e-6)
    assert angles(found.params["endmembers"], spectra).mean() < 3
    assert "maximum likelihood" in str(found.why_no_criteria)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_correlated_residuals_are_said() -> None:
    x, _, _, noise = scene(500, 2, 30.0)
    rng = np.random.default_rng(5)
    rough = rng.normal(size=(500, 1)) * np.linspace(0.5, 1.5, 40) * noise
    with pytest.warns(EstimateWarning, match="correlated between columns"):
        fit(Unmixing(num_components=4), x + rough * np.sin(np.arange(40)), EM(max_iterations=5))


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_one_endmember_is_the_mean_row() -> None:
    x = np.abs(np.random.default_rng(6).normal(3, 0.1, (50, 4)))
    for noise in ("independent", "correlated"):
        found = fit(Unmixing(num_components=1, noise=noise), x)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.params["endmembers"][0].numpy(), x.mean(0), rtol=1e-6)
    found = fit(Unmixing(num_components=1), x)
    deviation = x - x.mean(0)
    scale = math.sqrt((deviation**2).mean())
    expected = stats.norm.logpdf(deviation, 0, scale).sum()
    assert found.log_likelihood == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::inference.EstimateWarning")
def test_a_saved_fit_says_the_same(tmp_path) -> None:
    x, *_ = scene(100, 3)
    found = fit(Unmixing(num_components=3), x, EM(max_iterations=4))
    found.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert again.model == found.model
    torch.testing.assert_close(again.log_likelihood_rows(x), found.log_likelihood_rows(x))


@pytest.mark.data("jasper_ridge.npz")
def test_jasper_ridge_is_near_its_reference() -> None:
    """A quarter of the scene; the index of factorizations is .18, of its vertices .31."""
    from papers.hyperspectral import load_scene

    whole = load_scene("jasper_ridge")
    some = np.random.default_rng(0).permutation(len(whole.pixels))[:2500]
    x, shares = whole.pixels[some], whole.abundances[some]
    found = fit(Unmixing(num_components=4, noise="correlated"), x)
    assert angles(found.params["endmembers"], whole.endmembers).mean() <= 7.5
    abundances = found.posterior_latents(x)["abundances"]
    assert soft_adjusted_rand_index(abundances, shares) >= 0.32
    assert len(found.trace.objective) < 300


# ---------------------------------------------------------------- how many


@pytest.mark.parametrize("noise", ["independent", "correlated"])
def test_noise_at_the_truth_is_normal(noise: str) -> None:
    x, spectra, _, scale = scene(3000, 7, 30.0, 3, 8)
    params = {
        "endmembers": torch.tensor(spectra),
        "scales": torch.tensor([scale], dtype=F64),
    }
    structure = structure_of(Unmixing(8, 3, noise))  # type: ignore[arg-type]
    found = component_noise(structure, params, torch.tensor(x), torch.Generator().manual_seed(0), 1)
    assert found.shares.sum() == pytest.approx(1)
    for k in range(3):
        scores = found.scores[0][found.used[0][:, k], k]
        assert len(scores) > 300
        for column in scores.T:
            assert stats.kstest(column, "norm").pvalue > 1e-4


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::inference.EstimateWarning")
def test_the_number_of_endmembers_is_found() -> None:
    x, *_ = scene(400, 8, 25.0, 3)
    fits = fit_grid(lambda k: Unmixing(40, k), x, range(2, 5), 1)
    assert min(fits, key=lambda k: fits[k].bic) == 3
    assert acdc(fits, x, seed=0).chosen == 3


# ---------------------------------------------------------------- bad input


def test_bad_input_is_refused_by_name() -> None:
    table = np.ones((6, 4)) + np.eye(6, 4)
    for call, message in (
        (lambda: Unmixing(4, 0), "num_components"),
        (lambda: Unmixing(4, 5), "exceeds num_items"),
        (lambda: Unmixing(4, 2, "white"), "noise must be 'independent' or 'correlated'"),  # type: ignore[arg-type]
        (lambda: Unmixing(4, 2, bound=0.0), "bound must be positive"),
        (lambda: fit(Unmixing(4, 4), table[:4]), "more than num_components = 4 rows"),
        (lambda: fit(Unmixing(4, 2), -table), "no entry is above zero"),
        (lambda: fit(Unmixing(4, 2), np.where(table > 1.5, np.nan, table)), "missing|complete"),
        (lambda: fit(Unmixing(3, 2), table), "3"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_problem_starts_inside_its_bounds() -> None:
    x, *_ = scene(60, 9)
    problem = problem_of(Unmixing(40, 3), x, 0)
    for init in ("spectral", "random"):
        start = problem.structure.start(problem, init, 2)
        assert start is not None
        assert start["endmembers"].shape == (2, 3, 40)
        assert bool((start["endmembers"] >= 0).all())
        assert bool((start["scales"] > 0).all())
