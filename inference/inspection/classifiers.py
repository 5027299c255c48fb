r"""Independent classifiers of a fit: of variates, of rows, along a variate, and densities.

With outputs :math:`\beta_v^{(i)}` of the networks, their means :math:`\phi_v^{(i)}` and weights w
of the components,

.. math::
    m_v(x) = \sum_i \frac{w_i}{\phi_v^{(i)}} \beta_v^{(i)}(x), \qquad
    \alpha_v^{(i)}(x) = \frac{w_i}{\phi_v^{(i)}} \frac{\beta_v^{(i)}(x)}{m_v(x)}, \qquad
    f_v^{(i)} = P^*_v \, \beta_v^{(i)} / \phi_v^{(i)}

m is the marginal of a variate in the fit over that of the data, and must be 1 where the fit is
good: values away from 1 mean that training has not ended, or that the data are no such mixture.

Source: K. T. Matchev and P. Shyamsundar (2022), doi:10.1088/2632-2153/ac6483, equations 19 and
31-35; the diagnostic is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.fitting.columns import checked_as_fitted, labels_of
from inference.fitting.record import FitRecord
from inference.fitting.result import Fit
from inference.programs.data import checked
from inference.structures.classifiers.structure import ClassifierStructure
from inference.structures.registry import structure_of
from ppl_models.networks import rows_of
from ppl_models.parts.repr import shows_briefly


@shows_briefly
@dataclass(frozen=True, eq=False)
class ClassifierReadout:
    r"""Classifiers at N rows.

    Args:
        variates: :math:`\alpha_v^{(i)}(x_{nv})`, the probability of each component given one
            variate, (V, N, C); NaN where it is missing.
        rows: the probability of each component given the whole row, (N, C).
        row_weights: :math:`\beta_v^{(i)} / (\phi_v^{(i)} N)`: rows with these weights are a sample
            of the component, (V, N, C); over the rows of the fit they sum to 1. Zero where a
            variate is missing.
        marginal_ratio: :math:`m_v(x_{nv})`, (V, N); NaN where a variate is missing.
        weights: of the components, (C,).
    """

    variates: Tensor
    rows: Tensor
    row_weights: Tensor
    marginal_ratio: Tensor
    weights: Tensor

    @property
    def inconsistency(self) -> Tensor:
        """Mean distance of the marginal ratio from 1, by variate, (V,); near 0 in a good fit."""
        return (self.marginal_ratio - 1).abs().nanmean(1)

    @property
    def largest_inconsistency(self) -> float:
        """The largest distance of the ratio from 1, of any row and variate."""
        return float((self.marginal_ratio - 1).abs().nan_to_num().max())


def read_classifiers(fit: Fit, data: Any) -> ClassifierReadout:
    """The classifiers of a fit at given rows.

    Args:
        fit: of an :class:`ppl_models.InClassNet`.
        data: rows as the fit takes them, those of the fit or new ones.

    Raises:
        ValueError: for a fit of another model, or rows that do not fit.
    """
    structure, rows = _rows("read_classifiers", fit, data)
    log_ratios, missing = _log_ratios(structure, fit.params, rows)
    missing = missing.to(log_ratios.device)
    weights = fit.params["weights"]
    joint, hidden = log_ratios + weights.log(), missing.unsqueeze(-1)
    seen = (~missing).sum(1)[:, None, None].clamp(min=1)
    return ClassifierReadout(
        joint.softmax(-1).masked_fill(hidden, torch.nan),
        (log_ratios.sum(0) + weights.log()).softmax(-1),
        (log_ratios.exp() / seen).masked_fill(hidden, 0.0),
        joint.exp().sum(-1).masked_fill(missing, torch.nan),
        weights,
    )


def _rows(owner: str, fit: Fit, data: Any) -> tuple[ClassifierStructure, Any]:
    return classifier_structure(owner, fit), checked_as_fitted(fit, data)[0]


@shows_briefly
@dataclass(frozen=True, eq=False)
class ClassifierCurves:
    r"""Classifiers and densities along a variate of one column.

    Args:
        variate: its name.
        places: (G,), rising: the values of the data, or quantiles where they are many.
        classifiers: (\*R, G, C), P(component | x_v).
        edges: (B + 1,), of bins; densities: (\*R, B, C), of each component, as a histogram of the
            reweighted rows; a row a bin of equal width.
    """

    variate: str
    places: Tensor
    classifiers: Tensor
    edges: Tensor
    densities: Tensor


def classifier_structure(owner: str, fit: Any) -> ClassifierStructure:
    """The structure of a fit of independent classifiers, or of such a model."""
    structure = fit.structure if isinstance(fit, FitRecord) else structure_of(fit)
    if not isinstance(structure, ClassifierStructure):
        named = type(fit.model if isinstance(fit, FitRecord) else fit).__name__
        raise ValueError(
            f"{owner}: independent classifiers (InClassNet) were expected, got {named}"
        )
    return structure


def variate_names(fit: FitRecord) -> tuple[str, ...]:
    """Names of the variates: those of the model, of its columns, or "1", "2", ..."""
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
    r"""P(component | x_v) for every variate and row, (\*R, V, N, C); NaN where missing."""
    log_ratios, missing = _log_ratios(structure, params, checked(structure.model, data)[0])
    log_joint = log_ratios + params["weights"].log()[..., None, None, :]
    return log_joint.softmax(-1).masked_fill(missing[..., None], torch.nan)


def complete_classifiers(
    structure: ClassifierStructure, params: Mapping[str, Tensor], data: Any
) -> list[np.ndarray]:
    """Classifiers of the complete rows, an array (N, C) or (M, N, C) for each variate."""
    alphas = variate_classifiers(structure, params, data)
    missing = alphas.isnan().any(-1).any(-2)  # (*M, N), alike in all members
    complete = ~(missing if missing.dim() == 1 else missing[0])
    return [alphas.select(-3, v)[..., complete, :].cpu().numpy() for v in range(alphas.shape[-3])]


def _log_ratios(
    structure: ClassifierStructure, params: Mapping[str, Tensor], rows: Any
) -> tuple[Tensor, Tensor]:
    r"""Log beta / phi, (\*R, V, N, C), and which variates are missing, (V, N)."""
    with torch.no_grad():
        log_ratios: Tensor = structure.model.log_ratios(rows, params)
    missing = torch.stack(
        [x.flatten(1).isnan().any(1) for x in rows_of(rows, structure.about.shapes)]
    )
    return log_ratios, missing


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
        fit: of an ``InClassNet``.
        data: its rows, whose marginal the densities are relative to.
        variate: number or name of a variate of one column.
        params: other parameters of the same model, such as draws with leading dims; None for the
            fit's.
        num_places: of the curves.
        num_bins: of the histograms.

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
    densities = share.new_zeros(*share.shape[:-2], num_bins, share.shape[-1])
    densities.index_add_(-2, bins, share)
    return ClassifierCurves(
        names[found], places, curves, edges, densities / (edges[1] - edges[0]).clamp(min=1e-300)
    )


def _thinned(values: Tensor, most: int = 1_000_000) -> Tensor:
    return values[:: max(1, -(-len(values) // most))]
