"""Row distributions of mixture components: parameters, priors, and densities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Distribution, constraints

from ppl_models.parts.covariances import (
    FREE_OF_UNITS,
    FULL,
    CovarianceFamily,
    FamilyPrecisions,
    letters_of,
)
from ppl_models.parts.distributions import Flat, broadcast_shapes
from ppl_models.parts.precisions import Precision
from ppl_models.parts.responses import NegativeBinomial, Normal, Poisson, ResponseFamily
from ppl_models.parts.validation import check_number, plain_fields

Dims = dict[str, tuple[str, ...]]
LEAST_WIDTH = 1e-3  # of the data's variance in some direction: a covariance below it has collapsed
FREEDOM = (2.05, 200.0)  # degrees of freedom: a variance below, a normal distribution above


@dataclass(frozen=True)
class RowDistribution(ABC):
    r"""Whole-row distribution with a precision matrix for each component.

    Precisions have a Wishart prior with J + 1 degrees of freedom and inverse scale :math:`\epsilon
    D`, D the diagonal of the items' squared widths, so the estimate of a covariance is :math:`(S_k
    + \epsilon D) / N_k` with :math:`S_k` the scatter.

    The scatter of N rows about a mean has rank N - 1 at most. Where there are no more rows than
    columns, every covariance is in some direction what the prior makes it, :math:`\epsilon / N_k`
    squared widths, and without the prior the likelihood has no maximum. A fit refuses such a table,
    but where the prior is no less than a thousandth there, :math:`\epsilon \ge N / 1000`: the line
    below which fits call a covariance collapsed.

    Args:
        regularization: :math:`\epsilon`, in squared widths of the items.

    Raises:
        ValueError: if it is not positive.
    """

    regularization: float = 1e-6

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number(
            type(self).__name__,
            "regularization",
            self.regularization,
            "be positive and finite",
            above=0,
        )

    @property
    @abstractmethod
    def site_dims(self) -> Dims:
        """Named dims of every parameter."""

    @property
    def has_one_unit(self) -> bool:
        """Tell whether all columns are measured in one unit, which a change of some would alter."""
        return False

    @abstractmethod
    def draw(
        self, num_components: int, ends: tuple[Tensor, Tensor], widths: Tensor
    ) -> dict[str, Tensor]:
        """Sample sites of the parameters, (K, ...).

        Args:
            ends: of the intervals of means, each (J,), of the program's dtype and device.
            widths: units of the items, (J,).
        """

    @abstractmethod
    def given(self, picked: Mapping[str, Tensor]) -> dist.TorchDistribution:
        r"""Distribution of a row given its component's parameters, (\*batch, ...)."""

    def is_determined(self, num_rows: int, num_items: int) -> bool:
        """Tell whether rows or prior give the covariances some width in every direction."""
        return num_rows > num_items or self.regularization >= LEAST_WIDTH * num_rows

    def check_rows(self, num_rows: int, num_items: int, num_components: int, argument: str) -> None:
        """Refuse a table whose rows do not determine a covariance, before any work.

        Args:
            num_rows: with entries; num_items, num_components: J and K; argument: of the model, that
                takes this distribution.

        Raises:
            ValueError: naming the sizes, the number of parameters, and models that need fewer.
        """
        if self.is_determined(num_rows, num_items):
            return
        name, number = type(self).__name__, num_items * (num_items + 1) // 2
        raise ValueError(
            f"data: {name} needs more rows than columns, got {num_rows:,} rows and {num_items:,}"
            f" columns: each of {num_components} covariances has {number:,} parameters, which so"
            " few rows do not determine, so that the likelihood has no maximum. Take"
            f" {argument}=Normal(), whose columns are independent; FactorAnalysis, whose covariance"
            " has few parameters a column; fewer columns; or a prior that holds the covariances"
            f" open, {name}(regularization={LEAST_WIDTH * num_rows:g}) or more"
        )

    def _precisions(self, num_components: int, widths: Tensor) -> Tensor:
        inverse_scale = torch.diag(self.regularization * widths.square())
        wishart = Precision(len(widths) + 1.0, precision_matrix=inverse_scale)
        return pyro.sample("precisions", wishart.expand([num_components]).to_event(1))


def _flat(name: str, num_components: int, ends: tuple[Tensor, Tensor]) -> Tensor:
    return pyro.sample(name, Flat(*ends).expand([num_components, len(ends[0])]).to_event(2))


@dataclass(frozen=True)
class MultivariateNormal(RowDistribution):
    r"""Multivariate normal components :math:`N(\mu_k, \Lambda_k^{-1})`.

    Sites ``means`` (K, J), ``precisions`` (K, J, J).

    Precisions have a Wishart prior with J + 1 degrees of freedom and inverse scale :math:`\epsilon
    D`, D the diagonal of the items' squared widths (``units`` of the model), so the estimate of a
    covariance is :math:`(S_k + \epsilon D) / N_k` with :math:`S_k` the scatter about the mean.

    Missing entries of a row are integrated out, which is right where they are missing at random
    given those that are there (Ghahramani and Jordan 1994, Supervised learning from incomplete data
    via an EM approach).

    Covariances are full, or of one of the families of Celeux and Govaert (1995,
    doi:10.1016/0031-3203(94)00125-6),

    .. math:: \Lambda_k^{-1} = v_k D_k \, \mathrm{diag}(a_k) D_k^\top, \qquad
        \prod_j a_{kj} = 1,

    with volume v, shape a and orientation D, an orthogonal matrix: three letters say of each
    whether it is equal in all components (E), varies (V), or is that of the identity (I). The prior
    is then :math:`\exp\{-\tfrac{1}{2} \epsilon \sum_k \mathrm{tr}(D \Lambda_k)\}`, flat in log
    volumes, log shapes and angles otherwise. Families other than EEI, VEI, EVI, VVI, EEE, VEE, EVV
    and VVV depend on the units of the columns: scale these first if they have no unit in common.

    Args:
        regularization: :math:`\epsilon`, in squared widths of the items.
        covariance: "full", "tied" (one for all components), "diagonal", "spherical", or letters of
            volume, shape and orientation: EII, VII, EEI, VEI, EVI, VVI, EEE, VEE, EVE, VVE, EEV,
            VEV, EVV or VVV.

    Raises:
        ValueError: if the first is not positive, or for another covariance.
    """

    covariance: str = field(default="full", metadata={"since": "0.2"})

    site_dims = Dims(means=("component", "item"), precisions=("component", "item", "item_2"))

    def __post_init__(self) -> None:
        super().__post_init__()
        letters_of("MultivariateNormal", self.covariance)

    @property
    def has_one_unit(self) -> bool:
        return letters_of("MultivariateNormal", self.covariance) not in FREE_OF_UNITS

    def family(self, num_components: int, num_items: int) -> CovarianceFamily | None:
        """Family of the covariances, None for full ones."""
        letters = letters_of("MultivariateNormal", self.covariance)
        if letters == FULL:
            return None
        return CovarianceFamily(letters, num_components, num_items)

    def draw(
        self, num_components: int, ends: tuple[Tensor, Tensor], widths: Tensor
    ) -> dict[str, Tensor]:
        means = _flat("means", num_components, ends)
        family = self.family(num_components, len(widths))
        if family is None:
            return {"means": means, "precisions": self._precisions(num_components, widths)}
        prior = FamilyPrecisions(family, self.regularization * widths.square())
        return {"means": means, "precisions": pyro.sample("precisions", prior)}

    def given(self, picked: Mapping[str, Tensor]) -> dist.TorchDistribution:
        return RowNormal(picked["means"], precision_matrix=picked["precisions"])


@dataclass(frozen=True)
class MultivariateT(RowDistribution):
    r"""Multivariate Student t components, for groups with heavy tails.

    Source: Peel and McLachlan (2000), doi:10.1023/A:1008981510081.

    .. math::

        p(x \mid k) \propto |\Lambda_k|^{1/2} \{1 + (x - \mu_k)^\top \Lambda_k (x - \mu_k) /
        \nu_k\}^{-(\nu_k + J) / 2}

    Sites: ``means`` :math:`\mu` (K, J); ``precisions`` :math:`\Lambda` (K, J, J), inverses of the
    scale matrices, of which a covariance is :math:`\nu / (\nu - 2)` times; ``freedom`` :math:`\nu`
    (K,), degrees of freedom, uniform on [2.05, 200]. At 200 it is a normal distribution for all
    that data can tell.

    Args:
        regularization: of the precisions, as in :class:`MultivariateNormal`, in squared widths of
            the items.

    Raises:
        ValueError: if it is not positive.
    """

    site_dims = MultivariateNormal.site_dims | Dims(freedom=("component",))

    def draw(
        self, num_components: int, ends: tuple[Tensor, Tensor], widths: Tensor
    ) -> dict[str, Tensor]:
        means = _flat("means", num_components, ends)
        precisions = self._precisions(num_components, widths)
        flat = Flat(*widths.new_tensor(FREEDOM)).expand([num_components])
        freedom = pyro.sample("freedom", flat.to_event(1))
        return {"means": means, "precisions": precisions, "freedom": freedom}

    def given(self, picked: Mapping[str, Tensor]) -> dist.TorchDistribution:
        lower = torch.linalg.cholesky(torch.linalg.inv(picked["precisions"]))
        return dist.MultivariateStudentT(picked["freedom"], picked["means"], lower)


@dataclass(frozen=True)
class SkewNormal(RowDistribution):
    r"""Multivariate skew-normal components.

    Source: Azzalini and Dalla Valle (1996), doi:10.1093/biomet/83.4.715.

    .. math:: x = \mu_k + \delta_k |u| + e, \qquad u \sim N(0, 1), \quad e \sim N(0, \Lambda_k^{-1})

    Sites: ``locations`` :math:`\mu` (K, J), which are not the means :math:`\mu + \sqrt{2/\pi}\,
    \delta`; ``skews`` :math:`\delta` (K, J); ``precisions`` :math:`\Lambda` (K, J, J). The first
    two are uniform on the mixture's interval.

    Args:
        regularization: of the precisions, as in :class:`MultivariateNormal`, in squared widths of
            the items.

    Raises:
        ValueError: if it is not positive.
    """

    site_dims = Dims(
        locations=("component", "item"),
        skews=("component", "item"),
        precisions=("component", "item", "item_2"),
    )

    def draw(
        self, num_components: int, ends: tuple[Tensor, Tensor], widths: Tensor
    ) -> dict[str, Tensor]:
        half = (ends[1] - ends[0]) / 2
        locations = _flat("locations", num_components, ends)
        skews = _flat("skews", num_components, (-half, half))
        precisions = self._precisions(num_components, widths)
        return {"locations": locations, "skews": skews, "precisions": precisions}

    def given(self, picked: Mapping[str, Tensor]) -> dist.TorchDistribution:
        lower = torch.linalg.cholesky(picked["precisions"])
        return SkewedRows(picked["locations"], picked["skews"], lower)


def wider_distributions(
    component: ResponseFamily | RowDistribution, num_items: int
) -> tuple[ResponseFamily | RowDistribution, ...]:
    """Candidate distributions that contain this one, the narrowest first."""
    if isinstance(component, RowDistribution):
        kinds = (MultivariateNormal, MultivariateT, SkewNormal)
        whole = tuple(kind(component.regularization) for kind in kinds)
        is_full = not isinstance(component, MultivariateNormal) or component == whole[0]
        return whole if is_full else (component, *whole)
    if type(component) is Normal:
        whole = (MultivariateT(), SkewNormal())
        return (component, *whole) if num_items == 1 else (component, MultivariateNormal(), *whole)
    if isinstance(component, Poisson | NegativeBinomial):
        return Poisson(), NegativeBinomial()
    return (component,)


def patterns_of(missing: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Missing patterns of bool (N, J): rows (n,) and observed entries (J,) of each."""
    kinds, which = torch.unique(missing, dim=0, return_inverse=True)
    for g, kind in enumerate(kinds):
        yield (which == g).nonzero().ravel(), ~kind


class RowNormal(dist.MultivariateNormal):
    r"""Multivariate normal that integrates out NaN entries of rows (N, J).

    As :class:`pyro.distributions.MultivariateNormal` otherwise.

    With o the entries of a row that are there, :math:`\log p(x_o) = \log N(x_o; \mu_o,
    \Sigma_{oo})`, worked out once for all rows that have the same; a row without any has
    :math:`\log 1`.

    Args:
        loc: means, (..., J).
        precision_matrix: (..., J, J).
    """

    def __init__(
        self, loc: Tensor, precision_matrix: Tensor, validate_args: bool | None = None
    ) -> None:
        # not torch's, which loads a computer algebra system to compare two shapes
        batch = broadcast_shapes(precision_matrix.shape[:-2], loc.shape[:-1])
        self.precision_matrix = precision_matrix.expand((*batch, -1, -1))
        self.loc = loc.expand((*batch, -1))
        Distribution.__init__(self, batch, loc.shape[-1:], validate_args=validate_args)
        upside_down = torch.linalg.cholesky(precision_matrix.flip(-2, -1))  # of Lambda
        inverse = upside_down.flip(-2, -1).mT
        self._unbroadcasted_scale_tril = torch.linalg.solve_triangular(
            inverse, torch.eye(loc.shape[-1]).to(inverse), upper=False
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> RowNormal:
        new: RowNormal = super().expand(
            batch_shape, self._get_checked_instance(RowNormal, _instance)
        )
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        missing = value.isnan()
        # steps of sequences are complete, or hidden by their chain
        if missing.dim() != 2 or not bool(missing.any()):
            return super().log_prob(value)
        lower = self._unbroadcasted_scale_tril
        covariance = lower @ lower.mT
        is_shared = covariance.dim() == 2 or covariance.shape[-3] == 1  # by all rows
        off = value - self.loc  # (..., N, J)
        off = off.expand(*broadcast_shapes(off.shape[:-1], covariance.shape[:-2]), off.shape[-1])
        parts, places = [], []
        for rows, seen in patterns_of(missing):
            x = off[..., rows, :][..., seen]  # (..., n, O)
            own = covariance if is_shared else covariance[..., rows, :, :]
            factor = torch.linalg.cholesky(own[..., seen, :][..., seen])
            if is_shared:
                factor = factor if factor.dim() == 2 else factor[..., 0, :, :]
                white = torch.linalg.solve_triangular(factor, x.mT, upper=False).square().sum(-2)
                volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
            else:
                white = (
                    torch.linalg.solve_triangular(factor, x.unsqueeze(-1), upper=False)
                    .squeeze(-1)
                    .square()
                    .sum(-1)
                )
                volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            constant = 0.5 * int(seen.sum()) * torch.log(off.new_tensor(2 * torch.pi))
            parts.append(-volume - white / 2 - constant)
            places.append(rows)
        return torch.cat(parts, -1)[..., torch.cat(places).argsort()]


class SkewedRows(TorchDistribution):
    r"""Skew-normal rows :math:`x = \mu + \delta |u| + e`.

    u is standard normal and :math:`e \sim N(0, \Lambda^{-1})` (Azzalini and Dalla Valle 1996).

    With :math:`M^2 = 1 / (1 + \delta^\top \Lambda \delta)` and :math:`m = M^2\, \delta^\top \Lambda
    (x - \mu)`,

    .. math::

        \log p(x) = \log 2 + \log N(x; \mu, \Lambda^{-1} + \delta \delta^\top) + \log \Phi(m / M).

    Args:
        location: mu, (\*batch, J); skew: delta, (\*batch, J).
        factor: lower triangular L of the precisions Lambda = L L^T, (\*batch, J, J).
    """

    arg_constraints = {
        "location": constraints.real_vector,
        "skew": constraints.real_vector,
        "factor": constraints.lower_cholesky,
    }
    support = constraints.real_vector

    def __init__(
        self, location: Tensor, skew: Tensor, factor: Tensor, validate_args: bool | None = None
    ) -> None:
        self.location, self.skew, self.factor = location, skew, factor
        batch = broadcast_shapes(location.shape[:-1], skew.shape[:-1], factor.shape[:-2])
        super().__init__(batch, location.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: torch.Size, _instance: Distribution | None = None) -> SkewedRows:
        new = self._get_checked_instance(SkewedRows, _instance)
        # kept unexpanded: log_prob broadcasts
        new.location, new.skew, new.factor = (self.location, self.skew, self.factor)
        super(SkewedRows, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        new._validate_args = self._validate_args
        return new

    @property
    def mean(self) -> Tensor:
        return (self.location + math.sqrt(2 / math.pi) * self.skew).expand(
            self.batch_shape + self.event_shape
        )

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.batch_shape
            u = torch.randn(shape, dtype=self.location.dtype, device=self.location.device).abs()
            noise = torch.randn(*shape, *self.event_shape, 1, dtype=u.dtype, device=u.device)
            e = torch.linalg.solve_triangular(
                self.factor.mT.expand(*shape, *self.factor.shape[-2:]), noise, upper=True
            )
            return self.location + u.unsqueeze(-1) * self.skew + e.squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = ((value - self.location).unsqueeze(-2) @ self.factor).squeeze(-2)  # L^T (x - mu)
        d = (self.skew.unsqueeze(-2) @ self.factor).squeeze(-2)
        shrink = 1 + d.square().sum(-1)  # 1 / M^2
        along = (y * d).sum(-1)
        half = self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * shrink.log()
        distance = y.square().sum(-1) - along.square() / shrink
        constant = math.log(2) - 0.5 * self.event_shape[0] * math.log(2 * math.pi)
        log_density = constant + half - distance / 2 + torch.special.log_ndtr(along / shrink.sqrt())
        return log_density.expand(broadcast_shapes(log_density.shape, self.batch_shape))
