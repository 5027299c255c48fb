r"""Simulation-based calibration and interval coverage, for any model and engine.

Parameters are drawn from the prior, data from the parameters, draws from the engine given the data:
the rank of the truth among the draws is then uniform if the engine draws from the posterior (S.
Talts et al. 2018, arXiv:1804.06788). Intervals at level :math:`\gamma` should hold the truth in a
share :math:`\gamma` of the data sets.

Latents have no names, so truth and draws are both put into the library's own convention (components
by falling weight, causes by falling prior): a function of the parameters alone, of which the
distribution of the ranks holds exactly, whatever labels a chain is in. For a model without such a
convention, and beside it always, the log-likelihood of the data is ranked, which knows no labels.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from inference.base.drawing import draw
from inference.base.structure import Method
from inference.engines.nuts import MOST_SETS, NUTS, draws_of_sets
from inference.fitting.fit import fit as fit_one
from inference.programs.global_state import OTHER_STREAM
from inference.programs.program import Params, Program, simulate
from inference.structures.registry import structure_of
from inference.studies.run import run_jobs
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.surface import promised as _promised
from ppl_models.parts.validation import Seed, as_seed, check_size

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Calibration", "simulation_based_calibration"]
__dir__ = _promised(__name__)

BINS = 20
ENGINE_STREAM = OTHER_STREAM // 2
MOST_CELLS = 50_000  # rows of all data sets times data sets, in one batch
Replicate = tuple[Params, Tensor]  # truth and data


@shows_briefly
@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Ranks of the truth among draws, and whether intervals held it.

    Args:
        ranks: group (site name, or "log_likelihood") -> (S, entries) of 0 ... L.
        num_draws: L, draws a data set after thinning.
        covered: group -> (S, entries), whether the central interval held the truth.
        level: of the intervals.
        num_failed: data sets without a fit (the engine raised), left out.
    """

    ranks: dict[str, np.ndarray]
    num_draws: int
    covered: dict[str, np.ndarray]
    level: float
    num_failed: int

    @property
    def num_replicates(self) -> int:
        """S."""
        return len(next(iter(self.ranks.values())))

    def histogram(self, group: str) -> np.ndarray:
        """Counts of the ranks of a group's entries in at most 20 bins of equal width."""
        bins = min(BINS, self.num_draws + 1)
        edges = np.linspace(-0.5, self.num_draws + 0.5, bins + 1)
        return np.histogram(self.ranks[group].ravel(), edges)[0]

    def band(self, group: str, level: float = 0.95) -> tuple[float, float]:
        """Central interval of one bin's count if ranks are uniform.

        Entries of one data set count as one observation.
        """
        counts = self.histogram(group)
        entries = self.ranks[group].shape[1]
        tail = (1 - level) / 2
        low, high = (
            stats.binom.ppf(p, self.num_replicates, 1 / len(counts)) for p in (tail, 1 - tail)
        )
        return float(low * entries), float(high * entries)

    @property
    def p_values(self) -> dict[str, float]:
        """P-values of chi-square tests of uniform ranks, by group.

        The least one of a group's entries, times their number.
        """
        bins = min(BINS, self.num_draws + 1, max(2, self.num_replicates // 5))
        edges = np.linspace(-0.5, self.num_draws + 0.5, bins + 1)
        shares = np.histogram(np.arange(self.num_draws + 1), edges)[0] / (self.num_draws + 1)
        out = {}
        for group, ranks in self.ranks.items():
            counts = [np.histogram(column, edges)[0] for column in ranks.T]
            least = min(
                float(stats.chisquare(count, self.num_replicates * shares).pvalue)
                for count in counts
            )
            out[group] = min(1.0, least * len(counts))
        return out

    @property
    def coverage(self) -> dict[str, float]:
        """Share of intervals that held the truth, by group."""
        return {group: float(values.mean()) for group, values in self.covered.items()}

    @property
    def table(self) -> pd.DataFrame:
        """One line a group: entries, p-value, coverage and its standard error over data sets."""
        import pandas as pd

        lines = {}
        for group, values in self.covered.items():
            by_set = values.mean(1)
            error = float(by_set.std(ddof=1) / np.sqrt(len(by_set))) if len(by_set) > 1 else np.nan
            lines[group] = {
                "entries": values.shape[1],
                "p_value": self.p_values[group],
                "coverage": self.coverage[group],
                "coverage_se": error,
            }
        return pd.DataFrame(lines).T

    def plot(self) -> Any:
        """Rank histograms; a matplotlib figure."""
        return draw("plot_ranks", self)


def simulation_based_calibration(
    model: Callable[..., Any],
    num_rows: int,
    method: Method,
    num_replicates: int = 100,
    num_draws: int = 99,
    level: float = 0.95,
    prior: Callable[[int], Params] | None = None,
    seed: Seed = 0,
    progress: bool = False,
    folder: str | Path | None = None,
    workers: int = 1,
    scheduler: Any = None,
) -> Calibration:
    """Draw truth and data ``num_replicates`` times, fit, and rank.

    Args:
        model: a program called as ``model(None, num_rows)`` to draw rows.
        num_rows: rows a data set.
        method: an engine that draws (NUTS, SVI, Laplace). ``NUTS(warm_start=None)`` runs on up to
            25 data sets as one batch.
        num_replicates: S.
        num_draws: L, draws kept a fit, evenly spaced, so that they are nearly independent.
        level: of the central intervals.
        prior: seed -> one truth by site name; the model's own prior if None. Ranks are uniform for
            the prior only; with another distribution, or one truth always, coverage at that truth
            is what is measured.
        seed: of everything.
        progress: show a bar.
        folder: for finished data sets, as in :func:`inference.studies.run_jobs`.
        workers: number of processes, as there.
        scheduler: of a cluster, as there.

    Raises:
        ValueError: for numbers out of range, or an engine that keeps fewer draws.

    Warns:
        UserWarning: where data sets were left out, because the engine failed on them.
    """
    seed = as_seed("simulation_based_calibration", seed)
    for name, value in (
        ("num_rows", num_rows),
        ("num_replicates", num_replicates),
        ("num_draws", num_draws),
    ):
        check_size("simulation_based_calibration", name, value)
    if not 0 < level < 1:
        raise ValueError(f"simulation_based_calibration: level must lie in (0, 1), got {level!r}")
    blank = Program(model, None, num_rows)
    observed = [site.name for site in blank.sites if site.kind == "observed"] or [
        blank.sites[-1].name
    ]
    design = _Design(model, num_rows, observed[0], num_draws, level, prior)
    seeds = list(range(seed, seed + num_replicates))
    if isinstance(method, NUTS) and method.warm_start is None:
        size = max(1, min(MOST_SETS, math.isqrt(MOST_CELLS // num_rows)))
        jobs = [
            {"seeds": seeds[first : first + size], "start_seed": seed + first}
            for first in range(0, num_replicates, size)
        ]
        function: Callable[..., Any] = partial(_at_once, design, method, num_replicates)
    else:
        jobs, function = [{"seed": own} for own in seeds], partial(_one, design, method)
    first = run_jobs(function, jobs[:1], folder, workers, scheduler).jobs
    if first[0].value == ():  # refused before the others are fitted
        raise ValueError(
            "simulation_based_calibration: an engine that draws was expected, and at least"
            f" num_draws = {num_draws} times, got {method!r}"
        )
    results = first + run_jobs(function, jobs[1:], folder, workers, scheduler, progress).jobs
    sets = [one for job in results if job.error is None for one in job.value]
    if not sets:
        raise ValueError(
            f"simulation_based_calibration: no data set could be fitted: {results[0].error}"
        )
    failed = [job.error for job in results if job.error is not None]
    if failed:
        warnings.warn(
            f"simulation_based_calibration: {num_replicates - len(sets)} of {num_replicates} data"
            f" sets have no fit and are left out (the first: {failed[0]}); ranks of the others are"
            " those of a selection, uniform only where failures do not depend on the data",
            UserWarning,
            stacklevel=2,
        )
    ranks, covered = (
        {name: np.stack([one[which][name] for one in sets]) for name in sets[0][which]}
        for which in ("ranks", "covered")
    )
    return Calibration(ranks, num_draws, covered, level, num_replicates - len(sets))


@dataclasses.dataclass(frozen=True)
class _Design:
    """Settings for every data set; see :func:`simulation_based_calibration`."""

    model: Callable[..., Any]
    num_rows: int
    observed: str
    num_draws: int
    level: float
    prior: Callable[[int], Params] | None

    def replicate(self, seed: int) -> Replicate:
        """Truth and data."""
        blank = Program(self.model, None, self.num_rows)
        if self.prior is None:
            blank.refuse_flat("simulation_based_calibration")
        truth = (
            {n: v[0] for n, v in blank.draw_prior(1, seed).items()}
            if self.prior is None
            else self.prior(seed)
        )
        names = [name for name in blank.names("parameter") if name != self.observed]
        truth = {name: truth[name] for name in names}
        drawn = simulate(self.model, truth, seed ^ OTHER_STREAM, None, self.num_rows)
        return truth, drawn[self.observed]

    def placed(self, truth: Params, data: Tensor, flat: Params) -> dict[str, dict[str, np.ndarray]]:
        """Return ranks of a truth among draws (D, ...), and intervals' coverage, by group."""
        structure = structure_of(self.model)
        count = len(next(iter(flat.values())))
        picked = torch.linspace(0, count - 1, self.num_draws).round().long()
        named = [
            structure.canonical({name: value[d] for name, value in flat.items()})
            for d in range(count)
        ]
        target = structure.canonical(truth)
        placed = {
            site: _rank(
                true.reshape(-1),
                torch.stack([one[site].reshape(-1) for one in named]),
                self.level,
                picked,
            )
            for site, true in target.items()
        }
        both = {
            name: torch.cat([truth[name][None].to(value), value[picked]])
            for name, value in flat.items()
        }
        with torch.no_grad():
            total = Program(self.model, data).log_marginal(both)[:, None]
        placed["log_likelihood"] = _rank(
            total[0], total[1:], self.level, torch.arange(self.num_draws)
        )
        return {
            "ranks": {name: ranks for name, (ranks, _) in placed.items()},
            "covered": {name: held for name, (_, held) in placed.items()},
        }


def _one(design: _Design, method: Method, seed: int) -> list[dict[str, Any]]:
    """One data set; nothing where the engine gives too few draws."""
    truth, data = design.replicate(seed)
    result = fit_one(design.model, data, method, seed=seed ^ ENGINE_STREAM)
    draws = result.draws or {}
    flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
    if not flat or len(next(iter(flat.values()))) < design.num_draws:
        return []
    return [design.placed(truth, data, flat)]


def _at_once(
    design: _Design, method: NUTS, num_replicates: int, seeds: list[int], start_seed: int
) -> list[dict[str, Any]]:
    """Several data sets by one batch of chains, from starts drawn from the prior."""
    if method.num_chains * method.num_samples < design.num_draws:
        return []
    replicates = [design.replicate(seed) for seed in seeds]
    program = Program(design.model, torch.cat([data for _, data in replicates]))
    drawn = program.draw_prior(method.num_chains * len(seeds), start_seed + num_replicates)
    starts = [
        {
            name: value[s * method.num_chains : (s + 1) * method.num_chains]
            for name, value in drawn.items()
        }
        for s in range(len(seeds))
    ]
    draws = draws_of_sets(method, program, len(seeds), starts, start_seed ^ ENGINE_STREAM)
    return [
        design.placed(
            truth, data, {name: value.reshape(-1, *value.shape[2:]) for name, value in own.items()}
        )
        for (truth, data), own in zip(replicates, draws, strict=True)
    ]


def _rank(
    truth: Tensor, draws: Tensor, level: float, picked: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Ranks among the ``picked`` draws, and whether the interval of all draws held the truth."""
    moving = (draws != draws[:1]).any(0) | (
        draws[0] != truth
    )  # entries off a given graph are the same always
    truth, draws = truth[moving].detach(), draws[:, moving].detach()
    tail = (1 - level) / 2
    limits = torch.quantile(draws, torch.tensor([tail, 1 - tail], dtype=draws.dtype), dim=0)
    return (draws[picked] < truth).sum(0).numpy(), (
        (truth >= limits[0]) & (truth <= limits[1])
    ).numpy()
