"""``pyro.param``, ``pyro.module``, ``PyroParam`` and ``PyroModule`` as parameters of a fit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.distributions.constraints import positive_ordered_vector
from pyro.infer import SVI, TraceEnum_ELBO, config_enumerate
from pyro.nn import PyroModule, PyroParam, PyroSample
from support.user_programs import uniform
from torch import Tensor, nn
from torch.distributions import biject_to, constraints

from inference import EM, NUTS, ConvergenceWarning, fit
from inference.fitting.fit import _unconstrained_start
from inference.fitting.problem import problem_of
from inference.programs.parameters import Flat
from inference.programs.program import Program

X = torch.cat([uniform(40, seed=1) - 3, 2 * uniform(30, seed=2) + 2])
SIMPLEX, POSITIVE = constraints.simplex, constraints.positive
EXACT = EM(tolerance=1e-12, max_iterations=5000)


def heaps(data: Tensor) -> None:
    weights = pyro.param("weights", torch.tensor([0.4, 0.6]), constraint=SIMPLEX)
    means = pyro.param("means", lambda: torch.tensor([-1.0, 1.0]))
    spread = pyro.param("spread", torch.tensor(1.0), constraint=POSITIVE)
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(means[z], spread), obs=data)


def by_hand(weights: Tensor, means: Tensor, spread: Tensor) -> Tensor:
    """log p(x) of each row, the classes written out."""
    log_density = -((X[:, None] - means) ** 2) / (2 * spread**2) - spread.log()
    return (weights.log() + log_density - 0.5 * math.log(2 * math.pi)).logsumexp(-1)


# ---------------------------------------------------------------- density


def in_order(data: Tensor) -> None:
    means = pyro.param("means", torch.tensor([1.0, 4.0]), constraint=positive_ordered_vector)
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.5, 0.5])))
        pyro.sample("x", dist.Exponential(means[z]), obs=data)


def test_a_constraint_need_not_tell_its_dims() -> None:
    assert positive_ordered_vector.event_dim == 0  # of a vector
    data = torch.cat([uniform(30, seed=1) + 0.01, 9 * uniform(30, seed=2) + 0.01])
    params = {"means": torch.tensor([0.3, 2.5]).double()}
    program = Program(in_order, data)
    rates = params["means"]
    rows = (rates.log() - rates * data[:, None]).logsumexp(-1) - math.log(2)
    torch.testing.assert_close(program.log_marginal_rows(params), rows)
    means = fit(in_order, data, EM()).params["means"]
    assert 0 < means[0] < means[1]


def test_the_density_is_the_likelihood_by_hand() -> None:
    program = Program(heaps, X)
    params = {
        "weights": torch.tensor([0.3, 0.7]).double(),
        "means": torch.tensor([-2.0, 3.0]).double(),
        "spread": torch.tensor(0.7).double(),
    }
    assert torch.allclose(program.log_marginal_rows(params), by_hand(**params))
    assert float(program.log_prior(params)) == 0.0
    assert program.names("parameter") == ("weights", "means", "spread")


def test_the_estimate_is_the_maximum_of_the_likelihood() -> None:
    found = fit(heaps, X, EXACT)
    params = {name: value.clone().requires_grad_() for name, value in found.params.items()}
    total = by_hand(**params).sum()
    assert found.log_likelihood == pytest.approx(float(total.detach()), abs=1e-9)
    assert found.objective == found.log_likelihood
    slopes = dict(zip(params, torch.autograd.grad(total, list(params.values())), strict=True))
    assert torch.allclose(slopes["means"], torch.zeros(2).double(), atol=1e-3)
    assert float(slopes["spread"]) == pytest.approx(0.0, abs=1e-3)
    assert float(slopes["weights"] @ torch.tensor([1.0, -1.0]).double()) == pytest.approx(
        0, abs=1e-3
    )


def test_standard_errors_are_those_of_the_curvature_by_hand() -> None:
    found = fit(heaps, X, EXACT)
    point = torch.cat([found.params["weights"][:1].logit(), found.params["means"]])

    def total(free: Tensor) -> Tensor:
        share = torch.sigmoid(free[0])
        spread = free[3].exp()
        return by_hand(torch.stack([share, 1 - share]), free[1:3], spread).sum()

    free = torch.cat([point, found.params["spread"].log().reshape(1)])
    covariance = (-torch.autograd.functional.hessian(total, free)).inverse()
    errors = found.summary(X)["error"]
    assert errors["means[0]"] == pytest.approx(float(covariance[1, 1].sqrt()), rel=2e-2)


def test_restarts_start_at_and_near_the_values_of_the_program() -> None:
    program = Program(heaps, X)
    centre = program.constrained(program.centre(program.draw_prior(3, seed=0)))
    assert torch.allclose(centre["means"], torch.tensor([-1.0, 1.0]).double().expand(3, 2))
    assert torch.allclose(centre["weights"], torch.tensor([0.4, 0.6]).double().expand(3, 2))
    assert fit(heaps, X, num_restarts=1).params["means"].diff() > 0


@pytest.mark.parametrize(
    ("constraint", "start"),
    [
        (constraints.real, torch.zeros(3, 2)),
        (POSITIVE, torch.ones(2)),
        (SIMPLEX, torch.full((2, 3), 1 / 3)),
        (constraints.unit_interval, torch.tensor(0.5)),
        (constraints.corr_cholesky, torch.eye(2)),
        (constraints.interval(2.0, 5.0), torch.tensor([3.0])),
    ],
)
def test_a_flat_density_is_zero_wherever_its_constraint_holds(
    constraint: Any, start: Tensor
) -> None:
    flat = Flat(start, constraint)
    draw = flat.sample((4,))
    assert draw.shape == (4, *start.shape)
    assert bool(flat.support.check(draw).all())
    assert torch.equal(flat.log_prob(draw), torch.zeros(4))
    assert flat.expand((4, 1)).sample().shape == (4, 1, *start.shape)
    free = biject_to(flat.support).inv(draw)
    assert torch.allclose(biject_to(flat.support)(free), draw, atol=1e-5)


def test_a_start_on_the_bound_is_moved_inside() -> None:
    def model(data: Tensor) -> None:
        weights = pyro.param("weights", torch.tensor([0.0, 1.0]), constraint=SIMPLEX)
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(4.0 * z - 2.0, 1.0), obs=data)

    start = Program(model, X).starts["weights"]
    assert bool((start > 0).all())
    assert fit(model, X, EXACT).params["weights"][0] > 0.4


def test_a_start_beside_the_constraint_is_where_the_store_of_pyro_would_put_it() -> None:
    def model(data: Tensor) -> None:
        weights = pyro.param("weights", torch.tensor([1.0, 3.0]), constraint=SIMPLEX)
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(4.0 * z - 2.0, 1.0), obs=data)

    assert torch.allclose(Program(model, X).starts["weights"].float(), torch.tensor([0.25, 0.75]))


def test_a_parameter_beside_priors_in_a_plate_and_stated_twice() -> None:
    def model(data: Tensor) -> None:
        with pyro.plate("classes", 2):
            means = pyro.sample("means", dist.Normal(0.0, 5.0))
            spreads = pyro.param("spreads", torch.ones(2), constraint=POSITIVE)
        with pyro.plate("rows", len(data)):
            again = pyro.param("spreads", torch.ones(2), constraint=POSITIVE)
            z = pyro.sample("z", dist.Categorical(torch.ones(2) / 2))
            pyro.sample("x", dist.Normal(means[z], (spreads + again)[z] / 2), obs=data)

    program = Program(model, X)
    params = {"means": torch.tensor([-2.0, 3.0]).double(), "spreads": torch.ones(2).double()}
    half = torch.full((2,), 0.5).double()
    rows = by_hand(half, params["means"], torch.ones(()).double())
    assert program.site("spreads").plates == ()
    assert torch.allclose(program.log_marginal_rows(params), rows)
    prior = dist.Normal(0.0, 5.0).log_prob(params["means"]).sum()
    assert torch.allclose(program.log_prior(params), prior)


def test_nuts_samples_parameters_without_a_prior() -> None:
    with pytest.warns(ConvergenceWarning):
        found = fit(heaps, X, NUTS(warmup_steps=30, num_samples=30))
    assert found.draws is not None
    assert bool((found.draws["spread"] > 0).all())


# ---------------------------------------------------------------- the caller's store


def test_a_trained_store_is_read_and_left_as_it_is() -> None:
    pyro.clear_param_store()
    with pyro.get_param_store().scope():
        pyro.param("means", torch.tensor([-2.5, 2.5]))
        pyro.param("weights", torch.tensor([0.5, 0.5]), constraint=SIMPLEX)

        def model(data: Tensor) -> None:
            weights, means = pyro.param("weights"), pyro.param("means")
            with pyro.plate("rows", len(data)):
                z = pyro.sample("z", dist.Categorical(weights))
                pyro.sample("x", dist.Normal(means[z], 1.0), obs=data)

        program = Program(model, X)
        assert torch.allclose(program.starts["means"].float(), torch.tensor([-2.5, 2.5]))
        assert program.site("weights").support is SIMPLEX
        found = fit(model, X, EXACT)
        assert float(found.params["means"][1]) > 2.6
        store = pyro.get_param_store()
        assert sorted(store.keys()) == ["means", "weights"]
        assert torch.equal(store["means"].detach(), torch.tensor([-2.5, 2.5]))


def test_a_parameter_without_a_value_is_refused_before_any_work() -> None:
    def model(data: Tensor) -> None:
        mean = pyro.param("mean")
        with pyro.plate("rows", len(data)):
            pyro.sample("x", dist.Normal(mean, 1.0), obs=data)

    with pytest.raises(ValueError, match="pyro.param 'mean' has no value to start from"):
        fit(model, X)


def test_a_start_that_no_bijection_reaches_is_refused() -> None:
    def model(data: Tensor) -> None:
        spread = pyro.param("spread", torch.tensor(-1.0), constraint=POSITIVE)
        with pyro.plate("rows", len(data)):
            pyro.sample("x", dist.Normal(0.0, spread), obs=data)

    with pytest.raises(ValueError, match="'spread': a value to start from with constraint"):
        fit(model, X)


def test_a_constraint_without_a_bijection_is_refused() -> None:
    def model(data: Tensor) -> None:
        factor = pyro.param("factor", torch.eye(2), constraint=constraints.square)
        with pyro.plate("rows", len(data)):
            pyro.sample("x", dist.Normal(factor[0, 0], 1.0), obs=data)

    with pytest.raises(ValueError, match="'factor': a constraint with a bijection"):
        fit(model, X)


# ---------------------------------------------------------------- networks

COVARIATE = 4 * uniform(80, seed=6) - 2
SIGN = torch.where(uniform(80, seed=7) < 0.5, 1.0, -1.0).double()
RESPONSE = SIGN * COVARIATE + 0.5 + 0.2 * uniform(80, seed=8)


def of_network(network: nn.Module) -> Any:
    def model(x: Tensor, y: Tensor) -> None:
        pyro.module("network", network)
        spread = pyro.sample("spread", dist.Gamma(2.0, 2.0))
        with pyro.plate("rows", len(x)):
            z = pyro.sample("z", dist.Bernoulli(0.5))
            means = network(x.unsqueeze(-1))
            mean = torch.where(z == 0, means[..., 0], means[..., 1])
            pyro.sample("y", dist.Normal(mean, spread), obs=y)

    return model


def lines_by_hand(weight: Tensor, bias: Tensor, spread: Tensor) -> Tensor:
    means = COVARIATE[:, None] * weight[:, 0] + bias
    return (dist.Normal(means, spread).log_prob(RESPONSE[:, None]) + math.log(0.5)).logsumexp(-1)


def test_weights_of_a_network_are_parameters_and_its_own_stay() -> None:
    torch.manual_seed(3)
    network = nn.Linear(1, 2)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    model = of_network(network)
    found = fit(model, (COVARIATE, RESPONSE), EXACT, num_restarts=3)
    assert set(found.params) == {"network$$$weight", "network$$$bias", "spread"}
    rows = lines_by_hand(
        found.params["network$$$weight"], found.params["network$$$bias"], found.params["spread"]
    )
    assert found.log_likelihood == pytest.approx(float(rows.sum()), abs=1e-8)
    slopes = found.params["network$$$weight"].ravel().sort().values
    assert torch.allclose(slopes, torch.tensor([-1.0, 1.0]).double(), atol=0.1)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    assert torch.allclose(found.log_likelihood_rows((COVARIATE, RESPONSE)), rows)


def test_a_network_in_single_precision_beside_double_data_and_layers_within_layers() -> None:
    torch.manual_seed(4)
    network = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 2))
    model = of_network(network)
    found = fit(model, (COVARIATE, RESPONSE), EM(tolerance=1e-4, parameter_tolerance=1.0))
    assert found.params["network$$$0.weight"].dtype == torch.float64
    copied = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    copied.load_state_dict(
        {name.partition("$$$")[2]: value for name, value in found.params.items() if "$" in name}
    )
    with torch.no_grad():
        means = copied(COVARIATE[:, None])
    density = dist.Normal(means, found.params["spread"]).log_prob(RESPONSE[:, None])
    rows = (density + math.log(0.5)).logsumexp(-1)
    assert found.log_likelihood == pytest.approx(float(rows.sum()), abs=1e-8)


def test_an_em_step_of_weights_never_lowers_the_objective() -> None:
    torch.manual_seed(5)
    network = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.warns(ConvergenceWarning):
        found = fit(
            of_network(network), (COVARIATE, RESPONSE), EM(max_iterations=10, acceleration=None)
        )
    assert bool((found.trace.objective.diff() > -1e-8).all())


class Lines(PyroModule):
    """A program that is a module: a constrained parameter, a prior, a plain layer."""

    def __init__(self) -> None:
        super().__init__()
        self.spread = PyroParam(torch.tensor(1.0), constraint=POSITIVE)
        self.bias = PyroSample(lambda self: dist.Normal(0.0, torch.ones(2)).to_event(1))
        self.slopes = nn.Parameter(torch.tensor([0.5, -0.5]))
        self.layer = nn.Linear(1, 1)

    def forward(self, x: Tensor, y: Tensor) -> None:
        spread, slopes, bias = self.spread, self.slopes, self.bias
        base = self.layer(x.unsqueeze(-1)).squeeze(-1)
        with pyro.plate("rows", len(x)):
            z = pyro.sample("z", dist.Bernoulli(0.5)).long()
            pyro.sample("y", dist.Normal(base + slopes[z] * x + bias[z], spread), obs=y)


def test_a_module_of_pyro_keeps_its_constraint_and_its_own_values() -> None:
    torch.manual_seed(6)
    module = Lines()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = fit(module, (COVARIATE, RESPONSE), EM(max_iterations=200))
    assert set(found.params) == {"spread", "bias", "slopes", "layer$$$weight", "layer$$$bias"}
    own = found.params
    base = COVARIATE * own["layer$$$weight"] + own["layer$$$bias"]
    means = base.reshape(-1, 1) + own["slopes"] * COVARIATE[:, None] + own["bias"]
    density = dist.Normal(means, own["spread"]).log_prob(RESPONSE[:, None])
    rows = (density + math.log(0.5)).logsumexp(-1)
    assert found.log_likelihood == pytest.approx(float(rows.sum()), abs=1e-8)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert not list(pyro.get_param_store().keys())


@pytest.mark.parametrize(
    ("layer", "words"),
    [(nn.Dropout(0.5), "dropout"), (nn.BatchNorm1d(2), "batch normalisation")],
)
def test_a_network_in_training_mode_is_refused(layer: nn.Module, words: str) -> None:
    network = nn.Sequential(nn.Linear(1, 2), layer)
    with pytest.raises(ValueError, match=rf"{words} is in training mode.*eval\(\) before the fit$"):
        fit(of_network(network), (COVARIATE, RESPONSE))
    network.eval()
    fit(of_network(network), (COVARIATE, RESPONSE), EM(tolerance=1.0, parameter_tolerance=9.0))


# ---------------------------------------------------------------- beside plain Pyro


def test_the_density_is_that_of_plain_pyro_after_its_own_training() -> None:
    pyro.clear_param_store()
    with pyro.get_param_store().scope():
        ready = config_enumerate(heaps)
        data = X.float()
        svi = SVI(
            ready,
            lambda data: None,
            pyro.optim.Adam({"lr": 0.05}),
            TraceEnum_ELBO(max_plate_nesting=1),
        )
        for _ in range(20):
            svi.step(data)
        theirs = -svi.evaluate_loss(data)
        params = {name: value.detach().double() for name, value in pyro.get_param_store().items()}
        assert float(Program(heaps, X).log_marginal(params)) == pytest.approx(theirs, rel=1e-5)
        assert torch.allclose(Program(heaps, X).starts["means"], params["means"])


def test_a_network_that_takes_its_weights_from_the_store_keeps_its_own() -> None:
    torch.manual_seed(8)
    network = nn.Linear(1, 2)
    before = {name: value.clone() for name, value in network.named_parameters()}

    def model(x: Tensor, y: Tensor) -> None:
        pyro.module("network", network, update_module_params=True)
        with pyro.plate("rows", len(x)):
            z = pyro.sample("z", dist.Bernoulli(0.5))
            means = network(x.unsqueeze(-1))
            pyro.sample(
                "y", dist.Normal(torch.where(z == 0, means[..., 0], means[..., 1]), 0.2), obs=y
            )

    found = fit(model, (COVARIATE, RESPONSE), EM(), num_restarts=2)
    rows = lines_by_hand(
        found.params["network$$$weight"], found.params["network$$$bias"], torch.tensor(0.2).double()
    )
    assert found.log_likelihood == pytest.approx(float(rows.sum()))
    for name, value in network.named_parameters():
        assert isinstance(value, nn.Parameter)
        assert torch.equal(value, before[name])


def test_a_recurrent_network_in_single_precision() -> None:
    torch.manual_seed(9)
    network = nn.GRU(1, 2, batch_first=True)
    data = 4 * uniform(12, 4, seed=9).double() - 2

    def model(data: Tensor) -> None:
        pyro.module("network", network)
        states, _ = network(data.unsqueeze(-1))
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Categorical(logits=states[:, -1]))
            pyro.sample("x", dist.Normal(2.0 * z, 1.0), obs=data[:, 0])

    program = Program(model, data)
    params = {name: value[0] for name, value in program.draw_prior(1, seed=0).items()}
    copied = nn.GRU(1, 2, batch_first=True).double()
    copied.load_state_dict({name.partition("$$$")[2]: value for name, value in params.items()})
    with torch.no_grad():
        logits = copied(data.unsqueeze(-1))[0][:, -1].log_softmax(-1)
    values = torch.tensor([0.0, 2.0]).double()
    rows = (logits + dist.Normal(values, 1.0).log_prob(data[:, :1])).logsumexp(-1)
    assert torch.allclose(program.log_marginal_rows(params), rows)


def test_no_draws_are_made_from_a_prior_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="num_prior: parameters with a prior.*'weights' is a pyro"):
        fit(heaps, X).to_arviz(X, num_prior=3)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return grads[0] * weight, (grads[0] * x).sum().reshape(1)


class PastTorch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.3]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([_Product.apply(x, self.weight), -x], -1)


def test_weights_that_are_read_past_torch_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'network\$\$\$weight': layers whose weights"):
        fit(of_network(PastTorch()), (COVARIATE, RESPONSE))


# ---------------------------------------------------------------- starts


def far_off(data: Tensor) -> None:
    means = pyro.param("means", torch.tensor([6.0, 7.0, 8.0]))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(torch.full((3,), 1 / 3)))
        pyro.sample("x", dist.Normal(means[z], 0.5), obs=data)


@pytest.mark.parametrize("seed", range(3))
def test_restarts_of_params_leave_a_poor_start(seed: int) -> None:
    """Failed before: every restart stayed near the program's start, and its poor optimum."""
    noise = torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = torch.tensor([-5.0, 0.0, 5.0]).repeat(20).double() + 0.5 * noise
    found = fit(far_off, rows, EM(), num_restarts=4, seed=seed)
    expected = rows.reshape(20, 3).mean(0)
    torch.testing.assert_close(found.params["means"].sort().values, expected, atol=1e-3, rtol=0)
    alone = fit(far_off, rows, EM(), num_restarts=1, seed=seed)
    assert alone.objective < found.objective - 100  # where the program says, as it always did


def test_restarts_of_params_are_near_the_start_and_far_off_by_turns() -> None:
    problem = problem_of(far_off, torch.zeros(5, dtype=torch.float64), 0)
    means = _unconstrained_start(problem, 9)["means"]
    away = (means - torch.tensor([6.0, 7.0, 8.0]).double()).abs().amax(1)
    assert float(away[0]) < 0.02
    assert float(away[1::2].max()) <= 0.5
    assert float(away[2::2].min()) > 0.5
    assert float(means[2::2].min()) < 3.0


def test_an_interrupted_fit_of_a_network_ends_as_one_left_alone(tmp_path: Path) -> None:
    network = nn.Linear(1, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[0.5], [-0.5]]))
        network.bias.zero_()

    def curves(x: Tensor, y: Tensor) -> None:
        pyro.module("network", network)
        with pyro.plate("rows", len(y)):
            z = pyro.sample("z", dist.Categorical(torch.tensor([0.5, 0.5])))
            means = network(x.unsqueeze(-1))
            pyro.sample(
                "y", dist.Normal(torch.where(z == 0, means[..., 0], means[..., 1]), 0.5), obs=y
            )

    data, method = (X, X.abs()), EM(max_iterations=25)
    alone = fit(curves, data, method, num_restarts=1)
    for last in (1, 2):
        stopped = fit(
            curves,
            data,
            method,
            num_restarts=1,
            checkpoint=tmp_path / "running",
            on_iteration=lambda at, last=last: at.iteration >= last,
        )
        assert stopped.num_iterations == last
    resumed = fit(curves, data, method, num_restarts=1, checkpoint=tmp_path / "running")
    assert resumed.num_iterations == alone.num_iterations
    assert resumed.converged == alone.converged
    for name, value in alone.params.items():
        assert torch.equal(resumed.params[name], value)
