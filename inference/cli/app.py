"""The command line's app: options and steps that its commands share.

Exit codes: 0 done; 2 the user's input is wrong, said in one line on standard error; 130
interrupted. Everything heavy is imported inside the commands.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import math
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inference.base.streaming.column_scan import numbered
from inference.cli.reading import (
    ROW_DISTRIBUTIONS,
    Call,
    choose_columns,
    read_fixed,
    read_labels,
    read_tied,
)
from inference.cli.streaming import fit_blocks
from ppl_models.data.items import EVERY

if TYPE_CHECKING:
    import pandas as pd

    from inference.base.streaming.row_blocks import RowBlocks
    from inference.base.structure import Method
    from inference.fitting.result import Fit


app = typer.Typer(
    name="ppl-models",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
fit_app, select_app, study_app = (
    typer.Typer(help=words, no_args_is_help=True)
    for words in (
        "Fit a model to a table of data: groups, signatures, attributes, ...",
        "Choose the number of components or latents.",
        "Repeat a published study with data of a known truth.",
    )
)
GROUPS = {"fit": fit_app, "select": select_app, "study": study_app}
for group in GROUPS:
    app.add_typer(GROUPS[group], name=group)

USER_ERROR, INTERRUPTED = 2, 130
pressed = threading.Event()  # Ctrl-C
ROWS = "posterior.csv"  # a line a row
LOGGERS = ("inference", "ppl_models")


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
            "--version",
            is_eager=True,
            callback=_show_version,
            help="Show the version and leave.",
        ),
    ] = False,
) -> None:
    """Fit probabilistic programs with discrete latent variables, check them and draw them.

    To begin: ppl-models fit mixture data.csv --components 3 --out groups, then open
    groups/report.html in a browser; ppl-models fit --help lists the models.
    """


# ---------------------------------------------------------------------- options

OPTIONS = Path(__file__).with_name("options.toml")
TYPES = {
    "text": str, "int": int, "float": float, "path": Path, "flag": bool,
    "texts": list[str], "paths": list[Path],
}  # fmt: skip
NAMES = {
    "families": ", ".join(map(str, (*EVERY, *ROW_DISTRIBUTIONS))),
    "item_families": ", ".join(EVERY),
}  # filled in where a help has them in braces


@functools.cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(OPTIONS.read_text(encoding="utf-8"))


def _choices(name: str, values: list[str]) -> Any:
    return StrEnum(name, [(value, value) for value in values])


def _options_of(name: str) -> list[inspect.Parameter]:
    """Parameters of a command, each with its type and what typer shows of it."""
    tables = _tables()[name]
    parameters = []
    for key in tables["names"].split():
        row = tables.get(key, key)
        row = dict(_tables()["shared"][row] if isinstance(row, str) else row)
        kind: Any = TYPES[row.pop("type", "text")]
        if "choices" in row:
            kind = _choices(key, row.pop("choices").split())
        default = ... if row.pop("required", False) else row.pop("default", None)
        flags = row.pop("flags", [])
        if kind is bool:
            default, flags = False, flags or ["--" + key.replace("_", "-")]
        elif default is None:
            kind = kind | None
        elif kind is Path and default is not ...:
            default = Path(default)
        shown = typer.Argument if row.pop("argument", False) else typer.Option
        row["help"] = row["help"].format(**NAMES)
        parameters.append(
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                default=shown(default, *flags, **row),
                annotation=kind,
            )
        )
    return parameters


def command(
    place: typer.Typer, name: str
) -> Callable[[Callable[[Call], None]], Callable[[Call], None]]:
    """Make a function of a call a command, with the help and the options of ``options.toml``.

    Args:
        place: the app or group that it belongs to.
        name: of the command.
    """
    group = next((group for group, member in GROUPS.items() if member is place), "")
    full_name = f"{group} {name}".strip()
    parameters = _options_of(full_name)

    def register(function: Callable[[Call], None]) -> Callable[[Call], None]:
        def called(**values: Any) -> None:
            call = Call(**values)
            out, checkpoint = values.get("out"), values.get("checkpoint")
            can_resume, overwrite = "checkpoint" in values, values.get("overwrite", False)
            with one_line_errors(checkpoint, call.verbose, can_resume, out, overwrite):
                if out is not None:
                    check_out(out, call.overwrite, checkpoint)
                if "columns" in values:
                    choose_columns(call)
                function(call)

        called.__doc__ = _tables()[full_name]["help"]
        called.__annotations__ = {part.name: part.annotation for part in parameters}
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        place.command(name)(called)
        return function

    return register


# ------------------------------------------------------------------------ steps


def run(
    model: Any, rows: Any, call: Call, init: str | Fit | None = None, first: Fit | None = None
) -> Fit:
    """Fit, and write the warnings of the library on standard error.

    Rows in blocks are fitted by EM, from ``first`` where a sample was fitted before.
    """
    from inference import EM, NUTS, SAEM, SVI, ChoosePenalty, FullRank, Laplace, RowBlocks, fit
    from inference.programs.global_state import quiet

    methods: dict[str, Method | None] = {
        "auto": None, "em": ChoosePenalty(EM()), "saem": ChoosePenalty(SAEM()),
        "laplace": Laplace(), "svi": SVI(FullRank()), "nuts": NUTS(),
    }  # fmt: skip
    settings = {
        "init": init,
        "num_restarts": call.restarts,
        "seed": call.seed,
        "progress": not call.no_progress,
        "checkpoint": getattr(call, "checkpoint", None),
    }
    with quiet():  # kept by the fit, and said below in one line each
        if isinstance(rows, RowBlocks):
            result = fit_blocks(model, rows, first, **settings)
        else:
            labels, error = read_labels(call), getattr(call, "label_error", None)
            method = methods[getattr(call, "engine", "auto")]
            known: dict[str, Any] = (
                {} if labels is None else {"labels": labels, "label_error": error or 0.0}
            )
            known |= {"fixed": read_fixed(call), "tied": read_tied(call)}
            result = fit(model, rows, method, **settings, **known)
    for text in result.warnings:
        warn(text)
    return result


def warn(text: str) -> None:
    """One line on standard error."""
    typer.echo(f"warning: {' '.join(text.split())}", err=True)


@contextmanager
def warned() -> Iterator[None]:
    """Warnings of what is done inside, each said once when it is done."""
    from inference.programs.global_state import listening

    with listening() as caught:
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        warn(text)


def deliver(
    result: Fit,
    frame: pd.DataFrame | RowBlocks,
    call: Call,
    image_shape: tuple[int, int] | None = None,
    read_as: dict[str, Any] | None = None,
    more: Mapping[str, Callable[[Path], str]] | None = None,
    reference: pd.DataFrame | None = None,
) -> None:
    """Write the folder of a fit, its page last, and print what it holds.

    Args:
        result: the fit.
        frame: its rows.
        call: with the folder, ``--no-report`` and ``--no-progress``; ``choice`` of it is the record
            of a choice that the command made, for the page.
        image_shape: of items that are pixels.
        read_as: how the rows were read from their file.
        more: files beside the results, by name, each with a function that writes it and returns
            what it holds in words; of None the posterior of the rows.
        reference: signatures that those of the fit are matched with on the page.
    """
    from inference.fitting.repr import course_of
    from inference.report.results_folder import (
        FIT,
        KEPT,
        POSTERIOR,
        SUMMARY,
        add_report,
        write_results,
    )

    out, held = call.out, dict[str, str]()
    files: dict[str, Callable[[Path], str]] = (
        {ROWS: functools.partial(write_rows, result, frame)} if more is None else dict(more)
    )

    def kept(name: str, write: Callable[[Path], str]) -> Callable[[Path], None]:
        return lambda path: held.update({name: write(path)})

    if getattr(call, "choice", None) is not None:
        files["sizes.csv"] = functools.partial(_write_sizes, call.choice)
    writers = {name: kept(name, write) for name, write in files.items()}
    summary = write_results(result, frame, out, image_shape, read_as, writers, report=False)
    if KEPT in summary:
        typer.echo(
            f"Of the {result.num_rows:,} rows the folder keeps {summary[KEPT]:,}, drawn at random,"
            " for the checks and pictures of its page."
        )
    typer.echo(
        f"{course_of(result)}, {result.seconds:.1f} s\n{result.likelihood_name}"
        f" {result.log_likelihood:.2f}, {_objective(result)}\nresults in {out}:"
        f" {POSTERIOR} (ArviZ), {FIT}/ (Fit.load), {SUMMARY}"
    )
    for name, words in held.items():
        typer.echo(f"{out / name}: {words}")
    if call.no_report:
        typer.echo(f"no page was made; ppl-models report {out} makes it")
    else:
        choice = getattr(call, "choice", None)
        page = add_report(result, frame, out, summary, not call.no_progress, choice, reference)
        typer.echo(f"page: {page} (open it in a browser)")


def _write_sizes(choice: Any, path: Path) -> str:
    write_csv(choice.table, path, index_label="components")
    return "one line a number that was compared"


def check_out(out: Path, overwrite: bool, checkpoint: Path | None = None) -> None:
    """Refuse a results folder with other contents, before any work.

    A checkpoint and its stages may lie in it.
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
    """Maximised objective, and BIC where there is one; per row with more digits."""
    if result.why_no_criteria is None:
        return f"{result.objective_name} {result.objective:.2f}, BIC {result.bic:.2f}"
    return f"{result.objective_name} {result.objective:.5f}"


@contextmanager
def _telling(verbose: bool) -> Iterator[None]:
    """Log the library's messages on standard error, if wanted."""
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
        checkpoint: that a fit is kept in.
        verbose: say what is being done.
        can_resume: whether the command has ``--checkpoint``.
        out: folder for the results, None for a command that writes none.
        overwrite: whether it may replace older ones.
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
    """Inode and time of the fit in a folder of results; None where there is none."""
    try:
        found = None if out is None else (out / "fit" / "fit.safetensors").stat()
    except (OSError, ValueError):  # a path that cannot be, which is said where it is looked at
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns)


def _how_saved(out: Path) -> str:
    from inference.report.results_folder import FIT, REPORT, SUMMARY

    if (out / REPORT).exists():
        return f"the fit is saved in {out / FIT}, and its page is {out / REPORT}"
    if (out / SUMMARY).exists():
        return f"all results but the page are in {out}: ppl-models report {out} makes it"
    return f"the fit is saved in {out / FIT}: ppl-models report {out / FIT} DATA makes its page"


def _how_to_go_on(
    checkpoint: Path | None, can_resume: bool, out: Path | None, overwrite: bool
) -> str:
    """Advice after an interrupt that left no fit."""
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
    """Write probabilities of latents, the most probable ones and log-likelihoods of rows.

    Of sequences, a line a step.

    Args:
        result: the fit.
        data: as it takes them, or in blocks, of which one is held at a time.
        path: the csv file.
        beside: columns to write first; the numbers of the rows, from 0, where it is None (of
            sequences, where each step belongs).

    Returns:
        What the file holds, in words.
    """
    from inference import RowBlocks
    from inference.base.checkpoint import replacing
    from ppl_models.data.files import to_csv

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
        f"one line a {'step' if result.structure.row_columns else 'row'} with {listing},"
        f" and {what[0]} (of {what[1]}: {result.likelihood_name}{given})"
    )


def _answers(
    result: Fit, data: pd.DataFrame, beside: pd.DataFrame | None
) -> tuple[pd.DataFrame, list[str], tuple[str, str]]:
    """Answers of each row, their names, and the name and scope of the log-likelihood."""
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
    else:  # names of the rows, or their numbers
        is_named = data.index.name is not None or pd.api.types.is_integer_dtype(data.index)
        rows = data.index if is_named else range(len(found))
        first = pd.DataFrame({data.index.name or "row": rows}, index=found.index)
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
    from ppl_models.data.files import to_csv

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
