"""Where hidden Markov models start: rows that are near each other, windows that are alike, rows at
random.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from inference.base.assigned_starts import centres
from inference.base.component_laws.law import ComponentLaw
from inference.structures.hidden_markov.cut import Cut

SURE = 0.9  # of a row for the state of the nearest centre


def near_rows(
    law: ComponentLaw, cut: Cut, num_states: int, num: int, spread: bool, generator: Generator
) -> Tensor:
    """States of the rows with entries, as chances, (R, N, K): those of the nearest of K rows,
    picked by k-means++ or at random.
    """
    return _assigned(_standardised(law, cut.rows), num_states, num, spread, generator).to(cut.rows)


def near_windows(
    law: ComponentLaw, cut: Cut, num_states: int, num: int, generator: Generator
) -> Tensor:
    """The same by windows of three steps: their mean and their distance from the mean of all rows,
    which tells states of equal means and other widths apart.
    """
    x = _standardised(law, cut.rows)
    size = cut.num_pieces * cut.length
    flat, seen = x.new_zeros(size + 2, 2 * x.shape[1]), x.new_zeros(size + 2, 1)
    place = cut.place.cpu() + 1
    flat[place], seen[place] = (
        torch.cat([x, x.abs()], 1),
        1.0,
    )  # pieces of a sequence stand one after the other
    total = flat[place - 1] + flat[place] + flat[place + 1]
    return _assigned(
        total / (seen[place - 1] + 1.0 + seen[place + 1]), num_states, num, True, generator
    ).to(cut.rows)


def _standardised(law: ComponentLaw, rows: Tensor) -> Tensor:
    statistic, mask = law.statistic(rows)
    seen = torch.ones_like(statistic) if mask is None else mask
    x = (statistic - (statistic * seen).sum(0) / seen.sum(0).clamp(min=1)) * seen
    return (x / law.variances_at_start(x.square().mean(0)).sqrt().clamp(min=1e-12)).double().cpu()


def _assigned(x: Tensor, num_states: int, num: int, spread: bool, generator: Generator) -> Tensor:
    picked = torch.stack([centres(x, num_states, spread, generator) for _ in range(num)])
    owner = torch.nn.functional.one_hot(torch.cdist(x, picked).argmin(-1), num_states).to(x)
    return SURE * owner + (1 - SURE) / num_states
