"""Price of ``on_iteration``: process time of a fit with a function that looks, over one without.

The same EM of many iterations, by turns with and without, in one process at one thread.

Run: ``python benchmarks/on_iteration.py [--replicates 9]``. Ten seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Sequence

import numpy as np
from _bench import Lines, command_line, run, seeds

from inference import EM, fit
from inference.base.progress import Iteration
from ppl_models import Mixture, Normal


def measure(args: argparse.Namespace) -> Lines:
    generator = np.random.default_rng(0)
    data = generator.normal(size=(args.rows, 4)) + generator.integers(0, 2, (args.rows, 1))
    engine = EM(400, 1e-300, 1e-300, acceleration=None)
    spent: dict[bool, list[float]] = {True: [], False: []}
    count: list[int] = []
    for seed in seeds(args):
        for looks in (True, False):
            seen: list[Iteration] = []
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit(
                    Mixture(2, Normal()),
                    data,
                    engine,
                    seed=seed,
                    on_iteration=(lambda now, seen=seen: seen.append(now)) if looks else None,
                )
            spent[looks].append(time.process_time() - began)
            count += [len(seen)] if looks else []
    with_, without = (min(spent[looks]) for looks in (True, False))
    yield {
        "rows": args.rows,
        "iterations": statistics.median(count),
        "microseconds_an_iteration": round(1e6 * without / statistics.median(count), 1),
        "ratio": round(with_ / without, 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=9, threads=1)
    parser.add_argument("--rows", type=int, default=200, metavar="N", help="rows of the table")
    run(parser, measure, argv, quick={"replicates": 1})


if __name__ == "__main__":
    main()
