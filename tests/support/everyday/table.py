"""The table of twenty programs: where their form comes from, their data, who fits them, and their
log-likelihood by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.everyday import by_hand, data, programs

__all__ = ["TWENTY", "Everyday"]

EXACT = ("EM", "Laplace", "SVI", "NUTS")
BITS = ("EM", "SAEM", "Laplace", "SVI", "NUTS")
DRAWN = ("SVI", "NUTS")


@dataclass(frozen=True)
class Everyday:
    """One program as people write it.

    Args:
        source: where the form is found.
        program, data: what ``fit`` takes; the data are made when asked for.
        log_likelihood: of parameters (and continuous latents of the rows) by hand.
        engines: that fit it; the others of :data:`BITS` refuse it in a sentence.
    """

    source: str
    program: Callable[[Any], None]
    data: Callable[[], Any]
    log_likelihood: Callable[[by_hand.Values, Any], float]
    engines: tuple[str, ...] = EXACT


EXAMPLES, TUTORIALS = "Pyro's examples/", "pyro.ai/examples/"
COMMON = "a common form, no one page: "

TWENTY = {
    "gaussian mixture": Everyday(
        TUTORIALS + "gmm.html",
        programs.gaussian_mixture,
        data.five_points,
        by_hand.mixture_of_normals,
    ),
    "hmm, sequences in a loop": Everyday(
        EXAMPLES + "hmm.py, model_0", programs.hmm_0, lambda: data.tones(3, 4, 2, 2), by_hand.hmm
    ),
    "hmm, masked": Everyday(EXAMPLES + "hmm.py, model_1", programs.hmm_1, data.tones, by_hand.hmm),
    "autoregressive hmm": Everyday(
        EXAMPLES + "hmm.py, model_2", programs.hmm_2, data.tones, by_hand.autoregressive_hmm
    ),
    "factorial hmm": Everyday(
        EXAMPLES + "hmm.py, model_3",
        programs.hmm_3,
        lambda: data.tones(4, 4, 3, 2),
        by_hand.factorial_hmm,
    ),
    "nested plates": Everyday(
        TUTORIALS + "enumeration.html, plates and enumeration",
        programs.nested_plates,
        data.a_table,
        by_hand.nested_plates,
    ),
    "capture-recapture": Everyday(
        EXAMPLES + "capture_recapture/cjs.py, model_1",
        programs.capture_recapture,
        data.captures,
        by_hand.capture_recapture,
        BITS,
    ),
    "zero-inflated Poisson": Everyday(
        "NumPyro's examples/zero_inflated_poisson.py, without covariates, its zeros an enumerated"
        " Bernoulli",
        programs.zero_inflated_poisson,
        data.counts,
        by_hand.zero_inflated,
        BITS,
    ),
    "topics": Everyday(EXAMPLES + "lda.py", programs.topics, data.words, by_hand.topics, DRAWN),
    "change point": Everyday(
        COMMON + "one change of a rate, an enumerated Categorical",
        programs.change_point,
        data.accidents,
        by_hand.change_point,
    ),
    "mixture of regressions": Everyday(
        "forum.pyro.ai/t/extending-gmms-for-regressions-within-clusters/6134, in one dimension",
        programs.mixture_of_lines,
        data.lines_of_two,
        by_hand.mixture_of_lines,
    ),
    "latent classes": Everyday(
        COMMON + "latent class analysis of binary items",
        programs.latent_classes,
        data.answers,
        by_hand.latent_classes,
    ),
    "Dawid and Skene": Everyday(
        "NumPyro's examples/annotation.py, dawid_skene, in Pyro",
        programs.dawid_skene,
        data.labels,
        by_hand.dawid_skene,
    ),
    "MACE": Everyday(
        "NumPyro's examples/annotation.py, mace, in Pyro", programs.mace, data.labels, by_hand.mace
    ),
    "hierarchical Dawid and Skene": Everyday(
        "NumPyro's examples/annotation.py, hierarchical_dawid_skene, in Pyro",
        programs.hierarchical_dawid_skene,
        data.labels,
        by_hand.hierarchical_dawid_skene,
    ),
    "Dirichlet process, truncated": Everyday(
        TUTORIALS + "dirichlet_process_mixture.html",
        programs.dirichlet_process,
        data.three_heaps,
        by_hand.dirichlet_process,
    ),
    "Rasch": Everyday(
        COMMON + "item response models, abilities and difficulties in two plates",
        programs.rasch,
        data.ratings,
        by_hand.rasch,
        DRAWN,
    ),
    "eight schools": Everyday(
        EXAMPLES + "eight_schools/mcmc.py",
        programs.eight_schools,
        data.schools,
        by_hand.eight_schools,
        DRAWN,
    ),
    "line with outliers": Everyday(
        "a thread of NumPyro, How to properly define a mixture: a line with outliers",
        programs.line_with_outliers,
        data.points,
        by_hand.line_with_outliers,
        BITS,
    ),
    "measurements with gaps": Everyday(
        COMMON + "several columns with missing values",
        programs.measurements_with_gaps,
        data.persons,
        by_hand.measurements_with_gaps,
        BITS,
    ),
}
