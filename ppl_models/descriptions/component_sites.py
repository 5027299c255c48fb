"""Parameters of component distributions as sites of a program.

Shared by the components of a mixture and the states of a hidden Markov model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyro
import torch
from torch import Tensor

from ppl_models.descriptions.components import MixtureComponents
from ppl_models.descriptions.row_distributions import RowDistribution
from ppl_models.descriptions.units import check_units
from ppl_models.parts.categorical import joined, table_concentrations, threshold_limits
from ppl_models.parts.distributions import Dispersions, Flat
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.probability_tables import DirichletTables
from ppl_models.parts.responses import ResponseFamily, sizes
from ppl_models.parts.validation import check_number


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
