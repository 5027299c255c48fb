"""Rows that lack a covariate: refused by row, or left out of a fit that says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, RowBlocks, RowsWarning, fit
from ppl_models import Bernoulli, Covariates, DeepDiscreteEncoder, Mixture

ITEMS = ["a", "b", "c", "d"]
KNOWN = Covariates(("age", "sex"), ((), ("female", "male")))
MODELS = [
    Mixture(2, Bernoulli(), 4, covariates=KNOWN),
    DeepDiscreteEncoder(4, (1,), penalty=None, covariates=KNOWN),
]
both = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
QUICK = EM()


def table(num_rows: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    one = rng.random(num_rows) < 0.4
    frame = pd.DataFrame(
        (rng.random((num_rows, 4)) < np.where(one[:, None], 0.8, 0.25)).astype(float),
        columns=ITEMS,
        index=[f"row {i}" for i in range(num_rows)],
    )
    frame.insert(0, "sex", rng.choice(["female", "male"], num_rows))
    frame["age"] = rng.normal(40.0, 10.0, num_rows) + 5 * one
    frame.iloc[[3, 17], -1] = np.nan
    frame.iloc[20, 0] = None
    frame.iloc[5, 2] = np.nan  # an answer that is missing stays
    return frame


@both
def test_a_fit_without_such_rows_is_that_of_the_others_and_says_so(model: Any) -> None:
    frame, weights = (
        table(),
        pd.Series(1.0 + np.arange(240) % 2, index=[f"row {i}" for i in range(240)]),
    )
    complete = frame.dropna(subset=["age", "sex"])
    with pytest.warns(
        RowsWarning,
        match=(
            r"3 rows of 240 left out of the fit, for lack of a covariate: 3 \(of index 'row 3'\),"
            r" 17 \(of index 'row 17'\), 20 \(.*, counted from 0"
        ),
    ) as caught:
        found = fit(model, frame, QUICK, weights=weights, covariates_missing="drop")
    again = fit(
        model,
        complete,
        QUICK,
        weights=weights.to_numpy()[frame[["age", "sex"]].notna().all(axis=1)],
    )
    assert found.num_rows == 237
    assert str(caught[0].message) in found.warnings
    assert found.log_likelihood == again.log_likelihood
    for name, value in again.params.items():
        assert torch.equal(found.params[name], value)
    assert (
        fit(model, complete, QUICK, covariates_missing="drop").warnings == ()
    )  # nothing to leave out
    for ask in (found.predict, found.log_likelihood_rows, found.posterior_latents):
        with pytest.raises(
            ValueError,
            match=(
                r"'age' is missing in row 3 \(of index 'row 3'\) \(3 of"
                r" 240.*dropna\(subset=\['age', 'sex'\]\). Of a row without its covariates a fit"
                r" says nothing"
            ),
        ):
            ask(frame)


@both
def test_arrays_and_weights_of_any_kind(model: Any) -> None:
    frame = table()
    array = (
        frame[[*ITEMS, "age"]]
        .assign(sex=(frame["sex"] == "male").where(frame["sex"].notna()).astype(float))
        .to_numpy(dtype=float, copy=True)
    )
    often = np.arange(240) % 3
    results = []
    for data in (frame, array, torch.from_numpy(array)):
        for weights in (often, often.tolist(), torch.from_numpy(often)):
            with pytest.warns(RowsWarning):
                results.append(
                    fit(
                        model, data, QUICK, weights=weights, covariates_missing="drop"
                    ).log_likelihood
                )
    np.testing.assert_allclose(results, results[0], rtol=1e-12)


@both
def test_rows_are_refused_unless_asked_for(model: Any) -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"'age' is missing in row 3 \(of index 'row 3'\) \(3 of 240 rows.*let the fit do so,"
            r" fit\(..., covariates_missing='drop'\)"
        ),
    ):
        fit(model, table())
    with pytest.raises(ValueError, match="every row lacks a covariate"):
        fit(model, table().assign(age=np.nan), covariates_missing="drop")
    with pytest.raises(
        ValueError,
        match=r"weights: one number for each of the 240 rows was expected, got shape \(237,\)",
    ):
        fit(model, table(), weights=np.ones(237), covariates_missing="drop")
    with pytest.raises(ValueError, match="covariates 'sex' were expected"):
        fit(model, table().drop(columns="sex"), covariates_missing="drop")
    with pytest.raises(ValueError, match="wants its rows in memory"):
        fit(model, RowBlocks.of(np.zeros((10, 6))), covariates_missing="drop")


def test_the_word_is_checked_and_needs_covariates() -> None:
    with pytest.raises(
        ValueError, match="covariates_missing must be 'refuse' or 'drop', got 'omit'"
    ):
        fit(MODELS[0], table(), covariates_missing="omit")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="this Mixture has none"):
        fit(Mixture(2, Bernoulli(), 4), table()[ITEMS], covariates_missing="drop")
    with pytest.raises(ValueError, match="a callable, not a class"):
        fit(Mixture, table(), covariates_missing="drop")
