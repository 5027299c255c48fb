"""ACDC for hidden options: noise of a known distribution under the model; merged options and wrong
durations are seen.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pyro
import pytest
import torch
from scipy import stats
from scipy.special import ndtr
from torch import Tensor
from zoo.rows_continuous_options import chosen_truth

from inference import EM, Fit, fit
from inference.acdc import KDE, KNN, AcdcResult, Bootstrap, acdc
from inference.base.component_noise import NoiseDraws
from inference.base.outcome import ConvergenceWarning
from inference.base.structure import component_noise
from inference.selection import select_dimension
from inference.structures.options.noise import COLUMNS
from inference.structures.registry import structure_of
from ppl_models import ContinuousOptionsHMM, OptionsHMM
from ppl_models.data.sequences import pack

F64 = torch.float64
TRUTH = {
    "initial": torch.full((2, 2), 0.25, dtype=F64),
    "low": torch.tensor(
        [[[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]], [[0.1, 0.8, 0.1], [0.6, 0.1, 0.3]]], dtype=F64
    ),
    "high": torch.tensor([[[0.95, 0.05], [0.1, 0.9]], [[0.9, 0.1], [0.05, 0.95]]], dtype=F64),
    "environment": torch.tensor(
        [[[0.7, 0.3], [0.4, 0.6]], [[0.3, 0.7], [0.5, 0.5]], [[0.5, 0.5], [0.2, 0.8]]], dtype=F64
    ),
}
MODEL = OptionsHMM(2, 3, 2, num_steps=150)
QUICK = EM(tolerance=1e-7, parameter_tolerance=1e-3)


@functools.cache
def drawn(seed: int, num_rows: int = 20) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return pyro.poutine.condition(MODEL, TRUTH)(None, num_rows)


def at(model: object, params: dict[str, Tensor], data: object) -> Fit:
    """A fit that holds given parameters."""
    with pytest.warns(ConvergenceWarning):
        return dataclasses.replace(
            fit(model, data, EM(max_iterations=1), init=params), params=params
        )


def noise_of(
    model: object, params: dict[str, Tensor], data: Tensor, num_draws: int = 1
) -> NoiseDraws:
    return component_noise(
        structure_of(model), params, data, torch.Generator().manual_seed(0), num_draws
    )


def uniforms(noise: NoiseDraws) -> dict[str, np.ndarray]:
    """The noise of all options together, by column."""
    return {
        name: ndtr(value[~np.isnan(value)])
        for name, value in zip(COLUMNS, noise.scores[noise.used].T, strict=True)
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_the_noise_of_the_true_model_is_uniform(seed: int) -> None:
    """Ragged sequences with gaps; every visit has a duration, every step with a known past a
    memory.
    """
    data = drawn(seed, 60)
    action = data[..., 1].clone()
    action[::3, 10:14] = -1
    data = pack(data[..., 0], action, torch.tensor([150, 40, 1] * 20))
    noise = noise_of(MODEL, TRUTH, data)
    assert noise.scores.shape == (1, int((data[..., 0] >= 0).sum()), 2, 3)
    assert bool((noise.used.sum(-1) == 1).all())
    values = uniforms(noise)
    assert len(values["action"]) == int((data[..., 1] >= 0).sum())
    for name, value in values.items():
        assert stats.kstest(value, "uniform").pvalue > 1e-3, name
    lag = np.corrcoef(values["action"][1:], values["action"][:-1])[0, 1]
    assert abs(lag) < 4 / len(values["action"]) ** 0.5


def test_durations_are_those_of_a_path_written_by_hand() -> None:
    """One option is on throughout or changes at sure places: the intervals of the transform are
    known.
    """
    params = {
        "initial": torch.tensor([[1.0, 0.0]], dtype=F64),
        "low": torch.tensor([[[0.5, 0.5], [0.5, 0.5]]], dtype=F64),
        "high": torch.tensor([[[0.75, 0.25], [0.0, 1.0]]], dtype=F64),
        "environment": torch.ones(2, 1, 1, dtype=F64),
    }
    data = torch.zeros(4000, 3, 2, dtype=torch.long)
    noise = noise_of(OptionsHMM(1, 2, 2), params, data)
    first = ndtr(noise.scores[0].reshape(4000, 3, 2, 3)[:, :, 0, 2])  # of option 0
    for step, (low, high) in enumerate(((0.0, 0.25), (0.25, 0.4375), (0.4375, 1.0))):
        value = first[:, step][~np.isnan(first[:, step])]
        assert stats.kstest(value, stats.uniform(low, high - low).cdf).pvalue > 1e-4
        assert (
            abs(len(value) / 4000 - (high - low)) < 5 * 0.5 / 4000**0.5
        )  # one visit ends at each step, or is cut off


def discrepancies(result: AcdcResult, num: int) -> np.ndarray:
    """In standard errors of the null."""
    return (result.raw[num] - result.null_mean[num]) / result.null_sd[num]


@pytest.mark.filterwarnings("ignore::inference.structures.options.moments.MomentWarning")
@pytest.mark.parametrize("seed", [3, 4])
def test_merged_options_are_seen_and_the_right_number_is_not_called_discrepant(seed: int) -> None:
    data = drawn(seed)
    found = select_dimension(
        lambda k: dataclasses.replace(MODEL, num_options=k),
        data,
        (1, 2, 3),
        "acdc",
        method=QUICK,
        num_restarts=2,
    )
    result = acdc(dict(zip((1, 2, 3), found.fits, strict=True)), data)
    assert float(discrepancies(result, 1).min()) > 10
    for num in (2, 3):
        assert float(discrepancies(result, num).max()) < 4
    assert (
        result.select(rho=0.0).num_components == 2
    )  # a third option has a price and mends nothing
    assert found.chosen == 2


def test_durations_that_are_not_geometric_are_seen() -> None:
    """Every visit lasts ten steps; at the parameters of the right policies, the durations alone
    misfit.
    """
    generator = np.random.default_rng(0)
    steps = np.arange(200)
    option = ((steps[None] + generator.integers(0, 20, size=(40, 1))) // 10) % 2
    low = TRUTH["low"][0].numpy()
    action = np.array([[generator.choice(3, p=low[o]) for o in row] for row in option])
    data = pack(np.zeros_like(option), action)
    params = {
        "initial": torch.full((1, 2), 0.5, dtype=F64),
        "low": TRUTH["low"][:1],
        "high": torch.tensor([[[0.9, 0.1], [0.1, 0.9]]], dtype=F64),
        "environment": torch.ones(3, 1, 1, dtype=F64),
    }
    result = acdc({2: at(OptionsHMM(1, 3, 2), params, data)}, data)
    by_column = result.by_column[2].mean(0)
    assert float(by_column[2]) > 5 * float(by_column[0])
    assert float(discrepancies(result, 2).min()) > 10


def test_options_along_continuous_states() -> None:
    model = ContinuousOptionsHMM(2, 3, 2, num_steps=100)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        data = pyro.poutine.condition(model, chosen_truth())(None, 40)
    one = fit(dataclasses.replace(model, num_options=1), data, QUICK, init="random")
    result = acdc({1: one, 2: at(model, chosen_truth(), data)}, data)
    assert float(discrepancies(result, 1).min()) > 10
    assert float(discrepancies(result, 2).max()) < 4


def test_a_bootstrap_null_draws_sequences_like_the_data() -> None:
    data = drawn(6)
    action = data[..., 1].clone()
    action[:, 20:25] = -1
    data = pack(data[..., 0], action, torch.arange(131, 151))
    result = at(MODEL, TRUTH, data)
    like = structure_of(MODEL).simulate_like(TRUTH, data, 1)["trajectories"]
    assert torch.equal(like < 0, data < 0)
    found = acdc({2: result}, data, num_draws=1, calibrate=Bootstrap(4), discrepancy=KNN())
    assert float(np.abs(discrepancies(found, 2)).max()) < 8
    assert np.isfinite(found.null_sd[2]).all()


def test_a_joint_discrepancy_is_refused() -> None:
    data = drawn(7, 5)
    with pytest.raises(ValueError, match="a joint discrepancy needs noise in every column"):
        acdc({2: at(MODEL, TRUTH, data)}, data, discrepancy=KNN(jointly=True))
    with pytest.raises(ValueError, match=r"fits\[3\] has num_components = 2"):
        acdc({3: at(MODEL, TRUTH, data)}, data, discrepancy=KDE())


def test_the_sample_size_of_a_criterion_is_the_number_of_steps() -> None:
    """One long sequence is not one observation."""
    data = drawn(8, 1)
    result = fit(MODEL, data, QUICK, init="random")
    assert result.num_observations == 150
    visits = torch.bincount(
        torch.as_tensor(data[..., 0] if isinstance(data, torch.Tensor) else data["state"])
        .long()
        .ravel(),
        minlength=2,
    )
    assert visits.sum() == 150
    with pytest.raises(ValueError, match="at least two rows"):
        select_dimension(
            lambda k: dataclasses.replace(MODEL, num_options=k),
            data,
            (1, 2),
            "held_out",
            method=QUICK,
        )
