"""Observed sites of a program, and data sets of the same shape drawn from it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, cast

import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from pyro.poutine.uncondition_messenger import UnconditionMessenger
from torch import Tensor
from torch.distributions import constraints

from inference.programs.global_state import isolated
from inference.programs.program import Params, Program
from inference.programs.sites import Site, sample_nodes
from inference.programs.wrap import in_words
from ppl_models.data.tables import map_tensors

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
    names = observed_names(program)
    model = _Drawn(names)(getattr(program.model, "drawing", program.model))
    nodes = _nodes(program, model, params, seed)
    return {name: _seen(nodes[name]) for name in names}


class _Drawn(UnconditionMessenger):
    """Draws what is observed at some sites; what ``pyro.deterministic`` records stays computed."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self.names = names

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.names:
            super()._pyro_sample(msg)


class _DrawnInPlace(Messenger):
    """Draws what is observed into the data that it was read from, while the program runs.

    What comes later in the program, such as the next step of a sequence, reads the drawn values.

    Args:
        names: of the sites; data: tensors, alone or nested, that will be written to.
    """

    def __init__(self, names: Collection[str], data: Any) -> None:
        super().__init__()
        self.names = names
        self.places: dict[str, Tensor] = {}  # in the data, by site
        self.hidden: dict[str, tuple[Tensor, Tensor]] = {}  # what was there, and where no draw is
        self.log_probs: dict[str, Tensor] = {}  # of all sites, before their draws are written
        self.storages = set[int]()
        map_tensors(lambda x: self.storages.add(x.untyped_storage().data_ptr()), data)

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] not in self.names:
            return
        place = msg["value"]
        if (
            not isinstance(place, Tensor)
            or place.untyped_storage().data_ptr() not in self.storages
            or any(n > 1 and step == 0 for n, step in zip(place.shape, place.stride(), strict=True))
        ):
            raise ValueError(
                f"bootstrap: what is observed at {msg['name']!r} was expected to be one of the"
                " program's arguments or a part of it, into which new data are drawn, and it is"
                " computed or held elsewhere: give it as an argument, in the dtype in which it is"
                " observed"
            )
        self.places[msg["name"]] = place
        msg["is_observed"], msg["value"] = False, None

    def _pyro_post_sample(self, msg: Any) -> None:
        name, value = msg["name"], msg["value"]
        if type(msg["fn"]).__name__ == "_Subsample":
            return
        self.log_probs[name] = msg["fn"].log_prob(value)
        place = self.places.get(name)
        if place is None:
            return
        if place.shape != value.shape:
            raise ValueError(
                f"bootstrap: data of shape {tuple(value.shape)}, that of site {name!r} in its"
                f" plates, were expected, got {tuple(place.shape)}"
            )
        self.hidden[name] = place.clone(), place.isnan() | _seen(msg).isnan()
        place.copy_(value)


def drawn_data(program: Program, params: Params, seed: int) -> Any:
    """The program's data with everything observed drawn anew, latents too.

    Covariates, lengths and gaps are those of the data; steps of a sequence that read the steps
    before read the drawn ones.

    Raises:
        ValueError: for a site that observes no part of the data, or one whose distribution depends
            on what is drawn with it or later.
    """
    with isolated(seed):
        params = params | program.latents_above(params)
    data = map_tensors(torch.clone, program.args[0])
    plain: Any = getattr(program.model, "drawing", program.model)
    runs = []
    for names in (observed_names(program), ()):
        one, model = _DrawnInPlace(names, data), copy.copy(plain)
        model.model = one(plain.model)
        with isolated(seed), torch.no_grad(), in_words(plain):
            trace = poutine.trace(poutine.condition(model, params)).get_trace(data)
        nodes = sample_nodes(trace)
        params = params | {n: node["value"] for n, node in nodes.items() if n not in one.names}
        runs.append(one)
    drawn, again = runs  # the second with all drawn values there from the start
    for name, log_prob in drawn.log_probs.items():
        if not torch.allclose(log_prob, again.log_probs[name], 1e-5, 1e-5, equal_nan=True):
            raise ValueError(
                f"bootstrap: the distribution of site {name!r} was expected to depend on no data"
                " that are drawn with it or after it, and does: draw them step by step, in a loop"
                " whose steps read the steps before"
            )
    for name, (before, is_hidden) in drawn.hidden.items():
        drawn.places[name].copy_(torch.where(is_hidden, before, drawn.places[name]))
    return data


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
