r"""The deepest latents of a tower whose chances depend on covariates of the row.

.. math::

    a_k \mid z \sim \mathrm{Bernoulli}(\sigma(\beta_{k0} + \beta_k \cdot z)), \qquad k = 1, \dots,
    K,

independent given z. With :math:`r_{ik}` the expected latents of row i, the M-step is K logits, each
by its own Newton steps that never lower the expected log-posterior
(:mod:`ppl_models.descriptions.logit` with two classes), all of them and all restarts in one batch.
It asks for :math:`S_k = \sum_i w_i r_{ik} u_i` alone, K Q numbers, where u are the terms of the row
in their widths from their centres. Where latents are drawn, r are the chances that they were drawn
with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor

from ppl_models.descriptions.covariates import Covariates, LatentCoefficients
from ppl_models.descriptions.layers import Params, Root
from ppl_models.descriptions.logit import distinct_rows, maximise_coefficients
from ppl_models.parts.distributions import BinaryVector

SURE = 0.9  # how sure a start is of the latents that it guessed


@dataclass(frozen=True, eq=False)
class CovariateRoot:
    """Independent deepest latents that depend on covariates.

    A :class:`~ppl_models.descriptions.layers.Root`, once it knows its rows (:meth:`of_rows`).

    Args:
        coefficients: name of the site with the coefficients, shape (num_latents, num_terms), in the
            user's units, the intercept first.
        latent: name of the binary latent site, event shape (num_latents,).
        num_latents: K.
        covariates: what the latents depend on.
        columns: those of the rows, (N, P); None for no rows.
        distinct: all rows that a fit has, those that differ, (G, P), and how often each counts,
            (G,).
    """

    coefficients: str
    latent: str
    num_latents: int
    covariates: Covariates
    columns: Tensor | None = None
    distinct: tuple[Tensor, Tensor] | None = None
    renamable = True
    flippable = True
    profiles = None
    equation = "Bernoulli(σ(β_k · (1, z)))"

    def of_rows(self, columns: Tensor, weights: Tensor | None = None) -> CovariateRoot:
        """Distribution bound to all the rows of a fit.

        Args:
            columns: (N, P), categories as codes; weights: how often each row counts, (N,); None for
                once.
        """
        return replace(self, columns=columns, distinct=distinct_rows(columns, weights))

    def part(self, index: Any) -> CovariateRoot:
        """Distribution bound to some of the rows, of a fit to all of them."""
        return replace(self, columns=self._columns[index])

    @property
    def _columns(self) -> Tensor:
        if self.columns is None:
            raise ValueError(
                f"the distribution of {self.latent} depends on the covariates"
                f" {', '.join(map(repr, self.covariates.names))} of each row, so that there is no"
                " one distribution for all rows, and this question asks for one: ask it of a"
                " model without covariates"
            )
        return self.columns

    @property
    def num_free(self) -> int:
        return self.num_latents * len(self.covariates.terms)

    def sites(self) -> dict[str, tuple[int, ...]]:
        return {self.coefficients: (self.num_latents, len(self.covariates.terms))}

    def logits(self, params: Mapping[str, Tensor]) -> Tensor:
        """Log-odds of the latents of every row, (..., N, K)."""
        own = params[self.coefficients]
        return self.covariates.odds(self._columns.to(own), own.unsqueeze(-3))

    def distribution(self, params: Mapping[str, Tensor]) -> BinaryVector:
        return BinaryVector(self.logits(params))

    def start(self, latents: Tensor) -> Params:
        """Starting logits of guessed latents, one in ten of them taken as a coin's toss."""
        soft = 0.5 + SURE * (latents - 0.5)
        return self.maximise(
            self.drawn(latents.mT.unsqueeze(0), soft.mT.unsqueeze(0), 1.0, {}),
            self.uniform(latents),
        )

    def uniform(self, like: Tensor) -> Params:
        return {self.coefficients: like.new_zeros(1, self.num_latents, len(self.covariates.terms))}

    def marginals(self, params: Mapping[str, Tensor]) -> Tensor:
        """Marginal P(latent = 1) of a row whose terms are all at their means."""
        return self.covariates.standardised(params[self.coefficients])[..., 0].sigmoid()

    def draw(self, params: Params, uniform: Tensor) -> Tensor:
        chances = self.logits(params).sigmoid().mT
        return (uniform < chances).to(chances.dtype)

    def log_odds(self, params: Params, k: int, latents: Tensor) -> Tensor:
        return self.logits({self.coefficients: params[self.coefficients][:, k : k + 1]})[..., 0]

    def expected(self, configurations: Tensor, counts: Tensor, params: Params) -> Tensor:
        """Statistic S of counts of the configurations in each row, (R, N, C), as (R, K Q)."""
        return self._cross((counts @ configurations).mT)

    def drawn(self, latents: Tensor, chances: Tensor, scale: float, params: Params) -> Tensor:
        """Statistic S of drawn latents, with a control variate against mini-batch noise.

        For some of the rows: its expectation over all rows, corrected by what these rows show
        beside it.
        """
        if scale == 1 or self.distinct is None:
            return self._cross(chances)
        rows, often = self.distinct
        everywhere = replace(self, columns=rows.to(chances))
        return everywhere._cross(
            everywhere.logits(params).sigmoid().mT * often.to(chances)
        ) + scale * self._cross(chances - self.logits(params).sigmoid().mT)

    def _cross(self, share: Tensor) -> Tensor:
        """Cross-products of covariates and latent shares, (R, K, N)."""
        return (share @ self.covariates.standardised_design(self._columns).to(share)).flatten(-2)

    def maximise(self, statistic: Tensor, params: Params) -> Params:
        old = params[self.coefficients]
        if self.distinct is None:
            raise ValueError(
                f"maximise: the distribution of {self.latent} was expected to know its rows"
            )
        rows, often = self.distinct
        shape = (-1, 1, old.shape[-1])  # every latent is a logit of its own, of two classes
        new = maximise_coefficients(
            self.covariates,
            statistic.reshape(shape),
            rows.to(old),
            often.to(old),
            old.reshape(shape),
        )
        return {self.coefficients: new.reshape(statistic.shape[0], *old.shape[-2:])}

    def rename(
        self, params: Mapping[str, Tensor], permutation: Tensor | None, flips: Tensor | None
    ) -> Params:
        own = params[self.coefficients]
        own = own if permutation is None else own.index_select(-2, permutation)
        return {
            self.coefficients: own if flips is None else torch.where(flips.unsqueeze(-1), -own, own)
        }


@dataclass(frozen=True, eq=False)
class AttributesGivenCovariates(CovariateRoot):
    """Attributes given covariates: :class:`CovariateRoot` for named attributes."""

    def priors(self, like: Tensor) -> dict[str, TorchDistribution]:
        zero = like.new_zeros(())
        return {self.coefficients: LatentCoefficients(self.covariates, self.num_latents, zero)}

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        return {self.coefficients: ("attribute", "term")}

    def entry_names(self, attributes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return {"term": self.covariates.terms}


def root_of_rows(root: Root, columns: Tensor, weights: Tensor | None = None) -> Root:
    """Bind a root to rows with covariates (N, P); other roots are returned as they are."""
    return root.of_rows(columns, weights) if isinstance(root, CovariateRoot) else root


def root_with_columns(root: Root, columns: Tensor) -> Root:
    """Bind a fit's root to other rows with these columns (N, P)."""
    return replace(root, columns=columns) if isinstance(root, CovariateRoot) else root


def part_of_root(root: Root, index: Tensor | slice) -> Root:
    """Bind a root to some of its rows; any other root is the same for all rows."""
    return root.part(index) if isinstance(root, CovariateRoot) else root
