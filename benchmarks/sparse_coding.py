"""Sparse coding on pairs of columns 5 and 10 degrees apart, beside table 5 of Buhai et al. (2020):
JSON lines.

``fit`` with no method on the published dictionaries (drawn ones of the same distribution where the
file is not at hand), without noise and with it; how often decoders find the true support at the
true dictionary; and the paper's alternating minimisation from its own start (``--paper``), all
restarts as one batch. The rows of the paper lie in 24 dims, so its run is made in rotated
coordinates that hold those dims and the columns' parts outside: the same iterates, up to rotation,
at half the cost. ``--step`` and ``--batch`` may be larger than the paper's 0.1 and 20; step times
number of updates
is what its 2,000 epochs come to, 90,000. Run: ``python benchmarks/sparse_coding.py [--paper]
[--restarts 20] [--columns 24 48] [--angles 5 10]``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import torch
from _bench import Lines, command_line, run, seeds
from papers.cells import published
from papers.sparse_coding import load_paired_dictionary
from torch import Tensor

from inference import fit
from inference.base.progress import NoProgress
from inference.fitting.problem import problem_of
from inference.inspection import column_recovery
from inference.inspection.dictionary import used_columns
from inference.structures.dictionary.alternating import GradientAlternation
from inference.structures.dictionary.decoders import (
    BackwardElimination,
    HardThresholding,
    Pursuit,
    Shrinkage,
    decode,
    unit_columns,
)
from ppl_models import SparseCoding
from ppl_models.datasets import paired_dictionary, sample_sparse_codes

PUBLISHED = published("sparse_coding")
NUM_HELD_OUT, SPARSITY = 1_000, 5
TOTAL_STEP = 90_000.0  # 0.1 x 450 updates x 2,000 epochs


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


def rotated(
    truth: Tensor, rows: Tensor, num_columns: int, restarts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Truth, rows and the paper's starts (R, rank + m, m) in coordinates of the rows' span and of
    what lies outside it.
    """
    rank = truth.shape[1]
    basis = torch.linalg.svd(rows, full_matrices=False)[2][:rank]  # (rank, J)
    generator = torch.Generator().manual_seed(0)
    start = unit_columns(
        torch.randn(restarts, truth.shape[0], num_columns, generator=generator, dtype=torch.float64)
    )
    outside = torch.linalg.qr(
        start - basis.mT @ (basis @ start)
    ).R  # (R, m, m): lengths and angles are kept
    pad = torch.zeros(len(rows), num_columns, dtype=rows.dtype)
    truth = torch.cat([basis @ truth, rows.new_zeros(num_columns, truth.shape[1])])
    return truth, torch.cat([rows @ basis.mT, pad], 1), torch.cat([basis @ start, outside], 1)


def paper(angle: int, num_columns: int, args: argparse.Namespace) -> Lines:
    restarts, step, batch, share = args.restarts, args.step, args.batch, args.share
    truth, source = dictionary_of(angle)
    rows = sample_sparse_codes(truth, args.rows, SPARSITY)[0][NUM_HELD_OUT:]
    truth, rows, start = rotated(truth, rows, num_columns, restarts)
    epochs = round(share * TOTAL_STEP / (step * len(rows) / batch))
    problem = problem_of(SparseCoding(rows.shape[1], num_columns, SPARSITY), rows, 0)
    method = GradientAlternation(step=step, batch_size=batch, num_epochs=epochs)
    began = time.perf_counter()
    dictionaries = method.run(problem, {"dictionary": start}, NoProgress(), None).params[
        "dictionary"
    ]
    seconds = time.perf_counter() - began
    scores = [column_recovery(dictionary, truth) for dictionary in dictionaries]
    counts, errors = [s.num_recovered for s in scores], [s.error for s in scores]
    kept = [len(used_columns(dictionary, rows)) for dictionary in dictionaries]
    spread = 1.96 / restarts**0.5
    yield {
        "what": "the paper's alternating minimisation",
        "angle": angle,
        "columns": num_columns,
        "dictionary": source,
        "restarts": restarts,
        "step": step,
        "batch": batch,
        "epochs": epochs,
        "share_of_the_papers_run": share,
        "recovered": round(statistics.mean(counts), 3),
        "recovered_ci95": round(spread * statistics.stdev(counts), 3),
        "full_percent": 100 * sum(s.is_full for s in scores) / restarts,
        "error": round(statistics.mean(errors), 4),
        "error_ci95": round(spread * statistics.stdev(errors), 4),
        "columns_used": round(statistics.mean(kept), 2),
        "seconds": round(seconds, 1),
        "published": PUBLISHED[f"{angle} degrees"][str(num_columns)],
    }


def measure(args: argparse.Namespace) -> Lines:
    for angle in args.angles:
        if not args.only_paper:
            yield from ours(angle, args)
            for noise in (0.0, 0.001, 0.01):
                yield from decoders(angle, noise, min(2000, args.rows))
        if args.paper or args.only_paper:
            for columns in args.columns:
                yield from paper(angle, columns, args)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=3)
    parser.add_argument("--angles", type=int, nargs="+", default=[5, 10])
    parser.add_argument(
        "--columns", type=int, nargs="+", default=[24, 48], help="of the paper's algorithm"
    )
    parser.add_argument(
        "--rows", type=int, default=10_000, help=f"{NUM_HELD_OUT} of them are left out of fits"
    )
    parser.add_argument(
        "--paper", action="store_true", help="run the paper's algorithm too: minutes to hours"
    )
    parser.add_argument("--only-paper", action="store_true")
    parser.add_argument("--restarts", type=int, default=20, help="of the paper's algorithm")
    parser.add_argument("--noises", type=float, nargs="+", default=[0.0, 0.001, 0.003, 0.01])
    parser.add_argument("--step", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the paper's number of updates times step"
    )
    run(parser, measure, argv, {"replicates": 1, "angles": [10], "rows": 2500, "noises": [0.001]})


if __name__ == "__main__":
    main()
