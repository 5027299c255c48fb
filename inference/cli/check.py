"""``ppl-models check``: is a fitted model identified?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inference.cli.app import Verbose, app, one_line_errors

__all__ = ["check"]


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
