"""PLNT from the raw data by the construction of Buhai et al. (2020): a network fitted to the
plants, pruned, sampled, found again.

A fit of at most 20 latents to the 34,781 plants; priors up to 0.01 and failures from 0.5 on are
dropped (``thresholded``), as the authors did with theirs. One JSON line tells how near the truth so
made is to the published one, another whether the recommended fit finds it again in 9,000 rows drawn
from it. Ours explains the plants with more latents than theirs, for it finds a better optimum.
Needs the published files: ``PPL_MODELS_DATA=folder python benchmarks/noisy_or_plants.py [--rows
N]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from _bench import Lines, command_line, run
from papers.noisy_or import load_plant_regions, thresholded

from inference import GrowAndPrune, fit
from inference.inspection import recovery
from inference.structures.noisy_or.likelihood import log_likelihood_rows
from ppl_models import NoisyOr
from ppl_models.datasets import sample_noisy_or
from ppl_models.datasets.noisy_or import load_noisy_or_sample


def measure(args: argparse.Namespace) -> Lines:
    plants = torch.from_numpy(load_plant_regions().items)
    rows = plants[
        torch.randperm(len(plants), generator=torch.Generator().manual_seed(0))[: args.rows]
    ]
    result = fit(NoisyOr(70, args.latents), rows, GrowAndPrune(), init="random")
    truth, published = thresholded(result.params), load_noisy_or_sample("plnt").truth
    near = recovery(truth, published)
    causes = NoisyOr(70, 8).causes()
    at_published = float(log_likelihood_rows(causes, rows, published).sum())
    line = {
        "what": "plants",
        "rows": len(rows),
        "latents": len(truth["prior"]),
        "latents_published": 8,
    }
    line |= {
        "published_found": near.num_recovered,
        "log_likelihood_a_row": round(result.elbo / len(rows), 4),
    }
    line |= {"of_the_published_truth": round(at_published / len(rows), 4)}
    yield line | {"seconds": round(result.seconds, 1)}
    again = fit(NoisyOr(70, 16), sample_noisy_or(truth, args.drawn, seed=0)[0], seed=0)
    found = recovery(again.params, truth).num_recovered
    line = {
        "what": "the truth so made, found again",
        "rows": args.drawn,
        "latents": len(truth["prior"]),
        "recovered": found,
    }
    yield line | {"seconds": round(again.seconds, 1)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__)
    parser.add_argument("--latents", type=int, default=12, help="limit of the number of latents")
    parser.add_argument("--rows", type=int, default=34781, help="of the plants, drawn at random")
    parser.add_argument(
        "--drawn", type=int, default=9000, help="rows drawn from the network so made"
    )
    run(parser, measure, argv, {"latents": 4, "rows": 1000, "drawn": 500})


if __name__ == "__main__":
    main()
