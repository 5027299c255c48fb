"""Examples of Matchev and Shyamsundar (2022): weights that independent classifiers estimate.

Protocol "paper": random start, the cost of a mini-batch by itself, 15 epochs, nothing held out.
Protocol "ours": the plain call. Published numbers are single runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from inference import CrossTotalCorrelation, Fit, Labels, TrainClassifiers, fit
from inference.inspection import read_classifiers
from papers.cells import Cell, Setting, Study, Table, published
from papers.mnist_pairs import mnist_pairs
from ppl_models import Dense, InClassNet
from ppl_models.datasets import (
    load_mnist_images,
    simulate_checkerboard,
    simulate_trivariate,
    simulate_two_gaussians,
)
from ppl_models.datasets.mnist import IMAGE_FILES

NAME = "independent_classifiers"
VERSIONS = {"published": 1, "plain": 1}  # raised where numbers have changed
EXAMPLES: dict[str, tuple[Any, int, int, int, int]] = {
    "two_gaussians": (simulate_two_gaussians, 2, 2, 100_000, 50),
    "checkerboard": (simulate_checkerboard, 2, 2, 100_000, 50),
    "trivariate": (simulate_trivariate, 3, 4, 1_000_000, 500),
}  # simulator, variates, components, rows, batch; 15 epochs each
TEST_ROWS = 100_000
TEST_SEED = 10_000
PUBLISHED = TrainClassifiers(
    estimates="batch",
    average=False,
    max_epochs=15,
    patience=None,
    validation_share=0.0,
    learning_rate=1e-3,
    last_steps=0,
    cost=CrossTotalCorrelation(0.0),
)
SECONDS = {
    ("two_gaussians", "paper"): 6.0,
    ("two_gaussians", "ours"): 26.0,
    ("checkerboard", "paper"): 6.0,
    ("checkerboard", "ours"): 26.0,
    ("trivariate", "paper"): 60.0,
    ("trivariate", "ours"): 200.0,
}


def scores(result: Fit, test: Any) -> dict[str, Any]:
    """How near a fit comes to the truth, with components matched to the true ones."""
    data = test.data.astype(np.float32)
    posterior = result.posterior_latents(data)["components"].numpy()
    owner = np.eye(posterior.shape[1])[test.components]
    rows, columns = linear_sum_assignment(-(owner.T @ posterior))
    order = columns[np.argsort(rows)]  # component i of the truth is order[i] of the fit
    weights = result.params["weights"].double().numpy()[order]
    cost = -float(result.log_likelihood_rows(data).double().mean())
    exact = test.truth.log_ratio(test.data).mean()
    agreement = read_classifiers(result, data)
    return {
        "weights": [round(float(w), 4) for w in weights],
        "weight_error": round(float(np.abs(weights - test.truth.weights).max()), 5),
        "pseudo_weights": (
            np.round(result.params["pseudo_weights"].double().numpy()[:, order], 4).tolist()
        ),
        "cost": round(cost, 5),
        "gap": round(cost + exact, 5),
        "accuracy": round(float((order[test.components] == posterior.argmax(1)).mean()), 4),
        "best_accuracy": round(test.truth.best_accuracy(), 4),
        "inconsistency": [round(float(x), 4) for x in agreement.inconsistency],
        "held_out": (
            round(result.objective, 5) if result.objective_name.startswith("held-out") else None
        ),
        "starts": [round(value, 5) for value in result.restarts.objective.tolist()],
        "epochs": result.num_iterations,
        "converged": result.converged,
    }


def replicate(example: str, what: str, seed: int) -> dict[str, Any]:
    """The largest error of a weight, the gap to the cost of the truth, and the accuracy; of pairs
    of digits, accuracies.
    """
    if example == "mnist_pairs":
        return digit_accuracies(seed)
    simulate, variates, components, rows, batch = EXAMPLES[example]
    model = InClassNet((1,) * variates, components)
    data = simulate(rows, seed).data.astype(np.float32)
    test = simulate(TEST_ROWS, TEST_SEED + seed)
    if what == "plain":
        result = fit(model, data, seed=seed)
    else:
        method = TrainClassifiers(**{**vars(PUBLISHED), "batch_size": batch})
        result = fit(model, data, method, init="random", num_restarts=1, seed=seed)
    found = scores(result, test)
    return {name: float(found[name]) for name in ("weight_error", "gap", "accuracy")}


def digit_accuracies(seed: int) -> dict[str, float]:
    """Share of single test images whose digit is found: by a network that learns from 2,000 noisy
    labels (30 epochs in batches of 20) and goes on with 100,000 pairs without labels (20 in batches
    of 100), and by the same network with all labels.
    """
    pairs, test = mnist_pairs(seed=seed), load_mnist_images()
    images = test.test_images.reshape(len(test.test_images), -1).astype(np.float32) / 255
    model = InClassNet((784, 784), 10, networks=Dense(), shared=True)
    some, whole = pairs.rows(pairs.labelled), pairs.rows(np.arange(len(pairs.images)))
    noisy = Labels(pairs.given_labels, on="variates")
    taught = replace(PUBLISHED, cost=None, labels=noisy, batch_size=20, max_epochs=30)
    going_on = replace(PUBLISHED, batch_size=100, max_epochs=20, validation_share=0.1)
    clean = Labels(pairs.labels, on="variates")
    supervised = replace(PUBLISHED, cost=None, labels=clean, batch_size=100, max_epochs=20)
    first = fit(model, (some, some), taught, init="random", seed=seed)
    found = {
        "labels, then pairs": fit(model, pairs.variates(), going_on, init=first, seed=seed),
        "all labels": fit(model, (whole, whole), supervised, init="random", seed=seed),
    }
    named = {
        name: read_classifiers(result, (images, images)).variates[0].argmax(-1).numpy()
        for name, result in found.items()
    }
    return {name: float((own == test.test_labels).mean()) for name, own in named.items()}


def _tables() -> Iterator[Table]:
    numbers = published(NAME)
    cells = []
    for example, label in (
        ("two_gaussians", "two Gaussians (table 2)"),
        ("checkerboard", "checkerboard (section 3.2)"),
        ("trivariate", "trivariate (table 3)"),
    ):
        own = numbers[example]
        off = max(abs(a - b) for a, b in zip(own["weights"], own["estimated_weights"], strict=True))
        settings = {
            protocol: Setting(
                NAME,
                {"example": example, "what": what},
                10,
                SECONDS[example, protocol],
                VERSIONS[what],
                tolerance=0.2,
            )
            for protocol, what in (("paper", "published"), ("ours", "plain"))
        }
        cells.append(
            Cell(
                label,
                "largest error of a weight",
                "weight_error",
                round(off, 4),
                settings,
                "mean",
                "less",
                digits=4,
            )
        )
        for column, number in (("cost above the truth's, nats", "gap"), ("accuracy", "accuracy")):
            cells.append(Cell(label, column, number, None, settings, digits=4))
    yield Table(
        "Section 3", "estimated weights of the components; published numbers are single runs", cells
    )
    digits = numbers["mnist_pairs"]
    pairs = Setting(
        NAME, {"example": "mnist_pairs", "what": "published"}, 5, 400.0, VERSIONS["published"],
        tolerance=0.2, file=IMAGE_FILES[0],
    )  # fmt: skip
    yield Table(
        "Section 3.3",
        "pairs of digits: accuracy of single test images after noisy labels and pairs",
        [
            Cell(row, "accuracy", row, digits[key], {"paper": pairs}, digits=4)
            for row, key in (
                ("labels, then pairs", "accuracy"),
                ("all labels", "fully_supervised_accuracy"),
            )
        ],
    )


STUDY = Study(
    NAME,
    "Matchev and Shyamsundar (2022), InClass nets, doi:10.1088/2632-2153/ac6483",
    "Paper: random start, the cost of a mini-batch by itself, 15 epochs. Ours:"
    " `fit(InClassNet(...), rows)`.",
    tuple(_tables()),
    replicate,
)
