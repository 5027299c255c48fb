r"""Kernel EM for mixtures of conditionally independent one-dimensional variates: the nonparametric
rival of classifier networks.

With responsibilities :math:`p_{ni} \propto w_i \prod_v g_v^{(i)}(x_{nv})`, each round sets

.. math::

    w_i = \frac1N \sum_n p_{ni}, \qquad f_v^{(i)}(u) = \frac{1}{N w_i} \sum_n p_{ni} K_h(u -
    x_{nv}),

and g = f (npEM), or, smoothed, :math:`g = \exp(K_h * \log f)`. npEM has no objective that it
climbs. The smoothed form maximises :math:`\sum_n \log \sum_i w_i \prod_v g_v^{(i)}(x_{nv})` and
never lets it fall: on the grid used here, :math:`\log g(x_n) = \sum_u S_{nu} \log f(u)` with
:math:`S \ge 0` and rows that sum to one, so :math:`f(u) \propto \sum_n p_{ni} S_{nu}` is the exact
maximum of the bound of Jensen's inequality.

Densities live on an even grid; rows are spread over their two neighbouring nodes (linear binning),
so a round costs N V C + V C G^2, whatever the kernel.

Source: T. Benaglia, D. Chauveau and D. R. Hunter (2009), An EM-like algorithm for semi- and
nonparametric estimation in multivariate mixtures, doi:10.1198/jcgs.2009.07175; M. Levine, D. R.
Hunter and D. Chauveau (2011), Maximum smoothed likelihood for multivariate mixtures,
doi:10.1093/biomet/asq079.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppl_models.data.tables import as_table, check_complete
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import (
    check_flag,
    check_kind,
    check_number,
    check_size,
    plain_fields,
)

MARGIN = 4.0  # of the grid beyond the data, in bandwidths
FLOOR = 1e-300
VOID, LEAST_SHARE = 1e-250, 1e-12  # of a marginal density, and of a component's part in it
COARSE = 12  # bins of a variate for starts


@dataclass(frozen=True)
class KernelEM:
    """Settings.

    Args:
        smoothed: take the smoothed form, whose objective never falls.
        bandwidths: one a variate; None for Silverman's rule.
        by_component: with npEM and Silverman's rule, bandwidths of each component anew in each
            round.
        grid_size: nodes a variate.
        max_rounds, tolerance: it stops where the mean of the objective a row changes less.
        num_restarts: one batch; half of them start near random rows, half at random cuts of a
            variate.

    Raises:
        ValueError: for settings out of range.
    """

    smoothed: bool = False
    bandwidths: tuple[float, ...] | None = None
    by_component: bool = False
    grid_size: int = 300
    max_rounds: int = 300
    tolerance: float = 1e-6
    num_restarts: int = 10

    def __post_init__(self) -> None:
        owner = "KernelEM"
        plain_fields(self)
        check_flag(owner, "smoothed", self.smoothed)
        check_flag(owner, "by_component", self.by_component)
        if self.bandwidths is not None:
            check_kind(owner, "bandwidths", self.bandwidths, tuple, "one positive number a variate")
            for number in self.bandwidths:
                check_number(owner, "bandwidths", number, "be positive", above=0)
        if self.by_component and (self.smoothed or self.bandwidths is not None):
            raise ValueError(
                f"{owner}: by_component needs npEM (smoothed=False) and Silverman's rule"
                " (bandwidths=None)"
            )
        check_size(owner, "grid_size", self.grid_size, 20)
        for name in ("max_rounds", "num_restarts"):
            check_size(owner, name, getattr(self, name))
        check_number(owner, "tolerance", self.tolerance, "not be negative", least=0)


@shows_briefly
@dataclass(frozen=True, eq=False)
class KernelMixture:
    """An estimate.

    Args:
        weights: (C,), falling.
        starts, steps: (V,), first node and distance of nodes of each grid.
        densities: (V, C, G), f at the nodes.
        log_factors: (V, C, G), log g at the nodes; None for npEM, where g = f.
        bandwidths: (V, C).
        trace: objective a row by round, in the restart that came out best: the smoothed
            log-likelihood, or the log-likelihood of npEM's densities.
        converged: whether it stopped before ``max_rounds``.
    """

    weights: Tensor
    starts: Tensor
    steps: Tensor
    densities: Tensor
    log_factors: Tensor | None
    bandwidths: Tensor
    trace: Tensor
    converged: bool

    def nodes(self, variate: int) -> Tensor:
        """The grid of a variate, (G,)."""
        return self.starts[variate] + self.steps[variate] * torch.arange(
            self.densities.shape[-1], dtype=self.steps.dtype
        )

    def density(self, variate: int, x: Any) -> Tensor:
        """f of every component at values (n,) of a variate, (n, C); zero off the grid."""
        values = torch.as_tensor(x, dtype=self.steps.dtype)
        place = (values - self.starts[variate]) / self.steps[variate]
        inside = (place >= 0) & (place <= self.densities.shape[-1] - 1)
        return (
            _between(self.densities[variate], *_binned(place, self.densities.shape[-1])) * inside
        ).mT

    def classifiers(self, variate: int, x: Any) -> Tensor:
        """P(component | x_v) at values (n,) of a variate, (n, C)."""
        joint = self.weights * self.density(variate, x)
        return joint / joint.sum(-1, keepdim=True)

    def posterior(self, data: Any) -> Tensor:
        """P(component | row), (N, C)."""
        return self._log_joint(self._table(data)).softmax(-1)

    def log_ratio(self, data: Any) -> Tensor:
        r""":math:`\log \sum_i w_i \prod_v f_v^{(i)} - \sum_v \log \sum_i w_i f_v^{(i)}` of rows (N,
        V): (N,), relative to its own marginals.

        The marginals are those of a kernel estimate of the data, so that minus the mean of this is
        what a cost relative to independence is for networks. A value so far from all rows of the
        fit that no density reaches it says nothing of the component.
        """
        table = self._table(data)
        joint = self.weights.clamp(min=FLOOR).log().expand(len(table), -1)
        for v in range(len(self.densities)):
            density = self.density(v, table[:, v])  # (N, C)
            marginal = (density @ self.weights)[:, None]
            share = (density / marginal.clamp(min=FLOOR)).clamp(min=LEAST_SHARE).log()
            joint = joint + torch.where(marginal > VOID, share, 0.0)
        return joint.logsumexp(-1)

    def _table(self, data: Any) -> Tensor:
        table = as_table(data)[0].to(self.steps)
        if table.shape[1] != len(self.densities):
            raise ValueError(
                f"data: {len(self.densities)} columns were expected, got {table.shape[1]}"
            )
        return table

    def _log_joint(self, table: Tensor) -> Tensor:
        """log w_i prod_v g_v^(i), (N, C)."""
        joint = self.weights.clamp(min=FLOOR).log()[:, None]
        for v, density in enumerate(self.densities):
            place = _binned((table[:, v] - self.starts[v]) / self.steps[v], density.shape[-1])
            joint = joint + _log_at(
                density, None if self.log_factors is None else self.log_factors[v], *place
            )
        return joint.mT


def kernel_em(
    data: Any, num_components: int, method: KernelEM | None = None, seed: int = 0
) -> KernelMixture:
    """Fit a mixture of C components to rows of V one-dimensional variates by kernels.

    Args:
        data: (N, V) tensor, array or data frame, complete.
        num_components: C.
        method: settings; None for npEM with Silverman's rule.
        seed: of the starts.

    Raises:
        ValueError: for fewer than two variates, missing entries, constant columns, fewer rows than
            components, or other bandwidths than columns.
    """
    owner = "kernel_em"
    table, names = as_table(data)
    table = table.double().cpu()
    check_complete(owner, table, names)
    settings = KernelEM() if method is None else method
    check_kind(owner, "method", settings, KernelEM, "KernelEM()")
    check_size(owner, "num_components", num_components)
    check_size(owner, "seed", seed, 0)
    num_rows, num_variates = table.shape
    if num_variates < 2:
        raise ValueError(f"{owner}: at least two variates were expected, got one column")
    if num_rows < num_components or num_rows < 2:
        raise ValueError(
            f"{owner}: at least {max(2, num_components)} rows were expected, got {num_rows}"
        )
    constant = [
        name
        for name, column in zip(names, table.mT, strict=True)
        if bool((column == column[0]).all())
    ]
    if constant:
        raise ValueError(f"{owner}: column {constant[0]!r} holds one value only; leave it out")
    if settings.bandwidths is not None and len(settings.bandwidths) != num_variates:
        raise ValueError(
            f"{owner}: {num_variates} bandwidths were expected, one a column, got"
            f" {len(settings.bandwidths)}"
        )
    return _fit(table, num_components, settings, torch.Generator().manual_seed(seed))


def silverman(values: Tensor, weights: Tensor | None = None) -> float:
    """.9 min(sd, IQR / 1.349) n^(-1/5), of weighted values."""
    chances = (
        torch.full_like(values, 1 / len(values)) if weights is None else weights / weights.sum()
    )
    mean = chances @ values
    spread = math.sqrt(float(chances @ (values - mean).square()))
    order = values.argsort()
    cumulative = chances[order].cumsum(0)
    last = len(values) - 1
    low, high = (
        float(values[order[min(last, int(torch.searchsorted(cumulative, level)))]])
        for level in (0.25, 0.75)
    )
    robust = (high - low) / 1.349
    size = len(values) if weights is None else float(weights.sum())
    return 0.9 * (min(spread, robust) if robust > 0 else spread) * max(size, 2.0) ** -0.2


def _binned(place: Tensor, grid_size: int) -> tuple[Tensor, Tensor]:
    """Left neighbour among the nodes and the share of the right one, (n,); values off the grid
    belong to its ends.
    """
    inside = place.clamp(0, grid_size - 1)
    left = inside.floor().clamp(max=grid_size - 2)
    return left.long(), inside - left


def _between(values: Tensor, left: Tensor, share: Tensor) -> Tensor:
    """Values (..., G) at places between nodes, (..., n)."""
    return values[..., left] * (1 - share) + values[..., left + 1] * share


def _log_at(densities: Tensor, log_factors: Tensor | None, left: Tensor, share: Tensor) -> Tensor:
    """log g of rows, (..., n), from its values at the nodes or, for npEM, from the densities
    there.
    """
    if log_factors is not None:
        return _between(log_factors, left, share)
    return _between(densities, left, share).clamp(min=FLOOR).log()


def _spread(weights: Tensor, left: Tensor, share: Tensor, grid_size: int) -> Tensor:
    """Weights of rows (..., n) collected at the nodes, (..., G): the transpose of
    :func:`_between`.
    """
    flat = weights.reshape(-1, weights.shape[-1])
    out = torch.zeros(len(flat), grid_size, dtype=weights.dtype)
    out.index_add_(1, left, flat * (1 - share)).index_add_(1, left + 1, flat * share)
    return out.reshape(*weights.shape[:-1], grid_size)


def _kernel(nodes: Tensor, bandwidth: Tensor) -> Tensor:
    """Normal kernel between nodes, (..., G, G), rows of chances; bandwidth (...)."""
    scaled = (nodes[:, None] - nodes) / bandwidth[..., None, None]
    weights = (-0.5 * scaled.square()).exp()
    return weights / weights.sum(-1, keepdim=True)


def _fit(table: Tensor, size: int, settings: KernelEM, generator: torch.Generator) -> KernelMixture:
    num_rows, num_variates = table.shape
    rule = (
        [silverman(column) for column in table.mT]
        if settings.bandwidths is None
        else list(settings.bandwidths)
    )
    starts = table.amin(0) - MARGIN * torch.tensor(rule, dtype=table.dtype)
    steps = (table.amax(0) + MARGIN * torch.tensor(rule, dtype=table.dtype) - starts) / (
        settings.grid_size - 1
    )
    rows = [
        _binned((table[:, v] - starts[v]) / steps[v], settings.grid_size)
        for v in range(num_variates)
    ]
    grids = [
        starts[v] + steps[v] * torch.arange(settings.grid_size, dtype=table.dtype)
        for v in range(num_variates)
    ]
    kernels = [
        _kernel(grid, torch.tensor(h, dtype=table.dtype))
        for grid, h in zip(grids, rule, strict=True)
    ]
    posterior = _starts(table, size, settings.num_restarts, generator)  # (R, C, N)
    bandwidths = torch.tensor(rule, dtype=table.dtype)[:, None].expand(num_variates, size)
    widths = bandwidths.expand(settings.num_restarts, num_variates, size).clone()
    traces, last = [], torch.full((settings.num_restarts,), -math.inf, dtype=table.dtype)
    converged = False
    for _ in range(settings.max_rounds):
        weights = posterior.mean(-1).clamp(min=FLOOR)  # (R, C)
        log_joint = weights.log()[..., None].expand_as(posterior)
        densities: list[Tensor] = []
        factors: list[Tensor] = []
        for v in range(num_variates):
            counts = _spread(posterior, *rows[v], settings.grid_size) / (
                num_rows * weights[..., None] * steps[v]
            )  # (R, C, G)
            if settings.by_component:
                widths[:, v] = _component_widths(
                    grids[v], counts * (num_rows * weights[..., None] * steps[v])
                )
                smooth = torch.stack(
                    [
                        (own.unsqueeze(1) @ _kernel(grids[v], h)).squeeze(1)
                        for own, h in zip(counts, widths[:, v], strict=True)
                    ]
                )
            else:
                smooth = counts @ kernels[v]
            factor = smooth.clamp(min=FLOOR).log() @ kernels[v].mT if settings.smoothed else None
            densities.append(smooth)
            factors += [] if factor is None else [factor]
            log_joint = log_joint + _log_at(smooth, factor, *rows[v])
        objective = log_joint.logsumexp(1).mean(-1)  # (R,)
        traces.append(objective)
        if bool(((objective - last).abs() < settings.tolerance).all()):
            converged = True
            break
        last, posterior = objective, log_joint.softmax(1)
    best = int(traces[-1].argmax())
    order = weights[best].argsort(descending=True)
    density = torch.stack([part[best, order] for part in densities])
    log_factors = torch.stack([part[best, order] for part in factors]) if factors else None
    trace = torch.stack([objective[best] for objective in traces])
    return KernelMixture(
        weights[best, order],
        starts,
        steps,
        density,
        log_factors,
        widths[best][:, order],
        trace,
        converged,
    )


def _component_widths(nodes: Tensor, counts: Tensor) -> Tensor:
    """Silverman's rule for every component, from its counts at the nodes: (R, C)."""
    return torch.tensor(
        [[silverman(nodes, own) for own in restart] for restart in counts], dtype=nodes.dtype
    )


def _starts(table: Tensor, size: int, num_restarts: int, generator: torch.Generator) -> Tensor:
    """Responsibilities (R, C, N): soft ones by the distance to random rows, or hard ones by a
    random colouring of the bins of a variate.
    """
    scaled = (table - table.mean(0)) / table.std(0)
    out = []
    for restart in range(num_restarts):
        if restart % 2 == 0:
            centres = scaled[torch.randperm(len(table), generator=generator)[:size]]
            out.append((-0.5 * (scaled[None] - centres[:, None]).square().sum(-1)).softmax(0))
        else:
            v = int(torch.randint(table.shape[1], (1,), generator=generator))
            rank = table[:, v].argsort().argsort()
            colours = torch.randint(size, (COARSE,), generator=generator)
            colours[torch.randperm(COARSE, generator=generator)[:size]] = torch.arange(
                min(size, COARSE)
            )
            hard = torch.nn.functional.one_hot(colours[rank * COARSE // len(table)], size).mT.to(
                table
            )
            out.append(0.9 * hard + 0.1 / size)
    return torch.stack(out)
