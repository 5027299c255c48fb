"""What fits need of a dictionary: a start from fourth moments, codes of rows, densities, an order of the columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inference.base.structure import Recommendation, Structure
from inference.programs.program import Params
from inference.structures.dictionary.codes import (
    _span,
    codes_of,
    conditional_rows,
    fourth_moment_start,
    random_dictionary,
    unit_columns,
)

if TYPE_CHECKING:
    from inference.base.structure import Problem
    from ppl_models.descriptions.components import DictionaryDescription

__all__ = ["DictionaryStructure"]


class DictionaryStructure(Structure):
    """A model that offers ``dictionary()``."""

    local_sites = ("codes",)

    @property
    def about(self) -> DictionaryDescription:
        """The model's description."""
        about: DictionaryDescription = self.model.dictionary()
        return about

    @classmethod
    def of(cls, model: Callable[..., Any]) -> DictionaryStructure | None:
        return cls(model) if hasattr(model, "dictionary") else None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Random columns; "spectral": in the first restart fourth moments, as far as the rank of the data goes."""
        generator = torch.Generator().manual_seed(problem.seed)
        dictionary = random_dictionary(problem.data, self.about.num_columns, num_restarts, generator)
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
        return params | {"dictionary": dictionary, "codes": codes_of(self.about, problem.data, dictionary)}

    def conditional_rows(self, params: Params, data: Tensor) -> Tensor:
        return conditional_rows(self.about, params, data)

    def solve_local(self, params: Params, data: Tensor) -> Params:
        """Codes of the rows of ``data`` given the parameters, by site."""
        dictionary = params["dictionary"]
        return {"codes": codes_of(self.about, data.to(dictionary), dictionary.unsqueeze(0))[0]}

    def canonical(self, params: Params) -> Params:
        """Columns in the order of falling total code."""
        order = params["codes"].sum(-2).argsort(descending=True, stable=True)
        return params | {"dictionary": params["dictionary"][:, order], "codes": params["codes"][:, order]}

    def num_densities(self, num_items: int) -> int:
        return num_items

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
