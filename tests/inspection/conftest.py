"""A small fit that tests of items and of pairs hold against enumeration."""

from __future__ import annotations

import pytest
import torch

from inference import EM, Fit, fit
from inference.programs.program import Program
from ppl_models import LatentAttributeModel

F64 = torch.float64
Q = ((1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 1), (1, 1), (1, 1))


@pytest.fixture(scope="package")
def small() -> tuple[Fit, torch.Tensor]:
    model = LatentAttributeModel(Q, items=("additive",) * 6 + ("dina", "additive"))
    graph = model.layers()[0].graph
    assert graph is not None
    truth = {
        "loadings": 2.5 * graph.double(),
        "intercepts": torch.full((8,), -1.0, dtype=F64),
        "profiles": torch.tensor([0.35, 0.15, 0.1, 0.4], dtype=F64),
    }
    items = Program(model, None, 800).simulate(truth, 3)["items"]
    return fit(model, items, EM(tolerance=1e-7), num_restarts=1), items
