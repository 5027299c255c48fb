"""Codes of rows for a dictionary, dictionaries to start from, and what they say of the rows."""

from __future__ import annotations

from math import comb, log
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from inference.programs.program import Params
from inference.structures.dictionary.decoders import BackwardElimination

if TYPE_CHECKING:
    from inference.base.structure import Problem
    from ppl_models.descriptions.components import DictionaryDescription


RANK_TOLERANCE = 1e-8  # of singular values, relative
CHUNK_ELEMENTS = 2**22  # of the largest tensor of a decoder


def decode(decoder: Any, data: Tensor, dictionary: Tensor, sparsity: int) -> Tensor:
    """Codes (R, N, m) of rows (N, J) by one decoder, in chunks of rows.

    Args:
        dictionary: (R, J, m), columns not all zero.
    """
    gram = dictionary.mT @ dictionary
    rows = max(1, CHUNK_ELEMENTS // (len(dictionary) * max(dictionary.shape[-1], 4 * sparsity**2)))
    return torch.cat(
        [decoder.decode(part @ dictionary, gram, sparsity) for part in data.split(rows)], 1
    )


def unit_columns(dictionary: Tensor) -> Tensor:
    """Columns divided by their lengths."""
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
    r"""The rotation of the whitened rows with the heaviest tails, (J, min(m, rank)).

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
    return int((size > RANK_TOLERANCE * size[0]).sum()), (left, size), right


def codes_of(about: DictionaryDescription, data: Tensor, dictionary: Tensor) -> Tensor:
    """The reported codes of rows, (R, N, m), whatever decoder a fit alternated with."""
    return decode(BackwardElimination(), data, dictionary, about.sparsity).clamp(max=about.bound)


def finished(
    about: DictionaryDescription, dictionary: Tensor, codes: Tensor, data: Tensor
) -> Params:
    """Parameters and codes by site, the noise at its best where it is estimated."""
    params = {"dictionary": dictionary, "codes": codes}
    if about.noise is None:
        square = (data - codes @ dictionary.mT).square().mean((-2, -1))
        params["noise"] = square.sqrt().clamp(*about.noise_range).unsqueeze(-1)
    return params


def objectives(
    about: DictionaryDescription, problem: Problem, params: Params
) -> tuple[Tensor, Tensor]:
    """Log-likelihood given the codes, and log-joint density of data, codes and parameters, (R,)."""
    likelihood = conditional_rows(about, params, problem.data).sum(-1).double().cpu()
    prior = problem.program().log_prior(params).detach().double().cpu()
    each = -log(comb(about.num_columns, about.sparsity)) - about.sparsity * log(about.bound)
    return likelihood, likelihood + prior + problem.num_rows * each


def conditional_rows(about: DictionaryDescription, params: Params, data: Tensor) -> Tensor:
    """Log-likelihood of each row given its codes, (N,) or (R, N)."""
    dictionary, codes = params["dictionary"], params["codes"]
    means = codes @ dictionary.mT
    noise = means.new_tensor([about.noise]) if about.noise is not None else params["noise"]
    law = torch.distributions.Normal(means, noise.unsqueeze(-2), validate_args=False)
    return law.log_prob(data.to(dictionary)).sum(-1)
