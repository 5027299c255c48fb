"""Items as tables over profiles against the fit that they come from, and the likelihood of a
candidate against a maximiser that knows nothing of EM.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from inference import EM, fit
from inference.inspection.item_tables import (
    Answers,
    Candidates,
    ItemTables,
    OneItem,
    _expect,
    groups_of,
    tables_of,
)
from inference.programs.data import checked
from inference.programs.program import Program
from ppl_models import (
    Bernoulli,
    Blocks,
    Dag,
    Hierarchy,
    HigherOrder,
    LatentAttributeModel,
    NegativeBinomial,
    Normal,
    Poisson,
    Saturated,
)

F64 = torch.float64
Q = [[1, 0], [0, 1], [1, 0], [0, 1], [1, 1], [1, 1], [1, 1]]
MIXED = Blocks((Bernoulli(), 4), (Normal(), 2), (Poisson(), 1))
COUNTS = Blocks((NegativeBinomial(), 4), (Bernoulli(), 3))


def drawn(
    model: LatentAttributeModel, num_rows: int, seed: int, missing: float = 0.0
) -> torch.Tensor:
    """Rows of items whose effects are clear."""
    layer = model.layers()[0]
    graph = layer.graph.double()  # type: ignore[union-attr]
    root = model.root_layer()
    params = {name: value[0] for name, value in root.uniform(torch.zeros((), dtype=F64)).items()}
    params |= {
        "loadings": 2.5 * graph / graph.sum(-1, keepdim=True),
        "intercepts": torch.full((len(graph),), -0.8, dtype=F64),
    }
    if layer.dispersion:
        params["dispersion"] = torch.full(
            (layer.response.num_dispersed(len(graph)),), 0.7, dtype=F64
        )
    data = Program(model, None, num_rows).simulate(params, seed)["items"]
    return torch.where(
        torch.rand(data.shape, generator=torch.Generator().manual_seed(seed)) < missing,
        torch.nan,
        data,
    )


def start(
    model: LatentAttributeModel, data: torch.Tensor, tolerance: float = 1e-9
) -> tuple[Any, Answers, ItemTables]:
    result = fit(model, data, EM(tolerance=tolerance, parameter_tolerance=1e-2), num_restarts=1)
    answers = Answers.of(result.structure, checked(model, data)[0])
    return (
        result,
        answers,
        tables_of(result, result.structure, answers, result.structure.item_rules()),
    )


@pytest.mark.parametrize(
    ("items", "response", "root", "missing"),
    [
        ("dina", Bernoulli(), Saturated(), 0.0),
        ("gdm", Bernoulli(), Hierarchy([(0, 1)]), 0.1),
        ("additive", MIXED, Saturated(), 0.15),
        ("gdm", COUNTS, Saturated(), 0.15),
        (("dina", "gdm", "gdm", "dina", "dino", "additive", "gdm"), MIXED, Dag([(0, 1)]), 0.1),
    ],
    ids=["dina", "hierarchy", "additive", "counts", "mixed"],
)
def test_tables_are_those_of_the_fit(items: Any, response: Any, root: Any, missing: float) -> None:
    model = LatentAttributeModel(Q, response, items, root, bound=15)
    data = drawn(model, 400, 1, missing)
    result, answers, tables = start(model, data)
    assert tables.log_likelihood == pytest.approx(
        float(result.log_likelihood_rows(data).sum()), abs=1e-6
    )
    posterior = Program(model, data).latent_marginals(result.params)["attributes"]
    assert torch.allclose(tables.posterior, posterior, atol=1e-8)
    again = tables.under(answers, tables.q_matrix)  # EM cannot leave a maximum
    assert abs(again.log_likelihood - tables.log_likelihood) < 0.02
    jumbled = torch.softmax(
        torch.randn(tables.posterior.shape, generator=torch.Generator().manual_seed(0), dtype=F64)
        + 3 * tables.posterior,
        -1,
    )
    climbed = ItemTables(**{**tables.__dict__, "posterior": jumbled}).under(
        answers, tables.q_matrix
    )
    assert abs(climbed.log_likelihood - tables.log_likelihood) < 0.5


def test_a_distribution_with_a_trait_is_carried_along() -> None:
    q = [[1, 0, 0], [0, 1, 0], [0, 0, 1]] * 3
    model = LatentAttributeModel(q, root=HigherOrder(), bound=15)
    data = drawn(model, 300, 2)
    result, answers, tables = start(model, data, tolerance=1e-6)
    assert tables.log_likelihood == pytest.approx(
        float(result.log_likelihood_rows(data).sum()), abs=1e-6
    )
    assert abs(tables.under(answers, tables.q_matrix).log_likelihood - tables.log_likelihood) < 0.05


@pytest.mark.parametrize("j", [0, 4, 6], ids=["Bernoulli", "Normal", "Poisson"])
@pytest.mark.parametrize("rule", ["saturated", "conjunctive", "disjunctive", "additive"])
def test_the_likelihood_of_a_candidate(rule: str, j: int) -> None:
    """It is the largest of the whole model's likelihoods over this item's coefficients, up to a
    constant that all candidates share.
    """
    model = LatentAttributeModel(Q, MIXED, "gdm")
    _, answers, tables = start(model, drawn(model, 250, 3, 0.1))
    vectors = torch.tensor([[1, 0], [0, 1], [1, 1]]).bool()
    candidates = Candidates.of(vectors, answers.profiles, rule)
    item = OneItem.of(answers, tables, j)
    family, place = answers.blocks[j]
    constants = []
    for m, row in enumerate(vectors):
        groups = groups_of(answers.profiles, row, rule)
        design = torch.nn.functional.pad(answers.profiles[:, row], (1, 0), value=1.0)
        size = design.shape[1] if rule == "additive" else int(groups.max()) + 1

        def minus(
            x: np.ndarray,
            groups: torch.Tensor = groups,
            design: torch.Tensor = design,
            size: int = size,
        ) -> float:
            values = torch.tensor(x[:size])
            eta = tables.eta.clone()
            eta[j] = design @ values if rule == "additive" else values[groups]
            dispersion = None if tables.dispersion is None else tables.dispersion.clone()
            if place >= 0 and dispersion is not None:
                dispersion[place] = math.exp(x[size])
            moved = ItemTables(**{**tables.__dict__, "eta": eta, "dispersion": dispersion})
            return -_expect(answers, moved)[1]

        best = minimize(minus, np.zeros(size + (place >= 0)), method="BFGS")
        constants.append(candidates.log_likelihood(item, m) + best.fun)
    assert int(candidates.num_free[2]) == {"saturated": 4, "additive": 3}.get(rule, 2)
    assert np.ptp(constants) < 0.1


def test_least_squares_find_what_the_likelihood_finds() -> None:
    """The screen puts first what the likelihood puts first, where the answers are clear, and is
    near it for the best.
    """
    q = np.vstack([np.eye(4, dtype=int)] * 3 + [[[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 0, 1]]])
    model = LatentAttributeModel(q, items="gdm")
    _, answers, tables = start(model, drawn(model, 1500, 4))
    codes = torch.arange(1, 16)
    vectors = ((codes[:, None] >> torch.arange(3, -1, -1)) & 1).bool()
    candidates = Candidates.of(vectors, answers.profiles, "saturated")
    for j in (0, 12, 13, 14):
        item = OneItem.of(answers, tables, j)
        rough = candidates.screen(item)
        exact = torch.tensor([-2 * candidates.log_likelihood(item, m) for m in range(15)])
        price = candidates.num_free * math.log(1500)
        assert int((rough + price).argmin()) == int((exact + price).argmin())
        near = exact < exact.min() + 15
        apart = (rough - rough.min() - exact + exact.min())[near]
        assert float(apart.abs().max()) < 3


def test_groups_of_profiles() -> None:
    profiles = torch.tensor(
        [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1]], dtype=F64
    )
    row = torch.tensor([True, False, True])
    assert groups_of(profiles, row, "saturated").tolist() == [0, 1, 0, 1, 2, 3]
    assert groups_of(profiles, row, "conjunctive").tolist() == [0, 0, 0, 0, 0, 1]
    assert groups_of(profiles, row, "disjunctive").tolist() == [0, 1, 0, 1, 1, 1]
