"""Alternating updates of factorizations: rows' own factors given the shared ones, and the shared
ones from sums over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from inference.base.steps import RunningSum
from inference.base.streaming.rows import CheckedRows

Sums = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Alternating:
    """Updates of activities z (R, N, K) and signatures phi (R, K, J), of rows in memory or in
    blocks.

    Where rows come in blocks, z are those of this process's rows, which stay with it, and sums over
    rows are those of all processes. A subclass says of rows in memory what their activities, sums
    and values are.

    Args:
        rows: all rows, where they come in blocks; None where they are in memory.
    """

    rows: CheckedRows | None = field(default=None, kw_only=True)

    @property
    def parts(self) -> Iterable[tuple[slice, Self]]:
        """The rows in memory, so many at a time, and their places."""
        return [(slice(None), self)]

    def on(self, data: Tensor) -> Self:
        """The same updates of other rows, in memory."""
        raise NotImplementedError

    def at(self, index: Tensor) -> Self:
        """Those of some of the rows in memory."""
        raise NotImplementedError

    def activities(self, z: Tensor, phi: Tensor) -> Tensor:
        """The update of z given phi of rows in memory, (R, N, K)."""
        raise NotImplementedError

    def pulls(self, z: Tensor, phi: Tensor) -> Sums:
        """Sums over rows in memory from which the signatures follow."""
        raise NotImplementedError

    def moved(self, z: Tensor, phi: Tensor, pulls: Sums) -> tuple[Tensor, Tensor]:
        """Signatures from the sums over all rows, and the activities in their scale."""
        raise NotImplementedError

    def values(self, z: Tensor, phi: Tensor) -> Tensor:
        """The objective of each row in memory up to a constant, (R, N)."""
        raise NotImplementedError

    def log_prior(self, phi: Tensor) -> Tensor:
        """Of the signatures, up to a constant, (R,)."""
        return phi.new_zeros(len(phi))

    def summed(self, of_part: Callable[[slice, Self], Sums], like: Sums | None = None) -> Sums:
        """What a function makes of places of rows and their updates, added up over all rows;
        ``like`` as :meth:`CheckedRows.summed_at` has it.
        """
        if self.rows is not None:
            return self.rows.summed_at(lambda place, data: of_part(place, self.on(data)), like)
        total = RunningSum[Sums]()
        for place, part in self.parts:
            total.add(of_part(place, part))
        return total.total()

    def total(self, value: Tensor) -> Tensor:
        """What processes have of their rows' sum, added up."""
        return value if self.rows is None else self.rows.processes.total(value.double()).to(value)

    def sweep(self, z: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        """Activities, then signatures, in one pass over the rows."""
        new = torch.empty_like(z)

        def of_part(place: slice, part: Self) -> Sums:
            new[:, place] = own = part.activities(z[:, place], phi)
            return part.pulls(own, phi)

        z, phi = self.moved(new, phi, self.summed(of_part))
        return z, (
            phi
            if self.rows is None
            else self.rows.processes.params_of_first({"signatures": phi})["signatures"]
        )

    def varying(self, z: Tensor, phi: Tensor) -> Tensor:
        """The objective up to a constant, (R,)."""
        found = self.summed(lambda place, part: {"value": part.values(z[:, place], phi).sum(-1)})
        return found["value"] + self.log_prior(phi)
