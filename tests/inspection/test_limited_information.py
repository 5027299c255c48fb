"""M2 against the definition on all answer patterns, its distribution under the model, and its power
under a wrong Q-matrix.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2, ncx2

from inference import EM, fit
from inference.inspection import limited_information_fit
from inference.programs.program import Program
from ppl_models import (
    Dag,
    HigherOrder,
    Independent,
    LatentAttributeModel,
    Normal,
    Saturated,
    TruncatedLasso,
)
from ppl_models.datasets import mastery_test

F64 = torch.float64
Q = ((1, 0), (0, 1), (1, 0), (0, 1), (1, 1), (1, 1))
BITS = np.array(list(itertools.product((0, 1), repeat=6)), dtype=float)


def by_definition(
    model: Any,
    params: dict[str, torch.Tensor],
    items: torch.Tensor,
    free: list[tuple[str, tuple[int, ...]]],
) -> tuple[float, int]:
    """The multinomial distribution of all 64 patterns, derivatives by central differences, inverses
    as they are written.
    """
    moments = np.stack(
        [*BITS.T, *(BITS[:, j] * BITS[:, k] for j, k in itertools.combinations(range(6), 2))]
    )  # (21, 64)

    def distribution(values: dict[str, torch.Tensor]) -> np.ndarray:
        return Program(model, torch.tensor(BITS)).log_marginal_rows(values).exp().numpy()

    slopes = []
    for name, index in free:
        sides = []
        for step in (1e-5, -1e-5):
            moved = {site: value.clone() for site, value in params.items()}
            moved[name][index] += step
            if name == "profiles":
                moved[name][-1] -= step
            sides.append(moments @ distribution(moved))
        slopes.append((sides[0] - sides[1]) / 2e-5)
    p, delta = distribution(params), np.stack(slopes, 1)
    inverse = np.linalg.inv(moments @ (np.diag(p) - np.outer(p, p)) @ moments.T)
    middle = (
        inverse - inverse @ delta @ np.linalg.inv(delta.T @ inverse @ delta) @ delta.T @ inverse
    )
    counts = np.array([(items.numpy() == pattern).all(1).mean() for pattern in BITS])
    residual = moments @ (counts - p)
    return len(items) * residual @ middle @ residual, len(moments) - len(free)


@pytest.mark.parametrize(
    "root", [Saturated(), Independent(), Dag(((0, 1),))], ids=["saturated", "independent", "dag"]
)
def test_the_definition(root: Any) -> None:
    model = LatentAttributeModel(Q, items=("additive",) * 4 + ("dina", "additive"), root=root)
    graph = model.layers()[0].graph
    assert graph is not None
    truth = {"loadings": 2.0 * graph.double(), "intercepts": torch.full((6,), -1.0, dtype=F64)}
    root_params = {"profiles": torch.tensor([0.35, 0.15, 0.1, 0.4], dtype=F64)}
    if isinstance(root, Independent):
        root_params = {"proportions": torch.tensor([0.5, 0.4], dtype=F64)}
    if isinstance(root, Dag):
        root_params = {"conditionals": torch.tensor([0.5, 0.3, 0.8], dtype=F64)}
    items = Program(model, None, 600).simulate(truth | root_params, 3)["items"]
    result = fit(model, items, EM(tolerance=1e-6), num_restarts=1)
    free = [("loadings", tuple(place)) for place in graph.nonzero().tolist()] + [
        ("intercepts", (j,)) for j in range(6)
    ]
    ((site, value),) = root_params.items()
    free += [(site, (k,)) for k in range(len(value) - (site == "profiles"))]
    found = limited_information_fit(result, items)
    expected, degrees = by_definition(model, result.params, items, free)
    assert (found.degrees, found.num_undetermined) == (degrees, 0)
    assert found.m2 == pytest.approx(expected, rel=1e-5)
    assert found.p_value == pytest.approx(chi2.sf(expected, degrees), rel=1e-4)
    chances = Program(model, torch.tensor(BITS)).log_marginal_rows(result.params).exp().numpy()
    spread = BITS - chances @ BITS
    covariance = (chances[:, None] * spread).T @ spread
    implied = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    above = np.triu_indices(6, 1)
    assert found.srmsr == pytest.approx(
        np.sqrt(((np.corrcoef(items.numpy().T) - implied)[above] ** 2).mean())
    )


@pytest.mark.parametrize("root", [Saturated(), Independent()], ids=["saturated", "independent"])
def test_known_parameters_take_no_degree_of_freedom(root: Any) -> None:
    model = LatentAttributeModel(Q, items="additive", root=root)
    graph = model.layers()[0].graph
    assert graph is not None
    truth = {"loadings": 2.0 * graph.double(), "intercepts": torch.full((6,), -1.0, dtype=F64)}
    site, value = "profiles", torch.tensor([0.35, 0.15, 0.1, 0.4], dtype=F64)
    if isinstance(root, Independent):
        site, value = "proportions", torch.tensor([0.5, 0.4], dtype=F64)
    items = Program(model, None, 600).simulate(truth | {site: value}, 3)["items"]
    fixed = {
        "intercepts": np.array([-1.0, -1.0, *[np.nan] * 4]),
        site: np.array([float(value[0]), *[np.nan] * (len(value) - 1)]),
    }
    result = fit(model, items, EM(tolerance=1e-6), num_restarts=1, fixed=fixed)
    free = [("loadings", tuple(place)) for place in graph.nonzero().tolist()]
    free += [("intercepts", (j,)) for j in range(2, 6)]
    free += [(site, (k,)) for k in range(1, len(value) - (site == "profiles"))]
    found = limited_information_fit(result, items)
    expected, degrees = by_definition(model, result.params, items, free)
    assert (found.degrees, degrees) == (21 - result.num_parameters, found.degrees)
    assert found.m2 == pytest.approx(expected, rel=1e-5)
    tied = dataclasses.replace(result, tied=result.fixed)
    with pytest.raises(ValueError, match="tied parameters"):
        limited_information_fit(tied, items)


def test_the_interval_of_rmsea() -> None:
    design = mastery_test(20, 4, seed=5)
    items, _ = design.draw(1000, seed=1)
    wrong = LatentAttributeModel(np.eye(4, dtype=int)[np.arange(20) % 4], items="dina")
    found = limited_information_fit(fit(wrong, items, EM(tolerance=1e-6)), items)
    assert found.p_value < 1e-6  # pairs of skills were asked for
    low, high = found.rmsea2_interval
    assert low < found.rmsea2 < high
    for end, chance in ((low, 0.95), (high, 0.05)):
        assert ncx2.cdf(found.m2, found.degrees, end**2 * 1000 * found.degrees) == pytest.approx(
            chance, abs=1e-6
        )
    right = limited_information_fit(fit(design.model, items, EM(tolerance=1e-6)), items)
    assert right.p_value > 1e-3
    assert right.rmsea2 < found.rmsea2 / 3
    assert right.srmsr < found.srmsr


@pytest.mark.slow
def test_the_distribution_under_the_model() -> None:
    """Forty data sets of the model: the mean is the number of degrees of freedom, and few are
    called misfits.
    """
    design = mastery_test(12, 3, seed=6)
    model = LatentAttributeModel(design.model.q_matrix, items="dina", root=HigherOrder())
    values, refused, degrees = [], 0, 0
    for seed in range(40):
        items, _ = design.draw(1000, seed=seed)
        found = limited_information_fit(
            fit(model, items, EM(tolerance=1e-7), num_restarts=1), items
        )
        values.append(found.m2)
        refused, degrees = refused + (found.p_value < 0.05), found.degrees
    assert abs(np.mean(values) - degrees) < 4 * np.sqrt(2 * degrees / 40)
    assert refused <= 8


def test_bad_input() -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(1500, seed=2)
    result = fit(design.model, items, EM(tolerance=1e-4), num_restarts=1)
    gone = items.clone()
    gone[3, 4] = torch.nan
    with pytest.raises(ValueError, match="complete rows; row 3, column '4' is missing"):
        limited_information_fit(result, gone)
    normal = LatentAttributeModel(Q, Normal())
    with pytest.raises(ValueError, match="Bernoulli items were expected"):
        limited_information_fit(
            fit(
                normal,
                items[:, :6]
                + 0.3 * torch.randn(1500, 6, dtype=F64, generator=torch.Generator().manual_seed(0)),
                EM(tolerance=1e-3),
                num_restarts=1,
            ),
            items,
        )
    small = LatentAttributeModel(((1, 0), (0, 1), (1, 1)), items="dina")
    with pytest.raises(ValueError, match="no degree of freedom is left"):
        limited_information_fit(
            fit(small, items[:, :3], EM(tolerance=1e-3), num_restarts=1), items[:, :3]
        )
    open_model = LatentAttributeModel(
        num_attributes=2, num_items=6, penalty=TruncatedLasso(1.0, 0.1)
    )
    with pytest.raises(ValueError, match="penalised"):
        limited_information_fit(
            fit(open_model, items[:, :6], EM(tolerance=1e-3), num_restarts=1), items[:, :6]
        )
