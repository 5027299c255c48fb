"""Arguments of a program: data by name, and settings that are no data.

The rest of the library knows programs of one argument. :class:`Call` is the program of one argument
that stands for one of several, or of none: its data are a dict by the names of the arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ppl_models.data.frames import as_frame, column_names, is_frame
from ppl_models.data.tables import checks_data


class Call:
    """Program of any arguments as a program of one: its data, by argument.

    Args:
        program: the user's program.
        settings: by argument, what is no data and stays the same: sizes, options, functions.
    """

    def __init__(self, program: Callable[..., Any], settings: Mapping[str, Any]) -> None:
        self.program, self.settings = program, dict(settings)
        self.__name__, self.__doc__ = program_name(program), inspect.getdoc(program)

    def __call__(self, data: Mapping[str, Any]) -> Any:
        named = {**data, **self.settings}
        positional: list[Any] = []
        for parameter in parameters_of(self.program):
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                while (place := str(len(positional))) in named:
                    positional.append(named.pop(place))
            elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY and parameter.name in named:
                positional.append(named.pop(parameter.name))
        return self.program(*positional, **named)

    def laid_out(self, data: Any) -> dict[str, Any]:
        """Data by the names of the program's arguments.

        Args:
            data: a tuple in their order, a dict or a data frame by their names, the first of them
                alone, or None where the program holds its data itself.

        Raises:
            ValueError: for arguments that do not fit the program's signature, saying what it takes.
        """
        takes = _Signature.of(self.program, self.settings)
        if takes.by_name(data, least=1):
            columns = data if isinstance(data, dict) else as_frame(data)
            values = {str(name): columns[name] for name in columns if takes.has(str(name))}
        else:
            parts = data if isinstance(data, tuple) else () if data is None else (data,)
            names = takes.names + tuple(
                str(place) for place in range(len(takes.names), len(parts)) if takes.more
            )
            if len(parts) > len(names):
                raise ValueError(self._refusal(f"{len(parts)} of them"))
            values = dict(zip(names, parts, strict=False))
        if isinstance(data, dict) and len(takes.needed) > 1 and not takes.by_name(data, least=1):
            others = [str(name) for name in data if not takes.has(str(name))]
            raise ValueError(self._refusal(f"a dict with {', '.join(others)}, which are none"))
        if missing := [name for name in takes.needed if name not in values]:
            got = f"{', '.join(values)} alone" if values else "none of them"
            raise ValueError(f"{self._refusal(got)}: give {', '.join(missing)} too")
        return values

    def _refusal(self, got: str) -> str:
        given = f", {', '.join(self.settings)} as args or kwargs," if self.settings else ""
        return (
            f"data: the arguments of {self.__name__}{_signature(self.program)}{given} were"
            f" expected, as a tuple (x, y), a dict by name, or None of no argument, got {got}"
        )


@dataclass(frozen=True)
class _Signature:
    """Arguments of a program that are no settings.

    Args:
        names: of them; needed: of those without a default.
        more: whether further ones may follow, ``*args``; any_name: or come by any name.
    """

    names: tuple[str, ...]
    needed: tuple[str, ...]
    more: bool
    any_name: bool

    @classmethod
    def of(cls, program: Callable[..., Any], settings: Mapping[str, Any]) -> _Signature:
        kinds = [p.kind for p in parameters_of(program)]
        open_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = [
            p for p in parameters_of(program) if p.kind not in open_kinds and p.name not in settings
        ]
        return cls(
            tuple(p.name for p in parameters),
            tuple(p.name for p in parameters if p.default is inspect.Parameter.empty),
            *(kind in kinds for kind in open_kinds),
        )

    def has(self, name: str) -> bool:
        return self.any_name or name in self.names

    def by_name(self, data: Any, least: int = 2) -> bool:
        """Tell whether data are a dict or a frame by the names of arguments.

        Args:
            data: as the user gave it; least: names that make a dict one by name.
        """
        if isinstance(data, dict):
            enough = len(self.names) >= least or self.any_name or not data
            return enough and all(isinstance(name, str) and self.has(name) for name in data)
        data = as_frame(data) if len(self.needed) > 1 else None
        return is_frame(data) and set(self.needed) <= set(column_names(data))

    def takes_alone(self, data: Any) -> bool:
        """Tell whether data are the one argument of the program, as they are."""
        if data and self.by_name(data) if isinstance(data, dict) else self.by_name(data):
            return False
        if isinstance(data, tuple) and (len(self.names) > 1 or self.more):
            return False
        if len(self.needed) == 1:
            return True
        return data is not None and not self.needed and (bool(self.names) or self.more)


def call_of(
    model: Callable[..., Any],
    data: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Program as one of its data alone; itself where that is its only argument.

    Args:
        model: the program; data: as the user gave it, see :meth:`Call.laid_out`; rows that lie on
            disk are looked at where they are read.
        args: settings that follow the data; kwargs: settings by name.

    Raises:
        ValueError: for arguments that do not fit the program's signature.
    """
    kwargs = {} if kwargs is None else kwargs
    if not (isinstance(args, tuple | list) and isinstance(kwargs, Mapping)):
        raise ValueError(
            f"args, kwargs: a tuple and a dict were expected, got {type(args).__name__} and"
            f" {type(kwargs).__name__}"
        )
    is_own = callable(model) and not isinstance(model, type | Call) and not checks_data(model)
    if not is_own:
        if args or kwargs:
            raise ValueError(
                "args, kwargs: they are settings of a program of your own, and"
                f" {program_name(model)} takes its data alone"
            )
        return model
    settings = {**_named(model, data, args, kwargs), **kwargs}
    if not settings and _Signature.of(model, {}).takes_alone(data):
        return model
    call = Call(model, settings)
    if not hasattr(data, "block_rows"):
        call.laid_out(data)
    return call


def _named(
    model: Callable[..., Any], data: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings that follow the data, by the names of their arguments."""
    takes = _Signature.of(model, kwargs)
    if takes.by_name(data):
        names = [name for name in takes.names if name not in data]
    else:
        count = len(data) if isinstance(data, tuple) else int(data is not None)
        further = range(len(takes.names), count + len(args)) if takes.more else ()
        names = [*takes.names, *map(str, further)][count:]
    known = [p.name for p in parameters_of(model)]
    unknown = [name for name in kwargs if name not in known and not takes.any_name]
    if unknown or len(args) > len(names):
        got = f"kwargs {', '.join(map(repr, unknown))}" if unknown else f"{len(args)} args"
        raise ValueError(
            f"args, kwargs: settings of {program_name(model)}{_signature(model)} beside its data"
            f" were expected, got {got}"
        )
    return dict(zip(names, args, strict=False))


def program_name(model: Any) -> str:
    """Name of a program: of its function, or of its class."""
    model = model.func if isinstance(model, functools.partial) else model
    return str(getattr(model, "__name__", type(model).__name__))


def _signature(model: Callable[..., Any]) -> str:
    return f"({', '.join(map(str, parameters_of(model)))})"


def parameters_of(model: Callable[..., Any]) -> list[inspect.Parameter]:
    """Arguments of a program; of a network those of its ``forward``."""
    try:
        function = model.forward if isinstance(model, nn.Module) else model
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of a callable written in C
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]
