"""Fits that are killed and called again give the answer of fits left alone; ``make killed`` kills
every engine fifteen times.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

QUICK = ("EM", "SAEM")


def killed(times: int, *engines: str) -> None:
    tests = Path(__file__).parents[1]
    found = os.environ.get("PYTHONPATH")
    places = os.pathsep.join([str(tests), str(tests.parent), *([found] if found else [])])
    command = [sys.executable, "-m", "fuzz.killed", "--times", str(times), "--engine", *engines]
    answer = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("equal to the uninterrupted answer") == len(engines)


def test_killed_fits_go_on_to_the_same_answer():
    killed(1, *QUICK)


@pytest.mark.slow
def test_every_engine_survives_several_kills():
    from fuzz.killed import jobs

    killed(3, *jobs())
