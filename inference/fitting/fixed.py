"""Known parameters: values of ``fit(fixed=...)``, checked, and starts that agree with them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import biject_to

from inference.base.structure import Method, Problem, Structure, check_method, closes
from inference.engines.em import EM
from inference.engines.laplace import Laplace
from inference.engines.nuts import NUTS
from inference.engines.saem import SAEM
from inference.engines.svi import SVI
from inference.fitting.record import FitRecord
from inference.programs.fixed import Fixed, group_numbers, group_totals, is_shares
from inference.programs.program import Params, Program
from inference.programs.sites import outside
from ppl_models.data.files import read_frame
from ppl_models.data.frames import column_names, is_frame
from ppl_models.data.tables import with_nan
from ppl_models.parts.distributions import OnGraph
from ppl_models.parts.repr import listed
from ppl_models.parts.validation import is_integer

MOST_NAMES = 6  # latents whose renamings are all compared
MOST_AXES = 64
ROUNDING = 1e-6  # of sums of known shares


def fixed_of(problem: Problem, given: Any) -> Fixed:
    """Known entries of the parameters.

    Args:
        problem: model and data.
        given: as ``fit`` takes it, or a JSON file of it.

    Raises:
        ValueError: for anything but values by site, a site that is no parameter, another shape, or
            values outside the site's support.
    """
    if isinstance(given, str | Path):
        given = _read(Path(given))
    if not isinstance(given, Mapping) or not given:
        raise ValueError(
            "fixed: values by site were expected, as {'weights': [0.5, nan]}, or a JSON file of"
            f" them, got {given!r}"
        )
    program = problem.program_of_one_row()
    sites = program.names("parameter")
    values: dict[str, Tensor] = {}
    supports = {}
    for name, value in given.items():
        if name not in sites:
            raise ValueError(
                f"fixed: one of the parameters {listed(map(repr, sites), 12)} was expected, got"
                f" {name!r}"
            )
        shape, support = program.site(name).shape, program.site(name).support
        array = _as_array(name, value, shape, problem.item_names)
        tensor = torch.from_numpy(array)
        if bool(tensor.isnan().all()):
            continue
        values[name], supports[name] = tensor, support
        _check_inside(name, tensor, support)
    fixed = Fixed(values, supports)
    if not values:
        raise ValueError("fixed: at least one known value was expected, got NaN alone")
    return fixed


def ties_of(problem: Problem, given: Any, fixed: Fixed | None) -> Fixed:
    """Known entries of the parameters, and which entries are equal.

    Args:
        problem: model and data; given: as ``fit`` takes it; fixed: the known entries, None for
            none.

    Raises:
        ValueError: for anything but an axis or whole numbers by site, a site that is no parameter,
            an axis or shape that it has not, a part of a probability vector, matrices, or entries
            that are known to differ.
    """
    if not isinstance(given, Mapping) or not given:
        raise ValueError(
            "tied: an axis, or whole numbers in its shape, by site were expected, as"
            f" {{'dispersion': 0}}, got {given!r}"
        )
    program = problem.program_of_one_row()
    sites = program.names("parameter")
    values, supports, ties = (
        ({}, {}, {}) if fixed is None else (dict(fixed.values), dict(fixed.supports), {})
    )
    for name, groups in given.items():
        if name not in sites:
            raise ValueError(
                f"tied: one of the parameters {listed(map(repr, sites), 12)} was expected, got"
                f" {name!r}"
            )
        site = program.site(name)
        source = _first_of_each(name, groups, tuple(site.shape))
        free = torch.full(site.shape, torch.nan, dtype=torch.float64)
        own = _known_along(name, values.get(name, free), source)
        _check_tie(name, source, site.support, own)
        values[name], supports[name], ties[name] = own, site.support, source
    return Fixed(values, supports, ties)


def _first_of_each(name: str, groups: Any, shape: tuple[int, ...]) -> Tensor:
    """Place of the first entry that each entry is equal to, in the shape of the site."""
    places = np.arange(math.prod(shape)).reshape(shape)
    if is_integer(groups, -MOST_AXES):
        if not -len(shape) <= int(groups) < len(shape):
            raise ValueError(
                f"tied: {name!r} has {len(shape)} axes, shape {shape}, got axis {int(groups)}"
            )
        return torch.from_numpy(np.broadcast_to(places.take([0], int(groups)), shape).copy())
    try:
        numbers = np.array(groups, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"tied: {name!r}: whole numbers were expected ({error})") from error
    if numbers.shape != shape or not (numbers == np.floor(numbers)).all() or (numbers < -1).any():
        raise ValueError(
            f"tied: {name!r}: an axis, or whole numbers of shape {shape}, -1 for an entry by"
            f" itself, were expected, got shape {numbers.shape}"
            + (f" with {numbers.ravel()[0]:g}" if numbers.shape == shape else "")
        )
    flat = numbers.ravel()
    first = {number: int(np.argmax(flat == number)) for number in np.unique(flat)}
    out = [place if own == -1 else first[own] for place, own in enumerate(flat)]
    return torch.tensor(out).reshape(shape)


def _known_along(name: str, value: Tensor, source: Tensor) -> Tensor:
    """Known entries, given to all that are equal to them."""
    flat, out = value.ravel(), value.clone().ravel()
    for first in source.unique().tolist():
        members = source.ravel() == first
        known = flat[members & ~flat.isnan()].unique()
        if len(known) > 1:
            raise ValueError(
                f"tied: {name!r} has entries that are equal, and fixed gives them"
                f" {float(known[0]):g} and {float(known[1]):g}"
            )
        if len(known):
            out[members] = known[0]
    return out.reshape(value.shape)


def _check_tie(name: str, source: Tensor, support: Any, value: Tensor) -> None:
    """Refuse parts of vectors and matrices, and entries whose limits differ."""
    flat = source.ravel()
    if is_shares(support):
        numbers = group_numbers(support, source).ravel()
        for number in numbers.unique():
            own = flat[numbers == number]
            place = torch.arange(len(flat))[numbers == number]
            other = numbers[own[0]]
            whole = torch.arange(len(flat))[numbers == other]
            if not (torch.equal(own, place) or torch.equal(own, whole)):
                raise ValueError(
                    f"tied: {name!r} holds probability vectors, which are equal as wholes, entry by"
                    f" entry: an axis across them was expected, got ties within or of a part"
                )
        return
    base = support
    while hasattr(base, "base_constraint"):
        base = base.base_constraint
    if base.event_dim and not isinstance(base, OnGraph):
        raise ValueError(
            f"tied: {name!r} holds matrices, whose equality is a setting of the components:"
            " MultivariateNormal(covariance='EEE') has one for all"
        )
    graph = getattr(base, "graph", None)
    if graph is not None and not torch.equal(graph.ravel()[flat], graph.ravel()):
        raise ValueError(
            f"tied: {name!r} has entries that are zero by the graph tied to others that are free"
        )
    like = biject_to(support)
    middle = like(torch.zeros(like.inverse_shape(value.shape), dtype=torch.float64))
    if not bool(support.check(middle.ravel()[flat].reshape(middle.shape)).all()):
        raise ValueError(f"tied: {name!r} has entries tied to others that lie in another interval")


def _read(path: Path) -> Any:
    import json

    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"fixed: {path} is no JSON file of values by site ({error})") from error
    return record


def _as_array(name: str, value: Any, shape: tuple[int, ...], items: tuple[str, ...]) -> np.ndarray:
    """Numbers of a site's shape; columns of a frame by the names of the items, if it has them."""
    if isinstance(value, str | Path):
        value = read_frame(value, numbers=True)
    if hasattr(value, "to_frame") and not is_frame(value):  # a column by itself
        value = value.to_frame()
    if is_frame(value):
        value = _by_names(name, value, shape, items)
    try:
        value = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        array = np.array(with_nan(np.asarray(value)), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"fixed: {name!r}: numbers, NaN where free, were expected ({error})"
        ) from error
    if array.shape != tuple(shape):
        raise ValueError(
            f"fixed: {name!r} must have shape {tuple(shape)}, NaN where free, got {array.shape}"
        )
    if np.isinf(array).any():
        raise ValueError(f"fixed: {name!r}: finite numbers, NaN where free, were expected, got inf")
    return array


def _by_names(name: str, frame: Any, shape: tuple[int, ...], items: tuple[str, ...]) -> np.ndarray:
    """Table of a site's shape from a frame, whose rows or columns have the names of items.

    Items that the frame does not name, and rows (components, attributes) after its last, are free.
    """
    values: np.ndarray = frame.to_numpy()
    columns, rows = list(map(str, column_names(frame))), list(map(str, getattr(frame, "index", ())))
    axes = [axis for axis, size in enumerate(shape) if size == len(items)]
    named = [place for place, own in enumerate((rows, columns)) if set(own) & set(items)]
    if not axes or not named or len(shape) > 2:
        return values
    own = (rows, columns)[named[-1]]
    unknown = [item for item in own if item not in items]
    if unknown:
        raise ValueError(
            f"fixed: {name!r}: names of items, such as {items[0]!r}, were expected, got"
            f" {unknown[0]!r}"
        )
    lines = values.T if named[-1] == 0 else values  # (lines, items named)
    table = np.full((len(lines), len(items)), np.nan)
    table[:, [items.index(item) for item in own]] = with_nan(lines)
    if len(shape) == 1:
        return table[0] if len(table) == 1 else table
    size = shape[1 - axes[-1]]
    if len(table) > size:
        raise ValueError(
            f"fixed: {name!r}: at most {size} lines of known values were expected, got {len(table)}"
        )
    table = np.concatenate([table, np.full((size - len(table), len(items)), np.nan)])
    return table if axes[-1] == 1 else table.T


def _check_inside(name: str, value: Tensor, support: Any) -> None:
    """Refuse known values that no parameter of this support has."""
    held = ~value.isnan()
    if is_shares(support):
        known = torch.where(held, value, 0.0)
        totals = group_totals(support, known)
        counts = group_totals(support, held.double())
        whole = counts == group_totals(support, torch.ones_like(known))
        # what is left for free entries must be positive; without any, nothing may be left
        low = (known < 0) | (whole & (totals < 1 - ROUNDING))
        wrong = low | (totals > 1 + ROUNDING) | (~whole & (totals >= 1))
        if bool(wrong.any()):
            place = tuple(((known < 0) if bool((known < 0).any()) else wrong).nonzero()[0].tolist())
            got = f"{float(value[place]):g} at" if known[place] < 0 else ""
            raise ValueError(
                f"fixed: {name!r}: shares of at least 0 that leave something for those that are"
                " free, and sum to one where none is, were expected, got"
                f" {got or f'a sum of {float(totals[place]):g} around'} entry {place}"
            )
    like = biject_to(support)
    middle = like(torch.zeros(like.inverse_shape(value.shape), dtype=value.dtype))
    full = Fixed({name: value}, {name: support}).restored({name: middle})[name]
    if not bool(support.check(full).all()):
        raise ValueError(
            f"fixed: {name!r} has values outside its support: {outside(support, full)}"
        )


def check_fixing(problem: Problem, method: Method) -> None:
    """Refuse an engine that cannot hold parameters.

    Raises:
        ValueError: naming it, and what can.
    """
    if problem.fixed is None:
        return
    if hasattr(method, "check_fixed"):
        method.check_fixed(problem)
        return
    word = "fixed" if problem.fixed.known else "tied"
    local = problem.structure.local_sites or problem.structure.integrated_sites
    if local and not any(_fits(problem.structure, engine) for engine in (NUTS(), SVI())):
        raise ValueError(
            f"{word}: no engine holds parameters of {type(problem.structure.model).__name__}, whose"
            f" {', '.join(local)} of the rows are estimated beside all of them: a fit without"
            f" {word}= was expected"
        )
    own_guide = isinstance(method, SVI) and not hasattr(method.guide, "build")
    batches = isinstance(method, SVI | SAEM) and getattr(method, "batch_size", None) is not None
    if own_guide or batches or not isinstance(method, EM | NUTS | SVI | Laplace | SAEM):
        raise ValueError(
            f"{word}: EM(), SAEM(), NUTS(), Laplace() and SVI() with a guide of this library and"
            f" all rows hold parameters, and {type(method).__name__}() does not: name one of those"
            " that fit the model as method=, or make what is known altogether a constant of a"
            " program of your own"
        )
    starts = isinstance(method, EM) and method.start is not None
    if starts and not closes(problem.structure, problem.fixed):
        raise ValueError(
            f"{word}: EM(start=OnlineEM()) averages sums of steps in which known and free entries"
            " separate, and these do not: EM() without start was expected"
        )
    if local and not isinstance(method, NUTS | SVI):
        raise ValueError(
            f"{word}: a model without continuous latents of the rows was expected, which"
            f" {type(method).__name__}() fits beside the parameters; NUTS() and SVI() draw both"
        )


def _fits(structure: Structure, method: Method) -> bool:
    """Tell whether an engine fits this kind of model at all."""
    try:
        check_method(structure, method)
    except ValueError:
        return False
    return True


def agreeing(problem: Problem, params: Params) -> Params:
    """Starts (R, ...) with known entries in their places, latents renamed to lie near these.

    Of a few latents, that renaming whose values lie nearest to the known ones, each site measured
    by its spread over the starts.
    """
    fixed = problem.fixed
    if fixed is None:
        return params
    for label in problem.structure.labels():
        sample = {name: value[:1] for name, value in params.items()}
        size = label.features(sample).shape[1]
        if not 1 < size <= MOST_NAMES or problem.labels or not fixed.known:
            continue
        flips = torch.zeros(size, dtype=torch.bool)
        candidates = [
            label.rename(params, torch.tensor(order), flips)
            for order in itertools.permutations(range(size))
        ]
        costs = torch.stack([_distance(fixed, one) for one in candidates])  # (orders, R)
        best = costs.argmin(0)
        params = {
            name: torch.stack([candidates[int(k)][name][r] for r, k in enumerate(best)])
            for name in params
        }
    return {name: value.detach() for name, value in fixed.restored(params).items()}


def _distance(fixed: Fixed, params: Params) -> Tensor:
    """Squared distance of starts from the known entries, (R,)."""
    total = torch.zeros(len(next(iter(params.values()))), dtype=torch.float64)
    for name, value in fixed.values.items():
        own = params[name].double()
        scale = own.flatten().var().clamp(min=1e-12)
        gap = torch.where(value.isnan(), 0.0, own - value.nan_to_num(0.0))
        total = total + gap.square().reshape(len(own), -1).sum(-1) / scale
    return total


def held_by(fit: FitRecord, program: Program) -> Fixed | None:
    """Known values of parameters that a fit held; None for none."""
    given, ties = fit.fixed or {}, fit.tied or {}
    sites = {*given, *ties}
    if not sites:
        return None
    values = {
        name: given.get(name, torch.full(program.site(name).shape, torch.nan).double())
        for name in sites
    }
    return Fixed(values, {name: program.site(name).support for name in sites}, dict(ties))


def with_fixed(problem: Problem, given: Any, tied: Any = None) -> Problem:
    """The problem with known and tied parameters; None for none."""
    fixed = None if given is None else fixed_of(problem, given)
    fixed = fixed if tied is None else ties_of(problem, tied, fixed)
    return problem if fixed is None else dataclasses.replace(problem, fixed=fixed)
