"""Examples of Matchev and Shyamsundar (2022): weights that independent classifiers estimate.

Protocol "paper": random start, the cost of a mini-batch by itself, 15 epochs, nothing held out.
Protocol "ours": the plain call. Published numbers are single runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from inference import CrossTotalCorrelation, Fit, TrainClassifiers, fit
from inference.inspection import read_classifiers
from papers.cells import Cell, Setting, Study, Table, published
from ppl_models import InClassNet
from ppl_models.datasets import simulate_checkerboard, simulate_trivariate, simulate_two_gaussians

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
    """The largest error of a weight, the gap to the cost of the truth, and the accuracy."""
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
    yield Table(
        "Section 3.3",
        "pairs of digits: accuracy of single test images after noisy labels and pairs",
        [
            Cell("labels, then pairs", "accuracy", "accuracy", digits["accuracy"], {}, digits=4),
            Cell(
                "all labels",
                "accuracy",
                "accuracy",
                digits["fully_supervised_accuracy"],
                {},
                digits=4,
            ),
        ],
        missing="No settings yet: `benchmarks/inclass.py --example mnist_pairs`.",
    )


STUDY = Study(
    NAME,
    "Matchev and Shyamsundar (2022), InClass nets, doi:10.1088/2632-2153/ac6483",
    "Paper: random start, the cost of a mini-batch by itself, 15 epochs. Ours:"
    " `fit(InClassNet(...), rows)`.",
    tuple(_tables()),
    replicate,
)
