r"""Tables that might as well be the true one: draws to carry the uncertainty of a fit into its
graph.

Three kinds, from the least asked for to the most:

* :func:`dirichlet_tables` needs the table and what it is worth in rows;
* :func:`resampled_tables` needs the posterior profile probabilities: a Bayesian bootstrap of the
  rows (Rubin 1981), the table refitted by EM;
* :func:`imputed_tables` completes every row with a profile, by Gibbs sampling between profiles and
  table (Tanner and Wong 1987).

They are not used alike. Draws around an estimate differ from the truth by the error of the estimate
*and* by their own spread around it, twice the variance, and what depends by chance then looks
stronger than it is; score them at half the number of rows (which finds weak edges less often) or
use them for intervals of information only. A completed table holds N rows, of which some are
guessed under a table that no graph binds. Where the estimate is worth n rows its error has variance
1/n, and the guesses add 1/n - 1/N: score it at the rows of a sample with that variance
(:func:`completed_rows`),

.. math:: \Bigl(\frac2n - \frac1N\Bigr)^{-1} = \frac{N n}{2 N - n},

which is N where every profile is known, and half of n where hardly any is.

The last two know the likelihood of the items through :math:`L_{i\alpha} \propto \varphi_{i\alpha} /
p_\alpha`, the item parameters staying where they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from inference.causal.tables import as_table, as_tables, check_rows
from ppl_models.parts.validation import check_size, is_number

WARM_UP = 50  # sweeps before the first table is kept
CHUNK = 2**22  # numbers held at once


def dirichlet_tables(
    table: Any, num_rows: float, num_draws: int = 200, seed: int = 0, prior_rows: float = 1.0
) -> np.ndarray:
    """Draws of the table given that it is worth so many rows: Dirichlet(n p + a / 2^K), (num_draws,
    2^K).

    Args:
        table: profile probabilities, (2^K,) or (2, ..., 2).
        num_rows: n, see :func:`inference.causal.effective_rows`.
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
        num_draws, seed: how many, and of what seed.
        num_iterations: of EM at most; each draw starts at the fitted table and stops when no
            probability moves by 1e-6.

    Raises:
        ValueError: for other shapes, or numbers out of range.
    """
    owner = "resampled_tables"
    ratios, weights = likelihoods_of(owner, posterior, table)
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
    """What a table of completed rows is worth, where that of the fit is worth ``num_rows`` of
    ``observed_rows``; see above.

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
    """Shares of profiles among the rows, every row completed with a profile drawn from its
    posterior, (num_draws, 2^K).

    Between completions the table is drawn from its Dirichlet given the last one; 50 sweeps go
    before the first that is kept. Score them at N n / (2 N - n) rows, n being what the table is
    worth (:func:`inference.causal.effective_rows`).

    Args:
        posterior: profile probabilities of every row at the fit, (N, 2^K).
        table: that of the fit; None for the mean of the posterior.
        num_draws, seed: how many, and of what seed.
        prior_rows: what the Dirichlet prior is worth in rows, spread evenly; 1 agrees with the
            score ``BDeu()``.
        thin: sweeps for each table kept.

    Raises:
        ValueError: for other shapes, or numbers out of range.
    """
    owner = "imputed_tables"
    ratios, current = likelihoods_of(owner, posterior, table)
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


def likelihoods_of(owner: str, posterior: Any, table: Any) -> tuple[np.ndarray, np.ndarray]:
    """L up to a factor for every row, (N, 2^K), zero for profiles of probability zero; and the
    table.
    """
    rows = as_tables(owner, posterior, "posterior")
    weights = rows.mean(0) if table is None else as_table(owner, table)
    if len(weights) != rows.shape[1]:
        raise ValueError(
            f"{owner}: table must hold {rows.shape[1]} profiles like posterior, got {len(weights)}"
        )
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
    if not is_number(prior_rows) or prior_rows <= 0:
        raise ValueError(f"{owner}: prior_rows must be a positive number, got {prior_rows!r}")
