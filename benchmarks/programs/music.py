"""Hidden Markov models of polyphonic music, in the shape of Pyro's ``examples/hmm.py``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.ops.indexing import Vindex
from torch import nn
from torch.distributions import constraints

from programs.case import Case, seeded


def _sticky(size: int) -> torch.Tensor:
    return 0.9 * torch.eye(size) + 0.1


def one_by_one(sequences, lengths, args, batch_size=None, include_prior=True):
    num_sequences, max_length, data_dim = sequences.shape
    with poutine.mask(mask=include_prior):
        probs_x = pyro.sample("probs_x", dist.Dirichlet(_sticky(args.hidden_dim)).to_event(1))
        probs_y = pyro.sample(
            "probs_y", dist.Beta(0.1, 0.9).expand([args.hidden_dim, data_dim]).to_event(2)
        )
    tones = pyro.plate("tones", data_dim, dim=-1)
    for i in pyro.plate("sequences", len(sequences), batch_size):
        length = lengths[i]
        sequence = sequences[i, :length]
        x = 0
        for t in pyro.markov(range(length)):
            x = pyro.sample(
                f"x_{i}_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"}
            )
            with tones:
                pyro.sample(f"y_{i}_{t}", dist.Bernoulli(probs_y[x.squeeze(-1)]), obs=sequence[t])


def plain_chain(sequences, lengths, args, batch_size=None, include_prior=True):
    num_sequences, max_length, data_dim = map(int, sequences.shape)
    assert lengths.shape == (num_sequences,)
    assert lengths.max() <= max_length
    with poutine.mask(mask=include_prior):
        probs_x = pyro.sample("probs_x", dist.Dirichlet(_sticky(args.hidden_dim)).to_event(1))
        probs_y = pyro.sample(
            "probs_y", dist.Beta(0.1, 0.9).expand([args.hidden_dim, data_dim]).to_event(2)
        )
    tones = pyro.plate("tones", data_dim, dim=-1)
    with pyro.plate("sequences", num_sequences, batch_size, dim=-2) as batch:
        lengths = lengths[batch]
        x = 0
        for t in pyro.markov(range(max_length if args.jit else lengths.max())):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                x = pyro.sample(
                    f"x_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"}
                )
                with tones:
                    pyro.sample(
                        f"y_{t}",
                        dist.Bernoulli(probs_y[x.squeeze(-1)]),
                        obs=sequences[batch, t],
                    )


def tones_remember(sequences, lengths, args, batch_size=None, include_prior=True):
    num_sequences, max_length, data_dim = map(int, sequences.shape)
    with poutine.mask(mask=include_prior):
        probs_x = pyro.sample("probs_x", dist.Dirichlet(_sticky(args.hidden_dim)).to_event(1))
        probs_y = pyro.sample(
            "probs_y", dist.Beta(0.1, 0.9).expand([args.hidden_dim, 2, data_dim]).to_event(3)
        )
    plate = pyro.plate("tones", data_dim, dim=-1)
    with pyro.plate("sequences", num_sequences, batch_size, dim=-2) as batch:
        lengths = lengths[batch]
        x, y = 0, 0
        for t in pyro.markov(range(max_length if args.jit else lengths.max())):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                x = pyro.sample(
                    f"x_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"}
                )
                with plate as tones:
                    y = pyro.sample(
                        f"y_{t}",
                        dist.Bernoulli(probs_y[x, y, tones]),
                        obs=sequences[batch, t],
                    ).long()


def _factorial(sequences, lengths, args, batch_size, include_prior, coupled):
    num_sequences, max_length, data_dim = map(int, sequences.shape)
    size = int(args.hidden_dim**0.5)
    with poutine.mask(mask=include_prior):
        probs_w = pyro.sample("probs_w", dist.Dirichlet(_sticky(size)).to_event(1))
        moves = dist.Dirichlet(_sticky(size))
        probs_x = pyro.sample(
            "probs_x", moves.expand_by([size]).to_event(2) if coupled else moves.to_event(1)
        )
        probs_y = pyro.sample(
            "probs_y", dist.Beta(0.1, 0.9).expand([size, size, data_dim]).to_event(3)
        )
    plate = pyro.plate("tones", data_dim, dim=-1)
    with pyro.plate("sequences", num_sequences, batch_size, dim=-2) as batch:
        lengths = lengths[batch]
        w = x = torch.tensor(0, dtype=torch.long)
        for t in pyro.markov(range(max_length if args.jit else lengths.max())):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                w = pyro.sample(
                    f"w_{t}", dist.Categorical(probs_w[w]), infer={"enumerate": "parallel"}
                )
                own = Vindex(probs_x)[w, x] if coupled else probs_x[x]
                x = pyro.sample(f"x_{t}", dist.Categorical(own), infer={"enumerate": "parallel"})
                with plate as tones:
                    pyro.sample(
                        f"y_{t}", dist.Bernoulli(probs_y[w, x, tones]), obs=sequences[batch, t]
                    )


def two_chains(sequences, lengths, args, batch_size=None, include_prior=True):
    _factorial(sequences, lengths, args, batch_size, include_prior, coupled=False)


def coupled_chains(sequences, lengths, args, batch_size=None, include_prior=True):
    _factorial(sequences, lengths, args, batch_size, include_prior, coupled=True)


class Tones(nn.Module):
    """Logits of the tones from a state and the tones before, by a small convolution."""

    def __init__(self, args: Any, data_dim: int) -> None:
        super().__init__()
        self.hidden_dim, self.data_dim = args.hidden_dim, data_dim
        self.x_to_hidden = nn.Linear(args.hidden_dim, args.nn_dim)
        self.y_to_hidden = nn.Linear(args.nn_channels * data_dim, args.nn_dim)
        self.conv = nn.Conv1d(1, args.nn_channels, 3, padding=1)
        self.hidden_to_logits = nn.Linear(args.nn_dim, data_dim)
        self.relu = nn.ReLU()

    def forward(self, x, y):
        state = y.new_zeros((*x.shape[:-1], self.hidden_dim)).scatter_(-1, x, 1)
        seen = self.relu(self.conv(y.reshape(-1, 1, self.data_dim)))
        seen = seen.reshape((*y.shape[:-1], -1))
        return self.hidden_to_logits(self.relu(self.x_to_hidden(state) + self.y_to_hidden(seen)))


tones_generator: Tones | None = None


def _generator(args: Any, data_dim: int) -> Tones:
    global tones_generator
    if tones_generator is None:
        tones_generator = Tones(args, data_dim)
    pyro.module("tones_generator", tones_generator)
    return tones_generator


def network_chain(sequences, lengths, args, batch_size=None, include_prior=True):
    num_sequences, max_length, data_dim = map(int, sequences.shape)
    generator = _generator(args, data_dim)
    with poutine.mask(mask=include_prior):
        probs_x = pyro.sample("probs_x", dist.Dirichlet(_sticky(args.hidden_dim)).to_event(1))
    with pyro.plate("sequences", num_sequences, batch_size, dim=-2) as batch:
        lengths = lengths[batch]
        x, y = 0, torch.zeros(data_dim)
        for t in pyro.markov(range(max_length if args.jit else lengths.max())):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                x = pyro.sample(
                    f"x_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"}
                )
                with pyro.plate(f"tones_{t}", data_dim, dim=-1):
                    y = pyro.sample(
                        f"y_{t}",
                        dist.Bernoulli(logits=generator(x, y)),
                        obs=sequences[batch, t],
                    )


def second_order(sequences, lengths, args, batch_size=None, include_prior=False):
    num_sequences, max_length, data_dim = sequences.shape
    size = args.hidden_dim
    probs_x = pyro.param("probs_x", torch.rand(size, size, size), constraint=constraints.simplex)
    probs_y = pyro.param(
        "probs_y", torch.rand(size, data_dim), constraint=constraints.unit_interval
    )
    tones = pyro.plate("tones", data_dim, dim=-1)
    with pyro.plate("sequences", num_sequences, batch_size, dim=-2) as batch:
        lengths = lengths[batch]
        now, before = torch.tensor(0), torch.tensor(0)
        for t in pyro.markov(range(lengths.max()), history=2):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                own = Vindex(probs_x)[before, now]
                before, now = (
                    now,
                    pyro.sample(f"x_{t}", dist.Categorical(own), infer={"enumerate": "parallel"}),
                )
                with tones:
                    pyro.sample(
                        f"y_{t}",
                        dist.Bernoulli(probs_y[now.squeeze(-1)]),
                        obs=sequences[batch, t],
                    )


def summed_chain(sequences, lengths, args, batch_size=None, include_prior=True):
    num_sequences, max_length, data_dim = map(int, sequences.shape)
    generator = _generator(args, data_dim)
    with poutine.mask(mask=include_prior):
        probs_x = pyro.sample("probs_x", dist.Dirichlet(_sticky(args.hidden_dim)).to_event(1))
    with pyro.plate("sequences", num_sequences, batch_size, dim=-1) as batch:
        lengths = lengths[batch]
        y = sequences[batch] if args.jit else sequences[batch, : lengths.max()]
        states, times = torch.arange(args.hidden_dim), torch.arange(y.size(1))
        init_logits = torch.full((args.hidden_dim,), -float("inf"))
        init_logits[0] = 0
        tones = dist.Bernoulli(logits=generator(states, y.unsqueeze(-2))).to_event(1)
        tones = tones.mask((times < lengths.unsqueeze(-1)).unsqueeze(-1))
        pyro.sample("y", dist.DiscreteHMM(init_logits, probs_x.log(), tones), obs=y)


def songs(hidden_dim: int = 2) -> tuple[Any, ...]:
    seeded(7)
    args = SimpleNamespace(
        hidden_dim=hidden_dim, nn_dim=3, nn_channels=1, jit=False, raftery_parameterization=False
    )
    return torch.bernoulli(torch.full((4, 5, 3), 0.4)), torch.tensor([5, 4, 3, 5]), args


HMM = "Pyro, examples/hmm.py"
CHAINS = (
    one_by_one,
    plain_chain,
    tones_remember,
    two_chains,
    coupled_chains,
    network_chain,
    second_order,
    summed_chain,
)
PROGRAMS = tuple(
    Case(f"hmm.model_{k}", HMM, model, lambda k=k: songs(4 if k in (3, 4) else 2))
    for k, model in enumerate(CHAINS)
)
