"""Distributions of the attributes side by side: the ratios of separate fits, chi-square where it
holds and data sets drawn where it does not.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from inference import EM, Fit, fit
from inference.programs.program import Program
from inference.selection import compare_roots
from inference.selection.attribute_distributions import RootComparison, _lifted, _nested
from ppl_models import (
    Dag,
    DeepDiscreteEncoder,
    Hierarchy,
    HigherOrder,
    Independent,
    LatentAttributeModel,
    Normal,
    Saturated,
)

F64 = torch.float64
EYE = np.eye(3, dtype=int)
MODEL = LatentAttributeModel(np.concatenate([EYE, EYE, EYE]), items="dina")
METHOD = EM(tolerance=1e-7)
DISTRIBUTIONS = [Independent(), HigherOrder(), Dag(((0, 1),)), Hierarchy(((0, 1),)), Saturated()]


def drawn(shares: list[float], num_rows: int, seed: int) -> torch.Tensor:
    graph = MODEL.layers()[0].graph
    params = {
        "profiles": torch.tensor(shares, dtype=F64),
        "loadings": 4.0 * torch.tensor(EYE).repeat(3, 1).double(),
        "intercepts": torch.full((9,), -2.0, dtype=F64),
    }
    assert graph is None or graph.shape == (9, 3)
    return Program(MODEL, None, num_rows).simulate(params, seed)["items"]


@pytest.fixture(scope="module")
def compared() -> tuple[Fit, torch.Tensor, RootComparison]:
    items = drawn([0.25, 0.05, 0.1, 0.1, 0.1, 0.1, 0.05, 0.25], 600, 1)
    result = fit(MODEL, items, METHOD, num_restarts=1)
    return result, items, compare_roots(result, items, DISTRIBUTIONS, num_replicates=4)


def test_one_table(compared: tuple[Fit, torch.Tensor, RootComparison]) -> None:
    result, items, found = compared
    table = found.table
    assert list(table.index) == ["independent", "dag", "hierarchy", "higher-order", "saturated"]
    assert table.loc["saturated", "log_likelihood"] == pytest.approx(result.log_likelihood)
    assert table["num_parameters"].tolist() == [21, 22, 23, 24, 25]
    alone = fit(
        LatentAttributeModel(MODEL.q_matrix, items="dina", root=Independent()),
        items,
        METHOD,
        num_restarts=2,
    )
    assert table.loc["independent", "log_likelihood"] == pytest.approx(
        alone.log_likelihood, abs=0.01
    )
    assert np.allclose(table["aic"], 2 * table["num_parameters"] - 2 * table["log_likelihood"])
    assert np.allclose(
        table["bic"], np.log(600) * table["num_parameters"] - 2 * table["log_likelihood"]
    )
    assert found.best == table["bic"].astype(float).idxmin()
    tests = {(test.small, test.large): test for test in found.tests}
    assert set(tests) == {
        ("independent", "dag"),
        ("independent", "higher-order"),
        ("dag", "saturated"),
        ("higher-order", "saturated"),
        ("hierarchy", "saturated"),
    }
    for (small, large), test in tests.items():
        gain = 2 * (found.fits[large].log_likelihood - found.fits[small].log_likelihood)
        assert test.degrees == found.fits[large].num_parameters - found.fits[small].num_parameters
        if test.distribution == "chi-square":
            assert test.ratio == pytest.approx(gain)
            assert test.p_value == pytest.approx(chi2.sf(gain, test.degrees))
        else:
            assert test.ratio == pytest.approx(gain, abs=1e-3)
            assert test.bootstrap is not None
            assert test.p_value == test.bootstrap.p_value
    assert {pair for pair, test in tests.items() if test.distribution == "bootstrap"} == {
        ("independent", "higher-order"),
        ("hierarchy", "saturated"),
    }
    assert tests["independent", "dag"].p_value < 0.05
    assert tests["hierarchy", "saturated"].p_value == pytest.approx(
        0.2
    )  # the least that four replicates can say
    assert "BIC prefers the" in found.text()
    assert "The independent distribution is rejected against the dag one" in found.text()


@pytest.mark.slow
def test_a_true_hierarchy_is_not_rejected() -> None:
    """Its ratio lies among those of data drawn from it; against the chi-square distribution it
    would be too small.
    """
    items = drawn([0.3, 0.1, 0, 0, 0.1, 0.1, 0.1, 0.3], 600, 2)
    distribution = Hierarchy(((0, 1),))
    result = fit(
        LatentAttributeModel(MODEL.q_matrix, items="dina", root=distribution),
        items,
        METHOD,
        num_restarts=1,
    )
    found = compare_roots(result, items, [Saturated()], num_replicates=7)
    (test,) = found.tests
    assert (test.small, test.large, test.distribution) == ("hierarchy", "saturated", "bootstrap")
    assert "probability zero" in test.reason
    assert test.p_value > 0.125
    assert found.best == "hierarchy"
    (silent,) = compare_roots(
        result, items, {"needed": distribution, "all": Saturated()}, num_replicates=0
    ).tests
    assert (silent.small, silent.large, silent.distribution) == ("needed", "all", "none")
    assert np.isnan(silent.p_value)
    assert (
        "ask for num_replicates=99"
        in compare_roots(result, items, [Saturated()], num_replicates=0).text()
    )


@pytest.mark.slow
def test_rare_profiles_are_no_case_for_chi_square(
    compared: tuple[Fit, torch.Tensor, RootComparison],
) -> None:
    items = compared[1][:60]
    result = fit(MODEL, items, METHOD, num_restarts=1)
    found = compare_roots(result, items, [HigherOrder()], num_replicates=0, num_folds=3)
    assert "expected in fewer than 5 rows" in found.tests[0].reason
    assert np.isfinite(found.table["elpd"].astype(float)).all()
    assert (found.table["elpd_diff"] >= 0).all()


def test_which_distributions_contain_which(
    compared: tuple[Fit, torch.Tensor, RootComparison],
) -> None:
    distributions = {
        "independent": Independent(),
        "trait": HigherOrder(),
        "edge": Dag(((0, 1),)),
        "edges": Dag(((0, 1), (1, 2))),
        "loose": Hierarchy(((0, 1),)),
        "strict": Hierarchy(((0, 1), (1, 2))),
        "all": Saturated(),
    }
    roots = {
        name: distribution.root("attributes", 3) for name, distribution in distributions.items()
    }
    inside = {(a, b) for a in roots for b in roots if a != b and _nested(roots[a], roots[b])}
    assert inside == {
        *((name, "all") for name in distributions if name != "all"),
        ("independent", "trait"),
        ("independent", "edge"),
        ("independent", "edges"),
        ("edge", "edges"),
        ("strict", "loose"),
    }
    fits = compared[2].fits
    for small, large in (
        ("independent", "higher-order"),
        ("higher-order", "saturated"),
        ("hierarchy", "saturated"),
    ):
        start = _lifted(fits[small], fits[large], 0)
        near = fits[large].structure.root.distribution(start)
        exact = fits[small].structure.root.distribution(fits[small].params)
        profiles = torch.tensor([[0, 0, 0], [1, 1, 1]], dtype=F64)
        assert torch.allclose(
            near.log_prob(profiles).exp(), exact.log_prob(profiles).exp(), atol=0.08
        )


def test_bad_input(compared: tuple[Fit, torch.Tensor, RootComparison]) -> None:
    result, items, _ = compared
    for roots, words in (
        ([Saturated()], "at least two different distributions"),
        ("saturated", "roots must be distributions such as"),
        ([HigherOrder], r"root must be Saturated\(\)"),
        ([Hierarchy(((0, 7),))], "attribute 7 is not among the 3"),
    ):
        with pytest.raises(ValueError, match=words):
            compare_roots(result, items, roots)
    with pytest.raises(ValueError, match="num_replicates"):
        compare_roots(result, items, num_replicates=-1)
    x = torch.randn(40, 4, dtype=F64)
    with pytest.raises(ValueError, match="LatentAttributeModel was expected"):
        compare_roots(
            fit(DeepDiscreteEncoder(4, (1,), Normal()), x, EM(max_iterations=200), num_restarts=1),
            x,
        )
