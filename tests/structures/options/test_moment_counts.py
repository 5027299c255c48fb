"""Moments are counted window by window, read in pieces, streamed."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import torch

from inference.structures.options.moments import count_moments
from ppl_models import OptionsHMM
from ppl_models.data.sequences import pack
from ppl_models.datasets import options_chain, simulate_options, stream_sequences


def test_windows_are_counted_one_by_one() -> None:
    """Flat index by hand; windows do not cross the end of a sequence, and need both later
    actions.
    """
    state = [[0, 1, 2, 1, 0], [2, 2, 1, 0, 0]]
    action = [[0, 1, -1, 0, 1], [1, 1, 0, 0, 0]]
    data = pack(state, action, [5, 3])
    moments = count_moments(data, 3, 2)
    expected = np.zeros(2 * 3 * 3 * 3 * 2)
    count = 0
    for row, length in ((0, 5), (1, 3)):
        for t in range(length - 2):
            s1, s2, s3 = state[row][t : t + 3]
            a2, a3 = action[row][t + 1], action[row][t + 2]
            if a2 >= 0 and a3 >= 0:
                expected[(((a2 * 3 + s2) * 3 + s1) * 3 + s3) * 2 + a3] += 1
                count += 1
    assert moments.num_windows == count == 2
    np.testing.assert_allclose(moments.windows.ravel(), expected / count)
    assert moments.environment[0, 0].tolist() == [0, 1, 0]
    assert moments.environment[1, 2].tolist() == [0, 0.5, 0.5] or moments.environment[
        1, 2
    ].tolist() == [0, 0, 1]


def test_moments_of_a_file_read_in_pieces(tmp_path) -> None:
    """Pieces of any size give the counts of the whole; only whole sequences are handed out."""
    generator = np.random.default_rng(3)
    rows = [
        (f"s{n}", t, generator.integers(4), generator.integers(2))
        for n, length in enumerate((5, 1, 40, 3, 20))
        for t in range(length)
    ]
    frame = pd.DataFrame(rows, columns=["sequence", "time", "state", "action"])
    frame["action"] = frame["action"].astype("Int64").mask(frame.index == 30)
    frame.to_csv(tmp_path / "walks.csv", index=False)
    whole = count_moments(OptionsHMM(4, 2, 2).check_data(frame, for_fit=False)[0], 4, 2)
    for num_rows in (1, 7, 1000):
        streamed = count_moments(stream_sequences(tmp_path / "walks.csv", 4, 2, num_rows), 4, 2)
        assert streamed.num_windows == whole.num_windows
        np.testing.assert_array_equal(streamed.windows, whole.windows)
        np.testing.assert_array_equal(streamed.environment, whole.environment)
    frame.iloc[[*range(10, 20), *range(10), *range(20, len(frame))]].to_csv(
        tmp_path / "mixed.csv", index=False
    )
    for name, text in (
        ("mixed.csv", "sequence 's2' comes again"),
        ("none.csv", "no file"),
        ("other.csv", "columns sequence, time"),
    ):
        (tmp_path / "other.csv").write_text("a,b\n1,2\n")
        with pytest.raises(ValueError, match=text):
            list(stream_sequences(tmp_path / name, 4, 2, 6))
    (tmp_path / "empty.csv").write_text("sequence,time,state,action\n")
    with pytest.raises(ValueError, match="holds no rows"):
        list(stream_sequences(tmp_path / "empty.csv", 4, 2))
    with pytest.raises(ValueError, match="num_rows must be a positive integer"):
        list(stream_sequences(tmp_path / "walks.csv", 4, 2, 0))


def test_moments_are_streamed() -> None:
    """Pieces of time, and pieces of the rows, give the numbers of the whole."""
    data = simulate_options(options_chain(), 6, 500, 3).packed
    data[1, 7:30, 1] = -1
    whole = count_moments(data, 4, 2)
    pieces = (data[:, begin:end] for begin, end in itertools.pairwise((0, 1, 2, 10, 11, 300, 500)))
    by_time = count_moments(pieces, 4, 2, continued=True)
    by_row = count_moments((data[i : i + 2] for i in range(0, 6, 2)), 4, 2)
    for other in (by_time, by_row):
        assert other.num_windows == whole.num_windows
        np.testing.assert_allclose(other.windows, whole.windows, atol=1e-15)
        np.testing.assert_allclose(other.environment, whole.environment, atol=1e-15)
    assert by_row.drift == whole.drift


def test_drift_sees_a_change() -> None:
    truth = options_chain()
    steady = count_moments(simulate_options(truth, 50, 400, 4).packed, 4, 2).drift
    moved = {**truth, "environment": truth["environment"].flip(2)}
    data = torch.cat(
        [simulate_options(truth, 50, 200, 4).packed, simulate_options(moved, 50, 200, 5).packed], 1
    )
    assert steady < 2 < 5 < count_moments(data, 4, 2).drift
