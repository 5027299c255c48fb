r"""Sparse layers: threshold and refit, and the choice of a penalty along a path.

A penalised estimate is biased where the penalty bites. *Polishing* reads the graph off it,
:math:`\hat G_d = 1[|\hat W_d| \ge \tau]`, and maximises the likelihood on that graph without a
penalty; information criteria are computed from polished fits, whose number of parameters is exact.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from inference.base.frames import pd
from inference.base.outcome import ConvergenceWarning
from inference.base.progress import NoProgress
from inference.base.structure import Method, num_possible_free, num_settled
from inference.engines.em import EM, EMState
from inference.fitting.columns import as_fitted
from inference.fitting.fit import assemble, fit
from inference.fitting.problem import problem_of
from inference.fitting.result import Fit
from inference.programs.global_state import listening
from inference.programs.program import Params
from inference.structures.layers.choose_penalty import extended_bic
from inference.structures.layers.graph_search import estimated_graphs, thresholded
from inference.structures.layers.penalty_grid import (
    climb_graphs,
    climb_penalties,
    part_of,
    unfinished_text,
)
from inference.structures.layers.structure import LayeredStructure
from inference.structures.registry import structure_of
from ppl_models.parts.penalties import Penalty
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_number, check_size


def ebic(result: Fit, gamma: float = 1.0, num_possible: int | None = None) -> float:
    r"""Extended BIC (Chen and Chen 2008, doi:10.1093/biomet/asn034); smaller is better.

    .. math:: -2 \ell + \nu \log N + 2 \gamma \log \binom{P - s}{\nu - s},

    with :math:`\nu` free parameters out of P, of which s are free whatever the graph is
    (intercepts, dispersions, proportions), so that :math:`\nu - s` edges were chosen from
    :math:`P - s`. Where nothing is chosen to be zero, :math:`\nu = P` and EBIC is BIC. Where the
    log-likelihood is out of reach its lower bound ``elbo`` stands in its place.

    Args:
        result: the fit.
        gamma: 0 is BIC.
        num_possible: P; all that the model leaves free if None. A polished model leaves only its
            graph free: give the P of the model that its graph was chosen in.

    Raises:
        ValueError: for a ``gamma`` that is no number from 0 to a million, or a ``num_possible``
            below the parameters of the fit.
    """
    check_number("ebic", "gamma", gamma, "be a number from 0 to a million", least=0, most=1e6)
    if num_possible is not None:
        check_size("ebic", "num_possible", num_possible, result.num_parameters)
    value = result.log_likelihood
    if math.isnan(value) and result.elbo is not None:
        value = result.elbo
    structure = structure_of(result.model)
    possible = num_possible_free(structure, result.params) if num_possible is None else num_possible
    free, settled = result.num_parameters, num_settled(structure, result.params)
    possible = free if possible is None else possible
    return extended_bic(value, result.price, free - settled, possible - settled, gamma)


def graphs_of(result: Fit, threshold: float | None = None) -> tuple[Tensor, ...]:
    """Return the graph of each layer, bool (num_children, num_parents), bottom-up.

    Loadings of at least the threshold in size (of an item with several, one of them).

    Args:
        result: a fit of a model that describes its layers.
        threshold: the penalty's own if None; without a penalty every loading that is not zero
            (``result.graphs``).
    """
    layers = result.structure.layers
    if not layers:
        raise ValueError(
            "graphs_of: a model that describes its layers was expected, got"
            f" {type(result.model).__name__}"
        )
    if threshold is not None:
        check_number("graphs_of", "threshold", threshold, "be positive", above=0)
    graphs = estimated_graphs(layers, result.params, threshold)
    return tuple(layer.by_item(graph) for layer, graph in zip(layers, graphs, strict=True))


def polish(
    result: Fit, data: Any, threshold: float | None = None, method: Method | None = None
) -> Fit:
    """Threshold the loadings, then refit without a penalty on the graph that is left.

    A latent that would lose every edge keeps its largest one: drop such latents, or choose fewer.

    Args:
        result: a fit of a model with ``restricted(graphs)``.
        data: the rows it was fitted to.
        threshold: see :func:`graphs_of`.
        method: the engine, that of ``result`` if None.

    Raises:
        ValueError: for a model that cannot be restricted to a graph, or a fit with labels or known
            parameters.
    """
    result.refuse_labels("polish")
    if not hasattr(result.model, "restricted"):
        raise ValueError(
            "polish: a model with restricted(graphs) was expected, got"
            f" {type(result.model).__name__}"
        )
    graphs_of(result, threshold)  # refuses what has none
    model, params = thresholded(result.model, result.structure.layers, result.params, threshold)
    rows, method = as_fitted(result, data), method or result.method
    weights = result.row_weights
    return fit(model, rows, method, init=params, seed=result.seed, num_restarts=1, weights=weights)


@shows_briefly
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
    seed: Seed = 0,
    warm: bool = False,
) -> Path:
    """Fit a model under every penalty of a grid and choose one by EBIC of the polished fits.

    With exact EM on a model that describes its layers the grid is one batch, penalties of a kind
    beside each other from the same starts, and so are the refits; else the fits run one after
    another.

    Args:
        model: a model with a field ``penalty``.
        data: its rows.
        penalties: the grid, such as ``[TruncatedLasso(s, t) for s in slopes for t in thresholds]``.
        method: see :func:`inference.fitting.fit`.
        num_restarts: see :func:`inference.fitting.fit`.
        seed: see :func:`inference.fitting.fit`.
        gamma: of :func:`ebic`.
        warm: fit one after another instead, each from its own start and again from the estimate
            before (the better is kept), in the order given: put the weakest penalty first. Slower,
            and sometimes a better optimum.

    Raises:
        ValueError: for an empty grid, an entry that is no penalty, or a model without a penalty.
    """
    seed = as_seed("penalty_path", seed)
    if not penalties:
        raise ValueError("penalty_path: penalties must hold at least one penalty, got none")
    if not hasattr(model, "penalty") or not hasattr(model, "restricted"):
        raise ValueError(
            f"penalty_path: a model with a field 'penalty' was expected, got {type(model).__name__}"
        )
    for i, penalty in enumerate(penalties):
        if isinstance(penalty, type) or not (
            hasattr(penalty, "prox") and hasattr(penalty, "threshold")
        ):
            raise ValueError(
                f"penalty_path: penalties[{i}] must be a penalty such as TruncatedLasso(1.0, 0.5),"
                f" got {penalty!r}"
            )
    penalised: list[Fit] | None = None
    polished: list[Fit] | None = None
    if not warm:
        penalised, polished = _together(model, data, list(penalties), method, num_restarts, seed)
    if penalised is None:
        penalised = []
        for penalty in penalties:
            own = replace(model, penalty=penalty)
            result = fit(own, data, method, num_restarts=num_restarts, seed=seed)
            if penalised and warm:
                engine, before = method or result.method, penalised[-1]
                again = fit(own, data, engine, init=before, num_restarts=1, seed=seed)
                result = max(result, again, key=lambda r: r.objective)
            penalised.append(result)
    if polished is None:
        polished = [polish(result, data) for result in penalised]
    possible = num_possible_free(structure_of(model), polished[0].params)
    scores = tuple(ebic(result, gamma, possible) for result in polished)
    return Path(
        tuple(penalties), tuple(polished), tuple(penalised), scores, scores.index(min(scores))
    )


def _together(
    model: Any,
    data: Any,
    penalties: list[Any],
    method: Method | None,
    num_restarts: int | None,
    seed: int,
) -> tuple[list[Fit] | None, list[Fit] | None]:
    """Return penalised and polished fits of the whole grid as one batch, None otherwise."""
    if method is None:
        advice = problem_of(replace(model, penalty=penalties[0]), data, seed)
        recommended = advice.structure.recommended(advice)
        method, num_restarts = recommended.method, num_restarts or recommended.num_restarts
    if not isinstance(method, EM):
        return None, None
    by_place: dict[int, Fit] = {}
    for kind in dict.fromkeys(type(penalty) for penalty in penalties):
        places = [i for i, penalty in enumerate(penalties) if type(penalty) is kind]
        own = [penalties[i] for i in places]
        fits = fit_penalty_grid(model, data, own, method, num_restarts or 1, seed)
        if fits is None:
            return None, None
        by_place |= dict(zip(places, fits, strict=True))
    penalised = [by_place[i] for i in range(len(penalties))]
    pairs = [thresholded(fit_k.model, fit_k.structure.layers, fit_k.params) for fit_k in penalised]
    return penalised, refit_penalty_grid(
        [fit_k for fit_k, _ in pairs], data, [params for _, params in pairs], method, seed
    )


def fit_penalty_grid(
    model: Any,
    data: Any,
    penalties: Sequence[Penalty],
    method: EM,
    num_restarts: int = 1,
    seed: int = 0,
) -> list[Fit] | None:
    """Fit a model under each penalty, from the same starts; None where this does not apply.

    Args:
        model: with layers and a field ``penalty``.
        data: its rows.
        penalties: of one kind.
        num_restarts: starts of each.
        seed: of the starts.
    """
    models = [replace(model, penalty=penalty) for penalty in penalties]
    problem = problem_of(replace(model, penalty=None), data, seed)
    start = problem.structure.start(problem, "spectral", num_restarts)
    if start is None or not isinstance(problem.structure, LayeredStructure):
        return None
    began = time.monotonic()
    state = climb_penalties(problem, models, start, method, NoProgress())
    return _fits_of(state, models, data, method, seed, time.monotonic() - began)


def refit_penalty_grid(
    models: Sequence[Any], data: Any, starts: Sequence[Params], method: EM, seed: int = 0
) -> list[Fit] | None:
    """Refit a model on several graphs, each from its start; None where this does not apply.

    Args:
        models: without penalties, of equal sizes, each with a graph in every layer.
        data: their rows.
        starts: parameters of each, zero off its graph.
        seed: recorded in the fits.
    """
    if not hasattr(models[0], "graphs"):
        return None
    problem = problem_of(replace(models[0], graphs=None), data, seed)
    began = time.monotonic()
    state = climb_graphs(problem, models, starts, method, NoProgress())
    return _fits_of(state, models, data, method, seed, time.monotonic() - began)


def _fits_of(
    state: EMState | None, models: Sequence[Any], data: Any, method: EM, seed: int, seconds: float
) -> list[Fit] | None:
    if state is None:
        return None
    each = len(state.objective) // len(models)
    return [
        _fit_of(part_of(state, g, each), model, data, method, seed, seconds / len(models))
        for g, model in enumerate(models)
    ]


def _fit_of(state: EMState, model: Any, data: Any, method: EM, seed: int, seconds: float) -> Fit:
    with listening() as caught:
        problem = problem_of(model, data, seed, start_given=True)
        text = unfinished_text(state, method)
        if text is not None:
            warnings.warn(f"{model.penalty!r}: {text}", ConvergenceWarning, stacklevel=2)
        result = assemble(problem, method, state.outcome(), seconds)
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=5)
    return replace(
        result, warnings=tuple(dict.fromkeys(str(warning.message) for warning in caught))
    )
