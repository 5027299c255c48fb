"""Seconds of fits on a GPU beside the CPU of the same machine, and the distance of their answers.

Each job is one public call with the same seed and the same number of iterations, once on data that
lie on the CPU and once on data that lie on the GPU; a call of two iterations goes ahead of either
and is not counted. ``distance`` is between the two objectives, as a share of their size: starts and
steps are the same, and rounding parts them, which may also decide whether EM keeps an extrapolated
step; SAEM draws other random numbers on each. Where there is no GPU a line says so.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from _bench import Lines, command_line, run
from torch import Tensor

from inference import EM, SAEM, Factorize, fit
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    FactorAnalysis,
    HiddenMarkov,
    Mixture,
    MultivariateNormal,
    NoisyOr,
    Normal,
    PoissonFactorization,
)

Engine = Callable[[int], EM | SAEM | Factorize]


def iterations(number: int) -> EM:
    """EM of as many iterations, none of them before penalties count."""
    return EM(max_iterations=number, tolerance=1e-300, num_relaxed=0)


def sweeps(number: int) -> SAEM:
    """SAEM of as many iterations."""
    return SAEM(max_iterations=number, num_burn_in=1, num_relaxed=0, window=number)


def factorize(number: int) -> Factorize:
    """Updates of a factorization in as many sweeps."""
    return Factorize(max_sweeps=number, tolerance=1e-300)


def jobs(share: float) -> Iterator[tuple[str, Any, Engine, Tensor]]:
    """Name, model, engine and rows; ``share`` of the rows that a job has."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def groups(num: int, width: int, k: int) -> Tensor:
        num = int(num * share)
        group = torch.randint(k, (num,), generator=generator)
        return 2 * normal(k, width)[group] + normal(num, width)

    def answers(num: int, width: int, k: int) -> Tensor:
        num = int(num * share)
        chance = torch.rand(k, width, generator=generator, dtype=torch.float64)
        group = torch.randint(k, (num,), generator=generator)
        return torch.bernoulli(chance[group], generator=generator)

    yield "mixture, 5 normals", Mixture(5, Normal(), 20), iterations, groups(1_000_000, 20, 5)
    full = Mixture(5, MultivariateNormal(), 20)
    yield "mixture, 5 full covariances", full, iterations, groups(200_000, 20, 5)
    classes = Mixture(10, Bernoulli(), 50)
    yield "10 latent classes", classes, iterations, answers(500_000, 50, 10)
    rows, length = int(2_000 * share), 500
    state = torch.randint(5, (rows, length // 10), generator=generator).repeat_interleave(10, 1)
    x = 2 * normal(5, 3)[state] + normal(rows, length, 3)
    yield "hidden Markov model, 5 states", HiddenMarkov(5, Normal(), 3), iterations, x
    x = answers(200_000, 18, 12)
    yield "encoder (6, 2) of 18 items", DeepDiscreteEncoder(18, (6, 2)), iterations, x
    x = answers(20_000, 60, 20)
    encoder = DeepDiscreteEncoder(60, (12, 3))
    yield "encoder (12, 3) of 60 items, SAEM", encoder, sweeps, x
    yield "noisy-OR, 10 causes of 64", NoisyOr(64, 10), iterations, answers(20_000, 64, 10)
    means = torch.rand(int(20_000 * share), 20, generator=generator, dtype=torch.float64).pow(4)
    spread = torch.rand(20, 1_000, generator=generator, dtype=torch.float64).pow(4)
    counts = torch.poisson(means @ spread, generator=generator)
    yield "Poisson factorization, 20", PoissonFactorization(1_000, 20), factorize, counts
    yield (
        "factor analysis, 8",
        FactorAnalysis(100, 8),
        iterations,
        normal(int(200_000 * share), 100),
    )


def seconds_of(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its seconds on the clock."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    out = call()
    torch.cuda.synchronize()
    return out, time.perf_counter() - began


def measure(args: argparse.Namespace) -> Lines:
    """One line a job."""
    if not torch.cuda.is_available():
        yield {"skipped": "there is no GPU"}
        return
    for name, model, engine, x in jobs(args.share):
        if args.only not in name:
            continue
        line: dict[str, Any] = {"job": name, "data": " x ".join(map(str, x.shape))}
        objectives = []
        for where in ("cpu", "cuda"):
            call = partial(fit, model, x.to(where), num_restarts=1, progress=False)
            try:
                call(method=engine(2))
                found, seconds = seconds_of(partial(call, method=engine(args.iterations)))
            except (RuntimeError, TypeError, ValueError) as error:  # the other jobs are measured
                line["failed"] = f"{where}: {type(error).__name__}: {error}"[:200]
                continue
            line[f"{where}_s"] = round(seconds, 3)
            objectives.append(float(found.objective))
        if len(objectives) == 2:
            here, there = objectives
            line["ratio"] = round(line["cpu_s"] / line["cuda_s"], 1)
            line["distance"] = abs(here - there) / abs(here)
        yield line | {"device": torch.cuda.get_device_name()}


def main(argv: Sequence[str] | None = None) -> None:
    """Run with the options of the command line."""
    parser = command_line(__file__, __doc__)
    parser.add_argument("--iterations", type=int, default=20, metavar="N", help="of each fit")
    parser.add_argument("--share", type=float, default=1.0, help="of each job's rows")
    parser.add_argument("--only", default="", metavar="TEXT", help="in the names of the jobs")
    run(parser, measure, argv, quick={"share": 0.001, "iterations": 3})


if __name__ == "__main__":
    main()
