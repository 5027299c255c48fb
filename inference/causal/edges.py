r"""How probable each edge and each direction is, over graphs and over tables that might be the true
one.

Given one table worth n rows, the probability of a class of DAGs is proportional to the exponential
of its score (all classes alike beforehand): its marginal likelihood under ``BDeu()``, the
approximation of Schwarz (1978) to it under ``BIC()``. Up to five attributes all classes are summed
over; up to twelve those that draws of DAGs find, with an estimate of what they missed; with more,
each table counts for the best class that a search finds, and only the spread of the tables shows.
The probabilities of several tables are averaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.base.drawing import draw
from inference.causal.classes import MOST_ENUMERATED, MOST_SAMPLED, all_classes, likely_classes
from inference.causal.exact import ExactSearch
from inference.causal.ges import GES
from inference.causal.graphs import Cpdag, as_names
from inference.causal.pdags import extension_of
from inference.causal.scores import Score, all_set_scores, score_rule
from inference.causal.search import Search
from inference.causal.tables import as_tables, check_rows
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_flag, check_size

MOST_EXACT = 8  # attributes that are searched exactly unless told otherwise
MOST_CLASSES = 10  # that a record names
CHUNK = 2**22  # numbers held at once
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
        classes: the most probable CPDAGs with their probabilities, at most ten, the most probable
            first; of several as probable the one whose edges and arrows are more probable one by
            one.
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
        """The probability of a CPDAG; NaN where it is not among ``classes``."""
        return next(
            (share for other, share in self.classes if np.array_equal(other.matrix, graph.matrix)),
            float("nan"),
        )

    @property
    def median(self) -> Cpdag:
        """Edges with a probability above one half; an arrow where it has more than half of the
        edge's probability.

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
        shown = sorted(
            (pair for pair in pairs if self.adjacent[pair] >= 0.01),
            key=lambda pair: -self.adjacent[pair],
        )
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
        """The most probable graph, its edges as dark as they are probable; see
        :func:`inference.plots.causal.plot_causal_graph`.
        """
        return draw("plot_causal_graph", self.modal, weights=self.adjacent, ax=ax)


def edge_probabilities(
    tables: Any,
    num_rows: float,
    *,
    score: Score | None = None,
    search: Search | None = None,
    average: bool | None = None,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> EdgeProbabilities:
    """Probabilities of edges and directions over draws of a table.

    Args:
        tables: draws, (B, 2^K) or (B, 2, ..., 2), as made by
            ``imputed_tables``, ``dirichlet_tables`` and ``resampled_tables`` of
            :mod:`inference.causal.draws`, or posterior or bootstrap draws of a fit;
            ``table[None]`` for the fitted table alone.
        num_rows: what each is worth: N n / (2 N - n) for completed tables, n being the effective
            rows, and n / 2 for draws around an estimate (:mod:`inference.causal.draws` says why).
        score: ``BDeu()`` if None.
        search: how to find the best class of each table where ``average`` is False; exact up to
            eight attributes, else ``GES()``, if None.
        average: sum over graphs given each table (at most twelve attributes, from six on over those
            that draws find); if None, wherever that can be done.
        seed: of these draws.
        names: of the attributes.

    Raises:
        ValueError: for what are no tables, a number of rows below 1, or averages over graphs of
            more than twelve attributes.
    """
    owner = "edge_probabilities"
    checked, rows = as_tables(owner, tables), check_rows(owner, num_rows)
    num_attributes = checked.shape[1].bit_length() - 1
    labels = as_names(owner, names, num_attributes)
    if average is not None:
        check_flag(owner, "average", average)
    check_size(owner, "seed", seed, least=0)
    if average and num_attributes > MOST_SAMPLED:
        raise ValueError(
            f"{owner}: average=True needs at most {MOST_SAMPLED} attributes, got {num_attributes}"
        )
    averaged = num_attributes <= MOST_SAMPLED if average is None else average
    rule, way, missed = score_rule(owner, score), search_way(owner, search, num_attributes), 0.0
    if averaged:
        sets = _set_scores(checked, rows, rule)
        if num_attributes <= MOST_ENUMERATED:
            member, matrices = (
                all_classes(num_attributes).member,
                all_classes(num_attributes).matrices,
            )
        else:
            likely, missed = likely_classes(sets, np.random.default_rng(seed))
            for graph in way.best_of_each(
                checked, rows, rule
            ):  # the best is among them, whatever the draws say
                likely.setdefault(graph, extension_of(graph) or ())
            member, matrices = (
                np.array(list(likely.values())),
                np.stack([graph.matrix for graph in likely]),
            )
        shares = _class_shares(sets, member)
    else:
        counts = Counter(way.best_of_each(checked, rows, rule))
        shares = np.array(list(counts.values())) / len(checked)
        matrices = np.stack([graph.matrix for graph in counts])
    joint = (
        np.tensordot(shares, matrices & ~matrices.swapaxes(1, 2), 1),
        np.tensordot(shares, matrices & matrices.swapaxes(1, 2), 1),
    )
    adjacent = joint[0] + joint[0].T + joint[1]
    agreement = np.where(
        matrices & ~matrices.swapaxes(1, 2),
        2 * joint[0],
        np.where(matrices & matrices.swapaxes(1, 2), joint[1], 0.0),
    ).sum((1, 2))
    agreement += np.where(matrices | matrices.swapaxes(1, 2), 0.0, 1 - adjacent).sum(
        (1, 2)
    )  # a pair counts twice everywhere
    best = np.lexsort((-agreement, -shares.round(DIGITS)))[:MOST_CLASSES]
    return EdgeProbabilities(
        labels,
        adjacent,
        joint[0],
        joint[1],
        tuple(
            (Cpdag(matrices[place], labels), float(shares[place]))
            for place in best
            if shares[place] > 0
        ),
        int((shares >= 1e-3).sum()),
        len(checked),
        averaged,
        rows,
        missed,
    )


def search_way(owner: str, search: Any, num_attributes: int) -> Search:
    """The search given; for None an exact one up to eight attributes, a greedy one beyond; a
    ValueError for what is none.
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
    return np.concatenate(
        [
            all_set_scores(tables[start : start + step], num_rows, score)
            for start in range(0, len(tables), step)
        ]
    )


def _class_shares(sets: np.ndarray, member: np.ndarray) -> np.ndarray:
    """The probability of every class, averaged over tables, (number of classes,).

    Args:
        sets: F of every set, (B, 2^K); member: parents in one DAG of each class, (number of
            classes, K).
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
