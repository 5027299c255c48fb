"""Validation of saved fits: types of fields, shapes and supports of parameters."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from inference.fitting.record import FitRecord, Restarts, Trace
from inference.programs.program import Params, Program
from inference.programs.sites import outside
from inference.structures.registry import structure_of
from ppl_models.data.tables import checks_data
from ppl_models.parts.probability_tables import Simplexes, segments_of

ROUNDING = 1e-4  # a probability vector in single precision


def check_loaded(fields: Mapping[str, Any]) -> None:
    """Refuse the fields of a saved fit that no fit could have.

    Args:
        fields: by name, as :class:`~inference.fitting.record.FitRecord` has them.

    Raises:
        ValueError: naming the field, what was expected and what came.
    """
    _check_types(FitRecord, fields, "")
    for name, kind in (("trace", Trace), ("restarts", Restarts)):
        _check_types(kind, vars(fields[name]), f"{name}.")
    restarts: Restarts = fields["restarts"]
    num = len(restarts.objective) if restarts.objective.dim() == 1 else -1
    if not 0 <= restarts.best < num:
        raise ValueError(f"restarts.best must lie in 0 to {num - 1}, got {restarts.best}")
    for name in ("log_likelihood", "converged", "num_iterations"):
        if tuple(getattr(restarts, name).shape) != (num,):
            raise ValueError(
                f"restarts.{name} must have shape {(num,)}, got"
                f" {tuple(getattr(restarts, name).shape)}"
            )
    for name, least in (("num_rows", 0), ("num_iterations", 0), ("seed", 0), ("seconds", 0)):
        if not fields[name] >= least:  # NaN is not
            raise ValueError(f"{name} must not be negative, got {fields[name]}")
    for name in ("num_observations", "num_free", "bic_price"):
        if (value := fields.get(name)) is not None and not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and not negative, got {value}")
    for name, objective in (
        ("objective", fields["objective"]),
        ("restarts.objective of the best", float(restarts.objective[restarts.best])),
    ):
        if not math.isfinite(objective):
            raise ValueError(f"{name} must be finite, got {objective}")
    _check_log_likelihood(fields)
    for name in ("params", "local"):
        for site, value in (fields.get(name) or {}).items():
            if not torch.isfinite(value).all():
                raise ValueError(f"{name}.{site} holds numbers that are not finite")
    _check_sites(fields, num)


def _check_log_likelihood(fields: Mapping[str, Any]) -> None:
    """Check that the log-likelihood is a number, unless a bound or draws stand for it."""
    log_likelihood, elbo = fields["log_likelihood"], fields.get("elbo")
    if elbo is not None and math.isnan(elbo):
        raise ValueError("elbo must be a number, got nan")
    is_drawn = fields["objective_name"].startswith("log-posterior of parameters and ")
    if not math.isfinite(log_likelihood) and not (
        math.isnan(log_likelihood) and (is_drawn or (elbo is not None and math.isfinite(elbo)))
    ):
        raise ValueError(
            "log_likelihood must be finite where the fit has no lower bound of it, got"
            f" {log_likelihood}"
        )


# ---------------------------------------------------------------- types


def _check_types(kind: type, values: Mapping[str, Any], prefix: str) -> None:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name in values and not _conforms(values[field.name], hints[field.name]):
            wanted = str(field.type).replace("Params", "tensors by name")
            raise ValueError(
                f"{prefix}{field.name} must be of type {wanted}, got {_shown(values[field.name])}"
            )


def _conforms(value: Any, hint: Any) -> bool:
    """Tell whether a value conforms to an annotation; unknown annotations always do."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_conforms(value, argument) for argument in arguments)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(
            _conforms(k, arguments[0]) and _conforms(v, arguments[1]) for k, v in value.items()
        )
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return isinstance(value, tuple) and all(_conforms(part, arguments[0]) for part in value)
    if origin is Callable or hint is Callable:
        return callable(value)
    if hint in (int, float, bool):
        kinds = {int: int, float: int | float, bool: bool}[hint]
        return isinstance(value, kinds) and (hint is bool or not isinstance(value, bool))
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    return not isinstance(hint, type) or isinstance(value, hint)


def _shown(value: Any) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) < 80 and "\n" not in text else type(value).__name__


# ---------------------------------------------------------------- the model's own sites


def _check_sites(fields: Mapping[str, Any], num_restarts: int) -> None:
    """Check shapes and supports by a run of the model without data."""
    model = fields["model"]
    if not checks_data(model):
        return
    stand_in = structure_of(model).stand_in()
    program = Program(model, None, 1) if stand_in is None else Program(model, stand_in)
    sites = {site.name: site for site in program.sites if site.kind == "parameter"}
    needed = {
        name for name, site in sites.items() if not site.plates
    }  # what stands in a plate is of the rows, and drawn without data
    params: Params = fields["params"]
    if not needed <= set(params) <= set(sites):
        raise ValueError(f"params must be {sorted(needed)}, got {sorted(params)}")
    for name, value in params.items():
        if value.is_complex() or value.dtype == torch.bool:
            raise ValueError(f"params.{name} must hold floating numbers, got {value.dtype}")
    for name, site in sites.items():
        if name not in params:
            continue
        if tuple(params[name].shape) != site.shape:
            raise ValueError(
                f"params.{name} must have shape {site.shape}, got {tuple(params[name].shape)}"
            )
        if not _inside(site.support, params[name]):
            raise ValueError(
                f"params.{name} holds values outside its support:"
                f" {outside(site.support, params[name])}"
            )
        kept = fields["restarts"].params.get(name)
        if kept is not None and tuple(kept.shape) != (num_restarts, *site.shape):
            raise ValueError(
                f"restarts.params.{name} must have shape {(num_restarts, *site.shape)}, got"
                f" {tuple(kept.shape)}"
            )
        drawn = (fields.get("draws") or {}).get(name)
        if drawn is not None and tuple(drawn.shape[2:]) != site.shape:
            raise ValueError(
                f"draws.{name} must have shape (chains, draws, *{site.shape}), got"
                f" {tuple(drawn.shape)}"
            )
    kinds = {name: value.dtype for name, value in params.items()}
    usual = max(set(kinds.values()), key=list(kinds.values()).count, default=None)
    for name, kind in kinds.items():
        if kind != usual or not kind.is_floating_point:
            raise ValueError(
                f"params.{name} must have the dtype of the others, {usual}, a floating one, got"
                f" {kind}"
            )


def _inside(support: constraints.Constraint, value: Tensor) -> bool:
    """Tell whether values lie in a support or, for the rounding of an estimate, on its edge."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if support is constraints.simplex:
        return bool((value >= -ROUNDING).all() and ((value.sum(-1) - 1).abs() < ROUNDING).all())
    if isinstance(support, Simplexes):
        totals = segments_of(support.sizes, value.device).total(value)
        return bool((value >= -ROUNDING).all() and ((totals - 1).abs() < ROUNDING).all())
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if low is None and high is None:
        return bool(support.check(value).all())
    inside = torch.ones_like(value, dtype=torch.bool)
    for bound, sign in ((low, 1.0), (high, -1.0)):
        if bound is not None:
            edge = torch.as_tensor(bound).to(value)
            inside = inside & (sign * (value - edge) >= -1e-6 * (1 + edge.abs()))
    return bool(inside.all())
