"""How many signatures: our choice and the rivals' on the synthetic breast tumours, over seeds.

One JSON line a (set, seed): choices of ACDC by the last clear step, for other shares and by the
first wide interval of cutoffs, and of its rivals; what every K leaves; errors of matched signatures
and activities by K; seconds. With ``--fresh`` the counts are drawn anew for every seed, from the
same signatures and activities: what a rule that was made with the published counts in view does on
others. With ``--usage`` components may be absent from rows, and activities are drawn. Needs the
folder PPL_MODELS_DATA. Run: ``python benchmarks/acdc_breast.py [--seeds 3] [--restarts 10] [--sets
well_specified] [--fresh]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from _bench import Lines, command_line, run, seeds, timed

from inference.acdc import acdc
from inference.metrics import match_components
from inference.selection import compare_criteria, fit_grid
from ppl_models import PoissonFactorization, UsageFactorization
from ppl_models.datasets import load_breast, simulate_mutations
from ppl_models.datasets.mutational_signatures import SYNTHETIC_BREAST

SHARES, WIDTHS = (0.4, 0.45, 0.55, 0.6), (0.1, 0.3, 0.5)


def measure(args: argparse.Namespace) -> Lines:
    for seed in seeds(args):
        for name in args.sets:
            data = load_breast(name)
            counts = data.counts
            if args.fresh:
                counts = simulate_mutations(data.signatures, data.activities, name, 100 + seed)
            family, starts = (
                (UsageFactorization, 1) if args.usage else (PoissonFactorization, args.restarts)
            )
            sizes = range(args.smallest, args.largest + 1)
            fits, fitted = timed(
                partial(fit_grid, partial(family, 96), counts, sizes, starts, seed)
            )
            result, judged = timed(partial(acdc, fits, counts, seed=seed, num_draws=args.draws))
            choice, table = result.select(), compare_criteria(fits, counts, result)
            errors = {}
            for k, fit in fits.items():
                activities = (
                    fit.posterior_latents(counts)["activities"]
                    if fit.local is None
                    else fit.local["activities"]
                )
                match = match_components(
                    fit.params["signatures"], data.signatures, activities, data.activities
                )
                errors[k] = {
                    "cosine_worst": round(float(match.cosine_error.max()), 4),
                    "cosine_median": round(
                        float(sorted(match.cosine_error)[len(match.cosine_error) // 2]), 4
                    ),
                    "activity_worst": round(float(match.relative_difference.max()), 4),
                }
            yield {
                "set": name,
                "seed": seed,
                "usage": args.usage,
                "restarts": starts,
                "acdc": result.chosen,
                "finished": choice.finished,
                "fresh": args.fresh,
                "left": {k: round(v, 4) for k, v in result.left.items()},
                "by_share": {s: result.select(s).num_components for s in SHARES},
                "segments": [
                    [round(float(s.start), 3), round(float(s.end), 3), s.num_components]
                    for s in result.segments
                ],
                "by_width": {w: result.select(min_width=w).num_components for w in WIDTHS},
                "agreement": result.agreement,
                "rivals": {row: int(value) for row, value in table["chosen"].items()},
                "worst_at_choice": errors[result.chosen],
                "errors": errors,
                "log_likelihood": {k: round(fit.log_likelihood, 1) for k, fit in fits.items()},
                "seconds_fits": fitted,
                "seconds_acdc": judged,
            }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=3)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--sets", nargs="+", default=list(SYNTHETIC_BREAST))
    parser.add_argument("--smallest", type=int, default=2)
    parser.add_argument("--largest", type=int, default=13)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--fresh", action="store_true", help="draw the counts anew for every seed")
    parser.add_argument(
        "--usage", action="store_true", help="components that may be absent from rows"
    )
    run(
        parser,
        measure,
        argv,
        {
            "replicates": 1,
            "restarts": 1,
            "sets": ["well_specified"],
            "smallest": 7,
            "largest": 9,
            "draws": 1,
        },
    )


if __name__ == "__main__":
    main()
