"""Hidden options along sequences: expected counts, moments, paths."""

from inference.structures.options.alignment import (
    align_options,
    align_policies,
    permute_options,
    permute_policy_options,
    policy_error,
)
from inference.structures.options.continuous import (
    ContinuousOptionsStructure,
    PolicySteps,
    random_functions,
)
from inference.structures.options.em_steps import OptionSteps
from inference.structures.options.forward_backward import (
    Along,
    Parts,
    parts_of,
    steps_along,
    steps_of,
)
from inference.structures.options.logistic import newton_step
from inference.structures.options.moment_counts import OptionMoments, count_moments
from inference.structures.options.moments import (
    MomentDiagnostics,
    MomentEstimate,
    MomentWarning,
    state_by_state,
)
from inference.structures.options.moments_joint import all_states_at_once
from inference.structures.options.moments_refined import refine_moments
from inference.structures.options.noise import COLUMNS, option_noise
from inference.structures.options.paths import MostProbable, Smoothed
from inference.structures.options.starts import moment_start, random_policies, with_counted_parts
from inference.structures.options.structure import OptionsStructure

__all__ = [
    "align_options",
    "align_policies",
    "policy_error",
    "permute_policy_options",
    "permute_options",
    "ContinuousOptionsStructure",
    "PolicySteps",
    "random_functions",
    "OptionSteps",
    "Along",
    "Parts",
    "parts_of",
    "steps_along",
    "steps_of",
    "newton_step",
    "OptionMoments",
    "count_moments",
    "MomentDiagnostics",
    "MomentEstimate",
    "MomentWarning",
    "state_by_state",
    "all_states_at_once",
    "refine_moments",
    "COLUMNS",
    "option_noise",
    "MostProbable",
    "Smoothed",
    "moment_start",
    "random_policies",
    "with_counted_parts",
    "OptionsStructure",
]
