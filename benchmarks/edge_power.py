"""Rows that an edge among attributes needs to be seen, and the power of the test at so many.

Two attributes, four DINA items each, whose guess and slip are given, and an effect of one attribute
on the other in logits. ``rows`` is the calculator's answer for a power of .8 at level .05
(``AttributeNetwork.rows_needed`` with the true information and the share of it that measurement
leaves, from draws of the attributes of 20,000 rows); ``power`` the share of data sets of so many
rows in which the likelihood ratio of a free table to one of independent attributes rejects, the
items known, with its standard error; ``power_naive`` the same at the rows that known attributes
would need, ``level`` without an effect. One JSON line a design. Run: ``python
benchmarks/edge_power.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from _bench import Lines, command_line, run, seeds
from scipy.stats import chi2

from inference.causal.independence import dependence
from inference.causal.structural_em import rows_needed, shares
from inference.causal.tables import Marginals

ITEMS = 4
LEVEL = 0.05
ITERATIONS = 300  # of EM
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


def high_point(likelihood: np.ndarray, joined: bool) -> np.ndarray:
    """Maximum of the log-likelihood over tables, free or of independent attributes, by EM, (B,).

    Args:
        likelihood: P(answers | profile), (B, N, 4).
        joined: whether the table is free.
    """
    table = np.full((len(likelihood), 4), 0.25)
    for _ in range(ITERATIONS):
        joint = likelihood * table[:, None]
        total = joint.sum(2, keepdims=True)
        table = (joint / total).mean(1)
        if not joined:
            square = table.reshape(-1, 2, 2)
            table = (square.sum(2)[:, :, None] * square.sum(1)[:, None]).reshape(-1, 4)
    value: np.ndarray = np.log((likelihood * table[:, None]).sum(2)).sum(1)
    return value


def power_at(effect: float, noise: float, rows: int, sets: Sequence[int]) -> float:
    """Share of data sets in which the likelihood ratio of the edge rejects at level .05."""
    profiles = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    chance = np.where(profiles @ Q_MATRIX.T == 1, 1 - noise, noise)
    parts = []
    for seed in sets:
        _, data = answers(effect, noise, rows, np.random.default_rng([seed, rows]))
        parts.append(np.exp(data @ np.log(chance).T + (1 - data) @ np.log(1 - chance).T))
    likelihood = np.stack(parts)
    statistic = 2 * (high_point(likelihood, True) - high_point(likelihood, False))
    return float((statistic > chi2.isf(LEVEL, 1)).mean())


def lines(args: argparse.Namespace) -> Lines:
    """Line by line: an effect, a noise."""
    for effect in args.effects:
        for noise in args.noise:
            information = dependence(Marginals(table_of(effect)), 1e6, 0, 1).information
            share = share_of(effect, noise)
            line = {"effect": effect, "noise": noise, "information": information, "share": share}
            for name, own in (("", share), ("_naive", 1.0)):
                rows = round(rows_needed(information, own, LEVEL))
                power = power_at(effect, noise, rows, seeds(args))
                error = (power * (1 - power) / args.replicates) ** 0.5
                line |= {f"rows{name}": rows, f"power{name}": power, f"power{name}_error": error}
            line["level"] = power_at(0.0, noise, rows, seeds(args))
            rounded = {key: round(value, 4) for key, value in line.items()}
            yield rounded | {"replicates": args.replicates}


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = command_line(__file__, __doc__, replicates=400, threads=1)
    parser.add_argument("--effects", type=float, nargs="+", default=[1.0, 2.0], help="logits")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.1, 0.2, 0.3], help="of items")
    run(parser, lines, argv, quick={"replicates": 3, "noise": [0.1]})


if __name__ == "__main__":
    main()
