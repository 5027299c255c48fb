"""Recovery, held-out likelihood and seconds of the recommended fit of noisy-OR networks on the
published samples.

Independent ``fit`` calls (seeds 0, 1, ...) on the 9,000 training rows with a limit on the number of
latents well above the truth; the number itself is the engine's. One JSON line a fit, then one a
data set. ``excess`` is the held-out negative log-likelihood (exact up to 16 used latents, an upper
bound of it beyond) less that of the generating distribution on the same 1,000 rows.

Needs the published samples: ``PPL_MODELS_DATA=folder python benchmarks/noisy_or_recovery.py --sets
img plnt --replicates 20``.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import torch
from _bench import Lines, command_line, run, seeds, values_of

from inference import GrowAndPrune, fit
from inference.inspection import recovery, trim
from inference.programs import Program
from ppl_models import NoisyOr
from ppl_models.datasets.noisy_or import NoisyOrSample, load_noisy_or_sample

SETS = ("img", "plnt", "unif", "con8", "con24", "img_flip", "img_unif")


def true_log_likelihood(sample: NoisyOrSample, items: torch.Tensor) -> torch.Tensor:
    """Log-likelihood of rows under the distribution that made them."""
    params = sample.generator
    model = NoisyOr(sample.items.shape[1], len(params["prior"]))

    def rows(items: torch.Tensor) -> torch.Tensor:
        chunks = items.split(50)
        return torch.cat(
            [Program(model, part).log_marginal_rows(params).detach() for part in chunks]
        )

    plain = rows(items)
    if sample.flipped is None:
        return plain
    other = items.clone()
    other[:, ::4] = 1 - other[:, ::4]
    return torch.logaddexp(plain + torch.tensor(0.9).log(), rows(other) + torch.tensor(0.1).log())


def replicate(name: str, latents: int, method: GrowAndPrune, seed: int) -> dict:
    """One fit: latents it uses, true ones it found, held-out negative log-likelihood and
    seconds.
    """
    sample = load_noisy_or_sample(name)
    result = fit(
        NoisyOr(sample.items.shape[1], latents), sample.train, method, init="random", seed=seed
    )
    trimmed = trim(result)
    return {
        "latents": trimmed.model.num_latents,
        "recovered": recovery(result.params, sample.truth).num_recovered,
        "loss": -float(trimmed.log_likelihood_rows(sample.held_out).mean()),
        "seconds": result.seconds,
    }


def measure(args: argparse.Namespace) -> Lines:
    method = GrowAndPrune(
        num_search_rows=args.rows, num_proposals=args.proposals, patience=args.patience
    )
    for name in args.sets:
        sample = load_noisy_or_sample(name)
        oracle = -float(true_log_likelihood(sample, sample.held_out).mean())
        found, excesses, seconds = [], [], []
        fits = values_of(
            args,
            replicate,
            [
                {"name": name, "latents": args.latents, "method": method, "seed": seed}
                for seed in seeds(args)
            ],
        )
        for seed, one in zip(seeds(args), fits, strict=True):
            excess = one["loss"] - oracle
            found.append(one["recovered"])
            excesses.append(excess)
            seconds.append(one["seconds"])
            line = {"set": name, "seed": seed, "limit": args.latents, "latents": one["latents"]}
            yield line | {
                "recovered": one["recovered"],
                "excess": round(excess, 4),
                "seconds": round(one["seconds"], 2),
            }
        full = sum(number == 8 for number in found)
        line = {
            "set": name,
            "fits": args.replicates,
            "mean_recovered": statistics.mean(found),
            "full_share": full / args.replicates,
        }
        line |= {"oracle": round(oracle, 6), "mean_excess": round(statistics.mean(excesses), 4)}
        yield line | {
            "largest_excess": round(max(excesses), 4),
            "median_seconds": round(statistics.median(seconds), 2),
        }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20, jobs=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--latents", type=int, default=12, help="limit of the number of latents")
    parser.add_argument(
        "--rows", type=int, default=GrowAndPrune().num_search_rows, help="that the search sees"
    )
    parser.add_argument("--proposals", type=int, default=GrowAndPrune().num_proposals)
    parser.add_argument("--patience", type=int, default=GrowAndPrune().patience)
    run(
        parser,
        measure,
        argv,
        {"replicates": 1, "sets": ["img"], "latents": 4, "rows": 300, "patience": 1},
    )


if __name__ == "__main__":
    main()
