"""Items of several families side by side keep each its own interval of intercepts and loadings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference import EM, SAEM, BoundWarning, ConvergenceWarning, fit
from inference.programs.program import Program
from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, Normal, Poisson, TruncatedLasso

GRAPH = ((1, 0), (0, 1), (1, 1), (1, 0), (0, 1), (1, 1))
MIXED = Blocks((Bernoulli(), 3), (Normal(), 3))


def mixed(penalty=None, graph=None, bound=None):
    return DeepDiscreteEncoder(6, (2,), MIXED, penalty=penalty, graphs=None if graph is None else (graph,), bound=bound)


def separated(num_rows=200, seed=0):
    """Bernoulli items that equal the latents, and Normal items around 300: only the former are unbounded."""
    generator = np.random.default_rng(seed)
    latents = (generator.random((num_rows, 2)) < 0.5).astype(float)
    third = latents.max(1, keepdims=True)
    means = np.column_stack([300 + 90 * latents[:, 0], 50 * latents[:, 1], 40 * latents.sum(1)])
    return np.column_stack([latents, third, means + generator.normal(size=means.shape)])


def test_each_item_has_the_interval_of_its_family():
    layer = mixed().layers()[0]
    assert layer.item_bounds == (15.0, 15.0, 15.0, 1000.0, 1000.0, 1000.0)
    assert layer.bound == 1000.0
    assert mixed(bound=4.0).layers()[0].item_bounds is None
    assert DeepDiscreteEncoder(6, (2,), Blocks((Bernoulli(), 3), (Poisson(), 3))).layers()[0].item_bounds is None


@pytest.mark.parametrize("penalty", [None, TruncatedLasso(2.0, 0.5)], ids=["flat", "penalised"])
@pytest.mark.parametrize("graph", [None, GRAPH], ids=["free", "graph"])
def test_the_prior_is_the_density_on_each_own_interval(penalty, graph):
    model = mixed(penalty, graph)
    program = Program(model, torch.zeros(1, 6, dtype=torch.float64))
    draws = program.draw_prior(300, seed=0)
    loadings = draws["loadings_1"]
    assert loadings[:, :3].abs().max() <= 15 < 100 < loadings[:, 3:].abs().max()
    assert draws["intercepts_1"][:, :3].abs().max() <= 15 < 100 < draws["intercepts_1"][:, 3:].abs().max()
    free = program.unconstrained(draws)
    for name, value in program.constrained(free).items():
        assert torch.allclose(value, draws[name], atol=1e-6)
    total = program.log_prior({name: value[0] for name, value in draws.items()})
    edges = np.ones((6, 2)) if graph is None else np.array(graph)
    expected = -3 * np.log(30) - 3 * np.log(2000) - 3 * np.log(1e6 - 1e-6)
    for j, width in enumerate((15, 15, 15, 1000, 1000, 1000)):
        for k in range(2):
            if edges[j, k] and penalty is None:
                expected -= np.log(2 * width)
            elif edges[j, k]:
                mass = 2 * ((1 - np.exp(-1.0)) / 2.0 + (width - 0.5) * np.exp(-1.0))  # slope 2 up to 0.5, flat beyond
                expected -= 2.0 * min(abs(float(loadings[0, j, k])), 0.5) + np.log(mass)
    assert float(total) == pytest.approx(expected, rel=1e-9)
    batch = program.log_prior(draws)
    assert torch.allclose(batch[:1], total.reshape(1), rtol=1e-12)


@pytest.mark.parametrize("penalty", [None, TruncatedLasso(2.0, 0.5)], ids=["flat", "penalised"])
@pytest.mark.parametrize("method", [EM(max_iterations=200), SAEM(max_iterations=60)], ids=["EM", "SAEM"])
@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_separated_answers_stop_at_their_own_bound_and_are_named(method, penalty):
    with pytest.warns(BoundWarning) as caught:
        result = fit(mixed(penalty), separated(), method, seed=1)
    assert result.params["loadings_1"][:3].abs().max() <= 15
    assert result.params["intercepts_1"][:3].abs().max() <= 15
    assert result.params["intercepts_1"][3:].abs().max() > 200
    text = str(caught[0].message)
    assert "_1[0" in text or "_1[1" in text or "_1[2" in text
    assert not any(f"_1[{j}" in text for j in (3, 4, 5))


def test_the_generic_route_keeps_the_same_box():
    data = separated(60)
    start = {name: value[0] for name, value in Program(mixed(), torch.as_tensor(data[:1])).draw_prior(1, 0).items()}
    start = {name: value.clamp(-5, 5) if name != "dispersion" else value * 0 + 5 for name, value in start.items()}
    with pytest.warns(ConvergenceWarning):
        result = fit(mixed(), data, EM(accelerate=False, max_iterations=3), init=start)
    assert result.params["loadings_1"][:3].abs().max() <= 15
