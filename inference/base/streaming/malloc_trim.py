"""Memory that freed rows leave with the allocators, given back between blocks: else a fit may hold
many blocks of which it uses none.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any


def give_back() -> None:
    """Give the system what nobody uses, of the C library where it can (glibc's heap keeps holes
    between small objects) and of Arrow where it is at work.
    """
    trim = _trim()
    if trim is not None:
        trim(0)
    arrow: Any = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()


@functools.cache
def _trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
