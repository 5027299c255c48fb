"""Checks the store: every record is as it was written, and replicates of today come out again.

All records are read, so that one that was changed by hand, lacks its setting or has a newer format
is refused by name; so is one of a setting that no table knows. Then one replicate of each of three
cheap settings, drawn by the date, is run again and compared number by number to the tolerance that
its record states.

Run: ``python benchmarks/papers/check.py [--date 2026-11-25]``.
"""

from __future__ import annotations

import argparse
import datetime
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started as a file: its package is found beside it
    sys.path[0] = str(Path(__file__).parents[1])

from inference.studies import run_jobs
from papers.cells import Setting, Study
from papers.run import absent_file, replicate
from papers.store import Record, Store, by_setting, current
from papers.studies import STUDIES

NUM_DRAWN, MOST_SECONDS = 3, 5.0


def drawn(
    studies: Sequence[Study], store: Store, date: datetime.date
) -> list[tuple[Setting, Record]]:
    """Records of the date: of three settings that take a few seconds and have their data.

    Raises:
        ValueError: for a record that is not as it was written, or of no known setting.
    """
    cheap: list[tuple[Setting, Record]] = []
    generator = random.Random(date.isoformat())
    for study in studies:
        records, settings = store.records(study.name), study.settings()
        for record in records:
            if record.key not in settings:
                raise ValueError(
                    f"{study.name}.jsonl: no table has the setting {record.key} of a record with"
                    f" seed {record.seed}: remove its lines, or give the setting back its table"
                )
        for setting in settings.values():
            own = [
                record
                for record in current(by_setting(records), setting).values()
                if record.seconds <= MOST_SECONDS
            ]
            if own and absent_file(setting) is None:
                cheap.append((setting, generator.choice(own)))
    return generator.sample(cheap, min(NUM_DRAWN, len(cheap)))


def differences(again: Mapping[str, Any], record: Record) -> list[str]:
    """Numbers of a replicate that were not had again, in words."""
    out = []
    for name, before in record.numbers.items():
        now = again.get(name)
        befores = before if isinstance(before, list) else [before]
        nows = list(now) if isinstance(now, list | tuple) else [now]
        same = len(nows) == len(befores) and all(
            b is not None and abs(a - b) <= record.tolerance * max(abs(a), abs(b)) + 1e-9
            for a, b in zip(befores, nows, strict=True)
        )
        if not same:
            out.append(f"{name}: {before} in the store, {now} now")
    return out


def check(studies: Sequence[Study], store: Store, date: datetime.date) -> list[str]:
    """What does not come out again, in words; nothing where all is well."""
    out = []
    for setting, record in drawn(studies, store, date):
        job = {"study": setting.study, "arguments": dict(setting.arguments), "seed": record.seed}
        (result,) = run_jobs(replicate, [job]).jobs
        place = f"{setting.study}, {dict(setting.arguments)}, seed {record.seed}"
        if result.error is not None:
            out.append(f"{place}: {result.error}")
        else:
            out += [f"{place}: {words}" for words in differences(result.value["numbers"], record)]
    return out


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--date", type=datetime.date.fromisoformat, default=None, help="by default today's"
    )
    args = parser.parse_args(argv)
    date = args.date or datetime.datetime.now(tz=datetime.UTC).date()
    try:
        wrong = check(STUDIES, Store(), date)
    except ValueError as error:
        wrong = [str(error)]
    if wrong:
        hint = "where an estimator was changed on purpose, raise its version in papers/studies\n"
        parser.exit(1, "".join(f"papers: {words}\n" for words in wrong) + f"papers: {hint}")


if __name__ == "__main__":
    import papers.check

    papers.check.main()  # of the module by its name, which other processes import
