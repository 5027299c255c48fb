"""Short ``repr`` of records: a few lines, large values by kind and size."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd


MOST_NUMBERS = 8  # of an array that is shown whole
MOST_WIDTH = 72  # of a value
MOST_LINE = 100  # of a record on one line
MOST_NAMES = 6
MOST_LISTED = 8  # names in a sentence
MOST_SETTING = 40
MOST_WORDS = 100  # of a line of words
MOST_LINES = 30  # of a table
MOST_DECIMALS = 6

Kind = TypeVar("Kind")


def shows_briefly(kind: type[Kind]) -> type[Kind]:
    """Give a dataclass a ``repr`` of a few lines, and a small table for notebooks.

    The usual ``repr`` writes every number of every field. Here a small record stands on one line, a
    large one has a line a field, with tensors as their shape, containers as their size and names,
    and records inside as their kind.
    """
    kind.__repr__ = _repr  # type: ignore[method-assign]
    if "_repr_html_" not in vars(kind):  # a table of its own says more
        kind._repr_html_ = _repr_html  # type: ignore[attr-defined]
    return kind


def _repr(self: Any) -> str:
    name, fields = type(self).__name__, _fields(self)
    line = f"{name}({', '.join(f'{field}={text}' for field, text in fields)})"
    return line if len(line) <= MOST_LINE else f"{name}\n{lines_of(fields)}"


def _repr_html(self: Any) -> str:
    return html_table(type(self).__name__, _fields(self))


def _fields(record: Any) -> list[tuple[str, str]]:
    return [
        (field.name, shown(getattr(record, field.name)))
        for field in dataclasses.fields(record)
        if field.repr
    ]


def lines_of(pairs: Iterable[tuple[str, str]]) -> str:
    """Format names and values in two columns, a line each."""
    pairs = list(pairs)
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in pairs)


def html_table(title: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Format names and values as an HTML table, every text escaped."""
    left = "text-align: left"
    rows = "".join(
        f'<tr><th style="{left}">{escape(name)}</th><td style="{left}">{escape(text)}</td></tr>'
        for name, text in pairs
    )
    return f'<table><caption style="{left}">{escape(title)}</caption><tbody>{rows}</tbody></table>'


def told(headline: str, sentences: Iterable[str], table: pd.DataFrame | None = None) -> str:
    """Format a choice and its table as text; a long table is left out, None."""
    words = [
        textwrap.fill(sentence, MOST_WORDS, initial_indent="  ", subsequent_indent="  ")
        for sentence in sentences
    ]
    lines = (
        [] if table is None else [table.to_string(float_format=_few_places, max_rows=MOST_LINES)]
    )
    return "\n".join([headline, *words, *lines])


def told_html(headline: str, sentences: Iterable[str], table: pd.DataFrame) -> str:
    """Format a choice and its table as HTML, every text escaped."""
    words = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    numbers = table.to_html(float_format=_few_places, max_rows=MOST_LINES)
    return f"<p><b>{escape(headline)}</b></p>{words}{numbers}"


def _few_places(value: float) -> str:
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) < 0.1 else f"{value:,.2f}"


class Told:
    """Record that shows its answer: a headline, whole sentences, and a table."""

    @property
    def headline(self) -> str:
        """Headline: the answer in one sentence."""
        raise NotImplementedError

    @property
    def sentences(self) -> tuple[str, ...]:
        """Conclusions in whole sentences."""
        raise NotImplementedError

    @property
    def table(self) -> pd.DataFrame:
        """Table of the numbers."""
        raise NotImplementedError

    def text(self) -> str:
        """Headline and conclusions."""
        return " ".join((self.headline, *self.sentences))

    def __repr__(self) -> str:
        return told(self.headline, self.sentences, self.table)

    def _repr_html_(self) -> str:
        return told_html(self.headline, self.sentences, self.table)


def few_digits(values: np.ndarray, errors: np.ndarray | None = None) -> list[str]:
    """Format numbers of one kind with as many decimals as mean something.

    "" for what is no number.

    With errors the middle one has two digits and the smallest has one, or each its own two where
    they lie more than a factor of ten apart. Without, the largest number has four digits, or each
    its own where they are in the hundreds beside some of a hundredth of that.

    Args:
        values: (n,); errors: (n,), NaN where there is none.
    """
    values = np.asarray(values, dtype=float)
    known = np.array([]) if errors is None else errors[np.isfinite(errors) & (errors > 0)]
    if len(known) and known.max() <= 10 * known.min():
        places = [
            max(_decimals(float(np.median(known)), 2), _decimals(float(known.min()), 1))
        ] * len(values)
    elif len(known):
        places = [
            _decimals(float(error), 2) if error > 0 else _decimals(abs(float(value)), 4)
            for value, error in zip(values, errors, strict=True)  # type: ignore[arg-type]
        ]
    else:
        sizes = np.abs(np.where(np.isfinite(values), values, 0.0))
        most, least = sizes.max(initial=0.0), sizes[sizes > 0].min(initial=np.inf)
        is_mixed = most >= 100 and least < most / 100
        own = sizes if is_mixed else np.full(len(values), most)
        places = [min(_decimals(float(size), 4), 4 if is_mixed else MOST_DECIMALS) for size in own]
    return [_fixed(float(value), place) for value, place in zip(values, places, strict=True)]


def _decimals(size: float, digits: int) -> int:
    """Number of decimals that show so many digits of a number of this size."""
    if size > 0 and math.isfinite(size):
        return min(max(digits - 1 - math.floor(math.log10(size)), 0), MOST_DECIMALS)
    return 0


def _fixed(value: float, place: int) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:.3e}" if abs(value) >= 1e9 else f"{round(value, place) + 0.0:,.{place}f}"


def shown(value: Any) -> str:
    """Short text of a value: whole where it is small, else its kind and size."""
    if isinstance(value, Tensor | np.ndarray):
        return _array(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return _cut(repr(value))
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, tuple | list):
        return _sequence(value)
    text = repr(value)
    return text if len(text) <= MOST_WIDTH and "\n" not in text else type(value).__name__


def shown_settings(record: Any) -> str:
    """Short text of a model or engine with its settings that are not the defaults."""
    if not dataclasses.is_dataclass(record):
        return str(getattr(record, "__name__", type(record).__name__))
    parts = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        text = shown(value)
        usual = getattr(record, "usual", {}).get(field.name, field.default)
        is_usual = type(value) is type(usual) and text == shown(usual)
        if field.repr and not is_usual and len(text) <= MOST_SETTING:
            parts.append(f"{field.name}={text}")
    name, kept = type(record).__name__, len(parts)
    while kept and len(name) + 2 + sum(len(part) + 2 for part in parts[:kept]) > MOST_WIDTH:
        kept -= 1
    return f"{name}({', '.join([*parts[:kept], *['...'] * (kept < len(parts))])})"


def _array(value: Tensor | np.ndarray) -> str:
    kind, is_whole = "array", value.dtype != object
    if isinstance(value, Tensor):
        kind, is_whole = "tensor", not value.is_meta
    if not is_whole or math.prod(value.shape) > MOST_NUMBERS:
        return f"{kind} of {' x '.join(map(str, value.shape))}"
    return _cut(_plain(value.tolist()))


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_plain, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def counted(number: int, one: str, many: str | None = None) -> str:
    """Number and noun, such as "1 row" and "2,000 rows"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Iterable[Any], most: int = MOST_LISTED) -> str:
    """Names in a row, those beyond the first few counted, such as "a, b and 1,000 more"."""
    texts = list(map(str, names))
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def profile_name(attributes: Iterable[Any], profile: Iterable[float]) -> str:
    """Name of an attribute profile: "add + carry", "attributes 0 + 2", "none" or "all".

    Args:
        attributes: K names; profile: K entries, positive where a row has the attribute.
    """
    bits = [bit > 0 for bit in profile]
    if all(bits) and len(bits) > 1:
        return "all"
    return together([name for name, bit in zip(attributes, bits, strict=True) if bit])


def together(attributes: Iterable[Any]) -> str:
    """Attributes that a row has: "add + carry", "attributes 0 + 2" or "none"."""
    names = list(map(str, attributes))
    numbers = [name.removeprefix("attribute ") for name in names]
    if names and all(number.isdecimal() for number in numbers):
        return f"attribute{'s' * (len(names) > 1)} {' + '.join(numbers)}"
    return " + ".join(names) or "none"


def _mapping(value: Mapping[Any, Any]) -> str:
    if len(value) <= MOST_NAMES:
        whole = "{" + ", ".join(f"{key!r}: {shown(part)}" for key, part in value.items()) + "}"
    else:
        whole = ""
    if whole and len(whole) <= MOST_WIDTH:
        return whole
    names = ", ".join(str(key) for key in list(value)[:MOST_NAMES]) + (
        ", ..." if len(value) > MOST_NAMES else ""
    )
    return _cut(f"{len(value)} by name: {names}")


def _sequence(value: tuple[Any, ...] | list[Any]) -> str:
    widths = {len(line) if isinstance(line, tuple | list) else 0 for line in value}
    if len(value) * max(widths, default=0) > MOST_NUMBERS and len(widths) == 1:
        return f"{len(value)} x {widths.pop()} table"
    if len(value) <= MOST_NUMBERS:
        parts = ", ".join(map(shown, value))
        if isinstance(value, tuple):
            whole = f"({parts}{',' if len(value) == 1 else ''})"
        else:
            whole = f"[{parts}]"
        if len(whole) <= MOST_WIDTH:
            return whole
    kinds = sorted({type(part).__name__ for part in value})
    return f"{len(value)} of {' and '.join(kinds[:3])}"


def _cut(text: str) -> str:
    return text if len(text) <= MOST_WIDTH else text[: MOST_WIDTH - 3] + "..."
