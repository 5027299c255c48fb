"""Information criteria from numbers."""

from __future__ import annotations

import math


def extended_bic(
    value: float, price: float, num_free: int, num_possible: int, gamma: float = 1.0
) -> float:
    r"""Extended BIC (Chen and Chen 2008, doi:10.1093/biomet/asn034), :math:`-2 \ell + \nu \log N +
    2 \gamma \log \binom{P}{\nu}`.

    Args:
        value: the log-likelihood, or the bound that stands in its place.
        price: what BIC charges for the parameters, :math:`\nu \log N` where each is charged for all
            N rows.
        num_free: :math:`\nu`, parameters that are not zero; num_possible: P, those that could be.
        gamma: 0 is BIC.
    """
    choices = (
        math.lgamma(num_possible + 1)
        - math.lgamma(num_free + 1)
        - math.lgamma(num_possible - num_free + 1)
    )
    return -2 * value + price + 2 * (gamma * choices)
