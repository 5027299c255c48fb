r"""Structural EM for a graph among many attributes: families scored on posterior draws.

With attributes too many for a table of profiles, a graph is learned from M posterior draws of the
attributes of each row (Friedman 1998, UAI 14; stochastic E-steps by Gibbs sweeps). For the centred
product f of attributes i and j, two independent draws of the same rows tell the share of
information that survives measurement,

.. math:: \rho_{ij} = \mathrm{Cov}(f(a^{(1)}), f(a^{(2)})) / \mathrm{Var} f .

To draw attributes from the model, P, then items given these, then attributes given the items, is a
step K of a reversible chain whose law is P, and :math:`\rho_{ij}` is the Rayleigh quotient of f in
it. The draws of rows from another law p therefore follow :math:`p K = P + (p - P) K`, which is
:math:`P + \rho\, (p - P)` where f is an eigenfunction: a dependence that the graph lacks is drawn
too weakly, and one that only the graph has is drawn still. :class:`RowScores` undoes both with
:math:`\rho`, the mean over the edges. Then the count of a pair has :math:`(\rho + (1 - \rho) / M) /
\rho^2` times the variance that it has of known attributes, so that N rows count as so many fewer;
the price of a parameter stays that of N rows.

Noisy items leave little of an interaction of parents, so that a table of :math:`2^{|Pa|}` chances
costs more than it tells: families are logistic regressions on their parents where a table does not
gain (:class:`inference.causal.scores.LogisticBIC`), in the score and in the model alike. Hence

1. SAEM under independent attributes;
2. search DAGs on corrected draws, from the required edges alone and from the last graph;
3. SAEM under the best, the items free, rows and items where they were, each table projected on main
   effects where step 2 had it so; back to 2.

The end is where step 2 finds no class that is better than that of the graph which the draws are
from, by three nats.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from scipy.special import chdtri, chndtrinc, xlogy
from torch import Tensor

from inference.base.drawing import draw
from inference.base.gibbs import Latents
from inference.base.steps import DrawSteps
from inference.base.structure import Problem, draw_steps_of
from inference.causal.edges import EdgeProbabilities, summarised
from inference.causal.graphs import Cpdag, as_names
from inference.causal.hill_climbing import MOST_PARENTS, RowScores, local_search
from inference.causal.item_alternatives import ItemAlternative, item_alternatives
from inference.causal.knowledge import BackgroundKnowledge, Constraints, constraints_of
from inference.causal.pdags import Pdag, matrix_of_columns, members
from inference.causal.scores import (
    FamilyScore,
    LogisticBIC,
    Score,
    logistic_chances,
    score_rule,
)
from inference.fitting.problem import problem_of
from inference.programs.program import Params
from ppl_models.descriptions.attribute_distribution import Independent
from ppl_models.descriptions.dag import MAX_PARENTS, Dag, NetworkRoot
from ppl_models.descriptions.layers import PROPORTION_LIMIT
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number, check_size

OWNER = "structural_em"
LEAST_SHARE = 0.03  # rho below it is not told from this
FEWEST_DRAWS, MOST_DRAWS = 10, 50
DRAWN_NOISE = 0.15  # what a finite M adds to the variance that rows have, at most
MODEL_NOISE = 0.1  # what a finite number of rows of the model adds
MODEL_ROWS = 20_000, 200_000  # least, and most unless there are more rows of data
FIRST, FURTHER = (60, 15), (30, 15)  # SAEM: burn-in, averaged
RESAMPLED = (8, 8)  # of a bootstrap replicate
LEAST_GAIN = 3.0  # nats by which a new class must be better
FIRM = 0.99  # probability of an arrow, below which its direction is left open


@shows_briefly
@dataclass(frozen=True, eq=False)
class AttributeNetwork:
    """Graph among many attributes by structural EM.

    Args:
        graph: its CPDAG, or MPDAG where edges are known.
        edges: (cause, effect) of one DAG of the class, for ``root=Dag(edges)``.
        params: estimates of the model with that root, by site; with ``LogisticBIC`` the tables have
            main effects only, where an interaction does not gain.
        share: rho of each pair, (K, K): the share of information that measurement leaves.
        information: I(i; j | the other parents of j) of each edge of that DAG, nats, (K, K)
            symmetric, zero elsewhere.
        presence: share of the last three cycles whose graph joined each pair, (K, K).
        num_rows: N.
        worth: rows with known attributes that tell as much of an edge, rho N.
        num_cycles: done.
        settled: whether the class stayed, before the cycles were used up.
        probabilities: of edges and arrows over bootstrap replicates; None for none.
        alternatives: beside each edge of the DAG the item that asks for both of its attributes
            instead; empty where an item has several predictors.
    """

    graph: Cpdag
    edges: tuple[tuple[int, int], ...]
    params: Params
    share: np.ndarray
    information: np.ndarray
    presence: np.ndarray
    num_rows: int
    worth: float
    num_cycles: int
    settled: bool
    probabilities: EdgeProbabilities | None
    alternatives: tuple[ItemAlternative, ...] = ()

    def rows_needed(
        self,
        information: float,
        share: float | None = None,
        level: float = 0.05,
        power: float = 0.8,
    ) -> float:
        r"""Rows that a test needs to see an edge, :math:`N = \lambda / (2 \rho I)`.

        :math:`\lambda` is the noncentrality at which a chi-square statistic with one degree of
        freedom exceeds its quantile at the level with the power wanted.

        Args:
            information: I, nats, of two attributes given the other parents.
            share: rho; None for the mean over the edges found.
            level: of the test.
            power: chance to see the edge.

        Raises:
            ValueError: for information or a share that is not positive, a level or power outside
                (0, 1), or a power that is not above the level.
        """
        rho = self.worth / self.num_rows if share is None else share
        return rows_needed(information, rho, level, power)

    def text(self) -> str:
        """Graph, what the rows are worth, and for each edge the rows that it needs."""
        names = self.graph.names
        lines = [
            f"A graph among {len(names)} attributes by structural EM, {self.num_cycles} cycles"
            f"{'' if self.settled else ' (the class still changed: give more num_cycles)'}."
            f" {self.num_rows:,} rows are worth {self.worth:,.0f} with known attributes.",
        ]
        rivals = {own.pair: f" Or an item: {own.text()}." for own in self.alternatives}
        for i, j in self.edges:
            mark = "—" if self.graph.matrix[j, i] or self._open_arrows[i, j] else "→"
            rho = float(self.share[i, j])
            chance = ""
            if self.probabilities is not None:
                chance = f", joined with probability {self.probabilities.adjacent[i, j]:.2f}"
            lines.append(
                f"  {names[i]} {mark} {names[j]}: {self.information[i, j]:.2g} nats, of which"
                f" measurement leaves {rho:.0%}; to be seen in four of five samples it needs"
                f" {self.rows_needed(max(self.information[i, j], 1e-9), rho):,.0f} rows{chance}."
                f"{rivals.get((i, j), '')}"
            )
        return "\n".join(lines)

    @property
    def _open_arrows(self) -> np.ndarray:
        """Arrows whose direction the replicates do not agree on, bool (K, K)."""
        if self.probabilities is None:
            return np.zeros_like(self.graph.matrix)
        return self.graph.matrix & ~self.graph.matrix.T & (self.probabilities.arrow < FIRM)

    def plot(self, ax: Any = None) -> Any:
        """Plot the graph: dashed lines for open directions, dotted ones for disputed edges.

        A direction is open where fewer than .99 of the replicates have it, an edge is disputed
        where an item explains it as well. See :func:`inference.plots.causal.plot_causal_graph`.
        """
        disputed = np.zeros_like(self.graph.matrix)
        for own in self.alternatives:
            i, j = own.pair
            disputed[i, j] = disputed[j, i] = own.disputed
        return draw(
            "plot_causal_graph",
            self.graph,
            weights=self.information,
            open_arrows=self._open_arrows,
            open_edges=disputed,
            ax=ax,
        )


def rows_needed(
    information: float, share: float = 1.0, level: float = 0.05, power: float = 0.8
) -> float:
    """Rows that a test with one degree of freedom needs to see an edge.

    Arguments and errors: :meth:`AttributeNetwork.rows_needed`.
    """
    owner = "rows_needed"
    for name, value in (("level", level), ("power", power)):
        check_number(owner, name, value, "lie in (0, 1)", above=0, below=1)
    if power <= level:
        raise ValueError(
            f"{owner}: power must be above level, {level!r}, which a test of no rows has, got"
            f" {power!r}"
        )
    check_number(owner, "information", information, "be positive", above=0)
    check_number(owner, "share", share, "lie in (0, 1]", above=0, most=1)
    noncentral = float(chndtrinc(chdtri(1, level), 1, 1 - power))
    return noncentral / (2 * share * information)


def structural_em(
    model: Any,
    data: Any,
    *,
    score: Score | FamilyScore | None = None,
    knowledge: BackgroundKnowledge | None = None,
    max_parents: int = MOST_PARENTS,
    num_cycles: int = 4,
    num_draws: int | None = None,
    num_replicates: int = 0,
    seed: Seed = 0,
    names: Sequence[str] | None = None,
) -> AttributeNetwork:
    """Graph among many attributes from their items, by structural EM; see the module.

    Args:
        model: attributes with items that ask for some of them, such as
            ``LatentAttributeModel(q_matrix, ...)``; its root is replaced.
        data: (N, J), NaN where missing.
        score: of families, ``BIC()``, ``BDeu()`` or another; if None,
            :class:`inference.causal.scores.LogisticBIC`.
        knowledge: required and forbidden edges, and tiers.
        max_parents: of one attribute, at most ten.
        num_cycles: of search and SAEM, at most.
        num_draws: M, of the attributes of each row; None for ten to fifty, more for noisier items.
        num_replicates: bootstrap samples of the rows for probabilities of edges; each is fitted
            anew from the estimates, and searched from the graph and from nothing. An arrow below
            .99 is to be left open: replicates share their start.
        seed: of everything random.
        names: of the attributes; None for the model's.

    Raises:
        ValueError: for a model without one layer of attributes and a root, numbers out of range,
            background knowledge that contradicts itself or requires too many parents.
    """
    seed = as_seed(OWNER, seed)
    for name, value, least in (
        ("max_parents", max_parents, 1),
        ("num_cycles", num_cycles, 1),
        ("num_draws", num_draws, 2),
        ("num_replicates", num_replicates, 0),
    ):
        if value is not None or name != "num_draws":
            check_size(OWNER, name, value, least=least)
    if max_parents > MAX_PARENTS:
        raise ValueError(
            f"{OWNER}: max_parents must be at most {MAX_PARENTS}, as many as a Dag takes, got"
            f" {max_parents}"
        )
    rule: Score | FamilyScore = LogisticBIC()
    if score is not None:
        is_of_families = isinstance(score, FamilyScore) and not isinstance(score, type)
        rule = score if is_of_families else score_rule(OWNER, score)
    start = _with_root(model, Independent(), data, seed)
    layers, root = start.structure.layers, start.structure.root
    if len(layers) != 1 or root is None:
        raise ValueError(f"{OWNER}: a model with one layer of attributes was expected")
    own = names
    if own is None:
        own = getattr(model, "entry_names", {}).get("attribute")
    if own is not None and tuple(own) == tuple(str(k) for k in range(root.num_latents)):
        own = None  # the model numbers them
    labels = as_names(OWNER, own, root.num_latents)
    known = constraints_of(OWNER, knowledge, labels)
    needed = max(mask.bit_count() for mask in known.required)
    if needed > max_parents:
        raise ValueError(
            f"{OWNER}: max_parents = {max_parents}, and the background knowledge requires {needed}"
            " parents of one attribute"
        )
    chain = _Chain(
        lambda dag: _with_root(model, _root_of(dag), data, seed),
        root.latent,
        known,
        rule,
        max_parents,
        num_draws,
        torch.Generator().manual_seed(seed),
        np.random.default_rng(seed),
    )
    state = chain.begin(start)
    graphs: list[tuple[int, ...]] = []
    settled = False
    evidence = chain.evidence(state)
    while len(graphs) < num_cycles and not settled:
        found, gain = chain.search(evidence, graphs[-1:])
        settled = bool(graphs) and gain <= LEAST_GAIN
        if settled:
            found = graphs[-1]
        else:
            state = chain.fitted(state, found, evidence)
            evidence = chain.evidence(state)
        graphs.append(found)
    bits, found = evidence.bits, graphs[-1]
    params = {name: value[0] for name, value in state.params.items()}
    probabilities = None
    if num_replicates:
        probabilities = _replicates(chain, state, found, num_replicates, seed, labels)
    return AttributeNetwork(
        Cpdag(known.graph_of(found).matrix, labels),
        tuple((i, j) for j, mask in enumerate(found) for i in members(mask)),
        params,
        shares(bits),
        _information(bits, found),
        np.mean([_joined(parents) for parents in graphs[-3:]], 0),
        bits.shape[1],
        evidence.share * bits.shape[1],
        len(graphs),
        settled,
        probabilities,
        item_alternatives(chain.problem(found), params, bits, found),
    )


def _with_root(model: Any, root: Any, data: Any, seed: int) -> Problem:
    fields = dataclasses.fields(model) if dataclasses.is_dataclass(model) else ()
    if isinstance(model, type) or "root" not in {field.name for field in fields}:
        raise ValueError(
            f"{OWNER}: a model whose root can be replaced was expected, such as"
            f" LatentAttributeModel(q_matrix), got {model!r}"
        )
    replaced: Any = dataclasses.replace(model, root=root)
    return problem_of(replaced, data, seed)


def _root_of(parents: Sequence[int]) -> Dag:
    return Dag(tuple((i, j) for j, mask in enumerate(parents) for i in members(mask)))


@dataclass(frozen=True, eq=False)
class _State:
    """A root with its parameters and the current draw of the attributes.

    Args:
        steps: of SAEM under the root; params: (1, ...); latents: (1, K, N) by site.
        parents: of each attribute.
        logistic: attributes whose tables are logistic regressions on their parents.
    """

    steps: DrawSteps
    params: Params
    latents: Latents
    parents: tuple[int, ...]
    logistic: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class _Evidence:
    """Draws under a graph, and scores of families by their corrected counts.

    Args:
        bits: of the attributes of all rows, uint8 (M, N, K).
        share: rho, mean over the pairs joined.
        scores: of families.
    """

    bits: np.ndarray
    share: float
    scores: RowScores


@dataclass(frozen=True, eq=False)
class _Chain:
    """State that all rounds share: problem, background knowledge, score, random numbers."""

    problem: Callable[[Sequence[int]], Problem]
    latent: str
    known: Constraints
    score: Score | FamilyScore
    max_parents: int
    num_draws: int | None
    generator: torch.Generator
    rng: np.random.Generator

    def begin(self, problem: Problem) -> _State:
        """SAEM under independent attributes."""
        steps = _steps_of(problem)
        params = cast(Params, problem.structure.start(problem, "random", 1))
        latents = steps.gibbs.begin(params, self.generator)
        size = latents[self.latent].shape[1]
        return self._climbed(_State(steps, params, latents, (0,) * size), FIRST)

    def fitted(self, state: _State, parents: tuple[int, ...], evidence: _Evidence) -> _State:
        """SAEM under another graph: items and rows as they are, tables from the draws."""
        problem = self.problem(parents)
        root = problem.structure.root
        assert root is not None
        drawn = torch.from_numpy(evidence.bits.reshape(-1, len(parents)))
        drawn = drawn.to(next(iter(state.params.values())))
        old = set(state.steps.gibbs.root.sites())  # type: ignore[attr-defined]
        items = {name: value for name, value in state.params.items() if name not in old}
        params = items | root.start(drawn)
        logistic = self._logistic(parents, evidence.scores)
        new = _State(_steps_of(problem), params, state.latents, parents, logistic)
        return self._climbed(new, FURTHER)

    def _logistic(self, parents: tuple[int, ...], scores: RowScores) -> tuple[int, ...]:
        """Attributes whose table does not gain over a logistic regression on several parents."""
        if not isinstance(self.score, LogisticBIC):
            return ()
        several = [(k, mask) for k, mask in enumerate(parents) if mask.bit_count() > 1]
        return tuple(
            k
            for k, mask in several
            if not self.score.wants_tables(scores.counts(k, mask)[None], scores.num_rows)[0]
        )

    def _climbed(self, state: _State, sweeps: tuple[int, int]) -> _State:
        burn_in, kept = sweeps
        params, latents, averages = state.params, state.latents, None
        for number in range(burn_in + kept):
            latents, chances = state.steps.gibbs.sweep(params, latents, self.generator)
            new = state.steps.statistics(params, latents, chances)
            rate = 1 / max(1, number - burn_in + 1)
            averages = state.steps.average(averages, new, rate)
            params = state.steps.maximise(averages, params)
            if state.logistic:
                root = cast(Any, state.steps.gibbs).root
                params |= _with_main_effects(root, averages[root.latent], params, state.logistic)
        return dataclasses.replace(state, params=params, latents=latents)

    def evidence(self, state: _State) -> _Evidence:
        """Draws of the attributes of all rows, counted beside rows that the model draws."""
        draws = self._draws(state)
        bits = np.stack([*islice(draws, self.num_draws or FEWEST_DRAWS)])
        share = _share(bits, state.parents)
        if self.num_draws is None:
            wanted = min(MOST_DRAWS, (1 - share) / (DRAWN_NOISE * share))
            bits = np.stack([*bits, *islice(draws, max(0, math.ceil(wanted) - len(bits)))])
            share = _share(bits, state.parents)
        num_rows, size = bits.shape[1:]
        wanted = num_rows * (1 - share) ** 2 / (MODEL_NOISE * share)
        number = int(np.clip(wanted, MODEL_ROWS[0], max(num_rows, MODEL_ROWS[1])))
        root = cast(Any, state.steps.gibbs).root
        like = next(iter(state.params.values()))
        uniform = torch.rand((1, size, number), generator=self.generator).to(like)
        model = root.draw(state.params, uniform)[0].mT.to(torch.uint8).cpu().numpy()
        noise = (share + (1 - share) / len(bits)) / share**2
        scores = RowScores(
            bits.reshape(-1, size), num_rows, self.score, num_rows / noise, model, share
        )
        return _Evidence(bits, share, scores)

    def _draws(self, state: _State) -> Iterator[np.ndarray]:
        """Draws of the attributes of all rows without end, each uint8 (N, K)."""
        latents = state.latents
        while True:
            latents, _ = state.steps.gibbs.sweep(state.params, latents, self.generator)
            yield latents[self.latent][0].mT.to(torch.uint8).cpu().numpy()

    def search(
        self, evidence: _Evidence, starts: Sequence[tuple[int, ...]]
    ) -> tuple[tuple[int, ...], float]:
        """The best DAG on the draws, from nothing and given ones, and its gain over these."""
        scores = evidence.scores
        best, reached = local_search(
            scores, self.known, [None, *starts], self.rng, self.max_parents
        )
        return best, reached - max((scores.total(start) for start in starts), default=-np.inf)


class _LogLikelihood:
    """The log-likelihood as a score: no price for parameters."""

    def of_set(self, counts: np.ndarray, size: int, num_rows: float) -> np.ndarray:
        value: np.ndarray = xlogy(counts, counts).sum(-1)
        return value


def _with_main_effects(
    root: NetworkRoot, statistic: Tensor, params: Params, attributes: Sequence[int]
) -> Params:
    """Tables of a graph, those of some attributes by logistic regression on their parents.

    Args:
        root: the graph.
        statistic: counts of each attribute on, then off, by state of its parents, (1, 2 S).
        params: (1, ...), with tables (1, S).
        attributes: which.
    """
    counts = statistic[0].detach().cpu().double().numpy().reshape(2, -1).T[:, ::-1]  # off, on
    tables = params[root.chances].clone()
    ends = np.cumsum([2 ** len(own) for own in root.parents])
    for size in {len(root.parents[k]) for k in attributes}:
        own = [k for k in attributes if len(root.parents[k]) == size]
        places = ends[own][:, None] - 2**size + np.arange(2**size)  # (B, 2^P)
        chances = torch.from_numpy(logistic_chances(counts[places])).to(tables)
        chances = chances.clamp(PROPORTION_LIMIT, 1 - PROPORTION_LIMIT)
        tables[0, torch.from_numpy(places).to(tables.device)] = chances
    return {root.chances: tables}


def _steps_of(problem: Problem) -> DrawSteps:
    steps = draw_steps_of(problem.structure, problem)
    if steps is None:
        raise ValueError(
            f"{OWNER}: a table of items was expected as data, for layers of attributes"
        )
    return steps


def shares(bits: np.ndarray) -> np.ndarray:
    r"""Share rho of the information about each pair that survives measurement, (K, K).

    The covariance of two draws is found from the variance of the mean of all:
    :math:`\mathrm{Var}(\bar f) = \mathrm{Cov} + (\mathrm{Var} f - \mathrm{Cov}) / M`.

    Args:
        bits: independent draws of the same rows, (M, N, K).
    """
    num_draws, num_rows, size = bits.shape
    centred = (bits - bits.mean((0, 1))).astype(np.float32)
    flat = centred.reshape(-1, size)
    mean = flat.T @ flat / len(flat)
    variance = (flat**2).T @ flat**2 / len(flat) - mean**2
    squares = np.zeros((size, size))
    step = max(1, 2**24 // size**2)
    for start in range(0, num_rows, step):
        part = centred[:, start : start + step].transpose(1, 2, 0)  # (n, K, M)
        squares += ((part @ part.transpose(0, 2, 1) / num_draws) ** 2).sum(0, dtype=np.float64)
    of_mean = squares / num_rows - mean**2
    covariance = (num_draws * of_mean - variance) / (num_draws - 1)
    found: np.ndarray = np.clip(covariance / np.maximum(variance, 1e-12), 0.0, 1.0)
    return found


def _share(bits: np.ndarray, parents: Sequence[int]) -> float:
    """Mean rho of the pairs that a graph joins, of all pairs where it joins none."""
    pairs = _joined(parents)
    if not pairs.any():
        pairs = ~np.eye(len(parents), dtype=bool)
    return float(np.clip(shares(bits)[pairs].mean(), LEAST_SHARE, 1.0)) if pairs.any() else 1.0


def _joined(parents: Sequence[int]) -> np.ndarray:
    matrix = matrix_of_columns(parents)
    both: np.ndarray = matrix | matrix.T
    return both


def _information(bits: np.ndarray, parents: Sequence[int]) -> np.ndarray:
    """I(i; j | the other parents of j) of each arrow i -> j, nats, (K, K)."""
    scores = RowScores(bits.reshape(-1, bits.shape[2]), 1.0, _LogLikelihood())
    out = np.zeros((len(parents), len(parents)))
    for j, mask in enumerate(parents):
        for i in members(mask):
            out[i, j] = out[j, i] = scores.local(j, mask) - scores.local(j, mask & ~(1 << i))
    return out


def _replicates(
    chain: _Chain,
    state: _State,
    found: tuple[int, ...],
    num_replicates: int,
    seed: int,
    names: tuple[str, ...],
) -> EdgeProbabilities:
    """Frequencies of graphs over samples of the rows, each fitted and searched anew."""
    rng = np.random.default_rng(seed)
    num_rows = next(iter(state.latents.values())).shape[-1]
    graphs: list[Pdag] = []
    worth = 0.0
    for _ in range(num_replicates):
        rows = torch.from_numpy(rng.integers(0, num_rows, num_rows))
        latents = {name: value[..., rows] for name, value in state.latents.items()}
        sampled = dataclasses.replace(state, steps=state.steps.rows(rows), latents=latents)
        evidence = chain.evidence(chain._climbed(sampled, RESAMPLED))
        graphs.append(chain.known.graph_of(chain.search(evidence, [found])[0]))
        worth = evidence.share * num_rows
    counts = {graph: graphs.count(graph) for graph in dict.fromkeys(graphs)}
    matrices = np.stack([graph.matrix for graph in counts])
    shares_of = np.array(list(counts.values())) / num_replicates
    return summarised(names, matrices, shares_of, num_replicates, False, worth, 0.0)
