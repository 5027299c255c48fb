"""Lower confidence limits for the number of components: how often they exceed the truth, and how
often they reach it.

Parts: level (of ``at_least`` from the fits of the true number and one more, so that only the test
at the truth is made, which bounds the share of limits above the truth), limit (the whole sequence
from one component up), wrong (the whole sequence where the distribution is wrong: two skewed groups
seen as normal ones, counts of twice the Poisson variance), breast (the synthetic breast tumours,
which need the folder PPL_MODELS_DATA). Designs: three normals in two columns, 300 rows; two classes
of six bits, 200 rows; ten chains of forty steps with two states; two signatures of twelve channels
in 60 rows of 100 counts; two in 100 rows of 40 counts over 20 channels. One JSON line a design,
kind of evidence and piece of seeds, with standard errors. Run: ``python benchmarks/at_least.py
[--parts level limit wrong breast] [--designs ...] [--replicates 300] [--sets 59]``.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from _bench import Lines, command_line, run, seeds

from inference.selection import at_least, fit_grid
from ppl_models import (
    Bernoulli,
    HiddenMarkov,
    Mixture,
    MultivariateNormal,
    Normal,
    PoissonFactorization,
)
from ppl_models.datasets import load_breast
from ppl_models.datasets.mutational_signatures import SYNTHETIC_BREAST

PARTS = ("level", "limit", "wrong", "breast")
EVIDENCE = ("likelihood", "discrepancy")
Design = tuple[Callable[[int], Any], int, Callable[[np.random.Generator], np.ndarray]]


def normals(rng: np.random.Generator) -> np.ndarray:
    means = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    return means[rng.integers(3, size=300)] + rng.normal(size=(300, 2))


def bits(rng: np.random.Generator) -> np.ndarray:
    chances = np.where(rng.random((200, 1)) < 0.5, 0.75, 0.25)
    return (rng.random((200, 6)) < chances).astype(float)


def chains(rng: np.random.Generator) -> np.ndarray:
    state = np.zeros((10, 40), int)
    state[:, 0] = rng.integers(2, size=10)
    for t in range(1, 40):
        state[:, t] = np.where(rng.random(10) < 0.85, state[:, t - 1], 1 - state[:, t - 1])
    return (2.5 * state + rng.normal(size=state.shape))[..., None]


def skewed(rng: np.random.Generator) -> np.ndarray:
    noise = 0.3 * rng.normal(size=(400, 1)) + np.abs(rng.normal(size=(400, 1)))
    return noise + 6.0 * (rng.random((400, 1)) < 0.5)


def counts(
    rows: int, channels: int, total: float, spread: float = 0.0
) -> Callable[[np.random.Generator], np.ndarray]:
    def table(rng: np.random.Generator) -> np.ndarray:
        signatures = rng.dirichlet(np.full(channels, 0.5), 2)
        mean = rng.gamma(1.0, total / 2, (rows, 2)) @ signatures
        if spread:  # variance (1 + spread) mean
            mean = rng.gamma(np.maximum(mean, 1e-9) / spread, spread)
        drawn = rng.poisson(mean).astype(float)
        return drawn[drawn.sum(1) > 0]

    return table


DESIGNS: dict[str, Design] = {
    "normals": (lambda k: Mixture(k, MultivariateNormal(), 2), 3, normals),
    "classes": (lambda k: Mixture(k, Bernoulli(), 6), 2, bits),
    "chains": (lambda k: HiddenMarkov(k, Normal(), 1), 2, chains),
    "counts": (lambda k: PoissonFactorization(12, k), 2, counts(60, 12, 100.0)),
    "small counts": (lambda k: PoissonFactorization(20, k), 2, counts(100, 20, 40.0)),
}
WRONG: dict[str, Design] = {
    "skewed": (lambda k: Mixture(k, Normal(), 1, variance_floor=0.01), 2, skewed),
    "overdispersed": (lambda k: PoissonFactorization(12, k), 2, counts(60, 12, 100.0, 1.0)),
}
CHANNELS = 96


def limits(part: str, name: str, design: Design, args: argparse.Namespace) -> Lines:
    """One line for each kind of evidence."""
    family, truth, draw = design
    above = 1 if part == "level" else 2
    found: dict[str, list[int]] = {evidence: [] for evidence in EVIDENCE}
    began = time.process_time()
    for seed in seeds(args):
        data = draw(np.random.default_rng(seed))
        numbers = range(truth if part == "level" else 1, truth + above + 1)
        fits = fit_grid(family, data, numbers, args.restarts, seed)
        for evidence in EVIDENCE:
            limit = at_least(
                fits, data, evidence=evidence, num_sets=args.sets, seed=10**7 * (seed + 1)
            )
            found[evidence].append(limit.number)
    for evidence, numbers in found.items():
        share = float(np.mean([number > truth for number in numbers]))
        yield {
            "part": part,
            "design": name,
            "evidence": evidence,
            "truth": truth,
            "first_seed": args.first_seed,
            "tables": len(numbers),
            "sets": args.sets,
            "limits": dict(sorted(Counter(numbers).items())),
            "above_truth": round(share, 4),
            "se": round((share * (1 - share) / len(numbers)) ** 0.5, 4),
            "processor_seconds": round(time.process_time() - began, 1),
        }


def breast(args: argparse.Namespace) -> Lines:
    for name in SYNTHETIC_BREAST:
        table = load_breast(name).counts
        fits = fit_grid(
            lambda k: PoissonFactorization(CHANNELS, k),
            table,
            range(args.smallest, args.largest + 1),
            args.restarts,
        )
        for evidence in EVIDENCE:
            began = time.process_time()
            limit = at_least(fits, table, evidence=evidence, num_sets=args.sets)
            yield {
                "part": "breast",
                "set": name,
                "evidence": evidence,
                "at_least": limit.number,
                "at_end": limit.is_at_end,
                "sets": args.sets,
                "smallest": args.smallest,
                "p_values": {test.at_most: round(test.p_value, 3) for test in limit.tests},
                "p_misfit": {test.at_most: round(test.p_misfit, 3) for test in limit.tests},
                "processor_seconds": round(time.process_time() - began, 1),
            }


def measure(args: argparse.Namespace) -> Lines:
    for part in args.parts:
        if part == "breast":
            yield from breast(args)
            continue
        for name, design in (WRONG if part == "wrong" else DESIGNS).items():
            if not args.designs or name in args.designs:
                yield from limits(part, name, design, args)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=300)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--designs", nargs="+", choices=[*DESIGNS, *WRONG], default=[])
    parser.add_argument("--sets", type=int, default=59, help="tables drawn for a test")
    parser.add_argument("--restarts", type=int, default=3, help="of each fit of the data")
    parser.add_argument("--smallest", type=int, default=5, help="number, of breast tumours")
    parser.add_argument("--largest", type=int, default=13, help="likewise")
    quick = {"parts": ["level"], "designs": ["classes"], "replicates": 1, "sets": 19}
    run(parser, measure, argv, quick)


if __name__ == "__main__":
    main()
