r"""Multinomial logits of fractional responses, by monotone Newton steps.

With u the terms of a row in their widths from their centres, 1 first, and responsibilities r of
weighted rows, the expected complete-data log-density of the coefficients :math:`\beta` (K - 1, Q)
is, up to a constant,

.. math::

    Q(\beta) = \sum_k \beta_k \cdot S_k - \sum_i w_i \log \sum_l e^{\beta_l \cdot u_i} + \log
    p(\beta), \qquad S_k = \sum_i w_i r_{ik} u_i

with :math:`\beta_0 = 0`: concave, with one small statistic S. With :math:`p_{ik}` the chances, a
Newton step takes

.. math:: g_k = S_k - \sum_i w_i p_{ik} u_i + \nabla_k \log p(\beta), \qquad
    H_{kl} = \sum_i w_i p_{ik} (1[k = l] - p_{il}) u_i u_i^\top + \frac{2}{s^2} (1[k = l] - 1/K) I

and is halved until Q does not fall, which in full steps it may (Durante, Canale and Rigon 2019,
doi:10.1016/j.csda.2019.03.004). With K = 2 it is the logit of one bit, whose coefficients have the
prior N(0, s^2) each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ppl_models.descriptions.covariates import Covariates

MOST_STEPS, MOST_HALVINGS = 25, 60
CHUNK_ELEMENTS = 2**22
LEAST_INFORMATION = (
    0.25  # about a coefficient: what a single row gives whose class is a coin's toss
)


def chances_of_design(design: Tensor, beta: Tensor) -> Tensor:
    """Log-chances ([R], N, K) from terms ([R], N, Q) and coefficients ([R], K - 1, Q)."""
    own = design @ beta.mT
    return torch.cat([torch.zeros_like(own[..., :1]), own], -1).log_softmax(-1)


def distinct_rows(rows: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Distinct rows, (G, P), NaN like NaN, and how often each is there, (G,)."""
    codes = rows.nan_to_num(nan=torch.inf)  # NaN differs from itself; no entry is infinite
    found, index, counts = torch.unique(codes, dim=0, return_inverse=True, return_counts=True)
    if weights is None:
        often = counts.to(rows)
    else:
        often = weights.new_zeros(len(found)).index_add(0, index, weights)
    return found.masked_fill(found.isinf(), torch.nan), often


def maximise_coefficients(
    known: Covariates, cross: Tensor, rows: Tensor, often: Tensor, coefficients: Tensor
) -> Tensor:
    """Maximise Q over coefficients (R, K - 1, Q).

    Never below the objective at the given ones, also where steps run out.

    Args:
        known: what the components depend on; cross: S, (R, K - 1, Q).
        rows: the distinct covariates, (G, P); often: how many rows have each, (G,).
        coefficients: (R, K - 1, Q).
    """
    design, beta = known.standardised_design(rows), known.standardised(coefficients)
    rounding = torch.finfo(beta.dtype).eps
    for _ in range(MOST_STEPS):
        value, gradient, information = _curve(known, cross, design, often, beta)
        step = (
            torch.linalg.solve(information, gradient.flatten(1).unsqueeze(-1))
            .squeeze(-1)
            .reshape(beta.shape)
        )
        expected = (gradient * step).sum((-2, -1))  # twice the gain of a parabola
        is_last = expected <= rounding * (1 + value.abs())  # too small a step for a value to tell
        length = torch.ones_like(value)
        for _ in range(MOST_HALVINGS):
            new = _objective(known, cross, design, often, beta + length[:, None, None] * step)
            falls = ~(is_last | (new >= value - 10 * rounding * (1 + value.abs())))
            if not bool(falls.any()):
                break
            length = torch.where(falls, length / 2, length)
        beta = torch.where(falls[:, None, None], beta, beta + length[:, None, None] * step)
        if bool(is_last.all()):
            break
    return known.plain(beta)


def _objective(
    known: Covariates, cross: Tensor, design: Tensor, often: Tensor, beta: Tensor
) -> Tensor:
    """Objective Q of every restart, (R,)."""
    logits = design @ beta.mT
    if beta.shape[1] == 1:
        own = torch.logaddexp(logits.squeeze(-1), logits.new_zeros(()))
    else:
        own = torch.cat([torch.zeros_like(logits[..., :1]), logits], -1).logsumexp(-1)  # (R, G)
    squares = beta.square().sum((-2, -1)) - beta.sum(-2).square().sum(-1) / (beta.shape[1] + 1)
    return (cross * beta).sum((-2, -1)) - own @ often - squares / known.scale**2


def _curve(
    known: Covariates, cross: Tensor, design: Tensor, often: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Objective Q (R,), gradient (R, K - 1, Q), and minus its Hessian."""
    num, num_terms = beta.shape[1:]
    gradient, information = data_curve(cross, design, often, beta)
    prior = (2 / known.scale**2) * (torch.eye(num).to(beta) - 1 / (num + 1))
    gradient = gradient - prior @ beta
    information = information + torch.kron(prior, torch.eye(num_terms).to(beta))
    return _objective(known, cross, design, often, beta), gradient, information


def data_curve(cross: Tensor, design: Tensor, often: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient and information of Q without the prior."""
    restarts, num, num_terms = beta.shape
    gradient, information = cross.clone(), beta.new_zeros(restarts, num, num_terms, num, num_terms)
    step = max(1, CHUNK_ELEMENTS // (restarts * num * num_terms))
    for u, w in zip(design.split(step), often.split(step), strict=True):
        # (R, g, K - 1)
        q = (u @ beta.mT).sigmoid() if num == 1 else chances_of_design(u, beta).exp()[..., 1:]
        p = q * w.unsqueeze(-1)
        gradient = gradient - p.mT @ u
        for k in range(num):
            for other in range(k + 1):
                weight = p[..., k] * ((1.0 if k == other else 0.0) - q[..., other])  # (R, g)
                block = (weight.unsqueeze(-1) * u).mT @ u
                information[:, k, :, other] = block
                information[:, other, :, k] = block
    return gradient, information.reshape(restarts, num * num_terms, num * num_terms)


def undetermined(design: Tensor, often: Tensor, beta: Tensor) -> Tensor:
    """Mask of undetermined coefficients, intercepts aside, bool (R, K - 1, Q).

    The rows say less of these than one single row could, even if all classes were known.

    A term that separates classes has no finite estimate by the rows alone, and leaves the others
    without one.

    Args:
        design: (N, Q); often: how often each row counts, (N,).
        beta: of the standardised terms, (R, K - 1, Q).
    """
    _, information = data_curve(torch.zeros_like(beta), design, often, beta)
    slightly = 1e-9 * torch.eye(information.shape[-1]).to(information)
    variances = (
        torch.linalg.inv(information + slightly).diagonal(dim1=-2, dim2=-1).reshape(beta.shape)
    )
    out = variances > 1 / LEAST_INFORMATION
    out[..., 0] = False
    return out
