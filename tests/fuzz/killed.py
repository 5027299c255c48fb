"""``python -m fuzz.killed``: fits that are killed (signal 9) and called again, against the same
fits left alone, bit for bit.

A process of its own is killed at a random moment: after a random time, at a random iteration, or at
a write of its checkpoint, with half of the new file on disk, or just before or after it takes the
place of the old one. Then the fit is called again; up to three times it is killed. One line an
engine: how many fits, how many kills, how many of the calls after a kill found a checkpoint, and
what differed.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

import numpy as np  # noqa: E402  (after the number of threads)
import torch  # noqa: E402
from fuzz import programs  # noqa: E402
from fuzz.oracle import same  # noqa: E402

from inference import (  # noqa: E402
    EM,
    NUTS,
    SAEM,
    SVI,
    AlternatingMinimization,
    Bootstrap,
    ChoosePenalty,
    Factorize,
    Fit,
    FullRank,
    GradientAlternation,
    GrowAndPrune,
    Laplace,
    ScoreFunctionSVI,
    TrainClassifiers,
    fit,
)
from inference.base.checkpoint import Checkpoint  # noqa: E402
from inference.base.progress import NoProgress  # noqa: E402
from ppl_models import (  # noqa: E402
    ContinuousOptionsHMM,
    DeepDiscreteEncoder,
    DeepNoisyOr,
    Dense,
    GaussianFactorization,
    InClassNet,
    Mixture,
    NegativeBinomialFactorization,
    NoisyOr,
    OptionsHMM,
    PoissonFactorization,
    SparseCoding,
    TruncatedLasso,
    UsageFactorization,
)
from ppl_models.datasets import options_chain, sample_noisy_or, simulate_options  # noqa: E402
from ppl_models.datasets.noisy_or import uniform_design  # noqa: E402

MOST_KILLS = 3  # of one fit


@dataclass(frozen=True)
class Job:
    """A call of ``fit``: the arguments before ``checkpoint``."""

    model: Any
    data: Any
    method: Any
    settings: dict[str, Any]


def bits(rows: int, items: int, seed: int = 0) -> np.ndarray:
    """Answers of two groups of items that go together."""
    rng = np.random.default_rng(seed)
    latent = rng.random((rows, 2)) < 0.5
    return (
        rng.random((rows, items)) < np.where(latent[:, np.arange(items) % 2], 0.8, 0.25)
    ).astype(float)


def counts(rows: int, items: int, parts: int) -> np.ndarray:
    rng = np.random.default_rng(2)
    table = rng.poisson(
        (rng.gamma(1.0, 40.0, (rows, parts)) + 1) @ rng.dirichlet(np.full(items, 0.3), parts)
    ).astype(float)
    table[:, 0] += 1
    return table


def normals(rows: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.standard_normal((rows, 3)) + rng.integers(0, 3, (rows, 1)) * 1.5


@functools.cache
def actions() -> dict[str, Any]:
    return simulate_options(options_chain(), 12, 30, 1).data


def features() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    return {"state": rng.standard_normal((10, 15, 2)), "action": rng.integers(0, 2, (10, 15))}


def jobs() -> dict[str, Callable[[], Job]]:
    """Every engine that keeps a checkpoint, with its variants; by name."""
    tight = EM(tolerance=1e-12, parameter_tolerance=1e-10, max_iterations=400)
    random_start: dict[str, Any] = {"init": "random", "num_restarts": 2}
    encoder = DeepDiscreteEncoder(8, (2,))
    return {
        "EM": lambda: Job(encoder, bits(200, 8), tight, random_start),
        "EM-penalised": lambda: Job(
            DeepDiscreteEncoder(10, (3, 1), penalty=TruncatedLasso(3.0, 0.5)),
            bits(150, 10),
            tight,
            random_start,
        ),
        "ChoosePenalty": lambda: Job(
            encoder,
            bits(100, 8),
            ChoosePenalty(EM(max_iterations=100), max_rounds=2),
            {"num_restarts": 2},
        ),
        "EM-generic": lambda: Job(
            encoder, bits(20, 8), EM(accelerate=False, max_iterations=25), {"init": "random"}
        ),
        "EM-program": lambda: Job(
            programs.counts,
            torch.from_numpy(counts(60, 1, 2)[:, 0]),
            EM(tolerance=1e-14, parameter_tolerance=1e-12, max_iterations=30),
            {"num_restarts": 2},
        ),
        "EM-mixture": lambda: Job(Mixture(3, num_items=3), normals(120), tight, random_start),
        "search": lambda: Job(Mixture(3, num_items=3), normals(120), None, {}),
        "EM-options": lambda: Job(
            OptionsHMM(4, 2, 2), actions(), EM(max_iterations=80), random_start
        ),
        "EM-features": lambda: Job(
            ContinuousOptionsHMM(2, 2, 2), features(), EM(max_iterations=60), random_start
        ),
        "EM-deep-noisy-or": lambda: Job(
            DeepNoisyOr(4, (2, 1)), bits(30, 4), EM(max_iterations=25), {"init": "random"}
        ),
        "SAEM": lambda: Job(
            encoder, bits(150, 8), SAEM(max_iterations=120, tolerance=1e-9), random_start
        ),
        "SAEM-batches": lambda: Job(
            DeepDiscreteEncoder(8, (3, 1), penalty=TruncatedLasso(3.0, 0.5)),
            bits(150, 8),
            SAEM(max_iterations=100, tolerance=1e-9, batch_rows=40, num_draws=2),
            random_start,
        ),
        "SAEM-usage": lambda: Job(
            UsageFactorization(6, 2),
            counts(60, 6, 2),
            SAEM(max_iterations=60, tolerance=1e-9),
            random_start,
        ),
        "SVI": lambda: Job(
            encoder,
            bits(100, 8),
            SVI(num_steps=50, num_draws=10, num_particles=2, warm_start=EM(max_iterations=5)),
            {},
        ),
        "SVI-batches": lambda: Job(
            encoder,
            bits(100, 8),
            SVI(
                FullRank(),
                num_steps=50,
                num_draws=10,
                num_particles=1,
                batch_size=30,
                warm_start=None,
            ),
            {},
        ),
        "NUTS": lambda: Job(
            Mixture(2, num_items=3),
            normals(60),
            NUTS(num_chains=3, warmup_steps=30, num_samples=20, max_depth=3),
            {},
        ),
        "NUTS-no-optimum": lambda: Job(
            encoder,
            bits(40, 8),
            NUTS(num_chains=2, warmup_steps=60, num_samples=20, max_depth=3, warm_start=None),
            {},
        ),
        "Laplace": lambda: Job(
            encoder, bits(100, 8), Laplace(num_draws=30, optimum=tight), random_start
        ),
        "Bootstrap": lambda: Job(
            Mixture(2, num_items=3), normals(60), Bootstrap(EM(max_iterations=40), 30), {}
        ),
        "Bootstrap-batched": lambda: Job(
            DeepDiscreteEncoder(8, (2,), bound=4.0),
            bits(3000, 8),
            Bootstrap(EM(max_iterations=10), 200),
            {},
        ),
        "Factorize": lambda: Job(
            PoissonFactorization(8, 3),
            counts(60, 8, 3),
            Factorize(tolerance=1e-13, race=False, max_sweeps=20000),
            {"num_restarts": 4},
        ),
        "Factorize-dispersed": lambda: Job(
            NegativeBinomialFactorization(8, 2),
            counts(40, 8, 2),
            Factorize(tolerance=1e-12, max_sweeps=6000),
            {"num_restarts": 4},
        ),
        "Factorize-normal": lambda: Job(
            GaussianFactorization(8, 3, nonnegative=True),
            counts(60, 8, 3),
            Factorize(tolerance=1e-14, race=False, max_sweeps=5000),
            {"num_restarts": 3},
        ),
        "TrainClassifiers": lambda: Job(
            InClassNet((1, 2), 2, Dense((6,)), weights="free"),
            normals(400),
            TrainClassifiers(batch_size=40, max_epochs=40, patience=4),
            {"num_restarts": 2},
        ),
        "TrainClassifiers-full": lambda: Job(
            InClassNet((1, 1, 1), 2, Dense((4,))),
            normals(200),
            TrainClassifiers(batch_size=None, max_epochs=30, patience=None),
            {"init": "random"},
        ),
        "GrowAndPrune": lambda: Job(
            NoisyOr(16, 3),
            sample_noisy_or(uniform_design(1, 3, 16), 300, 1)[0],
            GrowAndPrune(num_proposals=6, num_configurations=64, max_iterations=20),
            {"init": "random", "num_restarts": 2},
        ),
        "ScoreFunctionSVI": lambda: Job(
            NoisyOr(8, 2), bits(200, 8), ScoreFunctionSVI(num_epochs=60), random_start
        ),
        "AlternatingMinimization": lambda: Job(
            SparseCoding(8, 10, 2),
            counts(80, 8, 3),
            AlternatingMinimization(tolerance=1e-14),
            {"num_restarts": 4},
        ),
        "GradientAlternation": lambda: Job(
            SparseCoding(8, 4, 2),
            counts(60, 8, 3) / 40,
            GradientAlternation(num_epochs=150),
            {"num_restarts": 3},
        ),
    }


# ---------------------------------------------------------------- one process


def alone(
    job: Job,
    folder: Path,
    checkpoint: Path | None = None,
    every: int = 20,
    plan: Callable[[], None] | None = None,
    seconds: float | None = None,
) -> bool:
    """The fit in a process of its own, killed by the plan or after some seconds; whether it came to
    its end.
    """
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            Checkpoint.__init__.__defaults__ = (every,)
            if plan is not None:
                plan()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit(job.model, job.data, job.method, checkpoint=checkpoint, **job.settings).save(
                    folder
                )
            os._exit(0)
        except BaseException:  # noqa: BLE001  (the child must not go on as the parent)
            import traceback

            traceback.print_exc()
            os._exit(1)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    if os.WEXITSTATUS(status):
        raise RuntimeError("the fit failed; see above")
    return True


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_update(number: int) -> Callable[[], None]:
    """Die at the end of some iteration."""

    def plan() -> None:
        left, original = [number], NoProgress.update

        def update(self: NoProgress, *arguments: Any, **named: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                die()
            original(self, *arguments, **named)

        NoProgress.update = update  # type: ignore[method-assign]

    return plan


def at_write(number: int, moment: str) -> Callable[[], None]:
    """Die when the file of some write is about to take its place: before, with half of it there, or
    after.
    """

    def plan() -> None:
        left, original = [number], Path.replace

        def replace(self: Path, target: Any) -> Any:
            left[0] -= 1
            if left[0] > 0:
                return original(self, target)
            if moment == "half":
                content = self.read_bytes()
                self.write_bytes(content[: len(content) // 2])
            elif moment == "after":
                original(self, target)
            die()
            return None

        Path.replace = replace  # type: ignore[method-assign]

    return plan


def killed(
    name: str, job: Job, seed: int, whole: Fit, seconds: float, updates: int, folder: Path
) -> tuple[int, int, str | None]:
    """A fit that is killed and called again: kills, calls that found a checkpoint, and what differs
    from the whole.
    """
    draw = random.Random(f"{name} {seed}")
    file, out = folder / f"{seed}.running", folder / f"{seed}.fit"
    kills = resumed = 0
    while True:
        resumed += file.exists()
        plan, after, every = None, None, draw.choice((20, 20, 3))
        if kills < draw.randint(1, MOST_KILLS):
            what = draw.choice(("time", "update", "write"))
            if what == "time":
                after = draw.uniform(0.05, 1.0) * seconds
            elif what == "update":
                plan = at_update(draw.randint(1, max(1, updates)))
            else:
                plan = at_write(
                    draw.randint(1, max(1, updates // every)),
                    draw.choice(("before", "half", "after")),
                )
        if alone(job, out, file, every, plan, after):
            break
        kills += 1
    return kills, resumed, same(whole, load(out, job))


def load(folder: Path, job: Job) -> Fit:
    return Fit.load(
        folder,
        model=job.model if callable(job.model) and not hasattr(job.model, "check_data") else None,
    )


def attack(name: str, times: int, first: int, say: Callable[[str], Any]) -> bool:
    """One engine, killed in so many fits; whether all came to the answer of the whole."""
    job = jobs()[name]()
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        began = time.monotonic()
        alone(job, folder / "whole")
        seconds = time.monotonic() - began
        whole = load(folder / "whole", job)
        updates = max(
            whole.num_iterations,
            (
                getattr(job.method, "max_iterations", 1)
                if isinstance(job.method, NUTS | SVI | Bootstrap)
                else 1
            ),
        )
        kills = resumed = equal = 0
        for seed in range(first, first + times):
            more, found, difference = killed(name, job, seed, whole, seconds, updates, folder)
            kills, resumed, equal = kills + more, resumed + found, equal + (difference is None)
            if difference is not None:
                say(
                    f"{name}: {difference}; again: python -m fuzz.killed --engine {name} --first"
                    f" {seed} --times 1\n"
                )
    say(
        f"{name}: {times} fits, {kills} kills, {resumed} calls from a checkpoint, {equal} equal to"
        f" the uninterrupted answer ({seconds:.1f} s, {updates} iterations)\n"
    )
    return equal == times


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.killed", description=__doc__)
    parser.add_argument("--times", type=int, default=15, help="fits an engine")
    parser.add_argument("--first", type=int, default=0, help="seed of the first of them")
    parser.add_argument("--engine", nargs="*", default=None, help="names; all if left out")
    given = parser.parse_args()
    torch.set_num_threads(1)
    good = True
    for name in given.engine or list(jobs()):
        try:
            good &= attack(name, given.times, given.first, sys.stdout.write)
        except (RuntimeError, ValueError, OSError) as error:
            sys.stdout.write(f"{name}: failed: {error}\n")
            good = False
        sys.stdout.flush()
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
