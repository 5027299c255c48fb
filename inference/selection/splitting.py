r"""False discovery rate of edges by data splitting: one half chooses, the other tests.

Let :math:`\hat G` be the graph of a fit to the rows A. The model is fitted on that graph, without a
penalty, to the other rows B, and every edge e of it is tested there. B is independent of A: given
:math:`\hat G` the tests and intervals are those of a graph that was known beforehand, whatever
chose it. With p-values :math:`p_{(1)} \le \dots \le p_{(m)}` the edges up to the largest i with
:math:`p_{(i)} \le i q / (m c_m)` are kept, and

.. math:: E\left[\frac{\#\text{false edges kept}}{\max(1, \#\text{edges kept})} \,\Big|\, \hat G
    \right] \le q \frac{m_0}{m} \le q

for :math:`m_0` false edges among m: with :math:`c_m = 1` for independent or positively dependent
p-values, with :math:`c_m = \sum_{i \le m} 1 / i` for any. The bound counts edges that are false
beside the rest of :math:`\hat G`; where A misses edges, a wrong one can stand in for them.

Tests, each of "no such edge": Wald's of all coefficients of an item on a latent (encoders,
estimated Q-matrices), by F with the degrees of freedom of its variance where the item is normal;
Wald's one-sided of a failure below one, its bound (noisy-OR); the largest p-value of conditional
independence given any set next to either attribute in :math:`\hat G`, of the refitted table at its
effective rows (graphs among attributes).

Why not stability selection: its bound on the number of false edges, :math:`s^2 / ((2 \tau - 1) P)`
for s of P possible edges chosen in each half, is far above q s in graphs of items and few latents,
where s / P is a fifth or more.

Sources: D. R. Cox (1975), doi:10.1093/biomet/62.2.441; Y. Benjamini and Y. Hochberg (1995),
doi:10.1111/j.2517-6161.1995.tb02031.x; Y. Benjamini and D. Yekutieli (2001),
doi:10.1214/aos/1013699998; N. Meinshausen and P. Buehlmann (2010),
doi:10.1111/j.1467-9868.2010.00740.x.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.special import chdtrc, fdtrc, ndtr
from torch import Tensor

from inference.base.drawing import Answer, draw
from inference.base.frames import pd
from inference.base.structure import Method, Problem, normal_scales
from inference.causal.graphs import Cpdag, pdag_of
from inference.causal.independence import EdgeStrength, strengths
from inference.causal.knowledge import BackgroundKnowledge
from inference.causal.of_fit import effective_rows_of, profile_posterior, report_of_table
from inference.causal.tables import Marginals
from inference.engines.em import EM
from inference.estimates import Estimate, EstimateTable
from inference.fitting.columns import dims_of, labels_of
from inference.fitting.fit import fit
from inference.fitting.problem import problem_of
from inference.fitting.result import Fit
from inference.inspection.noisy_or import trim
from inference.programs.curvature import Undetermined
from inference.programs.global_state import quiet
from inference.selection.sparsity import polish
from inference.structures.noisy_or.em_steps import check_switches_only_on
from inference.uncertainty import Uncertainty, observed_information, standard_errors
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.descriptions.noisy_or import IndependentCauses
from ppl_models.parts.repr import counted
from ppl_models.parts.validation import Seed, as_seed, check_flag, check_number

OWNER = "split_inference"
FEWEST = 20  # rows of a half
SINGULAR = 1e-8  # share of the largest eigenvalue of a scaled information
FLAT = 0.05  # part of an entry in a direction that no row determines, above which it is untested


@dataclass(frozen=True)
class SplitEdge:
    """An edge of the graph that the first half chose, tested on the second.

    Args:
        site: of the parameter; "graph" among attributes.
        child, parent: item and latent, or two attributes.
        value: its first coefficient, its failure, or its information in nats; low, high: the
            interval; NaN where the second half does not determine it, or puts it on its bound.
        p_value: 1 where it cannot be tested.
        adjusted: the least target rate at which it is kept.
        kept: at the target.
    """

    site: str
    child: str
    parent: str
    value: float
    low: float
    high: float
    p_value: float
    adjusted: float = 1.0
    kept: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class SplitInference(Answer):
    """Edges with an error rate, and intervals that are valid after the choice of the graph.

    Args:
        edges: of the graph that the first half chose.
        target: bound on the expected share of false edges among those kept.
        dependent: whether it holds for p-values that depend on each other in any way.
        level: of the intervals.
        num_choosing, num_testing: rows of the halves.
        first, second: fits to the halves, the second on the graph of the first.
        graph: among attributes; None for edges between latents and items.
    """

    edges: tuple[SplitEdge, ...]
    target: float
    dependent: bool
    level: float
    num_choosing: int
    num_testing: int
    first: Fit
    second: Fit
    graph: Cpdag | None = None

    @property
    def kept(self) -> tuple[SplitEdge, ...]:
        """Edges kept."""
        return tuple(edge for edge in self.edges if edge.kept)

    @property
    def headline(self) -> str:
        """Number of edges kept, and the bound on the false ones among them."""
        return (
            f"{len(self.kept)} of {counted(len(self.edges), 'edge')} are kept; the expected share"
            f" of false edges among those kept is at most {100 * self.target:g}%."
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """Reason why the bound holds, what the intervals cover, and what cannot be found."""
        rule = "Benjamini-Yekutieli" if self.dependent else "Benjamini-Hochberg"
        under = "any dependence" if self.dependent else "independence or positive dependence"
        words = [
            f"{self.num_choosing:,} rows chose the graph and {self.num_testing:,} others tested its"
            f" edges, so that tests and intervals are those of a graph known beforehand."
            f" {rule}'s rule bounds the share under {under} of the tests.",
            f"Intervals ({100 * self.level:g}%) are for every edge of the chosen graph, kept or"
            " not.",
            "The bound is on average over samples, and about edges that are false beside the rest"
            " of the chosen graph. Edges that the first half missed are not tested.",
        ]
        untested = sum(math.isnan(edge.low) for edge in self.edges)
        if untested:
            words.append(
                f"{counted(untested, 'edge')} of the chosen graph could not be tested, for the"
                " second half does not determine them, or puts them on their bound: they are not"
                " kept."
            )
        return tuple(words)

    @property
    def table(self) -> pd.DataFrame:
        """One line an edge of the chosen graph, the surest first."""
        columns = ("site", "child", "parent", "value", "low", "high", "p_value", "adjusted", "kept")
        rows = [[getattr(edge, name) for name in columns] for edge in self.edges]
        return pd.DataFrame(rows, columns=columns).sort_values("p_value", kind="stable")

    def plot(self) -> Any:
        """Plot estimates with their intervals, or the graph with dotted lines for edges dropped."""
        if self.graph is not None:
            place = {name: k for k, name in enumerate(self.graph.names)}
            weights = np.zeros(self.graph.matrix.shape)
            dropped = np.zeros(self.graph.matrix.shape, dtype=bool)
            for edge in self.edges:
                i, k = place[edge.parent], place[edge.child]
                weights[i, k] = weights[k, i] = edge.value
                dropped[i, k] = dropped[k, i] = not edge.kept
            return draw("plot_causal_graph", self.graph, weights=weights, open_edges=dropped)
        rows = sorted(self.edges, key=lambda edge: (not edge.kept, edge.site, edge.p_value))
        entries = tuple(
            Estimate(
                f"{edge.site}, {'kept' if edge.kept else 'not kept'}",
                (edge.child, edge.parent),
                edge.value,
                low=edge.low,
                high=edge.high,
            )
            for edge in rows
        )
        return draw("plot_estimates", EstimateTable(entries, self.level, "data splitting", ""))


def split_inference(
    model: Any,
    data: Any,
    target: float = 0.1,
    *,
    share: float = 0.5,
    dependent: bool = False,
    level: float = 0.95,
    method: Method | None = None,
    knowledge: BackgroundKnowledge | None = None,
    seed: Seed = 0,
) -> SplitInference:
    r"""Edges of an estimated graph with a bound on the share of false ones, by data splitting.

    See the module for the tests and the bound. The number of latents is taken as given.

    Args:
        model: whose graph is estimated: an encoder, attributes without a Q-matrix, a noisy-OR
            network; or attributes with a Q-matrix and ``root=Saturated()``, whose causal graph is.
        data: the rows, a table.
        target: q.
        share: of the rows that choose the graph.
        dependent: keep the bound under any dependence of the tests; more edges are dropped.
        level: of the intervals.
        method: see :func:`inference.fitting.fit`.
        knowledge: of a causal graph.
        seed: of the halves and the starts.

    Raises:
        ValueError: for a target, share or level outside (0, 1), fewer than 20 rows in a half, a
            model whose graph is given, or data that are no table.

    Example:
        >>> from inference.programs import simulate
        >>> from inference.selection import split_inference
        >>> from ppl_models import DeepDiscreteEncoder
        >>> from ppl_models.datasets import strict_design
        >>> encoder = DeepDiscreteEncoder(num_items=9, latent_sizes=(3, 1))
        >>> rows = simulate(encoder, strict_design(1), 0, None, 600)["items"]
        >>> split_inference(encoder, rows).headline.partition(";")[0]
        '13 of 16 edges are kept'
    """
    seed = as_seed(OWNER, seed)
    for name, value in (("target", target), ("share", share), ("level", level)):
        check_number(OWNER, name, value, "lie in (0, 1)", above=0, below=1)
    check_flag(OWNER, "dependent", dependent)
    problem = problem_of(model, data, seed)
    table = problem.data
    if not isinstance(table, Tensor) or table.dim() != 2:
        raise ValueError(f"{OWNER}: a table of rows and items was expected as data")
    test = _test_of(problem, knowledge, level)
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    cut = round(share * len(table))
    if min(cut, len(table) - cut) < FEWEST:
        raise ValueError(
            f"{OWNER}: at least {FEWEST} rows in each half were expected, got {cut} and"
            f" {len(table) - cut} of {len(table)} with share = {share:g}"
        )
    halves = table[order[:cut].sort().values], table[order[cut:].sort().values]
    with quiet():
        first = fit(problem.model, halves[0], method, seed=seed)
        second, graph, edges = test(first, *halves)
    edges = _adjusted(edges, target, dependent)
    return SplitInference(
        edges, target, dependent, level, cut, len(table) - cut, first, second, graph
    )


def _adjusted(
    edges: tuple[SplitEdge, ...], target: float, dependent: bool
) -> tuple[SplitEdge, ...]:
    """Edges with adjusted p-values, kept where these reach the target."""
    values = np.array([edge.p_value for edge in edges])
    number = len(values)
    ranks = np.arange(1, number + 1)
    order = values.argsort(kind="stable")
    scaled = values[order] * number / ranks * ((1 / ranks).sum() if dependent else 1.0)
    least = np.minimum.accumulate(scaled[::-1])[::-1].clip(max=1.0)
    adjusted = np.empty(number)
    adjusted[order] = least
    return tuple(
        replace(edge, adjusted=float(own), kept=bool(own <= target))
        for edge, own in zip(edges, adjusted, strict=True)
    )


Tested = tuple[Fit, Cpdag | None, tuple[SplitEdge, ...]]


def _test_of(
    problem: Problem, knowledge: BackgroundKnowledge | None, level: float
) -> Callable[[Fit, Tensor, Tensor], Tested]:
    """Refit and tests of the graph of a first fit, by the kind of the model.

    Raises:
        ValueError: for a model without a graph to estimate, and knowledge where it does not belong.
    """
    model, structure = problem.model, problem.structure
    items = problem.item_names

    def of_network(first: Fit, _: Tensor, rows: Tensor) -> Tested:
        kept = trim(first)
        # exactly one off the graph, which EM never leaves, nor from a failure of nearly one
        start = kept.params | {
            name: torch.where(graph.mT > 0, kept.params[name], 1.0)
            for name, graph in kept.graphs.items()
        }
        second = fit(kept.model, rows, EM(), init=start, num_restarts=1)
        # in the order of the start; a fit has its causes by falling probability
        ends = {name: value[0] for name, value in second.restarts.params.items()}
        graphs = second.structure.canonical(ends | {n: g.mT for n, g in kept.graphs.items()})
        own = {name: graphs[name].mT for name in kept.graphs}
        return second, None, tuple(_wald_edges(second, own, rows, items, level))

    def of_layers(first: Fit, _: Tensor, rows: Tensor) -> Tested:
        second = polish(first, rows)
        graphs = {
            layer.loadings: layer.item_edges
            for layer in second.structure.layers
            if layer.item_edges is not None
        }
        return second, None, tuple(_wald_edges(second, graphs, rows, items, level))

    def of_attributes(first: Fit, choosing: Tensor, rows: Tensor) -> Tested:
        graph = report_of_table(first, choosing, knowledge=knowledge).causal.graph
        second = fit(
            model, rows, first.method, init=dict(first.params), num_restarts=1, seed=problem.seed
        )
        found = profile_posterior(second, rows)
        worth = effective_rows_of(second, rows, found).num_rows
        edges, _, _ = strengths(
            pdag_of(graph.matrix), Marginals(found.table), worth, 1 - level, level
        )
        return second, graph, tuple(_dependent_pairs(edges, graph))

    root = structure.root
    if isinstance(structure.about, IndependentCauses):
        check_switches_only_on(OWNER, structure.about)
        test: Callable[[Fit, Tensor, Tensor], Tested] = of_network
    elif hasattr(model, "restricted") and not any(
        layer.graph is not None and not layer.estimated for layer in structure.layers[:1]
    ):
        test = of_layers
    elif (
        root is not None and len(structure.layers) == 1 and root.num_free == 2**root.num_latents - 1
    ):
        return of_attributes
    else:
        raise ValueError(
            f"{OWNER}: a model whose graph is estimated was expected, such as"
            " DeepDiscreteEncoder(num_items, sizes), LatentAttributeModel(num_attributes=K),"
            " NoisyOr(num_items, num_latents), or attributes with a free table,"
            f" LatentAttributeModel(q_matrix), got {type(model).__name__} with a graph that is"
            " given; standard_errors(fit, data) has its intervals"
        )
    if knowledge is not None:
        raise ValueError(f"{OWNER}: knowledge is of causal graphs among attributes, got {model!r}")
    return test


def _dependent_pairs(edges: Sequence[EdgeStrength], graph: Cpdag) -> Iterator[SplitEdge]:
    for edge in edges:
        i, k = edge.pair
        if graph.matrix[k, i] and not graph.matrix[i, k]:
            i, k = k, i
        direct = edge.direct
        yield SplitEdge(
            "graph",
            graph.names[k],
            graph.names[i],
            direct.information,
            direct.low,
            direct.high,
            edge.weakest.p_value,
        )


def _uncertainty(second: Fit, rows: Tensor) -> tuple[Uncertainty, frozenset[str]]:
    """Covariance of an estimate, and the entries that its rows do not determine."""
    try:
        return standard_errors(second, rows, hold_bounds=True), frozenset()
    except Undetermined:
        found = observed_information(second, rows)
    scale = found.matrix.diagonal().clamp(min=1e-300).sqrt()
    values, vectors = torch.linalg.eigh(found.matrix / scale / scale[:, None])
    sound = values > SINGULAR * values[-1]
    involved = (vectors[:, ~sound].abs() > FLAT).any(-1).tolist()
    unknown = frozenset(name for name, flag in zip(found.names, involved, strict=True) if flag)
    covariance = (vectors[:, sound] / values[sound]) @ vectors[:, sound].mT / scale
    return Uncertainty(
        found.names,
        found.coordinates,
        found.estimate,
        covariance / scale[:, None],
        "hessian",
        found.num_rows,
        normal_scales(second.structure, second.params),
    ), unknown


def _wald_edges(
    second: Fit, graphs: Mapping[str, Tensor], rows: Tensor, items: tuple[str, ...], level: float
) -> Iterator[SplitEdge]:
    """Edges of a chosen graph, with Wald tests of a fit on it to other rows.

    All of them, also where the fit is next to no edge: those left out for that would have had the
    largest p-values of false edges.
    """
    found, unknown = _uncertainty(second, rows)
    errors, intervals = found.standard_errors, found.intervals(level)
    place = {name: k for k, name in enumerate(found.names) if name not in unknown}
    worth = _worth(found)
    layers = {layer.loadings: layer for layer in second.structure.layers}
    for site, graph in graphs.items():
        value, error = second.params[site], errors[site]
        low, high = intervals[site]
        layer = layers.get(site)
        children, parents = _names(second, site, layer, items, graph.shape)
        for j, k in graph.nonzero().tolist():
            entries = [(k, j)] if layer is None else _entries(layer, j, k)
            own = [place.get(f"{site}[{c},{m}]") for c, m in entries]
            numbers = (float("nan"),) * 2
            p_value = 1.0
            at = entries[0]
            known = [index for index in own if index is not None]
            if known and bool(error[at].isfinite()):
                numbers = float(low[at]), float(high[at])
                if layer is None:
                    p_value = float(ndtr(-float((1 - value[at]) / error[at])))
                else:
                    point = found.estimate[known]
                    spread = found.covariance[known][:, known]
                    statistic = float(point @ torch.linalg.pinv(spread, hermitian=True) @ point)
                    p_value = _tail(len(known), statistic, worth.get((site, at)))
            yield SplitEdge(site, children[j], parents[k], float(value[at]), *numbers, p_value)


def _worth(found: Uncertainty) -> dict[tuple[str, tuple[int, ...]], tuple[float, float]]:
    """Rows and degrees of freedom of the variance with which an entry of normal items scatters."""
    if found.scales is None:
        return {}
    rows, freedom = found.scales.freedom(found.coordinates, found.estimate, found.covariance)
    return {
        (site, tuple(at)): (float(rows[place[tuple(at)]]), float(freedom[place[tuple(at)]]))
        for site, place in found.scales.locations.items()
        for at in (place >= 0).nonzero().tolist()
    }


def _tail(size: int, statistic: float, worth: tuple[float, float] | None) -> float:
    r"""Chance of a larger Wald statistic: chi-square, or F(size, :math:`\nu`) of normal items.

    As their intervals are Student's t, with statistic :math:`\nu / n` times as large.
    """
    if worth is None:
        return float(chdtrc(size, statistic))
    rows, freedom = worth
    return float(fdtrc(size, freedom, statistic * freedom / rows / size))


def _entries(layer: GeneralizedLinearLayer, item: int, latent: int) -> list[tuple[int, int]]:
    """Entries of the loadings that an edge stands for."""
    owners = range(layer.num_children) if layer.items is None else layer.item_of()
    children = [item] if layer.items is None else [c for c, own in enumerate(owners) if own == item]
    columns = [latent]
    if layer.terms is not None:
        columns = layer.terms[:, latent].nonzero().ravel().tolist()
    return [(c, m) for c in children for m in columns]


def _names(
    second: Fit,
    site: str,
    layer: GeneralizedLinearLayer | None,
    items: tuple[str, ...],
    shape: Sequence[int],
) -> tuple[list[str], list[str]]:
    """Names of children and parents along a graph."""
    dims = dims_of(second, site, second.params[site].shape)
    of_child, of_parent = dims if layer is not None else dims[::-1]
    parents = [f"{of_parent} {label}" for label in labels_of(second, of_parent, shape[1])]
    is_item = layer is None or layer is second.structure.layers[0]
    if is_item and len(items) == shape[0]:
        return list(items), parents
    return [f"{of_child} {label}" for label in labels_of(second, of_child, shape[0])], parents
