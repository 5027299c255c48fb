"""Durations of options: posteriors by every path, closed forms, recovery, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from zoo.rows_options import options_truth, paths_of_visits, visiting

from inference import EM, fit
from inference.base.structure import component_noise
from inference.fitting.problem import problem_of
from inference.identifiability.of_fit import identifiability_of
from inference.inspection.options import sample_options, smooth_options, viterbi_options
from inference.selection import select_components
from inference.selection.order_selection.detectability import MISFIT
from inference.structures.options.forward_backward import parts_of, steps_of, viterbi
from inference.structures.options.structure import OptionsStructure
from ppl_models import (
    FreeDurations,
    GeometricDurations,
    NegativeBinomialDurations,
    OptionsHMM,
    PoissonDurations,
)
from ppl_models.datasets import simulate_options
from ppl_models.descriptions.options import with_high
from ppl_models.parts.durations import Durations

pytestmark = [
    pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::inference.base.outcome.StartsWarning"),
    pytest.mark.filterwarnings("ignore::inference.EstimateWarning"),
    pytest.mark.filterwarnings("ignore::inference.structures.options.moments.MomentWarning"),
]


def rows() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    state, action = rng.integers(0, 2, (4, 6)), rng.integers(0, 2, (4, 6))
    action[0, 1] = action[2, 3] = -1
    return {"state": state, "action": action, "length": [6, 5, 6, 6]}


@pytest.mark.parametrize(
    "durations",
    [NegativeBinomialDurations(4), PoissonDurations(3), FreeDurations(5), GeometricDurations()],
)
def test_posteriors_paths_and_draws_are_those_of_every_segmentation(durations: Durations) -> None:
    model, data = OptionsHMM(2, 2, 2, durations=durations), rows()
    start = visiting(model, options_truth(2, 2, 2, seed=4))
    found = fit(model, data, EM(max_iterations=1), init=start, num_restarts=1)
    packed = model.check_data(data)[0]
    params = {name: value.numpy() for name, value in found.params.items()}
    smoothed = smooth_options(found, data, pairs=True)
    best = viterbi_options(found, data)
    drawn = sample_options(found, data, 4000, seed=1).double()
    total = 0.0
    for b, row in enumerate(packed.numpy()):
        paths, weight = paths_of_visits(model, params, row)
        total += np.log(weight.sum())
        shares, steps = weight / weight.sum(), np.array(paths)
        own = smoothed.option[b, : steps.shape[1]].numpy()
        np.testing.assert_allclose(own[:, 1], shares @ steps, atol=1e-10)
        pair = shares @ (steps[:, 0] * (1 - steps[:, 1]))
        np.testing.assert_allclose(smoothed.pair[b, 1, 1, 0], pair, atol=1e-10)
        at = best.option[b, : steps.shape[1]].tolist()
        assert shares[paths.index(tuple(at))] == pytest.approx(shares.max())
        means = drawn[:, b, : steps.shape[1]].mean(0).numpy()
        deviation = np.sqrt(own[:, 1] * own[:, 0] / 4000)
        assert (np.abs(means - own[:, 1]) <= 5 * deviation + 1e-9).all()
    assert found.log_likelihood == pytest.approx(total, abs=1e-9)
    joint = viterbi(steps_of(parts_of(model.chain(), found.params), packed)).log_joint
    assert torch.equal(joint, best.log_joint)


def test_geometric_durations_are_a_plain_chain_whose_options_stay_alike() -> None:
    """The high-level policy of the same means has the same likelihood."""
    model, data = OptionsHMM(2, 2, 3, durations=GeometricDurations()), rows()
    found = fit(model, data, EM(max_iterations=20), num_restarts=2)
    plain = problem_of(OptionsHMM(2, 2, 3), data, 0).program()
    same = plain.log_marginal(with_high(model.chain(), found.params))
    assert float(same) == pytest.approx(found.log_likelihood, abs=1e-9)


def lasting(num_sequences: int, seed: int) -> tuple[OptionsHMM, dict[str, Any], torch.Tensor]:
    """Model, truth and sequences of options that last for three to five steps, or one or two."""
    truth = options_truth(2, 3, 2, seed=11, sharp=0.3)
    del truth["high"]
    truth["low"] = torch.tensor(
        [[[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]], [[0.1, 0.8, 0.1], [0.6, 0.2, 0.2]]]
    ).double()
    truth["choice"] = torch.ones(2, 2, 2).double() - torch.eye(2)
    chances = torch.tensor([[0.0, 0.0, 0.3, 0.4, 0.3], [0.5, 0.5, 0.0, 0.0, 0.0]]).double()
    truth["duration_chances"] = chances
    model = OptionsHMM(2, 3, 2, durations=FreeDurations(5), num_steps=60)
    like = torch.zeros(num_sequences, 60, 2, dtype=torch.int64)
    data = OptionsStructure(model).simulate_like(truth, like, seed)["trajectories"]
    return model, truth, data


def test_durations_are_recovered() -> None:
    """Visits of three to five steps are nothing that ends at a constant rate.

    Over six seeds the largest difference of a chance was .027 to .062, and BIC lower by 992 to
    1,094 than that of plain options.
    """
    model, truth, data = lasting(200, 3)
    chances = truth["duration_chances"]
    found = fit(model, data, EM())
    order = found.params["low"][0, :, 0].argsort(descending=True)
    np.testing.assert_allclose(found.params["duration_chances"][order], chances, atol=0.12)
    plain = fit(OptionsHMM(2, 3, 2), data)
    assert found.bic < plain.bic - 500


@pytest.mark.parametrize("durations", [FreeDurations(5), GeometricDurations()])
def test_the_noise_of_the_true_durations_is_normal(durations: Durations) -> None:
    model, truth, data = lasting(100, 1)
    if durations == GeometricDurations():
        model = OptionsHMM(2, 3, 2, durations=durations, num_steps=60)
        del truth["duration_chances"]
        truth["mean_durations"] = torch.tensor([4.0, 2.0]).double()
        data = OptionsStructure(model).simulate_like(truth, data, 1)["trajectories"]
    data[::3, 40:] = -1  # shorter sequences
    generator = torch.Generator().manual_seed(0)
    noise = component_noise(OptionsStructure(model), truth, data, generator, 1)
    for option in range(2):
        for column in noise.scores[0, :, option].T:
            seen = column[np.isfinite(column)]
            assert len(seen) > 400
            # sequences that go on together make means a little wider than independent ones
            assert abs(seen.mean()) < 5 / np.sqrt(len(seen))
            assert abs(seen.var() - 1) < 7 / np.sqrt(len(seen))


def test_how_many_options_that_last_is_answered() -> None:
    model, _, data = lasting(15, 2)
    answer = select_components(model, data[:, :40], (1, 2), num_restarts=2)
    assert answer.num_components == 2
    assert answer.misfit < MISFIT


def test_what_durations_of_options_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="durations of options need a limit"):
        OptionsHMM(2, 2, 2, durations=NegativeBinomialDurations())
    for setting in ({"termination": True}, {"stickiness": 1.0}):
        with pytest.raises(ValueError, match="where durations say how long an option is on"):
            OptionsHMM(2, 2, 2, durations=FreeDurations(3), **setting)
    with pytest.raises(ValueError, match="durations must be a duration distribution"):
        OptionsHMM(2, 2, 2, durations="geometric")  # type: ignore[arg-type]
    model = OptionsHMM(2, 2, 2, durations=FreeDurations(7))
    with pytest.raises(ValueError, match="max_duration = 7 steps are more than the longest"):
        fit(model, rows())
    found = fit(OptionsHMM(2, 2, 2, durations=FreeDurations(3)), rows(), EM(max_iterations=5))
    assert not identifiability_of(found, rows()).identified


def test_one_option_is_never_left() -> None:
    lone = OptionsHMM(2, 2, 1, durations=FreeDurations(3))
    assert lone.chain() == OptionsHMM(2, 2, 1).chain()


def test_steps_in_blocks_add_up() -> None:
    """Sums over two halves are the sums over all."""
    drawn = simulate_options(options_truth(2, 2, 2, seed=1), 6, 8, 1)
    model = OptionsHMM(2, 2, 2, durations=PoissonDurations(4))
    found = fit(model, drawn.packed, EM(max_iterations=5), num_restarts=1)
    one = {name: value[None] for name, value in found.params.items()}
    steps = problem_of(model, drawn.packed, 0)
    every = steps.structure.steps(steps, 2**18, 1)
    whole = every.e_step(one)[0]
    halves = [every.on(part).e_step(one)[0] for part in drawn.packed.split(3)]
    for name, value in whole.items():
        torch.testing.assert_close(halves[0][name] + halves[1][name], value)
