r"""Dependence of variates, by a discriminator between rows and rows of shuffled variates.

What it learns is the log-ratio of the distribution of the rows to the product of those of their
variates, so its held-out scores bound how dependent the variates are and test whether they are
independent.

**Total correlation.**

.. math::

    C^* = \mathrm{KL}(P \,\|\, \textstyle\prod_v P_v), \qquad -C^* \le \text{neg\_ctc of any
    mixture}

So a fit whose cost has come down to :math:`-C^*` cannot be bettered, and more components do not
help. :math:`C^*` is not known. For any function d of a row, with P the distribution of the rows
and Q that of rows whose variates are shuffled,

.. math::
    \text{Donsker-Varadhan: } E_P[d] - \log E_Q[e^d] \le C^*, \qquad \text{NWJ: } E_P[d] + 1 -
    E_Q[e^d] \le C^*,

with equality at the log-ratio, which a discriminator learns. Both bound :math:`C^*` from **below**,
so their negatives bound :math:`-C^*` from **above**: a cost above them can still fall for certain,
while a cost below them shows only that the discriminator is the weaker of the two. The statistic d
comes from other rows than those that it is judged on, so that both hold but for sampling error (the
logarithm of a mean lifts Donsker-Varadhan by about half its squared standard error; NWJ is
unbiased). Where all variates take few values, the plug-in estimate is given too, less its bias to
first order (Miller 1955); it is an estimate and no bound.

**Conditional independence.** Under the model a row's density times :math:`P(z = i \mid X)` is
:math:`w_i \prod_v f_v^{(i)}(x_v)`. So rows whose component is **drawn** from their posterior have
independent variates inside each component, and no discriminator can tell them from rows whose
variates were shuffled among them: the area under its curve is one half. (Rows *chosen* by a high
posterior would not do: the choice itself makes the variates dependent.) A larger area says that the
component is not one: too few components, or variates that depend on each other.

Source: M. Donsker and S. Varadhan (1983), doi:10.1002/cpa.3160360204; X. Nguyen, M. Wainwright and
M. Jordan (2010), doi:10.1109/TIT.2010.2068870.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ppl_models.data.tables import as_table
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import (
    Seed,
    as_seed,
    check_kind,
    check_number,
    check_size,
    plain_fields,
)

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
            dtype = part.dtype if part.is_floating_point() else torch.get_default_dtype()
            parts.append(part.to(dtype).reshape(len(part), -1))
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
    shuffled = torch.empty(COPIES, num_rows)
    sources = torch.empty(COPIES, len(variates), num_rows, dtype=torch.long)
    for fold in range(settings.num_folds):
        folds = [order[part :: settings.num_folds] for part in range(settings.num_folds)]
        held = folds.pop(fold)
        rest = torch.cat(folds)
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
                loss = _loss(real, fake)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            real = _scores(layers, variates, [check] * len(variates))
            fake = torch.cat([_scores(layers, variates, places) for places in checked])
            held = float(_loss(real, fake))
            if held < best:
                best, best_state, waited = held, [value.detach().clone() for value in weights], 0
            else:
                waited += 1
                if waited >= settings.patience:
                    break
    return [(best_state[2 * i], best_state[2 * i + 1]) for i in range(len(layers))]


def _loss(real: Tensor, fake: Tensor) -> Tensor:
    softplus = torch.nn.functional.softplus
    return softplus(-real).mean() + softplus(fake).mean()


def _side_by_side(variates: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    return torch.cat([x[rows] for x, rows in zip(variates, places, strict=True)], 1)


def _forward(layers: Layers, inputs: Tensor) -> Tensor:
    for weight, bias in layers[:-1]:
        inputs = torch.nn.functional.silu(inputs @ weight + bias)
    return (inputs @ layers[-1][0] + layers[-1][1]).squeeze(-1)


@torch.no_grad()
def _scores(layers: Layers, variates: Sequence[Tensor], places: Sequence[Tensor]) -> Tensor:
    """Log-ratios of rows put together from the given rows of each variate."""
    batches = zip(*(rows.split(EVALUATION_ROWS) for rows in places), strict=True)
    parts = [_forward(layers, _side_by_side(variates, batch)) for batch in batches]
    return torch.cat(parts).clamp(-LARGEST_SCORE, LARGEST_SCORE)


MOST_VALUES = 20  # of a variate that counts as discrete
ROWS_A_CELL = 5  # fewer, on the average, and the plug-in estimate is not given


@dataclass(frozen=True)
class TotalCorrelation:
    """Bounds and estimates of the total correlation, in nats.

    Args:
        donsker_varadhan, nwj: lower bounds on C*, from held-out rows; None where the discriminator
            was not asked.
        donsker_varadhan_error, nwj_error: their standard errors.
        plug_in, plug_in_error: where all variates take few values, else None.
        num_rows, num_variates: of the data.
    """

    donsker_varadhan: float | None
    donsker_varadhan_error: float | None
    nwj: float | None
    nwj_error: float | None
    plug_in: float | None
    plug_in_error: float | None
    num_rows: int
    num_variates: int

    @property
    def estimate(self) -> float:
        """Plug-in estimate where there is one, else the Donsker-Varadhan bound; at least zero."""
        value = self.plug_in if self.plug_in is not None else self.donsker_varadhan
        return max(0.0, value) if value is not None else math.nan

    @property
    def error(self) -> float:
        """Standard error of :attr:`estimate`."""
        value = self.plug_in_error if self.plug_in is not None else self.donsker_varadhan_error
        return math.nan if value is None else value

    @property
    def is_bound(self) -> bool:
        """Lower bound on C* in the estimate (its negative is an upper bound on -C*)."""
        return self.plug_in is None

    def text(self) -> str:
        """Return the estimates in words."""
        out = [f"Total correlation of {self.num_variates} variates, {self.num_rows:,} rows."]
        if self.plug_in is not None:
            out.append(
                f"Plug-in estimate {self.plug_in:.4f} (standard error {self.plug_in_error:.4f})"
                " nats, from counts."
            )
        if self.donsker_varadhan is not None:
            out.append(
                f"At least {self.donsker_varadhan:.4f} ({self.donsker_varadhan_error:.4f}) nats by"
                f" Donsker and Varadhan, {self.nwj:.4f} ({self.nwj_error:.4f}) by Nguyen,"
                " Wainwright and Jordan. These bound it from below: a fit whose cost lies above"
                " minus this figure can still be bettered; one that lies below it shows that the"
                " discriminator is the weaker of the two."
            )
        return " ".join(out)


def total_correlation(
    variates: Sequence[Any] | Any, discriminator: Discriminator | None = None, seed: Seed = 0
) -> TotalCorrelation:
    """Bound the total correlation of the rows from below.

    With its plug-in estimate where all variates take few values.

    Args:
        variates: a table (N, V), one column a variate, or a sequence of V arrays (N,) or (N, ...).
        discriminator: settings; None for the usual ones, and not to ask it where the plug-in
            estimate is to be had.
        seed: of folds, shuffles and steps.

    Raises:
        ValueError: for fewer than two variates, incomplete rows, or too few of them.
    """
    seed = as_seed("total_correlation", seed)
    owner = "total_correlation"
    parts = as_variates(owner, variates)
    if discriminator is not None:
        check_kind(owner, "discriminator", discriminator, Discriminator, "a Discriminator()")
    counted = _plug_in(parts)
    bounds = None
    if counted is None or discriminator is not None:
        bounds = _bounds(held_out_scores(parts, discriminator or Discriminator(), seed))
    dv, dv_error, nwj, nwj_error = bounds or (None, None, None, None)
    plug_in, plug_in_error = counted or (None, None)
    return TotalCorrelation(
        dv, dv_error, nwj, nwj_error, plug_in, plug_in_error, len(parts[0]), len(parts)
    )


def _bounds(scores: HeldOutScores) -> tuple[float, float, float, float]:
    r"""Donsker-Varadhan and NWJ with standard errors.

    The mean over shuffled rows is a V-statistic of the rows: row n has the part :math:`\sum_v
    (h_v(n) - \theta)` in it, with :math:`h_v(n)` the mean over the shuffled rows that have their
    variate v from row n.
    """
    num_copies, num_variates, num_rows = scores.sources.shape
    ratio = scores.shuffled.exp()  # (K, N)
    theta = float(ratio.mean())
    parts = torch.zeros(num_rows, dtype=torch.double)
    for v in range(num_variates):
        parts.scatter_add_(0, scores.sources[:, v].reshape(-1), ratio.reshape(-1) / num_copies)
    influence = parts - num_variates * theta
    direct = scores.rows - scores.rows.mean()
    mean = float(scores.rows.mean())
    dv_error = float((direct - influence / theta).std()) / math.sqrt(num_rows)
    nwj_error = float((direct - influence).std()) / math.sqrt(num_rows)
    return mean - math.log(theta), dv_error, mean + 1 - theta, nwj_error


def _plug_in(parts: Sequence[Tensor]) -> tuple[float, float] | None:
    """Return the bias-corrected entropies of counts, and the standard error.

    None where cells are too many for the rows.
    """
    num_rows = len(parts[0])
    codes = []
    for part in parts:
        values, code = part.unique(dim=0, return_inverse=True)
        if len(values) > MOST_VALUES:
            return None
        codes.append(code)
    cells, joint = torch.stack(codes, 1).unique(dim=0, return_inverse=True)
    if len(cells) * ROWS_A_CELL > num_rows:
        return None
    log_ratio = (joint.bincount().double() / num_rows).log()[joint]
    degrees = len(cells) - 1
    for code in codes:
        counts = code.bincount().double()
        log_ratio = log_ratio - (counts / num_rows).log()[code]
        degrees -= len(counts) - 1
    return float(log_ratio.mean()) - degrees / (2 * num_rows), float(log_ratio.std()) / math.sqrt(
        num_rows
    )


LEAST_ROWS = 200
Verdict = Literal["dependent", "no dependence found", "too few rows"]


@dataclass(frozen=True)
class ComponentDependence:
    """One component's rows against rows with shuffled variates.

    Args:
        component: counted from 0.
        num_rows: drawn into it.
        auc: area under the curve of the held-out scores, 0.5 where nothing distinguishes them; NaN
            with too few rows.
        lower, upper: its interval at the stated level, for all components together.
        verdict: "dependent", "no dependence found", or "too few rows".
    """

    component: int
    num_rows: int
    auc: float
    lower: float
    upper: float
    verdict: Verdict

    def text(self) -> str:
        """The verdict in words."""
        start = f"Component {self.component} ({self.num_rows:,} rows): {self.verdict}"
        if self.verdict == "too few rows":
            return f"{start}; at least {LEAST_ROWS} are needed."
        numbers = (
            f"area under the curve {self.auc:.3f} ({self.lower:.3f} to {self.upper:.3f}), 0.5 where"
            " variates are independent"
        )
        advice = (
            " Try more components, or put variates that depend on each other into one."
            if self.verdict == "dependent"
            else ""
        )
        return f"{start}; {numbers}.{advice}"


def conditional_independence(
    variates: Sequence[Any] | Any,
    responsibilities: Tensor | np.ndarray,
    discriminator: Discriminator | None = None,
    level: float = 0.95,
    seed: Seed = 0,
) -> tuple[ComponentDependence, ...]:
    """Test each component of a fit for dependence among its variates.

    Args:
        variates: a table (N, V), one column a variate, or a sequence of V arrays (N,) or (N, ...).
        responsibilities: (N, C), the posterior of each row's component; best of rows that the fit
            has not seen.
        discriminator: settings; None for the usual ones.
        level: of the intervals, for all components together (Bonferroni).
        seed: of the drawn components, folds and shuffles.

    Raises:
        ValueError: for responsibilities that do not fit the rows or sum to one, incomplete rows, or
            settings out of range.
    """
    seed = as_seed("conditional_independence", seed)
    owner = "conditional_independence"
    parts = as_variates(owner, variates)
    chances = torch.as_tensor(responsibilities).double()
    if chances.dim() != 2 or len(chances) != len(parts[0]):
        raise ValueError(
            f"{owner}: responsibilities of shape ({len(parts[0])}, components) were expected, got"
            f" {tuple(chances.shape)}"
        )
    if not bool((chances >= 0).all() and ((chances.sum(1) - 1).abs() < 1e-4).all()):
        raise ValueError(f"{owner}: responsibilities must be chances that sum to 1 over components")
    check_number(owner, "level", level, "lie in (0, 1)", above=0, below=1)
    settings = Discriminator() if discriminator is None else discriminator
    check_kind(owner, "discriminator", settings, Discriminator, "a Discriminator()")
    drawn = torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(seed)).squeeze(1)
    size = chances.shape[1]
    out = []
    for i in range(size):
        rows = (drawn == i).nonzero().squeeze(1)
        if len(rows) < max(LEAST_ROWS, 10 * settings.num_folds):
            out.append(
                ComponentDependence(i, len(rows), math.nan, math.nan, math.nan, "too few rows")
            )
            continue
        auc, error = _area(held_out_scores([x[rows] for x in parts], settings, seed))
        quantile = torch.distributions.Normal(0.0, 1.0).icdf(
            torch.tensor(1 - (1 - level) / (2 * size))
        )
        half = float(quantile) * error
        bounds = max(0.0, auc - half), min(1.0, auc + half)
        verdict: Verdict = "dependent" if auc - half > 0.5 else "no dependence found"
        out.append(ComponentDependence(i, len(rows), auc, *bounds, verdict))
    return tuple(out)


def _area(scores: HeldOutScores) -> tuple[float, float]:
    """Return the area under the curve and its standard error, as of a V-statistic of rows."""
    rows, shuffled = scores.rows, scores.shuffled.reshape(-1)
    above = _share_below(shuffled, rows)  # of shuffled rows below each row
    area = float(above.mean())
    # of rows above each shuffled row
    below = (1 - _share_below(rows, shuffled)).reshape(scores.shuffled.shape)
    num_copies, num_variates, num_rows = scores.sources.shape
    influence = above - area - num_variates * area
    for v in range(num_variates):
        influence = influence.scatter_add(
            0, scores.sources[:, v].reshape(-1), below.reshape(-1) / num_copies
        )
    return area, float(influence.std()) / math.sqrt(num_rows)


def _share_below(of: Tensor, values: Tensor) -> Tensor:
    """For each value the share of the numbers ``of`` that are smaller, ties counting a half."""
    ordered = of.sort().values
    left = torch.searchsorted(ordered, values)
    right = torch.searchsorted(ordered, values, right=True)
    return (left + right).double() / (2 * len(of))
