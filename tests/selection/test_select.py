"""One door to the number of latents: each criterion answers as the function behind it does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference import EM
from inference.base.structure import candidate_families
from inference.selection import (
    HeldOut,
    HowMany,
    Selection,
    select,
    select_components,
    select_dimension,
)
from inference.selection.order_selection import select_components as module
from inference.selection.order_selection.counting import Counting, counting_of
from inference.structures.registry import structure_of
from ppl_models import Mixture, NoisyOr, Normal, PoissonFactorization
from ppl_models.datasets import simulate_checkerboard

ROWS = (torch.arange(36).reshape(9, 4) % 3 == 0).double()


@pytest.fixture(scope="module")
def clouds():
    generator = np.random.default_rng(0)
    return np.concatenate([generator.normal(-4, 1, (40, 1)), generator.normal(4, 1, (40, 1))])


def test_a_mixture_is_counted_by_the_rule(clouds) -> None:
    model = Mixture(1, Normal())
    answer = select(model, clouds, (1, 2), num_restarts=2, seed=1, distributions=[model])
    assert isinstance(answer, HowMany)
    again = select_components(model, clouds, (1, 2), num_restarts=2, seed=1, distributions=[model])
    assert answer.num_components == 2
    assert answer.rows == again.rows


@pytest.mark.parametrize("criterion", ["bic", "acdc", HeldOut(0.3)])
def test_a_criterion_answers_as_by_its_own_door(clouds, criterion) -> None:
    settings = {"method": EM(), "num_restarts": 1, "seed": 2}
    answer = select(Mixture(1, Normal()), clouds, (1, 2), criterion=criterion, **settings)
    assert isinstance(answer, Selection)
    again = select_dimension(lambda k: Mixture(k, Normal()), clouds, (1, 2), criterion, **settings)
    assert answer.chosen == again.chosen
    assert answer.columns[answer.score] == pytest.approx(again.columns[again.score], abs=0)


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_a_family_without_a_rule_is_chosen_by_ebic() -> None:
    from ppl_models import DeepDiscreteEncoder

    rows = (torch.rand(60, 6, generator=torch.Generator().manual_seed(1)) > 0.5).double()
    method = EM(max_iterations=3)
    answer = select(
        lambda k: DeepDiscreteEncoder(6, (k,), penalty=None), rows, (1, 2), method=method
    )
    assert isinstance(answer, Selection)
    assert answer.score == "ebic"


def test_classifiers_by_their_held_out_cost() -> None:
    from inference.selection.select import _criterion
    from ppl_models import InClassNet

    assert _criterion(InClassNet((1, 1), 2), None) == "saturation"
    rows = simulate_checkerboard(40, seed=1).data
    with pytest.raises(ValueError, match="saturation: held_out must lie in"):
        select(lambda c: InClassNet((1, 1), c), rows, (2, 3), held_out=2.0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"criterion": "nothing"}, "criterion must be one of rule, spectral"),
        ({"criterion": "bic", "bootstrap": 6}, "bootstrap belong to 'rule' or 'saturation'"),
        ({"criterion": "bic"}, "grid must hold the sizes that 'bic' compares"),
    ],
)
def test_wrong_input_is_refused(clouds, call, text) -> None:
    with pytest.raises(ValueError, match=text):
        select(Mixture(1, Normal()), clouds, **call)
    with pytest.raises(ValueError, match=r"a table \(rows, items\) was expected"):
        select(PoissonFactorization, [[1.0]])


def test_a_kind_without_order_selection_is_refused_by_name() -> None:
    """Failed before: any other structure with candidates was taken for a factorization."""
    model = NoisyOr(4, 2)
    kind = type(structure_of(model))
    candidate_families.register(kind, lambda structure: (model,))
    try:
        with pytest.raises(ValueError, match="of counts was expected.* got NoisyOr"):
            select_components(model, ROWS, (1, 2))
    finally:
        candidate_families.register(kind, candidate_families.dispatch(object))


def test_a_kind_registers_its_order_selection(monkeypatch) -> None:
    class Causes(Counting):
        number = "num_latents"
        method = EM()
        describe, starts = (lambda self, structure: ("causes", 0, None)), None

        def answer(self, grid, fits):
            return len(grid.candidates), grid.candidates[0].name, list(grid.sizes), fits

    model = NoisyOr(4, 2)
    kind = type(structure_of(model))
    candidate_families.register(kind, lambda structure: (model,))
    monkeypatch.setattr(module, "fit_candidates", lambda grid, known: grid.candidates[0].at(3))
    counting_of.register(kind, lambda structure: Causes())
    try:
        answer = select_components(model, ROWS, (1, 2))
    finally:
        counting_of.register(kind, counting_of.dispatch(object))
        candidate_families.register(kind, candidate_families.dispatch(object))
    assert answer == (1, "causes", [1, 2], NoisyOr(4, 3))
