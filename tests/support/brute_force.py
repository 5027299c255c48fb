"""The latents of any program summed out by visiting every configuration: plain Pyro traces, no
enumeration, no contraction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from torch import Tensor

Params = dict[str, Tensor]


@dataclass(frozen=True)
class BruteForce:
    """Every configuration c of one row's latents.

    Args:
        log_joint: (C, N), log p(x_n, c | params), summed over whatever the row holds.
        index: latent site -> (C, E), which value each of the site's E entries in a row takes (E = 1
            in a flat plate).
        values: latent site -> (V, *event), its support.
    """

    log_joint: Tensor
    index: dict[str, Tensor]
    values: dict[str, Tensor]

    @property
    def log_marginal(self) -> Tensor:
        """(N,)."""
        return self.log_joint.logsumexp(0)

    @property
    def posterior(self) -> Tensor:
        """(C, N)."""
        return self.log_joint.softmax(0)

    def marginal(self, *sites: str, entry: int = 0) -> Tensor:
        """Joint posterior of one entry of the named sites, (V_1, V_2, ..., N)."""
        sizes = [len(self.values[site]) for site in sites]
        out = self.posterior.new_zeros(*sizes, self.log_joint.shape[1])
        for c, weight in enumerate(self.posterior):
            out[tuple(int(self.index[site][c, entry]) for site in sites)] += weight
        return out


def plain_trace(model: Callable[..., Any], params: Params, *args: Any) -> Any:
    """One run of the program with some sites fixed; its random draws do not reach the caller."""
    with (
        torch.random.fork_rng(devices=[]),
        pyro.get_param_store().scope(),
        pyro.validation_enabled(False),
    ):
        torch.default_generator.manual_seed(
            0
        )  # the CPU alone: torch.manual_seed files a stack trace for every other device
        return poutine.trace(poutine.condition(model, params)).get_trace(*args)


def _samples(trace: Any) -> dict[str, Any]:
    return {
        name: node
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and type(node["fn"]).__name__ != "_Subsample"
    }


def brute_force(model: Callable[..., Any], params: Params, *args: Any) -> BruteForce:
    """Visit every configuration.

    Rows are the outermost plate that all latent and observed sites share.

    Continuous latents of the rows have their values among ``params``; their prior density is part
    of the joint.
    """
    nodes = _samples(plain_trace(model, params, *args))
    latents = {n: s for n, s in nodes.items() if not s["is_observed"] and n not in params}
    local = {n: s for n, s in nodes.items() if n not in params}
    frames = [[f for f in node["cond_indep_stack"] if f.vectorized] for node in local.values()]
    row = next(f for f in frames[0] if all(f in other for other in frames))
    values, entries = {}, {}
    for name, node in latents.items():
        fn = node["fn"]
        support = fn.enumerate_support(expand=False)
        values[name] = support.reshape(support.shape[:1] + fn.event_shape)
        shape = list(fn.batch_shape)
        shape[row.dim] = 1
        entries[name] = shape
    choices = [
        list(
            itertools.product(
                range(len(values[name])), repeat=int(torch.tensor(entries[name]).prod())
            )
        )
        for name in latents
    ]
    index: dict[str, list[tuple[int, ...]]] = {name: [] for name in latents}
    rows = []
    for configuration in itertools.product(*choices):
        fixed = dict(params)
        for name, picked in zip(latents, configuration, strict=True):
            fn = latents[name]["fn"]
            value = values[name][torch.tensor(picked)].reshape(*entries[name], *fn.event_shape)
            fixed[name] = value.expand(fn.batch_shape + fn.event_shape)
            index[name].append(picked)
        total = torch.zeros(row.size, dtype=torch.float64)
        for name, node in _samples(plain_trace(model, fixed, *args)).items():
            if name not in params or row.name in (
                f.name for f in node["cond_indep_stack"]
            ):  # continuous latents are given
                log_prob = scale_and_mask(node["fn"].log_prob(node["value"]), mask=node["mask"])
                total = total + log_prob.movedim(row.dim, 0).reshape(row.size, -1).sum(-1)
        rows.append(total)
    return BruteForce(
        torch.stack(rows), {name: torch.tensor(picked) for name, picked in index.items()}, values
    )


def enumerated_parents(
    model: Callable[..., Any], params: Params, nesting: int, *args: Any
) -> dict[str, dict[int, str]]:
    """Which latent each enumerated dim of a site's log-density stands for: site -> dim -> latent
    site.

    Read off Pyro's own enumeration; in a pyro.markov chain a dim is reused, and stands for its
    latest latent.
    """
    enumerated = poutine.enum(
        pyro.infer.config_enumerate(poutine.condition(model, params), default="parallel"),
        first_available_dim=-1 - nesting,
    )
    with torch.random.fork_rng(devices=[]):
        nodes = _samples(poutine.trace(enumerated).get_trace(*args))
    latest: dict[int, str] = {}
    out: dict[str, dict[int, str]] = {}
    for name, node in nodes.items():
        dim = node["infer"].get("_enumerate_dim")
        if dim is not None:
            latest[dim] = name
        if name not in params:
            log_prob = node["fn"].log_prob(node["value"])
            out[name] = {
                d: s for d, s in latest.items() if -d <= log_prob.dim() and log_prob.shape[d] > 1
            }
    return out
