"""Rows in blocks, checked and sampled on the first pass, then read again and again."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from inference.base.hashing import digest_of
from inference.base.steps import RunningSum
from inference.base.streaming.generic import Look, ProgramRows
from inference.base.streaming.processes import Processes, numbers_of, with_numbers
from inference.base.streaming.row_blocks import RowBlocks, drawn_rows
from inference.base.streaming.sources import joined_rows, num_rows_in, rows_at
from inference.programs.global_state import listening
from ppl_models.data.sequences import UnvisitedWarning
from ppl_models.data.tables import checks_data, first_tensor, map_tensors

S = TypeVar("S")
Kept = tuple[np.ndarray, Any]  # numbers of rows, and the rows
Change = Callable[[Tensor], Tensor]
Refused = Callable[[Tensor], Tensor | None]
PIECE_ROWS = 8_192  # that are checked at once, for checks hold several copies
# a frame of a few rows takes a hundred times their size, and a hundred million rows come in
# thousands of pieces
JOINED_PARTS = 64


@dataclass(frozen=True, eq=False)
class CheckedRows:
    """Checked rows of a fit, one block of which is in memory at a time.

    Args:
        take: a block as the model takes it: a tensor, or what a user's program reads, one entry a
            row in each of its tensors.
        blocks: this process's.
        num_rows: of all processes together.
        like: one row, (1, ...).
        stamps: sizes and times of the files when the first pass began.
        first_row: number of this process's first row among all.
        changes: what becomes of a block behind its checks, such as units.
        known: what was worked out before.
        only: the block, where this process has no more than one, which is then read once.
        weights: how often each of all rows counts, (N,), in the precision of the rows; None for
            once.
        labels: by latent site, log p(label | value) of all rows, (N, ..., V); None for none.
        sampled: numbers of the rows of the sample.
    """

    take: Callable[[Any], Any]
    blocks: RowBlocks
    num_rows: int
    like: Any
    stamps: dict[Path, tuple[int, int]]
    first_row: int
    changes: tuple[Change, ...] = ()
    known: dict[str, str] = field(default_factory=dict)
    only: list[Any] = field(default_factory=list)
    weights: Tensor | None = None
    labels: dict[str, Tensor] | None = None
    sampled: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def processes(self) -> Processes:
        """Processes that share the rows."""
        return self.blocks.processes

    def __iter__(self) -> Iterator[Any]:
        """Iterate over this process's blocks.

        Raises:
            ValueError: for files that are no longer what they were.
        """
        _refuse_changed(self.stamps)
        if len(self.blocks) <= self.blocks.block_rows:
            if not self.only:
                self.only.extend(self._taken(block) for block in self.blocks)
            yield from self.only
        else:
            for block in self.blocks:
                taken = [self._taken(block)]
                del block  # held by nobody here while the next one is read
                yield taken.pop()
                give_back()
        _refuse_changed(self.stamps)

    def labels_at(self, place: slice | Tensor, data: Any) -> dict[str, Tensor]:
        """Labels of a block, its rows among all; steps of sequences as many as the block has."""
        like = first_tensor(data)
        out = {site: table[place] for site, table in (self.labels or {}).items()}
        return {
            site: table[:, : like.shape[1]] if like.dim() == table.dim() == 3 else table
            for site, table in out.items()
        }

    def weighted(self) -> Iterator[tuple[Any, Tensor | None]]:
        """Iterate over this process's blocks with the weights of their rows, (n,)."""
        first = self.first_row
        for data in self:
            last = first + len(first_tensor(data))
            yield data, None if self.weights is None else self.weights[first:last]
            del data  # before the next block is read
            first = last

    def _taken(self, block: Any) -> Any:
        data = self.take(block)
        for change in self.changes:
            data = change(data)
        return data

    def changed(self, change: Change) -> CheckedRows:
        """The same rows in other units.

        Args:
            change: of any rows (n, ...), row by row.
        """
        return replace(self, changes=(*self.changes, change), like=change(self.like), only=[])

    def summed(self, of_rows: Callable[[Any, Tensor | None], S]) -> S:
        """Sum a function of rows, a tensor, dict or record, over all rows of all processes.

        One message goes around. An error in one process is raised in all of them.

        Args:
            of_rows: of some rows, (n, ...), and how often they count, (n,), None for once.

        Raises:
            ValueError: that of the function, or for files that have changed.
        """
        if self.processes.group is None:
            return self._own_sum(of_rows)
        return self.added(self.of_one(of_rows), lambda: self._own_sum(of_rows))

    def summed_at(self, of_rows: Callable[[slice, Any], S], layout: Any = None) -> S:
        """Sum a function of rows and of their place among this process's rows.

        Args:
            of_rows: of places of rows, and the rows.
            layout: a record of the same form; None to ask the function, of the first row.
        """

        def own_sum() -> S:
            total, first = RunningSum[S](), 0
            for data in self:
                last = first + len(first_tensor(data))
                total.add(of_rows(slice(first, last), data))
                del data  # before the next block is read
                first = last
            return total.total()  # a process has rows

        if self.processes.group is None:
            return own_sum()
        return self.added(of_rows(slice(0, 1), self.like) if layout is None else layout, own_sum)

    def of_one(self, of_rows: Callable[[Any, Tensor | None], S]) -> S:
        """Apply a function to one row: errors of any row appear here, in all processes."""
        return of_rows(
            self.like, None if self.weights is None else torch.ones_like(self.weights[:1])
        )

    def added(self, layout: S, own_sum: Callable[[], S | None]) -> S:
        """Sum over processes; an error in one is raised in all.

        Args:
            layout: a record of the same form.
            own_sum: of this process; None where it has nothing to add.
        """
        error: Exception | None = None
        numbers = torch.zeros_like(numbers_of(layout))
        try:
            part = own_sum()
            numbers = numbers if part is None else numbers_of(part)
        except Exception as caught:  # noqa: BLE001 (whatever it is, all processes must end)
            error = caught
        flag = torch.full((1,), float(error is not None), dtype=torch.float64)
        message = self.processes.total(torch.cat([flag.to(numbers.device), numbers]))
        if float(message[0]) > 0:
            told = self.processes.gathered(
                None if error is None else (str(error), isinstance(error, ValueError))
            )
            is_input = all(words is None or words[1] for words in told)
            self.processes.refuse([None if words is None else words[0] for words in told], is_input)
        return with_numbers(layout, message[1:])

    def _own_sum(self, of_rows: Callable[[Any, Tensor | None], S]) -> S:
        """Sum over this process's rows."""
        total = RunningSum[S]()
        for data, weights in self.weighted():
            total.add(of_rows(data, weights))
            del data  # before the next block is read
        return total.total()  # a process has rows

    def digest(self) -> str:
        """Digest of all rows in their order, whatever the blocks and processes."""
        if "digest" not in self.known:
            total, row = 0, self.first_row
            for data in self:
                for name, values in _named(data):
                    total += _hash_of(values, row) * _salt(name)
                row += len(first_tensor(data))
            sums = self.processes.gathered(total)
            kinds = " ".join(
                f"{name}{tuple(value.shape[1:])} {value.dtype}" for name, value in _named(self.like)
            )
            self.known["digest"] = f"{sum(sums) % 2**64} {self.num_rows} {kinds}"
        return self.known["digest"]


def plain(block: Any, dtype: torch.dtype) -> Tensor:
    """Convert rows to a plain tensor, NaN where missing."""
    if isinstance(block, Tensor):
        return block.detach().to(dtype)
    kind = np.float32 if dtype == torch.float32 else np.float64
    if not hasattr(block, "iloc"):
        return torch.from_numpy(np.array(block, dtype=kind, order="C"))
    numbers = np.empty(block.shape, kind)
    for j in range(block.shape[1]):  # one by one: the frame as a whole would be held twice
        numbers[:, j] = block.iloc[:, j].to_numpy(dtype=kind, na_value=np.nan)
    return torch.from_numpy(numbers)


def _named(data: Any) -> list[tuple[str, Tensor]]:
    """Tensors of some rows, by name where they have names."""
    if isinstance(data, Tensor):
        return [("", data)]
    names = data.keys()  # columns of a program are iterated by name too
    return [(str(name), data[name]) for name in names]


def _salt(name: str) -> int:
    """Odd hash multiplier of a name, 1 for none."""
    return 2 * int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) + 1 if name else 1


def _hash_of(data: Tensor, first_row: int) -> int:
    """Hash of rows: a sum of numbers by each row's contents and place."""
    bits = np.ascontiguousarray(data.detach().cpu().double().numpy().reshape(len(data), -1)).view(
        np.uint64
    )
    with np.errstate(over="ignore"):
        factors = _mixed(np.arange(1, bits.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
        rows = _mixed((_mixed(bits) * factors).sum(1, dtype=np.uint64))
        places = _mixed(np.arange(first_row, first_row + len(data), dtype=np.uint64)) | np.uint64(1)
        return int((rows * places).sum(dtype=np.uint64))


def _mixed(x: np.ndarray) -> np.ndarray:
    """SplitMix finaliser (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cast("np.ndarray", x ^ (x >> np.uint64(31)))


# ---------------------------------------------------------------- files


def _stamps_of(files: tuple[Path, ...]) -> dict[Path, tuple[int, int]]:
    stamps = {}
    for path in files:
        try:
            state = path.stat()
        except OSError as error:
            raise ValueError(
                f"data: the file {path} cannot be read: {error.strerror or error}"
            ) from error
        stamps[path] = (state.st_size, state.st_mtime_ns)
    return stamps


def _refuse_changed(stamps: dict[Path, tuple[int, int]]) -> None:
    for path, now in _stamps_of(tuple(stamps)).items():
        if now != stamps[path]:
            raise ValueError(
                f"data: the file {path} changed while it was read: fit again once nothing writes to"
                " it, or fit a copy of it"
            )


# ---------------------------------------------------------------- the first pass


@dataclass
class _Scan:
    """First pass over one process's rows: the sample, and extremes of every column.

    Args:
        drawn: of every block, numbers of the rows drawn, and the rows as they came.
        lowest, highest: by column, the value (the highest with the other sign) and the number of
            its first row.
        extremes: these rows, by their numbers; gap: the first row with a missing entry.
        is_plain: whether the checks left all numbers as they stand; names: of the items.
        error: what the model refuses; None for nothing.
    """

    drawn: list[Kept] = field(default_factory=list)
    lowest: tuple[np.ndarray, np.ndarray] | None = None
    highest: tuple[np.ndarray, np.ndarray] | None = None
    extremes: dict[int, Any] = field(default_factory=dict)
    gap: Kept | None = None
    is_plain: bool = True
    names: tuple[str, ...] = ()
    error: str | None = None

    def take_in(self, block: Any, data: Tensor, first: int, picked: np.ndarray) -> None:
        """Take a block whose first row is number ``first``; ``picked`` are rows to keep."""
        self.draw(block, first, len(data), picked)
        if self.gap is None and bool((missing := data.isnan().flatten(1).any(1)).any()):
            row = int(missing.long().argmax())
            self.gap = np.array([first + row]), rows_at(block, [row])
        table = data.reshape(len(data), -1, data.shape[-1])
        self.lowest = self._extreme(block, table, first, self.lowest, 1.0)
        self.highest = self._extreme(block, table, first, self.highest, -1.0)
        wanted = {*self.lowest[1].tolist(), *self.highest[1].tolist()}
        self.extremes = {row: value for row, value in self.extremes.items() if row in wanted}

    def draw(self, block: Any, first: int, num_rows: int, picked: np.ndarray) -> None:
        """Keep the rows of a block that belong to the sample."""
        places = picked[(picked >= first) & (picked < first + num_rows)]
        if len(places):
            self.drawn.append((places, rows_at(block, places - first)))
        if len(self.drawn) == JOINED_PARTS:
            numbers, rows = zip(*self.drawn, strict=True)
            self.drawn = [(np.concatenate(numbers), joined_rows(rows))]

    def _extreme(
        self,
        block: Any,
        table: Tensor,
        first: int,
        extremes: tuple[np.ndarray, np.ndarray] | None,
        sign: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        signed = torch.where(table.isfinite(), sign * table, torch.inf).amin(1).double()  # (n, J)
        lows = signed.min(0)
        value, row = lows.values.numpy(), lows.indices.numpy() + first
        row = np.where(np.isfinite(value), row, -1)
        if extremes is not None:
            lower = value < extremes[0]
            value, row = np.where(lower, value, extremes[0]), np.where(lower, row, extremes[1])
        for new in {int(r) for r in row if first <= r < first + len(table)} - self.extremes.keys():
            self.extremes[new] = rows_at(block, [new - first])
        return value, row


def check_rows(
    model: Any,
    blocks: RowBlocks,
    seed: int,
    look: Look | None = None,
    weights: np.ndarray | None = None,
    refused: Refused | None = None,
) -> tuple[CheckedRows, Any, tuple[str, ...]]:
    """Read all rows once, and check them by the model's rules or by running the program.

    Args:
        model: the program; blocks: this process's rows; seed: of the sample.
        look: what else to refuse of a user's program, when it is first run; None for nothing.
        weights: how often each of all rows counts, (N,), checked before; None for once.
        refused: which of some rows (n, J) a fit cannot take, (n,), though the model may draw them;
            None for none.

    Returns:
        The rows; a sample of them in memory, (n, ...); the names of the items. The sample is drawn
        by the number of a row among all, so that it is the same however many processes there are,
        and has, where a model checks its rows itself, beside the drawn rows the lowest and highest
        entry of every column and a row with a missing entry, where there are some.
    """
    processes = blocks.processes
    if processes.group is not None:
        processes.agree("the model", digest_of(model, "the program"))
        processes.agree("the seed", str(seed))
    kinds = processes.gathered((len(blocks), blocks.source.kind()))
    processes.refuse(
        [
            (
                None
                if length
                else (
                    "RowBlocks: at least one row was expected, got none: give every process rows,"
                    " or start fewer"
                )
            )
            for length, _ in kinds
        ]
    )
    if len({kind for _, kind in kinds}) > 1:
        rank = next(r for r, (_, kind) in enumerate(kinds) if kind != kinds[0][1])
        raise ValueError(
            "RowBlocks: rows of one kind were expected in all processes, but those of process 0"
            f" are {kinds[0][1]}, those of process {rank} {kinds[rank][1]}"
        )
    lengths = [length for length, _ in kinds]
    num_rows, first_row = sum(lengths), sum(lengths[: processes.rank])
    picked, stamps = drawn_rows(num_rows, blocks.sample_rows, seed), {}
    scan, program_rows = _Scan(), None if checks_data(model) else ProgramRows(model, look)
    try:
        stamps = _stamps_of(blocks.source.files())
        _read(
            model if program_rows is None else program_rows,
            blocks,
            first_row,
            picked,
            scan,
            refused,
        )
        _refuse_changed(stamps)
    except Exception as error:
        if processes.group is None:
            raise
        scan.error = str(error)  # all processes must end
    told = processes.gathered(scan)
    processes.refuse([scan_p.error for scan_p in told])
    if program_rows is not None:
        program_rows.agree(processes)
    numbers, names, sampled = _assembled(
        model if program_rows is None else program_rows, told, num_rows
    )
    row_weights = None if weights is None else torch.tensor(weights).to(first_tensor(numbers))

    def take(block: Any) -> Any:
        if program_rows is not None:
            return program_rows.taken(block)
        if scan.is_plain:
            return plain(block, numbers.dtype)
        return model.check_data(block, for_fit=False)[0]

    rows = CheckedRows(
        take,
        blocks,
        num_rows,
        map_tensors(lambda x: x[:1], numbers),
        stamps,
        first_row,
        weights=row_weights,
        sampled=sampled,
    )
    return rows, numbers, names


def _read(
    model: Any,
    blocks: RowBlocks,
    first_row: int,
    picked: np.ndarray,
    scan: _Scan,
    refused: Refused | None,
) -> None:
    first = first_row
    for block in blocks.source.parts(blocks.begin, blocks.end, min(blocks.block_rows, PIECE_ROWS)):
        size = num_rows_in(block)
        try:
            data, names = model.check_data(block, for_fit=False)
        except ValueError as error:
            words = (
                f" (rows {first:,} to {first + size:,} of the data, counted from 0 there)"
                if first
                else ""
            )
            raise ValueError(f"{error}{words}") from error
        scan.names = names
        if isinstance(model, ProgramRows):
            scan.draw(block, first, size, picked)
            first += size
            continue
        if not isinstance(data, Tensor) or len(data) != size:
            raise ValueError(
                f"RowBlocks: one row of what {type(model).__name__} is fitted to was expected for"
                f" each line, and {size:,} lines gave {len(data):,}: sequences come in blocks as an"
                " array (sequences, steps, items); steps in a table are taken in memory"
            )
        if data.dim() == 2 and bool((empty := data.isnan().all(1)).any()):
            raise ValueError(
                f"data: row {first + int(empty.long().argmax()):,} has no observed entry; drop it"
            )
        if refused is not None and (wrong := refused(data)) is not None and bool(wrong.any()):
            raise ValueError(
                f"data: row {first + int(wrong.long().argmax()):,} holds no counts at all; drop it"
            )
        scan.is_plain = scan.is_plain and _is_plain(block, data)
        scan.take_in(block, data, first, picked)
        first += size
        del block, data
        give_back()


def _is_plain(block: Any, data: Tensor) -> bool:
    """Tell whether the checks left a block's numbers as they are."""
    if not data.is_floating_point():
        return False
    try:
        array = plain(block, data.dtype)
    except (TypeError, ValueError):
        return False
    return array.shape == data.shape and torch.allclose(
        array, data, rtol=0.0, atol=0.0, equal_nan=True
    )


def _assembled(
    model: Any, told: list[_Scan], num_rows: int
) -> tuple[Any, tuple[str, ...], np.ndarray]:
    """Sample of all processes, checked by the model's whole rules, and its row numbers."""
    kept = [part for scan in told for part in scan.drawn]
    for sign in ("lowest", "highest") if told[0].lowest is not None else ():
        values, rows = (
            np.stack(part) for part in zip(*(getattr(scan, sign) for scan in told), strict=True)
        )
        # of the first process that has it
        best = np.take_along_axis(rows, values.argmin(0)[None], 0)[0]
        kept += [
            (np.array([row]), scan.extremes[row])
            for scan in told
            for row in set(best.tolist())
            if row in scan.extremes
        ]
    kept += [scan.gap for scan in told if scan.gap is not None][:1]
    sampled, places = np.unique(np.concatenate([numbers for numbers, _ in kept]), return_index=True)
    with listening() as heard:
        data, names = model.check_data(
            rows_at(joined_rows([rows for _, rows in kept]), places), for_fit=True
        )
    for warning in heard:
        # what is not in a sample may be elsewhere
        if len(places) == num_rows or not issubclass(warning.category, UnvisitedWarning):
            warnings.warn(warning.message, warning.category, stacklevel=2)
    return (
        map_tensors(Tensor.contiguous, data),
        tuple(names),
        sampled,
    )  # in one order of memory, so that sums have the same bits whatever the form of the rows


def give_back() -> None:
    """Return freed memory to the operating system (malloc_trim, Arrow's pool)."""
    trim = _trim()
    if trim is not None:
        trim(0)
    arrow: Any = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()


@functools.cache
def _trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
