"""Linear unmixing: every row is a mixture of a few endmembers, in shares that sum to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppl_models.data.items import OpenItems
from ppl_models.data.tables import as_items, check_complete
from ppl_models.descriptions.components import UnmixingDescription
from ppl_models.matrix_factorization import SCALE_RANGE, Dims, check_sizes
from ppl_models.parts.distributions import Flat
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.responses import Normal
from ppl_models.parts.validation import numbers_like


@dataclass(frozen=True)
class Unmixing(OpenItems):
    r"""Linear mixing of non-negative endmembers, as of the spectra of pixels.

    Source: Dobigeon, Moussaoui, Coulon, Tourneret and Hero (2009), doi:10.1109/TSP.2009.2025797.

    .. math::

        a_n \sim \mathrm{Dirichlet}(1, \dots, 1), \qquad x_{nj} \sim N\Big(\sum_k a_{nk} m_{kj},
        \sigma^2\Big), \qquad m_{kj} \ge 0

    Sites: ``endmembers`` m (K, J), in units of the data; ``scales`` :math:`\sigma` (1,), a standard
    deviation; in the plate ``units``, local ``abundances`` a (K,), which sum to one, and observed
    ``items`` (J,). Priors of endmembers and scale are flat on intervals. Fits integrate the
    abundances, so ``log_likelihood`` is marginal, of K J + 1 parameters, and approximate:
    :mod:`inference.structures.factorization.unmixing` says how. The density of a row falls with the
    volume of the endmembers' simplex, so the likelihood wants the smallest simplex that holds the
    rows up to noise, and no row need be pure. ``Fit.posterior_latents`` gives E[a | x] as
    "abundances". Missing entries are refused. Fits order endmembers by falling sum.

    Args:
        num_items, num_components: J and K <= J; num_items None for as many columns as the data
            have, read in a fit.
        noise: "independent", if a column's noise says nothing of another's; or "correlated", for
            measured scenes, where what the mixture does not explain is alike in neighbouring
            columns. Rows do not show how large such noise is along the simplex: :math:`\sigma` is
            then the standard deviation of the rows along their K-th principal component, the first
            direction that K endmembers cannot produce; and abundances are those of highest density,
            with Laplace's approximation.
        bound: largest entry of an endmember.

    Raises:
        ValueError: for sizes that are not positive integers, K > J, another noise, or a bound that
            is not positive.
    """

    num_items: int | None = None
    num_components: int = 0
    noise: Literal["independent", "correlated"] = "independent"
    bound: float = 1e9
    site_dims = Dims(
        endmembers=("component", "item"),
        abundances=("component",),
        items=("item",),
        scales=("one",),
    )

    def __post_init__(self) -> None:
        check_sizes("Unmixing", self)
        if self.noise not in ("independent", "correlated"):
            raise ValueError(
                f"Unmixing: noise must be 'independent' or 'correlated', got {self.noise!r}"
            )

    def unmixing(self) -> UnmixingDescription:
        """Description of the mixture for engines."""
        return UnmixingDescription(
            self._width, self.num_components, self.noise == "correlated", self.bound
        )

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as a complete tensor (N, J), and the item names."""
        table, names = as_items(data, self._width, Normal(), for_fit=False)
        check_complete("Unmixing", table, names, data)
        if for_fit and len(table) <= self.num_components:
            raise ValueError(
                f"data: more than num_components = {self.num_components} rows were expected, got"
                f" {len(table)}"
            )
        if for_fit and bool((table <= 0).all()):
            raise ValueError("data: endmembers are not negative, but no entry is above zero")
        return table, names

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some."""
        kind = numbers_like("Unmixing", data, num_rows)
        zero = torch.zeros((), **kind)
        flat = Flat(zero, zero + self.bound).expand([self.num_components, self._width])
        endmembers = pyro.sample("endmembers", flat.to_event(2))
        low, high = (zero + v for v in SCALE_RANGE)
        scales = pyro.sample("scales", Flat(low, high).expand([1]).to_event(1))
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            ones = torch.ones(self.num_components, **kind)
            abundances = pyro.sample("abundances", dist.Dirichlet(ones))
            means = (abundances.unsqueeze(-2) @ endmembers).squeeze(-2)
            return pyro.sample(
                "items",
                ItemResponse(Normal(), means, scales.square().expand(means.shape)),
                obs=data,
            )
