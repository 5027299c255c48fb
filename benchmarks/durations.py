"""Hidden semi-Markov models: level and power of the test of geometric durations, recovery of
durations, number of states, and the processor's time of an E-step beside the plain chain's.

Parts: level and power (how often p <= 0.05 over tables of two states whose visits are negative
binomial of size 1, which is geometric, and of other sizes), null (the ratio over tables of size 1
beside that of one data set drawn from the geometric fit to each, whose quantiles give the level of
the bootstrap test at the price of one replicate a table), recovery (estimates of mean durations
and sizes over seeds, and how often intervals hold the truth), number (of states by
``select_components``, plain chains alone and with negative binomial durations as a second
distribution; the truth is two), published (the same of three states whose visits are Poisson, as in
the vignette of the R package LaMa), options (their number where visits take 15 to 25 steps, the
semi-Markov design of ``acdc_hmm.py``, by each duration distribution), cost. Run: ``python
benchmarks/durations.py [--parts level power null recovery number published options cost]
[--replicates 200]``. Level, power and recovery print a
line a table, and then their summary; ``--summarise FILE`` makes it from such lines of several runs.

Source of null: R. Giacomini, D. N. Politis and H. White (2013), doi:10.1017/S0266466612000655.
Published: J.-O. Koslik, LaMa (R package), vignette "Hidden semi-Markov models", "Setting
parameters" and "Simulating data" (50 stays, fitted with the number of states given); the model of
R. Langrock and W. Zucchini (2011), doi:10.1016/j.csda.2010.06.015.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds
from acdc_hmm import semi_markov
from scipy.stats import chi2

from inference import fit
from inference.bootstrap import simulated_table
from inference.engines.em import fit_sets
from inference.fitting.problem import problem_of
from inference.selection import durations_test, select_components
from inference.selection.durations import METHOD, MOST_SETS
from inference.uncertainty import standard_errors
from ppl_models import (
    FreeDurations,
    GeometricDurations,
    HiddenMarkov,
    NegativeBinomialDurations,
    Normal,
    OptionsHMM,
    PoissonDurations,
)
from ppl_models.parts.durations import Durations

MEANS = (12.0, 6.0)  # steps of visits
APART = 2.5  # standard deviations between the states
PARTS = ("level", "power", "null", "recovery", "number", "published", "options", "cost")
LONGEST = 40  # steps of a visit of an option
LAMA: dict[str, list[Any]] = {
    "rates": [7, 4, 4],  # of the steps after the first of a stay
    "moves": [[0.0, 0.7, 0.3], [0.5, 0.0, 0.5], [0.7, 0.3, 0.0]],
    "means": [10, 40, 100],
    "deviations": [5, 20, 50],
}
SIZES = {"level": (1.0,), "power": (2.0, 4.0, 8.0), "recovery": (4.0,), "number": (20.0,)}


def drawn(seed: int, steps: int, size: float) -> np.ndarray:
    """One sequence (T, 1) of two states whose visits are negative binomial, shifted by one."""
    rng, states, state = np.random.default_rng(seed), list[int](), 0
    while len(states) < steps:
        more = rng.negative_binomial(size, size / (size + MEANS[state] - 1))
        states += [state] * int(1 + more)
        state = 1 - state
    return rng.normal(APART * np.array(states[:steps]))[:, None]


def tested(seed: int, steps: int, size: float, num_sets: int) -> float:
    """The p-value of geometric durations."""
    data = drawn(seed, steps, size)
    plain = fit(HiddenMarkov(2, Normal(), 1), data, num_restarts=2)
    apart = seed * (num_sets + 1)  # no two tables draw data sets from the same seeds
    return durations_test(plain, data, num_sets=num_sets, seed=apart).p_value


def rejections(part: str, args: argparse.Namespace) -> Lines:
    for size in SIZES[part]:
        for seed in seeds(args):
            yield {
                "part": part,
                "size": size,
                "steps": args.steps,
                "sets": args.sets,
                "seed": seed,
                "p": tested(seed, args.steps, size, args.sets),
            }


def null(args: argparse.Namespace) -> Lines:
    """Quantiles of the ratio over tables, and over one data set drawn from each of their fits."""
    plain, wide = (
        HiddenMarkov(2, Normal(), 1, durations=own)
        for own in (GeometricDurations(), NegativeBinomialDurations())
    )
    truth = {
        "initial": torch.tensor([[0.5, 0.5]]),
        "transitions": torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]),
        "mean_durations": torch.tensor([MEANS]),
        "predictors": torch.tensor([[[0.0], [APART]]]),
        "dispersion": torch.ones(1, 2, 1),
    }
    truth = {name: value.double() for name, value in truth.items()}

    def ratios(sets: torch.Tensor, start: Mapping[str, torch.Tensor]) -> tuple[Any, np.ndarray]:
        first = fit_sets(problem_of(plain, sets[0], 0), METHOD, sets, start)
        sizes = {"duration_sizes": torch.ones_like(first.params["mean_durations"])}
        second = fit_sets(problem_of(wide, sets[0], 0), METHOD, sets, first.params | sizes)
        gains = 2 * (second.log_likelihood - first.log_likelihood)
        return first.params, gains.clamp(min=0.0).numpy()

    found: dict[str, list[np.ndarray]] = {"tables": [], "drawn": []}
    for batch in np.array_split(seeds(args), -(-args.replicates // MOST_SETS)):
        sets = torch.stack([torch.from_numpy(drawn(s, args.steps, 1.0))[None] for s in batch])
        params, gains = ratios(sets, truth)
        found["tables"].append(gains)
        problem = problem_of(plain, sets[0], 0)
        fits = [{name: value[i] for name, value in params.items()} for i in range(len(sets))]
        again = zip(fits, batch.tolist(), strict=True)
        sets = torch.stack([simulated_table(problem, own, seed) for own, seed in again])
        found["drawn"].append(ratios(sets, params)[1])
    tables, sets_drawn = (np.concatenate(found[name]) for name in ("tables", "drawn"))
    at = (0.5, 0.8, 0.9, 0.95, 0.99)
    chances = chi2.sf(tables, len(MEANS))
    yield {
        "part": "null",
        "steps": args.steps,
        "tables": args.replicates,
        "first_seed": args.first_seed,
        "quantiles_at": at,
        "of_tables": np.quantile(tables, at).round(2).tolist(),
        "of_sets_drawn_from_fits": np.quantile(sets_drawn, at).round(2).tolist(),
        **{
            f"rejected_at_{100 * level:.0f}_%": {
                "by_sets_drawn": float((tables > np.quantile(sets_drawn, 1 - level)).mean()),
                "by_chi_square": float((chances <= level).mean()),
            }
            for level in (0.05, 0.1)
        },
    }


def recovery(args: argparse.Namespace) -> Lines:
    (size,) = SIZES["recovery"]
    model = HiddenMarkov(2, Normal(), 1, "uniform", durations=NegativeBinomialDurations())
    names = "mean_durations", "duration_sizes"
    truth = torch.tensor(MEANS), torch.tensor([size, size])
    for seed in seeds(args):
        data = drawn(seed, args.steps, size)
        result = fit(model, data, num_restarts=1)
        order = result.params["predictors"][:, 0].argsort()
        limits = standard_errors(result, data).intervals(0.95)
        low, high = (
            torch.stack([limits[name][end][order] for name in names]) for end in range(2)
        )  # (2, K)
        value = torch.stack(truth)
        yield {
            "part": "recovery",
            "size": size,
            "steps": args.steps,
            "sets": 0,
            "seed": seed,
            "estimates": [[round(v, 3) for v in result.params[n][order].tolist()] for n in names],
            "held": ((low <= value) & (value <= high)).tolist(),
        }


def summaries(lines: Sequence[Mapping[str, Any]]) -> Lines:
    """One line for all tables of a part, size, length and number of data sets."""
    cells: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for line in lines:
        if "seed" in line and "design" not in line:
            key = tuple(line[name] for name in ("part", "size", "steps", "sets"))
            cells.setdefault(key, []).append(line)
    for (part, size, steps, sets), own in cells.items():
        line: dict[str, Any] = {"part": part, "size": size, "steps": steps, "sets": sets}
        line["tables"] = len({table["seed"] for table in own})
        if part == "recovery":
            values = np.array([table["estimates"] for table in own])  # (S, 2, K)
            line["truth"] = [list(MEANS), [size, size]]
            line["median"] = np.median(values, 0).round(2).tolist()
            deciles = np.quantile(values, (0.1, 0.9), 0).round(2)
            line["tenth_and_ninth_decile"] = deciles.tolist()
            held = np.array([table["held"] for table in own]).mean(0)
            line["intervals_of_95_%_that_hold"] = held.round(3).tolist()
        else:
            found = np.array([table["p"] for table in own])
            line["rejected_at_5_%"] = round(float((found <= 0.05).mean()), 4)
            line["rejected_at_10_%"] = round(float((found <= 0.1).mean()), 4)
            line["mean_p"] = round(float(found.mean()), 3)
        yield line


def number(args: argparse.Namespace) -> Lines:
    (size,) = SIZES["number"]
    plain = HiddenMarkov(1, Normal(), 1)
    wider = HiddenMarkov(1, Normal(), 1, durations=NegativeBinomialDurations())
    for name, offered in (("plain", [plain]), ("with durations", [plain, wider])):
        words: Counter[str] = Counter()
        began = time.process_time()
        for seed in seeds(args):
            data = drawn(seed, args.steps, size)
            answer = select_components(
                plain, data, (1, 2, 3), distributions=offered, num_restarts=2, seed=seed
            )
            words[f"{answer.num_components} {answer.status}: {answer.distribution}"] += 1
        yield {
            "part": "number",
            "offered": name,
            "steps": args.steps,
            "tables": args.replicates,
            "answers": dict(words),
            "processor_seconds": round(time.process_time() - began, 1),
        }


def stays_of(seed: int, num_stays: int) -> np.ndarray:
    """One sequence (T, 1) of so many stays of the published design."""
    rng = np.random.default_rng(seed)
    state, rows = int(rng.integers(3)), list[np.ndarray]()
    for _ in range(num_stays):
        steps = 1 + rng.poisson(LAMA["rates"][state])
        rows.append(rng.normal(LAMA["means"][state], LAMA["deviations"][state], steps))
        state = int(rng.choice(3, p=LAMA["moves"][state]))
    return np.concatenate(rows)[:, None]


def published(args: argparse.Namespace) -> Lines:
    plain = HiddenMarkov(1, Normal(), 1)
    wider = HiddenMarkov(1, Normal(), 1, durations=NegativeBinomialDurations())
    for seed in seeds(args):
        began, data = time.process_time(), stays_of(seed, args.stays)
        answer = select_components(
            plain, data, (1, 2, 3, 4), distributions=[plain, wider], num_restarts=4, seed=seed
        )
        yield {
            "part": "published",
            "design": "LaMa, three states",
            "stays": args.stays,
            "steps": len(data),
            "seed": seed,
            "answer": f"{answer.num_components} {answer.status}: {answer.distribution}",
            "reasons": list(answer.reasons),
            "processor_seconds": round(time.process_time() - began, 1),
        }


def options(args: argparse.Namespace) -> Lines:
    kinds = (None, NegativeBinomialDurations(LONGEST), FreeDurations(LONGEST))
    for seed in seeds(args):
        data = semi_markov(seed)
        for durations in kinds:
            began, model = time.process_time(), OptionsHMM(2, 3, 1, durations=durations)
            answer = select_components(model, data, (1, 2, 3), num_restarts=2, seed=seed)
            yield {
                "part": "options",
                "durations": repr(durations),
                "seed": seed,
                "answer": f"{answer.num_components} {answer.status}",
                "reasons": list(answer.reasons),
                "processor_seconds": round(time.process_time() - began, 1),
            }


def cost(args: argparse.Namespace) -> Lines:
    """E-steps of one restart, the plain chain's and others in turn."""
    for steps in (500, 1000, 2000):
        data = drawn(0, steps, 4.0)
        rivals: dict[str, Durations | None] = {
            "plain": None,
            "negative binomial": NegativeBinomialDurations(),
            "negative binomial, at most 100": NegativeBinomialDurations(100),
            "Poisson": PoissonDurations(),
            "free, at most 100": FreeDurations(100),
        }
        spent: dict[str, list[float]] = {name: [] for name in rivals}
        calls = {}
        for name, durations in rivals.items():
            problem = problem_of(HiddenMarkov(2, Normal(), 1, durations=durations), data, 0)
            start = problem.structure.start(problem, "spectral", 1)
            calls[name] = problem.structure.steps(problem, 2**18, 1), start
        for _ in range(5):
            for name, (own, start) in calls.items():
                began = time.process_time()
                own.e_step(start)
                spent[name].append(time.process_time() - began)
        best = {name: min(values) for name, values in spent.items()}
        yield {
            "part": "cost",
            "steps": steps,
            "milliseconds": {name: round(1000 * value, 1) for name, value in best.items()},
            "times_the_plain_chain": {
                name: round(value / best["plain"], 1) for name, value in best.items()
            },
        }


def measure(args: argparse.Namespace) -> Lines:
    warnings.simplefilter("ignore")
    if args.summarise is not None:
        text = args.summarise.read_text(encoding="utf-8")
        yield from summaries([json.loads(line) for line in text.splitlines()])
        return
    by_table: dict[str, Callable[[argparse.Namespace], Lines]] = {
        "level": partial(rejections, "level"),
        "power": partial(rejections, "power"),
        "recovery": recovery,
    }
    for part in args.parts:
        if part not in by_table:
            others = (null, number, published, options, cost)
            yield from {own.__name__: own for own in others}[part](args)
            continue
        lines = []
        for line in by_table[part](args):
            lines.append(line)
            yield line
        yield from summaries(lines)


def main(argv: list[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=200, threads=1)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--steps", type=int, default=600, help="of every sequence")
    parser.add_argument("--stays", type=int, default=50, help="of a sequence as published")
    parser.add_argument(
        "--sets", type=int, default=0, help="data sets of a bootstrap; 0: chi-square"
    )
    parser.add_argument(
        "--summarise", type=Path, metavar="FILE", help="of lines of earlier runs, and nothing else"
    )
    run(parser, measure, argv, quick={"replicates": 2, "steps": 150, "parts": ["level", "cost"]})


if __name__ == "__main__":
    main()
