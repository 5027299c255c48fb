"""The search over starts: the best of known optima, saddles, resumption, randomness, and what a fit
says of it.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from support.own_programs import F64
from support.six_patterns import MODEL, answers, brute_force
from torch import Tensor

from inference import EM, Fit, StartsWarning, fit
from inference.base.optima import rank_restarts
from inference.base.progress import NoProgress
from inference.base.starts import StartSearch
from inference.base.structure import more_starts
from inference.engines.em import DROPPED, RUNNING, SET_ASIDE, EMState
from inference.engines.start_search import NUDGE, SURE, Race, SearchState, search_starts
from inference.fitting.problem import problem_of
from inference.report import write_report
from ppl_models import Mixture, Normal

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning",  # patterns without noise are answered surely
    "ignore::inference.DegenerateWarning",  # of starts that are run alone
)


def test_the_plain_call_finds_the_best_of_all_optima():
    known = brute_force(MODEL)
    best = float(known.max())
    assert len((known * 1e3).round().unique()) > 3  # there is something to miss
    alone = [fit(MODEL, answers(), EM(), init="random", seed=seed).objective for seed in range(8)]
    assert min(alone) < best - 0.1
    for seed in range(4):
        result = fit(MODEL, answers(), seed=seed)
        assert result.objective == pytest.approx(best, abs=1e-4)
        assert result.restarts.num_reached >= 3
        optima = result.restarts.objective[result.restarts.optimum >= 0]
        assert all(
            float((known - value).abs().min()) < 1e-3 for value in optima
        )  # nothing is reported that is no optimum


def test_a_named_method_or_number_runs_what_it_says():
    for arguments in ({"method": EM(), "num_restarts": 4}, {"num_restarts": 4}):
        result = fit(MODEL, answers(), **arguments)
        assert len(result.restarts.objective) == 4
        assert result.restarts.num_tried is None
    given = fit(MODEL, answers(), init=result)
    assert given.restarts.num_tried is None


def test_same_seed_same_answer_and_no_trace_in_the_callers_random_state():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = fit(MODEL, answers(), seed=3)
    assert torch.equal(torch.rand(3), expected)
    second = fit(MODEL, answers(), seed=3)
    assert torch.equal(first.restarts.objective, second.restarts.objective)
    assert all(torch.equal(value, second.params[name]) for name, value in first.params.items())


@pytest.mark.parametrize(
    "after",
    [3, pytest.param(15, marks=pytest.mark.slow), 22, pytest.param(28, marks=pytest.mark.slow)],
)
def test_an_interrupted_search_goes_on_to_the_uninterrupted_answer(after, tmp_path, monkeypatch):
    whole, path, advance, calls = fit(MODEL, answers()), tmp_path / "running", EMState.advance, []

    def stop(self, *args):
        calls.append(1)
        if len(calls) == after:
            raise KeyboardInterrupt
        return advance(self, *args)

    monkeypatch.setattr(EMState, "advance", stop)
    with pytest.raises(KeyboardInterrupt):
        fit(MODEL, answers(), checkpoint=path)
    again = fit(MODEL, answers(), checkpoint=path)
    assert torch.equal(again.restarts.objective, whole.restarts.objective)
    assert torch.equal(again.trace.objective, whole.trace.objective)
    assert all(torch.equal(value, whole.params[name]) for name, value in again.params.items())
    assert [file.name for file in tmp_path.iterdir()] == ["running"]
    calls.clear()
    assert torch.equal(
        fit(MODEL, answers(), checkpoint=path).restarts.objective, whole.restarts.objective
    )
    assert not calls  # a finished search is read, not run
    with pytest.raises(ValueError, match="belongs to another fit"):
        fit(MODEL, answers(), seed=1, checkpoint=path)


def test_the_course_of_the_best_start_never_falls():
    result = fit(MODEL, answers())
    course = torch.cat([result.trace.objective, torch.tensor([result.objective], dtype=F64)])
    assert len(result.trace.objective) == result.num_iterations
    assert float((course[1:] - course[:-1]).min()) > -1e-8


def test_the_number_of_starts_is_bounded():
    problem = problem_of(MODEL, answers(), 0)

    def draw(batch: int) -> dict[str, Tensor]:
        return more_starts(problem.structure, replace(problem, seed=batch), "random", 4, batch)

    rule = StartSearch(batch=4, rungs=((20, 2),), replicates=1000, stall=1000, cap=12)
    capped = search_starts(rule, EM(max_iterations=200), problem, draw, NoProgress(), None)
    assert capped.num_tried == 12
    assert 3 <= int(capped.replicates.sum()) <= 12
    stalled = search_starts(
        replace(rule, cap=400, stall=2), EM(max_iterations=200), problem, draw, NoProgress(), None
    )
    assert 12 <= stalled.num_tried < 400  # two batches in a row without a better optimum
    spent = search_starts(
        replace(rule, budget=1.0), EM(max_iterations=200), problem, draw, NoProgress(), None
    )
    assert spent.num_tried == 4  # the first batch is whole


def test_a_search_goes_on_under_another_rule():
    problem = problem_of(MODEL, answers(), 0)

    def draw(batch: int) -> dict[str, Tensor]:
        return more_starts(problem.structure, replace(problem, seed=batch), "random", 8, batch)

    rule = StartSearch(batch=8, rungs=((20, 4),), replicates=1000, stall=1000, cap=24)
    settings = (EM(), problem, draw, NoProgress(), None)
    short = search_starts(replace(rule, cap=1), *settings, SearchState(settled=True))
    assert (short.num_tried, short.nudged) == (8, 0)
    best = float(short.objective[short.best])
    assert len(short.values) == 8
    assert float(short.values.max()) == pytest.approx(best, abs=0.01)  # before it was run on
    near = int((short.values > best - 0.02).sum())
    assert short.num_reached(problem) == near  # a start that met another has its value
    on = search_starts(rule, *settings, replace(short, settled=False, done=False))
    assert (on.num_tried, on.batch) == (24, 3)
    assert on.nudged >= 1
    assert float(on.objective[on.best]) >= best - 1e-9
    whole = search_starts(rule, *settings)
    assert float(on.objective[on.best]) == pytest.approx(
        float(whole.objective[whole.best]), abs=1e-4
    )


def test_a_saddle_is_left(monkeypatch):
    """Components that start equal stay equal under EM: a saddle, from which a nudge leads up."""
    x = torch.cat(
        [torch.linspace(-1, 1, 40, dtype=F64) - 4, torch.linspace(-1, 1, 40, dtype=F64) + 4]
    ).unsqueeze(1)
    problem = problem_of(Mixture(2, Normal()), x, 0)
    best = fit(Mixture(2, Normal()), x).objective
    equal = {
        "weights": torch.full((2, 2), 0.5, dtype=F64),
        "predictors": torch.tensor([[0.0, 1e-13], [0.0, -1e-13]], dtype=F64).unsqueeze(-1),
        "dispersion": torch.full((2, 2, 1), float(x.var()), dtype=F64),
    }
    stuck = EM().run(problem, equal, NoProgress(), None)
    assert float(stuck.objective.max()) < best - 10
    far = {  # a start that is out of the race at once, but shows another direction
        "weights": torch.full((1, 2), 0.5, dtype=F64),
        "predictors": torch.tensor([[[90.0], [-90.0]]], dtype=F64),
        "dispersion": torch.full((1, 2, 1), float(x.var()), dtype=F64),
    }
    starts = {name: torch.cat([value[:1], far[name]]) for name, value in equal.items()}
    rule = StartSearch(batch=2, rungs=((1, 1),), replicates=1, cap=2)
    monkeypatch.setattr(Race, "_is_sound", lambda self, state, r: r == 0)
    monkeypatch.setattr("inference.engines.start_search.NUDGE", 0.0)
    still = search_starts(rule, EM(), problem, lambda batch: starts, NoProgress(), None)
    assert float(still.objective.max()) < best - 10
    monkeypatch.setattr("inference.engines.start_search.NUDGE", NUDGE)
    found = search_starts(rule, EM(), problem, lambda batch: starts, NoProgress(), None)
    assert float(found.objective.max()) == pytest.approx(best, abs=1e-4)


def test_a_best_that_many_starts_came_to_is_not_moved(monkeypatch):
    problem = problem_of(MODEL, answers(), 0)

    def draw(batch: int) -> dict[str, Tensor]:
        return more_starts(problem.structure, replace(problem, seed=batch), "random", 20, batch)

    rule = StartSearch(batch=20, rungs=(), replicates=1)
    settings = (EM(), problem, draw, NoProgress(), None)
    trusted = search_starts(rule, *settings)
    share = trusted.num_reached(problem) / trusted.num_tried
    assert (trusted.nudged == 0) == (share >= SURE)
    monkeypatch.setattr("inference.engines.start_search.SURE", share)
    assert search_starts(rule, *settings).nudged == 0
    monkeypatch.setattr("inference.engines.start_search.SURE", share + 0.01)
    moved = search_starts(rule, *settings)
    assert moved.nudged >= 1
    assert float(moved.objective[moved.best]) == pytest.approx(
        float(trusted.objective[trusted.best]), abs=1e-6
    )
    rule = replace(rule, replicates=10)  # twice as many must have come to it
    monkeypatch.setattr("inference.engines.start_search.SURE", 0.0)
    again = search_starts(replace(rule, cap=20), *settings)
    assert (again.nudged == 0) == (again.num_reached(problem) >= 20)


def test_two_sides_of_one_hill_are_one_optimum_and_other_hills_are_not():
    problem = problem_of(MODEL, answers(), 0)
    result = fit(MODEL, answers(), EM(), init="random", num_restarts=30)
    params = result.restarts.params
    loose = EM(tolerance=1e-7, parameter_tolerance=1e-2).run(
        problem, problem.structure.start(problem, "random", 30), NoProgress(), None
    )
    both = {name: torch.cat([params[name], loose.params[name]]) for name in params}
    ranking = rank_restarts(problem, both, torch.cat([result.restarts.objective, loose.objective]))
    close = (ranking.optimum[:30] == ranking.optimum[30:]) & (ranking.optimum[:30] >= 0)
    assert close.sum() >= 20
    for number in range(int(ranking.optimum.max()) + 1):
        values = torch.cat([result.restarts.objective, loose.objective])[ranking.optimum == number]
        assert float(values.max() - values.min()) < 1e-3


def test_a_single_find_is_said_and_kept(tmp_path, monkeypatch):
    """One start alone on the best optimum: a warning that says what to do, and a sentence on the
    page and in the file.
    """
    rule = StartSearch(batch=3, rungs=(), cap=3)
    monkeypatch.setattr("inference.structures.mixture.structure.SEARCH", rule)
    for seed in range(20):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = fit(MODEL, answers(), init="random", seed=seed)
        if result.restarts.num_reached == 1:
            break
    assert any(
        issubclass(w.category, StartsWarning) and "only one of the 3 starts" in str(w.message)
        for w in caught
    )
    text = result.restarts.text()
    assert "3 starts were run to the end, 1 of them to the best optimum." in text
    assert result.restarts.next_best is not None
    assert f"{result.restarts.next_best:.4g}" in text
    result.save(tmp_path / "fit")
    assert Fit.load(tmp_path / "fit").restarts.text() == text
    page = write_report(result, answers(), tmp_path / "report.html").read_text()
    assert "run more starts, and see whether it comes again" in page


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch": 0}, "batch"),
        ({"rungs": ((40, 31),)}, "rungs must be pairs"),
        ({"rungs": ((40, 15), (40, 4))}, "iterations rising"),
        ({"rungs": ((40, 4), (100, 15))}, "starts falling"),
        ({"budget": 0}, "budget"),
        ({"rows": 0}, "rows"),
    ],
)
def test_rules_are_checked(change, words):
    with pytest.raises(ValueError, match=words):
        StartSearch(**change)


def raced(
    courses: list[Tensor],
    rungs: tuple[tuple[int, int], ...] = (),
    before: SearchState | None = None,
    converged: tuple[int, ...] = (),
) -> list[int]:
    """Fates of starts of given objectives, (T,) each, at the look after their last iteration."""
    problem = problem_of(MODEL, answers(), 0)
    start = problem.structure.start(problem, "random", len(courses))
    history = torch.stack(courses, 1)
    done = torch.tensor([r in converged for r in range(len(courses))])
    state = replace(
        EMState.begin(start),
        active=(~done).nonzero().flatten(),
        converged=done,
        iteration=len(history),
        objective=history[-1],
        history=history,
        num_iterations=torch.where(done, 30, len(history)),
    )
    state = Race(rungs, problem, before or SearchState())(state)
    fate = torch.full((len(courses),), RUNNING) if state.fate is None else state.fate
    assert state.active.tolist() == [
        r for r in range(len(courses)) if fate[r] == RUNNING and not done[r]
    ]
    return fate.tolist()


def course(*points: float, length: int = 10) -> Tensor:
    """Objectives between points that lie ``length`` iterations apart, on straight lines."""
    points = (points[0] - 1.0, *points)
    parts = [
        torch.linspace(a, b, length + 1, dtype=F64)[1:]
        for a, b in zip(points, points[1:], strict=False)
    ]
    return torch.cat(parts)


def test_a_start_that_has_met_another_leaves_and_counts_for_it():
    flat, other = course(-300, -200, -200), course(-300, -200.0005, -200.0005)
    apart, rising = course(-300, -200.002, -200.002), course(-300, -201, -200.0005)
    assert raced([flat, other, apart, rising]) == [RUNNING, 0, RUNNING, RUNNING]


def test_a_start_leaves_when_the_best_that_ended_is_out_of_its_reach():
    """The best took 30 iterations, so others have 650: at 50 there are 600 to go."""
    best, slow = course(*[-100] * 5), course(-300, -199.2, -199, -198.95, -198.9)
    reaches = course(-300, -189, -188, -186, -185)  # .2 an iteration, of 85 that are missing
    fate = raced([best, slow, reaches], converged=(0,))
    assert fate == [RUNNING, DROPPED, RUNNING]
    fate = raced([course(*[-100] * 66), course(*[-300 + 2 * i for i in range(66)])], converged=(0,))
    assert fate == [RUNNING, DROPPED]  # after 660 iterations, whatever its pace


def test_a_start_that_creeps_is_set_aside_and_one_that_gains_pace_is_not():
    tail = [-100.0] * 8
    creeps = course(-300, *tail, -99.9995, -99.9993)
    quickens = course(-300, *[value - 1 for value in tail], -100.9998, -100.9993)
    assert raced([creeps, quickens]) == [SET_ASIDE, RUNNING]


def test_the_best_go_on_at_a_rung_and_those_that_ended_keep_their_place():
    starts = [course(-300 - r, -200 - r) for r in range(4)]
    assert raced(starts, rungs=((20, 2),)) == [RUNNING, RUNNING, DROPPED, DROPPED]
    fate = raced(starts, rungs=((20, 2),), converged=(0,))
    assert fate == [RUNNING, RUNNING, DROPPED, DROPPED]


def test_a_degenerate_solution_ranks_behind_at_a_rung(monkeypatch):
    monkeypatch.setattr(
        "inference.engines.start_search.Race._is_sound", lambda self, state, r: r != 0
    )
    starts = [course(-300 - r, -200 - r) for r in range(4)]
    assert raced(starts, rungs=((20, 2),)) == [DROPPED, RUNNING, RUNNING, DROPPED]


def test_many_rows_are_searched_in_a_sample_and_fitted_as_a_whole():
    """The evidence of the sample is that of the fit, and its objective that of all rows."""
    generator = torch.Generator().manual_seed(1)
    which = torch.randint(3, (8_000,), generator=generator)
    x = 3 * which.unsqueeze(1) + torch.randn(8_000, 2, generator=generator, dtype=F64)
    model = Mixture(3, Normal(), 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference.structures.mixture.structure.enough_rows", lambda numbers: 500)
        result = fit(model, x)
    assert result.restarts.num_tried == 30
    assert result.restarts.num_reached >= 3
    assert len(result.restarts.objective) <= 2
    whole = fit(model, x)
    assert result.objective == pytest.approx(whole.objective, abs=1e-3)
    assert result.converged
