"""``ppl-models report`` and ``check``: the report of a fitted folder, or of a saved fit and its
data, and whether its model is identified.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inference.cli.app import (
    ROWS,
    ImageShape,
    Verbose,
    app,
    check_image,
    deliver,
    one_line_errors,
    shape_of,
)

if TYPE_CHECKING:
    import pandas as pd

    from inference.base.streaming.row_blocks import RowBlocks
    from inference.fitting.result import Fit


SAME_ROWS = 1e-4  # relative difference of log-likelihoods of the same rows, in single precision too


@app.command()
def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help=(
                "Folder that fit or demo wrote; or, with DATA, a saved fit, such as the fit/ of a"
                " command that was interrupted."
            ),
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="Table that a saved fit was made of; a folder of results holds its data.",
        ),
    ] = None,
    image_shape: ImageShape = None,
    verbose: Verbose = False,
) -> None:
    """Write the report of a fitted folder anew, from the fit and the data it holds; or all results
    of a saved fit, from the fit and its data.
    """
    with one_line_errors(None, verbose):
        from inference.identifiability.of_fit import identifiability_of
        from inference.report.fit import write_report
        from inference.report.results_folder import REPORT, SUMMARY, names_in, read_results

        if data is not None:
            _finish(folder, data, image_shape)
            return
        if _saved(folder).is_dir() and not (folder / SUMMARY).exists():
            raise ValueError(
                f"{folder} holds a saved fit without its data: name the table that it was made of,"
                f" ppl-models report {folder} DATA"
            )
        fit, frame, summary = read_results(folder)
        shape = shape_of(image_shape)
        check_image(shape, frame.shape[1])
        if shape is None and summary.get("image_shape"):
            shape = tuple(summary["image_shape"])
        verdict = identifiability_of(fit, frame)
        write_report(
            fit,
            frame,
            folder / REPORT,
            image_shape=shape,
            names=names_in(fit, summary.get("read_as")),
            identifiability=verdict,
        )
        typer.echo(f"report: {folder / REPORT}")


def _finish(folder: Path, data: str, image_shape: str | None) -> None:
    """The results of a saved fit, in the folder that holds it.

    Raises:
        ValueError: for a folder without a fit, or whose results are there already; or for rows that
            are not those of the fit.
    """
    from inference.cli.predict import rows_of
    from inference.fitting.result import Fit
    from inference.report.results_folder import FIT, REPORT, SUMMARY

    saved = _saved(folder)
    out = saved.parent if saved.name == FIT else saved
    held = [name for name in (SUMMARY, REPORT, ROWS) if (out / name).exists()]
    if held:
        raise ValueError(
            f"{out} holds {' and '.join(held)} already: ppl-models report {out}, without DATA,"
            " writes the page anew"
        )
    fit = Fit.load(saved)
    rows = rows_of(fit, data, {}, None)
    shape = shape_of(image_shape)
    check_image(shape, len(fit.item_names))
    _check_rows(fit, rows, data)
    deliver(fit, rows, out, shape)


def _saved(folder: Path) -> Path:
    """Where the fit of a folder of results lies; the folder itself where it is a saved fit."""
    from inference.report.results_folder import FIT

    return folder if (folder / "fit.safetensors").is_file() else folder / FIT


def _check_rows(fit: Fit, rows: pd.DataFrame | RowBlocks, data: str) -> None:
    """Refuse rows that a fit was not made of.

    Raises:
        ValueError: for another number of rows, or another log-likelihood where it is known of every
            row.
    """
    if not fit.structure.row_columns and len(rows) != fit.num_rows:
        raise ValueError(
            f"{data}: the fit was made of {fit.num_rows:,} rows, and the table has {len(rows):,}"
        )
    own = float(fit.log_likelihood_rows(rows).double().sum())
    if (
        not fit.structure.local_sites
        and fit.draws is None
        and abs(own - fit.log_likelihood) > SAME_ROWS * max(1.0, abs(own))
    ):
        raise ValueError(
            f"{data}: the rows have {fit.likelihood_name} {own:.2f} under the fit, and"
            f" {fit.log_likelihood:.2f} was that of its own: they are other rows, or were read in"
            " another way"
        )


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that fit or demo wrote.")],
    verbose: Verbose = False,
) -> None:
    """Say whether the fitted graph identifies the model, which latents break a condition, and what
    would repair it.
    """
    with one_line_errors(None, verbose):
        from inference.identifiability.of_fit import identifiability_of
        from inference.report.results_folder import read_results

        fit, frame, _ = read_results(folder)
        verdict = identifiability_of(fit, frame)
        silent = (
            "Nothing was decided: the model has too many parameters for its rows, or rows that"
            " cannot be judged one by one."
        )
        typer.echo(silent if verdict is None else verdict.text())
