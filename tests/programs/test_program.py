"""Programs of a user, none of them in the zoo, seen through :class:`Program`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pyro.optim
import pytest
import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate
from pyro.ops.indexing import Vindex
from scipy import stats
from scipy.special import logsumexp
from support.brute_force import brute_force, enumerated_parents, plain_trace
from support.user_programs import (
    CASES,
    CAUSES,
    CHAIN,
    LENGTH,
    SERIES,
    WORDS,
    Params,
    chain,
    close,
    every_program,
    ones,
    restarts,
    topics,
    two_causes,
    uniform,
)
from torch import Tensor
from torch.distributions import constraints

from inference import EM, fit
from inference.programs.program import Program
from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, Mixture, Normal
from ppl_models.parts.distributions import BinaryVector
from ppl_models.parts.item_response import ItemResponse, LinearPredictor

F64 = torch.float64


def at(params: Params, restart: int) -> Params:
    return {name: value[restart] for name, value in params.items()}


# ---------------------------------------------------------------- programs


def masked_chain(data: Tensor) -> None:
    """Sequences of different lengths: what lies beyond the end (NaN) is masked out."""
    move = pyro.sample("move", dist.Dirichlet(ones(2, 2)).to_event(1))
    means = pyro.sample("means", dist.Normal(0.0, ones(2)).to_event(1))
    with pyro.plate("rows", len(data)):
        state: Any = 0
        for t in pyro.markov(range(data.shape[1])):
            with poutine.mask(mask=~data[:, t].isnan()):
                state = pyro.sample(f"z_{t}", dist.Categorical(Vindex(move)[..., state, :]))
                mean = Vindex(means)[..., state]
                pyro.sample(f"x_{t}", dist.Normal(mean, 1.0), obs=data[:, t].nan_to_num())


def shared_cause(data: Tensor) -> None:
    """One latent outside the plate: the rows are not independent."""
    chance = pyro.sample("chance", dist.Beta(ones(), 1.0))
    regime = pyro.sample(
        "regime", BinaryVector(torch.logit(chance).unsqueeze(-1)), infer={"enumerate": "parallel"}
    )
    with pyro.plate("rows", len(data)):
        loadings = torch.tensor([[1.0], [2.0]], dtype=F64)
        predictor = LinearPredictor(regime, loadings, torch.zeros(2, dtype=F64))
        pyro.sample("x", ItemResponse(Bernoulli(), predictor), obs=data)


MASKED = {"move": torch.tensor([[0.8, 0.2], [0.3, 0.7]], dtype=F64), "means": CHAIN["means"]}
RAGGED = SERIES.masked_fill(
    torch.arange(LENGTH) >= torch.tensor([[4], [3], [1], [2], [4], [1]]), math.nan
)


# ---------------------------------------------------------------- exactness


@every_program
def test_rows_and_posteriors_equal_brute_force(name: str) -> None:
    model, params, data, nesting = CASES[name]
    program, by_hand = Program(model, data), brute_force(model, params, data)
    close(program.log_marginal_rows(params), by_hand.log_marginal)
    close(program.log_marginal(params), by_hand.log_marginal.sum())
    posteriors = program.factor_posteriors(params)
    parents = enumerated_parents(model, params, nesting, data)
    for site, weight in posteriors.weights.items():
        dims = sorted(parents[site])
        sites = [parents[site][dim] for dim in dims]
        num_entries = max(by_hand.index[s].shape[1] for s in sites)
        entries = [
            (
                by_hand.marginal(*sites, entry=e)
                if num_entries == 1
                else entry_marginal(by_hand, sites, e)
            )
            for e in range(num_entries)
        ]
        total = sum(entries).sum(-1)  # over words and units
        found = weight.reshape(*total.shape, -1).sum(-1)
        close(found, total)
        close(found.sum(), float(math.prod(program.site(site).shape)))


def entry_marginal(by_hand: Any, sites: list[str], entry: int) -> Tensor:
    """As ``marginal``, where some sites have one entry a row and others several."""
    sizes = [len(by_hand.values[site]) for site in sites]
    out = torch.zeros(*sizes, by_hand.log_joint.shape[1], dtype=F64)
    for c, weight in enumerate(by_hand.posterior):
        picked = [by_hand.index[s][c, entry if by_hand.index[s].shape[1] > 1 else 0] for s in sites]
        out[tuple(int(p) for p in picked)] += weight
    return out


@every_program
def test_marginals_of_every_latent(name: str) -> None:
    model, params, data, _ = CASES[name]
    program, by_hand = Program(model, data), brute_force(model, params, data)
    marginals = program.latent_marginals(params)
    for site, probabilities in marginals.items():
        shape = program.site(site).shape
        assert probabilities.shape == (*(n for n in shape if n > 1), len(by_hand.values[site]))
        num_entries = by_hand.index[site].shape[1]
        expected = torch.stack(
            [by_hand.marginal(site, entry=e) for e in range(num_entries)]
        )  # (E, V, N)
        if name == "topics-transposed":
            found = probabilities.reshape(len(WORDS.mT), -1, probabilities.shape[-1]).movedim(
                0, -1
            )  # (E, V, N)
        else:
            found = probabilities.reshape(num_entries, -1, probabilities.shape[-1]).mT
        close(found, expected)


@every_program
def test_a_batch_of_restarts_is_each_of_them(name: str) -> None:
    model, params, data, _ = CASES[name]
    program, batch = Program(model, data), restarts(params)
    posteriors = program.factor_posteriors(batch)
    moved = {site: value.flip(0) for site, value in batch.items()}
    expected = program.expected_complete_log_density(moved, posteriors)
    marginals = program.latent_marginals(batch)
    for r in range(3):
        close(program.log_marginal_rows(batch)[r], program.log_marginal_rows(at(batch, r)))
        close(program.log_prior(batch)[r], program.log_prior(at(batch, r)))
        alone = program.factor_posteriors(at(batch, r))
        close(posteriors.log_marginal[r], alone.log_marginal)
        close(expected[r], program.expected_complete_log_density(at(moved, r), alone))
        for site, value in program.latent_marginals(at(batch, r)).items():
            close(marginals[site][r], value)


@every_program
def test_the_loss_of_pyro_and_fishers_identity(name: str) -> None:
    model, params, data, nesting = CASES[name]
    program = Program(model, data)
    conditioned = config_enumerate(poutine.condition(model, params), default="parallel")
    loss = TraceEnum_ELBO(max_plate_nesting=nesting).loss(conditioned, lambda *args: None, data)
    close(program.log_marginal(params) + program.log_prior(params), -loss)
    leaves = {site: value.clone().requires_grad_() for site, value in params.items()}
    posteriors = program.factor_posteriors(params)
    one = torch.autograd.grad(program.log_marginal(leaves), list(leaves.values()))
    two = torch.autograd.grad(
        program.expected_complete_log_density(leaves, posteriors), list(leaves.values())
    )
    for left, right in zip(one, two, strict=True):
        close(left, right, 1e-9)


@every_program
def test_joint_draws_of_latents_follow_the_posterior(name: str) -> None:
    """The probability of the whole configuration of a row, z-scores over three seeds."""
    model, params, data, _ = CASES[name]
    by_hand = brute_force(model, params, data)
    rows_last = name == "topics"
    repeats = 500
    many = (
        data[:, :1].repeat(1, repeats)
        if rows_last
        else data[:1].repeat(repeats, *[1] * (data.dim() - 1))
    )
    program = Program(model, many)
    counts = torch.zeros(len(by_hand.log_joint), dtype=F64)
    for seed in range(3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            draws = program.sample_latents(params)
        agrees = torch.ones(len(counts), repeats, dtype=torch.bool)
        for site, value in draws.items():
            assert value.shape == (1, *program.site(site).shape)
            entries = (
                value[0].reshape(-1, repeats).mT if rows_last else value[0].reshape(repeats, -1)
            )  # (n, E)
            visited = by_hand.values[site][by_hand.index[site]]  # (C, E)
            agrees &= (visited[:, None] == entries).all(-1)
        counts += agrees.sum(1)
    expected = 3 * repeats * by_hand.posterior[:, 0]
    likely = expected > 10
    score = (counts - expected) / expected.sqrt()
    assert counts.sum() == 3 * repeats
    assert int(likely.sum()) >= 3
    assert float(score[likely].abs().max()) < 6.0


@every_program
@pytest.mark.filterwarnings(
    "ignore::inference.base.outcome.DegenerateWarning"
)  # three steps on a few rows
def test_generic_em_climbs(name: str) -> None:
    model, params, data, _ = CASES[name]
    with pytest.warns(UserWarning, match="did not converge"):
        result = fit(model, data, method=EM(max_iterations=3), init=params)
    course = torch.cat([result.trace.objective, torch.tensor([result.objective], dtype=F64)])
    assert bool((course.diff() >= -1e-9).all())
    assert course[-1] > course[0] + 1e-3
    close(
        course[0],
        Program(model, data).log_marginal(params) + Program(model, data).log_prior(params),
        1e-8,
    )


def test_masked_sequences_end_where_they_end() -> None:
    """The forward algorithm on the observed part of each row; and Pyro's own loss."""
    program = Program(masked_chain, RAGGED)
    move, means = MASKED["move"].numpy(), MASKED["means"].numpy()
    for row, found in zip(RAGGED.numpy(), program.log_marginal_rows(MASKED), strict=True):
        seen = row[~np.isnan(row)]
        forward = np.log(move[0]) + stats.norm.logpdf(seen[0], means)
        for value in seen[1:]:
            forward = logsumexp(forward[:, None] + np.log(move), axis=0) + stats.norm.logpdf(
                value, means
            )
        close(found, float(logsumexp(forward)))
    conditioned = config_enumerate(poutine.condition(masked_chain, MASKED), default="parallel")
    loss = TraceEnum_ELBO(max_plate_nesting=1).loss(conditioned, lambda *args: None, RAGGED)
    close(program.log_marginal(MASKED) + program.log_prior(MASKED), -loss)


def test_a_latent_outside_the_plate_joins_all_rows() -> None:
    data = torch.tensor([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], dtype=F64)
    params = {"chance": torch.tensor(0.3, dtype=F64)}
    program = Program(shared_cause, data)
    terms = []
    for regime, weight in ((0.0, 0.7), (1.0, 0.3)):
        eta = regime * torch.tensor([1.0, 2.0], dtype=F64)
        terms.append(math.log(weight) + dist.Bernoulli(logits=eta).log_prob(data).sum())
    close(program.log_marginal(params), torch.stack(terms).logsumexp(0))
    close(program.latent_marginals(params)["regime"], torch.stack(terms).softmax(0))
    assert program.as_mixture(params) is None


# ---------------------------------------------------------------- the list of sites


def test_sites_are_listed_with_kind_support_and_plates() -> None:
    program = Program(topics, WORDS)
    listed = {s.name: (s.kind, s.shape, s.plates, s.num_values) for s in program.sites}
    assert listed == {
        "theme_weights": ("parameter", (2,), (), None),
        "topic_weights": ("parameter", (2, 3), (), None),
        "vocabulary": ("parameter", (3, 4), (), None),
        "theme": ("latent", (5,), ("units",), 2),
        "topic": ("latent", (3, 5), ("units", "words"), 3),
        "word": ("observed", (3, 5), ("units", "words"), None),
    }
    assert list(listed) == [s.name for s in program.sites]  # program order
    assert program.names("parameter") == ("theme_weights", "topic_weights", "vocabulary")
    assert program.names("latent") == ("theme", "topic")
    assert program.site("topic").support.is_discrete


def test_sites_of_an_encoder() -> None:
    model = DeepDiscreteEncoder(4, (3, 2), response=Blocks((Bernoulli(), 1), (Normal(), 3)))
    program = Program(model, torch.zeros(6, 4, dtype=F64))
    listed = {s.name: (s.kind, s.shape, s.plates, s.num_values) for s in program.sites}
    assert listed == {
        "proportions": ("parameter", (2,), (), None),
        "loadings_1": ("parameter", (4, 3), (), None),
        "intercepts_1": ("parameter", (4,), (), None),
        "loadings_2": ("parameter", (3, 2), (), None),
        "intercepts_2": ("parameter", (3,), (), None),
        "dispersion": ("parameter", (3,), (), None),
        "latents_2": ("latent", (6, 2), ("units",), 4),
        "latents_1": ("latent", (6, 3), ("units",), 8),
        "items": ("observed", (6, 4), ("units",), None),
    }
    proportions = program.site("proportions").support
    assert bool(proportions.check(torch.tensor([0.2, 0.9], dtype=F64)))
    assert not bool(proportions.check(torch.tensor([0.2, 1.1], dtype=F64)))
    assert not bool(
        program.site("dispersion").support.check(torch.tensor([1.0, -1.0, 1.0], dtype=F64))
    )


def local_program(data: Tensor) -> None:
    weight = pyro.sample("weight", dist.Beta(ones(), 1.0))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Bernoulli(weight))
        level = pyro.sample("level", dist.Normal(z, 1.0))
        pyro.sample("x", dist.Normal(level, 1.0), obs=data)


def test_a_continuous_latent_of_a_row_is_local() -> None:
    """Its value must be given: then it is one more observation of the discrete latents."""
    data = SERIES[:, 0]
    program = Program(local_program, data)
    assert program.names("local") == ("level",)
    assert program.site("level").support is constraints.real
    params = {"weight": torch.tensor(0.3, dtype=F64)}
    level = data / 2
    each = [dist.Normal(z, 1.0).log_prob(level) + math.log(p) for z, p in ((0.0, 0.7), (1.0, 0.3))]
    expected = torch.stack(each).logsumexp(0) + dist.Normal(level, 1.0).log_prob(data)
    close(program.log_marginal_rows(params | {"level": level}), expected)
    with pytest.raises(ValueError, match="local site 'level' needs a value"):
        program.log_marginal(params)
    result = fit(local_program, data)  # integrated: x is normal with variance 2 given z
    exact = torch.stack(
        [
            dist.Normal(z, math.sqrt(2.0)).log_prob(data) + math.log(p)
            for z, p in ((0.0, 1 - float(result.params["weight"])), (1.0, result.params["weight"]))
        ]
    ).logsumexp(0)
    torch.testing.assert_close(result.log_likelihood_rows(data), exact, rtol=0, atol=1e-4)


def test_a_missing_value_is_named() -> None:
    program = Program(two_causes, SERIES[:, 0])
    without = {name: value for name, value in CAUSES.items() if name != "means"}
    for ask in (
        program.log_marginal,
        program.log_prior,
        program.factor_posteriors,
        program.latent_marginals,
    ):
        with pytest.raises(ValueError, match="params: parameter site 'means' needs a value"):
            ask(without)
    with pytest.raises(ValueError, match="latents: site 'b' needs a value"):
        program.log_joint(CAUSES, {"a": torch.zeros(6, dtype=torch.long)})


def counts_latent(data: Tensor) -> None:
    rate = pyro.sample("rate", dist.Gamma(ones(), 1.0))
    with pyro.plate("rows", len(data)):
        number = pyro.sample("number", dist.Poisson(rate))
        pyro.sample("x", dist.Normal(number, 1.0), obs=data)


def bits_latent(data: Tensor) -> None:
    rate = pyro.sample("rate", dist.Beta(ones(17), 1.0).to_event(1))
    with pyro.plate("rows", len(data)):
        bits = pyro.sample("bits", dist.Bernoulli(rate).to_event(1))
        pyro.sample("x", dist.Normal(bits.sum(-1), 1.0), obs=data)


@pytest.mark.parametrize(("model", "name"), [(counts_latent, "number"), (bits_latent, "bits")])
def test_a_latent_that_cannot_be_enumerated_is_named(model: Callable[..., None], name: str) -> None:
    program = Program(model, ones(3))
    assert program.site(name).num_values is None
    params = {site: value[0] for site, value in program.draw_prior(1, seed=0).items()}
    for ask in (
        program.log_marginal,
        program.factor_posteriors,
        program.sample_latents,
        program.as_mixture,
    ):
        with pytest.raises(ValueError, match=f"latent site '{name}' .* cannot be enumerated"):
            ask(params)
    with pytest.raises(ValueError, match=f"latent site '{name}' .* cannot be enumerated"):
        fit(model, ones(3), init="random")


# ---------------------------------------------------------------- scales


def test_a_mini_batch_counts_for_the_whole() -> None:
    model = DeepDiscreteEncoder(4, (2,))
    data = torch.bernoulli(uniform(5, 4))
    program = Program(model, data, 50)
    params = {name: value[0] for name, value in program.draw_prior(1, 0).items()}
    full = Program(model, data)
    close(program.log_marginal(params), 10 * full.log_marginal(params))
    close(program.log_prior(params), full.log_prior(params))
    posteriors = program.factor_posteriors(params)
    close(program.expected_complete_log_density(params, posteriors), 10 * _expected(full, params))
    conditioned = config_enumerate(poutine.condition(model, params), default="parallel")
    loss = TraceEnum_ELBO(max_plate_nesting=1).loss(conditioned, lambda *args: None, data, 50)
    close(program.log_marginal(params) + program.log_prior(params), -loss, 1e-8)
    assert program.as_mixture(params) is None


def _expected(program: Program, params: Params) -> Tensor:
    return program.expected_complete_log_density(params, program.factor_posteriors(params))


def tempered_prior(data: Tensor) -> None:
    with poutine.scale(scale=0.25):
        weight = pyro.sample("weight", dist.Beta(2.0 * ones(), 3.0))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Bernoulli(weight))
        pyro.sample("x", dist.Normal(z, 1.0), obs=data)


def test_a_scaled_prior_is_scaled() -> None:
    program, params = (
        Program(tempered_prior, SERIES[:, 0]),
        {"weight": torch.tensor(0.3, dtype=F64)},
    )
    close(program.log_prior(params), 0.25 * dist.Beta(2.0 * ones(), 3.0).log_prob(params["weight"]))
    latents = {"z": torch.zeros(6, dtype=F64)}
    joint = plain_trace(tempered_prior, params | latents, SERIES[:, 0]).log_prob_sum()
    close(program.log_joint(params, latents), joint)


# ---------------------------------------------------------------- no traces left behind


def test_the_parameter_store_and_random_state_are_left_alone() -> None:
    def model(data: Tensor) -> None:
        pyro.param("theirs", torch.zeros(2))
        two_causes(data)

    pyro.get_param_store()["mine"] = ones(3)
    data, latents = (
        SERIES[:, 0],
        {"a": torch.zeros(6, dtype=torch.long), "b": torch.ones(6, dtype=torch.long)},
    )
    random_state = torch.get_rng_state()
    numpy_state = np.random.get_state()[1].copy()  # noqa: NPY002
    program = Program(model, data)
    own = CAUSES | {"theirs": torch.zeros(2)}
    batch = restarts(own)
    program.log_prior(batch)
    program.log_joint(own, latents)
    program.log_marginal(own)
    posteriors = program.factor_posteriors(batch)
    program.expected_complete_log_density(batch, posteriors)
    program.latent_marginals(batch)
    program.latent_means(own)
    program.latent_modes(own)
    program.as_mixture(batch)
    program.draw_prior(2, seed=1)
    program.simulate(own, seed=1)
    with pytest.warns(UserWarning, match="did not converge"):
        result = fit(two_causes, data, method=EM(max_iterations=1), num_restarts=2)
    result.posterior_latents(data)
    result.log_likelihood_rows(data)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert list(pyro.get_param_store().keys()) == ["mine"]
    pyro.clear_param_store()


def test_draws_depend_on_the_seed_alone() -> None:
    program = Program(two_causes, SERIES[:, 0])
    torch.manual_seed(5)
    one, prior = program.simulate(CAUSES, seed=1), program.draw_prior(2, seed=1)
    torch.manual_seed(6)
    two, again = program.simulate(CAUSES, seed=1), program.draw_prior(2, seed=1)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert all(torch.equal(prior[name], again[name]) for name in prior)
    assert any(not torch.equal(one[name], program.simulate(CAUSES, seed=2)[name]) for name in one)
    assert set(one) == {"a", "b", "x"}


def test_the_unconstrained_scale_and_back() -> None:
    program = Program(chain, SERIES)
    free = program.unconstrained(CHAIN)
    for name, value in program.constrained(free).items():
        close(value, CHAIN[name])
    far = program.constrained({name: 50 * torch.ones_like(value) for name, value in free.items()})
    assert all(bool(program.site(name).support.check(value).all()) for name, value in far.items())


def test_another_chunk_of_rows() -> None:
    program = Program(chain, SERIES[:1])
    close(
        program.with_data(SERIES[2:5]).log_marginal_rows(CHAIN),
        Program(chain, SERIES).log_marginal_rows(CHAIN)[2:5],
    )
    close(program.log_marginal_rows(CHAIN), Program(chain, SERIES).log_marginal_rows(CHAIN)[:1])


def test_distributions_of_parameters_are_kept_where_none_depends_on_another() -> None:
    data = torch.ones(5, 3, dtype=F64)
    for model, are_kept in (
        (Mixture(2, Bernoulli(), 3), True),
        (DeepDiscreteEncoder(3, (1,)), False),
    ):
        program = Program(model, data)
        assert (program._priors is not None) == are_kept
        params = program.draw_prior(3, seed=4)
        for r in range(3):
            trace = pyro.poutine.trace(pyro.poutine.condition(model, at(params, r))).get_trace(data)
            trace.compute_log_prob()
            expected = sum(trace.nodes[name]["log_prob"].sum() for name in params)
            close(program.log_prior(params)[r], expected)
            close(program.log_prior(at(params, r)), expected)
