"""Independent classifiers: theorems 1 and 2 for two variates, linear independence for more, from
the rows of the fit.
"""

from __future__ import annotations

from typing import Any

from inference.fitting.record import FitRecord
from inference.identifiability.classifiers import check_classifiers
from inference.identifiability.of_fit import IdentifiabilityText, report_of
from inference.inspection.classifier_curves import complete_classifiers, variate_names
from inference.structures.classifiers.structure import ClassifierStructure


@report_of.register
def _(structure: ClassifierStructure, fit: FitRecord, data: Any) -> IdentifiabilityText | None:
    """The members of an ensemble, one a half of the rows, judge each other; a fit alone judges
    itself.
    """
    if data is None:
        return None
    params = (
        fit.params if fit.draws is None else {name: value[0] for name, value in fit.draws.items()}
    )
    return check_classifiers(complete_classifiers(structure, params, data), variate_names(fit))
