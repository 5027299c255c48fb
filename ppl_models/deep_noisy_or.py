"""Stacked noisy-OR layers: the causes of the items have causes of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppl_models.data.items import OpenItems
from ppl_models.data.tables import as_items
from ppl_models.descriptions.noisy_or import FLOOR, log_expm1, weight_of_failure, weight_of_leak
from ppl_models.parts.distributions import BinaryVector
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.responses import Bernoulli
from ppl_models.parts.validation import check_numbers, check_size, numbers_like, plain_fields


@dataclass(frozen=True)
class DeepNoisyOr(OpenItems):
    r"""Noisy-OR network with D layers of binary latents.

    Source: J. Pearl (1988), Probabilistic Reasoning in Intelligent Systems.

    For each row, with :math:`h_0` the items,

    .. math::
        h_{D,i} &\sim \mathrm{Bernoulli}(\pi_i) \\
        P(h_{d-1,j} = 0 \mid h_d) &= (1 - l_{d,j}) \prod_i f_{d,ij}^{h_{d,i}}, \quad d = D, \dots, 1

    Sites: ``prior`` :math:`\pi` (K_D,); for each layer d, counted from the items, ``failure_d``
    (K_d, K_{d-1}) and ``leak_d`` (K_{d-1},), with K_0 = J; latent ``causes_d`` (K_d,); observed
    ``items`` (J,). The rows are the plate ``units``. A missing entry (NaN) drops out of its row
    exactly. ``fit`` without a method is exact EM, which sums over the configurations of two
    neighbouring layers at a time: up to about 10 latents a layer. One layer is
    :class:`ppl_models.NoisyOr`, which has engines of its own.

    Args:
        num_items: J; None for as many as the data have, read in a fit.
        latent_sizes: (K_1, ..., K_D), bottom-up.
        concentration: (a, b) of the Beta priors of every parameter; (1, 1) is flat.

    Raises:
        ValueError: for sizes that are not positive integers, no layer, or a concentration that is
            not two positive numbers.
    """

    num_items: int | None = None
    latent_sizes: tuple[int, ...] = ()
    concentration: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        plain_fields(self)
        self._settle()
        if not isinstance(self.latent_sizes, tuple | list) or not self.latent_sizes:
            raise ValueError(
                "DeepNoisyOr: latent_sizes must be a tuple such as (6, 2), got"
                f" {self.latent_sizes!r}"
            )
        for size in self.latent_sizes:
            check_size("DeepNoisyOr", "latent_sizes", size)
        object.__setattr__(self, "latent_sizes", tuple(self.latent_sizes))
        pair = check_numbers(
            "DeepNoisyOr",
            "concentration",
            self.concentration,
            "be two positive numbers (a, b)",
            2,
            above=0,
        )
        object.__setattr__(self, "concentration", pair)

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Named dims of every site, without the rows."""
        depth = len(self.latent_sizes)
        dims: dict[str, tuple[str, ...]] = {"prior": (f"latent_{depth}",), "items": ("item",)}
        for d in range(1, depth + 1):
            below = f"latent_{d - 1}" if d > 1 else "item"
            dims |= {
                f"failure_{d}": (f"latent_{d}", below),
                f"leak_{d}": (below,),
                f"causes_{d}": (f"latent_{d}",),
            }
        return dims

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as a tensor (N, J) of 0, 1 and NaN, and the item names."""
        return as_items(data, self._width, Bernoulli(), for_fit)

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some."""
        kind = numbers_like("DeepNoisyOr", data, num_rows)
        a, b = (torch.tensor(value, **kind) for value in self.concentration)

        def beta(name: str, *shape: int) -> Tensor:
            return pyro.sample(name, dist.Beta(a, b).expand(shape).to_event(len(shape)))

        sizes, depth = (self._width, *self.latent_sizes), len(self.latent_sizes)
        prior = beta("prior", sizes[-1]).clamp(FLOOR, 1 - FLOOR)
        failure = {
            d: weight_of_failure(beta(f"failure_{d}", sizes[d], sizes[d - 1]))
            for d in range(depth, 0, -1)
        }
        leak = {d: weight_of_leak(beta(f"leak_{d}", sizes[d - 1])) for d in range(depth, 0, -1)}
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            logits = prior.log() - (-prior).log1p()
            for d in range(depth, 0, -1):
                causes = pyro.sample(
                    f"causes_{d}", BinaryVector(logits), infer={"enumerate": "parallel"}
                )
                logits = log_expm1((causes.unsqueeze(-2) @ failure[d]).squeeze(-2) + leak[d])
            return pyro.sample("items", ItemResponse(Bernoulli(), logits), obs=data)
