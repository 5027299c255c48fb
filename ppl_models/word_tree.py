r"""Products of many small matrices in logarithmic depth, equal sub-products computed once.

The log-likelihood of a chain with a hidden state of K values is the log of a product of K x K matrices, one a time
step. The product is associative, so it may be taken in pairs, pairs of pairs, and so on: a tree of depth
:math:`\log_2 T` whose levels are single tensor operations. Where steps come from a small alphabet, the same pairs
occur again and again; every distinct pair ("word") is multiplied once. With 8 distinct steps and 300,000 of them the
lowest three levels hold 8, 64 and 4,096 matrices instead of 300,000, 150,000 and 75,000.

A product of matrices costs K times one of a vector and a matrix, so for large K only the shared levels are built, and
a row vector goes through the words one after another, with its derivative written by hand.

Sharing repeated sub-products: Sand, Kristiansen, Pedersen and Mailund (2013), doi:10.1186/1471-2105-14-339; products as a
parallel scan: Hassan, Särkkä and García-Fernández (2021), doi:10.1109/TSP.2021.3103338.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["WordTree", "unique_codes"]

LARGE = 10  # more values than this: a vector goes through the words
MAX_WORD_ENTRIES = 2**22  # of the matrices of all words, where a vector goes through them
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
        words: the sequences in the words of level 0, 1, ... as far as words are shared; lengths: how many a sequence.
    """

    levels: tuple[_Level, ...]
    top: Tensor
    words: tuple[np.ndarray, ...]
    lengths: tuple[np.ndarray, ...]

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
        kept, kept_lengths = [ids], [lengths]
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
            singles, single_place = ids[is_single], np.arange(int(is_single.sum()))
            if try_sharing:
                singles, single_place = np.unique(singles, return_inverse=True)
            order = np.concatenate([left, right, singles])
            used_once = len(order) == count and len(np.unique(order)) == count
            inverse = torch.from_numpy(np.argsort(order)).to(device) if used_once else None
            levels.append(_Level(torch.from_numpy(order).to(device), inverse, len(left), count))
            parents = np.full(len(ids), -1)
            parents[is_left] = place
            parents[is_single] = len(left) + single_place
            ids, count, lengths = parents[even], len(left) + len(singles), (lengths + 1) // 2
            if try_sharing:
                kept.append(ids)
                kept_lengths.append(lengths)
        return cls(tuple(levels), torch.from_numpy(ids).to(device), tuple(kept), tuple(kept_lengths))

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
        product, log_scale = self._grow(matrices, len(self.levels))
        return product[:, self.top], log_scale[:, self.top]

    def log_sum(self, matrices: Tensor) -> Tensor:
        """The log of the sum of all entries of the product of every sequence, (R, B); -inf where it is zero.

        Args:
            matrices: (R, num_words, K, K), not negative.
        """
        size = matrices.shape[-1]
        if size <= LARGE:
            product, log_scale = self.log_product(matrices)
            value = product.sum((-2, -1))
            lost = ~(value > 0) | log_scale.isneginf()
            return torch.where(lost, torch.ones_like(value), value).log() + torch.where(lost, -torch.inf, log_scale)
        counts = [level.num_below for level in self.levels[: len(self.words)]] + [len(self.top)]
        depth = max(i for i in range(len(self.words)) if i == 0 or counts[i] * size**2 <= MAX_WORD_ENTRIES)
        product, log_scale = self._grow(matrices, depth)
        words, lengths = self.words[depth], self.lengths[depth]
        sequence = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)).to(matrices.device)
        scales = log_scale[:, torch.from_numpy(words).to(matrices.device)]
        summed = scales.new_zeros(len(scales), len(lengths)).index_add(1, sequence, scales)
        return _Walk.apply(product, words, lengths) + summed

    def _grow(self, matrices: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """The matrices of one level, each divided by its sum, and the logs of what they were divided by."""
        total = matrices.detach().sum((-2, -1))
        product = matrices / torch.where(total > 0, total, torch.ones_like(total))[..., None, None]
        log_scale = total.log()
        for level in self.levels[:depth]:
            product, step = _Combine.apply(product, level.order, level.inverse, level.num_pairs)
            both = log_scale[:, level.order]
            n = level.num_pairs
            log_scale = torch.cat([both[:, :n] + both[:, n : 2 * n] + step, both[:, 2 * n :]], -1)
        return product, log_scale


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
        restarts, count = below.shape[:2]  # as one matrix: adding rows of a matrix is some ten times faster
        rows = (order + count * torch.arange(restarts, device=order.device)[:, None]).reshape(-1)
        flat = torch.zeros_like(below).reshape(restarts * count, -1).index_add(0, rows, both.reshape(len(rows), -1))
        return flat.reshape(below.shape), None, None, None


class _Walk(torch.autograd.Function):
    """Log of (ones) W_1 W_2 ... W_n (ones) for every sequence, a vector going from word to word; first derivatives only."""

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, words: np.ndarray, lengths: np.ndarray) -> Tensor:
        table = matrices.detach().cpu().numpy()
        size, ends = table.shape[-1], np.cumsum(lengths)
        begins = set((ends - lengths).tolist())
        vectors = np.empty((len(table), len(words), size), dtype=table.dtype)  # before each word, divided by their sums
        totals = np.empty((len(table), len(words)), dtype=table.dtype)  # sums after each word
        ones = np.ones(size, dtype=table.dtype)
        for r, own in enumerate(table):
            for t, word in enumerate(words.tolist()):
                if t in begins:
                    vector = ones
                vectors[r, t] = vector
                vector = vector @ own[word]
                total = vector.sum()
                totals[r, t] = total
                vector = vector / total if total > 0 else vector
        ctx.save_for_backward(matrices)
        ctx.rest = (words, lengths, vectors, totals)
        with np.errstate(divide="ignore"):
            logs = np.add.reduceat(np.log(totals), ends - lengths, axis=1)
        return torch.from_numpy(logs).to(matrices)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (matrices,) = ctx.saved_tensors
        words, lengths, vectors, totals = ctx.rest
        table = matrices.detach().cpu().numpy()
        out = np.zeros_like(table)
        last = set((np.cumsum(lengths) - 1).tolist())
        safe = np.where(totals > 0, totals, np.inf)
        weight = np.repeat(grad.detach().cpu().numpy(), lengths, axis=1)
        order = np.argsort(words, kind="stable")
        cuts = np.flatnonzero(np.diff(words[order], prepend=-1))
        after = np.empty_like(vectors[0])  # what comes after each word, as a function of the option there
        ones = np.ones(table.shape[-1], dtype=table.dtype)
        for r, own in enumerate(table):
            for t in range(len(words) - 1, -1, -1):
                if t in last:
                    vector = ones
                after[t] = vector / safe[r, t]
                vector = own[words[t]] @ after[t]
            after *= weight[r][:, None]
            for begin, end in zip(cuts, [*cuts[1:], len(order)], strict=True):
                places = order[begin:end]
                out[r, words[places[0]]] = vectors[r, places].T @ after[places]
        return torch.from_numpy(out).to(matrices), None, None
