"""Sphinx's settings; ``docs/build.py`` lays the pages out and runs it."""

from __future__ import annotations

import importlib
import re
from importlib import metadata
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

project = "ppl-models"
author = "The authors of ppl-models"
project_copyright = author
version = release = metadata.version("ppl-models")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3
nb_merge_streams = True
nb_output_stderr = "remove"  # bars of progress
nb_execution_timeout = 3600  # seconds a cell
nb_execution_raise_on_error = True

autosummary_generate = False
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "pydata_sphinx_theme"
html_title = "ppl-models"
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": False, "show_prev_next": True, "header_links_before_dropdown": 6, "navbar_persistent": [], "navbar_end": ["search-button", "theme-switcher"]}

MERMAID = "https://cdn.jsdelivr.net/npm/mermaid@11/dist/mermaid.esm.min.mjs"  # as MathJax, fetched by the reader's browser
ROLE = re.compile(r":(class|func|meth|attr|mod):`(~?)([\w.]+)`")


class Mermaid(Directive):
    """A diagram that the reader's browser draws."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        text = "\n".join(self.content)
        script = f'<script type="module">import mermaid from "{MERMAID}"; mermaid.initialize({{startOnLoad: true}});</script>'
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return [nodes.raw("", f'<pre class="mermaid">{escaped}</pre>{script}', format="html")]


def public_paths(faces: list[str]) -> dict[str, str]:
    """Where the API pages show what a docstring names by the file that defines it."""
    paths: dict[str, str] = {}
    for face in faces:
        module = importlib.import_module(face)
        for name in dir(module):
            value = getattr(module, name)
            paths.setdefault(f"{getattr(value, '__module__', face)}.{name}", f"{face}.{name}")
    return paths


def setup(app: Any) -> None:
    from build import FACES

    paths = public_paths(FACES)

    def as_shown(match: re.Match[str]) -> str:
        role, short, target = match.groups()
        parts = target.split(".")
        for cut in range(len(parts), 0, -1):
            found = paths.get(".".join(parts[:cut]))
            if found is not None:
                return f":{role}:`{short}{'.'.join([found, *parts[cut:]])}`"
        return match.group()

    def shown(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
        lines[:] = [ROLE.sub(as_shown, line) for line in lines]

    app.add_directive("mermaid", Mermaid)
    app.connect("autodoc-process-docstring", shown)
