"""The identifiability report in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from inference.identifiability import report
from inference.identifiability.verdicts import Bottom, Decision, EntryChange, Repair
from ppl_models.parts.repr import shows_briefly

MEANING = {
    "strict": (
        "up to the labels of the latents (their order, and which value is called 1), the"
        " distribution of the items determines every parameter."
    ),
    "generic": (
        "up to the labels of the latents (their order, and which value is called 1), the"
        " distribution of the items determines every parameter, outside a set of parameter values"
        " of measure zero."
    ),
    "not established": (
        "no known sufficient condition holds. That is no proof that the model is not identified."
    ),
}
MOST_NAMES = 8


def report_text(verdict: str, layers: Sequence[LayerReport], thresholds: Sequence[float]) -> str:
    """The verdict, what it means, and every layer."""
    lines = [f"Identifiability: {verdict}: {MEANING[verdict]}"]
    for d, (layer, threshold) in enumerate(zip(layers, thresholds, strict=True), start=1):
        edges = (
            f"loadings of at least {threshold:.3g} in size"
            if threshold > 0
            else "all nonzero loadings"
        )
        if layer.bottom != "additive":
            edges = "as given"
        title, *rest = layer.text().split("\n")
        lines += ["", f"Layer {d}, {title}", f"  Edges: {edges}.", *rest]
    return "\n".join(lines)


def layer_text(layer: LayerReport) -> str:
    """One layer: title line, conditions, what is missing, violations, margins, repairs."""
    sizes = (
        f"{len(layer.child_names)} {_children(layer, len(layer.child_names))},"
        f" {_count(len(layer.parent_names), 'latent')}"
    )
    lines = [f"{layer.title} ({sizes}): {layer.verdict}."]
    lines += [*_condition_a(layer), *_condition_b(layer), *_condition_c(layer), *_assumption(layer)]
    lines += [*_margins(layer), *_repairs(layer)]
    return "\n  ".join(lines)


def missing(layer: LayerReport) -> tuple[str, ...]:
    """What conditions A and C lack, one sentence a piece."""
    out = []
    needed = 3 if layer.bottom == "dina" else 2
    for k, own in enumerate(layer.decision.exclusive):
        if len(own) < needed:
            shown = f" ({_join([layer.child_names[j] for j in own])})" if own else ""
            count = f"{len(own) or 'no'} exclusive {_children(layer, len(own))}{shown}"
            out.append(f"{layer.parent_names[k]} has {count}, needs {needed}")
    coverage = layer.decision.coverage
    if coverage is None or coverage.certificate is not None:
        return tuple(out)
    for violator in layer.decision.hall:
        names = [layer.parent_names[k] for k in violator.latents]
        owners = f"{names[0]} has" if len(names) == 1 else f"{_join(names)} together have"
        children = [layer.child_names[j] for j in violator.children]
        shown = f" ({_join(children)})" if children else ""
        count = f"{len(children) or 'no'} {_children(layer, len(children))}{shown}"
        out.append(
            f"{owners} {count}, {'needs' if len(names) == 1 else 'need'} at least {violator.needed}"
        )
    if not layer.decision.hall:
        lacking = [layer.parent_names[k] for k in (*coverage.unrepresented, *coverage.uncovered)]
        out.append(
            f"two {_children(layer, 2)} that represent each latent and one more that depends on it"
            f" cannot be found for all at once; in the best choice {_join(lacking)}"
            f" {'lacks' if len(lacking) == 1 else 'lack'} one"
        )
    return tuple(out)


# ---------------------------------------------------------------- parts


def _condition_a(layer: LayerReport) -> list[str]:
    noun = _children(layer, 2)
    if layer.decision.a_holds:
        return [f"A holds: every latent has at least 2 exclusive {noun}."]
    lacking = [text for text in missing(layer) if "exclusive" in text]
    return [f"A fails: {'; '.join(_some(lacking))}."]


def _condition_b(layer: LayerReport) -> list[str]:
    decision, separation = layer.decision, layer.decision.separation
    name = "B" if layer.bottom == "additive" else "B'"
    if not decision.a_holds:
        return []
    if separation is None:
        if decision.b_holds:
            return [
                f"{name} holds whatever the values: the other {_children(layer, 2)} tell any two"
                " configurations apart."
            ]
        if layer.bottom == "dina":
            return [f"{name} fails: {'; '.join(_some(list(missing(layer))))}."]
        return [f"{name} depends on the values of the parameters, which were not given."]
    first, second = ("".join(map(str, code)) for code in separation.pair)
    pair = f"configurations {first} and {second} of the latents"
    if decision.b_holds is False:
        return [f"{name} fails: the other {_children(layer, 2)} do not tell {pair} apart."]
    if decision.b_holds is None:
        return [
            f"{name} was not decided: {pair} differ by {separation.distance:.3g} in the predictors"
            " of the others."
        ]
    least = "" if separation.is_exact else "at least "
    return [
        f"{name} holds: the other {_children(layer, 2)} tell any two configurations apart by"
        f" {least}{separation.margin:.3g} in some predictor; nearest found: {first} and {second},"
        f" {separation.distance:.3g}."
    ]


def _condition_c(layer: LayerReport) -> list[str]:
    coverage = layer.decision.coverage
    if layer.verdict == "strict":
        return []
    if coverage is None:
        return ["C was not looked at: it proves nothing for this kind of layer."]
    if coverage.certificate is None:
        return [
            "C fails:"
            f" {'; '.join(_some([text for text in missing(layer) if 'exclusive' not in text]))}."
        ]
    proof = [
        f"{name}: {layer.child_names[i]}, {layer.child_names[j]} and {layer.child_names[m]}"
        for name, i, j, m in zip(
            layer.parent_names,
            coverage.certificate.first,
            coverage.certificate.second,
            coverage.certificate.covering,
            strict=True,
        )
    ]
    return [
        f"C holds, by two {_children(layer, 2)} for each latent and one of the rest:"
        f" {'; '.join(_some(proof))}."
    ]


def _assumption(layer: LayerReport) -> list[str]:
    out, sums = [], []
    for violation in layer.violations:
        names = _join([layer.parent_names[k] for k in violation.latents])
        if violation.kind == "empty column":
            out.append(f"Assumption 1: no {_children(layer, 1)} depends on {names}.")
        elif violation.kind == "proportion on its bound":
            out.append(
                f"Assumption 1: the proportion of {names} is {violation.value:.3g}, on its bound:"
                " it is constant."
            )
        elif violation.kind == "equal columns":
            out.append(
                f"Assumption 1: the loadings of {names} are equal up to sign; at these values"
                " nothing tells the two apart."
            )
        elif violation.kind == "not the highest":
            items = _join([layer.child_names[j] for j in violation.children])
            out.append(
                f"Sign rule: the predictor of {items} is not highest where all of its latents are"
                " 1; the verdict supposes that it is."
            )
        else:
            sums.append(f"{names} ({violation.value:.3g})")
    if sums:
        out.append(
            "Assumption 1(c), a matter only of which value is called 1: the loadings do not sum to"
            f" a positive number for {_join(sums)}."
        )
    return out


def _margins(layer: LayerReport) -> list[str]:
    out = []
    for change, found in (
        (layer.smallest_edge, "without the edge"),
        (layer.largest_gap, "with an edge"),
    ):
        if change is not None:
            where = f"from {layer.parent_names[change.latent]} to {layer.child_names[change.child]}"
            out.append(
                f"Nearest to a change: {found} {where} (loading {change.loading:.3g}) the layer is"
                f" {change.verdict}."
            )
    return out


def _repairs(layer: LayerReport) -> list[str]:
    out = []
    for repair in layer.repairs:
        if not repair.new_children:
            continue
        counts = Counter(repair.new_children)
        alone = " alone" if repair.target == "strict" else ""
        parts = [
            f"{n} on {_join([layer.parent_names[k] for k in latents])}{alone}"
            for latents, n in counts.items()
        ]
        number = len(repair.new_children)
        enough = "the fewest that do" if repair.is_least else "enough, perhaps not the fewest"
        out.append(
            f"To make it {repair.target}: add {number} {_children(layer, number)} ({enough}):"
            f" {'; '.join(_some(parts))}."
        )
    return out


def _children(layer: LayerReport, number: int) -> str:
    plural = {"item": "items", "child": "children"}[layer.child_noun]
    return layer.child_noun if number == 1 else plural


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _join(names: Sequence[str]) -> str:
    shown = _some(list(names))
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _some(texts: list[str]) -> list[str]:
    if len(texts) <= MOST_NAMES:
        return texts
    return [*texts[: MOST_NAMES - 1], f"{len(texts) - MOST_NAMES + 1} more"]


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
    """The verdict on one layer and what it rests on; latents and children by number, named by the
    two tuples of names.

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
        """What is missing for a better verdict, in words, one sentence a piece."""
        return report.missing(self)

    def text(self) -> str:
        """The report on this layer in words."""
        return report.layer_text(self)

    def to_dict(self) -> dict[str, Any]:
        """The report on this layer as plain JSON values; latents and children by number."""
        fields = ("title", "verdict", "child_names", "parent_names", "bottom")
        record = {name: getattr(self, name) for name in fields}
        record |= asdict(self.decision)
        record |= {
            "violations": [asdict(violation) for violation in self.violations],
            "smallest_edge": None if self.smallest_edge is None else asdict(self.smallest_edge),
            "largest_gap": None if self.largest_gap is None else asdict(self.largest_gap),
            "repairs": [asdict(repair) for repair in self.repairs],
            "missing": self.missing,
        }
        return plain_values(record)


@shows_briefly
@dataclass(frozen=True)
class IdentifiabilityReport:
    """The verdict on a model.

    Args:
        verdict: that of the weakest layer.
        layers: one report a layer, bottom-up.
        thresholds: the least size of an edge in each layer; 0 where every nonzero loading is one.
    """

    verdict: str
    layers: tuple[LayerReport, ...]
    thresholds: tuple[float, ...]

    def text(self) -> str:
        """The report in words."""
        return report.report_text(self.verdict, self.layers, self.thresholds)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        layers = [layer.to_dict() for layer in self.layers]
        return {
            "verdict": self.verdict,
            "thresholds": list(self.thresholds),
            "layers": layers,
            "text": self.text(),
        }


def plain_values(value: Any) -> Any:
    """JSON values only: tuples become lists, numbers that are not finite become None."""
    if isinstance(value, dict):
        return {key: plain_values(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(part) for part in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
