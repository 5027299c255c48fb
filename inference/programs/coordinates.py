"""Free coordinates of parameters: logits, logs, log-ratios and entries of Cholesky factors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.transforms import CorrCholeskyTransform, Transform

from inference.programs.program import Params, Program
from ppl_models.descriptions.covariates import Covariates
from ppl_models.parts.covariances import FamilyCoordinates, InFamily
from ppl_models.parts.precisions import LogCholesky, LogFactor
from ppl_models.parts.probability_tables import Simplexes, segments_of
from ppl_models.sequences.option_chain import MatrixSimplex

NEAR = 5e-4  # of an interval's length: this near its end is on it
RATIO = 1.001  # a positive number within this factor of its limit is on it
SMALL = 2e-6  # a probability this near 0 or 1 is on the bound
UNSEEN, SEEN = 0.01, 0.5  # changes of a log-posterior that leave it where it is, and do not
UNSURE = 0.5  # standard error of a logarithm, at half of the number itself
MOST_ROWS = 1e12  # that a variance is worth at most, as one is that is held
LEAST_FREEDOM = 0.01  # degrees of freedom: limits are as good as infinite there
MATRICES: dict[str, Callable[[int], Transform]] = {
    "cholesky": LogCholesky,  # positive definite
    "factor": LogFactor,  # lower triangular
    "correlation": lambda _: CorrCholeskyTransform(),  # lower triangular, rows of length one
}
FEW_ROWS = (
    5.0  # a chance with fewer rows behind its rarer side gets limits of a score, not of a logit
)


@dataclass(frozen=True, eq=False)
class _SitePart:
    name: str
    scale: str  # "identity", "logit", "log", "simplex", "family", or one of MATRICES
    lower: Tensor  # of the shape of the site
    upper: Tensor
    free: Tensor  # bool, of the shape of the site: entries that are coordinates
    sums: tuple[int, ...] = (
        1,
    )  # of probability vectors: how many entries, one after the other, sum to one
    reference: Tensor = field(
        default_factory=lambda: torch.zeros(0, 1, dtype=torch.long)
    )  # of each of them, (rows, vectors)
    allowed: Tensor | None = (
        None  # bool, of the shape of the site: entries that the model does not hold at zero
    )
    unseen: Tensor | None = None  # bool, likewise: chances of what the data never show
    known: Tensor | None = None  # bool, likewise: entries that were given, shares among them
    source: Tensor | None = None  # likewise: place in the flat site of the entry each is equal to
    chart: FamilyCoordinates | None = None  # of a covariance family: P numbers to all matrices
    covariates: Covariates | None = None  # of coefficients, whose coordinates are standardised

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the free entries, such as ``loadings_1[0,2]`` or ``precisions.volume[0]``."""
        if self.chart is None:
            return entry_names({self.name: self.free}, {self.name: self.free})
        kinds = ("volume", "shape", "orientation")
        numbers = zip(kinds, self.chart.family.sizes, strict=True)
        every = [f"{self.name}.{kind}[{i}]" for kind, size in numbers for i in range(size)]
        is_free = self.free.ravel().tolist()  # whose first entries they are
        return tuple(name for name, free in zip(every, is_free, strict=False) if free)

    def as_good_as_zero(self, value: Tensor) -> Tensor:
        """Entries of probability vectors that are on their bound."""
        return value < SMALL if self.unseen is None else (value < SMALL) | self.unseen

    def coordinates(self, value: Tensor) -> Tensor:
        """Free coordinates of a value of the site, (P,)."""
        return self._moved(value)[self.free]

    def spread_over_ties(self, value: Tensor) -> Tensor:
        """Value, or what is said of its entries, with tied entries as the first of them."""
        return value if self.source is None else value.ravel()[self.source].reshape(value.shape)

    @property
    def is_first(self) -> Tensor:
        """Mask of the entries that are no copies of others, in the shape of the site."""
        if self.source is None:
            return torch.ones_like(self.free)
        every = torch.arange(self.source.numel(), device=self.source.device)
        return (self.source == every).reshape(self.free.shape)

    def value(self, entries: Tensor, center: Tensor) -> Tensor:
        """Value at free coordinates (P,), held entries as in ``center``."""
        return self.spread_over_ties(self._first_value(entries, center))

    def _first_value(self, entries: Tensor, center: Tensor) -> Tensor:
        if self.scale == "simplex" and self.known is not None:
            return self._shares_beside_known(entries, center)
        if self.scale == "simplex":
            ratios = self._moved(center).masked_scatter(self.free, entries)
            if len(self.sums) == 1:
                return torch.softmax(ratios.reshape(-1, *self.sums), -1).reshape(center.shape)
            vectors = segments_of(self.sums, center.device)
            rows = ratios.reshape(-1, vectors.num_entries)
            return (rows - vectors.spread(vectors.log_total(rows))).exp().reshape(center.shape)
        if self.covariates is not None:
            return self.covariates.plain(self._moved(center).masked_scatter(self.free, entries))
        if self.chart is not None:
            every = self._moved(center).masked_scatter(self.free, entries).ravel()
            return cast(Tensor, self.chart(every[: self.chart.family.num_free]))
        if self.scale in MATRICES:
            lower = self._moved(center).masked_scatter(self.free, entries)
            rows, columns = self._triangle(center)
            return cast(Tensor, self.of_vectors(center)(lower[..., rows, columns]))
        back: dict[str, Callable[[Tensor], Tensor]] = {
            "identity": lambda v: v,
            "logit": torch.sigmoid,
            "log": torch.exp,
        }
        return center.masked_scatter(self.free, back[self.scale](entries))

    def _shares_beside_known(self, entries: Tensor, center: Tensor) -> Tensor:
        """Probability vectors whose free entries share what the known ones leave."""
        assert self.known is not None  # as the caller has seen
        vectors = segments_of(self.sums, center.device)
        known = self.known.reshape(-1, vectors.num_entries)
        given = center.reshape(-1, vectors.num_entries).masked_fill(~known, 0.0)
        whole = vectors.spread(vectors.total((~known).to(center))) == 0
        ratios = self._moved(center).masked_scatter(self.free, entries)
        ratios = ratios.reshape(-1, vectors.num_entries)
        ratios = ratios.masked_fill(known & ~whole, -torch.inf).masked_fill(whole, 0.0)
        shares = (ratios - vectors.spread(vectors.log_total(ratios))).exp()
        shares = shares * (1 - vectors.spread(vectors.total(given)))
        return torch.where(known, given, shares).reshape(center.shape)

    def left(self, value: Tensor) -> Tensor:
        """Log of what known entries leave, summed over vectors of which they are a part, ()."""
        if self.known is None or self.scale != "simplex":
            return value.new_zeros(())
        vectors = segments_of(self.sums, value.device)
        known = self.known.reshape(-1, vectors.num_entries)
        rows = value.reshape(-1, vectors.num_entries).masked_fill(~known, 0.0)
        rest = 1 - vectors.total(rows)
        first = (~known & self.is_first.reshape(known.shape)).to(value)
        return torch.where(vectors.total(first) > 0, rest, 1.0).log().sum()

    def of_vectors(self, value: Tensor) -> Transform:
        """Transform of vectors to matrices of the size of a value of the site."""
        return MATRICES[self.scale](value.shape[-1])

    def _triangle(self, value: Tensor) -> Tensor:
        """Rows and columns of the entries that those vectors hold, in order."""
        size = value.shape[-1]
        return torch.tril_indices(size, size, -1 if self.scale == "correlation" else 0)

    def _moved(self, value: Tensor) -> Tensor:
        if self.scale == "simplex":
            vectors = segments_of(self.sums, value.device)
            rows = value.reshape(-1, vectors.num_entries).log()
            return (rows - vectors.spread(rows.gather(-1, self.reference))).reshape(value.shape)
        if self.covariates is not None:
            return self.covariates.standardised(value)
        if self.chart is not None:
            own = self.chart.inv(value)
            padding = own.new_zeros(value.numel() - own.shape[-1])
            return torch.cat([own, padding]).reshape(value.shape)
        if self.scale in MATRICES:
            lower = torch.zeros_like(value)
            rows, columns = self._triangle(value)
            lower[..., rows, columns] = self.of_vectors(value).inv(value)
            return lower
        forth: dict[str, Callable[[Tensor], Tensor]] = {
            "identity": lambda v: v,
            "logit": torch.logit,
            "log": torch.log,
        }
        return forth[self.scale](value)


@dataclass(frozen=True, eq=False)
class NormalScales:
    r"""Variances of normal distributions, and the locations whose errors scale with them.

    With s the standard error of the log of a variance :math:`\hat v` estimated by maximum
    likelihood, the variance is worth :math:`n = 2 / s^2` rows, of which p location coefficients of
    the same distribution have used one each. With :math:`\nu = n - p` degrees of freedom left,
    limits at level :math:`1 - \alpha` are

    .. math::

        n \hat v / \chi^2_{\nu, 1 - \alpha / 2} \le v \le n \hat v / \chi^2_{\nu, \alpha / 2},
        \qquad
              \hat m \pm t_{\nu, 1 - \alpha / 2} \sqrt{n / \nu} \; s_m

    for a location m with standard error :math:`s_m`. Of a sample of one normal distribution, and of
    a regression with normal errors, these are the exact intervals; of components or states the
    sample is as large as the information says, which is less than the expected rows where
    components overlap. For large n they are the normal intervals. Where no degree of freedom is
    left they are as good as infinite.

    Source: F. E. Satterthwaite (1946), doi:10.2307/3002019, for degrees of freedom that are read
    from the variance of a variance.

    Args:
        variances: a differentiable function of the parameters that gives the D variances, in any
            shape.
        num_coefficients: p, of each of them, (D,).
        locations: by site, in its shape: the number of the variance with which the entry scatters,
            -1 where there is none.
        entries: likewise, the number of the variance that the entry is.
        reciprocals: likewise, the number of the variance that the entry is one over.
    """

    variances: Callable[[Params], Tensor]
    num_coefficients: Tensor
    locations: Mapping[str, Tensor]
    entries: Mapping[str, Tensor] = field(default_factory=dict)
    reciprocals: Mapping[str, Tensor] = field(default_factory=dict)

    def freedom(
        self, coordinates: Coordinates, free: Tensor, covariance: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Rows n that each variance is worth, and degrees of freedom :math:`\nu` left, (D,)."""
        slopes = _slopes(lambda vector: self.variances(coordinates.params(vector)).log(), free)
        rows = 2 / ((slopes @ covariance) * slopes).sum(-1).clamp(min=2 / MOST_ROWS)
        return rows, (rows - self.num_coefficients.to(rows)).clamp(min=LEAST_FREEDOM)

    def limits(
        self, level: float, coordinates: Coordinates, free: Tensor, covariance: Tensor
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Limits by site, NaN for entries without such a variance.

        Args:
            level: of the intervals; coordinates: of the parameters; free: the estimate as a free
                vector; covariance: its.
        """
        from scipy.special import chdtri, stdtrit

        tail = (1 - level) / 2
        rows, freedom = self.freedom(coordinates, free, covariance)
        values = rows * self.variances(coordinates.params(free)).flatten()
        low, high = (
            values / torch.from_numpy(chdtri(freedom.cpu().numpy(), share)).to(values)
            for share in (tail, 1 - tail)
        )
        reach = (rows / freedom).sqrt() * torch.from_numpy(
            stdtrit(freedom.cpu().numpy(), 1 - tail)
        ).to(values)
        spread, center = coordinates.spread(free, covariance), coordinates.params(free)
        out: dict[str, tuple[Tensor, Tensor]] = {}
        for site, place in self.locations.items():
            width = reach[place] * spread[site]
            out[site] = (center[site] - width, center[site] + width)
        out |= {site: (low[place], high[place]) for site, place in self.entries.items()}
        out |= {site: (1 / high[place], 1 / low[place]) for site, place in self.reciprocals.items()}
        places = {**self.locations, **self.entries, **self.reciprocals}
        is_open = {site: (place < 0) | spread[site].isnan() for site, place in places.items()}
        return {
            site: (
                below.masked_fill(is_open[site], torch.nan),
                above.masked_fill(is_open[site], torch.nan),
            )
            for site, (below, above) in out.items()
        }


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Free coordinates of parameters: the vector, its names and its bounds.

    Args:
        center: the parameters whose held entries are kept.
        parts: the sites in order.
    """

    center: Params
    parts: tuple[_SitePart, ...]

    @classmethod
    def of(
        cls,
        program: Program,
        params: Params,
        unseen: Mapping[str, Tensor] | None = None,
        given: Mapping[str, Tensor] | None = None,
        ties: Mapping[str, Tensor] | None = None,
        covariates: Mapping[str, Covariates] | None = None,
    ) -> Coordinates:
        """Coordinates at an estimate, entries on a bound (exactly or nearly zero) held.

        Args:
            program: on the data; params: the estimate.
            given: by site, known entries in its shape, NaN where free; they are held.
            ties: by site, the place in the flat site of the first entry that each is equal to.
            unseen: by site, bool of its shape: entries of probability vectors that the data never
                show, which a prior alone keeps off zero; they are held.
            covariates: by site of coefficients; where all of these are free, their coordinates are
                those of standardised covariates, as the zero of a year says nothing.

        Raises:
            ValueError: for a site whose support has no rule here, naming it, or local sites.
        """
        if program.names("local"):
            raise ValueError(f"local sites {program.names('local')} cannot be summed out")
        parts = []
        for name in program.names("parameter"):
            value = params[name]
            base = program.site(name).support
            while hasattr(base, "base_constraint"):
                base = base.base_constraint
            graph = getattr(base, "graph", None)
            allowed = (
                torch.ones_like(value, dtype=torch.bool)
                if graph is None
                else graph.to(value.device)
            )
            base = getattr(base, "base", base)
            while hasattr(base, "base_constraint"):
                base = base.base_constraint
            scale, lower, upper = _scale(name, base)
            low, high = (_filled(limit, value, graph) for limit in (lower, upper))
            free = torch.ones_like(value, dtype=torch.bool)
            if scale == "identity":
                free = value != 0 if graph is None else graph.to(value.device) & (value != 0)
            sums = (
                base.sizes
                if isinstance(base, Simplexes)
                else (math.prod(value.shape[value.dim() - base.event_dim :]),)
            )
            reference = torch.zeros(0, 1, dtype=torch.long)
            own, known = (unseen or {}).get(name), None
            if name in (given or {}):
                known = (~(given or {})[name].isnan()).to(value.device)
                allowed = allowed & ~known
            if scale == "simplex":
                shown = value if own is None else value.masked_fill(own, 0.0)
                shown = shown if known is None else shown.masked_fill(known, 0.0)
                reference = _references(shown.reshape(-1, sum(sums)), sums)
                free = (
                    (shown >= SMALL)
                    .reshape(-1, sum(sums))
                    .scatter(-1, reference, False)
                    .reshape(value.shape)
                )
            elif scale in MATRICES:
                free = free.tril(-1 if scale == "correlation" else 0)
            if known is not None:
                free = free & ~known
            chart = FamilyCoordinates(base.family) if isinstance(base, InFamily) else None
            if chart is not None:
                places = torch.arange(value.numel(), device=value.device).reshape(value.shape)
                free = places < chart.family.num_free
                free = free if known is None else free & ~known.all()
            if known is not None and (scale in MATRICES or chart is not None):
                whole = known.flatten(-2) if chart is None else known.flatten()
                if bool((whole.any(-1) != whole.all(-1)).any()):
                    raise ValueError(
                        f"{name!r} holds matrices of which a part is fixed, and how sure the others"
                        " are given these is not worked out: fix all of a matrix or nothing"
                    )
            part = _SitePart(
                name, scale, low, high, free, sums, reference, allowed, own, known, chart=chart
            )
            if name in (ties or {}):
                part = replace(part, source=(ties or {})[name].to(value.device).ravel())
                part = replace(part, free=free & part.is_first)
                part = replace(part, allowed=allowed & part.is_first)
            if scale == "identity" and bool(part.free.all()):
                part = replace(part, covariates=(covariates or {}).get(name))
            parts.append(part)
        return cls(params, tuple(parts))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the free entries."""
        return tuple(name for part in self.parts for name in part.names)

    def at_bound(self) -> list[str]:
        """Entries on the end of their interval; those of a probability vector are held already."""
        bounds = []
        for part in self.parts:
            value = self.center[part.name]
            judged = part.free
            if part.scale == "simplex":
                edge = judged = part.as_good_as_zero(value)
                edge = edge if part.allowed is None else edge & part.allowed
            elif part.scale == "logit":
                edge = (value < SMALL) | (value > 1 - SMALL)
            elif part.scale == "log":
                edge = (value <= part.lower * RATIO) | (value * RATIO >= part.upper)
            else:
                length = part.upper - part.lower
                finite = torch.isfinite(length)
                share = torch.where(
                    finite, (value - part.lower) / torch.where(finite, length, 1.0), 0.5
                )
                edge = (share < NEAR) | (share > 1 - NEAR)
            bounds += list(entry_names({part.name: value}, {part.name: edge & judged}))
        return bounds

    def at_zero(self, log_posterior: Callable[[Params], Tensor]) -> list[str]:
        """Positive entries whose estimate runs to zero, where their logarithm has no curvature.

        Such a variance of random effects, or scale, may be a thousandth of what it is without a
        change of the density, and lowers it where it grows: its optimum is the bound of its
        interval, though no step of a logarithm arrives there.

        Args:
            log_posterior: of parameters in the shape of the program.
        """
        at_zero = []
        with torch.no_grad():
            here = float(log_posterior(self.center))
            for part in self.parts:
                if part.scale != "log":
                    continue
                value = self.center[part.name]
                places = (part.free & (part.lower == 0)).nonzero()
                names = entry_names({part.name: value}, {part.name: part.free & (part.lower == 0)})
                for place, name in zip(places, names, strict=True):
                    one = torch.zeros_like(value)
                    one[tuple(place)] = 1.0

                    def change(power: int, name: str = part.name, one: Tensor = one) -> float:
                        moved = self.center[name] * 10.0 ** (power * one)
                        return float(log_posterior(self.center | {name: moved})) - here

                    if abs(change(-3)) < UNSEEN and any(change(k) < -SEEN for k in range(1, 10)):
                        at_zero.append(name)
        return at_zero

    def near_zero(self, covariance: Tensor) -> list[str]:
        """Positive entries whose logarithm is so unsure that they may be nearly zero as well."""
        error = covariance.diagonal().clamp(min=0).sqrt()
        logs = [part.scale == "log" for part in self.parts for _ in part.names]
        return [
            name
            for name, is_log, wide in zip(self.names, logs, error > UNSURE, strict=True)
            if is_log and bool(wide)
        ]

    def without(self, names: Sequence[str]) -> Coordinates:
        """Coordinates with some entries held besides."""
        parts = []
        for part in self.parts:
            free = part.free.clone()
            keep = free.new_tensor([name not in names for name in part.names])
            free[part.free] = keep
            parts.append(replace(part, free=free))
        return replace(self, parts=tuple(parts))

    def vector(self) -> Tensor:
        """Free vector of the estimate, (P,)."""
        return torch.cat([part.coordinates(self.center[part.name]) for part in self.parts])

    def params(self, free: Tensor) -> Params:
        """Parameters at a free vector; differentiable."""
        blocks = free.split([int(part.free.sum()) for part in self.parts])
        return {
            part.name: part.value(block, self.center[part.name])
            for part, block in zip(self.parts, blocks, strict=True)
        }

    def log_jacobian(self, draws: Params) -> Tensor:
        """Log-Jacobian: parameter volume a unit of coordinates, at draws (D, ...), (D,)."""
        total = torch.zeros(len(next(iter(draws.values()))), dtype=torch.float64)
        for part in self.parts:
            value = draws[part.name]
            if part.covariates is not None:
                widths = [math.log(width) for _, width in part.covariates.term_units]
                total = total - sum(widths) * math.prod(value.shape[1:-1])
            if part.scale in ("identity", "family"):  # whose prior is a density of coordinates
                continue
            if part.scale in MATRICES:
                move = part.of_vectors(value)
                total = total.to(value) + move.log_abs_det_jacobian(move.inv(value), value).reshape(
                    len(value), -1
                ).sum(-1)
                continue
            log = value.log() + (torch.log1p(-value) if part.scale == "logit" else 0.0)
            kept = part.free
            if part.scale == "simplex":
                kept = ~part.as_good_as_zero(self.center[part.name])
                kept = kept if part.known is None else kept & ~part.known
                kept = kept & part.is_first
            total = total.to(log) + torch.where(kept, log, 0.0).reshape(len(log), -1).sum(-1)
            total = total - part.left(self.center[part.name])
        return total

    def clamped(self, draws: Params) -> tuple[Params, Tensor]:
        """Draws (D, ...) cut at the bounds of their intervals, and which were inside, (D,)."""
        out, inside = dict(draws), torch.ones(len(next(iter(draws.values()))), dtype=torch.bool)
        for part in self.parts:
            if part.scale in ("identity", "log"):
                value, free = draws[part.name], part.spread_over_ties(part.free)
                out[part.name] = torch.where(free, value.clamp(part.lower, part.upper), value)
                inside &= ((out[part.name] == value) | ~free).reshape(len(value), -1).all(-1).cpu()
        return out, inside

    def spread(self, free: Tensor, covariance: Tensor) -> Params:
        """Standard errors in the parameters' own units by the delta method, NaN where held."""
        out, start = {}, 0
        for part in self.parts:
            size = int(part.free.sum())
            span = slice(start, start + size)
            start += size
            value, block = self.center[part.name], covariance[span, span]
            is_moved = part.scale in ("simplex", "family") or part.covariates is not None
            if is_moved or part.scale in MATRICES:
                slopes = _slopes(partial(part.value, center=value), free[span])
                error = ((slopes @ block) * slopes).sum(-1).clamp(min=0).sqrt().reshape(value.shape)
                if part.scale == "simplex":  # an entry that is as good as zero is on its bound
                    error = error.masked_fill(part.as_good_as_zero(value), torch.nan)
                    known = torch.zeros_like(part.free) if part.known is None else part.known
                    error = error.masked_fill(known, torch.nan)
                elif part.scale not in ("cholesky", "identity"):  # what holds a factor's others
                    error = error.masked_fill(error == 0, torch.nan)
                out[part.name] = error
                continue
            error = block.diagonal().clamp(min=0).sqrt()
            if part.scale == "logit":
                error = error * value[part.free] * (1 - value[part.free])
            elif part.scale == "log":
                error = error * value[part.free]
            errors = torch.full_like(value, torch.nan).masked_scatter(part.free, error)
            out[part.name] = part.spread_over_ties(errors)
        return out

    def covariance_of(self, site: str, free: Tensor, covariance: Tensor) -> Tensor:
        """Covariance of all entries of a site in their own units, by the delta method."""
        slopes = _slopes(lambda vector: self.params(vector)[site], free)
        return slopes @ covariance @ slopes.mT

    def limits(
        self, free: Tensor, covariance: Tensor, width: float
    ) -> dict[str, tuple[Tensor, Tensor]]:
        r"""Confidence limits: the estimate plus and minus ``width`` standard errors, taken back.

        A chance p with standard error s is worth :math:`n = p (1 - p) / s^2` rows. Where fewer than
        five of them speak for its rarer side, :math:`n \min(p, 1 - p) < 5`, its logit has no normal
        distribution and its limits would run from 0 to 1: they are Wilson's there, the chances q
        with :math:`(p - q)^2 \le w^2 q (1 - q) / n`. Diagonals of positive definite matrices and of
        their factors are positive: their limits are those of the logarithm.

        Source: E. B. Wilson (1927), doi:10.1080/01621459.1927.10502953.
        """
        error = covariance.diagonal().clamp(min=0).sqrt()
        low, high = self.params(free - width * error), self.params(free + width * error)
        spread = self.spread(free, covariance)
        out = {}
        for part in self.parts:
            value = self.center[part.name]
            # on the scale of the entries, but the diagonal's logarithm
            if part.scale in MATRICES or part.chart is not None or part.covariates is not None:
                step = width * spread[part.name]
                ends = [value - step, value + step]
                if part.scale not in ("correlation", "identity"):
                    diagonal, ratio = (
                        entries.diagonal(dim1=-2, dim2=-1)
                        for entries in (value, (step / value).exp())
                    )
                    ends = [
                        end.diagonal_scatter(own, dim1=-2, dim2=-1)
                        for end, own in zip(ends, (diagonal / ratio, diagonal * ratio), strict=True)
                    ]
                out[part.name] = (ends[0], ends[1])
            elif part.scale in ("simplex", "logit"):  # of each entry by itself
                out[part.name] = _limits_of_chance(value, spread[part.name], width)
            else:
                held = part.spread_over_ties(~part.free)
                out[part.name] = (
                    low[part.name].masked_fill(held, torch.nan),
                    high[part.name].masked_fill(held, torch.nan),
                )
        return out


def _slopes(function: Callable[[Tensor], Tensor], free: Tensor) -> Tensor:
    """Jacobian, (D, P), one derivative at a time: a batch of them would first import sympy."""
    with torch.enable_grad():
        free = free.detach().requires_grad_()
        values = function(free).flatten()
        rows = [
            torch.autograd.grad(value, free, retain_graph=True, materialize_grads=True)[0]
            for value in values
        ]
    return torch.stack(rows)


def _limits_of_chance(chance: Tensor, error: Tensor, width: float) -> tuple[Tensor, Tensor]:
    """Confidence limits of chances: on the logit, Wilson's where few rows speak."""
    variance = chance * (1 - chance)
    step = width * error / variance
    rows = variance / error.square()
    share = width**2 / rows
    center = (chance + share / 2) / (1 + share)
    half = width * (variance / rows + share / rows / 4).sqrt() / (1 + share)
    few = rows * torch.minimum(chance, 1 - chance) < FEW_ROWS
    low = torch.where(few, center - half, torch.sigmoid(torch.logit(chance) - step))
    high = torch.where(few, center + half, torch.sigmoid(torch.logit(chance) + step))
    return low.clamp(min=0.0), high.clamp(max=1.0)


def _scale(name: str, support: constraints.Constraint) -> tuple[str, Tensor, Tensor]:
    infinite = torch.tensor(torch.inf, dtype=torch.float64)
    if isinstance(support, InFamily):
        return "family", -infinite, infinite
    if isinstance(support, type(constraints.positive_definite)):
        return "cholesky", -infinite, infinite
    if isinstance(support, type(constraints.lower_cholesky)):
        return "factor", -infinite, infinite
    if isinstance(support, type(constraints.corr_cholesky)):
        return "correlation", -infinite, infinite
    if support is constraints.simplex or isinstance(support, MatrixSimplex | Simplexes):
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
    raise ValueError(
        f"site {name!r} with support {support} has no standard errors by curvature: take a"
        " bootstrap or NUTS()"
    )


def _references(rows: Tensor, sums: tuple[int, ...]) -> Tensor:
    """Reference entries of log-ratios (rows, vectors): the last, or the largest if it is zero."""
    vectors = segments_of(sums, rows.device)
    last = vectors.entry.gather(-1, vectors.inside.sum(-1, keepdim=True) - 1).ravel()  # (vectors,)
    largest = vectors.entry[:, 0] + vectors.padded(rows, -1.0).argmax(-1)  # (rows, vectors)
    return torch.where(rows[:, last] < SMALL, largest, last)


def _filled(limit: Tensor, value: Tensor, graph: Tensor | None) -> Tensor:
    limit = limit.to(value)
    if graph is None or not limit.dim():
        return limit.expand(value.shape)
    return torch.zeros_like(value).masked_scatter(graph.to(value.device), limit)


def entry_names(
    params: Mapping[str, Tensor], free: Mapping[str, Tensor] | None = None
) -> tuple[str, ...]:
    """Names of free entries such as ``loadings_1[0,2]``, by site in row-major order.

    Args:
        params: by site name.
        free: by site name, bool in the shape of the site: which entries are free; a site left out
            is free.

    Raises:
        ValueError: if a mask belongs to no site or has another shape.
    """
    masks = dict(free or {})
    for site, mask in masks.items():
        if site not in params or mask.shape != params[site].shape:
            expected = (
                tuple(params[site].shape)
                if site in params
                else f"one of the sites {sorted(params)}"
            )
            raise ValueError(
                f"entry_names: free[{site!r}] must match {expected}, got shape {tuple(mask.shape)}"
            )
    names = []
    for site, value in params.items():
        places = itertools.product(*(range(n) for n in value.shape))
        for place in places:
            if site not in masks or bool(masks[site][place]):
                names.append(f"{site}[{','.join(map(str, place))}]" if place else site)
    return tuple(names)
