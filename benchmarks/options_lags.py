"""Moments of options models: what further pasts add, and the coverage of the intervals.

Data: one sequence of the four-state chain. Pasts: the state of the step before, two and three steps
before, the state and action of the step before and two before; ``combined`` weighs the entries of
three lags by their inverse variances, with and without actions. Errors are Frobenius norms over
both policies, of the eigenvalue problem (``start``) and of the composite likelihood. ``within`` is
the share of 95 % intervals by the delta method that hold the true entry, with its standard error
over data sets; ``ratio`` the mean standard error over the root mean squared error. Part bootstrap:
the ratio of the delta method's standard errors to those of a parametric bootstrap, over entries.
One JSON line a number of steps and past. Run: ``python benchmarks/options_lags.py [--replicates
200] [--steps 20000 100000]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds

from inference.structures.options.moment_errors import (
    MomentErrors,
    blocks_of_moments,
    moment_errors,
    pooled,
)
from inference.structures.options.moments import (
    MomentEstimate,
    count_moments,
    refine_moments,
    state_by_state,
)
from ppl_models.datasets import options_chain, simulate_options

TRUTH = options_chain()
LOW, HIGH = TRUTH["low"].numpy(), TRUTH["high"].numpy()
TRUE = np.concatenate([LOW.ravel(), HIGH.ravel()])
PASTS = {
    "state": (1, False),
    "state, lag 2": (2, False),
    "state, lag 3": (3, False),
    "state and action": (1, True),
    "state and action, lag 2": (2, True),
    "state and action, lag 3": (3, True),
}
COMBINED = {
    "states combined": ("state", "state, lag 2", "state, lag 3"),
    "states and actions combined": (
        "state and action",
        "state and action, lag 2",
        "state and action, lag 3",
    ),
}


def estimated(data: torch.Tensor, lag: int, past_actions: bool) -> tuple[float, MomentErrors]:
    """The start's error, and the refined estimate with its errors."""
    kinds = {"lag": lag, "past_actions": past_actions}
    whole = count_moments(data, 4, 2, lag=lag, past_actions=past_actions)
    start = state_by_state(whole, 2)
    blocks = blocks_of_moments(data, 4, 2, **kinds)  # type: ignore[arg-type]
    estimate = refine_moments(pooled(blocks, whole.environment), start, 5_000, 1e-6)
    return float(np.linalg.norm(named(start) - TRUE)), moment_errors(blocks, estimate)


def named(estimate: MomentEstimate) -> np.ndarray:
    """Entries in the order of options that is nearest to the truth."""
    order = nearest(estimate)
    low, high = estimate.low[:, order], estimate.high[:, order][:, :, order]
    return np.concatenate([low.ravel(), high.ravel()])


def nearest(estimate: MomentEstimate) -> list[int]:
    return min(
        ([0, 1], [1, 0]),
        key=lambda p: float(
            ((estimate.low[:, p] - LOW) ** 2).sum()
            + ((estimate.high[:, p][:, :, p] - HIGH) ** 2).sum()
        ),
    )


def intervals(found: MomentErrors) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors, and whether each interval holds the truth."""
    order = nearest(found.estimate)
    se, (low, high) = found.standard_errors, found.intervals()
    low, high = low[:, order], high[:, order][:, :, order]
    errors = np.concatenate([se[0][:, order].ravel(), se[1][:, order][:, :, order].ravel()])
    ends = np.concatenate([low.reshape(-1, 2), high.reshape(-1, 2)])
    return errors, (ends[:, 0] <= TRUE) & (ends[:, 1] >= TRUE)


def simulated(num_steps: int, seed: int) -> torch.Tensor:
    return simulate_options(TRUTH, 1, num_steps, seed).packed


def measure(args: argparse.Namespace) -> Lines:
    for num_steps in args.steps:
        found: dict[str, list[tuple[float, np.ndarray, np.ndarray, np.ndarray]]] = {
            name: [] for name in PASTS
        }
        for seed in seeds(args):
            data = simulated(num_steps, seed)
            for name, past in PASTS.items():
                start, own = estimated(data, *past)
                found[name].append((start, named(own.estimate), *intervals(own)))
        for name, own in found.items():
            yield line(name, num_steps, own)
        for name, parts in COMBINED.items():
            weights = np.stack(
                [[1 / np.maximum(each[2], 1e-4) ** 2 for each in found[part]] for part in parts]
            )
            values = np.stack([[each[1] for each in found[part]] for part in parts])
            mean = (weights * values).sum(0) / weights.sum(0)
            errors = np.linalg.norm(mean - TRUE, axis=1)
            yield {"steps": num_steps, "past": name, "tables": len(errors), **of_errors(errors)}
        yield from bootstrap(args, num_steps)


def of_errors(errors: np.ndarray) -> dict[str, object]:
    quartiles = np.quantile(errors, [0.25, 0.75])
    return {
        "median_error": round(float(np.median(errors)), 4),
        "quartiles": [round(float(q), 4) for q in quartiles],
    }


def line(
    name: str, num_steps: int, own: Sequence[tuple[float, np.ndarray, np.ndarray, np.ndarray]]
) -> dict[str, object]:
    starts, values, errors, within = (np.array([each[i] for each in own]) for i in range(4))
    shares = within.mean(1)
    rmse = np.sqrt(((values - TRUE) ** 2).mean(0))
    return {
        "steps": num_steps,
        "past": name,
        "tables": len(own),
        "median_start": round(float(np.median(starts)), 4),
        **of_errors(np.linalg.norm(values - TRUE, axis=1)),
        "within": round(float(shares.mean()), 4),
        "within_se": round(float(shares.std(ddof=1) / len(own) ** 0.5), 4) if len(own) > 1 else 0,
        "ratio": round(float(errors.mean(0).mean() / rmse.mean()), 3),
    }


def bootstrap(args: argparse.Namespace, num_steps: int) -> Lines:
    """Standard errors of one data set by the delta method over those of a bootstrap."""
    first = args.first_seed
    _, own = estimated(simulated(num_steps, first), 1, True)
    order = nearest(own.estimate)
    policies = {
        "low": torch.from_numpy(own.estimate.low[:, order].copy()),
        "high": torch.from_numpy(own.estimate.high[:, order][:, :, order].copy()),
    }
    drawn = []
    for seed in range(args.draws):
        data = simulate_options(TRUTH | policies, 1, num_steps, 10**6 + seed).packed
        drawn.append(named(estimated(data, 1, True)[1].estimate))
    ratios = intervals(own)[0] / np.std(drawn, axis=0, ddof=1)
    yield {
        "steps": num_steps,
        "part": "bootstrap",
        "past": "state and action",
        "draws": args.draws,
        "delta_over_bootstrap": round(float(np.median(ratios)), 3),
        "range": [round(float(ratios.min()), 3), round(float(ratios.max()), 3)],
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=200)
    parser.add_argument("--steps", nargs="+", type=int, default=[20_000, 100_000])
    parser.add_argument("--draws", type=int, default=100, help="replicates of the bootstrap")
    run(parser, measure, argv, {"replicates": 2, "steps": [20_000], "draws": 3})


if __name__ == "__main__":
    main()
