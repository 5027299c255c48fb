"""TIMSS, where it is at hand."""

from __future__ import annotations

import numpy as np
import pytest

from inference.identifiability import check_graph
from ppl_models.datasets import load_response_times, load_timss


@pytest.mark.data("timss2019_dde.npz")
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


@pytest.mark.data("timss2019_time.npz")
def test_all_response_times_keep_their_gaps():
    data = load_response_times()
    assert data.seconds.shape == (620, 29)
    assert int(np.isnan(data.seconds).sum()) == 323
    assert data.correct is None
    assert data.survey is None
