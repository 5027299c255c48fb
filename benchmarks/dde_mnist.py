"""MNIST digits 0-3, Bernoulli deep discrete encoder (264; 5, 2): classification by five bits, and reconstruction.

Labels are never used in fitting. A decision tree from the most probable first-layer code to the label is fitted on the
training rows and scored on the test rows; a pixel is reconstructed as 1 where its predictor given the code is positive.
Published (Lee and Gu 2025, arXiv:2501.01414, table 3, two layers): classification 92.0 train, 92.6 test; reconstruction
79.6 train, 79.9 test. A constant prediction reconstructs 62 per cent. One JSON line a seed; needs the data
(``PPL_MODELS_DATA`` or a network). ``--grid``: nine penalties, the slopes and thresholds of the published grid, as one batch, and
the best by EBIC. Run: ``python benchmarks/dde_mnist.py [--seeds 3] [--restarts 6] [--grid]``.
"""

from __future__ import annotations

import argparse
import json
import warnings

import torch
from sklearn.tree import DecisionTreeClassifier

from inference import EM, fit
from inference.selection import penalty_path
from ppl_models import DeepDiscreteEncoder, TruncatedLasso
from ppl_models.datasets import load_mnist_digits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--restarts", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    digits = load_mnist_digits()
    sets = {"train": (digits.items, digits.labels), "test": (digits.test_items, digits.test_labels)}
    for seed in range(args.seeds):
        model = DeepDiscreteEncoder(264, (5, 2), penalty=TruncatedLasso.for_rows(len(digits.items)))
        method = EM(tolerance=1e-7, parameter_tolerance=1e-3)
        scores = []
        if args.grid:
            powers = [len(digits.items) ** (0.9 * q / 8) for q in (2, 3, 4)]
            grid = [TruncatedLasso(slope, 2 * power / len(digits.items) ** 0.5) for slope in powers for power in powers]
            path = penalty_path(model, digits.items, grid, method, num_restarts=args.restarts, seed=seed)
            result = path.penalised[path.chosen]
            scores = [{"penalty": repr(p), "ebic": s} for p, s in zip(path.penalties, path.scores, strict=True)]
        else:
            result = fit(model, digits.items, method, num_restarts=args.restarts, seed=seed)
        line = {
            "grid": scores,
            "penalty": repr(result.model.penalty),
            "benchmark": "dde_mnist",
            "seed": seed,
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
            line[f"reconstruction_{name}"] = float(((predictor > 0).double() == torch.as_tensor(items)).double().mean())
        line |= {"published_classification_test": 0.926, "published_reconstruction_test": 0.799}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
