"""``ppl-models fit pmf``: rows as sums of a few signatures."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from inference.cli.app import (
    BlockRows,
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
    read_frame,
    run,
    say_blocks,
    write_csv,
)


class Law(StrEnum):
    """How an entry varies about the sum of its components."""

    poisson = "poisson"
    linear = "nb-linear"
    quadratic = "nb-quadratic"
    normal = "normal"
    nonnegative = "normal-nonnegative"


@fit_app.command("pmf")
def fit_pmf(
    data: Table,
    components: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of signatures; `ppl-models select pmf` says how many the counts support.",
        ),
    ],
    out: Out,
    law: Annotated[
        Law,
        typer.Option(
            help=(
                "How entries vary: poisson (counts); nb-linear or nb-quadratic (counts that vary"
                " more, by a constant factor or with the square of "
                "their mean); normal, or normal-nonnegative (other numbers, with signatures and"
                " amounts of either sign or not below zero)."
            )
        ),
    ] = Law.poisson,
    usage: Annotated[
        bool,
        typer.Option(
            "--usage",
            help="Let signatures be absent from rows, with a chance of each; poisson only.",
        ),
    ] = False,
    columns: Columns = None,
    restarts: Restarts = None,
    seed: Seed = 0,
    checkpoint: CheckpointFile = None,
    block_rows: BlockRows = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Write every row as a sum of a few signatures (matrix factorization), with the amounts of
    every row, and a report.

    For example: ppl-models fit pmf counts.csv --components 4 --out signatures
    """
    with one_line_errors(checkpoint, verbose, can_resume=True, out=out, overwrite=overwrite):
        from inference.cli.blocks.opened import open_blocks
        from inference.cli.fit_mixture import refuse_texts

        if usage and law is not Law.poisson:
            raise ValueError(
                f"--usage: signatures may be absent from Poisson counts only, and --law {law.value}"
                " was asked for; leave one of them out"
            )
        check_out(out, overwrite, checkpoint)
        blocks = open_blocks(
            data,
            None if columns is None else names_of(columns, "--columns"),
            block_rows,
            "--usage wants its rows in memory" if usage else "",
        )
        seen = (
            read_frame(data, columns, can_choose=True)
            if blocks is None
            else blocks.sample(seed=seed)
        )
        refuse_texts(seen)
        rows = seen if blocks is None else blocks
        if blocks is not None:
            say_blocks(blocks)
        result = run(
            _model(law, usage, seen.shape[1], components),
            rows,
            None,
            restarts,
            seed,
            checkpoint,
            not no_progress,
        )
        deliver(result, rows, out, None)
        signatures = out / "signatures.csv"
        write_csv(
            result.frames["signatures"].T.add_prefix("component_"), signatures, index_label="column"
        )
        typer.echo(f"{signatures}: one line a column of the data, with its entry in each signature")


def _model(law: Law, usage: bool, num_items: int, num_components: int) -> Any:
    from ppl_models.matrix_factorization import (
        GaussianFactorization,
        NegativeBinomialFactorization,
        PoissonFactorization,
    )
    from ppl_models.usage_factorization import UsageFactorization

    if usage:
        return UsageFactorization(num_items, num_components)
    if law is Law.poisson:
        return PoissonFactorization(num_items, num_components)
    if law in (Law.linear, Law.quadratic):
        return NegativeBinomialFactorization(
            num_items, num_components, variance="linear" if law is Law.linear else "quadratic"
        )
    return GaussianFactorization(num_items, num_components, nonnegative=law is Law.nonnegative)
