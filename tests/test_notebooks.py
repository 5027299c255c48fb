"""Every notebook runs from top to bottom, at a small size; what it gives at its own is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import jupytext
import nbclient
import nbformat
import pytest

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
SMALL = {
    "your_own_program.md": (
        "num_rows, num_sequences, num_persons = 120, 25, 40\ndraws = dict(num_chains=2,"
        " warmup_steps=40, num_samples=40)"
    ),
    "acdc.md": "num_rows, num_patients, largest, num_restarts = 2000, 60, 4, 2",
    "newsgroups.md": (
        "num_documents, num_words, latent_sizes, num_restarts, num_iterations = 300, 60, (4, 1),"
        " 1, 15"
    ),
    "response_times.md": "num_students, num_starts, num_replicates = 200, 2, 2",
    "deep_discrete_encoder.md": "num_rows = 300\nlatent_sizes = (5, 2)",
    "model_comparison.md": (
        "num_rows, num_test, num_folds = 120, 100, 2\ndraws = dict(num_chains=2, warmup_steps=30,"
        " num_samples=60)"
    ),
    "posterior_diagnostics.md": (
        "num_rows = 120\ndraws = dict(num_chains=2, warmup_steps=40, num_samples=60)"
    ),
    "noisy_or.md": (
        "num_rows, sizes, num_restarts, num_iterations, num_search_rows = 800, (6, 7), 2, 8, 300"
    ),
    "sparse_coding.md": (
        "num_rows, num_pairs, num_items, sparsity = 400, 3, 15, 2\nangle, noise = 10,"
        " 0.003\nnum_restarts, num_epochs = 2, 5"
    ),
    "independent_classifiers.md": (
        "num_rows, num_board, num_pairs = 800, 1200, 400\nnum_halves, num_epochs, num_restarts = 2,"
        " 10, 2\nnum_discriminator_epochs = 15"
    ),
    "latent_attributes.md": (
        "num_rows, num_graph_rows, num_students, num_starts, tolerance = 300, 500, 200, 1, 1e-5"
    ),
    "hidden_markov.md": "num_animals, num_steps = 3, 120",
    "twenty_tasks.md": "num_rows, num_steps, num_replicates = 200, 80, 6",
    "options_hmm.md": "num_sequences, num_steps = 25, 40\nchain_steps = 5000",
}


REAL = {
    "latent_attributes.md",
    "newsgroups.md",
    "response_times.md",
}  # on simulated rows without PPL_MODELS_DATA


FRESH = """
%reset -f
import sys
for module in list(sys.modules.values()):  # a warning of one notebook is shown by the next one too
    getattr(module, "__dict__", {}).get("__warningregistry__", {}).clear()
import matplotlib.pyplot, pyro
matplotlib.pyplot.close("all")
pyro.clear_param_store()
%reset -f
"""


@pytest.fixture(scope="module")
def execute() -> Iterator[Callable[[nbformat.NotebookNode], None]]:
    """Run notebooks one after the other in one kernel, whose imports take seconds; each begins
    without the names of those before.
    """
    client = nbclient.NotebookClient(nbformat.v4.new_notebook(), timeout=300, kernel_name="python3")
    client.km = client.create_kernel_manager()

    def run(notebook: nbformat.NotebookNode) -> None:
        for nb in (nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FRESH)]), notebook):
            client.nb = nb
            client.execute(cleanup_kc=False)

    yield run
    client._cleanup_kernel()


def test_every_notebook_is_listed():
    assert {path.name for path in NOTEBOOKS.glob("[a-z]*.md")} == set(SMALL)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.data if name in REAL else ()) for name in sorted(SMALL)],
)
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::RuntimeWarning"
)  # of the notebook client's own event loop
def test_runs(name, execute):
    notebook = jupytext.read(NOTEBOOKS / name)
    (parameters,) = [
        cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])
    ]
    parameters.source = SMALL[name]
    execute(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kinds = [output.output_type for cell in code for output in cell.outputs]
    assert "error" not in kinds
    pictures = sum(
        "image/png" in output.get("data", {}) for cell in code for output in cell.outputs
    )
    assert pictures >= 5
    text = "".join(
        output.text for cell in code for output in cell.outputs if output.output_type == "stream"
    )
    assert "refused:" in text
    assert "True" in text


@pytest.mark.parametrize("name", sorted(SMALL))
def test_what_is_kept_is_of_this_text(name):
    text, kept = jupytext.read(NOTEBOOKS / name), nbformat.read(_kept(name), as_version=4)
    assert [cell.source for cell in kept.cells] == [cell.source for cell in text.cells], (
        "run it anew: make docs DOCS_ARGS=--execute"
    )
    outputs = [output for cell in kept.cells for output in cell.get("outputs", [])]
    assert all(
        output.get("name") != "stderr" and output.output_type != "error" for output in outputs
    )
    sizes = [len(output.get("data", {}).get("image/png", "")) * 3 // 4 for output in outputs]
    assert sum(size > 0 for size in sizes) >= 5
    assert max(sizes) < 100_000  # bytes of a picture
    assert not re.search(
        r"/(home|root|tmp|work|Users)/|site-packages", _kept(name).read_text("utf-8")
    )


def _kept(name: str) -> Path:
    return (NOTEBOOKS / name).with_suffix(".ipynb")
