"""The default prior of encoders: its density, its indifference to names, and what it does where
answers separate.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from inference import EM, SAEM, fit
from inference.programs.program import Program
from inference.structures.layers.align import relabel
from ppl_models import (
    Bernoulli,
    Blocks,
    DeepDiscreteEncoder,
    ExpDINA,
    ExpDINO,
    ExpGDM,
    Normal,
    Poisson,
    TruncatedLasso,
)

GRAPH = ((1, 0), (0, 1), (1, 1), (1, 0), (0, 1), (1, 1))
MIXED = Blocks((Bernoulli(), 3), (Normal(), 3))
SCALES = [(5.0, 4.0)] * 3 + [(1e4, 2e4)] * 3  # of the level and of an effect


def mixed(penalty=None, graph=None, bound=None):
    return DeepDiscreteEncoder(
        6, (2,), MIXED, penalty=penalty, graphs=None if graph is None else (graph,), bound=bound
    )


def separated(num_rows=200, seed=0):
    """Bernoulli items that equal the latents, and Normal items around 300."""
    generator = np.random.default_rng(seed)
    latents = (generator.random((num_rows, 2)) < 0.5).astype(float)
    third = latents.max(1, keepdims=True)
    means = np.column_stack([300 + 90 * latents[:, 0], 50 * latents[:, 1], 40 * latents.sum(1)])
    return np.column_stack([latents, third, means + generator.normal(size=means.shape)])


@pytest.mark.parametrize("penalty", [None, TruncatedLasso(2.0, 0.5)], ids=["plain", "penalised"])
@pytest.mark.parametrize("graph", [None, GRAPH], ids=["free", "graph"])
def test_the_prior_is_its_density(penalty, graph):
    model = mixed(penalty, graph)
    program = Program(model, torch.zeros(1, 6, dtype=torch.float64))
    draws = program.draw_prior(400, seed=0)
    for name, value in program.constrained(program.unconstrained(draws)).items():
        assert torch.allclose(value, draws[name], rtol=1e-6)
    first = {name: value[0].numpy() for name, value in draws.items()}
    edges = np.ones((6, 2)) if graph is None else np.array(graph)
    expected = -3 * np.log(1e6 - 1e-6)
    for j, (level, effect) in enumerate(SCALES):
        own = first["loadings_1"][j]
        expected += stats.norm.logpdf(first["intercepts_1"][j], -own.sum() / 2, level)
        for k in range(2):
            if edges[j, k]:
                expected += stats.norm.logpdf(own[k], 0, effect)
                if penalty is not None:
                    expected -= 2 * min(abs(own[k]), 0.5) + np.log(mass(effect))
            else:
                assert own[k] == 0
    assert float(
        program.log_prior({name: value[0] for name, value in draws.items()})
    ) == pytest.approx(expected, rel=1e-9)
    assert float(program.log_prior(draws)[0]) == pytest.approx(expected, rel=1e-9)
    if penalty is None:
        spread = draws["loadings_1"][:, :, 0].std(0)[edges[:, 0] == 1]
        wanted = torch.tensor([effect for _, effect in SCALES])[edges[:, 0] == 1]
        assert torch.allclose(spread / wanted, torch.ones(len(wanted)).double(), atol=0.2)


def mass(effect):
    """Of a normal density times exp(-penalty): slope 2 up to 0.5, flat beyond."""
    near = integrate.quad(
        lambda b: stats.norm.pdf(b, 0, effect) * np.exp(-2 * b), 0, 0.5, epsabs=1e-14
    )[0]
    return 2 * (near + np.exp(-1.0) * stats.norm.sf(0.5, 0, effect))


@pytest.mark.parametrize(
    "model",
    [
        DeepDiscreteEncoder(5, (3, 2), penalty=None),
        DeepDiscreteEncoder(5, (3, 2), Poisson(), penalty=TruncatedLasso(2.0, 0.5)),
        DeepDiscreteEncoder(6, (2,), MIXED, graphs=(GRAPH,), bottom=ExpGDM()),
        DeepDiscreteEncoder(
            5,
            (3,),
            graphs=(((1, 1, 1), (1, 1, 0), (0, 1, 1), (1, 0, 0), (0, 0, 1)),),
            bottom=ExpGDM(),
        ),
    ],
    ids=["layers", "penalised", "mixed interactions", "three interactions"],
)
def test_the_prior_does_not_know_which_value_of_a_latent_is_called_one(model):
    program = Program(model, torch.zeros(1, model.num_items, dtype=torch.float64))
    params = {name: value[0] for name, value in program.draw_prior(1, 3).items()}
    before = program.log_prior(params)
    for layer in model.layers():
        for k in range(layer.num_parents):
            flips = {layer.parent: torch.arange(layer.num_parents) == k}
            other = relabel(params, model.layers(), model.root_layer(), {}, flips)
            assert not torch.equal(other[layer.loadings], params[layer.loadings])
            assert float(program.log_prior(other)) == pytest.approx(
                float(before), rel=1e-9, abs=1e-7
            )


@pytest.mark.parametrize("bottom", [ExpDINA(), ExpDINO(), ExpGDM()], ids=repr)
def test_the_prior_of_products_is_a_normal_distribution_of_the_predictors_over_all_profiles(bottom):
    graph = ((1, 1, 0), (0, 1, 1), (1, 1, 1), (1, 0, 0))
    model = DeepDiscreteEncoder(4, (3,), graphs=(graph,), bottom=bottom)
    layer = model.layers()[0]
    program = Program(model, torch.zeros(1, 4, dtype=torch.float64))
    draws = program.draw_prior(2, seed=1)
    profiles = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
    features = layer.features(profiles)
    constants = set()
    for d in range(2):
        own = {name: value[d] for name, value in draws.items()}
        predictors = features @ own["loadings_1"].mT + own["intercepts_1"]  # (8, 4)
        mean = predictors.mean(0)
        exponent = (mean.square() / 50 + 4 * (predictors - mean).square().mean(0) / 32).sum()
        constants.add(round(float(program.log_prior(own) + exponent), 8))
    assert len(constants) == 1  # that, and a constant
    cov = features.mT @ features / 8 - features.mean(0)[:, None] * features.mean(0)
    normaliser = sum(
        stats.multivariate_normal(cov=np.linalg.inv(4 * cov[own][:, own].numpy() / 16)).logpdf(
            np.zeros(int(own.sum()))
        )
        + stats.norm.logpdf(0, 0, 5)
        for own in layer.graph
    )
    assert constants.pop() == pytest.approx(float(normaliser), abs=1e-6)


@pytest.mark.parametrize(
    "method", [EM(max_iterations=1000), SAEM(max_iterations=200)], ids=["EM", "SAEM"]
)
@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_separated_answers_stay_finite_and_others_are_not_shrunk(method):
    data = separated()
    result = fit(mixed(), data, method, seed=1)
    assert not any("bound" in text for text in result.warnings)
    assert result.params["loadings_1"][:2].abs().amax(1).min() > 3
    assert result.params["loadings_1"][:3].abs().max() < 15
    latents = data[:, :2]
    for j, k in ((3, 0), (4, 1)):  # Normal items: their cell means to four digits
        expected = data[latents[:, k] == 1, j].mean() - data[latents[:, k] == 0, j].mean()
        sizes = result.params["loadings_1"][j].abs()
        assert float(sizes.max()) == pytest.approx(abs(expected), rel=1e-2)


def test_a_bound_is_a_flat_prior():
    model = mixed(bound=4.0)
    layer = model.layers()[0]
    assert layer.prior is None
    assert layer.bound == 4.0
    draws = Program(model, torch.zeros(1, 6, dtype=torch.float64)).draw_prior(200, 0)
    assert draws["loadings_1"].abs().max() <= 4


def test_a_graph_that_was_read_off_data_says_so():
    model = DeepDiscreteEncoder(6, (2,))
    assert model.restricted([GRAPH]).layers()[0].estimated
    assert not DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,)).layers()[0].estimated
