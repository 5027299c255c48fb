"""How many components, of which distribution: the rule's arithmetic by hand, its answers on
simulated tables, and its words.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import optimize

from inference import fit
from inference.acdc import Bootstrap, acdc
from inference.acdc.criterion import drawn_like
from inference.report.how_many import how_many_answer, how_many_verdict
from inference.selection import DistributionsAndNumbers, select_components, select_dimension
from inference.selection.order_selection.counting import Grid, candidate_of, misfit_of
from inference.selection.order_selection.detectability import (
    LENIENT,
    detectable_variance,
    noise_edge,
    smallest_share,
    weakest_signal,
)
from inference.selection.order_selection.kinds.factorization import climb_from, stop_of
from inference.structures.factorization.factorize import Factorize
from ppl_models import (
    GaussianFactorization,
    Mixture,
    NegativeBinomialFactorization,
    Poisson,
    PoissonFactorization,
)


def table(n, j, k, size=None, seed=0, counts=60.0):
    """Counts with k components, negative binomial of this size where one is given."""
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(j, 0.3), size=k)
    mu = (rng.gamma(1.0, counts, size=(n, k)) + 1) @ phi
    x = rng.poisson(mu if size is None else mu * rng.gamma(size, 1 / size, mu.shape)).astype(float)
    x[x.sum(1) == 0, 0] = 1
    return x


@pytest.fixture(scope="module")
def poisson():
    x = table(80, 30, 4)
    return x, select_components(PoissonFactorization, x, range(2, 7), num_restarts=4, seed=1)


def test_poisson_counts_are_called_so_and_counted(poisson):
    _, found = poisson
    assert found.num_components == found.interval[1] == 4
    assert found.status in ("confident", "unsure")
    assert not found.contradicted
    assert found.distribution == "Poisson" or float(found.fit.params["dispersion"]) < 0.01
    assert found.fit.model.num_components == 4


def test_penalties_and_gains_by_hand(poisson):
    x, found = poisson
    n, j = x.shape
    for (distribution, k), one in found.fits.items():
        row = found.table.loc[(distribution, k)]
        extra = 0.0 if distribution == "Poisson" else math.log(n * j)
        assert row["strict"] == pytest.approx(
            -2 * one.log_likelihood + k * (j - 1) * math.log(n) + n * k * math.log(j) + extra
        )
        assert row["lenient"] == pytest.approx(
            -2 * one.log_likelihood + k * LENIENT * (n**0.5 + j**0.5) ** 2 + extra
        )
        if k > 2:
            gain = (
                2
                * (one.log_likelihood - found.fits[distribution, k - 1].log_likelihood)
                / (n**0.5 + j**0.5) ** 2
            )
            assert row["gain_in_edges"] == pytest.approx(gain)
    assert (
        found.table["lenient"].idxmin() == (found.distribution, found.interval[1])
        or found.interval[0] != found.interval[1]
    )
    superfluous = found.table.loc[("Poisson", 5), "gain_in_edges"]
    assert 0 < superfluous < 1.1  # a component that is only noise
    assert found.table.loc[("Poisson", 4), "gain_in_edges"] > LENIENT


def test_a_larger_number_and_a_wider_distribution_are_never_lower(poisson):
    _, found = poisson
    for (distribution, k), one in found.fits.items():
        for other in ((distribution, k - 1), ("Poisson", k)):
            if other in found.fits:
                assert one.log_likelihood > found.fits[other].log_likelihood - 0.05


@pytest.mark.slow
def test_overdispersed_counts_find_their_distribution():
    found = select_components(
        PoissonFactorization, table(120, 24, 3, size=3.0, seed=2), range(1, 5), num_restarts=2
    )
    assert (found.num_components, found.distribution) == (
        3,
        "negative binomial with quadratic variance",
    )


@pytest.mark.slow
def test_a_distribution_that_is_missing_is_missed():
    x = table(100, 60, 2, size=8.0, seed=2, counts=120.0)
    alone = select_components(
        PoissonFactorization, x, range(1, 14), distributions=[PoissonFactorization], num_restarts=1
    )
    assert alone.contradicted
    assert alone.misfit > 3
    assert alone.held_out == alone.num_components == 2
    assert "The Poisson distribution is contradicted" in alone.verdict


def test_rows_without_counts_are_drawn_again_where_a_null_is_refitted():
    x = table(60, 12, 2, seed=4, counts=0.5)
    one = fit(PoissonFactorization(12, 2), x, num_restarts=1)
    assert (one.simulate(60, seed=1)["items"].sum(1) == 0).any()
    found = acdc({2: one}, x, calibrate=Bootstrap(3, refit=True))
    assert np.isfinite(found.null_mean[2]).all()


def test_the_end_of_the_grid_is_no_answer():
    found = select_components(
        PoissonFactorization, table(60, 20, 5, counts=200.0), range(1, 4), num_restarts=3
    )
    assert found.status == "grid too short"
    assert "At least" in found.verdict


def test_the_smallest_number_of_a_grid_above_one_is_no_evidence():
    found = select_components(
        PoissonFactorization, table(60, 20, 2, counts=200.0), range(3, 6), num_restarts=2
    )
    assert found.num_components == 3
    assert found.status == "unsure"
    assert "smaller numbers were not compared" in found.verdict
    short = replace(found, status="grid too short", reasons=())
    assert "At least" not in short.verdict
    assert "smaller numbers were not compared" in short.verdict
    title = how_many_answer(short).title
    assert title.startswith("How many components? 3, for 60 rows")


def test_the_weakest_signal_is_where_its_gain_meets_the_penalty():
    for n, j in ((80, 96), (100, 100), (21, 60)):
        signal = weakest_signal(n, j)
        assert signal + n + j + n * j / signal == pytest.approx(LENIENT * noise_edge(n, j))
        assert signal > math.sqrt(n * j)
    assert weakest_signal(100, 100) == pytest.approx(
        300, rel=0.01
    )  # three times n for a square table
    assert smallest_share(80, 96, 1500, 8) == pytest.approx(0.15, abs=0.005)
    assert smallest_share(80, 96, 1500, 8, 4.0) == pytest.approx(0.07, abs=0.005)


def with_a_weak_component(times):
    """A fourth component in six rows of eighty, at some times the share that is stated for what
    tells it from the others.
    """
    rng = np.random.default_rng(3)
    phi = rng.dirichlet(np.full(30, 0.6), size=4)
    z = rng.gamma(2.0, 60.0, size=(80, 4)) + 1
    mean = phi[:3].mean(0)
    root = mean**-0.5
    difference = optimize.nnls((phi[:3] * root).T, phi[3] * root)[1] ** 2
    share = times * smallest_share(80, 30, float(np.median(z[:, :3].sum(1))), 6, difference)
    z[:6, 3] = share / (1 - share) * z[:6, :3].sum(1)
    z[6:, 3] = 0
    return rng.poisson(z @ phi).astype(float)


@pytest.mark.parametrize(("times", "num"), [pytest.param(0.6, 3, marks=pytest.mark.slow), (1.8, 4)])
def test_a_weak_component_is_counted_above_the_stated_share_alone(times, num):
    found = select_components(
        PoissonFactorization,
        with_a_weak_component(times),
        range(2, 6),
        distributions=[PoissonFactorization],
        num_restarts=3,
    )
    assert found.num_components == num


@pytest.mark.parametrize(
    ("times", "num", "word"),
    [pytest.param(0.6, 3, "confident", marks=pytest.mark.slow), (1.1, 4, "unsure")],
)  # at the share that noise hides (1.0) a climb sees it in two tables of eight
def test_a_climb_stops_at_noise_and_goes_on_at_what_both_penalties_miss(times, num, word):
    x = with_a_weak_component(times)
    found = select_components(
        PoissonFactorization,
        x,
        range(2, 6),
        distributions=[PoissonFactorization],
        num_restarts=3,
        bootstrap=6,
    )
    climb, gains = found.climb, found.table["gain_in_edges"].xs("Poisson") * noise_edge(80, 30)
    assert found.interval == (3, 3)
    assert climb.start.model.num_components == 3
    assert (climb.num_components, found.status) == (num, word)
    assert 0.5 < climb.null_gain / noise_edge(80, 30) < 1.0  # below the edge, where noise lies
    assert (gains[4] >= 1.4 * climb.null_gain) == (num == 4)
    assert gains[5] < 1.4 * climb.null_gain
    assert not climb.at_end
    assert ("stops at 4" in found.verdict) == (num == 4)
    assert f"by a bootstrap climb {num}" in repr(found)
    finding = next(
        one
        for one in how_many_verdict(found).findings
        if one.question == "What would noise alone gain?"
    )
    assert finding.mark == ("care" if num == 4 else "good")
    assert len(found.plot().axes[1].lines) == 4  # gains, the number, four thirds, the climb's


def test_where_a_climb_stops_by_hand():
    deviance = {2: 1000.0, 3: 800.0, 4: 650.0, 5: 600.0, 6: 300.0}
    assert (
        stop_of(deviance, 2, 100.0) == 4
    )  # 200, 150 and 50 against 140; what comes behind 5 does not count
    assert stop_of(deviance, 5, 100.0) == 6  # the end
    assert stop_of(deviance, 4, 10.0) == 6
    assert stop_of({2: 1000.0, 5: 700.0, 6: 690.0}, 2, 70.0) == 5  # a hundred each


def test_tables_of_a_climb_miss_what_the_data_miss_and_serve_the_check_of_the_distribution(
    monkeypatch,
):
    x = table(40, 12, 2, counts=30.0)
    x[3, :11] = np.nan
    x[3, 11] = 5
    fits = {k: fit(PoissonFactorization(12, k), x, num_restarts=2) for k in (1, 2, 3)}
    data = torch.as_tensor(x)
    candidate = candidate_of(PoissonFactorization(12, 2))
    grid = Grid([candidate], (1, 2, 3), data, data, 1, 0, Factorize(), bootstrap=6)
    climb = climb_from(grid, candidate, 2, fits, 1)
    assert all(
        torch.equal(own.isnan(), data.isnan()) and (own.nansum(1) > 0).all() for own in climb.tables
    )
    assert all(
        one.log_likelihood
        == pytest.approx(
            fit(PoissonFactorization(12, 2), own, init=one, num_restarts=1).log_likelihood, abs=0.05
        )
        for one, own in zip(climb.fits, climb.tables, strict=True)
    )
    drawn = []
    monkeypatch.setattr(
        "inference.acdc.criterion.drawn_like",
        lambda *given: drawn.append(given) or drawn_like(*given),
    )
    own, _ = misfit_of(fits[2], x, 0, climb)
    assert not drawn
    other, _ = misfit_of(fits[2], x, 0)
    assert len(drawn) == 8
    assert abs(own - other) < 3


@pytest.mark.slow
def test_the_plain_call_climbs_where_its_criterion_says_so(poisson):
    x, found = poisson
    chosen = select_dimension(
        PoissonFactorization,
        x,
        range(3, 6),
        criterion=DistributionsAndNumbers(bootstrap=2),
        num_restarts=1,
        seed=1,
    )
    assert chosen.answer.climb.num_components == 4
    assert len(chosen.answer.climb.tables) == 2
    assert found.climb is None


def test_the_variance_that_would_be_seen_falls_with_the_rows():
    values = [detectable_variance(n, 96) for n in (21, 80, 214, 1000, 4000)]
    assert values == sorted(values, reverse=True)
    assert values[:3] == pytest.approx([2.4, 1.22, 1.13], rel=0.15)
    assert values[4] - 1 == pytest.approx((values[3] - 1) / 2)
    assert detectable_variance(2, 96) == math.inf


def test_the_plain_call_of_a_factorization_uses_the_rule(poisson):
    x, found = poisson
    chosen = select_dimension(PoissonFactorization, x, range(2, 7), num_restarts=4, seed=1)
    assert chosen.chosen == found.num_components
    assert chosen.answer.verdict == found.verdict
    assert list(chosen.table.index) == ["2", "3", "4", "5", "6"]


def test_one_seed_one_answer_and_pictures(poisson):
    x, found = poisson
    again = select_components(PoissonFactorization, x, range(2, 7), num_restarts=4, seed=1)
    assert again.verdict == found.verdict
    assert again.table.equals(found.table)
    assert found.plot() is not None
    assert len(repr(found)) < 1500


def test_bad_input():
    x = table(30, 8, 2)
    for call, message in (
        (lambda: select_components(PoissonFactorization, x, [2]), "at least two numbers"),
        (lambda: select_components(PoissonFactorization, x, [0, 1]), "positive integers, got 0"),
        (
            lambda: select_components(PoissonFactorization, x, [2, 3], bootstrap=-1),
            "bootstrap must be 0, or a number of tables of at least 2, got -1",
        ),
        (
            lambda: select_components(PoissonFactorization, x, [2, 3], bootstrap=1),
            "at least 2, got 1",
        ),
        (lambda: select_components(PoissonFactorization, x, [2, 3], bootstrap=True), "got True"),
        (
            lambda: select_components(Mixture(1, Poisson(), 8), x, [2, 3], bootstrap=6),
            "bootstrap is for factorizations of counts",
        ),
        (
            lambda: DistributionsAndNumbers(bootstrap=1),
            "DistributionsAndNumbers: bootstrap must be 0",
        ),
        (
            lambda: select_components(PoissonFactorization, x, [2, 3], distributions=[]),
            "at least one family",
        ),
        (
            lambda: select_components(GaussianFactorization, x, [2, 3]),
            "factorization of counts was expected",
        ),
        (lambda: select_components(PoissonFactorization, x - 5, [2, 3]), "counts"),
        (lambda: select_components(PoissonFactorization, x, [2, 9]), "exceeds num_items"),
        (
            lambda: select_components(
                PoissonFactorization,
                x,
                [2, 3],
                distributions=[PoissonFactorization, GaussianFactorization],
            ),
            "of counts was expected",
        ),
        (
            lambda: select_components(lambda k: NegativeBinomialFactorization(8, k), x[:3], [2, 4]),
            "at least as many rows",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
