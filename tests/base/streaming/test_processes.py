"""One fit over several processes: the same answer, and one clear error in all of them."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from inference import EM, OnlineEM, RowBlocks, fit
from inference.base.streaming.processes import LostProcessError, numbers_of, with_numbers
from inference.engines.online_em import RANK_STRIDE, SEED_STRIDE
from inference.fitting.problem import problem_of
from inference.structures.factorization import factorize
from inference.structures.factorization.factorize import Course, Factorize
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    FactorAnalysis,
    GaussianFactorization,
    HiddenMarkov,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    NegativeBinomialFactorization,
    NoisyOr,
    Normal,
    OptionsHMM,
    PoissonFactorization,
)

NUM_ROWS = 301
Work = Callable[[Any, int], Any]


def run(size: int, work: Work, folder: Path, answers: int | None = None) -> list[Any]:
    """What ``work(group, rank)`` gives in each of several processes, or in the first ``answers``;
    the text of its error where it raises.
    """
    context = multiprocessing.get_context("fork")  # nothing is imported again
    queue = context.Queue()

    def start(rank: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.distributed.init_process_group(
                "gloo",
                f"file://{folder}/{work.__name__}",
                timedelta(seconds=60),
                rank=rank,
                world_size=size,
            )
            try:
                found = work(torch.distributed.group.WORLD, rank)
            except (ValueError, RuntimeError, LostProcessError) as error:
                found = f"{type(error).__name__}: {error}"
            queue.put((rank, found))

    processes = [context.Process(target=start, args=(rank,), daemon=True) for rank in range(size)]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # newer versions of Python warn of threads beside a fork
        for process in processes:
            process.start()
    found = dict(queue.get(timeout=90) for _ in range(answers or size))
    for process in processes:
        process.join(60)
    return [found[rank] for rank in range(answers or size)]


def tables() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    group = rng.random(NUM_ROWS) < 0.4
    numbers = np.where(
        group[:, None], rng.normal(2, 1, (NUM_ROWS, 4)), rng.normal(-1, 0.7, (NUM_ROWS, 4))
    )
    bits = (rng.random((NUM_ROWS, 6)) < np.where(group[:, None], 0.8, 0.2)).astype(float)
    counts = np.where(rng.random((NUM_ROWS, 2)) < 0.3, 0.0, rng.poisson(4.0, (NUM_ROWS, 2)))
    steps = np.stack([rng.integers(3, size=(60, 8)), rng.integers(2, size=(60, 8))], -1)
    amounts = (
        rng.negative_binomial(
            2, 0.2 + 0.5 * group[:, None] * np.array([1, 1, 0, 0, 1]), (NUM_ROWS, 5)
        )
        + 1.0
    )
    return {
        "numbers": numbers,
        "bits": bits,
        "sequences": numbers[:300].reshape(60, 5, 4),
        "counts": counts,
        "options": steps,
        "amounts": amounts,
    }


def inflated_columns(data: torch.Tensor) -> None:
    """A program of a user's own: zero-inflated Poisson counts in two columns."""
    zero = pyro.sample("zero", dist.Beta(torch.tensor(1.0, dtype=torch.float64), 1.0))
    rate = pyro.sample("rate", dist.Gamma(torch.tensor(1.0, dtype=torch.float64), 0.1))
    with pyro.plate("rows", len(data)):
        never = pyro.sample("never", dist.Bernoulli(zero))
        for j in range(2):
            pyro.sample(
                f"count_{j}",
                dist.Poisson(torch.where(never > 0.5, torch.full_like(rate, 1e-8), rate)),
                obs=data[:, j],
            )


Q = np.array([[1, 0], [1, 0], [1, 1], [0, 1], [0, 1], [1, 1]])
FAMILIES = {
    "normal mixture": (Mixture(2, Normal(), 4), "numbers"),
    "multivariate mixture": (Mixture(2, MultivariateNormal(), 4), "numbers"),
    "encoder": (DeepDiscreteEncoder(6, (2, 1), Bernoulli(), penalty=None), "bits"),
    "attributes": (LatentAttributeModel(Q), "bits"),
    "noisy or": (NoisyOr(6, 2), "bits"),
    "factors": (FactorAnalysis(4, 1), "numbers"),
    "hidden Markov": (HiddenMarkov(2, Normal(), 4), "sequences"),
    "weights": (Mixture(2, Normal(), 4), "numbers"),
    "own program": (inflated_columns, "counts"),
    "options": (OptionsHMM(3, 2, 2), "options"),
    "factorization": (PoissonFactorization(5, 2), "amounts"),
    "dispersed factorization": (NegativeBinomialFactorization(5, 2), "amounts"),
    "non-negative factorization": (GaussianFactorization(5, 2, nonnegative=True), "amounts"),
    "normal factorization": (GaussianFactorization(5, 2), "amounts"),
}


def fits(
    group: Any, rank: int, names: tuple[str, ...] = tuple(FAMILIES)
) -> dict[str, tuple[float, dict[str, np.ndarray]]]:
    out = {}
    for name in names:
        model, kind = FAMILIES[name]
        rows = tables()[kind]
        if kind == "bits" or name in ("normal mixture", "factorization", "dispersed factorization"):
            rows[-1, 1] = np.nan  # in the last block of the last process alone
        if kind == "options":
            rows[-1, 2, 1] = -1
            rows = {"state": rows[..., 0], "action": rows[..., 1]}
        weights = np.arange(len(rows)) % 4 if name == "weights" else None
        method, init = (
            (Factorize(max_sweeps=60), "random")
            if kind == "amounts"
            else (EM(max_iterations=4), None)
        )
        found = fit(
            model,
            RowBlocks.of(rows, 70, group, split=group is not None),
            method,
            init,
            weights=weights,
        )
        out[name] = found.objective, {site: value.numpy() for site, value in found.params.items()}
        assert found.local is None or len(found.local["activities"]) == (
            len(rows) * (rank + 1) // size_of(group) - len(rows) * rank // size_of(group)
        )
    return out


def size_of(group: Any) -> int:
    return 1 if group is None else torch.distributed.get_world_size(group)


def two_fits(group: Any, rank: int) -> Any:
    return fits(
        group,
        rank,
        (
            "normal mixture",
            "encoder",
            "own program",
            "options",
            "weights",
            "factorization",
            "normal factorization",
        ),
    )


@pytest.mark.parametrize(
    ("size", "work"), [(2, two_fits), pytest.param(3, fits, marks=pytest.mark.slow)]
)
def test_processes_give_one_answer(size: int, work: Work, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = work(None, 0)
    shared = run(size, work, tmp_path)
    for name, (objective, params) in alone.items():
        for own in shared:
            assert own[name][0] == pytest.approx(objective, rel=1e-12), name
            for site, value in params.items():
                assert np.allclose(own[name][1][site], value, rtol=1e-8, atol=1e-10), (name, site)
                assert np.array_equal(own[name][1][site], shared[0][name][1][site]), (
                    "every process holds the same bits"
                )


MODEL = Mixture(2, Normal(), 4)
STEPWISE = EM(max_iterations=2, acceleration=None, start=OnlineEM(batch_rows=60, passes=2))


def stepwise(group: Any, rank: int) -> Any:
    rows = tables()["numbers"]
    own = rows[:37] if rank == 0 else rows[37:]  # shares of other sizes
    found = fit(MODEL, RowBlocks.of(own, 1000, group), STEPWISE, init=STARTED, seed=5)
    return {name: value.numpy() for name, value in found.params.items()}


STARTED = {
    "weights": torch.tensor([0.5, 0.5]),
    "predictors": torch.tensor([[1.0] * 4, [-0.5] * 4]),
    "dispersion": torch.ones(2, 4),
}
STARTED = {name: value.double() for name, value in STARTED.items()}


def test_passes_in_batches_take_every_process_along(tmp_path: Path) -> None:
    """The average by hand, of batches to which each process brings its share."""
    first, second = run(2, stepwise, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = torch.from_numpy(tables()["numbers"])
        problem = problem_of(MODEL, rows, 5, start_given=True)
        inner = problem.structure.standard(problem)
        problem, inward, outward = (
            (problem, dict, dict) if inner is None else (inner.problem, inner.inward, inner.outward)
        )
        steps, params = (
            STEPWISE.steps(problem),
            inward({name: value.unsqueeze(0) for name, value in STARTED.items()}),
        )
        shares, per_pass, average, batch = (
            (problem.data[:37], problem.data[37:]),
            NUM_ROWS // 60,
            None,
            0,
        )
        for number in range(2):
            mixed = [
                share[
                    torch.randperm(
                        len(share),
                        generator=torch.Generator().manual_seed(
                            5 + SEED_STRIDE * number + RANK_STRIDE * rank
                        ),
                    )
                ]
                for rank, share in enumerate(shares)
            ]
            for place in range(per_pass):
                part = torch.cat(
                    [
                        own[len(own) * place // per_pass : len(own) * (place + 1) // per_pass]
                        for own in mixed
                    ]
                )
                statistics = steps.on(part).e_step(params)[0]
                sums = numbers_of(statistics) * NUM_ROWS / len(part)
                average = (
                    sums
                    if average is None
                    else torch.lerp(average, sums, STEPWISE.start.step(batch))
                )
                params, batch = steps.m_step(with_numbers(statistics, average), params), batch + 1
        for _ in range(2):
            params = steps.m_step(steps.e_step(params)[0], params)
        params = outward(params)
    for name, value in first.items():
        assert np.array_equal(second[name], value), name
    order = params["weights"][0].argsort(descending=True)
    assert np.allclose(
        np.sort(first["weights"])[::-1], params["weights"][0][order].numpy(), rtol=1e-9
    )
    assert np.allclose(
        np.sort(first["predictors"], 0), params["predictors"][0].sort(0).values.numpy(), rtol=1e-9
    )


def other_model(group: Any, rank: int) -> Any:
    return fit(
        Mixture(2 + rank, Normal(), 4),
        RowBlocks.of(tables()["numbers"], 70, group, split=True),
        EM(),
    )


def other_settings(group: Any, rank: int) -> Any:
    return fit(
        MODEL, RowBlocks.of(tables()["numbers"], 70, group, split=True), EM(max_iterations=4 + rank)
    )


def other_seed(group: Any, rank: int) -> Any:
    return fit(MODEL, RowBlocks.of(tables()["numbers"], 70, group, split=True), EM(), seed=rank)


def empty_shard(group: Any, rank: int) -> Any:
    return fit(MODEL, RowBlocks.of(tables()["numbers"][: 100 * (1 - rank)], 70, group), EM())


def other_width(group: Any, rank: int) -> Any:
    return fit(MODEL, RowBlocks.of(tables()["numbers"][:, : 4 - rank], 70, group), EM())


def wrong_entry(group: Any, rank: int) -> Any:
    rows = tables()["numbers"]
    rows[-1, 0] = np.inf
    return fit(MODEL, RowBlocks.of(rows, 70, group, split=True), EM())


def empty_row(group: Any, rank: int) -> Any:
    rows = tables()["amounts"]
    rows[-1] = 0
    return fit(PoissonFactorization(5, 2), RowBlocks.of(rows, 70, group, split=True))


class Failing:
    """Rows that can be read a few times, in one process of them."""

    def __init__(self, fails: bool) -> None:
        self.left = 15 if fails else 10**9

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: slice) -> np.ndarray:
        self.left -= 1
        if self.left < 0:
            raise OSError("the disk is gone")
        return tables()["numbers"][index]


def failing_disk(group: Any, rank: int) -> Any:
    return fit(
        MODEL,
        RowBlocks.of(Failing(rank == 1), 100, group),
        EM(max_iterations=500, tolerance=1e-300, parameter_tolerance=1e-300),
    )


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (other_model, "the model must be the same in all 2 processes, and process 1 has another"),
        (other_settings, "method, init and num_restarts must be the same"),
        (other_seed, "the seed must be the same"),
        (empty_shard, "process 1 of 2: RowBlocks: at least one row was expected"),
        (other_width, "those of process 0 are .4,. numbers of float64, those of process 1 .3,."),
        (wrong_entry, "process 1 of 2: data: .*infinity"),
        (empty_row, "process 1 of 2: data: row 300 holds no counts at all"),
        (failing_disk, "process 1 of 2: the disk is gone"),
    ],
)
def test_an_error_in_one_process_ends_all_with_its_words(
    work: Work, words: str, tmp_path: Path
) -> None:
    for found in run(2, work, tmp_path):
        assert isinstance(found, str)
        with pytest.raises(ValueError, match=words):
            raise ValueError(found)


class Killed(Failing):
    """Rows whose process is killed, kill -9, while they are read."""

    def __getitem__(self, index: slice) -> np.ndarray:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), 9)
        return tables()["numbers"][index]


def resumed(group: Any, rank: int, kind: type[Failing], path: Path | None) -> Any:
    found = fit(
        MODEL,
        RowBlocks.of(kind(rank == 1), 100, group),
        EM(max_iterations=12, acceleration=None),
        init="random",
        checkpoint=path,
    )
    return {name: value.numpy() for name, value in found.params.items()}


def test_after_a_killed_process_all_end_and_the_fit_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "fit.ckpt"

    def killed(group: Any, rank: int) -> Any:
        return resumed(group, rank, Killed, path)

    def again(group: Any, rank: int) -> Any:
        return resumed(group, rank, Whole, path)

    def untouched(group: Any, rank: int) -> Any:
        return resumed(group, rank, Whole, None)

    (words,) = run(2, killed, tmp_path, answers=1)
    assert words.startswith("LostProcessError: process 0 of 2 lost another process")
    assert path.is_file()
    first, second = run(2, again, tmp_path)
    whole = run(2, untouched, tmp_path)[0]
    for name, value in whole.items():
        assert np.array_equal(first[name], value), name
        assert np.array_equal(second[name], value), name


class Whole(Failing):
    """The same rows, which can be read as often as one likes."""

    def __init__(self, fails: bool) -> None:
        super().__init__(False)


def factorized(group: Any, rank: int, path: Path | None, stops: int | None = None) -> Any:
    """A factorization whose process 1 is stopped after so many iterations, or runs to the end."""
    original, calls = Course.advance, []

    def advance(self: Course, *args: Any) -> float:
        calls.append(1)
        if len(calls) == stops and rank == 1:
            os.kill(os.getpid(), 9)
        return original(self, *args)

    Course.advance = advance  # type: ignore[method-assign]
    factorize.CHECKPOINT_EVERY = 2  # the tenth iteration would gain nothing
    blocks = RowBlocks.of(tables()["amounts"], 70, group, split=True)
    found = fit(
        NegativeBinomialFactorization(5, 2),
        blocks,
        Factorize(tolerance=1e-300, max_sweeps=90),
        "random",
        checkpoint=path,
    )
    return len(calls), {name: value.numpy() for name, value in (found.params | found.local).items()}


@pytest.mark.filterwarnings("ignore:the best restart did not converge")
def test_activities_are_kept_where_their_rows_are(tmp_path: Path) -> None:
    """Each process goes on from the activities that it wrote itself, to the same bits; other
    processes than those that wrote are refused.
    """
    path = tmp_path / "fit.ckpt"

    def factorized_killed(group: Any, rank: int) -> Any:
        return factorized(group, rank, path, 5)

    def factorized_again(group: Any, rank: int) -> Any:
        return factorized(group, rank, path)

    def factorized_whole(group: Any, rank: int) -> Any:
        return factorized(group, rank, None)

    def factorized_by_one(group: Any, rank: int) -> Any:
        return factorized(group, rank, path)

    (words,) = run(2, factorized_killed, tmp_path, answers=1)
    assert words.startswith("LostProcessError")
    (words,) = run(1, factorized_by_one, tmp_path)
    assert "goes on in as many processes as wrote it" in words
    again, whole = run(2, factorized_again, tmp_path), run(2, factorized_whole, tmp_path)
    for (calls, found), (all_calls, wanted) in zip(again, whole, strict=True):
        assert (calls, all_calls) == (2, 6)
        for name, value in wanted.items():
            assert np.array_equal(found[name], value), name
    assert sum(len(found["activities"]) for _, found in whole) == NUM_ROWS
