"""Recovery of deep discrete encoders of three, four and five layers, each layer scored by itself.

The designs of the authors' later work (``deep_design``): top size 2, three times as many latents a
layer down, normal items, loadings 4 and -2, so D = 3 is (54; 18, 6, 2), D = 4 (162; 54, 18, 6, 2),
D = 5 (486; 162, 54, 18, 6, 2). Spectral start layer by layer, SAEM (EM where its table of
configurations is affordable, and only if asked), penalty at BIC's level, box [-6, 6], one start, no
truth before scoring. There are no published figures for these in Lee and Gu (2025,
arXiv:2501.01414, first version); beside each layer's accuracy stands that of a graph without edges.
One JSON line a cell.

Run: ``python benchmarks/dde_deep.py [--depth 3 4] [--rows 1000 4000 16000] [--replicates 10]
[--engine SAEM]``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

from _bench import Lines, command_line, run, seeds, values_of
from papers.deep_discrete_encoder import deep_design, empty_graph_accuracy

from inference import EM, SAEM, fit
from inference.alignment import align
from inference.metrics import graph_accuracy, rmse
from inference.programs import Program
from ppl_models import DeepDiscreteEncoder, Normal, TruncatedLasso

BOUND = 6.0


def replicate(depth: int, num_rows: int, engine: str, seed: int) -> dict:
    truth = deep_design(depth)
    sizes = tuple(truth[f"loadings_{d}"].shape[1] for d in range(1, depth + 1))
    penalty = TruncatedLasso.bic(num_rows)
    model = DeepDiscreteEncoder(len(truth["intercepts_1"]), sizes, Normal(), penalty, bound=BOUND)
    x = Program(model, None, num_rows).simulate(truth, seed)["items"]
    began = time.perf_counter()
    result = fit(model, x, EM() if engine == "EM" else SAEM(), seed=seed)
    seconds = time.perf_counter() - began
    aligned = align(result, truth).params
    sites = [f"loadings_{d}" for d in range(1, depth + 1)]
    return {
        "accuracy": [
            graph_accuracy(aligned, truth, (layer,), penalty.threshold) for layer in model.layers()
        ],
        "rmse": [rmse({s: aligned[s]}, {s: truth[s]}) for s in sites],
        "seconds": seconds,
        "iterations": result.num_iterations,
    }


def mean_of(runs: list[dict], key: str) -> list[float]:
    return [
        round(statistics.mean(values), 4)
        for values in zip(*(run[key] for run in runs), strict=True)
    ]


def measure(args: argparse.Namespace) -> Lines:
    for depth in args.depth:
        truth = deep_design(depth)
        empty = [empty_graph_accuracy({s: truth[s]}) for s in truth if s.startswith("loadings_")]
        for num_rows in args.rows:
            runs = values_of(
                args,
                replicate,
                [
                    {"depth": depth, "num_rows": num_rows, "engine": args.engine, "seed": seed}
                    for seed in seeds(args)
                ],
            )
            spread = [
                statistics.stdev(v) if len(v) > 1 else None
                for v in zip(*(r["accuracy"] for r in runs), strict=True)
            ]
            yield {
                "engine": args.engine,
                "sizes": (
                    [len(truth["intercepts_1"])]
                    + [truth[f"loadings_{d}"].shape[1] for d in range(1, depth + 1)]
                ),
                "num_rows": num_rows,
                "replicates": args.replicates,
                "accuracy_by_layer": mean_of(runs, "accuracy"),
                "accuracy_sd_by_layer": spread,
                "empty_graph_by_layer": empty,
                "rmse_of_loadings_by_layer": mean_of(runs, "rmse"),
                "seconds_median": statistics.median(run["seconds"] for run in runs),
                "iterations_median": statistics.median(run["iterations"] for run in runs),
            }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=10, threads=1, jobs=True)
    parser.add_argument("--depth", type=int, nargs="+", default=[3, 4], choices=[2, 3, 4, 5])
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 4000, 16000])
    parser.add_argument("--engine", default="SAEM", choices=["EM", "SAEM"])
    run(parser, measure, argv, {"replicates": 1, "depth": [3], "rows": [500]})


if __name__ == "__main__":
    main()
