"""What a search by score takes and returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from inference.causal.pdags import Pdag
from inference.causal.scores import Score

__all__ = ["Found", "Search"]


@dataclass(frozen=True)
class Found:
    """The best class that a search met.

    Args:
        graph: its CPDAG.
        score: of every DAG in it; larger is better.
        ties: other classes with the same score up to rounding: all of them after an exact search (``complete``), after a greedy one those that
            one step leads to.
        complete: whether the score is the largest of all DAGs, and ``ties`` holds every class that has it.
        tied_steps: steps of a greedy search at which another class promised just as much; the order of the attributes decided there.
    """

    graph: Pdag
    score: float
    ties: tuple[Pdag, ...]
    complete: bool
    tied_steps: int = 0


class Search(Protocol):
    """A way to the class with the largest score."""

    def best(self, table: np.ndarray, num_rows: float, score: Score) -> Found:
        """The best class for one table (2^K,) that sums to one."""
        ...

    def best_of_each(self, tables: np.ndarray, num_rows: float, score: Score) -> list[Pdag]:
        """The best class for each of several tables (B, 2^K), without looking for ties."""
        ...
