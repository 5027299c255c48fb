r"""Rows classified by their attributes, and how far to trust that; items that fall where they should rise.

With :math:`\varphi_{i\alpha} = P(\alpha \mid x_i)` and :math:`m_{ik} = P(\alpha_k = 1 \mid x_i)`, the expected shares of rows
classified rightly by the most probable profile, and attribute by attribute, are

.. math:: \hat\tau = \frac1N \sum_i \max_\alpha \varphi_{i\alpha}, \qquad
    \hat\tau_k = \frac1N \sum_i \max(m_{ik}, 1 - m_{ik}),

and the expected agreement of two independent draws from a row's posterior

.. math:: \hat\gamma = \frac1N \sum_i \sum_\alpha \varphi_{i\alpha}^2, \qquad
    \hat\gamma_k = \frac1N \sum_i \{ m_{ik}^2 + (1 - m_{ik})^2 \}.

They are right as far as the model and its parameters are. Parameters that were estimated from the same rows make them a little too high: with 1,000 rows, 30
items and five attributes by less than .01 for single attributes, and by .01 (DINA items) to .02 (additive ones) for whole profiles
(``benchmarks/attributes.py``).

Source: W. Wang, L. Song, P. Chen, Y. Meng and S. Ding (2015), doi:10.1111/jedm.12096; Y. Cui, M. J. Gierl and H.-H. Chang (2012),
doi:10.1111/j.1745-3984.2011.00158.x.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.fitting.names import labels_of
from inference.fitting.record import FitRecord
from inference.fitting.rows import chunks, sums_out
from inference.structures.layers.attributes import AttributeStructure
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.showing import shows_briefly

__all__ = ["Classification", "Reversal", "attribute_model", "classify_rows", "reversals", "rises"]

LEAST_ACCURACY = 0.8  # below it an attribute is flagged
MAX_ATTRIBUTES = 10  # of one item, for all its profiles
SLACK = 1e-9


@shows_briefly
@dataclass(frozen=True, eq=False)
class Classification:
    """What the answers of each row say of its attributes.

    Args:
        attributes: K names.
        profiles: the most probable profile of each row, (N, K) of 0 and 1.
        profile_probability: of that profile, (N,).
        probabilities: P(attribute = 1 | row), (N, K).
        accuracy: expected share of rows whose most probable profile is the true one.
        consistency: expected agreement of two draws of a row's profile from its posterior.
        attribute_accuracy, attribute_consistency: the same attribute by attribute, with each classified by itself, (K,).
        confusion: expected shares of rows, (K, 2, 2): attribute k truly 0 or 1 (rows) and classified 0 or 1 (columns).
    """

    attributes: tuple[str, ...]
    profiles: np.ndarray
    profile_probability: np.ndarray
    probabilities: np.ndarray
    accuracy: float
    consistency: float
    attribute_accuracy: np.ndarray
    attribute_consistency: np.ndarray
    confusion: np.ndarray

    @property
    def doubtful(self) -> tuple[str, ...]:
        """The attributes that fewer than four rows in five are expected to be classified rightly on."""
        return tuple(name for name, share in zip(self.attributes, self.attribute_accuracy, strict=True) if share < LEAST_ACCURACY)


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


def attribute_model(fit: FitRecord, owner: str) -> AttributeStructure:
    """The structure of a fit of an attribute model.

    Raises:
        ValueError: for another model.
    """
    structure = fit.structure
    if not isinstance(structure, AttributeStructure):
        raise ValueError(f"{owner}: a fit of a LatentAttributeModel was expected, got one of {fit.model_name}")
    return structure


def classify_rows(fit: FitRecord, data: Any) -> Classification:
    """Attributes and profiles of rows, with the expected accuracy and consistency of the classification.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.
        data: (N, J), NaN where missing.

    Raises:
        ValueError: for another model, data that do not fit it, or more profiles than can be listed.
    """
    layer = attribute_model(fit, "classify_rows").layers[0]
    modes, tops, squares, means = [], [], [], []
    for program in chunks(fit, data):
        if not sums_out(fit, program):
            raise ValueError(
                f"classify_rows: the profiles of {layer.num_parents} attributes are too many to list; fit.posterior_latents(data) has the "
                "probability of each attribute"
            )
        posterior = program.latent_marginals(fit.params)[layer.parent]  # (n, C)
        values = program.latent_values(fit.params)[layer.parent].to(posterior)
        top, place = posterior.max(-1)
        modes.append(values[place])
        tops.append(top)
        squares.append(posterior.square().sum(-1))
        means.append((posterior @ values).clamp(0, 1))
    chance, sure = torch.cat(means), torch.cat(tops)
    said = (chance > 0.5).to(chance)
    confusion = torch.stack([torch.stack([(t * s).mean(0) for s in (1 - said, said)], -1) for t in (1 - chance, chance)], -2)
    return Classification(
        tuple(str(name) for name in labels_of(fit, "attribute", layer.num_parents)),
        torch.cat(modes).cpu().numpy(),
        sure.cpu().numpy(),
        chance.cpu().numpy(),
        float(sure.mean()),
        float(torch.cat(squares).mean()),
        torch.maximum(chance, 1 - chance).mean(0).cpu().numpy(),
        (chance.square() + (1 - chance).square()).mean(0).cpu().numpy(),
        confusion.cpu().numpy(),
    )


@dataclass(frozen=True, eq=False)
class Rise:
    """What an attribute adds to the expected responses of items that ask for the same attributes.

    Args:
        items: their numbers; attribute: the one that is added; others: the other attributes they ask for, numbers.
        having: which of the others are present, bool (C, len(others)).
        rise: of the expected response, (C, len(items)).
    """

    items: list[int]
    attribute: int
    others: list[int]
    having: Tensor
    rise: Tensor


def rises(fit: FitRecord, owner: str) -> Iterator[Rise]:
    """What each attribute adds to the items that ask for it, whatever they have of the others.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`; owner: who asks, for messages.

    Raises:
        ValueError: for another model, or an item with more than ten attributes.
    """
    structure = attribute_model(fit, owner)
    layer = structure.layers[0]
    edges = layer.edges if layer.edges is not None else fit.params[layer.loadings].cpu() != 0  # the penalty's own zeros
    for own in edges.unique(dim=0):
        asked = own.nonzero().ravel().tolist()
        if len(asked) > MAX_ATTRIBUTES:
            raise ValueError(f"{owner}: items with at most {MAX_ATTRIBUTES} attributes were expected, got one with {len(asked)}")
        items = (edges == own).all(-1).nonzero().ravel()
        values = binary_configurations(len(asked))
        profiles = torch.zeros(len(values), layer.num_parents, dtype=values.dtype)
        profiles[:, asked] = values
        expected = structure.expected_responses(fit.params, profiles).detach().cpu()[:, items]  # (2^a, j)
        for place, attribute in enumerate(asked):
            has = values[:, place] > 0
            others = [k for k in range(len(asked)) if k != place]
            yield Rise(items.tolist(), attribute, [asked[k] for k in others], values[~has][:, others] > 0, expected[has] - expected[~has])


def reversals(fit: FitRecord) -> list[Reversal]:
    """Where an attribute more lowers the expected response of an item that asks for it, the largest falls first.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.

    Raises:
        ValueError: for another model, or an item with more than ten attributes.
    """
    layer = attribute_model(fit, "reversals").layers[0]
    attributes = [str(name) for name in labels_of(fit, "attribute", layer.num_parents)]
    items = [str(name) for name in labels_of(fit, "item", layer.num_children)]
    found = []
    for one in rises(fit, "reversals"):
        for c, j in (one.rise < -SLACK).nonzero().tolist():
            having = tuple(attributes[k] for k, has in zip(one.others, one.having[c].tolist(), strict=True) if has)
            found.append(Reversal(items[one.items[j]], attributes[one.attribute], having, -float(one.rise[c, j])))
    return sorted(found, key=lambda reversal: -reversal.fall)
