"""Names of the dims and entries of a fit's sites, shared by export, plots and report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from inference.base.structure import (
    dispersion_items,
    numeric_items,
    predictor_names,
    threshold_labels,
)

if TYPE_CHECKING:
    from inference.fitting.record import FitRecord


NAMED_DIMS = {
    "numeric_item": numeric_items,
    "threshold": threshold_labels,
    "predictor": predictor_names,
    "dispersed_item": dispersion_items,
}


Names = Mapping[str, Sequence[str]]


def dims_of(fit: FitRecord, site: str, shape: Sequence[int]) -> tuple[str, ...]:
    """Names of the dims of a site, without rows.

    A model that declares ``site_dims`` is believed; any other site gets dims of its own
    (``weights_dim_0``), because one dim name has one size in a whole data set.

    Args:
        fit: the fit.
        site: name of the site.
        shape: its shape, without rows.

    Raises:
        ValueError: if the model declares another number of dims than the site has.
    """
    declared = getattr(fit.model, "site_dims", {}).get(site)
    if declared is None:
        return tuple(f"{site}_dim_{i}" for i in range(len(shape)))
    if len(declared) != len(shape):
        raise ValueError(
            f"site_dims[{site!r}] must name {len(shape)} dims for shape {tuple(shape)}, got"
            f" {tuple(declared)}"
        )
    return tuple(declared)


def labels_of(
    fit: FitRecord, dim: str, size: int, names: Names | None = None
) -> list[str] | list[int]:
    """Labels of the entries along a dim.

    The user's names, the model's own (``entry_names``), the item names, or 0, 1, ...; of a subset
    those of its members, as in 0*2; of the categories of all items, item after item, those of both,
    as in smoker=yes.

    Args:
        fit: the fit.
        dim: name of the dim.
        size: its size.
        names: the user's names by dim, for example ``{"latent_1": ["stroke", "loop"]}``.

    Raises:
        ValueError: if ``names`` holds another number of names than the dim has entries.
    """
    if names is not None and dim in names:
        chosen = [str(name) for name in names[dim]]
        if len(chosen) != size:
            raise ValueError(f"names[{dim!r}] must hold {size} names, got {len(chosen)}")
        return chosen
    entry_labels = getattr(fit.model, "entry_names", {}).get(dim)
    if entry_labels is not None and len(entry_labels) == size:
        return list(entry_labels)
    subsets = getattr(fit.model, "subset_dims", {}).get(dim)
    if subsets is not None:
        members = labels_of(
            fit, subsets[0], 1 + max(k for subset in subsets[1] for k in subset), names
        )
        return ["*".join(str(members[k]) for k in subset) for subset in subsets[1]]
    items = list(fit.item_names)
    if dim in ("item", "column") and len(items) == size:
        return items
    if dim == "item" and len(items) == size + fit.structure.num_given:
        return items[:size]
    categories = fit.structure.category_names(items)
    if dim == "category" and sum(map(len, categories.values())) == size:
        return [f"{item}={name}" for item, levels in categories.items() for name in levels]
    names_of = NAMED_DIMS.get(dim)
    if names_of is not None and len(entries := names_of(fit.structure, items)) == size:
        return entries
    return list(range(size))


def with_names(fit: FitRecord, text: str, names: Names | None = None) -> str:
    """Replace entry numbers in a text, ``predictors[1,0]``, by names, ``predictors[1, age]``."""

    def named(found: re.Match[str]) -> str:
        site, places = found[1], [int(place) for place in found[2].split(",")]
        shape = fit.params[site].shape if site in fit.params else ()
        if len(places) != len(shape) or any(
            place >= size for place, size in zip(places, shape, strict=True)
        ):
            return found[0]
        labels = [
            labels_of(fit, dim, size, names)[place]
            for dim, size, place in zip(dims_of(fit, site, shape), shape, places, strict=True)
        ]
        return f"{site}[{', '.join(map(str, labels))}]"

    return re.sub(r"(\w+)\[(\d+(?:,\d+)*)\]", named, text)
