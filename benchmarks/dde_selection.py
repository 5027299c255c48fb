"""How often each criterion chooses the true number of latents, one more or one fewer.

The published percentages (Lee and Gu 2025, arXiv:2501.01414, tables S.9 to S.12) are run by ``make
papers`` and shown on the page of papers; here are the directions of the errors, other families, and
the design "deep" of three layers (54, 18, 6, 2), K2 from 5 to 9 given the others, where singular
values go wrong with more rows. One JSON line a cell.

Run: ``python benchmarks/dde_selection.py [--layer 1] [--replicates 20] [--criterion spectral ebic]
[--family Bernoulli]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from _bench import FAMILIES, Lines, command_line, run, seeds
from papers.studies.encoders import CRITERIA, ROWS_OF_SELECTION, selected


def measure(args: argparse.Namespace) -> Lines:
    for design in args.design:
        for family in args.family:
            for num_rows in args.rows:
                began = time.perf_counter()
                layer = 2 if design == "deep" else args.layer
                found = [
                    selected(family, design, layer, num_rows, args.criterion, seed)
                    for seed in seeds(args)
                ]
                for criterion in args.criterion:
                    apart = [own[criterion] for own in found]
                    yield {
                        "layer": layer,
                        "family": family,
                        "design": design,
                        "num_rows": num_rows,
                        "criterion": criterion,
                        "replicates": args.replicates,
                        "percent_correct": 100 * sum(k == 0 for k in apart) / len(apart),
                        "percent_under": 100 * sum(k < 0 for k in apart) / len(apart),
                        "percent_over": 100 * sum(k > 0 for k in apart) / len(apart),
                        "seconds_a_data_set": (time.perf_counter() - began) / args.replicates,
                    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20, threads=1)
    parser.add_argument("--layer", type=int, default=1, choices=[1, 2])
    parser.add_argument(
        "--criterion", nargs="+", default=["spectral"], choices=list(CRITERIA.values())
    )
    parser.add_argument(
        "--design", nargs="+", default=["strict"], choices=["strict", "generic", "deep"]
    )
    parser.add_argument(
        "--family", nargs="+", default=["Bernoulli", "Poisson"], choices=list(FAMILIES)
    )
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS_OF_SELECTION))
    run(parser, measure, argv, {"replicates": 1, "rows": [500]})


if __name__ == "__main__":
    main()
