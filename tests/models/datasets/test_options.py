"""Simulated sequences of options: their distribution, their pieces, what is refused."""

from __future__ import annotations

import pytest
import torch
from papers.options import random_options

from ppl_models.datasets import options_chain, simulate_options


@pytest.mark.parametrize(("num_rows", "num_steps"), [(3, 4000), (2000, 6), (1, 12000)])
def test_simulation_follows_the_distribution(num_rows: int, num_steps: int) -> None:
    """Pairs of successive (state, option, action) against the stationary chain; pieces of a long
    sequence fit together.
    """
    truth = random_options(3, 2, 2, seed=1)
    drawn = simulate_options(truth, num_rows, num_steps, seed=2)
    state, option, action = drawn.data["state"], drawn.option, drawn.data["action"]
    assert state.shape == option.shape == action.shape == (num_rows, num_steps)
    expected = torch.einsum(
        "so,soa,ast,top->soatp", *(truth[n] for n in ("initial", "low", "environment", "high"))
    )
    code = (
        ((state[:, :-1] * 2 + option[:, :-1]) * 2 + action[:, :-1]) * 3 + state[:, 1:]
    ) * 2 + option[:, 1:]
    counts = torch.bincount(code.ravel(), minlength=expected.numel()).reshape(expected.shape)
    total = num_rows * (num_steps - 1)
    score = (counts - total * expected) / (total * expected).sqrt()
    assert float(score.abs().max()) < 6
    again = simulate_options(truth, num_rows, num_steps, seed=2)
    assert torch.equal(again.data["state"], state)
    assert not torch.equal(
        simulate_options(truth, num_rows, num_steps, seed=3).data["state"], state
    )
    assert drawn.packed.shape == (num_rows, num_steps, 2)


def test_pieces_are_joined_by_the_chain() -> None:
    """Moves that the truth forbids never occur, at the joints either."""
    truth = options_chain()
    truth["high"] = torch.eye(2, dtype=torch.float64).expand(4, 2, 2)
    drawn = simulate_options(truth, 2, 9000, seed=4)
    assert bool((drawn.option == drawn.option[:, :1]).all())


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="positive numbers of rows and steps"):
        simulate_options(options_chain(), 0, 5, 0)
