"""``ppl-models predict``: what a fitted folder says of new rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inference.base.structure import column_levels
from inference.cli.app import (
    BlockRows,
    Table,
    Verbose,
    app,
    names_of,
    one_line_errors,
    read_csv,
    read_frame,
    read_mixed,
    warn,
    write_rows,
)
from ppl_models.parts.repr import counted

if TYPE_CHECKING:
    import pandas as pd

    from inference.base.streaming.row_blocks import RowBlocks
    from inference.fitting.result import Fit


TEXT = {".csv": ",", ".tsv": "\t"}


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that fit or demo wrote.")],
    data: Table,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The csv file to write.")],
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help=(
                "Columns of a csv or tsv file to copy beside the answers, such as the names of the"
                " rows."
            ),
        ),
    ] = None,
    block_rows: BlockRows = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it is there.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Say of each new row what a fit makes of it: the probabilities of its group or its latents,
    the most probable ones, and its log-likelihood.

    The columns of the fit are found by their names, in whatever order they stand; other columns are
    left alone.
    """
    with one_line_errors(None, verbose):
        from inference.base.checkpoint import usable_path
        from inference.programs.global_state import listening
        from inference.report.results_folder import read_results

        file = usable_path("--out", out)
        if file.exists() and not overwrite:
            raise ValueError(
                f"{file} exists: name another file, or allow to overwrite (--overwrite)"
            )
        fit, _, summary = read_results(folder)
        beside = None if keep is None else _kept(data, keep)
        rows = rows_of(fit, data, summary.get("read_as", {}), block_rows)
        with listening() as caught:
            file.parent.mkdir(parents=True, exist_ok=True)
            said = write_rows(fit, rows, file, beside)
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            warn(text)
        typer.echo(
            f"{counted(len(rows), 'time point' if fit.structure.row_columns else 'row')}: {said}"
        )


def rows_of(
    fit: Fit, data: str, read_as: dict[str, Any], block_rows: int | None
) -> pd.DataFrame | RowBlocks:
    """The rows of a file under the columns of a fit; those of a large one in blocks."""
    blocks = _blocks(fit, data, block_rows)
    return _rows(fit, data, read_as) if blocks is None else blocks


def _blocks(fit: Fit, data: str, block_rows: int | None) -> RowBlocks | None:
    """The rows of a large file, under the columns of the fit; None for one that is read as a
    whole.
    """
    from inference.cli.blocks.opened import open_blocks, under_names

    named = [str(name) for name in fit.item_names]
    by_place, is_array = (
        named == [str(j) for j in range(len(named))],
        Path(data).suffix.lower() == ".npy",
    )
    why = (
        f"{fit.model_name} is a model of sequences, which are read as a whole"
        if fit.structure.row_columns
        else ""
    )
    found = open_blocks(data, None if by_place or is_array else named, block_rows, why)
    if found is not None and (by_place or is_array):
        _check_number(data, len(next(iter(found)).columns), named)
    return under_names(found, named) if found is not None and is_array else found


def _rows(fit: Fit, data: str, read_as: dict[str, Any]) -> pd.DataFrame:
    """The rows under the columns of the fit; of a file whose columns have no names, by their
    places; of sequences, with places and codes as the fit read them.
    """
    if fit.structure.row_columns:
        frame = read_csv(Path(data))
        for place, column in read_as.get("columns", {}).items():
            if column not in frame and place not in frame:
                raise ValueError(
                    f"{data}: no column is named {column!r}, which said the {place} of each row"
                    " when the model was fitted"
                )
            frame = frame.rename(columns={column: place}) if place not in frame else frame
        for place, codes in read_as.get("codes", {}).items():
            unknown = sorted(set(frame[place].dropna().astype(str)) - set(codes))
            if unknown:
                raise ValueError(
                    f"{data}: the {place} {unknown[0]!r} was not met when the model was fitted;"
                    f" those known are {', '.join(codes)}"
                )
            frame[place] = frame[place].map(codes)
        return frame
    named = [str(name) for name in fit.item_names]
    are_numbers = named == [str(j) for j in range(len(named))]
    has_names = Path(data.rpartition(":")[0] or data).suffix.lower() not in (".npy", ".npz")
    if has_names and not are_numbers:
        levels = column_levels(
            fit.structure, fit.item_names
        )  # whole numbers are read as numbers: a column with gaps may hold 1.0 for 1
        return read_mixed(
            data,
            named,
            [name for name, own in levels.items() if not all(_is_whole(level) for level in own)],
        )
    return _by_place(data, read_frame(data), named)


def _is_whole(level: str) -> bool:
    return level.removeprefix("-").isdecimal() and str(int(level)) == level


def _by_place(data: str, frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    _check_number(data, frame.shape[1], names)
    return frame.set_axis(names, axis=1)


def _check_number(data: str, found: int, names: list[str]) -> None:
    if found != len(names):
        raise ValueError(f"{data}: the {len(names)} columns of the fit were expected, got {found}")


def _kept(data: str, keep: str) -> pd.DataFrame:
    """Columns as they stand in the file, texts and all."""
    ending = Path(data).suffix.lower()
    if ending not in TEXT:
        raise ValueError(f"--keep: columns can be copied from csv and tsv files, got {data}")
    names, table = names_of(keep, "--keep"), read_csv(Path(data), str, TEXT[ending])
    missing = [name for name in names if name not in table]
    if missing:
        raise ValueError(
            f"--keep: {data} has no column {missing[0]!r}; the columns are"
            f" {', '.join(map(str, table.columns))}"
        )
    return table[names]
