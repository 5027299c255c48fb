"""How many hidden options: the number and its words, memory in their place, and options that act
alike.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from inference import EM, fit
from inference.fitting.problem import problem_of
from inference.inspection.options import log_likelihood_parts
from inference.programs.global_state import quiet
from inference.report.how_many import how_many_verdict
from inference.selection import select_components, select_dimension
from inference.selection.order_selection.counting import Grid, candidate_of, fit_candidates
from inference.selection.order_selection.kinds.options import (
    CountingOptions,
    _doubts,
    better_held_out,
    distinct_options,
    held_out_actions,
    markov_policy_bic,
)
from ppl_models import ContinuousOptionsHMM, OptionsHMM
from ppl_models.datasets import simulate_options

SHARP = {
    "initial": torch.full((2, 2), 0.25),
    "low": torch.tensor([[[0.9, 0.1], [0.1, 0.9]], [[0.2, 0.8], [0.8, 0.2]]]),
    "high": torch.tensor([[0.94, 0.06], [0.06, 0.94]]).expand(2, 2, 2),
    "environment": torch.tensor([[0.6, 0.4], [0.4, 0.6]]).expand(2, 2, 2),
}


def walks(num_sequences: int = 12, seed: int = 0) -> torch.Tensor:
    return simulate_options(
        {name: value.double() for name, value in SHARP.items()}, num_sequences, 50, seed
    ).packed


@pytest.fixture(scope="module")
def found():
    return select_components(OptionsHMM(2, 2, 1), walks(), (1, 2, 3), num_restarts=1)


def test_two_options_are_found_and_said(found) -> None:
    assert (found.num_components, found.status, found.interval) == (2, "confident", (2, 2))
    assert found.fit.model.num_options == 2
    number, distribution, unseen = found.sentences
    assert number.startswith("2 options (confident")
    assert "how long visits last" in distribution
    assert "Two options that act alike" in unseen
    assert found.held_out == 2
    assert found.distinct_options == ((0,), (1,))
    assert min(found.memory.values()) > 10
    assert found.plot() is not None
    verdict = how_many_verdict(found)
    assert verdict.mark == "good"
    assert {one.question for one in verdict.findings} >= {
        "Do the options act differently?",
        "Would memory do without options?",
    }


def test_penalties_by_hand(found) -> None:
    """Every row of a policy pays the log of the steps that it is read from; first steps choose an
    option, later ones may switch.
    """
    packed = walks()
    state = packed[..., 0]
    visits, first = (np.bincount(own.ravel().numpy(), minlength=2) for own in (state, state[:, 0]))
    later = visits - first
    for (_, k), one in found.fits.items():
        price = (
            sum(k * math.log(n) for n in visits)
            + sum(k * (k - 1) * math.log(n) for n in later)
            + sum((k - 1) * math.log(n) for n in first)
        )
        assert found.table.loc[("options", k), "bic"] == pytest.approx(
            -2 * one.log_likelihood + price
        )
        number = 2 * k + 2 * k * (k - 1) + 2 * (k - 1)
        assert found.table.loc[("options", k), "lenient"] == pytest.approx(
            -2 * one.log_likelihood + 3 * number
        )


def test_what_memory_costs_is_counted_by_hand() -> None:
    state = torch.tensor([[0, 1, 0, 1, 0], [1, 0, 0, -1, -1]])
    action = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 1, -1, -1]])
    for memory in (None, "action", "state"):
        rows: dict[tuple[int, int], list[int]] = {}
        for s, a in zip(state.tolist(), action.tolist(), strict=True):
            for t in range(len(s)):
                if s[t] >= 0:
                    before = (
                        -1 if t == 0 or memory is None else (a if memory == "action" else s)[t - 1]
                    )
                    rows.setdefault((before, s[t]), [0, 0])[a[t]] += 1
        value = sum(
            -2 * sum(n * math.log(n / sum(row)) for n in row if n) + math.log(sum(row))
            for row in rows.values()
        )
        assert markov_policy_bic(torch.stack([state, action], -1), 2, 2, memory) == pytest.approx(
            value
        )
    action[0, 1] = -1
    assert markov_policy_bic(torch.stack([state, action], -1), 2, 2, "action") is None


def test_one_option_costs_what_a_policy_without_memory_costs(found) -> None:
    """The same counts on two ways, but for the prior that keeps fits off zeros."""
    packed, one = walks(), found.fits["options", 1]
    parts = one.bic + 2 * one.log_likelihood
    assert markov_policy_bic(packed, 2, 2, None) == pytest.approx(
        parts + _deviance(packed), abs=0.01
    )


def _deviance(packed: torch.Tensor) -> float:
    counts = (
        torch.bincount((packed[..., 0] * 2 + packed[..., 1]).ravel(), minlength=4)
        .double()
        .reshape(2, 2)
    )
    return float(-2 * (counts * (counts / counts.sum(-1, keepdim=True)).log()).sum())


def test_a_policy_that_looks_at_the_last_action_is_no_option() -> None:
    rng = np.random.default_rng(1)
    state = rng.integers(2, size=(8, 60))
    action = np.zeros((8, 60), dtype=int)
    for t in range(1, 60):
        action[:, t] = np.where(rng.random(8) < 0.85, 1 - action[:, t - 1], action[:, t - 1])
    data = torch.from_numpy(np.stack([state, action], -1))
    found = select_components(OptionsHMM(2, 2, 1), data, (1, 2), num_restarts=1)
    assert found.status == "misfit"
    assert found.memory["action"] < 0
    assert "looks at the action of the step before" in found.verdict
    assert found.fit.model.num_options in (1, 2)
    assert how_many_verdict(found).mark == "bad"


@pytest.mark.parametrize(
    ("lead", "mark", "words"),
    [(-30.0, "bad", "30 less"), (-4.0, "care", "4 less"), (4.0, "care", "4 more")],
)
def test_a_policy_with_memory_beats_options_by_a_clear_difference_alone(
    found, lead: float, mark: str, words: str
) -> None:
    """Memory is compared with the best number by BIC, also where another is taken."""
    rows = [{**row, "bic": 0.0 if row["num_components"] == 1 else 50.0} for row in found.rows]
    close = replace(found, rows=tuple(rows), evidence={**found.evidence, "memory": {"state": lead}})
    assert close.is_beaten == (mark == "bad")
    (asked,) = [
        own
        for own in how_many_verdict(close).findings
        if own.question == "Would memory do without options?"
    ]
    assert asked.mark == mark
    assert "that of 1 option, the best number by BIC" in asked.answer
    assert words in asked.answer
    doubts = _doubts(
        {("options", k): float(k) for k in (1, 2)}, (1, 2), (1, 1, 1), (), {"state": lead}, {}
    )
    assert any("below that of every number" in own for own in doubts) == (lead < 0)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_options_that_act_alike_are_one(found) -> None:
    packed, two = walks(), found.fit
    problem = problem_of(OptionsHMM(2, 2, 3), packed, 0)
    starts = problem.structure.split_starts(problem, two.params)
    assert starts["low"].shape == (2, 2, 3, 2)
    for name in ("low", "high"):
        assert torch.allclose(starts[name].sum(-1), torch.ones(()).double())
    apart = fit(
        OptionsHMM(2, 2, 3),
        packed,
        CountingOptions.method,
        init={name: value[0] for name, value in starts.items()},
    )
    assert apart.log_likelihood > two.log_likelihood - 0.1
    low = torch.cat(
        [two.params["low"], two.params["low"][:, :1]], 1
    )  # the halves of the first option act as it does
    alike = fit(
        OptionsHMM(2, 2, 3),
        packed,
        EM(max_iterations=1),
        init={name: value[0] for name, value in starts.items()} | {"low": low},
    )
    assert distinct_options(two, packed) == ((0,), (1,))
    assert len(distinct_options(alike, packed)) == 2


def test_sequences_are_foretold_by_fits_that_have_not_seen_them() -> None:
    packed = walks(9, 3)
    grid = Grid(
        [candidate_of(OptionsHMM(2, 2, 1))], (1, 2), packed, packed, 1, 0, CountingOptions.method
    )
    with quiet():
        held = held_out_actions(grid)
        fits = fit_candidates(grid)
    assert held[2].shape == (9,)
    assert held[1].isfinite().all()
    seen = log_likelihood_parts(fits["options", 2], packed).actions
    assert float(held[2].sum()) < float(seen.sum())
    assert float(held[2].sum()) > float(held[1].sum())
    assert better_held_out(held, 1) == 2
    assert better_held_out(held, 2) is None
    assert better_held_out({}, 1) is None


def test_the_plain_call_counts_options() -> None:
    chosen = select_dimension(lambda k: OptionsHMM(2, 2, k), walks(5), (1, 2), num_restarts=1)
    assert chosen.answer.noun == "option"
    assert chosen.answer.held_out is None  # five sequences are too few
    assert list(chosen.table["chosen"]) == [False, True]
    assert (
        select_dimension(
            lambda k: OptionsHMM(2, 2, k), walks(5), (1, 2), "bic", num_restarts=1
        ).answer
        is None
    )


def test_bad_input() -> None:
    model, data = OptionsHMM(2, 2, 1), walks(2)
    for call, message in (
        (
            lambda: select_components(
                model, data, (1, 2), distributions=[model, OptionsHMM(2, 2, 1, termination=True)]
            ),
            "None or one model for hidden options",
        ),
        (
            lambda: select_components(ContinuousOptionsHMM(1, 2, 1), data, (1, 2)),
            "states that are whole numbers",
        ),
        (
            lambda: select_components(model, data, (1, 2), bootstrap=6),
            "bootstrap is for factorizations",
        ),
        (lambda: select_components(OptionsHMM, data, (1, 2)), "give a function"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_an_option_that_hardly_shows_makes_the_number_unsure() -> None:
    """Two of three criteria that agree are not enough: options that act in few states are seen by
    Akaike's alone.
    """
    strict = {("options", 1): 200.0, ("options", 2): 100.0, ("options", 3): 150.0}
    groups = [(0,), (1,)]
    assert _doubts(strict, [1, 2, 3], (2, 2, 2), groups, {}, {}) == []
    assert _doubts(strict, [1, 2, 3], (2, 2, 3), groups, {}, {}) == [
        "Akaike's criterion, which asks least of an option, would take 3"
    ]
