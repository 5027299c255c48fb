"""Pieces of a self-contained page: text is escaped, pictures lie inside, nothing is fetched from elsewhere."""

from __future__ import annotations

import base64
import io
import math
import platform
from collections.abc import Callable, Sequence
from html import escape
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.base.checkpoint import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bullets", "equations", "finding", "heading", "note", "number", "paragraph", "picture", "table", "write_page"]


def write_page(file: Path, title: str, sections: Sequence[tuple[str, str, str]]) -> Path:
    """Write a page.

    Args:
        file: replaced if it exists; its folder is made if need be.
        title: of the page; sections: key, title and HTML of each.
    """
    links = " ".join(f'<a href="#{key}">{escape(head)}</a>' for key, head, _ in sections)
    body = "\n".join(f'<section id="{key}"><h2>{escape(head)}</h2>\n{text}</section>' for key, head, text in sections)
    page = _PAGE.format(title=escape(title), links=links, body=body, foot=escape(_versions()))
    write_whole(file, page)
    return file


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>\n"


def equations(*lines: str) -> str:
    """Lines of a model, each on its own; they are HTML."""
    return "".join(f'<p class="equation">{line}</p>\n' for line in lines)


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>\n'


def heading(text: str) -> str:
    return f"<h3>{escape(text)}</h3>\n"


def finding(mark: str, question: str, answer: str) -> str:
    """A question and its answer, marked ``"good"``, ``"care"``, ``"bad"`` or ``""``."""
    return f'<p class="finding {mark}"><strong>{escape(question)}</strong> {escape(answer)}</p>\n'


def bullets(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of escaped texts; ``head`` may be ()."""
    top = f"<thead><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr></thead>" if head else ""
    lines = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table>{top}<tbody>\n{lines}\n</tbody></table></div>\n'


def picture(draw: Callable[[], Axes | Figure], alt: str) -> str:
    """A picture in the page; where it cannot be drawn, the reason."""
    try:
        drawn: Any = draw()
    except ValueError as reason:
        return note(f"Not drawn: {alt}. {reason}.")
    figure = drawn if hasattr(drawn, "savefig") else drawn.figure
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    code = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f'<figure><img alt="{escape(alt)}" src="data:image/png;base64,{code}"></figure>\n'


def number(value: float, digits: int = 2) -> str:
    return f"{value:,.{digits}f}" if math.isfinite(value) else "not available"


def _versions() -> str:
    parts = [f"Python {platform.python_version()}"]
    for package in ("ppl-models", "torch", "pyro-ppl"):
        try:
            parts.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:  # run from a source tree
            continue
    return ", ".join(parts)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #222; background: #fff; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.6rem; margin-bottom: .3rem; }}
h2 {{ font-size: 1.2rem; border-bottom: 1px solid #ccc; padding-bottom: .2rem; margin-top: 2.2rem; }}
nav {{ font-size: .9rem; }} nav a {{ margin-right: .8rem; color: #2166ac; }}
table {{ border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }}
th, td {{ text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0; border-bottom: 1px solid #e5e5e5; }}
td:last-child {{ overflow-wrap: anywhere; min-width: 4.6rem; }}
th {{ font-weight: 600; }}
figure {{ margin: 1rem 0; }} img {{ max-width: 100%; height: auto; }}
pre {{ white-space: pre-wrap; background: #f6f6f6; padding: .8rem; }}
.wide {{ overflow-x: auto; }}
h3 {{ font-size: 1rem; margin: 1.4rem 0 .3rem; }}
li {{ overflow-wrap: anywhere; }}
.finding {{ border-left: 5px solid #bbb; background: #f7f7f7; padding: .4rem .8rem; margin: .4rem 0; overflow-wrap: anywhere; }}
.good {{ border-color: #2a8f4f; }} .care {{ border-color: #e08214; background: #fff7ea; }} .bad {{ border-color: #c0392b; background: #fdeeee; }}
.equation {{ font-family: "DejaVu Serif", Georgia, serif; margin: .3rem 0 .3rem 2rem; }}
.note {{ color: #666; font-style: italic; }}
.warnings li {{ background: #fff4e0; border-left: 4px solid #e08214; list-style: none; padding: .3rem .7rem; margin: .3rem 0; overflow-wrap: anywhere; }}
.warnings {{ padding: 0; }}
footer {{ margin-top: 3rem; font-size: .8rem; color: #666; }}
@media (max-width: 40rem) {{ body {{ margin: 1rem auto; }} th, td {{ padding-right: .6rem; }} .equation {{ margin-left: .5rem; }} nav a {{ display: inline-block; }} }}
@media print {{ body {{ max-width: none; margin: 0; font-size: 11pt; }} nav {{ display: none; }} figure, tr, li, .finding, .equation {{ break-inside: avoid; }}
h2, h3 {{ break-after: avoid; }} img {{ max-height: 22cm; }} }}
</style>
</head>
<body>
<h1>{title}</h1>
<nav>{links}</nav>
{body}
<footer>{foot}</footer>
</body>
</html>
"""
