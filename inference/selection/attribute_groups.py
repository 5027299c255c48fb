r"""Do groups differ in what they master, and which items function differently? Both from one fit of
several groups.

*Laws.* With :math:`P_g` the law of the attributes of group g, the model with one law for all
groups, items as in the fit, is fitted from the mean of the laws, and

.. math:: 2 \{\ell(P_1, \dots, P_G) - \ell(P)\} \sim \chi^2_{(G - 1) d}

where all laws are the same, d the free numbers of a law. Profiles that hardly anybody has make that
test reject too seldom. The share :math:`m_{gk} = P_g(\alpha_k = 1)` that has an attribute is
compared between groups by a Wald test, :math:`d^\top (C \Sigma C^\top)^{-1} d` with d the
differences to the first group, C their derivatives and :math:`\Sigma` the inverse information, with
G - 1 degrees of freedom.

*Items.* A score test needs no further fit. At the fit in which item j is shared, let U be the
derivatives of the log-likelihood by the parameters of the model in which it has a version for each
group, and I that model's information there. Then

.. math:: S_j = U^\top I^{-1} U \sim \chi^2_{(G - 1) d_j}

where the item functions alike, with :math:`d_j` its parameters: what the likelihood ratio of
:func:`inference.selection.differential_items` tends to, which fits the model again for each item.
The information of all items' versions is worked out once, and U and I of one item are sums of its
rows and columns. I is the observed information; where an item differs so much that the
log-likelihood curves up in its versions, the sum :math:`\sum_i u_i u_i^\top` over rows takes its
place, of which :math:`U = \sum_i u_i`.

Source: C. R. Rao (1948), doi:10.1017/S0305004100023987 (score tests); C. A. W. Glas (1998),
Detection of differential item functioning using Lagrange multiplier tests, Statistica Sinica 8,
647-667.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from inference.base.drawing import Answer, draw
from inference.engines.em import EM
from inference.fitting.columns import checked_as_fitted
from inference.fitting.fit import fit as fitted
from inference.fitting.names import labels_of
from inference.fitting.result import Fit
from inference.identifiability.scores import row_scores
from inference.inspection.attribute_moments import holm
from inference.inspection.item_curves import errors_of
from inference.programs.curvature import generalised_inverse
from inference.programs.global_state import quiet
from inference.selection.differential_items import (
    AGAINST_OTHERS,
    LEVEL,
    clear_items,
    groups_of_fit,
    said_of_items,
    spread_params,
)
from inference.uncertainty import observed_information
from ppl_models.parts.distributions import binary_configurations

if TYPE_CHECKING:
    import pandas as pd


MAX_ATTRIBUTES = 14  # whose profiles are listed


@dataclass(frozen=True, eq=False, repr=False)
class GroupComparison(Answer):
    """What groups have in common and what not.

    Args:
        groups: G labels; sizes: rows of each, (G,); attributes: K names.
        mastery: P(attribute = 1) in each group, (G, K); errors: standard errors; NaN where the
            answers do not determine them.
        p_value: of equal shares of an attribute in all groups, (K,); p_adjusted: by Holm.
        profiles: (C, K) of 0 and 1; shares: of each in each group, (G, C).
        statistic, degrees, p_law: likelihood ratio of one law for all groups.
        bic_gain: by how much BIC rises if all groups get one law; above 0 speaks for laws of their
            own.
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
    p_law: float
    bic_gain: float

    @property
    def differs(self) -> bool:
        """Whether the laws of the groups differ, at 5 %."""
        return self.p_law < LEVEL

    @property
    def table(self) -> pd.DataFrame:
        """One line an attribute: its share in each group, and the p-value of no difference."""
        import pandas as pd

        columns: dict[str, Any] = {}
        for g, group in enumerate(self.groups):
            columns |= {group: self.mastery[g], f"error, {group}": self.errors[g]}
        return pd.DataFrame(
            columns | {"p_value": self.p_value, "p_adjusted": self.p_adjusted},
            index=pd.Index(self.attributes, name="attribute"),
        )

    def plot(self, ax: Any = None) -> Any:
        """Shares of each attribute by group, with 95 % intervals; see
        :func:`inference.plots.attribute_groups.plot_group_mastery`.
        """
        return draw("plot_group_mastery", self, ax)

    @property
    def headline(self) -> str:
        sure = (
            f"(likelihood ratio {self.statistic:.1f} on {self.degrees} degrees of freedom, p ="
            f" {self.p_law:.2g})"
        )
        if not self.differs:
            return (
                "The groups do not differ in their profiles of attributes, as far as these rows"
                f" can tell {sure}."
            )
        return f"The groups differ in their profiles of attributes {sure}."

    @property
    def sentences(self) -> tuple[str, ...]:
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

    def text(self) -> str:
        """What was found, in a sentence or two."""
        return " ".join((self.headline, *self.sentences))

    def _shares(self, k: int) -> str:
        return ", ".join(
            f"{group} {100 * self.mastery[g, k]:.0f} %" for g, group in enumerate(self.groups)
        )


@dataclass(frozen=True, eq=False, repr=False)
class ItemScores(Answer):
    """Score tests of items that the groups share, one entry each; NaN where a test could not be
    made.

    Args:
        items: names; statistic, degrees, p_value; p_adjusted: by Holm, over these items.
    """

    items: tuple[str, ...]
    statistic: np.ndarray
    degrees: np.ndarray
    p_value: np.ndarray
    p_adjusted: np.ndarray

    @property
    def different(self) -> tuple[str, ...]:
        """Items that function differently, at 5 % for all of them together; the clearest first."""
        return clear_items(self.items, self.p_value, self.p_adjusted)

    @property
    def table(self) -> pd.DataFrame:
        """One line an item."""
        import pandas as pd

        columns = {
            name: getattr(self, name) for name in ("statistic", "degrees", "p_value", "p_adjusted")
        }
        return pd.DataFrame(columns, index=pd.Index(self.items, name="item"))

    def plot(self, ax: Any = None) -> Any:
        """How clearly each item functions differently; see
        :func:`inference.plots.attribute_groups.plot_item_scores`.
        """
        return draw("plot_item_scores", self, ax)

    @property
    def headline(self) -> str:
        return said_of_items(self.items, self.different)

    @property
    def sentences(self) -> tuple[str, ...]:
        return (AGAINST_OTHERS,) if self.different else ()

    def text(self) -> str:
        """What was found, in a sentence or two."""
        return " ".join((self.headline, *self.sentences))


def compare_groups(fit: Fit, data: Any) -> GroupComparison:
    """Shares of attributes and profiles by group, and whether they differ.

    Args:
        fit: of an :class:`~ppl_models.AttributeGroups` model.
        data: the data of the fit.

    Raises:
        ValueError: for a fit of another model, posterior draws, more than fourteen attributes, or
            an estimate that is not at a maximum.
    """
    structure = groups_of_fit(fit, "compare_groups")
    model, root = structure.model, structure.model.model.root_law()
    size, labels = model.layer().num_parents, tuple(model.groups)
    if root.profiles is None and size > MAX_ATTRIBUTES:
        raise ValueError(
            f"compare_groups: it lists the profiles, and those of {size} attributes are too many;"
            f" at most {MAX_ATTRIBUTES} attributes were expected"
        )
    profiles = binary_configurations(size) if root.profiles is None else root.profiles.double()
    table = checked_as_fitted(fit, data)[0]
    found = observed_information(fit, data)
    free = found.estimate.clone().requires_grad_()
    with torch.enable_grad():
        params = found.coordinates.params(free)
        shares = torch.stack(
            [
                root.distribution(structure.law_of(params, g)).log_prob(profiles).exp()
                for g in range(len(labels))
            ]
        )  # (G, C)
        mastery = shares @ profiles
        slopes = torch.stack(
            [torch.autograd.grad(one, free, retain_graph=True)[0] for one in mastery.ravel()]
        ).reshape(len(labels), size, -1)
    errors = errors_of(slopes.flatten(0, 1), found).reshape(len(labels), size)
    covariance, _ = found.covariance()
    p_value = np.full(size, np.nan)
    for k in np.flatnonzero(~np.isnan(errors).any(0)):
        contrasts, gaps = slopes[1:, k] - slopes[0, k], (mastery[1:, k] - mastery[0, k]).detach()
        p_value[k] = chi2.sf(
            float(
                gaps
                @ torch.linalg.pinv(contrasts @ covariance @ contrasts.mT, hermitian=True)
                @ gaps
            ),
            len(labels) - 1,
        )
    items, number = model.split(table)
    counts = np.array([int((number == g).sum()) for g in range(len(labels))])
    weights = torch.as_tensor(counts / counts.sum())
    start = {
        name: torch.tensordot(weights.to(value), value, 1) if name in root.sites() else value
        for name, value in fit.params.items()
    }
    with quiet():  # versions of items that a group never answers are no surprise here
        same = fitted(model.of_versions(), items, EM(tolerance=1e-9), init=start)
    statistic, degrees = (
        max(0.0, 2 * (fit.log_likelihood - same.log_likelihood)),
        (len(labels) - 1) * root.num_free,
    )
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
    """Which items that the groups share function differently, without fitting again.

    Args:
        fit: of an :class:`~ppl_models.AttributeGroups` model, converged.
        data: the data of the fit.

    Raises:
        ValueError: for a fit of another model, posterior draws, or where fewer than two items are
            shared.
    """
    model = groups_of_fit(fit, "item_scores").model
    shared = [j for j in range(model.num_items) if j not in model.free_items]
    if len(shared) < 2:
        raise ValueError(
            "item_scores: one item is shared; with it free nothing would make the groups comparable"
        )
    statistic, degrees = np.full(len(shared), np.nan), np.full(len(shared), np.nan)
    for free in (shared[1:], shared[:1]):  # one item at least stays shared
        own = replace(model, free_items=(*model.free_items, *free))
        record = replace(fit, model=own, params=spread_params(model, own, fit.params))
        information, scores = observed_information(record, data), row_scores(record, data)[0]
        common = _sums(own, information.names, None)
        for j in free:
            apart, place = _sums(own, information.names, j), shared.index(j)
            for matrix in (information.matrix, scores.mT @ scores):
                more, less = (_quadratic(scores.sum(0), matrix, sums) for sums in (apart, common))
                if more is not None and less is not None:
                    statistic[place], degrees[place] = (
                        max(0.0, more[0] - less[0]),
                        more[1] - less[1],
                    )
                    break
    p_value = np.where(degrees > 0, chi2.sf(statistic, np.maximum(degrees, 1)), np.nan)
    labels = model.model.item_names or tuple(str(j) for j in range(model.num_items))
    return ItemScores(tuple(labels[j] for j in shared), statistic, degrees, p_value, holm(p_value))


def _sums(model: Any, names: tuple[str, ...], apart: int | None) -> Tensor:
    """Which entries move together, (P, Q): those of all versions of an item but of the one that is
    taken apart.
    """
    layer = model.layer()
    versions = model.versions
    dispersed = [
        v
        for _, columns, part in layer.response.blocks(layer.num_children)
        if part.stop > part.start
        for v in range(layer.num_children)[columns]
    ]
    keys: list[tuple[Any, ...]] = []
    for name in names:
        site, _, inside = name.partition("[")
        place = tuple(int(part) for part in inside.rstrip("]").split(",")) if inside else ()
        if site in (layer.loadings, layer.intercepts, layer.dispersion):
            item, group = versions[dispersed[place[0]] if site == layer.dispersion else place[0]]
            keys.append((site, item, group if item == apart else None, *place[1:]))
        else:
            keys.append((site, *place))
    order = {key: c for c, key in enumerate(dict.fromkeys(keys))}
    out = torch.zeros(len(names), len(order), dtype=torch.float64)
    out[torch.arange(len(names)), torch.tensor([order[key] for key in keys])] = 1.0
    return out


def _quadratic(score: Tensor, information: Tensor, sums: Tensor) -> tuple[float, int] | None:
    """U' I^-1 U of entries that move together, and its degrees of freedom; None where the
    log-likelihood curves up.
    """
    own, inner = sums.mT @ score, sums.mT @ information @ sums
    try:
        inverse, flat = generalised_inverse(inner, tuple(map(str, range(len(own)))))
    except ValueError:
        return None
    return float(own @ inverse @ own), len(own) - flat.shape[1]
