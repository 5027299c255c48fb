"""Hidden options along sequences: expected counts, moments, paths."""

from inference.structures.options.align import (
    align_options as align_options,
    policy_error as policy_error,
)
from inference.structures.options.moment_errors import (
    blocks_of_moments as blocks_of_moments,
    moment_errors as moment_errors,
)
from inference.structures.options.moments import (
    count_moments as count_moments,
    refine_moments as refine_moments,
    state_by_state as state_by_state,
)
