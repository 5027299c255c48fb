"""A fit makes what cannot change during it once: descriptions, and programs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
import torch

from inference import EM, fit
from inference.base.component_distributions.items import ItemDistribution
from inference.programs.program import Program
from ppl_models import DeepDiscreteEncoder, Mixture, Normal


def entered(call: Callable[[], Any], *functions: Callable[..., Any]) -> list[Counter[int]]:
    """How often each function was entered, by the identity of its first argument."""
    codes = [function.__code__ for function in functions]
    counts: list[Counter[int]] = [Counter() for _ in codes]
    owners = []  # an id is only one as long as its object lives

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            owner = frame.f_locals["self"]
            owners.append(owner)
            counts[codes.index(frame.f_code)][id(owner)] += 1

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


def test_a_mixture_is_described_once_and_run_once_in_each_units() -> None:
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)).double()
    x[:150] += 4
    described, opened, entries, scales = entered(
        lambda: fit(Mixture(2, Normal(), num_items=4), x),
        Mixture._components.func,  # type: ignore[attr-defined]
        Program.__init__,
        ItemDistribution._entries.func,  # type: ignore[attr-defined]
        ItemDistribution.scales,
    )
    assert set(described.values()) == {1}
    assert len(described) <= 3  # as given, with the units of the data, in standard units
    assert opened.total() <= 3
    assert entries.total() <= 3
    assert scales.total() <= 6  # and not once a start, none of which has a variance at its floor


@pytest.mark.filterwarnings("ignore")
def test_an_encoder_is_described_once() -> None:
    model = DeepDiscreteEncoder(12, (4, 2), graphs=None, penalty=None)
    x = torch.bernoulli(torch.full((200, 12), 0.5), generator=torch.Generator().manual_seed(0))
    (described,) = entered(
        lambda: fit(model, x, EM(max_iterations=5), init="random"),
        DeepDiscreteEncoder._layers.func,  # type: ignore[attr-defined]
    )
    assert set(described.values()) == {1}


def test_a_changed_copy_describes_itself_anew() -> None:
    model = Mixture(2, Normal(), num_items=4)
    assert model.components().num_components == 2
    other = replace(model, num_components=3)
    assert other.components().num_components == 3
    assert model.components().scaled == (True,) * 4
    assert replace(model.components(), num_items=5).scaled == (True,) * 5
