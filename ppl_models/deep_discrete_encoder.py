"""Deep discrete encoders: rich data on top of a tower of binary latent layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from ppl_models.data.items import ByColumn, OpenItems
from ppl_models.data.tables import as_items, check_reach
from ppl_models.descriptions.covariate_root import CovariateRoot
from ppl_models.descriptions.covariates import Covariates, LatentCoefficients, covariates_given
from ppl_models.descriptions.layers import GeneralizedLinearLayer, PredictorPrior, RootLayer
from ppl_models.parts.categorical import Ordinal, threshold_limits
from ppl_models.parts.distributions import (
    BinaryVector,
    Dispersions,
    Flat,
    ProductEffects,
    Scattered,
)
from ppl_models.parts.item_curves import CurvedIntercepts, CurvedLoadings
from ppl_models.parts.item_response import ItemResponse, LinearPredictor
from ppl_models.parts.measurement import Additive, Bottom, ExpDINA, Layout, layout
from ppl_models.parts.monotone import MonotoneLoadings
from ppl_models.parts.penalties import Penalty, PenaltyPrior, ToBeChosen, check_penalty
from ppl_models.parts.responses import Bernoulli, ResponseFamily, sizes
from ppl_models.parts.surface import Renamed
from ppl_models.parts.validation import (
    check_flag,
    check_kind,
    check_number,
    check_size,
    numbers_like,
    plain_fields,
)

DISPERSION_RANGE = (1e-6, 1e6)  # variances; the flat prior is proper on it


@dataclass(frozen=True)
class DeepDiscreteEncoder(OpenItems):
    r"""Deep discrete encoder with D binary layers (Lee and Gu 2025, arXiv:2501.01414).

    For each row, with :math:`\sigma` the logistic function and layers numbered from the bottom,

    .. math::
        a_{D,k} &\sim \mathrm{Bernoulli}(\pi_k) \\
        a_{d,k} \mid a_{d+1} &\sim \mathrm{Bernoulli}(\sigma(b_{d+1,k} + W_{d+1,k} \cdot a_{d+1})),
        \quad d = D-1, \dots, 1 \\
        x_j \mid a_1 &\sim F_j(b_{1,j} + W_{1,j} \cdot h(a_1), \gamma_j)

    where :math:`h(a) = a`, or the products of attributes that ``bottom`` names
    (:mod:`ppl_models.parts.measurement`).

    With ``covariates`` z, columns of the data beside the items, the deepest latents depend on them,
    each by a logit of its own,

    .. math:: a_{D,k} \mid z \sim \mathrm{Bernoulli}(\sigma(\beta_{k0} + \beta_k \cdot z)),

    and in the place of the proportions there are ``coefficients`` :math:`\beta` (K_D, Q), log-odds,
    an intercept and one for each term, with the prior that :class:`~ppl_models.Covariates` says.
    Given the latents, the items do not depend on the covariates. Which value of a latent is called
    1 is a convention, and with it the sign of its coefficients: the loadings say what 1 means.

    Items that are categories, coded 0, ..., C - 1 (or by names, :class:`~ppl_models.Ordinal` and
    :class:`~ppl_models.Categorical`), have with :math:`\eta_j = b_{1,j} + W_{1,j} \cdot h(a_1)`

    .. math::
        P(x_j \ge h \mid a_1) &= \sigma(\eta_j - \tau_{jh}), \quad \tau_{j1} = 0 < \tau_{j2} < \dots
            && \text{(graded response, \texttt{Ordinal(C)})} \\
        \log \frac{P(x_j = h \mid a_1)}{P(x_j = h - 1 \mid a_1)} &= \eta_j - \tau_{jh}, \quad
        \tau_{j1} = 0
            && \text{(partial credit, \texttt{Ordinal(C, link="adjacent")})} \\
        \log \frac{P(x_j = h \mid a_1)}{P(x_j = 0 \mid a_1)} &= b_{1,jh} + W_{1,jh} \cdot h(a_1),
        \quad h = 1, \dots, C - 1
            && \text{(\texttt{Categorical(C)})}

    (F. Samejima 1969, doi:10.1007/BF03372160; G. N. Masters 1982, doi:10.1007/BF02296272). An
    ordinal item has one loading on a latent, and larger predictors mean larger answers; its
    intercept is the log-odds of leaving the lowest category where all latents are 0
    (:meth:`category_boundaries` has C - 1 thresholds in the place of intercept and gaps). An item
    without an order has C - 1 loadings on a latent, against its first category. Its distribution
    changes with the latent as soon as one of them differs from zero: an edge of a graph is that of
    the item, and frees all of them; a penalty is the sum over single loadings, and which category
    is the first matters to it, not to a fit without one.

    Sites: ``proportions`` :math:`\pi` (K_D,), ``loadings_d`` :math:`W_d` (K_{d-1}, K_d),
    ``intercepts_d`` :math:`b_d` (K_{d-1},), ``dispersion`` :math:`\gamma` (number of Normal,
    LogNormal or NegativeBinomial items; variances, or sizes), ``thresholds`` (sum of C_j - 2 over
    ordinal items; steps :math:`\tau_{jh}`, h = 2, 3, ..., under "adjacent", gaps :math:`\tau_{jh} -
    \tau_{j,h-1}` under "cumulative"), latents ``latents_d`` (K_d,) in {0, 1}, observed ``items``
    (J,), with K_0 = J (an item without an order counts C - 1 times), all inside the plate ``units``
    of the rows. With an :class:`~ppl_models.parts.measurement.ExpDINA`, ``ExpDINO`` or ``ExpGDM``
    bottom ``loadings_1`` is (J, T), a column a product that some item uses, zero where an item does
    not use it.

    Priors: proportions uniform, dispersion uniform on [1e-6, 1e6], gaps on [1e-4, 30], steps on
    [-15, 15]. Loadings and intercepts have a weak normal prior, which keeps them finite where the
    data separate (an item that is never 1 with a latent on has no finite maximum-likelihood
    estimate) and says next to nothing elsewhere:

    .. math::

        W_{d,jk} \sim N(0, u_j^2), \qquad b_{d,j} \mid W_d \sim N(-\tfrac{1}{2} \textstyle\sum_k
        W_{d,jk}, s_j^2),

    that is, a latent changes the predictor by an amount of about :math:`u_j`, and the predictor of
    a random configuration lies within about :math:`s_j` of zero (with products:
    :class:`~ppl_models.descriptions.layers.PredictorPrior`). It does not depend on how latents are
    named. For log-odds and log means u = 4 and s = 5. A standard deviation of 4 has the precision
    1/16, which is the information of one row about an effect where the item is a fair coin and the
    latent too (a unit-information prior: R. E. Kass and L. Wasserman 1995,
    doi:10.1080/01621459.1995.10476592); the level is freer, for items may be rare. Normal and
    LogNormal items, whose unit is not known and whose estimates are finite anyway, have u = 20,000
    and s = 10,000, which shrinks by less than a hundred-thousandth. With a ``bound`` the prior of
    intercepts and loadings is flat on [-bound, bound] instead. A ``penalty`` multiplies the prior
    of the loadings by exp(-penalty); the MAP estimate is then the penalised maximum-likelihood
    estimate.

    Args:
        num_items: J, number of observed columns; None for as many as the data have, read in a fit.
        latent_sizes: (K_1, ..., K_D), bottom-up and falling, K_1 <= J.
        response: family of the items; :class:`~ppl_models.Blocks` joins several.
            ``Ordinal(C)`` without a link is taken as ``Ordinal(C, link="cumulative")``. Left out,
            what :func:`~ppl_models.items_of` reads off the data, or Bernoulli() where num_items is
            given.
        penalty: sparsity penalty of all loadings, on the scale of the total log-likelihood; None
            for none. Left open, with the graphs open too, a plain ``fit(model, data)`` chooses it
            by EBIC, reads the graphs off the loadings and fits again on these without shrinkage
            (``inference.ChoosePenalty``): a dense fit says nothing of the graph. Where graphs are
            given, or a method is named, a penalty left open is none.
        graphs: one 0/1 matrix (K_{d-1}, K_d) a layer, bottom-up, the first one (J, K_1), or None
            where all loadings are free: the confirmatory mode (a Q-matrix).
        bound: half-width of the interval of intercepts and loadings on which their prior is flat,
            such as 15 (estimates of items that separate then run to it); if None, the normal prior
            above.
        bottom: how items depend on their latents: each for itself
            (:class:`~ppl_models.parts.measurement.Additive`), all together, any one of them, or
            through interactions. All but the first need ``graphs[0]`` (the Q-matrix of cognitive
            diagnosis) and take no penalty.
        graphs_estimated: whether ``graphs`` were read off data, as :meth:`restricted` says of its
            own. Latents are then compared between fits under every order, not under those alone
            that keep the graph.
        covariates: names of the columns that the deepest latents depend on, such as ("age",
            "income"), or a frame of them; texts are categories, compared with the first in
            the alphabet (:class:`~ppl_models.Covariates`). They are complete, and none is an
            item.

    Data: (N, J), NaN where missing; with covariates a data frame that has them among its columns,
    wherever they stand, or an array (N, J + P) with the covariates last.

    Raises:
        ValueError: for sizes that are not positive integers or do not fall, more latents than
            items, a graph of the wrong shape or with entries other than 0 and 1, a latent without
            any edge, a bound that is not positive, an item of one category, or a bottom that lacks
            its graph, has a penalty, an item without a latent or one with too many.
    """

    num_items: int | None = None
    latent_sizes: tuple[int, ...] = ()
    response: ResponseFamily = ByColumn()
    penalty: Penalty | ToBeChosen | None = ToBeChosen()
    graphs: tuple[tuple[tuple[int, ...], ...] | None, ...] | None = None
    bound: float | None = None
    bottom: Bottom = Additive()
    graphs_estimated: bool = False
    covariates: Covariates | tuple[str, ...] | str | None = None
    usual = {"response": Bernoulli()}

    def __post_init__(self) -> None:
        owner = "DeepDiscreteEncoder"
        plain_fields(self)
        sizes = (self.latent_sizes,) if isinstance(self.latent_sizes, int) else self.latent_sizes
        if not isinstance(sizes, tuple) or not sizes:
            raise ValueError(
                f"{owner}: latent_sizes must name at least one layer, such as (6, 2), got"
                f" {self.latent_sizes!r}"
            )
        for size in sizes:
            check_size(owner, "each of latent_sizes", size)
        if any(upper >= lower for lower, upper in zip(sizes, sizes[1:], strict=False)):
            raise ValueError(f"{owner}: latent_sizes go bottom-up and must fall, got {sizes}")
        object.__setattr__(self, "latent_sizes", sizes)
        check_kind(
            owner,
            "response",
            self.response,
            ResponseFamily,
            "a response family such as Bernoulli() or Normal()",
        )
        self._settle()
        object.__setattr__(self, "response", self.response.linked())
        check_penalty(owner, "penalty", self.penalty)
        check_flag(owner, "graphs_estimated", self.graphs_estimated)
        object.__setattr__(self, "covariates", covariates_given(owner, self.covariates))
        if self.bound is not None:
            check_number(owner, "bound", self.bound, "be positive and finite, or None", above=0)
        if isinstance(self.bottom, type) or not hasattr(self.bottom, "subsets"):
            raise ValueError(
                f"{owner}: bottom must be Additive(), ExpDINA(), ExpDINO() or ExpGDM(), got"
                f" {self.bottom!r}"
            )
        if getattr(self.bottom, "curve", None) is not None:
            raise ValueError(
                f"{owner}: bottom={self.bottom!r} is a rule of LatentAttributeModel; Additive(),"
                " ExpDINA(), ExpDINO() or ExpGDM() was expected"
            )
        if self.num_items is not None:
            self._check_width(owner, self.num_items)

    def _check_width(self, owner: str, num_items: int) -> None:
        """Check what the number of items decides: sizes, categories, graphs, the bottom's rule."""
        if self.latent_sizes[0] > num_items:
            raise ValueError(
                f"{owner}: latent_sizes[0] = {self.latent_sizes[0]} exceeds num_items = {num_items}"
            )
        self.response.blocks(num_items)
        for item, categories in self.response.category_names(num_items).items():
            if len(categories) < 2:
                raise ValueError(
                    f"{owner}: response: item {item} has one category only, {categories[0]!r}; at"
                    " least two were expected"
                )
        if self.graphs is not None:
            object.__setattr__(self, "graphs", self._checked_graphs(self.graphs))
        try:
            products = self._layout()
        except ValueError as error:
            raise ValueError(f"{owner}: {error}") from None
        if products is not None and self._penalty is not None:
            raise ValueError(
                f"{owner}: bottom={self.bottom!r} has its graph given; penalty=None was expected,"
                f" got {self.penalty!r}"
            )

    @property
    def _given(self) -> Covariates | None:
        return self.covariates if isinstance(self.covariates, Covariates) else None

    @property
    def _penalty(self) -> Penalty | None:
        """Penalty of the program; None while it is left open."""
        return None if isinstance(self.penalty, ToBeChosen) else self.penalty

    def _layout(self) -> Layout | None:
        return layout(self.bottom, None if self.graphs is None else self.graphs[0])

    def _checked_graphs(
        self, graphs: Sequence[Any]
    ) -> tuple[tuple[tuple[int, ...], ...] | None, ...]:
        if not isinstance(graphs, tuple):
            raise ValueError(
                "DeepDiscreteEncoder: graphs must be a tuple of matrices (None where free), one a"
                f" layer, got {graphs!r}"
            )
        if len(graphs) != len(self.latent_sizes):
            raise ValueError(
                f"DeepDiscreteEncoder: graphs must hold {len(self.latent_sizes)} matrices (None"
                f" where free), one a layer, got {len(graphs)}"
            )
        checked: list[tuple[tuple[int, ...], ...] | None] = []
        for d, graph in enumerate(graphs):
            if graph is None:
                checked.append(None)
                continue
            try:
                matrix = torch.tensor(np.array(graph, dtype=np.float64))
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(
                    f"DeepDiscreteEncoder: graphs[{d}] must be a matrix of 0 and 1, got {graph!r}"
                ) from error
            expected = self._child_parent(d)
            if d == 0:
                expected = (self._width, expected[1])
            if tuple(matrix.shape) != expected:
                raise ValueError(
                    f"DeepDiscreteEncoder: graphs[{d}] must have shape {expected}, got"
                    f" {tuple(matrix.shape)}"
                )
            if not ((matrix == 0) | (matrix == 1)).all():
                raise ValueError(f"DeepDiscreteEncoder: graphs[{d}] must hold only 0 and 1")
            if (matrix.sum(0) == 0).any():
                empty = int((matrix.sum(0) == 0).nonzero()[0])
                raise ValueError(f"DeepDiscreteEncoder: graphs[{d}]: latent {empty} has no edge")
            checked.append(tuple(tuple(int(v) for v in row) for row in matrix.tolist()))
        return tuple(checked)

    def _child_parent(self, d: int) -> tuple[int, int]:
        return (
            (self.response.num_linear(self._width), *self.latent_sizes)[d],
            self.latent_sizes[d],
        )

    def _prior(self, d: int) -> PredictorPrior | None:
        """Normal prior of the predictors; None for a flat prior on an interval."""
        if self.bound is not None:
            return None
        if d:
            return PredictorPrior.of(Bernoulli(), self.latent_sizes[d - 1])
        return PredictorPrior.of(self.response, self._width)

    def layers(self) -> tuple[GeneralizedLinearLayer, ...]:
        """Layers of the model for engines, bottom-up."""
        return self._layers

    @cached_property
    def _layers(self) -> tuple[GeneralizedLinearLayer, ...]:
        out, products = [], self._layout()
        for d in range(len(self.latent_sizes)):
            num_children, num_parents = self._child_parent(d)
            if self.graphs is None or self.graphs[d] is None:
                graph = None
            else:
                graph = torch.tensor(self.graphs[d]).bool()
            terms = disjunctive = None
            if d == 0 and products is not None:
                terms, graph, disjunctive = products
            dispersed = d == 0 and self.response.num_dispersed(self._width) > 0
            own = GeneralizedLinearLayer(
                loadings=f"loadings_{d + 1}",
                intercepts=f"intercepts_{d + 1}",
                parent=f"latents_{d + 1}",
                child="items" if d == 0 else f"latents_{d}",
                num_children=num_children,
                num_parents=num_parents,
                response=self.response if d == 0 else Bernoulli(),
                dispersion="dispersion" if dispersed else None,
                penalty=self._penalty,
                graph=None,
                bound=math.inf if self.bound is None else float(self.bound),
                terms=terms,
                disjunctive=disjunctive,
                prior=self._prior(d),
                estimated=self.graphs_estimated and graph is not None,
                items=self._width if d == 0 and num_children != self._width else None,
                thresholds=(
                    "thresholds" if d == 0 and self.response.num_thresholds(self._width) else None
                ),
            )
            out.append(own if graph is None else replace(own, graph=own.by_child(graph)))
        return tuple(out)

    root_law = Renamed("root_layer")

    def root_layer(self) -> RootLayer | CovariateRoot:
        """Distribution of the deepest layer."""
        latent, size = f"latents_{len(self.latent_sizes)}", self.latent_sizes[-1]
        if self._given is None:
            return RootLayer("proportions", latent, size)
        return CovariateRoot("coefficients", latent, size, self._given)

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Named dims of every parameter, latent and observed site, without the rows."""
        bottom = "predictor" if self.response.num_categories_of(self._width) else "item"
        names = [bottom, *(f"latent_{d + 1}" for d in range(len(self.latent_sizes)))]
        dims: dict[str, tuple[str, ...]] = {"items": ("item",), "proportions": (names[-1],)}
        if self._given is not None:
            dims = {"items": ("column",), "coefficients": (names[-1], "term")}
        if self.response.num_thresholds(self._width):
            dims["thresholds"] = ("threshold",)
        for d in range(len(self.latent_sizes)):
            features = "term_1" if d == 0 and self.subset_dims else names[d + 1]
            dims[f"loadings_{d + 1}"] = (names[d], features)
            dims[f"intercepts_{d + 1}"] = (names[d],)
            dims[f"latents_{d + 1}"] = (names[d + 1],)
        num_dispersed = self.response.num_dispersed(self._width)
        if num_dispersed:
            dims["dispersion"] = ("item" if num_dispersed == self._width else "dispersed_item",)
        return dims

    @property
    def entry_names(self) -> dict[str, tuple[str, ...]]:
        """Names of the entries along the dims that have names of their own."""
        return {} if self._given is None else {"term": self._given.terms}

    @property
    def subset_dims(self) -> dict[str, tuple[str, tuple[tuple[int, ...], ...]]]:
        """Dims whose entries are subsets of another's: their name, the other's, and the subsets."""
        products = self._layout()
        if products is None:
            return {}
        subsets = tuple(tuple(row.nonzero().ravel().tolist()) for row in products.terms)
        return {"term_1": ("latent_1", subsets)}

    def guess_slip(self, params: Mapping[str, Tensor]) -> Tensor:
        r"""Guessing and slipping probabilities of the Bernoulli items of a conjunctive bottom.

        :math:`g_j = \sigma(b_j)`, the chance of a 1 where an attribute is lacking, and :math:`s_j =
        1 - \sigma(b_j + W_j)`, that of a 0 where none is. For standard errors:
        ``standard_errors(fit, data).delta(fit.model.guess_slip)``.

        Args:
            params: by site name, (..., J) and (..., J, T).

        Returns:
            (..., number of Bernoulli items, 2), guess then slip.

        Raises:
            ValueError: for another bottom than ``ExpDINA()``, or without Bernoulli items.
        """
        if not isinstance(self.bottom, ExpDINA):
            raise ValueError(
                f"guess_slip: a model with bottom=ExpDINA() was expected, got {self.bottom!r}"
            )
        blocks = self.response.blocks(self._width)
        columns = [c for family, c, _ in blocks if isinstance(family, Bernoulli)]
        if not columns:
            raise ValueError(f"guess_slip: Bernoulli items were expected, got {self.response!r}")
        lacking = params["intercepts_1"]
        having = lacking + params["loadings_1"].sum(-1)  # one product an item
        pairs = torch.stack([torch.sigmoid(lacking), torch.sigmoid(-having)], -1)
        return torch.cat([pairs[..., c, :] for c in columns], -2)

    def category_boundaries(self, params: Mapping[str, Tensor]) -> Tensor:
        r"""Boundaries between the C - 1 categories of ordinal items, intercept included.

        :math:`\beta_{jh} = \tau_{jh} - b_{1,j}`, so that :math:`P(x_j \ge h \mid a_1) =
        \sigma(W_{1,j} \cdot h(a_1) - \beta_{jh})` under the cumulative link (thresholds of graded
        response), and :math:`\log P(x_j = h \mid a_1) / P(x_j = h - 1 \mid a_1) = W_{1,j} \cdot
        h(a_1) - \beta_{jh}` under the adjacent one. For standard errors: ``standard_errors(fit,
        data).delta(fit.model.category_boundaries)``.

        Args:
            params: by site name, (..., children) and (..., thresholds).

        Returns:
            (..., sum of C_j - 1), h = 1, ..., C_j - 1 of one item after another.

        Raises:
            ValueError: without ordinal items.
        """
        out = []
        for part in self.layers()[0].parts():
            if isinstance(part.family, Ordinal):
                own = params.get("thresholds", params["intercepts_1"][..., :0])[
                    ..., part.thresholds
                ]
                out.append(part.family.boundaries(params["intercepts_1"][..., part.rows], own))
        if not out:
            raise ValueError(
                f"category_boundaries: ordinal items were expected, got {self.response!r}"
            )
        return torch.cat(out, -1)

    def restricted(self, graphs: Sequence[Any]) -> DeepDiscreteEncoder:
        """Model without a penalty, loadings free on estimated graphs (K_{d-1}, K_d) only."""
        return replace(self, penalty=None, graphs=tuple(graphs), graphs_estimated=True)

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as a tensor (N, J), with covariates (N, J + P), and the column names."""
        if self._given is None:
            return self._check_items(data, for_fit)
        return self._given.check_beside(data, self._width, self._check_items, for_fit)

    def _check_items(self, data: Any, for_fit: bool) -> tuple[Tensor, tuple[str, ...]]:
        table, names = as_items(data, self._width, self.response, for_fit)
        if for_fit:
            check_reach(table, names, self.response, least=DISPERSION_RANGE[0])
        return table, names

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some.

        With covariates data are (N, J + P), and needed. Of a mini-batch ``num_rows`` is the size of
        the whole data set, to which its log-density is scaled.
        """
        kind = numbers_like("DeepDiscreteEncoder", data, num_rows)
        zero = torch.tensor(0.0, **kind)
        of_rows = self._draw_root(zero, data)
        loadings, intercepts, layers = [], [], self.layers()
        for layer in layers:
            loadings.append(pyro.sample(layer.loadings, loadings_prior(layer, zero)))
            intercepts.append(pyro.sample(layer.intercepts, intercepts_prior(layer, loadings[-1])))
        dispersion = thresholds = None
        if layers[0].thresholds is not None:
            thresholds = pyro.sample(
                layers[0].thresholds, thresholds_prior(self.response, self._width, zero)
            )
        if self.response.num_dispersed(self._width):
            dispersion = pyro.sample(
                "dispersion", dispersion_prior(self.response, self._width, zero)
            )

        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            logits = of_rows()
            for d in reversed(range(len(self.latent_sizes))):
                latents = pyro.sample(
                    f"latents_{d + 1}", BinaryVector(logits), infer={"enumerate": "parallel"}
                )
                predictor = LinearPredictor(layers[d].features(latents), loadings[d], intercepts[d])
                logits = predictor.tensor() if d > 0 else logits
            eta: Tensor | LinearPredictor = predictor
            if layers[0].tabled:
                eta = self.response.whole(predictor.tensor(), thresholds)
            return pyro.sample(
                "items",
                ItemResponse(self.response, eta, dispersion),
                obs=data if data is None else data[..., : self._width],
            )

    def _draw_root(self, zero: Tensor, data: Tensor | None) -> Callable[[], Tensor]:
        """Sample the deepest latents' parameters; their log-odds inside the plate of rows."""
        top = self.latent_sizes[-1]
        if self._given is None:
            proportions = pyro.sample(
                "proportions", dist.Beta(zero + 1, zero + 1).expand([top]).to_event(1)
            )
            return lambda: proportions.log() - (-proportions).log1p()
        covariates = self._given
        columns = covariates.columns("DeepDiscreteEncoder", data, self._width)
        coefficients = pyro.sample("coefficients", LatentCoefficients(covariates, top, zero))
        return lambda: covariates.odds(columns, coefficients)


def loadings_prior(layer: GeneralizedLinearLayer, zero: Tensor) -> TorchDistributionMixin:
    """Prior of loadings: normal, or flat on each child's interval, with the penalty.

    Zero off the graph, and confined to the cone of monotone items.

    Event shape (children, parents).
    """
    prior = _anywhere(layer, zero)
    if layer.rising and layer.graph is not None:
        return MonotoneLoadings(prior, layer.graph.to(zero.device), layer.rising)
    return prior


def _anywhere(layer: GeneralizedLinearLayer, zero: Tensor) -> Any:
    """Prior of loadings without a cone."""
    shape = torch.Size([layer.num_children, layer.num_features])
    effect = None if layer.prior is None else zero.new_tensor(layer.prior.effect)
    if effect is not None and layer.terms is not None and layer.graph is not None:
        name = "prior of loadings", zero.dtype, zero.device
        if name not in layer.memory:  # each step of EM asks for it
            given = layer.graph.to(zero.device), layer.spread(zero), effect
            layer.memory[name] = (
                CurvedLoadings(*given, layer.curved) if layer.curved else ProductEffects(*given)
            )
        return layer.memory[name]
    width: float | Tensor = layer.bound
    if effect is not None:
        width = effect.unsqueeze(-1).expand(shape)
        width = width if layer.graph is None else width[layer.graph.to(width.device)]
    kind: dict[str, Any] = {"dtype": zero.dtype, "device": zero.device}
    prior: TorchDistributionMixin
    if layer.penalty is not None:
        sizes = width.shape if isinstance(width, Tensor) else torch.Size()
        bound, scale = (width, None) if effect is None else (None, width)
        prior = PenaltyPrior(layer.penalty, bound, sizes, **kind, scale=scale)
    else:
        prior = Flat(zero - width, zero + width) if effect is None else dist.Normal(zero, width)
    return prior.expand(shape).to_event(2) if layer.graph is None else Scattered(prior, layer.graph)


def dispersion_prior(
    response: ResponseFamily, num_items: int, zero: Tensor
) -> TorchDistributionMixin:
    """Prior of dispersions, event shape (dispersed items,).

    Variances are flat on their interval; sizes of negative binomial items have a prior of their
    own.
    """
    ends = zero + DISPERSION_RANGE[0], zero + DISPERSION_RANGE[1]
    is_size = sizes(response, num_items)
    if bool(is_size.any()):
        return Dispersions(is_size.to(zero.device), *ends)
    return Flat(*ends).expand([len(is_size)]).to_event(1)


def thresholds_prior(
    response: ResponseFamily, num_items: int, zero: Tensor
) -> TorchDistributionMixin:
    """Flat prior of ordinal thresholds, each on its interval, event shape (thresholds,)."""
    low, high = zip(*threshold_limits(response, num_items), strict=True)
    return Flat(zero.new_tensor(low), zero.new_tensor(high)).to_event(1)


def intercepts_prior(layer: GeneralizedLinearLayer, loadings: Tensor) -> TorchDistributionMixin:
    """Prior of intercepts, event shape (children,).

    Normal around the value at which the mean predictor is zero, or flat on each child's interval.
    """
    if layer.prior is None:
        bounds = layer.bounds(loadings)
        return Flat(-bounds, bounds).to_event(1)
    level = loadings.new_tensor(layer.prior.level)
    normal = dist.Normal(-(loadings @ layer.centre(loadings)), level)
    return CurvedIntercepts(normal, loadings, layer.curved) if layer.curved else normal.to_event(1)
