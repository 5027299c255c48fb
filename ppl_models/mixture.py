"""Finite mixtures: one categorical latent a row, components of any distribution.

Components come from a response family, or are a distribution of the whole row.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.ops.indexing import Vindex
from torch import Tensor

from ppl_models.data.frames import row_of
from ppl_models.data.items import ByColumn, OpenItems, refuse_few_rows
from ppl_models.data.tables import as_items, check_reach
from ppl_models.descriptions.components import (
    MixtureComponents,
    check_settings,
    component_dims,
    distribution_given,
    draw_components,
    num_own_dims,
)
from ppl_models.descriptions.covariates import ClassCoefficients, Covariates, covariates_given
from ppl_models.descriptions.row_distributions import (
    MultivariateNormal,
    RowDistribution,
    wider_distributions,
)
from ppl_models.descriptions.units import OWN_BOUND, Units
from ppl_models.parts.responses import Normal, ResponseFamily
from ppl_models.parts.surface import Renamed
from ppl_models.parts.validation import check_size, numbers_like, plain_fields

LEAST_TOGETHER = 2  # rows that have both of two columns, for their covariance


@dataclass(frozen=True)
class Mixture(OpenItems):
    r"""Finite mixture of K components.

    Source: Dempster, Laird and Rubin (1977), doi:10.1111/j.2517-6161.1977.tb01600.x.

    .. math::

        c_n \sim \mathrm{Categorical}(w), \qquad x_{nj} \mid c_n = k \sim F_j(\eta_{kj},
        \gamma_{kj})

    independently over items j, or rows :math:`x_n \mid c_n = k` of a distribution of their own:
    :class:`MultivariateNormal`, :class:`MultivariateT`, :class:`SkewNormal`.

    With ``covariates`` z, columns of the data beside the items, the chances of the components
    depend on them: :math:`c_n \sim \mathrm{Categorical}(\mathrm{softmax}_k(b_{k0} + b_k \cdot
    z_n))` with :math:`b_0 = 0`, as :class:`~ppl_models.Covariates` says. In the place of the
    weights there are then ``coefficients`` b (K - 1, Q), log-odds against component 0, an intercept
    and one for each term. Given the component, the items do not depend on the covariates.

    Sites: ``weights`` w (K,), latent ``assignments`` c () in {0, ..., K-1}, observed ``items``
    (J,), in the plate ``units`` of the rows. A response family adds ``predictors`` :math:`\eta` (K,
    J), natural parameters (log-odds, log mean, mean), and, for Normal, LogNormal and
    NegativeBinomial items, ``dispersion`` :math:`\gamma` (K, number of such items), variances, or
    sizes. Categorical items have ``probabilities`` (K, sum of their numbers of categories), item
    after item, and no predictors: classes of such items are a latent class model (Goodman 1974,
    doi:10.1093/biomet/61.2.215). Ordinal items under a link have locations among the
    ``predictors``, and ``thresholds`` (sum of C_j - 2), gaps or steps that all classes share
    (:class:`~ppl_models.Ordinal`), uniform on their interval. Distributions of whole rows add their
    own:
    ``means`` or ``locations`` (K, J), ``precisions`` (K, J, J), ``freedom`` (K,), ``skews`` (K, J).

    Priors: weights Dirichlet(concentration); predictors and means uniform on an interval, and
    variances too: those of Normal items and of whole rows on [centre - 1000 width, centre + 1000
    width] and [1e-6, 1e6] squared widths, with centre and width of the column, so that a change of
    unit changes nothing else in a fit; sizes as :class:`~ppl_models.NegativeBinomial` says,
    probabilities as :class:`~ppl_models.Categorical` does; precisions as
    :class:`MultivariateNormal` says, and what else distributions of whole rows have as they say.
    Fits name components in the order of falling weight; with covariates, of falling chance where
    every term is at its mean, so that the reference is the component that is most probable there.
    Missing entries (NaN) are marginalised for response families and :class:`MultivariateNormal`,
    and refused for other distributions of whole rows and in covariates.

    Data: (N, J); with covariates a data frame that has them among its columns, wherever they stand,
    or an array (N, J + P) with the covariates last.

    Args:
        num_components: K.
        component: a response family, or a distribution of the whole row; left out, what
            :func:`~ppl_models.items_of` reads off the data, or Normal() where num_items is given.
        num_items: J; None for as many as the data have, read in a fit, or as a component speaks of
            that knows its items, such as ``Categorical.from_frame(data)`` or ``Blocks(...)``.
        concentration: at least 1; 1 is flat.
        bound: half-width of the interval of all predictors or means about zero, in units of the
            data as they stand; each family's own if None.
        variance_floor: EM keeps the variances of Normal and LogNormal items at or above this share
            of the column's variance (or of the variance that its middle half suggests, if that is
            smaller), for the likelihood has no maximum where a component may shrink onto equal
            values (N. E. Day 1969, doi:10.1093/biomet/56.3.463). A component that ends there is no
            proper optimum, and a fit says so; groups that lie more than thirty times their width
            apart need a smaller share. 0 leaves only the interval.
        covariates: names of the columns that the components depend on, such as ("age", "income");
            or a frame of them; texts are categories, compared with the first in the alphabet
            (:class:`~ppl_models.Covariates`). With one component they change nothing.
        units: centre and width of every item, J pairs, in which the priors above are said; a fit
            takes them from its data, and its model holds them. Without a fit they are 0 and 1.

    Raises:
        ValueError: for sizes that are not positive integers, another component, or settings out of
            range.
    """

    num_components: int
    component: ResponseFamily | RowDistribution = ByColumn()
    num_items: int | None = None
    concentration: float = 1.001
    bound: float | None = None
    variance_floor: float = 1e-3
    covariates: Covariates | tuple[str, ...] | str | None = None
    units: Units | None = field(default=None, repr=False, compare=False)
    usual = {"component": Normal()}

    def __post_init__(self) -> None:
        plain_fields(self)
        check_size("Mixture", "num_components", self.num_components)
        if not isinstance(self.component, ResponseFamily | RowDistribution):
            raise ValueError(
                "Mixture: component must be a response family such as Normal(), Poisson(),"
                " Bernoulli() or Categorical.from_frame(data), MultivariateNormal(),"
                f" MultivariateT() or SkewNormal(), got {self.component!r}"
            )
        self._settle()
        check_settings("Mixture", self, self.component)
        object.__setattr__(self, "covariates", covariates_given("Mixture", self.covariates))

    @property
    def _given(self) -> Covariates | None:
        return self.covariates if isinstance(self.covariates, Covariates) else None

    @property
    def _family(self) -> ResponseFamily:
        return self.component if isinstance(self.component, ResponseFamily) else Normal()

    def components(self) -> MixtureComponents:
        """Description of the components for engines."""
        return self._components

    @cached_property
    def _components(self) -> MixtureComponents:
        return MixtureComponents(
            self.num_components,
            self._width,
            self.component,
            self.concentration,
            self.bound,
            self.variance_floor,
            self.units,
            self._given,
        )

    def for_data(self, data: Any) -> Mixture:
        """Model with what it leaves open read off the data; a table on its side is refused."""
        if self.waits_for_data:
            refuse_few_rows(self._items_among(data), self.num_components, "transpose it, data.T")
        return super().for_data(data)

    laws = Renamed("candidate_distributions")

    def candidate_distributions(self) -> tuple[Mixture, ...]:
        """Candidate distributions for order selection, each nested in the next."""
        candidates = wider_distributions(self.component, self._width)
        return tuple(replace(self, component=component) for component in candidates)

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Named dims of every parameter, latent and observed site, without the rows."""
        dims: dict[str, tuple[str, ...]] = {
            "weights": ("component",),
            "assignments": ("component",),
            "items": ("item",),
        }
        if self._given is not None:
            dims |= {"coefficients": ("other_component", "term"), "items": ("column",)}
        return dims | component_dims(self.components())

    @property
    def entry_names(self) -> dict[str, tuple[str, ...]]:
        """Names of the entries along the dims that have names of their own."""
        if self._given is None:
            return {}
        return {
            "other_component": tuple(map(str, range(1, self.num_components))),
            "term": self._given.terms,
        }

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as a tensor (N, J), with covariates (N, J + P), and the column names."""
        if self._given is None:
            return self._check_items(data, for_fit)
        return self._given.check_beside(data, self._width, self._check_items, for_fit)

    def _check_items(self, data: Any, for_fit: bool) -> tuple[Tensor, tuple[str, ...]]:
        table, names = as_items(data, self._width, self._family, for_fit)
        if for_fit and self.bound is not None:
            check_reach(table, names, self._family, self.bound, OWN_BOUND)
        if for_fit and isinstance(self.component, RowDistribution):
            self.component.check_rows(len(table), self._width, self.num_components, "component")
        if isinstance(self.component, MultivariateNormal):
            if for_fit and table.isnan().any():
                _check_pairs(table, names)
        elif isinstance(self.component, RowDistribution) and table.isnan().any():
            row, column = (int(i) for i in table.isnan().nonzero()[0])
            raise ValueError(
                f"data: {type(self.component).__name__} components need complete rows, but"
                f" {row_of(data, row)}, column {names[column]!r} is missing; drop or fill such"
                " rows, or use component=MultivariateNormal() or Normal(), which marginalise them"
            )
        if for_fit and len(table) < self.num_components:
            raise ValueError(
                f"data: at least num_components = {self.num_components} rows were expected, got"
                f" {len(table)}"
            )
        return table, names

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some.

        With covariates data are (N, J + P), and needed. Of a mini-batch ``num_rows`` is the size of
        the whole data set, to which its log-density is scaled.
        """
        kind = numbers_like("Mixture", data, num_rows)
        zero = torch.zeros((), **kind)
        about = self.components()
        classes, items = (
            self._assignments(zero, data),
            data if data is None else data[..., : self._width],
        )
        own = draw_components(about, zero)
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            c = pyro.sample("assignments", classes, infer={"enumerate": "parallel"})
            picked = {
                name: Vindex(value)[(..., c, *(slice(None),) * (num_own_dims(about, name) - 1))]
                for name, value in own.items()
            }
            return pyro.sample("items", distribution_given(about, picked), obs=items)

    def _assignments(self, zero: Tensor, data: Tensor | None) -> Any:
        """Distribution of the components of the rows."""
        if self._given is None or self.num_components == 1:
            return dist.Categorical(
                pyro.sample(
                    "weights", dist.Dirichlet(zero.expand(self.num_components) + self.concentration)
                )
            )
        columns = self._given.columns("Mixture", data, self._width)
        prior = ClassCoefficients(self._given, self.num_components, zero)
        coefficients = pyro.sample("coefficients", prior)
        return dist.Categorical(logits=self._given.logits(columns, coefficients))


def _check_pairs(table: Tensor, names: tuple[str, ...]) -> None:
    """Check that every two columns of a table with gaps are observed together in some rows."""
    seen = (~table.isnan()).double()
    together = seen.mT @ seen
    if bool((seen == 0).any() & (together < LEAST_TOGETHER).any()):
        one, other = (together < LEAST_TOGETHER).nonzero()[0].tolist()
        raise ValueError(
            f"data: columns {names[one]!r} and {names[other]!r} are both there in"
            f" {int(together[one, other])} rows, too few to say how they vary together: leave one"
            " of them out, or use component=Normal(), whose columns are independent inside the"
            " components"
        )
