r"""Is an engine calibrated? Simulation-based calibration and coverage of intervals, for any model and engine.

Parameters are drawn from the prior, data from the parameters, draws from the engine given the data: the rank of the truth among
the draws is then uniform if the engine draws from the posterior (S. Talts et al. 2018, arXiv:1804.06788). Intervals at level
:math:`\gamma` should hold the truth in a share :math:`\gamma` of the data sets.

Latents have no names, so truth and draws are both put into the library's own convention (components by falling weight, causes by
falling prior): a function of the parameters alone, of which the law of the ranks holds exactly, whatever labels a chain is in. For
a model without such a convention, and beside it always, the log-likelihood of the data is ranked, which knows no labels.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from inference.base.drawing import draw
from inference.base.progress import NoProgress, RichProgress
from inference.base.structure import Method
from inference.engines.nuts import NUTS
from inference.engines.nuts_many_data_sets import MOST_SETS, draws_of_sets
from inference.fitting.fit import fit as fit_one
from inference.programs.alone import quiet
from inference.programs.program import Params, Program, simulate
from inference.structures.registry import structure_of
from ppl_models.parts.showing import shows_briefly
from ppl_models.parts.validation import check_size

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Calibration", "simulation_based_calibration"]

BINS = 20
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
        """Central interval of one bin's count if ranks are uniform; entries of one data set count as one observation."""
        counts = self.histogram(group)
        entries = self.ranks[group].shape[1]
        tail = (1 - level) / 2
        low, high = (stats.binom.ppf(p, self.num_replicates, 1 / len(counts)) for p in (tail, 1 - tail))
        return float(low * entries), float(high * entries)

    @property
    def p_values(self) -> dict[str, float]:
        """A chi-square test of uniform ranks for each entry, the least one a group times the number of entries."""
        bins = min(BINS, self.num_draws + 1, max(2, self.num_replicates // 5))
        edges = np.linspace(-0.5, self.num_draws + 0.5, bins + 1)
        shares = np.histogram(np.arange(self.num_draws + 1), edges)[0] / (self.num_draws + 1)
        out = {}
        for group, ranks in self.ranks.items():
            counts = [np.histogram(column, edges)[0] for column in ranks.T]
            least = min(float(stats.chisquare(count, self.num_replicates * shares).pvalue) for count in counts)
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
            lines[group] = {"entries": values.shape[1], "p_value": self.p_values[group], "coverage": self.coverage[group], "coverage_se": error}
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
    seed: int = 0,
    progress: bool = False,
) -> Calibration:
    """Draw truth and data ``num_replicates`` times, fit, and rank.

    Args:
        model: a program called as ``model(None, num_rows)`` to draw rows.
        num_rows: rows a data set.
        method: an engine that draws (NUTS, SVI, Laplace). ``NUTS(warm_start=None)`` runs on up to 25 data sets as one batch.
        num_replicates: S; num_draws: L, draws kept a fit, evenly spaced, so that they are nearly independent.
        level: of the central intervals.
        prior: seed -> one truth by site name; the model's own prior if None. Ranks are uniform for the prior only; with another
            law, or one truth always, coverage at that truth is what is measured.
        seed: of everything.
        progress: show a bar.

    Raises:
        ValueError: for numbers out of range, or an engine that gives no draws.
    """
    for name, value in (("num_rows", num_rows), ("num_replicates", num_replicates), ("num_draws", num_draws)):
        check_size("simulation_based_calibration", name, value)
    if not 0 < level < 1:
        raise ValueError(f"simulation_based_calibration: level must lie in (0, 1), got {level!r}")
    structure = structure_of(model)
    blank = Program(model, None, num_rows)
    observed = [site.name for site in blank.sites if site.kind == "observed"] or [blank.sites[-1].name]
    ranks: dict[str, list[np.ndarray]] = {}
    covered: dict[str, list[np.ndarray]] = {}
    failed = 0

    def replicate(s: int) -> Replicate:
        truth = {n: v[0] for n, v in blank.draw_prior(1, seed + s).items()} if prior is None else prior(seed + s)
        truth = {name: truth[name] for name in blank.names("parameter")}
        return truth, simulate(model, truth, seed + s, None, num_rows)[observed[0]]

    replicates = [replicate(s) for s in range(num_replicates)]
    bar = RichProgress("calibration", num_replicates) if progress else NoProgress()
    with bar:
        if isinstance(method, NUTS) and method.warm_start is None:
            drawn = _all_at_once(model, method, replicates, seed)
        else:
            drawn = _one_by_one(model, method, replicates, seed)
        for s, flat in enumerate(drawn):
            if flat is None:
                failed += 1
                continue
            truth, data = replicates[s]
            count = len(next(iter(flat.values())))
            picked = torch.linspace(0, count - 1, num_draws).round().long()
            named = [structure.canonical({name: value[d] for name, value in flat.items()}) for d in range(count)]
            target = structure.canonical(truth)
            for site, true in target.items():
                _rank(ranks, covered, site, true.reshape(-1), torch.stack([one[site].reshape(-1) for one in named]), level, picked)
            both = {name: torch.cat([truth[name][None].to(value), value[picked]]) for name, value in flat.items()}
            with torch.no_grad():
                total = Program(model, data).log_marginal(both)[:, None]
            _rank(ranks, covered, "log_likelihood", total[0], total[1:], level, torch.arange(num_draws))
            bar.update(s + 1, objective=float(total.mean()), active=1)
    if not ranks:
        raise ValueError("simulation_based_calibration: no data set could be fitted")
    return Calibration(
        {name: np.stack(values) for name, values in ranks.items()},
        num_draws,
        {name: np.stack(values) for name, values in covered.items()},
        level,
        failed,
    )


def _one_by_one(model: Callable[..., Any], method: Method, replicates: Sequence[Replicate], seed: int) -> Iterator[Params | None]:
    """Draws (D, ...) of each data set, None where the engine raised."""
    for s, (_, data) in enumerate(replicates):
        with quiet():  # what single fits warn of shows in the ranks
            try:
                result = fit_one(model, data, method, seed=seed + s)
            except (ValueError, RuntimeError):
                yield None
                continue
        if result.draws is None:
            raise ValueError(f"simulation_based_calibration: an engine that draws was expected, got {method!r}")
        yield {name: value.reshape(-1, *value.shape[2:]) for name, value in result.draws.items()}


def _all_at_once(model: Callable[..., Any], method: NUTS, replicates: Sequence[Replicate], seed: int) -> Iterator[Params | None]:
    """The same by one batch of chains for many data sets, from starts drawn from the prior."""
    size = max(1, min(MOST_SETS, math.isqrt(MOST_CELLS // len(replicates[0][1]))))
    for first in range(0, len(replicates), size):
        some = [data for _, data in replicates[first : first + size]]
        program = Program(model, torch.cat(some))
        drawn = program.draw_prior(method.num_chains * len(some), seed + first + len(replicates))
        starts = [
            {name: value[s * method.num_chains : (s + 1) * method.num_chains] for name, value in drawn.items()} for s in range(len(some))
        ]
        for draws in draws_of_sets(method, program, len(some), starts, seed + first):
            yield {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}


def _rank(
    ranks: dict[str, list[np.ndarray]],
    covered: dict[str, list[np.ndarray]],
    name: str,
    truth: Tensor,
    draws: Tensor,
    level: float,
    picked: Tensor,
) -> None:
    """Intervals from all draws, ranks among the ``picked``."""
    moving = (draws != draws[:1]).any(0) | (draws[0] != truth)  # entries off a given graph are the same always
    truth, draws = truth[moving].detach(), draws[:, moving].detach()
    tail = (1 - level) / 2
    limits = torch.quantile(draws, torch.tensor([tail, 1 - tail], dtype=draws.dtype), dim=0)
    ranks.setdefault(name, []).append((draws[picked] < truth).sum(0).numpy())
    covered.setdefault(name, []).append(((truth >= limits[0]) & (truth <= limits[1])).numpy())
