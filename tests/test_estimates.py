"""fit.summary(): every estimate by its name, with an interval or the reason why there is none."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, Laplace, fit
from inference.estimates import estimates_of
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    LatentAttributeModel,
    Mixture,
    Normal,
    PoissonFactorization,
    TruncatedLasso,
)
from ppl_models.datasets import mastery_test

COLUMNS = ["estimate", "error", "low", "high", "interval"]


def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        rng.normal(size=(100, 2)) + 6 * rng.integers(0, 2, (100, 1)), columns=["x", "y"]
    )


@pytest.fixture(scope="module")
def fitted():
    return fit(
        Mixture(num_components=2, component=Normal(), num_items=2),
        people(),
        EM(tolerance=1e-12),
        num_restarts=2,
    )


def test_errors_are_asked_for(fitted) -> None:
    """Without the data nothing is differentiated; with them the columns are those of
    standard_errors.
    """
    plain = fitted.summary()
    assert list(plain.columns) == COLUMNS
    assert plain.index[0] == "weights[0]"
    assert plain[["error", "low", "high"]].isna().all().all()
    assert set(plain["interval"]) == {"needs the data"}
    full = fitted.summary(people(), level=0.9)
    found = standard_errors(fitted, people())
    assert full.loc["mean[1, y]", "estimate"] == float(fitted.params["predictors"][1, 1])
    assert full.loc["mean[1, y]", "error"] == pytest.approx(
        float(found.standard_errors["predictors"][1, 1])
    )
    low, high = found.intervals(0.9)["weights"]
    assert full.loc["weights[0]", ["low", "high"]].tolist() == pytest.approx(
        [float(low[0]), float(high[0])]
    )
    assert set(full["interval"]) == {"standard error"}
    assert full.attrs == {
        "level": 0.9,
        "source": "standard errors from the curvature of the log-likelihood",
        "note": "",
        "entries": "weights[component], mean[component, item], variance[component, item]",
    }


def test_it_is_shown_in_few_digits_and_kept_in_all(fitted) -> None:
    """Failed before: seven digits, and at a prompt the errors cut out of the middle."""
    full = fitted.summary(people())
    first, *_, last = repr(full).splitlines()
    assert first.split() == COLUMNS
    assert last == "Entries: weights[component], mean[component, item], variance[component, item]."
    value, error = full.loc["weights[0]", ["estimate", "error"]]
    assert f"{value:.3f}  {error:.3f}" in repr(full)
    assert f"<td>{value:.3f}</td>" in full._repr_html_()
    assert repr(full.head(1)).splitlines()[1].split()[:3] == [
        "weights[0]",
        f"{value:.3f}",
        f"{error:.3f}",
    ]
    assert full["estimate"].iloc[0] == float(fitted.params["weights"][0])
    assert "Note: intervals need the data of the fit" in repr(fitted.summary())
    assert "low" not in repr(fitted.summary())
    plain = fitted.summary()
    plain["error"] = [30.0] + [0.0004] * (len(plain) - 1)
    assert "error" in repr(plain)
    assert repr(full["error"].to_frame("mine")) == repr(
        pd.DataFrame(full["error"].to_frame("mine"))
    )


def test_names_are_the_user_s(fitted) -> None:
    assert "mean[tall, x]" in fitted.summary(names={"component": ["short", "tall"]}).index


def test_draws_have_their_own_intervals() -> None:
    drawn = fit(
        Mixture(num_components=2, component=Normal(), num_items=2), people(), Laplace(num_draws=200)
    )
    frame = drawn.summary()
    values = drawn.draws["predictors"][..., 0, 1].numpy().ravel()
    line = frame.loc["mean[0, y]"]
    assert line["estimate"] == pytest.approx(values.mean())
    assert line["error"] == pytest.approx(values.std(ddof=1))
    assert [line["low"], line["high"]] == pytest.approx(
        np.quantile(values, [0.025, 0.975]).tolist()
    )
    assert line["interval"] == "posterior draws by Laplace"


def test_blank_with_a_reason() -> None:
    rng = np.random.default_rng(2)
    skill = rng.integers(0, 2, (200, 1))
    answers = (rng.random((200, 4)) < 0.15 + 0.7 * skill).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shrunk = fit(
            DeepDiscreteEncoder(4, (1,), penalty=TruncatedLasso(5.0, 0.5)),
            answers,
            EM(max_iterations=20),
        )
    counts = rng.poisson(4, (30, 4)).astype(float)
    amounts = fit(PoissonFactorization(4, 2), counts)
    for result, data, reason in (
        (shrunk, answers, "penalty"),
        (amounts, counts, "activities of the rows are estimated beside the parameters"),
    ):
        for frame in (result.summary(), result.summary(data)):
            assert frame["estimate"].notna().all()
            assert frame[["error", "low", "high"]].isna().all().all()
            assert (frame["interval"] == "none, see note").all()
            assert reason in frame.attrs["note"]
            assert "pass them" not in frame.attrs["note"]


def test_what_is_held_says_so() -> None:
    rng = np.random.default_rng(3)
    skill = rng.integers(0, 2, (400, 2))
    graph = torch.tensor([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]])
    answers = (rng.random((400, 6)) < 0.15 + 0.7 * skill[:, [0, 0, 0, 1, 1, 1]]).astype(float)
    result = fit(
        DeepDiscreteEncoder(6, (2,), Bernoulli(), penalty=None, graphs=(graph,)),
        answers,
        EM(tolerance=1e-10),
    )
    frame = result.summary(answers)
    off = frame.loc[[f"loadings_1[{j}, {int(j < 3)}]" for j in range(6)]]
    assert (off["estimate"] == 0).all()
    assert (off["interval"] == "held at this value").all()
    assert frame.loc["loadings_1[0, 0]", "error"] > 0


def test_bad_input_is_refused(fitted) -> None:
    with pytest.raises(ValueError, match="level must lie in"):
        fitted.summary(level=95)
    with pytest.raises(ValueError, match="summary: data: the 100 rows of the fit were expected"):
        fitted.summary(people()[:50])
    with pytest.raises(ValueError, match="'y' is missing"):
        fitted.summary(people()[["x"]])


def test_numbers_that_are_held_at_zero_need_no_rows():
    """A conjunctive item has two free numbers, whatever its attributes; there are more entries than
    rows.
    """
    test = mastery_test(num_items=12, num_attributes=3, seed=1)
    rows, _ = test.draw(90, seed=2)
    result = fit(LatentAttributeModel(test.model.q_matrix, items="dina"), rows)
    assert sum(value.numel() for value in result.params.values()) > 90 > result.num_parameters
    assert "fewer rows" not in estimates_of(result, rows).note


def test_a_sum_over_too_many_configurations_is_not_differentiated_unasked(monkeypatch) -> None:
    """Failed before: the page of twenty latents took more than six minutes, a million
    configurations of every row differentiated twice.
    """
    answers, _ = mastery_test(num_items=8, num_attributes=3, seed=1).draw(200, seed=2)
    result = fit(DeepDiscreteEncoder(8, (3,)), answers, EM(max_iterations=300))
    assert "a while" not in str(estimates_of(result, answers).note)
    monkeypatch.setattr("inference.estimates.MOST_BITS", 12)
    assert (
        "they would take a while; inference.uncertainty.standard_errors(fit, data) works them out"
        in str(estimates_of(result, answers).note)
    )
    monkeypatch.setattr("inference.estimates.FEW_BITS", 2)
    assert "200 rows, and 2^3 configurations of a row's latents, they would take a while" in str(
        estimates_of(result, answers).note
    )
