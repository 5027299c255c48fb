"""Response families of the columns of a table, from their values and from what a user says of them.

The options that error texts name are those of the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ppl_models.data.frames import holds_texts, kind_of_column, misread_numbers
from ppl_models.parts.blocks import Blocks
from ppl_models.parts.categorical import Categorical, Ordinal
from ppl_models.parts.repr import listed
from ppl_models.parts.responses import (
    Bernoulli,
    LogNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    ResponseFamily,
)

if TYPE_CHECKING:
    import pandas as pd

RESPONSES = {
    "bernoulli": Bernoulli,
    "poisson": Poisson,
    "normal": Normal,
    "lognormal": LogNormal,
    "negative-binomial": NegativeBinomial,
}
CATEGORIES = "categorical"
FAMILIES = (*RESPONSES, CATEGORIES)
ORDERED = {"ordinal": "cumulative", "partial-credit": "adjacent"}  # and their links
KINDS = {
    "bernoulli": "yes or no (Bernoulli)",
    "poisson": "counts (Poisson)",
    CATEGORIES: "categories (Categorical)",
    "normal": "measurements (Normal)",
}
# of a column of texts: so many always may be, and never more (else half of the rows)
FEW_CATEGORIES, MOST_CATEGORIES = 10, 50


def kinds_of(frame: pd.DataFrame, families: Mapping[str, str]) -> tuple[list[str], str]:
    """Kind of each column, and words on the kinds that were not in ``families``.

    Raises:
        ValueError: for a family of a column that the table lacks.
    """
    for name in families:
        if name not in frame.columns:
            raise ValueError(
                f"--response: {name!r} is no column of the table; the columns used are"
                f" {listed(list(frame.columns))}"
            )
    kinds = [families.get(name) or kind_of_column(frame[name]) for name in frame.columns]
    guessed: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name, kind in zip(frame.columns, kinds, strict=True):
        if name not in families:
            guessed[kind].append(name)
    return kinds, "; ".join(
        f"{listed(names)} as {KINDS[kind]}" for kind, names in guessed.items() if names
    )


def family_of(frame: pd.DataFrame, kinds: Sequence[str]) -> ResponseFamily:
    """Family of the items: one for all columns, or blocks of neighbouring columns of one kind.

    Raises:
        ValueError: for a column of texts that are no categories, or that is to hold numbers.
    """
    runs: list[tuple[ResponseFamily, int]] = []
    for kind, group in groupby(zip(kinds, frame.columns, strict=True), key=itemgetter(0)):
        names = [name for _, name in group]
        for name in names:
            _check_kind(frame[name], kind, len(frame))
        if kind in ORDERED:
            family: ResponseFamily = Ordinal.from_frame(frame[names], link=ORDERED[kind])  # type: ignore[arg-type]
        elif kind == CATEGORIES:
            family = Categorical.from_frame(frame[names])
        else:
            family = RESPONSES[kind]()
        runs.append((family, len(names)))
    return runs[0][0] if len(runs) == 1 else Blocks(*runs)


def _check_kind(column: pd.Series, kind: str, num_rows: int) -> None:
    name, most = column.name, max(FEW_CATEGORIES, min(MOST_CATEGORIES, num_rows // 2))
    if kind == CATEGORIES and column.nunique() > most:
        values = column.dropna().unique()
        many = f"{len(values):,} different texts, too many for categories"
        held = misread_numbers(values) or f"{many}; leave it out with --columns"
        raise ValueError(f"column {name!r} holds {held}")
    if kind in RESPONSES and holds_texts(column):
        raise ValueError(
            f"--response: column {name!r} holds texts, which {kind} items cannot be; leave"
            f" it out with --columns, or say {name}={CATEGORIES}"
        )


def refuse_texts(frame: pd.DataFrame) -> None:
    """Refuse columns of texts.

    Raises:
        ValueError: naming the first.
    """
    for name in frame.columns:
        if holds_texts(frame[name]) and frame[name].notna().any():
            raise ValueError(
                f"column {name!r} holds texts, such as {frame[name].dropna().iloc[0]!r}; name the"
                " columns to use with --columns, without those of texts"
            )


def in_order(
    frame: pd.DataFrame, families: Mapping[str, str], orders: Sequence[Sequence[str]]
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Convert columns of texts to ordered categories; the families with those columns.

    Args:
        frame: the table.
        families: by column.
        orders: names of categories, from the lowest to the highest, one list a scale.

    Raises:
        ValueError: for an order that no column has, or an ordinal column whose order is not given.
    """
    frame, families = frame.copy(), dict(families)
    texts = {
        name: set(map(str, frame[name].dropna().unique()))
        for name in map(str, frame.columns)
        if holds_texts(frame[name])
    }
    for order in orders:
        fitting = [name for name, held in texts.items() if held <= set(order)]
        if not fitting:
            raise ValueError(
                f"--order: no column of texts holds {listed(order)} and nothing else; the columns"
                f" of texts are {listed(list(texts))}"
            )
        families = dict.fromkeys(fitting, "ordinal") | families
    for name, family in families.items():
        if family in ORDERED and name in texts:
            frame[name] = _ordered(frame[name], texts[name], orders)
    return frame, families


def _ordered(column: pd.Series, held: set[str], orders: Iterable[Sequence[str]]) -> pd.Series:
    import pandas as pd

    for order in orders:
        if held <= set(order):
            levels = [name for name in order if name in held]
            return pd.Series(pd.Categorical(column, levels, ordered=True), column.index)
    raise ValueError(
        f"--order: column {column.name!r} holds {listed(sorted(held))}, whose order is not known:"
        " give them from the lowest to the highest, as in --order never,rarely,often,always"
    )


def counting_columns(frame: pd.DataFrame) -> list[str]:
    """Names of the columns that count the rows."""
    columns: dict[str, Any] = {
        name: frame[name].to_numpy(np.float64, na_value=np.nan)
        for name in frame.columns
        if not holds_texts(frame[name]) and len(frame) > 2
    }
    return [name for name, values in columns.items() if (np.diff(values) == 1).all()]
