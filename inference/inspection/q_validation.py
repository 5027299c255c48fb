r"""Empirical validation of a Q-matrix: criteria for the row of an item, and the search.

Each item's attributes are chosen by a criterion, the model is fitted again with the rows that were
chosen, and so on until nothing changes. With :math:`w_\ell` the share of rows in sub-profile
:math:`\ell` of a q-vector and :math:`\mu_{j\ell}` the mean response there (of a LogNormal item the
mean logarithm),

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

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from inference.base.drawing import draw
from inference.base.frames import pd
from inference.fitting.columns import checked_as_fitted, labels_of
from inference.fitting.record import FitRecord
from inference.inspection.attributes import moment_model
from inference.inspection.item_tables import (
    RULES,
    TINY,
    Answers,
    Candidates,
    ItemTables,
    OneItem,
    groups_of,
    tables_of,
)
from ppl_models.parts.repr import counted, shows_briefly
from ppl_models.parts.responses import Bernoulli
from ppl_models.parts.validation import (
    Seed,
    as_seed,
    check_flag,
    check_number,
    check_size,
    plain_fields,
)

# of the predicted cutoff (Nájera, Sorrel and Abad 2019): intercept, item quality, rows, items
TIE = 0.1  # of BIC
# candidates whose likelihood is worked out, and how far they may be from the least by least squares
FINALISTS, MARGIN = (8, 25.0)
LEAST_CHANCE = 1e-4
LEAST_ROWS, FLAT = 1.0, 1e-6  # expected in a group; singular value that is none, of the largest
PREDICTED = (-0.405, 2.867, 4.840e-4, -3.316e-3)


@dataclass(frozen=True, eq=False)
class ItemEvidence:
    """Evidence on one item for a criterion; worked out when it is asked for.

    Args:
        answers, tables: the data and the estimate.
        j: the item's number; rules: those that it may follow.
        vectors: candidates, bool (M, K).
        made: candidates by rule, which items share; known: log-likelihoods, by rule and candidate;
            moments: means of the groups of a candidate and a root of their information.
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
        """Index of the item's own row of Q."""
        return self.place(self.tables.q_matrix[self.j].numpy())

    @cached_property
    def one(self) -> OneItem:
        """Answers to the item and the posterior without it."""
        return OneItem.of(self.answers, self.tables, self.j)

    @cached_property
    def pvaf(self) -> np.ndarray:
        """Share of the variance of the item's means that each candidate accounts for, (M,)."""
        weight = self.answers.seen[:, self.j] @ self.tables.posterior
        total = self.answers.statistic[:, self.j] @ self.tables.posterior  # (C,)
        deviation = total - weight * total.sum() / weight.sum()
        whole = (deviation.square() / weight.clamp(min=TINY)).sum()
        zeros = torch.zeros(len(self.vectors), len(weight), dtype=torch.float64)
        groups = self.candidates("saturated").groups
        deviations = zeros.scatter_add(1, groups, deviation.expand_as(zeros))
        weights = zeros.scatter_add(1, groups, weight.expand_as(zeros))
        between = deviations.square() / weights.clamp(min=TINY)
        return np.asarray(between.sum(1) / whole.clamp(min=TINY))

    def log_likelihood(self, rule: str, m: int) -> float:
        """Log-likelihood of candidate m under a rule, everything else held."""
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
        """BIC of each candidate under each allowed rule, all else held, (rules, M).

        Up to one constant.

        All by weighted least squares; the likelihood decides between the best of these and what the
        item has, and the others are left at infinity: they are far from the least.

        Args:
            prices: added to each, (M,).
        """
        candidates = [self.candidates(rule) for rule in self.rules]
        price = math.log(len(self.answers.x))
        free = np.stack([own.num_free.numpy() for own in candidates]) * price + prices
        rough = np.stack([own.screen(self.one).numpy() for own in candidates]) + free
        order = np.argsort(rough, axis=None)[:FINALISTS]
        finalists = set(order[rough.ravel()[order] <= rough.min() + MARGIN].tolist())
        finalists.add(self.rules.index(self.tables.rules[self.j]) * rough.shape[1] + self.given)
        out = np.full(rough.shape, np.inf)
        for place in finalists:
            r, m = divmod(place, rough.shape[1])
            out[r, m] = -2 * self.log_likelihood(self.rules[r], m) + free[r, m]
        return out

    def wald(self, m: int, k: int) -> tuple[float, int]:
        """Wald statistic and degrees of "attribute k of candidate m does not matter".

        For a saturated item, over the profiles that somebody has.
        """
        if m not in self.moments:
            self.moments[m] = self._means(self.candidates("saturated").groups[m])
        mean, root = self.moments[m]
        less = self.vectors[m] & (torch.arange(self.vectors.shape[1]) != k)
        merged = groups_of(self.answers.profiles, less, "saturated").numpy()
        together = np.zeros((len(mean), merged.max() + 1))
        together[self.candidates("saturated").groups[m].numpy(), merged] = 1.0
        # the means that are nearest by their information among those that k does not tell apart
        design, target = root @ together, root @ mean
        nearest, _, rank, _ = np.linalg.lstsq(design, target, rcond=FLAT)
        left = target - design @ nearest
        degrees = np.linalg.matrix_rank(root, tol=FLAT * np.linalg.norm(root, 2)) - int(rank)
        return (float(left @ left), int(degrees)) if degrees > 0 else (0.0, 1)

    def _means(self, groups: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Means of the groups, and a root of their information, the outer product of the scores.

        Groups that nobody is in have no information.
        """
        seen = self.answers.seen[:, self.j] > 0
        # (n, G)
        share = (self.tables.posterior[seen] @ torch.nn.functional.one_hot(groups).double()).numpy()
        t = self.answers.statistic[seen, self.j].numpy()
        is_met = share.sum(0) >= LEAST_ROWS
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
        scores = share * residual * is_met / np.where(is_met, variance, 1.0)
        root: np.ndarray = np.linalg.qr(scores).R
        return mean, root

    @cached_property
    def quality(self) -> float:
        """Mean rise of right answers from none to all attributes; NaN unless all items are 0/1."""
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
        """Candidates of largest PVAF by number of attributes; the item's own at a tie."""
        sizes = self.sets.sum(1)
        own = self.pvaf + 1e-9 * (np.arange(len(self.pvaf)) == self.given)
        return [
            int(np.flatnonzero(sizes == s)[own[sizes == s].argmax()])
            for s in range(1, int(sizes.max()) + 1)
            if (sizes == s).any()
        ]


class Choice(NamedTuple):
    """Candidate by index under a rule, with its gain over the item's own, to order items by."""

    place: int
    rule: str
    gain: float


class QCriterion(Protocol):
    """A way to choose."""

    @property
    def saturated(self) -> bool:
        """Saturated items, whatever their rules."""
        ...

    def choose(self, item: ItemEvidence) -> Choice:
        """The candidate for an item."""
        ...


@dataclass(frozen=True)
class VarianceShare:
    """Fewest attributes that account for a share of the variance of means (PVAF or GDI).

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
            wanted = "lie between 0 and 1, or be None"
            check_number("VarianceShare", "cutoff", self.cutoff, wanted, above=0, below=1)

    def choose(self, item: ItemEvidence) -> Choice:
        """Candidate for an item."""
        cutoff = self.cutoff
        if cutoff is None:
            a, b, c, d = PREDICTED
            value = a + b * item.quality + c * len(item.answers.x) + d * item.answers.num_items
            cutoff = 0.95 if math.isnan(value) else 1 / (1 + math.exp(-value))
        best = item.best_of_each_size
        return _saturated(item, next((m for m in best if item.pvaf[m] >= cutoff), best[-1]))


@dataclass(frozen=True)
class VarianceHull:
    """Corner of the convex hull of best PVAF against the number of coefficients."""

    saturated = True

    def choose(self, item: ItemEvidence) -> Choice:
        """Candidate for an item."""
        best = item.best_of_each_size
        hull = [(0.0, 0.0, -1)]
        for point in ((2.0 ** int(item.sets[m].sum()), float(item.pvaf[m]), m) for m in best):
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
    """Stepwise Wald tests: the attribute of largest PVAF in, insignificant ones out.

    Args:
        level: of the tests.

    Raises:
        ValueError: for a level outside (0, 1).
    """

    def choose(self, item: ItemEvidence) -> Choice:
        """Candidate for an item."""
        return _saturated(item, _stepwise(item, self.level, item.wald))


@dataclass(frozen=True)
class LikelihoodRatioSteps(_Steps):
    """Stepwise likelihood ratio tests of the item, as :class:`WaldSteps`.

    Args:
        level: of the tests.

    Raises:
        ValueError: for a level outside (0, 1).
    """

    def choose(self, item: ItemEvidence) -> Choice:
        """Candidate for an item."""

        def ratio(m: int, k: int) -> tuple[float, int]:
            less = _without(item, m, k)
            gain = item.log_likelihood("saturated", m) - item.log_likelihood("saturated", less)
            return 2 * gain, item.wald(m, k)[1]

        return _saturated(item, _stepwise(item, self.level, ratio))


def _without(item: ItemEvidence, m: int, k: int) -> int:
    """Index of candidate m without attribute k, -1 if it is none."""
    vector = item.sets[m].copy()
    vector[k] = False
    return item.place(vector)


def _stepwise(
    item: ItemEvidence, level: float, test: Callable[[int, int], tuple[float, int]]
) -> int:
    """One attribute in and insignificant ones out, from the best single one on."""
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
            less = {k: _without(item, at, k) for k in np.flatnonzero(item.sets[at]).tolist()}
            # of many attributes not every set is a candidate; the next round has others
            chances = {k: float(chi2.sf(*test(at, k))) for k, m in less.items() if m >= 0}
            worst = max(chances, key=lambda k: chances[k], default=-1)
            if worst < 0 or chances[worst] < level:
                break
            at = less[worst]
        if at in met:
            return at
        met.add(at)
    return at


@dataclass(frozen=True)
class ItemBIC:
    """Least extended BIC of the item, its own answers left out of the posterior.

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
        """Saturated items, whatever their rules."""
        return not self.own_rule

    def prices(self, sets: np.ndarray) -> np.ndarray:
        """Penalty of extended BIC for each vector (M, K), (M,)."""
        size = sets.shape[1]
        numbers = np.cumsum([math.comb(size, chosen) for chosen in range(1, size + 1)])
        return np.asarray(2 * self.gamma * np.log(numbers[sets.sum(1) - 1]))

    def scores(self, item: ItemEvidence) -> np.ndarray:
        """Extended BIC by rule and candidate, (rules, M), up to one constant.

        Infinite where it is clear that it is not the least.
        """
        return item.bic(self.prices(item.sets))

    def choose(self, item: ItemEvidence) -> Choice:
        """Candidate for an item."""
        score = self.scores(item)
        rule, place = divmod(int(score.argmin()), score.shape[1])
        given = item.tables.rules[item.j]
        gain = float(score[item.rules.index(given), item.given] - score[rule, place])
        price = self.prices(item.sets[[item.given, place]])
        # by the answers alone; distributions may be the same where there are fewer profiles
        is_same = gain - float(price[0] - price[1]) <= TIE
        if gain <= TIE or is_same:
            return Choice(item.given, given, 0.0)
        return Choice(place, item.rules[rule], gain)


MAX_ATTRIBUTES = 12  # whose profiles are listed
MAX_ALL = 8  # attributes all of whose sets are looked at; beyond, those near the one that is there
MIN_GAIN = 0.1  # of BIC
MOST_SHOWN = 30
PACES = (1.0, 0.3)  # shares of the moves of a round that are made
STEP_ROUNDS = 6  # of steps by Wald tests, from whose end the search is made once more


@dataclass(frozen=True)
class QChange:
    """A row of the Q-matrix that should be another.

    Args:
        item: its name.
        given, suggested: names of the attributes.
        pvaf_given, pvaf_suggested: shares of the variance of the item's means that they account
            for.
        gain: by how much BIC falls with the change, everything else as it is suggested; 10 is
            strong evidence.
    """

    item: str
    given: tuple[str, ...]
    suggested: tuple[str, ...]
    pvaf_given: float
    pvaf_suggested: float
    gain: float


@shows_briefly
@dataclass(frozen=True, eq=False)
class QValidation:
    """Validation of a Q-matrix by the answers.

    Args:
        model: the model that was validated, with its own Q.
        criterion: by which rows were chosen.
        items, attributes: J and K names.
        given, suggested: Q, (J, K) of 0 and 1.
        candidates: of each item the sets of attributes that were compared, (M_j, K) of 0 and 1;
            pvaf: of each, (M_j,).
        pvaf_given, pvaf_suggested, gain: (J,), see :class:`QChange`.
        num_rounds: of choosing and fitting again; settled: whether the last one changed nothing, or
            one was all that was asked for.
        stability: share of bootstrap replicates whose suggestion has each entry, (J, K); None
            without bootstrap.
    """

    model: Any
    criterion: QCriterion
    items: tuple[str, ...]
    attributes: tuple[str, ...]
    given: np.ndarray
    suggested: np.ndarray
    candidates: tuple[np.ndarray, ...]
    pvaf: tuple[np.ndarray, ...]
    pvaf_given: np.ndarray
    pvaf_suggested: np.ndarray
    gain: np.ndarray
    num_rounds: int
    settled: bool
    stability: np.ndarray | None = field(default=None)

    @property
    def changes(self) -> tuple[QChange, ...]:
        """The rows that should be others, the largest gain first."""
        rows = [j for j in range(len(self.items)) if (self.given[j] != self.suggested[j]).any()]
        return tuple(
            QChange(
                self.items[j],
                self._asked(self.given[j]),
                self._asked(self.suggested[j]),
                float(self.pvaf_given[j]),
                float(self.pvaf_suggested[j]),
                float(self.gain[j]),
            )
            for j in sorted(rows, key=lambda j: -float(self.gain[j]))
        )

    @property
    def table(self) -> pd.DataFrame:
        """One line an item: attributes, PVAF, gain, and the least stable entry of replicates."""
        columns = {
            "given": [", ".join(self._asked(row)) for row in self.given],
            "suggested": [", ".join(self._asked(row)) for row in self.suggested],
            "changed": (self.given != self.suggested).any(1),
            "pvaf_given": self.pvaf_given,
            "pvaf_suggested": self.pvaf_suggested,
            "gain": self.gain,
        }
        if self.stability is not None:
            agrees = np.where(self.suggested == 1, self.stability, 1 - self.stability)
            columns["stability"] = agrees.min(1)
        return pd.DataFrame(columns, index=pd.Index(self.items, name="item"))

    def apply(self) -> Any:
        """The model with the suggested Q-matrix, to be fitted anew."""
        return self.model.restricted((self.suggested.tolist(),))

    def plot(self, item: Any = None, ax: Any = None) -> Any:
        """Mesa plot of one item, by name or number; of the largest gain if None.

        See :func:`inference.plots.plot_mesa`.
        """
        return draw("plot_mesa", self, item, ax)

    def text(self) -> str:
        """The findings in plain sentences."""
        changes = self.changes
        if not changes:
            lines = ["The answers suggest no change of the Q-matrix."]
        else:
            lines = [
                f"The answers suggest another row of the Q-matrix for {len(changes)} of"
                f" {len(self.items)} items. Change a row only if it makes sense for the item: read"
                " its wording first."
            ]
        for change in changes[:MOST_SHOWN]:
            gone = [name for name in change.given if name not in change.suggested]
            come = [name for name in change.suggested if name not in change.given]
            moves = [f"add {', '.join(come)}"] if come else []
            moves += [f"drop {', '.join(gone)}"] if gone else []
            sure = ""
            if self.stability is not None:
                j = self.items.index(change.item)
                agrees = np.where(self.suggested[j] == 1, self.stability[j], 1 - self.stability[j])
                least = float(agrees[self.given[j] != self.suggested[j]].min())
                sure = f"; in at least {100 * least:.0f} % of the replicates"
            lines.append(
                f"  {change.item}: {' and '.join(moves)} (share of variance {change.pvaf_given:.2f}"
                f" -> {change.pvaf_suggested:.2f}, BIC {'falls' if change.gain > 0 else 'rises'} by"
                f" {abs(change.gain):.1f}{sure})"
            )
        if len(changes) > MOST_SHOWN:
            lines.append(f"  and {len(changes) - MOST_SHOWN} more")
        if not self.settled:
            lines.append(
                f"After {counted(self.num_rounds, 'round')} the suggestions still changed: take"
                " them with care."
            )
        return "\n".join(lines)

    def _asked(self, row: np.ndarray) -> tuple[str, ...]:
        return tuple(name for name, asked in zip(self.attributes, row, strict=True) if asked)


def validate_q(
    fit: FitRecord,
    data: Any,
    criterion: QCriterion | None = None,
    max_rounds: int = 20,
    at_once: bool = True,
    num_bootstrap: int = 0,
    seed: Seed = 0,
) -> QValidation:
    """Validate the rows of a Q-matrix against the answers, and suggest others.

    Each item's attributes are chosen by the criterion, the model is fitted with the rows that were
    chosen, and so on until nothing changes. All sets of attributes are compared where there are at
    most eight, beyond that those within two attributes of the present one. With :class:`ItemBIC` a
    round that does not lower the extended BIC of the whole model is taken back, all but its best
    item; and the search is made three times, of whose ends the one with the least extended BIC
    counts: with all changes of a round, with the clearest three in ten, and from the Q-matrix that
    steps by Wald tests make of the given one with saturated items. Where a fifth of the entries is
    wrong, the attributes of a fit under a conjunctive rule are mixed up, and a search from there
    can end at a Q-matrix that fits worse than the right one; under saturated items they are less
    so.

    Items of rules with a curve (``"acdm"``, ``"rrum"``), saturated items with a limited order and
    additive NegativeBinomial items are taken as saturated; the sizes of NegativeBinomial items stay
    as the fit has them.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel` with a Q-matrix.
        data: the rows of the fit, (N, J), NaN where missing.
        criterion: :class:`ItemBIC`, :class:`VarianceShare`, :class:`VarianceHull`,
            :class:`WaldSteps` or :class:`LikelihoodRatioSteps`; ``ItemBIC()`` if None.
        max_rounds: of choosing and fitting again, at most; 1 for the usual validation without
            repetition.
        at_once: change all items of a round; if False, the one with the largest gain of BIC.
        num_bootstrap: replicates of the rows on which all is done again, for
            :attr:`QValidation.stability`; 0 for none.
        seed: of the replicates.

    Raises:
        ValueError: for another model or one without a Q-matrix, more than twelve attributes, data
            that do not fit it, settings out of range, or a fit with weights, labels, fixed or tied
            parameters.
    """
    seed = as_seed("validate_q", seed)
    owner = "validate_q"
    fit.refuse_weights(owner)
    fit.refuse_labels(owner)
    structure = moment_model(fit, owner)
    layer = structure.layers[0]
    if layer.edges is None:
        raise ValueError(
            f"{owner}: a fit with a Q-matrix was expected, and this model leaves it open:"
            " fit.model.restricted(...) gives it one"
        )
    if layer.num_parents > MAX_ATTRIBUTES and structure.root.profiles is None:
        raise ValueError(
            f"{owner}: at most {MAX_ATTRIBUTES} attributes were expected, got {layer.num_parents}:"
            " their profiles are too many to list"
        )
    criterion = ItemBIC() if criterion is None else criterion
    if isinstance(criterion, type) or not callable(getattr(criterion, "choose", None)):
        raise ValueError(
            f"{owner}: criterion must be ItemBIC(), VarianceShare() or another of"
            f" inference.inspection, got {criterion!r}"
        )
    check_size(owner, "max_rounds", max_rounds)
    check_size(owner, "num_bootstrap", num_bootstrap, least=0)
    check_flag(owner, "at_once", at_once)
    rows = checked_as_fitted(fit, data)[0]
    with torch.no_grad():
        answers = Answers.of(structure, rows.cpu())
        rules = ("saturated",) * layer.num_children
        if not criterion.saturated:
            rules = tuple(
                rule if rule in _allowed(answers, j, "saturated") else "saturated"
                for j, rule in enumerate(structure.item_rules())
            )
        first = tables_of(fit, structure, answers, rules)
        search = _Search(criterion, rules, max_rounds, at_once)
        last, num_rounds, settled = search.run(answers, first)
        stability = None
        if num_bootstrap:
            generator = torch.Generator().manual_seed(seed)
            total = torch.zeros(first.q_matrix.shape)
            for _ in range(num_bootstrap):
                chosen = torch.randint(len(answers.x), (len(answers.x),), generator=generator)
                again = replace(first, posterior=first.posterior[chosen])
                total += search.run(answers.rows(chosen), again)[0].q_matrix
            stability = (total / num_bootstrap).double().numpy()
        return _record(fit, answers, first.q_matrix, last, search, num_rounds, settled, stability)


def _record(
    fit: FitRecord,
    answers: Answers,
    given: Tensor,
    last: ItemTables,
    search: _Search,
    num_rounds: int,
    settled: bool,
    stability: np.ndarray | None,
) -> QValidation:
    num_items, size = given.shape
    rules, saturated = ("saturated",) * num_items, last
    if not search.criterion.saturated:
        saturated = last.under(answers, last.q_matrix, rules)
    candidates, shares, pairs, gains = [], [], [], []
    for j in range(num_items):
        vectors = _near(last.q_matrix[j], given[j])
        made = search.made.setdefault(_key(vectors), {})
        own = ItemEvidence(answers, saturated, j, rules[:1], vectors, made).pvaf
        places = [int((vectors == row).all(1).nonzero()[0]) for row in (given[j], last.q_matrix[j])]
        gain = 0.0
        if places[0] != places[1]:
            allowed = _allowed(answers, j, search.rules[j])
            rows = torch.stack([given[j], last.q_matrix[j]])
            two = ItemEvidence(answers, last, j, allowed, rows, {})
            gain = two.least_bic(0) - two.least_bic(1)
        candidates.append(vectors.long().numpy())
        shares.append(own)
        pairs.append(own[places].tolist())
        gains.append(gain)
    before, after = np.array(pairs).T
    own_names = getattr(fit.model, "item_names", None)
    items, attributes = (
        tuple(map(str, labels_of(fit, *dim))) for dim in (("item", num_items), ("attribute", size))
    )
    return QValidation(
        fit.model,
        search.criterion,
        own_names or items,
        attributes,
        given.long().numpy(),
        last.q_matrix.long().numpy(),
        tuple(candidates),
        tuple(shares),
        before,
        after,
        np.array(gains),
        num_rounds,
        settled,
        stability,
    )


class Move(NamedTuple):
    """Another row of Q, and another rule, for an item."""

    gain: float
    item: int
    row: Tensor
    rule: str


@dataclass(frozen=True, eq=False)
class _Search:
    """Choosing and fitting again; ``made`` keeps candidates that items share."""

    criterion: QCriterion
    rules: tuple[str, ...]
    max_rounds: int
    at_once: bool
    made: dict[Any, dict[str, Candidates]] = field(default_factory=dict)

    def run(self, answers: Answers, first: ItemTables) -> tuple[ItemTables, int, bool]:
        """Last estimate, rounds, and convergence; the least extended BIC of several runs."""
        guard = self.criterion if isinstance(self.criterion, ItemBIC) else None
        if guard is None or not self.at_once or self.max_rounds == 1:
            return self._at_pace(answers, first, 1.0)
        ends = [self._at_pace(answers, first, pace) for pace in PACES]
        num_rounds, rules = min(STEP_ROUNDS, self.max_rounds), ("saturated",) * answers.num_items
        by_steps = _Search(WaldSteps(), rules, num_rounds, True, self.made)
        ends.append(self._at_pace(answers, by_steps._at_pace(answers, first, 1.0)[0], 1.0))
        return min(ends, key=lambda end: _score(guard, answers, end[0]))

    def _at_pace(
        self, answers: Answers, first: ItemTables, pace: float
    ) -> tuple[ItemTables, int, bool]:
        """One run, in whose rounds a share of the moves is made, the largest gains first."""
        tables = first.under(answers, first.q_matrix, self.rules)
        guard = self.criterion if isinstance(self.criterion, ItemBIC) else None
        met = {_key(tables.q_matrix)}
        for done in range(1, self.max_rounds + 1):
            moves = self._moves(answers, tables)
            if not moves:
                return tables, done, True
            num_made = math.ceil(pace * len(moves)) if self.at_once else 1
            new = _changed(answers, tables, moves[:num_made])
            if guard is not None:
                bar = _score(guard, answers, tables) - MIN_GAIN
                if self.at_once and len(moves) > 1 and _score(guard, answers, new) >= bar:
                    new = _changed(answers, tables, moves[:1])
                if _score(guard, answers, new) >= bar:
                    return tables, done, True
            if _key(new.q_matrix) in met and guard is None:  # it goes round in a circle
                return new, done, torch.equal(new.q_matrix, tables.q_matrix)
            tables = new
            met.add(_key(tables.q_matrix))
        return tables, self.max_rounds, self.max_rounds == 1

    def _moves(self, answers: Answers, tables: ItemTables) -> list[Move]:
        """The items whose choice is another than what they have, the largest gain first."""
        out = []
        for j in range(answers.num_items):
            vectors = _near(tables.q_matrix[j])
            allowed: tuple[str, ...] = (self.rules[j],)
            if isinstance(self.criterion, ItemBIC):
                allowed = _allowed(answers, j, self.rules[j])
            made = self.made.setdefault(_key(vectors), {})
            item = ItemEvidence(answers, tables, j, allowed, vectors, made)
            place, rule, gain = self.criterion.choose(item)
            if place != item.given or rule != tables.rules[j]:
                out.append(Move(gain, j, vectors[place], rule))
        return sorted(out, key=lambda move: -move.gain)


def _allowed(answers: Answers, j: int, rule: str) -> tuple[str, ...]:
    """Rules that an item given under one may follow.

    Additive only where its predictor is the natural parameter.
    """
    if rule != "saturated":
        return (rule,)
    is_canonical = answers.blocks[j][0].is_canonical
    return tuple(name for name in RULES if is_canonical or name != "additive")


def _changed(answers: Answers, tables: ItemTables, moves: Sequence[Move]) -> ItemTables:
    """Fitted again with these rows; an attribute keeps an item."""
    q_matrix, rules = tables.q_matrix.clone(), list(tables.rules)
    for move in moves:
        before = q_matrix[move.item].clone()
        q_matrix[move.item] = move.row
        if bool(q_matrix.any(0).all()):
            rules[move.item] = move.rule
        else:
            q_matrix[move.item] = before
    return tables.under(answers, q_matrix, rules)


def _score(criterion: ItemBIC, answers: Answers, tables: ItemTables) -> float:
    """Extended BIC of the whole model, up to what does not change."""
    return (
        -2 * tables.log_likelihood
        + math.log(len(answers.x)) * tables.num_free
        + float(criterion.prices(tables.q_matrix.numpy()).sum())
    )


def _near(row: Tensor, other: Tensor | None = None) -> Tensor:
    """Candidate sets of attributes, bool (M, K): all, or those within two of the item's own."""
    size = len(row)
    if size <= MAX_ALL:
        codes = torch.arange(1, 2**size)
        return ((codes[:, None] >> torch.arange(size - 1, -1, -1)) & 1).bool()
    found = {tuple(row.tolist())} | ({tuple(other.tolist())} if other is not None else set())
    for number in (1, 2):
        for turned in itertools.combinations(range(size), number):
            new = row.clone()
            new[list(turned)] = ~new[list(turned)]
            found.add(tuple(new.tolist()))
    found |= {tuple(k == own for k in range(size)) for own in range(size)}
    return torch.tensor(sorted(own for own in found if any(own)))


def _key(matrix: Tensor) -> Any:
    return tuple(map(tuple, matrix.int().tolist()))
