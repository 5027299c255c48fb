"""Files that may be at hand."""

from __future__ import annotations

import pytest

from ppl_models.datasets import local_file


def needs(name):
    return pytest.mark.skipif(local_file(name) is None, reason=f"{name} is not in the folder PPL_MODELS_DATA names")
