"""Designs of deep encoders against a direct loop."""

from __future__ import annotations

import math

import pytest
import torch
from papers.deep_discrete_encoder import deep_design, empty_graph_accuracy, generic_design

from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, LogNormal, Normal, Poisson
from ppl_models.datasets import strict_design


def strict_layer_by_hand(k: int) -> tuple[list[list[float]], list[float]]:
    """Entry by entry, counting from 1 as the paper does."""
    half = k // 2
    loadings, intercepts = [], []
    for block, intercept in ((1, -2.0), (2, -4.0), (3, -2.0)):
        for row in range(1, k + 1):
            entries = []
            for column in range(1, k + 1):
                value = 4.0 if row == column else 0.0
                if block == 3 and half > 0 and abs(row - column) == half:
                    value -= 4.0 / 3.0
                entries.append(value)
            loadings.append(entries)
            intercepts.append(intercept)
    return loadings, intercepts


def generic_layer_by_hand(k: int) -> tuple[list[list[float]], list[float]]:
    def upper(row: int, column: int) -> float:
        if row == column:
            return 4.0
        return 4.0 / 3.0 if row < column <= min(row + math.ceil(k / 3), k) else 0.0

    loadings, intercepts = strict_layer_by_hand(k)
    for row in range(k):
        for column in range(k):
            loadings[row][column] = upper(row + 1, column + 1)
            loadings[k + row][column] = upper(column + 1, row + 1)
    return loadings, intercepts


@pytest.mark.parametrize("top_size", [1, 2, 3, 6, 10])
@pytest.mark.parametrize(
    ("design", "by_hand"),
    [(strict_design, strict_layer_by_hand), (generic_design, generic_layer_by_hand)],
)
def test_designs_equal_a_direct_loop(design, by_hand, top_size):
    params = design(top_size)
    for d, size in ((1, 3 * top_size), (2, top_size)):
        loadings, intercepts = by_hand(size)
        assert params[f"loadings_{d}"].shape == (3 * size, size)
        assert params[f"loadings_{d}"].tolist() == loadings
        assert params[f"intercepts_{d}"].tolist() == intercepts
    assert params["proportions"].tolist() == [0.5] * top_size
    assert set(params) == {
        "loadings_1",
        "intercepts_1",
        "loadings_2",
        "intercepts_2",
        "proportions",
    }


@pytest.mark.parametrize(
    ("top_size", "low", "high", "smallest_sum"), [(2, -4.0, -2.0, 5.0), (6, -10.0, -5.0, 8.0)]
)
def test_poisson_items_of_the_generic_design_have_their_own_intercepts(
    top_size, low, high, smallest_sum
):
    params, plain = generic_design(top_size, Poisson()), generic_design(top_size)
    for j, row in enumerate(params["loadings_1"].tolist()):
        expected = low if sum(row) > smallest_sum - 1e-9 else high
        assert params["intercepts_1"][j].item() == expected
    assert {low, high} == set(params["intercepts_1"].tolist())
    for name in ("loadings_1", "loadings_2", "intercepts_2", "proportions"):
        assert torch.equal(params[name], plain[name])
    strict = strict_design(top_size, Poisson())
    assert all(torch.equal(strict[name], value) for name, value in strict_design(top_size).items())


def test_mixed_items_change_only_their_poisson_columns():
    mixed = generic_design(2, Blocks((Poisson(), 10), (Normal(), 8)))
    assert torch.equal(
        mixed["intercepts_1"][:10], generic_design(2, Poisson())["intercepts_1"][:10]
    )
    assert torch.equal(mixed["intercepts_1"][10:], generic_design(2)["intercepts_1"][10:])
    assert mixed["dispersion"].tolist() == [1.0] * 8


@pytest.mark.parametrize(
    ("response", "num_dispersed"),
    [(Bernoulli(), 0), (Poisson(), 0), (Normal(), 18), (LogNormal(), 18)],
)
@pytest.mark.parametrize("design", [strict_design, generic_design])
def test_designs_are_parameters_of_the_model(design, response, num_dispersed):
    params = design(2, response)
    model = DeepDiscreteEncoder(18, (6, 2), response)
    sites = {layer.loadings: (layer.num_children, layer.num_parents) for layer in model.layers()}
    sites |= {layer.intercepts: (layer.num_children,) for layer in model.layers()}
    sites[model.root_layer().proportions] = (2,)
    if num_dispersed:
        sites["dispersion"] = (num_dispersed,)
    assert {name: tuple(value.shape) for name, value in params.items()} == sites
    assert all(value.dtype == torch.float64 for value in params.values())
    if num_dispersed:
        assert (params["dispersion"] == 1).all()


@pytest.mark.parametrize(
    ("design", "baselines"),
    [(strict_design, {2: 0.7333, 6: 0.9111, 10: 0.9467}), (generic_design, {2: 0.5667, 6: 0.7333})],
)
def test_an_empty_graph_scores_the_published_baseline(design, baselines):
    for top_size, accuracy in baselines.items():
        assert empty_graph_accuracy(design(top_size)) == pytest.approx(accuracy, abs=5e-5)


def test_densities_of_the_bottom_graph():
    for design, top_size, density in [
        (strict_design, 2, 0.222),
        (strict_design, 6, 0.074),
        (strict_design, 10, 0.044),
        (generic_design, 2, 0.389),
        (generic_design, 6, 0.253),
    ]:
        assert (design(top_size)["loadings_1"] != 0).double().mean().item() == pytest.approx(
            density, abs=5e-4
        )


def test_deep_design_by_hand_and_its_baselines():
    params = deep_design(3)
    assert [tuple(params[f"loadings_{d}"].shape) for d in (1, 2, 3)] == [(54, 18), (18, 6), (6, 2)]
    for d, baseline in ((1, 0.926), (2, 0.778), (3, 0.333)):
        loadings = params[f"loadings_{d}"]
        assert empty_graph_accuracy({"loadings_1": loadings}) == pytest.approx(baseline, abs=5e-4)
        size = loadings.shape[1]
        for j in range(3 * size):
            block, row = divmod(j, size)
            for k in range(size):
                crossed = block == 2 and abs(row - k) == size // 2
                assert loadings[j, k].item() == (4.0 if row == k else -2.0 if crossed else 0.0)
            assert params[f"intercepts_{d}"][j].item() == (-2.0, -4.0, -2.0)[block]
    assert params["dispersion"].shape == (54,)
    five = deep_design(2, value=5.0, response=Bernoulli())
    assert sorted(set(five["loadings_1"].ravel().tolist())) == [-2.5, 0.0, 5.0]
    assert sorted(set(five["intercepts_2"].tolist())) == [-5.0, -2.5]
    assert "dispersion" not in five
    assert tuple(deep_design(5)["loadings_1"].shape) == (486, 162)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: strict_design(0), "top_size must be a positive integer, got 0"),
        (lambda: generic_design(2.0), "top_size must be a positive integer, got 2.0"),  # type: ignore[arg-type]
        (lambda: generic_design(3, Poisson()), "top_size 2 and 6 only.*got 3"),
        (lambda: deep_design(0), "num_layers must be a positive integer"),
        (lambda: deep_design(2, value=-1.0), "value must be positive, got -1.0"),
        (
            lambda: empty_graph_accuracy({"proportions": torch.ones(2)}),
            "no loadings_1.*proportions",
        ),
    ],
)
def test_designs_refuse_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
