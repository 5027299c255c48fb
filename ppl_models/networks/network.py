"""Protocol of the networks of independent classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Generator, Tensor

Shape = tuple[int, ...]


class ClassifierNetwork(Protocol):
    """Protocol of networks of one architecture, a frozen record without weights.

    One for each of several variates, or one that all of them share. The defaults are those of a
    network whose logits are not known to be linear in any features.
    """

    @property
    def scales_inputs(self) -> bool:
        """Tell whether the variates' columns are scaled before the network sees them."""
        return False

    def sites(
        self, shapes: Sequence[Shape], num_outputs: int, num_networks: int
    ) -> dict[str, Shape]:
        """Names and shapes of the weights.

        Args:
            shapes: of one row of each variate; num_outputs: logits, C; num_networks: 1 where it is
                shared, else the number of variates.
        """
        ...

    def num_unused(self, shapes: Sequence[Shape], num_outputs: int, num_networks: int) -> int:
        """Number of weights that no output depends on; arguments as of :meth:`sites`."""
        return 0

    def start(
        self,
        shapes: Sequence[Shape],
        num_outputs: int,
        num_networks: int,
        num_starts: int,
        generator: Generator,
    ) -> dict[str, Tensor]:
        r"""Random weights to train from, (num_starts, \*shape) by site."""
        ...

    def logits(self, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Tensor:
        r"""Logits (R, V, n, C) of rows by variate, (n, \*shape), and weights (R, \*shape)."""
        ...

    def output_dims(self) -> dict[str, int] | None:
        """Dim, counted from the end, of each site whose entries belong to the components.

        None where these cannot exchange names.
        """
        return None

    def probes(self, values: Tensor) -> Tensor:
        r"""Evaluation points (n, \*shape) from standard normal values on the scale of the data."""
        return values

    def features(self, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Tensor | None:
        """Features (R, V, n, F) in which the logits are linear; None where unknown."""
        return None

    def outputs(self, weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
        """Slopes (R, G, C, F) and intercepts (R, G, C) of the logits; None without features."""
        return None

    def with_outputs(
        self, weights: Mapping[str, Tensor], slopes: Tensor, intercepts: Tensor
    ) -> dict[str, Tensor]:
        r"""Replace the output layer by given linear functions of the features.

        Args:
            weights: (R, \\*shape); slopes: (R, G, C, F); intercepts: (R, G, C).
        """
        owner = type(self).__name__
        raise NotImplementedError(f"{owner}: its outputs are not known")
