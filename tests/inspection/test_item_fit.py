"""Item fit against enumeration of all answers and numerical derivatives; a wrong row of Q is found,
and named by its attribute.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from inference import EM, BoundWarning, Fit, fit
from inference.inspection import (
    item_fit,
    limited_information_fit,
    local_dependence,
)
from inference.inspection.attributes import answers_of, holm, moments_of, profiles_of
from inference.programs.program import Program
from inference.uncertainty import observed_information, standard_errors
from ppl_models import (
    Bernoulli,
    Blocks,
    LatentAttributeModel,
    LogNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    TruncatedLasso,
)
from ppl_models.datasets import mastery_test

F64 = torch.float64
Q = ((1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 1), (1, 1), (1, 1))


def test_the_score_statistic_by_enumeration(small: tuple[Fit, torch.Tensor]) -> None:
    result, items = small
    patterns = np.array(list(itertools.product((0, 1), repeat=8)), dtype=float)
    distribution = (
        Program(result.model, torch.tensor(patterns)).log_marginal_rows(result.params).exp().numpy()
    )
    found, x = item_fit(result, items, "score"), items.numpy()
    own = [2, 2, 2, 2, 2, 2, 2, 3]
    for j in range(8):
        rest, seen = patterns.sum(1) - patterns[:, j], x.sum(1) - x[:, j]
        cells = []
        for r in range(8):
            expected = (distribution * patterns[:, j])[rest == r].sum() / distribution[
                rest == r
            ].sum()
            rows = (seen == r).sum()
            cells.append(
                np.array(
                    [
                        rows * expected,
                        rows * (1 - expected),
                        x[seen == r, j].sum(),
                        rows * expected * (1 - expected),
                    ]
                )
            )
        groups: list[np.ndarray] = [np.zeros(4)]
        for cell in cells:
            groups[-1] = groups[-1] + cell
            if groups[-1][:2].min() >= 5:
                groups.append(np.zeros(4))
        if len(groups) > 1:
            rest_of_it = groups.pop()
            groups[-1] = groups[-1] + rest_of_it
        statistic = sum((g[2] - g[0]) ** 2 / g[3] for g in groups)
        if len(groups) > own[j]:
            assert found.statistic[j] == pytest.approx(statistic)
            assert found.degrees[j] == len(groups) - own[j]
            assert found.p_value[j] == pytest.approx(chi2.sf(statistic, len(groups) - own[j]))
        else:
            assert np.isnan(found.statistic[j])
            assert np.isnan(found.p_holm[j])
    assert np.isfinite(found.statistic).sum() >= 3


def test_known_parameters_of_an_item_cost_no_degree(small: tuple[Fit, torch.Tensor]) -> None:
    result, items = small
    known = {name: result.params[name].clone() for name in ("intercepts", "loadings")}
    known["intercepts"][4:] = torch.nan
    known["loadings"][2:][result.model.layers()[0].graph[2:]] = torch.nan
    start = dict(result.params)
    held = fit(result.model, items, EM(tolerance=1e-7), init=start, fixed=known)
    free = item_fit(result, items, "score")
    found = item_fit(held, items, "score")
    seen = np.isfinite(free.degrees)
    assert seen[:5].sum() >= 3
    gained = np.array([2, 2, 1, 1, 0, 0, 0, 0])  # entries known of each item
    np.testing.assert_array_equal((found.degrees - free.degrees)[seen], gained[seen])
    np.testing.assert_allclose(found.statistic[seen], free.statistic[seen], rtol=0.05)
    np.testing.assert_allclose(found.p_value, chi2.sf(found.statistic, found.degrees))
    tied = fit(result.model, items, EM(tolerance=1e-4), init=start, tied={"intercepts": 0})
    with pytest.raises(ValueError, match="not worked out for a fit with tied parameters"):
        item_fit(tied, items, "score")


def test_where_all_is_known_nothing_is_estimated(small: tuple[Fit, torch.Tensor]) -> None:
    result, items = small
    held = fit(result.model, items, fixed=result.params)
    profiles = torch.tensor(list(itertools.product((0, 1), repeat=2)), dtype=F64)
    weights = held.params["profiles"]
    chances = held.structure.expected_responses(held.params, profiles)  # (4, 8)
    # residuals of an item: its variance given the other answers, and no estimate's
    found = item_fit(held, items)
    joint = weights * torch.stack(
        [torch.where(items == 1, p, 1 - p).prod(1) for p in chances], 1
    )  # (N, 4)
    for j in range(8):
        given = joint / torch.where(items[:, [j]] == 1, chances[:, j], 1 - chances[:, j])
        given = given / given.sum(1, keepdim=True)
        expected = given @ chances[:, j]
        beside = torch.cat([torch.ones(len(items), 1, dtype=F64), given @ profiles], 1)
        residual = beside.mT @ (items[:, j] - expected)
        spread = (beside.mT * (expected * (1 - expected))) @ beside
        by_hand = float(residual @ torch.linalg.solve(spread, residual))
        assert found.statistic[j] == pytest.approx(by_hand, rel=1e-6)
        assert found.degrees[j] == pytest.approx(3)
    # M2: shares of items and pairs against their covariance over all answer patterns
    patterns = torch.tensor(list(itertools.product((0, 1), repeat=8)), dtype=F64)
    likelihood = torch.stack([torch.where(patterns == 1, p, 1 - p).prod(1) for p in chances])
    first, second = torch.triu_indices(8, 8, 1)

    def shares(rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([rows, rows[:, first] * rows[:, second]], 1)

    chance, every = weights @ likelihood, shares(patterns)
    mean = chance @ every
    covariance = (every.mT * chance) @ every - torch.outer(mean, mean)
    gap = shares(items).mean(0) - mean
    fitted = limited_information_fit(held, items)
    assert fitted.m2 == pytest.approx(
        800 * float(gap @ torch.linalg.solve(covariance, gap)), rel=1e-6
    )
    assert (fitted.degrees, fitted.num_undetermined) == (36, 0)
    assert local_dependence(held, items).p_value.min() > 1e-4
    with pytest.raises(ValueError, match="every estimate is known"):
        standard_errors(held, items)


@pytest.mark.parametrize("missing", [False, True])
def test_residuals_by_numerical_derivatives(small: tuple[Fit, torch.Tensor], missing: bool) -> None:
    result, items = small
    if missing:
        items = items.masked_fill(
            torch.rand(items.shape, generator=torch.Generator().manual_seed(1)) < 0.1, torch.nan
        )
        items = items[(~items.isnan()).sum(1) > 1]
        result = fit(result.model, items, EM(tolerance=1e-7), num_restarts=1)
    errors = standard_errors(result, items)
    profiles = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=F64)

    def predicted(free: torch.Tensor, j: int) -> tuple[torch.Tensor, torch.Tensor]:
        params = errors.coordinates.params(free)
        hidden = items.clone()
        hidden[:, j] = torch.nan
        posterior = Program(result.model, hidden).latent_marginals(params)["attributes"]
        return posterior, posterior @ result.model.expected_responses(params, profiles)[:, j]

    found = item_fit(result, items)
    for j in (0, 6, 7):
        seen = ~items[:, j].isnan()
        posterior, expected = (part[seen] for part in predicted(errors.estimate, j))
        weights = torch.cat([torch.ones_like(posterior[:, :1]), posterior @ profiles], 1)
        residual = weights.mT @ (items[seen, j] - expected)
        whole = (weights.mT * (expected * (1 - expected))) @ weights
        slopes = []
        for p in range(len(errors.estimate)):
            step = torch.zeros_like(errors.estimate)
            step[p] = 1e-5
            slopes.append(
                weights.mT
                @ (
                    predicted(errors.estimate + step, j)[1]
                    - predicted(errors.estimate - step, j)[1]
                )[seen]
                / 2e-5
            )
        slope = torch.stack(slopes, 1)
        left = whole - slope @ errors.covariance @ slope.mT
        shares = torch.linalg.eigvals(torch.linalg.solve(whole, left)).real.clamp(0, 1)
        statistic = residual @ torch.linalg.solve(whole, residual)
        assert found.statistic[j] == pytest.approx(
            float(statistic * shares.sum() / shares.square().sum()), rel=1e-5
        )
        assert found.degrees[j] == pytest.approx(
            float(shares.sum() ** 2 / shares.square().sum()), rel=1e-5
        )
        known = ~np.isnan(found.z[j])
        assert np.allclose(
            found.z[j][known], (residual / left.diagonal().sqrt())[1:].numpy()[known], rtol=1e-4
        )
    assert not np.isnan(found.statistic).any()


def test_the_moments_of_every_family() -> None:
    response = Blocks(
        (Bernoulli(), 3), (Normal(), 2), (LogNormal(), 2), (Poisson(), 2), (NegativeBinomial(), 3)
    )
    model = LatentAttributeModel([(1, 0), (0, 1), (1, 1)] * 4, response)
    graph = model.layers()[0].graph
    assert graph is not None
    params = {
        "loadings": 0.8 * graph.double(), "intercepts": torch.linspace(-0.5, 0.5, 12, dtype=F64),
        "dispersion": torch.tensor([0.5, 1.0, 0.3, 0.7, 2.0, 3.0, 4.0], dtype=F64),
        "profiles": torch.tensor([0.35, 0.15, 0.1, 0.4], dtype=F64),
    }  # fmt: skip
    items = Program(model, None, 400).simulate(params, 3)["items"]
    items[3, :4] = torch.nan
    result = fit(model, items, EM(tolerance=1e-4), num_restarts=1)
    structure, params, answers = answers_of(result, items, "test")
    moments = moments_of(structure, params, profiles_of(structure, "test"))
    posterior = Program(model, items).latent_marginals(params)["attributes"]
    assert torch.allclose(torch.softmax(moments.log_joint(answers), -1), posterior, atol=1e-12)
    expected = model.expected_responses(params, profiles_of(structure, "test"))
    assert torch.allclose(
        moments.mean[:, [0, 1, 2, 3, 4, 7, 8]], expected[:, [0, 1, 2, 3, 4, 7, 8]]
    )
    assert torch.allclose(moments.variance[:, :3], expected[:, :3] * (1 - expected[:, :3]))
    assert torch.allclose(moments.variance[:, 3:7], params["dispersion"][:4].expand(4, -1))
    assert torch.allclose(moments.variance[:, 7:9], expected[:, 7:9])
    assert torch.allclose(moments.mean[:, 9:], expected[:, 9:])
    assert torch.allclose(
        moments.variance[:, 9:],
        expected[:, 9:] + expected[:, 9:].square() / params["dispersion"][4:],
    )
    assert torch.allclose((moments.mean + moments.variance / 2).exp()[:, 5:7], expected[:, 5:7])
    found = item_fit(result, items)
    assert np.isfinite(found.p_value).sum() >= 8
    assert found.num_rows.tolist() == [399] * 4 + [400] * 8


def test_a_wrong_row_is_found_and_its_attribute_named() -> None:
    design = mastery_test(16, 3, seed=2)
    items, _ = design.draw(1500, seed=1)
    matrix = torch.tensor(design.model.q_matrix)
    j = int((matrix.sum(-1) == 2).nonzero()[0])
    gone = int(matrix[j].nonzero()[0])
    matrix[j, gone] = 0
    model = LatentAttributeModel(matrix, items="dina", attribute_names=("add", "carry", "borrow"))
    result = fit(model, items, EM(tolerance=1e-8))
    found = item_fit(result, items)
    assert (
        found.misfitting[0] == str(j) if len(found.misfitting) == 1 else str(j) in found.misfitting
    )
    assert found.suspects[j] == ("add", "carry", "borrow")[gone]
    assert found.z[j, gone] > 3
    assert f"{j} (see attribute {found.suspects[j]})" in found.text()
    assert found.table.loc[str(j), "attribute"] == found.suspects[j]
    right = item_fit(fit(design.model, items, EM(tolerance=1e-8)), items)
    assert right.p_value[j] > 0.01
    assert right.rmsea[j] < found.rmsea[j]
    assert "None of 16 items" in right.text() or right.misfitting


def test_items_on_their_bound_do_not_stop_it() -> None:
    """A saturated item of which one profile solves everything has a flat direction; nothing that
    the data determine moves along it.
    """
    design = mastery_test(12, 3, "saturated", seed=1)
    items, _ = design.draw(400, seed=3)
    model = LatentAttributeModel(design.model.q_matrix, items="saturated", bound=15.0)
    with pytest.warns(BoundWarning, match="on the bound"):
        result = fit(model, items, EM(tolerance=1e-8), num_restarts=1)
    found = item_fit(result, items)
    assert np.isfinite(found.p_value).sum() >= 6
    information = observed_information(result, items)
    covariance, flat = information.covariance()
    assert torch.isfinite(covariance).all()
    assert covariance.shape == (len(information.names),) * 2
    assert torch.allclose(
        information.matrix @ covariance @ information.matrix,
        information.matrix,
        atol=1e-4 * float(information.matrix.abs().max()),
    )
    assert flat.shape[0] == len(information.names)


def test_holm_by_hand() -> None:
    assert np.allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    assert np.allclose(holm(np.array([0.5, np.nan, 0.02])), [0.5, np.nan, 0.04], equal_nan=True)


def test_bad_input(small: tuple[Fit, torch.Tensor]) -> None:
    result, items = small
    with pytest.raises(ValueError, match="how must be one of"):
        item_fit(result, items, "total")
    gone = items.clone()
    gone[3, 4] = torch.nan
    with pytest.raises(ValueError, match="an answer is missing; use how='attributes'"):
        item_fit(result, gone, "score")
    normal: Any = fit(
        LatentAttributeModel(Q, Normal()),
        items
        + 0.3 * torch.randn(items.shape, dtype=F64, generator=torch.Generator().manual_seed(0)),
        EM(tolerance=1e-3),
        num_restarts=1,
    )
    with pytest.raises(ValueError, match=r"the items are Normal\(\)"):
        item_fit(normal, items, "score")
    open_model = LatentAttributeModel(
        num_attributes=2, num_items=8, penalty=TruncatedLasso(1.0, 0.1)
    )
    with pytest.raises(ValueError, match="item_fit: the loadings are penalised"):
        item_fit(fit(open_model, items, EM(tolerance=1e-3), num_restarts=1), items)
