"""Independent classifiers along a variate, of a fit or of many draws of it, and in the form that
the theorems of identifiability take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.fitting.names import labels_of
from inference.fitting.record import FitRecord
from inference.programs.data import checked
from inference.structures.classifiers.structure import ClassifierStructure
from inference.structures.registry import structure_of
from ppl_models.networks import rows_of
from ppl_models.parts.repr import shows_briefly


@shows_briefly
@dataclass(frozen=True, eq=False)
class ClassifierCurves:
    """Classifiers and densities along a variate of one column.

    Args:
        variate: its name.
        places: (G,), rising: the values of the data, or quantiles where they are many.
        classifiers: (\\*R, G, C), P(component | x_v).
        edges: (B + 1,), of bins; densities: (\\*R, B, C), of each component, as a histogram of the
            reweighted rows; a row a bin of equal width.
    """

    variate: str
    places: Tensor
    classifiers: Tensor
    edges: Tensor
    densities: Tensor


def classifier_structure(owner: str, fit: Any) -> ClassifierStructure:
    """The structure of a fit of independent classifiers, or of such a model.

    Raises:
        ValueError: for another kind of model.
    """
    structure = fit.structure if isinstance(fit, FitRecord) else structure_of(fit)
    if not isinstance(structure, ClassifierStructure):
        named = type(fit.model if isinstance(fit, FitRecord) else fit).__name__
        raise ValueError(
            f"{owner}: independent classifiers (InClassNet) were expected, got {named}"
        )
    return structure


def variate_names(fit: FitRecord) -> tuple[str, ...]:
    """Names of the variates of a fit of independent classifiers: those of the model, of the columns
    that they were fitted to, or "1", "2", ...
    """
    size = len(fit.params["pseudo_weights"])
    names = labels_of(fit, "variate", size)
    if (
        len(fit.item_names) == size
        and list(names) == list(range(size))
        and list(fit.item_names) != list(map(str, range(size)))
    ):
        return tuple(map(str, fit.item_names))
    return tuple(str(v + 1) if name == v else str(name) for v, name in enumerate(names))


def variate_classifiers(
    structure: ClassifierStructure, params: Mapping[str, Tensor], data: Any
) -> Tensor:
    """P(component | x_v) for every variate and row, (\\*R, V, N, C), of parameters with or without
    leading dims; NaN where a variate is missing.
    """
    log_joint, missing = _log_joint(structure, params, checked(structure.model, data)[0])
    return log_joint.softmax(-1).masked_fill(missing[..., None], torch.nan)


def complete_classifiers(
    structure: ClassifierStructure, params: Mapping[str, Tensor], data: Any
) -> list[np.ndarray]:
    """The same as one array a variate, (N, C) or (M, N, C), of the rows in which no variate is
    missing: what :func:`inference.identifiability.check_classifiers` takes.
    """
    alphas = variate_classifiers(structure, params, data)
    missing = alphas.isnan().any(-1).any(-2)  # (*M, N), alike in all members
    complete = ~(missing if missing.dim() == 1 else missing[0])
    return [alphas.select(-3, v)[..., complete, :].cpu().numpy() for v in range(alphas.shape[-3])]


def _log_joint(
    structure: ClassifierStructure, params: Mapping[str, Tensor], rows: Any
) -> tuple[Tensor, Tensor]:
    """log w_i beta / phi, (\\*R, V, N, C), and which variates are missing, (V, N)."""
    with torch.no_grad():
        log_ratios: Tensor = structure.model.log_ratios(rows, params)
    missing = torch.stack(
        [x.flatten(1).isnan().any(1) for x in rows_of(rows, structure.about.shapes)]
    )
    return log_ratios + params["weights"].log()[..., None, None, :], missing


def classifier_curves(
    fit: FitRecord,
    data: Any,
    variate: int | str,
    params: Mapping[str, Tensor] | None = None,
    num_places: int = 200,
    num_bins: int = 40,
) -> ClassifierCurves:
    """Classifiers and densities of the components along a variate.

    Args:
        fit: of an ``InClassNet``; data: its rows, whose marginal the densities are relative to.
        variate: number or name of a variate of one column.
        params: other parameters of the same model, such as draws with leading dims; None for the
            fit's.
        num_places: of the curves; num_bins: of the histograms.

    Raises:
        ValueError: for another kind of model, or a variate that is none or has several columns.
    """
    owner = "classifier_curves"
    structure = classifier_structure(owner, fit)
    about = structure.about
    names = variate_names(fit)
    found = names.index(variate) if isinstance(variate, str) and variate in names else variate
    if not isinstance(found, int) or not 0 <= found < about.num_variates:
        raise ValueError(
            f"{owner}: variate must be one of {', '.join(names)} or its number, counted from 0, got"
            f" {variate!r}"
        )
    if about.shapes[found] != (1,):
        raise ValueError(
            f"{owner}: a variate of one column was expected, but {names[found]} has shape"
            f" {about.shapes[found]}"
        )
    own = fit.params if params is None else params
    rows = checked(structure.model, data)[0]
    values = rows_of(rows, about.shapes)[found].squeeze(-1)
    values = values[~values.isnan()]
    places = values.unique()  # of few values all, else quantiles
    if len(places) > num_places:
        places = torch.quantile(
            _thinned(values.double()), torch.linspace(0.001, 0.999, num_places, dtype=torch.float64)
        ).to(values)
    grid = {
        f"variate_{v}": x[:1].expand(len(places), *x.shape[1:])
        for v, x in enumerate(rows_of(rows, about.shapes))
    }
    grid[f"variate_{found}"] = places[:, None]
    curves = variate_classifiers(structure, own, grid).select(-3, found)
    with torch.no_grad():
        whole = structure.model.log_ratios(rows, own).select(-3, found)  # (*R, N, C)
    kept = rows_of(rows, about.shapes)[found].squeeze(-1).isnan().logical_not()
    share = whole[..., kept, :].exp()
    share = share / share.sum(-2, keepdim=True)
    edges = torch.linspace(
        float(values.min()), float(values.max()), num_bins + 1, dtype=torch.float64
    ).to(values)
    bins = (torch.searchsorted(edges, values.contiguous(), right=True) - 1).clamp(0, num_bins - 1)
    densities = (
        torch.zeros(*share.shape[:-2], num_bins, share.shape[-1])
        .to(share)
        .index_add_(-2, bins, share)
    )
    return ClassifierCurves(
        names[found], places, curves, edges, densities / (edges[1] - edges[0]).clamp(min=1e-300)
    )


def _thinned(values: Tensor, most: int = 1_000_000) -> Tensor:
    return values[:: max(1, -(-len(values) // most))]
