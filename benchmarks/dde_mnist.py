"""MNIST digits 0-3, Bernoulli deep discrete encoder (264; 5, 2): classification by five bits, and
reconstruction.

Labels are never used in fitting. A decision tree from the most probable first-layer code to the
label is fitted on the training rows and scored on the test rows; a pixel is reconstructed as 1
where its predictor given the code is positive. Published (Lee and Gu 2025, arXiv:2501.01414, table
3, two layers): classification 92.0 train, 92.6 test; reconstruction 79.6 train, 79.9 test. A
constant prediction reconstructs 62 per cent. One JSON line a seed; needs the data
(``PPL_MODELS_DATA`` or a network). ``--grid``: nine penalties, the slopes and thresholds of the
published grid, as one batch, and the best by EBIC. Run: ``python benchmarks/dde_mnist.py
[--replicates 3] [--restarts 6] [--grid]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from _bench import Lines, command_line, run, seeds
from sklearn.tree import DecisionTreeClassifier

from inference import EM, fit
from inference.selection import penalty_path
from ppl_models import DeepDiscreteEncoder, TruncatedLasso
from ppl_models.datasets import load_mnist_digits


def measure(args: argparse.Namespace) -> Lines:
    digits = load_mnist_digits()
    sets = {"train": (digits.items, digits.labels), "test": (digits.test_items, digits.test_labels)}
    rows = digits.items[: args.rows]
    for seed in seeds(args):
        model = DeepDiscreteEncoder(
            264, (5, 2), penalty=TruncatedLasso.for_rows(len(rows)), bound=15.0
        )
        method = EM(tolerance=1e-7, parameter_tolerance=1e-3)
        scores = []
        if args.grid:
            powers = [len(rows) ** (0.9 * q / 8) for q in (2, 3, 4)]
            grid = [
                TruncatedLasso(slope, 2 * power / len(rows) ** 0.5)
                for slope in powers
                for power in powers
            ]
            path = penalty_path(model, rows, grid, method, num_restarts=args.restarts, seed=seed)
            result = path.penalised[path.chosen]
            scores = [
                {"penalty": repr(p), "ebic": s}
                for p, s in zip(path.penalties, path.scores, strict=True)
            ]
        else:
            result = fit(model, rows, method, num_restarts=args.restarts, seed=seed)
        line = {
            "grid": scores,
            "penalty": repr(result.model.penalty),
            "seed": seed,
            "rows": len(rows),
            "restarts": args.restarts,
            "objectives": result.restarts.objective.tolist(),
            "seconds": result.seconds,
            "iterations": result.num_iterations,
        }
        tree = DecisionTreeClassifier(random_state=0)
        for name, (items, labels) in sets.items():
            codes = result.decode_latents(items)["latents_1"]
            tree = tree.fit(codes, labels) if name == "train" else tree
            predictor = codes @ result.params["loadings_1"].mT + result.params["intercepts_1"]
            line[f"classification_{name}"] = tree.score(codes, labels)
            line[f"reconstruction_{name}"] = float(
                ((predictor > 0).double() == torch.as_tensor(items)).double().mean()
            )
        yield line | {
            "published_classification_test": 0.926,
            "published_reconstruction_test": 0.799,
        }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=3, threads=1)
    parser.add_argument("--restarts", type=int, default=6)
    parser.add_argument(
        "--rows", type=int, default=None, help="of the training digits, by default all"
    )
    parser.add_argument("--grid", action="store_true", help="nine penalties, the best by EBIC")
    run(parser, measure, argv, {"replicates": 1, "restarts": 1, "rows": 2000})


if __name__ == "__main__":
    main()
