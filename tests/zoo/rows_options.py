"""Rows of the zoo's table for models of hidden options, and their likelihood by visiting every path
of options.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from zoo.rows_hidden_markov import duration_tables, visits_of

from inference import Fit
from inference.base.align import match_columns
from inference.structures.options.align import permute_options
from ppl_models import (
    FreeDurations,
    GeometricDurations,
    NegativeBinomialDurations,
    OptionsHMM,
    PoissonDurations,
)

Params = dict[str, Tensor]


def all_paths(
    params: Mapping[str, np.ndarray], row: np.ndarray
) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Every path of options of one packed sequence (T, 2), and its probability with states and
    actions, the missing actions summed out one by one.
    """
    row = row[row[:, 0] >= 0]
    num_options, num_actions = params["initial"].shape[1], params["low"].shape[2]
    state, action = row.T
    gaps = np.flatnonzero(action < 0)
    paths = list(itertools.product(range(num_options), repeat=len(row)))
    total = np.zeros(len(paths))
    for filled in itertools.product(range(num_actions), repeat=len(gaps)):
        action = row[:, 1].copy()
        action[gaps] = filled
        for i, path in enumerate(paths):
            value = params["initial"][state[0], path[0]]
            for t in range(len(row)):
                value *= params["low"][state[t], path[t], action[t]]
                if t + 1 < len(row):
                    value *= params["environment"][action[t], state[t], state[t + 1]]
                    value *= params["high"][state[t + 1], path[t], path[t + 1]]
            total[i] += value
    return paths, total


def by_paths(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    """(B,), the log-likelihood of packed sequences."""
    return np.array([np.log(all_paths(params, row)[1].sum()) for row in data])


def options_truth(
    num_states: int, num_actions: int, num_options: int, seed: int, sharp: float = 0.5
) -> Params:
    """Parameters with options that differ and tend to stay."""
    generator = np.random.default_rng(seed)
    eye = np.eye(num_options)
    truth = {
        "initial": (
            generator.dirichlet(np.full(num_states * num_options, 5.0)).reshape(
                num_states, num_options
            )
        ),
        "low": (
            generator.dirichlet(np.full(num_actions, sharp), size=(num_states, num_options)) * 0.9
            + 0.1 / num_actions
        ),
        "high": (
            0.7 * eye
            + 0.3 * generator.dirichlet(np.ones(num_options), size=(num_states, num_options))
        ),
        "environment": generator.dirichlet(
            np.full(num_states, 2.0), size=(num_actions, num_states)
        ),
    }
    return {name: torch.tensor(value) for name, value in truth.items()}


def relabelled(result: Fit, truth: Params) -> Params:
    flat = [low.transpose(0, 1).flatten(1).mT for low in (result.params["low"], truth["low"])]
    return permute_options(result.model.chain(), result.params, match_columns(*flat).permutation)


def ending(truth: Params) -> Params:
    """The same with chances of ending and choices in the place of the high-level policy."""
    generator = np.random.default_rng(5)
    shape = truth["high"].shape[:2]
    rest = {name: value for name, value in truth.items() if name != "high"}
    end, choice = (
        generator.uniform(0.1, 0.5, size=shape),
        generator.dirichlet(np.full(shape[1], 2.0), size=shape[0]),
    )
    return rest | {"termination": torch.tensor(end), "choice": torch.tensor(choice)}


def by_ends(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    """(B,), options ended and chosen anew, one entry of the high-level policy at a time."""
    high = np.zeros((*params["termination"].shape, params["termination"].shape[1]))
    for s, o, p in np.ndindex(high.shape):
        high[s, o, p] = params["termination"][s, o] * params["choice"][s, p] + (
            1 - params["termination"][s, o]
        ) * (o == p)
    return by_paths({**params, "high": high}, data)


def paths_of_visits(
    model: OptionsHMM, params: Mapping[str, np.ndarray], row: np.ndarray
) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Every path of options of one packed sequence (T, 2), and its probability with states and
    actions, visit by visit.
    """
    row = row[row[:, 0] >= 0]
    # states and actions along every path, options following each other at no cost
    paths, total = all_paths({**params, "high": np.ones_like(params["choice"])}, row)
    durations, survival = duration_tables(model, params)
    for i, path in enumerate(paths):
        *ended, (last, steps) = visits_of(path)
        t, value = 0, np.exp(survival[last, steps - 1])
        for (k, n), (following, _) in itertools.pairwise([*ended, (last, steps)]):
            t += n
            value *= np.exp(durations[k, n - 1]) * params["choice"][row[t, 0], k, following]
        total[i] *= value
    return paths, total


def visiting(model: OptionsHMM, truth: Params) -> Params:
    """The same with durations and choices in the place of the high-level policy."""
    generator = np.random.default_rng(6)
    states, options = truth["high"].shape[:2]
    rest = {name: value for name, value in truth.items() if name != "high"}
    choice = generator.dirichlet(np.full(options, 2.0), size=(states, options))
    choice = choice * (1 - np.eye(options))
    own = {
        "mean_durations": generator.uniform(1.5, 3.0, size=options),
        "duration_sizes": generator.uniform(0.5, 5.0, size=options),
        "duration_chances": generator.dirichlet(
            np.full(model.durations.max_duration or 2, 2.0), size=options
        ),
    }
    own = {name: own[name] for name in model.durations.site_dims}
    own["choice"] = choice / choice.sum(-1, keepdims=True)
    return rest | {name: torch.tensor(value) for name, value in own.items()}


def duration_rows(row: type) -> list[Any]:
    """Rows of options with durations."""
    out = []
    for durations, (s, a, o), steps in (
        (NegativeBinomialDurations(3), (2, 2, 3), 4),
        (PoissonDurations(4), (3, 2, 2), 4),
        (FreeDurations(3), (2, 2, 2), 5),
        (GeometricDurations(), (2, 2, 3), 3),
    ):
        model = OptionsHMM(s, a, o, num_steps=steps, durations=durations)
        shapes = {
            "initial": (s, o),
            "low": (s, o, a),
            "choice": (s, o, o),
            "environment": (a, s, s),
            "trajectories": (steps, 2),
            **{
                name: (o, durations.max_duration) if name == "duration_chances" else (o,)
                for name in durations.site_dims
            },
        }

        def by_visits(
            params: Mapping[str, np.ndarray], data: np.ndarray, model: OptionsHMM = model
        ) -> np.ndarray:
            return np.array([np.log(paths_of_visits(model, params, r)[1].sum()) for r in data])

        truth = visiting(model, options_truth(s, a, o, seed=20 + len(out)))
        name = "options-durations-" + durations.title.replace(" ", "-")
        out.append(row(name, model, truth, shapes, by_visits))
    return out


def options_rows(row: type) -> list[Any]:
    """The rows; ``row`` is the table's record."""
    out = []
    for name, sizes, steps, settings in (
        ("options-2", (3, 2, 2), 4, {}),
        ("options-3-sticky", (2, 3, 3), 3, {"stickiness": 2.0, "concentration": 1.5}),
        ("options-one-step", (3, 2, 2), 1, {}),
    ):
        model = OptionsHMM(*sizes, num_steps=steps, **settings)
        s, a, o = sizes
        shapes = {
            "initial": (s, o),
            "low": (s, o, a),
            "high": (s, o, o),
            "environment": (a, s, s),
            "trajectories": (steps, 2),
        }
        out.append(row(name, model, options_truth(*sizes, seed=len(out)), shapes, by_paths))
    model, truth = (
        OptionsHMM(2, 2, 3, num_steps=3, termination=True, stickiness=1.0),
        options_truth(2, 2, 3, seed=3),
    )
    shapes = {"initial": (2, 3), "low": (2, 3, 2), "environment": (2, 2, 2), "trajectories": (3, 2)}
    out.append(
        row(
            "options-termination",
            model,
            ending(truth),
            shapes | {"termination": (2, 3), "choice": (2, 3)},
            by_ends,
        )
    )
    model, truth = (
        OptionsHMM(2, 3, 2, concentration=1.0, num_steps=60),
        options_truth(2, 3, 2, seed=11, sharp=0.3),
    )
    truth["high"] = torch.tensor(
        [[[0.8, 0.2], [0.3, 0.7]], [[0.7, 0.3], [0.15, 0.85]]], dtype=torch.float64
    )  # off the bounds
    truth["low"] = torch.tensor(
        [[[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], [[0.2, 0.7, 0.1], [0.5, 0.1, 0.4]]],
        dtype=torch.float64,
    )
    shapes = {
        "initial": (2, 2),
        "low": (2, 2, 3),
        "high": (2, 2, 2),
        "environment": (3, 2, 2),
        "trajectories": (60, 2),
    }
    return [
        *out,
        *duration_rows(row),
        row(
            "options-recovers",
            model,
            truth,
            shapes,
            by_filter,
            recovery_rows=200,
            relabel=relabelled,
        ),
    ]


def by_filter(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    """(B,), the forward algorithm, for sequences too long for every path."""
    out = []
    for row in data:
        value = 0.0
        alpha = params["initial"][row[0, 0]] * params["low"][row[0, 0], :, row[0, 1]]
        for (before, action), (state, following) in itertools.pairwise(row):
            value += np.log(params["environment"][action, before, state]) + np.log(alpha.sum())
            alpha = (
                (alpha / alpha.sum()) @ params["high"][state] * params["low"][state, :, following]
            )
        out.append(value + np.log(alpha.sum()))
    return np.array(out)
