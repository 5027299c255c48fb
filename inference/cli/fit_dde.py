"""``ppl-models fit dde``: deep discrete encoders."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Annotated, Any

import typer

from inference.cli.app import (
    RESPONSES,
    BlockRows,
    CheckpointFile,
    Columns,
    CovariateColumns,
    CovariatesMissing,
    Engine,
    Gaps,
    ImageShape,
    NoProgress,
    Out,
    Overwrite,
    Restarts,
    Seed,
    Table,
    Verbose,
    check_image,
    check_out,
    deliver,
    engine_in_memory,
    fit_app,
    item_columns,
    joined,
    names_of,
    one_line_errors,
    read_covariates,
    run,
    say_blocks,
    shape_of,
    sizes_of,
    with_covariates,
)
from inference.cli.fit_mixture import CATEGORIES, ORDERED, Orders, items_of_layers


class Start(StrEnum):
    """Where a fit starts."""

    spectral = "spectral"
    random = "random"


class Bottom(StrEnum):
    """How items depend on their latents."""

    additive = "additive"
    dina = "dina"
    gdm = "gdm"


ItemFamilies = Annotated[
    str | None,
    typer.Option(
        "--response",
        help=(
            f"Family of the items: {', '.join((*RESPONSES, *ORDERED, CATEGORIES))}; or column by"
            " column, q1=ordinal,age=normal; or in blocks, ordinal:9,normal:3. ordinal is the"
            " graded response model, partial-credit has adjacent categories. What is not said is"
            " taken as it looks: 0 and 1 as bernoulli, counts with zeros among them as poisson,"
            " texts as categorical, other numbers as normal."
        ),
    ),
]


@fit_app.command("dde")
def fit_dde(
    data: Table,
    latents: Annotated[
        str,
        typer.Option(
            metavar="K1,K2,...", help="Sizes of the latent layers, bottom-up and falling: 6,2."
        ),
    ],
    out: Out,
    response: ItemFamilies = None,
    order: Orders = None,
    penalty: Annotated[
        str,
        typer.Option(
            metavar="auto|none|SLOPE,THRESHOLD",
            help=(
                "Truncated Lasso of the loadings. auto chooses one by EBIC, reads the graph off the"
                " loadings and fits again on the "
                "graph without shrinkage; with --graph there is nothing to choose, and auto is"
                " none."
            ),
        ),
    ] = "auto",
    restarts: Restarts = None,
    seed: Seed = 0,
    init: Annotated[Start, typer.Option(help="Where the fit starts.")] = Start.spectral,
    engine: Annotated[
        Engine,
        typer.Option(
            help=(
                "Exact EM, or stochastic EM with sampled latents (auto takes EM up to 14 latents a"
                " layer); or posterior draws: "
                "laplace (a normal around EM's optimum), svi (a normal fitted), nuts (four chains)."
            )
        ),
    ] = Engine.auto,
    graph: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="0/1 table (items x first latents), 1 where a loading is free: a Q-matrix.",
        ),
    ] = None,
    bottom: Annotated[
        Bottom,
        typer.Option(
            help=(
                "How items depend on latents: each alone, all of --graph together, or with every"
                " interaction."
            )
        ),
    ] = Bottom.additive,
    columns: Columns = None,
    covariates: CovariateColumns = None,
    covariates_missing: CovariatesMissing = Gaps.refuse,
    image_shape: ImageShape = None,
    checkpoint: CheckpointFile = None,
    block_rows: BlockRows = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Fit a deep discrete encoder (Lee and Gu 2025), its graph found unless given, and write fit,
    ArviZ file, report and summary.
    """
    with one_line_errors(checkpoint, verbose, can_resume=True, out=out, overwrite=overwrite):
        from inference.cli.blocks.fitted import goes_in_blocks
        from inference.cli.blocks.looked import look_through
        from inference.cli.blocks.opened import open_blocks
        from inference.structures.layers.choose_penalty import is_open
        from ppl_models.datasets import read_table
        from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder
        from ppl_models.parts.measurement import Additive, ExpDINA, ExpGDM

        check_out(out, overwrite, checkpoint)
        sizes = sizes_of(latents, "--latents")
        shape = shape_of(image_shape)
        graphs: Any = (
            None if graph is None else (read_table(graph).values, *[None] * (len(sizes) - 1))
        )

        def encoder(num_items: int, family: Any, known: Any = None) -> Any:
            check_image(shape, num_items)
            return DeepDiscreteEncoder(
                num_items=num_items,
                latent_sizes=sizes,
                response=family,
                penalty=penalty_of(penalty),
                graphs=graphs,
                covariates=known,
                bottom=(
                    ExpDINA()
                    if bottom is Bottom.dina
                    else ExpGDM()
                    if bottom is Bottom.gdm
                    else Additive()
                ),
            )

        why = (
            "--covariates reads rows in memory"
            if covariates is not None
            else engine_in_memory(engine)
        )
        blocks = open_blocks(
            data, None if columns is None else names_of(columns, "--columns"), block_rows, why
        )
        if blocks is not None:
            seen, family = items_of_layers(
                data, columns, response, order, look_through(blocks, seed).frame
            )
            model = encoder(seen.shape[1], family)
            if goes_in_blocks(model, seen, block_rows):
                say_blocks(blocks, "its graph" if is_open(model) else "")
                deliver(
                    run(model, blocks, init.value, restarts, seed, checkpoint, not no_progress),
                    blocks,
                    out,
                    shape,
                )
                return
        given = read_covariates(data, covariates)
        frame, family = items_of_layers(data, item_columns(data, columns, given), response, order)
        frame, given = with_covariates(frame, given, covariates_missing)
        num_items = frame.shape[1]
        frame, known = joined(frame, given)
        model = encoder(num_items, family, known)
        chosen = None
        start: Any = init.value
        if (
            penalty == "auto"
            and graph is None
            and engine in (Engine.laplace, Engine.svi, Engine.nuts)
        ):  # posteriors on the graph
            first = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}.graph")
            chosen = run(model, frame, start, restarts, seed, first, not no_progress)
            model, start = chosen.model, chosen
        result = run(model, frame, start, restarts, seed, checkpoint, not no_progress, engine)
        if chosen is not None:
            result = dataclasses.replace(result, choice=chosen.choice)
        deliver(result, frame, out, shape)


def penalty_of(text: str) -> Any:
    from ppl_models.parts.penalties import ToBeChosen, TruncatedLasso

    if text == "none":
        return None
    if text == "auto":
        return ToBeChosen()
    try:
        slope, threshold = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"--penalty: auto, none or SLOPE,THRESHOLD was expected, got {text!r}"
        ) from None
    return TruncatedLasso(slope, threshold)
