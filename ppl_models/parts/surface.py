"""Public names of a module, as ``dir`` lists them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType


def promised(module: str) -> Callable[[], list[str]]:
    """Return the ``__dir__`` of a public module: ``__all__``, or else what its face imports."""

    def names() -> list[str]:
        found = vars(sys.modules[module])
        return sorted(
            found.get("__all__")
            or (
                name
                for name, value in found.items()
                if not name.startswith("_") and not isinstance(value, ModuleType)
            )
        )

    return names
