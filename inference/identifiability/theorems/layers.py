"""Layers of binary latents: the conditions of Lee and Gu."""

from __future__ import annotations

from typing import Any

from inference.fitting.record import FitRecord
from inference.identifiability.check import check_identifiability
from inference.identifiability.of_fit import IdentifiabilityText, report_of
from inference.structures.layers.structure import LayeredStructure


@report_of.register
def _(structure: LayeredStructure, fit: FitRecord, data: Any) -> IdentifiabilityText:
    return check_identifiability(fit)
