"""Metrics of topics and of groups, each on three rows worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from support.fitted_examples import encoder_fit

from inference import EM, fit
from inference.inspection import (
    group_means,
    negative_coherence,
    perplexity,
    predictive_perplexity,
    representative_words,
    topic_similarity,
)
from inference.inspection.topics import top_words, word_probabilities
from ppl_models import DeepDiscreteEncoder, LatentAttributeModel, Poisson
from ppl_models.datasets import split_counts

COUNTS = np.array([[2, 0, 1], [0, 3, 0], [1, 1, 0]])
WORDS = ("star", "game", "disk")


def test_perplexity_of_three_documents():
    probabilities = np.array([[0.5, 0.25, 0.25], [0.2, 0.6, 0.2], [0.25, 0.5, 0.25]])
    product = 0.5**2 * 0.25 * 0.6**3 * 0.25 * 0.5  # of eight words
    assert perplexity(COUNTS, probabilities) == pytest.approx(product ** (-1 / 8))
    assert perplexity(COUNTS, np.full((1, 3), 1 / 3)) == pytest.approx(3.0)
    with pytest.raises(ValueError, match="sum to 1"):
        perplexity(COUNTS, np.ones((1, 3)))
    with pytest.raises(ValueError, match="no word"):
        perplexity(np.zeros((2, 3)), np.full((1, 3), 1 / 3))


def one_bit():
    """One latent, three words: rates (1, 2, 1) without it and (4, 1, 1) with it, half of the
    documents each.
    """
    params = {
        "loadings_1": torch.tensor([[math.log(4)], [-math.log(2)], [0.0]], dtype=torch.float64),
        "intercepts_1": torch.tensor([0.0, math.log(2), 0.0], dtype=torch.float64),
        "proportions": torch.tensor([0.5], dtype=torch.float64),
    }
    result = fit(
        DeepDiscreteEncoder(3, (1,), Poisson()),
        COUNTS.astype(float),
        EM(max_iterations=1, tolerance=1e9, parameter_tolerance=1e9),
    )
    import dataclasses

    return dataclasses.replace(result, params=params)


def posterior_by_hand(row, exposure):
    """P(latent = 1 | row) with Poisson means s * rate."""
    rates = np.array([[1.0, 2.0, 1.0], [4.0, 1.0, 1.0]]) * exposure
    log = (row * np.log(rates) - rates).sum(1)
    weight = np.exp(log - log.max())
    return weight[1] / weight.sum()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("exposure", [1.0, 0.8])
def test_predictive_perplexity_of_three_documents(exposure):
    result = one_bit()
    held = np.array([[1, 1, 0], [0, 1, 0], [2, 0, 1]])
    off, on = np.array([1, 2, 1]) / 4, np.array([4, 1, 1]) / 6
    mixture, best, marginal = 0.0, 0.0, 0.0
    for seen, target in zip(COUNTS, held, strict=True):
        p = posterior_by_hand(seen, exposure)
        mixture += (target * np.log((1 - p) * off + p * on)).sum()
        best += (target * np.log(on if p > 0.5 else off)).sum()
        marginal += (
            target * np.log((1 - p) * off + p * on)
        ).sum()  # one bit: product of marginals is the posterior
    num_words = held.sum()
    got = {
        kind: predictive_perplexity(result, COUNTS, held, exposure, kind, 4000)
        for kind in ("mixture", "map", "marginal_draws")
    }
    assert got["mixture"] == pytest.approx(math.exp(-mixture / num_words), rel=1e-12)
    assert got["map"] == pytest.approx(math.exp(-best / num_words), rel=1e-12)
    assert got["marginal_draws"] == pytest.approx(math.exp(-marginal / num_words), rel=0.01)
    assert np.allclose(word_probabilities(result), [off, on])
    for wrong, match in (
        ({"exposure": 0.0}, "exposure"),
        ({"latents": "mean"}, "mixture"),
        ({"held_out": held[:2]}, "shape"),
    ):
        with pytest.raises(ValueError, match=match):
            predictive_perplexity(result, COUNTS, **wrong)


@pytest.mark.filterwarnings("ignore")
def test_words_are_found_by_the_names_of_their_columns():
    frame, last_first = pd.DataFrame(COUNTS.astype(float), columns=WORDS), list(WORDS[::-1])
    result = fit(DeepDiscreteEncoder(3, (1,), Poisson()), frame, EM(max_iterations=3))
    expected = predictive_perplexity(result, COUNTS)
    assert predictive_perplexity(result, frame[last_first], frame) == pytest.approx(expected)
    assert predictive_perplexity(result, frame, frame[last_first]) == pytest.approx(expected)


@pytest.mark.parametrize("items", ["dina", "saturated"])
def test_words_that_several_topics_ask_for_together(items):
    model = LatentAttributeModel([(1, 0), (1, 1)] * 2, Poisson(), items=items)
    counts = np.random.default_rng(0).poisson([[1, 2, 1, 4], [5, 1, 4, 1], [2, 6, 2, 7]] * 10)
    result = fit(model, counts.astype(float), num_restarts=2)
    profiles = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    rates = result.structure.expected_responses(result.params, profiles)
    chances = rates / rates.sum(-1, keepdim=True)
    assert torch.allclose(word_probabilities(result), chances)
    posterior = torch.as_tensor(
        result.structure.root.distribution(result.params).log_prob(profiles)
    )
    posterior = posterior + torch.distributions.Poisson(rates).log_prob(
        torch.as_tensor(counts, dtype=torch.float64)[:, None]
    ).sum(-1)
    told = posterior.softmax(-1) @ chances
    words = torch.as_tensor(counts, dtype=torch.float64)
    expected = float((-(words * told.log()).sum() / words.sum()).exp())
    assert predictive_perplexity(result, counts) == pytest.approx(expected)


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="Poisson"):
        word_probabilities(encoder_fit())


def test_words_of_three_topics():
    loadings = np.array([[2.0, 0.5, 0.0], [-1.0, -0.5, -3.0], [1.0, 1.0, 0.9]])
    assert representative_words(loadings, WORDS) == [
        ("star",),
        ("game",),
        (),
    ]  # "disk" has a tie at the top
    assert top_words(loadings, WORDS, 2) == [("star", "disk"), ("disk", "star"), ("disk", "star")]
    assert topic_similarity(top_words(loadings, WORDS, 2)) == 6
    assert topic_similarity([("a", "b"), ("b", "c"), ("d",)]) == 1
    generator = np.random.default_rng(0)
    for _ in range(5):
        words = [f"w{j}" for j in range(40)]
        assert topic_similarity(representative_words(generator.normal(size=(40, 6)), words)) == 0
    with pytest.raises(ValueError, match="one row a word"):
        top_words(loadings, WORDS[:2])


def test_coherence_of_three_documents():
    # star in documents 0, 2; game in 1, 2; disk in 0. star & game: 1 document, star & disk: 1, game
    # & disk: 0
    expected = -(math.log(2 / 2) + math.log(2 / 1) + math.log(1 / 1))
    assert negative_coherence([WORDS], COUNTS, WORDS) == pytest.approx(expected)
    other = -(
        math.log(2 / 2) + math.log(2 / 2) + math.log(1 / 2)
    )  # ranked disk, star, game: pairs ds, dg, sg
    other = -(math.log(2 / 2) + math.log(1 / 2) + math.log(2 / 2))
    assert negative_coherence([("disk", "star", "game")], COUNTS, WORDS) == pytest.approx(other)
    both = negative_coherence([WORDS, ("disk", "star", "game")], COUNTS, WORDS)
    assert both == pytest.approx((expected + other) / 2)
    with pytest.warns(
        UserWarning, match=r"topics \[1, 2\] of 3 have fewer than two words"
    ):  # they have no pair to judge by
        assert negative_coherence([WORDS, (), ("disk",)], COUNTS, WORDS) == pytest.approx(expected)
    with pytest.raises(ValueError, match="at least two words"):
        negative_coherence([("disk",)], COUNTS, WORDS)
    with pytest.raises(ValueError, match="'moon'"):
        negative_coherence([("moon", "star")], COUNTS, WORDS)
    with pytest.raises(ValueError, match="no document"):
        negative_coherence([WORDS], COUNTS * np.array([1, 1, 0]), WORDS)


def test_means_by_group_of_three_rows_and_one_without():
    table = group_means([[1, 0], [0, 0], [1, 1], [1, 1]], [2, 2, 1, np.nan])
    assert table.groups.tolist() == [1, 2]
    assert table.means.tolist() == [[1, 1], [0.5, 0]]
    assert table.sizes.tolist() == [1, 2]
    assert table.num_missing == 1
    assert np.isnan(table.standard_errors[0]).all()
    assert table.standard_errors[1] == pytest.approx([math.sqrt(0.5) / math.sqrt(2), 0.0])
    with pytest.raises(ValueError, match="no row"):
        group_means([[1.0]], [np.nan])
    with pytest.raises(ValueError, match=r"\(N,\)"):
        group_means([[1.0]], [1, 2])


def test_split_counts_keeps_every_word():
    counts = np.random.default_rng(1).poisson(5, size=(400, 20))
    first, second = split_counts(counts, 0.8, seed=3)
    assert (first + second == counts).all()
    share = first.sum() / counts.sum()
    assert abs(share - 0.8) < 4 * math.sqrt(0.16 / counts.sum())
    assert (split_counts(counts, 0.8, seed=3)[0] == first).all()
    for bad, match in (
        ((counts, 1.0), "share"),
        ((counts - 9.0,), "whole"),
        ((counts + 0.5,), "whole"),
    ):
        with pytest.raises(ValueError, match=match):
            split_counts(*bad)
