"""Published programs with discrete latents, each handed to ``fit`` as it was written.

One JSON line a program: where its shape is from, the verdict (taken, refused with the sentence, or
crashed), the engine, the log-likelihood and log-prior at the estimate, their difference from plain
Pyro's ``TraceEnum_ELBO`` at the same parameters, and seconds of the process. The programs lie in
``benchmarks/programs``. A program whose rows have continuous latents is run by NUTS, a few draws
long: it shows that it is taken, not its posterior. ``published_programs.jsonl`` beside it holds the
lines of one run. Run: ``python benchmarks/published_programs.py``.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import pyro
import torch
from _bench import Lines, command_line, run
from programs import PROGRAMS
from programs.case import Case
from pyro import poutine
from pyro.infer import TraceEnum_ELBO
from torch import nn

from inference import EM, NUTS, fit
from inference.programs.arguments import call_of
from inference.programs.data import checked
from inference.programs.global_state import in_dtype, isolated, quiet, whole_plates
from inference.programs.program import Params, Program
from inference.programs.sites import enumerating
from ppl_models.data.tables import floating_dtype


def measure(args: argparse.Namespace) -> Lines:
    for name, case in PROGRAMS.items():
        if args.only and not any(name.startswith(part) for part in args.only.split(",")):
            continue
        began = time.process_time()
        line = {"program": name, "source": case.source, "expected": _verdict(case)}
        try:
            with quiet():
                line |= _fitted(case, args)
        except ValueError as error:
            line |= {"verdict": "refused", "sentence": str(error)}
        except Exception as error:  # noqa: BLE001 (what a user would see)
            line |= {"verdict": "crashed", "sentence": f"{type(error).__name__}: {error}"[:300]}
            if args.traceback:
                traceback.print_exc()
        yield line | {"seconds": round(time.process_time() - began, 2)}


def _verdict(case: Case) -> str:
    return "refused" if case.refused else "taken"


def _fitted(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    data = case.data()
    model = call_of(case.program, data, (), case.kwargs)
    tensors = checked(model, data)[0]
    program = Program(model, tensors)
    method: Any = EM(max_iterations=args.max_iterations)
    if program.names("local"):
        method = NUTS(warmup_steps=args.num_draws, num_samples=args.num_draws)
    result = fit(case.program, data, method, num_restarts=1, kwargs=case.kwargs)
    params = result.params | (result.local or {})
    log_prior = float(program.log_prior(params)) if params else 0.0
    log_marginal = float(program.log_marginal(params))
    theirs = -pyro_loss(program, params)
    return {
        "verdict": "taken",
        "engine": type(method).__name__,
        "log_likelihood": round(log_marginal, 6),
        "log_prior": round(log_prior, 6),
        "from_pyro": log_marginal + log_prior - theirs,
        "rows": result.num_rows,
        "parameters": sum(value.numel() for value in result.params.values()),
    }


def pyro_loss(program: Program, params: Params) -> float:
    """Loss of ``TraceEnum_ELBO`` of the user's program with its parameters fixed."""
    own = program.model.model if hasattr(program.model, "model") else program.model
    elbo = TraceEnum_ELBO(
        max_plate_nesting=program.max_plate_nesting, strict_enumeration_warning=False
    )
    unread = [
        name
        for name in program.first_trace.nodes
        if name.endswith("_unobserved") and name not in {site.name for site in program.sites}
    ]
    with (
        isolated(0),
        in_dtype(floating_dtype(program.args)),
        whole_plates({}),
        pyro.validation_enabled(False),
    ):
        fixed = poutine.block(poutine.condition(own, params), hide=unread)
        ready = enumerating(_with_params(fixed, params))
        return float(elbo.loss(ready, lambda *_: None, *program.args))


def _with_params(model: Callable[..., Any], params: Params) -> Callable[..., Any]:
    """The program with the values of its ``pyro.param`` statements in Pyro's store."""

    class Given(poutine.messenger.Messenger):
        def _pyro_param(self, msg: Any) -> None:
            if msg["name"] in params:
                value = params[msg["name"]]
                given = msg["args"][1] if len(msg["args"]) > 1 else None
                if isinstance(given, nn.Parameter):
                    with torch.no_grad():
                        given.copy_(value)
                    value = given
                msg["value"], msg["done"], msg["stop"] = value, True, True

    def given(*args: Any) -> Any:
        with Given():
            return model(*args)

    return given


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, seeded=False, threads=1)
    parser.add_argument("--only", default="", help="names, or how they begin, with commas")
    parser.add_argument("--max-iterations", type=int, default=200)
    parser.add_argument(
        "--num-draws", type=int, default=20, help="of NUTS, after as many of warm-up"
    )
    parser.add_argument("--traceback", action="store_true", help="of programs that crash")
    run(parser, measure, argv, {"only": "gmm_tutorial,autoname", "max_iterations": 50})


if __name__ == "__main__":
    main()
