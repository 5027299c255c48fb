"""``ppl-models report`` and ``check``: the report of a fitted folder, written anew, and whether its model is identified."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inference.cli.app import ImageShape, Verbose, app, check_image, one_line_errors, shape_of

__all__ = ["check", "report"]


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that fit or demo wrote.")],
    image_shape: ImageShape = None,
    verbose: Verbose = False,
) -> None:
    """Write the report of a fitted folder anew, from the fit and the data it holds."""
    with one_line_errors(None, verbose):
        from inference.identifiability.of_fit import identifiability_of
        from inference.report.fit import write_report
        from inference.report.results_folder import REPORT, names_in, read_results

        fit, frame, summary = read_results(folder)
        shape = shape_of(image_shape)
        check_image(shape, frame.shape[1])
        if shape is None and summary.get("image_shape"):
            shape = tuple(summary["image_shape"])
        verdict = identifiability_of(fit, frame)
        write_report(fit, frame, folder / REPORT, image_shape=shape, names=names_in(fit, summary.get("read_as")), identifiability=verdict)
        typer.echo(f"report: {folder / REPORT}")


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that fit or demo wrote.")],
    verbose: Verbose = False,
) -> None:
    """Say whether the fitted graph identifies the model, which latents break a condition, and what would repair it."""
    with one_line_errors(None, verbose):
        from inference.identifiability.of_fit import identifiability_of
        from inference.report.results_folder import read_results

        fit, frame, _ = read_results(folder)
        verdict = identifiability_of(fit, frame)
        silent = "Nothing was decided: the model has too many parameters for its rows, or rows that cannot be judged one by one."
        typer.echo(silent if verdict is None else verdict.text())
