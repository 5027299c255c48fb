r"""Log-sum of a long product of small matrices and its gradient, by message passing.

The product is worked on in pieces, side by side.

With the row vector :math:`\alpha_t = \alpha_{t-1} M_t / c_t`, from ones on, and the column
:math:`\beta_{t-1} = M_t u_t`, :math:`u_t = \beta_t / c_t`, from ones at the end, scaled so that
:math:`\alpha_t \beta_t = 1`, the log of the sum of all entries of :math:`M_1 \cdots M_T` is
:math:`\sum_t \log c_t`, and its slope by the matrix of a step is :math:`\alpha_{t-1}^\top
u_t^\top`. Sequences are cut into pieces, as the loops would be as long as the longest of them
otherwise; what lies before a piece and after it is found from the products of all pieces
(:func:`tied`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppl_models.sequences.codes import small_integers

SHORTEST = 8  # words of a piece
# entries of the products of all pieces, beyond which longer pieces take less time than tying more
# of them
MOST_PRODUCTS = 2**15
IN_CACHE = 2**17  # entries of a step of all pieces and restarts that are worked on together
ENOUGH = 2**13  # entries side by side, from which on nothing is cut
HELD = 2**21  # entries of the matrices of a block of pieces
RESCALE = 4  # words between two scalings of a product


def tied(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Filtered chances before each piece, and backward weights at its end.

    (R, K, Q) both, of matrices (R, Q, K, K).

    Before the first piece of a sequence, and after its last one, they do not count: any will do. A
    tree of products up and down (S. Hassan, S. Särkkä and Á. F. García-Fernández 2021,
    doi:10.1109/TSP.2021.3103338).
    """
    levels = [matrices]
    while levels[-1].shape[1] > 1:
        below = levels[-1]
        if below.shape[1] % 2:
            levels[-1] = below = torch.cat(
                [below, torch.eye(below.shape[-1]).to(below).expand(len(below), 1, -1, -1)], 1
            )
        joined = below[:, 0::2] @ below[:, 1::2]
        levels.append(joined / joined.amax((-2, -1), keepdim=True))
    before = after = matrices.new_full(
        (*matrices.shape[:1], 1, matrices.shape[-1]), 1 / matrices.shape[-1]
    )  # (R, nodes, K)
    for below in reversed(levels[:-1]):
        left, right = below[:, 0::2], below[:, 1::2]
        before, after = before[:, : left.shape[1]], after[:, : left.shape[1]]
        passed = (before.unsqueeze(-2) @ left).squeeze(-2)
        before = torch.stack([before, passed / passed.sum(-1, keepdim=True)], 2).flatten(1, 2)
        passed = (right @ after.unsqueeze(-1)).squeeze(-1)
        after = torch.stack([passed / passed.amax(-1, keepdim=True), after], 2).flatten(1, 2)
    num = matrices.shape[1]
    return before[:, :num].mT.contiguous(), after[:, :num].mT.contiguous()


@dataclass(frozen=True, eq=False)
class WordPieces:
    """Word sequences cut into pieces, every sequence beginning one.

    Args:
        words: (L, Q), the words of every piece; what lies after the end of a sequence is the
            identity, the number after the largest word.
        is_first: (Q,) bool, pieces that begin a sequence.
    """

    words: Tensor
    is_first: Tensor

    @classmethod
    def build(
        cls, words: np.ndarray, lengths: np.ndarray, identity: int, size: int, device: Any = None
    ) -> WordPieces:
        """Build pieces of consecutive sequences (n,) of lengths (B,), ``size`` values each."""
        length = _piece_length(lengths, size)
        num = -(-lengths // length)
        row = np.repeat(np.arange(len(lengths)), num)
        begin = (np.arange(len(row)) - np.repeat(np.cumsum(num) - num, num)) * length
        laid = np.full((length, len(row)), identity, dtype=small_integers(identity))
        laid.T[np.arange(length) < (lengths[row] - begin)[:, None]] = words
        return cls(torch.from_numpy(laid).to(device), torch.from_numpy(begin == 0).to(device))

    def log_sums(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over sequences of the logs of their products' sums, and its gradient.

        Not finite where a product is zero.

        Args:
            table: (R, W + 1, K, K), the matrices of the words, not negative, the identity last.

        Returns:
            (R,), and (R, W + 1, K, K), that of the identity without meaning.
        """
        restarts, count, size = table.shape[:3]
        columns = table.flatten(2).mT.contiguous()  # (R, K K, W + 1)
        starts, ends = self._ends(columns, size)
        slopes, values = torch.zeros_like(columns), table.new_zeros(restarts)
        for some, block in self._blocks(restarts, size):
            places = self.words[:, block].long()  # (L, q)
            own = columns[some]
            logs, before, after = _messages(
                self._matrices(own, places, size),
                starts[some, :, block].movedim(0, 1),
                ends[some, :, block].movedim(0, 1),
            )
            values[some] += logs
            apart = (
                places.unsqueeze(1)
                + count * torch.arange(len(own), device=places.device).unsqueeze(1)
            ).flatten()  # (L r q,), of each restart
            for i in range(size):
                for j in range(size):
                    slopes[some, i * size + j] += torch.bincount(
                        apart, (before[:, i] * after[:, j]).flatten(), minlength=count * len(own)
                    ).reshape(-1, count)
        return values, slopes.mT.reshape(table.shape)

    def _ends(self, columns: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Messages before every piece and after it, (R, K, Q)."""
        restarts, num = len(columns), self.words.shape[1]
        ones = columns.new_ones(restarts, size, num)
        if bool(self.is_first.all()):
            return ones, ones
        found = columns.new_empty(restarts, num, size, size)
        for some, block in self._blocks(restarts, size):
            # (K, K, r, q)
            product = _product(self._matrices(columns[some], self.words[:, block].long(), size))
            # nothing is carried over from what is before
            product = torch.where(self.is_first[block], product.sum(0, keepdim=True), product)
            found[some, block] = product.permute(2, 3, 0, 1)
        starts, ends = tied(found)
        return torch.where(self.is_first, 1.0, starts), ends

    def _matrices(self, columns: Tensor, places: Tensor, size: int) -> Tensor:
        """Matrices (L, K, K, r, q) of columns (r, K K, W + 1) at places (L, q)."""
        found = columns.gather(2, places.flatten().expand(*columns.shape[:2], -1))
        return found.reshape(len(columns), size, size, *places.shape).permute(3, 1, 2, 0, 4)

    def _blocks(self, restarts: int, size: int) -> Iterator[tuple[slice, slice]]:
        """Restarts and pieces in one block: as many as stay in the processor's cache."""
        length, num = self.words.shape
        each = min(num, max(1, HELD // (length * size**2)))
        together = max(1, IN_CACHE // (each * size**2))
        for first in range(0, restarts, together):
            for start in range(0, num, each):
                yield (
                    slice(first, min(first + together, restarts)),
                    slice(start, min(start + each, num)),
                )


def _piece_length(lengths: np.ndarray, size: int) -> int:
    longest, entries = int(lengths.max()), size**2
    if longest <= 2 * SHORTEST or len(lengths) * entries >= ENOUGH:
        return longest
    return min(longest, max(SHORTEST, int(lengths.sum()) * entries // MOST_PRODUCTS))


def _product(matrices: Tensor) -> Tensor:
    """Product of all steps (L, K, K, r, q) up to a factor, (K, K, r, q)."""
    product, least = matrices[0].clone(), torch.finfo(matrices.dtype).tiny
    logs = torch.zeros_like(product[:, 0])  # what each first value's row was divided by
    for t in range(1, len(matrices)):
        step = matrices[t]
        new = product[:, 0].unsqueeze(1) * step[0]
        for k in range(1, len(step)):
            new.addcmul_(product[:, k].unsqueeze(1), step[k])
        product = new
        if t % RESCALE == 0 or t == len(matrices) - 1:
            largest = product.amax(1).clamp_(min=least)
            product.div_(largest.unsqueeze(1))
            logs.add_(largest.log_())
    return product.mul_(logs.sub_(logs.amax(0)).exp_().unsqueeze(1))


def _messages(matrices: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Messages through steps (L, K, K, r, q) from (K, r, q) to (K, r, q).

    The log of what they multiply by, added up (r,), and the two factors of the slopes, (L, K, r,
    q).
    """
    length, size, _, *many = matrices.shape
    before, scale = matrices.new_empty(length + 1, size, *many), matrices.new_empty(length, *many)
    before[0] = start
    for t in range(length):
        value, step = before[t], matrices[t]
        into = torch.mul(value[0], step[0], out=before[t + 1])
        for k in range(1, size):
            into.addcmul_(value[k], step[k])
        torch.sum(into, 0, out=scale[t])
        into.div_(scale[t])
    after = matrices.new_empty(length, size, *many)
    value = end / (before[-1] * end).sum(0)
    for t in range(length - 1, -1, -1):
        u, step = torch.div(value, scale[t], out=after[t]), matrices[t]
        value = step[:, 0] * u[0]
        for k in range(1, size):
            value.addcmul_(step[:, k], u[k])
    return scale.log().sum((0, 2)), before[:-1], after
