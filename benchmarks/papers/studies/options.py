"""Figure 2.2 of the study of options: error of the method of moments by number of steps.

The paper prints no numbers, so that nothing is compared. Routes: all states at once (the paper's,
with two constants) and, as "ours", state by state, plain and refined.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from inference.structures.options import count_moments, refine_moments, state_by_state
from inference.structures.options.moments import MomentEstimate, OptionMoments
from papers.cells import Axes, Cell, Setting, Study, Table, published
from papers.joint_moments import all_states_at_once
from ppl_models.datasets import options_chain, simulate_options

NAME = "options"
VERSION = 1  # raised where numbers have changed
CONSTANT_POLICY = 1.71  # error of probabilities of 1/2 everywhere, for scale
STEPS = (10**3, 3 * 10**3, 10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7)
FIRST_SEED = 1000
ROUTES: dict[str, Callable[[OptionMoments], MomentEstimate]] = {
    "state by state": lambda moments: state_by_state(moments, 2),
    "state by state, refined": lambda moments: refine_moments(moments, state_by_state(moments, 2)),
    "all states at once, 0.05": lambda moments: all_states_at_once(moments, 2, 0.05),
    "all states at once, 0.25": lambda moments: all_states_at_once(moments, 2, 0.25),
}


def error(estimate: MomentEstimate, low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """Frobenius norm of all entries, and the worst state's spectral norms, after the best
    permutation.
    """
    best = (np.inf, np.inf)
    for order in itertools.permutations(range(low.shape[1])):
        of_low, of_high = (
            estimate.low[:, list(order)] - low,
            estimate.high[:, list(order)][:, :, list(order)] - high,
        )
        frobenius = float(np.sqrt((of_low**2).sum() + (of_high**2).sum()))
        spectral = [np.linalg.norm(part, 2, axis=(1, 2)).max() for part in (of_low, of_high)]
        best = min(best, (frobenius, float(np.hypot(*spectral))))
    return best


def errors(num_steps: int, seed: int) -> dict[str, tuple[float, float] | None]:
    """By route, the two errors on one chain; None where the route refuses."""
    truth = options_chain()
    low, high = truth["low"].numpy(), truth["high"].numpy()
    moments = count_moments(simulate_options(truth, 1, num_steps, FIRST_SEED + seed).packed, 4, 2)
    out: dict[str, tuple[float, float] | None] = {}
    for name, route in ROUTES.items():
        try:
            out[name] = error(route(moments), low, high)
        except ValueError:
            out[name] = None
    return out


def replicate(num_steps: int, seed: int) -> dict[str, Any]:
    """Frobenius errors by route; a route that refuses counts as equal probabilities."""
    found = errors(num_steps, seed)
    return {name: CONSTANT_POLICY if own is None else own[0] for name, own in found.items()}


def _cells() -> list[Cell]:
    out = []
    for num_steps in STEPS:
        setting = Setting(NAME, {"num_steps": num_steps}, 20, 0.05 + num_steps / 5e5, VERSION)
        for route in ROUTES:
            protocol = "paper" if route.startswith("all") else "ours"
            settings = {protocol: setting}
            row = (route, str(num_steps), route)
            out.append(Cell(*row, None, settings, "median", "less"))
    return out


STUDY = Study(
    NAME,
    "Nguyen, Li, Lai, Paschalidis and Huggins, Beyond Predictive Accuracy, chapter 2",
    "Paper: all states at once, with the constants 0.05 and 0.25 of its matrix. Ours: state by"
    f" state. {published('options_hmm')['published_numbers'].capitalize()}.",
    (
        Table(
            "Fig. 2.2",
            "median error of both policies (Frobenius norm, best permutation; 1.71 for equal"
            " probabilities) by number of steps",
            _cells(),
            Axes(
                "steps T",
                "error of both policies",
                "On logarithmic axes curves fall in parallel with slope -1/2 from 100,000 steps"
                " on.",
                log_y=True,
            ),
        ),
    ),
    replicate,
)
