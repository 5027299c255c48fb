"""``ppl-models select mixture``: how many groups of rows, of which law?"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

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
from inference.cli.select_pmf import record_of

__all__ = ["Values", "select_mixture"]


class Values(StrEnum):
    """What the columns hold."""

    real = "real"
    counts = "counts"
    binary = "binary"


@select_app.command("mixture")
def select_mixture(
    data: Table,
    k: Annotated[str, typer.Option("--k", metavar="FIRST:LAST", help="Numbers of components to compare, both ends included.")],
    out: Out,
    values: Annotated[
        Values, typer.Option(help="real: normal, Student t and skew-normal laws; counts: Poisson and negative binomial; binary: Bernoulli.")
    ] = Values.real,
    restarts: Annotated[int, typer.Option(min=1, help="Starts of each fit.")] = 10,
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
        from inference.acdc.criterion import acdc
        from inference.programs.alone import listening
        from inference.report.how_many import write_how_many_report
        from inference.selection.how_many.rule import select_components
        from ppl_models.descriptions.row_laws import MultivariateNormal
        from ppl_models.mixture import Mixture
        from ppl_models.parts.responses import Bernoulli, Normal, Poisson

        sizes = range_of(k, "--k")
        check_out(out, overwrite)
        frame = read_frame(data, columns, can_choose=True)
        real = MultivariateNormal() if frame.notna().to_numpy().all() and frame.shape[1] > 1 else Normal()
        component = {Values.real: real, Values.counts: Poisson(), Values.binary: Bernoulli()}[values]
        with listening() as caught:
            model = Mixture(sizes[-1], component, frame.shape[1])
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
