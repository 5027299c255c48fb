"""Recovery of known deep discrete encoders with other penalties, and what an oracle reaches.

The published cells (Lee and Gu 2025, arXiv:2501.01414, tables S.1 to S.8) are run by ``make
papers`` and shown on the page of papers; here the same settings are run with the penalty that is
named: ``published`` is ``TruncatedLasso.for_rows(N)``, ``bic`` ``TruncatedLasso.bic(N)``, ``ebic``
the better of the two by EBIC of the polished fits, as ``ppl-models fit dde`` does. ``--floor`` adds
unpenalised maximum likelihood from the truth with the true graph given, the least that can be asked
of a cell. One JSON line a cell.

Run: ``python benchmarks/dde_recovery.py [--engine SAEM] [--top 10] [--penalty bic] [--replicates
20] [--design strict] [--family Bernoulli ...] [--init random] [--draws 5] [--floor]``; the sizes
are (9 K, 3 K, K) for the top layer's K.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from _bench import FAMILIES, Lines, command_line, run, seeds, values_of
from papers.studies.encoders import ROWS, bound_of, empty, floor, recovered

from inference import EM, SAEM
from inference.metrics import trimmed_rmse


def replicate(seed: int, with_floor: bool, **setting: Any) -> dict[str, Any]:
    scores, result = recovered(**setting, seed=seed)
    given = {name: setting[name] for name in ("family", "design", "top", "num_rows")}
    method = EM() if setting["engine"] == "EM" else SAEM(num_draws=setting["num_draws"])
    bound = bound_of(setting["family"], setting["design"], setting["top"])
    return scores | {
        "floor": (floor(**given, seed=seed, method=method, bound=bound) if with_floor else None),
        "seconds": result.seconds,
        "iterations": result.num_iterations,
        "converged": result.converged,
    }


def measure(args: argparse.Namespace) -> Lines:
    for design in args.design:
        for family in args.family:
            for num_rows in args.rows:
                setting = {
                    "family": family,
                    "design": design,
                    "num_rows": num_rows,
                    "engine": args.engine,
                    "top": args.top,
                    "penalty": args.penalty,
                    "init": args.init,
                    "num_draws": args.draws,
                }
                runs = values_of(
                    args,
                    replicate,
                    [{"seed": seed, "with_floor": args.floor, **setting} for seed in seeds(args)],
                )
                accuracy = [run["accuracy"] for run in runs]
                errors = trimmed_rmse([run["mse"] for run in runs])
                yield setting | {
                    "replicates": args.replicates,
                    "accuracy_graph": statistics.mean(accuracy),
                    "accuracy_sd": statistics.stdev(accuracy) if len(accuracy) > 1 else None,
                    "rmse_trimmed": errors.trimmed,
                    "rmse_untrimmed": errors.untrimmed,
                    "num_dropped": errors.num_dropped,
                    "rmse_floor": (
                        trimmed_rmse([run["floor"] for run in runs]).trimmed if args.floor else None
                    ),
                    "empty_graph_accuracy": empty(family, design, args.top),
                    "seconds_median": statistics.median(run["seconds"] for run in runs),
                    "iterations_median": statistics.median(run["iterations"] for run in runs),
                    "num_converged": sum(run["converged"] for run in runs),
                }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20, threads=1, jobs=True)
    parser.add_argument("--design", nargs="+", default=["strict"], choices=["strict", "generic"])
    parser.add_argument("--family", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--engine", default="EM", choices=["EM", "SAEM"])
    parser.add_argument("--top", type=int, default=2, choices=[2, 6, 10])
    parser.add_argument("--penalty", default="published", choices=["published", "bic", "ebic"])
    parser.add_argument("--init", default="spectral", choices=["spectral", "random"])
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--floor", action="store_true", help="what an oracle reaches, beside")
    run(parser, measure, argv, {"replicates": 1, "rows": [500]})


if __name__ == "__main__":
    main()
