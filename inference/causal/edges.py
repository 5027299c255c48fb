r"""Classes of DAGs, and probabilities of graphs, edges and directions over tables.

Given one table worth n rows, the probability of a class of DAGs is proportional to the exponential
of its score (all classes alike beforehand): its marginal likelihood under ``BDeu()``, the
approximation of Schwarz (1978) to it under ``BIC()``. The probabilities of several tables are
averaged.

Up to five attributes all classes are summed over: three attributes have 25 DAGs in 11 classes, four
543 in 185, five 29 281 in 8 782. Up to twelve, DAGs are drawn with probability proportional to the
exponential of their score times the number of orders that they agree with (Friedman and Koller
2003; exact draws as in Ellis and Wong 2008): with :math:`s(i, P)` the local scores,

.. math::

    \beta_i(C) = \log \sum_{P \subseteq C} e^{s(i, P)}, \qquad R(C) = \log \sum_{i \in C} e^{R(C
    \setminus i) + \beta_i(C \setminus i)},

the last attribute and its parents are drawn from the terms of :math:`R`, then the last but one. The
draws only find classes; what counts for each is its score, and the probability that they missed is
estimated. With more attributes each table counts for the best class that a search finds, and only
the spread of the tables shows.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.base.drawing import draw
from inference.causal.exact import ExactSearch
from inference.causal.ges import GES
from inference.causal.graphs import Cpdag, as_names, shd
from inference.causal.knowledge import BackgroundKnowledge, Constraints, constraints_of
from inference.causal.pdags import Pdag, class_of, extension_of, members
from inference.causal.scores import Score, Search, all_set_scores, score_rule
from inference.causal.tables import as_tables, check_rows
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_flag, check_size

MOST_ENUMERATED = 5
MOST_SAMPLED = 12
LEAST_DRAWS = 5000  # of DAGs, over all tables
DRAWS_EACH = 10  # at least, for every table
CHUNK = 2**22  # numbers held at once


@functools.cache
def all_dags(num_attributes: int) -> np.ndarray:
    """Sets of parents in every DAG, (number of DAGs, K): bit i of entry j says i -> j.

    Raises:
        ValueError: for more than five attributes.
    """
    check_size("all_dags", "num_attributes", num_attributes)
    if num_attributes > MOST_ENUMERATED:
        raise ValueError(
            f"all_dags: at most {MOST_ENUMERATED} attributes can be enumerated, got"
            f" {num_attributes}"
        )
    own = []
    for j in range(num_attributes):
        masks = np.arange(2**num_attributes)
        own.append(masks[masks >> j & 1 == 0])
    parents = np.stack(np.meshgrid(*own, indexing="ij"), -1).reshape(-1, num_attributes)
    left = np.full(len(parents), 2**num_attributes - 1)
    for _ in range(num_attributes):  # every round takes away the nodes whose parents are all gone
        free = ((parents & left[:, None]) == 0) @ (1 << np.arange(num_attributes))
        left &= ~free
    found: np.ndarray = parents[left == 0]
    found.setflags(write=False)
    return found


@shows_briefly
@dataclass(frozen=True, eq=False)
class Classes:
    """The Markov equivalence classes of all DAGs on K attributes.

    Args:
        member: one DAG of each class, its sets of parents, (number of classes, K).
        size: number of DAGs in each class.
        of_dag: the class of each row of :func:`all_dags`.
        matrices: the CPDAG of each, bool (number of classes, K, K).
    """

    member: np.ndarray
    size: np.ndarray
    of_dag: np.ndarray
    matrices: np.ndarray


@functools.cache
def all_classes(num_attributes: int) -> Classes:
    """Equivalence classes, separated by skeleton and v-structures.

    Raises:
        ValueError: for more than five attributes.
    """
    parents = all_dags(num_attributes)
    nodes = range(num_attributes)
    arrow = [[(parents[:, j] >> i & 1).astype(bool) for j in nodes] for i in nodes]
    key = np.zeros(len(parents), dtype=np.int64)
    place = 0
    for i, k in itertools.combinations(nodes, 2):
        joined = arrow[i][k] | arrow[k][i]
        others = [arrow[i][j] & arrow[k][j] & ~joined for j in nodes if j not in (i, k)]
        for mark in (joined, *others):
            key |= mark.astype(np.int64) << place
            place += 1
    _, first, of_dag, size = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    matrices = np.stack([class_of([int(mask) for mask in parents[row]]).matrix for row in first])
    found = Classes(parents[first], size, of_dag.reshape(-1), matrices)
    for array in (found.member, found.size, found.of_dag, found.matrices):
        array.setflags(write=False)
    return found


def classes_within(known: Constraints) -> tuple[np.ndarray, np.ndarray]:
    """Classes with a DAG that agrees: one such DAG of each, and the graph of all of them.

    Args:
        known: of at most five attributes.

    Returns:
        Sets of parents, (number of classes, K), and matrices, bool (number of classes, K, K).
    """
    num_attributes = len(known.required)
    parents, classes = all_dags(num_attributes), all_classes(num_attributes)
    if not known:
        return classes.member, classes.matrices
    agree = np.all([known.parent_sets(k, parents[:, k]) for k in range(num_attributes)], 0)
    kept, first, place = np.unique(classes.of_dag[agree], return_index=True, return_inverse=True)
    arrows = parents[agree][:, None, :] >> np.arange(num_attributes)[:, None] & 1 == 1
    matrices = np.zeros((len(kept), num_attributes, num_attributes), dtype=bool)
    np.logical_or.at(matrices, place.reshape(-1), arrows)
    return parents[agree][first], matrices


def likely_classes(
    sets: np.ndarray, rng: np.random.Generator, known: Constraints | None = None
) -> tuple[dict[Pdag, tuple[int, ...]], float]:
    """Classes likely under several tables, each with a DAG, and the probability of new ones.

    Args:
        sets: F of every set of attributes (:mod:`inference.causal.scores`), (B, 2^K).
        rng: of the draws: at least 5,000, and ten for every table.
        known: what every DAG agrees with.

    Returns:
        CPDAG (MPDAG where something is known) -> sets of parents; the share of draws whose class
        came only once (Good and Turing's estimate for the distribution of the draws, which prefers
        graphs that agree with many orders; under the scores alone it can be two or three times
        that).
    """
    num_attributes = sets.shape[1].bit_length() - 1
    known = Constraints.none(num_attributes) if known is None else known
    each = max(DRAWS_EACH, -(-LEAST_DRAWS // len(sets)))
    counts: dict[tuple[int, ...], int] = {}
    step = max(1, CHUNK // (num_attributes * sets.shape[1]))
    for start in range(0, len(sets), step):
        orders = _Orders(sets[start : start + step], known)
        for b in range(len(orders.reached)):
            for _ in range(each):
                parents = orders.draw(b, rng)
                counts[parents] = counts.get(parents, 0) + 1
    found: dict[Pdag, tuple[int, ...]] = {}
    times: dict[Pdag, int] = {}
    for parents, number in counts.items():
        graph = known.graph_of(parents)
        found.setdefault(graph, parents)
        times[graph] = times.get(graph, 0) + number
    return found, sum(number == 1 for number in times.values()) / sum(times.values())


class _Orders:
    """The sums over orders for a batch of tables."""

    def __init__(self, sets: np.ndarray, known: Constraints | None = None) -> None:
        size = sets.shape[1]
        self.num_attributes = size.bit_length() - 1
        known = Constraints.none(self.num_attributes) if known is None else known
        places = np.arange(size)
        self.local, self.summed = [], []
        for i in range(self.num_attributes):
            free = (places >> i & 1 == 0) & known.parent_sets(i, places)
            local = np.full(sets.shape, -np.inf)
            local[:, free] = sets[:, places[free] | 1 << i] - sets[:, free]
            summed = local.copy()
            for j in range(self.num_attributes):
                if j != i:
                    halves = summed.reshape(len(sets), -1, 2, 2**j)
                    halves[:, :, 1] = np.logaddexp(halves[:, :, 0], halves[:, :, 1])
            self.local.append(local)
            self.summed.append(summed)
        self.reached = np.full(sets.shape, -np.inf)
        self.reached[:, 0] = 0.0
        counts = sum((places >> i & 1 for i in range(self.num_attributes)), np.zeros_like(places))
        for number in range(1, self.num_attributes + 1):
            layer = places[counts == number]
            for i in range(self.num_attributes):
                inside = layer[layer >> i & 1 == 1]
                before = inside ^ 1 << i
                self.reached[:, inside] = np.logaddexp(
                    self.reached[:, inside], self.reached[:, before] + self.summed[i][:, before]
                )
        self._subsets: dict[int, np.ndarray] = {}
        self._places = places

    def draw(self, b: int, rng: np.random.Generator) -> tuple[int, ...]:
        """The parents of each attribute in a DAG drawn for table b."""
        parents = [0] * self.num_attributes
        left = len(self._places) - 1
        while left:
            inside = members(left)
            terms = np.array(
                [self.reached[b, left ^ 1 << i] + self.summed[i][b, left ^ 1 << i] for i in inside]
            )
            i = inside[_chosen(terms, rng)]
            left ^= 1 << i
            if left not in self._subsets:
                self._subsets[left] = self._places[self._places & ~left == 0]
            subsets = self._subsets[left]
            parents[i] = int(subsets[_chosen(self.local[i][b, subsets], rng)])
        return tuple(parents)


def _chosen(logits: np.ndarray, rng: np.random.Generator) -> int:
    """A place drawn with probability proportional to the exponential."""
    reached = np.cumsum(np.exp(logits - logits.max()))
    return min(
        int(np.searchsorted(reached, rng.random() * reached[-1], side="right")), len(logits) - 1
    )


MOST_EXACT = 8  # attributes that are searched exactly unless told otherwise
MOST_CLASSES = 10  # that a record names
DIGITS = 9  # of probabilities of graphs that are compared
MUCH = 0.05  # probability of graphs that were not summed over, above which a text says so


@shows_briefly
@dataclass(frozen=True)
class EdgeProbabilities:
    """Probabilities of adjacency and of directions.

    Args:
        names: of the attributes.
        adjacent: that i and j are joined at all, (K, K), symmetric.
        arrow: that there is an arrow i -> j, the same in all DAGs of the class, (K, K).
        line: that they are joined by a line, (K, K), symmetric; ``adjacent = arrow + arrow.T +
            line``.
        classes: the most probable CPDAGs (MPDAGs where edges are known) with their probabilities,
            at most ten, the most probable first; of several as probable the one whose edges and
            arrows are more probable one by one.
        num_classes: how many have a probability of at least one in a thousand.
        num_tables: averaged over.
        averaged: whether graphs were summed over given each table; if not, only the best of each
            table counts.
        num_rows: that each table was taken to be worth.
        missed: the probability of graphs that were not summed over, roughly estimated (it can be
            two or three times that); 0 where all were.
    """

    names: tuple[str, ...]
    adjacent: np.ndarray
    arrow: np.ndarray
    line: np.ndarray
    classes: tuple[tuple[Cpdag, float], ...]
    num_classes: int
    num_tables: int
    averaged: bool
    num_rows: float
    missed: float

    @property
    def modal(self) -> Cpdag:
        """The most probable CPDAG."""
        return self.classes[0][0]

    def of(self, graph: Cpdag) -> float:
        """The probability of a CPDAG; NaN where it is not among ``classes``.

        Names in another order than those of these graphs are followed.
        """
        for other, share in self.classes:
            if other.matrix.shape == graph.matrix.shape and shd(other, graph) == 0:
                return share
        return float("nan")

    @property
    def median(self) -> Cpdag:
        """Edges with probability above one half, arrows with more than half of the edge's.

        It need not be a CPDAG.
        """
        kept = self.adjacent > 0.5
        points = kept & (self.arrow > 0.5 * self.adjacent)
        matrix: np.ndarray = points | (kept & ~points & ~points.T)
        return Cpdag(matrix, self.names)

    def text(self) -> str:
        """Every pair that is worth a word, the most probable first."""
        over = "all graphs" if len(self.names) <= MOST_ENUMERATED else "likely graphs"
        over = over if self.averaged else "the best graph of each table"
        tables = "one table" if self.num_tables == 1 else f"{self.num_tables:,} tables"
        lines = [f"Probabilities over {over}, {tables} worth {self.num_rows:,.0f} rows:"]
        pairs = [(i, j) for i in range(len(self.names)) for j in range(i + 1, len(self.names))]
        likely = [pair for pair in pairs if self.adjacent[pair] >= 0.01]
        shown = sorted(likely, key=lambda pair: -self.adjacent[pair])
        for i, j in shown:
            one, two = self.names[i], self.names[j]
            lines.append(
                f"  {one}, {two}: joined {self.adjacent[i, j]:.2f} ({one} → {two}"
                f" {self.arrow[i, j]:.2f}, {two} → {one} {self.arrow[j, i]:.2f}, either way"
                f" {self.line[i, j]:.2f})"
            )
        if len(shown) < len(pairs):
            lines.append(f"  the other {len(pairs) - len(shown)} pairs: below 0.01")
        most = self.classes[0][1]
        lines.append(
            f"The most probable graph has probability {most:.2f}; {self.num_classes} have at least"
            " 0.001."
        )
        if self.missed > MUCH:
            lines.append(
                f"Other graphs, not looked at, may have probability {self.missed:.2f} together:"
                " many fit about as well."
            )
        if not self.averaged and self.num_tables == 1:
            lines.append(
                "One table and its best graph only: these are no probabilities. Give draws of the"
                " table."
            )
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Plot the most probable graph, edges as dark as they are probable.

        See :func:`inference.plots.causal.plot_causal_graph`.
        """
        return draw("plot_causal_graph", self.modal, weights=self.adjacent, ax=ax)


def edge_probabilities(
    tables: Any,
    num_rows: float,
    *,
    score: Score | None = None,
    search: Search | None = None,
    average: bool | None = None,
    seed: Seed = 0,
    knowledge: BackgroundKnowledge | None = None,
    names: Sequence[str] | None = None,
) -> EdgeProbabilities:
    """Probabilities of edges and directions over draws of a table.

    Args:
        tables: draws, (B, 2^K) or (B, 2, ..., 2), as made by
            ``imputed_tables``, ``dirichlet_tables`` and ``resampled_tables`` of
            :mod:`inference.causal.rows`, or posterior or bootstrap draws of a fit;
            ``table[None]`` for the fitted table alone.
        num_rows: what each is worth: N n / (2 N - n) for completed tables, n being the effective
            rows, and n / 2 for draws around an estimate (:mod:`inference.causal.rows` says why).
        score: ``BDeu()`` if None.
        search: how to find the best class of each table where ``average`` is False; exact up to
            eight attributes, else ``GES()``, if None.
        average: sum over graphs given each table (at most twelve attributes, from six on over those
            that draws find); if None, wherever that can be done.
        seed: of these draws.
        knowledge: required and forbidden edges, and tiers: graphs that disagree have probability
            zero, and those that agree the same probability beforehand.
        names: of the attributes.

    Raises:
        ValueError: for what are no tables, a number of rows below 1, averages over graphs of more
            than twelve attributes, or background knowledge that contradicts itself.
    """
    seed = as_seed("edge_probabilities", seed)
    owner = "edge_probabilities"
    checked, rows = as_tables(owner, tables), check_rows(owner, num_rows)
    num_attributes = checked.shape[1].bit_length() - 1
    labels = as_names(owner, names, num_attributes)
    known = constraints_of(owner, knowledge, labels)
    if average is not None:
        check_flag(owner, "average", average)
    if average and num_attributes > MOST_SAMPLED:
        raise ValueError(
            f"{owner}: average=True needs at most {MOST_SAMPLED} attributes, got {num_attributes}"
        )
    averaged = num_attributes <= MOST_SAMPLED if average is None else average
    rule, way, missed = score_rule(owner, score), search_way(owner, search, num_attributes), 0.0
    if averaged:
        sets = _set_scores(checked, rows, rule)
        if num_attributes <= MOST_ENUMERATED:
            member, matrices = classes_within(known)
        else:
            likely, missed = likely_classes(sets, np.random.default_rng(seed), known)
            # the best is among them, whatever the draws say
            for graph in way.best_of_each(checked, rows, rule, known):
                likely.setdefault(graph, extension_of(graph) or ())
            member = np.array(list(likely.values()))
            matrices = np.stack([graph.matrix for graph in likely])
        shares = _class_shares(sets, member)
    else:
        counts = Counter(way.best_of_each(checked, rows, rule, known))
        shares = np.array(list(counts.values())) / len(checked)
        matrices = np.stack([graph.matrix for graph in counts])
    return summarised(labels, matrices, shares, len(checked), averaged, rows, missed)


def summarised(
    names: tuple[str, ...],
    matrices: np.ndarray,
    shares: np.ndarray,
    num_tables: int,
    averaged: bool,
    num_rows: float,
    missed: float,
) -> EdgeProbabilities:
    """Probabilities of edges and arrows from graphs, bool (B, K, K), and their shares, (B,)."""
    turned = matrices.swapaxes(1, 2)
    arrows, lines = matrices & ~turned, matrices & turned
    arrow, line = np.tensordot(shares, arrows, 1), np.tensordot(shares, lines, 1)
    adjacent = arrow + arrow.T + line
    agreement = np.where(arrows, 2 * arrow, np.where(lines, line, 0.0)).sum((1, 2))
    # a pair counts twice everywhere
    agreement += np.where(matrices | turned, 0.0, 1 - adjacent).sum((1, 2))
    best = np.lexsort((-agreement, -shares.round(DIGITS)))[:MOST_CLASSES]
    return EdgeProbabilities(
        names,
        adjacent,
        arrow,
        line,
        tuple((Cpdag(matrices[c], names), float(shares[c])) for c in best if shares[c] > 0),
        int((shares >= 1e-3).sum()),
        num_tables,
        averaged,
        num_rows,
        missed,
    )


def search_way(owner: str, search: Any, num_attributes: int) -> Search:
    """Search given, or for None an exact one up to eight attributes, ``GES()`` beyond.

    A ValueError for another object.
    """
    if search is None:
        return ExactSearch() if num_attributes <= MOST_EXACT else GES()
    if isinstance(search, type) or not isinstance(search, Search):
        raise ValueError(
            f"{owner}: search must be ExactSearch(), GES() or another with best(), got {search!r}"
        )
    return search


def _set_scores(tables: np.ndarray, num_rows: float, score: Score) -> np.ndarray:
    """F of every set for every table, (B, 2^K)."""
    step = max(1, CHUNK // tables.shape[1])
    parts = [tables[start : start + step] for start in range(0, len(tables), step)]
    return np.concatenate([all_set_scores(part, num_rows, score) for part in parts])


def _class_shares(sets: np.ndarray, member: np.ndarray) -> np.ndarray:
    """The probability of every class, averaged over tables, (number of classes,).

    Args:
        sets: F of every set, (B, 2^K).
        member: parents in one DAG of each class, (number of classes, K).
    """
    total = np.zeros(len(member))
    step = max(1, CHUNK // len(member))
    for start in range(0, len(sets), step):
        own = sets[start : start + step]
        values = np.zeros((len(own), len(member)))
        for k in range(member.shape[1]):
            values += own[:, member[:, k] | 1 << k] - own[:, member[:, k]]
        values = np.exp(values - values.max(1, keepdims=True))
        total += (values / values.sum(1, keepdims=True)).sum(0)
    shares: np.ndarray = total / len(sets)
    return shares
