r"""Gibbs sweeps over binary latents: the posterior where 2^K configurations are too many.

For parent k of a generalised-linear layer, all else fixed, with :math:`\eta^0, \eta^1` the children's predictors at
:math:`a_k = 0, 1`,

.. math:: \mathrm{logit}\, P(a_k = 1 \mid \cdot) = \mathrm{prior\ logit}_k
          + \sum_j s_j \{ T(x_j) W_{jk} - A(\eta^1_j) + A(\eta^0_j) \}.

Children whose loading is zero drop out, so a sweep costs as much as the graph has edges. Latents are held as
(R, K, N): one contiguous row of memory a latent.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from inference.program import Params, Program
from ppl_models.layers import GeneralizedLinearLayer, RootLayer
from ppl_models.responses import Bernoulli, filled

__all__ = ["GenericGibbs", "Gibbs", "LayeredGibbs"]

Latents = dict[str, Tensor]
CHUNK_ELEMENTS = 2**16  # children times rows at once: they stay in the processor's cache through a sweep


class Gibbs(Protocol):
    """A Markov chain on the latents of all rows, for R parameter values at once; latents are (R, K, N) by site."""

    def begin(self, params: Params, generator: torch.Generator) -> Latents:
        """A state to start from: a draw from the prior."""
        ...

    def sweep(
        self,
        params: Params,
        latents: Latents,
        generator: torch.Generator,
        synchronous: bool = False,
        backwards: bool = False,
        forced: Latents | None = None,
    ) -> tuple[Latents, Latents]:
        """One update of every latent of every row: the new state, and P(latent = 1 | all else) as each was drawn.

        Args:
            params: (R, ...).
            latents: the state; generator: of the draws.
            synchronous: draw every latent given the *previous* values of all others. Not a Gibbs sampler: its stationary
                law is not the posterior. It is what the published SAEM does.
            backwards: visit the latents in the opposite order: the time reversal of the chain.
            forced: values that the draws must take, so that their chances give the probability of that move.
        """
        ...

    def log_joint_rows(self, params: Params, latents: Latents) -> Tensor:
        """log p(row, its latents), (R, N)."""
        ...


@dataclass(frozen=True, eq=False)
class LayeredGibbs:
    """Sweeps for layers of binary latents, bottom to top, one latent after another, all rows at once.

    Args:
        model: the program; layers, root: its description of itself.
        data: (N, J), NaN where missing.
        statistic: T(x), (J, N), 0 where missing; mask: (J, N) 0/1, None if nothing is missing.
    """

    model: Any
    layers: tuple[GeneralizedLinearLayer, ...]
    root: RootLayer
    data: Tensor
    statistic: Tensor
    mask: Tensor | None

    @classmethod
    def build(cls, model: Any, data: Tensor) -> LayeredGibbs:
        """The sampler of a model that describes its layers, and of a table (N, J), NaN where missing."""
        layers, root = model.layers(), model.root()
        complete, observed = filled(layers[0].response, data)
        statistic = layers[0].response.statistic(complete)
        statistic = statistic if observed is None else statistic * observed
        mask = None if observed is None else observed.mT.contiguous()
        return cls(model, layers, root, data, statistic.mT.contiguous(), mask)

    def rows(self, index: Tensor) -> LayeredGibbs:
        """The sampler of some of the rows."""
        mask = None if self.mask is None else self.mask[:, index]
        return replace(self, data=self.data[index], statistic=self.statistic[:, index], mask=mask)

    def begin(self, params: Params, generator: torch.Generator) -> Latents:
        proportions = params[self.root.proportions]
        logits = torch.logit(proportions).unsqueeze(-1).expand(*proportions.shape, self.statistic.shape[1])
        latents: Latents = {}
        for layer in reversed(self.layers):
            latents[layer.parent] = _bits(torch.sigmoid(logits), generator)
            logits = predictor(layer, params, latents)
        return latents

    def sweep(
        self,
        params: Params,
        latents: Latents,
        generator: torch.Generator,
        synchronous: bool = False,
        backwards: bool = False,
        forced: Latents | None = None,
    ) -> tuple[Latents, Latents]:
        new, chances = dict(latents), {}
        layers = list(enumerate(self.layers))
        for depth, layer in reversed(layers) if backwards else layers:
            state = latents if synchronous else new
            below = self.statistic if depth == 0 else state[layer.child]
            mask = self.mask if depth == 0 else None
            prior = self.prior_logits(depth, params, state)
            uniform = _uniform(latents[layer.parent], generator) if forced is None else _decided(forced[layer.parent])
            new[layer.parent], chances[layer.parent] = _sweep_layer(
                layer, params, state, below, mask, prior, uniform, synchronous, backwards
            )
        return new, chances

    def prior_logits(self, depth: int, params: Params, latents: Latents) -> Tensor:
        """Log-odds of the parents of layer ``depth`` given the layer above, (R, K, N) or (R, K, 1)."""
        if depth + 1 < len(self.layers):
            return predictor(self.layers[depth + 1], params, latents)
        return torch.logit(params[self.root.proportions]).unsqueeze(-1)

    def log_joint_rows(self, params: Params, latents: Latents) -> Tensor:
        return self._whole.log_joint_rows(params, latents)

    @functools.cached_property
    def _whole(self) -> GenericGibbs:
        """The program on these rows: its density is the only one."""
        return GenericGibbs(Program(self.model, self.data))


def predictor(layer: GeneralizedLinearLayer, params: Params, latents: Latents) -> Tensor:
    """The children's predictor, (R, C, N)."""
    return params[layer.loadings] @ features(layer, latents) + params[layer.intercepts].unsqueeze(-1)


def features(layer: GeneralizedLinearLayer, latents: Latents) -> Tensor:
    """What the children's predictor is linear in, (R, P, N)."""
    parents = latents[layer.parent]
    return parents if layer.terms is None else layer.features(parents.mT).mT


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=generator.device).to(like.device)


def _decided(forced: Tensor) -> Tensor:
    """Numbers in the place of uniform ones, below or above every chance."""
    return torch.where(forced > 0.5, -1.0, 2.0).to(forced)


def _bits(chances: Tensor, generator: torch.Generator) -> Tensor:
    return (_uniform(chances, generator) < chances).to(chances.dtype)


def _sweep_layer(
    layer: GeneralizedLinearLayer,
    params: Params,
    latents: Latents,
    below: Tensor,
    mask: Tensor | None,
    prior: Tensor,
    uniform: Tensor,
    synchronous: bool,
    backwards: bool,
) -> tuple[Tensor, Tensor]:
    """Draw the parents of one layer: their new values and the chances they were drawn with, (R, K, N)."""
    parents = latents[layer.parent]
    num_rows, kind = parents.shape[-1], parents.dtype
    new, chances = torch.empty_like(parents), torch.empty_like(parents)
    dispersion = params[layer.dispersion] if layer.dispersion else None
    scale = layer.response.scale(dispersion, layer.num_children)  # (R, C)
    if isinstance(
        layer.response, Bernoulli
    ):  # log-odds within a few hundred: single precision is ample, and twice as fast
        kind = torch.float32
    scale = None if scale is None else scale.to(kind)
    steps = (_Steps if layer.terms is None else _ProductSteps)(
        layer, params[layer.loadings].to(kind), params[layer.intercepts].to(kind), scale
    )
    rows = max(1, CHUNK_ELEMENTS // (max(layer.num_children, layer.num_features) * len(parents)))
    for start in range(0, num_rows, rows):
        part = slice(start, start + rows)
        own = None if mask is None else mask[:, part].to(kind)
        odds = prior if prior.shape[-1] == 1 else prior[..., part]
        new[..., part], chances[..., part] = steps.sweep(
            parents[..., part].to(kind),
            below[..., part].to(kind),
            own,
            odds.to(kind),
            uniform[..., part],
            synchronous,
            backwards,
        )
    return new, chances


class _Steps:
    """The children that each parent of a layer moves, and by how much.

    Args:
        layer: the layer's description.
        loadings: (R, C, K); intercepts: (R, C); scale: (R, C) or None.
    """

    def __init__(
        self, layer: GeneralizedLinearLayer, loadings: Tensor, intercepts: Tensor, scale: Tensor | None
    ) -> None:
        self.loadings, self.intercepts = loadings, intercepts.unsqueeze(-1)
        self.weighted = loadings if scale is None else loadings * scale.unsqueeze(-1)
        self.moves = []
        touched = (loadings != 0).any(0)  # (C, K)
        for k in range(layer.num_parents):
            moved = []
            for family, columns, _ in layer.response.blocks(layer.num_children):
                children: Tensor | slice = columns
                if not touched[columns, k].all():
                    children = touched[columns, k].nonzero().ravel() + columns.start
                own = None if scale is None else scale[:, children, None]
                moved.append((family, children, loadings[:, children, k, None], own))
            self.moves.append(moved)

    def sweep(
        self,
        parents: Tensor,
        below: Tensor,
        mask: Tensor | None,
        prior: Tensor,
        uniform: Tensor,
        synchronous: bool,
        backwards: bool,
    ) -> tuple[Tensor, Tensor]:
        """New parents and their chances for a few rows, (R, K, n)."""
        eta = self.loadings @ parents + self.intercepts  # (R, C, n)
        logits = prior + self.weighted.mT @ below  # (R, K, n)
        new, drawn = parents.clone(), torch.empty_like(parents)
        moves = list(enumerate(self.moves))
        for k, moved in reversed(moves) if backwards else moves:
            offs = []
            for family, children, step, scale in moved:
                off = eta[:, children] - step * new[:, k, None]  # the predictor at a_k = 0
                change = family.increment(off, step)
                change = change if mask is None else change * mask[children]
                change = change if scale is None else change * scale
                logits[:, k] -= change.sum(1)
                offs.append(off)
            draw = (uniform[:, k] < torch.sigmoid(logits[:, k])).to(parents.dtype)
            drawn[:, k] = draw
            if not synchronous:
                new[:, k] = draw
                for (_, children, step, _), off in zip(moved, offs, strict=True):
                    eta[:, children] = torch.addcmul(off, step, draw.unsqueeze(1))
        return drawn, torch.sigmoid(logits)


class _ProductSteps:
    """As :class:`_Steps`, where children depend on products of parents: both values of a latent are tried.

    Args:
        layer: the layer's description, with terms and a graph.
        loadings: (R, C, P); intercepts: (R, C); scale: (R, C) or None.
    """

    def __init__(
        self, layer: GeneralizedLinearLayer, loadings: Tensor, intercepts: Tensor, scale: Tensor | None
    ) -> None:
        self.layer, self.loadings, self.intercepts, self.scale = layer, loadings, intercepts.unsqueeze(-1), scale

    def sweep(
        self,
        parents: Tensor,
        below: Tensor,
        mask: Tensor | None,
        prior: Tensor,
        uniform: Tensor,
        synchronous: bool,
        backwards: bool,
    ) -> tuple[Tensor, Tensor]:
        """New parents and their chances for a few rows, (R, K, n)."""
        new, drawn = parents.clone(), torch.empty_like(parents)
        logits = prior.expand(parents.shape).clone()
        bits = range(parents.shape[1])
        for k in reversed(bits) if backwards else bits:
            off, on = new.clone(), new.clone()
            off[:, k], on[:, k] = 0.0, 1.0
            logits[:, k] += self._log_density(on, below, mask, k) - self._log_density(off, below, mask, k)
            draw = (uniform[:, k] < torch.sigmoid(logits[:, k])).to(parents.dtype)
            drawn[:, k] = draw
            if not synchronous:
                new[:, k] = draw
        return drawn, torch.sigmoid(logits)

    def _log_density(self, parents: Tensor, below: Tensor, mask: Tensor | None, k: int) -> Tensor:
        """Of the children that depend on parent k, without the base measure, (R, n)."""
        layer = self.layer
        designs = layer.features(parents.mT).mT  # (R, P, n)
        edges = torch.ones(layer.num_children, layer.num_parents, dtype=torch.bool) if layer.edges is None else layer.edges
        total = parents.new_zeros(len(parents), parents.shape[-1])
        for family, columns, _ in layer.response.blocks(layer.num_children):
            own = edges[columns, k].nonzero().ravel().to(parents.device) + columns.start
            eta = self.loadings[:, own] @ designs + self.intercepts[:, own]
            density = below[..., own, :] * eta - family.log_partition(eta)
            density = density if mask is None else density * mask[own]
            total += (density if self.scale is None else density * self.scale[:, own, None]).sum(-2)
        return total


@dataclass(frozen=True, eq=False)
class GenericGibbs:
    """Sweeps for any program whose latents are bits inside one plate over rows: two evaluations of the program a latent.

    Args:
        program: the program with its data.

    Raises:
        ValueError: naming a latent site that is not made of bits, or stands outside a single plate over the rows.
    """

    program: Program

    def __post_init__(self) -> None:
        for name in self.program.names("latent"):
            site = self.program.site(name)
            if not site.is_binary or len(site.plates) != 1 or self.program.max_plate_nesting != 1:
                raise ValueError(
                    f"latent site {name!r} with support {site.support} in the plates {site.plates} cannot be sampled: bits "
                    "(BinaryVector, Bernoulli) inside one plate over the rows were expected"
                )

    def begin(self, params: Params, generator: torch.Generator) -> Latents:
        num_restarts = len(next(iter(params.values())))
        out = {}
        for name in self.program.names("latent"):
            rows, *bits = self.program.site(name).shape
            shape = (num_restarts, bits[0] if bits else 1, rows)
            out[name] = _bits(torch.full(shape, 0.5, dtype=next(iter(params.values())).dtype), generator)
        return out

    def sweep(
        self,
        params: Params,
        latents: Latents,
        generator: torch.Generator,
        synchronous: bool = False,
        backwards: bool = False,
        forced: Latents | None = None,
    ) -> tuple[Latents, Latents]:
        new, chances = dict(latents), {}
        names = self.program.names("latent")
        for name in names if backwards else reversed(names):  # bottom to top
            uniform = _uniform(latents[name], generator) if forced is None else _decided(forced[name])
            drawn, chance = latents[name].clone(), torch.empty_like(latents[name])
            bits = range(drawn.shape[1])
            for k in reversed(bits) if backwards else bits:
                base = dict(latents if synchronous else new)
                values = []
                for bit in (0.0, 1.0):
                    changed = base[name].clone()
                    changed[:, k] = bit
                    values.append(self.log_joint_rows(params, base | {name: changed}))
                chance[:, k] = torch.sigmoid(values[1] - values[0])
                drawn[:, k] = (uniform[:, k] < chance[:, k]).to(drawn.dtype)
                if not synchronous:
                    new[name] = drawn.clone()
            new[name], chances[name] = drawn, chance
        return new, chances

    def log_joint_rows(self, params: Params, latents: Latents) -> Tensor:
        return self.program.log_joint_rows(params, self.shaped(latents))

    def shaped(self, latents: Latents) -> Latents:
        """Latents in the shapes of their sites, (R, N) or (R, N, K)."""
        shapes = {name: self.program.site(name).shape for name in latents}
        return {name: value.mT if len(shapes[name]) > 1 else value.squeeze(1) for name, value in latents.items()}
