"""One door to the number of latents: each criterion answers as the function behind it does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference import EM
from inference.selection import (
    HeldOut,
    HowMany,
    Selection,
    select,
    select_components,
    select_dimension,
)
from ppl_models import Mixture, Normal, PoissonFactorization
from ppl_models.datasets import simulate_checkerboard


@pytest.fixture(scope="module")
def clouds():
    generator = np.random.default_rng(0)
    return np.concatenate([generator.normal(-4, 1, (40, 1)), generator.normal(4, 1, (40, 1))])


def test_a_mixture_is_counted_by_the_rule(clouds) -> None:
    model = Mixture(1, Normal())
    answer = select(model, clouds, (1, 2), num_restarts=2, seed=1, laws=[model])
    assert isinstance(answer, HowMany)
    again = select_components(model, clouds, (1, 2), num_restarts=2, seed=1, laws=[model])
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
