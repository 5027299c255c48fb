"""Cost of SAEM: seconds to convergence at (90, 30, 10), seconds an iteration by rows and by latents, bytes of the state.

One JSON line a measurement. Run: ``python benchmarks/saem_speed.py [--threads 2]``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import torch

from inference import SAEM, fit
from inference.alignment import align
from inference.fit import Problem
from inference.metrics import graph_accuracy
from inference.program import Program
from ppl_models import Bernoulli, DeepDiscreteEncoder, TruncatedLasso
from ppl_models.datasets import strict_design


def example(top: int, num_rows: int) -> tuple[DeepDiscreteEncoder, torch.Tensor, dict[str, torch.Tensor]]:
    truth = strict_design(top, Bernoulli())
    model = DeepDiscreteEncoder(9 * top, (3 * top, top), penalty=TruncatedLasso.bic(num_rows), bound=5.0)
    return model, Program(model, None, num_rows).simulate(truth, 0)["items"], truth


def iteration(top: int, num_rows: int, repeats: int = 10) -> dict:
    """Sweep, statistics and maximisation at a dense start."""
    model, x, truth = example(top, num_rows)
    steps = SAEM().steps(Problem.check(model, x, 0))
    params = {name: value.unsqueeze(0) + 0.01 * (value.dim() == 2) for name, value in truth.items()}
    generator = torch.Generator().manual_seed(0)
    latents, averages = steps.gibbs.begin(params, generator), None
    parts = {"sweep": 0.0, "statistics": 0.0, "maximise": 0.0}
    sizes = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        latents, chances = steps.gibbs.sweep(params, latents, generator)
        swept = time.perf_counter()
        statistics, _ = steps.statistics(params, latents, chances)
        averages = steps.average(averages, statistics, 0.5)
        counted = time.perf_counter()
        steps.maximise(averages, params)
        done = time.perf_counter()
        sizes.append(sum(value.numel() * value.element_size() for value in (*averages.values(), *latents.values())))
        if len(sizes) > 1:  # the first warms up
            for name, seconds in zip(parts, (swept - began, counted - swept, done - counted), strict=True):
                parts[name] += seconds / repeats
    return {
        "sizes": [9 * top, 3 * top, top],
        "num_rows": num_rows,
        "seconds_iteration": sum(parts.values()),
        **{f"seconds_{name}": seconds for name, seconds in parts.items()},
        "state_bytes_first": sizes[0],
        "state_bytes_last": sizes[-1],
    }


def convergence(num_rows: int) -> dict:
    model, x, truth = example(10, num_rows)
    began = time.perf_counter()
    result = fit(model, x, SAEM())
    return {
        "sizes": [90, 30, 10],
        "num_rows": num_rows,
        "seconds": time.perf_counter() - began,
        "iterations": result.num_iterations,
        "converged": result.converged,
        "accuracy_graph": graph_accuracy(align(result, truth).params, truth, model.layers(), model.penalty.threshold),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")
    common = {"benchmark": "saem_speed", "threads": args.threads}
    for top, num_rows in ((2, 8000), (6, 8000), (10, 8000), (20, 8000), (10, 1000), (10, 2000), (10, 4000), (10, 16000)):
        print(json.dumps({**common, "what": "iteration", **iteration(top, num_rows)}), flush=True)
    for num_rows in (1000, 8000):
        print(json.dumps({**common, "what": "fit", **convergence(num_rows)}), flush=True)


if __name__ == "__main__":
    main()
