r"""Regression of classes on covariates: a multinomial logit, in one step or after a fit.

.. math::

    P(c = k \mid z) = \frac{e^{b_k \cdot u(z)}}{\sum_l e^{b_l \cdot u(z)}}, \qquad b_0 = 0, \qquad
    S(b) = \sum_i (T_i - p_i) \otimes u_i = 0

with terms u, 1 first, and T the weights of each row's classes (notation of
:mod:`inference.relations.first_step`):

- "two-step": :math:`T_{ik} \propto p_{ik} f_{ik}`, with :math:`f_{ik} \propto r_{ik} / w_k` the
  distribution of the row's items in class k, as the first step left it: the likelihood is that of
  one step with the items held (Bakk and Kuha 2018, doi:10.1007/s11336-017-9592-7);
- "ml": :math:`T_{it} = \sum_s W_{is} p_{it} D_{ts} / (p_i D)_s`: the class assigned is a noisy
  reading of the class (Vermunt 2010, doi:10.1093/pan/mpq025);
- "bch": :math:`T = W D^{-1}` (Bolck, Croon and Hagenaars 2004, doi:10.1093/pan/mph001; Vermunt
  2010);
- "none": T = W, as if the classes assigned were the classes; slopes are too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from inference.base.covariates import SITE
from inference.base.drawing import Answer
from inference.base.frames import pd
from inference.fitting.posterior import posterior_latents
from inference.fitting.record import FitRecord
from inference.relations.first_step import (
    Assignment,
    FirstStep,
    Moved,
    check_choice,
    check_sizes,
    covariance_of,
    own_columns,
)
from inference.structures.mixture.structure import MixtureStructure
from inference.uncertainty import standard_errors
from ppl_models.descriptions.covariates import Covariates
from ppl_models.descriptions.logit import chances_of_design, maximise_coefficients
from ppl_models.parts.validation import check_number

Method = Literal["two-step", "ml", "bch", "none"]
METHODS = ("two-step", "ml", "bch", "none")
MOST_ROUNDS = 5000
LEVEL, MOST_SAID = 0.05, 8
CLOSE = 1e-9  # change of a standardised coefficient at which rounds end


@dataclass(frozen=True, eq=False, repr=False)
class ClassRegression(Answer):
    """Coefficients of classes on covariates: log-odds against class 0, in their units.

    Args:
        terms: Q, the intercept first.
        coefficients: (K - 1, Q); covariance: of these, row after row, ((K - 1) Q, (K - 1) Q).
        method: "one-step", "two-step", "ml", "bch" or "none"; assignment: of rows to classes, ""
            where no row is assigned.
        classification: chances to be assigned to each class, in the columns, given the class, in
            the rows, (K, K); None in one step.
        entropy_r2: how well the items tell the classes, NaN in one step.
        num_rows: N, as often as rows count; num_missing: that lacked a covariate and stood aside.
    """

    terms: tuple[str, ...]
    coefficients: np.ndarray
    covariance: np.ndarray
    method: str
    assignment: str
    classification: np.ndarray | None
    entropy_r2: float
    num_rows: int
    num_missing: int = 0

    def frame(self, level: float = 0.95) -> pd.DataFrame:
        """Table of coefficients: estimate, standard error, z, p, odds ratio and its interval.

        Raises:
            ValueError: if the level is not in (0, 1).
        """
        check_number("frame", "level", level, "lie in (0, 1)", above=0, below=1)
        width = stats.norm.ppf((1 + level) / 2)
        value, error = self.coefficients.ravel(), np.sqrt(np.diag(self.covariance))
        with np.errstate(over="ignore"):
            columns = {
                "estimate": value,
                "error": error,
                "z": value / error,
                "p": 2 * stats.norm.sf(np.abs(value / error)),
                "odds_ratio": np.exp(value),
                "low": np.exp(value - width * error),
                "high": np.exp(value + width * error),
            }
        index = pd.MultiIndex.from_product(
            [range(1, len(self.coefficients) + 1), self.terms], names=["class", "term"]
        )
        return pd.DataFrame(columns, index)

    def tests(self) -> pd.DataFrame:
        """Wald tests of each term: its coefficients are zero in all classes."""
        num, num_terms = self.coefficients.shape
        lines = []
        for q in range(1, num_terms):
            own = np.arange(num) * num_terms + q
            value = self.coefficients[:, q]
            chi2 = float(value @ np.linalg.solve(self.covariance[np.ix_(own, own)], value))
            lines.append([chi2, num, float(stats.chi2.sf(chi2, num))])
        return pd.DataFrame(lines, list(self.terms[1:]), ["chi2", "df", "p"])

    @property
    def table(self) -> pd.DataFrame:
        """As :meth:`frame`."""
        return self.frame()

    @property
    def clear(self) -> tuple[str, ...]:
        """Terms that have to do with the classes, at 5 % each."""
        return tuple(str(term) for term, p in self.tests()["p"].items() if p < LEVEL)

    @property
    def headline(self) -> str:
        """Terms with an effect on the classes, in a sentence."""
        if not self.clear:
            return "The classes depend clearly on none of these covariates."
        return f"The classes depend on {', '.join(self.clear)}, at 5 % each."

    @property
    def sentences(self) -> tuple[str, ...]:
        """Details of the terms, in sentences."""
        frame = self.frame()
        odds = [
            f"{term}: one more multiplies the odds of class {one}, against class 0, by"
            f" {line['odds_ratio']:.3g} (95 % from {line['low']:.3g} to {line['high']:.3g})."
            for (one, term), line in frame.iterrows()
            if term in self.clear
        ]
        return (self._caption(), *odds[:MOST_SAID])

    def _caption(self) -> str:
        ways = {
            "one-step": "Classes and coefficients were fitted together.",
            "none": "No correction: the classes assigned were taken for the classes.",
            "two-step": "Two steps: the classes as the first fit left them.",
            "ml": "Three steps, corrected by maximum likelihood.",
            "bch": "Three steps, corrected by BCH weights.",
        }
        missing = (
            f" ({self.num_missing:,} lack a covariate and stand aside)" if self.num_missing else ""
        )
        return (
            f"Log-odds of each class against class 0, {self.num_rows:,} rows{missing}."
            f" {ways[self.method]} The columns low and high are an interval of the odds ratio."
        )


@dataclass(frozen=True, eq=False)
class ClassLogit:
    """The equations of a later step.

    Args:
        first: the first step; method: how the classes of its rows are weighted.
        known: the covariates, with units; given: their columns, (N, P).
        seen: rows that have them, (N,); the others stand aside.
    """

    first: FirstStep
    method: Method
    known: Covariates
    given: Tensor
    seen: Tensor

    @cached_property
    def _design(self) -> Tensor:
        return self.known.standardised_design(self.given)

    @property
    def _shape(self) -> tuple[int, int]:
        return self.first.num_classes - 1, self._design.shape[1]

    @property
    def penalty(self) -> Tensor:
        """Minus the second derivatives of the log-prior, ((K - 1) Q, (K - 1) Q)."""
        num, num_terms = self._shape
        return torch.kron(
            (2 / self.known.scale**2) * (torch.eye(num).double() - 1 / (num + 1)),
            torch.eye(num_terms).double(),
        )

    def _weights(self, moved: Moved, table: Tensor, p: Tensor) -> Tensor:
        """T, (N, K)."""
        if self.method == "none":
            return moved.weights
        if self.method == "bch":
            return self.first.corrected_weights(moved, table)
        if self.method == "ml":
            return p * ((moved.weights / (p @ table)) @ table.mT)
        assert moved.shares is not None
        joint = p * moved.chances / moved.shares
        return joint / joint.sum(-1, keepdim=True)

    def estimating(self, b: Tensor, moved: Moved, table: Tensor) -> Tensor:
        """Return every row's part in S, (N, (K - 1) Q), at coefficients ((K - 1) Q,)."""
        p = chances_of_design(self._design, b.reshape(self._shape)).exp()
        off = (self._weights(moved, table, p) - p)[:, 1:] * self.seen.unsqueeze(-1)
        return (off.unsqueeze(-1) * self._design.unsqueeze(-2)).flatten(1)

    def solve(self) -> Tensor:
        """Return standardised coefficients, (K - 1, Q), from zero, by reweighted logits."""
        at, often = self.first.at_estimate, self.first.often * self.seen
        beta = torch.zeros(self._shape, dtype=torch.float64)
        for _ in range(MOST_ROUNDS):
            p = chances_of_design(self._design, beta).exp()
            cross = (self._weights(at, at.table, p)[:, 1:] * often.unsqueeze(-1)).mT @ self._design
            start = self.known.plain(beta).unsqueeze(0)
            plain = maximise_coefficients(self.known, cross.unsqueeze(0), self.given, often, start)[
                0
            ]
            before, beta = beta, self.known.standardised(plain)
            change = float((beta - before).abs().max())
            if change < CLOSE or self.method in ("none", "bch"):
                break
        return beta


def class_coefficients(fit: FitRecord, data: Any, kind: str = "hessian") -> ClassRegression:
    """Return the coefficients of a fit of ``Mixture(..., covariates=...)``.

    Its classes and coefficients are from one step.

    Args:
        fit: a point estimate.
        data: the data of the fit.
        kind: of the standard errors: "hessian", "scores" or "sandwich", as
            :func:`inference.uncertainty.standard_errors` has them.

    Raises:
        ValueError: for another fit, a class that nobody has, or as
            :func:`inference.uncertainty.standard_errors`.
    """
    caller = "class_coefficients"
    structure = fit.structure if isinstance(fit, FitRecord) else None
    if not isinstance(structure, MixtureStructure) or not structure.regresses:
        raise ValueError(
            f"{caller}: a fit of Mixture(..., covariates=...) of two or more classes was expected;"
            " regress_classes takes one without covariates"
        )
    chances = next(iter(posterior_latents(fit, data).values())).detach().cpu().double()
    often = chances.new_ones(len(chances)) if fit.row_weights is None else fit.row_weights.cpu()
    often = often.double()
    check_sizes(caller, often @ chances)
    found = standard_errors(fit, data, kind, hold_bounds=True)
    value = fit.params[SITE].double()
    covariance = found.coordinates.covariance_of(SITE, found.estimate, found.covariance)
    known = fit.structure.about.covariates
    assert known is not None
    return ClassRegression(
        known.terms,
        value.numpy(),
        covariance.numpy(),
        "one-step",
        "",
        None,
        math.nan,
        round(float(often.sum())),
    )


def regress_classes(
    fit: FitRecord,
    data: Any,
    covariates: Any,
    method: Method = "two-step",
    assignment: Assignment = "proportional",
    covariates_missing: Literal["refuse", "drop"] = "refuse",
) -> ClassRegression:
    """Regress the classes of a fit on covariates that the fit did not know.

    The classes stay what the first fit made them. Standard errors carry its uncertainty. "two-step"
    and "ml" suppose that items depend on covariates through the class alone, as one step does; none
    of the methods lets the covariates change the classes.

    Args:
        fit: with one latent class a row, such as of ``Mixture(3,
            Categorical.from_frame(answers))``.
        data: the rows of the fit; other columns may stand beside them.
        covariates: names of columns of ``data``, or the columns: a frame, a series, or an array (N,
            P). Those of text are taken for categories.
        method: "two-step", "ml", "bch" or "none", as the module says; "two-step" makes the least
            choices.
        assignment: of rows to classes, for all methods but "two-step": "proportional" to their
            chances, or "modal".
        covariates_missing: "refuse" rows that lack a covariate, or "drop" them: they stand aside
            here, and stay in the fit of the classes.

    Raises:
        ValueError: for a fit without classes or with covariates of its own, a class that nobody
            has, settings out of range, a covariate that is missing (unless these rows are dropped),
            constant, or follows from the others, or a first step without standard errors.

    Warns:
        EstimateWarning: where the items tell the classes badly.

    Example:
        >>> import numpy as np
        >>> from inference import fit
        >>> from inference.relations import regress_classes
        >>> from ppl_models import Mixture
        >>> rng = np.random.default_rng(0)
        >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
        >>> classes = fit(Mixture(2), answers)
        >>> age = 40 + 4 * answers.sum(1) + rng.normal(0, 8, 200)
        >>> bool(regress_classes(classes, answers, age).table["p"].max() < 0.001)
        True
    """
    caller = "regress_classes"
    check_choice(caller, "method", method, METHODS)
    first = FirstStep(caller, fit, data, assignment)
    if method == "two-step" and first.at_estimate.shares is None:
        raise ValueError(
            f"{caller}: method='two-step' needs the weights of a mixture, which {fit.model_name}"
            " does not name; take 'ml' or 'bch'"
        )
    frame = own_columns(caller, "covariates", covariates, data, first.num_rows)
    if covariates_missing not in ("refuse", "drop"):
        raise ValueError(
            f"{caller}: covariates_missing must be 'refuse' or 'drop', got {covariates_missing!r}"
        )
    known = Covariates.from_frame(frame)
    seen = torch.tensor((frame.notna().all(axis=1) | (covariates_missing == "refuse")).to_list())
    if not bool(seen.any()):
        raise ValueError(f"{caller}: every row lacks a covariate")
    own = known.check(frame[seen.numpy()]).double()
    known = known.measured(own, first.often[seen])
    given = own.new_zeros(len(seen), own.shape[1])
    given[seen] = own
    check_sizes(caller, (first.often * seen) @ first.at_estimate.chances, " with the covariates")
    if method != "none":
        first.check_table()
    logit = ClassLogit(first, method, known, given, seen.double())
    beta = logit.solve()
    units = torch.eye(beta.numel(), dtype=torch.float64)
    plain = [known.plain(unit.reshape(beta.shape)).flatten() for unit in units]
    back = torch.stack(plain, -1)
    inner = covariance_of(first, logit.estimating, beta.flatten(), logit.penalty)
    covariance = back @ inner @ back.mT
    how = "" if method == "two-step" else assignment
    return ClassRegression(
        known.terms,
        known.plain(beta).numpy(),
        covariance.numpy(),
        method,
        how,
        first.at_estimate.table.numpy(),
        first.entropy_r2,
        round(float(first.often[seen].sum())),
        round(float(first.often[~seen].sum())),
    )
