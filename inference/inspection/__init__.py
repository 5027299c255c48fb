"""What to make of fitted latents: topics, groups, causes, dictionaries, options, hidden states."""

from inference.inspection.attributes import Reversal, reversals
from inference.inspection.classification import Classification, classify_rows
from inference.inspection.classifier_curves import ClassifierCurves, classifier_curves
from inference.inspection.classifier_ensemble import ClassifierEnsemble, CurveBands, WeightSpread, classifier_ensemble
from inference.inspection.classifiers import ClassifierReadout, component_histogram, read_classifiers
from inference.inspection.dictionary import ColumnRecovery, column_recovery, used_columns
from inference.inspection.groups import GroupMeans, group_means
from inference.inspection.hidden_markov import (
    ChainTimes,
    Filtered,
    Forecast,
    MostProbablePath,
    chain_times,
    filter_states,
    forecast,
    pseudo_residuals,
    sample_states,
    smooth_states,
    viterbi_states,
)
from inference.inspection.item_curves import ItemCurves, ProfileShares, item_curves, profile_shares
from inference.inspection.item_fit import ItemFit, item_fit
from inference.inspection.item_rules import ItemRules, item_rules
from inference.inspection.limited_information import LimitedInformationFit, limited_information_fit
from inference.inspection.local_dependence import LocalDependence, local_dependence
from inference.inspection.noisy_or import (
    LatentFilter,
    Recovery,
    choose_num_latents,
    filter_latents,
    filter_merge_refit,
    matching_stability,
    merge_latents,
    recovery,
    trim,
)
from inference.inspection.options import (
    LikelihoodParts,
    filter_options,
    log_likelihood_parts,
    predict_actions,
    sample_options,
    simulate_actions,
    smooth_options,
    viterbi_options,
)
from inference.inspection.q_criteria import (
    ItemBIC,
    LikelihoodRatioSteps,
    QCriterion,
    VarianceHull,
    VarianceShare,
    WaldSteps,
)
from inference.inspection.q_validation import QChange, QValidation, validate_q
from inference.inspection.topics import (
    negative_coherence,
    perplexity,
    predictive_perplexity,
    representative_words,
    top_words,
    topic_similarity,
    word_probabilities,
)

__all__ = [
    "ClassifierCurves",
    "ClassifierEnsemble",
    "ClassifierReadout",
    "CurveBands",
    "WeightSpread",
    "classifier_curves",
    "classifier_ensemble",
    "component_histogram",
    "read_classifiers",
    "Classification",
    "Reversal",
    "classify_rows",
    "reversals",
    "ChainTimes",
    "Filtered",
    "Forecast",
    "MostProbablePath",
    "chain_times",
    "filter_states",
    "forecast",
    "pseudo_residuals",
    "sample_states",
    "smooth_states",
    "viterbi_states",
    "ItemCurves",
    "ProfileShares",
    "item_curves",
    "profile_shares",
    "ItemFit",
    "item_fit",
    "ItemRules",
    "item_rules",
    "LimitedInformationFit",
    "limited_information_fit",
    "LocalDependence",
    "local_dependence",
    "ColumnRecovery",
    "column_recovery",
    "used_columns",
    "GroupMeans",
    "group_means",
    "LatentFilter",
    "Recovery",
    "choose_num_latents",
    "filter_latents",
    "filter_merge_refit",
    "matching_stability",
    "merge_latents",
    "recovery",
    "trim",
    "LikelihoodParts",
    "filter_options",
    "log_likelihood_parts",
    "predict_actions",
    "sample_options",
    "simulate_actions",
    "smooth_options",
    "viterbi_options",
    "ItemBIC",
    "LikelihoodRatioSteps",
    "QCriterion",
    "VarianceHull",
    "VarianceShare",
    "WaldSteps",
    "QChange",
    "QValidation",
    "validate_q",
    "negative_coherence",
    "perplexity",
    "predictive_perplexity",
    "representative_words",
    "top_words",
    "topic_similarity",
    "word_probabilities",
]
