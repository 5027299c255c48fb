"""Batches of rows for the networks: standardised, on the device, or read from a file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.classifiers.gradients import RowTerms
from inference.structures.classifiers.networks import TrainedNetworks
from ppl_models.descriptions.classifiers import ClassifierDescription
from ppl_models.networks import rows_of

MOST_RESIDENT = 2**28  # numbers that are kept on the device as a whole
BLOCK = 2**22  # numbers of rows that are fetched at a time
LOOKED_AT = 100_000  # rows of which means and standard deviations are those of all, evenly spaced


class Rows:
    """Rows of a fit, standardised, for the networks.

    Args:
        about: the model's description; data: as the model checks it.
        statistics: the scaling sites, without restarts.
        networks: which prepare them; labels: of the rows, (N,) or None.
        device, dtype: of the networks.
        most_resident: numbers kept on the device as a whole; more are fetched block by block.
    """

    def __init__(
        self,
        about: ClassifierDescription,
        data: Any,
        statistics: Params,
        networks: TrainedNetworks,
        labels: Tensor | None,
        like: Tensor,
        most_resident: int = MOST_RESIDENT,
    ) -> None:
        self.about, self.networks, self.like = about, networks, like
        self.parts = rows_of(data, about.shapes)
        self.width = sum(math.prod(shape) for shape in about.shapes)
        self.statistics = {name: value.to(like) for name, value in statistics.items()} | {
            "pseudo_weights": like
        }
        self.labels = None if labels is None else labels.to(like.device)
        self.is_resident = self.num_rows * self.width <= most_resident
        self._whole: tuple[list[Tensor], Tensor | None] | None = (
            self._standardised(slice(None)) if self.is_resident else None
        )

    @property
    def num_rows(self) -> int:
        """Number of rows, N."""
        return len(self.parts[0])

    @property
    def block_rows(self) -> int:
        """Number of rows fetched at a time."""
        return max(1, BLOCK // self.width)

    def _standardised(self, index: Tensor | slice) -> tuple[list[Tensor], Tensor | None]:
        inputs, seen = self.about.standardised(
            [x[index].to(self.like.device) for x in self.parts], self.statistics
        )
        return inputs, None if seen is None else seen.to(self.like)

    def seen(self, index: Tensor) -> Tensor:
        """Presence of variates in some rows, 1 or 0, (V, n)."""
        terms = self.fetch(index)[1]
        whole = torch.ones(
            len(self.parts), len(index), dtype=self.like.dtype, device=self.like.device
        )
        return whole if terms.seen is None else terms.seen

    def fetch(self, index: Tensor) -> tuple[Any, RowTerms]:
        """Fetch some rows, prepared, with their terms besides the networks' outputs.

        Args:
            index: (n,), on the CPU.
        """
        labels = None if self.labels is None else self.labels[index.to(self.like.device)]
        if self._whole is None:
            order = index.argsort()  # a file is read from its beginning to its end
            back = order.argsort()
            inputs, seen = self._standardised(index[order])
            back = back.to(self.like.device)
            inputs, seen = [x[back] for x in inputs], None if seen is None else seen[:, back]
        else:
            place = index.to(self.like.device)
            inputs = [x[place] for x in self._whole[0]]
            seen = None if self._whole[1] is None else self._whole[1][:, place]
        return self.networks.prepare(inputs), RowTerms(seen, labels)

    def batches(self, index: Tensor, size: int) -> Iterator[tuple[Any, RowTerms, slice]]:
        """Iterate over batches of the rows of ``index``, with their places in it."""
        step = max(size, self.block_rows // size * size)
        for begin in range(0, len(index), step):
            block = index[begin : begin + step]
            prepared, terms = self.fetch(block)
            if len(block) <= size:
                yield prepared, terms, slice(begin, begin + len(block))
                continue
            for first in range(0, len(block), size):
                last = min(first + size, len(block))
                yield (
                    self.networks.some(prepared, first, last),
                    _some(terms, first, last),
                    slice(begin + first, begin + last),
                )


def _some(terms: RowTerms, begin: int, end: int) -> RowTerms:
    if terms.seen is None and terms.labels is None:
        return terms
    return RowTerms(
        None if terms.seen is None else terms.seen[:, begin:end],
        None if terms.labels is None else terms.labels[begin:end],
    )


def input_statistics(about: ClassifierDescription, data: Any, like: Tensor) -> Params:
    """Means and standard deviations that standardise the columns.

    Of each column; of an image (and of all variates of a shared network) one for all its entries; 0
    and 1 for networks that take rows as they are.

    Of more than 100,000 rows, of so many evenly spaced ones.

    ``about``: the model's description; ``data``: as the model checks it; ``like``: for dtype and
    device.
    """
    centres, scales = [], []
    parts = rows_of(data, about.shapes)
    step = max(1, -(-len(parts[0]) // LOOKED_AT))
    looked = {v: parts[v][::step].double() for v, scaled in enumerate(about.is_scaled) if scaled}
    for v, x in looked.items():
        size = math.prod(about.shapes[v])
        if about.is_shared or len(about.shapes[v]) > 1:
            of = torch.cat([y.flatten() for y in looked.values()]) if about.is_shared else x
            known = of[~of.isnan()]
            centre, spread = known.mean().expand(size), known.std(correction=0).expand(size)
        else:
            centre = x.nanmean(0)
            spread = (x - centre).square().nanmean(0).sqrt()
        centres.append(centre.nan_to_num())
        scales.append(torch.where(spread > 0, spread, torch.ones_like(spread)).nan_to_num(nan=1.0))
    if not looked:
        return {}
    return dict(
        zip(
            about.scaling_sites,
            (torch.cat(centres).to(like), torch.cat(scales).to(like)),
            strict=True,
        )
    )
