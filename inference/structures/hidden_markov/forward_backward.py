r"""The posterior of hidden chains: forward and backward over pieces of sequences, side by side.

With :math:`b_t(k) = F_k(x_t) / \max_l F_l(x_t)`, filtered chances and backward weights are

.. math::
    c_t \alpha_t = (\alpha_{t-1} A) \circ b_t, \qquad \beta_{t-1} = A u_t, \quad u_t = b_t \circ \beta_t / c_t, \qquad \sum_k \alpha_t(k) \beta_t(k) = 1,

so that :math:`P(s_t = k \mid x) = \alpha_t(k) \beta_t(k)` and the expected moves are :math:`A \circ \sum_t \alpha_{t-1} u_t^\top`. A piece after the first begins where the
products of matrices of the pieces before it lead. Where a move is impossible, or as good as that, posteriors are gradients of
:func:`ppl_models.sequences.hidden_chain.log_chain_exactly`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.hidden_markov.cut import Block, Cut
from ppl_models.sequences.hidden_chain import MOST_EXPONENT, RESCALE, first_offset, log_chain_exactly, may_lose_weight

__all__ = ["Passed", "Smoothed", "pass_over", "smoothed_blocks"]

Densities = Callable[[Params, Tensor], Tensor]  # (R, n, K), of rows (n, J) in every state


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The posterior of a block of pieces.

    Where sequences have weights, states, moves and first states are counted as often as these say.

    Args:
        block: which.
        state: P(state | the whole sequence) of every step, (R, q L, K).
        filtered: P(state | the sequence up to this step), (R, q L, K); None where logarithms were added.
        moves: expected moves, (R, K, K).
        first: P(first state), summed over the sequences that begin here, (R, K).
        log_likelihood: (R, q), of every piece given those before it.
    """

    block: Block
    state: Tensor
    filtered: Tensor | None
    moves: Tensor
    first: Tensor
    log_likelihood: Tensor


@dataclass(frozen=True, eq=False)
class Passed:
    """A block passed forward.

    Args:
        weights: b, (L, R, q, K), with the offset taken off; peak: that offset, (R, q), summed over steps.
    """

    weights: Tensor
    peak: Tensor


def smoothed_blocks(
    cut: Cut, initial: Tensor, transitions: Tensor, densities: Densities, params: Params, most_steps: int, weights: Tensor | None = None
) -> Iterator[Smoothed]:
    """The posterior, block by block; nothing but the ends of the pieces is held for all of them.

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
    held = pass_over(blocks[0], cut.length, initial, densities, params) if len(blocks) == 1 else None
    starts, ends = _tied(cut, blocks, initial, transitions, densities, params, held)
    for block in blocks:
        own = pass_over(block, cut.length, initial, densities, params) if held is None else held
        yield _within(
            block, own, initial, transitions, starts[:, block.pieces], ends[:, block.pieces], None if often is None else often[block.pieces]
        )


def pass_over(block: Block, length: int, initial: Tensor, densities: Densities, params: Params) -> Passed:
    """The densities of a block's steps, as weights that no step makes too small or too large."""
    restarts, size = initial.shape
    num = len(block.is_first)
    found = initial.new_zeros(restarts, num * length, size)
    if len(block.rows):
        found[:, block.place] = densities(params, block.rows).expand(restarts, -1, -1).to(found)
    steps = found.reshape(restarts, num, length, size)
    peak = steps.amax(-1, keepdim=True)
    if bool(block.is_first.any()):
        peak[:, block.is_first, 0] = first_offset(initial, steps[:, block.is_first, 0])
    peak = torch.where(peak.isfinite(), peak, 0.0)
    weights = (steps - peak).clamp_(max=MOST_EXPONENT.get(steps.dtype, 70.0)).exp_()
    return Passed(weights.movedim(2, 0).contiguous(), peak.double().sum((-2, -1)))


def _tied(
    cut: Cut, blocks: list[Block], initial: Tensor, transitions: Tensor, densities: Densities, params: Params, held: Passed | None
) -> tuple[Tensor, Tensor]:
    """What comes before each piece, (R, Q, K), the filtered chances at the end of the one before, and backward weights at its end, (R, Q, K)."""
    restarts, size = initial.shape
    starts, ends = initial.new_zeros(restarts, cut.num_pieces, size), initial.new_ones(restarts, cut.num_pieces, size)
    each = cut.num_each
    most = int(each.max())
    if most == 1:
        return starts, ends
    products = torch.cat([
        _products(pass_over(block, cut.length, initial, densities, params) if held is None else held, block, transitions) for block in blocks
    ], 1)  # (R, Q, K, K)
    before = initial.unsqueeze(1).repeat(1, len(each), 1)
    for p in range(most - 1):
        alive = each > p + 1
        own = cut.begin[alive] + p
        filtered = (before[:, alive].unsqueeze(-2) @ products[:, own]).squeeze(-2)
        filtered = filtered / filtered.sum(-1, keepdim=True)
        starts[:, own + 1], before[:, alive] = filtered, filtered @ transitions
    for p in range(most - 1, 0, -1):
        own = cut.begin[each > p] + p
        after = (products[:, own] @ ends[:, own].unsqueeze(-1)).squeeze(-1) @ transitions.mT
        ends[:, own - 1] = after / after.amax(-1, keepdim=True)
    return starts, ends


def _products(passed: Passed, block: Block, transitions: Tensor) -> Tensor:
    """Of the matrices of every piece, without the move into it, (R, q, K, K), up to a factor."""
    weights = passed.weights
    product = torch.diag_embed(weights[0])
    shape = product.shape
    for t in range(1, len(weights)):
        moved = (product.reshape(shape[0], -1, shape[-1]) @ transitions).reshape(shape) * weights[t].unsqueeze(-2)
        product = moved if block.inside is None else torch.where(block.inside[:, t, None, None], moved, product)
        if t % RESCALE == 0 or t == len(weights) - 1:
            product = product / product.amax((-2, -1), keepdim=True)
    return product


def _within(
    block: Block, passed: Passed, initial: Tensor, transitions: Tensor, starts: Tensor, ends: Tensor, often: Tensor | None
) -> Smoothed:
    """Forward and backward inside the pieces of a block, which count as often as (q,) says."""
    weights, inside, length = passed.weights, block.inside, len(passed.weights)
    least = torch.finfo(weights.dtype).tiny
    alphas, scales = torch.empty_like(weights), weights.new_ones(weights.shape[:-1])
    into = torch.where(block.is_first.unsqueeze(-1), initial.unsqueeze(1), starts @ transitions)
    for t in range(length):
        alpha = (into if t == 0 else alphas[t - 1] @ transitions) * weights[t]
        scale = alpha.sum(-1)
        alpha = alpha / scale.clamp(min=least).unsqueeze(-1)
        if inside is not None and t > 0:
            alpha = torch.where(inside[:, t, None], alpha, alphas[t - 1])
            scale = torch.where(inside[:, t], scale, 1.0)
        alphas[t], scales[t] = alpha, scale
    ratios, states = torch.zeros_like(weights), torch.empty_like(weights)
    beta = ends / (alphas[-1] * ends).sum(-1, keepdim=True).clamp(min=least)
    for t in range(length - 1, -1, -1):
        states[t] = alphas[t] * beta
        ratio = weights[t] * beta / scales[t].clamp(min=least).unsqueeze(-1)
        if inside is not None and t > 0:
            ratio = torch.where(inside[:, t, None], ratio, 0.0)
            beta = torch.where(inside[:, t, None], ratio @ transitions.mT, beta)
        else:
            beta = ratio @ transitions.mT
        ratios[t] = ratio
    ratios[0] = ratios[0] * ~block.is_first.unsqueeze(-1)
    if often is not None:
        ratios, states = ratios * often.unsqueeze(-1), states * often.unsqueeze(-1)
    before = torch.cat([starts.unsqueeze(0), alphas[:-1]])
    restarts, num, size = starts.shape
    flat = (before.movedim(1, 0).reshape(restarts, -1, size), ratios.movedim(1, 0).reshape(restarts, -1, size))
    state, filtered = (part.movedim(0, 2).reshape(restarts, num * length, size) for part in (states, alphas))
    first, values = states[0][:, block.is_first].sum(1), passed.peak + scales.double().log().sum(0)
    return Smoothed(block, state, filtered, transitions * (flat[0].mT @ flat[1]), first, values)


def _by_gradients(cut: Cut, initial: Tensor, transitions: Tensor, densities: Densities, params: Params, weights: Tensor | None) -> Smoothed:
    """The same by differentiation, for all pieces at once; without filtered chances."""
    (block,) = cut.blocks(cut.num_pieces * cut.length)
    restarts, size = initial.shape
    found = initial.new_zeros(restarts, cut.num_pieces * cut.length, size)
    if len(block.rows):
        found[:, block.place] = densities(params, block.rows).expand(restarts, -1, -1).to(found)
    inside, place = cut.step_places
    parts = []
    for r in range(restarts):
        steps = found.new_zeros(1, *inside.shape, size)
        steps[:, inside] = found[r, place]
        leaves = [steps.requires_grad_(), transitions[r : r + 1].detach().clone().requires_grad_()]
        with torch.enable_grad():
            value = log_chain_exactly(initial[r : r + 1], leaves[1], leaves[0], inside)  # (1, B)
            state, slope = torch.autograd.grad((value if weights is None else value * weights).sum(), leaves)
        own = torch.zeros_like(found[r])
        own[place] = state[0, inside]
        parts.append((own, leaves[1][0].detach() * slope[0], state[0, :, 0].sum(0), value[0].detach()))
    states, moves, first, values = (torch.stack(part) for part in zip(*parts, strict=True))
    by_piece = values.new_zeros(restarts, cut.num_pieces).double()
    by_piece[:, cut.begin] = values.double()
    return Smoothed(block, states, None, moves, first, by_piece)
