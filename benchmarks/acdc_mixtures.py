"""Mixtures whose likelihood is wrong: how often ACDC, with one rule fixed beforehand, and BIC find
the true number.

Normal components by nearest neighbours, counts by the plug-in estimate, summed over columns, null
subtracted; the last clear step, as for every model. Beside it what other shares of a clear step,
and the first interval of cutoffs of some widths, would have chosen. One JSON line a case. Fits stop
after 200 iterations: criteria need a near optimum only. Run: ``python benchmarks/acdc_mixtures.py
[--replicates 50] [--cases "negative binomial" big-small]``.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence

from _bench import Lines, command_line, run, seeds
from papers.mixtures import skew_normal_mixture_50d

from inference import EM, fit
from inference.acdc import KNN, PlugIn, acdc
from ppl_models import Mixture, Normal, Poisson
from ppl_models.datasets import negative_binomial_mixture, skew_normal_mixture

FAR, CLOSE = (-3.0, 3.0), (-3.0, 0.0)
SKEWED = {
    "big-small": (FAR, (-10.0, -1.0), (0.95, 0.05)),
    "small-big": (FAR, (-1.0, -10.0), (0.95, 0.05)),
    "equal": (FAR, (-10.0, -10.0), (0.5, 0.5)),
    "no skew": (FAR, (0.0, 0.0), (0.5, 0.5)),
    "close, equal": (CLOSE, (-10.0, -10.0), (0.5, 0.5)),
}
TRUTH = dict.fromkeys(SKEWED, 2) | {"negative binomial": 3, "50 columns": 3}
SHARES, WIDTHS = (0.4, 0.45, 0.55, 0.6), (0.3, 0.5)


def draw(name: str, rows: int, seed: int):
    if name == "negative binomial":
        return negative_binomial_mixture(rows, seed)[0], Poisson()
    if name == "50 columns":
        return skew_normal_mixture_50d(rows, seed)[0], Normal()
    return skew_normal_mixture(*SKEWED[name], rows, seed)[0], Normal()


def counted(choices: list[int], name: str) -> dict[str, object]:
    return {
        "choices": dict(sorted(Counter(choices).items())),
        "true": choices.count(TRUTH[name]) / len(choices),
    }


def measure(args: argparse.Namespace) -> Lines:
    for name in args.cases:
        chosen, bic, began = [], [], time.perf_counter()
        other: dict[str, list[int]] = {}
        for seed in seeds(args):
            x, family = draw(name, args.rows, seed)
            method = EM(max_iterations=200)
            fits = {
                k: fit(
                    Mixture(k, family, x.shape[1]), x, method, num_restarts=args.restarts, seed=seed
                )
                for k in range(1, args.largest + 1)
            }
            result = acdc(
                fits, x, discrepancy=PlugIn() if isinstance(family, Poisson) else KNN(), seed=seed
            )
            chosen.append(result.chosen)
            bic.append(min(fits, key=lambda k, fits=fits: fits[k].bic))
            for share in SHARES:
                other.setdefault(f"share {share}", []).append(result.select(share).num_components)
            for width in WIDTHS:
                other.setdefault(f"width {width}", []).append(
                    result.select(min_width=width).num_components
                )
        yield {
            "case": name,
            "truth": TRUTH[name],
            "rows": args.rows,
            "seeds": [args.first_seed, args.replicates],
            "largest": args.largest,
            "acdc": counted(chosen, name),
            "bic": counted(bic, name),
            "acdc_by_other_rules": {rule: counted(values, name) for rule, values in other.items()},
            "seconds": round(time.perf_counter() - began, 1),
        }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=50)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--largest", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=list(TRUTH), choices=list(TRUTH))
    cases = ["big-small", "negative binomial"]
    run(
        parser,
        measure,
        argv,
        {"replicates": 1, "rows": 500, "largest": 4, "restarts": 1, "cases": cases},
    )


if __name__ == "__main__":
    main()
