"""Interface of component distributions: densities, EM, starts, free parameters, noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from inference.base.component_noise import Cells
from inference.base.steps import RunningSum
from inference.base.structure import NamedEstimate
from inference.programs.coordinates import NormalScales
from inference.programs.program import Params
from ppl_models.descriptions.components import MixtureComponents

AT_ONCE = 2**22  # numbers of the rows from which a start is read


@dataclass(frozen=True)
class MixtureStatistics:
    """Expected sufficient statistics of a mixture: counts, sums, covariate terms.

    Args:
        counts: expected rows a component, (R, K).
        of_distribution: what the distribution of the components sums up, a record.
        cross: sums of rows' terms by component, (R, K - 1, Q), where the components depend on
            covariates.
    """

    counts: Tensor
    of_distribution: Any
    cross: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows under their distribution, components before rows.

    Args:
        distribution: of the components.
        data: (N, J), or (R, N, J) where every restart has rows of its own.
        centre: about which sums are taken, (J,) or (R, 1, J).
    """

    distribution: ComponentDistribution
    data: Tensor
    centre: Tensor

    def log_densities(self, params: Params) -> Tensor:
        """Log-densities of the rows under every component, (R, K, N)."""
        return self.distribution.log_densities(params, self.data).mT

    def log_joint(self, params: Params, before: Tensor) -> Tensor:
        """Log-densities plus log-chances of the components, (R, N, K) or (R, 1, K): (R, K, N)."""
        return self.log_densities(params) + before.mT

    def statistics(self, share: Tensor, params: Params) -> Any:
        """Expected sufficient statistics, given responsibilities (R, K, N)."""
        return self.distribution.statistics(self.data, share.mT, self.centre, params)

    def part(self, rows: slice) -> Rows:
        """Some of the rows of (N, J), with what was worked out for them."""
        return replace(self, data=self.data[rows])


@dataclass(frozen=True, eq=False)
class LinearRows(Rows):
    r"""Rows of an exponential family, the same for all restarts.

    The log-density of row n under component k is :math:`f_n^\top w_k + a_k + h_n`, so that an
    E-step is one product of features f with weights w, natural parameters of the components, and
    the statistics are sums of the features.
    """

    @cached_property
    def features(self) -> Tensor:
        """Features of the rows, a row of the table for each, (Q, N)."""
        raise NotImplementedError

    def part(self, rows: slice) -> LinearRows:
        part = cast("LinearRows", super().part(rows))
        part.__dict__["features"] = self.features[:, rows]
        if self.base_measure is not None:
            part.__dict__["base_measure"] = self.base_measure[rows]
        return part

    @cached_property
    def base_measure(self) -> Tensor | None:
        """Terms h that depend on the row alone, (N,); None where all are 0."""
        return None

    def weights(self, params: Params) -> tuple[Tensor, Tensor]:
        """Weights of the features, (R, K, Q), and constants, (R, K)."""
        raise NotImplementedError

    def log_densities(self, params: Params) -> Tensor:
        return self._product(*self.weights(params))

    def log_joint(self, params: Params, before: Tensor) -> Tensor:
        weights, constants = self.weights(params)
        if before.shape[-2] == 1:
            return self._product(weights, constants + before.squeeze(-2))
        return self._product(weights, constants).add_(before.mT)

    def _product(self, weights: Tensor, constants: Tensor) -> Tensor:
        flat = weights.reshape(-1, weights.shape[-1])
        joint = torch.addmm(constants.reshape(-1, 1), flat, self.features)
        if self.base_measure is not None:
            joint = joint.add_(self.base_measure)
        return joint.reshape(*weights.shape[:-1], -1)

    def sums(self, share: Tensor) -> Tensor:
        """Sums of the features, given responsibilities (R, K, N): (R, K, Q)."""
        sums = share.reshape(-1, share.shape[-1]) @ self.features.mT
        return sums.reshape(*share.shape[:-1], -1)


@dataclass(frozen=True)
class ComponentDistribution:
    """Component distribution; one subclass a kind of component.

    Parameters stand without the weights, with a leading dim of restarts or without it as a method
    says.

    Args:
        about: the model's description.
    """

    about: MixtureComponents

    site: ClassVar[str]  # the parameter (K, J) that says where components lie
    # parameters that all components share, without a dim for them
    shared: ClassVar[frozenset[str]] = frozenset()
    equation: ClassVar[str] = ""  # the distribution in a sentence of a page

    @property
    def shown(self) -> str:
        """Distribution of a row given its component k, as a page writes it."""
        return self.equation

    @property
    def width(self) -> int:
        """Memory of a row for every component, in numbers, beside one."""
        return 1

    @property
    def of_sums(self) -> bool:
        """Tell whether the M-step needs sums over rows alone, not the rows once more."""
        return True

    def separates(self, sites: AbstractSet[str]) -> bool:
        """Tell whether an M-step finds each entry of these sites whatever all others are."""
        return not sites

    def pools(self, ties: Mapping[str, Tensor]) -> bool:
        """Tell whether :meth:`pooled` finds the statistics of these ties."""
        return not ties

    def pooled(self, statistics: Any, ties: Mapping[str, Tensor]) -> Any:
        """Statistics whose M-step finds the best value in common of tied entries.

        Args:
            statistics: (R, K, ...); ties: by site, the place of the first entry equal to each.
        """
        return statistics

    def statistic(self, data: Tensor) -> tuple[Tensor, Tensor | None]:
        """Columns that means are taken of, and the mask of entries (None if all are there)."""
        return data, None

    def centre(self, data: Tensor) -> Tensor:
        """Mean of these columns over rows (N, J), about which sums are taken against rounding."""
        return self.statistic(data)[0].mean(0)

    def scales(self, data: Tensor, weights: Tensor | None = None) -> Tensor:
        """Variances of columns with a variance floor, over all components, (D,).

        Args:
            data: (N, J); weights: how often each row counts, (N,); None for once.
        """
        return data.new_zeros(0)

    def floor(self, data: Tensor, weights: Tensor | None = None) -> Tensor:
        """Least variance of every column that has one, (D,): a share of its scale."""
        scales = self.scales(data, weights)
        return (
            (self.about.variance_floor * scales).clamp(*ends(self.about.variance_limits, scales))
            if len(scales)
            else scales
        )

    def log_densities(self, params: Params, data: Tensor) -> Tensor:
        """Log-density of every row under every component, (N, K) or (R, N, K).

        Args:
            data: (N, J), or (R, N, J) where every restart has rows of its own.
        """
        raise NotImplementedError

    def rows(self, data: Tensor, centre: Tensor) -> Rows:
        """Rows for many E-steps: what does not depend on the parameters is worked out once.

        Args:
            data: as above; centre: about which sums are taken, (J,) or (R, 1, J).
        """
        return Rows(self, data, centre)

    def statistics(
        self, data: Tensor, responsibilities: Tensor, centre: Tensor, params: Params | None
    ) -> Any:
        """Expected sufficient statistics, a record of sums over rows.

        Args:
            data: as above; responsibilities: (R, N, K).
            centre: about which sums are taken, (J,) or (R, 1, J).
            params: (R, ...), where the distribution has latents of its own; None at a start, before
                there are any.
        """
        raise NotImplementedError

    def m_step(self, statistics: Any, counts: Tensor, params: Params, floor: Tensor) -> Params:
        """Update parameters (R, ...) so that the expected log-posterior does not fall.

        Args:
            statistics: as above; counts: (R, K).
            params: before the step.
            floor: least variances, (D,) or (R, 1, D).
        """
        raise NotImplementedError

    def first(
        self, data: Tensor, responsibilities: Tensor, centre: Tensor, blank: Params, floor: Tensor
    ) -> Params:
        """Starting parameters from given responsibilities, (R, ...).

        Args:
            data, responsibilities, centre, floor: as above.
            blank: any values, (R, ...).
        """
        rows = max(1, AT_ONCE // self.width)
        parts = zip(data.split(rows), responsibilities.split(rows, -2), strict=True)
        total = RunningSum[Any]()
        for block, share in parts:
            total.add(self.statistics(block, share, centre, None))
        return self.m_step(total.total(), responsibilities.mT.sum(-1), blank, floor)

    def moved(self, params: Params, centres: Tensor, widths: Tensor) -> Params:
        r"""Parameters of :math:`c_j + w_j x_j` from those of x, with any leading dims.

        Args:
            centres, widths: c and w, each (J,); 0 and 1 for an item that has no units of its own.
        """
        raise NotImplementedError

    def expected_rows(self, params: Params, shares: Tensor) -> Tensor:
        """Expected entries given chances of the components, (..., J); the modal code of categories.

        Args:
            params: (K, ...); shares: (..., K).
        """
        raise NotImplementedError

    def completed_rows(self, params: Params, shares: Tensor, data: Tensor) -> Tensor:
        """Expected rows with missing entries conditional on those that are there.

        Args:
            params: (K, ...); shares: (N, K); data: (N, J).
        """
        return self.expected_rows(params, shares)

    def patterns(self, data: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
        """Distinct rows (P, J) and their counts (P,); None where there is little to merge.

        Args:
            data, weights: as :meth:`scales`.
        """
        return None

    def features(self, params: Params) -> Tensor:
        """Features that separate components, (D, K, F), of parameters (D, K, ...).

        Without units, so that no column outweighs others by its unit alone: locations in units of
        the items, and logarithms of their spreads.
        """
        raise NotImplementedError

    def variances_at_start(self, variances: Tensor) -> Tensor:
        """Variances that columns are divided by for starts, so that statistics are comparable."""
        return variances

    def num_free(self, params: Params) -> int:
        """Free parameters of all components, (K, ...)."""
        return sum(value.numel() for value in params.values())

    def at_bound(self, params: Params) -> list[str]:
        """Entries that lie on the bound of their interval."""
        low, high = ends(self.about.limits, params[self.site])
        return [
            f"{self.site}{index}"
            for index in (
                ((2 * params[self.site] - low - high).abs() >= 0.999 * (high - low))
                .nonzero()
                .tolist()
            )
        ]

    def spread_of(self, data: Tensor, weights: Tensor | None = None) -> Tensor:
        """Spread of all rows, against which :meth:`faults` holds that of components.

        Args:
            data, weights: as :meth:`scales`.
        """
        return self.scales(data, weights)

    def faults(
        self,
        spread_of_all: Callable[[], Tensor],
        params: Params,
        counts: Tensor,
        floor: Tensor,
        names: Sequence[str],
    ) -> list[tuple[str, ...]]:
        """Components that have shrunk onto a few rows or equal values, in words, by restart.

        Args:
            spread_of_all: gives :meth:`spread_of` the rows, which are read where that is needed.
            params: (R, K, ...); counts: expected rows, (R, K).
            floor: least variances, (D,); names: of the items.
        """
        return [()] * len(counts)

    def normal_scales(self, params: Params) -> NormalScales | None:
        """As :meth:`inference.base.structure.Structure.normal_scales`, of parameters (K, ...)."""
        return None

    def named_estimates(self) -> dict[str, NamedEstimate]:
        """Functions of the parameters under users' names of them."""
        return {}

    def dispersed_items(self, items: Sequence[str]) -> list[str]:
        """Items whose family has a dispersion."""
        return []

    def answers(self) -> tuple[int, ...] | None:
        """Number of answers of every item; None where an item has no such number."""
        return None

    def category_names(self, items: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Names of the categories of the items that have some, by item."""
        return {}

    def numeric_items(self, items: Sequence[str]) -> list[str]:
        """Items without a table of probabilities."""
        return list(items)

    def threshold_names(self, items: Sequence[str]) -> list[str]:
        """Names of the thresholds of ordinal items under a link."""
        return []

    def category_chances(self, params: Params) -> Tensor:
        """Probabilities of all categories of all items that have some, (K, P).

        Raises:
            ValueError: for a distribution without such items.
        """
        raise ValueError("category_chances: a mixture with categorical items was expected")

    def as_numbers(self, table: Tensor) -> Tensor:
        """Table of items (..., J) with indicators of all categories but the first."""
        return table

    def num_densities(self, num_items: int) -> int:
        """Number of items with a density, as against a probability."""
        return num_items

    def scores(self, params: Params, data: Tensor, rng: np.random.Generator) -> np.ndarray:
        """Noise of every row under every component as normal scores, (N, K, D).

        Args:
            params: (K, ...); data: (N, J).

        Raises:
            ValueError: for a response family without a known distribution function.
        """
        raise NotImplementedError

    @property
    def num_scores(self) -> int:
        """Number D of columns of noise scores."""
        return self.about.num_items

    @property
    def knows_noise(self) -> bool:
        """Tell whether :meth:`scores` gives scores of the noise."""
        return True

    def cells(self, params: Params, data: Tensor, responsibilities: Tensor) -> Cells | None:
        """Weights and log-probabilities of distinct rows, where items are discrete and complete."""
        return None


def ends(limits: tuple[tuple[float, float], ...], like: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of intervals, each (J,), in the dtype of a tensor; not to be changed."""
    return _ends(limits, like.dtype, like.device)


@lru_cache(maxsize=64)  # M-steps ask for them
def _ends(
    limits: tuple[tuple[float, float], ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    both = torch.tensor(limits, dtype=dtype, device=device).reshape(-1, 2)
    return both[:, 0].contiguous(), both[:, 1].contiguous()


def outer_products(weight: Tensor, t: Tensor) -> Tensor:
    """Sums of outer products of rows, (R, K, J, J).

    Args:
        weight: (R, K, N); t: (N, J) or (R, N, J).
    """
    if t.dim() == 3:
        products: Tensor = weight.unsqueeze(-2) * t.mT.unsqueeze(1) @ t.unsqueeze(1)
        return products
    j = t.shape[1]
    return cast(
        Tensor, (weight @ (t.unsqueeze(-1) * t.unsqueeze(-2)).flatten(1)).unflatten(-1, (j, j))
    )


def whitened(factor: Tensor, means: Tensor, data: Tensor) -> Tensor:
    """Whiten rows about their component's mean by a factor L of its precision L L^T.

    Args:
        factor: ([R], K, J, J); means: ([R], K, J); data: (N, J), or (R, N, J).

    Returns:
        (N, [R], K, J), or (R, K, N, J) where every restart has rows of its own.
    """
    if data.dim() == 3:
        residuals: Tensor = (data.unsqueeze(1) - means.unsqueeze(-2)) @ factor
        return residuals
    scaled = data @ factor.flatten(0, -3).movedim(0, 1).reshape(data.shape[1], -1)  # (N, [R] K J)
    shift = (means.unsqueeze(-2) @ factor).squeeze(-2)  # ([R], K, J)
    return scaled.reshape((len(data), *factor.shape[:-2], data.shape[1])) - shift


def log_diagonal(factor: Tensor) -> Tensor:
    """Sum of the logs of a triangular factor's diagonal."""
    total: Tensor = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return total


def log_two_pi(num_items: int, like: Tensor) -> Tensor:
    """Half the number of columns times the log of two pi."""
    return 0.5 * num_items * torch.log(torch.tensor(2 * torch.pi, dtype=like.dtype))
