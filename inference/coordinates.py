"""Free coordinates of parameters: logits of probabilities, logs of positive numbers, everything else as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import constraints

from inference.information import entry_names
from inference.program import Params, Program

__all__ = ["Coordinates"]

NEAR = 5e-4  # of an interval's length: this near its end is on it
RATIO = 1.001  # a positive number within this factor of its limit is on it
SMALL = 2e-6  # a probability this near 0 or 1 is on the bound


@dataclass(frozen=True, eq=False)
class _SitePart:
    name: str
    scale: str  # "identity", "logit", "log" or "simplex"
    lower: Tensor  # of the shape of the site
    upper: Tensor
    free: Tensor  # bool, of the shape of the site


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A vector of free entries and the parameters it stands for.

    Args:
        center: the parameters whose held entries are kept.
        parts: the sites in order.
    """

    center: Params
    parts: tuple[_SitePart, ...]

    @classmethod
    def of(cls, program: Program, params: Params) -> Coordinates:
        """Coordinates at an estimate: entries that are exactly zero on an unbounded-looking scale are held.

        Raises:
            ValueError: for a site whose support has no rule here, naming it, or local sites.
        """
        if program.names("local"):
            raise ValueError(f"standard_errors: local sites {program.names('local')} cannot be summed out")
        parts = []
        for name in program.names("parameter"):
            value = params[name]
            base = program.site(name).support
            while hasattr(base, "base_constraint"):
                base = base.base_constraint
            graph = getattr(base, "graph", None)
            base = getattr(base, "base", base)
            while hasattr(base, "base_constraint"):
                base = base.base_constraint
            scale, lower, upper = _scale(name, base)
            low, high = (_filled(limit, value, graph) for limit in (lower, upper))
            free = torch.ones_like(value, dtype=torch.bool)
            if scale == "identity":
                free = value != 0 if graph is None else graph.to(value.device) & (value != 0)
            if scale == "simplex":
                free[..., -1] = False
            parts.append(_SitePart(name, scale, low, high, free))
        return cls(params, tuple(parts))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the free entries."""
        ordered = {part.name: self.center[part.name] for part in self.parts}
        return entry_names(ordered, {part.name: part.free for part in self.parts})

    def at_bound(self) -> list[str]:
        """Free entries on the end of their interval."""
        found = []
        for part in self.parts:
            value = self.center[part.name]
            if part.scale in ("logit", "simplex"):
                edge = (value < SMALL) | (value > 1 - SMALL)
            elif part.scale == "log":
                edge = (value <= part.lower * RATIO) | (value * RATIO >= part.upper)
            else:
                length = part.upper - part.lower
                finite = torch.isfinite(length)
                share = torch.where(finite, (value - part.lower) / torch.where(finite, length, 1.0), 0.5)
                edge = (share < NEAR) | (share > 1 - NEAR)
            found += list(entry_names({part.name: value}, {part.name: edge & part.free}))
        return found

    def without(self, names: Sequence[str]) -> Coordinates:
        """The same with some entries held."""
        parts = []
        for part in self.parts:
            own = entry_names({part.name: self.center[part.name]}, {part.name: part.free})
            keep = torch.tensor([name not in names for name in own], dtype=torch.bool)
            free = part.free.clone()
            free[part.free] = keep
            parts.append(replace(part, free=free))
        return replace(self, parts=tuple(parts))

    def vector(self) -> Tensor:
        """The estimate as a free vector, (P,)."""
        out = []
        for part in self.parts:
            value = self.center[part.name]
            moved = {"identity": lambda v: v, "logit": torch.logit, "log": torch.log, "simplex": _log_ratio}[part.scale](value)
            out.append(moved[part.free])
        return torch.cat(out)

    def params(self, free: Tensor) -> Params:
        """The parameters a free vector stands for; differentiable."""
        out, start = {}, 0
        for part in self.parts:
            size = int(part.free.sum())
            own, value = free[start : start + size], self.center[part.name]
            start += size
            if part.scale == "simplex":
                ratios = _log_ratio(value).masked_scatter(part.free, own)
                out[part.name] = torch.softmax(ratios, -1)
            else:
                own = {"identity": lambda v: v, "logit": torch.sigmoid, "log": torch.exp}[part.scale](own)
                out[part.name] = value.masked_scatter(part.free, own)
        return out

    def log_jacobian(self, draws: Params) -> Tensor:
        """Log of the volume of parameters a unit of coordinates, at draws (D, ...), (D,)."""
        total = torch.zeros(len(next(iter(draws.values()))), dtype=torch.float64)
        for part in self.parts:
            value = draws[part.name]
            if part.scale == "identity":
                continue
            log = value.log() + (torch.log1p(-value) if part.scale == "logit" else 0.0)
            kept = torch.ones_like(part.free) if part.scale == "simplex" else part.free
            total = total.to(log) + (log * kept).reshape(len(log), -1).sum(-1)
        return total

    def clamped(self, draws: Params) -> tuple[Params, Tensor]:
        """Draws (D, ...) cut at the bounds of their intervals, and which were inside, (D,)."""
        out, inside = dict(draws), torch.ones(len(next(iter(draws.values()))), dtype=torch.bool)
        for part in self.parts:
            if part.scale in ("identity", "log"):
                value = draws[part.name]
                out[part.name] = torch.where(part.free, value.clamp(part.lower, part.upper), value)
                inside &= ((out[part.name] == value) | ~part.free).reshape(len(value), -1).all(-1).cpu()
        return out, inside

    def spread(self, free: Tensor, covariance: Tensor) -> Params:
        """Standard errors in the parameters' own units, NaN where held."""
        out, start = {}, 0
        for part in self.parts:
            size = int(part.free.sum())
            own = slice(start, start + size)
            start += size
            value = self.center[part.name]
            error = covariance[own, own].diagonal().clamp(min=0).sqrt()
            if part.scale == "simplex":
                out[part.name] = _simplex_spread(value, part.free, covariance[own, own])
                continue
            if part.scale == "logit":
                error = error * value[part.free] * (1 - value[part.free])
            elif part.scale == "log":
                error = error * value[part.free]
            out[part.name] = torch.full_like(value, torch.nan).masked_scatter(part.free, error)
        return out

    def limits(self, free: Tensor, covariance: Tensor, width: float) -> dict[str, tuple[Tensor, Tensor]]:
        """Confidence limits: the estimate plus and minus ``width`` standard errors on the free scale, taken back."""
        error = covariance.diagonal().clamp(min=0).sqrt()
        low, high = self.params(free - width * error), self.params(free + width * error)
        spread = self.spread(free, covariance)
        out = {}
        for part in self.parts:
            if part.scale == "simplex":  # on the logit of each entry
                value = self.center[part.name]
                step = width * spread[part.name] / (value * (1 - value))
                out[part.name] = (torch.sigmoid(torch.logit(value) - step), torch.sigmoid(torch.logit(value) + step))
            else:
                held = ~part.free
                out[part.name] = (
                    low[part.name].masked_fill(held, torch.nan),
                    high[part.name].masked_fill(held, torch.nan),
                )
        return out


def _scale(name: str, support: constraints.Constraint) -> tuple[str, Tensor, Tensor]:
    infinite = torch.tensor(torch.inf, dtype=torch.float64)
    if support is constraints.simplex:
        return "simplex", torch.zeros(()), torch.ones(())
    if support is constraints.real or support is constraints.real_vector:
        return "identity", -infinite, infinite
    lower, upper = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if lower is not None:
        low = torch.as_tensor(lower, dtype=torch.float64)
        high = infinite if upper is None else torch.as_tensor(upper, dtype=torch.float64)
        if upper is not None and bool((low == 0).all() and (high == 1).all()):
            return "logit", low, high
        return ("log" if bool((low >= 0).all()) else "identity"), low, high
    raise ValueError(f"standard_errors: site {name!r} with support {support} has no coordinates here")


def _filled(limit: Tensor, value: Tensor, graph: Tensor | None) -> Tensor:
    limit = limit.to(value)
    if graph is None or not limit.dim():
        return limit.expand(value.shape)
    return torch.zeros_like(value).masked_scatter(graph.to(value.device), limit)


def _log_ratio(value: Tensor) -> Tensor:
    return value.log() - value[..., -1:].log()


def _simplex_spread(value: Tensor, free: Tensor, covariance: Tensor) -> Tensor:
    """Delta method through softmax; entries share the ratios of their own row."""
    rows = value.reshape(-1, value.shape[-1])
    mask = free.reshape(rows.shape)
    place = torch.full(rows.shape, -1, dtype=torch.long)
    place[mask] = torch.arange(int(mask.sum()))
    out = []
    for p, own in zip(rows, place, strict=True):
        jacobian = torch.diag(p) - torch.outer(p, p)
        jacobian = jacobian[:, own >= 0]
        index = own[own >= 0]
        block = covariance[index][:, index]
        out.append(((jacobian @ block) * jacobian).sum(-1).clamp(min=0).sqrt())
    return torch.stack(out).reshape(value.shape)
