"""Few columns for the components: estimated activities follow the data, so noise is too regular; what takes that away?

Three components, twelve columns, 300 rows. One JSON line a seed: by every null the choice among K = 1..6 and the discrepancies at
the truth, which should be zero; for activities that are estimated (table, bootstrap, bootstrap with refits) and drawn
(`UsageFactorization`, table). Run: ``python benchmarks/acdc_few_columns.py [SEEDS]``.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np

from inference.acdc import Bootstrap, acdc
from inference.selection import fit_grid
from ppl_models import PoissonFactorization, UsageFactorization

COLUMNS, TRUTH, ROWS = 12, 3, 300


def main() -> None:
    warnings.simplefilter("ignore")
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        rng, began = np.random.default_rng(seed), time.process_time()
        phi, z = rng.dirichlet(np.full(COLUMNS, 0.3), TRUTH), rng.gamma(1.0, 100.0, (ROWS, TRUTH))
        x = rng.poisson(z @ phi).astype(float)
        x = x[x.sum(1) > 0]
        fits = fit_grid(lambda k: PoissonFactorization(COLUMNS, k), x, range(1, 7), 5, seed)
        usage = fit_grid(lambda k: UsageFactorization(COLUMNS, k), x, range(1, 6), 1, seed)
        found = {
            "table": acdc(fits, x, seed=seed),
            "bootstrap": acdc(fits, x, seed=seed, calibrate=Bootstrap(5), num_draws=2),
            "bootstrap, refitted": acdc(fits, x, seed=seed, calibrate=Bootstrap(5, refit=True), num_draws=2),
            "activities drawn": acdc(usage, x, seed=seed),
        }
        record = {
            "benchmark": "acdc_few_columns", "seed": seed, "truth": TRUTH,
            "chosen": {name: r.chosen for name, r in found.items()},
            "left": {name: {k: round(v, 3) for k, v in r.left.items()} for name, r in found.items()},
            "discrepancies_at_truth": {name: r.component_discrepancy[TRUTH].round(3).tolist() for name, r in found.items()},
            "cpu_seconds": round(time.process_time() - began, 1),
        }  # fmt: skip
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
