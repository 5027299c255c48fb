"""Observed sites of a program, and data sets of the same shape drawn from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from pyro import poutine
from torch import Tensor
from torch.distributions import constraints

from inference.programs.global_state import isolated
from inference.programs.program import Params, Program
from inference.programs.sites import Site

# of a table that is compared with simulations; of longer sequences so many steps, evenly spaced
MOST_COLUMNS = 200


def observed_names(program: Program) -> tuple[str, ...]:
    """Names of the observed sites, in program order, without any ``pyro.factor``."""
    return tuple(
        site.name
        for site in program.sites
        if site.kind == "observed" and site.distribution != "Unit"
    )


def observed_values(program: Program, params: Params) -> Params:
    """Observed data by site; NaN where an entry is missing or masked out.

    Args:
        program: with its data; params: values of its parameters, without restarts.
    """
    nodes = _nodes(program, program.model, params, 0)
    return {name: _seen(nodes[name]) for name in observed_names(program)}


def replicate(program: Program, params: Params, seed: int) -> Params:
    """One draw of every observed site, of the shape of the data, its latents drawn too.

    What the program reads from its data besides (lengths, covariates, the value before) is as in
    the data.
    """
    with isolated(seed):
        params = params | program.latents_above(params)
    nodes = _nodes(
        program, poutine.uncondition(getattr(program.model, "drawing", program.model)), params, seed
    )
    return {name: _seen(nodes[name]) for name in observed_names(program)}


def _nodes(program: Program, model: Callable[..., Any], params: Params, seed: int) -> Any:
    """The sites of one run of a form of the program's model, at given parameters."""
    with isolated(seed), torch.no_grad():
        return poutine.trace(poutine.condition(model, params)).get_trace(*program.args).nodes


def _seen(node: Any) -> Tensor:
    """Value of a site, NaN where its mask (of the batch dims) hides it."""
    value, fn = node["value"].detach().double(), node["fn"]
    masks = [(node["mask"], fn.event_dim)]
    while hasattr(fn, "base_dist"):  # .mask(...) of a distribution, under what expands or groups it
        masks.append((getattr(fn, "_mask", None), fn.event_dim))
        fn = fn.base_dist
    for mask, num_event_dims in masks:
        if isinstance(mask, Tensor):
            value = value.masked_fill(
                ~mask.bool().reshape(mask.shape + (1,) * num_event_dims), torch.nan
            )
        elif mask is False:
            value = torch.full_like(value, torch.nan)
    return cast(Tensor, value)


def categories(program: Program, name: str) -> int:
    """Number of values of a categorical observed site; 0 for numbers and bits."""
    site = program.site(name)
    support = getattr(site.support, "base_constraint", site.support)
    if site.distribution != "Categorical" or not isinstance(support, constraints.integer_interval):
        return 0
    return int(support.upper_bound) + 1


def stems(sites: Iterable[Site]) -> dict[str, list[str]]:
    """Stems of steps of one ``pyro.markov`` loop, such as ``x_0``, ``x_1``; others alone."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for site in sites:
        stem = re.sub(r"[_\[(.]?\d+[\])]?$", "", site.name)
        key = (
            (stem, site.kind, site.distribution, site.num_values)
            if site.in_chain and stem
            else (site.name,)
        )
        groups.setdefault(key, []).append(site.name)
    return {key[0] if len(members) > 1 else members[0]: members for key, members in groups.items()}


def present(program: Program, params: Params, name: str) -> Tensor:
    """Mask of the values of a latent site that count, bool in the shape of its batch."""
    node = _nodes(program, program.model, params, 0)[name]
    return (~_seen(node).isnan()).reshape(*node["fn"].batch_shape, -1).all(-1)


def tables_of(program: Program, values: Params) -> dict[str, Tensor]:
    """Observed values as tables with one row a unit, (N, P), by name.

    Sites of a sequence stand side by side; of values that are names each row gives the share of
    every name.

    Args:
        program: whose sites they are; values: by site.
    """
    out: dict[str, Tensor] = {}
    for stem, members in stems(program.site(name) for name in values).items():
        flat = [
            values[name].reshape(len(values[name]) if values[name].dim() else 1, -1)
            for name in members
        ]
        if len({len(part) for part in flat}) > 1:
            out |= dict(zip(members, flat, strict=True))
            continue
        joined = torch.cat(flat, 1)
        num_values = categories(program, members[0])
        if num_values > 2:
            seen = (~joined.isnan()).sum(1, keepdim=True).clamp(min=1)
            shares = (
                torch.stack([(joined == value).sum(1) for value in range(num_values)], 1) / seen
            )
            out[f"share of each value of {stem}"] = shares.double()
        elif joined.shape[1] > MOST_COLUMNS:
            out[stem] = joined[
                :, torch.linspace(0, joined.shape[1] - 1, MOST_COLUMNS).round().long()
            ]
        else:
            out[stem] = joined
    return out
