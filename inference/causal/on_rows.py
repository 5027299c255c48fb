r"""Graphs compared on the rows themselves: the table refitted under each, the items held.

A search sees the table only. Here the likelihood of the answers decides: under a DAG the table is
:math:`p_\alpha = \prod_k P(\alpha_k \mid \alpha_{pa(k)})`, and EM alternates

.. math::

    n_\alpha = \sum_i \frac{p_\alpha L_{i\alpha}}{\sum_{\alpha'} p_{\alpha'} L_{i\alpha'}}, \qquad
          P(\alpha_k \mid \alpha_{pa(k)}) = \frac{n_{\alpha_k, \alpha_{pa(k)}}}{n_{\alpha_{pa(k)}}}
          ,

(the M-step of structural EM, Friedman 1998), with the likelihood of the items known through
:math:`L_{i\alpha} \propto \varphi_{i\alpha} / \hat p_\alpha` from the fit. DAGs with the same
independences reach the same likelihood. BIC counts :math:`\sum_k 2^{|pa(k)|}` probabilities of a
DAG and :math:`2^K - 1` of the free table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.causal.draws import likelihoods_of
from inference.causal.graphs import Cpdag, as_names, check_graph_matrix, pdag_of
from inference.causal.pdags import class_of, extension_of, order_of
from inference.causal.tables import Marginals, profiles
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_size

TOLERANCE = 1e-8  # of the log-likelihood, relative


@dataclass(frozen=True)
class GraphOnRows:
    """How well one graph explains the rows.

    Args:
        graph: its CPDAG; None for the free table.
        gain: log-likelihood less that of the free table, nats; not above zero but for what EM
            leaves.
        num_free: probabilities that are free.
        bic: -2 gain + num_free log N, less the same of the free table: below zero where the graph
            is preferred.
    """

    graph: Cpdag | None
    gain: float
    num_free: int
    bic: float


@shows_briefly
@dataclass(frozen=True)
class RowComparison:
    """Graphs and the free table by their fit to the rows.

    Args:
        ranked: the best first.
        num_rows: N.
    """

    ranked: tuple[GraphOnRows, ...]
    num_rows: int

    @property
    def best(self) -> GraphOnRows:
        """The smallest BIC."""
        return self.ranked[0]

    def text(self) -> str:
        """One line a graph."""
        lines = [
            f"Refitted to {self.num_rows:,} rows, the items held (BIC less that of the free table;"
            " smaller is better):"
        ]
        for found in self.ranked:
            shown = (
                "the free table"
                if found.graph is None
                else "; ".join(found.graph.text().splitlines())
            )
            lines.append(
                f"  {found.bic:+.1f} ({found.num_free} probabilities, log-likelihood"
                f" {found.gain:+.1f}): {shown}"
            )
        if self.best.graph is None:
            lines.append(
                "No graph explains the answers as well as a free table does: the search may have"
                " left out a dependence."
            )
        return "\n".join(lines)


def compare_on_rows(
    graphs: Sequence[Any],
    posterior: Any,
    table: Any = None,
    *,
    num_iterations: int = 500,
    names: Sequence[str] | None = None,
) -> RowComparison:
    """Compare graphs, and the free table, by their likelihood of the rows.

    Args:
        graphs: CPDAGs or DAGs, :class:`~inference.causal.graphs.Cpdag` or bool (K, K).
        posterior: profile probabilities of every row at the fit, (N, 2^K).
        table: that of the fit; None for the mean of the posterior.
        num_iterations: of EM at most, for each graph.
        names: of the attributes; None for those of the first graph that has some.

    Raises:
        ValueError: for no graphs, one that stands for no DAG, one on another number of attributes,
            or what are no probabilities.
    """
    owner = "compare_on_rows"
    ratios, weights = likelihoods_of(owner, posterior, table)
    check_size(owner, "num_iterations", num_iterations)
    num_attributes = len(weights).bit_length() - 1
    if not len(graphs):
        raise ValueError(f"{owner}: at least one graph was expected, got none")
    own = next((graph.names for graph in graphs if isinstance(graph, Cpdag)), None)
    labels = as_names(owner, own if names is None else names, num_attributes)
    dags: dict[Any, tuple[int, ...]] = {}
    for graph in graphs:
        matrix = check_graph_matrix(owner, graph)
        if len(matrix) != num_attributes:
            raise ValueError(
                f"{owner}: graphs on {num_attributes} attributes were expected, got one on"
                f" {len(matrix)}"
            )
        parents = extension_of(pdag_of(matrix))
        if parents is None or order_of(parents) is None:
            raise ValueError(
                f"{owner}: every graph must stand for a DAG; this one does not:"
                f" {Cpdag(matrix, labels).text()}"
            )
        dags.setdefault(class_of(parents), parents)
    free, num_rows = _log_likelihood(ratios, weights), len(ratios)
    found = [GraphOnRows(None, 0.0, len(weights) - 1, 0.0)]
    for graph, parents in dags.items():
        gain = _fitted(ratios, weights, parents, num_iterations) - free
        num_free = sum(2 ** mask.bit_count() for mask in parents)
        bic = -2 * gain + (num_free - len(weights) + 1) * math.log(num_rows)
        found.append(GraphOnRows(Cpdag(graph.matrix, labels), gain, num_free, bic))
    return RowComparison(tuple(sorted(found, key=lambda one: (one.bic, one.num_free))), num_rows)


def _fitted(
    ratios: np.ndarray, weights: np.ndarray, parents: Sequence[int], num_iterations: int
) -> float:
    """The largest log-likelihood under a DAG, by EM from the projection of the free table."""
    bits = profiles(len(parents))
    current = _projected(weights, parents, bits)
    reached = _log_likelihood(ratios, current)
    for _ in range(num_iterations):
        counts = current * ((1 / (ratios @ current)) @ ratios)
        current = _projected(counts / counts.sum(), parents, bits)
        before, reached = reached, _log_likelihood(ratios, current)
        if reached - before <= TOLERANCE * (1 + abs(reached)):
            break
    return reached


def _projected(table: np.ndarray, parents: Sequence[int], bits: np.ndarray) -> np.ndarray:
    """The table of the DAG that lies nearest to a table: the product of its conditional
    probabilities.
    """
    marginals, out = Marginals(table), np.ones(len(table))
    for k, mask in enumerate(parents):
        family = marginals.of(mask | 1 << k)[_places(mask | 1 << k, bits)]
        own = marginals.of(mask)[_places(mask, bits)]
        # even where no row has those parents
        out *= np.divide(family, own, out=np.full_like(family, 0.5), where=own > 0)
    return out


def _places(mask: int, bits: np.ndarray) -> np.ndarray:
    """Where each profile stands in the marginal of a set."""
    places = np.zeros(len(bits), dtype=np.int64)
    for k in range(bits.shape[1]):
        if mask >> k & 1:
            places = 2 * places + bits[:, k]
    return places


def _log_likelihood(ratios: np.ndarray, table: np.ndarray) -> float:
    return float(np.log(ratios @ table).sum())
