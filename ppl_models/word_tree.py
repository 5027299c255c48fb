r"""Products of many small matrices in logarithmic depth, equal sub-products computed once.

The log-likelihood of a chain with a hidden state of K values is the log of a product of K x K matrices, one a time
step. The product is associative, so it may be taken in pairs, pairs of pairs, and so on: a tree of depth
:math:`\log_2 T` whose levels are single tensor operations. Where steps come from a small alphabet, the same pairs
occur again and again; every distinct pair ("word") is multiplied once. With 8 distinct steps and 300,000 of them the
lowest three levels hold 8, 64 and 4,096 matrices instead of 300,000, 150,000 and 75,000.

Sharing repeated sub-products: Sand, Kristiansen, Pedersen and Mailund (2013), doi:10.1186/1471-2105-14-339; products as a
parallel scan: Hassan, Särkkä and García-Fernández (2021), doi:10.1109/TSP.2021.3103338.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["WordTree", "unique_codes"]

SHARED_SHARE = 0.75  # words are shared where that leaves at most this share of them
TABLE_SIZE = 2**22  # codes below this are counted in a table instead of sorted


def unique_codes(codes: np.ndarray, bound: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values of integers in [0, bound), ascending, and the place of every entry among them."""
    if bound > max(TABLE_SIZE, 4 * len(codes)):
        return np.unique(codes, return_inverse=True)
    seen = np.zeros(bound, dtype=bool)
    seen[codes] = True
    distinct = np.flatnonzero(seen)
    place = np.zeros(bound, dtype=np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[codes]


@dataclass(frozen=True, eq=False)
class _Level:
    """How the matrices of one level are made from those below: ``num_pairs`` products, then the odd ones out.

    Args:
        order: (2 num_pairs + singles,), the matrices below: left factors, right factors, those passed on.
        inverse: the inverse of ``order`` where every matrix below is used once, else None.
        num_pairs: products.
        num_below: matrices below.
    """

    order: Tensor
    inverse: Tensor | None
    num_pairs: int
    num_below: int


@dataclass(frozen=True, eq=False)
class WordTree:
    """The plan of the products of B sequences of words; see :meth:`build`.

    Args:
        levels: from the single steps up.
        top: (B,), the matrix that is the product of each sequence.
    """

    levels: tuple[_Level, ...]
    top: Tensor

    @classmethod
    def build(cls, words: np.ndarray, lengths: np.ndarray, num_words: int, device: Any = None) -> WordTree:
        """Plan the products.

        Args:
            words: the sequences one after another, each entry in [0, num_words).
            lengths: (B,), positive.
            num_words: distinct matrices at the start.
        """
        ids, lengths, count = words.astype(np.int64), lengths.astype(np.int64), num_words
        levels, try_sharing = [], True
        while lengths.max() > 1:
            position = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            even, last = position % 2 == 0, position + 1 == np.repeat(lengths, lengths)
            is_left, is_single = even & ~last, even & last
            left, right = ids[is_left], ids[1:][is_left[:-1]]
            place = np.arange(len(left))
            if try_sharing:
                distinct, where = unique_codes(left * count + right, count * count)
                try_sharing = len(distinct) <= SHARED_SHARE * len(left)
                if try_sharing:
                    left, right, place = distinct // count, distinct % count, where
            singles = ids[is_single]
            order = np.concatenate([left, right, singles])
            used_once = len(order) == count and len(np.unique(order)) == count
            inverse = torch.from_numpy(np.argsort(order)).to(device) if used_once else None
            levels.append(_Level(torch.from_numpy(order).to(device), inverse, len(left), count))
            parents = np.full(len(ids), -1)
            parents[is_left] = place
            parents[is_single] = len(left) + np.arange(len(singles))
            ids, count, lengths = parents[even], len(left) + len(singles), (lengths + 1) // 2
        return cls(tuple(levels), torch.from_numpy(ids).to(device))

    @property
    def largest(self) -> int:
        """Matrices of the largest level, and so a measure of the memory needed."""
        return max([level.num_below for level in self.levels] + [len(self.top)])

    def log_product(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        """The product of every sequence.

        Args:
            matrices: (R, num_words, K, K), not negative.

        Returns:
            Products (R, B, K, K), each divided by a number, and the log of that number (R, B), -inf where the product is
            zero. The number is held constant in differentiation: what is computed from a product must be a log that it
            shifts, so that derivatives of the sum of both are exact, to all orders.
        """
        total = matrices.detach().sum((-2, -1))
        product = matrices / torch.where(total > 0, total, torch.ones_like(total))[..., None, None]
        log_scale = total.log()
        for level in self.levels:
            product, step = _Combine.apply(product, level.order, level.inverse, level.num_pairs)
            both = log_scale[:, level.order]
            n = level.num_pairs
            log_scale = torch.cat([both[:, :n] + both[:, n : 2 * n] + step, both[:, 2 * n :]], -1)
        return product[:, self.top], log_scale[:, self.top]


class _Combine(torch.autograd.Function):
    """One level: gather, multiply in pairs, divide by the sum; the sum counts as a constant."""

    @staticmethod
    def forward(ctx: Any, below: Tensor, order: Tensor, inverse: Tensor | None, num_pairs: int) -> tuple[Tensor, Tensor]:
        n = num_pairs
        gathered = below.index_select(1, order)
        product = gathered[:, :n] @ gathered[:, n : 2 * n]
        total = product.sum((-2, -1))
        inverse_total = torch.where(total > 0, total, torch.ones_like(total)).reciprocal_()
        product.mul_(inverse_total[..., None, None])
        ctx.save_for_backward(below, order, inverse, inverse_total)
        ctx.num_pairs = n
        log_total = total.log_()
        ctx.mark_non_differentiable(log_total)
        return torch.cat([product, gathered[:, 2 * n :]], 1) if len(order) > 2 * n else product, log_total

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        below, order, inverse, inverse_total = ctx.saved_tensors
        n = ctx.num_pairs
        pairs = below.index_select(1, order[: 2 * n])
        scaled = grad[:, :n] * inverse_total[..., None, None]
        both = torch.cat([scaled @ pairs[:, n:].mT, pairs[:, :n].mT @ scaled, grad[:, n:]], 1)
        if inverse is not None:
            return both.index_select(1, inverse), None, None, None
        return torch.zeros_like(below).index_add(1, order, both), None, None, None
