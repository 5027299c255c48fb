"""Independent binary causes joined by noisy ORs: exact and truncated EM, search, guides."""

from inference.structures.noisy_or.branching import OpenRows
from inference.structures.noisy_or.em_steps import (
    NEGLIGIBLE,
    NO_EDGE,
    CauseRows,
    CauseStatistics,
    CauseSteps,
    log_beta_prior,
)
from inference.structures.noisy_or.grow_and_prune import GrowAndPrune, Polish, padded, used_latents
from inference.structures.noisy_or.guides import (
    InputBaseline,
    MeanFieldGuide,
    RecognitionGuide,
    RunningScale,
    disarm,
    flip_log_odds,
    leave_one_out,
    local_expectations,
    score_function,
)
from inference.structures.noisy_or.likelihood import (
    MAX_CAUSES,
    latent_means,
    latent_modes,
    log_likelihood_rows,
    quickscore,
    summed_rows,
)
from inference.structures.noisy_or.score_svi import ScoreFunctionRun, ScoreFunctionSVI
from inference.structures.noisy_or.search import Search
from inference.structures.noisy_or.structure import NoisyOrStructure, check_enumerable
from inference.structures.noisy_or.truncated_em import MAX_BITS, TruncatedSteps

__all__ = [
    "OpenRows",
    "NEGLIGIBLE",
    "NO_EDGE",
    "CauseRows",
    "CauseSteps",
    "CauseStatistics",
    "log_beta_prior",
    "GrowAndPrune",
    "padded",
    "used_latents",
    "Polish",
    "InputBaseline",
    "MeanFieldGuide",
    "RecognitionGuide",
    "RunningScale",
    "disarm",
    "flip_log_odds",
    "leave_one_out",
    "local_expectations",
    "score_function",
    "MAX_CAUSES",
    "latent_means",
    "latent_modes",
    "log_likelihood_rows",
    "quickscore",
    "summed_rows",
    "ScoreFunctionRun",
    "ScoreFunctionSVI",
    "Search",
    "NoisyOrStructure",
    "check_enumerable",
    "MAX_BITS",
    "TruncatedSteps",
]
