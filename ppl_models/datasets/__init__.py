"""Data: simulation designs with a known truth, real data sets, and tables from files."""

from ppl_models.datasets.deep_discrete_encoder import deep_design, empty_graph_accuracy, generic_design, strict_design
from ppl_models.datasets.demonstrations import GridWorld, UnlockPickup, load_unlock_pickup
from ppl_models.datasets.digits import Digits, load_digits
from ppl_models.datasets.fetch import fetch, local_file
from ppl_models.datasets.files import Table, read_table
from ppl_models.datasets.mnist import MnistDigits, load_mnist_digits
from ppl_models.datasets.newsgroups import Newsgroups, load_newsgroups, split_counts
from ppl_models.datasets.noisy_or import (
    NoisyOrSample,
    PlantRegions,
    flip_columns,
    image_design,
    image_uniform_design,
    load_noisy_or_sample,
    load_plant_regions,
    random_design,
    sample_noisy_or,
    uniform_design,
)
from ppl_models.datasets.options import OptionSequences, options_chain, random_options, simulate_options
from ppl_models.datasets.timss import ResponseTimes, load_response_times, load_timss

__all__ = [
    "Digits",
    "GridWorld",
    "MnistDigits",
    "NoisyOrSample",
    "OptionSequences",
    "PlantRegions",
    "Newsgroups",
    "ResponseTimes",
    "Table",
    "UnlockPickup",
    "deep_design",
    "empty_graph_accuracy",
    "fetch",
    "flip_columns",
    "generic_design",
    "image_design",
    "image_uniform_design",
    "load_digits",
    "load_mnist_digits",
    "load_noisy_or_sample",
    "load_plant_regions",
    "load_unlock_pickup",
    "load_newsgroups",
    "load_response_times",
    "load_timss",
    "local_file",
    "options_chain",
    "random_design",
    "random_options",
    "read_table",
    "sample_noisy_or",
    "simulate_options",
    "split_counts",
    "strict_design",
    "uniform_design",
]
