"""Candidate distributions of order selection, and the fit of each at every number."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from inference.acdc.criterion import BootstrapNull, FittedNull, Table, acdc
from inference.base.plugins import load_modules
from inference.base.progress import NoProgress, Progress
from inference.base.structure import Method, Problem, Structure, candidate_families
from inference.engines.em import EM
from inference.fitting.fit import fit_from
from inference.fitting.result import Fit
from inference.programs.program import Params
from inference.selection.growing import MORE_STARTS, too_low
from inference.selection.order_selection.detectability import CLEAR, MISFIT
from inference.selection.order_selection.result import Climb, HowMany, Status
from inference.structures.registry import structure_of
from ppl_models.descriptions.row_distributions import RowDistribution, SkewNormal

RISEN = 2 * CLEAR  # beyond which a penalised deviance has risen clearly
FINALISTS = 3  # starts that go on to the end
LARGEST = (6, 12)  # numbers up to which is compared where no grid is given
SHORT = 25  # iterations, after which starts are compared

Key = tuple[str, int]  # name of the candidate, number of components
Fits = Mapping[Key, Fit]
K = TypeVar("K")


@dataclass(frozen=True)
class Candidate:
    """A family at any number of components.

    Args:
        name: in tables and sentences.
        model: of the family, at some number of components.
        counting: order selection of its kind.
        num_dispersions: parameters of the noise, whatever the number of components.
        row_distribution: distribution of the rows of a component or state; None for other kinds.
    """

    name: str
    model: Any
    counting: Counting
    num_dispersions: int = 0
    row_distribution: Any = None

    @property
    def is_skewed(self) -> bool:
        """Skewed rows, whose search needs more starts than others."""
        return isinstance(self.row_distribution, SkewNormal)

    @property
    def needs_whole_rows(self) -> bool:
        """Refusal of rows with some entries missing, and of tables of few rows."""
        return isinstance(self.row_distribution, RowDistribution)

    def at(self, num_components: int) -> Any:
        """Return the model with this many components."""
        return replace(self.model, **{self.counting.number: num_components})


@dataclass(frozen=True, eq=False)
class Grid:
    """Candidates and numbers to compare, and the settings of every fit.

    Args:
        candidates: of one kind; the others contain the first.
        sizes: numbers of components, rising.
        data: as the user gave them.
        table: the same as a checked tensor.
        num_restarts: random starts of each fit of the first candidate.
        seed: of the starts and of what is simulated.
        method: settings of every fit.
        bootstrap: tables of a bootstrap climb, 0 for none.
        progress: updated after every fit.
    """

    candidates: Sequence[Candidate]
    sizes: Sequence[int]
    data: Any
    table: Tensor
    num_restarts: int
    seed: int
    method: Any
    bootstrap: int = 0
    progress: Progress = NoProgress()

    def on(self, table: Tensor, **settings: Any) -> Grid:
        """Return the grid with other data, and without a progress bar."""
        return replace(self, data=table, table=table, progress=NoProgress(), **settings)


@dataclass(frozen=True, eq=False)
class Place:
    """A place of the grid: one candidate at one number, and the fits beside it.

    Args:
        grid: what is compared.
        candidate: what is fitted.
        k: number of components.
        smaller: fit of this candidate with one component less.
        nested: fits of the first candidate by number; empty for itself.
        num_random: random starts.
    """

    grid: Grid
    candidate: Candidate
    k: int
    smaller: Fit | None
    nested: Mapping[int, Fit]
    num_random: int

    def fit(self, seed: int) -> Fit:
        """Return a fit from the starts of its kind."""
        return fit_from(
            self.candidate.at(self.k),
            self.grid.data,
            self.grid.method,
            lambda problem: self.candidate.counting.starts(problem, self),
            seed,
        )

    def best(self) -> Fit:
        """Return the fit; again from more starts where it misses its optimum."""
        fit_k = self.fit(self.grid.seed)
        bounds = [] if self.smaller is None else [self.smaller.log_likelihood]
        if self.k in self.nested:
            bounds.append(self.nested[self.k].log_likelihood - self.candidate.counting.contained)
        if bounds and too_low(fit_k.log_likelihood, max(bounds)):
            again = replace(self, num_random=MORE_STARTS).fit(self.grid.seed + 1)
            fit_k = max((fit_k, again), key=self.candidate.counting.rank)
        return fit_k


class Counting(ABC):
    """Order selection of one kind of model: its starts, and the rule that reads the fits."""

    number: ClassVar[str] = "num_components"  # field of the model that holds the number
    method: ClassVar[Method]  # settings of fits where the user gives none
    contained: ClassVar[float] = 0.0  # nats that a fit may stay below the first candidate's
    takes_bootstrap: ClassVar[bool] = False

    @abstractmethod
    def describe(self, structure: Any) -> tuple[str, int, Any]:
        """Return a candidate's name, number of dispersions and distribution of rows."""

    @abstractmethod
    def starts(self, problem: Problem, place: Place) -> Params:
        """Return starts of one fit, (R, ...), of the model and the data of a problem."""

    @abstractmethod
    def answer(self, grid: Grid, fits: Fits) -> HowMany:
        """Return the number of components, with its evidence, once all candidates are fitted."""

    def num_random(self, candidate: Candidate, num_restarts: int) -> int:
        """Return the random starts of a candidate after the first."""
        return num_restarts

    def rank(self, fit: Fit) -> Any:
        """Return the key by which the better of two fits is kept."""
        return fit.objective

    def end(self, fits: Mapping[int, Fit]) -> str:
        """Return the reason why larger numbers of a candidate cannot win, in words, or "".

        Args:
            fits: of one candidate, by number, from the smallest up.
        """
        return ""

    def room(self, shape: tuple[int, ...]) -> int:
        """Return the largest number of components that data of this shape can hold."""
        return LARGEST[-1]

    def has_gaps(self, table: Tensor) -> bool:
        """Tell whether rows miss some of their entries."""
        return bool(table.isnan().any())

    def further(self, grid: Grid, fits: Fits, answer: HowMany) -> Sequence[Candidate]:
        """Return candidates that the misfit of these fits calls for; none for most kinds."""
        return ()

    def check(self, candidates: Sequence[Candidate]) -> None:  # noqa: B027
        """Refuse candidates that this kind cannot compare."""


@singledispatch
def counting_of(structure: Structure) -> Counting | None:
    """Return the order selection of a structure's kind; None where there is none.

    Kinds register in :mod:`inference.selection.order_selection.kinds`.
    """
    return None


def has_rule(model: Any) -> bool:
    """Tell whether :func:`select_components` counts the components of such a model."""
    return bool(candidate_families(structure_of(model)))


def candidate_of(model: Any) -> Candidate:
    """Return the candidate that a model is."""
    load_modules(f"{__package__}.kinds")
    structure = structure_of(model)
    counting = counting_of(structure)
    if counting is None or not candidate_families(structure):
        raise ValueError(
            "select_components: a factorization of counts was expected, such as"
            " PoissonFactorization, a mixture or hidden Markov model whose components' noise is"
            " known, or hidden options of states that are whole numbers, got"
            f" {type(model).__name__}; select_dimension(..., criterion='bic') chooses by a"
            " criterion that you name"
        )
    name, num_dispersions, row_distribution = counting.describe(structure)
    return Candidate(name, model, counting, num_dispersions, row_distribution)


def candidates_of(model: Any) -> Sequence[Candidate]:
    """Return the candidates offered beside a model; the others contain the first.

    Raises:
        ValueError: as :func:`candidate_of`.
    """
    return tuple(
        candidate_of(other) for other in candidate_families(structure_of(candidate_of(model).model))
    )


def fit_candidates(grid: Grid, known: Fits | None = None) -> Fits:
    """Fit every candidate at every number, by its name and number.

    A log-likelihood below that of the number before, or of the first candidate, is fitted again
    from more starts. Larger numbers of a candidate are not fitted where
    :meth:`Counting.end` says why.

    Args:
        grid: what is compared.
        known: fits of a smaller grid of the same candidates and data, which are kept.
    """
    fits: dict[Key, Fit] = {}
    first, total = grid.candidates[0], len(grid.candidates) * len(grid.sizes)
    for candidate in grid.candidates:
        nested, num_random = {}, grid.num_restarts
        if candidate is not first:
            nested = {k: fits[first.name, k] for k in grid.sizes if (first.name, k) in fits}
            num_random = candidate.counting.num_random(candidate, num_random)
        own: dict[int, Fit] = {}
        for k in grid.sizes:
            if candidate.counting.end(own):
                break
            fit_k = (known or {}).get((candidate.name, k))
            if fit_k is None:
                fit_k = Place(grid, candidate, k, own.get(k - 1), nested, num_random).best()
            own[k] = fits[candidate.name, k] = fit_k
            grid.progress.update(len(fits), objective=fit_k.objective, active=total - len(fits))
    return fits


def finalists(problem: Problem, starts: Sequence[Params], method: EM) -> Params:
    """Return the best starts after a few iterations, where these have brought them, (R, ...)."""
    every = {name: torch.cat([start[name] for start in starts]) for name in starts[0]}
    short = replace(method, max_iterations=min(SHORT, method.max_iterations)).run(
        problem, every, NoProgress(), None
    )
    order = short.objective.nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True)
    return {name: value[order[:FINALISTS]] for name, value in short.params.items()}


def penalised(fits: Mapping[K, Fit], price: float) -> dict[K, float]:
    """Return deviances with a price for each parameter."""
    return {
        key: -2 * fit_k.log_likelihood + price * fit_k.num_parameters for key, fit_k in fits.items()
    }


def lead_of(strict: Mapping[Key, float], k: int) -> tuple[float, int]:
    """Return how far a number leads the next best in a penalised deviance, and which that is."""
    best = min(value for (_, size), value in strict.items() if size == k)
    rival = min(
        ((value, size) for (_, size), value in strict.items() if size != k), default=(math.inf, 0)
    )
    return rival[0] - best, rival[1]


def status_of(at_end: bool, misfit: bool, reasons: Sequence[str]) -> Status:
    """Return the status of an answer.

    Args:
        at_end: whether the largest number compared was chosen.
        misfit: whether the data contradict every candidate.
        reasons: doubts about the number.
    """
    if at_end:  # a misfit may be for want of components
        return "grid too short"
    return "misfit" if misfit else "unsure" if reasons else "confident"


def rows_of(
    fits: Fits, columns: Mapping[str, Mapping[Key, Any]], chosen: Key
) -> tuple[Mapping[str, Any], ...]:
    """Return one row of the answer's table for each fit.

    Args:
        fits: by candidate and number.
        columns: figures by name, of each fit.
        chosen: the fit that the rule takes.
    """
    return tuple(
        {
            "distribution": key[0],
            "num_components": key[1],
            "log_likelihood": fit_k.log_likelihood,
            **{name: values[key] for name, values in columns.items()},
            "chosen": key == chosen,
        }
        for key, fit_k in fits.items()
    )


NUM_NULL = 8  # tables of the refitted null
ENOUGH = 6  # of them, where they are there already
CLOSER = 24  # tables of a second look, where the first could be the noise of few
PLAIN = 10.0  # a misfit that needs no second look
FEW_ROWS = 50  # that use a component: fewer do not test its distribution


def misfit_of(fit: Fit, data: Any, seed: int, climb: Climb | None = None) -> tuple[float, float]:
    """Return the largest misfit of a component, and the rows of the component with the fewest.

    In standard deviations of exact noise. The tables of a climb that started from this fit are
    taken for the null, where they are enough. A misfit that would contradict the candidate, and is
    not plain, is measured again with other draws and more tables, and that counts: on the same data
    the first moves by one or two from seed to seed.
    """
    tables = () if climb is None or climb.start is not fit else climb.tables
    if climb is not None and len(tables) >= ENOUGH:
        misfit, used = _measured(fit, data, seed, FittedNull(tables, climb.fits), len(tables))
    else:
        misfit, used = _measured(fit, data, seed, BootstrapNull(NUM_NULL, refit=True), NUM_NULL)
    if MISFIT < misfit < PLAIN:
        misfit, _ = _measured(fit, data, seed + 1, BootstrapNull(CLOSER, refit=True), CLOSER)
    return misfit, used


def _measured(
    fit: Fit, data: Any, seed: int, null: BootstrapNull | FittedNull, num_null: int
) -> tuple[float, float]:
    """Return the largest score of a component, and the fewest rows of one.

    The null's mean is that of refits; its deviation the table's, times the ratio of the two over
    all components, for each alone rests on few refits.
    """
    k = fit.model.num_components  # type: ignore[attr-defined]
    refitted = acdc({k: fit}, data, calibrate=null, seed=seed)
    exact = acdc({k: fit}, data, calibrate=Table(), seed=seed)
    ratio = refitted.null_sd[k] / exact.null_sd[k]
    size = float(np.sqrt(np.nanmean(ratio**2))) if np.isfinite(ratio).any() else 1.0
    scores = (refitted.raw[k] - refitted.null_mean[k]) / (
        size * exact.null_sd[k] * math.sqrt(1 + 1 / num_null)
    )
    finite = scores[np.isfinite(scores)]
    return float(finite.max(initial=0.0)), float(exact.num_used[k].min())
