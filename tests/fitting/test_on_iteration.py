"""``on_iteration``: what engines tell after every iteration, and how they stop."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from inference import (
    EM,
    NUTS,
    SAEM,
    SVI,
    AlternatingMinimization,
    Bootstrap,
    Factorize,
    Fit,
    GradientAlternation,
    GrowAndPrune,
    Laplace,
    MeanField,
    OnlineEM,
    ScoreFunctionSVI,
    TrainClassifiers,
    ZooEstimator,
    fit,
)
from inference.base.progress import Iteration
from ppl_models import (
    DeepDiscreteEncoder,
    InClassNet,
    Mixture,
    NoisyOr,
    Normal,
    PoissonFactorization,
    SparseCoding,
)

generator = np.random.default_rng(0)
CLOUDS = generator.normal(size=(400, 3)) + 1.5 * generator.integers(0, 2, (400, 1))
BITS = (generator.random((300, 8)) < 0.15 + 0.6 * generator.integers(0, 2, (300, 1))).astype(float)
ENCODED = (DeepDiscreteEncoder(8, (2,), penalty=None), BITS)
CHAINS = NUTS(num_samples=30, warmup_steps=20, num_chains=2, warm_start=None)
SLOW = EM(tolerance=1e-14, parameter_tolerance=1e-12)
CASES: dict[str, tuple[Any, Any, Any, int]] = {  # model, data, engine, iteration that stops it
    "EM": (Mixture(3, Normal()), CLOUDS, SLOW, 3),
    "SAEM": (*ENCODED, SAEM(), 3),
    "SVI": (Mixture(2, Normal()), CLOUDS, SVI(MeanField(), num_steps=200), 30),
    "NUTS": (Mixture(2, Normal()), CLOUDS[:60], CHAINS, 30),
    "Factorize": (PoissonFactorization(8, 2), 3 * BITS + 1, Factorize(tolerance=1e-15), 2),
    "AlternatingMinimization": (SparseCoding(3, 4, 1), CLOUDS, AlternatingMinimization(), 2),
    "GradientAlternation": (SparseCoding(3, 4, 1), CLOUDS, GradientAlternation(), 2),
    "ScoreFunctionSVI": (NoisyOr(8, 2), BITS, ScoreFunctionSVI(num_epochs=30), 2),
    "Bootstrap": (Mixture(2, Normal()), CLOUDS, Bootstrap(SLOW, num_replicates=500), 2),
    "TrainClassifiers": (InClassNet((1, 1, 1), 2), CLOUDS, TrainClassifiers(), 2),
}


def stopper(seen: list[Iteration], last: int) -> Any:
    def on_iteration(now: Iteration) -> bool:
        seen.append(now)
        return now.iteration >= last

    return on_iteration


def quietly_fitted(*args: Any, **settings: Any) -> Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(*args, **settings)


@pytest.mark.parametrize("engine", CASES)
def test_every_engine_stops_and_says_so(engine: str) -> None:
    model, data, method, last = CASES[engine]
    seen: list[Iteration] = []
    result = quietly_fitted(model, data, method, on_iteration=stopper(seen, last))
    own = [now for now in seen if now.engine == engine]
    numbers = [now.iteration for now in own]
    assert numbers == sorted(numbers)
    assert numbers[-1] >= last  # sweeps and replicates are told by the batch
    assert all(number < last for number in numbers[:-1])
    assert all(isinstance(now.objective, float) and now.num_running >= 0 for now in own)
    assert result.stopped
    assert "stopped by on_iteration" in repr(result)
    assert not any("raise max" in text for text in result.warnings)
    if engine not in ("NUTS", "Bootstrap"):
        assert result.num_iterations == (1 if engine == "Factorize" else last)
        assert engine == "SVI" or not result.converged


def test_a_watched_fit_is_the_plain_one() -> None:
    seen: list[Iteration] = []
    watched = fit(Mixture(2, Normal()), CLOUDS, on_iteration=lambda now: seen.append(now))
    plain = fit(Mixture(2, Normal()), CLOUDS)
    assert not watched.stopped
    assert all(torch.equal(watched.params[name], plain.params[name]) for name in plain.params)
    batches = [now.batch for now in seen]
    assert batches[0] == 0
    assert batches == sorted(batches)  # a search over starts numbers its batches
    assert {now.engine for now in seen} == {"EM"}


def test_a_stopped_search_keeps_its_best_start() -> None:
    seen: list[Iteration] = []
    result = quietly_fitted(Mixture(3, Normal()), CLOUDS, on_iteration=stopper(seen, 15))
    assert result.stopped
    assert seen[-1].iteration == 15
    assert result.objective == max(result.restarts.objective)
    value = Mixture(3, Normal())  # the log-likelihood is that of the estimate
    again = quietly_fitted(value, CLOUDS, EM(max_iterations=1), init=result)
    assert float(again.trace.log_likelihood[0]) == pytest.approx(result.log_likelihood)


def test_engines_before_another_are_told_by_name() -> None:
    seen: list[Iteration] = []
    start = EM(start=OnlineEM(batch_rows=50))
    quietly_fitted(Mixture(2, Normal()), CLOUDS, start, on_iteration=stopper(seen, 10**9))
    assert [now.engine for now in seen[:8]] == ["OnlineEM"] * 8
    assert {now.engine for now in seen[8:]} == {"EM"}
    seen.clear()
    result = quietly_fitted(Mixture(2, Normal()), CLOUDS, start, on_iteration=stopper(seen, 2))
    assert [now.engine for now in seen] == ["OnlineEM", "OnlineEM"]
    assert result.stopped
    assert result.num_iterations == 1  # of EM, with what OnlineEM had reached
    seen.clear()
    laplace = quietly_fitted(Mixture(2, Normal()), CLOUDS, Laplace(), on_iteration=stopper(seen, 2))
    assert laplace.stopped
    assert laplace.draws is not None


def test_nuts_keeps_the_draws_that_there_are_and_refuses_none() -> None:
    seen: list[Iteration] = []
    data = CLOUDS[:60]
    model = Mixture(2, Normal())
    result = quietly_fitted(model, data, CHAINS, on_iteration=stopper(seen, 30))
    whole = quietly_fitted(model, data, dataclasses.replace(CHAINS, relabel=False))
    stopped = quietly_fitted(
        model,
        data,
        dataclasses.replace(CHAINS, relabel=False),
        on_iteration=stopper([], 30),
    )
    assert result.draws is not None
    assert stopped.draws is not None
    assert whole.draws is not None
    for name, draws in stopped.draws.items():
        assert draws.shape[:2] == (2, 10)
        torch.testing.assert_close(draws, whole.draws[name][:, :10])
    with pytest.raises(ValueError, match="stopped after 0 draws a chain"):
        quietly_fitted(model, data, CHAINS, on_iteration=stopper([], 3))


def test_a_search_for_causes_stops() -> None:
    seen: list[Iteration] = []
    result = quietly_fitted(
        NoisyOr(8, 3), BITS, GrowAndPrune(), on_iteration=stopper(seen, 1), num_restarts=3
    )
    assert result.stopped
    assert len(result.restarts.objective) == 1


def test_a_checkpoint_goes_on_from_where_it_was_stopped(tmp_path: Any) -> None:
    path = tmp_path / "fit"
    settings = (Mixture(3, Normal()), CLOUDS, EM(acceleration=None))
    whole = fit(*settings)
    quietly_fitted(*settings, checkpoint=path, on_iteration=stopper([], 4))
    seen: list[Iteration] = []
    rest = fit(*settings, checkpoint=path, on_iteration=stopper(seen, 10**9))
    assert seen[0].iteration == 5
    assert not rest.stopped
    assert all(torch.equal(rest.params[name], whole.params[name]) for name in whole.params)


def test_the_estimator_takes_it_and_the_fit_is_saved(tmp_path: Any) -> None:
    estimator = ZooEstimator(Mixture(2, Normal()), SLOW, on_iteration=stopper([], 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = estimator.fit(CLOUDS).fit_
    assert result.stopped
    result.save(tmp_path / "fit")
    assert Fit.load(tmp_path / "fit").stopped


def test_bad_answers_are_named() -> None:
    with pytest.raises(ValueError, match="on_iteration: a function was expected, got 3"):
        fit(Mixture(2, Normal()), CLOUDS, on_iteration=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_iteration: .* returns True, False or None"):
        fit(Mixture(2, Normal()), CLOUDS, on_iteration=lambda now: now.iteration)  # type: ignore


def test_all_fits_of_an_estimated_share_of_wrong_labels_are_told() -> None:
    seen: list[Iteration] = []
    labels = (CLOUDS[:, 0] > 1).astype(int)
    settings = {"labels": labels, "label_error": "estimate", "num_restarts": 1}
    found = quietly_fitted(
        Mixture(2, Normal()), CLOUDS, on_iteration=stopper(seen, 10**6), **settings
    )
    assert sum(now.iteration <= before.iteration for before, now in itertools.pairwise(seen)) >= 2
    assert not found.stopped
    rounds: list[Iteration] = []
    ended = quietly_fitted(
        Mixture(2, Normal()), CLOUDS, on_iteration=stopper(rounds, 2), **settings
    )
    assert ended.stopped
    assert len(rounds) == 2
