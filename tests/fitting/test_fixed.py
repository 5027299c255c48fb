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
from support.known_data import ANSWERS, CHAINS, CODES, COUNTS, GROUP, NUMBERS, RNG, program
from torch import Tensor
from torch.distributions import biject_to, constraints

from inference import EM, NUTS, SAEM, SVI, Fit, FullRank, Laplace, OnlineEM, RowBlocks, fit
from inference.base.structure import separates
from inference.bootstrap import bootstrap
from inference.fitting.fixed import with_fixed
from inference.fitting.problem import problem_of
from inference.inspection import filter_merge_refit
from inference.programs.fixed import Fixed
from inference.selection.sparsity import polish
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Categorical,
    DeepDiscreteEncoder,
    GaussianFactorization,
    HiddenMarkov,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    NegativeBinomialFactorization,
    NoisyOr,
    Normal,
    Poisson,
    PoissonFactorization,
    SparseCoding,
)
from ppl_models.parts.distributions import OnGraph
from ppl_models.parts.precisions import PositiveDefinite
from ppl_models.parts.probability_tables import Simplexes
from ppl_models.sequences.hidden_chain import AllowedRows
from ppl_models.sequences.option_chain import MatrixSimplex

pytestmark = pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning")
NAN = math.nan
HALF = [[0.5] * 4] * 2
Q_MATRIX = [[1, 0], [0, 1], [1, 1], [1, 0]]


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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("model", "site", "absent", "others"),
    [
        (DeepDiscreteEncoder(4, (2,), penalty=None), "loadings_1", 0.0, 2 + 4),
        (NoisyOr(4, 2), "failure", 1.0, 2 + 4),
    ],
    ids=["loadings of zero", "failures of one"],
)
def test_edges_known_to_be_absent_take_away_no_parameter(
    model: Any, site: str, absent: float, others: int
) -> None:
    """Absent edges are not counted, so that there is nothing to take away once they are known."""
    z = np.random.default_rng(5).random((400, 2)) < 0.5
    items = (np.random.default_rng(6).random((400, 4)) < 0.1 + 0.8 * z[:, [0, 0, 1, 1]]).astype(int)
    graph = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])
    known = np.where(graph > 0, NAN, absent)
    found = fit(model, items, EM(), fixed={site: known.T if site == "loadings_1" else known})
    assert found.num_parameters == others + 4
    assert found.bic == pytest.approx(
        -2 * found.log_likelihood + (others + 4) * math.log(len(items))
    )
    known[0, 0] = 0.5
    more = fit(model, items, EM(), fixed={site: known.T if site == "loadings_1" else known})
    assert more.num_parameters == others + 3


@pytest.mark.filterwarnings("ignore")
def test_refits_of_other_sizes_refuse_what_they_would_not_hold() -> None:
    answers = np.random.default_rng(3).integers(0, 2, (100, 4))
    noisy = fit(NoisyOr(4, 2), answers, EM(), fixed={"leak": [0.05] * 4})
    with pytest.raises(ValueError, match="filter_merge_refit: .* a fit with fixed parameters"):
        filter_merge_refit(noisy, answers)
    layered = fit(
        DeepDiscreteEncoder(4, (1,), penalty=None), answers, EM(), fixed={"proportions": [0.5]}
    )
    with pytest.raises(ValueError, match="polish: .* a fit with fixed parameters"):
        polish(layered, answers)


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


def test_standard_errors_of_shares_beside_a_known_one() -> None:
    first, second = [0.3, NAN, NAN] * 3, [0.1, 0.3, 0.6] * 3
    known = {"weights": [0.2, NAN, NAN], "probabilities": [first, second, [NAN] * 9]}
    rng = np.random.default_rng(0)
    z = rng.choice(3, 800, p=[0.2, 0.4, 0.4])
    chances = np.array([[0.3, 0.1, 0.6], [0.1, 0.3, 0.6], [0.7, 0.2, 0.1]])
    codes = (rng.random((800, 3, 1)) > chances[z].cumsum(-1)[:, None]).sum(-1).astype(float)
    found = fit(Mixture(3, Categorical(3)), codes, EM(tolerance=1e-12), fixed=known)
    errors = standard_errors(found, codes)
    assert len(errors.names) == found.num_parameters == 1 + 3 + 6
    problem = problem_of(found.model, codes, 0).program()

    def shares(logits: Tensor, left: float) -> Tensor:
        padded = torch.cat([logits, torch.zeros(*logits.shape[:-1], 1)], -1)
        return left * padded.softmax(-1)

    def params(vector: Tensor) -> dict[str, Tensor]:
        partly = torch.cat([torch.full((3, 1), 0.3), shares(vector[1:4, None], 0.7)], -1)
        rows = [partly.ravel(), torch.tensor(second), shares(vector[4:].reshape(3, 2), 1.0).ravel()]
        weights = torch.cat([torch.tensor([0.2]), shares(vector[:1], 0.8)])
        return {"weights": weights, "probabilities": torch.stack(rows)}

    def objective(vector: Tensor) -> Tensor:
        return problem.log_marginal(params(vector)) + problem.log_prior(params(vector))

    weights, tables = found.params["weights"], found.params["probabilities"].reshape(3, 3, 3)
    parts = [
        weights[1:2] / weights[2:],
        tables[0, :, 1] / tables[0, :, 2],
        (tables[2, :, :2] / tables[2, :, 2:]).ravel(),
    ]
    at = torch.cat(parts).log()
    by_hand = torch.linalg.inv(-torch.autograd.functional.hessian(objective, at))
    slopes = torch.autograd.functional.jacobian(lambda v: params(v)["probabilities"], at)
    slopes = slopes.reshape(27, len(at))
    expected = ((slopes @ by_hand) * slopes).sum(-1).sqrt().reshape(3, 9)
    expected[0, ::3] = NAN
    expected[1] = NAN
    own = errors.standard_errors
    torch.testing.assert_close(own["probabilities"], expected, equal_nan=True, rtol=1e-4, atol=0)
    assert own["weights"].isnan().tolist() == [True, False, False]
    assert float(own["weights"][1]) == pytest.approx(float(own["weights"][2]))


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


def test_tables_are_read_by_the_names_of_rows_and_columns(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    frame = pd.DataFrame(ANSWERS, columns=names)
    model = LatentAttributeModel(Q_MATRIX, items="dina", penalty=None)
    items = pd.DataFrame({"first": [1.5, 2.0]}, index=["d", "b"])  # item parameters, a line an item
    program_sites = problem_of(model, frame, 0).program_of_one_row()
    assert program_sites.site("intercepts").shape == (4,)
    file = tmp_path / "intercepts.csv"
    (-items / 2).to_csv(file)
    found = fit(model, frame, fixed={"intercepts": file})
    assert found.fixed["intercepts"].isnan().tolist() == [True, False, True, False]
    assert found.params["intercepts"][[3, 1]].tolist() == [-0.75, -1.0]
    column = fit(model, frame, fixed={"intercepts": (-items / 2)["first"]})
    assert torch.equal(column.params["intercepts"], found.params["intercepts"])
    # classes by items, items by classes, one line of two
    rows = pd.DataFrame([[-0.8, -0.9]], columns=["c", "a"])
    one = fit(Mixture(2, Bernoulli()), frame, fixed={"predictors": rows})
    two = fit(Mixture(2, Bernoulli()), frame, fixed={"predictors": rows.T})
    assert one.params["predictors"][0, [2, 0]].tolist() == [-0.8, -0.9]
    assert torch.equal(one.params["predictors"], two.params["predictors"])
    assert one.num_parameters == 9 - 2
    with pytest.raises(ValueError, match=r"names of items, such as 'a', were expected, got 'e'"):
        fit(model, frame, fixed={"intercepts": pd.DataFrame({"e": [1.0], "a": [2.0]})})
    lines = pd.DataFrame(np.zeros((3, 1)), columns=["a"])
    with pytest.raises(ValueError, match="at most 2 lines of known values were expected, got 3"):
        fit(Mixture(2, Bernoulli()), frame, fixed={"predictors": lines})


def signatures_and_counts(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    truth = rng.dirichlet(np.full(12, 0.3), 4)
    return truth, rng.poisson(rng.gamma(1.0, 100.0, (rows, 4)) @ truth).astype(float)


def test_known_signatures_leave_the_others_to_be_found() -> None:
    truth, counts = signatures_and_counts(60)
    names = [f"A[C>{'AGT'[k // 4]}]{'ACGT'[k % 4]}" for k in range(12)]
    frame = pd.DataFrame(counts, columns=names)
    cosmic = pd.DataFrame(truth[:3].T, index=names, columns=["SBS1", "SBS2", "SBS3"]).sample(
        frac=1.0, random_state=0
    )
    model = PoissonFactorization(12, 4)
    plain = fit(model, frame)
    found = fit(model, frame, fixed={"signatures": cosmic})
    assert np.abs(found.params["signatures"][:3].numpy() - truth[:3]).max() < 1e-12
    assert np.abs(found.params["signatures"][3].numpy() - truth[3]).max() < 0.03
    assert found.num_parameters == plain.num_parameters - 3 * 11
    # the maximum: activities by their logs, the free signature by a softmax
    x = torch.tensor(counts)
    logs = found.local["activities"].clamp(min=1e-8).log().requires_grad_()
    free = found.params["signatures"][3].clamp(min=1e-12).log().requires_grad_()
    optimizer = torch.optim.LBFGS([logs, free], max_iter=1000, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        phi = torch.cat([torch.tensor(truth[:3]), free.softmax(0)[None]])
        mean = logs.exp() @ phi
        value = -(torch.distributions.Poisson(mean).log_prob(x)).sum()
        value.backward()
        return value

    optimizer.step(loss)
    assert found.log_likelihood == pytest.approx(-float(loss().detach()), abs=0.01)
    every = fit(model, frame, fixed={"signatures": truth})
    alone = every.structure.solve_local({"signatures": torch.tensor(truth)}, x)["activities"]
    torch.testing.assert_close(every.local["activities"], alone, rtol=1e-2, atol=0.3)
    assert every.log_likelihood < found.log_likelihood < plain.log_likelihood + 0.01


def test_known_signatures_that_updates_cannot_hold_are_named() -> None:
    truth, counts = signatures_and_counts(20)
    known = {"signatures": np.r_[truth[:1], np.full((1, 12), NAN)]}
    with pytest.raises(ValueError, match="a factorization of counts in a dense table in memory"):
        fit(GaussianFactorization(12, 2), counts, fixed=known)
    part = {"signatures": np.r_[truth[:1] * np.where(np.arange(12) < 6, 1, NAN), truth[1:2] * NAN]}
    model = NegativeBinomialFactorization(12, 2)
    with pytest.raises(ValueError, match="known as wholes or not at all"):
        fit(model, counts, fixed=part)
    with pytest.raises(ValueError, match="holds known 'signatures' and nothing else"):
        fit(model, counts, fixed={"dispersion": [0.1]})
    held = fit(model, counts, fixed=known)
    assert np.abs(held.params["signatures"][0].numpy() - truth[0]).max() < 1e-12
    gains = held.trace.objective.diff()
    assert bool((gains[gains.isfinite()] > -1e-6 * abs(held.objective)).all())


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
    (
        {"dispersion": [[-1.0, NAN], [NAN, NAN]]},
        r"outside its support: numbers between .* were expected, got -1 at entry \(0, 0\)$",
    ),
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
    guide = SVI(guide=lambda _: None)
    with pytest.raises(
        ValueError, match=r"fixed: EM\(\), SAEM\(\), NUTS\(\).* hold parameters, and SVI"
    ):
        fit(Mixture(2, Normal()), NUMBERS, guide, fixed=known)
    start = EM(start=OnlineEM(batch_rows=50))
    with pytest.raises(ValueError, match=r"known and free entries separate, .*EM\(\) without"):
        fit(Mixture(2, Normal()), NUMBERS, start, fixed={"predictors": [[0, NAN], [NAN] * 2]})
    with pytest.raises(ValueError, match="a free entry of a parameter was expected, to draw"):
        fit(program, torch.tensor(ANSWERS), NUTS(), fixed={"weights": [0.5] * 2, "chances": HALF})
    for method in (None, EM(), SAEM()):
        with pytest.raises(
            ValueError, match=r"no engine holds parameters of SparseCoding.*without"
        ):
            fit(SparseCoding(2, 2, 1), NUMBERS, method, fixed={"noise": [1.0]})
    part = {"precisions": [[[2.0, NAN], [NAN, 2.0]], [[NAN] * 2] * 2]}
    for method in (NUTS(), Laplace()):
        with pytest.raises(ValueError, match="precisions.* holds matrices, of which|fix all of a"):
            fit(Mixture(2, MultivariateNormal()), NUMBERS, method, fixed=part)


def three(data: Tensor) -> None:
    """A probability vector, two means and a scale, each with a conjugate posterior."""
    p = pyro.sample("p", dist.Dirichlet(torch.tensor([1.0, 2.0, 1.5, 1.0])))
    means = pyro.sample("means", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    scale = pyro.sample("scale", dist.Gamma(2.0, 1.0))
    with pyro.plate("rows", len(data)):
        pyro.sample("x", dist.Categorical(p), obs=data[:, 0])
        pyro.sample("y", dist.Normal(means, scale).to_event(1), obs=data[:, 1:])


@pytest.mark.parametrize(
    "method",
    [
        NUTS(num_chains=2, warmup_steps=200, num_samples=500),
        Laplace(num_draws=4000),
        SVI(guide=FullRank(), num_draws=2000),
    ],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.filterwarnings("ignore:SVI. k-hat")
def test_the_posterior_is_the_conjugate_one_given_what_is_known(method: Any) -> None:
    rng = np.random.default_rng(3)
    codes = rng.choice(4, 200, p=[0.1, 0.2, 0.3, 0.4])
    data = torch.tensor(np.c_[codes, rng.normal([0.5, -1.0], 1.5, (200, 2))])
    known = {"p": [NAN, 0.25, NAN, NAN], "means": [NAN, -1.0], "scale": 1.5}
    found = fit(three, data, method, fixed=known)
    assert found.num_parameters == 3
    draws = {name: value.flatten(0, 1) for name, value in found.draws.items()}
    assert bool((draws["scale"] == 1.5).all())
    assert bool((draws["means"][:, 1] == -1.0).all())
    prior = torch.tensor([1.0, 2.0, 1.5, 1.0]).double()
    counts = prior + torch.tensor(np.bincount(codes, minlength=4))
    alpha = counts[[0, 2, 3]]
    share = alpha / alpha.sum()
    spread = 0.75 * (share * (1 - share) / (alpha.sum() + 1)).sqrt()
    assert bool((draws["p"][:, 1] == 0.25).all())
    torch.testing.assert_close(draws["p"][:, [0, 2, 3]].std(0), spread, rtol=0.12, atol=0)
    z = (draws["p"][:, [0, 2, 3]].mean(0) - 0.75 * share) / spread
    precision = 200 / 1.5**2 + 1 / 4
    centre = float(data[:, 1].sum()) / 1.5**2 / precision
    z = torch.cat([z, (draws["means"][:, :1].mean(0) - centre) * precision**0.5])
    assert bool((z.abs() < 0.25).all())  # a normal approximation has its centre at the mode
    assert float(draws["means"][:, 0].std()) * precision**0.5 == pytest.approx(1, abs=0.1)
    # the evidence of p at 0.25, of the means at -1 and of the scale at 1.5

    def log_beta(value: Tensor) -> Tensor:
        return torch.lgamma(value).sum() - torch.lgamma(value.sum())

    shares = log_beta(alpha) + (alpha.sum() - 1) * math.log(0.75) - log_beta(prior)
    shares = shares + (counts[1] - 1) * math.log(0.25)
    normal = dist.Normal(torch.tensor(0.0), 1.5)
    rows = dist.MultivariateNormal(
        torch.zeros(200), 2.25 * torch.eye(200) + 4 * torch.ones(200, 200)
    )
    second = normal.log_prob(data[:, 2] + 1).sum() + dist.Normal(0.0, 2.0).log_prob(
        torch.tensor(-1.0)
    )
    exact = shares + rows.log_prob(data[:, 1].float()) + second
    exact = exact + dist.Gamma(2.0, 1.0).log_prob(torch.tensor(1.5))
    if not isinstance(method, NUTS):
        ratios = found.sample_stats["log_importance"].flatten()
        evidence = float(ratios.logsumexp(0)) - math.log(len(ratios))
        assert evidence == pytest.approx(float(exact), abs=0.05)
    if isinstance(method, SVI):
        assert float(exact) - 0.1 < found.elbo < float(exact) + 0.02


def test_saem_and_stepwise_em_end_at_the_constrained_maximum() -> None:
    rng = np.random.default_rng(1)
    z = rng.integers(0, 2, (2000, 2))
    ideal = (z[:, None] >= np.array(Q_MATRIX)).all(-1)
    answers = (rng.random((2000, 4)) < np.where(ideal, 0.8, 0.2)).astype(float)
    model = LatentAttributeModel(Q_MATRIX, items="dina", penalty=None)
    support = problem_of(model, answers, 0).program_of_one_row().site("loadings").support
    loadings = torch.where(support.graph, NAN, 0.0).double()
    loadings[:2] = torch.where(support.graph[:2], 2.0, 0.0)
    known = {"intercepts": [-1.2, -1.2, NAN, NAN], "loadings": loadings}
    best = fit(model, answers, EM(tolerance=1e-10), fixed=known)
    for method in (SAEM(), SAEM(accelerate=False)):
        drawn = fit(model, answers, method, init=best, fixed=known)
        assert best.log_likelihood - 1.0 < drawn.log_likelihood < best.log_likelihood + 1e-6
        assert drawn.params["intercepts"][:2].tolist() == [-1.2, -1.2]
        assert drawn.num_parameters == best.num_parameters
    tight = EM(tolerance=1e-11)
    for name in ("weights", "rates", "moves"):
        model, data, known, _ = case(name)
        best = fit(model, data, tight, num_restarts=4, fixed=known)
        start = EM(tolerance=1e-11, start=OnlineEM(batch_rows=5 if name == "moves" else 50))
        again = fit(model, data, start, num_restarts=4, fixed=known)
        assert again.objective == pytest.approx(best.objective, abs=1e-5)


@pytest.mark.parametrize("name", ["weights", "means"])  # a closed step, and the generic one
def test_blocks_of_rows_give_the_same_fit(name: str) -> None:
    _, data, known, _ = case(name)
    model = Mixture(3 if name == "weights" else 2, Normal(), 2)
    whole = fit(model, data, EM(), num_restarts=2, fixed=known)
    parts = fit(model, RowBlocks.of(data, 64), EM(), num_restarts=2, fixed=known)
    assert parts.objective == pytest.approx(whole.objective, abs=1e-6)
    assert parts.num_parameters == whole.num_parameters


def test_draws_are_renamed_where_what_is_known_leaves_names_open() -> None:
    even = problem_of(Mixture(3, Normal()), NUMBERS, 0)
    one_mean = with_fixed(even, {"predictors": [[0.0, 0.0], [NAN] * 2, [NAN] * 2]})
    (label,) = one_mean.exchangeable()
    assert label.kinds.tolist() == [0, 1, 1]
    assert with_fixed(even, {"weights": [0.2, 0.3, NAN]}).exchangeable() == ()
    (label,) = with_fixed(even, {"weights": [1 / 3] * 3}).exchangeable()
    assert label.kinds.tolist() == [0, 0, 0]
    short = NUTS(num_chains=2, warmup_steps=100, num_samples=100)
    halves = fit(Mixture(2, Bernoulli()), ANSWERS, short, fixed={"weights": [0.5, 0.5]})
    assert "relabelled" in halves.sample_stats
    own = fit(program, torch.tensor(ANSWERS), short, fixed={"weights": [0.5, 0.5]})
    assert "the 2 entries of chances are exchangeable" in own.renamed
    named = fit(program, torch.tensor(ANSWERS), short, fixed={"weights": [0.4, 0.6]})
    assert named.renamed is None


OFF = torch.eye(3).bool().logical_not()
LOWER = torch.ones(2, 2).tril().bool()
SUPPORTS: dict[str, tuple[Any, Any]] = {
    "simplex": (constraints.simplex, [[0.3, NAN, NAN], [NAN] * 3, [0.2, 0.3, 0.5]]),
    "tables": (Simplexes((2, 3)), [0.4, 0.6, NAN, 0.1, NAN]),
    "moves": (AllowedRows(OFF), [[0, NAN, NAN], [0.2, 0, 0.8], [NAN, NAN, 0]]),
    "joint": (MatrixSimplex((2, 3)), [[0.1, NAN, NAN], [NAN, 0.2, NAN]]),
    "positive": (constraints.positive, [[1.0, NAN], [NAN, 2.0]]),
    "interval": (constraints.interval(torch.tensor([0.0, -1.0]).double(), 2.0), [0.5, NAN]),
    "graph": (OnGraph(constraints.real, LOWER), [[NAN, 0], [1.0, NAN]]),
    "matrices": (PositiveDefinite(2), [[[2.0, 0.5], [0.5, 1.0]], [[NAN] * 2] * 2]),
    "whole": (constraints.simplex, [0.2, 0.8]),
}


@pytest.mark.parametrize("name", SUPPORTS)
def test_free_coordinates_are_a_bijection_with_its_volume(name: str) -> None:
    support, given = SUPPORTS[name]
    value = torch.tensor(given, dtype=torch.float64)
    move = Fixed({"x": value}, {"x": support}).coordinates("x")
    zeros = torch.zeros(biject_to(support).inverse_shape(value.shape), dtype=torch.float64)
    size = move.inv(biject_to(support)(zeros).unsqueeze(0)).shape[1]
    free = torch.randn(4, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = move(free)
    assert bool(torch.stack([support.check(one).all() for one in values]).all())
    held = ~value.isnan()
    assert torch.equal(values[:, held], value[held].expand(4, -1))
    torch.testing.assert_close(move.inv(values), free)
    volumes = move.log_abs_det_jacobian(free, values)
    for point, volume in zip(free, volumes, strict=True):
        slopes = torch.autograd.functional.jacobian(lambda z: move(z[None])[0].ravel(), point)
        chart = slopes.reshape(value.numel(), size)
        chart = chart[_independent(name, value, held)]
        exact = torch.linalg.slogdet(chart).logabsdet if size else torch.zeros(())
        assert float(volume) == pytest.approx(float(exact), abs=1e-9)


def _independent(name: str, value: Tensor, held: Tensor) -> Tensor:
    """Entries by which volume is measured: free ones, all but the last of a probability vector."""
    free = ~held
    if name == "matrices":
        free = free & torch.ones(2, 2).tril().bool()
    if name in ("simplex", "moves"):
        for row in free:
            row[row.nonzero()[-1:, 0]] = False
    elif name in ("tables", "joint"):
        free = free.clone()
        free.view(-1)[free.view(-1).nonzero()[-1, 0]] = False
    return free.ravel()


def test_a_slope_of_nought_is_a_mixture_without_the_covariate() -> None:
    frame = pd.DataFrame(NUMBERS, columns=["a", "b"]).assign(c=RNG.normal(size=200))
    model = Mixture(2, Normal(), covariates=("c",))
    held = fit(model, frame, fixed={"coefficients": [[NAN, 0.0]]})
    plain = fit(Mixture(2, Normal()), NUMBERS)
    assert held.log_likelihood == pytest.approx(plain.log_likelihood, abs=0.02)
    assert held.num_parameters == plain.num_parameters


def test_a_move_known_not_to_happen_is_told_of_where_the_prior_excludes_it() -> None:
    known = {"transitions": [[NAN, NAN], [0.0, NAN]]}
    flat = fit(HiddenMarkov(2, Normal(), concentration=1.0), CHAINS, fixed=known)
    assert float(flat.params["transitions"][1, 0]) == 0
    with pytest.raises(ValueError, match="Shares of transitions are known to be 0.*allowed="):
        fit(HiddenMarkov(2, Normal(), concentration=1.1), CHAINS, fixed=known)
