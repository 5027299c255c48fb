r"""Signatures held against a reference set: the most alike by their cosines.

.. math:: \cos(s_k, r_m) = \frac{s_k^\top r_m}{\lVert s_k \rVert \, \lVert r_m \rVert}

Source: L. B. Alexandrov et al. (2020), doi:10.1038/s41586-020-1943-3 (COSMIC's signatures of
mutations, which are distinguished by it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from inference.base.frames import pd
from inference.fitting.columns import labels_of
from inference.fitting.record import FitRecord
from ppl_models.parts.validation import check_size

if TYPE_CHECKING:
    from pandas import DataFrame


def match_signatures(fit: FitRecord, reference: DataFrame, num_matches: int = 2) -> DataFrame:
    """Match each signature of a factorization with the most alike of a reference set.

    Args:
        fit: of a factorization, whose parameters hold ``signatures`` or ``endmembers``.
        reference: a row a column of the fit's data (a mutation type), of the same names in any
            order, and a column a signature; entries of at least 0.
        num_matches: how many of the reference are given for each.

    Returns:
        A line a signature of the fit: ``match_1``, its ``cosine_1``, and so on.
    """
    owner = "reference"
    check_size("match_signatures", "num_matches", num_matches)
    site = next((name for name in ("signatures", "endmembers") if name in fit.params), None)
    if site is None:
        raise ValueError(f"{owner}: a fit with signatures was expected, got {fit.model_name}")
    own = fit.params[site].detach().cpu().double().numpy()
    names, rows = list(map(str, fit.item_names)), list(map(str, reference.index))
    absent = [name for name in names if name not in rows]
    if absent or len(rows) != len(names):
        what = f"{absent[0]!r} is missing" if absent else f"it has {len(rows)}"
        raise ValueError(
            f"{owner}: one row for each of the {len(names)} columns of the fit was expected, and"
            f" {what}"
        )
    table = reference.set_axis(rows).loc[names].to_numpy(dtype=np.float64).T
    if not np.isfinite(table).all() or (table < 0).any() or not table.any(1).all():
        raise ValueError(
            f"{owner}: finite entries of at least 0 were expected, and in every signature one above"
        )
    unit = [
        part / np.linalg.norm(part, axis=1, keepdims=True).clip(1e-300) for part in (own, table)
    ]
    cosines = unit[0] @ unit[1].T
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :num_matches]
    labels, columns = reference.columns.map(str).to_numpy(), {}
    for place, best in enumerate(order.T, 1):
        columns[f"match_{place}"] = labels[best]
        columns[f"cosine_{place}"] = cosines[np.arange(len(own)), best]
    index = pd.Index(labels_of(fit, "component", len(own)), name="component")
    return pd.DataFrame(columns, index=index)
