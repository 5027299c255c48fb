"""Latents above parameters, factors, recorded values, sites reparametrised: all as in Pyro."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate
from pyro.infer.reparam import LocScaleReparam, TransformReparam
from scipy import stats
from support.latent_priors import data_of, params_of, program_of, random_plan, visited
from support.user_programs import close, restarts
from torch import Tensor

from inference import EM, NUTS, SAEM, Laplace, RowBlocks, fit
from inference.fitting.draws import latents_of_draws
from inference.fitting.tabular import posterior_frame
from inference.programs.global_state import in_dtype
from inference.programs.posterior_predictive import replicate
from inference.programs.potential import Potential, PotentialOfSets
from inference.programs.program import Program, simulate
from inference.report.latent_use import latents as page
from inference.report.parts import Table
from inference.report.sections import Subject

F64 = torch.float64


def check_distribution(seed: int, most: int) -> None:
    """Log joint, log prior, posteriors and gradient of the M-step of one random program."""
    plan = random_plan(seed, most)
    model, data = program_of(plan, seed), data_of(seed)
    params = params_of(model, data)
    program = Program(model, data)
    with in_dtype(F64):
        by_hand = visited(model, params, data)
    assert set(program.names("parameter")) == set(params)
    assert not program.names("local")
    program.check_enumerable()
    close(program.log_marginal(params) + program.log_prior(params), by_hand.log_joint.logsumexp(0))
    if not (
        plan.shares_latents and "components" in plan.factors
    ):  # a factor of latents that data depend on is part of the likelihood
        close(program.log_prior(params), by_hand.log_prior.logsumexp(0))
    rows = program.log_marginal_rows(params)
    close(rows.sum(), program.log_marginal(params))
    assert rows.shape == (() if plan.shares_latents else (len(data),))
    for site, found in program.latent_marginals(params).items():
        expected = by_hand.marginal(site, program.latent_values(params)[site])
        close(found, expected.reshape(found.shape))
    conditioned = config_enumerate(
        poutine.condition(program_of(plan, seed, named=False), params), default="parallel"
    )
    with (
        in_dtype(F64),
        pyro.validation_enabled(False),
    ):  # which warns of a Delta that the guide does not draw
        close(
            -TraceEnum_ELBO(max_plate_nesting=2).loss(conditioned, lambda _: None, data),
            by_hand.log_joint.logsumexp(0),
        )
    leaves = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
    exact = torch.autograd.grad(
        program.log_marginal(leaves) + program.log_prior(leaves), list(leaves.values())
    )
    posteriors = program.factor_posteriors(params)
    close(posteriors.log_marginal + posteriors.log_prior, by_hand.log_joint.logsumexp(0))
    bound = torch.autograd.grad(
        program.expected_log_joint(leaves, posteriors), list(leaves.values())
    )
    for own, other in zip(exact, bound, strict=True):
        close(own, other, 1e-8)
    both = restarts(params)
    for ask in (program.log_prior, program.log_marginal):
        close(
            ask(both),
            torch.stack(
                [
                    ask({name: value[r] for name, value in both.items()})
                    for r in range(len(both["level"]))
                ]
            ),
        )


@pytest.mark.parametrize("seed", range(24))
def test_a_random_program_with_latents_above_its_parameters(seed: int) -> None:
    check_distribution(seed, most=100)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_200_random_programs_with_latents_above_their_parameters(seed: int) -> None:
    check_distribution(seed, most=400)


# ---------------------------------------------------------------- a spike and a slab

PRIOR = {0: 0.05, 1: 3.0}  # standard deviations of spike and slab


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def spike_and_slab(data: Tensor) -> None:
    """One parameter."""
    g = pyro.sample("g", dist.Bernoulli(number(0.5)))
    b = pyro.sample("b", dist.Normal(0.0, torch.where(g > 0, number(PRIOR[1]), number(PRIOR[0]))))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(b, 1.0), obs=data)


def shifted(data: Tensor | None, num_rows: int = 1) -> None:
    """The same, whose data depend on the latent too, one column wide."""
    num_rows = num_rows if data is None else len(data)
    g = pyro.sample("g", dist.Bernoulli(number(0.5)))
    b = pyro.sample("b", dist.Normal(0.0, torch.where(g > 0, number(PRIOR[1]), number(PRIOR[0]))))
    with pyro.plate("rows", num_rows):
        y = None if data is None else data[:, 0]
        pyro.sample("y", dist.Normal(b + 4 * g, 1.0), obs=y)


COLUMNS = 3


def chosen_columns(data: Tensor) -> None:
    """A regression on columns, each with a spike and a slab; two kinds of rows."""
    share = pyro.sample("share", dist.Beta(number(2.0), 2.0))
    shift = pyro.sample("shift", dist.Normal(number(0.0), 5.0))
    with pyro.plate("columns", COLUMNS):
        g = pyro.sample("g", dist.Bernoulli(number(0.3)))
        b = pyro.sample("b", dist.Normal(0.0, torch.where(g > 0, number(3.0), number(0.05))))
    with pyro.plate("rows", len(data)):
        kind = pyro.sample("kind", dist.Bernoulli(share))
        mean = (data[:, :COLUMNS] * b.unsqueeze(-2)).sum(-1) + shift * kind
        pyro.sample("y", dist.Normal(mean, 0.5), obs=data[:, COLUMNS])


def rows_about(mean: float, num_rows: int = 50) -> Tensor:
    """Rows with exactly this mean."""
    y = torch.randn(num_rows, generator=torch.Generator().manual_seed(0), dtype=F64)
    return y - y.mean() + mean


def regressed(num_rows: int = 60) -> Tensor:
    """Rows of :func:`chosen_columns`: the first column alone has a coefficient."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num_rows, COLUMNS, generator=generator, dtype=F64)
    kind = torch.rand(num_rows, generator=generator) < 0.4
    noise = 0.5 * torch.randn(num_rows, generator=generator, dtype=F64)
    return torch.cat([x, (2 * x[:, 0] + 3 * kind + noise)[:, None]], 1)


def exact(y: Tensor, at: Tensor, shift: float = 0.0) -> Tensor:
    """log p(y, g, b) of g = 0 and 1, (2, B), by SciPy."""
    found = []
    for g, scale in PRIOR.items():
        rows = stats.norm.logpdf(y[:, None], at + shift * g).sum(0)
        found.append(np.log(0.5) + stats.norm.logpdf(at, 0, scale) + rows)
    return torch.tensor(np.stack(found))


GRID = torch.linspace(-4, 4, 16001, dtype=F64)


@pytest.mark.parametrize("mean", [2.05, 0.18])
def test_em_finds_the_mode_of_a_spike_and_slab(mean: float) -> None:
    y = rows_about(mean)
    program, at = Program(spike_and_slab, y), number(2.0)
    close(
        program.log_marginal({"b": at}) + program.log_prior({"b": at}),
        exact(y, at[None])[:, 0].logsumexp(0),
    )
    found = fit(spike_and_slab, y, method=EM(tolerance=1e-10), init={"b": number(mean)})
    joint = exact(y, GRID)
    assert abs(float(found.params["b"] - GRID[joint.logsumexp(0).argmax()])) < 1e-3
    b = found.params["b"]
    close(found.objective, exact(y, b[None])[:, 0].logsumexp(0))
    close(found.log_likelihood, stats.norm.logpdf(y, b).sum())  # of the rows given the parameter
    close(found.posterior_latents(y)["g"], exact(y, b[None])[:, 0].softmax(0))
    close(found.log_likelihood_rows(y), stats.norm.logpdf(y, b))
    assert bool((found.trace.objective.diff() > -1e-9).all())
    assert found.num_free == 1


def test_em_finds_the_mode_where_data_depend_on_the_latent_too() -> None:
    y = rows_about(2.2)
    found = fit(shifted, y[:, None], method=EM(tolerance=1e-10), init={"b": number(-1.0)})
    joint, b = exact(y, GRID, 4.0), found.params["b"]
    assert abs(float(b - GRID[joint.logsumexp(0).argmax()])) < 1e-3
    at = exact(y, b[None], 4.0)[:, 0]
    prior = np.logaddexp(
        *(math.log(0.5) + stats.norm.logpdf(b, 0, scale) for scale in PRIOR.values())
    )
    close(found.objective, at.logsumexp(0))
    close(found.log_likelihood, at.logsumexp(0) - prior)
    close(found.posterior_latents(y[:, None])["g"], at.softmax(0))
    assert found.log_likelihood_rows(y[:, None]).shape == ()
    assert bool((found.trace.objective.diff() > -1e-9).all())


def test_the_density_that_samplers_draw_from_is_the_exact_one() -> None:
    y, at = rows_about(0.18), GRID[::2000]
    potential = Potential(Program(spike_and_slab, y), {"b": number(0.0)[None]})
    close(potential(at[:, None])[0], exact(y, at).logsumexp(0))
    y = rows_about(2.05)
    found = fit(spike_and_slab, y, method=Laplace(num_draws=50), init={"b": number(2.0)})
    assert found.sample_stats is not None
    assert found.draws is not None
    close(found.sample_stats["lp"][0], exact(y, found.draws["b"][0]).logsumexp(0))


def test_log_prior_of_draws_sums_latents_above_parameters() -> None:
    y = rows_about(2.05)
    found = fit(spike_and_slab, y, method=Laplace(num_draws=50), init={"b": number(2.0)})
    assert found.draws is not None
    group = found.to_arviz(y, num_predictive=0)["log_prior"]
    assert list(group.data_vars) == ["log_prior"]
    b = found.draws["b"][0].numpy()
    expected = np.logaddexp(
        *(math.log(0.5) + stats.norm.logpdf(b, 0, scale) for scale in PRIOR.values())
    )
    np.testing.assert_allclose(group["log_prior"].values[0], expected)


@pytest.mark.slow
def test_nuts_draws_from_the_exact_posterior() -> None:
    y = rows_about(0.18)
    found = fit(spike_and_slab, y, method=NUTS(num_samples=1000, warmup_steps=500, num_chains=4))
    weight = exact(y, GRID).logsumexp(0).softmax(0)
    mean = float(weight @ GRID)
    spread = float((weight @ (GRID - mean).square()).sqrt())
    assert found.draws is not None
    assert abs(float(found.draws["b"].mean()) - mean) < spread / 4
    assert abs(float(found.draws["b"].std()) / spread - 1) < 0.25
    chance = float(weight @ exact(y, GRID).softmax(0)[1])
    averaged = latents_of_draws(found, {"b": found.draws["b"].ravel()}, y)["g"]
    assert abs(float(averaged[1]) - chance) < 0.03


def test_elbo_of_a_point_guide_is_the_log_joint() -> None:
    """What SVI climbs, with the latents of the prior summed out by Pyro."""
    y = rows_about(0.18)
    program = Program(spike_and_slab, y)

    def guide(data: Tensor) -> None:
        pyro.sample("b", dist.Delta(number(0.3)))

    loss = TraceEnum_ELBO(max_plate_nesting=1).loss(program.without_latents(), guide, y)
    close(-loss, exact(y, number(0.3)[None])[:, 0].logsumexp(0))


def scaled(data: Tensor) -> None:
    """Everything tempered."""
    with poutine.scale(scale=0.5):
        spike_and_slab(data)


def masked(data: Tensor) -> None:
    """One entry of a plate of components hidden."""
    g = pyro.sample("g", dist.Bernoulli(number(0.5)))
    hidden = torch.tensor([True, False, True])
    with pyro.plate("components", 3), poutine.mask(mask=hidden):
        b = pyro.sample("b", dist.Normal(0.0, torch.where(g > 0, number(3.0), number(0.05))))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(b.sum(-1, keepdim=True), 1.0), obs=data)


@pytest.mark.parametrize("model", [scaled, masked])
def test_scales_and_masks_of_a_summed_prior_are_those_of_pyro(model: Any) -> None:
    y = rows_about(0.18, 10)
    program = Program(model, y)
    at = {name: value[0] for name, value in program.draw_prior(1, seed=0).items()}
    conditioned = config_enumerate(poutine.condition(model, at))
    loss = TraceEnum_ELBO(max_plate_nesting=1).loss(conditioned, lambda _: None, y)
    close(program.log_marginal(at) + program.log_prior(at), -loss, 1e-7)


def test_data_sets_side_by_side_share_no_latent() -> None:
    program = Program(shifted, rows_about(2.2)[:, None])
    potential = PotentialOfSets(program, {"b": number(0.0)[None]}, num_sets=2)
    with pytest.raises(ValueError, match="several data sets at once: .* share no latent"):
        potential(torch.zeros(2, 1, dtype=F64))


# ------------------------------------------------------------ what is said of rows, and of no row


def test_latents_of_columns_are_no_latents_of_rows() -> None:
    data = regressed()
    found = fit(
        chosen_columns,
        data,
        method=EM(),
        init={"share": number(0.4), "shift": number(3.0), "b": torch.zeros(COLUMNS, dtype=F64)},
    )
    posterior = found.posterior_latents(data)
    assert list(posterior) == ["g", "kind"]
    assert posterior["g"].shape == (COLUMNS, 2)
    density = [
        stats.norm.logpdf(found.params["b"], 0, scale) + math.log(share)
        for scale, share in ((0.05, 0.7), (3.0, 0.3))
    ]
    close(posterior["g"], torch.tensor(np.stack(density, -1)).softmax(-1))
    assert float(posterior["g"][0, 1]) > 0.99
    assert float(posterior["g"][1:, 1].max()) < 0.1
    assert found.latents == {"kind": (1, 2)}
    assert list(posterior_frame(found, data).columns) == ["P(kind=0)", "P(kind=1)", "kind"]
    assert found.predict(data).shape == (len(data),)
    close(found.log_likelihood_rows(data).sum(), found.log_likelihood)
    latents = found.to_arviz(data).latent_posterior
    assert latents["kind"].dims == ("unit", "kind_dim_0")
    assert latents["g"].dims == ("g_dim_0", "g_dim_1")
    parts = page(found.structure, Subject(found, data, None, None))
    tables = [part for part in parts if isinstance(part, Table)]
    assert [table.rows[0][0] for table in tables] == ["kind", "g[0]"]
    chances = [float(line[2]) for line in tables[1].rows]
    close(chances, posterior["g"][:, 1], 5e-3)  # three digits are shown


def test_rows_in_blocks_count_the_prior_once() -> None:
    data = regressed()
    start = {"share": number(0.4), "shift": number(3.0), "b": torch.zeros(COLUMNS, dtype=F64)}
    whole = fit(chosen_columns, data, method=EM(), init=start)
    blocks = RowBlocks.of(data, block_rows=25)
    parts = fit(chosen_columns, blocks, method=EM(), init=start)
    close(parts.objective, whole.objective, 1e-8)
    for name, value in whole.params.items():
        close(parts.params[name], value, 1e-5)
    for name, value in whole.posterior_latents(data).items():
        close(whole.posterior_latents(blocks)[name], value)


def test_a_latent_that_rows_share_refuses_blocks() -> None:
    y = rows_about(2.2)[:, None]
    blocks = RowBlocks.of(y, block_rows=20)
    with pytest.raises(ValueError, match="independent given its parameters"):
        fit(shifted, blocks, method=EM())
    found = fit(shifted, y, method=EM(), init={"b": number(-1.8)})
    for ask in (found.posterior_latents, found.log_likelihood_rows):
        with pytest.raises(
            ValueError,
            match="RowBlocks: the latent 'g', which stands outside .* depends on all rows together",
        ):
            ask(blocks)


def test_saem_refuses_a_latent_of_columns() -> None:
    with pytest.raises(
        ValueError,
        match=r"latent site 'g' .* in the plates \('columns',\) cannot be sampled",
    ):
        fit(chosen_columns, regressed(), method=SAEM())


def test_simulated_latents_belong_to_the_given_parameters() -> None:
    """g is drawn from p(g | b), which at b = 0.08 is far from its prior."""
    b = number(0.08)
    density = torch.tensor([stats.norm.logpdf(b, 0, scale) for scale in PRIOR.values()])
    chance = float(density.softmax(0)[1])
    drawn = torch.stack([simulate(shifted, {"b": b}, seed, None, 1)["g"] for seed in range(200)])
    assert abs(float(drawn.double().mean()) - chance) < 4 * math.sqrt(chance * (1 - chance) / 200)
    program = Program(shifted, rows_about(2.2)[:, None])
    copies = [replicate(program, {"b": number(2.0)}, seed)["y"].mean() for seed in range(20)]
    assert min(copies) > 5  # with b = 2 the latent is on, and the rows lie about 6


# ---------------------------------------------------------------- what cannot be summed


def outside_any_plate(data: Tensor) -> None:
    g = pyro.sample("g", dist.Bernoulli(number(0.5)))
    b = pyro.sample("b", dist.Normal(torch.zeros(2, dtype=F64), torch.where(g > 0, 3.0, 0.05)))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(b.sum(-1, keepdim=True), 1.0), obs=data)


def another_support(data: Tensor) -> None:
    g = pyro.sample("g", dist.Bernoulli(number(0.5)))
    b = pyro.sample("b", dist.Uniform(0.0, torch.where(g > 0, number(3.0), number(0.5))))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal(b, 1.0), obs=data)


def all_entries(data: Tensor) -> None:
    with pyro.plate("columns", 2):
        g = pyro.sample("g", dist.Bernoulli(number(0.5)))
        b = pyro.sample("b", dist.Normal(0.0, number(1.0)))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Normal((g * b).sum(-1, keepdim=True), 1.0), obs=data)


def another_plate(data: Tensor) -> None:
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Bernoulli(number(0.5)))
    mean = pyro.sample("mean", dist.Normal(number(0.0), 1.0))
    with pyro.plate("lines", len(data)):
        pyro.sample("y", dist.Normal(mean + z, 1.0), obs=data)


def wrong_shapes(data: Tensor) -> None:
    means = pyro.sample("means", dist.Normal(0.0, torch.ones(3, dtype=F64)).to_event(1))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(torch.ones(3, dtype=F64)))
        chosen = torch.cat([z.new_zeros(1), z])[1:]
        pyro.sample("y", dist.Normal(means[chosen.long()], 1.0), obs=data)


def chooses(data: Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(number(0.0), 1.0))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Bernoulli(number(0.5)))
        pyro.sample("y", dist.Normal(mean + (1.0 if z[0] > 0 else 0.0), 1.0), obs=data)


REFUSED = {
    "entries outside a plate": (
        outside_any_plate,
        r"parameter 'b' .* depends on a discrete latent and has 2 values in dim -1",
    ),
    "support": (
        another_support,
        "parameter 'b' .* has a support that depends on a discrete latent",
    ),
    "all entries of a plate": (
        all_entries,
        "site 'y' .* depends on all entries of the latent 'g' in the plate 'columns'",
    ),
    "another plate": (
        another_plate,
        (
            "site 'y' .* depends on all entries of the latent 'z' in the plate 'rows', .* put it"
            " inside"
        ),
    ),
    "shapes": (
        wrong_shapes,
        r"on the left of the plates, so that shapes must broadcast from the right$",
    ),
    "choices": (chooses, "not with if"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_summed_is_refused_with_its_cause(name: str) -> None:
    model, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        Program(model, rows_about(0.5, 5)).check_enumerable()


# ---------------------------------------------------------------- strategies of enumeration


def mixture(infer: dict[str, Any]) -> Any:
    """Two kinds of rows, whose latent names a strategy."""

    def model(data: Tensor) -> None:
        weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=F64)))
        means = pyro.sample("means", dist.Normal(0.0, 5 * torch.ones(2, dtype=F64)).to_event(1))
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Categorical(weights), infer=infer)
            pyro.sample("y", dist.Normal(means[z], 1.0), obs=data)

    return model


@pytest.mark.parametrize(
    "infer",
    [{"enumerate": "sequential"}, {"enumerate": "parallel", "num_samples": 3}],
    ids=["sequential", "sampled"],
)
def test_a_latent_is_summed_whatever_strategy_it_names(infer: dict[str, Any]) -> None:
    y = torch.cat([rows_about(-2.0, 20), rows_about(2.0, 30)])
    at = {
        "weights": torch.tensor([0.4, 0.6], dtype=F64),
        "means": torch.tensor([-1.0, 1.0], dtype=F64),
    }
    plain, named = Program(mixture({}), y), Program(mixture(infer), y)
    close(named.log_marginal(at), plain.log_marginal(at))
    fits = [fit(mixture(own), y, method=EM(), init=at) for own in ({}, infer)]
    close(fits[1].log_likelihood, fits[0].log_likelihood)
    close(fits[1].posterior_latents(y)["z"], fits[0].posterior_latents(y)["z"])


# ------------------------------------------------- recorded values, factors, reparametrised sites


def with_extra(extra: str) -> Any:
    """Two kinds of rows, and one statement more: in a plate of components, of rows, or in none."""

    def model(data: Tensor) -> None:
        weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=F64)))
        with pyro.plate("components", 2):
            noise = dist.transforms.AffineTransform(0.5, number(2.0))
            distribution: Any = (
                dist.TransformedDistribution(dist.Normal(number(0.0), 1.0), noise)
                if extra == "transformed"
                else dist.Normal(number(0.5), 2.0)
            )
            means = pyro.sample("means", distribution)
            if extra == "recorded":
                pyro.deterministic("twice", 2 * means, event_dim=0)
            if extra == "delta":
                means = pyro.sample("same", dist.Delta(means))
            if extra == "factor":
                pyro.factor("pull", -means.square())
        if extra == "shared factor":
            pyro.factor("pull", -means.square().sum())
        with pyro.plate("rows", len(data)):
            z = pyro.sample("z", dist.Categorical(weights))
            if extra == "row effects":
                means = pyro.sample("effect", dist.Normal(means[z], 1.0))
            else:
                means = means[z]
            if extra == "recorded in rows":
                pyro.deterministic("mean", means, event_dim=0)
            if extra == "factor in rows":
                pyro.factor("pull", -means.square())
            pyro.sample("y", dist.Normal(means, 1.0), obs=data)

    config = {
        "reparametrised": {"means": LocScaleReparam(0.0)},
        "transformed": {"means": TransformReparam()},
        "row effects": {"effect": LocScaleReparam(0.0)},
    }
    return poutine.reparam(model, config.get(extra, {}))


EXTRAS = (
    "recorded",
    "delta",
    "factor",
    "shared factor",
    "reparametrised",
    "transformed",
    "recorded in rows",
    "factor in rows",
    "row effects",
)


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_log_joint_is_that_of_pyro(extra: str) -> None:
    y = torch.cat([rows_about(-2.0, 6), rows_about(2.0, 8)])
    program = Program(with_extra(extra), y)
    at = {name: value[0] for name, value in program.draw_prior(1, seed=3, local=True).items()}
    conditioned = config_enumerate(poutine.condition(with_extra(extra), at))
    with in_dtype(F64), pyro.validation_enabled(False):
        loss = TraceEnum_ELBO(max_plate_nesting=1).loss(conditioned, lambda _: None, y)
    close(program.log_marginal(at) + program.log_prior(at), -loss)
    assert program.names("local") == (("effect_decentered",) if extra == "row effects" else ())
    close(program.log_marginal_rows(at).sum(), program.log_marginal(at))


@pytest.mark.parametrize("extra", [name for name in EXTRAS if name != "row effects"])
def test_em_fits_a_program_with_one_more_statement(extra: str) -> None:
    """A recorded value changes no estimate; a factor moves it to where the log joint is largest."""
    y = torch.cat([rows_about(-2.0, 20), rows_about(2.0, 30)])
    model, plain = with_extra(extra), with_extra("")
    found, usual = (fit(own, y, method=EM(tolerance=1e-9), seed=1) for own in (model, plain))
    if "factor" not in extra:
        close(found.log_likelihood, usual.log_likelihood, 1e-4)
        return
    factors = {"factor in rows": 0.0}.get(extra, -float(found.params["means"].square().sum()))
    close(
        found.objective - found.log_likelihood - factors,
        Program(plain, y).log_prior(found.params),
        1e-8,
    )
    leaves = {name: value.detach().clone().requires_grad_() for name, value in found.params.items()}
    program = Program(model, y)
    (slope,) = torch.autograd.grad(
        program.log_marginal(leaves) + program.log_prior(leaves), leaves["means"]
    )
    assert float(slope.abs().max()) < 1e-3
