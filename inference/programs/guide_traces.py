"""Guide traces: the only other file that opens Pyro traces, beside ``programs.program``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from pyro import poutine
from torch import Tensor

from inference.programs.program import Params


def hidden(model: Callable[..., Any], sites: Collection[str]) -> Callable[..., Any]:
    """The model without some of its sites, for guides that do not draw them."""
    out: Callable[..., Any] = poutine.block(model, hide=list(sites))
    return out


def drawn_sites(guide: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, bool]:
    """Names of the sites that a guide draws, and whether each is auxiliary."""
    trace = poutine.trace(guide).get_trace(*args)
    nodes = {
        name: node
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and not node["is_observed"]
    }
    return {
        name: (
            bool((node["infer"] or {}).get("is_auxiliary"))
            or type(node["fn"]).__name__ == "_Subsample"
        )
        for name, node in nodes.items()
    }


def one_draw(
    guide: Callable[..., Any], args: tuple[Any, ...], names: Collection[str], but: Collection[str]
) -> tuple[Params, Tensor]:
    """Values of some sites, and the log density of all sites ``but`` those named."""
    trace = poutine.trace(guide).get_trace(*args)
    trace.compute_log_prob(lambda name, site: name not in but)
    total = sum(
        (node["log_prob_sum"] for node in trace.nodes.values() if "log_prob_sum" in node),
        torch.zeros(()),
    )
    return {name: torch.as_tensor(trace.nodes[name]["value"]) for name in names}, total
