"""``ppl-models select dde``: how many latents in a layer?"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from inference.cli.app import (
    Columns,
    CovariateColumns,
    CovariatesMissing,
    Gaps,
    NoProgress,
    Out,
    Overwrite,
    Seed,
    Table,
    Verbose,
    check_out,
    item_columns,
    joined,
    one_line_errors,
    range_of,
    read_covariates,
    select_app,
    warn,
    with_covariates,
    write_csv,
    write_json,
    write_picture,
)
from inference.cli.fit_dde import ItemFamilies, penalty_of
from inference.cli.fit_mixture import Orders, items_of_layers
from ppl_models.parts.repr import counted


class Rule(StrEnum):
    """What chooses."""

    spectral = "spectral"
    ebic = "ebic"
    bic = "bic"
    aic = "aic"
    lrt = "lrt"
    held_out = "held_out"


@select_app.command("dde")
def select_dde(
    data: Table,
    latents: Annotated[
        str,
        typer.Option(
            metavar="K1,K2,...", help="Sizes of the layers, bottom-up, one of them a range: 4:8,2."
        ),
    ],
    out: Out,
    response: ItemFamilies = None,
    order: Orders = None,
    criterion: Annotated[
        Rule, typer.Option(help="What chooses; spectral fits nothing.")
    ] = Rule.ebic,
    penalty: Annotated[
        str,
        typer.Option(metavar="auto|none|SLOPE,THRESHOLD", help="As for fit dde, for each size."),
    ] = "auto",
    restarts: Annotated[
        int, typer.Option("--restarts", "--starts", min=1, help="Starts of each fit.")
    ] = 1,
    columns: Columns = None,
    covariates: CovariateColumns = None,
    covariates_missing: CovariatesMissing = Gaps.refuse,
    seed: Seed = 0,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Compare sizes of one layer of a deep discrete encoder: table, picture, the fit of the chosen
    size, and a page that says why.
    """
    with one_line_errors(None, verbose, out=out, overwrite=overwrite):
        from inference.programs.global_state import listening
        from inference.report.answers import write_choice_report
        from inference.selection.dimension import select_dimension
        from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder

        parts = latents.split(",")
        ranged = [place for place, part in enumerate(parts) if ":" in part]
        if len(ranged) != 1:
            raise ValueError(
                f"--latents: sizes with one range were expected, such as 4:8,2, got {latents!r}"
            )
        grid = range_of(parts[ranged[0]], "--latents")
        others = [
            0 if place in ranged else int(part) if part.isdigit() else -1
            for place, part in enumerate(parts)
        ]
        if min(others) < 0:
            raise ValueError(
                f"--latents: whole numbers and one range were expected, got {latents!r}"
            )
        check_out(out, overwrite)
        given = read_covariates(data, covariates)
        frame, family = items_of_layers(data, item_columns(data, columns, given), response, order)
        frame, given = with_covariates(frame, given, covariates_missing)
        num_items = frame.shape[1]
        frame, known = joined(frame, given)
        sparsity = penalty_of(penalty)

        def model(size: int) -> Any:
            sizes = tuple(size if place in ranged else other for place, other in enumerate(others))
            return DeepDiscreteEncoder(num_items, sizes, family, sparsity, covariates=known)

        with listening() as caught:
            found = select_dimension(
                model,
                frame,
                grid,
                criterion.value,
                num_restarts=restarts,
                seed=seed,
                progress=not no_progress,
            )
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            warn(text)
        out.mkdir(parents=True, exist_ok=True)
        if found.fits:  # kept before anything that can fail
            found.best.save(out / "fit")
        write_csv(found.table, out / "sizes.csv", index_label=found.table.index.name or "")
        write_picture(found.plot().figure, out / "selection.png")
        page = write_choice_report(found, out / "report.html")
        record = {
            "criterion": criterion.value,
            "layer": ranged[0] + 1,
            "chosen": found.chosen,
            "grid": grid,
            "seed": seed,
        }
        write_json(record, out / "selection.json")
        typer.echo(found.table.to_string(float_format="{:,.2f}".format))
        typer.echo(
            f"chosen by {criterion.value}: {counted(found.chosen, 'latent')} in layer"
            f" {ranged[0] + 1}"
        )
        if len(found.sizes) > 1 and found.chosen == found.sizes[-1]:
            warn(f"the largest size compared was chosen; try up to {2 * found.chosen}")
        typer.echo(f"results in {out}: {page.name} (open it in a browser), sizes.csv")
