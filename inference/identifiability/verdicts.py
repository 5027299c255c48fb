"""From the conditions to a verdict on one layer, how near it is to changing, and what would better
it; plain arrays.

Conditions A and B are decided in :mod:`inference.identifiability.conditions`, C in
:mod:`inference.identifiability.coverage`; names and words are in
:mod:`inference.identifiability.check`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from inference.identifiability.conditions import (
    Separation,
    exclusive_children,
    rest_of,
    separate,
    undetermined,
)
from inference.identifiability.coverage import (
    Coverage,
    HallViolator,
    best_gain,
    cover,
    hall_violators,
)
from ppl_models.parts.repr import shows_briefly

Bottom = Literal["additive", "dina", "gdm"]
VERDICTS = ("not established", "generic", "strict")  # weakest first
MAX_TABLE_LATENTS = 12


@shows_briefly
@dataclass(frozen=True)
class Decision:
    """The verdict on one layer with everything it rests on.

    Args:
        verdict: "strict", "generic" or "not established".
        exclusive: for each latent the children that depend on it alone.
        a_holds: condition A.
        b_holds: condition B (B' for "dina" and "gdm"); None where it was not looked at because A
            fails, or could not be decided (without values, or by bounds that do not meet).
        separation: how far B holds, where it was measured, or which pair breaks it.
        coverage: condition C; None for "dina", where it proves nothing.
        hall: sets of latents with too few children, where C fails.
    """

    verdict: str
    exclusive: tuple[tuple[int, ...], ...]
    a_holds: bool
    b_holds: bool | None
    separation: Separation | None
    coverage: Coverage | None
    hall: tuple[HallViolator, ...]


@dataclass(frozen=True)
class EntryChange:
    """One loading whose being an edge or not decides the verdict.

    Args:
        child, latent: its place.
        loading: its value.
        verdict: the layer's verdict if it changed sides.
    """

    child: int
    latent: int
    loading: float
    verdict: str


@dataclass(frozen=True)
class Repair:
    """Children whose addition would better the verdict.

    Args:
        target: the verdict then.
        new_children: for each new child the latents it depends on: exactly these for "strict", at
            least these for "generic".
        is_least: whether fewer would not do; otherwise these are enough.
    """

    target: str
    new_children: tuple[tuple[int, ...], ...]
    is_least: bool


# ---------------------------------------------------------------- the verdict


def decide(
    graph: np.ndarray, loadings: np.ndarray | None, bottom: Bottom, table: np.ndarray | None
) -> Decision:
    """The verdict on a layer.

    Args:
        graph: bool (J, K).
        loadings: (J, K), zero off the graph; None where only the graph is known.
        bottom: how children depend on their latents.
        table: (2^K, J) predictors by configuration, for "gdm"; None where only the graph is known.
    """
    exclusive = exclusive_children(graph)
    fewest = min(len(children) for children in exclusive)
    a_holds = fewest >= 2
    b_holds: bool | None = None
    separation: Separation | None = None
    if a_holds:
        if bottom == "additive" and loadings is not None:
            separation = separate(loadings[rest_of(graph, loadings)])
            b_holds = separation.holds
        elif bottom == "gdm" and table is not None:
            separation = _separate_table(table[:, rest_of(graph, None)])
            b_holds = separation.holds
        elif bottom == "dina":  # only an exclusive child of k tells 0 from e_k
            b_holds = fewest >= 3
        else:
            rest = graph[rest_of(graph, None)]
            silent = np.flatnonzero(~rest.any(0))
            if len(silent):  # nothing tells 0 from e_k, whatever the values
                code = tuple(int(k == silent[0]) for k in range(graph.shape[1]))
                separation = Separation(False, 0.0, True, (code, (0,) * len(code)), 0.0)
                b_holds = False
            elif fewest >= 3 or (bottom == "additive" and len(undetermined(rest)) == 0):
                b_holds = True
    coverage = None if bottom == "dina" else cover(graph)
    c_holds = coverage is not None and coverage.certificate is not None
    verdict = VERDICTS[2] if a_holds and b_holds else VERDICTS[1] if c_holds else VERDICTS[0]
    hall = () if c_holds or coverage is None else hall_violators(graph)
    rows = tuple(tuple(children.tolist()) for children in exclusive)
    return Decision(verdict, rows, a_holds, b_holds, separation, coverage, hall)


def _separate_table(table: np.ndarray) -> Separation:
    """Condition B' for predictors (2^K, num_rest) of all configurations, in lexicographic order."""
    num_configurations = len(table)
    num_latents = num_configurations.bit_length() - 1
    best, pair = float("inf"), (0, 1)
    for first in range(num_configurations - 1):
        distances = np.abs(table[first + 1 :] - table[first]).max(1, initial=0.0)
        place = int(distances.argmin())
        if distances[place] < best:
            best, pair = float(distances[place]), (first + 1 + place, first)
    holds = best > 1e-9 * float(np.abs(table).max(initial=0.0))
    first_code, second_code = (
        tuple(int(bit) for bit in np.binary_repr(code, num_latents)) for code in pair
    )
    return Separation(holds, best if holds else 0.0, True, (first_code, second_code), best)


# ---------------------------------------------------------------- how near a change is


def nearest_changes(
    graph: np.ndarray, loadings: np.ndarray, decision: Decision
) -> tuple[EntryChange | None, EntryChange | None]:
    """The smallest edge whose loss, and the largest non-edge whose gain, alone changes the verdict
    (additive layers).

    Args:
        graph: bool (J, K).
        loadings: (J, K), with the values that were too small to be edges.
        decision: the verdict on this graph.
    """
    size = np.abs(loadings)
    # fewer edges never help, and every verdict above needs C
    if decision.verdict == "not established":
        gained = best_gain(graph, size)
        if gained is None:
            return None, None
        verdict = _verdict_after(graph, loadings, decision, *gained)
        return None, EntryChange(*gained, float(loadings[gained]), verdict)
    rest = rest_of(graph, loadings * graph)
    smallest = 0.0
    if decision.verdict == "strict" and len(rest) >= graph.shape[1]:
        smallest = float(np.linalg.svd((loadings * graph)[rest], compute_uv=False)[-1])
    in_rest = np.isin(np.arange(len(graph)), rest)
    found: list[EntryChange | None] = []
    for entries, order in ((graph, size), (~graph & (loadings != 0), -size)):
        places = np.argwhere(entries)
        places = places[np.argsort(order[tuple(places.T)], kind="stable")]
        change = None
        for j, k in places:
            # the rank of the rest cannot fall
            quiet = in_rest[j] and graph[j].sum() != 1 and size[j, k] < smallest
            if quiet and (not graph[j, k] or graph[j].sum() > 2):
                continue
            verdict = _verdict_after(graph, loadings, decision, int(j), int(k))
            if verdict != decision.verdict:
                change = EntryChange(int(j), int(k), float(loadings[j, k]), verdict)
                break
        found.append(change)
    return found[0], found[1]


def _verdict_after(
    graph: np.ndarray, loadings: np.ndarray, decision: Decision, child: int, latent: int
) -> str:
    """The verdict once entry (child, latent) has changed sides, with no more work than it takes."""
    changed = graph.copy()
    changed[child, latent] = is_gain = not graph[child, latent]
    if min(len(children) for children in exclusive_children(changed)) >= 2:
        before = decision.separation
        null = before.difference if before is not None and before.holds is False else None
        same_rest = decision.a_holds and graph[child].sum() > 1 and changed[child].sum() > 1
        # else the same pair is still not told apart
        if not (null is not None and same_rest and null[latent] == 0):
            values = loadings * changed
            if separate(values[rest_of(changed, values)], with_margin=False).holds:
                return "strict"
    certificate = None if decision.coverage is None else decision.coverage.certificate
    if certificate is not None:
        used = child in (
            certificate.first[latent],
            certificate.second[latent],
            certificate.covering[latent],
        )
        if is_gain or not used:
            return "generic"
    return "generic" if cover(changed).certificate is not None else "not established"


# ---------------------------------------------------------------- what would better it


def repairs(
    graph: np.ndarray, loadings: np.ndarray | None, bottom: Bottom, decision: Decision
) -> tuple[Repair, ...]:
    """New children that would make the layer generic, and strict, where it is not."""
    out = []
    coverage = decision.coverage
    if decision.verdict == "not established" and coverage is not None and coverage.new_children:
        out.append(Repair("generic", coverage.new_children, True))
    if decision.verdict != "strict":
        out.append(_strict_repair(graph, loadings, bottom, decision))
    return tuple(out)


def _strict_repair(
    graph: np.ndarray, loadings: np.ndarray | None, bottom: Bottom, decision: Decision
) -> Repair:
    # without values a third exclusive child is what proves B'
    needed = 2 if bottom == "additive" else 3
    latents = range(graph.shape[1])
    new = [k for k in latents for _ in range(needed - len(decision.exclusive[k]))]
    num_forced = sum(max(0, 2 - len(children)) for children in decision.exclusive)
    if bottom == "additive":
        values = graph.astype(float) if loadings is None else loadings * graph
        rest = values[rest_of(graph, values)]
        while (weak := _not_told_apart(rest, loadings is None)) is not None:
            rest = np.concatenate([rest, np.eye(graph.shape[1])[[weak]]])
            new.append(weak)
    is_least = len(new) == num_forced or bottom == "dina"
    return Repair("strict", tuple((k,) for k in sorted(new)), is_least)


def _not_told_apart(rest: np.ndarray, only_graph: bool) -> int | None:
    """A latent whose configurations the remaining children do not tell apart; None if they tell
    all.
    """
    left = undetermined(rest != 0)
    if len(left) == 0:
        return None
    if not only_graph:
        separation = separate(rest, with_margin=False)
        if separation.holds:
            return None
        if separation.holds is False:
            return int(np.flatnonzero(separation.difference)[0])
    return int(left[0])
