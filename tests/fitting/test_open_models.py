"""Models that are open until they meet their data: every door completes them alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from inference import EM, RowBlocks, fit
from inference.fitting.problem import model_of_data
from inference.selection import select, select_dimension
from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    HiddenMarkov,
    Mixture,
    Normal,
    PoissonFactorization,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of fits that are cut short


def people(rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    group = rng.integers(0, 2, rows)
    return pd.DataFrame(
        {
            "age": rng.normal(30 + 20 * group, 2),
            "smokes": (rng.random(rows) < 0.2 + 0.6 * group).astype(int),
            "town": np.array(["north", "south"])[group],
        }
    )


WHOLE = Mixture(
    2, Blocks((Normal(), 1), (Bernoulli(), 1), (Categorical(levels=(("north", "south"),)), 1)), 3
)


def test_a_plain_call_is_the_call_with_everything_said() -> None:
    """Failed before: num_items = 1 columns were expected, got 3."""
    found, own = (fit(model, people(), EM(), seed=2) for model in (Mixture(2), WHOLE))
    assert found.model == own.model
    assert found.log_likelihood == own.log_likelihood
    assert "columns         measurements: age; yes-no: smokes; categories: town\n" in repr(found)
    x = people()[["age", "smokes"]].to_numpy(float)
    found, own = (fit(model, x, EM()) for model in (Mixture(2, Normal()), Mixture(2, Normal(), 2)))
    assert found.log_likelihood == own.log_likelihood
    assert "columns         all measurements\n" in repr(found)


def test_rows_in_blocks_are_read_alike(tmp_path: Path) -> None:
    frame = people().assign(weight=1.0)
    blocks = RowBlocks.of(frame, 50)
    assert fit(Mixture(2), blocks, EM(), weights="weight").model == WHOLE
    np.save(tmp_path / "x.npy", people()[["smokes", "age"]].to_numpy(float))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert model_of_data(Mixture(2), mapped) == Mixture(2, Blocks((Bernoulli(), 1), (Normal(), 1)))
    given = Mixture(2, Normal(), 3)
    assert model_of_data(given, blocks) is given


def test_numbers_of_components_are_chosen_of_open_models() -> None:
    x = np.random.default_rng(0).normal(size=(60, 2)) + 8 * (np.arange(60) % 2)[:, None]
    assert select(Mixture(1, Normal()), x, [1, 2], num_restarts=2).num_components == 2
    chosen = select_dimension(lambda k: Mixture(k, Normal()), x, [1, 2], "bic", num_restarts=2)
    assert (chosen.chosen, chosen.best.model.num_items) == (2, 2)


def test_sequences_and_counts() -> None:
    steps = people().assign(sequence=np.repeat([0, 1, 2], 40))
    found = fit(HiddenMarkov(2), steps, EM(max_iterations=2)).model
    assert (found.emission, found.num_items) == (WHOLE.component, 3)
    counts = np.random.default_rng(0).poisson(4.0, (20, 5))
    assert fit(PoissonFactorization(num_components=2), counts).model.num_items == 5


@pytest.mark.parametrize("data", [np.zeros((0, 3)), np.zeros(4), "table.csv"])
def test_data_without_a_width_are_refused(data) -> None:
    with pytest.raises(ValueError, match="data|table"):
        fit(Mixture(2), data)
