"""Factor analysis: Gaussian factorization with a noise scale of its own for every item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppl_models.data.items import OpenItems
from ppl_models.data.tables import as_items, check_reach
from ppl_models.descriptions.components import FactorDescription
from ppl_models.matrix_factorization import SITE_DIMS, Dims, check_components
from ppl_models.parts.distributions import Flat
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.responses import Normal
from ppl_models.parts.validation import (
    check_number,
    check_numbers,
    numbers_like,
    plain_fields,
)

SCALE_RANGE = (1e-6, 1e6)


@dataclass(frozen=True)
class FactorAnalysis(OpenItems):
    r"""Factor analysis: normal factors, and a noise scale for every item.

    Source: Rubin and Thayer (1982), doi:10.1007/BF02293851.

    .. math:: z_{nk} \sim N(0, 1), \quad x_{nj} = \mu_j + \sum_k y_{nkj}, \quad
              y_{nkj} \sim N(z_{nk} \phi_{kj}, v_k \sigma_j^2), \qquad \sum_k v_k = 1

    so that :math:`x_{nj} \mid z_n \sim N(\mu_j + \sum_k z_{nk} \phi_{kj}, \sigma_j^2)`: the data
    tell the variance of the sum and nothing of its shares v, which are therefore a setting. They
    matter to :func:`inference.acdc.criterion.acdc` alone, which looks at the noise of single
    components. A scale for each item needs a distribution of the activities: were they free, one
    item could be fitted without error and the likelihood would have no maximum (Anderson and Rubin
    1956).

    Sites: ``signatures`` :math:`\phi` (K, J), ``intercepts`` :math:`\mu` (J,), ``scales``
    :math:`\sigma` (J,), standard deviations; in the plate ``units``, local ``activities`` z (K,)
    and observed ``items`` (J,). Priors are flat on intervals. Fits integrate the activities, so
    ``log_likelihood`` is marginal, and rotate the signatures so that :math:`\phi \Sigma^{-1}
    \phi^T` is diagonal and falling, each with a positive sum (Lawley's convention).
    ``Fit.posterior_latents`` gives E[z | x] as "activities". Missing entries (NaN) are
    marginalised. K + 1 rows or fewer are refused, for K components reproduce them without noise,
    and noise of less than 0.005 of an item's variance (a Heywood case: Joreskog 1967,
    doi:10.1007/BF02289658) is said by the fit.

    Args:
        num_items, num_components: J and K < J; num_items None for as many columns as the data
            have, read in a fit.
        noise_shares: v, one positive number a component, summing to 1; equal if None.
        bound: largest size of an entry of a signature or intercept.

    Raises:
        ValueError: for sizes that are not positive integers, K >= J, shares that are not such, or a
            bound that is not positive.
    """

    num_items: int | None = None
    num_components: int = 0
    noise_shares: tuple[float, ...] | None = None
    bound: float = 1e6
    site_dims = SITE_DIMS | Dims(intercepts=("item",), scales=("item",))

    def __post_init__(self) -> None:
        plain_fields(self)
        self._settle()
        check_components("FactorAnalysis", self.num_components)
        if self.num_items is not None and self.num_components >= self.num_items:
            raise ValueError(
                f"FactorAnalysis: num_components = {self.num_components} must be below num_items ="
                f" {self.num_items}"
            )
        check_number("FactorAnalysis", "bound", self.bound, "be positive and finite", above=0)
        if self.noise_shares is not None:
            must = f"be {self.num_components} positive numbers that sum to 1"
            shares = check_numbers(
                "FactorAnalysis",
                "noise_shares",
                self.noise_shares,
                must,
                self.num_components,
                above=0,
            )
            check_number(
                "FactorAnalysis",
                "noise_shares",
                sum(shares),
                f"{must}: their sum",
                least=1 - 1e-6,
                most=1 + 1e-6,
            )
            object.__setattr__(self, "noise_shares", shares)

    def factors(self) -> FactorDescription:
        """Description of the factors for engines."""
        equal = (1 / self.num_components,) * self.num_components
        return FactorDescription(
            self._width, self.num_components, self.noise_shares or equal, self.bound
        )

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as a tensor (N, J), NaN where missing, and the item names."""
        table, names = as_items(data, self._width, Normal(), for_fit)
        if for_fit:
            check_reach(table, names, Normal())
        if (
            for_fit and len(table) <= self.num_components + 1
        ):  # components reproduce them without any noise
            raise ValueError(
                f"data: more than num_components + 1 = {self.num_components + 1} rows were"
                f" expected, got {len(table)}"
            )
        return table, names

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some."""
        kind = numbers_like("FactorAnalysis", data, num_rows)
        zero = torch.zeros((), **kind)
        flat = Flat(zero - self.bound, zero + self.bound)
        signatures = pyro.sample(
            "signatures", flat.expand([self.num_components, self._width]).to_event(2)
        )
        intercepts = pyro.sample("intercepts", flat.expand([self._width]).to_event(1))
        low, high = (zero + v for v in SCALE_RANGE)
        scales = pyro.sample("scales", Flat(low, high).expand([self._width]).to_event(1))
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            distribution = dist.Normal(zero, zero + 1).expand([self.num_components]).to_event(1)
            activities = pyro.sample("activities", distribution)
            means = (activities.unsqueeze(-2) @ signatures).squeeze(-2) + intercepts
            return pyro.sample(
                "items",
                ItemResponse(Normal(), means, scales.square().expand(means.shape)),
                obs=data,
            )
