"""The console script: every command module registers its command on the app, which knows none of them."""

from inference.cli import (  # noqa: F401  (each registers its command)
    check,
    compare,
    demo,
    fit_dde,
    fit_noisy_or,
    fit_options,
    report,
    select_dde,
    select_pmf,
    study,
)
from inference.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the console script."""
    app()
