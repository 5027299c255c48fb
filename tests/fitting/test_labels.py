"""Known latents: labels of rows against sums by hand, closed forms, and each other's engines."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from torch import Tensor

from inference import EM, NUTS, SAEM, SVI, Fit, Laplace, RowBlocks, fit
from inference.base.structure import labelled_latents
from inference.bootstrap import bootstrap
from inference.estimator import ZooEstimator
from inference.fitting.labels import known_of, log_table, with_labels
from inference.fitting.problem import problem_of, problem_of_blocks
from inference.programs.labelled import NEVER
from inference.uncertainty import standard_errors
from ppl_models import (
    DeepDiscreteEncoder,
    FactorAnalysis,
    FreeDurations,
    HiddenMarkov,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    Normal,
    OptionsHMM,
    PoissonDurations,
)

pytestmark = pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning")
Q_MATRIX = [[1, 0], [0, 1], [1, 1], [1, 0], [0, 1], [1, 1]]


def answers(num_rows: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.integers(0, 2, num_rows)
    return (rng.random((num_rows, 4)) < np.where(z, 0.8, 0.25)[:, None]).astype(float), z


def some(z: np.ndarray, share: float, seed: int = 1) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(z.shape) < share, z, -1)


def program(data: Tensor) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(torch.full((2,), 1.001)))
    chances = pyro.sample("chances", dist.Uniform(0, 1).expand([2, 4]).to_event(2))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Bernoulli(chances[z]).to_event(1), obs=data)


def p_label(label: Any, z: int, size: int, error: float) -> float:
    """Chance of a label given the latent, as the docstring of ``fit`` says it."""
    if isinstance(label, np.ndarray):
        return float(label[z] / label.sum())
    allowed = {label} if not isinstance(label, set) else label
    if allowed == {-1} or len(allowed) == size:
        return 1.0
    return 1 - error if z in allowed else error / (size - len(allowed))


# ---------------------------------------------------------------- the likelihood, by hand


@pytest.mark.parametrize("error", [0.0, 0.15])
@pytest.mark.parametrize("kind", ["sure", "sets", "chances"])
def test_the_log_likelihood_of_a_mixture_is_that_of_data_and_labels(
    kind: str, error: float
) -> None:
    if kind == "chances" and error:
        return
    x, z = answers(150)
    hard = some(z, 0.4)
    labels: Any = {
        "sure": list(hard),
        "sets": [{0, 1} if label < 0 else {int(label)} for label in hard],
        "chances": np.where(hard[:, None] < 0, np.nan, np.where(np.eye(2)[z] > 0, 0.7, 0.1)),
    }[kind]
    found = fit(Mixture(2), x, EM(), labels=labels, label_error=error)
    weights = found.params["weights"].numpy()
    chance = 1 / (1 + np.exp(-found.params["predictors"].numpy()))
    total = 0.0
    for n, row in enumerate(x):
        label = labels[n]
        if kind == "chances" and np.isnan(label).any():
            label = -1
        joint = [
            weights[k]
            * np.prod(np.where(row, chance[k], 1 - chance[k]))
            * p_label(label, k, 2, error)
            for k in range(2)
        ]
        total += math.log(sum(joint))
    assert found.log_likelihood == pytest.approx(total, abs=1e-9)
    of_program = fit(
        program,
        torch.tensor(x),
        EM(),
        labels=labels,
        label_error=error,
        init={"weights": found.params["weights"], "chances": found.params["predictors"].sigmoid()},
    )
    assert of_program.log_likelihood == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("durations", [None, PoissonDurations()])
def test_the_log_likelihood_of_a_chain_is_a_sum_over_its_paths(durations: Any) -> None:
    rng = np.random.default_rng(3)
    x, lengths = rng.normal(size=(6, 5, 2)), [5, 5, 4, 5, 3, 5]
    labels = np.where(rng.random((6, 5)) < 0.4, rng.integers(0, 2, (6, 5)), -1)
    x[1, 2] = np.nan  # a step that only a label speaks of
    labels[1, 2] = 1
    sequences = [x[b, :n] for b, n in enumerate(lengths)]
    steps = [list(labels[b, :n]) for b, n in enumerate(lengths)]
    model = HiddenMarkov(2, Normal(), num_items=2, durations=durations)
    found = fit(model, sequences, EM(max_iterations=5), labels=steps, label_error=0.2)
    p = {name: value.numpy() for name, value in found.params.items()}
    total, share = 0.0, np.zeros((5, 2))
    for b, own in enumerate(sequences):
        chances = {}
        for path in itertools.product(range(2), repeat=len(own)):
            value = p["initial"][path[0]]
            visits = [(k, len(list(part))) for k, part in itertools.groupby(path)]
            for place, (k, n) in enumerate(visits if durations is not None else []):
                lasts = stats.poisson(p["mean_durations"][k] - 1)  # the last may go on, unseen
                value *= lasts.sf(n - 2) if place + 1 == len(visits) else lasts.pmf(n - 1)
            for t, k in enumerate(path):
                goes_on = durations is not None and t > 0 and path[t - 1] == k
                value *= p["transitions"][path[t - 1], k] if t and not goes_on else 1.0
                value *= p_label(steps[b][t], k, 2, 0.2)
                if not np.isnan(own[t]).any():
                    width = np.sqrt(p["dispersion"][k])
                    z = (own[t] - p["predictors"][k]) / width
                    value *= np.prod(np.exp(-z * z / 2) / (width * np.sqrt(2 * np.pi)))
            chances[path] = value
        total += math.log(sum(chances.values()))
        if b == 1:
            for path, value in chances.items():
                for t, k in enumerate(path):
                    share[t, k] += value / sum(chances.values())
    assert found.log_likelihood == pytest.approx(total, abs=1e-9)
    posterior = found.posterior_latents(sequences, labels=steps)["states"][1]
    np.testing.assert_allclose(posterior.numpy(), share, atol=1e-9)
    problem = problem_of(found.model, sequences, 0)
    problem = _with(problem, steps, 0.2)
    assert float(problem.program().log_marginal(found.params)) == pytest.approx(total, abs=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        LatentAttributeModel(Q_MATRIX, items="dina", penalty=None),
        LatentAttributeModel(Q_MATRIX, items="additive", penalty=None),
        DeepDiscreteEncoder(6, (2, 1)),
    ],
)
def test_labels_of_bits_are_one_factor_a_bit(model: Any) -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2, (80, 2))
    x = (rng.random((80, 6)) < 0.2 + 0.6 * (bits @ np.array(Q_MATRIX).T > 0)).astype(float)
    labels = some(bits, 0.3).astype(float)
    labels[0] = [0.7, np.nan]
    problem = problem_of(model, x, 0)
    site = next(iter(labelled_latents(problem.structure, problem)))
    given = _with(problem, labels, 0.0)
    params = problem.program_of_one_row().draw_prior(2, 0)
    told = given.steps(2**18, 3)
    assert told is not None
    value = told.e_step(params).log_likelihood
    assert torch.allclose(value, given.program().log_marginal(params), atol=1e-8)
    posterior = problem.program().latent_marginals(params)[site]  # (R, N, C)
    values = problem.program().latent_values(params)[site]  # (C, 2)
    factor = torch.ones(80, len(values), dtype=torch.float64)
    for n in range(80):
        for c, own in enumerate(values.tolist()):
            for k in range(2):
                q = labels[n, k]
                if np.isnan(q) or q == -1:
                    continue
                factor[n, c] *= q if own[k] else 1 - q
    by_hand = problem.program().log_marginal_rows(params) + (posterior * factor).sum(-1).log()
    assert torch.allclose(value, by_hand.sum(-1), atol=1e-8)


def _with(problem: Any, labels: Any, error: float) -> Any:
    return dataclasses.replace(problem, labels=known_of(problem, labels, error).tables)


# ---------------------------------------------------------------- the two ends


def test_rows_that_are_all_labelled_give_the_supervised_estimate() -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(0, 3, 200)
    x = rng.normal(size=(200, 2)) + np.array([[0, 0], [1, 0], [0, 2]])[z]
    found = fit(Mixture(3, Normal(), concentration=1.0), x, labels=z)
    for k in range(3):
        own = x[z == k]
        np.testing.assert_allclose(found.params["predictors"][k], own.mean(0), atol=1e-8)
        np.testing.assert_allclose(found.params["dispersion"][k], own.var(0), atol=1e-8)
    np.testing.assert_allclose(found.params["weights"], np.bincount(z) / 200, atol=1e-8)
    assert "supervised: 200 of 200 rows labelled" in repr(found)
    errors = found.summary(x)["error"]
    for k, j in itertools.product(range(3), range(2)):
        own = x[z == k, j]
        assert errors[f"mean[{k}, {j}]"] == pytest.approx(own.std() / np.sqrt(len(own)), rel=1e-3)


def test_steps_that_are_all_labelled_give_counts_of_moves() -> None:
    rng = np.random.default_rng(1)
    z = (rng.random((20, 15)) < 0.25).cumsum(1) % 2  # a state is left with chance 1/4
    x = rng.normal(size=(20, 15, 1)) + z[..., None]
    found = fit(HiddenMarkov(2, Normal(), concentration=1.0), x, labels=z)
    moves = np.zeros((2, 2))
    np.add.at(moves, (z[:, :-1].ravel(), z[:, 1:].ravel()), 1)
    np.testing.assert_allclose(
        found.params["transitions"], moves / moves.sum(1, keepdims=True), atol=1e-7
    )
    np.testing.assert_allclose(
        found.params["predictors"][:, 0], [x[z == k].mean() for k in range(2)], atol=1e-7
    )


@pytest.mark.parametrize("nothing", [[-1] * 150, [None] * 150, np.full(150, np.nan)])
def test_no_label_at_all_is_the_fit_without(nothing: Any) -> None:
    x, _ = answers()
    told, plain = fit(Mixture(2), x, labels=nothing), fit(Mixture(2), x)
    assert told.log_likelihood == plain.log_likelihood
    assert all(torch.equal(told.params[name], value) for name, value in plain.params.items())
    assert told.labels is None


def test_labels_name_the_classes_whatever_their_size() -> None:
    x, z = answers(300)
    one, other = (fit(Mixture(2), x, labels=some(own, 0.1)) for own in (z, 1 - z))
    assert one.accuracy(x, np.where(some(z, 0.1) < 0, z, -1)) > 0.8
    assert torch.allclose(one.params["weights"], other.params["weights"].flip(0), atol=1e-5)


def test_names_that_pandas_calls_missing_are_not_known() -> None:
    x, z = answers(60)
    labels = some(z, 0.5)
    plain = fit(Mixture(2), x, labels=labels)
    names = pd.Series(np.where(z == 1, "b", "a")).mask(labels < 0)
    for dtype in ("string", "object"):
        named = fit(Mixture(2), x, labels=names.astype(dtype))
        assert named.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-8)
        assert named.label_names == {"assignments": ("a", "b")}


def test_a_row_counted_twice_is_two_rows_with_its_label() -> None:
    x, z = answers(60)
    labels, often = some(z, 0.4), np.random.default_rng(0).integers(1, 4, 60)
    weighted = fit(Mixture(2), x, labels=labels, weights=often)
    repeated = fit(Mixture(2), np.repeat(x, often, 0), labels=np.repeat(labels, often))
    assert weighted.log_likelihood == pytest.approx(repeated.log_likelihood, abs=1e-6)


# ---------------------------------------------------------------- engines


def test_engines_agree_on_the_density_of_labels() -> None:
    x, z = answers(100)
    labels = some(z, 0.3)
    fast = fit(Mixture(2), x, EM(), labels=labels)
    slow = fit(Mixture(2), x, EM(accelerate=False), labels=labels, init=fast)
    assert slow.log_likelihood == pytest.approx(fast.log_likelihood, abs=1e-6)
    assert bool((fast.trace.objective.diff() > -1e-9).all())
    laplace = fit(Mixture(2), x, Laplace(), labels=labels)
    assert torch.allclose(laplace.params["weights"], fast.params["weights"], atol=1e-4)
    short = NUTS(num_samples=150, warmup_steps=150, num_chains=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = fit(Mixture(2), x, short, labels=labels)
        bound = fit(Mixture(2), x, SVI(num_steps=600), labels=labels)
    for other in (drawn, bound):
        assert float((other.params["weights"] - fast.params["weights"]).abs().max()) < 0.05


def test_the_share_of_wrong_labels_is_that_of_highest_likelihood() -> None:
    x, z = answers(600)
    rng = np.random.default_rng(2)
    wrong = np.where(rng.random(600) < 0.2, 1 - z, z)
    found = fit(Mixture(2), x, labels=wrong, label_error="estimate")
    assert found.label_error is not None
    assert found.label_error == pytest.approx(np.mean(wrong != z), abs=0.06)
    assert found.num_parameters == fit(Mixture(2), x).num_parameters + 1
    for other in (found.label_error - 0.02, found.label_error + 0.02):
        there = fit(Mixture(2), x, labels=wrong, label_error=other)
        assert there.log_likelihood < found.log_likelihood


# ---------------------------------------------------------------- what is done with a fit


def test_names_stay_with_the_fit_and_new_rows_may_have_labels(tmp_path: Path) -> None:
    x, z = answers()
    names = np.where(some(z, 0.3) < 0, None, np.array(["ill", "well"])[z])
    found = fit(Mixture(2), x, labels=names)
    assert found.label_names == {"assignments": ("ill", "well")}
    column = pd.Series(pd.Categorical(names, categories=["well", "ill"]))
    turned = fit(Mixture(2), x, labels=column)
    assert torch.allclose(turned.params["weights"], found.params["weights"].flip(0), atol=1e-6)
    found.save(tmp_path / "fit")
    loaded = Fit.load(tmp_path / "fit")
    assert repr(loaded) == repr(found)
    assert "semi-supervised" in repr(loaded)
    assert "labelled" in loaded.summary(x).attrs["note"]
    assert loaded.predict(x[:3], labels=["well", "ill", "well"]).tolist() == [1, 0, 1]
    chances = loaded.predict_proba(x[:3], labels=["well", None, None])
    assert chances[0].tolist() == [0.0, 1.0]
    np.testing.assert_allclose(chances[1:], loaded.predict_proba(x[1:3]), atol=1e-9)
    with pytest.raises(ValueError, match="'ill', 'well' of the fit was expected, got 'dead'"):
        loaded.predict(x[:1], labels=["dead"])


def test_labels_of_steps_follow_the_lines_of_a_frame() -> None:
    rng = np.random.default_rng(0)
    z = (rng.random((8, 12)) < 0.25).cumsum(1) % 2
    frame = pd.DataFrame(
        {
            "sequence": np.repeat(np.arange(8), 12),
            "time": np.tile(np.arange(12), 8),
            "x": (rng.normal(size=(8, 12)) + 2 * z).ravel(),
        }
    )
    told = np.where(rng.random((8, 12)) < 0.3, z, -1)
    names = pd.Series([None if v < 0 else "ab"[v] for v in told.ravel()])
    order = rng.permutation(len(frame))
    model = HiddenMarkov(2, Normal())
    shuffled = fit(model, frame.iloc[order], labels=names.iloc[order])
    plain = fit(model, frame["x"].to_numpy().reshape(8, 12, 1), labels=told)
    assert shuffled.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-6)
    assert shuffled.label_names == {"states": ("a", "b")}


def test_an_estimator_takes_labels_as_y() -> None:
    x, z = answers()
    told = some(z, 0.3)
    numbers = ZooEstimator(Mixture(2), semi_supervised=True).fit(x, told)
    by_hand = fit(Mixture(2), x, labels=told)
    assert numbers.predict(x).tolist() == by_hand.predict(x).tolist()
    assert numbers.classes_.tolist() == [0, 1]
    names = np.where(told < 0, None, np.array(["ill", "well"])[z])
    named = ZooEstimator(Mixture(2), semi_supervised=True).fit(x, names)
    assert named.predict(x[:20]).tolist() == [["ill", "well"][k] for k in by_hand.predict(x[:20])]
    assert named.classes_.tolist() == ["ill", "well"]
    rows, drawn = named.sample(400)
    assert set(drawn) == {"ill", "well"}
    assert (named.predict(rows) == drawn).mean() > 0.8
    plain = ZooEstimator(Mixture(2)).fit(x, told)
    assert plain.fit_.labels is None
    assert not hasattr(plain, "classes_")


def test_accuracy_is_that_of_rows_that_were_held_back() -> None:
    x, z = answers()
    labels = some(z, 0.2)
    found = fit(Mixture(2), x, labels=labels)
    held = labels < 0
    by_hand = (found.predict(x) == z)[held].mean()
    assert found.accuracy(x, np.where(held, z, -1)) == pytest.approx(by_hand)
    with pytest.raises(ValueError, match="held back were expected, and the fit was told"):
        found.accuracy(x, z)
    with pytest.raises(ValueError, match="bootstrap: not worked out for a fit with labels"):
        bootstrap(found, num_replicates=2)


def test_labels_under_another_index_are_refused() -> None:
    x, z = answers()
    frame = pd.DataFrame(x, index=np.random.default_rng(2).permutation(len(x)))
    labels = pd.Series(some(z, 0.2), frame.index)
    found = fit(Mixture(2), frame, labels=labels)
    held = pd.Series(np.where(labels < 0, z, -1), frame.index)
    assert found.accuracy(frame, held) == found.accuracy(frame, held.to_numpy())
    for ask in (
        lambda: fit(Mixture(2), frame, labels=labels.sort_index()),
        lambda: found.predict(frame, labels=labels.sort_index()),
        lambda: found.accuracy(frame, held.sort_index()),
    ):
        with pytest.raises(ValueError, match="labels: the index of the rows was expected"):
            ask()


@pytest.mark.filterwarnings("ignore")
def test_unknown_is_no_category_of_labels() -> None:
    x, z = answers()
    labels = pd.Series(some(z, 0.2)).astype("category")  # of -1, 0 and 1
    plain = fit(Mixture(3), x, labels=labels.astype(int))
    found = fit(Mixture(3), x, labels=labels)
    assert found.log_likelihood == pytest.approx(plain.log_likelihood)


# ---------------------------------------------------------------- bad input

WRONG: list[tuple[Any, str]] = [
    ([0] * 149, r"shape \(150,\), one label for each of 150 rows.*got \(149,\)"),
    ([2] * 150, "whole numbers 0 to 1, or -1 or NaN for unknown, were expected, got 2 in row 0"),
    ([0.5] * 150, "whole numbers 0 to 1"),
    (["a", "b", "c"] * 50, "at most 2 names were expected"),
    ([{0}, {5}] * 75, "sets of whole numbers 0 to 1 were expected, got 5 in row 1"),
    ([{0}, set()] * 75, "at least one value was expected to be left in row 1"),
    (np.full((150, 2), -0.5), "chances of at least 0 with a positive sum were expected in row 0"),
    (["a", 1] * 75, "names or numbers were expected, got both"),
    (3, "a label for each of 150 rows was expected, got 3"),
    ({"states": [0] * 150}, "one of the latents 'assignments' was expected, got 'states'"),
]


@pytest.mark.parametrize(("labels", "words"), WRONG)
def test_wrong_labels_are_named(labels: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(Mixture(2), answers()[0], labels=labels)


def test_labels_of_rows_in_blocks_give_the_same_fit() -> None:
    rng = np.random.default_rng(0)
    z = rng.choice(2, 500, p=[0.6, 0.4])
    x = rng.normal(size=(500, 2)) + 1.2 * z[:, None]
    told = np.where(np.arange(500) % 10 == 0, z, -1)
    model = Mixture(2, Normal(), 2)
    whole = fit(model, x, EM(), labels=told, label_error=0.1, num_restarts=2)
    blocks = RowBlocks.of(x, 64)
    parts = fit(model, blocks, EM(), labels=told, label_error=0.1, num_restarts=2)
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-6)
    assert repr(parts).splitlines()[3:6] == repr(whole).splitlines()[3:6]
    torch.testing.assert_close(parts.params["predictors"], whole.params["predictors"])
    errors = [standard_errors(one, rows) for one, rows in ((whole, x), (parts, blocks))]
    torch.testing.assert_close(errors[0].covariance, errors[1].covariance, rtol=1e-4, atol=1e-9)
    weights = rng.integers(1, 4, 500).astype(float)
    whole = fit(model, x, EM(), labels=told, weights=weights, init=whole)
    parts = fit(model, blocks, EM(), labels=told, weights=weights, init=whole)
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-6)
    q_matrix = np.array([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1]])
    bits = rng.integers(0, 2, (500, 2))
    y = (rng.random((500, 5)) < np.where((bits[:, None] >= q_matrix).all(-1), 0.8, 0.25)) * 1.0
    attributes = LatentAttributeModel(q_matrix, items="dina", penalty=None)
    told = np.where((np.arange(500) % 10 == 0)[:, None], bits, -1)
    whole, parts = (fit(attributes, rows, EM(), labels=told) for rows in (y, RowBlocks.of(y, 64)))
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-6)


def test_the_share_of_wrong_labels_of_rows_in_blocks_is_that_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    z = rng.choice(2, 300, p=[0.6, 0.4])
    x = rng.normal(size=(300, 2)) + 1.2 * z[:, None]
    told = np.where(np.arange(300) % 5 == 0, np.where(rng.random(300) < 0.2, 1 - z, z), -1)
    settings = {"labels": told, "label_error": "estimate", "weights": rng.integers(1, 4, 300) * 1.0}
    whole, parts = (
        fit(Mixture(2, Normal(), 2), rows, EM(), num_restarts=2, **settings)
        for rows in (x, RowBlocks.of(x, 64))
    )
    assert parts.label_error == pytest.approx(whole.label_error, abs=1e-6)
    assert parts.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-6)


def test_sequences_and_own_programs_in_blocks_take_labels() -> None:
    rng = np.random.default_rng(1)
    z = (rng.random((15, 8)) < 0.5).cumsum(1) % 2
    x = rng.normal(size=(15, 8, 1)) + 2.0 * z[..., None]
    acts = np.stack([rng.integers(0, 2, z.shape), (rng.random(z.shape) < 0.2 + 0.6 * z) * 1], -1)
    told = np.where(rng.random(z.shape) < 0.2, z, -1)
    y, bits = answers(90)
    cases: list[tuple[Any, Any, Any]] = [
        (HiddenMarkov(2, Normal(), 1), x, told),
        (HiddenMarkov(2, Normal(), 1, durations=PoissonDurations(5)), x, told),
        (OptionsHMM(2, 2, 2), torch.tensor(acts), told),
        (OptionsHMM(2, 2, 2, durations=PoissonDurations(5)), torch.tensor(acts), told),
        (program, torch.tensor(y), np.where(np.arange(90) % 5 == 0, bits, -1)),
    ]
    for model, data, labels in cases:
        whole = problem_of(model, data, 0, start_given=True)
        whole = with_labels(whole, known_of(whole, labels, 0.1).tables)
        parts = problem_of_blocks(model, RowBlocks.of(data, 4), 0, start_given=True)
        parts = with_labels(parts, known_of(parts, labels, 0.1).tables)
        at = {
            name: value + 0.0
            for name, value in whole.program_of_one_row().draw_prior(2, seed=3).items()
        }
        if "mean_durations" in at:
            at["mean_durations"] = torch.full_like(at["mean_durations"], 3.0)
        if isinstance(model, OptionsHMM):  # where the states alone say how they follow each other
            at["environment"] = torch.full_like(at["environment"], 0.5)
        steps = [EM().steps(own) for own in (whole, parts)]
        found = [own.e_step(at) for own in steps]
        torch.testing.assert_close(found[0].log_likelihood, found[1].log_likelihood)
        moved = [own.m_step(one.statistics, at) for own, one in zip(steps, found, strict=True)]
        for name, value in moved[0].items():
            torch.testing.assert_close(value, moved[1][name], atol=1e-5, rtol=1e-4)
    left_right = HiddenMarkov(2, Normal(), 1, allowed=((1, 1), (0, 1)))
    wrong = np.full((15, 8), -1)
    wrong[13, :2] = [1, 0]
    with pytest.raises(ValueError, match=r"step 1 of sequence 1.*in the block of rows 12 to 14"):
        fit(left_right, RowBlocks.of(x, 4), labels=wrong)


def test_a_given_start_under_other_names_is_renamed() -> None:
    """Labels hold misnamed classes where a start put them: EM goes on under the others."""
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], 100)
    x = rng.normal(size=(200, 2)) + 4.0 * z[:, None]
    told = np.where(np.arange(200) % 50 == 0, z, -1)
    plain = fit(Mixture(2, Normal()), x)
    for start in (plain.params, {name: value.flip(0) for name, value in plain.params.items()}):
        found = fit(Mixture(2, Normal()), x, init=start, labels=told)
        assert (found.predict(x) == z).mean() > 0.99


def test_wrong_settings_and_engines_are_named() -> None:
    x, z = answers()
    for error in (1.0, -0.1, True, "guess"):
        with pytest.raises(ValueError, match="label_error"):
            fit(Mixture(2), x, labels=z, label_error=error)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="say how sure they are"):
        fit(Mixture(2), x, labels=np.eye(2)[z], label_error=0.1)
    with pytest.raises(ValueError, match="labels were expected beside it, got 0.1 and labels=None"):
        fit(Mixture(2), x, label_error=0.1)
    encoder, bits = DeepDiscreteEncoder(4, (2,)), np.zeros((150, 2))
    with pytest.raises(ValueError, match=r"labels: EM\(\), NUTS\(\).*SAEM"):
        fit(encoder, x, SAEM(), labels=bits)
    with pytest.raises(ValueError, match="SVI"):
        fit(Mixture(2), x, SVI(batch_size=10), labels=z)
    with pytest.raises(ValueError, match="labels: a model with a discrete latent of each row"):
        fit(FactorAnalysis(4, 2), x, labels=z)


def test_labels_against_moves_are_named() -> None:
    x = np.random.default_rng(0).normal(size=(3, 6, 1))
    left_right = HiddenMarkov(3, Normal(), allowed=((1, 1, 0), (0, 1, 1), (0, 0, 1)))
    labels = np.full((3, 6), -1)
    labels[1, 1], labels[1, 4] = 2, 0
    with pytest.raises(ValueError, match="none of them leads to the label at step 4 of sequence 1"):
        fit(left_right, x, labels=labels)
    labels[1, 4] = -1
    labels[2, 0], labels[2, 1] = 0, 2  # two moves in one step
    with pytest.raises(ValueError, match="step 1 of sequence 2"):
        fit(left_right, x, labels=labels)
    labels[2, 1] = 1
    assert _with(problem_of(left_right, x, 0), labels, 0.0).labels
    short = HiddenMarkov(2, Normal(), 1, durations=FreeDurations(3))
    labels = np.full((3, 6), -1)
    labels[1, :3] = 1  # as long as a visit may be
    assert _with(problem_of(short, x, 0), labels, 0.0).labels
    labels[1, 3] = 1
    with pytest.raises(ValueError, match="none of them leads to the label at step 3 of sequence 1"):
        fit(short, x, labels=labels)
    with pytest.raises(ValueError, match="-1 was expected after the end of sequence 0"):
        fit(HiddenMarkov(2, Normal(), 1), [x[0][:3], x[1]], labels=np.zeros((2, 6)))
    x[0, 2] = np.nan
    whole = HiddenMarkov(2, MultivariateNormal(), 1)
    with pytest.raises(ValueError, match="step 2 of sequence 0 has none"):
        fit(whole, x, labels=np.zeros((3, 6)))


def test_a_label_has_the_chances_that_its_table_says() -> None:
    allowed = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    table = log_table(allowed, 0.2).exp()
    expected = torch.tensor([[0.8, 0.1, 0.1], [0.8, 0.8, 0.2], [1, 1, 1]], dtype=torch.float64)
    assert torch.allclose(table, expected)
    assert float(log_table(allowed, 0.0)[0, 1]) == NEVER


def test_labels_of_a_plate_around_another_have_one_dim() -> None:
    """Its latents have a dim of one entry behind the rows, as Pyro's nested plates give them."""

    def nested(data: Tensor) -> None:
        chance = pyro.sample("chance", dist.Beta(torch.ones(2), 2.0).to_event(1))
        with pyro.plate("rows", data.shape[0], dim=-2):
            z = pyro.sample("z", dist.Categorical(torch.tensor([0.5, 0.5])))
            with pyro.plate("items", data.shape[1], dim=-1):
                pyro.sample("y", dist.Bernoulli(chance[z]), obs=data)

    data = torch.from_numpy((np.random.default_rng(0).random((12, 3)) < 0.5).astype(float))
    flat = np.array([0, 1, 1, 0] + 8 * [-1])
    found = fit(nested, data, EM(), labels=flat)
    assert found.log_likelihood == fit(nested, data, EM(), labels=flat[:, None]).log_likelihood
    chances = np.stack([flat != 1, flat != 0], -1)
    assert fit(nested, data, EM(), labels=chances).log_likelihood == found.log_likelihood
    with pytest.raises(ValueError, match=r"shape \(12, 1\), one label"):
        fit(nested, data, EM(), labels=flat[:11])


# ---------------------------------------------------------------- frames of labels


@pytest.mark.parametrize("error", [0.0, 0.1])
def test_columns_of_labels_are_taken_by_the_names_of_the_attributes(error: float) -> None:
    rng = np.random.default_rng(0)
    held = (rng.random((120, 2)) < [0.7, 0.3]).astype(float)
    q_matrix = pd.DataFrame(Q_MATRIX, columns=["add", "multiply"])
    x = (rng.random((120, 6)) < 0.2 + 0.6 * (held @ q_matrix.T.to_numpy() > 0)).astype(float)
    labels = pd.DataFrame(held, columns=["add", "multiply"])
    turned = labels[["multiply", "add"]]
    model = LatentAttributeModel(q_matrix, items="dino")
    by_position = fit(model, x, labels=held, label_error=error)
    result = fit(model, x, labels=turned, label_error=error)
    assert result.log_likelihood == pytest.approx(by_position.log_likelihood, abs=1e-8)
    plain = fit(model, x)
    hits = float((plain.predict(x) == held).mean())
    assert plain.accuracy(x, turned) == pytest.approx(hits)
    texts = turned.map({0.0: "no", 1.0: "yes"}.get)
    assert plain.accuracy(x, texts) == pytest.approx(hits)
    in_order = by_position.predict_proba(x, labels=held)
    spoken = fit(model, x, labels=texts, label_error=error, init=by_position)
    np.testing.assert_allclose(spoken.predict_proba(x, labels=texts), in_order, atol=1e-4)
    other = turned.rename(columns={"add": "subtract"})
    with pytest.raises(ValueError, match="labels of 'attributes': the columns 'add', 'multiply'"):
        fit(model, x, labels=other)
    unnamed = labels.rename(columns={"add": "a", "multiply": "b"})
    assert plain.accuracy(x, unnamed) == pytest.approx(hits)


def test_chances_of_new_rows_are_taken_by_the_names_of_the_classes() -> None:
    x, z = answers()
    result = fit(Mixture(2), x, labels=np.where(z == 1, "ill", "well"))
    chances = pd.DataFrame({"ill": np.where(z, 0.9, 0.2), "well": np.where(z, 0.1, 0.8)})
    expected = result.predict_proba(x, labels=chances.to_numpy())
    turned = chances[["well", "ill"]]
    np.testing.assert_allclose(result.predict_proba(x, labels=turned), expected, atol=1e-12)
