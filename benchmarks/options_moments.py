"""Slopes of the error of the method of moments against the number of steps, on a four-state chain.

The errors themselves are figure 2.2 on the page of papers (``make papers``). One JSON line a route
and number of steps, then one with the slope and intercept of log10(median error) against log10(T)
from 100,000 on. Run: ``python benchmarks/options_moments.py [--replicates 20] [--largest 1e6]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from _bench import Lines, command_line, run, seeds
from papers.studies.options import ROUTES, STEPS, errors


def measure(args: argparse.Namespace) -> Lines:
    medians: dict[str, list[tuple[float, float]]] = {name: [] for name in ROUTES}
    for num_steps in STEPS:
        if num_steps > args.largest:
            break
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ROUTES}
        refused = dict.fromkeys(ROUTES, 0)
        for seed in seeds(args):
            for name, own in errors(num_steps, seed).items():
                if own is None:
                    refused[name] += 1
                else:
                    found[name].append(own)
        for name, own in found.items():
            if not own:
                continue
            values = np.array(own)
            medians[name].append((num_steps, float(np.median(values[:, 0]))))
            low_q, high_q = np.quantile(values[:, 0], [0.1, 0.9])
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
            }
    for name, points in medians.items():
        late = [(np.log10(t), np.log10(e)) for t, e in points if t >= 10**5]
        if len(late) > 1:
            slope, intercept = np.polyfit(*np.array(late).T, 1)
            yield {
                "route": name,
                "slope_from_100000": round(slope, 3),
                "intercept": round(intercept, 3),
            }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20)
    parser.add_argument("--largest", type=float, default=1e6, help="number of steps")
    run(parser, measure, argv, {"replicates": 2, "largest": 1e4})


if __name__ == "__main__":
    main()
