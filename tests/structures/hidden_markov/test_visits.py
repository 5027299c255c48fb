"""Semi-Markov chains against every way to cut a sequence into visits, plain chains as those of
geometric durations, and EM.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from zoo.rows_hidden_markov import all_paths, truth_of, visits_of

from inference import EM, RowBlocks, fit
from inference.base.durations import maximise_durations
from inference.fitting.problem import problem_of
from inference.programs.program import Params, Program
from inference.structures.hidden_markov.em_steps import densities_at_steps, semi_markov
from inference.structures.hidden_markov.paths import (
    filtered_states,
    most_probable_path,
    path_draws,
    smoothed_states,
)
from inference.structures.hidden_markov.visits import _by_gradients, smoothed_visits
from inference.structures.registry import structure_of
from inference.uncertainty import standard_errors
from ppl_models import (
    FreeDurations,
    GeometricDurations,
    HiddenMarkov,
    NegativeBinomialDurations,
    Normal,
    PoissonDurations,
)
from ppl_models.data.sequences import inside_of
from ppl_models.parts.durations import MEANS, SIZES, Durations
from ppl_models.sequences.semi_markov_chain import SemiMarkovChain

F64 = torch.float64
LENGTHS = (8, 1, 6, 3)
DURATIONS: dict[str, Durations] = {
    "negative binomial": NegativeBinomialDurations(),
    "negative binomial, at most 5": NegativeBinomialDurations(5),
    "Poisson": PoissonDurations(),
    "Poisson, at most 6": PoissonDurations(6),
    "geometric": GeometricDurations(),
    "geometric, at most 4": GeometricDurations(4),
    "free": FreeDurations(4),
}
every = pytest.mark.parametrize("durations", DURATIONS.values(), ids=DURATIONS)


def model_with(durations: Durations | None, num_states: int = 2, **settings: Any) -> HiddenMarkov:
    return HiddenMarkov(num_states, Normal(), 2, durations=durations, **settings)


def drawn(
    model: HiddenMarkov, truth: Params, lengths: tuple[int, ...], seed: int, missing: float = 0.15
) -> Tensor:
    """Packed sequences of these lengths."""
    blank = torch.zeros(len(lengths), max(lengths), model.num_items or 1, dtype=F64)
    values = structure_of(model).simulate_like(truth, blank, seed)["sequences"]
    gone = torch.rand(values.shape, generator=torch.Generator().manual_seed(seed)) < missing
    after = torch.arange(max(lengths))[:, None] >= torch.tensor(lengths)[:, None, None]
    return values.masked_fill(gone, torch.nan).masked_fill(after, torch.inf)


def one(params: Params) -> Params:
    return {name: value.unsqueeze(0) for name, value in params.items()}


@every
@pytest.mark.parametrize("num_states", [2, 3])
def test_posteriors_are_those_of_every_segmentation(durations: Durations, num_states: int) -> None:
    model = model_with(durations, num_states)
    truth = truth_of(model, 1)
    lengths = LENGTHS if num_states == 2 else (6, 1, 5)
    data = drawn(model, truth, lengths, seed=2)
    most = durations.max_duration or max(lengths)
    size = (num_states, most)
    arrays = {name: value.numpy() for name, value in truth.items()}
    first, moves = np.zeros(num_states), np.zeros((num_states, num_states))
    ended, still_open, values = np.zeros(size), np.zeros(size), []
    often = torch.arange(1, len(data) + 1).double()
    structure = structure_of(model)
    states, best = smoothed_states(structure.about, truth, data), []
    filtered = filtered_states(structure.about, truth, data)
    found_best = most_probable_path(structure.about, truth, data)
    for b, row in enumerate(data.numpy()):
        row = row[~np.isinf(row).any(1)]
        paths, logs = all_paths(model, ("Normal",) * 2, arrays, row)
        own = np.logaddexp.reduce(logs)
        values.append(own)
        state = np.zeros((len(row), num_states))
        for path, log in zip(paths, logs, strict=True):
            weight, visits = np.exp(log - own), visits_of(path)
            for t, k in enumerate(path):
                state[t, k] += weight
            weight *= float(often[b])
            first[path[0]] += weight
            for (k, n), (following, _) in itertools.pairwise(visits):
                moves[k, following] += weight
                if n <= most:
                    ended[k, n - 1] += weight
            k, n = visits[-1]
            if n <= most:
                still_open[k, n - 1] += weight
        np.testing.assert_allclose(states[b, : len(row)], state, atol=1e-10)
        assert not states[b, len(row) :].any()
        np.testing.assert_allclose(filtered.state[b, len(row) - 1], state[-1], atol=1e-10)
        assert float(filtered.log_likelihood[b].sum()) == pytest.approx(own, abs=1e-10)
        best.append(logs.max())
        shown = found_best.state[b, : len(row)].tolist()
        assert logs[paths.index(tuple(shown))] == pytest.approx(logs.max(), abs=1e-10)
        assert bool((found_best.state[b, len(row) :] == -1).all())
    np.testing.assert_allclose(found_best.log_joint, best, atol=1e-10)
    np.testing.assert_allclose(Program(model, data).log_marginal_rows(truth), values, atol=1e-10)
    params = one(truth)
    densities = densities_at_steps(structure.distribution.log_densities, params, data)
    chain = semi_markov(structure.about, params, data.shape[1])
    found = smoothed_visits(chain, densities, inside_of(data).sum(1), often)
    np.testing.assert_allclose(found.log_likelihood[0], values, atol=1e-10)
    for name, expected in (
        ("first", first),
        ("moves", moves),
        ("ended", ended),
        ("open", still_open),
    ):
        np.testing.assert_allclose(getattr(found, name)[0], expected, atol=1e-9, err_msg=name)


@every
def test_posteriors_by_chances_are_those_by_differentiation(durations: Durations) -> None:
    model = model_with(durations, 3)
    truth = truth_of(model, 2)
    data = drawn(model, truth, (90, 40, 1), seed=3)
    params = one(truth)
    structure, often = structure_of(model), torch.tensor([1.0, 2.0, 0.5], dtype=F64)
    densities = densities_at_steps(structure.distribution.log_densities, params, data)
    # a row that no state explains by chances of double precision, were it not for the others
    densities[0, 0, 50] -= torch.tensor([900.0, 2000.0, 5000.0])
    given = semi_markov(structure.about, params, 90), densities, inside_of(data).sum(1), often
    found, expected = smoothed_visits(*given), _by_gradients(*given)
    for name, value in vars(expected).items():
        torch.testing.assert_close(getattr(found, name), value, rtol=1e-8, atol=1e-9)


def test_posteriors_whose_chances_vanish_are_found_by_logarithms() -> None:
    model = model_with(GeometricDurations(6))
    structure = structure_of(model)
    params = one(truth_of(model, 1))
    chain = semi_markov(structure.about, params, 20)
    # seven steps speak for the first state by far, though a visit lasts for six at most
    densities = torch.zeros(1, 1, 20, 2, dtype=F64)
    densities[..., 5:12, 1] = -2000.0
    found = smoothed_visits(chain, densities, torch.tensor([20]))
    assert float(found.log_likelihood) == pytest.approx(-2000.0, abs=10.0)
    torch.testing.assert_close(found.state.sum(-1), torch.ones(1, 1, 20, dtype=F64))
    torch.testing.assert_close(found.state[0, 0, 5:12, 1].sum(), torch.tensor(1.0, dtype=F64))


@every
def test_draws_of_paths_have_the_posterior(durations: Durations) -> None:
    model = model_with(durations)
    truth = truth_of(model, 4)
    data, about = drawn(model, truth, (7, 4), seed=5), structure_of(model).about
    draws = path_draws(about, truth, data, 4000, seed=1)
    states = smoothed_states(about, truth, data)
    share = (draws[..., None] == torch.arange(2)).double().mean(0)
    assert float((share - states).abs().max()) < 0.04
    assert bool((draws[:, 1, 4:] == -1).all())
    pairs = (draws[:, 0, 1:] != draws[:, 0, :-1]).sum(1)  # visits, jointly
    arrays = {name: value.numpy() for name, value in truth.items()}
    paths, logs = all_paths(model, ("Normal",) * 2, arrays, data[0].numpy())
    weights = np.exp(logs - np.logaddexp.reduce(logs))
    expected = sum(w * (len(visits_of(p)) - 1) for w, p in zip(weights, paths, strict=True))
    assert float(pairs.double().mean()) == pytest.approx(expected, abs=0.08)


def test_geometric_durations_are_the_plain_chain() -> None:
    plain = model_with(None, concentration=1.0)
    data = drawn(plain, truth_of(plain, 2), (120, 60), seed=3, missing=0.0)
    method = EM(tolerance=1e-13, parameter_tolerance=1e-9, max_iterations=3000)
    first = fit(plain, data, method, seed=1)
    second = fit(model_with(GeometricDurations(), concentration=1.0), data, method, seed=1)
    assert second.log_likelihood == pytest.approx(first.log_likelihood, abs=1e-8)
    assert second.num_parameters == first.num_parameters
    stay = 1 - 1 / second.params["mean_durations"]
    torch.testing.assert_close(stay, first.params["transitions"].diagonal(), rtol=0, atol=1e-4)
    # with a limit that no visit can meet the sums over visits give the same
    about = structure_of(model_with(GeometricDurations())).about
    limited = structure_of(model_with(GeometricDurations(5000))).about
    torch.testing.assert_close(
        smoothed_states(limited, second.params, data),
        smoothed_states(about, second.params, data),
        rtol=0,
        atol=1e-8,
    )


def test_a_negative_binomial_of_size_one_is_geometric_and_a_large_one_poisson() -> None:
    model = model_with(NegativeBinomialDurations())
    truth = truth_of(model, 3)
    data = drawn(model, truth, (40, 25), seed=1)

    def value(durations: Durations, size: float) -> float:
        other = truth | {"duration_sizes": torch.full((2,), size, dtype=F64)}
        own = {n: v for n, v in other.items() if n != "duration_sizes" or size}
        return float(Program(model_with(durations), data).log_marginal(own))

    geometric = value(GeometricDurations(), 0)
    assert value(NegativeBinomialDurations(), 1.0) == pytest.approx(geometric, abs=1e-9)
    poisson = value(PoissonDurations(), 0)
    assert value(NegativeBinomialDurations(), 1e4) == pytest.approx(poisson, abs=1e-2)


@pytest.mark.filterwarnings("ignore:visits of more than max_duration")
@every
def test_em_rises_to_a_point_without_slope(durations: Durations) -> None:
    model = model_with(durations)
    truth = truth_of(model, 3)
    data = drawn(model, truth, (60, 25, 40), seed=4)
    method = EM(tolerance=1e-13, parameter_tolerance=1e-8, max_iterations=3000)
    result = fit(model, data, method, init=truth)
    assert bool((result.trace.objective.diff() >= -1e-9).all())
    program = Program(result.model, data)
    free = {
        name: value.detach().requires_grad_()
        for name, value in program.unconstrained(result.params).items()
    }
    params = program.constrained(free)
    value = program.log_marginal(params) + program.log_prior(params)
    assert float(value.detach()) == pytest.approx(result.objective, abs=1e-8)
    for name in ("mean_durations", "duration_sizes", "predictors", "dispersion"):
        if name in free:
            (slope,) = torch.autograd.grad(value, free[name], retain_graph=True)
            assert float(slope.abs().max()) < 5e-3, name


@every
def test_an_m_step_is_no_worse_than_its_neighbours(durations: Durations) -> None:
    model = model_with(durations)
    params = one(durations.own(truth_of(model, 5)))
    rng, most = np.random.default_rng(0), durations.max_duration or 12
    fewer = 0.5 ** np.arange(most)  # so that means stay inside a limit
    ended = torch.from_numpy(fewer * rng.gamma(1.0, 50.0, (1, 2, most)))
    still_open = torch.from_numpy(fewer * rng.gamma(1.0, 2.0, (1, 2, most)))
    for _ in range(1 if isinstance(durations, FreeDurations) else 40):
        params = maximise_durations(durations, ended, still_open, params, 1.0)
    for _ in range(200 if isinstance(durations, FreeDurations) else 0):
        params = maximise_durations(durations, ended, still_open, params, 1.0)

    def bound(own: Params) -> float:
        logs, survival = durations.tables(own, most)
        found = float((ended * logs + still_open * survival).sum())
        if "duration_sizes" in own:
            found -= float((own["duration_sizes"].log() ** 2).sum()) / 18
        return found

    best = bound(params)
    for name, value in params.items():
        for factor in (0.99, 1.01):
            for k in range(2):
                moved = value.clone()
                if name == "duration_chances":
                    moved[0, k, 0] *= factor
                    moved /= moved.sum(-1, keepdim=True)
                else:
                    moved[0, k] *= factor
                assert bound(params | {name: moved}) <= best + 1e-6, (name, factor, k)


@every
def test_drawn_visits_last_as_they_should(durations: Durations) -> None:
    model = model_with(durations, initial=(1.0, 0.0))
    truth = truth_of(model, 6)
    given = dict(truth)
    tables = durations.tables(given, 12)
    emission = torch.distributions.Normal(torch.zeros(1, 2, 1, dtype=F64), 1.0)
    first = torch.tensor([1.0, 0.0], dtype=F64)
    chain = SemiMarkovChain(
        first,
        given["transitions"],
        tables,
        torch.distributions.Independent(emission, 1),  # type: ignore[arg-type]
        12,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        path = chain._draw_path(torch.Size([20000]))
    lasted = torch.where((path == 0).all(1), 12, (path != 0).int().argmax(1))
    share = torch.bincount(lasted, minlength=13)[1:].double() / 20000
    expected = tables[0][0].exp()
    expected = torch.nn.functional.pad(expected, (0, 12 - len(expected)))
    assert float((share - expected).abs().max()) < 0.015


def test_fits_recover_the_truth() -> None:
    model = model_with(NegativeBinomialDurations(), num_steps=200)
    truth = truth_of(model, 1) | {
        "mean_durations": torch.tensor([12.0, 5.0], dtype=F64),
        "duration_sizes": torch.tensor([8.0, 3.0], dtype=F64),
        "predictors": torch.tensor([[0.0, 0.0], [2.0, -2.0]], dtype=F64),
    }
    data = drawn(model, truth, (200,) * 15, seed=1, missing=0.0)
    found = fit(model, data, num_restarts=2, seed=0).params
    order = [0, 1] if float(found["predictors"][0, 0]) < 1 else [1, 0]
    torch.testing.assert_close(
        found["mean_durations"][order], truth["mean_durations"], rtol=0.15, atol=0
    )
    ratio = found["duration_sizes"][order] / truth["duration_sizes"]
    assert bool(((ratio > 0.6) & (ratio < 1.7)).all())


def test_an_outlier_and_forced_moves_keep_the_likelihood_finite() -> None:
    """A state that must be left pays any price."""
    model = model_with(FreeDurations(3), initial=(1.0, 0.0))
    truth = truth_of(model, 1) | {
        "predictors": torch.tensor([[0.0, 0.0], [500.0, 500.0]], dtype=F64),
        "dispersion": torch.full((2, 2), 0.1, dtype=F64),
    }
    data = torch.zeros(1, 9, 2, dtype=F64)
    value = float(Program(model, data).log_marginal(truth))
    paths, logs = all_paths(
        model, ("Normal",) * 2, {n: v.numpy() for n, v in truth.items()}, data[0].numpy()
    )
    assert value == pytest.approx(np.logaddexp.reduce(logs), rel=1e-12)
    assert value < -1e6
    states = smoothed_states(structure_of(model).about, truth, data)
    torch.testing.assert_close(states.sum(-1), torch.ones(1, 9, dtype=F64))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"durations": PoissonDurations},
            r"durations must be a duration distribution .* add paren",
        ),
        ({"durations": "poisson"}, "durations must be a duration distribution such as"),
        ({"durations": PoissonDurations(), "stickiness": 2.0}, "stickiness must be 0 where dur"),
        ({"durations": PoissonDurations(), "initial": "stationary"}, "must not be 'stationary'"),
        (
            {"durations": PoissonDurations(), "allowed": ((True, True), (True, False))},
            "allowed must be False on the diagonal .* state 0 may move to itself",
        ),
        (
            {"durations": PoissonDurations(), "allowed": ((False, True), (False, False))},
            "row 1 has none .durations say how long it stays, and then it is left",
        ),
    ],
)
def test_settings_that_contradict_durations_are_named(
    settings: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=f"HiddenMarkov: .*{words}"):
        HiddenMarkov(2, Normal(), 1, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [0, 1, 2.5, True, None])
def test_a_limit_is_an_integer_of_at_least_two(most: object) -> None:
    with pytest.raises(ValueError, match="FreeDurations: max_duration must be an integer of at"):
        FreeDurations(most)  # type: ignore[arg-type]


def test_durations_longer_than_the_sequences_are_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match="max_duration = 30 steps are more than the longest"):
        fit(model_with(FreeDurations(30)), torch.randn(2, 20, 2, dtype=F64))


def test_one_state_is_never_left() -> None:
    data = torch.randn(1, 30, 2, dtype=F64, generator=torch.Generator().manual_seed(0))
    first, second = (
        fit(model_with(durations, 1), data) for durations in (None, NegativeBinomialDurations())
    )
    assert second.log_likelihood == pytest.approx(first.log_likelihood, abs=1e-9)
    assert second.num_parameters == first.num_parameters
    assert set(second.params) == set(first.params)


def test_weights_count_sequences() -> None:
    model = model_with(NegativeBinomialDurations())
    truth = truth_of(model, 2)
    data = drawn(model, truth, (20, 30, 25), seed=2)
    often = torch.tensor([2.0, 1.0, 3.0])
    twice = problem_of(model, data[[0, 0, 1, 2, 2, 2]], 0)
    params = one(truth)
    parts = twice.structure.steps(twice, 2**18, 1).e_step(params)
    steps = twice.structure.steps(twice, 2**18, 1).on(data, often)
    weighted = steps.e_step(params)
    torch.testing.assert_close(weighted.log_likelihood, parts.log_likelihood)
    for name in ("first", "moves", "counts", "ended", "open"):
        torch.testing.assert_close(
            getattr(weighted.statistics, name), getattr(parts.statistics, name)
        )


def test_survival_far_out_keeps_its_digits() -> None:
    durations = NegativeBinomialDurations()
    params = {
        "mean_durations": torch.tensor([5.0], dtype=F64),
        "duration_sizes": torch.tensor([20.0], dtype=F64),
    }
    logs, survival = durations.tables(params, 60)
    exact = stats.nbinom.logsf(np.arange(60) - 1, 20.0, 20.0 / 24.0)
    np.testing.assert_allclose(survival[0], exact, rtol=2e-2, atol=1e-12)
    np.testing.assert_allclose(logs[0, -1], survival[0, -1], rtol=1e-12)


@pytest.mark.filterwarnings("ignore")  # three rows, and a single one, to a state
def test_em_ends_where_the_r_package_hsmm_does() -> None:
    """Normal items, free durations, twelve steps; the third state is left with a single row."""
    path = Path(__file__).parents[2] / "references" / "hidden_semi_markov.json"
    known = json.loads(path.read_text(encoding="utf-8"))
    start = {name: torch.tensor(value, dtype=F64) for name, value in known["start"].items()}
    x = np.random.RandomState(1234).randn(12)  # noqa: NPY002
    x[4:8] += 5.0
    init = {
        "initial": torch.full((3,), 1 / 3, dtype=F64),
        "transitions": start["moves"] / start["moves"].sum(1, keepdim=True),
        "duration_chances": start["durations"],
        "predictors": start["means"][:, None],
        "dispersion": start["scales"][:, None] ** 2,
    }
    model = HiddenMarkov(3, Normal(), 1, concentration=1.0, durations=FreeDurations(4))
    found = fit(model, x[:, None], EM(acceleration=None), init=init, num_restarts=1).params
    order = found["transitions"].argmax(1)
    places = found["predictors"][:, 0].argsort()  # the first, the third, the second
    one, three, two = places.tolist()
    at = torch.tensor([one, two, three])
    assert order[at].tolist() == [two, three, one]
    for name, expected in (
        ("duration_chances", known["durations"]),
        ("predictors", [[value] for value in known["means"]]),
    ):
        torch.testing.assert_close(
            found[name][at], torch.tensor(expected, dtype=F64), rtol=0, atol=1e-5
        )
    scales = found["dispersion"][at][:2, 0].sqrt()
    torch.testing.assert_close(scales, torch.tensor(known["scales"], dtype=F64), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:visits of more than max_duration")
def test_blocks_give_the_same_and_ask_for_a_limit() -> None:
    truth = truth_of(model_with(NegativeBinomialDurations()), 2)
    data = drawn(model_with(NegativeBinomialDurations()), truth, (20,) * 6, seed=2, missing=0.0)
    rows = RowBlocks.of(data.numpy(), 2)
    whole, blocks = (
        fit(model_with(NegativeBinomialDurations(20)), given, EM(), init=truth, num_restarts=1)
        for given in (data, rows)
    )
    assert blocks.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-6)
    with pytest.raises(ValueError, match="durations without max_duration"):
        fit(model_with(NegativeBinomialDurations()), rows)


def test_sizes_and_means_stay_inside_their_intervals() -> None:
    """Visits of one length have the largest size, not one more than that by rounding."""
    durations = NegativeBinomialDurations()
    ended = torch.zeros(1, 2, 30, dtype=F64)
    ended[0, 0, 9], ended[0, 1, 0] = 1e4, 1e4
    params = {
        "mean_durations": torch.full((1, 2), 5.0, dtype=F64),
        "duration_sizes": torch.ones(1, 2, dtype=F64),
    }
    for _ in range(30):
        params = maximise_durations(durations, ended, torch.zeros_like(ended), params, 1.0)
    assert bool((params["duration_sizes"] <= SIZES[1]).all())
    assert bool((params["mean_durations"] >= MEANS[0]).all())
    assert float(params["duration_sizes"][0, 0]) > 0.9 * SIZES[1]


def test_standard_errors_of_one_long_sequence_are_those_of_the_plain_chain() -> None:
    model = HiddenMarkov(2, Normal(), 1, "uniform")
    data = drawn(model, truth_of(model, 3), (150,), seed=4, missing=0.0)
    plain = fit(model, data, EM(tolerance=1e-10), num_restarts=1)
    stays = plain.params["transitions"].diagonal()
    errors = standard_errors(plain, data).standard_errors["transitions"].diagonal()
    visits = fit(
        HiddenMarkov(2, Normal(), 1, "uniform", durations=GeometricDurations()),
        data,
        EM(tolerance=1e-10),
        num_restarts=1,
    )
    found = standard_errors(visits, data).standard_errors["mean_durations"]
    torch.testing.assert_close(
        visits.params["mean_durations"], 1 / (1 - stays), rtol=1e-2, atol=0.0
    )
    torch.testing.assert_close(found, errors / (1 - stays).square(), rtol=0.05, atol=0.0)
    for durations in (NegativeBinomialDurations(), PoissonDurations()):
        other = fit(replace(visits.model, durations=durations), data, num_restarts=1)
        own = standard_errors(other, data).standard_errors["mean_durations"]
        assert bool((own.isfinite() & (own > 0)).all())
