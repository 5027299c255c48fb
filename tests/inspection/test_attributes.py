"""Items that fall where they should rise."""

from __future__ import annotations

import pytest
import torch

from inference import EM, EstimateWarning, fit
from inference.inspection.attributes import reversals
from inference.programs.program import Program
from ppl_models import DeepDiscreteEncoder, LatentAttributeModel, Normal
from ppl_models.datasets import mastery_test

F64 = torch.float64


def test_reversals_are_found() -> None:
    q_matrix = [[1, 0], [0, 1], [1, 0], [0, 1], [1, 1], [1, 1]]
    model = LatentAttributeModel(
        q_matrix, items=("additive",) * 4 + ("gdm", "dina"), attribute_names=("a", "b")
    )
    drawn = model.layers()[0].graph
    assert drawn is not None
    params = {
        "profiles": torch.full((4,), 0.25, dtype=F64),
        "intercepts": torch.full((6,), -1.0, dtype=F64),
        "loadings": 2.0 * drawn.double(),
    }
    params["loadings"][4] = torch.tensor(
        [4.0, 1.0, -3.0], dtype=F64
    )  # a alone does better than both
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
    other = fit(
        DeepDiscreteEncoder(4, (1,), Normal()), items, EM(max_iterations=200), num_restarts=1
    )
    with pytest.raises(
        ValueError, match="LatentAttributeModel was expected, got one of DeepDiscreteEncoder"
    ):
        reversals(other)
