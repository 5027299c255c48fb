"""Programs of a user, none of them in the zoo, seen through :class:`Program`; and a zoo model in the hands of plain Pyro."""

from __future__ import annotations

import contextlib
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
from pyro.infer import MCMC, NUTS, SVI, Predictive, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta, AutoNormal
from pyro.ops.indexing import Vindex
from scipy import stats
from scipy.special import logsumexp
from support.brute_force import brute_force, enumerated_parents, plain_trace
from torch import Tensor
from torch.distributions import biject_to, constraints

from inference import EM, fit
from inference.programs.program import Program
from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, Normal, TruncatedLasso
from ppl_models.parts.distributions import BinaryVector
from ppl_models.parts.item_response import ItemResponse, LinearPredictor

F64 = torch.float64
Params = dict[str, Tensor]


def close(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    actual, expected = (torch.as_tensor(value, dtype=F64).detach() for value in (actual, expected))
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=F64)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def at(params: Params, restart: int) -> Params:
    return {name: value[restart] for name, value in params.items()}


# ---------------------------------------------------------------- programs


def topics(words: Tensor) -> None:
    """Words (W, N) of units: a theme for each unit, a topic for each word; two nested plates, the outer one inmost."""
    theme_weights = pyro.sample("theme_weights", dist.Dirichlet(ones(2)))
    topic_weights = pyro.sample("topic_weights", dist.Dirichlet(ones(2, 3)).to_event(1))
    vocabulary = pyro.sample("vocabulary", dist.Dirichlet(ones(3, 4)).to_event(1))
    with pyro.plate("units", words.shape[-1], dim=-1):
        theme = pyro.sample("theme", dist.Categorical(theme_weights))
        with pyro.plate("words", words.shape[-2], dim=-2):
            topic = pyro.sample("topic", dist.Categorical(Vindex(topic_weights)[..., theme, :]))
            pyro.sample("word", dist.Categorical(Vindex(vocabulary)[..., topic, :]), obs=words)


def topics_transposed(words: Tensor) -> None:
    """The same model with its plates the other way round: words (N, W)."""
    theme_weights = pyro.sample("theme_weights", dist.Dirichlet(ones(2)))
    topic_weights = pyro.sample("topic_weights", dist.Dirichlet(ones(2, 3)).to_event(1))
    vocabulary = pyro.sample("vocabulary", dist.Dirichlet(ones(3, 4)).to_event(1))
    with pyro.plate("units", words.shape[-2], dim=-2):
        theme = pyro.sample("theme", dist.Categorical(theme_weights))
        with pyro.plate("words", words.shape[-1], dim=-1):
            topic = pyro.sample("topic", dist.Categorical(Vindex(topic_weights)[..., theme, :]))
            pyro.sample("word", dist.Categorical(Vindex(vocabulary)[..., topic, :]), obs=words)


def two_causes(data: Tensor) -> None:
    """Two Categorical latents, the second depending on the first, and an observation on both."""
    first = pyro.sample("first_weights", dist.Dirichlet(ones(2)))
    second = pyro.sample("second_weights", dist.Dirichlet(ones(2, 3)).to_event(1))
    means = pyro.sample("means", dist.Normal(0.0, ones(2, 3)).to_event(2))
    spread = pyro.sample("spread", dist.Gamma(ones(), 1.0))
    with pyro.plate("rows", len(data)):
        a = pyro.sample("a", dist.Categorical(first))
        b = pyro.sample("b", dist.Categorical(Vindex(second)[..., a, :]))
        pyro.sample("x", dist.Normal(Vindex(means)[..., a, b], spread), obs=data)


LENGTH = 4


def chain(data: Tensor) -> None:
    """A second-order chain of T = 4 binary states inside a plate; Pyro reuses three enumerated dims."""
    start = pyro.sample("start", dist.Beta(ones(), 1.0))
    move = pyro.sample("move", dist.Beta(ones(2, 2), 1.0).to_event(2))
    means = pyro.sample("means", dist.Normal(0.0, ones(2)).to_event(1))
    with pyro.plate("rows", len(data)):
        before, now = 0, 0
        for t in pyro.markov(range(LENGTH), history=2):
            chance = start if t == 0 else Vindex(move)[..., before, now]
            before, now = now, pyro.sample(f"z_{t}", dist.Bernoulli(chance)).long()
            pyro.sample(f"x_{t}", dist.Normal(Vindex(means)[..., now], 1.0), obs=data[:, t])


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
    regime = pyro.sample("regime", BinaryVector(torch.logit(chance).unsqueeze(-1)), infer={"enumerate": "parallel"})
    with pyro.plate("rows", len(data)):
        loadings = torch.tensor([[1.0], [2.0]], dtype=F64)
        predictor = LinearPredictor(regime, loadings, torch.zeros(2, dtype=F64))
        pyro.sample("x", ItemResponse(Bernoulli(), predictor), obs=data)


TOPIC_PARAMS = {
    "theme_weights": torch.tensor([0.3, 0.7], dtype=F64),
    "topic_weights": torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]], dtype=F64),
    "vocabulary": torch.softmax(2 * uniform(3, 4), -1),
}
WORDS = torch.multinomial(ones(4), 15, replacement=True, generator=torch.Generator().manual_seed(1)).reshape(3, 5)
CAUSES = {
    "first_weights": torch.tensor([0.4, 0.6], dtype=F64),
    "second_weights": torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]], dtype=F64),
    "means": 3 * uniform(2, 3),
    "spread": torch.tensor(0.8, dtype=F64),
}
CHAIN = {
    "start": torch.tensor(0.4, dtype=F64),
    "move": torch.tensor([[0.2, 0.7], [0.4, 0.9]], dtype=F64),
    "means": torch.tensor([-0.5, 1.0], dtype=F64),
}
MASKED = {"move": torch.tensor([[0.8, 0.2], [0.3, 0.7]], dtype=F64), "means": CHAIN["means"]}
SERIES = torch.randn(6, LENGTH, generator=torch.Generator().manual_seed(2), dtype=F64)
RAGGED = SERIES.masked_fill(torch.arange(LENGTH) >= torch.tensor([[4], [3], [1], [2], [4], [1]]), math.nan)

CASES: dict[str, tuple[Callable[..., None], Params, Tensor, int]] = {
    "topics": (topics, TOPIC_PARAMS, WORDS, 2),
    "topics-transposed": (topics_transposed, TOPIC_PARAMS, WORDS.mT, 2),
    "two-causes": (two_causes, CAUSES, 2 * SERIES[:, 0], 1),
    "second-order-chain": (chain, CHAIN, SERIES, 1),
}
every_program = pytest.mark.parametrize("name", CASES)


def restarts(params: Params) -> Params:
    """Three values of every parameter, inside its support; the first is the given one."""
    out = {}
    for name, value in params.items():
        is_simplex = value.dim() > 0 and bool(((value.sum(-1) - 1).abs() < 1e-9).all())
        moved = [value.pow(power) for power in (1.0, 1.3, 0.8)] if bool((value > 0).all()) else [value, value / 2, -value]
        out[name] = torch.stack([m / m.sum(-1, keepdim=True) if is_simplex else m for m in moved])
    return out


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
            by_hand.marginal(*sites, entry=e) if num_entries == 1 else entry_marginal(by_hand, sites, e)
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
        expected = torch.stack([by_hand.marginal(site, entry=e) for e in range(num_entries)])  # (E, V, N)
        if name == "topics-transposed":
            found = probabilities.reshape(len(WORDS.mT), -1, probabilities.shape[-1]).movedim(0, -1)  # (E, V, N)
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
    two = torch.autograd.grad(program.expected_complete_log_density(leaves, posteriors), list(leaves.values()))
    for left, right in zip(one, two, strict=True):
        close(left, right, 1e-9)


@every_program
def test_joint_draws_of_latents_follow_the_posterior(name: str) -> None:
    """The probability of the whole configuration of a row, z-scores over three seeds."""
    model, params, data, _ = CASES[name]
    by_hand = brute_force(model, params, data)
    rows_last = name == "topics"
    repeats = 500
    many = data[:, :1].repeat(1, repeats) if rows_last else data[:1].repeat(repeats, *[1] * (data.dim() - 1))
    program = Program(model, many)
    counts = torch.zeros(len(by_hand.log_joint), dtype=F64)
    for seed in range(3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            draws = program.sample_latents(params)
        agrees = torch.ones(len(counts), repeats, dtype=torch.bool)
        for site, value in draws.items():
            assert value.shape == (1, *program.site(site).shape)
            entries = value[0].reshape(-1, repeats).mT if rows_last else value[0].reshape(repeats, -1)  # (n, E)
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
def test_generic_em_climbs(name: str) -> None:
    model, params, data, _ = CASES[name]
    with pytest.warns(UserWarning, match="did not converge"):
        result = fit(model, data, method=EM(max_iterations=3), init=params)
    course = torch.cat([result.trace.objective, torch.tensor([result.objective], dtype=F64)])
    assert bool((course.diff() >= -1e-9).all())
    assert course[-1] > course[0] + 1e-3
    close(course[0], Program(model, data).log_marginal(params) + Program(model, data).log_prior(params), 1e-8)


def test_masked_sequences_end_where_they_end() -> None:
    """The forward algorithm on the observed part of each row; and Pyro's own loss."""
    program = Program(masked_chain, RAGGED)
    move, means = MASKED["move"].numpy(), MASKED["means"].numpy()
    for row, found in zip(RAGGED.numpy(), program.log_marginal_rows(MASKED), strict=True):
        seen = row[~np.isnan(row)]
        forward = np.log(move[0]) + stats.norm.logpdf(seen[0], means)
        for value in seen[1:]:
            forward = logsumexp(forward[:, None] + np.log(move), axis=0) + stats.norm.logpdf(value, means)
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
    assert not bool(program.site("dispersion").support.check(torch.tensor([1.0, -1.0, 1.0], dtype=F64)))


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
    with pytest.raises(ValueError, match="local site 'level' needs a value"):
        fit(local_program, data)


def test_a_missing_value_is_named() -> None:
    program = Program(two_causes, SERIES[:, 0])
    without = {name: value for name, value in CAUSES.items() if name != "means"}
    for ask in (program.log_marginal, program.log_prior, program.factor_posteriors, program.latent_marginals):
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
    rate = pyro.sample("rate", dist.Beta(ones(3), 1.0).to_event(1))
    with pyro.plate("rows", len(data)):
        bits = pyro.sample("bits", dist.Bernoulli(rate).to_event(1))
        pyro.sample("x", dist.Normal(bits.sum(-1), 1.0), obs=data)


@pytest.mark.parametrize(("model", "name"), [(counts_latent, "number"), (bits_latent, "bits")])
def test_a_latent_that_cannot_be_enumerated_is_named(model: Callable[..., None], name: str) -> None:
    program = Program(model, ones(3))
    assert program.site(name).num_values is None
    params = {site: value[0] for site, value in program.draw_prior(1, seed=0).items()}
    for ask in (program.log_marginal, program.factor_posteriors, program.sample_latents, program.as_mixture):
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
    program, params = Program(tempered_prior, SERIES[:, 0]), {"weight": torch.tensor(0.3, dtype=F64)}
    close(program.log_prior(params), 0.25 * dist.Beta(2.0 * ones(), 3.0).log_prob(params["weight"]))
    latents = {"z": torch.zeros(6, dtype=F64)}
    joint = plain_trace(tempered_prior, params | latents, SERIES[:, 0]).log_prob_sum()
    close(program.log_joint(params, latents), joint)


def tempered_likelihood(data: Tensor) -> None:
    weight = pyro.sample("weight", dist.Beta(ones(), 1.0))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Bernoulli(weight))
        with poutine.scale(scale=0.5):
            pyro.sample("x", dist.Normal(z, 1.0), obs=data)


def test_different_scales_cannot_be_summed_out() -> None:
    """Pyro refuses this too: the marginal of a scaled factor and an unscaled one is not a scaled marginal."""
    program = Program(tempered_likelihood, SERIES[:, 0])
    with pytest.raises(ValueError, match="scale"):
        program.log_marginal({"weight": torch.tensor(0.3, dtype=F64)})


# ---------------------------------------------------------------- as_mixture


def mixture_program(
    data: Tensor,
    covariate: Tensor | None = None,
    prior_covariate: Tensor | None = None,
    second: bool = False,
    mask: Tensor | None = None,
) -> None:
    """Items on a Categorical class, with departures that make the rows more than a finite mixture."""
    weights = pyro.sample("weights", dist.Dirichlet(ones(3)))
    levels = pyro.sample("levels", dist.Normal(0.0, ones(3, 2)).to_event(2))
    with pyro.plate("rows", len(data)):
        logits = weights.log() if prior_covariate is None else weights.log() + prior_covariate[:, None]
        group = pyro.sample("group", dist.Categorical(logits=logits))
        eta = Vindex(levels)[..., group, :]
        if covariate is not None:
            eta = eta + covariate[:, None]
        if second:
            other = pyro.sample("other", dist.Bernoulli(0.3 * ones()))
            eta = eta + other.unsqueeze(-1)
        with contextlib.nullcontext() if mask is None else poutine.mask(mask=mask):
            pyro.sample("items", ItemResponse(Bernoulli(), eta), obs=data)


MIXTURE = {"weights": torch.tensor([0.2, 0.5, 0.3], dtype=F64), "levels": 4 * uniform(3, 2) - 2}
BINARY = torch.bernoulli(uniform(6, 2, seed=3))


@pytest.mark.parametrize("batched", [False, True])
def test_rows_of_a_users_program_as_a_mixture(batched: bool) -> None:
    program = Program(mixture_program, BINARY)
    params = restarts(MIXTURE) if batched else MIXTURE
    mixture = program.as_mixture(params)
    assert mixture is not None
    assert mixture.latent == "group"
    assert torch.equal(mixture.values, torch.arange(3))
    close(mixture.log_weights, params["weights"].log())
    close(mixture.log_prior, program.log_prior(params))
    density = mixture.response.log_prob(BINARY)  # (C, [R,] N)
    rows = (density.movedim(0, -1) + mixture.log_weights.unsqueeze(-2)).logsumexp(-1)
    close(rows, program.log_marginal_rows(params))


def test_the_upper_factors_of_a_mixture() -> None:
    """Expected configurations above the observed layer from its counts alone, and from all rows."""
    model = DeepDiscreteEncoder(5, (3, 2))
    data = torch.bernoulli(uniform(7, 5, seed=4))
    program = Program(model, data)
    params = {name: value / 10 if name != "proportions" else value for name, value in program.draw_prior(1, 1).items()}
    mixture = program.as_mixture(params)
    assert mixture is not None
    assert mixture.latent == "latents_1"
    counts = program.latent_marginals(params)["latents_1"].sum(1)
    posteriors = program.factor_posteriors(params).weights
    for site, value in mixture.upper_posteriors(counts).items():
        close(value.flatten(), posteriors[site].flatten())


@pytest.mark.parametrize(
    "departure",
    [
        {"covariate": SERIES[:, 0]},
        {"prior_covariate": SERIES[:, 0]},
        {"second": True},
        {"mask": SERIES[:, 0] > 0},
    ],
    ids=["covariate", "row-prior", "two-latents", "mask"],
)
def test_rows_that_are_no_mixture(departure: dict[str, Any]) -> None:
    def model(data: Tensor) -> None:
        mixture_program(data, **departure)

    assert Program(model, BINARY).as_mixture(MIXTURE) is None


@every_program
def test_other_observations_are_no_mixture(name: str) -> None:
    model, params, data, _ = CASES[name]
    assert Program(model, data).as_mixture(params) is None


# ---------------------------------------------------------------- no traces left behind


def test_the_parameter_store_and_random_state_are_left_alone() -> None:
    def model(data: Tensor) -> None:
        pyro.param("theirs", torch.zeros(2))
        two_causes(data)

    pyro.get_param_store()["mine"] = ones(3)
    data, latents = SERIES[:, 0], {"a": torch.zeros(6, dtype=torch.long), "b": torch.ones(6, dtype=torch.long)}
    random_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    program = Program(model, data)
    batch = restarts(CAUSES)
    program.log_prior(batch)
    program.log_joint(CAUSES, latents)
    program.log_marginal(CAUSES)
    posteriors = program.factor_posteriors(batch)
    program.expected_complete_log_density(batch, posteriors)
    program.latent_marginals(batch)
    program.latent_means(CAUSES)
    program.latent_modes(CAUSES)
    program.as_mixture(batch)
    program.draw_prior(2, seed=1)
    program.simulate(CAUSES, seed=1)
    with pytest.warns(UserWarning, match="did not converge"):
        result = fit(model, data, method=EM(max_iterations=1), num_restarts=2)
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
    close(program.with_data(SERIES[2:5]).log_marginal_rows(CHAIN), Program(chain, SERIES).log_marginal_rows(CHAIN)[2:5])
    close(program.log_marginal_rows(CHAIN), Program(chain, SERIES).log_marginal_rows(CHAIN)[:1])


# ---------------------------------------------------------------- plain Pyro, without inference

GRAPHS = (((1, 0), (1, 0), (0, 1), (1, 1), (0, 1)), None)
PLAIN = {
    "two-layers": DeepDiscreteEncoder(5, (3, 2)),
    "mixed": DeepDiscreteEncoder(5, (2,), response=Blocks((Bernoulli(), 2), (Normal(), 3)), bound=5.0),
    "confirmatory-penalised": DeepDiscreteEncoder(5, (2, 1), penalty=TruncatedLasso(1.0, 0.5), graphs=GRAPHS),
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
    """It moves, and its potential is minus the log-posterior of :class:`Program` on the unconstrained scale."""
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
    jacobian = sum(biject_to(program.site(site).support).log_abs_det_jacobian(free[site], params[site]).sum() for site in free)
    close(kernel.potential_fn(free), -(program.log_marginal(params) + program.log_prior(params) + jacobian), 1e-9)


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
