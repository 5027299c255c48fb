"""Mutations of tumours by 96 channels: real tumours, synthetic sets, generators."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ppl_models.datasets.fetch import FOLDER_VARIABLE, local_file
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed

FILE = "mutational_signatures.npz"
SYNTHETIC_BREAST = ("well_specified", "perturbed", "contaminated", "overdispersed")


@shows_briefly
@dataclass(frozen=True, eq=False)
class MutationCounts:
    """Mutation counts and, where they are synthetic, the parameters behind them.

    Args:
        counts: (N, 96) whole numbers; channels: names of the columns.
        signatures: (K, 96) true signatures, activities: (N, K) true activities; None for real
            tumours.
    """

    counts: np.ndarray
    channels: tuple[str, ...]
    signatures: np.ndarray | None
    activities: np.ndarray | None


def load_breast(variant: str | None = None) -> MutationCounts:
    """Load 214 breast tumours: real counts, or a synthetic set.

    The real counts are those of PCAWG, the four sets those of Xue, Miller, Carter and Huggins.

    The synthetic sets are those of the repository TARPS-group/BayesPowerNMF; their truth, twelve
    COSMIC v2 signatures, is recomputed by the generator's published rule.

    Args:
        variant: None for the real counts, or one of ``SYNTHETIC_BREAST``.

    Raises:
        ValueError: for another variant.
        FileNotFoundError: if the folder ``PPL_MODELS_DATA`` names does not hold
            ``mutational_signatures.npz``.
    """
    if variant is not None and variant not in SYNTHETIC_BREAST:
        raise ValueError(
            f"load_breast: variant must be None or one of {SYNTHETIC_BREAST}, got {variant!r}"
        )
    path = local_file(FILE)
    if path is None:
        raise FileNotFoundError(
            f"{FILE} is not in the folder that {FOLDER_VARIABLE} names; it is made of the tables of"
            " the public repository TARPS-group/BayesPowerNMF (folder data) and of COSMIC v2"
            " signatures, whose terms forbid passing it on"
        )
    with np.load(path, allow_pickle=False) as file:
        channels = tuple(str(name) for name in file["channels"])
        if variant is None:
            return MutationCounts(file["breast_counts"].astype(float), channels, None, None)
        signatures = file["cosmic_v2"].T[file["truth_index"]]
        return MutationCounts(
            file[f"synthetic_{variant}"].astype(float), channels, signatures, file["truth_loadings"]
        )


def simulate_mutations(
    signatures: object, activities: object, variant: str = "well_specified", seed: Seed = 0
) -> np.ndarray:
    r"""Simulate mutation counts of one of the four kinds, (N, J).

    "well_specified": Poisson(:math:`z_n \phi`). "perturbed": each row has its own signatures,
    Dirichlet about the true ones with mean cosine error 0.0025. "contaminated": 98 % of each
    activity, the rest on a signature of the row's own, drawn from a flat Dirichlet.
    "overdispersed": negative binomial of variance twice the mean.

    Args:
        signatures: (K, J), rows on the simplex.
        activities: (N, K), not negative.
        variant: which.
        seed: of the draws.

    Raises:
        ValueError: for other shapes, negative entries, rows off the simplex, or another variant.
    """
    seed = as_seed("simulate_mutations", seed)
    phi, z = np.asarray(signatures, float), np.asarray(activities, float)
    if phi.ndim != 2 or z.ndim != 2 or z.shape[1] != len(phi):
        raise ValueError(
            "simulate_mutations: signatures (K, J) and activities (N, K) were expected, got"
            f" {phi.shape} and {z.shape}"
        )
    if not ((phi >= 0).all() and np.allclose(phi.sum(1), 1, atol=1e-6) and (z >= 0).all()):
        raise ValueError(
            "simulate_mutations: signatures on the simplex and activities that are not negative"
            " were expected"
        )
    if variant not in SYNTHETIC_BREAST:
        raise ValueError(
            f"simulate_mutations: variant must be one of {SYNTHETIC_BREAST}, got {variant!r}"
        )
    rng = np.random.default_rng(seed)
    if variant == "well_specified":
        return rng.poisson(z @ phi).astype(float)
    if variant == "overdispersed":
        mean = np.maximum(z @ phi, 1e-300)
        return rng.negative_binomial(np.maximum(mean, 1e-9), 0.5).astype(float)
    if variant == "contaminated":
        own = rng.dirichlet(np.ones(phi.shape[1]), size=len(z))
        return rng.poisson(0.98 * (z @ phi) + 0.02 * z.sum(1, keepdims=True) * own).astype(float)
    sparsity = 1 / (phi.shape[1] * (phi**2).sum(1))
    concentration = np.array([math.exp((3.6641 - math.log(0.0025 / s)) / 0.9820) for s in sparsity])
    mean = np.zeros((len(z), phi.shape[1]))
    for k in range(len(phi)):
        draws = rng.gamma(concentration[k] * phi[k], size=(len(z), phi.shape[1]))
        mean += z[:, k : k + 1] * draws / draws.sum(1, keepdims=True)
    return rng.poisson(mean).astype(float)
