"""Sources of rows, and what is said of those that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import torch
from torch.utils.data import DataLoader

from inference import RowBlocks

ROWS = np.arange(44, dtype=np.int16).reshape(11, 4)


class Sliceable:
    """Rows behind a length and slices, such as a torch ``Dataset`` has."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]


def parquet(folder: Path, rows: np.ndarray = ROWS, row_group_size: int = 3) -> Path:
    path = folder / "rows.parquet"
    pyarrow.parquet.write_table(
        pa.table({name: rows[:, j] for j, name in enumerate("abcd")}),
        path,
        row_group_size=row_group_size,
    )
    return path


def mapped(folder: Path, rows: np.ndarray = ROWS) -> Path:
    np.save(folder / "rows.npy", rows)
    return folder / "rows.npy"


def every_form(folder: Path) -> dict[str, Any]:
    frame = pd.DataFrame(ROWS, columns=list("abcd"))
    file = parquet(folder)
    return {
        "npy": mapped(folder),
        "parquet": file,
        "dataset": pyarrow.dataset.dataset(file),
        "folder": parquet_folder(folder),
        "frame": frame,
        "array": ROWS,
        "tensor": torch.from_numpy(ROWS),
        "sliceable": Sliceable(ROWS),
        "part of a map": np.load(mapped(folder), mmap_mode="r")[:],
    }


def parquet_folder(folder: Path) -> Path:
    out = folder / "several"
    out.mkdir()
    parquet(out, ROWS[:5]).rename(out / "1.parquet")
    parquet(out, ROWS[5:]).rename(out / "2.parquet")
    return out


@pytest.mark.parametrize("block_rows", [1, 4, 11, 100])
def test_every_form_gives_the_same_blocks(tmp_path: Path, block_rows: int) -> None:
    for form, source in every_form(tmp_path).items():
        blocks = RowBlocks.of(source, block_rows)
        parts = [np.asarray(block) for block in blocks]
        assert [len(part) for part in parts] == [
            min(block_rows, 11 - i) for i in range(0, 11, block_rows)
        ], form
        assert np.array_equal(np.concatenate(parts), ROWS), form
        assert len(blocks) == 11, form


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    for source in (parquet(tmp_path), pd.DataFrame(ROWS, columns=list("abcd"))):
        (block,) = RowBlocks.of(source, columns=["d", "b"])
        assert list(block.columns) == ["d", "b"]
        assert np.array_equal(block.to_numpy(), ROWS[:, [3, 1]])
    with pytest.raises(ValueError, match="columns \\['e'\\] are not in the data"):
        RowBlocks.of(parquet(tmp_path), columns=["a", "e"])
    (block,) = RowBlocks.of(mapped(tmp_path), columns=["3", "1"])
    assert list(block.columns) == ["3", "1"]
    assert np.array_equal(block.to_numpy(), ROWS[:, [3, 1]])
    with pytest.raises(ValueError, match="columns \\['a'\\] are not in the data"):
        RowBlocks.of(ROWS, columns=["a"])
    with pytest.raises(ValueError, match="chosen by name from a data frame"):
        RowBlocks.of(Sliceable(ROWS), columns=["a"])


def test_files_of_other_types_folders_that_are_columns_and_tables_in_memory(tmp_path: Path) -> None:
    """What is not decoded as it stands: whole numbers of two sizes, a column that is the name of a
    folder, a data set without a file, points in names.
    """
    table = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "a.b": pa.array([4, 5, 6], pa.int64())})
    for year, own in (
        (2001, table),
        (2002, table.cast(pa.schema([("a", pa.int8()), ("a.b", pa.int8())]))),
    ):
        (tmp_path / f"year={year}").mkdir()
        pyarrow.parquet.write_table(
            own, tmp_path / f"year={year}" / "rows.parquet", row_group_size=2
        )
    kept = pyarrow.dataset.dataset(tmp_path, format="parquet", partitioning="hive")
    wanted = np.array(
        [[1, 4, 2001], [2, 5, 2001], [3, 6, 2001], [1, 4, 2002], [2, 5, 2002], [3, 6, 2002]]
    )
    for source in (kept, pyarrow.dataset.dataset(kept.to_table())):
        for columns in (["a", "a.b", "year"], ["a.b", "a"], ["a"]):
            blocks = list(RowBlocks.of(source, 4, columns=columns))
            assert [list(block.columns) for block in blocks] == [columns, columns]
            places = [["a", "a.b", "year"].index(name) for name in columns]
            assert np.array_equal(
                np.concatenate([block.to_numpy() for block in blocks]), wanted[:, places]
            )


def test_an_index_of_pandas_is_no_column_and_numbers_of_any_kind_are_numbers(
    tmp_path: Path,
) -> None:
    from decimal import Decimal

    frame = pd.DataFrame(
        {
            "a": [True, None, False],
            "b": [Decimal("1.5"), Decimal("2.5"), None],
            "c": [None, None, None],
        },
        index=["x", "y", "z"],
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    (block,) = RowBlocks.of(tmp_path / "rows.parquet")
    assert list(block.columns) == ["a", "b", "c"]
    np.testing.assert_array_equal(
        block.to_numpy(dtype=float), [[1, 1.5, np.nan], [np.nan, 2.5, np.nan], [0, np.nan, np.nan]]
    )


def test_a_part_of_a_memory_map_is_that_part(tmp_path: Path) -> None:
    part = np.load(mapped(tmp_path), mmap_mode="r")[3:9]
    assert np.array_equal(np.concatenate(list(RowBlocks.of(part, 4))), ROWS[3:9])
    assert np.array_equal(np.concatenate(list(RowBlocks.of(part[:, 1:3], 4))), ROWS[3:9, 1:3])


def test_a_sample_is_drawn_in_order_and_whole_where_there_is_no_more(tmp_path: Path) -> None:
    blocks = RowBlocks.of(parquet(tmp_path), 4)
    few = blocks.sample(5, seed=1)
    assert len(few) == 5
    assert few["a"].is_monotonic_increasing
    assert set(few["a"]) <= set(ROWS[:, 0])
    assert np.array_equal(RowBlocks.of(ROWS, 4).sample(), ROWS)
    assert not np.array_equal(RowBlocks.of(ROWS, 4).sample(5, seed=2), few.to_numpy())


def test_arrays_side_by_side_come_together(tmp_path: Path) -> None:
    np.save(tmp_path / "action.npy", ROWS[:, 1:])
    blocks = RowBlocks.of(
        {"state": torch.from_numpy(ROWS), "action": tmp_path / "action.npy", "length": ROWS[:, 0]},
        4,
    )
    parts = list(blocks)
    assert len(blocks) == 11
    assert [list(part) for part in parts] == [["state", "action", "length"]] * 3
    assert np.array_equal(np.concatenate([part["action"] for part in parts]), ROWS[:, 1:])
    assert np.array_equal(np.concatenate([part["length"] for part in parts]), ROWS[:, 0])
    assert blocks.source.files() == (tmp_path / "action.npy",)
    few = blocks.sample(5, seed=1)
    assert np.array_equal(few["action"], few["state"][:, 1:].numpy())
    with pytest.raises(ValueError, match="arrays of one length, .* got lengths {'a': 11, 'b': 10}"):
        RowBlocks.of({"a": ROWS, "b": ROWS[:10]})
    with pytest.raises(ValueError, match="got list as 'a'"):
        RowBlocks.of({"a": [1, 2]})
    with pytest.raises(ValueError, match="this is a dict of arrays"):
        RowBlocks.of({"a": ROWS}, columns=["a"])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere.npy", "there is no such file"),
        (__file__, "a .npy, .parquet or .arrow file"),
        (np.arange(5), "a table"),
        (np.zeros((0, 3)), "at least one row"),
        ([[1, 2], [3, 4]], "a path, a NumPy memory map"),
        (iter(ROWS), "a path, a NumPy memory map"),
        (DataLoader(Sliceable(ROWS)), "give its dataset"),  # type: ignore[arg-type]
    ],
)
def test_other_sources_are_refused(source: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RowBlocks.of(source)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"block_rows": 0}, "block_rows must be a positive integer"),
        ({"group": "gloo"}, "group must be a process group"),
        ({"split": True}, "no group was given"),
        ({"split": 1}, "split must be True or False"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RowBlocks.of(ROWS, **settings)


def test_slices_of_other_lengths_or_kinds_are_refused() -> None:
    class Uneven(Sliceable):
        def __getitem__(self, index: slice) -> Any:
            return self.rows[index] if index.start == 0 else self.change(self.rows[index])

    short, wide, other = Uneven(ROWS), Uneven(ROWS), Uneven(ROWS)
    short.change, wide.change, other.change = (
        (lambda x: x[1:]),
        (lambda x: x[:, :2]),
        (lambda x: x.astype(float)),
    )  # type: ignore[attr-defined]
    for source, words in (
        (short, "4 rows were expected of \\[4:8\\], got 3"),
        (wide, "rows 4 to 8 are \\(2,\\)"),
        (other, "numbers of float64"),
    ):
        with pytest.raises(ValueError, match=words):
            list(RowBlocks.of(source, 4))
