r"""Forward-backward of hidden chains over pieces of sequences, side by side.

With :math:`b_t(k) = F_k(x_t) / \max_l F_l(x_t)`, filtered chances and backward weights are

.. math::
    c_t \alpha_t = (\alpha_{t-1} A) \circ b_t, \qquad \beta_{t-1} = A u_t, \quad u_t = b_t \circ
    \beta_t / c_t, \qquad \sum_k \alpha_t(k) \beta_t(k) = 1,

so that :math:`P(s_t = k \mid x) = \alpha_t(k) \beta_t(k)` and the expected moves are :math:`A \circ
\sum_t \alpha_{t-1} u_t^\top`.

What comes before a piece and after it are found from the matrices :math:`M_p = A \prod_t
\operatorname{diag}(b_t) A \cdots` of all pieces, a tree of products up and down (S. Hassan, S.
Särkkä and Á. F. García-Fernández 2021, doi:10.1109/TSP.2021.3103338). Sequences stand in it one
after the other: into the first piece of one every row of A is the distribution of first states, so
that nothing is carried over. Steps after the end are steps on which nothing is seen, which change
no chance.

Where a move is impossible, or as good as that, posteriors are gradients of
:func:`ppl_models.sequences.hidden_chain.log_chain_exactly`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from inference.programs.program import Params
from ppl_models.data.sequences import inside_of
from ppl_models.sequences.chain_plan import remember
from ppl_models.sequences.hidden_chain import (
    MOST_EXPONENT,
    RESCALE,
    log_chain_exactly,
    may_lose_weight,
)
from ppl_models.sequences.word_pieces import tied

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
    """Packed sequences cut into pieces, constant through a fit.

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
        """Cut packed sequences (B, T, J).

        ``packed``: the sequences; ``num_states``: of the chain, K; ``all_steps``: keep empty steps
        at the end of a sequence, for which posteriors are asked.
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
        """Values of rows with entries, (R, N, K), at all steps, (R, Q L, K); zeros elsewhere."""
        return spread(rows, self.place, self.num_pieces * self.length)

    @property
    def step_places(self) -> tuple[Tensor, Tensor]:
        """Mask of the sequences' steps, (B, T), and their positions among the pieces, (N,)."""
        step = torch.arange(int(self.lengths.max()), device=self.rows.device)
        inside = step < self.lengths.unsqueeze(-1)
        return inside, (self.begin.unsqueeze(-1) * self.length + step)[inside]

    @property
    def num_each(self) -> Tensor:
        """Pieces of every sequence, (B,)."""
        return -(-self.lengths // self.length)

    def blocks(self, most_steps: int) -> list[Block]:
        """All pieces in blocks of about so many steps, found once a fit."""
        size = min(max(1, most_steps // self.length), self.num_pieces)
        if size not in self._blocks:
            self._blocks[size] = self._blocks_of(size)
        return self._blocks[size]

    @cached_property
    def _blocks(self) -> dict[int, list[Block]]:
        return {}

    def _blocks_of(self, size: int) -> list[Block]:
        """Pieces in blocks of ``size``."""
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
            if bool((own >= self.length).all()):
                inside = None
            else:
                inside = torch.arange(self.length, device=own.device) < own.unsqueeze(-1)
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
    """Cached cut of a tensor, kept as long as the tensor lives unchanged."""
    return remember(packed, ("hidden chain", num_states), lambda data: Cut.build(data, num_states))


def spread(rows: Tensor, place: Tensor, num: int) -> Tensor:
    """Scatter rows (R, n, K) to rising places (n,), (R, num, K), zeros elsewhere."""
    # one after the other, as everywhere but in gaps
    if len(place) and int(place[-1]) == len(place) - 1:
        if len(place) == num:
            return rows
        return torch.nn.functional.pad(rows, (0, 0, 0, num - len(place)))
    out = rows.new_zeros(rows.shape[0], num, rows.shape[2])
    out[:, place] = rows
    return out


def _piece_length(lengths: Tensor, num_states: int) -> int:
    """Number of steps of the pieces for sequences of these lengths (B,)."""
    longest, numbers = int(lengths.max()), num_states**2
    if longest <= 2 * SHORTEST or len(lengths) * numbers * (num_states + 40) > DEAR:
        return longest
    return min(longest, max(SHORTEST, int(lengths.sum()) * numbers // IN_CACHE))


# of a weight; with smaller ones processors take a hundred times as long, and no chance changes
LEAST_EXPONENT = {torch.float64: -460.0, torch.float32: -70.0}
HELD = 2**23  # numbers, weights of all steps, up to which they are worked out once and held
Densities = Callable[[Params, Tensor], Tensor]  # (R, n, K), of rows (n, J) in every state


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Posterior of the states in a block of pieces.

    Where sequences have weights, states, moves and first states are counted as often as these say.

    Args:
        block: which.
        state: P(state | the whole sequence) of every step, (R, q L, K).
        moves: expected moves, (R, K, K).
        first: P(first state), summed over the sequences that begin here, (R, K).
        log_likelihood: (R, q), of every piece given those before it.
    """

    block: Block
    state: Tensor
    moves: Tensor
    first: Tensor
    log_likelihood: Tensor

    @property
    def of_rows(self) -> Tensor:
        """P(state | the whole sequence) of the rows that have entries, (R, n, K)."""
        place = self.block.place
        in_turn = len(place) and int(place[-1]) == len(place) - 1
        return self.state[:, : len(place)] if in_turn else self.state[:, place]


@dataclass(frozen=True, eq=False)
class _Weights:
    """Scaled densities of a block's steps, safe from underflow and overflow.

    Args:
        values: b, (L, R, K, q), with the offset taken off; peak: that offset, (R, q), summed over
            steps.
    """

    values: Tensor
    peak: Tensor


def smoothed_blocks(
    cut: Cut,
    initial: Tensor,
    transitions: Tensor,
    densities: Densities,
    params: Params,
    most_steps: int,
    weights: Tensor | None = None,
) -> Iterator[Smoothed]:
    """Iterate over posteriors block by block, with the matrices of all pieces in memory.

    ``cut``: the sequences; ``initial``: (R, K); ``transitions``: (R, K, K); ``densities``:
    log-densities of rows; ``params``: what it takes; ``most_steps``: of a block, about;
    ``weights``: how often each sequence counts, (B,); None for once.
    """
    if may_lose_weight(transitions):
        yield _by_gradients(cut, initial, transitions, densities, params, weights)
        return
    often = None if weights is None else weights.repeat_interleave(cut.num_each)  # (Q,)
    blocks = cut.blocks(most_steps)

    def weights_of(block: Block) -> _Weights:
        if len(block.rows):
            found = densities(params, block.rows).expand(len(initial), -1, -1)
        else:
            found = initial.new_zeros(len(initial), 0, initial.shape[1])
        return _weights(block, cut.length, initial, found)

    together = len(initial) * cut.num_pieces * cut.length * initial.shape[1] <= HELD
    held = [weights_of(block) for block in blocks] if together or len(blocks) == 1 else []

    def weights_at(at: int) -> _Weights:
        return held[at] if held else weights_of(blocks[at])

    starts = ends = initial.new_ones(*initial.shape, cut.num_pieces)  # (R, K, Q)
    if cut.num_pieces > len(cut.lengths):
        found = [
            _matrices(weights_at(at), block, initial, transitions)
            for at, block in enumerate(blocks)
        ]
        starts, ends = tied(found[0] if len(found) == 1 else torch.cat(found, 1))
    for at, block in enumerate(blocks):
        mine = block.pieces
        yield _within(
            block,
            weights_at(at),
            initial,
            transitions,
            starts[..., mine],
            ends[..., mine],
            None if often is None else often[mine],
        )


def _weights(block: Block, length: int, initial: Tensor, found: Tensor) -> _Weights:
    """Weights of log-densities (R, n, K)."""
    num = len(block.is_first)
    every = spread(found.to(initial), block.place, num * length)
    # (L, R, K, q): sums over states run along the pieces
    values = every.unflatten(1, (num, length)).permute(2, 0, 3, 1).contiguous()
    if values.data_ptr() == every.data_ptr():
        values = values.clone()
    peak = values.amax(2)  # (L, R, q)
    if bool(block.is_first.any()):
        # the largest with its chance, which may be tiny elsewhere
        own = (values[0] + initial.log().unsqueeze(-1)).amax(1)
        peak[0] = torch.where(block.is_first, own, peak[0])
    peak = torch.where(peak.isfinite(), peak, 0.0)
    values.sub_(peak.unsqueeze(2)).clamp_(
        LEAST_EXPONENT.get(values.dtype, -70.0), MOST_EXPONENT.get(values.dtype, 70.0)
    ).exp_()
    return _Weights(values, peak.double().sum(0))


def _matrices(weights: _Weights, block: Block, initial: Tensor, transitions: Tensor) -> Tensor:
    """Transfer matrices of the pieces, (R, q, K, K), up to a factor."""
    values, turned = weights.values, transitions.mT
    length, restarts, size, num = values.shape
    # (R, K now, K first, q)
    product = torch.eye(size).to(values)[None, :, :, None].repeat(restarts, 1, 1, num)
    logs = values[0].log()  # what each first state's chances were divided by, (R, K first, q)
    for t in range(1, length):
        product = (
            (turned @ product.reshape(restarts, size, -1))
            .reshape(restarts, size, size, num)
            .mul_(values[t].unsqueeze(2))
        )
        if t % RESCALE == 0 or t == length - 1:
            largest = product.amax(1)
            product.div_(largest.unsqueeze(1))
            logs.add_(largest.log_())
    product.mul_(logs.sub_(logs.amax(1, keepdim=True)).exp_().unsqueeze(1))
    out = transitions.unsqueeze(1) @ product  # (R, K now, K before, q)
    begins = block.is_first.nonzero()[:, 0]
    if len(begins):
        out[..., begins] = (initial[:, None, None] @ product[..., begins]).expand(-1, -1, size, -1)
    return out.permute(0, 3, 2, 1).contiguous()


def _within(
    block: Block,
    weights: _Weights,
    initial: Tensor,
    transitions: Tensor,
    starts: Tensor,
    ends: Tensor,
    often: Tensor | None,
) -> Smoothed:
    """Forward-backward inside the pieces of a block, counted (q,) times."""
    values, turned = weights.values, transitions.mT
    length, least = len(values), torch.finfo(values.dtype).tiny
    alphas, scales = torch.empty_like(values), torch.empty_like(values[:, :, 0])
    for t in range(length):
        if t == 0:
            alphas[0] = torch.where(block.is_first, initial.unsqueeze(-1), turned @ starts)
        else:
            torch.bmm(turned, alphas[t - 1], out=alphas[t])
        alpha = alphas[t].mul_(values[t])
        torch.sum(alpha, 1, out=scales[t])
        alpha.div_(scales[t].clamp_(min=least).unsqueeze(1))
    ratios, betas = values / scales.unsqueeze(2), torch.empty_like(values)
    betas[-1] = ends / (alphas[-1] * ends).sum(1, keepdim=True).clamp(min=least)
    for t in range(length - 1, -1, -1):
        ratios[t].mul_(betas[t])
        if t > 0:
            torch.bmm(transitions, ratios[t], out=betas[t - 1])
    states = betas.mul_(alphas)
    ratios[0].mul_(~block.is_first)
    if block.inside is not None:
        ratios.mul_(block.inside.mT[:, None, None])
    if often is not None:
        ratios, states = ratios * often, states * often
    pairs = starts @ ratios[0].mT
    if length > 1:
        pairs = pairs + (alphas[:-1] @ ratios[1:].mT).sum(0)
    first = (states[0] * block.is_first).sum(-1)
    state = states.permute(1, 3, 0, 2).flatten(1, 2)  # (R, q L, K)
    return Smoothed(
        block, state, transitions * pairs, first, weights.peak + scales.double().log().sum(0)
    )


def _by_gradients(
    cut: Cut,
    initial: Tensor,
    transitions: Tensor,
    densities: Densities,
    params: Params,
    weights: Tensor | None,
) -> Smoothed:
    """Smoothing by differentiation, for all pieces at once."""
    (block,) = cut.blocks(cut.num_pieces * cut.length)
    restarts, size = initial.shape
    found = initial.new_zeros(restarts, cut.num_pieces * cut.length, size)
    if len(block.rows):
        found = cut.at_steps(densities(params, block.rows).expand(restarts, -1, -1).to(found))
    inside, place = cut.step_places
    parts = []
    for r in range(restarts):
        steps = found.new_zeros(1, *inside.shape, size)
        steps[:, inside] = found[r, place]
        leaves = [steps.requires_grad_(), transitions[r : r + 1].detach().clone().requires_grad_()]
        with torch.enable_grad():
            value = log_chain_exactly(initial[r : r + 1], leaves[1], leaves[0], inside)  # (1, B)
            state, slope = torch.autograd.grad(
                (value if weights is None else value * weights).sum(), leaves
            )
        own = torch.zeros_like(found[r])
        own[place] = state[0, inside]
        parts.append(
            (own, leaves[1][0].detach() * slope[0], state[0, :, 0].sum(0), value[0].detach())
        )
    states, moves, first, values = (torch.stack(part) for part in zip(*parts, strict=True))
    by_piece = values.new_zeros(restarts, cut.num_pieces).double()
    by_piece[:, cut.begin] = values.double()
    return Smoothed(block, states, moves, first, by_piece)
