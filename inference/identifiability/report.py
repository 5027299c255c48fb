"""The identifiability report in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inference.identifiability.check import LayerReport

__all__ = ["layer_text", "missing", "report_text"]

MEANING = {
    "strict": "up to the labels of the latents (their order, and which value is called 1), the distribution of the "
    "items determines every parameter.",
    "generic": "up to the labels of the latents (their order, and which value is called 1), the distribution of the "
    "items determines every parameter, outside a set of parameter values of measure zero.",
    "not established": "no known sufficient condition holds. That is no proof that the model is not identified.",
}
MOST_NAMES = 8


def report_text(verdict: str, layers: Sequence[LayerReport], thresholds: Sequence[float]) -> str:
    """The verdict, what it means, and every layer."""
    lines = [f"Identifiability: {verdict}: {MEANING[verdict]}"]
    for d, (layer, threshold) in enumerate(zip(layers, thresholds, strict=True), start=1):
        edges = f"loadings of at least {threshold:.3g} in size" if threshold > 0 else "all nonzero loadings"
        if layer.bottom != "additive":
            edges = "as given"
        title, *rest = layer.text().split("\n")
        lines += ["", f"Layer {d}, {title}", f"  Edges: {edges}.", *rest]
    return "\n".join(lines)


def layer_text(layer: LayerReport) -> str:
    """One layer: title line, conditions, what is missing, violations, margins, repairs."""
    sizes = f"{len(layer.child_names)} {_children(layer, len(layer.child_names))}, {_count(len(layer.parent_names), 'latent')}"
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
        out.append(f"{owners} {count}, {'needs' if len(names) == 1 else 'need'} at least {violator.needed}")
    if not layer.decision.hall:
        lacking = [layer.parent_names[k] for k in (*coverage.unrepresented, *coverage.uncovered)]
        out.append(
            f"two {_children(layer, 2)} that represent each latent and one more that depends on it cannot be found for "
            f"all at once; in the best choice {_join(lacking)} {'lacks' if len(lacking) == 1 else 'lack'} one"
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
                f"{name} holds whatever the values: the other {_children(layer, 2)} tell any two configurations apart."
            ]
        if layer.bottom == "dina":
            return [f"{name} fails: {'; '.join(_some(list(missing(layer))))}."]
        return [f"{name} depends on the values of the parameters, which were not given."]
    first, second = ("".join(map(str, code)) for code in separation.pair)
    pair = f"configurations {first} and {second} of the latents"
    if decision.b_holds is False:
        return [f"{name} fails: the other {_children(layer, 2)} do not tell {pair} apart."]
    if decision.b_holds is None:
        return [f"{name} was not decided: {pair} differ by {separation.distance:.3g} in the predictors of the others."]
    least = "" if separation.is_exact else "at least "
    return [
        f"{name} holds: the other {_children(layer, 2)} tell any two configurations apart by {least}"
        f"{separation.margin:.3g} in some predictor; nearest found: {first} and {second}, {separation.distance:.3g}."
    ]


def _condition_c(layer: LayerReport) -> list[str]:
    coverage = layer.decision.coverage
    if layer.verdict == "strict":
        return []
    if coverage is None:
        return ["C was not looked at: it proves nothing for this kind of layer."]
    if coverage.certificate is None:
        return [f"C fails: {'; '.join(_some([text for text in missing(layer) if 'exclusive' not in text]))}."]
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
    return [f"C holds, by two {_children(layer, 2)} for each latent and one of the rest: {'; '.join(_some(proof))}."]


def _assumption(layer: LayerReport) -> list[str]:
    out, sums = [], []
    for violation in layer.violations:
        names = _join([layer.parent_names[k] for k in violation.latents])
        if violation.kind == "empty column":
            out.append(f"Assumption 1: no {_children(layer, 1)} depends on {names}.")
        elif violation.kind == "proportion on its bound":
            out.append(
                f"Assumption 1: the proportion of {names} is {violation.value:.3g}, on its bound: it is constant."
            )
        elif violation.kind == "equal columns":
            out.append(
                f"Assumption 1: the loadings of {names} are equal up to sign; at these values nothing tells the two apart."
            )
        elif violation.kind == "not the highest":
            items = _join([layer.child_names[j] for j in violation.children])
            out.append(
                f"Sign rule: the predictor of {items} is not highest where all of its latents are 1; the verdict supposes that "
                "it is."
            )
        else:
            sums.append(f"{names} ({violation.value:.3g})")
    if sums:
        out.append(
            f"Assumption 1(c), a matter only of which value is called 1: the loadings do not sum to a positive number for "
            f"{_join(sums)}."
        )
    return out


def _margins(layer: LayerReport) -> list[str]:
    out = []
    for change, found in ((layer.smallest_edge, "without the edge"), (layer.largest_gap, "with an edge")):
        if change is not None:
            where = f"from {layer.parent_names[change.latent]} to {layer.child_names[change.child]}"
            out.append(
                f"Nearest to a change: {found} {where} (loading {change.loading:.3g}) the layer is {change.verdict}."
            )
    return out


def _repairs(layer: LayerReport) -> list[str]:
    out = []
    for repair in layer.repairs:
        if not repair.new_children:
            continue
        counts = Counter(repair.new_children)
        alone = " alone" if repair.target == "strict" else ""
        parts = [f"{n} on {_join([layer.parent_names[k] for k in latents])}{alone}" for latents, n in counts.items()]
        number = len(repair.new_children)
        enough = "the fewest that do" if repair.is_least else "enough, perhaps not the fewest"
        out.append(
            f"To make it {repair.target}: add {number} {_children(layer, number)} ({enough}): {'; '.join(_some(parts))}."
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
