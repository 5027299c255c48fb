r"""Products of many small matrices in logarithmic depth and bounded memory.

Equal sub-products are computed once.

The log-likelihood of a chain with a hidden state of K values is the log of a product of K x K
matrices, one a time step. The product is associative, so it may be taken in pairs, pairs of pairs,
and so on: a tree of depth :math:`\log_2 T` whose levels are single tensor operations. Where steps
come from a small alphabet, the same pairs occur again and again; every distinct pair ("word") is
multiplied once. With 8 distinct steps and 300,000 of them the lowest three levels hold 8, 64 and
4,096 matrices instead of 300,000, 150,000 and 75,000.

From there on the words are cut into pieces. Pieces of like length are multiplied side by side, a
block of them at a time, and the products of the pieces are multiplied in the same way. Of a long
sequence nothing is kept but the product of each piece; differentiation multiplies a block again
when it comes to it. Beside the words, a small whole number for every few steps, memory is that of
one block.

A product of matrices costs K times one of a vector and a matrix, so for large K only the shared
levels are built, and a row vector goes through the words one after another, with its derivative
written by hand, piece by piece as well.

Sharing repeated sub-products: Sand, Kristiansen, Pedersen and Mailund (2013),
doi:10.1186/1471-2105-14-339; products as a parallel scan: Hassan, Särkkä and García-Fernández
(2021), doi:10.1109/TSP.2021.3103338.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ppl_models.data.sequences import slices
from ppl_models.sequences.codes import Codes, small_integers
from ppl_models.sequences.word_pieces import WordPieces

LARGE = 10  # more values than this: a vector goes through the words
MAX_WORD_ENTRIES = 2**22  # of the matrices of all words, where a vector goes through them
SHARED_SHARE = 0.75  # words are shared where that leaves at most this share of them
MAX_WORDS = 2**16  # distinct words of a shared level


@dataclass(frozen=True)
class _Piece:
    """Piece of a sequence, ``words[begin:end]``, with its lengths and ends."""

    row: int
    begin: int
    end: int
    num_words: int
    first: bool
    last: bool


@dataclass(frozen=True, eq=False)
class WordTree:
    """Plan of the products of B sequences of words; see :meth:`build`.

    Args:
        num_words: distinct matrices at the start.
        levels: of the shared levels, from the single steps up: the left and the right factor of
            every word, (2, W), as words of the level below; the number after its largest stands for
            the identity, which fills up odd sequences.
        words: (n,), the sequences, one after another, in the words of the last of them.
        num_steps: (B,), single steps of each sequence.
        stages: words in blocks, products of their pieces in blocks, and so on until a sequence is
            one piece.
        top: (B,), the place of every sequence among the products of the last.
        pieces_of: by the number of values, the words in pieces for :meth:`slopes`.
    """

    num_words: int
    levels: tuple[Tensor, ...]
    words: np.ndarray
    num_steps: np.ndarray
    stages: tuple[WordBlocks, ...]
    top: Tensor
    pieces_of: dict[int, WordPieces] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        words: np.ndarray,
        num_steps: np.ndarray,
        num_words: int,
        device: Any = None,
        shared: bool = True,
    ) -> WordTree:
        """Build the plan of the products.

        Args:
            words: the sequences one after another, each entry in [0, num_words).
            num_steps: (B,), positive.
            num_words: distinct matrices at the start.
            shared: whether words may occur again.
        """
        ids = words.astype(small_integers(num_words), copy=False)
        lengths = num_steps.astype(np.int64)
        count = num_words
        levels: list[Tensor] = []
        while shared and lengths.max() > 1:
            odd = lengths % 2 == 1
            pairs = np.insert(
                ids.astype(small_integers(count), copy=False), np.cumsum(lengths)[odd], count
            ).reshape(-1, 2)
            most = min(MAX_WORDS, int(SHARED_SHARE * len(pairs)))
            codes = Codes.of(
                (_coded(pairs[part], count) for part in slices(len(pairs))), (count + 1) ** 2, most
            )
            if codes is None:
                break
            levels.append(
                torch.from_numpy(np.stack(np.divmod(codes.distinct, count + 1))).to(device)
            )
            ids = np.empty(len(pairs), dtype=small_integers(len(codes.distinct)))
            for part in slices(len(pairs)):
                ids[part] = codes.places(_coded(pairs[part], count))
            count, lengths = len(codes.distinct), (lengths + 1) // 2
        stages: list[WordBlocks] = []
        place = ids
        while not stages or lengths.max() > 1:
            blocks, place, lengths = WordBlocks.build(place, lengths, device)
            stages.append(blocks)
        return cls(
            num_words,
            tuple(levels),
            ids,
            num_steps,
            tuple(stages),
            torch.from_numpy(place).to(device),
        )

    def num_held(self, size: int) -> int:
        """Number of matrices of a size held at once."""
        return max(
            [level.shape[1] for level in self.levels]
            + [stage.num_held(size) for stage in self.stages]
        )

    def steps(self) -> np.ndarray:
        """Steps of all sequences, one after another."""
        depth = len(self.levels)
        words = self._spelt(self.words, 0)
        filled = -(-self.num_steps // 2**depth) * 2**depth
        if (filled == self.num_steps).all():
            return words
        step = np.arange(len(words)) - np.repeat(np.cumsum(filled) - filled, filled)
        return words[step < np.repeat(self.num_steps, filled)]

    def pieces(self, depth: int) -> Iterator[_Piece]:
        """Iterate over pieces of all sequences, in words of a depth; see :meth:`spelt`."""
        kept, wanted = (-(-self.num_steps // 2**d) for d in (len(self.levels), depth))
        first, each = np.cumsum(kept) - kept, 2 ** (len(self.levels) - depth)
        for row, (length, total) in enumerate(zip(kept.tolist(), wanted.tolist(), strict=True)):
            for begin in range(0, length, PIECE):
                end, start = min(length, begin + PIECE), int(first[row])
                num_words = min(end * each, total) - begin * each
                yield _Piece(row, start + begin, start + end, num_words, begin == 0, end == length)

    def spelt(self, piece: _Piece, depth: int) -> np.ndarray:
        """Words of a depth in a piece, without padding at the end of a sequence."""
        return self._spelt(self.words[piece.begin : piece.end], depth)[: piece.num_words]

    def _spelt(self, words: np.ndarray, depth: int) -> np.ndarray:
        for i in range(len(self.levels) - 1, depth - 1, -1):
            identity = self.num_words if i == 0 else self.levels[i - 1].shape[1]
            factors = self.levels[i].cpu().numpy().T.astype(small_integers(identity))
            words = np.concatenate([factors, np.full((1, 2), identity, dtype=factors.dtype)])[
                words
            ].reshape(-1)
        return words

    def log_product(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        """Log-scaled product of every sequence.

        Args:
            matrices: (R, num_words, K, K), not negative.

        Returns:
            Products (R, B, K, K), each divided by a number, and the log of that number (R, B), -inf
            where the product is zero. The number is held constant in differentiation: what is
            computed from a product must be a log that it shifts, so that derivatives of the sum of
            both are exact, to all orders.
        """
        table, log_scale = self._grow(matrices, len(self.levels))
        for stage in self.stages:
            table, log_scale = _with_identity(*stage.products(table, log_scale))
        return table[:, self.top], log_scale[:, self.top]

    def log_sum(self, matrices: Tensor) -> Tensor:
        """Log-sum of all entries of the product of every sequence, (R, B); -inf if zero."""
        size = matrices.shape[-1]
        if size <= LARGE:
            product, log_scale = self.log_product(matrices)
            value = product.sum((-2, -1))
            lost = ~(value > 0) | log_scale.isneginf()
            return torch.where(lost, torch.ones_like(value), value).log() + torch.where(
                lost, -torch.inf, log_scale
            )
        counts = [0, *(level.shape[1] for level in self.levels)]
        depth = max(i for i, count in enumerate(counts) if count * size**2 <= MAX_WORD_ENTRIES)
        table, log_scale = self._grow(matrices, depth)
        return _Walk.apply(table, log_scale, self, depth)

    def slopes(self, matrices: Tensor) -> tuple[Tensor, Tensor]:
        """Sum of :meth:`log_sum` over sequences, and its gradient.

        Of few values by messages, two to three times as quick as differentiation where there are
        many words.

        Args:
            matrices: (R, num_words, K, K), not negative.

        Returns:
            (R,), -inf where a product is zero, and (R, num_words, K, K).
        """
        leaf, size = matrices.detach().requires_grad_(), matrices.shape[-1]
        with torch.enable_grad():
            if size <= LARGE:
                table, log_scale = self._grow(leaf, len(self.levels))
                value, slopes = self._pieces(size).log_sums(table.detach())
                slopes[:, -1] = 0.0
                if bool(value.isfinite().all()) and bool(slopes.isfinite().all()):
                    (grad,) = torch.autograd.grad(table, leaf, slopes)
                    return value + log_scale.detach() @ self._counts.to(value), grad
            value = self.log_sum(leaf).sum(-1)
            (grad,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), grad

    def _pieces(self, size: int) -> WordPieces:
        if size not in self.pieces_of:
            identity = self.levels[-1].shape[1] if self.levels else self.num_words
            self.pieces_of[size] = WordPieces.build(
                self.words,
                -(-self.num_steps // 2 ** len(self.levels)),
                identity,
                size,
                self.top.device,
            )
        return self.pieces_of[size]

    @cached_property
    def _counts(self) -> Tensor:
        """Counts of each word in the sequences, the identity last."""
        num = (self.levels[-1].shape[1] if self.levels else self.num_words) + 1
        return torch.from_numpy(
            sum(
                (np.bincount(self.words[part], minlength=num) for part in slices(len(self.words))),
                np.zeros(num, dtype=np.int64),
            )
        ).to(self.top.device)

    def _grow(self, matrices: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Matrices of one level (R, W + 1, K, K), normalised, and the logs of their sums.

        The identity is last.
        """
        table, log_scale = _with_identity(*scaled(matrices))
        for level in self.levels[:depth]:
            left, right = (rows_of(factor, *table.shape[:2]) for factor in level)
            product, step = scaled(gathered(table, left) @ gathered(table, right))
            scales = log_scale.reshape(-1)
            below = (scales.index_select(0, left) + scales.index_select(0, right) + step).reshape(
                len(table), -1
            )
            table, log_scale = _with_identity(
                product.reshape(*below.shape, *table.shape[2:]), below
            )
        return table, log_scale


def _coded(pairs: np.ndarray, count: int) -> np.ndarray:
    return pairs[:, 0].astype(np.int64) * (count + 1) + pairs[:, 1]


def _with_identity(matrices: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
    size = matrices.shape[-1]
    one = torch.eye(size, dtype=matrices.dtype, device=matrices.device).expand(
        len(matrices), 1, size, size
    )
    return torch.cat([matrices, one], 1), torch.nn.functional.pad(log_scale, (0, 1))


class _Walk(torch.autograd.Function):
    """Log of a product's action on ones, (ones) W_1 W_2 ..., as an autograd function.

    W_n (ones) for every sequence, a vector going from word to word; first derivatives only.

    Kept is the vector before each piece; the derivative goes through a piece again when it comes to
    it.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, log_scale: Tensor, tree: WordTree, depth: int) -> Tensor:
        matrices, scales = table.detach().cpu().numpy(), log_scale.detach().cpu().numpy()
        logs = np.zeros((len(matrices), len(tree.num_steps)), dtype=matrices.dtype)
        starts = []
        ones = np.ones(matrices.shape[-1], dtype=matrices.dtype)
        after = [ones] * len(matrices)
        for piece in tree.pieces(depth):
            before = [ones] * len(matrices) if piece.first else after
            words, after = tree.spelt(piece, depth), []
            for r, own in enumerate(matrices):
                _, totals, vector = _walked(own, words, before[r])
                after.append(vector)
                with np.errstate(divide="ignore"):
                    logs[r, piece.row] += np.log(totals).sum() + scales[r, words].sum()
            starts.append(before)
        ctx.save_for_backward(table)
        ctx.rest = (tree, depth, starts)
        return torch.from_numpy(logs).to(table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (table,) = ctx.saved_tensors
        tree, depth, starts = ctx.rest
        matrices, weight = table.detach().cpu().numpy(), grad.detach().cpu().numpy()
        out = np.zeros_like(matrices)
        ones = np.ones(matrices.shape[-1], dtype=matrices.dtype)
        later = [ones] * len(matrices)
        for piece, before in reversed(list(zip(tree.pieces(depth), starts, strict=True))):
            words = tree.spelt(piece, depth)
            order = np.argsort(words, kind="stable")
            cuts = np.flatnonzero(np.diff(words[order].astype(np.int64), prepend=-1))
            # what comes after each word, by option there
            after = np.empty((len(words), len(ones)), dtype=matrices.dtype)
            for r, own in enumerate(matrices):
                vectors, totals, _ = _walked(own, words, before[r])
                safe = np.where(totals > 0, totals, np.inf)
                vector = ones if piece.last else later[r]
                for t in range(len(words) - 1, -1, -1):
                    after[t] = vector / safe[t]
                    vector = own[words[t]] @ after[t]
                later[r] = vector
                after *= weight[r, piece.row]
                for begin, end in zip(cuts, [*cuts[1:], len(order)], strict=True):
                    places = order[begin:end]
                    out[r, words[places[0]]] += vectors[places].T @ after[places]
        return torch.from_numpy(out).to(table), None, None, None


def _walked(
    matrices: np.ndarray, words: np.ndarray, vector: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vector before each word, normalised; the sums (n,); and the final vector."""
    vectors = np.empty((len(words), len(vector)), dtype=vector.dtype)
    totals = np.empty(len(words), dtype=vector.dtype)
    for t, word in enumerate(words.tolist()):
        vectors[t] = vector
        vector = vector @ matrices[word]
        total = vector.sum()
        totals[t] = total
        vector = vector / total if total > 0 else vector
    return vectors, totals, vector


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
