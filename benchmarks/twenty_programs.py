"""Twenty programs as people write them, as in Pyro's tutorials, examples and forum: which engines
fit them, and their log-likelihood by another route.

One JSON line a program: where its form is found, the engines that fit it (each is run), the
log-likelihood at EM's estimate with its discrete latents summed out (at the posterior mean of NUTS,
given the continuous latents of the rows, where there are such), its difference from the one written
out by hand, and from the objective of plain Pyro's ``TraceEnum_ELBO`` at the same parameters. The
programs, their data and the recursions by hand lie in ``tests/support/everyday``. Run: ``python
benchmarks/twenty_programs.py``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from _bench import Lines, command_line, run
from pyro import poutine
from pyro.infer import TraceEnum_ELBO, config_enumerate

from inference import EM, NUTS, SAEM, SVI, Fit, Laplace, fit
from inference.programs import Program
from inference.programs.data import checked
from inference.programs.global_state import in_dtype, quiet
from inference.programs.program import Params

TESTS = Path(__file__).parent.parent / "tests"


def methods(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "EM": EM(max_iterations=args.max_iterations),
        "SAEM": SAEM(max_iterations=args.max_iterations),
        "Laplace": Laplace(optimum=EM(max_iterations=args.max_iterations)),
        "SVI": SVI(num_steps=args.num_steps, num_draws=min(1000, args.num_steps)),
        "NUTS": NUTS(warmup_steps=args.num_draws, num_samples=args.num_draws),
    }


def measure(args: argparse.Namespace) -> Lines:
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    from support.everyday.table import TWENTY

    engines = methods(args)
    for name, row in list(TWENTY.items())[: args.programs]:
        data, fitted, seconds, refused = row.data(), [], {}, {}
        shown: Fit | None = None
        for engine in args.engines.split(","):
            began = time.perf_counter()
            try:
                with quiet():
                    result = fit(
                        row.program,
                        data,
                        engines[engine],
                        num_restarts=args.restarts if engine == "EM" else None,
                    )
            except ValueError as error:
                refused[engine] = str(error)
                continue
            fitted.append(engine)
            seconds[engine] = time.perf_counter() - began
            if shown is None or (engine == "NUTS" and "EM" not in fitted):
                shown = result
        line: dict[str, Any] = {
            "program": name,
            "source": row.source,
            "engines": fitted,
            "expected_engines": list(row.engines),
            "refused": refused,
        }
        if shown is not None:
            program = Program(row.program, checked(row.program, data)[0])
            params = shown.params | (shown.local or {})
            value = float(program.log_marginal(params))
            by_hand = row.log_likelihood(
                {site: part.detach().numpy() for site, part in params.items()}, data
            )
            objective = value + float(program.log_prior(params))
            line |= {
                "log_likelihood": value,
                "given": sorted(shown.local or {}),
                "difference_by_hand": value - by_hand,
                "difference_from_pyro": objective - _objective_of_pyro(program, params),
                "converged": shown.converged,
            }
        yield line | {"seconds": seconds}


def _objective_of_pyro(program: Program, params: Params) -> float:
    model = config_enumerate(poutine.condition(program.model, params), default="parallel")
    with in_dtype(torch.float64), quiet():
        return -float(
            TraceEnum_ELBO(max_plate_nesting=program.max_plate_nesting).loss(
                model, lambda *_: None, *program.args
            )
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, threads=1)
    parser.add_argument("--programs", type=int, default=20, help="the first so many of the table")
    parser.add_argument(
        "--engines", default="EM,SAEM,Laplace,SVI,NUTS", help="those that are tried, by comma"
    )
    parser.add_argument("--restarts", type=int, default=3, help="of EM")
    parser.add_argument("--max-iterations", type=int, default=2000)
    parser.add_argument("--num-steps", type=int, default=1000, help="of SVI")
    parser.add_argument(
        "--num-draws", type=int, default=500, help="of NUTS, after as many of warm-up"
    )
    run(
        parser,
        measure,
        argv,
        {
            "programs": 1,
            "engines": "EM,SVI",
            "restarts": 1,
            "max_iterations": 50,
            "num_steps": 20,
            "num_draws": 20,
        },
    )


if __name__ == "__main__":
    main()
