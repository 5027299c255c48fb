"""Data: simulation designs with a known truth, real data sets, and tables from files."""

from ppl_models.data.files import (
    Table as Table,
    read_table as read_table,
    stream_sequences as stream_sequences,
)
from ppl_models.datasets.deep_discrete_encoder import strict_design as strict_design
from ppl_models.datasets.digits import Digits as Digits, load_digits as load_digits
from ppl_models.datasets.fraction_subtraction import (
    FractionSubtraction as FractionSubtraction,
    load_fraction_subtraction as load_fraction_subtraction,
)
from ppl_models.datasets.independent_classifiers import (
    image_pairs as image_pairs,
    simulate_checkerboard as simulate_checkerboard,
    simulate_trivariate as simulate_trivariate,
    simulate_two_gaussians as simulate_two_gaussians,
)
from ppl_models.datasets.latent_attributes import (
    AttributeDesign as AttributeDesign,
    causal_attributes as causal_attributes,
    mastery_test as mastery_test,
)
from ppl_models.datasets.mixed_tables import (
    load_diabetes_table as load_diabetes_table,
    load_timss_table as load_timss_table,
)
from ppl_models.datasets.mixtures import (
    negative_binomial_mixture as negative_binomial_mixture,
    skew_normal_mixture as skew_normal_mixture,
)
from ppl_models.datasets.mnist import (
    MnistDigits as MnistDigits,
    MnistImages as MnistImages,
    load_mnist_digits as load_mnist_digits,
    load_mnist_images as load_mnist_images,
)
from ppl_models.datasets.mutational_signatures import (
    MutationCounts as MutationCounts,
    load_breast as load_breast,
    simulate_mutations as simulate_mutations,
)
from ppl_models.datasets.newsgroups import (
    Newsgroups as Newsgroups,
    load_newsgroups as load_newsgroups,
    split_counts as split_counts,
)
from ppl_models.datasets.noisy_or import (
    image_design as image_design,
    sample_noisy_or as sample_noisy_or,
)
from ppl_models.datasets.options import (
    GridWorld as GridWorld,
    OptionSequences as OptionSequences,
    options_chain as options_chain,
    simulate_options as simulate_options,
)
from ppl_models.datasets.sparse_coding import (
    paired_dictionary as paired_dictionary,
    sample_sparse_codes as sample_sparse_codes,
)
from ppl_models.datasets.timss import (
    ResponseTimes as ResponseTimes,
    load_response_times as load_response_times,
    load_timss as load_timss,
)
from ppl_models.parts.surface import promised as _promised

__dir__ = _promised(__name__)
