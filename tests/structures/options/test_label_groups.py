"""Options whose names can be exchanged in some states alone: which states, that the distribution
stays, and which names are taken.
"""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from inference import Fit, RowBlocks, fit
from inference.structures.options.align import label_groups, under_lasting_names
from inference.structures.options.em_steps import OptionSteps
from ppl_models import OptionsHMM
from ppl_models.sequences.chain_plan import plan_of


def moves(size: int, steps: tuple[int, ...]) -> torch.Tensor:
    """A ring on which an actor goes on by one of some numbers of places."""
    out = torch.zeros(size, size)
    for step in steps:
        out[torch.arange(size), (torch.arange(size) + step) % size] += 3.0
    return out


def walks(num: int = 40, length: int = 40) -> dict[str, torch.Tensor]:
    """Two options, left and right, on a ring of four places that is never stood still on; an option
    is kept with a chance of .92.
    """
    rng = np.random.default_rng(0)
    state, action = np.zeros((2, num, length), dtype=int)
    for b in range(num):
        option, place = rng.integers(2), rng.integers(4)
        for t in range(length):
            option = 1 - option if rng.random() < 0.08 else option
            state[b, t], action[b, t] = place, rng.random() < (0.9 if option else 0.1)
            place = (place + (1 if action[b, t] else -1)) % 4
    return {"state": torch.from_numpy(state), "action": torch.from_numpy(action)}


def fitted(data: Any, **settings: Any) -> Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(OptionsHMM(4, 2, 2, **settings), data, seed=2)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (moves(4, (1, 3)), [[0, 2], [1, 3]]),
        (moves(4, (0, 1)), [[0, 1, 2, 3]]),
        (moves(5, (1, 4)), [[0, 1, 2, 3, 4]]),  # an odd ring goes round into the other half
        (moves(6, (1, 4)), [[0, 3], [1, 4], [2, 5]]),
        (
            torch.tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
            [[0]],
        ),  # what is never left has no say
        (
            torch.tensor([[500.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),
            [[0]],
        ),  # a path gone once is not worth a word
    ],
    ids=["ring", "staying", "odd ring", "period of three", "ends", "rare"],
)
def test_states_that_lead_to_a_common_state_share_names(counts, expected):
    groups = label_groups(counts)
    assert sorted(groups.apart) == expected
    assert (groups.group.reshape(1, -1) == groups.group.reshape(-1, 1))[
        np.ix_(expected[0], expected[0])
    ].all()


def random_params(
    generator: torch.Generator, size: int, num_options: int, num_actions: int
) -> dict[str, torch.Tensor]:
    def rows(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64).clamp(min=0.05).pow(2)

    initial, low, high = (
        rows(size, num_options),
        rows(size, num_options, num_actions),
        rows(size, num_options, num_options),
    )
    environment = moves(size, (1, 4)).double().expand(num_actions, size, size)
    return {
        "initial": initial / initial.sum(),
        **{
            name: value / value.sum(-1, keepdim=True)
            for name, value in (("low", low), ("high", high), ("environment", environment))
        },
    }


def test_the_longest_lasting_names_are_found_and_change_no_distribution():
    """Three options and three groups of states: all 36 namings beside the one taken; the
    distribution of a renaming inside a group differs.
    """
    generator = torch.Generator().manual_seed(3)
    model = OptionsHMM(6, 2, 3)
    params = random_params(generator, 6, 3, 2)
    step = torch.randint(0, 2, (30, 12), generator=generator) * 3 + 1
    state = (
        torch.randint(0, 6, (30, 1), generator=generator)
        + torch.nn.functional.pad(step[:, :-1].cumsum(1), (1, 0))
    ) % 6
    data = {"state": state, "action": torch.randint(0, 2, state.shape, generator=generator)}
    base = fitted_at(model, params, data)
    groups = label_groups(moves(6, (1, 4)))
    chosen = under_lasting_names(model.chain(), params, groups)

    def kept(values: dict[str, torch.Tensor]) -> float:
        return float(values["high"].diagonal(dim1=-2, dim2=-1).sum())

    orders = list(itertools.permutations(range(3)))
    found = []
    for one, two in itertools.product(orders, orders):
        per_state = torch.tensor([[(0, 1, 2), one, two][g] for g in (0, 1, 2, 0, 1, 2)])
        renamed = rename(params, per_state)
        assert fitted_at(model, renamed, data) == pytest.approx(base, rel=1e-12)
        found.append(kept(renamed))
    assert kept(chosen) == pytest.approx(max(found), rel=1e-12)
    assert kept(chosen) > kept(params)
    assert fitted_at(model, chosen, data) == pytest.approx(base, rel=1e-12)
    alone = torch.tensor([[1, 0, 2], *([[0, 1, 2]] * 5)])
    assert abs(fitted_at(model, rename(params, alone), data) - base) > 1e-3


def rename(params: dict[str, torch.Tensor], order: torch.Tensor) -> dict[str, torch.Tensor]:
    """Options of every state in an order of its own, (S, O), old by new; the states before s are s
    - 1 and s - 4.
    """
    before = order[(torch.arange(6) - 1) % 6]
    high = torch.stack([params["high"][s][before[s]][:, order[s]] for s in range(6)])
    return {
        **params,
        "initial": params["initial"].gather(1, order),
        "low": torch.stack([params["low"][s][order[s]] for s in range(6)]),
        "high": high,
    }


def fitted_at(model: OptionsHMM, params: dict[str, torch.Tensor], data: Any) -> float:
    steps = OptionSteps(
        model.chain(),
        plan_of(model.check_data(data, for_fit=False)[0], model.num_states, model.num_actions),
    )
    return float(steps.e_step({name: value[None] for name, value in params.items()})[1])


def test_a_fit_names_options_so_that_they_last_and_says_what_is_arbitrary():
    """Every start that climbs the hill ends on one optimum under one naming; before, they were two
    that fit equally well.
    """
    data = walks()
    found = fitted(data)
    assert (
        sum(
            "2 groups of states have no names in common (states 0, 2; 1, 3)" in text
            for text in found.warnings
        )
        == 1
    )
    assert float(found.params["high"].diagonal(dim1=-2, dim2=-1).min()) > 0.75
    packed = found.model.check_data(data, for_fit=False)[0]
    assert "(states hall, yard; shed, lane)" in found.structure.unlike_names(
        packed, ["hall", "shed", "yard", "lane"]
    )
    best = found.restarts.objective >= found.restarts.objective.max() - 1e-4
    assert int(best.sum()) > 1
    assert (found.restarts.optimum[best] == 0).all()
    assert found.log_likelihood_rows(data).sum() == pytest.approx(found.log_likelihood, rel=1e-10)
    blocks = fitted(RowBlocks.of({name: value.numpy() for name, value in data.items()}, 16))
    assert torch.allclose(blocks.params["high"], found.params["high"], atol=1e-4)


def test_priors_that_keep_options_leave_nothing_arbitrary():
    found = fitted(walks(), stickiness=2.0)
    assert not any("no names in common" in text for text in found.warnings)
    assert float(found.params["high"].diagonal(dim1=-2, dim2=-1).min()) > 0.75


def test_two_optima_of_one_height_are_said_to_be_ambiguous():
    found = fitted(walks(), stickiness=2.0).restarts
    twins = dataclasses.replace(
        found,
        objective=found.objective[found.best].repeat(2) - torch.tensor([0.0, 1e-7]),
        optimum=torch.tensor([0, 1]),
        replicates=None,
        best=0,
    )
    assert twins.is_ambiguous
    assert "the data do not tell which of them is right" in twins.text()
    assert not dataclasses.replace(
        twins, objective=twins.objective - torch.tensor([0.0, 1.0])
    ).is_ambiguous
