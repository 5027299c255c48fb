"""Null calibration: how often a component with exactly the right noise is called discrepant at 5 %,
by rows.

One JSON line a (rows, estimator). Counts are split at the true parameters. Run: ``python
benchmarks/acdc_null.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from _bench import Lines, command_line, run

from inference.acdc import KDE, KNN, Histogram
from inference.acdc.discrepancy import null_moments
from inference.base.component_noise import poisson_scores, poisson_split

LEVEL, QUANTILE = 0.05, 1.645


def measure(args: argparse.Namespace) -> Lines:
    num_items, num_components = 12, 3
    for n in args.rows:
        rng = np.random.default_rng(n)
        called: dict[str, list[bool]] = {}
        for _ in range(args.replicates):
            rates = rng.gamma(1.0, 100.0, (n, num_components, 1)) * rng.dirichlet(
                np.full(num_items, 0.5), num_components
            )
            y = poisson_scores(poisson_split(rng.poisson(rates.sum(1)), rates, rng), rates, rng)
            for estimator in (KDE(), Histogram(), KNN()):
                mean, sd = null_moments(estimator, n, num_items)
                values = [estimator.columns(y[:, k]).sum() for k in range(num_components)]
                called.setdefault(type(estimator).__name__, []).extend(
                    bool(v > mean + QUANTILE * sd) for v in values
                )
        for name, flags in called.items():
            yield {
                "rows": n,
                "estimator": name,
                "level": LEVEL,
                "called": float(np.mean(flags)),
                "of": len(flags),
            }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=40, seeded=False)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 300, 1000, 3000, 10_000])
    run(parser, measure, argv, {"replicates": 2, "rows": [100, 300]})


if __name__ == "__main__":
    main()
