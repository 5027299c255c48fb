"""Dictionaries for engines: fourth-moment starts, codes, densities, order of columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from inference.base.degenerate import listed
from inference.base.structure import (
    Problem,
    Recommendation,
    Structure,
    check_method,
    conditional_log_likelihoods,
    num_density_items,
)
from inference.engines.autoguides import FullRank, LowRank, MeanField
from inference.engines.laplace import Laplace
from inference.engines.nuts import NUTS
from inference.engines.svi import SVI
from inference.programs.program import Params, Program
from inference.structures.dictionary.decoders import (
    BackwardElimination,
    _span,
    codes_of,
    conditional_rows,
    decode,
    fourth_moment_start,
    random_dictionary,
    unit_columns,
)
from ppl_models.descriptions.components import DictionaryDescription

ON_BOUND = 0.999  # of a bound
SAME = 1 - 1e-6  # cosine of two columns
CHANCE = 1e-6  # that residuals of the stated noise are called too large
NO_MEAN = 0.05  # share of the second moments, for codes dense enough
MOST_PAIRS = 4  # that a warning names


class DictionaryStructure(Structure):
    """Structure of models that offer ``dictionary()``."""

    local_sites = ("codes",)

    @cached_property
    def about(self) -> DictionaryDescription:
        about: DictionaryDescription = self.model.dictionary()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> DictionaryStructure | None:
        return cls(model) if hasattr(model, "dictionary") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Start from random columns; for "spectral" the first from fourth moments."""
        generator = torch.Generator().manual_seed(problem.seed)
        dictionary = random_dictionary(
            problem.data, self.about.num_columns, num_restarts, generator
        )
        if init == "spectral":
            found = fourth_moment_start(problem.data, self.about.num_columns, generator)
            dictionary[0, :, : found.shape[1]] = found
        return self.complete_start(problem, self._with_noise(dictionary))

    def _with_noise(self, dictionary: Tensor) -> Params:
        if self.about.noise is not None:
            return {"dictionary": dictionary}
        return {
            "dictionary": dictionary,
            "noise": dictionary.new_ones(len(dictionary), 1),
        }  # replaced by the engine

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """Complete a start (R, ...) with codes; columns of length one."""
        dictionary = unit_columns(params["dictionary"])
        return params | {
            "dictionary": dictionary,
            "codes": decode(
                BackwardElimination(), problem.data, dictionary, self.about.sparsity
            ).clamp(max=self.about.bound),
        }

    def solve_local(self, params: Params, data: Tensor) -> Params:
        """Codes of the rows of ``data`` given the parameters, by site."""
        dictionary = params["dictionary"]
        return {"codes": codes_of(self.about, data.to(dictionary), dictionary.unsqueeze(0))[0]}

    def expected_rows(self, program: Program, params: Params) -> Tensor:
        """Rows of codes times columns, (N, J), with the codes that a fit would give each row."""
        data = program.args[0].to(params["dictionary"])
        expected: Tensor = self.solve_local(params, data)["codes"] @ params["dictionary"].mT
        return expected

    def canonical(self, params: Params) -> Params:
        """Order columns by falling total code."""
        order = params["codes"].sum(-2).argsort(descending=True, stable=True)
        return params | {
            "dictionary": params["dictionary"][:, order],
            "codes": params["codes"][:, order],
        }

    def at_bound(self, params: Params) -> list[str]:
        """Names of estimates on a bound: estimated noise, and codes, by column."""
        high = (params["codes"] >= ON_BOUND * self.about.bound).any(0).nonzero().ravel().tolist()
        low, most = self.about.noise_range
        noise = "noise" in params and not low / ON_BOUND < float(params["noise"]) < ON_BOUND * most
        return ["noise[0]"] * noise + [f"codes[..., {i}]" for i in high]

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """Sentences on unused or repeated columns, and residuals above the stated noise."""
        dictionary, codes = unit_columns(params["dictionary"]), params["codes"]
        used = (codes > 0).any(0)
        cosines = (
            (dictionary.mT @ dictionary).masked_fill(~(used.unsqueeze(-1) & used), 0.0).triu(1)
        )
        found = []
        if not bool(used.all()):
            which = listed(list(map(str, (~used).nonzero().ravel().tolist())))
            found.append(
                f"no row uses columns {which} of the dictionary: {int(used.sum())} of the"
                f" {len(used)} columns say all that the fit says. Fit fewer columns"
            )
        if len(copies := (cosines > SAME).nonzero().tolist()):
            found.append(
                f"columns {_pairs(copies)} of the dictionary are copies of each other. Fit fewer"
                " columns"
            )
        return [*found, *self._misfit(problem, params), *_without_mean(self.about, problem.data)]

    def _misfit(self, problem: Problem, params: Params) -> list[str]:
        r"""Sentences on residuals larger than the stated noise s allows.

        At the truth :math:`\sum (x - A h)^2 / s^2` is chi-square with a degree of freedom an entry,
        and at the best estimate it is no larger.
        """
        from scipy.special import chdtri

        noise, k = self.about.noise, self.about.sparsity
        residuals = problem.data - params["codes"] @ params["dictionary"].mT
        number = residuals.numel()
        if noise is None or float(residuals.double().square().sum()) <= noise**2 * float(
            chdtri(number, CHANCE)
        ):
            return []
        return [
            "the residuals contradict the model: their standard deviation is"
            f" {float(residuals.square().mean().sqrt()):.3g}, but noise = {noise:g} was stated, so"
            " the log-likelihood and what is read from it mean nothing. Either no start found the"
            " dictionary (try more starts, such as num_restarts=30), or the rows are not sums of"
            f" at most {k} column{'s' * (k > 1)} with codes of at least zero (codes of both signs"
            " need a column for each sign), or their noise is larger: noise=None estimates it"
        ]

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Number of free columns without their length, codes that are not zero, and noise."""
        j, m = params["dictionary"].shape
        codes = int((params["codes"] != 0).sum()) if "codes" in params else 0
        return m * (j - 1) + codes + ("noise" in params)

    def recommended(self, problem: Problem) -> Recommendation:
        """Recommend one start from moments where columns can be independent, else several."""
        from inference.structures.dictionary.alternating import AlternatingMinimization

        rank, _, _ = _span(problem.data)
        return Recommendation(
            AlternatingMinimization(), "spectral", 1 if self.about.num_columns <= rank else 8
        )


def _without_mean(about: DictionaryDescription, data: Tensor) -> list[str]:
    r"""Sentence on rows whose mean is zero, as it is not with codes of at least zero.

    With :math:`h \ge 0` the mean of the rows is :math:`A\, \mathrm{E} h`. Its share of the second
    moments, :math:`\bar x^\top M^{+} \bar x` with :math:`M = \sum_n x_n x_n^\top / N` of rank r, is
    about :math:`s / (1 + s)` with :math:`s = \tfrac34 r k / m` for columns in random directions,
    codes of k columns and uniform amounts. The sentence is said of shares below a twentieth of
    :math:`\min(1, r k / m)`. For rows that lie alike on both sides of zero N times the share is
    chi-square with r degrees of freedom; where its mean and three standard deviations exceed that
    limit, there are too few rows to say anything.
    """
    number, rank = len(data), int(torch.linalg.matrix_rank(data))
    mean = data.mean(0)
    share = float(mean @ torch.linalg.pinv(data.mT @ data / number, hermitian=True) @ mean)
    chance = (rank + 3 * (2 * rank) ** 0.5) / number
    if max(share, chance) > NO_MEAN * min(1.0, rank * about.sparsity / about.num_columns):
        return []
    return [
        "the rows have a mean of zero, which sums of columns with codes of at least zero do not"
        " have: rows that were centred, or codes of both signs, are outside the model. Give the"
        " rows as they were measured; codes of both signs need a column for each sign"
    ]


def _pairs(pairs: list[list[int]]) -> str:
    """List pairs of columns, the first of many."""
    return ", ".join(f"{i} and {j}" for i, j in pairs[:MOST_PAIRS]) + (
        f" and {len(pairs) - MOST_PAIRS} more pairs" if len(pairs) > MOST_PAIRS else ""
    )


@check_method.register(DictionaryStructure)
def _(structure: DictionaryStructure, method: Any) -> None:
    """Refuse engines whose codes are continuous draws: none has so many entries of zero."""
    guide = method.guide if isinstance(method, SVI) else None
    if isinstance(method, NUTS | Laplace) or isinstance(guide, MeanField | FullRank | LowRank):
        raise ValueError(
            f"{type(method).__name__} cannot fit {type(structure.model).__name__}: codes with at"
            f" most {structure.about.sparsity} entries above zero have no density. Leave the method"
            " out, or give AlternatingMinimization() or EM()"
        )


@num_density_items.register(DictionaryStructure)
def _(structure: DictionaryStructure, num_items: int) -> int:
    return num_items


@conditional_log_likelihoods.register(DictionaryStructure)
def _(structure: DictionaryStructure, params: Params, data: Tensor) -> Tensor:
    return conditional_rows(structure.about, params, data)
