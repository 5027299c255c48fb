"""Observed site of items: response families against enumerated predictors."""

from __future__ import annotations

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

from ppl_models.parts.distributions import broadcast_shapes, pairwise_dot
from ppl_models.parts.responses import ResponseFamily, filled


class LinearPredictor:
    r"""Linear predictor :math:`\eta = b + W a`, kept in factors.

    Products with it go through the K latents.

    Args:
        latents: a, (\*batch, K); or the products of its entries that the predictor is linear in.
        loadings: W, (\*batch, J, K).
        intercepts: b, (\*batch, J).
    """

    def __init__(self, latents: Tensor, loadings: Tensor, intercepts: Tensor) -> None:
        self.latents, self.loadings, self.intercepts = latents, loadings, intercepts

    def tensor(self) -> Tensor:
        r"""Predictor as a tensor, (\*batch, J)."""
        return pairwise_dot(self.latents.unsqueeze(-2), self.loadings) + self.intercepts

    def dot(self, x: Tensor, scale: Tensor | None) -> Tensor:
        """Sum over items of ``x * scale * eta``, by the K loadings and the configurations."""
        weights = torch.cat([self.loadings, self.intercepts.unsqueeze(-1)], -1)  # (..., J, K + 1)
        weights = weights if scale is None else weights * scale.unsqueeze(-1)
        if weights.dim() == 2:
            projected = x @ weights  # (rows, K + 1)
        elif weights.shape[-3] == 1:
            projected = x @ weights.squeeze(-3)  # one product for all rows
        else:
            projected = (x.unsqueeze(-2) @ weights).squeeze(-2)
        latents = torch.nn.functional.pad(self.latents, (0, 1), value=1.0)
        return pairwise_dot(projected, latents)


class _Answers(constraints.Constraint):
    """Constraint of real vectors; NaN stands for a missing answer."""

    is_discrete = False
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ~torch.isinf(value).any(-1)


class ItemResponse(TorchDistribution):
    r"""Distribution of the item vector given its predictor.

    :math:`\log p(x) = \sum_j \log f_j(x_j \mid \eta_j, \gamma_j)`.

    A missing entry (NaN) drops out of the sum exactly. Against enumerated predictors the
    log-density is a matrix product; nothing of size (configurations, rows, items) is built.

    Args:
        family: the response family.
        predictor: eta, (\*batch, P), P = J but for families of vector statistics; or a
            :class:`LinearPredictor` of that shape.
        dispersion: (\*batch, family.num_dispersed(J)), or None.
        origin: (J,), from which values and predictors of Normal items are measured, 0 for other
            items: the same density, without the digits that squares of far values cost; only beside
            a predictor that is a tensor.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = _Answers()

    def __init__(
        self,
        family: ResponseFamily,
        predictor: Tensor | LinearPredictor,
        dispersion: Tensor | None = None,
        origin: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.family, self.predictor = family, predictor
        self.dispersion, self.origin = dispersion, origin
        self.eta = predictor.tensor() if isinstance(predictor, LinearPredictor) else predictor
        self._log_partition: Tensor | None = None
        batch_shape = self.eta.shape[:-1]
        if dispersion is not None and dispersion.shape[:-1] != batch_shape:
            batch_shape = broadcast_shapes(batch_shape, dispersion.shape[:-1])
        super().__init__(
            batch_shape, torch.Size([family.num_items(self.eta.shape[-1])]), validate_args=False
        )

    def expand(
        self, batch_shape: torch.Size, _instance: Distribution | None = None
    ) -> ItemResponse:
        new = self._get_checked_instance(ItemResponse, _instance)
        new.family, new.predictor, new.dispersion, new.origin = (
            self.family,
            self.predictor,
            self.dispersion,
            self.origin,
        )
        new.eta, new._log_partition = self.eta, self._log_partition
        super(ItemResponse, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        return new

    @property
    def mean(self) -> Tensor:
        """Mean E[x], on the unexpanded shape of the predictor."""
        return self.family.expected_response(self.eta, self.dispersion)

    @property
    def natural(self) -> Tensor:
        r"""Natural parameters, times the scale, (\*batch, P)."""
        natural, scale = self.family.natural(self._centred, self.dispersion), self._scale
        return natural if scale is None else natural * self.family.spread(scale)

    @property
    def _centred(self) -> Tensor:
        """Predictor measured from the origin."""
        return self.eta if self.origin is None else self.eta - self.family.spread(self.origin)

    @property
    def _scale(self) -> Tensor | None:
        """Scale of the items, (..., J); None for 1."""
        return self.family.scale(self.dispersion, self.event_shape[0])

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        dispersion = self.dispersion
        with torch.no_grad():
            return self.family.draw(self.eta.expand(shape[:-1] + self.eta.shape[-1:]), dispersion)

    def log_prob(self, value: Tensor) -> Tensor:
        inner, log_partition, base = self.log_prob_terms(*filled(self.family, value))
        log_density = inner - log_partition + base
        return log_density.expand(broadcast_shapes(value.shape[:-1], self.batch_shape))

    def log_prob_terms(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        r"""Three parts of ``log_prob``: inner products, log-partition, base measure.

        The log-partition has no rows unless masked; the base measure has rows only.

        Args:
            x: (\*rows, J) without missing entries; mask: the same shape, 0 where an entry is to be
                left out, or None.
        """
        family = self.family
        x = x if self.origin is None else x - self.origin
        log_partition, base = self.normalisers(x, mask)
        if (
            family.is_canonical
            and isinstance(self.predictor, LinearPredictor)
            and self.predictor.loadings.shape[-1] <= self.eta.shape[-1]
        ):
            statistic, scale = family.statistic(x), self._scale
            inner = self.predictor.dot(
                statistic if mask is None else statistic * family.spread(mask),
                None if scale is None else family.spread(scale),
            )
        else:
            inner = family.inner(x, mask, self.natural)
        return inner, log_partition, base

    def normalisers(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Log-partition and base measure as in :meth:`log_prob_terms`, x from the origin."""
        if self._log_partition is None:
            partition, scale = self.family.partition(self._centred, self.dispersion), self._scale
            self._log_partition = partition if scale is None else partition * scale
        log_partition = (
            self._log_partition.sum(-1) if mask is None else pairwise_dot(mask, self._log_partition)
        )
        base = self.family.base_measure(
            x, x.new_ones(x.shape[-1]) if mask is None else mask, self.dispersion
        )
        return log_partition, base
