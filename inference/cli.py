"""The command line: ``ppl-models fit``, ``ppl-models demo``, ``ppl-models report``.

Exit codes: 0 done; 2 the user's input is wrong, said in one line on standard error; 130 interrupted.
Everything heavy is imported inside the commands.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inference import cli_options

if TYPE_CHECKING:
    import pandas as pd

    from inference.fit import Method
    from inference.result import Fit
    from ppl_models.responses import ResponseFamily

__all__ = ["app", "main"]

app = typer.Typer(
    name="ppl-models",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
fit_app = typer.Typer(help="Fit a family to a table of data.", no_args_is_help=True)
app.add_typer(fit_app, name="fit")
select_app = typer.Typer(help="Choose the number of latents or components.", no_args_is_help=True)
app.add_typer(select_app, name="select")
study_app = typer.Typer(help="Repeat a published study with data of a known truth.", no_args_is_help=True)
app.add_typer(study_app, name="study")
cli_options.register(fit_app)

USER_ERROR, INTERRUPTED = 2, 130
RESPONSES = {"bernoulli": "Bernoulli", "poisson": "Poisson", "normal": "Normal", "lognormal": "LogNormal"}
DEMO_LATENTS = (10, 3)


class Start(StrEnum):
    """Where a fit starts."""

    spectral = "spectral"
    random = "random"


class Engine(StrEnum):
    """How a fit is made."""

    auto = "auto"
    em = "em"
    saem = "saem"
    laplace = "laplace"
    svi = "svi"
    nuts = "nuts"


class Bottom(StrEnum):
    """How items depend on their latents."""

    additive = "additive"
    dina = "dina"
    gdm = "gdm"


Out = Annotated[Path, typer.Option("--out", help="Folder for the results; made if need be.", show_default=True)]
Seed = Annotated[int, typer.Option("--seed", min=0, help="One seed makes one answer.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace results that lie in the output folder.")]
NoProgress = Annotated[bool, typer.Option("--no-progress", help="Show no progress bar on standard error.")]
ImageShape = Annotated[
    str | None,
    typer.Option("--image-shape", metavar="ROWS,COLUMNS", help="The items are the pixels of an image, row by row."),
]


def main() -> None:
    """Entry point of the console script."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(metadata.version("ppl-models"))
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and leave.")
    ] = False,
) -> None:
    """Fit probabilistic programs with discrete latent variables, check them and draw them."""


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
    with _one_line_errors(checkpoint):
        from inference.output import check_output_folder
        from ppl_models.bottoms import Additive, ExpDINA, ExpGDM
        from ppl_models.datasets import read_table
        from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder

        check_output_folder(out, overwrite, () if checkpoint is None else (checkpoint,))
        sizes = _sizes(latents, "--latents")
        shape = _shape(image_shape)
        frame = _frame(data)
        _check_image(shape, frame.shape[1])
        graphs: Any = None if graph is None else (read_table(graph).values, *[None] * (len(sizes) - 1))
        model = DeepDiscreteEncoder(
            num_items=frame.shape[1],
            latent_sizes=sizes,
            response=_response(response),
            penalty=_penalty(penalty, len(frame), graph is not None),
            graphs=graphs,
            bottom=ExpDINA() if bottom is Bottom.dina else ExpGDM() if bottom is Bottom.gdm else Additive(),
        )
        if penalty == "auto" and graph is None and engine is not Engine.saem:
            model = _with_better_penalty(model, frame, restarts, seed)
        result = _run(model, frame, init.value, restarts, seed, checkpoint, not no_progress, engine)
        _deliver(result, frame, out, shape)


@app.command()
def demo(
    out: Out = Path("demo"), seed: Seed = 0, no_progress: NoProgress = False, overwrite: Overwrite = False
) -> None:
    """Fit a two-layer deep discrete encoder to handwritten digits that ship with scikit-learn; under a minute."""
    with _one_line_errors(None):
        from inference.output import check_output_folder

        check_output_folder(out, overwrite)
        import pandas as pd

        from ppl_models.datasets import load_digits
        from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder
        from ppl_models.penalties import TruncatedLasso

        digits = load_digits()
        frame = pd.DataFrame(digits.items, columns=list(digits.item_names))
        model = DeepDiscreteEncoder(frame.shape[1], DEMO_LATENTS, penalty=TruncatedLasso.for_rows(len(frame)))
        result = _run(model, frame, "spectral", 1, seed, None, not no_progress)
        _deliver(result, frame, out, digits.image_shape)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that fit or demo wrote.")],
    image_shape: ImageShape = None,
) -> None:
    """Write the report of a fitted folder anew, from the fit and the data it holds."""
    with _one_line_errors(None):
        from inference.output import REPORT, identifiability_of, read_results
        from inference.report import write_report

        fit, frame, summary = read_results(folder)
        shape = _shape(image_shape)
        _check_image(shape, frame.shape[1])
        if shape is None and summary.get("image_shape"):
            shape = tuple(summary["image_shape"])
        verdict = identifiability_of(fit)
        write_report(fit, frame, folder / REPORT, image_shape=shape, identifiability=verdict)
        typer.echo(f"report: {folder / REPORT}")


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that fit or demo wrote.")],
) -> None:
    """Say whether the fitted graph identifies the model, which latents break a condition, and what would repair it."""
    with _one_line_errors(None):
        from inference.output import identifiability_of, read_results

        verdict = identifiability_of(read_results(folder)[0])
        typer.echo("the model does not describe its layers" if verdict is None else verdict.text())


# ------------------------------------------------------------------------ steps


def _run(
    model: Any,
    frame: pd.DataFrame,
    init: str,
    restarts: int | None,
    seed: int,
    checkpoint: Path | None,
    progress: bool,
    engine: Engine = Engine.auto,
) -> Fit:
    """Fit, and say on standard error what the library warned of."""
    from inference import EM, NUTS, SAEM, SVI, FullRank, Laplace, fit

    methods: dict[Engine, Method | None] = {
        Engine.auto: None, Engine.em: EM(), Engine.saem: SAEM(),
        Engine.laplace: Laplace(), Engine.svi: SVI(FullRank()), Engine.nuts: NUTS(),
    }  # fmt: skip
    method = methods[engine]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # kept by the fit, and said below in one line each
        result = fit(
            model, frame, method, init=init, num_restarts=restarts, seed=seed, progress=progress, checkpoint=checkpoint
        )
    for text in result.warnings:
        typer.echo(f"warning: {text}", err=True)
    return result


def _deliver(result: Fit, frame: pd.DataFrame, out: Path, image_shape: tuple[int, int] | None) -> None:
    from inference.output import FIT, POSTERIOR, REPORT, SUMMARY, write_results

    write_results(result, frame, out, image_shape)
    state = "converged" if result.converged else "stopped"
    typer.echo(
        f"{state} after {result.num_iterations} iterations, {result.seconds:.1f} s\n"
        f"log-likelihood {result.log_likelihood:.2f}, {result.objective_name} {result.objective:.2f}, "
        f"BIC {result.bic:.2f}\n"
        f"results in {out}: {REPORT} (open it in a browser), {POSTERIOR} (ArviZ), {FIT}/ (Fit.load), {SUMMARY}"
    )


@contextmanager
def _one_line_errors(checkpoint: Path | None) -> Iterator[None]:
    """The user's errors as one line and exit code 2, an interrupt as one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is None:
            text = "interrupted; no checkpoint was kept (with --checkpoint FILE a fit can be resumed)"
        elif checkpoint.exists():
            text = f"interrupted; the fit so far is in {checkpoint}: the same command resumes from there"
        else:
            text = f"interrupted before the first iteration; nothing was written to {checkpoint}"
        typer.echo(text, err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (ValueError, OSError) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(USER_ERROR) from None


# ---------------------------------------------------------------------- options


def _frame(path: str) -> pd.DataFrame:
    import pandas as pd

    from ppl_models.datasets import read_table

    table = read_table(path)
    return pd.DataFrame(table.values, columns=list(table.names))


def _sizes(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option}: whole numbers separated by commas were expected, got {text!r}") from None


def _range(text: str, option: str) -> list[int]:
    parts = text.split(":")
    if not (len(parts) == 2 and all(part.isdigit() for part in parts) and 1 <= int(parts[0]) <= int(parts[1])):
        raise ValueError(f"{option}: FIRST:LAST with 1 <= FIRST <= LAST was expected, got {text!r}")
    return list(range(int(parts[0]), int(parts[1]) + 1))


def _shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    sizes = _sizes(text, "--image-shape")
    if len(sizes) != 2 or min(sizes) < 1:
        raise ValueError(f"--image-shape: two positive numbers, rows and columns, were expected, got {text!r}")
    return sizes[0], sizes[1]


def _check_image(shape: tuple[int, int] | None, num_items: int) -> None:
    if shape is not None and shape[0] * shape[1] != num_items:
        raise ValueError(f"--image-shape: {shape[0]} x {shape[1]} pixels do not make the {num_items} items of the data")


def _with_better_penalty(model: Any, frame: pd.DataFrame, restarts: int | None, seed: int) -> Any:
    """The model with the penalty whose polished fit has the smaller EBIC; as it is where its latents are to be sampled."""
    import dataclasses

    from inference.em import EM
    from inference.fit import Problem
    from inference.sparsity import penalty_path
    from ppl_models.penalties import TruncatedLasso

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit that follows says the same of the one that is kept
        problem = Problem.check(model, frame, seed)
        if not isinstance(problem.structure.recommended(problem).method, EM):
            return model
        path = penalty_path(model, frame, TruncatedLasso.candidates(len(frame)), num_restarts=restarts, seed=seed)
    return dataclasses.replace(model, penalty=path.penalty)


def _penalty(text: str, num_rows: int, confirmatory: bool) -> Any:
    from ppl_models.penalties import TruncatedLasso

    if text == "none" or (text == "auto" and confirmatory):
        return None
    if text == "auto":
        return TruncatedLasso.bic(num_rows)
    try:
        slope, threshold = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--penalty: auto, none or SLOPE,THRESHOLD was expected, got {text!r}") from None
    return TruncatedLasso(slope, threshold)


def _response(text: str) -> ResponseFamily:
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


from inference import cli_compare as _compare  # noqa: E402, F401  (registers compare)
from inference import cli_components as _components  # noqa: E402, F401  (registers select pmf)
from inference import cli_noisy_or as _noisy_or  # noqa: E402, F401  (registers its command on fit_app)
from inference import cli_select as _select  # noqa: E402, F401  (registers select dde)
from inference import cli_study as _study  # noqa: E402, F401  (registers its command on study_app)
