r"""Columns of a fitted dictionary: unused ones, and recovery of a true dictionary.

Filter and match are those of Buhai et al. (2020, arXiv:1907.00030) with the constants of their
released code: a column that no row uses under :math:`\max(0, A^+ x - 0.005)` is dropped; a true
column is recovered if the Hungarian match on the squared distance of unit columns costs less than
0.002, which is 2.56 degrees. At 5 degrees the midpoint of a true pair would pass for either of its
columns, so look at the angles as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from inference.structures.dictionary.decoders import Shrinkage, decode
from ppl_models.parts.repr import shows_briefly

RECOVERED = 0.002  # squared distance


@shows_briefly
@dataclass(frozen=True, eq=False)
class ColumnRecovery:
    """An estimated dictionary beside a true one.

    Args:
        num_recovered: true columns matched at a squared distance below the threshold; num_true: all
            of them.
        match: true column -> estimated column, -1 where there is none left.
        angle: (m_true,), degrees between a true column and its match, NaN where there is none.
        error: sum of the matched squared distances, those above the threshold too.
    """

    num_recovered: int
    num_true: int
    match: tuple[int, ...]
    angle: Tensor
    error: float

    @property
    def is_full(self) -> bool:
        """Recovery of every true column."""
        return self.num_recovered == self.num_true


def used_columns(dictionary: Tensor, data: Tensor, threshold: float = 0.005) -> list[int]:
    """Columns that some row uses under the shrunken pseudoinverse.

    Args:
        dictionary: (J, m).
        data: (N, J).
        threshold: in units of the data.
    """
    codes = decode(Shrinkage(threshold), data, dictionary.unsqueeze(0), 1)[0]
    return (codes > 0).any(0).nonzero().ravel().tolist()


def column_recovery(
    dictionary: Tensor, truth: Tensor, threshold: float = RECOVERED
) -> ColumnRecovery:
    """Match an estimated dictionary to a true one, up to the order of columns.

    Args:
        dictionary: (J, m).
        truth: (J, m_true); columns are brought to length 1.
        threshold: squared distance below which a column counts as recovered.

    Raises:
        ValueError: if the numbers of items differ, or a column is zero.
    """
    from scipy.optimize import linear_sum_assignment

    if dictionary.dim() != 2 or truth.dim() != 2 or len(dictionary) != len(truth):
        raise ValueError(
            "column_recovery: matrices (J, m) with one J were expected, got"
            f" {tuple(dictionary.shape)} and {tuple(truth.shape)}"
        )
    units = []
    for name, value in (("dictionary", dictionary), ("truth", truth)):
        length = value.double().norm(dim=0)
        if not (length > 0).all():
            raise ValueError(
                f"column_recovery: column {int((~(length > 0)).nonzero()[0])} of {name} is zero"
            )
        units.append(value.double() / length)
    found, true = units
    squared = (true.unsqueeze(-1) - found.unsqueeze(1)).square().sum(0)  # (m_true, m)
    rows, columns = linear_sum_assignment(squared.cpu().numpy())
    match, paid = [-1] * true.shape[1], []
    angle = torch.full((true.shape[1],), torch.nan, dtype=torch.float64)
    for i, k in zip(rows, columns, strict=True):
        match[i] = int(k)
        paid.append(float(squared[i, k]))
        # of the chord: accurate at small angles, unlike the inner product
        half = (squared[i, k].sqrt() / 2).clamp(max=1.0)
        angle[i] = torch.rad2deg(2 * torch.asin(half))
    return ColumnRecovery(
        sum(cost < threshold for cost in paid), true.shape[1], tuple(match), angle, sum(paid)
    )
