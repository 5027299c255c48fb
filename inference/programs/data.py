"""A model's data, by its own rules, or as its program takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from inference.programs.arguments import Call
from inference.programs.global_state import isolated, quiet
from inference.programs.wrap import first_run
from ppl_models.data.frames import as_frame, column_names, is_frame
from ppl_models.data.sparse import is_sparse, kind_of
from ppl_models.data.tables import Columns, as_columns, as_tensors, checks_data


def checked(
    model: Callable[..., Any], data: Any, for_fit: bool = False, takes_sparse: bool = False
) -> tuple[Any, tuple[str, ...]]:
    """Data as tensors, by the model's own rules where it has them, and the item names.

    The names are () where it is no table.

    A data frame given to a program without rules is a tensor where the program takes one, and a
    table of named columns where it reads them by name: which of the two is found out by a run.

    Args:
        model: the program; data: what it takes.
        for_fit: whether a fit is to follow, which asks more of the data than a question to a fit.
        takes_sparse: whether the caller can do with a sparse table.

    Raises:
        ValueError: if the model refuses the data, or for a sparse table where one is of no use.
    """
    data = as_frame(data)
    if not checks_data(model):
        return _as_taken(model, model.laid_out(data) if isinstance(model, Call) else data)
    if is_sparse(data) and not takes_sparse:
        raise ValueError(
            f"data: a dense table was expected here, got {kind_of(data)}: fit, activities and"
            " log-likelihoods of rows take sparse counts; give data.toarray(), or some of the rows,"
            " data[:1000].toarray()"
        )
    tensors, names = model.check_data(data) if for_fit else model.check_data(data, for_fit=False)  # type: ignore[attr-defined]
    return tensors, tuple(names)


class _Watched(Columns):
    """A table that notes which columns are read, one by one or all."""

    def __init__(self, columns: Columns) -> None:
        self.__dict__.update(columns.__dict__)
        self.read: set[str] = set()

    def map(self, change: Callable[[Tensor], Tensor]) -> Columns:
        changed = _Watched(super().map(change))
        changed.read = self.read  # one list for both
        return changed

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            self.read.add(key)
        return super().__getitem__(key)


def _as_taken(model: Callable[..., Any], data: Any) -> tuple[Any, tuple[str, ...]]:
    """Data as the program takes it, and the names of the columns that it reads.

    A data frame, alone or as the only one among the arguments of a :class:`Call`, is a tensor where
    the program runs with one, else columns by name, else the frame itself.

    Raises:
        Exception: what the program raised, where it runs with none of them.
    """
    by_argument = (
        {name: as_frame(part) for name, part in data.items()} if isinstance(model, Call) else {}
    )
    framed = [name for name, part in by_argument.items() if is_frame(part)]
    if not (is_frame(data) or len(framed) == 1):
        return as_tensors(by_argument or data), ()
    frame = by_argument.pop(framed[0]) if framed else data

    def whole(taken: Any) -> Any:
        return as_tensors({**by_argument, framed[0]: taken}) if framed else taken

    columns = as_columns(frame)
    watched = _Watched(columns)
    ways: list[Any] = [watched, frame] if columns.left_out else [as_tensors(frame), watched, frame]
    errors: list[Exception] = []
    for taken in ways:
        try:
            with isolated(0), quiet():
                first_run(model, (whole(taken),))
            names = column_names(frame)
            if taken is not watched:
                return whole(taken), names
            return whole(columns), tuple(name for name in names if name in watched.read) or names
        except Exception as error:  # noqa: BLE001 (the program's own, whatever it is)
            errors.append(error)
    if (
        isinstance(errors[-2], ValueError) and watched.read
    ):  # read by name, and one of the columns is not as it should be
        raise errors[-2]
    raise errors[-1 if watched.read else 0]
