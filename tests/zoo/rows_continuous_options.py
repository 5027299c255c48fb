"""Rows of the zoo's table for options along continuous states, and their likelihood by visiting
every path of options.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from inference.alignment import align
from ppl_models import ContinuousOptionsHMM, Network

Params = dict[str, Tensor]


def policies_by_hand(
    params: Mapping[str, np.ndarray], state: np.ndarray, option: int
) -> tuple[np.ndarray, np.ndarray]:
    """P(action | state, option) and P(next option | state, option), one entry at a time."""
    features = state
    if "hidden_weights" in params:
        features = np.array(
            [
                np.tanh(v @ state + c)
                for v, c in zip(params["hidden_weights"], params["hidden_intercepts"], strict=True)
            ]
        )
    pairs = zip(params["low_weights"][option], params["low_intercepts"][option], strict=True)
    low = softmax([0.0] + [u @ features + b for u, b in pairs])
    switch = np.zeros(len(params["initial"]))
    others = [o for o in range(len(switch)) if o != option]
    for i, other in enumerate(others):
        switch[other] = (
            params["high_weights"][option, i] @ features + params["high_intercepts"][option, i]
        )
    return low, softmax(switch)


def all_paths(
    params: Mapping[str, np.ndarray], row: np.ndarray
) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Every path of options of one packed sequence (T, D + 1), and its probability with the
    actions.
    """
    row = row[~np.isnan(row[:, 0])]
    num_options = len(params["initial"])
    paths = list(itertools.product(range(num_options), repeat=len(row)))
    out = []
    for path in paths:
        value = params["initial"][path[0]]
        for t, (step, option) in enumerate(zip(row, path, strict=True)):
            low = policies_by_hand(params, step[:-1], option)[0]
            value *= 1.0 if np.isnan(step[-1]) else low[int(step[-1])]
            if t > 0:
                value *= policies_by_hand(params, step[:-1], path[t - 1])[1][option]
        out.append(value)
    return paths, np.array(out)


def by_paths(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    """(B,), the log-likelihood of packed sequences."""
    return np.array([np.log(all_paths(params, row)[1].sum()) for row in data])


def truth_of(model: ContinuousOptionsHMM, seed: int, size: float = 1.0) -> Params:
    """Weights of a size; options that last."""
    generator = torch.Generator().manual_seed(seed)
    out = {
        n: size * torch.randn(shape, generator=generator, dtype=torch.float64)
        for n, shape in model.shapes().items()
    }
    out["initial"] = (out["initial"] / size).softmax(-1)
    if "high_intercepts" in out:
        out["high_intercepts"] = out["high_intercepts"] - 1.5
    return out


def chosen_truth() -> Params:
    """Two options that differ by far, on two features and three actions."""
    return {
        "initial": torch.tensor([0.6, 0.4], dtype=torch.float64),
        "low_weights": torch.tensor(
            [[[2.0, 0.0], [0.0, 1.5]], [[-1.5, 0.5], [0.5, -2.0]]], dtype=torch.float64
        ),
        "low_intercepts": torch.tensor([[1.0, 0.0], [-0.5, 0.5]], dtype=torch.float64),
        "high_weights": torch.tensor([[[1.0, 0.0]], [[0.0, -1.0]]], dtype=torch.float64),
        "high_intercepts": torch.tensor([[-2.0], [-1.5]], dtype=torch.float64),
    }


def relabelled(result: Any, truth: Params) -> Params:
    return align(result, truth).params


def continuous_rows(row: Callable[..., Any]) -> list[Any]:
    """The rows; ``row`` is the table's record."""
    out = []
    models = {
        "continuous-options-2": ContinuousOptionsHMM(2, 3, 2, num_steps=4, prior_scale=3.0),
        "continuous-options-3": ContinuousOptionsHMM(1, 2, 3, num_steps=3, concentration=1.5),
        "continuous-options-1": ContinuousOptionsHMM(2, 2, 1, num_steps=3),
        "continuous-options-network": ContinuousOptionsHMM(2, 2, 2, policy=Network(3), num_steps=3),
    }
    for name, model in models.items():
        shapes = model.shapes() | {"trajectories": (model.num_steps, model.num_features + 1)}
        out.append(row(name, model, truth_of(model, seed=len(out)), shapes, by_paths))
    model = ContinuousOptionsHMM(2, 3, 2, num_steps=60, prior_scale=100.0, concentration=1.0)
    shapes = model.shapes() | {"trajectories": (60, 3)}
    return [
        *out,
        row(
            "continuous-options-recovers",
            model,
            chosen_truth(),
            shapes,
            partial(by_filter),
            recovery_rows=100,
            relabel=relabelled,
        ),
    ]


def by_filter(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    """(B,), the forward algorithm, for sequences too long for every path."""
    out, num = [], len(params["initial"])
    for row in data:
        value, alpha = 0.0, params["initial"]
        for t, step in enumerate(row):
            both = [policies_by_hand(params, step[:-1], o) for o in range(num)]
            if t > 0:
                alpha = alpha @ np.stack([high for _, high in both])
            alpha = alpha * np.array([low[int(step[-1])] for low, _ in both])
            value += np.log(alpha.sum())
            alpha = alpha / alpha.sum()
        out.append(value)
    return np.array(out)
