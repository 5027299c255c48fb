"""A mixture with covariates in units in which they have mean 0 and width 1, where engines work, and the way back."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from inference.base.structure import Problem, Standard
from inference.programs.program import Params
from inference.structures.mixture.chances import design_of
from ppl_models.descriptions.components import MixtureComponents
from ppl_models.descriptions.covariates import Covariates

__all__ = ["standard_covariates"]


def standard_covariates(problem: Problem, of_items: Standard | None, about: MixtureComponents) -> Standard:
    """The problem with standardised items and covariates, of which categories are columns of numbers.

    Args:
        problem: as the user gave it; about: its description.
        of_items: the same with standardised items alone; None where these stay as they are.
    """
    known = about.covariates
    assert known is not None
    items: Any = problem.data[:, : about.num_items] if of_items is None else of_items.problem.data
    model: Any = problem.model if of_items is None else of_items.problem.model
    terms = known.terms[1:]
    own = dataclasses.replace(model, covariates=Covariates(terms, (), known.scale, ((0.0, 1.0),) * len(terms)))
    design = design_of(about, problem.data.double())[:, 1:].to(items)
    names = (*problem.item_names[: about.num_items], *terms) if problem.item_names else ()
    inner = dataclasses.replace(
        problem, model=own, data=torch.cat([items, design], -1), item_names=names, structure=type(problem.structure)(own), trial={}
    )

    def inward(params: Params) -> Params:
        moved = params if of_items is None else of_items.inward(params)
        return moved | ({"coefficients": known.standardised(params["coefficients"])} if "coefficients" in params else {})

    def outward(params: Params) -> Params:
        moved = params if of_items is None else of_items.outward(params)
        return moved | ({"coefficients": known.plain(params["coefficients"])} if "coefficients" in params else {})

    return Standard(inner, inward, outward, 0.0 if of_items is None else of_items.log_volume)
