"""Tests of differential item functioning: how often an item that functions alike is called
different, and one that does not is found.

Two groups with other distributions of two attributes, twelve items; item 0 is harder for the second
group by ``--shift`` log-odds, all others are the same for both. One line a shift: the share of data
sets in which the likelihood ratio of an unbiased item (all but item 0, at a shift of 0 also that),
and both Wald tests, reject at ``--level``; the share in which item 0 is found; and standard errors
of these shares over data sets.

Run: ``python benchmarks/differential_items.py [--replicates 200] [--rows 1000] [--shift 0 0.5 1]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds

from inference import EM, fit
from inference.selection import differential_items
from ppl_models import AttributeGroups, LatentAttributeModel

Q = ((1, 0), (0, 1)) * 5 + ((1, 1),) * 2
DISTRIBUTIONS = ((0.4, 0.2, 0.15, 0.25), (0.2, 0.15, 0.2, 0.45))
TESTS = ("p_value", "uniform_p", "non_uniform_p")


def answers(rows: int, shift: float, seed: int) -> np.ndarray:
    """Items, and the number of the group last."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    place = np.array([rng.choice(4, p=DISTRIBUTIONS[g]) for g in group])
    asked = np.array(Q)
    odds = -1.5 + 3.0 * (np.stack([place // 2, place % 2], -1) @ asked.T) / asked.sum(1)
    odds[:, 0] -= shift * group
    return np.column_stack([rng.random(odds.shape) < 1 / (1 + np.exp(-odds)), group]).astype(float)


def share(values: list[float]) -> list[float]:
    """The mean, and its standard error."""
    each = torch.tensor(values, dtype=torch.float64)
    return [
        round(float(each.mean()), 4),
        round(float(each.std() / len(each) ** 0.5), 4) if len(each) > 1 else 0.0,
    ]


def measure(args: argparse.Namespace) -> Lines:
    model = AttributeGroups(LatentAttributeModel(Q), ("first", "second"))
    for shift in args.shift:
        began = time.monotonic()
        unbiased: dict[str, list[float]] = {test: [] for test in TESTS}
        found: dict[str, list[float]] = {test: [] for test in TESTS}
        for seed in seeds(args):
            data = answers(args.rows, shift, seed)
            tests = differential_items(
                fit(model, data, EM(tolerance=1e-8), num_restarts=1), data, args.items
            )
            for test in TESTS:
                rejects = getattr(tests, test) < args.level
                found[test].append(float(rejects[0]))
                unbiased[test].append(float(np.mean(rejects[1:] if shift else rejects)))
        line = {
            "shift": shift,
            "rows": args.rows,
            "replicates": args.replicates,
            "level": args.level,
        }
        line |= {"rejected_alike": {test: share(values) for test, values in unbiased.items()}}
        line |= {
            "found": {test: share(values) for test, values in found.items()} if shift else None
        }
        yield line | {"seconds": round(time.monotonic() - began, 1)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=200)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--shift", type=float, nargs="+", default=[0.0, 0.5, 1.0])
    parser.add_argument("--level", type=float, default=0.05)
    parser.add_argument(
        "--items",
        type=int,
        nargs="+",
        default=[0, 1, 5, 10],
        help="items that are tested, item 0 among them first",
    )
    run(parser, measure, argv, {"replicates": 2, "rows": 300, "shift": [0.0, 1.0], "items": [0, 1]})


if __name__ == "__main__":
    main()
