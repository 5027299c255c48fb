"""Known parameters: the constrained maximum against one found directly, and what a fit says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from inference import EM, NUTS, Fit, RowBlocks, fit
from inference.base.structure import separates
from inference.bootstrap import bootstrap
from inference.fitting.problem import problem_of
from inference.programs.fixed import Fixed
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Categorical,
    HiddenMarkov,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    Normal,
    Poisson,
)

pytestmark = pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning")
NAN = math.nan
RNG = np.random.default_rng(0)
GROUP = RNG.choice(2, 200, p=[0.6, 0.4])
NUMBERS = RNG.normal(size=(200, 2)) + 2.5 * GROUP[:, None]
ANSWERS = (RNG.random((200, 4)) < np.where(GROUP, 0.75, 0.3)[:, None]).astype(float)
CODES = RNG.integers(0, 3, (200, 3)).astype(float)
CODES[GROUP == 1] = np.minimum(CODES[GROUP == 1], RNG.integers(0, 3, (int(GROUP.sum()), 3)))
COUNTS = RNG.poisson(np.where(GROUP, 6.0, 1.5)[:, None], (200, 3)).astype(float)
STATES = (RNG.random((10, 20)) < 0.25).cumsum(1) % 2
CHAINS = RNG.normal(size=(10, 20, 1)) + 2.0 * STATES[..., None]
Q_MATRIX = [[1, 0], [0, 1], [1, 1], [1, 0]]


def program(data: Tensor) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.full((2,), 1.5)))
    chances = pyro.sample("chances", dist.Beta(1.2, 1.2).expand([2, 4]).to_event(2))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Bernoulli(chances[z]).to_event(1), obs=data)


CASES: dict[str, tuple[Any, Any, dict[str, Any], int]] = {
    # model, data, what is known, and how many free parameters that takes away
    "weights": (Mixture(3, Normal()), NUMBERS, {"weights": [NAN, 0.25, NAN]}, 1),
    "variances": (Mixture(2, Normal()), NUMBERS, {"dispersion": [[1, NAN], [NAN, 1]]}, 2),
    "means": (Mixture(2, Normal()), NUMBERS, {"predictors": [[0, NAN], [NAN, NAN]]}, 1),
    "whole rows": (
        Mixture(2, MultivariateNormal()),
        NUMBERS,
        {"means": [[0, 0], [NAN, NAN]]},
        2,
    ),
    "log-odds": (
        Mixture(2, Bernoulli()),
        ANSWERS,
        {"predictors": [[-1, NAN, NAN, NAN], [NAN, 1, NAN, NAN]], "weights": [0.5, 0.5]},
        3,
    ),
    "rates": (Mixture(2, Poisson()), COUNTS, {"predictors": [[0.4] * 3, [NAN] * 3]}, 3),
    "categories": (
        Mixture(2, Categorical(3)),
        CODES,
        {"probabilities": [[0.2, NAN, NAN, *[NAN] * 6], [*[NAN] * 6, 0.5, 0.25, 0.25]]},
        3,
    ),
    "moves": (
        HiddenMarkov(2, Normal()),
        CHAINS,
        {"transitions": [[0.8, 0.2], [NAN, NAN]], "initial": [0.5, 0.5]},
        2,
    ),
    "state means": (HiddenMarkov(2, Normal()), CHAINS, {"predictors": [[0.0], [2.0]]}, 2),
    "program": (program, torch.tensor(ANSWERS), {"chances": [[0.3] * 4, [NAN] * 4]}, 4),
    "whole items": (
        LatentAttributeModel(Q_MATRIX, items="dina", penalty=None),
        ANSWERS,
        {"intercepts": [-1.0, NAN, NAN, NAN], "loadings": "first"},
        2,
    ),
    "an intercept": (
        LatentAttributeModel(Q_MATRIX, items="dina", penalty=None),
        ANSWERS,
        {"intercepts": [-1.0, NAN, NAN, NAN]},
        1,
    ),
}


def case(name: str) -> tuple[Any, Any, dict[str, Any], int]:
    model, data, known, taken = CASES[name]
    if known.get("loadings") == "first":
        problem = problem_of(model, data, 0)
        support = problem.program_of_one_row().site("loadings").support
        loadings = torch.where(support.graph, NAN, 0.0).double()
        loadings[0] = torch.where(support.graph[0], 2.0, 0.0)
        known = known | {"loadings": loadings}
    return model, data, known, taken


def direct(result: Fit, data: Any, known: dict[str, Any], noise: float) -> float:
    """Largest log-posterior over the free entries by L-BFGS, from near the estimate.

    Positive numbers by their logs, free shares of a vector by a softmax of what is left, all else
    as it is: nothing of this is the library's own way.
    """
    problem = problem_of(result.model, data, 0)
    whole = problem.program()
    generator = torch.Generator().manual_seed(0)
    leaves, makers = [], []

    def leaf(start: Tensor) -> Tensor:
        at = start + noise * torch.randn(start.shape, generator=generator, dtype=torch.float64)
        leaves.append(at.contiguous().requires_grad_())
        return leaves[-1]

    for name, value in result.params.items():
        given = torch.as_tensor(np.asarray(known.get(name, np.full(value.shape, NAN))))
        base = whole.site(name).support
        if type(base).__name__ == "OnGraph":  # zeros that no value is given for
            given = torch.where(base.graph, given, 0.0)
        held = ~given.isnan()
        while hasattr(base, "base_constraint"):
            base = base.base_constraint
        kind = type(base).__name__
        if kind in ("_Simplex", "Simplexes", "AllowedRows"):
            sizes = getattr(base, "sizes", (value.shape[-1],))
            rows, masks, fixed = (
                [part for row in x.reshape(-1, value.shape[-1]) for part in row.split(sizes)]
                for x in (value, held, given)
            )
            free = [
                leaf(row[~mask].clamp(min=1e-9).log())
                for row, mask in zip(rows, masks, strict=True)
            ]

            def shares(
                fixed: Any = fixed, masks: Any = masks, free: Any = free, value: Tensor = value
            ) -> Tensor:
                parts = []
                for own, mask, at in zip(fixed, masks, free, strict=True):
                    left = 1 - own[mask].sum()
                    full = torch.zeros_like(own).masked_scatter(mask, own[mask])
                    parts.append(full.masked_scatter(~mask, left * at.softmax(0)))
                return torch.cat(parts).reshape(value.shape)

            makers.append((name, shares))
        else:
            is_positive = name == "dispersion"
            start = value[~held].log() if is_positive else value[~held]
            at = leaf(start)
            if name == "precisions":  # by a factor, on which symmetry is no constraint
                leaves.pop()
                at = leaf(torch.linalg.cholesky(value).contiguous())

            def entries(
                given: Tensor = given,
                held: Tensor = held,
                at: Tensor = at,
                name: str = name,
                is_positive: bool = is_positive,
            ) -> Tensor:
                if name == "precisions":
                    return at.tril() @ at.tril().mT
                own = at.exp() if is_positive else at
                return given.nan_to_num(0.0).masked_scatter(~held, own)

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
@pytest.mark.filterwarnings("ignore:the best optimum was not replicated")
def test_the_fit_is_the_constrained_maximum(name: str) -> None:
    model, data, known, taken = case(name)
    tight = EM(tolerance=1e-12, max_iterations=3000)
    found = fit(model, data, tight, num_restarts=4, fixed=known)
    for site, value in known.items():
        given = torch.as_tensor(np.asarray(value))
        held = ~given.isnan()
        assert torch.equal(found.params[site][held], given[held].to(found.params[site]))
        assert np.isnan(found.fixed[site].numpy()).tolist() == given.isnan().tolist()
    problem = problem_of(found.model, data, 0)
    at = problem.program().log_marginal(found.params)
    assert float(at) == pytest.approx(found.log_likelihood, abs=1e-7)
    best = direct(found, data, known, 0.0)
    assert found.objective == pytest.approx(best, abs=2e-5)
    assert direct(found, data, known, 0.05) <= found.objective + 2e-5
    gains = found.trace.objective.diff()
    assert bool((gains[gains.isfinite()] > -1e-7).all())
    free = fit(model, data, EM(max_iterations=2), init=found).num_parameters
    assert found.num_parameters == free - taken


@pytest.mark.parametrize(
    "name", ["weights", "variances", "log-odds", "rates", "categories", "moves", "whole items"]
)
def test_a_closed_step_ends_where_the_generic_one_does(name: str) -> None:
    model, data, known, _ = case(name)
    problem = problem_of(model, data, 0)
    sites = problem.program_of_one_row()
    fixed = Fixed(
        {n: torch.as_tensor(np.asarray(v), dtype=torch.float64) for n, v in known.items()},
        {n: sites.site(n).support for n in known},
    )
    assert separates(problem.structure, fixed)
    fast = fit(model, data, EM(tolerance=1e-12), fixed=known, num_restarts=3)
    slow = fit(model, data, EM(accelerate=False), fixed=known, init=fast)
    assert slow.objective == pytest.approx(fast.objective, abs=1e-5)


def test_all_known_is_the_likelihood_there() -> None:
    truth = fit(Mixture(2, Bernoulli()), ANSWERS, EM(max_iterations=3))
    found = fit(Mixture(2, Bernoulli()), ANSWERS, fixed=truth.params)
    assert found.log_likelihood == pytest.approx(truth.log_likelihood, abs=1e-9)
    assert found.num_parameters == 0
    assert found.bic == pytest.approx(-2 * found.log_likelihood)


def test_known_classes_keep_their_names() -> None:
    known = {"predictors": [[NAN, NAN], [0.0, 0.0]]}
    found = fit(Mixture(2, Normal()), NUMBERS, fixed=known)
    assert float(found.params["weights"][1]) == pytest.approx(0.6, abs=0.1)


def test_standard_errors_are_conditional_on_what_is_known() -> None:
    whole = {"weights": [0.6, 0.4]}
    free, held = (fit(Mixture(2, Normal()), NUMBERS, fixed=one) for one in (None, whole))
    assert free.fixed is None
    errors = standard_errors(held, NUMBERS)
    assert not any("weights" in name for name in errors.names)
    # by hand: the inverse of the block of the information that is free
    problem = problem_of(held.model, NUMBERS, 0).program()

    def objective(vector: Tensor) -> Tensor:
        means, spreads = vector[:4].reshape(2, 2), vector[4:].reshape(2, 2).exp()
        params = {"weights": held.params["weights"], "predictors": means, "dispersion": spreads}
        return problem.log_marginal(params) + problem.log_prior(params)

    at = torch.cat([held.params["predictors"].ravel(), held.params["dispersion"].log().ravel()])
    by_hand = torch.linalg.inv(-torch.autograd.functional.hessian(objective, at))
    shown = held.summary(NUMBERS)["error"]
    assert shown["mean[0, 0]"] == pytest.approx(float(by_hand[0, 0].sqrt()), rel=0.01)
    partly = fit(Mixture(3, Bernoulli()), ANSWERS, fixed={"weights": [0.2, NAN, NAN]})
    with pytest.raises(ValueError, match="weights has probability vectors of which a part is"):
        standard_errors(partly, ANSWERS)


def test_values_come_from_files_and_frames_and_stay_with_the_fit(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    frame = pd.DataFrame(ANSWERS, columns=names)
    known = pd.DataFrame([[-0.5, NAN, NAN, -1.0], [NAN] * 4], columns=["d", "c", "b", "a"])
    found = fit(Mixture(2, Bernoulli()), frame, fixed={"predictors": known})
    assert found.params["predictors"][0, [0, 3]].tolist() == [-1.0, -0.5]
    file = tmp_path / "known.json"
    file.write_text(json.dumps({"predictors": [[-1, None, None, -0.5], [None] * 4]}))
    again = fit(Mixture(2, Bernoulli()), frame, fixed=file)
    assert again.log_likelihood == found.log_likelihood
    found.save(tmp_path / "fit")
    loaded = Fit.load(tmp_path / "fit")
    assert repr(loaded) == repr(found)
    assert "predictors (2 of 8)" in repr(loaded)
    assert loaded.num_parameters == 7
    with pytest.raises(ValueError, match="bootstrap: not worked out for a fit with fixed"):
        bootstrap(found, num_replicates=2)


def test_labels_and_known_parameters_go_together() -> None:
    labels = np.where(np.arange(200) < 40, GROUP, -1)
    known = {"weights": [0.6, 0.4]}
    found = fit(Mixture(2, Normal()), NUMBERS, labels=labels, fixed=known)
    assert found.params["weights"].tolist() == [0.6, 0.4]
    slow = fit(
        Mixture(2, Normal()), NUMBERS, EM(accelerate=False), init=found, labels=labels, fixed=known
    )
    assert slow.log_likelihood == pytest.approx(found.log_likelihood, abs=1e-5)


WRONG: list[tuple[Any, str]] = [
    ({"weights": [0.5]}, r"'weights' must have shape \(2,\), NaN where free, got \(1,\)"),
    ({"weights": [0.7, 0.7]}, "'weights': shares of at least 0 .* got a sum of 1.4"),
    ({"weights": [0.7, 0.2]}, "got a sum of 0.9"),
    ({"weights": [-0.1, NAN]}, "shares of at least 0"),
    ({"weights": [1.0, NAN]}, "leave something for those that are free"),
    ({"dispersion": [[-1.0, NAN], [NAN, NAN]]}, "'dispersion' has values outside its support"),
    ({"sizes": [1.0]}, "one of the parameters 'weights', 'predictors', 'dispersion' was expected"),
    ({"weights": ["a", "b"]}, "numbers, NaN where free, were expected"),
    ({"weights": [math.inf, NAN]}, "finite numbers"),
    ({"weights": [NAN, NAN]}, "at least one known value was expected"),
    ({}, "values by site were expected"),
    ([0.5, 0.5], "values by site were expected"),
    ("nowhere.json", "nowhere.json is no JSON file"),
]


@pytest.mark.parametrize(("known", "words"), WRONG)
def test_wrong_values_are_named(known: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(Mixture(2, Normal()), NUMBERS, fixed=known)


def test_engines_that_cannot_are_named() -> None:
    known = {"weights": [0.5, 0.5]}
    with pytest.raises(ValueError, match=r"fixed: EM\(\) holds parameters .*NUTS"):
        fit(Mixture(2, Normal()), NUMBERS, NUTS(), fixed=known)
    with pytest.raises(ValueError, match="rows in memory were expected"):
        fit(Mixture(2, Normal(), 2), RowBlocks.of(NUMBERS), fixed=known)


def test_a_slope_of_nought_is_a_mixture_without_the_covariate() -> None:
    frame = pd.DataFrame(NUMBERS, columns=["a", "b"]).assign(c=RNG.normal(size=200))
    model = Mixture(2, Normal(), covariates=("c",))
    held = fit(model, frame, fixed={"coefficients": [[NAN, 0.0]]})
    plain = fit(Mixture(2, Normal()), NUMBERS)
    assert held.log_likelihood == pytest.approx(plain.log_likelihood, abs=0.02)
    assert held.num_parameters == plain.num_parameters
