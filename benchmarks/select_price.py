"""What a choice among sizes costs: ``select(model, data, 1..6, criterion="bic")``, beside a plain
fit of every size and scikit-learn's ``GaussianMixture(n_init=10)``.

Designs drawn anew for every seed: full normals 300 x 4 (three, centres two standard deviations
apart on average in each column), yes-no answers 300 x 10 (three classes) and a hidden chain of 300
steps (three states, two columns). One JSON line a measurement: who, the number chosen by BIC, BIC
by size (null where a size was not tried), starts by size, and seconds of the processor and on the
clock; sides of one seed follow each other in one process. Each side has been called once before its
first measurement.
Run: ``python benchmarks/select_price.py [--replicates 5] [--first-seed 100] [--designs chain]``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from _bench import Lines, command_line, run, seeds, timed
from sklearn.mixture import GaussianMixture

from inference import fit
from inference.selection import select_dimension
from ppl_models import Bernoulli, HiddenMarkov, Mixture, MultivariateNormal, Normal

Design = tuple[Callable[[np.random.Generator], np.ndarray], Callable[[int], Any]]


def groups(rng: np.random.Generator) -> np.ndarray:
    """Rows of three full normals in four columns."""
    centres, z = rng.normal(0, 2, (3, 4)), rng.integers(3, size=300)
    factors = [np.linalg.cholesky(np.cov(rng.standard_normal((4, 12)))) for _ in range(3)]
    return np.stack([centres[k] + factors[k] @ rng.standard_normal(4) for k in z])


def answers(rng: np.random.Generator) -> np.ndarray:
    """Ten yes-no answers of three classes, their chances uniform."""
    chances = rng.random((3, 10))
    return (rng.random((300, 10)) < chances[rng.integers(3, size=300)]).astype(float)


def chain(rng: np.random.Generator) -> np.ndarray:
    """One sequence of three states, each left one step in ten."""
    centres, state, rows = rng.normal(0, 2, (3, 2)), 0, []
    for _ in range(300):
        if rng.random() < 0.1:
            state = (state + rng.integers(1, 3)) % 3
        rows.append(centres[state] + rng.standard_normal(2))
    return np.array(rows)


DESIGNS: dict[str, Design] = {
    "full normals 300 x 4": (groups, lambda k: Mixture(k, MultivariateNormal(), 4)),
    "yes-no 300 x 10": (answers, lambda k: Mixture(k, Bernoulli(), 10)),
    "chain": (chain, lambda k: HiddenMarkov(k, Normal(), 2)),
}


def selected(model: Callable[[int], Any], x: np.ndarray, sizes: range) -> dict[str, Any]:
    found = select_dimension(model, x, sizes, "bic")
    starts = [int(value) for value in found.columns["starts"] if not math.isnan(value)]
    return {"bic": found.columns["bic"], "starts": starts}


def fitted(model: Callable[[int], Any], x: np.ndarray, sizes: range) -> dict[str, Any]:
    fits = [fit(model(k), x) for k in sizes]
    return {"bic": [one.bic for one in fits], "starts": [one.restarts.num_tried for one in fits]}


def of_peer(model: Callable[[int], Any], x: np.ndarray, sizes: range) -> dict[str, Any]:
    fits = [GaussianMixture(k, n_init=10, random_state=0).fit(x) for k in sizes]
    return {"bic": [one.bic(x) for one in fits], "starts": [10 for _ in sizes]}


SIDES = {"select": selected, "every size fitted": fitted, "scikit-learn": of_peer}


def measure(args: argparse.Namespace) -> Lines:
    if args.designs and set(args.designs) - set(DESIGNS):
        raise SystemExit(f"--designs: some of {list(DESIGNS)} were expected, got {args.designs}")
    sizes = range(1, args.largest + 1)
    for name, (draw, model) in DESIGNS.items():
        if args.designs and name not in args.designs:
            continue
        sides = {
            who: side
            for who, side in SIDES.items()
            if who != "scikit-learn" or draw is groups  # which fits normals alone
        }
        for side in sides.values():
            side(model, draw(np.random.default_rng(0))[:100], range(1, 3))
        for seed in seeds(args):
            x = draw(np.random.default_rng(seed))
            yield from lines(name, seed, x, model, sizes, sides)


def lines(
    name: str,
    seed: int,
    x: np.ndarray,
    model: Callable[[int], Any],
    sizes: range,
    sides: dict[str, Callable[..., dict[str, Any]]],
) -> Iterator[dict[str, Any]]:
    for who, side in sides.items():
        found, seconds = timed(lambda: side(model, x, sizes))  # noqa: B023
        bic = [None if math.isnan(value) else round(value, 2) for value in found["bic"]]
        chosen = sizes[int(np.nanargmin(found["bic"]))]
        yield {
            "design": name,
            "seed": seed,
            "who": who,
            "chosen": chosen,
            "bic": bic,
            "starts": found["starts"],
            **seconds,
        }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=5, threads=1)
    parser.set_defaults(first_seed=100)
    parser.add_argument("--designs", nargs="+", metavar="NAME", help="these alone")
    parser.add_argument("--largest", type=int, default=6, metavar="K", help="of the sizes from 1")
    run(
        parser,
        measure,
        argv,
        quick={"replicates": 1, "largest": 3, "designs": ["full normals 300 x 4"]},
    )


if __name__ == "__main__":
    main()
