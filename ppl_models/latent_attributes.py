"""Latent attribute models (cognitive diagnosis): items that ask for binary attributes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyro
import torch
from torch import Tensor

from ppl_models.data.frames import as_frame, column_names, holds_texts, is_frame, row_names
from ppl_models.data.items import ByColumn, OpenItems
from ppl_models.data.tables import ColumnsWarning, as_items, check_reach, quoted
from ppl_models.deep_discrete_encoder import (
    DISPERSION_RANGE,
    dispersion_prior,
    intercepts_prior,
    loadings_prior,
    thresholds_prior,
)
from ppl_models.descriptions.attribute_distribution import (
    AttributeDistribution,
    AttributeRoot,
    Independent,
)
from ppl_models.descriptions.covariate_root import AttributesGivenCovariates
from ppl_models.descriptions.covariates import Covariates, covariates_given
from ppl_models.descriptions.dag import Dag
from ppl_models.descriptions.layers import GeneralizedLinearLayer, PredictorPrior
from ppl_models.descriptions.profile_table import Hierarchy, Saturated
from ppl_models.parts.blocks import Blocks
from ppl_models.parts.categorical import Categorical, Ordinal
from ppl_models.parts.distributions import BinaryVector
from ppl_models.parts.item_curves import ACDM, RRUM, CurvedItems
from ppl_models.parts.item_response import ItemResponse, LinearPredictor
from ppl_models.parts.measurement import (
    Additive,
    Bottom,
    ExpDINA,
    ExpDINO,
    ExpGDM,
    Layout,
    layout_of_items,
)
from ppl_models.parts.monotone import MonotoneItems, monotone_items
from ppl_models.parts.penalties import Penalty, ToBeChosen, check_penalty
from ppl_models.parts.responses import (
    Bernoulli,
    LogNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    ResponseFamily,
)
from ppl_models.parts.surface import Renamed
from ppl_models.parts.validation import (
    check_flag,
    check_number,
    check_size,
    numbers_like,
    plain_fields,
)

OWNER = "LatentAttributeModel"
FAMILIES = (Bernoulli, Normal, LogNormal, Poisson, NegativeBinomial, Ordinal, Categorical)
RULES: dict[str, Bottom] = {
    "additive": Additive(),
    "acdm": ACDM(),
    "rrum": RRUM(),
    "dina": ExpDINA(),
    "dino": ExpDINO(),
    "gdm": ExpGDM(),
    "saturated": ExpGDM(),
}


@dataclass(frozen=True)
class LatentAttributeModel(OpenItems):
    r"""Cognitive diagnosis model: binary attributes, and items that require some of them.

    For each row, with :math:`q_j` the attributes that item j asks for,

    .. math::
        \alpha &\sim P \quad \text{(} \texttt{root} \text{, on } \{0, 1\}^K \text{)} \\
        x_j \mid \alpha &\sim F_j(\eta_j(\alpha), \gamma_j), \qquad
        \eta_j(\alpha) = b_j + \sum_{S \in \mathcal{S}_j} W_{jS} \, h_S(\alpha),

    where the rule of an item says which features of its attributes it has:

    ``"additive"``
        Each attribute by itself, :math:`h_k = \alpha_k`.
    ``"acdm"``
        Each attribute adds to the chance, :math:`P(x_j = 1) = g + \sum_k \delta_k \alpha_k`
        (Bernoulli items).
    ``"rrum"``
        Each attribute that is lacking multiplies the chance,
        :math:`P(x_j = 1) = \pi \prod_k r_k^{1 - \alpha_k}` (Bernoulli items).
    ``"dina"``
        All of them or nothing, :math:`h = \prod_{k \in q_j} \alpha_k`.
    ``"dino"``
        Any of them, :math:`h = 1 - \prod_{k \in q_j} (1 - \alpha_k)`.
    ``"gdm"`` (``"saturated"``)
        Every product of some of them: a mean of its own for each of the item's profiles.

    Under ``root=Hierarchy(pairs)`` coefficients that only profiles without anybody would tell are
    zero and not counted: with a before b a saturated item of both has an intercept, the effect of a
    and that of b nested in a, their product (the hierarchical diagnostic classification model,
    HDCM).

    :math:`\eta` is the mean of a Normal item, the mean logarithm of a LogNormal one, the logarithm
    of the mean of a Poisson or NegativeBinomial one and the log-odds of a Bernoulli item. So
    ``"additive"`` is the additive model of continuous responses (ExpACDM), and for right-wrong
    items the linear logistic model (LLM, also compensatory RUM); the conjunctive, disjunctive and
    saturated rules are the same model on any scale (DINA, DINO, the saturated G-DINA). ``"acdm"``
    and ``"rrum"`` never let an attribute lower a chance; their ``intercepts`` and ``loadings`` are
    those of :mod:`ppl_models.parts.item_curves`, and :meth:`expected_responses` has the chances. An
    item with one attribute is the same under every rule, and has the coefficients of
    ``"additive"``.

    Items that are categories, :class:`~ppl_models.Ordinal` and :class:`~ppl_models.Categorical`,
    have the distributions of :class:`~ppl_models.DeepDiscreteEncoder` with this :math:`\eta_j`:
    graded response (``Ordinal(C)``), partial credit (``Ordinal(C, link="adjacent")``), or C - 1
    predictors against the first category, each with its own intercept and loadings, which ask for
    the same attributes (``Categorical(C)``). They have one of the rules additive, dina, dino or
    gdm. Larger predictors of an ordinal item mean larger answers.

    With ``covariates`` z, columns of the data beside the items, and ``root=Independent()``, each
    attribute has a logit of its own,

    .. math:: P(\alpha_k = 1 \mid z) = \sigma(\beta_{k0} + \beta_k \cdot z),

    and in the place of the proportions there are ``coefficients`` :math:`\beta` (K, Q), log-odds,
    an intercept and one for each term, with the prior that :class:`~ppl_models.Covariates` says.
    Given the covariates the attributes are independent, and given the attributes the items do not
    depend on them.

    Sites: those of the root (``profiles`` of :class:`~ppl_models.Saturated` and
    :class:`~ppl_models.Hierarchy`, ``proportions`` of :class:`~ppl_models.Independent`,
    ``trait_slopes`` and ``trait_intercepts`` of :class:`~ppl_models.HigherOrder`, ``conditionals``
    of :class:`~ppl_models.Dag`); ``loadings`` W (J, T), a column for each feature that some item
    uses, zero where an item does not use it; ``intercepts`` b (J,) (an item without an order counts
    C - 1 times); ``thresholds`` (sum of C - 2 over ordinal items) as in
    :class:`~ppl_models.DeepDiscreteEncoder`; ``dispersion`` :math:`\gamma` (variances of Normal and
    LogNormal items, sizes of NegativeBinomial ones); latent ``attributes`` (K,) in {0, 1}; observed
    ``items`` (J,), NaN where missing.

    Priors: intercepts and loadings have a weak normal prior, which keeps them finite where the data
    separate (an item that everybody with an attribute solves has no finite maximum-likelihood
    estimate) and says next to nothing elsewhere: an attribute changes the predictor of item j by
    about :math:`u_j`, and the predictor of a random profile lies within about :math:`s_j` of zero.
    For additive items

    .. math::

        W_{jk} \sim N(0, u_j^2), \qquad b_j \mid W_j \sim N(-\tfrac{1}{2} \textstyle\sum_k W_{jk},
        s_j^2),

    with u = 4 and s = 5 for log-odds and log means, as in :class:`~ppl_models.DeepDiscreteEncoder`,
    whose documentation says why; for the other rules
    :class:`~ppl_models.descriptions.layers.PredictorPrior`, the same distribution of the
    predictors. Means of Normal and LogNormal items, in units that are not known, have u = 20,000
    and s = 10,000. What
    ``"acdm"`` and ``"rrum"`` make a chance of has the prior of half a row in each cell,
    Dirichlet(1/2, ...) for the shares :math:`g, \delta_k, 1 - g - \sum_k \delta_k` and Beta(1/2,
    1/2) for :math:`\pi` and each :math:`r_k`. With a ``bound`` intercepts and loadings are flat on
    [-bound, bound] instead: maximum likelihood, in whose reports separated items stand on the
    bound. A ``penalty`` multiplies the prior of the loadings by exp(-penalty). The dispersion is
    flat; the root's priors are its own.

    With ``q_matrix`` the attributes have names, its columns, and no fit exchanges them; which of
    the two values of an attribute is called 1 is settled by its mean effect being positive. Without
    it (``num_attributes`` and ``num_items``) items are additive, every item may use every
    attribute, and a penalty on the loadings finds the Q-matrix: a plain ``fit(model, data)``
    chooses the penalty by EBIC, reads Q off the loadings, searches among single entries, and fits
    again on it without shrinkage (``inference.ChoosePenalty``). The fit's ``model.q_matrix`` is
    then Q, in which every item has an attribute and every attribute an item.

    Args:
        q_matrix: Q, (J, K) of 0 and 1: an array, or a data frame whose columns name the attributes
            and whose index names the items. None to estimate it.
        response: family of the items; :class:`~ppl_models.Blocks` joins several. Left out,
            Bernoulli(), or what :func:`~ppl_models.items_of` reads off the data where neither
            q_matrix nor num_items is given.
        items: the rule of all items, or one for each (J of them): a name of the table above, or
            ``Additive()``, ``ExpDINA()``, ``ExpDINO()``, ``ExpGDM(order=2)``, ``ACDM()``,
            ``RRUM()``.
        root: the distribution of the attributes.
        num_attributes: K, where Q is not given.
        num_items: J, where Q is not given; None for as many as the data have, read in a fit.
        penalty: sparsity penalty of the loadings, where Q is not given. Left open
            (``ToBeChosen()``, the default there), a plain ``fit`` chooses it; a method that is
            named (``fit(model, data, EM())``) then fits without one, and finds no Q.
        bound: half-width of the interval of intercepts and loadings on which their prior is flat,
            such as 15 (maximum likelihood, as papers have it); if None, the weak prior above.
        monotone: whether no attribute may lower a response: the predictor of an item rises, or
            stays, along every edge of the lattice of its attributes' profiles (acdm and rrum items
            do so anyway). Estimates of what the data would have fall lie on the edge, where they
            have no standard error. False leaves it open, and
            :func:`~inference.inspection.attributes.reversals` says what falls.
        attribute_names: K names; None for those of ``q_matrix``, else 0, 1, ...
        item_names: J names that the columns of the data must have; None for those of ``q_matrix``,
            else any.
        q_estimated: whether ``q_matrix`` was read off data, as :meth:`restricted` says of its own
            where none was given: its attributes have no names of their own then, and are compared
            between fits under every order. Additive items only.
        covariates: names of the columns that the attributes depend on, such as ("age", "income");
            or a frame of them; texts are categories, compared with the first in the alphabet
            (:class:`~ppl_models.Covariates`). They are complete, and none of them is an item.
            With ``q_matrix`` and ``root=Independent()``.

    Data: (N, J), NaN where missing; with covariates a data frame that has them among its columns,
    or an array (N, J + P) with the covariates last.

    Raises:
        ValueError: for a Q-matrix that is not a table of 0 and 1, or has an empty row or column;
            for sizes that do not agree; for a rule that is none, or not one for each item; for a
            response that has no items of this kind; for a root that does not fit (too many
            attributes for a table, a cycle in a hierarchy or graph, fewer than three attributes
            under a trait); for a penalty beside a given Q, or a Q to be found with items that need
            it; for covariates without Q, or beside another root than ``Independent()``; for
            monotone items, or rules of chances, where items are categories.

    Source: S. Lee and Y. Gu (2024), doi:10.1007/s11336-024-09983-4 (general responses); B. W.
    Junker and K. Sijtsma (2001), doi:10.1177/01466210122032064 (DINA); J. L. Templin and R. A.
    Henson (2006), doi:10.1037/1082-989X.11.3.287 (DINO); J. de la Torre (2011),
    doi:10.1007/s11336-011-9207-7 (saturated); Templin and Bradshaw (2014),
    doi:10.1007/s11336-013-9362-0 (HDCM).
    """

    q_matrix: Any = None
    response: ResponseFamily = ByColumn()
    items: Any = "additive"
    root: AttributeDistribution = Saturated()
    num_attributes: int | None = None
    num_items: int | None = None
    penalty: Penalty | ToBeChosen | None = ToBeChosen()
    bound: float | None = None
    attribute_names: tuple[str, ...] | None = None
    item_names: tuple[str, ...] | None = None
    monotone: bool = False
    q_estimated: bool = False
    covariates: Covariates | tuple[str, ...] | str | None = None
    usual = {"response": Bernoulli()}

    def __post_init__(self) -> None:
        plain_fields(self)
        object.__setattr__(self, "covariates", covariates_given(OWNER, self.covariates))
        check_penalty(OWNER, "penalty", self.penalty)
        check_flag(OWNER, "monotone", self.monotone)
        if self.monotone and self.q_matrix is None:
            raise ValueError(
                f"{OWNER}: monotone=True needs the q_matrix: without it an attribute's two values"
                " have no names"
            )
        check_flag(OWNER, "q_estimated", self.q_estimated)
        if self.monotone and self.q_estimated:
            raise ValueError(
                f"{OWNER}: monotone=True needs attributes with names, and those of q_estimated=True"
                " have none"
            )
        if self.q_matrix is None:
            self._check_open()
        else:
            self._take_matrix()
        self._settle()
        if self.waits_for_data:
            return  # the rest is checked once the number of items is read off the data
        for name, dim, size in (
            ("attribute_names", "attributes", self._sizes[1]),
            ("item_names", "items", self._sizes[0]),
        ):
            object.__setattr__(self, name, _names(name, getattr(self, name), dim, size))
        self._check_response()
        self._check_covariates()
        if self.bound is not None:
            check_number(OWNER, "bound", self.bound, "be positive and finite, or None", above=0)
        if isinstance(self.root, type) or not hasattr(self.root, "root"):
            distributions = (
                "Saturated(), Independent(), HigherOrder(), Hierarchy(pairs) or Dag(edges)"
            )
            raise ValueError(f"{OWNER}: root must be {distributions}, got {self.root!r}")
        self._take_rules()
        if self.q_estimated and self.q_matrix is None:
            raise ValueError(
                f"{OWNER}: q_estimated=True says where a q_matrix comes from, and there is none"
            )
        if (self.q_matrix is None or self.q_estimated) and isinstance(self.root, Hierarchy | Dag):
            raise ValueError(
                f"{OWNER}: root={self.root!r} speaks of certain attributes, and without a q_matrix"
                " none has a name; give q_matrix, or root=Saturated()"
            )
        self.root_layer()
        self.layers()

    def _check_open(self) -> None:
        if self.num_attributes is None:
            raise ValueError(
                f"{OWNER}: give q_matrix, or num_attributes to estimate it; both are missing"
            )
        check_size(OWNER, "num_attributes", self.num_attributes)
        if self.num_items is not None:
            check_size(OWNER, "num_items", self.num_items)
        if self.num_items is not None and self.num_attributes > self.num_items:
            raise ValueError(
                f"{OWNER}: num_attributes = {self.num_attributes} exceeds num_items ="
                f" {self.num_items}"
            )

    def _take_matrix(self) -> None:
        matrix, item_names, attribute_names = _matrix_of(self.q_matrix)
        for name, found in (("num_items", len(matrix)), ("num_attributes", len(matrix[0]))):
            value = getattr(self, name)
            if value is not None and value != found:
                raise ValueError(
                    f"{OWNER}: {name} = {value!r}, but q_matrix has shape"
                    f" {(len(matrix), len(matrix[0]))}"
                )
        if isinstance(self.penalty, ToBeChosen):
            object.__setattr__(self, "penalty", None)
        if self.penalty is not None:
            raise ValueError(
                f"{OWNER}: the penalty looks for a Q-matrix and this one is given; penalty=None was"
                f" expected, got {self.penalty!r}"
            )
        object.__setattr__(self, "q_matrix", matrix)
        for name, own in (("item_names", item_names), ("attribute_names", attribute_names)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, own)

    def _check_response(self) -> None:
        if isinstance(self.response, Blocks):
            families = [family for family, _ in self.response.parts]
        else:
            families = [self.response]
        for family in families:
            if not isinstance(family, FAMILIES):
                known = ", ".join(f"{kind.__name__}()" for kind in FAMILIES)
                raise ValueError(
                    f"{OWNER}: response must be {known} or Blocks of these, got {family!r}"
                )
        self.response.blocks(self._sizes[0])
        named = self.response.category_names(self._sizes[0])
        alone = [item for item, categories in named.items() if len(categories) < 2]
        if alone:
            raise ValueError(
                f"{OWNER}: response: item {alone[0]} has one category only; at least two were"
                " expected"
            )
        if named and self.monotone:
            raise ValueError(
                f"{OWNER}: monotone=True was expected with items that are no categories, got"
                f" response={self.response!r}"
            )
        object.__setattr__(self, "response", self.response.linked())

    def _check_covariates(self) -> None:
        if self.covariates is None:
            return
        if self.q_matrix is None or self.q_estimated:
            raise ValueError(
                f"{OWNER}: covariates need the q_matrix: without it the attributes have no names,"
                f" and nobody knows what depends on {self.covariates!r}"
            )
        if not isinstance(self.root, Independent):
            raise ValueError(
                f"{OWNER}: with covariates each attribute has a logit of its own, so"
                f" root=Independent() was expected, got {self.root!r}"
            )

    @property
    def _given(self) -> Covariates | None:
        return self.covariates if isinstance(self.covariates, Covariates) else None

    def _take_rules(self) -> None:
        given = self.items
        if isinstance(given, Sequence) and not isinstance(given, str):
            if len(given) != self._sizes[0]:
                raise ValueError(
                    f"{OWNER}: items must be one rule, or one for each of {self._sizes[0]} items,"
                    f" got {len(given)}"
                )
            object.__setattr__(self, "items", tuple(given))
        for rule in self.items if isinstance(self.items, tuple) else (self.items,):
            if (
                (rule not in RULES)
                if isinstance(rule, str)
                else (isinstance(rule, type) or not hasattr(rule, "subsets"))
            ):
                known = ", ".join(repr(name) for name in RULES)
                raise ValueError(
                    f"{OWNER}: the rule of an item must be one of {known}, Additive(), ACDM(),"
                    f" RRUM(), ExpDINA(), ExpDINO() or ExpGDM(), got {rule!r} (in small letters;"
                    " G-DINA and LCDM are 'saturated')"
                )
        if self.q_matrix is None:
            each = self.items if isinstance(self.items, tuple) else (self.items,)
            other = [
                rule
                for rule in each
                if (RULES[rule] if isinstance(rule, str) else rule).subsets((0, 1)) is not None
            ]
            if other:
                raise ValueError(
                    f"{OWNER}: items={other[0]!r} need the q_matrix; without it items='additive'"
                    " was expected"
                )
        else:
            if self.q_estimated and any(rule.subsets((0, 1)) is not None for rule in self.rules):
                raise ValueError(
                    f"{OWNER}: q_estimated=True was expected with items='additive' alone, got"
                    f" items={self.items!r}"
                )
            self._layout()
            for family, columns, _ in self.response.blocks(self._sizes[0]):
                for j in range(self._sizes[0])[columns]:
                    if self.rules[j].curve is not None and not isinstance(family, Bernoulli):
                        raise ValueError(
                            f"{OWNER}: items: {self.rules[j]!r} is a rule of Bernoulli items, and"
                            f" item {j} is {family!r}; 'additive' was expected"
                        )
            if self.response.num_categories_of(self._sizes[0]) and any(
                rule.curve is not None for rule in self.rules
            ):
                raise ValueError(
                    f"{OWNER}: items: 'acdm' and 'rrum' were expected without categories in no"
                    f" order beside them, got response={self.response!r}"
                )

    @property
    def _sizes(self) -> tuple[int, int]:
        """Numbers of items and attributes, J and K."""
        if self.q_matrix is not None:
            return len(self.q_matrix), len(self.q_matrix[0])
        return self._width, int(self.num_attributes or 0)

    @property
    def _width(self) -> int:
        return super()._width if self.q_matrix is None else len(self.q_matrix)

    @property
    def waits_for_data(self) -> bool:
        """Tell whether the number of items is still to be read off data."""
        return self.q_matrix is None and self.num_items is None

    @property
    def rules(self) -> tuple[Bottom, ...]:
        """Rule of each item, J of them."""
        given = self.items if isinstance(self.items, tuple) else (self.items,) * self._sizes[0]
        return tuple(RULES[rule] if isinstance(rule, str) else rule for rule in given)

    def _layout(self) -> Layout | None:
        if self.q_matrix is None:
            return None
        profiles = self.root_layer().profiles
        return layout_of_items(self.rules, self.q_matrix, f"{OWNER}: q_matrix", profiles)

    def layers(self) -> tuple[GeneralizedLinearLayer, ...]:
        """Description of the one layer."""
        return self._layers

    @cached_property
    def _layers(self) -> tuple[GeneralizedLinearLayer, ...]:
        num_items, num_attributes = self._sizes
        terms, graph, disjunctive = self._layout() or (None, None, None)
        curved, graph = self._curved(terms, graph)
        num_children = self.response.num_linear(num_items)
        rising: tuple[MonotoneItems, ...] = ()
        if self.monotone and terms is not None and graph is not None:
            left_out = torch.zeros(num_items, dtype=torch.bool)
            for group in curved:
                left_out[group.items] = True
            rising = monotone_items(
                terms, graph, disjunctive, left_out, f"{OWNER}: monotone=True: "
            )
        if self.q_estimated:  # attributes without names: main effects, as of any layer
            terms, graph = None, torch.tensor(self.q_matrix).bool()
        own = GeneralizedLinearLayer(
            loadings="loadings",
            intercepts="intercepts",
            parent="attributes",
            child="items",
            num_children=num_children,
            num_parents=num_attributes,
            response=self.response,
            dispersion="dispersion" if self.response.num_dispersed(num_items) else None,
            penalty=None if isinstance(self.penalty, ToBeChosen) else self.penalty,
            graph=None,
            bound=math.inf if self.bound is None else float(self.bound),
            prior=PredictorPrior.of(self.response, num_items) if self.bound is None else None,
            terms=terms,
            disjunctive=disjunctive,
            curved=curved,
            rising=rising,
            estimated=self.q_estimated,
            every_child=True,
            items=None if num_children == num_items else num_items,
            thresholds="thresholds" if self.response.num_thresholds(num_items) else None,
        )
        if graph is None:
            return (own,)
        return (replace(own, graph=own.by_child(graph)),)

    def _curved(
        self, terms: Tensor | None, uses: Tensor | None
    ) -> tuple[tuple[CurvedItems, ...], Tensor | None]:
        """Groups of items with a response curve, and the mask of free loadings."""
        if terms is None or uses is None:
            return (), uses
        groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for j, (rule, row) in enumerate(zip(self.rules, self.q_matrix, strict=True)):
            if rule.curve is not None and sum(row) > 1:
                groups.setdefault((rule.curve, row), []).append(j)
        uses, out = uses.clone(), []
        for (curve, row), items in groups.items():
            asked = torch.tensor(row).bool()
            columns = uses[items[0]].nonzero().ravel()
            products = terms[columns][:, asked]
            singles = columns[products.sum(-1) == 1]  # in the order of the attributes
            out.append(CurvedItems(curve, torch.tensor(items), singles, columns, products))
            uses[items] = False
            uses[torch.tensor(items).unsqueeze(-1), singles] = True
        return tuple(out), uses

    root_law = Renamed("root_layer")

    def root_layer(self) -> AttributeRoot:
        """Distribution of the attributes for engines."""
        if self._given is not None:
            return AttributesGivenCovariates(
                "coefficients", "attributes", self._sizes[1], self._given
            )
        return self.root.root("attributes", self._sizes[1], self.attribute_names)

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Named dims of every parameter, latent and observed site, without the rows."""
        num_items = self._sizes[0]
        predictor = "predictor" if self.response.num_categories_of(num_items) else "item"
        dims: dict[str, tuple[str, ...]] = {
            "items": ("item",),
            "attributes": ("attribute",),
            "loadings": (
                predictor,
                "attribute" if self.q_matrix is None or self.q_estimated else "feature",
            ),
            "intercepts": (predictor,),
        }
        if self._given is not None:
            dims["items"] = ("column",)
        if self.response.num_thresholds(num_items):
            dims["thresholds"] = ("threshold",)
        num_dispersed = self.response.num_dispersed(num_items)
        if num_dispersed:
            dims["dispersion"] = ("item" if num_dispersed == num_items else "dispersed_item",)
        return dims | self.root_layer().dims

    @property
    def entry_names(self) -> dict[str, tuple[str, ...]]:
        """Names of the entries along the dims that have names of their own."""
        attributes = self.attribute_names or tuple(str(k) for k in range(self._sizes[1]))
        names = {"attribute": attributes, **self.root_layer().entry_names(attributes)}
        layout = self._layout()
        if layout is not None:
            if layout.disjunctive is None:
                kinds = [False] * len(layout.terms)
            else:
                kinds = layout.disjunctive.tolist()
            members = [
                [attributes[k] for k in row.nonzero().ravel().tolist()] for row in layout.terms
            ]
            names["feature"] = tuple(
                (" or " if is_any else "*").join(own)
                for own, is_any in zip(members, kinds, strict=True)
            )
        return names

    def expected_responses(self, params: Mapping[str, Tensor], profiles: Tensor) -> Tensor:
        """Expected response E[x_j | profile] of every item.

        The chance of a 1 of a Bernoulli item, the mean code of an ordinal one, the mean of the
        others.

        Args:
            params: by site name, with any leading dims.
            profiles: (C, K) of 0 and 1.

        Returns:
            (..., C, J), NaN for items of categories in no order, whose codes have no mean;
            :meth:`category_chances` is of these.
        """
        eta, dispersion = self._predictors(params, profiles), params.get("dispersion")
        expected = self.response.expected_response(
            eta, None if dispersion is None else dispersion.unsqueeze(-2)
        )
        for part in self.layers()[0].parts():
            if isinstance(part.family, Categorical) and not isinstance(part.family, Ordinal):
                expected[..., part.items] = torch.nan
        return expected

    def _predictors(self, params: Mapping[str, Tensor], profiles: Tensor) -> Tensor:
        """Predictors of every profile, (..., C, P): an entry an item, or one a category."""
        layer = self.layers()[0]
        intercepts, loadings = layer.coefficients(params["intercepts"], params["loadings"])
        features = layer.features(torch.as_tensor(profiles).to(loadings))
        eta = features @ loadings.mT + intercepts.unsqueeze(-2)
        thresholds = params.get("thresholds")
        return (
            self.response.whole(eta, None if thresholds is None else thresholds.unsqueeze(-2))
            if layer.tabled
            else eta
        )

    def category_chances(self, params: Mapping[str, Tensor], profiles: Tensor) -> dict[int, Tensor]:
        """Category probabilities P(x_j = h | profile), by the number of the item.

        Args:
            params: by site name, with any leading dims.
            profiles: (C, K) of 0 and 1.

        Returns:
            (..., C, C_j) each.

        Raises:
            ValueError: without items that are categories.
        """
        eta = self._predictors(params, profiles)
        out: dict[int, Tensor] = {}
        for part in self.layers()[0].parts():
            if isinstance(part.family, Categorical):
                every = part.family.mean(eta[..., part.statistics]).split(
                    list(part.family.sizes(part.num_items)), -1
                )
                out |= {part.items.start + j: chances for j, chances in enumerate(every)}
        if not out:
            raise ValueError(
                f"category_chances: items that are categories were expected, got {self.response!r}"
            )
        return out

    def guess_slip(self, params: Mapping[str, Tensor]) -> Tensor:
        r"""Guessing and slipping probabilities of the Bernoulli items.

        :math:`g_j = P(x_j = 1)` where all attributes of the item are lacking, and :math:`s_j =
        P(x_j = 0)` where none is. For standard errors: ``standard_errors(fit,
        data).delta(fit.model.guess_slip)``.

        Args:
            params: by site name, with any leading dims.

        Returns:
            (..., number of Bernoulli items, 2), guess then slip.

        Raises:
            ValueError: without Bernoulli items.
        """
        blocks = self.response.blocks(self._sizes[0])
        columns = [c for family, c, _ in blocks if isinstance(family, Bernoulli)]
        if not columns:
            raise ValueError(f"guess_slip: Bernoulli items were expected, got {self.response!r}")
        ends = torch.tensor([[0.0], [1.0]]).expand(2, self._sizes[1])
        lacking, having = self.expected_responses(params, ends).unbind(-2)
        pairs = torch.stack([lacking, 1 - having], -1)
        return torch.cat([pairs[..., c, :] for c in columns], -2)

    def restricted(self, graphs: Sequence[Any]) -> LatentAttributeModel:
        """Model without a penalty, with the given Q-matrix (the only one of ``graphs``)."""
        (graph,) = graphs
        estimated = self.q_matrix is None or self.q_estimated
        return replace(
            self,
            q_matrix=graph,
            penalty=None,
            num_items=None,
            num_attributes=None,
            q_estimated=estimated,
        )

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as a tensor (N, J), and the item names.

        Where the Q-matrix names its items, the columns of a frame are found by these names, in
        whatever order they stand.

        Raises:
            ValueError: also where items of the Q-matrix are no columns.

        Warns:
            ColumnsWarning: naming columns that the Q-matrix does not know, which are left out.
        """
        data = as_frame(data)
        if self.item_names is not None and hasattr(data, "columns"):
            data = self._items_of(data)
        if self._given is not None:
            return self._given.check_beside(data, self._sizes[0], self._check_items, for_fit)
        return self._check_items(data, for_fit)

    def _check_items(self, data: Any, for_fit: bool) -> tuple[Tensor, tuple[str, ...]]:
        table, names = as_items(data, self._sizes[0], self.response, for_fit)
        if for_fit:
            check_reach(table, names, self.response, least=DISPERSION_RANGE[0])
        return table, names

    def _items_of(self, data: Any) -> Any:
        """Columns of the items that the Q-matrix names, in its order."""
        names, wanted = (
            column_names(data),
            [*(self.item_names or ()), *(() if self._given is None else self._given.names)],
        )
        absent = [name for name in wanted if name not in names]
        if absent:
            beside = "" if self._given is None else " and each covariate"
            raise ValueError(
                f"data: a column was expected for each row of the Q-matrix{beside}, but none is"
                f" named {quoted(absent)}; the columns are {quoted(names)}"
            )
        known = (*wanted, row_names(data))
        unknown = [name for name in names if name not in known]
        if unknown:
            warnings.warn(
                f"the Q-matrix does not know the columns {quoted(unknown)}, which are left out",
                ColumnsWarning,
                stacklevel=4,
            )
        return (
            data if list(names) == wanted else data.iloc[:, [names.index(name) for name in wanted]]
        )

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J), or None and ``num_rows`` to draw some.

        With covariates data are (N, J + P), and needed. Of a mini-batch ``num_rows`` is the size of
        the whole data set, to which its log-density is scaled.
        """
        given, num_items = self._given, self._sizes[0]
        columns = None if given is None else given.columns(OWNER, data, num_items)
        zero = torch.tensor(0.0, **numbers_like(OWNER, data, num_rows))
        root, (layer,) = self.root_layer(), self.layers()
        root_params = {name: pyro.sample(name, prior) for name, prior in root.priors(zero).items()}
        loadings = pyro.sample(layer.loadings, loadings_prior(layer, zero))
        intercepts = pyro.sample(layer.intercepts, intercepts_prior(layer, loadings))
        floors, made_of = layer.coefficients(intercepts, loadings)
        dispersion = thresholds = None
        if layer.thresholds is not None:
            thresholds = pyro.sample(
                layer.thresholds, thresholds_prior(self.response, num_items, zero)
            )
        if layer.dispersion is not None:
            dispersion = pyro.sample(
                layer.dispersion, dispersion_prior(self.response, self._sizes[0], zero)
            )
        batch = len(data) if data is not None else num_rows
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            if given is None or columns is None:
                each = root.distribution(root_params)
            else:
                each = BinaryVector(given.odds(columns, root_params["coefficients"]))
            attributes = pyro.sample(layer.parent, each, infer={"enumerate": "parallel"})
            predictor = LinearPredictor(layer.features(attributes), made_of, floors)
            eta = self.response.whole(predictor.tensor(), thresholds) if layer.tabled else predictor
            return pyro.sample(
                layer.child,
                ItemResponse(self.response, eta, dispersion),
                obs=data if data is None else data[..., :num_items],
            )


def _matrix_of(
    given: Any,
) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...] | None, tuple[str, ...] | None]:
    """Q-matrix as tuples, and the names of its rows and columns where it has some."""
    item_names = attribute_names = None
    given = as_frame(given)
    if is_frame(given):
        if len(given.columns) > 1 and holds_texts(
            given.iloc[:, 0]
        ):  # read from a file, the names of the items are its first column
            given = given.set_index(given.columns[0])
        attribute_names = tuple(str(name) for name in given.columns)
        index = getattr(given, "index", None)
        if index is not None and all(isinstance(name, str) for name in index):
            item_names = tuple(index)
        given = given.to_numpy()
    wanted = f"{OWNER}: q_matrix must be a table (items, attributes) of 0 and 1"
    try:
        matrix = np.array(
            given.detach().cpu().numpy() if isinstance(given, Tensor) else given, dtype=np.float64
        )
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{wanted}, got {given!r}") from None
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"{wanted}, got shape {matrix.shape}")
    bad = np.argwhere((matrix != 0) & (matrix != 1))
    if len(bad):
        j, k = bad[0]
        raise ValueError(f"{wanted}, got {matrix[j, k]:g} for item {j}, attribute {k}")
    for axis, what, other in (
        (1, "item", "asks for no attribute"),
        (0, "attribute", "is asked for by no item"),
    ):
        empty = np.flatnonzero(matrix.sum(axis) == 0)
        if len(empty):
            names = item_names if what == "item" else attribute_names
            shown = repr(names[empty[0]]) if names else str(empty[0])
            raise ValueError(f"{OWNER}: q_matrix: {what} {shown} {other}; drop it or give it a 1")
    if matrix.shape[1] > matrix.shape[0]:
        raise ValueError(
            f"{OWNER}: q_matrix has more attributes than items, shape {matrix.shape}; rows are"
            " items, columns attributes"
        )
    return tuple(tuple(int(v) for v in row) for row in matrix), item_names, attribute_names


def _names(argument: str, given: Any, what: str, size: int) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (
        (given,)
        if isinstance(given, str)
        else tuple(str(name) for name in given)
        if isinstance(given, Iterable)
        else ()
    )
    if len(names) != size or len(set(names)) != size:
        raise ValueError(
            f"{OWNER}: {argument} must hold {size} different names, one for each of the {what}, got"
            f" {given!r}"
        )
    return names
