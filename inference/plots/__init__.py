"""Pictures: of fits, layers, components, comparisons, choices."""

from typing import TYPE_CHECKING

from ppl_models.parts.surface import on_first_use as _on_first_use

if TYPE_CHECKING:
    from inference.plots.attributes import (
        plot_item_curves as plot_item_curves,
        plot_mastery as plot_mastery,
        plot_mesa as plot_mesa,
        plot_profiles as plot_profiles,
        plot_q_matrix as plot_q_matrix,
    )
    from inference.plots.classifiers import (
        plot_certainty as plot_certainty,
        plot_classifiers as plot_classifiers,
        plot_component_densities as plot_component_densities,
        plot_saturation as plot_saturation,
    )
    from inference.plots.components import (
        plot_categories as plot_categories,
        plot_discrepancies as plot_discrepancies,
        plot_return as plot_return,
        plot_scree as plot_scree,
        plot_signatures as plot_signatures,
    )
    from inference.plots.estimates import plot_estimates as plot_estimates
    from inference.plots.fit import (
        plot_check as plot_check,
        plot_posterior_predictive as plot_posterior_predictive,
        plot_restarts as plot_restarts,
        plot_trace as plot_trace,
    )
    from inference.plots.hidden_markov import (
        plot_decoded_path as plot_decoded_path,
        plot_dwell_times as plot_dwell_times,
        plot_transitions as plot_transitions,
    )
    from inference.plots.layers import (
        plot_latent_graph as plot_latent_graph,
        plot_loading_images as plot_loading_images,
        plot_loadings as plot_loadings,
        plot_reconstructions as plot_reconstructions,
    )
    from inference.plots.noisy_or import (
        plot_failures as plot_failures,
        plot_latents as plot_latents,
        plot_matching_stability as plot_matching_stability,
    )
    from inference.plots.options import (
        plot_option_occupancy as plot_option_occupancy,
        plot_option_switches as plot_option_switches,
        plot_policies as plot_policies,
        plot_policy_tables as plot_policy_tables,
    )
    from inference.plots.topics import (
        plot_group_means as plot_group_means,
        plot_skill_effects as plot_skill_effects,
        plot_topic_words as plot_topic_words,
    )

__getattr__, __dir__ = _on_first_use(__name__)
