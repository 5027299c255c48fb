"""Descriptions of mixtures, factorizations and dictionaries for engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyro
import torch
from torch import Tensor

from ppl_models.descriptions.covariates import Covariates
from ppl_models.descriptions.row_distributions import RowDistribution
from ppl_models.descriptions.units import Units, check_units, column_units
from ppl_models.parts.categorical import joined, table_concentrations, threshold_limits
from ppl_models.parts.distributions import Dispersions, Flat
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.probability_tables import DirichletTables
from ppl_models.parts.responses import NegativeBinomial, Normal, ResponseFamily, sizes
from ppl_models.parts.validation import check_number

VARIANCE_RANGE = (
    1e-6,
    1e6,
)  # the flat prior of a variance, in squared widths of its column, and of a size is proper on it


@dataclass(frozen=True)
class MixtureComponents:
    """Description of a mixture for engines.

    Args:
        num_components, num_items: K and J.
        component: the family of the components.
        concentration: of the symmetric Dirichlet prior of the weights.
        bound: half-width of the interval of predictors or means about zero; None for that of every
            item's family, about its centre and in its widths.
        variance_floor: least variance of a component, as a share of the column's.
        units: centre and width of every item; None for 0 and 1. Of an item that is not Normal they
            are always that.
        covariates: columns behind the items on which the chances of the components depend; None
            where these are weights.
    """

    num_components: int
    num_items: int
    component: ResponseFamily | RowDistribution
    concentration: float
    bound: float | None
    variance_floor: float = 0.0
    units: Units | None = None
    covariates: Covariates | None = None

    @cached_property
    def family(self) -> ResponseFamily:
        """Response family of the items; Normal where the distribution is one of whole rows."""
        return Normal() if isinstance(self.component, RowDistribution) else self.component

    @cached_property
    def scaled(self) -> tuple[bool, ...]:
        """Mask of the items with units: those that are normal on the scale of the data."""
        blocks = self.family.blocks(self.num_items)
        return tuple(
            type(part) is Normal
            for part, columns, _ in blocks
            for _ in range(self.num_items)[columns]
        )

    @cached_property
    def item_units(self) -> Units:
        """Centre and width of every item."""
        own = self.units if self.units is not None else ((0.0, 1.0),) * self.num_items
        return tuple(
            unit if is_scaled else (0.0, 1.0)
            for unit, is_scaled in zip(own, self.scaled, strict=True)
        )

    @cached_property
    def widths(self) -> tuple[float, ...]:
        """Unit widths of all items."""
        return tuple(width for _, width in self.item_units)

    @cached_property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """Both ends of the interval of each predictor or mean, of the items that have one."""
        tabled = [
            bool(part.num_categories_of(1))
            for part, columns, _ in self.family.blocks(self.num_items)
            for _ in range(self.num_items)[columns]
        ]
        if self.bound is not None:
            return ((-self.bound, self.bound),) * (self.num_items - sum(tabled))
        bounds = zip(self.item_units, self.family.item_bounds(self.num_items), tabled, strict=True)
        return tuple(
            (centre - bound * width, centre + bound * width)
            for (centre, width), bound, is_table in bounds
            if not is_table
        )

    @cached_property
    def variance_units(self) -> tuple[float, ...]:
        """Unit of each variance: the squared width of its item; 1 for a size."""
        blocks = [
            (part, columns)
            for part, columns, own in self.family.blocks(self.num_items)
            if own.stop > own.start
        ]
        return tuple(
            1.0 if isinstance(part, NegativeBinomial) else width**2
            for part, columns in blocks
            for width in self.widths[columns]
        )

    @cached_property
    def variance_limits(self) -> tuple[tuple[float, float], ...]:
        """Both ends of the interval of each variance or size, of the items that have one."""
        low, high = VARIANCE_RANGE
        return tuple((low * unit, high * unit) for unit in self.variance_units)

    def measured(self, rows: Tensor, weights: Tensor | None = None) -> Units | None:
        """Units measured from rows (N, J) with weights (N,).

        One width for all items where it matters to the component that they have the same, the
        largest. None where units are given, or no item has any.
        """
        if self.units is not None or not any(self.scaled):
            return None
        units = column_units(rows, weights)
        if isinstance(self.component, RowDistribution) and self.component.has_one_unit:
            widest = max(width for _, width in units)
            units = tuple((centre, widest) for centre, _ in units)
        return tuple(
            unit if is_scaled else (0.0, 1.0)
            for unit, is_scaled in zip(units, self.scaled, strict=True)
        )


@dataclass(frozen=True)
class FactorizationDescription:
    """Description of a factorization for engines.

    Args:
        num_items, num_components: J and K.
        counts: whether entries are Poisson counts; else Normal.
        nonnegative: whether signatures and activities are not below zero.
        concentration: of the Dirichlet prior of a signature (counts).
        activity_prior: (shape, rate) of the Gamma prior of activities, None for flat (counts).
        bound: largest activity; for Normal entries also the largest entry of a signature.
        variance: how the variance of negative binomial counts grows with the mean, "quadratic" or
            "linear", with one dispersion, a global site; None for Poisson counts or Normal entries.
    """

    num_items: int
    num_components: int
    counts: bool
    nonnegative: bool
    concentration: float
    activity_prior: tuple[float, float] | None
    bound: float
    variance: Literal["quadratic", "linear"] | None = None

    @property
    def dispersed(self) -> bool:
        """Overdispersion of the counts: True for negative binomial."""
        return self.variance is not None


@dataclass(frozen=True)
class DictionaryDescription:
    """Description of a sparse coding model for engines.

    Args:
        num_items, num_columns: J and m.
        sparsity: largest number of columns in a row.
        noise: standard deviation of an entry, None where it is estimated; noise_range: its
            interval.
        bound: largest entry of a code.
    """

    num_items: int
    num_columns: int
    sparsity: int
    noise: float | None
    noise_range: tuple[float, float]
    bound: float


@dataclass(frozen=True)
class UsageDescription:
    """Description of a factorization with binary usage for engines.

    Args:
        num_items, num_components: J and K.
        concentration: of the Dirichlet prior of a signature.
        shape: of the Gamma distribution of an amount, given that the component is present.
        bound: largest mean amount.
    """

    num_items: int
    num_components: int
    concentration: float
    shape: float
    bound: float


@dataclass(frozen=True)
class FactorDescription:
    """Description of a factor analysis for engines.

    Args:
        num_items, num_components: J and K.
        noise_shares: share of each component in the variance of an item, (K,), summing to 1.
        bound: largest entry of a signature or intercept.
    """

    num_items: int
    num_components: int
    noise_shares: tuple[float, ...]
    bound: float


@dataclass(frozen=True)
class UnmixingDescription:
    """Description of a linear mixture of endmembers for engines.

    Args:
        num_items, num_components: J and K.
        correlated: whether the noise of a row may be correlated between items.
        bound: largest entry of an endmember.
    """

    num_items: int
    num_components: int
    correlated: bool
    bound: float


def check_settings(owner: str, model: Any, component: ResponseFamily | RowDistribution) -> None:
    """Check the prior settings of a model's components."""
    if isinstance(component, ResponseFamily) and model.num_items is not None:
        component.blocks(model.num_items)
    must = "be at least 1 and finite"
    check_number(owner, "concentration", model.concentration, must, least=1)
    if model.bound is not None:
        check_number(owner, "bound", model.bound, "be positive and finite, or None", above=0)
    share = model.variance_floor
    check_number(owner, "variance_floor", share, "lie in [0, 1)", least=0, below=1)
    if model.num_items is not None:
        check_units(owner, model.units, model.num_items)


def component_dims(about: MixtureComponents, of: str = "component") -> dict[str, tuple[str, ...]]:
    """Named dims of every parameter."""
    if isinstance(about.component, RowDistribution):
        return {name: (of, *dims[1:]) for name, dims in about.component.site_dims.items()}
    num_tables = len(about.component.num_categories_of(about.num_items))
    dims: dict[str, tuple[str, ...]] = {}
    if num_tables < about.num_items:
        dims["predictors"] = (of, "numeric_item" if num_tables else "item")
    if num_tables:
        dims["probabilities"] = (of, "category")
    if about.component.num_thresholds(about.num_items):
        dims["thresholds"] = ("threshold",)
    num_dispersed = about.component.num_dispersed(about.num_items)
    if num_dispersed:
        dims["dispersion"] = (of, "item" if num_dispersed == about.num_items else "dispersed_item")
    return dims


def draw_components(about: MixtureComponents, zero: Tensor) -> dict[str, Tensor]:
    r"""Sample sites of the parameters, those of :func:`distribution_given`: (\*batch, K, ...)."""
    if isinstance(about.component, RowDistribution):
        return about.component.draw(
            about.num_components, _ends(about.limits, zero), zero + zero.new_tensor(about.widths)
        )
    family, num = about.component, about.num_components
    num_categories = family.num_categories_of(about.num_items)
    num_numeric = about.num_items - len(num_categories)
    predictors = probabilities = None
    if num_numeric:
        predictors = pyro.sample(
            "predictors", Flat(*_ends(about.limits, zero)).expand([num, num_numeric]).to_event(2)
        )
    if num_categories:
        concentrations = torch.tensor(
            table_concentrations(family, about.num_items), dtype=zero.dtype, device=zero.device
        )
        probabilities = pyro.sample(
            "probabilities",
            DirichletTables(concentrations, num_categories).expand(torch.Size([num])).to_event(1),
        )
    thresholds, limits = None, threshold_limits(family, about.num_items)
    if limits:
        # all components share them
        thresholds = pyro.sample("thresholds", Flat(*_ends(limits, zero)).to_event(1)).unsqueeze(-2)
    # (..., K, P)
    own = {"predictor": joined(family, about.num_items, predictors, probabilities, thresholds)}
    is_size = sizes(family, about.num_items).to(zero.device)
    if len(is_size):
        ends = _ends(about.variance_limits, zero)
        prior: Any = Flat(*ends).expand([num, len(is_size)]).to_event(2)
        if bool(is_size.any()):
            prior = Dispersions(is_size.expand(num, -1), *ends)
        own["dispersion"] = pyro.sample("dispersion", prior)
    return own


def _ends(limits: Sequence[tuple[float, float]], zero: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of intervals, each (J,)."""
    low, high = zip(*limits, strict=True)
    return zero.new_tensor(low), zero.new_tensor(high)


def num_own_dims(about: MixtureComponents, name: str) -> int:
    """Number of dims of a site of :func:`draw_components`, with that of components."""
    return (
        len(about.component.site_dims[name]) if isinstance(about.component, RowDistribution) else 2
    )


def item_distribution(
    about: MixtureComponents, predictor: Tensor, dispersion: Tensor | None
) -> ItemResponse:
    """Distribution of independent items, measured from the centres of their units."""
    assert isinstance(about.component, ResponseFamily)
    centres = [centre for centre, _ in about.item_units]
    return ItemResponse(
        about.component,
        predictor,
        dispersion,
        predictor.new_tensor(centres) if any(centres) else None,
    )


def distribution_given(about: MixtureComponents, own: Mapping[str, Tensor]) -> Any:
    r"""Distribution of a row, batch shape (\*batch), given selected parameters.

    Args:
        about: the components.
        own: (\*batch, ...), as :func:`draw_components` returns them but for the dim of the
            components.
    """
    if isinstance(about.component, RowDistribution):
        return about.component.given(own)
    return item_distribution(about, own["predictor"], own.get("dispersion"))
