r"""Sparse layers: a threshold and a refit on what is left, and the choice of a penalty along a path.

A penalised estimate is biased where the penalty bites. *Polishing* reads the graph off it,
:math:`\hat G_d = 1[|\hat W_d| \ge \tau]`, and maximises the likelihood on that graph without a penalty; information
criteria are computed from polished fits, whose number of parameters is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.fit import Method, fit
from inference.result import Fit
from inference.structures import structure_of

__all__ = ["Path", "ebic", "graphs_of", "penalty_path", "polish"]


def ebic(result: Fit, gamma: float = 1.0, num_possible: int | None = None) -> float:
    r"""Extended BIC (Chen and Chen 2008, doi:10.1093/biomet/asn034); smaller is better.

    .. math:: -2 \ell + \nu \log N + 2 \gamma \log \binom{P}{\nu},

    with :math:`\nu` parameters that are not zero out of P. Where the log-likelihood is out of reach its lower bound
    ``elbo`` stands in its place.

    Args:
        result: the fit.
        gamma: 0 is BIC.
        num_possible: P; all that the model leaves free if None. A polished model leaves only its graph free: give the P of
            the model that its graph was chosen in.
    """
    value = result.elbo if math.isnan(result.log_likelihood) and result.elbo is not None else result.log_likelihood
    free = result.num_parameters
    possible = structure_of(result.model).num_possible(result.params) if num_possible is None else num_possible
    choices = math.lgamma(possible + 1) - math.lgamma(free + 1) - math.lgamma(possible - free + 1)
    return -2 * value + free * math.log(result.num_observations or result.num_rows) + 2 * gamma * choices


def graphs_of(result: Fit, threshold: float | None = None) -> tuple[Tensor, ...]:
    """The graph of each layer, bool (num_children, num_parents), bottom-up: loadings of at least the threshold in size.

    Args:
        result: a fit of a model that describes its layers.
        threshold: the penalty's own if None; without a penalty every loading that is not zero.

    Raises:
        ValueError: for a model without layers, or a threshold that is not positive.
    """
    if not hasattr(result.model, "layers"):
        raise ValueError(
            f"graphs_of: a model that describes its layers was expected, got {type(result.model).__name__}"
        )
    model: Any = result.model
    if threshold is not None and not threshold > 0:
        raise ValueError(f"graphs_of: threshold must be positive, got {threshold!r}")
    out = []
    for layer in model.layers():
        size = result.params[layer.loadings].abs()
        least = threshold if threshold is not None else 0.0 if layer.penalty is None else layer.penalty.threshold
        out.append((size >= least) & (size > 0))
    return tuple(out)


def polish(result: Fit, data: Any, threshold: float | None = None, method: Method | None = None) -> Fit:
    """Threshold the loadings, then refit without a penalty on the graph that is left, from the estimate.

    A latent that would lose every edge keeps its largest one: drop such latents, or choose fewer.

    Args:
        result: a fit of a model with ``restricted(graphs)``.
        data: the rows it was fitted to.
        threshold: see :func:`graphs_of`.
        method: the engine, that of ``result`` if None.

    Raises:
        ValueError: for a model that cannot be restricted to a graph.
    """
    model: Any = result.model
    if not hasattr(model, "restricted"):
        raise ValueError(f"polish: a model with restricted(graphs) was expected, got {type(model).__name__}")
    params, graphs = dict(result.params), []
    for layer, graph in zip(model.layers(), graphs_of(result, threshold), strict=True):
        size = params[layer.loadings].abs()
        largest = torch.zeros_like(graph).scatter_(0, size.argmax(0, keepdim=True), True)
        kept = graph | (largest & ~graph.any(0))
        params[layer.loadings] = params[layer.loadings] * kept
        graphs.append(kept.int().tolist())
    return fit(model.restricted(graphs), data, method or result.method, init=params, seed=result.seed, num_restarts=1)


@dataclass(frozen=True, eq=False)
class Path:
    """Fits along a grid of penalties.

    Args:
        penalties: the grid, in the order of fitting.
        fits: polished fits; penalised: those before the threshold.
        scores: EBIC of each polished fit.
        chosen: index of the smallest.
    """

    penalties: tuple[Any, ...]
    fits: tuple[Fit, ...]
    penalised: tuple[Fit, ...]
    scores: tuple[float, ...]
    chosen: int

    @property
    def best(self) -> Fit:
        """The polished fit with the smallest EBIC."""
        return self.fits[self.chosen]

    @property
    def penalty(self) -> Any:
        """The chosen penalty."""
        return self.penalties[self.chosen]

    @property
    def table(self) -> Any:
        """One line a penalty, as a data frame."""
        import pandas as pd

        return pd.DataFrame(
            {
                "penalty": [repr(penalty) for penalty in self.penalties],
                "log_likelihood": [fitted.log_likelihood for fitted in self.fits],
                "num_parameters": [fitted.num_parameters for fitted in self.fits],
                "ebic": self.scores,
                "chosen": [i == self.chosen for i in range(len(self.fits))],
            }
        )


def penalty_path(
    model: Any,
    data: Any,
    penalties: Sequence[Any],
    method: Method | None = None,
    gamma: float = 1.0,
    num_restarts: int | None = None,
    seed: int = 0,
) -> Path:
    """Fit a model under every penalty of a grid and choose one by EBIC of the polished fits.

    The fits run one after another, each from its own start and again from the estimate before (the better is kept), in
    the order given: put the weakest penalty first.

    Args:
        model: a model with a field ``penalty``.
        data: its rows.
        penalties: the grid, such as ``[TruncatedLasso(s, t) for s in slopes for t in thresholds]``.
        method, num_restarts, seed: see :func:`inference.fit`.
        gamma: of :func:`ebic`.

    Raises:
        ValueError: for an empty grid, or a model without a penalty.
    """
    if not penalties:
        raise ValueError("penalty_path: penalties must hold at least one penalty, got none")
    if not hasattr(model, "penalty") or not hasattr(model, "restricted"):
        raise ValueError(f"penalty_path: a model with a field 'penalty' was expected, got {type(model).__name__}")
    penalised: list[Fit] = []
    polished: list[Fit] = []
    for penalty in penalties:
        own = replace(model, penalty=penalty)
        result = fit(own, data, method, num_restarts=num_restarts, seed=seed)
        if penalised:
            warm = fit(own, data, method or result.method, init=penalised[-1], num_restarts=1, seed=seed)
            result = max(result, warm, key=lambda r: r.objective)
        penalised.append(result)
        polished.append(polish(result, data))
    possible = structure_of(model).num_possible(polished[0].params)
    scores = tuple(ebic(result, gamma, possible) for result in polished)
    return Path(tuple(penalties), tuple(polished), tuple(penalised), scores, scores.index(min(scores)))
