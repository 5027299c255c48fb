"""Poisson factorization in which every component is absent or present in every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppl_models.data.items import OpenItems
from ppl_models.descriptions.components import UsageDescription
from ppl_models.matrix_factorization import (
    RATE_FLOOR,
    SITE_DIMS,
    check_concentration,
    check_counts,
    check_sizes,
)
from ppl_models.parts.distributions import BinaryVector, Flat
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.responses import Poisson
from ppl_models.parts.validation import check_number, numbers_like

SMALLEST_AMOUNT = 1e-6  # counts; of a mean amount


@dataclass(frozen=True)
class UsageFactorization(OpenItems):
    r"""Poisson factorization with binary usage: a spike at zero, a Gamma slab.

    .. math::

        b_{nk} \sim \mathrm{Bernoulli}(\pi_k), \quad z_{nk} \sim \mathrm{Gamma}(\alpha, \alpha /
        m_k), \quad
              x_{nj} \sim \mathrm{Poisson}\Big(\sum_k b_{nk} z_{nk} \phi_{kj}\Big), \qquad \sum_j
              \phi_{kj} = 1

    Absence and an amount of zero have the same likelihood: what tells them apart is the
    distribution of the amounts, of which m is estimated. A component that would have to be present
    in a far smaller amount than in other rows is rather absent, and the price of presence is that
    of spreading the slab over amounts that the row refutes.

    Sites: ``signatures`` :math:`\phi` (K, J), rows on the simplex; ``proportions`` :math:`\pi`
    (K,); ``amounts`` m (K,), mean counts where present; inside the plate ``units``, latent
    ``usage`` b (K,), local ``activities`` z (K,) and observed ``items`` (J,). Priors: signatures
    Dirichlet(concentration), proportions flat, amounts flat on [1e-6, bound].

    The program sums over usage given activities. Engines integrate the activities as well, so that
    estimates are of K (J + 1) parameters, whatever the number of rows: stochastic-approximation EM
    over exact Gibbs draws of both (:mod:`inference.structures.factorization.usage`).
    ``Fit.posterior_latents`` gives P(b = 1 | x) as "usage" and E[b z | x] as "activities". Missing
    entries (NaN) drop out. Fits order components by falling expected share of the counts.

    The spike and slab is that of Mitchell and Beauchamp (1988, doi:10.1080/01621459.1988.10478694),
    the Gamma distribution of activities that of Cemgil (2009, doi:10.1155/2009/785152).

    Args:
        num_items, num_components: J and K <= J; num_items None for as many columns as the data
            have, read in a fit.
        shape: :math:`\alpha`, at least 0.5; 1 for exponential amounts, larger to set presence apart
            from absence.
        concentration: of the Dirichlet prior, at least 1; 1 is flat.
        bound: largest mean amount.

    Raises:
        ValueError: for sizes that are not positive integers, K > J, or settings out of range.
    """

    num_items: int | None = None
    num_components: int = 0
    shape: float = 1.0
    concentration: float = 1.0
    bound: float = 1e9
    site_dims = SITE_DIMS | dict.fromkeys(("proportions", "amounts", "usage"), ("component",))

    def __post_init__(self) -> None:
        check_sizes("UsageFactorization", self)
        check_concentration("UsageFactorization", self.concentration)
        check_number(
            "UsageFactorization", "shape", self.shape, "be at least 0.5 and finite", least=0.5
        )

    def usage(self) -> UsageDescription:
        """Description of the factorization for engines."""
        return UsageDescription(
            self._width, self.num_components, self.concentration, self.shape, self.bound
        )

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as counts; see :meth:`PoissonFactorization.check_data`.

        Rows of zeros are taken: they use no component, which the proportions count.
        """
        return check_counts(self, data, for_fit, empty_rows=True)

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some."""
        kind = numbers_like("UsageFactorization", data, num_rows)
        zero = torch.zeros((), **kind)
        num = [self.num_components]
        concentration = zero.expand(self._width) + self.concentration
        even = dist.Dirichlet(concentration).expand(num).to_event(1)
        signatures = pyro.sample("signatures", even)
        flat = dist.Beta(zero + 1, zero + 1).expand(num).to_event(1)
        proportions = pyro.sample("proportions", flat)
        sizes = Flat(zero + SMALLEST_AMOUNT, zero + self.bound).expand(num).to_event(1)
        amounts = pyro.sample("amounts", sizes)
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            usage = pyro.sample(
                "usage", BinaryVector(torch.logit(proportions)), infer={"enumerate": "parallel"}
            )
            distribution = dist.Gamma(
                (zero + self.shape).expand(amounts.shape), self.shape / amounts
            )
            activities = pyro.sample("activities", distribution.to_event(1))
            rates = ((usage * activities).unsqueeze(-2) @ signatures).squeeze(-2)
            rates = rates.clamp(min=RATE_FLOOR)
            return pyro.sample("items", ItemResponse(Poisson(), rates.log()), obs=data)
