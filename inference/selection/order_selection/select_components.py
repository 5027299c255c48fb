"""Choose the number and the distribution of components, states, options or terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

from inference.base.progress import NoProgress, RichProgress
from inference.base.structure import Method
from inference.fitting.problem import model_of_data
from inference.programs.data import checked
from inference.programs.global_state import quiet
from inference.selection.order_selection.counting import (
    LARGEST,
    Candidate,
    Fits,
    Grid,
    candidate_of,
    candidates_of,
    fit_candidates,
)
from inference.selection.order_selection.result import HowMany
from inference.structures.registry import structure_of
from ppl_models.data.frames import as_frame
from ppl_models.data.items import OpenModel
from ppl_models.data.sequences import in_places
from ppl_models.parts.surface import warn_renamed
from ppl_models.parts.validation import Seed, as_seed, check_size, is_integer


def select_components(
    family: Callable[..., Any] | Any,
    data: Any,
    grid: Sequence[int] | None = None,
    *,
    distributions: Sequence[Any] | None = None,
    num_restarts: int = 10,
    method: Method | None = None,
    bootstrap: int = 0,
    seed: Seed = 0,
    progress: bool = False,
    laws: Sequence[Any] | None = None,
) -> HowMany:
    """Choose the number and the distribution of components, and say how sure that is.

    The rule of each kind: of mixtures and hidden Markov models
    :mod:`inference.selection.order_selection.kinds.mixture`, of hidden options
    :mod:`~inference.selection.order_selection.kinds.options`, of factorizations of counts
    :mod:`~inference.selection.order_selection.kinds.factorization`.

    Args:
        family: a factorization of counts, called with the number of columns and of components
            (``PoissonFactorization``); a mixture or a hidden Markov model, whatever its number
            (``Mixture(1, MultivariateNormal(), 2)``, ``HiddenMarkov(1, Poisson())``), or options
            (``OptionsHMM(num_states, num_actions, 1)``); or a function from a number to a model.
        data: the table, NaN where missing, or the sequences.
        grid: numbers of components to compare; the answer says so if they end too early. Without
            gaps they help each other's search. Of a mixture and a hidden Markov model the largest
            are left out after two numbers in a row at which both penalised deviances have risen by
            more than 20, or no start ends in a proper optimum. None for 1 to 6, and on to 12 where
            6 is too few.
        distributions: families or functions as ``family``, of which the first is contained in the
            others; None for those that suit ``family``: Poisson counts, and negative binomial ones
            with a variance linear and quadratic in the mean; for mixtures and states of real rows
            normal, Student t and skew-normal components (those that take missing entries where
            there are some), for counts Poisson and negative binomial ones; for chains whose visits
            are found not to last geometrically, negative binomial durations beside.
        num_restarts: random starts of each fit of the first distribution.
        method: settings of every fit: :class:`~inference.Factorize`, or :class:`~inference.EM` for
            mixtures.
        bootstrap: tables drawn from the strict choice of a factorization and fitted again, from
            which a climb learns what a superfluous component gains, a further number and a check of
            the others; 6 is enough, and recommended for what is published; 0 for none.
        seed: one seed, one answer.
        progress: show a bar on standard error.
        laws: deprecated name of ``distributions``.

    Raises:
        ValueError: for a grid of fewer than two numbers, no distributions, distributions that
            cannot be compared, or what a distribution refuses in the data; before any fit.

    Example:
        >>> import numpy as np
        >>> from inference.selection import select_components
        >>> from ppl_models import Bernoulli, Mixture
        >>> rng = np.random.default_rng(0)
        >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
        >>> family = Mixture(1, Bernoulli(), 4)
        >>> select_components(family, answers, (1, 2, 3), num_restarts=2).num_components
        2
    """
    seed = as_seed("select_components", seed)
    owner = "select_components"
    if laws is not None:
        warn_renamed(f"{owner}(laws=...)", "distributions=...")
        distributions = laws
    grids: list[Sequence[int]]
    if grid is None:
        first = _candidates(family, distributions, data, (1, 2))[0]
        most = min(first.counting.room(tuple(getattr(data, "shape", ()))), LARGEST[-1])
        grids = [*plain_grids(most)]
    else:
        for k in grid:
            check_size(owner, "grid", k, wanted="numbers of components, positive integers")
        grids = [sorted(set(grid))]
        if len(grids[0]) < 2:
            raise ValueError(
                f"{owner}: grid must hold at least two numbers of components, got {list(grid)!r}"
            )
    check_tables(owner, bootstrap)
    candidates = _candidates(family, distributions, data, grids[0])
    first, counting = candidates[0], candidates[0].counting
    if bootstrap and not counting.takes_bootstrap:
        raise ValueError(
            f"{owner}: bootstrap is for factorizations of counts; leave it at 0 for"
            f" {type(first.model).__name__}, got {bootstrap}"
        )
    read_as = _places_of(first.model, data)
    data = in_places(as_frame(data), read_as) if read_as else data
    table, _ = checked(first.at(grids[0][-1]), data, for_fit=True)
    if distributions is None:
        num_rows, gaps = int(table.isfinite().any(-1).sum()), counting.has_gaps(table)
        rows = table.flatten(0, -2)
        low, high = rows.nan_to_num(math.inf).amin(0), rows.nan_to_num(-math.inf).amax(0)
        flat = bool((low == high).any())  # floors of variance differ between distributions
        candidates = [
            candidate
            for candidate in candidates
            if not candidate.needs_whole_rows
            or not (gaps or flat)
            and candidate.row_distribution.is_determined(num_rows, table.shape[-1])
        ]
    for candidate in candidates[1:]:
        checked(candidate.at(grids[0][-1]), data, for_fit=True)
    if method is not None and not isinstance(method, type(counting.method)):
        raise ValueError(
            f"{owner}: method must be {type(counting.method).__name__}() or None, got {method!r}"
        )
    fits: Fits = {}
    for sizes in grids:
        total = len(candidates) * len(sizes)
        with quiet(), RichProgress("fits", total) if progress else NoProgress() as bar:
            settings = (num_restarts, seed, method or counting.method, bootstrap, bar)
            compared = Grid(candidates, sizes, data, table, *settings)
            fits = fit_candidates(compared, fits)
            answer = counting.answer(compared, fits)
            if distributions is None and (more := counting.further(compared, fits, answer)):
                candidates = [*candidates, *more]
                compared = Grid(candidates, sizes, data, table, *settings)
                fits = fit_candidates(compared, fits)
                answer = counting.answer(compared, fits)
        if sizes is grids[-1] or answer.status != "grid too short":
            break
    if not read_as:
        return answer
    return replace(
        answer, fits={key: replace(own, read_as=read_as) for key, own in answer.fits.items()}
    )


def _places_of(model: Any, data: Any) -> dict[str, str]:
    """Columns of a frame of steps that say where a row belongs, by place; {} of other rows."""
    if structure_of(model).row_columns and isinstance(model, OpenModel):
        return model.read_as(data)
    return {}


def plain_grids(most: int) -> list[range]:
    """Return numbers to compare where none are given, then more of them.

    Args:
        most: largest number, at least two of which are compared.
    """
    return [
        range(1, largest + 1)
        for largest in dict.fromkeys(max(2, min(largest, most)) for largest in LARGEST)
    ]


def check_tables(owner: str, bootstrap: object) -> None:
    """Refuse numbers of bootstrap tables that give no mean and noise; two do."""
    if not is_integer(bootstrap, 0) or bootstrap == 1:
        raise ValueError(
            f"{owner}: bootstrap must be 0, or a number of tables of at least 2, got {bootstrap!r}"
        )


def _candidates(
    family: Any, distributions: Sequence[Any] | None, data: Any, sizes: Sequence[int]
) -> Sequence[Candidate]:
    def model(source: Any) -> Any:
        if is_dataclass(source) and not isinstance(source, type):
            return model_of_data(source, data)  # a model, whatever its number
        if not isinstance(source, type):
            return model_of_data(source(sizes[-1]), data)
        if len(getattr(data, "shape", ())) != 2:
            raise ValueError(
                "select_components: a table (rows, items) was expected; give a function from a"
                " number to a model"
            )
        return source(int(data.shape[1]), sizes[-1])

    if distributions is None:
        return candidates_of(model(family))
    if not distributions:
        raise ValueError(
            "select_components: distributions must name at least one family, or be None for those"
            " that suit the family"
        )
    candidates = [candidate_of(model(source)) for source in distributions]
    candidates[0].counting.check(candidates)
    if len({type(candidate.counting) for candidate in candidates}) > 1:
        raise ValueError(
            "select_components: distributions must all be mixtures, all hidden Markov models, or"
            " all factorizations of counts, for their likelihoods are compared"
        )
    names = [candidate.name for candidate in candidates]
    if len(set(names)) < len(names):
        raise ValueError(f"select_components: distributions must differ, got {names}")
    return candidates
