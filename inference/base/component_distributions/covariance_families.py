r"""M-step of covariances by volume, shape and orientation.

With scatter matrices :math:`W_k`, the ridge of the prior among them, of :math:`n_k` expected rows,
the expected log-posterior of :math:`\Sigma_k = v_k D_k \mathrm{diag}(a_k) D_k^\top` is

.. math::

    -\tfrac12 \sum_k \{n_k J \log v_k + \textstyle\sum_j t_{kj} / (v_k a_{kj})\}, \qquad
    t_k = \mathrm{diag}(D_k^\top W_k D_k).

Each of the three is taken to its maximum given the other two:

- orientations of their own are the eigenvectors of :math:`W_k`; one that all share with one shape,
  those of :math:`\sum_k W_k / v_k`; one that they share with shapes of their own moves by the
  majorisation of Browne and McNicholas (2014), doi:10.1007/s11634-013-0139-1: with
  :math:`\omega_k` the largest eigenvalue of :math:`W_k` and :math:`F = \sum_k (\omega_k I - W_k) D
  \,\mathrm{diag}(v_k a_k)^{-1}`, to the orthogonal factor of F;
- a shape is :math:`t_k`, one that all share :math:`\sum_k t_k / v_k`, scaled to product one;
- a volume is :math:`\sum_j t_{kj} / a_{kj}` over :math:`n_k J`, one that all share the sum of these
  sums over :math:`J \sum_k n_k`.

Families whose volumes are equal, or whose shapes are their own, are at their maximum after one
round, those of a shared orientation aside (Celeux and Govaert 1995,
doi:10.1016/0031-3203(94)00125-6).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ppl_models.parts.covariances import CovarianceFamily, precisions_of, widths_along

ROUNDS = 5  # of an M-step that one round does not take to its maximum
TURNS = 10  # majorisation steps of a shared orientation, a round


def family_precisions(
    family: CovarianceFamily, scatter: Tensor, number: Tensor, precisions: Tensor, empty: Tensor
) -> Tensor:
    """Precisions at which the expected log-posterior is no lower than at those given.

    Args:
        family: of the covariances.
        scatter: about the means, with the ridge, (R, K, J, J); number: expected rows, (R, K).
        precisions: before the step, (R, K, J, J).
        empty: components without rows, which keep what is their own, bool (R, K).
    """
    letters = family.letters
    volume, shape, turn = tuple(letters)
    scatter = (scatter + scatter.mT) / 2
    volumes, shapes, turns = family.parts(precisions)
    is_done_at_once = volume == "E" or shape == "V"
    for _ in range(1 if is_done_at_once and letters not in ("EVE", "VVE") else ROUNDS):
        weighed = scatter / volumes[..., None, None]
        if turn == "V":
            own = torch.linalg.eigh(scatter).eigenvectors
            turns = torch.where(empty[..., None, None], turns, own)
        elif turn == "E" and shape == "E":
            total = torch.linalg.eigh(weighed.sum(-3, keepdim=True))
            turns = total.eigenvectors.expand_as(scatter)
        elif turn == "E":
            turns = _shared_turns(weighed, shapes, turns)
        widths = widths_along(turns, scatter)
        if shape == "E":
            shared = (widths / volumes.unsqueeze(-1)).sum(-2, keepdim=True)
            shapes = _to_product_one(shared).expand_as(widths)
        elif shape == "V":
            shapes = torch.where(empty.unsqueeze(-1), shapes, _to_product_one(widths))
        sums = (widths / shapes).sum(-1) / family.num_items
        if volume == "E":
            volumes = (sums.sum(-1, keepdim=True) / number.sum(-1, keepdim=True)).expand_as(sums)
        else:
            volumes = torch.where(empty, volumes, sums / number)
    return precisions_of(volumes, shapes, turns)


def _to_product_one(widths: Tensor) -> Tensor:
    return widths / widths.log().mean(-1, keepdim=True).exp()


def _shared_turns(weighed: Tensor, shapes: Tensor, turns: Tensor) -> Tensor:
    """Orientation that all components share with shapes of their own, by majorisation."""
    largest = torch.linalg.eigvalsh(weighed)[..., -1:, None]
    eye = torch.eye(weighed.shape[-1]).to(weighed)
    room = largest * eye - weighed
    one = turns[..., :1, :, :]
    for _ in range(TURNS):
        left, _, right = torch.linalg.svd(((room @ one) / shapes.unsqueeze(-2)).sum(-3, True))
        one = left @ right
    return one.expand_as(turns)
