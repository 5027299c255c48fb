"""What tests everywhere may ask for."""

from __future__ import annotations

import base64
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from inference import EM
from ppl_models.datasets.fetch import local_file

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def unpainted() -> Iterator[None]:
    """Pictures are composed but not painted, which takes about a second each: for tests of words.

    Those of tests/plots, and tests/report/test_fit.py and test_kinds.py, are painted.
    """

    def save(figure: Figure, file: Any, **_: Any) -> None:
        if hasattr(file, "write"):
            file.write(PIXEL)
        else:
            Path(file).write_bytes(PIXEL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield


@pytest.fixture(scope="module")
def few_refits() -> Iterator[None]:
    """Shares of rows classified correctly come from few and short refits: for tests that look for
    other things on a page. tests/inspection/test_classification.py has them all.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference.inspection.classification.REPLICATES", 2)
        patch.setattr("inference.inspection.classification.CLASS_REPLICATES", (2, 2))
        patch.setattr("inference.inspection.classification.CLASS_REFIT", EM(max_iterations=10))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one zoo row stand together, after all others: a worker that has made the row's fit,
    program and sums by brute force is asked everything about it, and what workers share at the end
    of a run are small pieces.
    """

    def row_of(item: pytest.Item) -> str:
        row = getattr(item, "callspec", None) and item.callspec.params.get("row")  # type: ignore[attr-defined]
        return row.name if type(row).__name__ == "Row" else ""

    items.sort(key=row_of)


def pytest_collection_finish() -> None:
    """Exempt objects of imports and collection, which stay to the end, from the collector."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``data(*files)`` where one of its files is absent; ``-m data`` runs those
    tests alone.
    """
    for marker in item.iter_markers("data"):
        for name in marker.args:
            if local_file(name) is None:
                pytest.skip(f"{name} is not in the folder PPL_MODELS_DATA names")
