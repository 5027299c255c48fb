"""How many states, of which distribution: the number, its words, and missing entries."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, fit
from inference.base.outcome import ConvergenceWarning
from inference.selection import select_components, select_dimension
from inference.selection.order_selection.counting import candidates_of
from inference.selection.order_selection.kinds.mixture import shares_of
from ppl_models import Bernoulli, HiddenMarkov, Mixture, Normal, Poisson


def counts(seed: int, steps: int = 240) -> np.ndarray:
    rng = np.random.default_rng(seed)
    state = np.zeros(steps, dtype=int)
    for t in range(1, steps):
        state[t] = state[t - 1] ^ int(rng.random() < 0.1)
    return rng.poisson(np.array([2.0, 12.0])[state])[:, None].astype(float)


def test_two_states_of_counts_are_found_and_said() -> None:
    data = counts(0, 160)
    answer = select_components(
        HiddenMarkov(1, Poisson()),
        data,
        (1, 2, 3),
        distributions=[HiddenMarkov(1, Poisson())],
        num_restarts=1,
    )
    assert (answer.num_components, answer.distribution, answer.status) == (
        2,
        "Poisson",
        "confident",
    )
    assert answer.fit.model.num_states == 2
    number, distribution, unseen = answer.sentences
    assert number.startswith("2 states (confident")
    assert "how long visits last" in distribution
    assert "state that lasts for few steps" in unseen
    bic = answer.table["bic"].xs("Poisson")
    assert bic[2] == pytest.approx(answer.fit.bic)  # a step with entries is an observation


def test_a_choice_of_states_asks_the_rule() -> None:
    chosen = select_dimension(
        lambda k: HiddenMarkov(k, Bernoulli()),
        (counts(1, 80) > 6).astype(float),
        (1, 2),
        num_restarts=1,
        method=EM(max_iterations=20),
    )
    assert chosen.answer is not None
    assert chosen.answer.noun == "state"


def test_steps_without_entries_leave_distributions_of_whole_rows() -> None:
    data = torch.randn(60, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    data[5:9] = torch.nan
    model = HiddenMarkov(2, Normal(), 2)
    with pytest.warns(ConvergenceWarning):
        fitted = fit(model, data, EM(max_iterations=2), num_restarts=1)
    assert shares_of(fitted, data).shape == (56, 2)
    distribution = candidates_of(model)[1]
    assert distribution.needs_whole_rows
    assert not distribution.counting.has_gaps(data[None])
    data[20, 0] = torch.nan
    assert distribution.counting.has_gaps(data[None])
    assert candidates_of(Mixture(2, Normal(), 2))[1].counting.has_gaps(data)


def test_chains_and_mixtures_are_not_compared() -> None:
    with pytest.raises(
        ValueError, match="distributions must all be mixtures, all hidden Markov models"
    ):
        select_components(
            HiddenMarkov(1), torch.zeros(9, 1), (1, 2), distributions=[HiddenMarkov(1), Mixture(1)]
        )


def test_sequences_under_another_name_are_the_same_choice() -> None:
    rng, parts = np.random.default_rng(3), []
    for name in "badc":
        states = np.cumsum(rng.random(30) < 0.15) % 2
        parts.append(pd.DataFrame({"animal": name, "x": rng.normal(4.0 * states)}))
    frame = pd.concat(parts, ignore_index=True)
    answers = [
        select_components(HiddenMarkov(1, Normal()), data, (1, 2), num_restarts=2)
        for data in (frame, frame.rename(columns={"animal": "sequence"}))
    ]
    own, other = (answer.fits["normal", 2] for answer in answers)
    assert own.num_rows == 4
    assert own.log_likelihood == pytest.approx(other.log_likelihood)
    assert answers[0].misfit == answers[1].misfit
    assert len(own.log_likelihood_rows(frame)) == 4
