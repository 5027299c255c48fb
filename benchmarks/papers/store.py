"""Records of replicates: one file of JSON lines a paper, appended and never overwritten.

A record has the setting that was run, the seed, the numbers, the versions of estimator and library,
the machine in words, processor seconds, and a digest of all that. Several processes may fill one
store: a replicate is claimed by a file lock, which a process that dies lets go, and appended under
another.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

import ppl_models
from papers.cells import Setting, digest

FORMAT = 1
FOLDER = Path(__file__).parent / "results"
NEEDED = ("study", "setting", "seed", "numbers", "estimator", "seconds", "digest")


@dataclass(frozen=True)
class Record:
    """One replicate.

    Args:
        key: of its setting; seed: of the replicate.
        numbers: by name, each a number or one a run.
        estimator: version of it; library: version of it.
        seconds: of the processor; tolerance: relative, of the numbers when they are had again.
    """

    key: str
    seed: int
    numbers: Mapping[str, Any]
    estimator: int
    library: str
    seconds: float
    tolerance: float


def machine() -> str:
    """The processor, the system and torch, in words."""
    return f"{platform.machine()} {platform.system()}, torch {torch.__version__.split('+')[0]}"


class Store:
    """Records of papers in a folder.

    Args:
        folder: of the files ``<study>.jsonl``.
        locks: folder of the locks, of which nothing is kept.
    """

    def __init__(self, folder: Path = FOLDER, locks: Path | None = None) -> None:
        self.folder = folder
        self.locks = Path(__file__).parents[2] / "build" / "papers" if locks is None else locks

    def records(self, study: str) -> list[Record]:
        """All records of a study, old ones too, in the order in which they were written.

        Raises:
            ValueError: for a line that is no record, that a newer library wrote, that lacks an
                entry or that was changed by hand; the message names file and line.
        """
        path = self.folder / f"{study}.jsonl"
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()  # of a process that was killed while it wrote
        return [_record(line, f"{path.name}, line {i}") for i, line in enumerate(lines, 1)]

    def done(self, setting: Setting) -> dict[int, Record]:
        """Records of a setting by seed, those of an older estimator left out."""
        return current(by_setting(self.records(setting.study)), setting)

    def append(
        self, setting: Setting, seed: int, numbers: Mapping[str, Any], seconds: float
    ) -> None:
        """Write one record.

        Raises:
            ValueError: for numbers that are not finite.
        """
        content = {
            "format": FORMAT,
            "study": setting.study,
            "setting": dict(setting.arguments),
            "seed": seed,
            "numbers": {name: _rounded(name, value) for name, value in numbers.items()},
            "estimator": setting.version,
            "library": ppl_models.__version__,
            "machine": machine(),
            "seconds": float(f"{seconds:.3g}"),
            "tolerance": setting.tolerance,
        }
        text = json.dumps(content | {"digest": digest(content)[:16]}, separators=(",", ":"))
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{setting.study}.jsonl"
        with self._lock(f"{setting.study}.append").acquire():
            _drop_torn_end(path)
            with path.open("a", encoding="utf-8") as file:
                file.write(text + "\n")

    @contextmanager
    def claimed(self, setting: Setting, seed: int) -> Iterator[bool]:
        """Whether the replicate is this process's to run: no other runs it, and none has."""
        lock = self._lock(f"{setting.key}.{seed}")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield seed not in self.done(setting)
        finally:
            lock.release()

    def _lock(self, name: str) -> FileLock:
        self.locks.mkdir(parents=True, exist_ok=True)
        return FileLock(self.locks / f"{name}.lock")


def by_setting(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by the key of their setting, in their order."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record)
    return found


def current(records: Mapping[str, list[Record]], setting: Setting) -> dict[int, Record]:
    """Records of a setting by seed, of its own version of the estimator; the first of a seed.

    Args:
        records: by setting.
        setting: whose records are wanted.
    """
    found: dict[int, Record] = {}
    for record in records.get(setting.key, ()):
        if record.estimator == setting.version:
            found.setdefault(record.seed, record)
    return found


def values(records: Mapping[int, Record], number: str) -> list[float]:
    """One entry of all runs in the order of the seeds; "seconds" are those of a run.

    Raises:
        ValueError: for a record that lacks the entry.
    """
    out: list[float] = []
    for seed, record in sorted(records.items()):
        if number == "seconds":
            runs = max(len(v) if isinstance(v, list) else 1 for v in record.numbers.values())
            out.append(record.seconds / runs)
            continue
        if number not in record.numbers:
            raise ValueError(
                f"record of setting {record.key}, seed {seed}: a number {number!r} was expected,"
                f" got {', '.join(record.numbers)}: raise the version of its estimator"
            )
        value = record.numbers[number]
        out += value if isinstance(value, list) else [value]
    return out


def _rounded(name: str, value: Any) -> Any:
    """Numbers to six digits, which keep the files small."""
    if isinstance(value, list | tuple):
        return [_rounded(name, entry) for entry in value]
    if not math.isfinite(value):
        raise ValueError(f"{name}: a finite number was expected, got {value!r}")
    return int(value) if float(value).is_integer() else float(f"{value:.6g}")


def _drop_torn_end(path: Path) -> None:
    """Cut a last line that a killed process did not finish."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _record(line: str, place: str) -> Record:
    try:
        content = json.loads(line)
        form = content["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{place}: a record was expected, got {line[:60]!r}") from error
    if form != FORMAT:
        raise ValueError(
            f"{place}: format {FORMAT} was expected, got {form!r}: a newer version of the store"
            " wrote it, update the repository"
        )
    if absent := [name for name in NEEDED if name not in content]:
        raise ValueError(f"{place}: the record lacks {', '.join(absent)}")
    told = content.pop("digest")
    if digest(content)[:16] != told:
        raise ValueError(
            f"{place}: the record's digest is not that of its content: it was changed by hand;"
            " remove the line, and make papers runs the replicate again"
        )
    return Record(
        digest([content["study"], content["setting"]])[:16],
        content["seed"],
        content["numbers"],
        content["estimator"],
        content["library"],
        content["seconds"],
        content["tolerance"],
    )
