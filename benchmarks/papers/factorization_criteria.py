"""Criteria for the number of components of a factorization that a paper compares with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from inference import fit
from inference.fitting.columns import checked_as_fitted
from inference.fitting.result import Fit
from inference.programs.data import checked


def held_out_log_likelihood(
    factory: Callable[[int], Any],
    data: Any,
    num_components: int,
    share: float = 0.1,
    num_restarts: int | None = None,
    seed: int = 0,
) -> float:
    """Mean log-likelihood of an entry left out of the fit (Wold 1978 style: cells, not rows);
    larger is better.

    For Poisson factorizations, whose fits leave missing entries out.

    Raises:
        ValueError: for a share outside (0, 1), or a model that holds no activities.
    """
    if not 0 < share < 1:
        raise ValueError(f"held_out_log_likelihood: share must lie between 0 and 1, got {share!r}")
    model = factory(num_components)
    table, _ = checked(model, data, for_fit=True)
    generator = torch.Generator().manual_seed(seed)
    out = (torch.rand(table.shape, generator=generator) < share) & ~table.isnan()
    result = fit(model, table.masked_fill(out, math.nan), num_restarts=num_restarts, seed=seed)
    if result.local is None or "scales" in result.params:
        raise ValueError(
            "held_out_log_likelihood: a Poisson factorization was expected, got"
            f" {type(model).__name__}"
        )
    rates = (result.local["activities"] @ result.params["signatures"])[out].clamp(min=1e-12)
    return float(torch.distributions.Poisson(rates).log_prob(table[out]).mean())


def cophenetic_correlation(result: Fit, data: Any) -> float:
    """Brunet et al. (2004, doi:10.1073/pnas.0308531101): how alike the restarts group the rows; 1
    is most stable.

    Every restart assigns a row to its largest activity; the consensus matrix is clustered by
    average linkage. Restarts are all used: give ``Factorize(race=False)`` where those that fell
    behind should be run to the end.

    Raises:
        ValueError: for a fit with one restart, or a model that holds no activities.
    """
    signatures = result.restarts.params.get("signatures")
    if signatures is None or len(signatures) < 2:
        raise ValueError(
            "cophenetic_correlation: a factorization fitted with at least two restarts was expected"
        )
    from scipy.cluster.hierarchy import average, cophenet
    from scipy.spatial.distance import squareform

    table, _ = checked_as_fitted(result, data)
    together = np.zeros((len(table), len(table)))
    for r in range(len(signatures)):
        own = {name: value[r] for name, value in result.restarts.params.items()}
        group = result.structure.solve_local(own, table)["activities"].argmax(-1).numpy()
        together += group[:, None] == group
    distance = squareform(1 - together / len(signatures), checks=False)
    if distance.max() == distance.min():
        return 1.0
    return float(cophenet(average(distance), distance)[0])
