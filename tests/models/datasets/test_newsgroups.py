"""The newsgroups, where they are at hand."""

from __future__ import annotations

import numpy as np
import pytest

from inference.inspection import perplexity
from ppl_models.datasets import load_newsgroups


@pytest.mark.data("20news_dde653.npz")
def test_newsgroups_have_the_published_counts():
    news = load_newsgroups()
    assert news.counts.shape == (5881, 653)
    assert news.test_counts.shape == (3320, 653)
    assert len(news.groups) == 12
    published = [225, 305, 292, 259, 255, 277, 304, 290, 307, 271, 233, 302]
    assert np.bincount(news.test_labels).tolist() == published
    kinds = np.array([name.split(".")[0] for name in news.groups])
    assert [
        int(np.isin(kinds[news.test_labels], kind).sum()) for kind in ("comp", "rec", "sci")
    ] == [1336, 1178, 806]
    unigram = news.counts.sum(0, keepdims=True) / news.counts.sum()
    assert perplexity(news.counts, unigram) == pytest.approx(497.4, abs=0.1)
    assert perplexity(news.test_counts, unigram) == pytest.approx(510.4, abs=0.1)
