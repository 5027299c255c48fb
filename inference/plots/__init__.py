"""Pictures: of fits, layers, components, comparisons, choices."""

from inference.plots.attribute_groups import plot_group_mastery, plot_item_scores
from inference.plots.attributes import plot_profiles, plot_q_matrix
from inference.plots.categories import plot_categories
from inference.plots.causal import plot_causal_graph
from inference.plots.classifiers import (
    plot_certainty,
    plot_classifiers,
    plot_component_densities,
    plot_saturation,
)
from inference.plots.comparison import plot_comparison, plot_ranks
from inference.plots.components import (
    plot_abundances,
    plot_choice,
    plot_discrepancies,
    plot_groups,
    plot_return,
    plot_scree,
    plot_signatures,
)
from inference.plots.estimates import plot_estimates
from inference.plots.fit import plot_check, plot_posterior_predictive, plot_restarts, plot_trace
from inference.plots.hidden_markov import plot_decoded_path, plot_dwell_times, plot_transitions
from inference.plots.item_curves import plot_item_curves, plot_mastery
from inference.plots.layers import (
    plot_latent_graph,
    plot_loading_images,
    plot_loadings,
    plot_reconstructions,
)
from inference.plots.noisy_or import plot_failures, plot_latents, plot_matching_stability
from inference.plots.options import (
    plot_option_occupancy,
    plot_option_switches,
    plot_policies,
    plot_policy_tables,
)
from inference.plots.overview import plot_fit
from inference.plots.q_validation import plot_mesa
from inference.plots.selection import plot_how_many, plot_how_many_groups, plot_selection
from inference.plots.topics import plot_group_means, plot_skill_effects, plot_topic_words

__all__ = [
    "plot_group_mastery",
    "plot_item_scores",
    "plot_profiles",
    "plot_q_matrix",
    "plot_categories",
    "plot_causal_graph",
    "plot_certainty",
    "plot_classifiers",
    "plot_component_densities",
    "plot_saturation",
    "plot_comparison",
    "plot_ranks",
    "plot_abundances",
    "plot_choice",
    "plot_discrepancies",
    "plot_groups",
    "plot_return",
    "plot_scree",
    "plot_signatures",
    "plot_estimates",
    "plot_fit",
    "plot_check",
    "plot_posterior_predictive",
    "plot_restarts",
    "plot_trace",
    "plot_decoded_path",
    "plot_dwell_times",
    "plot_transitions",
    "plot_item_curves",
    "plot_mastery",
    "plot_latent_graph",
    "plot_loading_images",
    "plot_loadings",
    "plot_reconstructions",
    "plot_failures",
    "plot_latents",
    "plot_matching_stability",
    "plot_option_occupancy",
    "plot_option_switches",
    "plot_policies",
    "plot_policy_tables",
    "plot_how_many",
    "plot_how_many_groups",
    "plot_mesa",
    "plot_selection",
    "plot_group_means",
    "plot_skill_effects",
    "plot_topic_words",
]
