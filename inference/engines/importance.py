"""Importance draws from an approximate posterior, and diagnostics of their ratios."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from inference.base.outcome import ConvergenceWarning
from inference.programs.program import Params, Program
from inference.programs.replay import recorded_by_rows

GOOD_K = 0.7  # Vehtari, Simpson, Gelman, Yao and Gabry 2024, JMLR 25
CHUNK = 32


def log_posteriors(program: Program, params: Params) -> Tensor:
    """Log p(data, parameters), latents summed out, at draws (D, ...), (D,).

    As batches, those of a program that does not run so by its recorded operations.
    """
    parts = []
    count = len(next(iter(params.values())))
    with torch.no_grad():
        if count > CHUNK and program.chain is None and not (program.is_own or program.broadcasts()):
            return _recorded(program, params)
        for start in range(0, count, CHUNK):
            part = {name: value[start : start + CHUNK] for name, value in params.items()}
            parts.append(program.log_marginal(part) + program.log_prior(part))
    return torch.cat(parts)


def _recorded(program: Program, params: Params) -> Tensor:
    free = program.unconstrained(params)
    shapes = {name: value.shape[1:] for name, value in free.items()}
    rows = torch.cat([value.reshape(len(value), -1) for value in free.values()], 1)

    def evaluate(row: Tensor) -> tuple[Tensor]:
        pieces = row.split([shape.numel() for shape in shapes.values()], 1)
        values = program.constrained(
            {
                name: piece.reshape(1, *shape)
                for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
            }
        )
        return (program.log_marginal(values) + program.log_prior(values),)

    replay = recorded_by_rows(evaluate, rows[:CHUNK])
    full = torch.cat([rows, rows[:1].expand(-len(rows) % CHUNK, -1)])
    return torch.cat([replay(part)[0] for part in full.split(CHUNK)])[: len(rows)]


def warn_of_ratios(log_importance: Tensor, name: str, remedy: str) -> float:
    """Pareto k-hat of log ratios (D,) between posterior and approximation; warns above 0.7."""
    from inference.base.diagnostics import pareto_k

    k_hat = pareto_k(log_importance)
    if not k_hat <= GOOD_K:
        warnings.warn(
            f"{name}: k-hat of the importance ratios is {k_hat:.2f}, above {GOOD_K}: the"
            " approximation misses parts of the posterior, and its intervals may be too narrow;"
            f" {remedy}",
            ConvergenceWarning,
            stacklevel=4,
        )
    return k_hat
