"""How many signatures: our choice and the rivals' on the synthetic breast tumours, over seeds.

One JSON line a (set, seed): choices of ACDC, of ACDC taking narrower intervals, without a null, and of its rivals; intervals of the
cutoff; errors of matched signatures and activities by K; seconds.
Needs the folder PPL_MODELS_DATA. Run: ``python benchmarks/acdc_breast.py [--seeds 3] [--restarts 10] [--sets well_specified]``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

from inference.acdc import NoNull, acdc
from inference.component_metrics import match_components
from inference.component_selection import compare_criteria, fit_grid
from ppl_models import PoissonFactorization
from ppl_models.datasets import SYNTHETIC_BREAST, load_breast


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--sets", nargs="*", default=list(SYNTHETIC_BREAST))
    parser.add_argument("--largest", type=int, default=13)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.sets:
        data = load_breast(name)
        for seed in range(options.seeds):
            began, cpu = time.perf_counter(), time.process_time()
            fits = fit_grid(
                lambda k: PoissonFactorization(96, k), data.counts, range(2, options.largest + 1), options.restarts, seed
            )
            fitted = time.perf_counter() - began
            result = acdc(fits, data.counts, seed=seed)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            raw = acdc(fits, data.counts, seed=seed, calibrate=NoNull())
            narrow = result.select(min_width=0.1)
            choice, table = result.select(), compare_criteria(fits, data.counts, result)
            errors = {}
            for k, fit in fits.items():
                match = match_components(
                    fit.params["signatures"], data.signatures, fit.local["activities"], data.activities
                )
                errors[k] = {
                    "cosine_worst": round(float(match.cosine_error.max()), 4),
                    "cosine_median": round(float(sorted(match.cosine_error)[len(match.cosine_error) // 2]), 4),
                    "activity_worst": round(float(match.relative_difference.max()), 4),
                }
            record = {
                "benchmark": "acdc_breast", "set": name, "seed": seed, "restarts": options.restarts,
                "acdc": result.chosen, "stable": choice.stable, "interval": [round(choice.segment.start, 4), round(choice.segment.end, 4)],
                "acdc_raw": raw.chosen, "acdc_width_0.1": narrow.num_components, "agreement": result.agreement, "by_width": sorted(set(result.sensitivity().values())),
                "rivals": {row: int(value) for row, value in table["chosen"].items()},
                "worst_at_choice": errors[result.chosen], "errors": errors,
                "log_likelihood": {k: round(fit.log_likelihood, 1) for k, fit in fits.items()},
                "seconds_fits": round(fitted, 2), "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2),
            }  # fmt: skip
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
