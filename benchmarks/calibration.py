"""Simulation-based calibration of NUTS, and coverage of 95 % intervals of every engine, family by family at a small size.

``ranks``: truth from the prior, ``--rows`` rows, two chains; the p-value of uniform ranks by parameter group, and the histograms as
pictures with ``--figure FOLDER``. ``coverage``: one truth, intervals of each engine on fresh data; the standard error is over data
sets. One JSON line a family and engine.

Run: ``python benchmarks/calibration.py ranks|coverage [--family ...] [--engine ...] [--replicates 100] [--rows 500] [--figure FOLDER]``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from inference import NUTS, SVI, Bootstrap, FullRank, Laplace, MeanField
from inference.calibration import simulation_based_calibration
from ppl_models import Bernoulli, DeepDiscreteEncoder, Mixture, NoisyOr, Normal, OptionsHMM

FAMILIES = {
    "mixture": Mixture(2, component=Bernoulli(), num_items=6, bound=3.0),
    "noisy-or": NoisyOr(6, 2, (2.0, 2.0), (2.0, 2.0), (1.5, 6.0)),
    "one attribute": DeepDiscreteEncoder(5, (1,), bound=3.0),
}
GRAPH = ((1, 0), (1, 0), (1, 0), (1, 0), (0, 1), (0, 1), (0, 1), (0, 1))


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# one truth a family, away from the bounds, so that intervals have something to cover
TRUTHS = {
    "two attributes, graph given": (
        DeepDiscreteEncoder(8, (2,), graphs=(GRAPH,)),
        {"proportions": tensor([0.4, 0.6]), "loadings_1": 2.5 * tensor(GRAPH), "intercepts_1": torch.full((8,), -1.25, dtype=torch.float64)},
    ),
    "mixture": (
        Mixture(2, component=Normal(), num_items=3),
        {"weights": tensor([0.6, 0.4]), "predictors": tensor([[0.0, 0.0, 0.0], [2.5, 2.0, -2.0]]), "dispersion": tensor([[1.0] * 3, [1.5] * 3])},
    ),
    "noisy-or": (
        NoisyOr(8, 2, (2.0, 2.0), (2.0, 2.0), (1.5, 6.0)),
        {"prior": tensor([0.45, 0.3]), "failure": tensor([[0.2] * 4 + [0.85] * 4, [0.85] * 4 + [0.2] * 4]), "leak": torch.full((8,), 0.1, dtype=torch.float64)},
    ),
    "options": (
        OptionsHMM(2, 3, 2, concentration=2.0, num_steps=20),
        {
            "initial": torch.full((2, 2), 0.25, dtype=torch.float64),
            "low": tensor([[[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]], [[0.1, 0.8, 0.1], [0.6, 0.1, 0.3]]]),
            "high": tensor([[[0.9, 0.1], [0.15, 0.85]], [[0.85, 0.15], [0.1, 0.9]]]),
            "environment": tensor([[[0.7, 0.3], [0.4, 0.6]], [[0.3, 0.7], [0.5, 0.5]], [[0.5, 0.5], [0.2, 0.8]]]),
        },
    ),
}  # fmt: skip
ENGINES = {
    "Laplace": Laplace(400),
    "SVI, full rank": SVI(FullRank(), 150, num_draws=400),
    "SVI, mean field": SVI(MeanField(), 150, num_draws=400),
    "Bootstrap": Bootstrap(num_replicates=60),
    "NUTS": NUTS(2, 150, 200, warm_start=None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["ranks", "coverage"])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--family", nargs="*", default=None)
    parser.add_argument("--engine", nargs="*", default=None)
    parser.add_argument("--figure", type=Path, default=None)
    args = parser.parse_args()
    if args.study == "ranks":
        sampler = NUTS(2, 150, 95, warm_start=None)
        cases = [(name, "NUTS", model, sampler, None, args.rows or 60) for name, model in FAMILIES.items()]
    else:
        cases = [
            (family, name, model, engine, (lambda seed, truth=truth: truth), args.rows or 500)
            for family, (model, truth) in TRUTHS.items()
            for name, engine in ENGINES.items()
        ]
    for family, engine, model, method, prior, rows in cases:
        if (args.family is not None and family not in args.family) or (args.engine is not None and engine not in args.engine):
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
