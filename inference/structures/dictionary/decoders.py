"""Sparse codes of rows for a dictionary: decoders, starts and objectives.

Every decoder is a frozen record with ``decode(cross, gram, sparsity)``: cross (R, N, m), gram (R,
m, m) to codes (R, N, m). All but :class:`Shrinkage` return at most ``sparsity`` entries that are
not zero, and the best amounts on that support.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, log
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from inference.base.structure import Problem
from inference.programs.program import Params
from ppl_models.descriptions.components import DictionaryDescription
from ppl_models.parts.validation import check_number, check_size, plain_fields

RIDGE = 1e-12  # of unit columns: two that coincide still have amounts
RANK_TOLERANCE = 1e-12  # of the Gram matrix, relative


class Decoder(Protocol):
    """Protocol of a decoder: sparse codes from sufficient statistics."""

    def decode(self, cross: Tensor, gram: Tensor, sparsity: int) -> Tensor:
        """Codes (R, N, m) from cross products (R, N, m) and the Gram matrix (R, m, m)."""


def least_squares(cross: Tensor, gram: Tensor) -> Tensor:
    """Least-squares codes: the dictionary's pseudoinverse applied to the rows, (R, N, m)."""
    return cross @ torch.linalg.pinv(gram, rtol=RANK_TOLERANCE, hermitian=True)


def amounts_on(chosen: Tensor, cross: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """Least-squares amounts on supports (R, N, s), and the inverse of each Gram matrix."""
    size, m = chosen.shape[-1], gram.shape[-1]
    pairs = chosen.unsqueeze(-1) * m + chosen.unsqueeze(-2)  # (R, N, s, s)
    block = gram.flatten(1).gather(1, pairs.flatten(1)).reshape(pairs.shape)
    inverse = torch.linalg.inv(
        block + RIDGE * torch.eye(size, dtype=gram.dtype, device=gram.device)
    )
    return (inverse @ cross.gather(-1, chosen).unsqueeze(-1)).squeeze(-1), inverse


def without_cheapest(chosen: Tensor, amounts: Tensor, inverse: Tensor) -> tuple[Tensor, ...]:
    r"""Supports, amounts and inverses without the entry that is cheapest to drop.

    Dropping entry i of a support raises the squared error by :math:`h_i^2 / P_{ii}`, with h the
    amounts and P the inverse of the Gram matrix, and leaves :math:`h - P_{\cdot i} h_i / P_{ii}`
    and :math:`P - P_{\cdot i} P_{i \cdot} / P_{ii}`. One of a negative amount goes first.
    """
    size = chosen.shape[-1]
    diagonal = inverse.diagonal(dim1=-2, dim2=-1).clamp(min=1e-300)
    cost = torch.where(amounts > 0, amounts.square() / diagonal, 0.0)
    worst = cost.argmin(-1, keepdim=True)
    column = inverse.gather(-1, worst.unsqueeze(-2).expand(*inverse.shape[:-1], 1)).squeeze(-1)
    scaled = column / diagonal.gather(-1, worst)
    amounts = amounts - scaled * amounts.gather(-1, worst)
    inverse = torch.addcmul(inverse, scaled.unsqueeze(-1), column.unsqueeze(-2), value=-1.0)
    others = torch.arange(size - 1, device=chosen.device)
    kept = others + (others >= worst)  # (R, N, s - 1)
    rows = inverse.gather(-2, kept.unsqueeze(-1).expand(*kept.shape, size))
    inverse = rows.gather(-1, kept.unsqueeze(-2).expand(*kept.shape, size - 1))
    return chosen.gather(-1, kept), amounts.gather(-1, kept), inverse


def on_support(chosen: Tensor, cross: Tensor, gram: Tensor) -> Tensor:
    """Codes with the best amounts on a support, negative ones left out one by one."""
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
    r"""Shrinkage decoder :math:`\max(0, A^+ x - \alpha)` (Buhai et al. 2020, arXiv:1907.00030).

    It does not use the sparsity.

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
        """Decode to sparse codes (R, N, m)."""
        return (least_squares(cross, gram) - self.threshold).clamp(min=0)


@dataclass(frozen=True)
class BackwardElimination:
    """Non-negative least squares, whose cheapest large entries are dropped one by one.

    Args:
        num_sweeps: passes of coordinate descent from the clamped pseudoinverse. More of them bring
            non-negative least squares nearer to its minimum and the support, on average, no nearer
            to the best one.
        width: entries that elimination begins with, in multiples of the sparsity.

    Raises:
        ValueError: for numbers that are not positive.
    """

    num_sweeps: int = 5
    width: int = 2

    def __post_init__(self) -> None:
        _check_positive(self, "num_sweeps", "width")

    def decode(self, cross: Tensor, gram: Tensor, sparsity: int) -> Tensor:
        """Decode to sparse codes (R, N, m)."""
        codes = least_squares(cross, gram).clamp(min=0).mT.contiguous()  # (R, m, N), by column
        slopes, curvature = cross.mT.contiguous(), gram.diagonal(dim1=-2, dim2=-1).clamp(min=RIDGE)
        for _ in range(self.num_sweeps):
            for i in range(codes.shape[1]):
                slope = slopes[:, i] - (gram[:, i : i + 1] @ codes).squeeze(1)
                codes[:, i] += slope / curvature[:, i : i + 1]
                codes[:, i].clamp_(min=0)
        chosen = codes.mT.topk(min(self.width * sparsity, codes.shape[1]), -1).indices
        amounts, inverse = amounts_on(chosen, cross, gram)
        while chosen.shape[-1] > sparsity:
            chosen, amounts, inverse = without_cheapest(chosen, amounts, inverse)
        return on_support(chosen, cross, gram)


@dataclass(frozen=True)
class Pursuit:
    """Orthogonal matching pursuit with columns of positive correlation.

    Source: Pati, Rezaiifar and Krishnaprasad (1993).
    """

    def decode(self, cross: Tensor, gram: Tensor, sparsity: int) -> Tensor:
        """Decode to sparse codes (R, N, m)."""
        codes = torch.zeros_like(cross)
        chosen = torch.empty(*cross.shape[:-1], 0, dtype=torch.long, device=cross.device)
        for _ in range(sparsity):
            left = (cross - codes @ gram).scatter(-1, chosen, -torch.inf)
            chosen = torch.cat([chosen, left.argmax(-1, keepdim=True)], -1)
            codes = on_support(chosen, cross, gram)
        return codes


@dataclass(frozen=True)
class HardThresholding:
    """Iterative hard thresholding from the pseudoinverse, least squares on every support.

    Source: Blumensath and Davies (2009).

    Args:
        num_steps: gradient steps.

    Raises:
        ValueError: if it is not positive.
    """

    num_steps: int = 50

    def __post_init__(self) -> None:
        _check_positive(self, "num_steps")

    def decode(self, cross: Tensor, gram: Tensor, sparsity: int) -> Tensor:
        """Decode to sparse codes (R, N, m)."""
        step = 1 / torch.linalg.matrix_norm(gram, 2).clamp(min=RIDGE)[:, None, None]
        codes = on_support(least_squares(cross, gram).topk(sparsity, -1).indices, cross, gram)
        for _ in range(self.num_steps):
            moved = (codes + step * (cross - codes @ gram)).clamp(min=0)
            codes = on_support(moved.topk(sparsity, -1).indices, cross, gram)
        return codes


def _check_positive(owner: object, *names: str) -> None:
    plain_fields(owner)
    for name in names:
        check_size(type(owner).__name__, name, getattr(owner, name))


START_RANK_TOLERANCE = 1e-8  # of singular values, relative
CHUNK_ELEMENTS = 2**22  # of the largest tensor of a decoder


def decode(decoder: Any, data: Tensor, dictionary: Tensor, sparsity: int) -> Tensor:
    """Codes (R, N, m) of rows (N, J) by one decoder, in chunks of rows.

    ``dictionary``: (R, J, m), columns not all zero.
    """
    gram = dictionary.mT @ dictionary
    rows = max(1, CHUNK_ELEMENTS // (len(dictionary) * max(dictionary.shape[-1], 4 * sparsity**2)))
    return torch.cat(
        [decoder.decode(part @ dictionary, gram, sparsity) for part in data.split(rows)], 1
    )


def unit_columns(dictionary: Tensor) -> Tensor:
    """Normalise columns to length one."""
    return dictionary / dictionary.norm(dim=-2, keepdim=True).clamp(min=1e-300)


def random_dictionary(
    data: Tensor, num_columns: int, num_restarts: int, generator: Generator
) -> Tensor:
    """Gaussian columns in the span of the rows, of length 1, (R, J, m)."""
    rank, _, right = _span(data)
    noise = torch.randn(
        num_restarts, rank, num_columns, generator=generator, dtype=torch.float64
    ).to(data)
    return unit_columns(right[:rank].mT @ noise)


def fourth_moment_start(
    data: Tensor, num_columns: int, generator: Generator, num_steps: int = 200
) -> Tensor:
    r"""Rotation of the whitened rows to the heaviest tails, (J, min(m, rank)).

    Rows are whitened by their second moments about zero (codes that sum to one have no full
    covariance), so :math:`x = h Q^\top S V` with an orthogonal Q, found by :math:`Q \leftarrow
    \mathrm{polar}(Y^\top (YQ)^3)`: every step raises the sum of fourth moments (Zhai, Yang, Liao,
    Wright and Ma 2020, Journal of Machine Learning Research 21). The sign of a column makes the
    third moment of its codes positive. Exact for independent centred codes; a start for others.
    """
    rank, (left, size), right = _span(data)
    rank = min(rank, num_columns)
    white = left[:, :rank] * len(data) ** 0.5
    noise = torch.randn(rank, rank, generator=generator, dtype=torch.float64).to(data)
    turn = torch.linalg.qr(noise).Q
    for _ in range(num_steps):
        u, _, v = torch.linalg.svd(white.mT @ (white @ turn) ** 3)
        moved = float((u @ v - turn).abs().max())
        turn = u @ v
        if moved < 1e-9:
            break
    turn = turn * torch.where(((white @ turn) ** 3).sum(0) < 0, -1.0, 1.0)
    return unit_columns(right[:rank].mT @ (size[:rank, None] * turn))


def _span(data: Tensor) -> tuple[int, tuple[Tensor, Tensor], Tensor]:
    left, size, right = torch.linalg.svd(data, full_matrices=False)
    return int((size > START_RANK_TOLERANCE * size[0]).sum()), (left, size), right


def codes_of(about: DictionaryDescription, data: Tensor, dictionary: Tensor) -> Tensor:
    """Final codes of rows, (R, N, m): those of the decoder that serves each row best.

    Decoders err on different rows, and a fit's own codes are the best of many rounds. None of the
    three need find the best support of a row.
    """
    decoders = (BackwardElimination(), Pursuit(), HardThresholding())
    codes = [decode(one, data, dictionary, about.sparsity) for one in decoders]
    best, *others = (one.clamp(max=about.bound) for one in codes)
    for other in others:
        best, _ = better_codes(data, dictionary, best, other)
    return best


def better_codes(
    data: Tensor, dictionary: Tensor, codes: Tensor, new: Tensor
) -> tuple[Tensor, Tensor]:
    """Codes of each row with the smaller error, (R, N, m), and their squared errors, (R,)."""
    old_errors, new_errors = (squared_errors(data, dictionary, own) for own in (codes, new))
    better = (new_errors < old_errors).unsqueeze(-1)
    return torch.where(better, new, codes), torch.minimum(old_errors, new_errors).sum(-1)


def squared_errors(data: Tensor, dictionary: Tensor, codes: Tensor) -> Tensor:
    """Squared error of each row, (R, N)."""
    return (data - codes @ dictionary.mT).square().sum(-1)


def finished(
    about: DictionaryDescription, dictionary: Tensor, codes: Tensor, data: Tensor
) -> Params:
    """Final parameters and codes by site, the noise at its maximum if estimated."""
    params = {"dictionary": dictionary, "codes": codes}
    if about.noise is None:
        square = (data - codes @ dictionary.mT).square().mean((-2, -1))
        params["noise"] = square.sqrt().clamp(*about.noise_range).unsqueeze(-1)
    return params


def objectives(
    about: DictionaryDescription, problem: Problem, params: Params
) -> tuple[Tensor, Tensor]:
    """Log-likelihood given the codes, and log-joint density with the parameters, (R,)."""
    likelihood = conditional_rows(about, params, problem.data).sum(-1).double().cpu()
    prior = problem.program().log_prior(params).detach().double().cpu()
    each = -log(comb(about.num_columns, about.sparsity)) - about.sparsity * log(about.bound)
    return likelihood, likelihood + prior + problem.num_rows * each


def conditional_rows(about: DictionaryDescription, params: Params, data: Tensor) -> Tensor:
    """Log-likelihood of each row given its codes, (N,) or (R, N)."""
    dictionary, codes = params["dictionary"], params["codes"]
    means = codes @ dictionary.mT
    noise = means.new_tensor([about.noise]) if about.noise is not None else params["noise"]
    distribution = torch.distributions.Normal(means, noise.unsqueeze(-2), validate_args=False)
    return distribution.log_prob(data.to(dictionary)).sum(-1)
