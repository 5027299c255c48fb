r"""Topics of word counts: words, perplexity, coherence, and latents by group of rows.

Given the latents of a document, the model expects :math:`\lambda_j` counts of word j, so a word of
it is word j with probability :math:`\lambda_j / \sum_l \lambda_l`. The perplexity of counts x is

.. math::

    \exp\Bigl( - \sum_{ij} x_{ij} \log \frac{\lambda_{ij}}{\sum_l \lambda_{il}} \Bigm/ \sum_{ij}
    x_{ij} \Bigr),

the number of equally likely words that would be as hard to guess: J for a model that knows nothing.

Source: S. Lee and Y. Gu (2025), arXiv:2501.01414, section 6.2 and supplement S.5; D. Mimno, H.
Wallach, E. Talley, M. Leenders and A. McCallum (2011), Optimizing semantic coherence in topic
models, EMNLP 262-272 (coherence).
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from inference.fitting.columns import as_fitted
from inference.programs.program import Program
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.responses import Poisson
from ppl_models.parts.validation import Seed, as_seed

if TYPE_CHECKING:
    from inference.fitting.result import Fit


LATENTS = ("mixture", "map", "marginal_draws")
CHUNK = 1024  # rows


def perplexity(counts: Any, probabilities: Any) -> float:
    """Perplexity of counts under given word probabilities.

    Args:
        counts: (N, J), 0 or more.
        probabilities: (N, J) or (1, J), rows that sum to 1.

    Raises:
        ValueError: for shapes that differ, no word at all, negative counts, or rows that do not sum
            to 1.
    """
    x = _counts(counts, "counts")
    p = torch.as_tensor(np.asarray(probabilities), dtype=torch.float64)
    if p.dim() != 2 or p.shape[1] != x.shape[1] or p.shape[0] not in (1, len(x)):
        raise ValueError(
            f"perplexity: probabilities for counts {tuple(x.shape)} were expected, got"
            f" {tuple(p.shape)}"
        )
    if (p < 0).any() or not torch.allclose(p.sum(1), torch.ones(len(p), dtype=p.dtype), atol=1e-6):
        raise ValueError("perplexity: each row of probabilities must be 0 or more and sum to 1")
    return _perplexity(torch.xlogy(x, p).sum(), x.sum())


def predictive_perplexity(
    fit: Fit,
    counts: Any,
    held_out: Any = None,
    exposure: float = 1.0,
    latents: str = "mixture",
    num_draws: int = 100,
    seed: Seed = 0,
) -> float:
    r"""Perplexity of ``held_out`` words, latents being inferred from the words ``counts``.

    For a share s of each document's words (:func:`ppl_models.datasets.split_counts`) the counts are
    Poisson with mean :math:`s e^{\eta} = e^{\eta + \log s}`; latents are inferred with the
    intercepts moved by log s, which is exact.

    Args:
        fit: a model with Poisson items on one layer of latents (its bottom layer).
        counts: (N, J), from which the latents are inferred.
        held_out: (N, J), what is predicted; ``counts`` themselves if None (a perplexity of
            training).
        exposure: s, the share of the words in ``counts``.
        latents: "mixture" averages the probabilities over the posterior (exact); "map" takes those
            of the most probable configuration; "marginal_draws" averages over draws from the
            product of the posterior marginals, as the published scripts do.
        num_draws: of "marginal_draws".
        seed: likewise.

    Raises:
        ValueError: if the items are not Poisson counts of a layered model, the tables differ in
            shape, a held-out table has no word, the exposure is not in (0, 1], or ``latents`` is
            unknown.
    """
    seed = as_seed("predictive_perplexity", seed)
    if latents not in LATENTS:
        raise ValueError(
            f"predictive_perplexity: latents must be one of {LATENTS}, got {latents!r}"
        )
    if not 0 < exposure <= 1:
        raise ValueError(f"predictive_perplexity: exposure must lie in (0, 1], got {exposure!r}")
    layer = _counting_layer(fit)
    seen = _counts(as_fitted(fit, counts), "counts")
    target = seen if held_out is None else _counts(as_fitted(fit, held_out), "held_out")
    if target.shape != seen.shape:
        raise ValueError(
            f"held_out: shape {tuple(seen.shape)}, that of counts, was expected, got"
            f" {tuple(target.shape)}"
        )
    shifted = fit.params | {layer.intercepts: fit.params[layer.intercepts] + math.log(exposure)}
    fitted = dataclasses.replace(fit, params=shifted)
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros((), dtype=torch.float64)
    table = None if latents == "marginal_draws" else word_probabilities(fit)
    for start in range(0, len(seen), CHUNK):
        rows = slice(start, start + CHUNK)
        if table is None:
            # rounding may leave [0, 1]
            marginals = fitted.posterior_latents(seen[rows])[layer.parent].double().clamp(0, 1)
            chosen = torch.zeros_like(target[rows])
            for _ in range(num_draws):
                bits = torch.bernoulli(marginals, generator=generator)
                chosen += _softmax(fit.params, layer, bits) / num_draws
        else:
            program = Program(fit.model, seen[rows].to(next(iter(shifted.values()))))
            weights = program.latent_marginals(shifted)[layer.parent].double()  # (n, C)
            chosen = weights @ table if latents == "mixture" else table[weights.argmax(-1)]
        total += torch.xlogy(target[rows], chosen).sum()
    return _perplexity(total, target.sum())


def word_probabilities(fit: Fit) -> Tensor:
    """P(next word = j | configuration of the bottom latents), (C, J).

    Configurations are in the order of the program's.
    """
    layer = _counting_layer(fit)
    one = next(iter(fit.params.values())).new_zeros(1, layer.num_children)
    values = Program(fit.model, one).latent_values(fit.params)[layer.parent]
    return _softmax(fit.params, layer, values)


def representative_words(
    loadings: Any, words: Sequence[str], num_words: int = 15
) -> list[tuple[str, ...]]:
    r"""For each topic the words that speak for it alone, largest first.

    The score of word j for topic k is :math:`\max(0, \min_{l \ne k} (W_{jk} - W_{jl}))`; words
    without a positive score are left out, so no word stands for two topics.

    Args:
        loadings: W, (J, K).
        words: J names.
        num_words: at most so many a topic.

    Raises:
        ValueError: if the sizes do not agree.
    """
    weights = _weights(loadings, words, num_words)
    scores = np.zeros_like(weights)
    for k in range(weights.shape[1]):
        others = np.delete(weights, k, axis=1)
        margin = weights[:, k] - others.max(1) if others.shape[1] else weights[:, k]
        scores[:, k] = np.maximum(margin, 0)
    return [
        tuple(words[j] for j in _order(score)[:num_words] if score[j] > 0) for score in scores.T
    ]


def top_words(weights: Any, words: Sequence[str], num_words: int = 15) -> list[tuple[str, ...]]:
    """Words with the largest entries in each column of weights (J, K); lists may overlap."""
    table = _weights(weights, words, num_words)
    return [tuple(words[j] for j in _order(column)[:num_words]) for column in table.T]


def negative_coherence(topics: Sequence[Sequence[str]], counts: Any, words: Sequence[str]) -> float:
    r"""Mean of :math:`\sum_{u < v} -\log((n_{uv} + 1) / n_v)` over topics; less is better.

    n counts the documents that hold a word, or both; v is ranked below u. A topic with fewer than
    two words has no pair, so nothing speaks for or against it: it is left out of the mean, with a
    warning, and not counted as perfectly coherent.

    Args:
        topics: ranked words of each topic.
        counts: (N, J), of the documents.
        words: J names.

    Raises:
        ValueError: if no topic has two words, or a word is unknown or in no document.
    """
    few = [k for k, topic in enumerate(topics) if len(topic) < 2]
    if len(few) == len(topics):
        raise ValueError(
            f"negative_coherence: a topic of at least two words was expected, got {len(topics)}"
            " without"
        )
    if few:
        warnings.warn(
            f"negative_coherence: topics {few} of {len(topics)} have fewer than two words and are"
            " left out of the mean; do not compare it with that of another number of topics",
            UserWarning,
            stacklevel=2,
        )
    holds = (_counts(counts, "counts") > 0).double().numpy()
    if holds.shape[1] != len(words):
        raise ValueError(
            f"negative_coherence: counts with {len(words)} columns, one a word, expected, got"
            f" {holds.shape[1]}"
        )
    place = {word: j for j, word in enumerate(words)}
    total = 0.0
    for topic in topics:
        unknown = [word for word in topic if word not in place]
        if unknown:
            raise ValueError(
                f"negative_coherence: the word {unknown[0]!r} is not among the columns"
            )
        own = holds[:, [place[word] for word in topic]]
        together = own.T @ own
        absent = np.flatnonzero(np.diag(together) == 0)
        if len(absent):
            raise ValueError(
                f"negative_coherence: the word {topic[int(absent[0])]!r} is in no document"
            )
        u, v = np.triu_indices(len(topic), 1)
        total -= float(np.log((together[u, v] + 1) / together[v, v]).sum())
    return total / (len(topics) - len(few))


def topic_similarity(topics: Sequence[Sequence[str]]) -> int:
    """Number of words shared by pairs of topics; 0 for :func:`representative_words`."""
    sets = [set(topic) for topic in topics]
    return sum(len(a & b) for i, a in enumerate(sets) for b in sets[i + 1 :])


def _counting_layer(fit: Fit) -> Any:
    layers = fit.structure.layers
    if not layers or not isinstance(layers[0].response, Poisson):
        raise ValueError(
            "topics: a layered model with Poisson items was expected, got "
            + type(fit.model).__name__
        )
    return layers[0]


def _softmax(params: dict[str, Tensor], layer: Any, latents: Tensor) -> Tensor:
    """Probabilities of the words given latents (n, K), (n, J)."""
    loadings = params[layer.loadings]
    eta = layer.features(latents.to(loadings)) @ loadings.mT + params[layer.intercepts]
    return torch.softmax(eta.double(), -1)


def _perplexity(log_probability: Tensor, num_words: Tensor) -> float:
    if float(num_words) <= 0:
        raise ValueError("perplexity: the documents hold no word")
    return float(torch.exp(-log_probability / num_words))


def _counts(counts: Any, name: str) -> Tensor:
    array = counts.to_numpy() if hasattr(counts, "to_numpy") else counts
    table = torch.tensor(np.array(array), dtype=torch.float64)
    if table.dim() != 2 or not torch.isfinite(table).all() or (table < 0).any():
        raise ValueError(f"{name}: a matrix of counts, 0 or more and none missing, was expected")
    return table


def _weights(weights: Any, words: Sequence[str], num_words: int) -> np.ndarray:
    table = np.asarray(weights, dtype=np.float64)
    if table.ndim != 2 or len(table) != len(words):
        raise ValueError(
            f"weights: shape ({len(words)}, num_topics), one row a word, was expected, got"
            f" {table.shape}"
        )
    if num_words < 1:
        raise ValueError(f"num_words must be positive, got {num_words!r}")
    return table


def _order(score: np.ndarray) -> np.ndarray:
    return np.argsort(-score, kind="stable")


# ---------------------------------------------------------------- latents by group


@shows_briefly
@dataclass(frozen=True, eq=False)
class GroupMeans:
    """Means of latents within groups of rows.

    Args:
        groups: (G,), values of the grouping variable, rising.
        means: (G, K).
        standard_errors: (G, K), standard deviation of the values within the group over the root of
            its size; the latents are taken as known, so error of their estimation is not in it. NaN
            for a group of one row.
        sizes: (G,), rows in each group.
        num_missing: rows without a group, which are left out.
    """

    groups: np.ndarray
    means: np.ndarray
    standard_errors: np.ndarray
    sizes: np.ndarray
    num_missing: int


def group_means(latents: Any, groups: Any) -> GroupMeans:
    """Mean of each latent among the rows of each group, with standard errors.

    Args:
        latents: (N, K), decoded latents or their posterior probabilities.
        groups: (N,), numbers; NaN where missing.

    Raises:
        ValueError: if the sizes differ, a latent is not finite, or no row has a group.
    """
    values = np.asarray(latents, dtype=np.float64)
    labels = np.asarray(groups, dtype=np.float64)
    if values.ndim != 2 or labels.shape != values.shape[:1]:
        raise ValueError(
            f"group_means: latents (N, K) and groups (N,) were expected, got {values.shape} and"
            f" {labels.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError("group_means: latents must be finite")
    present = np.unique(labels[~np.isnan(labels)])
    if not len(present):
        raise ValueError("group_means: no row has a group")
    means, errors, sizes = [], [], []
    for label in present:
        own = values[labels == label]
        means.append(own.mean(0))
        spread = own.std(0, ddof=1) if len(own) > 1 else np.full(values.shape[1], np.nan)
        errors.append(spread / np.sqrt(len(own)))
        sizes.append(len(own))
    return GroupMeans(
        present, np.array(means), np.array(errors), np.array(sizes), int(np.isnan(labels).sum())
    )
