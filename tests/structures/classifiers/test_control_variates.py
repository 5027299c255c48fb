"""Control variates for the means of all rows: exact at the anchor, no worse than the batch alone
far from it.
"""

from __future__ import annotations

import torch

from inference.structures.classifiers.gradients import Anchor

F64 = torch.float64


def outputs(seed: int) -> torch.Tensor:
    return (
        3 * torch.randn(1, 2, 4000, 3, generator=torch.Generator().manual_seed(seed), dtype=F64)
    ).softmax(-1)


def test_it_is_exact_at_the_anchor_and_harmless_far_from_it() -> None:
    before, after = outputs(0), outputs(1)
    pulls = before.prod(1).softmax(-1)
    anchor = Anchor(before, pulls, before.mean(2), pulls.mean(1, keepdim=True))
    errors, alone = [], []
    for begin in range(0, 4000, 50):
        place = torch.arange(begin, begin + 50)
        shift = anchor.shift(place, None, None)
        own = before[:, :, place]
        torch.testing.assert_close(shift.phi_of(own, own.mean(2)), before.mean(2))
        torch.testing.assert_close(
            shift.pull_of(pulls[:, place], pulls[:, place].mean(1, keepdim=True)),
            pulls.mean(1, keepdim=True),
        )
        moved = after[:, :, place]
        errors.append(shift.phi_of(moved, moved.mean(2)) - after.mean(2))
        alone.append(moved.mean(2) - after.mean(2))
    assert float(torch.stack(errors).square().mean()) < 1.1 * float(
        torch.stack(alone).square().mean()
    )
    assert float(torch.stack(errors).mean(0).abs().max()) < 0.02
