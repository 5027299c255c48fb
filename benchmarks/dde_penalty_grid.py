"""A grid of penalties for a deep discrete encoder (18; 6, 2): one batched EM against fits one after
another.

The design B_s of Lee and Gu (2025, arXiv:2501.01414, section 5), Bernoulli and Poisson, N = 1,000;
nine truncated Lassos, slopes and thresholds on the grid of their newsgroups study, two starts each,
with the refits on the graphs found. Two ways, the batch and the same fits one by one, and with
``--warm`` one by one with warm starts beside. One JSON line a family: seconds of each, the chosen
penalty, EBIC, and the largest difference of the penalised objectives of batch and loop. Run:
``python benchmarks/dde_penalty_grid.py``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from _bench import Lines, command_line, run

from inference import EM, fit
from inference.programs import Program
from inference.selection import penalty_path
from inference.selection.sparsity import polish
from ppl_models import Bernoulli, DeepDiscreteEncoder, Poisson, TruncatedLasso
from ppl_models.datasets import strict_design


def line(
    response: Bernoulli | Poisson, num_rows: int, starts: int, max_iterations: int, with_warm: bool
) -> dict:
    model = DeepDiscreteEncoder(18, (6, 2), response, bound=10.0)
    items = Program(model, None, num_rows).simulate(strict_design(2, response), 0)["items"]
    levels = [(num_rows ** (m / 8), 2 * num_rows ** (-n / 8)) for m in (1, 2, 3) for n in (3, 2, 1)]
    grid = [TruncatedLasso(slope, threshold) for slope, threshold in levels]
    method = EM(max_iterations=max_iterations)
    began = time.monotonic()
    batch = penalty_path(model, items, grid, method, num_restarts=starts)
    seconds = {"batch": time.monotonic() - began}
    began = time.monotonic()
    alone = [
        fit(
            DeepDiscreteEncoder(18, (6, 2), response, penalty, bound=10.0),
            items,
            method,
            num_restarts=starts,
        )
        for penalty in grid
    ]
    refitted = [polish(result, items) for result in alone]
    seconds["one by one"] = time.monotonic() - began
    apart = max(abs(a.objective - b.objective) for a, b in zip(batch.penalised, alone, strict=True))
    refit_apart = max(
        abs(a.log_likelihood - b.log_likelihood) for a, b in zip(batch.fits, refitted, strict=True)
    )
    out = {"family": type(response).__name__, "rows": num_rows, "grid": len(grid)}
    out |= {
        "starts": starts,
        "max_iterations": max_iterations,
        "chosen": repr(batch.penalty),
        "ebic": min(batch.scores),
    }
    out |= {"largest_difference_of_objectives": apart, "largest_difference_of_refits": refit_apart}
    if with_warm:
        began = time.monotonic()
        warm = penalty_path(model, items, grid, method, num_restarts=starts, warm=True)
        seconds["one by one, warm starts beside"] = time.monotonic() - began
        out |= {"chosen_warm": repr(warm.penalty), "ebic_warm": min(warm.scores)}
    ratio = seconds["one by one"] / seconds["batch"]
    return out | {
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "loop_over_batch": round(ratio, 2),
    }


def measure(args: argparse.Namespace) -> Lines:
    for response in (Poisson(), Bernoulli()):
        yield line(response, args.rows, args.starts, args.max_iterations, args.warm)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, threads=1)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--max-iterations", type=int, default=30)
    parser.add_argument("--warm", action="store_true", help="warm starts, one by one, beside")
    run(parser, measure, argv, {"rows": 200, "starts": 1, "max_iterations": 3})


if __name__ == "__main__":
    main()
