"""One thread of torch or two, on quiet cores and beside a busy neighbour.

``fit(model, x)`` of mixtures, latent classes and hidden Markov models of many sizes, by turns with
one thread, with two, and as the library chooses by itself where two are allowed
(:func:`inference.programs.global_state.threads_for`). ``numbers`` are entries of the data times
values of the latents. Seconds are those of the clock, since threads that wait for each other do so
busily; each is the median of ``--repeats``. ``--busy N`` keeps N processes beside it counting.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
from _bench import Lines, command_line, run
from peers import answers, chains, mixture_rows

from inference import EM, fit
from inference.fitting.problem import problem_of
from inference.programs import global_state
from ppl_models import Bernoulli, HiddenMarkov, Mixture, MultivariateNormal, Normal

COUNTING = "while True: pass"


def jobs(most_rows: int) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Name, model and rows, small to large."""
    for num, width in ((300, 4), (3_000, 4), (10_000, 10), (100_000, 10)):
        if num <= most_rows:
            model = Mixture(3, MultivariateNormal(), width)
            yield f"3 full normals, {num} x {width}", model, mixture_rows(num, width, 3, 1)
    for num, width, k in ((300, 8, 3), (10_000, 20, 5), (100_000, 10, 3)):
        if num <= most_rows:
            model = Mixture(k, Bernoulli(), width)
            yield f"{k} latent classes, {num} x {width}", model, answers(num, width, k, 1)
    for num, length in ((10, 50), (100, 1_000)):
        if num * length <= most_rows:
            states, rng = chains(num, length, 1)
            x = 2 * rng.normal(size=(3, 2))[states] + rng.normal(size=(num, length, 2))
            yield f"hidden Markov model, {num} x {length} x 2", HiddenMarkov(3, Normal(), 2), x


def measure(args: argparse.Namespace) -> Lines:
    """One line a job."""
    fit(Mixture(2, Normal(), 2), np.random.default_rng(0).normal(size=(40, 2)), EM())
    neighbours = [subprocess.Popen([sys.executable, "-c", COUNTING]) for _ in range(args.busy)]
    try:
        for name, model, x in jobs(args.most_rows):
            seconds: dict[str, list[float]] = {"one": [], "two": [], "chosen": []}
            for _ in range(args.repeats):
                for way, taken in seconds.items():
                    torch.set_num_threads(1 if way == "one" else 2)
                    least = global_state.ONE_THREAD if way == "chosen" else -1
                    with mock.patch.object(global_state, "ONE_THREAD", least):
                        began = time.perf_counter()
                        fit(model, x)
                        taken.append(time.perf_counter() - began)
            yield {
                "job": name,
                "numbers": int(problem_of(model, x, 0).numbers),
                "busy": args.busy,
                **{way: round(float(np.median(taken)), 3) for way, taken in seconds.items()},
            }
    finally:
        for neighbour in neighbours:
            neighbour.terminate()


def main(argv: Sequence[str] | None = None) -> None:
    """Run with the options of the command line."""
    parser = command_line(__file__, __doc__, threads=2)
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="neighbours that count")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each fit")
    parser.add_argument("--most-rows", type=int, default=100_000, metavar="N", help="of a job")
    run(parser, measure, argv, quick={"repeats": 1, "most_rows": 500})


if __name__ == "__main__":
    main()
