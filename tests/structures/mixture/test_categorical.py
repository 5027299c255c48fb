"""Latent classes of categorical items: equality with Bernoulli classes, likelihood over all
patterns, names through a fit, odd sizes, pictures.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, Fit, fit
from inference.fitting.problem import problem_of
from inference.plots import plot_categories
from inference.predictive import predictive_check
from ppl_models import Bernoulli, Blocks, Categorical, Mixture, Normal, Ordinal

F64 = torch.float64
SHORT = EM(max_iterations=200, tolerance=1e-8)
SIZES = (3, 2, 3)


def classes(num_rows: int, sizes: tuple[int, ...], num_classes: int, seed: int) -> torch.Tensor:
    """Codes of rows of classes with tables of their own, a tenth missing."""
    rng = np.random.default_rng(seed)
    own = rng.integers(0, num_classes, num_rows)
    tables = [rng.dirichlet(np.full(size, 0.5), num_classes) for size in sizes]
    codes = np.stack(
        [
            [rng.choice(size, p=table[c]) for c in own]
            for size, table in zip(sizes, tables, strict=True)
        ],
        1,
    ).astype(float)
    codes[rng.random(codes.shape) < 0.1] = math.nan
    codes[np.isnan(codes).all(1), 0] = 0.0
    return torch.tensor(codes)


def quietly(model, data, *args, **settings) -> Fit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(model, data, *args, **settings)


def test_two_categories_are_bernoulli_items() -> None:
    """One E-step and M-step after another, from the same point: the same likelihoods and
    chances.
    """
    data = classes(80, (2, 2, 2), 2, 0)
    tables, bits = (
        problem_of(Mixture(2, component, 3), data, 0)
        for component in (Categorical(2, concentration=1.0), Bernoulli())
    )
    chances = torch.tensor([[[0.2, 0.4, 0.7], [0.6, 0.5, 0.1]]], dtype=F64)
    weights = {"weights": torch.tensor([[0.4, 0.6]], dtype=F64)}
    one = weights | {"probabilities": torch.stack([1 - chances, chances], -1).flatten(-2)}
    two = weights | {"predictors": chances.logit()}
    steps = [EM().steps(problem) for problem in (tables, bits)]
    for _ in range(5):
        (first, value, _), (second, other, _) = steps[0].e_step(one), steps[1].e_step(two)
        torch.testing.assert_close(value, other)
        one, two = steps[0].m_step(first, one), steps[1].m_step(second, two)
        torch.testing.assert_close(one["probabilities"][..., 1::2], two["predictors"].sigmoid())


def test_the_likelihood_sums_to_one_over_all_patterns() -> None:
    data = classes(60, SIZES, 2, 1)
    result = quietly(Mixture(2, Categorical(SIZES)), data, SHORT, num_restarts=2)
    cells = torch.tensor(list(itertools.product(*map(range, SIZES))), dtype=F64)
    assert float(result.log_likelihood_rows(cells).logsumexp(0)) == pytest.approx(0, abs=1e-10)
    assert result.num_parameters == 1 + 2 * (sum(SIZES) - 3)
    tables = result.params["probabilities"]
    assert float(tables.min()) > 0  # a prior a little above flat keeps them off zero
    torch.testing.assert_close(
        torch.stack([part.sum(-1) for part in tables.split(SIZES, -1)]), torch.ones(3, 2, dtype=F64)
    )


@pytest.mark.parametrize("concentration", [1.0, 1.5])
def test_em_stops_where_the_posterior_is_highest(concentration: float) -> None:
    """The gradient along the simplexes, by the program: zero, or pointing out of them."""
    data = classes(70, SIZES, 2, 4)
    model = Mixture(2, Categorical(SIZES, concentration=concentration))
    result = quietly(model, data, EM(max_iterations=5000, tolerance=1e-13), num_restarts=1)
    program = problem_of(model, data, 0).program()
    leaves = {name: value.clone().requires_grad_() for name, value in result.params.items()}
    with torch.enable_grad():
        value = program.log_marginal(leaves) + program.log_prior(leaves)
    for slope, own in zip(
        torch.autograd.grad(value, leaves["probabilities"])[0].split(SIZES, -1),
        result.params["probabilities"].split(SIZES, -1),
        strict=True,
    ):
        centred = slope - (slope * own).sum(-1, keepdim=True)
        assert float((centred * own).abs().max()) < 1e-3
        assert float(centred.max()) < 1e-1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_components", [1, 2])
def test_one_component_and_items_of_one_category(dtype, num_components) -> None:
    data = torch.cat([classes(40, (3, 2), 2, 2), torch.zeros(40, 1)], 1).to(dtype)
    result = quietly(Mixture(num_components, Categorical((3, 2, 1))), data, SHORT, num_restarts=2)
    assert result.params["probabilities"].dtype == dtype
    assert torch.equal(
        result.params["probabilities"][:, 5], torch.ones(num_components, dtype=dtype)
    )
    assert result.num_parameters == num_components - 1 + 3 * num_components
    if num_components == 1:
        shares = torch.stack(
            [(data[:, 0] == h).sum() / (~data[:, 0].isnan()).sum() for h in range(3)]
        )
        torch.testing.assert_close(
            result.params["probabilities"][0, :3], shares.to(dtype), atol=1e-3, rtol=0
        )


def test_equal_rows_are_merged_exactly() -> None:
    """400 rows with missing entries, of few patterns: both halves of EM as by the rows one by
    one.
    """
    data = torch.cat([classes(400, (3, 2), 2, 6), classes(400, (2, 2), 2, 7)], 1)
    model = Mixture(2, Blocks((Ordinal(3), 1), (Categorical(2), 1), (Bernoulli(), 2)))
    steps = EM().steps(problem_of(model, data, 0))
    distinct, counts = steps.distribution.patterns(data)
    assert len(distinct) < 110
    assert float(counts.sum()) == 400
    back = {
        tuple(row): int(number)
        for row, number in zip(distinct.nan_to_num(-1).tolist(), counts.tolist(), strict=True)
    }
    assert back == Counter(tuple(row) for row in data.nan_to_num(-1).tolist())
    params = {
        name: value[:1]
        for name, value in problem_of(model, data, 0).program().draw_prior(1, 3).items()
    }
    merged, value, _ = steps.e_step(params)
    steps.__dict__["_rows"] = (data, None, None)
    del steps.__dict__["_prepared"]
    plain, expected, _ = steps.e_step(params)
    torch.testing.assert_close(value, expected)
    for name, own in steps.m_step(merged, params).items():
        torch.testing.assert_close(own, steps.m_step(plain, params)[name])


# ---------------------------------------------------------------- names


@pytest.fixture(scope="module")
def answers() -> pd.DataFrame:
    codes = classes(120, (3, 2, 3), 2, 5).numpy()
    names = [["north", "south", "west"], ["no", "yes"], [1, 2, 3]]
    columns = {
        item: [own[int(h)] if h == h else None for h in codes[:, j]]
        for j, (item, own) in enumerate(zip(("place", "smokes", "grade"), names, strict=True))
    }
    return pd.DataFrame(columns).assign(age=np.random.default_rng(0).normal(40, 5, 120))


@pytest.fixture(scope="module")
def named(answers) -> Fit:
    items = answers[["place", "smokes", "grade"]]
    return quietly(Mixture(2, Categorical.from_frame(items)), items, SHORT, num_restarts=2)


CATEGORIES = [
    "place=north",
    "place=south",
    "place=west",
    "smokes=no",
    "smokes=yes",
    "grade=1",
    "grade=2",
    "grade=3",
]


def test_names_go_through_the_fit(named, answers, tmp_path) -> None:
    assert named.category_names == {
        "place": ("north", "south", "west"),
        "smokes": ("no", "yes"),
        "grade": ("1", "2", "3"),
    }
    assert list(named.frames["probabilities"].columns) == CATEGORIES
    assert (
        "probabilities[1, smokes=yes]" in named.summary(answers[["place", "smokes", "grade"]]).index
    )
    idata = named.to_arviz(answers[["place", "smokes", "grade"]])
    assert idata["posterior"]["probabilities"].dims == ("chain", "draw", "component", "category")
    assert list(idata["posterior"]["category"].values) == CATEGORIES
    named.save(tmp_path / "fit")
    again = Fit.load(tmp_path / "fit")
    assert again.category_names == named.category_names
    row = pd.DataFrame(
        {"grade": [2], "place": ["west"], "smokes": ["yes"]}
    )  # another order of columns
    codes = torch.tensor([[2.0, 1.0, 1.0]], dtype=F64)
    assert np.array_equal(again.predict_proba(row), named.predict_proba(codes))
    with pytest.raises(ValueError, match="column 'place': level 'Maybe' is unknown"):
        again.predict(row.assign(place="Maybe"))


def test_categories_beside_numbers(answers) -> None:
    items = answers[["age", "place", "smokes"]]
    model = Mixture(
        2, Blocks((Normal(), 1), (Categorical.from_frame(items[["place", "smokes"]]), 2))
    )
    result = quietly(model, items, SHORT, num_restarts=2)
    assert list(result.frames["predictors"].columns) == ["age"]
    assert list(result.frames["probabilities"].columns) == CATEGORIES[:5]
    assert result.num_parameters == 1 + 2 * (1 + 1 + 2 + 1)
    assert result.plot() is not None


def test_pictures_and_checks(named, answers) -> None:
    figure = plot_categories(named, {"component": ["city", "coast"]})
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title("left") for axes in panels] == ["place", "smokes", "grade"]
    widths = np.array([bar.get_width() for bar in panels[0].patches]).reshape(3, 2).T  # (K, C)
    np.testing.assert_allclose(widths, named.params["probabilities"][:, :3].numpy())
    assert "city" in panels[0].get_yticklabels()[0].get_text()
    check = predictive_check(named, answers[["place", "smokes", "grade"]], num_simulations=10)
    assert check.observed.shape == (120, 5)  # indicators of all categories but the first
    observed = check.item_means()[0]
    assert observed[0] == pytest.approx(
        (answers["place"] == "south").sum() / answers["place"].notna().sum()
    )
    with pytest.raises(ValueError, match="plot_categories: a fit with categorical items"):
        plot_categories(
            quietly(Mixture(2, Bernoulli(), 3), classes(40, (2, 2, 2), 2, 0), SHORT, num_restarts=1)
        )
