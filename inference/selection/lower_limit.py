r"""Lower confidence limits for the number of components, by a closed sequence of bootstrap tests.

For :math:`K_0 = 1, 2, \dots` the hypothesis "at most :math:`K_0` components" is tested by tables
drawn from the fit of :math:`K_0` and fitted again with :math:`K_0` and :math:`K_0 + 1`, started
from what drew them. With T the evidence for one component more, B tables and
:math:`p = (1 + \#\{b : T_b \ge T\}) / (B + 1)`, the sequence ends at the first
:math:`p > \alpha`, and the limit is one more than the last number rejected. With :math:`K^*`
components the limit exceeds :math:`K^*` only if :math:`K^*` is rejected, so

.. math:: P(\text{limit} > K^*) \le P(p_{K^*} \le \alpha) \le \alpha ,

the last as far as tables drawn from the fit stand for tables drawn from the truth; the numbers
tested before cost nothing, for they are false or not reached (Marcus, Peritz and Gabriel 1976). A
test ends as soon as it cannot reject; then p = h / l of the l tables drawn (Besag and Clifford
1991).

The evidence is twice the gain in log-likelihood, or ACDC's: how far the component more lowers the
discrepancy that the components leave, :math:`\log L(K_0) - \log L(K_0 + 1)`, L as in
:mod:`inference.acdc.choice`. The share of half that makes a step there clear is not asked for: what
exact noise does to a step is learned from the tables. A factorization's activities are estimated,
and scatter more than true ones, so that tables drawn from them show too little evidence where
counts are few: tables are drawn from shrunken activities. Levels reached are in
``benchmarks/at_least.jsonl``.

Sources: R. Marcus, E. Peritz and K. R. Gabriel (1976), doi:10.1093/biomet/63.3.655; J. Besag and P.
Clifford (1991), doi:10.1093/biomet/78.2.301; G. J. McLachlan (1987), doi:10.2307/2347790.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from inference.acdc.choice import MIN_SHARE, best_segments, discrepancy_left
from inference.acdc.criterion import PENALTY, drawn_like, quick_discrepancies
from inference.base.drawing import Answer, draw
from inference.base.frames import pd
from inference.base.structure import shrunken_estimates
from inference.fitting.columns import as_fitted
from inference.fitting.problem import problem_of
from inference.fitting.result import Fit
from inference.fitting.same_data import refuse_other_data, refuse_other_order
from inference.programs.global_state import quiet
from inference.selection.likelihood_ratio import MOST_SETS, Search, simulated_like
from inference.selection.order_selection.counting import Candidate, candidate_of
from ppl_models.parts.repr import counted
from ppl_models.parts.validation import Seed, as_seed, check_number, check_size

Evidence = Literal["likelihood", "discrepancy"]
MISFIT_LEVEL = 0.05  # of the test that the noise of the components is what the model says


@dataclass(frozen=True)
class SizeTest:
    """Test of "at most so many components" against one more.

    Args:
        at_most: the number tested; statistic: evidence of the data for one more.
        null: evidence in tables drawn from the fit of ``at_most``, (l,); p_value: by them.
        is_rejected: whether the data contradict the number at the level asked.
        width: nats of cutoffs at which ACDC prefers one component more; null_width: the same in
            the tables, (l,).
        null_chosen: share of the tables in which ACDC's step to one more is clear.
        p_misfit: probability, by the tables, of a component's noise as far from the model's as the
            data's is at ``at_most``.
    """

    at_most: int
    statistic: float
    null: np.ndarray = field(repr=False)
    p_value: float
    is_rejected: bool
    width: float
    null_width: np.ndarray = field(repr=False)
    null_chosen: float
    p_misfit: float

    @property
    def num_exceeding(self) -> int:
        """Tables with at least the evidence of the data."""
        return int((self.null >= self.statistic).sum())


@dataclass(frozen=True, eq=False, repr=False)
class LowerLimit(Answer):
    """Lower confidence limit for a number of components, by :func:`at_least`.

    Args:
        number: the limit, 1 where the smallest number fitted is not rejected; level: the
            confidence.
        evidence: "likelihood" or "discrepancy".
        tests: in their order, the last not rejected unless the numbers ended.
        noun: what is counted.
        power: share of tables drawn from the fit of one component more than the limit in which the
            limit would be larger; NaN where that was not asked, or no such fit was given.
        num_power: tables it was found by.
    """

    number: int
    level: float
    evidence: Evidence
    tests: tuple[SizeTest, ...]
    noun: str
    power: float
    num_power: int

    @property
    def is_at_end(self) -> bool:
        """Open end: the tests rejected every number that was given."""
        return self.tests[-1].is_rejected

    @property
    def is_at_start(self) -> bool:
        """Open start: the first test did not reject, and its number is above one."""
        return any(not test.is_rejected and test.at_most > 1 for test in self.tests[:1])

    @property
    def headline(self) -> str:
        """The limit, in a sentence."""
        if self.is_at_start:
            return (
                f"No limit: at most {self.tests[0].at_most} {self.noun}s is not rejected at"
                f" {100 * self.level:g}% confidence, and nothing below {self.tests[0].at_most} was"
                " tried."
            )
        return f"At least {counted(self.number, self.noun)}, at {100 * self.level:g}% confidence."

    @property
    def test_sentences(self) -> tuple[str, ...]:
        """The last two tests, which decide the limit."""
        return tuple(self._of(test) for test in self.tests[-2:])

    @property
    def power_sentence(self) -> str:
        """Power of the test against one component more, empty where that was not asked."""
        if math.isnan(self.power):
            return ""
        error = math.sqrt(self.power * (1 - self.power) / self.num_power)
        return (
            f"If there were {self.tests[-1].at_most + 1}, as fitted, a table like this one would"
            f" show it in {self.power:.0%} of cases (standard error {error:.0%})."
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """The tests at the limit, the power of the last, and what all this assumes."""
        last, words = self.tests[-1], [*self.test_sentences]
        if self.is_at_end:
            words.append(f"{self.number} is the largest number fitted: fit more.")
        elif self.is_at_start:
            words.append(f"{self.tests[0].at_most} is the smallest number fitted: fit fewer.")
        elif self.power_sentence:
            words.append(self.power_sentence)
        if last.p_misfit <= MISFIT_LEVEL:
            words.append(
                f"The noise of the {self.noun}s contradicts the model at {last.at_most} (p ="
                f" {last.p_misfit:.2g}), so that some of those counted may be patches of a wrong"
                " distribution."
            )
        else:
            words.append(f"This holds if the {self.noun}s have the distribution of the model.")
        return tuple(words)

    def _of(self, test: SizeTest) -> str:
        drawn = len(test.null)
        return (
            f"At most {test.at_most} is {'' if test.is_rejected else 'not '}rejected:"
            f" {test.num_exceeding} of {drawn} tables drawn from the fit of {test.at_most} showed"
            f" as much evidence for one more (p = {test.p_value:.2g})."
        )

    @property
    def table(self) -> pd.DataFrame:
        """One row a test."""
        rows = [
            {
                "at_most": test.at_most,
                "evidence": test.statistic,
                "95_%_of_drawn": float(np.quantile(test.null, self.level)),
                "num_drawn": len(test.null),
                "p_value": test.p_value,
                "rejected": test.is_rejected,
                "width": test.width,
                "95_%_of_widths": float(np.quantile(test.null_width, self.level)),
                "clear_in_drawn": test.null_chosen,
                "p_misfit": test.p_misfit,
            }
            for test in self.tests
        ]
        frame = pd.DataFrame(rows).set_index("at_most")
        percent = f"{100 * self.level:g}_%"
        return frame.rename(columns=lambda name: name.replace("95_%", percent))

    def plot(self) -> Any:
        """Draw the evidence of the data beside that of the tables, for every number tested."""
        return draw("plot_lower_limit", self)


@dataclass(frozen=True)
class _Shown:
    """Evidence of one table for one component more."""

    gain: float
    step: float  # log L(K) - log L(K + 1)
    width: float
    misfit: float

    def of(self, evidence: Evidence) -> float:
        return self.gain if evidence == "likelihood" else self.step


def at_least(
    fits: Mapping[int, Fit],
    data: Any,
    *,
    level: float = 0.95,
    evidence: Evidence = "likelihood",
    num_sets: int = 59,
    num_power: int = 0,
    seed: Seed = 0,
) -> LowerLimit:
    """Lower confidence limit for the number of components.

    Args:
        fits: number of components -> its fit to ``data``, of successive numbers: such as
            :func:`fit_grid` returns, of a mixture, a hidden Markov model, hidden options or a
            factorization of counts.
        data: the rows of all of them.
        level: of confidence that there are so many components, if they have the distribution of
            the model.
        evidence: "likelihood", the gain in log-likelihood of one component more, or "discrepancy",
            how far it lowers the discrepancies of the components' noise.
        num_sets: tables drawn for a test, B; (1 - level) (B + 1) at least 1.
        num_power: tables drawn from the fit of one component more than the limit, to say how often
            a larger limit would have come out; 0 for none.
        seed: one seed, one answer.

    Raises:
        ValueError: for fewer than two fits or a gap between them, a fit of another number, a kind
            of model whose components are not counted, posterior draws, weights, labels, other
            rows than those of the fits, columns in different orders, or settings out of range.

    Example:
        >>> import numpy as np
        >>> from inference.selection import at_least, fit_grid
        >>> from ppl_models import Mixture, MultivariateNormal
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=(100, 1)) + 6 * (rng.random((100, 1)) < 0.4)
        >>> fits = fit_grid(lambda k: Mixture(k, MultivariateNormal()), rows, (1, 2), 3)
        >>> at_least(fits, rows, num_sets=19).number
        2
    """
    seed = as_seed("at_least", seed)
    check_number("at_least", "level", level, "lie in (0, 1)", above=0, below=1)
    check_size("at_least", "num_sets", num_sets)
    check_size("at_least", "num_power", num_power, 0, "an integer of at least 0")
    if evidence not in ("likelihood", "discrepancy"):
        raise ValueError(
            f"at_least: evidence must be 'likelihood' or 'discrepancy', got {evidence!r}"
        )
    stop_after = math.floor((1 - level) * (num_sets + 1) + 1e-9)
    if stop_after < 1:
        needed = math.ceil(1 / (1 - level) - 1e-9) - 1
        raise ValueError(
            f"at_least: num_sets = {num_sets} cannot reject at level = {level:g}; at least"
            f" {needed} were expected"
        )
    candidate = _checked(fits)
    for fit_k in fits.values():
        refuse_other_data("at_least", fit_k, data)
        refuse_other_order("at_least", fits[min(fits)], fit_k)
    noun = candidate.counting.number.removeprefix("num_").removesuffix("s")
    sizes = sorted(fits)
    tests: list[SizeTest] = []
    power = math.nan
    with quiet():  # of replicates: part of the answer
        for k in sizes[:-1]:
            table = _Tables(fits[k], fits[k + 1], data, seed + 10**6 * k)
            observed, shown = table.observed(), []
            exceeding = 0
            at_once = num_sets if num_power else 4 * stop_after
            for each in table.drawn(num_sets, at_once=at_once):
                shown.append(each)
                exceeding += each.of(evidence) >= observed.of(evidence)
                if exceeding >= stop_after and not num_power:
                    break
            count = len(shown)
            ended = exceeding >= stop_after and not num_power
            p_value = exceeding / count if ended else (1 + exceeding) / (count + 1)
            null = np.array([each.of(evidence) for each in shown])
            misfits = sum(each.misfit >= observed.misfit for each in shown)
            is_rejected = exceeding < stop_after
            clear = -math.log(1 - MIN_SHARE)
            tests.append(
                SizeTest(
                    k,
                    observed.of(evidence),
                    null,
                    p_value,
                    is_rejected,
                    observed.width,
                    np.array([each.width for each in shown]),
                    float(np.mean([each.step > clear for each in shown])),
                    (1 + misfits) / (count + 1),
                )
            )
            if not is_rejected:
                if num_power:
                    limit = np.sort(null)[-stop_after]  # beyond it a table is rejected
                    more = table.drawn(num_power, fits[k + 1], first=10**5)
                    power = float(np.mean([each.of(evidence) > limit for each in more]))
                break
    number = tests[-1].at_most + 1 if tests[-1].is_rejected else tests[-1].at_most
    if not tests[0].is_rejected:
        number = 1  # nothing is known of the numbers below the first
    return LowerLimit(number, level, evidence, tuple(tests), noun, power, num_power)


def _checked(fits: Mapping[int, Fit]) -> Candidate:
    if not isinstance(fits, Mapping) or len(fits) < 2:
        raise ValueError(
            "at_least: a mapping from at least two numbers of components to their fits was expected"
        )
    sizes = sorted(fits)
    if sizes != list(range(sizes[0], sizes[0] + len(sizes))):
        raise ValueError(f"at_least: fits must be of successive numbers, got {sizes}")
    for k in sizes:
        fit_k = fits[k]
        if not isinstance(fit_k, Fit):
            raise ValueError(f"at_least: fits[{k!r}] must be a Fit, got {type(fit_k).__name__}")
        if fit_k.draws is not None:
            raise ValueError(f"at_least: fits[{k}] must be a point estimate, got posterior draws")
        fit_k.refuse_weights("at_least")
        fit_k.refuse_labels("at_least")
        number = candidate_of(fit_k.model).counting.number
        if getattr(fit_k.model, number) != k:
            raise ValueError(f"at_least: fits[{k}] has {number} = {getattr(fit_k.model, number)}")
    return candidate_of(fits[sizes[0]].model)


class _Tables:
    """The data and tables drawn from a fit, each searched in the same way for both sizes."""

    def __init__(self, small: Fit, large: Fit, data: Any, seed: int) -> None:
        self.small, self.seed = small, seed
        self.problem = problem_of(small.model, as_fitted(small, data), seed)
        self.search = Search(small, large, None)

    def observed(self) -> _Shown:
        """Return what the data show, by the search that every table gets.

        The smaller fit given counts where it is better, for that makes a test more cautious; the
        larger one does not, for it may come of more starts than the tables are given.
        """
        ((low, high),) = self.search.pairs([self.problem.data], [self.seed])
        low = max((low, self.small), key=lambda fit_k: fit_k.log_likelihood)
        return self._shown(self.problem.data, (low, high), self.seed)

    def drawn(
        self, num: int, source: Fit | None = None, first: int = 1, at_once: int = MOST_SETS
    ) -> Iterator[_Shown]:
        """Return what tables show that are drawn from the smaller fit, or another."""
        source, seed = source or self.small, self.seed + first
        at_once = min(at_once, self.search.at_once(self.problem.data))
        for begin in range(0, num, at_once):
            seeds = list(range(seed + begin, seed + min(num, begin + at_once)))
            tables = [self._draw(source, each) for each in seeds]
            found = self.search.pairs(tables, seeds)
            for table, pair, each in zip(tables, found, seeds, strict=True):
                yield self._shown(table, pair, each)

    def _draw(self, source: Fit, seed: int) -> Any:
        if source.structure.local_sites:
            data, local = self.problem.data, source.local or {}
            local = shrunken_estimates(source.structure, source.params, local, data)
            return drawn_like(replace(source, local=local), data, seed).to(data)
        return simulated_like(self.problem, source, seed)

    @staticmethod
    def _shown(table: Tensor, pair: Any, seed: int) -> _Shown:
        gain = 2 * (pair[1].log_likelihood - pair[0].log_likelihood)
        found = [quick_discrepancies(estimate, table, seed) for estimate in pair]
        values = {len(d): d for d, _ in found}
        weights = {k: np.ones(k) for k in values}
        left = discrepancy_left(values, {len(sd): sd for _, sd in found}, weights)
        k = min(values)
        segments = best_segments({i: np.maximum(d, 0) for i, d in values.items()}, weights, PENALTY)
        scores = found[0][0] / found[0][1]
        return _Shown(
            gain,
            math.log(left[k] / left[k + 1]),
            sum(segment.width for segment in segments if segment.num_components > k),
            float(np.nan_to_num(scores, nan=-math.inf).max()),
        )
