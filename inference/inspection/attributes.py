r"""Expected responses and moments of items given profiles of attributes.

Items are taken on the scale of their statistic T (the answer itself; the logarithm of LogNormal
items). Given a profile they are independent with

.. math::

    \mu_{\alpha j} = E[T_j \mid \alpha] = A'(\eta_{\alpha j}), \qquad v_{\alpha j} =
    \mathrm{Var}[T_j \mid \alpha] = A''(\eta_{\alpha j}) / s_j,
    \qquad \log p(\alpha \mid x) = \log p_\alpha + \sum_j s_j \{ T_j \eta_{\alpha j} -
    A(\eta_{\alpha j}) \} + \text{const},

the sum over the items that were answered. Counts whose predictor is not the natural parameter
(negative binomial) have :math:`\mu + \mu^2 / s` for v, and their natural parameter and partition
for :math:`s \eta` and :math:`s A`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.fitting.columns import checked_as_fitted, labels_of
from inference.fitting.record import FitRecord
from inference.fitting.same_data import refuse_other_rows
from inference.programs.program import Params
from inference.structures.layers.attributes import AttributeStructure
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.responses import Bernoulli, NegativeBinomial, ResponseFamily, filled

MOST_ASKED = 10  # of one item, for all its profiles
SLACK = 1e-9


@dataclass(frozen=True)
class Reversal:
    """An item whose expected response falls where an attribute is added.

    Args:
        item, attribute: names.
        having: the item's other attributes that are present, names.
        fall: by how much the expected response falls.
    """

    item: str
    attribute: str
    having: tuple[str, ...]
    fall: float


def attribute_model(fit: FitRecord, owner: str, point: bool = False) -> AttributeStructure:
    """The structure of a fit of an attribute model, a point estimate where one is needed."""
    structure = fit.structure
    if not isinstance(structure, AttributeStructure):
        raise ValueError(
            f"{owner}: a fit of a LatentAttributeModel was expected, got one of {fit.model_name}"
        )
    if point and fit.draws is not None:
        raise ValueError(
            f"{owner}: a point estimate was expected, got posterior draws; fit with EM()"
        )
    return structure


def moment_model(fit: FitRecord, owner: str, point: bool = False) -> AttributeStructure:
    """Structure of a fit of attributes for questions about means and variances of items.

    All rows must have one distribution of the attributes.
    """
    structure = attribute_model(fit, owner, point)
    if structure.layers[0].tabled:
        raise ValueError(
            f"{owner}: items that are right or wrong, counts or measurements were expected, and"
            " some here are categories"
        )
    if structure.covariates is not None:
        raise ValueError(
            f"{owner}: one distribution of the attributes for all rows was expected, and here it"
            f" depends on {', '.join(structure.covariates.names)}"
        )
    return structure


@dataclass(frozen=True, eq=False)
class Rise:
    """Rise of expected responses with one attribute, of items that use the same attributes.

    Args:
        items: their numbers; attribute: the one that is added; others: the other attributes they
            ask for, numbers.
        having: which of the others are present, bool (C, len(others)).
        rise: of the expected response, (C, len(items)).
    """

    items: list[int]
    attribute: int
    others: list[int]
    having: Tensor
    rise: Tensor


def items_alike(
    structure: AttributeStructure, edges: Tensor, owner: str
) -> Iterator[tuple[list[int], list[int], Tensor, Tensor]]:
    """Items with the same attributes, these, and the profiles that tell them, (L, a) and (L, K)."""
    for own in edges.unique(dim=0):
        asked = own.nonzero().ravel().tolist()
        if len(asked) > MOST_ASKED:
            raise ValueError(
                f"{owner}: items with at most {MOST_ASKED} attributes were expected, got one"
                f" with {len(asked)}"
            )
        values = structure.allowed(asked)
        profiles = torch.zeros(len(values), edges.shape[1], dtype=values.dtype)
        profiles[:, asked] = values
        yield (edges == own).all(-1).nonzero().ravel().tolist(), asked, values, profiles


def rises(fit: FitRecord, owner: str) -> Iterator[Rise]:
    """Rises of expected responses with each attribute, at the profiles that are allowed.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.

    Raises:
        ValueError: for another model, or an item with more than ten attributes.
    """
    structure = attribute_model(fit, owner)
    layer = structure.layers[0]
    edges = layer.item_edges
    if edges is None:  # the penalty's own zeros
        edges = layer.by_item(fit.params[layer.loadings].cpu() != 0)
    for items, asked, values, profiles in items_alike(structure, edges, owner):
        # (2^a, j)
        expected = structure.expected_responses(fit.params, profiles).detach().cpu()[:, items]
        codes = (2 ** torch.arange(len(asked) - 1, -1, -1)).to(values)
        numbers = values @ codes
        for place, attribute in enumerate(asked):
            # pairs of profiles between which the attribute comes in, and all others stay
            steps = numbers.unsqueeze(-1) + codes[place] == numbers
            low, high = (steps & (values[:, place] == 0).unsqueeze(-1)).nonzero().unbind(-1)
            others = [k for k in range(len(asked)) if k != place]
            yield Rise(
                items, attribute, [asked[k] for k in others],
                values[low][:, others] > 0, expected[high] - expected[low],
            )  # fmt: skip


def reversals(fit: FitRecord) -> list[Reversal]:
    """Items whose expected response falls with an attribute, the largest falls first.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.

    Raises:
        ValueError: for another model, or an item with more than ten attributes.
    """
    layer = attribute_model(fit, "reversals").layers[0]
    attributes = [str(name) for name in labels_of(fit, "attribute", layer.num_parents)]
    items = [str(name) for name in labels_of(fit, "item", layer.num_items)]
    found = []
    for step in rises(fit, "reversals"):
        for c, j in (step.rise < -SLACK).nonzero().tolist():
            others = zip(step.others, step.having[c].tolist(), strict=True)
            having = tuple(attributes[k] for k, has in others if has)
            item, attribute = items[step.items[j]], attributes[step.attribute]
            found.append(Reversal(item, attribute, having, -float(step.rise[c, j])))
    return sorted(found, key=lambda reversal: -reversal.fall)


MAX_ATTRIBUTES = 14  # whose profiles are listed


@dataclass(frozen=True, eq=False)
class AttributeMoments:
    """Moments of each item given each profile; differentiable in the parameters.

    Args:
        log_weights: logarithms of the profiles' probabilities, (C,).
        slopes: s times the natural parameter, (C, J); offsets: s times the log-partition, (C, J):
            log p(x | profile) is linear in them.
        mean, variance: of the items' statistics, (C, J).
    """

    log_weights: Tensor
    slopes: Tensor
    offsets: Tensor
    mean: Tensor
    variance: Tensor

    def log_joint(self, answers: Answers) -> Tensor:
        """Log p(row, profile) up to a constant of the row, (N, C)."""
        return (
            (answers.statistic * answers.mask) @ self.slopes.mT
            - answers.mask @ self.offsets.mT
            + self.log_weights
        )

    @property
    def weights(self) -> Tensor:
        """The profiles' probabilities, (C,)."""
        return self.log_weights.exp()

    def detached(self) -> AttributeMoments:
        """Moments without derivatives."""
        parts = (self.log_weights, self.slopes, self.offsets, self.mean, self.variance)
        return AttributeMoments(*(part.detach() for part in parts))

    @property
    def expected(self) -> Tensor:
        """Means of the statistics over the population, (J,)."""
        return self.weights @ self.mean

    @property
    def covariance(self) -> Tensor:
        """Between the statistics over the population, (J, J)."""
        centred = self.mean - self.expected
        return (centred.mT * self.weights) @ centred + torch.diag(self.weights @ self.variance)


@dataclass(frozen=True, eq=False)
class Answers:
    """Rows as these questions need them.

    Args:
        statistic: T of the answers, (N, J), a valid number where one is missing.
        mask: 1 where answered, (N, J).
        items: J names.
    """

    statistic: Tensor
    mask: Tensor
    items: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """No answer is missing."""
        return bool((self.mask == 1).all())


def profiles_of(structure: AttributeStructure, owner: str) -> Tensor:
    """The profiles that the distribution of the attributes allows, (C, K)."""
    root, size = structure.root, structure.layers[0].num_parents
    if root.profiles is not None:
        return root.profiles.double()
    if size > MAX_ATTRIBUTES:
        raise ValueError(
            f"{owner}: it lists the profiles, and those of {size} attributes are too many; at most"
            f" {MAX_ATTRIBUTES} attributes were expected"
        )
    return binary_configurations(size)


def moments_of(structure: AttributeStructure, params: Params, profiles: Tensor) -> AttributeMoments:
    """The moments at some parameters."""
    layer = structure.layers[0]
    intercepts, loadings = layer.coefficients(params[layer.intercepts], params[layer.loadings])
    eta = layer.features(profiles.to(loadings)) @ loadings.mT + intercepts
    dispersion = None if layer.dispersion is None else params[layer.dispersion]
    scale = layer.response.scale(dispersion, layer.num_children)
    scale = torch.ones_like(eta[0]) if scale is None else scale
    log_weights = structure.root.distribution(params).log_prob(profiles.to(loadings))
    slopes = layer.response.natural(eta, dispersion) * scale
    offsets = layer.response.partition(eta, dispersion) * scale
    variances = []
    for family, columns, part in layer.response.blocks(layer.num_children):
        own = None if dispersion is None else dispersion[part]
        variances.append(_variance(family, eta[:, columns], scale[columns], own))
    variance = torch.cat(variances, -1)
    return AttributeMoments(log_weights, slopes, offsets, layer.response.mean(eta), variance)


def _variance(
    family: ResponseFamily, eta: Tensor, scale: Tensor, dispersion: Tensor | None
) -> Tensor:
    if isinstance(family, NegativeBinomial):
        assert dispersion is not None  # it has a size
        return eta.exp() + (2 * eta).exp() / dispersion
    return family.curvature(eta) / scale


def answers_of(fit: FitRecord, data: Any, owner: str) -> tuple[AttributeStructure, Params, Answers]:
    """The structure of a fit of attributes, its parameters in double precision, and the rows."""
    structure = moment_model(fit, owner, point=True)
    layer = structure.layers[0]
    refuse_other_rows(owner, fit, data)
    table, _ = checked_as_fitted(fit, data)
    complete, mask = filled(layer.response, table.double().cpu(), with_mask=True)
    mask = torch.ones_like(complete) if mask is None else mask
    names = tuple(str(name) for name in labels_of(fit, "item", layer.num_children))
    params = {name: value.detach().double().cpu() for name, value in fit.params.items()}
    return structure, params, Answers(layer.response.statistic(complete), mask, names)


def item_families(layer: GeneralizedLinearLayer) -> list[ResponseFamily]:
    """The elementary family of each item."""
    blocks = layer.response.blocks(layer.num_children)
    return [family for family, own, _ in blocks for _ in range(layer.num_children)[own]]


def refuse_penalty(layer: GeneralizedLinearLayer, owner: str) -> None:
    """Refuse loadings that a penalty pulled to zero."""
    if layer.penalty is not None:
        raise ValueError(
            f"{owner}: the loadings are penalised, and the statistic asks for maximum"
            " likelihood; refit fit.model.restricted([Q]) with the Q-matrix that the penalty found"
        )


def all_bernoulli(structure: AttributeStructure) -> bool:
    """Test for right-wrong items throughout."""
    layer = structure.layers[0]
    return all(
        isinstance(family, Bernoulli) for family, _, _ in layer.response.blocks(layer.num_items)
    )


def holm(p_values: np.ndarray) -> np.ndarray:
    r"""Adjust p-values by Holm's rule, in their places; NaN stay and are not counted.

    With the m p-values in rising order, :math:`\tilde p_{(i)} = \max_{l \le i} \min\{1, (m - l + 1)
    p_{(l)}\}`.

    Source: S. Holm (1979), A simple sequentially rejective multiple test procedure, Scandinavian
    Journal of Statistics 6, 65-70.
    """
    out = np.full(p_values.shape, np.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    steps = (len(order) - np.arange(len(order))) * p_values[order]
    out[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return out
