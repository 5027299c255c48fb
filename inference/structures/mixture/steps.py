"""EM steps of mixtures with closed-form components; weights or a logit of covariates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from inference.base.component_distributions.base import (
    ComponentDistribution,
    MixtureStatistics,
    Rows,
)
from inference.base.component_distributions.dispatch import distribution_of
from inference.base.degenerate import value_sums
from inference.base.steps import SET, EStep, RunningSum, Steps, without_set
from inference.programs.program import Params, Program
from ppl_models.descriptions.components import MixtureComponents
from ppl_models.descriptions.covariates import Covariates
from ppl_models.descriptions.logit import chances_of_design, distinct_rows, maximise_coefficients

MOST_KEPT = 2**20  # numbers of rows and their products that are kept from step to step


def items_of(about: MixtureComponents, data: Tensor) -> Tensor:
    """Columns of the items, which are drawn, (..., J)."""
    return data if about.covariates is None else data[..., : about.num_items]


def joined(about: MixtureComponents, items: Tensor, data: Tensor) -> Tensor:
    """Concatenate items and the covariates of ``data``, where there are some."""
    if about.covariates is None:
        return items
    return torch.cat([items, data[..., about.num_items :].to(items)], -1)


def log_chances(about: MixtureComponents, params: Params, data: Tensor) -> Tensor:
    """Log-chances of the components of every row, ([R], N, K), or ([R], 1, K) for all.

    ``params``: ([R], ...); ``data``: (N, J + P) or (R, N, J + P).
    """
    if "coefficients" not in params:
        return params["weights"].log().unsqueeze(-2)
    return chances_of_design(
        design_of(about, data), covariates_of(about).standardised(params["coefficients"])
    )


def design_of(about: MixtureComponents, data: Tensor) -> Tensor:
    """Design matrix: the terms of every row, standardised, (..., N, Q)."""
    return covariates_of(about).standardised_design(data[..., about.num_items :])


def covariates_of(about: MixtureComponents) -> Covariates:
    """Covariates of the components; raises where there are none."""
    if about.covariates is None:
        raise ValueError("a mixture with covariates was expected")
    return about.covariates


def cross_products(about: MixtureComponents, share: Tensor, data: Tensor) -> Tensor | None:
    """Cross products S of the rows' slopes and terms, (R, K - 1, Q), or None.

    ``share``: (R, K, N), times weights; ``data``: (N, J + P) or (R, N, J + P).
    """
    if about.covariates is None or about.num_components == 1:
        return None
    return share[:, 1:] @ design_of(about, data)


def renamed_coefficients(coefficients: Tensor, order: Tensor) -> Tensor:
    """Permute log-odds (..., K - 1, Q) to a new order, against the new component 0."""
    full = torch.cat([torch.zeros_like(coefficients[..., :1, :]), coefficients], -2)[..., order, :]
    return full[..., 1:, :] - full[..., :1, :]


@dataclass(frozen=True, eq=False)
class MixtureSteps(Steps[MixtureStatistics]):
    """EM steps of mixtures in closed form, streaming over rows.

    Args:
        about: the model's description.
        program: the program, for the prior; one row of data will do.
        data: (N, J), covariates behind them where the components depend on some.
        chunk_elements: rows times components times restarts in memory at once.
        given_centre: about which sums are taken, (J,); the mean of these rows if None.
        given_floor: least variances, one a dispersed item; those that these rows suggest if None.
        weights: how often each row counts, (N,); None for once.
        labels: log p(label | component) of each row, (N, K); None where nothing is known.
    """

    about: MixtureComponents
    program: Program
    data: Tensor
    chunk_elements: int
    given_centre: Tensor | None = None
    given_floor: Tensor | None = None
    weights: Tensor | None = None
    labels: Tensor | None = None

    def on(self, data: Tensor, weights: Tensor | None = None) -> MixtureSteps:
        """Steps on other rows without labels, sums about the same centre so that they add up."""
        return replace(
            self,
            data=data,
            given_centre=self.centre,
            given_floor=self.floor,
            weights=weights,
            labels=None,
        )

    @cached_property
    def distribution(self) -> ComponentDistribution:
        """Distribution of the components."""
        return distribution_of(self.about)

    @cached_property
    def floor(self) -> Tensor:
        """Least variance of every item that has one, (D,)."""
        if self.given_floor is not None:
            return self.given_floor
        return self.distribution.floor(self._items, self.weights)

    @property
    def _items(self) -> Tensor:
        return items_of(self.about, self.data)

    @cached_property
    def centre(self) -> Tensor:
        """Centre of the sums: the overall mean, (P,)."""
        if self.given_centre is None:
            return self.distribution.centre(self._items)
        return self.given_centre

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Distinct rows (n, J), their weights (n,) and labels (n, K); all where few are alike."""
        merged = self.distribution.patterns(self._items, self.weights)
        if merged is None:
            return self.data, self.weights, self.labels
        if self.labels is not None:
            both, counts = distinct_rows(torch.cat([self.data, self.labels], -1), self.weights)
            width = self.data.shape[-1]
            return both[:, :width], counts, both[:, width:]
        if self.about.covariates is None:
            return *merged, None
        return *distinct_rows(self.data, self.weights), None

    @cached_property
    def _given(self) -> tuple[Tensor, Tensor]:
        """Distinct covariates, (G, P), and how many rows have each, (G,)."""
        return distinct_rows(self.data[:, self.about.num_items :], self.weights)

    def _chunks(self, restarts: int) -> Iterator[tuple[Tensor, Rows, Tensor | None, Tensor | None]]:
        """Distinct rows, prepared, their weights and labels; kept where they are one chunk."""
        size = max(
            1,
            self.chunk_elements
            // max(restarts * self.about.num_components, self.distribution.width),
        )
        distinct, counts, labels = self._rows
        is_kept = len(distinct) * self.distribution.width <= MOST_KEPT
        if is_kept and len(distinct) <= size:
            yield distinct, self._prepared, counts, labels
            return
        for first in range(0, len(distinct), size):
            part = slice(first, first + size)
            chunk = distinct[part]
            rows = (
                self._prepared.part(part)
                if is_kept
                else self.distribution.rows(items_of(self.about, chunk), self.centre)
            )
            often, told = (None if every is None else every[part] for every in (counts, labels))
            yield chunk, rows, often, told

    @cached_property
    def _prepared(self) -> Rows:
        return self.distribution.rows(items_of(self.about, self._rows[0]), self.centre)

    def e_step(self, params: Params) -> EStep[MixtureStatistics]:
        """Responsibilities and statistics of the components, streaming over rows."""
        restarts = len(params[self.distribution.site])
        parts, values = RunningSum[MixtureStatistics](), []
        for chunk, rows, often, labels in self._chunks(restarts):
            before = log_chances(self.about, params, chunk)
            before = before if labels is None else before + labels
            share, value = responsibilities(rows, params, before, often)
            values.append(value)
            parts.add(
                MixtureStatistics(
                    share.sum(-1),
                    rows.statistics(share, params),
                    cross_products(self.about, share, chunk),
                )
            )
        total = values[0] if len(values) == 1 else torch.stack(values).sum(0)
        return EStep(parts.total(), total, self.program.log_prior(params))

    def value_sums(self, params: Params) -> Tensor:
        """Sums over rows that tell empty components and copies, labels unread, (R, K, 1 + K)."""
        parts = []
        for chunk, rows, often, _ in self._chunks(len(params[self.distribution.site])):
            share, _ = responsibilities(rows, params, log_chances(self.about, params, chunk))
            parts.append(value_sums(share.mT, often))
        return torch.stack(parts).sum(0)

    def m_step(self, statistics: MixtureStatistics, params: Params) -> Params:
        """Maximise weights or log-odds, and the components."""
        own = self.distribution.m_step(
            statistics.of_distribution, statistics.counts, params, self.floor
        )
        if statistics.cross is None:
            return params | self._weights(statistics.counts) | own
        return (
            params
            | {
                "coefficients": maximise_coefficients(
                    covariates_of(self.about),
                    statistics.cross,
                    *self._given,
                    params["coefficients"],
                )
            }
            | own
        )

    def pooled(
        self, statistics: MixtureStatistics, ties: Mapping[str, Tensor]
    ) -> MixtureStatistics:
        """Statistics of the components with those of tied entries pooled."""
        own = self.distribution.pooled(statistics.of_distribution, ties)
        return replace(statistics, of_distribution=own)

    def first(self, share: Tensor, blank: Params) -> Params:
        """Starting parameters, (R, ...), by the distribution's own start.

        Args:
            share: responsibilities, (R, N, K).
            blank: any values, (R, ...).
        """
        share = share if self.weights is None else share * self.weights.unsqueeze(-1)
        first = self._weights(share.mT.sum(-1))
        if "coefficients" in blank:
            shares = first["weights"].log()
            beta = torch.zeros_like(blank["coefficients"])
            # from components that depend on nothing
            beta[..., 0] = shares[..., 1:] - shares[..., :1]
            first = {
                "coefficients": (
                    beta if self.about.covariates is None else self.about.covariates.plain(beta)
                )
            }
        return (
            blank
            | first
            | self.distribution.first(self._items, share, self.centre, blank, self.floor)
        )

    def _weights(self, counts: Tensor) -> Params:
        excess = self.about.concentration - 1
        total = counts.sum(-1, keepdim=True) + excess * self.about.num_components
        weights = ((counts + excess) / total).clamp(min=1e-300)
        return {"weights": weights / weights.sum(-1, keepdim=True)}


@dataclass(frozen=True, eq=False)
class MixtureSetSteps(Steps[MixtureStatistics]):
    """EM steps where restarts differ in their data; see :mod:`inference.base.steps`.

    Args:
        base: steps on any one of the data sets.
        sets: (S, N, J).
        given_centres: about which sums are taken, (S, 1, J); the means of these rows if None.
    """

    base: MixtureSteps
    sets: Tensor
    given_centres: Tensor | None = None

    def on(self, data: Tensor, weights: Tensor | None = None) -> MixtureSetSteps:
        """Steps on other rows of every data set, (S, N, J), about the same centres."""
        self.refuse_weights(weights)
        return replace(self, sets=data, given_centres=self._centres)

    @cached_property
    def _each(self) -> list[MixtureSteps]:
        return [
            replace(self.base, data=rows, given_centre=None, given_floor=None) for rows in self.sets
        ]

    @cached_property
    def _centres(self) -> Tensor:
        if self.given_centres is not None:
            return self.given_centres
        return torch.stack([steps.centre for steps in self._each]).unsqueeze(1)  # (S, 1, J)

    @cached_property
    def _floors(self) -> Tensor:
        return torch.stack([steps.floor for steps in self._each]).unsqueeze(1)  # (S, 1, D)

    def e_step(self, params: Params) -> EStep[MixtureStatistics]:
        """E-step of every restart on its own data set."""
        index, own, distribution = params[SET].long(), without_set(params), self.base.distribution
        rows = max(1, self.base.chunk_elements // (len(index) * self.base.about.num_components))
        parts, total = RunningSum[MixtureStatistics](), self.sets.new_zeros(len(index))
        for chunk in self.sets.split(rows, 1):
            own_rows = distribution.rows(chunk[index], self._centres[index])  # (R, n, J)
            share, value = responsibilities(own_rows, own, own["weights"].log().unsqueeze(-2))
            total = total + value
            parts.add(MixtureStatistics(share.sum(-1), own_rows.statistics(share, own)))
        return EStep(parts.total(), total, self.base.program.log_prior(own))

    def m_step(self, statistics: MixtureStatistics, params: Params) -> Params:
        own = replace(self.base, given_floor=self._floors[params[SET].long()])
        return own.m_step(statistics, without_set(params)) | {SET: params[SET]}


def responsibilities(
    rows: Rows, params: Params, before: Tensor, often: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Weighted posteriors of the rows, (R, K, n), and their log-likelihood, (R,).

    ``params``: (R, ...); ``before``: log-chances of the components before the items are seen, (R,
    n, K) or (R, 1, K); ``often``: how many rows are like each, (n,); None for one.
    """
    joint = rows.log_joint(params, before)
    share = joint.softmax(1)
    log_rows = joint.amax(1) - share.amax(1).log()  # of the component that is most probable
    value = log_rows.sum(-1) if often is None else log_rows @ often
    if not math.isfinite(value.sum()):  # a row without a density
        log_rows = joint.logsumexp(1)
        value = log_rows.sum(-1) if often is None else log_rows @ often
    return share if often is None else share.mul_(often), value
