"""Poisson factorization against scikit-learn's (Kullback-Leibler, multiplicative updates): objective and time in one run.

One JSON line a size: both log-likelihoods, best of the same number of starts, and seconds (of the clock, of the processor); our
restarts as one batch with and without the race that stops those behind, and one by one; 10,000 rows: one start each, and the
seconds (of a fit stopped there) after which ours has passed scikit-learn's objective.
Run: ``python benchmarks/acdc_factorization.py [--quick]``; needs PPL_MODELS_DATA for the breast tumours.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np
import torch
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
        model = NMF(k, solver="mu", beta_loss="kullback-leibler", init=init, random_state=seed, max_iter=3000, tol=1e-6)
        mu = np.maximum(model.fit_transform(x) @ model.components_, 1e-12)
        best = max(best, float(stats.poisson.logpmf(x, mu).sum()))
    return best


def timed(call):
    """What a call returns, and its seconds on the clock and of the processor: on a busy machine only the latter compare."""
    began, cpu = time.perf_counter(), time.process_time()
    value = call()
    return value, [round(time.perf_counter() - began, 2), round(time.process_time() - cpu, 2)]


def measure(name: str, x: np.ndarray, starts: int) -> None:
    model = PoissonFactorization(96, 8)
    race, race_s = timed(lambda: fit(model, x, num_restarts=starts))
    if starts == 1:
        other, other_s = timed(lambda: theirs(x, 8, 1))
        passed = race.trace.objective.numpy() - (race.objective - race.log_likelihood) >= other
        sweeps = 15 * (int(passed.argmax()) + 1 if passed.any() else len(passed))  # fifteen updates count as one iteration
        there, there_s = timed(lambda: fit(model, x, Factorize(max_sweeps=sweeps), num_restarts=1))
        record = {
            "benchmark": "acdc_factorization", "data": name, "starts": 1, "threads": torch.get_num_threads(), "ours": round(race.log_likelihood, 1),
            "ours_s": race_s, "ours_there": round(there.log_likelihood, 1), "ours_there_s": there_s, "scikit_learn": round(other, 1), "scikit_learn_s": other_s,
        }  # fmt: skip
        print(json.dumps(record), flush=True)
        return
    full, full_s = timed(lambda: fit(model, x, Factorize(race=False), num_restarts=starts))
    _, loop_s = timed(lambda: [fit(model, x, Factorize(race=False), init="random", seed=s) for s in range(starts)])
    other, other_s = timed(lambda: theirs(x, 8, starts))
    record = {
        "benchmark": "acdc_factorization", "data": name, "starts": starts, "threads": torch.get_num_threads(),
        "ours": round(race.log_likelihood, 1), "ours_s": race_s, "ours_without_race": round(full.log_likelihood, 1),
        "ours_without_race_s": full_s, "ours_loop_s": loop_s, "scikit_learn": round(other, 1), "scikit_learn_s": other_s,
    }  # fmt: skip
    print(json.dumps(record), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--tall", action="store_true", help="the 10,000 rows only")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data = load_breast("well_specified")
    cases = [("breast", data.counts, options.starts)] if not options.tall else []
    if not options.quick:
        rng = np.random.default_rng(0)
        rows = rng.integers(len(data.activities), size=10_000)
        cases.append(("10000 x 96", simulate_mutations(data.signatures, data.activities[rows], seed=1), 1))
    for name, x, starts in cases:
        measure(name, x, starts)


if __name__ == "__main__":
    main()
