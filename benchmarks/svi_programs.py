"""Seconds of EM and of Pyro's SVI to the same value, on the published programs.

SVI is the plain one: ``TraceEnum_ELBO``, an ``AutoDelta`` guide, Adam. Its objective is the
log-posterior that EM climbs, so both go from the same point, a draw from the prior, and SVI runs
until it is within 1e-2 nats of EM's end, has settled elsewhere, or a number of the processor's
seconds has gone by: then the line says ``"reached": false`` and how far below it still was.
Programs with a continuous latent in each row have no such mode, and those without parameters
nothing to reach. ``svi_programs.jsonl`` beside it holds the lines of one run, whose cap each line
names. Run: ``python benchmarks/svi_programs.py [--cap 60]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyro
from _bench import Lines, command_line, run
from programs import PROGRAMS
from programs.case import Case
from pyro import poutine
from pyro.infer import SVI, TraceEnum_ELBO
from pyro.infer.autoguide import AutoDelta
from pyro.infer.autoguide.initialization import init_to_value

from inference import EM, fit
from inference.programs.arguments import call_of
from inference.programs.data import checked
from inference.programs.global_state import in_dtype, isolated, quiet, whole_plates
from inference.programs.program import Params, Program
from inference.programs.sites import enumerating
from ppl_models.data.tables import floating_dtype

NEAR = 1e-2  # nats
STILL, LITTLE = 1000, 1e-3  # steps in which SVI gains less, and is said to have settled elsewhere


def measure(args: argparse.Namespace) -> Lines:
    for number, (name, case) in enumerate(PROGRAMS.items()):
        if case.refused or args.only and not any(name.startswith(p) for p in args.only.split(",")):
            continue
        line: dict[str, Any] = {"program": name, "cap_s": args.cap}
        try:
            with quiet(), isolated(0):
                if not number or args.only:
                    _both(case, args, 1)  # imports and first calls of either side
                line |= _both(case, args, None)
        except Exception as error:  # noqa: BLE001 (of either side; the line says so)
            line |= {"skipped": f"{type(error).__name__}: {error}"[:200]}
        yield line


def _both(case: Case, args: argparse.Namespace, most_steps: int | None) -> dict[str, Any]:
    data = case.data()
    model = call_of(case.program, data, (), case.kwargs)
    program = Program(model, checked(model, data)[0])
    if program.names("local"):
        return {"skipped": "continuous latents of the rows"}
    if not program.names("parameter"):
        return {"skipped": "no parameters"}
    start = {name: value[0] for name, value in program.draw_prior(1, 0).items()} | program.starts
    theirs = _pyro_svi(program, start)
    began = time.process_time()
    result = fit(
        case.program,
        data,
        EM(max_iterations=args.max_iterations),
        num_restarts=1,
        init=start,
        kwargs=case.kwargs,
    )
    ours = time.process_time() - began
    began, steps, best, before = time.process_time(), 0, -float("inf"), -float("inf")
    while best < result.objective - NEAR and time.process_time() - began < args.cap:
        best, steps = max(best, theirs(args.learning_rate)), steps + 1
        if steps % STILL == 0:
            if best - before < LITTLE:
                break
            before = best
        if steps == most_steps:
            break
    seconds = time.process_time() - began
    return {
        "parameters": sum(value.numel() for value in result.params.values()),
        "iterations": result.num_iterations,
        "converged": result.converged,
        "ours_s": round(ours, 2),
        "steps": steps,
        "svi_s": round(seconds, 2),
        "reached": best >= result.objective - NEAR,
        "capped": seconds >= args.cap,
        "below": round(max(0.0, result.objective - best), 2),
        "ratio": round(seconds / ours, 2),
    }


def _pyro_svi(program: Program, start: Params) -> Callable[[float], float]:
    """A step of plain SVI, which tells the log-posterior before it."""
    state: dict[str, Any] = {}
    own = program.model.model if hasattr(program.model, "model") else program.model
    names = [name for name in program.names("parameter") if name not in program.starts]

    def step(learning_rate: float) -> float:
        with (
            in_dtype(floating_dtype(program.args)),
            whole_plates({}),
            pyro.validation_enabled(False),
        ):
            if not state:
                pyro.clear_param_store()
                ready = enumerating(own)
                given = init_to_value(values={name: start[name] for name in names})
                guide = AutoDelta(poutine.block(ready, expose=names), init_loc_fn=given)
                guide = guide if names else _nothing
                elbo = TraceEnum_ELBO(
                    max_plate_nesting=program.max_plate_nesting, strict_enumeration_warning=False
                )
                optimizer = pyro.optim.Adam({"lr": learning_rate})
                state["svi"] = SVI(ready, guide, optimizer, elbo)
            return -float(state["svi"].step(*program.args))

    return step


def _nothing(*_: Any) -> None:
    """Guide of a program without a prior."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, seeded=False, threads=1)
    parser.add_argument("--only", default="", help="names, or how they begin, with commas")
    parser.add_argument("--cap", type=float, default=60.0, help="seconds of SVI at most")
    parser.add_argument("--learning-rate", type=float, default=0.05, help="of Adam")
    parser.add_argument("--max-iterations", type=int, default=2000, help="of EM")
    run(parser, measure, argv, {"only": "gmm_tutorial", "cap": 1.0})


if __name__ == "__main__":
    main()
