"""How often each criterion chooses the true number of latents, beside the published percentages.

Two-layer designs (18, 6, 2); K1 from 4 to 8 given K2 = 2, or K2 from 1 to 3 given K1 = 6. The
design "deep" has three layers (54, 18, 6, 2): K2 from 5 to 9 given the others, where singular
values go wrong with more rows. The published percentages (Lee and Gu 2025, arXiv:2501.01414, tables
S.9 to S.12, 400 replicates) are kept in ``tests/references``. One JSON line a cell.

Run: ``python benchmarks/dde_selection.py [--layer 1] [--replicates 20] [--criterion spectral ebic]
[--family Bernoulli]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from _bench import FAMILIES, Lines, command_line, reference, run, seeds
from papers.deep_discrete_encoder import deep_design, generic_design

from inference import EM
from inference.programs import Program
from inference.selection import select_dimension
from ppl_models import DeepDiscreteEncoder, TruncatedLasso
from ppl_models.datasets import strict_design

TABLES = {
    (1, "Bernoulli"): "S.9",
    (1, "Poisson"): "S.10",
    (2, "Bernoulli"): "S.11",
    (2, "Poisson"): "S.12",
}
METHODS = {"spectral": "Spectral", "ebic": "EBIC", "lrt": "LRT"}


def published(layer: int, family: str, design: str, num_rows: int, criterion: str) -> float | None:
    table = reference("deep_discrete_encoder")["selection"].get(
        TABLES.get((layer, family), ""), {"rows": []}
    )
    label = {"strict": "B_s", "generic": "B_g"}.get(design)
    for row in table["rows"]:
        if (row["design"], row["num_rows"], row["method"]) == (label, num_rows, METHODS[criterion]):
            return row["correct"]
    return None


def measure(args: argparse.Namespace) -> Lines:
    for design in args.design:
        is_deep = design == "deep"
        layer = 2 if is_deep else args.layer
        grid, true = (
            ([5, 6, 7, 8, 9], 6)
            if is_deep
            else ([4, 5, 6, 7, 8], 6)
            if layer == 1
            else ([1, 2, 3], 2)
        )
        for family in args.family:
            for num_rows in args.rows:
                response = FAMILIES[family]
                truth = (
                    deep_design(3, 2, 5.0, response)
                    if is_deep
                    else (strict_design if design == "strict" else generic_design)(2, response)
                )
                penalty = TruncatedLasso.bic(num_rows)

                def model(
                    k: int, response=response, penalty=penalty, is_deep=is_deep, layer=layer
                ) -> DeepDiscreteEncoder:
                    if is_deep:
                        return DeepDiscreteEncoder(54, (18, k, 2), response, penalty, bound=10.0)
                    sizes = (k, 2) if layer == 1 else (6, k)
                    return DeepDiscreteEncoder(18, sizes, response, penalty, bound=10.0)

                chosen: dict[str, list[int]] = {criterion: [] for criterion in args.criterion}
                began = time.perf_counter()
                for seed in seeds(args):
                    x = Program(model(true), None, num_rows).simulate(truth, seed)["items"]
                    first = select_dimension(model, x, grid, args.criterion[0], EM(), seed=seed)
                    for criterion in args.criterion:  # ebic and lrt judge the same fits
                        chosen[criterion].append(first.by(criterion).chosen)
                for criterion, own in chosen.items():
                    yield {
                        "layer": layer,
                        "family": family,
                        "design": design,
                        "num_rows": num_rows,
                        "criterion": criterion,
                        "replicates": args.replicates,
                        "percent_correct": 100 * sum(k == true for k in own) / len(own),
                        "percent_under": 100 * sum(k < true for k in own) / len(own),
                        "percent_over": 100 * sum(k > true for k in own) / len(own),
                        "published_percent_correct": published(
                            layer, family, design, num_rows, criterion
                        ),
                        "seconds_a_data_set": (time.perf_counter() - began) / args.replicates,
                    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20, threads=1)
    parser.add_argument("--layer", type=int, default=1, choices=[1, 2])
    parser.add_argument("--criterion", nargs="+", default=["spectral"], choices=list(METHODS))
    parser.add_argument(
        "--design", nargs="+", default=["strict"], choices=["strict", "generic", "deep"]
    )
    parser.add_argument(
        "--family", nargs="+", default=["Bernoulli", "Poisson"], choices=list(FAMILIES)
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 1000, 2000, 4000, 6000, 8000])
    run(parser, measure, argv, {"replicates": 1, "rows": [500]})


if __name__ == "__main__":
    main()
