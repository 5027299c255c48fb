"""How often each criterion chooses the true number of latents, one more or one fewer.

The published percentages (Lee and Gu 2025, arXiv:2501.01414, tables S.9 to S.12) are run by ``make
papers`` and shown on the page of papers; here are the directions of the errors, other families, and
the design "deep" of three layers (54, 18, 6, 2), K2 from 5 to 9 given the others. With ``--sizes``
all sizes and the depth are chosen by ``select(DeepDiscreteEncoder(...), items)``, of the designs
"strict" and "generic" too, whose sizes are (18, 6, 2). One JSON line a cell.

Run: ``python benchmarks/dde_selection.py [--layer 1] [--replicates 20] [--criterion spectral ebic]
[--family Bernoulli] [--sizes]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from _bench import FAMILIES, Lines, command_line, run, seeds
from papers.deep_discrete_encoder import deep_design, generic_design
from papers.studies.encoders import CRITERIA, ROWS_OF_SELECTION, selected

from inference.programs.program import Program
from inference.selection import select
from ppl_models import DeepDiscreteEncoder
from ppl_models.datasets import strict_design


def all_sizes(args: argparse.Namespace, family: str, design: str, num_rows: int) -> dict[str, Any]:
    """Share of tables whose sizes are all right, whose depth is, and of those called confident."""
    response = FAMILIES[family]
    sizes, truth = {
        "deep": lambda: ((18, 6, 2), deep_design(3, 2, 5.0, response)),
        "strict": lambda: ((6, 2), strict_design(2, response)),
        "generic": lambda: ((6, 2), generic_design(2, response)),
    }[design]()
    model = DeepDiscreteEncoder(len(truth["loadings_1"]), sizes, response)
    began, found = time.process_time(), []
    for seed in seeds(args):
        items = Program(model, None, num_rows).simulate(truth, seed)["items"]
        found.append(select(replace(model, latent_sizes=(1,)), items.numpy(), seed=seed))
    sure = [answer for answer in found if not answer.doubts]
    return {
        "sizes": sizes,
        "percent_sizes": 100 * sum(answer.chosen == sizes for answer in found) / len(found),
        "percent_depth": 100 * sum(len(a.chosen) == len(sizes) for a in found) / len(found),
        "percent_confident": 100 * len(sure) / len(found),
        "wrong_and_confident": sum(answer.chosen != sizes for answer in sure),
        "others": sorted({str(answer.chosen) for answer in found if answer.chosen != sizes}),
        "seconds_a_data_set": (time.process_time() - began) / len(found),
    }


def measure(args: argparse.Namespace) -> Lines:
    if args.sizes:
        for design in args.design:
            for family in args.family:
                for num_rows in args.rows:
                    about = {"family": family, "design": design, "num_rows": num_rows}
                    found = all_sizes(args, family, design, num_rows)
                    yield {**about, "replicates": args.replicates, **found}
        return
    for design in args.design:
        for family in args.family:
            for num_rows in args.rows:
                began = time.perf_counter()
                layer = 2 if design == "deep" else args.layer
                found = [
                    selected(family, design, layer, num_rows, args.criterion, seed)
                    for seed in seeds(args)
                ]
                for criterion in args.criterion:
                    apart = [own[criterion] for own in found]
                    yield {
                        "layer": layer,
                        "family": family,
                        "design": design,
                        "num_rows": num_rows,
                        "criterion": criterion,
                        "replicates": args.replicates,
                        "percent_correct": 100 * sum(k == 0 for k in apart) / len(apart),
                        "percent_under": 100 * sum(k < 0 for k in apart) / len(apart),
                        "percent_over": 100 * sum(k > 0 for k in apart) / len(apart),
                        "seconds_a_data_set": (time.perf_counter() - began) / args.replicates,
                    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20, threads=1)
    parser.add_argument("--sizes", action="store_true", help="choose all sizes and the depth")
    parser.add_argument("--layer", type=int, default=1, choices=[1, 2])
    parser.add_argument(
        "--criterion", nargs="+", default=["spectral"], choices=list(CRITERIA.values())
    )
    parser.add_argument(
        "--design", nargs="+", default=["strict"], choices=["strict", "generic", "deep"]
    )
    parser.add_argument(
        "--family", nargs="+", default=["Bernoulli", "Poisson"], choices=list(FAMILIES)
    )
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS_OF_SELECTION))
    run(parser, measure, argv, {"replicates": 1, "rows": [500]})


if __name__ == "__main__":
    main()
