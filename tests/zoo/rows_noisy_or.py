"""Noisy-OR rows of the zoo, with the likelihood written one bit and one item at a time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp

from ppl_models import DeepNoisyOr, NoisyOr


def noisy_or_log_likelihood(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    """The sum over all settings of the latents of products of probabilities."""
    terms = []
    for bits in itertools.product((0, 1), repeat=len(params["prior"])):
        value = sum(
            np.log(p if bit else 1 - p) for p, bit in zip(params["prior"], bits, strict=True)
        )
        off = 1 - params["leak"]
        for failure, bit in zip(params["failure"], bits, strict=True):
            off = off * failure**bit
        for spared, bit in zip(params.get("spared", ()), bits, strict=False):
            off = 1 - (1 - off) * spared**bit
        rows = np.full(len(data), value)
        for j, chance in enumerate(off):
            rows += np.select(
                [data[:, j] == 1, data[:, j] == 0], [np.log(1 - chance), np.log(chance)], 0.0
            )
        terms.append(rows)
    return logsumexp(terms, axis=0)


def deep_noisy_or_log_likelihood(params: Mapping[str, np.ndarray], data: np.ndarray) -> np.ndarray:
    """The sum over all settings of both layers, one bit and one item at a time."""
    terms = []
    for top in itertools.product((0, 1), repeat=len(params["prior"])):
        value = sum(
            np.log(p if bit else 1 - p) for p, bit in zip(params["prior"], top, strict=True)
        )
        off = (1 - params["leak_2"]) * np.prod(
            [f**bit for f, bit in zip(params["failure_2"], top, strict=True)], axis=0
        )
        lower = {"prior": 1 - off, "failure": params["failure_1"], "leak": params["leak_1"]}
        terms.append(value + noisy_or_log_likelihood(lower, data))
    return logsumexp(terms, axis=0)


def noisy_or_cases() -> list[dict[str, Any]]:
    """Fields of the rows of the table."""
    cases = []
    settings = {
        "noisy-or": (NoisyOr(5, 3), 0.0),
        "noisy-or-missing": (NoisyOr(6, 2), 0.2),
        "noisy-or-map": (NoisyOr(4, 2, (1.5, 2.0), (2.0, 1.3), (1.2, 3.0)), 0.0),
        "noisy-or-inhibition": (NoisyOr(5, 2, (1.2, 1.4), (1.5, 1.2), inhibition=True), 0.2),
    }
    for seed, (name, (model, missing)) in enumerate(settings.items()):
        generator = torch.Generator().manual_seed(seed)
        m, items = model.num_latents, model.num_items
        truth = {
            "prior": 0.2 + 0.4 * torch.rand(m, generator=generator, dtype=torch.float64),
            "failure": 0.1 + 0.8 * torch.rand(m, items, generator=generator, dtype=torch.float64),
            "leak": 0.02 + 0.2 * torch.rand(items, generator=generator, dtype=torch.float64),
        }
        if model.inhibition:
            spared = 0.1 + 0.8 * torch.rand(m, items, generator=generator, dtype=torch.float64)
            truth["spared"] = spared
        shapes = {
            "prior": (m,),
            "failure": (m, items),
            **({"spared": (m, items)} if model.inhibition else {}),
            "leak": (items,),
            "causes": (m,),
            "items": (items,),
        }
        cases.append(
            {
                "name": name,
                "model": model,
                "truth": truth,
                "event_shapes": shapes,
                "log_likelihood": noisy_or_log_likelihood,
                "missing": missing,
            }
        )
    for seed, (name, concentration, missing) in enumerate(
        (("noisy-or-2", (1, 1), 0.0), ("noisy-or-2-map", (1.5, 1.8), 0.2))
    ):
        generator = torch.Generator().manual_seed(seed)

        def uniform(
            low: float, high: float, *shape: int, own: torch.Generator = generator
        ) -> torch.Tensor:
            return low + (high - low) * torch.rand(*shape, generator=own, dtype=torch.float64)

        truth = {
            "prior": uniform(0.3, 0.6, 2),
            "failure_2": uniform(0.1, 0.8, 2, 3),
            "leak_2": uniform(0.05, 0.2, 3),
            "failure_1": uniform(0.1, 0.8, 3, 5),
            "leak_1": uniform(0.05, 0.2, 5),
        }
        shapes = {site: tuple(value.shape) for site, value in truth.items()}
        cases.append(
            {
                "name": name,
                "model": DeepNoisyOr(5, (3, 2), concentration),
                "truth": truth,
                "event_shapes": shapes | {"causes_1": (3,), "causes_2": (2,), "items": (5,)},
                "log_likelihood": deep_noisy_or_log_likelihood,
                "missing": missing,
            }
        )
    return cases
