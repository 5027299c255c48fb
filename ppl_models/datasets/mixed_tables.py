"""Real tables whose columns are of several kinds: measurements beside answers of a few values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppl_models.datasets.timss import load_timss
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_size

MOST_TIMSS_ITEMS = 29


@shows_briefly
@dataclass(frozen=True, eq=False)
class MixedTable:
    """A complete table of mixed columns.

    Args:
        data: (N, J) float64; columns of few values hold 0, 1, 2, ...
        names: of the columns.
        num_values: for each column how many values it may take; 0 for a measurement.
    """

    data: np.ndarray
    names: tuple[str, ...]
    num_values: tuple[int, ...]


def load_diabetes_table() -> MixedTable:
    """Load 442 patients with diabetes.

    Sex, six measurements of blood serum, age, body mass, blood pressure, and progress after a year.

    Ships with scikit-learn. Sex is 0 or 1, all others are measurements in their own units.

    Source: B. Efron, T. Hastie, I. Johnstone and R. Tibshirani (2004), Least angle regression,
    doi:10.1214/009053604000000067.
    """
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    data = np.column_stack([bunch.data, bunch.target]).astype(np.float64)
    names = (*(str(name) for name in bunch.feature_names), "progression")
    sex = names.index("sex")
    data[:, sex] -= 1
    return MixedTable(data, names, tuple(2 if j == sex else 0 for j in range(len(names))))


def load_timss_table(num_items: int = 6) -> MixedTable:
    """Load answers and log times of 435 students on the first items of TIMSS 2019.

    See :func:`load_timss`.

    Args:
        num_items: each brings two columns, the answer (0 or 1) and the natural logarithm of its
            seconds.

    Raises:
        ValueError: for more than 29 items, or another file.
        FileNotFoundError: if the file is not in the folder ``PPL_MODELS_DATA``.
    """
    check_size("load_timss_table", "num_items", num_items)
    if num_items > MOST_TIMSS_ITEMS:
        raise ValueError(
            f"load_timss_table: num_items must be at most {MOST_TIMSS_ITEMS}, got {num_items}"
        )
    table = load_timss()
    answers = np.asarray(table.correct)[:, :num_items]
    data = np.concatenate([answers, table.log_seconds[:, :num_items]], 1)
    names = tuple(f"{what} {j + 1}" for what in ("answer", "log time") for j in range(num_items))
    return MixedTable(data, names, (2,) * num_items + (0,) * num_items)
