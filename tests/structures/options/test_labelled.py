"""Labels of options: likelihood and posteriors by every path, closed forms, bad input."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from zoo import rows_continuous_options
from zoo.rows_options import all_paths, options_truth, paths_of_visits

from inference import EM, TrainClassifiers, fit
from inference.fitting.labels import known_of
from inference.fitting.problem import problem_of
from inference.structures.options.em_steps import OptionSteps
from ppl_models import (
    ContinuousOptionsHMM,
    InClassNet,
    NegativeBinomialDurations,
    OptionsHMM,
)
from ppl_models.data.sequences import pack
from ppl_models.datasets import simulate_options
from ppl_models.descriptions.options import with_high
from ppl_models.sequences.chain_plan import ChainPlan

pytestmark = [
    pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::inference.base.outcome.StartsWarning"),
    pytest.mark.filterwarnings("ignore::inference.EstimateWarning"),
    pytest.mark.filterwarnings("ignore::inference.structures.options.moments.MomentWarning"),
]
LENGTHS = [4, 3, 4]
LABELS = [[0, -1, 1, -1], [None, 0, 1], [-1, -1, -1, 1]]  # the last of them of a missing action


def rows() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    state, action = rng.integers(0, 2, (3, 4)), rng.integers(0, 2, (3, 4))
    action[0, 1] = action[2, 3] = -1
    return {"state": state, "action": action, "length": LENGTHS}


@pytest.mark.parametrize("error", [0.0, 0.2])
@pytest.mark.parametrize(
    "model",
    [
        OptionsHMM(2, 2, 2),
        OptionsHMM(2, 2, 2, termination=True),
        OptionsHMM(2, 2, 2, durations=NegativeBinomialDurations(3)),
        ContinuousOptionsHMM(1, 2, 2),
    ],
)
def test_the_log_likelihood_of_labels_is_a_sum_over_paths(model: Any, error: float) -> None:
    """EM climbs it, and posteriors are the shares of the paths."""
    data, of_paths = rows(), all_paths
    if isinstance(model, ContinuousOptionsHMM):
        data["state"] = np.random.default_rng(1).normal(size=(3, 4, 1))
        of_paths = rows_continuous_options.all_paths
    found = fit(model, data, EM(max_iterations=6), labels=LABELS, label_error=error)
    assert found.trace.objective.diff().min() > -1e-9
    params = found.params
    if isinstance(model, OptionsHMM) and model.durations is not None:
        of_paths = partial(paths_of_visits, model)
    elif isinstance(model, OptionsHMM):
        params = with_high(model.chain(), params)
    by_hand = {name: value.numpy() for name, value in params.items()}
    posterior, total = found.posterior_latents(data, labels=LABELS)["options"].numpy(), 0.0
    for packed, labels, means in zip(
        found.model.check_data(data)[0].numpy(), LABELS, posterior, strict=True
    ):
        paths, weight = of_paths(by_hand, packed)
        factor = {True: 1 - error, False: error}
        told = [(t, k) for t, k in enumerate(labels) if k is not None and k >= 0]
        weight = weight * [math.prod(factor[path[t] == k] for t, k in told) for path in paths]
        total += math.log(weight.sum())
        for t in range(len(labels)):
            share = [weight[[path[t] == k for path in paths]].sum() for k in range(2)]
            np.testing.assert_allclose(means[t], share / weight.sum(), atol=1e-9)
    assert found.log_likelihood == pytest.approx(total, abs=1e-9)
    problem = problem_of(model, data, 0)
    problem = replace(problem, labels=known_of(problem, LABELS, error, data=data).tables)
    assert float(problem.program().log_marginal(found.params)) == pytest.approx(total, abs=1e-8)


def test_labels_of_all_steps_give_the_supervised_estimate() -> None:
    truth = options_truth(3, 3, 2, seed=1)
    drawn = simulate_options(truth, 20, 15, 1)
    found = fit(OptionsHMM(3, 3, 2, concentration=1.0), drawn.packed, labels=drawn.option)
    state, action = drawn.packed.unbind(-1)
    low, high = torch.zeros(3, 2, 3), torch.zeros(3, 2, 2)
    for b in range(20):
        for t in range(15):
            low[state[b, t], drawn.option[b, t], action[b, t]] += 1
            if t:
                high[state[b, t], drawn.option[b, t - 1], drawn.option[b, t]] += 1
    for name, counts in (("low", low), ("high", high)):
        expected = counts.double() / counts.sum(-1, keepdim=True)
        torch.testing.assert_close(found.params[name], expected, atol=1e-7, rtol=0)


def test_slopes_of_labelled_steps_survive_the_recursion_in_logs() -> None:
    """Where products of probabilities underflow, options that a label rules out count nought."""
    truth = options_truth(1, 2, 2, seed=0)
    truth["low"] = torch.tensor([[[1 - 1e-200, 1e-200], [1 - 1e-220, 1e-220]]], dtype=torch.float64)
    data = pack([[0, 0, 0, 0]], [[1, 1, 1, 1]])
    sure = torch.tensor([0.0, -1e30], dtype=torch.float64)
    labels = torch.stack([sure, sure.flip(0), sure, torch.zeros_like(sure)])[None]
    counts, log_likelihood, _ = OptionSteps(
        OptionsHMM(1, 2, 2).chain(), ChainPlan.build(data, 1, 2, labels)
    ).e_step({name: value[None] for name, value in truth.items()})
    assert bool(log_likelihood.isfinite())
    torch.testing.assert_close(
        counts["low"][0, 0, :, 1], torch.tensor([3.0, 1.0], dtype=torch.float64)
    )


def test_labels_raise_the_accuracy_of_steps_without_one() -> None:
    """Of three seeds, one label in five steps: names right, and no worse than the plain fit."""
    gains = []
    for seed in range(3):
        truth = options_truth(4, 3, 2, seed=100 + seed)
        drawn = simulate_options(truth, 40, 30, seed)
        option = drawn.option.numpy()
        told = np.random.default_rng(seed).random(option.shape) < 0.2
        found = fit(OptionsHMM(4, 3, 2), drawn.packed, labels=np.where(told, option, -1))
        plain = (fit(OptionsHMM(4, 3, 2), drawn.packed).predict(drawn.packed) == option)[~told]
        held = found.accuracy(drawn.packed, np.where(told, -1, option))
        gains.append(held - max(plain.mean(), 1 - plain.mean()))
    assert min(gains) > -0.01
    assert np.mean(gains) > 0.01


def test_labels_in_all_groups_of_states_name_their_options_alike() -> None:
    """On a board that is never stood still on, names of even and odd places hang on labels."""
    truth = options_truth(4, 2, 2, seed=3)
    around = torch.eye(4, dtype=torch.float64)
    truth["environment"] = torch.stack(
        [0.9 * around.roll(k, 1) + 0.1 * around.roll(-k, 1) for k in (1, -1)]
    )
    drawn = simulate_options(truth, 40, 30, 0)
    option = drawn.option.numpy()
    told = np.where(np.random.default_rng(0).random(option.shape) < 0.3, option, -1)
    found = fit(OptionsHMM(4, 2, 2), drawn.packed, labels=told)
    assert not any("no names in common" in text for text in found.warnings)
    assert any("no names in common" in w for w in fit(OptionsHMM(4, 2, 2), drawn.packed).warnings)
    even = np.where(drawn.packed[..., 0].numpy() % 2 == 0, told, -1)
    found = fit(OptionsHMM(4, 2, 2), drawn.packed, labels=even)
    assert any("no names in common" in text for text in found.warnings)


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ([[0, 2, -1, -1], [0], [0]], {}, "whole numbers 0 to 1.*got 2 in row 0"),
    (np.zeros((3, 4)), {}, "-1 was expected after the end of sequence 1, got a label at step 3"),
    (np.zeros((2, 4)), {}, "one label for each of 4 steps of 3 sequences"),
    (
        [[0, 0, 0, -1], [-1], [-1]],
        {"durations": NegativeBinomialDurations(2)},
        "known parameters and durations allow were .* sequence 0 .* from step 2 on",
    ),
    (
        [[0, 1, -1, -1], [-1], [-1]],
        {"fixed": {"high": [[[1.0, 0.0], [0.0, 1.0]]] * 2}},
        "known parameters and durations allow were .* sequence 0 .* from step 1 on",
    ),
]


@pytest.mark.parametrize(("labels", "settings", "words"), WRONG)
def test_wrong_labels_of_options_are_named(
    labels: Any, settings: dict[str, Any], words: str
) -> None:
    settings = dict(settings)
    durations = settings.pop("durations", None)
    with pytest.raises(ValueError, match=words):
        fit(OptionsHMM(2, 2, 2, durations=durations), rows(), labels=labels, **settings)


def test_classifiers_say_where_their_labels_go() -> None:
    x = np.random.default_rng(0).normal(size=(200, 3))
    for method in (None, TrainClassifiers()):
        with pytest.raises(ValueError, match=r"TrainClassifiers\(labels=Labels\(values\)\)"):
            fit(InClassNet((1, 1, 1), num_components=2), x, method, labels=np.zeros(200))
