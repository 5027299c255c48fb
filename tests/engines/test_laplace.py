"""Laplace's approximation against the observed information."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from support.two_skills import GRAPH, encoder_truth

import inference
from inference import EM, Laplace, fit
from inference.engines.importance import log_posteriors
from inference.programs.program import Program, simulate
from ppl_models import DeepDiscreteEncoder

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)


def test_laplace_is_the_observed_information_and_holds_bounds():
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    data = simulate(model, encoder_truth(), 1, None, 600)["items"]
    from inference.uncertainty import standard_errors

    tight = EM(tolerance=1e-12, parameter_tolerance=1e-7, max_iterations=3000)
    result = fit(model, data, Laplace(4000, tight))
    errors = standard_errors(fit(model, data, tight), data).standard_errors
    free = result.draws["loadings_1"][0].std(0)[torch.tensor(GRAPH, dtype=torch.bool)]
    ratio = free / errors["loadings_1"][torch.tensor(GRAPH, dtype=torch.bool)]
    assert (
        0.9 < float(ratio.min()) < float(ratio.max()) < 1.1
    )  # flat priors: the information of the likelihood
    assert (
        float(result.draws["loadings_1"][..., ~torch.tensor(GRAPH, dtype=torch.bool)].abs().max())
        == 0.0
    )


def heaps(data):
    with pyro.plate("components", 4):
        locs = pyro.sample("locs", dist.Normal(torch.zeros(()).to(data), 30.0))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(torch.full((4,), 0.25).to(data)))
        pyro.sample("x", dist.Normal(locs[z], 0.5), obs=data)


@pytest.mark.filterwarnings("ignore::inference.DegenerateWarning")  # of single starts
def test_optimum_is_the_best_of_many_starts_where_none_is_named():
    """Failed before: one start, whose optimum may be poor, unsaid."""
    centres = torch.tensor([-30.0, -26.0, 26.0, 30.0], dtype=torch.float64)
    noise = torch.randn(80, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = centres.repeat(20) + 0.5 * noise
    best = fit(heaps, rows).objective
    single = [fit(heaps, rows, EM(), seed=seed).objective for seed in range(2)]
    assert min(single) < best - 10  # some starts end in a poor optimum
    for seed in range(2):
        drawn = fit(heaps, rows, Laplace(20), seed=seed)
        assert drawn.objective == pytest.approx(best, abs=1e-4)
    stuck = fit(heaps, rows, Laplace(20), seed=single.index(min(single)), num_restarts=1)
    assert stuck.objective == pytest.approx(min(single), abs=1e-4)


def test_log_posteriors_draw_by_draw_are_those_of_the_program():
    """Of a program that does not run at many points together."""

    def one_at_a_time(rows):
        weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=torch.float64)))
        spread = pyro.sample("spread", dist.LogNormal(0.0, 1.0))
        with pyro.plate("rows", len(rows)):
            z = pyro.sample("z", dist.Categorical(weights.reshape(2)))
            pyro.sample("y", dist.Normal(2.0 * z, spread.reshape(())), obs=rows)

    program = Program(one_at_a_time, torch.randn(50, dtype=torch.float64))
    draws = program.draw_prior(40, 0)
    assert not program.broadcasts()
    every = [{name: value[k] for name, value in draws.items()} for k in range(40)]
    expected = torch.stack([program.log_marginal(at) + program.log_prior(at) for at in every])
    torch.testing.assert_close(log_posteriors(program, draws), expected, rtol=1e-12, atol=1e-9)


def intercepts(data):
    mean = pyro.sample("mean", dist.Normal(0.0, 10.0))
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    with pyro.plate("groups", len(data)):
        u = pyro.sample("u", dist.Normal(0.0, spread))
        pyro.sample("y", dist.Normal((mean + u).unsqueeze(-1), 1.0).to_event(1), obs=data)


def moments_on_a_grid(data):
    """Posterior mean and standard deviation of mean and spread, by a sum over a fine grid."""
    mean, log = torch.linspace(-3, 3, 301)[:, None, None], torch.linspace(-9, 2.5, 400)[:, None]
    spread = log.exp()
    variance = spread**2 + 1 / data.shape[1]
    rows = -0.5 * (data.mean(1) - mean) ** 2 / variance - 0.5 * variance.log()
    total = rows.sum(-1) + (-0.5 * mean**2 / 100 - 0.5 * spread**2 + log)[..., 0]
    weights = total.double().flatten().softmax(0).reshape(total.shape)
    out = {}
    for name, value in {"mean": mean[..., 0], "spread": spread.mT}.items():
        center = (weights * value).sum()
        out[name] = float(center), float((weights * (value - center) ** 2).sum().sqrt())
    return out


@pytest.mark.parametrize("seed", [0, 6, 9])  # the optimum of the spread: zero, and twice near it
def test_a_spread_near_zero_is_not_held(seed):
    """Failed before: errors of the mean .79 to .88 of the posterior's, a spread drawn up to 8."""
    generator = torch.Generator().manual_seed(seed)
    data = torch.randn(12, 2, generator=generator, dtype=torch.float64) + 0.5
    with pytest.warns(inference.ConvergenceWarning, match="'?spread'? is zero or near it"):
        drawn = fit(intercepts, data, Laplace(4000)).draws
    for name, (center, error) in moments_on_a_grid(data).items():
        own = drawn[name][0]
        assert (
            abs(float(own.mean()) - center) < (0.1 if name == "mean" else 0.7) * error
        )  # a logarithm is skew
        low, high = (0.93, 1.05) if name == "mean" else (0.9, 1.6)
        assert low < float(own.std()) / error < high
