"""EM iterations of programs written by hand beside those of the library's family.

A Gaussian mixture and a hidden Markov model with normal steps, each written as a user would write
it in Pyro, and the same model as a family. Both sides take E- and M-steps at the same parameters in
one process, alternately; ``ratio`` is the median of their processor seconds, an iteration of the
hand-written program over one of the family. ``first_seconds`` is the first iteration of the
program, in which its tensor operations are recorded.

Run: ``python benchmarks/own_programs.py [--num-steps 2000] [--num-rows 5000]``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from _bench import Lines, command_line, run, seeds
from torch import Tensor

from inference import EM
from inference.base.steps import Steps
from inference.fitting.problem import problem_of
from ppl_models import HiddenMarkov, Mixture, Normal

NUM_VALUES = 3


def mixture(data: Tensor) -> None:
    like, nothing = data.new_ones(NUM_VALUES), data.new_zeros(data.shape[1])
    weights = pyro.sample("weights", dist.Dirichlet(like))
    with pyro.plate("components", NUM_VALUES):
        locs = pyro.sample("locs", dist.Normal(nothing, 100.0).to_event(1))
        scales = pyro.sample("scales", dist.LogNormal(nothing, 3.0).to_event(1))
    with pyro.plate("rows", len(data)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("x", dist.Normal(locs[z], scales[z]).to_event(1), obs=data)


def chain(data: Tensor) -> None:
    like = data.new_ones(NUM_VALUES)
    initial = pyro.sample("initial", dist.Dirichlet(like))
    with pyro.plate("states", NUM_VALUES):
        transition = pyro.sample("transition", dist.Dirichlet(like))
        locs = pyro.sample("locs", dist.Normal(0.0, 100.0))
        scales = pyro.sample("scales", dist.LogNormal(0.0, 3.0))
    z: Any = 0
    for t in pyro.markov(range(len(data))):
        probs = initial if t == 0 else transition[z]
        z = pyro.sample(f"z_{t}", dist.Categorical(probs), infer={"enumerate": "parallel"})
        pyro.sample(f"x_{t}", dist.Normal(locs[z], scales[z]), obs=data[t])


def seconds_of(steps: Steps[Any], params: dict[str, Tensor]) -> float:
    began = time.process_time()
    steps.m_step(steps.e_step(params).statistics, params)
    return time.process_time() - began


def compared(
    program: Callable[[Tensor], None], data: Tensor, family: Any, table: Any, repeats: int
) -> dict[str, Any]:
    """Seconds of iterations of both sides, by turns."""
    sides = []
    for model, rows in ((program, data), (family, table)):
        problem = problem_of(model, rows, 0)
        params = problem.program().draw_prior(1, 0)
        if model is program:
            params |= {
                "locs": torch.linspace(-3, 3, NUM_VALUES)
                .to(data)
                .reshape(1, -1, *[1] * (data.dim() - 1))
                .expand(1, NUM_VALUES, *data.shape[1:])
                .clone(),
                "scales": torch.ones_like(params["scales"]),
            }
        else:
            start = problem.structure.start(problem, "random", 1)
            params = params if start is None else start
        steps = EM(acceleration=None).steps(problem)
        first = seconds_of(steps, params)
        for _ in range(3):
            params = steps.m_step(steps.e_step(params).statistics, params)
        sides.append((steps, params, first))
    seconds: list[list[float]] = [[], []]
    for _ in range(repeats):
        for own, (steps, params, _) in zip(seconds, sides, strict=True):
            own.append(seconds_of(steps, params))
    ratios = [ours / theirs for ours, theirs in zip(*seconds, strict=True)]
    return {
        "program_ms": round(1e3 * statistics.median(seconds[0]), 2),
        "family_ms": round(1e3 * statistics.median(seconds[1]), 2),
        "ratio": round(statistics.median(ratios), 2),
        "first_seconds": round(sides[0][2], 2),
    }


def measure(args: argparse.Namespace) -> Lines:
    for seed in seeds(args):
        generator = np.random.default_rng(seed)
        centres = np.array([-3.0, 0.0, 4.0])
        rows = centres[generator.integers(3, size=args.num_rows), None]
        rows = torch.from_numpy(rows + generator.standard_normal((args.num_rows, 4)))
        yield {"model": "mixture", "rows": args.num_rows, "seed": seed} | compared(
            mixture, rows, Mixture(NUM_VALUES, Normal(), 4), rows, args.repeats
        )
        states = [0]
        for stays in generator.random(args.num_steps - 1) < 0.9:
            states.append(states[-1] if stays else int(generator.integers(3)))
        path = torch.from_numpy(centres[states] + generator.standard_normal(args.num_steps))
        yield {"model": "chain", "steps": args.num_steps, "seed": seed} | compared(
            chain, path, HiddenMarkov(NUM_VALUES, Normal(), 1), path[None, :, None], args.repeats
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=1, threads=1)
    parser.add_argument("--num-rows", type=int, default=5000)
    parser.add_argument("--num-steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=15)
    run(parser, measure, argv, {"num_rows": 300, "num_steps": 60, "repeats": 3})


if __name__ == "__main__":
    main()
