"""``ppl-models compare``: fitted folders of the same data side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inference.cli.app import (
    Out,
    Overwrite,
    Seed,
    Verbose,
    app,
    check_out,
    one_line_errors,
    read_frame,
    warn,
    write_csv,
)


@app.command()
def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR DIR ...", help="Folders that fit wrote, all of the same data."),
    ],
    out: Out,
    test: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Rows that no fit has seen, of the same columns."),
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            min=0, help="Folds for point estimates, which have no draws; 0 leaves them out."
        ),
    ] = 10,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Which fit predicts rows it has not seen? Leave-one-out or folds, BIC, misfit of components,
    identifiability and time, on one page.
    """
    with one_line_errors(None, verbose, out=out, overwrite=overwrite):
        from inference.comparison import compare as compare_fits
        from inference.programs.global_state import quiet
        from inference.report.comparison import in_words, write_comparison_report
        from inference.report.results_folder import read_results, refuse_sample

        check_out(out, overwrite)
        names = _names(folders)
        read = {name: read_results(folder) for name, folder in zip(names, folders, strict=True)}
        for folder, (fit, _, summary) in zip(folders, read.values(), strict=True):
            refuse_sample(folder, fit, summary, "a comparison")
        data = next(iter(read.values()))[1]
        rows = None if test is None else read_frame(test)
        with quiet():  # kept by the comparison, and said below in one line each
            result = compare_fits(
                {name: part[0] for name, part in read.items()},
                data,
                rows,
                num_folds=folds,
                seed=seed,
            )
        for note in result.warnings:
            warn(note)
        out.mkdir(parents=True, exist_ok=True)
        write_csv(result.table, out / "comparison.csv", index_label=result.table.index.name or "")
        page = write_comparison_report(result, out / "comparison.html")
        columns = ["engine", "elpd", "elpd_diff", "diff_se", "bic", "converged", "seconds"]
        typer.echo(result.table[columns].round(2).to_string())
        typer.echo(" ".join(in_words(result)))
        typer.echo(f"results in {out}: {page.name} (open it in a browser), comparison.csv")


def _names(folders: list[Path]) -> list[str]:
    """Last parts of the paths, whole paths where those are not distinct."""
    if len(folders) < 2:
        raise ValueError(f"compare: at least two folders were expected, got {len(folders)}")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("compare: each folder once was expected, got one twice")
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]
