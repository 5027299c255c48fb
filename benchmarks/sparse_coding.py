"""Sparse coding on pairs of columns 5 and 10 degrees apart: JSON lines.

``fit`` with no method on the published dictionaries (drawn ones of the same distribution where the
file is not at hand), without noise and with it, beside table 5 of Buhai et al. (2020); and how
often decoders find the true support at the true dictionary. The paper's own algorithm is a setting
of ``make papers PAPER=noisy_or TABLE=5``. Run: ``python benchmarks/sparse_coding.py [--angles 5
10]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from _bench import Lines, command_line, run, seeds
from papers.cells import published
from papers.sparse_coding import load_paired_dictionary
from torch import Tensor

from inference import fit
from inference.inspection import column_recovery
from inference.structures.dictionary.decoders import (
    BackwardElimination,
    HardThresholding,
    Pursuit,
    Shrinkage,
    decode,
)
from ppl_models import SparseCoding
from ppl_models.datasets import paired_dictionary, sample_sparse_codes

PUBLISHED = published("sparse_coding")
NUM_HELD_OUT, SPARSITY = 1_000, 5


def dictionary_of(angle: int) -> tuple[Tensor, str]:
    try:
        return load_paired_dictionary(angle), "published"
    except FileNotFoundError:
        return paired_dictionary(angle), "drawn"


def ours(angle: int, args: argparse.Namespace) -> Lines:
    truth, source = dictionary_of(angle)
    for noise in args.noises:
        for seed in seeds(args):
            rows = sample_sparse_codes(truth, args.rows, SPARSITY, noise)[0][NUM_HELD_OUT:]
            result = fit(SparseCoding(100, truth.shape[1], SPARSITY, noise=None), rows, seed=seed)
            score = column_recovery(result.params["dictionary"], truth)
            yield {
                "what": "fit, no method given",
                "angle": angle,
                "dictionary": source,
                "noise": noise,
                "seed": seed,
                "recovered": score.num_recovered,
                "error": score.error,
                "largest_angle": float(score.angle.max()),
                "seconds": round(result.seconds, 2),
                "iterations": result.num_iterations,
                "published_24": PUBLISHED[f"{angle} degrees"]["24"],
                "published_48": PUBLISHED[f"{angle} degrees"]["48"],
            }


def decoders(angle: int, noise: float, num_rows: int) -> Lines:
    truth, _ = dictionary_of(angle)
    rows, codes = sample_sparse_codes(truth, num_rows, SPARSITY, noise, seed=1)
    for decoder in (Shrinkage(), Pursuit(), HardThresholding(), BackwardElimination()):
        began = time.perf_counter()
        found = decode(decoder, rows, truth.unsqueeze(0), SPARSITY)[0]
        seconds = time.perf_counter() - began
        hits = float(((found > 0) & (codes > 0)).sum() / (codes > 0).sum())
        claims = float(((found > 0) & (codes > 0)).sum() / (found > 0).sum())
        residual = float((rows - found @ truth.T).square().mean().sqrt())
        yield {
            "what": "decoder at the true dictionary",
            "decoder": repr(decoder),
            "angle": angle,
            "noise": noise,
            "recall_of_support": round(hits, 4),
            "precision_of_support": round(claims, 4),
            "error_of_codes": float((found - codes).square().sum(1).mean()),
            "residual": residual,
            "microseconds_a_row": round(1e6 * seconds / num_rows, 1),
        }


def measure(args: argparse.Namespace) -> Lines:
    for angle in args.angles:
        yield from ours(angle, args)
        for noise in (0.0, 0.001, 0.01):
            yield from decoders(angle, noise, min(2000, args.rows))


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=3)
    parser.add_argument("--angles", type=int, nargs="+", default=[5, 10])
    parser.add_argument(
        "--rows", type=int, default=10_000, help=f"{NUM_HELD_OUT} of them are left out of fits"
    )
    parser.add_argument("--noises", type=float, nargs="+", default=[0.0, 0.001, 0.003, 0.01])
    run(parser, measure, argv, {"replicates": 1, "angles": [10], "rows": 2500, "noises": [0.001]})


if __name__ == "__main__":
    main()
