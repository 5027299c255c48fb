r"""Accumulated cutoff discrepancy criterion (ACDC) for the number of components.

Information criteria add components to mend a wrong likelihood. ACDC asks instead whether the noise
of each component looks as the model says: with :math:`D_k` the divergence of component k's pooled
posterior noise from its assumed distribution,

.. math:: \hat K(\rho) = \min \arg\min_K \sum_{k \le K} \max(0, D_k - \rho) + \lambda K .

The number is that of the last clear step of the accumulated discrepancies
(:mod:`inference.acdc.choice`), or the best at a cutoff :math:`\rho`, or that of the first wide
interval of cutoffs.

Source: Nguyen, Li, Lai, Paschalidis and Huggins, *Beyond Predictive Accuracy*, chapter 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from inference.acdc.choice import (
    MIN_SHARE,
    Choice,
    Segment,
    best_segments,
    clear_step,
    discrepancy_left,
    loss,
    select_segment,
    shares_taken,
)
from inference.acdc.discrepancy import (
    KDE,
    Discrepancy,
    PlugIn,
    cells_of,
    null_moments,
    plug_in,
    plug_in_null,
)
from inference.base.component_noise import NoiseDraws, numpy_generator
from inference.base.drawing import draw
from inference.base.frames import pd
from inference.base.structure import component_noise, refused_rows
from inference.fitting.columns import checked_as_fitted
from inference.fitting.fit import fit as refit
from inference.fitting.result import Fit
from inference.structures.registry import structure_of
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_flag, check_size, plain_fields

PENALTY = 0.01  # a component must lower the loss by more than this
MIN_USE = 5  # rows; a component with fewer has no noise to judge, and counts as fitting
# noises in a column, where columns have different numbers of them; fewer are passed over
MIN_COLUMN = 50
ONE_VALUE = 1e-6  # standard deviations: a narrower range of noise is that of one value
MISFIT = 3.0  # standard deviations of exact noise from which a component misfits
CLEAR = 10.0  # a lead in BIC that leaves no doubt (Kass and Raftery 1995)
# fields of a result by number of components
BY_NUMBER = "raw null_mean null_sd component_discrepancy num_used weights by_column"
MOST_REDRAWS = 1000  # of rows that a fit refuses
# bootstrap samples of the draws, and the share of them that must agree
NUM_RESAMPLES, SETTLED = 40, 0.95


@dataclass(frozen=True)
class Table:
    """Null from exact noise of as many rows as use the component: cheap.

    The standard deviation is that of one draw a row: too large, hence cautious, where several are
    averaged.
    """


@dataclass(frozen=True)
class NoNull:
    """No calibration: raw discrepancies, as published."""


@dataclass(frozen=True)
class BootstrapNull:
    """Null from data simulated from the fitted model.

    Args:
        num_data_sets: how many.
        refit: fit the model to each of them, from the given fit, before its noise is drawn. A fit
            with many activities a row (few columns for its components) follows the data too
            closely, so that its noise is too regular: only a refitted null takes that away.
    """

    num_data_sets: int = 20
    refit: bool = False

    def __post_init__(self) -> None:
        plain_fields(self)
        check_flag("Bootstrap", "refit", self.refit)
        check_size("Bootstrap", "num_data_sets", self.num_data_sets, least=2)


Bootstrap = BootstrapNull  # the public name; inference.Bootstrap is an engine


@dataclass(frozen=True, eq=False)
class FittedNull:
    """Null from tables that were drawn from the fitted model and fitted again elsewhere.

    Args:
        tables: the tables, (N, J) each; fits: of the same model to them.
    """

    tables: tuple[torch.Tensor, ...] = field(repr=False)
    fits: tuple[Fit, ...] = field(repr=False)


@shows_briefly
@dataclass(frozen=True, eq=False)
class AcdcResult:
    """Component discrepancies and what follows from them.

    Args:
        raw: K -> discrepancy of each component, (K,); null_mean, null_sd: the estimator's own on
            exact noise.
        component_discrepancy: what the loss is made of: raw less null mean, not below zero (raw
            without calibration).
        num_used: K -> rows that use each component (expected rows of a mixture component drawn),
            (K,).
        weights: K -> weight of each component in the loss, (K,).
        by_column: K -> raw divergence of each column, (K, D); None for joint and plug-in estimates.
        penalty: lambda; min_share: of what is left, that a clear step takes away.
        segments: the best K for every cutoff.
        convention: estimator, sum or mean over columns, draws and null, in words: rho depends on
            them.
        agreement: K -> share of the single posterior draws by which K would be chosen.
        num_draws: posterior draws that were averaged.
        refitted: whether exact noise was that of refits, which follow their data as the fit follows
            its own; else estimates are held as known, and a right distribution may look
            contradicted where a fit has many activities a row.
        bic: K -> BIC of the fit, where it has one.
    """

    raw: dict[int, np.ndarray]
    null_mean: dict[int, np.ndarray]
    null_sd: dict[int, np.ndarray]
    component_discrepancy: dict[int, np.ndarray]
    num_used: dict[int, np.ndarray]
    weights: dict[int, np.ndarray]
    by_column: dict[int, np.ndarray | None]
    penalty: float
    min_share: float
    segments: tuple[Segment, ...]
    convention: str
    agreement: dict[int, float]
    num_draws: int = 1
    refitted: bool = False
    bic: dict[int, float] = field(default_factory=dict)

    @property
    def chosen(self) -> int:
        """The chosen number of components."""
        return self.select().num_components

    @property
    def left(self) -> dict[int, float]:
        """Discrepancy that the components of each K leave unexplained.

        Each counts as at least the upper 5 % point of exact noise.
        """
        return discrepancy_left(self.component_discrepancy, self.null_sd, self.weights)

    @property
    def shares(self) -> dict[int, float]:
        """K -> share of what the best smaller number leaves that a component more takes away."""
        return shares_taken(self.left)

    def select(
        self,
        min_share: float | None = None,
        *,
        min_width: float | None = None,
        rho: float | None = None,
    ) -> Choice:
        """Choose the number of components by the last clear step, a cutoff or a wide segment.

        Of segments the first counts, from zero upward, of at least ``min_width``.

        Args:
            min_share: of what is left that a clear step takes away, that of the result if None.
            min_width: of a segment, in nats.
            rho: a cutoff, in nats, the misfit of a component that one is ready to live with.

        Raises:
            ValueError: for a share outside (0, 1), a negative cutoff or width, or more than one of
                them given.
        """
        given = {"min_share": min_share, "min_width": min_width, "rho": rho}
        if sum(value is not None for value in given.values()) > 1:
            raise ValueError("select: give one of min_share, min_width and rho")
        if min_share is not None and not 0 < min_share < 1:
            raise ValueError(f"select: min_share must lie between 0 and 1, got {min_share!r}")
        for name, value in (("min_width", min_width), ("rho", rho)):
            if value is not None and not value >= 0:
                raise ValueError(f"select: {name} must not be negative, got {value!r}")
        if rho is not None:
            inside = next((s for s in self.segments if s.start <= rho < s.end), self.segments[-1])
            unbounded = inside == self.segments[-1]
            return Choice(
                inside.num_components,
                inside,
                2 * inside.start <= rho and (unbounded or 2 * rho <= inside.end),
                f"the cutoff of {rho:g} nats",
            )
        if min_width is not None:
            return select_segment(self.segments, min_width)
        sizes = sorted(self.raw)
        least = self.min_share if min_share is None else min_share
        step, finished = clear_step(self.shares, least)
        chosen = sizes[0] if step is None else step
        segments = [s for s in self.segments if s.num_components == chosen]
        rule = (
            f"the last clear step, of more than {100 * least:g}% of what is left"
            if step
            else "default, for no step is clear"
        )
        nothing_left = bool(
            (self.component_discrepancy[chosen] <= MISFIT * self.null_sd[chosen]).all()
        )
        rival = None
        if nothing_left and chosen in self.bic:
            best = min(self.bic, key=lambda k: (self.bic[k], k))
            if best > chosen and self.bic[best] < self.bic[chosen] - CLEAR:
                rival = best
        return Choice(
            chosen,
            max(segments, key=lambda s: s.width, default=None),
            (nothing_left if step is None else finished) and rival is None,
            rule,
            rival,
        )

    def among(self, numbers: Iterable[int]) -> AcdcResult:
        """Return the discrepancies with only some numbers of components compared.

        ``agreement`` is left empty.

        Raises:
            ValueError: for none, or a number that was not compared.
        """
        kept = sorted({int(k) for k in numbers})
        if not kept or not set(kept) <= set(self.raw):
            raise ValueError(f"among: some of {sorted(self.raw)} were expected, got {kept}")

        parts: dict[str, Any] = {
            name: {k: getattr(self, name)[k] for k in kept} for name in BY_NUMBER.split()
        }
        d, weights = parts["component_discrepancy"], parts["weights"]
        segments = best_segments(d, weights, self.penalty)
        bic = {k: value for k, value in self.bic.items() if k in kept}
        return replace(self, **parts, segments=segments, agreement={}, bic=bic)

    def sensitivity(self) -> dict[float, int]:
        """Return the choice for other shares, from a fifth less to a fifth more.

        More than one value means that the choice hangs on the share.
        """
        shares = (round(float(self.min_share * f), 4) for f in (0.8, 0.9, 1.0, 1.1, 1.2))
        return {share: self.select(share).num_components for share in shares if share < 1}

    def loss(self, num_components: int, rho: float | np.ndarray) -> np.ndarray:
        """The loss of K at the cutoffs, with the penalty."""
        discrepancy, weights = self.component_discrepancy[num_components], self.weights
        return loss(discrepancy, weights[num_components], self.penalty, rho)

    @property
    def table(self) -> pd.DataFrame:
        """One row a number of components."""
        rows, left, shares, chosen = [], self.left, self.shares, self.chosen
        for k in sorted(self.raw):
            d = self.component_discrepancy[k]
            widths = [s.width for s in self.segments if s.num_components == k]
            misfit = (self.raw[k] - self.null_mean[k]) > MISFIT * self.null_sd[k]
            row = {"num_components": k, "largest_discrepancy": float(d.max()), "left": left[k]}
            row |= {"share_taken": shares.get(k, math.nan), "misfitting": int(misfit.sum())}
            row |= {"smallest_use": int(self.num_used[k].min()), "width": sum(widths)}
            rows.append(row | {"chosen": k == chosen})
        return pd.DataFrame(rows).set_index("num_components")

    def to_frame(self) -> pd.DataFrame:
        """One row a component of every K."""
        columns = {
            "raw": self.raw, "null_mean": self.null_mean, "null_sd": self.null_sd,
            "discrepancy": self.component_discrepancy, "num_used": self.num_used,
        }  # fmt: skip
        places = [{"num_components": k, "component": i} for k in sorted(self.raw) for i in range(k)]
        rows = [
            at | {name: v[at["num_components"]][at["component"]] for name, v in columns.items()}
            for at in places
        ]
        return pd.DataFrame(rows)

    def plot(self) -> Any:
        """Draw the discrepancy that every K leaves, and the loss against the cutoff."""
        return draw("plot_choice", self)


Null = Table | BootstrapNull | NoNull | FittedNull


def acdc(
    fits: Mapping[int, Fit],
    data: Any,
    *,
    discrepancy: Discrepancy | PlugIn | None = None,
    num_draws: int = 4,
    max_draws: int | None = None,
    calibrate: Null = Table(),
    weighted: bool = False,
    penalty: float = PENALTY,
    min_share: float = MIN_SHARE,
    seed: Seed = 0,
) -> AcdcResult:
    """Discrepancies of the components of every fit, and the number of components that follows.

    Args:
        fits: number of components -> its fit to ``data``. Nothing is refitted.
        data: the table all of them were fitted to.
        discrepancy: the estimator; :class:`~inference.acdc.discrepancy.KDE` summed over columns if
            None.
        num_draws: posterior draws. The estimator sees one draw a row at a time and its values are
            averaged: pooled draws of one row would be dependent, and raw values would depend on
            their number.
        max_draws: more draws are added, ``num_draws`` at a time and no more than this, until the
            choice no longer hangs on which of them were drawn (95 % of bootstrap samples of the
            draws choose the same); four times ``num_draws`` if None.
        calibrate: how the estimator's value on exact noise is found, which is subtracted.
        weighted: weigh components by their share of the data.
        penalty: lambda, what every component costs.
        min_share: of the discrepancy left, that a clear step takes away;
            :mod:`inference.acdc.choice` says why half.
        seed: one seed, one answer.

    Raises:
        ValueError: for no fits, a fit of another number of components or rows, a family without
            component noise, or settings out of range.

    Example:
        >>> import numpy as np
        >>> from inference import fit
        >>> from inference.acdc import acdc
        >>> from ppl_models import Mixture, MultivariateNormal
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=(200, 1)) + 6 * (rng.random((200, 1)) < 0.4)
        >>> fits = {k: fit(Mixture(k, MultivariateNormal()), rows) for k in (1, 2)}
        >>> acdc(fits, rows).select().num_components
        2
    """
    seed = as_seed("acdc", seed)
    discrepancy = KDE() if discrepancy is None else discrepancy
    tables = _check(fits, data, num_draws, calibrate, penalty, min_share)
    max_draws = 4 * num_draws if max_draws is None else max_draws
    check_size(
        "acdc", "max_draws", max_draws, num_draws, f"an integer of at least num_draws = {num_draws}"
    )
    mean: dict[int, np.ndarray] = {}
    sd, used, weights = dict(mean), dict(mean), dict(mean)
    columns: dict[int, list[np.ndarray | None]] = {k: [] for k in sorted(fits)}
    every: dict[int, np.ndarray] = {}  # K -> (M, K)
    generators = {k: torch.Generator().manual_seed(seed) for k in sorted(fits)}

    def draw(num: int) -> None:
        for k, generator in generators.items():
            noise = _noise(fits[k], tables[k], fits[k].local, generator, num)
            values, by_column = _values(noise, discrepancy)
            every[k] = np.concatenate([every[k], values]) if k in every else values
            used[k] = used.get(k, 0) + noise.used.sum((0, 1))
            columns[k].append(by_column)
            if k not in mean:
                mean[k], sd[k] = _null(
                    fits[k], noise, discrepancy, calibrate, generator, num_draws, tables[k]
                )
                weights[k] = noise.shares if weighted else np.ones(k)

    def of_draws(rows: np.ndarray) -> dict[int, np.ndarray]:
        """Discrepancies by some of the draws; plug-in values have one row whatever the draws."""
        return {
            k: np.maximum(0.0, np.nan_to_num(v[rows % len(v)].mean(0) - mean[k]))
            for k, v in every.items()
        }

    def choice_of(rows: np.ndarray) -> int:
        step, _ = clear_step(shares_taken(discrepancy_left(of_draws(rows), sd, weights)), min_share)
        return min(fits) if step is None else step

    rng, num = np.random.default_rng(seed), num_draws
    draw(num_draws)
    while num + num_draws <= max_draws and len(fits) > 1 and not isinstance(discrepancy, PlugIn):
        samples = [choice_of(rng.integers(num, size=num)) for _ in range(NUM_RESAMPLES)]
        if max(map(samples.count, samples)) >= SETTLED * NUM_RESAMPLES:
            break
        draw(num_draws)
        num += num_draws
    final = of_draws(np.arange(num))
    choices = [choice_of(np.array([m])) for m in range(num)]
    how = (
        "plug-in"
        if isinstance(discrepancy, PlugIn)
        else f"{discrepancy!r}, {'mean' if discrepancy.mean else 'sum'} over columns"
    )
    words = (
        f"{how}; averaged over draws; null: {calibrate!r};"
        f" {'weighted' if weighted else 'unweighted'}; lambda {penalty:g}"
    )
    return AcdcResult(
        raw={k: v.mean(0) for k, v in every.items()},
        null_mean=mean,
        null_sd=sd,
        component_discrepancy=final,
        num_used={k: v / num for k, v in used.items()},
        weights=weights,
        by_column={
            k: None if v[0] is None else np.mean([part for part in v if part is not None], axis=0)
            for k, v in columns.items()
        },
        penalty=penalty,
        min_share=min_share,
        segments=best_segments(final, weights, penalty),
        convention=words,
        agreement={k: choices.count(k) / num for k in sorted(set(choices))},
        num_draws=num,
        refitted=isinstance(calibrate, FittedNull)
        or (isinstance(calibrate, BootstrapNull) and calibrate.refit),
        bic={k: own.bic for k, own in sorted(fits.items()) if math.isfinite(own.bic)},
    )


def quick_discrepancies(
    estimate: Any, table: torch.Tensor, seed: int, num_draws: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Discrepancies less their mean on exact noise, and its deviation, (K,) each.

    Args:
        estimate: ``model``, ``params`` and ``local`` of a fit to ``table``; seed: of the draws.
        table: the rows; num_draws: averaged.
    """
    generator = torch.Generator().manual_seed(seed)
    noise = _noise(estimate, table, estimate.local, generator, num_draws)
    values, _ = _values(noise, KDE())
    mean, sd = _null(estimate, noise, KDE(), Table(), generator, num_draws, table)
    return np.nan_to_num(values.mean(0) - mean), sd


def _check(
    fits: Mapping[int, Fit],
    data: Any,
    num_draws: int,
    calibrate: Null,
    penalty: float,
    min_share: float,
) -> dict[int, torch.Tensor]:
    """Table of each fit, its columns in the order that the fit has them."""
    if not isinstance(fits, Mapping) or not fits:
        raise ValueError(
            "acdc: fits must be a non-empty mapping from the number of components to its fit"
        )
    check_size("acdc", "num_draws", num_draws)
    if not isinstance(calibrate, Null):
        raise ValueError(
            f"acdc: calibrate must be Table(), Bootstrap() or NoNull(), got {calibrate!r}"
        )
    if not (isinstance(penalty, int | float) and penalty >= 0):
        raise ValueError(f"acdc: penalty must not be negative, got {penalty!r}")
    if not (isinstance(min_share, int | float) and 0 < min_share < 1):
        raise ValueError(f"acdc: min_share must lie between 0 and 1, got {min_share!r}")
    tables = {}
    for k, fit in fits.items():
        if not isinstance(fit, Fit):
            raise ValueError(f"acdc: fits[{k!r}] must be a Fit, got {type(fit).__name__}")
        fit.refuse_weights("acdc")
        own = getattr(fit.model, "num_components", None)
        if own != k:
            raise ValueError(f"acdc: fits[{k!r}] has num_components = {own!r}")
        tables[k], _ = checked_as_fitted(fit, data)
        if len(tables[k]) != fit.num_rows:
            raise ValueError(
                f"acdc: fits[{k}] was fitted to {fit.num_rows} rows, the data have {len(tables[k])}"
            )
    return tables


def _noise(
    fit: Fit,
    table: torch.Tensor,
    local: dict[str, torch.Tensor] | None,
    generator: torch.Generator,
    num_draws: int,
) -> NoiseDraws:
    noise = component_noise(
        structure_of(fit.model), fit.params | (local or {}), table, generator, num_draws
    )
    if noise is None:
        raise ValueError(
            f"acdc: {type(fit.model).__name__} does not describe the noise of its components"
        )
    # of a column with one value: drawn, as for a missing entry, for it says nothing of any number
    own = noise.scores[0, :, noise.used[0].sum(0).argmax()]
    for d, column in enumerate(own.T):
        seen = column[~np.isnan(column)]
        if len(seen) >= MIN_USE and np.ptp(seen) < ONE_VALUE:
            part = noise.scores[..., d]
            drawn = numpy_generator(generator).standard_normal(part.shape)
            part[...] = np.where(np.isnan(part), math.nan, drawn)
    return noise


def _values(
    noise: NoiseDraws, discrepancy: Discrepancy | PlugIn
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return discrepancies by draw and component, (M, K), and by column, averaged, (K, D)."""
    if isinstance(discrepancy, PlugIn):
        return plug_in(cells_of(noise))[None], None
    draws, _, num, width = noise.scores.shape
    if noise.is_partial and discrepancy.joint:
        raise ValueError(
            "acdc: a joint discrepancy needs noise in every column of a row; use KDE() or KNN()"
        )
    out = np.full((draws, num, 1 if discrepancy.joint else width), math.nan)
    for m in range(draws):
        for k in range(num):
            scores = noise.scores[m, :, k][noise.used[m, :, k]]
            if noise.is_partial:
                for d in range(width):
                    column, share = scores[~np.isnan(scores[:, d]), d], 0.0
                    if len(column) >= MIN_COLUMN:
                        found = discrepancy.columns(column[:, None])[0]
                        share = found * len(column) / noise.uses[m, k]
                    out[m, k, d] = share
            elif len(scores) >= MIN_USE:
                out[m, k] = discrepancy.columns(scores)
    value = out.mean(-1) if discrepancy.mean else out.sum(-1)
    return value, None if discrepancy.joint else out.mean(0)


def _null(
    fit: Fit,
    noise: NoiseDraws,
    discrepancy: Discrepancy | PlugIn,
    calibrate: Null,
    generator: torch.Generator,
    num_draws: int,
    table: torch.Tensor,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the estimator where the model is right, (K,) each."""
    num = noise.scores.shape[2]
    if isinstance(calibrate, NoNull):
        return np.zeros(num), np.full(num, math.nan)
    if isinstance(calibrate, Table):
        if isinstance(discrepancy, PlugIn):
            return plug_in_null(cells_of(noise), discrepancy, generator)
        if noise.is_partial:
            return _null_by_column(noise, discrepancy)
        used = noise.used.sum(1).mean(0)
        moments = [null_moments(discrepancy, round(float(n)), noise.scores.shape[3]) for n in used]
        return np.array([m for m, _ in moments]), np.array([s for _, s in moments])
    values = []
    for simulated, source in _null_fits(fit, calibrate, generator, table):
        again = _noise(source, simulated, source.local, generator, num_draws)
        values.append(_values(again, discrepancy)[0].mean(0))
    return np.nanmean(values, 0), np.nanstd(values, 0, ddof=1)


def _null_fits(
    fit: Fit, calibrate: BootstrapNull | FittedNull, generator: torch.Generator, table: torch.Tensor
) -> Iterator[tuple[torch.Tensor, Fit]]:
    """Tables drawn from the fit, and what is taken for the fit to each."""
    if isinstance(calibrate, FittedNull):
        yield from zip(calibrate.tables, calibrate.fits, strict=True)
        return
    if calibrate.refit:
        fit.refuse_labels("acdc")
    for _ in range(calibrate.num_data_sets):
        drawn = int(torch.randint(2**62, (1,), generator=generator))
        simulated = drawn_like(fit, table, drawn)
        own, again = drawn % 2**31, fit
        if calibrate.refit:
            again = refit(fit.model, simulated, fit.method, init=fit, num_restarts=1, seed=own)
        yield simulated, again


def drawn_like(fit: Fit, table: torch.Tensor, seed: int) -> torch.Tensor:
    """Simulate data from a fit with the gaps and lengths of the data, (N, ...).

    Rows that a fit would refuse are drawn again, for the data had none of them.
    """
    structure = structure_of(fit.model)
    like = structure.simulate_like(fit.params, table, seed)
    if like is not None:
        return next(iter(like.values()))

    def drawn(seed: int) -> torch.Tensor:
        rows = fit.simulate(fit.num_rows, seed=seed)["items"]
        return rows.masked_fill(table.isnan(), math.nan) if rows.is_floating_point() else rows

    rows = drawn(seed)
    for again in range(1, MOST_REDRAWS):
        refused = refused_rows(structure, rows)
        if refused is None or not bool(refused.any()):
            break
        rows = torch.where(refused.unsqueeze(-1), drawn(seed + again), rows)
    return rows


def _null_by_column(noise: NoiseDraws, discrepancy: Discrepancy) -> tuple[np.ndarray, np.ndarray]:
    """Return the null of noise in different numbers of rows by column.

    A column counts by its noises to one use. The deviation is NaN where every column is passed
    over.
    """
    counts = (noise.used[..., None] & ~np.isnan(noise.scores)).sum(1).mean(0)  # (K, D)
    each = [
        [
            null_moments(discrepancy, round(float(n)), 1) if n >= MIN_COLUMN else (0.0, 0.0)
            for n in row
        ]
        for row in counts
    ]
    share = counts / np.maximum(noise.uses.mean(0), 1.0)[:, None]
    mean, sd = np.moveaxis(np.array(each), -1, 0) * share  # (K, D) each
    width = counts.shape[1] if discrepancy.mean else 1
    sd = np.where((counts >= MIN_COLUMN).any(1), np.sqrt((sd**2).sum(1)) / width, math.nan)
    return mean.sum(1) / width, sd
