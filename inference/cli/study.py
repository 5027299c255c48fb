"""``ppl-models study overparameterization``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from inference.cli.app import (
    Call,
    command,
    study_app,
    write_csv,
    write_json,
)
from inference.cli.reading import sizes_of

if TYPE_CHECKING:
    from torch import Tensor


@command(study_app, "overparameterization")
def study_overparameterization(call: Call) -> None:
    """How often are all latents of a noisy-OR network found, by the number of latents fitted?
    (Buhai et al. 2020)
    """
    from inference.engines.em import EM
    from inference.selection.overparameterization import overparameterization, study_frame
    from inference.structures.noisy_or.score_svi import ScoreFunctionSVI
    from ppl_models.noisy_or import NoisyOr

    sizes = sizes_of(call.latents, "--latents")
    if min(sizes) < 1:
        raise ValueError(f"--latents: positive numbers were expected, got {call.latents!r}")
    truth, data, held_out = _data(call.design, call.rows, call.seed, call.published)
    methods: dict[str, Any] = {
        "em": EM(max_iterations=call.iterations),
        "score": ScoreFunctionSVI(num_epochs=call.iterations),
        "search": None,
    }
    sizes_tried = overparameterization(
        lambda m: NoisyOr(data.shape[1], m),
        data,
        truth,
        sizes,
        methods[call.engine],
        call.restarts,
        held_out,
        call.seed,
        call.folder,
        call.workers,
        call.scheduler,
    )
    call.out.mkdir(parents=True, exist_ok=True)
    frame = study_frame(sizes_tried)
    write_csv(frame, call.out / "study.csv")
    record = {
        "design": call.design.value,
        "engine": call.engine.value,
        "rows": len(data),
        "published": call.published,
        "seed": call.seed,
        "iterations": call.iterations,
        "sizes": [asdict(row) for row in sizes_tried],
    }
    write_json(record, call.out / "study.json")
    shown = frame[
        [
            "num_latents",
            "recovered",
            "recovered_ci95",
            "full_share",
            "best_recovered",
            "lost",
            "best_lost",
            "held_out",
            "seconds",
        ]
    ]
    typer.echo(shown.to_string(index=False, float_format="{:.3f}".format))
    typer.echo(
        f"of {len(truth['prior'])} latents; best_recovered: by the best"
        f" {sizes_tried[0].objective_name}, not by the truth. recovered: no failure is off by more"
        " than a factor of e, which rare latents miss by chance alone; lost: the share of what"
        " the latents say of the items that is lost, by how often each is on"
    )
    typer.echo(f"results in {call.out}: study.csv, study.json")


def _data(
    design: str, rows: int, seed: int, published: bool
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Truth, rows to fit, and 1,000 held-out rows."""
    from ppl_models.datasets import noisy_or

    if published:
        sample = noisy_or.load_noisy_or_sample(str(design))
        return sample.truth, sample.train[:rows], sample.held_out
    if design == "img":
        truth = noisy_or.image_design()
    elif design == "unif":
        truth = noisy_or.uniform_design()
    else:
        truth = noisy_or.random_design(8 if design == "con8" else 24)
    data, _ = noisy_or.sample_noisy_or(truth, rows + 1000, seed=seed)
    return truth, data[1000:], data[:1000]
