"""EM steps of binary layers with generalised-linear children, rows in chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import softplus

from inference.base.steps import SET, EStep, RunningSum, Steps, without_set
from inference.programs.elimination import FiniteMixture
from inference.programs.program import Program
from inference.programs.sites import density_of
from inference.structures.layers.glm import LayerStatistics, Params, maximise_layer, normal_exponent
from ppl_models.descriptions.covariate_root import root_of_rows, root_with_columns
from ppl_models.descriptions.layers import GeneralizedLinearLayer, Root
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.item_response import ItemResponse, LinearPredictor
from ppl_models.parts.responses import ResponseFamily, filled, sizes
from ppl_models.parts.sizes import MISSING

# values of the covariates times configurations times restarts whose weights are held at once
GROUP_ELEMENTS = 2**21
HALVED = 6  # bits of a configuration, from which on sums go by halves of them


@dataclass(frozen=True)
class GivenRows:
    """Distinct covariate rows and their rows.

    Args:
        values: that differ, (G, P); owner: which of them each row has, (N,).
    """

    values: Tensor
    owner: Tensor

    @classmethod
    def of(cls, columns: Tensor) -> GivenRows:
        """Group rows by their distinct covariates (N, P)."""
        return cls(*torch.unique(columns, dim=0, return_inverse=True))

    def parts(self, num: int) -> Iterator[tuple[Tensor, slice, Tensor | None]]:
        """Iterate over groups of distinct values (g, P): values, rows, each row's value.

        The owners (n,) are None where every row brings its own, few being alike.
        """
        step = len(self.owner) if len(self.values) <= num else num
        for start in range(0, len(self.owner), step):
            rows = slice(start, min(start + step, len(self.owner)))
            if 2 * len(self.values) > len(self.owner):
                yield self.values[self.owner[rows]], rows, None
                continue
            which, owner = torch.unique(self.owner[rows], return_inverse=True)
            yield self.values[which], rows, owner


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
class LayeredSteps(Steps[TowerStatistics]):
    """EM for binary layers with generalised-linear children, rows in chunks.

    Args:
        program: the program on one row of the data; its likelihood is the only one used.
        layers, root: the model's description of itself.
        data: (N, J), complete, or (R, N, J) where every restart has rows of its own; mask: 0 where
            an entry is missing, or None.
        chunk_elements: rows times configurations times restarts held at once.
        num_newton: Newton steps of one M-step.
        relaxed: put the Lasso of the same slope in the place of each penalty.
        weights: how often each row counts, (N,); None for once.
        given: the rows' covariates, where the root depends on some; None where it is the same for
            all rows.
        labels: log p(label | bit) of the lowest latents, (N, K, 2); None where nothing is known.
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
    given: GivenRows | None = None
    labels: Tensor | None = None

    @classmethod
    def build(
        cls,
        model: Any,
        data: Tensor,
        chunk_elements: int = 2**18,
        num_newton: int = 3,
        weights: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> LayeredSteps | None:
        """Steps for a model that offers ``layers()`` and ``root_layer()``, or None."""
        if not (hasattr(model, "layers") and hasattr(model, "root_layer")):
            return None
        layers, root = model.layers(), model.root_layer()
        num_items, first = layers[0].num_items, data.reshape(-1, data.shape[-1])[:1]
        one = torch.cat(
            [filled(layers[0].response, first[:, :num_items])[0], first[:, num_items:]], -1
        )
        return cls(
            Program(model, one),
            layers,
            root,
            data[..., :num_items],
            None,
            chunk_elements,
            num_newton,
            labels=labels,
        )._at(data, weights)

    def _at(self, data: Tensor, weights: Tensor | None, with_mask: bool = False) -> LayeredSteps:
        """Steps on a table (..., N, J), or (N, J + P) with covariates behind the items."""
        num_items = self.layers[0].num_items
        columns, root = data[..., num_items:], self.root
        given = GivenRows.of(columns) if columns.shape[-1] else None
        root = root if given is None else root_of_rows(root, columns, weights)
        complete, mask = filled(self.layers[0].response, data[..., :num_items], with_mask=with_mask)
        return replace(self, root=root, data=complete, mask=mask, weights=weights, given=given)

    def e_step(self, params: Params) -> EStep[TowerStatistics]:
        """Expected statistics of all layers, rows of like covariates together."""
        if self.given is None:
            return self._e_step_of(params, self.program)
        parts = RunningSum[TowerStatistics]()
        total = self.data.new_zeros(len(params[self.layers[0].loadings]))
        num = max(
            1, GROUP_ELEMENTS // (len(total) * max(2**layer.num_parents for layer in self.layers))
        )
        for groups, rows, owner in self.given.parts(num):
            part = replace(
                self,
                root=root_with_columns(self.root, groups),
                data=self.data[rows],
                given=None,
                mask=None if self.mask is None else self.mask[rows],
                labels=None if self.labels is None else self.labels[rows],
                weights=None if self.weights is None else self.weights[rows],
            )
            # any: the weights are those of latents
            items = self.data[rows.start : rows.start + 1].expand(len(groups), -1)
            statistics, log_likelihood, log_prior = part._e_step_of(
                params, self.program.with_data(torch.cat([items, groups], -1)), True, owner
            )
            parts.add(statistics)
            total = total + log_likelihood
        return EStep(parts.total(), total, log_prior)

    def _e_step_of(
        self, params: Params, program: Program, by_value: bool = False, owner: Tensor | None = None
    ) -> EStep[TowerStatistics]:
        """E-step of one set of rows.

        ``program``: on one row; or, ``by_value``, on one for each value of the covariates;
        ``owner``: the value that each row has, (N,); None where every row has its own.
        """
        mixture = None if by_value else self._known_mixture(params)
        described = mixture is not None
        mixture = program.as_mixture(params) if mixture is None else mixture
        if mixture is None:
            raise ValueError(
                "the program's rows are not a finite mixture over one latent site; use"
                " EM(accelerate=False)"
            )
        family = self.layers[0].response
        bottom, log_likelihood = expected_statistics(
            self.data,
            self.mask,
            family,
            mixture.response,
            (
                mixture.log_weights.detach()
                if not by_value
                else mixture.log_weights.detach().reshape(
                    len(mixture.log_weights), -1, len(mixture.values)
                )
            ),
            mixture.values,
            self.chunk_elements,
            None if self.layers[0].terms is None else self.layers[0].features(mixture.values),
            self.weights,
            owner,
            self.labels,
            natural=self._natural(params) if described else None,
        )
        counts = bottom.counts if bottom.row_counts is None else bottom.row_counts
        posteriors = (
            mixture.upper_posteriors(counts.reshape(mixture.log_weights.shape))
            if by_value or len(self.layers) > 1
            else {}
        )
        if by_value:  # of the rows with each value of the covariates, (R, G, C)
            bottom = replace(
                bottom,
                row_counts=counts.sum(1),
                counts=counts.sum(1) if self.mask is None else bottom.counts,
            )
        layers = {self.layers[0].loadings: bottom}
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
        if by_value:
            counts = (
                posteriors[self.root.latent]
                .reshape(len(child_values), len(counts), -1)
                .permute(1, 2, 0)
            )  # (R, G, C)
        statistics = TowerStatistics(layers, self.root.expected(child_values, counts, params))
        return EStep(
            statistics,
            log_likelihood,
            self._relaxed_prior(params) if self.relaxed else mixture.log_prior,
        )

    def _known_mixture(self, params: Params) -> FiniteMixture | None:
        """Mixture by the description of the layers, without a run; None where a run differs."""
        layer = self.layers[0]
        if layer.tabled or layer.curved or not self.program.is_own:
            return None
        if "described" not in layer.memory:  # found out once
            run = self.program.as_mixture(params)
            found = self._of_description(params)
            pairs = []
            if run is not None:
                counts = found.log_weights.detach().exp()
                above = [own.upper_posteriors(counts) for own in (run, found) if found.upper]
                pairs = [
                    (run.values, found.values),
                    (run.log_weights, found.log_weights),
                    *([] if self.relaxed else [(run.log_prior, found.log_prior)]),
                    (run.response.eta.squeeze(), found.response.eta.squeeze()),
                    *(
                        (above[0][name].squeeze(), value.squeeze())
                        for own in above[1:]
                        for name, value in own.items()
                    ),
                ]
            layer.memory["described"] = run is not None and all(
                torch.allclose(one.expand_as(other), other, rtol=1e-9, atol=1e-9)
                for one, other in pairs
            )
        return self._of_description(params) if layer.memory["described"] else None

    def _of_description(self, params: Params) -> FiniteMixture:
        r"""Mixture over the lowest latents.

        Its weights are sums over the configurations b of the latents above, a those below,

        .. math::

            p(a) = \sum_b p(b) \prod_k \sigma(\eta_{bk})^{a_k} (1 - \sigma(\eta_{bk}))^{1 - a_k} .
        """
        layer = self.layers[0]
        like = params[layer.loadings]  # (R, J, P)
        values, features = self._features(layer, like)
        # dims are configurations, restarts, rows, as where the program is run
        above = {name: params[name].unsqueeze(1) for name in self.root.sites()}
        top, _ = self._features(self.layers[-1], like)
        log_weights = self.root.distribution(above).log_prob(top[:, None, None])  # (C, R, 1)
        tables = {}
        for child, own in zip(self.layers[:-1], self.layers[1:], strict=True):
            below, (_, design) = self._features(child, like)[0], self._features(own, like)
            odds = design @ params[own.loadings].mT + params[own.intercepts].unsqueeze(-2)
            table = below @ odds.mT - softplus(odds).sum(-1).unsqueeze(-2)  # (R, a, b)
            tables[own.child] = table.movedim(0, -1).unsqueeze(-1).detach().requires_grad_()
        with torch.enable_grad():
            for table in reversed(tables.values()):
                log_weights = (table + log_weights).logsumexp(1)
        intercepts = params[layer.intercepts]
        (num, size), wide = like.shape[1:], len(values)
        eta: Tensor | LinearPredictor
        if wide * num <= (wide + num) * (size + 1):  # a product with it is the cheaper
            eta = (features @ like.mT + intercepts.unsqueeze(-2)).movedim(0, 1).unsqueeze(2)
        else:
            eta = LinearPredictor(
                features[:, None, None], like.unsqueeze(1), intercepts.unsqueeze(1)
            )
        dispersion = params[layer.dispersion].unsqueeze(1) if layer.dispersion else None
        return FiniteMixture(
            layer.parent,
            values,
            log_weights.squeeze(-1).mT,
            ItemResponse(layer.response, eta, dispersion),
            tables,
            self._log_prior(params),
        )

    def _natural(self, params: Params) -> Tensor | None:
        """Natural parameters (b, W) of the items, (R, P, 1 + K); None if not linear in K bits."""
        layer = self.layers[0]
        family, num = layer.response, layer.num_parents
        if num < HALVED or layer.terms is not None or self.root.profiles is not None:
            return None
        if self.mask is not None or self.labels is not None or not family.is_canonical:
            return None
        if family.category_names(layer.num_items):
            return None
        scale = family.scale(
            params[layer.dispersion] if layer.dispersion else None, layer.num_items
        )
        natural = torch.cat([params[layer.intercepts].unsqueeze(-1), params[layer.loadings]], -1)
        return natural if scale is None else natural * family.spread(scale).unsqueeze(-1)

    def _features(self, layer: GeneralizedLinearLayer, like: Tensor) -> tuple[Tensor, Tensor]:
        """Configurations of a layer's parents, (C, K), and their features, (C, P), once a layer."""
        name = "configurations", like.dtype, like.device
        if name not in layer.memory:
            values = self._configurations(layer, like)
            layer.memory[name] = values, layer.features(values)
        return cast("tuple[Tensor, Tensor]", layer.memory[name])

    def _log_prior(self, params: Params) -> Tensor:
        r"""Log-prior without a run of the program, (R,).

        Normal priors of loadings W and intercepts b are a constant less half a quadratic form of
        (b, W) and less the penalty; the constant is that of the program at W = 0, b = 0. Priors of
        all else but the root's sites are flat.
        """
        layer, root = self.layers[0], self.root
        if layer.dispersion and bool(sizes(layer.response, layer.num_items).any()):
            return self.program.log_prior(params)
        like = params[layer.loadings]
        name = "log-prior", like.dtype, like.device
        if name not in layer.memory:
            given = root.priors(like.new_zeros(())) if hasattr(root, "priors") else {}
            densities = {site: density_of(prior) for site, prior in given.items()}
            origin = {site: value[:1] for site, value in params.items()}
            origin |= {
                site: torch.zeros_like(origin[site])
                for own in self.layers
                for site in (own.loadings, own.intercepts)
            }
            origin |= root.uniform(like)
            constant = self.program.log_prior(origin) - self._relaxed_prior(origin)
            for site, density in densities.items():
                constant = constant - density(origin[site])
            layer.memory[name] = densities, constant
        densities, constant = layer.memory[name]
        total = constant + self._relaxed_prior(params)
        for site, density in densities.items():
            total = total + density(params[site])
        return cast("Tensor", total)

    def _configurations(self, layer: GeneralizedLinearLayer, like: Tensor) -> Tensor:
        """Configurations of a layer's parents that the program lists, (C, K)."""
        allowed = self.root.profiles if layer.parent == self.root.latent else None
        if allowed is None:
            return binary_configurations(layer.num_parents, like.dtype, like.device)
        return allowed.to(like)

    def on(self, data: Tensor, weights: Tensor | None = None) -> LayeredSteps:
        """Steps on other rows, with the covariates behind the items."""
        return replace(self, labels=None)._at(data, weights, with_mask=self.mask is not None)

    def relax(self) -> LayeredSteps | None:
        """The same steps under convex penalties, or None where no layer is penalised."""
        if all(layer.penalty is None for layer in self.layers):
            return None
        layers = tuple(
            replace(x, penalty=x.penalty.convex()) if x.penalty else x for x in self.layers
        )
        return replace(self, layers=layers, relaxed=True)

    def _relaxed_prior(self, params: Params) -> Tensor:
        """Minus the penalties and the normal priors' exponents, the log-prior to a constant."""
        total = torch.zeros(())
        for layer in self.layers:
            total = total - normal_exponent(layer, params)
            if layer.penalty:
                total = total - layer.penalty(params[layer.loadings]).sum((-2, -1))
        return total

    def m_step(self, statistics: TowerStatistics, params: Params) -> Params:
        """Maximise every layer and the root."""
        new = dict(params)
        for layer in self.layers:
            new.update(
                maximise_layer(layer, statistics.layers[layer.loadings], params, self.num_newton)
            )
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
    owner: Tensor | None = None,
    labels: Tensor | None = None,
    natural: Tensor | None = None,
) -> tuple[LayerStatistics, Tensor]:
    """Statistics of the observed layer, streaming over rows.

    ``data``: (N, J) or (R, N, J) without missing entries; ``mask``: of the same shape, 0/1, or
    None; ``response``: the observed site's distribution, batch shape (C, R, 1); ``log_weights``:
    (R, C), or (R, G, C) of G groups of rows; ``values``: (C, K); ``features``: (C, P), what the
    predictor is linear in; ``values`` if None; ``weights``: how often each row counts, (N,), of
    families whose predictor is the natural parameter; None for once; ``owner``: the group of each
    row, (N,); None where every row has its own, or all are one, without a dim; ``labels``: log
    p(label | bit) of every row, (N, K, 2); ``natural``: the natural parameters (b, W) of the items,
    (R, P, 1 + K), where ``values`` are all vectors of K bits and the parameters linear in these.

    Returns:
        The statistics, their ``row_counts`` (and ``counts``, where nothing is missing) (R, G, C) of
        groups, and the log-likelihood (R,).
    """
    squares = None
    if family.num_dispersed(data.shape[-1]):
        each = (
            family.statistic(data) if mask is None else family.statistic(data) * family.spread(mask)
        ).square()
        squares = each.sum(-2) if weights is None else weights @ each
    if natural is not None:
        halved = _halved_sums(data, family, response, log_weights, natural, chunk_elements, weights)
        if halved is not None:
            row_counts, cross, log_likelihood = halved
            return LayerStatistics(values, row_counts, cross, squares, row_counts), log_likelihood
    num_restarts = log_weights.shape[0]
    num_values = log_weights.shape[-1]
    is_one = log_weights.dim() == 2
    design = torch.nn.functional.pad(values if features is None else features, (1, 0), value=1.0)
    num_items = data.shape[-1]
    num_entries = family.num_predictors(num_items)
    is_wide = design.shape[1] > num_items + 1  # then sums over rows come before the design
    row_counts = torch.zeros_like(log_weights)
    cross = log_weights.new_zeros(num_restarts, num_entries, design.shape[1])
    item_counts = (
        None if mask is None else log_weights.new_zeros(num_restarts, num_items, num_values)
    )
    by_configuration = bool(family.category_names(num_items)) or not family.is_canonical
    sums = (
        log_weights.new_zeros(num_restarts, num_entries, num_values) if by_configuration else None
    )
    log_likelihood = log_weights.new_zeros(num_restarts)
    chunk = max(1, chunk_elements // (num_restarts * num_values))
    shape = (num_values, num_restarts, -1)  # dims of latents further up are 1
    with torch.no_grad():
        table = None  # (R, P, C)
        if is_one and not by_configuration and isinstance(response.predictor, Tensor):
            table = response.natural.reshape(shape).permute(1, 2, 0)
        for start in range(0, data.shape[-2], chunk):
            x = data[..., start : start + chunk, :]
            m = None if mask is None else mask[..., start : start + chunk, :]
            statistic = family.statistic(x)
            statistic = statistic if m is None else statistic * family.spread(m)
            if table is None:
                inner, log_partition, base = response.log_prob_terms(x, m)
                logits = inner.reshape(shape).movedim(0, -1)  # (R, n, C)
            else:  # one product a restart, whose entries lie as they are read
                log_partition, base = response.normalisers(x, m)
                logits = statistic @ table
            part: Any = (
                slice(start, start + chunk) if owner is None else owner[start : start + chunk]
            )
            of_groups = log_weights.unsqueeze(-2) if is_one else log_weights[:, part]
            offset = of_groups - log_partition.reshape(shape).movedim(0, -1)
            if labels is not None:  # each factor alone: what is impossible is too large for sums
                told = labels[start : start + chunk]
                offset = offset + (told[..., 1] @ values.mT + told[..., 0] @ (1 - values).mT)
            likelihood = (
                logits.add_(offset)
                if logits.is_contiguous()
                else torch.add(logits, offset, out=logits.new_empty(logits.shape))
            )
            peak = likelihood.amax(-1, keepdim=True)
            likelihood.sub_(peak).exp_()  # not normalised: dividing (R, n) numbers later is cheaper
            # (R, n, 1 + K), total first
            weighted = likelihood @ (design[:, :1] if is_wide else design)
            inverse = weighted[..., :1].reciprocal()
            of_rows = peak.squeeze(-1) - inverse.squeeze(-1).log() + base  # (R, n)
            if weights is None:
                log_likelihood += of_rows.sum(-1)
            else:
                often = weights[start : start + chunk]
                log_likelihood += of_rows @ often
                inverse = inverse * often.unsqueeze(-1)
            if is_one:
                row_counts += (inverse.mT @ likelihood).squeeze(-2)
            elif owner is None:
                row_counts[:, part] = inverse * likelihood
            else:
                row_counts.index_add_(1, part, inverse * likelihood)
            if sums is not None:
                sums += (statistic * inverse).mT @ likelihood
            cross += (
                (statistic * inverse).mT @ likelihood @ design
                if is_wide
                else statistic.mT @ (weighted * inverse)
            )
            if m is not None and item_counts is not None:
                item_counts += (m * inverse).mT @ likelihood
    counts = row_counts if item_counts is None else item_counts
    items = None
    if not family.is_canonical:
        if mask is None:
            items = family.statistic(data)
        else:
            items = family.statistic(data).masked_fill(family.spread(mask) == 0, MISSING)
        items = items.mT
    return (
        LayerStatistics(values, counts, cross, squares, row_counts, features, sums, items),
        log_likelihood,
    )


def _halved_sums(
    data: Tensor,
    family: ResponseFamily,
    response: ItemResponse,
    log_weights: Tensor,
    natural: Tensor,
    chunk_elements: int,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor] | None:
    r"""Row counts (R, C), cross products (R, P, 1 + K) and log-likelihood (R,), by halves of bits.

    With bits a = (u, v), :math:`s = T(x) W` and :math:`w_{uv} = p(a) \exp(-\sum_j A(\eta_j))`,
    the likelihood of a row is but for a factor

    .. math:: \sum_{u, v} e^{s_u \cdot u} \, w_{uv} \, e^{s_v \cdot v} ,

    two products with a matrix of :math:`2^{K / 2}` rows and columns: nothing is computed for each
    row and configuration. Means of log w over u and over v go with the exponents. None where the
    rest ranges so widely that a row's sum might be too small for a number.
    """
    num, size = len(natural), natural.shape[-1] - 1
    lower = binary_configurations(size // 2, natural.dtype, natural.device)
    upper = binary_configurations(size - size // 2, natural.dtype, natural.device)
    with torch.no_grad():
        log_partition, _ = response.normalisers(data[..., :1, :], None)
        table = log_weights - log_partition.reshape(-1, num).mT
        table = table.reshape(num, len(upper), len(lower))  # (R, u, v)
        of_upper, of_lower = table.mean(2, keepdim=True), table.mean(1, keepdim=True)
        rest = table - of_upper - of_lower
        top = rest.amax((1, 2), keepdim=True)
        least = 0.8 * math.log(torch.finfo(rest.dtype).tiny)
        if not bool(((rest - top) > least).all()):
            return None
        rest, level = (rest - top).exp_(), top.flatten(1)  # (R, 1)
        row_counts = torch.zeros_like(rest)
        cross = natural.new_zeros(natural.shape)
        log_likelihood = natural.new_zeros(num)
        chunk = max(1, chunk_elements // (num * (len(upper) + len(lower))))
        for start in range(0, data.shape[-2], chunk):
            x = data[..., start : start + chunk, :]
            statistic, (_, base) = family.statistic(x), response.normalisers(x, None)
            scores = statistic @ natural  # (R, n, 1 + K)
            sides, peaks = [], scores[..., 0] + level + base
            for part, own, mean in (
                (scores[..., 1 : 1 + upper.shape[1]], upper, of_upper.mT),
                (scores[..., 1 + upper.shape[1] :], lower, of_lower),
            ):
                exponent = (part @ own.mT).add_(mean)
                peak = exponent.amax(-1, keepdim=True)
                sides.append(exponent.sub_(peak).exp_())
                peaks = peaks + peak.squeeze(-1)
            left, right = sides
            over = right @ rest.mT  # (R, n, u), summed over v
            joint = left * over
            total = joint.sum(-1, keepdim=True)
            of_rows = peaks + total.squeeze(-1).log()
            inverse = total.reciprocal()
            if weights is None:
                log_likelihood += of_rows.sum(-1)
            else:
                often = weights[start : start + chunk]
                log_likelihood += of_rows @ often
                inverse = inverse * often.unsqueeze(-1)
            bits = torch.cat(
                [total, joint @ upper, (right * (left @ rest)) @ lower], -1
            )  # expected (1, a), not normalised
            cross += statistic.mT @ (bits * inverse)
            row_counts += (left * inverse).mT @ right
    return (row_counts * rest).flatten(1), cross, log_likelihood


@dataclass(frozen=True)
class SetSteps(Steps[TowerStatistics]):
    """EM steps where restarts differ in their data.

    Args:
        base: steps whose data are (S, N, J).
    """

    base: LayeredSteps

    def e_step(self, params: Params) -> EStep[TowerStatistics]:
        """E-step of every restart on its own data set."""
        index = params[SET].long()
        mask = None if self.base.mask is None else self.base.mask[index]
        return replace(self.base, data=self.base.data[index], mask=mask).e_step(without_set(params))

    def m_step(self, statistics: TowerStatistics, params: Params) -> Params:
        return self.base.m_step(statistics, without_set(params)) | {SET: params[SET]}

    def on(self, data: Tensor, weights: Tensor | None = None) -> SetSteps:
        """Steps on other rows of every data set, (S, N, J)."""
        self.refuse_weights(weights)
        return SetSteps(self.base.on(data))
