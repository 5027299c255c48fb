"""R-hat, effective sample size and Pareto-smoothed importance weights of draws, by ArviZ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from torch import Tensor

from inference.programs.global_state import quiet


def rhat_of_draws(draws: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """R-hat by entry of draws (chain, draw, ...) by name; NaN where an entry never changes."""
    return _by_entry(load_arviz().rhat, draws)


def ess_of_draws(draws: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Bulk effective sample size entry by entry of draws (chain, draw, ...) by name."""
    return _by_entry(load_arviz().ess, draws)


def psis(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pareto-smoothed importance weights of log ratios (N, D): logs (N, D) and k-hats (N,).

    Where no weight is more than twice the mean, every draw counts alike and a k-hat above 0.5 is
    reported as 0.5: the shape of a tail that is not there says nothing.
    """
    log_ratios = np.asarray(log_ratios, dtype=float)
    alike = np.ptp(log_ratios, axis=-1) == 0  # no tail to fit, which ArviZ 1 refuses
    log_weights = np.full_like(log_ratios, -np.log(log_ratios.shape[-1]))
    k_hat = np.zeros(len(log_ratios))
    if not alike.all():
        log_weights[~alike], k_hat[~alike] = _smoothed(log_ratios[~alike])
    level = np.exp(log_ratios - log_ratios.max(-1, keepdims=True)).mean(-1) > 0.5
    return log_weights, np.where(level, np.minimum(k_hat, 0.5), k_hat)


def _smoothed(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ArviZ's smoothed log weights, which sum to one in each row, and k-hats."""
    if not has_datatree():
        log_weights, k_hat = load_arviz().psislw(log_ratios)
        return np.asarray(log_weights), np.atleast_1d(np.asarray(k_hat))
    from arviz_stats.base import array_stats  # type: ignore[import-not-found]

    def one(row: np.ndarray) -> tuple[np.ndarray, float]:
        try:
            # takes log-likelihoods, not ratios
            return cast("tuple[np.ndarray, float]", array_stats.psislw(-row))
        except ValueError:  # the largest fifth alike
            return row - np.logaddexp.reduce(row), 0.0

    pairs = [one(row) for row in log_ratios]
    return np.stack([weights for weights, _ in pairs]), np.array([float(k) for _, k in pairs])


def pareto_k(log_ratios: Tensor) -> float:
    """Pareto shape of the largest importance ratios (D,); from 0.7 on not to be trusted."""
    finite = as_array(log_ratios)
    finite = np.where(
        np.isfinite(finite), finite, finite[np.isfinite(finite)].min(initial=0.0) - 50.0
    )
    return float(psis(finite[None])[1][0])


def _by_entry(diagnostic: Any, draws: Mapping[str, Tensor]) -> dict[str, Tensor]:
    import torch
    import xarray as xr

    variables = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(value.dim() - 2))), as_array(value))
        for name, value in draws.items()
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        out = diagnostic(xr.Dataset(variables))
    return {name: torch.as_tensor(np.array(out[name].values)) for name in draws}


def as_array(value: Any) -> np.ndarray:
    """Convert a tensor, or anything array-like, to an array."""
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def load_arviz() -> Any:
    """Import ArviZ without its announcements."""
    with quiet(FutureWarning):  # 0.23 says on import that 1.x is coming
        import arviz
    return arviz


def has_datatree() -> bool:
    """Tell whether ArviZ is 1.x, whose groups are a DataTree."""
    return int(str(load_arviz().__version__).split(".", maxsplit=1)[0]) >= 1
