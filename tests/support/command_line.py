"""The command line in this process, and a table for it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from inference.cli.main import app

NAMES = ["calm", "brave", "loud", "kind", "neat", "warm & <b>"]


def run(*arguments: object):
    """The command line in this process: exit code, standard output, standard error."""
    return CliRunner().invoke(
        app, [str(argument) for argument in arguments], catch_exceptions=False
    )


def answers(num_rows: int = 150, seed: int = 0) -> pd.DataFrame:
    """Six yes-no items of two latents, three each."""
    rng = np.random.default_rng(seed)
    latents = rng.random((num_rows, 2)) < 0.5
    probability = np.where(np.repeat(latents, 3, axis=1), 0.9, 0.1)
    return pd.DataFrame((rng.random((num_rows, 6)) < probability).astype(int), columns=NAMES)
