"""Poisson factorization against scikit-learn's (Kullback-Leibler, multiplicative updates):
objective and time in one run.

One JSON line a size: both log-likelihoods, best of the same number of starts, and seconds (of the
clock, of the processor); our restarts as one batch with and without the race that stops those
behind, and one by one; 10,000 rows: one start each, and the seconds (of a fit stopped there) after
which ours has passed scikit-learn's objective. Run: ``python benchmarks/acdc_factorization.py
[--quick]``; needs PPL_MODELS_DATA for the breast tumours.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from _bench import Lines, command_line, run, timed
from scipy import stats
from sklearn.decomposition import NMF

from inference import fit
from inference.structures.factorization.factorize import Factorize
from ppl_models import PoissonFactorization
from ppl_models.datasets import load_breast, simulate_mutations


def theirs(x: np.ndarray, k: int, starts: int) -> float:
    best = -np.inf
    for seed in range(starts):
        init = "nndsvda" if seed == 0 else "random"
        model = NMF(
            k,
            solver="mu",
            beta_loss="kullback-leibler",
            init=init,
            random_state=seed,
            max_iter=3000,
            tol=1e-6,
        )
        mu = np.maximum(model.fit_transform(x) @ model.components_, 1e-12)
        best = max(best, float(stats.poisson.logpmf(x, mu).sum()))
    return best


def compared(name: str, x: np.ndarray, starts: int) -> dict[str, object]:
    model = PoissonFactorization(96, 8)
    line: dict[str, object] = {"data": name, "starts": starts}
    race, line["ours_s"] = timed(lambda: fit(model, x, num_restarts=starts))
    other, line["scikit_learn_s"] = timed(lambda: theirs(x, 8, starts))
    line |= {"ours": round(race.log_likelihood, 1), "scikit_learn": round(other, 1)}
    if starts == 1:
        passed = race.trace.objective.numpy() - (race.objective - race.log_likelihood) >= other
        sweeps = 15 * (
            int(passed.argmax()) + 1 if passed.any() else len(passed)
        )  # fifteen updates count as one iteration
        there, line["ours_there_s"] = timed(
            lambda: fit(model, x, Factorize(max_sweeps=sweeps), num_restarts=1)
        )
        return line | {"ours_there": round(there.log_likelihood, 1)}
    full, line["ours_without_race_s"] = timed(
        lambda: fit(model, x, Factorize(race=False), num_restarts=starts)
    )
    _, line["ours_loop_s"] = timed(
        lambda: [fit(model, x, Factorize(race=False), init="random", seed=s) for s in range(starts)]
    )
    return line | {"ours_without_race": round(full.log_likelihood, 1)}


def measure(args: argparse.Namespace) -> Lines:
    data = load_breast("well_specified")
    if not args.tall:
        yield compared("breast", data.counts, args.starts)
    if not args.quick:
        rows = np.random.default_rng(0).integers(len(data.activities), size=10_000)
        yield compared(
            "10000 x 96", simulate_mutations(data.signatures, data.activities[rows], seed=1), 1
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--tall", action="store_true", help="the 10,000 rows only")
    run(parser, measure, argv, {"starts": 2})


if __name__ == "__main__":
    main()
