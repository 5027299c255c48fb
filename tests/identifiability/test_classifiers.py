"""Theorems 1 and 2 on arrays: the reference's intervals, brute force over all equivalent mixtures,
noise that must not pass for certainty.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from inference.identifiability import check_classifiers, weight_interval
from inference.identifiability.classifier_evidence import (
    certainty,
    classifier_bounds,
    clopper_pearson,
    equal_mixtures,
    independence,
)
from ppl_models.datasets import simulate_checkerboard, simulate_trivariate, simulate_two_gaussians

# two Gaussians with |x|, |y| cut at these values (own quadrature of the specification)
BY_CUT = {3: (0.3452, 0.4842), 4: (0.3773, 0.4345), 5: (0.3906, 0.4141), 6: (0.3961, 0.4058)}


def exact(simulate, num_rows, variates=None, seed=1):
    sample = simulate(num_rows, seed=seed)
    chosen = range(sample.truth.num_variates) if variates is None else variates
    return [sample.truth.classifiers(v, sample.data[:, v]) for v in chosen]


@pytest.mark.parametrize("cut", BY_CUT)
def test_freedom_of_the_two_gaussians(cut):
    truth = simulate_two_gaussians(10).truth
    ends = truth.classifiers(0, np.array([-float(cut), float(cut)]))
    suprema = np.array([ends[0, 0], ends[1, 1]])
    assert weight_interval(truth.weights, np.stack([suprema, suprema])) == pytest.approx(
        BY_CUT[cut], abs=5e-5
    )


@pytest.mark.parametrize("seed", range(4))
def test_freedom_is_what_brute_force_finds(seed):
    """Every mixture of two components with the same table of two discrete variates: F' = F A, over
    a fine grid of A.
    """
    rng = np.random.default_rng(seed)
    f, g = rng.dirichlet(np.ones(4), 2).T, rng.dirichlet(np.ones(5), 2).T  # (values, components)
    w = np.array([0.35, 0.65])
    suprema = np.stack([(w * d / (d @ w)[:, None]).max(0) for d in (f, g)])
    low, high = weight_interval(w, suprema)
    ratio = f[:, 0] / f[:, 1]
    # f_1' = (1 + a) f_1 - a f_2 and f_2' = (1 + b) f_2 - b f_1 stay densities up to these ends, and
    # turn back to a + b > -1
    most_a, most_b = 1 / (1 / ratio.min() - 1), 1 / (ratio.max() - 1)
    found, chances = [], []
    for a in np.linspace(-1, most_a, 151):
        for b in np.linspace(-1, most_b, 151):
            if a + b <= -1 + 1e-9:
                continue
            turn = np.array([[1 + a, -b], [-a, 1 + b]])
            other = (
                np.linalg.inv(turn) @ np.diag(w) @ g.T
            )  # (components, values): weights times the densities of the other variate
            weights = other.sum(1)
            if (other >= -1e-12).all() and (weights > 1e-9).all():
                assert np.allclose((f @ turn) @ other, f @ np.diag(w) @ g.T)
                found.append(weights[0])
                of_x, of_y = (f @ turn)[:, 0] * weights[0], other[0]
                chances.append(np.concatenate([of_x / (f @ w), of_y / (g @ w)]))
    corners = equal_mixtures(w, suprema)
    ends = [
        classifier_bounds(w[0] * d[:, 0] / (d @ w), v, w[0], corners) for v, d in enumerate((f, g))
    ]
    least, most = (np.concatenate(end) for end in zip(*ends, strict=True))
    assert (least <= np.min(chances, 0) + 1e-9).all()
    assert (most >= np.max(chances, 0) - 1e-9).all()
    np.testing.assert_allclose(least, np.min(chances, 0), atol=0.03)
    np.testing.assert_allclose(most, np.max(chances, 0), atol=0.03)
    assert low - 1e-9 <= min(found)
    assert max(found) <= high + 1e-9
    assert min(found) == pytest.approx(low, abs=0.02)
    assert max(found) == pytest.approx(high, abs=0.02)


def test_suprema_that_bound_nothing_leave_every_weight():
    """Failed before: nought by nought at a weight of 1, where classifiers are constant."""
    corners = equal_mixtures(np.array([0.52, 0.48]), np.full((2, 2), 1e-12))
    np.testing.assert_allclose(corners[:2], [[0, 0, 0], [1, 0, 0]], atol=1e-9)
    assert np.isfinite(corners).all()


def test_verdicts_on_exact_classifiers():
    board = check_classifiers(exact(simulate_checkerboard, 4000))
    assert board.verdict == "supported"
    assert all(check.verdict == "agrees" for check in board.checks)
    assert board.possible_weights == pytest.approx([board.weights[0]] * 2, abs=1e-9)
    for share in board.label_free_weights:
        assert share.lower <= 0.5 <= share.upper
    normals = check_classifiers(exact(simulate_two_gaussians, 20_000), delta=0.02)
    low, high = normals.possible_weights
    assert low < 0.4 < high
    middle = (
        f"The middle of this interval, {(low + high) / 2:.3f}, is within {(high - low) / 2:.3f}"
    )
    assert middle in " ".join(normals.sentences())
    assert normals.contradicted == ()
    small = check_classifiers(exact(simulate_two_gaussians, 1000), delta=0.01)
    assert small.verdict == "refuted at this resolution"
    few = exact(simulate_two_gaussians, 100)  # no share holds thirty rows: no supremum is known
    nothing = check_classifiers(few)
    assert nothing.verdict == "open"
    assert nothing.possible_weights == pytest.approx((0, 1), abs=1e-9)
    for v, alphas in enumerate(few):
        least, most = nothing.bounds(v, alphas[:, 0])
        assert np.ptp(alphas[:, 0]) > 0.5
        np.testing.assert_allclose(least, 0, atol=1e-9)
        np.testing.assert_allclose(most, 1, atol=1e-9)


def test_a_third_variate_decides():
    """Components 1 and 2 never exceed a chance of .44 and .40 on x: two variates refute, three
    suffice.
    """
    pair = check_classifiers(exact(simulate_trivariate, 50_000, (0, 1)))
    assert pair.verdict == "refuted at this resolution"
    assert {(p.component, p.against) for p in pair.pairs} == {
        (i, j) for i in range(4) for j in range(4) if i != j
    }
    first = next(p for p in pair.purity if (p.variate, p.component) == (0, 0))
    assert first.mean == pytest.approx(
        0.4379, abs=2e-3
    )  # the largest value of the exact classifier
    whole = check_classifiers(exact(simulate_trivariate, 50_000))
    assert whole.verdict == "supported"
    assert whole.purity == ()
    values = [own.smallest for own in whole.independence]
    assert values == pytest.approx([0.00781, 0.00781, 0.02114], rel=0.1)  # by quadrature


def test_noise_of_one_network_is_not_certainty():
    """A variate that says nothing, and networks with noisy outputs: alone they look sure, judged by
    each other they are not.
    """
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2.5, (8, 4000))
    own = 1 / (1 + np.exp(-logits))
    members = np.stack([own, 1 - own], -1)
    alone = certainty(members[:1], 0, 0, None, 0.05, 0.95)
    judged = certainty(members, 0, 0, None, 0.05, 0.95)
    assert alone.verdict == "supported"
    assert judged.verdict == "refuted at this resolution"
    assert judged.mean == pytest.approx(0.5, abs=0.03)
    copies = np.stack(
        [
            np.full((8, 4000), 0.25) + rng.normal(0, 0.02, (8, 4000)),
            np.full((8, 4000), 0.25) + rng.normal(0, 0.02, (8, 4000)),
        ],
        -1,
    )
    members = np.concatenate(
        [copies, 1 - copies.sum(-1, keepdims=True)], -1
    )  # two components of one density
    assert independence(members[:1], 0, 1e-3, 0.95, 0).smallest > 1e-3
    assert independence(members, 0, 1e-3, 0.95, 0).verdict == "near-dependent"
    assert independence(members, 0, 1e-3, 0.95, 0).smallest == pytest.approx(0, abs=1e-3)


def test_counts_contradict_classifiers_that_are_too_sure():
    sample = simulate_two_gaussians(20_000, seed=2)
    sure = []
    for v in range(2):
        alpha = sample.truth.classifiers(v, sample.data[:, v])
        sure.append(np.where(alpha > 0.5, 0.99, 0.01))
    report = check_classifiers(sure)
    assert report.contradicted
    assert report.verdict == "open"  # each classifier alone would have been believed
    assert all(record.verdict == "supported" for record in report.purity)
    assert "surer than the data allow" in report.text()


def test_one_fit_is_no_witness_of_its_own_certainty():
    """The same classifiers twice are two members that agree; alone they need counts, for which
    2,000 rows are too few.
    """
    alphas = exact(simulate_two_gaussians, 2000)
    alone, together = (
        check_classifiers(alphas, delta=0.1),
        check_classifiers([np.stack([alpha, alpha]) for alpha in alphas], delta=0.1),
    )
    assert all(record.verdict == "supported" for record in alone.purity)
    assert {check.verdict for check in alone.checks} == {"too few rows"}
    assert alone.verdict == "open"
    assert "no witness" in alone.text()
    assert together.verdict == "supported"


def test_what_one_fit_says_of_a_variate_of_noise_is_no_witness():
    """Two variates that tell the components apart, and one whose network says at random what it
    may: .01 of a scaled eigenvalue at 1,500 rows.
    """
    generator = np.random.default_rng(2)
    first = (generator.random(1500) < 0.4) * 0.9 + 0.05
    noise = 0.4 + 0.045 * generator.standard_normal(1500)
    alphas = [np.stack([own, 1 - own], 1) for own in (first, first, noise)]
    found = check_classifiers(alphas)
    assert found.independence[2].lower > 1e-3
    assert [own.verdict for own in found.independence] == [
        "independent",
        "independent",
        "near-dependent",
    ]
    assert found.verdict == "open"
    assert "no more than the noise of networks" in found.text()


def test_no_method_knows_weights_better_than_the_information_allows():
    """Certain classifiers leave the error of counting; those of Normals that overlap much were
    worked out on a fine grid, by derivatives of the cells' probabilities.
    """
    certain = np.eye(3)[np.random.default_rng(0).choice(3, 1000, p=[0.2, 0.3, 0.5])]
    report = check_classifiers([certain] * 3)
    weights = certain.mean(0)
    assert report.weight_errors == pytest.approx(np.sqrt(weights * (1 - weights) / 1000), rel=1e-6)
    sample = simulate_trivariate(20_000, 0)
    alphas = [sample.truth.classifiers(v, sample.data[:, v]) for v in range(3)]
    report = check_classifiers(alphas)
    assert np.array(report.weight_errors) * math.sqrt(20_000) == pytest.approx(
        [10.6, 17.1, 12.6, 7.6], rel=0.15
    )
    assert (
        "no method that assumes nothing of the densities can know these weights better"
        in report.text()
    )
    assert "rows to bring the largest down to 0.01" in report.text()
    assert check_classifiers(alphas[:2]).weight_errors is None


def test_names_of_components_do_not_matter():
    alphas = exact(simulate_two_gaussians, 5000)
    one, other = check_classifiers(alphas), check_classifiers([alpha[:, ::-1] for alpha in alphas])
    assert one.verdict == other.verdict
    assert one.possible_weights == pytest.approx([1 - w for w in reversed(other.possible_weights)])
    assert one.purity[0].mean == other.purity[1].mean


def test_bounds_of_a_chance():
    assert clopper_pearson(0, 10, 0.025) == pytest.approx((0.0, 0.3084971), abs=1e-6)
    assert clopper_pearson(3, 10, 0.025) == pytest.approx((0.0667395, 0.6524529), abs=1e-6)
    assert clopper_pearson(10, 10, 0.025)[1] == 1.0


def test_one_component_and_words():
    alone = check_classifiers([np.ones((50, 1))] * 2)
    assert alone.verdict == "supported"
    assert alone.text().startswith("One component")
    report = check_classifiers(
        exact(simulate_two_gaussians, 2000), variate_names=("height", "weight")
    )
    assert "variate height" in report.text()
    assert "any weight of component 0 between" in report.text()
    assert json.loads(json.dumps(report.to_dict()))["verdict"] == report.verdict


def test_refusals():
    good = np.full((6, 2), 0.5)
    for alphas, settings, message in (
        ([good], {}, "at least two variates"),
        ([good, good[:3]], {}, r"variate 1 must have shape \(6, 2\)"),
        ([good, 2 * good], {}, "variate 1: chances that sum to 1"),
        ([good[0], good[0]], {}, "arrays \\(rows, components\\)"),
        ([good, good], {"delta": 0.7}, "delta must lie in"),
        ([good, good], {"level": 0.5}, "level must lie in"),
        ([good, good], {"tolerance": 1.0}, "tolerance must lie in"),
        ([good, good], {"variate_names": ("a",)}, "2 variate_names"),
    ):
        with pytest.raises(ValueError, match=message):
            check_classifiers(alphas, **settings)
    for weights, suprema, message in (
        ((0.5, 0.6), np.ones((2, 2)), "positive and sum to 1"),
        ((0.5, 0.5), np.ones(2), "suprema \\(2, 2\\)"),
        ((0.5, 0.5), np.full((2, 2), 1.5), r"lie in \(0, 1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            weight_interval(np.array(weights), suprema)
