"""Hidden options along sequences: expected counts, moments, paths."""

from inference.structures.options.align import (
    align_options as align_options,
    policy_error as policy_error,
)
from inference.structures.options.moment_counts import count_moments as count_moments
from inference.structures.options.moments import state_by_state as state_by_state
from inference.structures.options.moments_refined import refine_moments as refine_moments
