r"""Criteria for the number of latents behind one call, their figures in one table.

- :class:`SpectralRatio`: no fit at all; the largest :math:`s_k / s_{k+1}` of the singular values of
  a layer's centred children, linearised where they are not bits.
- :class:`InformationCriterion`: EBIC, BIC or AIC of a fit for each size (thresholded and refitted
  where penalised).
- :class:`LikelihoodRatio`: from the smallest size up, :math:`2(\ell_{k+1} - \ell_k)` against the
  ratios of data sets drawn from the smaller size (:mod:`inference.selection.likelihood_ratio`),
  until a first step is not significant.
- :class:`HeldOut`: log-likelihood of rows the fit has not seen.
- :class:`ComponentNoise`: ACDC, for mixtures, factorizations, hidden Markov models and options.
- :class:`LawsAndNumbers`: several distributions at once, two penalties, and a check of the noise,
  for factorizations of counts, mixtures, hidden Markov models and options
  (:func:`select_components`).

Source of the comparison: S. Lee and Y. Gu (2025), arXiv:2501.01414, supplement (tables S.9 to
S.12).
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import torch

from inference.base.drawing import Answer, draw
from inference.base.frames import pd
from inference.base.outcome import RowsWarning, StartsWarning
from inference.base.progress import NoProgress, RichProgress
from inference.base.structure import (
    Method,
    Problem,
    check_rank,
    num_possible_free,
    singular_values,
)
from inference.engines.em import EM
from inference.fitting.fit import SharedSearch, fit_problem
from inference.fitting.problem import model_of_data, problem_of
from inference.fitting.result import Fit
from inference.fitting.rows_apart import check_apart
from inference.programs.global_state import quiet
from inference.selection.growing import Climb, grow_again
from inference.selection.likelihood_ratio import likelihood_ratio_test
from inference.selection.order_selection.counting import has_rule
from inference.selection.order_selection.result import HowMany
from inference.selection.order_selection.select_components import check_tables, select_components
from inference.selection.sparsity import ebic, polish
from inference.structures.factorization.factorize import Factorize
from inference.structures.registry import structure_of
from ppl_models.data.tables import checks_data, first_tensor, map_tensors
from ppl_models.parts.repr import counted, shown_settings
from ppl_models.parts.validation import Seed, as_seed, check_number, check_size, plain_fields


@dataclass(frozen=True, eq=False)
class Study:
    """Grid of models, data and settings that a criterion compares.

    Args:
        sizes: the grid, rising; models: one a size; problems: each model with the data, checked.
        data: as the user gave it.
        method, num_restarts, seed: of every fit.
        progress: whether to show a bar.
        climb: the fits so far, and their searches.
        below: sizes that stay below a smaller one's log-likelihood.
    """

    sizes: tuple[Any, ...]
    models: tuple[Any, ...]
    problems: tuple[Problem, ...]
    data: Any
    method: Method | None
    num_restarts: int | None
    seed: int
    progress: bool
    climb: Climb = field(default_factory=Climb, repr=False)
    below: list[Any] = field(default_factory=list, repr=False)

    @property
    def checked(self) -> Any:
        """The data as tensors, by the first model."""
        return self.problems[0].data

    def fit(self, model: Any, data: Any) -> Fit:
        """A fit of one of the models to other data, polished where the model is penalised."""
        return self.fitted(problem_of(model, data, self.seed), data)

    def fitted(self, problem: Problem, data: Any, shared: SharedSearch | None = None) -> Fit:
        """A fit for one size, polished where the model is penalised."""
        with quiet(StartsWarning):  # of sizes under comparison; it stays in the fit's own list
            result = fit_problem(
                problem, self.method, num_restarts=self.num_restarts, shared=shared
            )
        # none, or one that the fit chose itself
        if not any(layer.penalty for layer in problem.structure.layers):
            return result
        polished = polish(result, data)
        return replace(polished, seconds=result.seconds + polished.seconds)

    def fitting(self, data: Any, rows: str) -> Study:
        """Return the study of the sizes that can be fitted to some of the rows.

        Args:
            data: these rows.
            rows: what they are, for messages.

        Warns:
            RowsWarning: naming sizes that are left out.

        Raises:
            ValueError: where none is left.
        """
        kept, reason = [], ""
        for size, model in zip(self.sizes, self.models, strict=True):
            try:
                with quiet():
                    problem = problem_of(model, data, self.seed)
                    check_rank(structure_of(model), problem)
                kept.append((size, model, problem))
            except ValueError as error:
                reason = str(error)
        if not kept:
            raise ValueError(
                f"{rows}: rows to which some size can be fitted were expected: {reason}"
            )
        sizes, models, problems = zip(*kept, strict=True)
        if len(kept) < len(self.sizes):
            left_out = ", ".join(str(size) for size in self.sizes if size not in sizes)
            warnings.warn(
                f"{rows}: size {left_out} cannot be fitted to them and is left out of the "
                f"comparison: {reason}",
                RowsWarning,
                stacklevel=4,
            )
        return replace(
            self, sizes=sizes, models=models, problems=problems, data=data, climb=Climb(), below=[]
        )

    def num_possible(self, fits: Sequence[Fit]) -> list[int]:
        """Parameters each model of the grid leaves free, its graph not yet chosen."""
        pairs = zip(self.models, fits, strict=False)
        return [
            num_possible_free(structure_of(model), own.params) or own.num_parameters
            for model, own in pairs
        ]

    def fits(self, score: Callable[[Sequence[Fit]], list[float]] | None = None) -> list[Fit]:
        """Fits of the sizes from the smallest up; those made for another criterion are kept.

        Where starts are searched for (no engine and no number of starts is named), the search for a
        size begins at the fit of one component less (:mod:`inference.selection.growing`). A size
        below a smaller one is fitted again from that one, and from more starts. Where a size does
        not contain the one before, as ("VEV", 2) not ("EEE", 3), each is fitted by itself.

        Args:
            score: smaller is better, a value a fit that falls with its log-likelihood alone: then
                sizes are not fitted once the score has risen, and searched fully only where they
                may be best. None to fit all sizes, each by a full search.
        """
        climb, total, before = self.climb, len(self.sizes), list(self.climb.fits)
        is_rising = _rises(self.sizes)
        with RichProgress("select", total) if self.progress else NoProgress() as bar:
            while (place := climb.place(total, score if is_rising else None)) is not None:
                shared = climb.search(place, is_full=score is None or not is_rising)
                climb.take_in(place, self.fitted(self.problems[place], self.data, shared))
                done = len(climb.fits)
                bar.update(done, objective=climb.fits[place].objective, active=total - done)
        if is_rising and climb.fits != before:
            climb.fits, below = grow_again(self.sizes, climb.fits, self.data, self.seed)
            self.below[:] = [self.sizes[i] for i in below]
        return list(climb.fits)


class Criterion(Protocol):
    """A rule that scores sizes and chooses one."""

    def choose(self, study: Study) -> Selection:
        """Score the sizes and choose one."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Selection(Answer):
    """A chosen size, and why.

    Args:
        chosen: the size, an element of the grid.
        criterion: the rule.
        sizes: the grid.
        columns: figures by name, one a size, NaN for sizes that were not tried.
        score: the column that decided; larger: whether large is good, None where the rule is
            another.
        fits: the fits, in the order of the grid; () where none was needed, fewer than sizes where
            the criterion had risen so far that the others were not tried.
        study: what was asked; :meth:`by` asks it again.
        answer: of :func:`inference.selection.select_components`, with its verdict in words; None
            for other criteria.
    """

    chosen: Any
    criterion: Criterion
    sizes: tuple[Any, ...]
    columns: dict[str, list[float]]
    score: str
    larger: bool | None
    fits: tuple[Fit, ...] = field(default=())
    study: Study | None = field(default=None, repr=False)
    answer: HowMany | None = field(default=None, repr=False)

    @property
    def headline(self) -> str:
        """Chosen size and criterion."""
        return (
            f"Selection of {self.chosen} from {', '.join(map(str, self.sizes))} by"
            f" {shown_settings(self.criterion)}"
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Answer of the rule, or a caution, in sentences."""
        if self.answer is not None:
            return self.answer.sentences
        if self.rise is not None:
            last, first = self.sizes[len(self.fits) - 1], self.sizes[len(self.fits)]
            end = "" if first == self.sizes[-1] else f" to {self.sizes[-1]}"
            return (
                f"Size {first}{end} was not tried: at {last}, and at the size before it, the"
                f" {self.score.upper()} had risen above its lowest value, at {last} by"
                f" {self.rise:,.1f}.",
            )
        return ()

    def by(self, criterion: str | Criterion) -> Selection:
        """The choice of another criterion, from the same fits where both want fits to all rows.

        Raises:
            ValueError: for an unknown criterion, or a selection that no study made.
        """
        if self.study is None:
            raise ValueError("by: a selection made by select_dimension was expected")
        return _decide(_criterion("by", criterion), self.study)

    @property
    def rise(self) -> float | None:
        """Rise of the criterion above its lowest value at the last size tried; None if all were."""
        if not 0 < len(self.fits) < len(self.sizes):
            return None
        tried = self.columns[self.score][: len(self.fits)]
        return tried[-1] - min(tried)

    @property
    def table(self) -> pd.DataFrame:
        """One line a size.

        ``starts`` that were drawn for a size, and how many of them ``reached`` its best optimum;
        ``optimum_missed`` where a size stays below the log-likelihood of a smaller one, which it
        contains; ``tried`` where some sizes were not, and why.
        """
        frame = pd.DataFrame(
            self.columns, index=pd.Index([str(size) for size in self.sizes], name="size")
        )
        below = [] if self.study is None else self.study.below
        if below and self.fits:
            frame = frame.assign(optimum_missed=[size in below for size in self.sizes])
        if self.rise is not None:
            left_out = f"not tried: the criterion had risen by {self.rise:,.1f}"
            num = len(self.fits)
            frame = frame.assign(tried=["yes"] * num + [left_out] * (len(self.sizes) - num))
        return frame.assign(chosen=[size == self.chosen for size in self.sizes])

    @property
    def best(self) -> Fit:
        """The fit of the chosen size.

        Raises:
            ValueError: if the criterion fits nothing.
        """
        if not self.fits:
            raise ValueError(
                f"best: {type(self.criterion).__name__} fits no model; fit the chosen size"
            )
        return self.fits[self.sizes.index(self.chosen)]

    def plot(self, ax: Any = None) -> Any:
        """Draw the deciding figure; see :func:`inference.plots.selection.plot_selection`."""
        return draw("plot_selection", self, ax)


@dataclass(frozen=True)
class SpectralRatio:
    r"""Largest ratio of neighbouring singular values :math:`s_k / s_{k+1}` over the grid.

    Above layer 1 the children are latents too: they are drawn from their posterior under a fit of
    the layers below (:mod:`inference.structures.layers.recoding`), whose numbers must be right.

    Warns:
        EstimateWarning: at ``choose``, for a layer whose children are unsure in single rows.
    """

    def choose(self, study: Study) -> Selection:
        """Choose by singular values, without a fit."""
        depth, counts = _varying_layer(study)
        problem = study.problems[0]
        values = singular_values(problem.structure, problem, depth, max(counts) + 1)
        kept = [float(values[k - 1]) for k in counts]
        ratios = [float(values[k - 1] / values[k].clamp(min=1e-300)) for k in counts]
        columns = {"singular_value": kept, "ratio": ratios}
        return _best_of(self, study, columns, "ratio", larger=True)


@dataclass(frozen=True)
class InformationCriterion:
    r"""The smallest EBIC, BIC or AIC; all three are in the table.

    Each is :math:`-2 L` and a price of the size: of the fits of one size it falls with the
    log-likelihood L alone. So sizes are tried from the smallest up until it has risen, as
    :mod:`inference.selection.growing` says; the others are not.

    Args:
        name: "ebic", "bic" or "aic": the one that decides.
        gamma: of :func:`inference.selection.sparsity.ebic`.

    Raises:
        ValueError: for another name, or a negative gamma.
    """

    name: str = "ebic"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in ("ebic", "bic", "aic"):
            raise ValueError(
                f"InformationCriterion: name must be 'ebic', 'bic' or 'aic', got {self.name!r}"
            )
        plain_fields(self)
        check_number(
            "InformationCriterion", "gamma", self.gamma, "not be negative, and be finite", least=0
        )

    def choose(self, study: Study) -> Selection:
        """Choose by the smallest value of the criterion."""
        fits = study.fits(lambda fits: self._values(study, fits)[self.name])
        columns = _figures(fits) | self._values(study, fits)
        return _best_of(self, study, columns, self.name, larger=False, fits=fits)

    def _values(self, study: Study, fits: Sequence[Fit]) -> dict[str, list[float]]:
        """The three criteria of every fit."""
        possible = study.num_possible(fits)
        bic = [ebic(result, 0.0) for result in fits]
        return {
            "ebic": [ebic(result, self.gamma, p) for result, p in zip(fits, possible, strict=True)],
            "bic": bic,
            "aic": [
                value - result.price + 2 * result.num_parameters
                for value, result in zip(bic, fits, strict=True)
            ],
        }


RATIOS = ("ratio_statistic", "p_value", "replicates", "negative_ratios")


@dataclass(frozen=True)
class LikelihoodRatio:
    """Bootstrap likelihood-ratio tests from the smallest size up.

    The choice is the first size whose successor does not fit significantly better: see
    :mod:`inference.selection.likelihood_ratio`.

    Tests go from the smallest size up and end with the first that is not significant; p-values
    beyond it are NaN, for nothing was tested there. No adjustment is made for their number: each
    asks whether the size before it is too small.

    Args:
        level: of each test.
        num_replicates: B, data sets drawn for a test; 99 decide at 5 %, 499 are better for a
            report.
        stop_after: replicates at or above the data's ratio that end a test early.

    Raises:
        ValueError: for a level outside (0, 1), numbers that are not positive, or too few replicates
            for the level to be reached; at ``choose`` as
            :func:`inference.selection.likelihood_ratio.likelihood_ratio_test`.
    """

    level: float = 0.05
    num_replicates: int = 99
    stop_after: int = 10

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number("LikelihoodRatio", "level", self.level, "lie in (0, 1)", above=0, below=1)
        for name in ("num_replicates", "stop_after"):
            check_size("LikelihoodRatio", name, getattr(self, name))
        if self.level * (self.num_replicates + 1) < 1 - 1e-9:
            needed = math.ceil(1 / self.level) - 1
            raise ValueError(
                f"LikelihoodRatio: num_replicates = {self.num_replicates} cannot give a p-value of"
                f" {self.level:g}; at least {needed} were expected"
            )

    def choose(self, study: Study) -> Selection:
        """Choose the first size whose successor is not significantly better."""
        _refuse_local("LikelihoodRatio", study, "no replicate has")
        fits = study.fits()
        columns = _figures(fits) | {name: [math.nan] * len(fits) for name in RATIOS}
        stop = len(fits)
        for i, (small, large) in enumerate(zip(fits, fits[1:], strict=False), 1):
            chosen = any(fit_k.choice is not None for fit_k in (small, large))
            test = likelihood_ratio_test(
                small,
                large,
                study.data,
                self.num_replicates,
                self.stop_after,
                study.seed,
                study.progress,
                self._refit(study, small, large, i) if chosen else None,
            )
            figures = (test.statistic, test.p_value, len(test.null), test.num_negative)
            for name, value in zip(RATIOS, figures, strict=True):
                columns[name][i] = float(value)
            if not test.p_value <= self.level:
                stop = i
                break
        return Selection(
            study.sizes[stop - 1], self, study.sizes, columns, "p_value", None, tuple(fits)
        )

    @staticmethod
    def _refit(study: Study, small: Fit, large: Fit, place: int) -> Callable[[Any, Any], Fit]:
        """Return the refit of replicates where a graph was chosen: graph, then no penalty."""
        models = {id(small.model): study.models[place - 1], id(large.model): study.models[place]}
        return lambda model, data: study.fit(models[id(model)], data)


@dataclass(frozen=True)
class HeldOut:
    """The largest log-likelihood a row of rows left out of the fit.

    Args:
        share: of rows left out.

    Raises:
        ValueError: for a share outside (0, 1); at ``choose`` for a factorization, whose activities
            would be fitted to the very rows that were left out, and for a program whose rows have
            another density without the others.
    """

    share: float = 0.2

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number("HeldOut", "share", self.share, "lie in (0, 1)", above=0, below=1)

    def choose(self, study: Study) -> Selection:
        """Choose by the held-out log-likelihood."""
        _refuse_local("HeldOut", study, "a row left out does not have")
        checked = study.checked
        rows = len(first_tensor(checked))
        if rows < 2:
            raise ValueError(
                "HeldOut: at least two rows were expected, got one; cut a long sequence into"
                " several"
            )
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(study.seed))
        cut = min(max(1, round(self.share * rows)), rows - 1)

        def taken(data: Any, index: Any) -> Any:
            """Some rows of the parts that have one entry a row."""
            return map_tensors(lambda x: x[index] if x.ndim and x.shape[0] == rows else x, data)

        study = study.fitting(
            taken(checked, order[cut:]),
            f"HeldOut: the {counted(rows - cut, 'row')} of {rows} that are not held out",
        )
        fits = study.fits()
        for result in fits:
            check_apart("HeldOut", result, checked, taken)
        held = taken(checked, order[:cut])
        columns = _figures(fits)
        columns["held_out"] = [float(result.log_likelihood_rows(held).mean()) for result in fits]
        return _best_of(self, study, columns, "held_out", larger=True, fits=fits)


@dataclass(frozen=True)
class ComponentNoise:
    """Noise of the components by ACDC; see :func:`inference.acdc.criterion.acdc`.

    Args:
        min_share: of the discrepancy left, that a clear step takes away.

    Raises:
        ValueError: for a share outside (0, 1).
    """

    min_share: float = 0.5

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number(
            "ComponentNoise", "min_share", self.min_share, "lie between 0 and 1", above=0, below=1
        )

    def choose(self, study: Study) -> Selection:
        """Choose by the last clear step."""
        from inference.acdc.criterion import acdc

        fits = study.fits()
        by_size = dict(zip(study.sizes, fits, strict=True))
        result = acdc(by_size, study.data, min_share=self.min_share, seed=study.seed)
        columns = _figures(fits)
        columns["largest_discrepancy"] = [
            float(result.component_discrepancy[size].max()) for size in study.sizes
        ]
        columns["left"] = [result.left[size] for size in study.sizes]
        return Selection(result.chosen, self, study.sizes, columns, "left", None, tuple(fits))


@dataclass(frozen=True)
class DistributionsAndNumbers:
    """Order selection by :func:`inference.selection.select_components`, as a criterion.

    Several distributions and all numbers at once, by two penalties, the noise of the choice
    checked.

    Where a distribution of a mixture or of options is contradicted the choice is a number of
    groups, or the number of the grid that comes nearest.

    Args:
        bootstrap: tables of the climb, for factorizations; 6 is enough, 0 for no climb.

    Raises:
        ValueError: for a number of tables that is neither 0 nor at least 2; at ``choose`` as
            :func:`inference.selection.select_components`.
    """

    bootstrap: int = 0

    def __post_init__(self) -> None:
        plain_fields(self)
        check_tables("DistributionsAndNumbers", self.bootstrap)

    def choose(self, study: Study) -> Selection:
        """Choose by :func:`select_components`, or the number of the grid nearest to its answer."""
        restarts = 10 if study.num_restarts is None else study.num_restarts
        answer = select_components(
            study.models[-1],
            study.data,
            study.sizes,
            num_restarts=restarts,
            method=study.method,
            bootstrap=self.bootstrap,
            seed=study.seed,
            progress=study.progress,
        )
        fits = [fit_k for (name, _), fit_k in answer.fits.items() if name == answer.distribution]
        rows_of_distribution = answer.table.loc[answer.distribution]
        columns = _figures(fits) | {
            name: rows_of_distribution[name].tolist() for name in answer.deciding
        }
        # groups may be fewer than the grid's first number
        chosen = min(study.sizes, key=lambda size: (abs(size - answer.num_components), size))
        decided = (_padded(columns, study), answer.score, False, tuple(fits))
        return Selection(chosen, self, study.sizes, *decided, answer=answer)


NAMED: dict[str, Criterion] = {
    "rule": DistributionsAndNumbers(),
    "spectral": SpectralRatio(),
    "ebic": InformationCriterion("ebic"),
    "bic": InformationCriterion("bic"),
    "aic": InformationCriterion("aic"),
    "lrt": LikelihoodRatio(),
    "held_out": HeldOut(),
    "acdc": ComponentNoise(),
}


def select_dimension(
    family: Callable[..., Any],
    data: Any,
    grid: Sequence[Any],
    criterion: str | Criterion | None = None,
    method: Method | None = None,
    num_restarts: int | None = None,
    seed: Seed = 0,
    progress: bool = False,
) -> Selection:
    """Choose the number of latents.

    Where neither an engine nor a number of starts is named, the search for starts of a mixture or a
    hidden Markov model begins at the fit of one component less. By "ebic", "bic" and "aic" sizes
    that cannot win are then not searched fully, and larger ones not tried; see
    :mod:`inference.selection.growing`. Criteria that do not fall with the log-likelihood alone
    ("acdc", "held_out", "lrt") read a full search of every size.

    Args:
        family: makes a model from an element of the grid, ``lambda k: DeepDiscreteEncoder(J, (k,
            2), ...)``; or a family of the zoo, called with the number of columns and the element.
        data: the rows.
        grid: sizes to try: numbers, tuples of layer sizes, or tuples of any settings that
            ``family`` takes, such as ("VEV", 2). Sizes that do not contain each other are fitted
            each by itself, all of them.
        criterion: "rule", "spectral", "ebic", "bic", "aic", "lrt", "held_out" or "acdc", or a
            criterion with its settings. "lrt" fits both sizes of a step to up to 99 further data
            sets. None for "rule" where there is one, for factorizations of counts, mixtures, hidden
            Markov models and options, else "ebic".
        method: of every fit; see :func:`inference.fitting.fit`.
        num_restarts: of every fit.
        seed: of every fit.
        progress: show a bar on standard error.

    Returns:
        The chosen size, the table, the fits, and a picture.

    Warns:
        StartsWarning: for a size whose log-likelihood stays below that of a smaller one.
        RowsWarning: for sizes that "held_out" leaves out, for which the other rows are too few.
        EstimateWarning: for "spectral" above layer 1, where latents below are unsure.

    Raises:
        ValueError: for an empty grid or one with repeated sizes, sizes the family refuses, an
            unknown criterion, a grid beyond the rank of the data; before any fit.
    """
    seed = as_seed("select_dimension", seed)
    sizes = tuple(sorted(grid))
    if not sizes or len(set(sizes)) < len(sizes):
        raise ValueError(f"select_dimension: grid must hold distinct sizes, got {list(grid)!r}")
    named = None if criterion is None else _criterion("select_dimension", criterion)
    if isinstance(family, type):
        if len(getattr(data, "shape", ())) != 2:
            raise ValueError(
                "select_dimension: a table (rows, items) was expected; give a function from size to"
                " model"
            )
        models = tuple(family(int(data.shape[1]), size) for size in sizes)
    else:
        models = tuple(model_of_data(family(size), data) for size in sizes)
    for size, model in zip(sizes, models, strict=True):
        if not callable(model):
            raise ValueError(
                f"select_dimension: family({size!r}) must return a model, got {model!r}"
            )
    problems = _checked_once(models, data, seed)
    for model, problem in zip(models, problems, strict=True):
        check_rank(structure_of(model), problem)
    has_plain_rule = len(sizes) > 1 and _counts_components(models, sizes, method)
    study = Study(sizes, models, problems, data, method, num_restarts, seed, progress)
    return _decide(named or NAMED["rule" if has_plain_rule else "ebic"], study)


def _rises(sizes: Sequence[Any]) -> bool:
    """Tell whether every size contains the one before: numbers, or tuples of them, that rise."""
    rows = [size if isinstance(size, tuple) else (size,) for size in sizes]
    if not all(isinstance(entry, numbers.Real) for row in rows for entry in row):
        return False
    return all(
        len(row) == len(after) and all(x <= y for x, y in zip(row, after, strict=True))
        for row, after in pairwise(rows)
    )


def _checked_once(models: Sequence[Any], data: Any, seed: int) -> tuple[Problem, ...]:
    """Problems of the models; a table is read once, and checked by each model as a tensor."""
    first = problem_of(models[0], data, seed)
    if not all(type(model) is type(models[0]) and checks_data(model) for model in models):
        return (first, *(problem_of(model, data, seed) for model in models[1:]))
    others = [problem_of(model, first.data, seed) for model in models[1:]]
    return (first, *(replace(problem, item_names=first.item_names) for problem in others))


def _counts_components(models: Sequence[Any], sizes: Sequence[Any], method: Method | None) -> bool:
    """Tell whether the sizes are numbers of components that the rule counts, with its engines."""
    if not has_rule(models[-1]) or not (method is None or isinstance(method, EM | Factorize)):
        return False
    return all(model.num_components == size for model, size in zip(models, sizes, strict=True))


def _criterion(owner: str, criterion: str | Criterion) -> Criterion:
    if isinstance(criterion, str):
        if criterion not in NAMED:
            raise ValueError(
                f"{owner}: criterion must be one of {', '.join(NAMED)}, got {criterion!r}"
            )
        return NAMED[criterion]
    if not hasattr(criterion, "choose"):
        raise ValueError(
            f"{owner}: criterion must be a name or have a method choose, got {criterion!r}"
        )
    return criterion


def _decide(criterion: Criterion, study: Study) -> Selection:
    return replace(criterion.choose(study), study=study)


def _refuse_local(owner: str, study: Study, lack: str) -> None:
    """Refuse models of which activities of the rows are estimated, which the others ``lack``."""
    if any(structure_of(model).local_sites for model in study.models):
        raise ValueError(
            f"{owner}: parameters alone were expected, and activities of the rows are estimated"
            f" beside them, which {lack}: compare by 'rule', by 'acdc', or by held-out cells"
        )


def _best_of(
    criterion: Criterion,
    study: Study,
    columns: dict[str, list[float]],
    score: str,
    larger: bool,
    fits: Sequence[Fit] = (),
) -> Selection:
    values = columns[score]
    chosen = study.sizes[values.index((max if larger else min)(values))]
    columns = _padded(columns, study)
    return Selection(chosen, criterion, study.sizes, columns, score, larger, tuple(fits))


def _padded(columns: dict[str, list[float]], study: Study) -> dict[str, list[float]]:
    """Figures of every size, NaN where it was not tried."""
    return {
        name: [*values, *[math.nan] * (len(study.sizes) - len(values))]
        for name, values in columns.items()
    }


def _figures(fits: Sequence[Fit]) -> dict[str, list[float]]:
    bounded = [math.isnan(result.log_likelihood) and result.elbo is not None for result in fits]
    name = "elbo" if any(bounded) else "log_likelihood"
    values = [
        float(result.elbo or math.nan) if b else result.log_likelihood
        for b, result in zip(bounded, fits, strict=True)
    ]
    return {
        name: values,
        "num_parameters": [result.num_parameters for result in fits],
        "seconds": [result.seconds for result in fits],
        "starts": [
            result.restarts.num_ended if num is None else num
            for result, num in ((result, result.restarts.num_tried) for result in fits)
        ],
        "reached": [result.restarts.num_reached for result in fits],
    }


def _varying_layer(study: Study) -> tuple[int, list[int]]:
    """The layer whose size differs over the grid, counted from 0, and its sizes."""
    described = [structure_of(model).layers for model in study.models]
    if not all(described):
        raise ValueError("SpectralRatio: models that describe their layers were expected")
    sizes = [[layer.num_parents for layer in layers] for layers in described]
    if len({len(row) for row in sizes}) != 1:
        raise ValueError("SpectralRatio: models with the same number of layers were expected")
    varying = [d for d, column in enumerate(zip(*sizes, strict=True)) if len(set(column)) > 1] or [
        0
    ]
    if len(varying) > 1:
        raise ValueError(
            f"SpectralRatio: one layer's size may vary over the grid, got {len(varying)}; choose"
            " them one after another, from the bottom"
        )
    return varying[0], [row[varying[0]] for row in sizes]
