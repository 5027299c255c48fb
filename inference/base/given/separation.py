"""Coefficients of covariates that the rows hardly bound, such as those of a covariate that
separates two classes.
"""

from __future__ import annotations

from torch import Tensor

from ppl_models.descriptions.covariates import Covariates
from ppl_models.descriptions.logit import undetermined

MOST_TERMS = 6  # that a warning names


def open_coefficients(
    known: Covariates, coefficients: Tensor, columns: Tensor, weights: Tensor | None, apart: bool
) -> list[tuple[int, str, float]]:
    """Coefficients that the rows leave open (:func:`~ppl_models.descriptions.logit.undetermined`):
    their line, term and value, the largest first.

    Args:
        coefficients: without restarts, (M, Q); columns: covariates of the rows, (N, P); weights:
            (N,).
        apart: whether every line is a logit of its own, and not one of the classes of a single one.
    """
    beta, often = (
        known.standardised(coefficients),
        columns.new_ones(len(columns)) if weights is None else weights,
    )
    lines = beta.unsqueeze(1 if apart else 0)
    found = (
        undetermined(known.standardised_design(columns), often, lines)
        .reshape(beta.shape)
        .nonzero()
        .tolist()
    )
    found.sort(key=lambda place: -float(beta[tuple(place)].abs()))
    return [(k, known.terms[q], float(coefficients[k, q])) for k, q in found]


def listed_terms(texts: list[str]) -> str:
    return ", ".join(texts[:MOST_TERMS]) + (", ..." if len(texts) > MOST_TERMS else "")
