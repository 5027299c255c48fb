r"""Hidden Markov chains: sequence distributions with states summed out, any emission.

.. math::

    p(x_1, ..., x_T) = \sum_{s_1 ... s_T} \pi_{s_1} F_{s_1}(x_1) \prod_{t > 1} A_{s_{t-1} s_t}
    F_{s_t}(x_t) .

The first emission is that of the first state. (Pyro's ``DiscreteHMM`` moves before it emits: its
initial distribution :math:`\pi` is our :math:`\pi A`.)

The sum is a product of matrices :math:`A \operatorname{diag}(F(x_t))`. A long sequence is cut into
pieces whose products are taken side by side, and the pieces are then tied, so that a sequence of T
steps takes some :math:`2 \sqrt T` operations one after the other; of few states the products are a
tree, of :math:`\log_2 T` levels (S. Hassan, S. Särkkä and Á. F. García-Fernández 2021,
doi:10.1109/TSP.2021.3103338). The densities of a step are divided by the largest of them and the
products scaled. Where a move is impossible, a state that has lost all its weight to rounding could
not be entered anew, so that logarithms are added instead.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from pyro.distributions import Dirichlet, TorchDistribution
from torch import Tensor
from torch.distributions import biject_to, constraints, transform_to, transforms

from ppl_models.parts.distributions import broadcast_shapes
from ppl_models.parts.probability_tables import Shares
from ppl_models.sequences.option_chain import draw_categorical

SHORTEST = 128  # steps of a piece
FEW_STATES = 7  # of which a tree of products is taken, where there are more steps than sequences
MANY = 64  # sequences side by side, from which on none is cut
RESCALE = 4  # steps of a product of matrices between two scalings
# of the chance of a move, for products that are scaled
LEAST = {torch.float64: 1e-60, torch.float32: 1e-7}
# the logarithm of what is impossible: sums of it stay finite, in single precision too
NEVER = -1e30
MOST_EXPONENT = {torch.float64: 600.0, torch.float32: 70.0}
DOUBLINGS = 60
# terms of all products of pieces at one step, beyond which adding logarithms takes longer than
# going step by step
MOST_SUMS = 2**16


# ---------------------------------------------------------------- stationary distributions


def stationary_distribution(transitions: Tensor) -> Tensor:
    r"""Stationary distribution (\*batch, K), :math:`\delta A = \delta`; differentiable."""
    size = transitions.shape[-1]
    eye = torch.eye(size, dtype=transitions.dtype, device=transitions.device)
    return torch.linalg.solve((eye - transitions + 1.0).mT, torch.ones_like(transitions[..., 0]))


def limiting_distribution(transitions: Tensor) -> Tensor:
    r"""Long-run share of time in each state (\*batch, K), of any chain begun evenly."""
    size = transitions.shape[-1]
    eye = torch.eye(size, dtype=transitions.dtype, device=transitions.device)
    power = (transitions + eye) / 2  # has no period, and the same stationary distributions
    for _ in range(DOUBLINGS):
        power = power @ power
        power = power / power.sum(-1, keepdim=True)
    return power.mean(-2)


# ---------------------------------------------------------------- rows of chances with known zeros


class AllowedRows(Shares):
    """Constraint of matrices whose rows are probability vectors with zeros off a graph.

    Args:
        graph: bool (K, K), True where an entry may be positive; at least one in every row.
    """

    event_dim = 2
    base = constraints.simplex  # of every row

    def __init__(self, graph: Tensor) -> None:
        self.graph = graph
        super().__init__()

    def __repr__(self) -> str:
        return "rows of shares that sum to one, with 0 where no move is allowed"

    def check(self, value: Tensor) -> Tensor:
        graph = self.graph.to(value.device)
        return constraints.simplex.check(value).all(-1) & (
            value.masked_fill(graph, 0.0) == 0
        ).flatten(-2).all(-1)

    def scaled(self, value: Tensor) -> Tensor:
        return value / value.sum(-1, keepdim=True)


class _Rows(transforms.Transform):
    """Transform of free numbers, n - 1 for a row of n positive entries, to rows."""

    bijective = True
    domain = constraints.real_vector

    def __init__(self, graph: Tensor) -> None:
        super().__init__()
        self.graph = graph
        self.sizes = (graph.sum(-1) - 1).tolist()

    @property
    def codomain(self) -> constraints.Constraint:
        return AllowedRows(self.graph)

    def _parts(self, x: Tensor) -> list[tuple[int, Tensor]]:
        return [(k, part) for k, part in enumerate(x.split(self.sizes, -1)) if self.sizes[k]]

    def _call(self, x: Tensor) -> Tensor:
        stick, rows = transforms.StickBreakingTransform(), []
        for allowed, part in zip(self.graph, x.split(self.sizes, -1), strict=True):
            chances = stick(part) if part.shape[-1] else x.new_ones(x.shape[:-1] + (1,))
            padded = torch.cat([chances, x.new_zeros(x.shape[:-1] + (1,))], -1)
            place = torch.where(allowed, allowed.cumsum(-1) - 1, chances.shape[-1])
            rows.append(padded[..., place.to(x.device)])
        out = torch.stack(rows, -2)
        return out + x.sum(-1)[..., None, None] if x.shape[-1] == 0 else out  # zero, with a slope

    def _inverse(self, y: Tensor) -> Tensor:
        rows = [
            transforms.StickBreakingTransform().inv(y[..., k, self.graph[k]])
            for k, size in enumerate(self.sizes)
            if size
        ]
        return torch.cat(rows, -1) if rows else y.new_zeros((*y.shape[:-2], 0))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total = x.new_zeros(x.shape[:-1])
        for k, part in self._parts(x):
            total = total + transforms.StickBreakingTransform().log_abs_det_jacobian(
                part, y[..., k, self.graph[k]]
            )
        return total

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-1] + self.graph.shape

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        return shape[:-2] + torch.Size([sum(self.sizes)])


@biject_to.register(AllowedRows)
@transform_to.register(AllowedRows)
def _biject_to_rows(constraint: AllowedRows) -> transforms.Transform:
    return _Rows(constraint.graph)


class AllowedMoves(TorchDistribution):
    r"""Dirichlet prior of the rows of a transition matrix, over allowed entries.

    Args:
        concentration: (\*batch, K, K), positive where allowed.
        graph: bool (K, K).
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self, concentration: Tensor, graph: Tensor, batch_shape: torch.Size = torch.Size()
    ) -> None:
        self.concentration, self.graph = concentration, graph
        super().__init__(batch_shape, graph.shape, validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: Any = None) -> AllowedMoves:
        return AllowedMoves(self.concentration, self.graph, torch.Size(batch_shape))

    @property
    def support(self) -> constraints.Constraint:
        return AllowedRows(self.graph)

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
            weight = torch._standard_gamma(self.concentration.expand(shape).contiguous()).clamp(
                min=1e-30
            )
            weight = weight.masked_fill(~self.graph, 0.0)
            return weight / weight.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        total = value.new_zeros(value.shape[:-2])
        for k, own in enumerate(self.graph):
            if int(own.sum()) > 1:
                total = total + Dirichlet(
                    self.concentration[..., k, own], validate_args=False
                ).log_prob(value[..., k, own])
        return total.expand(broadcast_shapes(total.shape, self.batch_shape))


# ---------------------------------------------------------------- the sum over paths


def piece_length(num_sequences: int, num_steps: int) -> int:
    """Number of steps of the pieces that sequences are cut into."""
    if num_sequences >= MANY or num_steps <= 2 * SHORTEST:
        return num_steps
    return max(SHORTEST, math.isqrt(num_steps))


def may_lose_weight(transitions: Tensor) -> bool:
    """Tell whether scaled products may lose a state to rounding: some move is too unlikely."""
    return bool((transitions.detach() < LEAST.get(transitions.dtype, 1e-7)).any())


def log_chain(initial: Tensor, transitions: Tensor, log_densities: Tensor) -> Tensor:
    """Log-density of sequences, states summed out; derivatives of any order.

    Args:
        initial: (R, K); transitions: (R, K, K).
        log_densities: of every step in every state, (R, B, T, K); zeros where nothing was seen, as
            after the end of a sequence.

    Returns:
        (R, B).
    """
    if may_lose_weight(transitions):
        return log_chain_exactly(initial, transitions, log_densities)
    _, sequences, steps, size = log_densities.shape
    if size <= FEW_STATES and sequences < min(MANY, steps) and steps > 2:
        return _scaled_tree(initial, transitions, log_densities)
    return _scaled_products(
        initial, transitions, _pieces(log_densities, piece_length(sequences, steps))
    )


def log_chain_exactly(
    initial: Tensor, transitions: Tensor, log_densities: Tensor, inside: Tensor | None = None
) -> Tensor:
    """Log-density of sequences by log-sums: slower, exact where moves are impossible.

    Args:
        initial, transitions, log_densities: as above.
        inside: (B, T) bool, steps of the sequences; after the end of one the chain does not move.
            All if None.
    """
    steps, size = log_densities.shape[-2:]
    piece = piece_length(log_densities.shape[1], steps)
    if size**3 * -(-steps // piece) > MOST_SUMS:
        piece = steps
    own = None if inside is None or bool(inside.all()) else _pieces(inside[None, :, :, None], piece)
    return _added_logs(initial, transitions, _pieces(log_densities, piece), own)


def _pieces(values: Tensor, length: int) -> Tensor:
    """Cut (R, B, T, K) into pieces (L, R, B, P, K), zeros after the end."""
    num = -(-values.shape[2] // length)
    return (
        torch.nn.functional.pad(values, (0, 0, 0, num * length - values.shape[2]))
        .unflatten(2, (num, length))
        .movedim(3, 0)
    )


def first_offset(initial: Tensor, log_densities: Tensor) -> Tensor:
    """Offset of the log-densities of a first step, (R, B, 1).

    The largest with its chance, which may be tiny elsewhere.

    Args:
        initial: (R, K); log_densities: (R, B, K).
    """
    return _finite((log_densities + initial.log().unsqueeze(1)).amax(-1, keepdim=True).detach())


def _finite(value: Tensor) -> Tensor:
    return torch.where(value.isfinite(), value, 0.0)


def _scaled_tree(initial: Tensor, transitions: Tensor, log_densities: Tensor) -> Tensor:
    """Scaled products by a tree: of neighbours, of neighbouring products, and so on."""
    peak = _finite(log_densities.amax(-1, keepdim=True).detach())  # (R, B, T, 1)
    peak = torch.cat(
        [first_offset(initial, log_densities[:, :, 0]).unsqueeze(2), peak[:, :, 1:]], 2
    )
    weights = (log_densities - peak).clamp(max=MOST_EXPONENT.get(log_densities.dtype, 70.0)).exp()
    total, least = peak.double().sum((2, 3)), torch.finfo(weights.dtype).tiny
    # (R, B, T - 1, K, K), rows: the state before
    product = transitions[:, None, None] * weights[:, :, 1:].unsqueeze(-2)
    while product.shape[2] > 1:
        even = product.shape[2] // 2 * 2
        pairs = product[:, :, :even].unflatten(2, (-1, 2))
        joined = pairs[:, :, :, 0] @ pairs[:, :, :, 1]
        scale = joined.detach().amax((-2, -1), keepdim=True).clamp(min=least)
        total = total + scale.double().log().sum((2, 3, 4))
        product = torch.cat([joined / scale, product[:, :, even:]], 2)
    after = (initial.unsqueeze(1) * weights[:, :, 0]).unsqueeze(-2) @ product[:, :, 0]
    return (total + after.sum((-2, -1)).double().log()).to(log_densities.dtype)


def _scaled_products(initial: Tensor, transitions: Tensor, cut: Tensor) -> Tensor:
    """Scaled products of densities (L, R, B, P, K)."""
    num = cut.shape[3]
    peak = _finite(cut.amax(-1, keepdim=True).detach())
    first = first_offset(initial, cut[0, :, :, 0])
    peak = torch.cat([torch.cat([first.unsqueeze(2), peak[0, :, :, 1:]], 2).unsqueeze(0), peak[1:]])
    # each (R, B, P, K)
    weights = (cut - peak).clamp(max=MOST_EXPONENT.get(cut.dtype, 70.0)).exp().unbind(0)
    # (R, B); of one step, too, there is a slope
    total = peak.double().sum((0, 3, 4)) + 0.0 * transitions.double().sum((-2, -1)).unsqueeze(-1)
    least = torch.finfo(cut.dtype).tiny
    if num == 1:
        alpha, logs = initial.unsqueeze(1) * weights[0].squeeze(2), []
        for weight in weights[1:]:
            scale = alpha.detach().sum(-1, keepdim=True).clamp(min=least)
            logs.append(scale.log())
            alpha = (alpha / scale) @ transitions * weight.squeeze(2)
        logs.append(alpha.sum(-1, keepdim=True).log())
        return (total + torch.stack(logs).double().sum((0, -1))).to(cut.dtype)
    # (R, B, P, K, K), rows: the first state of a piece
    product, scales = (torch.diag_embed(weights[0]), [])
    move = transitions[:, None, None]
    for t, weight in enumerate(weights[1:], 1):
        product = product @ move * weight.unsqueeze(-2)
        if t % RESCALE == 0 or t == len(weights) - 1:
            scale = product.detach().amax((-2, -1), keepdim=True).clamp(min=least)
            scales.append(scale.log())
            product = product / scale
    if scales:
        total = total + torch.stack(scales).double().sum((0, -3, -2, -1))
    before, logs = initial.unsqueeze(1).expand(-1, cut.shape[2], -1), []
    for own in product.unbind(2):  # (R, B, K, K)
        after = (before.unsqueeze(-2) @ own).squeeze(-2)
        scale = after.detach().sum(-1, keepdim=True).clamp(min=least)
        logs.append(scale.log())
        after = after / scale
        before = after @ transitions
    return (total + torch.stack(logs).double().sum((0, -1)) + after.sum(-1).double().log()).to(
        cut.dtype
    )


def _added_logs(initial: Tensor, transitions: Tensor, cut: Tensor, inside: Tensor | None) -> Tensor:
    """Log-space products of densities (L, R, B, P, K); step mask (L, 1, B, P, 1)."""
    moves, start = _logs(transitions), _logs(initial)
    cut = cut.clamp(min=NEVER)

    if cut.shape[3] == 1:
        alpha = start.unsqueeze(1) + cut[0, :, :, 0]
        for t in range(1, len(cut)):
            moved = (alpha.unsqueeze(-1) + moves.unsqueeze(1)).logsumexp(-2) + cut[t, :, :, 0]
            alpha = moved if inside is None else torch.where(inside[t, :, :, 0], moved, alpha)
    else:
        product = _logs(torch.eye(cut.shape[-1], dtype=cut.dtype, device=cut.device)) + cut[
            0
        ].unsqueeze(-2)  # (R, B, P, K, K)
        for t in range(1, len(cut)):
            moved = (product.unsqueeze(-1) + moves[:, None, None, None]).logsumexp(-2) + cut[
                t
            ].unsqueeze(-2)
            product = (
                moved if inside is None else torch.where(inside[t].unsqueeze(-1), moved, product)
            )
        alpha = start.unsqueeze(1).expand(-1, cut.shape[2], -1)
        for p, part in enumerate(product.unbind(2)):
            into = alpha if p == 0 else (alpha.unsqueeze(-1) + moves.unsqueeze(1)).logsumexp(-2)
            moved = (into.unsqueeze(-1) + part).logsumexp(-2)
            alpha = moved if inside is None else torch.where(inside[0, :, :, p], moved, alpha)
    total = alpha.logsumexp(-1) + 0.0 * transitions.sum((-2, -1)).unsqueeze(-1)
    return torch.where(total < NEVER / 2, -torch.inf, total)


def _logs(chances: Tensor) -> Tensor:
    possible = chances > 0
    return torch.where(possible, torch.where(possible, chances, 1.0).log(), NEVER)


# ---------------------------------------------------------------- the distribution


def emission_densities(emission: TorchDistribution, value: Tensor) -> Tensor:
    r"""Log-density of every step in every state, zero where nothing was seen.

    Args:
        emission: of batch shape (\*batch, 1 or T, K).
        value: (\*rows, T, J); NaN where missing, infinity after the end.

    Returns:
        (\*broadcast(batch, rows), T, K).
    """
    value = torch.where(value == torch.inf, torch.nan, value)
    empty = value.isnan().all(-1)
    if bool(empty.all()):
        shape = (
            broadcast_shapes(emission.batch_shape[:-1], value.shape[:-1])
            + emission.batch_shape[-1:]
        )
        return value.new_zeros(shape)
    # any row that was seen, where a distribution of whole rows would not know what to say
    filler = value[~empty][0]
    found: Tensor = emission.log_prob(torch.where(empty.unsqueeze(-1), filler, value).unsqueeze(-2))
    return torch.where(empty.unsqueeze(-1), 0.0, found)


class _Steps(constraints.Constraint):
    """Constraint of sequences: NaN is missing, infinity lies after the end."""

    is_discrete = False
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value != -torch.inf).flatten(-2).all(-1)


class HiddenChain(TorchDistribution):
    r"""Distribution of T rows that depend on a hidden Markov chain, states summed out.

    Entries of a value may be missing (NaN): they leave the likelihood, as a row does that is
    missing altogether, or that lies after the end of its sequence (infinity).

    Args:
        initial: :math:`\pi` (\*batch, K); transitions: A (\*batch, K, K), rows sum to one.
        emission: the distribution of a row, of batch shape (\*batch, 1, K), or (\*batch, T, K)
            where it changes from step to step, and event shape (J,).
        num_steps: length of a drawn sequence.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    support = _Steps()
    latent = "states"  # that labels of steps speak of
    labels: Tensor | None = None

    def __init__(
        self,
        initial: Tensor,
        transitions: Tensor,
        emission: TorchDistribution,
        num_steps: int,
        validate_args: bool | None = None,
    ) -> None:
        self.initial, self.transitions, self.emission, self.num_steps = (
            initial,
            transitions,
            emission,
            num_steps,
        )
        self._own = broadcast_shapes(
            initial.shape[:-1], transitions.shape[:-2], emission.batch_shape[:-2]
        )
        super().__init__(
            self._own, torch.Size([num_steps, *emission.event_shape]), validate_args=False
        )

    def expand(self, batch_shape: torch.Size, _instance: Any = None) -> HiddenChain:
        new = HiddenChain(self.initial, self.transitions, self.emission, self.num_steps)
        new._batch_shape, new.labels = torch.Size(batch_shape), self.labels
        return new

    def with_labels(self, table: Tensor) -> HiddenChain:
        """Distribution of rows and labels of their states.

        Args:
            table: log p(label | state) of every step, (B, T, K), zeros where nothing is known.
        """
        new = self.expand(self.batch_shape)
        new.labels = table
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        shape = broadcast_shapes(self.batch_shape, value.shape[:-2])
        size = self.initial.shape[-1]
        num_rows = value.shape[:-2].numel()
        is_shared = self._own[-1:] in (torch.Size(), torch.Size([1])) and (
            value.dim() == 2 or num_rows == value.shape[-3]
        )
        if (
            is_shared and self.emission.batch_shape[-2] == 1
        ):  # one chain, or one a restart, for all sequences
            own = self._own[:-1]
            rows = value.reshape(-1, value.shape[-1])  # the steps of all sequences side by side
            densities = emission_densities(self.emission, rows).expand(
                self._own + (len(rows), size)
            )
            densities = densities.reshape(own.numel(), -1, value.shape[-2], size)
            densities = densities if self.labels is None else densities + self.labels
            initial, transitions = (
                self.initial.expand(self._own + (size,)),
                self.transitions.expand(self._own + (size, size)),
            )
            found = self._log_chain(
                initial.reshape(-1, size),
                transitions.reshape(-1, size, size),
                densities,
                own + (1,),
            )  # (R, B)
            if len(shape):
                return found.reshape(own + found.shape[-1:]).expand(shape)
            return found.reshape(())
        value = value.expand(shape + value.shape[-2:])
        densities = emission_densities(self.emission, value).expand(shape + (value.shape[-2], size))
        densities = densities if self.labels is None else densities + self.labels
        initial, transitions = (
            self.initial.expand(shape + (size,)),
            self.transitions.expand(shape + (size, size)),
        )
        found = self._log_chain(
            initial.reshape(-1, size),
            transitions.reshape(-1, size, size),
            densities.reshape(-1, 1, value.shape[-2], size),
            shape,
        )
        return found.reshape(shape)

    def _log_chain(
        self, initial: Tensor, transitions: Tensor, densities: Tensor, shape: torch.Size
    ) -> Tensor:
        """Log-density (R, B) of chains (R, ...), those of batch shape ``shape`` in order."""
        return log_chain(initial, transitions, densities)

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        return self.sample_with_states(sample_shape)[1]

    def sample_with_states(self, sample_shape: torch.Size = torch.Size()) -> tuple[Tensor, Tensor]:
        r"""Draw states (\*sample, \*batch, T) and rows (\*sample, \*batch, T, J)."""
        shape, size = torch.Size(sample_shape) + self.batch_shape, self.initial.shape[-1]
        with torch.no_grad():
            path = self._draw_path(shape)
            # one row for every state
            each = self.emission.expand(shape + (self.num_steps, size)).sample()
            index = path[..., None, None].expand(path.shape + (1, each.shape[-1]))
            return path, each.gather(-2, index).squeeze(-2)

    def _draw_path(self, shape: torch.Size) -> Tensor:
        """Draw the states, (*shape, T)."""
        size = self.initial.shape[-1]
        state = draw_categorical(self.initial.expand(shape + (size,)))
        transitions = self.transitions.expand(shape + (size, size))
        states = [state]
        for _ in range(self.num_steps - 1):
            row = transitions.gather(-2, state[..., None, None].expand(shape + (1, size)))
            state = draw_categorical(row.squeeze(-2))
            states.append(state)
        return torch.stack(states, -1)
