"""Restarts a minute for noisy-OR networks on IMG, batched against one at a time, and seconds of the
recommended fit.

One JSON line a measurement, on simulated rows of IMG. Exact EM: ``--iterations`` iterations from
random starts, R starts as one batch and as R calls, in one process; it stops at 16 latents. The
published algorithm, which has no such limit: updates of 20 rows, R starts as one batch and one
after the other, at 8, 16 and 64 latents, and the restarts a minute that come to at its 450,000
updates a run. The recommended fit: seconds until it ends, and what it found. Exact EM of several
sizes: padded to the largest as one batch, and one batch a size. Run: ``python
benchmarks/noisy_or_speed.py [--quick]`` (some two minutes on a quiet machine).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch
from _bench import Lines, command_line, run
from papers.noisy_or_sizes import fit_sizes

from inference import EM, fit
from inference.base import Problem
from inference.fitting.problem import problem_of
from inference.inspection import recovery
from inference.structures.noisy_or.score_svi import ScoreFunctionRun, ScoreFunctionSVI
from ppl_models import NoisyOr
from ppl_models.datasets import image_design, sample_noisy_or


def seconds(problem: Problem, num_restarts: int, iterations: int) -> float:
    """Wall time of EM iterations, starts and merging of rows included."""
    began = time.perf_counter()
    start = problem.structure.start(problem, "random", num_restarts)
    steps = EM().steps(problem)
    assert start is not None
    for _ in range(iterations):
        start = steps.m_step(steps.e_step(start)[0], start)
    return time.perf_counter() - began


def seconds_an_update(data: torch.Tensor, size: int, num_restarts: int, num_updates: int) -> float:
    """Wall time of one update of 20 rows of the published algorithm, in single precision."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return (2 + 2 * torch.rand(num_restarts, *shape, generator=generator)).sigmoid()

    begin = draw(size), draw(size, 64), 1 - draw(64)
    run = ScoreFunctionRun(
        ScoreFunctionSVI(num_epochs=1), data[: 20 * num_updates].float(), *begin, 0
    )
    run.epoch()  # the first one pays for what is set up
    began = time.perf_counter()
    run.epoch()
    return (time.perf_counter() - began) / -(-len(run.data) // 20)


def measure(args: argparse.Namespace) -> Lines:
    data = sample_noisy_or(image_design(), args.rows, seed=0)[0]
    for size in (8,) if args.quick else (8, 16, 64):
        batch = seconds_an_update(data, size, args.starts, 100)
        single = args.starts * seconds_an_update(data, size, 1, 100)
        line = {"what": "the published algorithm", "latents": size, "restarts": args.starts}
        line |= {
            "batched_milliseconds": round(1e3 * batch, 3),
            "one_at_a_time_milliseconds": round(1e3 * single, 3),
        }
        line |= {"restarts_a_minute_batched": round(60 * args.starts / (450_000 * batch), 3)}
        yield line | {"restarts_a_minute_alone": round(60 * args.starts / (450_000 * single), 3)}
    for limit in (12,) if args.quick else (8, 16, 64):
        result = fit(NoisyOr(64, limit), data, seed=0)
        line = {
            "what": "the recommended fit",
            "limit": limit,
            "rows": args.rows,
            "seconds": round(result.seconds, 2),
        }
        yield line | {"recovered": recovery(result.params, image_design()).num_recovered}
    for size in (4, 8) if args.quick else (4, 6, 8):
        problem = problem_of(NoisyOr(64, size), data, 0)
        batch = seconds(problem, args.restarts, args.iterations)
        single = sum(seconds(problem, 1, args.iterations) for _ in range(args.restarts))
        line = {
            "what": "exact EM",
            "latents": size,
            "rows": args.rows,
            "iterations": args.iterations,
            "restarts": args.restarts,
        }
        line |= {"batched_seconds": round(batch, 2), "one_at_a_time_seconds": round(single, 2)}
        line |= {"restarts_a_minute_batched": round(60 * args.restarts / batch, 1)}
        yield line | {"restarts_a_minute_alone": round(60 * args.restarts / single, 1)}
    sizes = (2, 4) if args.quick else (6, 7, 8)
    method = EM(max_iterations=5 if args.quick else 20)
    together = fit_sizes(lambda m: NoisyOr(64, m), data, sizes, method, args.restarts)
    alone = [
        fit(NoisyOr(64, m), data, method, init="random", num_restarts=args.restarts) for m in sizes
    ]
    line = {
        "what": "exact EM of several sizes",
        "sizes": sizes,
        "rows": args.rows,
        "restarts_each": args.restarts,
    }
    line |= {
        "iterations": method.max_iterations,
        "one_batch_seconds": round(sum(one.seconds for one in together), 2),
    }
    line |= {"a_batch_a_size_seconds": round(sum(one.seconds for one in alone), 2)}
    gap = max(
        abs(one.objective - other.objective) for one, other in zip(together, alone, strict=True)
    )
    yield line | {"largest_difference_of_objectives": gap}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__)
    parser.add_argument("--rows", type=int, default=9000)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--restarts", type=int, default=4, help="of exact EM")
    parser.add_argument("--starts", type=int, default=50, help="of the published algorithm")
    run(parser, measure, argv, {"rows": 500, "iterations": 5})


if __name__ == "__main__":
    main()
