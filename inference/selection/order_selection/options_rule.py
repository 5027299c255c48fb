r"""How many hidden options the actions of a demonstrator show.

Given the states, the actions of options alone depend on their number, and each row of the policies
is read from the steps in its state:

.. math::

    B = -2 L + \sum_{\text{rows}} (\text{free entries}) \log(\text{steps that the row is read
    from}), \qquad E = -2 L + 3 P

(:meth:`~inference.structures.options.structure.OptionsStructure.bic_price`; Bozdogan 1994), P the
free entries of rows that are read at all. The number is that of the smallest E: in simulations with
the right law (``benchmarks/how_many.py --group options``) B misses options, and then the noise of
those that are left misfits. It counts options if their noise looks as the model says (ACDC's:
actions, actions given the past, durations of visits; against sequences simulated and fitted again)
and no policy without options that remembers the last action or state is better
(:mod:`inference.selection.order_selection.markov_baseline`). Else what can be counted are options
that act differently: those whose policies are told apart by less than three times the difference's
parameters in deviance are stages of one. To be sure, B must choose the same number, and lead by 10,
Akaike's criterion must not take more, all options must act differently, and no other number may
foretell the actions of sequences left out of the fits better by more than two standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from inference.engines.em import EM
from inference.fitting.columns import checked_as_fitted
from inference.fitting.result import Fit
from inference.inspection.options import log_likelihood_parts, smooth_options
from inference.selection.order_selection.answer import Word
from inference.selection.order_selection.candidates import Law
from inference.selection.order_selection.detectability import MISFIT
from inference.selection.order_selection.grid_fits import Paths
from inference.selection.order_selection.markov_baseline import MEMORIES, memory_bic
from inference.selection.order_selection.misfit import FEW_ROWS, misfit_of
from inference.selection.order_selection.options_answer import HowManyOptions
from inference.selection.order_selection.options_paths import LEAST_SEQUENCES, held_out_actions
from inference.structures.options.structure import OptionsStructure

CLEAR = 10.0  # a lead of B that leaves no doubt (Kass and Raftery 1995: very strong)
LENIENT_PRICE = 3.0  # of a parameter
LEAST_PRICE = 2.0  # the same where options that hardly show are looked for (Akaike 1974)
BETTER = 2.0  # standard errors by which held-out sequences speak for another number
LEAST_STEPS = 1.0  # expected, of an option in a state whose policies are compared


def answer_of_options(
    law: Law, sizes: Sequence[int], fits: Paths, data: Any, num_restarts: int, seed: int, method: EM
) -> HowManyOptions:
    """The rule, where every number has been fitted.

    Args:
        law: the model; sizes: numbers of options, rising; fits: by law and number.
        data: the sequences; num_restarts, method: of the fits to parts of them; seed: of these and
            of the check of the noise.
    """
    own = {k: fits[law.name, k] for k in sizes}
    packed, _ = checked_as_fitted(own[sizes[0]], data)
    strict = {k: one.bic for k, one in own.items()}
    lenient = {
        k: -2 * one.log_likelihood + LENIENT_PRICE * one.num_parameters for k, one in own.items()
    }
    least = {
        k: -2 * one.log_likelihood + LEAST_PRICE * one.num_parameters for k, one in own.items()
    }
    k1, k2, most = (min(sizes, key=lambda k: (values[k], k)) for values in (strict, lenient, least))  # noqa: B023
    chosen = k2
    actions = -2 * float(log_likelihood_parts(own[k1], data).actions.sum())
    best = strict[k1] + 2 * own[k1].log_likelihood + actions  # of the actions alone
    memory = _memory(own[k1], packed, best)
    held = (
        held_out_actions(law, sizes, packed, num_restarts, seed, method)
        if len(packed) >= LEAST_SEQUENCES
        else {}
    )
    foretold = _foretold(held)
    misfit, used = misfit_of(own[k2], data, seed)
    unlike = unlike_options(own[k2], packed)
    word: Word
    reasons: list[str] = []
    if k2 == sizes[-1] and not any(more < 0 for more in memory.values()):
        word = "grid too short"
    elif misfit > MISFIT or any(more < 0 for more in memory.values()):
        word, chosen = "law wrong at every K", len(unlike)
    else:
        reasons = _doubts(strict, sizes, k1, k2, most, unlike, memory, held)
        word = "unsure" if reasons else "confident"
    rows = tuple(
        {
            "law": law.name,
            "num_components": k,
            "log_likelihood": one.log_likelihood,
            "num_parameters": one.num_parameters,
            "bic": strict[k],
            "lenient": lenient[k],
            "held_out": foretold.get(k, math.nan),
            "chosen": k == k2,
        }
        for k, one in own.items()
    )
    return HowManyOptions(
        num_components=chosen,
        law=law.name,
        word=word,
        interval=(min(k1, k2), max(k1, k2, most)),
        reasons=tuple(reasons),
        misfit=misfit,
        held_out=max(foretold, key=foretold.__getitem__) if foretold else None,
        rows=rows,
        fits=fits,
        unseen=UNSEEN,
        smallest_seen={},
        detectable_variance=math.inf if used < FEW_ROWS else math.nan,
        climb=None,
        unlike=unlike,
        memory=memory,
    )


UNSEEN = (
    "Two options that act alike, an option that is on for few steps in all, and one that is left"
    " again within a few steps may have been missed; of what was done before, only the last action"
    " and the last state were tried in the place of options."
)


def unlike_options(one: Fit, packed: Tensor) -> tuple[tuple[int, ...], ...]:
    """Options of a fit, those together whose policies the data do not tell apart.

    Args:
        one: the fit; packed: its sequences, (B, T, 2).
    """
    counts = _expected_actions(one, packed)
    groups: list[tuple[int, ...]] = [(o,) for o in range(len(counts))]
    while len(groups) > 1:
        excess = {
            (i, j): _told_apart(counts[i], counts[j]) for i in range(len(groups)) for j in range(i)
        }
        i, j = min(excess, key=excess.__getitem__)
        if excess[i, j] > 0:
            break
        counts[j] = counts[j] + counts[i]
        groups[j] = (*groups[j], *groups[i])
        del counts[i], groups[i]
    return tuple(tuple(sorted(group)) for group in groups)


def _expected_actions(one: Fit, packed: Tensor) -> list[Tensor]:
    """Expected steps of every option, by state and action, (S, A) each."""
    chance = smooth_options(one, packed).option.double()  # (B, T, O)
    structure = one.structure
    assert isinstance(structure, OptionsStructure)
    num_states, num_actions = structure.about.num_states, structure.about.num_actions
    state, action = packed[:, : chance.shape[1]].long().cpu().unbind(-1)
    known = (state >= 0) & (action >= 0)
    table = torch.zeros(num_states * num_actions, chance.shape[-1], dtype=torch.float64)
    table.index_add_(0, (state * num_actions + action)[known], chance[known])
    return list(table.T.reshape(-1, num_states, num_actions))


def _told_apart(one: Tensor, other: Tensor) -> float:
    """Deviance that two policies gain over one, less three times what they have more parameters, in
    states that both are in.
    """
    both = torch.minimum(one.sum(-1), other.sum(-1)) > LEAST_STEPS
    gain = 2 * (_log_likelihood(one) + _log_likelihood(other) - _log_likelihood(one + other))
    return float(gain[both].sum()) - LENIENT_PRICE * (one.shape[-1] - 1) * int(both.sum())


def _log_likelihood(counts: Tensor) -> Tensor:
    """Of a free policy, (S,)."""
    return torch.special.xlogy(counts, counts).sum(-1) - torch.special.xlogy(
        counts.sum(-1), counts.sum(-1)
    )


def _memory(one: Fit, packed: Tensor, best: float) -> dict[str, float]:
    structure = one.structure
    assert isinstance(structure, OptionsStructure)
    values = {
        name: memory_bic(packed, structure.about.num_states, structure.about.num_actions, name)
        for name in MEMORIES
    }
    return {name: value - best for name, value in values.items() if value is not None}


def _foretold(held: Mapping[int, Tensor]) -> dict[int, float]:
    """Mean over sequences of the log-likelihood of held-out actions, those that some fit gives no
    chance left out.
    """
    if not held:
        return {}
    fine = torch.stack(list(held.values())).isfinite().all(0)
    return {k: float(value[fine].mean()) for k, value in held.items()} if bool(fine.any()) else {}


def _doubts(
    strict: Mapping[int, float],
    sizes: Sequence[int],
    k1: int,
    k2: int,
    most: int,
    unlike: Sequence[Sequence[int]],
    memory: Mapping[str, float],
    held: Mapping[int, Tensor],
) -> list[str]:
    """Why one cannot be confident, a sentence each."""
    found = []
    if k1 != k2:
        found.append(f"a strict penalty would take {k1}")
    if most > k2:
        found.append(f"Akaike's criterion, which asks least of an option, would take {most}")
    rival = min((k for k in sizes if k != k1), key=lambda k: strict[k])
    if k1 == k2 and strict[rival] < strict[k1] + CLEAR:
        found.append(
            f"{k1} leads {rival} by {strict[rival] - strict[k1]:.1f} in BIC only, where 10 would be"
            " clear"
        )
    if len(unlike) < k2:
        found.append(
            f"of the {k2} options only {len(unlike)} act differently, so that some may be stages"
            " of one"
        )
    for name, more in memory.items():
        if more < CLEAR:
            found.append(
                f"a policy without options that looks at the {name} of the step before is as good"
                f" but for {more:.1f} in BIC"
            )
    if (other := _better_foretold(held, k2)) is not None:
        found.append(f"sequences left out of the fits are foretold better by {other}")
    if min(k1, k2) == sizes[0] > 1:
        found.append("smaller numbers were not compared")
    return found


def _better_foretold(held: Mapping[int, Tensor], chosen: int) -> int | None:
    """The number that foretells held-out actions best, if by more than two standard errors of the
    mean difference over sequences.
    """
    foretold = _foretold(held)
    if not foretold:
        return None
    best = max(foretold, key=foretold.__getitem__)
    difference = held[best] - held[chosen]
    difference = difference[difference.isfinite()]
    error = (
        float(difference.std()) / math.sqrt(max(len(difference), 1))
        if len(difference) > 1
        else math.inf
    )
    return best if best != chosen and float(difference.mean()) > BETTER * error else None
