"""Units of real columns: location and scale, in which priors and engines work."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.validation import is_number

AT_ONCE = 2**20  # numbers
NORMAL_WIDTH = 1.349  # between the quartiles, in standard deviations
FARTHEST = (
    500.0  # widths from its centre that a value may lie: half of what means of components may
)
OWN_BOUND = (
    ", or leave out bound=, which is in units of the data: means then have all the room they need"
)

Units = tuple[tuple[float, float], ...]  # centre and width, item by item


def check_units(owner: str, units: Any, num_items: int) -> None:
    """Check that units are None, or a centre and a positive width for every item."""
    if units is None:
        return
    pairs = units if isinstance(units, tuple) else ()
    if len(pairs) != num_items or not all(
        isinstance(pair, tuple) and len(pair) == 2 and all(map(is_number, pair)) and pair[1] > 0
        for pair in pairs
    ):
        raise ValueError(
            f"{owner}: units must be a centre and a positive width for each of the {num_items}"
            f" items, or None, got {units!r}"
        )


def column_means(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """Weighted mean of every column of (N, J), NaN missing."""
    if weights is None:
        return x.nanmean(0)
    seen = (~x.isnan()) * weights.unsqueeze(-1)
    return (x.nan_to_num(0.0) * seen).sum(0) / seen.sum(0)


def column_variances(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """Column variances (J,), robust to outliers; NaN is missing.

    The variance, or that of a normal distribution with the column's quartiles where this is smaller
    and not zero.
    """
    parts = _columns_at_once(x)
    if len(parts) == 1:
        return _variances(x, weights)
    return torch.cat([_variances(part, weights) for part in parts])


def _columns_at_once(x: Tensor) -> tuple[Tensor, ...]:
    """Slices of few columns of a large table, to bound the memory of copies."""
    return x.split(max(1, AT_ONCE // max(1, len(x))), -1)


def _variances(x: Tensor, weights: Tensor | None) -> Tensor:
    variance = column_means((x - column_means(x, weights)).square(), weights)
    shares = (0.25, 0.75)
    if weights is None:
        number = (~x.isnan()).sum(0).to(x)
        places = [(share * (number - 1)).floor().clamp(min=0).long() for share in shares]
        low, high = _of_ranks(x, torch.stack(places))
    else:
        ordered, order = x.sort(0)
        up_to = (weights[order] * ~ordered.isnan()).cumsum(0)  # rows up to each, (N, J)
        below = [(share * (up_to[-1] - 1)).floor().clamp(min=0) for share in shares]
        places = [(up_to <= number).sum(0).clamp(max=len(x) - 1) for number in below]
        low, high = (ordered.gather(0, place.unsqueeze(0))[0] for place in places)
    middle = ((high - low) / NORMAL_WIDTH).square()
    return torch.where(middle > 0, torch.minimum(middle, variance), variance)


def _of_ranks(x: Tensor, places: Tensor) -> Tensor:
    """Values (Q, J) of given ranks (Q, J) in each column of (N, J), from 0, NaN last."""
    if x.device.type != "cpu":
        return x.sort(0).values.gather(0, places)
    columns = zip(x.mT.contiguous().numpy(), places.mT.numpy(), strict=True)
    found = [np.partition(column, own)[own] for column, own in columns]  # no full sort
    return torch.from_numpy(np.stack(found, 1))


def column_units(x: Tensor, weights: Tensor | None = None) -> Units:
    """Mean and standard deviation of every column of (N, J).

    The latter as :func:`column_variances` has it, and large enough for the farthest value.

    A column of one value has width 1. NaN is missing.
    """
    return tuple(
        unit
        for part in _columns_at_once(x)
        for unit in _units(part.double(), None if weights is None else weights.double())
    )


def _units(x: Tensor, weights: Tensor | None) -> Units:
    x = x if weights is None else x.masked_fill((weights == 0).unsqueeze(-1), torch.nan)
    centre = column_means(x, weights)
    farthest = (x - centre).abs().nan_to_num(0.0).amax(0)
    width = torch.maximum(column_variances(x, weights).sqrt(), farthest / FARTHEST)
    width = torch.where(farthest > 0, width, 1.0)
    return tuple(zip(centre.tolist(), width.tolist(), strict=True))
