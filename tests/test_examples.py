"""The scripts of ``examples`` run as their first lines say."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inference import Fit

ROOT = Path(__file__).parent.parent
SHARED = ROOT / "examples" / "fit_shared.py"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    chances = np.array([[0.9] * 3 + [0.1] * 3, [0.1] * 3 + [0.8] * 3])
    np.save(
        tmp_path / "rows.npy",
        (rng.random((400, 6)) < chances[rng.integers(2, size=400)]).astype(np.int8),
    )
    return tmp_path / "rows.npy"


@pytest.fixture
def alone(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fit:
    monkeypatch.setattr(
        sys, "argv", [str(SHARED), str(rows), "--classes", "2", "--out", str(tmp_path / "alone")]
    )
    monkeypatch.delenv("RANK", raising=False)
    runpy.run_path(str(SHARED), run_name="__main__")
    return Fit.load(tmp_path / "alone")


def test_the_shared_fit_is_one_of_one_process_too(alone: Fit) -> None:
    assert alone.num_rows == 400
    assert alone.restarts.num_ended == 5


@pytest.mark.slow
def test_torchrun_gives_the_same_fit(alone: Fit, rows: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        str(SHARED),
        str(rows),
        "--classes",
        "2",
        "--out",
        str(tmp_path / "both"),
    ]
    subprocess.run(
        command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    both = Fit.load(tmp_path / "both")
    assert both.log_likelihood == pytest.approx(alone.log_likelihood, rel=1e-12)
    assert np.allclose(both.params["weights"], alone.params["weights"], atol=1e-9)
