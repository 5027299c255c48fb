"""The small records and protocols that engines and structures share."""

from inference.base.assigned_starts import assigned_start
from inference.base.checkpoint import (
    Checkpoint,
    read_tensors,
    refuse_other,
    replacing,
    usable_path,
    write_tensors,
    write_whole,
)
from inference.base.component_noise import (
    Cells,
    NoiseDraws,
    gaussian_split,
    negative_binomial_scores,
    numpy_generator,
    poisson_scores,
    poisson_split,
)
from inference.base.contents import digest_of
from inference.base.diagnostics import ess_of_draws, pareto_k, psis, rhat_of_draws
from inference.base.draw_steps import DrawSteps, GenericDraws
from inference.base.drawing import draw
from inference.base.gibbs import GenericGibbs, Gibbs, Scan
from inference.base.optima import Ranking, rank_restarts
from inference.base.outcome import (
    BoundWarning,
    ConvergenceWarning,
    DegenerateWarning,
    EstimateWarning,
    Outcome,
    StartsWarning,
)
from inference.base.plugins import load_modules
from inference.base.progress import NoProgress, Progress, RichProgress
from inference.base.relabelling import (
    Alignment,
    Labels,
    Matching,
    align_labels,
    match_columns,
    relabel_draws,
)
from inference.base.starts import StartSearch
from inference.base.steps import (
    GenericSteps,
    Steps,
    add_statistics,
    maximise_free,
    summed_statistics,
)
from inference.base.structure import Method, Problem, Recommendation, Standard, Structure, is_method

__all__ = [
    "Checkpoint",
    "read_tensors",
    "refuse_other",
    "replacing",
    "usable_path",
    "write_tensors",
    "write_whole",
    "digest_of",
    "Cells",
    "NoiseDraws",
    "gaussian_split",
    "negative_binomial_scores",
    "numpy_generator",
    "poisson_scores",
    "poisson_split",
    "ess_of_draws",
    "pareto_k",
    "psis",
    "rhat_of_draws",
    "DrawSteps",
    "GenericDraws",
    "draw",
    "GenericGibbs",
    "Gibbs",
    "Scan",
    "Outcome",
    "ConvergenceWarning",
    "BoundWarning",
    "DegenerateWarning",
    "StartsWarning",
    "StartSearch",
    "Ranking",
    "rank_restarts",
    "assigned_start",
    "EstimateWarning",
    "load_modules",
    "NoProgress",
    "Progress",
    "RichProgress",
    "Alignment",
    "Labels",
    "Matching",
    "align_labels",
    "match_columns",
    "relabel_draws",
    "GenericSteps",
    "Steps",
    "add_statistics",
    "maximise_free",
    "summed_statistics",
    "Recommendation",
    "Standard",
    "Structure",
    "is_method",
    "Method",
    "Problem",
]
