"""``ppl-models fit noisy-or``."""

from __future__ import annotations

from typing import Annotated

import typer

from inference.cli.app import (
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
    one_line_errors,
    read_frame,
    shape_of,
    warn,
)

__all__ = ["fit_noisy_or"]


@fit_app.command("noisy-or")
def fit_noisy_or(
    data: Annotated[str, typer.Argument(metavar="DATA", help="Table of 0 and 1 with one row a unit: csv, tsv, parquet, npy, npz (file.npz:array).")],
    out: Out,
    latents: Annotated[int, typer.Option(min=1, help="Largest number of latents; those not paid for are dropped.")] = 12,
    restarts: Annotated[int, typer.Option("--restarts", "--starts", min=1, help="Independent searches; the best is reported.")] = 1,
    seed: Seed = 0,
    keep_empty: Annotated[bool, typer.Option("--keep-empty", help="Keep empty latents in the fit.")] = False,
    columns: Columns = None,
    image_shape: ImageShape = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """Fit a noisy-OR network: the number of latents is chosen by description length up to a limit."""
    with one_line_errors(None, verbose):
        from inference import fit
        from inference.inspection.noisy_or import trim
        from inference.programs.alone import quiet
        from ppl_models.noisy_or import NoisyOr

        check_out(out, overwrite)
        shape = shape_of(image_shape)
        frame = read_frame(data, columns, can_choose=True)
        check_image(shape, frame.shape[1])
        with quiet():  # kept by the fit, and said below in one line each
            result = fit(
                NoisyOr(frame.shape[1], latents), frame, num_restarts=restarts, seed=seed, progress=not no_progress
            )
            shown = result.warnings
            if not keep_empty:
                result = trim(result)
        for text in dict.fromkeys((*shown, *result.warnings)):
            warn(text)
        deliver(result, frame, out, shape)
