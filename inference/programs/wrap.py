"""Wrapped user program: dtype of the data, missing entries masked, lines known."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.overrides import TorchFunctionMode

from inference.programs.global_state import in_dtype
from ppl_models.data.tables import checks_data, floating_dtype
from ppl_models.parts.item_response import ItemResponse

CHOICES = (
    "Boolean value of Tensor",
    "converted to Scalar",
    "converted to Python scalars",
    "only integer tensors of a single element",
    "can be converted to an index",
)
CLASHES = (
    "same dtype",
    "expected scalar type",
    "dtype mismatch",
    "must have the same dtype",
    "should have the same dtype",
)


class _MissingEntries(Messenger):
    """Mask NaN entries of observed sites, filled with a valid value.

    A distribution of whole vectors cannot lose one entry of them; the libraries' own distributions
    of items know NaN themselves.
    """

    def _pyro_sample(self, msg: Any) -> None:
        value, fn = msg["value"], msg["fn"]
        if not (msg["is_observed"] and isinstance(value, Tensor) and value.is_floating_point()):
            return
        missing = value.isnan()
        if not missing.any() or _knows_nan(fn):
            return
        vectors = missing.reshape(*missing.shape[: missing.dim() - fn.event_dim], -1)
        hidden, whole = vectors.any(-1), ~vectors.any(-1)
        if bool((hidden & ~vectors.all(-1)).any()):
            raise ValueError(
                f"observed site {msg['name']!r} holds vectors of which some entries are NaN, and"
                " its distribution is one of whole vectors: give every column its own inside a"
                " plate, or leave these rows out"
            )
        msg["value"] = torch.where(
            missing, value[whole][0] if whole.any() else _inside(fn, value), value
        )
        msg["mask"] = whole if msg["mask"] is None else whole & msg["mask"]


def _inside(fn: Any, like: Tensor) -> Tensor:
    """Some value of the distribution's support, for a site of which nothing is seen."""
    for number in (0.0, 1.0, 0.5):
        filled = torch.full_like(like, number)
        if bool(fn.support.check(filled).all()):
            return filled
    drawn: Tensor = fn.sample().detach()
    return drawn.expand(like.shape) if drawn.dim() <= like.dim() else like


def _knows_nan(fn: Any) -> bool:
    while not isinstance(fn, ItemResponse) and hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return isinstance(fn, ItemResponse)


class _Widening(TorchFunctionMode):
    """Widen numbers of a narrower dtype than the program's, wherever they are used.

    Without that a matrix product of two dtypes is an error, and a float32 vector times a float64
    number is a float32 vector.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        dtype = torch.get_default_dtype()
        if func is Tensor.float:
            return args[0].to(dtype)
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__", "__setitem__") or (
            name.endswith("_") and not name.endswith("__")
        ):  # the tensor itself is meant
            return func(*args, **kwargs)
        return func(
            *(_widened(value, dtype) for value in args),
            **{key: _widened(value, dtype) for key, value in kwargs.items()},
        )


def _widened(value: Any, dtype: torch.dtype) -> Any:
    """Widen a tensor, or a list of tensors; anything else stays."""
    if type(value) in (list, tuple) and any(isinstance(part, Tensor) for part in value):
        return type(value)(_widened(part, dtype) for part in value)
    if (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and torch.finfo(value.dtype).bits < torch.finfo(dtype).bits
    ):
        return value.to(dtype)
    return value


class _Watching(TorchFunctionMode):
    """Notes whether numbers of a narrower dtype than the program's come into it."""

    found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.found:
            dtype = torch.get_default_dtype()
            self.found = func is Tensor.float and dtype is torch.float64
            for value in (
                (*args, *kwargs.values()) if kwargs else args
            ):  # thousands of steps call this a hundred thousand times
                if (
                    isinstance(value, Tensor)
                    and value.dtype is not dtype
                    and _widened(value, dtype) is not value
                ):
                    self.found = True
        return func(*args, **kwargs)


def _clash(error: Exception) -> bool:
    return any(words in str(error) for words in CLASHES)


class Prepared:
    """Program in the dtype of its data, with NaN entries of observed sites left out.

    Args:
        model: the user's program; widen: whether constants of another dtype in its matrix products
            are converted.
        dtype: None for that of the data it is called with, double precision where they hold none.
    """

    def __init__(
        self, model: Callable[..., Any], dtype: torch.dtype | None = None, widen: bool = False
    ) -> None:
        self.model, self.dtype, self.widen = model, dtype, widen

    def __call__(self, *args: Any) -> Any:
        dtype = self.dtype or floating_dtype(args)
        with in_dtype(dtype), _MissingEntries(), _Widening() if self.widen else nullcontext():
            return self.model(*args)


class SourceLines(Messenger):
    """Lines of the user's file at which sites stand."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, str] = {}

    def _pyro_sample(self, msg: Any) -> None:
        self.of.setdefault(msg["name"], _line_of_user())

    def _pyro_param(self, msg: Any) -> None:
        self.of.setdefault(msg["name"], _line_of_user())


LIBRARIES = tuple(str(Path(module.__file__ or "").parent) for module in (pyro, torch)) + (
    str(Path(__file__).parent),
)


def _line_of_user() -> str:
    frame = sys._getframe(2)
    while (
        frame is not None
        and frame.f_code.co_filename.startswith((*LIBRARIES, "<"))
        and frame.f_back is not None
    ):
        frame = frame.f_back
    return _place(frame.f_lineno, frame.f_code.co_filename)


@functools.lru_cache(maxsize=256)
def _place(line: int, file: str) -> str:
    path = Path(file)
    return (
        f"line {line} of the cell"
        if path.parent.name.startswith("ipykernel")
        else f"line {line} of {path.name}"
    )


def first_line(error: BaseException) -> str:
    """First line of an error, without the shapes that Pyro lists below."""
    return str(error).partition("\n")[0].rstrip(". :")


def line_of_error(error: BaseException) -> str:
    """The line of the user's file that an error came from, in words."""
    place, at = "its call", error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if not file.startswith((*LIBRARIES, "<")):
            place = _place(at.tb_lineno, file)
        at = at.tb_next
    return place


def not_at_once(latents: str, error: BaseException) -> str:
    """Why a program that runs does not run with all values of its latents at once.

    Args:
        latents: their names; error: what it raised.
    """
    chooses = any(words in str(error) for words in CHOICES)
    remedy = (
        ": choose by them with a[z], Vindex(a)[..., z] or torch.where, not with if, while, int() "
        "or .item()"
        if chooses
        else ", so that shapes must broadcast from the right"
    )
    return (
        f"the program runs, but not with all values of {latents} at once, at "
        f"{line_of_error(error)}: {first_line(error)}. Summing latents out, their values stand in "
        f"a dim of their own on the left of the plates{remedy}"
    )


def crossed_plates(latents: str, error: BaseException) -> str:
    """Why the latents of a program cannot be summed out one after the other.

    Args:
        latents: their names; error: what the sum raised.
    """
    return (
        f"the sums over {latents} cannot be told apart, since data in two crossed plates depend on "
        f"latents in each of them ({first_line(error)}): make one of the plates a loop (for i in "
        "pyro.plate(...)), whose latents are few, or take an engine that draws the latents"
    )


def other_density(site: str, line: str, latents: str) -> str:
    """Why a sum over latents would be wrong: a site differs when they take all values at once.

    Args:
        site: its name; line: where it stands, "" where that is not known.
        latents: their names.
    """
    place = f" ({line})" if line else ""
    return (
        f"site {site!r}{place} has another density when {latents} take all their values at once "
        "than when they take each alone, so that sums over them would be wrong. Summing latents "
        "out, their values stand in a dim of their own on the left of the plates, and z[0] is not "
        "the first row: choose by them with a[z], Vindex(a)[..., z] or torch.where, not with if, "
        "while or single entries of z"
    )


def prepared(model: Callable[..., Any], dtype: torch.dtype | None = None) -> Callable[..., Any]:
    """Wrap a user's program to run; a model that checks its data stays as it is."""
    return model if checks_data(model) or isinstance(model, Prepared) else Prepared(model, dtype)


def first_run(
    model: Callable[..., Any], args: tuple[Any, ...], fixed: dict[str, Tensor] | None = None
) -> tuple[Callable[..., Any], Any, dict[str, str]]:
    """The program ready to run, a trace of it, and the line of every site.

    Constants of a dtype that clashes with the data's, or takes digits from them, are found out
    here, and converted from then on.

    Args:
        model: the program; args: what it is called with; fixed: values of some of its sites.
    """
    model = prepared(model)

    def trace(of: Callable[..., Any]) -> Any:
        return poutine.trace(poutine.condition(of, fixed) if fixed else of).get_trace(*args)

    if not isinstance(model, Prepared):
        return model, trace(model), {}
    with SourceLines() as lines:
        watching = _Watching()
        try:
            with nullcontext() if model.widen else watching:
                first_trace = trace(model)
            if not watching.found:
                return model, first_trace, lines.of
        except RuntimeError as error:
            if not watching.found:
                if not _clash(error):
                    raise ValueError(
                        f"the program at {line_of_error(error)}: {first_line(error)}"
                    ) from error
                raise ValueError(
                    f"the program at {line_of_error(error)}: {first_line(error)}; its constants"
                    " have more digits than its data, so convert one to the dtype of the other"
                ) from error
        except ValueError as error:
            if "to satisfy the constraint" not in str(error):
                raise
            remedy = (
                ": a covariate that is missing must be filled in before the fit, or given a"
                " distribution of"
                " its own"
                if "nan" in str(error)
                else ""
            )
            raise ValueError(
                f"the program at {line_of_error(error)}: {first_line(error)}{remedy}"
            ) from error
        model = Prepared(model.model, model.dtype, widen=True)
        return model, trace(model), lines.of
