"""One row of the table of laws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference import Fit

Params = dict[str, Tensor]
F64 = torch.float64


@dataclass(frozen=True, eq=False)
class Row:
    """One model of the table.

    Args:
        name: of the row.
        model: a program ``model(data, num_rows)`` that returns the data; ``model(None, N)`` draws N
            rows.
        truth: parameters, by site; the laws are checked at values near them.
        event_shapes: site -> shape of one value, without the plate of rows.
        log_likelihood: (parameters, data) as arrays -> (N,), written without Pyro and without this
            library.
        missing: share of entries that are NaN.
        recovery_rows: rows from which a fit must find the truth; None where that is not asked.
        relabel: (fit, truth) -> the fit's parameters in the truth's labels; None for the alignment
            of layers.
        local: continuous latents of the rows. Laws of the density hold given their values, which
            stand among the parameters.
        method: engine of a short fit; one iteration of EM if None.
        data: (number of rows, seed) -> rows, for a program that cannot draw any: a law of rows that
            are given, such as one relative to their marginals.
        statistics: parameters that are computed from the rows and not estimated, so that they are
            not counted.
        tolerance: of the log-likelihood of a fit, in nats, larger where a latent of the rows is
            integrated approximately.
        integrated: (parameters, data) as arrays -> (N,), with those latents integrated.
    """

    name: str
    model: Callable[..., Any]
    truth: Params
    event_shapes: dict[str, tuple[int, ...]]
    log_likelihood: Callable[[Mapping[str, np.ndarray], np.ndarray], np.ndarray]
    missing: float = 0.0
    recovery_rows: int | None = None
    relabel: Callable[[Fit, Params], Params] | None = None
    local: tuple[str, ...] = ()
    method: Any = None
    data: Callable[[int, int], Tensor] | None = None
    statistics: tuple[str, ...] = ()
    tolerance: float = 1e-8
    integrated: Callable[[Mapping[str, np.ndarray], np.ndarray], np.ndarray] | None = None
