"""Answer on causes among attributes: a graph, what is firm in it, and what it cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inference.causal.graphs import Cpdag
from inference.causal.of_fit import NOT_DETERMINED, AttributeReport
from inference.report.answers import Answer, answer_of
from inference.report.page import number, picture, write_page
from inference.report.parts import (
    Bullets,
    Heading,
    Note,
    Paragraph,
    Part,
    Section,
    Table,
    Verdict,
)
from inference.report.sections import cut
from inference.report.words import finding, say, verdict_of
from ppl_models.parts.repr import counted

MOST_DOUBTS, FEW_DOUBTS, MOST_PAIRS = 8, 3, 24  # that a page lists, and its verdict
# probability of being joined, below which a pair that the graph does not join is not listed
LEAST_SHOWN = 0.25
SAME_BIC = 0.05  # as shown, to one digit
RARE = 0.2  # probability of the most probable graph, below which no single graph is to be read


def verdict_in_words(report: AttributeReport) -> list[str]:
    """Return what stands and what does not, in a few sentences."""
    if not report.determined:
        return [NOT_DETERMINED]
    causal = report.causal
    names, edges = causal.graph.names, len(causal.edges)
    if not edges:
        return [say("causal.independent")]
    open_edges = causal.open_edges | report.disputed
    doubtful, missing = int(open_edges.sum()) // 2, len(causal.may_be_joined)
    arrows = [
        f"{names[i]} → {names[j]}"
        for i, j in causal.graph.arrows
        if not causal.open_arrows[i, j] and not open_edges[i, j]
    ]
    joined = f"{edges} pair{' of attributes is' if edges == 1 else 's of attributes are'} joined"
    doubt = f", {doubtful} of them with some doubt" if doubtful else ", none of them in doubt"
    if edges == 1:
        doubt = ", with some doubt" if doubtful else ", and that is not in doubt"
    words = [f"{joined} directly{doubt}{f'; {missing} more may be' if missing else ''}."]
    if causal.probabilities is not None:
        rivals = say("causal.rivals") if causal.probability < RARE else ""
        words.append(say("causal.probability", probability=causal.probability, rivals=rivals))
    words += _preferred(report)
    if arrows:
        more = say("causal.others") if len(arrows) < edges else ""
        words.append(say("causal.firm", arrows="; ".join(arrows)) + more)
    else:
        words.append(say("causal.no_direction"))
    if causal.ties:
        words.append(say("causal.ties", ties=len(causal.ties)))
    if causal.nearly_unfaithful:
        pairs = (edge.pair for edge in causal.nearly_unfaithful)
        shown = ", ".join(f"{names[i]} and {names[k]}" for i, k in pairs)
        words.append(say("causal.unfaithful", pairs=shown))
    return words + ([say("causal.searched")] if causal.searched != causal.graph else [])


def _preferred(report: AttributeReport) -> list[str]:
    """Return the graph that explains the answers themselves best, where it is another one."""
    own = next((f for f in report.on_rows.ranked if f.graph == report.causal.graph), None)
    best = report.on_rows.best
    if own is None or best.graph is None or best.graph == own.graph:
        return []
    shown, less = "; ".join(best.graph.text().splitlines()), own.bic - best.bic
    return [say("causal.preferred", graph=shown, less=less)]


def _explains(report: AttributeReport) -> str:
    """Rank of the best graph beside a free table: better (yes), as good (same), worse (no)."""
    best = min((own.bic for own in report.on_rows.ranked if own.graph is not None), default=1.0)
    return "yes" if best < -SAME_BIC else "same" if best < SAME_BIC else "no"


def causal_verdict(report: AttributeReport) -> Verdict:
    """Return what is joined, how sure that is, and whether the graph explains the answers."""
    causal = report.causal
    asked = finding("causal.asked.all", attributes=counted(len(causal.graph.names), "attribute"))
    first, *rest = verdict_in_words(report)
    if not report.determined:
        return verdict_of([asked, finding("causal.found.no", words=first)], about="graph")
    is_open = causal.probability < RARE or bool(
        causal.doubts or causal.ties or causal.nearly_unfaithful or report.disputed.any()
    )
    kind, words = "open" if is_open else "firm", " ".join(rest) or _not_firm(causal.doubts)
    kind_of_gain = _explains(report)
    held = say("causal.held") if causal.edges else ""
    return verdict_of(
        [
            asked,
            finding(f"causal.sure.{kind}", words=words),
            finding(f"causal.explains.{kind_of_gain}") if causal.edges else None,
            finding("causal.unseen.all", granted=say("causal.granted"), step=held),
        ],
        nothing=say("causal.next"),
        answer=first,
        about="graph",
    )


def _not_firm(doubts: Sequence[str]) -> str:
    """Return the first doubts in one sentence."""
    if not doubts:
        return say("causal.no_doubt")
    more = f"; and {len(doubts) - FEW_DOUBTS} more, below" if len(doubts) > FEW_DOUBTS else ""
    shown = "; ".join(doubt.rstrip(".") for doubt in doubts[:FEW_DOUBTS])
    return say("causal.doubts", doubts=shown, more=more)


def causal_parts(report: AttributeReport) -> Iterator[Part]:
    """Yield the graph in words, with all that stands behind them."""
    yield from map(Paragraph, verdict_in_words(report))
    yield from graph_parts(report)
    if report.determined:
        yield Paragraph(say("causal.granted"))


def graph_parts(report: AttributeReport) -> Iterator[Part]:
    """Yield the graph, its edges with probabilities, doubts, and its fit to the rows."""
    if not report.determined:
        return
    if report.rows is not None:
        yield Paragraph(" ".join(report.rows.text().split("\n")))
    causal = report.causal
    if causal.edges:
        yield picture(report.plot, say("causal.picture"))
    yield from _edges(report)
    names = causal.graph.names
    explained = (
        f"An item may do in the place of {names[own.pair[0]]} — {names[own.pair[1]]}: {own.text()}."
        for own in report.alternatives
        if own.disputed
    )
    doubts = (*causal.doubts, *explained)
    if doubts:
        yield Heading("What is not firm")
        yield Bullets(doubts[:MOST_DOUBTS])
        if len(doubts) > MOST_DOUBTS:
            yield Note(f"The first {MOST_DOUBTS} of {len(doubts)}.")
    yield Heading("The graph against the answers themselves")
    yield Paragraph(say("causal.against"))
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
    if _explains(report) == "no":
        yield Paragraph(say("causal.none_explains"))


def _named(graph: Cpdag | None, drawn: Cpdag) -> str:
    """Return a graph in one line, and whether it is the one that the page is about."""
    if graph is None:
        return "no graph (free table)"
    own = (
        "the graph above" if drawn.matrix.any() else "the answer above"
    )  # none is drawn of no edges
    return "; ".join(graph.text().splitlines()) + (f" ({own})" if graph == drawn else "")


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
    has_arrows = found is not None and any(
        max(found.arrow[i, k], found.arrow[k, i]) >= 0.005 for i, k in kept
    )
    for i, k in kept:
        edge = own.get((i, k))
        if edge is not None and matrix[k, i] and not matrix[i, k]:
            i, k = k, i
        mark = "→" if matrix[i, k] and not matrix[k, i] and not causal.open_arrows[i, k] else "—"
        if edge is None:
            shown, remark = [f"{names[i]}, {names[k]}", ""], "not joined in this graph"
        else:
            low, high = edge.direct.low, edge.direct.high
            strength = f"{edge.direct.information:.3f} ({low:.3f} to {high:.3f})"
            shown, remark = [f"{names[i]} {mark} {names[k]}", strength], "firm"
            if causal.open_edges[i, k]:
                remark = "may not be there"
            elif report.disputed[i, k]:
                remark = "may not be there: an item explains it as well"
            elif causal.open_arrows[i, k]:
                remark = "direction not firm: see below" if causal.doubts else "direction not firm"
            elif mark != "→":
                remark = "either direction fits alike"
        if found is not None:
            arrows = (found.arrow[i, k], found.arrow[k, i]) if has_arrows else ()
            shown += map(number, (found.adjacent[i, k], *arrows))
        lines.append([*shown, remark])
    arrows = ("P(first → second)", "P(second → first)") if has_arrows else ()
    chances = () if found is None else ("P(joined)", *arrows)
    dependence = f"dependence given the other causes, nats ({100 * causal.confidence:g} %)"
    head = ("attributes", dependence, *chances, "")
    yield from cut(Table(head, lines), MOST_PAIRS, "most probable")
    yield Note(say("causal.never_nought"))


def causal_record(report: AttributeReport) -> dict[str, Any]:
    """Return all of it for ``graph.json``: edges with strength, probabilities, ties, doubts."""
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
                "edge_firm": not bool(causal.open_edges[i, j] or report.disputed[i, j]),
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


@answer_of.register
def _(report: AttributeReport) -> Answer:
    size = len(report.causal.graph.names)
    more = [Section("graph", "The graph", graph_parts(report))]
    return Answer(f"What may cause what among {size} attributes", causal_verdict(report), more=more)


def write_causal_report(report: AttributeReport, path: str | Path) -> Path:
    """Write the page: one file, the picture inside, every text escaped.

    Args:
        report: of :func:`inference.causal.discover_attributes`.
        path: the file, replaced if it exists.
    """
    return write_page(answer_of(report), path)
