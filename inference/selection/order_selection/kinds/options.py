r"""Order selection of hidden options from the actions of a demonstrator.

Given the states, the actions of options alone depend on their number, and each row of the policies
is read from the steps in its state:

.. math::

    B = -2 L + \sum_{\text{rows}} (\text{free entries}) \log(\text{steps that the row is read
    from}), \qquad E = -2 L + 3 P

(:meth:`~inference.structures.options.structure.OptionsStructure.bic_price`; Bozdogan 1994), P the
free entries of rows that are read at all. The number is that of the smallest E: in simulations with
the right model (``benchmarks/how_many.py --group options``) B misses options, and then the noise of
those that are left misfits. It counts options if their noise looks as the model says (ACDC's:
actions, actions given the past, durations of visits; against sequences simulated and fitted again)
and no Markov policy of order one has a BIC lower by 10 (:func:`markov_policy_bic`). Else what can
be counted are options that act differently: those whose policies differ by less than three times
the difference's parameters in deviance are stages of one. To be sure, B must choose the same
number, and lead by 10, Akaike's criterion must not take more, all options must act differently,
and no other number may have a held-out log-likelihood of the actions that is larger by more than
two standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from inference.base.structure import Problem
from inference.engines.em import EM
from inference.fitting.columns import checked_as_fitted
from inference.fitting.result import Fit
from inference.inspection.options import log_likelihood_parts, smooth_options
from inference.programs.program import Params
from inference.selection.order_selection.counting import (
    FEW_ROWS,
    Candidate,
    Counting,
    Fits,
    Grid,
    Key,
    Place,
    counting_of,
    finalists,
    fit_candidates,
    lead_of,
    misfit_of,
    penalised,
    rows_of,
    status_of,
)
from inference.selection.order_selection.detectability import CLEAR, MISFIT
from inference.selection.order_selection.result import HowManyOptions
from inference.structures.options.structure import OptionsStructure

LENIENT_PRICE = 3.0  # of a parameter
LEAST_PRICE = 2.0  # the same where options that hardly show are looked for (Akaike 1974)
BETTER = 2.0  # standard errors by which held-out sequences speak for another number
LEAST_STEPS = 1.0  # expected, of an option in a state whose policies are compared
FOLDS = 3
LEAST_SEQUENCES = 6  # two in each fold
FOLD_STARTS = 4  # at most
MEMORIES = ("action", "state")
UNSEEN = (
    "Two options that act alike, an option that is on for few steps in all, and one that is left"
    " again within a few steps may have been missed; of what was done before, only the last action"
    " and the last state were tried in the place of options."
)


@counting_of.register
def _(structure: OptionsStructure) -> Counting:
    return CountingOptions()


class CountingOptions(Counting):
    """Order selection of hidden options."""

    number = "num_options"
    method = EM(max_iterations=300, tolerance=1e-6, parameter_tolerance=1e300)
    # their likelihood has long ridges: a nat does not matter

    def describe(self, structure: OptionsStructure) -> tuple[str, int, Any]:
        return "options", 0, None

    def check(self, candidates: Sequence[Candidate]) -> None:
        """Refuse more than one candidate."""
        if len(candidates) > 1:
            raise ValueError(
                "select_components: distributions must be None or one model for hidden options,"
                f" whose rivals are policies without options, got {len(candidates)} models"
            )

    def starts(self, problem: Problem, place: Place) -> Params:
        """Return the best starts by moments, at random, and by options split."""
        structure: Any = problem.structure
        starts = [structure.start(problem, "spectral", place.num_random if place.k > 1 else 1)]
        if place.smaller is not None:
            starts.append(structure.split_starts(problem, place.smaller.params))
        return finalists(problem, starts, place.grid.method)

    def answer(self, grid: Grid, fits: Fits) -> HowManyOptions:
        """Return the number of options by three penalties."""
        name, sizes = grid.candidates[0].name, grid.sizes
        packed, _ = checked_as_fitted(fits[name, sizes[0]], grid.data)
        strict = {key: fit_k.bic for key, fit_k in fits.items()}
        lenient, least = penalised(fits, LENIENT_PRICE), penalised(fits, LEAST_PRICE)
        k1, k2, most = (
            min(values, key=lambda key: (values[key], key))[1]  # noqa: B023
            for values in (strict, lenient, least)
        )
        fit_1, fit_2 = fits[name, k1], fits[name, k2]
        actions = -2 * float(log_likelihood_parts(fit_1, grid.data).actions.sum())
        best = strict[name, k1] + 2 * fit_1.log_likelihood + actions  # of the actions alone
        memory = _memory(fit_1, packed, best)
        beaten = any(more < -CLEAR for more in memory.values())
        held = held_out_actions(grid.on(packed)) if len(packed) >= LEAST_SEQUENCES else {}
        means = mean_held_out(held)
        misfit, used = misfit_of(fit_2, grid.data, grid.seed)
        distinct = distinct_options(fit_2, packed)
        reasons = _doubts(strict, sizes, (k1, k2, most), distinct, memory, held)
        status = status_of(k2 == sizes[-1] and not beaten, misfit > MISFIT or beaten, reasons)
        columns: dict[str, Mapping[Key, Any]] = {
            "num_parameters": {key: fit_k.num_parameters for key, fit_k in fits.items()},
            "bic": strict,
            "lenient": lenient,
            "held_out": {key: means.get(key[1], math.nan) for key in fits},
        }
        return HowManyOptions(
            num_components=len(distinct) if status == "misfit" else k2,
            distribution=name,
            status=status,
            interval=(min(k1, k2), max(k1, k2, most)),
            reasons=tuple(reasons) if status == "unsure" else (),
            misfit=misfit,
            rows=rows_of(fits, columns, (name, k2)),
            fits=fits,
            unseen=UNSEEN,
            detectable_variance=math.inf if used < FEW_ROWS else math.nan,
            evidence={
                "held_out": max(means, key=means.__getitem__) if means else None,
                "distinct_options": distinct,
                "memory": memory,
            },
        )


def distinct_options(fit: Fit, packed: Tensor) -> tuple[tuple[int, ...], ...]:
    """Return options of a fit, those together whose policies the data do not distinguish.

    Args:
        packed: its sequences, (B, T, 2).
    """
    counts = _expected_actions(fit, packed)
    groups: list[tuple[int, ...]] = [(o,) for o in range(len(counts))]
    while len(groups) > 1:
        excess = {
            (i, j): policy_deviance(counts[i], counts[j])
            for i in range(len(groups))
            for j in range(i)
        }
        i, j = min(excess, key=excess.__getitem__)
        if excess[i, j] > 0:
            break
        counts[j] = counts[j] + counts[i]
        groups[j] = (*groups[j], *groups[i])
        del counts[i], groups[i]
    return tuple(tuple(sorted(group)) for group in groups)


def policy_deviance(counts: Tensor, other: Tensor) -> float:
    """Return the deviance that two policies gain over one, less the price of their parameters.

    In states that both are in; a parameter costs three.

    Args:
        counts: expected steps by state and action, (S, A).
        other: the same of the other option.
    """
    both = torch.minimum(counts.sum(-1), other.sum(-1)) > LEAST_STEPS
    gain = 2 * (_log_likelihood(counts) + _log_likelihood(other) - _log_likelihood(counts + other))
    return float(gain[both].sum()) - LENIENT_PRICE * (counts.shape[-1] - 1) * int(both.sum())


def _expected_actions(fit: Fit, packed: Tensor) -> list[Tensor]:
    """Return expected steps of every option, by state and action, (S, A) each."""
    chance = smooth_options(fit, packed).option.double()  # (B, T, O)
    structure = fit.structure
    assert isinstance(structure, OptionsStructure)
    num_states, num_actions = structure.about.num_states, structure.about.num_actions
    state, action = packed[:, : chance.shape[1]].long().cpu().unbind(-1)
    present = (state >= 0) & (action >= 0)
    table = torch.zeros(num_states * num_actions, chance.shape[-1], dtype=torch.float64)
    table.index_add_(0, (state * num_actions + action)[present], chance[present])
    return list(table.T.reshape(-1, num_states, num_actions))


def _log_likelihood(counts: Tensor) -> Tensor:
    """Return the log-likelihood of a free policy, (S,)."""
    total = counts.sum(-1)
    return torch.special.xlogy(counts, counts).sum(-1) - torch.special.xlogy(total, total)


def markov_policy_bic(
    packed: Tensor, num_states: int, num_actions: int, memory: str | None
) -> float | None:
    r"""Return the BIC of a Markov policy of order one: a baseline that options must beat.

    With counts :math:`n_{sca}` of action a in state s after c, the action (or the state) a step
    before,

    .. math::

        \log p(a_{1:T} \mid s_{1:T}) = \sum_{sca} n_{sca} \log \frac{n_{sca}}{n_{sc\cdot}}, \qquad
        \text{at a price of} \quad (A - 1) \sum_{sc:\, n_{sc\cdot} > 0} \log n_{sc\cdot}

    (Schwarz 1978), each row read from its own number of steps, as the policies of options are
    (:meth:`OptionsStructure.bic_price`). Hidden options make the present depend on the past as
    well; where such a policy pays better than any number of them, options are patches of it.

    Args:
        packed: (B, T, 2), -1 after the end.
        num_states: S.
        num_actions: A.
        memory: "action" or "state", that of the step before; None for a policy that looks at the
            present state alone.

    Returns:
        BIC of the actions given the states; None where an action is missing that a state follows.
    """
    state, action = packed[..., 0].long(), packed[..., 1].long()
    present = (state >= 0) & (action >= 0)
    if bool(((state[:, :-1] >= 0) & (action[:, :-1] < 0) & (state[:, 1:] >= 0)).any()):
        return None
    before = torch.zeros_like(state)  # 0: the first step
    if memory is not None:
        before[:, 1:] = (action if memory == "action" else state)[:, :-1] + 1
    # those that are seen, R
    rows, place = torch.unique((before * num_states + state)[present], return_inverse=True)
    entry = place * num_actions + action[present]
    counts = torch.bincount(entry, minlength=len(rows) * num_actions).double()
    counts = counts.reshape(-1, num_actions)
    total, xlogy = counts.sum(-1), torch.special.xlogy
    log_likelihood = xlogy(counts, counts).sum() - xlogy(total, total).sum()
    return float(-2 * log_likelihood + (num_actions - 1) * total.log().sum())


def _memory(fit: Fit, packed: Tensor, best: float) -> dict[str, float]:
    structure = fit.structure
    assert isinstance(structure, OptionsStructure)
    num_states, num_actions = structure.about.num_states, structure.about.num_actions
    values = {name: markov_policy_bic(packed, num_states, num_actions, name) for name in MEMORIES}
    return {name: value - best for name, value in values.items() if value is not None}


def held_out_actions(grid: Grid) -> Mapping[int, Tensor]:
    """Return held-out log-likelihoods of the actions of every sequence: by number, (B,).

    Given its states, by the fit to the two thirds of the sequences that it is not in.

    Args:
        grid: of packed sequences, at least :data:`LEAST_SEQUENCES`.
    """
    packed = grid.table
    order = torch.randperm(len(packed), generator=torch.Generator().manual_seed(grid.seed))
    out = {k: torch.full((len(packed),), torch.nan, dtype=torch.float64) for k in grid.sizes}
    num_restarts = min(grid.num_restarts, FOLD_STARTS)
    for fold in range(FOLDS):
        held = order[fold::FOLDS]
        kept = torch.cat([order[other::FOLDS] for other in range(FOLDS) if other != fold])
        fits = fit_candidates(grid.on(packed[kept], num_restarts=num_restarts))
        for (_, k), fit_k in fits.items():
            out[k][held] = log_likelihood_parts(fit_k, packed[held]).actions.cpu().double()
    return out


def mean_held_out(held: Mapping[int, Tensor]) -> dict[int, float]:
    """Return the mean held-out log-likelihood over sequences that no fit gives no chance."""
    if not held:
        return {}
    fine = torch.stack(list(held.values())).isfinite().all(0)
    return {k: float(value[fine].mean()) for k, value in held.items()} if bool(fine.any()) else {}


def better_held_out(held: Mapping[int, Tensor], chosen: int) -> int | None:
    """Return a number of clearly larger held-out log-likelihood than the chosen one.

    That is, by more than two standard errors of the mean difference over sequences.
    """
    means = mean_held_out(held)
    if not means:
        return None
    best = max(means, key=means.__getitem__)
    difference = held[best] - held[chosen]
    difference, error = difference[difference.isfinite()], math.inf
    if len(difference) > 1:
        error = float(difference.std()) / math.sqrt(len(difference))
    return best if best != chosen and float(difference.mean()) > BETTER * error else None


def _doubts(
    strict: Mapping[Key, float],
    sizes: Sequence[int],
    chosen: tuple[int, int, int],
    distinct: Sequence[Sequence[int]],
    memory: Mapping[str, float],
    held: Mapping[int, Tensor],
) -> list[str]:
    k1, k2, most = chosen
    doubts = []
    if k1 != k2:
        doubts.append(f"a strict penalty would take {k1}")
    if most > k2:
        doubts.append(f"Akaike's criterion, which asks least of an option, would take {most}")
    lead, rival = lead_of(strict, k1)
    if k1 == k2 and lead < CLEAR:
        doubts.append(f"{k1} leads {rival} by {lead:.1f} in BIC only, where 10 would be clear")
    if len(distinct) < k2:
        doubts.append(
            f"of the {k2} options only {len(distinct)} act differently, so that some may be stages"
            " of one"
        )
    doubts += [
        f"a policy without options that looks at the {name} of the step before has a BIC only"
        f" {more:.1f} above that of the best number"
        if more > 0
        else f"a policy without options that looks at the {name} of the step before has a BIC"
        f" {-more:.1f} below that of every number"
        for name, more in memory.items()
        if more < CLEAR
    ]
    if (other := better_held_out(held, k2)) is not None:
        doubts.append(f"sequences left out of the fits are predicted better by {other}")
    if min(k1, k2) == sizes[0] > 1:
        doubts.append("smaller numbers were not compared")
    return doubts
