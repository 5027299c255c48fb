"""Mixtures: latent classes of categorical answers by their cells; all others by the information in the rows."""

from __future__ import annotations

from typing import Any

from inference.base.structure import Structure
from inference.fitting.record import FitRecord
from inference.identifiability.latent_classes import check_latent_classes
from inference.identifiability.of_fit import IdentifiabilityText, report_of
from inference.structures.mixture.structure import MixtureStructure
from ppl_models.parts.responses import Bernoulli, ResponseFamily

__all__: list[str] = []


@report_of.register
def _(structure: MixtureStructure, fit: FitRecord, data: Any) -> IdentifiabilityText | None:
    family, num_items = structure.about.component, structure.about.num_items
    found: IdentifiabilityText | None = None
    if isinstance(family, ResponseFamily):
        named = family.category_names(num_items)
        bits = {j for part, columns, _ in family.blocks(num_items) if isinstance(part, Bernoulli) for j in range(num_items)[columns]}
        if len(named) + len(bits) == num_items:
            sizes = [len(named[j]) if j in named else 2 for j in range(num_items)]
            found = check_latent_classes(fit, sizes, not family.num_thresholds(num_items))
    return found or report_of.dispatch(Structure)(structure, fit, data)
