"""Identifiability of a model: conditions, proofs, and the information in the data."""

from typing import TYPE_CHECKING

from ppl_models.parts.surface import on_first_use as _on_first_use

if TYPE_CHECKING:
    from inference.identifiability.check import (
        check_graph as check_graph,
        check_identifiability as check_identifiability,
    )
    from inference.identifiability.classifier_evidence import weight_interval as weight_interval
    from inference.identifiability.classifiers import (
        ClassifierIdentifiability as ClassifierIdentifiability,
        check_classifiers as check_classifiers,
    )
    from inference.identifiability.fisher import InformationReport as InformationReport
    from inference.identifiability.of_fit import identifiability_of as identifiability_of
    from inference.identifiability.options import check_options as check_options
    from inference.identifiability.q_matrix import (
        QMatrixReport as QMatrixReport,
        check_q_matrix as check_q_matrix,
    )
    from inference.identifiability.verdicts import (
        IdentifiabilityReport as IdentifiabilityReport,
        LayerReport as LayerReport,
        Violation as Violation,
    )

__getattr__, __dir__ = _on_first_use(__name__)
