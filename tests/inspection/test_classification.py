"""Classification of rows against the true attributes and sums by hand, and its expected accuracy
against the true one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from inference import EM, Fit, fit
from inference.inspection import class_accuracy, classify_rows
from inference.inspection.classification import _judged
from inference.programs.program import Program
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    HiddenMarkov,
    Hierarchy,
    HigherOrder,
    LatentAttributeModel,
    Mixture,
    Normal,
    OptionsHMM,
)
from ppl_models.datasets import AttributeDesign, causal_attributes, mastery_test

F64 = torch.float64


@pytest.fixture(scope="module")
def tested() -> tuple[AttributeDesign, Fit, torch.Tensor, torch.Tensor]:
    design = mastery_test(18, 3, seed=1)
    items, attributes = design.draw(1500, seed=2, missing=0.1)
    return design, fit(design.model, items, EM(tolerance=1e-7), num_restarts=2), items, attributes


def test_estimated_accuracy_is_the_true_one(
    tested: tuple[AttributeDesign, Fit, torch.Tensor, torch.Tensor],
) -> None:
    _, result, items, attributes = tested
    found = classify_rows(result, items)
    truth = attributes.numpy()
    right = (found.profiles == truth).all(1).mean()
    assert found.accuracy == pytest.approx(right, abs=4 * np.sqrt(right * (1 - right) / 1500))
    by_attribute = ((found.probabilities > 0.5) == truth).mean(0)
    assert np.abs(found.attribute_accuracy - by_attribute).max() < 4 * np.sqrt(0.1 * 0.9 / 1500)
    assert np.allclose(found.confusion.sum((1, 2)), 1)
    assert np.allclose(np.trace(found.confusion, axis1=1, axis2=2), found.attribute_accuracy)
    for k in range(3):
        counted = [
            [((truth[:, k] == t) & ((found.probabilities[:, k] > 0.5) == s)).mean() for s in (0, 1)]
            for t in (0, 1)
        ]
        assert np.abs(found.confusion[k] - counted).max() < 0.03
    assert found.accuracy <= found.attribute_accuracy.min() + 1e-9
    assert found.consistency <= found.accuracy
    assert (found.attribute_consistency <= found.attribute_accuracy + 1e-12).all()


def test_sums_by_hand(tested: tuple[AttributeDesign, Fit, torch.Tensor, torch.Tensor]) -> None:
    _, result, items, _ = tested
    found = classify_rows(result, items[:7])
    posterior = (
        Program(result.model, items[:7]).latent_marginals(result.params)["attributes"].numpy()
    )
    assert found.accuracy == pytest.approx(posterior.max(1).mean())
    assert found.consistency == pytest.approx((posterior**2).sum(1).mean())
    assert np.array_equal(found.profiles, result.decode_latents(items[:7])["attributes"].numpy())
    assert np.allclose(
        found.probabilities, result.posterior_latents(items[:7])["attributes"].numpy()
    )


def test_an_attribute_that_few_items_ask_for_is_flagged() -> None:
    model = LatentAttributeModel(
        [[1, 0]] * 6 + [[0, 1]], attribute_names=("asked", "hardly"), bound=15.0
    )
    loadings = torch.tensor([[3.0, 0.0]] * 6 + [[0.0, 1.0]], dtype=F64)
    params = {
        "loadings": loadings,
        "intercepts": -loadings.sum(-1) / 2,
        "profiles": torch.full((4,), 0.25, dtype=F64),
    }
    items = Program(model, None, 300).simulate(params, 1)["items"]
    result = dataclasses.replace(fit(model, items, EM(), num_restarts=1), params=params)
    found = classify_rows(result, items, num_replicates=0)
    assert found.doubtful == ("hardly",)
    expected = (
        1 + abs(2 / (1 + np.exp(-0.5)) - 1)
    ) / 2  # one item with chances .62 and .38: the odds of one answer
    assert found.attribute_accuracy[1] == pytest.approx(expected)


def test_profiles_of_the_causal_design() -> None:
    """Nearly all profiles are right, as the page of the design says (98.5 %)."""
    design = causal_attributes("collider")
    items, attributes = design.draw(1000, seed=4)
    found = classify_rows(fit(design.model, items), items, num_replicates=0)
    right = (found.profiles == attributes.numpy()).all(1).mean()
    assert right > 0.97
    assert found.accuracy == pytest.approx(right, abs=0.015)


def test_bad_input() -> None:
    items = torch.randn(40, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    other = fit(
        DeepDiscreteEncoder(4, (1,), Normal()), items, EM(max_iterations=200), num_restarts=1
    )
    with pytest.raises(
        ValueError, match="LatentAttributeModel was expected, got one of DeepDiscreteEncoder"
    ):
        classify_rows(other, items)


@pytest.mark.parametrize(
    "root", [Hierarchy(((0, 1), (1, 2))), HigherOrder()], ids=["hierarchy", "trait"]
)
def test_other_roots(root: Hierarchy | HigherOrder) -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(300, seed=2)
    model = LatentAttributeModel(design.model.q_matrix, items="dina", root=root)
    found = classify_rows(
        fit(model, items, EM(tolerance=1e-5), num_restarts=1),
        items,
        num_replicates=int(isinstance(root, Hierarchy)),
    )
    assert found.profiles.shape == (300, 3)
    if isinstance(root, Hierarchy):
        assert (
            np.diff(found.profiles, axis=1) <= 0
        ).all()  # nobody has a later one without the needed


@pytest.mark.slow
def test_the_expected_accuracy_is_not_overstated() -> None:
    """Failed before: 100 rows make the posterior of estimates surer of whole profiles than it may
    be, by .04 and more.
    """
    design = mastery_test(9, 3, "additive", seed=1)
    profiles = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=F64)] * 3)
    gaps = []
    for seed in range(3):
        items, _ = design.draw(100, seed=seed)
        result = fit(design.model, items, EM(tolerance=1e-5), num_restarts=1)
        found = classify_rows(result, items, num_replicates=5)
        true = Program(design.model, items).latent_marginals(design.params)["attributes"]
        own = (profiles == torch.tensor(found.profiles).unsqueeze(1)).all(-1).double()
        right = float((true * own).sum(-1).mean())
        gaps.append([found.profile_probability.mean() - right, found.accuracy - right])
        assert found.overstated == pytest.approx(found.profile_probability.mean() - found.accuracy)
        assert not found.note
        assert np.allclose(np.trace(found.confusion, axis1=1, axis2=2), found.attribute_accuracy)
    before, after = np.mean(gaps, 0)
    assert before > 0.04
    assert abs(after) < 0.7 * before


def test_what_is_not_mended_is_said(
    tested: tuple[AttributeDesign, Fit, torch.Tensor, torch.Tensor],
) -> None:
    _, result, items, _ = tested
    found = classify_rows(result, items[:7])
    assert found.note == "these are 7 rows, and the fit is of 1,500"
    assert found.overstated == 0
    with pytest.raises(ValueError, match=r"num_replicates=3 needs .* these are 7 rows"):
        classify_rows(result, items[:7], num_replicates=3)
    with pytest.raises(ValueError, match="num_replicates"):
        classify_rows(result, items, num_replicates=-1)


def classes(
    seed: int, spread: float, num_rows: int = 90, family: type = Normal
) -> tuple[Fit, torch.Tensor, float]:
    """A fit of two classes on four items, its rows, and the share of rows that it really puts into
    the right class, under the best names.
    """
    model, rng = Mixture(2, family(), 4), np.random.default_rng(seed)
    sign = torch.tensor(rng.choice([-1.0, 1.0], 4))
    truth = {
        "weights": torch.tensor([0.5, 0.5], dtype=F64),
        "predictors": torch.stack([spread / 2 * sign, -spread / 2 * sign]),
    }
    truth |= {"dispersion": torch.ones(2, 4, dtype=F64)} if family is Normal else {}
    items = Program(model, None, num_rows).simulate(truth, seed)["items"]
    result = fit(model, items, EM(tolerance=1e-5), num_restarts=8, seed=seed)
    put = result.posterior_latents(items)["assignments"].argmax(-1)
    right = float(
        Program(model, items)
        .latent_means(truth)["assignments"]
        .gather(-1, put.unsqueeze(-1))
        .mean()
    )
    return result, items, max(right, 1 - right)


def test_classes_of_independent_noise_are_worthless() -> None:
    """Failed before: more than 90 % were said of four independent columns, where half are right."""
    gaps = []
    for seed in range(2):
        result, items, right = classes(seed, 0.0, 60)
        found = class_accuracy(result, items, 4)
        assert found.said > 0.85, f"seed {seed}"
        assert found.worthless, f"seed {seed}"
        assert found.said_r2 > found.entropy_r2, f"seed {seed}"
        assert found.overstated == pytest.approx(found.said - found.accuracy)
        gaps.append([found.said - right, found.accuracy - right])
    before, after = np.mean(gaps, 0)
    assert before > 0.3
    assert abs(after) < before / 2


def test_classes_that_are_there_keep_their_accuracy() -> None:
    """Clear classes are not called worthless, and the corrected share is nearer to the true one
    than what the posterior says, on average.
    """
    gaps = []
    for seed in range(3):
        result, items, right = classes(seed, 1.5)
        found = class_accuracy(result, items, 4)
        assert not found.worthless, f"seed {seed}"
        assert found.accuracy > 0.7, f"seed {seed}"
        assert 0 < found.error < 0.1, f"seed {seed}"
        gaps.append([found.said - right, found.accuracy - right])
    before, after = np.mean(gaps, 0)
    assert abs(after) < abs(before) + 0.01


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
)  # of bits that a class always answers alike
def test_corrected_shares_of_random_classes_are_unbiased() -> None:
    """Sixty models, of no classes to clear ones; ``benchmarks/class_accuracy.py`` has 200."""
    gaps = []
    for seed in range(60):
        result, items, right = classes(
            seed,
            (0.0, 0.8, 1.5, 2.5)[seed % 4],
            (60, 150)[seed // 4 % 2],
            (Normal, Bernoulli)[seed // 8 % 2],
        )
        found = class_accuracy(result, items, 8)
        gaps.append([found.said - right, found.accuracy - right])
    before, after = np.mean(gaps, 0)
    error = np.std(gaps, 0)[1] / np.sqrt(len(gaps))
    assert before > 0.1
    assert abs(after) < 3 * error + 0.02


def test_shares_of_classes_by_hand() -> None:
    said = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]], dtype=F64)
    true = torch.tensor([[0.3, 0.7], [0.1, 0.9], [0.6, 0.4], [0.5, 0.5]], dtype=F64)
    once = torch.ones(4, dtype=F64)
    share, guess, _, *by_class = _judged(said, true, once)  # the class said first is the second
    assert share == pytest.approx((0.7 + 0.9 + 0.6 + 0.5) / 4)
    assert guess == pytest.approx(2.5 / 4)
    assert by_class == pytest.approx([0.6, 0.7])
    share, _, entropy_r2, *_ = _judged(said, said, once)
    assert share == pytest.approx(0.75)
    assert entropy_r2 == pytest.approx(1 + float((said * said.log()).sum()) / (4 * np.log(2)))
    weights = torch.tensor([3, 1, 2, 1])
    np.testing.assert_allclose(
        _judged(said, true, weights.double()),
        _judged(*(x.repeat_interleave(weights, 0) for x in (said, true)), torch.ones(7, dtype=F64)),
    )


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        pytest.param(HiddenMarkov(2, Normal(), 2), (2, 40, 2), id="states"),
        pytest.param(OptionsHMM(2, 2, 2), (6, 12, 2), id="options", marks=pytest.mark.slow),
    ],
)
def test_classes_of_steps_are_corrected_too(model: Any, shape: tuple[int, ...]) -> None:
    """Steps of noise in a hidden chain, and actions of nothing at all under two options, are no
    more sure than chance makes them.
    """
    rng = np.random.default_rng(1)
    steps = (
        torch.tensor(rng.standard_normal(shape))
        if isinstance(model, HiddenMarkov)
        else torch.tensor(rng.integers(0, 2, shape))
    )
    found = class_accuracy(fit(model, steps, EM(tolerance=1e-4), num_restarts=4), steps, 3)
    assert not found.note
    assert found.accuracy < found.said
    assert found.worthless


def test_classes_that_are_not_corrected_say_why(
    tested: tuple[AttributeDesign, Fit, torch.Tensor, torch.Tensor],
) -> None:
    result, items, _ = classes(0, 2.0)
    assert class_accuracy(result, items, 0).note == "num_replicates is 0"
    assert class_accuracy(result, items[:7]).note == "these are 7 rows, and the fit is of 90"
    with pytest.raises(ValueError, match=r"num_replicates=3 needs .* these are 7 rows"):
        class_accuracy(result, items[:7], 3)
    with pytest.raises(ValueError, match="num_replicates"):
        class_accuracy(result, items, -1)
    many, rows, right = classes(1, 4.0, 2000)
    found = class_accuracy(many, rows)
    assert found.note == "117 rows for each parameter determine them well"
    assert found.accuracy == found.said == pytest.approx(right, abs=0.005)
    assert not found.worthless
    with pytest.raises(
        ValueError,
        match="one latent of several values a row was expected, got LatentAttributeModel",
    ):
        class_accuracy(tested[1], tested[2])
