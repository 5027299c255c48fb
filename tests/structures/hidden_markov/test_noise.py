"""ACDC for hidden states: noise of a known distribution under the model; wrong durations,
dependence within states and wrong distributions of rows are seen.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats
from structures.hidden_markov.test_em_steps import drawn
from torch import Tensor
from zoo.rows_hidden_markov import LEFT_RIGHT, truth_of

from inference import EM, Fit, fit
from inference.acdc import Bootstrap, acdc
from inference.base.component_noise import NoiseDraws
from inference.base.outcome import ConvergenceWarning
from inference.base.structure import component_noise
from inference.structures.hidden_markov.noise import _second_of_pairs
from inference.structures.registry import structure_of
from ppl_models import (
    Bernoulli,
    Blocks,
    HiddenMarkov,
    MultivariateNormal,
    NegativeBinomialDurations,
    Normal,
    Poisson,
)

F64 = torch.float64
LENGTHS = [400, 120, 1, 7]
TWO = HiddenMarkov(2, Normal(), num_items=1, initial="stationary")
NORMAL = {
    "transitions": torch.tensor([[0.95, 0.05], [0.1, 0.9]], dtype=F64),
    "predictors": torch.tensor([[0.0], [4.0]], dtype=F64),
    "dispersion": torch.ones(2, 1, dtype=F64),
}


def noise_of(
    model: HiddenMarkov, params: dict[str, Tensor], data: Tensor, num_draws: int = 1
) -> NoiseDraws:
    found = component_noise(
        structure_of(model), params, data, torch.Generator().manual_seed(0), num_draws
    )
    assert found is not None
    return found


def at(model: HiddenMarkov, params: dict[str, Tensor], data: Tensor) -> Fit:
    """A fit that holds given parameters."""
    with pytest.warns(ConvergenceWarning):
        return dataclasses.replace(
            fit(model, data, EM(max_iterations=1), init=params), params=params
        )


@pytest.mark.parametrize(
    "model",
    [
        HiddenMarkov(
            2, Blocks((Normal(), 1), (Poisson(), 1), (Bernoulli(), 1)), initial="stationary"
        ),
        HiddenMarkov(3, MultivariateNormal(), num_items=2),
        HiddenMarkov(3, Poisson(), num_items=2, allowed=LEFT_RIGHT, initial=(1.0, 0.0, 0.0)),
        HiddenMarkov(2, Normal(), num_items=2, durations=NegativeBinomialDurations()),
    ],
    ids=["mixed", "whole rows", "left to right", "durations"],
)
def test_the_noise_of_the_true_model_is_standard_normal(model: HiddenMarkov) -> None:
    """Ragged sequences with gaps; every step has scores, every second one of a visit a pair, every
    visit a duration.
    """
    truth = truth_of(model, 3)
    data = drawn(model, truth, LENGTHS * 5, 1)
    data[::3, 10:14] = torch.where(data[::3, 10:14].isinf(), torch.inf, torch.nan)
    noise = noise_of(model, truth, data)
    width = (noise.scores.shape[-1] - 1) // 2
    assert noise.scores.shape[:3] == (1, int((~data.isinf()).all(-1).sum()), model.num_states)
    assert bool((noise.used.sum(-1) == 1).all())
    own = noise.scores[noise.used]
    for column in own.T:
        values = column[~np.isnan(column)]
        assert stats.kstest(values, "norm").pvalue > 1e-3
    assert int((~np.isnan(own[:, 0])).sum()) == int(data.isfinite().any(-1).sum())
    assert 0 < int((~np.isnan(own[:, width])).sum()) < 0.6 * len(own)


def test_pairs_are_counted_from_the_begin_of_a_visit() -> None:
    paths = np.array([[[0, 0, 0, 1, 1, 0, 1, 1, 1, 1, -1]]])
    assert _second_of_pairs(paths)[0, 0].astype(int).tolist() == [0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0]


def wrong(kind: str, seed: int) -> Tensor:
    """One sequence of two states that breaks what the model says: visits of even length, rows that
    hang on the one before, or counts' distribution of rows.
    """
    rng = np.random.default_rng(seed)
    if kind == "durations":
        state = np.concatenate([np.full(rng.integers(8, 12), i % 2) for i in range(140)])
    else:
        state = np.zeros(1500, dtype=int)
        for t in range(1, 1500):
            state[t] = state[t - 1] ^ int(rng.random() < (0.05, 0.1)[state[t - 1]])
    e = rng.standard_normal(len(state))
    if kind == "dependence":
        for t in range(1, len(e)):
            e[t] = 0.6 * e[t - 1] + 0.8 * e[t]
    if kind == "rows":
        e = (rng.exponential(size=len(state)) - 1) * 1.0
    return torch.from_numpy((4.0 * state + e)[None, :, None])


@pytest.mark.parametrize(("kind", "column"), [("rows", 0), ("dependence", 1), ("durations", 2)])
def test_what_breaks_the_model_is_seen_in_its_column(kind: str, column: int) -> None:
    data = wrong(kind, 1)
    found = acdc({2: at(TWO, NORMAL, data)}, data)
    scores = (found.raw[2] - found.null_mean[2]) / found.null_sd[2]
    assert scores.max() > 5
    by_column = found.by_column[2]
    assert by_column is not None
    assert by_column.max(0).argmax() == column
    right = drawn(TWO, NORMAL, [1500], 2)
    kept = acdc({2: at(TWO, NORMAL, right)}, right)
    assert ((kept.raw[2] - kept.null_mean[2]) / kept.null_sd[2]).max() < 3


def test_too_few_states_misfit_and_a_refitted_null_is_drawn() -> None:
    data = drawn(TWO, NORMAL, [600], 3)
    fits = {k: fit(dataclasses.replace(TWO, num_states=k), data, num_restarts=2) for k in (1, 2)}
    found = acdc(fits, data, calibrate=Bootstrap(3, refit=True))
    assert found.raw[1].max() - found.null_mean[1].max() > 5 * found.raw[2].max()
    assert found.refitted
