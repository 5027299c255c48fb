r"""What a fit of independent classifiers says: classifiers of each variate, of whole rows,
densities as reweighted rows, and whether they agree.

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

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.fitting.columns import checked_as_fitted
from inference.fitting.result import Fit
from inference.structures.classifiers.structure import ClassifierStructure
from ppl_models.networks import rows_of
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_size


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
        """Mean over the rows of how far the ratio of marginals lies from 1, by variate, (V,); near
        0 where the fit is good.
        """
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
    tensors = _rows(fit, data)
    with torch.no_grad():
        log_ratios: Tensor = fit.model.log_ratios(tensors, fit.params)  # type: ignore[attr-defined]  # (V, N, C)
    missing = torch.stack(
        [x.flatten(1).isnan().any(1) for x in rows_of(tensors, fit.structure.about.shapes)]
    ).to(log_ratios.device)
    joint = log_ratios + fit.params["weights"].log()
    nan = torch.full_like(joint[..., 0], torch.nan)
    hidden = missing.unsqueeze(-1)
    seen = (~missing).sum(1)[:, None, None].clamp(min=1)
    return ClassifierReadout(
        torch.where(hidden, nan.unsqueeze(-1), joint.softmax(-1)),
        (log_ratios.sum(0) + fit.params["weights"].log()).softmax(-1),
        torch.where(hidden, torch.zeros_like(joint), log_ratios.exp() / seen),
        torch.where(missing, nan, joint.exp().sum(-1)),
        fit.params["weights"],
    )


def component_histogram(
    fit: Fit, data: Any, variate: int, column: int = 0, num_bins: int = 50
) -> tuple[np.ndarray, np.ndarray]:
    """The density of each component along one column, as a histogram of reweighted rows.

    Args:
        fit: of an :class:`ppl_models.InClassNet`; data: its rows.
        variate: which variate; column: which of its columns; num_bins: bins of equal width.

    Returns:
        Edges (B + 1,), and densities (C, B), each of which integrates to 1.

    Raises:
        ValueError: as :func:`read_classifiers`, and for a variate or column that is not there.
    """
    check_size("component_histogram", "num_bins", num_bins)
    x = rows_of(_rows(fit, data), fit.structure.about.shapes)
    if not isinstance(variate, int) or not 0 <= variate < len(x):
        raise ValueError(
            f"component_histogram: variate must be one of 0, ..., {len(x) - 1}, got {variate!r}"
        )
    columns = x[variate].flatten(1)
    if not isinstance(column, int) or not 0 <= column < columns.shape[1]:
        raise ValueError(
            f"component_histogram: column must be one of 0, ..., {columns.shape[1] - 1}, got"
            f" {column!r}"
        )
    values = columns[:, column].double().cpu().numpy()
    row_weights = read_classifiers(fit, data).row_weights[variate].double().cpu().numpy()
    known = ~np.isnan(values)
    edges = np.histogram_bin_edges(values[known], num_bins)
    densities = [
        np.histogram(values[known], edges, weights=own[known], density=True)[0]
        for own in row_weights.T
    ]
    return edges, np.stack(densities)


def _rows(fit: Fit, data: Any) -> Any:
    if not isinstance(fit.structure, ClassifierStructure):
        raise ValueError(
            f"read_classifiers: a fit of an InClassNet was expected, got one of {fit.model_name}"
        )
    return checked_as_fitted(fit, data)[0]
