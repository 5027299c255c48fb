"""Superfluous latents of noisy-OR networks: the published thresholds beside description length.

Exact EM with more latents than the truth has, one random start a fit. From each fit: the latents that the thresholds of Buhai
et al. (2020) keep, as they stand; the same with doubles merged and refitted (``filter_merge_refit``); and what is left when the
search by description length begins there (``fit(..., GrowAndPrune(), init=fit)``, which may add latents too). Of each the number
of latents, how many are none of the truth's, how many of the truth's are missed, and ``excess``: the negative log-likelihood a held-out
row over that of the law. One JSON line a network. Run: ``python benchmarks/noisy_or_pruning.py [--quick]`` (some two minutes).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import replace

import torch
from torch import Tensor

from inference import EM, Fit, GrowAndPrune, fit
from inference.inspection import filter_latents, filter_merge_refit, recovery, trim
from inference.structures.noisy_or.likelihood import log_likelihood_rows
from ppl_models import NoisyOr
from ppl_models.datasets import image_design, random_design, sample_noisy_or, uniform_design


def as_it_stands(result: Fit) -> Fit:
    """The latents that the thresholds keep, nothing refitted."""
    kept = list(filter_latents(result.params).kept)
    params = result.params | {name: result.params[name][kept] for name in ("prior", "failure")}
    return replace(result, model=replace(result.model, num_latents=len(kept)), params=params)  # type: ignore[type-var]


def report(what: str, result: Fit, seconds: float, truth: dict[str, Tensor], held_out: Tensor, **more: object) -> None:
    found = recovery(result.params, truth)
    latents = result.model.num_latents  # type: ignore[attr-defined]
    law = log_likelihood_rows(NoisyOr(held_out.shape[1], len(truth["prior"])).causes(), held_out, truth)
    line = {**more, "what": what, "latents": latents, "superfluous": latents - found.num_recovered}
    line |= {"missed": found.num_true - found.num_recovered}
    line |= {"excess": round(float((law - result.log_likelihood_rows(held_out)).mean()), 4)}
    print(json.dumps(line | {"seconds": round(seconds, 1), "threads": torch.get_num_threads()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sets", default="img,unif,con8")
    parser.add_argument("--fits", type=int, default=3)
    parser.add_argument("--latents", type=int, default=10)
    parser.add_argument("--rows", type=int, default=3000)
    args = parser.parse_args()
    quick = args.quick
    designs = {"img": image_design, "unif": uniform_design, "con8": lambda: random_design(8)}
    for name in ("con8",) if quick else args.sets.split(","):
        truth = designs[name]()
        rows = sample_noisy_or(truth, (400 if quick else args.rows) + 1000, seed=0)[0]
        data, held_out = rows[1000:], rows[:1000]
        for seed in range(1 if quick else args.fits):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # EM is stopped where a search would go on
                wide = fit(NoisyOr(64, 4 if quick else args.latents), data, EM(max_iterations=100, tolerance=1e-6), "random", seed=seed)
                report("exact EM", wide, wide.seconds, truth, held_out, set=name, seed=seed)
                report("thresholds, as it stands", as_it_stands(wide), 0.0, truth, held_out, set=name, seed=seed)
                began = time.perf_counter()
                _, again = filter_merge_refit(wide, data)
                report("thresholds, merged and refitted", again, time.perf_counter() - began, truth, held_out, set=name, seed=seed)
                pruned = fit(wide.model, data, GrowAndPrune(), init=wide, seed=seed)
                report("description length", trim(pruned), pruned.seconds, truth, held_out, set=name, seed=seed)


if __name__ == "__main__":
    main()
