"""``ppl-models fit hmm``: hidden states over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from inference.cli.app import (
    CheckpointFile,
    Columns,
    NoProgress,
    Out,
    Overwrite,
    Restarts,
    Seed,
    Table,
    Verbose,
    check_out,
    deliver,
    fit_app,
    names_of,
    one_line_errors,
    read_mixed,
    run,
)
from inference.cli.fit_mixture import AS_CATEGORIES, CATEGORIES, asked_of, component_of

if TYPE_CHECKING:
    import pandas as pd


MOST_LEFT_OUT, FEW_STEPS = (
    1.5,
    5,
)  # how far steps that are counted may reach, in numbers of rows, and rows that can tell
SequenceColumn = Annotated[
    str | None,
    typer.Option(
        help=(
            "Column that says which sequence a row belongs to; without it all rows are one"
            " sequence."
        )
    ),
]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        help=(
            "Column that counts the steps; numbers left out are steps without entries. Without it"
            " rows follow each other as they stand."
        )
    ),
]


@fit_app.command("hmm")
def fit_hmm(
    data: Table,
    out: Out,
    states: Annotated[int, typer.Option(min=1, help="Number of hidden states.")],
    sequence: SequenceColumn = None,
    time: TimeColumn = None,
    response: Annotated[
        str | None,
        typer.Option(
            help=(
                "Law of the columns inside a state, as in fit mixture: normal, poisson, bernoulli,"
                " ...; or column by column, age=normal,visits=poisson."
            )
        ),
    ] = None,
    columns: Columns = None,
    initial: Annotated[
        str,
        typer.Option(
            help="Law of the first state: free, stationary (that of the long run) or uniform."
        ),
    ] = "free",
    restarts: Restarts = None,
    seed: Seed = 0,
    checkpoint: CheckpointFile = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Find hidden states that last over time: a hidden Markov model, the state of every row, and a
    report.

    For example: ppl-models fit hmm tracks.csv --states 3 --sequence animal --time step --out tracks
    """
    with one_line_errors(checkpoint, verbose, can_resume=True, out=out, overwrite=overwrite):
        from ppl_models.hidden_markov import HiddenMarkov

        check_out(out, overwrite, checkpoint)
        asked = None if response is None or "=" not in response else asked_of(response)
        texts = [name for name, family in (asked or {}).items() if family == CATEGORIES]
        frame, items, places = read_sequences(data, columns, sequence, time, texts)
        component: Any = component_of(response, asked, items)
        result = run(
            HiddenMarkov(states, component, items.shape[1], initial),
            frame,
            None,
            restarts,
            seed,
            checkpoint,
            not no_progress,
        )
        deliver(
            result,
            frame,
            out,
            None,
            {"columns": {place: column for column, place in places.items()}},
        )


def read_sequences(
    data: str, columns: str | None, sequence: str | None, time: str | None, texts: list[str]
) -> tuple[Any, Any, dict[str, str]]:
    """A table with a row a step, its columns of places named ``sequence`` and ``time``, the items
    alone, and the places that the file's columns were named.

    Args:
        data: the file; columns: to read, all if None.
        sequence, time: names of the columns of places in the file.
        texts: columns that hold categories.

    Raises:
        ValueError: for columns that the table lacks, or names twice.
    """
    places = {
        column: name
        for column, name in ((sequence, "sequence"), (time, "time"))
        if column is not None
    }
    if len(places) < (sequence is not None) + (time is not None):
        raise ValueError(
            f"--sequence and --time: two columns were expected, got {sequence!r} for both"
        )
    chosen = (
        None
        if columns is None
        else [*places, *(name for name in names_of(columns, "--columns") if name not in places)]
    )
    frame = read_mixed(
        data, chosen, texts + ([] if sequence is None else [sequence]), AS_CATEGORIES
    )
    for column in places:
        if column not in frame.columns:
            raise ValueError(
                f"--{places[column]}: {column!r} is no column of the table; the columns are"
                f" {', '.join(map(str, frame.columns[:6]))}"
            )
    clash = [name for name in places.values() if name in frame.columns and name not in places]
    if clash:
        raise ValueError(
            f"column {clash[0]!r} would be taken for the place of a row; name it with --{clash[0]},"
            " or leave it out with --columns"
        )
    items = frame.drop(columns=list(places))
    if not items.shape[1]:
        raise ValueError("at least one column beside --sequence and --time was expected")
    for name in items if time is None and columns is None else ():
        if _counts_steps(items[name], None if sequence is None else frame[sequence]):
            raise ValueError(
                f"column {name!r} counts the"
                f" rows{'' if sequence is None else f' of each {sequence}'}, and would be an item:"
                f" say --time {name}, or leave it out with --columns"
            )
    return frame.rename(columns=places), items, places


def _counts_steps(column: pd.Series, sequence: pd.Series | None) -> bool:
    """Whether the entries of every sequence are different whole numbers of which few are left out,
    as counted steps are and hardly any measurement.
    """
    import pandas as pd

    is_number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if not is_number or column.empty or column.hasnans or bool((column % 1 != 0).any()):
        return False
    own = column.groupby(pd.Series(0, column.index) if sequence is None else sequence, sort=False)
    size, span = own.size(), own.max() - own.min() + 1
    return (
        bool((own.nunique() == size).all() and (span <= MOST_LEFT_OUT * size).all())
        and int(size.max()) >= FEW_STEPS
    )
