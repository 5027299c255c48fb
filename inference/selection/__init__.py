"""How many latents? Criteria, grids, paths of penalties, and how sure the answer is."""

from inference.selection.attribute_groups import (
    GroupComparison,
    ItemScores,
    compare_groups,
    item_scores,
)
from inference.selection.attribute_laws import RootComparison, RootTest, compare_roots
from inference.selection.choice_spread import (
    ChoiceSpread,
    LabelledSet,
    RhoCalibration,
    calibrate_rho,
    repeat_choice,
)
from inference.selection.components import (
    ParallelAnalysis,
    aic,
    bic_parameters,
    bic_parameters_cells,
    bic_thesis,
    compare_criteria,
    cophenetic_correlation,
    fit_grid,
    held_out_log_likelihood,
    parallel_analysis,
)
from inference.selection.conditional_independence import (
    ComponentDependence,
    conditional_independence,
)
from inference.selection.differential_items import DifferentialItems, differential_items
from inference.selection.dimension import (
    ComponentNoise,
    HeldOut,
    InformationCriterion,
    LawsAndNumbers,
    LikelihoodRatio,
    Selection,
    SpectralRatio,
    select_dimension,
)
from inference.selection.discriminator import Discriminator
from inference.selection.how_many.answer import HowMany
from inference.selection.how_many.groups import Groups
from inference.selection.how_many.groups_answer import HowManyGroups
from inference.selection.how_many.rule import select_components
from inference.selection.likelihood_ratio import RatioTest, likelihood_ratio_test
from inference.selection.noisy_or_sizes import fit_sizes
from inference.selection.overparameterization import (
    StudyRow,
    overparameterization,
    study_frame,
    wilson_interval,
)
from inference.selection.penalty_grid import fit_penalty_grid, refit_penalty_grid
from inference.selection.reproducibility import Reproducibility, reproducibility
from inference.selection.saturation import Saturation, choose_components, saturation
from inference.selection.sparsity import Path, ebic, graphs_of, penalty_path, polish
from inference.selection.total_correlation import TotalCorrelation, total_correlation

__all__ = [
    "ComponentDependence",
    "conditional_independence",
    "Discriminator",
    "TotalCorrelation",
    "total_correlation",
    "ChoiceSpread",
    "LabelledSet",
    "RhoCalibration",
    "calibrate_rho",
    "repeat_choice",
    "ParallelAnalysis",
    "aic",
    "bic_parameters",
    "bic_parameters_cells",
    "bic_thesis",
    "compare_criteria",
    "cophenetic_correlation",
    "fit_grid",
    "held_out_log_likelihood",
    "parallel_analysis",
    "GroupComparison",
    "ItemScores",
    "compare_groups",
    "item_scores",
    "DifferentialItems",
    "differential_items",
    "ComponentNoise",
    "HeldOut",
    "InformationCriterion",
    "LawsAndNumbers",
    "LikelihoodRatio",
    "Selection",
    "SpectralRatio",
    "select_dimension",
    "Groups",
    "HowMany",
    "HowManyGroups",
    "select_components",
    "RatioTest",
    "likelihood_ratio_test",
    "fit_sizes",
    "StudyRow",
    "overparameterization",
    "study_frame",
    "wilson_interval",
    "fit_penalty_grid",
    "refit_penalty_grid",
    "Saturation",
    "choose_components",
    "saturation",
    "Reproducibility",
    "reproducibility",
    "Path",
    "ebic",
    "graphs_of",
    "penalty_path",
    "polish",
    "RootComparison",
    "RootTest",
    "compare_roots",
]
