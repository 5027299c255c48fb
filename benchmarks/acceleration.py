"""Extrapolated steps of EM against plain ones: evaluations and seconds until the best known
objective is nearly reached, family by family.

Every family has one simulated table a seed and ``--starts`` random starts as one batch, the same
for both ways. A start's goal is the higher of the two ends that it comes to, if they lie within a
nat of each other; else it climbed another hill, which is counted (``higher`` and ``lower``, seen
from the extrapolated run) and left out of the ratios. One line a family and seed: the median
evaluations of a start until its goal less 1e-3 and 1e-6 nats with each way, the median and the
least of their ratios, and seconds of the processor of the whole batch, each way to its own end.
``fall`` is the largest step down in any course, and must be rounding.

Run: ``python benchmarks/acceleration.py [--families mixture causes ...] [--seeds 10] [--quick]``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds, timed

from inference import EM
from inference.base.progress import NoProgress
from inference.fitting.problem import problem_of
from ppl_models import (
    Bernoulli,
    DeepDiscreteEncoder,
    HiddenMarkov,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    NoisyOr,
    Normal,
    SkewNormal,
    TruncatedLasso,
)


def classes(generator: np.random.Generator, rows: int, columns: int, size: int) -> np.ndarray:
    """0/1 answers of overlapping classes."""
    chance = generator.uniform(0.2, 0.8, (size, columns))[generator.integers(size, size=rows)]
    return (generator.random((rows, columns)) < chance).astype(float)


def clouds(generator: np.random.Generator, rows: int, columns: int, size: int) -> np.ndarray:
    centres = generator.normal(0, 1.5, (size, columns))[generator.integers(size, size=rows)]
    return centres + generator.standard_normal((rows, columns))


def plants(generator: np.random.Generator, rows: int, columns: int, size: int) -> np.ndarray:
    weight = np.where(
        generator.random((size, columns)) < 0.3, generator.uniform(0.5, 3, (size, columns)), 0.0
    )
    return (
        generator.random((rows, columns))
        < 1 - np.exp(-((generator.random((rows, size)) < 0.25) @ weight) - 0.02)
    ).astype(float)


def skills(generator: np.random.Generator, rows: int, q_matrix: np.ndarray) -> np.ndarray:
    has = generator.random((rows, q_matrix.shape[1])) < 0.3 + 0.4 * generator.random((rows, 1))
    chance = 0.2 + 0.6 * (has @ q_matrix.T) / q_matrix.sum(1)
    return (generator.random((rows, len(q_matrix))) < chance).astype(float)


def chains(generator: np.random.Generator, rows: int, length: int) -> np.ndarray:
    states = (generator.random((rows, length)) < 0.15).cumsum(1) % 3
    return np.array([-1.0, 0.0, 1.2])[states][..., None] + generator.standard_normal(
        (rows, length, 2)
    )


Q_MATRIX = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]] * 4)
FAMILIES: dict[str, Callable[[np.random.Generator, int], tuple[Any, np.ndarray]]] = {
    "latent classes": lambda g, n: (Mixture(3, Bernoulli(), 6), classes(g, n, 6, 3)),
    "normals": lambda g, n: (Mixture(3, Normal(), 2), clouds(g, n, 2, 3)),
    "multivariate normals": lambda g, n: (Mixture(3, MultivariateNormal(), 3), clouds(g, n, 3, 3)),
    "skew normals": lambda g, n: (Mixture(2, SkewNormal(), 2), np.exp(0.4 * clouds(g, n, 2, 2))),
    "diagnosis": lambda g, n: (LatentAttributeModel(Q_MATRIX, items="gdm"), skills(g, n, Q_MATRIX)),
    "encoder": lambda g, n: (DeepDiscreteEncoder(12, (3, 1), Bernoulli()), classes(g, n, 12, 4)),
    "penalised encoder": lambda g, n: (
        DeepDiscreteEncoder(12, (3, 1), Normal(), penalty=TruncatedLasso(3.0, 0.4)),
        clouds(g, n, 12, 4),
    ),
    "causes": lambda g, n: (NoisyOr(15, 5), plants(g, n, 15, 5)),
    "hidden Markov": lambda g, n: (HiddenMarkov(3, Normal(), 2), chains(g, max(2, n // 20), 20)),
}


def first_within(history: torch.Tensor, goal: torch.Tensor, within: float) -> torch.Tensor:
    """Evaluations of every start until it is that near its goal."""
    return (history >= goal - within).int().argmax(0) + 1


def measure(args: argparse.Namespace) -> Lines:
    method = EM(
        acceleration="auto",
        max_iterations=args.iterations,
        tolerance=1e-10,
        parameter_tolerance=1e-6,
    )
    for name in args.families:
        for seed in seeds(args):
            model, data = FAMILIES[name](np.random.default_rng(seed), args.rows)
            problem = problem_of(model, data, seed)
            start = problem.structure.start(problem, "random", args.starts)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                plain, plain_seconds = timed(
                    lambda p=problem, s=start: replace(method, acceleration=None).run(
                        p, s, NoProgress(), None
                    )
                )
                ahead, seconds = timed(
                    lambda p=problem, s=start: method.run(p, s, NoProgress(), None)
                )
            difference = ahead.objective - plain.objective
            same = difference.abs() < 1.0
            goal = torch.maximum(ahead.objective, plain.objective)
            line: dict[str, Any] = {
                "family": name,
                "seed": seed,
                "rows": len(data),
                "starts": args.starts,
                "same": int(same.sum()),
                "higher": int((difference >= 1).sum()),
                "lower": int((difference <= -1).sum()),
                "least_difference": round(float(difference[same].min()), 6) if same.any() else None,
                "fall": float((ahead.history[1:] - ahead.history[:-1]).nan_to_num(nan=0.0).min()),
            }
            for within in (1e-3, 1e-6):
                arrived = (
                    same & (plain.objective >= goal - within) & (ahead.objective >= goal - within)
                )
                line[f"arrived_{within:g}"] = int(arrived.sum())
                if arrived.any():
                    steps = [
                        first_within(each.history, goal, within)[arrived].double()
                        for each in (plain, ahead)
                    ]
                    ratio = steps[0] / steps[1]
                    line |= {
                        f"plain_{within:g}": float(steps[0].median()),
                        f"ahead_{within:g}": float(steps[1].median()),
                    }
                    line |= {
                        f"ratio_{within:g}": round(float(ratio.median()), 2),
                        f"least_ratio_{within:g}": round(float(ratio.min()), 2),
                    }
            yield line | {"plain_seconds": plain_seconds, "seconds": seconds}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=10, threads=1)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--rows", type=int, default=500, metavar="N")
    parser.add_argument("--starts", type=int, default=5, metavar="R")
    parser.add_argument(
        "--iterations", type=int, default=10_000, metavar="N", help="at most, of each way"
    )
    run(
        parser,
        measure,
        argv,
        quick={
            "families": ["latent classes"],
            "rows": 60,
            "starts": 2,
            "iterations": 50,
            "replicates": 1,
        },
    )


if __name__ == "__main__":
    main()
