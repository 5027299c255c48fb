"""Independent classifiers: costs, wishes, networks in training, starts and names."""

from inference.structures.classifiers.costs import (
    geometric_log_weights,
    linear_surrogate,
    log_pseudo_weights,
    log_ratio_rows,
    neg_cmi,
    neg_ctc,
    neg_mi,
    neg_tc,
    unnorm_neg_cmi,
    unnorm_neg_ctc,
)
from inference.structures.classifiers.kernels import KernelEM, KernelMixture, kernel_em
from inference.structures.classifiers.structure import ClassifierStructure
from inference.structures.classifiers.terms import (
    CrossTotalCorrelation,
    EvenWeights,
    KnownWeights,
    Labels,
)
from inference.structures.classifiers.train import TrainClassifiers

__all__ = [
    "ClassifierStructure",
    "CrossTotalCorrelation",
    "EvenWeights",
    "KernelEM",
    "KernelMixture",
    "KnownWeights",
    "Labels",
    "TrainClassifiers",
    "geometric_log_weights",
    "kernel_em",
    "linear_surrogate",
    "log_pseudo_weights",
    "log_ratio_rows",
    "neg_cmi",
    "neg_ctc",
    "neg_mi",
    "neg_tc",
    "unnorm_neg_cmi",
    "unnorm_neg_ctc",
]
