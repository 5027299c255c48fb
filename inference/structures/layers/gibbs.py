"""Gibbs sweeps over layers of binary latents with generalised-linear children."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.base.gibbs import (
    CHUNK_ELEMENTS,
    PLAIN,
    GenericGibbs,
    Latents,
    Scan,
    drawn_bits,
    uniform_like,
)
from inference.programs.devices import elements_at_once
from inference.programs.program import Params, Program
from inference.structures.layers.categories import CategoryConditionals, plain_part
from ppl_models.descriptions.covariate_root import part_of_root, root_of_rows
from ppl_models.descriptions.layers import GeneralizedLinearLayer, Root, products
from ppl_models.parts.responses import Bernoulli, ResponseFamily, filled

# latent k, its layer (R, K, n), which rows these are -> log-odds (R, n or 1)
Prior = Callable[[int, Tensor, slice], Tensor]


@dataclass(frozen=True, eq=False)
class LayeredGibbs:
    """Gibbs sweeps of binary layers, bottom to top, one latent after another, all rows.

    Args:
        model: the program; layers, root: its description of itself.
        data: (N, J), NaN where missing; (N, J + P) where the root depends on covariates.
        statistic: T(x), (J, N), 0 where missing; mask: (J, N) 0/1, None if nothing is missing.
    """

    model: Any
    layers: tuple[GeneralizedLinearLayer, ...]
    root: Root
    data: Tensor
    statistic: Tensor
    mask: Tensor | None

    @classmethod
    def build(cls, model: Any, data: Tensor) -> LayeredGibbs:
        """Sampler of a layered model and a table (N, J), NaN where missing, or (N, J + P)."""
        layers = model.layers()
        num_items = layers[0].num_items
        root = root_of_rows(model.root_layer(), data[..., num_items:])
        complete, observed = filled(layers[0].response, data[..., :num_items])
        statistic = layers[0].response.statistic(complete)
        statistic = (
            statistic if observed is None else statistic * layers[0].response.spread(observed)
        )
        mask = None if observed is None else observed.mT.contiguous()
        return cls(model, layers, root, data, statistic.mT.contiguous(), mask)

    def rows(self, index: Tensor) -> LayeredGibbs:
        """Sampler on some of the rows."""
        mask = None if self.mask is None else self.mask[:, index]
        return replace(
            self,
            root=part_of_root(self.root, index),
            data=self.data[index],
            statistic=self.statistic[:, index],
            mask=mask,
        )

    def begin(self, params: Params, generator: torch.Generator) -> Latents:
        """Draws of the latents from the prior, top to bottom."""
        like = next(iter(params.values()))
        shape = (len(like), self.root.num_latents, self.statistic.shape[1])
        latents = {
            self.root.latent: self.root.draw(params, uniform_like(like.new_empty(shape), generator))
        }
        for layer in reversed(self.layers[1:]):
            latents[layer.child] = drawn_bits(
                torch.sigmoid(predictor(layer, params, latents)), generator
            )
        return latents

    def sweep(
        self, params: Params, latents: Latents, generator: torch.Generator, scan: Scan = PLAIN
    ) -> tuple[Latents, Latents]:
        """One sweep of all layers: new latents and the chances they were drawn with."""
        new, chances = dict(latents), {}
        for depth, layer in enumerate(self.layers):
            state = latents if scan.synchronous else new
            below = self.statistic if depth == 0 else state[layer.child]
            mask = self.mask if depth == 0 else None
            prior = self._prior(depth, params, state)
            uniform = uniform_like(latents[layer.parent], generator)
            codes = self.codes if depth == 0 and layer.tabled else None
            new[layer.parent], chances[layer.parent] = sweep_layer(
                layer, params, state, below, mask, prior, uniform, scan, codes
            )
        return new, chances

    def _prior(self, depth: int, params: Params, latents: Latents) -> Prior:
        """Log-odds of a parent of layer ``depth`` given the layer above or the root."""
        if depth + 1 == len(self.layers):
            return lambda k, state, part: part_of_root(self.root, part).log_odds(params, k, state)
        odds = predictor(self.layers[depth + 1], params, latents)
        return lambda k, state, part: odds[:, k, part]

    def log_joint_rows(self, params: Params, latents: Latents) -> Tensor:
        """Log-density of rows and latents, (R, N)."""
        return self._whole.log_joint_rows(params, latents)

    @functools.cached_property
    def codes(self) -> Tensor:
        """Category codes of the answers, (J, N), 0 where missing."""
        return self.data[:, : self.layers[0].num_items].nan_to_num(0.0).mT.contiguous()

    @functools.cached_property
    def _whole(self) -> GenericGibbs:
        """Generic sampler of the program on these rows, for its density."""
        return GenericGibbs(Program(self.model, self.data))


def predictor(layer: GeneralizedLinearLayer, params: Params, latents: Latents) -> Tensor:
    """Linear predictor of the children, (R, C, N)."""
    intercepts, loadings = layer.coefficients(params[layer.intercepts], params[layer.loadings])
    return loadings @ features(layer, latents) + intercepts.unsqueeze(-1)


def features(layer: GeneralizedLinearLayer, latents: Latents) -> Tensor:
    """Features that the children's predictor is linear in, (R, P, N)."""
    parents = latents[layer.parent]
    return parents if layer.terms is None else layer.features(parents.mT).mT


def sweep_layer(
    layer: GeneralizedLinearLayer,
    params: Params,
    latents: Latents,
    below: Tensor,
    mask: Tensor | None,
    prior: Prior,
    uniform: Tensor,
    scan: Scan,
    codes: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Draw one layer's parents: values and chances (R, K, N); ``codes`` (J, N) of categories."""
    parents = latents[layer.parent]
    num_rows, kind = parents.shape[-1], parents.dtype
    new, chances = torch.empty_like(parents), torch.empty_like(parents)
    dispersion = params[layer.dispersion] if layer.dispersion else None
    plain = plain_part(layer, parents.device)
    scale = (
        None if plain is None else plain.layer.response.scale(dispersion, plain.layer.num_children)
    )  # (R, C)
    # log-odds within a few hundred: single precision is ample, and twice as fast
    if isinstance(layer.response, Bernoulli):
        kind = torch.float32
    scale = None if scale is None else scale.to(kind)
    intercepts, loadings = layer.coefficients(params[layer.intercepts], params[layer.loadings])
    conditionals: list[_Conditionals | _ProductConditionals | CategoryConditionals] = []
    if plain is not None:
        own_loadings, own_intercepts = (
            (loadings, intercepts)
            if codes is None
            else (loadings[:, plain.rows], intercepts[:, plain.rows])
        )
        kind_of = _Conditionals if layer.terms is None else _ProductConditionals
        conditionals.append(
            kind_of(plain.layer, own_loadings.to(kind), own_intercepts.to(kind), scale, dispersion)
        )
    if codes is not None:
        thresholds = params[layer.thresholds] if layer.thresholds else intercepts[:, :0]
        conditionals.append(CategoryConditionals(layer, loadings, intercepts, thresholds))
    rows = max(
        1,
        elements_at_once(parents, CHUNK_ELEMENTS)
        // (sum(each.num_moved for each in conditionals) * len(parents)),
    )
    for start in range(0, num_rows, rows):
        part = slice(start, start + rows)
        own = None if mask is None else mask[:, part].to(kind)
        for each in conditionals:
            if isinstance(each, CategoryConditionals):
                assert codes is not None
                each.begin(parents[..., part], codes[:, part], own)
            elif codes is None or plain is None:
                each.begin(parents[..., part].to(kind), below[..., part].to(kind), own)
            else:
                each.begin(
                    parents[..., part].to(kind),
                    below[plain.entries, part].to(kind),
                    None if own is None else own[plain.items],
                )
        for k in range(parents.shape[1]):
            logit = prior(k, conditionals[0].parents, part).to(kind)
            for each in conditionals:
                logit = each.logit(k, logit)
            chance = scan.chance(layer.parent, k, part, logit)  # (R, n)
            draw = (uniform[:, k, part] < chance).to(kind)
            new[:, k, part], chances[:, k, part] = draw, chance
            if not scan.synchronous:
                for each in conditionals:
                    each.put(k, draw)
    return new, chances


def _size_of(
    family: ResponseFamily, dispersion: Tensor | None, part: slice, inside: Tensor
) -> Tensor | None:
    """Sizes (R, n, 1) of some children, None where the predictor is natural."""
    if family.is_canonical or dispersion is None:
        return None
    return dispersion[..., part][..., inside, None]


class _Conditionals:
    """Log-odds of each parent given the others and the children, for a few rows.

    Args:
        layer: the layer's description.
        loadings: (R, C, K); intercepts: (R, C); scale: (R, C) or None.
        dispersion: (R, D) or None.
    """

    def __init__(
        self,
        layer: GeneralizedLinearLayer,
        loadings: Tensor,
        intercepts: Tensor,
        scale: Tensor | None,
        dispersion: Tensor | None,
    ) -> None:
        self.loadings, self.intercepts = loadings, intercepts.unsqueeze(-1)
        self.weighted = loadings if scale is None else loadings * scale.unsqueeze(-1)
        # for each parent and family: the children it moves, by how much, and the change of A that
        # makes
        self.moves = []
        touched = (loadings != 0).any(0)  # (C, K)
        for k in range(layer.num_parents):
            moved = []
            for family, columns, part in layer.response.blocks(layer.num_children):
                inside = touched[columns, k].nonzero().ravel()
                children = inside + columns.start
                if len(children):
                    step = loadings[:, children, k, None]
                    own = None if scale is None else scale[:, children, None]
                    size = _size_of(family, dispersion, part, inside)
                    family = family if size is None else family.given(size)
                    moved.append((children, step, family.total_increment(step, own), size))
            self.moves.append(moved)
        self.num_moved = max(1, int(touched.sum(0).max()))

    def begin(self, parents: Tensor, below: Tensor, mask: Tensor | None) -> None:
        """Set the rows: parents (R, K, n), statistics (C, n) or (R, C, n), mask (C, n)."""
        self.parents, self.mask, self.below = parents.clone(), mask, below
        self.eta = self.loadings @ parents + self.intercepts  # (R, C, n)
        self.linear = self.weighted.mT @ below  # (R, K, n)

    def logit(self, k: int, prior: Tensor) -> Tensor:
        """Log-odds of parent k, (R, n), from those (R, n or 1) without the children."""
        total = prior + self.linear[:, k]
        for children, step, increment, size in self.moves[k]:
            off = self.eta.index_select(1, children).addcmul_(
                step, self.parents[:, k, None], value=-1.0
            )  # at a_k = 0
            weight = None if self.mask is None else self.mask[children]
            if size is not None:
                counts = self.below[..., children, :] + size
                weight = counts if weight is None else counts * weight
            total = total - increment(off, weight)
        return total

    def put(self, k: int, value: Tensor) -> None:
        """Set parent k to (R, n)."""
        change = (value - self.parents[:, k]).unsqueeze(1)
        for children, step, _, _ in self.moves[k]:
            self.eta.index_add_(1, children, step * change)
        self.parents[:, k] = value


@dataclass(frozen=True, eq=False)
class _Moves:
    """Features that one parent moves, and the children that these move, by family.

    Args:
        own: the features; members: the parents that they are products of, ``at`` the place of this
            parent among them; terms, disjunctive: the products over ``members``.
        children: all of them; loadings: theirs on the features, (R, n, P').
        families: family, their places among ``children``, among the statistics, and sizes.
    """

    own: Tensor
    members: Tensor
    at: int
    terms: Tensor
    disjunctive: Tensor | None
    children: Tensor
    loadings: Tensor
    families: list[tuple[ResponseFamily, slice, Tensor, Tensor | None]]


class _ProductConditionals:
    """Conditionals of products of parents: both values of each, in the features that hold it.

    Args:
        layer: the layer's description, with terms and a graph.
        loadings: (R, C, P); intercepts: (R, C); scale: (R, C) or None.
        dispersion: (R, D) or None.
    """

    def __init__(
        self,
        layer: GeneralizedLinearLayer,
        loadings: Tensor,
        intercepts: Tensor,
        scale: Tensor | None,
        dispersion: Tensor | None,
    ) -> None:
        self.layer = layer
        self.loadings = loadings
        self.intercepts = intercepts.unsqueeze(-1)
        self.scale = scale
        edges = layer.edges
        if edges is None:
            edges = torch.ones(layer.num_children, layer.num_parents, dtype=torch.bool)
        assert layer.terms is not None
        self.moves = [
            self._of_parent(k, layer.terms, edges, dispersion) for k in range(layer.num_parents)
        ]
        self.num_moved = max(1, *(max(len(moved.children), len(moved.own)) for moved in self.moves))

    def _of_parent(self, k: int, terms: Tensor, edges: Tensor, dispersion: Tensor | None) -> _Moves:
        own = terms[:, k].nonzero().ravel()
        members = terms[own].any(0).nonzero().ravel()
        children, families = [], list[tuple[ResponseFamily, slice, Tensor, Tensor | None]]()
        place = 0
        for family, columns, part in self.layer.response.blocks(self.layer.num_children):
            inside = edges[columns, k].nonzero().ravel()
            if len(inside):
                size = _size_of(family, dispersion, part, inside.to(self.loadings.device))
                if size is not None:
                    family = family.given(size)
                found = inside + columns.start
                children.append(found)
                families.append((family, slice(place, place + len(found)), found, size))
                place += len(found)
        joined = torch.cat(children) if children else own[:0]
        disjunctive = None if self.layer.disjunctive is None else self.layer.disjunctive[own]
        device = self.loadings.device
        return _Moves(
            own.to(device),
            members.to(device),
            int((members == k).nonzero()) if len(own) else 0,
            terms[own][:, members].to(device),
            disjunctive,
            joined.to(device),
            self.loadings[:, joined.to(device)][..., own.to(device)],
            families,
        )

    def begin(self, parents: Tensor, below: Tensor, mask: Tensor | None) -> None:
        self.parents, self.below, self.mask = parents.clone(), below, mask
        self.features = self.layer.features(self.parents.mT).mT.contiguous()  # (R, P, n)
        self.eta = self.loadings @ self.features + self.intercepts  # (R, C, n)

    def logit(self, k: int, prior: Tensor) -> Tensor:
        moves = self.moves[k]
        if not len(moves.children):
            return prior + torch.zeros_like(self.parents[:, k])
        bits = self.parents.index_select(1, moves.members)
        before = self.features.index_select(1, moves.own)
        self.values, self.steps, densities = [], [], []
        for value in (0.0, 1.0):
            bits[:, moves.at] = value
            features = products(bits.mT, moves.terms, moves.disjunctive).mT
            step = moves.loadings @ (features - before)
            self.values.append(features)
            self.steps.append(step)
            densities.append(self._log_density(moves, step))
        return prior + densities[1] - densities[0]

    def put(self, k: int, value: Tensor) -> None:
        moves = self.moves[k]
        self.parents[:, k] = value
        if len(moves.children):
            is_on = value.unsqueeze(1) > 0.5
            self.features[:, moves.own] = torch.where(is_on, self.values[1], self.values[0])
            self.eta[:, moves.children] += torch.where(is_on, self.steps[1], self.steps[0])

    def _log_density(self, moves: _Moves, step: Tensor) -> Tensor:
        """Log-density of the children of one parent, whose predictors move by a step, (R, n)."""
        eta = self.eta.index_select(1, moves.children) + step
        total = eta.new_zeros(len(eta), eta.shape[-1])
        for family, places, children, size in moves.families:
            below, own = self.below[..., children, :], eta[:, places]
            weight = below if size is None else below + size
            normaliser = family.log_partition(own)
            density = below * own - (normaliser if size is None else weight * normaliser)
            density = density if self.mask is None else density * self.mask[children]
            if self.scale is not None:
                density = density * self.scale[:, children, None]
            total += density.sum(-2)
        return total
