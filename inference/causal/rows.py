r"""Posteriors of rows: the worth of a table, draws of it, and graphs refitted to rows.

All three take the posterior probabilities of profiles, :math:`\varphi_{i\alpha} \propto p_\alpha
L_{i\alpha}` of row i, (N, 2^K), and know the likelihood of the items through :math:`L_{i\alpha}
\propto \varphi_{i\alpha} / p_\alpha`, the item parameters staying where they are.

**Effective rows.** The score of row i for the table is :math:`\varphi_{i\alpha} / p_\alpha`, and
the Fisher information of a row, on changes of the table that keep its sum, is the mean of the
product of scores. With known profiles, :math:`\varphi` is 0 or 1 and that information is
:math:`\mathrm{diag}(1/p)`. In coordinates scaled by :math:`\sqrt p` the latter is the identity, and
the former

.. math:: S = \frac1N \sum_i r_i r_i^\top, \qquad r_{i\alpha} = \varphi_{i\alpha} / \sqrt{p_\alpha},

whose eigenvalues lie in [0, 1]: the share of the information about each direction that survives not
seeing the profiles (the missing-information principle, Orchard and Woodbury 1972; Louis 1982). For
a function f of profiles, :math:`\sqrt N` times the error of its estimated mean has variance

.. math::

    g^\top S^{-1} g \quad\text{instead of}\quad g^\top g, \qquad g_\alpha = \sqrt{p_\alpha}
    (f_\alpha - \bar f),

so the variance is inflated by :math:`\lambda_f = g^\top S^{-1} g / g^\top g \ge 1`. (S is taken on
changes that keep the sum of the table: those orthogonal to :math:`\sqrt p`.) What a graph hangs on
is how attributes depend on each other, two by two: the effective number of rows is N over the mean
of :math:`\lambda_f` over centred products of two attributes, :math:`f = (\alpha_j -
\bar\alpha_j)(\alpha_k - \bar\alpha_k)`. At that number of rows the statistic of a test of
independence has its chi-square distribution, and a needless edge is found as often as with known
profiles. High-order contrasts are ill determined and do not count.

Item parameters that were estimated along with the table cost information too. Given their scores by
row, S is replaced by its Schur complement, :math:`S - A B^{-1} A^\top` with :math:`A = \frac1N
\sum_i r_i t_i^\top`, :math:`B = \frac1N \sum_i t_i t_i^\top`. Without them the effective number of
rows is an upper bound.

**Draws.** :func:`dirichlet_tables` needs the table and what it is worth in rows;
:func:`resampled_tables` is a Bayesian bootstrap of the rows (Rubin 1981), the table refitted by EM;
:func:`imputed_tables` completes every row with a profile, by Gibbs sampling between profiles and
table (Tanner and Wong 1987). They are not used alike. Draws around an estimate differ from the
truth by the error of the estimate *and* by their own spread around it, twice the variance, and what
depends by chance then looks stronger than it is; score them at half the number of rows (which finds
weak edges less often) or use them for intervals of information only. A completed table holds N
rows, of which some are guessed under a table that no graph binds. Where the estimate is worth n
rows its error has variance 1/n, and the guesses add 1/n - 1/N: score it at the rows of a sample
with that variance (:func:`completed_rows`),

.. math:: \Bigl(\frac2n - \frac1N\Bigr)^{-1} = \frac{N n}{2 N - n},

which is N where every profile is known, and half of n where hardly any is.

**Graphs on the rows.** A search sees the table only. Here the likelihood of the answers decides:
under a DAG the table is :math:`p_\alpha = \prod_k P(\alpha_k \mid \alpha_{pa(k)})`, and EM
alternates (the M-step of structural EM, Friedman 1998)

.. math::

    n_\alpha = \sum_i \frac{p_\alpha L_{i\alpha}}{\sum_{\alpha'} p_{\alpha'} L_{i\alpha'}}, \qquad
    P(\alpha_k \mid \alpha_{pa(k)}) = \frac{n_{\alpha_k, \alpha_{pa(k)}}}{n_{\alpha_{pa(k)}}} .

DAGs with the same independences reach the same likelihood. BIC counts :math:`\sum_k 2^{|pa(k)|}`
probabilities of a DAG and :math:`2^K - 1` of the free table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference.causal.graphs import Cpdag, as_names, check_graph_matrix, pdag_of
from inference.causal.pdags import class_of, extension_of, order_of
from inference.causal.tables import Marginals, as_table, as_tables, check_rows, profiles
from ppl_models.parts.repr import counted, shows_briefly
from ppl_models.parts.validation import check_number, check_size

MOST_PROFILES = 2048  # whose information is inverted as one matrix
LEAST_ROWS = 1e-6  # expected of a profile; that of fewer has probability zero
CHUNK = 2**22  # numbers of scaled posteriors held at once


@shows_briefly
@dataclass(frozen=True)
class EffectiveRows:
    """Worth of a table in rows with known profiles.

    Args:
        num_rows: N over the mean inflation of pairs: what searches and tests should be told.
        observed_rows: N.
        inflation_mains: of the variance of each attribute's share, (K,).
        inflation_pairs: of that of each pair's covariance, (K, K), the diagonal that of the
            attributes' shares.
        dropped_profiles: profiles of probability zero, which the information cannot speak of.
        undetermined: directions of the table that hold less than a row's information in all rows
            together; they are counted as one row's worth.
        items_estimated: whether the scores of other parameters were given.
    """

    num_rows: float
    observed_rows: int
    inflation_mains: np.ndarray
    inflation_pairs: np.ndarray
    dropped_profiles: int
    undetermined: int
    items_estimated: bool

    def text(self) -> str:
        """Findings in words."""
        lines = [
            f"The {self.observed_rows:,} rows tell as much about the attributes as"
            f" {counted(round(self.num_rows), 'row')} would whose profiles were known"
            f" ({100 * self.num_rows / self.observed_rows:.0f} %)."
        ]
        if not self.items_estimated:
            lines.append("The item parameters were taken as known, so this is an upper bound.")
        if self.dropped_profiles:
            num = self.dropped_profiles
            has, does = (" has", "does") if num == 1 else ("s have", "do")
            lines.append(f"{num} profile{has} probability zero and {does} not count.")
        if self.undetermined:
            lines.append(
                f"{counted(self.undetermined, 'direction')} of the table"
                f" {'is' if self.undetermined == 1 else 'are'} hardly determined by the data: the"
                " items do not tell some profiles apart. Look at the identifiability of the item"
                " design before drawing a graph."
            )
        return "\n".join(lines)


def effective_rows(posterior: Any, table: Any = None, other_scores: Any = None) -> EffectiveRows:
    """The effective number of rows from the posterior profile probabilities at the fit.

    Args:
        posterior: (N, 2^K), each row sums to one.
        table: the fitted profile probabilities, at which the posterior was computed; None for the
            mean of the posterior, which is the same at a maximum of the likelihood. Elsewhere than
            at a maximum the answer means little.
        other_scores: derivatives of each row's log-likelihood by the other parameters (item
            parameters), (N, M); None where those are known.

    Raises:
        ValueError: for other shapes, rows that do not sum to one, or more than 2,048 profiles.
    """
    owner = "effective_rows"
    rows, weights = _rows_and_table(owner, posterior, table)
    if rows.shape[1] > MOST_PROFILES:
        raise ValueError(
            f"{owner}: at most {MOST_PROFILES} profiles can be looked at together, got"
            f" {rows.shape[1]}"
        )
    scores = None
    if other_scores is not None:
        scores = np.asarray(other_scores, dtype=np.float64)
        if scores.ndim != 2 or len(scores) != len(rows) or not np.isfinite(scores).all():
            raise ValueError(
                f"{owner}: other_scores must be finite, with shape ({len(rows)}, M), got shape"
                f" {scores.shape}"
            )
    kept = weights * len(rows) > LEAST_ROWS
    information = _information(rows, weights, kept, scores)
    values, vectors = np.linalg.eigh(information)
    least = 1 / len(rows)
    undetermined = int((values < least).sum())
    values = np.clip(values, least, None)
    bits = profiles(len(weights).bit_length() - 1)[kept].astype(np.float64)
    bits -= weights[kept] @ bits
    num_attributes = bits.shape[1]
    inflation = np.full((num_attributes, num_attributes), math.nan)
    for i, j in itertools.combinations_with_replacement(range(num_attributes), 2):
        function = bits[:, i] if i == j else bits[:, i] * bits[:, j]
        inflation[i, j] = inflation[j, i] = _inflation(function, weights[kept], values, vectors)
    pairs = inflation[np.triu_indices(num_attributes, 1 if num_attributes > 1 else 0)]
    mean = float(np.nanmean(pairs)) if np.isfinite(pairs).any() else math.nan
    if not math.isfinite(mean):
        raise ValueError(
            f"{owner}: every pair of attributes is constant under the table; there is nothing to"
            " learn about"
        )
    # an attribute known less than not at all is rounding: no inflation below 1
    return EffectiveRows(
        len(rows) / max(mean, 1.0),
        len(rows),
        inflation.diagonal().copy(),
        inflation,
        int((~kept).sum()),
        undetermined,
        scores is not None,
    )


def _information(
    rows: np.ndarray, weights: np.ndarray, kept: np.ndarray, scores: np.ndarray | None
) -> np.ndarray:
    """S on the kept profiles, other parameters projected out, and 1 along the fixed sum."""
    root, size = np.sqrt(weights[kept]), int(kept.sum())
    information = np.zeros((size, size))
    cross = np.zeros((size, 0 if scores is None else scores.shape[1]))
    step = max(1, CHUNK // size)
    for start in range(0, len(rows), step):
        scaled = rows[start : start + step, kept] / root
        information += scaled.T @ scaled
        if scores is not None:
            cross += scaled.T @ scores[start : start + step]
    information /= len(rows)
    if scores is not None and scores.shape[1]:
        cross /= len(rows)
        own = scores.T @ scores / len(rows)
        information = information - cross @ np.linalg.pinv(own, hermitian=True) @ cross.T
    root = root / np.linalg.norm(root)
    across = information @ root
    return (
        information
        - np.outer(root, across)
        - np.outer(across, root)
        + (1 + root @ across) * np.outer(root, root)
    )


def _inflation(
    function: np.ndarray, weights: np.ndarray, values: np.ndarray, vectors: np.ndarray
) -> float:
    """Inflation g' S^-1 g / g' g; NaN for a function that is constant under the table."""
    centred = np.sqrt(weights) * (function - weights @ function / weights.sum())
    size = float(centred @ centred)
    if size < 1e-12:
        return math.nan
    return float(((vectors.T @ centred) ** 2 / values).sum()) / size


WARM_UP = 50  # sweeps before the first table is kept


def dirichlet_tables(
    table: Any, num_rows: float, num_draws: int = 200, seed: int = 0, prior_rows: float = 1.0
) -> np.ndarray:
    """Draw tables worth so many rows: Dirichlet(n p + a / 2^K), (num_draws, 2^K).

    Args:
        table: profile probabilities, (2^K,) or (2, ..., 2).
        num_rows: n, see :func:`inference.causal.rows.effective_rows`.
        num_draws: how many.
        seed: of the draws.
        prior_rows: a, what the prior is worth in rows, spread evenly.

    Raises:
        ValueError: for what is no table, or numbers out of range.
    """
    owner = "dirichlet_tables"
    checked, rows = as_table(owner, table), check_rows(owner, num_rows)
    _check(owner, num_draws, seed, prior_rows)
    return _dirichlet(
        np.broadcast_to(rows * checked + prior_rows / len(checked), (num_draws, len(checked))),
        np.random.default_rng(seed),
    )


def resampled_tables(
    posterior: Any,
    table: Any = None,
    num_draws: int = 200,
    seed: int = 0,
    num_iterations: int = 200,
) -> np.ndarray:
    r"""Tables refitted to rows with random weights, (num_draws, 2^K).

    Weights :math:`w` are flat Dirichlet, and the table follows :math:`p_\alpha \leftarrow \sum_i
    w_i \, p_\alpha L_{i\alpha} / \sum_{\alpha'} p_{\alpha'} L_{i\alpha'}`.

    Args:
        posterior: profile probabilities of every row at the fit, (N, 2^K).
        table: that of the fit; None for the mean of the posterior.
        num_draws: how many.
        seed: of the draws.
        num_iterations: of EM at most; each draw starts at the fitted table and stops when no
            probability moves by 1e-6.

    Raises:
        ValueError: for other shapes, or numbers out of range.
    """
    owner = "resampled_tables"
    ratios, weights = _likelihoods(owner, posterior, table)
    _check(owner, num_draws, seed)
    check_size(owner, "num_iterations", num_iterations)
    rng = np.random.default_rng(seed)
    out = np.empty((num_draws, len(weights)))
    for b in range(num_draws):
        share = rng.standard_exponential(len(ratios))
        share /= share.sum()
        current = weights
        for _ in range(num_iterations):
            evidence = ratios @ current  # (N,)
            new = current * ((share / evidence) @ ratios)
            new /= new.sum()
            moved = float(np.abs(new - current).max())
            current = new
            if moved < 1e-6:
                break
        out[b] = current
    return out


def completed_rows(observed_rows: float, num_rows: float) -> float:
    """Worth of a completed table, where the fit's is worth ``num_rows``; see above.

    A score needs one row at least.
    """
    worth = min(float(num_rows), float(observed_rows))
    return max(1.0, observed_rows * worth / (2 * observed_rows - worth))


def imputed_tables(
    posterior: Any,
    table: Any = None,
    num_draws: int = 200,
    seed: int = 0,
    prior_rows: float = 1.0,
    thin: int = 1,
) -> np.ndarray:
    """Impute the profile of every row from its posterior: tables, (num_draws, 2^K).

    Between completions the table is drawn from its Dirichlet given the last one; 50 sweeps go
    before the first that is kept. Score them at N n / (2 N - n) rows, n being what the table is
    worth (:func:`inference.causal.rows.effective_rows`).

    Args:
        posterior: profile probabilities of every row at the fit, (N, 2^K).
        table: that of the fit; None for the mean of the posterior.
        num_draws: how many.
        seed: of the draws.
        prior_rows: what the Dirichlet prior is worth in rows, spread evenly; 1 agrees with the
            score ``BDeu()``.
        thin: sweeps for each table kept.

    Raises:
        ValueError: for other shapes, or numbers out of range.
    """
    owner = "imputed_tables"
    ratios, current = _likelihoods(owner, posterior, table)
    _check(owner, num_draws, seed, prior_rows)
    check_size(owner, "thin", thin)
    rng = np.random.default_rng(seed)
    out = np.empty((num_draws, len(current)))
    for sweep in range(-WARM_UP, num_draws * thin):
        counts = _completed(ratios, current, rng)
        current = _dirichlet((counts + prior_rows / len(current))[None], rng)[0]
        if sweep >= 0 and sweep % thin == thin - 1:
            out[sweep // thin] = counts / counts.sum()
    return out


def _completed(ratios: np.ndarray, table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts of profiles, one drawn for each row."""
    counts = np.zeros(len(table), dtype=np.int64)
    step = max(1, CHUNK // len(table))
    for start in range(0, len(ratios), step):
        reached = np.cumsum(ratios[start : start + step] * table, 1)
        chosen = (reached < rng.random((len(reached), 1)) * reached[:, -1:]).sum(1)
        counts += np.bincount(np.minimum(chosen, len(table) - 1), minlength=len(table))
    return counts


def _rows_and_table(owner: str, posterior: Any, table: Any) -> tuple[np.ndarray, np.ndarray]:
    rows = as_tables(owner, posterior, "posterior")
    weights = rows.mean(0) if table is None else as_table(owner, table)
    if len(weights) != rows.shape[1]:
        raise ValueError(
            f"{owner}: table must hold {rows.shape[1]} profiles like posterior, got {len(weights)}"
        )
    return rows, weights


def _likelihoods(owner: str, posterior: Any, table: Any) -> tuple[np.ndarray, np.ndarray]:
    """L up to a factor for every row, (N, 2^K), and the table."""
    rows, weights = _rows_and_table(owner, posterior, table)
    ratios = np.divide(rows, weights, out=np.zeros_like(rows), where=weights > 0)
    if not (ratios.max(1) > 0).all():
        raise ValueError(
            f"{owner}: row {int((ratios.max(1) <= 0).argmax())} of posterior lies on profiles of"
            " probability zero"
        )
    return ratios / ratios.max(1, keepdims=True), weights


def _dirichlet(concentrations: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One draw a row, through gammas; concentrations near zero give exact zeros, never NaN."""
    gammas = rng.standard_gamma(concentrations)
    drawn: np.ndarray = gammas / gammas.sum(1, keepdims=True)
    return drawn


def _check(owner: str, num_draws: int, seed: int, prior_rows: float = 1.0) -> None:
    check_size(owner, "num_draws", num_draws)
    check_size(owner, "seed", seed, least=0)
    check_number(owner, "prior_rows", prior_rows, "be a positive number", above=0)


TOLERANCE = 1e-8  # of the log-likelihood, relative


@dataclass(frozen=True)
class GraphOnRows:
    """Fit of one graph to the rows.

    Args:
        graph: its CPDAG, or MPDAG where one was given; None for the free table.
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
            graph = found.graph
            shown = "the free table" if graph is None else "; ".join(graph.text().splitlines())
            lines.append(
                f"  {found.bic:+.1f} ({found.num_free} probabilities, log-likelihood"
                f" {found.gain:+.1f}): {shown}"
            )
        if all(found.bic > 0.05 for found in self.ranked if found.graph is not None):
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
        ValueError: for no graphs, one that stands for no DAG, one on another number of attributes
            or with their names in another order, or what are no probabilities.
    """
    owner = "compare_on_rows"
    ratios, weights = _likelihoods(owner, posterior, table)
    check_size(owner, "num_iterations", num_iterations)
    num_attributes = len(weights).bit_length() - 1
    if not len(graphs):
        raise ValueError(f"{owner}: at least one graph was expected, got none")
    own = next((graph.names for graph in graphs if isinstance(graph, Cpdag)), None)
    labels = as_names(owner, own if names is None else names, num_attributes)
    dags: dict[Any, tuple[tuple[int, ...], np.ndarray]] = {}
    for graph in graphs:
        matrix = check_graph_matrix(owner, graph)
        named = tuple(graph.names) if isinstance(graph, Cpdag) else tuple(labels)
        if named != tuple(labels) and set(named) == set(labels):
            raise ValueError(
                f"{owner}: graphs on the attributes in one order, {', '.join(labels)}, were"
                f" expected, got one on {', '.join(named)}"
            )
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
        graph_class = class_of(parents)
        shown = matrix if isinstance(graph, Cpdag) else graph_class.matrix
        dags.setdefault(graph_class, (parents, shown))
    free, num_rows = _log_likelihood(ratios, weights), len(ratios)
    found = [GraphOnRows(None, 0.0, len(weights) - 1, 0.0)]
    for parents, shown in dags.values():
        gain = _fitted(ratios, weights, parents, num_iterations) - free
        num_free = sum(2 ** mask.bit_count() for mask in parents)
        bic = -2 * gain + (num_free - len(weights) + 1) * math.log(num_rows)
        found.append(GraphOnRows(Cpdag(shown, labels), gain, num_free, bic))
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
    """Nearest table of the DAG: the product of its conditional probabilities."""
    marginals, out = Marginals(table), np.ones(len(table))
    for k, mask in enumerate(parents):
        family = marginals.of(mask | 1 << k)[_places(mask | 1 << k, bits)]
        own = marginals.of(mask)[_places(mask, bits)]
        # even where no row has those parents
        out *= np.divide(family, own, out=np.full_like(family, 0.5), where=own > 0)
    return out


def _places(mask: int, bits: np.ndarray) -> np.ndarray:
    """Place of each profile in the marginal of a set."""
    places = np.zeros(len(bits), dtype=np.int64)
    for k in range(bits.shape[1]):
        if mask >> k & 1:
            places = 2 * places + bits[:, k]
    return places


def _log_likelihood(ratios: np.ndarray, table: np.ndarray) -> float:
    return float(np.log(ratios @ table).sum())
