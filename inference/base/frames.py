"""pandas, imported when a table is first made: records with tables load without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["pd"]

if TYPE_CHECKING:
    import pandas as pd
else:

    class _FirstUse:
        def __getattr__(self, name: str) -> Any:
            import pandas

            return getattr(pandas, name)

    pd = _FirstUse()
