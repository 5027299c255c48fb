"""The sum over the paths of a hidden chain."""

from __future__ import annotations

import pytest
import torch

from ppl_models.sequences.hidden_chain import FEW_STATES, log_chain, log_chain_exactly

F64 = torch.float64


@pytest.mark.parametrize(
    ("sequences", "steps"), [(1, 1), (1, 2), (1, 3), (2, 5), (3, 64), (1, 301)]
)
@pytest.mark.parametrize("states", [1, 3, FEW_STATES + 1])
def test_sums_of_scaled_products_are_sums_of_logarithms(sequences, steps, states):
    generator = torch.Generator().manual_seed(steps)
    initial = torch.rand(2, states, generator=generator, dtype=F64)
    moves = torch.rand(2, states, states, generator=generator, dtype=F64) ** 3
    values = [
        initial / initial.sum(-1, keepdim=True),
        moves / moves.sum(-1, keepdim=True),
        30 * torch.randn(2, sequences, steps, states, generator=generator, dtype=F64),
    ]
    answers = []
    for total in (log_chain, log_chain_exactly):
        leaves = [value.clone().requires_grad_() for value in values]
        found = total(*leaves)
        slopes = torch.autograd.grad(found.sum(), leaves, allow_unused=True)
        answers.append([found, slopes[0], slopes[2]])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_expected_moves_are_as_many_as_there_are():
    """The transitions' slopes, times the transitions, count the moves of every sequence: none is
    made after its end.
    """
    moves = torch.tensor([[[0.9, 0.1], [0.3, 0.7]]], dtype=F64).requires_grad_()
    densities = torch.randn(1, 2, 300, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    (slope,) = torch.autograd.grad(
        log_chain(torch.full((1, 2), 0.5, dtype=F64), moves, densities).sum(), moves
    )
    assert float((slope * moves.detach()).sum()) == pytest.approx(2 * 299)
