"""Rows that an edge among attributes needs to be seen, and the power of the test at so many.

Two attributes, four DINA items each, whose guess and slip are given, and an effect of one attribute
on the other in logits. ``rows`` is the calculator's answer for a power of .8 at level .05
(``AttributeNetwork.rows_needed`` with the true information and the share of it that measurement
leaves, from draws of the attributes of 20,000 rows); ``power`` the share of data sets of so many
rows in which the likelihood ratio of two fits, with the edge and without, rejects, with its
standard error; ``power_naive`` the same at the rows that known attributes would need. One JSON line
a design. Run: ``python benchmarks/edge_power.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds, values_of
from scipy.stats import chi2

from inference import EM, fit
from inference.causal.independence import dependence
from inference.causal.structural_em import rows_needed, shares
from inference.causal.tables import Marginals
from ppl_models import Dag, LatentAttributeModel

ITEMS = 4
Q_MATRIX = np.tile(np.eye(2, dtype=int), (ITEMS, 1))


def table_of(effect: float) -> np.ndarray:
    """P(a_1, a_2), (4,), of a fair coin and one that leans by half the effect either way."""
    up = 1 / (1 + np.exp(-effect / 2))
    return np.array([up, 1 - up, 1 - up, up]) / 2


def answers(
    effect: float, noise: float, rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Attributes (N, 2) and answers (N, J)."""
    code = rng.choice(4, rows, p=table_of(effect))
    bits = np.stack([code // 2, code % 2], 1)
    chance = np.where(bits @ Q_MATRIX.T == 1, 1 - noise, noise)
    return bits, (rng.random(chance.shape) < chance).astype(float)


def share_of(effect: float, noise: float) -> float:
    """Rho by draws from the posterior of the attributes at the truth."""
    rng = np.random.default_rng(0)
    _, data = answers(effect, noise, 20_000, rng)
    profiles = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    chance = np.where(profiles @ Q_MATRIX.T == 1, 1 - noise, noise)
    joint = data @ np.log(chance).T + (1 - data) @ np.log(1 - chance).T + np.log(table_of(effect))
    posterior = np.exp(joint - joint.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    reached = posterior.cumsum(1)
    draws = [(reached < rng.random((len(data), 1))).sum(1).clip(max=3) for _ in range(10)]
    return float(shares(profiles[np.stack(draws)].astype(np.uint8))[0, 1])


def rejects(effect: float, noise: float, rows: int, level: float, seed: int) -> bool:
    """Likelihood ratio of the edge on one data set."""
    torch.set_num_threads(1)
    rng = np.random.default_rng([seed, rows])
    _, data = answers(effect, noise, rows, rng)
    high = []
    for edges in (((0, 1),), ()):
        model = LatentAttributeModel(Q_MATRIX, items="dina", root=Dag(edges))
        result = fit(model, data, EM(tolerance=1e-8), num_restarts=1, seed=seed)
        high.append(result.log_likelihood)
    return bool(2 * (high[0] - high[1]) > chi2.isf(level, 1))


def lines(args: argparse.Namespace) -> Lines:
    """Line by line: an effect, a noise."""
    for effect in args.effects:
        for noise in args.noise:
            information = dependence(Marginals(table_of(effect)), 1e6, 0, 1).information
            share = share_of(effect, noise)
            line: dict[str, Any] = {"effect": effect, "noise": noise, "information": information}
            line["share"] = share
            for name, own in (("", share), ("_naive", 1.0)):
                rows = round(rows_needed(information, own))
                jobs = [
                    {"effect": effect, "noise": noise, "rows": rows, "level": 0.05, "seed": seed}
                    for seed in seeds(args)
                ]
                power = float(np.mean(values_of(args, rejects, jobs)))
                error = (power * (1 - power) / len(jobs)) ** 0.5
                line |= {f"rows{name}": rows, f"power{name}": power, f"power{name}_error": error}
            yield {key: round(value, 4) for key, value in line.items()} | {
                "replicates": args.replicates
            }


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = command_line(__file__, __doc__, replicates=200, threads=1, jobs=True)
    parser.add_argument("--effects", type=float, nargs="+", default=[1.0], help="logits")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.1, 0.2, 0.3], help="of items")
    run(parser, lines, argv, quick={"replicates": 3, "noise": [0.1]})


if __name__ == "__main__":
    main()
