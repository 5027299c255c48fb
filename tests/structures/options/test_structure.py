"""Options HMM: likelihood, counts, paths and draws against every path of options; EM; bad input."""

from __future__ import annotations

import functools
import itertools
import math
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyro
import pytest
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDelta
from pyro.optim import Adam
from scipy.optimize import minimize
from support.largest_tensor import LargestTensor
from torch import Tensor
from zoo.rows_options import all_paths, by_filter, by_paths, ending, options_truth

from inference import EM, Fit, fit
from inference.alignment import align
from inference.fitting.problem import problem_of
from inference.identifiability import check_options
from inference.inspection.options import (
    filter_options,
    log_likelihood_parts,
    predict_actions,
    smooth_options,
    viterbi_options,
)
from inference.programs.program import Program
from inference.structures.options.em_steps import OptionSteps
from inference.structures.options.forward_backward import parts_of, steps_of
from inference.structures.options.paths import filter_, predict, sample_paths, smooth, viterbi
from inference.structures.options.starts import random_policies
from ppl_models import OptionsHMM
from ppl_models.datasets import options_chain, simulate_options
from ppl_models.descriptions.options import high_of_termination, with_high
from ppl_models.sequences.chain_plan import ChainPlan, plan_of
from ppl_models.sequences.option_chain import OptionChain
from ppl_models.sequences.trajectories import UnvisitedWarning, pack, trajectory_lengths, unpack
from ppl_models.sequences.word_tree import WordTree

F64 = torch.float64
SIZES = (3, 3, 2)  # states, actions, options


def close(actual: Tensor, expected: object, tolerance: float = 1e-10) -> None:
    expected = torch.as_tensor(expected, dtype=F64)
    torch.testing.assert_close(actual.to(F64), expected, rtol=tolerance, atol=tolerance)


@functools.cache
def case(
    seed: int, missing: float = 0.3, sizes: tuple[int, int, int] = SIZES
) -> tuple[OptionsHMM, dict[str, Tensor], Tensor]:
    """Ragged sequences with missing actions, lengths 1 to 6, and parameters."""
    model = OptionsHMM(*sizes, num_steps=6)
    truth = options_truth(*sizes, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        data = pyro.poutine.condition(model, truth)(None, 7).clone()
        length = torch.tensor([6, 1, 4, 5, 2, 6, 3])
        gone = torch.rand(7, 6) < missing
    data[..., 1].masked_fill_(gone, -1)
    return model, truth, pack(data[..., 0], data[..., 1], length)


def arrays(params: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in params.items()}


def simulate(model: OptionsHMM, truth: dict[str, Tensor], num_rows: int, seed: int) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return pyro.poutine.condition(model, truth)(None, num_rows)


def posterior_by_hand(params: dict[str, Tensor], row: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Paths (P, T) and their posterior (P,)."""
    paths, weight = all_paths(arrays(params), row.numpy())
    return np.array(paths), weight / weight.sum()


# ---------------------------------------------------------------- likelihood


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_likelihood_is_the_sum_over_all_paths(seed: int, missing: float) -> None:
    model, truth, data = case(seed, missing)
    close(Program(model, data).log_marginal_rows(truth), by_paths(arrays(truth), data.numpy()), 1e-12)


def test_padding_and_batching_change_nothing() -> None:
    model, truth, data = case(0)
    rows = Program(model, data).log_marginal_rows(truth)
    wide = torch.cat([data, torch.full((len(data), 3, 2), -1)], 1)
    close(Program(model, wide).log_marginal_rows(truth), rows, 1e-12)
    for n, length in enumerate(trajectory_lengths(data)):
        close(Program(model, data[n : n + 1, :length]).log_marginal_rows(truth), rows[n : n + 1], 1e-12)
    packed, _ = model.check_data(unpack(data))
    assert torch.equal(packed, data)
    close(Program(model, unpack(data)).log_marginal_rows(truth), rows, 1e-12)


@pytest.mark.parametrize("num_options", [1, 2, 3, 5, 17])
def test_long_ragged_sequences_equal_the_forward_algorithm(num_options: int) -> None:
    """Words are shared on the lower levels of the tree and not on the upper ones."""
    sizes = (3, 2, num_options)
    truth = options_truth(*sizes, seed=3)
    data = simulate(OptionsHMM(*sizes, num_steps=700), truth, 5, 1)
    lengths = [700, 1, 513, 64, 99]
    ragged = pack(data[..., 0], data[..., 1], torch.tensor(lengths))
    rows = Program(OptionsHMM(*sizes), ragged).log_marginal_rows(truth)
    expected = [by_filter(arrays(truth), data[n : n + 1, :length].numpy())[0] for n, length in enumerate(lengths)]
    close(rows, expected, 1e-11)


def test_the_tree_shares_words() -> None:
    generator = np.random.default_rng(0)
    words = generator.integers(0, 3, size=5001)
    tree = WordTree.build(words, np.array([3000, 2001]), 3)
    assert [level.shape[1] for level in tree.levels] == [10, 82]  # 9 pairs and 81 of those, and the odd end
    assert tree.words.itemsize * len(tree.words) < len(words) / 3
    assert np.array_equal(tree.steps(), words)
    for depth in range(3):
        spelt = [tree.spelt(piece, depth) for piece in tree.pieces(depth)]
        assert [len(part) for part in spelt] == [-(-length // 2**depth) for length in (3000, 2001)]
    matrices = torch.rand(2, 3, 2, 2, dtype=F64)
    product, log_scale = tree.log_product(matrices)
    for row, part in enumerate((words[:3000], words[3000:])):
        expected, log_expected = torch.eye(2, dtype=F64).expand(2, 2, 2), torch.zeros(2, dtype=F64)
        for word in part:
            expected = expected @ matrices[:, word]
            total = expected.sum((-1, -2), keepdim=True)
            expected, log_expected = expected / total, log_expected + total.log().flatten()
        close(product[:, row], expected, 1e-10)
        close(log_scale[:, row], log_expected, 1e-11)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("large", [1, 10])
def test_pieces_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, shared: bool, large: int) -> None:
    """Ragged sequences cut into many pieces, several blocks, products of products: values and derivatives."""
    generator = np.random.default_rng(0)
    lengths = np.array([700, 1, 64, 129, 3, 3, 2, 333])
    words = generator.integers(0, 4, size=int(lengths.sum()))
    matrices = torch.rand(2, 4, 3, 3, dtype=F64, requires_grad=True)
    weight = torch.rand(2, len(lengths), dtype=F64)
    found = []
    monkeypatch.setattr("ppl_models.sequences.word_tree.LARGE", large)
    for piece, block, kept in ((2**12, 2**19, 2**22), (4, 100, 0), (8, 2**16, 0), (2, 2, 0), (4, 100, 2**22)):
        for name, value in (("PIECE", piece), ("BLOCK", block), ("KEPT", kept), ("WASTE", min(block, 2**10))):
            monkeypatch.setattr(f"ppl_models.sequences.word_blocks.{name}", value)
        monkeypatch.setattr("ppl_models.sequences.word_tree.PIECE", piece)
        tree = WordTree.build(words, lengths, 4, shared=shared)
        assert (len(tree.stages[0].ranges(3)) > 2) == (piece < 8)
        value = tree.log_sum(matrices)
        (grad,) = torch.autograd.grad((value * weight).sum(), matrices, create_graph=large > 3)
        parts = [value, grad]
        if large > 3:
            parts += torch.autograd.grad((grad * grad.detach().sin()).sum(), matrices)
        found.append([part.detach() for part in parts])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            close(one, other, 1e-9)


@pytest.mark.parametrize(("num_options", "most_steps"), [(2, 60_000), (12, 30_000)])
def test_memory_does_not_grow_with_the_number_of_steps(
    monkeypatch: pytest.MonkeyPatch, num_options: int, most_steps: int
) -> None:
    """Beside the data and half a byte a step an iteration holds one block, whatever the length; here blocks are tiny."""
    tiny = {"word_blocks.PIECE": 2**8, "word_tree.PIECE": 2**8, "word_blocks.BLOCK": 2**12, "word_blocks.KEPT": 2**12, "word_tree.MAX_WORDS": 2**8, "codes.SLICE": 2**11}
    for name, value in tiny.items():
        monkeypatch.setattr(f"ppl_models.sequences.{name}", value)
    model, tensors, arrays_of_plan, arrays_of_step = OptionsHMM(4, 2, num_options), [], [], []
    few_steps = most_steps // 4
    for num_steps in (few_steps, most_steps):
        data = simulate_options(options_chain(), 1, num_steps, 7).packed
        tracemalloc.start()
        plan = ChainPlan.build(data, 4, 2)
        arrays_of_plan.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert plan.tree.words.nbytes <= num_steps
        steps, params = OptionSteps(model.chain(), plan), random_policies(model.chain(), plan, 1, 0)
        tracemalloc.start()
        with LargestTensor(floating=True) as largest:
            steps.m_step(steps.e_step(params)[0], params)
        arrays_of_step.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        tensors.append(largest.numel)
    assert tensors[1] <= 1.1 * tensors[0]
    assert arrays_of_step[1] - arrays_of_step[0] < 2 * (most_steps - few_steps)  # what is kept of each piece
    assert arrays_of_plan[1] - arrays_of_plan[0] < 6 * (most_steps - few_steps)  # the data take 16 bytes a step


@pytest.mark.parametrize("most_entries", [1, 200, 2**22])
def test_a_vector_through_the_words_gives_what_the_tree_gives(
    monkeypatch: pytest.MonkeyPatch, most_entries: int
) -> None:
    """The route of many options: value and gradient, from single steps, from pairs, and from the longest shared words."""
    _, truth, data = case(1, sizes=(3, 2, 4))
    long = simulate(OptionsHMM(3, 2, 4, num_steps=300), truth, 3, 1)
    for trajectories in (data, pack(long[..., 0], long[..., 1], torch.tensor([300, 257, 1]))):
        plan = ChainPlan.build(trajectories, 3, 2)
        found = []
        for large in (10, 1):
            monkeypatch.setattr("ppl_models.sequences.word_tree.LARGE", large)
            monkeypatch.setattr("ppl_models.sequences.word_tree.MAX_WORD_ENTRIES", most_entries)
            values = [
                torch.stack([truth[name], truth[name].flip(0)]).requires_grad_()
                for name in ("initial", "low", "high", "environment")
            ]
            rows = plan.log_actions(*values)
            weight = torch.arange(1, rows.numel() + 1, dtype=F64).reshape(rows.shape)
            found.append((rows, torch.autograd.grad((rows * weight).sum(), values[:3])))
        close(found[1][0], found[0][0].detach(), 1e-11)
        for one, two in zip(found[0][1], found[1][1], strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def test_gradients_equal_finite_differences() -> None:
    _, truth, data = case(1)
    plan = ChainPlan.build(data, 3, 3)
    values = [truth[name][None].clone().requires_grad_() for name in ("initial", "low", "high", "environment")]

    def total(*parts: Tensor) -> Tensor:
        return (plan.log_actions(*parts) + plan.log_moves(parts[3])).sum()

    assert torch.autograd.gradcheck(total, values, eps=1e-6, atol=1e-5)
    assert torch.autograd.gradgradcheck(total, values, eps=1e-6, atol=1e-4)


def test_a_product_that_underflows_is_taken_in_logs() -> None:
    """Two options that never change: their ratio after 2,000 steps is beyond the range of floating point."""
    truth = {
        "initial": torch.tensor([[0.0, 1.0]], dtype=F64),
        "low": torch.tensor([[[0.999, 0.001], [0.5, 0.5]]], dtype=F64),
        "high": torch.eye(2, dtype=F64)[None],
        "environment": torch.ones(2, 1, 1, dtype=F64),
    }
    state = torch.zeros(1, 2000, dtype=torch.long)
    rows = Program(OptionsHMM(1, 2, 2, concentration=1.0), pack(state, state)).log_marginal_rows(truth)
    close(rows, [2000 * math.log(0.5)], 1e-12)


def test_impossible_data_have_no_likelihood_and_a_reason() -> None:
    truth = options_truth(2, 2, 2, seed=0)
    truth["low"][1] = torch.tensor([1.0, 0.0], dtype=F64)
    data = pack([[0, 1, 0]], [[0, 1, 0]])
    model = OptionsHMM(2, 2, 2)
    assert float(Program(model, data).log_marginal(truth)) == -math.inf
    with pytest.raises(ValueError, match="sequence 0 is impossible under the parameters from step 1 on"):
        smooth(steps_of(parts_of(model.chain(), truth), data))
    with pytest.raises(ValueError, match="impossible under the parameters"):
        OptionSteps(model.chain(), plan_of(data, 2, 2)).e_step({name: value[None] for name, value in truth.items()})


@pytest.mark.parametrize("num_options", [1, 2, 3])
def test_pieces_of_long_sequences_change_no_posterior(monkeypatch: pytest.MonkeyPatch, num_options: int) -> None:
    """Ragged, with gaps: smoothing, pairs, filtering, paths and prediction are those of the recursion over whole sequences."""
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
        found.append((*filter_(steps), smoothed.option, smoothed.pair, path.option, path.log_joint, predict(steps)))
    for whole, cut in zip(*found, strict=True):
        close(cut, whole, 1e-11)
    assert steps.words.shape[1] == 15
    draws = sample_paths(steps, 4000, 0)
    assert torch.equal((draws[0] >= 0).sum(-1), torch.tensor([130, 77, 1, 25]))
    for option in range(num_options):
        share, exact = (draws == option).double().mean(0), found[0][2][..., option]
        assert float(((share - exact).abs() - 5 * (exact * (1 - exact) / 4000).sqrt()).max()) < 1e-9
    joint, exact = (draws[:, 0, 14] * num_options + draws[:, 0, 15]), found[0][3][0, 15].flatten()  # across a cut
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
    with pytest.raises(ValueError, match="sequence 0 is impossible under the parameters from step 1000 on"):
        smooth(steps_of(parts_of(OptionsHMM(1, 2, 2).chain(), truth), pack(state, action)))


# ---------------------------------------------------------------- expected counts and EM


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_expected_counts(seed: int) -> None:
    """Against every path, every missing action filled in in every way."""
    model, truth, data = case(seed, 0.2)
    counts, _, _ = OptionSteps(model.chain(), plan_of(data, 3, 3)).e_step({name: v[None] for name, v in truth.items()})
    by_hand = {name: np.zeros(value.shape) for name, value in truth.items()}
    params = arrays(truth)
    for row in data.numpy():
        row = row[row[:, 0] >= 0]
        gaps = np.flatnonzero(row[:, 1] < 0)
        filled_rows, weights = [], []
        for filled in itertools.product(range(3), repeat=len(gaps)):
            full = row.copy()
            full[gaps, 1] = filled
            paths, weight = all_paths(params, full)
            filled_rows += [(full, path) for path in paths]
            weights += weight.tolist()
        for (full, path), weight in zip(filled_rows, np.array(weights) / sum(weights), strict=True):
            by_hand["initial"][full[0, 0], path[0]] += weight
            for t, (state, action) in enumerate(full):
                if t != len(full) - 1 or row[t, 1] >= 0:  # a missing last action is not counted: it is summed to one
                    by_hand["low"][state, path[t], action] += weight
                if t + 1 < len(full):
                    by_hand["environment"][action, state, full[t + 1, 0]] += weight
                    by_hand["high"][full[t + 1, 0], path[t], path[t + 1]] += weight
    for name, value in by_hand.items():
        close(counts[name][0], value, 1e-10)


@pytest.mark.parametrize("settings", [{}, {"concentration": 1.0}, {"concentration": 2.0, "stickiness": 3.0}])
def test_em_never_falls_and_its_m_step_is_the_optimum(settings: dict[str, float]) -> None:
    _, _, data = case(2)
    model = OptionsHMM(*SIZES, **settings)
    problem = problem_of(model, data, 0)
    program, steps = problem.program(), EM().steps(problem)
    assert isinstance(steps, OptionSteps)
    params = problem.structure.start(problem, "random", 3)
    last = torch.full((3,), -math.inf, dtype=F64)
    for _ in range(30):
        statistics, log_likelihood, log_prior = steps.e_step(params)
        close(log_likelihood, program.log_marginal(params))
        close(log_prior, program.log_prior(params))
        assert bool((log_likelihood + log_prior >= last - 1e-10).all())
        last, old, params = log_likelihood + log_prior, params, steps.m_step(statistics, params)
    generic = {name: value.clone().requires_grad_() for name, value in program.unconstrained(params).items()}

    def bound(free: dict[str, Tensor]) -> Tensor:
        values = program.constrained(free)
        expected = sum((statistics[name] * values[name].log()).sum() for name in values if name in statistics)
        return expected + program.log_prior(values).sum()

    grads = torch.autograd.grad(bound(generic), list(generic.values()))
    assert old is not params
    assert max(float(g.abs().max()) for g in grads) < 1e-6


def test_restarts_taken_in_turn_are_those_of_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, data = case(3)
    problem = problem_of(model, data, 0)
    steps, params = EM().steps(problem), problem.structure.start(problem, "random", 5)
    together = steps.e_step(params)
    monkeypatch.setattr("inference.structures.options.em_steps.MAX_ELEMENTS", 1)
    apart = steps.e_step(params)
    for name, value in together[0].items():
        close(apart[0][name], value, 1e-12)
    close(apart[1], together[1], 1e-12)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_generic_em_and_accelerated_em_meet() -> None:
    model, truth, _ = case(4, 0.0)
    data = simulate(replace(model, num_steps=15), truth, 20, 4)
    fast = fit(model, data, EM(tolerance=1e-12, parameter_tolerance=1e-6), init=truth)
    slow = fit(
        model, data, EM(tolerance=1e-12, parameter_tolerance=1e-6, accelerate=False, max_iterations=20), init=truth
    )
    assert abs(fast.objective - slow.objective) < 1e-4
    for name, value in fast.params.items():
        torch.testing.assert_close(slow.params[name], value, rtol=0, atol=5e-3)


def test_stickiness_keeps_options() -> None:
    model, truth, _ = case(5, 0.0)
    data = simulate(replace(model, num_steps=60), truth, 10, 5)
    stay = []
    for stickiness in (0.0, 50.0):
        result = fit(OptionsHMM(*SIZES, stickiness=stickiness), data, EM(tolerance=1e-6), init="random", seed=1)
        stay.append(float(result.params["high"].diagonal(dim1=1, dim2=2).mean()))
    assert stay[1] > stay[0] + 0.1


def test_an_unvisited_state_keeps_the_prior_mean() -> None:
    model = OptionsHMM(4, 2, 2, concentration=1.0)
    data = case(0, 0.0, (3, 2, 2))[2]
    with pytest.warns(UnvisitedWarning, match="states that never occur: 3"):
        result = fit(model, data, EM(max_iterations=5, tolerance=1.0, parameter_tolerance=1.0), init="random")
    close(result.params["low"][3], torch.full((2, 2), 0.5))
    close(result.params["high"][3], torch.full((2, 2), 0.5))
    assert any("never occur" in text for text in result.warnings)


def test_options_keep_one_order() -> None:
    """Whatever order a start had, the reported options are named alike, and the law is the same."""
    model, truth, data = case(6)
    structure = problem_of(model, data, 0).structure
    turned = {
        **truth,
        "initial": truth["initial"].flip(1),
        "low": truth["low"].flip(1),
        "high": truth["high"].flip(1, 2),
    }
    program = Program(model, data)
    close(program.log_marginal(turned), program.log_marginal(truth))
    one, two = structure.canonical(truth), structure.canonical(turned)
    for name, value in one.items():
        close(two[name], value)
    assert float(one["low"][:, 0, 0].mean()) >= float(one["low"][:, 1, 0].mean())
    assert structure.num_free(truth) == 3 * 2 * 2 + 3 * 2 + 5 + 3 * 3 * 2


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize("seed", range(3))
def test_smoothing_filtering_and_prediction_equal_every_path(seed: int) -> None:
    model, truth, data = case(seed, 0.0)
    steps = steps_of(parts_of(model.chain(), truth), data)
    smoothed, (filtered, log_scale), predicted = smooth(steps, pairs=True), filter_(steps), predict(steps)
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
                pair = np.bincount(paths[:, t - 1] * 2 + paths[:, t], posterior, minlength=4).reshape(2, 2)
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
        counts = np.bincount(code.numpy(), minlength=len(paths))  # paths come in the order of their code
        score = (counts - num * posterior) / np.sqrt(num * posterior * (1 - posterior) + 1e-9)
        assert np.abs(score[num * posterior > 10]).max() < 5
        assert bool((draws[:, n, length:] == -1).all())


def test_what_a_fit_is_asked(tmp_path) -> None:
    model, truth, _ = case(7, 0.0)
    data = unpack(simulate(replace(model, num_steps=30), truth, 15, 7))
    data["action"] = data["action"].to(F64)
    data["action"][2, 3] = math.nan
    result = fit(model, data, EM(tolerance=1e-6), init="random", num_restarts=2)
    result.save(tmp_path / "fit")
    loaded = Fit.load(tmp_path / "fit")
    assert loaded.model == model
    rows = loaded.log_likelihood_rows(data)
    assert torch.equal(rows, result.log_likelihood_rows(data))
    close(rows.sum(), result.log_likelihood, 1e-9)
    parts = log_likelihood_parts(result, data)
    close(parts.actions + parts.first_state + parts.moves, rows)
    assert torch.equal(result.posterior_latents(data)["options"], smooth_options(result, data).option)
    assert torch.equal(result.decode_latents(data)["options"], viterbi_options(result, data).option)
    predicted = predict_actions(result, data)
    seen = data["action"].nan_to_num(nan=0).long()
    score = predicted.gather(-1, seen[..., None]).squeeze(-1).log().sum(1)
    whole = torch.ones(15, dtype=torch.bool)
    whole[2] = False
    close(score[whole], parts.actions[whole], 1e-9)  # one step ahead, times all steps, is the whole
    assert filter_options(result, data).shape == (15, 30, 2)
    drawn = result.simulate(4, seed=1)["trajectories"]
    assert drawn.shape == (4, 6, 2)


def test_simulation_follows_the_law() -> None:
    """Counts of first steps, actions and moves against their expectations, by z-scores."""
    model, truth, _ = case(8, 0.0)
    data = simulate(replace(model, num_steps=3), truth, 20000, 8)
    expected = torch.zeros(3, 3, 3, dtype=F64)  # state, action, next state
    weight = (truth["initial"][:, :, None] * truth["low"]).sum(1)
    expected = weight[:, :, None] * truth["environment"].transpose(0, 1)
    code = (data[:, 0, 0] * 3 + data[:, 0, 1]) * 3 + data[:, 1, 0]
    counts = torch.bincount(code, minlength=27).reshape(3, 3, 3)
    score = (counts - 20000 * expected) / (20000 * expected * (1 - expected)).sqrt()
    assert float(score.abs().max()) < 5
    rows = Program(model, data).log_marginal_rows(truth).exp()  # 1 / p averages to the number of sequences
    assert abs(float((1 / rows).mean()) - 3.0**6) < 6 * float((1 / rows).std()) / 20000**0.5


def test_the_distribution_takes_batches_of_parameters() -> None:
    """One set of parameters a sequence, restarts before sequences, and a single sequence."""
    sets = [options_truth(*SIZES, seed=seed) for seed in range(7)]
    data = case(0)[2]
    names = ("initial", "low", "high", "environment")
    expected = torch.stack([Program(OptionsHMM(*SIZES), data).log_marginal_rows(params) for params in sets])
    stacked = [torch.stack([params[name] for params in sets]) for name in names]
    close(OptionChain(*stacked, 6).log_prob(data), expected.diagonal())
    restarts = OptionChain(*(value.unsqueeze(1) for value in stacked), 6).expand((7, 7))
    close(restarts.log_prob(data), expected)
    close(OptionChain(*(sets[2][name] for name in names), 6).log_prob(data[4]), expected[2, 4])
    assert restarts.sample().shape == (7, 7, 6, 2)
    assert OptionChain(*stacked, 6).sample((2,)).shape == (2, 7, 6, 2)


def test_plain_pyro_runs_the_program() -> None:
    """SVI with Pyro's own guide reaches the optimum of EM; no part of ``inference`` is used for it."""
    model = OptionsHMM(2, 2, 2, num_steps=50)
    truth = options_truth(2, 2, 2, seed=9)
    data = simulate(model, truth, 20, 9)
    best = fit(model, data, init=truth)
    with pyro.get_param_store().scope(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        guide = AutoDelta(model, init_loc_fn=lambda site: truth[site["name"]])
        svi = SVI(model, guide, Adam({"lr": 0.03}), Trace_ELBO())
        for _ in range(300):
            loss = svi.step(data)
    assert -loss < best.objective + 1e-6
    assert -loss > best.objective - 0.5


# ---------------------------------------------------------------- bad input

GOOD = {"state": [[0, 1, 2]], "action": [[0, 1, 0]]}
BAD_DATA = {
    "state out of range": (
        GOOD | {"state": [[0, 3, 2]]},
        r"data\['state'\]: 0 to 2 was expected, got 3 at sequence 0, step 1",
    ),
    "action out of range": (
        GOOD | {"action": [[0, 2, 0]]},
        r"data\['action'\]: 0 to 1, or -1 where missing, was expected, got 2",
    ),
    "action negative": (GOOD | {"action": [[0, -2, 0]]}, "got -2 at sequence 0, step 1"),
    "missing state": (
        GOOD | {"state": [[0, -1, 2]]},
        r"data\['state'\]: missing at sequence 0, step 1; a missing state cannot",
    ),
    "missing state, NaN": (GOOD | {"state": [[0, math.nan, 2]]}, "a missing state cannot be summed out"),
    "missing last state": (GOOD | {"state": [[0, 1, -1]], "length": [3]}, "missing at sequence 0, step 2"),
    "not whole": (
        GOOD | {"state": [[0, 1.5, 2]]},
        r"data\['state'\]: whole numbers were expected, got 1.5 at \[0, 1\]",
    ),
    "no action known": (GOOD | {"action": [[-1, -1, -1]]}, "at least one known action was expected"),
    "shapes": (GOOD | {"action": [[0, 1]]}, "one shape"),
    "length zero": (GOOD | {"length": [0]}, "1 to 3 was expected, got 0 for sequence 0"),
    "length too long": (GOOD | {"length": [4]}, "got 4 for sequence 0"),
    "lengths": (GOOD | {"length": [3, 3]}, "one length a sequence"),
    "one dim": ({"state": [0, 1], "action": [0, 1]}, r"shape \(sequences, steps\)"),
    "no sequences": ({"state": np.zeros((0, 3)), "action": np.zeros((0, 3))}, "none of them 0"),
    "no action": ({"state": [[0, 1]]}, "a dict of 'state', 'action' and 'length' was expected"),
    "unknown key": (GOOD | {"reward": [[0]]}, "was expected, got"),
    "a table": (np.zeros((3, 2)), r"packed \(B, T, 2\)"),
    "text": (GOOD | {"state": [["a", "b", "c"]]}, "whole numbers were expected"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_are_refused(name: str) -> None:
    data, text = BAD_DATA[name]
    with pytest.raises(ValueError, match=text):
        fit(OptionsHMM(3, 2, 2), data)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_states": 0}, "num_states must be a positive integer"),
        ({"num_options": 1.5}, "num_options must be a positive integer"),
        ({"concentration": 0.5}, "concentration must be a finite number, at least 1"),
        ({"stickiness": -1.0}, "stickiness must be a finite number, at least 0"),
        ({"concentration": math.nan}, "concentration"),
    ],
)
def test_bad_sizes_are_refused(arguments: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        OptionsHMM(**({"num_states": 3, "num_actions": 2, "num_options": 2} | arguments))


FRAME = pd.DataFrame(
    {
        "sequence": ["b", "b", "b", "a", "a"],
        "time": [3, 4, 5, 0, 1],
        "state": [0, 1, 2, 2, 1],
        "action": [0, None, 1, 1, 0],
    }
)


def test_a_data_frame_is_read_in_any_order() -> None:
    model = OptionsHMM(3, 2, 2)
    packed, _ = model.check_data(FRAME)
    assert packed.tolist() == [[[0, 0], [1, -1], [2, 1]], [[2, 1], [1, 0], [-1, -1]]]
    shuffled, _ = model.check_data(FRAME.iloc[[2, 4, 0, 1, 3]])
    assert torch.equal(shuffled, packed)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda f: f.drop(columns="time"), "columns sequence, time, state, action were expected"),
        (lambda f: f.drop(index=1), "sequence 'b' goes from 3 to 5"),
        (lambda f: pd.concat([f, f.iloc[:1]]), "goes from 3 to 3"),
        (lambda f: f.assign(state=[0, None, 2, 2, 1]), "in sequence 'b' at time 4"),
        (lambda f: f.assign(state=list("abcde")), "column 'state': whole numbers were expected"),
        (lambda f: f.assign(time=f["time"].mask(f.index == 2)), "column 'time' must not be empty; it is in row 2"),
        (lambda f: f.assign(sequence=f["sequence"].mask(f.index == 1)), "column 'sequence' must not be empty; it is in row 1"),
        (lambda f: f.iloc[:0], "at least one row"),
    ],
)
def test_bad_frames_are_refused(change, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        OptionsHMM(3, 2, 2).check_data(change(FRAME))


def test_never_seen_actions_are_named() -> None:
    with pytest.warns(UnvisitedWarning, match="actions that never occur: 2"):
        OptionsHMM(3, 3, 2).check_data(GOOD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OptionsHMM(3, 3, 2).check_data(GOOD, for_fit=False)


@pytest.mark.parametrize("init", ["random", "spectral"])
def test_one_step_sequences_are_fitted_at_once(init: str) -> None:
    """They say nothing of the high-level policy, which keeps its prior mean, nor of what tells options apart: all are alike,
    and no parameters that tell them apart have a larger posterior."""
    model, truth = OptionsHMM(3, 3, 2), options_truth(*SIZES, seed=0)
    data = simulate(replace(model, num_steps=1), truth, 200, 1)
    with pytest.warns(UnvisitedWarning, match="all sequences have one step"):
        result = fit(model, data, init=init)
    close(result.params["high"], torch.full((3, 2, 2), 0.5))
    close(result.params["low"][:, 0], result.params["low"][:, 1])
    assert result.converged
    assert result.num_iterations <= 5
    plan = plan_of(data, 3, 3)
    steps, params = OptionSteps(model.chain(), plan), random_policies(model.chain(), plan, 5, 0)
    for _ in range(200):
        params = steps.m_step(steps.e_step(params)[0], params)
    assert float(sum(steps.e_step(params)[1:]).max()) < float(result.restarts.objective.max()) + 1e-6


# ---------------------------------------------------------------- termination


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
@pytest.mark.parametrize("num_options", [2, 3])
def test_endings_and_choices_sit_inside_the_general_model(num_options: int) -> None:
    """EM climbs; a free high-level policy fits no worse; posterior, alignment and identifiability know the model."""
    sizes = (2, 3, num_options)
    model = OptionsHMM(*sizes, num_steps=30, concentration=1.0, termination=True)
    truth = ending(options_truth(*sizes, seed=21, sharp=0.3))
    data = simulate(model, truth, 20, 21)
    result = fit(model, data, EM(max_iterations=100), init=truth)
    assert result.trace.objective.diff().min() > -1e-9
    free = fit(replace(model, termination=False), data, EM(max_iterations=20), init=free_start(model, result))
    assert free.log_likelihood >= result.log_likelihood - 1e-9
    assert free.num_parameters - result.num_parameters == {2: 0, 3: 2 * (6 - 5)}[num_options]
    aligned = align(result, truth)
    assert set(aligned.params) == set(truth)
    close(Program(model, data).log_marginal(aligned.params), result.log_likelihood, 1e-9)
    close(smooth_options(result, data).option.sum(-1), torch.ones(20, 30), 1e-9)
    assert check_options(truth, model.chain()).identified == (num_options == 2)  # three options need three states
    start = problem_of(model, data, 0).structure.start(problem_of(model, data, 0), "random", 2)
    assert {name: value.shape[1:] for name, value in start.items()} == {
        name: value.shape for name, value in truth.items()
    }


def test_the_m_step_of_endings_climbs_to_the_optimum_of_its_bound() -> None:
    """Repeated on fixed counts, the split of the counts of staying reaches what scipy finds."""
    model = OptionsHMM(1, 2, 3, concentration=1.5, stickiness=1.0, termination=True)
    steps = OptionSteps(model.chain(), plan_of(torch.zeros(1, 2, 2, dtype=torch.long), 1, 2))
    counts = torch.tensor([[[[20.0, 3.0, 1.0], [2.0, 30.0, 4.0], [5.0, 1.0, 9.0]]]], dtype=F64)
    other = {"initial": torch.ones(1, 1, 3), "low": torch.ones(1, 1, 3, 2), "environment": torch.ones(1, 2, 1, 1)}
    params = {name: value.to(F64) / value.sum(-1, keepdim=True) for name, value in other.items()}
    params |= {"termination": torch.full((1, 1, 3), 0.5, dtype=F64), "choice": torch.full((1, 1, 3), 1 / 3, dtype=F64)}

    def bound(end: Tensor, choice: Tensor) -> float:
        high = high_of_termination(end, choice)
        prior = 0.5 * end.log().sum() + 1.5 * (1 - end).log().sum() + 0.5 * choice.log().sum()
        return float((counts[0, 0] * high.log()).sum() + prior)

    last = -math.inf
    for _ in range(200):
        params = steps.m_step({**{name: value.to(F64) for name, value in other.items()}, "high": counts}, params)
        value = bound(params["termination"][0, 0], params["choice"][0, 0])
        assert value >= last - 1e-9
        last = value

    def loss(x: np.ndarray) -> float:
        free = torch.from_numpy(x)
        return -bound(free[:3].sigmoid(), free[3:].softmax(-1))

    assert -minimize(loss, np.zeros(6), tol=1e-10).fun == pytest.approx(last, abs=1e-6)


def free_start(model: OptionsHMM, result: Fit) -> dict[str, Tensor]:
    """The fit's law as parameters of the general model."""
    params = with_high(model.chain(), result.params)
    return {name: params[name] for name in ("initial", "low", "high", "environment")}
