"""How often each way of making a sample recovers the graph of fitted attributes, by every score.

The manuscript's tables are run by ``make papers`` and shown on the page of papers; here are all
scores of :mod:`papers.studies.causal` for all ways, at other numbers of rows too. A fit of
``LatentAttributeModel`` a replicate, with Q or, with ``--q estimated``, without. One JSON line a
structure, number of rows and way: methods 1 to 6 (:mod:`papers.profile_counts`) by greedy search,
and ours, the table at N and at its effective number of rows (items taken as known) by the search
that ``discover`` uses. Percent of replicates whose best graph is the true one, by score. Run:
``python benchmarks/causal_attributes.py --threads 1``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from _bench import Lines, command_line, run, seeds
from papers.studies.causal import SCORES, is_right, tables


def measure(args: argparse.Namespace) -> Lines:
    for name in args.structures:
        for num_rows in args.rows:
            right: dict[tuple[str, int], dict[str, list[bool]]] = {}
            quality: dict[str, list[float]] = {}
            for seed in seeds(args):
                made, found = tables(name, num_rows, args.claims, args.q == "known", seed)
                for label, value in found.items():
                    quality.setdefault(label, []).append(value)
                for key, (table, worth) in made.items():
                    for label in SCORES:
                        hit = is_right(name, key[0], table, worth, label)
                        right.setdefault(key, {}).setdefault(label, []).append(hit)
            for (way, times), hits in right.items():
                line: dict[str, Any] = {
                    "structure": name,
                    "q": args.q,
                    "rows": num_rows,
                    "way": way,
                    "claimed_rows": times * num_rows,
                }
                line |= {
                    label: round(100 * float(np.mean(values)), 1) for label, values in hits.items()
                }
                line |= {
                    label: round(float(np.mean(values)), 4) for label, values in quality.items()
                } | {"replicates": args.replicates}
                yield line


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=200, threads=1)
    parser.add_argument(
        "--structures",
        nargs="+",
        default=["1", "2", "3"],
        choices=["1", "2", "3"],
        help="the manuscript's",
    )
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        default=[1000, 2000, 5000, 10000, 50000],
        help="numbers of rows",
    )
    parser.add_argument(
        "--claims",
        type=int,
        nargs="+",
        default=[1, 5, 10, 50],
        help="N' / N of methods 1, 2, 4 and 5",
    )
    parser.add_argument(
        "--q",
        choices=["known", "estimated"],
        default="known",
        help="whether the fit is told the Q-matrix",
    )
    run(
        parser,
        measure,
        argv,
        {"replicates": 2, "structures": ["2"], "rows": [1000], "claims": [1, 5]},
    )


if __name__ == "__main__":
    main()
