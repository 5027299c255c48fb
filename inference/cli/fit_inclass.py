"""``ppl-models fit inclass``: independent classifier networks."""

from __future__ import annotations

from typing import Annotated

import typer

from inference.cli.app import (
    CheckpointFile,
    Columns,
    NoProgress,
    Out,
    Overwrite,
    Seed,
    Table,
    Verbose,
    check_out,
    deliver,
    fit_app,
    one_line_errors,
    read_frame,
    run,
    sizes_of,
)


@fit_app.command("inclass")
def fit_inclass(
    data: Table,
    out: Out,
    variates: Annotated[
        str | None,
        typer.Option(
            metavar="A,B;C,D",
            help=(
                "Columns of each variate: names by commas, variates by semicolons (quote it for the"
                " shell). Every column by itself where it is left out."
            ),
        ),
    ] = None,
    components: Annotated[int, typer.Option(min=1, help="Number of components, at least 2.")] = 2,
    hidden: Annotated[
        str, typer.Option(metavar="WIDTHS", help="Widths of the hidden layers.")
    ] = "32,32,32",
    shared: Annotated[
        bool,
        typer.Option(
            "--shared", help="One network for all variates, for variates of the same kind."
        ),
    ] = False,
    weights: Annotated[
        str,
        typer.Option(
            help=(
                "Weights of the components: geometric, or free (needed where variates are missing)."
            )
        ),
    ] = "geometric",
    restarts: Annotated[
        int | None,
        typer.Option(
            "--restarts",
            "--starts",
            min=1,
            help=(
                "Starts trained side by side, the best by held-out rows reported; four where it is"
                " left out."
            ),
        ),
    ] = None,
    columns: Columns = None,
    seed: Seed = 0,
    checkpoint: CheckpointFile = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Find groups whose columns come in independent parts of any shape: a mixture of independent
    variates by classifier networks, and a report.
    """
    with one_line_errors(checkpoint, verbose, can_resume=True, out=out, overwrite=overwrite):
        from ppl_models.inclass_net import InClassNet
        from ppl_models.networks.dense import Dense

        check_out(out, overwrite, checkpoint)
        frame = read_frame(data, columns, can_choose=True)
        names = [str(name) for name in frame.columns]
        groups = _groups(variates, names)
        model = InClassNet(groups, components, Dense(sizes_of(hidden, "--hidden")), shared, weights)  # type: ignore[arg-type]  # checked there
        chosen = [name for group in groups for name in group]
        result = run(model, frame[chosen], "spectral", restarts, seed, checkpoint, not no_progress)
        deliver(result, frame[chosen], out, None)


def _groups(text: str | None, names: list[str]) -> tuple[tuple[str, ...], ...]:
    """Names of the columns of each variate, each of which the table has."""
    if text is None:
        return tuple((name,) for name in names)
    groups = tuple(tuple(name.strip() for name in part.split(",")) for part in text.split(";"))
    absent = [name for group in groups for name in group if name not in names]
    if absent:
        raise ValueError(
            f"--variates: columns {absent} are not in the table, which has {names[:20]}"
        )
    return groups
