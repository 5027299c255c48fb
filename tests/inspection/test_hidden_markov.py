"""Read-outs of hidden Markov models: paths, filtering, forecasts and residuals against every path,
times of chains by simulation and by hand.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from zoo.rows_hidden_markov import LEFT_RIGHT, all_paths, truth_of

from inference import EM, Fit, fit
from inference.bootstrap import Bootstrap
from inference.fitting.problem import problem_of
from inference.inspection import (
    chain_times,
    filter_states,
    forecast,
    pseudo_residuals,
    viterbi_states,
)
from inference.inspection.hidden_markov import sample_states, smooth_states
from inference.structures.registry import structure_of
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    FreeDurations,
    HiddenMarkov,
    Mixture,
    MultivariateNormal,
    NegativeBinomialDurations,
    Normal,
    Poisson,
    PoissonDurations,
)

F64 = torch.float64


def at_truth(
    model: HiddenMarkov, lengths: list[int], seed: int, missing: float = 0.0
) -> tuple[Fit, torch.Tensor]:
    """A fit that holds the truth, and sequences drawn from it."""
    truth = truth_of(model, seed)
    blank = torch.zeros(len(lengths), max(lengths), model.num_items, dtype=F64)
    values = structure_of(model).simulate_like(truth, blank, seed)["sequences"]
    values[torch.rand(values.shape, generator=torch.Generator().manual_seed(seed)) < missing] = (
        torch.nan
    )
    data = values.masked_fill(
        torch.arange(max(lengths))[:, None] >= torch.tensor(lengths)[:, None, None], torch.inf
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(model, data, EM(max_iterations=1))
    return replace(result, params=truth), data


@pytest.mark.parametrize("allowed", [None, LEFT_RIGHT])
def test_paths_and_filtered_states_are_those_of_every_path(allowed: Any) -> None:
    model = HiddenMarkov(3, Normal(), 2, allowed=allowed)
    result, data = at_truth(model, [5, 1, 4], seed=1, missing=0.2)
    data[0, 4] = torch.nan
    data = {"items": data, "length": [5, 1, 4]}
    arrays = {name: value.numpy() for name, value in result.params.items()}
    best, filtered, smooth = (
        viterbi_states(result, data),
        filter_states(result, data),
        smooth_states(result, data),
    )
    draws = sample_states(result, data, 4000, seed=2)
    for b, length in enumerate(data["length"]):
        row = data["items"][b, :length].numpy()
        paths, logs = all_paths(model, ("Normal", "Normal"), arrays, row)
        top = int(np.argmax(logs))
        assert tuple(best.state[b, :length].tolist()) == paths[top]
        assert float(best.log_joint[b]) == pytest.approx(logs[top], abs=1e-10)
        assert bool((best.state[b, length:] == -1).all())
        assert bool((draws[:, b, length:] == -1).all())
        weight = np.exp(logs - np.logaddexp.reduce(logs))
        for t in range(length):
            shares = np.bincount([path[t] for path in paths], weight, 3)
            np.testing.assert_allclose(smooth[b, t], shares, atol=1e-10)
            assert (
                np.abs(np.bincount(draws[:, b, t].numpy(), minlength=3) / 4000 - shares).max()
                < 0.05
            )
            short, own = all_paths(model, ("Normal", "Normal"), arrays, row[: t + 1])
            until = np.exp(own - np.logaddexp.reduce(own))
            np.testing.assert_allclose(
                filtered.state[b, t], np.bincount([path[t] for path in short], until, 3), atol=1e-10
            )
        assert float(filtered.log_likelihood[b].sum()) == pytest.approx(
            np.logaddexp.reduce(logs), abs=1e-10
        )
        assert float(result.log_likelihood_rows(data)[b]) == pytest.approx(
            np.logaddexp.reduce(logs), abs=1e-10
        )
        if length > 1:
            pairs = {(p[0], p[1]): 0.0 for p in paths}
            for path, share in zip(paths, weight, strict=True):
                pairs[path[0], path[1]] += share
            seen = pd.Series(list(map(tuple, draws[:, b, :2].tolist()))).value_counts(
                normalize=True
            )
            assert all(abs(seen.get(pair, 0.0) - share) < 0.05 for pair, share in pairs.items())


def test_a_forecast_is_the_distribution_of_the_next_steps() -> None:
    model = HiddenMarkov(2, Poisson(), 1, num_steps=40)
    result, data = at_truth(model, [40, 25], seed=3)
    found = forecast(result, data, 3, level=0.8)
    now = filter_states(result, data).state[[0, 1], [39, 24]]
    moves, rates = result.params["transitions"], result.params["predictors"].exp()
    for h in range(3):
        now = now @ moves
        torch.testing.assert_close(found.state[:, h], now)
        torch.testing.assert_close(found.mean[:, h], now @ rates)
        for b in range(2):
            grid = np.arange(200)
            total = sum(
                float(p) * stats.poisson.cdf(grid, float(rate))
                for p, rate in zip(now[b], rates, strict=True)
            )
            assert abs(float(found.low[b, h]) - grid[np.argmax(total >= 0.1)]) <= 1
            assert abs(float(found.high[b, h]) - grid[np.argmax(total >= 0.9)]) <= 1
    gap = torch.cat(
        [data[:1], torch.full((1, 2, 1), torch.nan, dtype=F64)], 1
    )  # an empty step is a step ahead
    ahead = filter_states(result, {"items": gap, "length": [42]}).state[0, 40:42]
    torch.testing.assert_close(ahead, found.state[0, :2])


def test_times_of_a_chain() -> None:
    result, _ = at_truth(HiddenMarkov(3, Normal(), 1), [30], seed=4)
    times = chain_times(result)
    moves = result.params["transitions"]
    torch.testing.assert_close(times.shares @ moves, times.shares)
    torch.testing.assert_close(times.dwell, 1 / (1 - moves.diagonal()))
    lasts = torch.arange(1, 2001, dtype=F64)
    torch.testing.assert_close(times.dwell_chances(2000) @ lasts, times.dwell)
    torch.testing.assert_close(times.ahead(2), moves @ moves)
    for goal in range(3):  # a step, and what is left after it
        others = [k for k in range(3) if k != goal]
        torch.testing.assert_close(
            times.hitting[others, goal], (1 + moves @ times.hitting[:, goal])[others]
        )
    left, _ = at_truth(HiddenMarkov(3, Normal(), 1, (1, 0, 0), LEFT_RIGHT), [30], seed=5)
    stay = left.params["transitions"].diagonal()
    found = chain_times(left)
    assert float(found.hitting[0, 2]) == pytest.approx(float(1 / (1 - stay[0]) + 1 / (1 - stay[1])))
    assert bool(torch.isinf(found.hitting[2, :2]).all())
    assert bool(torch.isinf(found.dwell[2]))
    torch.testing.assert_close(
        found.shares, torch.tensor([0.0, 0.0, 1.0], dtype=F64), atol=1e-9, rtol=0
    )


@pytest.mark.parametrize(
    "model",
    [
        HiddenMarkov(2, Blocks((Normal(), 1), (Bernoulli(), 1), (Poisson(), 1)), 3),
        HiddenMarkov(2, MultivariateNormal(), 2),
        HiddenMarkov(2, Categorical((3, 4)), 2),
    ],
    ids=["Blocks", "MultivariateNormal", "Categorical"],
)
@pytest.mark.parametrize("kind", ["forecast", "ordinary"])
def test_pseudo_residuals_are_standard_normal_where_the_model_is_right(
    model: HiddenMarkov, kind: Any
) -> None:
    if isinstance(model.emission, Categorical):
        truth = {
            "initial": torch.tensor([0.5, 0.5]),
            "transitions": torch.tensor([[0.9, 0.1], [0.2, 0.8]]),
        }
        truth["probabilities"] = torch.tensor(
            [[0.7, 0.2, 0.1, 0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.7, 0.5, 0.2, 0.2, 0.1]]
        )
        truth = {name: value.double() for name, value in truth.items()}
        data = structure_of(model).simulate_like(truth, torch.zeros(10, 300, 2, dtype=F64), 6)[
            "sequences"
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = replace(fit(model, data, EM(max_iterations=1)), params=truth)
    else:
        result, data = at_truth(
            model,
            [300] * 10,
            seed=6,
            missing=0.0 if isinstance(model.emission, MultivariateNormal) else 0.1,
        )
    found = pseudo_residuals(result, data, kind, "random")
    assert torch.equal(found.isnan(), data.isnan())
    for j in range(model.num_items):
        values = found[..., j][~found[..., j].isnan()].numpy()
        assert stats.kstest(values, "norm").pvalue > 1e-4
    if kind == "forecast":
        first, second = found[:, :-1, 0].flatten(), found[:, 1:, 0].flatten()
        both = ~(first.isnan() | second.isnan())
        assert abs(float(torch.corrcoef(torch.stack([first[both], second[both]]))[0, 1])) < 0.1


@pytest.mark.parametrize("durations", [None, PoissonDurations(), FreeDurations(4)])
def test_ordinary_residuals_of_states_far_apart_are_those_of_the_step_left_out(
    durations: Any,
) -> None:
    """The density of a step in the other state is below what a smoothed chance can hold."""
    truth = np.repeat([0, 1, 0, 1], [3, 4, 2, 3])
    items = np.stack([100.0 * truth, 100.0 * (1 - truth)]) + 0.1 * np.arange(24).reshape(2, 12) % 1
    items[0, 5], items[1, 10:] = 100.3, np.nan
    data = {"items": items[..., None], "length": [12, 10]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(HiddenMarkov(2, Normal(), durations=durations), data, EM(max_iterations=5))
    mean, variance = (result.params[name][:, 0].numpy() for name in ("predictors", "dispersion"))
    found = pseudo_residuals(result, data, "ordinary")
    for b, length in enumerate(data["length"]):
        for t in range(length):
            others = {**data, "items": data["items"].copy()}
            others["items"][b, t] = np.nan
            weight = smooth_states(result, others)[b, t].numpy()
            chance = weight @ stats.norm.cdf(items[b, t], mean, np.sqrt(variance))
            assert float(found[b, t, 0]) == pytest.approx(stats.norm.ppf(chance), abs=1e-6)


def test_everything_else_is_asked_of_a_fit_as_of_any_other() -> None:
    """From a data frame with gaps: labels by line, errors, draws, files' dims; and other models are
    refused by name.
    """
    model = HiddenMarkov(2, Normal(), 2)
    _, packed = at_truth(model, [60, 40], seed=7)
    lines = [
        (name, t, *packed[b, t].tolist())
        for b, name in enumerate("ab")
        for t in range((60, 40)[b])
        if t % 7 != 3
    ]
    frame = pd.DataFrame(lines, columns=["sequence", "time", "x", "y"]).sample(
        frac=1.0, random_state=0
    )
    result = fit(model, frame, seed=1)
    assert result.item_names == ("x", "y")
    assert result.num_observations == len(frame)
    posterior = result.posterior_frame(frame[["y", "time", "x", "sequence"]])
    assert posterior.index.equals(frame.index)
    smooth = smooth_states(result, frame)
    for line, row in frame.head(20).iterrows():
        assert posterior.loc[line, "P(states=1)"] == pytest.approx(
            float(smooth[result_place(frame, row.sequence), int(row.time), 1])
        )
    table = result.summary(frame)
    void = table.index[table["error"].isna()]  # of entries near a bound, whose interval says more
    assert all(str(name).startswith("initial") for name in void), void
    assert bool(table.drop(columns="error").notna().all(axis=None)), table
    errors = standard_errors(result, frame)
    assert float(errors.standard_errors["predictors"].max()) < 1.0
    spread = fit(
        model,
        frame,
        Bootstrap(EM(tolerance=1e-4, parameter_tolerance=0.1), num_replicates=3),
        init=result,
    ).draws  # sequences are drawn anew
    assert spread is not None
    assert spread["transitions"].shape[-3:] == (3, 2, 2)
    idata = result.to_arviz(frame)
    assert dict(idata["posterior"]["transitions"].sizes) == {
        "chain": 1,
        "draw": 1,
        "state": 2,
        "next_state": 2,
    }
    with pytest.raises(
        ValueError,
        match="viterbi_states: a fit of a hidden Markov model was expected, got one of Mixture",
    ):
        viterbi_states(fit(Mixture(1, Normal(), 2), packed[0, :30]), packed)
    with pytest.raises(ValueError, match="level must lie"):
        forecast(result, frame, level=1.0)
    with pytest.raises(ValueError, match="kind 'forecast' or 'ordinary'"):
        pseudo_residuals(result, frame, "other")  # type: ignore[arg-type]


def result_place(frame: pd.DataFrame, name: str) -> int:
    """Sequences are in the order of their first lines."""
    return list(dict.fromkeys(frame["sequence"])).index(name)


@pytest.mark.filterwarnings("ignore")  # of two iterations
@pytest.mark.parametrize("durations", [NegativeBinomialDurations(), PoissonDurations(8)], ids=str)
def test_times_and_forecasts_of_a_semi_markov_chain(durations: Any) -> None:
    """A step ahead is a step without entries; a path of 60,000 steps has the times."""
    model = HiddenMarkov(3, Normal(), 1, durations=durations)
    truth = truth_of(model, 3)
    data = structure_of(model).simulate_like(truth, torch.zeros(2, 15, 1).double(), 1)["sequences"]
    found = fit(model, data, EM(max_iterations=2, num_relaxed=0), init=truth, num_restarts=1)
    longer = torch.nn.functional.pad(data, (0, 0, 0, 4), value=torch.nan)
    torch.testing.assert_close(
        forecast(found, data, 4, num_draws=10).state,
        smooth_states(found, {"items": longer, "length": [19, 19]})[:, 15:19],
        rtol=0,
        atol=1e-10,
    )
    times, about = chain_times(found), structure_of(model).about
    assert about.durations is not None
    own = {name: value.numpy() for name, value in found.params.items()}
    if isinstance(durations, NegativeBinomialDurations):
        size, mean = own["duration_sizes"][:, None], own["mean_durations"][:, None]
        expected = stats.nbinom.pmf(np.arange(9), size, size / (size + mean - 1))
        np.testing.assert_allclose(times.dwell_chances(9), expected, atol=1e-12)
        np.testing.assert_allclose(times.dwell, own["mean_durations"])
    else:
        assert float(times.dwell_chances(12).sum(1).min()) == pytest.approx(1.0)
    rng, chances = np.random.default_rng(1), times.dwell_chances(400).numpy()
    moves, state, path = own["transitions"], 0, []
    while len(path) < 60_000:
        path += [state] * (1 + rng.choice(400, p=chances[state] / chances[state].sum()))
        state = rng.choice(3, p=moves[state])
    steps = np.array(path)
    share = np.bincount(steps, minlength=3) / len(steps)
    np.testing.assert_allclose(times.shares, share, atol=0.03)
    begins = np.flatnonzero((steps[1:] == 0) & (steps[:-1] != 0)) + 1
    goal = np.flatnonzero(steps == 2)
    after = np.searchsorted(goal, begins[begins < goal[-1]])
    waited = goal[after] - begins[: len(after)]
    assert float(times.hitting[0, 2]) == pytest.approx(waited.mean(), rel=0.08)
    later = begins[begins + 5 < len(steps)] + 5
    share = np.bincount(steps[later], minlength=3) / len(later)
    np.testing.assert_allclose(times.ahead(5)[0], share, atol=0.03)


def test_a_report_says_how_long_visits_last(tmp_path: Any) -> None:
    model = HiddenMarkov(2, Normal(), 1, durations=NegativeBinomialDurations(12))
    truth = truth_of(model, 3)
    data = structure_of(model).simulate_like(truth, torch.zeros(1, 60, 1).double(), 1)["sequences"]
    found = fit(model, data, EM(), init=truth, num_restarts=1)
    words = found.report(tmp_path / "page.html", data).read_text()
    assert "has a negative binomial distribution; then another state follows" in words
    assert "duration_sizes" in words
    again = Fit.load(found.save(tmp_path / "fit") or tmp_path / "fit")
    torch.testing.assert_close(smooth_states(again, data), smooth_states(found, data))
    assert again.model == found.model


@pytest.mark.filterwarnings("ignore")  # of two iterations
def test_durations_cut_by_a_limit_are_a_concern() -> None:
    model = HiddenMarkov(2, Normal(), 1, durations=PoissonDurations(5))
    truth = truth_of(model, 3) | {"mean_durations": torch.tensor([3.0, 1.5]).double()}
    data = structure_of(model).simulate_like(truth, torch.zeros(1, 60, 1).double(), 1)["sequences"]
    found = fit(model, data, EM(max_iterations=1), init=truth, num_restarts=1)
    problem = problem_of(found.model, data, 0)
    (said,) = found.structure.concerns(problem, truth)
    share = 100 * stats.poisson.sf(4, 2.0)
    assert f"max_duration = 5 steps are left out of the durations, {share:.2g} %" in said
    assert "of those to state 0: raise max_duration" in said
