r"""Ways to choose what an item asks for, given a table of means over profiles and the likelihood of
each candidate.

With :math:`w_\ell` the share of rows in sub-profile :math:`\ell` of a q-vector and
:math:`\mu_{j\ell}` the mean response there (of a LogNormal item the mean logarithm),

.. math::

    \varsigma^2_j(q) = \sum_\ell w_\ell (\mu_{j\ell} - \bar\mu_j)^2, \qquad \mathrm{PVAF}_j(q) =
    \varsigma^2_j(q) / \varsigma^2_j(1, \dots, 1).

:class:`VarianceShare` takes the fewest attributes whose best vector has a PVAF of at least a
cutoff, :class:`VarianceHull` the corner of the convex hull of best PVAF against parameters,
:class:`WaldSteps` and :class:`LikelihoodRatioSteps` add and drop single attributes by tests, and
:class:`ItemBIC` minimises :math:`-2 \ell_j(q) + d_j(q) \log N + 2 \gamma \log \sum_{s \le |q|}
\binom{K}{s}` over all vectors, with :math:`\ell_j` of :mod:`inference.inspection.item_tables` and
:math:`d_j` the coefficients of the item.

Source: J. de la Torre and C.-Y. Chiu (2016), doi:10.1007/s11336-015-9467-8 (PVAF); P. Nájera, M. A.
Sorrel and F. J. Abad (2019), doi:10.1177/0013164418822700 (predicted cutoff); P. Nájera, M. A.
Sorrel, J. de la Torre and F. J. Abad (2021), doi:10.1111/bmsp.12228 (hull); W. Ma and J. de la
Torre (2020), doi:10.1111/bmsp.12156 (steps by Wald tests). The choice by the likelihood without the
item's own answers is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from inference.inspection.item_tables import (
    TINY,
    Answers,
    Candidates,
    ItemTables,
    OneItem,
    groups_of,
)
from ppl_models.parts.responses import Bernoulli
from ppl_models.parts.validation import check_flag, check_number, plain_fields

# of the predicted cutoff (Nájera, Sorrel and Abad 2019): intercept, item quality, rows, items
TIE = 0.1  # of BIC
# candidates whose likelihood is worked out, and how far they may be from the least by least squares
FINALISTS, MARGIN = (8, 25.0)
LEAST_CHANCE = 1e-4
PREDICTED = (-0.405, 2.867, 4.840e-4, -3.316e-3)


@dataclass(frozen=True, eq=False)
class ItemEvidence:
    """What a criterion may ask of one item; worked out when it is asked for.

    Args:
        answers, tables: the data and the estimate.
        j: the item's number; rules: those that it may follow.
        vectors: candidates, bool (M, K).
        made: candidates by rule, which items share; known: log-likelihoods, by rule and candidate;
            moments: means of the groups of a candidate and their covariance.
    """

    answers: Answers
    tables: ItemTables
    j: int
    rules: tuple[str, ...]
    vectors: Tensor
    made: dict[str, Candidates]
    known: dict[tuple[str, int], float] = field(default_factory=dict)
    moments: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def candidates(self, rule: str) -> Candidates:
        """The vectors under a rule."""
        if rule not in self.made:
            self.made[rule] = Candidates.of(self.vectors, self.answers.profiles, rule)
        return self.made[rule]

    @cached_property
    def sets(self) -> np.ndarray:
        """The candidates, bool (M, K)."""
        return self.vectors.numpy()

    @cached_property
    def given(self) -> int:
        """Index of the one that the item has."""
        return self.place(self.tables.q_matrix[self.j].numpy())

    @cached_property
    def one(self) -> OneItem:
        """The item's answers and the others' posterior."""
        return OneItem.of(self.answers, self.tables, self.j)

    @cached_property
    def pvaf(self) -> np.ndarray:
        r"""Share of the variance of the item's mean responses over all profiles that each candidate
        accounts for, (M,).
        """
        weight = self.answers.seen[:, self.j] @ self.tables.posterior
        total = self.answers.statistic[:, self.j] @ self.tables.posterior  # (C,)
        deviation = total - weight * total.sum() / weight.sum()
        whole = (deviation.square() / weight.clamp(min=TINY)).sum()
        own = torch.zeros(len(self.vectors), len(weight), dtype=torch.float64)
        groups = self.candidates("saturated").groups
        between = own.scatter_add(1, groups, deviation.expand_as(own)).square() / own.scatter_add(
            1, groups, weight.expand_as(own)
        ).clamp(min=TINY)
        return np.asarray(between.sum(1) / whole.clamp(min=TINY))

    def log_likelihood(self, rule: str, m: int) -> float:
        """Of candidate m under a rule, everything else held."""
        key = (rule, m)
        if key not in self.known:
            self.known[key] = self.candidates(rule).log_likelihood(self.one, m)
        return self.known[key]

    def least_bic(self, m: int) -> float:
        """BIC of candidate m under the best of the item's rules, up to one constant."""
        price = math.log(len(self.answers.x))
        return min(
            -2 * self.log_likelihood(rule, m) + price * float(self.candidates(rule).num_free[m])
            for rule in self.rules
        )

    def bic(self, prices: np.ndarray) -> np.ndarray:
        """Of each candidate under each rule that the item may follow, everything else held, (rules,
        M), up to one constant.

        All by weighted least squares; the likelihood decides between the best of these and what the
        item has, and the others are left at infinity: they are far from the least.

        Args:
            prices: added to each, (M,).
        """
        free = (
            np.stack([self.candidates(rule).num_free.numpy() for rule in self.rules])
            * math.log(len(self.answers.x))
            + prices
        )
        rough = (
            np.stack([self.candidates(rule).screen(self.one).numpy() for rule in self.rules]) + free
        )
        order = np.argsort(rough, axis=None)[:FINALISTS]
        finalists = set(order[rough.ravel()[order] <= rough.min() + MARGIN].tolist())
        finalists.add(self.rules.index(self.tables.rules[self.j]) * rough.shape[1] + self.given)
        out = np.full(rough.shape, np.inf)
        for place in finalists:
            r, m = divmod(place, rough.shape[1])
            out[r, m] = -2 * self.log_likelihood(self.rules[r], m) + free[r, m]
        return out

    def wald(self, m: int, k: int) -> tuple[float, int]:
        """Statistic and degrees of freedom of "attribute k of candidate m does not matter", of a
        saturated item.
        """
        if m not in self.moments:
            self.moments[m] = self._means(self.candidates("saturated").groups[m])
        mean, covariance = self.moments[m]
        less = self.vectors[m] & (torch.arange(self.vectors.shape[1]) != k)
        groups, merged = (
            self.candidates("saturated").groups[m].tolist(),
            groups_of(self.answers.profiles, less, "saturated").tolist(),
        )
        together: dict[int, list[int]] = {}
        for group, of in sorted(set(zip(groups, merged, strict=True))):
            together.setdefault(of, []).append(group)
        pairs = [(own[0], other) for own in together.values() for other in own[1:]]
        if not pairs:
            return 0.0, 1
        contrasts = np.zeros((len(pairs), len(mean)))
        for row, (first, second) in enumerate(pairs):
            contrasts[row, first], contrasts[row, second] = 1.0, -1.0
        apart = contrasts @ mean
        inner = contrasts @ covariance @ contrasts.T
        return float(apart @ np.linalg.pinv(inner, hermitian=True) @ apart), len(pairs)

    def _means(self, groups: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Means of the groups, and their covariance: the inverse of the outer product of the
        scores.
        """
        seen = self.answers.seen[:, self.j] > 0
        # (n, G)
        share = (self.tables.posterior[seen] @ torch.nn.functional.one_hot(groups).double()).numpy()
        t = self.answers.statistic[seen, self.j].numpy()
        count = share.sum(0).clip(TINY)
        mean = share.T @ t / count
        family, place = self.answers.blocks[self.j]
        residual = t[:, None] - mean
        if not family.is_canonical:
            variance = (share * residual**2).sum(0) / count
        elif place < 0:
            variance = family.moments(family.linearise(torch.tensor(mean), LEAST_CHANCE))[1].numpy()
        else:
            variance = (share * residual**2).sum() / count.sum()
        scores = share * residual / variance
        return mean, np.linalg.pinv(scores.T @ scores, hermitian=True)

    @cached_property
    def quality(self) -> float:
        """Mean rise of the chance of a right answer from none to all attributes, over the items;
        NaN where not all are 0/1.
        """
        if not all(isinstance(family, Bernoulli) for family, _ in self.answers.blocks):
            return float("nan")
        ends = [int((self.answers.profiles == value).all(1).nonzero()[0]) for value in (0.0, 1.0)]
        none, everything = (torch.sigmoid(self.tables.eta[:, end]) for end in ends)
        return float((everything - none).mean())

    def place(self, vector: np.ndarray) -> int:
        """Index of a candidate, -1 if it is none."""
        found = np.flatnonzero((self.sets == vector).all(1))
        return int(found[0]) if len(found) else -1

    @cached_property
    def best_of_each_size(self) -> list[int]:
        """The candidate of largest PVAF with 1, 2, ... attributes; of equal ones that which the
        item has.
        """
        sizes = self.sets.sum(1)
        own = self.pvaf + 1e-9 * (np.arange(len(self.pvaf)) == self.given)
        return [
            int(np.flatnonzero(sizes == s)[own[sizes == s].argmax()])
            for s in range(1, int(sizes.max()) + 1)
            if (sizes == s).any()
        ]


class Choice(NamedTuple):
    """A candidate by its index, under a rule, and by how much it is preferred to what the item has,
    to order items by.
    """

    place: int
    rule: str
    gain: float


class QCriterion(Protocol):
    """A way to choose."""

    @property
    def saturated(self) -> bool:
        """Whether items are taken as saturated, whatever their rules."""
        ...

    def choose(self, item: ItemEvidence) -> Choice:
        """The candidate for an item."""
        ...


@dataclass(frozen=True)
class VarianceShare:
    """The fewest attributes that account for a share of the variance of the item's means (PVAF,
    also called GDI).

    Args:
        cutoff: the share; None for that which Nájera, Sorrel and Abad predict from the items'
            quality, N and J (0/1 items; .95 for others).

    Raises:
        ValueError: for a cutoff outside (0, 1).
    """

    cutoff: float | None = 0.95
    saturated = True

    def __post_init__(self) -> None:
        plain_fields(self)
        if self.cutoff is not None:
            check_number(
                "VarianceShare",
                "cutoff",
                self.cutoff,
                "lie between 0 and 1, or be None",
                above=0,
                below=1,
            )

    def choose(self, item: ItemEvidence) -> Choice:
        cutoff = self.cutoff
        if cutoff is None:
            a, b, c, d = PREDICTED
            value = a + b * item.quality + c * len(item.answers.x) + d * item.answers.num_items
            cutoff = 0.95 if math.isnan(value) else 1 / (1 + math.exp(-value))
        best = item.best_of_each_size
        return _saturated(item, next((m for m in best if item.pvaf[m] >= cutoff), best[-1]))


@dataclass(frozen=True)
class VarianceHull:
    """The corner of the upper convex hull of the best PVAF of each number of attributes, against
    the coefficients that they take.
    """

    saturated = True

    def choose(self, item: ItemEvidence) -> Choice:
        best = item.best_of_each_size
        points = [
            (0.0, 0.0, -1),
            *((2.0 ** int(item.sets[m].sum()), float(item.pvaf[m]), m) for m in best),
        ]
        hull: list[tuple[float, float, int]] = []
        for point in points:
            while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point):
                hull.pop()
            hull.append(point)
        if len(hull) < 3:
            return _saturated(item, hull[-1][2])
        bends = [
            _slope(hull[i - 1], hull[i]) / max(_slope(hull[i], hull[i + 1]), 1e-12)
            for i in range(1, len(hull) - 1)
        ]
        return _saturated(item, hull[1 + int(np.argmax(bends))][2])


def _saturated(item: ItemEvidence, place: int) -> Choice:
    return Choice(place, "saturated", float(abs(item.pvaf[place] - item.pvaf[item.given])))


def _slope(first: tuple[float, float, int], second: tuple[float, float, int]) -> float:
    return (second[1] - first[1]) / (second[0] - first[0])


@dataclass(frozen=True)
class _Steps:
    """Steps by tests at one level."""

    level: float = 0.05
    saturated = True

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number(
            type(self).__name__, "level", self.level, "lie between 0 and 1", above=0, below=1
        )


@dataclass(frozen=True)
class WaldSteps(_Steps):
    """Attributes added one by one while a Wald test says that they matter, the one of largest PVAF
    first, and dropped where they no longer do.

    Args:
        level: of the tests.

    Raises:
        ValueError: for a level outside (0, 1).
    """

    def choose(self, item: ItemEvidence) -> Choice:
        return _saturated(item, _stepwise(item, self.level, item.wald))


@dataclass(frozen=True)
class LikelihoodRatioSteps(_Steps):
    """As :class:`WaldSteps`, with the likelihood ratio of the item in the place of the Wald
    statistic.

    Args:
        level: of the tests.

    Raises:
        ValueError: for a level outside (0, 1).
    """

    def choose(self, item: ItemEvidence) -> Choice:
        free = item.candidates("saturated").num_free.numpy()

        def ratio(m: int, k: int) -> tuple[float, int]:
            less = item.sets[m].copy()
            less[k] = False
            other = item.place(less)
            gain = item.log_likelihood("saturated", m) - item.log_likelihood("saturated", other)
            return 2 * gain, max(1, int(free[m] - free[other]))

        return _saturated(item, _stepwise(item, self.level, ratio))


def _stepwise(
    item: ItemEvidence, level: float, test: Callable[[int, int], tuple[float, int]]
) -> int:
    """From the single attribute of largest PVAF, one attribute in and insignificant ones out, while
    anything changes.
    """
    at = item.best_of_each_size[0]
    met = {at}
    for _ in range(4 * item.sets.shape[1]):
        larger = []
        for k in np.flatnonzero(~item.sets[at]).tolist():
            vector = item.sets[at].copy()
            vector[k] = True
            m = item.place(vector)
            if m >= 0 and chi2.sf(*test(m, k)) < level:
                larger.append(m)
        if not larger:
            return at
        at = max(larger, key=lambda m: item.pvaf[m])
        while item.sets[at].sum() > 1:
            chances = {
                k: float(chi2.sf(*test(at, k))) for k in np.flatnonzero(item.sets[at]).tolist()
            }
            worst = max(chances, key=lambda k: chances[k])
            if chances[worst] < level:
                break
            vector = item.sets[at].copy()
            vector[worst] = False
            at = item.place(vector)
        if at in met:
            return at
        met.add(at)
    return at


@dataclass(frozen=True)
class ItemBIC:
    """The least extended BIC of the item, by the likelihood without the item's own answers in the
    posterior.

    An item that is given as saturated may turn out conjunctive, disjunctive or additive on the way,
    whichever has the least BIC: a saturated item pays for all its interactions, and would lose
    attributes whose effects are plain.

    Args:
        gamma: weight of the number of vectors with at most as many attributes; 0 is BIC.
        own_rule: compare under the item's own rule; if False, every item is taken as one given as
            saturated.

    Raises:
        ValueError: for a gamma that is not a number of 0 or more.
    """

    gamma: float = 0.5
    own_rule: bool = True

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number("ItemBIC", "gamma", self.gamma, "be a number of 0 or more", least=0)
        check_flag("ItemBIC", "own_rule", self.own_rule)

    @property
    def saturated(self) -> bool:
        return not self.own_rule

    def prices(self, sets: np.ndarray) -> np.ndarray:
        """What extended BIC adds for each vector (M, K), (M,)."""
        size = sets.shape[1]
        numbers = np.cumsum([math.comb(size, chosen) for chosen in range(1, size + 1)])
        return np.asarray(2 * self.gamma * np.log(numbers[sets.sum(1) - 1]))

    def scores(self, item: ItemEvidence) -> np.ndarray:
        """Extended BIC by rule and candidate, (rules, M), up to one constant; infinite where it is
        clear that it is not the least.
        """
        return item.bic(self.prices(item.sets))

    def choose(self, item: ItemEvidence) -> Choice:
        score = self.scores(item)
        rule, place = divmod(int(score.argmin()), score.shape[1])
        given = item.tables.rules[item.j]
        gain = float(score[item.rules.index(given), item.given] - score[rule, place])
        price = self.prices(item.sets[[item.given, place]])
        # by the answers alone; laws may be the same where there are fewer profiles
        is_same = gain - float(price[0] - price[1]) <= TIE
        return (
            Choice(item.given, given, 0.0)
            if gain <= TIE or is_same
            else Choice(place, item.rules[rule], gain)
        )
