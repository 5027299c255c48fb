"""Console script ``ppl-models``: Ctrl-C ends it in one line while the packages still load."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from types import FrameType

__all__ = ["main"]

INTERRUPTED = 130


def main() -> None:
    """Entry point of the console script."""
    listens = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # what a shell runs in the background does not
    if listens:
        signal.signal(signal.SIGINT, _leave)
    if importlib.util.find_spec("typer") is None:
        sys.exit(
            "ppl-models: the command line needs typer, which is not installed:"
            ' pip install "ppl-models[cli]"'
        )
    from inference.cli.main import main as run

    if listens:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: an exception could be changed or swallowed by what is being imported."""
    os.write(2, b"interrupted before anything was done\n")
    os._exit(INTERRUPTED)
