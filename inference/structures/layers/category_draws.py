r"""Gibbs draws of binary latents above items that are categories: what such items say of one
latent, given the others.

Latent k has, beside what other items and the layer above say of it, the log-odds

.. math:: \sum_j \{ \log P(x_j \mid a_k = 1, a_{-k}) - \log P(x_j \mid a_k = 0, a_{-k}) \},

over the items with a loading on it. Under the cumulative link an item's term needs two logistic
functions only, of the thresholds on both sides of its answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from inference.structures.layers.maximisers.categories import ItemGroup, groups_of
from ppl_models.descriptions.layers import GeneralizedLinearLayer


class PlainPart(NamedTuple):
    """The items of a layer that are no categories, as a layer of their own, and where what belongs
    to them stands in the whole one.

    Args:
        layer: of these items.
        rows: of loadings and intercepts; entries: of statistics; items: of the columns.
    """

    layer: GeneralizedLinearLayer
    rows: Tensor
    entries: Tensor
    items: Tensor


def plain_part(layer: GeneralizedLinearLayer, device: torch.device) -> PlainPart | None:
    """None where all items are categories; the whole layer where none is."""
    found = layer.without_categories()
    if found is None:
        return None
    own, rows, entries, items = found
    return PlainPart(
        own,
        *(torch.tensor(index, dtype=torch.long, device=device) for index in (rows, entries, items)),
    )


@dataclass(frozen=True, eq=False)
class _Moved:
    """Items of one group that a latent moves: number of the group, their places in it, and their
    columns among the answers.
    """

    group: int
    places: Tensor
    columns: Tensor


class CategoryConditionals:
    """What the categories of a layer say of its parents, for a few rows at a time.

    Args:
        layer: the layer's description.
        loadings: (R, children, P); intercepts: (R, children); thresholds: (R, G).
    """

    def __init__(
        self,
        layer: GeneralizedLinearLayer,
        loadings: Tensor,
        intercepts: Tensor,
        thresholds: Tensor,
    ) -> None:
        self.layer, device = layer, loadings.device
        self.groups: list[ItemGroup] = []
        self.columns: list[Tensor] = []
        for part in layer.parts():
            if part.tabled:
                for group in groups_of(part, device):
                    self.groups.append(group)
                    self.columns.append(
                        part.items.start
                        + torch.tensor(group.items, dtype=torch.long, device=device)
                    )
        self.loadings = [loadings[:, group.rows] for group in self.groups]  # (R, n, r, P)
        self.intercepts = [intercepts[:, group.rows].unsqueeze(-1) for group in self.groups]
        self.thresholds = [thresholds[:, group.gaps] for group in self.groups]
        self.moves = [self._moves(k) for k in range(layer.num_parents)]
        self.num_moved = max(
            [
                1,
                *(
                    sum(
                        len(move.places) * self.groups[move.group].entries.shape[1]
                        for move in moves
                    )
                    for moves in self.moves
                ),
            ]
        )

    def _moves(self, k: int) -> list[_Moved]:
        features = (
            torch.tensor([k])
            if self.layer.terms is None
            else self.layer.terms[:, k].nonzero().ravel()
        )
        out = []
        for g, own in enumerate(self.loadings):
            places = (
                (own[..., features.to(own.device)] != 0).any(-1).any(-1).any(0).nonzero().ravel()
            )
            if len(places):
                out.append(_Moved(g, places, self.columns[g][places]))
        return out

    def begin(self, parents: Tensor, codes: Tensor, mask: Tensor | None) -> None:
        """Take up rows: parents (R, K, n), answers (J, n), mask (J, n) or None."""
        self.parents, self.codes, self.mask = parents.clone(), codes, mask

    def put(self, k: int, value: Tensor) -> None:
        """Set parent k to (R, n)."""
        self.parents[:, k] = value

    def logit(self, k: int, prior: Tensor) -> Tensor:
        """Of parent k, (R, n), with its log-odds (R, n or 1) without these items."""
        off, on = self.parents.clone(), self.parents.clone()
        off[:, k], on[:, k] = 0.0, 1.0
        designs = [
            self.layer.features(bits.mT).mT.unsqueeze(1) for bits in (off, on)
        ]  # (R, 1, P, n)
        total = prior
        for move in self.moves[k]:
            family, codes = self.groups[move.group].family, self.codes[move.columns]
            own, level, gaps = (
                each[move.group][:, move.places]
                for each in (self.loadings, self.intercepts, self.thresholds)
            )
            less, more = (
                family.log_chance_of(codes, own @ design + level, gaps) for design in designs
            )
            change = more - less
            total = total + (change if self.mask is None else change * self.mask[move.columns]).sum(
                1
            )
        return total
