"""Covariates in the units of engines, and coefficients that the rows hardly bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from inference.base.structure import Problem, Standard, Structure
from inference.programs.program import Params
from ppl_models.descriptions.covariates import Covariates
from ppl_models.descriptions.logit import undetermined

SITE = "coefficients"  # of all models with covariates: (..., Q), in the user's units


def standard_covariates(
    problem: Problem,
    of_items: Standard | None,
    covariates: Covariates,
    structure: Callable[[Any], Structure],
) -> Standard:
    """Standardise items and covariates of a problem, categories as columns of numbers.

    Args:
        problem: as the user gave it, the covariates in the last columns of its data.
        of_items: the same with standardised items alone; None where these stay as they are.
        covariates: of its model, which has them in its field ``covariates``.
        structure: of another model of this kind.
    """
    num_items = problem.data.shape[-1] - len(covariates.names)
    items: Any = problem.data[:, :num_items] if of_items is None else of_items.problem.data
    model: Any = problem.model if of_items is None else of_items.problem.model
    terms = covariates.terms[1:]
    standard_model = dataclasses.replace(
        model, covariates=Covariates(terms, (), covariates.scale, ((0.0, 1.0),) * len(terms))
    )
    design = covariates.standardised_design(problem.data[:, num_items:].double())[:, 1:].to(items)
    names = (*problem.item_names[:num_items], *terms) if problem.item_names else ()
    inner = dataclasses.replace(
        problem,
        model=standard_model,
        data=torch.cat([items, design], -1),
        item_names=names,
        structure=structure(standard_model),
        trial_results={},
        cache={},
    )

    def inward(params: Params) -> Params:
        moved = params if of_items is None else of_items.inward(params)
        return moved | ({SITE: covariates.standardised(params[SITE])} if SITE in params else {})

    def outward(params: Params) -> Params:
        moved = params if of_items is None else of_items.outward(params)
        return moved | ({SITE: covariates.plain(params[SITE])} if SITE in params else {})

    return Standard(inner, inward, outward, 0.0 if of_items is None else of_items.log_volume)


MOST_TERMS = 6  # that a warning names


def open_coefficients(
    covariates: Covariates,
    coefficients: Tensor,
    columns: Tensor,
    weights: Tensor | None,
    apart: bool,
) -> list[tuple[int, str, float]]:
    """Coefficients left open by the rows: line, term and value, the largest first.

    Args:
        coefficients: without restarts, (M, Q); columns: covariates of the rows, (N, P); weights:
            (N,).
        apart: whether every line is a logit of its own, and not one of the classes of a single one.
    """
    beta = covariates.standardised(coefficients)
    counts = columns.new_ones(len(columns)) if weights is None else weights
    lines = beta.unsqueeze(1 if apart else 0)
    places = (
        undetermined(covariates.standardised_design(columns), counts, lines)
        .reshape(beta.shape)
        .nonzero()
        .tolist()
    )
    places.sort(key=lambda place: -float(beta[tuple(place)].abs()))
    return [(k, covariates.terms[q], float(coefficients[k, q])) for k, q in places]


def listed_terms(texts: list[str]) -> str:
    """Join the first terms of a list for a message."""
    return ", ".join(texts[:MOST_TERMS]) + (", ..." if len(texts) > MOST_TERMS else "")
