"""Runs the Python examples of a page, one after the other: ``python docs/run_snippets.py docs/gallery.md --folder docs``.

The tests run every page so, in a folder of their own. Run in ``docs``, the examples of ``gallery.md`` draw the pictures that the pages show.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[str]:
    """The texts of the page's fenced blocks in these languages, in order."""
    return [text for language, text in BLOCK.findall(page.read_text(encoding="utf-8")) if language in languages]


def run_page(page: Path) -> dict[str, object]:
    """The names that the examples leave behind, run in the current folder."""
    names: dict[str, object] = {"__name__": page.stem}
    for text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), names)
    return names


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(), help="where the examples run and write; this one if not said")
    told = parser.parse_args()
    page = told.page.resolve()
    with contextlib.chdir(told.folder):
        run_page(page)
