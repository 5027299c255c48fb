"""Classes and covariates, in one step and in several: bias of the coefficients, and how often their
intervals hold the truth.

Two or three latent classes of six yes-or-no answers, whose chances depend on a number and on one of
two categories, with items that tell the classes well or badly (each line has its entropy R2). Each
data set is fitted in one step, ``Mixture(..., covariates=...)``, and in several after a fit without
covariates: two-step, three steps corrected by maximum likelihood and by BCH, and not corrected,
with proportional and with modal assignment. An outcome whose mean differs by class is compared by
BCH and without correction. A line gives, over data sets and coefficients (without intercepts), the
mean error as a share of the truth, the root mean squared error, the mean standard error over the
spread of the estimates (1 where the errors are right), and the share of 95% intervals that hold the
truth. Classes are named as in the truth, by their items.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
from _bench import command_line, run, seeds

from inference import EM, Fit, fit
from inference.relations import class_coefficients, compare_outcomes, regress_classes
from ppl_models import Bernoulli, Covariates, Mixture

ITEMS = list("abcdef")
COEFFICIENTS = {
    2: np.array([[-0.3, 0.8, -1.0]]),
    3: np.array([[-0.3, 0.8, -1.0], [0.2, -0.6, 0.7]]),
}
OUTCOMES = np.array([0.0, 1.0, 2.0])
YES = {"well": 0.85, "badly": 0.72}  # chance of the answer that is typical of a class
WAYS = [
    ("two-step", "proportional"),
    *((method, how) for method in ("ml", "bch", "none") for how in ("proportional", "modal")),
]


def draw(num_classes: int, items: str, num_rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Answers, covariates and an outcome, and the log-odds of the answers."""
    rng = np.random.default_rng([seed, num_classes, len(items)])
    frame = pd.DataFrame({"age": rng.normal(size=num_rows), "sex": rng.integers(0, 2, num_rows)})
    terms = np.c_[np.ones(num_rows), frame.to_numpy()]
    odds = np.exp(np.c_[np.zeros(num_rows), terms @ COEFFICIENTS[num_classes].T])
    chosen = (rng.random(num_rows)[:, None] > np.cumsum(odds / odds.sum(1, keepdims=True), 1)).sum(
        1
    )
    typical = np.array([[0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]])[:num_classes]
    chances = np.where(typical == 1, YES[items], 1 - YES[items])
    frame[ITEMS] = (rng.random((num_rows, 6)) < chances[chosen]).astype(float)
    frame["outcome"] = OUTCOMES[chosen] + rng.normal(size=num_rows)
    return frame, np.log(chances / (1 - chances))


def names(found: Fit, truth: np.ndarray) -> list[int]:
    """The fitted class of each true one."""
    eta = found.params["predictors"].numpy()
    return list(
        min(
            permutations(range(len(truth))),
            key=lambda order: float(((np.clip(eta[list(order)], -4, 4) - truth) ** 2).sum()),
        )
    )


def renamed(
    value: np.ndarray, covariance: np.ndarray, order: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients against the truth's class 0, and their standard errors."""
    num, num_terms = value.shape
    full = np.zeros((num + 1, num))
    full[1:] = np.eye(num)
    change = np.kron(full[order][1:] - full[order][:1], np.eye(num_terms))
    return (change @ value.ravel()).reshape(num, num_terms), np.sqrt(
        np.diag(change @ covariance @ change.T)
    ).reshape(num, num_terms)


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    known = Covariates(("age", "sex"))
    for num_classes in args.classes:
        for items in args.items:
            kept: dict[tuple[str, str, str], list[tuple[np.ndarray, np.ndarray]]] = defaultdict(
                list
            )
            entropies, failed = [], 0
            for seed in seeds(args):
                frame, logits = draw(num_classes, items, args.rows, seed)
                try:
                    one = fit(
                        Mixture(num_classes, Bernoulli(), 6, covariates=known),
                        frame[[*ITEMS, "age", "sex"]],
                        EM(),
                        num_restarts=args.starts,
                        seed=seed,
                    )
                    found = class_coefficients(one, frame[[*ITEMS, "age", "sex"]])
                    first = fit(
                        Mixture(num_classes, Bernoulli(), 6),
                        frame[ITEMS],
                        EM(),
                        num_restarts=args.starts,
                        seed=seed,
                    )
                    ways = {
                        ("coefficients", "one-step", ""): renamed(
                            found.coefficients, found.covariance, names(one, logits)
                        )
                    }
                    order = names(first, logits)
                    for method, how in WAYS:
                        found = regress_classes(first, frame, known.names, method, how)
                        ways["coefficients", method, how] = renamed(
                            found.coefficients, found.covariance, order
                        )
                    for method in ("bch", "none"):
                        outcome = compare_outcomes(first, frame, "outcome", method)
                        ways["outcome", method, "proportional"] = (
                            outcome.means[order, 0],
                            np.sqrt(np.diag(outcome.covariance))[order],
                        )
                    entropies.append(found.entropy_r2)
                except (
                    ValueError
                ):  # an estimate on its bound, or a class that is not there: no errors to speak of
                    failed += 1
                    continue
                for key, value in ways.items():
                    kept[key].append(value)
            for (what, method, how), parts in kept.items():
                values, errors = (np.stack([part[i] for part in parts]) for i in (0, 1))
                truth = (
                    OUTCOMES[:num_classes]
                    if what == "outcome"
                    else COEFFICIENTS[num_classes][:, 1:]
                )
                values, errors = (
                    part if what == "outcome" else part[..., 1:] for part in (values, errors)
                )
                off = values - truth
                scale = np.abs(truth).mean()
                yield {
                    "what": what,
                    "method": method,
                    "assignment": how,
                    "classes": num_classes,
                    "items": items,
                    "rows": args.rows,
                    "data_sets": len(parts),
                    "failed": failed,
                    "entropy_r2": round(float(np.mean(entropies)), 3),
                    "bias": round(float((off * np.where(truth < 0, -1, 1)).mean() / scale), 3),
                    "rmse": round(float(np.sqrt((off**2).mean())), 3),
                    "error_over_spread": round(
                        float((errors.mean(0) / values.std(0, ddof=1)).mean()), 3
                    ),
                    "coverage": round(float((np.abs(off) < 1.96 * errors).mean()), 3),
                }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=200, threads=1)
    parser.add_argument("--rows", type=int, default=600, help="of a data set (by default 600)")
    parser.add_argument("--classes", type=int, nargs="+", default=[2, 3], help="numbers of classes")
    parser.add_argument(
        "--items",
        nargs="+",
        choices=tuple(YES),
        default=list(YES),
        help="how well items tell the classes",
    )
    parser.add_argument("--starts", type=int, default=5, help="of each fit")
    run(
        parser,
        measure,
        argv,
        quick={"replicates": 3, "classes": [2], "items": ["well"], "rows": 300, "starts": 1},
    )


if __name__ == "__main__":
    main()
