"""A tiny paper: means of normal draws, whose published numbers are near, far, drawn and doubted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from papers.cells import Axes, Cell, Setting, Study, Table, repeated

NEAR, FAR = 0.0, 3.0


def replicate(mean: float, seed: int, runs: int = 1, fails: bool = False) -> Mapping[str, Any]:
    """Normal draws with variance 1, and whether they are positive."""
    if fails:
        raise RuntimeError("the fit broke")

    def one(seed: int) -> dict[str, float]:
        value = float(np.random.default_rng([seed, 7]).normal(mean))
        return {"value": value, "positive": int(value > 0)}

    return repeated(one, runs, seed) if runs > 1 else one(seed)


def setting(
    mean: float, seconds: float = 0.1, replicates: int = 20, version: int = 1, **more: Any
) -> Setting:
    file = more.pop("file", None)
    return Setting("tiny", {"mean": mean, **more}, replicates, seconds, version, file=file)


def study(*cells: Cell, name: str = "tiny") -> Study:
    """A study of one table."""
    axes = Axes("mean", "value", "The line rises.", log_x=False)
    return Study(name, "Tiny (2026)", "As it is.", (Table("1", "means", cells, axes),), replicate)


def cell(published: float | None, own: Setting, **more: Any) -> Cell:
    """A cell by the paper's protocol, in the column of its setting's mean."""
    column = str(own.arguments["mean"])
    return Cell("row", column, "value", published, {"paper": own}, replicates=20, **more)
