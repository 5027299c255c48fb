"""Smoothing, filtering, prediction, best paths and draws against every path of options."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.option_sequences import arrays, case, close, simulate
from torch import Tensor
from zoo.rows_options import all_paths, by_paths, options_truth

from inference.programs.program import Program
from inference.structures.options.em_steps import OptionSteps
from inference.structures.options.forward_backward import (
    filter_,
    parts_of,
    predict,
    sample_paths,
    smooth,
    steps_of,
    viterbi,
)
from ppl_models import OptionsHMM
from ppl_models.data.sequences import pack, trajectory_lengths
from ppl_models.sequences.chain_plan import ChainPlan, plan_of

F64 = torch.float64


def posterior_by_hand(params: dict[str, Tensor], row: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Paths (P, T) and their posterior (P,)."""
    paths, weight = all_paths(arrays(params), row.numpy())
    return np.array(paths), weight / weight.sum()


# ---------------------------------------------------------------- pieces


def test_impossible_data_have_no_likelihood_and_a_reason() -> None:
    truth = options_truth(2, 2, 2, seed=0)
    truth["low"][1] = torch.tensor([1.0, 0.0], dtype=F64)
    data = pack([[0, 1, 0]], [[0, 1, 0]])
    model = OptionsHMM(2, 2, 2)
    assert float(Program(model, data).log_marginal(truth)) == -math.inf
    with pytest.raises(
        ValueError, match="sequence 0 is impossible under the parameters from step 1 on"
    ):
        smooth(steps_of(parts_of(model.chain(), truth), data))
    with pytest.raises(ValueError, match="impossible under the parameters"):
        OptionSteps(model.chain(), plan_of(data, 2, 2)).e_step(
            {name: value[None] for name, value in truth.items()}
        )


@pytest.mark.parametrize("num_options", [1, 2, 3])
def test_pieces_of_long_sequences_change_no_posterior(
    monkeypatch: pytest.MonkeyPatch, num_options: int
) -> None:
    """Ragged, with gaps: smoothing, pairs, filtering, paths and prediction are those of the
    recursion over whole sequences.
    """
    truth = options_truth(3, 3, num_options, seed=2)
    data = simulate(OptionsHMM(3, 3, num_options, num_steps=130), truth, 4, 1)
    data[1, 20:40:3, 1] = -1
    data = pack(data[..., 0], data[..., 1], torch.tensor([130, 77, 1, 25]))
    parts = parts_of(OptionsHMM(3, 3, num_options).chain(), truth)
    found = []
    for shortest in (130, 7):
        monkeypatch.setattr("inference.structures.options.forward_backward.SHORTEST", shortest)
        steps = steps_of(parts, data)
        assert len(steps.words) == {130: 4, 7: 9 + 6 + 1 + 2}[shortest]
        smoothed, path = smooth(steps, pairs=True), viterbi(steps)
        found.append(
            (
                *filter_(steps),
                smoothed.option,
                smoothed.pair,
                path.option,
                path.log_joint,
                predict(steps),
            )
        )
    for whole, cut in zip(*found, strict=True):
        close(cut, whole, 1e-11)
    assert steps.words.shape[1] == 15
    draws = sample_paths(steps, 4000, 0)
    assert torch.equal((draws[0] >= 0).sum(-1), torch.tensor([130, 77, 1, 25]))
    for option in range(num_options):
        share, exact = (draws == option).double().mean(0), found[0][2][..., option]
        assert float(((share - exact).abs() - 5 * (exact * (1 - exact) / 4000).sqrt()).max()) < 1e-9
    joint, exact = (
        (draws[:, 0, 14] * num_options + draws[:, 0, 15]),
        found[0][3][0, 15].flatten(),
    )  # across a cut
    share = torch.bincount(joint, minlength=num_options**2) / 4000
    assert float(((share - exact).abs() - 5 * (exact * (1 - exact) / 4000).sqrt()).max()) < 1e-9


def test_pieces_that_underflow_or_are_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.structures.options.forward_backward.SHORTEST", 2)
    truth = {
        "initial": torch.tensor([[0.0, 1.0]], dtype=F64),
        "low": torch.tensor([[[1 - 1e-12, 1e-12], [0.5, 0.5]]], dtype=F64),
        "high": torch.eye(2, dtype=F64)[None],
        "environment": torch.ones(2, 1, 1, dtype=F64),
    }
    parts = parts_of(OptionsHMM(1, 2, 2).chain(), truth)
    state = torch.zeros(1, 4000, dtype=torch.long)
    steps = steps_of(parts, pack(state, state))
    assert steps.words.shape == (64, 63)
    close(filter_(steps)[1], [4000 * math.log(0.5)], 1e-12)
    close(smooth(steps).option[0, :, 1], torch.ones(4000))
    truth["low"] = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]], dtype=F64)
    action = state.clone()
    action[0, 1000] = 1
    with pytest.raises(
        ValueError, match="sequence 0 is impossible under the parameters from step 1000 on"
    ):
        smooth(steps_of(parts_of(OptionsHMM(1, 2, 2).chain(), truth), pack(state, action)))


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize("seed", range(3))
def test_smoothing_filtering_and_prediction_equal_every_path(seed: int) -> None:
    model, truth, data = case(seed, 0.0)
    steps = steps_of(parts_of(model.chain(), truth), data)
    smoothed, (filtered, log_scale), predicted = (
        smooth(steps, pairs=True),
        filter_(steps),
        predict(steps),
    )
    for n, length in enumerate(trajectory_lengths(data).tolist()):
        paths, posterior = posterior_by_hand(truth, data[n])
        for t in range(length):
            expected = np.bincount(paths[:, t], posterior, minlength=2)
            close(smoothed.option[n, t], expected, 1e-12)
            upto, part = posterior_by_hand(truth, data[n, : t + 1])
            close(filtered[n, t], np.bincount(upto[:, t], part, minlength=2), 1e-12)
            likelihoods = []
            for action in range(3):
                other = data[n : n + 1, : t + 1].clone()
                other[0, t, 1] = action
                likelihoods.append(by_paths(arrays(truth), other.numpy())[0])
            close(predicted[n, t], torch.tensor(likelihoods).softmax(0), 1e-12)
            if t > 0:
                pair = np.bincount(
                    paths[:, t - 1] * 2 + paths[:, t], posterior, minlength=4
                ).reshape(2, 2)
                close(smoothed.pair[n, t], pair, 1e-12)
        assert bool((smoothed.option[n, length:] == 0).all())
        assert bool((predicted[n, length:] == 0).all())
    plan = ChainPlan.build(data, 3, 3)
    values = [truth[name][None] for name in ("initial", "low", "high", "environment")]
    close(log_scale, plan.log_actions(*values)[0], 1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_viterbi_equals_exhaustive_search(seed: int) -> None:
    model, truth, data = case(seed, 0.3)
    best = viterbi(steps_of(parts_of(model.chain(), truth), data))
    values = [truth[name][None] for name in ("initial", "low", "high", "environment")]
    moves = ChainPlan.build(data, 3, 3).log_moves(values[3])[0]
    for n, length in enumerate(trajectory_lengths(data).tolist()):
        paths, weight = all_paths(arrays(truth), data[n].numpy())
        assert tuple(best.option[n, :length].tolist()) == paths[int(weight.argmax())]
        close(best.log_joint[n] + moves[n], math.log(weight.max()), 1e-12)
        assert bool((best.option[n, length:] == -1).all())


def test_ties_go_to_the_smaller_index() -> None:
    model = OptionsHMM(2, 2, 3)
    same = {
        "initial": torch.full((2, 3), 1 / 6, dtype=F64),
        "low": torch.full((2, 3, 2), 0.5, dtype=F64),
        "high": torch.full((2, 3, 3), 1 / 3, dtype=F64),
        "environment": torch.full((2, 2, 2), 0.5, dtype=F64),
    }
    data = pack([[0, 1, 0, 1]], [[1, 0, -1, 1]])
    assert viterbi(steps_of(parts_of(model.chain(), same), data)).option.tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("seed", range(3))
def test_draws_of_paths_follow_the_posterior(seed: int) -> None:
    model, truth, data = case(seed, 0.3)
    num = 10000
    draws = sample_paths(steps_of(parts_of(model.chain(), truth), data), num, seed)
    for n in (0, 2, 4):
        length = int(trajectory_lengths(data)[n])
        paths, posterior = posterior_by_hand(truth, data[n])
        code = (draws[:, n, :length] * 2 ** torch.arange(length - 1, -1, -1)).sum(-1)
        counts = np.bincount(
            code.numpy(), minlength=len(paths)
        )  # paths come in the order of their code
        score = (counts - num * posterior) / np.sqrt(num * posterior * (1 - posterior) + 1e-9)
        assert np.abs(score[num * posterior > 10]).max() < 5
        assert bool((draws[:, n, length:] == -1).all())
