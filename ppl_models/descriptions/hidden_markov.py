"""Description of hidden Markov models for engines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ppl_models.descriptions.components import MixtureComponents
from ppl_models.parts.durations import Durations


@dataclass(frozen=True)
class HiddenMarkovDescription:
    """Description of a hidden Markov model: a mixture whose components form a chain.

    Args:
        emission: the distribution of a row in each state, as that of the components of a mixture.
        initial: the distribution of the first state: "free" (a site ``initial``), "stationary"
            (that of the transitions), "uniform", or given chances (K,).
        allowed: (K, K), which moves are possible; None for all.
        concentration: of the Dirichlet priors of ``initial`` and of the rows of ``transitions``.
        stickiness: added to the concentration of staying.
        durations: how long visits last; None for a plain chain, whose moves include staying.
    """

    emission: MixtureComponents
    initial: str | tuple[float, ...]
    allowed: tuple[tuple[bool, ...], ...] | None
    concentration: float
    stickiness: float
    durations: Durations | None = None

    @property
    def num_states(self) -> int:
        """Number of states, K."""
        return self.emission.num_components

    @property
    def graph(self) -> Tensor:
        """Possible moves, bool (K, K); from a state to itself none where durations are given."""
        k = self.num_states
        given = (
            torch.ones(k, k, dtype=torch.bool)
            if self.allowed is None
            else torch.tensor(self.allowed)
        )
        return given if self.durations is None else given & ~torch.eye(k, dtype=torch.bool)
