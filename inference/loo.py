r"""Leave-one-out prediction of unseen rows, latents summed out.

For row i, :math:`\mathrm{elpd}_i = \log p(x_i \mid x_{-i})`. From draws :math:`\theta_s` it is
estimated by importance weights :math:`w_{is} \propto 1 / p(x_i \mid \theta_s)`, smoothed by a
generalised Pareto distribution whose shape k-hat says whether they can be trusted; draws of an
approximation (Laplace, SVI) carry their own ratio :math:`p(x, \theta_s) / q(\theta_s)` into the
weights. Rows with a bad k-hat have their draws moved, by the mean, the spread and the covariance
that their weights ask for.

A point estimate has no draws; folds (:func:`cross_validate`) work for every engine.

Source: A. Vehtari, A. Gelman and J. Gabry (2017), doi:10.1007/s11222-016-9696-4; M. Magnusson et
al. (2019), ICML, for approximations; T. Paananen et al. (2021), doi:10.1007/s11222-020-09982-2, for
moved draws.
"""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from inference.base.diagnostics import psis
from inference.bootstrap import without_replicates
from inference.engines.importance import GOOD_K
from inference.fitting.columns import as_fitted
from inference.fitting.draws import log_likelihood_of_draws
from inference.fitting.fit import fit as fit_again
from inference.fitting.fixed import held_by
from inference.fitting.result import Fit
from inference.fitting.rows_apart import ALIKE, check_apart, rows_of
from inference.programs.data import checked
from inference.programs.global_state import quiet
from inference.programs.potential import Potential
from inference.programs.program import Params, Program
from inference.studies.run import run_jobs
from ppl_models.data.tables import checks_data, first_tensor, map_tensors
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.surface import promised as _promised
from ppl_models.parts.validation import Seed, as_seed, is_integer

__all__ = ["Prediction", "cross_validate", "loo"]
__dir__ = _promised(__name__)

LEAST_DRAWS = 100
ROUNDS = 10  # of moves a row


@shows_briefly
@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """Expected log predictive density, row by row.

    Args:
        rows: (N,), log p(row | the other rows).
        in_sample: (N,), log of the mean density of the row under the fit itself.
        k_hat: (N,), shape of the weights' tail, NaN where no weights were used.
        how: "PSIS-LOO" or "10-fold", say.
        num_moved, num_refitted: rows whose draws were moved, and rows that were left out for real.
    """

    rows: np.ndarray
    in_sample: np.ndarray
    k_hat: np.ndarray
    how: str
    num_moved: int = 0
    num_refitted: int = 0

    @property
    def elpd(self) -> float:
        """Sum over rows."""
        return float(self.rows.sum())

    @property
    def standard_error(self) -> float:
        """Standard error of the sum, as of N independent terms."""
        return float(np.sqrt(len(self.rows) * self.rows.var(ddof=1)))

    @property
    def effective_parameters(self) -> float:
        """In-sample minus left-out log density."""
        return float(self.in_sample.sum() - self.elpd)

    @property
    def num_bad(self) -> int:
        """Rows whose k-hat is above 0.7."""
        return int((self.k_hat > GOOD_K).sum())


def loo(result: Fit, data: Any = None, move: bool = True, refit: bool = False) -> Prediction:
    """Leave-one-out prediction from the draws of a fit.

    Args:
        result: a fit with draws.
        data: the data it was fitted to.
        move: move the draws of rows with k-hat above 0.7 (one evaluation of the posterior at every
            draw a move).
        refit: fit again without each row whose k-hat is still above 0.7.

    Raises:
        ValueError: for a point estimate, fewer than 100 draws, local sites, or a fit with labels.

    Warns:
        UserWarning: with the number of rows whose k-hat is still above 0.7.
    """
    check_asked("loo", result, data)
    data = _by_row(result, as_fitted(result, data))
    drawn = without_replicates(result).draws
    if drawn is None:
        raise ValueError(
            "loo: posterior draws were expected, got a point estimate"
            f"{'' if result.draws is None else ' and its bootstrap replicates'}; use"
            " cross_validate, or fit with NUTS or Laplace"
        )
    if result.labels:
        raise ValueError(
            "loo: a fit without labels was expected, whose draws know of a row no more than its"
            " entries: cross_validate refits with the labels of the other rows"
        )
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in drawn.items()}
    num_draws = len(next(iter(draws.values())))
    if num_draws < LEAST_DRAWS:
        raise ValueError(f"loo: at least {LEAST_DRAWS} draws were expected, got {num_draws}")
    if result.local:
        raise ValueError(
            f"loo: the likelihood is conditional on {sorted(result.local)}, which a row left out"
            " does not have"
        )
    values = log_likelihood_of_draws(result, draws, data).double().cpu().numpy().T  # (N, D)
    if values.ndim != 2:
        raise ValueError(
            "loo: a program of independent rows in one plate was expected, and the log-likelihood"
            " of this one is no sum over such rows"
        )
    ratio = _own_ratio(result, num_draws)
    log_weights, k_hat = psis(ratio - values)
    rows = logsumexp(log_weights + values, axis=1)
    own = np.zeros(num_draws) if not np.any(ratio) else psis(ratio[None])[0][0] + np.log(num_draws)
    in_sample = logsumexp(values + own, axis=1) - np.log(num_draws)
    moved = refitted = 0
    bad = np.flatnonzero(k_hat > GOOD_K)
    if move and len(bad) and not np.any(ratio):
        moving = _Moves(result, data, draws)
        for row in bad:
            rows[row], k_hat[row] = moving.predict(int(row), values[row])
            moved += 1
        bad = np.flatnonzero(k_hat > GOOD_K)
    if refit and len(bad):
        check_apart("loo", result, data)
        for row in bad:
            rows[row], k_hat[row] = _left_out(result, data, [int(row)])[0], np.nan
            refitted += 1
        bad = bad[:0]
    if len(bad):
        warnings.warn(
            f"loo: k-hat is above {GOOD_K} for {len(bad)} of {len(rows)} rows (first:"
            f" {bad[:5].tolist()}), whose prediction cannot be trusted; leave them out for real"
            " with refit=True, or use cross_validate",
            UserWarning,
            stacklevel=2,
        )
    return Prediction(rows, in_sample, k_hat, "PSIS-LOO", moved, refitted)


def check_asked(owner: str, result: Any, data: Any) -> None:
    """A question about rows needs a fit, not its ArviZ object, of rows that each count once.

    Raises:
        ValueError: saying what to pass.
    """
    if not isinstance(result, Fit):
        raise ValueError(
            f"{owner}: a fit was expected, got {type(result).__name__}; pass what fit() or"
            " Fit.load() returned, not its ArviZ object"
        )
    result.refuse_weights(owner)
    if data is None:
        raise ValueError(
            f"{owner}: the data of the fit were expected, got None; a fit holds no rows:"
            f" {owner}(fit, data), or {owner}(fit, ()) of a program that takes none"
        )
    if data == {} if isinstance(data, dict) else not hasattr(data, "__len__"):
        raise ValueError(
            f"{owner}: the rows that the fit was made of were expected, got {type(data).__name__}"
        )


def cross_validate(
    result: Fit,
    data: Any = None,
    num_folds: int | None = None,
    seed: Seed = 0,
    folder: str | Path | None = None,
    workers: int = 1,
    scheduler: Any = None,
    progress: bool = False,
) -> Prediction:
    """Predict each row by the model refitted without its fold, from the fit; for every engine.

    Refits hold what the fit held (known and tied parameters) and are told the labels of their rows;
    what is predicted are the entries of the rows, log p(x), without their labels.

    Args:
        result: a fit, with or without draws.
        data: the data it was fitted to.
        num_folds: folds of nearly equal size, chosen at random; the number of rows for
            leave-one-out; None for ten, or one a row where there are fewer.
        seed: of the folds.
        folder: for finished refits, as in :func:`inference.studies.run_jobs`.
        workers: number of processes, as there.
        scheduler: of a cluster, as there.
        progress: show a bar.

    Raises:
        ValueError: for fewer than 2 folds or more than rows, local sites, or a refit that failed.
    """
    seed = as_seed("cross_validate", seed)
    check_asked("cross_validate", result, data)
    result = without_replicates(result)
    data = as_fitted(result, data)
    checked(result.model, data)  # refused before any work
    data = _by_row(result, data)
    table = first_tensor(data)
    if table is None:
        raise ValueError(
            "cross_validate: rows that can be left out were expected, and"
            f" {result.model_name} holds its data itself: make them an argument of the program, or"
            " compare log-likelihoods and BIC alone, compare(fits, (), num_folds=0)"
        )
    count = len(table)
    if not checks_data(result.model) and count != result.num_rows:
        raise ValueError(
            f"cross_validate: the {result.num_rows} rows of the program along the first dim of its"
            f" data were expected, whose first argument has {count} entries there"
        )
    if count < 2:
        raise ValueError(
            "cross_validate: two rows or more, of which some can be left out, were expected, got"
            f" {count}{' (a sequence is one row)' if result.structure.row_columns else ''}"
        )
    num_folds = min(10, count) if num_folds is None else num_folds
    if not is_integer(num_folds, least=2) or num_folds > count:
        raise ValueError(
            f"cross_validate: num_folds must be an integer from 2 to {count}, got {num_folds!r}"
        )
    if result.local:
        raise ValueError(
            f"cross_validate: the likelihood is conditional on {sorted(result.local)}, which a row"
            " left out does not have"
        )
    draws = (
        result.draws
        if result.draws is not None
        else {n: v[None, None] for n, v in result.params.items()}
    )
    values = log_likelihood_of_draws(
        result, {n: v.reshape(-1, *v.shape[2:]) for n, v in draws.items()}, data
    )
    if not checks_data(result.model) and values.shape[1:] != (count,):
        raise ValueError(
            "cross_validate: a program of independent rows in one plate was expected, and the"
            " log-likelihood of this one is no sum over such rows"
        )
    check_apart("cross_validate", result, data)
    order = np.random.default_rng(seed).permutation(count)
    rows = np.zeros(count)
    folds = np.array_split(order, num_folds)
    refits = run_jobs(
        partial(_left_out, result, data),
        [{"rows": fold.tolist()} for fold in folds],
        folder,
        workers,
        scheduler,
        progress,
    )
    for fold, predicted in zip(folds, refits.values, strict=True):
        rows[fold] = predicted
    in_sample = (values.logsumexp(0) - np.log(len(values))).double().cpu().numpy()
    return Prediction(rows, in_sample, np.full(count, np.nan), f"{num_folds}-fold")


def _by_row(result: Fit, data: Any) -> Any:
    """Data with one entry a row of the fit: sequences packed, whose tables have a line a step."""
    return checked(result.model, data)[0] if result.structure.row_columns else data


def _left_out(result: Fit, data: Any, rows: list[int]) -> np.ndarray:
    """Log predictive density of rows under a fit to the others, (len(rows),)."""
    count = len(first_tensor(data))
    others = np.setdiff1d(np.arange(count), rows)
    kept = rows_of(data, others)
    labels = {
        site: table[torch.as_tensor(others)].exp() for site, table in (result.labels or {}).items()
    }
    if result.structure.row_columns:  # the longest sequence may be among those left out
        width = checked(result.model, kept)[0].shape[1]
        labels = {site: table[:, :width] for site, table in labels.items()}
    with quiet():  # each refit repeats what the fit said
        again = fit_again(
            result.model,
            kept,
            result.method,
            init=dict(result.params),
            seed=result.seed,
            labels=labels or None,
            fixed=result.fixed,
            tied=result.tied,
        )
        if again.draws is None:
            return again.log_likelihood_rows(rows_of(data, np.asarray(rows))).double().cpu().numpy()
        draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in again.draws.items()}
        values = log_likelihood_of_draws(again, draws, rows_of(data, np.asarray(rows)))
    return (values.logsumexp(0) - np.log(len(values))).double().cpu().numpy()


def _own_ratio(result: Fit, num_draws: int) -> np.ndarray:
    """Log ratio of posterior and approximation at each draw; zeros for posterior draws."""
    stats = result.sample_stats or {}
    if "log_importance" not in stats:
        return np.zeros(num_draws)
    ratio = stats["log_importance"].reshape(-1).cpu().numpy()
    finite = np.isfinite(ratio)
    return np.where(finite, ratio, ratio[finite].min(initial=0.0) - 50.0)


class _Moves:
    """Draws moved towards the posterior without one row."""

    def __init__(self, result: Fit, data: Any, draws: Params) -> None:
        self.data = checked(result.model, data)[0]
        self.program = Program(result.model, self.data)
        self.program.fixed = held_by(result, self.program)
        self.potential = Potential(self.program, self.program.draw_prior(1, 0))
        self.draws = self.potential.vector(draws)  # (D, P)
        self.density = self.potential(self.draws)[0].double().cpu().numpy()

    def predict(self, row: int, values: np.ndarray) -> tuple[float, float]:
        """Log predictive density of a row and the k-hat it is trusted by."""
        count = self.program.num_rows

        def of_row(part: Tensor) -> Tensor:
            """One row of a part that has one entry a row; other parts stay whole."""
            return part[row : row + 1] if part.dim() and len(part) == count else part

        alone = self.program.with_data(map_tensors(of_row, self.data))
        points, density, own = self.draws, self.density, values
        log_weights, k_hat = psis(-own[None])
        first, best = float(logsumexp(log_weights + own[None])), float(k_hat[0])
        with torch.no_grad():
            seen = alone.log_marginal_rows(self.potential.params(points[:1]))
        if abs(float(seen.reshape(-1)[0]) - own[0]) > ALIKE * max(1.0, abs(own[0])):
            return first, best  # a part with as many entries as rows that is none of the rows
        shift, scale = torch.zeros_like(points[0]), torch.eye(points.shape[1], dtype=points.dtype)
        for _ in range(ROUNDS):
            if best <= GOOD_K:
                break
            weights = torch.from_numpy(np.exp(log_weights[0] - logsumexp(log_weights[0]))).to(
                points
            )
            for step in _steps(points, weights):
                matrix, offset = step
                new = points @ matrix.mT + offset
                new_density, new_own = self._evaluate(alone, new)
                ratio = new_density - new_own - self.density  # the map's volume is constant
                new_weights, new_k = psis(np.nan_to_num(ratio, nan=-1e3, neginf=-1e3)[None])
                if float(new_k[0]) < best - 1e-3:
                    points, density, own, log_weights, best = (
                        new,
                        new_density,
                        new_own,
                        new_weights,
                        float(new_k[0]),
                    )
                    shift, scale = shift @ matrix.mT + offset, matrix @ scale
                    break
            else:
                break
        if points is self.draws:
            return first, best
        # half of the draws moved, half not, weighed by the mixture they come from
        half = len(points) // 2
        mixed = torch.cat([points[:half], self.draws[half:]])
        density = np.concatenate([density[:half], self.density[half:]])
        own = np.concatenate([own[:half], values[half:]])
        back = torch.linalg.solve(scale, (mixed - shift).mT).mT
        behind = self.potential(back)[0].double().cpu().numpy() - float(
            torch.linalg.slogdet(scale)[1]
        )
        ratio = density - own - np.logaddexp(density, behind)
        log_weights, k_hat = psis(np.nan_to_num(ratio, nan=-1e3, neginf=-1e3)[None])
        return float(logsumexp(log_weights[0] + own) - logsumexp(log_weights[0])), float(k_hat[0])

    def _evaluate(self, alone: Program, points: Tensor) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            own = alone.log_marginal_rows(self.potential.params(points))
        return (
            self.potential(points)[0].double().cpu().numpy(),
            own.reshape(len(points)).double().cpu().numpy(),
        )


def _steps(points: Tensor, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return affine maps z -> A z + b to the weighted mean, spread and covariance."""
    size = points.shape[1]
    eye = torch.eye(size, dtype=points.dtype)
    mean, target = points.mean(0), weights @ points
    centred = points - target
    scales = ((weights[:, None] * centred.square()).sum(0) / points.var(0)).sqrt()
    spread = torch.diag(scales)
    maps = [(eye, target - mean), (spread, target - spread @ mean)]
    covariance = (weights[:, None] * centred).mT @ centred
    now = torch.cov(points.mT).reshape(size, size)
    factors = [torch.linalg.cholesky_ex(matrix) for matrix in (covariance, now)]
    if all(int(info) == 0 for _, info in factors):
        full = torch.linalg.solve_triangular(factors[1][0].mT, factors[0][0].mT, upper=True).mT
        maps.append((full, target - full @ mean))
    return maps
