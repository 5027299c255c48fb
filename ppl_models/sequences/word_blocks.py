"""Matrix products of sequences in pieces of like length, a block at a time.

See :mod:`ppl_models.sequences.word_tree`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

PIECE = 2**12  # words of a piece
BLOCK = 2**19  # entries of the matrices multiplied at a time, each restart
KEPT = 2**21  # entries up to which all is kept for differentiation
WASTE = 2**10  # words of padding that a block may hold in any case; else a quarter of it


@dataclass(frozen=True, eq=False)
class WordBlocks:
    """Sequences of words cut into pieces, and which pieces are multiplied side by side.

    Args:
        words: (n,), sequences one after another; the number after the largest stands for the
            identity.
        starts, sizes: (P,), where each piece begins and its words, longest first.
        known: what :meth:`ranges` has found.
    """

    words: Tensor
    starts: np.ndarray
    sizes: np.ndarray
    known: dict[int, tuple[tuple[int, int, int], ...]]

    @classmethod
    def build(
        cls, words: np.ndarray, lengths: np.ndarray, device: Any
    ) -> tuple[WordBlocks, np.ndarray, np.ndarray]:
        """Build blocks; also the positions of all pieces, and the pieces a sequence."""
        num = -(-lengths // PIECE)
        owner = np.repeat(np.arange(len(lengths)), num)
        begin = (np.arange(len(owner)) - np.repeat(np.cumsum(num) - num, num)) * PIECE
        sizes = np.minimum(lengths[owner] - begin, PIECE)
        starts = (np.cumsum(lengths) - lengths)[owner] + begin
        order = np.argsort(-sizes, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return cls(torch.from_numpy(words).to(device), starts[order], sizes[order], {}), place, num

    def ranges(self, size: int) -> tuple[tuple[int, int, int], ...]:
        """Ranges (first piece, end, width) of every block of matrices of a size.

        Shorter pieces are filled up with the identity.
        """
        if size not in self.known:
            self.known[size] = tuple(_ranges(self.sizes.tolist(), BLOCK // size**2))
        return self.known[size]

    def is_kept(self, size: int) -> bool:
        """Tell whether all blocks together are small enough to be kept in memory."""
        return len(self.sizes) == 1 or int(self.sizes.sum()) * size**2 <= KEPT

    def num_held(self, size: int) -> int:
        """Number of matrices of a size that are held at once, padding aside."""
        if self.is_kept(size):
            return int(self.sizes.sum())
        return max((end - begin) * width for begin, end, width in self.ranges(size))

    def block(self, begin: int, end: int, width: int, identity: int) -> Tensor:
        """Word numbers of some pieces, (pieces * width,)."""
        starts, sizes = self.starts[begin:end], self.sizes[begin:end]
        if (sizes[:-1] == width).all() and (
            starts == starts[0] + width * np.arange(len(starts))
        ).all():
            words = self.words[starts[0] : starts[-1] + sizes[-1]].to(torch.int64)
            return torch.nn.functional.pad(words, (0, width - int(sizes[-1])), value=identity)
        first, size = (
            torch.from_numpy(part).to(self.words.device)[:, None] for part in (starts, sizes)
        )
        step = torch.arange(width, device=self.words.device)
        inside = step < size
        found = self.words[torch.where(inside, first + step, first)].to(torch.int64)
        return torch.where(inside, found, identity).reshape(-1)

    def blocks(self, table: Tensor) -> Iterator[tuple[Tensor, int, int]]:
        """Iterate over blocks: row numbers of the words, first piece and end.

        Words have shape (R * pieces * width,).
        """
        restarts, count, size = table.shape[:3]
        for begin, end, width in self.ranges(size):
            yield rows_of(self.block(begin, end, width, count - 1), restarts, count), begin, end

    def products(self, table: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
        """Products of the pieces.

        Args:
            table: (R, W + 1, K, K), the matrices of the words, the identity last; log_scale: (R, W
                + 1).

        Returns:
            (R, P, K, K), divided by numbers whose logs are (R, P).
        """
        if not self.is_kept(table.shape[-1]):
            return _Again.apply(table, log_scale, self)
        return self.all_products(table, log_scale)

    def all_products(self, table: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
        """Products of the pieces, with all that differentiation needs kept."""
        products, scales = [], []
        for rows, begin, end in self.blocks(table):
            product, logs = _multiply(gathered(table, rows), len(table), end - begin)
            products.append(product)
            scales.append(
                logs + log_scale.reshape(-1).index_select(0, rows).reshape(*logs.shape, -1).sum(-1)
            )
        return torch.cat(products, 1), torch.cat(scales, 1)


def _ranges(sizes: list[int], most: int) -> Iterator[tuple[int, int, int]]:
    """Ranges of neighbours in a falling list of sizes that waste little when filled up.

    Up to ``most`` words where they are several.
    """
    begin, used, width = 0, 0, 0
    for i, size in enumerate(sizes):
        if i == begin:
            # so that halves are even until they are small
            step = 2 ** max(0, size.bit_length() - 4)
            used, width = 0, -(-size // step) * step
        padded = (i + 1 - begin) * width
        used += size
        if i + 1 == len(sizes):
            yield begin, i + 1, width
        else:
            waste = padded + width - used - sizes[i + 1]
            if padded + width > most or waste > max(WASTE, (padded + width) // 4):
                yield begin, i + 1, width
                begin = i + 1


def rows_of(words: Tensor, restarts: int, count: int) -> Tensor:
    """Row numbers of words (n,) among the matrices of all restarts, (R * n,)."""
    return (words + count * torch.arange(restarts, device=words.device)[:, None]).reshape(-1)


def gathered(table: Tensor, rows: Tensor) -> Tensor:
    """Gather matrices (rows, K, K); the derivative of a matrix of rows is ten times faster."""
    size = table.shape[-1]
    return table.reshape(-1, size * size).index_select(0, rows).reshape(-1, size, size)


def _multiply(matrices: Tensor, restarts: int, pieces: int) -> tuple[Tensor, Tensor]:
    """Products of consecutive pieces of one length (R, pieces, K, K), and log scales."""
    size = matrices.shape[-1]
    rows = restarts * pieces
    log_scale = matrices.new_zeros(rows)
    while len(matrices) > rows:
        width = len(matrices) // rows
        if width % 2:
            one = torch.eye(size, dtype=matrices.dtype, device=matrices.device).expand(
                rows, 1, size, size
            )
            matrices = torch.cat([matrices.reshape(rows, width, size, size), one], 1)
        left, right = matrices.reshape(-1, 2, size, size).unbind(1)
        matrices, logs = scaled(left @ right)
        log_scale = log_scale + logs.reshape(rows, -1).sum(-1)
    return matrices.reshape(restarts, pieces, size, size), log_scale.reshape(restarts, pieces)


def scaled(product: Tensor) -> tuple[Tensor, Tensor]:
    """Scale matrices by the sum of their entries, held constant; also its log."""
    total = product.detach().sum((-2, -1))
    return product * torch.where(total > 0, total, 1.0).reciprocal()[..., None, None], total.log()


class _Again(torch.autograd.Function):
    """Products of all blocks, recomputed in the backward pass to save memory."""

    @staticmethod
    def forward(
        ctx: Any, table: Tensor, log_scale: Tensor, blocks: WordBlocks
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(table, log_scale)
        ctx.of = blocks
        product, logs = blocks.all_products(table, log_scale)
        ctx.mark_non_differentiable(logs)
        return product, logs

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        table, log_scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # derivatives of derivatives: all is kept
            product, _ = ctx.of.all_products(table, log_scale)
            return torch.autograd.grad(product, table, grad, create_graph=True)[0], None, None
        size = table.shape[-1]
        out = torch.zeros_like(table).reshape(-1, size * size)
        for rows, begin, end in ctx.of.blocks(table):
            leaf = gathered(table, rows).requires_grad_()
            with torch.enable_grad():
                product, _ = _multiply(leaf, len(table), end - begin)
            (own,) = torch.autograd.grad(product, leaf, grad[:, begin:end])
            out.index_add_(0, rows, own.reshape(len(own), -1))
        return out.reshape(table.shape), None, None
