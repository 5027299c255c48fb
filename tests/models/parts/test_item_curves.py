"""Additive and reduced items: their chances, derivatives, coefficients; and models of them under
every engine.
"""

from __future__ import annotations

import math
from typing import Any

import pyro
import pytest
import torch
from pyro import poutine
from torch import Tensor

from inference import EM, SAEM, fit
from inference.inspection.attributes import reversals
from inference.programs.program import Program
from inference.structures.layers.align import flippable
from inference.structures.layers.gibbs import LayeredGibbs
from ppl_models import ACDM, RRUM, DeepDiscreteEncoder, LatentAttributeModel, Normal
from ppl_models.parts.item_curves import CurvedItems

F64 = torch.float64
PURE = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
Q = (*PURE, *PURE, *PURE, (1, 1, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1))
TOGETHER = torch.tensor([0.32, 0.04, 0.05, 0.07, 0.03, 0.05, 0.06, 0.38], dtype=F64)
curves = pytest.mark.parametrize("curve", ["acdm", "rrum"])


def group_of(curve: str) -> CurvedItems:
    (found,) = LatentAttributeModel((*PURE, (1, 1, 1)), items=curve).layers()[0].curved
    return found


def drawn(shape: tuple[int, ...], size: float = 2.0) -> Tensor:
    return size * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=F64)


@curves
def test_chances(curve: str) -> None:
    group, x = group_of(curve), drawn((5, 4))
    chances = torch.sigmoid(group.log_odds(x))
    b, w, has = x[:, :1], x[:, 1:], group.profiles
    if curve == "acdm":
        shares = torch.cat([b, w, torch.zeros(5, 1, dtype=F64)], -1).softmax(-1)
        expected = shares[:, :1] + shares[:, 1:4] @ has.mT
    else:
        expected = torch.sigmoid(b) * torch.where(
            has > 0, 1.0, torch.sigmoid(-w).unsqueeze(1)
        ).prod(-1)
    torch.testing.assert_close(chances, expected)
    torch.testing.assert_close(group.coefficients(x) @ group.design.mT, group.log_odds(x))
    slopes = torch.stack([torch.autograd.functional.jacobian(group.log_odds, own) for own in x])
    torch.testing.assert_close(group.slopes(x), slopes)
    extreme = group.log_odds(
        torch.tensor(
            [[15.0, 15, -15, 15], [-15, -15, -15, -15], [15, -15, -15, -15], [-15, 15, 15, 15]],
            dtype=F64,
        )
    )
    assert bool(torch.isfinite(extreme).all())


@curves
@pytest.mark.slow
def test_engines_agree(curve: str) -> None:
    model = LatentAttributeModel(Q, items=(curve,) * 12 + ("dina",))
    graph = model.layers()[0].graph
    assert graph is not None
    loadings = graph.double()
    loadings[:9] *= 3
    truth = {
        "profiles": TOGETHER,
        "loadings": loadings,
        "intercepts": torch.tensor([-1.5] * 9 + [0.5] * 4, dtype=F64),
    }
    data = Program(model, None, 1500).simulate(truth, 1)["items"]
    data[::7, ::3] = math.nan
    exact = fit(model, data, EM(tolerance=1e-8), num_restarts=2)
    generic = fit(
        model, data, EM(accelerate=False, max_iterations=500, tolerance=1e-7), init=exact.params
    )
    assert exact.log_likelihood == pytest.approx(generic.log_likelihood, abs=1e-3)
    sampled = fit(model, data, SAEM(), seed=1)
    assert float(Program(model, data).log_marginal(sampled.params)) == pytest.approx(
        exact.log_likelihood, abs=1.5
    )
    ones = torch.eye(3)
    found, expected = (model.expected_responses(params, ones) for params in (exact.params, truth))
    assert float((found - expected).abs().max()) < 0.12
    assert not [
        fall for fall in reversals(exact) if fall.item not in "012345678"
    ]  # monotone by construction
    assert exact.num_parameters == 9 * 2 + 3 * 3 + 2 + 7


@curves
def test_sweeps_have_the_exact_conditionals(curve: str) -> None:
    model = LatentAttributeModel(Q, items=curve)
    graph = model.layers()[0].graph
    assert graph is not None
    params = {
        "profiles": TOGETHER,
        "loadings": graph * drawn(tuple(graph.shape), 0.7),
        "intercepts": drawn((13,), 0.7),
    }
    data = Program(model, None, 20).simulate(params, 1)["items"]
    params = {name: value.unsqueeze(0) for name, value in params.items()}
    gibbs, generator = LayeredGibbs.build(model, data), torch.Generator().manual_seed(0)
    state = gibbs.begin(params, generator)
    after, chances = gibbs.sweep(params, state, generator)
    now = state["attributes"].clone()
    for k in range(3):
        sides = []
        for bit in (1.0, 0.0):
            own = now.clone()
            own[:, k] = bit
            sides.append(Program(model, data).log_joint_rows(params, {"attributes": own.mT}))
        torch.testing.assert_close(
            chances["attributes"][:, k], torch.sigmoid(sides[0] - sides[1]), rtol=0.0, atol=3e-6
        )
        now[:, k] = after["attributes"][:, k]


def test_values_keep_their_names() -> None:
    """An attribute of a monotone item has one direction only."""
    layer = LatentAttributeModel((*PURE, (1, 1, 0)), items="acdm").layers()[0]
    assert flippable(layer).tolist() == [False, False, True]


def test_one_attribute_is_one_model() -> None:
    models = [LatentAttributeModel(PURE, items=rule) for rule in ("acdm", "rrum", "additive")]
    assert all(model.layers()[0].curved == () for model in models)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: LatentAttributeModel(Q, Normal(), items="acdm"),
            "rule of Bernoulli items, and item 0 is Normal",
        ),
        (
            lambda: DeepDiscreteEncoder(13, (3,), graphs=(Q,), bottom=RRUM()),
            "rule of LatentAttributeModel",
        ),
        (
            lambda: LatentAttributeModel(num_attributes=2, num_items=6, items=ACDM()),
            "need the q_matrix",
        ),
    ],
)
def test_bad_input(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


@curves
def test_the_weak_prior_is_half_a_row_in_each_cell(curve: str) -> None:
    """The Dirichlet and Beta densities of torch, times the Jacobian of the way from (b, W) to
    shares and factors.
    """
    group, x = group_of(curve), drawn((5, 4))
    half = torch.tensor(0.5, dtype=F64)

    def parts(own: Tensor) -> Tensor:
        return (
            torch.nn.functional.pad(own, (0, 1)).softmax(-1)[:-1]
            if curve == "acdm"
            else torch.cat([own[:1].sigmoid(), (-own[1:]).sigmoid()])
        )

    for own in x:
        found, jacobian = parts(own), torch.autograd.functional.jacobian(parts, own)
        if curve == "acdm":
            density = torch.distributions.Dirichlet(half.expand(5)).log_prob(
                torch.cat([found, 1 - found.sum(-1, keepdim=True)])
            )
        else:
            density = torch.distributions.Beta(half, half).log_prob(found).sum()
        torch.testing.assert_close(
            group.log_prior(own), density + torch.linalg.slogdet(jacobian)[1]
        )
        gradient, information = group.prior_step(own)
        torch.testing.assert_close(
            gradient, torch.autograd.functional.jacobian(group.log_prior, own)
        )
        torch.testing.assert_close(
            information, -torch.autograd.functional.hessian(group.log_prior, own)
        )


@curves
def test_draws_of_the_weak_prior(curve: str) -> None:
    model = LatentAttributeModel((*PURE, (1, 1, 1)), items=("additive", "gdm", "dina", curve))
    group = model.layers()[0].curved[0]
    with pyro.plate("draws", 4000), torch.random.fork_rng():
        torch.manual_seed(0)
        trace = poutine.trace(model).get_trace(num_rows=1)
    loadings, intercepts = trace.nodes["loadings"]["value"], trace.nodes["intercepts"]["value"]
    x = group.own(intercepts, loadings)[:, 0]
    shares = torch.nn.functional.pad(x, (0, 1)).softmax(-1) if curve == "acdm" else x.sigmoid()
    mean, square = (
        (1 / 5, (0.5 * 1.5) / (2.5 * 3.5)) if curve == "acdm" else (0.5, (0.5 * 1.5) / (1 * 2))
    )
    torch.testing.assert_close(
        shares.mean(0), torch.full_like(shares[0], mean), rtol=0.0, atol=0.03
    )
    torch.testing.assert_close(
        shares.square().mean(0), torch.full_like(shares[0], square), rtol=0.0, atol=0.03
    )
    assert float(loadings[:, 0, 0].std()) == pytest.approx(
        4.0, rel=0.06
    )  # of an item without a curve, in the same site
    assert float((intercepts[:, 0] + loadings[:, 0, 0] / 2).std()) == pytest.approx(5.0, rel=0.06)
