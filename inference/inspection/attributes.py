"""What attributes add to the expected responses of items, and items that fall where they should
rise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.fitting.names import labels_of
from inference.fitting.record import FitRecord
from inference.structures.layers.attributes import AttributeStructure

MAX_ATTRIBUTES = 10  # of one item, for all its profiles
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


def attribute_model(fit: FitRecord, owner: str) -> AttributeStructure:
    """The structure of a fit of an attribute model.

    Raises:
        ValueError: for another model.
    """
    structure = fit.structure
    if not isinstance(structure, AttributeStructure):
        raise ValueError(
            f"{owner}: a fit of a LatentAttributeModel was expected, got one of {fit.model_name}"
        )
    return structure


def moment_model(fit: FitRecord, owner: str) -> AttributeStructure:
    """As :func:`attribute_model`, for questions about means and variances of items under one law of
    all rows.

    Raises:
        ValueError: for another model, items that are categories, or attributes that depend on
            covariates.
    """
    structure = attribute_model(fit, owner)
    if structure.layers[0].tabled:
        raise ValueError(
            f"{owner}: items that are right or wrong, counts or measurements were expected, and"
            " some here are categories"
        )
    if structure.covariates is not None:
        raise ValueError(
            f"{owner}: one law of the attributes for all rows was expected, and here it depends on"
            f" {', '.join(structure.covariates.names)}"
        )
    return structure


@dataclass(frozen=True, eq=False)
class Rise:
    """What an attribute adds to the expected responses of items that ask for the same attributes.

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


def rises(fit: FitRecord, owner: str) -> Iterator[Rise]:
    """What each attribute adds to the items that ask for it, whatever they have of the others, at
    the profiles that the law allows.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`; owner: who asks, for messages.

    Raises:
        ValueError: for another model, or an item with more than ten attributes.
    """
    structure = attribute_model(fit, owner)
    layer = structure.layers[0]
    edges = (
        layer.item_edges
        if layer.item_edges is not None
        else layer.by_item(fit.params[layer.loadings].cpu() != 0)
    )  # the penalty's own zeros
    for own in edges.unique(dim=0):
        asked = own.nonzero().ravel().tolist()
        if len(asked) > MAX_ATTRIBUTES:
            raise ValueError(
                f"{owner}: items with at most {MAX_ATTRIBUTES} attributes were expected, got one"
                f" with {len(asked)}"
            )
        items = (edges == own).all(-1).nonzero().ravel()
        values = structure.allowed(asked)
        profiles = torch.zeros(len(values), layer.num_parents, dtype=values.dtype)
        profiles[:, asked] = values
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
                items.tolist(), attribute, [asked[k] for k in others],
                values[low][:, others] > 0, expected[high] - expected[low],
            )  # fmt: skip


def reversals(fit: FitRecord) -> list[Reversal]:
    """Where an attribute more lowers the expected response of an item that asks for it, the largest
    falls first.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.

    Raises:
        ValueError: for another model, or an item with more than ten attributes.
    """
    layer = attribute_model(fit, "reversals").layers[0]
    attributes = [str(name) for name in labels_of(fit, "attribute", layer.num_parents)]
    items = [str(name) for name in labels_of(fit, "item", layer.num_items)]
    found = []
    for one in rises(fit, "reversals"):
        for c, j in (one.rise < -SLACK).nonzero().tolist():
            having = tuple(
                attributes[k]
                for k, has in zip(one.others, one.having[c].tolist(), strict=True)
                if has
            )
            found.append(
                Reversal(
                    items[one.items[j]], attributes[one.attribute], having, -float(one.rise[c, j])
                )
            )
    return sorted(found, key=lambda reversal: -reversal.fall)
