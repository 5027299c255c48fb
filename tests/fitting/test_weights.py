"""Weights of rows: as many rows as the weight says; wrong ones named before any work; questions
that would count each row once refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch

from inference import EM, NUTS, SVI, Fit, RowBlocks, compare, fit
from inference.acdc import acdc
from inference.bootstrap import bootstrap
from inference.causal.of_fit import profile_posterior
from inference.inspection import (
    class_accuracy,
    classify_rows,
    filter_merge_refit,
    item_curves,
    item_fit,
    limited_information_fit,
    local_dependence,
    profile_shares,
    validate_q,
)
from inference.inspection.noisy_or import LatentFilter
from inference.loo import cross_validate
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Blocks,
    DeepDiscreteEncoder,
    HiddenMarkov,
    LatentAttributeModel,
    Mixture,
    MultivariateT,
    NegativeBinomial,
    NoisyOr,
    Normal,
    PoissonFactorization,
)
from ppl_models.datasets import mastery_test

MODEL = Mixture(2, Bernoulli(), 3)


def answers(num: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    knows = rng.random((num, 1)) < 0.5
    return pd.DataFrame(
        (rng.random((num, 3)) < np.where(knows, 0.85, 0.2)) * 1.0, columns=list("abc")
    )


def test_counts_of_patterns_say_what_the_table_says() -> None:
    rows = answers()
    patterns = rows.value_counts().reset_index()
    method, start = (
        EM(tolerance=1e-12, parameter_tolerance=1e-8),
        fit(MODEL, rows, EM(), num_restarts=2),
    )
    whole = fit(MODEL, rows, method, init=start)
    one = fit(MODEL, patterns[["a", "b", "c"]], method, init=start, weights=patterns["count"])
    assert one.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-8)
    assert one.bic == pytest.approx(whole.bic, abs=1e-8)
    for name, value in whole.params.items():
        torch.testing.assert_close(one.params[name], value, rtol=1e-6, atol=1e-6)
    assert one.entropy_r2(patterns[["a", "b", "c"]]) == pytest.approx(
        whole.entropy_r2(rows), abs=1e-6
    )
    assert one.icl(patterns[["a", "b", "c"]]) == pytest.approx(whole.icl(rows), abs=1e-5)
    assert "8 rows of 3 columns whose weights add up to 120" in str(one)


@pytest.mark.parametrize(
    "component",
    [Blocks((Normal(), 1), (NegativeBinomial(), 1)), MultivariateT()],
    ids=["blocks", "t"],
)
@pytest.mark.filterwarnings("ignore")
def test_a_whole_fit_of_weighted_rows_is_that_of_repeated_rows(component) -> None:
    rng = np.random.default_rng(0)
    high = rng.random(60) < 0.5
    rows = np.column_stack(
        [
            np.where(high, 50_000, 20_000) + 3_000 * rng.normal(size=60),
            rng.poisson(np.where(high, 9, 2)),
        ]
    )
    weights = rng.integers(0, 4, 60)
    model, method = Mixture(2, component, 2), EM(max_iterations=40)
    start = fit(model, rows, method, num_restarts=1)
    one, other = (
        fit(model, rows, method, init=start, weights=weights),
        fit(model, rows.repeat(weights, 0), method, init=start),
    )
    assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-6)
    assert (one.num_iterations, one.num_observations) == (other.num_iterations, other.num_rows)
    for name, value in other.params.items():
        torch.testing.assert_close(one.params[name], value, rtol=1e-6, atol=1e-8)
    half = fit(model, rows, method, init=start, weights=weights / 2)
    torch.testing.assert_close(half.params["weights"], one.params["weights"], rtol=1e-3, atol=1e-3)
    assert half.num_observations == weights.sum() / 2
    assert half.log_likelihood == pytest.approx(one.log_likelihood / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(119), r"one number for each of the 120 rows was expected, got shape \(119,\)"),
        (np.ones((120, 1)), "got shape"),
        (1.0, "got shape"),
        (np.r_[-1.0, np.ones(119)], "at least zero were expected, got -1 in row 0"),
        (np.r_[np.ones(119), np.nan], "got nan in row 119"),
        (np.r_[np.ones(119), np.inf], "got inf in row 119"),
        (np.zeros(120), "at least one weight above zero"),
        (np.full(120, 1 / 120), r"add up to 1: scale them to the size of the sample"),
        (["a"] * 120, "one number a row was expected"),
        (pd.Series(np.ones(120), index=range(1, 121)), "the index of the rows was expected"),
    ],
)
def test_wrong_weights_are_named(weights, words: str) -> None:
    with pytest.raises(ValueError, match=f"weights: .*{words}"):
        fit(MODEL, answers(), weights=weights)


@pytest.mark.parametrize(
    "method", [NUTS(), SVI(), EM(accelerate=False)], ids=lambda method: type(method).__name__
)
def test_engines_that_do_not_count_by_weights_refuse(method) -> None:
    with pytest.raises(ValueError, match=r"weights: EM\(\) takes weights of rows, and .* does not"):
        fit(MODEL, answers(), method, weights=np.ones(120))


def test_families_that_do_not_count_by_weights_refuse() -> None:
    with pytest.raises(ValueError, match="and PoissonFactorization does not"):
        fit(PoissonFactorization(3, 1), answers() + 1, weights=np.ones(120))
    with pytest.raises(ValueError, match="and LatentAttributeModel does not"):
        fit(
            LatentAttributeModel([[1, 0], [0, 1], [1, 1]], NegativeBinomial()),
            answers(),
            EM(),
            weights=np.ones(120),
        )
    with pytest.raises(ValueError, match=r"EM\(\) takes weights of rows, and ChoosePenalty"):
        fit(DeepDiscreteEncoder(3, (1,)), answers(), weights=np.ones(120))


@pytest.mark.parametrize(
    "model",
    [LatentAttributeModel([[1, 0], [0, 1], [1, 1]]), NoisyOr(3, 1)],
    ids=["skills", "causes"],
)
def test_weighted_patterns_are_repeated_rows(model: Any) -> None:
    rows = answers()
    patterns = rows.value_counts().reset_index()
    start = fit(
        model, rows, EM(max_iterations=3, tolerance=1.0, parameter_tolerance=10.0), num_restarts=1
    )
    method = EM(max_iterations=30, tolerance=1e-3, parameter_tolerance=1.0)
    whole = fit(model, rows, method, init=start)
    one = fit(model, patterns[["a", "b", "c"]], method, init=start, weights=patterns["count"])
    assert one.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-7)
    assert one.bic == pytest.approx(whole.bic, abs=1e-6)


def test_sequences_have_weights() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 20, 1)) + 4 * (rng.random((6, 20, 1)) < 0.5)
    x[1, 12:] = np.nan
    weights, model = np.array([2, 0, 1, 3, 1, 1]), HiddenMarkov(2, Normal())
    start = fit(model, x, EM(), num_restarts=2)
    one = fit(model, x, EM(max_iterations=60), init=start, weights=weights)
    other = fit(model, x.repeat(weights, 0), EM(max_iterations=60), init=start)
    assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-7)
    assert one.bic == pytest.approx(other.bic, abs=1e-6)
    torch.testing.assert_close(
        one.params["transitions"], other.params["transitions"], rtol=1e-6, atol=1e-8
    )


def lines(x: torch.Tensor, y: torch.Tensor) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2)))
    slopes = pyro.sample("slopes", dist.Normal(torch.zeros(2, 2), 5.0).to_event(2))
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(y)):
        own = slopes[pyro.sample("line", dist.Categorical(weights))]
        pyro.sample("y", dist.Normal(own[..., 0] + own[..., 1] * x, spread), obs=y)


def table_of_two(data: torch.Tensor) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2)))
    with pyro.plate("groups", 2):
        rate = pyro.sample("rate", dist.Gamma(2.0, 0.3))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("y", dist.Poisson(rate[z]), obs=data[:, 0])


def steps(data: torch.Tensor) -> None:
    with pyro.plate("states", 2):
        moves = pyro.sample("moves", dist.Dirichlet(torch.ones(2)))
        rate = pyro.sample("rate", dist.Gamma(2.0, 0.3))
    with pyro.plate("sequences", len(data)):
        state = torch.zeros((), dtype=torch.long)
        for t in pyro.markov(range(data.shape[1])):
            state = pyro.sample(f"state_{t}", dist.Categorical(moves[state]))
            pyro.sample(f"y_{t}", dist.Poisson(rate[state]), obs=data[:, t])


def persons(data: torch.Tensor) -> None:
    hard = pyro.sample("hard", dist.Normal(torch.zeros(4), 2.0).to_event(1))
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(data)):
        able = pyro.sample("able", dist.Normal(0.0, spread))
        chance = dist.Bernoulli(logits=able[..., None] - hard)
        pyro.sample("yes", chance.to_event(1), obs=data)


def own_rows(program: Any) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    x, is_first = rng.normal(size=40), rng.random(40) < 0.5
    if program is lines:
        return x, np.where(is_first, 1 + 2 * x, -1 - x) + 0.3 * rng.normal(size=40)
    if program is persons:
        return ((rng.random((40, 4)) < 1 / (1 + np.exp(-2 * x[:, None]))) * 1.0,)
    size = (40, 1) if program is table_of_two else (40, 10)
    return (rng.poisson(np.where(rng.random(size) < 0.5, 2, 9)) * 1.0,)


PROGRAMS = pytest.mark.parametrize("program", [table_of_two, lines, steps, persons])


@PROGRAMS
def test_weighted_rows_of_a_program_are_repeated_rows(program: Any) -> None:
    rows, often = own_rows(program), np.random.default_rng(1).integers(0, 4, 40)
    data, repeated = (
        parts if len(parts) > 1 else parts[0]
        for parts in (rows, tuple(part.repeat(often, 0) for part in rows))
    )
    method = EM(tolerance=1e-13, parameter_tolerance=1e-9)
    other = fit(program, repeated, method, num_restarts=2)
    one = fit(program, data, method, init=other, weights=often)
    assert one.objective == pytest.approx(other.objective, abs=1e-9)
    assert (one.bic, one.num_observations) == (pytest.approx(other.bic, abs=1e-6), often.sum())
    for name, value in other.params.items():
        torch.testing.assert_close(one.params[name], value, rtol=0, atol=1e-7)
    errors = [
        standard_errors(own, rows, hold_bounds=True).standard_errors
        for own, rows in ((one, data), (other, repeated))
    ]
    for name, value in errors[1].items():
        torch.testing.assert_close(errors[0][name], value, rtol=1e-5, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("has_labels", [False, True], ids=["free", "labelled"])
def test_weighted_rows_of_a_program_come_in_blocks(has_labels: bool) -> None:
    (rows,), often = own_rows(table_of_two), np.random.default_rng(1).integers(1, 4, 40)
    labels = np.where(rows[:, 0] > 9, 1, -1) if has_labels else None
    method = EM(tolerance=1e-13, parameter_tolerance=1e-9)
    whole = fit(
        table_of_two,
        rows.repeat(often, 0),
        method,
        labels=None if labels is None else labels.repeat(often),
    )
    blocks = RowBlocks.of(rows, block_rows=15)
    one = fit(table_of_two, blocks, method, init=whole, weights=often, labels=labels)
    assert one.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-9)
    assert one.bic == pytest.approx(whole.bic, abs=1e-9)


def one_regime(data: torch.Tensor) -> None:
    rate = pyro.sample("rate", dist.Gamma(torch.tensor([2.0, 8.0]), 1.0).to_event(1))
    regime = pyro.sample("regime", dist.Categorical(torch.ones(2)))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Poisson(rate[regime]), obs=data)


def test_rows_of_a_program_that_depend_on_each_other_have_no_weights() -> None:
    with pytest.raises(ValueError, match="independent rows, 8 in one plate, was expected"):
        fit(one_regime, np.arange(8.0), weights=np.ones(8))
    with pytest.raises(ValueError, match="for each of the 40 rows was expected"):
        fit(lines, own_rows(lines), weights=np.ones(39))
    with pytest.raises(ValueError, match=r"EM\(\) takes weights of rows, and NUTS"):
        fit(lines, own_rows(lines), NUTS(), weights=np.ones(40))


def skills() -> tuple[LatentAttributeModel, Any]:
    test = mastery_test(num_items=12, num_attributes=3, seed=1)
    return LatentAttributeModel(test.model.q_matrix, items="dina"), test.draw(150, seed=2)[0]


QUESTIONS: dict[str, tuple[Callable[[], tuple[Any, Any]], Callable[[Fit, Any], Any]]] = {
    "classify_rows": (
        skills,
        lambda own, rows: (
            (found := classify_rows(own, rows, num_replicates=0)).accuracy,
            found.consistency,
            found.attribute_accuracy,
            found.attribute_consistency,
            found.confusion,
        ),
    ),
    "class_accuracy": (
        lambda: (MODEL, answers()),
        lambda own, rows: (
            (found := class_accuracy(own, rows, num_replicates=0)).accuracy,
            found.by_class,
            found.largest,
            found.entropy_r2 - own.entropy_r2(rows),
        ),
    ),
    "profile_shares": (skills, lambda own, rows: profile_shares(own, rows).standard_errors),
    "item_curves": (skills, lambda own, rows: item_curves(own, rows).standard_errors),
    "filter_merge_refit": (
        lambda: (NoisyOr(3, 1), answers()),
        lambda own, rows: filter_merge_refit(own, rows, LatentFilter((0,), (), {}, torch.zeros(1)))[
            1
        ].params["failure"],
    ),
    "item_fit": (skills, lambda own, rows: item_fit(own, rows).statistic),
    "local_dependence": (skills, lambda own, rows: local_dependence(own, rows).z),
    "limited_information_fit": (skills, lambda own, rows: limited_information_fit(own, rows).m2),
    "validate_q": (skills, lambda own, rows: validate_q(own, rows).gain),
    "profile_posterior": (skills, lambda own, rows: profile_posterior(own, rows).table),
    "cross_validate": (
        lambda: (MODEL, answers()),
        lambda own, rows: cross_validate(own, rows, num_folds=2).elpd,
    ),
    "acdc": (
        lambda: (Mixture(2, Normal()), np.random.default_rng(0).normal(size=(80, 2))),
        lambda own, rows: acdc({2: own}, rows).raw[2],
    ),
}
REFUSED = list(QUESTIONS)[5:]


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_count_rows_by_their_weights_or_refuse(name: str) -> None:
    (model, rows), ask = QUESTIONS[name][0](), QUESTIONS[name][1]
    rows = np.asarray(rows, dtype=float)
    weights = np.random.default_rng(3).integers(1, 4, len(rows))
    one = fit(model, rows, EM(), num_restarts=2, weights=weights)
    if name in REFUSED:
        with pytest.raises(ValueError, match=rf"{name}: not worked out for weighted rows"):
            ask(one, rows)
        return
    repeated = rows.repeat(weights, 0)
    whole = fit(model, repeated, EM(), init=one)
    for weighed, counted in zip(ask(one, rows), ask(whole, repeated), strict=True):
        np.testing.assert_allclose(np.asarray(weighed), np.asarray(counted), rtol=1e-3, atol=1e-5)


def test_questions_that_count_every_row_once_refuse(tmp_path: Path) -> None:
    rows = answers()
    one = fit(MODEL, rows, EM(), num_restarts=2, weights=np.full(120, 2.0))
    for ask in (
        lambda: bootstrap(one, rows),
        lambda: compare({"a": one, "b": one}, rows),
        lambda: one.report(tmp_path / "page.html", rows),
    ):
        with pytest.raises(ValueError, match="not worked out for weighted rows"):
            ask()
    twice = fit(MODEL, np.repeat(rows, 2, 0), EM(), num_restarts=2)  # each row as its copies
    torch.testing.assert_close(
        standard_errors(one, rows).standard_errors["weights"],
        standard_errors(twice, np.repeat(rows, 2, 0)).standard_errors["weights"],
        rtol=1e-2,
        atol=0,
    )
    assert "weights add up to 240" in one.report(tmp_path / "page.html").read_text(encoding="utf-8")
    one.save(tmp_path / "fit")
    assert torch.equal(
        Fit.load(tmp_path / "fit").row_weights, torch.full((120,), 2.0, dtype=torch.float64)
    )


def test_weights_count_where_parameters_are_tied_or_fixed() -> None:
    """Generic steps of a family dropped them: the fit was that of rows counted once."""
    generator = np.random.default_rng(5)
    kinds = generator.random(80) < 0.4
    rows = generator.normal(3.0 * kinds[:, None], 1.0, (80, 2))
    often = generator.integers(0, 3, 80)
    model = Mixture(2, Normal())
    for given in (
        {"tied": {"dispersion": [[0, 0], [1, 1]]}},
        {"fixed": {"predictors": [[0.0, np.nan], [np.nan, np.nan]]}},
    ):
        weighted = fit(model, rows, weights=often, **given)  # type: ignore[arg-type]
        repeated = fit(model, rows.repeat(often, 0), **given)  # type: ignore[arg-type]
        assert weighted.log_likelihood == pytest.approx(repeated.log_likelihood, rel=1e-7)
        assert weighted.bic == pytest.approx(repeated.bic, rel=1e-7)
