"""What plates may hold: scales, masks, drawn rows, vectors of bits, and known parameters alone."""

from __future__ import annotations

import math
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate
from support.user_programs import uniform
from torch import Tensor

from inference import EM, NUTS, SVI, RowsWarning, fit
from inference.programs.global_state import in_dtype
from inference.programs.program import Program

F64 = torch.float64
X = 6 * uniform(20, seed=1) - 3
Y = 4 * uniform(12, 3, seed=2) - 2
MEANS = {"means": torch.tensor([-1.0, 2.0], dtype=F64)}


def classes(of_latent: Any = 1.0, of_data: Any = 1.0, of_other: Any = None) -> Any:
    """Two classes, with scales of the latent, of the data, and of a second latent."""

    def model(data: Tensor) -> None:
        means = pyro.sample("means", dist.Normal(0.0, torch.full((2,), 4.0)).to_event(1))
        with pyro.plate("rows", len(data)):
            with poutine.scale(scale=of_latent):
                z = pyro.sample("z", dist.Categorical(torch.tensor([0.3, 0.7])))
            if of_other is not None:
                with poutine.scale(scale=of_other):
                    pyro.sample("w", dist.Bernoulli(0.2 + 0.5 * z))
            with poutine.scale(scale=of_data):
                pyro.sample("x", dist.Normal(means[z], 1.0), obs=data)

    return model


def terms_by_hand(means: Tensor) -> tuple[Tensor, Tensor]:
    """log p(z) and log p(x | z), (2,) and (N, 2)."""
    return torch.tensor([0.3, 0.7], dtype=F64).log(), dist.Normal(means, 1.0).log_prob(X[:, None])


# ---------------------------------------------------------------- scales


@pytest.mark.parametrize(
    ("of_latent", "of_data"),
    [(1.0, 0.5), (1.0, 1.0 + X.abs()), (2.0, 2.0), (3.0, 1.5), (torch.tensor(2.0), 3.0)],
)
def test_scales_multiply_the_terms(of_latent: Any, of_data: Any) -> None:
    log_prior, log_density = terms_by_hand(MEANS["means"])
    common = float(of_latent)
    ratio = torch.as_tensor(of_data, dtype=F64).reshape(-1, 1) / common
    expected = common * (log_prior + ratio * log_density).logsumexp(-1).sum()
    program = Program(classes(of_latent, of_data), X)
    program.check_enumerable()
    assert torch.allclose(program.log_marginal(MEANS), expected)
    posterior = torch.softmax(log_prior + ratio * log_density, -1)
    assert torch.allclose(program.latent_marginals(MEANS)["z"], posterior)
    assert program.as_mixture(MEANS) is None


def test_a_tempered_likelihood_is_maximised() -> None:
    found = fit(classes(1.0, 0.5), X, EM(), num_restarts=3)
    means = found.params["means"].clone().requires_grad_()
    log_prior, log_density = terms_by_hand(means)
    total = (log_prior + 0.5 * log_density).logsumexp(-1).sum()
    total = total + dist.Normal(0.0, 4.0).log_prob(means).sum()
    assert found.objective == pytest.approx(float(total.detach()))
    (slope,) = torch.autograd.grad(total, means)
    assert torch.allclose(slope, torch.zeros(2, dtype=F64), atol=1e-3)


@pytest.mark.parametrize("of_latent", [2.0, 1.0 + X.abs()])
def test_scales_of_latents_that_differ_are_refused(of_latent: Any) -> None:
    with pytest.raises(ValueError, match="must share one scale, one number, got {'z'"):
        fit(classes(of_latent, 1.0, of_other=1.0), X, EM())


# ---------------------------------------------------------------- plates that draw rows


def drawn(data: Tensor, batch_size: int | None) -> None:
    means = pyro.sample("means", dist.Normal(0.0, torch.full((2,), 4.0)).to_event(1))
    with pyro.plate("rows", len(data), batch_size) as some:
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.3, 0.7])))
        pyro.sample("x", dist.Normal(means[z], 1.0), obs=data[some])


def test_plates_that_draw_rows_take_all_and_the_fit_says_so() -> None:
    whole = fit(drawn, (X, None), EM())
    with pytest.warns(RowsWarning, match="'rows' would draw 5 of 20 rows at every run: all"):
        found = fit(drawn, (X, 5), EM())
    assert found.log_likelihood == whole.log_likelihood
    assert found.num_rows == 20
    assert "plate 'rows'" in found.warnings[0]
    trace = poutine.trace(drawn).get_trace(X, 5)  # plain Pyro draws as before
    assert trace.nodes["x"]["value"].shape == (5,)


# ---------------------------------------------------------------- masked entries


def masked(data: Tensor, seen: Tensor) -> None:
    means = pyro.sample("means", dist.Normal(0.0, torch.full((2,), 4.0)).to_event(1))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.3, 0.7])))
        pyro.sample("x", dist.Normal(means[z], 1.0), obs=data, obs_mask=seen)


def test_a_mask_of_what_is_observed_is_that_of_missing_entries() -> None:
    seen = torch.arange(len(X)) % 3 > 0
    program = Program(masked, X, seen)
    assert not program.names("local")
    log_prior, log_density = terms_by_hand(MEANS["means"])
    expected = (log_prior + torch.where(seen[:, None], log_density, 0.0)).logsumexp(-1)
    assert torch.allclose(program.log_marginal_rows(MEANS), expected)
    found = fit(masked, (X, seen), EM())
    missing = fit(drawn, (X.masked_fill(~seen, math.nan), None), EM())
    assert found.log_likelihood == pytest.approx(missing.log_likelihood)


@pytest.mark.parametrize("family", ["Poisson", "Bernoulli", "Binomial"])
def test_hidden_entries_of_counts_and_bits_leave_the_likelihood(family: str) -> None:
    """As numbers do: no latent of theirs is left, and no count of unbounded support is refused."""
    of = {
        "Poisson": lambda rate: dist.Poisson(3 * rate),
        "Bernoulli": dist.Bernoulli,
        "Binomial": lambda rate: dist.Binomial(4, rate),
    }[family]

    def counts(y: Tensor, seen: Tensor) -> None:
        rate = pyro.sample("rate", dist.Beta(torch.ones(2), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            z = pyro.sample("z", dist.Categorical(torch.tensor([0.3, 0.7])))
            pyro.sample("y", of(rate[z]), obs=y, obs_mask=seen)

    y, seen = (torch.arange(9) % 2).double(), torch.arange(9) % 3 > 0
    program = Program(counts, y, seen)
    program.check_enumerable()
    assert program.names("latent") == ("z",)
    rate = torch.tensor([0.3, 0.8], dtype=torch.float64)
    with in_dtype(torch.float64):
        terms = torch.tensor([0.3, 0.7]).log() + of(rate).log_prob(y[:, None])
    expected = torch.where(seen, terms.logsumexp(-1), 0.0)
    assert torch.allclose(program.log_marginal_rows({"rate": rate}), expected)


def test_a_hidden_bit_that_something_reads_is_summed_out() -> None:
    def imputed(x: Tensor, seen: Tensor, y: Tensor) -> None:
        shift = pyro.sample("shift", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(x)):
            own = pyro.sample("x", dist.Bernoulli(0.3), obs=x, obs_mask=seen)
            pyro.sample("y", dist.Normal(shift * own, 1.0), obs=y)

    x = torch.zeros(1, dtype=torch.float64)  # one row, whose bit a new draw may repeat
    for seed in range(4):
        torch.manual_seed(seed)
        program = Program(imputed, x, x > 0, x)
        assert program.names("latent") == ("x_unobserved",)
        at = dist.Normal(torch.tensor([0.0, 2.0], dtype=torch.float64), 1.0).log_prob(x)
        expected = (at + torch.tensor([0.7, 0.3], dtype=torch.float64).log()).logsumexp(-1)
        own = program.log_marginal({"shift": torch.tensor(2.0, dtype=torch.float64)})
        assert own == pytest.approx(float(expected), abs=1e-7)


@pytest.mark.filterwarnings("ignore:SVI")  # of few steps
def test_variational_inference_draws_no_hidden_entry_that_nothing_reads() -> None:
    seen = torch.arange(len(X)) % 3 > 0
    found = fit(masked, (X, seen), SVI(num_steps=50))
    missing = fit(drawn, (X.masked_fill(~seen, math.nan), None), SVI(num_steps=50))
    assert found.params.keys() == missing.params.keys()
    assert found.local is None


def test_hidden_entries_that_something_reads_are_integrated() -> None:
    def imputed(x: Tensor, seen: Tensor, y: Tensor) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(x)):
            own = pyro.sample("x", dist.Normal(0.0, 1.0), obs=x, obs_mask=seen)
            pyro.sample("y", dist.Normal(slope * own, 1.0), obs=y)

    program = Program(imputed, X, X > 0, X)
    assert program.names("local") == ("x_unobserved",)
    found = fit(imputed, (X, X > 0, 1 - X), EM(integration_error=1e-6))
    slope = found.params["slope"]
    of_x, of_y = dist.Normal(0.0, 1.0).log_prob(X), dist.Normal(slope * X, 1.0).log_prob(1 - X)
    hidden = dist.Normal(0.0, (1 + slope**2).sqrt()).log_prob(1 - X)
    exact = torch.where(X > 0, of_x + of_y, hidden).sum()
    assert found.log_likelihood == pytest.approx(float(exact), abs=1e-4)


# ---------------------------------------------------------------- vectors of bits


def of_bits(data: Tensor) -> None:
    effects = pyro.sample("effects", dist.Normal(0.0, torch.ones(2, 3)).to_event(2))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Bernoulli(torch.tensor([0.3, 0.6])).to_event(1))
        pyro.sample("y", dist.Normal(z @ effects, 1.0).to_event(1), obs=data)


def test_vectors_of_bits_are_one_latent_of_all_their_values() -> None:
    program = Program(of_bits, Y)
    effects = torch.tensor([[1.0, -1.0, 0.5], [0.0, 2.0, -0.5]], dtype=F64)
    every = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=F64)
    chances = torch.tensor([0.3, 0.6], dtype=F64)
    log_weights = (every * chances.log() + (1 - every) * (1 - chances).log()).sum(-1)
    log_density = dist.Normal(every @ effects, 1.0).to_event(1).log_prob(Y[:, None])
    rows = (log_weights + log_density).logsumexp(-1)
    assert torch.allclose(program.log_marginal_rows({"effects": effects}), rows)
    bits = torch.softmax(log_weights + log_density, -1) @ every
    assert torch.allclose(program.latent_means({"effects": effects})["z"], bits)
    found = fit(of_bits, Y)
    assert found.latents == {"z": (2, 2)}


# ---------------------------------------------------------------- factors and records


def test_deterministic_and_factor_statements_in_a_plate_of_components() -> None:
    def model(data: Tensor) -> None:
        with pyro.plate("components", 2):
            raw = pyro.sample("raw", dist.Normal(0.0, 1.0))
            means = pyro.deterministic("means", 4.0 * raw)
            pyro.factor("shrinkage", -0.1 * raw.abs())
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Categorical(torch.tensor([0.3, 0.7])))
            pyro.deterministic("mean_of_row", means[z])
            pyro.factor("tilt", 0.2 * z)
            pyro.sample("x", dist.Normal(means[z], 1.0), obs=data)

    raw = torch.tensor([-0.25, 0.5], dtype=F64)
    log_prior, log_density = terms_by_hand(4 * raw)
    program = Program(model, X)
    rows = (log_prior + log_density + torch.tensor([0.0, 0.2], dtype=F64)).logsumexp(-1)
    assert torch.allclose(program.log_marginal_rows({"raw": raw}), rows)
    prior = dist.Normal(0.0, 1.0).log_prob(raw).sum() - 0.1 * raw.abs().sum()
    assert torch.allclose(program.log_prior({"raw": raw}), prior)
    with in_dtype(F64), torch.no_grad():
        ready = config_enumerate(poutine.condition(model, {"raw": raw}))
        elbo = TraceEnum_ELBO(max_plate_nesting=1)
        assert -elbo.loss(ready, lambda data: None, X) == pytest.approx(
            float(rows.sum() + prior), rel=1e-6
        )


# ---------------------------------------------------------------- known parameters


def known(data: Tensor) -> None:
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(torch.tensor([0.3, 0.7])))
        pyro.sample("x", dist.Normal(torch.tensor([-1.0, 2.0])[z], 1.0), obs=data)


def test_known_parameters_leave_the_posterior_of_the_latents() -> None:
    found = fit(known, X)
    log_prior, log_density = terms_by_hand(MEANS["means"])
    assert found.log_likelihood == pytest.approx(
        float((log_prior + log_density).logsumexp(-1).sum()), abs=1e-5
    )
    assert found.params == {}
    assert found.num_parameters == 0
    posterior = torch.softmax(log_prior + log_density, -1)
    assert torch.allclose(found.posterior_latents(X)["z"], posterior, atol=1e-6)
    assert found.predict(X).shape == (20,)
    assert len(found.summary(X)) == 0
    with pytest.raises(ValueError, match="to_arviz: a fit with parameters was expected"):
        found.to_arviz(X)


def test_engines_that_draw_parameters_refuse_to_draw_none() -> None:
    with pytest.raises(ValueError, match="the program has no parameters, so that NUTS"):
        fit(known, X, NUTS())
