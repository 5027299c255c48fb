"""Number of starts of a fit where its user leaves that open."""

from __future__ import annotations

from dataclasses import dataclass

from ppl_models.parts.validation import check_size

LEAST_ROWS, MOST_ROWS = 3_000, 20_000  # that a search for starts reads of a larger table
NUMBERS = 300_000  # worked through in about 2 ms
BATCH_STRIDE = 1_000_003  # between the seeds of two batches of starts


@dataclass(frozen=True)
class StartSearch:
    r"""Batches of starts that race, until the best optimum is replicated.

    A batch of starts runs as one. After ``rungs[0][0]`` iterations the best ``rungs[0][1]`` of them
    go on, and so at every rung (short runs before long ones: C. Biernacki, G. Celeux and G. Govaert
    2003, doi:10.1016/S0167-9473(02)00163-9; rungs: K. Jamieson and A. Talwalkar 2016,
    arXiv:1502.07943). Starts that have met on one hill are one from there on, and count as
    replicates of it (:mod:`inference.engines.start_search`). The search ends when at least
    ``replicates`` starts have reached the best optimum, when ``stall`` batches in a row did not
    raise it, after ``cap`` starts, or when ``budget`` is spent. The budget counts numbers worked
    through (entries of the data times values of the latents, times the iterations of every start),
    never seconds, so that the same seed gives the same answer on a slow machine; the first batch is
    always whole.

    Args:
        batch: starts tried together.
        rungs: pairs of an iteration and of how many starts of a batch go on from it.
        replicates: starts that must reach the best optimum.
        stall: batches in a row without a better optimum, after which no new one begins.
        cap: most starts tried.
        budget: numbers worked through, after which no new batch begins.
        rows: at most so many rows of a larger table are read, drawn at random; the two best optima
            of these go on with all rows. None for all.

    Raises:
        ValueError: for numbers that are not positive, or rungs that do not rise in iterations and
            fall in starts.
    """

    batch: int = 30
    rungs: tuple[tuple[int, int], ...] = ((40, 15), (100, 4))
    replicates: int = 6
    stall: int = 5
    cap: int = 200
    budget: float = 5e8
    rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "replicates", "stall", "cap"):
            check_size("StartSearch", name, getattr(self, name))
        if self.rows is not None:
            check_size("StartSearch", "rows", self.rows, wanted="a positive integer or None")
        before = (0, self.batch)
        for rung in self.rungs:
            if not (len(rung) == 2 and rung[0] > before[0] and 1 <= rung[1] <= before[1]):
                raise ValueError(
                    "StartSearch: rungs must be pairs (iteration, starts that go on), the"
                    f" iterations rising and the starts falling from batch = {self.batch}, got"
                    f" {self.rungs!r}"
                )
            before = rung
        if not self.budget > 0:
            raise ValueError(f"StartSearch: budget must be positive, got {self.budget!r}")

    @property
    def first_work(self) -> int:
        """Iterations of all starts of a batch up to its first rung."""
        return self.batch * self.rungs[0][0] if self.rungs else self.batch


def enough_rows(numbers_a_row: int) -> int:
    """Rows that a search for starts reads, so that an iteration of a start takes about 2 ms."""
    return min(MOST_ROWS, max(LEAST_ROWS, NUMBERS // max(1, numbers_a_row)))
