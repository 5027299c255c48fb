"""A fit of rows in blocks, as the commands make it: what is chosen is chosen on a sample, what is
estimated is estimated from all rows.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inference.base.streaming.row_blocks import SAMPLE_ROWS, RowBlocks
from inference.base.structure import Capability
from ppl_models.parts.repr import shown_settings

if TYPE_CHECKING:
    from inference.fitting.result import Fit


def goes_in_blocks(model: Any, sample: Any, block_rows: int | None) -> bool:
    """Whether a model is fitted from rows in blocks: its statistics are sums over rows, and its
    engine is EM.

    Args:
        model: to be fitted; sample: some of its rows, in memory.
        block_rows: as the user says; None if he does not.

    Raises:
        ValueError: where blocks are asked for and not possible, or the model refuses the sample.
    """
    from inference.engines.em import EM
    from inference.fitting.problem import problem_of
    from inference.programs.global_state import quiet
    from inference.structures.layers.choose_penalty import ChoosePenalty
    from inference.structures.noisy_or.grow_and_prune import GrowAndPrune
    from inference.structures.registry import structure_of

    why = ""
    if Capability.BLOCKS not in structure_of(model).capabilities:
        law = getattr(model, "component", getattr(model, "response", None))
        items = "" if law is None else f" of {shown_settings(law).removesuffix('()')} items"
        why = (
            f"{type(model).__name__}{items} wants all rows in memory, since its M-step reads them"
            " once more"
        )
    else:
        with quiet():
            problem = problem_of(model, sample, 0)
        method = problem.structure.recommended(problem).method
        engine = method.engine if isinstance(method, ChoosePenalty) else method
        if not (engine is None or isinstance(engine, EM | GrowAndPrune)):
            why = (
                f"so many latents are fitted by {type(engine).__name__}, which wants its rows in"
                " memory"
            )
    if why and block_rows is not None:
        raise ValueError(f"--block-rows: {why}; leave the option out, or fit some of the rows")
    if why:
        typer.echo(f"All rows are read into memory: {why}.")
    return not why


def fit_blocks(
    model: Any,
    blocks: RowBlocks,
    init: Any,
    restarts: int | None,
    seed: int,
    checkpoint: Path | None,
    progress: bool,
    first: Fit | None = None,
) -> Fit:
    """Fit all rows by EM; where the model leaves something to be chosen, it is chosen on a sample,
    from whose estimates EM then starts.

    Args:
        model, init, restarts, seed, checkpoint, progress: as :func:`inference.fit`.
        first: of a sample, of the same model, where one was made.
    """
    from inference import EM, fit
    from inference.structures.layers.choose_penalty import is_open

    if first is None and is_open(model):
        beside = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}.graph")
        first = fit(
            model,
            blocks.sample(SAMPLE_ROWS, seed),
            init=init,
            num_restarts=restarts,
            seed=seed,
            progress=progress,
            checkpoint=beside,
        )
    if first is None:
        return fit(
            model,
            blocks,
            init=init,
            num_restarts=restarts,
            seed=seed,
            progress=progress,
            checkpoint=checkpoint,
        )
    found = fit(
        first.model, blocks, EM(), init=first, seed=seed, progress=progress, checkpoint=checkpoint
    )
    return dataclasses.replace(
        found,
        choice=first.choice,
        warnings=tuple(dict.fromkeys((*first.warnings, *found.warnings))),
    )
