"""Classification of rows against the true attributes and sums by hand; items that fall where they should rise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from inference import EM, EstimateWarning, Fit, fit
from inference.inspection import classify_rows, reversals
from inference.programs.program import Program
from ppl_models import DeepDiscreteEncoder, Hierarchy, HigherOrder, LatentAttributeModel, Normal
from ppl_models.datasets import AttributeDesign, causal_attributes, mastery_test

F64 = torch.float64


@pytest.fixture(scope="module")
def tested() -> tuple[AttributeDesign, Fit, torch.Tensor, torch.Tensor]:
    design = mastery_test(18, 3, seed=1)
    items, attributes = design.draw(1500, seed=2, missing=0.1)
    return design, fit(design.model, items, EM(tolerance=1e-7), num_restarts=2), items, attributes


def test_estimated_accuracy_is_the_true_one(tested: tuple[AttributeDesign, Fit, torch.Tensor, torch.Tensor]) -> None:
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
        counted = [[((truth[:, k] == t) & ((found.probabilities[:, k] > 0.5) == s)).mean() for s in (0, 1)] for t in (0, 1)]
        assert np.abs(found.confusion[k] - counted).max() < 0.03
    assert found.accuracy <= found.attribute_accuracy.min() + 1e-9
    assert found.consistency <= found.accuracy
    assert (found.attribute_consistency <= found.attribute_accuracy + 1e-12).all()


def test_sums_by_hand(tested: tuple[AttributeDesign, Fit, torch.Tensor, torch.Tensor]) -> None:
    _, result, items, _ = tested
    found = classify_rows(result, items[:7])
    posterior = Program(result.model, items[:7]).latent_marginals(result.params)["attributes"].numpy()
    assert found.accuracy == pytest.approx(posterior.max(1).mean())
    assert found.consistency == pytest.approx((posterior**2).sum(1).mean())
    assert np.array_equal(found.profiles, result.decode_latents(items[:7])["attributes"].numpy())
    assert np.allclose(found.probabilities, result.posterior_latents(items[:7])["attributes"].numpy())


def test_an_attribute_that_few_items_ask_for_is_flagged() -> None:
    model = LatentAttributeModel([[1, 0]] * 6 + [[0, 1]], attribute_names=("asked", "hardly"), bound=15.0)
    loadings = torch.tensor([[3.0, 0.0]] * 6 + [[0.0, 1.0]], dtype=F64)
    params = {"loadings": loadings, "intercepts": -loadings.sum(-1) / 2, "profiles": torch.full((4,), 0.25, dtype=F64)}
    items = Program(model, None, 300).simulate(params, 1)["items"]
    result = dataclasses.replace(fit(model, items, EM(), num_restarts=1), params=params)
    found = classify_rows(result, items)
    assert found.doubtful == ("hardly",)
    expected = (1 + abs(2 / (1 + np.exp(-0.5)) - 1)) / 2  # one item with chances .62 and .38: the odds of one answer
    assert found.attribute_accuracy[1] == pytest.approx(expected)


def test_profiles_of_the_causal_design() -> None:
    """Nearly all profiles are right, as the page of the design says (98.5 %)."""
    design = causal_attributes("collider")
    items, attributes = design.draw(1000, seed=4)
    found = classify_rows(fit(design.model, items), items)
    right = (found.profiles == attributes.numpy()).all(1).mean()
    assert right > 0.97
    assert found.accuracy == pytest.approx(right, abs=0.015)


def test_reversals_are_found() -> None:
    q_matrix = [[1, 0], [0, 1], [1, 0], [0, 1], [1, 1], [1, 1]]
    model = LatentAttributeModel(q_matrix, items=("additive",) * 4 + ("gdm", "dina"), attribute_names=("a", "b"))
    drawn = model.layers()[0].graph
    assert drawn is not None
    params = {"profiles": torch.full((4,), 0.25, dtype=F64), "intercepts": torch.full((6,), -1.0, dtype=F64), "loadings": 2.0 * drawn.double()}
    params["loadings"][4] = torch.tensor([4.0, 1.0, -3.0], dtype=F64)  # a alone does better than both
    items = Program(model, None, 3000).simulate(params, 1)["items"]
    result = fit(model, items, EM(tolerance=1e-7))
    found = reversals(result)
    assert {reversal.item for reversal in found} == {"4"}
    assert (found[0].attribute, found[0].having) == ("b", ("a",))
    eta = torch.tensor([3.0, 1.0], dtype=F64).sigmoid()
    assert found[0].fall == pytest.approx(float(eta[0] - eta[1]), abs=0.1)


def test_a_reversed_item_is_named_by_the_fit() -> None:
    design = mastery_test(12, 3, seed=3)
    items, _ = design.draw(800, seed=1)
    items[:, 11] = 1 - items[:, 11]  # coded the wrong way round
    with pytest.warns(EstimateWarning, match=r"lower than rows with none on: 11 \("):
        result = fit(design.model, items, EM(tolerance=1e-6))
    assert any("guessing and slipping sum to more than 1" in text for text in result.warnings)


def test_bad_input() -> None:
    items = torch.randn(40, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    other = fit(DeepDiscreteEncoder(4, (1,), Normal()), items, EM(max_iterations=200), num_restarts=1)
    for ask in (lambda: classify_rows(other, items), lambda: reversals(other)):
        with pytest.raises(ValueError, match="LatentAttributeModel was expected, got one of DeepDiscreteEncoder"):
            ask()


@pytest.mark.parametrize("root", [Hierarchy(((0, 1), (1, 2))), HigherOrder()], ids=["hierarchy", "trait"])
def test_other_roots(root: Hierarchy | HigherOrder) -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(300, seed=2)
    model = LatentAttributeModel(design.model.q_matrix, items="dina", root=root)
    found = classify_rows(fit(model, items, EM(tolerance=1e-5), num_restarts=1), items)
    assert found.profiles.shape == (300, 3)
    if isinstance(root, Hierarchy):
        assert (np.diff(found.profiles, axis=1) <= 0).all()  # nobody has a later one without the needed
