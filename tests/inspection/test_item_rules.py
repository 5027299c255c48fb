"""Wald tests of rules against contrasts worked out from standard errors, on items whose rule is
known; what is undetermined is left out.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from inference import EM, BoundWarning, Fit, fit
from inference.inspection import item_rules
from inference.inspection.attributes import holm
from inference.programs.program import Program
from inference.uncertainty import standard_errors
from ppl_models import Hierarchy, LatentAttributeModel, Normal
from ppl_models.datasets import mastery_test

F64 = torch.float64
Q = ((1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (0, 1), (1, 1), (1, 1), (1, 1))
PROFILES = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=F64)


@pytest.fixture(scope="module")
def fitted() -> tuple[Fit, torch.Tensor]:
    """Item 6 is all or nothing, 7 any one, 8 additive in log-odds."""
    model = LatentAttributeModel(Q, items="saturated", attribute_names=("a", "b"))
    loadings = 2.5 * torch.tensor(Q, dtype=F64)
    loadings = torch.cat([loadings, torch.zeros(9, 1, dtype=F64)], 1)
    loadings[6:] = torch.tensor([[0, 0, 3.0], [3.0, 3.0, -3.0], [1.5, 1.5, 0.0]], dtype=F64)
    truth = {
        "loadings": loadings,
        "intercepts": torch.full((9,), -1.5, dtype=F64),
        "profiles": torch.tensor([0.3, 0.2, 0.2, 0.3], dtype=F64),
    }
    items = Program(model, None, 2000).simulate(truth, 3)["items"]
    return fit(model, items, EM(tolerance=1e-9), num_restarts=1), items


def test_the_statistics_from_standard_errors(fitted: tuple[Fit, torch.Tensor]) -> None:
    result, items = fitted
    errors = standard_errors(result, items)
    found = item_rules(result, items)
    table = found.table

    def odds(params: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.logit(result.model.expected_responses(params, PROFILES))

    contrasts = {
        "dina": lambda eta: eta[1:3] - eta[0],
        "dino": lambda eta: eta[1:3] - eta[3],
        "additive": lambda eta: (eta[3] - eta[2] - eta[1] + eta[0]).reshape(1),
        "acdm": (
            lambda eta: (
                eta.sigmoid()[3] - eta.sigmoid()[2] - eta.sigmoid()[1] + eta.sigmoid()[0]
            ).reshape(1)
        ),
        "rrum": (
            lambda eta: (
                eta.sigmoid().log()[3]
                - eta.sigmoid().log()[2]
                - eta.sigmoid().log()[1]
                + eta.sigmoid().log()[0]
            ).reshape(1)
        ),
    }
    free = errors.estimate.clone().requires_grad_()
    for j in (6, 7, 8):
        for rule, contrast in contrasts.items():
            gap = contrast(odds(errors.coordinates.params(free))[:, j])
            slopes = torch.stack(
                [torch.autograd.grad(entry, free, retain_graph=True)[0] for entry in gap]
            )
            gap = gap.detach()
            wald = float(gap @ torch.linalg.solve(slopes @ errors.covariance @ slopes.mT, gap))
            line = table.loc[(str(j), rule)]
            assert line["statistic"] == pytest.approx(wald, rel=1e-6)
            assert line["degrees"] == len(gap)
            assert line["p_value"] == pytest.approx(chi2.sf(wald, len(gap)), rel=1e-5)
            assert line["num_parameters"] == (2 if rule in ("dina", "dino") else 3)
    assert np.allclose(table["p_holm"], holm(table["p_value"].to_numpy()))


def test_the_right_rules_are_chosen(fitted: tuple[Fit, torch.Tensor]) -> None:
    result, items = fitted
    found = item_rules(result, items, corrected=True)
    assert found.rules[:8] == ("additive",) * 6 + ("dina", "dino")
    assert found.rules[8] in ("additive", "acdm")  # near each other
    assert found.table.loc[("8", "additive"), "p_value"] > 0.01
    assert found.table["chosen"].sum() == 3
    chosen = dataclasses.replace(result.model, items=found.rules)
    smaller = fit(chosen, items, EM(tolerance=1e-8), num_restarts=1)
    assert smaller.num_parameters == result.num_parameters - 5
    assert smaller.bic < result.bic
    assert "Of 3 items with several attributes" in found.text()


def test_three_attributes_and_any_family() -> None:
    """With Normal items the rules that speak of chances are left out."""
    q_matrix = torch.cat([torch.eye(3), torch.eye(3), torch.ones(2, 3)]).long()
    model = LatentAttributeModel(q_matrix, Normal(), items="saturated")
    loadings = torch.zeros(8, 7, dtype=F64)
    loadings[:6, :3] = 2.0 * torch.eye(3, dtype=F64).repeat(2, 1)
    loadings[6, 6], loadings[7, :3] = 2.0, 1.0
    truth = {
        "loadings": loadings,
        "intercepts": torch.zeros(8, dtype=F64),
        "dispersion": torch.full((8,), 0.25, dtype=F64),
        "profiles": torch.full((8,), 0.125, dtype=F64),
    }
    items = Program(model, None, 1000).simulate(truth, 1)["items"]
    found = item_rules(fit(model, items, EM(tolerance=1e-9), num_restarts=1), items)
    assert found.rules[6:] == ("dina", "additive")
    table = found.table
    assert sorted(table.loc["6"].index) == ["additive", "dina", "dino"]
    assert table.loc[("6", "dina"), "degrees"] == 6
    assert table.loc[("6", "additive"), "degrees"] == 4


def test_chances_that_nothing_holds_are_left_out(fitted: tuple[Fit, torch.Tensor]) -> None:
    result, items = fitted
    items = items.clone()
    posterior = result.posterior_latents(items)["attributes"]
    items[(posterior > 0.5).all(1), 6] = 1.0  # who has both solves it
    items[(posterior < 0.5).all(1), 6] = 0.0
    model = dataclasses.replace(result.model, bound=15.0)
    with pytest.warns(BoundWarning, match="on the bound"):
        found = item_rules(fit(model, items, EM(tolerance=1e-8), num_restarts=1), items)
    table = found.table
    assert table.loc[("6", "additive"), "degrees"] == 0
    assert np.isnan(table.loc[("6", "additive"), "p_value"])
    assert table.loc[("6", "dina"), "degrees"] < 2
    assert np.isfinite(table.loc["7"]["p_value"]).all()


def test_bad_input(fitted: tuple[Fit, torch.Tensor]) -> None:
    result, items = fitted
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\)"):
        item_rules(result, items, level=1.0)
    for rule in ("dina", "acdm", "additive"):
        other = fit(
            dataclasses.replace(result.model, items=rule),
            items,
            EM(max_iterations=300),
            num_restarts=1,
        )
        with pytest.raises(
            ValueError, match="item '6' is not one; fit the model dataclasses.replace"
        ):
            item_rules(other, items)
    design = mastery_test(12, 3, seed=1)
    simple = LatentAttributeModel(np.array(design.model.q_matrix)[:6], items="saturated")
    found = item_rules(
        fit(simple, design.draw(500, seed=1)[0][:, :6], EM(tolerance=1e-5), num_restarts=1),
        design.draw(500, seed=1)[0][:, :6],
    )
    assert found.tests == ()
    assert found.text() == "Every item asks for one attribute, and all rules are then the same."
    assert len(found.table) == 0


def test_known_items_are_refused(fitted: tuple[Fit, torch.Tensor]) -> None:
    result, items = fitted
    known = {name: result.params[name].clone() for name in ("intercepts", "loadings")}
    with pytest.raises(ValueError, match=r"expected, and intercepts\[0\], loadings\[0,"):
        item_rules(fit(result.model, items, fixed=known), items)


def test_profiles_that_nobody_has_are_left_out() -> None:
    """As under the hierarchy that forbids the profile."""
    model = LatentAttributeModel(Q, Normal(), items="saturated")
    loadings = torch.cat([2.5 * torch.tensor(Q, dtype=F64), torch.zeros(9, 1, dtype=F64)], 1)
    loadings[6:] = torch.tensor([[0, 0, 3.0], [3.0, 3.0, -3.0], [1.5, 1.5, 0.0]], dtype=F64)
    truth = {
        "loadings": loadings,
        "intercepts": torch.zeros(9, dtype=F64),
        "dispersion": torch.full((9,), 0.25, dtype=F64),
        "profiles": torch.tensor([0.4, 0.0, 0.2, 0.4], dtype=F64),
    }
    items = Program(model, None, 1000).simulate(truth, 3)["items"]
    free, allowed = (
        fit(one, items, EM(tolerance=1e-9), num_restarts=1)
        for one in (model, dataclasses.replace(model, root=Hierarchy(((0, 1),))))
    )
    assert float(free.params["profiles"][1]) < 1e-6
    table, other = item_rules(free, items).table, item_rules(allowed, items).table
    for item in ("6", "7", "8"):
        for rule in ("dina", "dino"):
            line, expected = table.loc[(item, rule)], other.loc[(item, rule)]
            assert line["degrees"] == expected["degrees"] == 1
            assert line["statistic"] == pytest.approx(expected["statistic"], rel=1e-4)
        assert table.loc[(item, "additive"), "degrees"] == 0
        assert np.isnan(table.loc[(item, "additive"), "p_value"])
