"""Hidden Markov models: closed-form EM steps, starts, labels, paths of states."""

from inference.structures.hidden_markov.cut import Block, Cut, cut_of
from inference.structures.hidden_markov.em_steps import HiddenMarkovSteps, MoveCounts, initial_of
from inference.structures.hidden_markov.forward_backward import Smoothed, smoothed_blocks
from inference.structures.hidden_markov.paths import (
    Filtered,
    MostProbablePath,
    filtered_states,
    most_probable_path,
    path_draws,
    smoothed_states,
)
from inference.structures.hidden_markov.starts import near_rows, near_windows
from inference.structures.hidden_markov.structure import HiddenMarkovStructure, renamings

__all__ = [
    "Block",
    "Cut",
    "cut_of",
    "HiddenMarkovSteps",
    "MoveCounts",
    "initial_of",
    "Smoothed",
    "smoothed_blocks",
    "Filtered",
    "MostProbablePath",
    "filtered_states",
    "most_probable_path",
    "path_draws",
    "smoothed_states",
    "near_rows",
    "near_windows",
    "HiddenMarkovStructure",
    "renamings",
]
