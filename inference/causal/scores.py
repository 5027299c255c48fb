r"""Scores of a DAG on a table of profile probabilities, and the protocol of a search.

With :math:`m = n\,p` the expected counts, :math:`m_S` their marginal on a set S of attributes and
:math:`q = 2^{|Pa|}`, both scores are sums over attributes of

.. math::
    \mathrm{BIC}(i, Pa) &= \sum_{j,k} m_{jk} \log \frac{m_{jk}}{m_j} - \tfrac12 q \log n \\
    \mathrm{BDeu}(i, Pa) &= \sum_j \log \frac{\Gamma(a/q)}{\Gamma(m_j + a/q)} + \sum_{j,k} \log
    \frac{\Gamma(m_{jk} + a/2q)}{\Gamma(a/2q)} - \kappa |Pa| ,

j running over states of the parents and k over values of the attribute. Either is a difference of
one function of sets, :math:`F(Pa \cup i) - F(Pa)`,

.. math::
    F_{\mathrm{BIC}}(S) &= \sum_c m_{S,c} \log m_{S,c} - \tfrac12 (2^{|S|} - 1) \log n \\
    F_{\mathrm{BDeu}}(S) &= \sum_c \log \frac{\Gamma(m_{S,c} + a 2^{-|S|})}{\Gamma(a 2^{-|S|})} -
    \kappa \tbinom{|S|}{2} ,

c running over the cells of the marginal. That is why DAGs with the same independences score alike,
and why at most :math:`2^K` numbers need computing. On a table of observed shares, at the number of
observed rows, they are the scores of the rows (Schwarz 1978; Heckerman, Geiger and Chickering 1995,
Machine Learning 20). The counts may be fractions: no pseudo-sample is drawn or rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.special import expit, gammaln, xlogy

from inference.causal.knowledge import Constraints
from inference.causal.pdags import Pdag
from inference.causal.tables import Marginals
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_number, plain_fields

MOST_STEPS = 25  # of Newton's method
LONGEST_STEP = 2.0  # logits
STILL = 1e-6  # logits, a step that ends it
RIDGE = 1e-6  # added to minus the Hessian
LARGEST_LOGIT = 30.0


@runtime_checkable
class Score(Protocol):
    """A score that is a difference of a function of sets."""

    def of_set(self, counts: np.ndarray, size: int, num_rows: float) -> np.ndarray:
        """F(S) from the expected counts in the cells of its marginal, (..., 2^size) -> (...)."""
        ...


@dataclass(frozen=True)
class BIC:
    """The log-likelihood less half of log n for every free probability."""

    def of_set(self, counts: np.ndarray, size: int, num_rows: float) -> np.ndarray:
        """F(S) from the counts, (..., 2^size) -> (...)."""
        value: np.ndarray = xlogy(counts, counts).sum(-1) - 0.5 * (2**size - 1) * np.log(num_rows)
        return value


@dataclass(frozen=True)
class BDeu:
    """Log marginal likelihood under Dirichlet priors, spread evenly over the cells.

    Together they are worth ``equivalent_sample_size`` rows.

    Args:
        equivalent_sample_size: a > 0; larger values make more edges.
        edge_penalty: kappa >= 0, nats taken off for every edge (a prior on graphs).

    Raises:
        ValueError: for other values.
    """

    equivalent_sample_size: float = 1.0
    edge_penalty: float = 0.0

    def __post_init__(self) -> None:
        plain_fields(self)
        size, penalty = self.equivalent_sample_size, self.edge_penalty
        check_number("BDeu", "equivalent_sample_size", size, "be a positive number", above=0)
        check_number("BDeu", "edge_penalty", penalty, "be a number that is not negative", least=0)

    def of_set(self, counts: np.ndarray, size: int, num_rows: float) -> np.ndarray:
        """F(S) from the counts, (..., 2^size) -> (...)."""
        own = self.equivalent_sample_size * 0.5**size
        cells = gammaln(counts + own).sum(-1) - 2**size * gammaln(own)
        value: np.ndarray = cells - self.edge_penalty * size * (size - 1) / 2
        return value


@runtime_checkable
class FamilyScore(Protocol):
    """A score of an attribute and its parents that is not a difference of a function of sets."""

    def of_families(self, counts: np.ndarray, num_rows: float, num_attributes: int) -> np.ndarray:
        """Scores from expected counts by state of the parents and value, (B, 2^P, 2) -> (B,)."""
        ...


@dataclass(frozen=True)
class LogisticBIC:
    r"""BIC of logistic regressions on the parents, or of tables where these gain, with a prior.

    .. math::
        S(i, Pa) = \max\Big\{\max_\beta \sum_{j,k} m_{jk} \log P_\beta(k \mid j) - \tfrac12 (1 +
        |Pa|) \log n,\; \mathrm{BIC}(i, Pa)\Big\} - \log \tbinom{K - 1}{|Pa|} ,

    :math:`P_\beta(1 \mid j) = \sigma(\beta_0 + \sum_p \beta_p j_p)`. The last term is the prior
    that gives every number of parents the same probability, and so every set of that size
    (Friedman and Koller 2003, doi:10.1023/A:1020249912095); without it so cheap a parent is found
    too often among many attributes. Choosing the shape of each family by the score: Friedman and
    Goldszmidt 1996, UAI 12. DAGs with the same independences do not score quite alike.
    """

    def of_families(self, counts: np.ndarray, num_rows: float, num_attributes: int) -> np.ndarray:
        """Scores from expected counts by state of the parents and value, (B, 2^P, 2) -> (B,)."""
        table, logistic = self._of_both(counts, num_rows)
        size = counts.shape[-2].bit_length() - 1
        best: np.ndarray = np.maximum(table, logistic)
        return best - math.log(max(1, math.comb(num_attributes - 1, size)))

    def wants_tables(self, counts: np.ndarray, num_rows: float) -> np.ndarray:
        """Families whose table gains over a logistic regression, (B, 2^P, 2) -> (B,)."""
        table, logistic = self._of_both(counts, num_rows)
        wanted: np.ndarray = table > logistic
        return wanted

    def _of_both(self, counts: np.ndarray, num_rows: float) -> tuple[np.ndarray, np.ndarray]:
        """BIC of tables and of logistic regressions, (B,) each."""
        num_states = counts.shape[-2]
        price, size = 0.5 * math.log(num_rows), num_states.bit_length() - 1
        totals = counts.sum(-1)
        table = xlogy(counts, counts).sum((-2, -1)) - xlogy(totals, totals).sum(-1)
        table = table - price * num_states
        if size < 2:
            return table, table
        chances = logistic_chances(counts)
        logistic = xlogy(counts[..., 1], chances) + xlogy(counts[..., 0], 1 - chances)
        return table, logistic.sum(-1) - price * (1 + size)


def logistic_chances(counts: np.ndarray) -> np.ndarray:
    """P(value = 1 | state) by logistic regression on P bits, Newton's method, (B, 2^P).

    Args:
        counts: by state, the first bit the most significant, and value, (B, 2^P, 2).
    """
    on, totals = counts[..., 1], counts.sum(-1)
    size = counts.shape[-2].bit_length() - 1
    states = np.arange(2**size)[:, None] >> np.arange(size - 1, -1, -1) & 1
    design = np.concatenate([np.ones((2**size, 1)), states - 0.5], 1)  # (2^P, 1 + P)
    products = (design[:, :, None] * design[:, None, :]).reshape(2**size, -1)
    effects = np.zeros((len(counts), size + 1))
    effects[:, 0] = np.log((on.sum(-1) + 0.5) / ((totals - on).sum(-1) + 0.5))
    for _ in range(MOST_STEPS):
        chances = expit(np.clip(effects @ design.T, -LARGEST_LOGIT, LARGEST_LOGIT))
        slope = (on - totals * chances) @ design
        curvature = (totals * chances * (1 - chances)) @ products
        curvature = curvature.reshape(len(counts), size + 1, size + 1) + RIDGE * np.eye(size + 1)
        step = np.linalg.solve(curvature, slope[..., None])[..., 0]
        length = np.abs(step).max(-1, keepdims=True)
        effects = effects + step / np.maximum(1.0, length / LONGEST_STEP)
        if length.max() < STILL:
            break
    found: np.ndarray = expit(np.clip(effects @ design.T, -LARGEST_LOGIT, LARGEST_LOGIT))
    return found


def score_rule(owner: str, score: Any) -> Score:
    """The score given, ``BDeu()`` for None; a ValueError for what is none."""
    if score is None:
        return BDeu()
    if isinstance(score, type) or not isinstance(score, Score):
        raise ValueError(
            f"{owner}: score must be BDeu(), BIC() or another with of_set(), got {score!r}"
        )
    return score


class LocalScores(Protocol):
    """Scores of families that a search over DAGs asks for."""

    num_attributes: int
    tolerance: float

    def local(self, attribute: int, parents: int) -> float:
        """The score of one attribute under a set of parents."""
        ...

    def total(self, parents: Sequence[int]) -> float:
        """The score of a DAG given by the parents of each attribute."""
        ...


def tie_tolerance(num_rows: float) -> float:
    """Differences of scores that are rounding: scores of n rows are of the size of n."""
    return 1e-9 + 1e-12 * num_rows


class SetScores:
    """Scores of one table, each set's computed once.

    Args:
        table: (2^K,), sums to one.
        num_rows: n.
        score: what to compute.
    """

    def __init__(self, table: np.ndarray, num_rows: float, score: Score) -> None:
        self.num_rows, self.score = num_rows, score
        self.table = table
        self.marginals = Marginals(table * num_rows)
        self.num_attributes = self.marginals.num_attributes
        self.tolerance = tie_tolerance(num_rows)
        self._known: dict[int, float] = {}

    def of(self, mask: int) -> float:
        """F of a set."""
        value = self._known.get(mask)
        if value is None:
            value = float(
                self.score.of_set(self.marginals.of(mask), mask.bit_count(), self.num_rows)
            )
            self._known[mask] = value
        return value

    def local(self, attribute: int, parents: int) -> float:
        """The score of one attribute under a set of parents."""
        return self.of(parents | 1 << attribute) - self.of(parents)

    def total(self, parents: Sequence[int]) -> float:
        """The score of a DAG given by the parents of each attribute."""
        return sum(self.local(k, mask) for k, mask in enumerate(parents))


def all_set_scores(
    tables: np.ndarray, num_rows: float, score: Score, most: int | None = None
) -> np.ndarray:
    """F of every set for several tables, (B, 2^K): bit k of a place is attribute k.

    Args:
        tables: (B, 2^K), each sums to one.
        num_rows: n, of all of them.
        score: what to compute.
        most: attributes in the largest set wanted, all if None; those of larger ones are NaN.
    """
    num_attributes = tables.shape[-1].bit_length() - 1
    most = num_attributes if most is None else most
    out = np.full((len(tables), 2**num_attributes), np.nan)

    def visit(
        axis: int, counts: np.ndarray, mask: int, size: int
    ) -> None:  # counts (B, 2^size, what is left)
        if axis == num_attributes:
            out[:, mask] = score.of_set(counts[..., 0], size, num_rows)
            return
        split = counts.reshape(len(counts), 2**size, 2, -1)
        visit(axis + 1, split.sum(2), mask, size)
        if size < most:
            cells = split.reshape(len(counts), 2 ** (size + 1), -1)
            visit(axis + 1, cells, mask | 1 << axis, size + 1)

    visit(0, tables[:, None, :] * num_rows, 0, 0)
    return out


@shows_briefly
@dataclass(frozen=True)
class Found:
    """The best class that a search met.

    Args:
        graph: its CPDAG, or MPDAG where something is known of it.
        score: of every DAG in it; larger is better.
        ties: other classes with the same score up to rounding: all that the search allows where
            ``complete``, else those that one step leads to (greedy search) or those that were
            looked for.
        complete: whether ``ties`` holds every such class.
        optimal: whether no DAG at all, within what is known, scores more.
        tied_steps: steps of a greedy search at which another class promised just as much; the order
            of the attributes decided there.
    """

    graph: Pdag
    score: float
    ties: tuple[Pdag, ...]
    complete: bool
    optimal: bool
    tied_steps: int = 0


@runtime_checkable
class Search(Protocol):
    """A way to the class with the largest score."""

    def best(
        self, table: np.ndarray, num_rows: float, score: Score, known: Constraints | None = None
    ) -> Found:
        """The best class for one table (2^K,) that sums to one, within what is known."""
        ...

    def best_of_each(
        self, tables: np.ndarray, num_rows: float, score: Score, known: Constraints | None = None
    ) -> list[Pdag]:
        """The best class for each of several tables (B, 2^K), without looking for ties."""
        ...
