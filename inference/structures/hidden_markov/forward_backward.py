r"""The posterior of hidden chains: forward and backward over pieces of sequences, side by side.

With :math:`b_t(k) = F_k(x_t) / \max_l F_l(x_t)`, filtered chances and backward weights are

.. math::
    c_t \alpha_t = (\alpha_{t-1} A) \circ b_t, \qquad \beta_{t-1} = A u_t, \quad u_t = b_t \circ
    \beta_t / c_t, \qquad \sum_k \alpha_t(k) \beta_t(k) = 1,

so that :math:`P(s_t = k \mid x) = \alpha_t(k) \beta_t(k)` and the expected moves are :math:`A \circ
\sum_t \alpha_{t-1} u_t^\top`.

What comes before a piece and after it are found from the matrices :math:`M_p = A \prod_t
\operatorname{diag}(b_t) A \cdots` of all pieces, a tree of products up and down (S. Hassan, S.
Särkkä and Á. F. García-Fernández 2021, doi:10.1109/TSP.2021.3103338). Sequences stand in it one
after the other: into the first piece of one every row of A is the law of first states, so that
nothing is carried over. Steps after the end are steps on which nothing is seen, which change no
chance.

Where a move is impossible, or as good as that, posteriors are gradients of
:func:`ppl_models.sequences.hidden_chain.log_chain_exactly`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.hidden_markov.cut import Block, Cut, spread
from ppl_models.sequences.hidden_chain import (
    MOST_EXPONENT,
    RESCALE,
    log_chain_exactly,
    may_lose_weight,
)
from ppl_models.sequences.word_pieces import tied

LEAST_EXPONENT = {
    torch.float64: -460.0,
    torch.float32: -70.0,
}  # of a weight; with smaller ones processors take a hundred times as long, and no chance changes
HELD = 2**23  # numbers, weights of all steps, up to which they are worked out once and held
Densities = Callable[[Params, Tensor], Tensor]  # (R, n, K), of rows (n, J) in every state


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The posterior of a block of pieces.

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
    """The densities of a block's steps, as weights that no step makes too small or too large.

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
    """The posterior, block by block; nothing but the matrices of the pieces is held for all of
    them.

    Args:
        cut: the sequences.
        initial: (R, K); transitions: (R, K, K).
        densities: log-densities of rows; params: what it takes.
        most_steps: of a block, about.
        weights: how often each sequence counts, (B,); None for once.
    """
    if may_lose_weight(transitions):
        yield _by_gradients(cut, initial, transitions, densities, params, weights)
        return
    often = None if weights is None else weights.repeat_interleave(cut.num_each)  # (Q,)
    blocks = cut.blocks(most_steps)

    def weights_of(block: Block) -> _Weights:
        found = (
            densities(params, block.rows).expand(len(initial), -1, -1)
            if len(block.rows)
            else initial.new_zeros(len(initial), 0, initial.shape[1])
        )
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
    """Of log-densities (R, n, K)."""
    num = len(block.is_first)
    every = spread(found.to(initial), block.place, num * length)
    values = (
        every.unflatten(1, (num, length)).permute(2, 0, 3, 1).contiguous()
    )  # (L, R, K, q): sums over states run along the pieces
    if values.data_ptr() == every.data_ptr():
        values = values.clone()
    peak = values.amax(2)  # (L, R, q)
    if bool(block.is_first.any()):
        own = (values[0] + initial.log().unsqueeze(-1)).amax(
            1
        )  # the largest with its chance, which may be tiny elsewhere
        peak[0] = torch.where(block.is_first, own, peak[0])
    peak = torch.where(peak.isfinite(), peak, 0.0)
    values.sub_(peak.unsqueeze(2)).clamp_(
        LEAST_EXPONENT.get(values.dtype, -70.0), MOST_EXPONENT.get(values.dtype, 70.0)
    ).exp_()
    return _Weights(values, peak.double().sum(0))


def _matrices(weights: _Weights, block: Block, initial: Tensor, transitions: Tensor) -> Tensor:
    """From the state before each piece to the one at its end, (R, q, K, K), up to a factor."""
    values, turned = weights.values, transitions.mT
    length, restarts, size, num = values.shape
    product = (
        torch.eye(size).to(values)[None, :, :, None].repeat(restarts, 1, 1, num)
    )  # (R, K now, K first, q)
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
    """Forward and backward inside the pieces of a block, which count as often as (q,) says."""
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
    """The same by differentiation, for all pieces at once."""
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
