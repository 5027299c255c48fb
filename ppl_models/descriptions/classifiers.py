"""Description of independent classifiers for engines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ppl_models.networks.network import ClassifierNetwork, Shape


@dataclass(frozen=True)
class ClassifierGroup:
    """Group of variates whose networks have one architecture and run together.

    Args:
        network: the architecture; variates: which they are; is_shared: whether one network serves
            them all.
        sites: names of the weights in the program -> their names in the network.
        shapes: shape of each site, by its name in the program.
        output_dims: the dim, counted from the end, of each site whose entries belong to the
            components; None where components cannot exchange names.
    """

    network: ClassifierNetwork
    variates: tuple[int, ...]
    is_shared: bool
    sites: Mapping[str, str]
    shapes: Mapping[str, Shape]
    output_dims: Mapping[str, int] | None

    @property
    def num_networks(self) -> int:
        """Number of networks: 1 where it is shared, else one a variate."""
        return 1 if self.is_shared else len(self.variates)


@dataclass(frozen=True)
class ClassifierDescription:
    """Description of independent classifiers for engines.

    Args:
        shapes: of one row of each variate, V of them.
        num_components: C.
        groups: the networks, every variate in one group.
        weights: of the components: "geometric" (they follow from the pseudo-weights), "free"
            (parameters), or known numbers.
        prior_scale: standard deviation of the Normal prior of every weight of a network.
        is_scaled: by variate, whether its columns are centred and scaled.
        is_shared: whether one network serves all variates, so that all are scaled alike.
    """

    shapes: tuple[Shape, ...]
    num_components: int
    groups: tuple[ClassifierGroup, ...]
    weights: Literal["geometric", "free"] | tuple[float, ...]
    prior_scale: float
    is_scaled: tuple[bool, ...]
    is_shared: bool

    @property
    def num_variates(self) -> int:
        """Number of variates, V."""
        return len(self.shapes)

    @property
    def scaled_sizes(self) -> tuple[int, ...]:
        """Columns of each variate that are centred and scaled: all of them, or none."""
        return tuple(
            math.prod(shape) if scaled else 0
            for shape, scaled in zip(self.shapes, self.is_scaled, strict=True)
        )

    @property
    def scaling_sites(self) -> tuple[str, ...]:
        """Site names of the columns' means and standard deviations; () without scaling."""
        return ("input_centres", "input_scales") if any(self.is_scaled) else ()

    def standardised(
        self, rows: Sequence[Tensor], params: Mapping[str, Tensor]
    ) -> tuple[list[Tensor], Tensor | None]:
        r"""Standardised rows of each variate, (n, \*shape), and their mask (V, n).

        The mask says which variates are observed; None where all are.

        Args:
            rows: of each variate, numbers of any kind; params: with the scaling sites, and
                ``pseudo_weights`` for dtype and device.
        """
        like, out, begin = params["pseudo_weights"], [], 0
        missing = torch.stack([x.flatten(1).isnan().any(1) for x in rows])
        if missing.any():
            rows = [x.nan_to_num() for x in rows]
        for x, shape, size in zip(rows, self.shapes, self.scaled_sizes, strict=True):
            value = x.to(like)
            if size:
                centre, scale = (
                    params[name][begin : begin + size].reshape(shape) for name in self.scaling_sites
                )
                value, begin = (value - centre) / scale, begin + size
            out.append(value)
        return out, ~missing if missing.any() else None

    @property
    def network_sites(self) -> tuple[str, ...]:
        """Names of all sites that hold weights of networks."""
        return tuple(name for group in self.groups for name in group.shapes)
