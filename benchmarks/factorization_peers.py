"""Plain fits of factorizations beside scikit-learn's, both in one process on the same data.

Sparse counts: topics of 11,000 texts in 1,000 words, 2.6 % of the cells non-zero, as a CSR matrix,
against ``NMF`` (Kullback-Leibler, multiplicative updates) of the same matrix; non-negative least
squares on the digits against ``NMF`` (coordinate descent); sparse codes of 1,000 rows in 20 items
against ``DictionaryLearning`` with positive codes; factor analysis on the measurements of
breast cancer and on the digits against ``FactorAnalysis``. Each line gives the seconds of the
processor of both, their ratio, and what both reached: divergence and squares are better low,
log-likelihoods high. ``peak_mb`` is the memory that our fit took beside the data.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from _bench import Peak, command_line, run, seeds, timed
from scipy import sparse
from scipy.special import xlogy
from sklearn import decomposition
from sklearn.datasets import load_breast_cancer, load_digits

from inference import Fit, fit
from inference.inspection import column_recovery
from inference.structures.dictionary.decoders import unit_columns
from ppl_models import (
    FactorAnalysis,
    GaussianFactorization,
    PoissonFactorization,
    SparseCoding,
)

NUM_TOPICS, TEXT_LENGTH = 10, 45
NUM_ITEMS, NUM_COLUMNS, SPARSITY, NOISE = 20, 30, 3, 0.05  # of sparse codes
SAME_COLUMN = 0.01  # squared distance of unit columns, 5.7 degrees


def texts(num_texts: int, num_words: int, seed: int) -> sparse.csr_array:
    """Counts of words in texts of a few topics each, none of them empty."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(num_words, 0.05), NUM_TOPICS)
    shares = rng.dirichlet(np.full(NUM_TOPICS, 0.2), num_texts)
    lengths = rng.gamma(1.5, TEXT_LENGTH / 1.5, num_texts)
    parts = [
        sparse.csr_array(rng.poisson(lengths[rows, None] * shares[rows] @ topics))
        for rows in np.array_split(np.arange(num_texts), max(1, num_texts // 1000))
    ]
    table = sparse.csr_array(sparse.vstack(parts)).astype(float)
    return table[np.flatnonzero(table.sum(1) > 0)]


def divergence(table: sparse.csr_array, z: np.ndarray, phi: np.ndarray) -> float:
    """Kullback-Leibler divergence of the counts from their means."""
    rows = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    mean = np.einsum("ck,ck->c", z[rows], phi.T[table.indices]).clip(1e-12)
    fitted = (z.sum(0) * phi.sum(1)).sum()
    return float((xlogy(table.data, table.data / mean) - table.data).sum() + fitted)


def sparse_rows(num_rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A dictionary (J, m) of random directions, and noisy rows (N, J) of three columns each."""
    generator = torch.Generator().manual_seed(100 + seed)
    kind = {"generator": generator, "dtype": torch.float64}
    dictionary = unit_columns(torch.randn(NUM_ITEMS, NUM_COLUMNS, **kind))
    chosen = torch.rand(num_rows, NUM_COLUMNS, generator=generator).topk(SPARSITY, -1).indices
    codes = torch.zeros(num_rows, NUM_COLUMNS, dtype=torch.float64)
    codes.scatter_(-1, chosen, 0.5 + torch.rand(num_rows, SPARSITY, **kind))
    return dictionary, codes @ dictionary.T + NOISE * torch.randn(num_rows, NUM_ITEMS, **kind)


def factors(found: Fit) -> tuple[np.ndarray, np.ndarray]:
    """Activities and signatures."""
    assert found.local is not None
    return found.local["activities"].numpy(), found.params["signatures"].numpy()


def line(job: str, table: Any, ours: dict[str, float], theirs: dict[str, float]) -> dict[str, Any]:
    """Sizes and seconds of a pair."""
    return {
        "job": job,
        "rows": table.shape[0],
        "columns": table.shape[1],
        "ours_s": ours["processor"],
        "theirs_s": theirs["processor"],
        "ratio": round(ours["processor"] / max(theirs["processor"], 0.01), 2),
    }


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line a job and seed."""
    fit(PoissonFactorization(30, 2), texts(50, 30, 0))  # what is imported and prepared once
    for seed in seeds(args):
        table = texts(args.texts, args.words, seed)
        with Peak() as peak:
            own, ours = timed(
                partial(fit, PoissonFactorization(args.words, NUM_TOPICS), table, seed=seed)
            )
        peer = decomposition.NMF(
            NUM_TOPICS, solver="mu", beta_loss="kullback-leibler", random_state=seed
        )
        activities, theirs = timed(partial(peer.fit_transform, table))
        yield line("sparse counts", table, ours, theirs) | {
            "seed": seed,
            "nonzero": round(table.nnz / np.prod(table.shape), 4),
            "ours_kl": round(divergence(table, *factors(own)), 1),
            "theirs_kl": round(divergence(table, activities, peer.components_), 1),
            "peak_mb": round(peak.extra / 2**20, 1),
            "data_mb": round((table.data.nbytes + table.indices.nbytes) / 2**20, 1),
        }
        truth, table = sparse_rows(args.sparse, seed)
        model = SparseCoding(NUM_ITEMS, NUM_COLUMNS, SPARSITY, noise=None)
        own, ours = timed(partial(fit, model, table, seed=seed))
        peer = decomposition.DictionaryLearning(
            NUM_COLUMNS,
            alpha=0.1,
            fit_algorithm="cd",
            transform_algorithm="lasso_cd",
            positive_code=True,
            random_state=seed,
        )
        codes, theirs = timed(partial(peer.fit_transform, table.numpy()))
        yield line("sparse codes", table, ours, theirs) | {
            "seed": seed,
            "columns_true": NUM_COLUMNS,
            "ours_recovered": column_recovery(
                own.params["dictionary"], truth, SAME_COLUMN
            ).num_recovered,
            "theirs_recovered": column_recovery(
                torch.from_numpy(peer.components_.T), truth, SAME_COLUMN
            ).num_recovered,
            "ours_sse": round(float((table - own.reconstruct(table)).square().sum()), 1),
            "theirs_sse": round(float(((table.numpy() - codes @ peer.components_) ** 2).sum()), 1),
        }
    digits = load_digits().data[: args.digits]
    own, ours = timed(lambda: fit(GaussianFactorization(64, 10, nonnegative=True), digits))
    peer = decomposition.NMF(10)
    activities, theirs = timed(lambda: peer.fit_transform(digits))
    z, phi = factors(own)
    yield line("non-negative digits", digits, ours, theirs) | {
        "ours_sse": round(float(((digits - z @ phi) ** 2).sum()), 1),
        "theirs_sse": round(float(((digits - activities @ peer.components_) ** 2).sum()), 1),
    }
    breast = load_breast_cancer().data
    noisy = digits + np.random.default_rng(0).normal(0, 0.5, digits.shape)
    for job, table, k in (
        ("breast", (breast - breast.mean(0)) / breast.std(0), 4),
        ("digits", noisy, 8),
    ):
        own, ours = timed(lambda table=table, k=k: fit(FactorAnalysis(table.shape[1], k), table))
        other, theirs = timed(lambda table=table, k=k: decomposition.FactorAnalysis(k).fit(table))
        yield line(f"factor analysis, {job}", table, ours, theirs) | {
            "ours_ll": round(own.log_likelihood, 1),
            "theirs_ll": round(float(other.score(table)) * len(table), 1),
        }


def main(argv: list[str] | None = None) -> None:
    """Run with the options of the command line."""
    parser = command_line(__file__, __doc__, replicates=2, threads=1)
    parser.add_argument("--texts", type=int, default=11_000, metavar="N", help="number of texts")
    parser.add_argument("--words", type=int, default=1_000, metavar="J", help="number of words")
    parser.add_argument("--digits", type=int, default=1_797, metavar="N", help="number of digits")
    parser.add_argument("--sparse", type=int, default=1_000, metavar="N", help="rows of codes")
    small = {"replicates": 1, "texts": 300, "words": 60, "digits": 200, "sparse": 200}
    run(parser, measure, argv, small)


if __name__ == "__main__":
    main()
