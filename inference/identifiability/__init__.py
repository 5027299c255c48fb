"""Is the model identified? The conditions, the proofs, and the information in the data."""

from inference.identifiability.check import (
    IdentifiabilityReport,
    LayerReport,
    Violation,
    check_graph,
    check_identifiability,
)
from inference.identifiability.conditions import Separation, exclusive_children, rest_of, separate, undetermined
from inference.identifiability.coverage import Certificate, Coverage, HallViolator, best_gain, cover, hall_violators
from inference.identifiability.fisher import (
    Direction,
    InformationReport,
    entry_names,
    information_from_jacobian,
    information_from_scores,
)
from inference.identifiability.options import OptionIdentifiability, check_options, exact_moments
from inference.identifiability.report import layer_text, missing, report_text
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
    "IdentifiabilityReport",
    "LayerReport",
    "Violation",
    "check_graph",
    "check_identifiability",
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
    "entry_names",
    "information_from_jacobian",
    "information_from_scores",
    "OptionIdentifiability",
    "check_options",
    "exact_moments",
    "layer_text",
    "missing",
    "report_text",
    "VERDICTS",
    "Bottom",
    "Decision",
    "EntryChange",
    "Repair",
    "decide",
    "nearest_changes",
    "repairs",
]
