"""``ppl-models study overparameterization``."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inference.cli.app import (
    Out,
    Overwrite,
    Seed,
    Verbose,
    check_out,
    one_line_errors,
    sizes_of,
    study_app,
    write_csv,
    write_json,
)

if TYPE_CHECKING:
    from torch import Tensor


class Design(StrEnum):
    """Data with a known truth."""

    img = "img"
    unif = "unif"
    con8 = "con8"
    con24 = "con24"


class Means(StrEnum):
    """How every start is fitted."""

    em = "em"
    score = "score"
    search = "search"


@study_app.command("overparameterization")
def study_overparameterization(
    design: Annotated[
        Design, typer.Argument(help="Which truth: images, random edges, or 8 or 24 edges a latent.")
    ],
    latents: Annotated[
        str, typer.Option(metavar="M1,M2,...", help="Numbers of latents to fit; the truth has 8.")
    ],
    out: Out,
    engine: Annotated[
        Means,
        typer.Option(help="em: exact EM; score: the published algorithm; search: grow and prune."),
    ] = Means.em,
    restarts: Annotated[int, typer.Option(min=2, help="Independent starts of each size.")] = 20,
    rows: Annotated[int, typer.Option(min=10, help="Rows to fit.")] = 9000,
    iterations: Annotated[int, typer.Option(min=1, help="Of em; epochs of score.")] = 100,
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="The published sample (in the folder PPL_MODELS_DATA) instead of new rows.",
        ),
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            min=1, help="Processes of this machine that make the fits, each on one thread."
        ),
    ] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Of a dask cluster that makes the fits, such as tcp://host:8786.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Keeps every finished fit, so that a study that was ended goes on where it was when"
                " you call it again."
            )
        ),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    verbose: Verbose = False,
) -> None:
    """How often are all latents of a noisy-OR network found, by the number of latents fitted?
    (Buhai et al. 2020)
    """
    with one_line_errors(None, verbose, out=out, overwrite=overwrite):
        from inference.engines.em import EM
        from inference.selection.overparameterization import overparameterization, study_frame
        from inference.structures.noisy_or.score_svi import ScoreFunctionSVI
        from ppl_models.noisy_or import NoisyOr

        sizes = sizes_of(latents, "--latents")
        if min(sizes) < 1:
            raise ValueError(f"--latents: positive numbers were expected, got {latents!r}")
        check_out(out, overwrite)
        truth, data, held_out = _data(design, rows, seed, published)
        methods: dict[Means, Any] = {
            Means.em: EM(max_iterations=iterations),
            Means.score: ScoreFunctionSVI(num_epochs=iterations),
            Means.search: None,
        }
        found = overparameterization(
            lambda m: NoisyOr(data.shape[1], m),
            data,
            truth,
            sizes,
            methods[engine],
            restarts,
            held_out,
            seed,
            folder,
            workers,
            scheduler,
        )
        out.mkdir(parents=True, exist_ok=True)
        frame = study_frame(found)
        write_csv(frame, out / "study.csv")
        record = {
            "design": design.value,
            "engine": engine.value,
            "rows": len(data),
            "published": published,
            "seed": seed,
            "iterations": iterations,
            "sizes": [asdict(row) for row in found],
        }
        write_json(record, out / "study.json")
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
            f" {found[0].objective_name}, not by the truth. recovered: no failure is off by more"
            " than a factor of e, which rare latents miss by chance alone; lost: the share of what"
            " the latents say of the items that is lost, by how often each is on"
        )
        typer.echo(f"results in {out}: study.csv, study.json")


def _data(
    design: Design, rows: int, seed: int, published: bool
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Truth, rows to fit, and 1,000 held-out rows."""
    from ppl_models.datasets import noisy_or

    if published:
        sample = noisy_or.load_noisy_or_sample(design.value)
        return sample.truth, sample.train[:rows], sample.held_out
    if design is Design.img:
        truth = noisy_or.image_design()
    elif design is Design.unif:
        truth = noisy_or.uniform_design()
    else:
        truth = noisy_or.random_design(8 if design is Design.con8 else 24)
    data, _ = noisy_or.sample_noisy_or(truth, rows + 1000, seed=seed)
    return truth, data[1000:], data[:1000]
