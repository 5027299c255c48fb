r"""First of three steps: a fit with classes, its classification, and its uncertainty.

Rows are assigned with weights W, :math:`W_{is} = 1` at the most probable class ("modal"), or
:math:`W_{is} = r_{is}`, the chances themselves ("proportional"). With :math:`D_{ts} = \sum_i r_{it}
W_{is} / \sum_i r_{it}`, the chance to be assigned to s given class t, the weights :math:`W^* = W
D^{-1}` have the classes themselves as their expectation, and sum to one in each row (Bolck, Croon
and Hagenaars 2004, doi:10.1093/pan/mph001).

A later step solves :math:`S(b, D, \theta) = \sum_i e_i = 0` for b. With the influence of every row
on the first step's parameters, :math:`\psi_{1i} = \Sigma_1 s_{1i}` (covariance times score), and on
the table, :math:`d_{i,ts} = (r_{it} W_{is} - D_{ts} r_{it}) / \sum_i r_{it}`,

.. math::

    \psi_i = - \Big(\frac{\partial S}{\partial b}\Big)^{-1} \Big(e_i + \frac{d S}{d \theta}
    \psi_{1i} + \frac{\partial S}{\partial D} d_i \Big),
    \qquad V = \sum_i \psi_i \psi_i^\top

where a row that counts :math:`v_i` times enters every sum so often, as do its copies. V is the
covariance of b that carries the first step (White 1982, doi:10.2307/1912526, for all steps stacked;
Bakk, Oberski and Vermunt 2014, doi:10.1093/pan/mpu003, without the terms in which both steps meet).
In :math:`dS / d\theta`, by central differences, the table and proportional weights move with the
parameters; modal weights stay, so that for these V is too large rather than too small.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from inference.base.frames import pd
from inference.base.outcome import EstimateWarning
from inference.fitting.columns import as_fitted
from inference.fitting.posterior import posterior_latents
from inference.fitting.record import FitRecord
from inference.identifiability.scores import row_scores
from inference.programs.coordinates import Coordinates
from inference.structures.mixture.structure import MixtureStructure
from inference.uncertainty import standard_errors
from ppl_models.data.frames import as_frame, check_index, column_names, is_frame

Assignment = Literal["proportional", "modal"]
ASSIGNMENTS = ("proportional", "modal")
LEAST_SEPARATED = 0.6  # entropy R2 below which corrections rest on little
MOST_CONDITION = 1e6  # of the table of assignments, to be inverted
LEAST_ROWS = 1.0  # of a class, below which it is nobody's
STEP = 1e-3  # of a central difference, in standard errors

Estimating = Callable[[Tensor, "Moved", Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Moved:
    """Classification of the rows at some values of the first step's parameters.

    Args:
        chances: r, (N, K); shares: of the classes before the items are seen, (K,), None where the
            fit does not say them.
        weights: W, (N, K); often: how often each row counts, (N,).
    """

    chances: Tensor
    shares: Tensor | None
    weights: Tensor
    often: Tensor

    @property
    def sizes(self) -> Tensor:
        """Rows of each class, as often as they count, (K,)."""
        return self.often @ self.chances

    @property
    def table(self) -> Tensor:
        """D, (K, K): from the class, in the row, to the one assigned."""
        return (
            (self.chances * self.often.unsqueeze(-1)).mT @ self.weights / self.sizes.unsqueeze(-1)
        )


@dataclass(frozen=True, eq=False)
class FirstStep:
    """A fit with classes, and its rows.

    Args:
        caller: for messages; fit: of a program with one latent of several values a row; data: its
            rows.
        assignment: how rows are assigned to classes.

    Raises:
        ValueError: for another fit, posterior draws, components that depend on covariates already,
            other rows than those of the fit, or one class.
    """

    caller: str
    fit: FitRecord
    data: Any
    assignment: Assignment

    def __post_init__(self) -> None:
        caller, fit = self.caller, self.fit
        if not isinstance(fit, FitRecord):
            raise ValueError(f"{caller}: a fit was expected, got {type(fit).__name__}")
        check_choice(caller, "assignment", self.assignment, ASSIGNMENTS)
        if fit.draws is not None:
            raise ValueError(
                f"{caller}: a point estimate was expected, such as one by EM(), got posterior draws"
            )
        classes = {
            name: values
            for name, (count, values) in (fit.latents or {}).items()
            if count == 1 and values > 1
        }
        if len(classes) != 1 or len(fit.latents or {}) != 1 or fit.structure.row_columns:
            raise ValueError(
                f"{caller}: a fit with one latent class a row was expected, such as one of"
                f" Mixture(3, ...), got one of {fit.model_name}"
            )
        if fit.structure.num_given:
            raise ValueError(
                f"{caller}: the classes of this fit depend on columns that are given already, where"
                " the first of several steps is a fit without them; class_coefficients(fit, data)"
                " has the coefficients of this one"
            )
        object.__setattr__(self, "data", as_fitted(fit, self._items()))
        if self.num_rows != fit.num_rows:
            raise ValueError(
                f"{caller}: the {fit.num_rows:,} rows of the fit were expected, got"
                f" {self.num_rows:,}; where rows lack a covariate, fit the classes to the others"
                " too, or fill the entries"
            )

    def _items(self) -> Any:
        """The columns that the fit knows, where others stand beside them."""
        data = as_frame(self.data)
        if not is_frame(data):
            return data
        known = [
            name
            for name, text in zip(data.columns, column_names(data), strict=True)
            if text in self.fit.item_names
        ]
        return data[known] if len(known) == len(self.fit.item_names) else data

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.at_estimate.chances)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.at_estimate.chances.shape[1]

    @cached_property
    def at_estimate(self) -> Moved:
        """At the first step's estimate."""
        chances = self._chances(self.fit)
        modal = torch.nn.functional.one_hot(chances.argmax(-1), chances.shape[1]).to(chances)
        weights = modal if self.assignment == "modal" else chances
        return Moved(chances, self._shares(self.fit), weights, self.often)

    @cached_property
    def often(self) -> Tensor:
        """Weight of each row, (N,)."""
        if self.fit.row_weights is None:
            return torch.ones(self.fit.num_rows, dtype=torch.float64)
        return self.fit.row_weights.detach().cpu().double()

    def _chances(self, fit: FitRecord) -> Tensor:
        chances = posterior_latents(fit, self.data)[next(iter(fit.latents or {}))]
        return chances.detach().double()

    @staticmethod
    def _shares(fit: FitRecord) -> Tensor | None:
        return (
            fit.params["weights"].double() if isinstance(fit.structure, MixtureStructure) else None
        )

    @cached_property
    def entropy_r2(self) -> float:
        """Entropy R2 of the classes: 1 where every row is sure, 0 where none says anything."""
        chances = self.at_estimate.chances
        total = -self.often @ (chances * chances.clamp(min=1e-300).log()).sum(-1)
        return float(1 - total / (self.often.sum() * np.log(self.num_classes)))

    def corrected_weights(self, moved: Moved, table: Tensor) -> Tensor:
        """W*, (N, K)."""
        return torch.linalg.solve(table.mT, moved.weights.mT).mT

    def check_table(self) -> None:
        """Refuse classes that assignments do not distinguish, and warn where they hardly do.

        Raises:
            ValueError: where the table has no inverse to speak of.
        """
        condition = float(torch.linalg.cond(self.at_estimate.table))
        if not condition < MOST_CONDITION:
            raise ValueError(
                f"{self.caller}: the classes are not distinguished: rows of one class are assigned"
                " like those of another, so that nothing can be corrected; fit fewer classes"
            )
        if self.entropy_r2 < LEAST_SEPARATED:
            warnings.warn(
                f"the rows tell their classes badly (entropy R2 {self.entropy_r2:.2f}, where 0.6 is"
                " little): corrections rest much on the model here. Fit the covariates with the"
                " classes in one step, Mixture(..., covariates=...), and compare",
                EstimateWarning,
                stacklevel=4,
            )

    @cached_property
    def _uncertainty(self) -> tuple[Coordinates, Tensor, Tensor, Tensor]:
        """Return coordinates, values (P,), standard errors (P,), and influence of rows (N, P)."""
        try:
            found = standard_errors(self.fit, self.data, hold_bounds=True)
        except ValueError as error:
            raise ValueError(
                f"{self.caller}: the first step has no standard errors to carry on ({error})"
            ) from error
        scores, _ = row_scores(self.fit, self.data, hold_bounds=True, with_labels=True)
        return (
            found.coordinates,
            found.estimate,
            found.covariance.diagonal().sqrt(),
            scores.double() @ found.covariance,
        )

    def slopes(self, total: Callable[[Moved], Tensor]) -> tuple[Tensor, Tensor]:
        """Return derivatives (M, P) by the first step's parameters, and their influence (N, P)."""
        coordinates, estimate, errors, influence = self._uncertainty
        columns = []
        for p in range(len(estimate)):
            step = torch.zeros_like(estimate)
            step[p] = STEP * errors[p]
            ends = [total(self._moved(coordinates, estimate + sign * step)) for sign in (1, -1)]
            columns.append((ends[0] - ends[1]) / (2 * step[p]))
        return torch.stack(columns, -1), influence

    def _moved(self, coordinates: Coordinates, free: Tensor) -> Moved:
        like = self.fit.params
        moved = coordinates.params(free)
        params = {name: value.detach().to(like[name]) for name, value in moved.items()}
        own = dataclasses.replace(self.fit, params=params)
        chances = self._chances(own)
        weights = self.at_estimate.weights if self.assignment == "modal" else chances
        return Moved(chances, self._shares(own), weights, self.often)


def check_sizes(caller: str, sizes: Tensor, lacks: str = "") -> None:
    """Refuse classes that nobody has, whose numbers would be those of a prior or of rounding.

    Args:
        caller: for the message.
        sizes: rows of each class, (K,).
        lacks: what these rows have, for the message.

    Raises:
        ValueError: naming the first class with less than one row.
    """
    few = (sizes < LEAST_ROWS).nonzero().ravel().tolist()
    if few:
        raise ValueError(
            f"{caller}: one row or more{lacks} was expected in every class, and class {few[0]} has"
            f" {float(sizes[few[0]]):.2g}: nothing can be said of it; fit fewer classes"
        )


def check_choice(caller: str, name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a setting that is none of the choices."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"{caller}: {name} must be one of {listed}, got {value!r}")


def covariance_of(
    first: FirstStep, estimating: Estimating, estimate: Tensor, penalty: Tensor | None = None
) -> Tensor:
    """V above, (M, M).

    Args:
        first: the first step.
        estimating: from b (M,), what rows say, and D to e, (N, M); differentiable in b and D.
        estimate: b, (M,).
        penalty: second derivatives of a penalty of b, which adds to -S, (M, M).
    """
    at, often = first.at_estimate, first.often
    table = at.table
    each = estimating(estimate, at, table)
    bread = jacobian(lambda b: often @ estimating(b, at, table), estimate)
    by_table = jacobian(lambda d: often @ estimating(estimate, at, d), table).flatten(1)  # (M, K K)
    by_first, influence = first.slopes(
        lambda moved: often @ estimating(estimate, moved, moved.table)
    )
    of_table = (
        at.chances.unsqueeze(-1) * (at.weights.unsqueeze(-2) - table) / at.sizes.unsqueeze(-1)
    ).flatten(1)  # (N, K K)
    meat = each + influence @ by_first.mT + of_table @ by_table.mT
    psi = torch.linalg.solve(-bread if penalty is None else penalty - bread, meat.mT).mT
    return (psi * often.unsqueeze(-1)).mT @ psi


def own_columns(caller: str, argument: str, given: Any, data: Any, num_rows: int) -> Any:
    """Return columns as a pandas frame, from a frame, series, array, or names in the data."""
    data = as_frame(data)
    names = (given,) if isinstance(given, str) else given
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        if not is_frame(data):
            raise ValueError(
                f"{caller}: {argument}: names of columns need data with columns, got"
                f" {type(data).__name__}; pass the columns themselves"
            )
        known = column_names(data)
        missing = [name for name in names if name not in known]
        if missing or not names:
            raise ValueError(
                f"{caller}: {argument}: columns of the data were expected, got"
                f" {', '.join(map(repr, missing)) or 'none'}"
            )
        return data[[data.columns[known.index(name)] for name in names]]
    given = as_frame(given)
    check_index(f"{caller}: {argument}", given, data)
    if not hasattr(given, "columns"):
        values: Any = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
        if hasattr(values, "to_frame"):
            given = values.to_frame(values.name if values.name is not None else argument)
        else:
            array = np.asarray(values)
            array = array[:, None] if array.ndim == 1 else array
            if array.ndim != 2:
                raise ValueError(
                    f"{caller}: {argument}: a column or a table was expected, got shape"
                    f" {array.shape}"
                )
            columns = [f"{argument}_{j}" for j in range(array.shape[1])]
            given = pd.DataFrame(array, columns=columns if len(columns) != 1 else [argument])
    if len(given) != num_rows:
        raise ValueError(
            f"{caller}: {argument}: one line for each of the {num_rows:,} rows was expected, got"
            f" {len(given):,}"
        )
    return given
