"""What is said of long work: a foreseen end, one line a minute in a file, a bar on a terminal."""

from __future__ import annotations

import io
import sys

import pytest
import torch

from inference import EM, fit
from inference.base.progress import RichProgress, TimeLeft
from ppl_models import Mixture


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_gap_that_shrinks_by_a_constant_factor_says_when_it_ends():
    left = TimeLeft(2000)
    for iteration in range(1, 41):
        left.saw(iteration, 3, 1e6 * 0.9**iteration, 2.0 * iteration)  # below 1 at 131.1
    assert left.last_iteration() == (132, True)
    assert left.seconds() == pytest.approx(2 * (132 - 40))
    assert left.text() == "about 3 min left"


def test_without_a_gap_the_largest_number_of_iterations_is_the_latest_end():
    left = TimeLeft(100)
    assert left.text() == ""
    for iteration in (10, 20):
        left.saw(iteration, 1, None, float(iteration))
    assert left.text() == "at most 80 s left"
    assert TimeLeft(None).last_iteration() == (None, False)
    for gap in (
        1.0,
        2.0,
        3.0,
        4.0,
        5.0,
        float("inf"),
        float("nan"),
        0.0,
    ):  # that grows, or is no number
        left.saw(int(left.last_iteration()[0] or 0) + 1, 1, gap, 30.0)
    assert left.last_iteration() == (100, False)


def test_new_restarts_begin_anew():
    left = TimeLeft(None)
    for iteration in range(1, 20):
        left.saw(iteration, 2, 10.0 * 0.5**iteration, float(iteration))
    left.saw(20, 8, 1e9, 20.0)
    assert left.last_iteration() == (None, False)


def test_a_file_gets_a_line_a_minute_and_one_at_the_end(capsys):
    clock = Clock()
    with RichProgress("fit", 1000, True, clock=clock) as bar:
        for iteration in range(1, 151):
            clock.now = float(iteration)
            bar.update(iteration, -12.5, 4)
    assert capsys.readouterr().err.splitlines() == [
        "fit: iteration 60, objective -12.5000, 4 running, at most 16 min left",
        "fit: iteration 120, objective -12.5000, 4 running, at most 15 min left",
        "fit: iteration 150, objective -12.5000, 150 s in all",
    ]
    with RichProgress("fits", 4, clock=clock) as bar:
        clock.now += 100
        bar.update(1, -1.0, 3)
    assert capsys.readouterr().err.splitlines() == [
        "fits: 1 of 4 done, about 5 min left",
        "fits: 1 done, 100 s in all",
    ]
    with RichProgress("fits", 4):
        pass
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_that_ends_where_the_rule_says(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream, clock = Terminal(), Clock()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with RichProgress("fit", 2000, True, clock=clock) as bar:
        for iteration in range(1, 41):
            clock.now = float(iteration)
            bar.update(iteration, -1.0, 2, 1e6 * 0.9**iteration)
        (task,) = bar._bar.tasks
        assert task.total == 132
        assert task.fields["status"].endswith("about 92 s left")
        bar._bar.refresh()
    assert "about 92 s left" in stream.getvalue()


def test_em_tells_how_far_the_slowest_restart_is_from_stopping(monkeypatch):
    """The gap is below 1 in the iteration where a restart stops, and never before."""
    seen: list[tuple[int, float]] = []
    monkeypatch.setattr(
        RichProgress,
        "update",
        lambda self, iteration, objective, active, gap, *_: seen.append((active, gap)),
    )
    rows = (
        torch.randn(200, 2, generator=torch.Generator().manual_seed(0)).double()
        + 3.0 * torch.arange(200).remainder(2)[:, None]
    )
    result = fit(Mixture(2, num_items=2), rows, EM(), num_restarts=1, progress=True)
    assert result.converged
    assert [active for active, _ in seen] == [1] * (len(seen) - 1) + [0]
    assert seen[-1][1] < 1 <= min(gap for _, gap in seen[:-1])
