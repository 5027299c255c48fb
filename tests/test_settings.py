"""Every setting of every public record: what is no such number, flag or record is refused in a
sentence that names it.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch

from inference import EM, GradientAlternation, fit
from inference.programs.global_state import quiet
from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, Mixture, Normal
from ppl_models.data.items import OpenItems
from ppl_models.datasets import simulate_two_gaussians

PLACES = ("inference", "ppl_models", "inference.selection", "inference.acdc", "ppl_models.datasets")
NEEDED: dict[str, Any] = {  # values of fields that have no default
    "num_items": 6,
    "num_components": 2,
    "num_columns": 3,
    "sparsity": 1,
    "latent_sizes": (3, 1),
    "num_latents": 2,
    "num_states": 3,
    "num_actions": 2,
    "num_options": 2,
    "num_features": 2,
    "rows": ("#####", "#A.B#", "#####"),
    "name": "bic",
    "knot": 1.0,
    "multiplier": 1.0,
    "shape": 3.0,
    "scale": 1.0,
    "slope_at_zero": 1.0,
    "threshold": 0.3,
    "num_hidden": 3,
    "jointly": False,
    "mean": False,
}
WRONG: dict[str, Any] = {
    "text": "x",
    "digits": "3",
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "-1": -1,
    "dict": {},
    "complex": 1j,
    "object": object(),
    "10**400": 10**400,
    "class": int,
    "bytes": b"x",
    "texts": ("x", "y"),
    "nans": (math.nan, math.nan),
    "infinite pair": (1, math.inf),
    "negative pair": (-1, 2),
    "nested": ((1, 2),),
    "float array": np.array([1.5]),
    "object array": np.array([object()]),
    "set": {1},
    "nan tensor": torch.tensor(math.nan),
    "np.nan": np.float64("nan"),
    "np.inf": np.float32("inf"),
    "np -1": np.int64(-1),
    "empty": (),
    "complex tensor": torch.tensor([1j]),
}
NAMES_TOO = {
    ("Categorical", "num_categories"),
    ("Ordinal", "num_categories"),
}  # a number, or names of categories
PAIRS_TOO = {("Mixture", "units"), ("HiddenMarkov", "units")}  # a centre and a width an item
FREE = {  # functions, lists that may be empty, names, a number of either sign
    ("SVI", "guide"),
    ("Dag", "edges"),
    ("Hierarchy", "pairs"),
    ("LatentAttributeModel", "attribute_names"),
    ("OptionsHMM", "action_names"),
    ("OptionsHMM", "state_names"),
    ("Dense", "hidden"),
    ("TrainClassifiers", "penalties"),
    ("EvenWeights", "strength"),
    ("Mixture", "covariates"),
    ("DeepDiscreteEncoder", "covariates"),
}


SIZES = ("num_items", "num_components", "num_columns", "sparsity", "latent_sizes", "num_latents")


def records() -> list[type]:
    found: dict[type, None] = {}
    for place in PLACES:
        module = importlib.import_module(place)
        for name in dir(module):
            kind = getattr(module, name)
            if (
                isinstance(kind, type)
                and dataclasses.is_dataclass(kind)
                and hasattr(kind, "__post_init__")
            ):
                found[kind] = None
    return list(found)


ALSO = {
    "LatentAttributeModel": {"num_items": 6, "num_attributes": 2}
}  # where one of two must be given


def made(kind: type, **changed: Any) -> Any:
    needed = ALSO.get(kind.__name__, {}) | {
        field.name: NEEDED.get(field.name, 1)
        for field in dataclasses.fields(kind)
        if is_needed(field)
        or (issubclass(kind, OpenItems) and field.name in SIZES and kind.__name__ not in ALSO)
    }
    return kind(**{**needed, **changed})


def is_needed(field: dataclasses.Field[Any]) -> bool:
    return (
        field.init
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    )


def can_be_made(kind: type) -> bool:
    try:
        made(kind)
    except (TypeError, ValueError):
        return False
    return True


CASES = [
    (kind, field.name)
    for kind in records()
    if can_be_made(kind)
    for field in dataclasses.fields(kind)
    if field.init
]
CHECKED = [(kind, name) for kind, name in CASES if (kind.__name__, name) not in FREE]
NUMBERS = [(kind, name) for kind, name in CASES if type(getattr(made(kind), name)) in (int, float)]


def in_words(case: tuple[type, str]) -> str:
    return f"{case[0].__name__}.{case[1]}"


def test_the_records_of_the_library_are_among_them() -> None:
    names = {kind.__name__ for kind, _ in CASES}
    assert {
        "EM",
        "NUTS",
        "SAEM",
        "SVI",
        "Bootstrap",
        "Laplace",
        "NoisyOr",
        "DeepDiscreteEncoder",
        "Mixture",
        "OptionsHMM",
        "GridWorld",
    } <= names
    assert len(CASES) > 100


@pytest.mark.parametrize("case", CHECKED, ids=in_words)
def test_wrong_values_are_refused_by_name(case: tuple[type, str]) -> None:
    kind, name = case
    for label, value in WRONG.items():
        if label == "texts" and (kind.__name__, name) in NAMES_TOO:
            continue
        if label == "nested" and (kind.__name__, name) in PAIRS_TOO:
            continue
        with pytest.raises(ValueError) as refused:  # noqa: PT011, the sentence is looked at below
            made(kind, **{name: value})
        said = str(refused.value)
        assert kind.__name__.removesuffix("Null") in said, (label, said)
        assert (
            name in said or name.removesuffix("s") in said or "rows" in name or "letters" in said
        ), (label, said)


@pytest.mark.parametrize("case", NUMBERS, ids=in_words)
def test_numbers_of_numpy_and_torch_are_numbers(case: tuple[type, str]) -> None:
    """What is accepted is kept as Python's own: it is hashed, compared, written to files and
    printed.
    """
    kind, name = case
    value = getattr(made(kind), name)
    forms = (
        [np.int64(value), np.int32(value), torch.tensor(value)]
        if isinstance(value, int)
        else [np.float64(value)]
    )
    for form in forms:
        if isinstance(form, torch.Tensor) and "Constant" in str(kind.__annotations__.get(name, "")):
            continue
        new = made(kind, **{name: form})
        assert type(getattr(new, name)) in (int, float)
        assert new == made(kind, **{name: value})
        assert hash(new) == hash(made(kind))


def test_lists_and_arrays_are_sizes() -> None:
    expected = DeepDiscreteEncoder(6, (3, 1))
    for sizes in ([3, 1], np.array([3, 1]), torch.tensor([3, 1]), (np.int64(3), 1)):
        assert DeepDiscreteEncoder(6, sizes) == expected
    graph = np.eye(3, dtype=int)
    assert hash(DeepDiscreteEncoder(3, 3, graphs=[graph])) == hash(
        DeepDiscreteEncoder(3, (3,), graphs=(tuple(map(tuple, graph.tolist())),))
    )
    assert Blocks((Bernoulli(), np.int64(2)), [Normal(), 1]) == Blocks(
        (Bernoulli(), 2), (Normal(), 1)
    )


@pytest.mark.parametrize(
    "graphs", [5, "x", [None, None], [[["a"]]], [[[1], [1, 0]]], np.ones((3, 3))]
)
def test_graphs_that_are_none_are_refused(graphs: Any) -> None:
    with pytest.raises(ValueError, match="DeepDiscreteEncoder: graphs"):
        DeepDiscreteEncoder(3, (3,), graphs=graphs)


@pytest.mark.parametrize(
    "parts",
    [
        [3],
        [(Bernoulli(), "2")],
        [(Bernoulli(), True)],
        [(Bernoulli, 2)],
        ["ab"],
        [(Bernoulli(), 0)],
        [None],
    ],
)
def test_blocks_that_are_none_are_refused(parts: Any) -> None:
    with pytest.raises(ValueError, match="Blocks: "):
        Blocks(*parts)


def test_a_class_in_place_of_a_record_is_told_so() -> None:
    with pytest.raises(
        ValueError, match="response must be a response family.*the class itself; add parentheses"
    ):
        DeepDiscreteEncoder(3, (2,), Bernoulli)
    with pytest.raises(ValueError, match="response must be a response family.*got 'normal'"):
        DeepDiscreteEncoder(3, (2,), "normal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="penalty must be a penalty such as .* got 'x'"):
        DeepDiscreteEncoder(3, (2,), penalty="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="decoder"):
        GradientAlternation("pursuit")  # type: ignore[arg-type]


def test_infinite_bounds_and_concentrations_are_refused() -> None:
    """Failed before: the prior had no density, and every number that came out was NaN or inf."""
    for name in ("bound", "concentration"):
        with pytest.raises(ValueError, match=f"Mixture: {name} must .*finite"):
            Mixture(2, Normal(), num_items=2, **{name: math.inf})


CALLS = {
    "num_restarts": ("2", 2.5, 0, True, [2], -1, math.nan),
    "seed": ("x", 1.5, [1], math.nan, np.random.RandomState(0)),
    "method": ("em", EM, 3, [EM()]),
    "init": ("best", 3, [1.0], EM()),
    "checkpoint": (3, [], "", b"x"),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_of_fit_are_refused_by_name(name: str) -> None:
    data = torch.ones(4, 3, dtype=torch.float64)
    data[0] = 0
    for value in CALLS[name]:
        with pytest.raises(ValueError, match=name):
            fit(DeepDiscreteEncoder(3, (1,)), data, **{name: value})


def test_numpy_numbers_are_arguments_of_fit() -> None:
    data = torch.ones(6, 3, dtype=torch.float64)
    data[::2] = 0
    with quiet():
        one = fit(
            DeepDiscreteEncoder(3, (1,)),
            data,
            EM(max_iterations=3),
            num_restarts=np.int64(2),
            seed=np.int64(5),
        )
    assert (type(one.seed), one.seed) == (int, 5)


# ---------------------------------------------------------------- seeds


def test_a_seed_may_be_drawn_and_is_kept(tmp_path) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))

    def seed_of(seed: Any) -> int:
        with quiet():
            return fit(Mixture(2, Normal()), rows, EM(max_iterations=3), "random", seed=seed).seed

    fresh = {seed_of(None) for _ in range(3)}
    assert len(fresh) == 3
    for made in (np.random.default_rng, lambda number: torch.Generator().manual_seed(number)):
        generator = made(7)
        drawn = [seed_of(generator), seed_of(generator)]
        assert drawn[0] != drawn[1]  # a generator moves on
        assert seed_of(made(7)) == drawn[0]
    with quiet():
        one = fit(Mixture(2, Normal()), rows, EM(max_iterations=3), "random", seed=None)
        two = fit(Mixture(2, Normal()), rows, EM(max_iterations=3), "random", seed=one.seed)
    assert torch.equal(one.params["predictors"], two.params["predictors"])
    with pytest.raises(ValueError, match="checkpoint: an integer for a seed was expected"):
        fit(Mixture(2, Normal()), rows, seed=None, checkpoint=tmp_path / "c")


def test_every_public_seed_is_one() -> None:
    """A number, a generator of NumPy or torch, or None, wherever a public function has a seed."""
    annotations = {}
    for module in ("inference", "inference.inspection", "inference.selection", "inference.causal",
                   "inference.loo", "inference.predictive", "ppl_models.datasets"):  # fmt: skip
        package = importlib.import_module(module)
        for name in dir(package):
            value = getattr(package, name)
            if inspect.isfunction(value):
                seed = inspect.signature(value).parameters.get("seed")
                if seed is not None:
                    annotations[f"{module}.{name}"] = seed.annotation
    assert len(annotations) > 30
    assert set(annotations.values()) == {"Seed"}, annotations
    drawn = [
        simulate_two_gaussians(50, seed=seed).data
        for seed in (np.random.default_rng(1), np.random.default_rng(1), None)
    ]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
