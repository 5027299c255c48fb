"""Sequences of states and actions from a csv file that need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ppl_models.data.sequences import COLUMNS, as_trajectories
from ppl_models.parts.validation import check_size

if TYPE_CHECKING:
    import pandas as pd


def stream_sequences(
    path: str | Path, num_states: int, num_actions: int, num_rows: int = 1_000_000
) -> Iterator[Tensor]:
    """Packed sequences (B, T, 2), batch after batch; no more than about ``num_rows`` rows and one
    sequence are held.

    For :func:`inference.structures.options.moments.count_moments`, which takes them in one
    pass. A sequence longer than memory is one file that must be cut.

    Args:
        path: csv with columns sequence, time, state, action, one row a step; the rows of a sequence
            stand together.
        num_states, num_actions: the ranges start at 0.
        num_rows: rows read at a time.

    Raises:
        ValueError: for no such file, other columns, a sequence whose rows do not stand together, or
            as :func:`ppl_models.data.sequences.as_trajectories`; when the batch is asked
            for.
    """
    import pandas as pd

    check_size("stream_sequences", "num_rows", num_rows)
    if not Path(path).is_file():
        raise ValueError(f"stream_sequences: no file {str(path)!r}")
    done: set[Any] = set()
    kept: pd.DataFrame | None = None
    with pd.read_csv(path, chunksize=num_rows) as reader:
        for chunk in reader:
            if sorted(map(str, chunk.columns)) != sorted(COLUMNS):
                raise ValueError(
                    f"data: columns {', '.join(COLUMNS)} were expected, got"
                    f" {', '.join(map(str, chunk.columns))}"
                )
            table = chunk if kept is None else pd.concat([kept, chunk], ignore_index=True)
            if not len(table):
                continue
            open_rows = table["sequence"] == table["sequence"].iloc[-1]
            whole, kept = table[~open_rows], table[open_rows]
            if len(whole):
                yield _batch(whole, done, num_states, num_actions)
    if kept is None:
        raise ValueError(f"stream_sequences: {str(path)!r} holds no rows")
    yield _batch(kept, done, num_states, num_actions)


def _batch(table: pd.DataFrame, done: set[Any], num_states: int, num_actions: int) -> Tensor:
    keys = table["sequence"]
    blocks = keys[keys != keys.shift()]
    again = [key for key in blocks.tolist() if key in done] or blocks[blocks.duplicated()].tolist()
    if again:
        raise ValueError(
            f"data: the rows of a sequence must stand together; sequence {again[0]!r} comes again"
        )
    done.update(blocks.tolist())
    return as_trajectories(table, num_states, num_actions, for_fit=False)
