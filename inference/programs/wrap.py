"""Wrapped user program: dtype of the data, missing entries masked, lines known."""

from __future__ import annotations

import contextlib
import copy
import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from inference.programs.global_state import in_dtype, whole_plates
from inference.programs.parameters import NEAR, NOISE, ParameterSites
from inference.programs.quadrature import Centres, NodeSites, quadrature_of
from ppl_models.data.tables import checks_data, floating_dtype
from ppl_models.parts.distributions import BinaryVector
from ppl_models.parts.item_response import ItemResponse

MOST_BITS = 16  # of one vector whose values are summed over
CHOICES = (
    "Boolean value of Tensor",
    "converted to Scalar",
    "converted to Python scalars",
    "only integer tensors of a single element",
    "can be converted to an index",
    "Index tensor must have",  # of gather, which does not broadcast
)
DIMS = "up to 64 dims"
SHAPES = ("shape", "size of tensor", "broadcast", "dimension", "expand")
TRAINING = {  # layers whose density of a row changes from run to run while they train
    "dropout": "dropout",
    "feature_dropout": "dropout",
    "alpha_dropout": "dropout",
    "feature_alpha_dropout": "dropout",
    "dropout1d": "dropout",
    "dropout2d": "dropout",
    "dropout3d": "dropout",
    "batch_norm": "batch normalisation",
}
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


class _JointBits(Messenger):
    """Make vectors of latent bits, ``Bernoulli(p).to_event(1)``, one latent of all their values.

    Pyro enumerates no dims of an event.
    """

    def _pyro_sample(self, msg: Any) -> None:
        fn = msg["fn"]
        if msg["is_observed"] or getattr(fn, "reinterpreted_batch_ndims", 0) != 1:
            return
        if (
            isinstance(fn.base_dist, torch.distributions.Bernoulli)
            and fn.event_shape[0] <= MOST_BITS
        ):
            msg["fn"] = BinaryVector(fn.base_dist.logits)


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

    Args:
        replaced: values of parameters of networks, by the id of the network's own, which are used
            in their place.
    """

    def __init__(self, replaced: dict[int, Tensor]) -> None:
        super().__init__()
        self.replaced = replaced

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        _refuse_training(func, args, kwargs)
        if self.replaced:
            args = [self._put(value) for value in args]
            kwargs = {key: self._put(value) for key, value in kwargs.items()}
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

    def _put(self, value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(self._put(part) for part in value)
        return self.replaced.get(id(value), value) if isinstance(value, nn.Parameter) else value


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
        _refuse_training(func, args, kwargs)
        if not self.found:
            dtype = torch.get_default_dtype()
            self.found = func is Tensor.float and dtype is torch.float64
            for value in (
                (*args, *kwargs.values()) if kwargs else args
            ):  # thousands of steps call this a hundred thousand times
                if isinstance(value, nn.Parameter) or (
                    isinstance(value, Tensor)
                    and value.dtype is not dtype
                    and _widened(value, dtype) is not value
                ):
                    self.found = True
        return func(*args, **kwargs)


def _refuse_training(func: Any, args: Any, kwargs: Any) -> None:
    """Refuse layers that draw at random, or look at all rows together, while a network trains."""
    layer = TRAINING.get(getattr(func, "__name__", ""))
    if layer is not None and (
        kwargs.get("training") is True or (len(args) == 3 and args[2] is True)
    ):
        raise ValueError(
            f"a network with {layer} is in training mode, in which the density of a row is not the"
            " same at every run: call its eval() before the fit"
        )


def _clash(error: Exception) -> bool:
    return any(words in str(error) for words in CLASHES)


class Prepared:
    """Program in the dtype of its data, with NaN entries of observed sites left out.

    Args:
        model: the user's program; widen: whether constants of another dtype in its matrix products
            are converted.
        dtype: None for that of the data it is called with, double precision where they hold none.
        noise: of draws of parameters without a prior.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        dtype: torch.dtype | None = None,
        widen: bool = False,
        noise: float = NOISE,
    ) -> None:
        self.model, self.dtype, self.widen, self.noise = model, dtype, widen, noise
        self.has_starts = False  # whether a run met a parameter without a prior
        self.weights: dict[str, nn.Parameter] = {}  # of networks, by the name of their site
        self.drawn: dict[str, tuple[int, int]] = {}  # plates that draw rows: how many, of how many
        quadrature = quadrature_of(model)
        self.nodes = None if quadrature is None else NodeSites(quadrature)

    def centred(self, centres: Centres) -> Prepared:
        """The program with the nodes of its continuous latents at centres of every row."""
        new = copy.copy(self)
        new.nodes = None if self.nodes is None else NodeSites(self.nodes.quadrature, centres)
        return new

    @property
    def drawing(self) -> Prepared:
        """The program with continuous latents of rows as they are written, to draw from."""
        new = copy.copy(self)
        new.nodes = None
        return new

    def __call__(self, *args: Any) -> Any:
        dtype = self.dtype or floating_dtype(args)
        replaced: dict[int, Tensor] = {}
        sites = ParameterSites(replaced, self.noise)
        with (
            in_dtype(dtype),
            _MissingEntries(),
            sites,
            _JointBits(),
            whole_plates(self.drawn),
            self.nodes or nullcontext(),
            _Widening(replaced) if self.widen else nullcontext(),
        ):
            try:
                out = self.model(*args)
            finally:
                self.weights, self.has_starts = sites.weights, bool(sites.values)
        return out


class SourceLines(Messenger):
    """Lines of the user's file at which sites stand."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, str] = {}

    def _pyro_sample(self, msg: Any) -> None:
        self.of.setdefault(msg["name"], _line_of_user())

    def _pyro_param(self, msg: Any) -> None:
        self.of.setdefault(msg["name"], _line_of_user())


LIBRARIES = (
    *(str(Path(module.__file__ or "").parent) for module in (pyro, torch)),
    str(Path(__file__).parent),
    contextlib.__file__,
    functools.__file__,
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
    """Error in one line, without the values and shapes that Pyro lists below."""
    said = re.split(r"(?<=invalid values)|\n\s*(?:Trace Shapes|Try )", str(error))[0]
    return re.sub(r"\s*\n\s*", ", ", said.strip()).rstrip(". :")


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
    place = (
        "Summing latents out, their values stand in a dim of their own on the left of the plates"
    )
    if any(words in str(error) for words in CHOICES):
        remedy = (
            f"{place}: choose by them with a[z], Vindex(a)[..., z] or torch.where, not with if,"
            " while, int(), .item() or gather"
        )
    elif DIMS in str(error):
        remedy = (
            "Every latent outside plates takes a dim of its own, of which PyTorch has 64: put alike"
            " latents in a plate, and a chain in for t in pyro.markov(...):"
        )
    elif "enumerate_support" in str(error):
        remedy = (
            "Which values one of them has depends on another: give it one set of values, such as a"
            " Categorical over 0, ..., M with logits of -inf for those it cannot have"
        )
    elif "out of bounds" in str(error):
        remedy = (
            f"{place}: a[z] chooses by the values of a latent, and z[i], the latent of another row,"
            " cannot be taken from a plate: write the rows as a loop, for i in pyro.plate(...):,"
            " each with a latent of its own name"
        )
    elif any(words in str(error).lower() for words in SHAPES):
        remedy = f"{place}, so that shapes must broadcast from the right"
    else:
        remedy = place
    return (
        f"the program runs, but not with all values of {latents} at once, at "
        f"{line_of_error(error)}: {first_line(error)}. {remedy}"
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
    if isinstance(model, Prepared) and model.nodes is not None and model.nodes.centres:
        return model.centred({})  # those of other rows
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
        except Exception as error:  # the program's own, whatever it is
            if watching.found:
                model = replaced(model, widen=True)
            elif model.has_starts and model.noise != NEAR:
                model = replaced(model, noise=NEAR)
            else:
                raise ValueError(_in_words(error, model.drawn)) from error
            return first_run(model, args, fixed)
        if watching.found:
            return first_run(replaced(model, widen=True), args, fixed)
        if model.widen:
            _refuse_fixed_weights(first_trace, model.weights)
        return model, first_trace, lines.of


def replaced(model: Prepared, widen: bool = False, noise: float | None = None) -> Prepared:
    """The program with numbers of a narrower dtype widened, or with other noise of its draws."""
    noise = model.noise if noise is None else noise
    return Prepared(model.model, model.dtype, model.widen or widen, noise)


@contextlib.contextmanager
def in_words(model: Any) -> Iterator[None]:
    """Run a program whose exceptions are told in one sentence, with the line they came from."""
    try:
        yield
    except Exception as error:
        raise ValueError(_in_words(error, getattr(model, "drawn", {}))) from error


def _in_words(error: Exception, drawn: Mapping[str, tuple[int, int]]) -> str:
    """Message of a program's exception in one line, with its place and a remedy.

    Args:
        error: what the program raised; drawn: plates that would draw some of their rows.
    """
    if isinstance(error, ValueError) and not _is_of_library(error):
        return re.split(r"\n\s*Trace Shapes:", str(error))[0].rstrip()
    remedy = ""
    numbers = set(re.findall(r"\d+", first_line(error)))
    for plate, (few, size) in drawn.items():
        if not {str(few), str(size)} <= numbers:
            continue
        remedy = (
            f". The plate {plate!r} would draw {few:,} of its {size:,} rows at every run"
            " (subsample_size), and a fit takes all of them: index what stands in it by the"
            " plate, data[i] in with pyro.plate(...) as i:, or leave out subsample_size"
        )
    if isinstance(error, ValueError) and "nan" in str(error):
        remedy = (
            ": a covariate that is missing must be filled in before the fit, or given a"
            " distribution of its own"
        )
    elif _clash(error):
        remedy = (
            "; its constants have more digits than its data, so convert one to the dtype of the"
            " other"
        )
    kind = "" if isinstance(error, RuntimeError | ValueError) else f"{type(error).__name__} "
    return f"the program at {line_of_error(error)}: {kind}{first_line(error)}{remedy}"


def _is_of_library(error: BaseException) -> bool:
    """Tell whether Pyro or PyTorch raised an error, and not the user's own code or this library."""
    at, file = error.__traceback__, ""
    while at is not None:
        file, at = at.tb_frame.f_code.co_filename, at.tb_next
    return file.startswith(LIBRARIES[:2])


def _refuse_fixed_weights(trace: Any, weights: dict[str, nn.Parameter]) -> None:
    """Refuse a network that reads its own weights past the values of their sites.

    The density of a run then depends on the network's own tensors, which its gradient shows.
    """
    if not weights or not torch.is_grad_enabled():
        return
    nodes = [node for node in trace.nodes.values() if node["type"] == "sample"]
    try:
        terms = [node["fn"].log_prob(node["value"]).sum() for node in nodes]
    except ValueError:  # data outside a support, which is refused with its site
        return
    total = sum(terms, torch.zeros(()))
    if not total.requires_grad:
        return
    slopes = torch.autograd.grad(total, list(weights.values()), allow_unused=True)
    for name, slope in zip(weights, slopes, strict=True):
        if slope is not None:
            raise ValueError(
                f"network parameter {name!r}: layers whose weights PyTorch's own functions read"
                " were expected, and this one is read past them (by a compiled script, or an"
                " autograd.Function), so that it cannot be estimated: write the layer with torch"
                " functions"
            )
