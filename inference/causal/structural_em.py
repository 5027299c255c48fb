r"""Structural EM for a graph among many attributes: families scored on posterior draws.

With attributes too many for a table of profiles, a graph is learned from M posterior draws of the
attributes of each row (Friedman 1998, UAI 14; stochastic E-steps by Gibbs sweeps). For the centred
product f of attributes i and j, two independent draws of the same rows tell the share of
information that survives measurement,

.. math:: \rho_{ij} = \mathrm{Cov}(f(a^{(1)}), f(a^{(2)})) / \mathrm{Var} f .

To first order an edge that the current graph lacks is drawn :math:`\rho`-fold too weak, so that the
score statistic of the observed data is the gain G on expected counts over :math:`\rho`; an edge
that it has is drawn at full size from the model, and its gain is worth only :math:`\rho N` rows.
Hence

1. SAEM under independent attributes;
2. expand: add the arrow with the largest :math:`G_{ij} / \rho_{ij} - \tfrac12 2^{|pa_j|} \log N`,
   while one is above zero, without a cycle;
3. SAEM under that graph, the items free, rows and items where they were;
4. prune: search DAGs on new draws, counted as :math:`\bar\rho N` rows, from the required edges
   alone and from the graphs of steps 2 and before; then SAEM under the best, and back to 2.

The end is where the class of step 4 stays, or its score on the draws does not grow by more than
twice its standard error over them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from scipy.special import chdtri, chndtrinc, xlogy

from inference.base.drawing import draw
from inference.base.gibbs import Latents
from inference.base.steps import DrawSteps
from inference.base.structure import Problem, draw_steps_of
from inference.causal.edges import EdgeProbabilities, summarised
from inference.causal.graphs import Cpdag, as_names
from inference.causal.hill_climbing import MOST_PARENTS, RowScores, hill_climb, reachable
from inference.causal.item_alternatives import ItemAlternative, item_alternatives
from inference.causal.knowledge import BackgroundKnowledge, Constraints, constraints_of
from inference.causal.pdags import Pdag, class_of, matrix_of_columns, members
from inference.causal.scores import BIC, Score, score_rule
from inference.fitting.problem import problem_of
from inference.programs.program import Params
from ppl_models.descriptions.attribute_distribution import Independent
from ppl_models.descriptions.dag import Dag
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number, check_size

OWNER = "structural_em"
LEAST_SHARE = 0.03  # rho below it is not told from this
THIN = 2  # sweeps between draws
FIRST, EXPANDED, PRUNED = (60, 15), (40, 15), (15, 15)  # SAEM: burn-in, averaged
RESAMPLED = (8, 8)  # of a bootstrap replicate
RESAMPLED_DRAWS = 3
SPREAD = 2.0  # standard errors by which a new class must be better
FIRM = 0.99  # probability of an arrow, below which its direction is left open


@shows_briefly
@dataclass(frozen=True, eq=False)
class AttributeNetwork:
    """Graph among many attributes by structural EM.

    Args:
        graph: its CPDAG, or MPDAG where edges are known.
        edges: (cause, effect) of one DAG of the class, for ``root=Dag(edges)``.
        params: estimates of the model with that root, by site.
        share: rho of each pair, (K, K): the share of information that measurement leaves.
        information: I(i; j | the other parents of j) of each edge of that DAG, nats, (K, K)
            symmetric, zero elsewhere.
        presence: share of the last three cycles whose graph joined each pair, (K, K).
        num_rows: N.
        worth: rows with known attributes that the draws were counted as.
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
    score: Score | None = None,
    knowledge: BackgroundKnowledge | None = None,
    max_parents: int = MOST_PARENTS,
    num_cycles: int = 4,
    num_draws: int = 10,
    num_replicates: int = 0,
    seed: Seed = 0,
    names: Sequence[str] | None = None,
) -> AttributeNetwork:
    """Graph among many attributes from their items, by structural EM; see the module.

    Args:
        model: attributes with items that ask for some of them, such as
            ``LatentAttributeModel(q_matrix, ...)``; its root is replaced.
        data: (N, J), NaN where missing.
        score: of families; ``BIC()`` if None.
        knowledge: required and forbidden edges, and tiers.
        max_parents: of one attribute.
        num_cycles: of expansion and pruning, at most.
        num_draws: M, of the attributes of each row. The share rho of noisy items needs about ten.
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
        check_size(OWNER, name, value, least=least)
    rule = BIC() if score is None else score_rule(OWNER, score)
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
    )
    state = chain.begin(start)
    graphs: list[tuple[int, ...]] = []
    settled = False
    for _ in range(num_cycles):
        bits = chain.draws(state)
        parents = chain.expand(state, bits)
        state = chain.fitted(state, parents, bits, EXPANDED)
        bits = chain.draws(state)
        found, worth = chain.prune(bits, [parents, *graphs[-1:]])
        if graphs and chain.is_no_better(bits, found, graphs[-1], worth):
            found, settled = graphs[-1], True
        state = chain.fitted(state, found, bits, PRUNED)
        graphs.append(found)
        if settled:
            break
    bits, found = chain.draws(state), graphs[-1]
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
        worth,
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
    """

    steps: DrawSteps
    params: Params
    latents: Latents
    parents: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Chain:
    """State that all rounds share: problem, background knowledge, score, random numbers."""

    problem: Callable[[Sequence[int]], Problem]
    latent: str
    known: Constraints
    score: Score
    max_parents: int
    num_draws: int
    generator: torch.Generator

    def begin(self, problem: Problem) -> _State:
        """SAEM under independent attributes."""
        steps = _steps_of(problem)
        params = cast(Params, problem.structure.start(problem, "random", 1))
        latents = steps.gibbs.begin(params, self.generator)
        size = latents[self.latent].shape[1]
        return self._climbed(_State(steps, params, latents, (0,) * size), FIRST)

    def fitted(
        self, state: _State, parents: tuple[int, ...], bits: np.ndarray, sweeps: tuple[int, int]
    ) -> _State:
        """SAEM under another graph: items and rows as they are, tables from the draws."""
        problem = self.problem(parents)
        root = problem.structure.root
        assert root is not None
        drawn = torch.from_numpy(bits.reshape(-1, bits.shape[2]))
        drawn = drawn.to(next(iter(state.params.values())))
        old = set(state.steps.gibbs.root.sites())  # type: ignore[attr-defined]
        items = {name: value for name, value in state.params.items() if name not in old}
        params = items | root.start(drawn)
        return self._climbed(_State(_steps_of(problem), params, state.latents, parents), sweeps)

    def _climbed(self, state: _State, sweeps: tuple[int, int]) -> _State:
        burn_in, kept = sweeps
        params, latents, averages = state.params, state.latents, None
        for number in range(burn_in + kept):
            latents, chances = state.steps.gibbs.sweep(params, latents, self.generator)
            new, _ = state.steps.statistics(params, latents, chances)
            rate = 1 / max(1, number - burn_in + 1)
            averages = state.steps.average(averages, new, rate)
            params = state.steps.maximise(averages, params)
        return _State(state.steps, params, latents, state.parents)

    def draws(self, state: _State) -> np.ndarray:
        """Draws of the attributes of all rows, uint8 (M, N, K)."""
        latents, out = state.latents, []
        for _ in range(self.num_draws):
            for _ in range(THIN):
                latents, _ = state.steps.gibbs.sweep(state.params, latents, self.generator)
            out.append(latents[self.latent][0].mT.to(torch.uint8).cpu().numpy())
        return np.stack(out)

    def expand(self, state: _State, bits: np.ndarray) -> tuple[int, ...]:
        """The graph with arrows added whose score statistic pays for its parameters."""
        num_rows, size = bits.shape[1:]
        rho = np.clip(shares(bits), LEAST_SHARE, None)
        scores = RowScores(bits.reshape(-1, size), num_rows, _LogLikelihood())
        parents, price = list(state.parents), 0.5 * np.log(num_rows)
        excluded = matrix_of_columns(self.known.excluded)
        gains = np.empty((size, size))

        def renew(j: int) -> None:
            number = parents[j].bit_count()
            gains[:, j] = scores.gains(j, parents[j]) / rho[:, j] - price * 2**number
            if number >= self.max_parents:
                gains[:, j] = -np.inf

        for j in range(size):
            renew(j)
        below = reachable(matrix_of_columns(parents))
        while True:
            allowed = np.where(below.T | excluded, -np.inf, gains)
            i, j = (int(k) for k in np.unravel_index(int(allowed.argmax()), allowed.shape))
            if not allowed[i, j] > 0:
                return tuple(parents)
            parents[j] |= 1 << i
            below |= np.outer(below[:, i], below[j])
            renew(j)

    def prune(
        self, bits: np.ndarray, starts: Sequence[tuple[int, ...]]
    ) -> tuple[tuple[int, ...], float]:
        """The best DAG on new draws, from nothing and from given ones, and what rows are worth."""
        joined = _joined(starts[0])
        mean = float(shares(bits)[joined].mean()) if joined.any() else 1.0
        worth = bits.shape[1] * float(np.clip(mean, LEAST_SHARE, 1.0))
        scores = RowScores(bits.reshape(-1, bits.shape[2]), worth, self.score)
        ends = [
            hill_climb(scores, self.known, start, self.max_parents) for start in (None, *starts)
        ]
        return max(ends, key=lambda end: end[1])[0], worth

    def is_no_better(
        self, bits: np.ndarray, new: tuple[int, ...], old: tuple[int, ...], worth: float
    ) -> bool:
        """Same class, or a gain within its standard error over the draws."""
        if class_of(new) == class_of(old):
            return True
        gains = []
        for drawn in bits:
            scores = RowScores(drawn, worth, self.score)
            gains.append(
                sum(
                    scores.local(k, one) - scores.local(k, two)
                    for k, (one, two) in enumerate(zip(new, old, strict=True))
                    if one != two
                )
            )
        return float(np.mean(gains)) <= SPREAD * float(np.std(gains, ddof=1)) / len(gains) ** 0.5


class _LogLikelihood:
    """The log-likelihood as a score: no price for parameters."""

    def of_set(self, counts: np.ndarray, size: int, num_rows: float) -> np.ndarray:
        value: np.ndarray = xlogy(counts, counts).sum(-1)
        return value


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
    own = dataclasses.replace(chain, num_draws=RESAMPLED_DRAWS)
    graphs: list[Pdag] = []
    worth = 0.0
    for _ in range(num_replicates):
        rows = torch.from_numpy(rng.integers(0, num_rows, num_rows))
        latents = {name: value[..., rows] for name, value in state.latents.items()}
        sampled = _State(state.steps.rows(rows), state.params, latents, state.parents)
        bits = own.draws(own._climbed(sampled, RESAMPLED))
        parents, worth = own.prune(bits, [found])
        graphs.append(chain.known.graph_of(parents))
    counts = {graph: graphs.count(graph) for graph in dict.fromkeys(graphs)}
    matrices = np.stack([graph.matrix for graph in counts])
    shares_of = np.array(list(counts.values())) / num_replicates
    return summarised(names, matrices, shares_of, num_replicates, False, worth, 0.0)
