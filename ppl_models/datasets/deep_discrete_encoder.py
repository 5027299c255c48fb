r"""Simulation designs for deep discrete encoders: known truths to recover.

A layer with K parents and 3 K children is three blocks of K rows. With I the identity, :math:`h =
\lfloor K/2 \rfloor` and :math:`H_{kl} = 1[|k - l| = h]` (zero if h = 0), written as (intercepts |
loadings),

.. math::
    B_s = \begin{pmatrix} -2 \cdot 1 & 4 I \\ -4 \cdot 1 & 4 I \\ -2 \cdot 1 & 4 I - \tfrac43 H
    \end{pmatrix}, \qquad
    B_g = \begin{pmatrix} -2 \cdot 1 & U \\ -4 \cdot 1 & U^\top \\ -2 \cdot 1 & 4 I - \tfrac43 H
    \end{pmatrix},

:math:`U_{kk} = 4` and :math:`U_{kl} = 4/3` for :math:`k < l \le \min(k + \lceil K/3 \rceil, K)`.
Under the first design the model is strictly identifiable, under the second generically.

Source: S. Lee and Y. Gu (2025), arXiv:2501.01414, section 5 and supplement S.3.3; signs and values
from the authors' released code.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ppl_models.parts.responses import Bernoulli, ResponseFamily
from ppl_models.parts.validation import check_size

RATIO = 3  # children for each parent
MAIN, CROSS = 4.0, -4.0 / 3.0
INTERCEPTS = (-2.0, -4.0, -2.0)


def strict_design(top_size: int, response: ResponseFamily = Bernoulli()) -> dict[str, Tensor]:
    """Strictly identifiable design B_s of two layers, (J, K_1, K_2) = (9 K_2, 3 K_2, K_2).

    Args:
        top_size: K_2, the number of deepest latents; 2, 6 and 10 in the paper.
        response: family of the items; it decides only whether there is a ``dispersion``.

    Returns:
        Parameters by the site names of :class:`~ppl_models.DeepDiscreteEncoder`, float64:
        ``loadings_1`` (J, K_1), ``intercepts_1`` (J,), ``loadings_2`` (K_1, K_2), ``intercepts_2``
        (K_1,), ``proportions`` (K_2,), all one half, and ``dispersion``, all one, for families that
        have one.

    Raises:
        ValueError: if top_size is not a positive integer.
    """
    check_size("strict_design", "top_size", top_size)
    layers = [
        layer_of(MAIN * torch.eye(k, dtype=torch.float64), CROSS)
        for k in (RATIO * top_size, top_size)
    ]
    return parameters_of(layers, response)


def layer_of(
    first: Tensor, cross: float, intercepts: tuple[float, float, float] = INTERCEPTS
) -> tuple[Tensor, Tensor]:
    """Loadings (3 K, K) and intercepts (3 K,) of one layer, from its first block."""
    size = len(first)
    index = torch.arange(size)
    apart = (index[:, None] - index[None, :]).abs()
    at_half = (apart == size // 2) & (apart > 0)
    last = first.diagonal().diag() + cross * at_half.to(first.dtype)
    return torch.cat([first, first.mT, last]), torch.tensor(
        intercepts, dtype=first.dtype
    ).repeat_interleave(size)


def parameters_of(
    layers: list[tuple[Tensor, Tensor]], response: ResponseFamily
) -> dict[str, Tensor]:
    """Parameters of the layers by site name."""
    params: dict[str, Tensor] = {}
    for d, (loadings, intercepts) in enumerate(layers, start=1):
        params[f"loadings_{d}"], params[f"intercepts_{d}"] = loadings, intercepts
    top = layers[-1][0]
    params["proportions"] = top.new_full((top.shape[1],), 0.5)
    num_dispersed = response.num_dispersed(len(layers[0][0]))
    if num_dispersed:
        params["dispersion"] = top.new_ones(num_dispersed)
    return params
