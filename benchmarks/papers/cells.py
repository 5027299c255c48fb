"""Published numbers as cells of tables, and what our replicates say of each.

A cell is one published number; a setting is what has to be run for one or several cells; a
replicate is a setting and a seed. A cell may have a setting of each protocol: ``paper``, the
estimator and settings that the paper states, and ``ours``, the plain call of the library.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.metrics import trimmed_rmse

PROTOCOLS = ("paper", "ours")
REFERENCES = Path(__file__).parents[2] / "tests" / "references"
AT_OR_BETTER, WITHIN, WORSE = "at or better", "within two standard errors", "worse"
NOT_COMPARABLE, UNDECIDED, NOT_RUN = "not comparable", "one replicate", "not run"
LEAST = 5  # replicates before a difference to the published number may end a cell
START = 10.0  # what a cell that has too few replicates counts as, in units of what it needs


def digest(value: Any) -> str:
    """The SHA-256 of a value as JSON with its keys in order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Setting:
    """Arguments of a study's function, but for the seed.

    Args:
        study: name of the paper's study.
        arguments: texts, numbers and flags by name; they and the study decide the key. ``runs`` is
            how many runs one replicate makes, 1 if absent.
        replicates: published number of runs, beyond which none is made.
        seconds: of the processor a replicate takes, as far as known before the first.
        version: of the estimator; raised by whoever changes what it computes, so that records of a
            lower version are old.
        tolerance: relative, of numbers when a replicate is run again.
        file: in the folder ``PPL_MODELS_DATA``, which the setting needs.
    """

    study: str
    arguments: Mapping[str, Any]
    replicates: int
    seconds: float
    version: int = 1
    tolerance: float = 1e-4
    file: str | None = None

    @property
    def runs(self) -> int:
        """Runs of one replicate."""
        return int(self.arguments.get("runs", 1))

    @property
    def key(self) -> str:
        """The digest of study and arguments."""
        return digest([self.study, dict(self.arguments)])[:16]


def repeated(run: Callable[[int], Mapping[str, float]], runs: int, seed: int) -> dict[str, Any]:
    """Numbers of the runs of a replicate, a list each: those of seeds from ``runs * seed`` on."""
    found = [run(runs * seed + i) for i in range(runs)]
    return {name: [own[name] for own in found] for name in found[0]}


@dataclass(frozen=True, eq=False)
class Cell:
    """One published number.

    Args:
        row, column: as the paper prints them.
        number: entry of a replicate's numbers, or one by protocol.
        published: the number; None where the paper draws it only.
        settings: by protocol; none where nothing can run it yet.
        summary: "mean", "percent", "median" or "rmse" (of mean squared errors, outliers dropped).
        better: "more", "less" or "alike".
        error: standard error of the published number; None takes ours, scaled to ``replicates``.
        replicates: of the published number.
        digits: after the point.
        doubt: why the published number is no yardstick, for all protocols or by protocol.
        note: what is known of a difference.
    """

    row: str
    column: str
    number: str | Mapping[str, str]
    published: float | None
    settings: Mapping[str, Setting]
    summary: str = "mean"
    better: str = "more"
    error: float | None = None
    replicates: int = 1
    digits: int = 3
    doubt: str | Mapping[str, str] = ""
    note: str = ""

    def number_of(self, protocol: str) -> str:
        """The entry of a replicate's numbers by a protocol."""
        return self.number if isinstance(self.number, str) else self.number[protocol]

    def doubt_of(self, protocol: str) -> str:
        """Why the published number is no yardstick for a protocol; empty where it is one."""
        return self.doubt if isinstance(self.doubt, str) else self.doubt.get(protocol, "")


@dataclass(frozen=True, eq=False)
class Axes:
    """A figure of a table's cells: columns are places on the horizontal axis, rows are curves."""

    x: str
    y: str
    see: str
    log_x: bool = True
    log_y: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """A published table or figure.

    Args:
        name: as the paper has it, such as "S.3"; caption: what its numbers are.
        cells: its numbers; axes: where it is drawn too.
        missing: why its cells lack a setting of a protocol, or of both.
    """

    name: str
    caption: str
    cells: Sequence[Cell]
    axes: Axes | None = None
    missing: str = ""


@dataclass(frozen=True, eq=False)
class Study:
    """A paper.

    Args:
        name: of its file of records; title: its reference in words.
        protocol: what its settings "paper" and "ours" are.
        tables: what it publishes.
        replicate: takes a setting's arguments and ``seed``, returns numbers by name, lists where a
            replicate makes several runs; the same again for the same seed.
    """

    name: str
    title: str
    protocol: str
    tables: Sequence[Table]
    replicate: Callable[..., Mapping[str, Any]] = field(repr=False)

    def settings(self, table: str | None = None) -> dict[str, Setting]:
        """All settings by key, or those of one table.

        Raises:
            ValueError: for a table that the study has not.
        """
        names = [own.name for own in self.tables]
        if table is not None and table not in names:
            raise ValueError(f"TABLE must be one of {', '.join(names)}, got {table!r}")
        return {
            setting.key: setting
            for own in self.tables
            if table in (None, own.name)
            for cell in own.cells
            for setting in cell.settings.values()
        }


def published(name: str) -> dict[str, Any]:
    """Published numbers, from the tests' references.

    Raises:
        ValueError: for a reference that does not say where its numbers come from.
    """
    path = REFERENCES / f"{name}.json"
    numbers: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if not str(numbers.get("source", "")).strip():
        raise ValueError(
            f'tests/references/{name}.json: a text under "source", the paper and table of its'
            " numbers, was expected, got none"
        )
    return numbers


def percent_error(percent: float, replicates: int) -> float:
    """Standard error of a percentage, from the share after one success and one failure more, so
    that it is never zero.
    """
    share = (percent / 100 * replicates + 1) / (replicates + 2)
    return 100 * math.sqrt(share * (1 - share) / replicates)


@dataclass(frozen=True)
class Estimate:
    """Our number of a cell: value, standard error (infinite of one run) and runs."""

    value: float
    error: float
    runs: int


def estimate(values: Sequence[float], summary: str) -> Estimate:
    r"""The summary of runs with its standard error.

    Of a mean and of a root mean squared error the jackknife's, :math:`\sqrt{(n-1)/n \sum_i
    (\theta_{-i} - \bar\theta)^2}`, which for a mean is the sample standard deviation over
    :math:`\sqrt n`; of a percentage :func:`percent_error`; of a median half the distance between
    the quantiles at :math:`1/2 \pm 1/(2 \sqrt n)`.

    Raises:
        ValueError: for a summary of another name, or no values.
    """
    values = [float(value) for value in values]
    num = len(values)
    if not num:
        raise ValueError("estimate: at least one value was expected, got none")
    if summary == "percent":
        percent = 100 * statistics.fmean(values)
        return Estimate(percent, percent_error(percent, num), num)
    if summary == "median":
        return Estimate(statistics.median(values), _median_error(values), num)
    if summary not in ("mean", "rmse"):
        raise ValueError(f"summary must be mean, percent, median or rmse, got {summary!r}")
    of: Callable[[Sequence[float]], float] = (
        statistics.fmean if summary == "mean" else lambda some: trimmed_rmse(some).trimmed
    )
    if num == 1:
        return Estimate(of(values), math.inf, 1)
    left = [of(values[:i] + values[i + 1 :]) for i in range(num)]
    center = statistics.fmean(left)
    error = math.sqrt((num - 1) / num * sum((value - center) ** 2 for value in left))
    return Estimate(of(values), error, num)


def _median_error(values: Sequence[float]) -> float:
    num = len(values)
    if num == 1:
        return math.inf
    ordered = sorted(values)

    def quantile(level: float) -> float:
        place = min(max(level, 0.0), 1.0) * (num - 1)
        low = math.floor(place)
        high = min(low + 1, num - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    half = 1 / (2 * math.sqrt(num))
    return (quantile(0.5 + half) - quantile(0.5 - half)) / 2


def published_error(cell: Cell, ours: Estimate) -> float:
    """Standard error of the published number: its own, or ours at as many replicates; and that of
    its rounding, uniform over one unit of the last digit.
    """
    rounding = 10.0**-cell.digits / math.sqrt(12)
    own = cell.error
    if own is None:
        own = ours.error * math.sqrt(ours.runs / cell.replicates)
    return math.hypot(own, rounding)


def verdict(cell: Cell, ours: Estimate | None, protocol: str = "paper") -> str:
    """What our number says beside the published one."""
    if ours is None:
        return NOT_RUN
    if cell.published is None or cell.doubt_of(protocol):
        return NOT_COMPARABLE
    short = cell.published - ours.value
    short = {"more": short, "less": -short, "alike": abs(short)}[cell.better]
    if short <= 0:
        return AT_OR_BETTER
    if not math.isfinite(ours.error):
        return UNDECIDED
    return WITHIN if short <= 2 * math.hypot(ours.error, published_error(cell, ours)) else WORSE


def need(cell: Cell, ours: Estimate | None, limit: int, protocol: str = "paper") -> float:
    """How much a cell lacks: our standard error over a third of the larger of the difference to the
    published number and that number's error; 0 where it is done.

    Args:
        limit: the published number of replicates, at which a cell is done whatever its error.
    """
    if ours is None or ours.runs < min(LEAST, limit):
        return START
    if ours.runs >= limit:
        return 0.0
    if cell.published is None or cell.doubt_of(protocol):
        return 1.0
    spread = cell.error if cell.error is not None else 0.0
    scale = max(abs(ours.value - cell.published), spread) / 3
    ratio = ours.error / scale if scale > 0 else START
    return min(ratio, START) if ratio > 1 else 0.0


def cells_of(studies: Sequence[Study]) -> Iterator[tuple[Study, Table, Cell]]:
    """Every cell with its study and table."""
    for study in studies:
        for table in study.tables:
            for cell in table.cells:
                yield study, table, cell
