"""Variates found from data: which columns are dependent inside the components of a mixture.

Designs are drawn anew for every seed: normal columns, pairs and threes of them correlated inside
each component with another sign in each; rings in the plane; one of a pair the square of the other
plus noise; counts of a common rate. One JSON line a design, number of rows and number of components
told (the true one, one less, one more): shares of tables whose partition is the true one, that put
columns of different variates together, and that part columns of one, standard errors of the first,
and seconds of a table.
Run: ``python benchmarks/variates.py [--replicates 100] [--rows 2000 10000 50000]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from _bench import Lines, command_line, run, seeds

from inference.selection import find_variates

Partition = list[list[int]]
Design = tuple[int, Partition, Callable[[np.random.Generator, np.ndarray, Partition], np.ndarray]]
CORRELATION = 0.5


def normal(rng: np.random.Generator, which: np.ndarray, groups: Partition) -> np.ndarray:
    size = sum(map(len, groups))
    rows, num = rng.standard_normal((len(which), size)), which.max() + 1
    for own in groups:
        slope = CORRELATION / (1 - CORRELATION**2) ** 0.5 * rng.choice([-1.0, 1.0], num)[which]
        for before, after in zip(own, own[1:], strict=False):
            rows[:, after] = (rows[:, after] + slope * rows[:, before]) * (
                1 - CORRELATION**2
            ) ** 0.5
    return rows + 1.2 * rng.standard_normal((num, size))[which]


def rings(rng: np.random.Generator, which: np.ndarray, groups: Partition) -> np.ndarray:
    columns = []
    for _ in groups:
        angle, radius = rng.uniform(0, 2 * np.pi, len(which)), 1.0 + 1.5 * rng.permutation(3)[which]
        ring = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
        columns.append(ring + 0.4 * rng.standard_normal((len(which), 2)))
    return np.concatenate(columns, 1)


def squares(rng: np.random.Generator, which: np.ndarray, groups: Partition) -> np.ndarray:
    num, columns = which.max() + 1, []
    for own in groups:
        first = rng.standard_normal(len(which))
        columns.append(first + 1.2 * rng.standard_normal(num)[which])
        for _ in own[1:]:
            columns.append(
                first**2 + rng.standard_normal(num)[which] + rng.standard_normal(len(which))
            )
    return np.stack(columns, 1)


def counts(rng: np.random.Generator, which: np.ndarray, groups: Partition) -> np.ndarray:
    num, columns = which.max() + 1, []
    for own in groups:
        rate = rng.gamma(3.0, 1 / 3, len(which))  # common to the columns of a variate
        columns += [rng.poisson(rate * rng.uniform(2, 12, num)[which]) for _ in own]
    return np.stack(columns, 1).astype(float)


DESIGNS: dict[str, Design] = {
    "single columns": (3, [[0], [1], [2], [3], [4], [5], [6], [7]], normal),
    "one pair": (2, [[0, 1], [2], [3]], normal),
    "three pairs": (2, [[0, 1], [2, 3], [4, 5]], normal),
    "three pairs of three components": (3, [[0, 1], [2, 3], [4, 5]], normal),
    "a three, pairs and one": (3, [[0, 1, 2], [3, 4], [5, 6], [7]], normal),
    "ten pairs": (4, [[2 * v, 2 * v + 1] for v in range(10)], normal),
    "rings": (3, [[0, 1], [2, 3], [4, 5]], rings),
    "squares": (2, [[0, 1], [2, 3], [4]], squares),
    "counts": (3, [[0, 1], [2, 3], [4, 5], [6]], counts),
}


def _together(groups: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    return {pair for own in groups for pair in combinations(sorted(own), 2)}


def measure(args: argparse.Namespace) -> Lines:
    for num_rows in args.rows:
        for name, (size, groups, simulate) in DESIGNS.items():
            true = _together(groups)
            for told in (size, *((size - 1, size + 1) if num_rows == max(args.rows) else ())):
                right, more, fewer, began = [], [], [], time.process_time()
                for seed in seeds(args):
                    rng = np.random.default_rng(seed)
                    which = rng.choice(size, num_rows, p=rng.dirichlet(np.full(size, 8.0)))
                    rows = simulate(rng, which, groups)
                    found = find_variates(rows, told, seed=seed).variates
                    own = _together([[int(j) for j in part] for part in found])
                    right.append(own == true)
                    more.append(bool(own - true))
                    fewer.append(bool(true - own))
                share = float(np.mean(right))
                yield {
                    "design": name,
                    "rows": num_rows,
                    "components": size,
                    "told": told,
                    "tables": len(right),
                    "right": round(share, 4),
                    "right_error": round(float(np.sqrt(share * (1 - share) / len(right))), 4),
                    "put_together": round(float(np.mean(more)), 4),
                    "parted": round(float(np.mean(fewer)), 4),
                    "seconds": round((time.process_time() - began) / len(right), 3),
                }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=100, threads=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 10_000, 50_000])
    run(parser, measure, argv, {"rows": [500], "replicates": 1})


if __name__ == "__main__":
    main()
