"""The console script: every command module registers its command on the app, which knows none of
them.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# ruff: noqa: I001  (the order of the imports is that of the commands in --help)
from inference.cli import families, select, results, study  # noqa: F401  (each registers commands)
from inference.cli.app import app, pressed


AGAIN = 0.05  # seconds after which an interrupt that was dropped is raised again


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Let Ctrl-C raise one KeyboardInterrupt: again where Python drops it, as in a finaliser; and
    show no errors of objects that it left half made.
    """

    def raised(number: int, frame: FrameType | None) -> None:
        if not pressed.is_set():
            pressed.set()
            raise KeyboardInterrupt

    def dropped(what: sys.UnraisableHookArgs) -> None:
        if what.exc_type is KeyboardInterrupt:
            pressed.clear()
            threading.Timer(AGAIN, _thread.interrupt_main).start()
        elif not pressed.is_set():
            shown(what)

    shown, sys.unraisablehook = sys.unraisablehook, dropped
    listens = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # what a shell runs in the background does not
    if listens:
        signal.signal(signal.SIGINT, raised)
    try:
        yield
    finally:
        if listens:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is written, and the interpreter ends


def main() -> None:
    """Run the command line, once everything is loaded; ``ppl_models_command`` loads it."""
    with interrupted_once():
        app()
