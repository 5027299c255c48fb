r"""Wrong entries of a Q-matrix that validation mends, and right ones that it keeps: the published
ways and ours, on the same answers.

N rows of 0/1 answers to J items on K attributes. Q holds two identity matrices, and items that ask
for one to three attributes at random. Attributes are cut from normal traits with correlation one
half, at thresholds from -.5 to .5. The chance of a right answer is uniform on [.05, .25] without
any of the item's attributes and on [.75, .95] with all; in between, conjunctive items (``dina``)
are as without any, and saturated ones (``gdm``) rise by random shares, a part of the rise (uniform
on [0, .6]) being kept for those who have all. 10 or 20 % of the entries of Q, chosen at random, are
turned; no item and no attribute is left empty. The model is fitted under the wrong Q with the rule
of the items, and validated.

One line a cell and a way: ``mended``, the share of the wrong entries that are right afterwards;
``kept``, the share of the right ones that still are; ``rows``, the share of rows of Q that are
right; ``exact``, the share of replicates whose whole Q is; ``settled``, the share that came to
rest.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from _bench import command_line, run, seeds

from inference import EM, fit
from inference.inspection import (
    ItemBIC,
    LikelihoodRatioSteps,
    VarianceHull,
    VarianceShare,
    WaldSteps,
    validate_q,
)
from ppl_models import LatentAttributeModel

METHOD = EM(tolerance=1e-6, parameter_tolerance=1e-2)
WAYS: dict[str, Any] = {
    "item BIC": ItemBIC(),
    "item BIC, any rule": ItemBIC(own_rule=False),
    "PVAF .95": VarianceShare(),
    "PVAF predicted cutoff": VarianceShare(None),
    "hull": VarianceHull(),
    "Wald .05": WaldSteps(),
    "likelihood ratio .01": LikelihoodRatioSteps(0.01),
}


def true_matrix(generator: np.random.Generator, num_items: int, size: int) -> np.ndarray:
    """Two identity matrices, and items with one to three attributes."""
    eye = np.eye(size, dtype=int)
    rows = [*eye, *eye]
    while len(rows) < num_items:
        rows.append(eye[generator.choice(size, generator.integers(1, 4), replace=False)].sum(0))
    return np.array(rows)


def turned(generator: np.random.Generator, q_matrix: np.ndarray, share: float) -> np.ndarray:
    """The matrix with a share of its entries turned, none of its rows and columns empty."""
    while True:
        wrong = q_matrix.copy()
        places = generator.choice(wrong.size, round(share * wrong.size), replace=False)
        wrong.flat[places] = 1 - wrong.flat[places]
        if wrong.any(0).all() and wrong.any(1).all():
            return wrong


def answers(
    generator: np.random.Generator, q_matrix: np.ndarray, rule: str, num_rows: int
) -> np.ndarray:
    """0/1 answers, (N, J)."""
    num_items, size = q_matrix.shape
    trait = np.sqrt(0.5) * (
        generator.standard_normal((num_rows, 1)) + generator.standard_normal((num_rows, size))
    )
    attributes = (trait > np.linspace(-0.5, 0.5, size)).astype(float)
    low, high = generator.uniform(0.05, 0.25, num_items), generator.uniform(0.75, 0.95, num_items)
    chance = np.empty((num_rows, num_items))
    for j, row in enumerate(q_matrix):
        has = attributes[:, row == 1]
        rise = has.all(1).astype(float)
        if rule == "gdm" and has.shape[1] > 1:
            kept = generator.uniform(0, 0.6)
            rise = (1 - kept) * (
                has @ generator.dirichlet(np.full(has.shape[1], 3.0))
            ) + kept * rise
        chance[:, j] = low[j] + (high[j] - low[j]) * rise
    return (generator.random(chance.shape) < chance).astype(float)


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for rule in args.rules:
        for share in args.shares:
            found: dict[str, list[tuple[float, ...]]] = {way: [] for way in WAYS}
            for seed in seeds(args):
                generator = np.random.default_rng([seed, round(1000 * share)])
                right = true_matrix(generator, args.items, args.attributes)
                wrong = turned(generator, right, share)
                data = torch.tensor(answers(generator, right, rule, args.rows))
                result = fit(
                    LatentAttributeModel(wrong, items=rule), data, METHOD, num_restarts=1, seed=seed
                )
                for way, criterion in WAYS.items():
                    began = time.process_time()
                    validation = validate_q(result, data, criterion, max_rounds=10)
                    seconds = time.process_time() - began
                    agrees, was_wrong = validation.suggested == right, wrong != right
                    found[way].append(
                        (
                            agrees[was_wrong].mean(),
                            agrees[~was_wrong].mean(),
                            agrees.all(1).mean(),
                            agrees.all(),
                            validation.settled,
                            validation.num_rounds,
                            seconds,
                        )
                    )
            for way, lines in found.items():
                table = np.array(lines, dtype=float)
                names = ("mended", "kept", "rows", "exact", "settled", "rounds", "seconds")
                line = {"rule": rule, "wrong": share, "way": way, "replicates": len(table)}
                spread = (
                    table[:, :2].std(0, ddof=1) / len(table) ** 0.5
                    if len(table) > 1
                    else np.full(2, np.nan)
                )
                errors = {
                    f"{name}_error": round(float(e), 4)
                    for name, e in zip(names, spread, strict=False)
                    if np.isfinite(e)
                }
                yield (
                    line
                    | {
                        name: round(float(value), 4)
                        for name, value in zip(names, table.mean(0), strict=True)
                    }
                    | errors
                )


def main(argv: list[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=100, threads=1)
    parser.add_argument("--rows", type=int, default=1000, metavar="N", help="rows of answers")
    parser.add_argument("--items", type=int, default=30, metavar="J", help="items, at least 2 K")
    parser.add_argument(
        "--attributes", type=int, default=5, metavar="K", help="attributes, at least 3"
    )
    parser.add_argument(
        "--rules", nargs="+", default=["dina", "gdm"], choices=["dina", "gdm"], help="of the items"
    )
    parser.add_argument(
        "--shares",
        nargs="+",
        type=float,
        default=[0.1, 0.2],
        help="of the entries of Q that are wrong",
    )
    run(
        parser,
        measure,
        argv,
        quick={"replicates": 1, "rows": 400, "items": 12, "attributes": 3, "shares": [0.1]},
    )


if __name__ == "__main__":
    main()
