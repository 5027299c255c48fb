"""``ppl-models fit noisy-or``."""

from __future__ import annotations

from typing import Annotated

import typer

from inference.cli.app import (
    BlockRows,
    Columns,
    ImageShape,
    NoProgress,
    Out,
    Overwrite,
    Seed,
    Verbose,
    check_image,
    check_out,
    deliver,
    fit_app,
    names_of,
    one_line_errors,
    read_frame,
    run,
    say_blocks,
    shape_of,
    warn,
)


@fit_app.command("noisy-or")
def fit_noisy_or(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help=(
                "Table of 0 and 1 with one row a unit: csv, tsv, parquet, arrow, npy, npz"
                " (file.npz:array), or a folder of parquet files."
            ),
        ),
    ],
    out: Out,
    latents: Annotated[
        int, typer.Option(min=1, help="Largest number of latents; those not paid for are dropped.")
    ] = 12,
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts", "--starts", min=1, help="Independent searches; the best is reported."
        ),
    ] = 1,
    seed: Seed = 0,
    keep_empty: Annotated[
        bool, typer.Option("--keep-empty", help="Keep empty latents in the fit.")
    ] = False,
    columns: Columns = None,
    image_shape: ImageShape = None,
    block_rows: BlockRows = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Fit a noisy-OR network: the number of latents is chosen by description length up to a
    limit.
    """
    with one_line_errors(None, verbose, out=out, overwrite=overwrite):
        from inference import fit
        from inference.cli.blocks.fitted import goes_in_blocks
        from inference.cli.blocks.opened import open_blocks
        from inference.cli.fit_mixture import refuse_texts
        from inference.inspection.noisy_or import trim
        from inference.programs.global_state import quiet
        from ppl_models.noisy_or import NoisyOr

        check_out(out, overwrite)
        shape = shape_of(image_shape)
        blocks = open_blocks(
            data, None if columns is None else names_of(columns, "--columns"), block_rows
        )
        frame = (
            read_frame(data, columns, can_choose=True)
            if blocks is None
            else blocks.sample(seed=seed)
        )
        refuse_texts(frame)
        check_image(shape, frame.shape[1])
        if blocks is not None:
            goes_in_blocks(NoisyOr(frame.shape[1], latents), frame, block_rows)
            say_blocks(blocks, "the number of latents")
        with quiet():  # kept by the fit, and said below in one line each
            result = fit(
                NoisyOr(frame.shape[1], latents),
                frame,
                num_restarts=restarts,
                seed=seed,
                progress=not no_progress,
            )
            shown = result.warnings
            if not keep_empty:
                result = trim(result)
        for text in dict.fromkeys((*shown, *result.warnings)):
            warn(text)
        if blocks is not None:
            result = run(
                result.model, blocks, None, None, seed, None, not no_progress, first=result
            )
        deliver(result, frame if blocks is None else blocks, out, shape)
