r"""From a fitted table to a graph of causes, with what is firm in it and what is not.

One graph is drawn, listed and spoken of: the class with the largest probability
(:mod:`inference.causal.edges`), whose error is least where any wrong graph costs the same. A search
maximises :math:`P(G \mid \hat p, n)` at one table; without draws the probabilities are of the same
table, so that an exact search ends in their maximum. Over draws they average :math:`P(G \mid p_b,
n_b)`, whose maximum may be another graph: then that one is drawn, and the search's is named once,
as a rival. Without probabilities, and where its own is the largest up to rounding, the search's
graph counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.base.drawing import draw
from inference.causal.edges import MOST_SAMPLED, EdgeProbabilities, edge_probabilities, search_way
from inference.causal.graphs import Cpdag, as_names, pdag_of
from inference.causal.independence import (
    Dependence,
    EdgeStrength,
    IndependenceClaim,
    TripleStrength,
    strengths,
)
from inference.causal.knowledge import BackgroundKnowledge, Constraints, constraints_of
from inference.causal.pdags import (
    Pdag,
    extension_of,
    matrix_of_columns,
    meek_closure,
    parents_reversed,
)
from inference.causal.scores import Found, Score, Search, SetScores, score_rule
from inference.causal.tables import Marginals, as_table, check_rows
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_number

MOST_DOUBTS = 12  # that a text spells out
# an arrow with a smaller probability is left open, an edge with a smaller one is in doubt
FIRM = 0.9
SAME = 1e-6  # of a probability: no difference


@shows_briefly
@dataclass(frozen=True)
class CausalReport:
    """A graph of causes among attributes, and how far to believe it.

    Args:
        graph: the most probable CPDAG; the one with the largest score that the search met where
            that is as probable, or there are no probabilities.
        score: its score.
        num_rows: that the table was taken to be worth.
        ties: other graphs that score the same up to rounding, where ``graph`` has the largest score
            that the search met.
        complete: whether ``ties`` holds all of them.
        optimal: whether no graph scores more.
        edges, triples, independences: how far each claim of the graph stands from its opposite.
        probabilities: of edges and directions; None where neither draws were given nor graphs could
            be summed over.
        open_arrows: bool (K, K), arrows of the graph whose direction is not firm: they are drawn as
            lines.
        open_edges: bool (K, K), symmetric, edges that may not be there: they are drawn dotted.
        level: of the tests.
        searched: the CPDAG with the largest score that the search met, on the table itself.
        confidence: of the intervals.
    """

    graph: Cpdag
    score: float
    num_rows: float
    ties: tuple[Cpdag, ...]
    complete: bool
    optimal: bool
    edges: tuple[EdgeStrength, ...]
    triples: tuple[TripleStrength, ...]
    independences: tuple[IndependenceClaim, ...]
    probabilities: EdgeProbabilities | None
    open_arrows: np.ndarray
    open_edges: np.ndarray
    level: float
    searched: Cpdag
    confidence: float = 0.95

    @property
    def probability(self) -> float:
        """Probability of the graph; NaN where it has none, or is not among the ten largest."""
        return float("nan") if self.probabilities is None else self.probabilities.of(self.graph)

    @property
    def firm(self) -> Cpdag:
        """Graph of the firm claims: edges in no doubt, arrows with a firm direction.

        It need not be the CPDAG of a DAG.
        """
        matrix = (self.graph.matrix | self.open_arrows.T) & ~self.open_edges
        return Cpdag(matrix, self.graph.names)

    @property
    def nearly_unfaithful(self) -> tuple[EdgeStrength, ...]:
        """Edges of attributes that look independent given some others, but not all causes."""
        return tuple(
            edge for edge in self.edges if edge.near_zero and edge.direct.p_value <= self.level
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """Doubtful claims in one or two sentences each; empty where all is firm."""
        names, out = self.graph.names, []
        if self.searched != self.graph:
            out.append(
                f"The table by itself, worth {self.num_rows:,.0f} rows, has its largest score with"
                f" another graph: {'; '.join(self.searched.text().splitlines())}. Over all tables"
                " that might be the true one it is less probable."
            )
        for other in self.ties:
            out.append(
                f"Another graph fits exactly as well: {'; '.join(other.text().splitlines())}. Data"
                " of this kind cannot choose between the two; where they differ, nothing is"
                " claimed."
            )
        for edge in self.edges:
            i, k = edge.pair
            if edge.direct.p_value > self.level:
                out.append(
                    f"The edge of {names[i]} and {names[k]} may not be there:"
                    f" {_shown(edge.direct, names)}, no more than chance gives."
                )
        for edge in self.nearly_unfaithful:
            i, k = edge.pair
            out.append(
                f"{names[i]} and {names[k]} are joined, and yet {_shown(edge.weakest, names)},"
                " which looks like none. Two influences all but cancel (the table is nearly"
                " unfaithful), or rows are too few; graphs that lack this edge are hard to rule"
                " out, and so are the directions near it."
            )
        for triple in self.triples:
            if triple.near_zero and (
                triple.is_collider or self._points_through(triple) or self._speaks_against(triple)
            ):
                out.append(self._triple_doubt(triple))
        why = "It is too small for the score to add the edge."
        why = why if self.searched == self.graph else "Graphs without it are more probable."
        out += [
            f"The graph has no edge between {names[found.first]} and {names[found.second]}, but the"
            f" table of profiles shows a dependence: {_shown(found, names)} (p ="
            f" {found.p_value:.2g}). {why}"
            for found in (claim.dependence for claim in self.independences if claim.strained)
        ]
        return (*out, *self._improbable())

    @property
    def may_be_joined(self) -> tuple[tuple[int, int], ...]:
        """Pairs (smaller, larger) without an edge whose probability of one is above a tenth."""
        if self.probabilities is None:
            return ()
        missing = np.triu(
            ~(self.graph.matrix | self.graph.matrix.T) & (self.probabilities.adjacent > 1 - FIRM), 1
        )
        return tuple((int(i), int(j)) for i, j in np.argwhere(missing))

    def _improbable(self) -> list[str]:
        if self.probabilities is None:
            return []
        names, adjacent = self.graph.names, self.probabilities.adjacent
        out = [
            f"That {names[i]} and {names[j]} are joined at all has probability"
            f" {adjacent[i, j]:.2f}."
            for i, j in (edge.pair for edge in self.edges)
            if adjacent[i, j] < FIRM
        ]
        return out + [
            f"{names[i]} and {names[j]} are not joined here, but may be: probability"
            f" {adjacent[i, j]:.2f}."
            for i, j in self.may_be_joined
        ]

    def _points_through(self, triple: TripleStrength) -> bool:
        """Arrow into the middle of a triple that forces the other edge to point away."""
        i, j, k = triple.triple
        arrows = self.graph.matrix & ~self.graph.matrix.T
        return bool((arrows[i, j] and arrows[j, k]) or (arrows[k, j] and arrows[j, i]))

    def _speaks_against(self, triple: TripleStrength) -> bool:
        """Evidence for a common effect in the middle, which the score did not pay for."""
        return triple.margin < 0 and triple.within.p_value <= self.level

    def _triple_doubt(self, triple: TripleStrength) -> str:
        i, j, k = (self.graph.names[node] for node in triple.triple)
        if triple.is_collider:
            claim, held, found = f"{i} and {k} both point at {j}", "once", triple.within
        else:
            claim, held, found = f"{j} is no common effect of {i} and {k}", "while", triple.without
        state = "held fixed" if triple.is_collider else "free"
        lead = f"That {claim} rests on their dependence {held} {j} is {state}"
        sign = "more" if triple.margin >= 0 else "less"
        other = f"{abs(triple.margin):.2g} {sign} than otherwise"
        return (
            f"{lead}: {found.information:.2g} nats, {other} (the difference may be {triple.low:.2g}"
            f" to {triple.high:.2g}). That is too near zero for an arrow, so directions that hang"
            " on it are left open."
        )

    def text(self) -> str:
        """Report in words: graph, strengths of edges, doubts, and the limits of such graphs."""
        names, matrix = self.graph.names, self.graph.matrix
        kind = "the best of all graphs" if self.optimal else "the best graph that the search met"
        kind = kind if self.searched == self.graph else "the most probable graph"
        whole = f" Its probability as a whole is {self.probability:.2f}."
        whole = "" if np.isnan(self.probability) else whole
        lines = [
            f"What may cause what among {len(names)} attributes: {kind}, from a table worth"
            f" {self.num_rows:,.0f} rows.{whole}"
        ]
        if not self.edges:
            lines.append(
                "No two attributes are joined: the table looks like that of independent attributes."
            )
        for edge in self.edges:
            i, k = edge.pair
            if matrix[k, i] and not matrix[i, k]:
                i, k = k, i
            mark = "→" if not matrix[k, i] and not self.open_arrows[i, k] else "—"
            remark = ", the direction is left open" if self.open_arrows[i, k] else ""
            remark += ", the edge is in doubt" if self.open_edges[i, k] else ""
            lines.append(
                f"  {names[i]} {mark} {names[k]}:"
                f" {_shown(edge.direct, names)}{self._chance(i, k)}{remark}."
            )
        if doubts := self.doubts:
            lines += ["", "What is not firm:", *(f"- {doubt}" for doubt in doubts[:MOST_DOUBTS])]
            if len(doubts) > MOST_DOUBTS:
                lines.append(
                    f"- and {len(doubts) - MOST_DOUBTS} more of the same kind (`doubts` lists them"
                    " all)."
                )
        elif self.edges:
            what = "Every edge and every direction" if self.graph.arrows else "Every edge"
            lines += ["", f"{what} above stands well clear of zero."]
        lines += [
            "",
            (
                "An arrow is a cause only if no hidden common cause of two attributes was left out,"
                " if independences in the table are no accident, and if the items measure the"
                " attributes that they are said to. A line means that both directions fit alike: no"
                " amount of such data decides."
            ),
        ]
        return "\n".join(lines)

    def _chance(self, i: int, k: int) -> str:
        if self.probabilities is None:
            return ""
        found = self.probabilities
        how = f"this way {found.arrow[i, k]:.2f}"
        if self.graph.matrix[k, i]:
            how = f"without a direction {found.line[i, k]:.2f}"
        return f"; joined with probability {found.adjacent[i, k]:.2f}, {how}"

    def plot(self, ax: Any = None) -> Any:
        """Plot the graph: wide edges are strong, dashed directions open, dotted edges doubtful.

        See :func:`inference.plots.causal.plot_causal_graph`.
        """
        weights = np.zeros(self.graph.matrix.shape)
        for edge in self.edges:
            weights[edge.pair] = weights[edge.pair[::-1]] = edge.direct.information
        return draw(
            "plot_causal_graph",
            self.graph,
            weights=weights,
            open_arrows=self.open_arrows,
            open_edges=self.open_edges,
            ax=ax,
        )


def _shown(found: Dependence, names: Sequence[str]) -> str:
    given = f" given {', '.join(names[k] for k in found.given)}" if found.given else ""
    return f"dependence{given} {found.information:.2g} nats ({found.low:.2g} to {found.high:.2g})"


def discover(
    table: Any,
    num_rows: float,
    *,
    score: Score | None = None,
    search: Search | None = None,
    draws: Any = None,
    draw_rows: float | None = None,
    level: float = 0.05,
    confidence: float = 0.95,
    knowledge: BackgroundKnowledge | None = None,
    names: Sequence[str] | None = None,
) -> CausalReport:
    """The graph of causes that a table of profile probabilities speaks for.

    The table itself is scored, as expected counts at ``num_rows``: no pseudo-sample is drawn. The
    graph is the most probable one where probabilities of graphs are known, else the one that the
    search ends in. An arrow is left open where it hangs on a dependence that cannot be told from
    zero, where graphs of the same score disagree, or where its probability is below 0.9.

    Args:
        table: fitted profile probabilities, (2^K,) or (2, ..., 2), attribute 1 the most significant
            bit.
        num_rows: the rows that the table is worth: those that were fitted, or fewer
            (:func:`inference.causal.rows.effective_rows`). More than were fitted claims information
            that is not there, and chance dependences become edges.
        score: ``BDeu()`` if None.
        search: exact up to eight attributes, ``GES()`` beyond, if None.
        draws: tables that might as well be the true one, (B, 2^K), for the probabilities of edges.
            Without, up to twelve attributes, graphs are summed over given the table itself.
        draw_rows: what each draw is worth (:func:`inference.causal.edge_probabilities`);
            ``num_rows`` if None.
        level: of the tests that call a dependence near zero.
        confidence: of intervals.
        knowledge: required and forbidden edges, and tiers: the search and the probabilities keep to
            them, and what they say is not left open.
        names: of the attributes.

    Raises:
        ValueError: for what is no table, a number of rows below 1, a level or confidence outside
            (0, 1), draws of another number of attributes, background knowledge that contradicts
            itself.
    """
    owner = "discover"
    checked, rows = as_table(owner, table), check_rows(owner, num_rows)
    num_attributes = len(checked).bit_length() - 1
    labels = as_names(owner, names, num_attributes)
    known = constraints_of(owner, knowledge, labels)
    for name, value in (("level", level), ("confidence", confidence)):
        check_number(owner, name, value, "lie in (0, 1)", above=0, below=1)
    rule, way = score_rule(owner, score), search_way(owner, search, num_attributes)
    probabilities = None
    if draws is not None:
        probabilities = edge_probabilities(
            draws,
            rows if draw_rows is None else draw_rows,
            score=rule,
            search=search,
            knowledge=knowledge,
            names=labels,
        )
    elif num_attributes <= MOST_SAMPLED:
        probabilities = edge_probabilities(
            checked[None], rows, score=rule, knowledge=knowledge, names=labels
        )
    found = way.best(checked, rows, rule, known)
    searched = Cpdag(found.graph.matrix, labels)
    if (
        probabilities is not None
        and not probabilities.of(searched) >= (1 - SAME) * probabilities.classes[0][1]
    ):
        drawn = pdag_of(probabilities.modal.matrix)
        total = SetScores(checked, rows, rule).total(extension_of(drawn) or ())
        found = Found(drawn, total, (), False, False)
    edges, triples, missing = strengths(found.graph, Marginals(checked), rows, level, confidence)
    open_arrows, open_edges = _open(found, edges, triples, probabilities, level, known)
    return CausalReport(
        Cpdag(found.graph.matrix, labels),
        found.score,
        rows,
        tuple(Cpdag(other.matrix, labels) for other in found.ties),
        found.complete,
        found.optimal,
        edges,
        triples,
        missing,
        probabilities,
        open_arrows,
        open_edges,
        level,
        searched,
        confidence,
    )


def _open(
    found: Found,
    edges: Sequence[EdgeStrength],
    triples: Sequence[TripleStrength],
    probabilities: EdgeProbabilities | None,
    level: float,
    known: Constraints,
) -> tuple[np.ndarray, np.ndarray]:
    """Arrows whose direction is not firm, and edges that may not be there."""
    matrix = found.graph.matrix
    arrows, joined = matrix & ~matrix.T, matrix | matrix.T
    firm = _firm_arrows(found.graph, triples, known)
    in_doubt = np.zeros_like(joined)
    for edge in edges:
        if edge.direct.p_value > level:
            in_doubt[edge.pair] = in_doubt[edge.pair[::-1]] = True
    for other in found.ties:
        theirs = other.matrix
        in_doubt |= joined & ~(theirs | theirs.T)
        firm &= theirs & ~theirs.T
    if probabilities is not None:
        in_doubt |= joined & (probabilities.adjacent < FIRM)
        firm &= probabilities.arrow >= FIRM
    required = matrix_of_columns(known.required)
    return arrows & ~firm & ~required, in_doubt & ~(required | required.T)


def _firm_arrows(graph: Pdag, triples: Sequence[TripleStrength], known: Constraints) -> np.ndarray:
    """Arrows by Meek's rules from what is known or clear about triples, bool (K, K)."""
    pointed = known.pointed(Pdag((0,) * len(graph.parents), tuple(graph.adjacent)))
    parents = [0] * len(graph.parents) if pointed is None else list(pointed.parents)
    doubtful: dict[int, list[tuple[int, int]]] = {}
    for triple in triples:
        i, j, k = triple.triple
        if triple.near_zero:
            doubtful.setdefault(j, []).append((i, k))
        elif triple.is_collider:
            parents[j] |= 1 << i | 1 << k
    children = parents_reversed(parents)
    lines = tuple(
        around & ~p & ~c for around, p, c in zip(graph.adjacent, parents, children, strict=True)
    )
    closed = meek_closure(Pdag(tuple(parents), lines), doubtful).matrix
    return closed & ~closed.T
