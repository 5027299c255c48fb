"""Hidden semi-Markov models: level and power of the test of geometric durations, recovery of
durations, number of states, and the processor's time of an E-step beside the plain chain's.

Parts: level and power (how often p <= 0.05 over tables of two states whose visits are negative
binomial of size 1, which is geometric, and of other sizes), recovery (estimates of mean durations
and sizes over seeds, and how often intervals hold the truth), number (of states by
``select_components``, plain chains alone and with negative binomial durations as a second
distribution; the truth is two), cost. Run: ``python benchmarks/durations.py [--parts level power
recovery number cost] [--replicates 200]``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds

from inference import fit
from inference.fitting.problem import problem_of
from inference.selection import durations_test, select_components
from inference.uncertainty import standard_errors
from ppl_models import (
    FreeDurations,
    HiddenMarkov,
    NegativeBinomialDurations,
    Normal,
    PoissonDurations,
)
from ppl_models.parts.durations import Durations

MEANS = (12.0, 6.0)  # steps of visits
APART = 2.5  # standard deviations between the states
PARTS = ("level", "power", "recovery", "number", "cost")
SIZES = {"level": (1.0,), "power": (2.0, 4.0, 8.0), "recovery": (4.0,), "number": (20.0,)}


def drawn(seed: int, steps: int, size: float) -> np.ndarray:
    """One sequence (T, 1) of two states whose visits are negative binomial, shifted by one."""
    rng, states, state = np.random.default_rng(seed), list[int](), 0
    while len(states) < steps:
        more = rng.negative_binomial(size, size / (size + MEANS[state] - 1))
        states += [state] * int(1 + more)
        state = 1 - state
    return rng.normal(APART * np.array(states[:steps]))[:, None]


def tested(seed: int, steps: int, size: float, num_sets: int) -> float:
    """The p-value of geometric durations."""
    data = drawn(seed, steps, size)
    plain = fit(HiddenMarkov(2, Normal(), 1), data, num_restarts=2)
    return durations_test(plain, data, num_sets=num_sets, seed=seed).p_value


def rejections(part: str, args: argparse.Namespace) -> Lines:
    for size in SIZES[part]:
        began = time.process_time()
        values = np.array([tested(seed, args.steps, size, args.sets) for seed in seeds(args)])
        yield {
            "part": part,
            "size": size,
            "steps": args.steps,
            "sets": args.sets,
            "tables": len(values),
            "rejected_at_5_%": round(float((values <= 0.05).mean()), 4),
            "rejected_at_10_%": round(float((values <= 0.1).mean()), 4),
            "mean_p": round(float(values.mean()), 3),
            "processor_seconds": round(time.process_time() - began, 1),
        }


def recovery(args: argparse.Namespace) -> Lines:
    (size,) = SIZES["recovery"]
    model = HiddenMarkov(2, Normal(), 1, "uniform", durations=NegativeBinomialDurations())
    found, held = [], []
    for seed in seeds(args):
        data = drawn(seed, args.steps, size)
        result = fit(model, data, num_restarts=1)
        order = result.params["predictors"][:, 0].argsort()
        names = "mean_durations", "duration_sizes"
        found.append([result.params[name][order].tolist() for name in names])
        limits = standard_errors(result, data).intervals(0.95)
        truth = torch.tensor(MEANS), torch.tensor([size, size])
        held.append(
            [
                ((limits[name][0][order] <= value) & (value <= limits[name][1][order])).tolist()
                for name, value in zip(names, truth, strict=True)
            ]
        )
    values = np.array(found)  # (S, 2, K)
    yield {
        "part": "recovery",
        "steps": args.steps,
        "tables": len(values),
        "truth": [list(MEANS), [size, size]],
        "median": np.median(values, 0).round(2).tolist(),
        "tenth_and_ninth_decile": np.quantile(values, (0.1, 0.9), 0).round(2).tolist(),
        "intervals_of_95_%_that_hold": np.array(held).mean(0).round(3).tolist(),
    }


def number(args: argparse.Namespace) -> Lines:
    (size,) = SIZES["number"]
    plain = HiddenMarkov(1, Normal(), 1)
    wider = HiddenMarkov(1, Normal(), 1, durations=NegativeBinomialDurations())
    for name, offered in (("plain", [plain]), ("with durations", [plain, wider])):
        words: Counter[str] = Counter()
        began = time.process_time()
        for seed in seeds(args):
            data = drawn(seed, args.steps, size)
            answer = select_components(
                plain, data, (1, 2, 3), distributions=offered, num_restarts=2, seed=seed
            )
            words[f"{answer.num_components} {answer.status}: {answer.distribution}"] += 1
        yield {
            "part": "number",
            "offered": name,
            "steps": args.steps,
            "tables": args.replicates,
            "answers": dict(words),
            "processor_seconds": round(time.process_time() - began, 1),
        }


def cost(args: argparse.Namespace) -> Lines:
    """E-steps of one restart, the plain chain's and others in turn."""
    for steps in (500, 1000, 2000):
        data = drawn(0, steps, 4.0)
        rivals: dict[str, Durations | None] = {
            "plain": None,
            "negative binomial": NegativeBinomialDurations(),
            "negative binomial, at most 100": NegativeBinomialDurations(100),
            "Poisson": PoissonDurations(),
            "free, at most 100": FreeDurations(100),
        }
        spent: dict[str, list[float]] = {name: [] for name in rivals}
        calls = {}
        for name, durations in rivals.items():
            problem = problem_of(HiddenMarkov(2, Normal(), 1, durations=durations), data, 0)
            start = problem.structure.start(problem, "spectral", 1)
            calls[name] = problem.structure.steps(problem, 2**18, 1), start
        for _ in range(5):
            for name, (own, start) in calls.items():
                began = time.process_time()
                own.e_step(start)
                spent[name].append(time.process_time() - began)
        best = {name: min(values) for name, values in spent.items()}
        yield {
            "part": "cost",
            "steps": steps,
            "milliseconds": {name: round(1000 * value, 1) for name, value in best.items()},
            "times_the_plain_chain": {
                name: round(value / best["plain"], 1) for name, value in best.items()
            },
        }


def measure(args: argparse.Namespace) -> Lines:
    warnings.simplefilter("ignore")
    for part in args.parts:
        if part in ("level", "power"):
            yield from rejections(part, args)
        else:
            yield from {"recovery": recovery, "number": number, "cost": cost}[part](args)


def main(argv: list[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=200, threads=1)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--steps", type=int, default=600, help="of every sequence")
    parser.add_argument(
        "--sets", type=int, default=0, help="data sets of a bootstrap; 0: chi-square"
    )
    run(parser, measure, argv, quick={"replicates": 2, "steps": 150, "parts": ["level", "cost"]})


if __name__ == "__main__":
    main()
