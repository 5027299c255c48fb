"""Mixtures and hidden Markov models in standardised units of their real columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from inference.base.component_distributions.base import ComponentDistribution
from inference.base.structure import Problem, Standard, Structure
from inference.programs.program import Params

STANDARD = (0.0, 1.0)
AT_ONCE = 2**20  # numbers of the rows


def measured(
    model: Any, distribution: ComponentDistribution, rows: Tensor, weights: Tensor | None = None
) -> Any:
    """Set the model's units from rows (N, J) and weights (N,), where it takes any."""
    names = (
        {field.name for field in dataclasses.fields(model)}
        if dataclasses.is_dataclass(model)
        else set()
    )
    units = distribution.about.measured(rows, weights) if "units" in names else None
    return model if units is None else dataclasses.replace(model, units=units)


def standard(
    problem: Problem, distribution: ComponentDistribution, structure: Callable[[Any], Structure]
) -> Standard | None:
    """Standardise the columns of a problem; None where they have no units or a bound is given.

    Args:
        problem: whose data have the items in their last dim, NaN where missing, infinite where
            there is no row.
        distribution: of the components or states.
        structure: of another model of this kind.
    """
    units = distribution.about.item_units
    if distribution.about.bound is not None or all(unit == STANDARD for unit in units):
        return None
    centres, widths = (
        torch.tensor(part, dtype=torch.float64, device=problem.data.device)
        for part in zip(*units, strict=True)
    )
    given: Any = problem.model
    model = dataclasses.replace(given, units=(STANDARD,) * len(units))
    inner = problem.with_data(
        lambda data: (data.double() - centres).div_(widths).to(data), model, structure(model)
    )

    def outward(params: Params) -> Params:
        return _moved(distribution, params, centres, widths)

    def inward(params: Params) -> Params:
        return _moved(distribution, params, -centres / widths, 1 / widths)

    return Standard(inner, inward, outward, log_volume(problem, widths))


def log_volume(problem: Problem, widths: Tensor) -> float:
    """By how much the log-likelihood is larger where columns are divided by widths, (J,)."""

    def seen(data: Tensor, weights: Tensor | None) -> Tensor:
        """Weighted number of entries of every column, (J,)."""
        rows = data.flatten(0, -2)  # of steps, where rows are sequences
        counts = (
            data.new_ones(1).expand(len(rows))
            if weights is None
            else weights.repeat_interleave(len(rows) // len(weights))
        )
        few = max(1, AT_ONCE // rows.shape[-1])
        parts = [
            weight.double() @ part.isfinite().double()
            for part, weight in zip(rows.split(few), counts.split(few), strict=True)
        ]
        return torch.stack(parts).sum(0)

    return float((problem.summed(seen) * widths.log()).sum())


def _moved(
    distribution: ComponentDistribution, params: Params, centres: Tensor, widths: Tensor
) -> Params:
    moved = distribution.moved(
        {
            name: value.double() if value.is_floating_point() else value
            for name, value in params.items()
        },
        centres,
        widths,
    )
    return {name: value.to(params[name].dtype) for name, value in moved.items()}


def mixed_sizes(params: Params, apart: float) -> Params:
    """Move dispersions to ``apart`` times their distance from the mean over components."""
    if "dispersion" not in params:
        return params
    sizes = params["dispersion"]
    return params | {"dispersion": apart * sizes + (1 - apart) * sizes.mean(0)}
