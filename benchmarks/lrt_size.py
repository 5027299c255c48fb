"""How often does the likelihood-ratio test between two sizes reject a true smaller size at 5 %: by
the bootstrap, and by chi-square?

Five nulls without outside data: one normal against two with variances of their own; six fair
independent bits against two classes; one Poisson class of three counts against two; and two and
three latent classes of seven bits with chances near the edges (as raters of a slide), against one
more. (A pair of normals with one common variance is left out: mixtures here have a variance for
each component.)

Each data set is fitted with both sizes (ten starts), and tested by ``likelihood_ratio_test`` with
99 replicates, ended at five exceedances: the decision at 5 % is then certain. ``chi_square`` is the
size of the test that was used before, with the difference in free parameters; ``mean`` and
``quantile_95`` are those of the ratios, beside ``chi_square_95``. One line a null, with standard
errors of the sizes.

Run: ``python benchmarks/lrt_size.py [--null ...] [--replicates 200] [--first-seed 0]``. A replicate
takes some seconds of one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import torch
from _bench import Lines, command_line, run, seeds
from scipy.stats import chi2

from inference import EM, fit
from inference.programs import Program
from inference.selection import likelihood_ratio_test
from ppl_models import Bernoulli, Mixture, Normal, Poisson

LEVEL = 0.05


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def classes(size: int) -> Mixture:
    return Mixture(size, Bernoulli(), 7)


TWO = {
    "weights": tensor([0.5, 0.5]),
    "predictors": torch.logit(
        tensor([[0.95, 0.98, 0.8, 0.6, 0.95, 0.5, 0.95], [0.15, 0.35, 0.02, 0.02, 0.2, 0.02, 0.1]])
    ),
}
THREE = {
    "weights": tensor([0.45, 0.37, 0.18]),
    "predictors": torch.logit(
        tensor(
            [
                [0.98, 0.98, 0.85, 0.6, 0.98, 0.5, 0.98],
                [0.06, 0.15, 0.02, 0.05, 0.07, 0.02, 0.02],
                [0.5, 0.95, 0.02, 0.06, 0.75, 0.02, 0.6],
            ]
        )
    ),
}
# name -> family by size, the true size, rows, truth
NULLS: dict[str, tuple[Callable[[int], Mixture], int, int, dict[str, torch.Tensor]]] = {
    "normal, free variances": (
        lambda k: Mixture(k, Normal(), 1, variance_floor=0.01),
        1,
        200,
        {"weights": tensor([1.0]), "predictors": tensor([[0.0]]), "dispersion": tensor([[1.0]])},
    ),
    "six fair bits": (
        lambda k: Mixture(k, Bernoulli(), 6),
        1,
        500,
        {"weights": tensor([1.0]), "predictors": tensor([[0.0] * 6])},
    ),
    "three counts": (
        lambda k: Mixture(k, Poisson(), 3),
        1,
        200,
        {"weights": tensor([1.0]), "predictors": tensor([[2.0, 4.0, 8.0]]).log()},
    ),
    "two classes of raters": (classes, 2, 118, TWO),
    "three classes of raters": (classes, 3, 118, THREE),
}


def share(hits: list[bool]) -> dict[str, float]:
    value = sum(hits) / len(hits)
    return {"size": round(value, 4), "se": round((value * (1 - value) / len(hits)) ** 0.5, 4)}


def measure(args: argparse.Namespace) -> Lines:
    for name in args.null:
        family, size, rows, truth = NULLS[name]
        began = time.monotonic()
        ratios, by_bootstrap, by_chi_square, drawn, negative = [], [], [], 0, 0
        degrees = 0
        for seed in seeds(args):
            data = Program(family(size), None, rows).simulate(truth, seed)["items"]
            small, large = (
                fit(
                    family(k),
                    data,
                    EM(tolerance=1e-7, parameter_tolerance=1.0),
                    num_restarts=10,
                    seed=seed,
                )
                for k in (size, size + 1)
            )
            test = likelihood_ratio_test(small, large, data, args.draws, 5, seed=1000 * seed)
            degrees = large.num_parameters - small.num_parameters
            ratios.append(test.statistic)
            by_bootstrap.append(test.p_value <= LEVEL)
            by_chi_square.append(bool(chi2.sf(test.statistic, degrees) < LEVEL))
            drawn, negative = drawn + len(test.null), negative + test.num_negative
        line = {
            "null": name,
            "rows": rows,
            "replicates": args.replicates,
            "bootstrap": share(by_bootstrap),
            "chi_square": share(by_chi_square),
        }
        found = tensor(ratios)
        line |= {
            "df": degrees,
            "mean": round(float(found.mean()), 2),
            "quantile_95": round(float(found.quantile(0.95)), 2),
        }
        line |= {
            "chi_square_95": round(float(chi2.isf(LEVEL, degrees)), 2),
            "drawn": drawn,
            "negative": negative,
        }
        yield line | {"seconds": round(time.monotonic() - began, 1)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=200)
    parser.add_argument("--draws", type=int, default=99, help="data sets drawn for a test, at most")
    parser.add_argument("--null", nargs="+", default=list(NULLS), choices=list(NULLS))
    run(parser, measure, argv, {"replicates": 1, "draws": 19, "null": ["six fair bits"]})


if __name__ == "__main__":
    main()
