"""How many components conditionally independent variates show: the rank of their joint tables.

Designs are drawn anew for every seed: one component, the examples of independent classifiers, and
mixtures of gammas, of Student t, of yes-no answers, of rings in the plane and of a count, a
measurement and an answer. One JSON line a design and number of rows: shares of tables whose limit
(95 %) is the number of components, above it and below, standard errors of the first two, and
seconds of a table. ``inclass_components.py`` has the rule of one standard error beside, which
trains networks for every number.
Run: ``python benchmarks/joint_rank.py [--replicates 40] [--rows 20000 100000]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from _bench import Lines, command_line, run, seeds

from inference.selection import joint_rank
from ppl_models.datasets import (
    image_pairs,
    simulate_checkerboard,
    simulate_trivariate,
    simulate_two_gaussians,
)

Design = tuple[int, Callable[[int, int], Any]]


def _classes(rng: np.random.Generator, size: int, num_rows: int) -> np.ndarray:
    return rng.choice(size, size=num_rows, p=rng.dirichlet(np.full(size, 10.0)))


def independent(num_rows: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_t(3, size=(num_rows, 4))


def gammas(num_rows: int, seed: int) -> Any:
    """Three components, four variates, shapes uniform between .5 and 8."""
    rng = np.random.default_rng(seed)
    shapes = rng.uniform(0.5, 8, (3, 4))
    return rng.gamma(shapes[_classes(rng, 3, num_rows)])


def student(num_rows: int, seed: int) -> Any:
    """Five components, three variates of five degrees of freedom, centres of deviation three."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 3, (5, 3))
    return centres[_classes(rng, 5, num_rows)] + rng.standard_t(5, (num_rows, 3))


def answers(num_rows: int, seed: int) -> Any:
    """Four components, eight yes-no answers, their chances uniform."""
    rng = np.random.default_rng(seed)
    chances = rng.random((4, 8))
    return (rng.random((num_rows, 8)) < chances[_classes(rng, 4, num_rows)]).astype(float)


def rings(num_rows: int, seed: int) -> Any:
    """Three rings in the plane around one centre, twice."""
    rng = np.random.default_rng(seed)
    radius = np.array([1.0, 2.5, 4.0])[_classes(rng, 3, num_rows)]
    out = []
    for _ in range(2):
        angle = rng.uniform(0, 2 * np.pi, num_rows)
        ring = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
        out.append(ring + 0.4 * rng.standard_normal((num_rows, 2)))
    return out


def mixed(num_rows: int, seed: int) -> Any:
    """Two components: two counts, two measurements and two answers, a tenth of them missing."""
    rng = np.random.default_rng(seed)
    which, rates, centres = _classes(rng, 2, num_rows), rng.uniform(1, 6, (2, 2)), rng.normal(0, 1)
    counts = rng.poisson(rates[which])
    measured = centres * which[:, None] + rng.standard_normal((num_rows, 2))
    yes = rng.random((num_rows, 2)) < rng.random((2, 2))[which]
    rows = np.concatenate([counts, measured, yes], 1).astype(float)
    return np.where(rng.random(rows.shape) < 0.1, np.nan, rows)


def digits(num_rows: int, seed: int) -> Any:
    from sklearn.datasets import load_digits

    images = load_digits()
    return image_pairs(images.images, images.target, num_rows, largest=16.0, seed=seed).variates()


DESIGNS: dict[str, Design] = {
    "independent": (1, independent),
    "two_gaussians": (2, lambda n, seed: simulate_two_gaussians(n, seed).data),
    "checkerboard": (2, lambda n, seed: simulate_checkerboard(n, seed).data),
    "trivariate": (4, lambda n, seed: simulate_trivariate(n, seed).data),
    "digit_pairs": (10, digits),
    "gammas": (3, gammas),
    "student": (5, student),
    "answers": (4, answers),
    "rings": (3, rings),
    "mixed": (2, mixed),
}


def measure(args: argparse.Namespace) -> Lines:
    for num_rows in args.rows:
        for name, (size, simulate) in DESIGNS.items():
            found, began = [], time.process_time()
            for seed in seeds(args):
                found.append(joint_rank(simulate(num_rows, seed)).number)
            numbers = np.array(found)
            right, above = (numbers == size).mean(), (numbers > size).mean()
            yield {
                "design": name,
                "rows": num_rows,
                "components": size,
                "tables": len(numbers),
                "right": float(right),
                "right_error": round(float(np.sqrt(right * (1 - right) / len(numbers))), 4),
                "above": float(above),
                "above_error": round(float(np.sqrt(above * (1 - above) / len(numbers))), 4),
                "below": float((numbers < size).mean()),
                "seconds": round((time.process_time() - began) / len(numbers), 3),
            }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=40, threads=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000, 20_000, 100_000])
    run(parser, measure, argv, {"rows": [500], "replicates": 2})


if __name__ == "__main__":
    main()
