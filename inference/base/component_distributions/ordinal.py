r"""Ordinal items under a link: locations by class and item, thresholds shared by all classes.

With expected counts :math:`n_{kh}` of category h in class k, :math:`Q = \sum_{kh} n_{kh} \log
P_h(\eta_k, \tau)` is concave in locations and thresholds (log-concave links). A step of Fisher
scoring solves :math:`I v = g` with

.. math::

    g = \sum_{kh} n_{kh}\, s_{kh}, \qquad I = \sum_k n_k \sum_h P_{kh}\, s_{kh} s_{kh}^\top, \qquad
    s_{kh} = \partial \log P_h(\eta_k, \tau),

which is Newton's for adjacent categories, and is halved until Q does not fall.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from ppl_models.parts.categorical import Ordinal

MOST_STEPS = 50
SMALL_STEP = 1e-9  # of a coordinate, after which none is taken
NUM_HALVINGS = 12
RIDGE = 1e-9
ROUNDING = 1e-14  # of a value, by which two may differ that are the same


def maximise_ordinal(
    family: Ordinal, counts: Tensor, locations: Tensor, thresholds: Tensor, bound: float
) -> tuple[Tensor, Tensor]:
    """Maximise locations (R, K, J) and thresholds (R, sum of C_j - 2), item by item.

    Args:
        family: of the items, with a link.
        counts: expected rows in each category, (R, K, sum of C_j).
        locations, thresholds: to begin with.
        bound: of locations.
    """
    maxima, gaps, entry, place = [], [], 0, 0
    for j, size in enumerate(family.sizes(locations.shape[-1])):
        spans = slice(entry, entry + size), slice(place, place + size - 2)
        location, threshold = _maximise_item(
            family, counts[..., spans[0]], locations[..., j], thresholds[..., spans[1]], bound
        )
        maxima.append(location)
        gaps.append(threshold)
        entry, place = spans[0].stop, spans[1].stop
    return torch.stack(maxima, -1), torch.cat(gaps, -1)


def _maximise_item(
    family: Ordinal, counts: Tensor, location: Tensor, threshold: Tensor, bound: float
) -> tuple[Tensor, Tensor]:
    """Maximise one item: counts (R, K, C), location (R, K), threshold (R, C - 2)."""
    num_classes, low, high = location.shape[-1], *family.threshold_range

    def split(point: Tensor) -> tuple[Tensor, Tensor]:
        return point[..., :num_classes], point[..., num_classes:]

    def value(point: Tensor) -> Tensor:
        eta, cuts = split(point)
        return (counts * family.log_chances_of_item(eta, cuts.unsqueeze(-2))).sum((-2, -1))

    def inside(point: Tensor) -> Tensor:
        eta, cuts = split(point)
        return torch.cat([eta.clamp(-bound, bound), cuts.clamp(low, high)], -1)

    point, other = torch.cat([location, threshold], -1), inside(_guess(family, counts))
    point = torch.where((value(other) > value(point)).unsqueeze(-1), other, point)
    for _ in range(MOST_STEPS):
        eta, cuts = split(point)
        slopes = family.slopes_of_item(eta, cuts.unsqueeze(-2))  # (R, K, C, 1 + C - 2)
        weight = family.log_chances_of_item(eta, cuts.unsqueeze(-2)).exp() * counts.sum(
            -1, keepdim=True
        )  # (R, K, C)
        g = (counts.unsqueeze(-1) * slopes).sum(-2)  # (R, K, 1 + C - 2)
        gram = (weight.unsqueeze(-1) * slopes).mT @ slopes  # (R, K, 1 + C - 2, 1 + C - 2)
        gradient = torch.cat([g[..., 0], g[..., 1:].sum(-2)], -1)
        corner = gram[..., 0, 1:]  # (R, K, C - 2)
        top = torch.cat([torch.diag_embed(gram[..., 0, 0]), corner], -1)
        information = torch.cat([top, torch.cat([corner.mT, gram[..., 1:, 1:].sum(-3)], -1)], -2)
        ridge = RIDGE * information.diagonal(dim1=-2, dim2=-1).amax(-1).clamp(min=1e-30)
        information = information + torch.diag_embed(ridge.unsqueeze(-1).expand_as(gradient))
        # on the end of an interval, and drawn beyond it
        held = inside(point + gradient.sign()) == point
        information = information.masked_fill(
            held.unsqueeze(-1) | held.unsqueeze(-2), 0.0
        ) + torch.diag_embed(held.to(point))
        gradient = gradient.masked_fill(held, 0.0)
        step = torch.linalg.solve_ex(information, gradient.unsqueeze(-1))[0].squeeze(-1)
        moved = _halved(value, inside, point, step)
        still = bool(((moved - point).abs() <= SMALL_STEP * (1 + point.abs())).all())
        point = moved
        if still:
            break
    return split(point)


def _halved(value, inside, point: Tensor, step: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
    """Longest of the step and its halves that does not lower the value, or the point itself."""
    before = value(point)
    before = before - ROUNDING * (1 + before.abs())
    best = inside(point + step.nan_to_num(0.0, 0.0, 0.0))
    for _ in range(NUM_HALVINGS):
        worse = ~(value(best) >= before)  # also true where it is no number
        if not worse.any():
            return cast(Tensor, best)
        best = torch.where(worse.unsqueeze(-1), (point + best) / 2, best)
    return torch.where((value(best) >= before).unsqueeze(-1), best, point)


def _guess(family: Ordinal, counts: Tensor) -> Tensor:
    """Locations and thresholds (R, K + C - 2) from shares of the categories."""
    seen = counts + 0.5
    if family.link == "adjacent":
        location = (seen[..., 1] / seen[..., 0]).log()
        pooled = seen.sum(-2).log()
        return torch.cat(
            [
                location,
                -(pooled[..., 2:] - pooled[..., 1:-1]) + (pooled[..., 1:2] - pooled[..., :1]),
            ],
            -1,
        )
    location = (seen[..., 1:].sum(-1) / seen[..., 0]).log()
    below = seen.sum(-2).cumsum(-1)
    return torch.cat([location, torch.logit(below[..., :-1] / below[..., -1:]).diff(dim=-1)], -1)
