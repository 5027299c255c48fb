"""Hidden Markov models: seconds and memory of one EM iteration beside hmmlearn's, and how well the
truth and its intervals are found.

Parts: iteration (normal items, and one item of many symbols; hmmlearn, which is not a dependency,
where it is installed, at the same parameters), recovery (plain fits of simulated sequences: does
the plain call reach the log-likelihood of a run from the truth, and how often do 95 % intervals of
means and transitions hold it?), own (a Pyro program with a pyro.markov loop, as a user writes it,
beside the family: one iteration, and the plain call). Run: ``python benchmarks/hidden_markov.py
[--parts iteration recovery own]``.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Sequence

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from _bench import Lines, Peak, command_line, fastest, run, seeds

from inference import EM, fit
from inference.alignment import align
from inference.fitting.problem import problem_of
from inference.structures.registry import structure_of
from inference.uncertainty import standard_errors
from ppl_models import Categorical, HiddenMarkov, Normal

SIZES = (  # steps, states, normal items; or steps, states, one item of so many symbols
    (100_000, 5, 3, None), (1_000_000, 3, 1, None), (100_000, 20, 5, None),
    (300_000, 3, 1, 8), (100_000, 2, 1, 1500), (50_000, 10, 1, 50),
)  # fmt: skip


def truth_of(
    num_states: int, num_items: int, seed: int, num_symbols: int | None = None
) -> dict[str, torch.Tensor]:
    """States that last ten steps, a standard deviation and a half apart, or with symbols of their
    own.
    """
    rng = np.random.default_rng(seed)
    values = {
        "initial": np.full(num_states, 1 / num_states),
        "transitions": (
            0.9 * np.eye(num_states) + 0.1 * rng.dirichlet(np.ones(num_states), num_states)
        ),
    }
    if num_symbols is None:
        centres = 1.5 * np.stack([rng.permutation(num_states) for _ in range(num_items)], 1)
        values |= {"predictors": centres, "dispersion": np.ones((num_states, num_items))}
    else:
        values["probabilities"] = (
            0.98 * rng.dirichlet(np.full(num_symbols, 0.5), num_states) + 0.02 / num_symbols
        )
    return {name: torch.tensor(value) for name, value in values.items()}


def drawn(
    truth: dict[str, torch.Tensor], num_sequences: int, num_steps: int, seed: int
) -> torch.Tensor:
    """(B, T, J)."""
    rng = np.random.default_rng(seed)

    def picked(table: np.ndarray, of: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        return np.minimum((uniform[..., None] >= table.cumsum(1)[of]).sum(-1), table.shape[1] - 1)

    moves = truth["transitions"].numpy()
    state = np.empty((num_sequences, num_steps), dtype=int)
    state[:, 0] = rng.integers(len(moves), size=num_sequences)
    for t, uniform in enumerate(rng.random((num_steps - 1, num_sequences)), 1):
        state[:, t] = picked(moves, state[:, t - 1], uniform)
    if "probabilities" in truth:
        rows = [picked(truth["probabilities"].numpy(), of, rng.random(of.shape)) for of in state]
        return torch.tensor(np.stack(rows)[..., None].astype(float))
    centres = truth["predictors"].numpy()[state]
    return torch.tensor(centres + rng.standard_normal(centres.shape))


def iteration(args: argparse.Namespace) -> Lines:
    """One E-step and one M-step of one start, of ours and of hmmlearn in turn."""
    for steps, states, items, symbols in SIZES:
        steps = min(steps, args.steps)
        truth = truth_of(states, items, 1, symbols)
        data = drawn(truth, 1, steps, 2)
        model = HiddenMarkov(states, Normal() if symbols is None else Categorical(symbols), items)
        own = structure_of(model).steps(problem_of(model, data, 0), EM().elements_at_once(data), 1)
        params = {name: value[None] for name, value in truth.items()}
        own.e_step(params)
        with Peak() as peak:
            own.m_step(own.e_step(params)[0], params)
        best = {"ours": float("inf")}
        for _ in range(args.repeats):
            best["ours"] = min(
                best["ours"],
                fastest(
                    lambda own=own, params=params: own.m_step(own.e_step(params)[0], params), 1
                ),
            )
            for name in ("log", "scaling"):
                seconds = theirs(truth, data[0].numpy(), name)
                if seconds is not None:
                    best[f"hmmlearn_{name}"] = min(best.get(f"hmmlearn_{name}", seconds), seconds)
        line = {
            "part": "iteration",
            "steps": steps,
            "states": states,
            "items": items,
            "symbols": symbols,
            "peak_mb": round((peak.most - peak.start) / 2**20),
        }
        yield (
            line
            | {f"seconds_{name}": round(value, 4) for name, value in best.items()}
            | {
                f"ratio_to_{name}": round(best["ours"] / value, 2)
                for name, value in best.items()
                if name != "ours"
            }
        )


def theirs(truth: dict[str, torch.Tensor], table: np.ndarray, implementation: str) -> float | None:
    """Seconds of hmmlearn's iteration; None where it is not installed."""
    if importlib.util.find_spec("hmmlearn") is None:
        return None
    from hmmlearn.hmm import CategoricalHMM, GaussianHMM

    of = {name: value.numpy() for name, value in truth.items()}
    settings = {"n_iter": 1, "tol": -np.inf, "init_params": "", "implementation": implementation}
    if "probabilities" in of:
        other = CategoricalHMM(
            len(of["initial"]), n_features=of["probabilities"].shape[1], **settings
        )
        other.emissionprob_, table = of["probabilities"], table.astype(int)
    else:
        other = GaussianHMM(len(of["initial"]), **settings)
        other.means_, other.covars_ = of["predictors"], of["dispersion"]
    other.startprob_, other.transmat_ = of["initial"], of["transitions"]
    began = time.perf_counter()
    other.fit(table)
    return time.perf_counter() - began


def recovery(args: argparse.Namespace) -> Lines:
    """The plain call on ten sequences of 100 steps."""
    model = HiddenMarkov(3, Normal(), 2, "stationary")
    for seed in seeds(args):
        truth = {name: value for name, value in truth_of(3, 2, seed).items() if name != "initial"}
        data = drawn(truth, 10, 100, seed + 1000)
        began = time.process_time()
        found = fit(model, data, seed=seed)
        seconds = time.process_time() - began
        best = fit(model, data, EM(), init=truth).log_likelihood
        result = fit(model, data, EM(), init=align(found, truth).params)
        limits = standard_errors(result, data, hold_bounds=True).intervals()
        own = align(result, truth)
        order = own.permutations["states"]
        held = {}
        for name in ("predictors", "transitions"):
            low, high = (
                limit[order][:, order] if name == "transitions" else limit[order]
                for limit in limits[name]
            )
            inside = ((low <= truth[name]) & (truth[name] <= high))[~low.isnan()]
            held[name] = round(float(inside.double().mean()), 3)
        yield {
            "part": "recovery",
            "seed": seed,
            "seconds": round(seconds, 2),
            "short_of_truth": round(best - found.log_likelihood, 4),
            "covered": held,
            "num_tried": found.restarts.num_tried,
        }


def program(data: torch.Tensor) -> None:
    """Normal items in hidden states, as a user writes it."""
    start = pyro.sample("start", dist.Dirichlet(torch.ones(3)))
    moves = pyro.sample("moves", dist.Dirichlet(torch.ones(3, 3)).to_event(1))
    mean = pyro.sample("mean", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
    spread = pyro.sample("spread", dist.Gamma(2.0, 2.0).expand([3]).to_event(1))
    with pyro.plate("sequences", data.shape[0]):
        z = None
        for t in pyro.markov(range(data.shape[1])):
            z = pyro.sample(f"z_{t}", dist.Categorical(start if z is None else moves[z]))
            pyro.sample(f"x_{t}", dist.Normal(mean[z], spread[z]), obs=data[:, t])


def own(args: argparse.Namespace) -> Lines:
    """A program and the family on the same sequence; with a short loop step by step too, where that
    can be waited for.
    """
    for steps in (200, 2000):
        data = drawn(truth_of(3, 1, 1), 1, min(steps, args.steps), 2)
        began = time.process_time()
        problem = problem_of(program, data[..., 0], 0)
        looked = problem.program()
        is_chain = looked.is_chain
        line: dict[str, object] = {
            "part": "own",
            "steps": data.shape[1],
            "is_chain": is_chain,
            "seconds_before_the_first": round(time.process_time() - began, 3),
        }
        start = {name: value[:1] for name, value in looked.draw_prior(1, 0).items()}
        ours = EM().steps(problem)
        ours.m_step(ours.e_step(start)[0], start)
        line["seconds_of_an_iteration"] = round(
            fastest(lambda own=ours, at=start: own.m_step(own.e_step(at)[0], at), args.repeats), 4
        )
        model = HiddenMarkov(3, Normal(), 1)
        family = problem_of(model, data, 0)
        theirs_start = {
            name: value[:1] for name, value in family.program_of_one_row().draw_prior(1, 0).items()
        }
        fast = structure_of(model).steps(family, EM().elements_at_once(family.data), 1)
        fast.m_step(fast.e_step(theirs_start)[0], theirs_start)
        line["of_the_family"] = round(
            fastest(
                lambda own=fast, at=theirs_start: own.m_step(own.e_step(at)[0], at), args.repeats
            ),
            4,
        )
        for name, what, rows in (
            ("fit", program, data[..., 0]),
            ("fit_of_the_family", model, data),
        ):
            began = time.process_time()
            found = fit(what, rows)
            line |= {
                f"seconds_of_{name}": round(time.process_time() - began, 2),
                f"log_likelihood_of_{name}": round(found.log_likelihood, 3),
                f"starts_of_{name}": found.restarts.num_tried,
            }
        yield line


PARTS = {"iteration": iteration, "recovery": recovery, "own": own}


def measure(args: argparse.Namespace) -> Lines:
    for part in args.parts:
        yield from PARTS[part](args)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=40)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--steps", type=int, default=10**6, help="most steps of iteration")
    parser.add_argument("--repeats", type=int, default=3, help="of which the fastest counts")
    run(parser, measure, argv, {"steps": 2000, "repeats": 1, "replicates": 1})


if __name__ == "__main__":
    main()
