"""Engines that draw: against quadrature, conjugate laws, Pyro's own potential, and refits without a row."""

from __future__ import annotations

import dataclasses
import math
import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from matplotlib.figure import Figure
from pyro import poutine
from pyro.infer import config_enumerate
from pyro.infer.mcmc.util import initialize_model
from scipy import stats
from scipy.special import logsumexp
from torch.distributions import constraints

from inference import EM, NUTS, SVI, Bootstrap, Fit, FullRank, Laplace, LowRank, MeanField, fit
from inference.base.diagnostics import ess_of_draws, psis, rhat_of_draws
from inference.base.relabelling import relabel_draws
from inference.calibration import Calibration, simulation_based_calibration
from inference.comparison import compare
from inference.engines.hamiltonian import DualAveraging, Metric, first_step_size, transition
from inference.engines.nuts import window_ends
from inference.fitting.export import summary
from inference.fitting.problem import problem_of
from inference.loo import cross_validate, loo
from inference.programs.potential import Potential
from inference.programs.program import Program, simulate
from inference.programs.replay import recorded
from inference.report import write_comparison_report
from inference.structures.registry import structure_of
from ppl_models import Bernoulli, DeepDiscreteEncoder, Mixture, NoisyOr, Normal, PoissonFactorization

pytestmark = pytest.mark.filterwarnings("ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning")
F64 = torch.float64
CHANCES = torch.tensor([0.2, 0.8], dtype=F64)
GRAPH = ((1, 0), (1, 0), (1, 0), (0, 1), (0, 1), (0, 1))


def screening(data=None, num_rows=None):
    """One unknown: the share of cases, seen through a test that errs in a fifth of the rows."""
    share = pyro.sample("share", dist.Beta(torch.tensor(2.0, dtype=F64), torch.tensor(3.0, dtype=F64)))
    with pyro.plate("rows", num_rows if data is None else len(data)):
        case = pyro.sample("case", dist.Bernoulli(share))
        return pyro.sample("test", dist.Bernoulli(CHANCES[case.long()]), obs=data)


def screening_table(data=None, num_rows=None):
    """Six items, all of one chance."""
    share = pyro.sample("share", dist.Beta(torch.tensor(2.0, dtype=F64), torch.tensor(3.0, dtype=F64)))
    with pyro.plate("rows", num_rows if data is None else len(data)):
        case = pyro.sample("case", dist.Bernoulli(share))
        return pyro.sample("items", dist.Bernoulli(CHANCES[case.long()].unsqueeze(-1).expand(*case.shape, 6)).to_event(1), obs=data)


def results(num_rows=40, share=0.35, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.random(num_rows) < 0.2 + 0.6 * (rng.random(num_rows) < share)).astype(float))


def exact_share(data, weights=None):
    """Posterior mean, spread and 2.5 and 97.5 per cent of the share, by a fine grid."""
    grid = np.linspace(0, 1, 20001)[1:-1]
    chance = 0.2 + 0.6 * grid
    ones = float(data.sum())
    log = stats.beta.logpdf(grid, 2, 3) + ones * np.log(chance) + (len(data) - ones) * np.log1p(-chance)
    weight = np.exp(log - logsumexp(log))
    mean = weight @ grid
    at = np.interp([0.025, 0.975], weight.cumsum(), grid)
    return mean, math.sqrt(weight @ (grid - mean) ** 2), at


QUICK = NUTS(num_chains=4, num_warmup=150, num_draws=400)


@pytest.fixture(scope="module")
def screened() -> tuple[Fit, torch.Tensor]:
    data = results()
    return fit(screening, data, QUICK), data


def encoder_truth():
    return {
        "proportions": torch.tensor([0.4, 0.6], dtype=F64),
        "loadings_1": 3.0 * torch.tensor(GRAPH, dtype=F64),
        "intercepts_1": torch.full((6,), -1.5, dtype=F64),
    }


# ---------------------------------------------------------------- pieces


@pytest.mark.parametrize("dense", [True, False])
def test_transitions_leave_a_correlated_normal_alone(dense):
    size, rng = 5, np.random.default_rng(0)
    root = rng.normal(size=(size, size))
    covariance = root @ root.T / size + 0.2 * np.eye(size)
    precision = np.linalg.inv(covariance)
    metric = Metric(covariance if dense else np.ones(size))

    def answer(point):
        return -0.5 * point @ precision @ point, -precision @ point

    def drive(asking):
        reply = None
        while True:
            try:
                reply = answer(asking.send(reply))
            except StopIteration as end:
                return end.value

    position = rng.normal(size=size)
    density, gradient = answer(position)
    step = drive(first_step_size(position, density, gradient, 0.5, metric, rng))
    averaging, kept = DualAveraging.begin(step), []
    for t in range(2500):
        new = drive(transition(position, density, gradient, step, metric, rng, 8))
        position, density, gradient = new.position, new.log_density, new.gradient
        if t < 300:
            averaging = averaging.updated(new.acceptance, 0.8)
            step = math.exp(averaging.log_step if t < 299 else averaging.log_mean)
        else:
            kept.append(new)
    draws = np.array([one.position for one in kept])
    assert np.abs(draws.mean(0) / np.sqrt(covariance.diagonal())).max() < 0.12
    assert np.abs(np.cov(draws.T) - covariance).max() < 0.15 * np.abs(covariance).max()
    assert abs(np.mean([one.acceptance for one in kept]) - 0.8) < 0.1
    assert not any(one.diverging for one in kept)


def test_windows_double_and_end_before_the_last_steps():
    assert window_ends(1000) == (75, 100, 150, 250, 450, 950)
    short = window_ends(100)
    assert short == (15, 90)
    assert all(a < b for a, b in zip(short, short[1:], strict=False))


def test_a_replay_is_the_function_and_control_flow_is_not_recorded():
    weights = torch.randn(3, 4, dtype=F64)

    def function(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            flag = torch.ones(2, dtype=torch.bool)
            flag &= x[:, 0] > 0  # a constant that is overwritten
            value = torch.logsumexp(x @ weights, -1) * flag + x.clamp(min=0).sum(-1)
            (gradient,) = torch.autograd.grad(value.sum(), x)
        return value.detach(), gradient

    start = torch.randn(2, 3, dtype=F64)
    replay = recorded(function, start)
    assert replay is not function
    for seed in range(4):
        point = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed), dtype=F64)
        for one, two in zip(function(point), replay(point), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-12)

    def branching(x):
        return (x * 2 if x.sum() > 0 else x * 3,)

    assert recorded(branching, start) is branching


def test_the_potential_is_pyros_own_and_its_derivatives_are_right():
    data = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 2)))
    model = Mixture(2, component=Normal(), num_items=2, bound=4.0)
    program = Program(model, data)
    like = program.draw_prior(3, 0) | {"dispersion": torch.rand(3, 2, 2, dtype=F64) + 0.5}
    potential = Potential(program, like)
    points = potential.vector(like)
    back = potential.params(points)
    for name, value in like.items():
        torch.testing.assert_close(back[name], value)
    value, gradient = potential(points)
    enumerated = config_enumerate(model, default="parallel")
    _, own, transforms, _ = initialize_model(enumerated, (data,), max_plate_nesting=1)
    for i in range(3):
        free = {name: transforms[name](like[name][i]) for name in potential.names}
        torch.testing.assert_close(-own(free), value[i], rtol=1e-9, atol=1e-9)
    step = 1e-5 * torch.eye(potential.size, dtype=F64)
    slope = (potential(points[0] + step)[0] - potential(points[0] - step)[0]) / 2e-5
    torch.testing.assert_close(slope, gradient[0], rtol=1e-5, atol=1e-4)
    curved = (potential(points[0] - step)[1] - potential(points[0] + step)[1]) / 2e-5
    torch.testing.assert_close(curved, potential.curvature(points[0]), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", ["encoder", "deep", "noisy-or", "mixture"])
def test_renamed_draws_carry_one_name_and_the_same_law(kind):
    generator = torch.Generator().manual_seed(0)
    if kind in ("encoder", "deep"):
        model = DeepDiscreteEncoder(6, (3,) if kind == "encoder" else (3, 2), bound=50.0)
    else:
        model = NoisyOr(6, 3) if kind == "noisy-or" else Mixture(3, component=Bernoulli(), num_items=6)
    data = (torch.rand(8, 6, generator=generator) < 0.5).to(F64)
    program, structure = Program(model, data), structure_of(model)
    truth = {name: value[0] for name, value in program.draw_prior(1, 3).items()}
    scrambled, count = [], 24
    for _ in range(count):
        one = {name: (value + 0.003 * torch.randn(value.shape, generator=generator, dtype=F64))[None] for name, value in truth.items()}
        one = {name: value.clamp(0.01, 0.99) if name in ("proportions", "prior", "failure", "leak", "weights") else value for name, value in one.items()}
        if "weights" in one:
            one["weights"] = one["weights"] / one["weights"].sum()
        for label in reversed(structure.labels()):
            size = label.features(one).shape[1]
            order = torch.randperm(size, generator=generator)
            flips = torch.rand(size, generator=generator) < 0.5 if label.signs else torch.zeros(size, dtype=torch.bool)
            one = label.rename(one, order, flips)
        scrambled.append(one)
    draws = {name: torch.cat([one[name] for one in scrambled]) for name in truth}
    renamed, changed = relabel_draws(draws, structure.labels(), truth)
    assert changed.any()
    for name, value in renamed.items():
        assert float((value - truth[name]).abs().max()) < 0.05, name
    torch.testing.assert_close(program.log_marginal(renamed), program.log_marginal(draws), rtol=1e-9, atol=1e-9)


def test_latents_that_a_graph_tells_apart_keep_their_names():
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    (label,) = structure_of(model).labels()
    assert label.kinds is not None
    assert label.kinds[0] != label.kinds[1]


# ---------------------------------------------------------------- engines


def test_nuts_draws_from_the_exact_posterior(screened):
    result, data = screened
    mean, spread, limits = exact_share(data)
    draws = result.draws["share"].numpy()
    assert draws.shape == (4, 400)
    ess = float(ess_of_draws(result.draws)["share"])
    assert ess > 200
    error = spread / math.sqrt(ess)
    assert abs(draws.mean() - mean) < 4.5 * error
    assert abs(draws.std() / spread - 1) < 0.15
    assert np.abs(np.quantile(draws, [0.025, 0.975]) - limits).max() < 0.25 * spread
    assert float(rhat_of_draws(result.draws)["share"]) < 1.03
    assert result.params["share"].item() == pytest.approx(draws.mean())
    assert set(result.sample_stats) >= {"diverging", "energy", "tree_depth", "lp", "acceptance_rate"}
    assert result.log_likelihood == pytest.approx(float(result.log_likelihood_rows(data).sum()))
    again = fit(screening, data, QUICK)
    assert torch.equal(again.draws["share"], result.draws["share"])  # one seed, one answer
    other = fit(screening, data, QUICK, seed=1)
    assert not torch.equal(other.draws["share"], result.draws["share"])


def test_an_interrupted_run_goes_on_to_the_same_draws(tmp_path, monkeypatch):
    data, short = results(), NUTS(num_chains=2, num_warmup=60, num_draws=40)
    whole = fit(screening, data, short)
    calls = {"left": 120}
    original = Potential.__call__

    def broken(self, points):
        calls["left"] -= 1
        if calls["left"] == 0:
            raise KeyboardInterrupt
        return original(self, points)

    monkeypatch.setattr(Potential, "__call__", broken)
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(screening, data, short, checkpoint=path)
    assert path.exists()
    resumed = fit(screening, data, short, checkpoint=path)
    assert torch.equal(resumed.draws["share"], whole.draws["share"])
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(screening, results(seed=9), short, checkpoint=path)


@pytest.mark.parametrize("engine", [Laplace(2000), SVI(FullRank(), 150, num_draws=2000), SVI(MeanField(), 150, num_draws=2000), SVI(LowRank(1), 150, num_draws=2000)], ids=["laplace", "full", "mean", "low"])
def test_approximations_come_near_with_a_k_hat_that_says_so(engine):
    data = results(1000)
    mean, spread, _ = exact_share(data)
    result = fit(screening, data, engine)
    draws = result.draws["share"]
    assert draws.shape[:2] == (1, 2000)
    assert abs(float(draws.mean()) - mean) < 0.25 * spread
    assert abs(float(draws.std()) / spread - 1) < 0.15
    ratio = result.sample_stats["log_importance"]
    weights = torch.softmax(ratio[0], 0)
    assert float(weights @ draws[0]) == pytest.approx(mean, abs=0.15 * spread)  # ratios correct the approximation
    assert float(psis(ratio.numpy())[1][0]) < 0.7
    evidence = float(torch.logsumexp(ratio, 1)) - math.log(2000)
    grid = np.linspace(0, 1, 20001)[1:-1]
    ones = float(data.sum())
    log = stats.beta.logpdf(grid, 2, 3) + ones * np.log(0.2 + 0.6 * grid) + (1000 - ones) * np.log(0.8 - 0.6 * grid)
    assert evidence == pytest.approx(logsumexp(log) - math.log(20000), abs=0.02)
    if isinstance(engine, SVI):
        assert result.elbo < evidence + 0.02
        assert result.objective_name == "ELBO"


def test_a_guide_of_ones_own_and_what_it_may_leave_out():
    data = results(200)

    def guide(data=None, num_rows=None):
        a = pyro.param("a", torch.tensor(3.0, dtype=F64), constraint=dist.constraints.positive)
        b = pyro.param("b", torch.tensor(3.0, dtype=F64), constraint=dist.constraints.positive)
        pyro.sample("share", dist.Beta(a, b))

    mean, spread, _ = exact_share(data)
    result = fit(screening, data, SVI(guide, 400, learning_rate=0.05, num_particles=8))
    assert abs(float(result.draws["share"].mean()) - mean) < 0.5 * spread
    assert not list(pyro.get_param_store().keys())  # nothing is left behind

    def empty(data=None, num_rows=None):
        pyro.param("a", torch.tensor(3.0, dtype=F64))

    with pytest.raises(ValueError, match="guide does not draw 'share'"):
        fit(screening, data, SVI(empty))

    def strange(data=None, num_rows=None):
        guide(data, num_rows)
        pyro.sample("other", dist.Normal(torch.zeros((), dtype=F64), 1.0))

    with pytest.raises(ValueError, match="'other'.*does not have"):
        fit(screening, data, SVI(strange))


def test_svi_on_mini_batches_and_after_an_interruption(tmp_path, monkeypatch):
    data = simulate(DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,)), encoder_truth(), 0, None, 300)["items"]
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    whole = fit(model, data, SVI(num_steps=60, num_draws=50))
    part = fit(model, data, SVI(num_steps=60, num_draws=50, batch_size=100))
    gap = (whole.params["loadings_1"] - part.params["loadings_1"]).abs().max()
    assert float(gap) < 0.7
    from pyro.infer import SVI as PyroSVI

    original, left = PyroSVI.step, [30]

    def broken(self, *args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(PyroSVI, "step", broken)
    path = tmp_path / "svi.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(model, data, SVI(num_steps=60, num_draws=50), checkpoint=path)
    resumed = fit(model, data, SVI(num_steps=60, num_draws=50), checkpoint=path)
    assert len(resumed.trace.objective) == 60
    torch.testing.assert_close(resumed.trace.objective[:29], whole.trace.objective[:29])


def test_laplace_is_the_observed_information_and_holds_bounds():
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    data = simulate(model, encoder_truth(), 1, None, 600)["items"]
    from inference.uncertainty import standard_errors

    tight = EM(tolerance=1e-12, parameter_tolerance=1e-7, max_iterations=3000)
    result = fit(model, data, Laplace(4000, tight))
    errors = standard_errors(fit(model, data, tight), data).standard_errors
    free = result.draws["loadings_1"][0].std(0)[torch.tensor(GRAPH, dtype=torch.bool)]
    ratio = free / errors["loadings_1"][torch.tensor(GRAPH, dtype=torch.bool)]
    assert 0.9 < float(ratio.min()) < float(ratio.max()) < 1.1  # flat priors: the information of the likelihood
    assert float(result.draws["loadings_1"][..., ~torch.tensor(GRAPH, dtype=torch.bool)].abs().max()) == 0.0


def test_bootstrap_engine_resumes_and_gives_draws(tmp_path):
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    data = simulate(model, encoder_truth(), 2, None, 300)["items"]
    quick = EM(tolerance=1e-7, parameter_tolerance=1e-3)
    result = fit(model, data, Bootstrap(quick, 5))
    assert result.draws["loadings_1"].shape == (1, 5, 6, 2)
    torch.testing.assert_close(result.params["loadings_1"], fit(model, data, quick).params["loadings_1"])
    with pytest.raises(ValueError, match="2 or more"):
        Bootstrap(num_replicates=1)
    with pytest.raises(ValueError, match="local sites"):
        fit(PoissonFactorization(3, 1), torch.tensor([[1.0, 2, 3], [2, 1, 0], [4, 1, 1]], dtype=F64), Bootstrap(num_replicates=2))


def test_what_cannot_be_done_is_said_before_any_work():
    big = (np.random.default_rng(0).random((30, 40)) < 0.5).astype(float)
    for engine in (NUTS(), Laplace(), SVI()):
        with pytest.raises(ValueError, match=r"latents_1.*30 bits.*cannot be enumerated.*SAEM"):
            fit(DeepDiscreteEncoder(40, (30,)), big, engine)
    for make in (
        lambda: NUTS(num_chains=0), lambda: NUTS(target_acceptance=1.0), lambda: NUTS(warm_start=3), lambda: NUTS(num_draws=True),
        lambda: SVI(num_steps=1), lambda: SVI(learning_rate=-1.0), lambda: SVI(guide=MeanField), lambda: Laplace(num_draws=1),
        lambda: Laplace(optimum=EM), lambda: LowRank(0), lambda: SVI(batch_size=0),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="NUTS|SVI|Laplace|LowRank"):
            make()


def test_draws_are_saved_exported_and_summarised(screened, tmp_path):
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    data = simulate(model, encoder_truth(), 3, None, 400)["items"]
    result = fit(model, data, NUTS(num_chains=2, num_warmup=40, num_draws=20))
    result.save(tmp_path / "fit")
    back = Fit.load(tmp_path / "fit")
    assert back.method == result.method
    for name, value in result.sample_stats.items():
        assert torch.equal(back.sample_stats[name], value)
    idata = result.to_arviz(data, num_prior=3, num_predictive=4)
    assert {"posterior", "sample_stats", "prior", "prior_predictive", "log_likelihood", "latent_posterior"} <= set(getattr(idata, "children", idata))
    assert idata.log_likelihood["items"].shape == (2, 20, 400)
    one = dataclasses.replace(result, params={name: value[1, 7] for name, value in result.draws.items()}, draws=None)
    np.testing.assert_allclose(idata.log_likelihood["items"].values[1, 7], one.log_likelihood_rows(data), rtol=1e-9)
    each = [
        dataclasses.replace(result, params={name: value[c, d] for name, value in result.draws.items()}).posterior_latents(data)["latents_1"]
        for c in range(2) for d in range(20)
    ]  # fmt: skip
    np.testing.assert_allclose(idata.latent_posterior["latents_1"].values, torch.stack(each).mean(0), rtol=1e-9)
    assert idata.sample_stats["diverging"].dtype == bool
    assert idata.prior_predictive["items"].shape == (1, 3, 400, 6)
    assert "r_hat" in summary(idata).columns
    with pytest.raises(ValueError, match="num_prior"):
        result.to_arviz(data, num_prior=-1)


# ---------------------------------------------------------------- prediction and comparison


def test_a_fit_with_a_guide_of_the_users_is_saved_without_its_code(tmp_path):
    def own_guide(data=None):
        spread = pyro.param("spread", torch.tensor([2.0, 3.0], dtype=F64), constraint=constraints.positive)
        pyro.sample("share", dist.Beta(spread[0], spread[1]))

    data = results(40)
    result = fit(screening, data, SVI(own_guide, 60, num_draws=50))
    result.save(tmp_path / "fit")
    back = Fit.load(tmp_path / "fit", model=screening)
    assert torch.equal(back.draws["share"], result.draws["share"])
    assert "own_guide" in repr(back.method)
    with pytest.raises(ValueError, match="own_guide is needed again"):
        fit(screening, data, back.method)


def test_weights_of_ratios_that_do_not_differ_are_equal():
    ratios = np.zeros((2, 200))
    ratios[1] = np.linspace(0.0, 3.0, 200)
    log_weights, k_hat = psis(ratios)
    np.testing.assert_allclose(log_weights[0], -np.log(200))
    np.testing.assert_allclose(np.exp(log_weights).sum(1), 1.0)
    assert log_weights[1, -1] > log_weights[1, 0]  # a larger ratio weighs more
    assert k_hat[0] == 0.0


def test_loo_is_what_refits_without_each_row_give(screened):
    result, data = screened
    exact = []
    for i in range(len(data)):  # by quadrature
        grid = np.linspace(0, 1, 4001)[1:-1]
        rest = float(data.sum() - data[i])
        log = stats.beta.logpdf(grid, 2, 3) + rest * np.log(0.2 + 0.6 * grid) + (len(data) - 1 - rest) * np.log(0.8 - 0.6 * grid)
        own = np.log(0.2 + 0.6 * grid) if data[i] == 1 else np.log(0.8 - 0.6 * grid)
        exact.append(logsumexp(log + own) - logsumexp(log))
    estimate = loo(result, data)
    assert estimate.elpd == pytest.approx(sum(exact), abs=0.1)
    np.testing.assert_allclose(estimate.rows, exact, atol=0.03)  # some 500 independent draws
    assert estimate.num_bad == 0
    assert 0.3 < estimate.effective_parameters < 2
    with pytest.raises(ValueError, match="point estimate"):
        loo(fit(screening, data, EM()), data)
    few = dataclasses.replace(result, draws={"share": result.draws["share"][:, :5]})
    with pytest.raises(ValueError, match="at least 100 draws.*20"):
        loo(few, data)


def test_moved_draws_repair_an_outlier():
    """A Normal mean and one row far off: exact by conjugacy."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(np.concatenate([rng.normal(size=9), [9.0]]))

    def model(data=None, num_rows=None):
        mean = pyro.sample("mean", dist.Normal(torch.zeros((), dtype=F64), 10.0))
        with pyro.plate("rows", len(data)):
            side = pyro.sample("side", dist.Bernoulli(torch.tensor(0.5, dtype=F64)))
            return pyro.sample("x", dist.Normal(mean + 1e-9 * side, 1.0), obs=data)

    result = fit(model, x, NUTS(num_chains=4, num_warmup=100, num_draws=500))
    precision = 9 + 0.01
    exact = stats.norm.logpdf(9.0, float(x[:9].sum()) / precision, math.sqrt(1 + 1 / precision))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = loo(result, x, move=False)
    moved = loo(result, x)
    assert plain.k_hat[-1] > 0.7
    assert moved.num_moved >= 1
    assert moved.k_hat[-1] < 0.7
    assert abs(moved.rows[-1] - exact) < 0.3 < abs(plain.rows[-1] - exact)


def test_compare_ranks_the_true_family_first_and_names_what_differs(tmp_path):
    truth = encoder_truth()
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    data = simulate(model, truth, 4, None, 250)["items"]
    test = simulate(model, truth, 5, None, 100)["items"]
    fits = {
        "encoder": fit(model, data, Laplace(400)),
        "drawn": fit(screening_table, data, NUTS(2, 60, 60)),
        "one class": fit(Mixture(1, component=Bernoulli(), num_items=6), data, EM()),
        "two classes": fit(Mixture(2, component=Bernoulli(), num_items=6), data, EM()),
        "normal": fit(Mixture(1, component=Normal(), num_items=6), data, EM()),
    }
    with pytest.warns(UserWarning, match="not comparable|different ways|average over") as caught:
        table = compare(fits, data, test, num_folds=4).table
    said = " ".join(str(one.message) for one in caught)
    assert "not comparable" in said
    assert "different ways" in said
    order = [name for name in table.index if name != "normal"]
    assert order[0] == "encoder"
    assert table.loc["drawn", "how"] == "PSIS-LOO"
    assert table.loc["drawn", "engine"] == "NUTS"
    assert table.loc["one class", "how"] == "4-fold"
    discrete = table.loc[order]
    assert discrete["test_log_likelihood"].idxmax() == "encoder"
    assert table["weight"].sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="same data"):
        compare(fits, data[:200])
    other = torch.cat([data[1:], 1 - data[:1]])
    with pytest.raises(ValueError, match="'encoder'.*same data"):
        compare(fits, other)
    with pytest.raises(ValueError, match="two fits"):
        compare({"encoder": fits["encoder"]}, data)
    with pytest.warns(UserWarning, match="different ways|average over"):
        comparison = compare({name: fits[name] for name in order}, data, num_folds=4)
    first, *others = comparison.plot().axes
    assert len(first.get_yticklabels()) == 4
    assert [len(line.get_xdata()) for line in first.get_lines()].count(1) >= 4  # what is drawn, not only that it ran
    assert [panel.get_xlabel().split()[0] for panel in others] == ["BIC,", "largest", "seconds"]
    assert comparison.plot(Figure().subplots()).get_ylim()[0] == 3.5
    assert table.loc["normal", "misfitting"] == 1  # zeros and ones are not normal
    assert np.isnan(table.loc["encoder", "discrepancy"])
    page = write_comparison_report(comparison, tmp_path / "comparison.html").read_text()
    assert "encoder predicts unseen rows best." in page
    assert page.count("data:image/png") == 1


def test_folds_of_one_row_are_leave_one_out():
    data = results(12)
    result = fit(screening, data, EM())
    out = cross_validate(result, data, 12)
    alone = [float(fit(screening, torch.cat([data[:i], data[i + 1 :]]), EM(), init=result.params).log_likelihood_rows(data[i : i + 1])) for i in range(12)]
    np.testing.assert_allclose(out.rows, alone, atol=1e-6)
    with pytest.raises(ValueError, match="num_folds"):
        cross_validate(result, data, 1)


def test_calibration_passes_the_posterior_and_fails_a_narrow_one():
    good = simulation_based_calibration(screening, 15, NUTS(1, 40, 80, warm_start=None), 40, num_draws=9)
    assert isinstance(good, Calibration)
    assert min(good.p_values.values()) > 1e-3
    assert 0.85 < good.coverage["share"] <= 1.0
    assert good.num_failed == 0
    figure = good.plot()
    assert sum(len(ax.patches) > 3 for ax in figure.axes) == 2

    @dataclasses.dataclass(frozen=True)
    class Narrow:
        """The posterior, its spread a fifth."""

        def run(self, problem, start, progress, checkpoint):
            outcome = Laplace(200).run(problem, start, progress, checkpoint)
            center = outcome.params["share"][:, None]
            return dataclasses.replace(outcome, draws={"share": center + 0.2 * (outcome.draws["share"] - center)})

    bad = simulation_based_calibration(screening, 15, Narrow(), 40, num_draws=9)
    assert bad.p_values["share"] < 1e-3
    assert bad.coverage["share"] < 0.6
    with pytest.raises(ValueError, match="engine that draws"):
        simulation_based_calibration(screening, 15, EM(), 2)
    with pytest.raises(ValueError, match="level"):
        simulation_based_calibration(screening, 15, QUICK, 2, level=2.0)


def test_programs_of_pyro_run_beside_the_fit():
    """The same declaration under Pyro's own handlers: nothing of ours is needed."""
    trace = poutine.trace(config_enumerate(screening)).get_trace(results())
    assert {"share", "case", "test"} <= set(trace.nodes)
    assert problem_of(screening, results(), 0).structure.labels() == ()
