"""Overparameterization: recovery of a known truth by the number of latents.

Source: Buhai et al. (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from inference.base.frames import pd
from inference.base.structure import Method
from inference.fitting.fit import fit
from inference.inspection.noisy_or import filter_latents, recovery
from inference.programs.program import Params
from inference.studies.run import run_jobs
from ppl_models.parts.validation import Seed, as_seed, check_size


@dataclass(frozen=True)
class StudyRow:
    """Independent starts of one size.

    Args:
        num_latents, num_restarts: m and R.
        recovered: mean number of true latents found; recovered_ci95: half width of its interval
            (Student's t).
        full_share: share of starts that find all of them; full_low, full_high: its 95 % interval
            (Wilson).
        kept: mean number of latents that the paper's filter keeps.
        best_recovered: found by the start with the best objective, which is what a user would get.
        objective: of that start, named ``objective_name``.
        held_out: its mean log-likelihood of the held-out rows: exact where at most 16 latents have
            edges, else a lower bound; NaN without such rows.
        seconds: of all starts together.
        lost: share of what the true latents say of the items that a start loses, each weighted by
            its prior (:mod:`inference.inspection.noisy_or`), the mean over starts; best_lost: of
            the start with the best objective.
    """

    num_latents: int
    num_restarts: int
    recovered: float
    recovered_ci95: float
    full_share: float
    full_low: float
    full_high: float
    kept: float
    best_recovered: int
    objective: float
    objective_name: str
    held_out: float
    seconds: float
    lost: float
    best_lost: float


def wilson_interval(count: int, total: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927, doi:10.1080/01621459.1927.10502953).

    Never empty, unlike the normal one at 0 and 1.
    """
    if total < 1 or not 0 <= count <= total:
        raise ValueError(
            f"wilson_interval: 0 <= count <= total with total >= 1 was expected, got {count} of"
            f" {total}"
        )
    share, scale = count / total, 1 + z**2 / total
    centre = (share + z**2 / (2 * total)) / scale
    half = z * (share * (1 - share) / total + z**2 / (4 * total**2)) ** 0.5 / scale
    return max(0.0, centre - half), min(1.0, centre + half)


def overparameterization(
    family: Callable[[int], Any],
    data: Any,
    truth: Params,
    sizes: Sequence[int],
    method: Method | None = None,
    num_restarts: int = 20,
    held_out: Tensor | None = None,
    seed: Seed = 0,
    folder: str | Path | None = None,
    workers: int = 1,
    scheduler: Any = None,
    progress: bool = False,
) -> list[StudyRow]:
    """Fit several sizes from independent starts, each matched to the truth.

    The truth is never used to choose.

    Args:
        family: number of latents -> a model that offers ``causes()``, such as ``lambda m:
            NoisyOr(64, m)``.
        data: (N, J).
        held_out: further rows (M, J), or None.
        truth: ``prior`` (m_true,) and ``failure`` (m_true, J).
        sizes: numbers of latents.
        method: an engine that runs all starts as one batch; None for ``fit`` with no method, called
            once for each start.
        num_restarts: R.
        seed: of the first start.
        folder: for finished fits, as in :func:`inference.studies.run_jobs`.
        workers: number of processes, as there.
        scheduler: of a cluster, as there.
        progress: show a bar.

    Raises:
        ValueError: for no sizes, fewer than two starts, or a fit that failed.
    """
    seed = as_seed("overparameterization", seed)
    if not sizes:
        raise ValueError(
            "overparameterization: at least one number of latents was expected, got none"
        )
    check_size("overparameterization", "num_restarts", num_restarts, least=2)
    models = [family(size) for size in sizes]
    seeds = [seed] if method is not None else list(range(seed, seed + num_restarts))
    jobs = [{"model": model, "seed": start_seed} for model in models for start_seed in seeds]
    starts = partial(_starts, data, method, num_restarts, held_out)
    done = run_jobs(starts, jobs, folder, workers, scheduler, progress).values
    return [
        _row(size, done[i * len(seeds) : (i + 1) * len(seeds)], truth)
        for i, size in enumerate(sizes)
    ]


def _starts(
    data: Any, method: Method | None, num: int, held_out: Tensor | None, model: Any, seed: int
) -> dict[str, Any]:
    """Return the estimates of one call of ``fit``, its best start and held-out score."""
    if method is None:
        best = fit(model, data, seed=seed)
        params, place = {name: value[None] for name, value in best.params.items()}, 0
    else:
        best = fit(model, data, method, init="random", num_restarts=num, seed=seed)
        params, place = best.restarts.params, best.restarts.best
    score = float("nan") if held_out is None else float(best.log_likelihood_rows(held_out).mean())
    return {
        "params": params,
        "best": place,
        "objective": best.objective,
        "objective_name": best.objective_name,
        "held_out": score,
        "seconds": best.seconds,
    }


def _row(size: int, calls: Sequence[dict[str, Any]], truth: Params) -> StudyRow:
    from scipy import stats

    best = max(calls, key=lambda record: record["objective"])
    estimates = [
        {name: value[r] for name, value in record["params"].items()}
        for record in calls
        for r in range(len(record["params"]["prior"]))
    ]
    num = len(estimates)
    scores = [recovery(estimate, truth) for estimate in estimates]
    recovered = np.array([record.num_recovered for record in scores])
    num_full = int((recovered == len(truth["prior"])).sum())
    low, high = wilson_interval(num_full, num)
    half = float(stats.t.ppf(0.975, num - 1) * recovered.std(ddof=1) / num**0.5)
    kept = float(np.mean([len(filter_latents(estimate).kept) for estimate in estimates]))
    best_found = recovery(
        {name: value[best["best"]] for name, value in best["params"].items()}, truth
    )
    return StudyRow(
        size,
        num,
        float(recovered.mean()),
        half,
        num_full / num,
        low,
        high,
        kept,
        best_found.num_recovered,
        best["objective"],
        best["objective_name"],
        best["held_out"],
        sum(record["seconds"] for record in calls),
        float(np.mean([record.lost_share for record in scores])),
        best_found.lost_share,
    )


def study_frame(rows: Sequence[StudyRow]) -> pd.DataFrame:
    """The rows as a table, one line a size."""
    return pd.DataFrame([asdict(row) for row in rows])
