"""Inspection of fitted latents: topics, classes, causes, dictionaries, options, states."""

from typing import TYPE_CHECKING

from ppl_models.parts.surface import on_first_use as _on_first_use

if TYPE_CHECKING:
    from inference.inspection.classification import (
        class_accuracy as class_accuracy,
        classify_rows as classify_rows,
    )
    from inference.inspection.classifier_ensemble import (
        ClassifierEnsemble as ClassifierEnsemble,
        classifier_ensemble as classifier_ensemble,
    )
    from inference.inspection.classifiers import (
        classifier_curves as classifier_curves,
        read_classifiers as read_classifiers,
    )
    from inference.inspection.dictionary import column_recovery as column_recovery
    from inference.inspection.hidden_markov import (
        chain_times as chain_times,
        filter_states as filter_states,
        forecast as forecast,
        pseudo_residuals as pseudo_residuals,
        viterbi_states as viterbi_states,
    )
    from inference.inspection.item_curves import (
        item_curves as item_curves,
        profile_shares as profile_shares,
    )
    from inference.inspection.item_fit import (
        item_fit as item_fit,
        limited_information_fit as limited_information_fit,
        local_dependence as local_dependence,
    )
    from inference.inspection.item_rules import item_rules as item_rules
    from inference.inspection.noisy_or import (
        filter_latents as filter_latents,
        filter_merge_refit as filter_merge_refit,
        matching_stability as matching_stability,
        recovery as recovery,
        trim as trim,
    )
    from inference.inspection.options import (
        filter_options as filter_options,
        predict_actions as predict_actions,
        sample_options as sample_options,
        viterbi_options as viterbi_options,
    )
    from inference.inspection.q_validation import (
        ItemBIC as ItemBIC,
        LikelihoodRatioSteps as LikelihoodRatioSteps,
        QChange as QChange,
        QCriterion as QCriterion,
        QValidation as QValidation,
        VarianceHull as VarianceHull,
        VarianceShare as VarianceShare,
        WaldSteps as WaldSteps,
        validate_q as validate_q,
    )
    from inference.inspection.topics import (
        group_means as group_means,
        negative_coherence as negative_coherence,
        perplexity as perplexity,
        predictive_perplexity as predictive_perplexity,
        representative_words as representative_words,
        topic_similarity as topic_similarity,
    )

__getattr__, __dir__ = _on_first_use(__name__)
