"""The folder a fit is handed over in: the fit itself, an ArviZ file, a report, a summary.

``fit/``
    The fit, read again by ``Fit.load`` (safetensors and JSON; nothing executable).
``posterior.nc``
    ArviZ's netCDF, with the data, the log-likelihood and the latents' posterior.
``summary.json``
    Sizes, likelihood, convergence, versions, warnings; written last of these, so that a folder with
    it is whole.
``report.html``
    One self-contained page, made when all results are in place.
"""

from __future__ import annotations

import json
import logging
import math
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.base.checkpoint import usable_path, write_whole
from inference.base.streaming.row_blocks import RowBlocks
from inference.base.structure import column_levels
from inference.fitting.columns import Names, as_fitted, sample_of
from inference.identifiability.of_fit import identifiability_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inference.fitting.result import Fit


FIT, POSTERIOR, REPORT, SUMMARY = "fit", "posterior.nc", "report.html", "summary.json"
KEPT = "num_rows_kept"  # in the summary, where the folder has some of the rows
WRITING = ".writing"  # where results lie until they are whole
logger = logging.getLogger(__name__)
PACKAGES = ("ppl-models", "torch", "pyro-ppl", "numpy", "arviz")


def check_output_folder(
    path: str | Path, overwrite: bool = False, allowed: Sequence[str | Path] = ()
) -> Path:
    """The folder results may be written to; it need not exist yet, and is not made.

    Args:
        path: the folder, or a link to it.
        overwrite: let results of the same names be replaced; other files are never touched.
        allowed: files that may lie in it all the same, such as a running fit's checkpoint.

    Raises:
        ValueError: if it is a file, or holds something and ``overwrite`` is False; or if a folder
            that is to be written in it is a link to another place.
    """
    folder = usable_path("output folder", path, is_folder=True)
    for link in (folder / FIT, folder / WRITING):
        if link.is_symlink():
            raise ValueError(
                f"output folder {folder}: {link} is a link, and results are not written to where it"
                " leads: remove it, or name another folder"
            )
    if folder.is_dir() and not overwrite:
        known = {Path(file).absolute() for file in allowed} | {(folder / WRITING).absolute()}
        held = sorted(entry.name for entry in folder.iterdir() if entry.absolute() not in known)
        if held:
            shown = ", ".join(held[:4]) + (", ..." if len(held) > 4 else "")
            raise ValueError(
                f"output folder {folder} exists and is not empty ({shown}): name another, or allow"
                " to overwrite (--overwrite)"
            )
    return folder


def write_results(
    fit: Fit,
    data: Any,
    path: str | Path,
    image_shape: tuple[int, int] | None = None,
    read_as: Mapping[str, Any] | None = None,
    more: Mapping[str, Callable[[Path], Any]] | None = None,
    report: bool = True,
) -> dict[str, Any]:
    """Write fit, ArviZ file and summary into a folder, and then the report.

    Args:
        fit: the fit.
        data: the rows it was fitted to; of rows in blocks the folder keeps a sample of 20,000, and
            says so.
        path: the folder.
        image_shape: (rows, columns) where the items are the pixels of an image; loadings are then
            drawn as pictures.
        read_as: how the rows were read from their file, for whoever reads others; kept in the
            summary.
        more: further files by name, and what writes each to a path.
        report: make the page too (:func:`add_report`).

    Returns:
        What ``summary.json`` holds.
    """
    from inference.fitting.export import save_netcdf

    folder, blocks = (
        usable_path("output folder", path, is_folder=True),
        data if isinstance(data, RowBlocks) else None,
    )
    data = as_fitted(fit, data) if blocks is None else sample_of(fit, blocks)
    names = names_in(fit, read_as)
    with _in_place(folder, tuple(more or ())) as new:
        logger.info("writing the fit and the file for ArviZ")
        fit.save(new / FIT)
        save_netcdf(fit.to_arviz(data, names=names), new / POSTERIOR)
        for name, write in (more or {}).items():
            write(new / name)
        summary = summarise(fit, image_shape)
        summary |= {} if blocks is None or len(data) == fit.num_rows else {KEPT: len(data)}
        summary |= {} if read_as is None else {"read_as": dict(read_as)}
        _write_summary(summary, new)
    if report:
        add_report(fit, data if blocks is None else blocks, folder, summary)
    return summary


def add_report(
    fit: Fit,
    data: Any,
    folder: Path,
    summary: dict[str, Any],
    progress: bool = False,
    choice: Any = None,
    reference: Any = None,
) -> Path:
    """Make the page of results that are in place, and keep identifiability in their summary.

    Args:
        fit: the fit.
        data: its rows, in blocks or not.
        folder: of the results.
        summary: what ``summary.json`` holds; gets ``identifiability``.
        progress: say on standard error what is being done.
        choice, reference: as for :func:`inference.report.write_report`.
    """
    from inference.report.fit import write_report

    logger.info("writing the report")
    shape = summary.get("image_shape")
    rows = sample_of(fit, data) if isinstance(data, RowBlocks) else data
    verdict = identifiability_of(fit, rows)
    page = write_report(
        fit,
        data,
        folder / REPORT,
        image_shape=None if shape is None else (shape[0], shape[1]),
        names=names_in(fit, summary.get("read_as")),
        identifiability=verdict,
        progress=progress,
        choice=choice,
        reference=reference,
    )
    summary["identifiability"] = None if verdict is None else verdict.to_dict()
    _write_summary(summary, folder)
    return page


def _write_summary(summary: Mapping[str, Any], folder: Path) -> None:
    text = json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False)
    write_whole(folder / SUMMARY, text + "\n")


def names_in(fit: Fit, read_as: Mapping[str, Any] | None) -> Names | None:
    """Return the words of a file for states and actions, by dim; None without any.

    Args:
        fit: of these rows.
        read_as: how they were read, as :func:`write_results` was told.
    """
    found: dict[str, list[str]] = {}
    for place, codes in (read_as or {}).get("codes", {}).items():
        words = sorted(codes, key=codes.__getitem__)
        for site, dims in getattr(fit.model, "site_dims", {}).items():
            for dim, size in (
                zip(dims, fit.params[site].shape, strict=True) if site in fit.params else ()
            ):
                if dim in (place, f"next_{place}"):
                    found[dim] = [*words[:size], *map(str, range(len(words), size))]
    return found or None


@contextmanager
def _in_place(folder: Path, more: Sequence[str]) -> Iterator[Path]:
    """A folder to write results in, which take the place of older ones when they are whole.

    What is interrupted or fails leaves older results as they were; where there were none, what is
    whole already (the fit is written first) is kept, without a summary.
    """
    new = folder / WRITING
    shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
    new.mkdir(parents=True)
    try:
        yield new
        (folder / SUMMARY).unlink(
            missing_ok=True
        )  # from here to its return the folder is not whole
        (folder / REPORT).unlink(missing_ok=True)  # of older results
        _move(new, folder, (FIT, POSTERIOR, *more, SUMMARY))
    except BaseException:
        if not any((folder / name).exists() for name in (FIT, POSTERIOR, SUMMARY)):
            _move(new, folder, (FIT, POSTERIOR))
        raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _move(new: Path, folder: Path, names: Sequence[str]) -> None:
    """Files and folders of files from one folder to another, in this order."""
    for name in names:
        files = sorted((new / name).iterdir()) if (new / name).is_dir() else [new / name]
        for file in files:
            if file.exists():
                target = folder / file.relative_to(new)
                if (
                    target.parent != folder and target.parent.is_symlink()
                ):  # made since the folder was checked
                    target.parent.unlink()
                target.parent.mkdir(exist_ok=True)
                file.replace(target)


def read_results(
    path: str | Path, model: Callable[..., Any] | None = None
) -> tuple[Fit, Any, dict[str, Any]]:
    """Read the results that :func:`write_results` wrote.

    Args:
        path: the folder.
        model: the program, where it is not one of this library's.

    Returns:
        The fit; its data (of rows that came in blocks the sample that was kept), a data frame with
        the item names, and the names of categories in it (an array where they are no table); and
        the summary.

    Raises:
        ValueError: if the folder is not there or a part of it is missing or damaged.
    """
    import pandas as pd

    from inference.fitting.export import load_netcdf
    from inference.fitting.result import Fit

    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(f"{folder}: a folder with results was expected, but there is none")
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        if not isinstance(summary, dict):
            raise TypeError(f"{type(summary).__name__} at the top")
    except FileNotFoundError:
        raise ValueError(
            f"{folder}: a folder with results was expected, but it holds no {SUMMARY}"
        ) from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / SUMMARY}: not a summary of a fit ({error})") from error
    except OSError as error:
        raise ValueError(
            f"{folder / SUMMARY}: the file cannot be read: {error.strerror or error}"
        ) from error
    fit = Fit.load(folder / FIT, model)
    try:
        observed = load_netcdf(folder / POSTERIOR)["observed_data"]
    except KeyError:
        raise ValueError(
            f"{folder / POSTERIOR}: the group observed_data was expected, but is missing"
        ) from None
    if not len(observed.data_vars):
        raise ValueError(
            f"{folder / POSTERIOR}: the group observed_data was expected to hold the data, but is"
            " empty"
        )
    if len(observed.data_vars) > 1:  # a program that takes a dict
        return (
            fit,
            {str(name): values.values for name, values in observed.data_vars.items()},
            summary,
        )
    (values,) = observed.data_vars.values()
    if not fit.item_names:  # a program that takes what it takes
        return fit, values.values, summary
    if values.ndim != 2:  # sequences
        return fit, values.values, summary
    shape = (summary.get(KEPT, fit.num_rows), len(fit.item_names))
    if values.shape != shape:
        raise ValueError(
            f"{folder / POSTERIOR}: the data of the fit, of shape {shape}, were expected, got"
            f" {values.shape}"
        )
    frame = pd.DataFrame(values.values, columns=[str(name) for name in fit.item_names])
    for name, categories in column_levels(
        fit.structure, fit.item_names
    ).items():  # kept as codes; names that are whole numbers were numbers
        are_numbers = all(map(is_whole, categories))
        named: list[Any] = [float(own) if are_numbers else own for own in categories]
        frame[name] = [None if math.isnan(code) else named[int(code)] for code in frame[name]]
    return fit, frame, summary


def is_whole(level: str) -> bool:
    """Tell whether a name of a category is a whole number as it is written; 01 is none."""
    return level.removeprefix("-").isdecimal() and str(int(level)) == level


def refuse_sample(folder: str | Path, fit: Fit, summary: Mapping[str, Any], what: str) -> None:
    """Refuse a folder that keeps some of the rows of its fit, for what needs them all.

    Raises:
        ValueError: saying so.
    """
    if KEPT in summary:
        raise ValueError(
            f"{folder}: {what} needs all {fit.num_rows:,} rows of the fit; they were read in"
            f" blocks, and the folder keeps {summary[KEPT]:,} of them: fit so many rows in memory"
        )


def summarise(fit: Fit, image_shape: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return the numbers of a fit for JSON, None where not finite."""
    model: Any = fit.model
    num_items = len(fit.item_names) - fit.structure.num_given
    sizes: dict[str, Any] = {"num_rows": fit.num_rows, "num_items": num_items}
    if fit.structure.layers:
        sizes["latent_sizes"] = [layer.num_parents for layer in fit.structure.layers]
    sizes["num_parameters"] = fit.num_parameters
    return {
        "model": repr(model) if len(repr(model)) <= 2000 else type(model).__name__,
        "method": repr(fit.method),
        **sizes,
        "log_likelihood": _number(fit.log_likelihood),
        "log_likelihood_error": fit.log_likelihood_error,
        "log_likelihood_relative_to": fit.structure.relative_to,
        "objective": _number(fit.objective),
        "objective_name": fit.objective_name,
        "bic": _number(fit.bic) if fit.why_no_criteria is None else None,
        "converged": fit.converged,
        "num_iterations": fit.num_iterations,
        "seconds": _number(round(fit.seconds, 3)),
        "seed": fit.seed,
        "restarts": {
            "objective": [_number(value) for value in fit.restarts.objective.tolist()],
            "converged": fit.restarts.converged.tolist(),
            "best": fit.restarts.best,
        },
        "graphs": {site: graph.tolist() for site, graph in fit.graphs.items()},
        "choice": (
            None
            if fit.choice is None
            else {
                "penalties": [repr(fit.choice.penalties[i]) for i in fit.choice.penalty.tolist()],
                "num_edges": fit.choice.num_edges.tolist(),
                "ebic": [_number(value) for value in fit.choice.ebic.tolist()],
                "best": fit.choice.best,
            }
        ),
        "image_shape": None if image_shape is None else list(image_shape),
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in PACKAGES},
        },
        "warnings": list(fit.warnings),
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree
        return "unknown"
