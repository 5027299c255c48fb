"""Data frames of any library (pandas, polars, PyArrow, modin, ...) as one kind, through narwhals."""

from __future__ import annotations

from collections import Counter
from typing import Any

__all__ = ["as_frame", "column_names"]

OWN = ("builtins", "inference", "numpy", "pandas", "ppl_models", "torch")  # what these define is never another library's frame


def as_frame(data: Any) -> Any:
    """A data frame of another library as one of pandas; all other data as they are.

    Raises:
        ValueError: for two columns of one name, or a frame that has not been computed yet.
    """
    if type(data).__module__.partition(".")[0] not in OWN and hasattr(type(data), "columns"):
        data = _as_pandas(data)
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        column_names(data)
    return data


def column_names(frame: Any) -> tuple[str, ...]:
    """The names of a frame's columns.

    Raises:
        ValueError: naming a name that two columns have.
    """
    names = tuple(str(name) for name in frame.columns)
    _refuse_copies(names)
    return names


def _as_pandas(data: Any) -> Any:
    import narwhals.stable.v1 as nw

    if isinstance(getattr(data, "column_names", None), list):  # a table of Arrow, which may have several columns of one name
        _refuse_copies(data.column_names)
    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        name = f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"
        raise ValueError(f"data: rows were expected, got a {name}, which has not been computed yet; call its collect() or compute() first")
    return frame.to_pandas() if isinstance(frame, nw.DataFrame) else data


def _refuse_copies(names: Any) -> None:
    copies = [name for name, count in Counter(map(str, names)).items() if count > 1]
    if copies:
        raise ValueError(f"data: columns of different names were expected, got several named {', '.join(map(repr, copies[:5]))}: rename or drop all but one")
