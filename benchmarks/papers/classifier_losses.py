r"""Costs of independent classifiers beside the one that is trained: surrogates, label agreement.

Without the normaliser of w the negative cross total correlation
(:func:`inference.structures.classifiers.regularizers.neg_ctc`) is the unnormalised surrogate, which
lies above it, and whose minimum over all networks makes :math:`\beta` the classifiers themselves if
the data are such a mixture. The bivariate form is the negative cross mutual information.

Source: K. T. Matchev and P. Shyamsundar (2022), doi:10.1088/2632-2153/ac6483, equations 24-29, 45,
B and C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from inference.structures.classifiers.regularizers import (
    log_pseudo_weights,
    log_ratio_rows,
    neg_ctc,
)

MAX_CELLS = 2**22  # of the table of labels that neg_tc sums over
FLOOR = 1e-12  # of a pseudo-weight


def unnorm_neg_ctc(log_scores: Tensor) -> Tensor:
    r"""The unnormalised surrogate, never below :func:`neg_ctc`, (\*R,) from (\*R, V, n, C)."""
    return neg_ctc(log_scores) - log_pseudo_weights(log_scores).mean(-2).logsumexp(-1)


def neg_cmi(log_scores: Tensor) -> Tensor:
    """Negative cross mutual information: :func:`neg_ctc` of two variates.

    Raises:
        ValueError: for another number of variates.
    """
    _check_two(log_scores.shape[-3])
    return neg_ctc(log_scores)


def unnorm_neg_cmi(log_scores: Tensor) -> Tensor:
    """:func:`unnorm_neg_ctc` of two variates.

    Raises:
        ValueError: for another number of variates.
    """
    _check_two(log_scores.shape[-3])
    return unnorm_neg_ctc(log_scores)


def linear_surrogate(
    log_scores: Tensor, log_phi: Tensor, shares: Tensor, log_weights: Tensor
) -> Tensor:
    r"""Linear cost of some rows, its expected gradient that of :func:`neg_ctc`, (\*R,).

    .. math::

        -\mathrm{mean}_n \log \sum_i w_i \prod_v \frac{\beta_v^{(i)}}{\phi_v^{(i)}} + \sum_{vi}
        c_{vi} \, \mathrm{mean}_n \beta_v^{(i)},
        \qquad c_{vi} = \Bigl( \tfrac{V-1}{V} r_i + \tfrac1V w_i \Bigr) / \phi_v^{(i)}

    Its gradient is linear in the rows, so mini-batches of any size leave it unbiased. :math:`\phi`,
    r and w are of all rows, and constants here.

    ``log_scores``: of some rows, (\*R, V, n, C); ``log_phi``: of all rows, (\*R, V, C); ``shares``:
    r, mean posterior of the components, (\*R, C); ``log_weights``: (\*R, C).
    """
    log_phi, shares, log_weights = log_phi.detach(), shares.detach(), log_weights.detach()
    num_variates = log_scores.shape[-3]
    slope = ((num_variates - 1) * shares + log_weights.exp()) / num_variates  # (*R, C)
    coefficients = slope.unsqueeze(-2) / log_phi.exp()
    return -log_ratio_rows(log_scores, log_phi, log_weights).mean(-1) + (
        coefficients * log_scores.exp().mean(-2)
    ).sum((-2, -1))


def neg_tc(log_scores: Sequence[Tensor]) -> Tensor:
    r"""Negative total correlation of the labels of V classifiers, ().

    .. math::

        -\sum_{i_1 ... i_V} M_{i_1 ... i_V} \Bigl( \log M_{i_1 ... i_V} - \sum_v \log \phi_v^{(i_v)}
        \Bigr), \qquad
        M = \mathrm{mean}_n \prod_v \alpha_v^{(i_v)}(x_{nv})

    It scores how far labels agree; it is no likelihood. Numbers of labels may differ between
    variates.

    Args:
        log_scores: by variate, (n, C_v).

    Raises:
        ValueError: for fewer than two variates, or more than 4,194,304 cells.
    """
    if len(log_scores) < 2:
        raise ValueError(f"neg_tc: at least two variates were expected, got {len(log_scores)}")
    sizes = [scores.shape[-1] for scores in log_scores]
    if math.prod(sizes) > MAX_CELLS:
        raise ValueError(
            f"neg_tc: {' x '.join(map(str, sizes))} = {math.prod(sizes)} cells of labels were asked"
            f" for, {MAX_CELLS} are the most: fewer labels or variates"
        )
    joint = log_scores[0].exp()  # (n, cells so far)
    for scores in log_scores[1:-1]:
        joint = (joint.unsqueeze(-1) * scores.exp().unsqueeze(-2)).flatten(-2)
    table = (joint.mT @ log_scores[-1].exp() / len(joint)).reshape(sizes)
    expected = torch.zeros((), dtype=table.dtype, device=table.device)
    for scores in log_scores:
        marginal = scores.exp().mean(0).clamp(min=FLOOR)
        expected = expected - torch.special.xlogy(marginal, marginal).sum()
    return (
        torch.special.xlogy(table, table.clamp(min=torch.finfo(table.dtype).tiny)).sum().neg()
        - expected
    )


def neg_mi(log_scores: Sequence[Tensor]) -> Tensor:
    """Negative mutual information of two classifiers' labels: :func:`neg_tc` of two.

    Raises:
        ValueError: for another number of variates.
    """
    _check_two(len(log_scores))
    return neg_tc(log_scores)


def _check_two(num_variates: int) -> None:
    if num_variates != 2:
        raise ValueError(
            f"mutual information is of two variates, got {num_variates}: take the total correlation"
        )
