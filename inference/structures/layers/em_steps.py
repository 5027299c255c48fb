"""Both halves of EM for binary layers with generalised-linear children: small statistics, batched Newton, rows in chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.programs.program import Program
from inference.structures.layers.glm import LayerStatistics, Params, maximise_layer, normal_exponent
from ppl_models.descriptions.layers import GeneralizedLinearLayer, Root
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.responses import ResponseFamily, filled
from ppl_models.parts.sizes import MISSING

__all__ = ["LayeredSteps", "TowerStatistics", "expected_statistics"]


@dataclass(frozen=True)
class TowerStatistics:
    """Expected sufficient statistics of all layers, summed over rows.

    Args:
        layers: those of each layer, by the site of its loadings.
        root: those of the deepest latents, (R, S), as the root wants them.
    """

    layers: dict[str, LayerStatistics]
    root: Tensor


@dataclass(frozen=True)
class LayeredSteps:
    """EM for binary layers with generalised-linear children: small statistics, batched Newton, rows in chunks.

    Args:
        program: the program on one row of the data; its likelihood is the only one used.
        layers, root: the model's description of itself.
        data: (N, J), complete, or (R, N, J) where every restart has rows of its own; mask: 0 where an entry is missing, or None.
        chunk_elements: rows times configurations times restarts held at once.
        num_newton: Newton steps of one M-step.
        relaxed: put the Lasso of the same slope in the place of each penalty.
        weights: how often each row counts, (N,); None for once.
    """

    program: Program
    layers: tuple[GeneralizedLinearLayer, ...]
    root: Root
    data: Tensor
    mask: Tensor | None
    chunk_elements: int = 2**18
    num_newton: int = 3
    relaxed: bool = False
    weights: Tensor | None = None

    @classmethod
    def build(
        cls, model: Any, data: Tensor, chunk_elements: int = 2**18, num_newton: int = 3, weights: Tensor | None = None
    ) -> LayeredSteps | None:
        """Steps for a model that offers ``layers()`` and ``root_law()``, or None."""
        if not (hasattr(model, "layers") and hasattr(model, "root_law")):
            return None
        layers, root = model.layers(), model.root_law()
        complete, mask = filled(layers[0].response, data)
        one = complete.reshape(-1, complete.shape[-1])[:1]
        return cls(Program(model, one), layers, root, complete, mask, chunk_elements, num_newton, weights=weights)

    def e_step(self, params: Params) -> tuple[TowerStatistics, Tensor, Tensor]:
        mixture = self.program.as_mixture(params)
        if mixture is None:
            raise ValueError("the program's rows are not a finite mixture over one latent site; use EM(accelerate=False)")
        family = self.layers[0].response
        bottom, log_likelihood = expected_statistics(
            self.data,
            self.mask,
            family,
            mixture.response,
            mixture.log_weights.detach(),
            mixture.values,
            self.chunk_elements,
            None if self.layers[0].terms is None else self.layers[0].features(mixture.values),
            self.weights,
        )
        layers = {self.layers[0].loadings: bottom}
        counts = bottom.counts if bottom.row_counts is None else bottom.row_counts
        posteriors = mixture.upper_posteriors(counts)
        child_values = mixture.values
        for layer in self.layers[1:]:
            joint = posteriors[layer.child].squeeze(-1)  # (child values, parent values, R)
            joint = joint.movedim(-1, 0).reshape(len(counts), len(child_values), -1)  # (R, a, b)
            values = self._configurations(layer, child_values)
            expected = joint.mT @ child_values  # (R, b, children)
            own_counts = joint.sum(1)
            cross = expected.mT @ torch.nn.functional.pad(values, (1, 0), value=1.0)
            layers[layer.loadings] = LayerStatistics(values, own_counts, cross)
            child_values, counts = values, own_counts
        statistics = TowerStatistics(layers, self.root.expected(child_values, counts, params))
        return statistics, log_likelihood, self._relaxed_prior(params) if self.relaxed else mixture.log_prior

    def _configurations(self, layer: GeneralizedLinearLayer, like: Tensor) -> Tensor:
        """Those of a layer's parents that the program lists, (C, K)."""
        allowed = self.root.profiles if layer.parent == self.root.latent else None
        return binary_configurations(layer.num_parents, like.dtype, like.device) if allowed is None else allowed.to(like)

    def on(self, data: Tensor) -> LayeredSteps:
        complete, mask = filled(self.layers[0].response, data, with_mask=self.mask is not None)
        return replace(self, data=complete, mask=mask, weights=None)  # each of these rows counts once

    def relax(self) -> LayeredSteps | None:
        """The same steps under convex penalties, or None where no layer is penalised."""
        if all(layer.penalty is None for layer in self.layers):
            return None
        layers = tuple(replace(x, penalty=x.penalty.convex()) if x.penalty else x for x in self.layers)
        return replace(self, layers=layers, relaxed=True)

    def _relaxed_prior(self, params: Params) -> Tensor:
        """Minus the convex penalties and the normal priors' exponents, up to a constant."""
        total = torch.zeros(())
        for layer in self.layers:
            total = total - normal_exponent(layer, params)
            if layer.penalty:
                total = total - layer.penalty(params[layer.loadings]).sum((-2, -1))
        return total

    def m_step(self, statistics: TowerStatistics, params: Params) -> Params:
        new = dict(params)
        for layer in self.layers:
            new.update(maximise_layer(layer, statistics.layers[layer.loadings], params, self.num_newton))
        return new | self.root.maximise(statistics.root, params)


def expected_statistics(
    data: Tensor,
    mask: Tensor | None,
    family: ResponseFamily,
    response: Any,
    log_weights: Tensor,
    values: Tensor,
    chunk_elements: int,
    features: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[LayerStatistics, Tensor]:
    """Statistics of the observed layer, streaming over rows: three matrix products and one exponential a chunk.

    Args:
        data: (N, J) or (R, N, J) without missing entries; mask: of the same shape, 0/1, or None.
        response: the observed site's distribution, batch shape (C, R, 1).
        log_weights: (R, C); values: (C, K).
        features: (C, P), what the predictor is linear in; ``values`` if None.
        weights: how often each row counts, (N,), of families whose predictor is the natural parameter; None for once.

    Returns:
        The statistics, and the log-likelihood (R,).
    """
    num_restarts, num_values = log_weights.shape
    design = torch.nn.functional.pad(values if features is None else features, (1, 0), value=1.0)
    num_items = data.shape[-1]
    is_wide = design.shape[1] > num_items + 1  # then sums over rows come before the design
    row_counts = log_weights.new_zeros(num_restarts, num_values)
    cross = log_weights.new_zeros(num_restarts, num_items, design.shape[1])
    item_counts = None if mask is None else log_weights.new_zeros(num_restarts, num_items, num_values)
    sums = None if family.is_canonical else log_weights.new_zeros(num_restarts, num_items, num_values)
    log_likelihood = log_weights.new_zeros(num_restarts)
    chunk = max(1, chunk_elements // (num_restarts * num_values))
    with torch.no_grad():
        for start in range(0, data.shape[-2], chunk):
            x = data[..., start : start + chunk, :]
            m = None if mask is None else mask[..., start : start + chunk, :]
            inner, log_partition, base = response.log_prob_terms(x, m)
            shape = (num_values, num_restarts, -1)  # dims of latents further up are 1
            logits = inner.reshape(shape).movedim(0, -1)  # (R, n, C)
            offset = log_weights.unsqueeze(-2) - log_partition.reshape(shape).movedim(0, -1)
            likelihood = logits.add_(offset) if logits.is_contiguous() else (logits + offset).contiguous()
            peak = likelihood.amax(-1, keepdim=True)
            likelihood.sub_(peak).exp_()  # not normalised: dividing (R, n) numbers later is cheaper
            weighted = likelihood @ (design[:, :1] if is_wide else design)  # (R, n, 1 + K), total first
            inverse = weighted[..., :1].reciprocal()
            of_rows = peak.squeeze(-1) - inverse.squeeze(-1).log() + base  # (R, n)
            if weights is None:
                log_likelihood += of_rows.sum(-1)
            else:
                often = weights[start : start + chunk]
                log_likelihood += of_rows @ often
                inverse = inverse * often.unsqueeze(-1)
            row_counts += (inverse.mT @ likelihood).squeeze(-2)
            statistic = family.statistic(x)
            statistic = statistic if m is None else statistic * m
            if sums is not None:
                sums += (statistic * inverse).mT @ likelihood
            cross += (statistic * inverse).mT @ likelihood @ design if is_wide else statistic.mT @ (weighted * inverse)
            if m is not None and item_counts is not None:
                item_counts += (m * inverse).mT @ likelihood
    squares = None
    if family.num_dispersed(num_items):
        each = (family.statistic(data) if mask is None else family.statistic(data) * mask).square()
        squares = each.sum(-2) if weights is None else weights @ each
    counts = row_counts if item_counts is None else item_counts
    items = None
    if sums is not None:
        items = family.statistic(data) if mask is None else family.statistic(data).masked_fill(mask == 0, MISSING)
        items = items.mT
    return LayerStatistics(values, counts, cross, squares, row_counts, features, sums, items), log_likelihood
