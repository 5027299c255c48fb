"""What a page says of the groups of a mixture, against truths that are known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, SAEM, Fit, fit
from inference.report import write_report
from inference.report.fit import _numbers, _wobbles
from inference.report.mixture_findings import dependent_items, groups_of
from inference.report.predictive_words import column_names
from inference.report.results_folder import summarise
from inference.report.sections import Subject, checks_of
from inference.report.verdicts import verdict
from ppl_models import Categorical, DeepDiscreteEncoder, Mixture

pytestmark = pytest.mark.usefixtures("unpainted")


def table(
    correlation: float, seed: int = 0, num_rows: int = 600
) -> tuple[pd.DataFrame, np.ndarray]:
    """Two groups far apart in a and b; a and b go together inside them as told; c says nothing."""
    rng = np.random.default_rng(seed)
    group = (rng.random(num_rows) < 0.3).astype(int)
    a, b, c = rng.normal(size=(3, num_rows))
    b = correlation * a + np.sqrt(1 - correlation**2) * b
    return pd.DataFrame({"a": a + 8 * group, "b": 2 * (b - 8 * group), "c": c}), group


def subject_of(result: Fit, data: pd.DataFrame) -> Subject:
    return Subject(result, data, None, None)


@pytest.fixture(scope="module")
def fitted() -> tuple[Fit, pd.DataFrame, np.ndarray]:
    data, group = table(0.0)
    data.iloc[::7, 2] = np.nan
    return fit(Mixture(2, num_items=3), data, EM(), num_restarts=2), data, group


def test_profiles_are_those_of_groups_that_rows_tell_apart_with_certainty(fitted):
    result, data, group = fitted
    groups = groups_of(subject_of(result, data))
    assert groups is not None
    for k in (0, 1):
        np.testing.assert_allclose(groups.means[k], data[group == k].mean(), atol=1e-3)
    np.testing.assert_allclose(groups.spread, data.std(ddof=0))
    means = data.groupby(group).mean()
    lie_between = (
        (means.loc[group].to_numpy() - data.mean().to_numpy()) ** 2 * data.notna().to_numpy()
    ).sum(0) / ((data - data.mean()) ** 2).sum()
    np.testing.assert_allclose(groups.between, lie_between, atol=1e-3)
    assert groups.between[0] > 0.9 > 0.05 > groups.between[2]
    assert groups.right.min() > 0.99


def test_columns_that_go_together_inside_groups_are_found_and_others_are_not(fitted):
    assert dependent_items(groups_of(subject_of(*fitted[:2]))) == ()
    data, group = table(0.5)
    inside = (data - data.groupby(group).transform("mean")).corr().loc["a", "b"]
    (found,) = dependent_items(
        groups_of(subject_of(fit(Mixture(2, num_items=3), data, EM(), num_restarts=2), data))
    )
    assert {found.one, found.other} == {"a", "b"}
    assert found.correlation == pytest.approx(inside, abs=1e-3)


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_gaps_leave_the_correlation_inside_groups_as_it_is(share: float) -> None:
    """The correlation of the rows that have both columns; each gap made it smaller."""
    data, group = table(0.5, num_rows=2000)
    data["d"] = np.random.default_rng(2).normal(size=len(data))  # a row without any is refused
    gone = np.random.default_rng(1).random((len(data), 2)) < share
    data[["a", "b"]] = data[["a", "b"]].mask(gone)
    inside = (data - data.groupby(group).transform("mean")).corr().loc["a", "b"]
    result = fit(Mixture(2, num_items=4), data, EM(), num_restarts=2)
    (found,) = dependent_items(groups_of(subject_of(result, data)))
    assert {found.one, found.other} == {"a", "b"}
    assert found.correlation == pytest.approx(inside, abs=0.02)


def test_false_alarms_are_as_rare_as_the_level_says():
    """One group of independent columns, ten pairs a time: at one in a hundred tables a pair may be
    named.
    """
    rng, alarms = np.random.default_rng(3), 0
    result = fit(
        Mixture(1, num_items=5), pd.DataFrame(rng.normal(size=(50, 5)), columns=list("abcde")), EM()
    )
    for _ in range(60):
        data = pd.DataFrame(rng.normal(size=(200, 5)), columns=list("abcde"))
        groups = groups_of(subject_of(dataclasses.replace(result, num_rows=200), data))
        alarms += bool(dependent_items(groups))
    assert alarms <= 4  # 0.6 are expected


def test_the_page_says_it_first_and_in_words(fitted, tmp_path):
    result, data, _ = fitted
    page = write_report(result, data, tmp_path / "page.html").read_text()
    assert page.index('id="verdict"') < page.index('id="fitted"')
    for words in (
        "600 rows of 3 columns, as 2 groups (components) with estimated shares of 7",
        "More than 99 % of the rows are expected to be classified correctly",
        "a (9",
        "c has nearly the same mean in all groups",
        "no two columns clearly correlate",
        "right number of groups",
        "profiles of the groups",
    ):
        assert words in page, words


def test_groups_that_rows_do_not_tell_apart_are_named(tmp_path):
    data = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["a", "b"])
    result = fit(
        Mixture(2, num_items=2),
        data,
        EM(),
        init={
            "weights": torch.tensor([0.5, 0.5]).double(),
            "predictors": torch.tensor([[0.1, 0.0], [-0.1, 0.0]]).double(),
            "dispersion": torch.ones(2, 2).double(),
        },
    )
    page = write_report(result, data, tmp_path / "page.html").read_text()
    assert "Report no single row, and doubt the groups" in page


def test_a_page_of_noise_says_that_its_groups_are_worthless(tmp_path):
    """Failed before: a tick beside more than 90 %."""
    data = pd.DataFrame(np.random.default_rng(0).normal(size=(90, 4)), columns=list("abcd"))
    result = fit(Mixture(2, num_items=4), data, EM(tolerance=1e-5), num_restarts=8)
    page = write_report(result, data, tmp_path / "page.html").read_text()
    assert "Report no single row, and doubt the groups" in page
    subject = subject_of(result, data)  # its kind is found when a page is written
    found = next(
        finding
        for finding in verdict(result.structure, subject).findings
        if finding.question == "How surely are rows classified?"
    )
    assert found.mark == "bad"
    assert "make the classification worthless" in found.answer


def test_items_of_categories_are_looked_at_category_by_category():
    """Two answers that are the same in half of the rows, whatever the group: found once, and never
    two categories of one item.
    """
    rng = np.random.default_rng(1)
    x, other = rng.integers(0, 3, (2, 400))
    y = np.where(rng.random(400) < 0.5, x, other)
    data = pd.DataFrame({"x": x, "y": y, "z": rng.integers(0, 2, 400)}).astype(str)
    groups = groups_of(subject_of(fit(Mixture(1, Categorical.from_frame(data)), data, EM()), data))
    assert groups.names == ("x=0", "x=1", "x=2", "y=0", "y=1", "y=2", "z=0", "z=1")
    np.testing.assert_allclose(
        groups.means[0],
        np.concatenate([data[name].value_counts(normalize=True).sort_index() for name in data]),
    )
    assert set(groups.between_by_item()) == {"x", "y", "z"}
    (found,) = dependent_items(groups)
    assert (found.one[0], found.other[0]) == ("x", "y")
    assert found.correlation == pytest.approx(0.5, abs=0.15)


def test_a_page_of_a_mixture_with_covariates_has_odds_ratios(tmp_path):
    data, group = table(0.0, num_rows=200)
    data = data.assign(age=group + np.random.default_rng(1).normal(size=200))
    found = fit(Mixture(2, num_items=3, covariates="age"), data, EM(), num_restarts=1)
    page = write_report(found, data, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "How likely a row is to be in each depends on age." in page
    assert summarise(found)["num_items"] == 3  # the covariate was counted too
    (check,) = subject_of(found, data).once(checks_of).values()
    assert column_names(found, check) == ["a", "b", "c"]  # not "column 0", "column 1", ...
    ratio = float(found.params["coefficients"][0, 1].exp())
    assert "What the groups depend on" in page
    assert f"{ratio:.4g}" in page
    assert set(groups_of(subject_of(found, data)).names) == {"a", "b", "c"}  # type: ignore[union-attr]


def test_both_statistics_of_the_table_of_patterns_have_its_degrees_of_freedom(tmp_path):
    """Failed: X2 with 4 degrees of freedom beside G2 with 4,070, cut at a comma."""
    rng = np.random.default_rng(0)
    chance = np.where(rng.integers(2, size=(1000, 1)), 0.8, 0.2)
    answers = pd.DataFrame((rng.random((1000, 12)) < chance).astype(int)).add_prefix("item ")
    page = write_report(fit(Mixture(2), answers), answers, tmp_path).read_text(encoding="utf-8")
    assert page.count(">4,070 degrees of freedom<") == 2  # 2^12 - 1 - 25


def test_dependent_answers_have_a_page_too(tmp_path):
    """Items of categories are several columns each, and one item of the model."""
    rng = np.random.default_rng(2)
    group = rng.random(500) < 0.4
    first = np.where(rng.random(500) < np.where(group, 0.8, 0.2), "yes", "no")
    answers = pd.DataFrame(
        {
            "a": first,
            "b": np.where(rng.random(500) < 0.8, first, "maybe"),
            "c": np.where(rng.random(500) < np.where(group, 0.9, 0.2), "yes", "no"),
            "d": np.where(rng.random(500) < np.where(group, 0.9, 0.2), "yes", "no"),
        }
    )
    result = fit(Mixture(2, Categorical.from_frame(answers)), answers, EM(), num_restarts=3)
    assert dependent_items(groups_of(subject_of(result, answers)))
    page = write_report(result, answers, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Are columns independent inside the groups" in page
    assert "MultivariateNormal" not in page


def test_weighted_rows_have_the_log_likelihood_of_a_row_by_their_weights():
    rng = np.random.default_rng(0)
    answers = pd.DataFrame((rng.random((300, 3)) < 0.5) * 1.0, columns=list("abc"))
    patterns = answers.value_counts().reset_index()
    weighted = fit(
        Mixture(1), patterns[list("abc")], EM(), num_restarts=1, weights=patterns["count"]
    )
    rows = {line[0]: line[1] for line in next(_numbers(Subject(weighted, None, None, None))).rows}
    (shown,) = (value for name, value in rows.items() if name.endswith("a row"))
    # a row of three even coins, whatever the number of distinct patterns
    assert float(shown) == pytest.approx(-3 * np.log(2), abs=0.02)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", [EM(), SAEM(max_iterations=60)])
def test_a_curve_of_draws_is_not_called_flat(engine):
    rng = np.random.default_rng(1)
    bits = rng.random((200, 2)) < 0.5
    chances = np.where(bits[:, [0, 0, 0, 1, 1, 1]], 0.9, 0.2)
    answers = (rng.random((200, 6)) < chances) * 1.0
    model = DeepDiscreteEncoder(6, (2,), penalty=None)
    assert _wobbles(fit(model, answers, engine, num_restarts=1)) == isinstance(engine, SAEM)
