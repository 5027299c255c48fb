"""Models that are open until they meet their data: every door completes them alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from inference import EM, RowBlocks, fit
from inference.fitting.problem import model_of_data
from inference.programs.global_state import quiet
from inference.selection import select, select_dimension
from ppl_models import (
    AttributeGroups,
    Bernoulli,
    Blocks,
    Categorical,
    Dense,
    HiddenMarkov,
    InClassNet,
    LatentAttributeModel,
    Mixture,
    Normal,
    OptionsHMM,
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


# ---------------------------------------------------------------- sizes that are no columns


def steps() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "sequence": np.repeat(range(6), 12),
            "time": np.tile(range(12), 6),
            "state": rng.integers(0, 3, 72),
            "action": rng.integers(0, 2, 72),
        }
    )


def test_states_and_actions_are_read_off_sequences() -> None:
    model = OptionsHMM(num_options=2)
    with pytest.raises(ValueError, match="num_states or num_actions was left open"):
        model.chain()
    assert model.for_data(steps()) == OptionsHMM(3, 2, 2)
    assert OptionsHMM(5, None, 2).for_data(steps()) == OptionsHMM(5, 2, 2)
    wide = {name: steps()[name].to_numpy().reshape(6, 12) for name in ("state", "action")}
    assert model.for_data(wide) == OptionsHMM(3, 2, 2)
    method = EM(max_iterations=3)
    with quiet():
        found, given = (fit(one, steps(), method) for one in (model, OptionsHMM(3, 2, 2)))
    assert found.log_likelihood == given.log_likelihood
    with pytest.raises(ValueError, match="rows come in blocks, the sizes of OptionsHMM"):
        fit(model, RowBlocks.of(wide))


def test_variates_are_the_columns_or_arrays() -> None:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=list("abc"))
    assert InClassNet().for_data(table) == InClassNet((("a",), ("b",), ("c",)))
    assert InClassNet(num_components=3).for_data(table.to_numpy()) == InClassNet((1, 1, 1), 3)
    arrays = (np.zeros(9), np.zeros((9, 2)), np.zeros((9, 1, 4, 4)))
    assert InClassNet().for_data(arrays).variates == (1, 2, (1, 4, 4))
    with pytest.raises(ValueError, match="one network a variate, 3 of them"):
        fit(InClassNet(networks=(Dense(), Dense())), table)
    with pytest.raises(ValueError, match="at least two variates"):
        fit(InClassNet(), table[["a"]])


def test_groups_are_those_of_the_rows() -> None:
    items = LatentAttributeModel(((1, 0), (0, 1)) * 3)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 2, (40, 6)), columns=[f"q{j}" for j in range(6)])
    model = AttributeGroups(items)
    for labels, groups in (
        (rng.choice(["late", "early"], 40), ("early", "late")),
        (rng.integers(1, 3, 40), ("1", "2")),
        (np.where(np.arange(40) % 2, 1.0, 2.0), ("1", "2")),
    ):
        named = table.assign(group=labels)
        assert model.for_data(named).groups == groups
        assert model.for_data(named).check_data(named)[0].shape == (40, 7)
    plain = np.c_[table.to_numpy(), np.arange(40) % 2]
    assert model.for_data(plain).groups == ("0", "1")
    with pytest.raises(ValueError, match="a column 'group' of group labels was expected"):
        fit(model, table)
    with pytest.raises(ValueError, match="two or more different labels"):
        fit(model, table.assign(group="one"))
