"""Simulation-based calibration of NUTS, and coverage of 95 % intervals of every engine, family by
family at a small size.

``ranks``: truth from the prior, ``--rows`` rows, two chains; the p-value of uniform ranks by
parameter group, and the histograms as pictures with ``--figure FOLDER``. ``coverage``: one truth,
intervals of each engine on fresh data; the standard error is over data sets. One JSON line a family
and engine.

Run: ``python benchmarks/calibration.py [--study ranks coverage] [--family ...] [--engine ...]
[--replicates 100] [--rows 500] [--figure FOLDER]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from _bench import Lines, command_line, run

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
        {
            "proportions": tensor([0.4, 0.6]),
            "loadings_1": 2.5 * tensor(GRAPH),
            "intercepts_1": torch.full((8,), -1.25, dtype=torch.float64),
        },
    ),
    "mixture": (
        Mixture(2, component=Normal(), num_items=3),
        {
            "weights": tensor([0.6, 0.4]),
            "predictors": tensor([[0.0, 0.0, 0.0], [2.5, 2.0, -2.0]]),
            "dispersion": tensor([[1.0] * 3, [1.5] * 3]),
        },
    ),
    "noisy-or": (
        NoisyOr(8, 2, (2.0, 2.0), (2.0, 2.0), (1.5, 6.0)),
        {
            "prior": tensor([0.45, 0.3]),
            "failure": tensor([[0.2] * 4 + [0.85] * 4, [0.85] * 4 + [0.2] * 4]),
            "leak": torch.full((8,), 0.1, dtype=torch.float64),
        },
    ),
    "options": (
        OptionsHMM(2, 3, 2, concentration=2.0, num_steps=20),
        {
            "initial": torch.full((2, 2), 0.25, dtype=torch.float64),
            "low": tensor([[[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]], [[0.1, 0.8, 0.1], [0.6, 0.1, 0.3]]]),
            "high": tensor([[[0.9, 0.1], [0.15, 0.85]], [[0.85, 0.15], [0.1, 0.9]]]),
            "environment": tensor(
                [[[0.7, 0.3], [0.4, 0.6]], [[0.3, 0.7], [0.5, 0.5]], [[0.5, 0.5], [0.2, 0.8]]]
            ),
        },
    ),
}
ENGINES = {
    "Laplace": Laplace(400),
    "SVI, full rank": SVI(FullRank(), 150, num_draws=400),
    "SVI, mean field": SVI(MeanField(), 150, num_draws=400),
    "Bootstrap": Bootstrap(num_replicates=60),
}


def sampler(args: argparse.Namespace, num_draws: int) -> NUTS:
    return NUTS(2, args.warmup, args.draws or num_draws, warm_start=None)


def cases(args: argparse.Namespace, study: str) -> Iterator[tuple]:
    """Family, engine, model, method, truth (None: drawn from the prior) and rows."""
    if study == "ranks":
        for family, model in FAMILIES.items():
            yield family, "NUTS", model, sampler(args, 95), None, args.rows or 60
    else:
        for family, (model, truth) in TRUTHS.items():
            for engine, method in (ENGINES | {"NUTS": sampler(args, 200)}).items():
                yield (
                    family,
                    engine,
                    model,
                    method,
                    (lambda seed, truth=truth: truth),
                    args.rows or 500,
                )


def measure(args: argparse.Namespace) -> Lines:
    for study in args.study:
        for family, engine, model, method, prior, rows in cases(args, study):
            if (args.family is not None and family not in args.family) or (
                args.engine is not None and engine not in args.engine
            ):
                continue
            began = time.monotonic()
            result = simulation_based_calibration(
                model,
                rows,
                method,
                args.replicates,
                19,
                prior=prior,
                folder=args.folder,
                workers=args.workers,
                scheduler=args.scheduler,
            )
            line = {"study": study, "family": family, "engine": engine, "rows": rows}
            line |= {
                "replicates": result.num_replicates,
                "failed": result.num_failed,
                "seconds": round(time.monotonic() - began, 1),
            }
            if study == "ranks":
                line["p_values"] = {name: round(p, 4) for name, p in result.p_values.items()}
            line["coverage"] = {
                name: round(share, 4)
                for name, share in result.coverage.items()
                if name != "log_likelihood"
            }
            line["coverage_se"] = {
                name: round(float(row), 4)
                for name, row in result.table["coverage_se"].items()
                if name != "log_likelihood"
            }
            yield line
            if args.figure is not None:
                args.figure.mkdir(parents=True, exist_ok=True)
                result.plot().savefig(
                    args.figure
                    / f"{study}_{family}_{engine}.png".replace(" ", "_").replace(",", "")
                )


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=100, seeded=False, jobs=True)
    parser.add_argument(
        "--study", nargs="+", default=["ranks", "coverage"], choices=["ranks", "coverage"]
    )
    parser.add_argument("--rows", type=int, default=None, help="60 for ranks, 500 for coverage")
    parser.add_argument("--warmup", type=int, default=150, help="of NUTS")
    parser.add_argument(
        "--draws", type=int, default=None, help="of a chain of NUTS: 95 for ranks, 200 for coverage"
    )
    parser.add_argument("--family", nargs="+", default=None)
    parser.add_argument("--engine", nargs="+", default=None)
    parser.add_argument("--figure", type=Path, default=None, metavar="FOLDER")
    quick = {
        "replicates": 2,
        "rows": 30,
        "warmup": 20,
        "draws": 20,
        "family": ["mixture"],
        "engine": ["Laplace", "NUTS"],
    }
    run(parser, measure, argv, quick)


if __name__ == "__main__":
    main()
