"""Hidden options: whether three successive steps determine them."""

from __future__ import annotations

from typing import Any

from inference.fitting.columns import checked_as_fitted
from inference.fitting.record import FitRecord
from inference.identifiability.of_fit import IdentifiabilityText, report_of
from inference.identifiability.options import OptionIdentifiability, check_options
from inference.programs.tables import first_tensor
from inference.structures.options.structure import OptionsStructure

STEPS = 3  # in succession, whose law the argument is about


@report_of.register
def _(structure: OptionsStructure, fit: FitRecord, data: Any) -> IdentifiabilityText:
    if data is not None and first_tensor(checked_as_fitted(fit, data)[0]).shape[1] < STEPS:
        return OptionIdentifiability(False, f"no sequence has {STEPS} steps", float("nan"), None)
    return check_options(fit.params, structure.about)
