"""``ppl-models fit dde``: deep discrete encoders."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inference.cli.app import (
    Engine,
    ImageShape,
    NoProgress,
    Out,
    Overwrite,
    Seed,
    check_image,
    deliver,
    fit_app,
    one_line_errors,
    read_frame,
    run,
    shape_of,
    sizes_of,
)

if TYPE_CHECKING:
    import pandas as pd

    from ppl_models.parts.responses import ResponseFamily

__all__ = ["fit_dde"]

RESPONSES = {"bernoulli": "Bernoulli", "poisson": "Poisson", "normal": "Normal", "lognormal": "LogNormal"}


class Start(StrEnum):
    """Where a fit starts."""

    spectral = "spectral"
    random = "random"


class Bottom(StrEnum):
    """How items depend on their latents."""

    additive = "additive"
    dina = "dina"
    gdm = "gdm"


@fit_app.command("dde")
def fit_dde(
    data: Annotated[
        str, typer.Argument(help="Table with one row a unit: csv, tsv, parquet, npy, npz (file.npz:array).")
    ],
    response: Annotated[
        str,
        typer.Option(help=f"Family of the items: {', '.join(RESPONSES)}; or blocks: poisson:9,normal:3."),
    ],
    latents: Annotated[
        str, typer.Option(metavar="K1,K2,...", help="Sizes of the latent layers, bottom-up and falling: 6,2.")
    ],
    out: Out,
    penalty: Annotated[
        str,
        typer.Option(
            metavar="auto|none|SLOPE,THRESHOLD",
            help="Truncated Lasso of the loadings; auto is the better by EBIC of two for the number of rows (the level of BIC where "
            "latents are sampled), none with --graph.",
        ),
    ] = "auto",
    restarts: Annotated[
        int | None, typer.Option(min=1, help="Starts run as one batch, the best reported; as many as the model recommends.")
    ] = None,
    seed: Seed = 0,
    init: Annotated[Start, typer.Option(help="Where the fit starts.")] = Start.spectral,
    engine: Annotated[
        Engine,
        typer.Option(
            help="Exact EM, or stochastic EM with sampled latents (auto takes EM up to 14 latents a layer); or posterior draws: "
            "laplace (a normal around EM's optimum), svi (a normal fitted), nuts (four chains)."
        ),
    ] = Engine.auto,
    graph: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="0/1 table (items x first latents), 1 where a loading is free: a Q-matrix."),
    ] = None,
    bottom: Annotated[
        Bottom,
        typer.Option(help="How items depend on latents: each alone, all of --graph together, or with every interaction."),
    ] = Bottom.additive,
    image_shape: ImageShape = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File that holds the running fit; the same command then resumes from it.")
    ] = None,
    no_progress: NoProgress = False,
    overwrite: Overwrite = False,
) -> None:
    """Fit a deep discrete encoder (Lee and Gu 2025) by penalised EM, and write fit, ArviZ file, report and summary."""
    with one_line_errors(checkpoint):
        from inference.report.results_folder import check_output_folder
        from ppl_models.datasets import read_table
        from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder
        from ppl_models.parts.measurement import Additive, ExpDINA, ExpGDM

        check_output_folder(out, overwrite, () if checkpoint is None else (checkpoint,))
        sizes = sizes_of(latents, "--latents")
        shape = shape_of(image_shape)
        frame = read_frame(data)
        check_image(shape, frame.shape[1])
        graphs: Any = None if graph is None else (read_table(graph).values, *[None] * (len(sizes) - 1))
        model = DeepDiscreteEncoder(
            num_items=frame.shape[1],
            latent_sizes=sizes,
            response=response_of(response),
            penalty=penalty_of(penalty, len(frame), graph is not None),
            graphs=graphs,
            bottom=ExpDINA() if bottom is Bottom.dina else ExpGDM() if bottom is Bottom.gdm else Additive(),
        )
        if penalty == "auto" and graph is None and engine is not Engine.saem:
            model = _with_better_penalty(model, frame, restarts, seed)
        result = run(model, frame, init.value, restarts, seed, checkpoint, not no_progress, engine)
        deliver(result, frame, out, shape)


def _with_better_penalty(model: Any, frame: pd.DataFrame, restarts: int | None, seed: int) -> Any:
    """The model with the penalty whose polished fit has the smaller EBIC; as it is where its latents are to be sampled."""
    import dataclasses

    from inference.engines.em import EM
    from inference.fitting.problem import problem_of
    from inference.programs.alone import quiet
    from inference.selection.sparsity import penalty_path
    from ppl_models.parts.penalties import TruncatedLasso

    with quiet():  # the fit that follows says the same of the one that is kept
        problem = problem_of(model, frame, seed)
        if not isinstance(problem.structure.recommended(problem).method, EM):
            return model
        path = penalty_path(model, frame, TruncatedLasso.candidates(len(frame)), num_restarts=restarts, seed=seed)
    return dataclasses.replace(model, penalty=path.penalty)


def penalty_of(text: str, num_rows: int, confirmatory: bool) -> Any:
    from ppl_models.parts.penalties import TruncatedLasso

    if text == "none" or (text == "auto" and confirmatory):
        return None
    if text == "auto":
        return TruncatedLasso.bic(num_rows)
    try:
        slope, threshold = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--penalty: auto, none or SLOPE,THRESHOLD was expected, got {text!r}") from None
    return TruncatedLasso(slope, threshold)


def response_of(text: str) -> ResponseFamily:
    import ppl_models

    def family(name: str) -> ResponseFamily:
        if name not in RESPONSES:
            raise ValueError(f"--response: {', '.join(RESPONSES)}, or blocks of them, were expected, got {name!r}")
        return getattr(ppl_models, RESPONSES[name])()

    if ":" not in text:
        return family(text)
    blocks = []
    for part in text.split(","):
        name, _, count = part.partition(":")
        if not count.isdecimal():
            raise ValueError(f"--response: blocks are written FAMILY:NUMBER,FAMILY:NUMBER, got {text!r}")
        blocks.append((family(name), int(count)))
    return ppl_models.Blocks(*blocks)
