"""Sequences of states and actions: checks, packing, and their laws with the hidden part summed
out.
"""

from ppl_models.sequences.chain_plan import (
    ChainPlan,
    log_products,
    log_recursion,
    plan_of,
    remember,
)
from ppl_models.sequences.codes import TABLE_SIZE, Codes, slices, small_integers
from ppl_models.sequences.feature_trajectories import (
    FeatureScaleWarning,
    as_feature_trajectories,
    feature_lengths,
)
from ppl_models.sequences.hidden_chain import (
    AllowedMoves,
    AllowedRows,
    HiddenChain,
    emission_densities,
    limit_law,
    log_chain,
    log_chain_exactly,
    stationary_law,
)
from ppl_models.sequences.item_sequences import as_item_sequences, inside_of, places_of
from ppl_models.sequences.option_chain import (
    DirichletMatrix,
    MatrixSimplex,
    OptionChain,
    draw_categorical,
    draw_paths,
)
from ppl_models.sequences.policy_chain import (
    PolicyChain,
    PolicyPlan,
    draw_along,
    log_policies,
    policy_plan_of,
    switch_order,
)
from ppl_models.sequences.trajectories import (
    UnvisitedWarning,
    as_trajectories,
    check_present,
    pack,
    trajectory_lengths,
    unpack,
    warn_unvisited,
)
from ppl_models.sequences.word_blocks import PIECE, WordBlocks, gathered, rows_of, scaled
from ppl_models.sequences.word_pieces import WordPieces, tied
from ppl_models.sequences.word_tree import WordTree

__all__ = [
    "ChainPlan",
    "log_products",
    "log_recursion",
    "plan_of",
    "remember",
    "TABLE_SIZE",
    "Codes",
    "slices",
    "small_integers",
    "FeatureScaleWarning",
    "as_feature_trajectories",
    "feature_lengths",
    "AllowedMoves",
    "AllowedRows",
    "HiddenChain",
    "emission_densities",
    "limit_law",
    "log_chain",
    "log_chain_exactly",
    "stationary_law",
    "as_item_sequences",
    "inside_of",
    "places_of",
    "DirichletMatrix",
    "MatrixSimplex",
    "OptionChain",
    "draw_categorical",
    "draw_paths",
    "PolicyChain",
    "PolicyPlan",
    "draw_along",
    "log_policies",
    "policy_plan_of",
    "switch_order",
    "UnvisitedWarning",
    "as_trajectories",
    "check_present",
    "pack",
    "trajectory_lengths",
    "unpack",
    "warn_unvisited",
    "PIECE",
    "WordBlocks",
    "gathered",
    "rows_of",
    "scaled",
    "WordPieces",
    "tied",
    "WordTree",
]
