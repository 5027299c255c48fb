r"""How many components of which law a mixture has, or states a hidden Markov model, and how many
groups of rows, or of steps, they make.

With P free parameters and N rows, over all laws and numbers the smallest

.. math:: B = -2 L + P \log N

(Schwarz 1978, doi:10.1214/aos/1176344136). If the noise of every component at that choice looks as
the law says, by ACDC's discrepancies against tables simulated and fitted again, the number counts
components. Otherwise, or at the end of the grid, components are patches: what can be counted are
the groups left when components that overlap are merged (Hennig 2010,
doi:10.1007/s11634-010-0058-3). To be sure, the lenient penalty :math:`-2 L + 3 P` (Bozdogan 1994)
must choose the same number, and no two components may overlap much: two that do, and one group of
another shape, give the same data.

Of hidden Markov models N counts the steps that have entries, and overlap is that of states given
the whole sequence. Where visits do not last geometrically, or rows of a visit hang together, the
smallest B takes patches too (Pohle et al. 2017, doi:10.1007/s13253-017-0283-8): the noise of rows,
of pairs of them and of durations (:mod:`inference.structures.hidden_markov.noise`) says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from inference.selection.order_selection.answer import Word
from inference.selection.order_selection.candidates import Law
from inference.selection.order_selection.detectability import MISFIT, detectable_variance
from inference.selection.order_selection.grid_fits import Paths
from inference.selection.order_selection.groups import entropy, groups_of
from inference.selection.order_selection.groups_answer import HowManyGroups, HowManyStates
from inference.selection.order_selection.groups_paths import shares_of
from inference.selection.order_selection.misfit import FEW_ROWS, misfit_of
from inference.structures.hidden_markov.structure import HiddenMarkovStructure
from inference.structures.mixture.structure import MixtureStructure

CLEAR = 10.0  # a lead of B that leaves no doubt (Kass and Raftery 1995: very strong)
LENIENT_PRICE = 3.0  # of a parameter
UNORDERED = {"Bernoulli", "categorical"}  # laws of answers that have no scale
Key = tuple[str, int]


def answer_of_groups(
    laws: Sequence[Law], sizes: Sequence[int], fits: Paths, data: Any, seed: int
) -> HowManyGroups:
    """The rule, where every law has been fitted at every number.

    Args:
        laws: those compared; sizes: numbers, rising; fits: by law and number.
        data: the rows; seed: of the check of the noise.
    """
    first = next(iter(fits.values()))
    n = first.num_observations or first.num_rows
    of_states = laws[0].kind == "chain"
    strict = {
        key: -2 * one.log_likelihood + one.num_parameters * math.log(n) for key, one in fits.items()
    }
    lenient = {
        key: -2 * one.log_likelihood + LENIENT_PRICE * one.num_parameters
        for key, one in fits.items()
    }
    shares = {key: shares_of(one, data) for key, one in fits.items()}
    proper = {key for key, one in fits.items() if not one.restarts.faults} or set(fits)
    law, k1 = min(proper, key=lambda key: (strict[key], key[1]))
    k2 = min((key for key in proper if key[0] == law), key=lambda key: (lenient[key], key[1]))[1]
    misfit, used = misfit_of(fits[law, k1], data, seed)
    groups = groups_of(shares[law, k1])
    word: Word
    reasons: list[str] = []
    if k1 == sizes[-1]:  # a misfit may be for want of components
        word, chosen = "grid too short", groups.num_separated
    elif misfit > MISFIT:
        word, chosen = "law wrong at every K", groups.num_separated
    else:
        chosen = k1
        reasons = _doubts(
            {key: strict[key] for key in proper},
            sizes,
            k1,
            k2,
            groups.num_clear,
            "states" if of_states else "components",
        )
        if n < FEW_ROWS:
            reasons.append(f"{n} {'steps' if of_states else 'rows'} are too few to test a law")
        word = "unsure" if reasons else "confident"
    rows = tuple(
        {
            "law": key[0],
            "num_components": key[1],
            "log_likelihood": one.log_likelihood,
            "num_parameters": one.num_parameters,
            "bic": strict[key],
            "lenient": lenient[key],
            "icl": strict[key] + 2 * entropy(shares[key]),
            "proper": key in proper,
            "chosen": key == (law, k1),
        }
        for key, one in fits.items()
    )
    structure = fits[law, k1].structure
    assert isinstance(structure, MixtureStructure | HiddenMarkovStructure)
    tested = (
        math.inf
        if used < FEW_ROWS
        else math.nan
        if of_states
        else detectable_variance(int(used), structure.law.num_scores)
    )
    return (HowManyStates if of_states else HowManyGroups)(
        num_components=chosen,
        law=law,
        word=word,
        interval=(min(k1, k2), max(k1, k2)),
        reasons=tuple(reasons),
        misfit=misfit,
        held_out=None,
        rows=rows,
        fits=fits,
        unseen=_unseen(laws, of_states),
        smallest_seen={},
        detectable_variance=tested,
        climb=None,
        groups=groups,
    )


def _doubts(
    strict: dict[Key, float], sizes: Sequence[int], k1: int, k2: int, num_clear: int, nouns: str
) -> list[str]:
    """Why one cannot be confident, a sentence each."""
    found = []
    if k1 != k2:
        found.append(f"a lenient penalty would take {k2}")
    best = min(value for (_, k), value in strict.items() if k == k1)
    rival = min(((value, k) for (_, k), value in strict.items() if k != k1), default=(math.inf, 0))
    if rival[0] < best + CLEAR:
        found.append(
            f"{k1} leads {rival[1]} by {rival[0] - best:.1f} in BIC only, where 10 would be clear"
        )
    if num_clear < k1:
        found.append(
            f"{nouns} overlap, so that they make {num_clear} clear"
            f" group{'' if num_clear == 1 else 's'} only, of another shape perhaps"
        )
    if k1 == sizes[0] > 1:
        found.append("smaller numbers were not compared")
    return found


def _unseen(laws: Sequence[Law], of_states: bool) -> str:
    names = [law.name for law in laws]
    listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
    if of_states:
        return (
            "Two states that overlap and follow each other, and one state with another law of rows"
            f" or of durations, give the same data, so that only the laws offered ({listed}) tell"
            " them apart; a state that lasts for few steps in all may have been missed."
        )
    near = (
        "one whose answers differ little from another's"
        if set(names) <= UNORDERED
        else "one closer to another than about two standard deviations"
    )
    return (
        "Two components that overlap and one group of another shape give the same data, so that"
        f" only the laws offered ({listed}) tell them apart; {near} may have been missed."
    )
