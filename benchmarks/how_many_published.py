"""How many, where a paper has said how many: the rule's number, word and interval beside the
published figure and the truth.

One JSON line a table. Groups: ``breast``, the four synthetic sets of tumours (twelve signatures
generated them; three of them are used by 20, 51 and 101 of 214 tumours); ``mixtures``, of normals,
skewed or not, and negative binomial counts (those of ``acdc_mixtures.py``); ``chains``, hidden
options and plain chains (those of ``acdc_hmm.py``); ``scenes``, materials of simulated
hyperspectral scenes, three (as in Samson) and five (as in Urban), their light counted, for the rule
takes counts, and as normal entries, of which there is no rule: rivals alone. ``seconds`` are of the
fits, the check of the distribution and the bootstrap together; ``load`` is the machine's at the
end.
Published: Nguyen, Li, Lai, Paschalidis and Huggins, *Beyond Predictive Accuracy*, sections 3.3.2
and 3.3.3; BIC there counts a parameter a component. Needs the folder PPL_MODELS_DATA for
``breast``. Run: ``python benchmarks/how_many_published.py [--group breast] [--cells well_specified]
[--replicates 1] [--bootstrap 6]``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import acdc_hmm
import acdc_mixtures
import numpy as np
from _bench import Lines, command_line, run, seeds, timed
from papers.hyperspectral import simulate_scene

from inference.acdc import acdc
from inference.selection import compare_criteria, fit_grid, parallel_analysis, select_components
from inference.selection.order_selection.result import HowMany
from ppl_models import GaussianFactorization, Mixture, OptionsHMM, PoissonFactorization
from ppl_models.datasets import load_breast
from ppl_models.datasets.mutational_signatures import SYNTHETIC_BREAST

BREAST = {
    "truth": 12,
    "published": {"acdc": [7, 8], "bic": "largest number compared", "parallel analysis": 2},
}
URBAN = {"published": {"acdc": 5, "bic": 7, "parallel analysis": 3}}
SCENES = {"Samson-like": 3, "Urban-like": 5}
PHOTONS = 300.0  # of the brightest spectrum in a band


def told(answer: HowMany) -> dict[str, Any]:
    """What the rule said."""
    climb = answer.climb
    return {
        "number": answer.num_components,
        "word": answer.word,
        "distribution": answer.distribution,
        "interval": list(answer.interval),
        "bootstrap": None if climb is None else climb.num_components,
        "bootstrap_at_end": None if climb is None else climb.at_end,
        "held_out": answer.held_out,
        "misfit": round(answer.misfit, 1),
        "reasons": list(answer.reasons),
    }


def breast(name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    counts = load_breast(name).counts
    sizes = range(args.smallest, args.largest + 1)
    answer, seconds = timed(
        lambda: select_components(
            PoissonFactorization,
            counts,
            sizes,
            num_restarts=args.restarts,
            bootstrap=args.bootstrap,
            seed=seed,
        )
    )
    return (
        BREAST
        | told(answer)
        | {
            "parallel analysis": parallel_analysis(counts).chosen,
            "seconds": seconds,
        }
    )


def mixture(name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    rows, component = acdc_mixtures.draw(name, args.rows, seed)
    model = Mixture(1, component, rows.shape[1])
    distributions = (
        [model] if name == "50 columns" else None
    )  # distributions of rows of fifty columns have thousands of parameters
    answer, seconds = timed(
        lambda: select_components(
            model,
            rows,
            range(1, 6),
            distributions=distributions,
            num_restarts=args.restarts,
            seed=seed,
        )
    )
    return {
        "truth": acdc_mixtures.TRUTH[name],
        "rows": args.rows,
        **told(answer),
        "seconds": seconds,
    }


def chain(name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    states, actions, truth, draw = acdc_hmm.DESIGNS[name]
    data = draw(seed)
    answer, seconds = timed(
        lambda: select_components(
            OptionsHMM(states, actions, 1), data, range(1, 5), num_restarts=args.restarts, seed=seed
        )
    )
    return {"truth": truth, **told(answer), "seconds": seconds}


def scene(name: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    kind, _, how = name.partition(", ")
    truth = SCENES[kind]
    drawn = simulate_scene(
        (args.pixels, args.pixels), num_bands=60, num_endmembers=truth, noise=0.01, seed=seed
    )
    sizes = range(2, truth + 4)
    line: dict[str, Any] = {"truth": truth} | (
        URBAN if kind == "Urban-like" else {"published": None}
    )
    if how == "counted":
        light = (
            np.random.default_rng(seed)
            .poisson(PHOTONS * drawn.abundances @ drawn.endmembers)
            .astype(float)
        )
        answer, seconds = timed(
            lambda: select_components(
                PoissonFactorization,
                light,
                sizes,
                num_restarts=args.restarts,
                bootstrap=args.bootstrap,
                seed=seed,
            )
        )
        return (
            line
            | told(answer)
            | {
                "parallel analysis": parallel_analysis(light).chosen,
                "seconds": seconds,
            }
        )
    fits, seconds = timed(
        lambda: fit_grid(
            lambda k: GaussianFactorization(60, k, nonnegative=True),
            drawn.pixels,
            sizes,
            args.restarts,
            seed,
        )
    )
    result = acdc(fits, drawn.pixels, seed=seed)
    step = result.select()
    rivals = {
        row: int(value)
        for row, value in compare_criteria(fits, drawn.pixels, result)["chosen"].items()
    }
    return line | {
        "number": None,
        "word": "no rule for normal entries",
        "clear step": step.num_components,
        "finished": step.finished,
        "rivals": rivals,
        "seconds": seconds,
    }


GROUPS: dict[
    str, tuple[Callable[[str, int, argparse.Namespace], dict[str, Any]], Sequence[str]]
] = {
    "breast": (breast, list(SYNTHETIC_BREAST)),
    "mixtures": (mixture, list(acdc_mixtures.TRUTH)),
    "chains": (chain, list(acdc_hmm.DESIGNS)),
    "scenes": (scene, [f"{kind}, {how}" for kind in SCENES for how in ("counted", "normal")]),
}


def cells(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    known = [
        (group, name)
        for group, (_, names) in GROUPS.items()
        if args.group in (group, "all")
        for name in names
    ]
    if args.cells and set(args.cells) - {name for _, name in known}:
        raise SystemExit(
            f"--cells: some of {[name for _, name in known]} were expected, got {args.cells}"
        )
    yield from ((group, name) for group, name in known if not args.cells or name in args.cells)


def measure(args: argparse.Namespace) -> Lines:
    for group, name in cells(args):
        for seed in seeds(args):
            try:
                line = GROUPS[group][0](name, seed, args)
            except FileNotFoundError as missing:
                yield {"group": group, "table": name, "skipped": str(missing)}
                break
            wrong = line["number"] is not None and line["number"] != line["truth"]
            yield {
                "group": group,
                "table": name,
                "seed": seed,
                **line,
                "wrong_and_confident": wrong and line["word"] == "confident",
                "load": round(os.getloadavg()[0], 1),
            }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=10)
    parser.add_argument(
        "--group", choices=(*GROUPS, "all"), default="all", help="which experiments"
    )
    parser.add_argument("--cells", nargs="+", metavar="NAME", help="these tables alone")
    parser.add_argument(
        "--restarts",
        type=int,
        default=10,
        metavar="N",
        help="random starts of each fit of the first distribution",
    )
    parser.add_argument(
        "--bootstrap",
        type=int,
        default=6,
        metavar="TABLES",
        help="of the climb of factorizations; 0 for none",
    )
    parser.add_argument("--smallest", type=int, default=2, help="number of signatures compared")
    parser.add_argument("--largest", type=int, default=13, help="number of signatures compared")
    parser.add_argument(
        "--rows", type=int, default=5000, help="of the mixtures; the papers have 10,000 and 20,000"
    )
    parser.add_argument(
        "--pixels", type=int, default=30, help="of a side of a scene; Urban has 307"
    )
    quick = {
        "replicates": 1,
        "restarts": 1,
        "bootstrap": 0,
        "rows": 300,
        "pixels": 8,
        "smallest": 7,
        "largest": 8,
        "cells": ["negative binomial", "Samson-like, normal"],
    }
    run(parser, measure, argv, quick)


if __name__ == "__main__":
    main()
