"""The command line: options and steps that its commands share.

Exit codes: 0 done; 2 the user's input is wrong, said in one line on standard error; 130
interrupted. Everything heavy is imported inside the commands.
"""

from __future__ import annotations

import csv
import json
import logging
import math
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ppl_models.parts.repr import counted

if TYPE_CHECKING:
    import pandas as pd

    from inference.base.streaming.row_blocks import RowBlocks
    from inference.base.structure import Method
    from inference.fitting.result import Fit
    from ppl_models.descriptions.covariates import Covariates
    from ppl_models.parts.responses import ResponseFamily


app = typer.Typer(
    name="ppl-models",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
fit_app = typer.Typer(
    help="Fit a model to a table of data: groups, signatures, attributes, ...", no_args_is_help=True
)
app.add_typer(fit_app, name="fit")
select_app = typer.Typer(help="Choose the number of components or latents.", no_args_is_help=True)
app.add_typer(select_app, name="select")
study_app = typer.Typer(
    help="Repeat a published study with data of a known truth.", no_args_is_help=True
)
app.add_typer(study_app, name="study")

USER_ERROR, INTERRUPTED = 2, 130
pressed = threading.Event()  # Ctrl-C
RESPONSES = {
    "bernoulli": "Bernoulli",
    "poisson": "Poisson",
    "normal": "Normal",
    "lognormal": "LogNormal",
    "negative-binomial": "NegativeBinomial",
}
MOST_NAMED = 6
LOGGERS = ("inference", "ppl_models")
logger = logging.getLogger(__name__)


class Engine(StrEnum):
    """How a fit is made."""

    auto = "auto"
    em = "em"
    saem = "saem"
    laplace = "laplace"
    svi = "svi"
    nuts = "nuts"


class Gaps(StrEnum):
    """What becomes of rows that lack a covariate."""

    refuse = "refuse"
    drop = "drop"


Table = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help=(
            "Table with one row a unit: csv, tsv, parquet, arrow, npy, npz (file.npz:array), or a"
            " folder of parquet files."
        ),
    ),
]
BlockRows = Annotated[
    int | None,
    typer.Option(
        "--block-rows",
        metavar="N",
        min=1,
        help=(
            "Read so many rows at a time, and hold no more: parquet, arrow "
            "and npy files of more than 65,536 rows are read so by "
            "themselves, 65,536 at a time."
        ),
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B,...",
        help=(
            "Columns to use; all where this is left out. Leave ids, names and constant columns out"
            " here."
        ),
    ),
]
Restarts = Annotated[
    int | None,
    typer.Option(
        "--restarts",
        "--starts",
        min=1,
        help=(
            "Starts run as one batch, the best reported; as many as the model recommends where it"
            " is left out."
        ),
    ),
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="FILE",
        help="File that holds the running fit; the same command then resumes from it.",
    ),
]
Out = Annotated[
    Path, typer.Option("--out", help="Folder for the results; made if need be.", show_default=True)
]
ROWS = "posterior.csv"  # a line a row
PLAIN_GRID = "; 1:6 where it is left out, and 1:12 if 6 are too few"
Components = Annotated[
    str | None,
    typer.Option(
        "--k",
        "--components",
        metavar="FIRST:LAST",
        help=f"Numbers of components to compare, both ends included{PLAIN_GRID}.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="One seed makes one answer.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace results that lie in the output folder.")
]
NoProgress = Annotated[
    bool, typer.Option("--no-progress", help="Say nothing of the progress on standard error.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say on standard error what is being done.")
]
ImageShape = Annotated[
    str | None,
    typer.Option(
        "--image-shape",
        metavar="ROWS,COLUMNS",
        help="The items are the pixels of an image, row by row.",
    ),
]
CovariateColumns = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help=(
            "Columns, beside those of --columns, that the group or the deepest latents of a row"
            " depend on; those of texts count as categories."
        ),
    ),
]
CovariatesMissing = Annotated[
    Gaps,
    typer.Option(
        "--covariates-missing",
        help="Where rows lack a covariate: refuse the table, or drop these rows and say how many.",
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(metadata.version("ppl-models"))
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and leave."
        ),
    ] = False,
) -> None:
    """Fit probabilistic programs with discrete latent variables, check them and draw them.

    To begin: ppl-models fit mixture data.csv --components 3 --out groups, then open
    groups/report.html in a browser; ppl-models fit --help lists the models.
    """


# ------------------------------------------------------------------------ steps


def run(
    model: Any,
    frame: pd.DataFrame | RowBlocks,
    init: str | Fit | None,
    restarts: int | None,
    seed: int,
    checkpoint: Path | None,
    progress: bool,
    engine: Engine = Engine.auto,
    first: Fit | None = None,
) -> Fit:
    """Fit, and say on standard error what the library warned of; rows in blocks by EM, from
    ``first`` where a sample was fitted before.
    """
    from inference import EM, NUTS, SAEM, SVI, ChoosePenalty, FullRank, Laplace, RowBlocks, fit
    from inference.cli.blocks.fitted import fit_blocks
    from inference.programs.global_state import quiet

    methods: dict[Engine, Method | None] = {
        Engine.auto: None, Engine.em: ChoosePenalty(EM()), Engine.saem: ChoosePenalty(SAEM()),
        Engine.laplace: Laplace(), Engine.svi: SVI(FullRank()), Engine.nuts: NUTS(),
    }  # fmt: skip
    method = methods[engine]
    with quiet():  # kept by the fit, and said below in one line each
        if isinstance(frame, RowBlocks):
            result = fit_blocks(model, frame, init, restarts, seed, checkpoint, progress, first)
        else:
            result = fit(
                model,
                frame,
                method,
                init=init,
                num_restarts=restarts,
                seed=seed,
                progress=progress,
                checkpoint=checkpoint,
            )
    for text in result.warnings:
        warn(text)
    return result


def engine_in_memory(engine: Engine) -> str:
    """Why an engine wants its rows in memory; "" for EM."""
    return (
        ""
        if engine in (Engine.auto, Engine.em)
        else f"--engine {engine.value} wants its rows in memory; em reads them in blocks"
    )


def warn(text: str) -> None:
    """One line on standard error."""
    typer.echo(f"warning: {' '.join(text.split())}", err=True)


def say_blocks(blocks: RowBlocks, chosen: str = "") -> None:
    """That rows are read in blocks, and what is ``chosen`` on a sample of them."""
    from inference.base.streaming.row_blocks import SAMPLE_ROWS

    sample = (
        ""
        if len(blocks) <= SAMPLE_ROWS
        else (
            f"; {chosen or 'the start'} comes from {SAMPLE_ROWS:,} of them, drawn at random, the"
            " estimates from all"
        )
    )
    typer.echo(
        f"{counted(len(blocks), 'row')}, read in blocks of"
        f" {min(blocks.block_rows, len(blocks)):,}{sample}."
    )


def deliver(
    result: Fit,
    frame: pd.DataFrame | RowBlocks,
    out: Path,
    image_shape: tuple[int, int] | None,
    read_as: dict[str, Any] | None = None,
    of_rows: bool = True,
) -> None:
    """Write the folder of a fit and say what lies there; with ``of_rows`` what it says of each row,
    too.
    """
    from inference.fitting.repr import course_of
    from inference.report.results_folder import FIT, KEPT, POSTERIOR, REPORT, SUMMARY, write_results

    summary = write_results(result, frame, out, image_shape, read_as)
    if KEPT in summary:
        typer.echo(
            f"Of the {result.num_rows:,} rows the folder keeps {summary[KEPT]:,}, drawn at random,"
            " for the checks and pictures of its page."
        )
    typer.echo(
        f"{course_of(result)}, {result.seconds:.1f} s\n{result.likelihood_name}"
        f" {result.log_likelihood:.2f}, {_objective(result)}\nresults in {out}: {REPORT} (open it"
        f" in a browser), {POSTERIOR} (ArviZ), {FIT}/ (Fit.load), {SUMMARY}"
    )
    if of_rows:
        typer.echo(write_rows(result, frame, out / ROWS))


def check_out(out: Path, overwrite: bool, checkpoint: Path | None = None) -> None:
    """Refuse a folder for results that holds something else, before any work; a checkpoint and its
    stages may lie in it.
    """
    from inference.report.results_folder import check_output_folder

    check_output_folder(
        out, overwrite, () if checkpoint is None else (checkpoint, *_stages(checkpoint))
    )


def _stages(checkpoint: Path) -> list[Path]:
    """Files beside a checkpoint that hold parts of its fit."""
    return list(checkpoint.parent.glob(f"{checkpoint.name}.*")) if checkpoint.name else []


class _OnStandardError(logging.Handler):
    """Lines on whatever standard error is when they come: a running bar takes its place."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)


def _objective(result: Fit) -> str:
    """What was maximised, and BIC where there is one; a number a row has more digits."""
    if result.why_no_criteria is None:
        return f"{result.objective_name} {result.objective:.2f}, BIC {result.bic:.2f}"
    return f"{result.objective_name} {result.objective:.5f}"


@contextmanager
def _telling(verbose: bool) -> Iterator[None]:
    """What the library logs, on standard error, if that is wanted."""
    loggers = [logging.getLogger(name) for name in LOGGERS] if verbose else []
    before = [one.level for one in loggers]
    handler = _OnStandardError()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    for one in loggers:
        one.addHandler(handler)
        one.setLevel(logging.INFO)
    try:
        yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.removeHandler(handler)
            one.setLevel(level)


@contextmanager
def one_line_errors(
    checkpoint: Path | None,
    verbose: bool = False,
    can_resume: bool = False,
    out: Path | None = None,
    overwrite: bool = False,
) -> Iterator[None]:
    """The user's errors as one line and exit code 2, an interrupt as one line and exit code 130.

    Args:
        checkpoint: that a fit is kept in; verbose: say what is being done; can_resume: whether the
            command has ``--checkpoint``.
        out: folder for the results, None for a command that writes none; overwrite: whether it may
            replace older ones.
    """
    before = _saved_fit(out)
    try:
        with _telling(verbose):
            yield
    except BaseException as error:
        saved = "" if out is None or _saved_fit(out) in (None, before) else _how_saved(out)
        code = USER_ERROR
        if isinstance(error, KeyboardInterrupt) or pressed.is_set():
            text, code = (
                f"interrupted; {saved or _how_to_go_on(checkpoint, can_resume, out, overwrite)}",
                INTERRUPTED,
            )
        elif isinstance(error, ValueError | OSError):
            text = f"error: {' '.join(str(error).split())}{saved and f'; {saved}'}"
        elif isinstance(error, MemoryError) or (
            isinstance(error, RuntimeError) and "allocate memory" in str(error)
        ):
            text = (
                "error: the memory of this machine is too small for these data and sizes"
                f" ({' '.join(str(error).split())[:200]}){saved and f'; {saved}'}"
            )
        else:
            raise
        typer.echo(text, err=True)
        raise typer.Exit(code) from None


def _saved_fit(out: Path | None) -> tuple[int, int] | None:
    """What tells the fit in a folder of results from another one in its place; None where there is
    none.
    """
    try:
        found = None if out is None else (out / "fit" / "fit.safetensors").stat()
    except (OSError, ValueError):  # a path that cannot be, which is said where it is looked at
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns)


def _how_saved(out: Path) -> str:
    from inference.report.results_folder import FIT, REPORT

    if (out / REPORT).exists():
        return f"the fit is saved in {out / FIT}, and its page is {out / REPORT}"
    return f"the fit is saved in {out / FIT}: ppl-models report {out / FIT} DATA makes its page"


def _how_to_go_on(
    checkpoint: Path | None, can_resume: bool, out: Path | None, overwrite: bool
) -> str:
    """What an interrupt leaves, where no fit was saved."""
    if checkpoint is not None and (checkpoint.exists() or _stages(checkpoint)):
        return f"the fit so far is in {checkpoint}: the same command resumes from there"
    if checkpoint is not None:
        return f"nothing was written to {checkpoint} before the first iteration"
    if out is not None and not overwrite and out.is_dir() and any(out.iterdir()):
        return f"{out} holds a part of the results: the same command starts anew with --overwrite"
    return (
        "no checkpoint was kept (with --checkpoint FILE a fit can be resumed)"
        if can_resume
        else "the same command starts anew"
    )


def write_rows(
    result: Fit, data: pd.DataFrame | RowBlocks, path: Path, beside: pd.DataFrame | None = None
) -> str:
    """Write what a fit says of each row (of sequences, of each step): probabilities of its latents,
    the most probable ones, its log-likelihood.

    Args:
        result: the fit; data: as it takes them, or in blocks, of which one is held at a time; path:
            the csv file.
        beside: columns to write first; the numbers of the rows, from 0, where it is None (of
            sequences, where each step belongs).

    Returns:
        What the file holds, in words.
    """
    from inference import RowBlocks
    from inference.base.checkpoint import replacing
    from inference.cli.blocks.opened import numbered
    from ppl_models.datasets.files import to_csv

    shown: list[str] = []
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        for part in numbered(data) if isinstance(data, RowBlocks) else [data]:
            table, names, what = _answers(result, part, beside)
            to_csv(table, stream, header=not shown)
            shown = names
    local = result.structure.local_sites
    given = f", given the {' and '.join(local)} that suit it best" if local else ""
    listing = ", ".join(shown[:6]) + (", ..." if len(shown) > 6 else "")
    return (
        f"{path}: one line a {'step' if result.structure.row_columns else 'row'} with {listing},"
        f" and {what[0]} (of {what[1]}: {result.likelihood_name}{given})"
    )


def _answers(
    result: Fit, data: pd.DataFrame, beside: pd.DataFrame | None
) -> tuple[pd.DataFrame, list[str], tuple[str, str]]:
    """A line for each row, the names of what the fit says of it, and the name of the log-likelihood
    and whose it is.
    """
    import pandas as pd

    found = result.posterior_frame(data)
    likelihoods = result.log_likelihood_rows(data).detach().cpu().double().numpy()
    name, of_what, place = (
        "log_likelihood",
        "the row",
        [column for column in result.structure.row_columns if column in data.columns],
    )
    if result.structure.row_columns:  # sequences, in the order in which they appear
        order = pd.factorize(data["sequence"])[0] if "sequence" in place else [0] * len(data)
        name, of_what, likelihoods = (
            "log_likelihood_of_sequence",
            "the whole sequence",
            likelihoods[order],
        )
        first = (
            data[place] if place else pd.DataFrame({"row": range(len(found))}, index=found.index)
        )
    else:
        rows = data.index if pd.api.types.is_integer_dtype(data.index) else range(len(found))
        first = pd.DataFrame({"row": rows}, index=found.index)
    if beside is not None:
        first = pd.concat(
            [first, beside.drop(columns=place, errors="ignore").set_axis(found.index)], axis=1
        )
    return (
        pd.concat([first, found], axis=1).assign(**{name: likelihoods}),
        [str(column) for column in found.columns],
        (name, of_what),
    )


def write_csv(table: pd.DataFrame, path: Path, index_label: str | None = None) -> None:
    """Replace a file by a table, as a whole; without its index where that has no label."""
    from inference.base.checkpoint import replacing
    from ppl_models.datasets.files import to_csv

    if index_label is not None:
        table = table.reset_index(names=index_label, allow_duplicates=True)
    with replacing(path) as partial:
        to_csv(table, partial)


def write_picture(figure: Any, path: Path) -> None:
    """Replace a file by a picture, as a whole."""
    from inference.base.checkpoint import replacing

    with replacing(path) as partial:
        figure.savefig(partial, dpi=150, format="png")


def write_json(record: Any, path: Path) -> None:
    """Replace a file by a record, as a whole; numbers that are not finite become null."""
    from inference.base.checkpoint import write_whole

    write_whole(path, json.dumps(_finite(record), indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------------- options


def read_frame(
    path: str,
    columns: str | Sequence[str] | None = None,
    can_choose: bool = False,
    otherwise: str = "",
) -> pd.DataFrame:
    """A table of numbers.

    Args:
        path: the file; columns: those to read, a text of ``--columns`` or names; None for all.
        can_choose: whether the command has ``--columns``, which an entry that is no number calls
            for; otherwise: what else to do then.
    """
    import pandas as pd

    from ppl_models.datasets.files import EntryError, read_table

    try:
        table = read_table(
            path, columns=names_of(columns, "--columns") if isinstance(columns, str) else columns
        )
    except EntryError as error:
        raise EntryError(
            f"{error}; name the columns to use with --columns, without those of texts{otherwise}"
            if can_choose and columns is None
            else str(error)
        ) from None
    logger.info(
        "read %s: %s rows, %s columns", path, f"{len(table.values):,}", f"{len(table.names):,}"
    )
    return pd.DataFrame(table.values, columns=list(table.names))


def read_mixed(
    path: str, columns: str | Sequence[str] | None, texts: Collection[str] = (), remedy: str = ""
) -> pd.DataFrame:
    """A table in which columns of entries that are no numbers, and those of ``texts``, are texts,
    None where missing.

    Args:
        path: the file; columns: as for :func:`read_frame`; texts: names of columns that are texts
            whatever they hold.
        remedy: what else to do where a column holds both, ``{name}`` for its name.

    Raises:
        ValueError: also for a column that is not among ``texts`` and holds numbers and texts, of
            which one is likely a slip.
    """
    import pandas as pd

    from ppl_models.datasets.files import EntryError, inexact_entry, is_number, read_texts
    from ppl_models.parts.frames import misread_numbers

    names = names_of(columns, "--columns") if isinstance(columns, str) else columns
    if not texts:
        with suppress(EntryError):
            return read_frame(path, names)
    held = read_texts(path, names)
    logger.info(
        "read %s: %s rows, %s columns, some of texts",
        path,
        f"{len(next(iter(held.values()))):,}",
        f"{len(held):,}",
    )
    for name, own in held.items():
        other = [row for row, entry in enumerate(own) if entry is not None and not is_number(entry)]
        if (
            name not in texts
            and other
            and any(entry is not None and is_number(entry) for entry in own)
        ):
            misread = misread_numbers(dict.fromkeys(own[row] for row in other))
            if misread:
                raise ValueError(f"{path}: column {name!r} holds {misread}")
            words = f"column {name!r} holds numbers, and {own[other[0]]!r} in row {other[0]}" + (
                f" ({len(other):,} such rows)" if len(other) > 1 else ""
            )
            raise ValueError(
                f"{path}: {words}: leave such an entry empty if it is missing, or the column"
                f" out{remedy.format(name=name)}"
            )
        if name not in texts and not other:
            inexact = next(filter(None, map(inexact_entry, filter(None, own))), "")
            if inexact:
                raise ValueError(f"{path}: column {name!r}: {inexact}")
            held[name] = [math.nan if entry is None else float(entry) for entry in own]  # type: ignore[misc]
    return pd.DataFrame(held)


def columns_of(path: str) -> tuple[str, ...]:
    """Names of the columns of a table, whatever they hold."""
    from ppl_models.datasets.files import EntryError, read_table, read_texts

    with suppress(EntryError):
        return read_table(path).names
    return tuple(read_texts(path))


def read_csv(path: Path, dtype: Any = None, separator: str = ",") -> pd.DataFrame:
    """A csv file whose columns may hold texts, as pandas reads it."""
    import pandas as pd

    from ppl_models.datasets.files import own_texts

    try:
        return own_texts(
            pd.read_csv(path, dtype=dtype, sep=separator, keep_default_na=dtype is not str)
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: a csv file was expected ({error})") from error


def names_of(text: str, option: str) -> list[str]:
    """Names separated by commas; one that holds a comma stands in double quotes."""
    names = [name.strip() for line in csv.reader([text]) for name in line]
    if not names or not all(names):
        raise ValueError(f"{option}: names separated by commas were expected, got {text!r}")
    return names


def sizes_of(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{option}: whole numbers separated by commas were expected, got {text!r}"
        ) from None


def grid_of(text: str | None, option: str) -> list[int] | None:
    """Numbers to compare; None where none are given."""
    return None if text is None else range_of(text, option)


def range_of(text: str, option: str) -> list[int]:
    parts = text.replace("..", ":").split(":")
    if not (
        len(parts) == 2
        and all(part.isdigit() for part in parts)
        and 1 <= int(parts[0]) <= int(parts[1])
    ):
        raise ValueError(f"{option}: FIRST:LAST with 1 <= FIRST <= LAST was expected, got {text!r}")
    return list(range(int(parts[0]), int(parts[1]) + 1))


def response_of(text: str, others: Collection[str] = ()) -> ResponseFamily:
    """The family of the items; ``others`` are laws that the command offers beside families, for all
    columns together.
    """
    import ppl_models

    blocks: list[tuple[ResponseFamily, int | None]] = []
    for name, count in blocks_of(text, "--response"):
        if name not in RESPONSES:
            alone = "" if not others else f", or {' or '.join(others)} for all columns together,"
            raise ValueError(
                f"--response: {', '.join(RESPONSES)}, or blocks of them,{alone} were expected, got"
                f" {name!r}"
            )
        blocks.append((getattr(ppl_models, RESPONSES[name])(), count))
    return blocks[0][0] if blocks[0][1] is None else ppl_models.Blocks(*blocks)


def blocks_of(text: str, option: str) -> list[tuple[str, int | None]]:
    """Names with numbers of items, NAME:NUMBER,NAME:NUMBER; or one name for all, without a
    number.
    """
    if ":" not in text:
        return [(text, None)]
    blocks: list[tuple[str, int | None]] = []
    for part in text.split(","):
        name, _, count = part.partition(":")
        if not count.isdecimal():
            raise ValueError(f"{option}: blocks are written NAME:NUMBER,NAME:NUMBER, got {text!r}")
        blocks.append((name, int(count)))
    return blocks


def shape_of(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    sizes = sizes_of(text, "--image-shape")
    if len(sizes) != 2 or min(sizes) < 1:
        raise ValueError(
            f"--image-shape: two positive numbers, rows and columns, were expected, got {text!r}"
        )
    return sizes[0], sizes[1]


def check_image(shape: tuple[int, int] | None, num_items: int) -> None:
    if shape is not None and shape[0] * shape[1] != num_items:
        raise ValueError(
            f"--image-shape: {shape[0]} x {shape[1]} pixels do not make the {num_items} items of"
            " the data"
        )


# ---------------------------------------------------------------- covariates


def read_covariates(data: str, covariates: str | None) -> pd.DataFrame | None:
    """The columns named, None where none are."""
    return None if covariates is None else read_mixed(data, names_of(covariates, "--covariates"))


def item_columns(
    data: str, columns: str | None, given: pd.DataFrame | None
) -> str | list[str] | None:
    """The columns of the items: those asked for, or all but the covariates.

    Raises:
        ValueError: for a column that is asked for as both.
    """
    if given is None:
        return columns
    names = list(columns_of(data)) if columns is None else names_of(columns, "--columns")
    both = [name for name in given if name in names]
    if columns is not None and both:
        raise ValueError(
            f"--covariates: {listed(both)} cannot be among --columns too: what a row depends on is"
            " not what it is made of"
        )
    return [name for name in names if name not in list(given)]


def with_covariates(
    frame: pd.DataFrame, given: pd.DataFrame | None, gaps: Gaps
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Items and covariates of the rows that have all of these, where others are to be dropped.

    Raises:
        ValueError: where they are not, naming the first.
    """
    if given is None:
        return frame, given
    kept = given.notna().all(axis=1)
    if gaps is Gaps.refuse:
        if not kept.all():
            row = int((~kept).to_numpy().argmax())
            name = given.columns[given.iloc[row].isna().to_numpy().argmax()]
            raise ValueError(
                f"--covariates: covariate {name!r} is missing in row {row} ({int((~kept).sum())} of"
                f" {len(kept):,} rows lack a covariate): fill the entries, or leave these rows out"
                " by --covariates-missing drop"
            )
        return frame, given
    typer.echo(
        f"{counted(int((~kept).sum()), 'row')} of {len(kept):,} that lack a covariate"
        f" {'is' if (~kept).sum() == 1 else 'are'} left out."
    )
    return frame[kept], given[kept]


def joined(
    frame: pd.DataFrame, given: pd.DataFrame | None
) -> tuple[pd.DataFrame, Covariates | None]:
    """Items with the covariates beside them, and these as a model takes them."""
    from ppl_models.descriptions.covariates import Covariates

    if given is None:
        return frame, None
    return frame.assign(**{str(name): given[name] for name in given}), Covariates.from_frame(given)


def listed(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (
        f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    )
