"""Options by moments: identities and recovery from exact moments, streaming, refusals, and starts of EM."""

from __future__ import annotations

import functools
import itertools
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize_scalar

from inference import EM, fit
from inference.fitting.problem import problem_of
from inference.identifiability import check_options
from inference.identifiability import exact_moments as option_moments
from inference.structures.options.moment_counts import OptionMoments, count_moments
from inference.structures.options.moments import MomentEstimate, MomentWarning, project_rows, state_by_state
from inference.structures.options.moments_joint import all_states_at_once
from inference.structures.options.moments_refined import refine_moments
from inference.structures.options.starts import moment_start
from ppl_models import OptionsHMM
from ppl_models.datasets import options_chain, random_options, simulate_options, stream_sequences
from ppl_models.datasets.options import stationary_law
from ppl_models.sequences.trajectories import pack

Truth = dict[str, torch.Tensor]
ROUTES = [state_by_state, all_states_at_once]
SIZES = [(4, 2, 2), (5, 3, 3), (3, 4, 2)]


def exact_moments(truth: Truth) -> OptionMoments:
    """The population's windows: past (state, option) from ``initial``, then two steps of the chain."""
    initial, low, high, env = (truth[name].numpy() for name in ("initial", "low", "high", "environment"))
    windows = np.einsum("xo,xob,bxs,sop,spa,ast,tpq,tqc->asxtc", initial, low, env, high, low, env, high, low, optimize=True)
    return OptionMoments(windows, env, 10**6)


def banded(truth: Truth) -> Truth:
    """The same with an environment that only leads to neighbours."""
    size = truth["low"].shape[0]
    near = torch.tensor([[abs(i - j) <= 1 for j in range(size)] for i in range(size)])
    env = truth["environment"] * near
    new = {**truth, "environment": env / env.sum(-1, keepdim=True)}
    return {**new, "initial": stationary_law(new)}


def error(estimate: MomentEstimate, truth: Truth) -> float:
    """Frobenius norm over both policies, after one permutation of the options shared by all states."""
    low, high = truth["low"].numpy(), truth["high"].numpy()
    return min(
        math.sqrt(((estimate.low[:, list(p)] - low) ** 2).sum() + ((estimate.high[:, list(p)][:, :, list(p)] - high) ** 2).sum())
        for p in itertools.permutations(range(low.shape[1]))
    )


@functools.cache
def chain_moments(num_steps: int, seed: int) -> OptionMoments:
    return count_moments(simulate_options(options_chain(), 1, num_steps, seed).packed, 4, 2)


# ---------------------------------------------------------------- exact moments


@pytest.mark.parametrize("sizes", SIZES)
def test_the_identities_hold(sizes: tuple[int, int, int]) -> None:
    """K and the windows are the products the method takes them for."""
    truth = random_options(*sizes, seed=1)
    moments = exact_moments(truth)
    initial, low, high, env = (truth[name].numpy() for name in ("initial", "low", "high", "environment"))
    joint = np.einsum("xo,xob,bxs->sxo", initial, low, env)  # P(s1, o1, s2 = s), [s, s1, o1]
    for s in range(sizes[0]):
        past = joint[s] @ high[s]
        np.testing.assert_allclose(moments.pairs[s], past @ low[s], atol=1e-14)
        for a, t in itertools.product(range(sizes[1]), range(sizes[0])):
            expected = env[a, s, t] * past @ np.diag(low[s, :, a]) @ high[t] @ low[t]
            np.testing.assert_allclose(moments.windows[a, s, :, t], expected, atol=1e-14)
    np.testing.assert_allclose(moments.windows.sum(), 1, atol=1e-12)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", SIZES)
def test_exact_moments_give_the_truth(route, sizes: tuple[int, int, int], seed: int) -> None:
    truth = random_options(*sizes, seed=seed)
    estimate = route(exact_moments(truth), sizes[2])
    assert error(estimate, truth) < 1e-8
    assert estimate.diagnostics.matching < 1e-10
    assert estimate.diagnostics.num_complex == 0


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("sizes", [(4, 2, 2), (7, 3, 2), (3, 4, 2)])
def test_exact_moments_of_an_environment_with_zeros(route, sizes: tuple[int, int, int]) -> None:
    truth = banded(random_options(*sizes, seed=2))
    assert error(route(exact_moments(truth), sizes[2]), truth) < 1e-8


@pytest.mark.parametrize("route", ROUTES)
def test_a_start_that_is_not_stationary_does_no_harm(route) -> None:
    truth = options_chain()
    truth["initial"] = torch.tensor([[0.5, 0.1], [0.3, 0.05], [0.03, 0.01], [0.005, 0.005]], dtype=torch.float64)
    assert error(route(exact_moments(truth), 2), truth) < 1e-8


def test_the_reference_numbers_of_the_chain() -> None:
    """Measured beforehand with another program, from the same parameters."""
    truth = options_chain()
    expected = [[0.12684805, 0.13506729], [0.13002294, 0.10352342], [0.10577569, 0.12930866], [0.13949946, 0.12995447]]
    np.testing.assert_allclose(truth["initial"], expected, atol=1e-8)
    diagnostics = state_by_state(exact_moments(truth), 2).diagnostics
    np.testing.assert_allclose(diagnostics.singular_pairs, [0.00212739, 0.0055242, 0.00514943, 0.00195056], atol=1e-8)
    np.testing.assert_allclose(diagnostics.singular_low, [0.47330533, 0.54144975, 0.49671384, 0.52762517], atol=1e-8)
    np.testing.assert_allclose(diagnostics.singular_high, [0.50044365, 0.71881117, 0.71881117, 0.50044365], atol=1e-8)
    assert diagnostics.unsupported == 0
    constant = MomentEstimate(np.full((4, 2, 2), 0.5), np.full((4, 2, 2), 0.5), diagnostics)
    assert abs(error(constant, truth) - 1.70529) < 1e-5


# ---------------------------------------------------------------- counting


def test_windows_are_counted_one_by_one() -> None:
    """Flat index by hand; windows do not cross the end of a sequence, and need both later actions."""
    state = [[0, 1, 2, 1, 0], [2, 2, 1, 0, 0]]
    action = [[0, 1, -1, 0, 1], [1, 1, 0, 0, 0]]
    data = pack(state, action, [5, 3])
    moments = count_moments(data, 3, 2)
    expected = np.zeros(2 * 3 * 3 * 3 * 2)
    count = 0
    for row, length in ((0, 5), (1, 3)):
        for t in range(length - 2):
            s1, s2, s3 = state[row][t : t + 3]
            a2, a3 = action[row][t + 1], action[row][t + 2]
            if a2 >= 0 and a3 >= 0:
                expected[(((a2 * 3 + s2) * 3 + s1) * 3 + s3) * 2 + a3] += 1
                count += 1
    assert moments.num_windows == count == 2
    np.testing.assert_allclose(moments.windows.ravel(), expected / count)
    assert moments.environment[0, 0].tolist() == [0, 1, 0]
    assert moments.environment[1, 2].tolist() == [0, 0.5, 0.5] or moments.environment[1, 2].tolist() == [0, 0, 1]


def test_moments_of_a_file_read_in_pieces(tmp_path) -> None:
    """Pieces of any size give the counts of the whole; only whole sequences are handed out."""
    generator = np.random.default_rng(3)
    rows = [(f"s{n}", t, generator.integers(4), generator.integers(2)) for n, length in enumerate((5, 1, 40, 3, 20)) for t in range(length)]
    frame = pd.DataFrame(rows, columns=["sequence", "time", "state", "action"])
    frame["action"] = frame["action"].astype("Int64").mask(frame.index == 30)
    frame.to_csv(tmp_path / "walks.csv", index=False)
    whole = count_moments(OptionsHMM(4, 2, 2).check_data(frame, for_fit=False)[0], 4, 2)
    for num_rows in (1, 7, 1000):
        streamed = count_moments(stream_sequences(tmp_path / "walks.csv", 4, 2, num_rows), 4, 2)
        assert streamed.num_windows == whole.num_windows
        np.testing.assert_array_equal(streamed.windows, whole.windows)
        np.testing.assert_array_equal(streamed.environment, whole.environment)
    frame.iloc[[*range(10, 20), *range(10), *range(20, len(frame))]].to_csv(tmp_path / "mixed.csv", index=False)
    for name, text in (("mixed.csv", "sequence 's2' comes again"), ("none.csv", "no file"), ("other.csv", "columns sequence, time")):
        (tmp_path / "other.csv").write_text("a,b\n1,2\n")
        with pytest.raises(ValueError, match=text):
            list(stream_sequences(tmp_path / name, 4, 2, 6))
    (tmp_path / "empty.csv").write_text("sequence,time,state,action\n")
    with pytest.raises(ValueError, match="holds no rows"):
        list(stream_sequences(tmp_path / "empty.csv", 4, 2))
    with pytest.raises(ValueError, match="num_rows must be a positive integer"):
        list(stream_sequences(tmp_path / "walks.csv", 4, 2, 0))


def test_moments_are_streamed() -> None:
    """Pieces of time, and pieces of the rows, give the numbers of the whole."""
    data = simulate_options(options_chain(), 6, 500, 3).packed
    data[1, 7:30, 1] = -1
    whole = count_moments(data, 4, 2)
    pieces = (data[:, begin:end] for begin, end in itertools.pairwise((0, 1, 2, 10, 11, 300, 500)))
    by_time = count_moments(pieces, 4, 2, continued=True)
    by_row = count_moments((data[i : i + 2] for i in range(0, 6, 2)), 4, 2)
    for other in (by_time, by_row):
        assert other.num_windows == whole.num_windows
        np.testing.assert_allclose(other.windows, whole.windows, atol=1e-15)
        np.testing.assert_allclose(other.environment, whole.environment, atol=1e-15)
    assert by_row.drift == whole.drift


def test_drift_sees_a_change() -> None:
    truth = options_chain()
    steady = count_moments(simulate_options(truth, 50, 400, 4).packed, 4, 2).drift
    moved = {**truth, "environment": truth["environment"].flip(2)}
    data = torch.cat([simulate_options(truth, 50, 200, 4).packed, simulate_options(moved, 50, 200, 5).packed], 1)
    assert steady < 2 < 5 < count_moments(data, 4, 2).drift


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("seed", [1, 2])
def test_samples_come_near_the_truth(seed: int) -> None:
    """The constant policy has error 1.71."""
    few, many = (state_by_state(chain_moments(num_steps, seed), 2) for num_steps in (100_000, 500_000))
    assert error(few, options_chain()) < 1.4
    assert error(many, options_chain()) < 0.8
    assert few.diagnostics.information < 2 * many.diagnostics.information
    for estimate in (few, many):
        for rows in (estimate.low, estimate.high):
            assert rows.min() >= 0
            np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-12)
    assert error(all_states_at_once(chain_moments(500_000, seed), 2), options_chain()) < 0.9


@pytest.mark.parametrize("sizes", SIZES)
def test_the_truth_makes_exact_windows_most_probable(sizes: tuple[int, int, int]) -> None:
    """The refinement stays where it is, but for the last of what is not yet known of the law of past and option."""
    truth = random_options(*sizes, seed=0)
    truth |= {name: 0.9 * truth[name] + 0.1 / truth[name].shape[-1] for name in ("low", "high")}
    truth["initial"] = stationary_law(truth)
    moments = exact_moments(truth)
    moments = OptionMoments(moments.windows, moments.environment, 10**12)
    exact = state_by_state(moments, sizes[2])
    refined = refine_moments(moments, exact, 100)
    assert error(refined, truth) < 5e-3
    np.testing.assert_allclose(refined.diagnostics.singular_low, np.linalg.svd(refined.low)[1][:, -1], atol=1e-12)


def composite_log_likelihood(moments: OptionMoments, estimate: MomentEstimate) -> float:
    """Of the windows, the free joint law of past, middle state and option at its best, by a general optimiser."""
    window = np.einsum("soa,ast,top,tpc->soatc", estimate.low, moments.environment, estimate.high, estimate.low)
    total = 0.0
    for s, x in itertools.product(range(moments.num_states), repeat=2):
        counts, by_option = moments.windows[:, s, x], window[s]  # (A, S, A), (O, A, S, A)

        def loss(share: float, counts: np.ndarray = counts, by_option: np.ndarray = by_option) -> float:
            mixed = share * by_option[0] + (1 - share) * by_option[1]
            return -float((counts[counts > 0] * np.log(mixed[counts > 0])).sum())

        total += -minimize_scalar(loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-9}).fun
        total += float(counts.sum() * np.log(counts.sum()))
    return total * moments.num_windows


def test_refinement_climbs_and_is_nearer_to_the_truth() -> None:
    """Three samples of 100,000 steps: the composite likelihood rises with the iterations, and the error falls."""
    raw, refined = [], []
    for seed in (1, 2, 3):
        moments = chain_moments(100_000, seed)
        estimate = state_by_state(moments, 2)
        values = [composite_log_likelihood(moments, refine_moments(moments, estimate, n)) for n in (2, 20, 200, 2000)]
        assert (np.diff(values) > -1e-3).all()
        assert values[-1] > composite_log_likelihood(moments, truth_as_estimate(estimate)) - 1e-3
        raw.append(error(estimate, options_chain()))
        refined.append(error(refine_moments(moments, estimate), options_chain()))
    assert np.median(refined) < np.median(raw) / 2


def truth_as_estimate(estimate: MomentEstimate) -> MomentEstimate:
    truth = options_chain()
    return MomentEstimate(truth["low"].numpy(), truth["high"].numpy(), estimate.diagnostics)


def test_refinement_refuses_other_sizes() -> None:
    moments = chain_moments(100_000, 1)
    estimate = state_by_state(moments, 2)
    with pytest.raises(ValueError, match="policies of 4 states and 2 actions were expected"):
        refine_moments(moments, MomentEstimate(estimate.low[:3], estimate.high[:3], estimate.diagnostics))
    with pytest.raises(ValueError, match="max_iterations must be a positive integer"):
        refine_moments(moments, estimate, 0)


def test_sequences_of_three_steps_suffice() -> None:
    truth = options_chain()
    truth["initial"] = torch.tensor([[0.5, 0.1], [0.2, 0.05], [0.04, 0.05], [0.05, 0.01]], dtype=torch.float64)
    moments = count_moments(simulate_options(truth, 100_000, 3, 5).packed, 4, 2)
    assert moments.num_windows == 100_000
    np.testing.assert_allclose(moments.windows, exact_moments(truth).windows, atol=6 * 0.5 / math.sqrt(100_000))


def test_projection_is_the_nearest_probability() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(50, 4))
    projected = project_rows(rows)
    np.testing.assert_allclose(projected.sum(-1), 1, atol=1e-12)
    assert projected.min() >= 0
    for _ in range(200):
        other = generator.dirichlet(np.full(4, 0.5), size=50)
        assert (((rows - projected) ** 2).sum(-1) <= ((rows - other) ** 2).sum(-1) + 1e-12).all()
    inside = generator.dirichlet(np.ones(4), size=5)
    np.testing.assert_allclose(project_rows(inside), inside, atol=1e-15)


# ---------------------------------------------------------------- refusals


def test_what_moments_cannot_do_is_refused_with_the_number() -> None:
    moments = exact_moments(options_chain())
    for route in ROUTES:
        with pytest.raises(ValueError, match="num_options = 3 exceeds num_actions = 2"):
            route(moments, 3)
        same = options_chain()
        same["low"][1] = same["low"][1, :1]
        with pytest.raises(ValueError, match="rank below num_options = 2 in state 1"):
            route(exact_moments(same), 2)
    with pytest.raises(ValueError, match="num_options = 3 exceeds num_states = 2"):
        state_by_state(exact_moments(random_options(2, 3, 2, 0)), 3)
    telling = options_chain()
    telling["environment"] = torch.eye(4, dtype=torch.float64)[torch.tensor([[1, 2, 3, 0], [0, 1, 2, 3]])]
    with pytest.raises(ValueError, match="a next state that every action taken in state 0 can lead to was expected"):
        state_by_state(exact_moments(telling), 2)
    with pytest.raises(ValueError, match="coupling must be positive"):
        all_states_at_once(moments, 2, 0.0)
    with pytest.raises(ValueError, match="windows of three successive steps"):
        count_moments(pack([[0, 1]], [[0, 1]]), 2, 2)
    with pytest.raises(ValueError, match="is too large; code fewer states"):
        count_moments(pack([[0, 1]], [[0, 1]]), 3000, 4)
    blocked = options_chain()
    blocked["environment"][0, 0] = torch.tensor([0.0, 0.0, 0.5, 0.5])
    blocked["environment"][1, 0] = torch.tensor([0.5, 0.5, 0.0, 0.0])
    blocked["initial"] = stationary_law(blocked)
    with pytest.raises(ValueError, match="has rank below 4"):
        all_states_at_once(exact_moments(blocked), 2)


def test_an_unvisited_state_is_left_uniform() -> None:
    truth = options_chain()
    wider = {
        "initial": torch.cat([truth["initial"], torch.zeros(1, 2, dtype=torch.float64)]),
        "low": torch.cat([truth["low"], truth["low"][:1]]),
        "high": torch.cat([truth["high"], truth["high"][:1]]),
        "environment": torch.nn.functional.pad(truth["environment"], (0, 1, 0, 1)),
    }
    wider["environment"][:, 4, 0] = 1.0
    estimate = state_by_state(exact_moments(wider), 2)
    assert (estimate.low[4] == 0.5).all()
    assert error(MomentEstimate(estimate.low[:4], estimate.high[:4], estimate.diagnostics), truth) < 1e-8
    with pytest.raises(ValueError, match="use state_by_state"):
        all_states_at_once(exact_moments(wider), 2)


# ---------------------------------------------------------------- identifiability


@pytest.mark.parametrize("seed", range(3))
def test_generic_parameters_are_identified(seed: int) -> None:
    truth, chain = random_options(4, 3, 2, seed=seed), OptionsHMM(4, 3, 2).chain()
    verdict = check_options(truth, chain)
    assert verdict.identified
    assert "identified by the law of three successive steps" in verdict.text()
    assert verdict.to_dict()["error"] < 1e-6
    np.testing.assert_allclose(option_moments(truth, chain).windows.sum(), 1, atol=1e-12)


def test_the_long_run_of_the_chain() -> None:
    truth = options_chain()
    found = option_moments(truth, OptionsHMM(4, 2, 2).chain())
    np.testing.assert_allclose(found.windows, exact_moments(truth).windows, atol=1e-12)


def test_parameters_that_three_steps_do_not_determine() -> None:
    chain = OptionsHMM(4, 2, 2).chain()
    same = options_chain()
    same["low"][2] = same["low"][2, :1]
    forgetful = options_chain()
    forgetful["high"][1] = forgetful["high"][1, :1]  # the option before says nothing
    for params, state in ((same, 2), (forgetful, 1)):
        verdict = check_options(params, chain)
        assert not verdict.identified
        assert f"rank below num_options = 2 in state {state}" in verdict.text()
        assert verdict.to_dict()["error"] is None
    wide = OptionsHMM(4, 2, 3).chain()
    assert "exceeds num_actions" in check_options(random_options(4, 2, 3, 0), wide).text()


# ---------------------------------------------------------------- starts of EM


def test_the_spectral_start_is_one_of_the_batch() -> None:
    data = simulate_options(options_chain(), 20, 500, 6).packed
    problem = problem_of(OptionsHMM(4, 2, 2), data, 0)
    start = problem.structure.start(problem, "spectral", 3)
    found = moment_start(data, 4, 2, 2)
    assert found is not None
    assert torch.equal(start["low"][0], found[0])
    assert torch.equal(start["high"][0], found[1])
    steps, random = EM().steps(problem), problem.structure.start(problem, "random", 6)
    objective = [sum(steps.e_step(params)[1:]) for params in (start, random)]
    assert float(objective[0][1:].min()) > float(objective[1].max())  # short runs, the best of six
    assert objective[0][1] >= objective[0][2]
    for name in ("low", "high", "environment"):
        torch.testing.assert_close(start[name].sum(-1), torch.ones_like(start[name][..., 0]))
        assert float(start[name].min()) > 0


def test_a_fit_without_a_method_takes_both_kinds_of_start_and_finds_the_truth() -> None:
    truth = options_chain()
    data = simulate_options(truth, 1, 20_000, 7)
    result = fit(OptionsHMM(4, 2, 2), data.data)
    assert len(result.restarts.objective) == 4
    best, _ = result.restarts.objective.max(0)
    assert float(best - result.restarts.objective[0]) < 1.0  # the start by moments is among the best
    found = MomentEstimate(result.params["low"].numpy(), result.params["high"].numpy(), None)  # type: ignore[arg-type]
    assert error(found, truth) < 0.25


def test_a_start_by_moments_that_fails_says_why() -> None:
    truth = random_options(3, 2, 3, seed=0)
    data = simulate_options(truth, 5, 40, 8).packed
    with pytest.warns(MomentWarning, match="num_options = 3 exceeds num_actions = 2"):
        result = fit(OptionsHMM(3, 2, 3), data, EM(tolerance=1e-4, parameter_tolerance=1e-2))
    assert any("all starts are random" in text for text in result.warnings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(OptionsHMM(3, 2, 3), data, EM(tolerance=1e-4, parameter_tolerance=1e-2), init="random")
