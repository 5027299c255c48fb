"""What the plain call reaches: ``fit(DeepDiscreteEncoder(18, (6, 2)), x)``, no settings, on designs
of a known truth.

One JSON line a fit, then one a cell. Accuracy of the graph that the fit hands back
(``fit.graphs``), over both layers, and the mean squared error of its parameters after alignment, as
``dde_recovery.py`` scores them; the truth enters scoring only. Beside them what an oracle reaches
on the same data: the same fit on the true graph, from the truth. ``num_finite`` counts fits none of
whose loadings exceeds 10 in size (estimates of items that separate used to run to 15). A cell
passes where its figures are at or beyond the bars: for strict Bernoulli designs graph accuracy .989
and trimmed RMSE .292 at N = 1,000, .995 and .120 at N = 4,000.

Run: ``python benchmarks/plain_dde.py [--replicates 20] [--first-seed 0] [--rows 1000 4000]
[--design strict generic] [--family Bernoulli Poisson Normal] [--no-oracle]``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

from _bench import FAMILIES, Lines, command_line, run, seeds
from papers.studies.encoders import empty, floor, plainly_recovered

from inference.metrics import trimmed_rmse

BARS = {
    ("Bernoulli", "strict", 1000): (0.989, 0.292),
    ("Bernoulli", "strict", 4000): (0.995, 0.120),
}
FINITE = 10.0


def replicate(
    args: argparse.Namespace, family: str, design: str, num_rows: int, seed: int
) -> dict[str, Any]:
    began, cpu = time.perf_counter(), time.process_time()
    scores, result = plainly_recovered(family, design, num_rows, seed)
    seconds, processor = time.perf_counter() - began, time.process_time() - cpu
    return {
        "family": family,
        "design": design,
        "num_rows": num_rows,
        "seed": seed,
        "accuracy_graph": scores["accuracy"],
        "mse": scores["mse"],
        "mse_oracle": floor(family, design, 2, num_rows, seed) if args.oracle else None,
        "largest_loading": max(
            float(result.params[site].abs().max()) for site in ("loadings_1", "loadings_2")
        ),
        "num_edges": sum(int(graph.sum()) for graph in result.graphs.values()),
        "converged": result.converged,
        "warnings": list(result.warnings),
        "seconds": seconds,
        "processor_seconds": processor,
    }


def measure(args: argparse.Namespace) -> Lines:
    for design in args.design:
        for family in args.family:
            for num_rows in args.rows:
                runs = []
                for seed in seeds(args):
                    runs.append(replicate(args, family, design, num_rows, seed))
                    yield runs[-1]
                errors = trimmed_rmse([one["mse"] for one in runs])
                accuracy = statistics.mean(one["accuracy_graph"] for one in runs)
                bars = BARS.get((family, design, num_rows))
                yield {
                    "cell": f"{family} {design} {num_rows}",
                    "replicates": len(runs),
                    "accuracy_graph": accuracy,
                    "accuracy_sd": (
                        statistics.stdev([one["accuracy_graph"] for one in runs])
                        if len(runs) > 1
                        else None
                    ),
                    "rmse_trimmed": errors.trimmed,
                    "rmse_untrimmed": errors.untrimmed,
                    "num_dropped": errors.num_dropped,
                    "rmse_oracle": (
                        trimmed_rmse([one["mse_oracle"] for one in runs]).trimmed
                        if args.oracle
                        else None
                    ),
                    "empty_graph_accuracy": empty(family, design, 2),
                    "num_finite": sum(one["largest_loading"] <= FINITE for one in runs),
                    "num_converged": sum(one["converged"] for one in runs),
                    "seconds_median": statistics.median(one["seconds"] for one in runs),
                    "bars": bars,
                    "passed": (
                        None
                        if bars is None
                        else bool(accuracy >= bars[0] and errors.trimmed <= bars[1])
                    ),
                }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20, threads=1)
    parser.add_argument("--design", nargs="+", default=["strict"], choices=["strict", "generic"])
    parser.add_argument("--family", nargs="+", default=["Bernoulli"], choices=list(FAMILIES))
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument(
        "--no-oracle",
        dest="oracle",
        action="store_false",
        help="leave out the fits on the true graph",
    )
    run(parser, measure, argv, {"replicates": 1, "rows": [400], "oracle": False})


if __name__ == "__main__":
    main()
