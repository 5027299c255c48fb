"""Builds the documentation site: ``python docs/build.py``, or ``make docs``; ``--execute`` runs the notebooks too, and keeps what they gave.
Without it, notebooks show what they gave in the tests (``make test`` leaves that in ``build/notebooks``), if their text is the same.

Pages are laid out in ``build/docs/source``: those of this folder, the notebooks, a start page made of the README, the reference of every public module, and a
table of each file that a benchmark left in ``benchmarks/results``. The page of papers is drawn from the records in ``benchmarks/papers/results``. A page whose text is the same is not written again, so that a second build is quick.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FACES = [
    "inference",
    "ppl_models",
    "ppl_models.datasets",
    "ppl_models.descriptions",
    *(
        f"inference.{name}"
        for name in (
            "plots", "report", "estimates", "estimator", "predictive", "inspection", "identifiability", "selection", "relations", "acdc", "causal", "comparison", "loo",
            "calibration", "uncertainty", "bootstrap", "alignment", "metrics", "studies", "programs", "base",
        )
    ),
]  # fmt: skip
SECTIONS = {
    "guide": ("Guide", "From the first fit to the last doubt.",
              ["chooser", "glossary", "reading_a_report", "messages", "skills", "own_program", "posteriors", "command_line", "scaling", "data_sets"]),
    "models": ("Models", "What there is, what it looks like, and what was published.", ["families", "gallery", "papers", "beside_others"]),
    "development": ("Development", "How the library is built, and how to add to it.", ["architecture", "CONTRIBUTING", "CHANGELOG"]),
}  # fmt: skip
FIRST = {  # the names that a user needs first, by what one does with them
    "Fit a model": ["inference.fit", "inference.Fit", "inference.EM", "inference.NUTS", "inference.RowBlocks"],
    "Models": [
        "ppl_models.Mixture", "ppl_models.LatentAttributeModel", "ppl_models.DeepDiscreteEncoder", "ppl_models.NoisyOr", "ppl_models.HiddenMarkov",
        "ppl_models.OptionsHMM", "ppl_models.PoissonFactorization", "ppl_models.FactorAnalysis", "ppl_models.Blocks",
    ],
    "Questions to a fit": [
        "inference.Fit.summary", "inference.Fit.report", "inference.Fit.posterior_frame", "inference.Fit.predict", "inference.Fit.save",
        "inference.identifiability.check_identifiability", "inference.uncertainty.standard_errors", "inference.selection.select_components",
        "inference.compare", "inference.loo.loo", "inference.relations.regress_classes",
    ],
}  # fmt: skip
SAME_FOLDER = {"](../notebooks)": "](notebooks/index.md)", "](../": "](", "](docs/": "](", "](changes/README.md)": "](CHANGELOG.md)", "](notebooks)": "](notebooks/index.md)"}
SMALL = (
    "*What the cells gave is shown as the tests ran them: with the small sizes of the first cell, chosen for speed. Run the notebook itself for sizes worth reading, or "
    "build this site with `make docs DOCS_ARGS=--execute`.*"
)
MOST_LINES, MOST_COLUMNS = 60, 9  # of a table of a benchmark


def placed(text: str) -> str:
    """The page with its links as they are where notebooks and pages lie in one folder."""
    for old, new in SAME_FOLDER.items():
        text = text.replace(old, new)
    return text


def linked(text: str) -> str:
    """The page with the models that its tables name as links into the reference."""
    names = "|".join(sorted(dir(importlib.import_module("ppl_models")), key=len, reverse=True))
    named = re.compile(rf"`({names})(\(\))?`")
    lines = text.splitlines(keepends=True)
    return "".join(named.sub(r"{py:obj}`\1\2 <ppl_models.\1>`", line) if line.startswith("|") else line for line in lines)


def toctree(pages: list[str], depth: int = 1) -> str:
    return "\n".join(["```{toctree}", f":maxdepth: {depth}", "", *pages, "```", ""])


def start_page(readme: str) -> str:
    """The README up to its links, which the site's own lists replace."""
    head, _, _ = readme.partition("## Read on")
    hidden = toctree(["start", "guide", "notebooks/index", "models", "api/index", "development"]).replace(":maxdepth: 1", ":hidden:")
    return f"{head}## Read on\n\n[Start here](start.md), look for your data in [the chooser](chooser.md), or open [a notebook](notebooks/index.md).\n\n{hidden}"


def api_pages() -> dict[str, str]:
    """For every public module a page: its names in a table, and below it their docstrings, where no page before has them."""
    out: dict[str, str] = {}
    shown: dict[int, str] = {}  # where each class or function was first
    for face in FACES:
        module = importlib.import_module(face)
        named = {name: getattr(module, name) for name in sorted(dir(module), key=str.lower)}
        named = {name: value for name, value in named.items() if inspect.isclass(value) or inspect.isfunction(value)}
        elsewhere = [name for name, value in named.items() if shown.setdefault(id(value), face) != face]
        lines = [f"# {face}", "", "```{eval-rst}", f".. currentmodule:: {face}", "", ".. autosummary::", ""]
        lines += [f"   {shown[id(value)]}.{name}" if name in elsewhere else f"   {name}" for name, value in named.items()]
        members = [f"   :members: {', '.join(own)}", "   :imported-members:"] if (own := [name for name in named if name not in elsewhere]) else []
        lines += ["", f".. automodule:: {face}", *members]
        out[f"api/{face}.md"] = "\n".join([*lines, "```", ""])
    return out


def reference_page() -> str:
    """The reference's first page: the names that a user needs first, each with its summary, and then the modules."""
    lines = ["# Reference", "", "The names to begin with. Each leads to its docstring."]
    for title, names in FIRST.items():
        lines += ["", f"## {title}", "", "```{eval-rst}", ".. autosummary::", "", *(f"   {name}" for name in names), "```"]
    words = "`inference` has `fit` and the engines, `ppl_models` the models; the other modules answer questions about a fit."
    return "\n".join([*lines, "", "## All modules", "", f"Every public name. {words}", "", toctree(FACES)])


def result_tables(folder: Path) -> str:
    """A table of the lines of each file that ``make bench`` left."""
    out = []
    for path in sorted(folder.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        plain = [{key: value for key, value in line.items() if key != "benchmark" and not isinstance(value, dict | list)} for line in lines]
        columns = list(dict.fromkeys(key for line in plain for key in line))[:MOST_COLUMNS]
        rows = ["| " + " | ".join("" if line.get(key) is None else str(line[key]) for key in columns) + " |" for line in plain[:MOST_LINES]]
        more = [f"\n{len(plain) - MOST_LINES} more lines are in the file."] if len(plain) > MOST_LINES else []
        out += [f"### {path.stem}", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *rows, *more, ""]
    return "\n".join(["", "## What was measured here", "", *out]) if out else ""


def papers_page() -> Any:
    """The module that draws the page of papers, which lies with the benchmarks."""
    if str(ROOT / "benchmarks") not in sys.path:
        sys.path.insert(0, str(ROOT / "benchmarks"))
    return importlib.import_module("papers.page")


def beside_others(file: Path) -> str:
    """The table of peers: rows that reach less first, then by the ratio of the seconds."""
    if not file.exists():
        return ""
    lines = [line for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()) if "skipped" not in line]
    lines.sort(key=lambda line: (line["verdict"] != "ours worse", -line["ratio"]))
    rows = [
        f"| {line['job']} | {line['data']} | {line['peer']} {line['peer_version']} | {line['measure']} | {line['ours']:,.1f} | {line['theirs']:,.1f} | {line['verdict']} "
        f"| {line['ours_s']:g} | {line['theirs_s']:g} | {line['ratio']:g} |"
        for line in lines
    ]
    head = "| Fit | Data | Peer | Measure | Ours reached | Theirs | Verdict | Ours, s | Theirs, s | Ratio |\n|---|---|---|---|---|---|---|---|---|---|\n"
    return f"\n## The table\n\n{head}" + "\n".join(rows) + "\n"


def executed(page: Path, folder: Path) -> str | None:
    """A notebook with what its cells gave when the tests ran it, as JSON; None where they did not, or where its text has changed since."""
    import jupytext
    import nbformat

    kept = folder / f"{page.stem}.ipynb"
    if not kept.exists():
        return None
    notebook, now = nbformat.read(kept, as_version=4), jupytext.read(page)
    if [_text(cell) for cell in notebook.cells] != [_text(cell) for cell in now.cells]:
        return None
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(SMALL, id="sizes"))
    return str(nbformat.writes(notebook))


def _text(cell: Any) -> str:
    """Of a cell of a notebook; the sizes, which the tests make small, do not count."""
    return "" if "parameters" in cell.metadata.get("tags", []) else str(cell.source).strip()


def pages(ran: Path | None = None) -> dict[str, str]:
    """Every page of the site by its path; ran: the folder of notebooks that the tests ran."""
    out = {path.name: linked(placed(path.read_text(encoding="utf-8"))) for path in DOCS.glob("*.md")}
    out |= {name: placed((ROOT / name).read_text(encoding="utf-8")) for name in ("CONTRIBUTING.md", "CHANGELOG.md")}
    out |= {f"notebooks/{path.name}": path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.md")}
    found = {} if ran is None else {path.stem: executed(path, ran) for path in (ROOT / "notebooks").glob("*.md")}
    for name, text in found.items():
        if text is not None:
            del out[f"notebooks/{name}.md"]
            out[f"notebooks/{name}.ipynb"] = text
    out |= api_pages()
    out |= {f"{key}.md": f"# {title}\n\n{words}\n\n{toctree(names)}" for key, (title, words, names) in SECTIONS.items()}
    out["index.md"] = start_page(linked(placed((ROOT / "README.md").read_text(encoding="utf-8"))))
    out["papers.md"] += papers_page().page()
    out["beside_others.md"] += beside_others(ROOT / "benchmarks" / "peers.jsonl")
    out["papers.md"] += result_tables(ROOT / "benchmarks" / "results")
    out["notebooks/index.md"] = "# Notebooks\n\nEach goes from data to an answer, with the checks on the way.\n\n" + toctree(
        sorted(Path(path).stem for path in out if path.startswith("notebooks/"))
    )
    out["api/index.md"] = reference_page()
    moved = [name for name, text in found.items() if text is not None]
    return {path: _relinked(text, moved) for path, text in out.items()}


def _relinked(text: str, moved: list[str]) -> str:
    """The page with its links to notebooks as they are where the tests ran these."""
    for name in moved:
        text = text.replace(f"notebooks/{name}.md)", f"notebooks/{name}.ipynb)").replace(f"]({name}.md)", f"]({name}.ipynb)")
    return text


def lay_out(source: Path, ran: Path | None = None) -> None:
    """Write the pages that changed, and take away those that are gone."""
    wanted = pages(ran)
    for path in [*source.rglob("*.md"), *source.rglob("*.ipynb")]:
        if str(path.relative_to(source)) not in wanted:
            path.unlink()
    for name, text in wanted.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for name in ("conf.py", "build.py"):
        shutil.copy2(DOCS / name, source / name)
    for name in ("pictures", "static"):
        shutil.copytree(DOCS / name, source / name, dirs_exist_ok=True)
    papers_page().draw(source / "pictures" / "papers")


def main() -> int:
    from sphinx.cmd.build import build_main

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--execute", action="store_true", help="run the notebooks at their full size; what they gave is kept for the next time")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="folder of the site")
    told = parser.parse_args()
    lay_out(told.out / "source", None if told.execute else ROOT / "build" / "notebooks")
    sys.path.insert(0, str(told.out / "source"))
    settings = ["-D", f"nb_execution_mode={'cache' if told.execute else 'off'}", "-D", f"nb_execution_cache_path={told.out / 'cache'}"]
    return build_main(["-W", "--keep-going", "-q", *settings, "-d", str(told.out / "doctrees"), str(told.out / "source"), str(told.out / "site")])


if __name__ == "__main__":
    sys.exit(main())
