"""Twelve newsgroups, Poisson deep discrete encoder (653; 8, 2) against one layer, LDA and the
unigram: perplexity and topics.

Test perplexity: four fifths of each test document's words give its latents, the others are
predicted; the same split for all models. Representative words (15) by the exclusive score, and
plain top words for a fair comparison of similarity. Published (Lee and Gu 2025, arXiv:2501.01414,
table 4): deep encoder train 322, test 398, negative coherence 270, similarity 0; LDA with 8 topics
499, 512, 276, 43. One JSON line a model and seed; needs ``20news_dde653.npz``
(``PPL_MODELS_DATA``). ``--grid``: the published nine penalties as one batch, the best by EBIC, its
fit before and after the polish (about twenty minutes on one core). Run: ``python
benchmarks/dde_newsgroups.py [--replicates 1] [--restarts 3] [--iterations 1000] [--grid]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from _bench import Lines, command_line, run, seeds
from sklearn.decomposition import LatentDirichletAllocation

from inference import EM, Fit, fit
from inference.inspection import (
    negative_coherence,
    perplexity,
    predictive_perplexity,
    representative_words,
    topic_similarity,
)
from inference.inspection.topics import top_words
from inference.selection import penalty_path
from ppl_models import DeepDiscreteEncoder, Poisson, TruncatedLasso
from ppl_models.datasets import Newsgroups, load_newsgroups, split_counts

SHARE = 0.8


def topic_scores(weights: np.ndarray, counts: np.ndarray, words: tuple[str, ...]) -> dict:
    """Coherence on training documents and similarity, by exclusive and by plain ranking."""
    exclusive, plain = representative_words(weights, words), top_words(weights, words)
    return {
        "negative_coherence": negative_coherence(exclusive, counts, words),
        "similarity": topic_similarity(exclusive),
        "negative_coherence_plain": negative_coherence(plain, counts, words),
        "similarity_plain": topic_similarity(plain),
    }


def encoder_line(sizes: tuple[int, ...], args: argparse.Namespace, seed: int) -> dict:
    news = load_newsgroups()
    num_rows = len(news.counts)
    penalty = TruncatedLasso(num_rows**0.25, 2 * num_rows**-0.375)  # a point of the published grid
    model = DeepDiscreteEncoder(len(news.words), sizes, Poisson(), penalty=penalty, bound=15.0)
    method = EM(max_iterations=args.iterations, tolerance=1e-7, parameter_tolerance=1e-3)
    result = fit(model, news.counts, method, num_restarts=args.restarts, seed=seed)
    return encoder_figures(f"deep discrete encoder {sizes}", result, news, seed)


def grid_lines(sizes: tuple[int, ...], args: argparse.Namespace, seed: int) -> list[dict]:
    """The published grid of slopes and thresholds; EBIC of polished fits decides."""
    news = load_newsgroups()
    powers = [len(news.counts) ** (q / 8) for q in (1, 2, 3)]
    grid = [TruncatedLasso(slope, 2 / inverse) for slope in powers for inverse in powers]
    model = DeepDiscreteEncoder(len(news.words), sizes, Poisson(), penalty=None, bound=15.0)
    method = EM(max_iterations=args.iterations, tolerance=1e-7, parameter_tolerance=1e-3)
    path = penalty_path(model, news.counts, grid, method, num_restarts=args.restarts, seed=seed)
    scores = [
        {"penalty": repr(p), "ebic": s} for p, s in zip(path.penalties, path.scores, strict=True)
    ]
    names = {"penalised": path.penalised[path.chosen], "polished": path.best}
    return [
        encoder_figures(
            f"deep discrete encoder {sizes}, {name}, chosen by EBIC", result, news, seed
        )
        | {"grid": scores}
        for name, result in names.items()
    ]


def encoder_figures(name: str, result: Fit, news: Newsgroups, seed: int) -> dict:
    seen, held_out = split_counts(news.test_counts, SHARE, seed=seed)
    line = {"model": name, "seconds": result.seconds, "converged": result.converged}
    line |= {"iterations": result.num_iterations, "objectives": result.restarts.objective.tolist()}
    line |= {"log_likelihood": result.log_likelihood, "parameters": result.num_parameters}
    for kind in ("mixture", "map", "marginal_draws"):
        line[f"train_perplexity_{kind}"] = predictive_perplexity(result, news.counts, latents=kind)
        line[f"test_perplexity_{kind}"] = predictive_perplexity(
            result, seen, held_out, SHARE, latents=kind
        )
    loadings = result.params["loadings_1"].numpy()
    line |= topic_scores(loadings, news.counts, news.words)
    line["topics"] = [" ".join(topic) for topic in representative_words(loadings, news.words)]
    return line


def lda_line(num_topics: int, max_iter: int, seed: int) -> dict:
    news = load_newsgroups()
    began = time.monotonic()
    lda = LatentDirichletAllocation(num_topics, max_iter=max_iter, random_state=seed).fit(
        news.counts
    )
    topics = lda.components_ / lda.components_.sum(1, keepdims=True)
    seen, held_out = split_counts(news.test_counts, SHARE, seed=seed)
    line = {"model": f"LDA {num_topics}", "seconds": time.monotonic() - began}
    line["train_perplexity"] = perplexity(news.counts, lda.transform(news.counts) @ topics)
    line["test_perplexity"] = perplexity(held_out, lda.transform(seen) @ topics)
    return line | topic_scores(np.log(topics.T), news.counts, news.words)


def unigram_line(seed: int) -> dict:
    news = load_newsgroups()
    shares = news.counts.sum(0, keepdims=True) / news.counts.sum()
    held_out = split_counts(news.test_counts, SHARE, seed=seed)[1]
    scores = {
        "train_perplexity": perplexity(news.counts, shares),
        "test_perplexity": perplexity(held_out, shares),
    }
    return {"model": "unigram"} | scores


def measure(args: argparse.Namespace) -> Lines:
    for seed in seeds(args):
        if args.grid:
            yield from ({"seed": seed} | line for line in grid_lines((8, 2), args, seed))
        for sizes in ((8, 2), (8,)):
            yield {"seed": seed} | encoder_line(sizes, args, seed)
        yield {"seed": seed} | lda_line(8, args.lda_iterations, seed)
        yield {"seed": seed} | unigram_line(seed)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=1, threads=1)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--lda-iterations", type=int, default=30)
    parser.add_argument(
        "--grid", action="store_true", help="the published nine penalties, the best by EBIC"
    )
    run(parser, measure, argv, {"restarts": 1, "iterations": 2, "lda_iterations": 2})


if __name__ == "__main__":
    main()
