"""Programs of a user, none of them in the zoo, with parameters and data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pyro.optim
import pytest
import torch
from pyro.ops.indexing import Vindex
from torch import Tensor

F64 = torch.float64
Params = dict[str, Tensor]


def close(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    actual, expected = (torch.as_tensor(value, dtype=F64).detach() for value in (actual, expected))
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=F64)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def topics(words: Tensor) -> None:
    """Words (W, N) of units: a theme for each unit, a topic for each word; two nested plates, the
    outer one inmost.
    """
    theme_weights = pyro.sample("theme_weights", dist.Dirichlet(ones(2)))
    topic_weights = pyro.sample("topic_weights", dist.Dirichlet(ones(2, 3)).to_event(1))
    vocabulary = pyro.sample("vocabulary", dist.Dirichlet(ones(3, 4)).to_event(1))
    with pyro.plate("units", words.shape[-1], dim=-1):
        theme = pyro.sample("theme", dist.Categorical(theme_weights))
        with pyro.plate("words", words.shape[-2], dim=-2):
            topic = pyro.sample("topic", dist.Categorical(Vindex(topic_weights)[..., theme, :]))
            pyro.sample("word", dist.Categorical(Vindex(vocabulary)[..., topic, :]), obs=words)


def topics_transposed(words: Tensor) -> None:
    """The same model with its plates the other way round: words (N, W)."""
    theme_weights = pyro.sample("theme_weights", dist.Dirichlet(ones(2)))
    topic_weights = pyro.sample("topic_weights", dist.Dirichlet(ones(2, 3)).to_event(1))
    vocabulary = pyro.sample("vocabulary", dist.Dirichlet(ones(3, 4)).to_event(1))
    with pyro.plate("units", words.shape[-2], dim=-2):
        theme = pyro.sample("theme", dist.Categorical(theme_weights))
        with pyro.plate("words", words.shape[-1], dim=-1):
            topic = pyro.sample("topic", dist.Categorical(Vindex(topic_weights)[..., theme, :]))
            pyro.sample("word", dist.Categorical(Vindex(vocabulary)[..., topic, :]), obs=words)


def two_causes(data: Tensor) -> None:
    """Two Categorical latents, the second depending on the first, and an observation on both."""
    first = pyro.sample("first_weights", dist.Dirichlet(ones(2)))
    second = pyro.sample("second_weights", dist.Dirichlet(ones(2, 3)).to_event(1))
    means = pyro.sample("means", dist.Normal(0.0, ones(2, 3)).to_event(2))
    spread = pyro.sample("spread", dist.Gamma(ones(), 1.0))
    with pyro.plate("rows", len(data)):
        a = pyro.sample("a", dist.Categorical(first))
        b = pyro.sample("b", dist.Categorical(Vindex(second)[..., a, :]))
        pyro.sample("x", dist.Normal(Vindex(means)[..., a, b], spread), obs=data)


LENGTH = 4


def chain(data: Tensor) -> None:
    """A second-order chain of T = 4 binary states inside a plate; Pyro reuses three enumerated
    dims.
    """
    start = pyro.sample("start", dist.Beta(ones(), 1.0))
    move = pyro.sample("move", dist.Beta(ones(2, 2), 1.0).to_event(2))
    means = pyro.sample("means", dist.Normal(0.0, ones(2)).to_event(1))
    with pyro.plate("rows", len(data)):
        before, now = 0, 0
        for t in pyro.markov(range(LENGTH), history=2):
            chance = start if t == 0 else Vindex(move)[..., before, now]
            before, now = now, pyro.sample(f"z_{t}", dist.Bernoulli(chance)).long()
            pyro.sample(f"x_{t}", dist.Normal(Vindex(means)[..., now], 1.0), obs=data[:, t])


TOPIC_PARAMS = {
    "theme_weights": torch.tensor([0.3, 0.7], dtype=F64),
    "topic_weights": torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]], dtype=F64),
    "vocabulary": torch.softmax(2 * uniform(3, 4), -1),
}
WORDS = torch.multinomial(
    ones(4), 15, replacement=True, generator=torch.Generator().manual_seed(1)
).reshape(3, 5)
CAUSES = {
    "first_weights": torch.tensor([0.4, 0.6], dtype=F64),
    "second_weights": torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]], dtype=F64),
    "means": 3 * uniform(2, 3),
    "spread": torch.tensor(0.8, dtype=F64),
}
CHAIN = {
    "start": torch.tensor(0.4, dtype=F64),
    "move": torch.tensor([[0.2, 0.7], [0.4, 0.9]], dtype=F64),
    "means": torch.tensor([-0.5, 1.0], dtype=F64),
}
SERIES = torch.randn(6, LENGTH, generator=torch.Generator().manual_seed(2), dtype=F64)

CASES: dict[str, tuple[Callable[..., None], Params, Tensor, int]] = {
    "topics": (topics, TOPIC_PARAMS, WORDS, 2),
    "topics-transposed": (topics_transposed, TOPIC_PARAMS, WORDS.mT, 2),
    "two-causes": (two_causes, CAUSES, 2 * SERIES[:, 0], 1),
    "second-order-chain": (chain, CHAIN, SERIES, 1),
}
every_program = pytest.mark.parametrize("name", CASES)


def restarts(params: Params) -> Params:
    """Three values of every parameter, inside its support; the first is the given one."""
    out = {}
    for name, value in params.items():
        is_simplex = value.dim() > 0 and bool(((value.sum(-1) - 1).abs() < 1e-9).all())
        moved = (
            [value.pow(power) for power in (1.0, 1.3, 0.8)]
            if bool((value > 0).all())
            else [value, value / 2, -value]
        )
        out[name] = torch.stack([m / m.sum(-1, keepdim=True) if is_simplex else m for m in moved])
    return out
