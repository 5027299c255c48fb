"""Seconds of one EM iteration of an options HMM, beside hmmlearn's compiled one; scaling; ragged
batches; starts.

Parts: iteration, symbols, states, length, options, ragged, starts; all but starts by default
(starts takes half an hour). The figure shows seconds and memory against the number of steps,
seconds against the number of options, and the ragged batch beside its loop, of the parts that were
run. Every comparison times both sides in one run, in turns, and reports the fastest of each. The
part "iteration", and half of "symbols", need hmmlearn, which is not a dependency. Run: ``python
benchmarks/options_em.py [--parts iteration length] [--figure FILE]``.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.util
import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _bench import Lines, Peak, command_line, fastest, resident, run
from papers.options import random_options

from inference import EM, fit
from inference.alignment import align
from inference.structures.options import policy_error
from inference.structures.options.em_steps import OptionSteps
from inference.structures.options.structure import random_policies
from ppl_models import OptionsHMM
from ppl_models.data.sequences import pack
from ppl_models.datasets import options_chain, simulate_options
from ppl_models.sequences.chain_plan import ChainPlan, plan_of


def one_iteration(model: OptionsHMM, data: torch.Tensor, seed: int = 0) -> Callable[[], Any]:
    """E-step and M-step from a random start."""
    plan = plan_of(data, model.num_states, model.num_actions)
    steps, params = OptionSteps(model.chain(), plan), random_policies(model.chain(), plan, 1, seed)
    return lambda: steps.m_step(steps.e_step(params)[0], params)


def iteration(args: argparse.Namespace) -> Lines:
    """A chain of 2 options and 8 (state, action) symbols beside hmmlearn's HMM of 2 states and 8
    symbols.
    """
    if importlib.util.find_spec("hmmlearn") is None:
        yield {"skipped": "hmmlearn is not installed"}
        return
    from hmmlearn.hmm import CategoricalHMM

    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    data = simulate_options(options_chain(), 1, args.steps, 7).packed
    symbols = (data[0, :, 0] * 2 + data[0, :, 1]).numpy()[:, None]

    def theirs(implementation: str) -> Callable[[], Any]:
        def seconds() -> float:
            model = CategoricalHMM(
                2, n_iter=5, tol=-np.inf, implementation=implementation, random_state=0
            )
            began = time.perf_counter()
            model.fit(symbols)
            return (time.perf_counter() - began) / 5

        return seconds

    began = time.perf_counter()
    ChainPlan.build(data, 4, 2)
    plan_seconds = time.perf_counter() - began
    ours = one_iteration(OptionsHMM(4, 2, 2), data)
    ours()
    times: dict[str, list[float]] = {"ours": [], "log": [], "scaling": []}
    for _ in range(7):
        times["ours"].append(fastest(ours, 5))
        for name in ("log", "scaling"):
            times[name].append(theirs(name)())
    best = {name: min(values) for name, values in times.items()}
    yield {
        "num_steps": args.steps,
        "options": 2,
        "seconds": round(best["ours"], 5),
        "seconds_of_the_plan_once": round(plan_seconds, 4),
        "hmmlearn_default_log": round(best["log"], 5),
        "hmmlearn_scaling": round(best["scaling"], 5),
        "ratio_to_log": round(best["ours"] / best["log"], 3),
        "ratio_to_scaling": round(best["ours"] / best["scaling"], 3),
    }


SYMBOLS = (
    (300, 5, 2, 100_000),
    (10, 5, 10, 100_000),
)  # states, actions, options, steps: 1,500 symbols in 2 hidden states, 50 in 10


def symbols(args: argparse.Namespace) -> Lines:
    """Many (state, action) symbols, or many options, beside hmmlearn's chain of as many hidden
    states and symbols.
    """
    for states, actions, num_options, steps in SYMBOLS:
        data = simulate_options(
            random_options(states, actions, num_options, 1), 1, min(steps, args.steps), 2
        ).packed
        step = one_iteration(OptionsHMM(states, actions, num_options), data)
        step()
        line = {
            "states": states,
            "actions": actions,
            "options": num_options,
            "num_steps": data.shape[1],
            "seconds": round(fastest(step, 5), 5),
        }
        yield line | {
            f"hmmlearn_{name}": _seconds_of_theirs(
                (data[0, :, 0] * actions + data[0, :, 1]).numpy(),
                num_options,
                states * actions,
                name,
            )
            for name in ("log", "scaling")
        }


def _seconds_of_theirs(
    values: np.ndarray, hidden: int, num_symbols: int, implementation: str
) -> float | None:
    """Seconds of an iteration of hmmlearn's; None where it is not installed."""
    if importlib.util.find_spec("hmmlearn") is None:
        return None
    from hmmlearn.hmm import CategoricalHMM

    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    best = float("inf")
    for _ in range(3):
        model = CategoricalHMM(
            hidden,
            n_iter=5,
            tol=-np.inf,
            implementation=implementation,
            random_state=0,
            n_features=num_symbols,
        )
        began = time.perf_counter()
        model.fit(values[:, None])
        best = min(best, (time.perf_counter() - began) / 5)
    return round(best, 5)


def states(args: argparse.Namespace) -> Lines:
    """The plain call, with one option and with several, and what one of its iterations takes."""
    for num_states, num_options, steps in (
        (19, 1, 10_000),
        (19, 2, 10_000),
        (300, 1, 100_000),
        (300, 2, 100_000),
    ):
        data = simulate_options(
            random_options(num_states, 5, num_options, 1), 100, min(steps, args.steps) // 100, 2
        ).packed
        model = OptionsHMM(num_states, 5, num_options)
        step = one_iteration(model, data)
        step()
        began = time.perf_counter()
        found = fit(model, data)
        line = {
            "states": num_states,
            "options": num_options,
            "num_steps": data[..., 0].numel(),
            "seconds": round(time.perf_counter() - began, 2),
        }
        yield line | {
            "seconds_of_an_iteration": round(fastest(step, 3), 5),
            "iterations": found.num_iterations,
            "converged": found.converged,
        }


def tidy() -> None:
    """Freed memory back to the system, so that what is resident afterwards is new."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def length(args: argparse.Namespace) -> Lines:
    """Seconds, and memory beside the data: of making the plan, of keeping it, of iterations, and of
    a whole short fit.
    """
    for num_steps in (10**k for k in range(3, 8) if 10**k <= args.largest):
        data = simulate_options(options_chain(), 1, num_steps, 7).packed
        tidy()
        began, before = time.perf_counter(), resident()
        with Peak() as plan:
            step = one_iteration(OptionsHMM(4, 2, 2), data)
        plan_seconds = time.perf_counter() - began
        tidy()
        kept = resident() - before
        with Peak() as steps:
            seconds = fastest(step, 3)
        del step
        tidy()
        with Peak() as whole:
            fit(OptionsHMM(4, 2, 2), data, EM(max_iterations=2), init="spectral")
        memory = {
            "of_the_data": data.nbytes,
            "of_making_the_plan": plan.extra,
            "kept": kept,
            "of_iterations": steps.extra,
            "of_a_fit": whole.extra,
        }
        line = {
            "num_steps": num_steps,
            "seconds": round(seconds, 5),
            "seconds_of_the_plan": round(plan_seconds, 3),
        }
        yield line | {"MiB": {name: round(value / 2**20, 1) for name, value in memory.items()}}


def options(args: argparse.Namespace) -> Lines:
    data = simulate_options(options_chain(), 1, args.steps, 7).packed
    for num_options in (1, 2, 4, 8) if args.quick else (1, 2, 4, 8, 16, 32, 64):
        step = one_iteration(OptionsHMM(4, 2, num_options), data)
        yield {
            "num_steps": args.steps,
            "options": num_options,
            "seconds": round(fastest(step, 2), 4),
        }


def ragged(args: argparse.Namespace) -> Lines:
    generator = np.random.default_rng(0)
    lengths = torch.from_numpy(generator.integers(20, 400, size=args.sequences))
    whole = simulate_options(options_chain(), args.sequences, 400, 7).data
    data = pack(whole["state"], whole["action"], lengths)
    together = one_iteration(OptionsHMM(4, 2, 2), data)
    singles = [
        one_iteration(OptionsHMM(4, 2, 2), data[n : n + 1, : lengths[n]].clone())
        for n in range(args.sequences)
    ]
    together()
    batch, loop = fastest(together, 5), fastest(lambda: [step() for step in singles], 2)
    line = {"sequences": args.sequences, "steps": int(lengths.sum()), "seconds": round(batch, 5)}
    yield line | {"seconds_of_the_loop": round(loop, 4), "ratio": round(loop / batch, 1)}


def starts(args: argparse.Namespace) -> Lines:
    """EM at 300,000 steps: moment starts on ten data sets, 24 random starts on two of them, stopped
    at gains below 1e-4.
    """
    patient = EM(max_iterations=4000, tolerance=5e-10, parameter_tolerance=1.0)
    truth, model = options_chain(), OptionsHMM(4, 2, 2, concentration=1.0)
    for seed in range(7, 17):
        data = simulate_options(truth, 1, 300_000, seed).packed
        known = fit(model, data, EM(), init=truth)
        begun = time.perf_counter()
        found = fit(model, data, EM(), init="spectral")
        yield {
            "init": "spectral",
            "seed": seed,
            "reached": found.log_likelihood > known.log_likelihood - 1.0,
            "iterations": found.num_iterations,
            "seconds": round(time.perf_counter() - begun, 2),
            "error": round(policy_error(align(found, truth).params, truth, model.chain()), 4),
            "winner": found.restarts.best,
            "iterations_from_moments": int(found.restarts.num_iterations[0]),
            "error_from_truth": round(
                policy_error(align(known, truth).params, truth, model.chain()), 4
            ),
            "iterations_from_truth": known.num_iterations,
        }
        if seed < 9:
            begun = time.perf_counter()
            many = fit(model, data, patient, init="random", num_restarts=24).restarts
            reached = many.log_likelihood > known.log_likelihood - 1.0
            yield {
                "init": "random",
                "seed": seed,
                "num_starts": 24,
                "share_reached": float(reached.double().mean()),
                "median_iterations": statistics.median(many.num_iterations.tolist()),
                "most_iterations": int(many.num_iterations.max()),
                "iterations": many.num_iterations.tolist(),
                "short_of_the_best": (known.log_likelihood - many.log_likelihood)
                .round(decimals=2)
                .tolist(),
                "seconds": round(time.perf_counter() - begun, 1),
            }


def draw(lines: list[Mapping[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    def of(part: str) -> list[Mapping[str, Any]]:
        return [values for values in lines if values["part"] == part]

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    if of("length"):
        steps = [v["num_steps"] for v in of("length")]
        left.loglog(
            steps, [v["seconds"] for v in of("length")], marker="o", label="seconds an iteration"
        )
        left.loglog(
            steps,
            [v["seconds_of_the_plan"] for v in of("length")],
            marker="s",
            label="seconds of the plan, once",
        )
        twin = left.twinx()
        twin.loglog(
            steps,
            [v["MiB"]["of_a_fit"] for v in of("length")],
            color="#888888",
            linestyle=":",
            label="MiB of a fit beside the data (right)",
        )
        handles = [artist for ax in (left, twin) for artist in ax.get_lines()]
        left.legend(handles=handles, fontsize=8)
    left.set(xlabel="steps T", ylabel="seconds", title="Linear in T (2 options)")
    if of("options"):
        sizes = [v["options"] for v in of("options")]
        middle.loglog(sizes, [v["seconds"] for v in of("options")], marker="o")
        middle.set_xticks(sizes, sizes)
    middle.set(xlabel="options", ylabel="seconds an iteration", title="by options")
    if of("ragged"):
        (values,) = of("ragged")
        bars = right.bar(
            ["one batch", "a loop"],
            [values["seconds"], values["seconds_of_the_loop"]],
            color=["#0072B2", "#999999"],
        )
        right.bar_label(bars)
        right.set_yscale("log")
        right.margins(y=0.15)
    right.set(ylabel="seconds an iteration", title="ragged sequences")
    figure.savefig(path, dpi=150)


PARTS = {
    "iteration": iteration,
    "symbols": symbols,
    "states": states,
    "length": length,
    "options": options,
    "ragged": ragged,
    "starts": starts,
}


def measure(args: argparse.Namespace) -> Lines:
    lines: list[Mapping[str, Any]] = []
    for part in args.parts:
        for line in PARTS[part](args):
            lines.append({"part": part, **line})
            yield lines[-1]
    if args.figure is not None:
        draw(lines, args.figure)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__)
    parser.add_argument(
        "--parts",
        nargs="+",
        default=[name for name in PARTS if name != "starts"],
        choices=list(PARTS),
    )
    parser.add_argument("--steps", type=int, default=300_000, help="of iteration and options")
    parser.add_argument("--largest", type=int, default=10**7, help="steps of length")
    parser.add_argument("--sequences", type=int, default=1000, help="of ragged")
    parser.add_argument("--figure", type=Path, metavar="FILE")
    run(parser, measure, argv, {"steps": 10_000, "largest": 10_000, "sequences": 50})


if __name__ == "__main__":
    main()
