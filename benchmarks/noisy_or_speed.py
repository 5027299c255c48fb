"""Restarts a minute of exact EM for noisy-OR networks on IMG, batched against one at a time.

One JSON line a measurement: ``--iterations`` EM iterations from random starts on ``--rows`` simulated rows of IMG, R starts
as one batch and as R calls, in one process. The generic route is not timed: it takes minutes an iteration at these sizes.
Run: ``python benchmarks/noisy_or_speed.py [--quick]``.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from inference import EM
from inference.fit import Problem
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=9000)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--restarts", type=int, default=4)
    args = parser.parse_args()
    rows, iterations = (500, 5) if args.quick else (args.rows, args.iterations)
    data = sample_noisy_or(image_design(), rows, seed=0)[0]
    for size in (4, 8) if args.quick else (4, 6, 8):
        problem = Problem.check(NoisyOr(64, size), data, 0)
        batch = seconds(problem, args.restarts, iterations)
        single = sum(seconds(problem, 1, iterations) for _ in range(args.restarts))
        line = {"latents": size, "rows": rows, "iterations": iterations, "restarts": args.restarts}
        line |= {"batched_seconds": round(batch, 2), "one_at_a_time_seconds": round(single, 2)}
        line |= {"restarts_a_minute": round(60 * args.restarts / batch, 1), "threads": torch.get_num_threads()}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
