"""Noisy-OR networks: independent binary causes, each of which may switch every item on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppl_models.data.items import OpenItems
from ppl_models.data.tables import as_items
from ppl_models.descriptions.noisy_or import (
    FLOOR,
    MAX_CAUSES,
    IndependentCauses,
    inhibited,
    log_expm1,
    weight_of_failure,
    weight_of_leak,
)
from ppl_models.parts.distributions import BinaryVector
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.responses import Bernoulli
from ppl_models.parts.validation import (
    check_flag,
    check_numbers,
    check_size,
    numbers_like,
    plain_fields,
)


@dataclass(frozen=True)
class NoisyOr(OpenItems):
    r"""Noisy-OR network with one layer of m binary latents.

    Sources: Pearl (1988); as in Buhai et al. (2020), arXiv:1907.00030.

    For each row,

    .. math::
        h_i &\sim \mathrm{Bernoulli}(\pi_i), \quad i = 1, \dots, m \\
        P(x_j = 0 \mid h) &= (1 - l_j) \prod_i f_{ij}^{h_i} = e^{-\eta_j}, \quad
        \eta_j = -\log(1 - l_j) - \sum_i h_i \log f_{ij}

    Sites: ``prior`` :math:`\pi` (m,); ``failure`` f (m, J), the probability that latent i, being
    on, fails to switch item j on, so that 1 means no edge; ``leak`` l (J,), the probability of a
    one with every latent off; latent ``causes`` (m,) in {0, 1}; observed ``items`` (J,). The rows
    are the plate ``units``.

    With ``inhibition`` (the DeMorgan gate of Maaskant and Druzdzel, 2008, Proceedings of the Fourth
    European Workshop on Probabilistic Graphical Models) a latent that is on may also switch items
    off that others switched on,

    .. math:: P(x_j = 1 \mid h) = (1 - e^{-\eta_j}) \prod_i g_{ij}^{h_i},

    a noisy OR and then a noisy AND-NOT, with a site more: ``spared`` g (m, J), the probability that
    an item which is on stays so, 1 for no inhibition. ``fit`` without a method is then exact EM
    from 20 random starts; m is at most 16.

    A missing entry (NaN) drops out of its row exactly. Latents are exchangeable, and nothing else
    is: weights :math:`-\log f` are never negative, so there is no sign to flip. A prior Beta(a / m,
    1) of ``prior`` is the finite Indian-buffet prior, which empties superfluous latents.

    ``fit`` without a method grows and prunes latents (:class:`inference.GrowAndPrune`), because a
    single run of EM from a random start finds all latents only now and then; ``num_latents`` is
    then an upper limit, and the latents that the description length does not pay for come back
    empty (prior 1e-6, failures 1), as do edges (failure 1). In a start given to ``fit`` a failure
    of exactly 1 is no edge, and exact EM leaves it so; all else must lie strictly between 0 and 1.

    Args:
        num_items: J, number of observed columns; None for as many as the data have, read in a fit.
        num_latents: m.
        prior_concentration, failure_concentration, leak_concentration: (a, b) of the Beta priors;
            (1, 1) is flat, and the MAP estimate is then maximum likelihood. ``spared`` has that of
            failures.
        inhibition: whether latents may also switch items off.

    Raises:
        ValueError: for sizes that are not positive integers, more than 16 latents that inhibit, or
            concentrations that are not two positive numbers.
    """

    num_items: int | None = None
    num_latents: int = 0
    prior_concentration: tuple[float, float] = (1.0, 1.0)
    failure_concentration: tuple[float, float] = (1.0, 1.0)
    leak_concentration: tuple[float, float] = (1.0, 1.0)
    inhibition: bool = field(default=False, metadata={"since": "0.2"})

    def __post_init__(self) -> None:
        plain_fields(self)
        self._settle()
        check_size("NoisyOr", "num_latents", self.num_latents)
        check_flag("NoisyOr", "inhibition", self.inhibition)
        if self.inhibition and self.num_latents > MAX_CAUSES:
            raise ValueError(
                f"NoisyOr: num_latents must be at most {MAX_CAUSES} with inhibition=True, got"
                f" {self.num_latents!r}"
            )
        for name in ("prior_concentration", "failure_concentration", "leak_concentration"):
            pair = check_numbers(
                "NoisyOr", name, getattr(self, name), "be two positive numbers (a, b)", 2, above=0
            )
            object.__setattr__(self, name, pair)

    def causes(self) -> IndependentCauses:
        """Description of the network for engines."""
        return IndependentCauses(
            "prior",
            "failure",
            "leak",
            "causes",
            "items",
            self.num_latents,
            self._width,
            self.prior_concentration,
            self.failure_concentration,
            self.leak_concentration,
            "spared" if self.inhibition else None,
        )

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Named dims of every parameter, latent and observed site, without the rows."""
        return {
            "prior": ("latent",),
            "failure": ("latent", "item"),
            **({"spared": ("latent", "item")} if self.inhibition else {}),
            "leak": ("item",),
            "causes": ("latent",),
            "items": ("item",),
        }

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as a tensor (N, J) of 0, 1 and NaN, and the item names."""
        return as_items(data, self._width, Bernoulli(), for_fit)

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some."""
        kind = numbers_like("NoisyOr", data, num_rows)
        one = torch.tensor(1.0, **kind)

        def beta(concentration: tuple[float, float], *shape: int) -> Any:
            a, b = concentration
            return dist.Beta(a * one, b * one).expand(shape).to_event(len(shape))

        prior = pyro.sample("prior", beta(self.prior_concentration, self.num_latents))
        failure = pyro.sample(
            "failure", beta(self.failure_concentration, self.num_latents, self._width)
        )
        leak = pyro.sample("leak", beta(self.leak_concentration, self._width))
        spared = None
        if self.inhibition:
            spared = pyro.sample(
                "spared", beta(self.failure_concentration, self.num_latents, self._width)
            )
        chance = prior.clamp(FLOOR, 1 - FLOOR)
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            logits = chance.log() - (-chance).log1p()
            causes = pyro.sample("causes", BinaryVector(logits), infer={"enumerate": "parallel"})
            on = causes.unsqueeze(-2)
            weights = (on @ weight_of_failure(failure)).squeeze(-2) + weight_of_leak(leak)
            if spared is None:
                odds = log_expm1(weights)
            else:
                odds = inhibited(weights, (on @ weight_of_failure(spared)).squeeze(-2))[1]
            return pyro.sample("items", ItemResponse(Bernoulli(), odds), obs=data)
