r"""Gibbs sweeps over binary latents: the posterior where 2^K configurations are too many.

For parent k of a generalised-linear layer, all else fixed, with :math:`\eta^0, \eta^1` the
children's predictors at :math:`a_k = 0, 1`,

.. math:: \mathrm{logit}\, P(a_k = 1 \mid \cdot) = \mathrm{prior\ logit}_k
          + \sum_j s_j \{ T(x_j) W_{jk} - A(\eta^1_j) + A(\eta^0_j) \}.

Children whose loading is zero drop out, so a sweep costs as much as the graph has edges. Latents
are held as (R, K, N): one contiguous row of memory a latent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from inference.programs.program import Params, Program

Latents = dict[str, Tensor]
# children that one latent moves, times rows at once: they stay in the processor's cache
CHUNK_ELEMENTS = 2**17


@dataclass(frozen=True, eq=False)
class Scan:
    """Way of a sweep: every latent in turn, bottom to top, given the newest values.

    Args:
        synchronous: draw every latent given the *previous* values of all others. Not a Gibbs
            sampler: its stationary distribution is not the posterior. It is what the published SAEM
                does.
        power, base: exponent beta in [0, 1], and log-odds (R, K, N) by site, where the sweep keeps
            :math:`q^{1 - beta} p^beta` instead of the posterior p, with q that of independent bits.
    """

    synchronous: bool = False
    power: float = 1.0
    base: Latents | None = None

    def chance(self, name: str, k: int, part: slice, logit: Tensor) -> Tensor:
        """P(latent k = 1 | all else), (R, n), from its log-odds in the posterior."""
        if self.base is not None:
            own = self.base[name][:, k, part].to(logit)
            logit = torch.lerp(own, logit.expand_as(own), self.power)
        return torch.sigmoid(logit)


PLAIN = Scan()


class Gibbs(Protocol):
    """Gibbs chain on the latents of all rows for R parameter values; latents (R, K, N) by site."""

    def begin(self, params: Params, generator: torch.Generator) -> Latents:
        """Initial state of the chain: a draw from the prior."""
        ...

    def sweep(
        self, params: Params, latents: Latents, generator: torch.Generator, scan: Scan = PLAIN
    ) -> tuple[Latents, Latents]:
        """Update every latent once: the new state, and P(latent = 1 | all else) of each draw.

        Args:
            params: (R, ...).
            latents: the state; generator: of the draws.
            scan: from what, and of which distribution.
        """
        ...

    def log_joint_rows(self, params: Params, latents: Latents) -> Tensor:
        """Log p(row, its latents), (R, N)."""
        ...


def uniform_like(like: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform random numbers of a tensor's shape, drawn on the generator's device."""
    return torch.rand(
        like.shape, generator=generator, dtype=like.dtype, device=generator.device
    ).to(like.device)


def drawn_bits(chances: Tensor, generator: torch.Generator) -> Tensor:
    """Bernoulli draws with given probabilities."""
    return (uniform_like(chances, generator) < chances).to(chances.dtype)


@dataclass(frozen=True, eq=False)
class GenericGibbs:
    """Gibbs sweeps for any program of bits in one plate, two evaluations a latent.

    Args:
        program: the program with its data.

    Raises:
        ValueError: naming a latent site that is not made of bits, or stands outside a single plate
            over the rows; for a program without latent sites.
    """

    program: Program

    def __post_init__(self) -> None:
        for name in self.program.names("local"):
            raise ValueError(
                f"latent site {name!r} is continuous and cannot be sampled: bits were expected"
            )
        if not self.program.names("latent"):
            raise ValueError(
                "the program has no latent site to sample: it sums its latents out inside"
                f" {self.program.names('observed')}"
            )
        for name in self.program.names("latent"):
            site = self.program.site(name)
            is_of_rows = set(site.plates) == self.program.row_plates
            if (
                not (site.is_binary and is_of_rows)
                or len(site.plates) != 1
                or self.program.max_plate_nesting != 1
            ):
                raise ValueError(
                    f"latent site {name!r} with support {site.support} in the plates {site.plates}"
                    " cannot be sampled: bits (BinaryVector, Bernoulli) inside one plate over the"
                    " rows were expected"
                )

    def begin(self, params: Params, generator: torch.Generator) -> Latents:
        num_restarts = len(next(iter(params.values())))
        out = {}
        for name in self.program.names("latent"):
            rows, *bits = self.program.site(name).shape
            shape = (num_restarts, bits[0] if bits else 1, rows)
            out[name] = drawn_bits(
                torch.full(shape, 0.5, dtype=next(iter(params.values())).dtype), generator
            )
        return out

    def sweep(
        self, params: Params, latents: Latents, generator: torch.Generator, scan: Scan = PLAIN
    ) -> tuple[Latents, Latents]:
        new, chances = dict(latents), {}
        for name in self.program.names("latent")[::-1]:
            uniform = uniform_like(latents[name], generator)
            drawn, chance = latents[name].clone(), torch.empty_like(latents[name])
            for k in range(drawn.shape[1]):
                base = dict(latents if scan.synchronous else new)
                values = []
                for bit in (0.0, 1.0):
                    changed = base[name].clone()
                    changed[:, k] = bit
                    values.append(self.log_joint_rows(params, base | {name: changed}))
                chance[:, k] = scan.chance(name, k, slice(None), values[1] - values[0])
                drawn[:, k] = (uniform[:, k] < chance[:, k]).to(drawn.dtype)
                if not scan.synchronous:
                    new[name] = drawn.clone()
            new[name], chances[name] = drawn, chance
        return new, chances

    def log_joint_rows(self, params: Params, latents: Latents) -> Tensor:
        return self.program.log_joint_rows(params, self.shaped(latents))

    def shaped(self, latents: Latents) -> Latents:
        """Latents in the shapes of their sites, (R, N) or (R, N, K)."""
        shapes = {name: self.program.site(name).shape for name in latents}
        return {
            name: value.mT if len(shapes[name]) > 1 else value.squeeze(1)
            for name, value in latents.items()
        }
