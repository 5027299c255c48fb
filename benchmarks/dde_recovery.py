"""Recovery of known deep discrete encoders by penalised EM from the spectral start, beside the published rows.

The truth enters scoring only (alignment layer by layer, with signs). Setting, the same in every cell: penalty
``TruncatedLasso.for_rows(N)``, box [-5, 5], one spectral start, no restarts. The published rows (Lee and Gu 2025,
arXiv:2501.01414, tables S.3-S.8, kept in ``tests/references``) used the true loadings in their start. One JSON line a cell.

Run: ``python benchmarks/dde_recovery.py [--replicates 20] [--design strict|generic] [--family Bernoulli ...]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path

import torch

from inference import EM, fit
from inference.alignment import align
from inference.metrics import empty_graph_accuracy, graph_accuracy, mean_squared_error, trimmed_rmse
from inference.program import Program
from ppl_models import Bernoulli, DeepDiscreteEncoder, Normal, Poisson, TruncatedLasso
from ppl_models.datasets.deep_discrete_encoder import generic_design, strict_design

FAMILIES = {"Bernoulli": Bernoulli(), "Poisson": Poisson(), "Normal": Normal()}
REFERENCE = Path(__file__).parent.parent / "tests" / "references" / "deep_discrete_encoder.json"
ROWS = (500, 1000, 2000, 4000, 8000)
BOUND = 5.0


def published(family: str, design: str, num_rows: int) -> dict:
    """The published penalised-EM cell."""
    table = json.loads(REFERENCE.read_text(encoding="utf-8"))["penalised_em_18_6_2"]
    row = table[family][design]
    index = ROWS.index(num_rows)
    return {"published_accuracy": row["accuracy_graph"][index], "published_rmse": row["rmse"][index]}


def replicate(family: str, design: str, num_rows: int, seed: int) -> dict:
    response = FAMILIES[family]
    truth = (strict_design if design == "strict" else generic_design)(2, response)
    num_items, first = truth["loadings_1"].shape
    penalty = TruncatedLasso.for_rows(num_rows)
    model = DeepDiscreteEncoder(num_items, (first, 2), response=response, penalty=penalty, bound=BOUND)
    x = Program(model, None, num_rows).simulate(truth, seed)["items"]
    start = time.perf_counter()
    result = fit(model, x, EM(), seed=seed)
    seconds = time.perf_counter() - start
    aligned = align(result, truth).params
    layers = model.layers()
    return {
        "accuracy": graph_accuracy(aligned, truth, layers, penalty.threshold),
        "mse": mean_squared_error(aligned, truth),
        "seconds": seconds,
        "iterations": result.num_iterations,
        "converged": result.converged,
        "empty": empty_graph_accuracy(truth, layers),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--design", nargs="+", default=["strict"], choices=["strict", "generic"])
    parser.add_argument("--family", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), choices=ROWS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for design in args.design:
        for family in args.family:
            for num_rows in args.rows:
                runs = [replicate(family, design, num_rows, seed) for seed in range(args.replicates)]
                accuracy = [run["accuracy"] for run in runs]
                errors = trimmed_rmse([run["mse"] for run in runs])
                print(
                    json.dumps({
                        "benchmark": "dde_recovery",
                        "family": family,
                        "design": design,
                        "sizes": [18, 6, 2],
                        "num_rows": num_rows,
                        "replicates": args.replicates,
                        "accuracy_graph": statistics.mean(accuracy),
                        "accuracy_sd": statistics.stdev(accuracy),
                        "rmse_trimmed": errors.trimmed,
                        "rmse_untrimmed": errors.untrimmed,
                        "num_dropped": errors.num_dropped,
                        "empty_graph_accuracy": runs[0]["empty"],
                        "seconds_median": statistics.median(run["seconds"] for run in runs),
                        "iterations_median": statistics.median(run["iterations"] for run in runs),
                        "num_converged": sum(run["converged"] for run in runs),
                        **published(family, design, num_rows),
                    }),
                    flush=True,
                )


if __name__ == "__main__":
    main()
