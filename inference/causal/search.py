"""What a search by score takes and returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from inference.causal.pdags import Pdag
from inference.causal.scores import Score
from ppl_models.parts.repr import shows_briefly


@shows_briefly
@dataclass(frozen=True)
class Found:
    """The best class that a search met.

    Args:
        graph: its CPDAG.
        score: of every DAG in it; larger is better.
        ties: other classes with the same score up to rounding: all that the search allows where
            ``complete``, else those that one step leads to (greedy search) or those that were
            looked for.
        complete: whether ``ties`` holds every such class.
        optimal: whether no DAG at all scores more.
        tied_steps: steps of a greedy search at which another class promised just as much; the order
            of the attributes decided there.
    """

    graph: Pdag
    score: float
    ties: tuple[Pdag, ...]
    complete: bool
    optimal: bool
    tied_steps: int = 0


@runtime_checkable
class Search(Protocol):
    """A way to the class with the largest score."""

    def best(self, table: np.ndarray, num_rows: float, score: Score) -> Found:
        """The best class for one table (2^K,) that sums to one."""
        ...

    def best_of_each(self, tables: np.ndarray, num_rows: float, score: Score) -> list[Pdag]:
        """The best class for each of several tables (B, 2^K), without looking for ties."""
        ...
