"""Quick check of a change: formatter and ruff on changed files, laws of a dozen zoo rows, tests
beside the changed files.

Changed are the files that differ from the last commit, or, with a clean tree, those of the last
commit. The tests of ``inference/engines/em.py`` are ``tests/engines/test_em.py`` where there is
such a file, else the folder ``tests/engines``.

Run: ``make quick``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROWS = (
    "encoder-Bernoulli-2",
    "encoder-Normal-1-missing",
    "encoder-truncated-lasso",
    "gdm-Bernoulli-2",
    "attributes-hierarchy-Bernoulli",
    "bernoulli-mixture",
    "noisy-or-map",
    "options-2",
    "mixture-Normal",
    "hidden-markov-Poisson-missing",
    "classifiers-shared",
    "factorization-counts",
)
PACKAGES = {"inference": "tests", "ppl_models": "tests/models", "tests": "tests"}


def changed_files() -> list[str]:
    """Python files that differ from the last commit, else those of the last commit."""
    tracked = _lines("git", "diff", "--name-only", "--diff-filter=d", "HEAD", "--", "*.py")
    untracked = _lines("git", "ls-files", "--others", "--exclude-standard", "--", "*.py")
    last = _lines("git", "diff", "--name-only", "--diff-filter=d", "HEAD~1", "HEAD", "--", "*.py")
    return tracked + untracked or last


def tests_of(name: str) -> str | None:
    """The test file or folder that mirrors a file."""
    path = Path(name)
    if path.parts[0] not in PACKAGES:
        return None
    if path.name.startswith("test_"):
        return name
    if path.parts[0] == "tests":
        return None
    folder = ROOT / PACKAGES[path.parts[0]] / Path(*path.parts[1:]).parent
    beside = folder / f"test_{path.name}"
    while not folder.is_dir() or folder == ROOT / "tests" / "models":
        folder = folder.parent
    found = beside if beside.is_file() else folder
    return None if found == ROOT / "tests" else found.relative_to(ROOT).as_posix()


def _lines(*command: str) -> list[str]:
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def main() -> int:
    files = changed_files()
    tests = sorted({found for found in map(tests_of, files) if found is not None})
    laws = [f"--deselect={name}" for name in tests if name == "tests/zoo/test_laws.py"]
    rows = " or ".join(f"[{name}]" for name in ROWS)
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
    commands = [
        [*pytest, "tests/zoo/test_laws.py", "-k", rows],
        [*pytest, "tests/test_architecture.py", *tests, *laws],
    ]
    if files:
        ruff = str(Path(sys.executable).with_name("ruff"))
        commands = [[ruff, "check", *files], [ruff, "format", "--check", *files], *commands]
    return max(subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands)


if __name__ == "__main__":
    sys.exit(main())
