"""Python calls of two packages during fits and a page: calls, functions, files, modules imported.

``python benchmarks/trace_calls.py mixture encoder program page`` traces these scenes, each in a
process of its own, on one thread. Calls are those of
named functions (of a generator each resumption is one); a file is entered by a call or, where it is
imported meanwhile, by the body of a class.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGES = ("ppl_models", "inference")


def mixture() -> Callable[[], Any]:
    """Fit of a mixture of three normal components to 300 x 4 numbers."""
    from inference import fit

    model, x = _mixture()
    return lambda: fit(model, x, seed=0)


def encoder() -> Callable[[], Any]:
    """Fit of a two-layer encoder to 400 rows drawn from it."""
    import torch

    from inference import fit
    from ppl_models import DeepDiscreteEncoder

    rng = torch.Generator().manual_seed(0)
    x = torch.bernoulli(torch.full((400, 18), 0.5), generator=rng).numpy()
    return lambda: fit(DeepDiscreteEncoder(18, (6, 2)), x, seed=0)


def program() -> Callable[[], Any]:
    """Fit of a Pyro program of two normal components to 300 numbers."""
    import pyro
    import pyro.distributions as dist
    import torch

    from inference import fit

    def two_groups(x: torch.Tensor) -> None:
        share = pyro.sample("share", dist.Beta(2.0, 2.0))
        with pyro.plate("groups", 2):
            mean = pyro.sample("mean", dist.Normal(0.0, 5.0))
        with pyro.plate("rows", len(x)):
            group = pyro.sample("group", dist.Bernoulli(share), infer={"enumerate": "parallel"})
            pyro.sample("x", dist.Normal(mean[group.long()], 1.0), obs=x)

    rng = torch.Generator().manual_seed(0)
    x = torch.cat([torch.randn(150, generator=rng) - 2, torch.randn(150, generator=rng) + 2])
    return lambda: fit(two_groups, x, seed=0)


def page() -> Callable[[], Any]:
    """Page of the fit of ``mixture``, after the fit."""
    from inference import fit

    model, x = _mixture()
    result = fit(model, x, seed=0)
    folder = tempfile.mkdtemp()
    return lambda: result.report(Path(folder) / "page.html", x)


def _mixture() -> tuple[Any, Any]:
    import torch

    from ppl_models import Mixture, Normal

    rng = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0, 0, 0], [4.0, 4, 0, 0], [0.0, 4, 4, 4]])
    x = centres.repeat(100, 1) + torch.randn(300, 4, generator=rng)
    return Mixture(3, Normal(), num_items=4), x.numpy()


SCENES: dict[str, Callable[[], Callable[[], Any]]] = {
    "mixture": mixture,
    "encoder": encoder,
    "program": program,
    "page": page,
}


def trace(run: Callable[[], Any]) -> dict[str, Any]:
    """Count calls while ``run`` runs.

    Returns:
        Calls, functions, files entered and files of called functions of the packages; calls from
        one file to another, pairs of such files, the deepest stack of calls; and the modules that
        were imported meanwhile.
    """
    import inference
    import ppl_models

    roots = tuple(str(Path(own.__file__ or "").parent) for own in (inference, ppl_models))
    calls: Counter[CodeType] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    within: dict[str, bool] = {}
    entered: set[str] = set()
    stack: list[str] = []
    deepest = 0

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal deepest
        if event not in ("call", "return"):
            return
        code = frame.f_code
        file = code.co_filename
        if file not in within:
            within[file] = file.startswith(roots)
        if not within[file] or code.co_name.startswith("<"):  # a module, loop or lambda
            return
        if event == "return":
            if stack:
                stack.pop()
            return
        entered.add(file)
        is_function = code.co_flags & 0x2  # CO_NEWLOCALS, which the body of a class has not
        if stack and stack[-1] != file and is_function:
            pairs[stack[-1], file] += 1
        stack.append(file)
        deepest = max(deepest, len(stack))
        if is_function:
            calls[code] += 1

    before = set(sys.modules)
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    new = sorted(name for name in set(sys.modules) - before if name.split(".")[0] in PACKAGES)
    return {
        "calls": sum(calls.values()),
        "functions": len(calls),
        "files": len(entered),
        "called_files": len({code.co_filename for code in calls}),
        "between_files": sum(pairs.values()),
        "pairs_of_files": len(pairs),
        "deepest": deepest,
        "imported": len(new),
        "modules": new,
        "busiest": [
            (f"{Path(code.co_filename).name}:{code.co_name}", count)
            for code, count in calls.most_common(15)
        ],
    }


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for scene in args.scenes or SCENES:
        command = [sys.executable, __file__, scene, "--alone"]
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        done = subprocess.run(
            command, env={**os.environ, **threads}, stdout=subprocess.PIPE, text=True, check=True
        )
        figures = json.loads(done.stdout.splitlines()[-1])
        details = {key: figures.pop(key) for key in ("modules", "busiest")}
        yield {"scene": scene, **figures, **(details if args.modules else {})}


def main(argv: Sequence[str] | None = None) -> None:
    scene, *rest = [*(sys.argv[1:] if argv is None else argv), ""]
    if rest == ["--alone", ""]:
        _write(json.dumps(trace(SCENES[scene]())))
        return
    from _bench import command_line, run  # imports what a scene is to import itself

    parser = command_line(__file__, __doc__)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)}")
    parser.add_argument("--modules", action="store_true", help="list modules and busiest functions")
    run(parser, measure, argv)


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
