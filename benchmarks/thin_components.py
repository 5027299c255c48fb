"""Thin components that EM finds in rows of one group: how much of their gain is chance.

A component of n rows whose variance in one direction is w times the data's gains (n/2) log(1/w)
nats there. Mixtures of full normals are fitted from many starts to rows of one normal,
heavy-tailed, skewed or rounded distribution; a line gives, for the solutions with w below
``LEAST_WIDTH``, the largest gain as a multiple of p log N, p the parameters of a component. The
border in ``inference/base/component_distributions/normal.py`` is three.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds

from inference import EM, fit
from ppl_models import Mixture, MultivariateNormal
from ppl_models.descriptions.row_distributions import LEAST_WIDTH

SIZES = ((100, 2, 4), (300, 2, 5), (300, 4, 5), (1000, 4, 6), (1000, 8, 5), (3000, 3, 6))


def rows(kind: str, num_rows: int, num_items: int, seed: int) -> np.ndarray:
    """Rows of one group."""
    rng = np.random.default_rng(seed)
    if kind == "heavy-tailed":
        return rng.standard_t(3, size=(num_rows, num_items))
    normal = rng.normal(size=(num_rows, num_items))
    if kind == "skewed":
        return np.exp(0.7 * normal)
    return np.round(normal / 0.05) * 0.05 if kind == "rounded" else normal


def gains(x: np.ndarray, num_components: int, num_starts: int, seed: int) -> list[float]:
    """Gains of thin components over all starts, in p log N."""
    num_rows, size = x.shape
    model = Mixture(num_components, MultivariateNormal(), size)
    found = fit(model, x, EM(), num_restarts=num_starts, seed=seed).restarts.params
    counts = num_rows * found["weights"]
    factor = torch.linalg.cholesky(torch.as_tensor(np.cov(x.T, bias=True)))
    widths = torch.linalg.eigvalsh(factor.mT @ found["precisions"] @ factor)[..., -1].reciprocal()
    chance = size * (size + 3) / 2 * math.log(num_rows)
    thin = (widths < LEAST_WIDTH) & (counts >= size + 1)
    return (counts * widths.log() / -2 / chance)[thin].tolist()


def measure(args: argparse.Namespace) -> Lines:
    """One line a kind of rows and size."""
    for kind in ("normal", "heavy-tailed", "skewed", "rounded"):
        for num_rows, num_items, num_components in SIZES[: args.sizes]:
            found = [
                gain
                for seed in seeds(args)
                for gain in gains(
                    rows(kind, num_rows, num_items, seed), num_components, args.starts, seed
                )
            ]
            yield {
                "kind": kind,
                "rows": num_rows,
                "columns": num_items,
                "components": num_components,
                "thin": len(found),
                "largest_gain": round(max(found, default=0.0), 2),
            }


def main(argv: Sequence[str] | None = None) -> None:
    """Run with the options of the command line."""
    parser = command_line(__file__, __doc__, replicates=3, threads=1)
    parser.add_argument("--starts", type=int, default=40, metavar="N", help="of each data set")
    parser.add_argument("--sizes", type=int, default=len(SIZES), metavar="N", help="the first N")
    run(parser, measure, argv, quick={"replicates": 1, "starts": 10, "sizes": 2})


if __name__ == "__main__":
    main()
