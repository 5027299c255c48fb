"""Answers about rows that are too many for memory, written as they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


def num_rows_of(data: Any) -> int:
    """How many rows ``data`` are.

    Raises:
        ValueError: for what has no length.
    """
    if hasattr(data, "count_rows"):
        return int(data.count_rows())
    if not hasattr(data, "__len__"):
        raise ValueError(f"out: rows with a length were expected, got {type(data).__name__}")
    return len(data)


class Written:
    """Tables with one line a row, each a ``.npy`` file of a folder, filled block by block.

    Args:
        folder: made if it is not there; files of the same names in it are replaced.
        num_rows: of each table.
    """

    def __init__(self, folder: Path, num_rows: int) -> None:
        self.folder, self.num_rows = folder, num_rows
        self._arrays: dict[str, np.memmap] = {}
        self._done = 0

    def take_in(self, found: dict[str, Tensor]) -> None:
        """The next rows, by table.

        Raises:
            ValueError: for an answer that is not one line a row, or no answer.
        """
        if not found:
            raise ValueError(
                "out: a model whose rows have latents to write was expected, and this one has none;"
                " what a fit estimates for each of its rows is fit.local"
            )
        for name, value in found.items():
            array = value.detach().cpu().numpy()
            if name not in self._arrays:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._arrays[name] = np.lib.format.open_memmap(
                    self.folder / f"{name}.npy",
                    "w+",
                    array.dtype,
                    (self.num_rows, *array.shape[1:]),
                )
            whole = self._arrays[name]
            if (
                array.ndim == 0
                or array.shape[1:] != whole.shape[1:]
                or self._done + len(array) > self.num_rows
            ):
                raise ValueError(
                    f"out: one line a row of shape {whole.shape[1:]} was expected of {name!r}, got"
                    f" shape {array.shape}"
                )
            whole[self._done : self._done + len(array)] = array
        self._done += len(next(iter(found.values())))

    def tensors(self) -> dict[str, Tensor]:
        """The tables, as maps of their files."""
        for array in self._arrays.values():
            array.flush()
        return {name: torch.from_numpy(np.asarray(array)) for name, array in self._arrays.items()}
