"""Ordinal items under a link: derivatives, the maximiser against direct maximisation, what two
categories come to, names and counts of a fit.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize

from inference import EM, Fit, fit
from inference.base.component_distributions.ordinal import maximise_ordinal
from inference.base.structure import category_chances
from inference.plots import plot_categories
from ppl_models import Bernoulli, Categorical, HiddenMarkov, Mixture, Ordinal

F64 = torch.float64
LINKS = ("cumulative", "adjacent")
SHORT = EM(max_iterations=300, tolerance=1e-9)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_slopes_are_derivatives_of_the_log_chances(link: str, size: int) -> None:
    family, location = Ordinal(size, link=link), torch.tensor(0.7, dtype=F64)
    own = torch.rand(size - 2, generator=torch.Generator().manual_seed(0), dtype=F64) + 0.3
    chances = family.log_chances_of_item(location, own).exp()
    assert float(chances.sum()) == pytest.approx(1)
    if link == "cumulative":
        ends = torch.sigmoid(torch.cat([torch.zeros(1, dtype=F64), own.cumsum(0)]) - location)
        torch.testing.assert_close(chances.cumsum(0)[:-1], ends)
    else:
        steps = torch.cat([torch.zeros(1, dtype=F64), own])
        torch.testing.assert_close(chances.log().diff(), location - steps)
    by_location, by_own = torch.autograd.functional.jacobian(
        family.log_chances_of_item, (location, own)
    )
    torch.testing.assert_close(
        family.slopes_of_item(location, own), torch.cat([by_location.unsqueeze(-1), by_own], -1)
    )


@pytest.mark.parametrize("link", LINKS)
def test_the_maximiser_finds_the_maximum(link: str) -> None:
    """Three items of 4, 2 and 3 categories, four classes, expected counts; against a maximiser of
    all numbers of an item together.
    """
    family, rng = Ordinal((4, 2, 3), link=link), np.random.default_rng(1)
    counts = torch.tensor(rng.gamma(1.0, 10.0, (1, 4, 9)))
    found, gaps = maximise_ordinal(
        family, counts, torch.zeros(1, 4, 3, dtype=F64), torch.ones(1, 3, dtype=F64), 15.0
    )
    entry = place = 0
    for j, size in enumerate((4, 2, 3)):
        own = counts[0, :, entry : entry + size]

        def minus(x: np.ndarray, own: torch.Tensor = own) -> float:
            point = torch.tensor(x)
            return -float((own * family.log_chances_of_item(point[:4], point[4:])).sum())

        limits = [(-15, 15)] * 4 + [family.threshold_range] * (size - 2)
        best = minimize(
            minus,
            np.r_[np.zeros(4), np.ones(size - 2)],
            method="L-BFGS-B",
            bounds=limits,
            options={"ftol": 1e-15, "gtol": 1e-9},
        )
        ours = np.r_[found[0, :, j].numpy(), gaps[0, place : place + size - 2].numpy()]
        assert minus(ours) <= best.fun + 1e-9
        np.testing.assert_allclose(ours, best.x, atol=2e-3)
        entry, place = entry + size, place + size - 2


@pytest.mark.parametrize("link", LINKS)
def test_a_point_beyond_which_nothing_is_stays_in_its_interval(link: str) -> None:
    """Classes without rows, categories without rows, all rows in one category."""
    family = Ordinal(4, link=link)
    counts = torch.tensor([[[0, 0, 0, 0], [5, 0, 0, 0], [3, 0, 4, 2], [0, 0, 0, 9]]], dtype=F64)
    location, gaps = maximise_ordinal(
        family, counts, torch.full((1, 4, 1), 0.3, dtype=F64), torch.ones(1, 2, dtype=F64), 15.0
    )
    assert bool(torch.isfinite(location).all() and torch.isfinite(gaps).all())
    assert float(location.abs().max()) <= 15
    assert bool(((gaps >= family.threshold_range[0]) & (gaps <= family.threshold_range[1])).all())
    assert float(location[0, 1, 0]) < float(location[0, 2, 0]) < float(location[0, 3, 0])


def ordered(num_rows: int, seed: int) -> pd.DataFrame:
    """Three classes that stand in one order on every item."""
    rng = np.random.default_rng(seed)
    level = rng.choice([-2.5, 0.0, 2.5], num_rows)
    names = ["never", "rarely", "often", "always"]
    cut = {
        item: pd.cut(
            level + rng.logistic(size=num_rows), [-np.inf, -1, 0.5, 2, np.inf], labels=names
        )
        for item in ("tired", "sad", "tense", "slow")
    }
    return pd.DataFrame(cut).mask(rng.random((num_rows, 4)) < 0.05)


@pytest.fixture(scope="module")
def answers() -> pd.DataFrame:
    frame = ordered(300, 0)
    return frame[frame.notna().any(axis=1)]


@pytest.fixture(scope="module")
def linked(answers) -> Fit:
    return fit(
        Mixture(3, Ordinal.from_frame(answers, link="cumulative")), answers, SHORT, num_restarts=3
    )


def test_names_and_numbers_of_a_fit(linked, answers, tmp_path) -> None:
    assert linked.num_parameters == 2 + 4 * (3 + 4 - 2)
    assert list(linked.frames["thresholds"].index[:2]) == [
        "tired:rarely|often",
        "tired:often|always",
    ]
    assert list(linked.frames["predictors"].columns) == ["tired", "sad", "tense", "slow"]
    order = linked.params["predictors"].argsort(0)
    assert bool((order == order[:, :1]).all())  # the classes stand in one order
    linked.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert again.model == linked.model
    assert np.array_equal(again.predict_proba(answers), linked.predict_proba(answers))
    chances = category_chances(linked.structure, linked.params)
    torch.testing.assert_close(chances.unflatten(-1, (4, 4)).sum(-1), torch.ones(3, 4, dtype=F64))
    panels = plot_categories(linked).axes
    assert [bar.get_width() for bar in panels[0].patches][:3] == pytest.approx(
        chances[:, 0].tolist()
    )


def test_fewer_numbers_than_tables_and_a_likelihood_no_higher(linked, answers) -> None:
    tables = fit(Mixture(3, Categorical.from_frame(answers)), answers, SHORT, num_restarts=6)
    assert linked.num_parameters < tables.num_parameters
    assert linked.log_likelihood < tables.log_likelihood
    assert linked.bic < tables.bic  # the data were drawn so


@pytest.mark.parametrize("link", LINKS)
def test_two_categories_are_bernoulli_items(link: str, answers) -> None:
    bits = torch.tensor(
        (answers[["tired", "sad", "tense"]].apply(lambda column: column.cat.codes) >= 2).to_numpy(
            dtype=float
        )
    )
    one = fit(Mixture(2, Ordinal(2, link=link), 3), bits, SHORT, num_restarts=2, seed=1)
    two = fit(Mixture(2, Bernoulli(), 3), bits, SHORT, num_restarts=2, seed=1)
    assert one.log_likelihood == pytest.approx(two.log_likelihood, abs=1e-5)
    torch.testing.assert_close(
        one.params["predictors"], two.params["predictors"], atol=1e-2, rtol=0
    )
    assert set(one.params) == {"weights", "predictors"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ordinal(3, link="logit"), "link must be 'cumulative', 'adjacent' or None"),
        (lambda: Ordinal((3, 1), link="adjacent"), "at least two categories"),
        (lambda: HiddenMarkov(2, Ordinal(3, link="adjacent"), 2), "without a link"),
        (
            lambda: Mixture(2, Ordinal((3, 3), link="adjacent"), 3),
            "categories of 2 items are given",
        ),
    ],
)
def test_what_is_refused(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()
