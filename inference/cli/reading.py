"""Tables and texts of options as the commands read them, and the families of columns."""

from __future__ import annotations

import csv
import json
import logging
import re
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import typer

from ppl_models.data.items import (
    CATEGORIES,
    COUNTING,
    EVERY,
    RESPONSES,
    described,
    has_mutation_rows,
    in_order,
    read_items as items_read,
    refuse_lying,
    refuse_texts,
)
from ppl_models.descriptions.row_distributions import MultivariateNormal, MultivariateT, SkewNormal
from ppl_models.parts.repr import counted, listed

if TYPE_CHECKING:
    import pandas as pd

    from ppl_models.data.items import Response
    from ppl_models.descriptions.covariates import Covariates
    from ppl_models.parts.responses import ResponseFamily

Call = SimpleNamespace  # values of a command line, by the names of its options
ROW_DISTRIBUTIONS: dict[str | None, Any] = {
    "multivariate-normal": MultivariateNormal,
    "multivariate-t": MultivariateT,
    "skew-normal": SkewNormal,
}
logger = logging.getLogger(__name__)


def read_frame(
    source: Call | str, columns: Sequence[str] | None = None, can_choose: bool = False
) -> pd.DataFrame:
    """Read a table of numbers, its rows named as the file names them.

    Args:
        source: a command line, or a file.
        columns: those to read; None for all.
        can_choose: whether the command has ``--columns``, which an entry that is no number calls
            for.
    """
    from ppl_models.data.files import EntryError, read_frame as read

    try:
        return _logged(read(columns=columns, numbers=True, **_lies(source)), source)
    except EntryError as error:
        raise EntryError(
            f"{error}; name the columns to use with --columns, without those of texts"
            if can_choose and columns is None
            else str(error)
        ) from None


def read_counts(call: Call) -> pd.DataFrame:
    """Read a table for a factorization; one whose rows are types of mutation is turned."""
    frame = read_frame(call, call.columns, can_choose=True)
    if call.transpose or not has_mutation_rows(frame):
        return frame
    typer.echo("The rows of the file are types of mutation, so that the table is transposed.")
    call.transpose, call.columns, call.id = True, None, None
    return read_frame(call, can_choose=True)


def read_mixed(
    source: Call | str, columns: Sequence[str] | None, texts: Collection[str] = ()
) -> pd.DataFrame:
    """Read a table in which columns of entries that are no numbers are texts, None where missing.

    Args:
        source: a command line, or a file.
        columns: those to read; None for all.
        texts: columns that are texts whatever they hold.
    """
    from ppl_models.data.files import read_frame as read

    way = _lies(source)
    try:
        return _logged(read(columns=columns, texts=texts, **way), source)
    except ValueError:
        names = columns_of(source) if columns is None else columns
        refuse_lying(read(columns=columns, texts=names, **way), "say --transpose")
        raise


def _lies(source: Call | str) -> dict[str, Any]:
    """Layout of a table in its file: the path, the column of names, which way round."""
    if isinstance(source, str):
        return {"path": source}
    way = {"id": getattr(source, "id", None), "transpose": getattr(source, "transpose", False)}
    return {"path": source.data, "long": getattr(source, "long", None)} | way


def _logged(frame: pd.DataFrame, source: Call | str) -> pd.DataFrame:
    path = _lies(source)["path"]
    logger.info("read %s: %s rows, %s columns", path, f"{len(frame):,}", f"{frame.shape[1]:,}")
    return frame


def columns_of(source: Call | str) -> list[str]:
    """Names of the columns of a table, whatever they hold, without the one that names its rows."""
    from ppl_models.data.files import columns_chosen

    return columns_chosen(**_lies(source))[0]


def choose_columns(call: Call) -> None:
    """Spell out the columns of ``--columns`` and ``--drop``, where a command line has them."""
    from ppl_models.data.files import columns_chosen, long_columns

    if getattr(call, "long", None) is not None:
        call.long = names_of(call.long, "--long")
        if len(call.long) != 3:
            raise ValueError(
                "--long: the columns of the person, the item and the answer were expected, as"
                f" person,item,answer, got {', '.join(call.long)}"
            )
    elif hasattr(call, "long") and not (call.columns or call.drop or call.id or call.transpose):
        call.long = long_columns(call.data)
        if call.long:
            typer.echo(
                "Each line of the file is taken for one answer (--long {0},{1},{2}): each {0} is a"
                " row, and each {1} a column; --columns {0},{1},{2} takes it as it"
                " stands.".format(*call.long)
            )
    if call.columns is not None:
        call.columns = names_of(call.columns, "--columns")
    drop = None if call.drop is None else names_of(call.drop, "--drop")
    told = getattr(call, "labels", None)
    if told is not None:  # columns that are no items
        call.labels = names_of(told, "--labels")
        drop = [*(drop or ()), *call.labels]
    if (
        drop
        or call.id
        or call.transpose
        or getattr(call, "long", None)
        or any(".." in name for name in call.columns or ())
    ):
        given = getattr(call, "covariates", None)
        apart = [getattr(call, "groups", None)]
        apart += [] if given is None else names_of(given, "--covariates")
        names, call.id = columns_chosen(columns=call.columns, drop=drop or (), **_lies(call))
        call.columns = names if call.columns else [name for name in names if name not in apart]


def read_labels(call: Call) -> Any:
    """Labels of latents: one column, or one for each bit, None where a cell is empty."""
    import pandas as pd

    if getattr(call, "labels", None) is None:
        return None
    frame = read_mixed(call, call.labels, call.labels)[call.labels]
    texts = frame.astype(object).where(frame.notna(), None)
    try:
        codes = texts.apply(pd.to_numeric).to_numpy(dtype=float)
    except (TypeError, ValueError):
        codes = texts.replace("-1", None).to_numpy()
    if codes.shape[1] == 1:
        return codes[:, 0]
    return pd.DataFrame(codes, texts.index, call.labels)


def read_fixed(call: Call) -> Any:
    """Known parameters: a JSON file of all, or ``site=file.csv`` for tables with names."""
    text = getattr(call, "fixed", None)
    if text is None or "=" not in text or text.endswith(".json"):
        return text
    pairs = [part.partition("=") for part in names_of(text, "--fixed")]
    for site, sign, path in pairs:
        if not (site and sign and path):
            raise ValueError(
                f"--fixed: file.json, or site=file.csv for one or several parameters, was expected,"
                f" got {text!r}"
            )
    return {site: path for site, _, path in pairs}


def read_tied(call: Call) -> Any:
    """Equal parameters: ``site=axis``, or a JSON file of whole numbers by site."""
    text = getattr(call, "tied", None)
    if text is None:
        return None
    wanted = "--tied: NAME=AXIS, as dispersion=0, or a JSON file of tables by site, was expected"
    if text.endswith(".json"):
        try:
            return json.loads(Path(text).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{wanted} ({error})") from error
    out: dict[str, int] = {}
    for part in names_of(text, "--tied"):
        site, _, axis = part.partition("=")
        if not site or re.fullmatch(r"-?\d+", axis) is None:
            raise ValueError(f"{wanted}, got {text!r}")
        out[site] = int(axis)
    return out


def read_csv(path: Path, separator: str) -> pd.DataFrame:
    """Read a text file as it stands, every entry a text."""
    import pandas as pd

    from ppl_models.data.files import own_texts

    try:
        return own_texts(pd.read_csv(path, dtype=str, sep=separator, keep_default_na=False))
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: a csv file was expected ({error})") from error


def names_of(text: str, option: str) -> list[str]:
    """Names separated by commas; one that holds a comma stands in double quotes."""
    names = [name.strip() for line in csv.reader([text]) for name in line]
    if not names or not all(names):
        raise ValueError(f"{option}: names separated by commas were expected, got {text!r}")
    return names


def sizes_of(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers separated by commas."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{option}: whole numbers separated by commas were expected, got {text!r}"
        ) from None


def range_of(text: str, option: str) -> list[int]:
    """Numbers of a range, both ends included."""
    parts = text.replace("..", ":").split(":")
    if not (
        len(parts) == 2
        and all(part.isdigit() for part in parts)
        and 1 <= int(parts[0]) <= int(parts[1])
    ):
        raise ValueError(f"{option}: FIRST:LAST with 1 <= FIRST <= LAST was expected, got {text!r}")
    return list(range(int(parts[0]), int(parts[1]) + 1))


def blocks_of(text: str, option: str) -> list[tuple[str, int | None]]:
    """Names with numbers of items, NAME:NUMBER,...; or one name for all, without a number."""
    if ":" not in text:
        return [(text, None)]
    blocks: list[tuple[str, int | None]] = []
    for part in text.split(","):
        name, _, count = part.partition(":")
        if not count.isdecimal():
            raise ValueError(f"{option}: blocks are written NAME:NUMBER,NAME:NUMBER, got {text!r}")
        blocks.append((name, int(count)))
    return blocks


def shape_of(text: str | None, num_items: int | None = None) -> tuple[int, int] | None:
    """Rows and columns of an image, which has ``num_items`` pixels where that is given."""
    if text is None:
        return None
    sizes = sizes_of(text, "--image-shape")
    if len(sizes) != 2 or min(sizes) < 1:
        raise ValueError(
            f"--image-shape: two positive numbers, rows and columns, were expected, got {text!r}"
        )
    if num_items is not None and sizes[0] * sizes[1] != num_items:
        raise ValueError(
            f"--image-shape: {sizes[0]} x {sizes[1]} pixels do not make the {num_items} items of"
            " the data"
        )
    return sizes[0], sizes[1]


# ---------------------------------------------------------------- covariates


def read_covariates(call: Call) -> pd.DataFrame | None:
    """Columns that are named as covariates; None where none are."""
    names = call.covariates
    return None if names is None else read_mixed(call, names_of(names, "--covariates"))


def item_columns(call: Call, given: pd.DataFrame | None) -> list[str] | None:
    """Columns of the items: those asked for, or all but the covariates.

    Raises:
        ValueError: for a column that is asked for as both.
    """
    columns = call.columns
    if given is None:
        return columns
    names = columns or columns_of(call)
    both = [name for name in given if name in names]
    if columns is not None and both:
        raise ValueError(
            f"--covariates: {listed(both)} cannot be among --columns too: what a row depends on is"
            " not what it is made of"
        )
    return [name for name in names if name not in list(given)]


def with_covariates(
    frame: pd.DataFrame, given: pd.DataFrame | None, gaps: str
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Items and covariates of the rows that have all of these, where others are to be dropped.

    Raises:
        ValueError: where they are not, naming the first.
    """
    if given is None:
        return frame, given
    kept = given.notna().all(axis=1)
    if gaps == "refuse":
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


# ---------------------------------------------------------------- what the columns are


def read_items(
    call: Call, columns: list[str] | None, seen: pd.DataFrame | None = None
) -> tuple[pd.DataFrame, Any]:
    """Read the items of a table, and their distribution as ``--response`` and ``--order`` say.

    Columns of texts are categories, unless ``--response`` names a distribution of numbers.

    Args:
        call: the command line.
        columns: to read; None for all.
        seen: rows that stand for those of the file, where it is read in blocks.

    Returns:
        The items; and their family, a distribution of whole rows, or a function of the items that
        reads the family of columns of which nothing was said.
    """
    text = call.response
    distribution = ROW_DISTRIBUTIONS.get(text)
    if (covariance := getattr(call, "covariance", None)) is not None:
        if text is not None and distribution is not ROW_DISTRIBUTIONS["multivariate-normal"]:
            raise ValueError(
                "--covariance is that of normal rows: --response multivariate-normal, or none, was"
                f" expected beside it, got {text}"
            )
        text = "multivariate-normal"
        distribution = partial(ROW_DISTRIBUTIONS[text], covariance=covariance)
        distribution()  # a family that is none is refused before any row is read
    parts = [] if text is None or distribution or "=" in text else _parts_of(text)
    only_numbers = bool(distribution or parts) and all(name in RESPONSES for name, _ in parts)
    if seen is None and only_numbers:
        seen = read_frame(call, columns, can_choose=True)
    elif seen is None:
        names = list(columns or columns_of(call)) if parts else columns
        asked = _by_column(text, parts, names or [])
        texts = [name for name, kind in asked.items() if kind == CATEGORIES]
        seen = _whole_codes(read_mixed(call, names, texts), texts)
    if only_numbers:
        refuse_texts(seen)
    return (seen, distribution()) if distribution else family_said(call, seen)


def _whole_codes(frame: pd.DataFrame, texts: Sequence[str]) -> pd.DataFrame:
    """Codes of categories that are whole numbers as such: 2, not 2.0 as columns with gaps have."""
    for name in texts:
        codes = frame[name].dropna()
        if len(codes) and codes.astype(str).str.fullmatch(r"-?\d+\.0").all():
            frame[name] = frame[name].str.removesuffix(".0")  # missing ones stay so
    return frame


def family_said(call: Call, items: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
    """The items with ``--order`` applied, and their family as :func:`read_items` returns it."""
    text = call.response
    if text in ROW_DISTRIBUTIONS:
        return items, ROW_DISTRIBUTIONS[text]()
    names = [str(name) for name in items.columns]
    asked = _by_column(text, [] if text is None or "=" in text else _parts_of(text), names)
    for name in asked:
        if name not in names:
            raise ValueError(
                f"--response: {name!r} is no column of the table; the columns used are"
                f" {listed(names)}"
            )
    scales = [names_of(order, "--order") for order in getattr(call, "order", None) or ()]
    items, responses = in_order(items, {n: EVERY[kind] for n, kind in asked.items()}, scales)
    if len(responses) == len(names):
        return items, items_read(items, responses, {})
    return items, lambda rows: _said(rows, responses)


def settled(distribution: Any, items: pd.DataFrame) -> Any:
    """Distribution of the items, read off them where that is left to be done."""
    return distribution(items) if callable(distribution) else distribution


def categories_said(call: Call) -> list[str]:
    """Columns that ``--response`` says hold categories, by name."""
    by_column = _asked_of(call.response) if "=" in (call.response or "") else {}
    return [name for name, kind in by_column.items() if kind == CATEGORIES]


def _said(items: pd.DataFrame, responses: dict[str, Response]) -> ResponseFamily:
    """Family of the columns; what was read off their values is said."""
    doubts: dict[str, list[str]] = {}
    family = items_read(items, responses, doubts)
    guessed = [str(name) for name in items.columns if str(name) not in responses]
    own = items_read(items[guessed], {}, {})
    doubtful = "; ".join(
        f"{listed(names)} ({words})" for words, names in doubts.items() if words != COUNTING
    )
    typer.echo(
        "By their values, the columns are taken as follows (--response says otherwise):"
        f" {described(own, guessed)}.{doubtful and f' In doubt: {doubtful}.'}"
    )
    return family


def _by_column(
    text: str | None, parts: list[tuple[str, int | None]], names: list[str]
) -> dict[str, str]:
    """Kinds by column: of NAME=KIND,NAME=KIND, or of parts, blocks of columns or one for all."""
    if not parts:
        return {} if text is None else _asked_of(text)
    sizes = [len(names) if size is None else size for _, size in parts]
    if sum(sizes) != len(names):
        raise ValueError(
            f"--response: the blocks hold {sum(sizes):,} columns, and the table has {len(names)}:"
            f" {listed(names)}"
        )
    kinds = [kind for (kind, _), size in zip(parts, sizes, strict=True) for _ in range(size)]
    return dict(zip(names, kinds, strict=True))


def _parts_of(text: str) -> list[tuple[str, int | None]]:
    """Kinds with numbers of columns; or one for all, without a number."""
    parts = blocks_of(text, "--response")
    for name, _ in parts:
        if name not in EVERY:
            of_rows = " or ".join(map(str, ROW_DISTRIBUTIONS))
            raise ValueError(
                f"--response: {', '.join(EVERY)}, or blocks of them, or in a mixture or hidden"
                f" Markov model {of_rows}, were expected, got {name!r}"
            )
    return parts


def _asked_of(text: str) -> dict[str, str]:
    """Kinds by column, NAME=KIND,NAME=KIND."""
    out: dict[str, str] = {}
    for part in names_of(text, "--response"):
        name, _, kind = part.rpartition("=")
        if not name:
            raise ValueError(f"--response: {part!r} should read COLUMN=FAMILY")
        if kind not in EVERY:
            raise ValueError(
                f"--response: column {name!r}: one of {', '.join(EVERY)} was expected, got {kind!r}"
            )
        if name in out:
            raise ValueError(f"--response: column {name!r} is named twice")
        out[name] = kind
    return out


def whole_times(frame: pd.DataFrame) -> pd.DataFrame:
    """Times as whole numbers, as they stand in the file, where all of them are."""
    times = frame.get("time")
    if times is None or times.dtype.kind != "f" or not (times % 1 == 0).all():
        return frame  # times that are none are refused by the model
    return frame.astype({"time": "int64"})
