"""TIMSS 2019: times and answers of 435 students, deep discrete encoders (7, 1) with the skills'
matrix fixed.

First the paper's model: the 29 times, LogNormal. Random starts as one batch, the spread of what
they reach, the mean decoded latents by answer to "mathematics is one of my favourite subjects" with
standard errors; the same for the second-best optimum, whose table is what a user with one start may
see. This table is compared with the published one pair of answers by pair: how many pairs the
published table orders (ties left out), how many of these ours orders alike, how many it reverses by
more than two standard errors, and the mean absolute difference of the cells. Then answers and times
together (58 columns), whose table has no published counterpart; one layer; a latent class model
with as many classes as its BIC asks for (EM below); all 620 students with gaps.

The part "plain" asks whether ``fit(model, times)`` finds the best optimum of the times alone
(LogNormal, no bound): on the real table, and on tables like it, printed by seed: drawn from the
model fitted to the real one ("model"), the same with a speed of each student, which the model does
not know ("speed"), and rows of the real table drawn again ("rows"). The best known is that of the
plain call, of one spectral start, which is all that plain calls took before they searched, and of
``--reference`` random starts. Seconds are of processor time. Published (Lee and Gu 2025,
arXiv:2501.01414, table 5): higher-order latent .83 .80 .76 .69 from "agree a lot" to "disagree a
lot", the four content skills falling too. One JSON line a model; needs ``timss2019_dde.npz``
(``PPL_MODELS_DATA``). Run: ``python benchmarks/dde_timss.py [--starts 50] [--part plain
--replicates 20]``.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import time
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds
from papers.cells import published
from torch import Tensor

from inference import EM, Fit, StartsWarning, fit
from inference.inspection import group_means
from inference.programs import Program
from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, LogNormal, Normal
from ppl_models.datasets import ResponseTimes, load_response_times, load_timss

BOUND = 6.0  # the published box
NEAR = 0.1  # nats below the best known that count as the same
OTHER_SEEDS = (
    10_000  # between those of tables and those of speeds, so that none repeats the other's numbers
)
SPEED = 0.4  # standard deviation of students' log speed, in the tables of that name


def survey_table(result: Fit, items: np.ndarray, survey: np.ndarray, is_papers: bool) -> dict:
    """Mean decoded latents, higher-order first, by answer; standard errors beside, and the
    published table's if the model is the paper's.
    """
    codes = result.decode_latents(items)
    table = group_means(torch.cat([codes["latents_2"], codes["latents_1"][:, :4]], 1), survey)
    figures = {
        "means": table.means.round(3).tolist(),
        "standard_errors": table.standard_errors.round(3).tolist(),
    }
    return figures | (comparison(table.means, table.standard_errors) if is_papers else {})


def comparison(means: np.ndarray, errors: np.ndarray) -> dict[str, float]:
    """Pairs of answers (rows) that a published column orders, and how ours orders them; mean
    absolute difference of cells.
    """
    table = np.array(published("deep_discrete_encoder")["survey"]["means"])
    counts = {"pairs_published": 0, "pairs_ordered_alike": 0, "pairs_reversed_beyond_error": 0}
    for a, b in itertools.combinations(range(len(table)), 2):
        theirs, ours = table[a] - table[b], means[a] - means[b]
        spread = np.hypot(errors[a], errors[b])
        counts["pairs_published"] += int((theirs != 0).sum())
        counts["pairs_ordered_alike"] += int((theirs * ours > 0).sum())
        counts["pairs_reversed_beyond_error"] += int(
            ((theirs * ours < 0) & (np.abs(ours) > 2 * spread)).sum()
        )
    return counts | {"mean_difference_of_cells": round(float(np.abs(means - table).mean()), 4)}


def encoder_line(
    name: str, model: DeepDiscreteEncoder, items: np.ndarray, survey: np.ndarray | None, starts: int
) -> dict:
    method = EM(tolerance=1e-8, parameter_tolerance=1e-4)
    result = fit(model, items, method, init="random", num_restarts=starts, seed=0)
    reached = result.restarts.log_likelihood.sort(descending=True).values
    line = {"model": name, "seconds": result.seconds, "log_likelihood": result.log_likelihood}
    line |= {
        "bic": result.bic,
        "parameters": result.num_parameters,
        "warnings": list(result.warnings),
    }
    line["starts_within_0.1_of_the_best"] = int((reached > reached[0] - 0.1).sum())
    line["quantiles_of_starts"] = torch.quantile(
        reached, torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]).double()
    ).tolist()
    line["converged_starts"] = int(result.restarts.converged.sum())
    if survey is None:
        return line
    is_papers = isinstance(model.response, LogNormal)
    line["survey"] = survey_table(result, items, survey, is_papers)
    others = (result.restarts.log_likelihood < reached[0] - 0.1).nonzero().ravel()
    if len(others):
        second = others[result.restarts.log_likelihood[others].argmax()]
        params = {site: value[second] for site, value in result.restarts.params.items()}
        other = dataclasses.replace(result, params=params)
        gap = float(reached[0] - result.restarts.log_likelihood[second])
        line["second_optimum"] = {"gap": gap} | survey_table(other, items, survey, is_papers)
    return line


def encoder_lines(data: ResponseTimes, starts: int) -> Iterator[dict]:
    graph = data.q_matrix.tolist()
    times = DeepDiscreteEncoder(29, (7, 1), LogNormal(), graphs=(graph, None), bound=BOUND)
    yield encoder_line(
        "the paper's: times, LogNormal (7, 1)", times, data.seconds, data.survey, starts
    )
    items = np.concatenate([data.correct, data.log_seconds], 1)
    response = Blocks((Bernoulli(), 29), (Normal(), 29))
    deep = DeepDiscreteEncoder(58, (7, 1), response, graphs=(graph * 2, None), bound=BOUND)
    yield encoder_line("answers and log times (7, 1)", deep, items, data.survey, starts)
    flat = DeepDiscreteEncoder(58, (7,), response, graphs=(graph * 2,), bound=BOUND)
    yield encoder_line("answers and log times (7,)", flat, items, None, starts)


def times_line(starts: int) -> dict:
    """Log times alone, of all students, with the gaps summed out."""
    data = load_response_times()
    graphs = (data.q_matrix.tolist(), None)
    model = DeepDiscreteEncoder(29, (7, 1), Normal(), graphs=graphs, bound=BOUND)
    method = EM(tolerance=1e-8, parameter_tolerance=1e-4)
    result = fit(model, data.log_seconds, method, init="random", num_restarts=starts, seed=0)
    reached = result.restarts.log_likelihood
    line = {"model": "times alone, 620 students with gaps", "seconds": result.seconds}
    line |= {"log_likelihood": result.log_likelihood, "warnings": list(result.warnings)}
    return line | {"starts_within_0.1_of_the_best": int((reached > reached.max() - 0.1).sum())}


def latent_classes(correct: np.ndarray, times: np.ndarray, classes: int, seed: int) -> float:
    """Log-likelihood of a latent class model of answers and log times after 300 EM iterations."""
    shares = np.random.default_rng(seed).dirichlet(np.ones(classes), size=len(correct))
    total = -math.inf
    for _ in range(300):
        size = shares.sum(0)
        p = ((shares.T @ correct + 0.01) / (size[:, None] + 0.02)).clip(1e-6, 1 - 1e-6)
        mean = shares.T @ times / size[:, None]
        variance = (shares.T @ times**2 / size[:, None] - mean**2).clip(1e-3)
        log = np.log(size / len(correct)) + correct @ np.log(p).T + (1 - correct) @ np.log1p(-p).T
        square = (
            times**2 @ (1 / variance).T
            - 2 * times @ (mean / variance).T
            + (mean**2 / variance).sum(1)
        )
        log -= 0.5 * (square + np.log(2 * np.pi * variance).sum(1))
        peak = log.max(1, keepdims=True)
        shares = np.exp(log - peak)
        total = float((peak.ravel() + np.log(shares.sum(1))).sum())
        shares /= shares.sum(1, keepdims=True)
    return total


def classes_line(data: ResponseTimes, starts: int) -> dict:
    began, table = time.monotonic(), {}
    for classes in range(1, 9):
        best = max(
            latent_classes(data.correct, data.log_seconds, classes, seed) for seed in range(starts)
        )
        parameters = classes * 29 * 3 + classes - 1
        table[classes] = (best, -2 * best + parameters * math.log(len(data.correct)))
    chosen = min(table, key=lambda k: table[k][1])
    line = {
        "model": f"latent classes, {chosen} by BIC of 1 to 8",
        "seconds": time.monotonic() - began,
    }
    return line | {"log_likelihood": table[chosen][0], "bic": table[chosen][1]}


def plain_line(model: DeepDiscreteEncoder, times: Tensor, reference_starts: int) -> dict:
    """The plain call beside one spectral start and many random ones."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.process_time()
        plain = fit(model, times)
        seconds = time.process_time() - began
    warned = any(issubclass(warning.category, StartsWarning) for warning in caught)
    began = time.process_time()
    single = fit(model, times, EM())
    seconds_single = time.process_time() - began
    began = time.process_time()
    many = fit(model, times, EM(), init="random", num_restarts=reference_starts, seed=1)
    best = max(own.objective for own in (plain, single, many))
    return {
        "short": best - plain.objective,
        "short_of_one_spectral_start": best - single.objective,
        "random_starts_at_the_best": int((many.restarts.objective > best - NEAR).sum()),
        "starts_tried": plain.restarts.num_tried,
        "reached": plain.restarts.num_reached,
        "warned": warned,
        "seconds": seconds,
        "seconds_of_one_spectral_start": seconds_single,
        "seconds_of_random_starts": time.process_time() - began,
        "log_likelihood": plain.log_likelihood,
    }


def plain_lines(args: argparse.Namespace) -> Lines:
    data = load_timss()
    times = torch.as_tensor(data.seconds)
    model = DeepDiscreteEncoder(
        times.shape[1], (7, 1), LogNormal(), graphs=(data.q_matrix.tolist(), None)
    )
    yield {"part": "plain", "table": "real", "reference": args.reference} | plain_line(
        model, times, args.reference
    )
    truth = fit(model, times, EM(), init="random", num_restarts=args.reference).params
    for kind in ("model", "speed", "rows"):
        lines = []
        for seed in seeds(args):
            generator = torch.Generator().manual_seed(seed + OTHER_SEEDS)
            if kind == "rows":
                table = times[torch.randint(len(times), (len(times),), generator=generator)]
            else:
                table = Program(model, None, len(times)).simulate(truth, seed)["items"]
                table = (
                    table * torch.exp(SPEED * torch.randn(len(times), 1, generator=generator))
                    if kind == "speed"
                    else table
                )
            lines.append(plain_line(model, table, args.reference))
            yield {
                "part": "plain",
                "table": kind,
                "seed": seed,
                "reference": args.reference,
            } | lines[-1]
        yield {
            "part": "plain",
            "table": kind,
            "tables": len(lines),
            "share_at_the_best": sum(line["short"] <= NEAR for line in lines) / len(lines),
            "share_at_the_best_of_one_spectral_start": (
                sum(line["short_of_one_spectral_start"] <= NEAR for line in lines) / len(lines)
            ),
            "short_without_a_warning": sum(
                line["short"] > NEAR and not line["warned"] for line in lines
            ),
            "warned": sum(line["warned"] for line in lines),
            "mean_seconds": sum(line["seconds"] for line in lines) / len(lines),
            "mean_seconds_of_one_spectral_start": (
                sum(line["seconds_of_one_spectral_start"] for line in lines) / len(lines)
            ),
        }


def measure(args: argparse.Namespace) -> Lines:
    if "plain" in args.part:
        yield from plain_lines(args)
    if "paper" not in args.part:
        return
    data = load_timss()
    yield from ({"starts": args.starts} | line for line in encoder_lines(data, args.starts))
    yield classes_line(data, min(args.starts, 10))
    yield {"starts": args.starts} | times_line(args.starts)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=20, threads=1)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--reference", type=int, default=48)
    parser.add_argument("--part", nargs="+", default=["paper", "plain"], choices=["paper", "plain"])
    run(parser, measure, argv, {"starts": 2, "reference": 2, "replicates": 1})


if __name__ == "__main__":
    main()
