"""Models in the hands of plain Pyro, without inference."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pyro.optim
import pytest
import torch
from pyro import poutine
from pyro.infer import MCMC, NUTS, SVI, Predictive, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta, AutoNormal
from support.screening import results, screening
from support.user_programs import close, uniform
from torch import Tensor
from torch.distributions import biject_to

from inference.fitting.problem import problem_of
from inference.programs.program import Program
from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, Normal, TruncatedLasso

GRAPHS = (((1, 0), (1, 0), (0, 1), (1, 1), (0, 1)), None)
PLAIN = {
    "two-layers": DeepDiscreteEncoder(5, (3, 2)),
    "mixed": DeepDiscreteEncoder(
        5, (2,), response=Blocks((Bernoulli(), 2), (Normal(), 3)), bound=5.0
    ),
    "confirmatory-penalised": DeepDiscreteEncoder(
        5, (2, 1), penalty=TruncatedLasso(1.0, 0.5), graphs=GRAPHS
    ),
}
plain_models = pytest.mark.parametrize("name", PLAIN)


def plain_data() -> Tensor:
    data = torch.bernoulli(uniform(20, 5, seed=5))
    data[0, 0] = math.nan
    return data


def latent_sites(model: DeepDiscreteEncoder) -> list[str]:
    return [layer.parent for layer in model.layers()]


@pytest.fixture
def store() -> Any:
    """A parameter store of one's own, as a script would start with."""
    with pyro.get_param_store().scope(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield pyro.get_param_store()


@plain_models
def test_svi_of_pyro_climbs_to_the_same_density(name: str, store: Any) -> None:
    """The loss of a point guide is minus the log-posterior of :class:`Program`, Jacobians apart."""
    model, data = PLAIN[name], plain_data()
    guide = AutoDelta(poutine.block(model, hide=latent_sites(model)))
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.02}), TraceEnum_ELBO(max_plate_nesting=1))
    losses = [svi.step(data) for _ in range(15)]
    assert losses[-1] < losses[0] - 1
    params = {site: value.detach() for site, value in guide().items()}
    program = Program(model, data)
    close(program.log_marginal(params) + program.log_prior(params), -svi.evaluate_loss(data), 1e-9)


@plain_models
def test_a_normal_guide_of_pyro_runs(name: str, store: Any) -> None:
    model, data = PLAIN[name], plain_data()
    guide = AutoNormal(poutine.block(model, hide=latent_sites(model)))
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), TraceEnum_ELBO(max_plate_nesting=1))
    assert math.isfinite(svi.step(data))
    before = {key: value.detach().clone() for key, value in guide.named_parameters()}
    assert math.isfinite(svi.step(data))
    assert all(not torch.equal(value, before[key]) for key, value in guide.named_parameters())


@plain_models
def test_nuts_of_pyro_runs(name: str, store: Any) -> None:
    """It moves, and its potential is minus the log-posterior of :class:`Program` on the
    unconstrained scale.
    """
    model, data = PLAIN[name], plain_data()
    kernel = NUTS(model, step_size=0.02, adapt_step_size=False, max_tree_depth=3)
    mcmc = MCMC(kernel, num_samples=4, warmup_steps=2, disable_progbar=True)
    mcmc.run(data)
    program = Program(model, data)
    samples = mcmc.get_samples()
    assert set(samples) == set(program.names("parameter"))  # the latents are summed out
    for site, value in samples.items():
        assert value.shape == (4, *program.site(site).shape)
        assert bool(program.site(site).support.check(value).all())
    assert any(not torch.equal(value[0], value[3]) for value in samples.values())

    kernel.setup(0, data)
    free = {site: value.detach() for site, value in kernel.initial_params.items()}
    params = program.constrained(free)
    jacobian = sum(
        biject_to(program.site(site).support).log_abs_det_jacobian(free[site], params[site]).sum()
        for site in free
    )
    close(
        kernel.potential_fn(free),
        -(program.log_marginal(params) + program.log_prior(params) + jacobian),
        1e-9,
    )


@plain_models
def test_predictive_and_poutine_of_pyro_run(name: str, store: Any) -> None:
    model = PLAIN[name]
    drawn = Predictive(model, num_samples=3)(None, 7)
    assert drawn["items"].shape == (3, 7, 5)
    assert drawn["latents_1"].shape == (3, 7, model.latent_sizes[0])
    trace = poutine.trace(poutine.uncondition(model)).get_trace(plain_data())
    assert not trace.nodes["items"]["is_observed"]
    assert trace.nodes["items"]["value"].shape == (20, 5)
    assert bool(torch.isfinite(poutine.trace(model).get_trace(plain_data()).log_prob_sum()))


def test_programs_of_pyro_run_beside_the_fit():
    """The same declaration under Pyro's own handlers: nothing of ours is needed."""
    trace = poutine.trace(config_enumerate(screening)).get_trace(results())
    assert {"share", "case", "test"} <= set(trace.nodes)
    assert problem_of(screening, results(), 0).structure.labels() == ()
