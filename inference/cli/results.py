"""Commands on folders of results: predict, report, check, compare, causal; and the demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inference.base.structure import column_levels
from inference.cli.app import (
    ROWS,
    Call,
    app,
    command,
    deliver,
    run,
    warn,
    warned,
    write_csv,
    write_json,
    write_picture,
    write_rows,
)
from inference.cli.reading import (
    columns_of,
    names_of,
    read_csv,
    read_frame,
    read_mixed,
    shape_of,
    whole_times,
)
from inference.cli.streaming import open_source, under_names
from ppl_models.parts.repr import counted

if TYPE_CHECKING:
    import pandas as pd

    from inference.base.streaming.row_blocks import RowBlocks
    from inference.fitting.result import Fit

SAME_ROWS = 1e-4  # relative difference of log-likelihoods of the same rows, in single precision too
TEXT = {".csv": ",", ".tsv": "\t"}
DEMO_LATENTS = (10, 3)
GRAPH, PAGE, PICTURE = "graph.json", "causal.html", "causal.png"


@command(app, "predict")
def predict(call: Call) -> None:
    """Predict the latents of new rows."""
    from inference.base.checkpoint import usable_path
    from inference.report.results_folder import read_results

    file = usable_path("--out", call.file)
    if file.exists() and not call.overwrite:
        raise ValueError(f"{file} exists: name another file, or allow to overwrite (--overwrite)")
    fit, _, summary = read_results(call.folder)
    beside = None if call.keep is None else _kept(call.data, call.keep)
    rows = rows_of(fit, call.data, summary.get("read_as", {}), call.block_rows)
    with warned():
        file.parent.mkdir(parents=True, exist_ok=True)
        written = write_rows(fit, rows, file, beside)
    typer.echo(
        f"{counted(len(rows), 'time point' if fit.structure.row_columns else 'row')}: {file}:"
        f" {written}"
    )


def rows_of(
    fit: Fit, data: str, read_as: dict[str, Any], block_rows: int | None
) -> pd.DataFrame | RowBlocks:
    """The rows of a file under the columns of a fit; those of a large one in blocks."""
    blocks = _blocks(fit, data, block_rows)
    return _rows(fit, data, read_as) if blocks is None else blocks


def _blocks(fit: Fit, data: str, block_rows: int | None) -> RowBlocks | None:
    """Row blocks of a large file under the columns of the fit; None for a smaller one."""
    named = [str(name) for name in fit.item_names]
    by_place, is_array = (
        named == [str(j) for j in range(len(named))],
        Path(data).suffix.lower() == ".npy",
    )
    why = (
        f"{fit.model_name} is a model of sequences, which are read as a whole"
        if fit.structure.row_columns
        else ""
    )
    found = open_source(data, None if by_place or is_array else named, block_rows, why)
    if found is not None and (by_place or is_array):
        _check_number(data, len(next(iter(found)).columns), named)
    return under_names(found, named) if found is not None and is_array else found


def _rows(fit: Fit, data: str, read_as: dict[str, Any]) -> pd.DataFrame:
    """Rows under the columns of the fit.

    Columns without names are taken by place; sequences with places and codes as the fit read them.
    """
    from inference.report.results_folder import is_whole

    levels = column_levels(fit.structure, fit.item_names)
    # whole numbers are read as numbers: a column with gaps may hold 1.0 for 1
    texts = [name for name, own in levels.items() if not all(map(is_whole, own))]
    if fit.structure.row_columns:
        places = read_as.get("columns", {})
        known = {*fit.item_names, *fit.structure.row_columns, *places.values()}
        labels = [places.get("sequence", "sequence"), "sequence", *texts]
        found = [name for name in columns_of(data) if name in known]
        frame = read_mixed(data, found or None, labels)
        for place, column in read_as.get("columns", {}).items():
            if column not in frame and place not in frame:
                raise ValueError(
                    f"{data}: no column is named {column!r}, which said the {place} of each row"
                    " when the model was fitted"
                )
            frame = frame.rename(columns={column: place}) if place not in frame else frame
        for place, codes in read_as.get("codes", {}).items():
            unknown = sorted(set(frame[place].dropna().astype(str)) - set(codes))
            if unknown:
                raise ValueError(
                    f"{data}: the {place} {unknown[0]!r} was not met when the model was fitted;"
                    f" those known are {', '.join(codes)}"
                )
            frame[place] = frame[place].map(codes)
        return whole_times(frame)
    named = [str(name) for name in fit.item_names]
    are_numbers = named == [str(j) for j in range(len(named))]
    has_names = Path(data.rpartition(":")[0] or data).suffix.lower() not in (".npy", ".npz")
    if has_names and not are_numbers:
        _refuse_transposed(data, named)
        return read_mixed(_answered(data, named), named, texts)
    return _by_place(data, read_frame(data), named)


def _answered(data: str, named: list[str]) -> Call | str:
    """Source of the rows; of a file whose lines are answers to the items of the fit, that way."""
    from ppl_models.data.files import long_columns

    if set(named) & set(columns_of(data)):
        return data
    found = long_columns(data)
    if found is None:
        return data
    typer.echo(f"Each line of the file is taken for one answer: {', '.join(found)}.")
    return Call(data=data, long=found)


def _refuse_transposed(data: str, named: list[str]) -> None:
    """Refuse a table whose rows have the names of the columns of the fit."""
    from ppl_models.data.files import read_frame as read

    names = columns_of(data)
    if set(named) & set(names) or len(named) < 2:
        return
    labels = set(map(str, read(data, texts=names).index))
    if labels >= set(named):
        raise ValueError(
            f"{data}: the columns of the fit, such as {named[0]!r}, are the rows of this table,"
            " which lies on its side: transpose it"
        )


def _by_place(data: str, frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    _check_number(data, frame.shape[1], names)
    return frame.set_axis(names, axis=1)


def _check_number(data: str, found: int, names: list[str]) -> None:
    if found != len(names):
        raise ValueError(f"{data}: the {len(names)} columns of the fit were expected, got {found}")


def _kept(data: str, keep: str) -> pd.DataFrame:
    """Columns as they stand in the file, texts and all."""
    ending = Path(data).suffix.lower()
    if ending not in TEXT:
        raise ValueError(f"--keep: columns can be copied from csv and tsv files, got {data}")
    names, table = names_of(keep, "--keep"), read_csv(Path(data), TEXT[ending])
    missing = [name for name in names if name not in table]
    if missing:
        raise ValueError(
            f"--keep: {data} has no column {missing[0]!r}; the columns are"
            f" {', '.join(map(str, table.columns))}"
        )
    return table[names]


@command(app, "report")
def report(call: Call) -> None:
    """Write the report of a fit."""
    folder, data, image_shape = call.folder, call.data, call.image_shape
    from inference.report.results_folder import SUMMARY, add_report, read_results

    if data is not None:
        _finish(call, data)
        return
    if _saved(folder).is_dir() and not (folder / SUMMARY).exists():
        raise ValueError(
            f"{folder} holds a saved fit without its data: name the table that it was made of,"
            f" ppl-models report {folder} DATA"
        )
    fit, frame, summary = read_results(folder)
    shape = shape_of(image_shape, frame.shape[1])
    summary["image_shape"] = summary.get("image_shape") if shape is None else list(shape)
    typer.echo(f"report: {add_report(fit, frame, folder, summary, not call.no_progress)}")


def _finish(call: Call, data: str) -> None:
    """The results of a saved fit, in the folder that holds it.

    Raises:
        ValueError: for a folder without a fit, or whose results are there already; or for rows that
            are not those of the fit.
    """
    from inference.fitting.result import Fit
    from inference.report.results_folder import FIT, REPORT, SUMMARY

    saved = _saved(call.folder)
    out = saved.parent if saved.name == FIT else saved
    held = [name for name in (SUMMARY, REPORT, ROWS) if (out / name).exists()]
    if held:
        raise ValueError(
            f"{out} holds {' and '.join(held)} already: ppl-models report {out}, without DATA,"
            " writes the page anew"
        )
    fit = Fit.load(saved)
    rows = rows_of(fit, data, {}, None)
    shape = shape_of(call.image_shape, len(fit.item_names))
    _check_rows(fit, rows, data)
    deliver(fit, rows, Call(**vars(call) | {"out": out, "no_report": False}), shape)


def _saved(folder: Path) -> Path:
    """Folder of the saved fit within a folder of results."""
    from inference.report.results_folder import FIT

    return folder if (folder / "fit.safetensors").is_file() else folder / FIT


def _check_rows(fit: Fit, rows: pd.DataFrame | RowBlocks, data: str) -> None:
    """Refuse rows that a fit was not made of.

    Raises:
        ValueError: for another number of rows, or another log-likelihood where it is known of every
            row.
    """
    if not fit.structure.row_columns and len(rows) != fit.num_rows:
        raise ValueError(
            f"{data}: the fit was made of {fit.num_rows:,} rows, and the table has {len(rows):,}"
        )
    log_likelihood = float(fit.log_likelihood_rows(rows).double().sum())
    if (
        not fit.structure.local_sites
        and fit.draws is None
        and not fit.labels  # whose log-likelihood is that of both
        and abs(log_likelihood - fit.log_likelihood) > SAME_ROWS * max(1.0, abs(log_likelihood))
    ):
        raise ValueError(
            f"{data}: the rows have {fit.likelihood_name} {log_likelihood:.2f} under the fit, and"
            f" {fit.log_likelihood:.2f} was that of its own: they are other rows, or were read in"
            " another way"
        )


@command(app, "check")
def check(call: Call) -> None:
    """Check identifiability."""
    from inference.identifiability.of_fit import identifiability_of
    from inference.report.results_folder import read_results

    fit, frame, _ = read_results(call.folder)
    verdict = identifiability_of(fit, frame)
    silent = (
        "Nothing was decided: the model has too many parameters for its rows, or rows that"
        " cannot be judged one by one."
    )
    typer.echo(silent if verdict is None else verdict.text())


@command(app, "compare")
def compare(call: Call) -> None:
    """Compare fits of the same data."""
    folders, out = call.folders, call.out
    from inference.comparison import compare as compare_fits
    from inference.programs.global_state import quiet
    from inference.report.comparison import in_words, write_comparison_report
    from inference.report.results_folder import read_results, refuse_sample

    names = _names(folders)
    read = {name: read_results(folder) for name, folder in zip(names, folders, strict=True)}
    for folder, (fit, _, summary) in zip(folders, read.values(), strict=True):
        refuse_sample(folder, fit, summary, "a comparison")
    first, data, summary = next(iter(read.values()))
    rows = None if call.test is None else _rows(first, call.test, summary.get("read_as", {}))
    with quiet():  # kept by the comparison, and said below in one line each
        result = compare_fits(
            {name: part[0] for name, part in read.items()},
            data,
            rows,
            num_folds=call.folds,
            seed=call.seed,
        )
    for note in result.warnings:
        warn(note)
    out.mkdir(parents=True, exist_ok=True)
    write_csv(result.table, out / "comparison.csv", index_label=result.table.index.name or "")
    page = write_comparison_report(result, out / "comparison.html")
    columns = ["engine", "elpd", "elpd_diff", "diff_se", "bic", "converged", "seconds"]
    typer.echo(result.table[columns].round(2).to_string())
    typer.echo(" ".join(in_words(result)))
    typer.echo(f"results in {out}: {page.name} (open it in a browser), comparison.csv")


def _names(folders: list[Path]) -> list[str]:
    """Last parts of the paths, whole paths where those are not distinct."""
    if len(folders) < 2:
        raise ValueError(f"compare: at least two folders were expected, got {len(folders)}")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("compare: each folder once was expected, got one twice")
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


@command(app, "demo")
def demo(call: Call) -> None:
    """Fit the demonstration."""
    import pandas as pd

    from ppl_models.datasets import load_digits
    from ppl_models.deep_discrete_encoder import DeepDiscreteEncoder
    from ppl_models.parts.penalties import TruncatedLasso

    digits = load_digits()
    frame = pd.DataFrame(digits.items, columns=list(digits.item_names))
    model = DeepDiscreteEncoder(
        frame.shape[1], DEMO_LATENTS, penalty=TruncatedLasso.for_rows(len(frame))
    )
    call.restarts = 1
    result = run(model, frame, call, "spectral")
    deliver(result, frame, call, digits.image_shape)


@command(app, "causal")
def causal(call: Call) -> None:
    """Find a graph of causes among attributes."""
    folder = call.folder
    from inference.causal.of_fit import MOST_SUMMED, discover_attributes
    from inference.causal.scores import BIC, BDeu, Score
    from inference.causal.structural_em import AttributeNetwork
    from inference.report.causal import causal_record, verdict_in_words, write_causal_report
    from inference.report.results_folder import read_results, refuse_sample
    from inference.structures.attribute_groups import AttributeGroupsStructure

    fit, frame, summary = read_results(folder)
    refuse_sample(folder, fit, summary, "a graph of causes")
    if isinstance(fit.structure, AttributeGroupsStructure):
        raise ValueError(
            f"{folder}: a fit of several groups, each with its own distribution; a graph is looked"
            " for in one of them: fit its rows by themselves"
        )
    root = fit.structure.root
    if (
        root is not None
        and fit.structure.layers
        and root.num_latents <= MOST_SUMMED
        and root.num_free < 2 ** fit.structure.layers[-1].num_parents - 1
    ):
        raise ValueError(
            f"{folder}: the attributes of this fit follow a structured distribution"
            f" ({root.equation}), so a graph found in it would only repeat what that distribution"
            " assumes;"
            " fit again with --root saturated, and then ask for the graph"
        )
    scores: dict[str | None, Score] = {"bic": BIC(), "bdeu": BDeu()}
    found = discover_attributes(
        fit,
        frame,
        score=scores.get(call.score),
        num_draws=call.draws,
        seed=call.seed,
    )
    if isinstance(found, AttributeNetwork):
        write_picture(found.plot().figure, folder / PICTURE)
        typer.echo(f"{found.text()}\nin {folder}: {PICTURE}")
        return
    write_json(causal_record(found), folder / GRAPH)
    write_causal_report(found, folder / PAGE)
    written = [GRAPH, PAGE]
    if found.determined:
        write_picture(found.plot().figure, folder / PICTURE)
        written.append(PICTURE)
    typer.echo(" ".join(verdict_in_words(found)))
    if found.determined and found.causal.edges:
        typer.echo("what is firm:\n" + found.causal.firm.text())
    typer.echo(f"in {folder}: {', '.join(written)}")
