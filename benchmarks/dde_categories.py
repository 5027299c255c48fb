"""Answers on a scale, and categories without an order, at the bottom of an encoder: what the plain
call finds of a known truth.

Eighteen items on three latents: twelve with one latent each, six with two. ``graded`` and
``credit`` are five ordered categories (cumulative and adjacent), ``nominal`` four without an order,
``mixed`` six graded, six nominal, three Normal and three Bernoulli items, ``halved`` the graded
items cut in two at the middle, as one would do without ordinal items. One JSON line a fit, then one
a cell: accuracy of the graph (items by latents, after alignment) and how often it is exact; root
mean squared errors of loadings, intercepts and thresholds of the fit on the true graph (``oracle``)
and of the plain call; both with their standard deviation over replicates.

Run: ``python benchmarks/dde_categories.py [--replicates 20] [--first-seed 0] [--rows 500 2000]
[--design graded credit nominal mixed halved]``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from _bench import Lines, command_line, run, seeds
from torch import Tensor

from inference import fit
from inference.alignment import align
from inference.programs import Program
from ppl_models import Bernoulli, Blocks, Categorical, DeepDiscreteEncoder, Normal, Ordinal

GRAPH = torch.cat(
    [torch.eye(3, dtype=torch.long).repeat(4, 1), (1 - torch.eye(3, dtype=torch.long)).repeat(2, 1)]
)
RESPONSES = {
    "graded": Ordinal(5),
    "credit": Ordinal(5, link="adjacent"),
    "nominal": Categorical(4),
    "mixed": Blocks((Ordinal(5), 6), (Categorical(4), 6), (Normal(), 3), (Bernoulli(), 3)),
    "halved": Bernoulli(),
}


def truth_of(model: DeepDiscreteEncoder, seed: int) -> dict[str, Tensor]:
    """Loadings of 1.5 to 2.5, of a nominal item of either sign; thresholds about a unit apart."""
    generator, layer = torch.Generator().manual_seed(seed), model.layers()[0]
    graph = layer.by_child(GRAPH).double()
    loadings = (1.5 + torch.rand(graph.shape, generator=generator, dtype=torch.float64)) * graph
    for part in layer.parts():
        if isinstance(part.family, Categorical) and not isinstance(
            part.family, Ordinal
        ):  # the second of three loadings is negative
            loadings[part.rows][1::3] *= -1
    truth = {
        "loadings_1": loadings,
        "intercepts_1": -loadings.sum(-1) / 2,
        "proportions": torch.tensor([0.4, 0.5, 0.6], dtype=torch.float64),
    }
    if layer.thresholds:
        gaps = model.response.num_thresholds(model.num_items)
        truth["thresholds"] = 0.6 + 0.8 * torch.rand(gaps, generator=generator, dtype=torch.float64)
        own = [part for part in layer.parts() if isinstance(part.family, Ordinal)]
        for part in own:  # the middle of the scale where half of the latents are on
            truth["intercepts_1"][part.rows] += 1.5
    if layer.dispersion:
        truth["dispersion"] = torch.ones(
            model.response.num_dispersed(model.num_items), dtype=torch.float64
        )
    return truth


def errors(found: dict[str, Tensor], truth: dict[str, Tensor]) -> dict[str, float]:
    return {
        name: float((found[name] - truth[name]).square().mean().sqrt())
        for name in ("loadings_1", "intercepts_1", "thresholds")
        if name in truth
    }


def replicate(args: argparse.Namespace, design: str, num_rows: int, seed: int) -> dict[str, Any]:
    drawn = DeepDiscreteEncoder(18, (3,), RESPONSES["graded" if design == "halved" else design])
    truth = truth_of(drawn, 7)
    x = Program(drawn, None, num_rows).simulate(truth, seed)["items"]
    model = drawn
    if design == "halved":
        x, model = (x > 1).double(), DeepDiscreteEncoder(18, (3,), Bernoulli())
    began, cpu = time.perf_counter(), time.process_time()
    result = fit(model, x)
    seconds, processor = time.perf_counter() - began, time.process_time() - cpu
    aligned, layer = align(result, truth), model.layers()[0]
    graph = layer.by_item(aligned.params["loadings_1"] != 0).long()
    known = fit(model.restricted([GRAPH.tolist()]), x)
    same = design != "halved"
    return {
        "design": design,
        "num_rows": num_rows,
        "seed": seed,
        "accuracy_graph": float((graph == GRAPH).double().mean()),
        "exact": bool((graph == GRAPH).all()),
        "rmse": errors(aligned.params, truth) if same else None,
        "rmse_oracle": errors(align(known, truth).params, truth) if same else None,
        "converged": result.converged,
        "warnings": list(result.warnings),
        "seconds": seconds,
        "processor_seconds": processor,
    }


def spread(values: list[float]) -> dict[str, float]:
    return {
        "mean": statistics.mean(values),
        "sd": statistics.stdev(values) if len(values) > 1 else 0.0,
    }


def measure(args: argparse.Namespace) -> Lines:
    for design in args.design:
        for num_rows in args.rows:
            runs = []
            for seed in seeds(args):
                runs.append(replicate(args, design, num_rows, seed))
                yield runs[-1]
            line = {
                "cell": f"{design} {num_rows}",
                "replicates": len(runs),
                "accuracy_graph": spread([one["accuracy_graph"] for one in runs]),
                "num_exact": sum(one["exact"] for one in runs),
                "num_converged": sum(one["converged"] for one in runs),
                "seconds_median": statistics.median(one["seconds"] for one in runs),
            }
            for name in ("rmse", "rmse_oracle"):
                if runs[0][name] is not None:
                    line[name] = {
                        site: spread([one[name][site] for one in runs]) for site in runs[0][name]
                    }
            yield line


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20, threads=1)
    parser.add_argument("--design", nargs="+", default=list(RESPONSES), choices=list(RESPONSES))
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2000])
    run(parser, measure, argv, {"replicates": 1, "rows": [300], "design": ["mixed"]})


if __name__ == "__main__":
    main()
