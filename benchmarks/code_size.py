"""Size of the library: lines, files, public names, members of ``Structure``, import time, types.

Run the script from a checkout with ``PYTHONPATH=.`` to measure that checkout; two checkouts give a
table before and after a change.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from _bench import Lines, command_line, run

import inference
from inference.base.structure import Structure

PACKAGES = ("ppl_models", "inference")


def lines_and_files(root: Path, folder: str) -> tuple[int, int]:
    """Lines and files of Python under a folder."""
    files = list((root / folder).rglob("*.py"))
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files), len(files)


def public_names() -> dict[str, int]:
    """Number of names of every public module: its ``__all__``, or else its ``dir``."""
    modules = [f"inference.{name}" for name in inference._MODULES]
    found = {}
    for name in (*PACKAGES, "ppl_models.datasets", *modules):
        module = importlib.import_module(name)
        listed = getattr(module, "__all__", None) or dir(module)
        found[name] = sum(not inspect.ismodule(getattr(module, part)) for part in listed)
    return found


FIRST_USE = "from inference import fit; from ppl_models import Mixture"


def import_ratio(times: int) -> float:
    """Median time of importing ``fit`` and a family over that of importing torch and Pyro."""

    def seconds(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    pairs = [(seconds("import torch, pyro"), seconds(FIRST_USE)) for _ in range(times)]
    return statistics.median(ours / theirs for theirs, ours in pairs)


def strict_errors() -> Counter[str]:
    """Number of errors of ``mypy --strict`` by folder."""
    command = [sys.executable, "-m", "mypy", "--strict"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    places = re.findall(r"^([\w/]+)/\w+\.py:\d+: error", done.stdout, re.MULTILINE)
    return Counter("/".join(place.split("/")[:2]) for place in places)


def measure(args: argparse.Namespace) -> Lines:
    root = Path(inference.__file__).parent.parent
    product = [lines_and_files(root, folder) for folder in PACKAGES]
    yield {"what": "product lines", "value": sum(lines for lines, _ in product)}
    yield {"what": "product files", "value": sum(files for _, files in product)}
    yield {"what": "test lines", "value": lines_and_files(root, "tests")[0]}
    names = public_names()
    yield {"what": "public names", "value": sum(names.values()), "by_module": names}
    members = sum(not name.startswith("_") for name in dir(Structure))
    yield {"what": "public members of Structure", "value": members}
    yield {
        "what": "import of fit and a family over torch and Pyro",
        "value": round(import_ratio(args.times), 3),
    }
    if args.strict:
        errors = strict_errors()
        yield {"what": "errors of mypy --strict", "value": errors.total(), "by_folder": errors}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__)
    parser.add_argument("--times", type=int, default=5, metavar="N", help="imports of each kind")
    parser.add_argument("--strict", action="store_true", help="count errors of mypy --strict too")
    run(parser, measure, argv, {"times": 1})


if __name__ == "__main__":
    main()
