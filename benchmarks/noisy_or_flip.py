"""How near a noisy-OR network can come to IMG-FLIP, whose law is not one: EM from networks designed with the truth in hand.

In a tenth of the rows sixteen pixels are flipped, so pixels of a latent that is on go off: a noisy OR cannot do that. The
design has the eight latents; for every subset of the ``--together`` latents that cover most flipped pixels one latent for
"flipped, and these are on"; and for each other one a copy without the flipped pixels. EM (truncated) from there, edges that
are not worth their price taken away; one JSON line a design. ``excess`` is that of a lower bound of the log-likelihood over
the generating law's, so the truth lies below it. Needs the published samples:
``PPL_MODELS_DATA=folder python benchmarks/noisy_or_flip.py [--together 0,1,2,3]``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import torch
from noisy_or_recovery import law
from torch import Tensor

from inference.causes_em import CauseRows
from inference.causes_polish import Polish
from inference.causes_search import Search
from inference.causes_truncated import TruncatedSteps
from inference.grow_and_prune import GrowAndPrune
from inference.progress import NoProgress
from ppl_models import NoisyOr
from ppl_models.datasets import NoisyOrSample, load_noisy_or_sample

COVERING = (2, 1, 0, 5, 6, 3, 4)  # the latents with flipped pixels, most first


def design(sample: NoisyOrSample, together: int) -> dict[str, Tensor]:
    truth = sample.truth
    on = truth["failure"] < 0.5
    flipped = torch.zeros(64, dtype=torch.bool)
    flipped[::4] = True
    prior, patterns = [], []
    for subset in itertools.product((False, True), repeat=together):
        cover = on[[i for i, there in zip(COVERING, subset, strict=False) if there]].any(0)
        patterns.append(torch.where(flipped, ~cover, cover))
        prior.append(0.1 * 0.25 ** sum(subset) * 0.75 ** (together - sum(subset)))
    for i in COVERING[together:]:
        patterns.append(on[i] & ~flipped)
        prior.append(0.02)
    failure = torch.where(torch.stack(patterns), 0.1, 0.99).double()
    return {
        "prior": torch.cat([truth["prior"], torch.tensor(prior, dtype=torch.float64)])[None],
        "failure": torch.cat([truth["failure"].clamp(max=0.999), failure])[None],
        "leak": truth["leak"][None],
    }


def bound(steps: TruncatedSteps, params: dict[str, Tensor]) -> float:
    for _ in range(4):
        steps = steps.refreshed(params)
    return float(steps.log_likelihood_rows(params) @ steps.rows.counts) / steps.rows.num_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--together", default="0,1,2,3", help="sizes, separated by commas")
    parser.add_argument("--iterations", type=int, default=40)
    args = parser.parse_args()
    sample = load_noisy_or_sample("img_flip")
    oracle, oracle_train = (float(law(sample, items).mean()) for items in (sample.held_out, sample.train))
    for together in map(int, args.together.split(",")):
        began = time.perf_counter()
        params = design(sample, together)
        causes = NoisyOr(64, params["prior"].shape[1]).causes()
        rows, held = CauseRows.merge(sample.train), CauseRows.merge(sample.held_out)
        single = rows.to(torch.float32)
        search = Search(causes, single, single, single, torch.Generator(), 1, 1, 1, 0.05)
        likely = search.likely(single, {name: value.float() for name, value in params.items()}, 1024, 4096).double()
        polish = Polish(TruncatedSteps.begin(causes, rows, likely, params), params, NoProgress())
        polish.climb(args.iterations, GrowAndPrune().tolerance * 10)
        while polish.thin():
            polish.climb(args.iterations, GrowAndPrune().tolerance * 10)
        params = polish.params
        line = {"set": "img_flip", "together": together, "latents": causes.num_causes, "edges": int(polish.steps.edges.sum())}
        line["excess_train"] = round(oracle_train - polish.log_likelihood / rows.num_rows, 4)
        line["excess"] = round(oracle - bound(TruncatedSteps.begin(causes, held, likely, params), params), 4)
        line |= {"seconds": round(time.perf_counter() - began, 1), "threads": torch.get_num_threads()}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
