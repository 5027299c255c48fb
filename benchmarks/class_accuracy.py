"""The expected share of rows whose class is right, by the posterior alone and corrected by refits
to simulated data, against the true share.

Each seed draws a mixture of its own: 60, 100 or 200 rows, 4 or 8 items, 2 or 3 classes as likely,
normal items or bits, and classes that are all alike (no classes at all), or faintly, moderately or
clearly apart: standard deviations of the classes' means (log-odds) of 0, .7, 1.2 and 2. The true
share is that of the posterior at the truth, under the best names for the fitted classes. One line a
distance, and one for all: means, the bias of both figures with its standard error, and how often
the corrected one is called worthless.

Run: ``python benchmarks/class_accuracy.py [--replicates 200] [--first-seed 0]``. A replicate takes
some seconds of one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds
from scipy.optimize import linear_sum_assignment

from inference import EM, fit
from inference.inspection import class_accuracy
from inference.programs import Program
from ppl_models import Bernoulli, Mixture, Normal

SPREADS = {"none": 0.0, "faint": 0.7, "moderate": 1.2, "clear": 2.0}


def replicate(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    apart = list(SPREADS)[seed % len(SPREADS)]
    num_rows, num_items, size = (
        int(rng.choice([60, 100, 200])),
        int(rng.choice([4, 8])),
        int(rng.choice([2, 3])),
    )
    is_normal = bool(rng.integers(2))
    model = Mixture(size, Normal() if is_normal else Bernoulli(), num_items)
    truth = {
        "weights": torch.full((size,), 1 / size, dtype=torch.float64),
        "predictors": torch.tensor(SPREADS[apart] * rng.standard_normal((size, num_items))),
    } | ({"dispersion": torch.ones(size, num_items, dtype=torch.float64)} if is_normal else {})
    data = Program(model, None, num_rows).simulate(truth, seed)["items"]
    result = fit(model, data, EM(tolerance=1e-5), num_restarts=10, seed=seed)
    began = time.monotonic()
    found = class_accuracy(result, data, 8, seed=1000 * seed)
    seconds = time.monotonic() - began
    put = result.posterior_latents(data)["assignments"].argmax(-1)
    true = Program(model, data).latent_means(truth)["assignments"]
    table = torch.zeros(size, size, dtype=torch.float64).index_add_(0, put, true).numpy() / num_rows
    rows, columns = linear_sum_assignment(-table)
    return {
        "seed": seed,
        "classes": apart,
        "said": found.said,
        "corrected": found.accuracy,
        "true": float(table[rows, columns].sum()),
        "worthless": found.worthless,
        "seconds": seconds,
    }


def line_of(name: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    line: dict[str, Any] = {"classes": name, "models": len(found)}
    for key in ("true", "said", "corrected", "worthless", "seconds"):
        line[key] = round(float(np.mean([own[key] for own in found])), 3)
    for key in ("said", "corrected"):
        gaps = np.array([own[key] - own["true"] for own in found])
        line[f"bias_{key}"], line[f"bias_{key}_se"] = (
            round(float(gaps.mean()), 3),
            round(float(gaps.std() / len(gaps) ** 0.5), 3),
        )
    return line


def measure(args: argparse.Namespace) -> Lines:
    found = [replicate(seed) for seed in seeds(args)]
    for name in SPREADS:
        if own := [entry for entry in found if entry["classes"] == name]:
            yield line_of(name, own)
    yield line_of("all", found)


def main(argv: Sequence[str] | None = None) -> None:
    run(command_line(__file__, __doc__, replicates=200), measure, argv, {"replicates": 2})


if __name__ == "__main__":
    main()
