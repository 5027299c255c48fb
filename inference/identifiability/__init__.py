"""Is the model identified? The conditions, the proofs, and the information in the data."""

from inference.identifiability.check import check_graph, check_identifiability
from inference.identifiability.classifier_evidence import (
    CrossCheck,
    Independence,
    LabelFreeWeight,
    Purity,
    weight_interval,
)
from inference.identifiability.classifiers import ClassifierIdentifiability, check_classifiers
from inference.identifiability.conditions import (
    Separation,
    exclusive_children,
    rest_of,
    separate,
    undetermined,
)
from inference.identifiability.coverage import (
    Certificate,
    Coverage,
    HallViolator,
    best_gain,
    cover,
    hall_violators,
)
from inference.identifiability.fisher import (
    Direction,
    InformationReport,
    information_from_jacobian,
    information_from_scores,
)
from inference.identifiability.latent_classes import (
    LatentClassReport,
    check_latent_classes,
    three_groups,
)
from inference.identifiability.of_fit import IdentifiabilityText, identifiability_of, report_of
from inference.identifiability.options import OptionIdentifiability, check_options, exact_moments
from inference.identifiability.q_matrix import QMatrixReport, check_q_matrix
from inference.identifiability.report import (
    IdentifiabilityReport,
    LayerReport,
    Violation,
    layer_text,
    missing,
    report_text,
)
from inference.identifiability.scores import (
    MOST_PARAMETERS,
    MOST_WORK,
    coordinates_of,
    derivatives,
    row_scores,
)
from inference.identifiability.verdicts import (
    VERDICTS,
    Bottom,
    Decision,
    EntryChange,
    Repair,
    decide,
    nearest_changes,
    repairs,
)

__all__ = [
    "check_graph",
    "check_identifiability",
    "CrossCheck",
    "Independence",
    "LabelFreeWeight",
    "Purity",
    "weight_interval",
    "ClassifierIdentifiability",
    "check_classifiers",
    "Separation",
    "exclusive_children",
    "rest_of",
    "separate",
    "undetermined",
    "Certificate",
    "Coverage",
    "HallViolator",
    "best_gain",
    "cover",
    "hall_violators",
    "Direction",
    "InformationReport",
    "information_from_jacobian",
    "information_from_scores",
    "LatentClassReport",
    "check_latent_classes",
    "three_groups",
    "IdentifiabilityText",
    "identifiability_of",
    "report_of",
    "OptionIdentifiability",
    "check_options",
    "exact_moments",
    "QMatrixReport",
    "check_q_matrix",
    "layer_text",
    "missing",
    "report_text",
    "IdentifiabilityReport",
    "LayerReport",
    "Violation",
    "MOST_PARAMETERS",
    "MOST_WORK",
    "coordinates_of",
    "derivatives",
    "row_scores",
    "VERDICTS",
    "Bottom",
    "Decision",
    "EntryChange",
    "Repair",
    "decide",
    "nearest_changes",
    "repairs",
]
