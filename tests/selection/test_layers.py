"""Sizes and depth of encoders: designs of known truth, doubts, the page, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from papers.deep_discrete_encoder import deep_design

from inference.programs.program import Program
from inference.selection import select
from inference.selection.layers import _second_minimum
from ppl_models import Bernoulli, DeepDiscreteEncoder, Mixture, Normal, Poisson
from ppl_models.datasets import strict_design


def items_of(sizes, response, truth, num_rows, seed):
    model = DeepDiscreteEncoder(len(truth["loadings_1"]), sizes, response)
    return Program(model, None, num_rows).simulate(truth, seed)["items"].numpy()


@pytest.mark.parametrize(
    "response", [Normal(), Bernoulli(), Poisson()], ids=lambda r: type(r).__name__
)
def test_two_layers_are_found(response, tmp_path):
    x = items_of((6, 2), response, strict_design(2, response), 2000, 1)
    found = select(DeepDiscreteEncoder(latent_sizes=(1,), response=response), x)
    assert found.chosen == (6, 2)
    assert found.table.query("chosen").index.tolist() == [(1, 6), (2, 2)]
    assert (found.table["behind"] >= 0).all()
    page = found.report(tmp_path / "layers.html").read_text()
    assert "How many layers? 2" in page
    assert "(6, 2)" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    "response", [Normal(), Bernoulli(), Poisson()], ids=lambda r: type(r).__name__
)
@pytest.mark.parametrize("seed", range(2))
def test_three_layers_are_found(response, seed):
    x = items_of((18, 6, 2), response, deep_design(3, 2, 5.0, response), 4000, seed)
    found = select(DeepDiscreteEncoder(latent_sizes=(1,), response=response), x)
    assert found.chosen == (18, 6, 2)


def test_independent_latents_have_no_layer_above():
    truth = strict_design(2, Normal())
    bits = torch.rand(2000, 6, generator=torch.Generator().manual_seed(0)) < 0.5
    mean = truth["intercepts_1"] + bits.double() @ truth["loadings_1"].mT
    noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(1))
    found = select(DeepDiscreteEncoder(latent_sizes=(1,), response=Normal()), mean + noise)
    assert found.chosen == (6,)
    assert found.table.loc[(2, 0), "behind"] == 0


def test_what_cannot_be_asked_is_refused():
    x = np.tile([[0.0, 1, 0, 1, 0, 1], [1, 0, 1, 1, 1, 0]], (5, 1))
    x[0, 3], model = 0.0, DeepDiscreteEncoder(latent_sizes=(1,))
    with pytest.raises(ValueError, match="'layers' takes no grid, num_restarts"):
        select(model, x, [(1,), (2,)], criterion="layers", num_restarts=3)
    with pytest.raises(ValueError, match="expects a DeepDiscreteEncoder, got Mixture"):
        select(Mixture(2), x, criterion="layers")
    with pytest.raises(ValueError, match="graphs=None"):
        select(DeepDiscreteEncoder(6, (2,), graphs=(((1, 0),) * 3 + ((0, 1),) * 3,)), x)
    with pytest.raises(ValueError, match="at least three items"):
        select(model, x[:, :2])


def test_doubts_are_said():
    """Few rows; and a criterion that is low at two sizes."""
    x = items_of((6, 2), Bernoulli(), strict_design(2), 60, 0)
    found = select(DeepDiscreteEncoder, x)
    assert found.status == "unsure"
    assert any("60 rows are few" in doubt for doubt in found.doubts)
    assert _second_minimum({1: 9.0, 2: 1.0, 4: 5.0, 6: 3.0, 8: 7.0}, 2, 3.0) == 6
    assert _second_minimum({1: 9.0, 2: 1.0, 4: 5.0, 6: 3.0, 8: 7.0}, 2, 1.0) is None
    assert _second_minimum({1: 9.0, 4: 5.0, 6: 3.0, 8: 7.0}, 6, 3.0) is None
