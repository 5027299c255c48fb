"""Threads: what runs at once answers as it does alone, and leaves the process as it was."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyro
import pytest
import torch

from inference import EM, NUTS, SVI, Bootstrap, Fit, fit
from inference.base import Problem
from inference.base.outcome import Outcome
from inference.base.progress import Progress
from inference.programs import Program
from inference.programs.global_state import ONE_THREAD, isolated, listening, quiet, threads_for
from inference.programs.program import Params
from ppl_models import DeepDiscreteEncoder, Mixture, MultivariateNormal

MODEL = Mixture(2, MultivariateNormal(), num_items=2)


def rows(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    middle = 3.0 * torch.randint(2, (60, 1), generator=generator)
    return middle + torch.randn(60, 2, generator=generator, dtype=torch.float64)


METHODS: tuple[Any, ...] = (
    EM(max_iterations=60),
    SVI(num_steps=10, num_draws=4, num_particles=1, warm_start=EM(max_iterations=10)),
    NUTS(
        num_chains=2, warmup_steps=20, num_samples=4, max_depth=1, warm_start=EM(max_iterations=10)
    ),
    Bootstrap(EM(max_iterations=100), num_replicates=2),
)


def answer(job: tuple[Any, int]) -> tuple[Fit, dict[str, torch.Tensor], torch.Tensor]:
    method, seed = job
    result = fit(MODEL, rows(seed), method, seed=seed)
    return result, result.posterior_latents(rows(seed)), result.simulate(7)["items"]


@pytest.mark.filterwarnings("ignore")
def test_fits_in_threads_are_those_made_alone() -> None:
    """Failed before: the threads met in Pyro's stack of handlers (IndexError, KeyError, or
    another's sites).
    """
    jobs = [(method, seed) for seed, method in enumerate(METHODS)]
    alone = [answer(job) for job in jobs]
    filters, state, default = (
        list(warnings.filters),
        torch.get_rng_state(),
        torch.get_default_dtype(),
    )
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(answer, jobs))
    assert warnings.filters == filters
    assert torch.get_default_dtype() is default
    torch.testing.assert_close(torch.get_rng_state(), state, rtol=0, atol=0)
    for (one, latents, drawn), (two, others, again) in zip(alone, together, strict=True):
        assert one.log_likelihood == two.log_likelihood or (
            one.log_likelihood != one.log_likelihood
        )
        for name, value in one.params.items():
            torch.testing.assert_close(two.params[name], value, rtol=0, atol=0)
        for name, value in (one.draws or {}).items():
            torch.testing.assert_close((two.draws or {})[name], value, rtol=0, atol=0)
        for name, value in latents.items():
            torch.testing.assert_close(others[name], value, rtol=0, atol=0)
        torch.testing.assert_close(again, drawn, rtol=0, atol=0)
        assert one.warnings == two.warnings


@pytest.mark.filterwarnings("ignore")
def test_questions_in_threads_beside_a_fit() -> None:
    """Traces of questions and of a fit at once, over programs with sites of the same names."""
    model, data = MODEL, rows(0)
    known = fit(model, data, EM(max_iterations=50))
    expected = known.log_likelihood_rows(data)

    def ask(_: int) -> torch.Tensor:
        return known.log_likelihood_rows(data)

    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(fit, model, rows(1), EM(max_iterations=50))
        answers = list(pool.map(ask, range(20)))
        assert running.result().num_rows == 60
    for got in answers:
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@dataclasses.dataclass(frozen=True)
class FitsInside:
    """An engine that asks another fit for its start."""

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome:
        inner = fit(problem.model, problem.data, EM(max_iterations=5), seed=problem.seed)
        inner.posterior_latents(problem.data)
        return EM(max_iterations=200).run(
            problem, {k: v[None] for k, v in inner.params.items()}, progress, checkpoint
        )


def within(seconds: float, work: Callable[[], Any]) -> Any:
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it waits for itself"
    return done[0]


def test_a_fit_inside_a_fit_does_not_wait_for_itself() -> None:
    def work() -> Fit:
        with quiet():
            return fit(MODEL, rows(0), FitsInside())  # type: ignore[arg-type]

    assert within(60, work).converged


def test_another_thread_waits_its_turn() -> None:
    order: list[str] = []
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        with isolated(0):
            entered.set()
            leave.wait(30)
            order.append("first")

    def second() -> None:
        Program(DeepDiscreteEncoder(3, (2,)), torch.ones(2, 3))
        order.append("second")

    threads = [threading.Thread(target=work, daemon=True) for work in (first, second)]
    threads[0].start()
    entered.wait(30)
    threads[1].start()
    time.sleep(0.1)
    assert not order
    leave.set()
    for thread in threads:
        thread.join(30)
    assert order == ["first", "second"]


def test_a_fit_keeps_its_own_warnings_only() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with listening() as heard:
            thread = threading.Thread(
                target=lambda: warnings.warn("of another thread", UserWarning, stacklevel=1)
            )
            thread.start()
            thread.join(30)
            warnings.warn("of this thread", UserWarning, stacklevel=1)
        assert [str(one.message) for one in heard] == ["of this thread"]
        assert [str(one.message) for one in said] == ["of another thread"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_does_not_wait_for_a_thread_it_has_not() -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with isolated(0):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    entered.wait(30)
    child = os.fork()
    if child == 0:
        free = within_lock(1.0)
        os._exit(0 if free else 1)
    _, status = os.waitpid(child, 0)
    leave.set()
    thread.join(30)
    assert status == 0


def within_lock(seconds: float) -> bool:
    from inference.programs import global_state

    return global_state._TURN.lock.acquire(timeout=seconds)


def test_the_callers_store_and_random_state_are_left_alone() -> None:
    with pyro.get_param_store().scope():
        pyro.param("mine", torch.ones(2))
        state = torch.get_rng_state()
        fit(MODEL, rows(0), EM(max_iterations=200))
        assert list(pyro.get_param_store().keys()) == ["mine"]
        torch.testing.assert_close(torch.get_rng_state(), state, rtol=0, atol=0)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def threads_in_fit(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch, fails: bool = False) -> int:
    """Threads of torch while EM runs."""
    seen: list[int] = []
    plain = EM.run

    def run(self: EM, *args: Any, **settings: Any) -> Outcome:
        seen.append(torch.get_num_threads())
        if fails:
            raise RuntimeError("no answer")
        return plain(self, *args, **settings)

    monkeypatch.setattr(EM, "run", run)
    fit(MODEL, x, EM(max_iterations=2))
    return seen[0]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.filterwarnings("ignore::inference.base.outcome.ConvergenceWarning")
def test_few_rows_are_fitted_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    assert threads_in_fit(rows(0), monkeypatch) == 1
    assert torch.get_num_threads() == 2
    many = rows(0).repeat(int(ONE_THREAD / 4 / 60) + 1, 1)
    assert threads_in_fit(many, monkeypatch) == 2


@pytest.mark.usefixtures("two_threads")
def test_threads_come_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="no answer"):
        threads_in_fit(rows(0), monkeypatch, fails=True)
    assert torch.get_num_threads() == 2


def test_one_thread_of_the_caller_stays_one() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threads_for(10 * ONE_THREAD):
        assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_pages_of_few_rows_take_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fit(MODEL, rows(0), EM())
    seen = []
    monkeypatch.setattr(
        "inference.base.drawing.ask", lambda *_, **__: seen.append(torch.get_num_threads())
    )
    result.summary(rows(0))
    assert seen == [1]
    assert torch.get_num_threads() == 2
