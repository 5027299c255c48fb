"""Do the intervals of an ensemble cover the truth? Examples at 5,000 rows, over seeds.

One line a seed with the weights, their intervals, and whether these hold the truth; for two
variates and two components also the stretch of weights that the data leave open, and the two
together; then a line with shares over the seeds. Classifiers along the first variate are held
against the exact ones, place by place. Run: ``python benchmarks/inclass_intervals.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from _bench import Lines, command_line, run, seeds, timed
from scipy.optimize import linear_sum_assignment

from inference import TrainClassifiers, fit
from inference.inspection import classifier_ensemble
from ppl_models import Dense, InClassNet
from ppl_models.datasets import simulate_checkerboard, simulate_trivariate, simulate_two_gaussians

EXAMPLES = {
    "two_gaussians": simulate_two_gaussians,
    "checkerboard": simulate_checkerboard,
    "trivariate": simulate_trivariate,
}


def one(name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """A fit, its ensemble, and what of the truth their intervals hold."""
    sample = EXAMPLES[name](args.rows, seed)
    size, num_variates = len(sample.truth.weights), sample.truth.num_variates
    model = InClassNet(
        (1,) * num_variates, size, networks=Dense((64, 64)) if name == "checkerboard" else Dense()
    )
    method = TrainClassifiers(max_epochs=args.epochs)
    result, fit_seconds = timed(
        lambda: fit(model, sample.data, method, num_restarts=args.restarts, seed=seed)
    )
    ensemble, seconds = timed(
        lambda: classifier_ensemble(result, sample.data, args.halves, args.starts, seed=seed)
    )
    posterior, exact = (
        result.posterior_latents(sample.data)["components"].numpy(),
        sample.truth.aggregate(sample.data),
    )
    _, order = linear_sum_assignment(
        -(posterior.T @ exact)
    )  # component of the truth for each of the fit
    truth = sample.truth.weights[order]
    weights = ensemble.weights
    covered = [own.lower <= value <= own.upper for own, value in zip(weights, truth, strict=True)]
    curves = ensemble.curves(sample.data, 0)
    places = sample.truth.classifiers(0, curves.places.numpy())[:, order]
    inside = (curves.classifiers_lower.numpy() <= places) & (
        places <= curves.classifiers_upper.numpy()
    )
    line: dict[str, Any] = {
        "example": name,
        "seed": seed,
        "rows": args.rows,
        "truth": truth.round(4).tolist(),
        "weights": [round(own.estimate, 4) for own in weights],
        "intervals": [[round(own.lower, 4), round(own.upper, 4)] for own in weights],
        "covered": [bool(own) for own in covered],
        "between_rows": round(max(own.between_rows for own in weights), 4),
        "between_starts": round(max(own.between_starts for own in weights), 4),
        "failed": int(ensemble.failed.sum()),
        "curves_covered": round(float(inside[~np.isnan(places)].mean()), 4),
        "cost": round(-result.log_likelihood / args.rows, 5),
        "bound": round(-sample.truth.total_correlation(), 5),
        "fit_seconds": fit_seconds,
        "ensemble_seconds": seconds,
    }
    report = ensemble.identifiability(sample.data)
    line["verdict"] = report.verdict
    if report.possible_weights is not None:
        low, high = report.possible_weights
        line["possible_weights"] = [round(low, 4), round(high, 4)]
        line["possible_covered"] = bool(low <= truth[0] <= high)
        line["either_covered"] = bool(
            min(low, weights[0].lower) <= truth[0] <= max(high, weights[0].upper)
        )
    return line


def measure(args: argparse.Namespace) -> Lines:
    for name in args.examples:
        lines = []
        for seed in seeds(args):
            lines.append(one(name, seed, args))
            yield lines[-1]
        intervals = np.array([line["intervals"] for line in lines])
        summary = {
            "example": name, "rows": args.rows, "replicates": len(lines), "level": 0.95,
            "weights_covered": round(float(np.mean([line["covered"] for line in lines])), 4),
            "mean_width": round(float((intervals[..., 1] - intervals[..., 0]).mean()), 4),
            "curves_covered": round(float(np.mean([line["curves_covered"] for line in lines])), 4),
        }  # fmt: skip
        for key in ("possible_covered", "either_covered"):
            if key in lines[0]:
                summary[key] = round(float(np.mean([line[key] for line in lines])), 4)
        yield summary


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=10, threads=1)
    parser.add_argument("--examples", nargs="+", default=list(EXAMPLES), choices=list(EXAMPLES))
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--restarts", type=int, default=4, help="of the estimate")
    parser.add_argument(
        "--halves",
        type=int,
        default=8,
        help="of the rows, one member of the ensemble a start of each",
    )
    parser.add_argument("--starts", type=int, default=2, help="of every half")
    parser.add_argument("--epochs", type=int, default=300, help="at most")
    quick = {
        "examples": ["two_gaussians"],
        "rows": 300,
        "restarts": 1,
        "halves": 2,
        "starts": 1,
        "epochs": 3,
        "replicates": 1,
    }
    run(parser, measure, argv, quick)


if __name__ == "__main__":
    main()
