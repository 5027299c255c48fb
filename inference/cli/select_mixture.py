"""``ppl-models select mixture``, ``select hmm`` and ``select options-hmm``: how many groups of rows, hidden states, hidden options?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from inference.cli.app import (
    Columns,
    NoProgress,
    Out,
    Overwrite,
    Seed,
    Table,
    Verbose,
    check_out,
    one_line_errors,
    range_of,
    read_frame,
    select_app,
    warn,
    write_csv,
    write_json,
    write_picture,
)
from inference.cli.fit_hmm import SequenceColumn, TimeColumn, read_sequences
from inference.cli.fit_options import StepTime, read_steps, step_places, tabular_model
from inference.cli.select_pmf import record_of

__all__ = ["Values", "select_hmm", "select_mixture", "select_options"]


class Values(StrEnum):
    """What the columns hold."""

    real = "real"
    counts = "counts"
    binary = "binary"


Held = Annotated[Values, typer.Option("--values", help="real: normal, Student t and skew-normal laws; counts: Poisson and negative binomial; binary: Bernoulli.")]
Starts = Annotated[int, typer.Option("--restarts", "--starts", min=1, help="Starts of each fit.")]


@select_app.command("mixture")
def select_mixture(
    data: Table,
    k: Annotated[str, typer.Option("--k", "--components", metavar="FIRST:LAST", help="Numbers of components to compare, both ends included.")],
    out: Out,
    values: Held = Values.real,
    restarts: Starts = 10,
    columns: Columns = None,
    seed: Seed = 0,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """How many groups? Mixtures of several sizes and laws: the number with how sure it is, the chosen fit, and a page that says why.

    For example: ppl-models select mixture rows.csv --k 1:6 --out groups
    """
    with one_line_errors(None, verbose):
        from ppl_models.mixture import Mixture

        sizes = range_of(k, "--k")
        check_out(out, overwrite)
        frame = read_frame(data, columns, can_choose=True, otherwise=f", or say ppl-models fit mixture --choose {sizes[0]}..{sizes[-1]}, which takes columns of any kind")
        _select(Mixture(sizes[-1], _law(values, frame, True), frame.shape[1]), frame, sizes, restarts, seed, out, no_progress)


@select_app.command("hmm")
def select_hmm(
    data: Table,
    states: Annotated[str, typer.Option("--states", metavar="FIRST:LAST", help="Numbers of hidden states to compare, both ends included.")],
    out: Out,
    sequence: SequenceColumn = None,
    time: TimeColumn = None,
    values: Held = Values.real,
    restarts: Starts = 10,
    columns: Columns = None,
    seed: Seed = 0,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """How many hidden states? Hidden Markov models of several sizes and laws: the number with how sure it is, the chosen fit, and a page that says why.

    For example: ppl-models select hmm tracks.csv --states 1:5 --sequence animal --time step --out states
    """
    with one_line_errors(None, verbose):
        from ppl_models.hidden_markov import HiddenMarkov

        sizes = range_of(states, "--states")
        check_out(out, overwrite)
        frame, items, _ = read_sequences(data, columns, sequence, time, [])
        _select(HiddenMarkov(sizes[-1], _law(values, items, False), items.shape[1]), frame, sizes, restarts, seed, out, no_progress)


@select_app.command("options-hmm")
def select_options(
    data: Table,
    options: Annotated[str, typer.Option("--options", metavar="FIRST:LAST", help="Numbers of hidden options to compare, both ends included.")],
    out: Out,
    states: Annotated[int | None, typer.Option(min=1, help="Number of states; the largest seen plus one if not given.")] = None,
    actions: Annotated[int | None, typer.Option(min=1, help="Number of actions; likewise.")] = None,
    sequence: Annotated[str, typer.Option(help="Column that says which sequence a step belongs to.")] = "sequence",
    time: StepTime = None,
    state: Annotated[str, typer.Option(help="Column of the state: whole numbers from 0, or names.")] = "state",
    action: Annotated[str, typer.Option(help="Column of the action, likewise; an empty one is missing.")] = "action",
    restarts: Starts = 10,
    seed: Seed = 0,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """How many sub-tasks (hidden options) do steps and decisions show? The number with how sure it is, the chosen fit, and a page that says why.

    For example: ppl-models select options-hmm walks.csv --options 1:4 --sequence episode --time step --out options
    """
    with one_line_errors(None, verbose):
        sizes = range_of(options, "--options")
        check_out(out, overwrite)
        frame, _ = read_steps(data, step_places(data, sequence, time, action) | {"state": state}, [])
        model = tabular_model(frame, sizes[-1], states, actions, 0.0, False, None)
        _select(model, frame, sizes, restarts, seed, out, no_progress)


def _law(values: Values, items: Any, of_rows: bool) -> Any:
    """The first law of the columns; of rows that are complete, that of rows that vary together."""
    from ppl_models.descriptions.row_laws import MultivariateNormal
    from ppl_models.parts.responses import Bernoulli, Normal, Poisson

    real = MultivariateNormal() if of_rows and items.notna().to_numpy().all() and items.shape[1] > 1 else Normal()
    return {Values.real: real, Values.counts: Poisson(), Values.binary: Bernoulli()}[values]


def _select(model: Any, frame: Any, sizes: list[int], restarts: int, seed: int, out: Path, no_progress: bool) -> None:
    """The answer, written and said."""
    from inference.acdc.criterion import acdc
    from inference.programs.alone import listening
    from inference.report.how_many import write_how_many_report
    from inference.selection.how_many.rule import select_components

    with listening() as caught:
        answer = select_components(model, frame, sizes, num_restarts=restarts, seed=seed, progress=not no_progress)
        chosen = answer.fit
        result = acdc({chosen.model.num_components: chosen}, frame, seed=seed)  # type: ignore[attr-defined]
    for text in dict.fromkeys(str(found.message) for found in caught):
        warn(text)
    out.mkdir(parents=True, exist_ok=True)
    write_csv(answer.table.reset_index(), out / "laws.csv")
    write_csv(result.to_frame(), out / "components.csv")
    write_how_many_report(answer, out / "report.html", result)
    write_picture(answer.plot(), out / "laws.png")
    chosen.save(out / "fit")
    write_json(record_of(answer) | {"seed": seed}, out / "selection.json")
    typer.echo(answer.verdict)
    typer.echo(f"results in {out}: report.html (open it in a browser), laws.csv, fit/ (Fit.load)")
