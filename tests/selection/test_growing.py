"""Sizes whose log-likelihood came out below a smaller one's are fitted again, and said where they
stay below.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from inference import EM, StartsWarning, fit
from inference.selection import fit_grid, select_dimension
from inference.selection.growing import below_smaller, grow_again
from inference.structures.mixture.structure import MixtureStructure
from ppl_models import Mixture, Poisson

F64 = torch.float64
pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.DegenerateWarning", "ignore::inference.ConvergenceWarning"
)


def counts() -> Tensor:
    """Three kinds of rows, of which two differ little."""
    rates = torch.tensor([[2.0, 9.0, 4.0], [2.0, 9.0, 8.0], [12.0, 1.0, 4.0]], dtype=F64)
    return torch.poisson(rates[torch.arange(240) % 3], generator=torch.Generator().manual_seed(0))


def poor_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts of three components that are all alike, from which EM does not get away."""
    start = MixtureStructure.start

    def alike(self, problem, init, num_restarts):
        found = start(self, problem, init, num_restarts)
        if self.about.num_components < 3:
            return found
        same = {
            name: value.mean(1, keepdim=True).expand_as(value).clone()
            for name, value in found.items()
        }
        return same | {"weights": torch.full_like(found["weights"], 1 / self.about.num_components)}

    monkeypatch.setattr(MixtureStructure, "start", alike)
    monkeypatch.setattr(
        "inference.fitting.fit.more_starts",
        lambda structure, problem, init, num, batch: alike(structure, problem, init, num),
    )


def models(k: int) -> Mixture:
    return Mixture(k, Poisson(), 3)


def test_a_size_below_a_smaller_one_is_fitted_from_it(monkeypatch):
    x = counts()
    right = fit(models(3), x).log_likelihood
    poor_starts(monkeypatch)
    alone = [fit(models(k), x) for k in (2, 3)]
    assert alone[1].log_likelihood < alone[0].log_likelihood - 10
    assert below_smaller(alone) == [1]
    chosen = select_dimension(models, x, [1, 2, 3], "bic")
    assert chosen.table["log_likelihood"].is_monotonic_increasing
    assert chosen.fits[2].log_likelihood == pytest.approx(right, abs=1e-3)
    assert chosen.chosen == 3
    assert "optimum_missed" not in chosen.table
    restarts = chosen.fits[2].restarts
    assert chosen.fits[2].objective == float(restarts.objective[restarts.best])
    assert restarts.optimum[restarts.best] == 0
    grid = fit_grid(models, x, [2, 3])
    assert grid[3].log_likelihood == pytest.approx(right, abs=1e-3)


def test_a_size_that_stays_below_is_said(monkeypatch):
    x = counts()
    poor_starts(monkeypatch)
    monkeypatch.setattr("inference.selection.growing.split_start", lambda *_: None)
    with pytest.warns(
        StartsWarning, match="size 3 came out at a log-likelihood of .* below the .* of size 2"
    ):
        chosen = select_dimension(models, x, [2, 3], "bic", method=EM(), num_restarts=2)
    assert chosen.table["optimum_missed"].tolist() == [False, True]


def test_fits_in_order_are_left_alone():
    x = counts()
    fits = [fit(models(k), x, EM(), num_restarts=5) for k in (1, 2, 3)]
    again, left = grow_again([1, 2, 3], fits, x, 0)
    assert left == []
    assert all(one is other for one, other in zip(fits, again, strict=True))
    bound = replace(fits[2], log_likelihood=float("nan"))
    assert below_smaller([fits[1], bound]) == []
