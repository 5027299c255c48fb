"""Tables 1, 2 and 4 of Buhai et al. (2020): latents of overparameterised noisy-OR networks found.

Protocol "paper": the authors' algorithm and rates, 1,000 epochs in batches of 20 rows (2,000 in
batches of 1,000), runs of a replicate as one batch of restarts; of ten checkpoints the best by the
held-out rows is scored, as there. Protocol "ours": the plain call with as many latents. Needs the
published samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from inference import fit
from inference.inspection import recovery
from inference.structures.noisy_or.score_svi import ScoreFunctionRun, ScoreFunctionSVI
from papers.cells import Cell, Setting, Study, Table, published, repeated
from ppl_models import NoisyOr
from ppl_models.datasets.noisy_or import SAMPLES_FILE, load_noisy_or_sample

NAME = "noisy_or"
VERSIONS = {"paper": 1, "plain": 1}  # raised where numbers have changed
NUM_CHECKPOINTS = 10
NUM_TRUE = 8
CONFIDENCE = 1.96  # published half widths of 95 % intervals over standard errors
RUNS = 50
PUBLISHED_EPOCHS = {20: 1000, 1000: 2000}  # by rows of a batch
CAPTIONS = {
    "1": "recognition network, batches of 20 rows",
    "2": "recognition network, batches of 1,000 rows",
    "4": "recognition network, batches of 20 rows, data of another model",
}


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Runs after some epochs, (R,) each: latents found and negative ELBO of held-out rows, at the
    best checkpoint so far, and latents found now.
    """

    epochs: int
    found: np.ndarray
    loss: np.ndarray
    found_now: np.ndarray


def paper_runs(
    name: str,
    latents: int,
    rate: float,
    baseline_rate: float,
    epochs: int,
    batch: int,
    runs: int,
    seed: int,
    single: bool = False,
) -> Iterator[Checkpoint]:
    """The authors' algorithm from their starts, at ten checkpoints."""
    sample = load_noisy_or_sample(name)
    settings = ScoreFunctionSVI(epochs, batch, rate, baseline_rate)
    data = sample.train.float() if single else sample.train
    generator = torch.Generator().manual_seed(seed)
    num_items = data.shape[1]

    def start(*shape: int) -> torch.Tensor:
        drawn = torch.rand(runs, *shape, generator=generator, dtype=torch.float64)
        return (2 + 2 * drawn).sigmoid()

    begin = start(latents), start(latents, num_items), 1 - start(num_items)
    run = ScoreFunctionRun(settings, data, *begin, seed)
    best, found, done = np.full(runs, np.inf), np.zeros(runs), 0
    for checkpoint in np.linspace(0, epochs, NUM_CHECKPOINTS + 1).round().astype(int)[1:]:
        for _ in range(done, checkpoint):
            run.epoch()
        done = int(checkpoint)
        score = -run.elbo_rows(sample.held_out).double().mean(1).numpy()
        prior, failure, _ = (value.double() for value in run.estimates())
        now = np.array([
            recovery({"prior": p, "failure": f}, sample.truth, excluded_cost=1000.0).num_recovered
            for p, f in zip(prior, failure, strict=True)
        ])  # fmt: skip
        found, best = np.where(score < best, now, found), np.minimum(best, score)
        yield Checkpoint(done, found, best, now)


def replicate(what: str, seed: int, **arguments: Any) -> dict[str, Any]:
    """Latents found, whether all are, and the held-out negative ELBO, by run."""
    if what == "plain":
        return plain(**arguments, seed=seed)
    *_, last = paper_runs(**arguments, seed=seed)
    return {
        "recovered": last.found.tolist(),
        "full": (last.found == NUM_TRUE).astype(int).tolist(),
        "negative_elbo": last.loss.tolist(),
    }


def plain(name: str, latents: int, runs: int, seed: int) -> dict[str, Any]:
    """The plain call with a number of latents: how many of the true ones it finds."""
    sample = load_noisy_or_sample(name)

    def one(seed: int) -> dict[str, float]:
        result = fit(NoisyOr(sample.items.shape[1], latents), sample.train, seed=seed)
        found = recovery(result.params, sample.truth).num_recovered
        return {"recovered": found, "full": int(found == NUM_TRUE)}

    return repeated(one, runs, seed)


def rates(table: str, name: str, latents: int) -> dict[str, float]:
    """Rates of the authors' configuration."""
    own: dict[str, float] = published("noisy_or_tables")["rates"][table][name][str(latents)]
    return own


def _tables() -> Iterator[Table]:
    numbers = published("noisy_or_tables")
    runs = numbers["runs"]
    for table, caption in CAPTIONS.items():
        batch = 1000 if table == "2" else 20
        cells: dict[str, list[Cell]] = {"recovered": [], "full": [], "negative_elbo": []}
        for name, rows in numbers["tables"][table].items():
            for latents, own in rows.items():
                num = int(latents)
                arguments = {"name": name, "latents": num}
                whole = {
                    "what": "paper",
                    **arguments,
                    **rates(table, name, num),
                    "epochs": PUBLISHED_EPOCHS[batch],
                    "batch": batch,
                    "runs": RUNS,
                }
                seconds = 1200 * max(1.0, num / 16) * (1 if batch == 20 else 0.5)
                settings = {
                    "paper": Setting(
                        NAME,
                        whole,
                        runs,
                        seconds,
                        VERSIONS["paper"],
                        tolerance=0.05,
                        file=SAMPLES_FILE,
                    ),
                    "ours": Setting(
                        NAME,
                        {"what": "plain", **arguments, "runs": 5},
                        runs,
                        7.0,
                        VERSIONS["plain"],
                        tolerance=0.05,
                        file=SAMPLES_FILE,
                    ),
                }
                row = name.upper().replace("_", "-")
                for number, key, summary, better, digits in (
                    ("recovered", "recovered_mean", "mean", "more", 2),
                    ("full", "full_recovery_percent", "percent", "more", 1),
                    ("negative_elbo", "held_out_negative_elbo", "mean", "less", 2),
                ):
                    spread = own[key.replace("_mean", "").replace("_percent", "") + "_ci95"]
                    cells[number].append(
                        Cell(
                            row,
                            latents,
                            number,
                            own[key],
                            settings if number != "negative_elbo" else {"paper": settings["paper"]},
                            summary,
                            better,
                            max(spread, 10**-digits) / CONFIDENCE,
                            runs,
                            digits,
                        )
                    )
        for number, what in (
            ("recovered", "true latents found, of eight"),
            ("full", "percentage of runs that find all eight"),
            ("negative_elbo", "held-out negative ELBO, one draw, best checkpoint"),
        ):
            label = table if number == "recovered" else f"{table}, {number.replace('_', ' ')}"
            yield Table(label, f"{what}: {caption}; by number of latents", cells[number])


STUDY = Study(
    NAME,
    "Buhai, Halpern, Kim, Risteski and Sontag (2020), arXiv:1907.00030",
    "Paper: the authors' algorithm, rates and number of epochs. Ours: `fit(NoisyOr(J, latents),"
    " items)`, which has no held-out ELBO of the same kind.",
    tuple(_tables()),
    replicate,
)
