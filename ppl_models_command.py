"""The console script ``ppl-models``, beside the packages: while these load, which takes seconds, Ctrl-C ends it in one line."""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["main"]

INTERRUPTED = 130


def main() -> None:
    """Entry point of the console script."""
    listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # what a shell runs in the background does not
    if listens:
        signal.signal(signal.SIGINT, _leave)
    from inference.cli import main as run

    if listens:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: an exception would come out of whatever is being imported, changed or swallowed by it."""
    os.write(2, b"interrupted before anything was done\n")
    os._exit(INTERRUPTED)
