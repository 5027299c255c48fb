"""Data: simulation designs with a known truth, real data sets, and tables from files."""

from ppl_models.datasets.deep_discrete_encoder import (
    deep_design,
    empty_graph_accuracy,
    generic_design,
    strict_design,
)
from ppl_models.datasets.demonstrations import GridWorld, UnlockPickup, load_unlock_pickup
from ppl_models.datasets.digits import Digits, load_digits
from ppl_models.datasets.fetch import fetch, local_file
from ppl_models.datasets.files import Table, read_table
from ppl_models.datasets.fraction_subtraction import FractionSubtraction, load_fraction_subtraction
from ppl_models.datasets.hyperspectral import SCENES, Scene, load_scene, simulate_scene
from ppl_models.datasets.independent_classifiers import (
    ImagePairs,
    IndependentMixture,
    IndependentSample,
    NormalComponents,
    UniformCells,
    image_pairs,
    mnist_pairs,
    simulate_checkerboard,
    simulate_trivariate,
    simulate_two_gaussians,
)
from ppl_models.datasets.latent_attributes import AttributeDesign, causal_attributes, mastery_test
from ppl_models.datasets.long_files import stream_sequences
from ppl_models.datasets.mixed_tables import MixedTable, load_diabetes_table, load_timss_table
from ppl_models.datasets.mixtures import (
    negative_binomial_mixture,
    skew_normal_mixture,
    skew_normal_mixture_50d,
    thresholded_normals,
)
from ppl_models.datasets.mnist import MnistDigits, MnistImages, load_mnist_digits, load_mnist_images
from ppl_models.datasets.mutational_signatures import (
    SYNTHETIC_BREAST,
    MutationCounts,
    load_breast,
    simulate_mutations,
)
from ppl_models.datasets.newsgroups import Newsgroups, load_newsgroups, split_counts
from ppl_models.datasets.noisy_or import (
    NoisyOrSample,
    PlantRegions,
    flip_columns,
    image_design,
    image_uniform_design,
    load_noisy_or_sample,
    load_plant_base,
    load_plant_regions,
    random_design,
    sample_noisy_or,
    thresholded,
    uniform_design,
)
from ppl_models.datasets.options import (
    OptionSequences,
    options_chain,
    random_options,
    simulate_options,
)
from ppl_models.datasets.sparse_coding import (
    load_paired_dictionary,
    paired_dictionary,
    sample_sparse_codes,
)
from ppl_models.datasets.timss import ResponseTimes, load_response_times, load_timss

__all__ = [
    "SCENES",
    "Scene",
    "load_scene",
    "simulate_scene",
    "AttributeDesign",
    "Digits",
    "FractionSubtraction",
    "GridWorld",
    "MnistDigits",
    "MutationCounts",
    "Newsgroups",
    "NoisyOrSample",
    "OptionSequences",
    "PlantRegions",
    "ResponseTimes",
    "SYNTHETIC_BREAST",
    "Table",
    "UnlockPickup",
    "causal_attributes",
    "deep_design",
    "empty_graph_accuracy",
    "fetch",
    "flip_columns",
    "generic_design",
    "image_design",
    "image_uniform_design",
    "load_breast",
    "load_digits",
    "load_fraction_subtraction",
    "load_mnist_digits",
    "load_newsgroups",
    "load_noisy_or_sample",
    "load_plant_base",
    "load_plant_regions",
    "load_paired_dictionary",
    "load_response_times",
    "load_timss",
    "load_unlock_pickup",
    "local_file",
    "negative_binomial_mixture",
    "mastery_test",
    "options_chain",
    "paired_dictionary",
    "stream_sequences",
    "random_design",
    "random_options",
    "read_table",
    "sample_noisy_or",
    "sample_sparse_codes",
    "simulate_mutations",
    "simulate_options",
    "skew_normal_mixture",
    "skew_normal_mixture_50d",
    "split_counts",
    "strict_design",
    "thresholded_normals",
    "thresholded",
    "uniform_design",
    "ImagePairs",
    "IndependentMixture",
    "IndependentSample",
    "NormalComponents",
    "UniformCells",
    "image_pairs",
    "mnist_pairs",
    "simulate_checkerboard",
    "simulate_trivariate",
    "simulate_two_gaussians",
    "MixedTable",
    "load_diabetes_table",
    "load_timss_table",
    "MnistImages",
    "load_mnist_images",
]
