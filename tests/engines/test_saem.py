"""Gibbs draws against exact posteriors, stochastic-approximation EM against exact EM."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from inference import EM, SAEM, ConvergenceWarning, Fit, fit
from inference.alignment import align
from inference.base.checkpoint import read_tensors
from inference.base.draw_steps import GenericDraws
from inference.base.gibbs import GenericGibbs, Scan
from inference.engines.gibbs_estimates import log_likelihood_rows, posterior_means
from inference.fitting.problem import problem_of
from inference.metrics import graph_accuracy
from inference.programs.program import Program
from inference.structures.layers.draw_steps import LayeredDraws
from inference.structures.layers.gibbs import LayeredGibbs
from inference.structures.layers.glm import LayerStatistics, maximise_layer
from ppl_models import (
    Bernoulli,
    Blocks,
    DeepDiscreteEncoder,
    LogNormal,
    NoisyOr,
    Normal,
    OptionsHMM,
    Poisson,
    TruncatedLasso,
)
from ppl_models.datasets import strict_design
from ppl_models.parts.distributions import BinaryVector

F64 = torch.float64
MIXED = Blocks((Bernoulli(), 3), (Normal(), 3), (Poisson(), 3))
RESPONSES = [Bernoulli(), Poisson(), Normal(), LogNormal(), MIXED]
SHORT = SAEM(num_burn_in=3, num_relaxed=2, max_iterations=6, window=3)


def name_of(response):
    return type(response).__name__


def example(response, num_rows=12, sizes=(3, 1), missing=True, seed=0):
    """A small encoder with weak and strong loadings, and data with gaps."""
    model = DeepDiscreteEncoder(9, sizes, response)
    generator = torch.Generator().manual_seed(seed)
    params = Program(model, None, 4).draw_prior(1, seed)
    params = {k: torch.randn(v.shape[1:], generator=generator, dtype=F64) for k, v in params.items()}
    params["proportions"] = torch.tensor([0.3] * sizes[-1], dtype=F64)
    if "dispersion" in params:
        params["dispersion"] = 0.5 + torch.rand(params["dispersion"].shape, generator=generator, dtype=F64)
    data = Program(model, None, num_rows).simulate(params, seed)["items"]
    if missing:
        data[2, 1] = data[5, 7] = torch.nan
    return model, {k: v.unsqueeze(0) for k, v in params.items()}, data


def samplers(model, data):
    return LayeredGibbs.build(model, data), GenericGibbs(Program(model, data))


# ---------------------------------------------------------------- draws


@pytest.mark.parametrize("response", RESPONSES, ids=name_of)
@pytest.mark.parametrize("sizes", [(3,), (3, 1), (4, 2, 1)], ids=str)
@pytest.mark.parametrize("flags", [{}, {"synchronous": True}, {"backwards": True}], ids=str)
def test_layers_and_program_draw_the_same(response, sizes, flags):
    model, params, data = example(response, sizes=sizes)
    layered, generic = samplers(model, data)
    state = layered.begin(params, torch.Generator().manual_seed(1))
    ours = layered.sweep(params, state, torch.Generator().manual_seed(2), Scan(**flags))
    theirs = generic.sweep(params, state, torch.Generator().manual_seed(2), Scan(**flags))
    for name in state:
        assert torch.allclose(ours[1][name], theirs[1][name], atol=1e-6)
        assert torch.equal(ours[0][name], theirs[0][name])
    assert torch.allclose(
        layered.log_joint_rows(params, state), generic.log_joint_rows(params, state), rtol=1e-12, atol=1e-10
    )


@pytest.mark.parametrize("response", [Bernoulli(), MIXED], ids=name_of)
def test_a_conditional_is_a_ratio_of_joints(response):
    model, params, data = example(response)
    layered, generic = samplers(model, data)
    state = layered.begin(params, torch.Generator().manual_seed(3))
    _, chances = layered.sweep(params, state, torch.Generator().manual_seed(4), Scan(synchronous=True))
    one = {name: value[0] for name, value in params.items()}
    for name in state:
        for k in range(state[name].shape[1]):
            joints = []
            for bit in (0.0, 1.0):
                changed = state[name].clone()
                changed[:, k] = bit
                shaped = generic.shaped(state | {name: changed})
                joints.append(Program(model, data).log_joint_rows(one, {n: v[0] for n, v in shaped.items()}))
            assert torch.allclose(chances[name][0, k], torch.sigmoid(joints[1] - joints[0]), atol=1e-6)


def test_sequential_draws_have_the_posterior_and_synchronous_ones_do_not():
    """Two latents that the data only tells to differ: drawn at the same time they never learn of each other."""
    model = DeepDiscreteEncoder(2, (2,), Normal())
    params = {
        "loadings_1": torch.tensor([[[2.0, 2.0], [0.5, 0.0]]], dtype=F64),
        "intercepts_1": torch.zeros(1, 2, dtype=F64),
        "proportions": torch.full((1, 2), 0.5, dtype=F64),
        "dispersion": torch.full((1, 2), 1.0, dtype=F64),
    }
    data = torch.tensor([[2.0, 0.4]], dtype=F64).repeat(400, 1)
    program = Program(model, data)
    exact = program.latent_marginals({k: v[0] for k, v in params.items()})["latents_1"][0]  # 00, 01, 10, 11
    layered, _ = samplers(model, data)
    found = {}
    for synchronous in (False, True):
        generator, state = torch.Generator().manual_seed(5), layered.begin(params, torch.Generator().manual_seed(6))
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


def test_means_and_likelihood_by_sweeps_approach_the_exact_ones():
    truth = strict_design(2, Normal())
    model = DeepDiscreteEncoder(18, (6, 2), Normal())
    data = Program(model, None, 300).simulate(truth, 0)["items"]
    data[5, 3] = torch.nan
    params = {name: value.unsqueeze(0) for name, value in truth.items()}
    gibbs, generator = LayeredGibbs.build(model, data), torch.Generator().manual_seed(1)
    means, state = posterior_means(gibbs, params, generator)
    exact = Program(model, data)
    for name, value in exact.latent_means(truth).items():
        assert (means[name][0].mT - value).abs().max() < 0.06
    rows = exact.log_marginal_rows(truth)
    estimates = torch.stack([log_likelihood_rows(gibbs, params, state, generator)[0] for _ in range(8)])
    assert (estimates.mean(0) - rows).abs().max() < 0.3
    assert (estimates.sum(1) - rows.sum()).abs().max() < 6
    ratio = (estimates - rows).exp()  # of unbiased estimates to what they estimate
    assert abs(float(ratio.mean()) - 1) < 4 * float(ratio.std()) / ratio.numel() ** 0.5


@pytest.mark.parametrize("kind", [torch.float32, F64], ids=str)
def test_increments_as_products_keep_their_digits(kind):
    """Log-odds are sums over children; the error of the products is that of a sum of so many numbers, at any size."""
    generator = torch.Generator().manual_seed(0)
    for size in (1.0, 6.0, 25.0, 100.0):
        eta = (2 * torch.rand(2, 90, 50, generator=generator, dtype=F64) - 1) * 3 * size
        step = (2 * torch.rand(2, 90, 1, generator=generator, dtype=F64) - 1) * size
        mask = (torch.rand(90, 50, generator=generator) < 0.9).to(F64)
        exact = ((Bernoulli().log_partition(eta + step) - Bernoulli().log_partition(eta)) * mask).sum(1)
        found = Bernoulli().total_increment(step.to(kind))(eta.to(kind), mask.to(kind)).to(F64)
        assert (found - exact).abs().max() < 90 * 3 * size * 8 * torch.finfo(kind).eps


@pytest.mark.parametrize("response", [Bernoulli(), Poisson(), Normal()], ids=name_of)
def test_increments_are_differences_of_the_log_partition(response):
    generator = torch.Generator().manual_seed(1)
    eta, step, scale = (torch.randn(2, 5, n, generator=generator, dtype=F64) for n in (7, 1, 1))
    scale = None if isinstance(response, Bernoulli) else scale.exp()
    change = response.log_partition(eta + step) - response.log_partition(eta)
    expected = (change if scale is None else change * scale).sum(1)
    assert torch.allclose(response.total_increment(step, scale)(eta, None), expected, atol=1e-12)


# ---------------------------------------------------------------- statistics


@pytest.mark.parametrize("response", [Bernoulli(), Poisson()], ids=name_of)
def test_curvature_of_some_rows_does_not_move_the_fixed_point(response):
    model, params, data = example(response, num_rows=200, missing=False)
    gibbs = LayeredGibbs.build(model, data)
    state = gibbs.begin(params, torch.Generator().manual_seed(1))
    ends = []
    for max_rows in (200, 50):
        steps, now = LayeredDraws(gibbs, max_rows=max_rows), params
        assert steps.stride == 200 // max_rows
        for _ in range(200):
            now = steps.maximise(steps.statistics(now, state, state)[0], now)
        ends.append(now)
    for name in ("loadings_1", "intercepts_1", "loadings_2", "intercepts_2"):
        assert torch.allclose(ends[0][name], ends[1][name], atol=1e-6)


def test_rare_counts_do_not_throw_an_estimate_away():
    """A Newton step from log mean -10 to a count of one would be e^10 long."""
    model, params, data = example(Poisson(), num_rows=60, missing=False)
    params["intercepts_1"][:], params["loadings_1"][:] = -10.0, 0.1
    steps = LayeredDraws(LayeredGibbs.build(model, data))
    state = steps.gibbs.begin(params, torch.Generator().manual_seed(1))
    now = params
    for _ in range(40):
        new = steps.maximise(steps.statistics(now, state, state)[0], now)
        assert (new["intercepts_1"] - now["intercepts_1"]).abs().max() <= 1 + 1e-9
        assert (steps.log_joint(new, state) > steps.log_joint(now, state) - 1e-6).all()
        now = new


@pytest.mark.parametrize("response", RESPONSES, ids=name_of)
def test_the_expansion_has_the_slope_and_curvature_of_the_density(response):
    model, params, data = example(response)
    steps = LayeredDraws(LayeredGibbs.build(model, data))
    state = steps.gibbs.begin(params, torch.Generator().manual_seed(1))
    statistics, log_joint = steps.statistics(params, state, state)
    assert torch.allclose(log_joint, steps.gibbs.log_joint_rows(params, state).sum(-1))
    layer = model.layers()[0]
    scale = response.scale(params.get("dispersion"), 9)
    scale = torch.ones(1, 9, dtype=F64) if scale is None else scale

    def density(beta):
        moved = params | {layer.intercepts: beta[None, :, 0], layer.loadings: beta[None, :, 1:]}
        return steps.gibbs.log_joint_rows(moved, state).sum()

    beta = torch.cat([params[layer.intercepts][0, :, None], params[layer.loadings][0]], -1)
    slope = torch.autograd.functional.jacobian(density, beta)
    curvature = torch.autograd.functional.hessian(density, beta)
    linear, hessian = statistics["loadings_1/linear"][0], statistics["loadings_1/hessian"][0].expand(9, 4, 4)
    assert torch.allclose(scale[0, :, None] * (linear - (hessian @ beta[..., None])[..., 0]), slope, atol=1e-8)
    for j in range(9):
        assert torch.allclose(-curvature[j, :, j], scale[0, j] * hessian[j], atol=1e-8)


def test_normal_items_are_maximised_in_one_step():
    """There the expansion is the density itself: averaged statistics give the maximiser that EM would give."""
    model, params, data = example(Normal(), num_rows=60, missing=False)
    steps = LayeredDraws(LayeredGibbs.build(model, data))
    state = steps.gibbs.begin(params, torch.Generator().manual_seed(1))
    new = steps.maximise(steps.statistics(params, state, state)[0], params)
    drawn = steps.maximise_draw(params, state, state)
    for name in ("loadings_1", "intercepts_1", "dispersion"):
        assert torch.allclose(new[name], drawn[name], atol=1e-8)
    parents = state["latents_1"][0].mT
    cross = (data.mT @ torch.nn.functional.pad(parents, (1, 0), value=1.0)).unsqueeze(0)
    stats = LayerStatistics(parents, torch.ones(1, 60, dtype=F64), cross, data.square().sum(0))
    exact = maximise_layer(model.layers()[0], stats, params)
    assert torch.allclose(new["loadings_1"], exact["loadings_1"], atol=1e-8)


@pytest.mark.parametrize("penalty", [None, TruncatedLasso(2.0, 0.5)], ids=["none", "tlp"])
def test_statistics_keep_their_size(penalty):
    model, params, data = example(Bernoulli(), num_rows=50)
    model = replace(model, penalty=penalty)
    sizes = {}
    for iterations in (5, 40):
        problem = problem_of(model, data, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            method = SAEM(num_burn_in=1, num_relaxed=0, max_iterations=iterations, tolerance=1e-12)
            steps, generator = method.steps(problem), torch.Generator().manual_seed(0)
            state, averages = steps.gibbs.begin(params, generator), None
            for _ in range(iterations):
                state, chances = steps.gibbs.sweep(params, state, generator)
                averages = steps.average(averages, steps.statistics(params, state, chances)[0], 0.1)
        sizes[iterations] = {name: tuple(value.shape) for name, value in averages.items()}
    assert sizes[5] == sizes[40]


def test_a_mini_batch_is_an_unbiased_sample():
    model, params, data = example(Poisson(), num_rows=40)
    steps = LayeredDraws(LayeredGibbs.build(model, data))
    state = steps.gibbs.begin(params, torch.Generator().manual_seed(1))
    whole, _ = steps.statistics(params, state, state)
    parts = []
    for start in range(0, 40, 8):
        index = torch.arange(start, start + 8)
        own = {name: value[..., index] for name, value in state.items()}
        parts.append(steps.rows(index).statistics(params, own, own)[0])
    for name, value in whole.items():
        mean = sum(part[name] for part in parts) / 5
        # the linear part holds H beta, which is linear in the rows too
        assert torch.allclose(mean, value, atol=1e-9), name


# ---------------------------------------------------------------- fits


@pytest.mark.parametrize("response", [Poisson(), Normal()], ids=name_of)
def test_saem_comes_near_exact_em(response):
    truth = strict_design(2, response)
    gaps = []
    for seed in range(2):
        model = DeepDiscreteEncoder(18, (6, 2), response, TruncatedLasso.bic(1000), bound=10.0)
        data = Program(model, None, 1000).simulate(truth, seed)["items"]
        exact, ours = fit(model, data, EM(), seed=seed), fit(model, data, SAEM(), seed=seed)
        assert ours.converged
        assert ours.objective_name == "log-posterior"
        assert ours.trace.name == "complete-data log-posterior"
        aligned = align(ours, truth).params
        assert graph_accuracy(aligned, truth, model.layers(), model.penalty.threshold) > 0.98
        gaps.append(exact.objective - ours.objective)
    assert max(gaps) < 5
    assert min(gaps) > -5


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_more_latents_than_can_be_summed_over():
    truth = strict_design(9, Normal())
    model = DeepDiscreteEncoder(81, (27, 9), Normal(), TruncatedLasso.bic(300), bound=10.0)
    data = Program(model, None, 300).simulate(truth, 0)["items"]
    result = fit(model, data, SAEM(max_iterations=30, tolerance=5e-3))
    assert np.isnan(result.log_likelihood)
    assert result.objective_name == "ELBO + log-prior"
    aligned = align(result, truth).params
    assert graph_accuracy(aligned, truth, model.layers(), model.penalty.threshold) > 0.97
    rows = result.log_likelihood_rows(data)
    assert float(rows.sum()) == pytest.approx(result.elbo, abs=0.01 * abs(result.elbo))
    means = result.posterior_latents(data)
    assert means["latents_1"].shape == (300, 27)
    assert ((result.decode_latents(data)["latents_1"] > 0.5) == (means["latents_1"] > 0.5)).all()
    with pytest.raises(ValueError, match="latents_1.*27 bits.*SAEM"):
        fit(model, data, EM())


@pytest.mark.parametrize(
    "settings", [{}, {"batch_rows": 20}, {"num_draws": 3}, {"synchronous": True}, {"accelerate": False}], ids=str
)
@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::inference.BoundWarning")
def test_every_setting_runs_resumes_and_repeats(settings, tmp_path, monkeypatch):
    model, _, data = example(Poisson(), num_rows=50)
    method = replace(SHORT, **settings)
    whole = fit(model, data, method, num_restarts=2, seed=3)
    again = fit(model, data, method, num_restarts=2, seed=3)
    assert torch.equal(whole.trace.objective, again.trace.objective)
    steps = GenericDraws if method.accelerate is False else LayeredDraws
    original, calls = steps.maximise, []

    def interrupted(self, averages, params):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return original(self, averages, params)

    monkeypatch.setattr(steps, "maximise", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, method, num_restarts=2, seed=3, checkpoint=tmp_path / "run")
    assert read_tensors(tmp_path / "run")[1]["state"]["iteration"] > 1
    resumed = fit(model, data, method, num_restarts=2, seed=3, checkpoint=tmp_path / "run")
    assert torch.equal(resumed.trace.objective, whole.trace.objective)
    assert all(torch.equal(resumed.params[name], value) for name, value in whole.params.items())
    resumed.save(tmp_path / "fit")
    assert Fit.load(tmp_path / "fit").method == method


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


@pytest.mark.parametrize("model", [NoisyOr(9, 3), DeepDiscreteEncoder(9, (3, 1))], ids=name_of)
@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning", "ignore::inference.BoundWarning")
def test_a_fit_too_large_to_enumerate_answers_by_sweeps(model, monkeypatch):
    data = (torch.rand(40, 9, generator=torch.Generator().manual_seed(0)) < 0.4).to(F64)
    result = fit(model, data, EM(max_iterations=5), init="random")
    exact, rows = result.posterior_latents(data), result.log_likelihood_rows(data)
    monkeypatch.setattr("inference.base.structure.MAX_VALUES", 1)
    monkeypatch.setattr("inference.fitting.rows.CHUNK_ELEMENTS", 200)  # several chunks
    sampled = result.posterior_latents(data)
    for name, value in exact.items():
        assert sampled[name].shape == value.shape
        assert (sampled[name] - value).abs().max() < 0.12
        assert ((sampled[name] > 0.5).to(F64) == result.decode_latents(data)[name]).all()
    assert (result.log_likelihood_rows(data) - rows).abs().max() < 1.0


def test_many_latents_are_sampled_unless_the_user_says_otherwise():
    for sizes, kind in (((14, 3), EM), ((15, 3), SAEM)):
        problem = problem_of(DeepDiscreteEncoder(20, sizes), (torch.arange(60 * 20).reshape(60, 20) % 7 < 3).to(F64), 0)
        assert isinstance(problem.structure.recommended(problem).method, kind)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "settings",
    [
        {"max_iterations": 0},
        {"num_burn_in": -1},
        {"num_relaxed": True},
        {"rate": 0.5},
        {"rate": 1.5},
        {"num_draws": 0},
        {"batch_rows": 0},
        {"window": 0.5},
        {"tolerance": 0},
        {"num_kept": 0},
    ],
    ids=str,
)
def test_bad_settings(settings):
    with pytest.raises(ValueError, match=f"SAEM: {next(iter(settings))}"):
        SAEM(**settings)
    assert {field.name for field in fields(SAEM)} >= set(settings)


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
    with pytest.raises(ValueError, match="'shift' is continuous"):
        fit(shifts, torch.zeros(5, dtype=F64), SAEM())
    walks = {"state": torch.zeros(2, 5).long(), "action": torch.zeros(2, 5).long(), "length": torch.tensor([5, 5])}
    with pytest.raises(ValueError, match="no latent site to sample.*trajectories"):
        fit(OptionsHMM(3, 2, 2), walks, SAEM())


def test_a_batch_beyond_the_data_is_refused():
    model, _, data = example(Bernoulli(), num_rows=30)
    with pytest.raises(ValueError, match="batch_rows = 31 exceeds the 30 rows"):
        fit(model, data, SAEM(batch_rows=31))


@pytest.mark.filterwarnings("ignore::inference.BoundWarning")
def test_a_fit_that_does_not_settle_says_so():
    model, _, data = example(Normal(), num_rows=50, missing=False)
    with pytest.warns(ConvergenceWarning, match="did not settle in 2 iterations"):
        fit(model, data, SAEM(max_iterations=2, tolerance=1e-9))
