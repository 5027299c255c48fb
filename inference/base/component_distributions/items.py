"""Components of independent items, each from a response family."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor

from inference.base.component_distributions.base import (
    ComponentDistribution,
    LinearRows,
    Rows,
    ends,
)
from inference.base.component_distributions.normal import EMPTY, resting_on
from inference.base.component_distributions.ordinal import maximise_ordinal
from inference.base.component_noise import Cells, negative_binomial_scores, poisson_scores
from inference.base.degenerate import listed
from inference.base.structure import NamedEstimate
from inference.programs.coordinates import NormalScales
from inference.programs.program import Params
from ppl_models.descriptions.components import item_distribution
from ppl_models.descriptions.units import column_variances
from ppl_models.parts.categorical import (
    Categorical,
    Ordinal,
    as_indicators,
    expected_answers,
    joined,
    table_concentrations,
    threshold_names,
)
from ppl_models.parts.probability_tables import Segments, segments_of
from ppl_models.parts.responses import (
    Bernoulli,
    NegativeBinomial,
    Normal,
    Poisson,
    ResponseFamily,
    dispersed_items,
    filled,
    num_densities,
    sizes,
)
from ppl_models.parts.sizes import MISSING, maximise_sizes, weighted_tally

MOST_PATTERNS = 2**62  # that an integer can number
KNOWN = (
    Normal,
    Poisson,
    NegativeBinomial,
    Bernoulli,
    Categorical,
)  # whose distribution functions are
# an estimated chance or rate is kept so far from the end of its range before its predictor is taken
MEAN_EPSILON = 1e-9


@dataclass(frozen=True)
class ItemStatistics:
    """Expected sufficient statistics of items: sums over rows.

    Args:
        item_counts: expected rows by component and entry of the statistic, for items may be
            missing, (R, K, P); P = J but for categorical items.
        sums: responsibility-weighted sums of the centred statistics, (R, K, P).
        squares: of their squares, (R, K, P); None where not needed.
        centre: about which they are taken, (P,).
        values: counts of negative binomial items, (D, N) or (R, D, N), -1 where missing; None
            without such items.
        shares: responsibilities of the rows, (R, K, N), as ``values``.
    """

    item_counts: Tensor
    sums: Tensor
    squares: Tensor | None
    centre: Tensor = field(metadata={"sum": False})
    values: Tensor | None = field(default=None, metadata={"join": -1})
    shares: Tensor | None = field(default=None, metadata={"join": -1})


@dataclass(frozen=True, eq=False)
class ItemRows(LinearRows):
    r"""Rows of items under components of a response family.

    With T about the centre c of Normal items, as it is of others, :math:`\eta` measured alike, and
    s the reciprocal of a variance, 1 for other items, the log-density of a row is

    .. math::

        \sum_j m_j \{ T_j s_j \eta_j - s_j A(\eta_j) \} + h
        - \sum_{j \text{ Normal}} m_j \{ s_j T_j^2 / 2 + \log(2 \pi / s_j) / 2 \} ,

    m = 0 where an entry is missing: the features are :math:`m T, m T^2` and m.
    """

    distribution: ItemDistribution

    @cached_property
    def _origin(self) -> Tensor:
        """Centre of Normal items, 0 of others, (P,)."""
        return torch.where(self._is_normal, self.centre, 0.0)

    @cached_property
    def _is_normal(self) -> Tensor:
        """Mask of the statistics of Normal items, (P,)."""
        out = torch.zeros_like(self.centre, dtype=torch.bool)
        for _, entries in self.distribution._dispersed:
            out[entries] = True
        return out

    @cached_property
    def _filled(self) -> tuple[Tensor, Tensor | None]:
        return filled(self.distribution.family, self.data)

    @cached_property
    def features(self) -> Tensor:
        family, (x, mask) = self.distribution.family, self._filled
        t = family.statistic(x) - self._origin
        t = t if mask is None else t * family.spread(mask)
        parts = [t]
        if self.distribution._dispersed:
            parts.append(t.square())
        if mask is not None:
            parts.append(mask)
        return torch.cat(parts, -1).mT.contiguous()

    def part(self, rows: slice) -> ItemRows:
        part = cast("ItemRows", super().part(rows))
        x, mask = self._filled
        part.__dict__["_filled"] = x[rows], None if mask is None else mask[rows]
        return part

    @cached_property
    def base_measure(self) -> Tensor | None:
        x, mask = self._filled
        seen = torch.ones_like(x) if mask is None else mask
        measure: Tensor = self.distribution.family.base_measure(x, seen, None)
        return measure if bool(measure.any()) else None

    def weights(self, params: Params) -> tuple[Tensor, Tensor]:
        of, num_items = self.distribution, self.data.shape[1]
        family, dispersion = of.family, params.get("dispersion")
        eta = of.predictor(params) - self._origin  # (R, K, P)
        partition = family.partition(eta, dispersion)
        scale = family.scale(dispersion, num_items)
        weights = [eta]
        if scale is not None and dispersion is not None:
            spread = family.spread(scale)
            partition = partition * scale
            weights = [eta * spread, torch.where(self._is_normal, spread / -2, 0.0)]
            logs = (2 * math.pi * dispersion).log() / 2
            partition = partition.index_add(-1, self._normal_columns, logs)
        if self._filled[1] is not None:
            return torch.cat([*weights, -partition], -1), eta.new_zeros(eta.shape[:-1])
        weight = weights[0] if len(weights) == 1 else torch.cat(weights, -1)
        return weight, -partition.sum(-1)

    @cached_property
    def _normal_columns(self) -> Tensor:
        return torch.tensor(self.distribution._dispersed_columns, device=self.data.device)

    def statistics(self, share: Tensor, params: Params) -> ItemStatistics:
        family, size, sums = self.distribution.family, len(self.centre), self.sums(share)
        num_parts = 2 if self.distribution._dispersed else 1
        if self._filled[1] is not None:
            item_counts = family.spread(sums[..., num_parts * size :])
        else:
            item_counts = share.sum(-1, keepdim=True).expand(*share.shape[:-1], size)
        squares = sums[..., size : 2 * size] if num_parts == 2 else None
        about = sums[..., :size] - (self.centre - self._origin) * item_counts
        return ItemStatistics(item_counts, about, squares, self.centre)


def _mean_of_tied(values: Tensor, source: Tensor) -> Tensor:
    """Values (..., K, P) with the entries of each tie (K, P) at their mean."""
    places = source.to(values.device).ravel()
    flat = values.flatten(-2)
    sums = torch.zeros_like(flat).index_add(-1, places, flat)
    counts = torch.bincount(places, minlength=len(places)).clamp(min=1)
    means: Tensor = (sums / counts)[..., places].unflatten(-1, source.shape)
    return means


class ItemDistribution(ComponentDistribution):
    """Component distributions of items of any response family.

    Items with a table of probabilities have one-hot statistics, whose means are these
    probabilities.
    """

    @cached_property
    def family(self) -> ResponseFamily:
        """Response family of the items."""
        assert isinstance(self.about.component, ResponseFamily)
        return self.about.component

    @cached_property
    def site(self) -> str:  # type: ignore[override]
        return "probabilities" if self._tabled.all() else "predictors"

    shared = frozenset({"thresholds"})

    @cached_property
    def _tabled(self) -> Tensor:
        """Mask of the statistic's entries that belong to a table, bool (P,)."""
        return torch.cat(
            [
                torch.full((entries.stop - entries.start,), bool(part.num_categories_of(1)))
                for part, _, entries in self._entries
            ]
        )

    def _tables(self, like: Tensor) -> Segments:
        """Segments of the items that have a probability table."""
        return segments_of(self.family.num_categories_of(self.about.num_items), like.device)

    def separates(self, sites: AbstractSet[str]) -> bool:
        """All but predictors that a dispersion is measured about, and thresholds of a link."""
        links = any(isinstance(part, Ordinal) for part, _, _ in self._entries)
        about = bool(self.family.num_dispersed(self.about.num_items)) or links
        return sites <= {"probabilities", "dispersion", *(() if about else ("predictors",))}

    def pools(self, ties: Mapping[str, Tensor]) -> bool:
        """Entries of one column, in components; sizes are found from the rows."""
        of_columns = all(
            torch.equal(own % own.shape[-1], torch.arange(own.shape[-1]).expand_as(own))
            for own in ties.values()
        )
        return of_columns and not self._sized

    def pooled(self, statistics: ItemStatistics, ties: Mapping[str, Tensor]) -> ItemStatistics:
        r"""Means over tied components of numbers, sums, and squares about the components' means.

        Every term of the bound is linear in them, so that the sum over components that are equal
        has its maximum where each has with the mean; the prior of each counts, as it does there.
        Of variances it is :math:`\sum_k n_k v_k / \sum_k n_k`.
        """
        counts, sums, squares = statistics.item_counts, statistics.sums, statistics.squares
        tabled = self._tabled.to(counts.device)
        for site, columns in (("probabilities", tabled), ("predictors", ~tabled)):
            if site in ties:
                counts, sums = counts.clone(), sums.clone()
                for part in (counts, sums):
                    part[..., columns] = _mean_of_tied(part[..., columns], ties[site])
        if "dispersion" in ties and squares is not None:
            places = torch.cat(
                [torch.arange(counts.shape[-1])[columns] for _, columns in self._dispersed]
            )
            own, number = sums[..., places], counts[..., places].clamp(min=EMPTY)
            about = squares[..., places] - own.square() / number
            share = _mean_of_tied(about, ties["dispersion"]) / _mean_of_tied(
                number, ties["dispersion"]
            )
            squares = squares.clone()
            squares[..., places] = number * share + own.square() / number
        return replace(statistics, item_counts=counts, sums=sums, squares=squares)

    def predictor(self, params: Params) -> Tensor:
        """Predictors of all items, (..., K, P), log-probabilities of tables among them."""
        thresholds = params["thresholds"].unsqueeze(-2) if "thresholds" in params else None
        return joined(
            self.family,
            self.about.num_items,
            params.get("predictors"),
            params.get("probabilities"),
            thresholds,
        )

    @cached_property
    def _entries(self) -> list[tuple[ResponseFamily, slice, slice]]:
        """Families with their columns and the positions of their statistics."""
        size = self.about.num_items
        return [
            (part, columns, entries)
            for (part, columns, _), entries in zip(
                self.family.blocks(size), self.family.predictors(size), strict=True
            )
        ]

    @cached_property
    def _numeric(self) -> list[int]:
        """Columns that have a predictor, in the order of the predictors."""
        return [
            j
            for part, columns, _ in self._entries
            if not part.num_categories_of(1)
            for j in range(self.about.num_items)[columns]
        ]

    def moved(self, params: Params, centres: Tensor, widths: Tensor) -> Params:
        new = dict(params)
        if "predictors" in params:
            new["predictors"] = (
                centres[self._numeric] + widths[self._numeric] * params["predictors"]
            )
        if "dispersion" in params:
            # of an item that has sizes the width is 1
            new["dispersion"] = widths[self._dispersed_columns].square() * params["dispersion"]
        return new

    @cached_property
    def _dispersed_columns(self) -> list[int]:
        """Columns that have a dispersion, in its order."""
        return [
            j
            for part, columns, _ in self._entries
            if part.num_dispersed(1)
            for j in range(self.about.num_items)[columns]
        ]

    def expected_rows(self, params: Params, shares: Tensor) -> Tensor:
        return expected_answers(
            self.family,
            self.about.num_items,
            shares,
            self.predictor(params),
            params.get("dispersion"),
        )

    def patterns(self, data: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
        values = self.answers()
        if values is None or math.prod(size + 1 for size in values) > MOST_PATTERNS:
            return None
        code = torch.zeros(len(data), dtype=torch.long, device=data.device)
        for j, size in enumerate(values):  # one digit an item, the last of them for what is missing
            code = code * (size + 1) + data[:, j].nan_to_num(size).long()
        codes, index, counts = torch.unique(code, return_inverse=True, return_counts=True)
        if 2 * len(codes) > len(data):
            return None
        first = torch.full_like(codes, len(data)).scatter_reduce(
            0, index, torch.arange(len(data), device=data.device), "amin"
        )
        return data[first], (
            counts.to(data)
            if weights is None
            else weights.new_zeros(len(codes)).index_add(0, index, weights)
        )

    def features(self, params: Params) -> Tensor:
        parts = [params["probabilities"]] if "probabilities" in params else []
        if "predictors" in params:
            widths = params["predictors"].new_tensor(self.about.widths)
            parts.append(params["predictors"] / widths[self._numeric])
        if "dispersion" in params:
            own = params["dispersion"]
            of_sizes = sizes(self.family, self.about.num_items).to(own.device)
            parts.append(torch.where(of_sizes, own.rsqrt(), own.log() / 2))
        return torch.cat(parts, -1)

    def variances_at_start(self, variances: Tensor) -> Tensor:
        out = variances.clone()
        for part, columns, entries in self._entries:
            if isinstance(part, Categorical):
                items = part.segments(columns.stop - columns.start, variances.device)
                out[entries] = items.spread(items.total(variances[entries]))
        return out

    @cached_property
    def equation(self) -> str:  # type: ignore[override]
        families = dict.fromkeys(
            type(part).__name__ for part, _, _ in self.family.blocks(self.about.num_items)
        )
        return f"{' or '.join(families)} distribution of item j in component k, independently"

    def statistic(self, data: Tensor) -> tuple[Tensor, Tensor | None]:
        x, mask = filled(self.family, data)
        return self.family.statistic(x), None if mask is None else self.family.spread(mask)

    def _places(self, data: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """Positions of categories among the statistics, and their mask; None if too few."""
        if (
            not isinstance(self.family, Categorical)
            or data.dim() != 2
            or not bool(self._tabled.all())
        ):
            return None
        x, mask = filled(self.family, data)
        places = self.family.places(x)
        return None if places is None else (places, mask)

    def centre(self, data: Tensor) -> Tensor:
        places = self._places(data)
        if places is None:
            return super().centre(data)
        return torch.bincount(
            places[0].flatten(), minlength=self.family.num_predictors(self.about.num_items)
        ).to(data) / len(data)

    def scales(self, data: Tensor, weights: Tensor | None = None) -> Tensor:
        if not self._dispersed:
            return data.new_zeros(0)
        values, mask = self.statistic(data)
        # a copy, where entries are missing
        values = values if mask is None else values.masked_fill_(mask == 0, torch.nan)
        scales = [
            column_variances(values[:, entries], weights) * part.is_canonical
            for part, entries in self._dispersed
        ]  # a size has no scale
        return torch.cat(scales)

    @cached_property
    def _dispersed(self) -> list[tuple[ResponseFamily, slice]]:
        """Families with a dispersion, and the positions of their statistics."""
        size = self.about.num_items
        blocks = zip(self.family.blocks(size), self.family.predictors(size), strict=True)
        return [
            (part, entries)
            for (part, _, dispersion), entries in blocks
            if dispersion.stop > dispersion.start
        ]

    def named_estimates(self) -> dict[str, NamedEstimate]:
        """Means and dispersions of the items, whose names depend on their families."""
        out: dict[str, NamedEstimate] = {}
        columns = {"predictors": self._numeric, "dispersion": self._dispersed_columns}
        for part, columns_of_part, _ in self._entries:  # families of one name have one function
            if part.num_categories_of(1) or part.num_thresholds(1):
                continue
            functions: tuple[Callable[[Tensor], Tensor], ...] = (part.mean, torch.clone)
            for (site, order), name, function in zip(
                columns.items(), part.parameter_names, functions, strict=True
            ):
                members = range(self.about.num_items)[columns_of_part]
                if places := tuple(order.index(j) for j in members if j in order):
                    before = out[name].places or () if name in out else ()
                    out[name] = NamedEstimate(site, (*before, *places), function)
        return {
            name: each._replace(places=None)
            if each.places == tuple(range(len(columns[each.site])))
            else each
            for name, each in out.items()
        }

    def log_densities(self, params: Params, data: Tensor) -> Tensor:
        dispersion = params["dispersion"].unsqueeze(-3) if "dispersion" in params else None
        return item_distribution(
            self.about, self.predictor(params).unsqueeze(-3), dispersion
        ).log_prob(data.unsqueeze(-2))

    def rows(self, data: Tensor, centre: Tensor) -> Rows:
        is_linear = self.family.is_canonical and not self._sized
        if data.dim() == 3 or not is_linear or self._places(data) is not None:
            return super().rows(data, centre)
        return ItemRows(self, data, centre)

    def statistics(
        self, data: Tensor, responsibilities: Tensor, centre: Tensor, params: Params | None
    ) -> ItemStatistics:
        places = self._places(data)
        if places is not None:
            return self._tallies(*places, responsibilities, centre)
        statistic, mask = self.statistic(data)
        t = statistic - centre
        t = t if mask is None else t * mask
        weight = responsibilities.mT  # (R, K, n)
        counts = weight.sum(-1)
        item_counts = (counts.unsqueeze(-1) if mask is None else weight @ mask).expand(
            *counts.shape, t.shape[-1]
        )
        squares = weight @ t.square() if self._dispersed else None
        columns = self._sized
        values, shares = (
            (data[..., columns].mT.nan_to_num(nan=MISSING), weight) if columns else (None, None)
        )
        return ItemStatistics(item_counts, weight @ t, squares, centre, values, shares)

    def _tallies(
        self, places: Tensor, seen: Tensor | None, responsibilities: Tensor, centre: Tensor
    ) -> ItemStatistics:
        """Sums over categorical rows, each entry added at its category, (N, J)."""
        batch = responsibilities.shape[:-2] + responsibilities.shape[-1:]  # ([R], K)
        # (N, [R] K): a row of it is added at once
        share = responsibilities.movedim(-2, 0).reshape(len(places), -1)
        sums, counts = share.new_zeros(len(centre), share.shape[1]), []
        for j, place in enumerate(places.unbind(-1)):
            share_j = share if seen is None else share * seen[:, j : j + 1]
            sums.index_add_(0, place, share_j)
            counts.append(share_j.sum(0))
        # ([R], K, P)
        item_counts = self._tables(centre).spread(torch.stack(counts, -1).reshape(*batch, -1))
        return ItemStatistics(
            item_counts, sums.mT.reshape(*batch, -1) - centre * item_counts, None, centre
        )

    def m_step(
        self, statistics: ItemStatistics, counts: Tensor, params: Params, floor: Tensor
    ) -> Params:
        about, family, new = self.about, self.family, {}
        number = statistics.item_counts.clamp(min=EMPTY)
        empty = statistics.item_counts <= EMPTY
        means, tabled = statistics.sums / number + statistics.centre, self._tabled
        if tabled.any():
            tables = (number * means)[..., tabled], statistics.item_counts[..., tabled]
            new["probabilities"] = self._probabilities(*tables, params["probabilities"])
        if self._numeric:
            new |= self._predictors(number * means, means, empty, params)
        if statistics.squares is not None:
            # about the predictor kept, which differs from the mean only at the bound
            gap = family.mean(self.predictor(new)) - statistics.centre
            variances = (statistics.squares - 2 * gap * statistics.sums) / number + gap.square()
            dispersed = torch.cat([variances[..., columns] for _, columns in self._dispersed], -1)
            new["dispersion"] = torch.maximum(dispersed, floor).clamp(
                *ends(about.variance_limits, dispersed)
            )
        if statistics.values is not None and statistics.shares is not None:
            entries = sizes(family, about.num_items).nonzero().ravel().tolist()
            places = [self._numeric.index(column) for column in self._sized]
            for d, (entry, place) in enumerate(zip(entries, places, strict=True)):
                size = _sizes(
                    statistics.values[..., d, :],
                    statistics.shares,
                    new["predictors"][..., place],
                    params["dispersion"][..., entry],
                )
                new["dispersion"][..., entry] = size
        return new

    def _predictors(self, sums: Tensor, means: Tensor, empty: Tensor, params: Params) -> Params:
        """Predictors of items without a table, and thresholds under a link, from sums (R, K, P)."""
        new, (low, high) = params["predictors"].clone(), ends(self.about.limits, means)
        linear = self.family.linearise(means, MEAN_EPSILON)
        before = params.get("thresholds", new.new_zeros(*new.shape[:-2], 0))
        thresholds, first, gap = [], 0, 0
        for part, columns, entries in self._entries:
            if part.num_categories_of(1):
                continue
            size = columns.stop - columns.start
            place, first = slice(first, first + size), first + size
            if isinstance(part, Ordinal):
                gaps = slice(gap, gap + part.num_thresholds(size))
                gap = gap + part.num_thresholds(size)
                new[..., place], threshold = maximise_ordinal(
                    part,
                    sums[..., entries].clamp(min=0),
                    new[..., place],
                    before[..., gaps],
                    part.bound if self.about.bound is None else self.about.bound,
                )
                thresholds.append(threshold)
            else:
                new[..., place] = torch.where(
                    empty[..., entries],
                    new[..., place],
                    linear[..., entries].clamp(low[place], high[place]),
                )
        return {"predictors": new} | (
            {"thresholds": torch.cat(thresholds, -1)} if "thresholds" in params else {}
        )

    def _probabilities(self, counts: Tensor, totals: Tensor, before: Tensor) -> Tensor:
        r"""Mode of Dirichlet posteriors, :math:`(n_h + \alpha - 1) / (n + C (\alpha - 1))`."""
        tables = self._tables(counts)
        excess = (
            torch.tensor(
                table_concentrations(self.family, self.about.num_items),
                dtype=counts.dtype,
                device=counts.device,
            )
            - 1
        )
        amounts = counts.clamp(min=0) + excess
        share = amounts / tables.spread(tables.total(amounts)).clamp(min=EMPTY)
        return torch.where((totals <= EMPTY) & (excess == 0), before, share)

    @property
    def of_sums(self) -> bool:
        return not self._sized

    @cached_property
    def _sized(self) -> list[int]:
        """Columns of negative binomial items."""
        blocks = self.family.blocks(self.about.num_items)
        return [
            j
            for family, columns, _ in blocks
            if isinstance(family, NegativeBinomial)
            for j in range(self.about.num_items)[columns]
        ]

    def num_free(self, params: Params) -> int:
        return super().num_free(params) - (
            len(params["probabilities"]) * len(self.family.num_categories_of(self.about.num_items))
            if "probabilities" in params
            else 0
        )

    def at_bound(self, params: Params) -> list[str]:
        # the prior of a table keeps it off zero
        return super().at_bound(params) if self.site == "predictors" else []

    def answers(self) -> tuple[int, ...] | None:
        named, out = self.family.category_names(self.about.num_items), []
        for part, columns, _ in self._entries:
            out += [
                len(named[j]) if j in named else 2 if isinstance(part, Bernoulli) else 0
                for j in range(self.about.num_items)[columns]
            ]
        return tuple(out) if all(out) else None

    def category_names(self, items: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return {
            items[j]: names for j, names in self.family.category_names(self.about.num_items).items()
        }

    def numeric_items(self, items: Sequence[str]) -> list[str]:
        return [items[j] for j in self._numeric]

    def threshold_names(self, items: Sequence[str]) -> list[str]:
        return threshold_names(self.family, items)

    def category_chances(self, params: Params) -> Tensor:
        predictor = self.predictor(params)
        parts = [
            part.mean(predictor[..., entries])
            for part, _, entries in self._entries
            if isinstance(part, Categorical)
        ]
        return torch.cat(parts, -1) if parts else super().category_chances(params)

    def as_numbers(self, table: Tensor) -> Tensor:
        return as_indicators(self.family, table)

    def faults(
        self,
        spread_of_all: Callable[[], Tensor],
        params: Params,
        counts: Tensor,
        floor: Tensor,
        names: Sequence[str],
    ) -> list[tuple[str, ...]]:
        if "dispersion" not in params:
            return super().faults(spread_of_all, params, counts, floor, names)
        at_floor = params["dispersion"] <= 1.001 * floor
        if bool(at_floor.any()):  # else the rows need not be read
            at_floor = at_floor & (spread_of_all() > 1.001 * floor)
        dispersed = self.dispersed_items(names) if bool(at_floor.any()) else []
        sentences: list[list[str]] = [[] for _ in counts]
        for r, k in at_floor.any(-1).nonzero().tolist():
            items = [dispersed[j] for j in at_floor[r, k].nonzero().ravel().tolist()]
            shown = listed([*items[:3], *([f"{len(items) - 3} more"] if len(items) > 3 else [])])
            sentences[r].append(
                f"the variance of component {k} in {shown} is at its floor"
                f" (variance_floor={self.about.variance_floor:g} times the column's), on"
                f" {float(counts[r, k]):.3g} rows"
            )
        return resting_on((counts < 2) & (counts >= 1), counts, sentences)

    def normal_scales(self, params: Params) -> NormalScales | None:
        variances = ~sizes(self.family, self.about.num_items)
        if not bool(variances.any()):
            return None
        k = self.about.num_components
        number = torch.arange(k * len(variances)).reshape(k, -1)
        numbers = torch.where(variances, number, -1)
        locations = torch.full((k, len(self._numeric)), -1)
        locations[:, [self._numeric.index(j) for j in self._dispersed_columns]] = numbers
        return NormalScales(
            operator.itemgetter("dispersion"),
            torch.ones(numbers.numel()),
            {"predictors": locations},
            {"dispersion": numbers},
        )

    def dispersed_items(self, items: Sequence[str]) -> list[str]:
        return dispersed_items(self.family, items)

    def num_densities(self, num_items: int) -> int:
        return num_densities(self.family, num_items)

    @property
    def knows_noise(self) -> bool:
        return all(
            isinstance(family, KNOWN) for family, _, _ in self.family.blocks(self.about.num_items)
        )

    def scores(self, params: Params, data: Tensor, rng: np.random.Generator) -> np.ndarray:
        """Normal scores of the noise, missing entries drawn from the model."""
        parts = []
        size, predictor = self.about.num_items, self.predictor(params)
        for (family, columns, dispersed), entries in zip(
            self.family.blocks(size), self.family.predictors(size), strict=True
        ):
            x, eta = data[:, columns].unsqueeze(-2), predictor[:, entries]
            if isinstance(family, Normal):
                value = (
                    (family.statistic(x) - eta) / params["dispersion"][:, dispersed].sqrt()
                ).numpy()
            elif isinstance(family, Poisson):
                y, rate = (v.numpy() for v in torch.broadcast_tensors(x, eta.exp()))
                value = np.where(np.isnan(y), np.nan, poisson_scores(np.nan_to_num(y), rate, rng))
            elif isinstance(family, NegativeBinomial):
                y, rate, size = (
                    v.numpy()
                    for v in torch.broadcast_tensors(
                        x, eta.exp(), params["dispersion"][:, dispersed]
                    )
                )
                value = np.where(
                    np.isnan(y), np.nan, negative_binomial_scores(np.nan_to_num(y), rate, size, rng)
                )
            elif isinstance(family, Bernoulli):
                from scipy.special import ndtri

                y, chance = (v.numpy() for v in torch.broadcast_tensors(x, eta.sigmoid()))
                u = rng.random(y.shape)
                value = ndtri(
                    np.clip(
                        np.where(y == 1, 1 - chance + chance * u, (1 - chance) * u),
                        1e-300,
                        1 - 1e-16,
                    )
                )
                value = np.where(np.isnan(y), np.nan, value)
            elif isinstance(family, Categorical):
                value = self._category_scores(family, x, eta, rng)
            else:
                raise ValueError(f"acdc: noise of {type(family).__name__} components is not known")
            parts.append(np.where(np.isnan(value), rng.standard_normal(value.shape), value))
        return np.concatenate(parts, -1)

    @staticmethod
    def _category_scores(
        family: Categorical, x: Tensor, eta: Tensor, rng: np.random.Generator
    ) -> np.ndarray:
        """Normal scores of chances drawn between cumulative category probabilities, (N, K, J)."""
        from scipy.special import ndtri

        items = family.segments(x.shape[-1], x.device)
        up_to = items.padded(family.mean(eta), 0.0).cumsum(-1)  # (K, J, H)
        code = x.nan_to_num(0.0).long().expand(len(x), *up_to.shape[:-1])  # (N, K, J)
        high = up_to.expand(len(x), *up_to.shape).gather(-1, code.unsqueeze(-1)).squeeze(-1)
        low = (
            torch.nn.functional.pad(up_to, (1, 0))[..., :-1]
            .expand(len(x), *up_to.shape)
            .gather(-1, code.unsqueeze(-1))
            .squeeze(-1)
        )
        u = low.numpy() + (high - low).numpy() * rng.random(code.shape)
        value: np.ndarray = ndtri(np.clip(u, 1e-300, 1 - 1e-16))
        return np.where(x.isnan().expand(code.shape).numpy(), np.nan, value)

    def cells(self, params: Params, data: Tensor, responsibilities: Tensor) -> Cells | None:
        if data.isnan().any():
            return None
        if not all(
            isinstance(family, Bernoulli | Categorical | Poisson)
            for family, _, _ in self.family.blocks(self.about.num_items)
        ):
            return None
        patterns, index = torch.unique(data, dim=0, return_inverse=True)
        weights = responsibilities.new_zeros(len(patterns), self.about.num_components).index_add(
            0, index, responsibilities
        )
        distribution = item_distribution(self.about, self.predictor(params), None)
        logs = distribution.log_prob(patterns.unsqueeze(-2))
        return Cells(weights.mT, logs.mT, distribution)


def _sizes(values: Tensor, shares: Tensor, eta: Tensor, size: Tensor) -> Tensor:
    """Sizes (R, K) of one item: counts ([R], N), responsibilities (R, K, N), log means (R, K)."""
    if values.dim() == 2:  # every restart has rows of its own
        return torch.cat(
            [
                _sizes(values[r], shares[r : r + 1], eta[r : r + 1], size[r : r + 1])
                for r in range(len(values))
            ]
        )
    x, tally = weighted_tally(values, shares)
    sums, counts = (tally * x).sum(-1, keepdim=True), tally.sum(-1, keepdim=True)
    return maximise_sizes(x, tally, sums, counts, eta.unsqueeze(-1), size)
