"""Options of a demonstrator at every number: fits, and how well each number foretells the actions
of sequences that its fit has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from inference.base.progress import NoProgress, Progress
from inference.engines.em import EM
from inference.fitting.fit import fit_from
from inference.fitting.result import Fit
from inference.inspection.options import log_likelihood_parts
from inference.selection.order_selection.candidates import Law
from inference.selection.order_selection.grid_fits import MORE_STARTS, Paths, too_low
from inference.selection.order_selection.groups_paths import finalists
from inference.structures.options.structure import OptionsStructure

FOLDS = 3
LEAST_SEQUENCES = 6  # two in each fold
FOLD_STARTS = 4  # at most


def fit_options(
    law: Law,
    sizes: Sequence[int],
    data: Any,
    num_restarts: int,
    seed: int,
    method: EM,
    progress: Progress,
) -> Paths:
    """One fit for each number; a log-likelihood that falls with the number is fitted again from
    more starts.

    Args:
        law: the model; sizes: numbers of options, rising.
        data: the sequences.
        num_restarts: starts of each fit, one of them from moments, beside those from the number
            below with each of its options split.
        seed: of the starts; method: settings of every fit; progress: told of every fit.
    """
    fits: Paths = {}
    for k in sizes:
        smaller = fits.get((law.name, k - 1))
        best = _best(law, k, data, smaller, num_restarts, seed, method)
        if smaller is not None and too_low(best.log_likelihood, smaller.log_likelihood):
            again = _best(law, k, data, smaller, MORE_STARTS, seed + 1, method)
            best = max((best, again), key=lambda one: one.objective)
        fits[law.name, k] = best
        progress.update(len(fits), objective=best.objective, active=len(sizes) - len(fits))
    return fits


def held_out_actions(
    law: Law, sizes: Sequence[int], packed: Tensor, num_restarts: int, seed: int, method: EM
) -> Mapping[int, Tensor]:
    """Log-likelihood of the actions of every sequence given its states, by the fit to the two
    thirds of the sequences that it is not in: by number, (B,).

    Args:
        law: the model; sizes: numbers of options; packed: (B, T, 2), B at least
            :data:`LEAST_SEQUENCES`.
        num_restarts, seed, method: as in :func:`fit_options`.
    """
    order = torch.randperm(len(packed), generator=torch.Generator().manual_seed(seed))
    out = {k: torch.full((len(packed),), torch.nan, dtype=torch.float64) for k in sizes}
    for fold in range(FOLDS):
        held = order[fold::FOLDS]
        kept = torch.cat([order[other::FOLDS] for other in range(FOLDS) if other != fold])
        fits = fit_options(
            law, sizes, packed[kept], min(num_restarts, FOLD_STARTS), seed, method, NoProgress()
        )
        for (_, k), one in fits.items():
            out[k][held] = log_likelihood_parts(one, packed[held]).actions.cpu().double()
    return out


def _best(
    law: Law, k: int, data: Any, smaller: Fit | None, num_starts: int, seed: int, method: EM
) -> Fit:
    def starts(problem: Any) -> dict[str, Tensor]:
        structure: OptionsStructure = problem.structure
        found = [structure.start(problem, "spectral", num_starts if k > 1 else 1)]
        if smaller is not None:
            found.append(structure.split_starts(problem, smaller.params))
        return finalists(
            problem,
            {name: torch.cat([start[name] for start in found]) for name in found[0]},
            method,
        )

    return fit_from(law.at(k), data, method, starts, seed)
