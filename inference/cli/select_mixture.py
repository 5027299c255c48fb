"""``ppl-models select mixture``, ``select hmm`` and ``select options-hmm``: how many groups of
rows, hidden states, hidden options?
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inference.cli.app import (
    PLAIN_GRID,
    ROWS,
    Columns,
    Components,
    NoProgress,
    Out,
    Overwrite,
    Seed,
    Table,
    Verbose,
    check_out,
    grid_of,
    one_line_errors,
    read_frame,
    select_app,
    warn,
    write_csv,
    write_json,
    write_picture,
    write_rows,
)
from inference.cli.fit_hmm import SequenceColumn, TimeColumn, read_sequences
from inference.cli.fit_mixture import (
    CATEGORIES,
    Response,
    asked_of,
    component_of,
    doubts_of,
    read_as_asked,
)
from inference.cli.fit_options import (
    StepTime,
    read_steps,
    step_places,
    tabular_model,
    write_options,
)
from inference.cli.select_pmf import record_of

if TYPE_CHECKING:
    from inference.fitting.result import Fit


class Values(StrEnum):
    """What the columns hold."""

    real = "real"
    counts = "counts"
    binary = "binary"


Held = Annotated[
    Values | None,
    typer.Option(
        "--values",
        help=(
            "real: normal, Student t and skew-normal laws; counts: Poisson and negative binomial;"
            " binary: Bernoulli. As the columns look where it is left out."
        ),
    ),
]
Starts = Annotated[int, typer.Option("--restarts", "--starts", min=1, help="Starts of each fit.")]


@select_app.command("mixture")
def select_mixture(
    data: Table,
    out: Out,
    k: Components = None,
    response: Response = None,
    values: Held = None,
    restarts: Starts = 10,
    columns: Columns = None,
    seed: Seed = 0,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """How many groups? Mixtures of several sizes and laws: the number with how sure it is, the
    chosen fit, and a page that says why.

    For example: ppl-models select mixture rows.csv --out groups
    """
    with one_line_errors(None, verbose, out=out, overwrite=overwrite):
        from ppl_models.mixture import Mixture

        sizes = grid_of(k, "--components")
        check_out(out, overwrite)
        asked = _asked(values, response)
        frame = (
            read_frame(data, columns, can_choose=True)
            if values is not None
            else read_as_asked(data, columns, response, asked)
        )
        law = (
            _law(values, frame, True)
            if values is not None
            else _together(component_of(response, asked, frame), response, frame)
        )
        for text in doubts_of(frame):
            warn(text)
        chosen = _select(
            Mixture(2, law, frame.shape[1]), frame, sizes, restarts, seed, out, no_progress
        )
        typer.echo(write_rows(chosen, frame, out / ROWS))


@select_app.command("hmm")
def select_hmm(
    data: Table,
    out: Out,
    states: Annotated[
        str | None,
        typer.Option(
            "--states",
            metavar="FIRST:LAST",
            help=f"Numbers of hidden states to compare, both ends included{PLAIN_GRID}.",
        ),
    ] = None,
    sequence: SequenceColumn = None,
    time: TimeColumn = None,
    response: Response = None,
    values: Held = None,
    restarts: Starts = 10,
    columns: Columns = None,
    seed: Seed = 0,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """How many hidden states? Hidden Markov models of several sizes and laws: the number with how
    sure it is, the chosen fit, and a page that says why.

    For example: ppl-models select hmm tracks.csv --sequence animal --time step --out states
    """
    with one_line_errors(None, verbose, out=out, overwrite=overwrite):
        from ppl_models.hidden_markov import HiddenMarkov

        sizes = grid_of(states, "--states")
        check_out(out, overwrite)
        asked = _asked(values, response)
        frame, items, _ = read_sequences(
            data,
            columns,
            sequence,
            time,
            [name for name, family in (asked or {}).items() if family == CATEGORIES],
        )
        law = component_of(response, asked, items) if values is None else _law(values, items, False)
        chosen = _select(
            HiddenMarkov(2, law, items.shape[1]), frame, sizes, restarts, seed, out, no_progress
        )
        typer.echo(write_rows(chosen, frame, out / ROWS))


@select_app.command("options-hmm")
def select_options(
    data: Table,
    out: Out,
    options: Annotated[
        str | None,
        typer.Option(
            "--options",
            metavar="FIRST:LAST",
            help=f"Numbers of hidden options to compare, both ends included{PLAIN_GRID}.",
        ),
    ] = None,
    states: Annotated[
        int | None,
        typer.Option(min=1, help="Number of states; the largest seen plus one if not given."),
    ] = None,
    actions: Annotated[int | None, typer.Option(min=1, help="Number of actions; likewise.")] = None,
    sequence: Annotated[
        str, typer.Option(help="Column that says which sequence a step belongs to.")
    ] = "sequence",
    time: StepTime = None,
    state: Annotated[
        str, typer.Option(help="Column of the state: whole numbers from 0, or names.")
    ] = "state",
    action: Annotated[
        str, typer.Option(help="Column of the action, likewise; an empty one is missing.")
    ] = "action",
    restarts: Starts = 10,
    seed: Seed = 0,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """How many sub-tasks (hidden options) do steps and decisions show? The number with how sure it
    is, the chosen fit, and a page that says why.

    For example: ppl-models select options-hmm walks.csv --sequence episode --time step --out
    options
    """
    with one_line_errors(None, verbose, out=out, overwrite=overwrite):
        sizes = grid_of(options, "--options")
        check_out(out, overwrite)
        frame, codes = read_steps(
            data, step_places(data, sequence, time, action) | {"state": state}, []
        )
        model = tabular_model(frame, 2, states, actions, 0.0, False, None)
        chosen = _select(model, frame, sizes, restarts, seed, out, no_progress)
        write_options(
            chosen, frame, model.check_data(frame, for_fit=False)[0], codes, out / "options.csv"
        )
        typer.echo(f"options of every step: {out / 'options.csv'}")


def _asked(values: Values | None, response: str | None) -> dict[str, str] | None:
    """Families by column, where they were asked for so."""
    if values is not None and response is not None:
        raise ValueError(
            "--values and --response both name the law of the columns; give one of them"
        )
    return None if response is None or "=" not in response else asked_of(response)


def _together(law: Any, response: str | None, frame: Any) -> Any:
    """Measurements that nothing else was said of vary together, where rows are complete."""
    from ppl_models.parts.responses import Normal

    return _law(Values.real, frame, True) if response is None and type(law) is Normal else law


def _law(values: Values, items: Any, of_rows: bool) -> Any:
    """The first law of the columns; of rows that are complete, that of rows that vary together."""
    from ppl_models.descriptions.row_laws import MultivariateNormal
    from ppl_models.parts.responses import Bernoulli, Normal, Poisson

    real = (
        MultivariateNormal()
        if of_rows and items.notna().to_numpy().all() and items.shape[1] > 1
        else Normal()
    )
    return {Values.real: real, Values.counts: Poisson(), Values.binary: Bernoulli()}[values]


def _select(
    model: Any,
    frame: Any,
    sizes: list[int] | None,
    restarts: int,
    seed: int,
    out: Path,
    no_progress: bool,
) -> Fit:
    """The answer, written and said; the chosen fit."""
    from inference.acdc.criterion import acdc
    from inference.programs.global_state import listening
    from inference.report.how_many import write_how_many_report
    from inference.selection.order_selection.select_components import select_components

    with listening() as caught:
        answer = select_components(
            model, frame, sizes, num_restarts=restarts, seed=seed, progress=not no_progress
        )
        chosen = answer.fit
        out.mkdir(parents=True, exist_ok=True)  # the fit is kept before anything that can fail
        chosen.save(out / "fit")
        write_csv(answer.table.reset_index(), out / "laws.csv")
        result = acdc({chosen.model.num_components: chosen}, frame, seed=seed)  # type: ignore[attr-defined]
    for text in dict.fromkeys(str(found.message) for found in caught):
        warn(text)
    write_csv(result.to_frame(), out / "components.csv")
    write_how_many_report(answer, out / "report.html", result)
    write_picture(answer.plot(), out / "laws.png")
    write_json(record_of(answer) | {"seed": seed}, out / "selection.json")
    typer.echo(answer.verdict)
    typer.echo(f"results in {out}: report.html (open it in a browser), laws.csv, fit/ (Fit.load)")
    return chosen
