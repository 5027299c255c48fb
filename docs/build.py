"""Builds the documentation site: ``python docs/build.py``, or ``make docs``; ``--execute`` first runs the notebooks whose text has changed, at their full size,
and keeps what they gave beside their text, ``notebooks/*.ipynb``: that is what the site and the repository show.

Pages are laid out in ``build/docs/source``: those of this folder, the notebooks, a start page made of the README, the reference of every public module, and a
table of each file that a benchmark left in ``benchmarks/results``. The page of papers is drawn from the records in ``benchmarks/papers/results``. A page whose text is the same is not written again, so that a second build is quick.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import inspect
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[a-z]*.md"))
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
FETCHED = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=\"(?:https?:)?//[^\"]*\"|<link[^>]*rel=\"(?:stylesheet|preload)\"[^>]*href=\"(?:https?:)?//[^\"]*\"")
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


def sections() -> dict[str, str]:
    """The lists of pages that the README ends with, each with its title, by the name of its page."""
    _, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Read on\n")
    return {part.split("\n")[0].lower(): f"# {part}" for part in rest.split("\n### ")[1:]}


def listed(text: str) -> list[str]:
    """The pages that a list leads to: the first link of each of its lines."""
    return re.findall(r"^- \[[^]]*\]\((?:docs/)?(\w+)\.(?:md|ipynb)\)", text, re.MULTILINE)


def section_page(text: str) -> str:
    """A list of pages, and the same pages for the bar of the site."""
    return f"{linked(placed(text))}\n{toctree(listed(text)).replace(':maxdepth: 1', ':hidden:')}"


def start_page(readme: str) -> str:
    hidden = toctree(["guide", "notebooks/index", "models", "api/index", "development"]).replace(":maxdepth: 1", ":hidden:")
    return f"{readme}\n{hidden}"


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


def beside_svi(file: Path) -> str:
    """The table of published programs: those whose SVI takes longest first, refusals and failures left out."""
    if not file.exists():
        return ""
    lines = [line for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()) if "skipped" not in line]
    lines.sort(key=lambda line: -line["ratio"])
    capped, other = "{below:,.2f} below after {cap_s:g} s", "settled {below:,.2f} below"
    rows = [
        f"| `{line['program']}` | {line['parameters']} | {line['ours_s']:g} | {line['svi_s']:g} | {line['ratio']:g} | {line['steps']:,} "
        f"| {'the same' if line['reached'] else (capped if line['capped'] else other).format(**line)} |"
        for line in lines
    ]
    head = "| Program | Parameters | EM, s | SVI, s | Ratio | Steps of SVI | SVI's end |\n|---|---|---|---|---|---|---|\n"
    return f"\n{head}" + "\n".join(rows) + "\n"


def published(file: Path) -> str:
    """The table of published programs: verdicts, log-likelihoods and their difference from Pyro's."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    head = "| Program | Source | Verdict | Log-likelihood | From Pyro's |\n|---|---|---|---|---|\n"
    return head + "\n".join(
        f"| `{line['program']}` | {line['source']} | taken, {line['engine']} | {line['log_likelihood']:.3f} | {line['from_pyro']:.0e} |"
        if line["verdict"] == "taken"
        else f"| `{line['program']}` | {line['source']} | {line['verdict']}: {line['sentence'].replace('|', ' ')} | | |"
        for line in lines
    )


def annotated(file: Path) -> str:
    """The table of models of annotators: estimates, errors and seconds beside NumPyro's NUTS."""
    rows = [
        f"| `{line['model']}` | {line['parameters']} | {line['engine']} | {line['seconds']:.0f} | {line['numpyro_seconds']:.0f} | {line['median_distance']:.2f} "
        f"| {line['distance']:.2f} | {line['spread']:.2f} | {line.get('k_hat', '')} | {line['switched']:.2f} | {line.get('r_hat', '')} |"
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines())
    ]
    head = (
        "| Model | Parameters | Engine | Seconds | NumPyro, s | Distance, median | Distance, largest | Ratio of errors | k-hat | Draws renamed | R-hat |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(rows)


def labelled(file: Path) -> str:
    """The table of labels: shares of rows classified correctly, with standard errors."""
    columns = ("unsupervised", "trusting", "stated", "supervised")
    rows = [
        f"| {line['family']} | {100 * line['labelled']:g} % | {100 * line['wrong']:g} % | "
        + " | ".join(f"{line[name]:.3f} ({line[name + '_se']:.3f})" if name in line else "" for name in columns)
        + " |"
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines())
    ]
    head = "| Model | Labelled | Of these wrong | No labels | Labels | Labels, error stated | All rows labelled |\n|---|---|---|---|---|---|---|\n"
    return head + "\n".join(rows)


def everyday(file: Path) -> str:
    """The table of everyday calls: seconds of the fit, its files and its page, before the work on pages and after it."""
    rows = [
        f"| {line['call'].replace('_', ' ')} | " + " | ".join(f"{line[f'before_{part}']:.1f} to {line[f'after_{part}']:.1f}" for part in ("fit", "files", "page")) + " |"
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines())
    ]
    return "| Call | Fit, s | Files, s | Page, s |\n|---|---|---|---|\n" + "\n".join(rows)


def on_device(file: Path) -> str:
    """The table of fits on a GPU beside the CPU of its machine."""
    rows = [
        f"| {line['job']} | {line['data'].replace('x', '×')} | {line['cpu_s']:.2f} | {line['cuda_s']:.2f} | {line['ratio']} | {line['distance']:.0e} |"
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines())
    ]
    return "| Fit | Rows | CPU, s | GPU, s | Ratio | Distance |\n|---|---|---|---|---|---|\n" + "\n".join(rows)


def shown(page: Path) -> str:
    """A notebook as JSON: with what its cells gave, where that is kept beside it and its text is the same."""
    import jupytext
    import nbformat

    now, kept = jupytext.read(page), page.with_suffix(".ipynb")
    if kept.exists():
        notebook = nbformat.read(kept, as_version=4)
        if [(cell.cell_type, cell.source) for cell in notebook.cells] == [(cell.cell_type, cell.source) for cell in now.cells]:
            now = notebook
    return str(nbformat.writes(now))


def execute(page: Path) -> Any:
    """A notebook, run at its full size."""
    import jupytext
    import nbclient

    notebook = jupytext.read(page)
    nbclient.NotebookClient(notebook, timeout=3600, kernel_name="python3", resources={"metadata": {"path": str(page.parent)}}).execute()
    return notebook


def keep(notebook: Any, page: Path) -> None:
    """Write what a notebook gave beside its text: pictures of 64 colours, no bars of progress, nothing that differs from run to run by itself."""
    import nbformat
    from PIL import Image

    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for data in (output.get("data", {}) for output in cell.get("outputs", [])):
            if "image/png" in data:
                small = io.BytesIO()
                Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(small, "png", optimize=True)
                data["image/png"] = base64.b64encode(small.getvalue()).decode()
    nbformat.write(notebook, page.with_suffix(".ipynb"))


def pages() -> dict[str, str]:
    """Every page of the site by its path."""
    out = {path.name: linked(placed(path.read_text(encoding="utf-8"))) for path in DOCS.glob("*.md")}
    out |= {name: placed((ROOT / name).read_text(encoding="utf-8")) for name in ("CONTRIBUTING.md", "CHANGELOG.md")}
    out |= {f"notebooks/{path.stem}.ipynb": shown(path) for path in NOTEBOOKS}
    out |= api_pages()
    out |= {f"{name}.md": section_page(text) for name, text in sections().items()}
    out["notebooks/index.md"] = section_page((ROOT / "notebooks" / "README.md").read_text(encoding="utf-8"))
    out["index.md"] = start_page(linked(placed((ROOT / "README.md").read_text(encoding="utf-8"))))
    out["papers.md"] += papers_page().page()
    out["beside_others.md"] += beside_others(ROOT / "benchmarks" / "peers.jsonl")
    table = published(ROOT / "benchmarks" / "published_programs.jsonl")
    out["own_program.md"] = out["own_program.md"].replace("<!-- published_programs.jsonl -->", table)
    table = annotated(ROOT / "benchmarks" / "annotation.jsonl")
    out["own_program.md"] = out["own_program.md"].replace("<!-- annotation.jsonl -->", table)
    table = labelled(ROOT / "benchmarks" / "labels.jsonl")
    out["known.md"] = out["known.md"].replace("<!-- labels.jsonl -->", table)
    out["scaling.md"] = out["scaling.md"].replace("<!-- pages.jsonl -->", everyday(ROOT / "benchmarks" / "pages.jsonl"))
    out["scaling.md"] = out["scaling.md"].replace("<!-- device.jsonl -->", on_device(ROOT / "benchmarks" / "device.jsonl"))
    out["own_program.md"] += beside_svi(ROOT / "benchmarks" / "svi_programs.jsonl")
    out["papers.md"] += result_tables(ROOT / "benchmarks" / "results")
    out["api/index.md"] = reference_page()
    return out


def lay_out(source: Path) -> None:
    """Write the pages that changed, and take away those that are gone."""
    wanted = pages()
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
    parser.add_argument("--execute", action="store_true", help="run the notebooks whose text has changed, at their full size, and keep what they gave")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="folder of the site")
    told = parser.parse_args()
    for page in NOTEBOOKS if told.execute else ():
        if "\"output_type\"" not in shown(page):
            keep(execute(page), page)
    lay_out(told.out / "source")
    sys.path.insert(0, str(told.out / "source"))
    failed = build_main(["-W", "--keep-going", "-q", "-d", str(told.out / "doctrees"), str(told.out / "source"), str(told.out / "site")])
    fetched = [f"{page}: {call}" for page in sorted((told.out / "site").rglob("*.html")) for call in FETCHED.findall(page.read_text(encoding="utf-8"))]
    if fetched:
        print("a page fetches something from the network:", *fetched, sep="\n", file=sys.stderr)
    return failed or int(bool(fetched))


if __name__ == "__main__":
    sys.exit(main())
