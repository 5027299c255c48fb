"""Rows of the zoo's table for hidden Markov models; the likelihood by visiting every path of
states.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor
from zoo.rows_mixture import DISPERSED, DISTRIBUTIONS

from inference.alignment import align
from ppl_models import (
    Bernoulli,
    Blocks,
    FreeDurations,
    GeometricDurations,
    HiddenMarkov,
    MultivariateNormal,
    NegativeBinomialDurations,
    Normal,
    Poisson,
    PoissonDurations,
)

Params = dict[str, Tensor]
LEFT_RIGHT = ((True, True, False), (False, True, True), (False, False, True))


def step_densities(
    columns: tuple[str, ...], params: Mapping[str, np.ndarray], row: np.ndarray
) -> np.ndarray:
    """(T, K), the log-density of each step (T, J) in each state, one item at a time; 0 where
    nothing was seen.
    """
    out = np.zeros((len(row), len(params["transitions"])))
    for t, k in np.ndindex(out.shape):
        if np.isnan(row[t]).all() or np.isinf(row[t]).any():
            continue
        if not columns:
            out[t, k] = stats.multivariate_normal.logpdf(
                row[t], params["means"][k], np.linalg.inv(params["precisions"][k])
            )
            continue
        dispersed = 0
        for j, family in enumerate(columns):
            gamma = params["dispersion"][k, dispersed] if family in DISPERSED else None
            dispersed += family in DISPERSED
            if not np.isnan(row[t, j]):
                out[t, k] += DISTRIBUTIONS[family](row[t, j], params["predictors"][k, j], gamma)
    return out


def first_distribution(model: HiddenMarkov, params: Mapping[str, np.ndarray]) -> np.ndarray:
    """The distribution of the first state."""
    size = len(params["transitions"])
    if "initial" in params:
        return params["initial"]
    if model.initial == "stationary":  # the left eigenvector of the eigenvalue one
        values, vectors = np.linalg.eig(params["transitions"].T)
        vector = np.real(vectors[:, np.argmin(np.abs(values - 1))])
        return vector / vector.sum()
    return np.full(size, 1 / size) if model.initial == "uniform" else np.array(model.initial)


def all_paths(
    model: HiddenMarkov, columns: tuple[str, ...], params: Mapping[str, np.ndarray], row: np.ndarray
) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Every path of states of one sequence (T, J), and its log-density with the sequence."""
    with np.errstate(divide="ignore"):
        first, moves = np.log(first_distribution(model, params)), np.log(params["transitions"])
    densities = step_densities(columns, params, row)
    paths = list(itertools.product(range(len(moves)), repeat=len(row)))
    if model.durations is None:
        logs = [first[p[0]] + sum(moves[a, b] for a, b in itertools.pairwise(p)) for p in paths]
    else:
        durations, survival = duration_tables(model, params)
        logs = []
        for p in paths:
            *ended, (state, steps) = visits_of(p)
            logs.append(
                first[p[0]]
                + sum(durations[k, n - 1] for k, n in ended)
                + sum(moves[a, b] for a, b in itertools.pairwise([*(k for k, _ in ended), state]))
                + survival[state, steps - 1]
            )
    emitted = [sum(densities[t, k] for t, k in enumerate(p)) for p in paths]
    return paths, np.array(logs) + np.array(emitted)


def visits_of(path: tuple[int, ...]) -> list[tuple[int, int]]:
    """State and number of steps of every visit of a path."""
    return [(k, len(list(steps))) for k, steps in itertools.groupby(path)]


def duration_tables(
    model: HiddenMarkov, params: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(K, 400), logs of the chances that a visit lasts n steps, and n steps at least."""
    given, n = model.durations, np.arange(1, 401)
    if isinstance(given, FreeDurations):
        chances = np.pad(params["duration_chances"], ((0, 0), (0, 400 - given.max_duration)))
    else:
        mean = params["mean_durations"][:, None]
        if isinstance(given, GeometricDurations):
            chances = stats.geom.pmf(n, 1 / mean)
        elif isinstance(given, PoissonDurations):
            chances = stats.poisson.pmf(n - 1, mean - 1)
        else:
            size = params["duration_sizes"][:, None]
            chances = stats.nbinom.pmf(n - 1, size, size / (size + mean - 1))
        if given.max_duration:
            chances[:, given.max_duration :] = 0.0
            chances /= chances.sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.log(chances), np.log(chances[:, ::-1].cumsum(1)[:, ::-1])


def by_paths(
    model: HiddenMarkov,
    columns: tuple[str, ...],
    params: Mapping[str, np.ndarray],
    data: np.ndarray,
) -> np.ndarray:
    """(B,), the log-likelihood of packed sequences."""
    return np.array([logsumexp(all_paths(model, columns, params, row)[1]) for row in data])


def by_filter(
    model: HiddenMarkov,
    columns: tuple[str, ...],
    params: Mapping[str, np.ndarray],
    data: np.ndarray,
) -> np.ndarray:
    """(B,), the forward algorithm with logarithms, for sequences too long for every path."""
    moves, out = np.log(params["transitions"]), []
    for row in data:
        densities = step_densities(columns, params, row)
        alpha = np.log(first_distribution(model, params)) + densities[0]
        for density in densities[1:]:
            alpha = logsumexp(alpha[:, None] + moves, axis=0) + density
        out.append(logsumexp(alpha))
    return np.array(out)


def relabelled(result: Any, truth: Params) -> Params:
    return align(result, truth).params


def truth_of(model: HiddenMarkov, seed: int) -> Params:
    """Parameters with states that differ and tend to stay."""
    generator = np.random.default_rng(seed)
    k, j = model.num_states, model.num_items
    graph = np.ones((k, k)) if model.allowed is None else np.array(model.allowed, dtype=float)
    moves = graph * (0.4 * generator.dirichlet(np.ones(k), size=k) + 0.1) + 0.5 * np.eye(k)
    durations: dict[str, Any] = {}
    if model.durations is not None:
        np.fill_diagonal(moves, 0.0)
        durations["mean_durations"] = generator.uniform(2.0, 4.0, size=k)
        durations["duration_sizes"] = generator.uniform(0.5, 5.0, size=k)
        most = model.durations.max_duration or 2
        durations["duration_chances"] = generator.dirichlet(np.full(most, 2.0), size=k)
        durations = {name: durations[name] for name in model.durations.site_dims}
    truth: dict[str, Any] = {"transitions": moves / moves.sum(1, keepdims=True)} | durations
    if model.initial == "free":
        truth["initial"] = generator.dirichlet(np.full(k, 5.0))
    centres = 2.0 * generator.permuted(
        np.tile(np.arange(k) - (k - 1) / 2, (j, 1)), axis=1
    ).T + 0.3 * generator.standard_normal((k, j))
    if isinstance(model.emission, MultivariateNormal):
        factor = np.eye(j) + 0.4 * np.tril(generator.standard_normal((k, j, j)), -1)
        return {
            n: torch.tensor(v)
            for n, v in (
                truth | {"means": centres, "precisions": factor @ factor.transpose(0, 2, 1)}
            ).items()
        }
    truth["predictors"] = centres if not isinstance(model.emission, Poisson) else centres / 2 + 1
    if model.emission.num_dispersed(j):
        truth["dispersion"] = generator.uniform(0.4, 1.2, size=(k, model.emission.num_dispersed(j)))
    return {name: torch.tensor(value) for name, value in truth.items()}


def hidden_markov_rows(row: Callable[..., Any]) -> list[Any]:
    """The rows; ``row`` is the table's record."""
    mixed = Blocks((Bernoulli(), 1), (Normal(), 1))
    designs: list[tuple[str, HiddenMarkov, tuple[str, ...], float]] = [
        ("hidden-markov-Normal", HiddenMarkov(2, Normal(), 2, num_steps=5), ("Normal",) * 2, 0.0),
        (
            "hidden-markov-Poisson-missing",
            HiddenMarkov(3, Poisson(), 2, num_steps=4, stickiness=2.0),
            ("Poisson",) * 2,
            0.3,
        ),
        (
            "hidden-markov-stationary",
            HiddenMarkov(3, Bernoulli(), 3, "stationary", num_steps=4),
            ("Bernoulli",) * 3,
            0.1,
        ),
        (
            "hidden-markov-left-right-Blocks",
            HiddenMarkov(3, mixed, 2, (1.0, 0.0, 0.0), LEFT_RIGHT, num_steps=5),
            ("Bernoulli", "Normal"),
            0.2,
        ),
        (
            "hidden-markov-one-step",
            HiddenMarkov(2, Normal(), 2, "uniform", num_steps=1, concentration=1.5),
            ("Normal",) * 2,
            0.0,
        ),
        (
            "hidden-semi-markov-negative-binomial",
            HiddenMarkov(2, Normal(), 2, num_steps=6, durations=NegativeBinomialDurations()),
            ("Normal",) * 2,
            0.1,
        ),
        (
            "hidden-semi-markov-Poisson",
            HiddenMarkov(3, Poisson(), 1, "uniform", num_steps=5, durations=PoissonDurations(4)),
            ("Poisson",),
            0.0,
        ),
        (
            "hidden-semi-markov-free",
            HiddenMarkov(3, Bernoulli(), 3, num_steps=5, durations=FreeDurations(3)),
            ("Bernoulli",) * 3,
            0.2,
        ),
        (
            "hidden-semi-markov-geometric",
            HiddenMarkov(2, Normal(), 2, num_steps=5, durations=GeometricDurations()),
            ("Normal",) * 2,
            0.0,
        ),
    ]
    out = []
    for number, (name, model, columns, missing) in enumerate(designs):
        truth = truth_of(model, number)
        shapes = {site: tuple(value.shape) for site, value in truth.items()} | {
            "sequences": (model.num_steps, model.num_items)
        }
        out.append(
            row(name, model, truth, shapes, partial(by_paths, model, columns), missing=missing)
        )
    model = HiddenMarkov(2, Normal(), 1, concentration=1.0, num_steps=30)
    truth = truth_of(model, 20)
    shapes = {site: tuple(value.shape) for site, value in truth.items()} | {"sequences": (30, 1)}
    likelihood = partial(by_filter, model, ("Normal",))
    return [
        *out,
        row(
            "hidden-markov-recovers",
            model,
            truth,
            shapes,
            likelihood,
            recovery_rows=100,
            relabel=relabelled,
        ),
    ]
