"""Sphinx's settings; ``docs/build.py`` lays the pages out and runs it."""

from __future__ import annotations

import importlib
import re
from importlib import metadata
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

project = "ppl-models"
author = "The authors of ppl-models"
project_copyright = author
version = release = metadata.version("ppl-models")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
nb_ipywidgets_js: dict[str, Any] = {}  # which a reader's browser would fetch
nb_merge_streams = True
nb_execution_mode = "off"  # docs/build.py runs the notebooks

autosummary_generate = False
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_title = "ppl-models"
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": False, "show_prev_next": True, "header_links_before_dropdown": 6, "navbar_persistent": [], "navbar_end": ["search-button", "theme-switcher"]}

ROLE = re.compile(r":(class|func|meth|attr|mod):`(~?)([\w.]+)`")


def mathml(tex: str, block: bool = False) -> str:
    """The formula as browsers draw it by themselves, after spellings that docutils does not know are changed to those that it does."""
    tex = tex.replace(r"\dots", r"\ldots").replace(r"\texttt", r"\mathtt")
    tex = re.sub(r"\\([Bb]ig)m?(?![a-z])", r"\\\1l", tex)
    drawn = str(tex2mathml(re.sub(r"\\textstyle(\\[a-z]+)", r"{\\textstyle \1}", tex), as_block=block))
    return re.sub(r"(<msu[bp]>|<msubsup>)(\s*)<mo>", r'\1\2<mo stretchy="false">', drawn)  # a brace stays on its line


def formula(writer: Any, node: nodes.math | nodes.math_block) -> None:
    block = isinstance(node, nodes.math_block)
    try:
        drawn = mathml(node.astext(), block)
    except MathError as error:
        logging.getLogger(__name__).warning("%s: %s", error, node.astext(), location=node)
        drawn = ""
    writer.body.append(f'<div class="math">{drawn}</div>' if block else drawn)
    raise nodes.SkipNode


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
        if re.search(r"\.set_\w+_request$", name):  # scikit-learn's, whose links lead into its own pages
            lines[:] = lines[:1]
        lines[:] = [ROLE.sub(as_shown, line) for line in lines]

    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-docstring", shown)
