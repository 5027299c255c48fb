r"""Total correlation of the data, bounded from below.

.. math::

    C^* = \mathrm{KL}(P \,\|\, \textstyle\prod_v P_v), \qquad -C^* \le \text{neg\_ctc of any
    mixture}

So a fit whose cost has come down to :math:`-C^*` cannot be bettered, and more components do not
help. :math:`C^*` is not known. For any function d of a row, with P the distribution of the rows and
Q that of rows whose variates are shuffled,

.. math::
    \text{Donsker-Varadhan: } E_P[d] - \log E_Q[e^d] \le C^*, \qquad \text{NWJ: } E_P[d] + 1 -
    E_Q[e^d] \le C^*,

with equality at the log-ratio, which a discriminator learns. Both bound :math:`C^*` from **below**,
so their negatives bound :math:`-C^*` from **above**: a cost above them can still fall for certain,
while a cost below them shows only that the discriminator is the weaker of the two. The statistic d
comes from other rows than those that it is judged on, so that both hold but for sampling error (the
logarithm of a mean lifts Donsker-Varadhan by about half its squared standard error; NWJ is
unbiased). Where all variates take few values, the plug-in estimate is given too, less its bias to
first order (Miller 1955); it is an estimate and no bound.

Source: M. Donsker and S. Varadhan (1983), doi:10.1002/cpa.3160360204; X. Nguyen, M. Wainwright and
M. Jordan (2010), doi:10.1109/TIT.2010.2068870.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.selection.discriminator import (
    Discriminator,
    HeldOutScores,
    as_variates,
    held_out_scores,
)
from ppl_models.parts.validation import check_kind, check_size

MOST_VALUES = 20  # of a variate that counts as discrete
ROWS_A_CELL = 5  # fewer, on the average, and the plug-in estimate is not given


@dataclass(frozen=True)
class TotalCorrelation:
    """Bounds and estimates of the total correlation, in nats.

    Args:
        donsker_varadhan, nwj: lower bounds on C*, from held-out rows; None where the discriminator
            was not asked.
        donsker_varadhan_error, nwj_error: their standard errors.
        plug_in, plug_in_error: where all variates take few values, else None.
        num_rows, num_variates: of the data.
    """

    donsker_varadhan: float | None
    donsker_varadhan_error: float | None
    nwj: float | None
    nwj_error: float | None
    plug_in: float | None
    plug_in_error: float | None
    num_rows: int
    num_variates: int

    @property
    def estimate(self) -> float:
        """Plug-in estimate where there is one, else the Donsker-Varadhan bound; at least zero."""
        value = self.plug_in if self.plug_in is not None else self.donsker_varadhan
        return max(0.0, value) if value is not None else math.nan

    @property
    def error(self) -> float:
        """Standard error of :attr:`estimate`."""
        value = self.plug_in_error if self.plug_in is not None else self.donsker_varadhan_error
        return math.nan if value is None else value

    @property
    def is_bound(self) -> bool:
        """Lower bound on C* in the estimate (its negative is an upper bound on -C*)."""
        return self.plug_in is None

    def text(self) -> str:
        """Return the estimates in words."""
        out = [f"Total correlation of {self.num_variates} variates, {self.num_rows:,} rows."]
        if self.plug_in is not None:
            out.append(
                f"Plug-in estimate {self.plug_in:.4f} (standard error {self.plug_in_error:.4f})"
                " nats, from counts."
            )
        if self.donsker_varadhan is not None:
            out.append(
                f"At least {self.donsker_varadhan:.4f} ({self.donsker_varadhan_error:.4f}) nats by"
                f" Donsker and Varadhan, {self.nwj:.4f} ({self.nwj_error:.4f}) by Nguyen,"
                " Wainwright and Jordan. These bound it from below: a fit whose cost lies above"
                " minus this figure can still be bettered; one that lies below it shows that the"
                " discriminator is the weaker of the two."
            )
        return " ".join(out)


def total_correlation(
    variates: Sequence[Any] | Any, discriminator: Discriminator | None = None, seed: int = 0
) -> TotalCorrelation:
    """Bound the total correlation of the rows from below.

    With its plug-in estimate where all variates take few values.

    Args:
        variates: a table (N, V), one column a variate, or a sequence of V arrays (N,) or (N, ...).
        discriminator: settings; None for the usual ones, and not to ask it where the plug-in
            estimate is to be had.
        seed: of folds, shuffles and steps.

    Raises:
        ValueError: for fewer than two variates, incomplete rows, or too few of them.
    """
    owner = "total_correlation"
    parts = as_variates(owner, variates)
    check_size(owner, "seed", seed, 0)
    if discriminator is not None:
        check_kind(owner, "discriminator", discriminator, Discriminator, "a Discriminator()")
    counted = _plug_in(parts)
    bounds = None
    if counted is None or discriminator is not None:
        bounds = _bounds(held_out_scores(parts, discriminator or Discriminator(), seed))
    dv, dv_error, nwj, nwj_error = bounds or (None, None, None, None)
    plug_in, plug_in_error = counted or (None, None)
    return TotalCorrelation(
        dv, dv_error, nwj, nwj_error, plug_in, plug_in_error, len(parts[0]), len(parts)
    )


def _bounds(scores: HeldOutScores) -> tuple[float, float, float, float]:
    r"""Donsker-Varadhan and NWJ with standard errors.

    The mean over shuffled rows is a V-statistic of the rows: row n has the part :math:`\sum_v
    (h_v(n) - \theta)` in it, with :math:`h_v(n)` the mean over the shuffled rows that have their
    variate v from row n.
    """
    num_copies, num_variates, num_rows = scores.sources.shape
    ratio = scores.shuffled.exp()  # (K, N)
    theta = float(ratio.mean())
    parts = torch.zeros(num_rows, dtype=torch.double)
    for v in range(num_variates):
        parts.scatter_add_(0, scores.sources[:, v].reshape(-1), ratio.reshape(-1) / num_copies)
    influence = parts - num_variates * theta
    direct = scores.rows - scores.rows.mean()
    mean = float(scores.rows.mean())
    dv_error = float((direct - influence / theta).std()) / math.sqrt(num_rows)
    nwj_error = float((direct - influence).std()) / math.sqrt(num_rows)
    return mean - math.log(theta), dv_error, mean + 1 - theta, nwj_error


def _plug_in(parts: Sequence[Tensor]) -> tuple[float, float] | None:
    """Return the bias-corrected entropies of counts, and the standard error.

    None where cells are too many for the rows.
    """
    num_rows = len(parts[0])
    codes = []
    for part in parts:
        values, code = part.unique(dim=0, return_inverse=True)
        if len(values) > MOST_VALUES:
            return None
        codes.append(code)
    cells, joint = torch.stack(codes, 1).unique(dim=0, return_inverse=True)
    if len(cells) * ROWS_A_CELL > num_rows:
        return None
    log_ratio = (joint.bincount().double() / num_rows).log()[joint]
    degrees = len(cells) - 1
    for code in codes:
        counts = code.bincount().double()
        log_ratio = log_ratio - (counts / num_rows).log()[code]
        degrees -= len(counts) - 1
    return float(log_ratio.mean()) - degrees / (2 * num_rows), float(log_ratio.std()) / math.sqrt(
        num_rows
    )
