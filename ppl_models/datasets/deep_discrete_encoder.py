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

from ppl_models.parts.responses import Bernoulli, Normal, Poisson, ResponseFamily
from ppl_models.parts.validation import check_size

RATIO = 3  # children for each parent
MAIN, EXTRA, CROSS = 4.0, 4.0 / 3.0, -4.0 / 3.0
INTERCEPTS = (-2.0, -4.0, -2.0)
# top size -> (number of extra loadings from which the first value holds, that intercept, intercept
# of all other rows)
POISSON_INTERCEPTS = {2: (1, -4.0, -2.0), 6: (3, -10.0, -5.0)}


def strict_design(top_size: int, response: ResponseFamily = Bernoulli()) -> dict[str, Tensor]:
    """The strictly identifiable two-layer design B_s, sizes (J, K_1, K_2) = (9 K_2, 3 K_2, K_2).

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
        _layer(MAIN * torch.eye(k, dtype=torch.float64), CROSS)
        for k in (RATIO * top_size, top_size)
    ]
    return _parameters(layers, response)


def generic_design(top_size: int, response: ResponseFamily = Bernoulli()) -> dict[str, Tensor]:
    """The generically identifiable two-layer design B_g, sizes (J, K_1, K_2) = (9 K_2, 3 K_2, K_2).

    Poisson items have other intercepts, low where many loadings could make the mean explode: -4 for
    rows with an extra loading and -2 otherwise (K_2 = 2); -10 for rows with three or more and -5
    otherwise (K_2 = 6).

    Args:
        top_size: K_2, the number of deepest latents; 2 and 6 in the paper.
        response: family of the items.

    Returns:
        Parameters by site name, as :func:`strict_design`.

    Raises:
        ValueError: if top_size is not a positive integer, or is neither 2 nor 6 where there are
            Poisson items.
    """
    check_size("generic_design", "top_size", top_size)
    layers = []
    for k in (RATIO * top_size, top_size):
        band = (
            torch.ones(k, k, dtype=torch.float64).triu(1).tril(-(-k // 3))
        )  # 1 for k < l <= k + ceil(K / 3)
        layers.append(_layer(MAIN * torch.eye(k, dtype=torch.float64) + EXTRA * band, CROSS))
    loadings, intercepts = layers[0]
    for family, columns, _ in response.blocks(len(intercepts)):
        if isinstance(family, Poisson):
            if top_size not in POISSON_INTERCEPTS:
                raise ValueError(
                    "generic_design: Poisson items are defined for top_size 2 and 6 only, where"
                    f" the published design gives their intercepts; got {top_size}"
                )
            smallest, many, few = POISSON_INTERCEPTS[top_size]
            num_extra = ((loadings > 0) & (loadings < MAIN)).sum(1)
            changed = torch.where(num_extra >= smallest, many, few).to(intercepts.dtype)
            intercepts[columns] = changed[columns]
    return _parameters(layers, response)


def deep_design(
    num_layers: int, top_size: int = 2, value: float = 4.0, response: ResponseFamily = Normal()
) -> dict[str, Tensor]:
    """A design of any depth: every layer is B_s with loadings v and -v/2, intercepts -v/2, -v and
    -v/2.

    Args:
        num_layers: D; the sizes are top_size times 1, 3, ..., 3^D, so D = 3 gives (54, 18, 6, 2).
        top_size: K_D.
        value: v; 4 in the paper's deeper simulations, 5 in its study of the choice of sizes.
        response: family of the items.

    Returns:
        Parameters by site name, as :func:`strict_design`, with ``loadings_d`` and ``intercepts_d``
        for d = 1, ..., D.

    Raises:
        ValueError: if num_layers or top_size is not a positive integer, or value is not positive.
    """
    check_size("deep_design", "num_layers", num_layers)
    check_size("deep_design", "top_size", top_size)
    if not value > 0:
        raise ValueError(f"deep_design: value must be positive, got {value!r}")
    sizes = [top_size * RATIO**d for d in range(num_layers - 1, -1, -1)]
    intercepts = (-value / 2, -value, -value / 2)
    layers = [
        _layer(value * torch.eye(k, dtype=torch.float64), -value / 2, intercepts) for k in sizes
    ]
    return _parameters(layers, response)


def empty_graph_accuracy(params: dict[str, Tensor]) -> float:
    """Share of loadings that are zero, all layers pooled: the graph accuracy of an estimate without
    any edge.

    Print it beside every graph accuracy; for a sparse truth it is high. A single layer's is had by
    passing that layer's loadings alone.

    Args:
        params: parameters by site name; every ``loadings_d`` counts.

    Raises:
        ValueError: if there is no such parameter.
    """
    loadings = [tensor for name, tensor in params.items() if name.startswith("loadings_")]
    if not loadings:
        raise ValueError(
            "empty_graph_accuracy: params holds no loadings_1, loadings_2, ..., got"
            f" {sorted(params)}"
        )
    return sum(int((tensor == 0).sum()) for tensor in loadings) / sum(
        tensor.numel() for tensor in loadings
    )


def _layer(
    first: Tensor, cross: float, intercepts: tuple[float, float, float] = INTERCEPTS
) -> tuple[Tensor, Tensor]:
    """Loadings (3 K, K) and intercepts (3 K,) of one layer from its first block (K, K) and its
    value off the diagonal.
    """
    size = len(first)
    index = torch.arange(size)
    apart = (index[:, None] - index[None, :]).abs()
    at_half = (apart == size // 2) & (apart > 0)
    last = first.diagonal().diag() + cross * at_half.to(first.dtype)
    return torch.cat([first, first.mT, last]), torch.tensor(
        intercepts, dtype=first.dtype
    ).repeat_interleave(size)


def _parameters(layers: list[tuple[Tensor, Tensor]], response: ResponseFamily) -> dict[str, Tensor]:
    params: dict[str, Tensor] = {}
    for d, (loadings, intercepts) in enumerate(layers, start=1):
        params[f"loadings_{d}"], params[f"intercepts_{d}"] = loadings, intercepts
    top = layers[-1][0]
    params["proportions"] = top.new_full((top.shape[1],), 0.5)
    num_dispersed = response.num_dispersed(len(layers[0][0]))
    if num_dispersed:
        params["dispersion"] = top.new_ones(num_dispersed)
    return params
