"""Number of starts of a fit where its user leaves that open."""

from __future__ import annotations

from dataclasses import dataclass

from ppl_models.parts.validation import check_size


@dataclass(frozen=True)
class StartSearch:
    r"""Batches of short runs, the best of which go on, until the best optimum is replicated.

    Of each batch of starts, run for a few iterations, the best go on to convergence (C. Biernacki,
    G. Celeux and G. Govaert 2003, doi:10.1016/S0167-9473(02)00163-9). The search ends when at least
    ``least`` starts have been run to the end, at least ``replicates`` of them reached the best
    optimum, and the share :math:`f_1 / n` of optima that only one of the n starts reached is at
    most ``unseen``: that share estimates the chance that one more start would find an optimum not
    seen yet (I. J. Good 1953, doi:10.1093/biomet/40.3-4.237). It also ends after ``cap`` starts, or
    when ``budget`` is spent. The budget counts numbers worked through (entries of the data times
    values of the latents, times the iterations of every start), never seconds, so that the same
    seed gives the same answer on a slow machine; the first batch is always whole.

    Args:
        batch: starts tried together.
        short_iterations: iterations of each, after which they are compared.
        finalists: of each batch, that go on to convergence.
        least: starts run to the end before the search may stop.
        replicates: starts that must reach the best optimum.
        unseen: largest share of optima seen once.
        cap: most starts tried.
        budget: numbers worked through, after which no new batch begins.

    Raises:
        ValueError: for numbers that are not positive, or more finalists than starts.
    """

    batch: int = 20
    short_iterations: int = 20
    finalists: int = 10
    least: int = 10
    replicates: int = 3
    unseen: float = 0.05
    cap: int = 200
    budget: float = 5e8

    def __post_init__(self) -> None:
        for name in ("batch", "short_iterations", "finalists", "least", "replicates", "cap"):
            check_size("StartSearch", name, getattr(self, name))
        if self.finalists > self.batch:
            raise ValueError(
                f"StartSearch: finalists must not be more than batch = {self.batch}, got"
                f" {self.finalists}"
            )
        if not 0 <= self.unseen <= 1:
            raise ValueError(f"StartSearch: unseen must lie in [0, 1], got {self.unseen!r}")
        if not self.budget > 0:
            raise ValueError(f"StartSearch: budget must be positive, got {self.budget!r}")
