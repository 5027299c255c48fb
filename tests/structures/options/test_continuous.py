"""Options along continuous states: EM against the generic route, networks, names of options."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from support.continuous_sequences import LENGTHS, MODELS, close, every_model, ragged, simulate
from torch import Tensor
from zoo.rows_continuous_options import all_paths, chosen_truth, policies_by_hand, truth_of

from inference import EM, Fit, fit
from inference.alignment import align
from inference.base.optima import rank_restarts
from inference.base.outcome import ConvergenceWarning
from inference.fitting.problem import problem_of
from inference.inspection.options import (
    filter_options,
    log_likelihood_parts,
    predict_actions,
    sample_options,
    simulate_actions,
    smooth_options,
    viterbi_options,
)
from inference.programs.program import Program
from inference.selection import select_dimension
from inference.structures.options.align import permute_policy_options
from ppl_models import ContinuousOptionsHMM, Network, SoftmaxLinear
from ppl_models.data.sequences import UnvisitedWarning

F64 = torch.float64


def fit_at(model: ContinuousOptionsHMM, params: dict[str, Tensor], data: object) -> Fit:
    """A fit that holds given parameters."""
    with pytest.warns(ConvergenceWarning):
        result = fit(model, data, EM(max_iterations=1), init=params)
    return dataclasses.replace(result, params=params)


# ---------------------------------------------------------------- likelihood and paths


@every_model
def test_posteriors_paths_and_predictions_equal_every_path(name: str) -> None:
    model = MODELS[name]
    truth = truth_of(model, 3)
    data = ragged(model, truth, 4)
    packed = model.check_data(data)[0]
    result = fit_at(model, truth, data)
    smoothed, filtered, best = (
        smooth_options(result, data, pairs=True),
        filter_options(result, data),
        viterbi_options(result, data),
    )
    predicted, draws = (
        predict_actions(result, data),
        sample_options(result, data, num_draws=4000, seed=1),
    )
    close(result.posterior_latents(data)["options"], smoothed.option)
    assert torch.equal(result.decode_latents(data)["options"], best.option)
    arrays, num = {site: value.numpy() for site, value in truth.items()}, model.num_options
    for n, length in enumerate(LENGTHS.tolist()):
        paths, weight = all_paths(arrays, packed[n].numpy())
        posterior, table = weight / weight.sum(), np.array(paths)
        assert tuple(best.option[n, :length].tolist()) == paths[int(weight.argmax())]
        close(best.log_joint[n], math.log(weight.max()))
        assert bool((best.option[n, length:] == -1).all())
        for t in range(length):
            expected = np.bincount(table[:, t], posterior, minlength=num)
            close(smoothed.option[n, t], expected)
            share = np.bincount(draws[:, n, t].numpy(), minlength=num) / 4000
            assert np.abs(share - expected).max() < 5 * 0.5 / 4000**0.5
            upto, part = all_paths(arrays, packed[n, : t + 1].numpy())
            close(
                filtered[n, t], np.bincount(np.array(upto)[:, t], part / part.sum(), minlength=num)
            )
            likelihoods = []
            for action in range(model.num_actions):
                other = packed[n, : t + 1].clone()
                other[t, -1] = action
                likelihoods.append(all_paths(arrays, other.numpy())[1].sum())
            close(predicted[n, t], np.array(likelihoods) / np.sum(likelihoods))
            if t > 0:
                pair = np.bincount(
                    table[:, t - 1] * num + table[:, t], posterior, minlength=num * num
                )
                close(smoothed.pair[n, t].flatten(), pair)
        assert bool((smoothed.option[n, length:] == 0).all())
        assert bool((predicted[n, length:] == 0).all())
    assert torch.equal(log_likelihood_parts(result, data).actions, result.log_likelihood_rows(data))


def test_permuted_options_are_the_same_distribution() -> None:
    model = MODELS["three options"]
    truth = truth_of(model, 7)
    program = Program(model, ragged(model, truth, 8))
    structure = problem_of(model, ragged(model, truth, 8), 0).structure
    for order in itertools.permutations(range(3)):
        turned = permute_policy_options(truth, torch.tensor(order))
        close(program.log_marginal(turned), program.log_marginal(truth))
        for site, value in structure.canonical(turned).items():
            close(value, structure.canonical(truth)[site])
    assert structure.num_free(truth) == 3 + 3 + 6 + 6 + 2


# ---------------------------------------------------------------- EM


@every_model
def test_em_never_falls_and_agrees_with_the_program(name: str) -> None:
    model = MODELS[name]
    data = ragged(model, truth_of(model, 9), 10)
    problem = problem_of(model, data, 0)
    steps, params = EM().steps(problem), problem.structure.start(problem, "random", 3)
    program, last = problem.program(), torch.full((3,), -math.inf, dtype=F64)
    for _ in range(8):
        pairs, log_likelihood, log_prior = steps.e_step(params)
        close(log_likelihood, program.log_marginal(params))
        close(log_prior, program.log_prior(params))
        assert bool((log_likelihood + log_prior >= last - 1e-9).all())
        last, params = log_likelihood + log_prior, steps.m_step(pairs, params)


@every_model
def test_the_gradient_of_the_expected_density_is_that_of_the_likelihood(name: str) -> None:
    """Fisher's identity: the posteriors of pairs are right, and the M-step climbs the right
    function.
    """
    model = MODELS[name]
    data = ragged(model, truth_of(model, 11), 12)
    problem = problem_of(model, data, 0)
    steps, params = EM().steps(problem), problem.structure.start(problem, "random", 2)
    pairs = steps.e_step(params)[0]
    leaves = {site: value.clone().requires_grad_() for site, value in params.items()}
    program = problem.program()
    one = torch.autograd.grad(steps.expected(pairs, leaves).sum(), list(leaves.values()))
    two = torch.autograd.grad(
        (program.log_marginal(leaves) + program.log_prior(leaves)).sum(), list(leaves.values())
    )
    for a, b in zip(one, two, strict=True):
        close(a, b, 1e-8)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
@pytest.mark.parametrize(
    "policy", [SoftmaxLinear(), pytest.param(Network(2), marks=pytest.mark.slow)]
)
def test_generic_em_and_accelerated_em_meet(policy: object) -> None:
    model = ContinuousOptionsHMM(2, 3, 2, policy=policy, num_steps=15, prior_scale=2.0)
    truth = chosen_truth() if isinstance(policy, SoftmaxLinear) else truth_of(model, 13)
    data = simulate(model, truth, 20 if isinstance(policy, SoftmaxLinear) else 6, 13)
    settings = {
        "tolerance": 1e-9 if isinstance(policy, SoftmaxLinear) else 1e-6,
        "parameter_tolerance": 1e-2,
    }
    fast = fit(model, data, EM(**settings), init=truth)
    first = (
        truth if isinstance(policy, SoftmaxLinear) else fast.params
    )  # the generic steps creep along the weights of hidden units
    slow = fit(
        model,
        data,
        EM(**settings, accelerate=False, max_iterations=60 if first is truth else 5),
        init=first,
    )
    assert abs(fast.objective - slow.objective) < 1e-2


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_states_far_from_zero_do_not_slow_a_network() -> None:
    """Where weights and intercepts of hidden units are tied: 600 short steps of the search were not
    enough before.
    """
    given = np.random.default_rng(5)
    state, action = given.standard_normal((4, 6, 2)) + 1000, given.integers(0, 2, (4, 6))
    result = fit(
        ContinuousOptionsHMM(2, 2, 1, policy=Network(2)),
        {"state": state, "action": action},
        EM(max_iterations=100),
        init="random",
    )
    assert result.converged


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_a_network_learns_what_a_linear_policy_cannot() -> None:
    """Actions by the sign of a product of two features: held-out score of the network beside the
    linear policy's.
    """
    generator = np.random.default_rng(0)
    states = generator.normal(size=(30, 40, 2))
    actions = (states[..., 0] * states[..., 1] > 0).astype(int)
    data = {
        "state": states,
        "action": np.where(generator.random(actions.shape) < 0.9, actions, 1 - actions),
    }
    train, test = (
        {name: value[part] for name, value in data.items()} for part in (slice(20), slice(20, 30))
    )
    scores = []
    for policy in (SoftmaxLinear(), Network(4)):
        model = ContinuousOptionsHMM(2, 2, 1, policy=policy)
        result = fit(
            model,
            train,
            EM(tolerance=1e-5, parameter_tolerance=1.0, max_iterations=40),
            init="random",
            num_restarts=3,
        )
        scores.append(float(result.log_likelihood_rows(test).sum()) / 400)
    assert scores[0] < -0.65  # chance is -0.69
    assert scores[1] > -0.5


def test_options_number_chosen_by_bic_and_held_out() -> None:
    model = ContinuousOptionsHMM(2, 3, 2, num_steps=60)
    data = simulate(model, chosen_truth(), 40, 14)
    method = EM(tolerance=1e-6, parameter_tolerance=0.1)
    for criterion in ("bic", "held_out"):
        found = select_dimension(
            lambda k: dataclasses.replace(model, num_options=k),
            data,
            (1, 2, 3),
            criterion,
            method=method,
        )
        assert found.chosen >= 2 if criterion == "held_out" else found.chosen == 2
        assert found.table["log_likelihood"].is_monotonic_increasing


# ---------------------------------------------------------------- as a user


def test_what_a_fit_is_asked(tmp_path) -> None:
    model = ContinuousOptionsHMM(2, 3, 2, num_steps=40)
    data = simulate(model, chosen_truth(), 30, 15)
    given = {"state": data[..., :-1], "action": data[..., -1]}
    result = fit(model, given)
    assert result.converged
    aligned = align(result, chosen_truth()).params
    assert float((aligned["low_weights"] - chosen_truth()["low_weights"]).abs().max()) < 1.0
    result.save(tmp_path / "fit")
    loaded = Fit.load(tmp_path / "fit")
    assert loaded.model == model
    assert torch.equal(loaded.log_likelihood_rows(given), result.log_likelihood_rows(given))
    idata = result.to_arviz(given)
    assert idata["latent_posterior"]["options"].shape == (30, 40, 2)
    drawn = idata["posterior_predictive"]["trajectories"].values[0, 0]
    assert np.array_equal(drawn[..., :-1], given["state"].numpy())  # along the states of the data
    with pytest.raises(ValueError, match="reference must hold low_weights"):
        align(result, {"low_weights": torch.zeros(1)})


def test_networks_are_aligned_unit_by_unit() -> None:
    """Hidden units have neither names nor signs: the same functions under other names come back as
    they were.
    """
    model = MODELS["network"]
    truth = truth_of(model, 16)
    data = ragged(model, truth, 16)
    order = torch.randperm(
        len(truth["hidden_intercepts"]), generator=torch.Generator().manual_seed(0)
    )
    sign = torch.tensor([1.0, -1.0], dtype=F64).repeat(len(order))[: len(order)]
    other = permute_policy_options(truth, torch.arange(model.num_options).flip(0))
    other["hidden_weights"], other["hidden_intercepts"] = (
        other["hidden_weights"][order] * sign[:, None],
        other["hidden_intercepts"][order] * sign,
    )
    for name in ("low_weights", "high_weights"):
        other[name] = other[name][..., order] * sign
    result = fit_at(model, other, data)
    assert torch.allclose(
        result.log_likelihood_rows(data), fit_at(model, truth, data).log_likelihood_rows(data)
    )
    for name, value in align(result, truth).params.items():
        torch.testing.assert_close(value, truth[name], msg=name)


def test_restarts_of_a_network_that_reach_one_optimum_are_counted() -> None:
    model = MODELS["network"]
    truth = truth_of(model, 16)
    twice = {name: torch.stack([value, value]) for name, value in truth.items()}
    found = rank_restarts(
        problem_of(model, ragged(model, truth, 16), 0), twice, torch.tensor([-3.0, -3.0])
    )
    assert found.num_reached == 2


def test_draws_along_given_states_follow_the_distribution() -> None:
    model = MODELS["linear"]
    truth = truth_of(model, 17)
    data = {
        "state": torch.tensor([[[0.5, -1.0], [1.0, 0.3]]], dtype=F64).expand(20000, 2, 2),
        "action": torch.zeros(20000, 2),
    }
    result = fit_at(
        model, truth, {"state": data["state"][:2], "action": torch.tensor([[0, 1], [2, 0]])}
    )
    options, actions = simulate_actions(result, data, seed=3)
    arrays = {site: value.numpy() for site, value in truth.items()}
    code = (options[:, 0] * 2 + options[:, 1]) * 3 + actions[:, 1]
    expected = np.zeros((2, 2, 3))
    for o, p in itertools.product(range(2), range(2)):
        switch = policies_by_hand(arrays, np.array([1.0, 0.3]), o)[1][p]
        expected[o, p] = (
            arrays["initial"][o] * switch * policies_by_hand(arrays, np.array([1.0, 0.3]), p)[0]
        )
    counts, chance = np.bincount(code.numpy(), minlength=12), expected.ravel()
    assert np.abs((counts - 20000 * chance) / np.sqrt(20000 * chance * (1 - chance))).max() < 5
    cut = simulate_actions(result, {**data, "length": torch.ones(20000)}, seed=3)
    assert bool((cut[0][:, 1] == -1).all())
    assert bool((cut[1][:, 1] == -1).all())


def test_one_step_sequences_are_fitted() -> None:
    data = {"state": torch.randn(8, 1, 2, dtype=F64), "action": torch.tensor([[0], [1]] * 4)}
    with pytest.warns(UnvisitedWarning, match="all sequences have one step"):
        result = fit(ContinuousOptionsHMM(2, 2, 2, prior_scale=1.0), data, EM(tolerance=1e-6))
    close(
        result.params["high_weights"], torch.zeros(2, 1, 2), 1e-6
    )  # nothing is seen of switches: the prior's mode


def test_steps_without_an_action_are_no_observations() -> None:
    model = ContinuousOptionsHMM(2, 3, 1, units=((0.0, 1.0), (0.0, 1.0)))
    own = ragged(dataclasses.replace(model, num_options=2), chosen_truth(), 3)
    states, actions = torch.cat([own["state"]] * 8), torch.cat([own["action"]] * 8)
    data = {"state": states, "action": actions, "length": torch.cat([LENGTHS] * 8)}
    inside = torch.arange(6) < data["length"][:, None]
    longer = {
        "state": torch.cat([states, states], 1),
        "action": torch.cat([actions.where(inside, -1.0), torch.full_like(actions, -1.0)], 1),
    }
    one, other = fit(model, data), fit(model, longer)
    assert one.num_observations == 8 * (int(LENGTHS.sum()) - 3)
    assert other.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-5)
    assert other.bic == pytest.approx(one.bic, abs=1e-4)


@pytest.mark.parametrize("policy", [SoftmaxLinear(), Network(2)], ids=["linear", "network"])
def test_fits_do_not_depend_on_the_units_of_the_state(policy: Any) -> None:
    """States in other units are the same policies, at the maximum of the program's own density."""
    generator = torch.Generator().manual_seed(0)
    state = torch.randn(25, 12, 2, dtype=F64, generator=generator)
    action = (state[..., 0] + torch.randn(25, 12, dtype=F64, generator=generator) > 0).long()
    scale, shift = torch.tensor([1e-3, 50.0], dtype=F64), torch.tensor([2.0, 1e4], dtype=F64)
    found = [
        fit(
            ContinuousOptionsHMM(2, 2, 1, policy),
            {"state": own, "action": action},
            EM(tolerance=1e-11, parameter_tolerance=1e-9),
            seed=3,
            num_restarts=1 if policy == SoftmaxLinear() else 3,
            progress=False,
        )
        for own in (state, shift + scale * state)
    ]
    one, other = (own.log_likelihood for own in found)
    assert other == pytest.approx(one, abs=1e-6 if policy == SoftmaxLinear() else 0.05)
    drawn = (
        found[1].simulate(30)["trajectories"][..., :-1].flatten(0, -2)
    )  # stand-in states like those of the data
    torch.testing.assert_close(drawn.mean(0) / shift, torch.ones(2, dtype=F64), rtol=0.05, atol=0)
    torch.testing.assert_close(drawn.std(0) / scale, torch.ones(2, dtype=F64), rtol=0.3, atol=0)
    if policy != SoftmaxLinear():
        return
    torch.testing.assert_close(
        found[1].params["low_weights"] * scale, found[0].params["low_weights"], rtol=1e-5, atol=1e-6
    )
    data = found[1].model.check_data({"state": shift + scale * state, "action": action})[0]
    program = Program(found[1].model, data)
    names = ["low_weights", "low_intercepts"]
    values = [found[1].params[name].clone().requires_grad_() for name in names]
    params = found[1].params | dict(zip(names, values, strict=True))
    slopes = torch.autograd.grad(program.log_marginal(params) + program.log_prior(params), values)
    units: Any = program.model.units
    centres, widths = (torch.tensor(part, dtype=F64) for part in zip(*units, strict=True))
    assert float(((slopes[0] - slopes[1][..., None] * centres) / widths).abs().max()) < 1e-3
    assert float(slopes[1].abs().max()) < 1e-3
