"""Matrix factorization: every row is a sum of a few signatures, each in some amount."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from ppl_models.data.frames import row_of
from ppl_models.data.items import OpenItems
from ppl_models.data.sparse import SparseTable, as_sparse_counts, is_sparse, kind_of
from ppl_models.data.tables import as_items, check_complete
from ppl_models.descriptions.components import FactorizationDescription
from ppl_models.parts.distributions import Flat
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.responses import Normal, Poisson
from ppl_models.parts.surface import Renamed
from ppl_models.parts.validation import (
    check_flag,
    check_number,
    check_numbers,
    check_size,
    numbers_like,
    plain_fields,
)

RATE_FLOOR = 1e-12  # of an expected count
SCALE_RANGE = (1e-6, 1e6)
DISPERSION_RANGE = (1e-6, 1e3)
Variance = Literal["linear", "quadratic"]
Dims = dict[str, tuple[str, ...]]
SITE_DIMS = Dims(signatures=("component", "item"), activities=("component",), items=("item",))
VARIANCES: tuple[Variance, ...] = ("linear", "quadratic")


def check_sizes(owner: str, model: Any) -> None:
    """Check the sizes of a factorization, and its bound."""
    plain_fields(model)
    model._settle()
    check_components(owner, model.num_components)
    if model.num_items is not None and model.num_components > model.num_items:
        raise ValueError(
            f"{owner}: num_components = {model.num_components} exceeds num_items ="
            f" {model.num_items}, more than the data allow"
        )
    check_number(owner, "bound", model.bound, "be positive and finite", above=0)


def check_components(owner: str, num_components: int) -> None:
    """Check a number of components that follows the number of items, which may be left out."""
    named = f"a positive integer, as in {owner}(num_components=3)"
    wanted = named if num_components == 0 else None
    check_size(owner, "num_components", num_components, wanted=wanted)


def check_concentration(owner: str, concentration: float) -> None:
    """Check the concentration of a Dirichlet prior with a mode."""
    check_number(owner, "concentration", concentration, "be at least 1 and finite", least=1)


def _check_rows(owner: str, table: Tensor, num_components: int, of_what: str = "") -> None:
    if len(table) < num_components:
        raise ValueError(
            f"{owner}: num_components = {num_components} needs at least as many rows{of_what}, got"
            f" {len(table)}"
        )


def check_counts(
    model: Any, data: Any, for_fit: bool, empty_rows: bool = False
) -> tuple[Any, tuple[str, ...]]:
    """Check a table of counts; see :meth:`PoissonFactorization.check_data`.

    Args:
        model, data, for_fit: as there.
        empty_rows: whether rows of zeros say something of the parameters and are taken.
    """
    if is_sparse(data):
        return _check_sparse_counts(model, data, for_fit)
    # constant columns are no trouble here
    table, names = as_items(data, model._width, Poisson(), for_fit=False)
    if for_fit:
        unseen = table.isnan().all(0).nonzero().ravel().tolist()
        if unseen:
            raise ValueError(
                f"data: column {names[unseen[0]]!r} has no observed entry; drop it ({len(unseen)}"
                " such column(s))"
            )
        _check_rows(type(model).__name__, table, model.num_components)
        is_empty, why = table.nansum(-1) == 0, "holds no counts at all"
        if empty_rows:
            _check_rows(
                type(model).__name__, table[~is_empty], model.num_components, " with counts"
            )
            is_empty, why = table.isnan().all(-1), "has no observed entry"
        if which := is_empty.nonzero().ravel().tolist():
            raise ValueError(
                f"data: {row_of(data, which[0])} {why} ({len(which)} such row(s)); drop them"
            )
    return table, names


def _check_sparse_counts(model: Any, data: Any, for_fit: bool) -> tuple[Any, tuple[str, ...]]:
    """A sparse table of counts by its non-zero cells."""
    owner = type(model).__name__
    if not model.takes_sparse:
        raise ValueError(
            f"data: a dense table was expected, got {kind_of(data)}: the updates of {owner} need"
            " every cell. Give data.toarray(), or fit a PoissonFactorization, which takes sparse"
            " counts"
        )
    table, names = as_sparse_counts(data, model._width)
    if for_fit:
        empty = (table.sizes == 0).nonzero().ravel().tolist()
        num_filled = len(table) - len(empty)
        if num_filled < model.num_components:
            raise ValueError(
                f"{owner}: num_components = {model.num_components} needs at least as many rows"
                f" with counts, got {num_filled}"
            )
        if empty:
            raise ValueError(
                f"data: row {empty[0]} holds no counts at all ({len(empty)} such row(s)); drop them"
            )
    return table, names


@dataclass(frozen=True)
class PoissonFactorization(OpenItems):
    r"""Poisson factorization of counts: non-negative matrix factorization.

    Source: Lee and Seung (1999), doi:10.1038/44565.

    .. math::

        x_{nj} \sim \mathrm{Poisson}\Big(\sum_k z_{nk} \phi_{kj}\Big), \qquad \sum_j \phi_{kj} = 1

    Sites: ``signatures`` :math:`\phi` (K, J), rows on the simplex; inside the plate ``units``,
    local ``activities`` z (K,) >= 0, in counts, and observed ``items`` (J,). Priors: signatures
    Dirichlet(concentration); activities uniform on [0, bound], or Gamma. Estimates are joint
    maximum a posteriori in signatures **and** activities: ``log_likelihood`` is conditional on the
    activities, which are in ``Fit.local``. Missing entries (NaN) drop out. Fits order components by
    falling total activity. Sparse matrices of scipy are taken as they are and never made dense:
    fits, log-likelihoods of rows and activities of new rows work on their non-zero cells.

    Args:
        num_items, num_components: J and K <= J; num_items None for as many columns as the data
            have, read in a fit.
        concentration: of the Dirichlet prior, at least 1; 1 is flat.
        activity_prior: (shape >= 1, rate > 0), or None for flat.
        bound: largest activity under the flat prior.

    Raises:
        ValueError: for sizes that are not positive integers, K > J, or settings out of range.
    """

    takes_sparse: ClassVar[bool] = True
    num_items: int | None = None
    num_components: int = 0
    concentration: float = 1.0
    activity_prior: tuple[float, float] | None = None
    bound: float = 1e9
    site_dims = SITE_DIMS

    def __post_init__(self) -> None:
        check_sizes("PoissonFactorization", self)
        check_concentration("PoissonFactorization", self.concentration)
        if self.activity_prior is not None:
            must = "be (shape >= 1, rate > 0) or None"
            prior = check_numbers(
                "PoissonFactorization", "activity_prior", self.activity_prior, must, 2, above=0
            )
            check_number("PoissonFactorization", "activity_prior", prior[0], must, least=1)
            object.__setattr__(self, "activity_prior", prior)

    def factorization(self) -> FactorizationDescription:
        """Description of the factorization for engines."""
        return FactorizationDescription(
            self._width,
            self.num_components,
            True,
            True,
            self.concentration,
            self.activity_prior,
            self.bound,
        )

    laws = Renamed("candidate_distributions")

    def candidate_distributions(self) -> tuple[Any, ...]:
        """Candidate distributions for order selection; with informative priors this one alone."""
        if self.concentration != 1 or self.activity_prior is not None:
            return (self,)
        return count_distributions(self._width, self.num_components, self.bound)

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Any, tuple[str, ...]]:
        """Data as a tensor (N, J) of counts without empty rows, and the item names.

        A sparse matrix of scipy becomes a :class:`~ppl_models.data.sparse.SparseTable`.
        """
        return check_counts(self, data, for_fit)

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some."""
        data = data.dense() if isinstance(data, SparseTable) else data
        kind = numbers_like("PoissonFactorization", data, num_rows)
        zero = torch.zeros((), **kind)
        concentration = zero.expand(self._width) + self.concentration
        signatures = pyro.sample(
            "signatures", dist.Dirichlet(concentration).expand([self.num_components]).to_event(1)
        )
        flat = Flat(zero, zero + self.bound)
        shape, rate = self.activity_prior or (1.0, 1.0)
        prior = flat if self.activity_prior is None else dist.Gamma(zero + shape, zero + rate)
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            activities = pyro.sample("activities", prior.expand([self.num_components]).to_event(1))
            rates = (activities.unsqueeze(-2) @ signatures).squeeze(-2).clamp(min=RATE_FLOOR)
            return pyro.sample("items", ItemResponse(Poisson(), rates.log()), obs=data)


def count_distributions(num_items: int, num_components: int, bound: float) -> tuple[Any, ...]:
    """Factorizations of counts with flat priors: Poisson, and two that contain it."""
    dispersed = (
        NegativeBinomialFactorization(num_items, num_components, bound, kind) for kind in VARIANCES
    )
    return (PoissonFactorization(num_items, num_components, bound=bound), *dispersed)


@dataclass(frozen=True)
class NegativeBinomialFactorization(OpenItems):
    r"""Negative binomial factorization of overdispersed counts.

    Source: Gouvert, Oberlin and Fevotte (2020), doi:10.1109/LSP.2020.2991613.

    .. math::

        x_{nj} \sim \mathrm{NB}, \quad E\, x_{nj} = \mu_{nj} = \sum_k z_{nk} \phi_{kj}, \qquad
        \sum_j \phi_{kj} = 1, \qquad
              \mathrm{Var}(x_{nj}) = \begin{cases} \mu_{nj} + \delta \mu_{nj}^2 & \text{quadratic
              (NB2)} \\
              (1 + \delta) \mu_{nj} & \text{linear (NB1)} \end{cases}

    Quadratic: Poisson counts whose means carry a factor :math:`\mathrm{Gamma}(1/\delta, 1/\delta)`
    in every cell. Linear: counts that come in clumps, of size :math:`\mu / \delta`, which are
    negative binomial in every component too: the parts of a count are NB with means :math:`z_{nk}
    \phi_{kj}` and the same :math:`\delta`, and independent. Sites and conventions are those of
    :class:`PoissonFactorization` with flat priors, and ``dispersion`` :math:`\delta` (1,), flat on
    [1e-6, 1e3]: near zero the counts are Poisson. Missing entries (NaN) drop out. Activities are
    fitted as well, K for the J cells of a row, so the estimate of the dispersion is low, the more
    so the fewer columns there are.

    Args:
        num_items, num_components: J and K <= J; num_items None for as many columns as the data
            have, read in a fit.
        bound: largest activity.
        variance: "quadratic" or "linear".

    Raises:
        ValueError: for sizes that are not positive integers, K > J, another variance, or a bound
            that is not positive.
    """

    num_items: int | None = None
    num_components: int = 0
    bound: float = 1e9
    variance: Variance = "quadratic"
    site_dims = SITE_DIMS | Dims(dispersion=("one",))

    def __post_init__(self) -> None:
        check_sizes("NegativeBinomialFactorization", self)
        if self.variance not in VARIANCES:
            raise ValueError(
                "NegativeBinomialFactorization: variance must be 'quadratic' or 'linear', got"
                f" {self.variance!r}"
            )

    def factorization(self) -> FactorizationDescription:
        """Description of the factorization for engines."""
        return FactorizationDescription(
            self._width, self.num_components, True, True, 1.0, None, self.bound, self.variance
        )

    laws = Renamed("candidate_distributions")

    def candidate_distributions(self) -> tuple[Any, ...]:
        """Candidate distributions for the choice of the number of components."""
        return count_distributions(self._width, self.num_components, self.bound)

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """As :meth:`PoissonFactorization.check_data`."""
        return check_counts(self, data, for_fit)

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some."""
        kind = numbers_like("NegativeBinomialFactorization", data, num_rows)
        zero = torch.zeros((), **kind)
        flat = (
            dist.Dirichlet((zero + 1).expand(self._width)).expand([self.num_components]).to_event(1)
        )
        signatures = pyro.sample("signatures", flat)
        low, high = (zero + v for v in DISPERSION_RANGE)
        dispersion = pyro.sample("dispersion", Flat(low, high).expand([1]).to_event(1))
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            activities = pyro.sample(
                "activities",
                Flat(zero, zero + self.bound).expand([self.num_components]).to_event(1),
            )
            rates = (activities.unsqueeze(-2) @ signatures).squeeze(-2).clamp(min=RATE_FLOOR)
            size = dispersion.reciprocal().expand(rates.shape)
            if self.variance == "quadratic":
                distribution = dist.GammaPoisson(size, size / rates)
            else:
                distribution = dist.GammaPoisson(rates * size, size)
            if data is None:
                return pyro.sample("items", distribution.to_event(1))
            return pyro.sample(
                "items", distribution.mask(~data.isnan()).to_event(1), obs=data.nan_to_num()
            )


@dataclass(frozen=True)
class GaussianFactorization(OpenItems):
    r"""Gaussian factorization with one noise scale.

    Source where non-negative: Cichocki and Phan (2009), doi:10.1587/transfun.E92.A.708.

    .. math:: x_{nj} \sim N\Big(\sum_k z_{nk} \phi_{kj}, \sigma^2\Big)

    Sites: ``signatures`` :math:`\phi` (K, J), of length 1 after a fit; ``scales`` :math:`\sigma`
    (1,), the standard deviation of the **sum** (each component is held to carry an equal share
    :math:`\sigma^2 / K` of the variance, which the likelihood cannot tell); in the plate ``units``,
    local ``activities`` z (K,) and observed ``items`` (J,). Priors are flat on intervals, so the
    estimate is least squares: a truncated singular value decomposition, or alternating non-negative
    updates. No intercept: centre the columns where that is meant. Missing entries are refused.

    Args:
        num_items, num_components: J and K <= J; num_items None for as many columns as the data
            have, read in a fit.
        nonnegative: whether signatures and activities must not fall below zero.
        bound: largest size of an activity or an entry of a signature.

    Raises:
        ValueError: for sizes that are not positive integers, K > J, or a bound that is not
            positive.
    """

    num_items: int | None = None
    num_components: int = 0
    nonnegative: bool = False
    bound: float = 1e9
    site_dims = SITE_DIMS | Dims(scales=("scale",))

    def __post_init__(self) -> None:
        check_sizes("GaussianFactorization", self)
        check_flag("GaussianFactorization", "nonnegative", self.nonnegative)

    def factorization(self) -> FactorizationDescription:
        """Description of the factorization for engines."""
        return FactorizationDescription(
            self._width, self.num_components, False, self.nonnegative, 1.0, None, self.bound
        )

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as a complete tensor (N, J), and the item names.

        Negative values are refused where the factors are non-negative.
        """
        table, names = as_items(data, self._width, Normal(), for_fit=False)
        check_complete("GaussianFactorization", table, names, data)
        if for_fit:
            _check_rows("GaussianFactorization", table, self.num_components)
            if self.nonnegative and (table.sum(0) <= 0).all():
                raise ValueError("data: nonnegative=True, but every column sums to zero or less")
        return table, names

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some."""
        kind = numbers_like("GaussianFactorization", data, num_rows)
        zero = torch.zeros((), **kind)
        flat = Flat(zero if self.nonnegative else zero - self.bound, zero + self.bound)
        shape = [self.num_components, self._width]
        signatures = pyro.sample("signatures", flat.expand(shape).to_event(2))
        scales = pyro.sample(
            "scales", Flat(zero + SCALE_RANGE[0], zero + SCALE_RANGE[1]).expand([1]).to_event(1)
        )
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            activities = pyro.sample("activities", flat.expand(shape[:1]).to_event(1))
            means = (activities.unsqueeze(-2) @ signatures).squeeze(-2)
            return pyro.sample(
                "items",
                ItemResponse(Normal(), means, scales.square().expand(means.shape)),
                obs=data,
            )
