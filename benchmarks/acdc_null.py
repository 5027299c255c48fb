"""Null calibration: how often a component with exactly the right noise is called discrepant at 5 %, by rows.

One JSON line a (rows, estimator). Counts are split at the true parameters. Run: ``python benchmarks/acdc_null.py``.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from inference.acdc import KDE, KNN, Histogram, null_moments
from inference.base.component_noise import poisson_scores, poisson_split

LEVEL, QUANTILE = 0.05, 1.645


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--rows", type=int, nargs="*", default=(100, 300, 1000, 3000, 10_000))
    options = parser.parse_args()
    num_items, num_components = 12, 3
    for n in options.rows:
        rng = np.random.default_rng(n)
        called: dict[str, list[bool]] = {}
        for _ in range(options.replicates):
            rates = rng.gamma(1.0, 100.0, (n, num_components, 1)) * rng.dirichlet(np.full(num_items, 0.5), num_components)
            y = poisson_scores(poisson_split(rng.poisson(rates.sum(1)), rates, rng), rates, rng)
            for estimator in (KDE(), Histogram(), KNN()):
                mean, sd = null_moments(estimator, n, num_items)
                values = [estimator.columns(y[:, k]).sum() for k in range(num_components)]
                called.setdefault(type(estimator).__name__, []).extend(bool(v > mean + QUANTILE * sd) for v in values)
        for name, flags in called.items():
            record = {"benchmark": "acdc_null", "rows": n, "estimator": name, "level": LEVEL, "called": float(np.mean(flags)), "of": len(flags)}
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
