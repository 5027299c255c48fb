"""How many components of a mixture, of which distribution, and how many groups: the arithmetic by
hand, answers on simulated rows, words.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import ndtri

from inference import EM, fit
from inference.acdc import acdc
from inference.selection import select_components, select_dimension
from inference.selection.order_selection.counting import candidates_of, misfit_of
from inference.selection.order_selection.groups import (
    entropy,
    groups_of,
    merged_by_entropy,
    misclassified,
)
from ppl_models import (
    Bernoulli,
    GaussianFactorization,
    LogNormal,
    Mixture,
    MultivariateNormal,
    MultivariateT,
    NegativeBinomial,
    Normal,
    Poisson,
    PoissonFactorization,
    SkewNormal,
)

CORNERS = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
FULL = Mixture(1, MultivariateNormal(), 2)
BOTH = [FULL, Mixture(1, MultivariateT(), 2)]


def heavy(num_rows: int = 330, seed: int = 0) -> np.ndarray:
    """Three groups of t rows with four degrees of freedom."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((num_rows, 2)) / np.sqrt(rng.chisquare(4, (num_rows, 1)) / 4)
    return CORNERS[rng.integers(3, size=num_rows)] + noise


@pytest.fixture(scope="module")
def found():
    return select_components(FULL, heavy(), range(1, 5), distributions=BOTH, num_restarts=2, seed=1)


def test_heavy_tails_are_a_distribution_and_not_components(found):
    assert (found.num_components, found.distribution) == (3, "Student t")
    assert not found.contradicted
    assert found.fit.model.num_components == 3
    assert f"({found.status}" in found.sentences[0]
    assert "The Student t distribution is not contradicted" in found.verdict
    assert "Two components that overlap and one group of another shape" in found.verdict
    assert found.table.loc["normal", "bic"].idxmin() > 3  # patches


def test_bic_lenient_and_icl_by_hand(found):
    x = heavy()
    for (distribution, k), one in found.fits.items():
        row = found.table.loc[(distribution, k)]
        num = k - 1 + k * (2 + 3 + (distribution == "Student t"))
        assert row["num_parameters"] == num
        assert row["bic"] == pytest.approx(-2 * one.log_likelihood + num * math.log(len(x)))
        assert row["lenient"] == pytest.approx(-2 * one.log_likelihood + 3 * num)
        r = one.posterior_latents(x)["assignments"].numpy()
        assert row["icl"] - row["bic"] == pytest.approx(
            -2 * (r * np.log(np.maximum(r, 1e-300))).sum(), abs=1e-6
        )


def test_a_larger_number_is_never_lower(found):
    for (distribution, k), one in found.fits.items():
        if (distribution, k - 1) in found.fits:
            assert one.log_likelihood > found.fits[distribution, k - 1].log_likelihood - 0.1
        assert one.log_likelihood > found.fits["normal", k].log_likelihood - 2.1


def test_without_a_grid_numbers_grow_where_six_are_too_few():
    rng = np.random.default_rng(0)
    centres = 12.0 * np.arange(7)
    few, many = (rng.normal(centres[rng.integers(k, size=280)])[:, None] for k in (2, 7))
    compared = [
        sorted(
            {
                k
                for _, k in select_components(
                    Mixture(1, Normal(), 1),
                    x,
                    distributions=[Mixture(1, Normal(), 1)],
                    num_restarts=3,
                ).fits
            }
        )
        for x in (few, many)
    ]
    assert all(own == list(range(1, len(own) + 1)) for own in compared)
    assert 4 <= len(compared[0]) <= 6  # none where a larger number cannot win
    assert 9 <= len(compared[1]) <= 12
    assert {
        k
        for _, k in select_components(
            Mixture(1, Normal(), 1),
            few[:4],
            distributions=[Mixture(1, Normal(), 1)],
            num_restarts=1,
        ).fits
    } <= {1, 2, 3, 4}  # no more than rows


def test_a_few_rows_make_nobody_confident():
    found = select_components(
        Mixture(1, Normal(), 1),
        np.array([[1.0], [2.0], [2.5]]),
        [1, 2],
        distributions=[Mixture(1, Normal(), 1)],
        num_restarts=1,
    )
    assert found.status != "confident"
    assert "3 rows are too few to test a distribution" in found.verdict


@pytest.mark.parametrize(
    ("misfits", "expected", "tables"),
    [
        ((2.0,), 2.0, [8]),
        ((4.0, 1.5), 1.5, [8, 24]),
        ((4.0, 3.5), 3.5, [8, 24]),
        ((12.0,), 12.0, [8]),
    ],
)
def test_a_distribution_is_contradicted_by_a_second_look_alone(
    monkeypatch, misfits, expected, tables
):
    """Between 3 and 10 standard deviations the noise is measured again, with more tables, and that
    counts; a plain misfit is not.
    """
    looks = []

    def measured(one, data, seed, null, num_null):
        looks.append(num_null)
        return misfits[len(looks) - 1], 60.0

    monkeypatch.setattr("inference.selection.order_selection.counting._measured", measured)
    assert misfit_of(object(), None, 0) == (expected, 60.0)
    assert looks == tables


def test_patches_are_groups_where_the_distribution_is_missing():
    alone = select_components(
        FULL, heavy(600, seed=3), range(2, 7), distributions=[FULL], num_restarts=2
    )
    assert alone.status != "confident"
    assert alone.groups.num_separated == 3
    if alone.contradicted:
        assert alone.num_components == 3
        assert "groups of rows, not components" in alone.verdict
        assert "The normal distribution is contradicted" in alone.verdict
    else:
        assert alone.groups.num_fitted > 3


def test_two_scales_at_one_centre_are_two_components_and_one_group():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 2)) * np.where(rng.integers(2, size=(600, 1)) == 1, 3.0, 0.8)
    two = select_components(FULL, x, range(1, 4), distributions=[FULL], num_restarts=2)
    assert (two.num_components, two.status, two.groups.num_clear) == (2, "unsure", 1)
    assert "1 clear group only" in two.verdict


def test_overdispersed_counts_are_negative_binomial():
    rng = np.random.default_rng(0)
    mean = np.array([[2.0, 12.0, 30.0], [20.0, 3.0, 5.0]])[rng.integers(2, size=400)]
    x = rng.poisson(mean * rng.gamma(4, 0.25, mean.shape)).astype(float)
    chosen = select_dimension(lambda k: Mixture(k, Poisson(), 3), x, [1, 2, 3], num_restarts=2)
    assert (chosen.chosen, chosen.answer.distribution) == (2, "negative binomial")
    assert list(chosen.table.index) == ["1", "2", "3"]
    assert {"bic", "lenient", "icl"} <= set(chosen.table.columns)
    assert chosen.best is chosen.answer.fit


def test_misclassification_and_mergers_by_hand():
    r = torch.tensor(
        [[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64
    )
    q = misclassified(r)
    assert q[0].tolist() == pytest.approx([1.5 / 1.7, 0.2 / 1.7, 0.0])
    assert q[1].tolist() == pytest.approx([0.5 / 1.3, 0.8 / 1.3, 0.0])
    groups = groups_of(r)
    assert groups.separated == groups.clear == ((0, 1), (2,))
    assert groups.num_fitted == 3
    merged = merged_by_entropy(r, 2)
    assert merged.sum(1).tolist() == pytest.approx([1.0] * 4)
    assert entropy(merged) == pytest.approx(0, abs=1e-12)  # the pair that shares rows
    assert groups.entropies == pytest.approx({3: entropy(r), 2: 0.0, 1: 0.0}, abs=1e-12)
    sure = torch.eye(3, dtype=torch.float64).repeat(4, 1)
    assert groups_of(sure).num_clear == 3


def test_distributions_that_are_offered():
    names = {
        FULL: ["normal", "Student t", "skew-normal"],
        Mixture(1, SkewNormal(), 2): ["normal", "Student t", "skew-normal"],
        Mixture(1, Normal(), 1): ["normal", "Student t", "skew-normal"],
        Mixture(1, Normal(), 2): [
            "normal with independent columns",
            "normal",
            "Student t",
            "skew-normal",
        ],
        Mixture(1, NegativeBinomial(), 3): ["Poisson", "negative binomial"],
        Mixture(1, Bernoulli(), 3): ["Bernoulli"],
    }
    for model, expected in names.items():
        assert [distribution.name for distribution in candidates_of(model)] == expected
    assert [distribution.name for distribution in candidates_of(Mixture(2, LogNormal(), 2))] == [
        "LogNormal"
    ]


def test_rows_with_gaps_take_the_distributions_that_can():
    x = heavy(120)
    x[3, 1] = np.nan
    one = select_components(
        Mixture(1, Normal(), 2),
        x,
        [1, 2],
        num_restarts=2,
        method=EM(max_iterations=40, tolerance=1e-4, parameter_tolerance=1e3),
    )
    assert {distribution for distribution, _ in one.fits} == {"normal with independent columns"}


def test_one_seed_one_answer_pictures_and_words(found):
    one, again = (
        select_components(FULL, heavy(90), [1, 2], distributions=[FULL], num_restarts=2, seed=1)
        for _ in range(2)
    )
    assert again.verdict == one.verdict
    assert again.table.equals(one.table)
    assert len(found.plot().axes) == 4
    assert len(repr(found)) < 1500
    assert "Groups" in repr(found.groups)


def test_classes_whose_items_depend_on_each_other_are_never_sure():
    """Pairs with a tetrachoric correlation of .6 in two classes: classes are added for them, and
    nothing misfits.
    """
    rng = np.random.default_rng(0)
    chance = np.array([[0.85] * 6, [0.2] * 6])[rng.integers(2, size=600)]
    behind = np.sqrt(0.6) * np.repeat(rng.standard_normal((600, 3)), 2, 1) + np.sqrt(
        0.4
    ) * rng.standard_normal((600, 6))
    found = select_components(
        Mixture(1, Bernoulli(), 6),
        (behind < ndtri(chance)).astype(float),
        range(1, 5),
        num_restarts=2,
    )
    assert found.num_components == 2 or found.status != "confident"


def test_columns_keep_their_names():
    frame = pd.DataFrame(heavy(60), columns=["height", "weight"])
    one = select_components(FULL, frame, [1, 2], distributions=[FULL], num_restarts=2)
    assert one.fit.item_names == ("height", "weight")
    counts = pd.DataFrame(np.random.default_rng(0).poisson(5.0, (20, 4)), columns=list("abcd"))
    two = select_components(
        PoissonFactorization, counts, [1, 2], distributions=[PoissonFactorization], num_restarts=1
    )
    assert two.fits["Poisson", 1].item_names == tuple("abcd")


@pytest.mark.filterwarnings(
    "ignore::inference.DegenerateWarning"
)  # one start may end on a few rows
def test_sizes_that_are_no_numbers_of_components_are_chosen_by_ebic():
    x = heavy(60)
    chosen = select_dimension(lambda k: Mixture(2 * k, Normal(), 2), x, [1, 2], num_restarts=1)
    assert chosen.answer is None


def test_noise_of_negative_binomial_components_is_judged():
    rng = np.random.default_rng(0)
    x = rng.negative_binomial(2, 0.2, size=(300, 2)).astype(float)
    one = fit(Mixture(1, NegativeBinomial(), 2), x, EM(), num_restarts=1)
    result = acdc({1: one}, x)
    assert float(result.raw[1][0] - result.null_mean[1][0]) < 5 * float(result.null_sd[1][0])


def test_bad_input():
    x = heavy(30)
    for call, message in (
        (lambda: select_components(FULL, x, [2]), "at least two numbers"),
        (lambda: select_components(FULL, x, [1, 2], distributions=[]), "at least one family"),
        (
            lambda: select_components(FULL, x, [1, 2], distributions=[FULL, PoissonFactorization]),
            "all be mixtures",
        ),
        (
            lambda: select_components(FULL, x, [1, 2], distributions=[FULL, FULL]),
            "distributions must differ",
        ),
        (
            lambda: select_components(
                FULL, x, [1, 2], distributions=[FULL, Mixture(1, Poisson(), 2)]
            ),
            "counts",
        ),
        (lambda: select_components(FULL, x, [1, 40]), "at least num_components = 40 rows"),
        (lambda: select_components(FULL, x, [1, 2], method=object()), r"EM\(\) or None"),
        (lambda: select_components(GaussianFactorization, x, [1, 2]), "of counts was expected"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
