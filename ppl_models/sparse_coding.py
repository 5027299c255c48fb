"""Sparse coding: every row is a sum of a few columns of a dictionary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from ppl_models.data.items import OpenItems
from ppl_models.data.tables import as_items, check_complete
from ppl_models.descriptions.components import DictionaryDescription
from ppl_models.parts.distributions import Flat, broadcast_shapes
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.responses import Normal
from ppl_models.parts.validation import check_number, check_size, numbers_like, plain_fields

NOISE_RANGE = (1e-6, 1e6)


class SparseCodes(TorchDistribution):
    r"""Distribution of sparse vectors: uniform k-subsets, entries uniform on [0, bound].

    The density is with respect to the k amounts on the support: :math:`1 / \big(\binom{m}{k}
    b^k\big)`.

    Args:
        num_columns, sparsity: m and k.
        bound: b, a scalar tensor that also gives dtype and device.
        batch_shape: of independent vectors.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = constraints.independent(constraints.nonnegative, 1)

    def __init__(
        self, num_columns: int, sparsity: int, bound: Tensor, batch_shape: tuple[int, ...] = ()
    ) -> None:
        self.num_columns, self.sparsity, self.bound = num_columns, sparsity, bound
        super().__init__(torch.Size(batch_shape), torch.Size((num_columns,)), validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> SparseCodes:
        return SparseCodes(self.num_columns, self.sparsity, self.bound, tuple(batch_shape))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        zeros = self.bound.new_zeros(shape)
        chosen = torch.rand_like(zeros).topk(self.sparsity, -1).indices  # a uniform subset
        return zeros.scatter(-1, chosen, self.bound * torch.rand_like(zeros[..., : self.sparsity]))

    def log_prob(self, value: Tensor) -> Tensor:
        inside = ((value >= 0) & (value <= self.bound)).all(-1) & (
            (value != 0).sum(-1) <= self.sparsity
        )
        density = (
            -math.log(math.comb(self.num_columns, self.sparsity)) - self.sparsity * self.bound.log()
        )
        return torch.where(inside, density, -torch.inf).expand(
            broadcast_shapes(inside.shape, self.batch_shape)
        )


@dataclass(frozen=True)
class SparseCoding(OpenItems):
    r"""Non-negative sparse coding.

    Source: Olshausen and Field (1997), doi:10.1016/S0042-6989(97)00169-7.

    .. math::

        x_n = \sum_i h_{ni} a_i + \epsilon_n, \quad h_n \ge 0, \quad \|h_n\|_0 \le k, \quad
        \epsilon_{nj} \sim N(0, s^2)

    Sites: ``dictionary`` A (J, m), columns of length 1 after a fit; ``noise`` s (1,), unless it is
    given; inside the plate ``units``, local ``codes`` h (m,), and observed ``items`` (J,).
    Priors: entries of the dictionary uniform on [-1, 1]; codes as :class:`SparseCodes`. Estimates
    are joint maximum a posteriori in dictionary **and** codes: ``log_likelihood`` is conditional on
    the codes, which are in ``Fit.local``. Codes of both signs are two columns, one for each sign: a
    fit whose residuals are larger than the stated noise lets them be says so. Fits order columns by
    falling total code. Missing entries are refused. ``fit`` with no method starts from fourth
    moments, which with m at most the rank of the data needs one start, and alternates exact least
    squares with small-support decoding
    (:class:`inference.structures.dictionary.alternating.AlternatingMinimization`).

    Args:
        num_items, num_columns: J and m; m may exceed J. num_items None for as many columns as the
            data have, read in a fit.
        sparsity: k, at most J and m.
        noise: s, in units of the data; None to estimate it from the residuals.
        bound: largest entry of a code, in units of the data.

    Raises:
        ValueError: for sizes that are not positive integers, k above J or m, or a noise or bound
            that is not positive.
    """

    num_items: int | None = None
    num_columns: int = 0
    sparsity: int = 0
    noise: float | None = None
    bound: float = 1e9
    site_dims = dict[str, tuple[str, ...]](
        dictionary=("item", "column"), noise=("scale",), codes=("column",), items=("item",)
    )

    def __post_init__(self) -> None:
        plain_fields(self)
        self._settle()
        check_size("SparseCoding", "num_columns", self.num_columns)
        if self.sparsity == 0:
            raise ValueError(
                "SparseCoding: sparsity, how many columns of the dictionary a row may use, was"
                f" expected, such as SparseCoding(num_columns={self.num_columns}, sparsity=1)"
            )
        check_size("SparseCoding", "sparsity", self.sparsity)
        for name in ("num_columns", "num_items"):
            if self.sparsity > (getattr(self, name) or self.sparsity):
                raise ValueError(
                    f"SparseCoding: sparsity must be at most {name} = {getattr(self, name)}, got"
                    f" {self.sparsity}"
                )
        if self.noise is not None:
            must = f"lie in [{NOISE_RANGE[0]:g}, {NOISE_RANGE[1]:g}] or be None"
            check_number(
                "SparseCoding", "noise", self.noise, must, least=NOISE_RANGE[0], most=NOISE_RANGE[1]
            )
        check_number("SparseCoding", "bound", self.bound, "be positive and finite", above=0)

    def dictionary(self) -> DictionaryDescription:
        """Description of the dictionary for engines."""
        return DictionaryDescription(
            self._width, self.num_columns, self.sparsity, self.noise, NOISE_RANGE, self.bound
        )

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as a complete tensor (N, J), and the item names."""
        # constant columns are no trouble here
        table, names = as_items(data, self._width, Normal(), for_fit=False)
        check_complete("SparseCoding", table, names, data)
        if for_fit:
            if len(table) < self.num_columns:
                raise ValueError(
                    f"data: num_columns = {self.num_columns} needs at least as many rows, got"
                    f" {len(table)}"
                )
            if not (table != 0).any():
                raise ValueError("data: every entry is zero")
        return table, names

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some."""
        kind = numbers_like("SparseCoding", data, num_rows)
        zero = torch.zeros((), **kind)
        entries = Flat(zero - 1, zero + 1).expand([self._width, self.num_columns]).to_event(2)
        dictionary = pyro.sample("dictionary", entries)
        if self.noise is None:
            noise = pyro.sample(
                "noise", Flat(zero + NOISE_RANGE[0], zero + NOISE_RANGE[1]).expand([1]).to_event(1)
            )
        else:
            noise = (zero + self.noise).expand(1)
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            codes = pyro.sample(
                "codes", SparseCodes(self.num_columns, self.sparsity, zero + self.bound)
            )
            means = (codes.unsqueeze(-2) @ dictionary.mT).squeeze(-2)
            return pyro.sample(
                "items", ItemResponse(Normal(), means, noise.square().expand(means.shape)), obs=data
            )
