"""Validation of user programs: refusals name the site, its line, and a remedy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from inference.programs.program import Program
from inference.programs.sites import distribution_name
from ppl_models.parts.distributions import broadcast_shapes

FIXED_SUPPORTS = (
    constraints.real,
    constraints.boolean,
    constraints.nonnegative_integer,
    constraints.positive_integer,
    constraints.positive,
    constraints.nonnegative,
    constraints.unit_interval,
)  # those that no parameter moves


def check_program(program: Program) -> None:
    """Refuse a program that no engine can fit; a model that checks its data passes.

    Args:
        program: with all its data.

    Raises:
        ValueError: for a program without latents or parameters, or without anything observed,
            sites of many values outside any plate, and data outside the support of their
            distribution or whose density is not a number.
    """
    trace = program.first_trace
    if trace is None:
        return
    lines = {site.name: f" ({site.line})" if site.line else "" for site in program.sites}
    observed = [site for site in program.sites if site.kind == "observed"]
    if not observed:
        raise ValueError(
            "the program observes nothing: give the site of the data obs=..., as in"
            " pyro.sample('y', dist.Normal(mean, 1.0), obs=data)"
        )
    if not any(program.names(kind) for kind in ("parameter", "latent", "local")):
        raise ValueError(
            "the program has no parameters and no latents: nothing is left to estimate. Parameters"
            " are continuous sample sites outside the plate over rows, such as"
            " pyro.sample('mean', dist.Normal(0.0, 10.0))"
        )
    for site in program.sites:
        node = trace.nodes[site.name]
        if not isinstance(node["value"], Tensor | int | float | bool):
            raise ValueError(
                f"site {site.name!r}{lines[site.name]}: a tensor was expected, got"
                f" {type(node['value']).__name__}"
            )
        if site.kind != "parameter":
            _check_plates(site.name, lines[site.name], node)
        if site.kind == "observed":
            _check_values(site.name, lines[site.name], node)


def _check_plates(name: str, line: str, node: Any) -> None:
    """Check that every dim of a site with more than one entry belongs to a plate."""
    value, event_dim = torch.as_tensor(node["value"]), node["fn"].event_dim
    shape = value.shape[: value.dim() - event_dim]
    try:
        batch = broadcast_shapes(node["fn"].batch_shape, shape)
    except ValueError as error:
        raise ValueError(
            f"site {name!r}{line}: values of shape {tuple(node['fn'].batch_shape)} were expected,"
            f" as its distribution and plates have them, got {tuple(shape)}"
        ) from error
    in_plates = {frame.dim for frame in node["cond_indep_stack"] if frame.vectorized}
    for dim in range(-len(batch), 0):
        if batch[dim] > 1 and dim not in in_plates:
            raise ValueError(
                f"site {name!r}{line} has {batch[dim]} values in dim {dim}, which stands in no"
                " plate, so that they cannot be told from values of a latent: put it inside with"
                f" pyro.plate('rows', {batch[dim]}):, or make it one "
                + (
                    "number by .sum()"
                    if distribution_name(node["fn"]) == "Unit"
                    else "vector by .to_event(1)"
                )
            )


def _check_values(name: str, line: str, node: Any) -> None:
    fn, value = node["fn"], torch.as_tensor(node["value"])
    mask = node["mask"]
    base = getattr(fn.support, "base_constraint", fn.support)
    if any(base is fixed for fixed in FIXED_SUPPORTS) or isinstance(
        base, constraints.integer_interval
    ):
        inside = base.check(value)
        if isinstance(mask, Tensor) and not fn.event_dim:
            inside = inside | ~mask
        if not bool(inside.all()):
            wrong = (
                value[~inside.expand(value.shape)].ravel()[0]
                if inside.dim() <= value.dim()
                else value.ravel()[0]
            )
            raise ValueError(
                f"observed site {name!r}{line}: values with support {base} were expected, got"
                f" {float(wrong):g}"
            )
    with torch.no_grad():
        density = fn.log_prob(value)
    if isinstance(mask, Tensor):
        density = torch.where(mask, density, torch.zeros_like(density))
    if bool(density.isnan().any()):
        raise ValueError(
            f"observed site {name!r}{line}: the log density of {int(density.isnan().sum())} of"
            f" {density.numel()} entries is not a number, so its distribution holds NaN: a"
            " covariate that is"
            " missing must be filled in, or given a distribution of its own, before the fit"
        )
