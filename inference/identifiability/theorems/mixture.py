"""Mixtures: latent classes of categorical answers by their cells; all others by the information in
the rows.
"""

from __future__ import annotations

from typing import Any

from inference.base.structure import Structure, threshold_labels
from inference.fitting.record import FitRecord
from inference.identifiability.latent_classes import check_latent_classes
from inference.identifiability.of_fit import IdentifiabilityText, report_of
from inference.structures.mixture.structure import MixtureStructure


@report_of.register
def _(structure: MixtureStructure, fit: FitRecord, data: Any) -> IdentifiabilityText | None:
    sizes = (
        None if structure.regresses else structure.law.answers()
    )  # cells of the answers alone say nothing of how covariates enter
    found = (
        None
        if sizes is None
        else check_latent_classes(fit, sizes, not threshold_labels(structure, [""] * len(sizes)))
    )
    return found or report_of.dispatch(Structure)(structure, fit, data)
