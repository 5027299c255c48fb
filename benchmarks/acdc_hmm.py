"""How many options (or states of a plain hidden Markov model): BIC beside ACDC, where the model is
right and where it is not.

ACDC by its defaults, the same as for tables. One JSON line a design: of K = 1..4 the choices over
seeds, the largest discrepancy in standard errors of its null at the true K and at one less, and
seconds. Designs: two options in two states; a plain categorical HMM of three states; the first with
visits of even length about 20 (semi-Markov); the first with 1 % of all actions at random. Run:
``python benchmarks/acdc_hmm.py [--replicates 4] [--designs "two options"]``.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds

from inference import EM, Fit, fit
from inference.acdc import AcdcResult, acdc
from ppl_models import OptionsHMM
from ppl_models.datasets import simulate_options

SEQUENCES, STEPS = 20, 150

PLAIN = {
    "initial": np.full((1, 3), 1 / 3),
    "low": np.array([[[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4]]]),
    "high": np.array([[[0.94, 0.03, 0.03], [0.03, 0.94, 0.03], [0.03, 0.03, 0.94]]]),
    "environment": np.ones((4, 1, 1)),
}
TWO = {
    "initial": np.full((2, 2), 0.25),
    "low": np.array([[[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]], [[0.1, 0.8, 0.1], [0.6, 0.1, 0.3]]]),
    "high": np.array([[[0.95, 0.05], [0.1, 0.9]], [[0.9, 0.1], [0.05, 0.95]]]),
    "environment": np.array(
        [[[0.7, 0.3], [0.4, 0.6]], [[0.3, 0.7], [0.5, 0.5]], [[0.5, 0.5], [0.2, 0.8]]]
    ),
}


def by_chain(truth: dict[str, np.ndarray], seed: int, outliers: float = 0.0) -> torch.Tensor:
    params = {name: torch.from_numpy(value) for name, value in truth.items()}
    if outliers:
        params["low"] = (1 - outliers) * params["low"] + outliers / params["low"].shape[-1]
    return simulate_options(params, SEQUENCES, STEPS, seed).packed


def semi_markov(seed: int) -> torch.Tensor:
    """Two options in turn, visits of 15 to 25 steps, policies and environment of ``TWO``."""
    generator = np.random.default_rng(seed)
    out = np.empty((SEQUENCES, STEPS, 2), dtype=np.int64)
    for row in out:
        state, option, left = (
            int(generator.integers(2)),
            int(generator.integers(2)),
            int(generator.integers(1, 26)),
        )
        for t in range(STEPS):
            action = int(generator.choice(3, p=TWO["low"][state, option]))
            row[t] = state, action
            state = int(generator.choice(2, p=TWO["environment"][action, state]))
            left -= 1
            if left == 0:
                option, left = 1 - option, int(generator.integers(15, 26))
    return torch.from_numpy(out)


DESIGNS = {
    "two options": (2, 3, 2, lambda seed: by_chain(TWO, seed)),
    "plain HMM, three states": (1, 4, 3, lambda seed: by_chain(PLAIN, seed)),
    "semi-Markov visits": (2, 3, 2, semi_markov),
    "1 % outliers": (2, 3, 2, lambda seed: by_chain(TWO, seed, 0.01)),
}


def in_errors(result: AcdcResult, num: int) -> float:
    return float(((result.raw[num] - result.null_mean[num]) / result.null_sd[num]).max())


def measure(args: argparse.Namespace) -> Lines:
    method = EM(max_iterations=500, tolerance=1e-6, parameter_tolerance=1e-3)
    for name in args.designs:
        states, actions, truth, draw = DESIGNS[name]
        began, choices, errors = (
            time.perf_counter(),
            {"bic": Counter(), "acdc": Counter(), "acdc_rho_0": Counter()},
            [],
        )
        for seed in seeds(args):
            data = draw(seed)
            fits: dict[int, Fit] = {
                k: fit(OptionsHMM(states, actions, k), data, method, num_restarts=2, seed=seed)
                for k in range(1, args.largest + 1)
            }
            result = acdc(fits, data)
            choices["bic"][min(fits, key=lambda k: fits[k].bic)] += 1
            choices["acdc"][result.chosen] += 1
            choices["acdc_rho_0"][result.select(rho=0.0).num_components] += 1
            errors.append((in_errors(result, truth), in_errors(result, truth - 1)))
        median = np.median(errors, axis=0).round(1).tolist()
        yield {
            "design": name,
            "true_K": truth,
            "steps": SEQUENCES * STEPS,
            "seeds": [args.first_seed, args.replicates],
            **{key: dict(sorted(value.items())) for key, value in choices.items()},
            "discrepancy_in_errors_at_true_K": median[0],
            "at_one_less": median[1],
            "seconds": round(time.perf_counter() - began, 1),
        }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=4)
    parser.add_argument("--designs", nargs="+", default=list(DESIGNS), choices=list(DESIGNS))
    parser.add_argument("--largest", type=int, default=4)
    run(parser, measure, argv, {"replicates": 1, "designs": ["two options"], "largest": 3})


if __name__ == "__main__":
    main()
