"""Parts of a page: words and numbers, laid out by macros of ``templates/parts.html``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ppl_models.parts.repr import counted

# numbers, also with their unit, standard error or size of a table
NUMBER = re.compile(
    r"([-+]?[\d,]*\.?\d+(e[-+]?\d+)?( %| steps?| \([^)]*\)| × [\d × ]+)?|not available|-)?"
)
LONG = 25
LEGIBLE = 0.65  # of a picture's size, below which its words are too small
NARROW = (360, 468)  # pixels of a page on a telephone, and on a window of half a screen
BROAD = 44  # letters of a table's line that the first of these holds
MOST_CARDS, FEW_COLUMNS = (
    12,
    3,
)  # lines that are read as cards on a narrow screen, and columns that need none


@dataclass(frozen=True)
class Part:
    """A piece of a page."""

    @property
    def macro(self) -> str:
        """Template macro that lays out the part."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Paragraph(Part):
    """Sentences."""

    text: str


@dataclass(frozen=True)
class Note(Part):
    """An aside, such as why something is not there."""

    text: str


@dataclass(frozen=True)
class Heading(Part):
    """A title within a section."""

    text: str


@dataclass(frozen=True)
class Equations(Part):
    r"""Lines of a model, with indices as in ``x_{j} | a_{1}`` and ``β^{(i)}``."""

    lines: Sequence[str]

    def pieces(self) -> list[list[tuple[str, tuple[str, ...]]]]:
        """Return lines in pieces: a text, and its tags, as ``("sub", "sub")``."""
        return [_pieces(line) for line in self.lines]


@dataclass(frozen=True)
class Finding(Part):
    """A question and its answer.

    Args:
        mark: ``"good"``, ``"care"``, ``"bad"``, or ``""`` where nothing is judged.
        question, answer: whole sentences.
        step: what to do about it, "" for nothing.
    """

    mark: str
    question: str
    answer: str
    step: str = ""

    @property
    def sign(self) -> str:
        """The mark for those who see no colours."""
        return {"good": "✓", "care": "!", "bad": "✗"}.get(self.mark, "")


@dataclass(frozen=True)
class Verdict(Part):
    """Findings, and what to do next.

    Args:
        findings: answers, in the order in which they are read.
        steps: whole sentences.
        answer: what the page was asked, answered in one sentence; "" for a page that was asked more
            than one thing.
        about: what it is that is judged.
    """

    findings: tuple[Finding, ...]
    steps: tuple[str, ...]
    answer: str = ""
    about: str = "fit"

    @property
    def mark(self) -> str:
        """The worst of the findings' marks."""
        return next(
            (
                mark
                for mark in ("bad", "care")
                if any(found.mark == mark for found in self.findings)
            ),
            "good",
        )

    @property
    def headline(self) -> str:
        """The answer, and the findings in one sentence."""
        return f"{self.answer} {self._judgement()}".strip()

    def _judgement(self) -> str:
        many = sum(found.mark == self.mark for found in self.findings)
        if self.mark == "bad":
            return (
                f"Do not build on this {self.about} yet:"
                f" {counted(many, 'answer below says', 'answers below say')} why."
            )
        if self.mark == "care":
            return (
                f"To be read with care: {counted(many, 'answer below asks', 'answers below ask')}"
                " for a closer look."
            )
        return f"No check on this page speaks against this {self.about}."


@dataclass(frozen=True)
class Bullets(Part):
    """A list of texts."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Warned(Part):
    """Warnings, one under the other."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Table(Part):
    """A table of texts; ``head`` may be ()."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of(
        cls, head: Sequence[str] | Mapping[str, Iterable[str]], *columns: Iterable[str]
    ) -> Table:
        """Table of columns beside their headings, or by them."""
        columns = tuple(head.values()) if isinstance(head, Mapping) else columns
        return cls(tuple(head), list(zip(*columns, strict=True)))

    @property
    def is_long(self) -> bool:
        """Long table, which is scrolled in its box."""
        return len(self.rows) > LONG

    @property
    def is_broad(self) -> bool:
        """Table that is scrolled sideways on a narrow screen."""
        if self.is_stacked or not self.rows:
            return False
        columns = list(zip(*([self.head, *self.rows] if self.head else self.rows), strict=True))
        words = [
            max(max(map(len, cell.split(" ")), default=0) for cell in cells) for cells in columns
        ]
        whole = [
            max((len(cell) for cell in cells[bool(self.head) :]), default=0) if kind else word
            for kind, cells, word in zip(self.classes, columns, words, strict=True)
        ]
        return sum(max(own) + 2 for own in zip(words, whole, strict=True)) > BROAD

    @property
    def is_stacked(self) -> bool:
        """Table whose lines become cards on a narrow screen."""
        width = (
            len(self.head) if self.head else 1 + max(map(len, self.rows), default=0)
        )  # without a head a card reads well sooner
        return width > FEW_COLUMNS and len(self.rows) <= MOST_CARDS * (1 if self.head else 2)

    @property
    def classes(self) -> list[str]:
        """Class of each column: ``number`` where all of its cells are numbers."""
        columns = zip(*self.rows, strict=True) if self.rows else ()
        return [
            "number" if any(cells) and all(NUMBER.fullmatch(cell) for cell in cells) else ""
            for cells in columns
        ]


@dataclass(frozen=True)
class Picture(Part):
    """Picture inside the page: its words, the PNG in base 64, and its width in pixels."""

    alt: str
    png: str = field(repr=False)
    width: int

    @property
    def least_width(self) -> int:
        """Pixels below which its words are too small to read, so that it is scrolled sideways."""
        return round(LEGIBLE * self.width)

    @property
    def classes(self) -> str:
        """Class of a picture that is scrolled on narrow screens: ``broad``, or ``broader``."""
        small, half = NARROW
        return (
            "" if self.least_width <= small else "broad" if self.least_width <= half else "broader"
        )


@dataclass(frozen=True)
class Verbatim(Part):
    """A text whose lines are kept."""

    text: str


@dataclass(frozen=True)
class Details(Part):
    """Parts that are opened by a click."""

    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Args:
        key: what links name.
        title: its heading.
        parts: what stands in it; a section without any is left out.
    """

    key: str
    title: str
    parts: Iterable[Part]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))


def _pieces(line: str) -> list[tuple[str, tuple[str, ...]]]:
    out: list[tuple[str, tuple[str, ...]]] = []
    text, tags = "", list[str]()
    for place, sign in enumerate(line):
        before = line[place - 1] if place else ""
        if sign == "{" and before in "_^":
            out.append((text[:-1], tuple(tags)))
            text, tags = "", [*tags, "sub" if before == "_" else "sup"]
        elif sign == "}" and tags:
            out.append((text, tuple(tags)))
            text, tags = "", tags[:-1]
        else:
            text += sign
    return [piece for piece in [*out, (text, tuple(tags))] if piece[0]]
