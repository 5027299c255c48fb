"""The command line in this process, and a table for it."""

from __future__ import annotations

import functools
from unittest.mock import patch

import click
import numpy as np
import pandas as pd
import typer.main
from typer.testing import CliRunner

from inference.cli.main import app

NAMES = ["calm", "brave", "loud", "kind", "neat", "warm & <b>"]


@functools.cache
def command() -> click.Command:
    """All commands with their options, which take longer to build than a wrong file to refuse."""
    return typer.main.get_command(app)


def run(*arguments: object):
    """The command line in this process: exit code, standard output, standard error."""
    words = [str(argument) for argument in arguments]
    with patch("typer.testing._get_command", lambda _: command()):
        return CliRunner().invoke(app, words, catch_exceptions=False)


def answers(num_rows: int = 150, seed: int = 0) -> pd.DataFrame:
    """Six yes-no items of two latents, three each."""
    rng = np.random.default_rng(seed)
    latents = rng.random((num_rows, 2)) < 0.5
    probability = np.where(np.repeat(latents, 3, axis=1), 0.9, 0.1)
    return pd.DataFrame((rng.random((num_rows, 6)) < probability).astype(int), columns=NAMES)
