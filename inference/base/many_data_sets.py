"""Many data sets of one model side by side: restart r of a batch climbs on rows of its own.

Refits on simulated data differ in their rows alone. As restarts of one program they share the trace
and the matrix products; which rows belong to a restart travels among the parameters as an entry
that no step changes, so that finished restarts drop out with their rows.
"""

from __future__ import annotations

from inference.programs.program import Params

SET = "data set"  # entry beside the parameters


def without_set(params: Params) -> Params:
    """The parameters alone."""
    return {name: value for name, value in params.items() if name != SET}
