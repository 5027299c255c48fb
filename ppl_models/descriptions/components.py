"""How mixtures, factorizations and dictionaries describe their components to engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ppl_models.descriptions.row_laws import RowLaw
from ppl_models.parts.responses import ResponseFamily

__all__ = [
    "DictionaryDescription",
    "FactorDescription",
    "FactorizationDescription",
    "MixtureComponents",
    "UsageDescription",
    "VARIANCE_RANGE",
]

VARIANCE_RANGE = (1e-6, 1e6)  # the flat prior of a variance is proper on it


@dataclass(frozen=True)
class MixtureComponents:
    """What engines are told of a mixture.

    Args:
        num_components, num_items: K and J.
        component: the family of the components.
        concentration: of the symmetric Dirichlet prior of the weights.
        bound: half-width of the interval of predictors or means.
        variance_range: interval of the variances of a response family.
        variance_floor: least variance of a component, as a share of the column's.
    """

    num_components: int
    num_items: int
    component: ResponseFamily | RowLaw
    concentration: float
    bound: float
    variance_range: tuple[float, float]
    variance_floor: float = 0.0


@dataclass(frozen=True)
class FactorizationDescription:
    """What engines are told of a factorization.

    Args:
        num_items, num_components: J and K.
        counts: whether entries are Poisson counts; else Normal.
        nonnegative: whether signatures and activities are not below zero.
        concentration: of the Dirichlet prior of a signature (counts).
        activity_prior: (shape, rate) of the Gamma prior of activities, None for flat (counts).
        bound: largest activity; for Normal entries also the largest entry of a signature.
        variance: how the variance of negative binomial counts grows with the mean, "quadratic" or "linear", with one dispersion, a global
            site; None for Poisson counts or Normal entries.
    """

    num_items: int
    num_components: int
    counts: bool
    nonnegative: bool
    concentration: float
    activity_prior: tuple[float, float] | None
    bound: float
    variance: Literal["quadratic", "linear"] | None = None

    @property
    def dispersed(self) -> bool:
        """Whether counts have a dispersion."""
        return self.variance is not None


@dataclass(frozen=True)
class DictionaryDescription:
    """What engines are told of a sparse coding.

    Args:
        num_items, num_columns: J and m.
        sparsity: largest number of columns in a row.
        noise: standard deviation of an entry, None where it is estimated; noise_range: its interval.
        bound: largest entry of a code.
    """

    num_items: int
    num_columns: int
    sparsity: int
    noise: float | None
    noise_range: tuple[float, float]
    bound: float


@dataclass(frozen=True)
class UsageDescription:
    """What engines are told of a factorization whose components are absent or present in each row.

    Args:
        num_items, num_components: J and K.
        concentration: of the Dirichlet prior of a signature.
        shape: of the Gamma law of an amount, given that the component is present.
        bound: largest mean amount.
    """

    num_items: int
    num_components: int
    concentration: float
    shape: float
    bound: float


@dataclass(frozen=True)
class FactorDescription:
    """What engines are told of a factor analysis.

    Args:
        num_items, num_components: J and K.
        noise_shares: share of each component in the variance of an item, (K,), summing to 1.
        bound: largest entry of a signature or intercept.
    """

    num_items: int
    num_components: int
    noise_shares: tuple[float, ...]
    bound: float
