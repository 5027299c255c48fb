"""Selection of the number of latents: criteria, grids, penalty paths, and tests."""

from inference.selection.attribute_groups import (
    compare_groups as compare_groups,
    differential_items as differential_items,
    item_scores as item_scores,
)
from inference.selection.dimension import (
    ComponentNoise as ComponentNoise,
    DistributionsAndNumbers as DistributionsAndNumbers,
    HeldOut as HeldOut,
    InformationCriterion as InformationCriterion,
    LikelihoodRatio as LikelihoodRatio,
    Selection as Selection,
    SpectralRatio as SpectralRatio,
    select_dimension as select_dimension,
)
from inference.selection.discriminator import (
    Discriminator as Discriminator,
    conditional_independence as conditional_independence,
    total_correlation as total_correlation,
)
from inference.selection.durations import durations_test as durations_test
from inference.selection.factorization_criteria import (
    compare_criteria as compare_criteria,
    fit_grid as fit_grid,
    parallel_analysis as parallel_analysis,
)
from inference.selection.joint_rank import joint_rank as joint_rank
from inference.selection.likelihood_ratio import likelihood_ratio_test as likelihood_ratio_test
from inference.selection.lower_limit import at_least as at_least
from inference.selection.order_selection.result import HowMany as HowMany
from inference.selection.order_selection.select_components import (
    select_components as select_components,
)
from inference.selection.overparameterization import overparameterization as overparameterization
from inference.selection.reproducibility import (
    repeat_choice as repeat_choice,
    reproducibility as reproducibility,
)
from inference.selection.saturation import saturation as saturation
from inference.selection.select import select as select
from inference.selection.sparsity import (
    ebic as ebic,
    penalty_path as penalty_path,
    polish as polish,
)
from inference.selection.splitting import split_inference as split_inference
from inference.selection.variates import find_variates as find_variates
from ppl_models.parts.surface import with_old_names as _with_old_names

__getattr__, __dir__ = _with_old_names(__name__, LawsAndNumbers="DistributionsAndNumbers")
