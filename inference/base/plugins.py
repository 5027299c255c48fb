"""Files of a folder that register themselves: what kinds of description say better, found without a
list of them.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil


@functools.cache
def load_modules(package: str) -> None:
    """Import every module of a package, once."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
