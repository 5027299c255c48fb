"""Cost of SAEM: seconds to convergence at (90, 30, 10), seconds an iteration by rows and by
latents, memory by iterations; and the log-likelihood that it ends with.

An iteration is a sweep, its statistics and a maximisation, with every loading away from zero (the
dearest graph; fits soon have sparse ones). ``rows`` and ``latents`` each vary one number, so that
cost in proportion is a straight line through the origin of what does not depend on it. ``memory``:
bytes of what an iteration hands to the next, and resident memory beyond that before the first.
``likelihood``: annealed importance sampling of the log-likelihood at the truth, against enumeration
where the latents are few. One JSON line a measurement.

Run: ``python benchmarks/saem_speed.py [--parts rows latents memory fit likelihood] [--threads 2]
[--figure FILE]`` (about four minutes).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from _bench import Lines, command_line, resident, run

from inference import SAEM, fit
from inference.alignment import align
from inference.base.steps import DrawSteps
from inference.engines.gibbs_estimates import log_likelihood_rows
from inference.fitting.problem import problem_of
from inference.metrics import graph_accuracy
from inference.programs import Program
from inference.structures.layers.gibbs import LayeredGibbs
from ppl_models import Bernoulli, DeepDiscreteEncoder, TruncatedLasso
from ppl_models.datasets import strict_design

PARTS = ["rows", "latents", "memory", "fit", "likelihood"]


def example(
    top: int, num_rows: int
) -> tuple[DeepDiscreteEncoder, torch.Tensor, dict[str, torch.Tensor]]:
    truth = strict_design(top, Bernoulli())
    model = DeepDiscreteEncoder(
        9 * top, (3 * top, top), penalty=TruncatedLasso.bic(num_rows), bound=5.0
    )
    return model, Program(model, None, num_rows).simulate(truth, 0)["items"], truth


def dense(num_latents: int, num_rows: int) -> tuple[DrawSteps, dict[str, torch.Tensor]]:
    """Steps for 90 items on so many latents under two, and parameters without a zero."""
    generator = torch.Generator().manual_seed(0)
    model = DeepDiscreteEncoder(
        90, (num_latents, 2), penalty=TruncatedLasso.bic(num_rows), bound=5.0
    )
    params = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) / num_latents**0.5
        for name, shape in (
            ("loadings_1", (1, 90, num_latents)),
            ("intercepts_1", (1, 90)),
            ("loadings_2", (1, num_latents, 2)),
            ("intercepts_2", (1, num_latents)),
        )
    }
    params["proportions"] = torch.full((1, 2), 0.5, dtype=torch.float64)
    one = {name: value[0] for name, value in params.items()}
    return (
        SAEM().steps(
            problem_of(model, Program(model, None, num_rows).simulate(one, 0)["items"], 0)
        ),
        params,
    )


def iterations(
    num_latents: int, num_rows: int, repeats: int
) -> tuple[dict[str, float], list[dict[str, int]]]:
    """Median seconds of the parts of an iteration, and the memory after each."""
    steps, params = dense(num_latents, num_rows)
    generator = torch.Generator().manual_seed(0)
    latents, averages = steps.gibbs.begin(params, generator), None
    seconds: dict[str, list[float]] = {"sweep": [], "statistics": [], "maximise": []}
    memory, before = [], resident()
    for _ in range(repeats + 1):
        began = time.perf_counter()
        latents, chances = steps.gibbs.sweep(params, latents, generator)
        swept = time.perf_counter()
        statistics = steps.statistics(params, latents, chances)
        averages = steps.average(averages, statistics, 0.5)
        counted = time.perf_counter()
        steps.maximise(averages, params)  # the parameters stay dense
        done = time.perf_counter()
        for name, value in zip(
            seconds, (swept - began, counted - swept, done - counted), strict=True
        ):
            seconds[name].append(value)
        state = sum(
            value.numel() * value.element_size()
            for value in (*averages.values(), *latents.values())
        )
        memory.append({"state_bytes": state, "resident_bytes_beyond_start": resident() - before})
    return {
        name: sorted(values[1:])[repeats // 2] for name, values in seconds.items()
    }, memory  # the first warms up


def lines(what: str, args: argparse.Namespace) -> list[dict]:
    if what == "fit":
        return [convergence(num_rows, args.most) for num_rows in args.fits]
    if what == "likelihood":
        return [likelihood(top, num_rows, seed) for top, num_rows, seed in args.likelihoods]
    if what == "memory":
        memory = iterations(30, 4000, args.iterations)[1]
        return [
            {"sizes": [90, 30, 2], "num_rows": 4000, "iteration": i + 1, **memory[i]}
            for i in (0, 1, 9, 49, 99, 199)
            if i < args.iterations
        ]
    out = []
    for num_latents, num_rows in (
        [(30, n) for n in args.rows]
        if what == "rows"
        else [(k, args.rows[-1] // 2) for k in args.latents]
    ):
        parts = iterations(num_latents, num_rows, 8)[0]
        line = {
            "sizes": [90, num_latents, 2],
            "num_rows": num_rows,
            "seconds_iteration": sum(parts.values()),
        }
        out.append(line | {f"seconds_{name}": seconds for name, seconds in parts.items()})
    return out


def convergence(num_rows: int, most: int) -> dict:
    model, x, truth = example(10, num_rows)
    began = time.perf_counter()
    result = fit(model, x, SAEM(max_iterations=most))
    return {
        "sizes": [90, 30, 10],
        "num_rows": num_rows,
        "seconds": time.perf_counter() - began,
        "iterations": result.num_iterations,
        "converged": result.converged,
        "accuracy_graph": graph_accuracy(
            align(result, truth).params, truth, model.layers(), model.penalty.threshold
        ),
    }


def likelihood(top: int, num_rows: int, seed: int) -> dict:
    model, x, truth = example(top, num_rows)
    x = Program(model, None, num_rows).simulate(truth, seed)["items"]
    gibbs = LayeredGibbs.build(model, x)
    params = {name: value.unsqueeze(0) for name, value in truth.items()}
    began = time.perf_counter()
    with torch.no_grad():
        found = log_likelihood_rows(gibbs, params, torch.Generator().manual_seed(seed))
    line = {
        "sizes": [9 * top, 3 * top, top],
        "num_rows": num_rows,
        "seed": seed,
        "seconds": time.perf_counter() - began,
        "log_likelihood": float(found.rows.sum()),
        "standard_error": float(found.variances.sum().sqrt()),
        "lower_bound": float(found.bounds.sum()),
    }
    if 4 * top <= 16:
        line["exact"] = float(Program(model, x).log_marginal_rows(truth).sum())
    return line


def draw(found: dict[str, list[dict]], path: Path) -> None:
    """Seconds by rows and by latents, bytes by iterations."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    rows, latents, memory = figure.subplots(1, 3)
    for ax, part, label in (
        (rows, "rows", "rows"),
        (latents, "latents", "latents of the first layer"),
    ):
        x = [
            line["num_rows"] if part == "rows" else line["sizes"][1] for line in found.get(part, [])
        ]
        for name, colour in (
            ("iteration", "#222222"),
            ("sweep", "#2166ac"),
            ("statistics", "#e08214"),
            ("maximise", "#b2182b"),
        ):
            ax.plot(
                x,
                [line[f"seconds_{name}"] for line in found.get(part, [])],
                marker="o",
                ms=3,
                color=colour,
                label=name,
            )
        ax.set(xlabel=label, ylabel="seconds", xlim=(0, None), ylim=(0, None))
        ax.xaxis.set_major_locator(MaxNLocator(4))
    rows.legend(frameon=False)
    x = [line["iteration"] for line in found.get("memory", [])]
    for name, colour, label in (
        ("state_bytes", "#222222", "state"),
        ("resident_bytes_beyond_start", "#2166ac", "resident beyond the start"),
    ):
        memory.plot(
            x,
            [line[name] / 1e6 for line in found.get("memory", [])],
            marker="o",
            ms=3,
            color=colour,
            label=label,
        )
    memory.set(xlabel="iteration", ylabel="MB", xlim=(0, None), ylim=(0, None))
    memory.legend(frameon=False)
    figure.savefig(path, dpi=150)


def measure(args: argparse.Namespace) -> Lines:
    found: dict[str, list[dict]] = {}
    for what in args.parts:
        found[what] = lines(what, args)
        yield from ({"what": what} | line for line in found[what])
    if args.figure is not None:
        draw(found, args.figure)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, threads=2)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        default=[1000, 2000, 4000, 8000, 16000],
        help="of rows; half the last one for latents",
    )
    parser.add_argument("--latents", type=int, nargs="+", default=[8, 16, 24, 32, 48])
    parser.add_argument("--iterations", type=int, default=200, help="of memory")
    parser.add_argument("--fits", type=int, nargs="+", default=[1000, 8000], help="rows of fits")
    parser.add_argument(
        "--most", type=int, default=SAEM().max_iterations, help="iterations of a fit"
    )
    parser.set_defaults(
        likelihoods=[(top, 2000, seed) for top in (3, 10) for seed in range(6 if top < 4 else 2)]
    )
    parser.add_argument("--figure", type=Path, metavar="FILE")
    quick = {
        "rows": [500, 1000],
        "latents": [8, 16],
        "iterations": 10,
        "fits": [500],
        "most": 5,
        "likelihoods": [(2, 100, 0)],
        "threads": 1,
    }
    run(parser, measure, argv, quick)


if __name__ == "__main__":
    main()
