"""Figures 2.2 and 2.3 of the study of options: errors of moments by steps, and of EM by iteration.

The paper prints no numbers, so that nothing is compared. Routes of figure 2.2: all states at once
(the paper's, with two constants) and, as "ours", state by state, plain and refined. Figure 2.3, at
300,000 steps: EM from random starts, one a replicate, and, as "ours", from the start of the plain
call.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from inference import EM, ConvergenceWarning, fit
from inference.structures.options import count_moments, refine_moments, state_by_state
from inference.structures.options.moments import MomentEstimate, OptionMoments
from papers.cells import Axes, Cell, Setting, Study, Table, published
from papers.joint_moments import all_states_at_once
from ppl_models import OptionsHMM
from ppl_models.datasets import options_chain, simulate_options

NAME = "options"
VERSION = 1  # raised where numbers have changed
CONSTANT_POLICY = 1.71  # error of probabilities of 1/2 everywhere, for scale
STEPS = (10**3, 3 * 10**3, 10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7)
FIRST_SEED = 1000
STEPS_OF_EM = 300_000
ITERATIONS = (1, 3, 10, 30, 100, 300, 1000, 3000)
STARTS = {"paper": "random", "ours": "spectral"}
ROUTES: dict[str, Callable[[OptionMoments], MomentEstimate]] = {
    "state by state": lambda moments: state_by_state(moments, 2),
    "state by state, refined": lambda moments: refine_moments(moments, state_by_state(moments, 2)),
    "all states at once, 0.05": lambda moments: all_states_at_once(moments, 2, 0.05),
    "all states at once, 0.25": lambda moments: all_states_at_once(moments, 2, 0.25),
}


def error(
    own_low: np.ndarray, own_high: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[float, float]:
    """Frobenius norm of all differences of policies, and the worst state's spectral norms, after
    the best permutation of the options.
    """
    best = (np.inf, np.inf)
    for order in itertools.permutations(range(low.shape[1])):
        of_low, of_high = (
            own_low[:, list(order)] - low,
            own_high[:, list(order)][:, :, list(order)] - high,
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
            estimate = route(moments)
            out[name] = error(estimate.low, estimate.high, low, high)
        except ValueError:
            out[name] = None
    return out


def course(init: str, seed: int) -> dict[str, float]:
    """Frobenius errors by number of EM iterations, of one start on a chain of 300,000 steps; the
    last is the number when EM has converged.
    """
    truth = options_chain()
    low, high = truth["low"].numpy(), truth["high"].numpy()
    data = simulate_options(truth, 1, STEPS_OF_EM, FIRST_SEED).packed
    model, start, out, done = OptionsHMM(4, 2, 2), init, {}, 0
    for num in ITERATIONS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            method = EM(max_iterations=num - done, tolerance=1e-13, parameter_tolerance=1e-7)
            result = fit(model, data, method, init=start, num_restarts=1, seed=seed)
        start, done = result.params, num
        found = result.params["low"].numpy(), result.params["high"].numpy()
        out[str(num)] = error(*found, low, high)[0]
    return out


def replicate(seed: int, num_steps: int = 0, init: str = "") -> dict[str, Any]:
    """Frobenius errors by route, where a route that refuses counts as equal probabilities; with
    ``init`` those of EM by iteration.
    """
    if init:
        return course(init, seed)
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


def _courses() -> list[Cell]:
    out = []
    for protocol, init in STARTS.items():
        setting = Setting(NAME, {"init": init}, 20, 30.0, VERSION, tolerance=0.05)
        for num in ITERATIONS:
            row = f"{init} start"
            for summary in ("median", "mean"):
                cell = Cell(f"{row}, {summary}", str(num), str(num), None, {protocol: setting},
                            summary, "less")  # fmt: skip
                out.append(cell)
    return out


STUDY = Study(
    NAME,
    "Nguyen, Li, Lai, Paschalidis and Huggins, Beyond Predictive Accuracy, chapter 2",
    "Paper: all states at once, with the constants 0.05 and 0.25 of its matrix; EM from random"
    " starts. Ours: state by state, refined; EM from there."
    f" {published('options_hmm')['published_numbers'].capitalize()}.",
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
        Table(
            "Fig. 2.3",
            "error of both policies by EM iteration at 300,000 steps, random starts; the mean lies"
            " above the median where a start ends elsewhere",
            _courses(),
            Axes(
                "EM iterations",
                "error of both policies",
                "Random starts stay near equal probabilities for tens of iterations, most reach"
                " the optimum by a thousand, and some end elsewhere (the mean stays above the"
                " median); the start by moments is there sooner.",
                log_y=True,
            ),
        ),
    ),
    replicate,
)
