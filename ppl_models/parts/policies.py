r"""Policies as functions of a continuous state, in small frozen records.

Both policies of an option are softmax-linear in features :math:`\phi(s)` of the state; the records
say what the features are. One's own record needs the same three methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ppl_models.parts.validation import check_number, check_size, plain_fields


class Policy(Protocol):
    """Policy of a continuous state: its features and their parameters."""

    def num_outputs(self, num_features: int) -> int:
        """Number of features that the softmax sees, F."""
        ...

    def sites(self, num_features: int) -> dict[str, tuple[tuple[int, ...], float]]:
        """Parameters of the features: name -> shape, and scale of their Normal prior about 0."""
        ...

    def features(self, states: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        r"""Features (R, N, F) of states (N, D) and parameters (R, \*shape); R = 1 without any."""
        ...


@dataclass(frozen=True)
class SoftmaxLinear:
    r"""Linear policy, :math:`\phi(s) = s`: every log-odds is linear in the state."""

    def num_outputs(self, num_features: int) -> int:
        return num_features

    def sites(self, num_features: int) -> dict[str, tuple[tuple[int, ...], float]]:
        return {}

    def features(self, states: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        return states[None]


@dataclass(frozen=True)
class Network:
    r"""Network policy with one hidden layer, :math:`\phi(s) = \tanh(V s + c)`.

    The layer is shared by all options and both policies.

    Sites: ``hidden_weights`` V (H, D), ``hidden_intercepts`` c (H,). Hidden units have no names and
    no signs of their own, so their parameters are not identified; the policies are.

    Args:
        num_hidden: H.
        scale: standard deviation of the Normal prior of V and c.

    Raises:
        ValueError: for a size that is not a positive integer, or a scale that is not positive.
    """

    num_hidden: int = 8
    scale: float = 2.0

    def __post_init__(self) -> None:
        plain_fields(self)
        check_size("Network", "num_hidden", self.num_hidden)
        check_number("Network", "scale", self.scale, "be a positive number", above=0)

    def num_outputs(self, num_features: int) -> int:
        return self.num_hidden

    def sites(self, num_features: int) -> dict[str, tuple[tuple[int, ...], float]]:
        return {
            "hidden_weights": ((self.num_hidden, num_features), self.scale),
            "hidden_intercepts": ((self.num_hidden,), self.scale),
        }

    def features(self, states: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        return torch.tanh(
            states @ params["hidden_weights"].mT + params["hidden_intercepts"][..., None, :]
        )
