r"""Sparse non-negative codes of rows for a given dictionary A, from :math:`A^\top x` and
:math:`A^\top A` alone.

Every decoder is a frozen record with ``decode(cross, gram, sparsity)``: cross (R, N, m), gram (R,
m, m) to codes (R, N, m). All but :class:`Shrinkage` return at most ``sparsity`` entries that are
not zero, and the best amounts on that support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ppl_models.parts.validation import check_number, check_size, plain_fields

RIDGE = 1e-12  # of unit columns: two that coincide still have amounts
RANK_TOLERANCE = 1e-12  # of the Gram matrix, relative


class Decoder(Protocol):
    """Codes from sufficient statistics."""

    def decode(self, cross: Tensor, gram: Tensor, sparsity: int) -> Tensor: ...


def least_squares(cross: Tensor, gram: Tensor) -> Tensor:
    """The pseudoinverse of the dictionary applied to the rows, (R, N, m)."""
    return cross @ torch.linalg.pinv(gram, rtol=RANK_TOLERANCE, hermitian=True)


def amounts_on(chosen: Tensor, cross: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """Least squares on supports (R, N, s): amounts (R, N, s), and what dropping each costs in
    squared error, (R, N, s).
    """
    size, m = chosen.shape[-1], gram.shape[-1]
    pairs = chosen.unsqueeze(-1) * m + chosen.unsqueeze(-2)  # (R, N, s, s)
    block = gram.flatten(1).gather(1, pairs.flatten(1)).reshape(pairs.shape)
    inverse = torch.linalg.inv(
        block + RIDGE * torch.eye(size, dtype=gram.dtype, device=gram.device)
    )
    amounts = (inverse @ cross.gather(-1, chosen).unsqueeze(-1)).squeeze(-1)
    return amounts, amounts.square() / inverse.diagonal(dim1=-2, dim2=-1).clamp(min=1e-300)


def _on_support(chosen: Tensor, cross: Tensor, gram: Tensor) -> Tensor:
    """Codes with the best amounts on a support; where one is negative it is left out and the others
    are solved for again.
    """
    amounts, _ = amounts_on(chosen, cross, gram)
    eye = torch.eye(chosen.shape[-1], dtype=gram.dtype, device=gram.device)
    out = amounts < 0
    fresh = out.clone()
    while bool(fresh.any()):  # what is left out stays out: at most s rounds
        r, n = fresh.any(-1).nonzero(as_tuple=True)
        some, gone = chosen[r, n], out[r, n]
        block = gram[r[:, None, None], some.unsqueeze(-1), some.unsqueeze(-2)] + RIDGE * eye
        block = torch.where(gone.unsqueeze(-1) | gone.unsqueeze(-2), eye, block)
        right = torch.where(gone, 0.0, cross[r[:, None], n[:, None], some])
        new = torch.linalg.solve(block, right)
        amounts[r, n] = new
        fresh = torch.zeros_like(out)
        fresh[r, n] = (new < 0) & ~gone
        out |= fresh
    return torch.zeros_like(cross).scatter(-1, chosen, amounts.clamp(min=0))


@dataclass(frozen=True)
class Shrinkage:
    r""":math:`\max(0, A^+ x - \alpha)`, the decoder of Buhai et al. (2020, arXiv:1907.00030); it
    does not use the sparsity.

    Args:
        threshold: :math:`\alpha`, in units of the data.

    Raises:
        ValueError: if it is negative.
    """

    threshold: float = 0.005

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number(
            "Shrinkage", "threshold", self.threshold, "not be negative, and be finite", least=0
        )

    def decode(self, cross: Tensor, gram: Tensor, sparsity: int) -> Tensor:
        """Codes (R, N, m)."""
        return (least_squares(cross, gram) - self.threshold).clamp(min=0)


@dataclass(frozen=True)
class BackwardElimination:
    """Non-negative least squares over all columns; of its largest entries the cheapest is dropped
    until ``sparsity`` are left.

    Args:
        num_sweeps: passes of coordinate descent from the clamped pseudoinverse.
        width: entries that elimination begins with, in multiples of the sparsity.

    Raises:
        ValueError: for numbers that are not positive.
    """

    num_sweeps: int = 20
    width: int = 2

    def __post_init__(self) -> None:
        _check_positive(self, "num_sweeps", "width")

    def decode(self, cross: Tensor, gram: Tensor, sparsity: int) -> Tensor:
        """Codes (R, N, m)."""
        codes = least_squares(cross, gram).clamp(min=0)
        for _ in range(self.num_sweeps):
            for i in range(codes.shape[-1]):
                slope = cross[..., i] - (codes @ gram[..., i : i + 1]).squeeze(-1)
                codes[..., i] = (
                    codes[..., i] + slope / gram[:, i, i].clamp(min=RIDGE)[:, None]
                ).clamp(min=0)
        chosen = codes.topk(min(self.width * sparsity, codes.shape[-1]), -1).indices
        while chosen.shape[-1] > sparsity:
            amounts, cost = amounts_on(chosen, cross, gram)
            worst = torch.where(amounts > 0, cost, 0.0).argmin(-1, keepdim=True)
            kept = torch.ones_like(chosen, dtype=torch.bool).scatter(-1, worst, False)
            chosen = chosen[kept].reshape(*chosen.shape[:-1], -1)
        return _on_support(chosen, cross, gram)


@dataclass(frozen=True)
class Pursuit:
    """Orthogonal matching pursuit (Pati, Rezaiifar and Krishnaprasad 1993) with columns of positive
    correlation.
    """

    def decode(self, cross: Tensor, gram: Tensor, sparsity: int) -> Tensor:
        """Codes (R, N, m)."""
        codes = torch.zeros_like(cross)
        chosen = torch.empty(*cross.shape[:-1], 0, dtype=torch.long, device=cross.device)
        for _ in range(sparsity):
            left = (cross - codes @ gram).scatter(-1, chosen, -torch.inf)
            chosen = torch.cat([chosen, left.argmax(-1, keepdim=True)], -1)
            codes = _on_support(chosen, cross, gram)
        return codes


@dataclass(frozen=True)
class HardThresholding:
    """Iterative hard thresholding (Blumensath and Davies 2009) from the pseudoinverse, least
    squares on every support.

    Args:
        num_steps: gradient steps.

    Raises:
        ValueError: if it is not positive.
    """

    num_steps: int = 50

    def __post_init__(self) -> None:
        _check_positive(self, "num_steps")

    def decode(self, cross: Tensor, gram: Tensor, sparsity: int) -> Tensor:
        """Codes (R, N, m)."""
        step = 1 / torch.linalg.matrix_norm(gram, 2).clamp(min=RIDGE)[:, None, None]
        codes = _on_support(least_squares(cross, gram).topk(sparsity, -1).indices, cross, gram)
        for _ in range(self.num_steps):
            moved = (codes + step * (cross - codes @ gram)).clamp(min=0)
            codes = _on_support(moved.topk(sparsity, -1).indices, cross, gram)
        return codes


def _check_positive(owner: object, *names: str) -> None:
    plain_fields(owner)
    for name in names:
        check_size(type(owner).__name__, name, getattr(owner, name))
