"""The floors of the house: who may import whom, read from every import of every file, lazy and
type-only ones too.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("inference", "ppl_models")

# from the lowest floor to the highest: a place may import from its own floor and from those listed
# before it
FLOORS: tuple[tuple[str, ...], ...] = (
    ("ppl_models/data/frames.py",),
    ("ppl_models/parts",),
    ("ppl_models/data",),
    ("ppl_models/descriptions", "ppl_models/sequences", "ppl_models/networks"),
    ("ppl_models/*.py",),  # families
    ("ppl_models/datasets",),
    ("inference/programs",),
    ("inference/base",),
    ("inference/engines",),
    ("inference/structures",),
    ("inference/fitting",),
    ("inference/studies",),
    (
        "inference/*.py",
        "inference/identifiability",
        "inference/acdc",
        "inference/selection",
        "inference/inspection",
        "inference/causal",
        "inference/relations",
    ),  # questions
    ("inference/plots",),
    ("inference/report",),
    ("inference/cli",),
)
FAMILIES_SEEN_BY = (
    "ppl_models",
    "inference/cli",
)  # inference knows kinds of description, never a family
DATASETS_SEEN_BY = (
    "ppl_models/__init__.py",
    "ppl_models/datasets",
    "inference/cli",
)  # the face brings them on first use
ONLY = {  # module -> places that may import it
    "arviz": ("inference/base/diagnostics.py", "inference/fitting/export.py"),
    "narwhals": ("ppl_models/data/frames.py",),
    "matplotlib": ("inference/plots", "inference/report/page.py", "inference/base/drawing.py"),
    "jinja2": ("inference/report/page.py",),
    "typer": ("inference/cli",),
    "joblib": ("inference/studies",),
    "filelock": ("inference/studies",),
    "distributed": ("inference/studies",),
    "pyro.poutine": ("inference/programs",),
    "pyro.infer.traceenum_elbo": ("inference/programs",),
    "pickle": (),
    "dill": (),
    "cloudpickle": (),
}
# the only files that import by a name they are told: a door to the pictures, files that register
# themselves, saved fits
BY_NAME = {
    "inference/base/drawing.py",
    "inference/base/plugins.py",
    "inference/fitting/storage.py",
    "inference/report/answers.py",
    "ppl_models/parts/surface.py",
}

FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
)


def module_of(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


MODULES = {module_of(name): name for name in FILES}


def lies_in(name: str, place: str) -> bool:
    folder, _, pattern = place.rpartition("/")
    if pattern == "*.py":
        return name.rpartition("/")[0] == folder
    return name == place or name.startswith(place + "/")


@functools.cache
def tree_of(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"))


@functools.cache
def imports(name: str) -> frozenset[str]:
    """Every module, and every name of a module, that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def files_imported(name: str) -> set[str]:
    """Files of the house that a file imports; a face stands for itself."""
    found = set()
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            found |= {MODULES[alias.name] for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                target = module if module in MODULES else node.module
                found |= {MODULES[target]} if target in MODULES else set()
    return found - {name}


def floor_of(name: str) -> int:
    for floor, places in enumerate(FLOORS):
        if any(lies_in(name, place) for place in places):
            return floor
    raise AssertionError(f"{name} lies on no floor")


FACES = ("inference/__init__.py", "ppl_models/__init__.py")
Rule = Callable[[str], Iterator[str]]
RULES: list[Rule] = []


def every_file(rule: Rule) -> Rule:
    """Register a rule: given a file, it yields what is wrong with it."""
    RULES.append(rule)
    return rule


@every_file
def imports_point_downwards(name: str) -> Iterator[str]:
    if name not in FACES:
        for other in sorted(files_imported(name)):
            if floor_of(other) > floor_of(name):
                yield f"imports {other}, from a floor above its own"


@every_file
def only_the_command_line_knows_families(name: str) -> Iterator[str]:
    for seen, places in (
        ("ppl_models/*.py", FAMILIES_SEEN_BY),
        ("ppl_models/datasets", DATASETS_SEEN_BY),
    ):
        if not any(lies_in(name, place) for place in places):
            for other in sorted(files_imported(name) - {"ppl_models/__init__.py"}):
                if lies_in(other, seen):
                    yield f"knows {other}"


@every_file
def kinds_are_strangers(name: str) -> Iterator[str]:
    parts = name.split("/")
    if parts[:2] == ["inference", "structures"] and len(parts) > 3:
        for other in sorted(files_imported(name)):
            if lies_in(other, "inference/structures") and not lies_in(other, "/".join(parts[:3])):
                yield f"knows another kind: {other}"


@every_file
def libraries_are_imported_in_their_place(name: str) -> Iterator[str]:
    for module, places in ONLY.items():
        if not any(lies_in(name, place) for place in places):
            for other in sorted(imports(name)):
                if other == module or other.startswith(module + "."):
                    yield f"imports {other}"


@every_file
def state_of_the_process_is_entered_in_one_file(name: str) -> Iterator[str]:
    """Warning filters, torch's random state and Pyro's store are shared by threads: whoever enters
    them holds the one lock.
    """
    if name == "inference/programs/global_state.py":
        return
    setters = (
        "torch.manual_seed",
        "pyro.set_rng_seed",
        "warnings.simplefilter",
        "warnings.filterwarnings",
    )
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = ast.unparse(node.func)
            if (
                node.func.attr in ("catch_warnings", "fork_rng", "scope")
                or called in setters
                or called.startswith("torch.set_default")
            ):
                yield f"line {node.lineno} calls {called}"


@every_file
def modules_are_imported_by_statements(name: str) -> Iterator[str]:
    if name not in (*BY_NAME, *FACES):
        found = {module for module in imports(name) if module.split(".")[0] == "importlib"}
        if not found <= {"importlib", "importlib.metadata"} or found == {"importlib"}:
            yield "can import by name"


@every_file
def faces_define_nothing(name: str) -> Iterator[str]:
    if name.endswith("__init__.py") and name not in FACES:
        for node in tree_of(name).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                if not all(isinstance(part, ast.ImportFrom) for part in node.body):
                    yield f"line {node.lineno} defines something"  # names of first use
            elif not isinstance(node, ast.Expr | ast.Import | ast.ImportFrom | ast.Assign):
                yield f"line {node.lineno} defines something"
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) not in (
                "__dir__",
                "(__getattr__, __dir__)",
            ):
                yield f"line {node.lineno} assigns something"


@every_file
def modules_are_silent(name: str) -> Iterator[str]:
    for node in ast.walk(tree_of(name)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ):
            yield f"line {node.lineno} prints"


DESCRIPTIONS = {
    "layers",
    "root",
    "chain",
    "policy_chain",
    "causes",
    "components",
    "dictionary",
    "factorization",
    "factors",
    "usage",
}


@every_file
def only_structures_ask_what_a_model_describes(name: str) -> Iterator[str]:
    """A kind owns what is said about it: elsewhere one asks the structure, and never the model for
    its description.
    """
    if lies_in(name, "inference/structures") or not lies_in(name, "inference"):
        return
    for node in ast.walk(tree_of(name)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("hasattr", "getattr")
        ):
            asked = node.args[1] if len(node.args) > 1 else None
            if isinstance(asked, ast.Constant) and asked.value in DESCRIPTIONS | {
                "num_options",
                "latent_sizes",
            }:
                yield f"line {node.lineno} asks a model for its description"


@every_file
def rows_are_taken_under_the_columns_of_their_fit(name: str) -> Iterator[str]:
    """Columns of new rows are found by name: whoever asks a fit's model to read data passes them
    through ``as_fitted``.
    """
    if (
        floor_of(name) < floor_of("inference/fitting/posterior.py")
        or name == "inference/fitting/columns.py"
    ):
        return
    if any(imported.endswith("as_fitted") for imported in imports(name)):
        return
    for node in ast.walk(tree_of(name)):
        reads = isinstance(node, ast.Call) and ast.unparse(node.func) in ("checked", "data_chunks")
        if reads and ast.unparse(node.args[0]) in ("fit.model", "result.model", "one.model"):
            yield f"line {node.lineno} reads rows without their fit's columns"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_file_keeps_the_rule(rule: Rule) -> None:
    faults = [f"{name}: {fault}" for name in FILES for fault in rule(name)]
    assert not faults, "\n".join(faults)


def test_no_circles() -> None:
    graph = {name: files_imported(name) for name in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        raise AssertionError(f"a circle of imports: {' -> '.join(circle.args[1])}") from None


def test_the_rules_find_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that breaks each rule in turn is found by it."""
    broken = {
        "imports_point_downwards": ("ppl_models/parts/x.py", "import inference.engines.em"),
        "only_the_command_line_knows_families": (
            "inference/base/x.py",
            "import ppl_models.mixture",
        ),
        "kinds_are_strangers": (
            "inference/structures/options/x.py",
            "import inference.structures.layers.structure",
        ),
        "libraries_are_imported_in_their_place": (
            "inference/base/x.py",
            "def f():\n    import matplotlib.pyplot",
        ),
        "state_of_the_process_is_entered_in_one_file": (
            "inference/base/x.py",
            "torch.manual_seed(0)",
        ),
        "modules_are_imported_by_statements": (
            "inference/base/x.py",
            "from importlib import import_module",
        ),
        "faces_define_nothing": ("inference/base/__init__.py", "x = 1"),
        "modules_are_silent": ("inference/base/x.py", "print(1)"),
        "only_structures_ask_what_a_model_describes": (
            "inference/base/x.py",
            "hasattr(model, 'layers')",
        ),
        "rows_are_taken_under_the_columns_of_their_fit": (
            "inference/loo.py",
            "checked(fit.model, data)",
        ),
    }
    assert set(broken) == {rule.__name__ for rule in RULES}
    for rule in RULES:
        name, text = broken[rule.__name__]
        monkeypatch.setattr(sys.modules[__name__], "tree_of", lambda _, text=text: ast.parse(text))
        imports.cache_clear()
        assert list(rule(name)), rule.__name__
    imports.cache_clear()


def test_import_is_light() -> None:
    code = (
        "import pyro, sys; before = set(sys.modules); import ppl_models, inference; heavy ="
        " {'matplotlib', 'arviz', 'narwhals', 'pandas', 'sklearn', 'scipy', 'sympy', 'typer',"
        " 'rich', 'xarray'}; print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_first_fits_are_light() -> None:
    """Everyday models load none of the libraries that take longer than the fit."""
    code = (
        "import sys, numpy as np; from inference import EM, fit; from ppl_models import *;"
        " x = np.random.default_rng(0).normal(size=(60, 3)); yes = (x > 0) * 1.0;"
        " models = [(Mixture(2, MultivariateNormal()), x), (Mixture(2, Normal()), x),"
        " (Mixture(2, Bernoulli()), yes), (Mixture(2, Categorical(2)), yes),"
        " (HiddenMarkov(2, Normal()), x[None])];"
        " [fit(model, rows, EM(), num_restarts=2) for model, rows in models];"
        " heavy = {'sympy', 'scipy.optimize', 'pandas', 'sklearn', 'matplotlib', 'arviz'};"
        " print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout.strip() == "[]"
