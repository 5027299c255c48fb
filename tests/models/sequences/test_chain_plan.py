"""The plan of a chain: the tree, the vector through its words, gradients, memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from support.largest_tensor import LargestTensor
from support.option_sequences import case, close, simulate
from torch import Tensor

from inference.structures.options.em_steps import OptionSteps
from inference.structures.options.structure import random_policies
from ppl_models import OptionsHMM
from ppl_models.data.sequences import pack
from ppl_models.datasets import options_chain, simulate_options
from ppl_models.sequences.chain_plan import ChainPlan

F64 = torch.float64


def peak(run: Callable[[], Any]) -> int:
    """Bytes of Python's memory while something runs, the less of two: other threads are traced."""
    found = []
    for _ in range(2):
        gc.collect()
        tracemalloc.start()
        run()
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return min(found)


@pytest.mark.parametrize(("num_options", "most_steps"), [(2, 60_000), (12, 30_000)])
def test_memory_does_not_grow_with_the_number_of_steps(
    monkeypatch: pytest.MonkeyPatch, num_options: int, most_steps: int
) -> None:
    """Beside the data and half a byte a step an iteration holds one block, whatever the length;
    here blocks are tiny.
    """
    tiny = {
        "word_tree.PIECE": 2**8,
        "word_tree.BLOCK": 2**12,
        "word_tree.KEPT": 2**12,
        "word_tree.MAX_WORDS": 2**8,
    }
    tiny |= {"word_pieces.HELD": 2**12, "word_pieces.MOST_PRODUCTS": 2**10}
    for name, value in tiny.items():
        monkeypatch.setattr(f"ppl_models.sequences.{name}", value)
    monkeypatch.setattr("ppl_models.data.sequences.SLICE", 2**11)
    model, tensors, arrays_of_plan, arrays_of_step = OptionsHMM(4, 2, num_options), [], [], []
    few_steps = most_steps // 4
    for num_steps in (few_steps, most_steps):
        data = simulate_options(options_chain(), 1, num_steps, 7).packed
        plan = ChainPlan.build(data, 4, 2)
        arrays_of_plan.append(peak(partial(ChainPlan.build, data, 4, 2)))
        assert plan.tree.words.nbytes <= num_steps
        steps, params = OptionSteps(model.chain(), plan), random_policies(model.chain(), plan, 1, 0)
        with LargestTensor(floating=True) as largest:
            steps.m_step(steps.e_step(params)[0], params)
        arrays_of_step.append(peak(lambda own=steps, at=params: own.m_step(own.e_step(at)[0], at)))
        tensors.append(largest.numel)
    assert tensors[1] <= 1.1 * tensors[0]
    assert arrays_of_step[1] - arrays_of_step[0] < 2 * (
        most_steps - few_steps
    )  # what is kept of each piece
    assert arrays_of_plan[1] - arrays_of_plan[0] < 6 * (
        most_steps - few_steps
    )  # the data take 16 bytes a step


@pytest.mark.parametrize("most_entries", [1, 200, 2**22])
def test_a_vector_through_the_words_gives_what_the_tree_gives(
    monkeypatch: pytest.MonkeyPatch, most_entries: int
) -> None:
    """The route of many options: value and gradient, from single steps, from pairs, and from the
    longest shared words.
    """
    _, truth, data = case(1, sizes=(3, 2, 4))
    long = simulate(OptionsHMM(3, 2, 4, num_steps=300), truth, 3, 1)
    for trajectories in (data, pack(long[..., 0], long[..., 1], torch.tensor([300, 257, 1]))):
        plan = ChainPlan.build(trajectories, 3, 2)
        found = []
        for large in (10, 1):
            monkeypatch.setattr("ppl_models.sequences.word_tree.LARGE", large)
            monkeypatch.setattr("ppl_models.sequences.word_tree.MAX_WORD_ENTRIES", most_entries)
            values = [
                torch.stack([truth[name], truth[name].flip(0)]).requires_grad_()
                for name in ("initial", "low", "high", "environment")
            ]
            rows = plan.log_actions(*values)
            weight = torch.arange(1, rows.numel() + 1, dtype=F64).reshape(rows.shape)
            found.append((rows, torch.autograd.grad((rows * weight).sum(), values[:3])))
        close(found[1][0], found[0][0].detach(), 1e-11)
        for one, two in zip(found[0][1], found[1][1], strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def test_gradients_equal_finite_differences() -> None:
    _, truth, data = case(1)
    plan = ChainPlan.build(data, 3, 3)
    values = [
        truth[name][None].clone().requires_grad_()
        for name in ("initial", "low", "high", "environment")
    ]

    def total(*parts: Tensor) -> Tensor:
        return (plan.log_actions(*parts) + plan.log_moves(parts[3])).sum()

    assert torch.autograd.gradcheck(total, values, eps=1e-6, atol=1e-5)
    assert torch.autograd.gradgradcheck(total, values, eps=1e-6, atol=1e-4)
