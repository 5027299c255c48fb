"""Error of the method of moments against the number of steps, on the four-state chain with two
options.

One JSON line a route and number of steps, then one with the slopes and intercepts of log10(median
error) against log10(T) from 100,000 on; ``--figure`` draws the errors on logarithmic axes. Run:
``python benchmarks/options_moments.py [--replicates 20] [--largest 1e6] [--figure FILE]``.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from _bench import Lines, command_line, run, seeds
from papers.joint_moments import all_states_at_once

from inference.structures.options import count_moments, refine_moments, state_by_state
from inference.structures.options.moments import MomentEstimate, OptionMoments
from ppl_models.datasets import options_chain, simulate_options

CONSTANT_POLICY = 1.71  # error of probabilities of 1/2 everywhere, for scale
ROUTES: dict[str, Callable[[OptionMoments], MomentEstimate]] = {
    "state by state": lambda moments: state_by_state(moments, 2),
    "state by state, refined": lambda moments: refine_moments(moments, state_by_state(moments, 2)),
    "all states at once, 0.05": lambda moments: all_states_at_once(moments, 2, 0.05),
    "all states at once, 0.25": lambda moments: all_states_at_once(moments, 2, 0.25),
}


def error(estimate: MomentEstimate, low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """Frobenius norm of all entries, and the worst state's spectral norms, after the best
    permutation.
    """
    best = (np.inf, np.inf)
    for order in itertools.permutations(range(low.shape[1])):
        of_low, of_high = (
            estimate.low[:, list(order)] - low,
            estimate.high[:, list(order)][:, :, list(order)] - high,
        )
        frobenius = float(np.sqrt((of_low**2).sum() + (of_high**2).sum()))
        spectral = [np.linalg.norm(part, 2, axis=(1, 2)).max() for part in (of_low, of_high)]
        best = min(best, (frobenius, float(np.hypot(*spectral))))
    return best


def draw(
    bands: dict[str, list[tuple[float, float, float, float]]], slopes: dict[str, float], path: Path
) -> None:
    """Median error and the band from the 10th to the 90th percentile of each route against the
    number of steps.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.5), layout="constrained")
    ax = figure.subplots()
    for name, points in bands.items():
        steps, middle, low, high = np.array(points).T
        label = name + (f": slope {slopes[name]:.2f}" if name in slopes else "")
        (line,) = ax.loglog(steps, middle, marker="o", markersize=3, label=label)
        ax.fill_between(steps, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    ax.axhline(CONSTANT_POLICY, color="#888888", linestyle=":", label="equal probabilities")
    ax.set(
        xlabel="steps T",
        ylabel="error of both policies (Frobenius)",
        title="Policies from moments: median, 10 % to 90 %",
    )
    ax.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def measure(args: argparse.Namespace) -> Lines:
    bands: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in ROUTES}
    slopes: dict[str, float] = {}
    truth = options_chain()
    low, high = truth["low"].numpy(), truth["high"].numpy()
    medians: dict[str, list[tuple[float, float]]] = {name: [] for name in ROUTES}
    for num_steps in (
        10**3,
        3 * 10**3,
        10**4,
        3 * 10**4,
        10**5,
        3 * 10**5,
        10**6,
        3 * 10**6,
        10**7,
    ):
        if num_steps > args.largest:
            break
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ROUTES}
        refused, seconds = dict.fromkeys(ROUTES, 0), 0.0
        for seed in seeds(args):
            data = simulate_options(truth, 1, num_steps, 1000 + seed).packed
            began = time.perf_counter()
            moments = count_moments(data, 4, 2)
            seconds += time.perf_counter() - began
            for name, route in ROUTES.items():
                try:
                    found[name].append(error(route(moments), low, high))
                except ValueError:
                    refused[name] += 1
        for name, errors in found.items():
            if not errors:
                continue
            values = np.array(errors)
            medians[name].append((num_steps, float(np.median(values[:, 0]))))
            low_q, high_q = np.quantile(values[:, 0], [0.1, 0.9])
            bands[name].append((num_steps, medians[name][-1][1], float(low_q), float(high_q)))
            line = {
                "route": name,
                "num_steps": num_steps,
                "num_seeds": args.replicates,
                "refused": refused[name],
            }
            line |= {
                "median_frobenius": round(medians[name][-1][1], 4),
                "q10_q90": [round(low_q, 4), round(high_q, 4)],
            }
            yield line | {
                "median_spectral": round(float(np.median(values[:, 1])), 4),
                "seconds_counting": round(seconds / args.replicates, 4),
            }
    for name, points in medians.items():
        late = [(np.log10(t), np.log10(e)) for t, e in points if t >= 10**5]
        if len(late) > 1:
            slope, intercept = np.polyfit(*np.array(late).T, 1)
            slopes[name] = float(slope)
            yield {
                "route": name,
                "slope_from_100000": round(slope, 3),
                "intercept": round(intercept, 3),
            }
    if args.figure is not None:
        draw(bands, slopes, args.figure)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20)
    parser.add_argument("--largest", type=float, default=1e6, help="number of steps")
    parser.add_argument("--figure", type=Path, metavar="FILE")
    run(parser, measure, argv, {"replicates": 2, "largest": 1e4})


if __name__ == "__main__":
    main()
