"""The floors of the house: who may import whom, read from every import of every file, lazy and type-only ones too."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("inference", "ppl_models")

# from the lowest floor to the highest: a place may import from its own floor and from those listed before it
FLOORS: tuple[tuple[str, ...], ...] = (
    ("ppl_models/parts",),
    ("ppl_models/descriptions", "ppl_models/sequences", "ppl_models/networks"),
    ("ppl_models/*.py",),  # families
    ("ppl_models/datasets",),
    ("inference/programs",),
    ("inference/base",),
    ("inference/engines",),
    ("inference/structures",),
    ("inference/fitting",),
    ("inference/studies",),
    ("inference/*.py", "inference/identifiability", "inference/acdc", "inference/selection", "inference/inspection", "inference/causal", "inference/relations"),  # questions
    ("inference/plots",),
    ("inference/report",),
    ("inference/cli",),
)
FAMILIES_SEEN_BY = ("ppl_models", "inference/cli")  # inference knows kinds of description, never a family
DATASETS_SEEN_BY = ("ppl_models/__init__.py", "ppl_models/datasets", "inference/cli")  # the face brings them on first use
ONLY = {  # module -> places that may import it
    "arviz": ("inference/base/diagnostics.py", "inference/fitting/export.py"),
    "narwhals": ("ppl_models/parts/frames.py",),
    "matplotlib": ("inference/plots", "inference/report/page.py"),
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
BY_NAME = {  # the only files that import by a name they are told: a door to the pictures, files that register themselves, saved fits
    "inference/base/drawing.py", "inference/base/plugins.py", "inference/fitting/storage.py",
}  # fmt: skip
MOST_LINES, MOST_FILES = 600, 20

FILES = sorted(path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
every_file = pytest.mark.parametrize("name", FILES)


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


@every_file
def test_imports_point_downwards(name: str) -> None:
    if name in ("inference/__init__.py", "ppl_models/__init__.py"):
        return
    above = {other for other in files_imported(name) if floor_of(other) > floor_of(name)}
    assert not above, f"{name} imports from a floor above its own: {sorted(above)}"


@every_file
def test_only_the_command_line_knows_families(name: str) -> None:
    for seen, places in (("ppl_models/*.py", FAMILIES_SEEN_BY), ("ppl_models/datasets", DATASETS_SEEN_BY)):
        if not any(lies_in(name, place) for place in places):
            known = {other for other in files_imported(name) if lies_in(other, seen) and other != "ppl_models/__init__.py"}
            assert not known, f"{name} knows {sorted(known)}"


def test_no_circles() -> None:
    graph = {name: files_imported(name) for name in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        raise AssertionError(f"a circle of imports: {' -> '.join(circle.args[1])}") from None


@pytest.mark.parametrize("folder", sorted(path.name for path in (ROOT / "inference/structures").iterdir() if path.is_dir()))
def test_kinds_are_strangers(folder: str) -> None:
    own = f"inference/structures/{folder}"
    for name in FILES:
        if lies_in(name, own):
            others = {other for other in files_imported(name) if lies_in(other, "inference/structures") and not lies_in(other, own)}
            assert not others, f"{name} knows another kind: {sorted(others)}"


@every_file
def test_libraries_are_imported_in_their_place(name: str) -> None:
    for module, places in ONLY.items():
        if not any(lies_in(name, place) for place in places):
            assert not {m for m in imports(name) if m == module or m.startswith(module + ".")}, f"{name} imports {module}"


@every_file
def test_state_of_the_process_is_entered_in_one_file(name: str) -> None:
    """Warning filters, torch's random state and Pyro's store are shared by threads: whoever enters them holds the one lock."""
    if name == "inference/programs/alone.py":
        return
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = ast.unparse(node.func)
            assert node.func.attr not in ("catch_warnings", "fork_rng", "scope"), f"{name}:{node.lineno}"
            assert called not in ("torch.manual_seed", "pyro.set_rng_seed", "warnings.simplefilter", "warnings.filterwarnings"), f"{name}:{node.lineno}"
            assert not called.startswith("torch.set_default"), f"{name}:{node.lineno}"


@every_file
def test_modules_are_imported_by_statements(name: str) -> None:
    if name not in (*BY_NAME, "inference/__init__.py", "ppl_models/__init__.py"):
        found = {module for module in imports(name) if module.split(".")[0] == "importlib"}
        assert found <= {"importlib", "importlib.metadata"}
        assert found != {"importlib"}, f"{name} can import by name"


@every_file
def test_faces_define_nothing(name: str) -> None:
    if name.endswith("__init__.py") and name not in ("inference/__init__.py", "ppl_models/__init__.py"):
        kinds = {type(node) for node in tree_of(name).body}
        assert kinds <= {ast.Expr, ast.Import, ast.ImportFrom, ast.Assign}
        assigned = {target.id for node in tree_of(name).body if isinstance(node, ast.Assign) for target in node.targets}  # type: ignore[attr-defined]
        assert assigned <= {"__all__"}


@every_file
def test_modules_are_short_and_silent(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").count("\n") <= MOST_LINES
    calls = [node.func for node in ast.walk(tree_of(name)) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]


@pytest.mark.parametrize("folder", sorted({name.rpartition("/")[0] for name in FILES}))
def test_rooms_are_not_halls(folder: str) -> None:
    assert len([name for name in FILES if name.rpartition("/")[0] == folder]) <= MOST_FILES


DESCRIPTIONS = {"layers", "root", "chain", "policy_chain", "causes", "components", "dictionary", "factorization", "factors", "usage"}


@every_file
def test_only_structures_ask_what_a_model_describes(name: str) -> None:
    """A kind owns what is said about it: elsewhere one asks the structure, and never the model for its description."""
    if lies_in(name, "inference/structures") or not lies_in(name, "inference"):
        return
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hasattr", "getattr"):
            asked = node.args[1] if len(node.args) > 1 else None
            if isinstance(asked, ast.Constant):
                assert asked.value not in DESCRIPTIONS | {"num_options", "latent_sizes"}, f"{name}:{node.lineno}"


@every_file
def test_rows_are_taken_under_the_columns_of_their_fit(name: str) -> None:
    """Columns of new rows are found by name: whoever asks a fit's model to read data passes them through ``as_fitted``."""
    asked = ("fit.model", "result.model", "one.model")
    if floor_of(name) < floor_of("inference/fitting/rows.py"):
        return
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("checked", "data_chunks") and ast.unparse(node.args[0]) in asked:
            assert any(imported.endswith("as_fitted") for imported in imports(name)) or name == "inference/fitting/columns.py", f"{name}:{node.lineno}"


def test_import_is_light() -> None:
    code = (
        "import pyro, sys; before = set(sys.modules); import ppl_models, inference; "
        "heavy = {'matplotlib', 'arviz', 'narwhals', 'pandas', 'sklearn', 'scipy', 'sympy', 'typer', 'rich', 'xarray'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
