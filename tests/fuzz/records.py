"""Models, engines and their parts, drawn from the fields of the public dataclasses: new ones and
new fields come in by themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from typing import Any

import numpy as np
import pandas as pd
from fuzz.draw import Draw

import inference
import ppl_models

LARGE = 24  # a default above it is a number of iterations or draws, and is drawn small
LEAST = {
    "warmup_steps": 20,
    "num_samples": 4,
    "num_steps": 10,
    "num_draws": 4,
    "num_chains": 1,
    "batch_size": 2,
    "num_replicates": 2,
}


def public_records(package: Any) -> dict[str, type]:
    """The dataclasses among the public names of a package."""
    found = {name: getattr(package, name) for name in dir(package)}
    return {
        name: kind
        for name, kind in found.items()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    }


RECORDS = public_records(ppl_models) | public_records(inference)
FAMILIES = [name for name, kind in public_records(ppl_models).items() if "check_data" in dir(kind)]
ENGINES = [name for name, kind in public_records(inference).items() if "run" in dir(kind)]
PROTOCOLS = {
    "ResponseFamily": ("Bernoulli", "Poisson", "Normal", "LogNormal", "NegativeBinomial", "Blocks"),
    "Penalty": ("TruncatedLasso", "SCAD", "Ridge"),
    "Bottom": ("Additive", "ExpDINA", "ExpGDM"),
    "Policy": ("SoftmaxLinear", "Network"),
    "Decoder": ("BackwardElimination", "HardThresholding", "Pursuit", "Shrinkage"),
    "Guide": ("MeanField", "FullRank", "LowRank"),
    "Method": ("EM", "EM", "SAEM"),
    "AttributeDistribution": ("Saturated", "Independent", "HigherOrder", "Hierarchy", "Dag"),
}
RULES = ("additive", "acdm", "rrum", "dina", "dino", "gdm", "saturated")
RULE_RECORDS = ("Additive", "ACDM", "RRUM", "ExpDINA", "ExpDINO", "ExpGDM")


SPECIAL = {
    "Factorize": ("PoissonFactorization", "NegativeBinomialFactorization", "GaussianFactorization"),
    "AlternatingMinimization": ("SparseCoding",),
    "GradientAlternation": ("SparseCoding",),
    "GrowAndPrune": ("NoisyOr", "DeepNoisyOr"),
    "ScoreFunctionSVI": ("NoisyOr",),
    "TrainClassifiers": ("InClassNet",),
}  # engines of one kind of model


def family(draw: Draw, hostile: float) -> Any:
    """A model; with a chance of ``hostile`` one of its settings is one that nobody should give."""
    name = draw.choice(FAMILIES)
    if draw.chance(hostile):
        return record(draw, name, 1.0, {"num_items": draw.integer(1, 5)})
    return sound(draw, name)


def sound(draw: Draw, name: str) -> Any:
    """A model that its constructor takes."""
    for _ in range(30):
        with contextlib.suppress(ValueError):
            return record(draw, name, 0.0, {"num_items": draw.choice((2, 3, 4, 4, 5))})
    return record(draw, name, 0.0, {"num_items": 4})


def engine(draw: Draw, model: Any, hostile: float) -> Any:
    """An engine with few iterations; nine times in ten one that knows the kind of model."""
    name = type(model).__name__
    known = [own for own in ENGINES if own not in SPECIAL or name in SPECIAL[own]]
    own = [engine for engine in known if engine in SPECIAL]
    chosen = draw.choice(
        ENGINES if draw.chance(0.1) else own if own and draw.chance(0.5) else known
    )
    if draw.chance(hostile):
        return record(draw, chosen, 1.0)
    for _ in range(30):
        with contextlib.suppress(ValueError):
            return record(draw, chosen)
    return record(draw, chosen)


def record(
    draw: Draw, name: str, hostile: float = 0.0, given: dict[str, Any] | None = None, depth: int = 0
) -> Any:
    """A record of a public class, its fields drawn by their annotations; some are left at their
    defaults.
    """
    kind = RECORDS[name]
    if name == "Blocks":
        return _blocks(draw, (given or {}).get("num_items", 3))
    given = dict(given or {})
    if name == "LatentAttributeModel":
        given = _asked(draw, given)
    elif name == "InClassNet":
        given = _variates(draw, given)
    elif name == "AttributeGroups":
        given = _groups(draw, given)
    values: dict[str, Any] = {}
    for field in inspect.signature(kind).parameters.values():
        required = field.default is inspect.Parameter.empty
        if field.name in given:
            values[field.name] = given[field.name]
        elif (
            required
            or _is_large(field.default)
            or _is_unsaid(field.default)
            or field.name == "max_depth"
            or _names_engine(str(field.annotation))
            or draw.chance(0.3)
        ):
            values[field.name] = _value(
                draw, str(field.annotation), field.name, field.default, given | values, depth
            )
    if values and draw.chance(hostile):
        names = list(inspect.signature(kind).parameters)
        values[draw.choice(names)] = draw.hostile()
    return kind(**values)


def is_endless(value: Any) -> bool:
    """Whether a record holds a count that would keep the machine busy for days, or its memory
    full.
    """
    if dataclasses.is_dataclass(value):
        return any(is_endless(getattr(value, field.name)) for field in dataclasses.fields(value))
    return isinstance(value, int) and value > 10_000


def _is_large(default: Any) -> bool:
    return isinstance(default, int) and not isinstance(default, bool) and default > LARGE


def _is_unsaid(default: Any) -> bool:
    """Tell whether a count has no default of its own: 0, behind a width that may be left out."""
    return isinstance(default, int) and not isinstance(default, bool) and default == 0


def _names_engine(annotation: str) -> bool:
    return any(name in annotation for name in (*ENGINES, "Method"))


def _blocks(draw: Draw, num_items: int) -> Any:
    first = draw.integer(1, max(1, num_items - 1))
    names = ("Bernoulli", "Poisson", "Normal", "LogNormal", "NegativeBinomial")
    parts = [(RECORDS[draw.choice(names)](), first)]
    if num_items > first:
        parts.append((RECORDS[draw.choice(names)](), num_items - first))
    return RECORDS["Blocks"](*parts)


def _value(
    draw: Draw, annotation: str, name: str, default: Any, given: dict[str, Any], depth: int
) -> Any:
    parts = [part.strip() for part in _split(annotation.strip("'\""), "|")]
    part = draw.choice(parts)
    items = given.get("num_items", 3)
    if part == "None":
        return None
    if part == "bool":
        return draw.chance(0.5)
    if part == "str":
        return draw.choice(("spectral", "random", "normal"))
    if part in ("float", "Constant"):
        plain = (
            default if isinstance(default, int | float) and not isinstance(default, bool) else 1.0
        )
        return draw.choice((plain, plain, 0.5, 1.0, 1.5, 3, 1e-3, 20.0))
    if part == "int":
        return _size(draw, name, default, given)
    if name == "latent_sizes":
        return draw.choice(((1,), (2,), (2, 1), (3, 1), (items, 1)))
    if name == "graphs":
        return _graphs(draw, items, given.get("latent_sizes", (2,)))
    if name in ("edges", "pairs"):
        return _pairs(draw, name)
    if name == "penalties":
        own = ("EvenWeights", "KnownWeights") if "WeightPenalty" in part else PROTOCOLS["Penalty"]
        return tuple(record(draw, draw.choice(own), 0.05) for _ in range(draw.integer(1, 3)))
    if part.startswith("Literal["):
        return draw.choice([word.strip(" '") for word in part[len("Literal[") : -1].split(",")])
    if name == "num_categories" or part == "tuple[int, ...]":
        return tuple(draw.integer(1, 3) for _ in range(draw.integer(1, 3)))
    if part == "tuple[float, float]":
        return draw.choice(((1.0, 1.0), (2, 3), (1.5, 1.001), (1.0, 20.0), (0.5, 0.5)))
    if part == "tuple[float, ...]":
        return tuple(draw.choice((0.2, 0.5, 1.0)) for _ in range(items))
    if part in PROTOCOLS:
        known = tuple(choice for choice in PROTOCOLS[part] if choice in RECORDS)
        return record(
            draw,
            draw.choice(known),
            0.05,
            {"num_items": items} if part == "ResponseFamily" else None,
            depth + 1,
        )
    if part in RECORDS:
        return record(draw, part, 0.05, None, depth + 1)
    return None if default is inspect.Parameter.empty or default == "<factory>" else default


def _size(draw: Draw, name: str, default: Any, given: dict[str, Any]) -> int:
    least = LEAST.get(name, 1)
    if name == "max_depth":
        return draw.integer(1, 4)
    if name == "num_states":
        return draw.integer(2, 3)
    if name in ("num_actions", "num_features"):
        return draw.integer(2, 3)
    if name in ("num_components", "num_latents", "num_columns", "sparsity", "num_options"):
        return draw.choice((1, 2, 2, 3))
    if _is_large(default):
        return draw.choice((least, least, least + 1, least + 4, max(12, least)))
    return draw.integer(least, least + 3)


def _asked(draw: Draw, given: dict[str, Any]) -> dict[str, Any]:
    """Attributes that are to be found, or (most often) a Q-matrix, with items of any rule."""
    items = given.get("num_items", 3)
    if not isinstance(items, int) or items > 50 or draw.chance(0.25):
        return {
            "num_attributes": draw.integer(1, 3),
            "num_items": items,
            "root": record(draw, draw.choice(("Saturated", "Independent"))),
        } | given
    matrix = (draw.rng.random((items, draw.choice((1, 2, 2, 3)))) < 0.6).astype(int)
    if draw.chance(0.95):  # every item asks for something, every attribute is asked for
        for j in range(items):
            matrix[j, j % matrix.shape[1]] = 1
    kind = draw.integer(0, 3)
    q_matrix = [
        matrix,
        matrix.tolist(),
        pd.DataFrame(matrix),
        pd.DataFrame(matrix, columns=[f"skill {k}" for k in range(matrix.shape[1])]),
    ][kind]
    rule: Any = draw.choice(RULES)
    if draw.chance(0.3):
        rule = [
            draw.choice(RULES) if draw.chance(0.7) else record(draw, draw.choice(RULE_RECORDS))
            for _ in range(items)
        ]
    root = record(draw, draw.choice(PROTOCOLS["AttributeDistribution"]), 0.03)
    own = {
        "q_matrix": q_matrix,
        "items": rule,
        "root": root,
        "num_items": items,
        "num_attributes": None,
        "penalty": None,
    }
    return own | given


def _groups(draw: Draw, given: dict[str, Any]) -> dict[str, Any]:
    """A model with a Q-matrix for two or three groups, some of its items free."""
    model = record(draw, "LatentAttributeModel", 0.0, given)
    free = tuple(j for j in range(3) if draw.chance(0.2))
    return {
        "model": model,
        "groups": ("early", "late", "never")[: draw.choice((2, 2, 3))],
        "free_items": free,
        "column": "group",
    }


def _variates(draw: Draw, given: dict[str, Any]) -> dict[str, Any]:
    """Two or three variates of a column or two, and small networks."""
    dense = [record(draw, "Dense", 0.0, {"hidden": (draw.integer(1, 4),)}) for _ in range(3)]
    sizes = tuple(draw.integer(1, 2) for _ in range(draw.choice((2, 2, 3))))
    networks = draw.choice((dense[0], dense[: len(sizes)], None))
    return {
        "variates": sizes,
        "networks": networks,
        "num_components": draw.choice((1, 2, 2, 3)),
    } | {k: v for k, v in given.items() if k != "num_items"}


def _pairs(draw: Draw, name: str) -> tuple[tuple[int, int], ...]:
    """Edges among the first few attributes; one in ten may go round in a circle."""
    found = {(draw.integer(0, 2), draw.integer(0, 2)) for _ in range(draw.integer(0, 2))}
    kept = {(min(pair), max(pair)) for pair in found if pair[0] != pair[1]}
    return tuple(sorted(kept if draw.chance(0.9) else found))


def _graphs(draw: Draw, items: int, sizes: Any) -> Any:
    sizes = (items, *sizes) if isinstance(sizes, tuple) else (items, 2)
    graphs = []
    for child, parent in zip(sizes, sizes[1:], strict=False):
        matrix = (draw.rng.random((child, parent)) < 0.7).astype(int)
        graphs.append(
            None
            if draw.chance(0.3)
            else tuple(map(tuple, matrix.tolist()))
            if draw.chance(0.5)
            else np.asarray(matrix)
        )
    return tuple(graphs)


def _split(text: str, mark: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
