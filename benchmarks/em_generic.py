"""The same fit by the generic route (any program) and by the accelerators: same optimum, cost side
by side.

Without a penalty, for the generic M-step is a gradient method and the penalties have kinks. Both
routes start from the same parameters. One JSON line a family. Run: ``python
benchmarks/em_generic.py``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from _bench import Lines, command_line, run

from inference import EM, fit
from inference.programs import Program
from inference.structures.layers.spectral import spectral_start
from ppl_models import Bernoulli, DeepDiscreteEncoder, Normal, Poisson
from ppl_models.datasets.deep_discrete_encoder import strict_design

# (top size of the design, layers fitted, family, rows). With few rows the two-layer Bernoulli has
# its optimum on the bound or
# on a flat ridge, where the generic route, a gradient method on unconstrained parameters, only
# crawls.
CASES = (
    (1, 2, Normal(), 2000),
    (1, 2, Poisson(), 2000),
    (1, 1, Bernoulli(), 8000),
    (2, 2, Normal(), 2000),
)


def measure(args: argparse.Namespace) -> Lines:
    for top, depth, response, num_rows in CASES[: args.cases]:
        truth = strict_design(top, response)
        sizes = (3 * top, top)[:depth]
        two_layers = DeepDiscreteEncoder(9 * top, (3 * top, top), response=response)
        model = DeepDiscreteEncoder(9 * top, sizes, response=response, bound=10.0)
        x = Program(two_layers, None, num_rows).simulate(truth, 0)["items"]
        start = {
            name: value[0]
            for name, value in spectral_start(model.layers(), model.root_layer(), x).items()
        }
        lines = {}
        for name, accelerate, inner in (("accelerated", True, 3), ("generic", False, 1)):
            method = EM(
                accelerate=accelerate,
                tolerance=1e-12,
                parameter_tolerance=1e-5,
                max_iterations=args.max_iterations,
                num_inner=inner,
            )
            began = time.perf_counter()
            result = fit(model, x, method, init=start)
            lines[name] = (result, time.perf_counter() - began)
        (fast, fast_seconds), (slow, slow_seconds) = lines["accelerated"], lines["generic"]
        difference = abs(fast.objective - slow.objective)
        yield {
            "family": type(response).__name__,
            "sizes": [9 * top, *sizes],
            "num_rows": num_rows,
            "objective_accelerated": fast.objective,
            "objective_generic": slow.objective,
            "difference": difference,
            "relative_difference": difference / abs(fast.objective),
            "largest_parameter_difference": max(
                float((fast.params[k] - slow.params[k]).abs().max()) for k in fast.params
            ),
            "seconds_accelerated": fast_seconds,
            "seconds_generic": slow_seconds,
            "iterations_accelerated": fast.num_iterations,
            "iterations_generic": slow.num_iterations,
            "ratio": (slow_seconds / slow.num_iterations) / (fast_seconds / fast.num_iterations),
        }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, threads=1)
    parser.add_argument(
        "--cases", type=int, default=len(CASES), help="how many of the four families and sizes"
    )
    parser.add_argument("--max-iterations", type=int, default=1000)
    run(parser, measure, argv, {"cases": 2, "max_iterations": 5})


if __name__ == "__main__":
    main()
