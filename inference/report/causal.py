"""A graph of causes among attributes on a page: what is firm, what is left open in words, and what
such a graph cannot say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inference.causal.graphs import Cpdag
from inference.causal.of_fit import NOT_DETERMINED, AttributeReport
from inference.report.page import number, picture, write_page
from inference.report.parts import (
    Bullets,
    Finding,
    Heading,
    Note,
    Paragraph,
    Part,
    Section,
    Table,
    Verdict,
)
from inference.report.sections import cut_table
from inference.report.verdicts import verdict_of
from ppl_models.parts.repr import counted

MOST_DOUBTS, FEW_DOUBTS, MOST_PAIRS = 8, 3, 24  # that a page lists, and its verdict
# probability of being joined, below which a pair that the graph does not join is not listed
LEAST_SHOWN = 0.25
RARE = 0.2  # probability of the most probable graph, below which no single graph is to be read
NONE_EXPLAINS = (
    "No graph explains the answers as well as a free table does: some dependence is left out of all"
    " of them."
)
TAKEN_FOR_GRANTED = (
    "An arrow is a cause only if no common cause of two attributes was left out, if independences"
    " in the table are no accident, and if the items measure the attributes that they are said to"
    " measure. A line means that both directions fit alike."
)
PICTURE = (
    "the graph: wide edges are strong, dashed ones have no firm direction, dotted ones may not be"
    " there"
)


def verdict_in_words(report: AttributeReport) -> list[str]:
    """What stands and what does not, in a few sentences."""
    if not report.determined:
        return [NOT_DETERMINED]
    causal = report.causal
    names, edges = causal.graph.names, len(causal.edges)
    if not edges:
        return [
            "No two attributes are joined: given what the answers tell, they look independent of"
            " each other."
        ]
    doubtful = int(causal.open_edges.sum()) // 2
    arrows = [
        (i, j)
        for i, j in causal.graph.arrows
        if not causal.open_arrows[i, j] and not causal.open_edges[i, j]
    ]
    joined = (
        "1 pair of attributes is joined"
        if edges == 1
        else f"{edges} pairs of attributes are joined"
    )
    missing = len(causal.may_be_joined)
    more = f"; {missing} more may be" if missing else ""
    words = [
        f"{joined} directly"
        + (
            f", {doubtful} of them with some doubt{more}."
            if doubtful
            else f", none of them in doubt{more}."
        )
    ]
    if arrows:
        shown = "; ".join(f"{names[i]} → {names[j]}" for i, j in arrows)
        words.append(
            f"Firm directions: {shown}."
            + (
                " The other edges have none that such data could decide."
                if len(arrows) < edges
                else ""
            )
        )
    else:
        words.append(
            "No direction is firm: the graph says which attributes go together directly, and not"
            " which comes first."
        )
    if causal.ties:
        words.append(
            f"{len(causal.ties)} other graph(s) fit exactly as well, so where they differ nothing"
            " is claimed."
        )
    if causal.nearly_unfaithful:
        pairs = ", ".join(
            f"{names[i]} and {names[k]}"
            for i, k in (edge.pair for edge in causal.nearly_unfaithful)
        )
        words.append(
            f"Take care with {pairs}: their dependence all but vanishes in part of the data"
            " (near-broken faithfulness)."
        )
    if causal.searched != causal.graph:
        words.append(
            "The table by itself has its largest score with another graph, which is less probable"
            " over all tables that might be the true one."
        )
    if causal.probabilities is not None:
        rivals = (
            ", so many graphs explain the answers about as well: read the probabilities of single"
            " edges, and not one graph"
            if causal.probability < RARE
            else ""
        )
        words.insert(
            1,
            f"This graph as a whole has probability {causal.probability:.2f}, and none is more"
            f" probable{rivals}.",
        )
    return words


def causal_verdict(report: AttributeReport) -> Verdict:
    """What was asked, what is joined, how sure that is, whether the graph explains the answers, and
    what no such graph can say.
    """
    causal = report.causal
    asked = Finding(
        "",
        "What was asked?",
        f"Which of {counted(len(causal.graph.names), 'attribute')} may cause which, as far as their"
        " dependences in the rows tell?",
    )
    first, *rest = verdict_in_words(report)
    if not report.determined:
        step = (
            "Ask for no causes before the answers determine the attributes: give every attribute"
            " items that ask for it alone, and fit again."
        )
        return verdict_of(
            [asked, Finding("bad", "Can a graph be found?", first, step)], about="graph"
        )
    is_open = causal.probability < RARE or bool(
        causal.doubts or causal.ties or causal.nearly_unfaithful
    )
    step = (
        "Read the edges one by one, with their probabilities and doubts below, and no single graph."
        if is_open
        else ""
    )
    sure = Finding(
        "care" if is_open else "good",
        "How sure is that?",
        " ".join(rest) or _not_firm(causal.doubts),
        step,
    )
    explained = None
    if causal.edges:
        fails = report.on_rows.best.graph is None
        words = (
            NONE_EXPLAINS
            if fails
            else (
                "Yes: held against the answers themselves, a graph does better than a table of"
                " profiles without any, for its number of probabilities."
            )
        )
        explained = Finding("care" if fails else "good", "Does a graph explain the answers?", words)
    held = (
        "Take an arrow as a conjecture: what came first in time, or an intervention, can confirm"
        " it; this table cannot."
        if causal.edges
        else ""
    )
    return verdict_of(
        [
            asked,
            sure,
            explained,
            Finding("", "What could not have been seen?", TAKEN_FOR_GRANTED, held),
        ],
        nothing="Nothing follows from this page alone.",
        answer=first,
        about="graph",
    )


def _not_firm(doubts: Sequence[str]) -> str:
    """The first doubts, in one sentence."""
    if not doubts:
        return "Nothing that was looked at leaves it open."
    more = f"; and {len(doubts) - FEW_DOUBTS} more, below" if len(doubts) > FEW_DOUBTS else ""
    return (
        "Not all of it is firm:"
        f" {'; '.join(doubt.rstrip('.') for doubt in doubts[:FEW_DOUBTS])}{more}."
    )


def causal_parts(report: AttributeReport) -> Iterator[Part]:
    """The graph in words, with all that stands behind them."""
    yield from map(Paragraph, verdict_in_words(report))
    yield from graph_parts(report)
    if report.determined:
        yield Paragraph(TAKEN_FOR_GRANTED)


def graph_parts(report: AttributeReport) -> Iterator[Part]:
    """The graph, its edges with probabilities, what is in doubt, and how well it explains the
    rows.
    """
    if not report.determined:
        return
    if report.rows is not None:
        yield Paragraph(" ".join(report.rows.text().split("\n")))
    causal = report.causal
    if causal.edges:
        yield picture(report.plot, PICTURE)
    yield from _edges(report)
    doubts = causal.doubts
    if doubts:
        yield Heading("What is not firm")
        yield Bullets(doubts[:MOST_DOUBTS])
        if len(doubts) > MOST_DOUBTS:
            yield Note(f"The first {MOST_DOUBTS} of {len(doubts)}.")
    yield Heading("The graph against the answers themselves")
    yield Paragraph(
        "The search sees the table of profiles only. Here each graph is refitted to the answers,"
        " the items held; a BIC below zero means that the graph explains them better than a table"
        " without any graph, for its number of probabilities."
    )
    lines = [
        [
            _named(found.graph, causal.graph),
            f"{round(found.bic, 1) + 0.0:+.1f}",
            str(found.num_free),
            f"{round(found.gain, 1) + 0.0:+.1f}",
        ]
        for found in report.on_rows.ranked
    ]
    yield Table(
        ("graph", "BIC against no graph", "probabilities", "log-likelihood against no graph"), lines
    )
    if report.on_rows.best.graph is None:
        yield Paragraph(NONE_EXPLAINS)


def _named(graph: Cpdag | None, drawn: Cpdag) -> str:
    """A graph in one line, and whether it is the one that the page is about."""
    if graph is None:
        return "no graph (free table)"
    return "; ".join(graph.text().splitlines()) + (" (the graph above)" if graph == drawn else "")


def _edges(report: AttributeReport) -> Iterator[Part]:
    causal = report.causal
    names, found, matrix = causal.graph.names, causal.probabilities, causal.graph.matrix
    own = {edge.pair: edge for edge in causal.edges}
    pairs = [(i, k) for i in range(len(names)) for k in range(i + 1, len(names))]
    chance = np.zeros(matrix.shape) if found is None else found.adjacent
    kept = sorted(
        (pair for pair in pairs if pair in own or chance[pair] >= LEAST_SHOWN),
        key=lambda pair: (-chance[pair], pair),
    )
    if not kept:
        return
    lines = []
    for i, k in kept:
        if (i, k) in own and matrix[k, i] and not matrix[i, k]:
            i, k = k, i
        mark = "→" if matrix[i, k] and not matrix[k, i] and not causal.open_arrows[i, k] else "—"
        edge = own.get((min(i, k), max(i, k)))
        if edge is None:
            shown, remark = [f"{names[i]}, {names[k]}", ""], "not joined in this graph"
        else:
            strength = edge.direct
            shown = [
                f"{names[i]} {mark} {names[k]}",
                f"{strength.information:.3f} ({strength.low:.3f} to {strength.high:.3f})",
            ]
            remark = (
                "may not be there"
                if causal.open_edges[i, k]
                else "direction not firm"
                if causal.open_arrows[i, k]
                else ""
            )
            remark = remark or ("firm" if mark == "→" else "either direction fits alike")
        three = (
            []
            if found is None
            else [
                number(value)
                for value in (found.adjacent[i, k], found.arrow[i, k], found.arrow[k, i])
            ]
        )
        lines.append([*shown, *three, remark])
    chances = () if found is None else ("P(joined)", "P(first → second)", "P(second → first)")
    yield from cut_table(
        ("attributes", "dependence given the other causes, nats (95 %)", *chances, ""),
        lines,
        MOST_PAIRS,
        "most probable",
    )


def causal_record(report: AttributeReport) -> dict[str, Any]:
    """All of it for ``graph.json``: arrows and lines with their strength, probabilities, ties and
    doubts.
    """
    causal = report.causal
    names = causal.graph.names

    def edges_of(matrix: np.ndarray) -> list[dict[str, Any]]:
        pairs = [(i, j) for i, j in np.argwhere(matrix).tolist() if not (matrix[j, i] and i > j)]
        return [
            {"from": names[i], "to": names[j], "directed": not bool(matrix[j, i])} for i, j in pairs
        ]

    strength = {edge.pair: edge.direct for edge in causal.edges}
    edges = []
    for edge in edges_of(causal.graph.matrix):
        i, j = names.index(edge["from"]), names.index(edge["to"])
        found = strength[min(i, j), max(i, j)]
        edges.append(
            edge
            | {
                "direction_firm": bool(edge["directed"] and not causal.open_arrows[i, j]),
                "edge_firm": not bool(causal.open_edges[i, j]),
                "given": [names[k] for k in found.given],
                "nats": found.information,
                "nats_low": found.low,
                "nats_high": found.high,
            }
        )
    own = causal.probabilities
    return {
        "attributes": list(names),
        "determined": report.determined,
        "verdict": verdict_in_words(report),
        "edges": edges,
        "probability": None if own is None else causal.probability,
        "searched": edges_of(causal.searched.matrix),
        "ties": [edges_of(other.matrix) for other in causal.ties],
        "optimal": causal.optimal,
        "score": causal.score,
        "num_rows": causal.num_rows,
        "observed_rows": report.on_rows.num_rows,
        "probabilities": (
            None
            if own is None
            else {
                "adjacent": own.adjacent.tolist(),
                "arrow": own.arrow.tolist(),
                "line": own.line.tolist(),
                "graphs": [
                    {"edges": edges_of(graph.matrix), "probability": share}
                    for graph, share in own.classes
                ],
                "num_tables": own.num_tables,
            }
        ),
        "on_rows": [
            {
                "edges": None if found.graph is None else edges_of(found.graph.matrix),
                "bic": found.bic,
                "log_likelihood": found.gain,
            }
            for found in report.on_rows.ranked
        ],
        "doubts": list(causal.doubts),
    }


def write_causal_report(report: AttributeReport, path: str | Path) -> Path:
    """Write the page: one file, the picture inside, nothing fetched from elsewhere, every text
    escaped.

    Args:
        report: of :func:`inference.causal.discover_attributes`.
        path: the file, replaced if it exists.
    """
    names = report.causal.graph.names
    sections = [
        Section("verdict", "Verdict", [causal_verdict(report)]),
        Section("graph", "The graph", graph_parts(report)),
    ]
    return write_page(Path(path), f"What may cause what among {len(names)} attributes", sections)
