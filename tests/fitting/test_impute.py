"""What a fit expects of rows: the mean of the components' means under a row's posterior, in place
of missing entries.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from inference import EM, fit
from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    HiddenMarkov,
    Mixture,
    MultivariateT,
    Normal,
    OptionsHMM,
    Poisson,
    SkewNormal,
)

MIXED = Blocks(
    (Normal(), 1), (Categorical(("north", "south", "west")), 1), (Poisson(), 1), (Bernoulli(), 1)
)


def people(num: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    old = np.arange(num) % 3 == 0
    frame = pd.DataFrame({
        "income": np.where(old, 50_000, 20_000) + 4_000 * rng.normal(size=num),
        "city": np.where(rng.random(num) < 0.85, np.where(old, "west", "north"), "south"),
        "visits": rng.poisson(np.where(old, 9, 1)).astype(float),
        "owner": (rng.random(num) < np.where(old, 0.9, 0.1)).astype(float),
    })  # fmt: skip
    return frame.mask(pd.DataFrame(rng.random(frame.shape) < 0.05, columns=frame.columns))


def test_missing_cells_of_mixed_columns_are_filled_under_their_names() -> None:
    frame = people()
    frame.loc[0] = [np.nan, np.nan, 12.0, np.nan]
    model = Mixture(2, MIXED)
    result = fit(model, frame, EM(), num_restarts=2)
    filled = result.fill_missing(frame)
    assert not filled.isna().to_numpy().any()
    assert filled.where(frame.notna()).equals(frame)
    assert filled.loc[0, "city"] == "west"
    chances = result.predict_proba(frame)[0]
    tables, predictors = result.params["probabilities"].numpy(), result.params["predictors"].numpy()
    assert filled.loc[0, "income"] == pytest.approx(chances @ predictors[:, 0])
    assert filled.loc[0, "owner"] == pytest.approx(chances @ (1 / (1 + np.exp(-predictors[:, 2]))))
    expected = result.reconstruct(frame)
    assert expected.shape == frame.shape
    assert expected[0].tolist() == pytest.approx(
        [
            filled.loc[0, "income"],
            float((chances @ tables).argmax()),
            chances @ np.exp(predictors[:, 1]),
            filled.loc[0, "owner"],
        ]
    )
    shuffled = frame[["owner", "visits", "city", "income"]].iloc[::-1]
    pd.testing.assert_frame_equal(
        result.fill_missing(shuffled), filled[["owner", "visits", "city", "income"]].iloc[::-1]
    )


@pytest.mark.parametrize(
    "distribution",
    [MultivariateT(), SkewNormal()],
    ids=lambda distribution: type(distribution).__name__,
)
@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_distributions_of_whole_rows_expect_their_means(distribution) -> None:
    x = np.random.default_rng(0).gamma(2.0, size=(200, 2))
    result = fit(Mixture(1, distribution, 2), x, EM(max_iterations=100))
    drawn = result.simulate(40_000)["items"].mean(0)
    torch.testing.assert_close(result.reconstruct(x)[0], drawn, rtol=0.05, atol=0.02)


def test_a_gap_in_a_sequence_is_filled_from_its_neighbours() -> None:
    x = np.repeat([0.0, 8.0, 0.0, 8.0], 10)[None, :, None] + 0.5 * np.random.default_rng(0).normal(
        size=(1, 40, 1)
    )
    x[0, 15] = np.nan
    result = fit(HiddenMarkov(2, Normal()), x, EM(), num_restarts=2)
    filled = result.fill_missing(x)
    assert filled[0, 15, 0] == pytest.approx(8.0, abs=0.5)
    assert np.array_equal(np.delete(filled, 15, 1), np.delete(x, 15, 1))
    ragged = result.reconstruct([x[0, :20], x[0, :5]])
    assert bool(ragged[1, 5:].isnan().all())
    with pytest.raises(ValueError, match="one array"):
        result.fill_missing([x[0, :20], x[0, :5]])
    short = np.concatenate([x, x])
    short[1, 20:], short[:, 38:] = np.nan, np.nan
    for given in (short, torch.from_numpy(short)):
        padded = np.asarray(result.fill_missing(given))
        assert padded.shape == short.shape
        assert np.isnan(padded).sum() == 22  # the steps after the ends
        assert padded[:, 15, 0] == pytest.approx([8.0, 8.0], abs=0.5)
    one = np.concatenate([x[0], [[np.nan]]])  # of one table an empty step at the end is a step
    assert result.fill_missing(one).shape == (41, 1)
    assert np.isfinite(result.fill_missing(one)).all()


def test_a_model_without_expectations_says_so() -> None:
    rng = np.random.default_rng(0)
    data = {"state": rng.integers(0, 2, (4, 6)), "action": rng.integers(0, 2, (4, 6))}
    result = fit(
        OptionsHMM(2, 2, 2), data, EM(max_iterations=2, tolerance=1.0, parameter_tolerance=10.0)
    )
    with pytest.raises(ValueError, match="not for OptionsHMM; fit.simulate"):
        result.reconstruct(data)
