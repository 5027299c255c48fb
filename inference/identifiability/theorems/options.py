"""Hidden options: whether three successive steps determine them."""

from __future__ import annotations

from typing import Any

from inference.fitting.record import FitRecord
from inference.identifiability.of_fit import IdentifiabilityText, report_of
from inference.identifiability.options import check_options
from inference.structures.options.structure import OptionsStructure

__all__: list[str] = []


@report_of.register
def _(structure: OptionsStructure, fit: FitRecord, data: Any) -> IdentifiabilityText:
    return check_options(fit.params, structure.about)
