"""Public names of the last release: each reads its new name, and warns."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

import inference.selection
from inference import NUTS
from inference.fitting.storage import pack, unpack
from inference.selection import DistributionsAndNumbers, HowMany, select_components
from inference.structures.registry import structure_of
from ppl_models import (
    DeepDiscreteEncoder,
    HiddenMarkov,
    Independent,
    LatentAttributeModel,
    Mixture,
    NegativeBinomialFactorization,
    PoissonFactorization,
)


@pytest.mark.parametrize(
    "model",
    [
        Mixture(2, num_items=3),
        HiddenMarkov(2, num_items=3),
        PoissonFactorization(4, 2),
        NegativeBinomialFactorization(4, 2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_candidates_by_their_old_name(model) -> None:
    with pytest.warns(DeprecationWarning, match=r"\.laws is deprecated: write candidate_distrib"):
        assert model.laws() == model.candidate_distributions()


@pytest.mark.parametrize(
    "model",
    [DeepDiscreteEncoder(6, (2,)), LatentAttributeModel([[1], [1], [1]], root=Independent())],
    ids=lambda model: type(model).__name__,
)
def test_roots_by_their_old_name(model) -> None:
    with pytest.warns(DeprecationWarning, match=r"\.root_law is deprecated: write root_layer"):
        assert model.root_law() == model.root_layer()


def test_families_with_the_old_name_of_their_root_are_told_the_new_one() -> None:
    own = SimpleNamespace(layers=tuple, root_law=lambda: None)
    with pytest.raises(ValueError, match=r"root_law\(\) is now called root_layer\(\)"):
        structure_of(own)


def test_the_chosen_distribution_by_its_old_name() -> None:
    answer = object.__new__(HowMany)
    object.__setattr__(answer, "distribution", "Poisson")
    with pytest.warns(DeprecationWarning, match="HowMany.law is deprecated: write distribution"):
        assert answer.law == "Poisson"


def test_the_argument_by_its_old_name() -> None:
    with (
        pytest.warns(DeprecationWarning, match=r"select_components\(laws=...\) is deprecated"),
        pytest.raises(ValueError, match="distributions must name at least one family"),
    ):
        select_components(Mixture(1), [[0.0], [1.0]], [1, 2], laws=[])


def test_the_criterion_by_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="write DistributionsAndNumbers"):
        assert inference.selection.LawsAndNumbers is DistributionsAndNumbers
    with pytest.raises(AttributeError, match=r"'inference\.selection' has no attribute 'plot'"):
        inference.selection.plot  # noqa: B018


def test_settings_of_nuts_by_their_old_names() -> None:
    with pytest.warns(DeprecationWarning, match=r"NUTS\(.*=...\) is deprecated: write"):
        method = NUTS(num_warmup=30, num_draws=40, target_acceptance=0.9)
    assert method == NUTS(warmup_steps=30, num_samples=40, target_accept_prob=0.9)
    for old, value in (("num_warmup", 30), ("num_draws", 40), ("target_acceptance", 0.9)):
        with pytest.warns(DeprecationWarning, match=rf"NUTS\.{old} is deprecated"):
            assert getattr(method, old) == value
    with pytest.warns(DeprecationWarning, match="num_draws"):
        assert dataclasses.replace(method, num_draws=50).num_samples == 50
    fields = {"num_warmup": 30, "num_draws": 40, "target_acceptance": 0.9}
    record = {"record": "inference:NUTS", "fields": pack(method, "method", {})["fields"]}
    for old, new in NUTS.old_fields.items():
        record["fields"] = {old if name == new else name: v for name, v in record["fields"].items()}
    assert fields.items() <= record["fields"].items()
    assert unpack(record, {}) == method  # a fit that was saved by the last release
