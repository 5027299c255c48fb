"""Mixtures whose likelihood is wrong: how often ACDC, with one rule fixed beforehand, and BIC find the true number.

Rule: normal components by nearest neighbours, counts by the plug-in estimate, null subtracted; the first interval of cutoffs
of width 0.3 from zero upward, as for every model. One JSON line a case. Run: ``python benchmarks/acdc_mixtures.py [--replicates 5]``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter

from inference.acdc import PlugIn, acdc
from inference.component_selection import fit_grid
from inference.discrepancy import KNN
from ppl_models import Mixture, Normal, Poisson
from ppl_models.datasets import negative_binomial_mixture, skew_normal_mixture

CASES = {
    "big-small": ((-10.0, -1.0), (0.95, 0.05)),
    "small-big": ((-1.0, -10.0), (0.95, 0.05)),
    "equal": ((-10.0, -10.0), (0.5, 0.5)),
    "no skew": ((0.0, 0.0), (0.5, 0.5)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicates", type=int, default=5)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--largest", type=int, default=6)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in (*CASES, "negative binomial"):
        counts = name == "negative binomial"
        chosen, bic, began = [], [], time.perf_counter()
        for seed in range(options.replicates):
            if counts:
                x, _ = negative_binomial_mixture(options.rows, seed)
            else:
                x, _ = skew_normal_mixture((-3.0, 3.0), *CASES[name], options.rows, seed)
            fits = fit_grid(
                lambda k, counts=counts: Mixture(k, Poisson() if counts else Normal()), x, range(1, options.largest + 1), 3, seed
            )
            result = acdc(fits, x, discrepancy=PlugIn() if counts else KNN(), seed=seed)
            chosen.append(result.chosen)
            bic.append(min(fits, key=lambda k, fits=fits: fits[k].bic))
        record = {
            "benchmark": "acdc_mixtures", "case": name, "truth": 3 if counts else 2, "rows": options.rows,
            "replicates": options.replicates, "acdc": dict(Counter(chosen)), "bic": dict(Counter(bic)),
            "seconds": round(time.perf_counter() - began, 1),
        }  # fmt: skip
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
