"""Verdict on one layer, its margins and repairs, and the report in words.

The conditions are decided in :mod:`inference.identifiability.conditions`; sites of a fit become
graphs and loadings in :mod:`inference.identifiability.check`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from inference.identifiability.conditions import (
    Coverage,
    HallViolator,
    Separation,
    best_gain,
    cover,
    exclusive_children,
    hall_violators,
    rest_of,
    separate,
    undetermined,
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
    """Condition B' for predictors (2^K, num_rest) of all configurations."""
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
    """Smallest edge and largest gap that alone change the verdict (additive layers).

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
    """Verdict once entry (child, latent) has changed sides, at the least cost."""
    changed = graph.copy()
    changed[child, latent] = is_gain = not graph[child, latent]
    if min(len(children) for children in exclusive_children(changed)) >= 2:
        before = decision.separation
        null = before.difference if before is not None and before.holds is False else None
        same_rest = decision.a_holds and graph[child].sum() > 1 and changed[child].sum() > 1
        # else the same pair is still confounded
        if not (null is not None and same_rest and null[latent] == 0):
            values = loadings * changed
            if separate(values[rest_of(changed, values)], with_margin=False).holds:
                return "strict"
    certificate = None if decision.coverage is None else decision.coverage.certificate
    if certificate is not None:
        proof = (certificate.first, certificate.second, certificate.covering)
        if is_gain or child not in [rows[latent] for rows in proof]:
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
        while (weak := _indistinct_column(rest, loadings is None)) is not None:
            rest = np.concatenate([rest, np.eye(graph.shape[1])[[weak]]])
            new.append(weak)
    is_least = len(new) == num_forced or bottom == "dina"
    return Repair("strict", tuple((k,) for k in sorted(new)), is_least)


def _indistinct_column(rest: np.ndarray, only_graph: bool) -> int | None:
    """Latent that the remaining children leave undetermined; None if there is none."""
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


DETERMINES = "the distribution of the items determines every parameter"
ALMOST = f"{DETERMINES}, outside a set of parameter values of measure zero"
LABELS = "up to the labels of the latents (their order, and which value is called 1), "
MEANING = {
    "strict": f"{LABELS}{DETERMINES}.",
    "generic": f"{LABELS}{ALMOST}.",
    "not established": (
        "no known sufficient condition holds. That is no proof that the model is not identified."
    ),
}
MOST_NAMES = 8
PLURALS = {"item": "items", "child": "children"}
# sentence on a violation of each kind, from the names of its latents and children, and its value
VIOLATIONS = {
    "empty column": "Assumption 1: no {noun} depends on {names}.",
    "proportion on its bound": (
        "Assumption 1: the proportion of {names} is {value:.3g}, on its bound: it is constant."
    ),
    "equal columns": (
        "Assumption 1: the loadings of {names} are equal up to sign; at these values nothing"
        " distinguishes the two."
    ),
    "not the highest": (
        "Sign rule: the predictor of {children} is not highest where all of its latents are 1; the"
        " verdict supposes that it is."
    ),
}


@dataclass(frozen=True)
class Violation:
    """A part of Assumption 1 that the parameters do not meet.

    Args:
        kind: "empty column", "proportion on its bound", "equal columns", "not the highest" or
            "column sum not positive"; the last is a matter of labels only (see
            :func:`inference.structures.layers.align.canonical_signs`).
        latents: the latents concerned.
        value: the proportion or the sum, where there is one.
        children: the children concerned, of "not the highest": the predictor with all of their
            latents is not above that with any other configuration, the sign rule of conjunctions
            and interactions.
    """

    kind: str
    latents: tuple[int, ...]
    value: float | None = None
    children: tuple[int, ...] = ()


@shows_briefly
@dataclass(frozen=True)
class LayerReport:
    """Verdict on one layer with its grounds; latents and children are numbers.

    Args:
        title: what the layer is.
        verdict: "strict", "generic" or "not established".
        child_names, parent_names: names of the children (J) and of the latents (K).
        child_noun: what a child is called in the text.
        bottom: "additive", "dina" or "gdm".
        decision: conditions A, B and C with their proofs.
        violations: of Assumption 1.
        smallest_edge: the smallest loading that is an edge and whose loss alone changes the
            verdict; None if no single loss does, or only the graph is known.
        largest_gap: the largest loading that is no edge and whose counting as one alone changes the
            verdict.
        repairs: children to add for a better verdict.
    """

    title: str
    verdict: str
    child_names: tuple[str, ...]
    parent_names: tuple[str, ...]
    child_noun: str
    bottom: Bottom
    decision: Decision
    violations: tuple[Violation, ...]
    smallest_edge: EntryChange | None
    largest_gap: EntryChange | None
    repairs: tuple[Repair, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Sentences on what conditions A and C lack."""
        return (*self._lacking_a(), *self._lacking_c())

    def text(self) -> str:
        """Report in words: title, conditions, violations, margins, repairs."""
        num_children, num_latents = len(self.child_names), len(self.parent_names)
        sizes = (
            f"{num_children} {self._noun(num_children)}, {num_latents}"
            f" latent{'' if num_latents == 1 else 's'}"
        )
        lines = [f"{self.title} ({sizes}): {self.verdict}.", self._condition_a()]
        lines += [*self._condition_b(), *self._condition_c(), *self._assumption()]
        return "\n  ".join([*lines, *self._margins(), *self._repairs()])

    def to_dict(self) -> dict[str, Any]:
        """Report as plain JSON values; latents and children by number."""
        record = asdict(self)
        record |= record.pop("decision") | {"missing": self.missing}
        del record["child_noun"]
        return plain_values(record)

    def _noun(self, number: int) -> str:
        return self.child_noun if number == 1 else PLURALS[self.child_noun]

    def _parents(self, latents: Sequence[int]) -> str:
        return join([self.parent_names[k] for k in latents])

    def _count(self, children: Sequence[int], kind: str = "") -> str:
        shown = f" ({join([self.child_names[j] for j in children])})" if children else ""
        return f"{len(children) or 'no'} {kind}{self._noun(len(children))}{shown}"

    def _lacking_a(self) -> list[str]:
        needed = 3 if self.bottom == "dina" else 2
        return [
            f"{name} has {self._count(children, 'exclusive ')}, needs {needed}"
            for name, children in zip(self.parent_names, self.decision.exclusive, strict=True)
            if len(children) < needed
        ]

    def _lacking_c(self) -> list[str]:
        coverage = self.decision.coverage
        if coverage is None or coverage.certificate is not None:
            return []
        if self.decision.hall:
            return [
                f"{self._parents(v.latents)} {'has' if len(v.latents) == 1 else 'together have'}"
                f" {self._count(v.children)}, {'needs' if len(v.latents) == 1 else 'need'} at least"
                f" {v.needed}"
                for v in self.decision.hall
            ]
        latents = (*coverage.unrepresented, *coverage.uncovered)
        return [
            f"two {self._noun(2)} that represent each latent and one more that depends on it cannot"
            f" be found for all at once; in the best choice {self._parents(latents)}"
            f" {'lacks' if len(latents) == 1 else 'lack'} one"
        ]

    def _condition_a(self) -> str:
        if self.decision.a_holds:
            return f"A holds: every latent has at least 2 exclusive {self._noun(2)}."
        return f"A fails: {'; '.join(some(self._lacking_a()))}."

    def _condition_b(self) -> list[str]:
        decision, separation = self.decision, self.decision.separation
        name, others = "B" if self.bottom == "additive" else "B'", f"the other {self._noun(2)}"
        if not decision.a_holds:
            return []
        if separation is None:
            if decision.b_holds:
                why = f"holds whatever the values: {others} distinguish any two configurations"
            elif self.bottom == "dina":
                why = f"fails: {'; '.join(some(self.missing))}"
            else:
                why = "depends on the values of the parameters, which were not given"
            return [f"{name} {why}."]
        first, second = map(_on, separation.pair)
        pair = f"configurations with latents {first} and {second} on"
        if decision.b_holds is False:
            return [f"{name} fails: {others} do not distinguish {pair}."]
        if decision.b_holds is None:
            return [
                f"{name} was not decided: {pair} differ by {separation.distance:.3g} in the"
                " predictors of the others."
            ]
        least = "" if separation.is_exact else "at least "
        return [
            f"{name} holds: {others} distinguish any two configurations by"
            f" {least}{separation.margin:.3g} in some predictor; nearest found: latents {first} and"
            f" {second} on, {separation.distance:.3g}."
        ]

    def _condition_c(self) -> list[str]:
        coverage = self.decision.coverage
        if self.verdict == "strict":
            return []
        if coverage is None:
            return ["C was not looked at: it proves nothing for this kind of layer."]
        if coverage.certificate is None:
            return [f"C fails: {'; '.join(some(self._lacking_c()))}."]
        rows = zip(*asdict(coverage.certificate).values(), strict=True)
        proof = [
            f"{name}: {self.child_names[i]}, {self.child_names[j]} and {self.child_names[m]}"
            for name, (i, j, m) in zip(self.parent_names, rows, strict=True)
        ]
        return [
            f"C holds, by two {self._noun(2)} for each latent and one of the rest:"
            f" {'; '.join(some(proof))}."
        ]

    def _assumption(self) -> list[str]:
        lines, sums = [], []
        for violation in self.violations:
            names = self._parents(violation.latents)
            if violation.kind in VIOLATIONS:
                children = [self.child_names[j] for j in violation.children]
                words = {"noun": self._noun(1), "names": names, "children": join(children)}
                lines.append(VIOLATIONS[violation.kind].format(value=violation.value, **words))
            else:
                sums.append(f"{names} ({violation.value:.3g})")
        if sums:
            lines.append(
                "Assumption 1(c), a matter only of which value is called 1: the loadings do not sum"
                f" to a positive number for {join(sums)}."
            )
        return lines

    def _margins(self) -> list[str]:
        changes = ((self.smallest_edge, "without the"), (self.largest_gap, "with an"))
        return [
            f"Nearest to a change: {how} edge from {self.parent_names[change.latent]} to"
            f" {self.child_names[change.child]} (loading {change.loading:.3g}) the layer is"
            f" {change.verdict}."
            for change, how in changes
            if change is not None
        ]

    def _repairs(self) -> list[str]:
        lines = []
        for repair in self.repairs:
            number = len(repair.new_children)
            if not number:
                continue
            alone = " alone" if repair.target == "strict" else ""
            parts = [
                f"{n} on {self._parents(latents)}{alone}"
                for latents, n in Counter(repair.new_children).items()
            ]
            enough = "the fewest that do" if repair.is_least else "enough, perhaps not the fewest"
            lines.append(
                f"To make it {repair.target}: add {number} {self._noun(number)} ({enough}):"
                f" {'; '.join(some(parts))}."
            )
        return lines


@shows_briefly
@dataclass(frozen=True)
class IdentifiabilityReport:
    """Verdict on a model.

    Args:
        verdict: that of the weakest layer.
        layers: one report a layer, bottom-up.
        thresholds: the least size of an edge in each layer; 0 where every nonzero loading is one.
    """

    verdict: str
    layers: tuple[LayerReport, ...]
    thresholds: tuple[float, ...]

    def text(self) -> str:
        """Report in words: the verdict, its meaning, and every layer."""
        lines = [f"Identifiability: {self.verdict}: {MEANING[self.verdict]}"]
        pairs = zip(self.layers, self.thresholds, strict=True)
        for d, (layer, threshold) in enumerate(pairs, start=1):
            edges = "all nonzero loadings" if layer.bottom == "additive" else "as given"
            if layer.bottom == "additive" and threshold > 0:
                edges = f"loadings of at least {threshold:.3g} in size"
            title, *rest = layer.text().split("\n")
            lines += ["", f"Layer {d}, {title}", f"  Edges: {edges}.", *rest]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Report as plain JSON values."""
        return {
            "verdict": self.verdict,
            "thresholds": list(self.thresholds),
            "layers": [layer.to_dict() for layer in self.layers],
            "text": self.text(),
        }


def some(texts: Sequence[str], most: int = MOST_NAMES) -> list[str]:
    """Texts up to a number, the last of them counting those left out."""
    texts = list(texts)
    if len(texts) <= most:
        return texts
    return [*texts[: most - 1], f"{len(texts) - most + 1} more"]


def _on(code: Iterable[int]) -> str:
    """Latents that are on in a configuration, by number, such as {0, 2}."""
    return f"{{{', '.join(str(k) for k, bit in enumerate(code) if bit)}}}"


def join(names: Sequence[str]) -> str:
    """Names as an enumeration, at most eight of them; "" for none."""
    shown = some(names)
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


def plain_values(value: Any) -> Any:
    """Plain JSON values: tuples become lists, numbers that are not finite become None."""
    if isinstance(value, dict):
        return {key: plain_values(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(part) for part in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
