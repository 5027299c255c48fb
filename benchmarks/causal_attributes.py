"""The manuscript's tables on fitted attributes: how often each way of making a sample recovers the graph, beside the table itself.

Five attributes, twenty Normal items, Q known (three identity blocks and one band), a fit of ``LatentAttributeModel`` a replicate. One JSON line a structure, number of
rows and way: methods 1 to 6 (:mod:`inference.causal.samples`), and ours, the table at N and at its effective number of rows (items taken as known). Percent of
replicates whose best graph is the true one, by score: "legacy" is BDeu as causal-learn had it until December 2025, which the manuscript used; its percentages stand
beside where it has them. Run: ``python benchmarks/causal_attributes.py --structures 1 2 3 --rows 1000 2000``; about half a second a replicate.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from _bench import Lines, command_line, reference, run, seeds
from causal_ges import PUBLISHED, structure

from inference import fit
from inference.causal import (
    GES,
    BDeu,
    classified_counts,
    cpdag_of,
    drawn_counts,
    effective_rows,
    profile_counts,
    profile_posterior,
    profiles,
    redrawn_counts,
    rounded_counts,
    scaled_counts,
)
from ppl_models import LatentAttributeModel, Normal

KEYS = {"1": ("1 N'={}", "1 / 4 N'={}", 0), "2": ("2 N'={}", "2 / 5 N'={}", 0), "3": ("3",), "4": ("1 / 4 N'={}", 1), "5": ("2 / 5 N'={}", 1), "6": ("6",)}


def design() -> np.ndarray:
    """Q, (20, 5)."""
    own = np.eye(5)
    return np.concatenate([own, own, own, own + np.eye(5, k=1) + np.eye(5, k=-1)]).astype(int)


def tables(name: str, num_rows: int, claims: Sequence[int], seed: int) -> tuple[dict[tuple[str, int], tuple[np.ndarray, float]], dict[str, float]]:
    """By way and N' / N: a table and the rows that it is said to be worth; and how good the fit is."""
    rng, q = np.random.default_rng(seed), design()
    true = profiles(5)[rng.choice(32, num_rows, p=structure(name)[1])]
    answers = -1 + true @ (3 * q / q.sum(1, keepdims=True)).T + rng.standard_normal((num_rows, len(q)))
    result = fit(LatentAttributeModel(q, Normal()), torch.from_numpy(answers), seed=seed)
    found = profile_posterior(result, torch.from_numpy(answers))
    worth = effective_rows(found.posterior, found.table).num_rows
    counts = {("3", 1): classified_counts(found.posterior), ("6", 1): profile_counts(true)}
    for times in claims:
        claimed = times * num_rows
        counts["1", times] = rounded_counts(found.table, claimed)
        counts["2", times] = drawn_counts(found.table, claimed, seed)
        counts["4", times] = scaled_counts(true, claimed)
        counts["5", times] = redrawn_counts(true, claimed, seed)
    made = {key: (value / value.sum(), float(value.sum())) for key, value in counts.items()}
    made["table at N", 1] = (found.table, float(num_rows))
    made["table at its effective rows", 1] = (found.table, worth)
    places = true @ (1 << np.arange(4, -1, -1))
    return made, {"classified": float((found.posterior.argmax(1) == places).mean()), "effective_share": worth / num_rows}


def measure(args: argparse.Namespace) -> Lines:
    for name in args.structures:
        truth = cpdag_of(structure(name)[0]).matrix
        for num_rows in args.rows:
            right: dict[tuple[str, int], dict[str, list[bool]]] = {}
            quality: dict[str, list[float]] = {}
            for seed in seeds(args):
                made, fitted = tables(name, num_rows, args.claims, seed)
                for label, value in fitted.items():
                    quality.setdefault(label, []).append(value)
                for key, (table, worth) in made.items():
                    for label, kappa in (("BDeu", 0.0), ("BDeu log 3", math.log(3)), ("BDeu legacy", math.log(worth - 2))):
                        graph = GES().best(table, worth, BDeu(edge_penalty=kappa)).graph
                        right.setdefault(key, {}).setdefault(label, []).append(bool(np.array_equal(graph.matrix, truth)))
            for (way, times), found in right.items():
                line: dict[str, Any] = {"structure": name, "rows": num_rows, "way": way, "claimed_rows": times * num_rows, "replicates": args.replicates}
                line |= {label: round(100 * float(np.mean(values)), 1) for label, values in found.items()}
                line |= {label: round(float(np.mean(values)), 4) for label, values in quality.items()}
                yield {**line, "published": _published(name, num_rows, way, times * num_rows)}


def _published(name: str, num_rows: int, way: str, claimed: int) -> float | None:
    """The manuscript's percentage, None where it has no such cell."""
    record = reference("latent_attributes")["published"]
    cells = record[PUBLISHED[name]] if name in PUBLISHED else record["structure_3_100_replicates"].get(f"N={num_rows} BDeu", {})
    if num_rows != 2000 and name in PUBLISHED:
        return None
    *keys, last = KEYS.get(way, (None,))
    keys, place = ([*keys, last], 0) if isinstance(last, str) else (keys, last)
    for key in keys:
        cell = cells.get(str(key).format(claimed))
        if cell is not None:
            return float(cell[place]) if isinstance(cell, list) else float(cell)
    return None


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=200, threads=1)
    parser.add_argument("--structures", nargs="+", default=["1", "2", "3"], choices=["1", "2", "3"], help="the manuscript's")
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 2000], help="numbers of rows")
    parser.add_argument("--claims", type=int, nargs="+", default=[1, 5, 10], help="N' / N of methods 1, 2, 4 and 5")
    run(parser, measure, argv, {"replicates": 2, "structures": ["2"], "rows": [1000], "claims": [1, 5]})


if __name__ == "__main__":
    main()
