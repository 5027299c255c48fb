r"""How many rows with known profiles an estimated table is worth.

Row i has posterior probabilities :math:`\varphi_{i\alpha} \propto p_\alpha L_{i\alpha}` of the
profiles. Its score for the table is :math:`\varphi_{i\alpha} / p_\alpha`, and the Fisher
information of a row, on changes of the table that keep its sum, is the mean of the product of
scores. With known profiles, :math:`\varphi` is 0 or 1 and that information is
:math:`\mathrm{diag}(1/p)`. In coordinates scaled by :math:`\sqrt p` the latter is the identity, and
the former

.. math:: S = \frac1N \sum_i r_i r_i^\top, \qquad r_{i\alpha} = \varphi_{i\alpha} / \sqrt{p_\alpha},

whose eigenvalues lie in [0, 1]: the share of the information about each direction that survives not
seeing the profiles (the missing-information principle, Orchard and Woodbury 1972; Louis 1982). For
a function f of profiles, :math:`\sqrt N` times the error of its estimated mean has variance

.. math::

    g^\top S^{-1} g \quad\text{instead of}\quad g^\top g, \qquad g_\alpha = \sqrt{p_\alpha}
    (f_\alpha - \bar f),

so the variance is inflated by :math:`\lambda_f = g^\top S^{-1} g / g^\top g \ge 1`. (S is taken on
changes that keep the sum of the table: those orthogonal to :math:`\sqrt p`.) What a graph hangs on
is how attributes depend on each other, two by two: the effective number of rows is N over the mean
of :math:`\lambda_f` over centred products of two attributes, :math:`f = (\alpha_j -
\bar\alpha_j)(\alpha_k - \bar\alpha_k)`. At that number of rows the statistic of a test of
independence has its chi-square law, and a needless edge is found as often as with known profiles.
High-order contrasts are ill determined and do not count.

Item parameters that were estimated along with the table cost information too. Given their scores by
row, S is replaced by its Schur complement, :math:`S - A B^{-1} A^\top` with :math:`A = \frac1N
\sum_i r_i t_i^\top`, :math:`B = \frac1N \sum_i t_i t_i^\top`. Without them the effective number of
rows is an upper bound.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.causal.tables import as_table, as_tables, profiles
from ppl_models.parts.repr import shows_briefly

MOST_PROFILES = 2048  # whose information is inverted as one matrix
CHUNK = 2**22  # numbers of scaled posteriors held at once


@shows_briefly
@dataclass(frozen=True)
class EffectiveRows:
    """What a table is worth in rows with known profiles.

    Args:
        num_rows: N over the mean inflation of pairs: what searches and tests should be told.
        observed_rows: N.
        inflation_mains: of the variance of each attribute's share, (K,).
        inflation_pairs: of that of each pair's covariance, (K, K), the diagonal that of the
            attributes' shares.
        dropped_profiles: profiles of probability zero, which the information cannot speak of.
        undetermined: directions of the table that hold less than a row's information in all rows
            together; they are counted as one row's worth.
        items_estimated: whether the scores of other parameters were given.
    """

    num_rows: float
    observed_rows: int
    inflation_mains: np.ndarray
    inflation_pairs: np.ndarray
    dropped_profiles: int
    undetermined: int
    items_estimated: bool

    def text(self) -> str:
        """What was found, in words."""
        lines = [
            f"The {self.observed_rows:,} rows tell as much about the attributes as"
            f" {self.num_rows:,.0f} rows would whose profiles were known"
            f" ({100 * self.num_rows / self.observed_rows:.0f} %)."
        ]
        if not self.items_estimated:
            lines.append("The item parameters were taken as known, so this is an upper bound.")
        if self.dropped_profiles:
            some = (
                "1 profile has"
                if self.dropped_profiles == 1
                else f"{self.dropped_profiles} profiles have"
            )
            lines.append(
                f"{some} probability zero and does not count."
                if self.dropped_profiles == 1
                else f"{some} probability zero and do not count."
            )
        if self.undetermined:
            lines.append(
                f"{self.undetermined} direction(s) of the table are hardly determined by the data:"
                " the items do not tell some profiles apart. Look at the identifiability of the"
                " item design before drawing a graph."
            )
        return "\n".join(lines)


def effective_rows(posterior: Any, table: Any = None, other_scores: Any = None) -> EffectiveRows:
    """The effective number of rows from the posterior profile probabilities at the fit.

    Args:
        posterior: (N, 2^K), each row sums to one.
        table: the fitted profile probabilities, at which the posterior was computed; None for the
            mean of the posterior, which is the same at a maximum of the likelihood. Elsewhere than
            at a maximum the answer means little.
        other_scores: derivatives of each row's log-likelihood by the other parameters (item
            parameters), (N, M); None where those are known.

    Raises:
        ValueError: for other shapes, rows that do not sum to one, or more than 2,048 profiles.
    """
    owner = "effective_rows"
    rows = as_tables(owner, posterior, "posterior")
    weights = rows.mean(0) if table is None else as_table(owner, table)
    if len(weights) != rows.shape[1]:
        raise ValueError(
            f"{owner}: table must hold {rows.shape[1]} profiles like posterior, got {len(weights)}"
        )
    if rows.shape[1] > MOST_PROFILES:
        raise ValueError(
            f"{owner}: at most {MOST_PROFILES} profiles can be looked at together, got"
            f" {rows.shape[1]}"
        )
    scores = None
    if other_scores is not None:
        scores = np.asarray(other_scores, dtype=np.float64)
        if scores.ndim != 2 or len(scores) != len(rows) or not np.isfinite(scores).all():
            raise ValueError(
                f"{owner}: other_scores must be finite, with shape ({len(rows)}, M), got shape"
                f" {scores.shape}"
            )
    kept = weights > 1e-12
    information = _information(rows, weights, kept, scores)
    values, vectors = np.linalg.eigh(information)
    least = 1 / len(rows)
    undetermined = int((values < least).sum())
    values = np.clip(values, least, None)
    bits = profiles(len(weights).bit_length() - 1)[kept].astype(np.float64)
    bits -= weights[kept] @ bits
    num_attributes = bits.shape[1]
    inflation = np.full((num_attributes, num_attributes), math.nan)
    for i, j in itertools.combinations_with_replacement(range(num_attributes), 2):
        function = bits[:, i] if i == j else bits[:, i] * bits[:, j]
        inflation[i, j] = inflation[j, i] = _inflation(function, weights[kept], values, vectors)
    pairs = (
        inflation[np.triu_indices(num_attributes, 1)]
        if num_attributes > 1
        else inflation.diagonal()
    )
    mean = float(np.nanmean(pairs)) if np.isfinite(pairs).any() else math.nan
    if not math.isfinite(mean):
        raise ValueError(
            f"{owner}: every pair of attributes is constant under the table; there is nothing to"
            " learn about"
        )
    # an attribute known less than not at all is rounding: no inflation below 1
    return EffectiveRows(
        len(rows) / max(mean, 1.0),
        len(rows),
        inflation.diagonal().copy(),
        inflation,
        int((~kept).sum()),
        undetermined,
        scores is not None,
    )


def _information(
    rows: np.ndarray, weights: np.ndarray, kept: np.ndarray, scores: np.ndarray | None
) -> np.ndarray:
    """S on the profiles that are kept, the other parameters projected out, and 1 along the
    direction that no table can move in.
    """
    root, size = np.sqrt(weights[kept]), int(kept.sum())
    information = np.zeros((size, size))
    cross = np.zeros((size, 0 if scores is None else scores.shape[1]))
    step = max(1, CHUNK // size)
    for start in range(0, len(rows), step):
        scaled = rows[start : start + step, kept] / root
        information += scaled.T @ scaled
        if scores is not None:
            cross += scaled.T @ scores[start : start + step]
    information /= len(rows)
    if scores is not None and scores.shape[1]:
        cross /= len(rows)
        own = scores.T @ scores / len(rows)
        information = information - cross @ np.linalg.pinv(own, hermitian=True) @ cross.T
    root = root / np.linalg.norm(root)
    across = information @ root
    return (
        information
        - np.outer(root, across)
        - np.outer(across, root)
        + (1 + root @ across) * np.outer(root, root)
    )


def _inflation(
    function: np.ndarray, weights: np.ndarray, values: np.ndarray, vectors: np.ndarray
) -> float:
    """g' S^-1 g / g' g; NaN for a function that is constant under the table."""
    centred = np.sqrt(weights) * (function - weights @ function / weights.sum())
    size = float(centred @ centred)
    if size < 1e-12:
        return math.nan
    return float(((vectors.T @ centred) ** 2 / values).sum()) / size
