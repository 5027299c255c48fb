"""A choice in a session or a notebook: what was chosen, what to believe of it, and its table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["told", "told_html"]

WIDTH = 100  # of a line of words
MOST_LINES = 30  # of a table


def told(headline: str, sentences: Iterable[str], table: pd.DataFrame | None = None) -> str:
    """As text.

    Args:
        headline: what was chosen, and by what.
        sentences: what to believe of it; table: with one line a candidate; None where it is long.
    """
    words = [textwrap.fill(sentence, WIDTH, initial_indent="  ", subsequent_indent="  ") for sentence in sentences]
    lines = [] if table is None else [table.to_string(float_format=_number, max_rows=MOST_LINES)]
    return "\n".join([headline, *words, *lines])


def told_html(headline: str, sentences: Iterable[str], table: pd.DataFrame) -> str:
    """The same for a notebook, every text escaped."""
    words = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return f"<p><b>{escape(headline)}</b></p>{words}{table.to_html(float_format=_number, max_rows=MOST_LINES)}"


def _number(value: float) -> str:
    return f"{value:,.2f}"
