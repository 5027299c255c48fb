r"""Comparison of attribute distributions and items between groups, from one fit.

*Distributions.* With :math:`P_g` that of the attributes of group g, the model with one distribution
for all groups, items as in the fit, is fitted from the mean of them, and

.. math:: 2 \{\ell(P_1, \dots, P_G) - \ell(P)\} \sim \chi^2_{(G - 1) d}

where all are the same, d the free numbers of one. Profiles that hardly anybody has make that
test reject too seldom. The share :math:`m_{gk} = P_g(\alpha_k = 1)` that has an attribute is
compared between groups by a Wald test, :math:`d^\top (C \Sigma C^\top)^{-1} d` with d the
differences to the first group, C their derivatives and :math:`\Sigma` the inverse information, with
G - 1 degrees of freedom.

*Items, without a fit.* At the fit in which item j is shared, let U be the derivatives of the
log-likelihood by the parameters of the model in which it has a version for each group, and I that
model's information there. Then

.. math:: S_j = U^\top I^{-1} U \sim \chi^2_{(G - 1) d_j}

where the item functions alike, with :math:`d_j` its parameters: what the likelihood ratio of
:func:`inference.selection.differential_items` tends to, which fits the model again for each item.
The information of all items' versions is worked out once, and U and I of one item are sums of its
rows and columns. I is the observed information; where an item differs so much that the
log-likelihood curves up in its versions, the sum :math:`\sum_i u_i u_i^\top` over rows takes its
place, of which :math:`U = \sum_i u_i`.

*Items, one fit each.* The model is fitted again with item j free, from the fit at hand, and

.. math:: 2 \{\ell(\text{j free}) - \ell(\text{j shared})\} \sim \chi^2_{(G - 1) d_j}

where the item functions alike, with :math:`d_j` its parameters and G, in both, the groups that
answer it. Two Wald tests on the free fit say how it differs: with :math:`m_{jg} = b_{jg} + W_{jg}
\cdot \mu` the mean predictor over the people of all groups, *uniform* differences are those of
:math:`m_{jg}` (G - 1 degrees of freedom), *non-uniform* ones those of the loadings :math:`W_{jg}`,
that is, of what attributes do.

Each item is tested against all others as anchors: where many items differ, those that do not may
look as if they did. Free the worst and test again.

Source: C. R. Rao (1948), doi:10.1017/S0305004100023987 (score tests); C. A. W. Glas (1998),
Detection of differential item functioning using Lagrange multiplier tests, Statistica Sinica 8,
647-667; D. Thissen, L. Steinberg and H. Wainer (1993), in P. W. Holland and H. Wainer (eds.),
Differential Item Functioning; J. de la Torre and Y.-S. Lee (2013), doi:10.1111/jedm.12022 (Wald
tests of items of cognitive diagnosis).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from inference.base.drawing import Answer, draw
from inference.base.frames import pd
from inference.engines.em import EM
from inference.fitting.columns import checked_as_fitted, labels_of
from inference.fitting.fit import fit as fitted
from inference.fitting.record import FitRecord
from inference.fitting.result import Fit
from inference.fitting.same_data import refuse_other_data
from inference.identifiability.scores import row_scores
from inference.inspection.attributes import holm
from inference.inspection.item_curves import errors_of
from inference.programs.curvature import generalised_inverse
from inference.programs.global_state import quiet
from inference.programs.program import Params
from inference.structures.attribute_groups import AttributeGroupsStructure
from inference.uncertainty import Uncertainty, observed_information, standard_errors
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.surface import Renamed

LEVEL = 0.05
LEAST_PEOPLE = 1.0  # expected to have a profile, below which nobody has it
MAX_ATTRIBUTES = 14  # whose profiles are listed
AGAINST_OTHERS = (
    "Items are tested against all others, so free the clearest one (free_items=...), fit, and test"
    " again."
)


@dataclass(frozen=True, eq=False, repr=False)
class GroupComparison(Answer):
    """Mastery and profiles of groups, with tests of their differences.

    Args:
        groups: G labels; sizes: rows of each, (G,); attributes: K names.
        mastery: P(attribute = 1) in each group, (G, K); errors: standard errors; NaN where the
            answers do not determine them.
        p_value: of equal shares of an attribute in all groups, (K,); p_adjusted: by Holm.
        profiles: (C, K) of 0 and 1; shares: of each in each group, (G, C).
        statistic, degrees, p_distribution: likelihood ratio of one distribution for all groups.
        bic_gain: by how much BIC rises if all groups get one distribution; above 0 speaks for
            distributions of their own.
    """

    groups: tuple[str, ...]
    sizes: np.ndarray
    attributes: tuple[str, ...]
    mastery: np.ndarray
    errors: np.ndarray
    p_value: np.ndarray
    p_adjusted: np.ndarray
    profiles: np.ndarray
    shares: np.ndarray
    statistic: float
    degrees: int
    p_distribution: float
    bic_gain: float
    p_law = Renamed("p_distribution")

    @property
    def differs(self) -> bool:
        """Significance of the difference between the groups' distributions, at 5 %."""
        return self.p_distribution < LEVEL

    @property
    def table(self) -> pd.DataFrame:
        """One line an attribute: its share in each group, and the p-value of no difference."""
        columns: dict[str, Any] = {}
        for g, group in enumerate(self.groups):
            columns |= {group: self.mastery[g], f"error, {group}": self.errors[g]}
        return pd.DataFrame(
            columns | {"p_value": self.p_value, "p_adjusted": self.p_adjusted},
            index=pd.Index(self.attributes, name="attribute"),
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw shares by group; see :func:`inference.plots.attributes.plot_group_mastery`."""
        return draw("plot_group_mastery", self, ax)

    @property
    def headline(self) -> str:
        """Likelihood-ratio test of one distribution for all groups, in a sentence."""
        sure = (
            f"(likelihood ratio {self.statistic:.1f} on {self.degrees} degrees of freedom, p ="
            f" {self.p_distribution:.2g})"
        )
        if not self.differs:
            return (
                "The groups do not differ in their profiles of attributes, as far as these rows"
                f" can tell {sure}."
            )
        return f"The groups differ in their profiles of attributes {sure}."

    @property
    def sentences(self) -> tuple[str, ...]:
        """Attributes whose shares differ, in a sentence."""
        if not self.differs:
            return ()
        clear = [
            k
            for k in np.argsort(np.nan_to_num(self.p_adjusted, nan=1.0), kind="stable")
            if self.p_adjusted[k] < LEVEL
        ]
        if not clear:
            return (
                (
                    "No single attribute stands out: the difference lies in how attributes go"
                    " together."
                ),
            )
        return (
            "Shares that have an attribute differ for "
            + "; ".join(f"{self.attributes[k]} ({self._shares(k)})" for k in clear)
            + ".",
        )

    def _shares(self, k: int) -> str:
        return ", ".join(
            f"{group} {100 * self.mastery[g, k]:.0f} %" for g, group in enumerate(self.groups)
        )


@dataclass(frozen=True, eq=False, repr=False)
class ItemTests(Answer):
    """Tests of items that the groups share; NaN where a test could not be made.

    Args:
        items: their names.
        statistic: of each item.
        degrees: of freedom.
        p_value: of an item that functions alike.
        p_adjusted: by Holm, over these items.
    """

    items: tuple[str, ...]
    statistic: np.ndarray
    degrees: np.ndarray
    p_value: np.ndarray
    p_adjusted: np.ndarray

    @property
    def different(self) -> tuple[str, ...]:
        """Items that function differently, at 5 % for all of them together; the clearest first."""
        order = np.argsort(np.nan_to_num(self.p_value, nan=1.0), kind="stable")
        return tuple(self.items[i] for i in order if self.p_adjusted[i] < LEVEL)

    @property
    def table(self) -> pd.DataFrame:
        """One line an item."""
        names = [field.name for field in fields(self) if field.name != "items"]
        return pd.DataFrame(
            {name: getattr(self, name) for name in names}, index=pd.Index(self.items, name="item")
        )

    @property
    def headline(self) -> str:
        """Items that function differently, in a sentence."""
        if not self.different:
            return (
                f"None of the {len(self.items)} items that the groups share functions differently,"
                " as far as these rows can tell."
            )
        return (
            f"{len(self.different)} of the {len(self.items)} items that the groups share"
            f" function{'s' * (len(self.different) == 1)} differently: people of different groups"
            f" who have the same attributes answer them differently: {', '.join(self.different)}."
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Next step, in a sentence."""
        return (AGAINST_OTHERS,) if self.different else ()


class ItemScores(ItemTests):
    """Score tests of items, without a further fit."""

    def plot(self, ax: Any = None) -> Any:
        """Draw p-values; see :func:`inference.plots.attributes.plot_item_scores`."""
        return draw("plot_item_scores", self, ax)


@dataclass(frozen=True, eq=False, repr=False)
class DifferentialItems(ItemTests):
    """Likelihood-ratio tests of items, each from a fit with the item free.

    Args:
        uniform: Wald statistic of equal mean predictors over the people, one degree a group but
            one.
        uniform_p: its p-value.
        non_uniform: Wald statistic of equal loadings.
        non_uniform_p: its p-value.
        effect: the largest difference between groups of the expected response, over the profiles
            that somebody has.
        lowest: name of the group that is expected to answer lowest there.
    """

    uniform: np.ndarray
    uniform_p: np.ndarray
    non_uniform: np.ndarray
    non_uniform_p: np.ndarray
    effect: np.ndarray
    lowest: np.ndarray

    @property
    def sentences(self) -> tuple[str, ...]:
        """Largest differences and the next step, in sentences."""
        if not self.different:
            return ()
        places = [self.items.index(name) for name in self.different]
        largest = [
            f"{self.items[i]} ({self.effect[i]:.2f}, lowest for {self.lowest[i]})" for i in places
        ]
        return (
            (
                "The largest difference between groups of what is expected of people with the same"
                f" attributes: {', '.join(largest)}."
            ),
            AGAINST_OTHERS,
        )


def compare_groups(fit: Fit, data: Any) -> GroupComparison:
    """Shares of attributes and profiles by group, and whether they differ.

    Args:
        fit: of an :class:`~ppl_models.AttributeGroups` model.
        data: the data of the fit.

    Raises:
        ValueError: for a fit of another model, posterior draws, weights, labels, fixed or tied
            parameters, more than fourteen attributes, or an estimate that is not at a maximum.
    """
    structure = _asked(fit, "compare_groups")
    model, root = structure.model, structure.model.model.root_layer()
    size, labels = model.layer().num_parents, tuple(model.groups)
    if root.profiles is None and size > MAX_ATTRIBUTES:
        raise ValueError(
            f"compare_groups: it lists the profiles, and those of {size} attributes are too many;"
            f" at most {MAX_ATTRIBUTES} attributes were expected"
        )
    refuse_other_data("compare_groups", fit, data)
    profiles = binary_configurations(size) if root.profiles is None else root.profiles.double()
    table = checked_as_fitted(fit, data)[0]
    information = observed_information(fit, data)
    free = information.estimate.clone().requires_grad_()
    with torch.enable_grad():
        params = information.coordinates.params(free)
        distributions = [
            root.distribution(structure.params_of(params, g)) for g in range(len(labels))
        ]
        shares = torch.stack(
            [distribution.log_prob(profiles).exp() for distribution in distributions]
        )  # (G, C)
        mastery = shares @ profiles
        slopes = torch.stack(
            [torch.autograd.grad(share, free, retain_graph=True)[0] for share in mastery.ravel()]
        ).reshape(len(labels), size, -1)
    errors = errors_of(slopes.flatten(0, 1), information).reshape(len(labels), size)
    covariance, _ = information.covariance()
    p_value = np.full(size, np.nan)
    for k in np.flatnonzero(~np.isnan(errors).any(0)):
        contrasts, gaps = slopes[1:, k] - slopes[0, k], (mastery[1:, k] - mastery[0, k]).detach()
        inverse = torch.linalg.pinv(contrasts @ covariance @ contrasts.mT, hermitian=True)
        p_value[k] = chi2.sf(float(gaps @ inverse @ gaps), len(labels) - 1)
    items, number = model.split(table)
    counts = np.array([int((number == g).sum()) for g in range(len(labels))])
    weights = torch.as_tensor(counts / counts.sum())
    start = {
        name: torch.tensordot(weights.to(value), value, 1) if name in root.sites() else value
        for name, value in fit.params.items()
    }
    with quiet():  # versions of items that a group never answers are no surprise here
        same = fitted(model.of_versions(), items, EM(tolerance=1e-9), init=start)
    statistic = max(0.0, 2 * (fit.log_likelihood - same.log_likelihood))
    degrees = (len(labels) - 1) * root.num_free
    names = tuple(str(name) for name in labels_of(fit, "attribute", size))
    return GroupComparison(
        labels,
        counts,
        names,
        mastery.detach().numpy(),
        errors,
        p_value,
        holm(p_value),
        profiles.numpy(),
        shares.detach().numpy(),
        statistic,
        degrees,
        float(chi2.sf(statistic, degrees)),
        same.bic - fit.bic,
    )


def item_scores(fit: Fit, data: Any) -> ItemScores:
    """Test items that the groups share by their scores, without fitting again.

    Args:
        fit: of an :class:`~ppl_models.AttributeGroups` model, converged.
        data: the data of the fit.

    Raises:
        ValueError: for a fit of another model, posterior draws, weights, fixed or tied parameters,
            or where fewer than two items are shared.
    """
    model = groups_of_fit(fit, "item_scores").model
    if fit.fixed or fit.tied:
        raise ValueError("item_scores: not worked out for a fit with fixed or tied parameters")
    shared = [j for j in range(model.num_items) if j not in model.free_items]
    if len(shared) < 2:
        raise ValueError(
            "item_scores: one item is shared; with it free nothing would make the groups comparable"
        )
    refuse_other_data("item_scores", fit, data)
    answering = _answering(fit, data)
    statistic, degrees = np.full(len(shared), np.nan), np.full(len(shared), np.nan)
    for free in (shared[1:], shared[:1]):  # one item at least stays shared
        freed = replace(model, free_items=(*model.free_items, *free))
        record = replace(fit, model=freed, params=spread_params(model, freed, fit.params))
        information = observed_information(record, data)
        scores, _ = row_scores(record, data, with_labels=True)
        common = _sums(freed, information.names, None, [])
        for j in free:
            place = shared.index(j)
            if len(answering[j]) < 2:  # nobody to compare with
                continue
            apart = _sums(freed, information.names, j, answering[j])
            for matrix in (information.matrix, scores.mT @ scores):
                more, less = (_quadratic(scores.sum(0), matrix, sums) for sums in (apart, common))
                if more is not None and less is not None:
                    statistic[place] = max(0.0, more[0] - less[0])
                    degrees[place] = more[1] - less[1]
                    break
    p_value = np.where(degrees > 0, chi2.sf(statistic, np.maximum(degrees, 1)), np.nan)
    labels = model.model.item_names or tuple(str(j) for j in range(model.num_items))
    return ItemScores(tuple(labels[j] for j in shared), statistic, degrees, p_value, holm(p_value))


def _answering(fit: FitRecord, data: Any) -> list[list[int]]:
    """Numbers of the groups that answer each item."""
    table = checked_as_fitted(fit, data)[0]
    answered, number = ~table[:, :-1].isnan(), table[:, -1]
    groups = range(len(fit.structure.model.groups))
    seen = torch.stack([answered[number == g].any(0) for g in groups])  # (G, J)
    return [own.nonzero().ravel().tolist() for own in seen.mT]


def _sums(
    model: Any, names: tuple[str, ...], apart: int | None, answering: Sequence[int]
) -> Tensor:
    """Return which entries move together, (P, Q): of all versions of an item but ``apart``.

    Of that item the versions of groups that do not answer it move with the first that does.
    """
    layer = model.layer()
    versions = model.versions
    dispersed = _dispersed(model)
    keys: list[tuple[Any, ...]] = []
    for name in names:
        site, _, inside = name.partition("[")
        place = tuple(int(part) for part in inside.rstrip("]").split(",")) if inside else ()
        if site in (layer.loadings, layer.intercepts, layer.dispersion):
            item, group = versions[dispersed[place[0]] if site == layer.dispersion else place[0]]
            own = group if item != apart or group in answering else answering[0]
            keys.append((site, item, own if item == apart else None, *place[1:]))
        else:
            keys.append((site, *place))
    order = {key: c for c, key in enumerate(dict.fromkeys(keys))}
    out = torch.zeros(len(names), len(order), dtype=torch.float64)
    out[torch.arange(len(names)), torch.tensor([order[key] for key in keys])] = 1.0
    return out


def _quadratic(score: Tensor, information: Tensor, sums: Tensor) -> tuple[float, int] | None:
    """Return U' I^-1 U of entries that move together, and its degrees of freedom.

    None where the log-likelihood curves up.
    """
    score_sums, information_sums = sums.mT @ score, sums.mT @ information @ sums
    try:
        inverse, flat = generalised_inverse(
            information_sums, tuple(map(str, range(len(score_sums))))
        )
    except ValueError:
        return None
    return float(score_sums @ inverse @ score_sums), len(score_sums) - flat.shape[1]


def differential_items(
    fit: Fit, data: Any, items: Sequence[int | str] | None = None, method: EM | None = None
) -> DifferentialItems:
    """Test items that the groups share.

    Args:
        fit: of an :class:`~ppl_models.AttributeGroups` model.
        data: the data of the fit.
        items: by number from 0 or by name; all that are shared if None.
        method: of the fits with an item free; ``EM(tolerance=1e-9)`` if None.

    Raises:
        ValueError: for a fit of another model, weights, labels, fixed or tied parameters, an item
            that there is not or that is free already, or where no other item would be shared.
    """
    model = _asked(fit, "differential_items").model
    shared = [j for j in range(model.num_items) if j not in model.free_items]
    try:
        chosen = (
            shared if items is None else list(replace(model, free_items=tuple(items)).free_items)
        )
    except ValueError as error:
        raise ValueError(f"differential_items: items: {error}") from None
    taken = [j for j in chosen if j not in shared]
    if taken:
        raise ValueError(f"differential_items: item {taken[0]} is free in this fit already")
    if len(shared) < 2:
        raise ValueError(
            "differential_items: one item is shared; with it free nothing would make the groups"
            " comparable"
        )
    refuse_other_data("differential_items", fit, data)
    names = model.model.item_names or tuple(str(j) for j in range(model.num_items))
    answering = _answering(fit, data)
    columns: list[tuple[float, ...]] = []
    for j in chosen:
        freed = replace(model, free_items=(*model.free_items, j))
        again = fitted(
            freed, data, method or EM(tolerance=1e-9), init=spread_params(model, freed, fit.params)
        )
        columns.append(_tests(fit, again, data, j, answering[j]))
    statistic, degrees, p_value, *walds, effect, lowest = np.array(columns).T
    uniform, uniform_p, non_uniform, non_uniform_p = walds
    return DifferentialItems(
        items=tuple(names[j] for j in chosen),
        statistic=statistic,
        degrees=degrees,
        p_value=p_value,
        p_adjusted=holm(p_value),
        uniform=uniform,
        uniform_p=uniform_p,
        non_uniform=non_uniform,
        non_uniform_p=non_uniform_p,
        effect=effect,
        lowest=np.array(model.groups, dtype=object)[lowest.astype(int)],
    )


def groups_of_fit(fit: FitRecord, owner: str) -> AttributeGroupsStructure:
    """The structure of a fit of several groups."""
    structure = fit.structure
    if not isinstance(structure, AttributeGroupsStructure):
        raise ValueError(
            f"{owner}: a fit of an AttributeGroups model was expected, got one of {fit.model_name}"
        )
    return structure


def _asked(fit: Fit, owner: str) -> AttributeGroupsStructure:
    """The structure of a fit of several groups, whose rivals may be fitted to the rows alone."""
    fit.refuse_labels(owner)
    return groups_of_fit(fit, owner)


def spread_params(model: Any, freed: Any, params: Params) -> Params:
    """Parameters of the same distribution with more items free: their versions begin alike."""
    before = {version: v for v, version in enumerate(model.versions)}
    places = [before.get(version, before.get((version[0], None), 0)) for version in freed.versions]
    layer, roots = model.layer(), model.model.root_layer().sites()
    out = {name: value for name, value in params.items() if name in roots}
    out |= {name: params[name][places] for name in (layer.loadings, layer.intercepts)}
    if layer.dispersion is not None:
        out[layer.dispersion] = _dispersions(model, freed, params[layer.dispersion], places)
    return out


def _dispersed(model: Any) -> list[int]:
    """The versions that have a dispersion, in its order."""
    layer = model.layer()
    blocks = layer.response.blocks(layer.num_children)
    return [
        v
        for _, columns, part in blocks
        if part.stop > part.start
        for v in range(layer.num_children)[columns]
    ]


def _dispersions(model: Any, freed: Any, value: Tensor, places: list[int]) -> Tensor:
    positions = {v: d for d, v in enumerate(_dispersed(model))}
    return value[[positions[places[v]] for v in _dispersed(freed)]]


def _tests(
    fit: Fit, again: Fit, data: Any, item: int, answering: Sequence[int]
) -> tuple[float, ...]:
    """Tests of an item between the groups that answer it."""
    model = again.structure.model
    if len(answering) < 2:  # nobody to compare with
        return (*[np.nan] * 8, float((*answering, 0)[0]))
    versions = [v for v, (j, g) in enumerate(model.versions) if j == item and g in answering]
    statistic = max(0.0, 2 * (again.log_likelihood - fit.log_likelihood))
    every = again.structure.num_free(again.params) - fit.structure.num_free(fit.params)
    degrees = every // (len(model.groups) - 1) * (len(answering) - 1)  # of a version for each
    layer = model.layer()
    loadings = again.params[layer.loadings]
    graph = loadings != 0 if layer.graph is None else layer.graph
    used = graph[versions[0]].nonzero().ravel().tolist()
    profiles, people = _people(again, data)
    met = people >= LEAST_PEOPLE
    expected = model.expected_responses(again.params, profiles[met].to(loadings))[:, versions]
    apart = expected.amax(-1) - expected.amin(-1)
    effect = float(apart.max())
    lowest = float(answering[int(expected[apart.argmax()].argmin())])
    walds = [np.nan] * 4
    try:
        errors = standard_errors(again, data, hold_bounds=True)
    except ValueError:  # without a normal distribution: the likelihood ratio alone
        errors = None
    if errors is not None:
        centre = people.to(loadings) / people.sum() @ layer.features(profiles.to(loadings))
        level = [
            {f"{layer.intercepts}[{v}]": 1.0}
            | {f"{layer.loadings}[{v},{t}]": float(centre[t]) for t in used}
            for v in versions
        ]
        rise = [{f"{layer.loadings}[{v},{t}]": 1.0} for t in used for v in versions]
        size = len(versions)
        walds[:2] = _wald(errors, [_less(level[i], level[0]) for i in range(1, size)])
        firsts = [(k * size, i) for k in range(len(used)) for i in range(1, size)]
        walds[2:] = _wald(errors, [_less(rise[k + i], rise[k]) for k, i in firsts])
    return (statistic, float(degrees), float(chi2.sf(statistic, degrees)), *walds, effect, lowest)


def _people(fit: Fit, data: Any) -> tuple[Tensor, Tensor]:
    """Profiles that the attributes' distribution allows, (C, K), and the people of each, (C,)."""
    structure = groups_of_fit(fit, "differential_items")
    model, root = structure.model, structure.model.model.root_layer()
    size = model.layer().num_parents
    profiles = binary_configurations(size) if root.profiles is None else root.profiles.double()
    number = model.split(checked_as_fitted(fit, data)[0])[1]
    people = torch.zeros(len(profiles), dtype=torch.float64)
    for g in range(len(model.groups)):
        own = root.distribution(structure.params_of(fit.params, g)).log_prob(profiles).exp()
        people += own.detach().cpu().double() * int((number == g).sum())
    return profiles, people


def _less(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) - second.get(name, 0.0) for name in {*first, *second}}


def _wald(errors: Uncertainty, contrasts: list[dict[str, float]]) -> tuple[float, float]:
    """Return statistic and p-value of all contrasts being zero.

    NaN where one has an entry without a standard error.
    """
    place = {name: i for i, name in enumerate(errors.names)}
    if any(name not in place for contrast in contrasts for name in contrast):
        return np.nan, np.nan
    matrix = torch.zeros(len(contrasts), len(errors.names), dtype=errors.covariance.dtype)
    for row, contrast in enumerate(contrasts):
        for name, weight in contrast.items():
            matrix[row, place[name]] = weight
    value = matrix @ errors.estimate
    spread = matrix @ errors.covariance @ matrix.mT
    statistic = float(value @ torch.linalg.solve(spread, value))
    return statistic, float(chi2.sf(statistic, len(contrasts)))
