"""Encoders whose deepest latents depend on covariates: bias of the coefficients, and how often
their intervals hold the truth.

One layer of two latents with five yes-or-no items each, or two latents above six with three items
each, with loadings that are large or middling, a number and one of two categories as covariates, EM
on the graph of the truth, and SAEM beside it. A line gives, over data sets and coefficients
(without intercepts), the mean error as a share of the truth, the root mean squared error, the mean
standard error over the spread of the estimates (1 where the errors are right), the share of 95%
intervals that hold the truth, and for SAEM the largest distance from EM in standard errors. Latents
are named as in the truth, by their items: with the graph given, their sign alone is free.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from _bench import command_line, run, seeds
from scipy.special import expit

from inference import EM, SAEM, Fit, fit
from inference.alignment import align
from inference.uncertainty import standard_errors
from ppl_models import Covariates, DeepDiscreteEncoder

TRUTH = np.array([[-0.5, 0.8, -1.0], [0.4, -0.6, 0.7]])
SIZES = {1: (2,), 2: (6, 2)}
LOADINGS = {"large": 4.0, "middling": 2.5}
EACH = {1: (5,), 2: (3, 3)}  # children of a latent, layer by layer


def draw(
    depth: int, items: str, num_rows: int, seed: int
) -> tuple[pd.DataFrame, dict[str, torch.Tensor], DeepDiscreteEncoder]:
    """Items with their covariates behind them, the truth, and the model that knows the graph."""
    rng = np.random.default_rng([seed, depth, len(items)])
    frame = pd.DataFrame({"age": rng.normal(size=num_rows), "sex": rng.integers(0, 2, num_rows)})
    odds = np.c_[np.ones(num_rows), frame.to_numpy()] @ TRUTH.T
    truth, graphs = {"coefficients": torch.tensor(TRUTH)}, []
    for d in range(depth, 0, -1):
        bits = (rng.random(odds.shape) < expit(odds)).astype(float)
        graph = np.kron(np.eye(SIZES[depth][d - 1]), np.ones((EACH[depth][d - 1], 1)))
        graphs.insert(0, graph)
        truth[f"loadings_{d}"] = torch.tensor(LOADINGS[items] * graph)
        truth[f"intercepts_{d}"] = -truth[f"loadings_{d}"].sum(-1) / 2
        odds = bits @ truth[f"loadings_{d}"].numpy().T + truth[f"intercepts_{d}"].numpy()
    answers = pd.DataFrame((rng.random(odds.shape) < expit(odds)).astype(float)).add_prefix("q")
    model = DeepDiscreteEncoder(
        answers.shape[1], SIZES[depth], graphs=tuple(graphs), covariates=Covariates(("age", "sex"))
    )
    return pd.concat([answers, frame], axis=1), truth, model


def named(found: Fit, truth: dict[str, torch.Tensor]) -> np.ndarray:
    """Coefficients under the truth's signs, without intercepts."""
    out: np.ndarray = align(found, truth).params["coefficients"].numpy()[:, 1:]
    return out


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for depth in args.depths:
        for items in args.items:
            values, errors, apart, failed = [], [], [], 0
            for seed in seeds(args):
                frame, truth, model = draw(depth, items, args.rows, seed)
                found = fit(model, frame, EM(), num_restarts=args.starts, seed=seed)
                try:
                    own = (
                        standard_errors(found, frame).standard_errors["coefficients"].numpy()[:, 1:]
                    )
                except ValueError:  # an estimate on its bound: no errors to speak of
                    failed += 1
                    continue
                values.append(named(found, truth))
                errors.append(own)
                if args.saem:
                    drawn = fit(model, frame, SAEM(), seed=seed)
                    apart.append(float(np.abs((named(drawn, truth) - values[-1]) / own).max()))
            estimates, spreads = np.stack(values), np.stack(errors)
            off, true = estimates - TRUTH[:, 1:], TRUTH[:, 1:]
            yield {
                "layers": depth,
                "items": items,
                "rows": args.rows,
                "data_sets": len(values),
                "failed": failed,
                "bias": round(float((off * np.sign(true)).mean() / np.abs(true).mean()), 3),
                "rmse": round(float(np.sqrt((off**2).mean())), 3),
                "error_over_spread": round(
                    float((spreads.mean(0) / estimates.std(0, ddof=1)).mean()), 3
                ),
                "coverage": round(float((np.abs(off) < 1.96 * spreads).mean()), 3),
                "saem_apart": round(max(apart), 3) if apart else None,
            }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=200, threads=1)
    parser.add_argument("--rows", type=int, default=600, help="of a data set (by default 600)")
    parser.add_argument(
        "--depths",
        type=int,
        nargs="+",
        choices=tuple(SIZES),
        default=list(SIZES),
        help="numbers of layers",
    )
    parser.add_argument(
        "--items",
        nargs="+",
        choices=tuple(LOADINGS),
        default=list(LOADINGS),
        help="how well items tell the latents",
    )
    parser.add_argument("--starts", type=int, default=1, help="of each fit")
    parser.add_argument("--saem", action="store_true", help="fit by SAEM too")
    run(
        parser,
        measure,
        argv,
        quick={"replicates": 3, "depths": [1], "items": ["large"], "rows": 300},
    )


if __name__ == "__main__":
    main()
