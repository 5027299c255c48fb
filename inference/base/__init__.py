"""The small records and protocols that engines and structures share."""

from inference.base.diagnostics import (
    ess_of_draws as ess_of_draws,
    pareto_k as pareto_k,
    rhat_of_draws as rhat_of_draws,
)
from inference.base.structure import Problem as Problem, Structure as Structure
