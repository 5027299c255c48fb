"""Who may import whom, and what stays out of the library."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIBRARY = sorted([*(ROOT / "ppl_models").rglob("*.py"), *(ROOT / "inference").rglob("*.py")])
FAMILIES = {"deep_discrete_encoder", "noisy_or", "sparse_coding", "options_hmm", "matrix_factorization", "mixture", "continuous_options"}


def named(pattern: str) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / "inference").glob(pattern)}


ONLY = {  # module -> files that may import it
    "arviz": {"inference/fitting/export.py"},
    "matplotlib": {"inference/report/page.py", *named("plots/*.py")},
    "typer": named("cli/*.py"),
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    name = path.relative_to(ROOT).as_posix()
    modules = imports(path)
    if name.startswith("ppl_models/"):
        assert not {m for m in modules if m.split(".")[0] == "inference"}
    elif name not in named("cli/*.py"):  # the command line is a front end to families
        assert not {m for m in modules if m.startswith("ppl_models.") and m.split(".")[1] in FAMILIES}
    for module, files in ONLY.items():
        if name not in files:
            assert not {m for m in modules if m.split(".")[0] == module}
    assert not modules & {"pickle", "dill", "cloudpickle"}
    if name not in ("inference/programs/program.py", "inference/programs/guide_traces.py"):
        assert not {m for m in modules if m.startswith("pyro.poutine") or m == "pyro.infer.traceenum_elbo"}


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_short_and_silent(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 600
    calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]


def test_import_is_light():
    code = (
        "import pyro, sys; before = set(sys.modules); import ppl_models, inference; "
        "heavy = {'matplotlib', 'arviz', 'pandas', 'sklearn', 'scipy.optimize', 'sympy', 'typer', 'rich'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
