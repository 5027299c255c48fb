"""The console script: every command module registers its command on the app, which knows none of them."""

# ruff: noqa: I001  (the order of the imports is that of the commands in --help)
from inference.cli import (  # noqa: F401  (each registers its command)
    fit_mixture,
    fit_pmf,
    fit_attributes,
    fit_dde,
    fit_noisy_or,
    fit_hmm,
    fit_options,
    fit_inclass,
    predict,
    report,
    compare,
    demo,
    select_pmf,
    select_mixture,
    select_dde,
    study,
    causal,
)
from inference.cli.app import app, interrupted_once

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line, once everything is loaded; ``ppl_models_command`` loads it."""
    with interrupted_once():
        app()
