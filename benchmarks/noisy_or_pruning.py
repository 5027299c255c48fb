"""Superfluous latents of noisy-OR networks: the published thresholds beside description length.

Exact EM with more latents than the truth has, one random start a fit. From each fit: the latents
that the thresholds of Buhai et al. (2020) keep, as they stand; the same with doubles merged and
refitted (``filter_merge_refit``); and what is left when the search by description length begins
there (``fit(..., GrowAndPrune(), init=fit)``, which may add latents too). Of each the number of
latents, how many are none of the truth's, how many of the truth's are missed, and ``excess``: the
negative log-likelihood a held-out row over that of the distribution. One JSON line a network. Run:
``python benchmarks/noisy_or_pruning.py [--quick]`` (some two minutes).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

from _bench import Lines, command_line, run, seeds
from torch import Tensor

from inference import EM, Fit, GrowAndPrune, fit
from inference.inspection import filter_latents, filter_merge_refit, recovery, trim
from inference.structures.noisy_or.likelihood import log_likelihood_rows
from ppl_models import NoisyOr
from ppl_models.datasets import image_design, sample_noisy_or
from ppl_models.datasets.noisy_or import random_design, uniform_design

SETS = {"img": image_design, "unif": uniform_design, "con8": lambda: random_design(8)}


def as_it_stands(result: Fit) -> Fit:
    """The latents that the thresholds keep, nothing refitted."""
    kept = list(filter_latents(result.params).kept)
    params = result.params | {name: result.params[name][kept] for name in ("prior", "failure")}
    return replace(result, model=replace(result.model, num_latents=len(kept)), params=params)  # type: ignore[type-var]


def figures(
    what: str, result: Fit, seconds: float, truth: dict[str, Tensor], held_out: Tensor
) -> dict[str, object]:
    found = recovery(result.params, truth)
    latents = result.model.num_latents  # type: ignore[attr-defined]
    true_log_likelihood = log_likelihood_rows(
        NoisyOr(held_out.shape[1], len(truth["prior"])).causes(), held_out, truth
    )
    line = {"what": what, "latents": latents, "superfluous": latents - found.num_recovered}
    line |= {"missed": found.num_true - found.num_recovered}
    line |= {
        "excess": round(
            float((true_log_likelihood - result.log_likelihood_rows(held_out)).mean()), 4
        )
    }
    return line | {"seconds": round(seconds, 1)}


def measure(args: argparse.Namespace) -> Lines:
    for name in args.sets:
        truth = SETS[name]()
        rows = sample_noisy_or(truth, args.rows + 1000, seed=0)[0]
        data, held_out = rows[1000:], rows[:1000]
        for seed in seeds(args):
            case = {"set": name, "seed": seed}
            wide = fit(
                NoisyOr(64, args.latents),
                data,
                EM(max_iterations=100, tolerance=1e-6),
                "random",
                seed=seed,
            )
            yield case | figures("exact EM", wide, wide.seconds, truth, held_out)
            yield case | figures(
                "thresholds, as it stands", as_it_stands(wide), 0.0, truth, held_out
            )
            began = time.perf_counter()
            _, again = filter_merge_refit(wide, data)
            yield case | figures(
                "thresholds, merged and refitted",
                again,
                time.perf_counter() - began,
                truth,
                held_out,
            )
            pruned = fit(wide.model, data, GrowAndPrune(), init=wide, seed=seed)
            yield case | figures(
                "description length", trim(pruned), pruned.seconds, truth, held_out
            )


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=3)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--latents", type=int, default=10)
    parser.add_argument("--rows", type=int, default=3000)
    run(parser, measure, argv, {"replicates": 1, "sets": ["con8"], "latents": 4, "rows": 400})


if __name__ == "__main__":
    main()
