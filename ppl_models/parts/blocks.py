"""Items of several response families side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ppl_models.parts.responses import ResponseFamily


@dataclass(frozen=True)
class Blocks(ResponseFamily):
    """Blocks of items of several families, side by side.

    As in ``Blocks((Bernoulli(), 29), (LogNormal(), 29))``.

    Args:
        *parts: pairs (family, number of consecutive columns), from left to right.

    Raises:
        ValueError: if a part is not such a pair or a number of columns is not positive.
    """

    parts: tuple[tuple[ResponseFamily, int], ...] = field(default=())

    def __init__(self, *parts: tuple[ResponseFamily, int] | Sequence) -> None:
        for part in parts:
            if (
                not isinstance(part, tuple | list)
                or len(part) != 2
                or not isinstance(part[0], ResponseFamily)
                or isinstance(part[0], Blocks)
            ):
                raise ValueError(
                    f"Blocks: each part is a pair (elementary family, num_columns), got {part!r}"
                )
            if (
                not isinstance(part[1], int | np.integer)
                or isinstance(part[1], bool)
                or part[1] < 1
            ):
                raise ValueError(f"Blocks: num_columns must be a positive integer, got {part[1]!r}")
        if not parts:
            raise ValueError("Blocks: at least one (family, num_columns) pair is needed, got none")
        pairs = tuple((family, int(columns)) for family, columns in parts)
        object.__setattr__(self, "parts", pairs)

    @property
    def bound(self) -> float:
        return max(family.bound for family, _ in self.parts)

    def blocks(self, num_items: int) -> list[tuple[ResponseFamily, slice, slice]]:
        out, start, dispersed = [], 0, 0
        for family, columns in self.parts:
            extra = family.num_dispersed(columns)
            out.append((family, slice(start, start + columns), slice(dispersed, dispersed + extra)))
            start, dispersed = start + columns, dispersed + extra
        if start != num_items:
            raise ValueError(
                f"Blocks: the parts hold {start} columns, but there are num_items = {num_items}"
            )
        return out

    def num_dispersed(self, num_items: int) -> int:
        return sum(family.num_dispersed(columns) for family, columns in self.parts)

    @property
    def own_items(self) -> int | None:
        return sum(columns for _, columns in self.parts)

    def num_predictors(self, num_items: int) -> int:
        return sum(family.num_predictors(columns) for family, columns in self.parts)

    def num_items(self, num_predictors: int) -> int:
        return sum(columns for _, columns in self.parts)  # whatever they are predicted by

    def num_categories_of(self, num_items: int) -> tuple[int, ...]:
        return tuple(size for f, columns in self.parts for size in f.num_categories_of(columns))

    def num_thresholds(self, num_items: int) -> int:
        return sum(family.num_thresholds(columns) for family, columns in self.parts)

    def num_linear(self, num_items: int) -> int:
        return sum(family.num_linear(columns) for family, columns in self.parts)

    def whole(self, linear: Tensor, thresholds: Tensor | None) -> Tensor:
        out, row, gap = [], 0, 0
        for family, columns in self.parts:
            rows, gaps = family.num_linear(columns), family.num_thresholds(columns)
            out.append(
                family.whole(
                    linear[..., row : row + rows],
                    None if thresholds is None else thresholds[..., gap : gap + gaps],
                )
            )
            row, gap = row + rows, gap + gaps
        return torch.cat(out, -1)

    def linked(self) -> Blocks:
        return Blocks(*((family.linked(), columns) for family, columns in self.parts))

    def category_names(self, num_items: int) -> dict[int, tuple[str, ...]]:
        return {
            columns.start + j: names
            for family, columns, _ in self.blocks(num_items)
            for j, names in family.category_names(columns.stop - columns.start).items()
        }

    def spread(self, values: Tensor) -> Tensor:
        return self._map("spread", values)

    @property
    def is_canonical(self) -> bool:
        return all(family.is_canonical for family, _ in self.parts)

    def _along(
        self, eta: Tensor, dispersion: Tensor | None
    ) -> list[tuple[ResponseFamily, Tensor, Tensor | None]]:
        """Families with their predictors and their parts of the dispersion."""
        num_items = self.num_items(eta.shape[-1])
        parts = zip(self.blocks(num_items), self.predictors(num_items), strict=True)
        return [(f, eta[..., own], _part(dispersion, part)) for (f, _, part), own in parts]

    def natural(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        return torch.cat([f.natural(x, part) for f, x, part in self._along(eta, dispersion)], -1)

    def partition(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        return torch.cat([f.partition(x, part) for f, x, part in self._along(eta, dispersion)], -1)

    def expansion(
        self, eta: Tensor, statistic: Tensor, dispersion: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        parts = [
            f.expansion(eta[..., c], statistic[..., c], _part(dispersion, d))
            for f, c, d in self.blocks(eta.shape[-1])
        ]
        residuals, weights = zip(*parts, strict=True)
        return torch.cat(residuals, -1), torch.cat(weights, -1)

    def _map(self, method: str, x: Tensor) -> Tensor:
        parts = self.blocks(x.shape[-1])
        return torch.cat([getattr(f, method)(x[..., columns]) for f, columns, _ in parts], -1)

    def statistic(self, x: Tensor) -> Tensor:
        return self._map("statistic", x)

    def log_partition(self, eta: Tensor) -> Tensor:
        return torch.cat([f.log_partition(x) for f, x, _ in self._along(eta, None)], -1)

    def mean(self, eta: Tensor) -> Tensor:
        return torch.cat([family.mean(own) for family, own, _ in self._along(eta, None)], -1)

    def curvature(self, eta: Tensor) -> Tensor:
        return self._map("curvature", eta)

    def expected_response(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        parts = self._along(eta, dispersion)
        return torch.cat([family.expected_response(x, part) for family, x, part in parts], -1)

    def scale(self, dispersion: Tensor | None, num_items: int) -> Tensor | None:
        if dispersion is None or not dispersion.shape[-1]:
            return None
        scales = []
        for family, columns, part in self.blocks(num_items):
            scale = family.scale(_part(dispersion, part), columns.stop - columns.start)
            ones = dispersion.new_ones(*dispersion.shape[:-1], columns.stop - columns.start)
            scales.append(ones if scale is None else scale)
        return torch.cat(scales, -1)

    def base_measure(self, x: Tensor, mask: Tensor, dispersion: Tensor | None) -> Tensor:
        total = x.new_zeros(())
        for family, items, part in self.blocks(x.shape[-1]):
            own = _part(dispersion, part)
            total = total + family.base_measure(x[..., items], mask[..., items], own)
        return total

    def draw(self, eta: Tensor, dispersion: Tensor | None) -> Tensor:
        return torch.cat([f.draw(own, part) for f, own, part in self._along(eta, dispersion)], -1)

    def linearise(self, mean: Tensor, epsilon: float) -> Tensor:
        return torch.cat([f.linearise(x, epsilon) for f, x, _ in self._along(mean, None)], -1)


def _part(dispersion: Tensor | None, part: slice) -> Tensor | None:
    return None if dispersion is None or part.stop == part.start else dispersion[..., part]
