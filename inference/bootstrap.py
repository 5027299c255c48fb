r"""Parametric bootstrap: how an estimate would scatter if the fitted model had made the data.

Each replicate draws a data set of the fit's size from the fit, refits the model from the estimate, and names the latents as
in the fit. What comes back is the fit with the replicates as draws of one chain, (1, B, ...), so that ``to_arviz`` and all
that works on draws works on them; their spread estimates the sampling distribution, it is no posterior.

Source: B. Efron (1979), Bootstrap methods, doi:10.1214/aos/1176344552.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import torch

from inference.alignment import align
from inference.em import EM, ConvergenceWarning
from inference.fit import Method, fit
from inference.result import Fit
from inference.uncertainty import simulated_data

__all__ = ["bootstrap"]


def bootstrap(
    estimate: Fit, data: Any = None, num_replicates: int = 100, method: Method | None = None, seed: int = 0
) -> Fit:
    """Replicated estimates of a model on data simulated from its fit.

    Args:
        estimate: a point estimate.
        data: the data of the fit; entries missing there are missing in every replicate. None for complete replicates.
        num_replicates: B, at least 2.
        method: engine of the refits; the fit's own if None. Each starts at the estimate, so other optima are not visited.
        seed: of the simulated data.

    Returns:
        The fit with ``draws`` (1, B, ...).

    Raises:
        ValueError: for fewer than 2 replicates, posterior draws instead of an estimate, or a program that cannot draw
            rows of one table.

    Warns:
        ConvergenceWarning: with the number of refits that did not converge.
    """
    if isinstance(num_replicates, bool) or not isinstance(num_replicates, int) or num_replicates < 2:
        raise ValueError(f"bootstrap: num_replicates must be an integer of 2 or more, got {num_replicates!r}")
    if estimate.draws is not None:
        raise ValueError("bootstrap: a point estimate was expected, got posterior draws")
    missing = None
    if data is not None:
        check = getattr(estimate.model, "check_data", None)
        table = check(data, for_fit=False)[0] if check is not None else torch.as_tensor(data)
        missing = torch.isnan(table) if table.is_floating_point() else None
    engine = (estimate.method if estimate.method is not None else EM()) if method is None else method
    described = hasattr(estimate.model, "layers") and hasattr(estimate.model, "root")
    replicates, unfinished = [], 0
    for replicate in range(num_replicates):
        rows = simulated_data(estimate, estimate.num_rows, seed + replicate, data)
        rows = rows if missing is None else rows.masked_fill(missing, torch.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # bounds and constant columns of replicates are part of the answer
            refit = fit(estimate.model, rows, engine, init=estimate.params, seed=seed + replicate)
        unfinished += not refit.converged
        replicates.append(align(refit, estimate).params if described else refit.params)
    if unfinished:
        warnings.warn(
            f"{unfinished} of {num_replicates} bootstrap refits did not converge: raise max_iterations of their method",
            ConvergenceWarning,
            stacklevel=2,
        )
    draws = {name: torch.stack([params[name] for params in replicates])[None] for name in estimate.params}
    return dataclasses.replace(estimate, draws=draws)
