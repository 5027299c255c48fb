"""The newsgroups and TIMSS files, where they are at hand, and what is said where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from inference.identifiability import check_graph
from inference.inspection import perplexity
from ppl_models.datasets import load_newsgroups, load_response_times, load_timss, local_file


def needs(name):
    return pytest.mark.skipif(local_file(name) is None, reason=f"{name} is not in the folder PPL_MODELS_DATA names")


@needs("20news_dde653.npz")
def test_newsgroups_have_the_published_counts():
    news = load_newsgroups()
    assert news.counts.shape == (5881, 653)
    assert news.test_counts.shape == (3320, 653)
    assert len(news.groups) == 12
    published = [225, 305, 292, 259, 255, 277, 304, 290, 307, 271, 233, 302]
    assert np.bincount(news.test_labels).tolist() == published
    kinds = np.array([name.split(".")[0] for name in news.groups])
    assert [int(np.isin(kinds[news.test_labels], kind).sum()) for kind in ("comp", "rec", "sci")] == [1336, 1178, 806]
    unigram = news.counts.sum(0, keepdims=True) / news.counts.sum()
    assert perplexity(news.counts, unigram) == pytest.approx(497.4, abs=0.1)
    assert perplexity(news.test_counts, unigram) == pytest.approx(510.4, abs=0.1)


@needs("timss2019_dde.npz")
def test_timss_has_the_published_margins():
    data = load_timss()
    assert data.correct.shape == data.seconds.shape == (435, 29)
    assert data.correct.mean() == pytest.approx(0.456, abs=5e-4)
    assert data.log_seconds.mean() == pytest.approx(3.7497, abs=5e-5)
    assert data.log_seconds.std() == pytest.approx(0.9066, abs=5e-4)
    assert data.q_matrix.sum(0).tolist() == [8, 9, 7, 5, 9, 13, 7]
    assert (data.q_matrix[:, :4].sum(1) == 1).all()
    assert (data.q_matrix[:, 4:].sum(1) == 1).all()
    assert [int((data.survey == answer).sum()) for answer in (1, 2, 3, 4)] == [133, 96, 81, 105]
    assert int(np.isnan(data.survey).sum()) == 20
    assert np.linalg.matrix_rank(data.q_matrix) == 6
    report = check_graph(data.q_matrix, child_names=None, parent_names=data.skills)
    assert report.verdict == "generic"  # no item asks for one skill alone


@needs("timss2019_time.npz")
def test_all_response_times_keep_their_gaps():
    data = load_response_times()
    assert data.seconds.shape == (620, 29)
    assert int(np.isnan(data.seconds).sum()) == 323
    assert data.correct is None
    assert data.survey is None


@pytest.mark.parametrize(
    ("load", "name"),
    [(load_newsgroups, "20news_dde653.npz"), (load_timss, "timss2019_dde.npz"), (load_response_times, "timss2019_time.npz")],
)
def test_absent_damaged_and_other_files_are_refused(load, name, tmp_path, monkeypatch):
    monkeypatch.delenv("PPL_MODELS_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=name):
        load()
    monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="PPL_MODELS_DATA"):
        load()
    (tmp_path / name).write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(ValueError, match=name):
        load()
    keys = ("x_train", "y_train", "x_test", "y_test", "words", "groups", "correct", "log_time", "Q", "survey", "skills")
    np.savez(tmp_path / name, seconds=np.ones((2, 2)), **dict.fromkeys(keys, np.ones((2, 2))))
    with pytest.raises(ValueError, match="sha256"):
        load()
