"""Real data of Lee and Gu (2025): times of TIMSS 2019, MNIST digits 0 to 3, and newsgroups.

Every function takes a protocol and a seed and returns the numbers of a published table. "paper":
the published penalties, boxes and starts; "ours": the plain call. None sees a label in a fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor

from inference import EM, Fit, fit
from inference.inspection import (
    group_means,
    negative_coherence,
    perplexity,
    predictive_perplexity,
    representative_words,
    topic_similarity,
)
from inference.inspection.topics import top_words
from inference.selection import penalty_path
from papers.cells import published
from ppl_models import Bernoulli, DeepDiscreteEncoder, LogNormal, Mixture, Poisson, TruncatedLasso
from ppl_models.datasets import load_mnist_digits, load_newsgroups, load_timss, split_counts

BOUND_OF_SURVEY, BOUND = 6.0, 15.0
METHOD = EM(tolerance=1e-7, parameter_tolerance=1e-3)
METHOD_OF_SURVEY = EM(tolerance=4e-6, parameter_tolerance=10.0)  # .05 of log-likelihoods of -12,000
NUM_CLASSES, RESTARTS = 4, 4  # of the latent class model: one a digit
SHARE = 0.8  # of a test document's words, from which its latents are inferred


def survey_start(q: np.ndarray, seed: int) -> dict[str, Tensor]:
    """The published random start of the response times, whose ranges are those of the authors'
    code.
    """
    rng, (items, skills) = np.random.default_rng(seed), q.shape
    values = {
        "loadings_1": rng.uniform(0.5, 1.5, (items, skills)) * q,
        "intercepts_1": rng.uniform(2, 3, items),
        "loadings_2": rng.uniform(0.5, 2.5, (skills, 1)),
        "intercepts_2": rng.uniform(-1.5, -0.5, skills),
        "proportions": rng.uniform(0.4, 0.8, 1),
        "dispersion": np.full(items, 0.4),
    }
    return {name: torch.from_numpy(value) for name, value in values.items()}


def survey(protocol: str, seed: int) -> dict[str, float]:
    """Mean decoded latents of the students who give each answer, by cell of table 5; the
    log-likelihood; and the mean difference to the published cells.

    The paper's model: 29 response times, LogNormal, sizes (7, 1), Q given. Its protocol: no
    penalty, box [-6, 6], one random start, ended at a gain of .05.
    """
    data, record = load_timss(), published("deep_discrete_encoder")["survey"]
    graphs = (data.q_matrix.tolist(), None)
    model = DeepDiscreteEncoder(data.seconds.shape[1], (7, 1), LogNormal(), graphs=graphs)
    if protocol == "ours":
        result = fit(model, data.seconds, seed=seed)
    else:
        start = survey_start(data.q_matrix, seed)
        boxed = replace(model, bound=BOUND_OF_SURVEY)
        result = fit(boxed, data.seconds, METHOD_OF_SURVEY, init=start, seed=seed)
    codes = result.decode_latents(data.seconds)
    latents = torch.cat([codes["latents_2"], codes["latents_1"][:, :4]], 1)
    means = group_means(latents, data.survey).means
    out = {
        f"{row}, {column}": float(means[i, j])
        for i, row in enumerate(record["rows"])
        for j, column in enumerate(record["columns"])
    }
    apart = float(np.abs(means - np.array(record["means"])).mean())
    return out | {"log-likelihood": result.log_likelihood, "difference": apart}


def digits(model: str, protocol: str, seed: int) -> dict[str, float]:
    """Percentages of table 3: digits named by a tree on the decoded latents, and pixels rebuilt.

    Args:
        model: a column of the table. Paper's protocol: the published slopes and thresholds as one
            batch, the best by EBIC; the latent class model has a class a digit.
        protocol: "paper" or "ours"; seed: of the starts.
    """
    data = load_mnist_digits()
    sizes = {"one-latent-layer": (5,), "two-latent-layer": (5, 2)}.get(model)
    if sizes is None:
        result = fit(
            Mixture(NUM_CLASSES, Bernoulli(), data.items.shape[1]),
            data.items,
            num_restarts=RESTARTS if protocol == "paper" else None,
            seed=seed,
        )
    else:
        encoder = DeepDiscreteEncoder(data.items.shape[1], sizes)
        if protocol == "ours":
            result = fit(encoder, data.items, seed=seed)
        else:
            num = len(data.items)
            powers = [num ** (0.9 * q / 8) for q in (2, 3, 4)]
            grid = [TruncatedLasso(s, 2 * p / num**0.5) for s in powers for p in powers]
            boxed = replace(encoder, penalty=None, bound=BOUND)
            path = penalty_path(boxed, data.items, grid, METHOD, num_restarts=1, seed=seed)
            result = path.penalised[path.chosen]
    tree, out = DecisionTreeClassifier(random_state=0), {}
    for name, items, labels in (
        ("Train", data.items, data.labels),
        ("Test", data.test_items, data.test_labels),
    ):
        codes, rebuilt = rebuilt_pixels(result, items)
        tree = tree.fit(codes, labels) if name == "Train" else tree
        out[f"{name} classification accuracy"] = 100 * float(tree.score(codes, labels))
        out[f"{name} pixel reconstruction accuracy"] = 100 * float((rebuilt == items).mean())
    return out


def rebuilt_pixels(result: Fit, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decoded latents of the rows, and the more probable value of every pixel given them."""
    if isinstance(result.model, Mixture):
        (chances,) = result.posterior_latents(items).values()
        classes = chances.argmax(1).numpy()
        return classes[:, None], (result.params["predictors"].numpy() > 0)[classes]
    codes = result.decode_latents(items)["latents_1"]
    predictor = codes @ result.params["loadings_1"].mT + result.params["intercepts_1"]
    return codes.numpy(), (predictor > 0).numpy()


def words(model: str, size: int, protocol: str, seed: int) -> dict[str, float]:
    """A row of table 4: perplexities, coherence and similarity of topics of 15 words.

    Args:
        model: "LDA" (scikit-learn's; topics by their likeliest words) or "DDE", (8, size).
            Paper's protocol: the published slopes at the threshold of the released estimate, the
            best by EBIC; words by the exclusive score, latents as in the authors' code.
        size: topics, or top latents; protocol: "paper" or "ours"; seed: of everything random.
    """
    news = load_newsgroups()
    counts, num = news.counts, len(news.counts)
    seen, held_out = split_counts(news.test_counts, SHARE, seed=seed)
    if model == "LDA":
        lda = LatentDirichletAllocation(size, max_iter=30, random_state=seed).fit(counts)
        topics = lda.components_ / lda.components_.sum(1, keepdims=True)
        chosen = top_words(np.log(topics.T), news.words)
        scores = {
            "train_perplexity": perplexity(counts, lda.transform(counts) @ topics),
            "test_perplexity": perplexity(held_out, lda.transform(seen) @ topics),
        }
    else:
        encoder = DeepDiscreteEncoder(len(news.words), (8, size), Poisson())
        if protocol == "ours":
            result = fit(encoder, counts, seed=seed)
        else:
            grid = [TruncatedLasso(num ** (q / 8), 2 * num**-0.375) for q in (1, 2, 3)]
            boxed = replace(encoder, penalty=None, bound=BOUND)
            path = penalty_path(boxed, counts, grid, METHOD, num_restarts=1, seed=seed)
            result = path.penalised[path.chosen]
        chosen = representative_words(result.params["loadings_1"].numpy(), news.words)
        scores = {
            "train_perplexity": predictive_perplexity(result, counts, latents="marginal_draws"),
            "test_perplexity": predictive_perplexity(
                result, seen, held_out, SHARE, latents="marginal_draws"
            ),
        }
    return scores | {
        "negative_coherence": float(negative_coherence(chosen, counts, news.words)),
        "similarity": float(topic_similarity(chosen)),
    }


RUN: Mapping[str, Any] = {"survey": survey, "digits": digits, "words": words}
