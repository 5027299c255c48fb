"""Every example in the README, the pages of ``docs`` and docstrings runs as it stands, and prints
what the page says; links lead where they point.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType

import jupytext
import nbformat
import pytest
import typer

import inference
import ppl_models
from inference.cli.main import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")  # of files, not of sites
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def module(name: str) -> ModuleType:
    """A script of ``docs``, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def snippets() -> ModuleType:
    return module("run_snippets")


def pages_with(*languages: str) -> list[Path]:
    return [page for page in PAGES if snippets().blocks(page, *languages)]


def name_of(page: Path) -> str:
    return page.name


def numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
@pytest.mark.filterwarnings(
    "ignore::UserWarning"
)  # what a fit says of itself is no fault of the page
def test_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    snippets().run_page(page)
    printed = capsys.readouterr().out
    for told in snippets().blocks(page, "text"):
        place = printed.find(told.splitlines()[0])
        assert place >= 0, f"nothing printed begins with {told.splitlines()[0]!r}"
        found = "\n".join(printed[place:].splitlines()[: len(told.splitlines())])
        assert NUMBER.sub("#", found).split() == NUMBER.sub("#", told).split()
        assert numbers(found) == pytest.approx(numbers(told), rel=1e-3)


def docstring_examples() -> dict[str, doctest.DocTest]:
    """Examples of public names, and of the methods of fits, by name."""
    found, finder = {}, doctest.DocTestFinder(recurse=False)
    for face in module("build").FACES:
        named = vars(inference.Fit) if face == "inference" else {}
        public = importlib.import_module(face)
        for name in (*named, *dir(public)):
            value = getattr(inference.Fit if name in named else public, name)
            if callable(value) and ">>> " in (getattr(value, "__doc__", None) or ""):
                (found[name],) = finder.find(value, name, globs={})
    return found


DOCSTRINGS = docstring_examples()


def test_what_people_need_has_an_example() -> None:
    assert len(DOCSTRINGS) >= 20
    build = module("build")
    first = {path.rpartition(".")[2] for path in build.FIRST["Questions to a fit"]}
    assert first - set(DOCSTRINGS) <= {"loo", "save"}  # load has the example of save


@pytest.mark.parametrize("name", sorted(DOCSTRINGS))
@pytest.mark.filterwarnings("ignore::UserWarning")  # of few draws
def test_docstring_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(DOCSTRINGS[name])
    assert ran.attempted > 2
    assert ran.failed == 0


@pytest.mark.parametrize("page", pages_with("sh"), ids=name_of)
def test_commands_have_these_options(page: Path) -> None:
    for line in "".join(snippets().blocks(page, "sh")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["ppl-models"]:
            command, rest = typer.main.get_command(app), words[1:]
            while rest and rest[0] in getattr(command, "commands", {}):
                command, rest = command.commands[rest[0]], rest[1:]
            assert not hasattr(command, "commands"), f"there is no such command: {line}"
            command.make_context(words[0], rest)  # refuses what the command does not know
        elif words[:2] == ["pip", "install"]:
            pinned = {word for word in words if "==" in word}
            assert pinned <= set((ROOT / "constraints.txt").read_text(encoding="utf-8").split())
        elif words[:1] == ["make"]:
            assert f"\n{words[1]}: " in (ROOT / "Makefile").read_text(encoding="utf-8"), line


def test_messages_are_those_of_the_library() -> None:
    said = []
    for package in ("inference", "ppl_models"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    said.append(
                        "".join(
                            str(part.value) if isinstance(part, ast.Constant) else "…"
                            for part in node.values
                        )
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    said.append(node.value)
    page = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| `([^`]*)`", page, re.MULTILINE)
    assert len(quoted) > 20
    pattern = {
        message: re.compile(".*".join(re.escape(part) for part in message.split("…")), re.DOTALL)
        for message in quoted
    }
    assert [
        message for message in quoted if not any(pattern[message].search(one) for one in said)
    ] == []


@pytest.mark.parametrize("page", ["docs/chooser.md", "docs/families.md"])
def test_every_family_has_a_line(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    every = (getattr(ppl_models, name) for name in dir(ppl_models))
    found = (value for value in every if isinstance(value, type))
    families = [
        one.__name__ for one in found if one.__module__.count(".") == 1 and "__call__" in vars(one)
    ]
    assert len(families) > 10
    assert [name for name in families if f"`{name}`" not in text] == []


def test_requests_are_counted_and_answered() -> None:
    text = (ROOT / "docs" / "asks.md").read_text(encoding="utf-8")
    link = r"\[[^\]]+\]\(https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+\)"
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    row = re.compile(rf"\| [\w-]+ \| {link} \| (have|recipe|lack): (.+) \|")
    asked = [row.fullmatch(line) for line in rows]
    assert [line for line, found in zip(rows, asked, strict=True) if found is None] == []
    kinds = [found[1] for found in asked if found]
    said = re.search(
        r"^(\d+) requests .*: (\d+) have, (\d+) recipe, (\d+) lack\.", text, re.MULTILINE
    )
    assert said is not None
    assert [int(number) for number in said.groups()] == [
        len(rows),
        *(kinds.count(kind) for kind in ("have", "recipe", "lack")),
    ]
    examples = re.findall(r"^(\d+)\\\. [^\n]+:\n\n```python\n", text, re.MULTILINE)
    used = {
        number
        for found in asked
        if found and found[1] != "lack"
        for number in re.findall(r"(?<![\w`])\d+", LINK.sub("", found[2]))
    }
    assert examples == [str(number + 1) for number in range(len(examples))]
    assert used == set(examples)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files(page: Path) -> None:
    wrong = [
        link
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert wrong == []


def test_what_a_benchmark_left_becomes_a_table(tmp_path: Path) -> None:
    lines = [
        {"benchmark": "em_speed", "rows": 100, "seconds": 0.5, "sizes": [6, 2]},
        {"benchmark": "em_speed", "rows": 200, "published": 1.25},
    ]
    (tmp_path / "em_speed.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8"
    )
    text = module("build").result_tables(tmp_path)
    assert "### em_speed" in text
    assert (
        "| rows | seconds | published |\n|---|---|---|\n| 100 | 0.5 |  |\n| 200 |  | 1.25 |" in text
    )
    assert module("build").result_tables(tmp_path / "nothing") == ""


def test_the_site_has_every_page() -> None:
    build = module("build")
    lists = [*build.sections().values(), (ROOT / "notebooks" / "README.md").read_text("utf-8")]
    listed = [name for text in lists for name in build.listed(text)]
    assert len(listed) == len(set(listed))
    assert {page.stem for page in (*PAGES, *build.NOTEBOOKS)} - {"README"} | {"CHANGELOG"} == set(
        listed
    )


def test_the_site_shows_what_notebooks_gave_while_their_text_is_the_same(tmp_path):
    page, build = tmp_path / "own.md", module("build")
    text = "# Own\n\n```{code-cell} ipython3\nprint(num)\n```\n"
    page.write_text(text)
    assert json.loads(build.shown(page))["cells"][1]["outputs"] == []  # was never run
    notebook = jupytext.read(page)
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", name="stdout", text="2\n")]
    nbformat.write(notebook, tmp_path / "own.ipynb")
    assert json.loads(build.shown(page))["cells"][1]["outputs"][0]["text"] == ["2\n"]
    page.write_text(text.replace("print(num)", "print(num + 1)"))
    assert (
        json.loads(build.shown(page))["cells"][1]["outputs"] == []
    )  # what it gave is of another text


def test_a_page_that_fetches_something_is_found() -> None:
    fetched = module("build").FETCHED
    assert fetched.search('<script async="async" src="https://cdn.example.org/x.js"></script>')
    assert fetched.search(
        '<link rel="stylesheet" type="text/css" href="//cdn.example.org/x.css" />'
    )
    assert not fetched.search(
        '<script src="_static/x.js"></script><a href="https://pyro.ai">Pyro</a>'
    )
