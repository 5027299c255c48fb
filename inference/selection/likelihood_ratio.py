r"""Likelihood-ratio test between two sizes of a model, by the parametric bootstrap.

Under the smaller model the larger one has a latent at weight zero, or a copy of another: the
parameters lie on the edge and are not identified, so the null distribution of :math:`2
(\ell_{K+1} - \ell_K)` is not chi-square with the difference in parameters. It errs in both
directions: a nominal 5 % test by that distribution has a size from 0 to 14 % in the cases of
``benchmarks/lrt_size.py``. Instead B data sets are drawn from the fit of the smaller size, of the
same shape and with the same gaps, both sizes are fitted to each, and

.. math:: p = \frac{1 + \#\{b : LR_b \ge LR\}}{B + 1}.

The drawing ends early once h = 10 of the ratios reach the observed one, after l of them; then p = h
/ l, which is as valid (Besag and Clifford). The same search for optima is used on the data and on
every replicate: the smaller size from the values that drew the data and from two starts of its own,
the larger from six, of which one splits its largest latent; the best after forty iterations go on.
A negative ratio means that the larger size's best optimum was missed; it is fitted again from more
starts, and what stays negative is counted and counts as zero.

Sources: G. J. McLachlan (1987), On bootstrapping the likelihood ratio test statistic for the number
of components in a normal mixture, doi:10.2307/2347790; J. Besag and P. Clifford (1991), Sequential
Monte Carlo p-values, doi:10.1093/biomet/78.2.301; K. L. Nylund, T. Asparouhov and B. O. Muthen
(2007), doi:10.1080/10705510701575396.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.base.drawing import Answer
from inference.base.frames import pd
from inference.base.progress import NoProgress, RichProgress
from inference.base.structure import Method, Problem, split_start
from inference.bootstrap import BATCH_ELEMENTS
from inference.engines.em import EM, fit_sets, fits_sets
from inference.fitting.columns import as_fitted
from inference.fitting.fit import fit
from inference.fitting.problem import problem_of
from inference.fitting.result import Fit
from inference.fitting.same_data import refuse_other_data, refuse_other_order
from inference.programs.global_state import quiet
from inference.programs.posterior_predictive import observed_values, replicate
from inference.programs.program import Params, Program, simulate
from inference.selection.order_selection.counting import Grid, Place, candidate_of
from ppl_models.parts.validation import Seed, as_seed, check_size

SMALL_STARTS, LARGE_STARTS = 2, 6
LEVEL = 0.05
SHORT, FINALISTS = 40, 2  # iterations after which starts are compared, and how many go on
MOST_SETS = 20  # replicates of a batch: the test may end after ten
MORE_STARTS = 12  # where the larger size came out below the smaller one
# largest change of a parameter in the last step of a refit: a ratio asks for the height of an
# optimum, not for its place
LOOSE = 1.0
FLAT = 1e-7  # relative gain in the last step, likewise
SETTLED = 1e-6  # relative: a ratio above minus this is not called negative


@dataclass(frozen=True, eq=False, repr=False)
class RatioTest(Answer):
    """Twice the gain in log-likelihood of a larger size, and how often chance gains as much.

    Args:
        statistic: of the data; p_value: of the smaller size.
        null: the ratios of the replicates, in their order, (l,).
        num_exceeding: of them at or above the statistic; num_negative: that were negative and
            counted as zero.
        num_replicates: B, that were allowed; fewer were drawn if ten exceeded the statistic before.
    """

    statistic: float
    p_value: float
    null: Tensor
    num_exceeding: int
    num_negative: int
    num_replicates: int

    @property
    def headline(self) -> str:
        """Result of the test, in a sentence."""
        if self.is_open:
            return (
                f"It is open whether the larger size is needed (p = {self.p_value:.3g}): so few"
                " data sets say too little; draw more (num_replicates=499)."
            )
        better = "better" if self.p_value < LEVEL else "no better"
        return (
            f"The larger size describes the data {better} than chance would make it (p ="
            f" {self.p_value:.3g})."
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Ratios of the replicates, in sentences."""
        drawn = len(self.null)
        words = [
            f"A ratio of {self.statistic:.2f} or more came out of {self.num_exceeding} of {drawn}"
            f" data sets drawn from the smaller size: p = {self.p_value:.3g}."
        ]
        if self.num_negative:
            words.append(
                f"In {self.num_negative} of them no start of the larger size reached the smaller"
                " one's likelihood."
            )
        return tuple(words)

    def text(self) -> str:
        """Return the sentences."""
        return " ".join(self.sentences)

    @property
    def is_open(self) -> bool:
        """P-value within two standard errors of 5 %, so that more data sets are needed."""
        error = math.sqrt(self.p_value * (1 - self.p_value) / max(len(self.null), 1))
        return abs(self.p_value - LEVEL) < 2 * error

    @property
    def table(self) -> pd.DataFrame:
        """One line: the ratio of the data, those of the data sets drawn, and the p-value."""
        drawn = self.null.numpy()
        line = {
            "ratio": self.statistic,
            "mean_of_drawn": drawn.mean(),
            "95_%_of_drawn": np.quantile(drawn, 1 - LEVEL),
            "num_drawn": len(drawn),
            "num_exceeding": self.num_exceeding,
            "p_value": self.p_value,
        }
        return pd.DataFrame([line], index=["larger size"])


def likelihood_ratio_test(
    small: Fit,
    large: Fit,
    data: Any,
    num_replicates: int = 99,
    stop_after: int = 10,
    seed: Seed = 0,
    progress: bool = False,
    refit: Callable[[Any, Any], Fit] | None = None,
) -> RatioTest:
    """Test a size against a larger one by the parametric bootstrap.

    Args:
        small: point estimate of the smaller size by an engine with a log-likelihood; the better of
            it and a search like that of the replicates counts.
        large: of the larger size; only its model and engine count, for it may come of more starts
            than the replicates are given, which would make small p-values too frequent.
        data: the data of both.
        num_replicates: B; 99 to decide at 5 %, 499 to report.
        stop_after: h.
        seed: of the replicates; replicate b is drawn and fitted with ``seed + b``.
        progress: show a bar on standard error.
        refit: how both sizes are fitted, from model and data, in the place of the search described
            above.

    Raises:
        ValueError: for numbers out of range, posterior draws, a log-likelihood that is not known,
            other rows than those of ``small``, columns in another order, or a program that cannot
            draw data like these.
    """
    seed = as_seed("likelihood_ratio_test", seed)
    check_size("likelihood_ratio_test", "num_replicates", num_replicates)
    check_size("likelihood_ratio_test", "stop_after", stop_after)
    for name, fit_k in (("small", small), ("large", large)):
        fit_k.refuse_weights("likelihood_ratio_test")
        fit_k.refuse_labels("likelihood_ratio_test")
        if fit_k.draws is not None:
            raise ValueError(
                f"likelihood_ratio_test: {name} must be a point estimate, got posterior draws"
            )
        if not math.isfinite(fit_k.log_likelihood):
            raise ValueError(
                f"likelihood_ratio_test: the log-likelihood of {name} is not known (its latents"
                " have too many configurations to sum over): compare held-out rows, or fit with an"
                " engine that sums them out, such as EM()"
            )
    refuse_other_data("likelihood_ratio_test", small, data)
    refuse_other_order("likelihood_ratio_test", small, large)
    with quiet():  # said when the fits were made; of replicates, part of the answer
        problems = tuple(
            problem_of(fit_k.model, as_fitted(fit_k, data), seed) for fit_k in (small, large)
        )
        drawn = simulated_like(problems[0], small, seed)  # refused before any work
        search = Search(small, large, refit)
        (low, high), *_ = search.pairs([problems[0].data], [seed])
        statistic = 2 * (high.log_likelihood - max(low.log_likelihood, small.log_likelihood))
        statistic = max(0.0, statistic)
        at_once = search.at_once(drawn)
        null: list[float] = []
        negative = exceeding = 0
        with RichProgress("bootstrap", num_replicates) if progress else NoProgress() as bar:
            while len(null) < num_replicates and exceeding < stop_after:
                last = min(num_replicates, len(null) + at_once)
                seeds = list(range(seed + len(null) + 1, seed + 1 + last))
                sets = [simulated_like(problems[0], small, b) for b in seeds]
                for low, high in search.pairs(sets, seeds):
                    ratio = 2 * (high.log_likelihood - low.log_likelihood)
                    negative += ratio < -SETTLED * max(1.0, abs(low.log_likelihood))
                    null.append(max(0.0, ratio))
                    exceeding += null[-1] >= statistic
                    if exceeding == stop_after:
                        break
                bar.update(len(null), objective=statistic, active=num_replicates - len(null))
    count, ratios = len(null), torch.tensor(null, dtype=torch.float64)
    p_value = exceeding / count if exceeding >= stop_after else (1 + exceeding) / (count + 1)
    return RatioTest(statistic, p_value, ratios, exceeding, negative, num_replicates)


def loosened(method: Method | None) -> Method:
    """Return the engine of a fit, loosened for refits of replicates.

    It stops once the objective hardly rises, wherever the parameters still go.
    """
    method = EM() if method is None else method
    if isinstance(method, EM):
        return dataclasses.replace(
            method,
            tolerance=max(method.tolerance, FLAT),
            parameter_tolerance=max(method.parameter_tolerance, LOOSE),
        )
    return method


@dataclass(frozen=True, eq=False)
class Optimum:
    """Best optimum of a size on one data set.

    Args:
        model: of that size; log_likelihood, params, local: as those of a fit.
    """

    model: Any
    log_likelihood: float
    params: Params
    local: Params | None = None


_Pair = tuple[Any, Any]  # optima (or fits) of both sizes on one data set


@dataclass(frozen=True)
class Search:
    """The search for optima that the data and every replicate get."""

    small: Fit
    large: Fit
    refit: Callable[[Any, Any], Fit] | None

    def at_once(self, data: Any) -> int:
        """Data sets that are refitted as one batch."""
        if not self.batched(data):
            return 1
        return max(1, min(MOST_SETS, BATCH_ELEMENTS // (LARGE_STARTS * data.numel())))

    def batched(self, data: Any) -> bool:
        if self.refit is not None or not isinstance(data, Tensor):
            return False
        return all(
            fits_sets(problem_of(fit_k.model, data, 0), loosened(fit_k.method))
            for fit_k in (self.small, self.large)
        )

    def pairs(self, sets: list[Any], seeds: list[int]) -> list[_Pair]:
        truth = self.small.params
        if self.batched(sets[0]):
            return self._together(torch.stack(sets), seeds, truth)
        return [self._alone(data, seed, truth) for data, seed in zip(sets, seeds, strict=True)]

    # ---------------------------------------------------------------- one data set

    def _alone(self, data: Any, seed: int, truth: Params) -> _Pair:
        if self.refit is not None:
            small, large = (self.refit(fit_k.model, data) for fit_k in (self.small, self.large))
            return small, large
        if self.small.structure.local_sites:
            return self._grown(data, seed)
        given = self._from(self.small, data, dict(truth), seed)
        small = max((given, self._own(self.small, data, SMALL_STARTS, seed)), key=_objective)
        large = self._own(self.large, data, LARGE_STARTS - 1, seed)
        problem = problem_of(self.large.model, data, seed)
        start = split_start(problem.structure, problem, small.params)
        if start is not None:
            split = self._from(self.large, data, _part(start, 0), seed)
            large = max((large, split), key=_objective)
        elif LARGE_STARTS > 1:
            large = max((large, self._own(self.large, data, 1, seed + 1)), key=_objective)
        if large.log_likelihood < small.log_likelihood:
            again = self._own(self.large, data, MORE_STARTS, seed + 2)
            large = max((large, again), key=lambda fit_k: fit_k.log_likelihood)
        return small, large

    def _grown(self, data: Tensor, seed: int) -> _Pair:
        """Return a factorization from the one that drew the data, and one grown from it."""
        candidate = candidate_of(self.small.model)
        k = getattr(self.small.model, candidate.counting.number)
        method = self.small.method or candidate.counting.method
        grid = Grid([candidate], (k, k + 1), data, data, SMALL_STARTS, seed, method)
        small = Place(grid, candidate, k, None, {k: self.small}, SMALL_STARTS).fit(seed)
        return small, Place(grid, candidate, k + 1, small, {}, SMALL_STARTS).best()

    def _own(self, fit_k: Fit, data: Any, num: int, seed: int) -> Fit:
        """Return the best of short runs from the model's own starts, run to the end.

        An engine that is itself a search runs once.
        """
        method = loosened(fit_k.method)
        if not isinstance(method, EM):
            return fit(fit_k.model, data, method, seed=seed)
        short = fit(fit_k.model, data, _short(method), num_restarts=num, seed=seed)
        return self._from(fit_k, data, short.params, seed)

    def _from(self, fit_k: Fit, data: Any, params: Params, seed: int) -> Fit:
        return fit(fit_k.model, data, loosened(fit_k.method), init=params, seed=seed)

    # ---------------------------------------------------------------- many data sets of layers

    def _together(self, sets: Tensor, seeds: list[int], truth: Params) -> list[_Pair]:
        problems = self._problems(self.small, sets, seeds)
        drawn = [problem.structure.start(problem, "spectral", SMALL_STARTS) for problem in problems]
        given = {name: value.unsqueeze(0) for name, value in truth.items()}
        starts = [_joined([given, start]) for start in drawn if start is not None]
        small = self._best(self.small, problems, starts)
        problems = self._problems(self.large, sets, seeds)
        starts = []
        for problem, best in zip(problems, small, strict=True):
            split = split_start(problem.structure, problem, best.params)
            num = LARGE_STARTS - (split is not None)
            start = problem.structure.start(problem, "spectral", num)
            assert start is not None  # layers have one
            starts.append(start if split is None else _joined([split, start]))
        large = self._best(self.large, problems, starts)
        out: list[_Pair] = []
        for i, (low, best) in enumerate(zip(small, large, strict=True)):
            high: Any = best
            if high.log_likelihood < low.log_likelihood:
                again = self._own(self.large, sets[i], MORE_STARTS, seeds[i] + 2)
                high = max((high, again), key=lambda fit_k: fit_k.log_likelihood)
            out.append((low, high))
        return out

    @staticmethod
    def _problems(fit_k: Fit, sets: Tensor, seeds: list[int]) -> list[Problem]:
        pairs = zip(sets, seeds, strict=True)
        return [problem_of(fit_k.model, rows, seed) for rows, seed in pairs]

    def _best(self, fit_k: Fit, problems: list[Problem], starts: list[Params]) -> list[Optimum]:
        """Return the best proper optimum of each data set."""
        method = loosened(fit_k.method)
        assert isinstance(method, EM)  # fits_sets said so
        num, problem = len(next(iter(starts[0].values()))), problems[0]
        sets, start = torch.stack([problem_b.data for problem_b in problems]), _joined(starts)
        place = torch.arange(len(sets))
        if num > FINALISTS:
            short = fit_sets(problem, _short(method), sets, start)
            top = _known(short.objective).reshape(-1, num).topk(FINALISTS, 1).indices
            start = _part(short.params, (top + num * place.unsqueeze(1)).ravel())
            num = FINALISTS
        outcome = fit_sets(problem, method, sets, start)
        objective = _known(outcome.objective).reshape(-1, num)
        every = [_part(outcome.params, r) for r in range(num * len(sets))]
        faults = [
            bool(words)
            for b, problem_b in enumerate(problems)
            for words in problem_b.structure.degenerate(
                problem_b,
                {name: value[b * num : (b + 1) * num] for name, value in outcome.params.items()},
            )
        ]
        faulty = torch.tensor(faults).reshape(-1, num)
        objective = torch.where(faulty & ~faulty.all(1, keepdim=True), -torch.inf, objective)
        best = objective.argmax(1) + num * place
        heights = outcome.log_likelihood[best].tolist()
        return [
            Optimum(fit_k.model, height, every[b])
            for height, b in zip(heights, best.tolist(), strict=True)
        ]


def _short(method: EM) -> EM:
    return dataclasses.replace(method, max_iterations=min(SHORT, method.max_iterations))


def _joined(parts: list[Params]) -> Params:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _part(params: Params, place: Any) -> Params:
    return {name: value[place] for name, value in params.items()}


def _known(objective: Tensor) -> Tensor:
    return torch.where(objective.isnan(), -torch.inf, objective)


def _objective(fit_k: Fit) -> float:
    return -math.inf if math.isnan(fit_k.objective) else fit_k.objective


def simulated_like(problem: Problem, estimate: Fit, seed: int) -> Any:
    """Simulate a data set of the shape, gaps, lengths and covariates of the problem's data."""
    structure, data = problem.structure, problem.data
    if structure.local_sites:
        raise ValueError(
            f"likelihood_ratio_test: {', '.join(structure.local_sites)} of the rows are estimated"
            " beside the parameters, which no replicate has; compare by held-out cells, or by ACDC"
        )
    drawn = structure.simulate_like(estimate.params, data, seed)
    if drawn is not None:
        return next(iter(drawn.values())).to(data)
    names = structure.observed_sites()
    if len(names) == 1 and isinstance(data, Tensor):
        values = simulate(problem.model, estimate.params, seed, None, problem.num_rows)[
            names[0]
        ].to(data)
        return values.masked_fill(data.isnan(), torch.nan) if data.is_floating_point() else values
    program = Program(problem.model, data)
    seen, new = observed_values(program, estimate.params), replicate(program, estimate.params, seed)
    parts = dict(data) if isinstance(data, dict) else {"": data}
    for name, value in seen.items():
        places = [
            key for key, part in parts.items() if isinstance(part, Tensor) and _equal(part, value)
        ]
        if len(places) != 1:
            raise ValueError(
                f"likelihood_ratio_test: what the program observes at {name!r} is not one of its"
                " data as they are, so that no data set like them can be drawn; compare by BIC or"
                " held-out rows"
            )
        old = parts[places[0]]
        values = new[name].reshape(old.shape).to(old)
        parts[places[0]] = (
            values.masked_fill(old.isnan(), torch.nan) if old.is_floating_point() else values
        )
    return parts if isinstance(data, dict) else parts[""]


def _equal(part: Tensor, value: Tensor) -> bool:
    one, other = (x.double().nan_to_num(nan=-1e300).ravel() for x in (part, value))
    return bool(torch.equal(one, other))
