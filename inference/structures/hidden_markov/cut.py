"""Sequences of unequal length cut into pieces that are worked on side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ppl_models.data.sequences import inside_of
from ppl_models.sequences.chain_plan import remember

SHORTEST = 8  # steps of a piece
IN_CACHE = 2**17  # numbers that matrices of all pieces may be, a K x K of them a piece
# what a step of all sequences costs by matrices, from which on going step by step is quicker
DEAR = 250_000


@dataclass(frozen=True, eq=False)
class Block:
    """Some pieces of sequences, one after the other.

    Args:
        pieces: which pieces.
        rows: the rows of these pieces that have entries, (n, J).
        place: of each of these rows among the steps of the block, (n,), rising.
        inside: (q, L) bool, which steps of the pieces are steps; None where all are.
        is_first: (q,) bool, pieces that begin a sequence.
    """

    pieces: slice
    rows: Tensor
    place: Tensor
    inside: Tensor | None
    is_first: Tensor


@dataclass(frozen=True, eq=False)
class Cut:
    """What of packed sequences never changes while a model is fitted to them.

    Every sequence begins a piece; its last piece may be shorter than the others.

    Args:
        rows: the rows that have entries, (N, J), sequence by sequence.
        place: of each of these rows among the steps of all pieces, (N,), rising.
        lengths: (B,), steps of every sequence, without empty ones at its end, which say nothing.
        begin: (B,), the first piece of every sequence.
        num_pieces: Q; length: L, steps of a piece.
    """

    rows: Tensor
    place: Tensor
    lengths: Tensor
    begin: Tensor
    num_pieces: int
    length: int

    @classmethod
    def build(cls, packed: Tensor, num_states: int, all_steps: bool = False) -> Cut:
        """Of packed sequences (B, T, J).

        Args:
            packed: the sequences; num_states: of the chain, K.
            all_steps: keep empty steps at the end of a sequence, for which posteriors are asked.
        """
        seen = packed.isfinite().any(-1)  # (B, T)
        steps = torch.arange(packed.shape[1], device=packed.device)
        used = inside_of(packed) if all_steps else seen
        lengths = (used * (steps + 1)).amax(1).clamp(min=1)
        length = _piece_length(lengths, num_states)
        each = -(-lengths // length)
        begin = each.cumsum(0) - each
        sequence, step = seen.nonzero(as_tuple=True)
        return cls(
            packed[seen], begin[sequence] * length + step, lengths, begin, int(each.sum()), length
        )

    def at_steps(self, rows: Tensor) -> Tensor:
        """What rows with entries say, (R, N, K), at the steps of all pieces, (R, Q L, K), zeros
        elsewhere.
        """
        return spread(rows, self.place, self.num_pieces * self.length)

    @property
    def step_places(self) -> tuple[Tensor, Tensor]:
        """Which steps the sequences have, bool (B, T), and their places among the steps of all
        pieces, (N,).
        """
        step = torch.arange(int(self.lengths.max()), device=self.rows.device)
        inside = step < self.lengths.unsqueeze(-1)
        return inside, (self.begin.unsqueeze(-1) * self.length + step)[inside]

    @property
    def num_each(self) -> Tensor:
        """Pieces of every sequence, (B,)."""
        return -(-self.lengths // self.length)

    def blocks(self, most_steps: int) -> list[Block]:
        """All pieces in blocks of about so many steps."""
        size = max(1, most_steps // self.length)
        owner = torch.repeat_interleave(
            torch.arange(len(self.lengths), device=self.rows.device), self.num_each
        )
        left = (
            self.lengths[owner]
            - (torch.arange(self.num_pieces, device=self.rows.device) - self.begin[owner])
            * self.length
        )  # (Q,)
        out = []
        for start in range(0, self.num_pieces, size):
            stop = min(start + size, self.num_pieces)
            ends = torch.tensor([start * self.length, stop * self.length], device=self.place.device)
            low, high = torch.searchsorted(self.place, ends).tolist()
            own = left[start:stop]
            inside = (
                None
                if bool((own >= self.length).all())
                else torch.arange(self.length, device=own.device) < own.unsqueeze(-1)
            )
            is_first = self.begin[owner[start:stop]] == torch.arange(start, stop, device=own.device)
            out.append(
                Block(
                    slice(start, stop),
                    self.rows[low:high],
                    self.place[low:high] - start * self.length,
                    inside,
                    is_first,
                )
            )
        return out


def cut_of(packed: Tensor, num_states: int) -> Cut:
    """The cut of a tensor, kept as long as the tensor lives unchanged."""
    return remember(packed, ("hidden chain", num_states), lambda data: Cut.build(data, num_states))


def spread(rows: Tensor, place: Tensor, num: int) -> Tensor:
    """Rows (R, n, K) put where ``place``, rising, (n,) says, (R, num, K), zeros elsewhere."""
    if (
        len(place) and int(place[-1]) == len(place) - 1
    ):  # one after the other, as everywhere but in gaps
        return (
            rows
            if len(place) == num
            else torch.nn.functional.pad(rows, (0, 0, 0, num - len(place)))
        )
    out = rows.new_zeros(rows.shape[0], num, rows.shape[2])
    out[:, place] = rows
    return out


def _piece_length(lengths: Tensor, num_states: int) -> int:
    """Steps of the pieces that sequences of these lengths (B,) are cut into."""
    longest, numbers = int(lengths.max()), num_states**2
    if longest <= 2 * SHORTEST or len(lengths) * numbers * (num_states + 40) > DEAR:
        return longest
    return min(longest, max(SHORTEST, int(lengths.sum()) * numbers // IN_CACHE))
