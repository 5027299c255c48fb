"""Known latents: accuracy on new rows with 1 %, 5 % and 20 % of the rows labelled, against a fit
without labels and one with all of them.

Four families with a known truth. Accuracy is the share of latents (steps of sequences, bits) of
rows that no fit has seen whose most probable value is the true one. Of the fit without labels, the
names are the best ones in hindsight, which only the truth knows: with labels the fit finds them.
Where a tenth of the labels is wrong, they are taken for sure ("trusting"), or with that chance of
error stated (label_error=0.1). One line a family, share and share of wrong labels: means over
replicates with their standard errors, and differences in pairs. Fits of one seed have the same rows
and five starts.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from _bench import Lines, command_line, run, seeds

from inference import EM, Fit, fit
from ppl_models import Bernoulli, HiddenMarkov, LatentAttributeModel, Mixture, Normal

SHARES, WRONG = (0.01, 0.05, 0.2), (0.0, 0.1)
Q_MATRIX = np.array([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1], [1, 1]])
ENTRIES = {"mixture": 400, "latent classes": 400, "hidden Markov": 600, "attributes": 400}


def drawn(family: str, seed: int) -> tuple[Any, np.ndarray, np.ndarray, int]:
    """Model, twice as many rows as a fit sees, their latents, and the number of values."""
    rng = np.random.default_rng(seed)
    if family == "mixture":
        z = rng.choice(3, 800, p=[0.5, 0.3, 0.2])
        means = 1.2 * rng.standard_normal((3, 4))
        return Mixture(3, Normal(), 4), means[z] + rng.normal(size=(800, 4)), z, 3
    if family == "latent classes":
        z = rng.choice(3, 800, p=[0.5, 0.3, 0.2])
        chances = rng.uniform(0.1, 0.9, (3, 8))
        return Mixture(3, Bernoulli(), 8), (rng.random((800, 8)) < chances[z]) * 1.0, z, 3
    if family == "hidden Markov":
        z = rng.integers(0, 3, (40, 30))
        for t in range(1, 30):
            z[:, t] = np.where(rng.random(40) < 0.8, z[:, t - 1], z[:, t])
        means = rng.standard_normal((3, 2))
        return HiddenMarkov(3, Normal(), 2), means[z] + rng.normal(size=(40, 30, 2)), z, 3
    z = rng.integers(0, 2, (800, 2))
    ideal = (z[:, None] >= Q_MATRIX).all(-1)
    model = LatentAttributeModel(Q_MATRIX, items="dina", penalty=None)
    return model, (rng.random((800, 6)) < np.where(ideal, 0.75, 0.3)) * 1.0, z, 2


def in_hindsight(result: Fit, x: np.ndarray, z: np.ndarray, size: int, is_named: bool) -> float:
    """Accuracy, under the names that raise it most where the fit has none."""
    found = result.predict(x)
    if is_named:
        return float((found == z).mean())
    orders = [np.array(order) for order in itertools.permutations(range(size))]
    return float(max((order[found] == z).mean() for order in orders))


def replicate(family: str, seed: int) -> dict[tuple[float, float, str], float]:
    model, x, z, size = drawn(family, seed)
    half = len(x) // 2
    rng = np.random.default_rng(10_000 + seed)
    place, errs = rng.random(z[:half].shape), rng.random(z[:half].shape)
    other = (z[:half] + rng.integers(1, size, z[:half].shape)) % size

    def accuracy(labels: np.ndarray | None, error: float = 0.0) -> float:
        result = fit(
            model, x[:half], EM(), num_restarts=5, seed=seed, labels=labels, label_error=error
        )
        # attributes have their names by the Q-matrix
        is_named = labels is not None or family == "attributes"
        return in_hindsight(result, x[half:], z[half:], size, is_named)

    out = {(0.0, 0.0, "unsupervised"): accuracy(None), (1.0, 0.0, "supervised"): accuracy(z[:half])}
    for share, wrong in itertools.product(SHARES, WRONG):
        told = np.where(errs < wrong, other, z[:half])
        labels = np.where(place < np.quantile(place, share), told, -1)
        out[share, wrong, "trusting"] = accuracy(labels)
        if wrong:
            out[share, wrong, "stated"] = accuracy(labels, wrong)
    return out


def measure(args: argparse.Namespace) -> Lines:
    for family in ENTRIES:
        found = [replicate(family, seed) for seed in seeds(args)]

        def mean(key: tuple[float, float, str], less: Any = None) -> tuple[float, float]:
            values = np.array([own[key] - (own[less] if less else 0.0) for own in found])  # noqa: B023
            return round(float(values.mean()), 4), round(
                float(values.std() / len(values) ** 0.5), 4
            )

        ends = {
            name: (share, 0.0, name) for name, share in (("unsupervised", 0.0), ("supervised", 1.0))
        }
        for share, wrong in itertools.product(SHARES, WRONG):
            line: dict[str, Any] = {
                "family": family,
                "labelled": share,
                "wrong": wrong,
                "replicates": len(found),
            }
            for name in ("trusting", *(["stated"] if wrong else [])):
                key = (share, wrong, name)
                line[name], line[f"{name}_se"] = mean(key)
                for end, own in ends.items():
                    line[f"{name}_less_{end}"], line[f"{name}_less_{end}_se"] = mean(key, own)
            for end, own in ends.items():
                line[end], line[f"{end}_se"] = mean(own)
            yield line


def main(argv: Sequence[str] | None = None) -> None:
    run(command_line(__file__, __doc__, replicates=20), measure, argv, {"replicates": 1})


if __name__ == "__main__":
    main()
