"""Restarts of a program one by one, and the trial whether they run as one batch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields, replace
from typing import Any, cast

import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor

from inference.programs.global_state import isolated, quiet
from ppl_models.data.tables import first_tensor, map_tensors, row_data

RESTARTS = "_restarts"  # name of the plate over them

TRIAL_ROWS, TRIAL_VALUES = (
    64,
    2**10,
)  # rows of a table that a trial of two restarts runs on; values of a latent that it sums over


def in_restarts(model: Callable[..., Any], restarts: int, nesting: int) -> Callable[..., Any]:
    """The program inside a plate over restarts, on the left of its own plates."""

    def batched(*args: Any) -> Any:
        with pyro.plate(RESTARTS, restarts, dim=-1 - nesting):
            return model(*args)

    return batched


class _Enough(Exception):
    """All sites that were asked for have been met."""


class _Until(Messenger):
    """Stop at the first site after certain ones."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self.left = set(names)

    def _pyro_sample(self, message: Any) -> None:
        if not self.left:
            raise _Enough
        self.left.discard(message["name"])


def trace_until(model: Callable[..., Any], args: tuple[Any, ...], names: Collection[str]) -> Any:
    """Trace of a program up to the first site after the named ones."""
    with poutine.trace() as tracer:
        try:
            with _Until(names):
                model(*args)
        except _Enough:
            pass
        return tracer.trace.copy()


def at(value: Any, restart: int) -> Any:
    """Values of one restart, without the leading dim."""
    if isinstance(value, Tensor):
        return value[restart]
    if isinstance(value, dict):
        return {name: at(part, restart) for name, part in value.items()}
    return replace(
        value, **{field.name: at(getattr(value, field.name), restart) for field in fields(value)}
    )


def stacked(parts: list[Any]) -> Any:
    """Stack the answers of single restarts along a leading dim."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.stack(parts)
    if isinstance(first, dict):
        return {name: stacked([part[name] for part in parts]) for name in first}
    return replace(
        first,
        **{
            field.name: stacked([getattr(part, field.name) for part in parts])
            for field in fields(first)
        },
    )


def run_together(program: Any) -> bool:
    """Tell whether two restarts run together give what each gives alone."""
    trials = [program]
    if (
        not program.is_chain
        and len(program.args) == 1
        and row_data(program.args[0])
        and len(first_tensor(program.args[0])) > TRIAL_ROWS
    ):
        few = map_tensors(lambda x: x[:TRIAL_ROWS], program.args[0])
        trials = [program.with_data(few), program]
    with torch.no_grad(), quiet():
        for trial in trials:
            try:
                points = inner_points(trial)
                alone = _answers(trial.run_as(together=False), points)
            except Exception:  # noqa: BLE001, S112 (a program of so many rows and no fewer; or one that is refused when it is run)
                continue
            if not all(bool(torch.isfinite(value).all()) for value in alone):
                return False
            try:
                together = _answers(trial.run_as(together=True), points)
            except Exception:  # noqa: BLE001 (whatever a program does with a leading dim that it does not expect)
                return False
            near = 1e-7 if all(value.dtype == torch.float64 for value in points.values()) else 1e-3
            return all(
                single.shape == batched.shape
                and torch.allclose(single, batched, rtol=near, atol=near)
                for single, batched in zip(alone, together, strict=True)
            )
    return False


def inner_points(program: Any) -> dict[str, Tensor]:
    """Two values of everything continuous, within two units of the middle, unconstrained."""
    points = program.draw_prior(2, seed=0, local=True)
    try:
        free = program.unconstrained(points)
        return cast(
            "dict[str, Tensor]",
            program.constrained(
                {name: value.nan_to_num().clamp(-2.0, 2.0) for name, value in free.items()}
            ),
        )
    except NotImplementedError:  # a support without a bijection
        return cast("dict[str, Tensor]", points)


def _answers(program: Any, points: dict[str, Tensor]) -> list[Tensor]:
    """Answers of a program to the questions of engines, at two points."""
    sizes = [site.num_values for site in program.sites if site.kind == "latent"]
    if None not in sizes and all(size <= TRIAL_VALUES for size in sizes if size):
        posteriors = program.factor_posteriors(points)
        expected = program.expected_complete_log_density(points, posteriors)
        return [program.log_prior(points), program.log_marginal_rows(points), expected]
    with isolated(0):
        trace = poutine.trace(program.model).get_trace(*program.args)
    latents = {
        name: trace.nodes[name]["value"].detach().expand(2, *program.site(name).shape)
        for name in program.names("latent")
    }
    return [
        program.log_prior(points),
        program.log_joint(points, latents),
        program.log_joint_rows(points, latents),
    ]
