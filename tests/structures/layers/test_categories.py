"""The maximiser of items that are categories, against a general optimiser and by the conditions of
an optimum.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from inference.structures.layers.categories import curves_of_categories
from inference.structures.layers.glm import LayerStatistics, maximise_layer
from inference.structures.layers.graph_search import edge_statistics
from ppl_models import Blocks, Categorical, DeepDiscreteEncoder, Normal, Ordinal, TruncatedLasso
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.parts.distributions import binary_configurations

F64 = torch.float64
FAMILIES = [
    Ordinal(5),
    Ordinal(5, link="adjacent"),
    Categorical(3),
    Ordinal(2),
    Ordinal((3, 5, 2, 4), link="adjacent"),
    Categorical((2, 4, 3, 4)),
]


def layer_and_statistics(
    response: object, penalty: object = None
) -> tuple[GeneralizedLinearLayer, LayerStatistics, dict[str, Tensor]]:
    """Four items of a family on three latents, and expected counts of every category in every
    configuration.
    """
    model = DeepDiscreteEncoder(4, (3,), response=response, penalty=penalty)  # type: ignore[arg-type]
    layer, generator = model.layers()[0], torch.Generator().manual_seed(1)
    values = binary_configurations(3)
    size = model.response.num_predictors(4)
    tilt = (
        torch.randn(size, generator=generator, dtype=F64).unsqueeze(-1)
        + torch.randn(size, 3, generator=generator, dtype=F64) @ values.mT
    )
    sums = 200 * torch.rand(size, 8, generator=generator, dtype=F64) * tilt.mul(0.7).exp()
    design = torch.nn.functional.pad(values, (1, 0), value=1.0)
    start = {
        layer.loadings: torch.zeros(1, layer.num_children, 3, dtype=F64),
        layer.intercepts: torch.zeros(1, layer.num_children, dtype=F64),
    }
    if layer.thresholds:
        start[layer.thresholds] = torch.ones(1, model.response.num_thresholds(4), dtype=F64)
    return (
        layer,
        LayerStatistics(values, sums.sum(0)[None], (sums @ design)[None], sums=sums[None]),
        start,
    )


@pytest.mark.parametrize("response", FAMILIES, ids=repr)
def test_the_optimum_is_that_of_a_general_optimiser(response: object) -> None:
    """All coordinates of all items together by BFGS, on Q written out: the same value, and nothing
    to gain.
    """
    layer, stats, start = layer_and_statistics(response)
    found = maximise_layer(layer, stats, start, 60)
    names = [name for name in (layer.intercepts, layer.loadings, layer.thresholds) if name]
    shapes = [start[name].shape for name in names]
    precision = layer.precision(slice(0, 1), found[layer.loadings])
    assert precision is not None
    assert stats.sums is not None

    def value(flat: Tensor) -> Tensor:
        parts = [
            part.reshape(shape)
            for part, shape in zip(
                flat.split([shape.numel() for shape in shapes]), shapes, strict=True
            )
        ]
        beta = torch.cat([parts[0].unsqueeze(-1), parts[1]], -1)
        eta = layer.response.whole(
            (beta @ stats.design.mT).mT, parts[2].unsqueeze(1) if len(parts) > 2 else None
        )  # (1, C, P)
        log = eta - layer.response.spread(layer.response.log_partition(eta))
        return (log * stats.sums.mT).sum() - ((beta @ precision) * beta).sum() / 2

    def objective(x: object) -> tuple[float, object]:
        flat = torch.tensor(x, dtype=F64, requires_grad=True)
        loss = -value(flat)
        loss.backward()
        assert flat.grad is not None
        return float(loss.detach()), flat.grad.numpy()

    flat = torch.cat([found[name].reshape(-1) for name in names])
    gaps = 0 if len(names) < 3 else shapes[2].numel()
    low = getattr(layer.response, "threshold_range", (0.0, 0.0))[0]
    limits = [(None, None)] * (len(flat) - gaps) + [(low, None)] * gaps
    best = minimize(
        objective,
        torch.cat([start[name].reshape(-1) for name in names]).numpy(),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000},
    )
    assert float(value(flat)) >= -best.fun - 1e-6
    assert objective(flat.numpy())[0] == pytest.approx(best.fun, abs=1e-6)
    once = maximise_layer(layer, stats, start, 1)
    assert float(value(torch.cat([once[name].reshape(-1) for name in names]))) >= float(
        value(torch.cat([start[name].reshape(-1) for name in names]))
    )


@pytest.mark.parametrize("response", [Ordinal(4), Categorical(4)], ids=["Ordinal", "Categorical"])
def test_under_a_lasso_the_slope_is_that_of_the_penalty(response: object) -> None:
    slope = 100.0
    layer, stats, start = layer_and_statistics(response, TruncatedLasso(slope, 1e6))
    found = maximise_layer(layer, stats, start, 200)
    own = {name: value[0] for name, value in found.items()}
    zeros = 0
    for part in layer.parts():
        for curve in curves_of_categories(layer, part, stats.sums, stats.design, own):
            gradient, loadings = curve.gradient[curve.loadings], curve.point[curve.loadings]
            away = loadings != 0
            torch.testing.assert_close(
                gradient[away], slope * loadings[away].sign(), atol=1e-3 * slope, rtol=0
            )
            assert bool((gradient[~away].abs() <= 1.001 * slope).all())
            others = torch.ones_like(curve.point, dtype=torch.bool).index_fill(
                0, curve.loadings.ravel(), False
            )
            assert float(curve.gradient[others].abs().max()) < 1e-3 * slope
            zeros += int((~away).sum())
    assert zeros > 0


def test_a_category_that_no_row_has_leaves_finite_thresholds() -> None:
    layer, stats, start = layer_and_statistics(Ordinal(4))
    assert stats.sums is not None
    sums = stats.sums.clone()
    sums[0, 1] = 0.0  # the second category of the first item
    sums[0, 7] = 0.0  # the last of the second
    found = maximise_layer(layer, replace(stats, sums=sums, cross=sums @ stats.design), start, 60)
    assert float(found["thresholds"][0, 0]) <= 0.9
    assert all(bool(torch.isfinite(value).all()) for value in found.values())


def test_statistics_of_edges_foretell_what_they_gain() -> None:
    """Near the optimum a Wald statistic is twice what Q loses without the edge, of all loadings of
    an item together; the score what it gains.
    """
    response = Blocks((Ordinal(4), 2), (Categorical(3), 1), (Normal(), 1))
    layer, stats, start = layer_and_statistics(response)
    assert stats.sums is not None
    flat = (
        1000
        / 8
        * (
            1
            + 0.1
            * torch.rand(stats.sums.shape, generator=torch.Generator().manual_seed(2), dtype=F64)
        )
    )  # weak effects: quadratics
    stats = replace(
        stats,
        sums=flat,
        cross=flat @ stats.design,
        counts=torch.full((1, 8), 1000.0, dtype=F64),
        squares=torch.full((12,), 9e3, dtype=F64),
    )
    start["dispersion"] = torch.ones(1, 1, dtype=F64)
    full = torch.ones(4, 3, dtype=torch.bool)
    own = {name: value[0] for name, value in maximise_layer(layer, stats, start, 60).items()}
    wald = edge_statistics(layer, stats, own, full)
    assert wald.shape == (4, 3)
    price = torch.tensor([0.0, 0.0, 1.0, 0.0], dtype=F64) * float(torch.tensor(8000.0).log())
    for j, k in ((0, 1), (2, 0)):
        graph = full.clone()
        graph[j, k] = False
        reduced = replace(layer, graph=layer.by_child(graph))
        less = {name: value[0] for name, value in maximise_layer(reduced, stats, start, 60).items()}
        part = next(part for part in layer.parts() if part.items.start <= j < part.items.stop)
        best, rest = (
            [*curves_of_categories(layer, part, stats.sums, stats.design, params)][
                j - part.items.start
            ]
            for params in (own, less)
        )
        gap = best.point - rest.point
        lost = float(gap @ best.hessian @ gap)  # twice the loss of a quadratic
        assert float(wald[j, k] + price[j]) == pytest.approx(lost, rel=0.05)
        assert float(
            edge_statistics(reduced, stats, less, graph)[j, k] + price[j]
        ) == pytest.approx(lost, rel=0.05)
