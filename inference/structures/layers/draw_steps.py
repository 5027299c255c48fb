r"""Statistics of one draw of the latents of generalised-linear layers, and their maximiser.

For a generalised-linear child with design :math:`h_i = (1, a_i)` the complete-data log-density of a
draw, expanded at the current coefficients :math:`\beta`, is the quadratic :math:`r \cdot \beta' -
\beta'^\top H \beta' / 2` with

.. math::

    H = \sum_i A''(\eta_i) h_i h_i^\top, \qquad r = \sum_i \{T(x_i) - A'(\eta_i)\} h_i + H \beta .

Both are averaged over iterations: (1 + K)^2 numbers a child, whatever the number of rows,
iterations or configurations. For linear families they are the sufficient statistics themselves. For
the others the expansion points converge with the estimate, and a fixed point has mean score zero,
which is the equation that EM solves (the stochastic-approximation view of Gu and Kong 1998,
doi:10.1073/pnas.95.13.7270). That holds for any H used on both sides of r, so for these families H
is summed over every so many rows only: it steers the steps, it does not move where they end.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inference.base.gibbs import Latents
from inference.base.steps import Averages
from inference.programs.devices import elements_at_once
from inference.programs.program import Params
from inference.structures.layers.categories import (
    expansions,
    groups_of,
    maximise_expansions,
    plain_part,
)
from inference.structures.layers.gibbs import LayeredGibbs, features
from inference.structures.layers.glm import (
    OwnPlaces,
    drawn_statistics,
    maximise_dispersion,
    maximise_layer,
    maximise_quadratic,
    own_places,
    with_ones,
)
from inference.structures.layers.newton import curved_by_quadratic, put_curved
from ppl_models.descriptions.layers import GeneralizedLinearLayer, LayerPart
from ppl_models.parts.responses import ResponseFamily
from ppl_models.parts.sizes import averaged_sizes, size_slopes

CHUNK_ELEMENTS = 2**18  # rows times distinct entries of h h at once


@dataclass(frozen=True, eq=False)
class LayeredDraws:
    """Statistics of layers of binary latents with generalised-linear children.

    Args:
        gibbs: the sampler, which holds the data.
        scale: weight of a row, above 1 for mini-batches.
        max_rows: about so many rows at most are summed over for H, where the family is not linear,
            and for the log-density.
    """

    gibbs: LayeredGibbs
    scale: float = 1.0
    max_rows: int = 2000

    @property
    def layers(self) -> tuple[GeneralizedLinearLayer, ...]:
        """The model's layers, bottom-up."""
        return self.gibbs.layers

    @property
    def stride(self) -> int:
        """Stride of the rows over which the log-density of a draw is summed, scaled up."""
        return max(1, self.gibbs.statistic.shape[1] // self.max_rows)

    def statistics(self, params: Params, latents: Latents, chances: Latents) -> Averages:
        """Averages of one draw."""
        out: Averages = {}
        for depth, layer in enumerate(self.layers):
            below = self.gibbs.statistic if depth == 0 else latents[layer.child]
            mask = self.gibbs.mask if depth == 0 else None
            intercepts, loadings = layer.coefficients(
                params[layer.intercepts], params[layer.loadings]
            )
            beta = torch.cat([intercepts.unsqueeze(-1), loadings], -1)
            h = with_ones(features(layer, latents))
            if layer.tabled:
                out |= self._of_categories(params, beta, h)
                plain = plain_part(layer, beta.device)
                if plain is None:
                    continue
                layer, beta, below = plain.layer, beta[:, plain.rows], below[plain.entries]
                mask = None if mask is None else mask[plain.items]
            dispersion = params[layer.dispersion] if layer.dispersion else None
            places = own_places(layer)
            if places is None:
                gradient, hessian = _expansion(
                    layer.response, beta, below, mask, h, self.stride, dispersion
                )
                coefficients = beta
            else:
                coefficients = places.of(beta)
                gradient, hessian = _own_expansion(
                    layer.response, coefficients, below, mask, h, places, dispersion
                )
            out[f"{layer.loadings}/linear"] = gradient + (
                hessian @ coefficients.unsqueeze(-1)
            ).squeeze(-1)
            out[f"{layer.loadings}/hessian"] = hessian
            if dispersion is not None and not layer.response.is_canonical:
                slopes, squares = _size_slopes(layer, beta, below, mask, h, dispersion)
                log_size = _by_item(layer, dispersion).log()
                out[f"{layer.dispersion}/linear"], out[f"{layer.dispersion}/squares"] = (
                    slopes + squares * log_size,
                    squares,
                )
        out = {name: value * self.scale for name, value in out.items()}
        latent = self.gibbs.root.latent
        out[latent] = self.gibbs.root.drawn(latents[latent], chances[latent], self.scale, params)
        return out

    def _of_categories(self, params: Params, beta: Tensor, design: Tensor) -> Averages:
        """Expansions of the items that are categories, in their coordinates."""
        out: Averages = {}
        for name, part in self._tabled():
            found = expansions(
                self.layers[0],
                part,
                self.gibbs.statistic,
                design.mT,
                beta,
                self._thresholds(params),
                self.stride,
            )
            for g, (linear, hessian) in enumerate(found):
                out[f"{name}/{g}/linear"], out[f"{name}/{g}/hessian"] = linear, hessian
        return out

    def _tabled(self) -> list[tuple[str, LayerPart]]:
        """Names of averages and parts of the items that are categories."""
        layer = self.layers[0]
        return [
            (f"{layer.loadings}/categories {b}", part)
            for b, part in enumerate(layer.parts())
            if part.tabled
        ]

    def _thresholds(self, params: Params) -> Tensor:
        layer = self.layers[0]
        return params[layer.thresholds] if layer.thresholds else params[layer.intercepts][:, :0]

    def log_joint(self, params: Params, latents: Latents) -> Tensor:
        """Log-density of data and draw, (R,), over every so many rows."""
        few = {name: value[..., :: self.stride] for name, value in latents.items()}
        rows = self._few.log_joint_rows(params, few)
        return rows.sum(-1) * (self.scale * self.gibbs.statistic.shape[1] / rows.shape[-1])

    @functools.cached_property
    def _few(self) -> LayeredGibbs:
        """Gibbs sampler on every so many rows, enough for a fluctuating figure."""
        if self.stride == 1:
            return self.gibbs
        return self.gibbs.rows(
            torch.arange(
                0, self.gibbs.statistic.shape[1], self.stride, device=self.gibbs.data.device
            )
        )

    @functools.cached_property
    def _squares(self) -> Tensor:
        """Sums of squares of item statistics over rows, (P,), the same for all draws."""
        return self.gibbs.statistic.square().sum(-1) * self.scale

    def average(self, old: Averages | None, new: Averages, rate: float) -> Averages:
        """Stochastic approximation of the averages."""
        if old is None:
            return new
        return {name: torch.lerp(old[name], value, rate) for name, value in new.items()}

    def maximise(self, averages: Averages, params: Params) -> Params:
        """Maximise the parameters of all layers and the root from the averages."""
        new, plain = dict(params), None
        for depth, layer in enumerate(self.layers):
            beta = torch.cat([params[layer.intercepts].unsqueeze(-1), params[layer.loadings]], -1)
            # of the items; bits have none
            squares = self._squares if depth == 0 and layer.dispersion else None
            if layer.tabled:
                beta, new = self._maximise_categories(averages, params, beta)
                plain = plain_part(layer, beta.device)
                if plain is None:
                    continue
                layer, beta = plain.layer, beta[:, plain.rows]
                squares = None if squares is None else squares[plain.entries]
            linear = averages[f"{layer.loadings}/linear"]
            hessian = averages[f"{layer.loadings}/hessian"]
            dispersion = params[layer.dispersion] if layer.dispersion else None
            scale = layer.response.scale(dispersion, layer.num_children)
            places = own_places(layer)
            if places is None:
                curved = curved_by_quadratic(layer, linear, hessian, beta)
                beta = maximise_quadratic(layer, linear, hessian, beta, scale)
                beta = coefficients = put_curved(layer, beta, curved)
            else:
                coefficients = maximise_quadratic(
                    layer, linear, hessian, places.of(beta), scale, places
                )
                beta = places.back(coefficients, beta)
            if depth == 0 and plain is not None:
                new[layer.intercepts][:, plain.rows], new[layer.loadings][:, plain.rows] = (
                    beta[..., 0],
                    beta[..., 1:],
                )
            else:
                new[layer.intercepts], new[layer.loadings] = beta[..., 0], beta[..., 1:]
            if layer.dispersion is not None and squares is not None:
                fitted = (
                    coefficients.unsqueeze(-2) @ hessian @ coefficients.unsqueeze(-1)
                ).flatten(-3)
                # rows seen, where the family is linear
                weight = hessian[..., 0, 0].expand(fitted.shape)
                sizes = None
                if dispersion is not None and not layer.response.is_canonical:
                    slope = averages[f"{layer.dispersion}/linear"]
                    weight_of = averages[f"{layer.dispersion}/squares"]
                    sizes = averaged_sizes(slope, weight_of, _by_item(layer, dispersion))
                new[layer.dispersion] = maximise_dispersion(
                    layer,
                    squares - 2 * (coefficients * linear).sum(-1) + fitted,
                    weight,
                    params[layer.dispersion],
                    sizes,
                )
        return new | self.gibbs.root.maximise(averages[self.gibbs.root.latent], params)

    def _maximise_categories(
        self, averages: Averages, params: Params, beta: Tensor
    ) -> tuple[Tensor, Params]:
        """Bottom coefficients with categories renewed, and all parameters with these."""
        layer, thresholds = self.layers[0], self._thresholds(params)
        for name, part in self._tabled():
            num = len(groups_of(part, beta.device))
            pairs = [
                (averages[f"{name}/{g}/linear"], averages[f"{name}/{g}/hessian"])
                for g in range(num)
            ]
            beta, thresholds = maximise_expansions(layer, part, pairs, beta, thresholds)
        new = params | {
            layer.intercepts: beta[..., 0].clone(),
            layer.loadings: beta[..., 1:].clone(),
        }
        return beta, new | ({layer.thresholds: thresholds} if layer.thresholds else {})

    def maximise_draw(self, params: Params, latents: Latents, chances: Latents) -> Params:
        """Maximise the complete-data log-posterior of one draw."""
        restarts, root = [], self.gibbs.root
        for r in range(len(next(iter(params.values())))):
            own = {name: value[r : r + 1] for name, value in params.items()}
            new = dict(own)
            for depth, layer in enumerate(self.layers):
                below = self.gibbs.statistic if depth == 0 else latents[layer.child][r]
                mask = self.gibbs.mask if depth == 0 else None
                stats = drawn_statistics(layer, below, mask, latents[layer.parent][r], self.scale)
                new.update(maximise_layer(layer, stats, own, num_steps=1))
            drawn = root.drawn(
                latents[root.latent][r : r + 1], chances[root.latent][r : r + 1], self.scale, own
            )
            restarts.append(new | root.maximise(drawn, own))
        return {name: torch.cat([new[name] for new in restarts]) for name in params}

    def relax(self) -> LayeredDraws | None:
        """Statistics under convex penalties, or None where no layer is penalised."""
        if all(layer.penalty is None for layer in self.layers):
            return None
        layers = tuple(
            replace(x, penalty=x.penalty.convex()) if x.penalty else x for x in self.layers
        )
        return replace(self, gibbs=replace(self.gibbs, layers=layers))

    def rows(self, index: Tensor) -> LayeredDraws:
        """Statistics of some of the rows, scaled to all."""
        scale = self.scale * self.gibbs.statistic.shape[1] / len(index)
        return replace(self, gibbs=self.gibbs.rows(index), scale=scale)


def _own_expansion(
    family: ResponseFamily,
    beta: Tensor,
    below: Tensor,
    mask: Tensor | None,
    design: Tensor,
    places: OwnPlaces,
    dispersion: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradient (R, C, F) and minus the Hessian (R, C, F, F) in each child's own coefficients.

    As :func:`_expansion`, whose Hessian has an entry for each pair of all features.
    """
    gradient = torch.zeros_like(beta)
    hessian = beta.new_zeros(*beta.shape, beta.shape[-1])
    rows = max(1, elements_at_once(design, CHUNK_ELEMENTS) // beta[..., 0, :].numel())
    own_dispersion = None if dispersion is None else dispersion.unsqueeze(-2)
    for start in range(0, design.shape[-1], rows):
        part = slice(start, start + rows)
        h = design[:, places.at][..., part] * places.used.to(design).unsqueeze(-1)  # (R, C, F, n)
        eta = (beta.unsqueeze(-1) * h).sum(-2)
        mean, weight = (
            value.mT for value in family.expansion(eta.mT, below[..., part].mT, own_dispersion)
        )
        if mask is not None:
            mean, weight = mean * mask[:, part], weight * mask[:, part]
        gradient += (h @ (below[..., part] - mean).unsqueeze(-1)).squeeze(-1)
        hessian += (h * weight.unsqueeze(-2)) @ h.mT
    return gradient, hessian


def _by_item(layer: GeneralizedLinearLayer, dispersion: Tensor) -> Tensor:
    """Dispersion (R, D) spread over items, (R, J), one where there is none."""
    out = dispersion.new_ones(*dispersion.shape[:-1], layer.num_children)
    for _, columns, part in layer.response.blocks(layer.num_children):
        if part.stop > part.start:
            out[..., columns] = dispersion[..., part]
    return out


def _size_slopes(
    layer: GeneralizedLinearLayer,
    beta: Tensor,
    below: Tensor,
    mask: Tensor | None,
    design: Tensor,
    dispersion: Tensor,
) -> Tensor:
    """Slopes of the sizes of all children, zero without a size, (2, R, C)."""
    out = beta.new_zeros(2, *beta.shape[:-1])
    rows = max(1, elements_at_once(design, CHUNK_ELEMENTS) // (len(design) * beta.shape[-2]))
    for family, columns, part in layer.response.blocks(layer.num_children):
        if family.is_canonical:
            continue
        for start in range(0, design.shape[-1], rows):
            some = slice(start, start + rows)
            seen = None if mask is None else mask[columns, some]
            eta = beta[..., columns, :] @ design[..., some]
            out[..., columns] += size_slopes(
                below[..., columns, some], seen, eta, dispersion[..., part]
            )
    return out


def _expansion(
    family: ResponseFamily,
    beta: Tensor,
    below: Tensor,
    mask: Tensor | None,
    design: Tensor,
    stride: int = 1,
    dispersion: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradient (R, C, P) and minus the Hessian (R, C or 1, P, P) of the log-density.

    ``beta``: (R, C, P); ``below``: (C, N) or (R, C, N), 0 where missing; ``mask``: (C, N) 0/1 or
    None; ``design``: h, (R, P, N); ``dispersion``: (R, D) or None; ``stride``: the Hessian of
    families that are not linear is that of every so many rows, scaled up.
    """
    size, num_rows = design.shape[-2:]
    # every child has the same Hessian, the rows' cross products
    shared = family.is_linear and mask is None
    stride = 1 if family.is_linear else stride
    i, j = torch.triu_indices(size, size, device=design.device)
    gradient = torch.zeros_like(beta)
    packed = beta.new_zeros(*beta.shape[:-1], len(i))  # the distinct entries of the sum of w h h'
    rows = max(
        stride,
        elements_at_once(design, CHUNK_ELEMENTS)
        // (len(design) * max(len(i) // stride, beta.shape[-2]))
        // stride
        * stride,
    )
    for start in range(0, num_rows, rows):
        part = slice(start, start + rows)
        h = design[..., part]
        own = None if dispersion is None else dispersion.unsqueeze(-2)
        mean, weight = (
            value.mT for value in family.expansion((beta @ h).mT, below[..., part].mT, own)
        )  # (R, C, n)
        if mask is not None:
            mean, weight = mean * mask[:, part], weight * mask[:, part]
        gradient += (below[..., part] - mean) @ h.mT
        if not shared:
            few = h[..., ::stride]
            packed += weight[..., ::stride] @ (few[:, i] * few[:, j]).mT
    if shared:
        return gradient, (design @ design.mT).unsqueeze(1)
    packed *= num_rows / len(range(0, num_rows, stride))
    hessian = beta.new_zeros(*beta.shape, size)
    hessian[..., i, j] = packed
    hessian[..., j, i] = packed
    return gradient, hessian
