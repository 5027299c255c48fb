"""Permutations and signs of layers: random relabellings are undone, and never change the
likelihood.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.encoder_names import (
    SIZES,
    describe,
    draw_params,
    draw_relabelling,
    largest_difference,
    seeds,
)
from torch import Tensor

from inference.alignment import align
from inference.structures.layers.align import align_layers, canonical_signs, relabel


def log_likelihood(params: dict[str, Tensor], items: Tensor) -> Tensor:
    """Bernoulli deep discrete encoder by brute force over every configuration of every layer, in
    plain loops.
    """
    num_layers = sum(name.startswith("loadings_") for name in params)
    sizes = [params[f"loadings_{d}"].shape[1] for d in range(1, num_layers + 1)]
    total = torch.zeros(len(items), dtype=torch.float64)
    for codes in itertools.product(*(itertools.product((0.0, 1.0), repeat=k) for k in sizes)):
        latents = [torch.tensor(code, dtype=torch.float64) for code in codes]
        pi = params["proportions"]
        weight = torch.where(latents[-1] == 1, pi, 1 - pi).prod()
        for d in range(num_layers, 1, -1):
            p = torch.sigmoid(params[f"intercepts_{d}"] + params[f"loadings_{d}"] @ latents[d - 1])
            weight = weight * torch.where(latents[d - 2] == 1, p, 1 - p).prod()
        p = torch.sigmoid(params["intercepts_1"] + params["loadings_1"] @ latents[0])
        total = total + weight * torch.where(items == 1, p, 1 - p).prod(-1)
    return total.log()


@settings(max_examples=30, deadline=None)
@given(seed=seeds, depth=st.sampled_from([1, 2, 3]))
def test_align_undoes_any_relabelling(seed: int, depth: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    layers, root = describe(SIZES[depth])
    truth = draw_params(SIZES[depth], generator)
    other = relabel(truth, layers, root, *draw_relabelling(SIZES[depth], generator))
    aligned = align_layers(other, truth, layers, root)
    assert largest_difference(aligned.params, truth) < 1e-12
    assert aligned.cost < 1e-20


@settings(max_examples=6, deadline=None)
@given(seed=seeds, depth=st.sampled_from([1, 2, 3]))
def test_relabelling_leaves_the_likelihood_unchanged(seed: int, depth: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sizes = {1: (5, 3), 2: (5, 3, 2), 3: (5, 3, 2, 1)}[depth]
    layers, root = describe(sizes)
    params = draw_params(sizes, generator)
    items = torch.tensor(list(itertools.product((0.0, 1.0), repeat=5)), dtype=torch.float64)
    before = log_likelihood(params, items)
    assert before.exp().sum() == pytest.approx(1)
    permutations, flips = draw_relabelling(sizes, generator)
    after = relabel(params, layers, root, permutations, flips)
    assert (log_likelihood(after, items) - before).abs().max() < 1e-10
    canonical = canonical_signs(params, layers, root)
    assert (log_likelihood(canonical.params, items) - before).abs().max() < 1e-10


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_a_single_flip_follows_the_formula(layer: int) -> None:
    sizes, k = SIZES[3], 1
    layers, root = describe(sizes)
    params = draw_params(sizes, torch.Generator().manual_seed(layer))
    expected = {name: value.clone() for name, value in params.items()}
    expected[f"intercepts_{layer}"] += params[f"loadings_{layer}"][:, k]
    expected[f"loadings_{layer}"][:, k] *= -1
    if layer < 3:
        expected[f"intercepts_{layer + 1}"][k] *= -1
        expected[f"loadings_{layer + 1}"][k] *= -1
    else:
        expected["proportions"][k] = 1 - params["proportions"][k]
    flips = {f"latents_{layer}": torch.arange(sizes[layer]) == k}
    assert largest_difference(relabel(params, layers, root, {}, flips), expected) == 0


def test_align_finds_labels_under_noise_and_reports_its_cost() -> None:
    layers, root = describe(SIZES[2])
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        truth = draw_params(SIZES[2], generator)
        noisy = {
            name: value + 1e-3 * torch.randn(value.shape, generator=generator)
            for name, value in truth.items()
        }
        permutations, flips = draw_relabelling(SIZES[2], generator)
        aligned = align_layers(
            relabel(noisy, layers, root, permutations, flips), truth, layers, root
        )
        assert largest_difference(aligned.params, noisy) < 1e-12
        cost = sum(
            float((noisy[f"loadings_{d}"] - truth[f"loadings_{d}"]).square().sum()) for d in (1, 2)
        )
        assert aligned.cost == pytest.approx(cost)
        for site in permutations:
            assert torch.equal(
                permutations[site][aligned.permutations[site]],
                torch.arange(len(permutations[site])),
            )


def test_without_signs_nothing_is_flipped() -> None:
    layers, root = describe(SIZES[2])
    truth = draw_params(SIZES[2], torch.Generator().manual_seed(0))
    flipped = relabel(
        truth, layers, root, {}, {"latents_1": torch.tensor([True, False, True, False])}
    )
    aligned = align_layers(flipped, truth, layers, root, signs=False)
    assert not any(flips.any() for flips in aligned.flips.values())
    assert aligned.cost > 1
    for site in ("loadings_1", "loadings_2"):
        assert torch.equal(aligned.params[site].abs().sum(), flipped[site].abs().sum())


def test_a_given_graph_names_the_latents() -> None:
    graph = torch.tensor([[1, 1], [1, 0], [0, 1]]).bool()
    free, root = describe((3, 2))
    given, _ = describe((3, 2), {1: graph})
    alike, _ = describe((3, 2), {1: torch.ones(3, 2).bool()})
    rest = {"intercepts_1": torch.zeros(3), "proportions": torch.full((2,), 0.5)}
    truth = rest | {"loadings_1": torch.tensor([[5.0, 1.0], [0.1, 0.0], [0.0, 0.1]])}
    estimate = rest | {
        "loadings_1": torch.tensor([[1.0, 5.0], [0.1, 0.0], [0.0, 0.1]])
    }  # values swapped, not edges
    assert align_layers(estimate, truth, free, root).permutations["latents_1"].tolist() == [1, 0]
    assert align_layers(estimate, truth, alike, root).permutations["latents_1"].tolist() == [1, 0]
    assert align_layers(estimate, truth, given, root).permutations["latents_1"].tolist() == [0, 1]
    # a graph whose latents all were renamed: the edges decide, not the values
    renamed, _ = describe((3, 2), {1: graph[:, [1, 0]]})
    swapped = align_layers(
        relabel(estimate, free, root, {"latents_1": torch.tensor([1, 0])}, {}), truth, renamed, root
    )
    assert swapped.permutations["latents_1"].tolist() == [0, 1]


def test_leading_dims_share_one_relabelling() -> None:
    layers, root = describe(SIZES[2])
    generator = torch.Generator().manual_seed(3)
    draws = [draw_params(SIZES[2], generator) for _ in range(3)]
    how = draw_relabelling(SIZES[2], generator)
    stacked = relabel(
        {name: torch.stack([d[name] for d in draws]) for name in draws[0]}, layers, root, *how
    )
    for i, one in enumerate(draws):
        assert (
            largest_difference(
                relabel(one, layers, root, *how), {k: v[i] for k, v in stacked.items()}
            )
            == 0
        )


# ---------------------------------------------------------------- signs


@settings(max_examples=30, deadline=None)
@given(seed=seeds, depth=st.sampled_from([1, 2, 3]))
def test_conventions_hold_in_every_layer_and_are_idempotent(seed: int, depth: int) -> None:
    layers, root = describe(SIZES[depth])
    params = draw_params(SIZES[depth], torch.Generator().manual_seed(seed))
    by_sum, by_first = (canonical_signs(params, layers, root, c) for c in ("column_sum", "first"))
    for layer in layers:
        assert (by_sum.params[layer.loadings].sum(0) > 0).all()
        assert (by_first.params[layer.loadings][0] > 0).all()
    again = canonical_signs(by_sum.params, layers, root)
    assert largest_difference(again.params, by_sum.params) == 0
    assert largest_difference(canonical_signs(params, layers, root, "as_is").params, params) == 0
    back = align_layers(by_first.params, params, layers, root)
    assert largest_difference(back.params, params) < 1e-12


def test_a_zero_sum_is_decided_by_the_first_nonzero_entry() -> None:
    layers, root = describe((3, 3))
    params = {
        "loadings_1": torch.tensor([[0.0, 1, 0], [-2, -1, 0], [2, 0, 0]], dtype=torch.float64),
        "intercepts_1": torch.zeros(3, dtype=torch.float64),
        "proportions": torch.tensor([0.2, 0.5, 0.7], dtype=torch.float64),
    }
    aligned = canonical_signs(params, layers, root)
    assert aligned.flips["latents_1"].tolist() == [True, False, False]
    assert aligned.params["loadings_1"][:, 0].tolist() == [0, 2, -2]
    assert aligned.params["intercepts_1"].tolist() == [0, -2, 2]
    assert aligned.params["proportions"].tolist() == pytest.approx([0.8, 0.5, 0.7])


# ---------------------------------------------------------------- bad input


def test_bad_input_is_refused_by_name() -> None:
    layers, root = describe(SIZES[2])
    params = draw_params(SIZES[2], torch.Generator().manual_seed(0))
    short = params | {"loadings_2": params["loadings_2"][:, :1]}
    with pytest.raises(
        ValueError, match=r"reference: loadings_2 must have shape \(4, 2\), got \(4, 1\)"
    ):
        align_layers(params, short, layers, root)
    with pytest.raises(
        ValueError, match=r"params: loadings_2 must have shape \(4, 2\), got \(4, 1\)"
    ):
        align_layers(short, params, layers, root)
    leading = {name: value[None] for name, value in params.items()}
    with pytest.raises(
        ValueError, match=r"params: loadings_1 must have shape \(7, 4\), got \(1, 7, 4\)"
    ):
        align_layers(leading, params, layers, root)
    missing = {name: value for name, value in params.items() if name != "proportions"}
    with pytest.raises(ValueError, match="'proportions' of shape .* got NoneType"):
        align_layers(missing, params, layers, root)
    with pytest.raises(ValueError, match="reference: a tensor 'loadings_1'"):
        align_layers(params, {}, layers, root)
    with pytest.raises(ValueError, match="intercepts_1 must be finite"):
        align_layers(params | {"intercepts_1": params["intercepts_1"] / 0}, params, layers, root)
    with pytest.raises(ValueError, match="at least one layer"):
        align_layers(params, params, [], root)
    with pytest.raises(ValueError, match="convention must be .* got 'sum'"):
        canonical_signs(params, layers, root, "sum")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"layers\(\) and root\(\) was expected"):
        align(SimpleNamespace(model=object(), params=params), params)
    model = SimpleNamespace(layers=lambda: layers, root=lambda: root)
    with pytest.raises(
        ValueError, match="reference must be a fit or a dict of parameters, got int"
    ):
        align(SimpleNamespace(model=model, params=params), 3)
