"""Simulation-based calibration of NUTS, and coverage of 95 % intervals of Laplace and SVI, family by family at a small size.

``ranks``: truth from the prior, ``--rows`` rows, two chains; the p-value of uniform ranks by parameter group, and the histograms as
pictures with ``--figure FOLDER``. ``coverage``: one truth, intervals of each engine on fresh data; the standard error is over data
sets. One JSON line a family and engine.

Run: ``python benchmarks/calibration.py ranks|coverage [--replicates 100] [--rows 60] [--figure FOLDER]``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from inference import NUTS, SVI, FullRank, Laplace, MeanField
from inference.calibration import simulation_based_calibration
from ppl_models import Bernoulli, DeepDiscreteEncoder, Mixture, NoisyOr

FAMILIES = {
    "mixture": Mixture(2, component=Bernoulli(), num_items=6, bound=3.0),
    "noisy-or": NoisyOr(6, 2, (2.0, 2.0), (2.0, 2.0), (1.5, 6.0)),
    "one attribute": DeepDiscreteEncoder(5, (1,), bound=3.0),
}
GRAPH = ((1, 0), (1, 0), (1, 0), (1, 0), (0, 1), (0, 1), (0, 1), (0, 1))
TRUTH = {
    "proportions": torch.tensor([0.4, 0.6], dtype=torch.float64),
    "loadings_1": 2.5 * torch.tensor(GRAPH, dtype=torch.float64),
    "intercepts_1": torch.full((8,), -1.25, dtype=torch.float64),
}
ENGINES = {
    "Laplace": Laplace(400),
    "SVI, full rank": SVI(FullRank(), 150, num_draws=400),
    "SVI, mean field": SVI(MeanField(), 150, num_draws=400),
    "NUTS": NUTS(2, 150, 200, warm_start=None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["ranks", "coverage"])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--figure", type=Path, default=None)
    args = parser.parse_args()
    cases = (
        [(name, "NUTS", model, NUTS(2, 150, 95, warm_start=None), None, args.rows or 60) for name, model in FAMILIES.items()]
        if args.study == "ranks"
        else [
            ("two attributes, graph given", name, DeepDiscreteEncoder(8, (2,), graphs=(GRAPH,)), engine, lambda seed: TRUTH, args.rows or 500)
            for name, engine in ENGINES.items()
        ]
    )
    for family, engine, model, method, prior, rows in cases:
        if args.only is not None and family not in args.only and engine not in args.only:
            continue
        began = time.monotonic()
        result = simulation_based_calibration(model, rows, method, args.replicates, 19, prior=prior)
        record = {"benchmark": "calibration", "study": args.study, "family": family, "engine": engine, "rows": rows}
        record |= {"replicates": result.num_replicates, "failed": result.num_failed, "seconds": round(time.monotonic() - began, 1)}
        if args.study == "ranks":
            record["p_values"] = {name: round(p, 4) for name, p in result.p_values.items()}
        record["coverage"] = {name: round(share, 4) for name, share in result.coverage.items() if name != "log_likelihood"}
        record["coverage_se"] = {name: round(float(row), 4) for name, row in result.table["coverage_se"].items() if name != "log_likelihood"}
        print(json.dumps(record), flush=True)
        if args.figure is not None:
            args.figure.mkdir(parents=True, exist_ok=True)
            result.plot().savefig(args.figure / f"{args.study}_{family}_{engine}.png".replace(" ", "_").replace(",", ""))


if __name__ == "__main__":
    main()
