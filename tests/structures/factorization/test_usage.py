"""Binary usage of components: the sampler against exact sums over all ways to allot the counts."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import gammaln, logsumexp
from support.counts import simulated

from inference import SAEM, fit
from inference.acdc import acdc
from inference.base.structure import component_noise
from inference.engines.gibbs_estimates import log_likelihood_rows
from inference.metrics import match_components
from inference.programs.program import Program
from inference.structures.factorization.usage import UsageGibbs
from inference.structures.registry import structure_of
from ppl_models import PoissonFactorization, UsageFactorization

pytestmark = pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")

F64 = torch.float64
PHI = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.1, 0.8, 0.1]])
PI, AMOUNTS = np.array([0.4, 0.7, 0.5]), np.array([5.0, 2.0, 3.0])
ROWS = np.array(
    [[2.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [5.0, 0.0, 1.0], [0.0, 4.0, 0.0]]
)


def splits(count: int, parts: int) -> list[tuple[int, ...]]:
    return [c for c in itertools.product(range(count + 1), repeat=parts) if sum(c) == count]


def exactly(
    x: np.ndarray, shape: float, seen: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log p(x, b) of every b, the configurations, and E[b z | x, b]: sums over the allotments of
    every count.

    Given b the allotted totals are negative binomial, and their columns multinomial.
    """
    seen = np.ones(len(x), bool) if seen is None else seen
    configurations, logs, means = list(itertools.product((0, 1), repeat=len(PI))), [], []
    for b in configurations:
        on = np.flatnonzero(b)
        terms, amount = [], []
        for choice in itertools.product(*[splits(int(v), len(on)) for v in x[seen]]):
            y = np.array(choice).reshape(seen.sum(), len(on)).T  # (on, J)
            value = 0.0
            rate, mass = shape / AMOUNTS[on], PHI[on][:, seen].sum(1)
            total = y.sum(1)
            value += (
                (
                    stats.poisson.logpmf(0, 0.0)
                    + (y * np.log(PHI[on][:, seen]) - gammaln(y + 1)).sum()
                )
                if len(on)
                else 0.0
            )
            value += (
                gammaln(shape + total)
                - gammaln(shape)
                + shape * np.log(rate)
                - (shape + total) * np.log(rate + mass)
            ).sum()
            terms.append(value)
            full = np.zeros(len(PI))
            full[on] = (shape + total) / (rate + mass)
            amount.append(full)
        if not len(on) and x[seen].sum() > 0:
            terms, amount = [-math.inf], [np.zeros(len(PI))]
        weight = (
            np.exp(np.array(terms) - logsumexp(terms))
            if np.isfinite(logsumexp(terms))
            else np.ones(1)
        )
        means.append(weight @ np.array(amount))
        logs.append(logsumexp(terms) + stats.bernoulli.logpmf(b, PI).sum())
    return np.array(logs), np.array(configurations), np.array(means)


def params(num: int = 1) -> dict[str, torch.Tensor]:
    one = {"signatures": PHI, "proportions": PI, "amounts": AMOUNTS}
    return {
        name: torch.tensor(value, dtype=F64).expand(num, *value.shape)
        for name, value in one.items()
    }


@pytest.mark.slow
def test_draws_have_the_exact_posterior() -> None:
    for shape, gone in ((1.0, False), (2.5, True)):
        data = torch.tensor(ROWS).clone()
        if gone:
            data[torch.arange(5), torch.tensor([2, 0, 0, 2, 0])] = math.nan
        gibbs = UsageGibbs.build(UsageFactorization(3, 3, shape=shape).usage(), data)
        generator, at = torch.Generator().manual_seed(0), params(20)
        latents = gibbs.begin(at, generator)
        bits, joint, amounts = [], [], []
        for t in range(350):
            latents, chances = gibbs.sweep(at, latents, generator)
            if t >= 50:
                joint.append(latents["usage"])
                bits.append(chances["usage"])
                amounts.append(chances["activities"])
        code = (
            (torch.stack(joint) * torch.tensor([4.0, 2.0, 1.0], dtype=F64)[:, None]).sum(-2).long()
        )  # (T, R, N)
        for n, row in enumerate(data.numpy()):
            seen = ~np.isnan(row)
            logs, configurations, means = exactly(np.nan_to_num(row), shape, seen)
            posterior = np.exp(logs - logsumexp(logs))
            found = (
                torch.bincount(code[:, :, n].flatten(), minlength=8).numpy() / code[:, :, n].numel()
            )
            spread = (
                torch.nn.functional.one_hot(code[:, :, n], 8).double().mean(0).std(0)
                / math.sqrt(20)
            ).numpy()  # chains
            assert (np.abs(found - posterior) < 6 * spread + 3e-3).all(), (n, found, posterior)
            rao = torch.stack(bits)[:, :, :, n].mean((0, 1)).numpy()
            assert np.abs(rao - posterior @ configurations).max() < 0.015
            mean = torch.stack(amounts)[:, :, :, n].mean((0, 1)).numpy()
            assert np.abs(mean - posterior @ means).max() < 0.03 * (1 + (posterior @ means).max())


def test_the_samplers_density_is_the_programs() -> None:
    """Where every component is present; an absent one's amount has no place in a collapsed
    chain.
    """
    data = torch.tensor(ROWS).clone()
    data[0, 1] = math.nan
    model, at = UsageFactorization(3, 3, shape=2.5), params()
    gibbs = UsageGibbs.build(model.usage(), data)
    z = 1 + torch.rand(1, 5, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    latents = {"usage": torch.ones(1, 3, 5, dtype=F64), "activities": z.mT}
    program = Program(model, data)
    by_program = program.log_joint_rows(
        {k: v[0] for k, v in at.items()} | {"activities": z[0]},
        {"usage": torch.ones(5, 3, dtype=F64)},
    )
    torch.testing.assert_close(gibbs.log_joint_rows(at, latents)[0], by_program)


def test_the_bound_lies_below_the_likelihood_and_near_it() -> None:
    data, at = torch.tensor(ROWS), params(8)
    gibbs, generator = (
        UsageGibbs.build(UsageFactorization(3, 3).usage(), data),
        torch.Generator().manual_seed(0),
    )
    estimate = log_likelihood_rows(gibbs, at, generator)
    found, bounds = estimate.rows.numpy(), estimate.bounds.numpy()
    plain = found - estimate.variances.numpy() / 2
    exact = np.array([logsumexp(exactly(row, 1.0)[0]) for row in ROWS])
    assert (plain.mean(0) < exact + 3 * plain.std(0) / math.sqrt(8)).all()
    assert np.abs(found.mean(0) - exact).max() < 0.2
    assert (bounds.mean(0) < found.mean(0)).all()
    ratio = np.exp(plain - exact).mean(0)  # the mean weight is unbiased
    assert np.abs(ratio - 1).max() < 0.2


@pytest.mark.slow
def test_usage_is_found_and_its_chances_are_calibrated() -> None:
    data, usage, truth = simulated(150, 3)
    result = fit(UsageFactorization(20, 4), data, SAEM(max_iterations=60))
    plain = fit(PoissonFactorization(20, 4), data)
    match = match_components(result.params["signatures"], truth["signatures"])
    assert match.cosine_error.max() < 0.01
    assert result.num_parameters == 4 * 21
    assert result.elbo is not None
    assert result.elbo < result.log_likelihood
    assert result.local is None
    order = torch.tensor(match.estimated)[np.argsort(match.true)]
    chance = result.posterior_latents(data)["usage"][:, order]
    right = ((chance > 0.5) == (usage > 0.5)).double().mean()
    assert right > 0.88
    brier = (chance - usage).square().mean()
    expected = (chance * (1 - chance)).mean()  # what it is where the chances are right
    assert brier < 1.6 * expected
    plain_match = match_components(plain.params["signatures"], truth["signatures"])
    activities = plain.local["activities"][
        :, torch.tensor(plain_match.estimated)[np.argsort(plain_match.true)]
    ]
    thresholded = max(
        ((activities > t) == (usage > 0.5)).double().mean() for t in (0.1, 1.0, 3.0, 5.0)
    )
    assert right > thresholded + 0.03
    decoded = result.decode_latents(data)
    assert set(decoded) == {"usage"}


def test_noise_is_uniform_where_the_model_is_right() -> None:
    """At the true parameters, activities drawn and not estimated: no column of no component stands
    out.
    """
    data, usage, truth = simulated(300, 5)
    noise = component_noise(
        structure_of(UsageFactorization(20, 4)), truth, data, torch.Generator().manual_seed(0), 2
    )
    assert noise.scores.shape == (2, len(data), 4, 20)
    for m in range(2):
        p = [
            stats.kstest(noise.scores[m, noise.used[m, :, k], k, j], "norm").pvalue
            for k in range(4)
            for j in range(20)
        ]
        assert min(p) > 1e-4 / len(p)
        assert stats.kstest(p, "uniform").pvalue > 1e-4
    fits = {
        4: replace(
            fit(UsageFactorization(20, 4), data, SAEM(max_iterations=1, num_burn_in=0)),
            params=truth,
        )
    }
    found = acdc(fits, data)
    assert (found.raw[4] - found.null_mean[4] < 4 * found.null_sd[4]).all()
    assert np.abs(found.num_used[4] - usage.sum(0).numpy()).max() < 0.2 * len(
        data
    )  # expected rows, not all of them


@pytest.mark.slow
def test_too_few_components_show_in_their_noise() -> None:
    data, _, _ = simulated(300, 6)
    fits = {k: fit(UsageFactorization(20, k), data, SAEM(max_iterations=20)) for k in (3, 4, 5)}
    result = acdc(fits, data)
    assert (result.table.misfitting > 0).tolist() == [True, False, False]
    assert result.left[4] < min(result.left[3], result.left[5])


def test_rows_of_zeros_count_as_rows_that_use_nothing() -> None:
    """One component of amounts that show: the share of rows with counts is its proportion."""
    rng = np.random.default_rng(0)
    used = rng.random(300) < 0.4
    rows = rng.poisson(used[:, None] * rng.gamma(4.0, 10.0, size=(300, 1)) * PHI[0])
    assert 80 < (rows.sum(1) == 0).sum() < 220
    fitted = fit(UsageFactorization(3, 1, shape=4.0), rows)
    assert float(fitted.params["proportions"][0]) == pytest.approx(
        (rows.sum(1) > 0).mean(), abs=2e-3
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: UsageFactorization(4, 5),
            "UsageFactorization: num_components = 5 exceeds num_items",
        ),
        (
            lambda: fit(UsageFactorization(2, 2), [[1.0, 2.0]]),
            "UsageFactorization: num_components = 2 needs at least as many rows",
        ),
        (lambda: UsageFactorization(4, 2, shape=0.1), "shape must be at least 0.5"),
        (
            lambda: UsageFactorization(4, 2, concentration=0.0),
            "UsageFactorization: concentration must be at least 1",
        ),
        (lambda: UsageFactorization(4, 2)(), "give data, or num_rows"),
        (lambda: fit(UsageFactorization(2, 1), [[1.0, -2.0], [3.0, 1.0]]), "negative value"),
        (lambda: fit(UsageFactorization(2, 1), [[1.0, 2.5], [3.0, 1.0]]), "whole counts"),
        (
            lambda: fit(UsageFactorization(2, 2), [[0.0, 0.0], [3.0, 1.0]]),
            "rows with counts, got 1",
        ),
        (
            lambda: fit(UsageFactorization(2, 1), [[math.nan] * 2, [3.0, 1.0]]),
            "row 0 has no observed entry",
        ),
        (
            lambda: fit(UsageFactorization(2, 1), [[1.0, 2.0], [3.0, 1.0]], SAEM(synchronous=True)),
            "one component after another",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
