"""What fits need of a dictionary: a start from fourth moments, codes of rows, densities, an order of the columns."""

from __future__ import annotations

from collections.abc import Callable
from math import comb, log
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from inference.base.structure import Recommendation, Structure
from inference.programs.program import Params
from inference.structures.dictionary.decoders import BackwardElimination

if TYPE_CHECKING:
    from inference.base.steps import Steps
    from inference.engines.em import EM
    from inference.fitting.fit import Problem
    from ppl_models.descriptions.components import DictionaryDescription

__all__ = ["Dictionaries", "decode", "fourth_moment_start", "random_start"]

RANK_TOLERANCE = 1e-8  # of singular values, relative
CHUNK_ELEMENTS = 2**22  # of the largest tensor of a decoder


def decode(decoder: Any, data: Tensor, dictionary: Tensor, sparsity: int) -> Tensor:
    """Codes (R, N, m) of rows (N, J) by one decoder, in chunks of rows.

    Args:
        dictionary: (R, J, m), columns not all zero.
    """
    gram = dictionary.mT @ dictionary
    rows = max(1, CHUNK_ELEMENTS // (len(dictionary) * max(dictionary.shape[-1], 4 * sparsity**2)))
    return torch.cat([decoder.decode(part @ dictionary, gram, sparsity) for part in data.split(rows)], 1)


def unit_columns(dictionary: Tensor) -> Tensor:
    """Columns divided by their lengths."""
    return dictionary / dictionary.norm(dim=-2, keepdim=True).clamp(min=1e-300)


def random_start(data: Tensor, num_columns: int, num_restarts: int, generator: Generator) -> Tensor:
    """Gaussian columns in the span of the rows, of length 1, (R, J, m)."""
    rank, _, right = _span(data)
    noise = torch.randn(num_restarts, rank, num_columns, generator=generator, dtype=torch.float64).to(data)
    return unit_columns(right[:rank].mT @ noise)


def fourth_moment_start(data: Tensor, num_columns: int, generator: Generator, num_steps: int = 200) -> Tensor:
    r"""The rotation of the whitened rows with the heaviest tails, (J, min(m, rank)).

    Rows are whitened by their second moments about zero (codes that sum to one have no full covariance), so
    :math:`x = h Q^\top S V` with an orthogonal Q, found by :math:`Q \leftarrow \mathrm{polar}(Y^\top (YQ)^3)`: every step raises
    the sum of fourth moments (Zhai, Yang, Liao, Wright and Ma 2020, Journal of Machine Learning Research 21). The sign of a
    column makes the third moment of its codes positive. Exact for independent centred codes; a start for others.
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


class Dictionaries(Structure):
    """A model that offers ``dictionary()``."""

    local_sites = ("codes",)

    @property
    def about(self) -> DictionaryDescription:
        """The model's description."""
        about: DictionaryDescription = self.model.dictionary()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> Dictionaries | None:
        return cls(model) if hasattr(model, "dictionary") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Random columns; "spectral": in the first restart fourth moments, as far as the rank of the data goes."""
        generator = torch.Generator().manual_seed(problem.seed)
        dictionary = random_start(problem.data, self.about.num_columns, num_restarts, generator)
        if init == "spectral":
            found = fourth_moment_start(problem.data, self.about.num_columns, generator)
            dictionary[0, :, : found.shape[1]] = found
        return self.complete_start(problem, self._with_noise(dictionary))

    def _with_noise(self, dictionary: Tensor) -> Params:
        if self.about.noise is not None:
            return {"dictionary": dictionary}
        return {"dictionary": dictionary, "noise": dictionary.new_ones(len(dictionary), 1)}  # replaced by the engine

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """Codes for parameters (R, ...) that came without them; columns of length 1."""
        dictionary = unit_columns(params["dictionary"])
        return params | {"dictionary": dictionary, "codes": self.codes(problem.data, dictionary)}

    def codes(self, data: Tensor, dictionary: Tensor) -> Tensor:
        """The reported codes of rows, (R, N, m), whatever decoder a fit alternated with."""
        return decode(BackwardElimination(), data, dictionary, self.about.sparsity).clamp(max=self.about.bound)

    def finished(self, dictionary: Tensor, codes: Tensor, data: Tensor) -> Params:
        """Parameters and codes by site, the noise at its best where it is estimated."""
        params = {"dictionary": dictionary, "codes": codes}
        if self.about.noise is None:
            square = (data - codes @ dictionary.mT).square().mean((-2, -1))
            params["noise"] = square.sqrt().clamp(*self.about.noise_range).unsqueeze(-1)
        return params

    def objectives(self, problem: Problem, params: Params) -> tuple[Tensor, Tensor]:
        """Log-likelihood given the codes, and log-joint density of data, codes and parameters, (R,)."""
        about = self.about
        likelihood = self.conditional_rows(params, problem.data).sum(-1).double().cpu()
        prior = problem.program().log_prior(params).detach().double().cpu()
        each = -log(comb(about.num_columns, about.sparsity)) - about.sparsity * log(about.bound)
        return likelihood, likelihood + prior + problem.num_rows * each

    def conditional_rows(self, params: Params, data: Tensor) -> Tensor:
        """Log-likelihood of each row given its codes, (N,) or (R, N)."""
        dictionary, codes = params["dictionary"], params["codes"]
        means = codes @ dictionary.mT
        noise = means.new_tensor([self.about.noise]) if self.about.noise is not None else params["noise"]
        law = torch.distributions.Normal(means, noise.unsqueeze(-2), validate_args=False)
        return law.log_prob(data.to(dictionary)).sum(-1)

    def steps(self, problem: Problem, method: EM) -> Steps | None:
        return None

    def solve_local(self, params: Params, data: Tensor) -> Params:
        """Codes of the rows of ``data`` given the parameters, by site."""
        dictionary = params["dictionary"]
        return {"codes": self.codes(data.to(dictionary), dictionary.unsqueeze(0))[0]}

    def canonical(self, params: Params) -> Params:
        """Columns in the order of falling total code."""
        order = params["codes"].sum(-2).argsort(descending=True, stable=True)
        return params | {"dictionary": params["dictionary"][:, order], "codes": params["codes"][:, order]}

    def num_free(self, params: Params) -> int:
        """Columns without their length, codes that are not zero, and the noise where it is estimated."""
        j, m = params["dictionary"].shape
        codes = int((params["codes"] != 0).sum()) if "codes" in params else 0
        return m * (j - 1) + codes + ("noise" in params)

    def recommended(self, problem: Problem) -> Recommendation:
        """One start from moments where the columns can be independent; several where they cannot."""
        from inference.structures.dictionary.alternating import AlternatingMinimization

        rank, _, _ = _span(problem.data)
        return Recommendation(AlternatingMinimization(), "spectral", 1 if self.about.num_columns <= rank else 8)
