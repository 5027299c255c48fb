"""Few columns for the components: estimated activities follow the data, so noise is too regular;
what takes that away?

Three components, twelve columns, 300 rows. One JSON line a seed: by every null the choice among K =
1..6 and the discrepancies at the truth, which should be zero; for activities that are estimated
(table, bootstrap, bootstrap with refits) and drawn (`UsageFactorization`, table). Run: ``python
benchmarks/acdc_few_columns.py [--replicates 3]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from _bench import Lines, command_line, run, seeds

from inference.acdc import Bootstrap, acdc
from inference.selection import fit_grid
from ppl_models import PoissonFactorization, UsageFactorization

COLUMNS, TRUTH, ROWS = 12, 3, 300


def measure(args: argparse.Namespace) -> Lines:
    for seed in seeds(args):
        rng, began = np.random.default_rng(seed), time.process_time()
        phi, z = rng.dirichlet(np.full(COLUMNS, 0.3), TRUTH), rng.gamma(1.0, 100.0, (ROWS, TRUTH))
        x = rng.poisson(z @ phi).astype(float)
        x = x[x.sum(1) > 0]
        fits = fit_grid(
            lambda k: PoissonFactorization(COLUMNS, k),
            x,
            range(1, args.largest + 1),
            args.restarts,
            seed,
        )
        usage = fit_grid(
            lambda k: UsageFactorization(COLUMNS, k), x, range(1, args.largest), 1, seed
        )
        found = {
            "table": acdc(fits, x, seed=seed),
            "bootstrap": acdc(fits, x, seed=seed, calibrate=Bootstrap(args.tables), num_draws=2),
            "bootstrap, refitted": acdc(
                fits, x, seed=seed, calibrate=Bootstrap(args.tables, refit=True), num_draws=2
            ),
            "activities drawn": acdc(usage, x, seed=seed),
        }
        yield {
            "seed": seed,
            "truth": TRUTH,
            "chosen": {name: r.chosen for name, r in found.items()},
            "left": {
                name: {k: round(v, 3) for k, v in r.left.items()} for name, r in found.items()
            },
            "discrepancies_at_truth": {
                name: r.component_discrepancy[TRUTH].round(3).tolist() for name, r in found.items()
            },
            "cpu_seconds": round(time.process_time() - began, 1),
        }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=3)
    parser.add_argument("--largest", type=int, default=6)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--tables", type=int, default=5, help="tables of a bootstrap")
    run(parser, measure, argv, {"replicates": 1, "largest": 4, "restarts": 1, "tables": 2})


if __name__ == "__main__":
    main()
