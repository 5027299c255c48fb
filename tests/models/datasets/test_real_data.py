"""Files of newsgroups and TIMSS that are absent, damaged or others."""

from __future__ import annotations

import numpy as np
import pytest

from ppl_models.datasets import load_newsgroups, load_response_times, load_timss


@pytest.mark.parametrize(
    ("load", "name"),
    [
        (load_newsgroups, "20news_dde653.npz"),
        (load_timss, "timss2019_dde.npz"),
        (load_response_times, "timss2019_time.npz"),
    ],
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
    keys = (
        "x_train",
        "y_train",
        "x_test",
        "y_test",
        "words",
        "groups",
        "correct",
        "log_time",
        "Q",
        "survey",
        "skills",
    )
    np.savez(tmp_path / name, seconds=np.ones((2, 2)), **dict.fromkeys(keys, np.ones((2, 2))))
    with pytest.raises(ValueError, match="sha256"):
        load()
