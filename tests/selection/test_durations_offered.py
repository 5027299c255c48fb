"""Negative binomial durations among the candidates of chains, where visits ask for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from inference import EM, fit
from inference.selection.order_selection.counting import Grid, candidate_of, candidates_of
from ppl_models import (
    HiddenMarkov,
    Mixture,
    MultivariateNormal,
    NegativeBinomialDurations,
    Normal,
)


def visits(size: float, seed: int = 0) -> np.ndarray:
    """One sequence (T, 1) of two states, far apart, with visits of 12 and 6 steps on average."""
    rng, states, state = np.random.default_rng(seed), list[int](), 0
    while len(states) < 400:
        more = rng.negative_binomial(size, size / (size + (11.0, 5.0)[state]))
        states += [state] * int(1 + more)
        state = 1 - state
    return rng.normal(4.0 * np.array(states[:400]))[:, None]


def further(data: np.ndarray, status: str = "misfit") -> list[HiddenMarkov]:
    """Models offered beside plain chains of two states; none once they are offered."""
    first = candidate_of(HiddenMarkov(1, Normal(), 1, "stationary"))
    fits = {(first.name, 2): fit(first.at(2), data, EM(), num_restarts=2)}
    rows = ({"distribution": first.name, "num_components": 2, "chosen": True},)
    answer: Any = SimpleNamespace(status=status, rows=rows)
    table = torch.as_tensor(data)
    grid = Grid([first], (1, 2), data, table, 2, 0, EM())
    found = first.counting.further(grid, fits, answer)
    again = Grid([first, *found], (1, 2), data, table, 2, 0, EM())
    assert not found or not first.counting.further(again, fits, answer)
    return [candidate.model for candidate in found]


def test_durations_are_offered_where_visits_are_not_geometric() -> None:
    for seed in range(3):
        (model,) = further(visits(20.0, seed))
        assert model.durations == NegativeBinomialDurations()
        assert model.initial == "free"  # the first state of a semi-Markov chain is not stationary
    assert not further(visits(20.0), "confident")


def test_durations_are_seldom_offered_where_visits_are_geometric() -> None:
    # the test of short sequences rejects about 12 % of them
    assert sum(bool(further(visits(1.0, seed))) for seed in range(4)) <= 2


def test_candidates_of_a_covariance_family_have_names_of_their_own() -> None:
    model = Mixture(1, MultivariateNormal(covariance="tied"), 2)
    names = [candidate.name for candidate in candidates_of(model)]
    assert names[:2] == ["normal with tied covariances", "normal"]
    assert len(set(names)) == len(names)
