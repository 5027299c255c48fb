"""Sizes grow from the one before until a criterion has risen; missed optima are fitted again, and
said where they stay below.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support import six_patterns
from torch import Tensor

from inference import EM, StartsWarning, fit
from inference.fitting.fit import FRESH_STARTS, SharedSearch
from inference.selection import fit_grid, select_components, select_dimension
from inference.selection.dimension import Study
from inference.selection.growing import CLEAR, Climb, below_smaller, grow_again
from inference.selection.order_selection.counting import Place
from inference.structures.mixture.structure import MixtureStructure
from ppl_models import Bernoulli, HiddenMarkov, Mixture, MultivariateNormal, Normal, Poisson

F64 = torch.float64
pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.DegenerateWarning",
    "ignore::inference.ConvergenceWarning",
    "ignore::inference.BoundWarning",
    "ignore::inference.EstimateWarning",
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


# ---------------------------------------------------------------- sizes that grow


def groups(num: int, rows: int = 200, seed: int = 100) -> Tensor:
    """Rows about ``num`` far centres in the plane."""
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(num, (rows,), generator=generator)
    centres = 8 * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=F64)
    return centres[which] + torch.randn(rows, 2, generator=generator, dtype=F64)


def normals(k: int) -> Mixture:
    return Mixture(k, MultivariateNormal(), 2)


def diagonal(k: int) -> Mixture:
    return Mixture(k, Normal(), 2)


def answers() -> Tensor:
    """Ten answers of two classes."""
    chance = torch.tensor([[0.9] * 5 + [0.1] * 5, [0.1] * 5 + [0.9] * 5], dtype=F64)
    generator = torch.Generator().manual_seed(100)
    return torch.bernoulli(chance[torch.arange(200) % 2], generator=generator)


def classes(k: int) -> Mixture:
    return Mixture(k, Bernoulli(), 10)


@pytest.fixture
def fitted(monkeypatch) -> list[tuple[int, bool]]:
    """Number of components of every fit, and whether its search was a full one."""
    calls: list[tuple[int, bool]] = []
    own = Study.fitted

    def counting(self, problem, data, shared=None):
        result = own(self, problem, data, shared)
        calls.append((problem.model.num_components, shared is None or shared.is_full))
        return result

    monkeypatch.setattr(Study, "fitted", counting)
    return calls


def test_the_choice_is_that_of_every_division_of_the_rows():
    """Six patterns, divided among components in every way: no better BIC at any size."""
    x, price = six_patterns.answers(), math.log(56)
    for seed in (100, 101):
        found = select_dimension(
            lambda k: Mixture(k, Bernoulli(), 6), x, range(1, 7), "bic", seed=seed
        )
        known = {}
        for k, model in zip(found.sizes, found.study.models, strict=True):
            value = float(six_patterns.brute_force(model).max())
            known[k] = price * (7 * k - 1) - 2 * value
        tried = dict(zip(found.sizes, found.columns["bic"][: len(found.fits)], strict=False))
        best = {k: min(value, tried.get(k, math.inf)) for k, value in known.items()}
        assert found.chosen == min(best, key=best.__getitem__)
        assert tried[found.chosen] == pytest.approx(best[found.chosen], abs=1e-3)
        assert all(value < best[k] + 5 for k, value in tried.items())


def test_the_states_of_a_chain_are_those_of_an_exhaustive_search():
    """Every size by twenty starts run to the end."""
    generator = torch.Generator().manual_seed(100)
    x = 4.0 * (torch.arange(60) // 30).unsqueeze(-1) + torch.randn(60, 1, generator=generator)
    found = select_dimension(lambda k: HiddenMarkov(k, Normal(), 1), x.double(), [1, 2, 3], "bic")
    every = [
        fit(one.model, x.double(), EM(), init="random", num_restarts=20 if k > 1 else 1, seed=100)
        for k, one in zip(found.sizes, found.fits, strict=True)
    ]
    best = min((one for one in every if not one.restarts.faults), key=lambda one: one.bic)
    assert min(found.columns["bic"]) < best.bic + 0.02
    assert found.best.num_parameters == best.num_parameters


def test_sizes_above_a_rise_are_not_tried_and_said(fitted, tmp_path):
    x = groups(3)
    found = select_dimension(normals, x, range(1, 9), "bic")
    tried = len(found.fits)
    assert found.chosen == 3
    assert tried == 5  # 4 and 5 are ruled out
    values = found.columns["bic"]
    margin = 2 * max(CLEAR, 2 * max(own.gain for own in found.study.climb.searches[1:tried]))
    assert all(value > min(values[:tried]) + margin for value in values[3:5])
    assert all(math.isnan(value) for value in values[tried:])
    rise = values[4] - values[2]
    words = f"not tried: the criterion had risen by {rise:,.1f}"
    assert found.table["tried"].tolist() == ["yes"] * 5 + [words] * 3
    assert "Size 6 to 8 was not tried: at 5, and at the size before it," in found.sentences[0]
    assert found.table["starts"].tolist()[1:5] == [
        FRESH_STARTS + k - 1 for k in (2, 3, 4, 5)
    ]  # the splits of the size before, and ten
    assert found.best.restarts.num_reached >= 3
    assert found.table["reached"].iloc[2] == found.best.restarts.num_reached
    assert [k for k, is_full in fitted if is_full] == [3]  # only the chosen one, fully
    assert "not tried" in found.report(tmp_path / "page.html").read_text()
    found.plot()


def test_another_criterion_goes_on_from_the_fits_there_are(fitted):
    found = select_dimension(classes, answers(), range(1, 6), "bic")
    own = list(fitted)
    fitted.clear()
    assert found.by("bic").fits == found.fits
    assert fitted == []
    other = found.study.fits()  # all sizes, each fully searched, as for "acdc"
    assert len(found.fits) == 4
    assert len(other) == 5
    again = [k for k, _ in fitted]
    assert sorted(again) == sorted(set(again))
    assert not set(again) & {k for k, is_full in own if is_full}
    for small, full in zip(found.fits, other, strict=False):
        assert full.objective > small.objective - 1e-4
        assert full.restarts.num_tried is None or full.restarts.num_tried >= (
            small.restarts.num_tried
        )


def test_where_the_climb_does_not_end_early(fitted):
    """Gaps have no splits; a named number of starts, and other criteria, want every size."""
    x = groups(2, 120)
    for grid, criterion, num in (([1, 3, 5], "bic", None), (range(1, 6), "bic", 2)):
        found = select_dimension(diagonal, x, grid, criterion, num_restarts=num)
        assert len(found.fits) == len(grid)
    fitted.clear()
    held_out = select_dimension(diagonal, x, range(1, 4), "held_out")
    assert len(held_out.fits) == 3
    assert fitted == [(1, True), (2, True), (3, True)]


def test_the_margin_of_a_rise_grows_with_what_starts_gained():
    climb = Climb([], [SharedSearch(gain=math.nan), SharedSearch(gain=0.5)])
    assert climb.margin == 20
    climb.searches.append(SharedSearch(gain=7.5))
    assert climb.margin == 30

    def place(scores: list[float], gains: list[float]) -> int | None:
        searches = [SharedSearch(gain=gain) for gain in gains]
        fits = [None] * len(scores)
        return Climb(fits, searches).place(9, lambda fits: scores)

    nan = math.nan
    assert place([50, 0, 25, 31], [nan, 0, 0, 0]) is None
    assert place([50, 0, 25, 31], [nan, 0, 7, 0]) == 4  # 28: not yet by both
    assert place([50, 0, 25, 19], [nan, 0, 0, 0]) == 4
    assert place([50, 0, 25, 31], [nan, 0, nan, 0]) == 4  # no sound solution from the splits
    assert place([50, 0, 25], [nan, 0, 0]) == 3


def test_a_wider_grid_fits_no_number_again(monkeypatch):
    """Four components, where the first grid ends at three."""
    monkeypatch.setattr("inference.selection.order_selection.select_components.LARGEST", (3, 6))
    places: list[tuple[str, int]] = []
    best = Place.best

    def counting(self):
        places.append((self.candidate.name, self.k))
        return best(self)

    monkeypatch.setattr(Place, "best", counting)
    x = groups(4, 400)
    found = select_components(normals, x, distributions=[normals(1)], num_restarts=4)
    assert found.num_components == 4
    assert [k for _, k in places] == sorted({k for _, k in places})
    assert max(k for _, k in places) > 3
    whole = select_components(normals, x, range(1, 7), distributions=[normals(1)], num_restarts=4)
    assert found.table.equals(whole.table)
    assert found.sentences == whole.sentences


def test_a_candidate_is_not_fitted_beyond_a_clear_rise():
    """Both penalised deviances have to rise, and the lenient one rises late."""
    model = classes(1)
    found = select_components(model, answers(), range(1, 13), distributions=[model], num_restarts=4)
    assert found.num_components == 2
    tried = [k for _, k in found.fits]
    assert tried == list(range(1, max(tried) + 1))
    assert 4 <= max(tried) < 12
    for name in ("bic", "lenient"):
        values = found.table[name]
        assert values.iloc[-2:].min() > values.min() + 20
    assert f"Not tried was Bernoulli above {max(tried)}, for both penalised" in found.sentences[2]
