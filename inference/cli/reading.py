"""Tables and texts of options as the commands read them, and the families of columns."""

from __future__ import annotations

import csv
import logging
import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ppl_models.data.items import (
    CATEGORIES,
    FAMILIES,
    ORDERED,
    RESPONSES,
    family_of,
    in_order,
    kinds_of,
    refuse_texts,
)
from ppl_models.parts.repr import counted, listed

if TYPE_CHECKING:
    import pandas as pd

    from ppl_models.descriptions.covariates import Covariates
    from ppl_models.parts.responses import ResponseFamily

ROW_DISTRIBUTIONS = {
    "multivariate-normal": "MultivariateNormal",
    "multivariate-t": "MultivariateT",
    "skew-normal": "SkewNormal",
}
AS_CATEGORIES = ", or say --response {name}=categorical if it holds names of categories"
logger = logging.getLogger(__name__)


def read_frame(
    path: str,
    columns: Sequence[str] | None = None,
    can_choose: bool = False,
) -> pd.DataFrame:
    """Read a table of numbers.

    Args:
        path: the file.
        columns: those to read; None for all.
        can_choose: whether the command has ``--columns``, which an entry that is no number calls
            for.
    """
    import pandas as pd

    from ppl_models.data.files import EntryError, read_table

    try:
        table = read_table(path, columns=columns)
    except EntryError as error:
        raise EntryError(
            f"{error}; name the columns to use with --columns, without those of texts"
            if can_choose and columns is None
            else str(error)
        ) from None
    logger.info(
        "read %s: %s rows, %s columns", path, f"{len(table.values):,}", f"{len(table.names):,}"
    )
    return pd.DataFrame(table.values, columns=list(table.names))


def read_mixed(
    path: str, columns: Sequence[str] | None, texts: Collection[str] = (), remedy: str = ""
) -> pd.DataFrame:
    """Read a table in which columns of entries that are no numbers are texts, None where missing.

    Args:
        path: the file.
        columns: those to read; None for all.
        texts: columns that are texts whatever they hold.
        remedy: what else to do where a column holds both, ``{name}`` for its name.

    Raises:
        ValueError: also for a column that is not among ``texts`` and holds numbers and texts, of
            which one is likely a slip.
    """
    import pandas as pd

    from ppl_models.data.files import EntryError, inexact_entry, is_number, read_texts
    from ppl_models.data.frames import misread_numbers

    if not texts:
        with suppress(EntryError):
            return read_frame(path, columns)
    held = read_texts(path, columns)
    logger.info(
        "read %s: %s rows, %s columns, some of texts",
        path,
        f"{len(next(iter(held.values()))):,}",
        f"{len(held):,}",
    )
    for name, entries in held.items():
        other = [
            row for row, entry in enumerate(entries) if entry is not None and not is_number(entry)
        ]
        if (
            name not in texts
            and other
            and any(entry is not None and is_number(entry) for entry in entries)
        ):
            misread = misread_numbers(dict.fromkeys(entries[row] for row in other))
            if misread:
                raise ValueError(f"{path}: column {name!r} holds {misread}")
            words = (
                f"column {name!r} holds numbers, and {entries[other[0]]!r} in row {other[0]}"
                + (f" ({len(other):,} such rows)" if len(other) > 1 else "")
            )
            raise ValueError(
                f"{path}: {words}: leave such an entry empty if it is missing, or the column"
                f" out{remedy.format(name=name)}"
            )
        if name not in texts and not other:
            inexact = next(filter(None, map(inexact_entry, filter(None, entries))), "")
            if inexact:
                raise ValueError(f"{path}: column {name!r}: {inexact}")
            held[name] = [math.nan if entry is None else float(entry) for entry in entries]  # type: ignore[misc]
    return pd.DataFrame(held)


def columns_of(path: str) -> tuple[str, ...]:
    """Names of the columns of a table, whatever they hold."""
    from ppl_models.data.files import EntryError, read_table, read_texts

    with suppress(EntryError):
        return read_table(path).names
    return tuple(read_texts(path))


def read_csv(path: Path, dtype: Any = None, separator: str = ",") -> pd.DataFrame:
    """Read a csv file whose columns may hold texts, as pandas reads it."""
    import pandas as pd

    from ppl_models.data.files import own_texts

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


def response_of(text: str, others: Collection[str] = ()) -> ResponseFamily:
    """Family of the items that ``--response`` names.

    ``others`` are distributions that the command offers beside families, for all columns together.
    """
    from ppl_models.parts.blocks import Blocks

    blocks: list[tuple[ResponseFamily, int | None]] = []
    for name, count in blocks_of(text, "--response"):
        if name not in RESPONSES:
            alone = "" if not others else f", or {' or '.join(others)} for all columns together,"
            raise ValueError(
                f"--response: {', '.join(RESPONSES)}, or blocks of them,{alone} were expected, got"
                f" {name!r}"
            )
        blocks.append((RESPONSES[name](), count))
    return blocks[0][0] if blocks[0][1] is None else Blocks(*blocks)


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


def read_covariates(data: str, covariates: str | None) -> pd.DataFrame | None:
    """Columns that are named as covariates; None where none are."""
    return None if covariates is None else read_mixed(data, names_of(covariates, "--covariates"))


def item_columns(
    data: str, columns: list[str] | None, given: pd.DataFrame | None
) -> list[str] | None:
    """Columns of the items: those asked for, or all but the covariates.

    Raises:
        ValueError: for a column that is asked for as both.
    """
    if given is None:
        return columns
    names = columns or list(columns_of(data))
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


def read_as_asked(
    data: str, columns: list[str] | None, response: str | None, seen: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Read a table of numbers and categories.

    Columns of texts are categories, unless ``--response`` names a distribution of numbers for all.

    Args:
        data: the file.
        columns: to read; None for all.
        response: text of ``--response``.
        seen: rows that stand for those of the file, where it is read in blocks.
    """
    families = asked_of(response)
    numbers = response is not None and response != CATEGORIES and families is None
    if seen is not None:
        if numbers:
            refuse_texts(seen)
        return seen
    if numbers:
        return read_frame(data, columns, can_choose=True)
    if response == CATEGORIES:
        names = columns or list(columns_of(data))
        return read_mixed(data, names, names)
    return read_mixed(data, columns, texts_of(families), AS_CATEGORIES)


def component_of(response: str | None, frame: pd.DataFrame) -> Any:
    """Distribution of the columns, said where it was not asked for."""
    from ppl_models.descriptions import row_distributions

    families = asked_of(response)
    if response == CATEGORIES:
        return family_of(frame, [CATEGORIES] * frame.shape[1])
    if response in ROW_DISTRIBUTIONS:
        return getattr(row_distributions, ROW_DISTRIBUTIONS[response])()
    if response is not None and families is None:
        return response_of(response, (CATEGORIES, *ROW_DISTRIBUTIONS))
    return _family(frame, families or {})


def _family(frame: pd.DataFrame, families: dict[str, str]) -> ResponseFamily:
    kinds, guessed = kinds_of(frame, families)
    if guessed:
        typer.echo(
            "By their values, the columns are taken as follows (--response says otherwise):"
            f" {guessed}."
        )
    return family_of(frame, kinds)


def items_of_layers(
    data: str,
    columns: list[str] | None,
    response: str | None,
    orders: list[str] | None,
    seen: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, ResponseFamily]:
    """Read items of layered models, and their family.

    Predictors are linear in latents: categories, in order or not, stand beside numbers.

    Args:
        data: the file.
        columns: to read; None for all.
        response: texts of ``--response`` and ``--order``.
        orders: texts of ``--response`` and ``--order``.
        seen: rows that stand for those of the file, where it is read in blocks.
    """
    by_column = response is None or "=" in response
    blocks = [] if response is None or by_column else blocks_of(response, "--response")
    for name, _ in blocks:
        if name not in (*FAMILIES, *ORDERED):
            raise ValueError(
                f"--response: {', '.join((*FAMILIES, *ORDERED))}, or blocks of them, were expected,"
                f" got {name!r}"
            )
    if response is not None and blocks and all(name in RESPONSES for name, _ in blocks):
        if seen is None:
            seen = read_frame(data, columns, can_choose=True)
        refuse_texts(seen)
        return seen, response_of(response)
    if seen is not None:
        names = [str(name) for name in seen.columns]
    else:
        names = columns or list(columns_of(data))
    families = asked_of(response, ORDERED) or {} if by_column else _of_blocks(blocks, names)
    scales = [names_of(text, "--order") for text in orders or ()]
    if seen is None:
        seen = read_mixed(data, names, texts_of(families), AS_CATEGORIES)
    frame, families = in_order(seen, families, scales)
    return frame, _family(frame, families)


def _of_blocks(blocks: list[tuple[str, int | None]], names: list[str]) -> dict[str, str]:
    """Families by column of blocks of columns, or of one family for all."""
    kinds = [
        family for family, number in blocks for _ in range(len(names) if number is None else number)
    ]
    if len(kinds) != len(names):
        raise ValueError(
            f"--response: the blocks hold {len(kinds)} columns, and the table has {len(names)}:"
            f" {listed(names)}"
        )
    return dict(zip(names, kinds, strict=True))


def asked_of(text: str | None, others: Collection[str] = ()) -> dict[str, str] | None:
    """Families by column, NAME=FAMILY,NAME=FAMILY; None for a text that names no columns.

    Args:
        text: of ``--response``.
        others: families that the command knows beside the usual ones.
    """
    if text is None or "=" not in text:
        return None
    out: dict[str, str] = {}
    for part in names_of(text, "--response"):
        name, _, family = part.rpartition("=")
        if not name:
            raise ValueError(f"--response: {part!r} should read COLUMN=FAMILY")
        if family not in (*FAMILIES, *others):
            raise ValueError(
                f"--response: column {name!r}: one of {', '.join((*FAMILIES, *others))} was"
                f" expected, got {family!r}"
            )
        if name in out:
            raise ValueError(f"--response: column {name!r} is named twice")
        out[name] = family
    return out


def texts_of(families: dict[str, str] | None) -> list[str]:
    """Columns that are said to hold categories."""
    return [name for name, family in (families or {}).items() if family == CATEGORIES]
