"""Expected answers and shares of profiles with intervals: equal to the delta method of the
parameters, on the right scale, and covering.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from inference import EM, fit
from inference.inspection import item_curves, profile_shares
from inference.programs.program import Program
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Blocks,
    Hierarchy,
    HigherOrder,
    LatentAttributeModel,
    LogNormal,
    Normal,
    Poisson,
)
from ppl_models.datasets import mastery_test

F64 = torch.float64


def test_guessing_and_slipping() -> None:
    design = mastery_test(14, 3, seed=1)
    model = LatentAttributeModel(
        design.model.q_matrix, items="dina", attribute_names=("add", "carry", "borrow")
    )
    items, _ = design.draw(1500, seed=2)
    result = fit(model, items, EM(tolerance=1e-9), num_restarts=1)
    value, error = standard_errors(result, items).delta(model.guess_slip)
    found = item_curves(result, items, level=0.9)
    for j, row in enumerate(model.q_matrix):
        own = np.flatnonzero(found.item == j)
        assert len(own) == 2 ** sum(row)
        assert np.allclose(found.expected[own[:-1]], value[j, 0])
        assert np.allclose(found.standard_errors[own[:-1]], error[j, 0], rtol=1e-5)
        assert found.expected[own[-1]] == pytest.approx(1 - float(value[j, 1]))
        assert found.standard_errors[own[-1]] == pytest.approx(float(error[j, 1]), rel=1e-5)
        assert found.profiles[own[-1]] == tuple(
            name for name, bit in zip(("add", "carry", "borrow"), row, strict=True) if bit
        )
    step = 1.6448536 * found.standard_errors / (found.expected * (1 - found.expected))
    assert np.allclose(found.low, expit(logit(found.expected) - step))
    assert np.allclose(found.high, expit(logit(found.expected) + step))
    line = found.table.loc[("0", "none")]
    assert line["low"] < line["expected"] < line["high"]
    truth = design.model.expected_responses(design.params, torch.zeros(1, 3, dtype=F64))[0].numpy()
    none = found.table.xs("none", level="attributes")
    assert ((none["low"] < truth) & (truth < none["high"])).sum() >= 10


def test_scales_of_the_families() -> None:
    response = Blocks((Bernoulli(), 3), (Normal(), 2), (LogNormal(), 2), (Poisson(), 2))
    model = LatentAttributeModel([(1, 0), (0, 1), (1, 1)] * 3, response)
    graph = model.layers()[0].graph
    assert graph is not None
    truth = {
        "loadings": graph.double(),
        "intercepts": torch.linspace(-0.5, 0.5, 9, dtype=F64),
        "dispersion": torch.full((4,), 0.3, dtype=F64),
        "profiles": torch.tensor([0.35, 0.15, 0.1, 0.4], dtype=F64),
    }
    items = Program(model, None, 1500).simulate(truth, 3)["items"]
    result = fit(model, items, EM(tolerance=1e-9), num_restarts=1)
    found, errors = item_curves(result, items), standard_errors(result, items)
    for j, scale in ((3, "identity"), (5, "log"), (7, "log")):
        own = np.flatnonzero(found.item == j)
        profiles = torch.zeros(len(own), 2, dtype=F64)
        profiles[:, torch.tensor(model.q_matrix[j]).bool()] = (
            torch.tensor([[0.0], [1.0]], dtype=F64)
            if len(own) == 2
            else torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=F64)
        )
        value, error = errors.delta(
            lambda params, profiles=profiles, j=j: model.expected_responses(params, profiles)[:, j]
        )
        assert np.allclose(found.expected[own], value)
        assert np.allclose(found.standard_errors[own], error, rtol=1e-5)
        width = 1.959964 * error.numpy()
        low = (
            value.numpy() - width
            if scale == "identity"
            else value.numpy() * np.exp(-width / value.numpy())
        )
        assert np.allclose(found.low[own], low, rtol=1e-5)


@pytest.mark.parametrize(
    "root", [None, HigherOrder(), Hierarchy(((0, 1),))], ids=["saturated", "trait", "hierarchy"]
)
def test_shares_of_profiles(root: HigherOrder | Hierarchy | None) -> None:
    design = mastery_test(14, 3, seed=1)
    model = (
        LatentAttributeModel(design.model.q_matrix, items="dina")
        if root is None
        else LatentAttributeModel(design.model.q_matrix, items="dina", root=root)
    )
    items, _ = design.draw(1500, seed=2)
    result = fit(model, items, EM(tolerance=1e-9), num_restarts=1)
    found, errors = profile_shares(result, items), standard_errors(result, items)
    distribution = model.root_layer()
    profiles = torch.tensor(found.profiles)
    value, error = errors.delta(
        lambda params: distribution.distribution(params).log_prob(profiles).exp()
    )
    assert np.allclose(found.shares, value)
    assert np.allclose(found.standard_errors, error, rtol=1e-4)
    mastery, its_error = errors.delta(lambda params: distribution.marginals(params))
    assert np.allclose(found.mastery, mastery)
    assert np.allclose(found.mastery_errors, its_error, rtol=1e-4)
    assert ((found.low > 0) & (found.high < 1)).all()
    assert found.table["share"].is_monotonic_decreasing
    assert found.mastery_table.shape == (3, 4)
    if root is None:
        assert np.allclose(found.standard_errors, errors.standard_errors["profiles"], rtol=1e-4)


def test_what_is_undetermined_has_no_interval() -> None:
    model = LatentAttributeModel([(1, 0), (0, 1)] * 3 + [(1, 1)], items="saturated", bound=60.0)
    loadings = torch.cat(
        [2.5 * torch.tensor(model.q_matrix).double(), torch.zeros(7, 1, dtype=F64)], 1
    )
    loadings[6] = torch.tensor([0.0, 0.0, 40.0])  # who has both solves it, as far out as one likes
    truth = {
        "loadings": loadings,
        "intercepts": torch.full((7,), -1.5, dtype=F64),
        "profiles": torch.full((4,), 0.25, dtype=F64),
    }
    items = Program(model, None, 1000).simulate(truth, 1)["items"]
    result = dataclasses.replace(
        fit(model, items, EM(max_iterations=300), init=truth), params=truth
    )
    found = item_curves(result, items).table
    assert np.isnan(
        found.loc[("6", "attributes 0 + 1"), ["standard_error", "low", "high"]].astype(float)
    ).all()
    assert found.loc[("6", "attributes 0 + 1"), "expected"] == pytest.approx(1)
    assert np.isfinite(found.drop(index=("6", "attributes 0 + 1"))).all().all()


def test_known_items_have_no_error() -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(300, seed=1)
    first = fit(design.model, items, EM(max_iterations=300), num_restarts=1)
    known = {
        name: torch.full_like(first.params[name], torch.nan) for name in ("intercepts", "loadings")
    }
    for name, value in known.items():
        value[0] = first.params[name][0]
    found = item_curves(fit(design.model, items, fixed=known), items)
    of_known = found.item == 0
    assert (found.standard_errors[of_known] == 0).all()
    assert (found.low[of_known] == found.high[of_known]).all()
    assert (found.standard_errors[~of_known] > 0).all()


def test_bad_input() -> None:
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(300, seed=1)
    result = fit(design.model, items, EM(max_iterations=300), num_restarts=1)
    for ask in (item_curves, profile_shares):
        with pytest.raises(ValueError, match=r"level must lie in \(0, 1\), got 95"):
            ask(result, items, level=95)
        with pytest.raises(ValueError, match="num_items = 12"):
            ask(result, items[:, :5])
