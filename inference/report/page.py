"""Self-contained pages by templates that escape every text."""

from __future__ import annotations

import base64
import functools
import io
import math
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from inference.base.checkpoint import write_whole
from inference.report.parts import Note, Part, Picture, Section
from ppl_models.parts.repr import few_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DPI = 110
COMPRESSION = 3  # of pictures: a fifth larger than at 6, in a third of the time
LEAST = 1e-99  # numbers below are shown as zero
# marks that turn the direction of writing, other control characters, and halves of characters:
# invisible, and able to show a text as another
INVISIBLE = re.compile(
    "[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
)


OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


class HasSections(Protocol):
    """Content of a page, such as :class:`inference.report.answers.Answer`."""

    @property
    def title(self) -> str:
        """Title of the page."""

    @property
    def sections(self) -> Sequence[Section]:
        """Sections, of which those without parts are left out."""


def write_page(answer: HasSections, path: str | Path) -> Path:
    """Write a page: one file, pictures inside, nothing fetched from elsewhere.

    Args:
        answer: its title and sections.
        path: the file, replaced if it exists; its folder is made if need be.
    """
    shown = [section for section in answer.sections if section.parts]
    page = _templates().get_template("page.html")
    write_whole(Path(path), page.render(title=answer.title, sections=shown, foot=_versions()))
    return Path(path)


def html_of(parts: Iterable[Part]) -> str:
    """Parts as they stand on a page."""
    return str(_templates().get_template("parts.html").module.lay(parts))  # type: ignore[attr-defined]


def picture(draw: Callable[[], Axes | Figure], alt: str) -> Picture | Note:
    """A picture for a page; where it cannot be drawn, the reason.

    Args:
        draw: gives a figure, or axes of one.
        alt: what it shows, for those who cannot see it.
    """
    try:
        drawn: Any = draw()
    except ValueError as reason:
        return Note(f"Not drawn: {alt}. {reason}.")
    figure = drawn if hasattr(drawn, "savefig") else drawn.figure
    buffer = io.BytesIO()
    _canvas()(figure)
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return Picture(
        alt, base64.b64encode(buffer.getvalue()).decode("ascii"), round(figure.get_figwidth() * DPI)
    )


@functools.cache
def _canvas() -> type:
    """Canvas that saves a figure by drawing it once; matplotlib's own draws and lays out twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    class OncePainted(FigureCanvasAgg):
        def print_figure(self, *args: Any, **settings: Any) -> None:
            self.figure.set_dpi(settings["dpi"])
            self.print_png(
                args[0],
                metadata=settings.get("metadata"),
                pil_kwargs={"compress_level": COMPRESSION},
            )

    return OncePainted


def number(value: float, digits: int = 2) -> str:
    """Return a number as text."""
    return f"{value:,.{digits}f}" if math.isfinite(value) else "not available"


def texts(values: Iterable[float], form: str = ".3f") -> list[str]:
    """Numbers as texts; "" where they are not finite."""
    return [f"{value:{form}}" if math.isfinite(value) else "" for value in values]


def with_error(value: float, error: float, form: str = ".3f") -> str:
    """Return a number with its standard error, NaN for none and infinite for "not determined".

    An empty ``form`` is as many decimals as show two digits of the error.
    """
    if not form:
        of = np.array([error])
        shown, size = (few_digits(np.array([number]), of)[0] for number in (value, error))
    else:
        shown, size = f"{value:{form}}", f"{error:{form}}"
    beside = "not determined" if error == math.inf else size
    return shown + ("" if math.isnan(error) else f" ({beside})")


def cell(value: Any) -> str:
    """A value of a record as the text of a cell; "" for what is not known."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        value = 0.0 if abs(value) < LEAST else value
        return (
            f"{value:,.0f}"
            if value.is_integer()
            else (
                f"{value:,.1f}"
                if abs(value) >= 100
                else f"{value:,.2f}"
                if abs(value) >= 0.1
                else f"{value:.2g}"
            )
        )
    return f"{value:,}" if isinstance(value, int) else str(value)


@functools.cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("inference.report"),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["unbroken"] = unbroken
    return found


def unbroken(text: str) -> Markup:
    """Escaped text whose options, as ``--choose``, are kept on one line."""
    return Markup(OPTION.sub(r'<span class="option">\g<0></span>', str(escape(_visible(text)))))


def _visible(value: Any) -> Any:
    """Write out the invisible marks of a text, such as U+202E."""
    if isinstance(value, str) and not hasattr(
        value, "__html__"
    ):  # not what a macro has laid out already
        return INVISIBLE.sub(lambda found: f"[U+{ord(found[0]):04X}]", value)
    return value


def _versions() -> str:
    parts = [f"Python {platform.python_version()}"]
    for package in ("ppl-models", "torch", "pyro-ppl"):
        try:
            parts.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:  # run from a source tree
            continue
    return ", ".join(parts)
