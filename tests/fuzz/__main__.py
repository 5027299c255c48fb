"""``python -m fuzz``: many cases, spread over cores; or one case again, by its seed.

Prints each defect with the seed that shows it again, and at last one line: cases, uncaught, silent
NaN, too slow (an answer may come after 30 seconds of work), seconds.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

for threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

from fuzz.attacks import block, run_case  # noqa: E402  (after the number of threads)
from fuzz.oracle import SILENT, SLOW, UNCAUGHT, Verdict  # noqa: E402

BLOCK = 50
AT_ONCE = 10  # blocks a process, after which a fresh one goes on


def in_processes(blocks: list[range], cores: int) -> Iterator[list[tuple[int, float, Verdict]]]:
    """The answers of blocks, in order, from processes that are replaced after some of them (a pool
    that replaces its own can stand still).
    """
    for place in range(0, len(blocks), AT_ONCE * cores):
        some = blocks[place : place + AT_ONCE * cores]
        with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
            try:
                yield from pool.map(block, some)
            except BrokenProcessPool:  # a crash below Python: no case of these counts
                verdict = Verdict(
                    "process",
                    UNCAUGHT,
                    f"a process died in the cases {some[0].start} to {some[-1].stop - 1}",
                )
                yield [(some[0].start, 0.0, verdict)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many")
    parser.add_argument(
        "--first", type=int, default=None, help="seed of the first case; drawn anew if left out"
    )
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--seed", type=int, default=None, help="run this one case, and say how it ended"
    )
    parser.add_argument("--times", action="store_true", help="show where the time went")
    given = parser.parse_args()
    say = sys.stdout.write
    if given.seed is not None:
        verdict = run_case(given.seed)
        say(f"seed {given.seed}: {verdict.kind}: {verdict.word}\n{verdict.text}\n")
        return int(verdict.is_defect)
    first = int.from_bytes(os.urandom(4), "little") if given.first is None else given.first
    say(f"cases {first} to {first + given.cases - 1}, {given.cores} processes\n")
    began = time.monotonic()
    starts = range(first, first + given.cases, BLOCK)
    words: collections.Counter[str] = collections.Counter()
    kinds: collections.Counter[tuple[str, str]] = collections.Counter()
    spent: collections.Counter[str] = collections.Counter()
    for results in in_processes(
        [range(s, min(s + BLOCK, first + given.cases)) for s in starts], given.cores
    ):
        for seed, seconds, verdict in results:
            words[verdict.word] += 1
            kinds[verdict.kind, verdict.word] += 1
            spent[verdict.kind] += seconds
            if verdict.is_defect:
                say(
                    f"\nseed {seed} ({verdict.kind}, {verdict.word}); again: python -m fuzz --seed"
                    f" {seed}\n{verdict.text}\n"
                )
                sys.stdout.flush()
            if given.times and seconds > 2:
                say(f"seed {seed} ({verdict.kind}) took {seconds:.1f} s\n")
    for (kind, word), count in sorted(kinds.items()):
        say(f"{kind:12} {word:10} {count:6}  {spent[kind]:.1f} s of this kind\n")
    say(
        f"cases {sum(words.values())}, uncaught {words[UNCAUGHT]}, silent NaN {words[SILENT]}, too"
        f" slow {words[SLOW]}, {time.monotonic() - began:.0f} seconds; first seed {first}\n"
    )
    return int(bool(words[UNCAUGHT] or words[SILENT] or words[SLOW]))


if __name__ == "__main__":
    sys.exit(main())
