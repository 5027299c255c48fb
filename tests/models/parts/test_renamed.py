"""Public names of the last release: each reads its new name, and warns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import inference.selection
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
