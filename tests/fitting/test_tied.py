"""Tied parameters: the constrained maximum against one found directly, and what a fit says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support import known_data as known
from torch import Tensor

from inference import EM, NUTS, SVI, Fit, Laplace, RowBlocks, fit
from inference.fitting.fixed import with_fixed
from inference.fitting.problem import problem_of
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Categorical,
    HiddenMarkov,
    Mixture,
    MultivariateNormal,
    Normal,
    Poisson,
)

pytestmark = pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning")
NAN = math.nan
WITH_GAPS = known.NUMBERS.copy()
WITH_GAPS[::7, 0] = NAN
ITEM_1 = [[0, 1, 2, 3], [0, 4, 5, 6]]  # equal in both classes in item 1 alone

CASES: dict[str, tuple[Any, Any, dict[str, Any], int, bool]] = {
    # model, data, ties, free parameters that they take away, whether the steps pool
    "variances": (Mixture(3, Normal()), known.NUMBERS, {"dispersion": 0}, 4, True),
    "variances of some": (
        Mixture(3, Normal()),
        WITH_GAPS,
        {"dispersion": [[0, -1], [0, 1], [-1, 1]]},
        2,
        True,
    ),
    "an item": (Mixture(2, Bernoulli()), known.ANSWERS, {"predictors": ITEM_1}, 1, True),
    "rates": (
        Mixture(2, Poisson()),
        known.COUNTS,
        {"predictors": [[0, -1, -1], [0, -1, -1]]},
        1,
        True,
    ),
    "tables": (
        Mixture(2, Categorical(3)),
        known.CODES,
        {"probabilities": [[0, 1, 2, *[-1] * 6]] * 2},
        2,
        True,
    ),
    "state variances": (HiddenMarkov(2, Normal()), known.CHAINS, {"dispersion": 0}, 1, True),
    "moves": (HiddenMarkov(2, Normal()), known.CHAINS, {"transitions": 0}, 1, False),
    "across items": (Mixture(2, Normal()), known.NUMBERS, {"dispersion": 1}, 2, False),
    "means": (Mixture(2, Normal()), known.NUMBERS, {"predictors": [[0, -1], [0, -1]]}, 1, False),
    "program": (known.program, torch.tensor(known.ANSWERS), {"chances": ITEM_1}, 1, False),
}


def direct(result: Fit, data: Any, ties: dict[str, Any], noise: float) -> float:
    """Largest log-posterior under the equalities by L-BFGS, from near the estimate."""
    whole = problem_of(result.model, data, 0).program()
    generator = torch.Generator().manual_seed(0)
    leaves, makers = [], []
    for name, value in result.params.items():
        groups = torch.arange(value.numel()).reshape(value.shape)
        if name in ties:
            own = ties[name]
            groups = (
                groups.movedim(own, 0)[:1].expand_as(groups.movedim(own, 0)).movedim(0, own)
                if isinstance(own, int)
                else torch.where(torch.tensor(own) < 0, groups, 1000 + torch.tensor(own))
            )
        _, place = groups.ravel().unique(return_inverse=True)
        scale = "log" if name in ("dispersion", "weights", "transitions", "initial") else "as it is"
        scale = "log" if name == "probabilities" else "logit" if name == "chances" else scale
        forth = {"log": torch.log, "logit": torch.logit, "as it is": torch.clone}[scale]
        start = torch.zeros(int(place.max()) + 1, dtype=torch.float64)
        start[place] = forth(value.ravel().clamp(min=1e-9) if scale == "log" else value.ravel())
        start = start + noise * torch.randn(start.shape, generator=generator, dtype=torch.float64)
        leaves.append(start.requires_grad_())

        def entries(
            at: Tensor = leaves[-1],
            place: Tensor = place,
            shape: Any = value.shape,
            name: str = name,
            scale: str = scale,
        ) -> Tensor:
            full = at[place].reshape(shape)
            if name in ("weights", "transitions", "initial"):
                return full.softmax(-1)
            if name == "probabilities":
                return full.reshape(-1, 3).softmax(-1).reshape(shape)
            return {"log": torch.exp, "logit": torch.sigmoid, "as it is": torch.clone}[scale](full)

        makers.append((name, entries))
    optimizer = torch.optim.LBFGS(
        leaves, max_iter=500, tolerance_grad=1e-9, tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def value_at() -> Tensor:
        params = {name: make() for name, make in makers}
        return whole.log_marginal(params) + whole.log_prior(params)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -value_at()
        loss.backward()
        return loss

    optimizer.step(closure)
    return float(value_at().detach())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:the best optimum was not replicated|the rows of the transition")
def test_the_fit_is_the_maximum_under_the_equalities(name: str) -> None:
    model, data, ties, taken, pools = CASES[name]
    problem = with_fixed(problem_of(model, data, 0), None, ties)
    assert (problem.steps(2**18, 1) is not None) == pools
    found = fit(model, data, EM(tolerance=1e-12, max_iterations=3000), num_restarts=4, tied=ties)
    for site, source in found.tied.items():
        value = found.params[site].ravel()
        assert torch.equal(value, value[source.ravel()])
        assert int((source.ravel() != torch.arange(len(value))).sum()) >= taken
    best = direct(found, data, ties, 0.0)
    assert found.objective == pytest.approx(best, abs=2e-5)
    assert direct(found, data, ties, 0.05) <= found.objective + 2e-5
    gains = found.trace.objective.diff()
    assert bool((gains[gains.isfinite()] > -1e-7).all())
    assert found.num_parameters == fit(model, data, EM(max_iterations=2)).num_parameters - taken
    if pools:
        slow = fit(model, data, EM(accelerate=False), init=found, tied=ties)
        assert slow.objective == pytest.approx(found.objective, abs=1e-5)


def test_tied_variances_are_the_covariance_family_of_equal_diagonals() -> None:
    tied = fit(Mixture(2, Normal()), known.NUMBERS, EM(tolerance=1e-12), tied={"dispersion": 0})
    family = Mixture(2, MultivariateNormal(covariance="EEI"))
    other = fit(family, known.NUMBERS, EM(tolerance=1e-12))
    assert tied.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-5)
    assert tied.num_parameters == other.num_parameters


def test_equal_entries_have_one_standard_error_and_one_draw(tmp_path: Path) -> None:
    ties = {"dispersion": 0}
    found = fit(Mixture(2, Normal()), known.NUMBERS, EM(tolerance=1e-12), tied=ties)
    errors = standard_errors(found, known.NUMBERS)
    assert len(errors.names) == found.num_parameters == 7
    program = problem_of(found.model, known.NUMBERS, 0).program()

    def objective(vector: Tensor) -> Tensor:
        share = vector[0].sigmoid()
        params = {
            "weights": torch.stack([share, 1 - share]),
            "predictors": vector[1:5].reshape(2, 2),
            "dispersion": vector[5:].exp().expand(2, 2),
        }
        return program.log_marginal(params) + program.log_prior(params)

    own = found.params
    parts = [torch.logit(own["weights"][:1]), own["predictors"].ravel(), own["dispersion"][0].log()]
    at = torch.cat(parts)
    by_hand = torch.linalg.inv(-torch.autograd.functional.hessian(objective, at))
    expected = by_hand.diagonal()[5:].sqrt() * own["dispersion"][0]
    spread = errors.standard_errors
    torch.testing.assert_close(spread["dispersion"], expected.expand(2, 2), rtol=1e-4, atol=0)
    means = by_hand.diagonal()[1:5].sqrt().reshape(2, 2)
    torch.testing.assert_close(spread["predictors"], means, rtol=1e-4, atol=0)
    low, high = errors.intervals()["dispersion"]
    assert torch.equal(low[0], low[1])
    assert bool((low < high).all())
    for method in (Laplace(num_draws=500), NUTS(num_chains=2, warmup_steps=200, num_samples=250)):
        drawn = fit(Mixture(2, Normal()), known.NUMBERS, method, tied=ties)
        draws = drawn.draws["dispersion"].flatten(0, 1)
        assert torch.equal(draws[:, 0], draws[:, 1])
        torch.testing.assert_close(draws[:, 0].std(0), expected, rtol=0.25, atol=0)
        assert drawn.num_parameters == 7
        assert "relabelled" in drawn.sample_stats or isinstance(method, Laplace)
    found.save(tmp_path / "fit")
    loaded = Fit.load(tmp_path / "fit")
    assert repr(loaded) == repr(found)
    assert "tied" in repr(loaded)


def test_blocks_and_known_values_go_with_ties() -> None:
    model, ties = Mixture(2, Normal(), 2), {"dispersion": 0}
    whole = fit(model, known.NUMBERS, EM(), tied=ties, num_restarts=2)
    parts = fit(model, RowBlocks.of(known.NUMBERS, 64), EM(), tied=ties, num_restarts=2)
    assert parts.objective == pytest.approx(whole.objective, abs=1e-6)
    both = fit(model, known.NUMBERS, tied=ties, fixed={"dispersion": [[1.5, NAN], [NAN, NAN]]})
    assert both.params["dispersion"][:, 0].tolist() == [1.5, 1.5]
    assert both.num_parameters == 9 - 2 - 1


def test_ties_of_some_classes_name_them() -> None:
    problem = problem_of(Mixture(3, Normal()), known.NUMBERS, 0)
    assert not with_fixed(problem, None, {"dispersion": 0}).is_named
    some = with_fixed(problem, None, {"dispersion": [[0, 1], [0, 1], [-1, -1]]})
    assert some.is_named
    (label,) = some.exchangeable()
    assert label.kinds.tolist() == [0, 0, 2]


WRONG: list[tuple[Any, Any, str]] = [
    (Mixture(2, Normal()), {"sizes": 0}, "tied: one of the parameters 'weights', 'predictors'"),
    (Mixture(2, Normal()), {"dispersion": 2}, r"'dispersion' has 2 axes, shape \(2, 2\), got axis"),
    (Mixture(2, Normal()), {"dispersion": [0, 1]}, r"whole numbers of shape \(2, 2\)"),
    (Mixture(2, Normal()), {"dispersion": [[0.5, 0], [0, 0]]}, "whole numbers .* with 0.5"),
    (Mixture(2, Normal()), {"dispersion": "classes"}, "whole numbers were expected"),
    (Mixture(2, Normal()), {}, "tied: an axis, or whole numbers in its shape, by site"),
    (Mixture(2, Normal()), {"weights": 0}, "probability vectors, which are equal as wholes"),
    (Mixture(2, MultivariateNormal()), {"precisions": 0}, r"matrices.*covariance='EEE'"),
]


@pytest.mark.parametrize(("model", "ties", "words"), WRONG)
def test_wrong_ties_are_named(model: Any, ties: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(model, known.NUMBERS, tied=ties)


def test_engines_that_hold_no_ties_name_them() -> None:
    with pytest.raises(ValueError, match=r"tied: EM\(\), SAEM\(\), .* hold parameters, and SVI"):
        fit(Mixture(2, Normal()), known.NUMBERS, SVI(guide=lambda _: None), tied={"dispersion": 0})


def test_equal_entries_that_are_known_to_differ_are_refused() -> None:
    given = {"dispersion": [[1.0, NAN], [2.0, NAN]]}
    with pytest.raises(ValueError, match="entries that are equal, and fixed gives them 1 and 2"):
        fit(Mixture(2, Normal()), known.NUMBERS, tied={"dispersion": 0}, fixed=given)
