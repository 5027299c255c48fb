"""Discriminator between rows and rows of shuffled variates, judged on held-out rows.

What it learns is the log-ratio of the distribution of the rows to the product of the distributions
of their variates, so its held-out scores bound how dependent the variates are
(:mod:`inference.selection.total_correlation`) and test whether they are independent
(:mod:`inference.selection.conditional_independence`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import as_table, check_number, check_size, plain_fields

LARGEST_SCORE = 15.0  # of a log-ratio, in size
COPIES = 5  # shuffled copies of each held-out fold
EVALUATION_ROWS = 8192


@dataclass(frozen=True)
class Discriminator:
    """A dense network on all variates side by side, standardised.

    Args:
        hidden: sizes of its hidden layers.
        num_folds: rows are split so often; each part is scored by a network that has not seen it.
        max_epochs: passes over the rows; every pass shuffles the variates anew.
        patience: passes without a better held-out score (on a tenth of the training rows) after
            which it stops.
        batch_rows: in each step, as many shuffled rows beside them; None for 500, or a 200th of the
            rows where that is more.
        learning_rate: of Adam.

    Raises:
        ValueError: for settings out of range.
    """

    hidden: tuple[int, ...] = (64, 64, 64)
    num_folds: int = 5
    max_epochs: int = 60
    patience: int = 6
    batch_rows: int | None = None
    learning_rate: float = 1e-2

    def __post_init__(self) -> None:
        owner = "Discriminator"
        plain_fields(self)
        if not isinstance(self.hidden, tuple) or not self.hidden:
            raise ValueError(
                f"{owner}: hidden must hold the size of at least one layer, got {self.hidden!r}"
            )
        for size in self.hidden:
            check_size(owner, "hidden", size, 1, "positive integers")
        check_size(owner, "num_folds", self.num_folds, 2, "an integer of 2 or more")
        for name in ("max_epochs", "patience"):
            check_size(owner, name, getattr(self, name))
        if self.batch_rows is not None:
            check_size(owner, "batch_rows", self.batch_rows)
        check_number(owner, "learning_rate", self.learning_rate, "be positive", above=0)


@shows_briefly
@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Log-ratios of rows and of shuffled rows, each by a network that has seen neither.

    Args:
        rows: (N,).
        shuffled: (K, N), of K shuffled copies.
        sources: (K, V, N) long; variate v of shuffled row n is that of row ``sources[k, v, n]``.
    """

    rows: Tensor
    shuffled: Tensor
    sources: Tensor


def as_variates(owner: str, variates: Any) -> list[Tensor]:
    """Return variates as V floating tensors (N, D_v).

    From a table (N, V), one column a variate, or a sequence of V arrays (N,) or (N, ...).

    Raises:
        ValueError: for fewer than two variates, other numbers of rows, or entries that are missing
            or not finite.
    """
    if not isinstance(variates, list | tuple):
        table, _ = as_table(variates)
        parts = [table[:, v : v + 1] for v in range(table.shape[1])]
    else:
        parts = []
        for v, variate in enumerate(variates):
            part = torch.as_tensor(variate)
            if part.dim() == 0 or not part.numel():
                raise ValueError(
                    f"{owner}: variate {v} must hold rows, got shape {tuple(part.shape)}"
                )
            parts.append(
                (part if part.is_floating_point() else part.to(torch.get_default_dtype())).reshape(
                    len(part), -1
                )
            )
    if len(parts) < 2:
        raise ValueError(f"{owner}: at least two variates were expected, got {len(parts)}")
    for v, part in enumerate(parts):
        if len(part) != len(parts[0]):
            raise ValueError(
                f"{owner}: {len(parts[0])} rows were expected in variate {v} as in the first, got"
                f" {len(part)}"
            )
        if not bool(torch.isfinite(part).all()):
            raise ValueError(
                f"{owner}: complete rows of finite numbers were expected; variate {v} has a missing"
                " or infinite entry"
            )
    return parts


def held_out_scores(
    variates: Sequence[Tensor], settings: Discriminator, seed: int
) -> HeldOutScores:
    """Return held-out scores of all rows, by cross-fitting.

    Args:
        variates: V tensors (N, D_v).
        settings: of the network and its training.
        seed: of folds, shuffles, starts and steps.

    Raises:
        ValueError: for fewer than ten rows a fold.
    """
    num_rows = len(variates[0])
    if num_rows < 10 * settings.num_folds:
        raise ValueError(
            f"Discriminator: at least {10 * settings.num_folds} rows were expected for"
            f" {settings.num_folds} folds, got {num_rows}"
        )
    generator = torch.Generator().manual_seed(seed)
    variates = [_standardised(x) for x in variates]
    order = torch.randperm(num_rows, generator=generator)
    scores = torch.empty(num_rows)
    shuffled, sources = (
        torch.empty(COPIES, num_rows),
        torch.empty(COPIES, len(variates), num_rows, dtype=torch.long),
    )
    for fold in range(settings.num_folds):
        held = order[fold :: settings.num_folds]
        rest = torch.cat(
            [
                order[other :: settings.num_folds]
                for other in range(settings.num_folds)
                if other != fold
            ]
        )
        network = _train(variates, rest, settings, generator)
        scores[held] = _scores(network, variates, [held] * len(variates))
        for k in range(COPIES):
            places = [held[torch.randperm(len(held), generator=generator)] for _ in variates]
            shuffled[k, held] = _scores(network, variates, places)
            sources[k, :, held] = torch.stack(places)
    return HeldOutScores(scores.double(), shuffled.double(), sources)


def _standardised(x: Tensor) -> Tensor:
    """Standardise in single precision by column; an image's pixels share one scale."""
    x = x.detach().cpu().to(torch.float32)
    spread = x.std(0) if x.shape[1] < 30 else x.std().expand(x.shape[1])
    return (x - x.mean(0)) / torch.where(spread > 0, spread, 1.0)


Layers = list[tuple[Tensor, Tensor]]


def _train(
    variates: Sequence[Tensor], rows: Tensor, settings: Discriminator, generator: torch.Generator
) -> Layers:
    """Fit a logistic regression of rows (1) against shuffled rows (0), with early stopping.

    It stops where its loss on a tenth of the rows no longer falls.
    """
    sizes = [sum(x.shape[1] for x in variates), *settings.hidden, 1]
    layers = [
        (
            (torch.randn(a, b, generator=generator) * (2 / a) ** 0.5).requires_grad_(),
            torch.zeros(b).requires_grad_(),
        )
        for a, b in zip(sizes, sizes[1:], strict=False)
    ]
    with torch.no_grad():
        layers[-1][0].mul_(0.1)
    weights = [value for layer in layers for value in layer]
    check, training = rows[: max(1, len(rows) // 10)], rows[max(1, len(rows) // 10) :]
    checked = [
        [check[torch.randperm(len(check), generator=generator)] for _ in variates]
        for _ in range(COPIES)
    ]
    best, best_state, waited = float("inf"), [value.detach().clone() for value in weights], 0
    optimiser = torch.optim.Adam(weights, lr=settings.learning_rate)
    size = settings.batch_rows or max(500, len(training) // 200)
    steps = max(1, len(training) // size)
    with torch.enable_grad():
        for epoch in range(settings.max_epochs):
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * (1 - epoch / settings.max_epochs)
            whole = training[torch.randperm(len(training), generator=generator)]
            apart = [training[torch.randperm(len(training), generator=generator)] for _ in variates]
            for batch in range(steps):
                part = slice(batch * size, (batch + 1) * size)
                inputs = [
                    _side_by_side(variates, [whole[part]] * len(variates)),
                    _side_by_side(variates, [p[part] for p in apart]),
                ]
                real, fake = _forward(layers, torch.cat(inputs)).chunk(2)
                loss = (
                    torch.nn.functional.softplus(-real).mean()
                    + torch.nn.functional.softplus(fake).mean()
                )
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            real = _scores(layers, variates, [check] * len(variates))
            fake = torch.cat([_scores(layers, variates, places) for places in checked])
            held = float(
                torch.nn.functional.softplus(-real).mean()
                + torch.nn.functional.softplus(fake).mean()
            )
            if held < best:
                best, best_state, waited = held, [value.detach().clone() for value in weights], 0
            else:
                waited += 1
                if waited >= settings.patience:
                    break
    return [(best_state[2 * i], best_state[2 * i + 1]) for i in range(len(layers))]


def _side_by_side(variates: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    return torch.cat([x[rows] for x, rows in zip(variates, places, strict=True)], 1)


def _forward(layers: Layers, inputs: Tensor) -> Tensor:
    for weight, bias in layers[:-1]:
        inputs = torch.nn.functional.silu(inputs @ weight + bias)
    return (inputs @ layers[-1][0] + layers[-1][1]).squeeze(-1)


@torch.no_grad()
def _scores(layers: Layers, variates: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    """Log-ratios of rows put together from the given rows of each variate."""
    total = len(places[0])
    parts = [
        _forward(
            layers,
            _side_by_side(variates, [rows[begin : begin + EVALUATION_ROWS] for rows in places]),
        )
        for begin in range(0, total, EVALUATION_ROWS)
    ]
    return torch.cat(parts).clamp(-LARGEST_SCORE, LARGEST_SCORE)
