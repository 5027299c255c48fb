"""Units of real columns: where their values lie and how wide they scatter, in which priors are said and engines work."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ppl_models.parts.validation import is_number

__all__ = ["OWN_BOUND", "Units", "check_units", "column_units", "column_variances"]

NORMAL_WIDTH = 1.349  # between the quartiles, in standard deviations
FARTHEST = 500.0  # widths from its centre that a value may lie: half of what means of components may
OWN_BOUND = ", or leave out bound=, which is in units of the data: means then have all the room they need"

Units = tuple[tuple[float, float], ...]  # centre and width, item by item


def check_units(owner: str, units: Any, num_items: int) -> None:
    """Units must be None, or a centre and a positive width for every item."""
    if units is None:
        return
    pairs = units if isinstance(units, tuple) else ()
    if len(pairs) != num_items or not all(isinstance(pair, tuple) and len(pair) == 2 and all(map(is_number, pair)) and pair[1] > 0 for pair in pairs):
        raise ValueError(f"{owner}: units must be a centre and a positive width for each of the {num_items} items, or None, got {units!r}")


def column_variances(x: Tensor) -> Tensor:
    """The variance of every column, or of a normal law with its quartiles where that is smaller and not zero, (J,); NaN is missing."""
    centred = x - x.nanmean(0)
    variance = centred.square().nanmean(0)
    ordered = x.sort(0).values  # NaN last
    number = (~x.isnan()).sum(0)
    low, high = (ordered.gather(0, (share * (number - 1)).long().clamp(min=0).unsqueeze(0))[0] for share in (0.25, 0.75))
    middle = ((high - low) / NORMAL_WIDTH).square()
    return torch.where(middle > 0, torch.minimum(middle, variance), variance)


def column_units(x: Tensor) -> Units:
    """Mean and standard deviation of every column of (N, J), the latter as :func:`column_variances` has it, and large enough for the farthest value.

    A column of one value has width 1. NaN is missing.
    """
    x = x.double()
    centre = x.nanmean(0)
    farthest = (x - centre).abs().nan_to_num(0.0).amax(0)
    width = torch.maximum(column_variances(x).sqrt(), farthest / FARTHEST)
    width = torch.where(farthest > 0, width, 1.0)
    return tuple(zip(centre.tolist(), width.tolist(), strict=True))
