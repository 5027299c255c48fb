"""The bootstrap of the likelihood ratio between two sizes: its p-values by hand, what it draws, and
that they are calibrated.
"""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from support.option_sequences import case

from inference import EM, DegenerateWarning, Laplace, fit
from inference.base.structure import split_start
from inference.fitting.problem import problem_of
from inference.selection import likelihood_ratio_test
from inference.selection.likelihood_ratio import Search, simulated_like
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    Mixture,
    MultivariateNormal,
    NoisyOr,
    Normal,
    PoissonFactorization,
)

F64 = torch.float64
QUICK = EM(max_iterations=200, tolerance=1e-7, parameter_tolerance=1.0)
pytestmark = [
    pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::inference.BoundWarning"),
]


def bits(num_rows=80, num_items=4, seed=0):
    return (
        torch.rand(num_rows, num_items, generator=torch.Generator().manual_seed(seed), dtype=F64)
        < 0.5
    ).to(F64)


def classes(size, num_items=4):
    return Mixture(size, Bernoulli(), num_items=num_items)


def two_sizes(data, small=1, large=2):
    return tuple(fit(classes(size, data.shape[1]), data, QUICK) for size in (small, large))


# ---------------------------------------------------------------- p-values by hand


def stub(ratios):
    """Refits whose ratios are known: the first is that of the data, the others those of the
    replicates.
    """
    left = list(ratios)

    def refit(model, data):
        if model.num_components == 1:
            return SimpleNamespace(log_likelihood=-1000.0)
        return SimpleNamespace(log_likelihood=-1000.0 + left.pop(0) / 2)

    return refit


def with_likelihoods(one, value):
    return dataclasses.replace(one, log_likelihood=value)


@pytest.fixture
def invented(monkeypatch):
    """Log-likelihoods of fits that are not those of the rows."""
    monkeypatch.setattr(
        "inference.selection.likelihood_ratio.refuse_other_data", lambda owner, fit, data: None
    )


@pytest.mark.usefixtures("invented")
@pytest.mark.parametrize(
    ("ratios", "stop_after", "p_value", "drawn", "negative"),
    [
        ([5.0, 1, 2, 3, 4, 6, 1, 1, 1, 1], 10, 2 / 10, 9, 0),  # one of nine exceeds
        ([5.0, 1, 2, 3, 4, 4, 1, 1, 1, 1], 10, 1 / 10, 9, 0),  # none: the smallest p-value there is
        (
            [5.0, 1, 6, 5, 9, 9, 9, 9, 9, 9],
            2,
            2 / 3,
            3,
            0,
        ),  # the second that reaches it ends the test: a tie counts
        (
            [0.0, -1, -1, 3, 1, 1, 1, 1, 1, 1],
            99,
            1.0,
            9,
            2,
        ),  # missed optima count as no gain, and are counted
    ],
)
def test_p_values_by_hand(ratios, stop_after, p_value, drawn, negative):
    data = bits()
    small, large = (
        with_likelihoods(one, -1000.0 if one.model.num_components == 1 else -5000.0)
        for one in two_sizes(data)
    )
    found = likelihood_ratio_test(small, large, data, 9, stop_after, refit=stub(ratios))
    assert found.p_value == pytest.approx(p_value)
    assert found.statistic == ratios[0]
    assert len(found.null) == drawn
    assert found.num_negative == negative
    assert f"p = {p_value:.3g}" in found.text()
    assert ("no start of the larger size" in found.text()) == bool(negative)


@pytest.mark.usefixtures("invented")
def test_the_larger_size_gets_the_search_of_the_replicates_alone():
    """A larger fit by more starts than replicates get would make small p-values too frequent."""
    data = bits()
    small, large = two_sizes(data)
    statistic = likelihood_ratio_test(small, large, data, 1).statistic
    for gain in (50, -50):
        other = with_likelihoods(large, small.log_likelihood + gain)
        assert likelihood_ratio_test(small, other, data, 1).statistic == statistic
    better = with_likelihoods(small, small.log_likelihood + 1)
    assert likelihood_ratio_test(better, large, data, 1).statistic == pytest.approx(
        max(0, statistic - 2), abs=1e-3
    )


# ---------------------------------------------------------------- what is drawn


def test_replicates_have_the_gaps_and_lengths_of_the_data():
    data = bits()
    data[::3, 1] = torch.nan
    one = fit(classes(2), data, QUICK)
    drawn = simulated_like(problem_of(one.model, data, 0), one, 7)
    assert torch.equal(drawn.isnan(), data.isnan())
    assert not torch.equal(drawn.nan_to_num(), data.nan_to_num())
    assert torch.equal(
        drawn.nan_to_num(), simulated_like(problem_of(one.model, data, 0), one, 7).nan_to_num()
    )
    model, truth, sequences = case(3)
    options = fit(model, sequences, EM(max_iterations=2), init=truth)
    replicate = simulated_like(problem_of(model, sequences, 0), options, 1)
    assert torch.equal(replicate < 0, sequences < 0)
    assert replicate.dtype == sequences.dtype


def lines(num_classes):
    """Straight lines: what y does with x, which is no one's to draw."""

    def model(data):
        weights = pyro.sample("weights", dist.Dirichlet(torch.full((num_classes,), 2.0, dtype=F64)))
        slope = pyro.sample(
            "slope", dist.Normal(torch.zeros(num_classes, dtype=F64), 5.0).to_event(1)
        )
        with pyro.plate("rows", len(data["x"])):
            z = pyro.sample("z", dist.Categorical(weights))
            pyro.sample("y", dist.Normal(slope[z] * data["x"], 0.5), obs=data["y"])

    return model


def test_covariates_are_those_of_the_data():
    x = torch.linspace(-2, 2, 60, dtype=F64)
    y = x + 0.5 * torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=F64)
    data = {"x": x, "y": y}
    one = fit(lines(1), data, EM(max_iterations=20))
    drawn = simulated_like(problem_of(one.model, data, 0), one, 3)
    assert torch.equal(drawn["x"], x)
    assert abs(float((drawn["y"] * x).sum() / x.square().sum()) - float(one.params["slope"])) < 0.3
    assert not torch.equal(drawn["y"], y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, g, x: likelihood_ratio_test(s, g, x, 0), "num_replicates"),
        (lambda s, g, x: likelihood_ratio_test(s, g, x, stop_after=0), "stop_after"),
        (
            lambda s, g, x: likelihood_ratio_test(s, with_likelihoods(g, math.nan), x),
            "log-likelihood of large is not known",
        ),
    ],
)
def test_what_is_refused(call, message):
    data = bits()
    small, large = two_sizes(data)
    with pytest.raises(ValueError, match=message):
        call(small, large, data)


def test_activities_of_the_rows_have_no_replicate():
    counts = torch.poisson(
        torch.full((30, 5), 4.0, dtype=F64), generator=torch.Generator().manual_seed(0)
    )
    small, large = (fit(PoissonFactorization(5, k), counts) for k in (1, 2))
    with pytest.raises(ValueError, match="activities of the rows"):
        likelihood_ratio_test(small, large, counts)


# ---------------------------------------------------------------- the search


@pytest.mark.parametrize(
    "family",
    [
        classes,
        pytest.param(lambda k: DeepDiscreteEncoder(4, (k,)), marks=pytest.mark.slow),
        pytest.param(lambda k: NoisyOr(4, k), marks=pytest.mark.slow),
    ],
    ids=["classes", "encoder", "noisy-or"],
)
def test_batches_find_what_a_loop_finds(family, monkeypatch):
    data = bits(60)
    data[:25] = (torch.rand(25, 4, generator=torch.Generator().manual_seed(5)) < 0.9).to(F64)
    small, large = (
        fit(family(size), data, QUICK, init="random", num_restarts=3) for size in (1, 2)
    )
    together = likelihood_ratio_test(small, large, data, 2, seed=4)
    monkeypatch.setattr(
        "inference.selection.likelihood_ratio.fits_sets", lambda problem, method: False
    )
    alone = likelihood_ratio_test(small, large, data, 2, seed=4)
    assert torch.allclose(together.null, alone.null, atol=0.2)
    assert together.p_value == alone.p_value


@pytest.mark.parametrize(
    "component", [Bernoulli(), Normal(), MultivariateNormal()], ids=lambda c: type(c).__name__
)
def test_the_largest_class_is_split(component):
    """Three clusters, of which two are one class: the split is near the truth at once."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.tensor([[0.0, 0.0], [4.0, 4.0], [0.0, 8.0]], dtype=F64).repeat_interleave(50, 0)
    data = centres + torch.randn(150, 2, generator=generator, dtype=F64)
    if isinstance(component, Bernoulli):
        data = (data > 2).to(F64).repeat(1, 2)
    model = Mixture(3, component, num_items=data.shape[1])
    smaller = fit(Mixture(2, component, num_items=data.shape[1]), data, QUICK, num_restarts=3)
    problem = problem_of(model, data, 0)
    start = split_start(problem.structure, problem, smaller.params)
    assert start is not None
    first = {name: value[0] for name, value in start.items()}
    found = fit(model, data, EM(max_iterations=5), init=first)
    best = fit(model, data, QUICK, num_restarts=10)
    assert found.log_likelihood > smaller.log_likelihood
    assert found.log_likelihood > best.log_likelihood - 5
    assert split_start(problem.structure, problem, best.params) is None  # not one less


def test_a_latent_is_split_in_any_layer():
    small = fit(DeepDiscreteEncoder(9, (3, 1)), bits(60, 9), EM(max_iterations=5))
    for sizes in ((4, 1), (3, 2)):
        data = bits(60, 9)
        problem = problem_of(DeepDiscreteEncoder(9, sizes), data, 0)
        start = split_start(problem.structure, problem, small.params)
        assert start is not None
        shapes = {name: tuple(value.shape[1:]) for name, value in start.items()}
        like = problem.structure.start(problem, "random", 1)
        assert like is not None
        assert shapes == {name: tuple(value.shape[1:]) for name, value in like.items()}
        assert torch.allclose(start["loadings_1"][0].sum(-1), small.params["loadings_1"].sum(-1))
    problem = problem_of(DeepDiscreteEncoder(9, (5, 1)), bits(60, 9), 0)
    assert split_start(problem.structure, problem, small.params) is None


# ---------------------------------------------------------------- calibration


@pytest.mark.slow
def test_p_values_are_uniform_under_the_smaller_size():
    """Forty tables of fair bits: chi-square with 5 degrees of freedom would call too many of them
    two classes.
    """
    p_values, ratios = [], []
    for seed in range(40):
        data = bits(100, 4, 100 + seed)
        small, large = (fit(classes(size), data, QUICK, num_restarts=4) for size in (1, 2))
        found = likelihood_ratio_test(small, large, data, 39, stop_after=40, seed=1000 * seed)
        p_values.append(found.p_value)
        ratios.append(found.statistic)
        assert found.num_negative == 0
    assert (
        stats.kstest(p_values, "uniform").pvalue > 0.01
    )  # on a grid of fortieths, whose own distance is small beside its width
    assert 1 <= sum(p <= 0.2 for p in p_values) <= 16
    assert sum(ratios) / 40 > 5.5  # the mean of that chi-square is 5


def test_draws_are_no_estimate():
    data = bits(40, 4)
    _, large = two_sizes(data)
    with pytest.raises(ValueError, match="posterior draws"):
        likelihood_ratio_test(fit(classes(1), data, Laplace(20)), large, data)


def test_a_spike_is_no_gain_where_there_is_a_proper_optimum():
    """A component that shrinks onto equal values has the larger likelihood; fits rank it last, and
    so does the test's own search.
    """
    values = torch.randn(60, 1, generator=torch.Generator().manual_seed(0), dtype=F64)
    values[:30] += 5
    data = torch.cat([values, torch.full((25, 1), 0.4321, dtype=F64)])
    clusters, spike = (
        {
            "weights": torch.tensor(w, dtype=F64),
            "predictors": torch.tensor(m, dtype=F64)[:, None],
            "dispersion": torch.tensor(v, dtype=F64)[:, None],
        }
        for w, m, v in (
            ([0.65, 0.35], [0.2, 5.0], [1.0, 1.0]),
            ([0.7, 0.3], [2.5, 0.4321], [6.0, 0.01]),
        )
    )
    small = fit(Mixture(1, Normal()), data, QUICK)
    large = fit(Mixture(2, Normal()), data, QUICK, init=clusters)
    both = {name: torch.stack([clusters[name], spike[name]]) for name in clusters}
    problem = problem_of(large.model, data, 0)
    (found,) = Search(small, large, None)._best(large, [problem], [both])
    with pytest.warns(DegenerateWarning):
        ended = fit(large.model, data, QUICK, init=spike)
    assert ended.log_likelihood > found.log_likelihood + 1
    params = {name: value.unsqueeze(0) for name, value in ended.params.items()}
    assert problem.structure.degenerate(problem, params) != [()]
    assert found.log_likelihood == pytest.approx(large.log_likelihood, abs=0.05)
