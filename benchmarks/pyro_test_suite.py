"""Programs of Pyro's own test suite, handed to the density and to ``fit``.

``test_enum.py`` and ``test_valid_models.py`` of Pyro's source distribution are run by pytest; every
model that they hand to an ELBO is taken as it is. One JSON line a model of a test: whether its
density, latents summed out, equals plain Pyro's ``TraceEnum_ELBO`` at the same parameters, and
what ``fit`` says (one step of EM); a refusal with its sentence, and a crash where an exception is
no refusal. The last line counts. Pyro's tests are not part of this repository: name the folder of
an unpacked source distribution. Run: ``python benchmarks/pyro_test_suite.py --source pyro-1.9.1``.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from _bench import Lines, command_line, run
from published_programs import pyro_loss
from pyro.infer import ELBO

from inference import EM, fit
from inference.programs.arguments import call_of
from inference.programs.data import checked
from inference.programs.global_state import isolated, quiet
from inference.programs.program import Program

FILES = ("tests/infer/test_enum.py", "tests/infer/test_valid_models.py")
METHODS = ("loss", "loss_and_grads", "differentiable_loss", "compute_marginals", "sample_posterior")


class Taken:
    """Plugin of pytest that takes every model handed to an ELBO, once a test."""

    def __init__(self, show_traceback: bool) -> None:
        self.lines: list[dict[str, Any]] = []
        self.test, self.seen, self.is_busy = "", set[Any](), False
        self.show_traceback = show_traceback

    def pytest_runtest_setup(self, item: Any) -> None:
        self.test, self.seen = item.nodeid.rpartition("/")[2], set()

    def pytest_sessionstart(self) -> None:
        for kind in _subclasses(ELBO):
            for name in METHODS:
                if name in vars(kind):
                    setattr(kind, name, self._watched(vars(kind)[name]))

    def _watched(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def method(elbo: Any, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.is_busy and id(model) not in self.seen:
                self.seen.add(id(model))
                self.is_busy = True
                try:
                    self.lines.append({"test": self.test} | self._asked(model, args, kwargs))
                finally:
                    self.is_busy = False
            return plain(elbo, model, guide, *args, **kwargs)

        return method

    def _asked(self, model: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        data = None if not args else args[0] if len(args) == 1 else args
        with isolated(0), quiet():
            density = self._said(lambda: _compared(model, data, kwargs))
            one_step = EM(max_iterations=1)
            fitted = self._said(lambda: _fitted(model, data, one_step, kwargs))
        return {f"density_{k}": v for k, v in density.items()} | {
            f"fit_{k}": v for k, v in fitted.items()
        }

    def _said(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return ask()
        except ValueError as error:
            return {"verdict": "refused", "sentence": str(error)}
        except Exception as error:  # noqa: BLE001 (what a user would see)
            if self.show_traceback:
                traceback.print_exc()
            return {"verdict": "crashed", "sentence": f"{type(error).__name__}: {error}"[:300]}


def _subclasses(kind: type) -> set[type]:
    below = set(kind.__subclasses__())
    return below.union(*map(_subclasses, below))


def _compared(model: Any, data: Any, kwargs: Any) -> dict[str, Any]:
    called = call_of(model, data, (), kwargs)
    program = Program(called, checked(called, data)[0])
    program.check_enumerable()
    params = {
        name: torch.as_tensor(program.first_trace.nodes[name]["value"]).detach()
        for kind in ("parameter", "local")
        for name in program.names(kind)
    }
    own = float(program.log_marginal(params) + program.log_prior(params))
    try:
        theirs = -pyro_loss(program, params)
    except Exception as error:  # noqa: BLE001 (whatever Pyro cannot do)
        sentence = f"{type(error).__name__}: {error}"[:200]
        return {"verdict": "answered alone", "own": own, "sentence": sentence}
    both_nan = math.isnan(own) and math.isnan(theirs)
    near = both_nan or math.isclose(own, theirs, rel_tol=1e-6, abs_tol=1e-6)
    return {"verdict": "equal" if near else "differs", "own": own, "pyro": theirs}


def _fitted(model: Any, data: Any, method: Any, kwargs: Any) -> dict[str, Any]:
    fit(model, data, method, num_restarts=1, kwargs=kwargs)
    return {"verdict": "taken"}


def measure(args: argparse.Namespace) -> Lines:
    source = Path(args.source).resolve()
    if not (args.source and all((source / file).exists() for file in FILES)):
        yield {"skipped": f"--source: a folder with {' and '.join(FILES)} of Pyro was expected"}
        return
    taken = Taken(args.traceback)
    sys.path.insert(0, str(source))
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:warnings", "--rootdir", str(source)]
    with contextlib.chdir(source):
        pytest.main([*options, *(["-k", args.only] if args.only else []), *FILES], plugins=[taken])
    yield from taken.lines
    for part in ("density", "fit"):
        counts = Counter(line[f"{part}_verdict"] for line in taken.lines)
        yield {"asked": part, "models": len(taken.lines), **counts}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, seeded=False, threads=1)
    parser.add_argument("--source", default="", help="folder of Pyro's source distribution")
    parser.add_argument("--only", default="", help="tests, as pytest's -k")
    parser.add_argument("--traceback", action="store_true", help="of models that crash")
    run(parser, measure, argv, {"only": "test_enum_discrete_plate_ok"})


if __name__ == "__main__":
    main()
