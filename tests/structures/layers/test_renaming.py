"""Names of latents: what a graph tells apart, what conjunctions tie, and by which sign a fit
names.
"""

from __future__ import annotations

import pytest
import torch
from support.measured_items import encoder, random_params, simulated
from support.two_skills import GRAPH
from zoo.rows_measurement import PAIRS

from inference import EM, fit
from inference.programs.program import Program
from inference.structures.layers.align import flippable, relabel
from inference.structures.registry import structure_of
from ppl_models import DeepDiscreteEncoder, ExpDINA, ExpGDM, Normal

F64 = torch.float64


def test_latents_that_a_graph_tells_apart_keep_their_names():
    model = DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,))
    (label,) = structure_of(model).labels()
    assert label.kinds is not None
    assert label.kinds[0] != label.kinds[1]


def test_a_permutation_that_the_graph_allows_is_the_same_distribution() -> None:
    model = encoder(((1, 1, 0), (1, 1, 0), (1, 1, 1), (0, 0, 1)), ExpGDM())
    params, layers, root = random_params(model), model.layers(), model.root_layer()
    data = simulated(model, params, 30)
    swapped = relabel(params, layers, root, {"latents_1": torch.tensor([1, 0, 2])}, {})
    assert not torch.equal(swapped["loadings_1"], params["loadings_1"])
    rows = [Program(model, data).log_marginal_rows(p) for p in (params, swapped)]
    torch.testing.assert_close(*rows, rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="does not allow"):
        relabel(params, layers, root, {"latents_1": torch.tensor([2, 1, 0])}, {})


def test_a_conjunction_ties_its_latents_to_their_names() -> None:
    model = encoder(((1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (0, 0, 1)), ExpDINA())
    assert flippable(model.layers()[0]).tolist() == [False, False, True]
    with pytest.raises(ValueError, match="cannot change names"):
        relabel(
            random_params(model),
            model.layers(),
            None,
            {},
            {"latents_1": torch.tensor([True, False, False])},
        )


def test_a_fit_names_values_by_positive_effects() -> None:
    """From a start with every value misnamed, the general model comes back with effects that are
    positive.
    """
    model = encoder(PAIRS, ExpGDM(), Normal())
    layer = model.layers()[0]
    truth = {
        "proportions": torch.tensor([0.4, 0.6], dtype=F64),
        "intercepts_1": torch.zeros(8, dtype=F64),
    }
    truth |= {"loadings_1": 2.0 * layer.graph.to(F64), "dispersion": torch.ones(8, dtype=F64)}
    data = simulated(model, truth, 500)
    wrong = relabel(
        truth, model.layers(), model.root_layer(), {}, {"latents_1": torch.tensor([True, True])}
    )
    result = fit(model, data, EM(), init=wrong)
    assert bool((layer.effects(result.params["loadings_1"]).sum(0) > 0).all())
    torch.testing.assert_close(result.params["proportions"], truth["proportions"], rtol=0, atol=0.1)
