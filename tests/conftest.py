"""What tests everywhere may ask for."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

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


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``data(*files)`` where one of its files is absent; ``-m data`` runs those
    tests alone.
    """
    for marker in item.iter_markers("data"):
        for name in marker.args:
            if local_file(name) is None:
                pytest.skip(f"{name} is not in the folder PPL_MODELS_DATA names")
